"""`proctor agents`, `models` and `roles`: what is installed and available; `proctor doctor`: does it work."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from proctor.api.deprecated import OLD_NAMES_OF_AGENTS, OLD_NAMES_OF_MODELS, with_old_names
from proctor.api.doctor import CheckResult, diagnose
from proctor.api.inventory import (
    SMALL_MODEL,
    ListedAgent,
    ListedModel,
    install_model,
    list_agents,
    list_models,
)
from proctor.api.roles import ListedRole, UnreadableRole, create_role, find_role, list_roles
from proctor.bootstrap import load_settings, locate, now
from proctor.cli import output
from proctor.cli.output import Json, print_json, print_next, print_note, print_table, printable
from proctor.cli.run import LineView, OutputOptions, TerminalObserver, View
from proctor.json_values import camel_document

agents_app = typer.Typer(add_completion=False)


@agents_app.command()
def agents(as_json: Json = False) -> int:
    """List agents, whether they are installed, and how to install them.

    Example:  proctor agents
    """
    listed = list_agents(os.environ)
    if as_json:
        print_json(with_old_names(camel_document(listed), OLD_NAMES_OF_AGENTS))
    else:
        print_table(("AGENT", "READY", "VERSION", "NOTE", "REMEDY"), map(_agent_cells, listed.agents))
    return output.SUCCEEDED


def _agent_cells(agent: ListedAgent) -> tuple[str, ...]:
    # The remedy has its own column: a command to paste must not be cut off.
    note = "mock agent, for tests and demos" if agent.mock else agent.problem
    remedy = "" if agent.ready else agent.remedy
    return (agent.name, "yes" if agent.ready else "no", agent.version, note, remedy)


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
    listed = list_models(load_settings([Path.cwd()], **(context.obj or {})), now(), search=search)
    if as_json:
        print_json(with_old_names(camel_document(listed), OLD_NAMES_OF_MODELS))
    else:
        heads = ("MODEL", "FROM", "INPUT $/M", "OUTPUT $/M", "AVAILABLE", "NOTE")
        print_table(heads, map(_model_cells, listed.models))
    for name, why in listed.unavailable_providers.items():
        print_note(f"note: {printable(name)} did not list its models: {printable(why)}")
    return output.SUCCEEDED


@models_app.command()
def install(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="The model: local/smollm2.", metavar="MODEL")] = SMALL_MODEL,
    as_json: Json = False,
) -> int:
    """Download the weights of the small model (93 MB) into the user's cache, unless they are there; then it
    needs no network. Needs the extra `local`. Nothing is compiled.

    Example:  proctor models install local/smollm2
    """
    environment = load_settings([Path.cwd()], **(context.obj or {})).environment
    installed = install_model(model, environment, print_note)
    if as_json:
        print_json(camel_document(installed))
    elif installed.server:
        print_note(f"{model} is served at {printable(installed.server)}: nothing to install")
    else:
        print_note(f"{model} is installed: {printable(installed.weights)}")
    return output.SUCCEEDED


def _model_cells(model: ListedModel) -> tuple[str, ...]:
    rates = ("unknown", "unknown")
    if model.price is not None:
        rates = (f"{model.price.input:g}", f"{model.price.output:g}")
    note = "mock model" if model.mock else model.note
    return model.name, model.source, *rates, "yes" if model.available else "no", note


roles_app = typer.Typer(add_completion=False)


@roles_app.callback(invoke_without_command=True)
def roles(context: typer.Context, as_json: Json = False) -> int:
    """List roles: built-in, and your own in a folder `roles` here or in the home.

    Example:  proctor roles show patientPsi
    """
    if context.invoked_subcommand:
        return output.SUCCEEDED
    listed = list_roles(_home(context))
    if as_json:
        print_json({"roles": camel_document(listed)})
    else:
        heads = ("ROLE", "PLAYS", "PROFILES", "LANGUAGES", "DESCRIPTION")
        print_table(heads, map(_role_cells, listed))
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
    role = find_role(_home(context), name)
    if as_json:
        print_json(camel_document(role))
        return output.SUCCEEDED
    print(f"{printable(role.name)}: plays {' or '.join(role.plays)}\n")
    print(f"{printable(role.description, lines=True)}\n")
    for source in role.sources:
        print(f"  after {printable(source)}")
    print(f"\nprofiles: {', '.join(map(printable, role.profiles))}")
    for option, default in role.options.items():
        choices = role.choices.get(option)
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
    role = create_role(name, folder / name, plays=plays)
    if as_json:
        print_json({"files": [str(path) for path in role.files]})
    for path in role.files:
        print_note(f"wrote {printable(path)}")
    if role.replaces_built_in:
        print_note(f"note: this role replaces the built-in role {printable(name)} where its folder is used")
    other = "--therapists eliza" if plays == "client" else "--clients patientPsi"
    side = "--clients" if plays == "client" else "--therapists"
    print_next([f"proctor simulate {side} {name} {other} --num-runs 1 --dry-run"])
    return output.SUCCEEDED


def _home(context: typer.Context) -> Path:
    return locate(**(context.obj or {}))[0]


def _role_cells(role: ListedRole | UnreadableRole) -> tuple[str, ...]:
    if isinstance(role, UnreadableRole):
        return (role.name, "–", "–", "–", f"cannot be read: {role.error}")
    languages = ", ".join(role.languages) or "any"
    owner = "" if role.built_in else " (yours)"
    return (role.name + owner, ", ".join(role.plays), str(len(role.profiles)), languages, role.description)


doctor_app = typer.Typer(add_completion=False)
MARKS = {True: "ok   ", False: "FAIL ", None: "     "}


@doctor_app.command()
def doctor(
    context: typer.Context,
    agent: Annotated[
        str, typer.Option(help="Test this agent on a small task in a temporary repository.", metavar="AGENT")
    ] = "",
    model: Annotated[
        str,
        typer.Option(
            help="Make one small call of this model; with --agent, the agent uses it.", metavar="MODEL"
        ),
    ] = "",
    store: Annotated[
        bool, typer.Option("--store", help="Check the store: what is damaged, and how to recover.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Check the installation; test a model or an agent. Each problem comes with its fix.

    Example:  proctor doctor --agent claude --model anthropic/claude-sonnet-4-5
    """
    settings = load_settings([Path.cwd()], **(context.obj or {}))
    diagnosis = asyncio.run(
        diagnose(
            settings,
            agent=agent,
            model=model,
            store=store,
            make_observer=lambda ctx: _Quiet(ctx, OutputOptions()),
        )
    )
    if as_json:
        print_json(diagnosis.document())
    else:
        _print_checks(diagnosis.checks)
    return output.SUCCEEDED if diagnosis.is_ok else output.SOME_DID_NOT


class _Quiet(TerminalObserver):
    """Shows nothing; a signal still stops the run."""

    def make_view(self, run_id: str) -> View:
        return LineView(run_id, 1, 0, quiet=True)


def _print_checks(checks: Sequence[CheckResult]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        print(f"{MARKS[check.ok]}  {check.name:<{width}}  {printable(check.message)}")
        if check.remedy:
            print(f"{'':7}{'':<{width}}  → {printable(check.remedy)}")


apps = {"agents": agents_app, "models": models_app, "roles": roles_app, "doctor": doctor_app}
