"""Judges at the end of a dialogue: their questions, the scores they give, who caused a failure."""

from types import SimpleNamespace
from typing import Any

import pytest

from proctor.model import Answer
from proctor.runners._judging import Judges, below
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
