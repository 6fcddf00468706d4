"""Variations of an experiment: dimensions, and the combinations of their values.

All combinations, last dimension fastest, or values paired by position (`combine: zip`), without exclusions;
or a seeded sample (`sample`), which does not enumerate the rest.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from proctor.errors import Problem
from proctor.jobs.scenario.reader import ACTOR_ALIASES, ALIASES, LoadedScenario, check_world, faults_of
from proctor.jobs.scenario.reader_rules import FolderReader
from proctor.jobs.scenario.schema import Shorthand, VariationEntry, vocabulary
from proctor.json_values import changed
from proctor.plan.source import KeyPath, PlanSource, shortened
from proctor.plan.validate import MessageWriter, did_you_mean
from proctor.scenario.definition import Actor, NoSuchPath, check_path, names_of, scenario_of

MOST_VARIATIONS = 100_000
BASE = "Base configuration"
LONGEST_VALUE = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class VariationDimension:
    """One dimension: a path and its values."""

    name: str
    """An actor's short name, where its model is varied; else the path."""
    path: str
    values: Sequence[Any]
    at: KeyPath
    """Place of its values in the config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """One combination."""

    number: int
    description: str
    changes: Mapping[str, Any]
    """By path."""
    factors: Mapping[str, str]
    """The level of each dimension, by its name."""
    origins: Mapping[str, KeyPath]
    """Place of each changed value in the config, by path."""


def expand_variations(source: PlanSource, loaded: LoadedScenario) -> tuple[list[Variation], list[Problem]]:
    """The variations of a config, and all problems with them."""
    dimensions, problems = _dimensions(source, loaded)
    is_whole = not problems
    problems += _values_that_cannot_be(source, loaded, dimensions)
    if not is_whole:
        # Exclusions may refer to the dimensions that could not be read.
        return [], problems
    excluded = _exclusions(source, dimensions, problems)
    if problems:
        return [], problems
    combinations = list(_combinations(source, dimensions, excluded, problems))
    if not combinations and not problems:
        problems.append(source.problem(("exclude",), "everything is excluded", of_key=True))
    variations = [_variation(number, dimensions, values) for number, values in enumerate(combinations, 1)]
    return variations, problems


def variation_problems(source: PlanSource) -> list[Problem]:
    """The problems of the variations of a config that can be found without its scenario."""
    problems: list[Problem] = []
    _entries(source, problems)
    return problems


def _dimensions(source: PlanSource, loaded: LoadedScenario) -> tuple[list[VariationDimension], list[Problem]]:
    problems: list[Problem] = []
    dimensions: list[VariationDimension] = []
    for at, entry in _entries(source, problems):
        dimension = _dimension(source, loaded, at, entry, problems)
        if dimension is None:
            continue
        if any(other.path == dimension.path for other in dimensions):
            problems.append(source.problem(at, f"`{dimension.path}` is varied twice"))
        dimensions.append(dimension)
    return dimensions, problems


def _entries(source: PlanSource, problems: list[Problem]) -> list[tuple[KeyPath, Mapping[str, Any]]]:
    """Each dimension with its position; shorthands are expanded."""
    written = source.data.get("variations")
    if written is None:
        return []
    model: Any = Shorthand if isinstance(written, dict) else list[VariationEntry]
    try:
        TypeAdapter(model).validate_python(written)
    except ValidationError as error:
        problems += _shape_problems(source, error)
        return []
    if isinstance(written, list):
        return [(("variations", index), entry) for index, entry in enumerate(written)]
    models, parameters = written.get("actor_models") or {}, written.get("scenario_parameters") or {}
    return [
        (("variations", "actor_models", actor), {"type": "actor_model", "actor": actor, "values": values})
        for actor, values in models.items()
    ] + [
        (
            ("variations", "scenario_parameters", name),
            {"type": "scenario_parameter", "parameter": name, "values": values},
        )
        for name, values in parameters.items()
    ]


def _shape_problems(source: PlanSource, error: ValidationError) -> list[Problem]:
    speaker = MessageWriter(source, vocabulary)
    return [
        speaker.problem({**detail, "loc": ("variations", *detail["loc"])})
        for detail in error.errors(include_url=False)
    ]


def _dimension(
    source: PlanSource, loaded: LoadedScenario, at: KeyPath, entry: Mapping[str, Any], problems: list[Problem]
) -> VariationDimension | None:
    kind, actor, parameter = entry["type"], entry.get("actor"), entry.get("parameter")
    values_at: KeyPath = at if "actor_models" in at or "scenario_parameters" in at else (*at, "values")
    if kind != "scenario_parameter":
        actors = loaded.plain["actors"]
        if actor not in actors:
            problem = f"the scenario has no actor `{actor}`" if actor else "which `actor`?"
            remedy = did_you_mean(str(actor), actors) or f"There are: {', '.join(actors)}."
            problems.append(source.problem((*at, "actor"), problem, remedy))
            return None
    if kind == "actor_model":
        path, name = f"actors.{actor}.llm_model", str(actor)
    elif parameter is None:
        problems.append(source.problem(at, f"a variation of type `{kind}` needs a `parameter`"))
        return None
    else:
        written = f"actors.{actor}.{parameter}" if kind == "actor_parameter" else parameter
        path = name = real_path(written)
    try:
        check_path(loaded.plain, path)
    except NoSuchPath as missing:
        remedy = did_you_mean(missing.name, missing.known) or f"There are: {', '.join(missing.known)}."
        problem = f"{missing.where} has no `{missing.name}`"
        problems.append(source.problem((*at, "parameter"), problem, remedy))
        return None
    return VariationDimension(name=name, path=path, values=entry["values"], at=values_at)


def real_path(written: str) -> str:
    """A path under the names the plain form has: `num_turns` is `turns`."""
    steps = written.split(".")
    steps[0] = ALIASES.get(steps[0], steps[0])
    if steps[0] == "actors" and len(steps) > 2 and steps[2] not in names_of(Actor):
        steps[2] = ACTOR_ALIASES.get(steps[2], steps[2])
    return ".".join(steps)


def _values_that_cannot_be(
    source: PlanSource, loaded: LoadedScenario, dimensions: Sequence[VariationDimension]
) -> list[Problem]:
    problems: list[Problem] = []
    for dimension in dimensions:
        values: list[Any] = []
        for index, value in enumerate(dimension.values):
            at = (*dimension.at, index)
            if any(value == other and type(value) is type(other) for other in values):
                problems.append(source.problem(at, f"`{_short(value)}` stands in this list twice"))
            values.append(value)
            if value == "" and dimension.path.endswith(".llm_model"):
                problems.append(source.problem(at, "a model has a name", "Write `provider/model`."))
                continue
            try:
                scenario = scenario_of(changed(loaded.plain, {dimension.path: value}))
                world = FolderReader()
                check_world(scenario, world)
                problems += [source.problem(at, each.problem, each.remedy) for each in world.problems]
            except ValidationError as error:
                problems += [source.problem(at, text, remedy) for _, text, remedy in faults_of(error)]
    return problems


Excluded = list[dict[int, list[Any]]]


def _exclusions(
    source: PlanSource, dimensions: Sequence[VariationDimension], problems: list[Problem]
) -> Excluded:
    """The values by dimension of each exclusion."""
    names = {name: index for index, d in enumerate(dimensions) for name in (d.path, d.name)}
    exclusions: Excluded = []
    for number, entry in enumerate(source.data.get("exclude") or ()):
        matched: dict[int, list[Any]] = {}
        for name, value in entry.items():
            known = names.get(name, names.get(real_path(name)))
            if known is None:
                remedy = did_you_mean(name, names) or f"There are: {', '.join(d.name for d in dimensions)}."
                at = ("exclude", number, name)
                problems.append(source.problem(at, f"nothing called `{name}` is varied", remedy, of_key=True))
            else:
                matched[known] = value if isinstance(value, list) else [value]
        exclusions.append(matched)
    return exclusions


def _combinations(
    source: PlanSource, dimensions: Sequence[VariationDimension], excluded: Excluded, problems: list[Problem]
) -> Iterator[tuple[Any, ...]]:
    lengths = [len(dimension.values) for dimension in dimensions]
    zipped = source.data.get("combine") == "zip"
    if zipped and len(set(lengths)) > 1:
        sizes = ", ".join(f"{d.name} {len(d.values)}" for d in dimensions)
        problems.append(source.problem(("combine",), f"to be zipped, all need as many values: {sizes}"))
        return
    total = (lengths[0] if lengths else 1) if zipped else math.prod(lengths)
    sample = source.data.get("sample")
    if sample is None and total > MOST_VARIATIONS:
        remedy = f"At most {MOST_VARIATIONS:,} are run. Add `sample: 500` to draw some of them."
        problems.append(source.problem(("variations",), f"these come to {total:,} variations", remedy))
        return
    for index in _positions(source, total, sample, dimensions, excluded, zipped):
        yield _values(dimensions, index, zipped)


def _positions(
    source: PlanSource,
    total: int,
    sample: int | None,
    dimensions: Sequence[VariationDimension],
    excluded: Excluded,
    zipped: bool,
) -> Iterator[int]:
    def stays(index: int) -> bool:
        values = _values(dimensions, index, zipped)
        return not any(exclusion and _matches(values, exclusion) for exclusion in excluded)

    if sample is None or sample >= total:
        yield from filter(stays, range(total))
        return
    chance = random.Random(f"sample|{source.data.get('seed') or 0}")
    drawn: set[int] = set()
    # Bounded: exclusions that match nearly everything would otherwise never end.
    for _ in range(max(1000, 50 * sample)):
        if len(drawn) == sample:
            break
        index = chance.randrange(total)
        if stays(index):
            drawn.add(index)
    yield from sorted(drawn)


def _values(dimensions: Sequence[VariationDimension], index: int, zipped: bool) -> tuple[Any, ...]:
    if zipped:
        return tuple(dimension.values[index] for dimension in dimensions)
    chosen: list[Any] = []
    for dimension in reversed(dimensions):
        index, position = divmod(index, len(dimension.values))
        chosen.append(dimension.values[position])
    return tuple(reversed(chosen))


def _matches(values: tuple[Any, ...], exclusion: Mapping[int, list[Any]]) -> bool:
    return all(values[index] in among for index, among in exclusion.items())


def _variation(number: int, dimensions: Sequence[VariationDimension], values: tuple[Any, ...]) -> Variation:
    pairs = list(zip(dimensions, values, strict=True))
    parts = [f"{d.name}={_without_vendor(d, value)}" for d, value in pairs]
    return Variation(
        number=number,
        description=", ".join(parts) or BASE,
        changes={d.path: value for d, value in pairs},
        factors={d.name: value if isinstance(value, str) else _short(value) for d, value in pairs},
        origins={d.path: (*d.at, _position(d.values, value)) for d, value in pairs},
    )


def _position(values: Sequence[Any], value: Any) -> int:
    """The position of a value in a list where 1, 1.0 and true differ."""
    return next(
        (index for index, each in enumerate(values) if each == value and type(each) is type(value)), 0
    )


def _without_vendor(dimension: VariationDimension, value: Any) -> str:
    text = _short(value)
    return text.rpartition("/")[2] if dimension.path.endswith("llm_model") else text


def _short(value: Any) -> str:
    return shortened(" ".join(str(value).split()), LONGEST_VALUE)
