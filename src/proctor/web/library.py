"""The Tasks page (task files with their results, and test cases) and the Playground page.

Task files are read in a thread, as by `proctor tasks list`.
Test cases are examples of the datasets that the evaluation API has too; the playground starts ordinary runs.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor.api import test_cases
from proctor.api.deprecated import OLD_NAMES_OF_LISTED_TASKS
from proctor.api.task_history import TaskHistory, task_history
from proctor.api.test_cases import DatasetList, DatasetPlan, SavedTestCase, SavedTestCases
from proctor.errors import ProctorError
from proctor.tasks.formats import read_task_set
from proctor.tasks.task import NotRead, task_document
from proctor.web.actions import errors_of_request
from proctor.web.responses import ERRORS, page, with_deprecated
from proctor.web.run_schemas import RowModel
from proctor.web.state import AppState

READING_SECONDS = 60
MOST_DATASETS = 1000
"""Datasets of one answer."""
DatasetName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,47}$")]


class TaskShape(RowModel):
    """A task of a file."""

    id: str
    format: str
    title: str
    file: str
    difficulty: str = ""
    checks: int
    has_solution: bool


class TasksAnswer(RowModel):
    """The tasks of a file or folder."""

    tasks: list[TaskShape]
    skipped: Sequence[NotRead]


class HistoryAnswer(RowModel):
    """Results by task."""

    tasks: Sequence[TaskHistory]


class TestCasesAnswer(RowModel):
    """A page of examples."""

    __test__ = False

    examples: Sequence[test_cases.TestCase]


class NewTestCase(BaseModel):
    """A prompt that becomes a test case."""

    model_config = ConfigDict(extra="forbid")

    dataset: DatasetName = "test_cases"
    """Created if there is none of this name."""
    prompt: Annotated[str, Field(min_length=1, max_length=1_000_000)]
    expected: Annotated[str, Field(max_length=1_000_000)] = ""
    """What a right answer contains. Empty: anything."""
    sessionId: Annotated[str, Field(max_length=200)] = ""  # noqa: N815  names as in the API
    """The session that it comes from."""


class NewTestCases(BaseModel):
    """Sessions whose first prompts become test cases."""

    model_config = ConfigDict(extra="forbid")

    dataset: DatasetName = "test_cases"
    """Created if there is none of this name."""
    sessionIds: Annotated[list[Annotated[str, Field(max_length=300)]], Field(min_length=1, max_length=1000)]  # noqa: N815


def router(site: AppState) -> APIRouter:
    """The Tasks and Playground pages, and their routes."""
    routes = APIRouter(tags=["tasks and test cases"])

    @routes.get("/tasks", include_in_schema=False)
    def show_tasks(request: Request) -> Response:
        return page(request, "tasks.html", title="Tasks")

    @routes.get("/playground", include_in_schema=False)
    def show_playground(request: Request) -> Response:
        return page(request, "playground.html", title="Playground")

    @routes.get(
        "/api/tasks",
        summary="The tasks of a file or folder",
        responses=ERRORS,
        response_class=with_deprecated(OLD_NAMES_OF_LISTED_TASKS),
    )
    async def tasks(
        path: Annotated[
            str, Query(min_length=1, max_length=2000, description="As `proctor tasks list` takes it.")
        ],
    ) -> TasksAnswer:
        try:
            async with asyncio.timeout(READING_SECONDS):
                return await asyncio.to_thread(_tasks, site.folder, path)
        except TimeoutError:
            raise ProctorError(
                f"reading the tasks took more than {READING_SECONDS} s\nPass the path of a part of them."
            ) from None

    @routes.get("/api/tasks/history", summary="Results by task, over the newest runs", responses=ERRORS)
    def history() -> HistoryAnswer:
        return HistoryAnswer(tasks=task_history(site.context))

    @routes.get("/api/datasets", summary="The datasets of test cases", responses=ERRORS)
    def datasets(
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_DATASETS)] = MOST_DATASETS,
    ) -> DatasetList:
        return test_cases.list_datasets(site.context, offset=offset, limit=limit)

    @routes.get("/api/datasets/{dataset_id}/examples", summary="Test cases of a dataset", responses=ERRORS)
    def examples(
        dataset_id: str,
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> TestCasesAnswer:
        cases = test_cases.list_test_cases(site.context, dataset_id, after=after, limit=limit)
        return TestCasesAnswer(examples=cases)

    @routes.post("/api/test-cases", status_code=201, summary="Save a test case", responses=ERRORS)
    def save(case: NewTestCase) -> SavedTestCase:
        return test_cases.save_test_case(
            site.context, case.dataset, case.prompt, expected=case.expected, session_id=case.sessionId
        )

    @routes.post(
        "/api/test-cases/from-sessions",
        status_code=201,
        summary="Save the first prompts of sessions as test cases",
        responses=ERRORS,
    )
    def save_all(cases: NewTestCases) -> SavedTestCases:
        """Sessions without a message of a user are left out."""
        return test_cases.save_test_cases(site.context, cases.dataset, cases.sessionIds)

    @routes.delete(
        "/api/datasets/{dataset_id}/examples/{example_id}", summary="Delete a test case", responses=ERRORS
    )
    def delete(dataset_id: str, example_id: str) -> DatasetList:
        test_cases.delete_test_case(site.context, dataset_id, example_id)
        return test_cases.list_datasets(site.context, limit=MOST_DATASETS)

    @routes.get("/api/datasets/{dataset_id}/plan", summary="A plan of all its test cases", responses=ERRORS)
    def plan(
        dataset_id: str,
        model: Annotated[list[str] | None, Query(max_length=50, description="Models to ask.")] = None,
    ) -> DatasetPlan:
        return test_cases.plan_of_dataset(site.context, dataset_id, model or [])

    return routes


def _tasks(folder: Path, path: str) -> TasksAnswer:
    # As it was typed, where that is the same, so that answers name files as briefly.
    with errors_of_request():
        task_set = read_task_set(Path(path) if folder == Path.cwd() else folder / path)
    tasks = [TaskShape.model_validate(task_document(task)) for task in task_set.tasks]
    return TasksAnswer(tasks=tasks, skipped=task_set.not_read)
