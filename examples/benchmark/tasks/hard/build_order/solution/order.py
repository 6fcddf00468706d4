"""In which order to build.

>>> build_order({"app": ["lib"], "lib": []})
['lib', 'app']
"""

import heapq


class Circle(ValueError):
    """Parts that need each other."""

    def __init__(self, parts):
        super().__init__("parts need each other: " + " needs ".join([*parts, parts[0]]))
        self.parts = parts


def build_order(needs):
    """All parts, each behind those it needs; the alphabet decides where nothing else does."""
    waits = {part: set(others) for part, others in needs.items()}
    for other in [other for others in needs.values() for other in others]:
        waits.setdefault(other, set())
    needed_by = {part: [] for part in waits}
    for part, others in waits.items():
        for other in others:
            needed_by[other].append(part)
    left = {part: len(others) for part, others in waits.items()}
    ready = [part for part, count in left.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        part = heapq.heappop(ready)
        order.append(part)
        for other in needed_by[part]:
            left[other] -= 1
            if not left[other]:
                heapq.heappush(ready, other)
    if len(order) < len(waits):
        raise Circle(_circle(waits, {part for part, count in left.items() if count}))
    return order


def _circle(waits, stuck):
    """A circle among parts each of which waits for another of them."""
    part, seen = min(stuck), {}
    while part not in seen:
        seen[part] = len(seen)
        part = min(waits[part] & stuck)
    circle = [each for each, position in seen.items() if position >= seen[part]]
    first = circle.index(min(circle))
    return circle[first:] + circle[:first]
