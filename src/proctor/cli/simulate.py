"""`proctor simulate`: dialogues of every client with every therapist; tables and analysis of their files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import stdev
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proctor.batch import lifecycle
from proctor.batch.lifecycle import RunResult
from proctor.cli import output as codes
from proctor.cli.output import (
    Engine,
    JsonAtEnd,
    RayAddress,
    RetryErrors,
    RetryFailed,
    Workers,
    count,
    print_json,
    print_note,
    print_table,
    printable,
)
from proctor.cli.run import (
    CostAndTime,
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
from proctor.formatting import figure
from proctor.item import Item
from proctor.job import JobPlan, PlanText
from proctor.jobs.dialogue.files import write_json
from proctor.jobs.dialogue.job import JOB, DialogueOverrides
from proctor.json_values import JsonObject
from proctor.plan.source import bytes_of
from proctor.stats.dialogue import measure_estimate, measures_of
from proctor.store import RetrySelection

if TYPE_CHECKING:
    from proctor.cli.report import AnalysisOutput, AnalyzeRequest
    from proctor.jobs.dialogue.tables import Skipped

simulate_app = typer.Typer(add_completion=False)
apps = {"simulate": simulate_app}


@simulate_app.command("simulate")
def simulate_command(
    context: typer.Context,
    clients: Annotated[
        str | None, typer.Option(help="Client roles, separated by commas (default: patientPsi).")
    ] = None,
    therapists: Annotated[
        str | None, typer.Option(help="Therapist roles, separated by commas (default: CBT).")
    ] = None,
    num_runs: Annotated[int | None, typer.Option(help="Repeats per combination (default: 5).")] = None,
    max_turns: Annotated[int | None, typer.Option(help="Maximum turns per session (default: 20).")] = None,
    max_workers: Annotated[
        int | None, typer.Option(help="Maximum dialogues in parallel (default: 4).")
    ] = None,
    workers: Workers = None,
    engine: Engine = "local",
    ray_address: RayAddress = "auto",
    output_dir: Annotated[
        str | None, typer.Option(help="Output folder (default: outputs/batch/<timestamp>).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Random seed; makes a run repeatable.")] = None,
    config: Annotated[Path | None, typer.Option(help="Config, a YAML file; flags override it.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model of both sides, as provider/model (default: openai/gpt-4o).")
    ] = None,
    client_model: Annotated[
        str | None, typer.Option(help="Model of the clients; several, separated by commas, are all run.")
    ] = None,
    therapist_model: Annotated[
        str | None, typer.Option(help="Model of the therapists; several, separated by commas, are all run.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature of the models.")] = None,
    lang: Annotated[
        str | None,
        typer.Option("--lang", "--language", help="Language of the roles: en, de, zh, … (default: en)."),
    ] = None,
    budget: Annotated[float | None, typer.Option(min=0, help="Budget of the whole run in USD.")] = None,
    human: Annotated[
        str | None,
        typer.Option(help="Where a person who plays a role answers: terminal (default) or web."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume the latest run of this simulation, or of --output-dir."),
    ] = False,
    retry_errors: RetryErrors = False,
    retry_failed: RetryFailed = False,
    folder: Annotated[
        Path | None, typer.Option(help="Base folder for relative paths (default: the config's folder).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate the config and list its dialogues; start nothing.")
    ] = False,
    as_json: JsonAtEnd = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print a JSON record for each dialogue.")] = False,
) -> int:
    """Run dialogues of every client with every therapist; each is written to a file.

    Example:  proctor simulate --clients patientPsi,consistentMI --therapists CBT --num-runs 10
    """
    overrides = DialogueOverrides(
        clients=clients,
        therapists=therapists,
        num_runs=num_runs,
        max_turns=max_turns,
        max_workers=max_workers,
        output_dir=output_dir,
        seed=seed,
        model=model,
        client_model=client_model,
        therapist_model=therapist_model,
        temperature=temperature,
        language=lang,
        budget_limit=budget,
        human=human,
    )
    base = folder or (config.parent if config else None)
    folders = [*([base.resolve()] if base else []), Path.cwd()]
    text = bytes_of(config, "the config", remedy="Give the path of a YAML file.") if config else None
    output = OutputOptions(as_json=as_json, as_jsonl=as_jsonl)
    with terminal_context(context.obj, folders) as ctx:
        ctx.engine = EngineOptions(engine, ray_address)
        if text is None:
            plan = JOB.read_overrides(overrides, ctx)
        else:
            plan = JOB.read(PlanText(text=text, path=config, folder=folders[0]), overrides, ctx)
        retry = RetrySelection(errors=retry_errors, failures=retry_failed)
        earlier = lifecycle.find_earlier(JOB, plan, ctx) if resume else ""
        if dry_run:
            preview = lifecycle.preview(plan, ctx, run_id=earlier)
            forecast = predict_cost_and_time(JOB.name, plan, ctx, run_id=earlier, retry=retry)
            return _dry_run(plan, preview, forecast, as_json=as_json)
        observer = TerminalObserver(ctx, output)
        if resume:
            run = lifecycle.resume(
                JOB, earlier, ctx, plan=plan, retry=retry, workers=workers, observer=observer
            )
        else:
            run = lifecycle.start(JOB, plan, ctx, workers=workers, observer=observer)
        return run_command(ctx, run, output, present=present)


def _dry_run(plan: JobPlan, preview: lifecycle.Preview, forecast: CostAndTime, *, as_json: bool) -> int:
    for remark in preview.remarks:
        print_note(f"note: {printable(remark)}")
    items = list(plan.items())
    if as_json:
        listed = [
            {"id": item.id, "file": item.settings["file"], "model": item.model or None, **item.factors}
            for item in items
        ]
        document: JsonObject = {
            "dryRun": True,
            "itemCount": len(items),
            "items": listed,
            "estimate": forecast.document,
        }
        if preview.extension is not None:
            document["resume"] = preview_document(preview.extension, _file)
        print_json(document)
        return 0
    for item in items:
        cells = [item.id, item.settings["file"], item.factors.get("profile", ""), item.model or "no model"]
        print("  ".join(printable(cell, width=72) for cell in cells))
    if preview.extension is not None:
        print_preview(preview.extension, JOB.noun, _file)
    forecast.print()
    print_note(f"Plan is valid: {count(len(items), 'dialogue')}. Dry run: nothing was started.")
    return 0


def _file(item: Item) -> str:
    return str(item.settings["file"])


def present(ctx: RunContext, finished: RunResult, output: OutputOptions) -> None:
    """Print the outcome of a simulation: its summary, each combination, and the folder."""
    summary = finished.summary
    print_document(summary, output)
    print_summary(summary, store=ctx.store)
    if output.as_json or output.as_jsonl:
        return
    for name, each in summary["summary"]["by_combination"].items():
        # Turns of dialogues that did not succeed are not a result.
        turns = "" if each["avg_turns"] is None else f", {each['avg_turns']:.1f} turns on average"
        print_note(f"  {printable(name)}: {each['successful']} of {each['num_runs']} successful{turns}")
    print_note(f"files: {printable(summary['outputDir'])}")


LEVELS = ("session", "turn")
NAMED = 10
"""Unreadable files that are named; the others are only counted."""


def export_dialogues(folder: Path, output: Path | None, *, level: str, stats: bool, as_json: bool) -> int:
    """Write the CSV file, and print statistics on request."""
    if output is None:
        raise UsageError("no output file is given\nGive one: --output results.csv.")
    if level not in LEVELS:
        raise UsageError(f"there is no level `{level}`\nThere are: {', '.join(LEVELS)}.")
    from proctor.jobs.dialogue.tables import (
        Skipped,
        each_session,
        session_row,
        write_session_csv,
        write_turn_csv,
    )

    skipped = Skipped()
    if level == "turn":
        written, rows = write_turn_csv(folder, output, skipped), None
    else:
        rows = write_session_csv(folder, output, skipped)
        written = len(rows)
    figures: list[JsonObject] = []
    if stats:
        if rows is None:
            rows = [session_row(session) for session in each_session(folder, skipped=skipped)]
        figures = _statistics(rows)
    if as_json:
        document = {"files": [str(output)], "rows": written, "skipped": skipped.files}
        print_json({**document, **({"statistics": figures} if stats else {})})
    elif stats:
        heads = ("COLUMN", "N", "MEAN", "STD", "MIN", "MAX", "95% CI")
        print_table(heads, [_cells(each) for each in figures])
    print_skipped(skipped)
    print_note(f"wrote {count(written, 'row')} to {printable(output)}")
    return codes.SUCCEEDED


def print_skipped(skipped: "Skipped") -> None:
    """Print which files could not be read."""
    for path, why in list(skipped.files.items())[:NAMED]:
        print_note(f"skipped {printable(path)}: {printable(why, width=200)}")
    if skipped.files:
        print_note(f"{count(len(skipped.files), 'file')} in the folder could not be read and were skipped.")


def _statistics(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    figures = []
    for name in measures_of(rows):
        values = [row[name] for row in rows if row.get(name) is not None]
        estimate = measure_estimate(rows, name)
        figures.append(
            {
                "column": name,
                "n": estimate.n,
                "mean": estimate.value,
                "std": stdev(values) if len(values) > 1 else None,
                "min": min(values),
                "max": max(values),
                "low": estimate.low,
                "high": estimate.high,
            }
        )
    return figures


def _cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    around = "–" if each["low"] is None else f"{figure(each['low'])} to {figure(each['high'])}"
    figures = (figure(each[name]) for name in ("mean", "std", "min", "max"))
    return (each["column"], str(each["n"]), *figures, around)


def analyze_simulation(folder: Path, request: "AnalyzeRequest") -> "AnalysisOutput":
    """Analyze a simulation and write its files."""
    # Late: simulating loads none of these.
    from proctor.cli.report import AnalysisOutput
    from proctor.jobs.dialogue.report import dialogue_files, dialogue_text
    from proctor.jobs.dialogue.tables import Skipped, analysis_document, each_session
    from proctor.jobs.scenario.analysis import analysis_folder
    from proctor.report.render import write_pages

    skipped = Skipped()
    sessions = each_session(folder, failed=True, skipped=skipped)
    document = analysis_document(
        sessions, folder.resolve().name, request.metric, skipped, by=request.by, against=request.against
    )
    if document is None:
        raise UsageError(f"there is no finished session in {folder}\nFinish it first, with --resume.")
    print_skipped(skipped)
    target = analysis_folder(folder, request.metric)
    files = [target / "variance.json"]
    write_json(files[0], document)
    if request.report:
        files += write_pages(target, dialogue_files(document))
    return AnalysisOutput(document=document, text=dialogue_text(document), files=files)
