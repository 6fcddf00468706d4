"""`proctor experiment` and `proctor scenario`: run, validate, estimate and branch scenarios."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from proctor.api import scenarios
from proctor.api.deprecated import OLD_NAMES_OF_NOTES, with_old_names
from proctor.api.runs import (
    DryRun,
    ReadPlan,
    RetrySelection,
    RunResult,
    answer_question,
    dry_run,
    flags,
    open_questions,
    start,
    status_of,
)
from proctor.cli import output as codes
from proctor.cli.output import (
    Engine,
    Json,
    JsonAtEnd,
    RayAddress,
    Workers,
    count,
    money,
    print_json,
    print_note,
    print_table,
    printable,
    setting_options,
    takes_options,
)
from proctor.cli.run import (
    OutputOptions,
    TerminalObserver,
    print_document,
    print_dry_run,
    print_summary,
    run_command,
    terminal_context,
)
from proctor.context import EngineOptions, RunContext
from proctor.item import Item
from proctor.json_values import JsonMap, JsonObject
from proctor.scenario.state import CheckCounts

LISTED = 200
"""Variations that a dry run lists; `--json` has them all."""
experiment_app = typer.Typer(add_completion=False)
scenario_app = typer.Typer(add_completion=False)
apps = {"experiment": experiment_app, "scenario": scenario_app}
Human = Annotated[
    Literal["terminal", "web"] | None,
    typer.Option(help="Where people who play an actor answer: at this terminal, or in another process."),
]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the scenario.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a value: turns=5, actors.port.llm_model=…"),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "--output-dir", metavar="DIR", help="Output folder; created when missing."),
]


@experiment_app.command()
@takes_options("settings", setting_options(flags("scenario")))
def experiment(
    context: typer.Context,
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG", help="Config of the experiment, a YAML file, or the experiment's folder."
        ),
    ],
    settings: JsonMap,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume: finished runs are kept, others continue at their checkpoint."),
    ] = False,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Validate the config and list its variations; run nothing.")
    ] = False,
    workers: Workers = None,
    engine: Engine = "local",
    ray_address: RayAddress = "auto",
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="With --resume: also retry runs that failed or timed out.")
    ] = False,
    as_json: JsonAtEnd = False,
    as_jsonl: Annotated[
        bool, typer.Option("--jsonl", help="Print a JSON record for the launch, each run and the end.")
    ] = False,
) -> int:
    """Run every variation of a scenario. Ctrl-C stops cleanly; the same command with --resume continues.

    Example:  proctor experiment experiments/fees/batch-config.yaml --max-parallel 8
    """
    with terminal_context(context.obj) as ctx:
        ctx.engine = EngineOptions(engine, ray_address)
        read = scenarios.read_experiment(ctx, config, settings, resume=resume)
        if dry:
            return _dry_run(dry_run(ctx, read), as_json=as_json)
        output = OutputOptions(as_json=as_json, as_jsonl=as_jsonl)
        return _execute(ctx, read, output, workers=workers, retry_failed=retry_failed)


def present(ctx: RunContext, finished: RunResult, output: OutputOptions) -> None:
    """Print the summary of an experiment, and where its files are."""
    print_document(finished.summary, output)
    print_summary(finished.summary, ctx=ctx)
    folder = printable(finished.summary["output"])
    checks = CheckCounts(**finished.summary.get("checks", {}))
    if checks.run:
        print_note(f"{'warning: ' if checks.unread else ''}{checks}")
    print_note(f"Results:  {folder}  ·  proctor analyze {folder} --report")


def _execute(
    ctx: RunContext,
    read: ReadPlan,
    output: OutputOptions,
    *,
    workers: int | None = None,
    retry_failed: bool = False,
) -> int:
    retry = RetrySelection(errors=True, failures=retry_failed)
    run = start(ctx, read, retry=retry, workers=workers, observer=TerminalObserver(ctx, output))
    return run_command(ctx, run, output, present=present)


def _dry_run(expected: DryRun, *, as_json: bool) -> int:
    read = scenarios.experiment_of(expected)
    document: JsonObject = {
        "experiment": read.name,
        "dryRun": True,
        "itemCount": read.run_count,
        "runsPerVariation": read.runs_per_variation,
        "maxParallel": read.max_parallel,
        "budgetUsd": read.budget_usd,
        "output": str(read.output),
        "variations": [
            {"variation_id": v.number, "description": v.description, "changes": dict(v.changes)}
            for v in read.variations
        ],
        "notes": list(expected.remarks),
    }

    def print_items() -> None:
        shown = read.variations[:LISTED]
        rows = [(f"var-{v.number:03d}", v.description, read.runs_per_variation) for v in shown]
        print_table(("VARIATION", "CHANGES", "RUNS"), rows)
        if len(read.variations) > LISTED:
            print(f"… and {len(read.variations) - LISTED:,} more (--json)")

    budget = "no budget" if read.budget_usd is None else f"budget {money(read.budget_usd)}"
    runs = f"{count(len(read.variations), 'variation')}, {count(read.run_count, 'run')}"
    summary = f"Config is valid: {runs}, concurrency {read.max_parallel}, {budget}."
    return print_dry_run(expected, document, print_items, summary, name=_label, as_json=as_json)


def _label(item: Item) -> str:
    return str(item.settings["label"])


@scenario_app.command()
def run(
    context: typer.Context,
    folder: Folder,
    output: Output = None,
    runs: Annotated[int, typer.Option("--runs", "--repeats", min=1, metavar="N", help="Number of runs.")] = 1,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed of the first run.")] = 0,
    changes: Changes = None,
    max_turns: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of turns; overrides the scenario.")
    ] = None,
    max_parallel: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum runs in parallel.")] = 1,
    workers: Workers = None,
    engine: Engine = "local",
    ray_address: RayAddress = "auto",
    budget: Annotated[
        float | None,
        typer.Option("--budget", "--credit-limit", min=0, metavar="USD", help="Budget of all runs in USD."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="Timeout of one run in seconds.")
    ] = None,
    human: Human = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the runs in --output, each at its checkpoint.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Run a scenario, once or several times. Actors with `control: human` are asked at this terminal.

    Example:  proctor scenario run examples/scenarios/harbour-fee --runs 3 --set turns=5
    """
    overrides = {"max_parallel": max_parallel, "budget_limit": budget, "human": human}
    with terminal_context(context.obj) as ctx:
        ctx.engine = EngineOptions(engine, ray_address)
        read = scenarios.read_single(
            ctx,
            folder,
            overrides,
            output=output,
            changes=changes or (),
            max_turns=max_turns,
            runs=runs,
            seed=seed,
            timeout_seconds=timeout,
            resume=resume,
        )
        return _execute(ctx, read, OutputOptions(as_json=as_json), workers=workers)


@scenario_app.command()
def validate(folder: Folder, as_json: Json = False) -> int:
    """Validate a scenario: report every problem in its files with its line. Calls no model.

    Example:  proctor scenario validate examples/scenarios/harbour-fee
    """
    loaded = scenarios.read_scenario(folder)
    scenario = loaded.scenario
    document = {
        "scenario": scenario.name,
        "turns": scenario.turns,
        "actors": {short: actor.llm_model or "human" for short, actor in scenario.actors.items()},
        "metrics": list(scenario.metrics),
        "events": list(scenario.events),
        "checks": list(scenario.validation.checks) if scenario.validation else [],
        "prompts": list(scenario.prompts),
        "models": scenario.models,
        "notes": list(loaded.remarks),
        "valid": True,
    }
    if as_json:
        print_json(with_old_names(document, OLD_NAMES_OF_NOTES))
    for remark in loaded.remarks:
        print_note(f"note: {printable(remark)}")
    parts = [count(len(scenario.actors), "actor"), count(scenario.turns, "turn")]
    parts += [count(len(scenario.metrics), "metric"), count(len(scenario.events), "event")]
    print_note(f"{printable(scenario.name)} is valid: {', '.join(parts)}.")
    return codes.SUCCEEDED


@scenario_app.command()
def estimate(
    context: typer.Context,
    target: Annotated[
        Path, typer.Argument(metavar="DIR|CONFIG", help="Folder of a scenario, or config of an experiment.")
    ],
    as_json: Json = False,
) -> int:
    """Estimate calls, tokens and cost of runs, from earlier runs where there are any.

    Example:  proctor scenario estimate experiments/fees/batch-config.yaml
    """
    with terminal_context(context.obj) as ctx:
        document = asyncio.run(scenarios.estimate(ctx, target))
    if as_json:
        print_json(document)
        return codes.SUCCEEDED
    rows, total = document["variations"], document["total"]
    heads = ("VARIATION", "CALLS PER RUN", "TOKENS PER RUN", "COST PER RUN")
    cells = [(row["description"], _range(row["calls"]), _range(row["tokens"]), _cost(row)) for row in rows]
    print_table(heads, cells)
    print(
        f"{count(total['runs'], 'run')}: {_range(total['calls'])} calls, {_range(total['tokens'])} tokens, "
        f"{_cost(total)} (from prompt sizes and answers of typical length)"
    )
    expected = total["from_earlier_runs"]
    if expected is None:
        print("The store has no earlier run of this scenario to estimate from.")
        return codes.SUCCEEDED
    print(f"From {count(expected['runs'], 'earlier run')}, with the models and turns they had:")
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
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="Run ID (default: all runs).")] = "",
    as_json: Json = False,
) -> int:
    """List the open questions of runs with `--human web` to people who play an actor.

    Example:  proctor scenario questions
    """
    with terminal_context(context.obj) as ctx:
        rows = open_questions(ctx, status_of(ctx, run)[0] if run else "")
    if as_json:
        print_json(rows)
        return codes.SUCCEEDED
    for question in rows:
        run_id, question_id, actor = (printable(question[name]) for name in ("runId", "id", "actor"))
        print(f"── {run_id} {question_id}: you are {actor}")
        print(printable(question["prompt"], lines=True))
    print_note(f"{count(len(rows), 'open question')}. Answer with: proctor scenario answer RUN QUESTION TEXT")
    return codes.SUCCEEDED


@scenario_app.command()
def answer(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run ID, or a unique prefix of it.")],
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="Question ID, as `proctor scenario questions` lists it.")
    ],
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What the actor says and does; `-` reads standard input.")
    ],
) -> int:
    """Answer a question for an actor that you play.

    Example:  proctor scenario answer fees-20260101-120000-ab12 3f2a91c07be54d10-1 "ACTION: we sail at dawn"
    """
    with terminal_context(context.obj) as ctx:
        run_id, _ = status_of(ctx, run)
        answer_question(ctx, run_id, question, sys.stdin.read() if text == "-" else text)
    print_note(f"Answered {printable(question)}.")
    return codes.SUCCEEDED


@scenario_app.command()
def branch(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="RUN", help="Folder or item ID of a run.")],
    at_turn: Annotated[
        int, typer.Option("--at-turn", min=0, metavar="N", help="Last turn that is kept unchanged.")
    ],
    output: Output = None,
    changes: Changes = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Random seed (default: the original run's).")
    ] = None,
    as_json: Json = False,
) -> int:
    """Continue a run from an earlier turn, in a new folder; --set changes what comes after.

    Example:  proctor scenario branch experiments/fees/runs/var-001-run-002 --at-turn 2 --set turns=8
    """
    with terminal_context(context.obj) as ctx:
        read = scenarios.branch(ctx, source, turn=at_turn, output=output, changes=changes or (), seed=seed)
        return _execute(ctx, read, OutputOptions(as_json=as_json))


def _range(values: list[int]) -> str:
    return f"{values[0]:,}" if values[0] == values[1] else f"{values[0]:,} to {values[1]:,}"


def _expected(estimate: dict[str, float | None], *, usd: bool = False) -> str:
    if estimate["mean"] is None:
        return "price unknown"
    mean, low, high = (
        "" if value is None else money(value) if usd else f"{value:,.0f}"
        for value in (estimate["mean"], estimate["low"], estimate["high"])
    )
    return f"{mean} ({low} to {high})" if low else f"{mean} (no CI)"


def _cost(row: dict[str, Any]) -> str:
    if row["cost_usd"] is None:
        return "price unknown"
    low, high = row["cost_usd"]
    return money(low) if low == high else f"{money(low)} to {money(high)}"
