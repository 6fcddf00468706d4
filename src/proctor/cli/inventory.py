"""`proctor agents`, `models` and `roles`: what is installed and available."""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from proctor import secrets
from proctor.agent import Availability
from proctor.agents import agent_names, find_agent
from proctor.bootstrap import load_settings, locate, now
from proctor.cli import output
from proctor.cli.output import Json, print_json, print_next, print_note, print_table, printable
from proctor.errors import PlanError, UsageError
from proctor.jobs.benchmark.models import ModelSupply, read_supply, with_discovered
from proctor.jobs.dialogue.roles import BUILT_IN, RoleFolder, Roles, new_role
from proctor.json_values import JsonObject
from proctor.models import local
from proctor.models.discovery import DiscoveredModel
from proctor.models.prices import Price, price_of
from proctor.models.router import is_stand_in

agents_app = typer.Typer(add_completion=False)

# Required settings, which a plan would have.
NEEDED: dict[str, JsonObject] = {"command": {"command": "true"}, "scripted": {"script": []}}


@agents_app.command()
def agents(as_json: Json = False) -> int:
    """List agents, whether they are installed, and how to install them.

    Example:  proctor agents
    """
    rows = [(name, *look(name)) for name in agent_names()]
    if as_json:
        print_json({"agents": [_agents_document(*row) for row in rows]})
    else:
        print_table(("AGENT", "READY", "VERSION", "REMARK", "REMEDY"), (_agent_cells(*row) for row in rows))
    return output.SUCCEEDED


def look(name: str) -> tuple[Availability, bool]:
    """Whether an agent is installed, and whether it is a mock."""
    try:
        agent = find_agent(name, NEEDED.get(name, {}))
    except UsageError as error:
        return Availability(ready=False, problem=str(error)), False
    variables = secrets.visible(os.environ, named={"HOME", *getattr(agent, "keys", ())})
    return agent.availability(variables), agent.stand_in


def _agents_document(name: str, availability: Availability, stand_in: bool) -> JsonObject:
    return {
        "name": name,
        "ready": availability.ready,
        "version": availability.version,
        "standIn": stand_in,
        "problem": availability.problem,
        "remedy": availability.remedy,
    }


def _agent_cells(name: str, availability: Availability, stand_in: bool) -> tuple[str, ...]:
    # The remedy has its own column: a command to paste must not be cut off.
    remark = "mock agent, for tests and demos" if stand_in else availability.problem
    return (
        name,
        "yes" if availability.ready else "no",
        availability.version,
        remark,
        "" if availability.ready else availability.remedy,
    )


models_app = typer.Typer(add_completion=False)


@models_app.callback(invoke_without_command=True)
def models(
    context: typer.Context,
    search: Annotated[str, typer.Option(help="Only models whose name contains TEXT.", metavar="TEXT")] = "",
    as_json: Json = False,
) -> int:
    """List available models with prices and status: from a running Ollama, from providers whose key is set,
    from models_config.yaml, and scripted models.

    Example:  proctor models --search llama
    """
    if context.invoked_subcommand:
        return output.SUCCEEDED
    folders = [Path.cwd()]
    settings = load_settings(folders, **(context.obj or {}))
    supply = with_discovered(read_supply(settings, folders, None))
    prices = {**settings.prices, **supply.prices}
    listed = [_Listed(each.name, each.source, True) for each in _discovered(supply)]
    matching = [each for each in (*_configured(supply), *listed) if search.lower() in each.name.lower()]
    if as_json:
        rows = [_models_document(model, price_of(model.name, prices, at=now())) for model in matching]
        print_json({"models": rows, "silent": dict(_silent(supply))})
    else:
        heads = ("MODEL", "FROM", "INPUT $/M", "OUTPUT $/M", "ANSWERS", "REMARK")
        print_table(heads, (_model_cells(model, prices, now()) for model in matching))
    for name, why in _silent(supply).items():
        print_note(f"note: {printable(name)} did not list its models: {printable(why)}")
    return output.SUCCEEDED


@models_app.command()
def install(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="The model: local/smollm2.", metavar="MODEL")] = local.MODEL,
    as_json: Json = False,
) -> int:
    """Download the weights of the small model (93 MB) into the user's cache, unless they are there; then it
    needs no network. Needs the extra `local`. Nothing is compiled.

    Example:  proctor models install local/smollm2
    """
    if model != local.MODEL:
        raise UsageError(
            f"`{printable(model)}` has no weights that Proctor installs\nOnly `{local.MODEL}` has some."
        )
    environment = load_settings([Path.cwd()], **(context.obj or {})).environment
    address = environment.get(local.ADDRESS_VARIABLE, "")
    if not address:
        local.require(environment, print_note)
    weights = "" if address else str(local.weights_file(environment))
    if as_json:
        print_json({"model": model, "weights": weights, "server": address})
    elif address:
        print_note(
            f"{model} is served at {printable(address)} ({local.ADDRESS_VARIABLE}): nothing to install"
        )
    else:
        print_note(f"{model} is installed: {printable(weights)}")
    return output.SUCCEEDED


class _Listed(NamedTuple):
    name: str
    source: str
    answers: bool
    remark: str = ""


def _discovered(supply: ModelSupply) -> Sequence[DiscoveredModel]:
    return supply.discovered.models if supply.discovered else ()


def _silent(supply: ModelSupply) -> Mapping[str, str]:
    return supply.discovered.silent if supply.discovered else {}


def _configured(supply: ModelSupply) -> Iterator[_Listed]:
    """Models of models_config.yaml that no provider lists, and why they may not answer."""
    known = {each.name for each in _discovered(supply)}
    for one in supply.config.models:
        if not {one.model, f"{one.model}:latest"} & known:
            remark = "" if one.enabled else "not enabled"
            if one.key_variable and not supply.environment.get(one.key_variable):
                remark = ", ".join(filter(None, (remark, f"{one.key_variable} is not set")))
            yield _Listed(
                one.model, str(supply.config_path), False, remark or "its provider does not list it"
            )


def _models_document(model: _Listed, price: Price | None) -> JsonObject:
    return {
        "name": model.name,
        "source": model.source,
        "answers": model.answers,
        "remark": model.remark,
        "standIn": is_stand_in(model.name),
        "price": None if price is None else {"input": price.rates.input, "output": price.rates.output},
        "priceSource": "" if price is None else price.source,
    }


def _model_cells(
    model: _Listed, prices: Mapping[str, Mapping[str, float]], moment: datetime
) -> tuple[str, ...]:
    price = price_of(model.name, prices, at=moment)
    rates = ("unknown", "unknown") if price is None else (f"{price.rates.input:g}", f"{price.rates.output:g}")
    remark = "mock model" if is_stand_in(model.name) else model.remark
    return model.name, model.source, *rates, "yes" if model.answers else "no", remark


roles_app = typer.Typer(add_completion=False)


@roles_app.callback(invoke_without_command=True)
def roles(context: typer.Context, as_json: Json = False) -> int:
    """List roles: built-in, and your own in a folder `roles` here or in the home.

    Example:  proctor roles show patientPsi
    """
    if context.invoked_subcommand:
        return output.SUCCEEDED
    there = _roles(context)
    entries = [(name, _read(there, name)) for name in there.names()]
    if as_json:
        print_json({"roles": [_roles_document(name, role) for name, role in entries]})
    else:
        print_table(
            ("ROLE", "PLAYS", "PROFILES", "LANGUAGES", "DESCRIPTION"), [_role_cells(n, r) for n, r in entries]
        )
    return output.SUCCEEDED


@roles_app.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Name of the role.", metavar="ROLE")],
    as_json: Json = False,
) -> int:
    """Show a role: description, sources, profiles, and options.

    Example:  proctor roles show consistentMI
    """
    role = _roles(context).find(name)
    if as_json:
        print_json(_roles_document(name, role))
        return output.SUCCEEDED
    print(f"{printable(role.name)}: plays {' or '.join(role.plays)}\n")
    print(f"{printable(role.description, lines=True)}\n")
    for source in role.source.data.get("sources") or ():
        print(f"  after {printable(source)}")
    print(f"\nprofiles: {', '.join(map(printable, role.profiles))}")
    for option, default in role.options.items():
        choices = (role.source.data.get("choices") or {}).get(option)
        among = f" (one of {', '.join(map(str, choices))})" if choices else ""
        print(f"option {printable(option)}: {printable(default)}{printable(among)}")
    print(f"folder: {printable(role.folder)}")
    return output.SUCCEEDED


@roles_app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the new role.", metavar="ROLE")],
    plays: Annotated[
        str, typer.Option(help="Side it plays: client or therapist.", metavar="SIDE")
    ] = "client",
    folder: Annotated[Path, typer.Option(help="Folder of your roles.", metavar="DIR")] = Path("roles"),
    as_json: Json = False,
) -> int:
    """Create a role, ready to run, with an example of every file.

    Example:  proctor roles new landlord --plays client
    """
    written = new_role(name, folder / name, plays=plays)
    if as_json:
        print_json({"files": [str(path) for path in written]})
    for path in written:
        print_note(f"wrote {printable(path)}")
    if (BUILT_IN / name).is_dir():
        print_note(f"note: this role replaces the built-in role {printable(name)} where its folder is used")
    other = "--therapists eliza" if plays == "client" else "--clients patientPsi"
    side = "--clients" if plays == "client" else "--therapists"
    print_next([f"proctor simulate {side} {name} {other} --num-runs 1 --dry-run"])
    return output.SUCCEEDED


def _roles(context: typer.Context) -> Roles:
    home, _ = locate(**(context.obj or {}))
    return Roles([Path.cwd() / "roles", home / "roles"])


def _read(there: Roles, name: str) -> RoleFolder | str:
    """A role, or why it cannot be read: a broken role must not hide the others."""
    try:
        return there.find(name)
    except PlanError as error:
        return str(error).partition("\n")[0]


def _role_cells(name: str, role: RoleFolder | str) -> tuple[str, ...]:
    if isinstance(role, str):
        return (name, "–", "–", "–", f"cannot be read: {role}")
    languages = ", ".join(role.languages) or "any"
    mine = "" if role.is_built_in else " (yours)"
    return (name + mine, ", ".join(role.plays), str(len(role.profiles)), languages, role.description)


def _roles_document(name: str, role: RoleFolder | str) -> JsonObject:
    if isinstance(role, str):
        return {"name": name, "error": role}
    return {
        "name": name,
        "plays": list(role.plays),
        "description": role.description,
        "sources": list(role.source.data.get("sources") or ()),
        "profiles": list(role.profiles),
        "options": dict(role.options),
        "languages": list(role.languages),
        "builtIn": role.is_built_in,
        "folder": str(role.folder),
    }


apps = {"agents": agents_app, "models": models_app, "roles": roles_app}
