"""How far two topics are apart in a graph, and which one a sentence is about.

Knows nothing of roles.
"""

import heapq
import math
import re
from collections.abc import Mapping

_WORD = re.compile(r"[^\W_]{3,}")


def distance(graph: Mapping[str, Mapping[str, float]], start: str, goal: str) -> float:
    """The length of the shortest way from one topic to another; infinity when there is none.

    Ways lead in both directions, whichever end they are written at.
    """
    ways: dict[str, dict[str, float]] = {}
    for topic, neighbours in graph.items():
        for other, length in neighbours.items():
            ways.setdefault(topic, {})[other] = length
            ways.setdefault(other, {}).setdefault(topic, length)
    reached, seen = [(0.0, start)], set[str]()
    while reached:
        length, topic = heapq.heappop(reached)
        if topic == goal:
            return length
        if topic in seen:
            continue
        seen.add(topic)
        for other, step in ways.get(topic, {}).items():
            heapq.heappush(reached, (length + step, other))
    return math.inf


def nearest(said: str, passages: Mapping[str, str]) -> str:
    """The topic whose passage shares most with what was said; empty when none shares a word.

    Shared words count the more, the fewer passages have them, so that common ones decide nothing.
    """
    words = {topic: set(_words(f"{topic} {text}")) for topic, text in passages.items()}
    spoken = set(_words(said))
    if not spoken or not words:
        return ""
    rare = {word: math.log(1 + len(words) / sum(word in of for of in words.values())) for word in _all(words)}
    scores = {topic: sum(rare[word] for word in of & spoken) for topic, of in words.items()}
    best = max(scores, key=lambda topic: scores[topic])
    return best if scores[best] > 0 else ""


def _words(text: str) -> list[str]:
    # Crude stems: "smoking" and "smoke", "drinks" and "drink" are about the same thing.
    return [re.sub(r"(ing|ed|es|s|e)$", "", word) for word in _WORD.findall(text.casefold())]


def _all(words: Mapping[str, set[str]]) -> set[str]:
    return {word for of in words.values() for word in of}
