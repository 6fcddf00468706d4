"""The scenario job: an experiment with variations of a scenario, or one scenario by itself."""

import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from proctor.batch.preflight import check_evaluators, check_model, mock_model_remark
from proctor.context import ModelOptions, RunContext, WorkerContext
from proctor.document import Document
from proctor.errors import NotFound, PlanError, Problem, UsageError
from proctor.evaluator import Evaluator
from proctor.formatting import plural
from proctor.item import QUEUED, SCENARIO, Item, id_of
from proctor.job import (
    Job,
    JobPlan,
    NewRun,
    PlanText,
    ReadPlan,
    ResumedPlan,
    RunDocuments,
    RunView,
    Starter,
    StoredPlan,
)
from proctor.jobs.scenario.experiment import (
    CONFIG,
    KEPT_SCENARIO,
    STATE,
    Experiment,
    ExperimentConfig,
    ExperimentOverrides,
    original_folder,
    read_config,
    read_experiment,
    slug_of,
)
from proctor.jobs.scenario.folder import (
    JOB_NAME,
    ExperimentFolder,
    ImportedRuns,
    run_from_store,
    variation_numbers,
)
from proctor.jobs.scenario.reader import scenario_folders
from proctor.json_values import without_none
from proctor.models import ModelRouter, is_mock
from proctor.plan.yaml_loader import read_source
from proctor.scenario.run_files import read_run
from proctor.scenario.state import HALTED, ScenarioRun, turn_as_plain
from proctor.stop_rule import StopRule, make_stop_rule
from proctor.store import Resource, Store
from proctor.store.items import status_counts
from proctor.store.runs import batches_of_job
from proctor.store.tables import ItemRow


@dataclass(frozen=True, kw_only=True)
class ScenarioPlan(JobPlan):
    """An experiment, and how its run begins."""

    experiment: Experiment
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Numbers of variations that an earlier run has, by the digest of their items."""
    earlier_config: str = ""
    """The config of the run that is resumed."""
    imported: ImportedRuns | None = None
    """Runs that a new run begins with; None: those of `resume_from`."""
    continues_folder: bool = False
    """Whether a new run continues the experiment that its folder holds."""

    @property
    def item_count(self) -> int:
        """Number of runs."""
        return self.experiment.run_count

    @property
    def concurrency(self) -> int:
        """Maximum runs in parallel."""
        return self.experiment.max_parallel

    @property
    def scenario_folder(self) -> Path:
        return self.experiment.loaded.folder

    @property
    def stop_rule(self) -> StopRule | None:
        """When the experiment stops early. Its runs differ by their seeds: each is an observation."""
        rule = make_stop_rule(self.experiment.stop_when)
        return replace(rule, unit="repeat") if rule else None

    def refusal(self, path: Sequence[str | int], error: UsageError) -> UsageError:
        """An error about a setting, at its place in the config."""
        return PlanError([self.experiment.problem(tuple(path), error.problem, error.remedy)])

    def model_options(self) -> ModelOptions:
        """Scripted models are looked up beside the config and in the scenario."""
        folders = _model_folders(self.experiment.path, self.scenario_folder)
        return replace(self.experiment.model_options, folders=folders)

    def columns(self) -> Mapping[str, object]:
        """The columns of the batch row that record the experiment."""
        return self.experiment.columns

    def resources(self) -> Iterator[Resource]:
        """The scenario without the changes of variations."""
        loaded = self.experiment.loaded
        content = json.dumps(loaded.plain, ensure_ascii=False)
        name = str(loaded.plain["name"])
        yield Resource(kind="scenario", name=name, digest=self.experiment.scenario_digest, content=content)

    def items(self) -> Iterator[Item]:
        """The runs, variation by variation."""
        return self.experiment.items(self.numbers)

    @property
    def imported_ids(self) -> Collection[str] | None:
        """The runs that are imported; None: none are."""
        return self.imported.runs.keys() if self.imported else None

    def begin_run(self, run_id: str, ctx: RunContext) -> NewRun:
        """The plan with the runs it imports. Its folder must not hold another experiment.

        A new name is the experiment's with the time; two that start in the same second still differ.
        """
        experiment = self.experiment
        if not self.continues_folder and (experiment.output / STATE).is_file():
            raise UsageError(
                f"{experiment.output} already holds an experiment\n"
                "Resume it (--resume), or choose another output folder."
            )
        if self.imported is None and experiment.resume_from is not None:
            plan = self._importing(runs_in(experiment.resume_from), experiment.resume_from)
        else:
            plan = self
        name = f"{slug_of(experiment.name)}-{ctx.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        return NewRun(run_id=run_id or name, plan=plan)

    def for_run(self, batch: Mapping[str, Any], ctx: RunContext) -> ResumedPlan:
        """The plan as it extends an earlier run: variations keep their numbers."""
        numbers = variation_numbers(ctx.store.read, batch["runId"])
        plan = replace(self, numbers=numbers, earlier_config=batch["planText"])
        # The models of an item follow from the fields that name them.
        return ResumedPlan(plan=plan, derived_fields=frozenset({"model"}))

    def continuing_folder(self) -> "ScenarioPlan":
        """The plan of a new run that begins with the runs in the experiment's folder."""
        experiment = self.experiment
        runs = runs_in(experiment.output)
        if experiment.resume_from is not None:
            runs = {**runs_in(experiment.resume_from), **runs}
        if not runs:
            raise UsageError(
                f"there is nothing to resume in {experiment.output}\nRun it without --resume first."
            )
        folder = experiment.resume_from or experiment.output
        return replace(self._importing(runs, folder), continues_folder=True)

    def check(self, models: ModelRouter, ctx: RunContext) -> Sequence[str]:
        """Check that models, keys, prices and evaluators exist."""
        experiment = self.experiment
        limit = "the budget" if experiment.budget_usd is not None else "`cost_per_run_limit`"
        is_limited = experiment.budget_usd is not None or experiment.cost_per_run_usd is not None
        problems = [
            experiment.model_problem(model, problem, remedy)
            for model in experiment.models
            for problem, remedy in check_model(model, models, needs_price=is_limited, limit=limit)
        ]
        remarks = set[str]()
        problems += self._evaluator_problems(models, ctx, remarks)
        if experiment.loaded.scenario.humans and experiment.human == "terminal" and self.concurrency > 1:
            problem = "a person at the terminal can answer only one question at a time"
            remedy = "Set `max_parallel: 1` or `human: web`, or give the actor a model."
            problems.append(experiment.problem(("max_parallel",), problem, remedy))
        if problems:
            raise PlanError(problems)
        mocks = [mock_model_remark(model) for model in experiment.models if is_mock(model)]
        return [*experiment.loaded.remarks, *mocks, *remarks]

    def _evaluator_problems(
        self, models: ModelRouter, ctx: RunContext, remarks: set[str]
    ) -> Iterator[Problem]:
        experiment, evaluators = self.experiment, list[Evaluator]()
        for index, judge in enumerate(experiment.judges):
            try:
                attempts = ctx.with_evaluators(
                    ctx.attempts(models),
                    [judge["name"]],
                    folder=experiment.path.parent,
                    sandbox=experiment.model_options.sandbox,
                )
                evaluators.append(attempts.find_evaluator(judge["name"], judge["judging"], models))
            except UsageError as error:
                yield experiment.problem(("evaluators", index), error.problem, error.remedy)
        for problem, remedy in check_evaluators(evaluators, remarks):
            yield experiment.problem(("sandbox",), problem, remedy)

    def _importing(self, runs: Mapping[str, ScenarioRun], folder: Path) -> "ScenarioPlan":
        """The plan with the runs that it shares; their variations keep the numbers they had."""
        numbers = {
            digest: runs[id_of(digest, repeat)].variation_id
            for digests in self.experiment.digests()
            for digest in digests
            for repeat in range(1, self.experiment.runs_per_variation + 1)
            if id_of(digest, repeat) in runs
        }
        items = [item for item in self.experiment.items(numbers) if item.id in runs]
        imported = ImportedRuns(items=items, runs=runs, source="import", folder=folder)
        return replace(self, numbers=numbers, imported=imported)


@dataclass(frozen=True, kw_only=True)
class StoredExperiment(StoredPlan):
    """An experiment that resumes from the store and its folder."""

    scenario_folder: Path
    scenario: Resource | None = None
    """The scenario, where the run does not store it yet."""

    def resources(self) -> Iterator[Resource]:
        """The scenario of a run of an earlier version."""
        return iter([self.scenario] if self.scenario else ())


class ScenarioJob(Job):
    """`proctor experiment` and `proctor scenario run`."""

    name = JOB_NAME
    title = "Scenario experiment"
    plan_model = ExperimentConfig
    overrides = ExperimentOverrides
    view = RunView(
        noun="run",
        is_comparison=False,
        analysis_title="Open variation analysis",
        steps_are_turns=True,
        column_titles={"prompt": "Scenario", "model": "Models"},
        item_columns=("status", "factor:*", "repeat", "score:*", "seconds", "tokensTotal", "costUsd"),
        narrow_item_columns=("status", "factor:variation", "seconds"),
    )
    starters = (Starter(file="experiment.yaml", title="Scenario experiment"),)

    def read(self, source: PlanText, overrides: ExperimentOverrides, ctx: RunContext) -> ScenarioPlan:  # noqa: ARG002
        """Read and check a config and its scenario."""
        experiment = read_experiment(
            source.text,
            path=(source.path or source.folder / CONFIG).absolute(),
            working_folder=source.folder,
            overrides=overrides.settings(),
            file="" if source.path else source.file,
        )
        return ScenarioPlan(experiment=experiment)

    def read_to_resume(
        self,
        source: PlanText,
        overrides: ExperimentOverrides,
        ctx: RunContext,
        run_id: str,  # noqa: ARG002
    ) -> ReadPlan:
        """Read a config with the run of its folder. A folder of another store becomes a new run."""
        plan = self.read(source, overrides, ctx)
        if earlier := self.earlier(plan, ctx):
            return ReadPlan(job=self, plan=plan, earlier=earlier)
        plan = plan.continuing_folder()
        return ReadPlan(job=self, plan=plan, imported_ids=plan.imported_ids)

    def restore(self, batch: Mapping[str, Any], ctx: RunContext) -> StoredExperiment:
        """The plan of a run, from the store and the scenario that its folder keeps."""
        options = json.loads(batch["optionsJson"])
        folder = Path(options["output"]) / KEPT_SCENARIO
        if not folder.is_dir() and not _has_started(batch["runId"], ctx):
            # Its process died before it had made the folder.
            folder = original_folder(options["baseScenario"], Path(batch["planPath"])) or folder
        if not folder.is_dir():
            raise UsageError(
                f"the experiment's folder {folder.parent} does not exist any more\n"
                "Restore it, or start the experiment again from its config."
            )
        models = ModelOptions.restored(options, _model_folders(Path(batch["planPath"]), folder))
        scenario = None
        if not ctx.store.read.resource_digests(batch["runId"]):
            # Items of earlier versions name the file of the scenario only.
            scenario = Resource(
                kind="scenario",
                name=str(options["scenario"]["name"]),
                digest=str(folder.with_suffix(".json")),
                content=json.dumps(options["scenario"], ensure_ascii=False),
            )
        return StoredExperiment(options=models, scenario_folder=folder, scenario=scenario)

    def earlier(self, plan: ScenarioPlan, ctx: RunContext) -> str | None:
        """The run that the experiment's folder belongs to, or the latest run of the same config."""
        experiment = plan.experiment
        recorded = _state_in(experiment.output).get("run_id")
        if isinstance(recorded, str) and recorded:
            try:
                batch = ctx.store.read.batch(recorded, ctx.now())
            except NotFound:
                return None
            # A copy of a folder that still exists is another experiment; a folder that was moved is not.
            before = Path(json.loads(batch["optionsJson"]).get("output") or "")
            is_copy = before != experiment.output and (before / STATE).is_file()
            return None if is_copy or batch["runId"] != recorded else recorded
        # The folder's own record is missing or damaged.
        return next(
            (
                batch["runId"]
                for batch in batches_of_job(ctx.store.read, self.name)
                if json.loads(batch["optionsJson"]).get("output") == str(experiment.output)
            ),
            None,
        )

    def attempts(self, plan: JobPlan, run_id: str, ctx: RunContext, models: ModelRouter) -> WorkerContext:
        """Dependencies of the runs, with the evaluators that the experiment names."""
        batch = ctx.store.read.batch(run_id, ctx.now())
        names = json.loads(batch["optionsJson"]).get("evaluators") or ()
        return ctx.with_evaluators(
            ctx.attempts(models),
            names,
            folder=Path(batch["planPath"]).parent,
            sandbox=plan.model_options().sandbox,
        )

    def hooks(self, plan: JobPlan, run_id: str, ctx: RunContext) -> ExperimentFolder:
        if isinstance(plan, ScenarioPlan):
            return ExperimentFolder(
                ctx,
                run_id,
                scenario_folder=plan.scenario_folder,
                earlier_config=plan.earlier_config,
                imported=plan.imported,
            )
        assert isinstance(plan, StoredExperiment)
        return ExperimentFolder(ctx, run_id, scenario_folder=plan.scenario_folder)

    def documents(self, run_id: str, ctx: RunContext) -> RunDocuments:
        """Metrics by factor and over the turns; the effects of its variations. Both need its folder."""
        folder = _output_of(run_id, ctx)

        def results() -> Document | None:
            from proctor.jobs.scenario.analysis import BatchAnalyzer
            from proctor.jobs.scenario.report import results_view

            return results_view(BatchAnalyzer(folder)) if (folder / "runs").is_dir() else None

        def analysis() -> str:
            from proctor.jobs.scenario.analysis import BatchAnalyzer
            from proctor.jobs.scenario.report import experiment_html

            if not folder.is_dir():
                problem = f"the experiment's folder {folder} does not exist"
                raise NotFound(f"{problem}\nRestore it, or use the report.")
            return experiment_html(BatchAnalyzer(folder))

        return RunDocuments(results=results, analysis=analysis)


def turns_of(item: ItemRow, store: Store) -> Sequence[Mapping[str, object]]:
    """The turns of a run, including those that earlier attempts completed."""
    return [turn_as_plain(turn) for turn in run_from_store(store.read, item).turns]


def _output_of(run_id: str, ctx: RunContext) -> Path:
    """The folder of an experiment; it may not exist."""
    batch = ctx.store.read.batch(run_id, ctx.now())
    return Path(json.loads(batch["optionsJson"]).get("output") or "no folder")


def runs_in(folder: Path) -> dict[str, ScenarioRun]:
    """The runs that an experiment's folder holds, by item id."""
    runs = [read_run(path) for path in sorted((folder / "runs").glob("var-*")) if path.is_dir()]
    return {run.item_id: run for run in runs if run is not None}


def _model_folders(config: Path, scenario: Path) -> tuple[Path, ...]:
    return (config.parent, *scenario_folders(scenario), Path.cwd())


def _has_started(run_id: str, ctx: RunContext) -> bool:
    counts = status_counts(ctx.store.read, run_id)
    return sum(counts.values()) > counts.get(QUEUED, 0)


def _state_in(folder: Path) -> Mapping[str, Any]:
    try:
        document = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


JOB = ScenarioJob()


# One scenario by itself: as an experiment with one variation, as a branch of an earlier run, or estimated.


def config_of(
    folder: Path,
    output: Path,
    changes: dict[str, Any],
    *,
    runs: int = 1,
    seed: int = 0,
    timeout: float | None = None,
    branch: dict[str, Any] | None = None,
) -> str:
    """The config of an experiment that is one variation of a scenario."""
    config = {
        "experiment_name": folder.name if folder.name != KEPT_SCENARIO else output.name,
        "base_scenario": str(folder),
        "output_dir": str(output),
        "runs_per_variation": runs,
        "seed": seed,
        "timeout_per_run": timeout,
        "branch": branch,
        "variations": [
            {"type": "scenario_parameter", "parameter": path, "values": [value]}
            for path, value in changes.items()
        ],
    }
    settings = without_none(config)
    return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)


def parse_changes(arguments: Sequence[str]) -> dict[str, Any]:
    """The changes of `PATH=VALUE` arguments, by path; values are read as YAML."""
    changes: dict[str, Any] = {}
    for argument in arguments:
        path, equals, value = argument.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"`{argument}` is not a change\nWrite PATH=VALUE, such as turns=5.")
        changes[path.strip()] = read_source(value, file="--set").data if value else ""
    return changes


def as_experiment(target: Path) -> Experiment:
    """A scenario's folder, an experiment's folder or a config, as an experiment."""
    path = target.absolute()
    if not path.exists():
        raise UsageError(
            f"there is no {target}\nGive the folder of a scenario or of an experiment, or a config."
        )
    if path.is_dir() and not (path / CONFIG).is_file():
        text: str | bytes = config_of(path, path / "runs", {})
        return read_experiment(text, path=path / CONFIG, working_folder=Path.cwd())
    config = path / CONFIG if path.is_dir() else path
    return read_experiment(read_config(config), path=config, working_folder=Path.cwd())


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPoint:
    """A run to branch from."""

    run: ScenarioRun
    changes: dict[str, Any]
    """What its variation changes in the scenario, by path."""
    scenario_folder: Path


def find_branch_point(store: Store, source: str) -> BranchPoint:
    """The run in a folder, or of an item id."""
    folder = Path(source).absolute()
    if folder.is_dir():
        run = read_run(folder)
        if run is None:
            raise UsageError(f"{source} holds no run\nGive a folder such as …/runs/var-001-run-001.")
        root = folder.parent.parent
        changes = _changes_of(root, run.variation_id)
        return BranchPoint(run=run, changes=changes, scenario_folder=root / KEPT_SCENARIO)
    rows = [row for row in store.read.item(source) if row["runner"] == SCENARIO]
    if not rows:
        raise UsageError(f"there is no run {source}\nGive its folder, or the id that `proctor show` prints.")
    settings = json.loads(rows[0]["settings"])
    return BranchPoint(
        run=run_from_store(store.read, rows[0]),
        changes=settings.get("changes") or {},
        scenario_folder=Path(settings["scenario"]).parent / KEPT_SCENARIO,
    )


def branch_plan(
    point: BranchPoint, output: Path, *, turn: int, changes: dict[str, Any], seed: int | None = None
) -> ScenarioPlan:
    """The plan of one run that continues an earlier one after `turn`, with changes from then on."""
    if turn > len(point.run.turns):
        finished = plural(len(point.run.turns), "turn")
        raise UsageError(f"that run has finished {finished}, so it cannot branch at turn {turn}")
    run = point.run.until(turn)
    branch = {
        "turn": turn,
        "seed": run.seed if seed is None else seed,
        "of": f"{run.item_id}:{run.label}",
    }
    text = config_of(point.scenario_folder, output, point.changes | changes, branch=branch)
    experiment = read_experiment(text, path=output / CONFIG, working_folder=Path.cwd())
    items = list(experiment.items())
    # The original run has paid for these turns.
    turns = tuple(replace(turn, calls=()) for turn in run.turns)
    start = replace(run, item_id=items[0].id, label="var-001-run-001", turns=turns, status=HALTED)
    imported = ImportedRuns(items=items, runs={start.item_id: start}, source="branch", folder=output)
    return ScenarioPlan(experiment=experiment, imported=imported)


def _changes_of(root: Path, variation: int) -> dict[str, Any]:
    try:
        state = json.loads((root / STATE).read_text(encoding="utf-8"))
        (entry,) = [each for each in state["variations"] if each["variation_id"] == variation]
        changes = entry["modifications"]
        models = {f"actors.{short}.llm_model": model for short, model in changes["actor_models"].items()}
        return {**models, **changes["scenario_overrides"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{root} is not the folder of an experiment: {error}") from error
