"""Dialogues by combination: what is counted, and which levels are told apart."""

import pytest

from proctor.item import Item
from proctor.jobs.dialogue.results import (
    is_data,
    measure_rows,
    measures,
    results_of,
    summary_of,
    with_distinct_names,
)
from proctor.score import Score
from proctor.stats.crossing import Effect
from stocked import add_batch, session


def run(status: str = "success", *, turns: int | None = None, **more: object) -> dict[str, object]:
    return {"client": "c", "therapist": "t", "status": status, "num_turns": turns} | more


def tone(*values: float | None) -> list[dict[str, object]]:
    return [{"evaluator": "tone", "value": value} for value in values]


def test_a_summary_counts_dialogues_by_combination() -> None:
    runs = [
        run(turns=4, end_reason="done", scores=tone(1.0)),
        run(turns=7, end_reason="done", scores=tone(1.0, None, 3.0)),
        run("fail", turns=3, reason="loop", end_reason="loop", run_id="3", caused_by="client", error="again"),
        run("error", turns=9, reason="outage", run_id=4),
        run("queued"),
        run(combination="d_t", turns=2, scores=tone(1 / 3)),
        run("timeout", combination="d_t", turns=None, reason="timeout"),
    ]
    summary = summary_of(runs)
    counts = ("total_runs", "successful", "failed", "unfinished")
    assert [summary[name] for name in counts] == [7, 3, 3, 1]
    assert summary["by_combination"] == {
        "c_t": {
            "num_runs": 5,
            "avg_turns": 4.666667,
            "std_turns": 2.081666,
            "successful": 2,
            "failed": 2,
            "end_reasons": {"done": 2, "loop": 1},
            "counted": 3,
            "scores": {"tone": {"mean": 1.5, "std": 0.707107, "n": 2}},
        },
        "d_t": {
            "num_runs": 2,
            "avg_turns": 2,
            "std_turns": None,
            "successful": 1,
            "failed": 1,
            "end_reasons": {},
            "counted": 1,
            "scores": {"tone": {"mean": 0.333333, "std": None, "n": 1}},
        },
    }
    assert [(each["run_id"], each["caused_by"], each["error"]) for each in summary["errors"]] == [
        (3, "client", "again"),
        (4, "infrastructure", "outage"),
        (0, "infrastructure", "timeout"),
    ]
    of_other_tools = summary_of([{"client": "c", "therapist": "t"}])
    assert (of_other_tools["successful"], [*of_other_tools["by_combination"]]) == (1, ["c_t"])
    empty = summary_of([])
    assert (empty["total_runs"], empty["successful"], empty["failed"], empty["errors"]) == (0, 0, 0, [])
    (pending,) = summary_of([run("queued")])["by_combination"].values()
    assert (pending["avg_turns"], pending["counted"], "scores" in pending) == (None, 0, False)


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        ("success", "", True),
        ("fail", "", True),
        ("fail", "checks_failed", True),
        ("fail", "loop", True),
        ("fail", "limit", False),
        ("timeout", "loop", False),
        ("error", "", False),
    ],
)
def test_dialogues_that_came_to_their_end_are_data(status: str, reason: str, expected: bool) -> None:
    assert is_data(status, reason) is expected
    row = {"client": "c", "therapist": "t", "num_turns": 3, "score.tone": 0.5}
    assert measure_rows([run(status, reason=reason, turns=3, scores=tone(0.5))]) == [row] * expected


def test_sides_with_several_models_and_profiles_of_several_people_are_told_apart() -> None:
    rows = [
        {"client": "c", "client_model": "m", "therapist": "t", "profile": "p", "patient_name": "Ann"},
        {"client": "c", "client_model": "n", "therapist": "t", "profile": "p", "patient_name": "Bob"},
        {"client": "d", "client_model": "m", "therapist": "t", "profile": "q", "patient_name": "Ann"},
        {"client": "d", "client_model": "m", "therapist": "t", "profile": None, "patient_name": "Bob"},
        {"client": "d", "client_model": "m", "therapist": "t", "profile": None, "patient_name": "Ann"},
    ]
    apart = with_distinct_names(rows)
    assert [row["client"] for row in apart] == ["c (m)", "c (n)", "d", "d", "d"]
    assert [row["profile"] for row in apart] == ["p (Ann)", "p (Bob)", "q", None, None]
    assert {row["therapist"] for row in apart} == {"t"}


def test_measures_are_columns_of_numbers() -> None:
    rows = [
        {
            "client": "c",
            "turns": 3,
            "flag": True,
            "seed": 4,
            "note": "x",
            "mixed": 1,
            "huge": 1e200,
            "none": None,
        },
        {"client": "c", "turns": None, "mixed": "x", "late": 0.5, "huge": 1e300},
    ]
    assert measures(rows) == ["turns", "late"]
    assert measures([*rows, {"huge": 1.0}]) == ["turns", "huge", "late"]


@pytest.mark.parametrize(("p", "expected"), [(None, False), (0.01, True), (1 - 0.95, True), (0.051, False)])
def test_an_effect_is_significant_after_correction(p: float | None, expected: bool) -> None:
    effect = Effect(contrast="a - b", value=1.0, low=None, high=None, p=0.001, p_corrected=p)
    assert effect.is_significant is expected


def test_the_dialogues_of_a_batch_have_their_turns_ends_and_scores(proctor_store) -> None:
    items = [
        Item(
            prompt=name,
            factors={"client": name, "therapist": "t"},
            settings={"combination": f"{name}_t", "run": number},
        )
        for number, name in enumerate(("ann", "bob"), start=1)
    ]
    for run_id, count in (("run", items), ("other", items[:1])):
        add_batch(proctor_store, run_id, count, job="dialogue")
    writer = proctor_store.writer()
    for position, (name, value, label) in enumerate(
        [("num_turns", 7.0, None), ("end_reason", None, "done"), ("caused_by", None, "client")]
    ):
        writer.append("metrics", ("s1", position, 0, name, value, label))
    recorder = session(writer, "s1", item_id=items[0].id, job="dialogue")
    for value in (1.0, 4.0):
        recorder.score(Score(evaluator="tone", value=value))
    writer.change("batch_items", ("run", items[0].id), {"status": "success", "sessionId": "s1"})
    writer.change("batch_items", ("run", items[1].id), {"status": "error", "reason": "outage", "error": "x"})
    writer.close()
    ann, bob = results_of(proctor_store.read, "run")
    assert ann == run(
        turns=7, combination="ann_t", client="ann", run_id=1, end_reason="done", caused_by="client",
        error="", reason="", scores=[{"evaluator": "tone", "value": 2.5}],
    )  # fmt: skip
    assert (bob["num_turns"], bob["end_reason"], bob["caused_by"], bob["scores"]) == (None, None, None, [])
    assert (bob["status"], bob["reason"], bob["error"]) == ("error", "outage", "x")
