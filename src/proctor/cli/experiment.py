"""`proctor experiment`: every variation of a scenario, many runs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from proctor.batch.launch import Extension
from proctor.cli import ending as codes
from proctor.cli.carry_out import Shown
from proctor.cli.experiment_run import Wanted, check_models, find_judges, foresee, models_for, start
from proctor.cli.extending import foreseen_document, tell_foreseen
from proctor.cli.house import places
from proctor.cli.options import JsonAtEnd
from proctor.cli.tables import print_table
from proctor.cli.words import count, money, print_json, printable, say
from proctor.item import Item
from proctor.plan.experiment import Experiment, Limits, read_config, read_experiment
from proctor.store import Again

experiment_app = typer.Typer(add_completion=False)
apps = {"experiment": experiment_app}

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
        limits=Limits(max_parallel=max_parallel, budget_usd=budget, human=human),
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
        say(f"note: {printable(remark)}")
    wanted = Wanted(
        resume=resume,
        again=Again(errors=True, failures=retry_failed),
        shown=Shown(as_json=as_json, as_jsonl=as_jsonl),
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
            document["resume"] = foreseen_document(foreseen, _label)
        print_json(document)
        return codes.SUCCEEDED
    shown = [
        (f"var-{v.number:03d}", v.description, read.runs_per_variation) for v in read.variations[:LISTED]
    ]
    print_table(("VARIATION", "WHAT", "RUNS"), shown)
    if len(read.variations) > LISTED:
        print(f"… and {len(read.variations) - LISTED:,} more (--json)")
    for remark in remarks:
        say(f"note: {printable(remark)}")
    if foreseen is not None:
        tell_foreseen(foreseen, "run", _label)
    limit = "no budget" if read.budget_usd is None else f"at most {money(read.budget_usd)}"
    words = f"{count(len(read.variations), 'variation')}, {count(read.run_count, 'run')}"
    say(f"{words}, {read.max_parallel} at a time, {limit}. All they name exists; nothing was started.")
    return codes.SUCCEEDED


def _label(item: Item) -> str:
    return str(item.settings["label"])
