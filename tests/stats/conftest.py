"""The store these tests look at."""

import os

import pytest

# Several threads on matrices this small cost more than they gain, the more so on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from filled import filled_store


@pytest.fixture
def store(tmp_path):
    """A finished batch of thirty-six items."""
    with filled_store(tmp_path) as filled:
        yield filled
