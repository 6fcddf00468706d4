"""Every query of the store returns rows that have the keys and types of the shape it names.

All of them run on a file, on a sealed file and on PostgreSQL.
"""

import ast
from collections.abc import Iterator, Sequence
from datetime import timedelta
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
    annotations,
    evaluations,
    item_lists,
    items,
    labeling,
    reader,
    results,
    runs,
    scores,
    session_search,
    session_selection,
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


def run_all_queries(store: Store) -> None:
    """Call every public query of the store."""
    read, now = store.read, NOW
    for value in (
        *reader_queries(read),
        *aggregate_queries(read),
        *part_queries(store),
        *evaluation_queries(store),
        *session_queries(store),
    ):
        # Results may be computed when they are read.
        list(value) if isinstance(value, Iterator) else value
    assert store.open_questions() == store.open_questions("run")
    assert problems_of(ROWS["questions"], store.open_questions()[0]) == []
    assert problems_of(ROWS["labels"], store.labels()[0]) == []
    for table in OF_A_SESSION:
        (first, *_) = read.of_session(table, "s1")
        assert problems_of(ROWS[table], first) == [], table
        assert problems_of(ROWS[table], read.parts_of_session("s1")[table][0]) == [], table
    for table in ("batches", "batch_items", "sessions", *OF_A_SESSION):
        for scope in (Scope(), Scope(run_id="run"), Scope(end=now + timedelta(days=1))):
            assert problems_of(ROWS[table], next(read.table(table, scope))) == [], table


def reader_queries(read: StoreReader) -> tuple[Any, ...]:
    return (
        read.batch("run", NOW),
        read.batch("ru", NOW),
        read.exact_batch("run"),
        read.batches(NOW),
        read.batch_of_plan("plan.yaml", ""),
        read.totals("run"),
        read.reserved_and_spent("run"),
        read.pools("run"),
        read.items("run"),
        read.count_items("run", ItemFilter(search="town")),
        read.queued("run", after=-1, limit=9),
        read.item_inputs("run"),
        read.item(ITEM.id[:5]),
        read.exact_item("run", ITEM.id),
        read.attempts("run", ITEM.id),
        read.session("s1"),
        read.exact_session("s1"),
        read.sessions(Scope()),
        read.session_ids(Scope(run_id="run")),
        read.imported_session_ids(log_group="g", before=NOW + timedelta(days=1)),
        read.evidence("s1"),
        read.recorded("s1"),
        read.call_figures("s1"),
        read.resource("run", "d1"),
        read.resource_digests("run"),
        item_lists.listing(read, "run", item_lists.ItemQuery(order="seconds", descending=True)),
        item_lists.listing(read, "run", item_lists.ItemQuery(order="factor:task")),
        item_lists.listing(
            read,
            "run",
            item_lists.ItemQuery(
                order="score:exact",
                models=["m"],
                factors=[("task", "t")],
                scores=[item_lists.ScoreRange(name="exact", low=0.0)],
                tags=["odd"],
                is_noted=True,
            ),
        ),
        item_lists.position_of(read, "run", "s1"),
        item_lists.sessions_at(read, "run", [0]),
        item_lists.factor_levels(read, "run", "task"),
        item_lists.column_levels(read, "run", "model"),
        item_lists.score_extents(read, "run"),
        item_lists.failure_texts(read, "run", characters=50),
        item_lists.outcomes(read, ["s1"], characters=50),
        items.rows_at(read, "run", [0]),
        items.first_rows(read, "run", offset=0, limit=5),
        items.items_by_id(read, "run", [ITEM.id]),
        items.running_ids(read, "run", limit=5),
        items.items_started_since(read, "run", "", limit=5),
        items.status_counts(read, "run"),
        items.agent_model_counts(read, "run"),
        items.item_settings(read, "run"),
        items.item_states(read, "run"),
        items.item_results(read, "run", [ITEM.id]),
        items.mock_models(read, "run"),
        items.factor_names(read, "run"),
        reader.uses_postgres(read),
        runs.count_batches(read, runs.RunFilter(statuses=["running"], search="plan"), NOW),
        runs.page_of_batches(read, runs.RunFilter(jobs=["scenario"]), NOW, limit=5),
        runs.batches_by_id(read, ["run"], NOW),
        runs.batch_states(read, NOW),
        runs.totals_of(read, ["run"]),
        runs.distinct_jobs(read),
        runs.batch_of_plan_file(read, "plan.yaml"),
        runs.batches_of_job(read, "scenario"),
        runs.run_ids_of_job(read, "scenario"),
        runs.last_change(read),
        runs.trend_runs(read, NOW),
        runs.cut_off_counts(read, ["run"]),
        items.task_results(read, ["benchmark", "scenario", "coding"]),
        items.change_sizes(read, "run", [ITEM.id]),
        items.status_counts_by(read, "run", "model"),
    )


def session_queries(store: Store) -> tuple[Any, ...]:
    kept = {"name": "mine", "filterJson": "{}", "author": "me", "createdAt": ""}
    store.change(session_search.save_filter, kept)
    read, query = store.read, session_search.SessionQuery()
    return (
        session_search.facets(read, query),
        session_search.find_sessions(read, query),
        session_search.first_prompts(read, ["s1"], characters=50),
        session_search.matching_ids(read, query, limit=5),
        session_search.filters(read),
        session_search.period_sums(read, query, "model", 10),
        session_search.period_scores(read, query, "model", 10),
        *(labeling.given_scores(read, *evaluator) for evaluator in labeling.scored_evaluators(read)),
    )


def aggregate_queries(read: StoreReader) -> tuple[Any, ...]:
    chosen = [aggregates.select(read, scope) for scope in (Scope(run_id="run"), Scope(), Scope(end=NOW))]
    selected = (
        aggregates.ranked_durations,
        aggregates.model_sums,
        aggregates.judging_cost,
        aggregates.tool_sums,
        aggregates.step_sums,
        aggregates.merge_counts,
        aggregates.failed_items,
        aggregates.mock_sessions,
        aggregates.session_sums,
        aggregates.newest_run_ids,
        aggregates.outcome_sums,
        aggregates.unchecked_successes,
        results.selected_columns,
    )
    return (
        *(query(selection) for query in selected for selection in chosen),
        aggregates.call_arguments(read, "s1", 2),
        aggregates.finished_prefix(read, "run"),
        aggregates.sums_between(read, "run", 0, 5),
        aggregates.finished_sums(read, "run", 0),
        aggregates.running_sums(read, "run"),
        aggregates.running_items(read, "run"),
        aggregates.maker_sums(read, "run"),
        aggregates.task_sums(read, "run"),
        aggregates.scenario_totals(read, "town"),
        aggregates.scenario_items(read, "town"),
        results.result_columns(read, ["run"]),
        results.planned_columns(read, "run"),
        results.finished_columns(read, "run"),
        results.settled_items(read, "run", RetrySelection()),
        results.evaluator_source(read, "s1"),
        results.timed_score_columns(read, results.of_runs(["run"])[0], of_evaluations=False),
        results.timed_score_columns(read, results.of_runs(["run"])[0], of_evaluations=True),
        results.metric_columns(read, results.of_runs(["run"])[0]),
        results.first_positions(read, "run"),
        runs.evaluators_of(read, ["run"]),
        aggregates.past_sessions(read, "scenario", ["m"], ["success"]),
        list(aggregates.call_sums(read, ["s1", "s2"])),
        items.benchmark_items(read, "run"),
        aggregates.running_usage(read, "run"),
        annotations.annotations(read, ["s1"]),
        annotations.tag_counts(read, "run"),
        annotations.labeled_evaluators(read),
        annotations.labeled_scores(read, "tidy"),
        items.dialogue_items(read, "run"),
        scores.item_scores(read, "run"),
    )


def part_queries(store: Store) -> tuple[Any, ...]:
    read = store.read
    return (
        transcripts.events(read, "s1", after=0, limit=9),
        transcripts.calls(read, "s1", after=0, limit=9),
        transcripts.extent(read, "s1"),
        transcripts.step_count(read, "s1"),
        transcripts.running_totals(read, "s2"),
        transcripts.first_metrics(read, "s1", limit=5),
        transcripts.metrics_over_steps(read, "s1"),
        transcripts.last_commit(read, "s1"),
        transcripts.calls_after_step(read, "s1", 0),
        transcripts.text_part(read, "s1", 1, "content", offset=0, limit=5),
        transcripts.steps(read, "s1"),
        transcripts.step_text(read, "s1", 1, "output"),
        transcripts.scores(read, "s1"),
        transcripts.search(read, "s1", TEXT),
        scores.sessions_page(read, "run", JudgedFilter(evaluator="tidy"), limit=5, offset=0),
        scores.scores_by_session(read, "run", ["town"]),
        scores.verdicts_of(read, "run", "s1"),
        evaluations.jobs_page(read, "job", limit=5, offset=0),
        evaluations.log_groups(read),
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
        annotations.labels_state(read, "tidy"),
        annotations.newest_calibration(read, "tidy", "d"),
        store.arrivals.sessions_of(["t" * 32]),
        store.arrivals.documents("s1"),
        store.arrivals.search(log_group="", first_ms=0, last_ms=1, session_keys=["ext"]),
        store.arrivals.spans_without_records("g", 0, 1),
        store.arrivals.root_spans(["t" * 32]),
        runs.active_seconds(read, "run", NOW),
    )


def evaluation_queries(store: Store) -> tuple[Any, ...]:
    read = store.read
    sources = (
        OwnSessions(run_ids=("run",), roles=("fix",)),
        LogGroupSessions(names=("g",), period=Period(start=NOW - timedelta(days=1))),
        FileSessions(paths=(), session_ids=("s1",)),
    )
    key = ("tidy", "", "")
    return (
        *(session_selection.session_ids(read, source) for source in sources),
        session_selection.session_heads(read, ["s1"]),
        session_selection.session_contents(read, ["s1"]),
        session_selection.quiet_sessions(
            read, "oc-2", service="", log_groups=["g"], prefixes=[], since="", until="9"
        ),
        evaluations.unfinished_evaluations(read),
        evaluations.count_evaluations(read),
        evaluations.is_token_used(read, "token"),
        evaluations.output_streams(read),
        evaluations.session_log_groups(read),
        evaluations.result_periods(read, "g", ["out"]),
        scores.items_page(read, "run", 0, 9),
        scores.items_page(read, "run", 99, 9),
        scores.scores_of_attempts(read, ["s1"]),
        scores.evaluated_sessions(read, ["s1"]),
        scores.evaluated_calls(read, ["s1"]),
        scores.failed_sessions(read, "run"),
        scores.result_header(read, "job-1"),
        scores.session_counts(read, "run"),
        scores.score_sums(read, "run"),
        scores.first_items(read, "run"),
        scores.label_counts(read, "run"),
        scores.score_votes(read, "run"),
        scores.score_ballots(read, "run"),
        scores.ignored_references(read, "run"),
        scores.session_totals(read, "run"),
        scores.judged_sessions(read, "run", ["s1", "s2"]),
        *(scores.result_targets(read, "run", which, key, limit=5) for which in ("lowest", "highest")),
        scores.insight_rows(read, "run", "tidy"),
        results.own_score_columns(read, results.of_runs(["run"])[0]),
        results.has_evaluations(read),
        results.has_metrics(read),
    )


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
