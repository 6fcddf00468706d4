"""The New Evaluation page, the scales of evaluators and the agreement of judges, without a server."""

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stocked_runs import add_session

from proctor.errors import UsageError
from proctor.session import Message
from proctor.stats.intervals import Estimate
from proctor.web import evaluations, labels, new_evaluation
from proctor.web.new_evaluation import NewEvaluation, SessionSource, Upload
from proctor.web.state import AppState

MATCH = "Builtin.TrajectoryInOrderMatch"


def endpoints(router: Any) -> dict[str, Any]:
    return {route.name: route for route in router.routes}


@pytest.fixture
def talks(site: AppState) -> AppState:
    for number in range(7):
        said = [Message(role="user", content="hi"), Message(role="assistant", content="hello")]
        add_session(site.store, f"talk-{number}", said, name=f"n{number}", model="m")
    return site


def source(**members: Any) -> SessionSource:
    return SessionSource(**{"kind": "runs", "models": ["m"], **members})


# The New Evaluation page


def test_a_preview_names_five_sessions_and_counts_all(talks: AppState) -> None:
    preview = new_evaluation._preview(talks, source())
    assert (preview.sessions, preview.ignored, preview.problem) == (7, 0, "")
    assert len(preview.examples) == 5 and set(preview.examples) <= {f"talk-{number}" for number in range(7)}
    nothing = new_evaluation._preview(talks, source(models=["none"]))
    assert (nothing.sessions, nothing.examples, nothing.problem) == (0, [], "no session fits")
    wrong = new_evaluation._preview(talks, source(start="2026-13-01T00:00Z"))
    assert wrong.sessions == 0 and wrong.problem not in ("", "no session fits")


def test_a_preview_of_files_says_which_is_missing(site: AppState) -> None:
    (site.folder / "there.jsonl").write_text("")
    found = new_evaluation._preview(site, source(kind="files", paths=["there.jsonl", "a", "b"]))
    assert (found.sessions, found.ignored, found.examples) == (0, 0, [])
    assert found.problem == "there is no a on the server's machine"
    assert new_evaluation._preview(site, source(kind="files", paths=["there.jsonl"])).problem == ""


def test_an_evaluation_is_checked_before_it_is_started(talks: AppState) -> None:
    new = NewEvaluation(name="night", source=source(), evaluators=[MATCH])
    checked = new_evaluation._check(talks, new)
    assert (checked.problems, checked.sessions, checked.item_count, checked.cost_usd) == ([], 7, 7, 0.0)
    (effort,) = checked.evaluators
    assert (effort.evaluator, effort.level, effort.model, effort.results) == (MATCH, "session", None, 7)
    assert (effort.calls, effort.tokens) == (0, 0)


async def test_problems_of_a_check_are_told_and_a_slow_one_is_given_up(
    talks: AppState, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = endpoints(new_evaluation.router(talks))["check"].endpoint
    new = NewEvaluation(name="night", source=source(), evaluators=["Builtin.Nothing"])
    answer = await check(new)
    assert len(answer.problems) == 1 and "Builtin.Nothing" in answer.problems[0].problem
    assert (answer.sessions, answer.item_count, answer.cost_usd, answer.evaluators) == (None, None, None, [])
    monkeypatch.setattr(new_evaluation, "CHECK_SECONDS", 0.01)
    ended: Any = Future()
    monkeypatch.setattr(new_evaluation, "_check", lambda site, new: ended.result())
    (problem,) = (await check(new)).problems
    ended.set_result(None)
    assert problem.problem == "the check took more than 0.01 s"
    assert problem.remedy == "Try it on the command line."


def test_an_evaluation_is_opened_and_its_process_started(
    talks: AppState, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(new_evaluation, "execute_evaluation", lambda site, id_: started.append(id_))
    routes = endpoints(new_evaluation.router(talks))
    assert {name: route.status_code for name, route in routes.items() if route.status_code} == {
        "upload": 201,
        "start": 201,
    }
    answer = routes["start"].endpoint(NewEvaluation(name="night", source=source(), evaluators=[MATCH]))
    assert started == [answer.id] and answer.id.startswith("night-")
    opened = evaluations.EvaluationLines(talks).answer(answer.id)
    assert (opened.state, opened.evaluators) == ("PENDING", [MATCH])


def test_ground_truth_names_a_hundred_of_its_sessions_and_scenarios() -> None:
    truth = "{inline: {expectedTrajectory: [look]}}"
    rows = [f"  - {{sessionId: s-{n}, testScenarioId: t-{n}, groundTruth: {truth}}}" for n in range(101)]
    rows.append(f"  - {{testScenarioId: last, groundTruth: {truth}}}")
    found = new_evaluation._check_truth("\n".join(["sessionMetadata:", *rows]))
    assert (found.problems, found.entries, found.name) == ([], 102, "")
    assert found.sessions == [f"s-{n}" for n in range(100)]
    assert found.scenarios == [f"t-{n}" for n in range(100)]
    named = new_evaluation._check_truth("\n".join(["datasetId: travel", "sessionMetadata:", rows[-1]]))
    assert (named.name, named.entries, named.sessions, named.scenarios) == ("travel", 1, [], ["last"])


def test_sources_and_evaluators_are_listed(site: AppState) -> None:
    routes = endpoints(new_evaluation.router(site))
    sources = routes["sources"].endpoint()
    assert sources.arrived == [] and sources.file_kinds[0] == "auto"
    listed = routes["evaluators"].endpoint()
    assert listed.judge == "" and MATCH in [each.name for each in listed.evaluators]


def test_an_uploaded_file_is_kept_for_the_evaluation(site: AppState) -> None:
    upload = endpoints(new_evaluation.router(site))["upload"].endpoint
    path = Path(upload(Upload(name="a b.jsonl", text="ä")).path)
    assert path.name == "a-b.jsonl" and path.read_text(encoding="utf-8") == "ä"
    assert path.parent.parent == site.data_folder / "uploads"


# Scales of evaluators


def test_the_scale_of_an_evaluator(site: AppState) -> None:
    def scale(evaluator: str) -> dict[str, float | None]:
        return {each.label: each.value for each in labels.ratings_of(site, evaluator)}

    assert scale(MATCH) == {"Yes": 1.0, "No": 0.0}
    assert list(scale(labels.RATING)) == ["1", "2", "3", "4", "5"]
    assert scale("none") == {} and len(scale("Builtin.Helpfulness")) > 2
    assert labels.order_of(site, MATCH, "") == ["No", "Yes"]
    assert labels.order_of(site, labels.RATING, "") == ["1", "2", "3", "4", "5"]
    folder = site.folder / "evaluators"
    folder.mkdir()
    (folder / "broken.json").write_text("{")
    (folder / "mine.json").write_text(
        '{"evaluatorName": "mine", "level": "TRACE", "evaluatorConfig": {"llmAsAJudge": {'
        '"instructions": "{assistant_turn}", "modelConfig": {"bedrockEvaluatorModelConfig": '
        '{"modelId": "m/j"}}, "ratingScale": {"numerical": [{"definition": "d", "value": 2, "label": "Two"},'
        '{"definition": "d", "value": 1, "label": "One"}]}}}}'
    )
    assert scale("mine") == {"Two": 2, "One": 1} and labels.order_of(site, "mine", "") == ["One", "Two"]
    shapes = {each.name: each for each in labels.evaluator_shapes(site)}
    assert shapes["mine"].level == "trace" and not shapes["mine"].needs_reference
    assert shapes[MATCH].needs_reference and shapes[MATCH].judges[0].isupper()


def test_the_agreement_of_a_judge_with_people() -> None:
    def estimate(value: float) -> Estimate:
        return Estimate(value=value, low=value - 0.1, high=value + 0.1, n=9)

    calibration = SimpleNamespace(
        things=4,
        sessions=3,
        people=2,
        agreement=SimpleNamespace(value=0.75, low=0.3, high=0.9, trials=4, successes=3),
        kappa=estimate(0.5),
        weighted=True,
        alpha=estimate(0.4),
        human_alpha=0.9,
        bias=estimate(-0.2),
        confusion={("Yes", "No"): 1, ("No", "No"): 3},
        remarks=["Ask again (--repeats 3) for more."],
    )
    judge: Any = SimpleNamespace(
        evaluator="e", dimension="d", level="trace", labels=5, calibration=calibration
    )
    shape = labels.judge_shape(judge)
    assert (shape.evaluator, shape.dimension, shape.level, shape.labels) == ("e", "d", "trace", 5)
    assert (shape.things, shape.sessions, shape.people) == (4, 3, 2)
    assert (shape.agreement.value, shape.agreement.n, shape.kappa.value, shape.kappa.n) == (0.75, 4, 0.5, 9)
    assert (shape.alpha.value, shape.human_alpha, shape.bias.value, shape.weighted) == (0.4, 0.9, -0.2, True)
    assert [(each.human, each.judge, each.count) for each in shape.confusion] == [
        ("No", "No", 3),
        ("Yes", "No", 1),
    ]
    assert shape.remarks == ["Ask again for more."]
    assert shape.words == "The same as people in 3 of 4: moderate agreement beyond chance."


def test_calibrations_are_computed_once_for_each_state(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"scores": 1, "labels": 1}
    asked: list[Any] = []
    judges = [SimpleNamespace(evaluator=each) for each in ("e", labels.RATING)]
    monkeypatch.setattr(labels, "labels_state", lambda read, evaluator: dict(state))

    def found(read: object, order: Any, scale: Any, *, evaluator: str) -> Any:
        asked.append((evaluator, order("e", ""), scale("e", ""), scale("one", ""), scale("none", "")))
        return judges

    scales = {"e": [("Yes", 1.0), ("No", 0.0), ("Maybe", 0.5)], "one": [("Yes", 1.0)], "none": []}

    def ratings(site: object, name: str, dimension: str) -> Any:
        return [SimpleNamespace(label=label, value=value) for label, value in scales[name]]

    monkeypatch.setattr(labels, "judges", found)
    monkeypatch.setattr(labels, "ratings_of", ratings)
    monkeypatch.setattr(labels, "judge_shape", lambda judge: judge.evaluator)
    site: Any = SimpleNamespace(store=SimpleNamespace(read=None))
    cache = labels._CalibrationCache(site)
    assert cache.of("x") == cache.of("x") == ["e"]
    assert asked == [("x", ["No", "Maybe", "Yes"], (0.0, 1.0), None, None)]
    state["labels"] = 2
    cache.of("x")
    cache.of("")
    assert [each[0] for each in asked] == ["x", "x", ""]


def test_a_level_that_is_unknown_is_refused(site: AppState) -> None:
    add_session(site.store, "talk", [Message(role="user", content="hi")])
    with pytest.raises(UsageError, match=r"^the session has no turn and no tool call x\nLeave it out"):
        labels._level(site, "talk", "x")
