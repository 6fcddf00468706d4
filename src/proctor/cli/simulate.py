"""`proctor simulate`: dialogues of every client with every therapist; tables and analysis of their files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.api.dialogues import read_simulation, write_table
from proctor.api.runs import DryRun, RetrySelection, RunResult, dry_run, flags, start
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
    setting_options,
    takes_options,
)
from proctor.cli.run import (
    OutputOptions,
    TerminalObserver,
    print_document,
    print_dry_run,
    print_remarks,
    print_summary,
    run_command,
    terminal_context,
)
from proctor.context import EngineOptions, RunContext
from proctor.errors import UsageError
from proctor.formatting import figure
from proctor.item import Item
from proctor.job import PlanText
from proctor.json_values import JsonMap, JsonObject
from proctor.plan.source import bytes_of

simulate_app = typer.Typer(add_completion=False)
apps = {"simulate": simulate_app}


@simulate_app.command("simulate")
@takes_options("settings", setting_options(flags("dialogue")))
def simulate_command(
    context: typer.Context,
    settings: JsonMap,
    model: Annotated[
        str | None, typer.Option(help="Model of both sides, as provider/model (default: openai/gpt-4o).")
    ] = None,
    workers: Workers = None,
    engine: Engine = "local",
    ray_address: RayAddress = "auto",
    config: Annotated[Path | None, typer.Option(help="Config, a YAML file; flags override it.")] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume the latest run of this simulation, or of --output-dir."),
    ] = False,
    retry_errors: RetryErrors = False,
    retry_failed: RetryFailed = False,
    folder: Annotated[
        Path | None, typer.Option(help="Base folder for relative paths (default: the config's folder).")
    ] = None,
    dry: Annotated[
        bool, typer.Option("--dry-run", help="Validate the config and list its dialogues; start nothing.")
    ] = False,
    as_json: JsonAtEnd = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print a JSON record for each dialogue.")] = False,
) -> int:
    """Run dialogues of every client with every therapist; each is written to a file.

    Example:  proctor simulate --clients patientPsi,consistentMI --therapists CBT --num-runs 10
    """
    base = folder or (config.parent if config else None)
    folders = [*([base.resolve()] if base else []), Path.cwd()]
    text = bytes_of(config, "the config", remedy="Give the path of a YAML file.") if config else b""
    source = PlanText(text=text, path=config, folder=folders[0]) if config else None
    output = OutputOptions(as_json=as_json, as_jsonl=as_jsonl)
    with terminal_context(context.obj, folders) as ctx:
        ctx.engine = EngineOptions(engine, ray_address)
        read = read_simulation(ctx, source, {**settings, "model": model}, resume=resume)
        retry = RetrySelection(errors=retry_errors, failures=retry_failed)
        if dry:
            return _dry_run(dry_run(ctx, read, retry=retry), as_json=as_json)
        run = start(ctx, read, retry=retry, workers=workers, observer=TerminalObserver(ctx, output))
        return run_command(ctx, run, output, present=present)


def _dry_run(expected: DryRun, *, as_json: bool) -> int:
    items = expected.items
    if as_json:
        print_remarks(expected)
    document: JsonObject = {
        "dryRun": True,
        "itemCount": len(items),
        "items": [
            {"id": item.id, "file": item.settings["file"], "model": item.model or None, **item.factors}
            for item in items
        ],
    }

    def print_items() -> None:
        for item in items:
            profile = item.factors.get("profile", "")
            cells = [item.id, item.settings["file"], profile, item.model or "no model"]
            print("  ".join(printable(cell, width=72) for cell in cells))

    summary = f"Plan is valid: {count(len(items), 'dialogue')}."
    return print_dry_run(expected, document, print_items, summary, name=_file, as_json=as_json)


def _file(item: Item) -> str:
    return str(item.settings["file"])


def present(ctx: RunContext, finished: RunResult, output: OutputOptions) -> None:
    """Print the outcome of a simulation: its summary, each combination, and the folder."""
    summary = finished.summary
    print_document(summary, output)
    print_summary(summary, ctx=ctx)
    if output.as_json or output.as_jsonl:
        return
    for name, totals in summary["summary"]["by_combination"].items():
        # Turns of dialogues that did not succeed are not a result.
        turns = "" if totals["avg_turns"] is None else f", {totals['avg_turns']:.1f} turns on average"
        print_note(f"  {printable(name)}: {totals['successful']} of {totals['num_runs']} successful{turns}")
    print_note(f"files: {printable(summary['outputDir'])}")


def export_dialogues(folder: Path, output: Path | None, *, level: str, stats: bool, as_json: bool) -> int:
    """Write the CSV file, and print statistics on request."""
    # Loads the renderers of reports, which simulating does without.
    from proctor.cli.report import print_skipped

    if output is None:
        raise UsageError("no output file is given\nGive one: --output results.csv.")
    table = write_table(folder, output, level=level, statistics=stats)
    if as_json:
        document = {"files": [str(output)], "rows": table.rows, "skipped": table.skipped}
        print_json({**document, **({"statistics": table.statistics} if stats else {})})
    elif stats:
        heads = ("COLUMN", "N", "MEAN", "STD", "MIN", "MAX", "95% CI")
        print_table(heads, [_cells(each) for each in table.statistics])
    print_skipped(table.skipped)
    print_note(f"wrote {count(table.rows, 'row')} to {printable(output)}")
    return codes.SUCCEEDED


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    around = "–" if row["low"] is None else f"{figure(row['low'])} to {figure(row['high'])}"
    figures = (figure(row[name]) for name in ("mean", "std", "min", "max"))
    return (row["column"], str(row["n"]), *figures, around)
