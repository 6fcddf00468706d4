"""`proctor bench`: run a task on many models, and rank them."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor import __version__
from proctor.batch.lifecycle import clear_leftovers
from proctor.bootstrap import StorePlaces, make_house, now, places
from proctor.cli.bench_folder import RESULTS, EarlierResults, ResultFolder, find_earlier, new_run_id
from proctor.cli.bench_plan import BenchOptions, BenchPlan, make_plan
from proctor.cli.live import BenchView
from proctor.cli.output import (
    JsonAtEnd,
    count,
    money,
    print_json,
    print_note,
    print_table,
    printable,
    seconds,
)
from proctor.cli.run import execute, exit_code, print_summary, summary
from proctor.jobs.benchmark.job import create_benchmark, extend_benchmark
from proctor.jobs.benchmark.report import machine_info
from proctor.jobs.benchmark.results_import import read_results, take_in, take_up_again
from proctor.store import RetrySelection, Store
from proctor.store.writer import this_process

bench_app = typer.Typer(add_completion=False)


apps = {"bench": bench_app}


@bench_app.command()
def bench(
    context: typer.Context,
    task: Annotated[Path | None, typer.Option("--task", help="The task file, or a folder of tasks.")] = None,
    models: Annotated[
        str,
        typer.Option(
            "--models",
            help="Names, parts of names, provider/name, categories, separated by commas; or all: those of "
            "servers on this machine and the enabled ones of models_config.yaml.",
        ),
    ] = "",
    output: Annotated[
        Path | None, typer.Option("--output", help="ResultFolder for the results; made when missing.")
    ] = None,
    parallel: Annotated[
        str, typer.Option("--parallel", metavar="[N]", help="Runs at a time; alone: max_parallel, or 3.")
    ] = "1",
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.001, help="Seconds an agent may take (1800).")
    ] = None,
    resume: Annotated[
        str, typer.Option("--resume", help="Go on with an earlier benchmark: its id, or its folder.")
    ] = "",
    runs: Annotated[int | None, typer.Option("--runs", min=1, help="Times each model does it (1).")] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", min=0, help="USD the whole benchmark may spend.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="File that keeps the traffic with models.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", help="File of a recording that answers in their place.")
    ] = None,
    agent: Annotated[str, typer.Option("--agent", help="Who works, instead of the task's (builtin).")] = "",
    models_config: Annotated[
        Path | None,
        typer.Option("--models-config", help="Models, settings and categories; models_config.yaml if there."),
    ] = None,
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Apply the reference solution in a model's place.")
    ] = False,
    noop: Annotated[bool, typer.Option("--noop", help="Do nothing in a model's place.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="List the runs, check that what they need is there, start nothing."),
    ] = False,
    as_json: JsonAtEnd = False,
) -> int:
    """Run a task on every model, each in a fresh copy, judged by the task's own checks, and rank them.

    Example:  proctor bench --task benchmark/tasks/easy/fix_typo.md --models "llama3,gpt-4" --runs 3
    """
    asked = BenchOptions(
        task=task,
        models=models,
        output=output,
        parallel=parallel,
        timeout=timeout,
        runs=runs,
        budget=budget,
        record=None if dry_run else record,
        replay=replay,
        agent=agent,
        models_config=models_config,
        oracle=oracle,
        noop=noop,
        as_json=as_json,
    )
    where = places(context.obj)
    if not resume:
        plan = make_plan(asked, where)
        if dry_run:
            return _dry_run(plan, as_json=as_json)
        with where.open_store() as store:
            return _start(store, where, plan)
    with where.open_store() as store:
        earlier = find_earlier(store, resume, output)
        plan = make_plan(asked.settled(earlier.options), where)
        if dry_run:
            return _dry_run(plan, as_json=as_json)
        return _go_on(store, where, plan, earlier, RetrySelection(errors=True))


def go_on_with(
    store: Store,
    where: StorePlaces,
    run_id: str,
    concurrency: int,
    *,
    budget: float | None,
    retry_failed: bool,
    as_json: bool,
) -> int:
    """Go on with a benchmark whose task and models stay as they were."""
    earlier = find_earlier(store, run_id, None)
    asked = BenchOptions(parallel=str(concurrency), budget=budget, as_json=as_json)
    again = RetrySelection(errors=True, failures=retry_failed)
    return _go_on(store, where, make_plan(asked.settled(earlier.options), where), earlier, again)


def _start(store: Store, where: StorePlaces, plan: BenchPlan) -> int:
    run_id = new_run_id(store, now())
    path = plan.asked.output or RESULTS / run_id
    folder = ResultFolder(path=path, store=store, run_id=run_id)
    _begin(folder, plan)
    owner = this_process()
    _create(store, plan, folder, owner)
    return _carry_out(where, folder, owner, plan)


def _go_on(
    store: Store, where: StorePlaces, plan: BenchPlan, earlier: EarlierResults, again: RetrySelection
) -> int:
    run_id = earlier.run_id
    path = plan.asked.output or earlier.path or RESULTS / run_id
    folder, owner = ResultFolder(path=path, store=store, run_id=run_id), this_process()
    if earlier.is_known:
        cut_off = store.resume_batch(run_id, owner, again, now())
        clear_leftovers(cut_off, where.home)
        told = extend_benchmark(
            store,
            run_id,
            plan.benchmark,
            plan.options(path),
            concurrency=plan.concurrency,
            budget_usd=plan.asked.budget,
        )
        if told.added:
            why = "; ".join(f"{number}: {field}" for field, number in told.reasons.items())
            print_note(f"{count(told.added, 'new run')} since the last time (because of {printable(why)})")
        if told.dropped or told.kept:
            print_note(
                f"no longer asked for: {told.dropped} dropped from the queue, {told.kept} with results kept"
            )
    else:
        _create(store, plan, folder, owner)
    _begin(folder, plan)
    _reconcile(folder)
    return _carry_out(where, folder, owner, plan)


def _begin(folder: ResultFolder, plan: BenchPlan) -> None:
    machine = machine_info(now(), Path.cwd(), plan.supply.ollama)
    folder.begin(plan.about(folder.run_id, folder.path), machine)


def _create(store: Store, plan: BenchPlan, folder: ResultFolder, owner: str) -> None:
    create_benchmark(
        store,
        plan.benchmark,
        plan.options(folder.path),
        run_id=folder.run_id,
        concurrency=plan.concurrency,
        budget_usd=plan.asked.budget,
        owner=owner,
        version=__version__,
        now=now(),
    )


def _reconcile(folder: ResultFolder) -> None:
    """Take in what the folder's files say and the store does not know; damaged ones are run again."""
    brought = read_results(folder.path)
    for file in brought.damaged:
        print_note(
            f"{folder.path / file.name} is damaged ({printable(file.why, width=100)}); "
            f"set aside as {file.aside}, and run again"
        )
    again = [model for file in brought.damaged for model in folder.models_of(file.name)]
    taken = take_in(folder.store, folder.run_id, brought.runs, folder.path.name)
    if taken:
        print_note(f"{count(taken, 'finished run')} taken over from {folder.path}")
    take_up_again(folder.store, folder.run_id, again)


def _carry_out(where: StorePlaces, folder: ResultFolder, owner: str, plan: BenchPlan) -> int:
    store, run_id, asked, settings = folder.store, folder.run_id, plan.asked, plan.supply.config.settings
    for remark in plan.remarks:
        print_note(f"note: {printable(remark)}")
    view = BenchView(
        store,
        run_id,
        folder.keep if settings.save_intermediate else _nothing,
        quiet=asked.as_json or not settings.show_progress,
        verbose=settings.verbose,
    )
    house = make_house(where.home, plan.models)
    # With the configured keys, so that they are blotted out of whatever is recorded.
    house = replace(house, environment={**plan.supply.variables, **house.environment})
    ending = asyncio.run(execute(store, run_id, owner, house, plan.models, view))
    document = summary(store, store.read.batch(run_id, now()))
    comparison = folder.finish()
    if asked.as_json:
        print_json({**document, "output": str(folder.path), "comparison": comparison})
    else:
        _show(comparison)
    print_summary(document)
    print_note(f"wrote {printable(folder.path / 'comparison_report.html')}")
    return exit_code(ending, document)


def _show(comparison: Mapping[str, Any]) -> None:
    """The models, best first, and who is best at what."""
    rows = [
        (
            model["model"],
            f"{model['counts']['success']}/{model['success_rate']['n']}",
            model["counts"]["error"] or "",
            seconds(model["completion_time"]["value"]),
            _figure(model["prompts_sent"]["value"]),
            _figure(model["human_interventions"]["value"]),
            f"{model['total_tokens']:,}",
            money(model["cost_usd"]) if model["total_tokens"] else "–",
        )
        for model in comparison["models"]
    ]
    heads = ("MODEL", "SUCCESS", "ERRORS", "TIME", "PROMPTS", "INTERVENTIONS", "TOKENS", "COST")
    print_table(heads, rows)
    titles = {
        "fastest": "Fastest",
        "most_efficient": "Most Efficient",
        "least_intervention": "Most Autonomous",
    }
    for key, title in {**titles, "best_value": "Best Value"}.items():
        leaders = [place["model"] for place in comparison["ranks"][key] if place["rank"] == 1]
        if leaders:
            shared = "" if len(leaders) == 1 else "  (not to be told apart)"
            print(f"{title + ':':<16} {printable(', '.join(leaders), width=120)}{shared}")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:g}" if value == int(value) else f"{value:.1f}"


def _dry_run(plan: BenchPlan, *, as_json: bool) -> int:
    items = list(plan.benchmark.items())
    asyncio.run(plan.models.close())
    if as_json:
        listed = [{"id": item.id, **item.factors, "asked": item.model, "run": item.repeat} for item in items]
        print_json({"dryRun": True, "itemCount": len(items), "items": listed, "remarks": list(plan.remarks)})
        return 0
    print_table(
        ("ITEM", "TASK", "MODEL", "AGENT", "RUN"),
        [(item.id, item.factors["task"], item.factors["model"], item.agent, item.repeat) for item in items],
    )
    for remark in plan.remarks:
        print_note(f"note: {printable(remark)}")
    print_note(
        f"{count(len(items), 'run')}, {plan.concurrency} at a time. All they need is here; none was started."
    )
    return 0


def _nothing(_: str) -> None:
    return None
