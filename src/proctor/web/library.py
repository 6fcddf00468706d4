"""The Tasks page (task files with their results, and test cases) and the Playground page.

Task files are read in a thread, as by `proctor tasks list`.
Test cases are examples of the datasets that the evaluation API has too; the playground starts ordinary runs.
"""

import asyncio
import json
import re
import secrets
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Annotated

import yaml
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from proctor import jobs
from proctor.api.deprecated import OLD_NAMES_OF_TASKS
from proctor.errors import NotFound, ProctorError, UsageError
from proctor.json_values import JsonMap, JsonObject, as_map, as_text, maps_in
from proctor.store import items as store_items
from proctor.store import timestamp
from proctor.store.datasets import StoredExample
from proctor.store.definitions import Token
from proctor.tasks.formats import read_task_set
from proctor.tasks.task import task_document
from proctor.web.actions import errors_of_request
from proctor.web.responses import ERRORS, page, with_deprecated
from proctor.web.run_schemas import RowModel
from proctor.web.state import AppState

READING_SECONDS = 60
MOST_CASES = 10_000
"""Test cases of which a plan is made."""
MOST_DATASETS = 1000
"""Datasets of one answer."""
SCHEMA_TYPE = "AGENTCORE_EVALUATION_PREDEFINED_V1"
"""Type of datasets that hold test cases: the prompts of a session, with the responses that are expected."""
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""Characters that JSON strings may have, and YAML refuses or takes as line ends."""
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


class UnreadTask(RowModel):
    """A task that could not be read."""

    file: str = ""
    problem: str = ""


class TasksAnswer(RowModel):
    """The tasks of a file or folder."""

    tasks: list[TaskShape]
    skipped: list[UnreadTask]


class TaskHistory(RowModel):
    """Results of a task over the newest runs of the store."""

    task: str
    items: int = Field(description="Finished items of models and agents; oracle and noop are not counted.")
    passed: int
    failed: int = Field(description="Including timeouts.")
    errors: int
    runs: int
    last_run: str = Field(description="The newest run with the task.")
    oracle: str = Field(description="Status of its reference solution in the newest run; empty: not run.")
    noop: str = Field(description="Status of an agent that does nothing; empty: not run.")


class HistoryAnswer(RowModel):
    """Results by task."""

    tasks: list[TaskHistory]


class DatasetShape(RowModel):
    """A dataset."""

    id: str
    name: str
    schema_type: str
    description: str
    examples: int
    versions: int
    updated_at: str


class DatasetsAnswer(RowModel):
    """Datasets, those changed last first."""

    datasets: list[DatasetShape]
    total: int = Field(description="All datasets.")


class TestCaseShape(RowModel):
    """An example of a dataset."""

    __test__ = False

    id: str
    position: int
    prompt: str = Field(description="The first prompt; empty if the example has none.")
    expected: str = Field(description="The response that is expected; empty: none.")
    content: JsonObject


class TestCasesAnswer(RowModel):
    """A page of examples."""

    __test__ = False

    examples: list[TestCaseShape]


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


class SavedTestCase(RowModel):
    """Where a test case was saved."""

    dataset_id: str
    example_id: str
    examples: int


class DatasetPlan(RowModel):
    """A plan that asks models every test case of a dataset."""

    text: str
    cases: int = Field(description="Test cases in the plan; those without a prompt are left out.")
    omitted: int = Field(description="Further test cases of the dataset, which are too many for a plan.")


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
        response_class=with_deprecated(OLD_NAMES_OF_TASKS),
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
        return HistoryAnswer(
            tasks=_histories(store_items.task_results(site.context.store.read, _jobs_with_tasks()))
        )

    @routes.get("/api/datasets", summary="The datasets of test cases", responses=ERRORS)
    def datasets(
        offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_DATASETS)] = MOST_DATASETS,
    ) -> DatasetsAnswer:
        return _datasets(site, offset, limit)

    @routes.get("/api/datasets/{dataset_id}/examples", summary="Test cases of a dataset", responses=ERRORS)
    def examples(
        dataset_id: str,
        after: Annotated[int, Query(ge=0, le=2**53)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> TestCasesAnswer:
        dataset = site.context.store.datasets.dataset(dataset_id)
        rows = site.context.store.datasets.examples(dataset["id"], after=after, limit=limit)
        return TestCasesAnswer(examples=[_test_case(row) for row in rows])

    @routes.post("/api/test-cases", status_code=201, summary="Save a test case", responses=ERRORS)
    def save(case: NewTestCase) -> SavedTestCase:
        return _save(site, case)

    @routes.delete(
        "/api/datasets/{dataset_id}/examples/{example_id}", summary="Delete a test case", responses=ERRORS
    )
    def delete(dataset_id: str, example_id: str) -> DatasetsAnswer:
        dataset = site.context.store.datasets.dataset(dataset_id)
        token = Token(operation="RemoveTestCase", token="", request={})
        site.context.store.datasets.remove(dataset["id"], [example_id], token, site.now())
        return _datasets(site, 0, MOST_DATASETS)

    @routes.get("/api/datasets/{dataset_id}/plan", summary="A plan of all its test cases", responses=ERRORS)
    def plan(
        dataset_id: str,
        model: Annotated[list[str] | None, Query(max_length=50, description="Models to ask.")] = None,
    ) -> DatasetPlan:
        dataset = site.context.store.datasets.dataset(dataset_id)
        rows = islice(site.context.store.datasets.all_examples(dataset["id"]), MOST_CASES)
        cases = [case for case in map(_test_case, rows) if case.prompt]
        omitted = max(0, dataset["examples"] - MOST_CASES)
        return DatasetPlan(text=plan_of(cases, model or []), cases=len(cases), omitted=omitted)

    return routes


def _tasks(folder: Path, path: str) -> TasksAnswer:
    # As it was typed, where that is the same, so that answers name files as briefly.
    with errors_of_request():
        task_set = read_task_set(Path(path) if folder == Path.cwd() else folder / path)
    return TasksAnswer.model_validate(
        {
            "tasks": [task_document(task) for task in task_set.tasks],
            "skipped": [each.document() for each in task_set.not_read],
        }
    )


def _datasets(site: AppState, offset: int, limit: int) -> DatasetsAnswer:
    rows = sorted(site.context.store.datasets.all_datasets(), key=lambda row: row["updatedAt"], reverse=True)
    return DatasetsAnswer(
        datasets=[
            DatasetShape.model_validate({**row, "versions": row["lastVersion"]})
            for row in rows[offset : offset + limit]
        ],
        total=len(rows),
    )


def _test_case(row: StoredExample) -> TestCaseShape:
    turn: JsonMap = next(iter(maps_in(row["content"].get("turns"))), {})
    text = turn.get("input")
    prompt = text if isinstance(text, str) else as_text(as_map(turn, "input").get("prompt"))
    return TestCaseShape(
        id=row["id"],
        position=row["position"],
        prompt=prompt,
        expected=as_text(turn.get("expected_response")),
        content=dict(row["content"]),
    )


def _save(site: AppState, case: NewTestCase) -> SavedTestCase:
    store, now = site.context.store, site.now()
    example_id = f"case-{secrets.token_hex(6)}"
    turn = {"input": case.prompt, **({"expected_response": case.expected} if case.expected else {})}
    content: JsonObject = {"scenario_id": example_id, "turns": [turn]}
    if case.sessionId:
        session = store.read.session(case.sessionId)
        content["metadata"] = {"sessionId": session["id"], "runId": session["runId"]}
    token = Token(operation="AddTestCase", token="", request={})
    try:
        dataset = store.datasets.dataset(case.dataset)
    except NotFound:
        row = {
            "id": f"{case.dataset}-{secrets.token_hex(5)}",
            "name": case.dataset,
            "schemaType": SCHEMA_TYPE,
            "description": "",
            "kmsKeyArn": "",
            "createdAt": timestamp(now),
            "updatedAt": timestamp(now),
        }
        saved = store.datasets.create(row, {example_id: content}, token)
    else:
        if dataset["schemaType"] != SCHEMA_TYPE:
            raise UsageError(f"the dataset {case.dataset} has examples of another kind\nChoose another name.")
        saved = store.datasets.add(dataset["id"], {example_id: content}, token, now)
    return SavedTestCase(dataset_id=saved["id"], example_id=example_id, examples=saved["examples"])


def plan_of(cases: Iterable[TestCaseShape], models: list[str]) -> str:
    """A plan with an entry for each test case."""
    entries = [
        {"prompt": case.prompt, **({"expect": {"contains": case.expected}} if case.expected else {})}
        for case in cases
    ]
    # Written as JSON where YAML would fold long texts: every JSON document is YAML.
    lines = [f"  - {_NOT_IN_YAML.sub(_escaped, json.dumps(entry, ensure_ascii=False))}" for entry in entries]
    defaults = yaml.safe_dump({"defaults": {"model": models}}, allow_unicode=True) if models else ""
    return "concurrency: 4\n" + defaults + "matrix:\n" + "\n".join(lines) + "\n"


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _jobs_with_tasks() -> list[str]:
    return [job.name for job in jobs.jobs() if job.has_tasks]


def _histories(rows: Iterable[store_items.TaskResult]) -> list[TaskHistory]:
    grouped: dict[str, list[store_items.TaskResult]] = {}
    for row in rows:
        grouped.setdefault(row["task"], []).append(row)
    return [_history(task, each) for task, each in sorted(grouped.items())]


def _history(task: str, rows: list[store_items.TaskResult]) -> TaskHistory:
    """`rows` are the newest first."""
    known = ("oracle", "noop")
    own = [row for row in rows if row["model"] not in known]

    def count(*statuses: str) -> int:
        return sum(row["items"] for row in own if row["status"] in statuses)

    newest = {model: next((row["status"] for row in rows if row["model"] == model), "") for model in known}
    return TaskHistory(
        task=task,
        items=sum(row["items"] for row in own),
        passed=count("success"),
        failed=count("fail", "timeout"),
        errors=count("error"),
        runs=len({row["runId"] for row in rows}),
        last_run=rows[0]["runId"],
        **newest,
    )
