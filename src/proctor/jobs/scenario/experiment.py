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
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from proctor.context import ModelOptions
from proctor.errors import PlanError, Problem, UsageError
from proctor.item import Item, digest_of
from proctor.jobs.scenario.reader import LoadedScenario, read_scenario
from proctor.jobs.scenario.schema import ExperimentConfig, vocabulary
from proctor.jobs.scenario.variations import Variation, expand_variations, variation_problems
from proctor.json_values import JsonMap, changed
from proctor.plan import source as sources
from proctor.plan.criteria import judge_models, judges_of
from proctor.plan.source import PlanSource, bytes_of
from proctor.plan.validate import check_shape, overrides_of, stop_settings
from proctor.plan.yaml_loader import read_source
from proctor.scenario.definition import flattened, scenario_of

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

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self._get("experiment_name"))

    @cached_property
    def scenario_digest(self) -> str:
        """The digest by which its runs refer to the scenario."""
        return digest_of(self.loaded.plain)

    @property
    def text(self) -> str:
        """The text of the config."""
        return self.source.text

    @property
    def resume_from(self) -> Path | None:
        """The folder of another experiment, whose identical runs are imported."""
        value = self._get("resume_from")
        return None if value is None else _resolved(Path(str(value)).expanduser(), self.bases)

    @property
    def digest(self) -> str:
        """SHA-256 of the config's text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def seed(self) -> int:
        """The seed from which the seeds of the runs are drawn."""
        return int(self._get("seed", 0))

    @property
    def runs_per_variation(self) -> int:
        """Repeats of each variation."""
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
    def aggregates(self) -> bool:
        """Whether the runs are analyzed at the end."""
        return bool(self._get("aggregate_metrics", True))

    @property
    def prices(self) -> Mapping[str, Mapping[str, float]]:
        """USD per million tokens, by model."""
        prices = self._get("prices") or {}
        return {model: {k: v for k, v in price.items() if v is not None} for model, price in prices.items()}

    @property
    def model_options(self) -> ModelOptions:
        """How its models are reached and its evaluators are confined, without folders."""
        return replace(ModelOptions.of_plan(self.source.data, ()), prices=self.prices)

    @property
    def run_count(self) -> int:
        """Number of all runs."""
        return len(self.variations) * self.runs_per_variation

    @property
    def options(self) -> dict[str, Any]:
        """What the store keeps besides the text: enough to rewrite every file."""
        return {
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
            "aggregateMetrics": self.aggregates,
            "saveIndividualRuns": bool(self._get("save_individual_runs", True)),
        }

    @property
    def columns(self) -> dict[str, object]:
        """The columns of the batch row that record the experiment."""
        defaults = {
            "runsPerVariation": self.runs_per_variation,
            "concurrency": self.max_parallel,
            "variations": len(self.variations),
        }
        return {
            "planPath": str(self.path),
            "planText": self.text,
            "planDigest": self.digest,
            "defaultsJson": json.dumps(defaults),
            "optionsJson": json.dumps(self.options, ensure_ascii=False),
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
            details={**flattened(plain), "seed": self.seed, **({"branch": branch} if branch else {})},
            settings=settings,
        )

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
    variations, variation_faults = expand_variations(valid, loaded)
    judges, unknown = judges_of(valid, loaded.scenario.world_state_model)
    problems += [*variation_faults, *unknown]
    if problems:
        sources.refuse(problems)
    output = _output(source, path, base)
    bases = _bases(working_folder, path)
    experiment = Experiment(source, path, loaded, output, variations, overrides or {}, bases, judges)
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


def slug_of(name: str) -> str:
    """A name in the form that paths and ids use."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "experiment"


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
