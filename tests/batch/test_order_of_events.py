"""The order of events of a run: what is checked, created, executed and said, with all of it replaced."""

from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from work_items import NOW, item, work

from proctor.batch import lifecycle
from proctor.batch.create import Extension
from proctor.batch.engines.messages import AttemptEnd
from proctor.batch.engines.worker import Worker
from proctor.errors import UsageError
from proctor.job import BatchChanges, BatchEnd, check_limits
from proctor.runner import Outcome
from proctor.store import RetrySelection


class Plan:
    """A plan that says what it is asked."""

    stop_rule, workers, run_id, derived_fields = None, None, "", frozenset({"d"})

    def __init__(self, **members):
        vars(self).update(members)

    def model_options(self):
        return SimpleNamespace(folders=["folder"])

    def check(self, models, ctx):
        return ["remark of the plan"]

    def for_new_run(self, run_id):
        return Plan(**vars(self), made_for=run_id)

    def for_run(self, batch, ctx):
        return self

    def columns(self):
        return {"seed": 7}

    def items(self):
        return ["item"]

    def resources(self):
        return ["resource"]

    def is_unchanged(self, batch):
        return vars(self).get("unchanged", False)


@pytest.fixture
def run(monkeypatch):
    """A run whose parts are replaced; `calls` has what was called."""
    calls, notes = [], []

    def called(name, result=None):
        def call(*given, **named):
            calls.append((name, given, named))
            return result

        return call

    async def execute(execution, **named):
        given = (execution.job, execution.plan, execution.run_id, execution.ctx, execution.models)
        named |= {"engine": execution.engine, "workers": execution.workers, "observer": execution.observer}
        calls.append(("execute", given, named))
        return "result"

    @asynccontextmanager
    async def connected(engine, workers, ctx, models):
        calls.append(("connect", (engine, workers), {}))
        yield engine or "connected"

    monkeypatch.setattr(lifecycle, "create", called("create"))
    monkeypatch.setattr(lifecycle, "extend", called("extend", Extension(added=1, reasons={"model": 1})))
    monkeypatch.setattr(lifecycle, "clear_leftovers", called("clear"))
    monkeypatch.setattr(lifecycle, "_check_rule", called("rule"))
    monkeypatch.setattr(lifecycle._Execution, "run", execute)
    monkeypatch.setattr(lifecycle, "_connected", connected)
    batch = {"runId": "run", "finishedAt": "2026-01-02T00:00:00.000Z", "concurrency": 2}
    read = SimpleNamespace(batch=lambda *_: batch, count_items=lambda *_: run.count)
    store = SimpleNamespace(
        read=read,
        resume_batch=called("resume", ["session"]),
        add_resources=called("resources"),
        change_batch=called("change"),
    )
    ctx = SimpleNamespace(
        store=store,
        owner="me",
        home="home",
        now=lambda: NOW,
        note=notes.append,
        info=notes.append,
        note_foreign_results=called("foreign"),
        models=called("models", "models"),
        settings=SimpleNamespace(environment="environment"),
        settings_for=lambda folders: SimpleNamespace(remarks=("remark of the settings",)),
    )
    job = SimpleNamespace(
        name="coding",
        noun="item",
        retries_errors=False,
        open=lambda plan, ctx: run.opened,
        new_run_id=lambda plan, ctx: "new-run",
        check_resume=called("check"),
        restore=lambda batch, ctx: run.restored,
    )
    run = SimpleNamespace(
        calls=calls, notes=notes, ctx=ctx, job=job, opened="", count=5, restored=Plan(name="restored")
    )
    run.of = lambda name: [(given, named) for called, given, named in calls if called == name]
    return run


@pytest.mark.parametrize(
    ("requested", "planned", "run_id"),
    [("", "", "new-run"), ("mine", "planned", "mine"), ("", "planned", "planned")],
)
async def test_a_run_is_created_once_its_engine_is_connected(run, requested, planned, run_id):
    plan = Plan(run_id=planned)
    result = await lifecycle.start(run.job, plan, run.ctx, run_id=requested, workers=3)
    assert result == "result" and run.notes == ["remark of the settings", "remark of the plan"]
    assert [name for name, _, _ in run.calls] == ["models", "connect", "create", "execute"]
    ((given, named),) = run.of("create")
    assert given == (run.ctx.store, "coding", {"seed": 7}, ["item"])
    assert (named["run_id"], named["owner"], named["now"]) == (run_id, "me", NOW)
    assert (named["resources"], named["version"]) == (["resource"], lifecycle.__version__)
    ((given, named),) = run.of("execute")
    assert given[1].made_for == run_id and given[2:] == (run_id, run.ctx, "models")
    assert named == {
        "resumed": False,
        "engine": "connected",
        "workers": 3,
        "observer": lifecycle.SILENT,
    }


async def test_a_name_that_cannot_be_one_is_refused_before_anything_is_connected(run):
    with pytest.raises(UsageError):
        await lifecycle.start(run.job, Plan(), run.ctx, run_id="../x")
    assert run.of("connect") == []


async def test_a_plan_with_an_open_run_goes_on_with_it(run, monkeypatch):
    run.opened = "open-run"
    resumed = []

    async def resume(*given, **named):
        resumed.append((given, named))
        return "resumed"

    monkeypatch.setattr(lifecycle, "resume", resume)
    assert await lifecycle.start(run.job, Plan(), run.ctx, engine="e", workers=2) == "resumed"
    options = {"engine": "e", "workers": 2, "observer": lifecycle.SILENT}
    assert resumed == [((run.job, "open-run", run.ctx), options)] and run.of("create") == []


async def test_a_run_is_resumed_as_it_was_started(run):
    await lifecycle.resume(run.job, "run", run.ctx, changes=BatchChanges(concurrency=4))
    assert [name for name, _, _ in run.calls] == [
        *("check", "foreign", "models", "rule", "connect"),
        *("resume", "clear", "resources", "change", "execute"),
    ]
    ((given, _),) = run.of("resume")
    assert given == ("run", "me", RetrySelection(), NOW)
    assert run.of("clear") == [((["session"], "home", "environment", run.ctx.note), {})]
    assert run.of("change")[0][0] == ("run", {"concurrency": 4})
    ((given, named),) = run.of("execute")
    assert given == (run.job, run.restored, "run", run.ctx, "models")
    assert (named["resumed"], named["engine"], named["stops_early"]) == (True, "connected", True)
    assert named["finished_at"] == datetime(2026, 1, 2, tzinfo=UTC)
    assert run.of("foreign") == [((["run"],), {})] and run.of("extend") == []


@pytest.mark.parametrize(("count", "is_said"), [(99_999, False), (100_000, True)])
async def test_that_signatures_of_many_results_are_checked_is_said(run, count, is_said):
    run.count = count
    await lifecycle.resume(run.job, "run", run.ctx)
    assert ("checking the signatures of its results" in run.notes) is is_said


@pytest.mark.parametrize("unchanged", [False, True])
async def test_a_run_is_extended_to_a_changed_plan(run, unchanged):
    plan = Plan(unchanged=unchanged)
    await lifecycle.resume(run.job, "run", run.ctx, plan=plan, retry=RetrySelection(failures=True))
    extended = ((run.ctx.store, "run", {"seed": 7}, ["item"]), {"derived_fields": frozenset({"d"})})
    assert run.of("extend") == ([] if unchanged else [extended])
    said = "1 new item since the last run (new because of 1 item: model)"
    assert (said in run.notes) is not unchanged
    assert run.of("rule")[0][0] == (run.ctx.store.read, "run", plan, RetrySelection(failures=True))
    assert run.of("execute")[0][0][1] is plan


# --- Its execution and its summary ---


@pytest.mark.parametrize(
    ("finished", "resumed", "decided", "executed", "ended_at"),
    [
        (4, True, None, True, None),
        (5, True, None, False, "earlier"),
        (5, False, None, True, "earlier"),
        (4, True, True, False, "earlier"),
        (4, True, False, True, None),
    ],
)
async def test_a_run_without_items_left_keeps_its_end(
    monkeypatch, finished, resumed, decided, executed, ended_at
):
    calls = []

    async def run_items(execution, files, stopping, finished_at):
        calls.append((stopping, finished_at))
        return BatchEnd(status="completed", reason="")

    monkeypatch.setattr(lifecycle._Execution, "_run_items", run_items)
    monitor = None if decided is None else SimpleNamespace(is_decided=decided)
    monkeypatch.setattr(lifecycle, "_stopping", lambda run_id, ctx: monitor)
    monkeypatch.setattr(lifecycle, "summarize", lambda *_: {"runId": "run", "status": "completed"})
    begun = []
    files = SimpleNamespace(
        begin=lambda *, resumed: begun.append(resumed),
        finish=lambda end: {"status": "own", "more": end.status},
    )
    read = SimpleNamespace(totals=lambda run_id: {"items": 5, "finished": finished}, batch=lambda *_: {})
    ctx = SimpleNamespace(store=SimpleNamespace(read=read), now=lambda: NOW, info=None)
    job = SimpleNamespace(files=lambda *_: files)

    async def execute(**more):
        execution = lifecycle._Execution(job, None, "run", ctx, None, None, None, None)
        return await execution.run(resumed=resumed, **more)

    result = await execute(finished_at="earlier")
    assert calls == [(monitor, ended_at)] and begun == [resumed]
    assert (result.run_id, result.executed) == ("run", executed)
    assert result.summary == {"runId": "run", "status": "own", "more": "completed"}
    await execute(finished_at="earlier", stops_early=False)
    assert calls[1] == (None, "earlier" if finished == 5 else None)
    files.begin = lambda *, resumed: BatchEnd(status="halted", reason="by files")
    assert (await execute()).end.reason == "by files" and len(calls) == 2


def test_what_changed_in_a_batch_is_said():
    assert Extension().sentences("item") == []
    assert Extension(added=2, reasons={"model": 1, "prompt": 1}).sentences("item") == [
        "2 new items since the last run (new because of 1 item: model; 1 item: prompt)"
    ]
    gone = "no longer in the plan: {} dropped from the queue, {} with results kept"
    assert Extension(dropped=1).sentences("item") == [gone.format(1, 0)]
    assert Extension(retained=2).sentences("item") == [gone.format(0, 2)]


# --- A worker ---


class Budget:
    """Opens reservations, or says what is missing."""

    short_of = "store_budget"

    def __init__(self, reservation):
        self.reservation, self.opened = reservation, []

    async def open(self, *given, **named):
        self.opened.append((given, named))
        return self.reservation


def worker_of(budget, retry=None, monkeypatch=None, outcome=None):
    made = Worker.__new__(Worker)
    made._budget, made._support, made._rng = budget, "support", "rng"
    made._new_session_id = lambda: "s1"
    made._spec = SimpleNamespace(retry=SimpleNamespace(delay=retry))
    written = []

    class Attempt:
        def __init__(self, support, work, reservation):
            written.append((support, work.attempts, reservation))

        async def run(self):
            return outcome

        def write_item(self, outcome, *, waits):
            written.append((outcome.reason, waits))

        def finished(self, outcome):
            return f"finished {outcome.reason}"

    if monkeypatch:
        monkeypatch.setattr("proctor.batch.engines.worker.Attempt", Attempt)
    return made, written


@pytest.mark.parametrize(
    ("outcome", "settings", "delay", "end", "waits"),
    [
        (Outcome(), {}, 9.0, (None, "", True), False),
        (Outcome(status="error", reason="x"), {}, None, (None, "", True), False),
        (Outcome(status="error", reason="x"), {}, 2.5, (2.5, "", False), True),
        (Outcome(status="error", reason="x"), {}, 0.0, (0.0, "", False), True),
        (Outcome(status="error", reason="cost_limit"), {}, None, (None, "", True), False),
        (
            Outcome(status="error", reason="cost_limit"),
            {"haltAtLimit": True},
            None,
            (None, "cost_limit", False),
            True,
        ),
        (Outcome(status="error", reason="halted"), {}, None, (None, "store_budget", False), True),
        (Outcome(status="error", reason="x"), {"haltAtLimit": True}, None, (None, "", True), False),
    ],
)
async def test_the_end_of_an_attempt_is_final_or_the_item_waits(
    monkeypatch, outcome, settings, delay, end, waits
):
    asked = []
    budget = Budget("reservation")
    worker, written = worker_of(budget, lambda **given: asked.append(given) or delay, monkeypatch, outcome)
    one = work(item=item(settings=settings), attempts=2, tries=1, checkpoint="here")
    ended = await worker.run(one)
    assert (ended.delay_seconds, ended.halted_by, ended.finished is not None) == end
    assert written == [("support", 3, "reservation"), (outcome.reason, waits)]
    assert (one.attempts, one.tries, one.checkpoint) == (3, 2, None)
    usual = {"tries": 2, "retries": 0, "retry_on": ("error", "timeout"), "rng": "rng"}
    about = {"status": outcome.status, "reason": outcome.reason}
    assert asked == ([] if outcome.status == "success" else [usual | about])
    named = {"kind": "m", "cap_usd": None, "asks_first": True}
    assert budget.opened == [(("s1", "a"), named)]


async def test_an_attempt_without_money_does_not_begin():
    budget = Budget(None)
    worker, written = worker_of(budget)
    one = work(item=item(agent="g", model="", settings={"budget": 2.0}))
    assert await worker.run(one) == AttemptEnd(work=one, halted_by="store_budget")
    assert budget.opened[0][1] == {"kind": "g", "cap_usd": 2.0, "asks_first": False}
    assert (one.attempts, one.tries, written) == (0, 0, [])


@pytest.mark.parametrize(
    ("settings", "spent", "begins"),
    [
        ({"budget": 1.0, "haltAtLimit": True}, 1.0, False),
        ({"budget": 1.0, "haltAtLimit": True}, 2.0, False),
        ({"budget": 1.0, "haltAtLimit": True}, 0.5, True),
        ({"budget": 1.0, "haltAtLimit": False}, 1.0, True),
    ],
)
async def test_an_item_that_has_spent_everything_halts_the_batch(settings, spent, begins):
    budget = Budget(None)
    worker, _ = worker_of(budget)
    one = work(item=item(settings=settings), cost_usd=spent)
    ended = await worker.run(one)
    assert (ended.halted_by, bool(budget.opened)) == ("store_budget" if begins else "cost_limit", begins)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({}, ""),
        ({"concurrency": 1, "budget_usd": 0}, ""),
        ({"budget_usd": 0.5}, ""),
        ({"concurrency": 0}, "the concurrency should be at least 1, not 0"),
        ({"concurrency": 1.5}, "the concurrency should be at least 1, not 1.5"),
        ({"budget_usd": -0.1}, "the budget should be a number of dollars, not -0.1"),
        ({"budget_usd": float("inf")}, "the budget should be a number of dollars, not inf"),
        ({"budget_usd": float("nan")}, "the budget should be a number of dollars, not nan"),
        ({"budget_usd": "1"}, "the budget should be a number of dollars, not 1"),
    ],
)
def test_limits_that_cannot_be_enforced_are_refused(limits, problem):
    if problem:
        with pytest.raises(UsageError) as raised:
            check_limits(**limits)
        assert str(raised.value) == problem
    else:
        check_limits(**limits)
