"""The store these tests look at."""

import pytest

from filled import filled_store


@pytest.fixture
def store(tmp_path):
    """A finished batch of thirty-six items."""
    with filled_store(tmp_path) as filled:
        yield filled
