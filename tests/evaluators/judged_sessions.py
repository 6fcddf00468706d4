"""Sessions to be judged, and a judge that says what it is told to."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from proctor.evaluator import Evidence, Reference, Trace
from proctor.model import Answer, Request
from proctor.session import Message, ModelCall, ToolCall, Usage


class Judge:
    """A model that gives its answers in turn, the last one again and again; an exception is raised."""

    def __init__(self, *answers: str | Exception | Callable[[Request], str]) -> None:
        self.answers = answers
        self.requests: list[Request] = []

    async def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        said = self.answers[min(len(self.requests), len(self.answers)) - 1]
        if isinstance(said, Exception):
            raise said
        text = said if isinstance(said, str) else said(request)
        usage = Usage(input_tokens=100, output_tokens=10)
        return Answer(text=text, call=ModelCall(model=request.model, usage=usage, cost_usd=0.01))

    def asked(self, number: int = 0) -> str:
        return str(self.requests[number].messages[-1]["content"])


def says(score: str, reasoning: str = "because") -> str:
    return json.dumps({"reasoning": reasoning, "score": score})


def turn(number: int, prompt: str, answer: str, *calls: ToolCall, trace_id: str = "") -> Trace:
    asked, answered = Message(role="user", content=prompt), Message(role="assistant", content=answer)
    return Trace(
        id=trace_id or f"turn-{number}",
        prompt=prompt,
        answer=answer,
        tool_calls=calls,
        messages=(asked, answered),
        events=(asked, *calls, answered),
    )


def session(*turns: Trace, reference: Reference | None = None, **more: Any) -> Evidence:
    return Evidence(
        session_id="s-1",
        traces=turns,
        messages=[message for one in turns for message in one.messages],
        tool_calls=[call for one in turns for call in one.tool_calls],
        reference=reference,
        **more,
    )


def called(*names: str) -> Sequence[ToolCall]:
    return [ToolCall(name=name, call_id=f"span-{number}") for number, name in enumerate(names, 1)]


def weather() -> Evidence:
    """Two turns, one tool call in each."""
    look_up = ToolCall(name="forecast", args={"city": "Oslo"}, result="rain", call_id="span-1")
    book = ToolCall(name="book", args={"day": 2}, result="booked", success=True, call_id="span-2")
    return session(
        turn(1, "What is the weather in Oslo?", "Rain.", look_up),
        turn(2, "Then book a museum.", "It is booked.", book),
        tools=[{"name": "forecast", "description": "tells the weather", "parameters": {"city": "string"}}],
    )
