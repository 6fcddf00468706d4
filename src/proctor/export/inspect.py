"""Exports sessions as Inspect logs, one `.eval` file per agent and model.

Each session is a sample with its messages, events, usage and scores. Samples are streamed to the file; only
the header of a log is written at the end. `metadata` contains what Inspect lacks, so that `proctor import
inspect` gives back the same session.
"""

import json
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from proctor.export.sessions import (
    OURS,
    ExportedMessage,
    about,
    exported_messages,
    moment,
    score_document,
    total_usage,
    without_nothing,
)
from proctor.export.tables import file_name
from proctor.item import digest_of
from proctor.json_values import JsonMap, JsonObject, as_map, as_text
from proctor.score import Score
from proctor.session import Message, ModelCall, Session, ToolCall, Usage


def sample_of(session: Session, name: str, epoch: int) -> JsonObject:
    """A session as a sample called `name`."""
    messages, events = list[JsonObject](), list[JsonObject]()
    for number, message in enumerate(exported_messages(session), start=1):
        sample_events = _SampleEvents(message, f"message-{number}", session)
        messages += sample_events.messages()
        events += sample_events.events()
    seconds = _seconds(session)
    sample = {
        "id": name,
        "epoch": epoch,
        "input": _prompt(session),
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
        "error": {"message": session.error, "traceback": "", "traceback_ansi": ""} if session.error else None,
        "attachments": {},
    }
    return {key: value for key, value in sample.items() if value is not None}


def usage_document(usage: Usage, cost: float | None) -> JsonObject:
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


class _SampleEvents:
    """One message of the session, as messages and events of a sample."""

    def __init__(self, message: ExportedMessage, name: str, session: Session) -> None:
        self._message, self._name, self._session = message, name, session
        named = zip(message.call_names, message.tool_calls, strict=True)
        self._calls = [(called, call, at) for called, (call, at) in named]

    def messages(self) -> Iterator[JsonObject]:
        """The message, and one for the result of each tool it called."""
        source = self._message
        ours = without_nothing(
            {**source.ours, "at": moment(source.at), "is_said": source.role == "tool" or None}
        )
        message: JsonObject = {"id": self._name, "role": source.role, "content": source.text}
        if source.tool_calls:
            message["tool_calls"] = [
                {"id": name, "function": call.name, "arguments": dict(call.args), "type": "function"}
                for name, call, _ in self._calls
            ]
        if source.role == "assistant" and source.model_calls:
            message["model"] = source.model_calls[-1][0].model
        yield message | ({"metadata": {OURS: ours}} if ours else {})
        for name, call, _ in self._calls:
            yield self._result(name, call)

    def events(self) -> Iterator[JsonObject]:
        """The model calls behind the message, and the tools it called."""
        for number, (model_call, at) in enumerate(self._message.model_calls, start=1):
            yield self._model_event(model_call, at or self._message.at, number)
        for name, call, at in self._calls:
            yield {
                "event": "tool",
                "uuid": f"{self._name}-{name}",
                "timestamp": _stamp(at or self._message.at),
                "type": "function",
                "id": name,
                "function": call.name,
                "arguments": dict(call.args),
                "result": call.result,
                "events": [],
                **({"error": _tool_error(call)} if call.success is False else {}),
                **({} if call.duration_ms is None else {"working_time": call.duration_ms / 1000}),
            }

    def _result(self, name: str, call: ToolCall) -> JsonObject:
        return {
            "id": f"{self._name}-{name}",
            "role": "tool",
            "content": call.result,
            "tool_call_id": name,
            "function": call.name,
            "metadata": {OURS: {"success": call.success, "duration_ms": call.duration_ms}},
            **({"error": _tool_error(call)} if call.success is False else {}),
        }

    def _model_event(self, call: ModelCall, at: datetime | None, number: int) -> JsonObject:
        ours = {
            "provider": call.provider,
            "price_source": call.price_source,
            "latency_ms": call.latency_ms,
            "waiting_ms": call.waiting_ms,
            "status": call.status,
            "call_id": call.call_id,
            **call.provenance,
        }
        message = {"id": self._name, "role": "assistant", "content": self._message.text, "source": "generate"}
        output = {
            "model": call.served_model or call.model,
            "choices": [{"message": message, "stop_reason": "stop"}],
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


def _tool(tool: JsonMap) -> JsonObject:
    """A tool by name. What its parameters are stands in the metadata: Inspect takes only some schemas."""
    parameters = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return {
        "name": str(tool.get("name") or UNKNOWN),
        "description": str(tool.get("description") or ""),
        "parameters": parameters,
    }


def _tool_error(call: ToolCall) -> dict[str, str]:
    return {"type": "unknown", "message": call.result[:1_000] or "it failed"}


def _about(session: Session) -> JsonObject:
    return without_nothing(
        {
            **about(session),
            "tools": [dict(tool) for tool in session.tools],
            "scores_not_given": [score_document(score) for score in session.scores if not _has_result(score)],
        }
    )


def _prompt(session: Session) -> str:
    events = (each.event for step in session.steps for each in step.events)
    prompts = (event.content for event in events if isinstance(event, Message) and event.role == "user")
    return next(prompts, "")


def _output(session: Session) -> JsonObject:
    events = (each.event for step in reversed(session.steps) for each in reversed(step.events))
    answers = (event.content for event in events if isinstance(event, Message) and event.role == "assistant")
    answer = next(answers, "")
    message = {"role": "assistant", "content": answer, "source": "generate"}
    return {
        "model": session.model or UNKNOWN,
        "choices": [{"message": message, "stop_reason": "stop"}],
        "completion": answer,
    }


def _scores(scores: Iterable[Score]) -> JsonObject:
    """Scores by name; those of one name get numbers. One that could not be given has no place there."""
    by_name = JsonObject()
    for score in filter(_has_result, scores):
        value = score.label if score.value is None else score.value
        name = base_name = "/".join(filter(None, (score.evaluator, score.dimension, score.target)))
        number = 1
        while name in by_name:
            number += 1
            name = f"{base_name}#{number}"
        by_name[name] = _score(score, value)
    return by_name


def _has_result(score: Score) -> bool:
    return not score.error and (score.value is not None or bool(score.label))


def _score(score: Score, value: float | str) -> JsonObject:
    ours = {name: member for name, member in score_document(score).items() if name != "explanation"}
    return without_nothing(
        {
            "value": value,
            "answer": score.label or None,
            "explanation": score.explanation or None,
            "metadata": {OURS: ours},
        }
    )


def _seconds(session: Session) -> float | None:
    if session.started_at is None or session.finished_at is None:
        return None
    return max(0.0, (session.finished_at - session.started_at).total_seconds())


VERSION = 2
"""Of Inspect's log format."""
SUMMARIES_AT_ONCE = 100
MOST_LOGS = 100
"""Files that are open at once; what further agents and models did goes into one log together."""
SEVERAL = ("", "several")
UNKNOWN = "unknown"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHORT = ("id", "epoch", "target", "scores", "model_usage", "uuid", "total_time", "working_time")


def write(sessions: Iterable[Session], out: Path, label: str) -> list[Path]:
    """A file `inspect-<label>-<agent>-<model>.eval` for each agent and model there is."""
    logs: dict[tuple[str, str], _Log] = {}
    with ExitStack() as open_files:
        for session in sessions:
            who = (session.agent, session.model)
            if who not in logs and len(logs) >= MOST_LOGS:
                who = SEVERAL
            if who not in logs:
                path = out / f"inspect-{label}-{_who(*who)}.eval"
                archive = zipfile.ZipFile(path, "w", compression=zipfile.ZIP_DEFLATED)
                logs[who] = _Log(path, open_files.enter_context(archive), label, *who)
            logs[who].add(session)
        for log in logs.values():
            log.close()
    return [log.path for log in logs.values()]


def _who(agent: str, model: str) -> str:
    name = file_name("-".join(filter(None, (agent, model))) or UNKNOWN)
    # Two names may be the same once they are fit for a file.
    return f"{name[:60]}-{digest_of([agent, model])[:6]}"


@dataclass(slots=True)
class _Log:
    """One log as it is being written."""

    path: Path
    archive: zipfile.ZipFile
    label: str
    agent: str
    model: str
    began: datetime | None = None
    ended: datetime | None = None
    samples: int = 0
    completed: int = 0
    scores: dict[str, tuple[int, float]] = field(default_factory=dict)
    """How many there were of each that is a number, and their sum."""
    used: dict[str, tuple[Usage, float | None]] = field(default_factory=dict)
    _waiting: list[JsonObject] = field(default_factory=list)
    _summaries: int = 0
    _epochs: dict[str, int] = field(default_factory=dict)

    def add(self, session: Session) -> None:
        if not self.samples:
            self.began = session.started_at
            self._put("_journal/start.json", {"version": VERSION, "eval": self._spec(), "plan": self._plan()})
        name = file_name(session.external_id)
        epoch = self._epochs[name] = self._epochs.get(name, 0) + 1
        sample = sample_of(session, name, epoch)
        self._put(f"samples/{name}_epoch_{epoch}.json", sample)
        self.samples += 1
        self.completed += "error" not in sample
        self._count(session)
        self._waiting.append(_summary(sample))
        if len(self._waiting) == SUMMARIES_AT_ONCE:
            self._put_summaries()

    def close(self) -> None:
        """Write what is known only now."""
        self._put_summaries()
        self._put("header.json", self._header())

    def _put(self, name: str, document: object) -> None:
        self.archive.writestr(name, json.dumps(document, ensure_ascii=False, default=str))

    def _put_summaries(self) -> None:
        if self._waiting:
            self._summaries += 1
            self._put(f"_journal/summaries/{self._summaries}.json", self._waiting)
            self._waiting = []

    def _count(self, session: Session) -> None:
        self.began = min(filter(None, (self.began, session.started_at)), default=None)
        self.ended = max(filter(None, (self.ended, session.finished_at)), default=None)
        for model, (usage, cost) in total_usage(session).items():
            known, spent = self.used.get(model, (Usage(), None))
            self.used[model] = (known + usage, spent if cost is None else (spent or 0.0) + cost)
        for score in session.scores:
            if score.value is not None and not score.error:
                count, total = self.scores.get(name_of(score), (0, 0.0))
                self.scores[name_of(score)] = (count + 1, total + score.value)

    def _spec(self) -> JsonObject:
        """What was run, as far as Inspect asks."""
        run = digest_of([self.label, self.agent, self.model])
        return {
            "eval_id": run[:22],
            "run_id": self.label,
            "created": _stamp(self.began),
            "task": self.label,
            "task_id": run[22:44],
            "task_version": 0,
            "solver": self.agent or None,
            "dataset": {"name": self.label},
            "model": self.model or UNKNOWN,
            "config": {},
            "packages": {},
        }

    def _plan(self) -> JsonObject:
        steps = [{"solver": self.agent, "params": {}}] if self.agent else []
        return {"name": "plan", "steps": steps, "config": {}}

    def _header(self) -> JsonObject:
        return {
            "version": VERSION,
            "status": "success",
            "eval": self._spec() | {"dataset": {"name": self.label, "samples": self.samples}},
            "plan": self._plan(),
            "results": {
                "total_samples": self.samples,
                "completed_samples": self.completed,
                "scores": [
                    {
                        "name": name,
                        "scorer": name,
                        "params": {},
                        "metrics": {"mean": {"name": "mean", "value": total / count, "params": {}}},
                    }
                    for name, (count, total) in self.scores.items()
                ],
            },
            "stats": {
                "started_at": _stamp(self.began),
                "completed_at": _stamp(self.ended),
                "model_usage": {model or UNKNOWN: usage_document(*used) for model, used in self.used.items()},
            },
        }


def name_of(score: Score) -> str:
    """What a score is called in a log: its evaluator, and the dimension of a scale with several."""
    return "/".join(filter(None, (score.evaluator, score.dimension)))


def _stamp(at: datetime | None) -> str:
    return (at or _EPOCH).isoformat()


def _summary(sample: JsonObject) -> JsonObject:
    """A sample without its messages."""
    short = {name: sample[name] for name in _SHORT if name in sample}
    prompt = as_text(sample["input"])[:1_000]
    error = as_map(sample, "error").get("message")
    return short | {"input": prompt, "completed": True, "metadata": {}} | ({"error": error} if error else {})
