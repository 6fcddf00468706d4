"""Notice when a conversation goes round in circles.

Knows nothing of roles or models.
"""

import re
from collections.abc import Sequence

from proctor.dialogue.party import Utterance
from proctor.dialogue.role import SIDES

LONGEST_CIRCLE = 2
"""Turns a circle may have: two people who say the same two things in turn."""


def repeating(history: Sequence[Utterance], rounds: int) -> tuple[str, ...]:
    """The sides that repeat themselves, when both do; empty when the conversation still moves.

    Both must have said the same `rounds` times on end, or gone through the same two things so often.
    """
    if rounds < 2:
        return ()
    circling = tuple(side for side in SIDES if _circles(_of(history, side), rounds))
    return circling if len(circling) == len(SIDES) else ()


def _of(history: Sequence[Utterance], side: str) -> list[str]:
    return [_bare(said.text) for said in history if said.side == side]


def _circles(said: list[str], rounds: int) -> bool:
    for length in range(1, LONGEST_CIRCLE + 1):
        last = said[-length * rounds :]
        if len(last) == length * rounds and last == last[:length] * rounds:
            return True
    return False


def _bare(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold())) or text
