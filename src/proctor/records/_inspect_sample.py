"""One sample of an Inspect log, as a session.

Our own exports say in `metadata` what Inspect has no place for, and come back as they were.

Knows nothing of files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from proctor.imported import ImportedSession
from proctor.records._scores import score_of_ours, scores_of_ours
from proctor.records._story import Story
from proctor.records._values import (
    a_cost,
    a_list,
    a_map,
    a_moment,
    a_number,
    a_text,
    a_word,
    args_of,
    maps_in,
    text_of,
    tools_of,
)
from proctor.score import Score
from proctor.session import ModelCall, Role, Usage
from proctor.untrusted import whole_number

OURS = "proctor"
"""Where in `metadata` our own exports keep what Inspect has no place for."""
ATTACHED = "attachment://"
GRADES: Mapping[str, float] = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partial, incorrect, no answer: what Inspect's own metrics make of its letters."""
_LIMITS: Mapping[str, tuple[str, str]] = {
    "time": ("timeout", "timeout"),
    "working": ("timeout", "timeout"),
    "token": ("fail", "cost_limit"),
    "cost": ("fail", "cost_limit"),
    "operator": ("error", "aborted"),
}
_ROLES: Mapping[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


@dataclass(slots=True)
class _Events:
    """What the events say of messages and tool calls, by their ids."""

    calls: dict[str, list[tuple[ModelCall, datetime | None]]] = field(default_factory=dict)
    """Model calls by the message that came of them: its id, or in old logs what it says."""
    tools: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    offered: list[dict[str, Any]] = field(default_factory=list)


def session_of(sample: Mapping[str, Any], header: Mapping[str, Any], source: str) -> ImportedSession:
    """The session a sample is, in the run that a log's header tells of."""
    spec, ours = a_map(header, "eval"), a_map(sample, "metadata", OURS)
    attachments = a_map(sample, "attachments")
    events = _read_events(sample, attachments)
    story = Story(turns_by_user=not ours)
    for message in maps_in(sample.get("messages")):
        _tell(story, message, events, attachments)
    _spend_the_rest(story, sample, events)
    scores = [*_scores(sample), *scores_of_ours(ours.get("scores_not_given"))]
    status, reason, error = _ending(sample, scores, ours)
    about = ours or _about(sample, header)
    return ImportedSession(
        external_id=_id(sample, spec),
        source=source,
        service=a_text(ours.get("service")),
        log_group=a_text(ours.get("log_group")),
        name=a_text(about.get("name")),
        agent=a_text(about.get("agent")),
        agent_version=a_text(ours.get("agent_version")),
        model=a_text(about.get("model")),
        is_stand_in=ours.get("is_stand_in") is True,
        status=status,
        end_reason=reason,
        error=error,
        started_at=a_moment(sample.get("started_at")) or story.began_at,
        finished_at=a_moment(sample.get("completed_at")) or story.ended_at,
        steps=story.steps,
        tools=tools_of(ours.get("tools")) or events.offered,
        attributes=_attributes(sample, spec, ours),
        scores=scores,
        notes=[note for note in map(a_text, a_list(ours.get("notes"))) if note],
    )


def _about(sample: Mapping[str, Any], header: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = a_map(header, "eval")
    solvers = [a_text(step.get("solver")) for step in maps_in(a_map(header, "plan").get("steps"))]
    return {
        "name": f"{a_text(spec.get('task'))} {a_word(sample.get('id'))}".strip(),
        "agent": a_text(spec.get("solver")) or ", ".join(filter(None, solvers)),
        "model": a_text(spec.get("model")),
    }


def _id(sample: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    if uuid := a_text(sample.get("uuid")):
        return uuid
    run = a_text(spec.get("eval_id")) or a_text(spec.get("run_id")) or a_text(spec.get("created"))
    return f"{run}/{a_word(sample.get('id'))}/{a_word(sample.get('epoch'))}"


def _attributes(
    sample: Mapping[str, Any], spec: Mapping[str, Any], ours: Mapping[str, Any]
) -> dict[str, Any]:
    if ours:
        return dict(a_map(ours, "attributes"))
    known = {
        "task": a_text(spec.get("task")),
        "sample_id": a_word(sample.get("id")),
        "epoch": a_word(sample.get("epoch")),
        "eval_id": a_text(spec.get("eval_id")),
        "run_id": a_text(spec.get("run_id")),
        "dataset": a_text(a_map(spec, "dataset").get("name")),
        "inspect_version": a_text(a_map(spec, "packages").get("inspect_ai")),
    }
    return {name: value for name, value in known.items() if value}


def _read_events(sample: Mapping[str, Any], attachments: Mapping[str, Any]) -> _Events:
    found = _Events()
    for event in maps_in(sample.get("events")):
        if event.get("event") == "model" and event.get("pending") is not True:
            choice = next(iter(maps_in(a_map(event, "output").get("choices"))), {})
            message = a_map(choice, "message")
            made = a_text(message.get("id")) or _attached(text_of(message.get("content")), attachments)
            found.calls.setdefault(made, []).append((_model_call(event), a_moment(event.get("timestamp"))))
            found.offered = found.offered or tools_of(event.get("tools"))
        elif event.get("event") == "tool":
            found.tools[a_text(event.get("id"))] = event
    return found


def _model_call(event: Mapping[str, Any]) -> ModelCall:
    output, ours = a_map(event, "output"), a_map(event, "metadata", OURS)
    error = a_text(event.get("error")) or a_text(output.get("error"))
    latency_ms = _milliseconds(ours.get("latency_ms"), output.get("time"))
    used = a_map(output, "usage")
    cost = a_cost(used.get("total_cost"))
    return ModelCall(
        model=a_text(event.get("model")),
        provider=a_text(ours.get("provider")),
        usage=_usage(used),
        cost_usd=cost,
        price_source=a_text(ours.get("price_source")) or ("" if cost is None else "agent"),
        latency_ms=latency_ms,
        waiting_ms=a_number(ours.get("waiting_ms")) or 0.0,
        status=a_text(ours.get("status")) or ("error" if error else "ok"),
        error=error,
        call_id=a_text(ours.get("call_id")) if ours else a_text(event.get("uuid")),
    )


def _milliseconds(ours: Any, seconds: Any) -> float | None:
    """How long something took: as we said it, or else from Inspect's seconds."""
    known, counted = a_number(ours), a_number(seconds)
    return known if known is not None or counted is None else counted * 1000


def _usage(used: Mapping[str, Any]) -> Usage:
    cached = whole_number(used.get("input_tokens_cache_read"))
    written = whole_number(used.get("input_tokens_cache_write"))
    counted, total = whole_number(used.get("input_tokens")), whole_number(used.get("total_tokens"))
    output = whole_number(used.get("output_tokens"))
    # Some providers' prompts are counted without what came from the cache; the total tells.
    is_apart = total and counted + cached + written + output <= total
    return Usage(
        input_tokens=counted + cached + written if is_apart else counted,
        cached_tokens=cached,
        cache_write_tokens=written,
        output_tokens=output,
        reasoning_tokens=whole_number(used.get("reasoning_tokens")),
    )


def _tell(story: Story, message: Mapping[str, Any], events: _Events, attachments: Mapping[str, Any]) -> None:
    made, ours = a_text(message.get("id")), a_map(message, "metadata", OURS)
    said = _attached(text_of(message.get("content")), attachments)
    is_agent = message.get("role") == "assistant"
    calls = (events.calls.pop(made, []) or events.calls.pop(said, [])) if is_agent else []
    at = a_moment(ours.get("at")) or next((moment for _, moment in calls if moment), None)
    if "turn" in ours:
        story.begin(a_text(ours["turn"]), at)
    for call, moment in calls:
        story.spend(call, moment)
    role = message.get("role")
    if role == "tool" and not ours.get("is_said"):
        _answer(story, message, said, events)
        return
    is_ours = story.turns_are_told and not ours.get("is_silent")
    said_by = _ROLES.get(a_text(role), "tool")
    story.say(said_by, said, at, a_text(ours.get("name")), even_nothing=is_ours)
    for asked in maps_in(message.get("tool_calls")):
        called = a_text(asked.get("id"))
        happened = a_moment(events.tools.get(called, {}).get("timestamp"))
        own_id = a_text(a_map(ours, "call_ids").get(called, called))
        args = args_of(asked.get("arguments"))
        story.call(a_text(asked.get("function")), args, own_id, happened or at, known_as=called)


def _answer(story: Story, message: Mapping[str, Any], said: str, events: _Events) -> None:
    called = a_text(message.get("tool_call_id"))
    event, ours = events.tools.get(called, {}), a_map(message, "metadata", OURS)
    wrong = a_map(message, "error") or a_map(event, "error")
    duration_ms = _milliseconds(ours.get("duration_ms"), event.get("working_time"))
    success = ours.get("success", not wrong)
    story.answer(
        called,
        said or ("" if ours else a_text(wrong.get("message"))),
        success if isinstance(success, bool) else None,
        duration_ms=duration_ms,
    )


def _attached(text: str, attachments: Mapping[str, Any]) -> str:
    if not text.startswith(ATTACHED):
        return text
    return a_text(attachments.get(text.removeprefix(ATTACHED))) or text


def _spend_the_rest(story: Story, sample: Mapping[str, Any], events: _Events) -> None:
    """Tell the model calls nothing came of in the conversation: those of judges and of other agents."""
    for calls in events.calls.values():
        for call, moment in calls:
            story.spend(call, moment)
    if not any(event.get("event") == "model" for event in maps_in(sample.get("events"))):
        for model, used in a_map(sample, "model_usage").items():
            cost = a_cost(a_map(used).get("total_cost"))
            source = "" if cost is None else "agent"
            call = ModelCall(model=model, usage=_usage(a_map(used)), cost_usd=cost, price_source=source)
            story.spend(call, before=(0, 0))


def _scores(sample: Mapping[str, Any]) -> list[Score]:
    # Logs of the first version had one score without a name.
    named = a_map(sample, "scores") or ({"score": sample["score"]} if a_map(sample, "score") else {})
    return [score for name, said in named.items() for score in _score(name, a_map(said))]


def _score(name: str, said: Mapping[str, Any]) -> list[Score]:
    if ours := a_map(said, "metadata", OURS):
        return [score_of_ours({**ours, "explanation": said.get("explanation")})]
    value, explanation = said.get("value"), a_text(said.get("explanation"))
    parts: Mapping[str, Any] = value if isinstance(value, dict) else {"": value}
    if isinstance(value, list):
        parts = {str(number): each for number, each in enumerate(value, start=1)}
    found = []
    for dimension, part in parts.items():
        number, label = _graded(part)
        if number is not None or label:
            found.append(
                Score(evaluator=name, dimension=dimension, value=number, label=label, explanation=explanation)
            )
    return found


def _graded(value: Any) -> tuple[float | None, str]:
    if isinstance(value, bool):
        return float(value), ""
    if isinstance(value, str):
        return GRADES.get(value), value
    return a_number(value), ""


def _ending(sample: Mapping[str, Any], scores: list[Score], ours: Mapping[str, Any]) -> tuple[str, str, str]:
    error = sample.get("error")
    said = a_text(error) or a_text(a_map(error).get("message"))
    if ours:
        return a_text(ours.get("status")) or "success", a_text(ours.get("end_reason")) or "completed", said
    if said:
        return "error", "internal_error", said
    limit = a_map(sample, "limit")
    if limit:
        status, reason = _LIMITS.get(a_text(limit.get("type")), ("fail", "agent_failed"))
        return status, reason, f"it reached its {a_text(limit.get('type'))} limit"
    graded = [score for score in scores if score.label in GRADES]
    if graded and any(score.value == 0 for score in graded):
        return "fail", "checks_failed", ""
    return "success", "completed", ""
