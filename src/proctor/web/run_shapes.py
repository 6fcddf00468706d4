"""The answers about a run and its items, member by member.

Knows nothing of where the answers come from.
"""

from typing import Any

from pydantic import Field

from proctor.web.shapes import Shape


class PoolShape(Shape):
    """What is asked of one provider and model."""

    name: str
    limit: int = Field(description="Calls at once; what was found out so far.")
    in_use: int
    waiting: int
    refused: int = Field(description="How often the provider said that it was too much.")
    waited_seconds: float
    held_seconds: float = Field(description="Until calls are let through again; 0 when they are.")


class RunningShape(Shape):
    """An item under way."""

    item_id: str
    session_id: str
    repo: str
    prompt: str
    agent: str
    model: str
    elapsed_seconds: float
    tokens: int


class Standing(Shape):
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


class Maker(Shape):
    """An agent and a model that work together, and how many items they have."""

    agent: str
    model: str
    items: int


class StandInShape(Shape):
    """An agent or model that only rehearsed."""

    agent: str
    model: str
    sessions: int


class RunAnswer(Standing):
    """A run."""

    job: str
    created_at: str
    plan_path: str
    concurrency: int
    seed: int | None
    proctor_version: str
    makers: list[Maker]
    stand_ins: list[StandInShape]
    factors: list[str] = Field(description="What its items can be grouped by.")
    has_analysis: bool = Field(description="Whether this kind of job has an analysis of its own.")


class PlanAnswer(Shape):
    """The plan a run was made from."""

    path: str
    text: str


class ItemShape(Shape):
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


class ItemsAnswer(Shape):
    """A window of a run's items."""

    items: list[ItemShape]
    offset: int
    total: int = Field(description="How many items there are in these statuses that hold the text.")
    counts: dict[str, int] = Field(description="The items that hold the text, by status.")


class SteeringAnswer(Shape):
    """What became of a run that was asked to stop or to go on."""

    run_id: str
    status: str
