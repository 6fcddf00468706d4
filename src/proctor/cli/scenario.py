"""`proctor experiment` and `proctor scenario`: run, validate, estimate and branch scenarios."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from proctor.batch import lifecycle
from proctor.batch.create import Extension
from proctor.batch.lifecycle import RunResult
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
)
from proctor.cli.report import AnalysisOutput, AnalyzeRequest
from proctor.cli.run import (
    OutputOptions,
    TerminalObserver,
    predict_cost_and_time,
    preview_document,
    print_document,
    print_preview,
    print_summary,
    run_command,
    terminal_context,
)
from proctor.context import EngineOptions, RunContext
from proctor.errors import UsageError
from proctor.formatting import chance, figure, interval, percent
from proctor.item import Item
from proctor.job import PlanText
from proctor.jobs.scenario.analysis import BatchAnalyzer, analysis_folder, around
from proctor.jobs.scenario.experiment import CONFIG, ExperimentOverrides, read_config
from proctor.jobs.scenario.job import JOB, ScenarioPlan
from proctor.jobs.scenario.reader import read_scenario
from proctor.jobs.scenario.single import (
    as_experiment,
    branch_plan,
    config_of,
    estimates,
    find_branch_point,
    parse_changes,
    summed_costs,
    summed_expectations,
)
from proctor.scenario.state import CheckCounts
from proctor.stats.estimate import as_document, earlier_runs, experience
from proctor.store import RetrySelection

LISTED = 200
"""Variations that a dry run lists; `--json` has them all."""
RETRY_ERRORS = RetrySelection(errors=True)
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
    Path | None, typer.Option("--output", metavar="DIR", help="Output folder; created when missing.")
]


@experiment_app.command()
def experiment(
    context: typer.Context,
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG", help="Config of the experiment, a YAML file, or the experiment's folder."
        ),
    ],
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume: finished runs are kept, others continue at their checkpoint."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate the config and list its variations; run nothing.")
    ] = False,
    max_parallel: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum runs in parallel; overrides the config.")
    ] = None,
    workers: Workers = None,
    engine: Engine = "local",
    ray_address: RayAddress = "auto",
    budget: Annotated[
        float | None,
        typer.Option(min=0, metavar="USD", help="Budget of the experiment in USD; overrides the config."),
    ] = None,
    human: Human = None,
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
    path = (config / CONFIG if config.is_dir() else config).absolute()
    overrides = ExperimentOverrides(max_parallel=max_parallel, budget_usd=budget, human=human)
    with terminal_context(context.obj) as ctx:
        ctx.engine = EngineOptions(engine, ray_address)
        source = PlanText(text=read_config(config), path=path, folder=Path.cwd())
        plan = JOB.read(source, overrides, ctx)
        if dry_run:
            return _dry_run(plan, ctx, resume=resume, as_json=as_json)
        output = OutputOptions(as_json=as_json, as_jsonl=as_jsonl)
        retry = RetrySelection(errors=True, failures=retry_failed)
        if resume:
            return _resume(plan, ctx, output, retry, workers=workers)
        return _start(plan, ctx, output, workers=workers)


def present(ctx: RunContext, finished: RunResult, output: OutputOptions) -> None:
    """Print the summary of an experiment, and where its files are."""
    print_document(finished.summary, output)
    print_summary(finished.summary, store=ctx.store)
    folder = printable(finished.summary["output"])
    checks = CheckCounts(**finished.summary.get("checks", {}))
    if checks.run:
        print_note(f"{'warning: ' if checks.unread else ''}{checks}")
    print_note(f"Results:  {folder}  ·  proctor analyze {folder} --report")


def _start(plan: ScenarioPlan, ctx: RunContext, output: OutputOptions, *, workers: int | None = None) -> int:
    started = lifecycle.start(JOB, plan, ctx, workers=workers, observer=TerminalObserver(ctx, output))
    return run_command(ctx, started, output, present=present)


def _resume(
    plan: ScenarioPlan,
    ctx: RunContext,
    output: OutputOptions,
    retry: RetrySelection = RETRY_ERRORS,
    *,
    workers: int | None = None,
) -> int:
    run_id = JOB.earlier(plan, ctx)
    if run_id is None:
        # The store does not know the experiment: its folder comes from elsewhere.
        return _start(plan.continuing_folder(), ctx, output, workers=workers)
    observer = TerminalObserver(ctx, output)
    resumed = lifecycle.resume(JOB, run_id, ctx, plan=plan, retry=retry, workers=workers, observer=observer)
    return run_command(ctx, resumed, output, present=present)


def _preview(
    plan: ScenarioPlan, ctx: RunContext, *, resume: bool
) -> tuple[ScenarioPlan, Sequence[str], Extension | None, str]:
    """The plan with the numbers its variations would get, the remarks, what a resume would add, and the
    run that it would resume; empty: none in the store."""
    if not resume:
        return plan, lifecycle.preview(plan, ctx).remarks, None, ""
    run_id = JOB.earlier(plan, ctx)
    if run_id is None:
        plan = plan.continuing_folder()
        return plan, lifecycle.preview(plan, ctx).remarks, plan.import_preview(), ""
    preview = lifecycle.preview(plan, ctx, run_id=run_id)
    numbered = plan.for_run(ctx.store.read.batch(run_id, ctx.now()), ctx)
    return numbered, preview.remarks, preview.extension, run_id


def _dry_run(plan: ScenarioPlan, ctx: RunContext, *, resume: bool, as_json: bool) -> int:
    plan, remarks, extension, earlier = _preview(plan, ctx, resume=resume)
    read = plan.experiment.renumbered(plan.numbers) if resume else plan.experiment
    forecast = predict_cost_and_time(JOB.name, plan, ctx, run_id=earlier)
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
            "remarks": list(remarks),
            "estimate": forecast.document,
        }
        if extension is not None:
            document["resume"] = preview_document(extension, _label)
        print_json(document)
        return codes.SUCCEEDED
    rows = [(f"var-{v.number:03d}", v.description, read.runs_per_variation) for v in read.variations[:LISTED]]
    print_table(("VARIATION", "CHANGES", "RUNS"), rows)
    if len(read.variations) > LISTED:
        print(f"… and {len(read.variations) - LISTED:,} more (--json)")
    for remark in remarks:
        print_note(f"note: {printable(remark)}")
    if extension is not None:
        print_preview(extension, JOB.noun, _label)
    forecast.print()
    budget = "no budget" if read.budget_usd is None else f"budget {money(read.budget_usd)}"
    runs = f"{count(len(read.variations), 'variation')}, {count(read.run_count, 'run')}"
    print_note(
        f"Config is valid: {runs}, concurrency {read.max_parallel}, {budget}. Dry run: nothing was started."
    )
    return codes.SUCCEEDED


def _label(item: Item) -> str:
    return str(item.settings["label"])


@scenario_app.command()
def run(
    context: typer.Context,
    folder: Folder,
    output: Output = None,
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Number of runs.")] = 1,
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
    overrides = ExperimentOverrides(max_parallel=max_parallel, budget_usd=budget, human=human)
    with terminal_context(context.obj) as ctx:
        ctx.engine = EngineOptions(engine, ray_address)
        target = (output or Path("runs") / f"{folder.resolve().name}-{ctx.now():%Y%m%d-%H%M%S}").absolute()
        path = target / CONFIG
        if resume:
            if output is None:
                raise UsageError("--resume needs --output\nGive the folder of the runs to resume.")
            text: str | bytes = read_config(path)
        else:
            # Read first, so that errors name the scenario's own files and not the generated config.
            read_scenario(folder)
            changed = parse_changes(changes) | ({"turns": max_turns} if max_turns else {})
            text = config_of(folder.resolve(), target, changed, runs=runs, seed=seed, timeout=timeout)
        plan = JOB.read(PlanText(text=text, path=path, folder=Path.cwd()), overrides, ctx)
        output_options = OutputOptions(as_json=as_json)
        if resume:
            return _resume(plan, ctx, output_options, workers=workers)
        return _start(plan, ctx, output_options, workers=workers)


@scenario_app.command()
def validate(folder: Folder, as_json: Json = False) -> int:
    """Validate a scenario: report every problem in its files with its line. Calls no model.

    Example:  proctor scenario validate examples/scenarios/harbour-fee
    """
    loaded = read_scenario(folder)
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
        "remarks": list(loaded.remarks),
        "valid": True,
    }
    if as_json:
        print_json(document)
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
    read = as_experiment(target)
    name = read.loaded.scenario.name
    with terminal_context(context.obj) as ctx:
        models = ctx.models(ScenarioPlan(experiment=read).model_options())
        known = experience(ctx.store.read, name)
        rows = asyncio.run(estimates(read, models, earlier_runs(ctx.store.read, name)))
    runs = read.runs_per_variation
    total: dict[str, Any] = {
        "runs": read.run_count,
        "calls": [sum(row["calls"][side] for row in rows) * runs for side in (0, 1)],
        "tokens": [sum(row["tokens"][side] for row in rows) * runs for side in (0, 1)],
        "cost_usd": summed_costs(rows, runs),
        "from_earlier_runs": summed_expectations(rows),
    }
    if as_json:
        print_json({"scenario": name, "variations": rows, "total": total, "earlier_runs": as_document(known)})
        return codes.SUCCEEDED
    heads = ("VARIATION", "CALLS PER RUN", "TOKENS PER RUN", "COST PER RUN")
    cells = [(row["description"], _range(row["calls"]), _range(row["tokens"]), _cost(row)) for row in rows]
    print_table(heads, cells)
    print(
        f"{count(read.run_count, 'run')}: {_range(total['calls'])} calls, {_range(total['tokens'])} tokens, "
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
        run_id = str(ctx.store.read.batch(run, ctx.now())["runId"]) if run else ""
        rows = ctx.store.open_questions(run_id)
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
        run_id = str(ctx.store.read.batch(run, ctx.now())["runId"])
        content = sys.stdin.read() if text == "-" else text
        ctx.store.answer_question(run_id, question, content, ctx.now())
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
        point = find_branch_point(ctx.store, source)
        name = f"{point.run.label}-branch-{ctx.now():%Y%m%d-%H%M%S}"
        target = (output or Path("runs") / name).absolute()
        plan = branch_plan(point, target, turn=at_turn, changes=parse_changes(changes), seed=seed)
        return _start(plan, ctx, OutputOptions(as_json=as_json))


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


def analyze_experiment(folder: Path, request: AnalyzeRequest) -> AnalysisOutput:
    """Analyze an experiment, write the files of the analysis, and summarize it."""
    analyzer = BatchAnalyzer(folder, metric=request.metric)
    target = analysis_folder(folder, request.metric)
    files = analyzer.save(target)
    if request.report:
        from proctor.jobs.scenario.report import write_reports

        files += write_reports(analyzer, target)
    document = {
        name.removesuffix(".json").replace("-", "_"): part for name, part in analyzer.documents().items()
    }
    return AnalysisOutput(document=document, text="\n".join(_analysis_lines(document)), files=files)


def _analysis_lines(document: dict[str, Any]) -> list[str]:
    patterns = document["patterns"]
    low, high = patterns["success_rate_interval"]
    lines = [
        f"{patterns['successful_runs']} of {patterns['total_runs']} runs completed: "
        f"{percent(patterns['success_rate'])} (95% CI {interval(low, high)})"
    ]
    if patterns["errors"]:
        lower_bound = percent(patterns["success_rate_if_errors_failed"])
        lines.append(
            f"{patterns['errors']} excluded: ended in an infrastructure error; "
            f"counted as failures, the success rate is {lower_bound}."
        )
    if patterns["stand_ins"]:
        lines.append("Mock models took part: these results say nothing about real models.")
    for name, statistics in document["metrics_analysis"].items():
        if statistics["n"]:
            lines.append(
                f"{name}: {figure(statistics['mean'])} (95% CI {around(statistics)}, n = {statistics['n']})"
            )
        if statistics["note"]:
            lines.append(f"{name}: {statistics['note']}")
        for pair in document["comparisons"].get(name, ())[:10]:
            first, second = pair["descriptions"]
            p = chance(pair["p_corrected"])
            p_value = f"p {p}" if p.startswith("<") else f"p = {p}"
            lines.append(
                f"  {first} − {second}: {figure(pair['value'])} ({p_value}, corrected; {pair['test']})"
            )
    statements = [*patterns["success_factors"], *patterns["failure_modes"], *patterns["metric_effects"]]
    return [*lines, *(each["statement"] for each in statements[:20]), *patterns["notes"]]
