"""The answers about a session, its transcript and its branch, member by member.

Knows nothing of where the answers come from.
"""

from typing import Any

from pydantic import Field

from proctor.web.shapes import Shape, TextShape


class AttemptShape(Shape):
    """One attempt at the same item."""

    id: str
    attempt: int
    status: str
    end_reason: str
    started_at: str | None
    work_seconds: float | None
    cost_usd: float | None


class StepShape(Shape):
    """One step of a session: an agent's run, a turn, a trace."""

    step: int
    start_time: str | None
    end_time: str | None
    commit_sha: str
    changed_files: int
    lines_added: int
    lines_removed: int
    test_result: str
    test_exit_code: int | None
    test_duration_ms: float | None
    test_output: TextShape
    model: str
    exit_code: int | None
    total_tokens: int
    cost_usd: float | None
    output: TextShape
    trace_id: str


class ScoreShape(Shape):
    """One judgement."""

    session_id: str = Field(description="The session it was recorded with.")
    judged_session_id: str = Field(description="The session it is about; empty: that same one.")
    evaluator: str
    level: str
    target: str
    dimension: str
    value: float | None
    label: str
    explanation: str
    error: str
    cost_usd: float | None
    timestamp: str | None


class MergeShape(Shape):
    """One try to bring the work onto the base branch."""

    started_at: str | None
    base_branch: str
    mode: str
    result: str
    conflict_files: list[str]
    squash_message: str
    before_sha: str
    after_sha: str
    error: str


class MetricShape(Shape):
    """A number or a label measured at one step."""

    name: str
    step: int
    value: float | None
    label: str | None


class ItemOfSession(Shape):
    """What a session was asked to do."""

    id: str
    prompt: TextShape
    repeat: int
    status: str
    factors: dict[str, Any]
    details: dict[str, Any] = Field(description="What else was asked; empty when it is long.")


class SessionAnswer(Shape):
    """A session: everything but its transcript."""

    id: str
    run_id: str | None
    item: ItemOfSession | None
    attempt: int
    job: str
    name: str
    agent: str
    agent_version: str
    model: str
    stand_in: bool
    status: str
    end_reason: str
    error: str
    repo: str
    branch: str
    base_branch: str
    base_sha: str
    worktree: str
    thread: str
    source: str
    service: str
    started_at: str | None
    finished_at: str | None
    work_seconds: float | None
    waiting_seconds: float | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    total_tokens: int
    cost_usd: float | None
    unpriced_calls: int
    model_calls: int
    tool_calls: int
    interventions: int
    notes: list[str]
    attempts: list[AttemptShape]
    steps: list[StepShape]
    scores: list[ScoreShape]
    merges: list[MergeShape]
    metrics: list[MetricShape] = Field(description="At most two thousand.")
    last_position: int
    event_count: int


class EventShape(Shape):
    """Something that was said or done. Which members it has depends on `kind`."""

    kind: str = Field(description="`message`, `tool_call` or `model_call`.")
    position: int
    step: int
    timestamp: str | None
    role: str | None = None
    name: str | None = None
    content: TextShape | None = None
    tool_name: str | None = None
    success: bool | None = None
    duration_ms: float | None = None
    args_json: TextShape | None = None
    result: TextShape | None = None
    provider: str | None = None
    model: str | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: float | None = None
    price_source: str | None = None
    latency_ms: float | None = None
    waiting_ms: float | None = None
    status: str | None = None
    error: str | None = None
    request: TextShape | None = None
    response: TextShape | None = None


class EventsAnswer(Shape):
    """The next events of a session."""

    events: list[EventShape]
    last_position: int = Field(description="Of the last of these; ask for what comes after it next.")
    has_more: bool


class HitShape(Shape):
    """A place where a text occurs: the first in one text of an event."""

    kind: str = Field(description="`message` or `tool_call`.")
    position: int
    name: str = Field(description="Who said it, or the tool.")
    part: str = Field(description="Which text of the event: `content`, `argsJson` or `result`.")
    offset: int = Field(description="In characters from the beginning of that text.")
    before: str
    match: str
    behind: str


class SearchAnswer(Shape):
    """Where a text occurs in a session."""

    hits: list[HitShape]
    last_position: int = Field(description="As far as it was looked; ask for what comes after it next.")
    has_more: bool


class DiffAnswer(Shape):
    """What a session changed, and where that is."""

    state: str = Field(
        description="`none` (it has no branch), `published`, `merged`, `gone` (discarded) or `unavailable`."
    )
    branch: str
    base_branch: str
    diff: str
    is_cut: bool
    files: int
    problem: str = ""


class BranchAnswer(Shape):
    """What became of a session's branch."""

    session_id: str
    result: str
    message: str = ""


class TurnsAnswer(Shape):
    """Turns of a scenario, as they were played."""

    turns: list[dict[str, Any]]
    total: int
