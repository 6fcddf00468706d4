"""The `proctor` command: dispatch to the module of a command, and the exit code.

Only the module of the called command is loaded; `proctor --help` loads none and starts as fast as Python.
"""

import gc
import sys
from collections.abc import Sequence
from typing import Any

from proctor import __version__
from proctor.lazy_import import load

GROUPS = {
    "Run": {
        "batch": ("batch", "Run a plan of repositories × prompts × agents."),
        "bench": ("bench", "Run a task on many models, and rank them."),
        "tasks": ("tasks", "List, show, check, and convert tasks; make them of a repository's history."),
        "simulate": ("simulate", "Simulate conversations between roles (every client × every therapist)."),
        "experiment": ("scenario", "Run every variation of a scenario, with repeats."),
        "scenario": ("scenario", "Run, validate, estimate, and branch one scenario."),
        "resume": ("resume", "Resume a run that was stopped, halted, or killed."),
        "abort-run": ("runs", "Stop a run, including one started by another process."),
        "watch": ("runs", "Watch a run until it ends."),
        "top": ("runs", "Show all live runs."),
        "attach": ("runs", "Follow a session while its agent works."),
    },
    "Evaluate": {
        "evaluate": ("evaluate", "Evaluate recorded sessions: Proctor runs, traces, or files."),
        "evaluators": ("evaluators", "List, create, test, and calibrate evaluators."),
        "import": ("import_export", "Import sessions from traces or other tools."),
    },
    "Results": {
        "runs": ("runs", "List runs."),
        "show": ("runs", "Show a run, an item, or a session."),
        "search": ("sessions", "Search the transcripts of all sessions."),
        "compare": ("compare", "Compare runs with a baseline; gate CI on regressions."),
        "rank": ("compare", "Rank models with rank intervals: runs, or files of results."),
        "power": ("compare", "Say how many tasks a comparison needs."),
        "analyze": ("report", "Analyze an experiment or simulation."),
        "report": ("report", "Write a report in Markdown, HTML, or JSON."),
        "export": ("import_export", "Export tables as JSON, NDJSON, CSV, or Parquet."),
    },
    "Manage": {
        "review": ("sessions", "List finished sessions to merge, discard, or send back."),
        "sessions": ("sessions", "List, diff, merge, continue, and clean up sessions."),
        "delete": ("runs", "Delete a run with its branches, worktrees, and rows."),
        "prune": ("store", "Delete old runs, or only their texts, and free the space."),
        "store": ("store", "Check, back up, restore, and copy the store."),
        "roles": ("inventory", "List roles for simulations, or create one."),
        "encryption": ("store", "Encrypt the store; create, inspect, and rotate keys."),
    },
    "Setup": {
        "init": ("setup", "Write a first plan for this repository."),
        "doctor": ("inventory", "Check the installation; test a model or an agent."),
        "models": ("inventory", "List available models with prices and status."),
        "agents": ("inventory", "List agents and whether they are installed."),
        "serve": ("serve", "Serve the web app and the HTTP API."),
        "schema": ("setup", "Print the JSON Schema of plans, for editors."),
        "shims": ("setup", "Write modules under the names of earlier frameworks."),
        "completion": ("setup", "Print the completion script of a shell."),
        "mcp": ("mcp", "Serve tools for AI assistants (Model Context Protocol)."),
        "gateway": ("serve", "Run a local model gateway that records and prices every call."),
    },
}
"""Each command, by group: the module that implements it, and its summary."""
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}
INTERNAL = {"launched": "resume", "check-plan": "serve", "build-sessions": "serve"}
"""Commands that Proctor starts itself, by module."""
OPTIONAL_VALUES = {("batch", "--resume"): "last", ("bench", "--parallel"): "auto"}
"""Options whose value may be left out, and the value they then have."""
GARBAGE_THRESHOLD = 20_000
"""Objects that may be added between two garbage collections: some megabytes."""
GLOBALS = {"--store": "store", "--home": "home"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    tokens = _normalized(list(sys.argv[1:] if arguments is None else arguments))
    if not tokens or tokens[0] in ("--help", "-h", "help"):
        print(_help())
        return 0 if tokens else 2
    if tokens[0] == "--version":
        print(version_text(as_json="--json" in tokens))
        return 0
    # Loaded here, not above: it imports typer, which the help does not need.
    from proctor.cli import output

    options, tokens = _globals(tokens)
    with output.exit_on_error(as_json="--json" in tokens or "--jsonl" in tokens) as end:
        name = tokens[0] if tokens else ""
        if name not in COMMANDS and name not in INTERNAL:
            raise output.unknown_command(name, COMMANDS)
        module: Any = load(f"proctor.cli.{INTERNAL.get(name) or COMMANDS[name][0]}")
        # Modules live to the end: the garbage collector need not scan them. The objects of the items in
        # progress are more than its default threshold; it would scan them again and again.
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD, 20, 20)
        command = module.apps[name]
        if "--help" in tokens:
            command = output.with_placeholders(command)
        end.code = command(args=tokens[1:], prog_name=f"proctor {name}", standalone_mode=False, obj=options)
    return end.code or 0


def _help() -> str:
    width = max(map(len, COMMANDS))
    groups = "\n\n".join(
        f"{title}:\n" + "\n".join(f"  {name:<{width}}  {summary}" for name, (_, summary) in group.items())
        for title, group in GROUPS.items()
    )
    return (
        "proctor COMMAND [OPTIONS]\n"
        "  Run AI agents in batches, record every step, score the results, and compare runs with\n"
        "  confidence intervals.\n\n"
        "  Example:  proctor batch plan.yaml --dry-run\n\n"
        f"{groups}\n\n"
        "Global options:\n"
        "  --json        print one JSON document to stdout; messages go to stderr\n"
        "  --store URL   the store: a file, or postgresql://…     [env PROCTOR_STORE]\n"
        "  --home DIR    folder of the store and the worktrees    [env PROCTOR_HOME]\n"
        "  --version     print the version\n\n"
        "Run `proctor COMMAND --help` for details.\n"
        "Exit codes: 0 all items succeeded · 1 some did not · 2 invalid usage or plan, nothing started ·\n"
        "3 halted or aborted · 4 inconclusive (compare) · 130 Ctrl-C."
    )


def _normalized(arguments: list[str]) -> list[str]:
    """Write `--num_runs` as `--num-runs`, and add the values that were left out."""
    result: list[str] = []
    for position, word in enumerate(arguments):
        if word == "--":
            return result + arguments[position:]
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            word = name.replace("_", "-") + equals + value
        default = OPTIONAL_VALUES.get((arguments[0], word))
        following = arguments[position + 1] if position + 1 < len(arguments) else "-"
        if default and (following.startswith("-") or following.endswith((".yaml", ".yml"))):
            word = f"{word}={default}"
        result.append(word)
    return result


def _globals(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Split off the global options, which may stand anywhere before `--`."""
    options, rest, waiting = dict[str, str](), list[str](), ""
    for position, word in enumerate(arguments):
        if word == "--" and not waiting:
            return options, [*rest, *arguments[position:]]
        name, equals, value = word.partition("=")
        is_last = position + 1 == len(arguments) or arguments[position + 1].startswith("--")
        if waiting:
            options[waiting], waiting = word, ""
        elif name in GLOBALS and equals:
            options[GLOBALS[name]] = value
        elif name in GLOBALS and not is_last:
            waiting = GLOBALS[name]
        else:
            rest.append(word)
    return options, rest


EXTRAS = {
    "aws": "boto3",
    "crypto": "cryptography",
    "litellm": "litellm",
    "local": "xllamacpp",
    "mcp": "mcp",
    "otlp": "grpc",
    "pandas": "pandas",
    "parquet": "duckdb",
    "postgres": "psycopg",
    "ray": "ray",
}
"""Each optional dependency, with the module that it brings."""


def version_text(*, as_json: bool) -> str:
    """The line of `proctor --version`, or the document of `--version --json`."""
    if not as_json:
        return f"proctor {__version__}"
    # The help and a plain version need none of these.
    import json
    import platform
    from importlib.util import find_spec

    from proctor.api.stores import newest_schema

    document = {
        "version": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "storeSchema": newest_schema(),
        "extras": {name: find_spec(module) is not None for name, module in EXTRAS.items()},
    }
    return json.dumps(document, indent=2)
