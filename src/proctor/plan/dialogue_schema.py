"""What a simulation's config may say, as pydantic models, and how its parts are spoken of.

Knows nothing of roles, items or files.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from proctor.plan.source import Path
from proctor.plan.validate import Part

_STRICT = ConfigDict(extra="forbid", strict=True)
Count = Annotated[int, Field(ge=1)]
Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}(-[A-Za-z0-9]+)*$")]
Temperature = Annotated[float, Field(ge=0, le=5)]


def as_list(value: Any) -> Any:
    """One thing stands for a list of one; text with commas for a list of names."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value if isinstance(value, list) else [value]


def as_entry(name: str) -> Any:
    """A name alone stands for a mapping that says only that."""
    return BeforeValidator(lambda value: {name: value} if isinstance(value, str) else value)


_AS_LIST = BeforeValidator(as_list)
Names = Annotated[list[str], Field(min_length=1), _AS_LIST]


class RoleEntry(BaseModel):
    """One client or therapist, when there is more to say than its role's name."""

    model_config = _STRICT
    role: Annotated[str, Field(min_length=1)]
    label: Annotated[str, Field(min_length=1)] | None = None
    profile: str | int | list[str | int] | None = None
    profiles_file: str | None = None
    options: dict[str, Any] | None = None
    model: str | None = None
    temperature: Temperature | None = None


class Aspect(BaseModel):
    """One question below a dimension."""

    model_config = _STRICT
    name: str
    description: str
    paradigm: str | None = None
    range: list[int] | None = None
    labels: list[str] | None = None


class EvaluatorEntry(BaseModel):
    """One question a judge answers about each session."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)
    name: Annotated[str, Field(min_length=1)]
    instructions: Annotated[str, Field(min_length=1)] | None = None
    description: str | None = None
    scale: Literal["binary", "scalar", "categorical", "extraction"] | None = None
    level: Literal["session", "turn"] | None = None
    target: Literal["client", "therapist"] | None = None
    range: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None
    labels: Annotated[list[str], Field(min_length=2)] | None = None
    sees_profile: bool | None = None
    model: str | None = None
    passes_at: float | None = None
    aspects: list[Aspect] | None = None
    expect: dict[str, Any] | None = None
    paradigm: str | None = None


Entries = Annotated[
    list[Annotated[RoleEntry, as_entry("role")]], Field(min_length=1), BeforeValidator(as_list)
]


class Price(BaseModel):
    """USD per million tokens."""

    model_config = _STRICT
    input: Annotated[float, Field(ge=0)]
    output: Annotated[float, Field(ge=0)]
    cached: Annotated[float, Field(ge=0)] | None = None
    cache_write: Annotated[float, Field(ge=0)] | None = None


class SimulationFile(BaseModel):
    """A whole config."""

    model_config = _STRICT
    clients: Entries = [RoleEntry(role="patientPsi")]
    therapists: Entries = [RoleEntry(role="CBT")]
    num_runs: Count = 5
    max_turns: Count = 20
    max_workers: Count = 4
    output_dir: str | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    model_type: str | None = None
    model_name: Names | None = None
    temperature: Annotated[list[Temperature], Field(min_length=1), _AS_LIST] | None = None
    max_tokens: Count | None = None
    client_model: Names | None = None
    therapist_model: Names | None = None
    judge_model: str | None = None
    lang: Language = "en"
    language: Language | None = None
    opens: Literal["client", "therapist"] | None = None
    under_test: Literal["client", "therapist"] = "therapist"
    reminder_turns: Annotated[int, Field(ge=0)] = 2
    loop_turns: Annotated[int, Field(ge=0)] = 3
    timeout_sec: Annotated[float, Field(gt=0)] | None = None
    retries: Annotated[int, Field(ge=0)] = 0
    budget_limit: Annotated[float, Field(ge=0)] | None = None
    cost_per_run_limit: Annotated[float, Field(ge=0)] | None = None
    prices: dict[str, Price] | None = None
    evaluators: list[Annotated[EvaluatorEntry, as_entry("name")]] | None = None
    record: str | None = None
    replay: str | None = None
    notify: str | None = None
    tags: list[str] | None = None


DEFAULTS = SimulationFile().model_dump(exclude={"clients": True, "therapists": True}) | {
    "clients": ["patientPsi"],
    "therapists": ["CBT"],
}
CONFIG_KEYS = tuple(SimulationFile.model_fields)


def vocabulary(path: Path) -> Part | None:
    """The part of a config at `path`; None where no mapping with settings of its own is."""
    match path:
        case ():
            return Part("the config", "A config", CONFIG_KEYS)
        case (("clients" | "therapists") as side, int(index)):
            return Part(f"{side[:-1]} {index + 1}", "A role", tuple(RoleEntry.model_fields))
        case ("evaluators", int(index)):
            return Part(f"evaluator {index + 1}", "An evaluator", tuple(EvaluatorEntry.model_fields))
        case ("prices", str(model)):
            return Part(f"the price of `{model}`", "A price", tuple(Price.model_fields))
    return None
