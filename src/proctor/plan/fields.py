"""What a coding plan may say, as pydantic models.

They check and describe; nobody computes with them. The plan itself stays plain data, in which a key
that was left out and one that was set to `null` are still two things.

Knows nothing of items, files or how one setting bears on another.
"""

import math
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

_BIGGEST = 2**63 - 1


class _OneOrMany:
    """A list is a grid: each of its values makes items of its own."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        many = handler(schema)
        return {"anyOf": [many["items"], many]}


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _said(value: str) -> str:
    if not value.strip():
        raise ValueError("should not be empty")
    return value


def is_finite(value: Any) -> Any:
    """Infinity and not-a-number have no JSON, so no database and no provider would take them."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("holds a number that is not finite")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        is_finite(inner)
    return value


def _is_regex(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is not a valid regular expression: {error}") from error
    return value


Text = Annotated[str, AfterValidator(_said), Field(json_schema_extra={"pattern": r"\S"})]


Texts = Annotated[list[Text], Field(min_length=1), BeforeValidator(_as_list), _OneOrMany()]


Seed = Annotated[int, Field(ge=-_BIGGEST, le=_BIGGEST)]


Usd = Annotated[float, Field(gt=0, allow_inf_nan=False)]


Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


Anything = Annotated[Any, AfterValidator(is_finite)]


class PlanModel(BaseModel):
    """Strict: `"2"` is no number and `1` is not true. A name nobody knows is a mistake."""

    # Deferred: a plan is checked by its outermost model alone, which describes the others in itself. A
    # checker for each of them as well took 5 ms of every start.
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, defer_build=True)


class Expectation(PlanModel):
    """What an answer is checked for. All that is given must hold."""

    contains: Texts | None = Field(None, description="Text, or several, each of which the answer holds.")
    equals: str | None = Field(None, description="The whole answer, spaces around it aside.")
    regex: Annotated[str, AfterValidator(_is_regex)] | None = Field(
        None, description="A regular expression that is found somewhere in the answer."
    )
    json_schema: dict[str, Anything] | None = Field(
        None, alias="json_schema", description="A JSON schema; the answer is JSON that keeps to it."
    )


class ModelPrice(PlanModel):
    """US dollars per million tokens."""

    input: Price
    output: Price
    cached: Price | None = None


def names_of(model: type[BaseModel]) -> list[str]:
    """The names a mapping of this kind may have, as they are written."""
    return [field.alias or name for name, field in model.model_fields.items()]
