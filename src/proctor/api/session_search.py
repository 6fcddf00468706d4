"""Find sessions of any origin, and count what they have in common."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

from proctor.api.search import StoreSearch
from proctor.api.sessions import RunSession, find_session
from proctor.context import RunContext
from proctor.errors import NotFound, UsageError
from proctor.formatting import moment_of
from proctor.item import FINISHED, RUNNING
from proctor.jobs import job_of_evaluations
from proctor.json_values import CamelJson
from proctor.store import session_search
from proctor.store.item_lists import ScoreRange, outcomes, range_of
from proctor.store.items import ItemOutcome
from proctor.store.session_search import (
    FACETS,
    MOST_TEXTS,
    FacetValue,
    FoundSession,
    SessionQuery,
    facets,
    filters,
    find_sessions,
    first_prompts,
    matching_ids,
)
from proctor.store.tables import SessionFilterRow, clean
from proctor.store.writer import timestamp

__all__ = [
    "FACETS",
    "FacetValue",
    "FoundSession",
    "ListedSession",
    "SessionFilter",
    "SessionPage",
    "SessionSearch",
]
SHOWN_CHARACTERS = 300
LONGEST_NAME = 100
MOST_SELECTED = 10_000
"""Sessions that a filter selects for an action."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """A filter of sessions as people write it. Several values of one member: any; all members match."""

    service: Sequence[str] = ()
    agent: Sequence[str] = ()
    version: Sequence[str] = ()
    """Of the agent or its service."""
    prompt: Sequence[str] = ()
    """Named prompts, with their version: `greet@3`."""
    model: Sequence[str] = ()
    """As served."""
    status: Sequence[str] = ()
    run: Sequence[str] = ()
    """IDs of runs, or unambiguous prefixes."""
    job: Sequence[str] = ()
    since: str = ""
    """A date, a time, or an age such as 7d."""
    until: str = ""
    """The same; exclusive."""
    cost: str = ""
    """`LOW..HIGH` in USD."""
    tokens: str = ""
    """`LOW..HIGH`."""
    seconds: str = ""
    """`LOW..HIGH`, from start to end."""
    tool: Sequence[str] = ()
    score: Sequence[str] = ()
    """`EVALUATOR=LOW..HIGH`, or `EVALUATOR` for any score; all of them."""
    label: Sequence[str] = ()
    """The same for human labels."""
    tag: Sequence[str] = ()
    text: str = ""
    """Words, phrases and beginnings (`begin*`) in the transcript."""
    judges: bool = False
    """Only sessions of judges, which are left out otherwise."""

    @classmethod
    def make(cls, **filters: object) -> "SessionFilter":
        """A filter from keyword arguments; one text where several may be given."""
        known = {each.name: each.default for each in fields(cls)}
        if unknown := [name for name in filters if name not in known]:
            raise UsageError(
                f"sessions have no filter {', '.join(map(repr, unknown))}\nFilters: {', '.join(known)}."
            )
        return cls(
            **{  # type: ignore[arg-type]
                name: (value,) if isinstance(value, str) and known[name] == () else value
                for name, value in filters.items()
                if value not in (None, "", ())
            }
        )


FILTERS = tuple(each.name for each in fields(SessionFilter))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSession(CamelJson):
    """A session in a list."""

    session: FoundSession
    prompt: str
    """The start of the first message of a user."""
    outcome: ItemOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage(CamelJson):
    """Some of the sessions that match a filter, newest first."""

    sessions: Sequence[ListedSession]
    next: str
    """`after` of the next page; empty: this is the last."""
    total: int
    """Number of all that match."""
    is_cut: bool
    """Whether only the newest were counted: `total` and the facets are lower limits."""
    facets: Mapping[str, Sequence[FacetValue]]
    """Number of matching sessions by the values of `FACETS`, each without its own filter;
    only on the first page."""
    pending: int
    """Sessions whose transcripts are not indexed yet, if words were searched for."""


SESSION_STATUSES = (RUNNING, *FINISHED)


class SessionSearch:
    """Finds sessions of a store."""

    def __init__(
        self,
        ctx: RunContext,
        *,
        seconds: float | None = None,
        on_progress: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """`seconds` limits the time for indexing transcripts before a search of words; see `StoreSearch`."""
        self._ctx = ctx
        self._words = StoreSearch(ctx, seconds=seconds, on_progress=on_progress)

    def query(self, wanted: SessionFilter) -> tuple[SessionQuery, int]:
        """The filter for the store, and the number of sessions whose words cannot be searched yet."""
        ctx, now = self._ctx, self._ctx.now()
        if unknown := [each for each in wanted.status if each not in SESSION_STATUSES]:
            raise UsageError(f"unknown status `{unknown[0]}`\nAvailable: {', '.join(SESSION_STATUSES)}.")
        judges = [job_of_evaluations().name]
        found, pending = self._words.session_ids(wanted.text, limit=MOST_TEXTS) if wanted.text else (None, 0)
        query = SessionQuery(
            services=wanted.service,
            agents=wanted.agent,
            versions=wanted.version,
            prompts=wanted.prompt,
            models=wanted.model,
            statuses=wanted.status,
            runs=[ctx.store.read.batch(run, now)["runId"] for run in wanted.run],
            jobs=judges if wanted.judges else wanted.job,
            # Who names a run or a job of judges wants to see them.
            excluded_jobs=() if wanted.judges or wanted.job or wanted.run else judges,
            start=moment_of(wanted.since, now),
            end=moment_of(wanted.until, now),
            cost_usd=range_of(wanted.cost or "..", "USD"),
            tokens=range_of(wanted.tokens or "..", "tokens"),
            seconds=range_of(wanted.seconds or "..", "seconds"),
            tools=wanted.tool,
            scores=[ScoreRange.parse(text, needs_range=False) for text in wanted.score],
            labels=[ScoreRange.parse(text, needs_range=False) for text in wanted.label],
            tags=wanted.tag,
            session_ids=found,
        )
        return query, pending

    def page(self, wanted: SessionFilter, *, after: str = "", limit: int = 50) -> SessionPage:
        """The newest sessions that match, with the facets, or those after the page that gave `after`."""
        read = self._ctx.store.read
        query, pending = self.query(wanted)
        counted = None if after else facets(read, query)
        total, is_cut, place = (counted.total, counted.is_cut, None) if counted else _mark(after)
        if counted and counted.jobs:
            query = replace(query, jobs=counted.jobs, excluded_jobs=())
        rows = find_sessions(
            read,
            query,
            total=None if is_cut else total,
            newest=counted.newest if counted and not is_cut else "",
            after=place,
            limit=limit + 1,
        )
        shown = rows[:limit]
        ids = [row["id"] for row in shown]
        prompts = first_prompts(read, ids, characters=SHOWN_CHARACTERS)
        known = outcomes(read, ids, characters=SHOWN_CHARACTERS)
        last = [total, is_cut, shown[-1]["startedAt"] or "", shown[-1]["id"]] if len(rows) > limit else None
        return SessionPage(
            sessions=[
                ListedSession(session=row, prompt=prompts.get(row["id"], ""), outcome=known[row["id"]])
                for row in shown
            ],
            next=json.dumps(last, separators=(",", ":")) if last else "",
            total=total,
            is_cut=is_cut,
            facets=counted.values if counted else {},
            pending=pending,
        )

    def rows(self, page: SessionPage) -> list[RunSession]:
        """The sessions of a page with all that is recorded of them."""
        return [find_session(self._ctx, each.session["id"]) for each in page.sessions]

    def ids(self, wanted: SessionFilter, *, limit: int = MOST_SELECTED) -> list[str]:
        """IDs of the sessions that match, newest first."""
        query, _ = self.query(wanted)
        return matching_ids(self._ctx.store.read, query, limit=limit)


def _mark(after: str) -> tuple[int, bool, tuple[str, str]]:
    try:
        total, is_cut, started, session_id = json.loads(after)
        return int(total), bool(is_cut), (str(started), str(session_id))
    except (ValueError, TypeError, RecursionError):
        raise UsageError("`after` is not of an answer\nUse `next` of the page before.") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFilter(CamelJson):
    """A filter that somebody keeps under a name."""

    name: str
    filter: SessionFilter
    author: str
    created_at: str


def saved_filters(ctx: RunContext) -> list[SavedFilter]:
    """The filters that people keep, by name."""
    return [
        SavedFilter(
            name=row["name"],
            filter=SessionFilter(**json.loads(row["filterJson"])),
            author=row["author"],
            created_at=row["createdAt"],
        )
        for row in filters(ctx.store.read)
    ]


def saved_filter(ctx: RunContext, name: str) -> SessionFilter:
    """The filter of this name."""
    known = {each.name: each.filter for each in saved_filters(ctx)}
    if name not in known:
        raise NotFound(f"no saved filter `{name}`\nSaved: {', '.join(known) or 'none'}.")
    return known[name]


def save_filter(ctx: RunContext, name: str, wanted: SessionFilter, *, author: str = "") -> None:
    """Keep a filter under a name; an earlier one of that name is replaced."""
    if not (name := " ".join(clean(name).split())) or len(name) > LONGEST_NAME:
        raise UsageError(f"the name of a filter has 1 to {LONGEST_NAME} characters")
    SessionSearch(ctx).query(wanted)
    settings = {key: value for key, value in asdict(wanted).items() if value}
    row: SessionFilterRow = {
        "name": name,
        "filterJson": clean(json.dumps(settings, ensure_ascii=False)),
        "author": clean(author),
        "createdAt": timestamp(ctx.now()),
    }
    ctx.store.change(session_search.save_filter, row)


def delete_filter(ctx: RunContext, name: str) -> None:
    """Delete a kept filter."""
    ctx.store.change(session_search.delete_filter, name)
