"""Signatures of results, which show whether somebody else has written to the store.

Each time an item ends, its result is digested: status, cost, tokens, time, commit, scores, and the outcome
and model calls of each attempt. A keyed hash (MAC) covers the digest and the previous MAC of the run, so that
results cannot be changed, removed, added or put back to an earlier state without the key. The begin and the
end of a run are signed too: what is missing is noticed. A run without any signature is unsigned, not forged,
unless it is registered as signed beside the key: it is older than signatures, or imported.
"""

import hashlib
import itertools
import marshal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, cast

from proctor.formatting import plural
from proctor.item import FINISHED, RUNNING
from proctor.store.database import Connection, id_pages, literals, places
from proctor.store.tables import COLUMNS

if TYPE_CHECKING:
    from proctor.store.writer import RowGroups

_COLUMNS = ("runId", "position", "itemId", "digest", "keyId", "mac")
_ITEM_COLUMNS = (
    'SELECT i."id", i."digest", i."status", i."reason", i."sessionId", i."iterSha", i."tokensTotal", '
    'i."toolCalls", i."costUsd", i."finishedAt"'
)
_ITEMS = (
    f'{_ITEM_COLUMNS}, COALESCE(s."agentSeconds", s."workSeconds"), s."isMock" '
    'FROM "batch_items" i '
    'LEFT JOIN "sessions" s ON s."id" = i."sessionId" WHERE i."runId" = ?'
)
_OF_SCORE = (
    "sessionId",
    "evaluator",
    "evaluatorDigest",
    "level",
    "target",
    "value",
    "label",
    "dimension",
    "scoredSessionId",
)
_SCORES = "SELECT " + ", ".join(map('c."{}"'.format, _OF_SCORE)) + ' FROM "scores" c'
_ATTEMPTS = (
    'SELECT s."id", s."itemId", s."attempt", s."status", s."endReason", s."costUsd", s."totalTokens", '
    's."modelCalls" FROM "sessions" s'
)
_OF_CALL = (
    "sessionId",
    "position",
    "provider",
    "model",
    "status",
    "promptTokens",
    "cachedTokens",
    "completionTokens",
    "reasoningTokens",
    "costUsd",
    "priceSource",
)
_CALLS = "SELECT " + ", ".join(map('m."{}"'.format, _OF_CALL)) + ' FROM "model_calls" m'
_CALL_ORDER = 'ORDER BY m."sessionId", m."position"'
_PAGE_OF_SESSIONS = (
    'SELECT s."id" FROM "sessions" s JOIN "batch_items" i ON i."runId" = s."runId" AND i."id" = s."itemId" '
    'WHERE i."runId" = ? AND i."position" >= ? AND i."position" < ?'
)
ATTEMPTS_MARK = "2-"
"""Prefix of digests that cover the attempts of an item and their calls; earlier versions had none."""
_FINISHED_ITEMS = (
    'SELECT "id" FROM "batch_items" WHERE "runId" = ? '
    f'AND "status" IN ({literals(FINISHED)}) ORDER BY "position"'
)
_STATUS, _SESSION = 2, 4
"""Columns of `_ITEMS`."""
_OF_PAGE = (
    'WHERE c."sessionId" IN (SELECT i."sessionId" FROM "batch_items" i WHERE i."runId" = ? '
    'AND i."position" >= ? AND i."position" < ?)'
)
_IN_ORDER = 'ORDER BY c."sessionId", c."position"'
DIGEST_BYTES = 16
PAGE = 10_000
"""Items that are checked at a time."""
MOST_NAMED = 20
"""Items that a message names."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that results are signed with."""

    id: str
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureCheck:
    """The result of a check of a run's signatures."""

    run_id: str
    items: int
    """Finished items."""
    is_signed: bool
    """Whether the run has been signed since its begin; otherwise, an item without a signature is older."""
    unsigned: Sequence[str] = ()
    """Finished items without a signature."""
    changed: Sequence[str] = ()
    """Items whose result is not the one that was signed."""
    broken: int = 0
    """Signatures that are wrong, or whose predecessor is missing."""
    is_end_missing: bool = False
    """Whether the run has ended, and the signature of its end is missing or wrong."""
    unknown_keys: Sequence[str] = ()
    """Keys that signed it and are not available here, so that their signatures cannot be checked."""
    is_running: bool = False
    """Whether it was not checked because results are being written."""

    @property
    def foreign(self) -> list[str]:
        """Items that somebody else has written or changed."""
        return [*self.changed, *(self.unsigned if self.is_signed else ())]

    @property
    def is_forged(self) -> bool:
        """Whether somebody without the key has changed the results."""
        return bool(self.foreign or self.broken or self.is_end_missing)

    def notes(self, *, unsigned: bool = True) -> list[str]:
        """Remarks for the reader of the results; empty: every result is signed and unchanged.

        Without `unsigned`, nothing is said about a run that has never been signed.
        """
        run, notes = self.run_id, list[str]()
        if foreign := self.foreign:
            verb = "was" if len(foreign) == 1 else "were"
            notes.append(
                f"{plural(len(foreign), 'result')} of run {run} {verb} written or changed by someone else "
                f"than Proctor: {_named(foreign)}"
            )
        if self.broken:
            notes.append(
                f"{plural(self.broken, 'signature')} of run {run} cannot be right: signatures were changed, "
                "added or removed"
            )
        if self.is_end_missing:
            notes.append(f"the end of run {run} was written by someone else than Proctor, or removed in part")
        if self.unknown_keys:
            notes.append(
                f"results of run {run} are signed with {', '.join(self.unknown_keys)}, which is not "
                "available here: they cannot be checked"
            )
        elif unsigned and self.unsigned and not self.is_signed:
            count = (
                "the results" if len(self.unsigned) == self.items else plural(len(self.unsigned), "result")
            )
            notes.append(
                f"{count} of run {run} are not signed: written by an earlier Proctor or imported, so changes "
                "by others do not show"
            )
        return notes


def _named(items: Sequence[str]) -> str:
    more = f" and {len(items) - MOST_NAMED:,} more" if len(items) > MOST_NAMED else ""
    return ", ".join(items[:MOST_NAMED]) + more


def sign_begin(connection: Connection, run_id: str) -> None:
    """Sign that a run has begun: from now on, each of its results has a signature."""
    _append(connection, run_id, [("", _digest_of_begin(run_id))])


def sign_end(connection: Connection, run_id: str) -> None:
    """Sign the end of a run, with the number of its items."""
    if connection.signing_key() is not None:
        _append(connection, run_id, [("", _digest_of_end(connection, run_id))])


def sign_items(
    connection: Connection, run_id: str, item_ids: Iterable[str], rows: "RowGroups | None" = None
) -> None:
    """Sign results that were written in this transaction. Nothing happens without a key.

    `rows` are those that were written in it: what is in them is not read again.
    """
    if connection.signing_key() is None:
        return
    written = None if rows is None or connection.is_encrypted else _WrittenAttempts.of(rows, run_id)
    digests = list[tuple[str, str]]()
    for page in id_pages(item_ids):
        rest: Sequence[str] = page
        if written is not None and (known := [each for each in page if each in written.sessions]):
            items = connection.tuples(
                f'{_ITEM_COLUMNS} FROM "batch_items" i WHERE i."runId" = ? AND i."id" IN ({places(known)})',
                (run_id, *known),
            )
            signed = [(str(item[0]), digest) for item in items if (digest := written.digest(item))]
            digests += signed
            rest = list(set(page).difference(item_id for item_id, _ in signed))
        if rest:
            digests += _digests_of(connection, run_id, rest)
    _append(connection, run_id, digests)


def _digests_of(connection: Connection, run_id: str, page: Sequence[str]) -> list[tuple[str, str]]:
    """The digests of finished items, read from the store."""
    items = connection.tuples(f'{_ITEMS} AND i."id" IN ({places(page)})', (run_id, *page))
    sessions = [item[_SESSION] for item in items if item[_SESSION]]
    by_session = _by_session(
        connection.tuples(f'{_SCORES} WHERE c."sessionId" IN ({places(sessions)}) {_IN_ORDER}', sessions)
    )
    attempts = connection.tuples(
        f'{_ATTEMPTS} WHERE s."runId" = ? AND s."itemId" IN ({places(page)})', (run_id, *page)
    )
    calls = list[tuple[object, ...]]()
    for ids in id_pages(str(attempt[0]) for attempt in attempts):
        calls += connection.tuples(f'{_CALLS} WHERE m."sessionId" IN ({places(ids)}) {_CALL_ORDER}', ids)
    by_item = _by_item(attempts, calls)
    return [(str(item[0]), _digest(item, by_session, by_item)) for item in items if item[_STATUS] in FINISHED]


_score_values = itemgetter(*map(COLUMNS["scores"].index, _OF_SCORE))
_call_values = itemgetter(*map(COLUMNS["model_calls"].index, _OF_CALL))
_VALUE, _CALL_COST = _OF_SCORE.index("value"), _OF_CALL.index("costUsd")


@dataclass(frozen=True, slots=True)
class _WrittenAttempts:
    """First attempts whose rows are all written in one transaction, as the store would return them."""

    sessions: Mapping[str, Mapping[str, object]]
    """By item."""
    scores: dict[object, list[tuple[object, ...]]]
    calls: dict[object, list[tuple[object, ...]]]

    @classmethod
    def of(cls, rows: "RowGroups", run_id: str) -> "_WrittenAttempts":
        """The first attempts of a run that begin and end in one commit: they need not be read again to be
        signed."""
        sessions = {
            str(row["itemId"]): row
            for (table, _), row in rows.added.items()
            if table == "sessions"
            and row.get("attempt") == 1
            and row.get("finishedAt")
            and row.get("runId") == run_id
        }
        scores = (_with_real(_score_values(row), _VALUE) for row in rows.appended.get("scores", ()))
        calls = (_with_real(_call_values(row), _CALL_COST) for row in rows.appended.get("model_calls", ()))
        return cls(sessions, _by_session(scores), _by_session(calls))

    def digest(self, item: tuple[object, ...]) -> str:
        """The digest of an item's result; empty: it is not finished, or with another session."""
        session = self.sessions[str(item[0])]
        if item[_SESSION] != session["id"] or item[_STATUS] not in FINISHED:
            return ""
        seconds = session.get("agentSeconds")
        seconds = session.get("workSeconds") if seconds is None else seconds
        attempt = (
            session["id"],
            session["itemId"],
            session["attempt"],
            session["status"],
            session["endReason"],
            _real(session["costUsd"]),
            session["totalTokens"],
            session["modelCalls"],
        )
        calls = self.calls.get(session["id"], ())
        return _digest((*item, _real(seconds), session["isMock"]), self.scores, {item[0]: [(attempt, calls)]})


def _real(value: object) -> object:
    """A number as a column of real numbers returns it."""
    return float(value) if isinstance(value, int) else value


def _with_real(values: tuple[object, ...], at: int) -> tuple[object, ...]:
    return (*values[:at], float(values[at]), *values[at + 1 :]) if isinstance(values[at], int) else values  # type: ignore[arg-type]


def check_run(
    connection: Connection,
    run_id: str,
    key: Callable[[str], SigningKey | None],
    *,
    is_registered: Callable[[], bool] = lambda: False,
) -> SignatureCheck:
    """Check the signatures of a run; `key` finds a key by id, None: it is not available.

    `is_registered` says whether the run has been signed since its begin, if no signature shows it.
    """
    chain = _check_chain(connection, run_id, key)
    if not chain.is_signed and not is_registered():
        finished = connection.tuples(_FINISHED_ITEMS, (run_id,))
        return SignatureCheck(
            run_id=run_id, items=len(finished), is_signed=False, unsigned=[str(each[0]) for each in finished]
        )
    unsigned, changed, items = list[str](), list[str](), 0
    for after in itertools.count(step=PAGE):
        page = connection.tuples(
            f'{_ITEMS} AND i."position" >= ? AND i."position" < ?', (run_id, after, after + PAGE)
        )
        if not page and not _has_items(connection, run_id, after):
            break
        by_session = _by_session(
            connection.tuples(f"{_SCORES} {_OF_PAGE} {_IN_ORDER}", (run_id, after, after + PAGE))
            if chain.digests
            else ()
        )
        by_item = _attempts_in(connection, run_id, after) if chain.covers_attempts else {}
        for item in page:
            if item[_STATUS] not in FINISHED:
                continue
            items += 1
            item_id = str(item[0])
            signed = chain.digests.get(item_id)
            if signed is None and item_id not in chain.unchecked:
                unsigned.append(item_id)
            elif signed is not None:
                covered = by_item if signed.startswith(ATTEMPTS_MARK) else None
                if signed != _digest(item, by_session, covered):
                    changed.append(item_id)
    (batch,) = connection.rows('SELECT "status" FROM "batches" WHERE "runId" = ?', (run_id,))
    is_signed = chain.has_begin or (not chain.unknown_keys and is_registered())
    must_end = is_signed and batch["status"] != RUNNING and not chain.unknown_keys
    return SignatureCheck(
        run_id=run_id,
        items=items,
        is_signed=is_signed,
        unsigned=unsigned,
        changed=changed,
        broken=chain.broken,
        is_end_missing=must_end and chain.end != _digest_of_end(connection, run_id),
        unknown_keys=tuple(chain.unknown_keys),
    )


@dataclass(slots=True)
class _Chain:
    """The signatures of a run, as far as they are right."""

    digests: dict[str, str] = field(default_factory=dict)
    """The last signed digest of each item."""
    unchecked: set[str] = field(default_factory=set)
    """Items that were last signed with a key that is not available."""
    unknown_keys: dict[str, None] = field(default_factory=dict)
    broken: int = 0
    is_signed: bool = False
    """Whether there is any signature."""
    has_begin: bool = False
    end: str = ""
    """The digest of the run's end; empty: something else is last."""

    @property
    def covers_attempts(self) -> bool:
        """Whether a signature covers attempts and their calls."""
        return any(digest.startswith(ATTEMPTS_MARK) for digest in self.digests.values())


def _check_chain(connection: Connection, run_id: str, key: Callable[[str], SigningKey | None]) -> _Chain:
    chain, keys = _Chain(), dict[str, SigningKey | None]()
    previous, expected = "", -1
    for position, item_id, digest, key_id, mac in _signatures(connection, run_id):
        chain.is_signed = True
        if key_id not in keys:
            keys[key_id] = key(key_id)
        signer = keys[key_id]
        # The first is the begin, 0; a run from before there were signatures starts at 1.
        follows = position == expected or (expected < 0 and position <= 1)
        chain.end = ""
        if signer is None:
            chain.unknown_keys[key_id] = None
            chain.unchecked.add(item_id)
            chain.digests.pop(item_id, None)
        elif not follows or _mac(signer.secret, run_id, position, item_id, digest, previous) != mac:
            chain.broken += 1
        elif item_id:
            chain.digests[item_id] = digest
            chain.unchecked.discard(item_id)
        elif position == 0:
            chain.has_begin = True
        else:
            chain.end = digest
        previous, expected = mac, position + 1
    return chain


def _signatures(connection: Connection, run_id: str) -> Iterator[tuple[int, str, str, str, str]]:
    """The signatures of a run in order, in pages: a large run has many."""
    after = -1
    while rows := connection.tuples(
        'SELECT "position", "itemId", "digest", "keyId", "mac" FROM "signatures" WHERE "runId" = ? '
        f'AND "position" > ? ORDER BY "position" LIMIT {PAGE}',
        (run_id, after),
    ):
        page = cast("list[tuple[int, str, str, str, str]]", rows)
        yield from page
        after = page[-1][0]


def _has_items(connection: Connection, run_id: str, after: int) -> bool:
    return bool(
        connection.rows(
            'SELECT 1 FROM "batch_items" WHERE "runId" = ? AND "position" >= ? LIMIT 1', (run_id, after)
        )
    )


def _append(connection: Connection, run_id: str, entries: Sequence[tuple[str, str]]) -> None:
    """Add signatures of digests, by item, after those the run has."""
    key = connection.signing_key()
    if key is None or not entries:
        return
    last = connection.rows(
        'SELECT "position", "mac" FROM "signatures" WHERE "runId" = ? ORDER BY "position" DESC LIMIT 1',
        (run_id,),
    )
    # Position 0 is the begin: a run from before there were signatures has none.
    first, previous = (last[0]["position"] + 1, last[0]["mac"]) if last else (int(bool(entries[0][0])), "")
    rows = []
    for position, (item_id, digest) in enumerate(entries, first):
        previous = _mac(key.secret, run_id, position, item_id, digest, previous)
        rows.append((run_id, position, item_id, digest, key.id, previous))
    connection.insert_many("signatures", rows)


def _mac(secret: bytes, run_id: str, position: int, item_id: str, digest: str, previous: str) -> str:
    # No part but the run can hold a space, so that two texts are equal only if all parts are.
    text = f"{position} {item_id} {digest} {previous} {run_id}"
    return hashlib.blake2b(text.encode(), key=secret, digest_size=DIGEST_BYTES).hexdigest()


def _by_session(scores: Iterable[tuple[object, ...]]) -> dict[object, list[tuple[object, ...]]]:
    by_session = defaultdict[object, list[tuple[object, ...]]](list)
    for row in scores:
        by_session[row[0]].append(row)
    return by_session


def _by_item(
    attempts: Iterable[tuple[object, ...]], calls: Iterable[tuple[object, ...]]
) -> dict[object, list[tuple[object, ...]]]:
    """The attempts of each item with their calls, by its id."""
    by_session, by_item = _by_session(calls), defaultdict[object, list[tuple[object, ...]]](list)
    for attempt in sorted(attempts, key=lambda row: str(row[0])):
        by_item[attempt[1]].append((attempt, by_session.get(attempt[0], ())))
    return by_item


def _attempts_in(connection: Connection, run_id: str, after: int) -> dict[object, list[tuple[object, ...]]]:
    """As `_by_item`, for a page of items."""
    page = (run_id, after, after + PAGE)
    # Without a condition on the run, for which SQLite would read all attempts of the run for each page.
    attempts = connection.tuples(f'{_ATTEMPTS} WHERE s."id" IN ({_PAGE_OF_SESSIONS})', page)
    calls = connection.tuples(f'{_CALLS} WHERE m."sessionId" IN ({_PAGE_OF_SESSIONS}) {_CALL_ORDER}', page)
    return _by_item(attempts, calls)


def _digest(
    item: tuple[object, ...],
    scores: dict[object, list[tuple[object, ...]]],
    attempts: dict[object, list[tuple[object, ...]]] | None,
) -> str:
    """The digest of a result; without `attempts`, as earlier versions made it."""
    if attempts is None:
        return _hash((item, scores.get(item[_SESSION], ())))
    return ATTEMPTS_MARK + _hash((item, scores.get(item[_SESSION], ()), attempts.get(item[0], ())))


def _hash(value: object) -> str:
    # This version of the format is the same in every Python; JSON would take four times as long.
    data = marshal.dumps(value, 2)  # type: ignore[arg-type]
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def _digest_of_begin(run_id: str) -> str:
    return _hash(("begin", run_id))


def _digest_of_end(connection: Connection, run_id: str) -> str:
    (row,) = connection.rows(
        'SELECT b."status", b."reason", b."finishedAt", (SELECT COUNT(*) FROM "batch_items" i '
        'WHERE i."runId" = b."runId") AS "items" FROM "batches" b WHERE b."runId" = ?',
        (run_id,),
    )
    return _hash(tuple(row.values()))
