"""Roles: find, read, validate and create them.

A role is a folder:

    NAME/role.yaml               description, memory and steps
    NAME/templates/LANG/*.j2     prompts in each language
    NAME/profile.schema.yaml     JSON Schema of profiles
    NAME/profiles/*.yaml|json    profiles; a file contains one, or a list
    NAME/profiles/LANG/*         the same in another language
    NAME/data/*.yaml|json        other data of the templates

Built-in roles are in the package; folders called `roles` of the user take precedence. All problems of a
role are reported before a dialogue starts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from proctor.dialogue.participant import TEMPLATE_NAMES, Role, TurnStep, every_step
from proctor.dialogue.steps import KINDS, pattern
from proctor.dialogue.templating import check_expression, check_template, members_needed, names_in
from proctor.errors import NotFound, Place, Problem, UsageError
from proctor.evaluators.answer_parser import field_of
from proctor.jobs.dialogue.world import ToolEntry, read_policy, read_tools
from proctor.json_values import JsonMap, JsonObject, as_map, as_text, texts_in, without_none
from proctor.patterns import PatternTimeout, bounded_call, may_take_long
from proctor.plan.criteria import read_data, read_text_file, read_yaml_source
from proctor.plan.source import PlanSource, refuse
from proctor.plan.validate import check_shape, did_you_mean, sections_of

MOST_TEMPERATURE = 2.0
"""No provider accepts more."""
STEP_LISTS = ("before", "steps", "after")
Templates = Mapping[str, Mapping[str, str]]
"""By language, then by name."""


def problems_of(source: PlanSource, folder: Path, templates: Templates, data: JsonMap) -> list[Problem]:
    """Problems between the parts of one role, each of which is valid by itself."""
    known = names_known(source.data)
    return [*_template_problems(folder, templates, known), *_step_problems(source, templates, data, known)]


def _all_steps(role: Mapping[str, Any]) -> Iterator[TurnStep]:
    for key in STEP_LISTS:
        yield from every_step(role.get(key) or ())


def names_known(role: Mapping[str, Any]) -> set[str]:
    """All names that the templates and expressions of a role can use."""
    names = {*TEMPLATE_NAMES, *(role.get("state") or {})}
    for step in _all_steps(role):
        names |= {*(step.get("set") or {}), *(step.get("read") or {})}
        names |= {step[key] for key in ("into", "draw", "rank", "for") if isinstance(step.get(key), str)}
        names |= {"reply"} if {"ask", "rules", "say", "http", "person"} & step.keys() else set()
    return names


def _template_problems(folder: Path, templates: Templates, known: Set[str]) -> Iterator[Problem]:
    for language, texts in templates.items():
        for name, text in texts.items():
            file = folder / "templates" / language / f"{name}.j2"
            line, wrong = check_template(text)
            if wrong:
                yield Problem(at=Place(str(file), line, 1), problem=f"the template cannot be read: {wrong}")
                continue
            for unknown in sorted(names_in(text) - known):
                at = Place(str(file), _line_of(unknown, text), 1)
                yield Problem(
                    at=at,
                    problem=f"the template speaks of `{unknown}`, which nothing gives a value",
                    remedy=did_you_mean(unknown, sorted(known)) or f"There are: {', '.join(sorted(known))}.",
                )


def _line_of(name: str, text: str) -> int:
    match = re.search(rf"\b{re.escape(name)}\b", text)
    return text.count("\n", 0, match.start()) + 1 if match else 1


def _step_problems(
    source: PlanSource, templates: Templates, data: JsonMap, known: Set[str]
) -> Iterator[Problem]:
    for template in _templates_used(source.data):
        for language in templates or ("en",):
            if template not in templates.get(language, {}):
                file = f"templates/{language}/{template}.j2"
                yield source.problem(
                    ("steps",), f"the role uses a template `{template}` it does not have", f"Add {file}."
                )
    for step in _all_steps(source.data):
        yield from _wrong_expressions(source, step, known)
        yield from _wrong_parts(source, data, step)
    if not any(map(_may_reply, every_step(source.data["steps"]))):
        remedy = "Add a step that sets `reply`: `ask` with `history`, `say`, `rules`, `set`, …"
        yield source.problem(("steps",), "the role never replies: no step sets `reply`", remedy)
    yield from _parameter_problems(source)
    for name in source.data.get("metrics") or ():
        if name not in (source.data.get("state") or {}):
            yield source.problem(("metrics",), f"`{name}` is not in the role's state", "Add it to `state`.")


def _may_reply(step: TurnStep) -> bool:
    """Whether a step can set what a role says, or end the session."""
    if "say" in step or "end" in step or "reply" in (step.get("set") or {}):
        return True
    if {"ask", "rules", "http", "person"} & step.keys():
        return "reply" in (step.get("read") or ()) or (
            "read" not in step and step.get("into", "reply") == "reply"
        )
    return "reply" in (step.get("draw"), step.get("rank"), step.get("for"))


def _parameter_problems(source: PlanSource) -> Iterator[Problem]:
    """Values of parameters that no provider accepts."""
    settings = [
        as_map(source.data, "parameters"),
        *(as_map(step, "parameters") for step in _all_steps(source.data)),
    ]
    for parameters in settings:
        value = parameters.get("temperature")
        if value is not None and not (isinstance(value, int | float) and 0 <= value <= MOST_TEMPERATURE):
            problem = f"`temperature: {value}` is not accepted by any provider"
            yield source.problem(("parameters",), problem, f"Use a number from 0 to {MOST_TEMPERATURE:g}.")


EXPRESSIONS = ("when", "until", "in", "from", "http", "headers", "text", "passages", "url", "model")


def _wrong_expressions(source: PlanSource, step: JsonMap, known: Set[str]) -> Iterator[Problem]:
    written = {name: step.get(name) for name in EXPRESSIONS}
    for key in ("set", "otherwise"):
        written |= {f"{key}: {name}": text for name, text in as_map(step, key).items()}
    for name, text in written.items():
        if not isinstance(text, str):
            continue
        if wrong := check_expression(text):
            yield source.problem(("steps",), f"`{name}: {text}` is no expression: {wrong}")
            continue
        for unknown in sorted(names_in(text, is_expression=True) - known):
            problem = f"`{name}: {text}` speaks of `{unknown}`, which nothing gives a value"
            remedy = did_you_mean(unknown, sorted(known)) or f"There are: {', '.join(sorted(known))}."
            yield source.problem(("steps",), problem, remedy)


def _wrong_parts(source: PlanSource, data: JsonMap, step: JsonMap) -> Iterator[Problem]:
    for name, kind in as_map(step, "read").items():
        try:
            field_of(kind)
        except UsageError as error:
            yield source.problem(("steps",), f"`read: {name}`: {error}")
    if rules := as_text(step.get("rules")):
        if rules not in data:
            yield source.problem(("steps",), f"there is no data/{rules}.yaml", "Add it beside role.yaml.")
        elif wrong := _wrong_rules(data[rules]):
            yield source.problem(("steps",), f"data/{rules}.yaml: {wrong}")


def _wrong_rules(rules: object) -> str:
    """The problem of rules that answer without a model; empty: none."""
    if (
        not isinstance(rules, Mapping)
        or not isinstance(rules.get("rules"), list)
        or not rules.get("otherwise")
    ):
        return "it needs a list `rules`, and `otherwise` for when none fits"
    for number, rule in enumerate(rules["rules"], 1):
        if not isinstance(rule, Mapping) or not rule.get("match") or not rule.get("reply"):
            return f"rule {number} needs `match` and `reply`"
        try:
            pattern(str(rule["match"]))
        except re.error as error:
            return f"`match` of rule {number} is not a valid regular expression: {error}"
    return ""


def _templates_used(data: Mapping[str, Any]) -> list[str]:
    used = [data["opening"]] if data.get("opening") else []
    for step in _all_steps(data):
        used += _templates_of(step)
    return list(dict.fromkeys(used))


def _templates_of(step: JsonMap) -> list[str]:
    question = step.get("ask")
    used = [as_text(question, name) for name in ("system", "prompt")] if isinstance(question, Mapping) else []
    used += [question] if isinstance(question, str) else []
    return [name for name in (*used, as_text(step, "say"), as_text(step, "person")) if name]


_STRICT = ConfigDict(extra="forbid", strict=True)
Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Expression = str | int | float | bool


class ModelPrompt(BaseModel):
    """A request to the model."""

    model_config = _STRICT
    system: str | None = None
    history: bool | Annotated[int, Field(ge=1)] | None = None
    prompt: str | None = None
    instead: bool | None = None


class RoleStep(BaseModel):
    """One step of a role's turn."""

    noun: ClassVar = "step"
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)
    ask: str | ModelPrompt | None = None
    into: Name | None = None
    read: dict[str, str | list[str]] | None = None
    otherwise: JsonObject | None = None
    parameters: JsonObject | None = None
    set: JsonObject | None = None
    draw: Name | None = None
    from_: object = Field(default=None, alias="from")
    rules: str | None = None
    say: str | None = None
    for_: Name | None = Field(default=None, alias="for")
    in_: object = Field(default=None, alias="in")
    repeat: Annotated[int, Field(ge=1, le=20)] | None = None
    until: Expression | None = None
    do: "list[RoleStep] | None" = None
    http: str | None = None
    headers: str | None = None
    person: str | None = None
    tools: bool | None = None
    rank: Name | None = None
    text: str | None = None
    passages: str | None = None
    url: str | None = None
    model: str | None = None
    end: Name | None = None
    when: Expression | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "RoleStep":
        values = self.model_dump(by_alias=True, exclude_none=True)
        kinds = [kind for kind in KINDS if kind in values]
        if len(kinds) != 1:
            raise ValueError(f"should have exactly one of {', '.join(KINDS)}")
        needs = {"draw": ("from",), "rank": ("text", "passages"), "for": ("in", "do"), "repeat": ("do",)}
        needed: tuple[str, ...] = needs.get(kinds[0], ())
        for name in needed:
            if name not in values:
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
    parameters: JsonObject | None = None
    options: JsonObject | None = None
    choices: dict[str, list[object]] | None = None
    state: dict[Name, Any] | None = None
    metrics: list[str] | None = None
    opening: str | None = None
    opens: bool | None = None
    default_profile: str | None = None
    end_words: list[str] | None = None
    stand_in: bool | None = None
    tools: str | list[ToolEntry] | None = None
    policy: str | None = None
    aliases: list[Name] | None = None
    shares: JsonObject | None = None
    uses: list[Name] | None = None
    before: list[RoleStep] | None = None
    steps: Annotated[list[RoleStep], Field(min_length=1)]
    after: list[RoleStep] | None = None


vocabulary = sections_of(RoleFile, "role")
BUILT_IN = Path(str(files("proctor").joinpath("roles")))
FALLBACK = "en"
SUFFIXES = (".yaml", ".yml", ".json")


def _base(language: str) -> str:
    return language.partition("-")[0]


@dataclass(frozen=True)
class RoleFolder:
    """A valid role in its folder."""

    name: str
    folder: Path
    source: PlanSource = field(repr=False)
    data: JsonMap = field(repr=False)
    templates: Mapping[str, Mapping[str, str]] = field(repr=False)
    """By language, then by name."""
    profiles: Mapping[str, JsonMap] = field(repr=False)
    """By name: `file` or `file:number`; sorted."""
    translations: Mapping[str, Mapping[str, JsonMap]] = field(repr=False)
    """Profiles in other languages: by language, then by name."""
    schema: JsonMap | None = field(repr=False)

    @property
    def is_built_in(self) -> bool:
        return self.folder.parent == BUILT_IN

    @property
    def plays(self) -> Sequence[str]:
        return tuple(self.source.data["plays"])

    @property
    def description(self) -> str:
        return " ".join(str(self.source.data["description"]).split())

    @property
    def languages(self) -> Sequence[str]:
        """Empty: it calls no model, so any language works."""
        return tuple(self.templates)

    @cached_property
    def options(self) -> JsonMap:
        return self.source.data.get("options") or {}

    @cached_property
    def required_members(self) -> Set[str]:
        """The members of a profile that the templates of its unconditional steps use."""
        used = [
            name
            for step in self.source.data["steps"]
            if step.get("when") is None
            for name in _templates_of(step)
        ]
        needed = set[str]()
        for texts in self.templates.values():
            for name in used:
                needed |= members_needed(texts[name], "profile")
        return needed

    def language_for(self, requested: str) -> str:
        """The language used for a requested one: the same, its base language, English, or the role's own."""
        if not self.languages:
            return requested
        for language in (requested, requested.partition("-")[0], FALLBACK):
            if language in self.languages:
                return language
        return self.languages[0]

    def role(self, requested: str) -> Role:
        """The role in a language, or in its fallback."""
        language = self.language_for(requested)
        values = without_none(self.source.data)
        for name in ("description", "sources", "field", "choices", "default_profile", "aliases", "uses"):
            values.pop(name, None)
        if "tools" in values:
            values["tools"] = read_tools(values["tools"], self.folder)
        if "policy" in values:
            values["policy"] = read_policy(values["policy"], self.folder)
        return Role(
            **values,
            name=self.name,
            templates=dict(self.templates.get(language, {})),
            data=dict(self.data),
            language=language,
        )

    def profiles_in(self, requested: str) -> Mapping[str, JsonMap]:
        """The profiles, those in a language where there are such."""
        return {**self.profiles, **self.translations.get(_base(requested), {})}

    def untranslated(self, names: Iterable[str], requested: str) -> list[str]:
        """The profiles among `names` that are in English and not in a requested language."""
        if _base(requested) == FALLBACK:
            return []
        known = self.translations.get(_base(requested), {})
        return [name for name in names if name in self.profiles and name not in known]

    def check_profile(self, profile: object) -> list[str]:
        if not isinstance(profile, Mapping):
            return ["a profile is a mapping of names to values"]
        if self.schema is None:
            return []
        if not may_take_long(self.schema):
            return schema_problems(self.schema, profile)
        function = "proctor.jobs.dialogue.roles:schema_problems"
        try:
            listed = bounded_call(function, self.schema, profile, about="in the schema")
        except PatternTimeout as timeout:
            return [timeout.problem]
        return [str(problem) for problem in listed]


def schema_problems(schema: JsonMap, profile: JsonMap) -> list[str]:
    """Problems of a profile by its schema, without a limit of time."""
    # Late, here and below: roles without a schema do not need it.
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # An own registry: with the default one, a schema could make us fetch a URL.
    registry: Any = Registry()
    try:
        wrong = [
            (".".join(map(str, error.path)) or "the profile", _short(error.message))
            for error in Draft202012Validator(schema, registry=registry).iter_errors(profile)
        ]
    except Unresolvable as problem:
        return [f"the schema refers to what is not in it: {_short(str(problem))}"]
    return [f"{where}: {what}" for where, what in sorted(wrong)]


@dataclass(frozen=True, slots=True)
class _RoleHead:
    """What decides whether a folder is the role that is looked for."""

    plays: Sequence[str]
    aliases: Sequence[str]

    def can_play(self, side: str) -> bool:
        # A role that cannot be read is reported where it is used.
        return side in self.plays or not self.plays


def _head(folder: Path) -> _RoleHead:
    try:
        data = read_yaml_source(folder / "role.yaml").data
    except UsageError:
        data = {}
    return _RoleHead(texts_in(data, "plays"), texts_in(data, "aliases"))


class Roles:
    """Roles of these folders, then the built-in ones."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = [*dict.fromkeys(folders), BUILT_IN]
        self._read: dict[str, RoleFolder] = {}

    def names(self) -> list[str]:
        texts = {
            entry.name
            for folder in self._folders
            if folder.is_dir()
            for entry in folder.iterdir()
            if (entry / "role.yaml").is_file()
        }
        return sorted(texts, key=str.casefold)

    def find(self, name: str, side: str = "") -> RoleFolder:
        """A valid role by name or alias; raises `NotFound`, or `PlanError` with every problem.

        One name can be that of a client and of a therapist; `side` decides.
        """
        key = f"{side}:{name}"
        if key not in self._read:
            self._read[key] = read_role(self._folder_of(name, side))
        return self._read[key]

    def _folder_of(self, name: str, side: str) -> Path:
        # `../elsewhere` is not a valid name.
        named = [
            folder / name
            for folder in self._folders
            if Path(name).name == name and (folder / name / "role.yaml").is_file()
        ]
        if named and (not side or _head(named[0]).can_play(side)):
            return named[0]
        for folder in self._folders:
            for entry in sorted(folder.glob("*/role.yaml")):
                head = _head(entry.parent)
                if name in head.aliases and (not side or head.can_play(side)):
                    return entry.parent
        if named:
            return named[0]
        known = self.names()
        remedy = did_you_mean(name, known) or f"There are: {', '.join(known)}."
        raise NotFound(f"there is no role called `{name}`\n{remedy}")


def read_role(folder: Path) -> RoleFolder:
    """Read the folder of a role; raises `PlanError` with every problem."""
    source = read_yaml_source(folder / "role.yaml")
    problems = list(check_shape(source, RoleFile, vocabulary).problems)
    if problems:
        refuse(problems)
    templates = {
        language.name: {
            path.name.removesuffix(".j2"): read_text_file(path) for path in sorted(language.glob("*.j2"))
        }
        for language in sorted((folder / "templates").glob("*/"))
    }
    role = RoleFolder(
        name=folder.name,
        folder=folder,
        source=source,
        data={path.stem: read_data(path) for path in _data_files(folder / "data")},
        templates=templates,
        profiles=dict(_profiles(folder / "profiles")),
        translations={
            language.name: dict(_profiles(language)) for language in sorted((folder / "profiles").glob("*/"))
        },
        schema=_schema(folder),
    )
    if problems := problems_of(role.source, role.folder, role.templates, role.data):
        refuse(problems)
    for profile_name, profile in role.profiles.items():
        problems += _profile_problems(role, profile_name, profile)
    for language, profiles in role.translations.items():
        for profile_name, profile in profiles.items():
            problems += _profile_problems(role, f"{language}/{profile_name}", profile)
    if problems:
        refuse(problems)
    return role


def read_profiles(path: Path) -> dict[str, JsonMap]:
    """The profiles of one file: one, or a list."""
    return dict(_named(path.stem, read_data(path)))


def new_role(name: str, folder: Path, *, plays: str) -> list[Path]:
    """Create the folder of a new role with an example of every file; returns the files."""
    if not name.isidentifier():
        raise UsageError(f"`{name}` is no name for a role\nUse letters, digits and underscores.")
    if folder.exists():
        raise UsageError(f"{folder} is there already\nGive another name, or remove it.")
    pattern = BUILT_IN / "_new"
    written = []
    for path in sorted(pattern.rglob("*")):
        if path.is_file():
            target = folder / path.relative_to(pattern).with_name(path.name.removesuffix(".txt"))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(
                read_text_file(path).replace("@NAME@", name).replace("@PLAYS@", plays), encoding="utf-8"
            )
            written.append(target)
    return written


def _data_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES) if folder.is_dir() else []


def _profiles(folder: Path) -> Iterator[tuple[str, JsonMap]]:
    for path in _data_files(folder):
        yield from _named(path.stem, read_data(path))


def _named(stem: str, data: Any) -> Iterator[tuple[str, JsonMap]]:
    if isinstance(data, list):
        yield from ((f"{stem}:{number}", entry) for number, entry in enumerate(data))
    else:
        yield stem, data


def _schema(folder: Path) -> JsonMap | None:
    path = folder / "profile.schema.yaml"
    if not path.is_file():
        return None
    from jsonschema import Draft202012Validator, SchemaError

    schema: JsonMap = read_data(path)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise UsageError(f"{path}: this is no JSON Schema: {_short(error.message)}") from error
    return schema


def _profile_problems(role: RoleFolder, name: str, profile: object) -> list[Problem]:
    at = Place(str(role.folder / "profiles" / name), 1, 1)
    remedy = "profile.schema.yaml says what is needed."
    return [Problem(at=at, problem=wrong, remedy=remedy) for wrong in role.check_profile(profile)]


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:199]}…"
