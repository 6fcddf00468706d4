"""`proctor simulate`: every client × every therapist, each so often."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.batch.launch import Extension
from proctor.cli.carry_out import exit_code, notify, summary, tell_end
from proctor.cli.extending import foreseen_document, tell_foreseen
from proctor.cli.house import now, places
from proctor.cli.options import JsonAtEnd
from proctor.cli.simulating import Done, Order, foresee, house_for, simulate
from proctor.cli.views import view_for
from proctor.cli.words import count, print_json, printable, say
from proctor.item import Item
from proctor.plan.dialogue import Simulation
from proctor.store import Again, Store

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
    order = Order(
        where=places(context.obj),
        config_path=config,
        folder=folder,
        overrides={name: value for name, value in given.items() if value is not None},
        resume=resume,
        again=Again(errors=retry_errors, failures=retry_failed),
    )
    simulation = order.read()
    models = order.models(simulation)
    for remark in simulation.remarks:
        say(f"note: {printable(remark)}")
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


def _dry_run(simulation: Simulation, foreseen: Extension | None, *, as_json: bool) -> int:
    items = list(simulation.items(""))
    if as_json:
        listed = [
            {"id": item.id, "file": item.settings["file"], "model": item.model or None, **item.factors}
            for item in items
        ]
        document: dict[str, Any] = {"dryRun": True, "itemCount": len(items), "items": listed}
        if foreseen is not None:
            document["resume"] = foreseen_document(foreseen, _file)
        print_json(document)
        return 0
    for item in items:
        words = [item.id, item.settings["file"], item.factors.get("profile", ""), item.model or "no model"]
        print("  ".join(printable(word, width=72) for word in words))
    if foreseen is not None:
        tell_foreseen(foreseen, "dialogue", _file)
    say(f"{count(len(items), 'dialogue')}. All they name exists; nothing was started.")
    return 0


def _file(item: Item) -> str:
    return str(item.settings["file"])


def _tell(store: Store, simulation: Simulation, done: Done, *, as_json: bool, as_jsonl: bool) -> int:
    batch = store.read.batch(done.run_id, now())
    document = summary(store, batch) | {"outputDir": str(done.folder), "summary": dict(done.summary)}
    if as_json:
        print_json(document)
    elif as_jsonl:
        print(json.dumps({"type": "done", **document}, ensure_ascii=False), flush=True)
    else:
        tell_end(document)
        for name, each in done.summary["by_combination"].items():
            # Of those that did not succeed, turns are no result.
            turns = "" if each["avg_turns"] is None else f", {each['avg_turns']:.1f} turns on average"
            say(f"  {printable(name)}: {each['successful']} of {each['num_runs']} successful{turns}")
        say(f"files: {printable(done.folder)}")
    asyncio.run(asyncio.to_thread(notify, simulation.config["notify"], document))
    return exit_code(done.ending, document)
