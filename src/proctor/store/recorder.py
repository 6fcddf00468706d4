"""Turns the events of one attempt into rows.

The events of a session are numbered in one sequence, whatever their kind. Text from agents is sanitized
here; a long text is stored once, compressed, under its digest.
"""

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from proctor.errors import CONTEXT_OVERFLOW
from proctor.frozen import fast_init
from proctor.json_values import MOST, JsonObject
from proctor.session import (
    Event,
    Intervention,
    Invalid,
    InvalidKind,
    Iteration,
    Merge,
    Message,
    Metric,
    ModelCall,
    Note,
    ToolCall,
    Usage,
    Workspace,
    invalidity,
)
from proctor.store.tables import amount, clean, finite, merge_row, short, whole
from proctor.store.writer import timestamp

if TYPE_CHECKING:
    from proctor.score import Ballot, Score

INLINE_CHARACTERS = 4096
"""Longer text goes to `blobs`. Most messages of real agents are shorter, most tool results are not."""
BlobRow = tuple[str, int, bytes]
"""Digest, size and data, in the order of the columns of `blobs`."""


def split_long_text(text: str) -> tuple[str, BlobRow | None]:
    """The text for the row, and the blob if it is too long for a row."""
    if len(text) <= INLINE_CHARACTERS:
        return text, None
    data = text.encode()
    return "", (hashlib.sha256(data).hexdigest(), len(data), zlib.compress(data, 3))


LONGEST_CACHED_LINE = 200
CACHED_LINES = CACHED_RECORDS = 1024
_BEFORE_TOKENS = 11
"""Columns of an iteration before its tokens and cost."""
_NO_TEXT: tuple[str, None] = ("", None)
_NO_USAGE = Usage()
MOST_NOTES = 100
"""Notes kept of a session. All interventions are counted, however many."""
FREE = frozenset(
    {"rate_limit", "auth", "bad_request", CONTEXT_OVERFLOW, "model_failed", "quota", "cost_limit", "halted"}
)
"""Statuses of calls that are not charged: rejected, unanswered or never sent."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over the events of a session."""

    usage: Usage
    cost_usd: float | None
    """None: no call had a known price."""
    tool_calls: int
    model_calls: int
    unpriced_calls: int
    """Charged calls of unknown cost."""


class Rows(Protocol):
    """Destination of rows: a `Writer`, or one transaction."""

    def append(self, table: str, row: tuple[object, ...]) -> None:
        """Add a row that never changes, as the values of all columns."""

    def add(self, table: str, key: tuple[str, ...], row: JsonObject) -> None:
        """Add a row that may change, by its key."""

    def change(self, table: str, key: tuple[str, ...], values: Mapping[str, object]) -> None:
        """Change columns of a row that was added."""


class Recorder:
    """Records the session of one attempt. Runners get `record` and `score`."""

    def __init__(
        self,
        writer: Rows,
        session_id: str,
        row: JsonObject,
        now: Callable[[], datetime],
        redact: Callable[[str], str] = str,
    ) -> None:
        """`redact` removes secrets from a text."""
        self.session_id = session_id
        self._writer = writer
        self._now = now
        self._redact = redact
        cleaner = _line_cleaner(redact)
        self.line = cleaner.line
        """Redacts, clips and sanitizes a short text."""
        self._lines = cleaner.lines
        """As `line`, for texts that mostly come together."""
        self._columns_of = cleaner.columns
        self._position = 0
        self._step = 1
        self._step_started = row["startedAt"]
        self._usage, self._step_usage = _NO_USAGE, _NO_USAGE
        self.cost_usd: float | None = None
        """Sum of the known costs of its calls; None: no call had a known price."""
        self._step_cost: float | None = None
        self._models: dict[str, int] = {}
        self._served: dict[str, dict[str, int]] = {}
        self._validity: dict[str, int] = {}
        self._counts = {"modelCalls": 0, "toolCalls": 0, "interventions": 0, "unpricedCalls": 0}
        self._notes: list[str] = []
        self._setup_output = ""
        """Of the next step."""
        self._last_moment: datetime | None = None
        self._last_stamp = str(row["startedAt"] or "")
        self._is_clock_noted = False
        writer.add("sessions", (session_id,), {"id": session_id, **row})

    @property
    def totals(self) -> Totals:
        counts = self._counts
        return Totals(
            usage=self._usage,
            cost_usd=self.cost_usd,
            tool_calls=counts["toolCalls"],
            model_calls=counts["modelCalls"],
            unpriced_calls=counts["unpricedCalls"],
        )

    @property
    def main_model(self) -> str:
        """The model with most of the tokens; empty: there was no call."""
        return max(self._models, key=self._models.__getitem__, default="")

    def record(self, event: Event) -> None:
        """Record an event at the current time."""
        _HANDLERS[type(event)](self, event)

    def score(self, score: "Score") -> None:
        """Record a score of this session."""
        if score.error:
            self._count_invalid("unreadable_verdicts")
        position = self._next()
        known = self._columns_of.get(id(score))
        columns = known[1] if known else self._score_columns(score)
        self._writer.append("scores", (self.session_id, position, self._stamp(), *columns))

    def _score_columns(self, score: "Score") -> tuple[object, ...]:
        evaluator, target, label, error, dimension, error_code = self._lines(
            (score.evaluator, score.target, score.label, score.error, score.dimension, score.error_code)
        )
        votes = [self.line(vote) if isinstance(vote, str) else finite(vote) for vote in score.votes]
        columns = (
            evaluator,
            score.evaluator_digest,
            score.level,
            target,
            finite(score.value),
            label,
            *self._text(score.explanation),
            error,
            amount(score.cost_usd),
            dimension,
            error_code,
            whole(score.input_tokens),
            whole(score.output_tokens),
            json.dumps(list(score.ignored)) if score.ignored else "[]",
            score.judged_session,
            json.dumps(votes) if votes else "[]",
            json.dumps([self._ballot(each) for each in score.ballots]) if score.ballots else "[]",
        )
        if len(score.explanation) <= LONGEST_CACHED_LINE:
            self._keep_columns(score, columns)
        return columns

    def _ballot(self, ballot: "Ballot") -> dict[str, object]:
        return {
            "model": ballot.model,
            "label": self.line(ballot.label),
            "value": finite(ballot.value),
            "costUsd": amount(ballot.cost_usd),
            "confidence": ballot.confidence,
            "because": list(ballot.because),
        }

    def _keep_columns(self, record: "Score | Iteration", columns: tuple[object, ...]) -> None:
        """Use these columns again for the same object: short items have many scores and steps in common."""
        if len(self._columns_of) >= CACHED_RECORDS:
            self._columns_of.clear()
        self._columns_of[id(record)] = record, columns

    def record_tools(self, tools: Sequence[Mapping[str, object]]) -> None:
        """Record the tools available to the agent."""
        text, blob = self._text(json.dumps([dict(tool) for tool in tools], ensure_ascii=False, default=str))
        values = {"toolsJson": text or "[]", "toolsJsonBlob": blob}
        self._writer.change("sessions", (self.session_id,), values)

    def begin_step(self) -> None:
        """Start the next step now instead of at the end of the last one."""
        self._step_started = self._stamp()

    def end(
        self,
        status: str,
        reason: str,
        error: str,
        *,
        work_seconds: float | None,
        waiting_seconds: float,
        phase_seconds: Mapping[str, float] = MappingProxyType({}),
        answered_model: str = "",
    ) -> None:
        """Record the end of the session, with the sums of its events.

        `phase_seconds` is the part of `work_seconds` that went into the checkout, the setup, the agent and
        the check; `answered_model` is the model that answered, if it is another than the requested one.
        """
        usage = self._usage
        values = {
            "status": status,
            "endReason": self.line(reason),
            "error": self.line(error) if error else "",
            "finishedAt": self._stamp(),
            "workSeconds": work_seconds,
            "waitingSeconds": waiting_seconds,
            "answeredModel": self.line(answered_model) if answered_model else "",
            "promptTokens": usage.input_tokens,
            "cachedTokens": usage.cached_tokens,
            "completionTokens": usage.output_tokens,
            "reasoningTokens": usage.reasoning_tokens,
            "totalTokens": usage.total_tokens,
            "costUsd": self.cost_usd,
            **self._counts,
            "servedModels": json.dumps(self._served) if self._served else "{}",
            "validity": json.dumps(self._validity) if self._validity else "{}",
        }
        for phase, seconds in phase_seconds.items():
            values[f"{phase}Seconds"] = seconds
        self._writer.change("sessions", (self.session_id,), values)

    def _next(self) -> int:
        self._position += 1
        return self._position

    def _stamp(self) -> str:
        """The current time; never before an earlier event of this session."""
        moment = self._now()
        # The clock of a batch returns the same object within a millisecond.
        return self._last_stamp if moment is self._last_moment else self._new_stamp(moment)

    def _new_stamp(self, moment: datetime) -> str:
        self._last_moment = moment
        stamp = timestamp(moment)
        if stamp < self._last_stamp:
            if not self._is_clock_noted:
                self._is_clock_noted = True
                self._note(Note(text=f"the clock was set back to {stamp}: times from then on are not exact"))
            return self._last_stamp
        self._last_stamp = stamp
        return stamp

    def _head(self) -> tuple[str, int, int, str]:
        self._position = position = self._position + 1
        # As `_stamp`: called three times an item.
        moment = self._now()
        stamp = self._last_stamp if moment is self._last_moment else self._new_stamp(moment)
        return self.session_id, position, self._step, stamp

    def _text(self, text: str) -> tuple[str, str | None]:
        if not text:
            return _NO_TEXT
        cleaned = self._redact(clean(text))
        if len(cleaned) <= INLINE_CHARACTERS:
            return cleaned, None
        _, blob = split_long_text(cleaned)
        assert blob is not None
        self._writer.append("blobs", blob)
        return "", blob[0]

    def _message(self, event: Message) -> None:
        name = self.line(event.name) if event.name else ""
        self._writer.append("messages", (*self._head(), event.role, name, *self._text(event.content)))

    def _tool_call(self, event: ToolCall) -> None:
        self._counts["toolCalls"] += 1
        args = self._text(_as_json(event.args))
        success = None if event.success is None else int(event.success)
        outcome = (success, finite(event.duration_ms), *self._text(event.result), self.line(event.call_id))
        self._writer.append("tool_calls", (*self._head(), self.line(event.name), *args, *outcome))

    def _model_call(self, event: ModelCall) -> None:
        usage, cost = _writable(event.usage), amount(event.cost_usd)
        self._counts["modelCalls"] += 1
        self._models[event.model] = self._models.get(event.model, 0) + usage.total_tokens
        self._usage = usage if self._usage is _NO_USAGE else self._usage + usage
        self._step_usage = usage if self._step_usage is _NO_USAGE else self._step_usage + usage
        if cost is None:
            self._counts["unpricedCalls"] += event.status not in FREE
        else:
            self.cost_usd = (self.cost_usd or 0.0) + cost
            self._step_cost = (self._step_cost or 0.0) + cost
        texts = (event.provider, event.model, event.price_source, event.status, event.speaker, event.purpose)
        served = (event.served_model, event.fingerprint, event.finish_reason)
        (
            provider, model, source, status, speaker, purpose, served_model, fingerprint, finish_reason,
        ) = self._lines((*texts, *served))  # fmt: skip
        if served_model:
            answered = self._served.setdefault(model, {})
            answered[served_model] = answered.get(served_model, 0) + 1
        if invalid := invalidity(event):
            self._count_invalid(*invalid)
        request = self._text(event.request) if event.request else _NO_TEXT
        response = self._text(event.response) if event.response else _NO_TEXT
        row = (
            *self._head(),
            provider,
            model,
            usage.input_tokens,
            usage.cached_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
            cost,
            source,
            _price_json(tuple(event.price.items())),
            finite(event.latency_ms),
            finite(event.waiting_ms) or 0.0,
            status,
            self.line(event.error) if event.error else "",
            *request,
            *response,
            self.line(event.call_id) if event.call_id else "",
            speaker,
            purpose,
            served_model,
            fingerprint,
            self.line(event.request_id) if event.request_id else "",
            finish_reason,
            self.line(event.parameters) if event.parameters else "",
            json.dumps(list(map(self.line, event.not_sent))) if event.not_sent else "[]",
        )
        self._writer.append("model_calls", row)

    def _count_invalid(self, kind: InvalidKind, count: int = 1) -> None:
        self._validity[kind] = self._validity.get(kind, 0) + count

    def _invalid(self, event: Invalid) -> None:
        self._count_invalid(event.kind, event.count)
        if event.text:
            self._note(Note(text=event.text))

    def _intervention(self, event: Intervention) -> None:
        self._counts["interventions"] += 1
        self._note(Note(text=f"{event.kind}: {event.text}"))

    def _metric(self, event: Metric) -> None:
        number = finite(event.value) if isinstance(event.value, int | float) else None
        label = self.line(event.value) if isinstance(event.value, str) else None
        head = (self.session_id, self._next(), whole(event.step), self.line(event.name))
        self._writer.append("metrics", (*head, None if number is None else float(number), label))

    def _note(self, event: Note) -> None:
        if len(self._notes) == MOST_NOTES:
            return
        self._notes.append(self.line(event.text))
        self._writer.change("sessions", (self.session_id,), {"notes": json.dumps(self._notes)})

    def _iteration(self, event: Iteration) -> None:
        ended, usage = self._stamp(), self._step_usage
        known = self._columns_of.get(id(event))
        columns = known[1] if known else self._iteration_columns(event)
        tokens = (usage.input_tokens, usage.output_tokens, usage.input_tokens + usage.output_tokens)
        row = (
            self.session_id,
            self._step,
            self._step_started,
            ended,
            *columns[:_BEFORE_TOKENS],
            *tokens,
            self._step_cost,
            *columns[_BEFORE_TOKENS:],
            *self._text(self._setup_output),
        )
        self._setup_output = ""
        self._writer.append("iterations", row)
        self._step += 1
        self._step_started, self._step_usage, self._step_cost = ended, _NO_USAGE, None

    def _iteration_columns(self, event: Iteration) -> tuple[object, ...]:
        test = (event.test_result, event.test_exit_code, finite(event.test_duration_ms))
        counts = (event.changed_files, event.lines_added, event.lines_removed)
        change = (event.commit_sha, *map(whole, counts))
        test_output, output = self._text(event.test_output), self._text(event.output)
        before_tokens = (*change, *test, *test_output, self.line(event.model), event.exit_code)
        columns = (*before_tokens, *output, self.line(event.trace_id))
        if test_output is output is _NO_TEXT:
            self._keep_columns(event, columns)
        return columns

    def _workspace(self, event: Workspace) -> None:
        known = {
            "name": event.name,
            "branch": event.branch,
            "worktree": event.worktree,
            "repo": event.repo,
            "baseBranch": event.base_branch,
            "baseSha": event.base_sha,
            "agentVersion": event.agent_version,
            "thread": event.thread,
            "sandbox": event.sandbox,
            "baseline": event.baseline,
            "continues": event.continues,
        }
        values = {name: self.line(value) for name, value in known.items() if value}
        self._setup_output = event.setup_output or self._setup_output
        if values:
            self._writer.change("sessions", (self.session_id,), values)

    def _merge(self, event: Merge) -> None:
        row = merge_row(self.session_id, self._next(), self._stamp(), event)
        self._writer.append("merge_history", tuple(self._redact(v) if isinstance(v, str) else v for v in row))


_HANDLERS: dict[type, Callable[[Recorder, Any], None]] = {
    Message: Recorder._message,
    ToolCall: Recorder._tool_call,
    ModelCall: Recorder._model_call,
    Intervention: Recorder._intervention,
    Invalid: Recorder._invalid,
    Metric: Recorder._metric,
    Note: Recorder._note,
    Iteration: Recorder._iteration,
    Workspace: Recorder._workspace,
    Merge: Recorder._merge,
}


class _LineCleaner:
    """Redacts, clips and sanitizes short texts. Most of a batch are the same for all its items: names,
    statuses, prices."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._known: dict[str, str] = {}
        self._groups: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.columns: dict[int, tuple[object, tuple[object, ...]]] = {}
        """Columns of records by the identity of the record, which is kept with them."""

    def line(self, text: str) -> str:
        """A short text without secrets and invalid characters."""
        if not text:
            return text
        cleaned = self._known.get(text)
        if cleaned is None:
            cleaned = short(self._redact(clean(text)))
            if len(text) <= LONGEST_CACHED_LINE:
                if len(self._known) >= CACHED_LINES:
                    self._known.clear()
                self._known[text] = cleaned
        return cleaned

    def lines(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """The same for several texts that often come together."""
        cleaned = self._groups.get(texts)
        if cleaned is None:
            cleaned = tuple(map(self.line, texts))
            if max(map(len, texts)) <= LONGEST_CACHED_LINE:
                if len(self._groups) >= CACHED_LINES:
                    self._groups.clear()
                self._groups[texts] = cleaned
        return cleaned


_line_cleaner = lru_cache(maxsize=16)(_LineCleaner)


@lru_cache(maxsize=256)
def _price_json(price: tuple[tuple[str, float], ...]) -> str:
    return json.dumps(dict(price))


def _as_json(args: Mapping[str, object]) -> str:
    try:
        return json.dumps(dict(args), default=str, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        # Keys that are not text, a cycle, or nested too deeply for JSON.
        return json.dumps({"unreadable": True})


def _writable(usage: Usage) -> Usage:
    counts = (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens)
    for count in counts:
        if type(count) is not int or not 0 <= count <= MOST:
            break
    else:
        return usage
    written = tuple(map(whole, counts))
    return Usage(
        input_tokens=written[0],
        cached_tokens=written[1],
        output_tokens=written[2],
        reasoning_tokens=written[3],
    )
