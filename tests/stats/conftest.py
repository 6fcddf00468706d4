"""The store these tests look at."""

import os
import sys
from pathlib import Path

import pytest

# Several threads on matrices this small cost more than they gain, the more so on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Test folders are no packages; the one function they share lies beside the tests of `analyse`.
sys.path.insert(0, str(Path(__file__).parents[1] / "analyse"))

from filled import filled_store


@pytest.fixture
def store(tmp_path):
    """A finished batch of thirty-six items."""
    with filled_store(tmp_path) as filled:
        yield filled
