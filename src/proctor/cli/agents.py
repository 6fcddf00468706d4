"""`proctor agents`: who can be handed work, and whether they are here."""

from typing import Any

import typer

from proctor.agent import Availability
from proctor.agents import agent_names, find_agent
from proctor.batch import secrecy
from proctor.cli import ending as codes
from proctor.cli.house import environment
from proctor.cli.options import Json
from proctor.cli.tables import print_table
from proctor.cli.words import print_json
from proctor.errors import UsageError

agents_app = typer.Typer(add_completion=False)
apps = {"agents": agents_app}

# What these two need comes from the plan; without it they cannot be made at all.
NEEDED: dict[str, dict[str, Any]] = {"command": {"command": "true"}, "scripted": {"script": []}}


@agents_app.command()
def agents(as_json: Json = False) -> int:
    """List the agents, whether each can be used here, and how to get those that cannot.

    Example:  proctor agents
    """
    found = [(name, *look(name)) for name in agent_names()]
    if as_json:
        print_json({"agents": [_document(*row) for row in found]})
    else:
        print_table(("AGENT", "READY", "VERSION", "REMARK", "REMEDY"), (_cells(*row) for row in found))
    return codes.SUCCEEDED


def look(name: str) -> tuple[Availability, bool]:
    """Whether an agent can be used here, and whether it is a stand-in."""
    try:
        agent = find_agent(name, NEEDED.get(name, {}))
    except UsageError as error:
        return Availability(ready=False, problem=str(error)), False
    seen = secrecy.visible(environment(), named={"HOME", *getattr(agent, "keys", ())})
    return agent.availability(seen), agent.stand_in


def _document(name: str, found: Availability, stand_in: bool) -> dict[str, Any]:
    return {
        "name": name,
        "ready": found.ready,
        "version": found.version,
        "standIn": stand_in,
        "problem": found.problem,
        "remedy": found.remedy,
    }


def _cells(name: str, found: Availability, stand_in: bool) -> tuple[str, ...]:
    # Apart from the problem: what is to be typed must not be cut off.
    remark = "a stand-in, for rehearsal" if stand_in else found.problem
    return name, "yes" if found.ready else "no", found.version, remark, "" if found.ready else found.remedy
