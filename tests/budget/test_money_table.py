"""No way of a provider to bill takes more than the budget: each case of the money table once, undisturbed."""

import random

import pytest

from chaos.money import BEGIN, CASES, END, PAGE, has_side, measure, money_table
from chaos.provider import running_provider

LIKE_ANOTHER = {
    ("several answers, priority tier", "own"),
    ("file inputs", "gateway"),
    ("200 with an error object", "gateway"),
    ("200 with a list", "gateway"),
    # Takes seconds to be stored.
    ("200 with more than 32 MiB", "gateway"),
}
"""Left out here: `make chaos` measures them, too."""
SIDES = [
    (case, side)
    for case in CASES
    for side in ("own", "gateway")
    if has_side(case, side) and (case.name, side) not in LIKE_ANOTHER
]


@pytest.fixture(scope="module")
def billing_server():
    with running_provider(random.Random(0)) as provider:
        yield provider


@pytest.mark.parametrize(("case", "side"), SIDES, ids=lambda value: getattr(value, "name", value))
def test_no_more_is_billed_than_the_budget(case, side, billing_server, tmp_path, command_server):
    def start(words, folder, environment):
        return command_server.start(words, folder=folder, environment=environment)

    assert measure(case, side, "calm", billing_server, tmp_path, start) <= 1.0 + 1e-9


def test_the_table_of_the_manual_has_all_cases_and_none_above_the_budget() -> None:
    table = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.strip().splitlines()[2:]]
    assert [row[0] for row in rows] == [case.name for case in CASES], (
        "renew it with tests/chaos/money.py --write"
    )
    figures = [float(cell) for row in rows for cell in row[1:] if cell not in ("–", "refused")]
    assert max(figures) <= 1.0 and len(money_table({}).splitlines()) == len(rows) + 2
