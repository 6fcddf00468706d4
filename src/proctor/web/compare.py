"""The Compare page: compare runs or the groups of one run, and two sessions side by side.

Comparisons are cached as long as their runs do not change: reading all items again for each window would be
slow.
"""

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from starlette.responses import HTMLResponse, Response

from proctor.api.comparing import (
    CompareQuery,
    Comparison,
    Contrast,
    Groups,
    Results,
    batches_of,
    compare_groups,
    counts_by_level,
    disagreements,
    evaluators_with_bad_highs,
    gate_of,
    last_sessions,
)
from proctor.api.deprecated import OLD_NAMES_OF_COMPARISONS, OLD_NAMES_OF_DISAGREEMENTS
from proctor.api.loaded_results import MOST_RESULT_ITEMS, Reading
from proctor.api.sessions import find_session
from proctor.cache import LruCache
from proctor.document import CaptionedChart, Figure
from proctor.item import FAIL, FINISHED, SUCCESS, TIMEOUT
from proctor.json_values import JsonMap, as_map, as_number
from proctor.metric import METRIC_TITLES, METRICS_HELP
from proctor.report.comparison import (
    amounts,
    around,
    change,
    comparison_data,
    comparison_document,
    difference_document,
    finding,
    headline,
    is_better,
    plot_of,
    sentence,
    size,
)
from proctor.report.render import document_html
from proctor.web.evaluation_schemas import (
    ComparedSide,
    ComparisonAnswer,
    DisagreementsAnswer,
    DisagreementShape,
    GroupCountsAnswer,
    GroupCountShape,
)
from proctor.web.responses import ERRORS, page, with_deprecated
from proctor.web.run_schemas import MOST_WAIT_SECONDS, WaitSeconds
from proctor.web.runs import REPORT_POLICY
from proctor.web.state import AppState

MOST_RUNS = 12
MOST_REPEATS = 10
MOST_CACHED = 8
"""Cached groups, and comparisons of each; groups have the values of all their items."""
Text = Annotated[str, Query(max_length=300)]
Runs = Annotated[
    list[str],
    Query(alias="run", max_length=MOST_RUNS, description="The first is the baseline."),
]
By = Annotated[str, Query(max_length=200, description="Compare the levels of a factor of one run.")]
Against = Annotated[str, Query(max_length=1000, description="Baseline level of `by`; empty: the first.")]
Metrics = Annotated[
    list[str],
    Query(alias="metric", max_length=50, description=f"{METRICS_HELP}."),
]
Pair = Annotated[Literal["", "item", "task", "scenario", "session"], Query(description="Empty: automatic.")]
Gates = Annotated[
    list[Annotated[str, Field(max_length=300)]],
    Query(alias="gate", max_length=20, description="Condition on the difference: success>=-0.02."),
]
Mixed = Annotated[bool, Query(description="Also compare scores of different versions of an evaluator.")]


def compare_query(run: Runs, by: By = "", against: Against = "", pair: Pair = "") -> CompareQuery:
    """What to compare, from the parameters of a request."""
    return CompareQuery(tuple(run), by, pair, against)


Compared = Annotated[CompareQuery, Depends(compare_query)]


def router(site: AppState) -> APIRouter:
    """The Compare pages and their routes."""
    routes = APIRouter(tags=["compare"], responses=ERRORS)
    cache = _RecentComparisons(site)

    @routes.get("/compare", include_in_schema=False)
    def show_page(request: Request) -> Response:
        return page(request, "compare.html", title="Compare", metric_titles=METRIC_TITLES)

    @routes.get("/compare/sessions", include_in_schema=False)
    def side_by_side(request: Request, left: Text = "", right: Text = "") -> Response:
        ids = [find_session(site.context, one).id if one else "" for one in (left, right)]
        title = "Two sessions"
        return page(request, "compare_sessions.html", title=title, left=ids[0], right=ids[1])

    @routes.get(
        "/api/compare",
        summary="Compare runs, or groups of one run",
        response_class=with_deprecated(OLD_NAMES_OF_COMPARISONS),
    )
    def compared(
        query: Compared,
        metric: Metrics = [],  # noqa: B006
        mixed: Mixed = False,
        gate: Gates = [],  # noqa: B006
        wait: WaitSeconds = MOST_WAIT_SECONDS,
    ) -> ComparisonAnswer:
        """Paired by task, with confidence intervals, corrected for multiple comparisons.

        The items of large runs are read beside the requests: without contrasts until they have been read.
        """
        comparison = cache.comparison(query, tuple(metric), mixed, tuple(gate), wait)
        if comparison is None:
            return _not_yet(cache.reading(query))
        return comparison_answer(comparison, evaluators_with_bad_highs(site.context, query.sources))

    @routes.get("/api/compare/counts", summary="Success rates of groups by counts alone")
    def counts(run: Runs, by: By = "") -> GroupCountsAnswer:
        """What the store can count at once: for a first look while a comparison is computed.

        Without groups if a factor other than the agent or model divides the run.
        """
        CompareQuery(tuple(run), by).check()
        return GroupCountsAnswer(groups=_group_counts(site, run, by))

    @routes.get(
        "/api/compare/report",
        summary="A comparison as an HTML report",
        response_class=Response,
        responses={200: {"content": {"text/html": {}}, "description": "The page."}},
    )
    def report(
        query: Compared,
        metric: Metrics = [],  # noqa: B006
        mixed: Mixed = False,
        gate: Gates = [],  # noqa: B006
    ) -> Response:
        comparison = cache.comparison(query, tuple(metric), mixed, tuple(gate))
        assert comparison is not None
        return HTMLResponse(
            document_html(comparison_document(comparison)), headers={"content-security-policy": REPORT_POLICY}
        )

    @routes.get(
        "/api/compare/items",
        summary="Tasks with different results in two groups",
        response_class=with_deprecated(OLD_NAMES_OF_DISAGREEMENTS),
    )
    def items(
        query: Compared,
        metric: Annotated[str, Query(max_length=300)],
        candidate: Annotated[str, Query(max_length=1000, description="Empty: the first one.")] = "",
        search: Annotated[str, Query(max_length=500)] = "",
        direction: Annotated[
            Literal["", "higher", "lower", "all"],
            Query(description="Of the candidate; `all`: also tasks with equal results."),
        ] = "",
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=200)] = 25,
    ) -> DisagreementsAnswer:
        """Largest differences first."""
        groups = cache.groups(query)
        candidate = candidate or groups.names[1]
        window, total = disagreements(
            groups, metric, candidate, search=search, direction=direction, offset=offset, limit=limit
        )
        sides = _sessions(
            site, [each for one in window for each in (*one.baseline_items, *one.candidate_items)]
        )
        rows = [
            DisagreementShape(
                task=contrast.words[:400],
                baseline=contrast.baseline,
                candidate=contrast.candidate,
                difference=contrast.difference,
                baseline_text=amounts(metric, contrast.baseline, contrast.candidate)(contrast.baseline),
                candidate_text=amounts(metric, contrast.baseline, contrast.candidate)(contrast.candidate),
                difference_text=change(contrast.difference, metric),
                baseline_items=[sides[each] for each in contrast.baseline_items[:MOST_REPEATS]],
                candidate_items=[sides[each] for each in contrast.candidate_items[:MOST_REPEATS]],
            )
            for contrast in window
        ]
        return DisagreementsAnswer(metric=metric, candidate=candidate, items=rows, offset=offset, total=total)

    return routes


def _group_counts(site: AppState, runs: Sequence[str], by: str) -> list[GroupCountShape]:
    batches = batches_of(site.context, runs)
    if by:
        groups = counts_by_level(site.context, batches[0]["runId"], by)
    else:
        groups = {batch["runId"]: site.item_counts.of(batch) for batch in batches}
    return [
        GroupCountShape(
            name=name,
            finished=sum(counts.get(status, 0) for status in FINISHED),
            judged=sum(counts.get(status, 0) for status in (SUCCESS, FAIL, TIMEOUT)),
            succeeded=counts.get(SUCCESS, 0),
        )
        for name, counts in groups.items()
        if name
    ]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The groups of a query, and comparisons of them."""

    results: Results
    """What they were made of."""
    groups: Groups
    comparisons: LruCache[Hashable, Comparison]


class _RecentComparisons:
    """Cache of recent comparisons, valid while their runs do not change."""

    def __init__(self, site: AppState) -> None:
        self._site = site
        self._lock = threading.Lock()
        self._prepared: LruCache[CompareQuery, _Prepared] = LruCache(
            MOST_CACHED, most_weight=MOST_RESULT_ITEMS, least=1
        )

    def groups(self, query: CompareQuery) -> Groups:
        """The groups of a query."""
        prepared = self._prepare(query, threading.TIMEOUT_MAX)
        assert prepared is not None
        return prepared.groups

    def comparison(
        self,
        query: CompareQuery,
        metrics: tuple[str, ...],
        mixed: bool,
        gates: tuple[str, ...] = (),
        wait: float = threading.TIMEOUT_MAX,
    ) -> Comparison | None:
        """The comparison of a query, with the verdicts of its gates. None: the items of large runs are still
        being read after `wait` seconds."""
        conditions = [gate_of(text) for text in gates]
        prepared = self._prepare(query, wait)
        if prepared is None:
            return None
        # One at a time, so that concurrent requests do not compute the same twice.
        with self._lock:
            if conditions and not metrics:
                # Gates must not reduce the compared metrics.
                plain = self._compared(prepared, (), mixed, ())
                metrics = tuple(dict.fromkeys(each.metric for each in plain.contrasts))
            return self._compared(prepared, metrics, mixed, gates)

    def reading(self, query: CompareQuery) -> Reading | None:
        """How far the items of a query have been read."""
        batches = batches_of(self._site.context, query.sources)
        return self._site.results.reading(*(batch["runId"] for batch in batches))

    @staticmethod
    def _compared(
        prepared: _Prepared, metrics: tuple[str, ...], mixed: bool, gates: tuple[str, ...]
    ) -> Comparison:
        key = metrics, mixed, gates
        comparison = prepared.comparisons.get(key)
        if comparison is None:
            conditions = [gate_of(text) for text in gates]
            comparison = compare_groups(prepared.groups, metrics=metrics, gates=conditions, mixed=mixed)
            prepared.comparisons.put(key, comparison)
        return comparison

    def _prepare(self, query: CompareQuery, wait: float) -> _Prepared | None:
        query.check()
        batches = batches_of(self._site.context, query.sources)
        # Loaded already if the page of the run was looked at.
        results, _ = self._site.results.within(batches, wait, recent=False)
        if results is None:
            return None
        with self._lock:
            prepared = self._prepared.get(query)
            if prepared is None or prepared.results is not results:
                groups = query.groups(results, self._site.context.store.read)
                prepared = _Prepared(results, groups, LruCache(MOST_CACHED))
                self._prepared.put(query, prepared, weight=len(results))
            return prepared


def comparison_answer(comparison: Comparison, bad: Sequence[str]) -> ComparisonAnswer:
    """A comparison with its sentences and charts; `bad`: evaluators whose high values are bad."""
    contrasts, data = comparison.contrasts, comparison_data(comparison)
    metrics = dict.fromkeys(each.metric for each in contrasts)
    return ComparisonAnswer.model_validate(
        {
            **data,
            "summary": headline(comparison),
            "isBetter": is_better(contrasts[0], bad) if len(comparison.groups) == 2 else None,
            "contrasts": [_contrast(*each, bad) for each in zip(contrasts, data["contrasts"], strict=True)],
            "charts": [_chart(contrasts, metric, comparison.groups[0]) for metric in metrics],
        }
    )


def _not_yet(reading: Reading | None) -> ComparisonAnswer:
    """What is known of a comparison while items are read."""
    return ComparisonAnswer(
        summary=f"The items are being read: {reading}." if reading else "The items are being read.",
        is_better=None,
        groups=[],
        paired_by="",
        differs_in=[],
        mocks=[],
        metrics=[],
        contrasts=[],
        charts=[],
        verdict=None,
        gates=[],
        is_current=False,
        reading=reading,
    )


def _contrast(contrast: Contrast, document: JsonMap, bad: Sequence[str]) -> JsonMap:
    """A contrast as in the documented JSON, and what the page says of it."""
    difference, metric = as_map(document, "difference"), contrast.metric
    means = {"baselineMean": contrast.baseline_mean.value, "candidateMean": contrast.candidate_mean.value}
    say = amounts(metric, *means.values())
    return {
        **document,
        **{name: {**as_map(document, name), "text": say(mean)} for name, mean in means.items()},
        "difference": None
        if difference.get("value") is None
        else {**difference, "text": size(contrast), "interval": around(contrast)},
        "finding": finding(contrast),
        "isBetter": is_better(contrast, bad),
        "text": sentence(contrast),
    }


def _chart(contrasts: Sequence[Contrast], metric: str, baseline: str) -> CaptionedChart:
    return CaptionedChart(
        caption=metric,
        svg=plot_of(contrasts, metric, baseline, is_marked=True),
        marks=[_mark(each) for each in contrasts if each.metric == metric],
    )


def _mark(contrast: Contrast) -> Figure:
    difference = difference_document(contrast.difference) if contrast.difference else {}
    return Figure(
        label=contrast.candidate,
        text=size(contrast),
        value=as_number(difference, "value"),
        low=as_number(difference, "low"),
        high=as_number(difference, "high"),
        n=contrast.pairs or None,
        unit="paired task",
        note=finding(contrast),
    )


def _sessions(site: AppState, items: Sequence[tuple[str, str]]) -> dict[tuple[str, str], ComparedSide]:
    """Each item, named by run and id, with its session."""
    return {
        (run_id, item_id): ComparedSide(run_id=run_id, item_id=item_id, session_id=session, status=status)
        for (run_id, item_id), (session, status) in last_sessions(site.context, items).items()
    }
