"""Judges at the end of a dialogue: their questions, the scores they give, who caused a failure."""

from types import SimpleNamespace
from typing import Any

import pytest

from proctor.errors import ModelError
from proctor.model import Answer
from proctor.runners import _judging
from proctor.runners._judging import Judges, attribute_failure, below
from proctor.score import Score
from proctor.session import ModelCall, Usage


class Models:
    """Answers with a text, or fails; keeps the requests."""

    def __init__(self, text: str = "", error: Exception | None = None) -> None:
        self.text, self.error, self.requests = text, error, list[Any]()

    async def answer(self, request: Any) -> Answer:
        self.requests.append(request)
        if self.error:
            raise self.error
        usage = Usage(input_tokens=2, output_tokens=1)
        return Answer(text=self.text, call=ModelCall(model=request.model, usage=usage, cost_usd=0.5))


def judges(models: Models | None = None) -> tuple[Judges, list[Score]]:
    scores = list[Score]()
    services: Any = SimpleNamespace(models=models, record=lambda event: None, score=scores.append)
    return Judges(services, 7), scores


async def test_a_criterion_is_judged_with_the_transcript_and_the_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[Any]()
    found = [Score(evaluator="tone", value=0.2), Score(evaluator="tone", value=0.5, target="a")]

    async def score_criterion(*given: Any, **named: Any) -> list[Score]:
        asked.append((given, named))
        return found

    monkeypatch.setattr(_judging, "score_criterion", score_criterion)
    made, scores = judges()
    criterion: Any = SimpleNamespace(name="tone", digest="d", passes_at=0.5)
    below_mark = await made.judge(criterion, "m", [("agent", "Hi"), ("user", "Hü")], {"age": "ü"})
    ((given, named),) = asked
    assert given[0] is criterion and [(line.speaker, line.text) for line in given[1]] == [
        ("agent", "Hi"),
        ("user", "Hü"),
    ]
    assert (given[2].model, given[2].parameters, given[2].structured) == ("m", {"temperature": 0.0}, False)
    assert given[2].models is made.client
    assert named == {"seed": 7, "profile": '{\n "age": "ü"\n}'}
    assert below_mark == ["tone is 0.2, below its pass mark 0.5"] and scores == found


async def test_a_failed_judge_does_not_fail_the_dialogue(monkeypatch: pytest.MonkeyPatch) -> None:
    async def score_criterion(*_: Any, **__: Any) -> list[Score]:
        raise ModelError("busy")

    monkeypatch.setattr(_judging, "score_criterion", score_criterion)
    made, scores = judges()
    criterion: Any = SimpleNamespace(name="tone", digest="d", passes_at=0.5)
    assert await made.judge(criterion, "m", [], {}) == []
    assert scores == [Score(evaluator="tone", evaluator_digest="d", error="busy")]


@pytest.mark.parametrize(
    ("mark", "value", "target", "messages"),
    [
        (None, 0.0, "", []),
        (0.5, 0.5, "", []),
        (0.5, None, "", []),
        (0.5, 0.25, "", ["e is 0.25, below its pass mark 0.5"]),
        (1, 0, "t1", ["e of t1 is 0, below its pass mark 1"]),
    ],
)
def test_scores_below_the_pass_mark(
    mark: float | None, value: float | None, target: str, messages: list[str]
) -> None:
    assert below(mark, [Score(evaluator="e", value=value, target=target)]) == messages


async def test_what_an_evaluator_used_counts_for_the_dialogue(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        Score(evaluator="e", value=0.0, input_tokens=3, output_tokens=0, cost_usd=0.25),
        Score(evaluator="e", value=1.0, input_tokens=0, output_tokens=4),
        Score(evaluator="e", value=1.0),
    ]

    async def evaluate(*_: Any) -> list[Score]:
        return found

    monkeypatch.setattr(_judging, "evaluate", evaluate)
    made, _ = judges()
    evidence: Any = None
    assert await made.ask({"passes_at": 0.5}, evidence) == ["e is 0, below its pass mark 0.5"]
    assert (made.client.calls, made.client.cost_usd) == (2, 0.25)
    assert (made.client.usage.input_tokens, made.client.usage.output_tokens) == (3, 4)


@pytest.mark.parametrize(
    ("level", "parts"),
    [
        ("turn", [("agent.turn_0", 1.0, "trace"), ("agent.turn_1", 0.0, "trace")]),
        ("session", [("", 1.0, "session")]),
    ],
)
def test_the_texts_of_one_side_are_checked_without_a_model(level: str, parts: list[Any]) -> None:
    made, scores = judges()
    expectation = {
        "target": "agent",
        "level": level,
        "name": "greets",
        "passes_at": 1.0,
        "expect": {"contains": "Hi"},
    }
    lines = [("agent", "Hi"), ("user", "Hello"), ("agent", "Bye")]
    messages = made.check(expectation, lines)
    assert [(score.target, score.value, score.level) for score in scores] == parts
    assert [score.label for score in scores] == ["pass" if value else "fail" for _, value, _ in parts]
    assert messages == [
        f"greets of {target} is 0, below its pass mark 1" for target, value, _ in parts if not value
    ]
    assert len(scores[0].evaluator_digest) == 16


async def test_who_caused_a_failure_is_asked_with_all_that_happened() -> None:
    models = Models('{"reason": "it lied", "cause": "agent"}')
    made, _ = judges(models)
    actions = [
        SimpleNamespace(side="agent", tool="book", arguments={"id": 1}, result="r" * 501),
        SimpleNamespace(side="user", tool="look", arguments={}, result="ok"),
    ]
    given: Any = {
        "goal": "Book it.",
        "policy": "",
        "lines": [("agent", "Hello"), ("customer", "Hi")],
        "world": SimpleNamespace(actions=actions),
        "under_test": "agent",
        "failures": ["one", "two"],
    }
    assert await attribute_failure(made, "m", **given) == ("agent", "it lied")
    (request,) = models.requests
    text = request.messages[0]["content"]
    assert (request.model, request.parameters) == ("m", {"temperature": 0.0})
    assert "Book it." in text and "(none)" in text and "Agent: Hello\nUser: Hi" in text
    assert "→ " + "r" * 500 + "\nUser: look" in text and "one\ntwo" in text
    given |= {"world": SimpleNamespace(actions=[]), "policy": "Be kind."}
    await attribute_failure(made, "m", **given)
    second = models.requests[1].messages[0]["content"]
    assert "Be kind." in second and second.count("(none)") == 1
    failing, _ = judges(Models(error=ModelError("busy")))
    assert await attribute_failure(failing, "m", **given) == ("", "")
    unreadable, _ = judges(Models("no idea"))
    assert await attribute_failure(unreadable, "m", **given) == ("", "")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('x {"a": 1} y', {"a": 1}),
        ("{}", {}),
        ("} {", {}),
        ("{ no }", {}),
        ("none", {}),
        ("}", {}),
        ('{"a": {"b": 2}}', {"a": {"b": 2}}),
    ],
)
def test_the_object_in_an_answer(text: str, found: dict[str, Any]) -> None:
    assert _judging._object_in(text) == found


@pytest.mark.parametrize(
    ("reply", "threshold", "passed", "score"),
    [
        ('{"reason": "r", "score": 0.5, "pass": true}', None, True, 0.5),
        ('{"reason": "r", "pass": true}', None, True, 1.0),
        ('{"reason": "r", "pass": false}', None, False, 0.0),
        ('{"reason": "r", "score": 0.5}', 0.5, True, 0.5),
        ('{"reason": "r", "score": 0.5}', 0.6, False, 0.5),
        ('{"reason": "r", "score": 0.9, "pass": false}', 0.5, False, 0.9),
    ],
)
async def test_the_verdict_of_a_rubric(
    reply: str, threshold: float | None, passed: bool, score: float
) -> None:
    models = Models(reply)
    services: Any = SimpleNamespace(models=models, record=lambda event: None)
    rubric = {"value": "x" * 81, "judge": "m", "threshold": threshold}
    graded = await _judging._judge(rubric, "the answer", services)
    assert (graded.passed, graded.score) == (passed, score)
    assert graded.reason == f"llm-rubric {'x' * 80}: r"
    (request,) = models.requests
    assert (request.model, request.parameters) == ("m", {"temperature": 0.0})
    assert "<answer>\nthe answer\n</answer>" in request.messages[0]["content"]


async def test_a_judge_without_a_verdict_fails_the_rubric() -> None:
    services: Any = SimpleNamespace(models=Models("n" * 200), record=lambda event: None)
    graded = await _judging._judge({"value": "x", "judge": "m"}, "a", services)
    assert (graded.passed, graded.score) == (False, 0.0)
    assert graded.reason == f"llm-rubric: the judge gave no verdict: '{'n' * 100}'"
