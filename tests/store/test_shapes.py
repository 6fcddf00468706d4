"""Every query of the store returns rows that have the keys and types of the shape it names.

All of them run on a file, on a sealed file and on PostgreSQL.
"""

import ast
import itertools
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from importlib import import_module
from inspect import isfunction, signature
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NotRequired, TypedDict, get_args, get_origin, get_type_hints

import pytest
from typing_extensions import is_typeddict
from whole_store import ITEM, LINE, TEXT, fill

from databases import new_store
from proctor import store as package
from proctor.metric import METRICS
from proctor.score import Level
from proctor.store import (
    ItemFilter,
    RetrySelection,
    Scope,
    Store,
    StoreReader,
    aggregates,
    item_lists,
    results,
    runs,
    scores,
    session_search,
    transcripts,
)
from proctor.store.keys import Keys, LocalKey
from proctor.store.scores import JudgedFilter
from proctor.store.session_selection import FileSessions, LogGroupSessions, OwnSessions, Period
from proctor.store.tables import COLUMNS, OF_A_SESSION, OLD_NAMES, ROWS
from stocked import NOW

KEYS = Keys(own=LocalKey(secret=bytes(range(32))))
LATE_NAMES = {"Level": Level}
"""Types that the store does not load at run time."""
QUERIES = {"rows", "stream", "columns", "of_items", "of_sessions", "of_events", "of_few_events"}


class CheckedReader(StoreReader):
    """A reader that compares every row with the shape that its query names."""

    def __init__(self, readers: Any) -> None:
        super().__init__(readers)
        self.seen: set[str] = set()

    def rows(self, shape: Any, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        return [self._checked(shape, row, sql) for row in super().rows(shape, sql, parameters)]

    def stream(self, shape: Any, sql: str, parameters: Sequence[object] = ()) -> Iterator[Any]:
        return (self._checked(shape, row, sql) for row in super().stream(shape, sql, parameters))

    def columns(self, shape: Any, sql: str, parameters: Sequence[object] = ()) -> Iterator[Any]:
        for page in super().columns(shape, sql, parameters):
            self.seen.add(shape.__name__)
            kinds = {name: get_args(hint)[0] for name, hint in get_type_hints(shape).items()}
            kinds |= {name: float | None for name in METRICS if name in page}
            of_rows = TypedDict(shape.__name__, kinds)  # type: ignore[misc]
            for values in zip(*page.values(), strict=True):
                assert problems_of(of_rows, dict(zip(page, values, strict=True))) == [], sql
            yield page

    def _checked(self, shape: Any, row: Any, sql: str) -> Any:
        if is_typeddict(shape):
            self.seen.add(shape.__name__)
            # What is computed from the row is added after the query.
            assert problems_of(shape, row, but={"locked"}) == [], sql
        return row


def problems_of(shape: Any, row: dict[str, Any], but: set[str] = frozenset()) -> list[str]:
    """How a row differs from a shape, in its keys and in the types of its values."""
    hints = get_type_hints(shape, localns=LATE_NAMES, include_extras=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired} | but
    optional |= CUT_COLUMNS if shape is ROWS["model_calls"] else set()
    missing = [f"no {name}" for name in sorted(set(hints) - set(row) - optional)]
    old = {old for names in OLD_NAMES.values() for new, old in names.items() if new in hints}
    known = set(hints) | METRICS.keys() | old
    unknown = [f"unknown {name}" for name in sorted(set(row) - known)]
    wrong = [
        f"{name} is {value!r}, not {hints[name]}"
        for name, value in row.items()
        if name in hints and not fits(value, hints[name])
    ]
    return missing + unknown + wrong


CUT_COLUMNS = {"request", "response"}
"""The bodies of model calls, which are read by those alone who need them."""


def fits(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin is NotRequired:
        return fits(value, get_args(hint)[0])
    if origin is UnionType:
        return any(fits(value, part) for part in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, int | float)
    return hint is Any or isinstance(value, origin or hint)


@pytest.fixture(params=["sqlite", "sealed", "postgresql"])
def filled(request, tmp_path) -> Iterator[Store]:
    """A store with at least one row for every query."""
    if request.param == "postgresql":
        url, keys = new_store(request.getfixturevalue("server")), Keys()
    else:
        url, keys = str(tmp_path / "proctor.db"), KEYS if request.param == "sealed" else Keys()
    with Store(url, keys) as store:
        store.read = CheckedReader(store._readers)
        fill(store)
        yield store


def test_every_query_returns_rows_of_its_shape(filled):
    read = filled.read
    run_all_queries(filled)

    assert shapes_in_the_source() - read.seen == set(), "no query of these shapes returned a row"


# What queries are asked with, by the type of a parameter, else by its name; several are tried in turn.
BY_TYPE: dict[Any, Sequence[Any]] = {
    datetime: [NOW],
    Scope: [Scope(run_id="run"), Scope(), Scope(end=NOW + timedelta(days=1))],
    ItemFilter: [ItemFilter(search="town")],
    item_lists.ItemQuery: [
        item_lists.ItemQuery(order="seconds", descending=True),
        item_lists.ItemQuery(order="factor:task"),
        item_lists.ItemQuery(
            order="score:exact",
            models=["m"],
            factors=[("task", "t")],
            scores=[item_lists.ScoreRange(name="exact", low=0.0)],
            tags=["odd"],
            is_noted=True,
        ),
    ],
    runs.RunFilter: [runs.RunFilter(statuses=["running"], search="plan"), runs.RunFilter(jobs=["scenario"])],
    results.FirstPosition: [{"agent": "amp", "model": "m", "position": 0}],
    results.ScoredSessions: [results.of_runs(["run"])[0]],
    bool: [False, True],
    RetrySelection: [RetrySelection()],
    session_search.SessionQuery: [session_search.SessionQuery()],
    JudgedFilter: [JudgedFilter(evaluator="tidy")],
    LogGroupSessions | OwnSessions | FileSessions: [
        OwnSessions(run_ids=("run",), roles=("fix",)),
        LogGroupSessions(names=("g",), period=Period(start=NOW - timedelta(days=1))),
        FileSessions(paths=(), session_ids=("s1",)),
    ],
}
BY_NAME: dict[str, Sequence[Any]] = {
    "run_id": ["run"],
    "run_ids": [["run"]],
    "plan_path": ["plan.yaml"],
    "item_id": [ITEM.id],
    "session_id": ["s1", "s2"],
    "judging_session": ["s1"],
    "ids": [[ITEM.id, "s1"]],
    "digest": ["d", "d1"],
    "scenario": ["town"],
    "prompts": [["town"]],
    "job": ["scenario"],
    "jobs": [["benchmark", "scenario", "coding"]],
    "models": [["m"]],
    "statuses": [["success"]],
    "evaluator": ["tidy"],
    "insight": ["tidy"],
    "key": [("tidy", "", "")],
    "which": ["lowest", "highest"],
    "factor": ["task"],
    "column": ["model"],
    "by": ["model"],
    "text": [TEXT],
    "group": ["g"],
    "log_groups": [["g"]],
    "streams": [["out"]],
    "config_id": ["oc-2"],
    "until": ["9"],
    "client_token": ["token"],
    "search": ["job"],
    "position": [0, 99],
    "positions": [[0]],
    "step": [0, 1],
    "after": [-1],
    "limit": [5],
    "size": [9],
    "characters": [50],
    "most_characters": [50],
    **{name: [["s1", "s2"]] for name in ("session_ids", "sessions", "attempts", "among")},
    **{name: [0] for name in ("start", "end", "offset")},
    **{name: [""] for name in ("dimension", "service", "since", "moment", "plan_digest")},
    "prefixes": [[]],
}
NO_QUERIES = {"rows", "values", "value", "pairs", "count", "stream", "columns", "is_one_of", "server_time"}
NO_QUERIES |= {"with_long_texts", "blob", "texts_of", "iterations_of"}
"""What queries are made with, or of the rows of another one."""
CALLED_BELOW = {"table", "of_session", "call_arguments", "text_part", "step_text"}


def run_all_queries(store: Store) -> None:
    """Call every public query of the store."""
    store.change(
        session_search.save_filter, {"name": "mine", "filterJson": "{}", "author": "me", "createdAt": ""}
    )
    read = store.read
    selections = [aggregates.select(read, scope) for scope in BY_TYPE[Scope]]
    known = BY_TYPE | {aggregates.Selection: selections, "Selection": selections, StoreReader: [read]}
    for query in queries():
        parameters = signature(query).parameters.values()
        needed = [each for each in parameters if each.default is each.empty and each.name != "self"]
        choices = [
            get_args(each.annotation)
            if get_origin(each.annotation) is Literal
            else known.get(each.annotation) or BY_NAME[each.name]
            for each in needed
        ]
        for values in itertools.product(*choices):
            given = {each.name: value for each, value in zip(needed, values, strict=True)}
            value = query(read, **given) if "self" in signature(query).parameters else query(**given)
            # Results may be computed when they are read.
            list(value) if isinstance(value, Iterator) else value
    queries_of_parts(store)
    for table in OF_A_SESSION:
        (first, *_) = read.of_session(table, "s1")
        assert problems_of(ROWS[table], first) == [], table
        assert problems_of(ROWS[table], read.parts_of_session("s1")[table][0]) == [], table
    for table, scope in itertools.product(
        ("batches", "batch_items", "sessions", *OF_A_SESSION), BY_TYPE[Scope]
    ):
        assert problems_of(ROWS[table], next(read.table(table, scope))) == [], table


def queries() -> Iterator[Callable[..., Any]]:
    """The queries of all modules of the store, and the methods of its reader."""
    for found in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{found.name}")
        for name, query in [*vars(module).items(), *vars(StoreReader).items()]:
            if not isfunction(query) or query.__module__ != module.__name__ or name.startswith("_"):
                continue
            first = next(iter(signature(query).parameters.values()), None)
            of_selection = (aggregates.Selection, "Selection")
            is_query = first and (first.name in ("self", "read") or first.annotation in of_selection)
            if is_query and name not in NO_QUERIES | CALLED_BELOW:
                yield query


def queries_of_parts(store: Store) -> None:
    """Call the queries of the parts that also write."""
    assert store.open_questions() == store.open_questions("run")
    assert problems_of(ROWS["questions"], store.open_questions()[0]) == []
    assert problems_of(ROWS["labels"], store.labels()[0]) == []
    for value in (
        store.evaluations.row("job-1"),
        store.evaluations.page(),
        store.evaluations.metadata("job-1"),
        store.evaluations.of_stream("g", "out"),
        store.definitions.evaluator("ev"),
        store.definitions.evaluators(),
        store.definitions.config("oc-1"),
        store.definitions.configs(),
        store.definitions.count("online_configs"),
        store.definitions.resource("configuration-bundle", "b-1"),
        store.definitions.resources("configuration-bundle"),
        store.drift.scores_of("oc-1"),
        store.datasets.datasets(),
        store.datasets.count(),
        store.datasets.all_examples("ds-1", 1),
        store.datasets.versions("ds-1", before=None, limit=9),
        store.datasets.version("ds-1", 1),
        store.recommendations.get("r-1"),
        store.recommendations.count_active(),
        store.recommendations.list(after=("9", ""), status="PENDING"),
        store.drift.new_scores("other", "run", after=0),
        store.drift.finished_up_to("run"),
        store.drift.lines(),
        store.drift.values(LINE, after=0),
        store.drift.points(LINE),
        store.drift.crossings(LINE),
        store.definitions.sessions_of("oc-1", "judge"),
        store.definitions.tags("arn"),
        store.logs.streams(),
        store.logs.events("g", "s"),
        store.arrivals.has_new(),
        store.arrivals.oldest_new(),
        store.arrivals.sessions_of(["t" * 32]),
        store.arrivals.documents("s1"),
        store.arrivals.search(log_group="", first_ms=0, last_ms=1, session_keys=["ext"]),
        store.arrivals.spans_page(first_ms=0, last_ms=1, offset=0, limit=5),
        store.arrivals.spans_without_records("g", 0, 1),
        store.arrivals.root_spans(["t" * 32]),
        scores.result_header(store.read, "job-1"),
        aggregates.call_arguments(store.read, "s1", 2),
        transcripts.text_part(store.read, "s1", 1, "content", offset=0, limit=5),
        transcripts.step_text(store.read, "s1", 1, "output"),
    ):
        list(value) if isinstance(value, Iterator) else value


def shapes_in_the_source() -> set[str]:
    """The shapes that queries of the store name."""
    named, classes = set[str](), set[str]()
    for file in Path(package.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes.add(node.name)
            is_query = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in QUERIES
            if is_query and node.args and isinstance(node.args[0], ast.Name):
                named.add(node.args[0].id)
    return named & classes


def test_the_rows_of_each_table_have_its_columns():
    assert list(ROWS) == list(COLUMNS)
    for table, shape in ROWS.items():
        assert tuple(get_type_hints(shape, localns=LATE_NAMES)) == COLUMNS[table], table


def test_a_row_that_differs_from_its_shape_is_noticed():
    row = {"sessionId": "s", "position": 1, "step": "1", "name": "mood", "value": None, "labels": ""}

    assert problems_of(ROWS["metrics"], row) == [
        "no label",
        "unknown labels",
        "step is '1', not <class 'int'>",
    ]
