"""Test cases, histories of tasks, typed plans, settings and the manual, without a server."""

import asyncio
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from app_states import changed_state
from stocked_runs import add_session

from proctor.errors import NotFound, Place, PlanError, Problem, ProctorError, UsageError
from proctor.web import inventory, library, plans, runs
from proctor.web.library import NewTestCase, TestCaseShape
from proctor.web.state import AppState


def endpoints(router: Any) -> dict[str, Any]:
    return {route.name: route.endpoint for route in router.routes}


# Histories of tasks


def result(task: str, model: str, status: str, run_id: str = "r", items: int = 1) -> Any:
    return {"task": task, "model": model, "status": status, "runId": run_id, "items": items}


def test_the_history_of_a_task_counts_models_and_not_oracle_and_noop() -> None:
    rows = [
        result("b", "m", "success", "new", 3),
        result("b", "m", "fail", "new", 2),
        result("b", "n", "timeout", "old", 1),
        result("b", "n", "error", "old", 4),
        result("b", "oracle", "success", "new"),
        result("b", "oracle", "fail", "old"),
        result("b", "noop", "fail", "older"),
        result("a", "m", "success", "old"),
    ]
    first, second = library._histories(rows)
    assert second.model_dump(by_alias=False) == {
        "task": "b",
        "items": 10,
        "passed": 3,
        "failed": 3,
        "errors": 4,
        "runs": 3,
        "last_run": "new",
        "oracle": "success",
        "noop": "fail",
    }
    assert (first.task, first.items, first.oracle, first.noop, first.last_run) == ("a", 1, "", "", "old")


# Test cases


@pytest.mark.parametrize(
    ("turns", "prompt", "expected"),
    [
        ([{"input": "hi", "expected_response": "yes"}, {"input": "second"}], "hi", "yes"),
        ([{"input": {"prompt": "hi"}}], "hi", ""),
        ([{"input": {"other": "hi"}}], "", ""),
        ([], "", ""),
        (None, "", ""),
    ],
)
def test_the_prompt_of_a_test_case_is_that_of_its_first_turn(turns: Any, prompt: str, expected: str) -> None:
    content = {"turns": turns, "scenario_id": "s"}
    case = library._test_case({"id": "i", "position": 3, "content": content})
    assert (case.id, case.position, case.prompt, case.expected) == ("i", 3, prompt, expected)
    assert case.content == content


def test_test_cases_are_saved_in_a_dataset_of_their_own(site: AppState) -> None:
    add_session(site.store, "talk", [], "run-1")
    calls = endpoints(library.router(site))
    saved = calls["save"](NewTestCase(prompt="hi", expected="yes", sessionId="talk"))
    assert saved.example_id.startswith("case-") and saved.dataset_id.startswith("test_cases-")
    assert saved.examples == 1
    again = calls["save"](NewTestCase(prompt="second"))
    assert (again.dataset_id, again.examples) == (saved.dataset_id, 2)
    first, second = calls["examples"](saved.dataset_id, after=0, limit=100).examples
    assert (first.prompt, first.expected, second.prompt, second.expected) == ("hi", "yes", "second", "")
    assert first.content == {
        "scenario_id": saved.example_id,
        "turns": [{"input": "hi", "expected_response": "yes"}],
        "metadata": {"sessionId": "talk", "runId": "run-1"},
    }
    assert second.content == {"scenario_id": again.example_id, "turns": [{"input": "second"}]}
    assert calls["examples"]("test_cases", after=first.position, limit=100).examples == [second]
    assert calls["examples"]("test_cases", after=0, limit=1).examples == [first]
    (listed,) = calls["datasets"](offset=0, limit=10).datasets
    assert (listed.id, listed.name, listed.examples, listed.versions) == (
        saved.dataset_id,
        "test_cases",
        2,
        0,
    )
    assert listed.schema_type == "AGENTCORE_EVALUATION_PREDEFINED_V1"
    left = calls["delete"](saved.dataset_id, saved.example_id)
    assert (left.datasets[0].examples, left.total) == (1, 1)
    with pytest.raises(NotFound):
        calls["delete"](saved.dataset_id, saved.example_id)
    with pytest.raises(NotFound):
        calls["save"](NewTestCase(prompt="x", sessionId="none"))


def test_a_dataset_of_another_kind_takes_no_test_cases(site: AppState) -> None:
    from proctor.store.definitions import Token

    at = "2026-01-01T00:00:00.000Z"
    row = {"id": "x-1", "name": "other", "schemaType": "THIRD_PARTY_EVALUATION_V1", "description": ""}
    row |= {"kmsKeyArn": "", "createdAt": at, "updatedAt": at}
    site.store.datasets.create(row, {}, Token(operation="x", token="", request={}))
    with pytest.raises(UsageError, match=r"^the dataset other has examples of another kind\nChoose another"):
        library._save(site, NewTestCase(prompt="x", dataset="other"))


def test_datasets_are_listed_those_changed_last_first(site: AppState) -> None:
    from datetime import UTC, datetime, timedelta

    names = ("a", "b", "c")
    for number, name in enumerate(names):
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
        library._save(changed_state(site, now=lambda at=at: at), NewTestCase(prompt="x", dataset=name))

    def listed(offset: int, limit: int) -> tuple[list[str], int]:
        page = library._datasets(site, offset, limit)
        return [each.name for each in page.datasets], page.total

    assert listed(0, 10) == (["c", "b", "a"], 3)
    assert listed(1, 1) == (["b"], 3) and listed(2, 5) == (["a"], 3) and listed(3, 5) == ([], 3)


def case(prompt: str, expected: str = "") -> TestCaseShape:
    return TestCaseShape(id="i", position=1, prompt=prompt, expected=expected, content={})


def test_a_plan_asks_models_every_test_case() -> None:
    text = library.plan_of([case("one: \u2028 \x7f two", "yes"), case("ä")], ["m/1", "n"])
    assert yaml.safe_load(text) == {
        "concurrency": 4,
        "defaults": {"model": ["m/1", "n"]},
        "matrix": [
            {"prompt": "one: \u2028 \x7f two", "expect": {"contains": "yes"}},
            {"prompt": "ä"},
        ],
    }
    assert "\\u2028" in text and "\\u007f" in text and "ä" in text
    assert yaml.safe_load(library.plan_of([case("x")], [])) == {"concurrency": 4, "matrix": [{"prompt": "x"}]}


def test_a_plan_of_a_dataset_says_what_it_leaves_out(site: AppState, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = endpoints(library.router(site))
    for prompt in ("one", "two", "three"):
        calls["save"](NewTestCase(prompt=prompt))
    monkeypatch.setattr(library, "MOST_CASES", 2)
    plan = calls["plan"]("test_cases", model=["m"])
    assert (plan.cases, plan.omitted) == (2, 1)
    assert [each["prompt"] for each in yaml.safe_load(plan.text)["matrix"]] == ["one", "two"]
    monkeypatch.setattr(library, "MOST_CASES", 3)
    plan = calls["plan"]("test_cases", model=None)
    assert (plan.cases, plan.omitted, "defaults" in plan.text) == (3, 0, False)


# Things that take long


async def test_tasks_that_take_too_long_to_read_are_given_up(
    site: AppState, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: Any = Future()

    def read(*_: object) -> None:
        ended.result()

    monkeypatch.setattr(library, "READING_SECONDS", 0.01)
    monkeypatch.setattr(library, "_tasks", read)
    tasks = endpoints(library.router(site))["tasks"]
    with pytest.raises(ProctorError, match=r"^reading the tasks took more than 0.01 s\nPass the path of a"):
        await tasks("x")
    ended.set_result(None)


async def test_models_that_take_too_long_to_list_are_given_up(
    site: AppState, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: Any = Future()
    monkeypatch.setattr(inventory, "LISTING_SECONDS", 0.01)
    monkeypatch.setattr(inventory, "list_agents", lambda environment: ended.result())
    with pytest.raises(ProctorError, match=r"^no answer within 0\.01 s$"):
        await endpoints(inventory.router(site))["agents"]()
    ended.set_result(None)


async def test_a_trial_needs_a_model_or_an_agent(site: AppState) -> None:
    try_out = endpoints(inventory.router(site))["try_out"]
    with pytest.raises(UsageError, match="name a model or an agent to be tried"):
        await try_out(inventory.TrialRequest())


async def test_a_trial_says_how_it_went(site: AppState, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def diagnose(settings: object, *, agent: str, model: str) -> Any:
        asked.append((agent, model))
        if agent == "none":
            raise NotFound("there is no agent none")
        return SimpleNamespace(is_well=not agent, main_check=SimpleNamespace(said="hello", remedy="wait"))

    monkeypatch.setattr(inventory, "diagnose", diagnose)
    try_out = endpoints(inventory.router(site))["try_out"]
    answer = await try_out(inventory.TrialRequest(model="m"))
    assert (answer.well, answer.said, answer.remedy) == (True, "hello", "wait")
    assert (await try_out(inventory.TrialRequest(agent="a", model="m"))).well is False
    assert asked == [("", "m"), ("a", "m")]
    with pytest.raises(UsageError, match="there is no agent none"):
        await try_out(inventory.TrialRequest(agent="none"))


# Settings


@pytest.mark.parametrize(
    ("address", "harmless"),
    [
        ("http://user:secret@host:80/v1?key=secret#x", "http://host:80/v1"),
        ("http://host/v1", "http://host/v1"),
        ("http://[x", ""),
    ],
)
def test_an_address_is_shown_without_its_secrets(address: str, harmless: str) -> None:
    assert inventory._harmless(address) == harmless


def test_providers_are_shown_with_their_keys_present_or_missing() -> None:
    environment = {
        "OPENAI_API_KEY": "sk-secret",
        "MINE_BASE_URL": "http://u:p@mine.example/v1",
        "HERE_BASE_URL": "http://127.0.0.1:8000/v1",
        "EMPTY_BASE_URL": "",
    }
    found = {each.name: each for each in inventory._providers(environment)}
    assert list(found)[-2:] == ["here", "mine"] and "empty" not in found
    assert (found["openai"].key, found["openai"].keyVariable) == ("present", "OPENAI_API_KEY")
    assert (found["anthropic"].key, found["anthropic"].keyVariable) == ("missing", "ANTHROPIC_API_KEY")
    assert (found["mine"].address, found["mine"].keyVariable) == ("http://mine.example/v1", "MINE_API_KEY")
    assert (found["here"].key, found["here"].keyVariable) == ("not needed", "")
    assert "secret" not in str(found)


def test_the_settings_of_a_server(site: AppState) -> None:
    import platform

    here = changed_state(site, token="t" * 32, access_keys={"B": "x", "A": "y"})
    answer = endpoints(inventory.settings_router(here))["settings"]()
    assert (answer.token, answer.accessKeys, answer.python) == (True, ["A", "B"], platform.python_version())
    assert (answer.home, answer.folder, answer.store) == (str(here.home), str(here.folder), here.store.url)
    assert endpoints(inventory.settings_router(site))["settings"]().token is False


# The manual of the interface


def test_the_manual_lists_operations_with_parameters_and_answers() -> None:
    ref = {"content": {"application/json": {"schema": {"$ref": "#/x/Thing"}}}}
    document = {
        "paths": {
            "/a": {
                "post": {
                    "tags": ["first", "second"],
                    "summary": "Make",
                    "description": "It makes.",
                    "parameters": [
                        {"name": "p", "in": "query", "required": True, "schema": {"type": "integer"}},
                        {"name": "q", "in": "path", "description": "own", "schema": {"description": "of it"}},
                        {"name": "s", "in": "query", "schema": {"description": "of it"}},
                    ],
                    "requestBody": ref,
                    "responses": {"201": {**ref, "description": "Made."}, "204": {}},
                },
                "get": {},
                "head": {},
            }
        }
    }
    get, post = inventory._operations(document)
    assert post == {
        "group": "first",
        "method": "POST",
        "path": "/a",
        "summary": "Make",
        "description": "It makes.",
        "parameters": [
            {"name": "p", "where": "query", "required": True, "type": "integer", "description": ""},
            {"name": "q", "where": "path", "required": False, "type": "anything", "description": "own"},
            {"name": "s", "where": "query", "required": False, "type": "anything", "description": "of it"},
        ],
        "body": "Thing",
        "answers": [
            {"status": "201", "schema": "Thing", "description": "Made."},
            {"status": "204", "schema": "", "description": ""},
        ],
    }
    assert get == {
        "group": "other",
        "method": "GET",
        "path": "/a",
        "summary": "",
        "description": "",
        "parameters": [],
        "body": "",
        "answers": [],
    }
    assert inventory._kind({"type": "array", "items": {"type": "string"}}) == "list of string"
    assert inventory._kind({"type": "array"}) == "list of anything"
    schema = {"required": ["a"], "properties": {"a": {"type": "string", "description": "A."}, "b": {}}}
    assert list(inventory._members(schema)) == [
        {"name": "a", "type": "string", "required": True, "description": "A."},
        {"name": "b", "type": "anything", "required": False, "description": ""},
    ]


# Tables


def test_a_table_is_not_uploaded_to_an_encrypted_store() -> None:
    site: Any = SimpleNamespace(store=SimpleNamespace(data_keys=SimpleNamespace(is_encrypted=True)))
    with pytest.raises(
        UsageError, match=r"^the store is encrypted, and an uploaded file would not be\nImport"
    ):
        runs._import_table(site, "r", "x.csv", b"", None, None)


@pytest.mark.parametrize(
    ("name", "safe"),
    [("a b.csv", "a-b.csv"), ("../x/t.csv", "t.csv"), (".csv", "csv"), ("ü", "table"), ("-a-.", "a")],
)
def test_an_uploaded_table_has_a_safe_name_and_does_not_stay(
    site: AppState, name: str, safe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from proctor.jobs.imported import table

    seen: list[Path] = []

    def import_table(store: object, paths: list[Path], run: str, now: object, **named: Any) -> Any:
        seen.append(paths[0])
        assert paths[0].read_bytes() == b"content" and named == {"columns": {}, "pass_score": 0.5}
        counts = SimpleNamespace(added=1, replaced=2, unchanged=3, removed=4)
        return SimpleNamespace(run_id=run, rows=9, counts=counts, notes=("n",))

    monkeypatch.setattr(table, "import_table", import_table)
    monkeypatch.setattr(table, "columns_of", lambda columns: {})
    done = runs._import_table(site, "board", name, b"content", None, 0.5)
    assert done.model_dump() == {
        "runId": "board",
        "rows": 9,
        "added": 1,
        "replaced": 2,
        "unchanged": 3,
        "removed": 4,
        "notes": ["n"],
    }
    assert seen[0].name == safe and seen[0].parent == site.data_folder / "uploads" / "tables" / "board"
    assert not seen[0].parent.exists()


# Typed plans


def test_problems_have_their_line_in_the_text_or_the_name_of_their_file() -> None:
    def problem(file: str) -> Problem:
        return Problem(at=Place(file, 3, 5), problem="wrong", remedy="fix")

    typed = {"problem": "wrong", "remedy": "fix", "line": 3, "column": 5, "file": ""}
    other = {"problem": "wrong", "remedy": "fix", "line": None, "column": None}
    files = ["plan", "/x/task.md", "ground truth", "/home/serve/plans/1.yaml", "models.yaml", "/a/b.yaml"]
    found = plans.problems_of(PlanError([problem(file) for file in files]))
    assert [each.model_dump() for each in found] == [
        *[typed] * 4,
        {**other, "file": "models.yaml:3"},
        {**other, "file": "/a/b.yaml:3"},
    ]
    (plain,) = plans.problems_of(UsageError("wrong\nfix\nmore"))
    assert (plain.problem, plain.remedy, plain.line) == ("wrong", "fix\nmore", None)


def test_a_start_that_failed_has_the_problems_of_its_plan() -> None:
    row = {"file": "plan", "line": 3, "column": 5, "problem": "wrong", "remedy": "fix"}
    error = plans._start_error({"problems": [row], "error": "other"}, "")
    assert isinstance(error, PlanError)
    (problem,) = error.problems
    assert (problem.problem, problem.remedy) == ("wrong", "fix")
    assert (problem.at.file, problem.at.line, problem.at.column) == ("plan", 3, 5)
    assert str(plans._start_error({"error": "no plan"}, "")) == "no plan"
    assert str(plans._start_error({}, "")) == "the command failed without a message"


@pytest.mark.parametrize(
    ("polls", "found", "run_id", "message"),
    [
        ([None, None], ["", "night"], "night", ""),
        # It may have ended and be in the store.
        ([0], ["night"], "night", ""),
        ([2], [""], "", "^no plan$"),
        (
            [None],
            [""],
            "",
            r"^the run has not started within 0\.0 s\nIt may still start: .*, and /the/log\.$",
        ),
    ],
)
async def test_a_started_run_is_waited_for(
    polls: list[Any], found: list[str], run_id: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "START_SECONDS", 0.0 if "not started" in message else 60.0)
    monkeypatch.setattr(plans.listing, "batch_of_plan_file", lambda read, path: found.pop(0))
    process = SimpleNamespace(poll=lambda: polls.pop(0))
    launched: Any = SimpleNamespace(
        process=process, document={"error": "no plan"}, messages="", log="/the/log"
    )
    site: Any = SimpleNamespace(store=SimpleNamespace(read=None))
    waiting = plans._wait_for_run(site, Path("plan"), launched)
    if message:
        with pytest.raises(UsageError, match=message):
            await waiting
    else:
        assert await waiting == run_id


@pytest.mark.parametrize("is_encrypted", [True, False])
async def test_the_text_of_a_plan_is_kept_unless_the_store_is_encrypted(
    tmp_path: Path, is_encrypted: bool, site: AppState, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches: list[Any] = []
    here: Any = SimpleNamespace(
        store=SimpleNamespace(data_keys=SimpleNamespace(is_encrypted=is_encrypted)),
        launcher=SimpleNamespace(launch=lambda request, name: launches.append((request, name))),
        data_folder=tmp_path,
        folder=tmp_path,
        now=site.now,
    )

    async def wait(site: object, path: Path, launched: object) -> str:
        assert path.read_text() == "matrix: []"
        return "night"

    monkeypatch.setattr(plans, "_wait_for_run", wait)
    overrides = plans.Override(workers=2, engine="local", concurrency=3)
    typed = plans.PlanRequest(text="matrix: []", job="coding", overrides=overrides)
    assert await plans.TypedPlan(here, typed).start() == "night"
    ((request, name),) = launches
    assert (request.job, request.plan_text, request.workers) == ("coding", "matrix: []", 2)
    assert request.overrides == {"concurrency": 3}
    assert request.plan_path == str(tmp_path / "plans" / f"{name}.yaml")
    assert Path(request.plan_path).exists() is not is_encrypted


@pytest.mark.parametrize(
    ("code", "document", "message"),
    [
        (0, {"job": "coding"}, ""),
        (2, {"job": "coding"}, "^proctor failed$"),
        (0, {}, "^proctor failed$"),
        (0, {"error": "no"}, "^no$"),
    ],
)
async def test_a_check_in_a_process_has_a_document_or_an_error(
    code: int, document: Any, message: str
) -> None:
    calls: list[Any] = []

    async def check_plan(request: Any, *, seconds: float) -> Any:
        calls.append((request, seconds))
        return code, document, "proctor: proctor failed"

    site: Any = SimpleNamespace(launcher=SimpleNamespace(check_plan=check_plan))
    typed = plans.PlanRequest(text="x", job="coding")
    work = plans.check_in_process(site, asyncio.Semaphore(1), typed, seconds=5, is_validation=True)
    if message:
        with pytest.raises(UsageError, match=message):
            await work
    else:
        assert await work == document
    ((request, seconds),) = calls
    assert (request["isValidation"], request["plan"]["text"], seconds) == (True, "x", 5)


async def test_a_check_that_takes_too_long_is_given_up(site: AppState) -> None:
    async def check_plan(request: Any, *, seconds: float) -> Any:
        await asyncio.Event().wait()

    here: Any = SimpleNamespace(launcher=SimpleNamespace(check_plan=check_plan))
    typed = plans.PlanRequest(text="x")
    with pytest.raises(UsageError, match=r"^checking the plan took more than 0\.01 s\nMake it smaller"):
        await plans.check_in_process(here, asyncio.Semaphore(1), typed, seconds=0.01)
    with pytest.raises(NotFound):
        await plans.check_in_process(
            here, asyncio.Semaphore(1), plans.PlanRequest(text="x", job="none"), seconds=9
        )


class Plan:
    """A plan of three items that names nothing."""

    concurrency = 5

    def __init__(self, item_count: int | None, estimate: Any) -> None:
        self.item_count = item_count
        self._estimate = estimate

    def items(self) -> list[int]:
        return [1, 2, 3]

    def estimate(self, context: object) -> Any:
        return self._estimate


def forecast(items: int, *, unknown: int = 0) -> Any:
    cost = SimpleNamespace(value=2.0, unknown=unknown)
    seconds = SimpleNamespace(value=60.0, unknown=unknown)
    return SimpleNamespace(items=items, cost_usd=cost, seconds=seconds)


ESTIMATE = SimpleNamespace(item_count=7, cost_usd=9.0, basis="the plan", workload=None)


@pytest.mark.parametrize(
    ("count", "estimate", "known", "items", "changes"),
    [
        (None, None, forecast(0), 3, None),
        (4, None, forecast(4), 4, (2.0, 60.0, "earlier")),
        (4, ESTIMATE, forecast(4), 7, (2.0, 60.0, "earlier")),
        (4, ESTIMATE, forecast(4, unknown=1), 7, (9.0, None, "the plan")),
        (4, ESTIMATE, forecast(0), 7, (9.0, 60.0, "the plan")),
        (0, None, forecast(0), 0, None),
    ],
)
def test_a_validated_plan_has_its_items_and_a_forecast(
    count: int | None,
    estimate: Any,
    known: Any,
    items: int,
    changes: Any,
    site: AppState,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    typed = plans.TypedPlan(site, plans.PlanRequest(text="matrix: []", job="coding"))
    monkeypatch.setattr(typed, "read", lambda: Plan(count, estimate))
    monkeypatch.setattr(plans.lifecycle, "preview", lambda plan, context: SimpleNamespace(remarks=("note",)))
    monkeypatch.setattr(plans, "forecast_plan", lambda job, plan, context, work: known)
    monkeypatch.setattr(plans, "basis", lambda forecast: "earlier")
    answer = typed.validate()
    assert (answer.job, answer.problems, answer.itemCount) == ("coding", [], items)
    assert (answer.concurrency, answer.remarks) == (5, ["note"])
    found = answer.forecast
    assert (found and (found.costUsd, found.seconds, found.basis)) == changes
    check = typed.check()
    assert (check.itemCount, check.problems, check.title) == (count, [], answer.title)


def test_a_run_id_that_is_in_use_is_refused(site: AppState) -> None:
    site.store.create_batch({"runId": "night", "createdAt": "t", "job": "coding", "status": "completed"}, [])
    text = "runId: night\nmatrix: [{prompt: x, model: scripted/ok}]\n"
    (problem,) = plans.TypedPlan(site, plans.PlanRequest(text=text)).check().problems
    assert (problem.problem, problem.line, problem.column) == ("there is already a run called night", 1, 1)
    assert problem.remedy == "Choose another run ID under Overrides, or set `runId` in the plan."
    overrides = plans.Override(runId="night")
    request = plans.PlanRequest(text=text.replace("night", "day"), overrides=overrides)
    (problem,) = plans.TypedPlan(site, request).check().problems
    assert (problem.problem, problem.line) == ("there is already a run called night", None)
    free = plans.TypedPlan(site, plans.PlanRequest(text=text.replace("night", "day"))).check()
    assert (free.problems, free.itemCount) == ([], 1)


def test_jobs_have_the_overrides_that_their_plans_take() -> None:
    from proctor import jobs

    names = {job.name: plans._override_names(job) for job in jobs.jobs() if job.has_plans}
    assert all({"workers", "engine"} <= set(each) for each in names.values())
    assert "mergeOnPass" in names["coding"] and "runs" not in names["coding"]
    assert "seed" in names["dialogue"] and "mergeOnPass" not in names["dialogue"]
