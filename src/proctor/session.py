"""What happened in one attempt, as plain records.

Whoever does the work calls `record` with these as they happen; nobody changes them afterwards.
A reader of the store needs none of the agents and runners that made them.

Knows nothing of databases, agents or clocks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from proctor.score import Score

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one or more model calls."""

    input_tokens: int = 0
    """All of the prompt, with what came from the provider's cache."""
    cached_tokens: int = 0
    """The part of `input_tokens` that was read from the cache."""
    output_tokens: int = 0
    """All that was generated, with the reasoning."""
    reasoning_tokens: int = 0
    """The part of `output_tokens` nobody sees."""
    cache_write_tokens: int = 0
    """The part of `input_tokens` that was written to the cache, which some providers charge extra."""

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Something said: by the user, the agent, a tool, an actor."""

    role: Role
    content: str
    name: str = ""
    """Who, where the role does not say: an actor, a client. Empty otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """Something the agent did, with its outcome."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    success: bool | None = None
    """None: nobody said how it ended."""
    result: str = ""
    duration_ms: float | None = None
    """None: not measured."""
    call_id: str = ""
    """What its source calls it: a span's id. Empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One request to a model and what it cost."""

    model: str
    usage: Usage = Usage()
    provider: str = ""
    cost_usd: float | None = None
    """None: the price is not known, which is not the same as free."""
    price_source: str = ""
    """Where the price came from: `plan`, `genai-prices 0.2.1`, `free`, `agent`. Empty: unknown."""
    price: Mapping[str, float] = field(default_factory=dict)
    """USD per million tokens that was used: input, cached, output."""
    latency_ms: float | None = None
    waiting_ms: float = 0.0
    """Time spent in our queue or held back by a rate limit; not part of the latency."""
    status: str = "ok"
    """`ok`, or the HTTP status or condition that ended it: `429`, `cut_off`, `cancelled`."""
    error: str = ""
    request: str = ""
    """The body that was sent, as JSON. Empty when the messages say it all."""
    response: str = ""
    call_id: str = ""
    """What its source calls it: a span's id. Empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """The agent stopped to ask a human: a permission or a question nobody was there to answer."""

    kind: Literal["permission", "question"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number or a label measured at one step."""

    name: str
    value: float | str | None
    """None: it could not be read. Missing is not 0."""
    step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a reader of this session should know: a write outside its tree, a warning."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """One step of a session: an agent's run, a turn, a trace. Recorded when the step ends."""

    commit_sha: str = ""
    changed_files: int = 0
    lines_added: int = 0
    lines_removed: int = 0
    test_result: Literal["pass", "fail", ""] = ""
    """Empty: there was no check."""
    test_exit_code: int | None = None
    test_duration_ms: float | None = None
    test_output: str = ""
    model: str = ""
    exit_code: int | None = None
    output: str = ""
    """What the agent printed, head and tail; for a turn, its outcome."""
    trace_id: str = ""
    """What its source calls this step: a trace's id. Empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Where the attempt works; recorded as soon as it is known."""

    name: str = ""
    branch: str = ""
    worktree: str = ""
    repo: str = ""
    base_branch: str = ""
    base_sha: str = ""
    agent_version: str = ""
    thread: str = ""
    """What the agent itself calls this conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A try to bring the work onto the base branch."""

    base_branch: str
    result: Literal["success", "conflict", "error"]
    mode: str = "squash-rebase-merge"
    conflict_files: tuple[str, ...] = ()
    message: str = ""
    before_sha: str = ""
    after_sha: str = ""
    error: str = ""


Event = Message | ToolCall | ModelCall | Intervention | Metric | Note | Iteration | Workspace | Merge


Record = Callable[[Event], None]
"""Handed to whoever does the work; call it with each event as it happens."""


# A session that another tool recorded, as it comes in.


DEFAULT_LOG_GROUP = "/proctor/sessions"
"""Where sessions belong that come in without saying so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedEvent:
    """One event, and when it was."""

    event: Event
    at: datetime | None = None
    """None: its source did not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One trace or turn, oldest event first."""

    trace_id: str = ""
    happenings: Sequence[TimedEvent] = ()
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One session of another tool. Importing it again replaces what was imported before."""

    external_id: str
    """What its source calls it; unique together with source, service and log group."""
    source: str
    """The kind of record it came from: `otlp`, `inspect`, `swe-agent`, …"""
    service: str = ""
    log_group: str = ""
    name: str = ""
    """For people: a title, a task's name."""
    agent: str = ""
    agent_version: str = ""
    model: str = ""
    is_stand_in: bool = False
    """A rehearsal: its agent or model only pretended to be one."""
    status: str = "success"
    """`success`, `fail`, `timeout` or `error`, as far as its source says."""
    end_reason: str = "completed"
    error: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    steps: Sequence[Step] = ()
    tools: Sequence[Mapping[str, Any]] = ()
    """What the agent could have used: `name`, `description`, `parameters`."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """What else its source said that a filter may ask for."""
    scores: Sequence[Score] = ()
    """Judgements that came with it."""
    notes: Sequence[str] = ()
    """What a reader should know: what was left out, what could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A record, or a part of one, that could not be read. It is named and skipped; the rest is kept."""

    path: str
    problem: str
    line: int = 0
    """Counted from 1; 0: all of it."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}" if self.line else f"{self.path}: {self.problem}"
