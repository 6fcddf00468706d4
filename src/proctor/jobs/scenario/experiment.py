"""An experiment: a scenario, its variations, the number of runs of each, and the items that result.

    experiment_name: Model Comparison Study
    base_scenario: scenarios/harbour-fee
    runs_per_variation: 10
    variations:
      - {type: actor_model, actor: port, values: [openai/gpt-4o-mini, anthropic/claude-3-haiku]}
      - {type: scenario_parameter, parameter: turns, values: [3, 6]}

Run `n` of every variation has the same seed, so that variations can be compared pair by pair.
"""

import hashlib
import json
import math
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from proctor.context import ModelOptions
from proctor.errors import PlanError, Problem, UsageError
from proctor.item import Item, digest_of
from proctor.jobs.scenario.reader import (
    ACTOR_ALIASES,
    ALIASES,
    LoadedScenario,
    check_world,
    faults_of,
    read_scenario,
)
from proctor.jobs.scenario.reader_rules import FolderReader
from proctor.json_values import JsonMap, changed, without_none
from proctor.plan import source as sources
from proctor.plan.criteria import as_entry, judge_models, judges_of
from proctor.plan.source import KeyPath, PlanSource, bytes_of, shortened
from proctor.plan.validate import (
    Anything,
    ExcludeWhen,
    Flag,
    MessageWriter,
    ModelPrice,
    OutagePatience,
    PlanResources,
    PlanSandbox,
    ProviderService,
    Seconds,
    Sections,
    Seed,
    StopWhen,
    Text,
    Usd,
    check_shape,
    did_you_mean,
    overrides_of,
    sections_of,
    stop_settings,
)
from proctor.plan.yaml_loader import read_source
from proctor.scenario.definition import (
    Actor,
    NoSuchPath,
    check_path,
    flattened,
    names_of,
    run_inputs,
    scenario_of,
)


class _ExperimentModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ConditionEntry(_ExperimentModel):
    """One level of a factor that sets several values."""

    label: Text
    set: Annotated[dict[str, Anything], Field(min_length=1)]


class VariationEntry(_ExperimentModel):
    """One dimension of the variations: values of one path, or conditions that set several."""

    type: Literal["actor_model", "scenario_parameter", "actor_parameter"] | None = None
    name: Text | None = None
    actor: Text | None = None
    parameter: Text | None = None
    values: Annotated[list[Anything], Field(min_length=1)] | None = None
    """A value, or `{label: …, value: …}`."""
    conditions: Annotated[list[ConditionEntry], Field(min_length=1)] | None = None


class Shorthand(_ExperimentModel):
    """`actor_models: {port: [a, b]}`, and parameters likewise."""

    actor_models: dict[str, Annotated[list[Anything], Field(min_length=1)]] | None = None
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
    record: Text | None = None
    replay: Text | None = None
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
    exclude_when: ExcludeWhen | None = None
    sandbox: PlanSandbox = None
    outage_patience: OutagePatience = None
    service: ProviderService = None
    resources: PlanResources = None


vocabulary = sections_of(ExperimentConfig, "config")


# Dimensions, and the combinations of their values: all, last dimension fastest, or values paired by position
# (`combine: zip`), without exclusions; or a seeded sample (`sample`), which does not enumerate the rest.


MOST_VARIATIONS = 100_000
BASE = "Base configuration"
LONGEST_VALUE = 40


RESERVED_NAMES = ("variation", "scenario version")
"""Factors that every run has or may get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorLevel:
    """One level of a dimension."""

    label: str
    """Its name in tables and figures."""
    text: str
    """Its name in the description of a variation."""
    value: Any
    """What `exclude` may name in place of the label; None for conditions."""
    changes: Mapping[str, Any]
    """By path."""
    origins: Mapping[str, KeyPath]
    """Place of each changed value in the config, by path."""
    at: KeyPath
    """Its place in the config."""

    def is_named(self, value: Any) -> bool:
        """Whether an exclusion means this level: by its value or its label."""
        return bool(self.value is not None and self.value == value) or value == self.label


@dataclass(frozen=True, slots=True, kw_only=True)
class VariationDimension:
    """One dimension: a factor with its levels."""

    name: str
    """As configured; else an actor's short name, where its model is varied, or the path."""
    path: str
    """The path that its values set; empty: it has conditions."""
    levels: Sequence[FactorLevel]

    @property
    def paths(self) -> set[str]:
        """All paths that its levels set."""
        return {path for level in self.levels for path in level.changes}


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


def expand_variations(
    source: PlanSource, loaded: LoadedScenario
) -> tuple[list[VariationDimension], list[Variation], list[Problem]]:
    """The dimensions and variations of a config, and all problems with them."""
    dimensions, problems = _dimensions(source, loaded)
    is_whole = not problems
    problems += _values_that_cannot_be(source, loaded, dimensions)
    if not is_whole:
        # Exclusions may refer to the dimensions that could not be read.
        return [], [], problems
    excluded = _exclusions(source, dimensions, problems)
    if problems:
        return [], [], problems
    combinations = list(_combinations(source, dimensions, excluded, problems))
    if not combinations and not problems:
        problems.append(source.problem(("exclude",), "everything is excluded", of_key=True))
    variations = [_variation(number, dimensions, values) for number, values in enumerate(combinations, 1)]
    return dimensions, variations, problems


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
        varied = {path for other in dimensions for path in other.paths} & dimension.paths
        problems += [source.problem(at, f"`{path}` is varied twice") for path in sorted(varied)]
        if dimension.name in (*(other.name for other in dimensions), *RESERVED_NAMES) and not varied:
            remedy = "Give each factor its own `name`."
            problems.append(source.problem(at, f"the name `{dimension.name}` is taken", remedy))
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
    kind, actor, parameter = entry.get("type"), entry.get("actor"), entry.get("parameter")
    conditions, values = entry.get("conditions"), entry.get("values")
    if (values is None) == (conditions is None) or (kind is None) == (conditions is None):
        problem = "a variation has either a `type` with `values`, or `conditions`"
        problems.append(source.problem(at, problem, "See docs/scenarios.md, Experiments."))
        return None
    if conditions is not None:
        return _conditions(source, loaded, at, entry, problems)
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
    if not _is_path(source, loaded, (*at, "parameter"), path, problems):
        return None
    is_short = "actor_models" in at or "scenario_parameters" in at
    values_at: KeyPath = at if is_short else (*at, "values")
    levels = _levels(path, values or (), values_at)
    return VariationDimension(name=_line(entry.get("name") or name), path=path, levels=levels)


def _conditions(
    source: PlanSource, loaded: LoadedScenario, at: KeyPath, entry: Mapping[str, Any], problems: list[Problem]
) -> VariationDimension | None:
    if not entry.get("name"):
        problems.append(source.problem(at, "`conditions` need a `name`", "Add `name: regime`."))
        return None
    levels, is_whole = list[FactorLevel](), True
    for index, condition in enumerate(entry["conditions"]):
        place: KeyPath = (*at, "conditions", index)
        origins = {real_path(written): (*place, "set", written) for written in condition["set"]}
        changes = {real_path(written): value for written, value in condition["set"].items()}
        for path, origin in origins.items():
            is_whole = _is_path(source, loaded, origin, path, problems) and is_whole
        label = _line(condition["label"])
        levels.append(
            FactorLevel(label=label, text=label, value=None, changes=changes, origins=origins, at=place)
        )
    return VariationDimension(name=_line(entry["name"]), path="", levels=levels) if is_whole else None


def _is_path(
    source: PlanSource, loaded: LoadedScenario, at: KeyPath, path: str, problems: list[Problem]
) -> bool:
    try:
        check_path(loaded.plain, path)
    except NoSuchPath as missing:
        remedy = did_you_mean(missing.name, missing.known) or f"There are: {', '.join(missing.known)}."
        problem = f"{missing.where} has no `{missing.name}`"
        problems.append(source.problem(at, problem, remedy))
        return False
    return True


def _levels(path: str, values: Sequence[Any], at: KeyPath) -> list[FactorLevel]:
    """The values of a path as levels: `{label: …, value: …}`, or plain values, which are their own labels."""
    levels, used = list[FactorLevel](), Counter[str]()
    for index, written in enumerate(values):
        place: KeyPath = (*at, index)
        if isinstance(written, dict) and set(written) == {"label", "value"}:
            value, origin = written["value"], (*place, "value")
            label = text = _line(str(written["label"]))
        else:
            value, origin = written, place
            label, text = value if isinstance(value, str) else _short(value), _short(value)
            used[label] += 1
            if used[label] > 1 and not isinstance(value, str):
                # Long lists may begin alike.
                label = text = f"{label} ({used[label]})"
            text = text.rpartition("/")[2] if path.endswith("llm_model") else text
        changes, origins = {path: value}, {path: origin}
        levels.append(
            FactorLevel(label=label, text=text, value=value, changes=changes, origins=origins, at=place)
        )
    return levels


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
        for index, level in enumerate(dimension.levels):
            at, value = level.at, level.value
            shown = level.text if value is None else _short(value)
            before = dimension.levels[:index]
            if any(level.changes == other.changes and type(value) is type(other.value) for other in before):
                problems.append(source.problem(at, f"`{shown}` stands in this list twice"))
            elif any(level.label == other.label for other in before):
                problems.append(source.problem(at, f"the label `{level.text}` stands in this list twice"))
            if value == "" and dimension.path.endswith(".llm_model"):
                problems.append(source.problem(at, "a model has a name", "Write `provider/model`."))
                continue
            try:
                scenario = scenario_of(changed(loaded.plain, level.changes))
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
    names = {name: index for index, d in enumerate(dimensions) for name in (d.path, d.name) if name}
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
) -> Iterator[tuple[FactorLevel, ...]]:
    lengths = [len(dimension.levels) for dimension in dimensions]
    zipped = source.data.get("combine") == "zip"
    if zipped and len(set(lengths)) > 1:
        sizes = ", ".join(f"{d.name} {len(d.levels)}" for d in dimensions)
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


def _values(dimensions: Sequence[VariationDimension], index: int, zipped: bool) -> tuple[FactorLevel, ...]:
    if zipped:
        return tuple(dimension.levels[index] for dimension in dimensions)
    chosen: list[FactorLevel] = []
    for dimension in reversed(dimensions):
        index, position = divmod(index, len(dimension.levels))
        chosen.append(dimension.levels[position])
    return tuple(reversed(chosen))


def _matches(levels: tuple[FactorLevel, ...], exclusion: Mapping[int, list[Any]]) -> bool:
    return all(any(levels[index].is_named(value) for value in among) for index, among in exclusion.items())


class CurrentNames:
    """Names of variations as their config has them now: stored items keep those they were started with."""

    def __init__(self, factors: Sequence[Mapping[str, Any]]) -> None:
        """`factors` are those of `Experiment.columns`."""
        self._levels: dict[str, dict[tuple[str, ...], dict[str, Mapping[str, Any]]]] = {}
        for factor in factors:
            by_paths = self._levels.setdefault(factor["name"], {})
            for level in factor["levels"]:
                paths = tuple(sorted(level["changes"]))
                by_paths.setdefault(paths, {})[_values_at(paths, level["changes"])] = level

    def of(self, changes: Mapping[str, Any]) -> tuple[str, dict[str, str]] | None:
        """The description and the levels of a variation. None: the config does not have it any more."""
        chosen: dict[str, Mapping[str, Any]] = {}
        for name, by_paths in self._levels.items():
            for paths, levels in by_paths.items():
                if changes.keys() >= set(paths) and (level := levels.get(_values_at(paths, changes))):
                    chosen[name] = level
        covered = {path for level in chosen.values() for path in level["changes"]}
        if len(chosen) != len(self._levels) or covered != changes.keys():
            return None
        description = ", ".join(f"{name}={level['text']}" for name, level in chosen.items())
        return description or BASE, {name: level["label"] for name, level in chosen.items()}


def _values_at(paths: Sequence[str], changes: Mapping[str, Any]) -> str:
    return json.dumps([changes[path] for path in paths], default=str, sort_keys=True)


def _variation(
    number: int, dimensions: Sequence[VariationDimension], levels: tuple[FactorLevel, ...]
) -> Variation:
    pairs = list(zip(dimensions, levels, strict=True))
    return Variation(
        number=number,
        description=", ".join(f"{d.name}={level.text}" for d, level in pairs) or BASE,
        changes={path: value for level in levels for path, value in level.changes.items()},
        factors={d.name: level.label for d, level in pairs},
        origins={path: at for level in levels for path, at in level.origins.items()},
    )


def _line(text: str) -> str:
    """A name or label in one line."""
    return " ".join(text.split())


def _short(value: Any) -> str:
    return shortened(_line(str(value)), LONGEST_VALUE)


# The experiment.


DEFAULT_TIMEOUT_SECONDS = 1800
CONFIG, STATE = "batch-config.yaml", "batch-state.json"
KEPT_SCENARIO = "base-scenario"
"""The copy of the scenario in the experiment's own folder: with it the folder can be resumed anywhere."""
STAND_INS = ("scripted/", "replay/")
"""Prefixes of mock models."""


class ExperimentOverrides(overrides_of(ExperimentConfig)):  # type: ignore[misc]  # made from it
    """Run-time settings that take precedence over the config. None: the config decides."""


@dataclass(frozen=True)
class Experiment:
    """A valid config with its scenario. `read_experiment` makes them."""

    source: PlanSource
    path: Path
    loaded: LoadedScenario
    output: Path
    """Folder of all files."""
    variations: Sequence[Variation]
    """In order, the last dimension fastest; one without changes when nothing is varied."""
    overrides: JsonMap = field(default_factory=dict)
    """Settings that take precedence over those of the config."""
    bases: Sequence[Path] = ()
    """Where relative paths may start; the first that exists is taken."""
    judges: Sequence[Mapping[str, Any]] = ()
    """Evaluators that score each run as it ends."""
    dimensions: Sequence[VariationDimension] = ()

    @property
    def name(self) -> str:
        return str(self._get("experiment_name"))

    @cached_property
    def scenario_digest(self) -> str:
        """The digest by which its runs refer to the scenario."""
        return digest_of(self.loaded.plain)

    @property
    def resume_from(self) -> Path | None:
        """The folder of another experiment, whose identical runs are imported."""
        value = self._get("resume_from")
        return None if value is None else _resolved(Path(str(value)).expanduser(), self.bases)

    @property
    def seed(self) -> int:
        """The seed from which the seeds of the runs are drawn."""
        return int(self._get("seed", 0))

    @property
    def runs_per_variation(self) -> int:
        return int(self._get("runs_per_variation", 1))

    @property
    def max_parallel(self) -> int:
        """Maximum runs in parallel."""
        return int(self._get("max_parallel", 1))

    @property
    def budget_usd(self) -> float | None:
        """Budget of the whole experiment; None: no limit."""
        value: float | None = self._get("budget_limit")
        return value

    @property
    def cost_per_run_usd(self) -> float | None:
        """Cost limit of one run; None: no limit."""
        value: float | None = self._get("cost_per_run_limit")
        return value

    @property
    def human(self) -> str:
        """Where people who play an actor are asked: `terminal`, or `web` for any other process."""
        return str(self._get("human", "terminal"))

    @property
    def stop_when(self) -> dict[str, object] | None:
        """Settings of the rule to stop early; None: it runs to its end."""
        return stop_settings(self._get("stop_when"))

    @property
    def model_options(self) -> ModelOptions:
        """How its models are reached and its evaluators are confined, without folders."""
        prices = {model: without_none(price) for model, price in (self._get("prices") or {}).items()}
        options = ModelOptions.of_plan(self.source.data, ())
        return replace(
            options, prices=prices, record=_absolute(options.record), replay=_absolute(options.replay)
        )

    @property
    def run_count(self) -> int:
        return len(self.variations) * self.runs_per_variation

    @property
    def columns(self) -> dict[str, object]:
        """The columns of the batch row that record the experiment: with its options, enough to rewrite every
        file."""
        defaults = {
            "runsPerVariation": self.runs_per_variation,
            "concurrency": self.max_parallel,
            "variations": len(self.variations),
        }
        options: dict[str, Any] = {
            "notify": self._get("notify"),
            **self.model_options.stored(),
            "experiment": self.name,
            "description": self._get("description", ""),
            "baseScenario": str(self._get("base_scenario")),
            "output": str(self.output),
            "scenario": self.loaded.plain,
            "runsPerVariation": self.runs_per_variation,
            "costPerRunUsd": self.cost_per_run_usd,
            "human": self.human,
            "evaluators": [each["name"] for each in self.judges],
            **({"excludeWhen": rule} if (rule := self._get("exclude_when")) else {}),
            "aggregateMetrics": bool(self._get("aggregate_metrics", True)),
            "saveIndividualRuns": bool(self._get("save_individual_runs", True)),
        }
        if self.dimensions:
            options["factors"] = [
                {
                    "name": dimension.name,
                    "levels": [
                        {"label": level.label, "text": level.text, "changes": level.changes}
                        for level in dimension.levels
                    ],
                }
                for dimension in self.dimensions
            ]
        return {
            "planPath": str(self.path),
            "planText": self.source.text,
            "planDigest": hashlib.sha256(self.source.text.encode()).hexdigest(),
            "defaultsJson": json.dumps(defaults),
            "optionsJson": json.dumps(options, ensure_ascii=False),
            "concurrency": self.max_parallel,
            "seed": self.seed,
            "budgetUsd": self.budget_usd,
        }

    @property
    def models(self) -> list[str]:
        """Every model that a variation or an evaluator uses, once each."""
        return list(dict.fromkeys([*self._model_uses, *judge_models(self.judges)]))

    @cached_property
    def _model_uses(self) -> dict[str, tuple[str, Variation]]:
        """Every model that a run calls: the path of its setting, and the first variation that has it."""
        uses: dict[str, tuple[str, Variation]] = {}
        for variation in self.variations:
            scenario = scenario_of(changed(self.loaded.plain, variation.changes))
            for path, model in scenario.models_by_path.items():
                uses.setdefault(model, (path, variation))
        return uses

    def items(self, numbers: Mapping[str, int] | None = None) -> Iterator[Item]:
        """The runs, variation by variation.

        `numbers` are the numbers of variations that an earlier state of the config had, by digest of their
        items: they are kept, and new variations get the numbers after them.
        """
        for number, variation, first in self._numbered(numbers or {}):
            factors = {**variation.factors, "variation": f"var-{number:03d}"}
            for run in range(1, self.runs_per_variation + 1):
                settings = {**first.settings, **self._of_run(number, run)}
                # All runs share the mapping of inputs: there may be many runs.
                yield replace(first, settings=settings, factors=factors, repeat=run)

    def renumbered(self, numbers: Mapping[str, int]) -> "Experiment":
        """The same experiment, its variations with the numbers that `items` gives them."""
        numbered = [replace(one, number=number) for number, one, _ in self._numbered(numbers)]
        return replace(self, variations=sorted(numbered, key=lambda one: one.number))

    def problem(self, path: sources.KeyPath, problem: str, remedy: str = "") -> Problem:
        """A problem at a place in the config."""
        return self.source.problem(path, problem, remedy)

    def model_problem(self, model: str, problem: str, remedy: str = "") -> Problem:
        """A problem with a model, at the place that makes a run use it."""
        use = self._model_uses.get(model)
        if use is None:
            return self._judge_problem(model, problem, remedy)
        path, variation = use
        changed_at = [each for each in variation.origins if path == each or path.startswith(f"{each}.")]
        if changed_at:
            return self.problem(variation.origins[max(changed_at, key=len)], problem, remedy)
        return self.loaded.problem(path, problem, remedy)

    def _judge_problem(self, model: str, problem: str, remedy: str) -> Problem:
        """A problem with a model that only evaluators use."""
        for index, entry in enumerate(self._get("evaluators") or ()):
            if isinstance(entry, dict) and entry.get("model") == model:
                return self.problem(("evaluators", index, "model"), problem, remedy)
        if self._get("judge_model") == model:
            return self.problem(("judge_model",), problem, remedy)
        return self.loaded.problem("world_state_model", problem, remedy)

    def _numbered(self, known: Mapping[str, int]) -> Iterator[tuple[int, Variation, Item]]:
        following = max(known.values(), default=0)
        for variation in self.variations:
            first = self._first(variation)
            before = self._as_before(variation, first)
            first = before if before.digest in known else first
            number = known.get(first.digest)
            if number is None:
                number = following = following + 1
            yield number, variation, first

    def _first(self, variation: Variation) -> Item:
        """The first run of a variation, without the settings that depend on its number."""
        plain = changed(self.loaded.plain, variation.changes)
        settings: dict[str, Any] = {
            "variation": variation.description,
            "scenario": str(self.output / f"{KEPT_SCENARIO}.json"),
            "scenarioDigest": self.scenario_digest,
            "changes": dict(variation.changes),
            "timeoutSec": self._timeout_seconds(plain),
            "retries": self._get("retries", 1),
            "saveIndividualRuns": bool(self._get("save_individual_runs", True)),
            "oneCallAtATime": self.budget_usd is not None or self.cost_per_run_usd is not None,
            "tags": [],
            **({"evaluators": list(self.judges)} if self.judges else {}),
        }
        if resources := self._get("resources"):
            settings["resources"] = resources
        if self.cost_per_run_usd is not None:
            halts = self._get("on_run_limit", "halt") == "halt"
            settings |= {"budget": self.cost_per_run_usd, "haltAtLimit": halts}
        branch = self._get("branch")
        return Item(
            runner="scenario",
            prompt=str(plain["name"]),
            model=_models(scenario_of(plain).models),
            details={
                **run_inputs(plain, variation.changes),
                "seed": self.seed,
                **({"branch": branch} if branch else {}),
            },
            settings=settings,
        )

    def _as_before(self, variation: Variation, first: Item) -> Item:
        """The first run of a variation as earlier versions know it: with the patterns of outcomes."""
        return replace(
            first, details={**flattened(changed(self.loaded.plain, variation.changes)), **first.details}
        )

    def digests(self) -> Iterator[tuple[str, str]]:
        """The digests by which the runs of each variation are known: now, and to earlier versions."""
        for variation in self.variations:
            first = self._first(variation)
            yield first.digest, self._as_before(variation, first).digest

    def _of_run(self, number: int, run: int) -> dict[str, Any]:
        return {"label": f"var-{number:03d}-run-{run:03d}", "variationId": number}

    def _timeout_seconds(self, plain: Mapping[str, Any]) -> float | None:
        """No default where people play actors: they take their time."""
        has_human = any(actor.get("control") == "human" for actor in plain["actors"].values())
        value: float | None = self._get("timeout_per_run", None if has_human else DEFAULT_TIMEOUT_SECONDS)
        return value

    def _get(self, name: str, default: Any = None) -> Any:
        value = self.overrides.get(name, self.source.data.get(name))
        return default if value is None else value


def read_experiment(
    text: str | bytes,
    *,
    path: Path,
    working_folder: Path,
    overrides: JsonMap | None = None,
    file: str = "",
) -> Experiment:
    """Read and check a config and the scenario it names. Raises `PlanError` with every problem.

    Relative paths start from the working folder; when nothing is there, from the config's folder or one
    above. `file` is the name of the config in messages; its path by default.
    """
    source = read_source(text, file=file or str(path))
    shape = check_shape(source, ExperimentConfig, vocabulary)
    invalid = {key_path[0] for key_path in shape.paths if key_path}
    if not isinstance(source.data, dict) or "base_scenario" in invalid:
        sources.refuse(shape.problems)
    # What is invalid is reported, and left out of the further checks.
    valid = replace(source, data={key: value for key, value in source.data.items() if key not in invalid})
    problems = list(shape.problems)
    try:
        base, folder = _scenario_folder(valid, path, working_folder)
        loaded = read_scenario(folder)
    except PlanError as error:
        sources.refuse([*problems, *error.problems, *variation_problems(valid)])
    except UsageError as error:
        if not problems:
            raise
        sources.refuse([*problems, valid.problem(("base_scenario",), error.problem, error.remedy)])
    dimensions, variations, variation_faults = expand_variations(valid, loaded)
    judges, unknown = judges_of(valid, loaded.scenario.world_state_model)
    problems += [*variation_faults, *unknown]
    if problems:
        sources.refuse(problems)
    output = _output(source, path, base)
    bases = _bases(working_folder, path)
    experiment = Experiment(
        source, path, loaded, output, variations, overrides or {}, bases, judges, dimensions
    )
    earlier = experiment.resume_from
    if earlier is not None and not (earlier / "runs").is_dir():
        remedy = "Give the folder of an experiment."
        sources.refuse([experiment.problem(("resume_from",), f"{earlier} holds no runs", remedy)])
    _refuse_duplicates(experiment)
    return experiment


def read_config(path: Path) -> bytes:
    """The text of a config file, or of the config in an experiment's folder."""
    if path.is_dir():
        path = path / CONFIG
    return bytes_of(path, "the config", remedy="Give a YAML file.")


def _absolute(file: str | None) -> str | None:
    """The path of a file below the working folder; None: there is none."""
    return str(Path(file).expanduser().absolute()) if file else None


def slug_of(name: str) -> str:
    """A name in the form that paths and ids use."""
    return re.sub(r"[\W_]+", "-", unicodedata.normalize("NFC", name).lower()).strip("-")[:60] or "experiment"


def original_folder(written: str, config: Path) -> Path | None:
    """The folder of the scenario that a config names; None: there is none."""
    places = (base / Path(written).expanduser() for base in _bases(Path.cwd(), config))
    return next((place for place in places if place.is_dir()), None)


def _bases(working_folder: Path, config: Path) -> tuple[Path, ...]:
    """Where the relative paths of a config may start."""
    return (working_folder, config.parent, *config.parent.parents)


def _scenario_folder(source: PlanSource, path: Path, working_folder: Path) -> tuple[Path, Path]:
    """The base of relative paths, and the scenario's folder."""
    written = Path(str(source.data["base_scenario"])).expanduser()
    for base in _bases(working_folder, path):
        if (base / written).is_dir():
            return base, base / written
    # On another machine, the experiment's own folder has all it needs.
    copy = path.parent / KEPT_SCENARIO
    if copy.is_dir():
        return working_folder, copy
    problem = f"there is no folder {written}"
    remedy = f"It was looked for in {working_folder}, in {path.parent} and above."
    raise PlanError([source.problem(("base_scenario",), problem, remedy)])


def _resolved(written: Path, bases: Sequence[Path]) -> Path:
    return next((base / written for base in bases if (base / written).is_dir()), written)


def _output(source: PlanSource, path: Path, base: Path) -> Path:
    written = source.data.get("output_dir") or f"experiments/{slug_of(source.data['experiment_name'])}"
    output = (base / Path(written).expanduser()).absolute()
    if not output.exists() and (path.parent / STATE).is_file():
        return path.parent
    return output


def _models(models: Sequence[str]) -> str:
    """The models of a run in one text, mock models first: with one of them, the run is a mock run."""
    return ", ".join(sorted(models, key=lambda model: (not model.startswith(STAND_INS), model)))


def _refuse_duplicates(experiment: Experiment) -> None:
    """Two variations with the same scenario would be one item with two names."""
    variations: dict[str, Variation] = {}
    for variation in experiment.variations:
        digest = experiment._first(variation).digest
        if digest in variations:
            problem = (
                f"`{variations[digest].description}` and `{variation.description}` are the same scenario"
            )
            sources.refuse([experiment.problem(("variations",), problem, "Remove one of the values.")])
        variations[digest] = variation
