"""One session as a sample of an Inspect log.

Knows nothing of files.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from proctor.export.said import (
    OURS,
    Said,
    about,
    moment,
    said_in,
    score_document,
    total_usage,
    without_nothing,
)
from proctor.imported import ImportedSession
from proctor.score import Score
from proctor.session import Message, ModelCall, ToolCall, Usage

UNKNOWN = "unknown"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def sample_of(session: ImportedSession, name: str, epoch: int) -> dict[str, Any]:
    """A session as a sample called `name`."""
    messages, events = list[dict[str, Any]](), list[dict[str, Any]]()
    for number, said in enumerate(said_in(session), start=1):
        told = _Told(said, f"message-{number}", session)
        messages += told.messages()
        events += told.events()
    seconds = _seconds(session)
    sample = {
        "id": name,
        "epoch": epoch,
        "input": _asked(session),
        "target": "",
        "messages": messages,
        "output": _output(session),
        "scores": _scores(session.scores),
        "metadata": {OURS: _about(session)},
        "store": {},
        "events": events,
        "model_usage": {
            model or UNKNOWN: usage_document(*used) for model, used in total_usage(session).items()
        },
        "started_at": moment(session.started_at),
        "completed_at": moment(session.finished_at),
        "total_time": seconds,
        "working_time": seconds,
        "uuid": session.external_id,
        "error": _error(session.error) if session.error else None,
        "attachments": {},
    }
    return {key: value for key, value in sample.items() if value is not None}


def usage_document(usage: Usage, cost: float | None) -> dict[str, Any]:
    """Tokens as Inspect counts them, with all of the prompt in `input_tokens`."""
    return without_nothing(
        {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
            "input_tokens_cache_read": usage.cached_tokens or None,
            "reasoning_tokens": usage.reasoning_tokens or None,
            "total_cost": cost,
        }
    )


class _Told:
    """One message of the session, as messages and events of a sample."""

    def __init__(self, said: Said, name: str, session: ImportedSession) -> None:
        self._said, self._name, self._session = said, name, session
        named = zip(said.call_names, said.tool_calls, strict=True)
        self._calls = [(called, call, at) for called, (call, at) in named]

    def messages(self) -> Iterator[dict[str, Any]]:
        """The message, and one for the result of each tool it called."""
        said = self._said
        ours = without_nothing({**said.ours, "at": moment(said.at), "is_said": said.role == "tool" or None})
        message: dict[str, Any] = {"id": self._name, "role": said.role, "content": said.text}
        if said.tool_calls:
            message["tool_calls"] = [
                {"id": name, "function": call.name, "arguments": dict(call.args), "type": "function"}
                for name, call, _ in self._calls
            ]
        if said.role == "assistant" and said.model_calls:
            message["model"] = said.model_calls[-1][0].model
        yield message | ({"metadata": {OURS: ours}} if ours else {})
        for name, call, _ in self._calls:
            yield self._result(name, call)

    def events(self) -> Iterator[dict[str, Any]]:
        """The model calls behind the message, and the tools it called."""
        for number, (asked, at) in enumerate(self._said.model_calls, start=1):
            yield self._model_event(asked, at or self._said.at, number)
        for name, call, at in self._calls:
            yield {
                "event": "tool",
                "uuid": f"{self._name}-{name}",
                "timestamp": _stamp(at or self._said.at),
                "type": "function",
                "id": name,
                "function": call.name,
                "arguments": dict(call.args),
                "result": call.result,
                "events": [],
                **({"error": _tool_error(call)} if call.success is False else {}),
                **({} if call.duration_ms is None else {"working_time": call.duration_ms / 1000}),
            }

    def _result(self, name: str, call: ToolCall) -> dict[str, Any]:
        return {
            "id": f"{self._name}-{name}",
            "role": "tool",
            "content": call.result,
            "tool_call_id": name,
            "function": call.name,
            "metadata": {OURS: {"success": call.success, "duration_ms": call.duration_ms}},
            **({"error": _tool_error(call)} if call.success is False else {}),
        }

    def _model_event(self, call: ModelCall, at: datetime | None, number: int) -> dict[str, Any]:
        ours = {
            "provider": call.provider,
            "price_source": call.price_source,
            "latency_ms": call.latency_ms,
            "waiting_ms": call.waiting_ms,
            "status": call.status,
            "call_id": call.call_id,
        }
        made = {"id": self._name, "role": "assistant", "content": self._said.text, "source": "generate"}
        output = {
            "model": call.model,
            "choices": [{"message": made, "stop_reason": "stop"}],
            "usage": usage_document(call.usage, call.cost_usd),
            "time": None if call.latency_ms is None else call.latency_ms / 1000,
        }
        return without_nothing(
            {
                "event": "model",
                "uuid": f"{self._name}-model-{number}",
                "timestamp": _stamp(at),
                "model": call.model,
                "tool_choice": "auto",
                "output": without_nothing(output),
                "error": call.error or None,
                "metadata": {OURS: {name: value for name, value in ours.items() if value}},
            }
        ) | {"input": [], "config": {}, "tools": [_tool(each) for each in self._session.tools]}


def _tool(tool: Any) -> dict[str, Any]:
    """A tool by name. What its parameters are stands in the metadata: Inspect takes only some schemas."""
    parameters = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return {
        "name": str(tool.get("name") or UNKNOWN),
        "description": str(tool.get("description") or ""),
        "parameters": parameters,
    }


def _tool_error(call: ToolCall) -> dict[str, str]:
    return {"type": "unknown", "message": call.result[:1_000] or "it failed"}


def _about(session: ImportedSession) -> dict[str, Any]:
    return without_nothing(
        {
            **about(session),
            "tools": [dict(tool) for tool in session.tools],
            "scores_not_given": [score_document(score) for score in session.scores if not _is_given(score)],
        }
    )


def _asked(session: ImportedSession) -> str:
    events = (each.event for step in session.steps for each in step.happenings)
    said = (event.content for event in events if isinstance(event, Message) and event.role == "user")
    return next(said, "")


def _output(session: ImportedSession) -> dict[str, Any]:
    events = (each.event for step in reversed(session.steps) for each in reversed(step.happenings))
    answers = (event.content for event in events if isinstance(event, Message) and event.role == "assistant")
    answer = next(answers, "")
    message = {"role": "assistant", "content": answer, "source": "generate"}
    return {
        "model": session.model or UNKNOWN,
        "choices": [{"message": message, "stop_reason": "stop"}],
        "completion": answer,
    }


def _scores(scores: Any) -> dict[str, Any]:
    """Scores by name; those of one name get numbers. One that could not be given has no place there."""
    found = dict[str, Any]()
    for score in filter(_is_given, scores):
        value = score.label if score.value is None else score.value
        name = wanted = "/".join(filter(None, (score.evaluator, score.dimension, score.target)))
        number = 1
        while name in found:
            number += 1
            name = f"{wanted}#{number}"
        found[name] = _score(score, value)
    return found


def _is_given(score: Score) -> bool:
    return not score.error and (score.value is not None or bool(score.label))


def _score(score: Score, value: float | str) -> dict[str, Any]:
    ours = {name: said for name, said in score_document(score).items() if name != "explanation"}
    return without_nothing(
        {
            "value": value,
            "answer": score.label or None,
            "explanation": score.explanation or None,
            "metadata": {OURS: ours},
        }
    )


def _error(message: str) -> dict[str, str]:
    return {"message": message, "traceback": "", "traceback_ansi": ""}


def _seconds(session: ImportedSession) -> float | None:
    if session.started_at is None or session.finished_at is None:
        return None
    return max(0.0, (session.finished_at - session.started_at).total_seconds())


def _stamp(at: datetime | None) -> str:
    return (at or _EPOCH).isoformat()
