"""Full-text search over the transcripts of all sessions.

The index is filled by the first search and extended by each later one, not by runs: filling it in their
transactions took 6% of the time of the shortest items, and much more with long texts. It contains only texts
that are stored unencrypted, and loses those that are deleted in the same transaction; `compact` removes their
words from its file.
"""

import re
import sqlite3
import threading
import time
import unicodedata
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from proctor.errors import UsageError
from proctor.item import RUNNING
from proctor.json_values import CamelJson
from proctor.store.database import (
    HOLD_SECONDS,
    Connection,
    Readers,
    Row,
    in_transaction,
    places,
    prefix_pattern,
)
from proctor.store.reader import StoreReader
from proctor.store.sealer import MARK, MARK_BYTES, DataKeys
from proctor.store.tables import SessionRow, clean
from proctor.store.transcripts import KINDS, SEARCHED

POSITION_BITS = 22
"""Of a row's number, for the position of the event; the others are the number of the session."""
MOST_TEXT = 200_000
"""Characters of one event that are indexed. PostgreSQL accepts at most a megabyte."""
MOST_EVENTS = 50_000
"""Events of one session that are indexed."""
PAGE_CHARACTERS = 1_000_000
"""Indexed in one transaction at most."""
MERGED_PAGES = 200
"""Pages of the index that one transaction merges."""
PAGE_SESSIONS = 200
MOST_TERMS = 20
LONGEST_WORD = 200
SNIPPET_CHARACTERS = 240
BEFORE_CHARACTERS = 70

_WORD = re.compile(r"[^\W_]+")
_TERM = re.compile(r'"([^"]*)"|(\S+)')
# Scripts without spaces between words: each character is a word, so that parts of a sentence are found.
_UNSPACED = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\u0e00-\u0e7f\U00020000-\U0003ffff]")
_SESSION_COLUMNS = ("id", "runId", "itemId", "job", "status", "agent", "model", "startedAt")
_CREATE = (
    'CREATE VIRTUAL TABLE IF NOT EXISTS "search_texts" USING '
    "fts5(\"text\", tokenize = 'unicode61 remove_diacritics 2')"
)


@dataclass(frozen=True, slots=True)
class SearchTerm:
    """Consecutive words of a query."""

    words: tuple[str, ...]
    is_prefix: bool = False
    """Whether the last word is the beginning of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """How much of a store is indexed."""

    indexed: int
    """Sessions."""
    pending: int
    """Sessions that have ended and are not indexed yet."""


@dataclass(frozen=True, slots=True)
class SnippetPart(CamelJson):
    """A piece of a text, and whether it matches the query."""

    text: str
    is_match: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptHit(CamelJson):
    """A message or a tool call that matches a query."""

    session_id: str
    run_id: str
    """Empty: an imported session."""
    item_id: str
    job: str
    status: str
    agent: str
    model: str
    started_at: str | None
    position: int
    kind: str
    """`message` or `tool_call`."""
    name: str
    """The role or the tool."""
    part: str
    """The text of the event with the match: `content`, `argsJson` or `result`."""
    snippet: tuple[SnippetPart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptHits:
    """One page of results, the best first."""

    hits: tuple[TranscriptHit, ...]
    has_more: bool


def parse_query(text: str) -> list[SearchTerm]:
    """The terms of a query: words, phrases in quotation marks, and beginnings of words (`wor*`)."""
    terms = []
    for phrase, word in _TERM.findall(text):
        words = tuple(word[:LONGEST_WORD] for word in _WORD.findall(_spaced(phrase or word)))
        if words:
            terms.append(SearchTerm(words, is_prefix=not phrase and word.endswith("*")))
    return terms[:MOST_TERMS]


def forget(connection: Connection, sessions: str, parameters: Sequence[object]) -> None:
    """Remove sessions from the index; `sessions` is a query of their ids, or placeholders."""
    sql = f'SELECT "number" FROM "search_sessions" WHERE "sessionId" IN ({sessions})'
    numbers = connection.values(int, sql, parameters)
    if not numbers:
        return
    connection.lock_table("search_sessions")
    connection.run_many('DELETE FROM "search_texts" WHERE "rowid" BETWEEN ? AND ?', map(_rows_of, numbers))
    connection.run_many('DELETE FROM "search_sessions" WHERE "number" = ?', [(number,) for number in numbers])


def _merge_some(connection: Connection, pages: int) -> int:
    """Merge some pages of the index; the number of changes."""
    before = connection.value(int, "SELECT total_changes()") or 0
    connection.run('INSERT INTO "search_texts" ("search_texts", "rank") VALUES (\'merge\', ?)', (pages,))
    return (connection.value(int, "SELECT total_changes()") or 0) - before


def _rows_of(number: int) -> tuple[int, int]:
    first: int = number << POSITION_BITS
    return first, first + (1 << POSITION_BITS) - 1


class SearchIndex:
    """The full-text index of a store's transcripts."""

    def __init__(self, plain: Readers, read: StoreReader, keys: DataKeys, *, is_postgres: bool) -> None:
        """`plain`: connections that do not decrypt."""
        self._plain, self._read, self._keys, self._is_postgres = plain, read, keys, is_postgres
        self._updating = threading.Lock()

    def check(self) -> None:
        """Raise if transcripts cannot be searched."""
        if self._keys.is_encrypted:
            raise UsageError(
                "the store is encrypted: its transcripts are not searchable, because an index would contain "
                "their words\nSearch one session on its page instead."
            )
        if not self._is_postgres and not _has_fts5():
            raise UsageError(
                "this build of SQLite cannot search transcripts: it has no FTS5\n"
                "Use another build of Python, or a PostgreSQL store."
            )

    def state(self) -> IndexState:
        """How many sessions are indexed, and how many are not."""
        connection = self._plain.connection()
        pending = connection.value(int, f"SELECT COUNT(*) {_PENDING}") or 0
        return IndexState(indexed=connection.count('"search_sessions"'), pending=pending)

    def update(
        self, *, seconds: float | None = None, on_progress: Callable[[IndexState], None] = lambda _: None
    ) -> IndexState:
        """Index sessions that are not indexed yet, the newest first: all, or for about `seconds`."""
        self.check()
        deadline = None if seconds is None else time.monotonic() + seconds
        connection = self._plain.connection()
        state = self.state()
        # One thread of a process is enough; another process may index as well.
        if not state.pending or not self._updating.acquire(blocking=seconds is None):
            return state
        try:
            self._prepare(connection)
            while ids := connection.values(str, f'SELECT s."id" {_PENDING} {_NEWEST_FIRST}'):
                while ids:
                    done = in_transaction(connection, partial(self._add, connection, ids[:PAGE_SESSIONS]))
                    ids = ids[done:]
                    state = IndexState(indexed=state.indexed + done, pending=max(0, state.pending - done))
                    on_progress(state)
                    # Looked at after a page, so that every call makes some progress.
                    if deadline is not None and time.monotonic() >= deadline:
                        return state
        finally:
            self._updating.release()
        return state

    def clear(self) -> None:
        """Delete the index."""
        connection = self._plain.connection()

        def work() -> None:
            connection.lock_table("search_sessions")
            connection.run('DELETE FROM "search_sessions"')
            if self._is_postgres:
                connection.run('DELETE FROM "search_texts"')
            else:
                connection.run('DROP TABLE IF EXISTS "search_texts"')

        in_transaction(connection, work)

    def compact(self) -> None:
        """Remove the words of deleted texts: SQLite only marks them until the parts of the index are merged.

        Takes as long as writing the index anew, so call it once after all deletions. Old versions of SQLite
        know no faster way (`secure-delete`, since 3.42, which in turn they could not read).
        """
        if not self._is_postgres and self._has_table():
            connection = self._plain.connection()
            # The first step with a negative number begins to merge all parts; a step that has nothing to do
            # changes one row.
            pages, changes = -MERGED_PAGES, 2
            while changes >= 2:
                changes = in_transaction(connection, partial(_merge_some, connection, pages))
                pages = MERGED_PAGES

    def search(self, text: str, *, run_id: str = "", offset: int = 0, limit: int = 20) -> TranscriptHits:
        """The indexed events that have all terms of a query, the best first."""
        self.check()
        terms = parse_query(text)
        if not terms or (not self._is_postgres and not self._has_table()):
            return TranscriptHits(hits=(), has_more=False)
        numbers = self._matching(terms, run_id, offset, limit + 1)
        sessions = self._sessions({number >> POSITION_BITS for number in numbers})
        hits = [
            self._hit(sessions[number >> POSITION_BITS], number & ((1 << POSITION_BITS) - 1), terms)
            for number in numbers[:limit]
            # A session may have been deleted while it was indexed.
            if number >> POSITION_BITS in sessions
        ]
        return TranscriptHits(hits=tuple(hit for hit in hits if hit), has_more=len(numbers) > limit)

    def session_ids(self, text: str, *, limit: int) -> list[str]:
        """The indexed sessions with an event that has all terms of a query."""
        self.check()
        terms = parse_query(text)
        if not terms or (not self._is_postgres and not self._has_table()):
            return []
        source, condition, values = self._match(terms)
        rows = self._plain.connection().rows(
            'SELECT x."sessionId" FROM "search_sessions" x WHERE x."number" IN (SELECT DISTINCT '
            f't."rowid" >> {POSITION_BITS} FROM {source} WHERE {condition} LIMIT ?)',
            [*values, limit],
        )
        return [row["sessionId"] for row in rows]

    def named_sessions(self, text: str, *, limit: int) -> list[SessionRow]:
        """Sessions whose id begins with a text, or whose name or branch it is; the newest first."""
        text = clean(text.strip())
        if not text:
            return []
        # The index of a primary key is not used for LIKE.
        begins = ("\"id\" LIKE ? ESCAPE '!'", [prefix_pattern(text)])
        if not self._is_postgres:
            begins = ('"id" BETWEEN ? AND ?', [text, f"{text}\uffff"])
        is_named, names = self._read.is_one_of("name", "sessions.name", [text])
        return self._read.rows(
            SessionRow,
            f'SELECT * FROM "sessions" WHERE {begins[0]} OR {is_named} OR "branch" = ? '
            'ORDER BY "startedAt" DESC LIMIT ?',
            (*begins[1], *names, text, limit),
        )

    def _prepare(self, connection: Connection) -> None:
        """Create the table, and remove sessions that were deleted while they were indexed."""

        def work() -> None:
            if not self._is_postgres:
                connection.run(_CREATE)
            gone = (
                'SELECT x."sessionId" FROM "search_sessions" x LEFT JOIN "sessions" s '
                'ON s."id" = x."sessionId" WHERE s."id" IS NULL'
            )
            forget(connection, gone, ())

        in_transaction(connection, work)

    def _add(self, connection: Connection, session_ids: Sequence[str]) -> int:
        """Index the first of some sessions in one transaction; return how many."""
        connection.lock_table("search_sessions")
        number = connection.value(int, 'SELECT MAX("number") FROM "search_sessions"') or 0
        size = done = 0
        deadline = time.monotonic() + HOLD_SECONDS
        for session_id in session_ids:
            if size > PAGE_CHARACTERS or (done and time.monotonic() > deadline):
                break
            done += 1
            number += 1
            # Read in the transaction: what is deleted meanwhile must not be added.
            exists = connection.rows('SELECT 1 AS "n" FROM "sessions" WHERE "id" = ?', (session_id,))
            if not exists or not connection.run(
                'INSERT INTO "search_sessions" ("sessionId", "number") VALUES (?, ?) ON CONFLICT DO NOTHING',
                (session_id, number),
            ):
                continue
            texts = [
                (position + (number << POSITION_BITS), self._normalized(text))
                for position, text in _texts(connection, session_id)
            ]
            size += sum(len(text) for _, text in texts)
            value = "to_tsvector('simple', ?)" if self._is_postgres else "?"
            column = "vector" if self._is_postgres else "text"
            connection.run_many(
                f'INSERT INTO "search_texts" ("rowid", "{column}") VALUES (?, {value})', texts
            )
        return done

    def _normalized(self, text: str) -> str:
        if not self._is_postgres:
            return _spaced(text)
        # The parser of PostgreSQL would take paths and addresses as one word.
        folded = text.lower() if text.isascii() else _without_marks(text.lower())
        return " ".join(word[:LONGEST_WORD] for word in _WORD.findall(_spaced(folded)))

    def _matching(self, terms: Sequence[SearchTerm], run_id: str, offset: int, limit: int) -> list[int]:
        """The row numbers of matching events, the best first."""
        condition, parameters = "", list[object]()
        if run_id:
            condition = (
                f' AND (t."rowid" >> {POSITION_BITS}) IN (SELECT x."number" FROM "search_sessions" x '
                'JOIN "sessions" s ON s."id" = x."sessionId" WHERE s."runId" = ?)'
            )
            parameters.append(run_id)
        source, matches, values = self._match(terms)
        rank = 'ts_rank_cd(t."vector", q."query", 1) DESC' if self._is_postgres else "t.rank"
        rows = self._plain.connection().rows(
            f'SELECT t."rowid" AS "row" FROM {source} WHERE {matches}{condition} '
            f'ORDER BY {rank}, t."rowid" DESC LIMIT ? OFFSET ?',
            [*values, *parameters, limit, offset],
        )
        return [int(row["row"]) for row in rows]

    def _match(self, terms: Sequence[SearchTerm]) -> tuple[str, str, list[object]]:
        """The rows `t` of events that match: tables, condition, parameters."""
        if not self._is_postgres:
            return '"search_texts" t', '"search_texts" MATCH ?', [" ".join(map(_fts5_query, terms))]
        queries, values = zip(*(_postgres_query(term) for term in terms), strict=True)
        source = f'"search_texts" t, (SELECT {" && ".join(queries)} AS "query") q'
        return source, 't."vector" @@ q."query"', list(values)

    def _has_table(self) -> bool:
        rows = self._plain.connection().rows(
            'SELECT "name" FROM "sqlite_master" WHERE "name" = \'search_texts\''
        )
        return bool(rows)

    def _sessions(self, numbers: set[int]) -> dict[int, Row]:
        columns = ", ".join(f's."{name}"' for name in _SESSION_COLUMNS)
        rows = self._plain.connection().rows(
            f'SELECT x."number", {columns} FROM "search_sessions" x JOIN "sessions" s '
            f'ON s."id" = x."sessionId" WHERE x."number" IN ({places(numbers)})',
            sorted(numbers),
        )
        return {row["number"]: row for row in rows}

    def _hit(self, session: Row, position: int, terms: Sequence[SearchTerm]) -> TranscriptHit | None:
        pattern = _pattern(terms)
        for table, (name, parts) in SEARCHED.items():
            columns = ", ".join(f'"{part}", "{part}Blob"' for part in parts)
            rows = self._read.rows(
                Row,
                f'SELECT "{name}" AS "name", {columns} FROM "{table}" '
                'WHERE "sessionId" = ? AND "position" = ?',
                (session["id"], position),
            )
            for row in rows:
                texts = {
                    part: self._read.blob(row[f"{part}Blob"]) if row[f"{part}Blob"] else str(row[part])
                    for part in parts
                }
                part = next((part for part in parts if pattern.search(texts[part])), parts[0])
                return TranscriptHit(
                    session_id=session["id"],
                    run_id=session["runId"] or "",
                    item_id=session["itemId"] or "",
                    job=session["job"],
                    status=session["status"],
                    agent=session["agent"],
                    model=session["model"],
                    started_at=session["startedAt"],
                    position=position,
                    kind=KINDS[table],
                    name=row["name"],
                    part=part,
                    snippet=snippet(texts[part], terms),
                )
        return None


_PENDING = (
    'FROM "sessions" s LEFT JOIN "search_sessions" x ON x."sessionId" = s."id" '
    f'WHERE x."sessionId" IS NULL AND s."status" <> \'{RUNNING}\''
)
_NEWEST_FIRST = f'ORDER BY s."startedAt" DESC LIMIT {20 * PAGE_SESSIONS}'


def snippet(text: str, terms: Sequence[SearchTerm]) -> tuple[SnippetPart, ...]:
    """The surroundings of the first match, in parts; the beginning of the text if there is none."""
    pattern = _pattern(terms)
    first = pattern.search(text)
    start = max(0, first.start() - BEFORE_CHARACTERS) if first else 0
    window = text[start : start + SNIPPET_CHARACTERS]
    parts, at = [SnippetPart("…", is_match=False)] if start else list[SnippetPart](), 0
    for match in pattern.finditer(window):
        parts += [
            SnippetPart(window[at : match.start()], is_match=False),
            SnippetPart(match[0], is_match=True),
        ]
        at = match.end()
    parts.append(SnippetPart(window[at:], is_match=False))
    if start + len(window) < len(text):
        parts.append(SnippetPart("…", is_match=False))
    return tuple(part for part in parts if part.text)


def _pattern(terms: Sequence[SearchTerm]) -> re.Pattern[str]:
    return re.compile("|".join(map(_expression, terms)), re.IGNORECASE)


def _expression(term: SearchTerm) -> str:
    if _UNSPACED.match(term.words[0]):
        return r"\W*".join(map(re.escape, term.words))
    words = r"[\W_]+".join(map(re.escape, term.words))
    return rf"(?<![^\W_]){words}" + (r"[^\W_]*" if term.is_prefix else r"(?![^\W_])")


def _texts(connection: Connection, session_id: str) -> list[tuple[int, str]]:
    """Position and text of the events of a session that are not encrypted."""
    texts: dict[int, str] = {}
    for table, (_, parts) in SEARCHED.items():
        columns = ", ".join(f'"{part}", "{part}Blob"' for part in parts)
        for row in connection.rows(
            f'SELECT "position", {columns} FROM "{table}" WHERE "sessionId" = ? ORDER BY "position" LIMIT ?',
            (session_id, MOST_EVENTS),
        ):
            text = "\n".join(filter(None, (_text(connection, row, part) for part in parts)))
            if _WORD.search(text) and row["position"] < 1 << POSITION_BITS:
                texts[row["position"]] = text[:MOST_TEXT]
    return sorted(texts.items())


def _text(connection: Connection, row: Row, part: str) -> str:
    if row[f"{part}Blob"]:
        blobs = connection.rows('SELECT "data" FROM "blobs" WHERE "digest" = ?', (row[f"{part}Blob"],))
        data = bytes(blobs[0]["data"]) if blobs else b""
        if not data or data.startswith(MARK_BYTES):
            return ""
        # A character has at most four bytes; one that was cut is dropped.
        return zlib.decompressobj().decompress(data, 4 * MOST_TEXT).decode("utf-8", "ignore")
    text = str(row[part])
    return "" if text.startswith(MARK) else text


def _spaced(text: str) -> str:
    return text if text.isascii() else _UNSPACED.sub(r" \g<0> ", text)


def _without_marks(text: str) -> str:
    return "".join(each for each in unicodedata.normalize("NFKD", text) if not unicodedata.combining(each))


def _fts5_query(term: SearchTerm) -> str:
    return f'"{" ".join(term.words)}"' + ("*" if term.is_prefix else "")


def _postgres_query(term: SearchTerm) -> tuple[str, str]:
    words = [part for word in term.words for part in _WORD.findall(_without_marks(word.lower()))]
    if term.is_prefix and words:
        return "to_tsquery('simple', ?)", " <-> ".join(words) + ":*"
    return "phraseto_tsquery('simple', ?)", " ".join(words)


def _has_fts5() -> bool:
    raw = sqlite3.connect(":memory:")
    try:
        raw.execute("CREATE VIRTUAL TABLE temp.probe USING fts5(text)")
    except sqlite3.OperationalError:
        return False
    finally:
        raw.close()
    return True
