"""Say what a changed config changes in an earlier run: what is new and why, and what is gone.

Knows nothing of experiments or simulations but what one of their items is called.
"""

from collections.abc import Callable
from typing import Any

from proctor.batch.launch import Extension
from proctor.cli.words import count, printable, say
from proctor.item import Item

LISTED = 20
"""New items that a dry run names for people; `--json` has them all."""


def tell_extension(told: Extension, noun: str) -> None:
    """Say what has been changed in a run that is taken up again; nothing, when nothing was."""
    if told.added:
        say(f"{count(told.added, f'new {noun}')} since the last time (new because of {_why(told, noun)})")
    if told.dropped or told.kept:
        say(f"no longer in the config: {told.dropped} dropped from the queue, {told.kept} with results kept")


def tell_foreseen(told: Extension, noun: str, name: Callable[[Item], str]) -> None:
    """Say what would be changed in a run if it were taken up again now."""
    if not told.added:
        say(f"--resume would add no {noun}: all of them are in the earlier run.")
    else:
        named = ", ".join(printable(name(item)) for item in told.new[:LISTED])
        more = f" and {told.added - LISTED:,} more (--json)" if told.added > LISTED else ""
        say(f"--resume would add {count(told.added, f'new {noun}')}: {named}{more}")
        say(f"  new because of {_why(told, noun)}")
    if told.dropped or told.kept:
        say(f"  no longer in the config: {told.dropped} would be dropped, {told.kept} with results kept")


def foreseen_document(told: Extension, name: Callable[[Item], str]) -> dict[str, Any]:
    """The same for programs."""
    return {
        "new": [name(item) for item in told.new],
        "reasons": dict(told.reasons),
        "dropped": told.dropped,
        "kept": told.kept,
    }


def _why(told: Extension, noun: str) -> str:
    why = "; ".join(f"{count(number, noun)}: {field}" for field, number in told.reasons.items())
    return printable(why, width=400)
