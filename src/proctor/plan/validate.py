"""Validation of a source with a pydantic model: shared field types, readable problems at their positions, and
overrides: settings that are also flags, arguments of Python and members over HTTP."""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue, WithJsonSchema
from pydantic_core import CoreSchema, ErrorDetails

from proctor.errors import Problem, UsageError
from proctor.item import read_resources
from proctor.json_values import JsonObject, without_none
from proctor.plan.source import KeyPath, PlanSource, is_secret, shortened
from proctor.sandbox import CACHE_MODES, KINDS, LIMITS, NETWORKS, PHASES, read_settings
from proctor.session import InvalidKind

_BIGGEST = 2**63 - 1


class OneOrMany:
    """JSON Schema of a value or a list of values: a list is an axis of a grid."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        many = handler(schema)
        return {"anyOf": [many["items"], many]}


@dataclass(frozen=True, slots=True)
class Sections:
    """Marks a setting whose sections have models, though its own type does not say so."""

    type: Any


@dataclass(frozen=True, slots=True)
class Flag:
    """Marks a setting that is a flag of its command as well; the help is the description of the field."""

    type: Any
    names: tuple[str, ...] = ()
    """As they are typed; empty: the name of the setting."""
    minimum: float | None = None
    help: str = ""
    """Empty: the description of the field."""
    metavar: str | None = None


def as_list(value: object) -> list[Any]:
    """A single value as a list."""
    return value if isinstance(value, list) else [value]


def _not_empty(value: str) -> str:
    if not value.strip():
        raise ValueError("should not be empty")
    return value


def is_finite(value: object) -> object:
    """Reject infinity and NaN at any depth: JSON cannot represent them."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("holds a number that is not finite")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        is_finite(inner)
    return value


def _is_regex(value: str) -> str:
    # Loaded here: few plans have one.
    from proctor.patterns import compile_pattern

    try:
        compile_pattern(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is not a valid regular expression: {error}") from error
    return value


Text = Annotated[str, AfterValidator(_not_empty), Field(json_schema_extra={"pattern": r"\S"})]
Texts = Annotated[list[Text], Field(min_length=1), BeforeValidator(as_list), OneOrMany()]
Seed = Annotated[int, Field(ge=-_BIGGEST, le=_BIGGEST)]
Usd = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Anything = Annotated[object, AfterValidator(is_finite)]


def _is_sandbox(value: object) -> object:
    read_settings(value)
    return value


_TEXTS: JsonSchemaValue = {"type": "array", "items": {"type": "string"}}
_NETWORK: JsonSchemaValue = {"anyOf": [{"enum": list(NETWORKS)}, _TEXTS]}
SandboxValue = Annotated[
    object,
    AfterValidator(_is_sandbox),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(KINDS)},
                {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "kind": {"enum": list(KINDS)},
                        "container": {"type": "string"},
                        "network": {
                            "anyOf": [
                                *_NETWORK["anyOf"],
                                {
                                    "type": "object",
                                    "additionalProperties": False,
                                    "properties": dict.fromkeys(PHASES, _NETWORK),
                                },
                            ]
                        },
                        "limits": {
                            "type": "object",
                            "additionalProperties": False,
                            "properties": {name: {"type": ["integer", "string"]} for name in LIMITS},
                        },
                        "read": {"anyOf": [{"type": "string"}, _TEXTS]},
                        "cache": {
                            "anyOf": [
                                {"type": "string"},
                                _TEXTS,
                                {"type": "object", "additionalProperties": {"enum": list(CACHE_MODES)}},
                            ]
                        },
                    },
                },
            ]
        }
    ),
]
"""`sandbox` of a plan or task."""
PlanSandbox = Annotated[SandboxValue | None, Field(description="How programs are confined. Default: auto.")]
OutagePatience = Annotated[
    Seconds | None,
    Field(
        alias="outage_patience",
        description="Seconds that calls wait for a provider that cannot be reached. Default: 1800.",
    ),
]
"""The same name in every plan."""
ProviderService = Annotated[
    Literal["batch"] | None,
    Field(description="`batch` sends calls as batches of the provider: half the price, within a day."),
]


def _is_resources(value: object) -> object:
    read_resources(value)
    return value


ResourcesValue = Annotated[
    object,
    AfterValidator(_is_resources),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": False,
            "minProperties": 1,
            "properties": {
                "cpu": {"type": "number", "exclusiveMinimum": 0},
                "memory": {"type": ["number", "string"]},
                "gpu": {"type": "number", "exclusiveMinimum": 0},
                "custom": {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
                },
            },
        }
    ),
]
"""`resources` of a plan or task."""
PlanResources = Annotated[
    ResourcesValue | None,
    Field(description="What an item needs of a node of a Ray cluster: cpu, memory, gpu, custom."),
]


class PlanModel(BaseModel):
    """Strict: `"2"` is not a number, `1` is not true, and unknown names are errors."""

    # Deferred: only the outermost model validates, with the others inlined. Building a validator for each
    # of them took 5 ms of every start.
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, defer_build=True)


class Expectation(PlanModel):
    """Checks of an answer; all must pass."""

    contains: Texts | None = Field(None, description="Text, or several, each of which the answer holds.")
    equals: str | None = Field(None, description="The whole answer, spaces around it aside.")
    regex: Annotated[str, AfterValidator(_is_regex)] | None = Field(
        None, description="A regular expression that is found somewhere in the answer."
    )
    json_schema: dict[str, Anything] | None = Field(
        None, alias="json_schema", description="A JSON schema; the answer is JSON that keeps to it."
    )


class ModelPrice(PlanModel):
    """USD per million tokens."""

    input: Price
    output: Price
    cached: Price | None = None


ExcludeWhen = Annotated[
    dict[InvalidKind, Annotated[str, Field(pattern=r"^\s*>=?\s*\d{1,9}\s*$")]],
    Field(
        description="Sessions that the analysis excludes, by counts of events such as `refusals: '> 0'`; "
        "any of the conditions is enough."
    ),
]


class StopWhen(BaseModel):
    """When a run stops early: once all of these are decided, with intervals that stay valid meanwhile."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)
    by: Text = Field("model", description="Factor whose levels are compared. Default: model.")
    metric: Text = Field("success", description="As `--metric` of `proctor compare`. Default: success.")
    pick: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="Name one level that is at most this much worse than the best."
    )
    check: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="Pass or fail every level: is it worse than the baseline by this much?"
    )
    decided: bool | None = Field(None, description="Every level is compared with the baseline.")
    baseline: Text | None = Field(
        None, description="Level to compare with, or, with `check`, a finished run. Default: the first level."
    )
    margin: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="Also decided when at most this much worse."
    )
    width: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="Interval of each level at most this wide."
    )
    ranks: Annotated[int, Field(ge=0)] | Literal["settled"] | None = Field(
        None, description="`settled`, or how many first places are separated from all others."
    )
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = Field(0.95, description="Default: 0.95.")
    scale: Annotated[list[float], Field(min_length=2, max_length=2)] | None = Field(
        None, description="Ends of a score's scale, the worst one first. Default: [0, 1]."
    )

    @model_validator(mode="after")
    def _has_a_goal(self) -> "StopWhen":
        is_watching = bool(self.decided) or self.width is not None or self.ranks is not None
        modes = [self.pick is not None, self.check is not None, is_watching]
        if not any(modes):
            raise ValueError("names no goal: give `pick`, `check`, `decided: true`, `width` or `ranks`")
        if sum(modes) > 1:
            raise ValueError("has several kinds of goals: give `pick`, `check`, or some of the others")
        # Few plans have a rule; the others load no metrics.
        from proctor.item import SUCCESS
        from proctor.metric import MEASURE, METRICS, METRICS_HELP, SCORE

        if not is_watching:
            if self.metric in METRICS and self.metric != SUCCESS:
                raise ValueError(
                    f"has the metric `{self.metric}`, which has no scale: `pick` and `check` are for success "
                    "and scores; use `decided: true`"
                )
            if self.margin is not None:
                raise ValueError("has a `margin`, which is the value of `check` or `pick`")
            # Built-in evaluators have values from 0 to 1.
            is_known = self.metric == SUCCESS or self.metric.startswith(f"{SCORE}Builtin.")
            if self.metric.startswith((SCORE, MEASURE)) and not is_known and self.scale is None:
                raise ValueError(
                    f"has the metric `{self.metric}`, whose ends are unknown: add `scale: [WORST, BEST]`"
                )
            if self.pick is not None and self.baseline is not None:
                raise ValueError("has a `baseline`, but `pick` compares all levels with each other")

        if self.metric not in METRICS and not self.metric.startswith((SCORE, MEASURE)):
            raise ValueError(f"has the metric `{self.metric}`, which is none of {METRICS_HELP}")
        if self.scale is not None:
            low, high = self.scale
            if low == high or (is_watching and low > high):
                raise ValueError("has a `scale` whose ends are not in order")
        return self


def stop_settings(entry: object) -> dict[str, object] | None:
    """The settings of a rule from a checked `stop_when` of a plan; None: there is none."""
    if not isinstance(entry, dict):
        return None
    values: dict[str, object] = without_none(entry)
    if values.get("ranks") == "settled":
        values["ranks"] = 0
    if isinstance(scale := values.get("scale"), list):
        values["scale"] = tuple(map(float, scale))
    return values


def names_of(model: type[BaseModel]) -> list[str]:
    """The keys of a mapping, as they are written in a file: those of its own before the inherited ones."""
    fields = sorted(model.model_fields.items(), key=lambda entry: entry[0] not in model.__annotations__)
    return [field.alias or name for name, field in fields]


def flags_of(model: type[BaseModel]) -> dict[str, tuple[Flag, str]]:
    """The settings of a file that are flags as well, each with its help."""
    return {
        name: (flag, flag.help or setting.description or "")
        for name, setting in model.model_fields.items()
        for flag in setting.metadata
        if isinstance(flag, Flag)
    }


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is probably a misspelling of; None: none."""
    names = {_bare(each): each for each in known}
    # Long names are slow to compare and not typing errors.
    near = difflib.get_close_matches(_bare(name[:60]), names, n=1, cutoff=0.7)
    return names[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence with the probable name; empty: none."""
    near = suggestion(name, known)
    return f"Did you mean `{near}`?" if near else ""


def _bare(name: str) -> str:
    """The name without case and separators: `timeout_secs` and `timeoutSecs` are alike."""
    return name.lower().replace("_", "").replace("-", "")


@dataclass(frozen=True, slots=True)
class SectionLabel:
    """How messages refer to a mapping."""

    name: str
    """In the middle of a sentence: `item 3`."""
    kind: str
    """At the start of one: `An item`."""
    settings: Sequence[str]
    """The names it may have."""


Vocabulary = Callable[[KeyPath], SectionLabel | None]
"""The label of the section at a path; None: not a section."""


def sections_of(model: type[BaseModel], noun: str) -> Vocabulary:
    """The sections of a file that a model describes; `noun` is what the file is called.

    An entry of a list is called by the `noun` of its model, or else as the list without its last letter.
    """
    whole = SectionLabel(f"the {noun}", _with_article(noun), names_of(model))

    def section(path: KeyPath) -> SectionLabel | None:
        label, types, is_section = whole, list[Any]([model]), True
        name = around = inside = ""
        for step in path:
            if is_section and any(getattr(each, "__name__", "") == step for each in types):
                # The alternative of a union that pydantic has tried.
                continue
            is_member = is_section and not isinstance(step, int)
            if is_member:
                name, around = str(step), inside
            types = [inner for each in types for inner in _types_at(each, step)]
            part = next((each for each in types if _is_model(each)), None)
            is_section = part is not None
            if part is None:
                continue
            word = getattr(part, "noun", "") or name.removesuffix("s")
            numbered = f"{word} {step + 1}" if isinstance(step, int) else f"the {word} of `{step}`"
            own, kind = (f"`{step}`", f"`{step}`") if is_member else (numbered, _with_article(word))
            label = SectionLabel(f"{own} of {around}" if around else own, kind, names_of(part))
            # The number says where it is.
            inside = around if is_member and around[-1:].isdigit() else own
        return label if is_section else None

    return section


def _with_article(noun: str) -> str:
    return f"{'An' if noun[0] in 'aeio' else 'A'} {noun}"


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _types_at(annotation: Any, step: str | int) -> Iterator[Any]:
    """The types that a value may have at a member, index or key of one of a type."""
    if _is_model(annotation):
        fields = annotation.model_fields.items()
        yield from (
            inner
            for name, field in fields
            if step == (field.alias or name)
            for inner in _alternatives(
                next((each.type for each in field.metadata if isinstance(each, Sections)), field.annotation)
            )
        )
    elif get_origin(annotation) is (list if isinstance(step, int) else dict):
        yield from _alternatives(get_args(annotation)[-1])


def _alternatives(annotation: Any) -> Iterator[Any]:
    """The types of a union, or the type itself."""
    if get_origin(annotation) is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        yield from (inner for each in get_args(annotation) for inner in _alternatives(each))
    else:
        yield annotation


@dataclass(frozen=True, slots=True)
class ValidationProblems:
    """Problems of a source."""

    problems: Sequence[Problem] = ()
    paths: Sequence[KeyPath] = ()
    """Of the invalid values."""


def check_shape(source: PlanSource, model: type[BaseModel], vocabulary: Vocabulary) -> ValidationProblems:
    """All problems of `source`, in its text or by `model`."""
    details = [detail for part in _parts(source.data) for detail in _errors(model, *part)]
    if not details:
        return ValidationProblems(source.problems)
    speaker = MessageWriter(source, vocabulary)
    problems = [speaker.problem(detail) for detail in details]
    return ValidationProblems([*source.problems, *problems], [detail["loc"] for detail in details])


LIST_PART = 1000
"""Entries of a long list that are validated at once: their models take ten times the memory of the data."""


def _parts(data: object) -> Iterator[tuple[object, str, int]]:
    """The data in parts, each valid by itself if all is: with the name of its long list, and where it is."""
    longest = ""
    if isinstance(data, dict):
        lists = {name: value for name, value in data.items() if isinstance(value, list)}
        longest = max(lists, key=lambda name: len(lists[name]), default="")
    if not longest or len(data[longest]) <= LIST_PART:  # type: ignore[index]
        yield data, "", 0
        return
    for start in range(0, len(lists[longest]), LIST_PART):
        yield {**data, longest: lists[longest][start : start + LIST_PART]}, longest, start  # type: ignore[dict-item]


def _errors(model: type[BaseModel], data: object, name: str, start: int) -> Iterator[ErrorDetails]:
    """Errors of a part, at their places in the whole; those outside of its list only once."""
    try:
        model.model_validate(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path = detail["loc"]
            if start and path[:1] == (name,) and len(path) > 1 and isinstance(path[1], int):
                detail["loc"] = (name, path[1] + start, *path[2:])
                yield detail
            elif not start:
                yield detail


def subject(path: KeyPath, vocabulary: Vocabulary) -> str:
    """The subject of a message about the value at `path`: "`timeoutSec` of item 3"."""
    part, rest = _part_of(path, vocabulary)
    if not rest:
        return part.name
    dotted = "".join(f"[{step + 1}]" if isinstance(step, int) else f".{step}" for step in rest)
    return f"`{shortened(dotted.lstrip('.'), 60)}` of {part.name}"


def value_text(value: object) -> str:
    """A value in a message: shortened, with its type."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {shortened(str(value), 40)}"
        case str():
            return f"the text {shortened(repr(value), 40)}"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _part_of(path: KeyPath, vocabulary: Vocabulary) -> tuple[SectionLabel, KeyPath]:
    for depth in range(len(path), -1, -1):
        part = vocabulary(path[:depth])
        if part is not None:
            return part, path[depth:]
    return SectionLabel("the file", "The file", ()), path


class MessageWriter:
    """Turns pydantic's errors about one source into problems."""

    def __init__(self, source: PlanSource, vocabulary: Vocabulary) -> None:
        self.source, self.vocabulary = source, vocabulary

    def problem(self, error: ErrorDetails) -> Problem:
        """The problem of one of pydantic's errors."""
        path: KeyPath = tuple(error["loc"])
        if error["type"] == "missing":
            return self._missing(path)
        if error["type"] == "extra_forbidden":
            return self._unknown(path)
        path = self.source.deepest(path)
        expected, remedy = expected_value(error)
        secret = is_secret(path)
        if error["type"] == "literal_error" and isinstance(error["input"], str) and not secret:
            remedy = did_you_mean(error["input"], _choices(error)) or remedy
        actual = _kind(error["input"]) if secret else value_text(error["input"])
        problem = f"{subject(path, self.vocabulary)} {expected}"
        if error["type"] not in SAY_IT_ALL:
            problem = f"{problem}, not {actual}"
        return self.source.problem(path, problem, remedy)

    def _missing(self, path: KeyPath) -> Problem:
        part, _ = _part_of(path[:-1], self.vocabulary)
        remedy = f"{part.kind} needs one. Add `{path[-1]}`."
        return self.source.problem(path[:-1], f"{part.name} has no `{path[-1]}`", remedy)

    def _unknown(self, path: KeyPath) -> Problem:
        part, _ = _part_of(path[:-1], self.vocabulary)
        name = str(path[-1])
        hints = [did_you_mean(name, part.settings), f"{part.kind} may have: {', '.join(part.settings)}."]
        problem = f"{part.name} has no setting `{shortened(name, 60)}`"
        return self.source.problem(path, problem, " ".join(filter(None, hints)), of_key=True)


SAY_IT_ALL = ("value_error", "too_short")
"""Errors whose message needs no value."""


def expected_value(error: ErrorDetails) -> tuple[str, str]:
    """The expected value and the remedy; pydantic's message for other errors."""
    context = error.get("ctx") or {}
    match error["type"]:
        case "string_type":
            is_plain = isinstance(error["input"], (bool, int, float))
            return "should be text", "Put it in quotes." if is_plain else ""
        case "int_type" | "int_from_float" | "int_parsing":
            return "should be a whole number", ""
        case "float_type":
            return "should be a number", ""
        case "bool_type":
            return "should be true or false", "Write `true` or `false`, without quotes."
        case "list_type" | "tuple_type":
            return "should be a list", ""
        case "dict_type" | "model_type" | "model_attributes_type":
            return "should be a mapping of names to values", ""
        case "finite_number":
            return "should be a finite number", ""
        case "greater_than":
            return f"should be more than {_figure(context['gt'])}", ""
        case "greater_than_equal":
            return f"should be at least {_figure(context['ge'])}", ""
        case "less_than_equal":
            return f"should be at most {_figure(context['le'])}", ""
        case "too_short":
            return "should not be empty", ""
        case "literal_error":
            return f"should be {_one_of(_choices(error))}", ""
        case "value_error":
            return str(context["error"]), ""
        case _:
            return f"is not right ({error['msg']})", ""


def _figure(limit: float) -> str:
    """A limit with all its digits: 1,000,000, not 1e+06."""
    return f"{limit:,.10g}"


def _choices(error: ErrorDetails) -> list[str]:
    return [word.strip("' ") for word in error["ctx"]["expected"].replace(" or ", ", ").split(",")]


def _one_of(names: Sequence[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return f"one of {', '.join(quoted)}" if len(quoted) > 1 else quoted[0]


def _kind(value: object) -> str:
    """The type of a value that must not be shown."""
    if isinstance(value, (bool, int, float)):
        return "a number or a truth value"
    return "text" if isinstance(value, str) else value_text(value)


@dataclass(frozen=True, kw_only=True)
class SettingOverrides:
    """Settings that take precedence over a plan; None: not set. Raises `UsageError` for invalid ones.

    They have the limits of the settings of the plan.
    """

    _plan: ClassVar[type[BaseModel]]
    """The whole plan."""
    flags: ClassVar[Mapping[str, tuple[Flag, str]]]
    """The settings, each with its help."""
    _keys: ClassVar[Mapping[str, tuple[str, ...]]]
    """Where the setting of a field is in the plan."""

    def __post_init__(self) -> None:
        if not (values := self.settings()):
            return
        try:
            self._plan.model_validate(values)
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                # What is missing is in the plan.
                if detail["type"] != "missing":
                    key = [step for step in detail["loc"] if isinstance(step, str)][-1]
                    expected, remedy = expected_value(detail)
                    actual = "" if detail["type"] in SAY_IT_ALL else f", not {value_text(detail['input'])}"
                    raise UsageError(f"`{key}` {expected}{actual}\n{remedy}".rstrip()) from error

    def settings(self) -> JsonObject:
        """The settings that are set, as a plan has them."""
        values = JsonObject()
        for name, path in self._keys.items():
            if (value := getattr(self, name)) is not None:
                *sections, key = path
                section: Any = values
                for part in sections:
                    section = section.setdefault(part, {})
                section[key] = value
        return values


def overrides_of(model: type[BaseModel], **sections: type[BaseModel]) -> Any:
    """A class with a field for each flag of the model of a plan, and of those of some of its sections."""
    keys = dict[str, tuple[str, ...]]()
    flags = dict[str, tuple[Flag, str]]()
    for section, part in {"": model, **sections}.items():
        for name, flag in flags_of(part).items():
            alias = part.model_fields[name].alias or name
            keys.setdefault(name, (section, alias) if section else (alias,))
            flags.setdefault(name, flag)
    return make_dataclass(
        "Overrides",
        [(name, flag.type | None, None) for name, (flag, _) in flags.items()],
        bases=(SettingOverrides,),
        namespace={"_plan": model, "_keys": keys, "flags": flags},
        frozen=True,
        kw_only=True,
    )
