"""Finished items as columns."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from filled import NOW, carry_out, filled_store, new_store, task_items
from proctor.errors import NotFound
from proctor.item import FINISHED, Item
from proctor.jobs.imported.table import import_table
from proctor.results.loading import load_first_results, load_results
from proctor.score import Score
from proctor.stats.figures import figures_of
from proctor.stats.results import Inputs, Labels, Results, distinct_labels
from proctor.store import Recorder, timestamp
from stocked import add_batch, change_items, record


def test_items_are_columns_with_levels_and_figures(tmp_path: Path) -> None:
    store = filled_store(tmp_path)
    results = load_results(store.read, ["compare"], NOW)
    assert len(results) == 36
    assert results.column("model").labels == ("gpt-5", "claude-opus", "qwen3:8b")
    counts = {status: int((results.status == at).sum()) for at, status in enumerate(FINISHED)}
    assert counts == {"success": 18, "fail": 6, "timeout": 6, "error": 6}
    assert int(np.isnan(results.metrics["success"]).sum()) == counts["error"]
    assert float(np.nansum(results.metrics["success"])) == 18
    assert float(results.with_errors_failed.mean()) == 0.5
    with pytest.raises(NotFound, match="There are: repo, "):
        results.column("color")


def test_a_task_is_the_same_for_every_model_and_repeat(tmp_path: Path) -> None:
    results = load_results(filled_store(tmp_path).read, ["compare"], NOW)
    by_model, varied = results.tasks(results.column("model"))
    assert varied == ("model",)
    # Three repositories with two agents each; models and repeats share a task.
    assert len(by_model.labels) == 6
    every, left_out = results.tasks()
    assert left_out == ("agent", "model") and len(every.labels) == 3
    first = results.where(results.column("model").mask("gpt-5"))
    assert len(first) == 12 and set(first.column("model").codes) == {0}


def test_a_task_is_the_same_for_agents_that_are_commands_and_for_mocks_beside_them(tmp_path: Path) -> None:
    mocks, commands = ("oracle", "noop"), ("eager", "careful")
    batch_items = [
        Item(
            runner="benchmark",
            agent="scripted" if name in mocks else "command",
            model=name if name in mocks else "default",
            prompt=task,
            details={"command": name} if name in commands else {"script": [task] * (name == "oracle")},
            factors={
                "agent": name if name in commands else "scripted",
                "model": name if name in mocks else "default",
                "task": task,
            },
        )
        for task in ("fix", "add", "mend")
        for name in (*mocks, *commands)
    ]
    with new_store(tmp_path, batch_items=batch_items) as store:
        carry_out(store, "compare")
        assert load_results(store.read, ["compare"], NOW).tasks()[0].labels == ("fix", "add", "mend")


def test_the_interval_of_a_mean_time_ends_at_the_time_limit_that_all_items_have(tmp_path: Path) -> None:
    for limits in ((8, 5), (8, None)):
        batch_items = [
            replace(item, settings={"timeoutSec": limit} if limit else {})
            for item, limit in zip(task_items("a", 6), limits * 3, strict=True)
        ]
        folder = tmp_path / str(limits[1])
        folder.mkdir()
        with new_store(folder, batch_items=batch_items) as store:
            carry_out(store, "compare")
            results = load_results(store.read, ["compare"], NOW)
        times = np.asarray([0.01, 0.02, 0.02, 0.5, 7.5, 0.01])
        results = replace(results, metrics={**results.metrics, "time": times})
        high = figures_of(results, results.tasks()[0]).seconds.high
        assert high is not None and (high == 8 if limits[1] else high > 100)


def test_tasks_whose_names_are_cut_and_agree_are_shown_with_what_differs(tmp_path: Path) -> None:
    head = ("Repair the parser of the configuration files so that the tests of the package " * 2)[:80]
    prompts = [f"{head} pass {'again ' * 40}{rest}" for rest in ("in Python 3.11", "in Python 3.12")]
    prompts += [f"{head} pass with the new reader.", f"{head} pass with the old reader.", "Short"]
    batch_items = [
        Item(runner="prompt", prompt=prompt, model=model, factors={"model": model, "task": prompt[:80]})
        for prompt in prompts
        for model in "ab"
    ]
    with new_store(tmp_path, batch_items=batch_items) as store:
        carry_out(store, "compare")
        results = load_results(store.read, ["compare"], NOW)

    tasks, _ = results.tasks(results.column("model"))
    assert len(set(tasks.labels)) == len(tasks.labels) == 5
    assert all(label.startswith(f"{head} … ") for label in tasks.labels[:4]) and tasks.labels[4] == "Short"
    assert tasks.labels[2].endswith(" … with the new reader.")
    # Names by which tasks are paired and filtered stay as they are.
    assert set(results.labels) == {head, "Short"} == set(results.column("task").labels)
    assert results.tasks(pair="task")[0].labels == (head, "Short")
    first = results.where(results.column("model").mask("a"))
    assert first.tasks(first.column("model"))[0].labels == tasks.labels


def test_the_rests_of_cut_names_are_those_of_their_own_rows_on_every_page(tmp_path, monkeypatch) -> None:
    # White-box: a page has thousands of rows.
    monkeypatch.setattr("proctor.store.database.PAGE_ROWS", 2)
    head = "Repair the parser of the configuration files so that the tests of the package pass"[:80]
    prompts = ["Short", "Brief", f"{head} again", f"{head} at last"]
    items = [Item(prompt=prompt, model="m", factors={"task": prompt[:80]}) for prompt in prompts]
    with new_store(tmp_path, batch_items=items) as store:
        carry_out(store, "compare")
        tasks, _ = load_results(store.read, ["compare"], NOW).tasks()
    assert [label.rpartition(" … ")[2] for label in tasks.labels] == ["Short", "Brief", "again", "at last"]


def test_names_of_tasks_that_agree_have_the_part_that_differs_or_a_number() -> None:
    assert distinct_labels([], []) == ()
    assert distinct_labels(["a", "a"], ["", ""]) == ("a", "a"), "they are not cut"
    assert distinct_labels(["a", "b"], [" x", " x"]) == ("a…", "b…")
    assert distinct_labels(["a"] * 3, [" x y", " x z", " x y"]) == ("a … y", "a … z", "a … y (2)")
    assert distinct_labels(["a", "a"], ["bc d", "bc"]) == ("a … bc d", "a … bc")
    assert distinct_labels(["a", "a"], [" x ", " x y"]) == ("a", "a … y")
    assert distinct_labels(["a", "a"], [f" {'x' * 90}", " y"]) == (f"a … {'x' * 40}", "a … y")


def test_labels_are_coded_in_the_order_they_appear() -> None:
    column = Labels.of(["b", None, "a", "b", ""])
    assert column.labels == ("b", "a")
    assert column.codes.tolist() == [0, -1, 1, 0, -1]
    assert column.mask("a").tolist() == [False, False, True, False, False]
    assert not column.mask("c").any()


def test_results_of_another_tool_pair_by_the_name_of_the_task(tmp_path: Path) -> None:
    table = tmp_path / "theirs.csv"
    table.write_text("task,model,success\n" + "".join(f"task {n},m,1\n" for n in range(8)))
    items = [
        Item(prompt=f"Please do {n}", model="a", factors={"task": f"task {n}"}, details={"x": n})
        for n in range(8)
    ]
    store = new_store(tmp_path, "ours", items)
    carry_out(store, "ours")
    import_table(store, [table], "theirs", NOW)

    results = load_results(store.read, ["ours", "theirs"], NOW)

    assert results.pairing() == "task"
    assert len(results.tasks(results.runs, "task")[0].labels) == 8
    assert load_results(store.read, ["ours"], NOW).pairing() == "item"


def inputs(**columns: list[int]) -> Inputs:
    """Inputs of items by path; `__` stands for the dot of a side."""
    paths = tuple(name.replace("__", ".") for name in columns)
    return Inputs(np.asarray(list(columns.values()), dtype=np.uint64).T, paths)


def codes(*values: int) -> NDArray[np.int64]:
    return np.asarray(values, dtype=np.int64)


def test_an_input_varies_with_groups_that_have_no_value_of_it_in_common() -> None:
    given = inputs(model=[1, 1, 2, 2], prompt=[3, 4, 3, 4], part=[5, 6, 6, 7], some=[0, 8, 0, 9])
    assert given.varied(codes(0, 0, 1, 1)) == {"model", "some"}
    assert given.varied(codes(0, 0, 0, 0)) == set()
    # Other inputs of a compared side vary unless all groups have the same.
    sides = inputs(
        client__label=[1, 1, 2, 2],
        client__mood=[7, 7, 7, 8],
        client__pace=[5, 6, 6, 5],
        therapist__mood=[7, 7, 7, 8],
        combination=[9, 9, 9, 9],
    )
    assert sides.varied(codes(0, 0, 1, 1)) == {"client.label", "client.mood", "combination"}


def test_an_agent_that_some_models_share_makes_no_task() -> None:
    # An oracle, and two models with one agent.
    given = inputs(agent=[1, 1, 2, 2, 2, 2], model=[3, 3, 4, 4, 5, 5], prompt=[6, 7, 6, 7, 6, 7])
    models = codes(0, 0, 1, 1, 2, 2)
    assert given.varied(models) == {"agent", "model"}
    crossed = inputs(agent=[1, 2, 1, 2], model=[3, 3, 4, 4], prompt=[6, 6, 6, 6])
    assert crossed.varied(codes(0, 0, 1, 1)) == {"model"}, "each model with both agents"
    same = inputs(agent=[1, 1, 1, 1], model=[3, 3, 4, 4], prompt=[6, 7, 6, 7])
    assert same.varied(codes(0, 0, 1, 1)) == {"model"}


def test_codes_of_inputs_are_numbered_in_order_of_appearance() -> None:
    given = inputs(a=[5, 3, 5, 9], b=[1, 1, 2, 1])
    assert given.coded("a").tolist() == [0, 1, 0, 2]
    assert given.coded("a", "b").tolist() == [0, 1, 2, 3]
    assert given.coded().tolist() == [0, 0, 0, 0]


def test_a_treatment_is_agent_and_model_and_what_differs_with_them() -> None:
    given = inputs(model=[1, 1, 2, 2], version=[6, 6, 7, 7], prompt=[3, 4, 3, 4])
    assert given.treatment() == {"model", "version"}
    other = inputs(model=[1, 1, 2, 2], prompt=[3, 4, 5, 6])
    assert other.treatment() == {"model"}, "each model had tasks of its own"
    runs = inputs(prompt=[3, 4, 3, 4], setting=[8, 8, 9, 9])
    assert runs.treatment() == set() and runs.treatment(codes(0, 0, 1, 1)) == {"setting"}


@pytest.mark.parametrize(
    ("least", "first", "rows"), [(100, 4000, 36), (1, 30, 24), (2, 0, 0), (6, 0, 24), (7, 0, 36)]
)
def test_a_first_look_has_the_first_tasks_of_each_agent_and_model(tmp_path, monkeypatch, least, first, rows):
    # White-box: only runs of thousands of items have more than a first look.
    monkeypatch.setattr("proctor.results.loading.LEAST_FIRST_ROWS", least)
    monkeypatch.setattr("proctor.results.loading.FIRST_ROWS", first)
    with filled_store(tmp_path) as store:
        assert len(load_first_results(store.read, "compare")) == rows


def evaluated(results: Results, runs: list[int], scenarios: list[int] | None) -> Results:
    """The first rows as evaluations of sessions of these runs and scenarios."""
    first = results.where(np.arange(len(results)) < len(runs))
    factors = {} if scenarios is None else {"scenario": Labels(codes(*scenarios), ("s", "t", "u"))}
    return replace(
        first,
        runs=Labels(codes(*runs), tuple("abc"[: max(runs) + 1])),
        is_evaluation=np.ones(len(runs), dtype=bool),
        factors=factors,
    )


@pytest.mark.parametrize(
    ("runs", "scenarios", "pairing"),
    [
        ([0, 0, 1, 1], None, "session"),
        ([0, 0, 1, 1], [0, 1, 1, 2], "scenario"),
        ([0, 0, 1, 1], [0, 0, 1, 1], "session"),
        ([0, 0, 1, 1], [-1, 0, -1, 1], "session"),
        ([0, 1, 2], [0, 0, 0], "scenario"),
        ([0, 1, 2], [0, 0, 1], "session"),
    ],
)
def test_evaluated_sessions_pair_by_a_scenario_that_all_runs_have(tmp_path, runs, scenarios, pairing) -> None:
    results = load_results(filled_store(tmp_path).read, ["compare"], NOW)
    assert evaluated(results, runs, scenarios).pairing() == pairing
    some = replace(
        evaluated(results, runs, scenarios), is_evaluation=np.asarray([True] * (len(runs) - 1) + [False])
    )
    assert some.pairing() == "item"


def load_ended(store, *values):
    """The results of the run whose items ended with these sessions."""
    change_items(store, {number: {"status": "success"} | each for number, each in enumerate(values)})
    return load_results(store.read, ["run"], NOW)


def session_ids(number):
    return [{"sessionId": f"s{place}"} for place in range(number)]


@pytest.mark.parametrize(("last", "expected"), [("v2", [0.6, 0.7]), ("v1", [0.4, 0.5])])
def test_of_scores_of_a_session_itself_the_last_version_counts(proctor_store, last, expected) -> None:
    add_batch(proctor_store, count=2)
    for number in range(2):
        values = (("v1", 0.2 + 0.1 * number), (last, 0.6 + 0.1 * number))
        scores = [Score(evaluator="tone", value=value, evaluator_digest=digest) for digest, value in values]
        record(proctor_store, f"s{number}", *scores)
    results = load_ended(proctor_store, *session_ids(2))
    assert results.metrics["score:tone"].tolist() == pytest.approx(expected)


def test_the_level_of_a_model_is_the_one_that_answered(proctor_store) -> None:
    rows = [({"model": "m", "lang": "de"}, "m", "m-2"), ({"lang": "en"}, "", "n"), ({"model": "m"}, "m", "")]
    items = [Item(prompt=answered, factors=factors, model=model) for factors, model, answered in rows]
    add_batch(proctor_store, count=items)
    for number, (_, _, answered) in enumerate(rows):
        record(proctor_store, f"s{number}", answeredModel=answered)
    results = load_ended(proctor_store, *session_ids(3))
    models = results.column("model")
    assert [models.labels[code] for code in models.codes] == ["m-2", "n", "m"]
    assert [results.column("lang").labels[code] for code in results.column("lang").codes[:2]] == ["de", "en"]
    assert [(each.requested, each.answered, each.items) for each in results.answered] == [
        ("default", "n", 1),
        ("m", "m-2", 1),
    ]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        # Version, seconds after the start, and values of each evaluation of a session.
        ([("v1", 0, [0.2, 0.6])], 0.4),
        ([("v1", 0, [0.2]), ("v1", 9, [0.6, 0.8])], 0.7),
        ([("v1", 9, [0.2, 0.3]), ("v2", 0, [0.6])], 0.25),
        ([("v2", 0, [0.6]), ("v1", 9, [0.2])], 0.2),
    ],
)
def test_of_several_evaluations_of_a_session_the_last_counts(proctor_store, scores, expected) -> None:
    add_batch(proctor_store, count=1)
    record(proctor_store, "s0")
    writer = proctor_store.writer()
    for number, (version, seconds, values) in enumerate(scores):
        at = NOW + timedelta(seconds=seconds)
        row = {"job": "evaluation", "status": "success", "startedAt": timestamp(at)}
        judging = Recorder(writer, f"judging {number}", row, lambda at=at: at)
        for value in values:
            score = Score(evaluator="tone", value=value, evaluator_digest=version, judged_session="s0")
            judging.score(score)
    writer.close()
    assert load_ended(proctor_store, *session_ids(1)).metrics["score:tone"] == pytest.approx([expected])


def test_the_time_of_an_item_without_a_session_is_that_from_its_start_to_its_end(proctor_store) -> None:
    add_batch(proctor_store, count=2)
    times = {"startedAt": "2026-03-01T12:00:00.000Z", "finishedAt": "2026-03-01T12:00:07.500Z"}
    time = load_ended(proctor_store, times, {}).metrics["time"]
    assert time == pytest.approx([7.5, float("nan")], nan_ok=True)


@pytest.mark.parametrize(("model", "name"), [("m", "m"), ("", "amp")])
def test_stand_ins_are_named_by_their_model_or_agent(proctor_store, model, name) -> None:
    add_batch(proctor_store, count=[Item(prompt=str(number), model=model, agent="amp") for number in "12"])
    for number in range(2):
        record(proctor_store, f"s{number}", isMock=1 - number, model=model, agent="amp")
    assert list(load_ended(proctor_store, *session_ids(2)).stand_ins) == [name]


def test_the_task_of_a_pairing_by_scenario_is_the_scenario_or_the_task_or_nothing(tmp_path) -> None:
    results = load_results(filled_store(tmp_path).read, ["compare"], NOW)
    scenario, task = Labels(codes(0, 1, 1), ("s", "t")), Labels(codes(2, 1, 0), ("x", "y", "z"))
    for factors, expected in (
        ({"scenario": scenario, "task": task}, [0, 1, 1]),
        ({"task": task}, [2, 1, 0]),
        ({}, [-1, -1, -1]),
    ):
        tasks, varied = replace(evaluated(results, [0, 0, 1], None), factors=factors).tasks(pair="scenario")
        assert (tasks.codes.tolist(), varied) == (expected, ())
