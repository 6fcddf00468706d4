"""Which events a reader of log streams gets next: by time, by words, and no more than fits into a page.

Knows nothing of HTTP, or of where events come from.
"""

import hashlib
import re
from collections.abc import Callable, Sequence

from proctor.web.agentcore import paging
from proctor.web.agentcore.errors import LogsError
from proctor.web.agentcore.operation import Members
from proctor.web.agentcore.service import Service
from proctor.web.agentcore.streams import Event, events_of

MOST_EVENTS = 10_000
MOST_BYTES = 1024 * 1024
"""Of one page of events, as their readers expect it."""
_TOKEN = re.compile(r"(?P<direction>[fb])/(?P<place>\d{1,18})")
_TERM = re.compile(r'(?P<sign>[?-]?)(?:"(?P<phrase>[^"]*)"|(?P<word>\S+))')


def filtered(
    service: Service, group: str, streams: Sequence[str], asked: Members
) -> tuple[list[tuple[str, Event]], list[str], str | None]:
    """A page of matching events with their ids, the streams that are done with, and where to go on.

    Stream by stream, so that no more than one stands in memory however many a group has.
    """
    matches = _matcher(asked.get("filterPattern", ""))
    last, skip = paging.key_of("events", asked.get("nextToken"), str, int) or ["", 0]
    found: list[tuple[str, Event]] = []
    searched: list[str] = []
    room, size = asked.get("limit", MOST_EVENTS), 0
    for name in streams:
        if name < last:
            continue
        events = [event for event in within(events_of(service, group, name), asked) if matches(event.message)]
        for number in range(skip if name == last else 0, len(events)):
            size += len(events[number].message) + 26
            if len(found) == room or (size > MOST_BYTES and found):
                return found, searched, paging.token_of("events", [name, number])
            event_id = hashlib.sha256(f"{group}\n{name}\n{number}".encode()).hexdigest()[:56]
            found.append((event_id, events[number]))
        searched.append(name)
    return found, searched, None


def within(events: Sequence[Event], asked: Members) -> list[Event]:
    """The events in the time that is asked for."""
    start, end = asked.get("startTime", 0), asked.get("endTime")
    return [event for event in events if event.timestamp >= start and (end is None or event.timestamp < end)]


def page_of(events: Sequence[Event], asked: Members) -> tuple[int, int]:
    """Which events a page of a stream has: from one place up to another."""
    token = asked.get("nextToken")
    if token is None:
        forward, place = bool(asked.get("startFromHead")), 0 if asked.get("startFromHead") else len(events)
    else:
        found = _TOKEN.fullmatch(token)
        if found is None:
            raise LogsError("InvalidParameterException", "The specified nextToken is invalid.")
        forward, place = found["direction"] == "f", min(int(found["place"]), len(events))
    if forward:
        return place, _page_end(events, place, asked)
    # Backward: as many as fit before the place, still oldest first.
    turned = list(reversed(events[:place]))
    return place - _page_end(turned, 0, asked), place


def _page_end(events: Sequence[Event], start: int, asked: Members) -> int:
    end, size = start, 0
    most = min(len(events), start + asked.get("limit", MOST_EVENTS))
    while end < most:
        size += len(events[end].message) + 26
        # One event that is larger than a page is a page.
        if size > MOST_BYTES and end > start:
            break
        end += 1
    return end


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a message has all plain terms, none with a minus, and one of those with a question mark."""
    pattern = pattern.strip()
    if pattern.startswith(("{", "[", "%")):
        raise LogsError(
            "InvalidParameterException",
            'Filter patterns are terms here: word, "a phrase", ?either, -without.',
        )
    terms = [(found["sign"], found["phrase"] or found["word"] or "") for found in _TERM.finditer(pattern)]
    without = [term for sign, term in terms if sign == "-"]
    either = [term for sign, term in terms if sign == "?"]
    every = [term for sign, term in terms if not sign]

    def matches(message: str) -> bool:
        return (
            all(term in message for term in every)
            and not any(term in message for term in without)
            and (not either or any(term in message for term in either))
        )

    return matches
