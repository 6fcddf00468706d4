"""The Python interface to simulations: `BatchConfig`, `run_batch`, `aggregate_results`.

    config = BatchConfig(clients=["patientPsi"], therapists=["CBT"], num_runs=5, seed=42)
    results = run_batch(config)
    summary = aggregate_results(results, config.output_dir)

It stands here, at the edge, because it reads the clock and the environment as the commands do.
"""

import asyncio
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from proctor.batch.executor import Executor
from proctor.bootstrap import places
from proctor.cli.run import View
from proctor.cli.simulating import SimulationRequest, default_folder, simulate
from proctor.context import AttemptContext
from proctor.job import BatchEnd, ItemFinished
from proctor.jobs.dialogue.files import SUMMARY, write_json
from proctor.jobs.dialogue.tables import each_session
from proctor.models import ModelRouter
from proctor.stats.dialogue import run_of_result, summary_of
from proctor.store import Store


@dataclass(kw_only=True)
class BatchConfig:
    """What to simulate. The names are those of a config file; what is None is left to its defaults."""

    clients: Sequence[Any] = ("patientPsi",)
    therapists: Sequence[Any] = ("CBT",)
    num_runs: int = 5
    max_turns: int = 20
    max_workers: int = 4
    output_dir: str = field(default_factory=default_folder)
    seed: int | None = None
    model_type: str | None = None
    model_name: str | Sequence[str] | None = None
    temperature: float | Sequence[float] | None = None
    max_tokens: int | None = None
    client_model: str | Sequence[str] | None = None
    therapist_model: str | Sequence[str] | None = None
    judge_model: str | None = None
    lang: str = "en"
    language: str | None = None
    opens: str | None = None
    under_test: str = "therapist"
    reminder_turns: int = 2
    loop_turns: int = 3
    timeout_sec: float | None = None
    retries: int = 0
    budget_limit: float | None = None
    cost_per_run_limit: float | None = None
    prices: Mapping[str, Mapping[str, float]] | None = None
    evaluators: Sequence[Any] | None = None
    record: str | None = None
    replay: str | None = None
    resume: bool = False
    """Go on with the simulation in `output_dir`."""
    home: str | None = None
    """Proctor's home; None: as the commands find it."""

    def overrides(self) -> dict[str, Any]:
        """What it says, as plain data."""
        aside = ("resume", "home")
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in aside}
        return {name: _plain(value) for name, value in given.items() if value is not None}


def run_batch(config: BatchConfig) -> list[dict[str, Any]]:
    """Run every dialogue of a config; what each came to, as its file has it. Failures are among them."""
    where = places({"home": config.home} if config.home else None)
    order = SimulationRequest(where=where, overrides=config.overrides(), resume=config.resume)
    _outside_of_any_loop(lambda: _run(order))
    results = list(each_session(Path(config.output_dir), failed=True))
    return [{**result, "status": result.get("status", "success")} for result in results]


def aggregate_results(results: Iterable[Mapping[str, Any]], output_dir: str | Path) -> dict[str, Any]:
    """The summary of some results; it is also written to `batch_summary.json` in that folder."""
    summary = summary_of(map(run_of_result, results))
    path = Path(output_dir) / SUMMARY
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        earlier: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        earlier = {}
    summary = {**summary, **{name: value for name, value in earlier.items() if name not in summary}}
    write_json(path, summary)
    return summary


def _run(order: SimulationRequest) -> None:
    simulation = order.read()
    models = order.models(simulation)
    with order.where.open_store() as store:
        simulate(order, simulation, models, store, lambda _store, _run_id: _Silent(), _carry)


async def _carry(
    store: Store, run_id: str, owner: str, house: AttemptContext, models: ModelRouter, view: View
) -> BatchEnd:
    """As the command does, but leaving signals to the program we are part of."""
    try:
        return await Executor(store, run_id, owner, house, watch=view.item).run()
    finally:
        await house.gateway.close()
        await models.close()
        if models.tape:
            models.tape.close()


def _outside_of_any_loop(work: Any) -> None:
    """Notebooks run a loop of their own, in which no other can be started."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        work()
        return
    failed: list[BaseException] = []

    def in_thread() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=in_thread, name="proctor")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


class _Silent:
    """Shows nothing."""

    def item(self, end: ItemFinished) -> None:
        del end

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
