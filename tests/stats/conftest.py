"""The store these tests look at."""

import sys
from pathlib import Path

import pytest

# Test folders are no packages; the one function they share lies beside the tests of `analyse`.
sys.path.insert(0, str(Path(__file__).parents[1] / "analyse"))

from filled import filled_store


@pytest.fixture
def store(tmp_path):
    """A finished batch of thirty-six items."""
    with filled_store(tmp_path) as filled:
        yield filled
