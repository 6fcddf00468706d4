"""Schema of an experiment's config, and the names of its sections in messages."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from proctor.plan.criteria import as_entry
from proctor.plan.validate import (
    Anything,
    Flag,
    ModelPrice,
    OutagePatience,
    PlanResources,
    PlanSandbox,
    Seconds,
    Sections,
    Seed,
    StopWhen,
    Text,
    Usd,
    sections_of,
)


class _ExperimentModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class VariationEntry(_ExperimentModel):
    """One dimension of the variations."""

    type: Literal["actor_model", "scenario_parameter", "actor_parameter"]
    actor: Text | None = None
    parameter: Text | None = None
    values: Annotated[list[Anything], Field(min_length=1)]


class Shorthand(_ExperimentModel):
    """`actor_models: {port: [a, b]}`, and parameters likewise."""

    actor_models: dict[str, Annotated[list[Text], Field(min_length=1)]] | None = None
    scenario_parameters: dict[str, Annotated[list[Anything], Field(min_length=1)]] | None = None


class JudgeEntry(_ExperimentModel):
    """An evaluator that scores each run as it ends."""

    name: Text
    model: Text | None = None
    passes_at: float | None = None


class ExperimentConfig(_ExperimentModel):
    """A whole config."""

    experiment_name: Text
    description: str | None = None
    base_scenario: Text
    output_dir: Text | None = None
    runs_per_variation: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_parallel: Annotated[
        Annotated[int, Field(ge=1, le=10_000)] | None,
        Flag(int, minimum=1, metavar="N", help="Maximum runs in parallel; overrides the config."),
    ] = None
    timeout_per_run: Seconds | None = None
    budget_limit: Annotated[
        Usd | None,
        Flag(float, ("--budget",), 0, metavar="USD", help="Budget of all runs in USD; overrides the config."),
    ] = None
    cost_per_run_limit: Usd | None = None
    on_run_limit: Literal["halt", "fail"] | None = None
    variations: Annotated[Any, Sections(Shorthand | list[VariationEntry])] = None
    combine: Literal["product", "zip"] | None = None
    exclude: list[dict[str, Anything]] | None = None
    sample: Annotated[int, Field(ge=1)] | None = None
    seed: Seed | None = None
    retries: Annotated[int, Field(ge=0, le=1000)] | None = None
    save_individual_runs: bool | None = None
    aggregate_metrics: bool | None = None
    prices: dict[str, ModelPrice] | None = None
    notify: Text | None = None
    resume_from: Text | None = None
    human: Annotated[
        Literal["terminal", "web"] | None,
        Flag(
            Literal["terminal", "web"],
            help="Where people who play an actor answer: at this terminal, or in another process.",
        ),
    ] = None
    evaluators: list[Annotated[JudgeEntry, as_entry("name")]] | None = None
    judge_model: Text | None = None
    branch: dict[str, Anything] | None = None
    stop_when: StopWhen | None = Field(default=None, description="Stop early, once something is decided.")
    sandbox: PlanSandbox = None
    outage_patience: OutagePatience = None
    resources: PlanResources = None


vocabulary = sections_of(ExperimentConfig, "config")
