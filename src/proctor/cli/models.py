"""`proctor models`: which models can be asked from here, from where, and at what price."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from proctor.cli import ending as codes
from proctor.cli.bench_models import Supply, read_supply, with_found
from proctor.cli.house import configuration, now, places
from proctor.cli.options import Json
from proctor.cli.tables import print_table
from proctor.cli.words import print_json, printable, say
from proctor.models.discovery import FoundModel
from proctor.models.prices import Price, price_of
from proctor.models.router import is_stand_in

models_app = typer.Typer(add_completion=False)
apps = {"models": models_app}


@models_app.command()
def models(
    context: typer.Context,
    search: Annotated[str, typer.Option(help="Only names that hold this text.")] = "",
    as_json: Json = False,
) -> int:
    """List the models found here: of a running Ollama, of providers whose key is set, those of
    models_config.yaml, and the stand-ins; with their source, their price, and whether they answer.

    Example:  proctor models --search llama
    """
    where = places(context.obj)
    config = configuration(where)
    supply = with_found(read_supply(where, [Path.cwd()], None))
    prices = {**config.prices, **supply.prices}
    listed = [_Listed(each.name, each.source, True) for each in _found(supply)]
    wanted = [each for each in (*_configured(supply), *listed) if search.lower() in each.name.lower()]
    if as_json:
        rows = [_document(model, price_of(model.name, prices, at=now())) for model in wanted]
        print_json({"models": rows, "silent": dict(_silent(supply))})
    else:
        heads = ("MODEL", "FROM", "INPUT $/M", "OUTPUT $/M", "ANSWERS", "REMARK")
        print_table(heads, (_cells(model, prices, now()) for model in wanted))
    for name, why in _silent(supply).items():
        say(f"note: {printable(name)} did not list its models: {printable(why)}")
    return codes.SUCCEEDED


class _Listed(NamedTuple):
    name: str
    source: str
    answers: bool
    remark: str = ""


def _found(supply: Supply) -> Sequence[FoundModel]:
    return supply.found.models if supply.found else ()


def _silent(supply: Supply) -> Mapping[str, str]:
    return supply.found.silent if supply.found else {}


def _configured(supply: Supply) -> Iterator[_Listed]:
    """Those of models_config.yaml that nobody has listed, and why they may not answer."""
    known = {each.name for each in _found(supply)}
    for one in supply.config.models:
        if not {one.model, f"{one.model}:latest"} & known:
            remark = "" if one.enabled else "not enabled"
            if one.key_variable and not supply.environment.get(one.key_variable):
                remark = ", ".join(filter(None, (remark, f"{one.key_variable} is not set")))
            yield _Listed(
                one.model, str(supply.config_path), False, remark or "its provider does not list it"
            )


def _document(model: _Listed, price: Price | None) -> dict[str, Any]:
    return {
        "name": model.name,
        "source": model.source,
        "answers": model.answers,
        "remark": model.remark,
        "standIn": is_stand_in(model.name),
        "price": None if price is None else {"input": price.rates.input, "output": price.rates.output},
        "priceSource": "" if price is None else price.source,
    }


def _cells(model: _Listed, prices: Any, moment: datetime) -> tuple[str, ...]:
    price = price_of(model.name, prices, at=moment)
    rates = ("unknown", "unknown") if price is None else (f"{price.rates.input:g}", f"{price.rates.output:g}")
    remark = "a stand-in" if is_stand_in(model.name) else model.remark
    return model.name, model.source, *rates, "yes" if model.answers else "no", remark
