"""Ask whether the user is sure."""

import sys

import typer

from proctor.errors import UsageError


def is_sure(question: str) -> bool:
    """Whether the user says yes. Where nobody can answer, say how to answer beforehand."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise KeyboardInterrupt from None
        raise UsageError(f"nobody answered: {question}\nSay it beforehand:  --yes") from None
