"""`proctor doctor`: check the installation, and test a model or an agent for real."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from proctor.api.doctor import CheckResult, diagnose
from proctor.bootstrap import load_settings
from proctor.cli import output
from proctor.cli.output import Json, print_json, printable
from proctor.cli.run import LineView, OutputOptions, TerminalObserver, View

doctor_app = typer.Typer(add_completion=False)
apps = {"doctor": doctor_app}
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
    return output.SUCCEEDED if diagnosis.is_well else output.SOME_DID_NOT


class _Quiet(TerminalObserver):
    """Shows nothing; a signal still stops the run."""

    def make_view(self, run_id: str) -> View:
        return LineView(run_id, 1, 0, quiet=True)


def _print_checks(checks: Sequence[CheckResult]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        print(f"{MARKS[check.well]}  {check.name:<{width}}  {printable(check.said)}")
        if check.remedy:
            print(f"{'':7}{'':<{width}}  → {printable(check.remedy)}")
