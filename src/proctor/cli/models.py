"""`proctor models`: which models can be asked from here, from where, and at what price."""

import asyncio
from datetime import datetime
from typing import Annotated, Any

import typer

from proctor.cli import ending as codes
from proctor.cli.house import configuration, now, places
from proctor.cli.tables import print_table
from proctor.cli.words import print_json, printable, say
from proctor.models.discovery import FoundModel, discover
from proctor.models.prices import Price, price_of
from proctor.models.router import is_stand_in

models_app = typer.Typer(add_completion=False)
apps = {"models": models_app}


@models_app.command()
def models(
    context: typer.Context,
    search: Annotated[str, typer.Option(help="Only names that hold this text.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """List the models found here: of a running Ollama, of providers whose key is set, and the stand-ins.

    Example:  proctor models --search llama
    """
    config = configuration(places(context.obj))
    own = sorted(
        {name.rpartition("_BASE_URL")[0].lower() for name in config.variables if name.endswith("_BASE_URL")}
    )
    found = asyncio.run(discover(config.environment, extra=own))
    wanted = [model for model in found.models if search.lower() in model.name.lower()]
    if as_json:
        rows = [_document(model, price_of(model.name, config.prices, at=now())) for model in wanted]
        print_json({"models": rows, "silent": dict(found.silent)})
    else:
        heads = ("MODEL", "FROM", "INPUT $/M", "OUTPUT $/M", "REMARK")
        print_table(heads, (_cells(model, config.prices, now()) for model in wanted))
    for name, why in found.silent.items():
        say(f"note: {printable(name)} did not list its models: {printable(why)}")
    return codes.SUCCEEDED


def _document(model: FoundModel, price: Price | None) -> dict[str, Any]:
    return {
        "name": model.name,
        "source": model.source,
        "answers": True,
        "standIn": is_stand_in(model.name),
        "price": None if price is None else {"input": price.rates.input, "output": price.rates.output},
        "priceSource": "" if price is None else price.source,
    }


def _cells(model: FoundModel, prices: Any, moment: datetime) -> tuple[str, ...]:
    price = price_of(model.name, prices, at=moment)
    rates = ("unknown", "unknown") if price is None else (f"{price.rates.input:g}", f"{price.rates.output:g}")
    return model.name, model.source, *rates, "a stand-in" if is_stand_in(model.name) else ""
