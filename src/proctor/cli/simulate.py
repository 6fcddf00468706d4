"""`proctor simulate`: every client × every therapist, each so often."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.batch.create import Extension
from proctor.bootstrap import now, places
from proctor.cli import output as codes
from proctor.cli.output import JsonAtEnd, count, print_json, print_note, print_table, printable
from proctor.cli.run import (
    exit_code,
    notify,
    preview_document,
    print_preview,
    print_summary,
    summary,
    view_for,
)
from proctor.cli.simulating import SimulationRequest, SimulationResult, foresee, house_for, simulate
from proctor.errors import UsageError
from proctor.formatting import figure
from proctor.item import Item
from proctor.jobs.dialogue.plan import DialoguePlan
from proctor.jobs.dialogue.tables import Skipped, each_session, session_row, write_session_csv, write_turn_csv
from proctor.stats.dialogue import crossing, measures_of
from proctor.store import RetrySelection, Store

simulate_app = typer.Typer(add_completion=False)


apps = {"simulate": simulate_app}


@simulate_app.command("simulate")
def simulate_command(
    context: typer.Context,
    clients: Annotated[
        str | None, typer.Option(help="Client roles, with commas between (default: patientPsi).")
    ] = None,
    therapists: Annotated[
        str | None, typer.Option(help="Therapist roles, with commas between (default: CBT).")
    ] = None,
    num_runs: Annotated[int | None, typer.Option(help="Runs per combination (default: 5).")] = None,
    max_turns: Annotated[int | None, typer.Option(help="Turns a session may have (default: 20).")] = None,
    max_workers: Annotated[int | None, typer.Option(help="Dialogues at a time (default: 4).")] = None,
    output_dir: Annotated[
        str | None, typer.Option(help="Where the files go (default: outputs/batch/<timestamp>).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Makes a run repeatable.")] = None,
    config: Annotated[Path | None, typer.Option(help="A YAML file; flags win over what it says.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The model of both sides, as provider/model (default: openai/gpt-4o).")
    ] = None,
    client_model: Annotated[
        str | None, typer.Option(help="The clients' model; several with commas are all tried.")
    ] = None,
    therapist_model: Annotated[str | None, typer.Option(help="The therapists' model; likewise.")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="How freely the models choose their words.")
    ] = None,
    lang: Annotated[
        str | None,
        typer.Option("--lang", "--language", help="The roles' language: en, de, zh, … (default: en)."),
    ] = None,
    budget: Annotated[float | None, typer.Option(min=0, help="USD the whole run may spend.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the last run of this simulation, or of --output-dir.")
    ] = False,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="Also repeat what ended in `error`.")
    ] = False,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Also repeat what ended in `fail` or `timeout`.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where relative paths begin; else in the config's own folder.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the dialogues, check what they name, start nothing.")
    ] = False,
    as_json: JsonAtEnd = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print a JSON record for each dialogue.")] = False,
) -> int:
    """Let every client talk to every therapist, and write each dialogue to a file.

    Example:  proctor simulate --clients patientPsi,consistentMI --therapists CBT --num-runs 10
    """
    given = {
        "clients": clients,
        "therapists": therapists,
        "num_runs": num_runs,
        "max_turns": max_turns,
        "max_workers": max_workers,
        "output_dir": output_dir,
        "seed": seed,
        "client_model": client_model,
        "therapist_model": therapist_model,
        "temperature": temperature,
        "language": lang,
        "budget_limit": budget,
        **_model(model),
    }
    order = SimulationRequest(
        where=places(context.obj),
        config_path=config,
        folder=folder,
        overrides={name: value for name, value in given.items() if value is not None},
        resume=resume,
        again=RetrySelection(errors=retry_errors, failures=retry_failed),
    )
    simulation = order.read()
    models = order.models(simulation)
    for remark in simulation.remarks:
        print_note(f"note: {printable(remark)}")
    if dry_run:
        foreseen = None
        if simulation.evaluators_by_name or resume:
            with order.where.open_store() as store:
                house_for(order, simulation, models, store)
                foreseen = foresee(simulation, store) if resume else None
        return _dry_run(simulation, foreseen, as_json=as_json)

    def watch(store: Store, run_id: str) -> Any:
        return view_for(store, run_id, as_json=as_json, as_jsonl=as_jsonl)

    with order.where.open_store() as store:
        done = simulate(order, simulation, models, store, watch)
        return _tell(store, simulation, done, as_json=as_json, as_jsonl=as_jsonl)


def _model(model: str | None) -> dict[str, Any]:
    if model is None:
        return {}
    provider, slash, _ = model.partition("/")
    # The file's `model_type` must not be put before a name that has its provider already.
    return {"model_name": model, "model_type": ""} if slash and provider else {"model_name": model}


def _dry_run(simulation: DialoguePlan, foreseen: Extension | None, *, as_json: bool) -> int:
    items = list(simulation.items(""))
    if as_json:
        listed = [
            {"id": item.id, "file": item.settings["file"], "model": item.model or None, **item.factors}
            for item in items
        ]
        document: dict[str, Any] = {"dryRun": True, "itemCount": len(items), "items": listed}
        if foreseen is not None:
            document["resume"] = preview_document(foreseen, _file)
        print_json(document)
        return 0
    for item in items:
        words = [item.id, item.settings["file"], item.factors.get("profile", ""), item.model or "no model"]
        print("  ".join(printable(word, width=72) for word in words))
    if foreseen is not None:
        print_preview(foreseen, "dialogue", _file)
    print_note(f"{count(len(items), 'dialogue')}. All they name exists; nothing was started.")
    return 0


def _file(item: Item) -> str:
    return str(item.settings["file"])


def _tell(
    store: Store, simulation: DialoguePlan, done: SimulationResult, *, as_json: bool, as_jsonl: bool
) -> int:
    batch = store.read.batch(done.run_id, now())
    document = summary(store, batch) | {"outputDir": str(done.folder), "summary": dict(done.summary)}
    if as_json:
        print_json(document)
    elif as_jsonl:
        print(json.dumps({"type": "done", **document}, ensure_ascii=False), flush=True)
    else:
        print_summary(document)
        for name, each in done.summary["by_combination"].items():
            # Of those that did not succeed, turns are no result.
            turns = "" if each["avg_turns"] is None else f", {each['avg_turns']:.1f} turns on average"
            print_note(f"  {printable(name)}: {each['successful']} of {each['num_runs']} successful{turns}")
        print_note(f"files: {printable(done.folder)}")
    asyncio.run(asyncio.to_thread(notify, simulation.config["notify"], document))
    return exit_code(done.ending, document)


# `proctor export --input-dir`: a folder of dialogues as a CSV file.


LEVELS = ("session", "turn")


NAMED = 10
"""Files that could not be read and are named; the others are only counted."""


def export_dialogues(folder: Path, output: Path | None, *, level: str, stats: bool, as_json: bool) -> int:
    """Write the CSV file, say so, and print statistics if they are wanted."""
    if output is None:
        raise UsageError("say where the table goes\nGive --output results.csv.")
    if level not in LEVELS:
        raise UsageError(f"there is no level `{level}`\nThere are: {', '.join(LEVELS)}.")
    skipped = Skipped()
    if level == "turn":
        written, rows = write_turn_csv(folder, output, skipped), None
    else:
        rows = write_session_csv(folder, output, skipped)
        written = len(rows)
    figures: list[dict[str, Any]] = []
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
    tell_skipped(skipped)
    print_note(f"wrote {count(written, 'row')} to {printable(output)}")
    return codes.SUCCEEDED


def tell_skipped(skipped: Skipped) -> None:
    """Say which files could not be read; nothing, when all could."""
    for path, why in list(skipped.files.items())[:NAMED]:
        print_note(f"skipped {printable(path)}: {printable(why, width=200)}")
    if skipped.files:
        print_note(f"{count(len(skipped.files), 'file')} in the folder could not be read and left out.")


def _statistics(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for name in measures_of(rows):
        values = [row[name] for row in rows if row.get(name) is not None]
        whole = crossing([{**row, "client": "", "therapist": ""} for row in rows], name)
        found.append(
            {
                "column": name,
                "n": whole.overall.n,
                "mean": whole.overall.value,
                "std": whole.cells[0].std,
                "min": min(values),
                "max": max(values),
                "low": whole.overall.low,
                "high": whole.overall.high,
            }
        )
    return found


def _cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    around = "–" if each["low"] is None else f"{figure(each['low'])} to {figure(each['high'])}"
    shown = (figure(each[name]) for name in ("mean", "std", "min", "max"))
    return (each["column"], str(each["n"]), *shown, around)
