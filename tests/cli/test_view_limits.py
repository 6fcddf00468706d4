"""How much of a long list the views of a run print, and what they say about the rest."""

from pathlib import Path

import pytest

from filled import add_batch, items, new_store
from proctor.cli import output


@pytest.mark.parametrize(
    ("room", "typed"),
    [
        (11, "nightly-regression-of-support"),
        (12, "nightly-regr"),
        (17, "nightly-regressio"),
        (18, "nightly-regression"),
        (20, "nightly-regression"),
        (28, "nightly-regression-of"),
        (29, "nightly-regression-of-support"),
    ],
)
def test_a_run_is_typed_as_a_prefix_that_ends_with_a_word_if_there_is_room(
    room: int, typed: str, tmp_path: Path
) -> None:
    name = "nightly-regression-of-support"
    with new_store(tmp_path) as store:
        add_batch(store, name, items()[:1])
        assert output.run_prefix(store, name, room) == typed
