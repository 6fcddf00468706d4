"""What a `role.yaml` may say, as pydantic models, and how its parts are spoken of.

Knows nothing of folders or of what the templates say.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from proctor.dialogue.steps import KINDS
from proctor.plan.source import Path
from proctor.plan.validate import Part

_STRICT = ConfigDict(extra="forbid", strict=True)
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Expression = str | int | float | bool


class Asked(BaseModel):
    """What is put to the model."""

    model_config = _STRICT
    system: str | None = None
    history: bool | Annotated[int, Field(ge=1)] | None = None
    prompt: str | None = None


class Step(BaseModel):
    """One thing a role does on its way to its next words."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)
    ask: str | Asked | None = None
    into: Name | None = None
    read: dict[str, str | list[str]] | None = None
    otherwise: dict[str, Any] | None = None
    parameters: dict[str, Any] | None = None
    set: dict[str, Any] | None = None
    draw: Name | None = None
    from_: Any = Field(default=None, alias="from")
    rules: str | None = None
    say: str | None = None
    for_: Name | None = Field(default=None, alias="for")
    in_: Any = Field(default=None, alias="in")
    repeat: Annotated[int, Field(ge=1, le=20)] | None = None
    until: Expression | None = None
    do: "list[Step] | None" = None
    end: Name | None = None
    when: Expression | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "Step":
        given = self.model_dump(by_alias=True, exclude_none=True)
        kinds = [kind for kind in KINDS if kind in given]
        if len(kinds) != 1:
            raise ValueError(f"should have exactly one of {', '.join(KINDS)}")
        needed = {"draw": ("from",), "for": ("in", "do"), "repeat": ("do",)}.get(kinds[0], ())
        for name in needed:
            if name not in given:
                raise ValueError(f"has `{kinds[0]}` but no `{name}`")
        return self


class RoleFile(BaseModel):
    """A whole `role.yaml`."""

    model_config = _STRICT
    description: Annotated[str, Field(min_length=1)]
    sources: list[str] = []
    plays: Annotated[list[Literal["client", "therapist"]], Field(min_length=1)]
    field: str | None = None
    title: str | None = None
    model: str | None = None
    own_models: str | None = None
    parameters: dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    choices: dict[str, list[Any]] | None = None
    state: dict[Name, Any] | None = None
    metrics: list[str] | None = None
    opening: str | None = None
    opens: bool | None = None
    default_profile: str | None = None
    end_words: list[str] | None = None
    stand_in: bool | None = None
    steps: Annotated[list[Step], Field(min_length=1)]


ROLE_KEYS = tuple(RoleFile.model_fields)
STEP_KEYS = tuple(field.alias or name for name, field in Step.model_fields.items())


def vocabulary(path: Path) -> Part | None:
    """The part of a role at `path`; None where no mapping with settings of its own is."""
    if not path:
        return Part("the role", "A role", ROLE_KEYS)
    if len(path) >= 2 and path[-2] in ("steps", "do") and isinstance(path[-1], int):
        return Part(f"step {path[-1] + 1}", "A step", STEP_KEYS)
    if path[-1] == "ask":
        return Part("`ask`", "`ask`", tuple(Asked.model_fields))
    return None
