"""Where a text occurs in what was said and done in one session.

Long texts are kept compressed, and some stores are sealed, so it is looked for here and not by the
database: event after event, until there are enough hits or enough was read for one answer.

Knows nothing of how hits are shown.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.store.database import Row
from proctor.store.reading import Reader
from proctor.store.transcripts import KINDS

AROUND_CHARACTERS = 80
"""Of the text before and behind a hit."""
READ_CHARACTERS = 20_000_000
"""For one answer: some tenths of a second."""
EVENTS_AT_ONCE = 200
# The bodies of model calls repeat what the messages say, and are many times as long.
SEARCHED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "messages": ("role", ("content",)),
    "tool_calls": ("toolName", ("argsJson", "result")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """The first place in one text of an event where it occurs."""

    kind: str
    position: int
    name: str
    """Who said it, or the tool."""
    part: str
    """Which text of the event: `content`, `argsJson` or `result`."""
    offset: int
    """In characters from the text's beginning."""
    before: str
    match: str
    behind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What one look through a session has found."""

    hits: tuple[Hit, ...]
    last_position: int
    """As far as it was looked."""
    has_more: bool
    """Whether there are events behind that."""


def search(read: Reader, session_id: str, text: str, *, after: int = 0, limit: int = 100) -> Search:
    """Look for a text behind a position, whatever its case; ask again from where the answer ends."""
    wanted, hits, unread = re.compile(re.escape(text), re.IGNORECASE), list[Hit](), READ_CHARACTERS
    while rows := _events(read, session_id, after):
        for row in rows:
            after = row["position"]
            for part in SEARCHED[row["table"]][1]:
                whole = read.blob(row[f"{part}Blob"]) if row[f"{part}Blob"] else str(row[part])
                unread -= len(whole)
                if found := wanted.search(whole):
                    hits.append(_hit(row, part, whole, found))
            if len(hits) >= limit or unread <= 0:
                return Search(hits=tuple(hits), last_position=after, has_more=True)
    return Search(hits=tuple(hits), last_position=after, has_more=False)


def _events(read: Reader, session_id: str, after: int) -> list[Row]:
    """The next events with their texts, in order."""
    found = [
        row | {"table": table}
        for table, (name, parts) in SEARCHED.items()
        for row in read.query(
            f'SELECT "position", "{name}" AS "name", {_texts(parts)} '
            f'FROM "{table}" WHERE "sessionId" = ? AND "position" > ? ORDER BY "position" LIMIT ?',
            (session_id, after, EVENTS_AT_ONCE),
        )
    ]
    return sorted(found, key=lambda row: row["position"])[:EVENTS_AT_ONCE]


def _texts(parts: Sequence[str]) -> str:
    return ", ".join(f'"{part}", "{part}Blob"' for part in parts)


def _hit(row: Row, part: str, whole: str, found: re.Match[str]) -> Hit:
    start, end = found.span()
    return Hit(
        kind=KINDS[row["table"]],
        position=row["position"],
        name=row["name"],
        part=part,
        offset=start,
        before=whole[max(0, start - AROUND_CHARACTERS) : start],
        match=whole[start:end],
        behind=whole[end : end + AROUND_CHARACTERS],
    )
