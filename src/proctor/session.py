"""Records of one attempt or imported session.

Agents and runners call `record` with these as they happen; they are immutable. Reading them from the store
needs none of the agents and runners that made them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from proctor.frozen import fast_init

if TYPE_CHECKING:
    from proctor.score import Score

Role = Literal["system", "user", "assistant", "tool"]


CHARACTERS_PER_TOKEN = 4
"""An approximation, for estimates; only providers count exactly."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one or more model calls."""

    input_tokens: int = 0
    """The whole prompt, with its cached part."""
    cached_tokens: int = 0
    """The part of `input_tokens` that was read from the cache."""
    output_tokens: int = 0
    """All generated tokens, with reasoning."""
    reasoning_tokens: int = 0
    """The hidden part of `output_tokens`."""
    cache_write_tokens: int = 0
    """The part of `input_tokens` that was written to the cache, which some providers charge extra."""
    long_cache_write_tokens: int = 0
    """The part of `cache_write_tokens` that is kept for an hour, for which Anthropic charges more."""
    web_searches: int = 0
    """Searches that the provider made, each of which has a fee."""

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
            long_cache_write_tokens=self.long_cache_write_tokens + other.long_cache_write_tokens,
            web_searches=self.web_searches + other.web_searches,
        )


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of the user, the agent, a tool or an actor."""

    role: Role
    content: str
    name: str = ""
    """The speaker, where the role does not determine it: an actor, a client."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A tool call of the agent, with its outcome."""

    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    success: bool | None = None
    """None: unknown."""
    result: str = ""
    duration_ms: float | None = None
    """None: not measured."""
    call_id: str = ""
    """The source's id: that of a span. Empty: none."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """One model call and its cost."""

    model: str
    usage: Usage = Usage()
    provider: str = ""
    cost_usd: float | None = None
    """None: the price is unknown, which is not the same as free."""
    price_source: str = ""
    """Source of the price: `plan`, `genai-prices 0.2.1`, `free`, `agent`. Empty: unknown."""
    price: Mapping[str, float] = field(default_factory=dict)
    """USD per million tokens: input, cached, output."""
    latency_ms: float | None = None
    waiting_ms: float = 0.0
    """Time queued or paused for a rate limit; not part of the latency."""
    status: str = "ok"
    """`ok`, or the HTTP status or condition that ended it: `429`, `cut_off`, `cancelled`."""
    error: str = ""
    request: str = ""
    """The request body as JSON. Empty when the messages contain it."""
    response: str = ""
    call_id: str = ""
    """The source's id: that of a span. Empty: none."""
    speaker: str = ""
    """The role that the model plays: an actor, the narrator. Empty: none."""
    purpose: str = ""
    served_model: str = ""
    """The model that answered, as the provider names it. Empty: it does not say."""
    fingerprint: str = ""
    """The provider's name of its configuration, `system_fingerprint`. Empty: it does not say."""
    request_id: str = ""
    """The provider's id of the request or its answer, by which its support finds it."""
    finish_reason: str = ""
    """Why the answer ended: `stop`, `length`, `content_filter`, `refusal`, … Empty: unknown."""
    parameters: str = ""
    """The parameters as sent, a JSON object without messages and tools. Empty: unknown, or none."""
    not_sent: tuple[str, ...] = ()
    """Parameters of the request that the provider does not support, so that they were not sent."""

    @property
    def provenance(self) -> dict[str, Any]:
        """Who answered and what it was sent, as JSON: the members that are known."""
        known = {name: value for name in PROVENANCE if (value := getattr(self, name))}
        return {**known, "not_sent": list(self.not_sent)} if self.not_sent else known


PROVENANCE = ("served_model", "fingerprint", "request_id", "finish_reason", "parameters")


def provenance_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a `ModelCall` from its `provenance`; what is not as it should be is left out."""
    known = {name: value for name in PROVENANCE if isinstance(value := plain.get(name), str)}
    names = plain.get("not_sent")
    return {**known, "not_sent": tuple(map(str, names)) if isinstance(names, list) else ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """The agent asked a human for a permission or an answer, and there was none to ask; or a human sent it a
    message while it worked."""

    kind: Literal["permission", "question", "message"]
    text: str


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number or a label measured at one step."""

    name: str
    value: float | str | None
    """None: it could not be read. Missing is not 0."""
    step: int = 0


InvalidKind = Literal[
    "defaulted_states",
    "invalid_decisions",
    "refusals",
    "filtered",
    "truncated",
    "unreadable_verdicts",
    "regenerated_answers",
]
"""What makes a session less valid as data although it has finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invalid:
    """One event that makes a session less valid as data."""

    kind: InvalidKind
    text: str = ""
    """A note for readers of the session; empty: none."""
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note for readers of the session: a write outside its tree, a warning."""

    text: str


@fast_init
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
    """Output of the agent, head and tail; for a turn, its outcome."""
    trace_id: str = ""
    """The source's id of this step: that of a trace. Empty: none."""


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
    """The agent's own id of this conversation."""
    sandbox: str = ""
    """How its programs are confined: `bubblewrap`, `landlock`, `container` or `none`."""
    baseline: Literal["pass", "fail", ""] = ""
    """Result of the check before the agent began; empty: it was not run."""
    setup_output: str = ""
    """What the set-up printed."""
    continues: str = ""
    """The session whose branch it goes on from, with the comments of a reviewer; empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """An attempt to merge the work into the base branch."""

    base_branch: str
    result: Literal["success", "conflict", "error"]
    mode: str = "squash-rebase-merge"
    conflict_files: tuple[str, ...] = ()
    message: str = ""
    before_sha: str = ""
    after_sha: str = ""
    error: str = ""


Event = (
    Message | ToolCall | ModelCall | Intervention | Invalid | Metric | Note | Iteration | Workspace | Merge
)
Record = Callable[[Event], None]
"""Passed to agents and runners; call it with each event as it happens."""
_INVALID_ENDS: Mapping[str, InvalidKind] = {
    "refusal": "refusals",
    "content_filter": "filtered",
    "length": "truncated",
}
"""Finish reasons of answers that make a session less valid."""


def invalidity(event: Event) -> tuple[InvalidKind, int] | None:
    """How an event makes its session less valid, and how often; None: it does not."""
    if isinstance(event, ModelCall):
        return (kind, 1) if (kind := _INVALID_ENDS.get(event.finish_reason)) else None
    return (event.kind, event.count) if isinstance(event, Invalid) else None


DEFAULT_LOG_GROUP = "/proctor/sessions"
"""Log group of sessions that are imported without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedEvent:
    """An event with its time."""

    event: Event
    at: datetime | None = None
    """None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One trace or turn, oldest event first."""

    trace_id: str = ""
    events: Sequence[TimedEvent] = ()
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The record of one session, ours or of another tool, as it is imported and exported.

    Importing it again replaces the earlier import.
    """

    external_id: str
    """The source's id; unique together with source, service and log group."""
    source: str
    """The import format: `otlp`, `inspect`, `swe-agent`, …"""
    service: str = ""
    log_group: str = ""
    name: str = ""
    """A title, for people."""
    agent: str = ""
    agent_version: str = ""
    model: str = ""
    is_mock: bool = False
    """Its agent or model was a mock."""
    status: str = "success"
    """`success`, `fail`, `timeout` or `error`, as far as the source says."""
    end_reason: str = "completed"
    error: str = ""
    task: str = ""
    """The task it worked on, as its source identifies it. Empty: unknown."""
    repeat: int | None = None
    """Which of several identical runs of the task it is, from 1. None: unknown."""
    factors: Mapping[str, str] = field(default_factory=dict)
    """Further levels that reports group by, such as the dataset."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    steps: Sequence[Step] = ()
    tools: Sequence[Mapping[str, object]] = ()
    """Tools available to the agent: `name`, `description`, `parameters`."""
    attributes: Mapping[str, object] = field(default_factory=dict)
    """Further attributes of the source, for filters."""
    scores: "Sequence[Score]" = ()
    """Scores that came with it."""
    notes: Sequence[str] = ()
    """Notes for readers: what was skipped or could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A record, or part of one, that could not be read. It is reported and skipped."""

    path: str
    problem: str
    line: int = 0
    """Counted from 1; 0: the whole record."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}" if self.line else f"{self.path}: {self.problem}"
