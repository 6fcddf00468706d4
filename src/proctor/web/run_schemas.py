"""The answers about a session, its transcript and its branch, member by member.

Knows nothing of where the answers come from.
"""

from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

# What the answers about runs and sessions have in common, member by member, as the interface documents it.


RunId = Annotated[str, Path(description="The run's id, or an unambiguous beginning of it.", max_length=200)]
SessionId = Annotated[
    str, Path(description="The session's id, or an unambiguous beginning of it.", max_length=300)
]


class RowModel(BaseModel):
    """An answer whose members are spelled as in the tables."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


class ChartShape(RowModel):
    """A plot."""

    caption: str
    svg: str


class ChartsAnswer(RowModel):
    """The plots of a run, or of a session."""

    by: str = ""
    remark: str = Field(default="", description="Why there is no plot where one might be expected.")
    charts: list[ChartShape]


class TextShape(RowModel):
    """A text, or the beginning of a long one."""

    text: str
    size: int = Field(description="Of the whole: characters; bytes where only the beginning was read.")
    is_cut: bool = Field(description="Whether there is more behind it.")


class TextAnswer(TextShape):
    """A piece of a long text."""

    offset: int


# The answers about a run and its items, member by member.


class PoolShape(RowModel):
    """What is asked of one provider and model."""

    name: str
    limit: int = Field(description="Calls at once; what was found out so far.")
    in_use: int
    waiting: int
    refused: int = Field(description="How often the provider said that it was too much.")
    waited_seconds: float
    held_seconds: float = Field(description="Until calls are let through again; 0 when they are.")


class RunningShape(RowModel):
    """An item under way."""

    item_id: str
    session_id: str
    repo: str
    prompt: str
    agent: str
    model: str
    elapsed_seconds: float
    tokens: int


class RunState(RowModel):
    """How far a run is: what changes while it is carried out."""

    run_id: str
    status: str
    reason: str
    finished_at: str | None
    is_stopping: bool = Field(description="Somebody has asked it to stop, and it has not yet.")
    counts: dict[str, int] = Field(description="Items by status; every status is there.")
    item_count: int
    finished_count: int
    tokens: int
    cost_usd: float | None = Field(description="Null: no price is known, which is not the same as free.")
    budget_usd: float | None
    spent_usd: float = Field(description="What was charged to the budget.")
    reserved_usd: float = Field(description="What is set aside for attempts under way.")
    elapsed_seconds: float
    items_per_minute: float | None
    eta_seconds: float | None
    pools: list[PoolShape]
    running: list[RunningShape] = Field(description="Those that take longest, at most ten.")


class AgentModelShape(RowModel):
    """An agent and a model that work together, and how many items they have."""

    agent: str
    model: str
    items: int


class StandInShape(RowModel):
    """An agent or model that only rehearsed."""

    agent: str
    model: str
    sessions: int


class RunAnswer(RunState):
    """A run."""

    job: str
    created_at: str
    plan_path: str
    concurrency: int
    seed: int | None
    proctor_version: str
    makers: list[AgentModelShape]
    stand_ins: list[StandInShape]
    factors: list[str] = Field(description="What its items can be grouped by.")
    has_analysis: bool = Field(description="Whether this kind of job has an analysis of its own.")


class PlanAnswer(RowModel):
    """The plan a run was made from."""

    path: str
    text: str


class ItemShape(RowModel):
    """An item, with the beginning of its prompt and of its error."""

    id: str
    position: int
    repeat: int
    repo: str
    prompt: str
    agent: str
    model: str
    factors: dict[str, Any]
    status: str
    reason: str
    error: str
    started_at: str | None
    finished_at: str | None
    seconds: float | None = Field(description="From its start to its end.")
    session_id: str | None = Field(description="Of its last attempt.")
    iter_sha: str | None
    tokens_total: int
    tool_calls: int
    cost_usd: float | None


class ItemsAnswer(RowModel):
    """A window of a run's items."""

    items: list[ItemShape]
    offset: int
    total: int = Field(description="How many items there are in these statuses that hold the text.")
    counts: dict[str, int] = Field(description="The items that hold the text, by status.")


class SteeringAnswer(RowModel):
    """What became of a run that was asked to stop or to go on."""

    run_id: str
    status: str


class AttemptShape(RowModel):
    """One attempt at the same item."""

    id: str
    attempt: int
    status: str
    end_reason: str
    started_at: str | None
    work_seconds: float | None
    cost_usd: float | None


class StepShape(RowModel):
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


class ScoreShape(RowModel):
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


class MergeShape(RowModel):
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


class MetricShape(RowModel):
    """A number or a label measured at one step."""

    name: str
    step: int
    value: float | None
    label: str | None


class ItemOfSession(RowModel):
    """What a session was asked to do."""

    id: str
    prompt: TextShape
    repeat: int
    status: str
    factors: dict[str, Any]
    details: dict[str, Any] = Field(description="What else was asked; empty when it is long.")


class SessionAnswer(RowModel):
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


class EventShape(RowModel):
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


class EventsAnswer(RowModel):
    """The next events of a session."""

    events: list[EventShape]
    last_position: int = Field(description="Of the last of these; ask for what comes after it next.")
    has_more: bool


class HitShape(RowModel):
    """A place where a text occurs: the first in one text of an event."""

    kind: str = Field(description="`message` or `tool_call`.")
    position: int
    name: str = Field(description="Who said it, or the tool.")
    part: str = Field(description="Which text of the event: `content`, `argsJson` or `result`.")
    offset: int = Field(description="In characters from the beginning of that text.")
    before: str
    match: str
    behind: str


class SearchAnswer(RowModel):
    """Where a text occurs in a session."""

    hits: list[HitShape]
    last_position: int = Field(description="As far as it was looked; ask for what comes after it next.")
    has_more: bool


class DiffAnswer(RowModel):
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


class BranchAnswer(RowModel):
    """What became of a session's branch."""

    session_id: str
    result: str
    message: str = ""


class TurnsAnswer(RowModel):
    """Turns of a scenario, as they were played."""

    turns: list[dict[str, Any]]
    total: int
