"""What a coding plan may say, as pydantic models.

They check and describe; nobody computes with them. The plan itself stays plain data, in which a key
that was left out and one that was set to `null` are still two things.

Knows nothing of items, files or how one setting bears on another.
"""

import math
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue, WithJsonSchema
from pydantic_core import CoreSchema

RUN_ID = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
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


def _is_run_id(value: str) -> str:
    if not re.fullmatch(RUN_ID, value):
        raise ValueError(
            "should be 1 to 128 letters, digits, dots, dashes or underscores, the first no dot or dash"
        )
    return value


def _is_variable(value: str) -> str:
    if not value or "=" in value:
        raise ValueError("has a name that no environment variable can have")
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
        raise ValueError(f"is no regular expression: {error}") from error
    return value


def _is_command(value: Any) -> Any:
    for command in value if is_grid_of_commands(value) else [value]:
        words = command if isinstance(command, list) else [command]
        if not words or not all(isinstance(word, str) for word in words) or not words[0].strip():
            raise ValueError("should be a command line, a list of words, or a list of such lists")
    return value


def _is_script(value: Any) -> Any:
    if not isinstance(value, (str, list, dict)) or not value:
        raise ValueError("should be a file's path, or the steps themselves")
    return is_finite(value)


def is_grid_of_commands(value: Any) -> bool:
    """A list of words is one command; as soon as it holds a list, it is several commands."""
    return isinstance(value, list) and any(isinstance(word, list) for word in value)


Text = Annotated[str, AfterValidator(_said), Field(json_schema_extra={"pattern": r"\S"})]
Texts = Annotated[list[Text], Field(min_length=1), BeforeValidator(_as_list), _OneOrMany()]
Seed = Annotated[int, Field(ge=-_BIGGEST, le=_BIGGEST)]
Usd = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_WORDS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
Command = Annotated[
    Any,
    AfterValidator(_is_command),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                _WORDS,
                {"type": "array", "items": {"anyOf": [_WORDS, {"type": "string"}]}},
            ]
        }
    ),
]
Script = Annotated[
    Any,
    AfterValidator(_is_script),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "object"}]}),
]
Anything = Annotated[Any, AfterValidator(is_finite)]


class _Part(BaseModel):
    """Strict: `"2"` is no number and `1` is not true. A name nobody knows is a mistake."""

    # Deferred: a plan is checked by its outermost model alone, which describes the others in itself. A
    # checker for each of them as well took 5 ms of every start.
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, defer_build=True)


class Expectation(_Part):
    """What an answer is checked for. All that is given must hold."""

    contains: Texts | None = Field(None, description="Text, or several, each of which the answer holds.")
    equals: str | None = Field(None, description="The whole answer, spaces around it aside.")
    regex: Annotated[str, AfterValidator(_is_regex)] | None = Field(
        None, description="A regular expression that is found somewhere in the answer."
    )
    json_schema: dict[str, Anything] | None = Field(
        None, alias="json_schema", description="A JSON schema; the answer is JSON that keeps to it."
    )


class Exclusion(_Part):
    """A combination that is left out: one that has all of these values."""

    repo: Texts | None = None
    prompt: Texts | None = None
    agent: Texts | None = None
    model: Texts | None = None
    base_branch: Texts | None = None
    script_command: Texts | None = None
    setup: Texts | None = None
    seed: Annotated[list[Seed], BeforeValidator(_as_list), _OneOrMany()] | None = None
    system: Texts | None = None
    timeout_sec: Annotated[list[Seconds], BeforeValidator(_as_list), _OneOrMany()] | None = None


class Defaults(_Part):
    """What holds for every item that does not say otherwise."""

    base_branch: Texts | None = Field(None, description="Branch the work starts from. Default: main.")
    script_command: Texts | None = Field(None, description="Check run after the agent; it decides.")
    model: Texts | None = Field(None, description="Which model; a list makes items for each.")
    json_logs: bool | None = Field(None, description="Keep the agent's event stream. Default: true.")
    timeout_sec: (
        Annotated[list[Seconds], Field(min_length=1), BeforeValidator(_as_list), _OneOrMany()] | None
    ) = Field(None, description="Seconds one attempt may take. Default: 900.")
    retries: Annotated[int, Field(ge=0, le=1000)] | None = Field(None, description="Default: 0.")
    merge_on_pass: bool | None = Field(None, description="Merge work that passed. Default: false.")
    agent: Texts | None = Field(None, description="Who does the work. Default: amp.")
    command: Command | None = Field(None, description="The program of the agent `command`.")
    script: Script | None = Field(None, description="The steps of the agent `scripted`, or their file.")
    setup: Texts | None = Field(None, description="Command run in the work tree before the agent.")
    env: dict[Annotated[str, AfterValidator(_is_variable)], str | None] | None = Field(
        None, description="Environment variables of the agent, the setup and the check."
    )
    tags: list[Text] | None = Field(None, description="Words to find items by.")
    runs: Annotated[int, Field(ge=1)] | None = Field(None, description="How often. Default: 1.")
    seed: Annotated[list[Seed], Field(min_length=1), BeforeValidator(_as_list), _OneOrMany()] | None = None
    budget: Usd | None = Field(None, description="US dollars that one item may cost.")
    retry_on: list[Literal["error", "timeout", "fail"]] | None = Field(
        None, description="What is tried again. Default: error, timeout."
    )
    keep: Literal["always", "on_failure", "never"] | None = Field(
        None, description="When the work tree is kept. Default: on_failure."
    )
    settings: dict[str, Anything] | None = Field(None, description="The agent's, or the model's parameters.")
    system: Texts | None = Field(None, description="System prompt of a plain prompt.")
    expect: Expectation | None = Field(None, description="What the answer is checked for.")


class Entry(Defaults):
    """An item, or many: a list in place of a value makes items for each."""

    prompt: Texts = Field(description="What is asked.")
    repo: Texts | None = Field(None, description="The git repository. Without it: one call of a model.")
    exclude: list[Exclusion] | None = Field(None, description="Combinations of this entry to leave out.")


class ModelPrice(_Part):
    """US dollars per million tokens."""

    input: Price
    output: Price
    cached: Price | None = None


class CodingPlan(_Part):
    """A plan for `proctor batch`."""

    run_id: Annotated[str, AfterValidator(_is_run_id)] | None = Field(
        None, description="Name of the batch.", json_schema_extra={"pattern": RUN_ID}
    )
    concurrency: Annotated[int, Field(ge=1)] | None = Field(None, description="Items at once. Default: 4.")
    defaults: Defaults | None = None
    matrix: list[Entry] = Field(min_length=1)
    exclude: list[Exclusion] | None = Field(None, description="Combinations to leave out.")
    budget: Usd | None = Field(None, description="US dollars that the whole batch may cost.")
    seed: Seed | None = None
    notify: Text | None = Field(None, description="Command run at the end, or the word `desktop`.")
    prices: dict[str, ModelPrice] | None = None
    record: Text | None = Field(None, description="File that keeps the traffic with models.")
    replay: Text | None = Field(None, description="File of a recording that answers in their place.")


def names_of(model: type[BaseModel]) -> list[str]:
    """The names a mapping of this kind may have, as they are written."""
    return [field.alias or name for name, field in model.model_fields.items()]


def json_schema() -> dict[str, Any]:
    """The plan's JSON schema: editors complete and check a plan with it."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **CodingPlan.model_json_schema()}
