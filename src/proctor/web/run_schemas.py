"""Response schemas of runs, items and sessions. Their descriptions are part of the API manual."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from proctor.api.sessions import SessionItem, TranscriptStep
from proctor.document import CaptionedChart
from proctor.json_values import JsonObject

RunId = Annotated[str, Path(description="Run ID or an unambiguous prefix.", max_length=200)]
SessionId = Annotated[str, Path(description="Session ID or an unambiguous prefix.", max_length=300)]

MOST_WAIT_SECONDS = 30.0
WaitSeconds = Annotated[
    float,
    Query(ge=0, le=MOST_WAIT_SECONDS, description="Seconds to wait for current results of a large run."),
]


class RowModel(BaseModel):
    """A schema with camel-case members, as in the tables."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


class FigureShape(RowModel):
    """A rate, mean or ratio over tasks, with its 95% confidence interval."""

    value: float | None
    sem: float | None = Field(description="Standard error of the mean; null: not estimable.")
    low: float | None
    high: float | None = Field(description="Null with a lower limit: no upper limit.")
    scope: str = Field(description="What the interval is about: tasks like these, or these tasks.")
    tasks: int
    runs: int
    method: str
    note: str


class LevelShape(RowModel):
    """The finished items of one level of a factor."""

    name: str = Field(description="Empty: the items without the factor.")
    counts: dict[str, int]
    success: FigureShape = Field(description="Infrastructure errors excluded.")
    success_with_errors: FigureShape = Field(description="Infrastructure errors counted as failures.")
    cost: FigureShape
    typical_cost: FigureShape
    seconds: FigureShape
    typical_seconds: FigureShape
    cost_per_success: FigureShape


class RankShape(RowModel):
    """A rank by success. All rank intervals of a factor hold together at 95%."""

    name: str
    value: float | None
    rank: int
    rank_low: int
    rank_high: int
    tasks: int
    runs: int
    note: str


class ChartsAnswer(RowModel):
    """The charts of a run or session."""

    by: str = ""
    note: str = Field(default="", description="Why a chart is missing, or what limits the intervals.")
    charts: Sequence[CaptionedChart]
    levels: list[LevelShape] = Field(default=[], description="Of the factor, best success rate first.")
    ranks: list[RankShape] = Field(default=[], description="Of the factor's levels, by success.")
    is_current: bool = Field(default=True, description="False: being computed; ask again.")


class SteeringAnswer(RowModel):
    """Status of a run after a stop, resume or retry."""

    run_id: str
    status: str


class AttemptShape(RowModel):
    """One attempt at the item."""

    id: str
    attempt: int
    status: str
    end_reason: str
    started_at: str | None
    work_seconds: float | None
    cost_usd: float | None


class ScoreShape(RowModel):
    """One score."""

    session_id: str = Field(description="Session that recorded the score.")
    scored_session_id: str = Field(description="Evaluated session; empty: the same.")
    judged_session_id: str = Field(description="Deprecated: `scoredSessionId`.")
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
    """One merge attempt."""

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
    """A numeric or categorical metric of one step."""

    name: str
    step: int
    value: float | None
    label: str | None


class SessionAnswer(RowModel):
    """A session without its transcript."""

    id: str
    run_id: str | None
    item: SessionItem | None
    attempt: int
    job: str
    name: str
    agent: str
    agent_version: str
    model: str
    is_mock: bool
    stand_in: bool = Field(description="Deprecated: `isMock`.")
    status: str
    end_reason: str
    error: str
    repo: str
    branch: str
    base_branch: str
    base_sha: str
    worktree: str
    sandbox: str
    thread: str
    source: str
    service: str
    started_at: str | None
    finished_at: str | None
    work_seconds: float | None
    checkout_seconds: float | None = Field(description="Parts of the work time; null: no such part.")
    setup_seconds: float | None
    agent_seconds: float | None
    check_seconds: float | None
    answered_model: str = Field(description="The model that answered, if not the requested one.")
    baseline: str = Field(description="Result of the check before the agent: `pass`, `fail`, or empty.")
    continues: str = Field(description="The session that it continues; empty: none.")
    continued_by: str = Field(description="The session that continues it; empty: none.")
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
    steps: list[TranscriptStep]
    scores: list[ScoreShape]
    merges: list[MergeShape]
    metrics: list[MetricShape] = Field(description="At most 2,000.")
    last_position: int
    event_count: int


class TurnsAnswer(RowModel):
    """Turns of a scenario."""

    turns: list[JsonObject]
    total: int
