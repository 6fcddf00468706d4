"""Parts of the lifecycle of a run on their own: workers, engines, early stops, and the end of a run."""

import os
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from proctor.batch import lifecycle
from proctor.batch.queue import WorkItem
from proctor.errors import UsageError
from proctor.stats import stopping
from proctor.store import RetrySelection

NOW = datetime(2026, 1, 2, tzinfo=UTC)


class Engine:
    """In place of worker processes: how many there are."""

    made: "list[Engine]"

    def __init__(self, workers, *, note, info):
        self.workers, self.launched = workers, False
        Engine.made.append(self)

    def launch(self):
        self.launched = True


@pytest.fixture
def run(monkeypatch):
    """A run of which parts can be changed: its context, models and plan."""
    Engine.made = []
    import proctor.batch.engines.processes as processes

    monkeypatch.setattr(processes, "ProcessEngine", Engine)
    monkeypatch.setattr(processes, "can_be_sent", lambda functions: "local" not in functions)
    asked = []

    def automatic_workers(**given):
        asked.append(given)
        return run.automatic

    monkeypatch.setattr(lifecycle, "automatic_workers", automatic_workers)
    notes = []
    read = SimpleNamespace(
        batch=lambda run_id, now: {"concurrency": run.concurrency},
        totals=lambda run_id: {"items": 50, "finished": 8},
    )
    run = SimpleNamespace(
        automatic=1,
        asked=asked,
        notes=notes,
        concurrency=9,
        plan=SimpleNamespace(workers=None),
        models=SimpleNamespace(single_process_reason="", lowest_limit=None),
        ctx=SimpleNamespace(
            store=SimpleNamespace(read=read),
            now=lambda: NOW,
            functions=(),
            people=None,
            note=notes.append,
            info=notes.append,
            engine=SimpleNamespace(name="local", ray_address="auto"),
        ),
    )
    run.engine = lambda workers=None, people=None: lifecycle._process_engine(
        workers, run.plan, "r", run.ctx, run.models, people
    )
    return run


@pytest.mark.parametrize(
    ("requested", "planned", "automatic", "count"),
    [
        (3, 4, 1, 3),
        (None, 4, 1, 4),
        (None, None, 5, 5),
        (None, None, 1, 1),
        (1, 4, 1, 1),
        (None, 1, 5, 1),
        (20, None, 1, 9),
    ],
)
def test_how_many_processes_execute_a_run(run, requested, planned, automatic, count):
    run.plan.workers, run.automatic = planned, automatic
    engine = run.engine(requested)
    if count == 1:
        assert engine is None and Engine.made == []
    else:
        assert (engine.workers, engine.launched) == (count, True)
    assert run.notes == []
    cores = len(os.sched_getaffinity(0))
    asked = {"items": 42, "concurrency": 9, "models": run.models, "cores": cores}
    assert run.asked == ([] if requested or planned else [asked])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"concurrency": 1}, "its concurrency is 1"),
        ({"people": "here"}, "a person at this terminal plays an actor"),
        ({"functions": ("local",)}, "worker processes cannot import its Python functions"),
        ({"lowest_limit": 1}, "only one call at a time is allowed"),
        ({"single_process_reason": "of the model"}, "of the model"),
        ({}, ""),
        ({"lowest_limit": 2}, ""),
        ({"functions": ("importable",)}, ""),
    ],
)
@pytest.mark.parametrize("is_requested", [False, True])
def test_why_a_run_has_one_process(run, change, reason, is_requested):
    people = change.get("people")
    run.automatic = 4
    run.concurrency = change.get("concurrency", 9)
    run.ctx.people, run.ctx.functions = people, change.get("functions", ())
    run.models.lowest_limit = change.get("lowest_limit")
    run.models.single_process_reason = change.get("single_process_reason", "")
    engine = run.engine(4 if is_requested else None, people)
    if reason or (run.ctx.functions and not is_requested):
        assert engine is None
    else:
        assert engine.workers == (2 if "lowest_limit" in change else 4)
    assert run.notes == ([f"the run has one worker process: {reason}"] if reason and is_requested else [])


def test_people_elsewhere_do_not_keep_a_run_in_one_process(run):
    assert run.engine(2, people="elsewhere").workers == 2


# --- A cluster ---


@pytest.fixture
def cluster(run, monkeypatch):
    """In place of the engine of a cluster: what is done with it."""
    import proctor.batch.engines.ray as ray

    calls = []

    def make(address, *, note, info, most_nodes):
        calls.append((address, most_nodes))
        return SimpleNamespace(connect=lambda: calls.append("connect"), close=lambda: calls.append("close"))

    monkeypatch.setattr(ray, "RayEngine", make)
    run.ctx.engine.name = "ray"
    run.models.lowest_limit = 7
    return calls


# --- Rules to stop early ---


def checked(monkeypatch, *, stored, rule, change=(0, 0, 0), same=True, plan=True, **retry):
    """Check the rule of a run: stored or not, of the plan, with what the plan changes."""
    added, dropped, retained = change
    monkeypatch.setattr(
        stopping, "is_same_rule", lambda one, other: same and (one, other) == (rule, "stored")
    )
    monkeypatch.setattr(stopping, "stored_rule", lambda read, run_id: "stored")
    difference = SimpleNamespace(
        added=added, dropped=dropped, retained=retained, reasons_text=lambda noun: f"new {noun}"
    )
    monkeypatch.setattr(lifecycle, "diff", lambda *call, **named: difference)
    read = SimpleNamespace(resource=lambda run_id, name: "rule" if stored else None)
    made = SimpleNamespace(stop_rule=rule, items=list, derived_fields=()) if plan else None
    lifecycle._check_rule(read, "r", made, RetrySelection(**retry))


def test_a_run_without_a_rule_may_be_changed_and_repeated(monkeypatch):
    for plan in (True, False):
        checked(monkeypatch, stored=False, rule=None, change=(1, 1, 1), plan=plan, same=False, failures=True)


def test_a_run_with_its_own_rule_may_be_resumed(monkeypatch):
    checked(monkeypatch, stored=True, rule="rule")
    checked(monkeypatch, stored=True, rule=None, plan=False, errors=True, same=False)


@pytest.mark.parametrize(
    ("stored", "rule", "before"), [(True, "r", "another"), (True, None, "another"), (False, "r", "no")]
)
def test_another_rule_is_refused(monkeypatch, stored, rule, before):
    with pytest.raises(UsageError, match=f"^`stop_when`: run r was started with {before} rule, and results"):
        checked(monkeypatch, stored=stored, rule=rule, same=False)


@pytest.mark.parametrize("plan", [True, False])
def test_failed_items_of_a_run_that_stops_early_are_not_repeated(monkeypatch, plan):
    with pytest.raises(UsageError, match="so failed items cannot be repeated"):
        checked(monkeypatch, stored=True, rule="rule", plan=plan, failures=True)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ((1, 0, 0), "1 new item (new item)"),
        ((2, 0, 0), "2 new items (new item)"),
        ((0, 2, 0), "2 fewer"),
        ((0, 0, 3), "3 fewer"),
        ((1, 2, 3), "1 new item (new item) and 5 fewer"),
    ],
)
def test_another_number_of_items_is_refused(monkeypatch, change, what):
    with pytest.raises(UsageError) as raised:
        checked(monkeypatch, stored=True, rule="rule", change=change)
    assert str(raised.value).startswith(
        f"`stop_when`: the plan has {what} than run r: tasks, repeats and levels"
    )


# --- Aborting ---


class Aborted:
    """A store with a run that has these states, one after the other."""

    def __init__(self, *states):
        self.states, self.calls, self.pauses = list(states), [], []
        self.read = SimpleNamespace(batch=self._batch, sessions=self._sessions)

    def _batch(self, run_id, now):
        assert (run_id, now) == ("r", NOW)
        return {"status": self.states.pop(0) if len(self.states) > 1 else self.states[0]}

    def _sessions(self, scope, *, limit):
        assert scope.run_id == "r"
        return [{"id": "s1", "status": "running"}, {"id": "s2", "status": "success"}]

    def request_abort(self, run_id, now):
        self.calls.append("requested")

    def end_batch(self, run_id, *end):
        self.calls.append(end)
        self.states = ["aborted"]

    def abort(self):
        return lifecycle.abort_run(self, "r", now=lambda: NOW, pause=self.pauses.append)


@pytest.fixture
def ended_attempts(monkeypatch):
    import proctor.processes.program as program

    ended = []
    monkeypatch.setattr(program, "end_attempt", ended.append)
    return ended


@pytest.mark.parametrize("status", ["completed", "aborted"])
def test_a_run_that_has_ended_cannot_be_aborted(status):
    store = Aborted(status)
    with pytest.raises(UsageError, match=f"run r is already {status}"):
        store.abort()
    assert store.calls == []


def test_a_running_run_is_waited_for(ended_attempts):
    store = Aborted("running", "running", "running", "aborted")
    assert store.abort() == "aborted"
    assert store.pauses == [0.1] * 3 and store.calls == ["requested"] and ended_attempts == []


def test_a_process_that_does_not_listen_is_not_waited_for_forever(ended_attempts):
    store = Aborted("running")
    assert store.abort() == "running"
    assert store.pauses == [0.1] * 600
    assert store.calls == ["requested"] and ended_attempts == []


@pytest.mark.parametrize("states", [("interrupted",), ("halted",), ("running", "interrupted")])
def test_what_a_dead_process_left_running_is_ended(ended_attempts, states):
    store = Aborted(*states)
    assert store.abort() == "aborted"
    assert store.calls == ["requested", ("aborted", "aborted", "the batch was aborted", NOW)]
    assert ended_attempts == ["s1"] and len(store.pauses) == len(states) - 1


# --- Smaller parts ---


def test_a_new_work_item_has_used_nothing():
    item = WorkItem(item=None, id="i", attempts=0, tries=0)
    assert (item.tokens, item.tool_calls, item.cost_usd, item.started_at) == (0, 0, None, None)
    assert (item.checkpoint, item.variables) == (None, {})
