"""Items of a run over HTTP: filtered and sorted lists, values to filter by, groups of failures, matrix."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from proctor.api.items import (
    SHOWN_CHARACTERS,
    FailureList,
    ItemLevel,
    ItemLists,
    ItemPage,
    ItemQuery,
    Matrices,
    MatrixPage,
    Neighbors,
    PageItem,
    ScoreRange,
    range_of,
)
from proctor.errors import NotFound, UsageError
from proctor.item import STATUSES
from proctor.web.responses import ERRORS
from proctor.web.run_schemas import MOST_WAIT_SECONDS, RunId, WaitSeconds
from proctor.web.state import AppState

MOST_ROWS = 500
MOST_CONDITIONS = 50
"""Factors, and scores, that one list is filtered by: a database takes about a thousand conditions."""
MOST_MATRIX_ROWS = 100
MOST_CELL_ITEMS = 50

Text = Annotated[str, Query(max_length=500)]
Texts = list[Annotated[str, Query(max_length=1000)]] | None


def item_query(
    search: Annotated[
        str, Query(max_length=500, description="Text in ID, repository, prompt, model, agent or error.")
    ] = "",
    status: Annotated[Texts, Query(description="Only these statuses.")] = None,
    model: Annotated[Texts, Query(description="Only these models.")] = None,
    agent: Annotated[Texts, Query(description="Only these agents.")] = None,
    reason: Annotated[Texts, Query(description="Only these reasons.")] = None,
    factor: Annotated[
        Texts, Query(description="`NAME=LEVEL`; several levels of one factor: any of them.")
    ] = None,
    score: Annotated[
        Texts, Query(description="`EVALUATOR=LOW..HIGH`; a limit may be missing. All must hold.")
    ] = None,
    duration: Annotated[
        Texts,
        Query(description="`LOW..HIGH`, seconds from start to end, below HIGH; a limit may be missing."),
    ] = None,
    tag: Annotated[Texts, Query(description="Only items whose session has one of these tags.")] = None,
    noted: Annotated[bool, Query(description="Only items whose session has a note.")] = False,
    starred: Annotated[bool, Query(description="Only items whose session has a star.")] = False,
    group: Annotated[str, Query(max_length=100, description="Key of a group of `failures`.")] = "",
    order: Annotated[
        str,
        Query(
            max_length=300,
            description="A member of an item, `factor:` and a factor's name, or `score:` and an evaluator's.",
        ),
    ] = "position",
    descending: bool = False,
) -> ItemQuery:
    """The filter and order of a list of items."""
    for state in status or ():
        if state not in STATUSES:
            raise NotFound(f"there is no status {state}\nThere are: {', '.join(STATUSES)}.")
    factors = tuple(_level(one) for one in _cleaned(factor))
    scores = tuple(ScoreRange.parse(one) for one in _cleaned(score))
    durations = tuple(range_of(one, "seconds") for one in _cleaned(duration))
    if max(len({name for name, _ in factors}), len(scores), len(durations)) > MOST_CONDITIONS:
        raise UsageError(f"items are filtered by at most {MOST_CONDITIONS} factors and as many scores")
    return ItemQuery(
        search=_clean(search),
        statuses=tuple(status or ()),
        models=_cleaned(model),
        agents=_cleaned(agent),
        reasons=_cleaned(reason),
        factors=factors,
        scores=scores,
        durations=durations,
        tags=_cleaned(tag),
        is_noted=noted,
        is_starred=starred,
        failure_group=_clean(group),
        order=_clean(order),
        descending=descending,
    )


Filter = Annotated[ItemQuery, Depends(item_query)]


def _clean(text: str) -> str:
    return text.replace("\0", "")


def _cleaned(texts: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_clean(text) for text in texts or ()))


def _level(text: str) -> tuple[str, str]:
    name, separator, level = text.partition("=")
    if not separator:
        raise UsageError(f"{text} is no level of a factor\nWrite NAME=LEVEL.")
    return name, level


class LevelsAnswer(BaseModel):
    """Values that items can be filtered by."""

    levels: Sequence[ItemLevel]


class CellItemsAnswer(BaseModel):
    """Items of one cell of a matrix."""

    items: Sequence[PageItem] = Field(description="In plan order.")


def router(site: AppState) -> APIRouter:
    """The routes of item lists."""
    routes = APIRouter(prefix="/api/runs", tags=["runs"], responses=ERRORS)
    lists = ItemLists(site.context, site.item_counts)
    matrices = Matrices(site.context, site.results)

    @routes.get("/{run_id}/items", summary="A window of a run's items")
    def window(
        run_id: RunId,
        query: Filter,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 100,
        outcomes: Annotated[
            bool, Query(description="With the answer, check output, scores and annotations of each item.")
        ] = False,
    ) -> ItemPage:
        """Searched, filtered and sorted by the store; missing values come last."""
        return lists.page(run_id, query, offset=offset, limit=limit, with_outcomes=outcomes)

    @routes.get("/{run_id}/levels", summary="Values that items can be filtered by")
    def levels(
        run_id: RunId,
        of: Annotated[
            str,
            Query(max_length=300, description="`model`, `agent`, `reason`, `tag`, `score`, `factor:NAME`."),
        ],
    ) -> LevelsAnswer:
        """At most 500, with the number of items that have each. Scores have a lowest and highest value."""
        return LevelsAnswer(levels=lists.levels(run_id, _clean(of)))

    @routes.get("/{run_id}/failures", summary="Failures grouped by reason and likeness of message")
    def failures(
        run_id: RunId, query: Filter, limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 20
    ) -> FailureList:
        """Of the items that match, whatever their status; the largest groups first.

        Messages are alike that differ only in numbers, ids, paths and quoted texts.
        """
        return lists.failures(run_id, query, limit)

    @routes.get("/{run_id}/neighbors", summary="The sessions before and after one in a list of items")
    def neighbors(
        run_id: RunId,
        query: Filter,
        session: Annotated[str, Query(max_length=300, description="Session ID.")],
    ) -> Neighbors:
        """In the same list as `items` has with these parameters. Items that have not started are skipped."""
        return lists.neighbors(run_id, query, _clean(session))

    @routes.get("/{run_id}/matrix", summary="Tasks by the levels of a factor")
    def matrix(
        run_id: RunId,
        by: Annotated[
            str, Query(max_length=200, description="Factor of the columns; empty: automatic.")
        ] = "",
        search: Annotated[str, Query(max_length=500, description="Text in the name of the task.")] = "",
        disagree: Annotated[
            bool, Query(description="Only tasks whose levels differ, the largest differences first.")
        ] = False,
        score: Annotated[
            str,
            Query(max_length=300, description="Evaluator to show, and to compare by."),
        ] = "",
        characters: Annotated[int, Query(ge=0, le=4000, description="Of each answer.")] = SHOWN_CHARACTERS,
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_MATRIX_ROWS)] = MOST_MATRIX_ROWS,
        wait: WaitSeconds = MOST_WAIT_SECONDS,
    ) -> MatrixPage:
        """Of finished items. A cell has all repeats; its answer is that of the first.

        All items of a large run are read before its tasks are known: until then, the first tasks.
        """
        return matrices.page(
            run_id,
            by=_clean(by),
            search=_clean(search),
            disagree=disagree,
            score=score,
            characters=characters,
            offset=offset,
            limit=limit,
            wait=wait,
        )

    @routes.get("/{run_id}/matrix/items", summary="Items of one cell of a matrix")
    def cell_items(
        run_id: RunId,
        item: Annotated[
            list[Annotated[str, Field(max_length=300)]],
            Query(min_length=1, max_length=MOST_CELL_ITEMS, description="Item ID; may be repeated."),
        ],
    ) -> CellItemsAnswer:
        """With their answers and scores."""
        return CellItemsAnswer(items=lists.named(run_id, _cleaned(item)))

    return routes
