"""`import proctor`: plans, functions, handles, tables."""

import ast
import asyncio
import inspect
import json
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import proctor
from proctor.errors import NotFound, UsageError
from waiting import TIME_LIMIT_SECONDS

PLAN = (
    "runId: nightly\nmatrix:\n  - {prompt: [first, second], model: [scripted/ok, scripted/echo], runs: 2}\n"
)


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return path


async def shouting(prompt, context):
    """An agent that asks a model and answers louder."""
    answer = await context.ask(prompt, model="scripted/echo")
    return answer.text.upper() + "!"


def measured(prompt):
    """A synchronous agent that returns data."""
    return {"length": len(prompt)}


def broken(prompt):
    """An agent that fails."""
    raise RuntimeError(f"no idea about {prompt}")


def leaving(prompt):
    """An agent that ends the process."""
    sys.exit(0)


class Polite:
    """An agent that is an object."""

    def __call__(self, prompt):
        return f"{prompt}, please"


def constant(request):
    """A model that always says the same."""
    return f"forty-two to {len(request.messages)} message"


def silent(request):
    """A model that forgets to return its answer."""


def test_a_plan_file_is_run_and_its_handle_reads_the_store(library, plan):
    run = library.run(plan, concurrency=3)

    assert (run.id, run.status, run.reason) == ("nightly", "completed", "")
    (row,) = run.rows("runs")
    assert row["concurrency"] == 3, "that of the call wins over the plan"
    assert (run.summary()["itemCount"], run.summary()["successCount"]) == (8, 8)
    assert {item.model for item in run.items()} == {"scripted/ok", "scripted/echo"}
    assert list(run.items(status="fail")) == []
    with pytest.raises(UsageError, match="there is no status failed\nThere are: queued, running, success"):
        run.items(status="failed")
    assert len(list(run.items(search="first"))) == 4
    with library.open_store() as store:
        assert [each.id for each in store.runs()] == ["nightly"]
        with pytest.raises(NotFound):
            store.run("no-such-run")
        assert store.run("nightly").summary() == run.summary() | {
            "durationSec": store.run("nightly").summary()["durationSec"]
        }


def test_an_item_has_attributes_and_a_session_with_transcript_scores_and_cost(library):
    item = library.Item(prompt="Say OK", model="scripted/ok", details={"expect": {"contains": "OK"}})

    run = library.run(items=[item])

    (done,) = run.items()
    assert (done.id, done.status, done.reason, done.cost_usd) == (item.id, "success", "completed", 0.0)
    assert [message.role for message in done.session.messages] == ["user", "assistant"]
    assert "OK" in done.session.answer
    assert done.session.diff == ""
    (score,) = done.session.scores
    assert (score.value, score.evaluator) == (1.0, "expect.contains")
    assert run.session(done.session.id).answer == done.session.answer
    assert [attempt.id for attempt in done.attempts] == [done.session.id]
    with pytest.raises(AttributeError):
        getattr(done, "no_such_column")  # noqa: B009


# White box: a run of more items than a page has would take a minute.
def test_items_are_read_page_by_page(library, monkeypatch):
    monkeypatch.setattr("proctor.api.handles.PAGE", 2)
    items = [library.Item(prompt=f"number {k}", model="scripted/ok") for k in range(5)]

    run = library.run(items=items)

    assert [item.prompt for item in run.items()] == [item.prompt for item in items]


def test_a_function_stands_as_agent_and_what_it_asks_is_recorded_and_what_it_answers_checked(library):
    items = [
        library.Item(prompt="hello"),
        library.Item(prompt="hello", details={"expect": {"contains": "BYE"}}),
    ]
    run = library.run(items=items, agent=shouting)

    item, checked = run.items()
    assert item.agent == f"{__name__}:shouting"
    assert item.session.answer == "HELLO!"
    assert (item.session.model_calls, item.runner) == (1, "function")
    assert (checked.status, checked.reason) == ("fail", "checks_failed")
    again = library.run(items=items, agent=shouting)
    assert [each.id for each in again.items()] == [item.id, checked.id]


def test_a_synchronous_function_answers_with_data_and_a_failing_one_costs_its_item_only(library):
    items = [library.Item(prompt="abc", agent=agent) for agent in (measured, broken, leaving)]

    run = library.run(items=items)

    good, bad, left = run.items()
    assert (run.status, good.session.answer) == ("completed", '{"length": 3}')
    assert [(each.status, each.reason) for each in (bad, left)] == [("fail", "agent_failed")] * 2
    assert "RuntimeError: no idea about abc" in bad.error
    assert left.error == "the function exited: 0"


async def careless(prompt, context):
    """An agent that goes on after a call that failed."""
    try:
        await context.ask(prompt, model="scripted/fail")
    except proctor.ProctorError as error:
        return f"gave up: {error}"


def test_an_evaluation_shows_its_progress_where_it_is_asked_for_and_its_report_has_scores(
    library, capsys, tmp_path
):
    run = library.run(items=[library.Item(prompt=str(k), model="scripted/ok") for k in range(3)])

    quiet = library.evaluate(run, [constant_score])
    assert capsys.readouterr().err == ""
    shown = library.evaluate(run, [constant_score], progress=True)

    assert quiet.status == shown.status == "completed"
    assert "3/3" in capsys.readouterr().err
    text = shown.report(tmp_path / "evaluation.md").read_text()
    assert "constant_score" in text and "Success rate" not in text, "scores are no successes"


def constant_score(evidence):
    """An evaluator that likes everything."""
    return True


def test_a_failed_call_of_an_agent_function_is_recorded_too(library):
    item = next(library.run(items=[library.Item(prompt="hello")], agent=careless).items())

    calls = [event for event in item.session.transcript if isinstance(event, library.ModelCall)]
    assert item.session.answer.startswith("gave up: ")
    assert [(call.model, call.status != "ok", call.error != "") for call in calls] == [
        ("scripted/fail", True, True)
    ]


def test_an_item_takes_functions_as_agent_and_as_model(library):
    def tasks():
        for agent in (shouting, Polite()):
            yield library.Item(prompt="hello", agent=agent)
        yield library.Item(prompt="hello", model=constant)

    run = library.run(items=tasks)
    (same,) = library.run(items=[library.Item(prompt="x")], model=constant, budget_usd=0.01).items()

    named, answer = f"python/{__name__}:constant", "forty-two to 1 message"
    assert [(item.agent, item.model, item.session.answer) for item in run.items()] == [
        (f"{__name__}:shouting", "", "HELLO!"),
        (f"{__name__}:Polite", "", "hello, please"),
        ("", named, answer),
    ]
    assert (same.model, same.session.answer, same.cost_usd) == (named, answer, 0.0)


def test_a_built_in_evaluator_is_named_without_prefix_and_asks_a_function(library, plan):
    questions: list[proctor.Request] = []

    def judge(request):
        questions.append(request)
        return json.dumps({"reasoning": "It helps.", "score": "Very Helpful"})

    run = library.run(items=[library.Item(prompt="hello", model="scripted/ok")])

    evaluation = library.evaluate(run, evaluators=["Helpfulness"], judge=judge)

    scores = next(run.items()).session.scores
    assert evaluation.status == "completed" and len(questions) == 1
    assert [(each.evaluator, each.label) for each in scores] == [("Builtin.Helpfulness", "Very Helpful")]


def test_an_evaluator_of_ones_own_may_have_the_name_of_a_built_in_one(library, tmp_path):
    (tmp_path / "evaluators").mkdir()
    (tmp_path / "own.py").write_text("def judge(event): return {'value': 1.0, 'label': 'mine'}\n")
    definition = {
        "evaluatorName": "Helpfulness",
        "level": "SESSION",
        "evaluatorConfig": {"codeBased": {"function": "own:judge"}},
    }
    (tmp_path / "evaluators" / "Helpfulness.json").write_text(json.dumps(definition))
    run = library.run(items=[library.Item(prompt="hello", model="scripted/ok")])

    library.evaluate(run, evaluators=["Helpfulness"])

    scores = next(run.items()).session.scores
    assert [(each.evaluator, each.label) for each in scores] == [("Helpfulness", "mine")]


def test_a_model_function_that_returns_nothing_is_an_error(library):
    (item,) = library.run(items=[library.Item(prompt="x")], model=silent).items()

    assert (item.status, item.reason) == ("error", "model_failed")
    assert "silent: the function returned None; return the text of the answer" in item.error


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"timeoutSec": "abc"}, "`timeoutSec` of item 2 should be a positive number of seconds, not 'abc'"),
        ({"timeoutSec": 0}, "a positive number of seconds, not 0"),
        ({"retries": 1.5}, "`retries` of item 2 should be a whole number from 0 on, not 1.5"),
        ({"retryOn": ["crash"]}, "`retryOn` of item 2 should be a list of error, timeout and fail"),
        ({"budget": True}, "`budget` of item 2 should be a positive number of US dollars, not True"),
        ({"timeoutSec": True}, "`timeoutSec` of item 2"),
        ({"timeoutSec": float("inf")}, "`timeoutSec` of item 2"),
        ({"retries": -1}, "`retries` of item 2"),
        ({"retries": 1.0}, "`retries` of item 2"),
        ({"retryOn": "error"}, "`retryOn` of item 2"),
        ({"budget": 0}, "`budget` of item 2"),
    ],
)
def test_a_wrong_setting_of_an_item_is_reported_before_the_start(library, settings, words):
    limits = {"timeoutSec": 9.5, "retries": 0, "retryOn": ("error", "fail"), "budget": 0.01}
    good = library.Item(prompt="x", model="scripted/ok", settings=limits)
    wrong = library.Item(prompt="y", model="scripted/ok", settings=settings)

    with pytest.raises(UsageError, match=re.escape(words)):
        library.run(items=[good, wrong])
    assert not proctor.ProctorStore().runs()


def test_a_run_inside_an_event_loop_has_a_thread_and_run_async_is_awaited(library):
    async def notebook():
        inside = library.run(items=[library.Item(prompt="a", model="scripted/ok")])
        awaited = await library.run_async(items=[library.Item(prompt="b", model="scripted/ok")])
        return inside, awaited

    inside, awaited = asyncio.run(notebook())

    assert (inside.status, awaited.status) == ("completed", "completed")


def test_failed_items_are_retried_on_resume(library, tmp_path):
    flag = tmp_path / "flag"

    def flaky(prompt):
        if not flag.exists():
            raise RuntimeError("not yet")
        return "done"

    run = library.run(items=[library.Item(prompt="x")], agent=flaky)
    assert next(run.items()).status == "fail"
    flag.write_text("")

    again = run.resume(retry="failed")

    assert (again.id, next(again.items()).status) == (run.id, "success")
    assert next(again.items()).session.answer == "done"
    assert len(next(again.items()).attempts) == 2


def test_a_finished_run_has_data_frames_reports_and_comparisons(library, plan, tmp_path):
    run = library.run(plan)

    items = run.to_pandas("items")
    assert len(items) == 8
    assert {"id", "status", "model", "costUsd"} <= set(items.columns)
    assert set(run.to_pandas("model_calls")["model"]) == {"scripted/ok", "scripted/echo"}
    with pytest.raises(UsageError, match="there is no table nonsense"):
        run.to_pandas("nonsense")

    assert run.report(tmp_path / "out" / "report.html").read_text().lstrip().startswith("<!doctype html>")
    assert run.report(tmp_path / "report.md").read_text().startswith("# ")
    with pytest.raises(UsageError, match=r"no format \.docx\nName a file that ends in \.html"):
        run.report(tmp_path / "report.docx")
    assert not (tmp_path / "report.docx").exists()

    result = library.compare(run, by="model", gates=["success>=-0.5"])
    (success,) = [row for row in result.table() if row["metric"] == "success"]
    assert (success["baseline"], success["candidate"]) == ("scripted/ok", "scripted/echo")
    assert result.verdict == "inconclusive", "two tasks are too few to rule out a loss"


def test_public_names_are_listed_once_each_and_load(library):
    assert set(proctor.__all__) <= set(dir(proctor))
    assert sorted(proctor.__all__) == proctor.__all__
    for name in proctor.__all__:
        assert getattr(proctor, name) is not None
    assert {name for names in proctor._HOMES.values() for name in names} == set(proctor.__all__) - {
        "__version__"
    }


def test_the_library_imports_no_command_line_no_web_app_and_no_numpy_before_it_needs_them(tmp_path):
    program = (
        "import sys, proctor\n"
        "assert not [name for name in sys.modules if name.startswith('proctor.')]\n"
        "proctor.run, proctor.Run, proctor.BatchConfig, proctor.compare, proctor.open_store\n"
        "proctor.rank, proctor.power\n"
        "later = ('proctor.cli', 'proctor.web', 'typer', 'numpy', 'scipy')\n"
        "print([name for name in sys.modules if name.startswith(later)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )

    assert done.stdout.strip() == "[]"


def test_type_checkers_see_the_names_and_refuse_a_misspelled_one(tmp_path):
    sample = tmp_path / "sample.py"
    sample.write_text(
        "import proctor\n"
        "run: proctor.Run = proctor.run('plan.yaml', concurrency=2)\n"
        "print(run.summary(), run.to_pandas('items'))\n"
        "config = proctor.BatchConfig()\n"
        "def answer(request: object) -> str: return 'yes'\n"
        "def work(prompt: str, context: proctor.AgentContext) -> str: return prompt.upper()\n"
        "item = proctor.Item(prompt='x', agent=work, model=answer)\n"
        "items = [item, proctor.Item(prompt='x', agent='claude', model='openai/m', repeat=2)]\n"
        "name: str = item.agent + item.model\n"
        "proctor.Item(prompt='x', agent=3)\n"
        "proctor.rum('plan.yaml')\n"
    )
    # In the folder and with the cache of `make check`: without it, all of Proctor is checked again.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(sample)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(proctor.__file__).parents[2],
    )

    errors = [line.rpartition("error: ")[2] for line in done.stdout.splitlines() if "sample.py" in line]
    assert len(errors) == 2
    assert errors[0].startswith('Argument "agent" to "Item" has incompatible type "int"')
    assert errors[1].startswith('Module has no attribute "rum"')


def test_type_checkers_see_every_field_of_an_item():
    tree = ast.parse(Path(inspect.getfile(proctor.Item)).read_text())
    (declared,) = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    parameters = list(inspect.signature(proctor.Item).parameters.values())

    assert [each.arg for each in declared.args.kwonlyargs] == [each.name for each in parameters]
    assert [default is None for default in declared.args.kw_defaults] == [
        each.default is inspect.Parameter.empty for each in parameters
    ]


def one(prompt="x", **more):
    return [proctor.Item(prompt=prompt, **more)]


OK = one(model="scripted/ok")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "nothing to run"),
        ({"items": []}, "nothing to run"),
        ({"plan": "plan.yaml", "items": []}, "either a plan or items"),
        ({"plan": "plan.yaml", "timeout_secs": 3}, "there is no setting `timeout_secs`"),
        ({"items": one(model="openai/gpt-4o")}, "needs a key"),
        ({"items": ["Say OK"]}, r"item 1 is 'Say OK'\nGive proctor.Item"),
        ({"plan": len}, "is not a plan\nGive the path of a plan file, or items="),
        ({"items": one()}, "item 1 has no model"),
        ({"items": one(3)}, "the prompt of item 1 should be text, not 3"),
        ({"items": one(), "seed": 1, "hue": "red"}, "items have no override seed, hue"),
        ({"items": one(), "engine": "dask"}, "should be `local` or `ray`, not 'dask'"),
        ({"items": one(), "workers": 0}, "workers should be at least 1, not 0"),
        ({"items": one(), "workers": 1.5}, "workers should be at least 1, not 1.5"),
        ({"items": one(), "agent": "no-such-agent"}, "there is no agent `no-such-agent`"),
        ({"items": one("\ud800", model="scripted/ok")}, "item 1 cannot be stored"),
        ({"items": one(model="scripted/ok", details={"a": {1}})}, "cannot be stored"),
        (
            {"items": one(model="scripted/ok", details={"expect": {"is": "x"}})},
            "`is` is not a valid expectation",
        ),
        ({"items": OK, "concurrency": 0}, "at least 1, not 0"),
        ({"items": OK, "budget_usd": -1}, "budget .* not -1"),
        ({"items": OK, "run_id": "../up"}, "not a valid run ID"),
        ({"plan": "plan.yaml", "concurrency": 0}, "at least 1, not the number 0"),
        ({"plan": "plan.yaml", "budget_usd": 0}, "more than 0, not the number 0"),
        ({"plan": "plan.yaml", "run_id": "../up"}, "not a valid run ID"),
        ({"plan": "plan.yaml", "evaluators": ["no-such-evaluator"]}, "there is no evaluator"),
        ({"plan": "plan.yaml", "evaluators": [len, len]}, "two evaluators are called builtins:len"),
        ({"plan": "plan.yaml", "evaluators": [3]}, "is not a valid evaluator\nGive a name or a function"),
    ],
)
def test_a_call_that_cannot_work_is_refused_before_anything_starts(library, plan, arguments, message):
    with pytest.raises(UsageError, match=message):
        library.run(**arguments)

    assert library.open_store().runs() == []


def test_equal_items_are_repeats_of_each_other_as_in_a_plan(library):
    item = library.Item(prompt="x", model="scripted/ok")

    run = library.run(items=[item, item, library.Item(prompt="y", model="scripted/ok"), item])

    repeats = [(each.prompt, each.repeat) for each in run.items()]
    assert repeats == [("x", 1), ("x", 2), ("y", 1), ("x", 3)]


def test_a_run_is_resumed_by_its_name_unless_a_change_is_wrong(library, plan):
    run = library.run(plan)
    before = list(run.rows("runs"))
    for changes, message in (
        ({"retry": "everything"}, "retry should be one of 'errors', 'failed', 'all', not 'everything'"),
        ({"concurrency": 0}, "at least 1, not 0"),
        ({"budget_usd": -1}, "not -1"),
        ({"budget_usd": float("nan")}, "not nan"),
        ({"engine": "cloud"}, "engine"),
    ):
        with pytest.raises(UsageError, match=message):
            library.resume(run, **changes)
        assert list(run.rows("runs")) == before

    assert library.resume("nightly").id == library.resume(run).id == "nightly"
    (again,) = run.resume().rows("runs")
    assert (again["status"], again["finishedAt"]) == ("completed", before[0]["finishedAt"]), (
        "its end stays where it was"
    )


def test_a_run_is_evaluated_by_its_name_and_an_unknown_one_is_refused(library, plan):
    library.run(plan)

    evaluation = library.evaluate("nightly", [lambda evidence: evidence.answer != ""])

    assert evaluation.summary()["successCount"] == 8
    runs = len(library.open_store().runs())
    with pytest.raises(UsageError, match="engine"):
        library.evaluate("nightly", [shouting], engine="cloud")
    for unknown in ("no-such-run", ["no-such-session"]):
        with pytest.raises(NotFound):
            library.evaluate(unknown, [lambda _: True])
    assert len(library.open_store().runs()) == runs


def test_synchronous_evaluators_run_at_the_same_time(library):
    both = threading.Barrier(2, timeout=TIME_LIMIT_SECONDS)

    def meets_another(evidence):
        both.wait()
        return True

    items = [library.Item(prompt=prompt, model="scripted/ok") for prompt in ("x", "y")]
    run = library.run(items=items, evaluators=[meets_another])

    assert [score.value for item in run.items() for score in item.session.scores] == [1.0, 1.0]


def test_the_diff_of_a_session_outlives_its_branch(library, repository, tmp_path):
    command = "\"echo 'total = 2' > shop.py\""
    (tmp_path / "change.yaml").write_text(
        f"matrix: [{{repo: {repository}, prompt: fix, agent: command, command: {command}}}]"
    )
    (item,) = library.run(tmp_path / "change.yaml").items()
    diff = item.session.diff
    assert "-total = 1 - 1\n+total = 2\n" in diff

    branch = item.session.branch
    subprocess.run(["git", "-C", str(repository), "branch", "-D", branch], check=True, capture_output=True)

    assert item.session.diff == diff


def test_dialogues_of_a_config_are_run_summarized_and_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talking.yaml").write_text("rules: [{reply: [It began slowly., It began at home.]}]")
    # Without a seed the replies may happen to be a loop, which ends a dialogue as failed.
    config = proctor.BatchConfig(
        clients=["consistentMI"],
        therapists=["eliza"],
        output_dir="out",
        max_turns=4,
        num_runs=1,
        seed=1,
        model_name="scripted/talking",
        home=str(tmp_path / "home"),
    )

    (result,) = proctor.run_batch(config)

    assert result["status"] == "success" and result["num_turns"] <= 4
    (tmp_path / "summary").mkdir()
    (tmp_path / "summary" / "batch_summary.json").write_text('{"own": 1, "total_runs": -1}')
    summary = proctor.aggregate_results([result], tmp_path / "summary")
    assert summary["own"] == 1
    assert json.loads((tmp_path / "summary/batch_summary.json").read_text()) == summary
    assert summary == proctor.aggregate_results([result], tmp_path / "new" / "folder") | {"own": 1}
    (again,) = proctor.run_batch(replace(config, resume=True))
    assert again == result


def test_problems_of_a_call_are_reported_together_and_name_what_was_meant(library, tmp_path):
    bad = [proctor.Item(prompt=3), "text", proctor.Item(prompt="q", settings={"retries": -1})]
    with pytest.raises(UsageError) as several:
        proctor.run(items=bad, model="scripted/echo")
    assert [f"item {number}" in str(several.value) for number in (1, 2, 3)] == [True] * 3

    plan = tmp_path / "typo.yaml"
    plan.write_text("matrix:\n  - prompt: hi\n    model: scripted/echo\n")
    with pytest.raises(UsageError) as misspelled:
        proctor.run(plan, timeout_secs=3, retris=1)
    assert "`timeout_secs`" in str(misspelled.value)
    assert "Did you mean `timeout_sec` and `retries`?" in str(misspelled.value)

    with pytest.raises(UsageError, match="a fixture of pytest, has to be called first"):
        proctor.run(items=[proctor.Item(prompt="q")], model="scripted/echo", store=lambda: None)


def test_a_run_in_which_nothing_succeeded_says_so(library):
    def broken(prompt: str) -> str:
        raise ValueError(prompt)

    run = proctor.run(items=[proctor.Item(prompt="a"), proctor.Item(prompt="b")], agent=broken)

    assert run.status == "completed"
    assert repr(run).endswith("completed: 0 of 2 succeeded>")
    assert any("none of the 2 items succeeded" in notice.text for notice in run.notices)


def test_imported_sessions_are_found_evaluated_and_asked_again(library):
    examples = Path(__file__).parents[2] / "examples"
    imported = library.import_traces(examples / "evaluation" / "sessions.jsonl")

    with library.open_store() as store:
        asked = store.sessions(service="travel.DEFAULT", text="oslo", until="2026-01-02")
    scored = library.evaluate(service="travel.DEFAULT", evaluators=[lambda evidence: len(evidence.messages)])
    again = library.run(items=[proctor.Item(prompt=one.input) for one in asked], model=lambda _: "yes")

    assert (len(imported), {one.external_id for one in asked}) == (6, {"oslo-1", "oslo-2"})
    assert scored.summary()["itemCount"] == 6
    assert {item.prompt for item in again.items()} == {one.input for one in asked} != {""}
    with pytest.raises(UsageError, match="sessions have no filter 'servce'"):
        store.sessions(servce="shop")
    with pytest.raises(UsageError, match="no session matches"):
        library.evaluate(service="nobody", evaluators=["Helpfulness"])
    with pytest.raises(UsageError, match="either sessions or filters"):
        library.evaluate(evaluators=["Helpfulness"])
