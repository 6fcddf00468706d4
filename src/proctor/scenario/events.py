"""What happens to everyone, whatever they decide: trends, chance, consequences and dates.

Chance has a number of its own for each event and turn, so that an event added to a scenario leaves the
luck of all others as it was.

Knows nothing of models or of what the events mean.
"""

import random
from collections.abc import Iterable, Mapping

from proctor.scenario.conditions import all_hold
from proctor.scenario.definition import Event
from proctor.scenario.state import Value


def happening(
    events: Mapping[str, Event],
    *,
    turn: int,
    seed: int,
    metrics: Mapping[str, Value],
    before: Iterable[str],
) -> list[str]:
    """The names of the events of this turn; `before` are those that have happened already."""
    gone = set(before)
    return [
        name
        for name, event in events.items()
        if not (event.once and name in gone) and _happens(name, event, turn, seed, metrics)
    ]


def _happens(name: str, event: Event, turn: int, seed: int, metrics: Mapping[str, Value]) -> bool:
    first, last = event.turn_range or (1, turn)
    if not first <= turn <= last:
        return False
    match event.type:
        case "scheduled":
            return turn == event.turn
        case "trend":
            return (turn - first) % event.frequency == 0
        case "random":
            return random.Random(f"{seed}|{turn}|{name}").random() < event.probability
        case "conditional":
            return all_hold(event.conditions, metrics)
