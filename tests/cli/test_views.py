"""What a run says of itself where nobody watches it live."""

from typing import Any

import pytest

from proctor.cli.run import LineView


@pytest.mark.parametrize(
    ("items", "finished", "said"),
    [
        (1, 0, "nightly: 1 item"),
        (6, 0, "nightly: 6 items"),
        (1200, 1100, "nightly: 1,200 items, 1,100 finished already"),
    ],
)
def test_a_run_begins_by_saying_what_is_to_be_done(items: int, finished: int, said: str, capsys: Any) -> None:
    LineView("nightly", items, finished, quiet=False)

    assert capsys.readouterr().err == f"{said}\n"
