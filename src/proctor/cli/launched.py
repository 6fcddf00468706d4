"""`proctor launched`: execute a run that `api.launch` detached. Internal; not listed in the help."""

import sys
from pathlib import Path

import typer

from proctor.api.launch import COMMAND, LaunchRequest, execute
from proctor.cli.output import JsonAtEnd
from proctor.cli.run import OutputOptions, TerminalObserver, run_command, terminal_context

launched_app = typer.Typer(add_completion=False)
apps = {COMMAND: launched_app}


@launched_app.command()
def launched(context: typer.Context, as_json: JsonAtEnd = False) -> int:
    """Start or resume the run of the request on standard input."""
    request = LaunchRequest.from_json(sys.stdin.buffer.read())
    output = OutputOptions(as_json=as_json)
    folders = [] if request.plan_text is None else [Path(request.folder), Path.cwd()]
    with terminal_context(context.obj, list(dict.fromkeys(folders))) as ctx:
        return run_command(ctx, execute(request, ctx, TerminalObserver(ctx, output)), output)
