"""`proctor tasks`: tasks of benchmarks."""

import typer

from proctor.cli.history import from_history

tasks_app = typer.Typer(add_completion=False, no_args_is_help=True)
apps = {"tasks": tasks_app}


@tasks_app.callback()
def tasks() -> None:
    """Make tasks of a repository's history.

    Example:  proctor tasks from-history . --out tasks
    """


tasks_app.command("from-history")(from_history)
