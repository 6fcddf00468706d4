"""`proctor scenario`: run, validate, estimate and branch one scenario."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from proctor.batch.create import Extension
from proctor.bootstrap import now, places
from proctor.cli import output as codes
from proctor.cli.branching import as_experiment, begin_branch, branched, config_of, original_of, values_of
from proctor.cli.experiment_run import (
    ExperimentRequest,
    carry,
    check_models,
    find_judges,
    foresee,
    models_for,
    start,
)
from proctor.cli.output import Json, JsonAtEnd, count, money, print_json, print_note, print_table, printable
from proctor.cli.run import OutputOptions, preview_document, print_preview
from proctor.errors import UsageError
from proctor.item import Item
from proctor.jobs.scenario.experiment import Experiment, ExperimentOverrides, read_config, read_experiment
from proctor.jobs.scenario.reader import read_scenario
from proctor.jobs.scenario.single import estimates, summed_costs, summed_expectations
from proctor.stats.estimate import as_document, earlier_runs, experience
from proctor.store import RetrySelection

# `proctor experiment`: every variation of a scenario, many runs.


experiment_app = typer.Typer(add_completion=False)


Human = Annotated[
    Literal["terminal", "web"] | None,
    typer.Option(help="Where people who play an actor are asked: here, or in another process."),
]


LISTED = 200
"""Variations that a dry run lists for people; `--json` has them all."""


@experiment_app.command()
def experiment(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(help="The config, a YAML file; or the folder of an experiment.")],
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on: finished runs are kept, others go on at their turn."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the variations, check what they name, start nothing.")
    ] = False,
    max_parallel: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time, instead of the config's.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="USD the whole experiment may spend, instead of the config's.")
    ] = None,
    human: Human = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: also repeat runs that failed or timed out.")
    ] = False,
    as_json: JsonAtEnd = False,
    as_jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print a JSON record for the launch, each run and the end.")
    ] = False,
) -> int:
    """Run every variation of a scenario as often as CONFIG says. Ctrl-C stops cleanly; --resume goes on.

    Example:  proctor experiment experiments/fees/batch-config.yaml --max-parallel 8
    """
    path = (config / "batch-config.yaml" if config.is_dir() else config).absolute()
    read = read_experiment(
        read_config(config),
        path=path,
        working_folder=Path.cwd(),
        limits=ExperimentOverrides(max_parallel=max_parallel, budget_usd=budget, human=human),
    )
    where = places(context.obj)
    models = models_for(where, read)
    remarks = check_models(read, models)
    if dry_run:
        foreseen = None
        if read.judges or resume:
            with where.open_store() as store:
                find_judges(store, where, read, models)
                if resume:
                    read, foreseen = foresee(store, read)
        return _dry_run(read, remarks, foreseen, as_json=as_json)
    for remark in remarks:
        print_note(f"note: {printable(remark)}")
    wanted = ExperimentRequest(
        resume=resume,
        again=RetrySelection(errors=True, failures=retry_failed),
        shown=OutputOptions(as_json=as_json, as_jsonl=as_jsonl),
    )
    return start(where, read, models, wanted)


def _dry_run(read: Experiment, remarks: list[str], foreseen: Extension | None, *, as_json: bool) -> int:
    if as_json:
        variations = [
            {"variation_id": v.number, "description": v.description, "changes": dict(v.changes)}
            for v in read.variations
        ]
        document = {
            "experiment": read.name,
            "dryRun": True,
            "itemCount": read.run_count,
            "runsPerVariation": read.runs_per_variation,
            "maxParallel": read.max_parallel,
            "budgetUsd": read.budget_usd,
            "output": str(read.output),
            "variations": variations,
            "remarks": remarks,
        }
        if foreseen is not None:
            document["resume"] = preview_document(foreseen, _label)
        print_json(document)
        return codes.SUCCEEDED
    shown = [
        (f"var-{v.number:03d}", v.description, read.runs_per_variation) for v in read.variations[:LISTED]
    ]
    print_table(("VARIATION", "WHAT", "RUNS"), shown)
    if len(read.variations) > LISTED:
        print(f"… and {len(read.variations) - LISTED:,} more (--json)")
    for remark in remarks:
        print_note(f"note: {printable(remark)}")
    if foreseen is not None:
        print_preview(foreseen, "run", _label)
    limit = "no budget" if read.budget_usd is None else f"at most {money(read.budget_usd)}"
    words = f"{count(len(read.variations), 'variation')}, {count(read.run_count, 'run')}"
    print_note(f"{words}, {read.max_parallel} at a time, {limit}. All they name exists; nothing was started.")
    return codes.SUCCEEDED


def _label(item: Item) -> str:
    return str(item.settings["label"])


scenario_app = typer.Typer(add_completion=False)


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The scenario's folder.")]


Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a value: turns=5, actors.port.llm_model=…"),
]


Output = Annotated[Path | None, typer.Option("--output", help="Folder for the files; made when missing.")]


@scenario_app.command()
def run(
    context: typer.Context,
    folder: Folder,
    output: Output = None,
    runs: Annotated[int, typer.Option(min=1, help="How often.")] = 1,
    seed: Annotated[int, typer.Option(help="The seed that the runs' own are drawn from.")] = 0,
    changes: Changes = None,
    max_turns: Annotated[int | None, typer.Option(min=1, help="Turns, instead of the scenario's.")] = None,
    max_parallel: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    budget: Annotated[
        float | None, typer.Option("--budget", "--credit-limit", min=0, help="USD that all runs may spend.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(min=0.001, help="Seconds that one run may take.")] = None,
    human: Human = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the runs in --output, each behind its last turn.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Play a scenario, once or a few times. Actors with `control: human` are asked at this terminal.

    Example:  proctor scenario run examples/scenarios/harbour-fee --runs 3 --set turns=5
    """
    where = places(context.obj)
    target = (output or Path("runs") / f"{folder.resolve().name}-{now():%Y%m%d-%H%M%S}").absolute()
    path = target / "batch-config.yaml"
    if resume:
        if output is None:
            raise UsageError("which runs shall go on?\nName their folder with --output.")
        text: str | bytes = read_config(path)
    else:
        # Before its config is made up: what is wrong with the folder is to be told of the folder.
        read_scenario(folder)
        wanted = values_of(changes) | ({"turns": max_turns} if max_turns else {})
        text = config_of(folder.resolve(), target, wanted, runs=runs, seed=seed, timeout=timeout)
    read = read_experiment(
        text,
        path=path,
        working_folder=Path.cwd(),
        limits=ExperimentOverrides(max_parallel=max_parallel, budget_usd=budget, human=human),
    )
    models = models_for(where, read)
    for remark in check_models(read, models):
        print_note(f"note: {printable(remark)}")
    return start(where, read, models, ExperimentRequest(resume=resume, shown=OutputOptions(as_json=as_json)))


@scenario_app.command()
def validate(folder: Folder, as_json: Json = False) -> int:
    """Check a scenario's folder: everything wrong in its files, each at its line. Asks no model.

    Example:  proctor scenario validate examples/scenarios/harbour-fee
    """
    loaded = read_scenario(folder)
    played = loaded.scenario
    document = {
        "scenario": played.name,
        "turns": played.turns,
        "actors": {short: actor.llm_model or "human" for short, actor in played.actors.items()},
        "metrics": list(played.metrics),
        "events": list(played.events),
        "checks": list(played.validation.checks) if played.validation else [],
        "prompts": list(played.prompts),
        "models": played.models,
        "remarks": list(loaded.remarks),
        "valid": True,
    }
    if as_json:
        print_json(document)
    for remark in loaded.remarks:
        print_note(f"note: {printable(remark)}")
    parts = [count(len(played.actors), "actor"), count(played.turns, "turn")]
    parts += [count(len(played.metrics), "metric"), count(len(played.events), "event")]
    print_note(f"{printable(played.name)} is right: {', '.join(parts)}.")
    return codes.SUCCEEDED


@scenario_app.command()
def estimate(
    context: typer.Context,
    target: Annotated[Path, typer.Argument(metavar="DIR|CONFIG", help="A scenario's folder, or a config.")],
    as_json: Json = False,
) -> int:
    """Say what runs are going to take: calls, tokens and cost; from earlier runs where there are any.

    Example:  proctor scenario estimate experiments/fees/batch-config.yaml
    """
    where = places(context.obj)
    read = as_experiment(target)
    models = models_for(where, read)
    with where.open_store() as store:
        known = experience(store.read, read.loaded.scenario.name)
        earlier = earlier_runs(store.read, read.loaded.scenario.name)
    rows = asyncio.run(estimates(read, models, earlier))
    runs = read.runs_per_variation
    total: dict[str, Any] = {
        "runs": read.run_count,
        "calls": [sum(row["calls"][side] for row in rows) * runs for side in (0, 1)],
        "tokens": [sum(row["tokens"][side] for row in rows) * runs for side in (0, 1)],
        "cost_usd": summed_costs(rows, runs),
        "from_earlier_runs": summed_expectations(rows),
    }
    document = {"scenario": read.loaded.scenario.name, "variations": rows, "total": total}
    document |= {"earlier_runs": as_document(known)}
    if as_json:
        print_json(document)
        return codes.SUCCEEDED
    heads = ("VARIATION", "CALLS A RUN", "TOKENS A RUN", "COST A RUN")
    cells = [(row["description"], _range(row["calls"]), _range(row["tokens"]), _cost(row)) for row in rows]
    print_table(heads, cells)
    words = (
        f"{count(read.run_count, 'run')}: {_range(total['calls'])} calls, {_range(total['tokens'])} tokens"
    )
    print(f"{words}, {_cost(total)} (a guess from prompts of this size and answers of ordinary length)")
    expected = total["from_earlier_runs"]
    if expected is None:
        print("No earlier run of it is in the store, so a guess is all there is.")
        return codes.SUCCEEDED
    print(f"By {count(expected['runs'], 'earlier run')} of it, with the models and turns they had:")
    print(
        f"  {_expected(expected['calls'])} calls, {_expected(expected['tokens'])} tokens, "
        f"{_expected(expected['cost_usd'], usd=True)} (95% CI)"
    )
    for note in expected["notes"]:
        print(f"  {printable(note, width=200)}")
    return codes.SUCCEEDED


@scenario_app.command()
def questions(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="A run's id; without it, all that wait.")] = "",
    as_json: Json = False,
) -> int:
    """List what people who play an actor are asked by runs with `--human web`.

    Example:  proctor scenario questions
    """
    with places(context.obj).open_store() as store:
        found = store.open_questions(str(store.read.batch(run, now())["runId"]) if run else "")
    if as_json:
        print_json(found)
        return codes.SUCCEEDED
    for question in found:
        run_id, question_id, actor = (printable(question[name]) for name in ("runId", "id", "actor"))
        print(f"── {run_id} {question_id}: you are {actor}")
        print(printable(question["prompt"], lines=True))
    print_note(f"{count(len(found), 'question')} to be answered: proctor scenario answer RUN QUESTION TEXT")
    return codes.SUCCEEDED


@scenario_app.command()
def answer(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or the beginning of it.")],
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="As `proctor scenario questions` says.")
    ],
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What the actor says and does; `-` reads it here.")
    ],
) -> int:
    """Answer a question on behalf of an actor whom you play.

    Example:  proctor scenario answer fees-20260101-120000-ab12 3f2a91c07be54d10-1 "ACTION: we sail at dawn"
    """
    with places(context.obj).open_store() as store:
        run_id = str(store.read.batch(run, now())["runId"])
        store.answer_question(run_id, question, sys.stdin.read() if text == "-" else text, now())
    print_note(f"{printable(question)} is answered.")
    return codes.SUCCEEDED


@scenario_app.command()
def branch(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, or its item id.")],
    at_turn: Annotated[int, typer.Option("--at-turn", min=0, help="The last turn that stays as it was.")],
    output: Output = None,
    changes: Changes = None,
    seed: Annotated[int | None, typer.Option(help="Another seed; without it, the same luck.")] = None,
    as_json: Json = False,
) -> int:
    """Go on with a run from an earlier turn, in a folder of its own; --set changes what comes after.

    Example:  proctor scenario branch experiments/fees/runs/var-001-run-002 --at-turn 2 --set turns=8
    """
    where = places(context.obj)
    with where.open_store() as store:
        original, plain, base = original_of(store, source)
        if at_turn > len(original.turns):
            words = f"that run has finished {count(len(original.turns), 'turn')}"
            raise UsageError(f"{words}, so it cannot branch at turn {at_turn}")
        kept = original.until(at_turn)
        target = (output or Path("runs") / f"{original.label}-branch-{now():%Y%m%d-%H%M%S}").absolute()
        read = branched(base, target, plain, kept, values_of(changes), at_turn, seed)
        models = models_for(where, read)
        for remark in check_models(read, models):
            print_note(f"note: {printable(remark)}")
        folder, owner = begin_branch(store, read, kept)
        return carry(store, where, folder, owner, models, OutputOptions(as_json=as_json))


def _range(values: list[int]) -> str:
    return f"{values[0]:,}" if values[0] == values[1] else f"{values[0]:,} to {values[1]:,}"


def _expected(found: dict[str, float | None], *, usd: bool = False) -> str:
    if found["mean"] is None:
        return "price unknown"
    mean, low, high = (
        "" if value is None else money(value) if usd else f"{value:,.0f}"
        for value in (found["mean"], found["low"], found["high"])
    )
    return f"{mean} ({low} to {high})" if low else f"{mean} (no interval)"


def _cost(row: dict[str, Any]) -> str:
    if row["cost_usd"] is None:
        return "price unknown"
    low, high = row["cost_usd"]
    return money(low) if low == high else f"{money(low)} to {money(high)}"


apps = {"experiment": experiment_app, "scenario": scenario_app}
