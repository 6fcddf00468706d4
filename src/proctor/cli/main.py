"""The `proctor` command: which word starts which module, and how it ends.

Only the module of the command that was called is loaded; `proctor --help` loads none, so that it
answers in the time Python itself takes to start.
"""

import gc
import sys
from collections.abc import Sequence
from typing import Any

from proctor.lazy_import import load

COMMANDS = {
    "batch": ("batch", "Run a plan of repositories × prompts × agents."),
    "bench": ("bench", "Run a task on many models, and rank them."),
    "simulate": ("simulate", "Let every client talk to every therapist."),
    "roles": ("inventory", "List the roles that can be played, or make a new one."),
    "experiment": ("scenario", "Run every variation of a scenario, many times."),
    "scenario": ("scenario", "Run, validate, estimate and branch one scenario."),
    "analyze": ("report", "Say what the runs of an experiment show."),
    "evaluate": ("evaluate", "Judge recorded sessions, wherever they came from."),
    "evaluators": ("evaluators", "List, make, try and calibrate evaluators."),
    "import": ("importing", "Bring in sessions that were recorded elsewhere."),
    "compare": ("compare", "Say what the difference between runs is worth."),
    "resume": ("resume", "Go on with a run that was stopped, halted or killed."),
    "abort-run": ("runs", "Stop a run, wherever it is being carried out."),
    "runs": ("runs", "List the runs there are."),
    "show": ("runs", "Show a run, an item or a session."),
    "watch": ("runs", "Watch a run until it ends."),
    "delete": ("runs", "Delete a run with its branches, work trees and rows."),
    "sessions": ("sessions", "List, diff, squash, rebase, merge and clean up sessions."),
    "export": ("export", "Write a run's tables as JSON, NDJSON, CSV or Parquet."),
    "report": ("report", "Write a report in Markdown or HTML."),
    "encryption": ("encryption", "Seal the store under a key, look how it is sealed, change keys."),
    "models": ("inventory", "List the models that can be asked from here."),
    "agents": ("inventory", "List the agents and whether they are installed."),
    "doctor": ("doctor", "Look at this machine; try a model or an agent."),
    "serve": ("serve", "Serve the web app and the HTTP interface."),
    "gateway": ("serve", "Let agents reach models through Proctor, recorded and priced."),
}
"""Each command: the module that holds it, and what it is for."""


INTERNAL = {"launched": "launched"}
"""Commands that Proctor starts itself, by module."""
OPTIONAL_VALUES = {("batch", "--resume"): "last", ("bench", "--parallel"): "auto"}
"""Options that may stand without a value, and the value they then have."""


GLOBALS = {"--store": "store", "--home": "home"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    words = _normalised(list(sys.argv[1:] if arguments is None else arguments))
    if not words or words[0] in ("--help", "-h", "help"):
        print(_help())
        return 0 if words else 2
    if words[0] == "--version":
        from proctor import __version__

        print(f"proctor {__version__}")
        return 0
    return _run(words)


def _run(words: list[str]) -> int:
    # Loaded here, not above: it brings typer, which the help does without.
    from proctor.cli import output

    options, words = _globals(words)
    with output.told(as_json="--json" in words or "--jsonl" in words) as end:
        name = words[0] if words else ""
        if name not in COMMANDS and name not in INTERNAL:
            raise output.unknown_command(name, COMMANDS)
        module: Any = load(f"proctor.cli.{INTERNAL.get(name) or COMMANDS[name][0]}")
        # All of that stays: it need not be looked through again and again.
        gc.freeze()
        end.code = module.apps[words[0]](
            args=words[1:], prog_name=f"proctor {words[0]}", standalone_mode=False, obj=options
        )
    return end.code or 0


def _help() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {what}" for name, (_, what) in COMMANDS.items())
    return (
        "proctor COMMAND [OPTIONS]\n"
        "  Runs AI agents in batches, records everything they do, judges it, and says what a\n"
        "  difference is worth.\n\n"
        "  Example:  proctor batch plan.yaml --dry-run\n\n"
        f"Commands:\n{rows}\n\n"
        "Everywhere:\n"
        "  --json        one JSON document on standard output, people's words on standard error\n"
        "  --store URL   the store: a file, or postgresql://…  [env PROCTOR_STORE]\n"
        "  --home DIR    where work trees and the store live   [env PROCTOR_HOME]\n"
        "  --version     print the version\n\n"
        "`proctor COMMAND --help` tells more of a command.\n"
        "Exit codes: 0 every item succeeded · 1 finished, some did not · 2 bad usage or plan, nothing\n"
        "started · 3 halted or aborted before the end · 130 Ctrl-C."
    )


def _normalised(words: list[str]) -> list[str]:
    """`--num_runs` is `--num-runs`; an option that may stand alone gets its value."""
    result: list[str] = []
    for position, word in enumerate(words):
        if word == "--":
            return result + words[position:]
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            word = name.replace("_", "-") + equals + value
        alone = OPTIONAL_VALUES.get((words[0], word))
        following = words[position + 1] if position + 1 < len(words) else "-"
        if alone and (following.startswith("-") or following.endswith((".yaml", ".yml"))):
            word = f"{word}={alone}"
        result.append(word)
    return result


def _globals(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Options that stand before or behind any command, apart from the rest."""
    found, rest, waiting = {}, list[str](), ""
    for word in words:
        name, equals, value = word.partition("=")
        if waiting:
            found[waiting], waiting = word, ""
        elif name in GLOBALS and equals:
            found[GLOBALS[name]] = value
        elif name in GLOBALS:
            waiting = GLOBALS[name]
        else:
            rest.append(word)
    return found, rest
