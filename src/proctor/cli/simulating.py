"""Carry out a simulation from here: find or make its batch, run it, write its files as dialogues end."""

import asyncio
import json
import secrets
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from proctor import __version__
from proctor.batch.create import Extension
from proctor.batch.lifecycle import clear_leftovers
from proctor.bootstrap import StorePlaces, make_house, make_models, now
from proctor.cli.output import count, print_note, printable
from proctor.cli.run import View, execute, print_extension
from proctor.context import AttemptContext
from proctor.errors import UsageError
from proctor.job import BatchEnd, ItemFinished
from proctor.jobs.dialogue.files import (
    SUMMARY,
    clear_checkpoints,
    write_checkpoints,
    write_missing,
    write_session,
    write_summary,
)
from proctor.jobs.dialogue.job import (
    check_models,
    create_simulation,
    extend_simulation,
    find_simulation,
    foresee_simulation,
    keep_roles,
)
from proctor.jobs.dialogue.plan import DialoguePlan, read_simulation
from proctor.jobs.dialogue.roles import Roles
from proctor.models import ModelRouter
from proctor.plan.source import bytes_of
from proctor.store import RetrySelection, Store
from proctor.store.writer import this_process

Watch = Callable[[Store, str], View]
"""Makes what shows a run, once it is known."""


Carry = Callable[[Store, str, str, AttemptContext, ModelRouter, View], Coroutine[Any, Any, BatchEnd]]
"""Runs a batch to its end."""


@dataclass(frozen=True, kw_only=True)
class SimulationRequest:
    """A simulation as it was asked for."""

    where: StorePlaces
    config_path: Path | None = None
    folder: Path | None = None
    """Where relative paths begin; None: beside the config."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    resume: bool = False
    again: RetrySelection = field(default_factory=RetrySelection)

    @property
    def folders(self) -> list[Path]:
        """Where files that are named without a place are looked for."""
        beside = [self.config_path.resolve().parent] if self.config_path else []
        beside = [self.folder.resolve()] if self.folder else beside
        return [*beside, Path.cwd()]

    def read(self) -> DialoguePlan:
        """What is asked, checked."""
        roles = Roles([*(folder / "roles" for folder in self.folders), self.where.home / "roles"])
        return read_simulation(
            _text(self.config_path),
            self.overrides,
            file=str(self.config_path or ""),
            folder=self.folders[0],
            roles=roles,
        )

    def models(self, simulation: DialoguePlan) -> ModelRouter:
        """The models it may ask, found and with their keys; raises when one is missing."""
        config = simulation.config
        models = make_models(
            self.where,
            self.folders,
            prices=config["prices"],
            record=config["record"],
            replay=config["replay"],
        )
        check_models(simulation, models)
        return models


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """What a simulation came to."""

    run_id: str
    folder: Path
    ending: BatchEnd
    summary: Mapping[str, Any]


def simulate(
    order: SimulationRequest,
    simulation: DialoguePlan,
    models: ModelRouter,
    store: Store,
    watch: Watch,
    carry: Carry = execute,
) -> SimulationResult:
    """Run a simulation to its end, its files in place."""
    house = house_for(order, simulation, models, store)
    owner = this_process()
    keep_roles(order.where.home, simulation)
    run_id, folder = _begin(order, simulation, store, owner)
    begin = prepare_files if order.resume else write_files
    begin(store, store.read.batch(run_id, now()))
    view = _Writing(watch(store, run_id), store, folder, run_id)
    ending = asyncio.run(carry(store, run_id, owner, house, models, view))
    clear_checkpoints(folder)
    write_missing(folder, store.read, run_id, look_inside=False)
    summary = write_summary(folder, store.read, store.read.batch(run_id, now()))
    return SimulationResult(run_id=run_id, folder=folder, ending=ending, summary=summary)


def foresee(simulation: DialoguePlan, store: Store) -> Extension:
    """Which dialogues would be new if the simulation were taken up again now; nothing is changed."""
    batch = _earlier(simulation, store, _given_folder(simulation))
    return foresee_simulation(store, batch["runId"], simulation, output_dir=str(_folder_of(batch)))


def house_for(
    order: SimulationRequest, simulation: DialoguePlan, models: ModelRouter, store: Store
) -> AttemptContext:
    """What a simulation stands on; raises when an evaluator it names cannot be found."""
    wanted = simulation.evaluators_by_name
    names = [each["name"] for each in wanted]
    house = with_evaluators(make_house(order.where.home, models), store, order.where, order.folders[0], names)
    for each in wanted:
        house.find_evaluator(each["name"], each["judging"], models)
    return house


def with_evaluators(
    house: AttemptContext, store: Store, where: StorePlaces, folder: Path, names: Sequence[str]
) -> AttemptContext:
    """The same house, where evaluators are found: beside the config, in Proctor's home, in the store."""
    if not names:
        return house
    # Brings all that judging takes; simulations without judges do without.
    from proctor.cli.evaluating import bench_for

    bench = bench_for(store, where, folder)
    return replace(house, find_evaluator=bench.finder(bench.copies(names)))


def house_of(
    store: Store, where: StorePlaces, batch: Mapping[str, Any], models: ModelRouter
) -> AttemptContext:
    """What a simulation stands on that goes on from the store alone."""
    judged = json.loads(batch["defaultsJson"]).get("evaluators") or ()
    names = [entry if isinstance(entry, str) else entry["name"] for entry in judged]
    folder = Path(batch["planPath"]).parent if batch["planPath"] else Path.cwd()
    return with_evaluators(make_house(where.home, models), store, where, folder, names)


def prepare_files(store: Store, batch: Mapping[str, Any]) -> None:
    """Bring the files of a simulation up to the store before it goes on, and let what was cut off go on."""
    write_files(store, batch)
    if going_on := write_checkpoints(store.read, batch["runId"], _folder_of(batch)):
        print_note(
            f"{count(going_on, 'dialogue')} that had been cut off will go on behind the last finished turn"
        )


def finish_files(store: Store, batch: Mapping[str, Any]) -> None:
    """Bring the files of a simulation up to the store once it has ended."""
    clear_checkpoints(_folder_of(batch))
    write_files(store, batch)


def write_files(store: Store, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Bring the files of a simulation up to what the store says; its summary."""
    folder = _folder_of(batch)
    folder.mkdir(parents=True, exist_ok=True)
    write_missing(folder, store.read, batch["runId"], look_inside=True)
    return write_summary(folder, store.read, store.read.batch(batch["runId"], now()))


def default_folder() -> str:
    """Where the files of a simulation go that says nothing: a folder named for this moment."""
    return f"outputs/batch/{now().astimezone():%Y-%m-%d_%H-%M-%S}"


def _begin(order: SimulationRequest, simulation: DialoguePlan, store: Store, owner: str) -> tuple[str, Path]:
    given = _given_folder(simulation)
    plan_path = str(order.config_path.resolve()) if order.config_path else ""
    if order.resume:
        return _take_up(order, simulation, store, owner, given, plan_path)
    folder = Path(given or default_folder()).resolve()
    if (folder / SUMMARY).exists():
        raise UsageError(
            f"{folder} holds a simulation already\nGo on with it (--resume), or give another --output-dir."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from error
    run_id = f"run-{now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    create_simulation(
        store,
        simulation,
        run_id=run_id,
        plan_path=plan_path,
        output_dir=str(folder),
        owner=owner,
        version=__version__,
        now=now(),
    )
    return run_id, folder


def _given_folder(simulation: DialoguePlan) -> str:
    wanted = simulation.config["output_dir"]
    return str(Path(wanted).expanduser().resolve()) if wanted else ""


def _take_up(
    order: SimulationRequest, simulation: DialoguePlan, store: Store, owner: str, given: str, plan_path: str
) -> tuple[str, Path]:
    found = _earlier(simulation, store, given)
    run_id = found["runId"]
    cut_off = store.resume_batch(run_id, owner, order.again, now())
    clear_leftovers(cut_off, order.where.home)
    folder = _folder_of(found)
    told = extend_simulation(store, run_id, simulation, plan_path=plan_path, output_dir=str(folder))
    print_extension(told, "dialogue")
    return run_id, folder


def _earlier(simulation: DialoguePlan, store: Store, given: str) -> Mapping[str, Any]:
    found = find_simulation(store, simulation, given)
    if found is None:
        where = f" in {given}" if given else ""
        raise UsageError(f"there is no earlier run of this simulation{where}\nStart it without --resume.")
    return found


def _folder_of(batch: Mapping[str, Any]) -> Path:
    return Path(json.loads(batch["optionsJson"])["outputDir"])


def _text(path: Path | None) -> bytes | None:
    return bytes_of(path, "the config", remedy="Give a YAML file.") if path else None


class _Writing:
    """Writes the file of each dialogue that has ended, and lets another view show it."""

    def __init__(self, shown: View, store: Store, folder: Path, run_id: str) -> None:
        self._shown, self._store, self._folder, self._run_id = shown, store, folder, run_id

    def item(self, end: ItemFinished) -> None:
        (row,) = self._store.read.exact_item(self._run_id, end.id)
        try:
            write_session(self._folder, row, self._store.read)
        except OSError as error:
            # What was said is in the store; the files that are missing are tried again at the end.
            print_note(f"note: could not write a file in {printable(self._folder)}: {printable(error)}")
        self._shown.item(end)

    async def __aenter__(self) -> Self:
        await self._shown.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._shown.__aexit__(kind, error, trace)
