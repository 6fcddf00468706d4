"""An experiment: a scenario, what is varied in it, how often each variation runs, and the items of all that.

    experiment_name: Model Comparison Study
    base_scenario: scenarios/harbour-fee
    runs_per_variation: 10
    variations:
      - {type: actor_model, actor: port, values: [openai/gpt-4o-mini, anthropic/claude-3-haiku]}
      - {type: scenario_parameter, parameter: turns, values: [3, 6]}

Run `n` of every variation has the same seed, so that variations can be compared pair by pair.

Knows nothing of models, stores or how a scenario is played.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from proctor.errors import PlanError, Problem
from proctor.item import Item
from proctor.jobs.scenario.reader import LoadedScenario, read_scenario
from proctor.jobs.scenario.schema import ExperimentConfig, vocabulary
from proctor.jobs.scenario.variations import Variation, expand_variations
from proctor.plan import source as sources
from proctor.plan.criteria import judge_models, judges_of
from proctor.plan.source import PlanSource, bytes_of
from proctor.plan.validate import check_shape
from proctor.plan.yaml_loader import read_source
from proctor.scenario.definition import Scenario, changed, flattened, scenario_of

DEFAULT_TIMEOUT_SECONDS = 1800


KEPT_SCENARIO = "base-scenario"
"""The copy of the scenario in the experiment's own folder: with it the folder can be resumed anywhere."""


STATE = "batch-state.json"


STAND_INS = ("scripted/", "replay/")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOverrides:
    """What the command line says in place of the config. None: the config decides."""

    max_parallel: int | None = None
    budget_usd: float | None = None
    human: str | None = None


@dataclass(frozen=True)
class Experiment:
    """A config whose every setting is right. `read_experiment` makes them."""

    source: PlanSource
    path: Path
    loaded: LoadedScenario
    output: Path
    """Where all files go."""
    variations: Sequence[Variation]
    """In order, the last dimension fastest; one without changes when nothing is varied."""
    limits: ExperimentOverrides = field(default_factory=ExperimentOverrides)
    bases: Sequence[Path] = ()
    """Where relative paths may start from, the first that leads somewhere."""
    judges: Sequence[Mapping[str, Any]] = ()
    """Who judges each run as it ends."""

    @property
    def name(self) -> str:
        return str(self._get("experiment_name"))

    @property
    def text(self) -> str:
        """The config as it was written."""
        return self.source.text

    @property
    def resume_from(self) -> Path | None:
        """The folder of another experiment, whose runs that are the same are taken over."""
        given = self._get("resume_from")
        return None if given is None else _found(Path(str(given)).expanduser(), self.bases)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def seed(self) -> int:
        return int(self._get("seed", 0))

    @property
    def runs_per_variation(self) -> int:
        return int(self._get("runs_per_variation", 1))

    @property
    def max_parallel(self) -> int:
        return self.limits.max_parallel or int(self._get("max_parallel", 1))

    @property
    def budget_usd(self) -> float | None:
        """None: no limit."""
        given: float | None = self._get("budget_limit")
        return given if self.limits.budget_usd is None else self.limits.budget_usd

    @property
    def cost_per_run_usd(self) -> float | None:
        given: float | None = self._get("cost_per_run_limit")
        return given

    @property
    def human(self) -> str:
        """Where people who play an actor are asked: `terminal`, or `web` for any other process."""
        return self.limits.human or str(self._get("human", "terminal"))

    @property
    def aggregates(self) -> bool:
        """Whether the runs are analysed at the end."""
        return bool(self._get("aggregate_metrics", True))

    @property
    def prices(self) -> Mapping[str, Mapping[str, float]]:
        given = self._get("prices") or {}
        return {model: {k: v for k, v in price.items() if v is not None} for model, price in given.items()}

    @property
    def run_count(self) -> int:
        return len(self.variations) * self.runs_per_variation

    @property
    def options(self) -> dict[str, Any]:
        """What the record keeps besides the text: enough to write every file again."""
        return {
            "notify": self._get("notify"),
            "prices": dict(self.prices),
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

    def items(self, numbers: Mapping[str, int] | None = None) -> Iterator[Item]:
        """The runs, variation by variation.

        `numbers` are the variations that an earlier state of the config has numbered, by their
        digest; they keep their number, and new ones get those behind.
        """
        for number, variation, first in self._numbered(numbers or {}):
            factors = {**variation.factors, "variation": f"var-{number:03d}"}
            for run in range(1, self.runs_per_variation + 1):
                settings = {**first.settings, **self._of_run(number, run)}
                # What is asked is one mapping for all of them: there may be many.
                yield replace(first, settings=settings, factors=factors, repeat=run)

    def renumbered(self, numbers: Mapping[str, int]) -> "Experiment":
        """The same, its variations with the numbers that `items` would give them."""
        numbered = [replace(one, number=number) for number, one, _ in self._numbered(numbers)]
        return replace(self, variations=sorted(numbered, key=lambda one: one.number))

    def problem(self, path: sources.KeyPath, problem: str, remedy: str = "") -> Problem:
        """Something wrong with the config, found by those who know more than it."""
        return self.source.problem(path, problem, remedy)

    def model_problem(self, model: str, problem: str, remedy: str = "") -> Problem:
        """Something wrong with a model, at the place that names it: a variation, an actor, the scenario."""
        for index, entry in enumerate(self._entries()):
            for position, value in enumerate(entry.get("values") or ()):
                if value == model:
                    return self.problem(("variations", index, "values", position), problem, remedy)
        if model in judge_models(self.judges) and model not in self.loaded.scenario.models:
            return self.problem(("judge_model",), problem, remedy)
        return self.loaded.problem(_named_at(self.loaded.scenario, model), problem, remedy)

    def _entries(self) -> list[dict[str, Any]]:
        written = self._get("variations") or []
        return written if isinstance(written, list) else []

    def _numbered(self, known: Mapping[str, int]) -> Iterator[tuple[int, Variation, Item]]:
        following = max(known.values(), default=0)
        for variation in self.variations:
            first = self._first(variation)
            number = known.get(first.digest)
            if number is None:
                number = following = following + 1
            yield number, variation, first

    def _first(self, variation: Variation) -> Item:
        """The first run of a variation, but for what its number decides."""
        plain = changed(self.loaded.plain, variation.changes)
        settings: dict[str, Any] = {
            "variation": variation.description,
            "scenario": str(self.output / f"{KEPT_SCENARIO}.json"),
            "changes": dict(variation.changes),
            "timeoutSec": self._timeout_seconds(plain),
            "retries": self._get("retries", 1),
            "saveIndividualRuns": bool(self._get("save_individual_runs", True)),
            "oneCallAtATime": self.budget_usd is not None or self.cost_per_run_usd is not None,
            "tags": [],
            **({"evaluators": list(self.judges)} if self.judges else {}),
        }
        if self.cost_per_run_usd is not None:
            settings |= {"budget": self.cost_per_run_usd, "haltAtLimit": True}
        branch = self._get("branch")
        return Item(
            runner="scenario",
            prompt=str(plain["name"]),
            model=_models(scenario_of(plain).models),
            details={**flattened(plain), "seed": self.seed, **({"branch": branch} if branch else {})},
            settings=settings,
        )

    def _of_run(self, number: int, run: int) -> dict[str, Any]:
        label = f"var-{number:03d}-run-{run:03d}"
        return {"folder": str(self.output / "runs" / label), "label": label, "variationId": number}

    def _timeout_seconds(self, plain: Mapping[str, Any]) -> float | None:
        """People take their time; only a limit that was written down holds for them."""
        has_human = any(actor.get("control") == "human" for actor in plain["actors"].values())
        given: float | None = self._get("timeout_per_run", None if has_human else DEFAULT_TIMEOUT_SECONDS)
        return given

    def _get(self, name: str, default: Any = None) -> Any:
        value = self.source.data.get(name)
        return default if value is None else value


def read_experiment(
    text: str | bytes, *, path: Path, working_folder: Path, limits: ExperimentOverrides | None = None
) -> Experiment:
    """Read and check a config and the scenario it names, before anything is started.

    Relative paths in it start from the working folder, as the commands in its own comments do; from
    the config's folder or one above when they lead nowhere from there. Raises `PlanError`.
    """
    source = read_source(text, file=str(path))
    shape = check_shape(source, ExperimentConfig, vocabulary)
    if shape.problems:
        sources.refuse(shape.problems)
    base, folder = _scenario_folder(source, path, working_folder)
    loaded = read_scenario(folder)
    variations, problems = expand_variations(source, loaded)
    judges, misnamed = judges_of(source, loaded.scenario.world_state_model)
    if problems or misnamed:
        sources.refuse([*problems, *misnamed])
    output = _output(source, path, base)
    bases = (working_folder, path.parent, *path.parent.parents)
    made = Experiment(
        source, path, loaded, output, variations, limits or ExperimentOverrides(), bases, judges
    )
    if made.resume_from is not None and not (made.resume_from / "runs").is_dir():
        problem = f"{made.resume_from} holds no runs"
        sources.refuse([made.problem(("resume_from",), problem, "Name the folder of an experiment.")])
    _refuse_twins(made)
    return made


def read_config(path: Path) -> bytes:
    """The text of a config file, or of the one in a folder."""
    if path.is_dir():
        path = path / "batch-config.yaml"
    return bytes_of(path, "the config", remedy="Give a YAML file.")


def slug_of(name: str) -> str:
    """A name as it may stand in paths and ids."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or "experiment"


def _scenario_folder(source: PlanSource, path: Path, working_folder: Path) -> tuple[Path, Path]:
    """What relative paths start from, and the scenario's folder."""
    written = Path(str(source.data["base_scenario"])).expanduser()
    for base in (working_folder, path.parent, *path.parent.parents):
        if (base / written).is_dir():
            return base, base / written
    # Taken to another machine, the experiment's folder has all it needs.
    kept = path.parent / KEPT_SCENARIO
    if kept.is_dir():
        return working_folder, kept
    problem = f"there is no folder {written}"
    remedy = f"It was looked for in {working_folder}, in {path.parent} and above."
    raise PlanError([source.problem(("base_scenario",), problem, remedy)])


def _found(written: Path, bases: Sequence[Path]) -> Path:
    return next((base / written for base in bases if (base / written).is_dir()), written)


def _output(source: PlanSource, path: Path, base: Path) -> Path:
    written = source.data.get("output_dir") or f"experiments/{slug_of(source.data['experiment_name'])}"
    output = (base / Path(written).expanduser()).absolute()
    if not output.exists() and (path.parent / STATE).is_file():
        return path.parent
    return output


def _models(models: Sequence[str]) -> str:
    """The models of a run in one word; a run that rehearses in part is a rehearsal."""
    return ", ".join(sorted(models, key=lambda model: (not model.startswith(STAND_INS), model)))


def _named_at(scenario: Scenario, model: str) -> str:
    """The path of the setting of a scenario that names a model."""
    for short, actor in scenario.actors.items():
        if actor.llm_model == model:
            return f"actors.{short}.llm_model"
    for name, measure in scenario.metrics.items():
        if measure.model == model:
            return f"metrics.{name}.model"
    if scenario.validation and scenario.validation.validation_model == model:
        return "validation.validation_model"
    is_summary = model == scenario.summarization_model != scenario.world_state_model
    return "summarization_model" if is_summary else "world_state_model"


def _refuse_twins(experiment: Experiment) -> None:
    """Two variations that come to the same scenario would be one item with two names."""
    seen: dict[str, Variation] = {}
    for variation in experiment.variations:
        digest = experiment._first(variation).digest
        if digest in seen:
            problem = f"`{seen[digest].description}` and `{variation.description}` are the same scenario"
            sources.refuse([experiment.problem(("variations",), problem, "Remove one of the values.")])
        seen[digest] = variation
