"""Carry out an experiment at the terminal: its folder kept up to date, its runs shown, its end told."""

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from proctor import __version__
from proctor.batch.create import Extension
from proctor.bootstrap import StorePlaces, make_house, make_models, now
from proctor.cli.human import People, StoreQuestions, Terminal, WithPeople
from proctor.cli.output import count, print_json, print_note, printable
from proctor.cli.run import (
    OutputOptions,
    View,
    execute,
    exit_code,
    notify,
    print_extension,
    print_summary,
    summary,
    view_for,
)
from proctor.cli.simulating import with_evaluators
from proctor.context import AttemptContext
from proctor.errors import NotFound, PlanError, Problem, UsageError
from proctor.item import Item
from proctor.job import ItemFinished
from proctor.jobs.scenario.analysis import BatchAnalyzer
from proctor.jobs.scenario.experiment import STATE, Experiment, slug_of
from proctor.jobs.scenario.folder import (
    ExperimentFolder,
    create_experiment,
    extend_experiment,
    foresee_experiment,
    take_in,
    variation_numbers,
)
from proctor.jobs.scenario.reader import scenario_folders
from proctor.model import Model
from proctor.models import ModelRouter
from proctor.plan.criteria import judge_models
from proctor.scenario.definition import changed, scenario_of
from proctor.scenario.run_files import read_run
from proctor.scenario.state import ScenarioRun
from proctor.secrets import redactor
from proctor.store import RetrySelection, Store
from proctor.store.tables import BatchRow
from proctor.store.writer import this_process

BETWEEN_WRITES_SECONDS = 2.0
"""The experiment's own files are written no oftener than this while runs end one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentRequest:
    """How an experiment is to be carried out."""

    resume: bool = False
    again: RetrySelection = RetrySelection(errors=True)  # noqa: RUF009  it is frozen
    shown: OutputOptions = OutputOptions()  # noqa: RUF009


def models_for(where: StorePlaces, experiment: Experiment) -> ModelRouter:
    """Every model that can be reached; scripts are looked for beside the config and in the scenario."""
    folders = [experiment.path.parent, *scenario_folders(experiment.loaded.folder), Path.cwd()]
    return make_models(where, folders, prices=experiment.prices)


def check_models(experiment: Experiment, models: ModelRouter) -> list[str]:
    """Refuse an experiment whose models cannot be asked or priced; what else is worth saying."""
    problems: list[Problem] = []
    remarks = list(experiment.loaded.remarks)
    limited = experiment.budget_usd is not None or experiment.cost_per_run_usd is not None
    for model in _models_of(experiment):
        try:
            models.check(model)
        except UsageError as error:
            problem, _, remedy = str(error).partition("\n")
            problems.append(experiment.model_problem(model, problem, remedy))
            continue
        if key := models.missing_key(model):
            problem = f"{model} needs a key, and {key} is not set"
            problems.append(experiment.model_problem(model, problem, f"Set it: export {key}=…"))
        if limited and not models.has_price(model):
            problem = f"the price of {model} is not known, so a limit cannot be held"
            remedy = (
                f"Declare it:  prices: {{{model}: {{input: 1.0, output: 2.0}}}}  (USD per million tokens)."
            )
            problems.append(experiment.model_problem(model, problem, remedy))
        if model.startswith("scripted/"):
            remarks.append(f"{model} is a stand-in: it rehearses, it does not think")
    at_terminal = experiment.loaded.scenario.humans and experiment.human == "terminal"
    if at_terminal and experiment.max_parallel > 1:
        remedy = "Set `max_parallel: 1` or `human: web`, or give the actor a model."
        problem = "a person at the terminal can be asked only one question at a time"
        problems.append(experiment.problem(("max_parallel",), problem, remedy))
    if problems:
        raise PlanError(problems)
    return remarks


def start(where: StorePlaces, experiment: Experiment, models: ModelRouter, wanted: ExperimentRequest) -> int:
    """Make or take up the experiment's batch and carry it out; the exit code."""
    with where.open_store() as store:
        find_judges(store, where, experiment, models)
        owner = this_process()
        folder = _taken_up(store, experiment, owner, wanted) if wanted.resume else None
        folder = folder or _made(store, experiment, owner, resumed=wanted.resume)
        return carry(store, where, folder, owner, models, wanted.shown)


def foresee(store: Store, experiment: Experiment) -> tuple[Experiment, Extension]:
    """The experiment as it would be numbered if it were taken up again now, and what would be new in it.

    Nothing is changed.
    """
    batch = _earlier(store, experiment)
    if batch is not None:
        run_id = str(batch["runId"])
        numbers = variation_numbers(store.read, run_id)
        return experiment.renumbered(numbers), foresee_experiment(store.read, run_id, experiment)
    brought = _brought(experiment, resumed=True)
    new = [item for item in _numbered(experiment, brought) if item.id not in brought]
    told = Extension(added=len(new), reasons={"not begun there": len(new)} if new else {}, new=new)
    return experiment.renumbered(_numbers(experiment, brought)), told


def find_judges(store: Store, where: StorePlaces, experiment: Experiment, models: ModelRouter) -> None:
    """Raise when an evaluator that is to judge runs cannot be found."""
    names = [each["name"] for each in experiment.judges]
    house = with_evaluators(make_house(where.home, models), store, where, experiment.path.parent, names)
    for each in experiment.judges:
        house.find_evaluator(each["name"], each["judging"], models)


def carry(
    store: Store,
    where: StorePlaces,
    folder: ExperimentFolder,
    owner: str,
    models: ModelRouter,
    shown: OutputOptions,
) -> int:
    """Carry out a batch that is ours, with its folder kept up to date; the exit code."""
    folder.bring_up_to_date()
    folder.write(now())
    return asyncio.run(_carry(store, where, folder, owner, models, shown))


async def _carry(
    store: Store,
    where: StorePlaces,
    folder: ExperimentFolder,
    owner: str,
    models: ModelRouter,
    shown: OutputOptions,
) -> int:
    view = _FolderView(
        view_for(store, folder.run_id, as_json=shown.as_json, as_jsonl=shown.as_jsonl), folder, time.monotonic
    )
    options = json.loads(store.read.batch(folder.run_id, now())["optionsJson"])
    people = StoreQuestions(store, folder.run_id, now) if options.get("human") == "web" else Terminal()
    beside = Path(store.read.batch(folder.run_id, now())["planPath"]).parent
    judged = with_evaluators(
        make_house(where.home, models), store, where, beside, options.get("evaluators") or ()
    )
    house = with_people(judged, people)
    ending = await execute(store, folder.run_id, owner, house, models, view)
    batch = store.read.batch(folder.run_id, now())
    folder.bring_up_to_date()
    folder.write(now())
    if options.get("aggregateMetrics") and ending.status == "completed":
        _analyse(folder.path)
    document = summary(store, batch) | {"experiment": options["experiment"], "output": str(folder.path)}
    if shown.as_json:
        print_json(document)
    elif shown.as_jsonl:
        print(json.dumps({"type": "done", **document}, ensure_ascii=False), flush=True)
    print_summary(document)
    print_note(f"Results:  {printable(folder.path)}  ·  proctor analyze {printable(folder.path)} --report")
    await asyncio.to_thread(notify, options.get("notify"), document)
    return exit_code(ending, document)


def with_people(house: AttemptContext, people: People) -> AttemptContext:
    """The same house, where actors whom people play are asked through `people`."""
    made, blot = house.models, redactor(house.environment)

    def models(waited: Callable[[float], None], *, item_id: str, **more: Any) -> Model:
        asked = made(waited, item_id=item_id, **more)
        return WithPeople(asked, people, item_id=item_id, waited=waited, blot=blot)

    return replace(house, models=models)


def resume_run(
    store: Store,
    where: StorePlaces,
    batch: Mapping[str, Any],
    changes: Mapping[str, Any],
    again: RetrySelection,
    shown: OutputOptions,
) -> int:
    """Go on with an experiment from what the store alone knows of it; the exit code."""
    options, owner, run_id = json.loads(batch["optionsJson"]), this_process(), str(batch["runId"])
    folder = ExperimentFolder(store, run_id, Path(options["output"]))
    kept = folder.path / "base-scenario"
    if not kept.is_dir():
        # Before the run is ours: it would else seem to be carried out until its owner is missed.
        raise UsageError(
            f"the experiment's folder {folder.path} is not there any more\n"
            "Bring it back, or start the experiment anew from its config."
        )
    store.resume_batch(run_id, owner, again, now())
    store.change_batch(run_id, changes)
    folder.prepare(kept)
    folders = [Path(batch["planPath"]).parent, *scenario_folders(kept), Path.cwd()]
    models = make_models(where, folders, prices=options.get("prices"))
    return carry(store, where, folder, owner, models, shown)


def refuse_taken(output: Path, remedy: str) -> None:
    """Raise when a folder holds an experiment already: another one would be written over it."""
    if (output / STATE).is_file():
        raise UsageError(f"{output} already holds an experiment\n{remedy}")


def new_run_id(experiment: Experiment) -> str:
    """A name for a batch that says what it is of; two begun in the same second still differ."""
    return f"{slug_of(experiment.name)}-{now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _made(store: Store, experiment: Experiment, owner: str, *, resumed: bool) -> ExperimentFolder:
    """A new batch; with the runs that stand in its folder, when it was brought here to go on."""
    brought = _brought(experiment, resumed=resumed)
    if not resumed:
        refuse_taken(experiment.output, "Go on with it (--resume), or name another output_dir.")
    items = _numbered(experiment, brought)
    run_id = new_run_id(experiment)
    create_experiment(store, experiment, items, run_id=run_id, owner=owner, version=__version__, now=now())
    folder = ExperimentFolder(store, run_id, experiment.output)
    folder.prepare(experiment.loaded.folder)
    mine = {item.id: brought[item.id] for item in items if item.id in brought}
    if mine:
        take_in(store, run_id, items, mine, source="import", now=now())
        finished = sum(run.status == "completed" for run in mine.values())
        where = experiment.resume_from or experiment.output
        print_note(f"{count(len(mine), 'run')} taken in from {printable(where)}, {finished} finished")
    return folder


def _taken_up(
    store: Store, experiment: Experiment, owner: str, wanted: ExperimentRequest
) -> ExperimentFolder | None:
    """The earlier batch of this experiment, ours now and brought up to its config; None without one."""
    batch = _earlier(store, experiment)
    if batch is None:
        return None
    run_id = str(batch["runId"])
    store.resume_batch(run_id, owner, wanted.again, now())
    told = extend_experiment(store, run_id, experiment)
    print_extension(told, "run")
    folder = ExperimentFolder(store, run_id, experiment.output)
    folder.prepare(experiment.loaded.folder, earlier_config=batch["planText"])
    return folder


def _earlier(store: Store, experiment: Experiment) -> BatchRow | None:
    known = _state_of(experiment.output).get("run_id")
    if isinstance(known, str) and known:
        try:
            found = store.read.batch(known, now())
        except NotFound:
            return None
        # A copy of a folder that is still there is an experiment of its own; one that was moved is not.
        before = Path(json.loads(found["optionsJson"]).get("output") or "")
        is_copy = before != experiment.output and (before / STATE).is_file()
        return None if is_copy or found["runId"] != known else found
    run_id = store.read.batch_of_plan(str(experiment.path), experiment.digest)
    if run_id is None:
        return None
    batch = store.read.batch(run_id, now())
    return batch if json.loads(batch["optionsJson"]).get("output") == str(experiment.output) else None


def _state_of(output: Path) -> dict[str, Any]:
    try:
        found = json.loads((output / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _runs_in(output: Path) -> dict[str, ScenarioRun]:
    """The runs whose state stands in an experiment's folder, by item id."""
    runs = [read_run(folder) for folder in sorted((output / "runs").glob("var-*")) if folder.is_dir()]
    return {run.item_id: run for run in runs if run is not None}


def _brought(experiment: Experiment, *, resumed: bool) -> dict[str, ScenarioRun]:
    """The runs that were played elsewhere; raises when there are none to resume."""
    brought = _runs_in(experiment.output) if resumed else {}
    if experiment.resume_from is not None:
        brought = {**_runs_in(experiment.resume_from), **brought}
    if resumed and not brought:
        raise UsageError(f"there is nothing to resume in {experiment.output}\nRun it without --resume first.")
    return brought


def _numbered(experiment: Experiment, brought: Mapping[str, ScenarioRun]) -> list[Item]:
    """The items; a variation that was numbered elsewhere keeps its number."""
    return list(experiment.items(_numbers(experiment, brought)))


def _numbers(experiment: Experiment, brought: Mapping[str, ScenarioRun]) -> dict[str, int]:
    items = experiment.items()
    return {item.digest: brought[item.id].variation_id for item in items if item.id in brought}


def _models_of(experiment: Experiment) -> Sequence[str]:
    found: dict[str, None] = {}
    for variation in experiment.variations:
        scenario = scenario_of(changed(experiment.loaded.plain, variation.changes))
        found |= dict.fromkeys(scenario.models)
    return list(found | dict.fromkeys(judge_models(experiment.judges)))


def _analyse(folder: Path) -> None:
    analyzer = BatchAnalyzer(folder)
    analyzer.collect_run_data()
    analyzer.save()


class _FolderView:
    """Shows a batch, and keeps the experiment's files up to date while it runs."""

    def __init__(self, view: View, folder: ExperimentFolder, clock: Callable[[], float]) -> None:
        self._view, self._folder, self._clock = view, folder, clock
        self._written = clock()

    def item(self, end: ItemFinished) -> None:
        self._view.item(end)
        if self._clock() - self._written >= BETWEEN_WRITES_SECONDS:
            self._folder.write(now())
            self._written = self._clock()

    async def __aenter__(self) -> Self:
        await self._view.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._view.__aexit__(kind, error, trace)
