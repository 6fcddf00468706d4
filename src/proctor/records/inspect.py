"""Inspect logs, `.eval` and JSON: each sample is a session, with its scores.

The conversation comes from the messages of a sample; times, durations and cost from its events. Samples of an
`.eval` file are read one at a time. An interrupted log is read up to its end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from proctor.json_values import (
    JsonMap,
    JsonObject,
    args_of,
    as_cost,
    as_datetime,
    as_list,
    as_map,
    as_name,
    as_number,
    as_text,
    as_whole_number,
    maps_in,
    message_text,
    tools_of,
    without_empty,
)
from proctor.records._reading import (
    Read,
    TranscriptBuilder,
    ZipMembers,
    exported_factors,
    exported_score,
    exported_scores,
    head_of,
    load_json,
    open_zip,
    read_session,
    unreadable,
)
from proctor.score import Score
from proctor.session import ModelCall, Role, Session, Usage, provenance_of

OURS = "proctor"
"""Key of `metadata` under which Proctor exports what Inspect has no member for."""
ATTACHED = "attachment://"
GRADES: Mapping[str, float] = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partial, incorrect, no answer: values of the letters in Inspect's own metrics."""
_LIMITS: Mapping[str, tuple[str, str]] = {
    "time": ("timeout", "timeout"),
    "working": ("timeout", "timeout"),
    "token": ("fail", "cost_limit"),
    "cost": ("fail", "cost_limit"),
    "context": ("fail", "context_overflow"),
    "operator": ("error", "aborted"),
}
_ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


@dataclass(slots=True)
class _Events:
    """Model calls and tool calls of the events, by id."""

    calls: dict[str, list[tuple[ModelCall, datetime | None]]] = field(default_factory=dict)
    """By the message that the call produced: its id, or in old logs its text."""
    tools: dict[str, JsonMap] = field(default_factory=dict)
    offered: list[JsonObject] = field(default_factory=list)


def session_of(sample: JsonMap, header: JsonMap, source: str) -> Session:
    """The session of a sample; `header` describes the run."""
    spec, ours = as_map(header, "eval"), as_map(sample, "metadata", OURS)
    attachments = as_map(sample, "attachments")
    events = _read_events(sample, attachments)
    transcript = TranscriptBuilder(turns_by_user=not ours)
    for message in maps_in(sample, "messages"):
        _add_message(transcript, message, events, attachments)
    _add_remaining_calls(transcript, sample, events)
    scores = [*_scores(sample), *exported_scores(ours.get("scores_not_given"))]
    status, reason, error = _ending(sample, scores, ours)
    about = ours or _about(sample, header)
    return Session(
        external_id=_id(sample, spec),
        source=source,
        service=as_text(ours, "service"),
        log_group=as_text(ours, "log_group"),
        name=as_text(about, "name"),
        agent=as_text(about, "agent"),
        agent_version=as_text(ours, "agent_version"),
        model=as_text(about, "model"),
        is_mock=ours.get("is_stand_in") is True,
        status=status,
        end_reason=reason,
        error=error,
        task=as_text(about, "task"),
        repeat=as_whole_number(about, "repeat") or None,
        factors=exported_factors(ours),
        started_at=as_datetime(sample, "started_at") or transcript.began_at,
        finished_at=as_datetime(sample, "completed_at") or transcript.ended_at,
        steps=transcript.steps,
        tools=tools_of(ours.get("tools")) or events.offered,
        attributes=_attributes(sample, spec, ours),
        scores=scores,
        notes=[note for note in map(as_text, as_list(ours, "notes")) if note],
    )


def _about(sample: JsonMap, header: JsonMap) -> JsonMap:
    spec = as_map(header, "eval")
    solvers = [as_text(step, "solver") for step in maps_in(header, "plan", "steps")]
    return {
        "name": f"{as_text(spec.get('task'))} {as_name(sample.get('id'))}".strip(),
        "agent": as_text(spec, "solver") or ", ".join(filter(None, solvers)),
        "model": as_text(spec, "model"),
        # Ids of samples are unique within their dataset only.
        "task": "/".join(filter(None, (as_text(spec, "task"), as_name(sample, "id")))),
        "repeat": sample.get("epoch"),
    }


def _id(sample: JsonMap, spec: JsonMap) -> str:
    if uuid := as_text(sample, "uuid"):
        return uuid
    run = as_text(spec, "eval_id") or as_text(spec, "run_id") or as_text(spec, "created")
    return f"{run}/{as_name(sample.get('id'))}/{as_name(sample.get('epoch'))}"


def _attributes(sample: JsonMap, spec: JsonMap, ours: JsonMap) -> JsonMap:
    if ours:
        return as_map(ours, "attributes")
    known = {
        "task": as_text(spec, "task"),
        "sample_id": as_name(sample, "id"),
        "epoch": as_name(sample, "epoch"),
        "eval_id": as_text(spec, "eval_id"),
        "run_id": as_text(spec, "run_id"),
        "dataset": as_text(spec, "dataset", "name"),
        "inspect_version": as_text(spec, "packages", "inspect_ai"),
    }
    return without_empty(known)


def _read_events(sample: JsonMap, attachments: JsonMap) -> _Events:
    events = _Events()
    for event in maps_in(sample, "events"):
        if event.get("event") == "model" and event.get("pending") is not True:
            choice = next(iter(maps_in(event, "output", "choices")), {})
            message = as_map(choice, "message")
            key = as_text(message, "id") or _attached(message_text(message, "content"), attachments)
            events.calls.setdefault(key, []).append((_model_call(event), as_datetime(event, "timestamp")))
            events.offered = events.offered or tools_of(event.get("tools"))
        elif event.get("event") == "tool":
            events.tools[as_text(event, "id")] = event
    return events


def _model_call(event: JsonMap) -> ModelCall:
    output, ours = as_map(event, "output"), as_map(event, "metadata", OURS)
    error = as_text(event, "error") or as_text(output, "error")
    latency_ms = _milliseconds(ours.get("latency_ms"), output.get("time"))
    used = as_map(output, "usage")
    cost = as_cost(used, "total_cost")
    return ModelCall(
        model=as_text(event, "model"),
        provider=as_text(ours, "provider"),
        usage=_usage(used),
        cost_usd=cost,
        price_source=as_text(ours, "price_source") or ("" if cost is None else "agent"),
        latency_ms=latency_ms,
        waiting_ms=as_number(ours, "waiting_ms") or 0.0,
        status=as_text(ours, "status") or ("error" if error else "ok"),
        error=error,
        call_id=as_text(ours, "call_id") if ours else as_text(event, "uuid"),
        **provenance_of(ours or {"served_model": output.get("model")}),
    )


def _milliseconds(ours: object, seconds: object) -> float | None:
    """A duration: as Proctor exported it, else from Inspect's seconds."""
    exact, measured = as_number(ours), as_number(seconds)
    return exact if exact is not None or measured is None else measured * 1000


def _usage(used: JsonMap) -> Usage:
    cached = as_whole_number(used, "input_tokens_cache_read")
    written = as_whole_number(used, "input_tokens_cache_write")
    counted, total = as_whole_number(used, "input_tokens"), as_whole_number(used, "total_tokens")
    output = as_whole_number(used, "output_tokens")
    # Some providers do not count cached tokens as input; the total shows which.
    is_apart = total and counted + cached + written + output <= total
    return Usage(
        input_tokens=counted + cached + written if is_apart else counted,
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=output,
        reasoning_tokens=as_whole_number(used, "reasoning_tokens"),
    )


def _add_message(
    transcript: TranscriptBuilder, message: JsonMap, events: _Events, attachments: JsonMap
) -> None:
    message_id, ours = as_text(message, "id"), as_map(message, "metadata", OURS)
    text = _attached(message_text(message, "content"), attachments)
    is_agent = message.get("role") == "assistant"
    calls = (events.calls.pop(message_id, []) or events.calls.pop(text, [])) if is_agent else []
    at = as_datetime(ours, "at") or next((moment for _, moment in calls if moment), None)
    if "turn" in ours:
        transcript.begin_turn(as_text(ours["turn"]), at)
    for call, moment in calls:
        transcript.add_model_call(call, moment)
    role = message.get("role")
    if role == "tool" and not ours.get("is_said"):
        _add_tool_result(transcript, message, text, events)
        return
    is_ours = transcript.has_explicit_turns and not ours.get("is_silent")
    author = _ROLES.get(as_text(role), "tool")
    transcript.add_message(author, text, at, as_text(ours, "name"), keep_empty=is_ours)
    for request in maps_in(message, "tool_calls"):
        call_id = as_text(request, "id")
        happened = as_datetime(events.tools.get(call_id, {}).get("timestamp"))
        own_id = as_text(as_map(ours, "call_ids").get(call_id, call_id))
        args = args_of(request, "arguments")
        transcript.add_tool_call(
            as_text(request, "function"), args, own_id, happened or at, result_id=call_id
        )


def _add_tool_result(transcript: TranscriptBuilder, message: JsonMap, text: str, events: _Events) -> None:
    call_id = as_text(message, "tool_call_id")
    event, ours = events.tools.get(call_id, {}), as_map(message, "metadata", OURS)
    wrong = as_map(message, "error") or as_map(event, "error")
    duration_ms = _milliseconds(ours.get("duration_ms"), event.get("working_time"))
    success = ours.get("success", not wrong)
    transcript.add_tool_result(
        call_id,
        text or ("" if ours else as_text(wrong, "message")),
        success if isinstance(success, bool) else None,
        duration_ms=duration_ms,
    )


def _attached(text: str, attachments: JsonMap) -> str:
    if not text.startswith(ATTACHED):
        return text
    return as_text(attachments.get(text.removeprefix(ATTACHED))) or text


def _add_remaining_calls(transcript: TranscriptBuilder, sample: JsonMap, events: _Events) -> None:
    """Add model calls that produced no message: those of judges and of other agents."""
    for calls in events.calls.values():
        for call, moment in calls:
            transcript.add_model_call(call, moment)
    if not any(event.get("event") == "model" for event in maps_in(sample, "events")):
        for model, used in as_map(sample, "model_usage").items():
            cost = as_cost(used, "total_cost")
            source = "" if cost is None else "agent"
            call = ModelCall(model=model, usage=_usage(as_map(used)), cost_usd=cost, price_source=source)
            transcript.add_model_call(call, before=(0, 0))


def _scores(sample: JsonMap) -> list[Score]:
    # Logs of the first version had one score without a name.
    named = as_map(sample, "scores") or ({"score": sample["score"]} if as_map(sample, "score") else {})
    return [score for name, value in named.items() for score in _score(name, as_map(value))]


def _score(name: str, entry: JsonMap) -> list[Score]:
    if ours := as_map(entry, "metadata", OURS):
        return [exported_score({**ours, "explanation": entry.get("explanation")})]
    value, explanation = entry.get("value"), as_text(entry, "explanation")
    parts: JsonMap = value if isinstance(value, dict) else {"": value}
    if isinstance(value, list):
        parts = {str(number): each for number, each in enumerate(value, start=1)}
    scores = []
    for dimension, part in parts.items():
        number, label = _graded(part)
        if number is not None or label:
            scores.append(
                Score(evaluator=name, dimension=dimension, value=number, label=label, explanation=explanation)
            )
    return scores


def _graded(value: object) -> tuple[float | None, str]:
    if isinstance(value, bool):
        return float(value), ""
    if isinstance(value, str):
        return GRADES.get(value), value
    return as_number(value), ""


def _ending(sample: JsonMap, scores: list[Score], ours: JsonMap) -> tuple[str, str, str]:
    error = sample.get("error")
    message = as_text(error) or as_text(error, "message")
    if ours:
        return (as_text(ours, "status") or "success", as_text(ours, "end_reason") or "completed", message)
    if message:
        return "error", "internal_error", message
    limit = as_map(sample, "limit")
    if limit:
        status, reason = _LIMITS.get(as_text(limit, "type"), ("fail", "agent_failed"))
        return status, reason, f"it reached its {as_text(limit.get('type'))} limit"
    graded = [score for score in scores if score.label in GRADES]
    if graded and any(score.value == 0 for score in graded):
        return "fail", "checks_failed", ""
    return "success", "completed", ""


kind = "inspect"
endings = (".eval",)
HEADER, START, SAMPLES = "header.json", "_journal/start.json", "samples/"


def recognizes(path: Path) -> bool:
    """Whether name and beginning of a file are those of a log."""
    if path.name.endswith(endings):
        return head_of(path).startswith(b"PK")
    head = head_of(path, (".json",))
    return all(word in head for word in (b'"eval"', b'"task_id"', b'"dataset"', b'"status"'))


def read(path: Path) -> Read:
    """The sessions of a log."""
    try:
        if head_of(path).startswith(b"PK"):
            with open_zip(path) as packed:
                yield from _read_packed(path, packed)
        else:
            yield from _read_whole(path, load_json(path))
    except (ValueError, OSError) as error:
        yield unreadable(path, error)


def _read_packed(path: Path, packed: ZipMembers) -> Read:
    names = packed.names
    about = next((name for name in (HEADER, START) if name in names), "")
    if not about:
        raise ValueError(f"it is not a log: it has neither {HEADER} nor {START}")
    header = as_map(packed.load(about))
    for name in names:
        if not name.startswith(SAMPLES) or not name.endswith(".json"):
            continue
        if name.count("/") == 1:
            yield read_session(path, lambda it=name: _session(packed.load(it), header), name)  # type: ignore[misc]
        elif name.endswith("/sample.json"):
            yield unreadable(path, "it is kept in pieces; have Inspect write it as one", name)


def _read_whole(path: Path, document: object) -> Read:
    header = as_map(document)
    if "eval" not in header:
        raise ValueError("it is not a log: it has no `eval`")
    for number, sample in enumerate(maps_in(header, "samples"), start=1):
        yield read_session(path, lambda it=sample: _session(it, header), f"sample {number}")  # type: ignore[misc]


def _session(sample: object, header: JsonMap) -> Session:
    if not isinstance(sample, dict) or not isinstance(sample.get("messages"), list):
        raise ValueError("it is not a sample: it has no messages")
    return session_of(sample, header, kind)
