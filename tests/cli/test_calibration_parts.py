"""Labels of people in files, scales of judges, lines of `doctor`, and definitions of evaluators."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.api.doctor import CheckResult
from proctor.cli import calibrate, evaluators
from proctor.cli.inventory import _print_checks
from proctor.errors import AttemptError, UsageError
from proctor.evaluators.model_judge import InsightJudge, ModelJudge, RubricEvaluator
from proctor.evaluators.registry import EvaluatorNotFound
from proctor.score import Score
from proctor.stats.calibration import LabelValue
from proctor.stats.intervals import Estimate


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_labels_are_read_with_their_lines_under_any_known_heading(tmp_path: Path) -> None:
    file = write(
        tmp_path / "labels.csv",
        "\ufeffSession_ID, Trace ,rater,LABEL,score,comment\ns1,turn-1,ana,Yes,0.5,why\ns2,,, No ,,\n",
    )
    usual = {"dimension": "", "evaluator": ""}
    assert calibrate.label_rows(file) == [
        (
            2,
            usual
            | {
                "session": "s1",
                "target": "turn-1",
                "who": "ana",
                "label": "Yes",
                "value": 0.5,
                "note": "why",
            },
        ),
        (3, usual | {"session": "s2", "target": "", "who": "", "label": "No", "value": None, "note": ""}),
    ]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("s,,", ":2: a label needs a session, and a label or a value"),
        (",Yes,1", ":2: a label needs a session, and a label or a value"),
        ("s,Yes,much", ":2: `much` is no number"),
    ],
)
def test_a_line_without_a_label_is_refused(row: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=problem):
        calibrate.label_rows(write(tmp_path / "l.csv", f"session,label,value\n{row}\n"))
    assert (
        calibrate.label_rows(write(tmp_path / "l.csv", "session,label,value\ns,,0\n"))[0][1]["value"] == 0.0
    )


def session(*ids: str) -> Any:
    calls = [SimpleNamespace(call_id="call")]
    return SimpleNamespace(traces=[SimpleNamespace(id=each) for each in ids], tool_calls=calls)


@pytest.mark.parametrize(
    ("ids", "target", "found"),
    [
        (("a", "b"), "turn-1", "a"),
        (("a", "b"), "turn-2", "b"),
        (("a", "b"), "turn-0", "turn-0"),
        (("a", "b"), "turn-3", "turn-3"),
        (("turn-2", "turn-1"), "turn-1", "turn-1"),
        (("a", "b"), "turn-x", "turn-x"),
        (("a", "b"), "step-1", "step-1"),
        (("a", "b"), "", ""),
    ],
)
def test_a_turn_is_named_by_its_number_or_its_id(ids: tuple[str, ...], target: str, found: str) -> None:
    assert calibrate.target_in(session(*ids), target) == found


def test_what_a_label_is_about() -> None:
    levels = [calibrate.level_of(session("a"), target) for target in ("", "a", "call")]
    assert levels == ["session", "trace", "tool_call"]
    with pytest.raises(UsageError, match=r"no turn and no tool call `x`\nIt has: a, b, c, d, e\.$"):
        calibrate.level_of(session(*"abcdef"), "x")


SCALE = {"Bad": 0.0, "Good": 1.0, "Fair": 0.5}


def test_the_order_and_the_ends_of_a_scale() -> None:
    assert calibrate._order(SCALE) == ["Bad", "Fair", "Good"] and calibrate._ends(SCALE) == (0.0, 1.0)
    unordered = {"Bad": 0.0, "Other": None}
    assert calibrate._order(unordered) == [] and calibrate._ends(unordered) is None
    assert calibrate._ends({"a": 1.0, "b": 1.0}) is None
    assert calibrate._ends({"a": 1.0, "b": 3.0, "c": None}) == (1.0, 3.0)


@pytest.mark.parametrize(
    ("label", "value", "on_scale"),
    [
        (" good ", None, ("Good", 1.0)),
        ("Other", None, ("Other", None)),
        ("", 0.5, ("Fair", 0.5)),
        ("", 0.7, ("", 0.7)),
        ("Bad", 0.9, ("Bad", 0.9)),
        ("", None, ("", None)),
    ],
)
def test_a_label_of_a_person_gets_spelling_and_value_of_the_scale(
    label: str, value: float | None, on_scale: tuple[str, float | None]
) -> None:
    found = calibrate._on(SCALE, LabelValue(label=label, value=value))
    assert (found.label, found.value) == on_scale


def score(target: str, error: str = "", **changes: Any) -> Score:
    usual: dict[str, Any] = {"evaluator": "e", "level": "trace", "target": target, "error": error}
    return Score(**usual | changes)


def test_scores_belong_to_the_sessions_in_turn() -> None:
    results: list[Any] = [
        [score("a"), score("b", error="no")],
        AttemptError("failed"),
        [score("a", value=1.0)],
        [score("c", dimension="d")],
    ]
    found = calibrate._by_session(["s1", "s2"], results)
    assert {key: [each.value for each in scores] for key, scores in found.items()} == {
        ("s1", "a", ""): [None, 1.0],
        ("s2", "c", "d"): [None],
    }


def test_labels_that_cannot_be_used_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_scale", lambda evaluator, dimension: SCALE if not dimension else {})
    evaluator: Any = SimpleNamespace(name="e")
    things = {
        ("s1", "a"): {"ana": LabelValue(label=" good"), "ben": LabelValue(label="god")},
        ("s1", "x"): {"ana": LabelValue(label="bat")},
        ("s2", ""): {"ana": LabelValue(label="")},
        ("unjudged", "y"): {"ana": LabelValue(label="Bad")},
    }
    labels: Any = {"": things, "other": {("s1", "a"): {"ana": LabelValue(label="anything")}}}
    remarks = list(calibrate._unusable_labels(evaluator, labels, {"s1": {"a"}, "s2": {"t"}}))
    assert remarks == [
        "Not on the judge's scale, so that it can never say the same: bat, god.",
        "Left out: 2 labeled targets that e does not judge, such as x of s1.",
    ]
    labels = {"": {("s2", ""): {"ana": LabelValue(label="Good")}}}
    assert list(calibrate._unusable_labels(evaluator, labels, {"s2": {"t"}})) == [
        "Left out: 1 labeled target that e does not judge, such as no target of s2."
    ]


@pytest.mark.parametrize(
    ("estimate", "cells"),
    [
        (Estimate(value=None, note="too few"), ("not known", "too few")),
        (Estimate(value=0.5, note="n"), ("0.500", "n")),
        (Estimate(value=0.5, low=0.25, high=0.75), ("0.500", "0.250 to 0.750")),
    ],
)
def test_an_estimate_has_an_interval_or_a_note(estimate: Estimate, cells: tuple[str, str]) -> None:
    assert calibrate._estimate(estimate) == cells
    assert (calibrate._root(None), calibrate._root(0.25)) == (None, 0.5)


def test_failed_judgements_and_costs_of_a_calibration_are_noted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "_print", lambda title, each: print(title))
    evaluator: Any = SimpleNamespace(name="e", digest="d")
    calibration: Any = SimpleNamespace(remarks=["twice", "twice"])
    results: list[Any] = [
        AttemptError("broken"),
        [score("a", cost_usd=0.25), score("b", error="no"), score("c", cost_usd=0.5)],
    ]
    code = calibrate._print_calibrations(
        evaluator, {"": calibration, "x": calibration}, results, ["lost"], as_json=False
    )
    printed = capsys.readouterr()
    assert (code, printed.out) == (1, "e\ne x\n")
    assert printed.err.splitlines() == [
        "note: lost",
        "note: twice",
        "note: 2 judgements failed and are left out: broken",
        "cost: $0.75",
    ]
    assert calibrate._print_calibrations(evaluator, {"": calibration}, [[score("a")]], [], as_json=False) == 0
    assert capsys.readouterr().err == "note: twice\n"


def test_exactly_one_source_of_labels_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    context: Any = SimpleNamespace(obj=None)
    for words in ({}, {"labels": Path("x"), "labels_from_store": True}):
        with pytest.raises(UsageError, match="no labels were named"):
            calibrate.calibrate(context, "e", **words)  # type: ignore[arg-type]


# --- Lines of `doctor` ---


def test_checks_are_printed_in_columns(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [
        CheckResult(name="git", well=True, said="2.40"),
        CheckResult(name="python", well=False, said="3.9", remedy="install 3.11"),
        CheckResult(name="disk", well=None, said="full"),
    ]
    _print_checks(checks)
    assert capsys.readouterr().out.splitlines() == [
        "ok     git     2.40",
        "FAIL   python  3.9",
        "               → install 3.11",
        "       disk    full",
    ]


# --- Definitions of evaluators ---


def test_where_a_definition_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{{"evaluatorName": "{}", "level": "SESSION", "evaluatorConfig": {{}}}}'
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluators, "read_definition", lambda path: {"read": path.name})
    monkeypatch.setattr(evaluators, "_folders", lambda ctx: [tmp_path])
    monkeypatch.setattr(evaluators, "definition_files", lambda folders: sorted(folders[0].glob("*.json")))
    for name in ("mine", "other"):
        (tmp_path / f"{name}.json").write_text(text.format(name))
    stored = {"stored": {"in": "store"}}
    ctx: Any = SimpleNamespace(store=SimpleNamespace(definitions=SimpleNamespace(document=stored.get)))
    assert evaluators._definition(ctx, "mine.json") == ("mine.json", {"read": "mine.json"})
    assert evaluators._definition(ctx, "stored") == ("the store", {"in": "store"})
    assert evaluators._definition(ctx, "other") == (str(tmp_path / "other.json"), {"read": "other.json"})
    for name, level in (("module:function", "SESSION"), ("module:function@trace", "TRACE")):
        place, definition = evaluators._definition(ctx, name)
        assert (place, definition["level"], definition["evaluatorName"]) == ("Python", level, name)
        assert definition["evaluatorConfig"] == {"codeBased": {"function": "module:function"}}

    class Workbench:
        def __init__(self, ctx: Any, *, judge: str) -> None:
            assert judge == "scripted/ok"

        def __enter__(self) -> Any:
            return SimpleNamespace(evaluator=lambda name: None)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(evaluators, "EvaluatorWorkbench", Workbench)
    # The name of a file that does not exist is none of the others either.
    for name in ("nothing", "none.json"):
        with pytest.raises(EvaluatorNotFound, match=f"there is no evaluator `{name}`"):
            evaluators._definition(ctx, name)


def test_scores_of_a_session_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    evaluator: Any = SimpleNamespace(level="tool_call")
    evaluators._print_scores(evaluator, [])
    assert capsys.readouterr().err == "this session has no tool call to evaluate\n"
    scores = [
        score("", label="Yes", value=1.0, explanation="because", input_tokens=1000, output_tokens=500),
        score("turn-1", dimension="tone", label="No", ignored=("x", "y")),
        score("turn-2", error="no answer", error_code="Timeout", cost_usd=0.5),
        score("turn-3", label="Yes", cost_usd=0.25),
    ]
    evaluators._print_scores(evaluator, scores)
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "session: Yes = 1",
        "  because",
        "turn-1 tone: No",
        "  not used: x, y",
        "turn-2: error Timeout: no answer",
        "turn-3: Yes",
    ]
    assert printed.err == "1,500 tokens, $0.75\n"
    evaluators._print_scores(evaluator, [score("", label="Yes")])
    assert capsys.readouterr().err == ""
    evaluators._print_scores(evaluator, [score("", label="Yes", input_tokens=1)])
    assert capsys.readouterr().err == "1 token, unknown\n"


@pytest.mark.parametrize("kind", [ModelJudge, RubricEvaluator, InsightJudge])
def test_a_mock_judge_is_noted_whatever_asks_it(kind: type, capsys: pytest.CaptureFixture[str]) -> None:
    evaluator = kind.__new__(kind)
    object.__setattr__(evaluator, "judge_model", SimpleNamespace(model="scripted/judge"))

    calibrate.note_mock_judge(evaluator)

    note = "note: scripted/judge is a mock model; its scores say nothing about real judges\n"
    assert capsys.readouterr().err == note
    calibrate.note_mock_judge(SimpleNamespace(judge=None))  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""
