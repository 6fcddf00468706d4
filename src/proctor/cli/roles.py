"""`proctor roles`: who can be played, and how to make someone new."""

from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.cli import ending as codes
from proctor.cli.house import places
from proctor.cli.options import Json
from proctor.cli.tables import print_table
from proctor.cli.words import print_json, printable, say
from proctor.errors import PlanError
from proctor.plan.roles import BUILT_IN, RoleFolder, Roles, new_role

roles_app = typer.Typer(add_completion=False)
apps = {"roles": roles_app}


@roles_app.callback(invoke_without_command=True)
def roles(context: typer.Context, as_json: Json = False) -> int:
    """List the roles that can be played: ours, and yours in a folder `roles` here or in Proctor's home.

    Example:  proctor roles show patientPsi
    """
    if context.invoked_subcommand:
        return codes.SUCCEEDED
    there = _roles(context)
    found = [(name, _read(there, name)) for name in there.names()]
    if as_json:
        print_json({"roles": [_document(name, role) for name, role in found]})
    else:
        print_table(
            ("ROLE", "PLAYS", "PROFILES", "LANGUAGES", "WHAT IT IS"), [_cells(n, r) for n, r in found]
        )
    return codes.SUCCEEDED


@roles_app.command()
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The role's name.")],
    as_json: Json = False,
) -> int:
    """Show one role: what it is, where it comes from, its profiles and options.

    Example:  proctor roles show consistentMI
    """
    role = _roles(context).find(name)
    if as_json:
        print_json(_document(name, role))
        return codes.SUCCEEDED
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
    return codes.SUCCEEDED


@roles_app.command()
def new(
    name: Annotated[str, typer.Argument(help="What it is to be called.")],
    plays: Annotated[str, typer.Option(help="The side it plays: client or therapist.")] = "client",
    folder: Annotated[Path, typer.Option(help="Where roles are kept.")] = Path("roles"),
    as_json: Json = False,
) -> int:
    """Make the folder of a new role, with one of everything, ready to run.

    Example:  proctor roles new landlord --plays client
    """
    written = new_role(name, folder / name, plays=plays)
    if as_json:
        print_json({"files": [str(path) for path in written]})
    for path in written:
        say(f"wrote {printable(path)}")
    if (BUILT_IN / name).is_dir():
        say(f"note: where this folder is found, it takes the place of the built-in role {printable(name)}")
    other = "--therapists eliza" if plays == "client" else "--clients patientPsi"
    side = "--clients" if plays == "client" else "--therapists"
    say(f"Try it:  proctor simulate {side} {printable(name)} {other} --num-runs 1 --dry-run")
    return codes.SUCCEEDED


def _roles(context: typer.Context) -> Roles:
    return Roles([Path.cwd() / "roles", places(context.obj).home / "roles"])


def _read(there: Roles, name: str) -> RoleFolder | str:
    """One broken role must not hide the others."""
    try:
        return there.find(name)
    except PlanError as error:
        return str(error).partition("\n")[0]


def _cells(name: str, role: RoleFolder | str) -> tuple[str, ...]:
    if isinstance(role, str):
        return (name, "–", "–", "–", f"cannot be read: {role}")
    languages = ", ".join(role.languages) or "any"
    mine = "" if role.is_built_in else " (yours)"
    return (name + mine, ", ".join(role.plays), str(len(role.profiles)), languages, role.description)


def _document(name: str, role: RoleFolder | str) -> dict[str, Any]:
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
