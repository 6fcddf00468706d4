"""The results of fixed runs as pages show them, compared with recorded files: no figure, order or link
changes unnoticed.

Those of a run of the store's own kind are in `tests/web/recorded`.
"""

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from filled import NOW, add_batch, carry_out, filled_store, task_items
from proctor.report.render import items_table
from proctor.report.result_sections import change_finder, decision_sentence, general_view
from proctor.results.loading import load_results
from proctor.results.stopping import Standing
from proctor.stats.intervals import Estimate
from proctor.store import Store
from proctor.store.imported_runs import ImportedFile, TableOutcome
from recorded_files import check, mapped

RECORDED = Path(__file__).parent / "recorded"
STATUSES = ("success", "success", "fail", "success", "timeout", "error", "success")


def outcomes() -> list[TableOutcome]:
    """Two repeats of seven tasks by three models, with a score of fractions and one of whole numbers."""
    return [
        TableOutcome(
            task=f"t{task}",
            model=model,
            repeat=repeat,
            status=STATUSES[(task * 5 + place * 3 + repeat * 2) % 7],
            reason="",
            cost_usd=0.01 * (1 + (task * 9 + place * 3 + repeat) % 11),
            seconds=10.0 + (task * 7 + place + repeat) % 13,
            tokens=100 + task,
            scores=[("tidy", (task * 11 + place * 5 + repeat) % 8 / 8), ("stars", float((task + place) % 5))],
            file="f",
            place="f:1",
        )
        for task in range(7)
        for place, model in enumerate(("gpt", "qwen", "yi"))
        for repeat in (1, 2)
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with filled_store(tmp_path_factory.mktemp("results")) as filled:
        add_batch(filled, "alone", task_items("a", 4))
        carry_out(filled, "alone")
        file = ImportedFile(key="f", path="f", digest="d")
        filled.imported_runs.save_table("imported", lambda _: ([file], outcomes()), NOW, "1")
        yield filled


def plain(name: str, value: Any) -> Any:
    """Numbers to nine digits, drawings by their digest."""
    if name == "svg":
        return hashlib.blake2b(value.encode(), digest_size=8).hexdigest()
    return float(f"{value:.9g}") if isinstance(value, float) else value


@pytest.mark.parametrize("run_id", ["alone", "imported"])
def test_the_results_of_a_run_are_as_recorded(run_id: str, store: Store) -> None:
    view = general_view(load_results(store.read, [run_id], NOW), change_finder(store.read, run_id))
    check(RECORDED / f"results-{run_id}.txt", mapped(asdict(view), plain))


def test_the_items_of_a_portable_report_are_as_recorded(store: Store) -> None:
    check(RECORDED / "items.txt", mapped(items_table(store.read, "imported"), plain))


@pytest.mark.parametrize(
    ("rivals", "needs", "left", "is_running", "text"),
    [
        ((), 0, 10, True, "The winner is already clear: a (75% of 8 tasks, 95% CI 50% to 90%)."),
        ((), 0, 0, False, "The winner is clear: a (75% of 8 tasks, 95% CI 50% to 90%)."),
        (
            ("b",),
            None,
            10,
            True,
            "a leads (75% of 8 tasks, 95% CI 50% to 90%), but is not separated from b. It cannot be ",
        ),
        (
            ("b", "c"),
            5,
            0,
            True,
            "a leads (75% of 8 tasks, 95% CI 50% to 90%), but is not separated from 2 others. About ",
        ),
    ],
)
def test_a_sentence_says_who_leads_and_whether_that_is_clear(
    rivals: tuple[str, ...], needs: int | None, left: int, is_running: bool, text: str
) -> None:
    estimate = Estimate(value=0.75, low=0.5, high=0.9)
    standing = Standing(
        leader="a", estimate=estimate, rivals=rivals, tasks=8, unit="task", needs=needs, left=left
    )
    sentence = decision_sentence(standing, is_running=is_running, is_random=False)
    assert sentence.text.startswith(text)
    assert sentence.offers_stop is is_running
    assert sentence.tone == ("open" if rivals else "good")
    assert ("stop_when" in sentence.note) is is_running
    assert "stop_when" not in decision_sentence(standing, is_running=is_running, is_random=True).note


@pytest.mark.parametrize(("tasks", "has_interval"), [(5, False), (6, True)])
def test_of_a_few_tasks_who_leads_is_said_without_an_interval(tasks, has_interval):
    estimate = Estimate(value=1.0, low=0.17, high=1.0)
    standing = Standing(
        leader="a", estimate=estimate, rivals=("b",), tasks=tasks, unit="task", needs=None, left=0
    )
    sentence = decision_sentence(standing, is_running=False, is_random=True)
    assert ("95% CI 17% to 100%" in sentence.text) is has_interval
    assert ("valid at any time" in sentence.note) is has_interval
