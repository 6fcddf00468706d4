"""Several worker processes share a run: the same results as one, and nothing lost when one of them dies."""

import asyncio
import json
import os
import re
import shutil
import signal
import threading
from collections import Counter
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from job_runs import (
    DIALOGUES,
    EXPERIMENT,
    JOB_CHECKS,
    TALKING,
    WORLD,
    Runs,
    StoppingAfterTurns,
    StoppingAmidSlowItems,
    add_scenario,
    check_lost_attempts,
    check_prompts,
    check_retries,
    dear_calls,
    git,
)

import proctor as library
from databases import query
from proctor.batch import lifecycle
from proctor.batch.engines import ATTEMPTS_EACH, LocalEngine, automatic_workers, processes, worker_process
from proctor.batch.engines.processes import ProcessEngine
from proctor.batch.executor import Observer
from proctor.bootstrap import open_context
from proctor.context import Notice
from proctor.item import Item
from proctor.job import PlanText, make_overrides
from proctor.jobs.dialogue.job import JOB as DIALOGUE
from proctor.jobs.scenario.job import JOB as SCENARIO
from proctor.models import ModelRouter
from proctor.processes.warden import children_of, descendants_of, is_alive
from proctor.store import Scope, Store
from proctor.testing import eventually, make_git_repository
from proctor.testing.model_server import ModelServer, reply
from waiting import TIME_LIMIT_SECONDS, while_running


class Processes(Runs):
    """Runs in this process and with two workers."""

    coding_defaults = "{keep: always}"

    def __init__(self, folder: Path) -> None:
        self.notes = list[str]()
        super().__init__(folder, self.engine)

    def engine(self) -> ProcessEngine:
        return ProcessEngine(2, note=self.notes.append)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.chdir(tmp_path)
    # As in the process of a command, which has one thread. A new process takes a second to load everything.
    monkeypatch.setattr(processes, "can_fork", lambda: True)
    return Processes(tmp_path)


@pytest.mark.parametrize("forks", [True, False])
async def test_prompts_have_the_same_outcome_in_two_workers(runs, forks, monkeypatch):
    monkeypatch.setattr(processes, "can_fork", lambda: forks)
    await check_prompts(runs)
    assert not runs.notes


@pytest.mark.parametrize("job", [job for job in JOB_CHECKS if job != "prompts"])
async def test_a_job_has_the_same_outcome_in_two_workers(runs, job):
    await JOB_CHECKS[job](runs)


async def test_failed_attempts_are_retried_in_whichever_worker_is_free(runs):
    await check_retries(runs)


LATENCY = 0.2
DEAR = f"{{latency_seconds: {LATENCY}, rules: [{{reply: ok, usage: {{input_tokens: 1, output_tokens: 1}}}}]}}"


async def test_one_budget_holds_for_all_workers_and_is_spent_to_the_end(runs):
    (runs.folder / "dear.yaml").write_text(DEAR)
    far = await runs.run(
        """
        budget: 0.1
        concurrency: 8
        prices: {scripted/dear: {input: 0, output: 10000}}
        defaults: {settings: {max_tokens: 1}}
        matrix: [{prompt: hello, model: scripted/dear, runs: 30}]
        """,
        runs.far,
        "far",
    )

    assert (far["end"].status, far["end"].reason) == ("halted", "budget")
    assert far["money"] == (0, 0.1), "all of it, and not a cent more"
    assert Counter(item["status"] for item in far["items"]) == {"success": 10, "queued": 20}
    with Store(runs.store) as store:
        holders = query(store, 'SELECT DISTINCT "holder" FROM "ledger" WHERE "spentUsd" > 0')
        (drawn,) = query(
            store, 'SELECT SUM("reservedUsd") AS "usd" FROM "ledger" WHERE "kind" IN (\'draw\', \'close\')'
        )
    assert len(holders) == 2, "each worker has spent some"
    assert drawn["usd"] == pytest.approx(0.1)


async def test_a_limit_on_concurrent_calls_holds_for_all_workers_together(runs, monkeypatch):
    (runs.folder / "proctor.toml").write_text('[limits."openai"]\nconcurrency = 4\n')
    async with ModelServer() as server:
        # Workers tell each other of their calls once a second.
        server.answers = lambda _: reply("ok", delay_seconds=0.1)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        far = await runs.run(
            "{concurrency: 16, matrix: [{prompt: hello, model: openai/gpt-x, runs: 60}]}", runs.far, "far"
        )

        assert Counter(item["status"] for item in far["items"]) == {"success": 60}
        assert server.most_at_once == 4


async def test_two_workers_stop_when_told_to_and_the_run_resumes(runs):
    slow = runs.folder / "slow.yaml"
    slow.write_text("{latency_seconds: 3600, rules: [{reply: ok}]}")
    (runs.folder / "brief.yaml").write_text("{latency_seconds: 0.02, rules: [{reply: ok}]}")
    text = """
        concurrency: 4
        matrix:
          - {prompt: hello, model: scripted/slow, runs: 2}
          - {prompt: hello, model: scripted/brief, runs: 100}
    """

    stopped = await runs.run(text, runs.far, "far", observer=StoppingAmidSlowItems(runs.store, "far"))

    assert stopped["end"].status == "interrupted"
    assert {item["status"] for item in stopped["items"]} == {"success", "queued"}
    assert [item["reason"] for item in stopped["items"][:2]] == ["interrupted"] * 2

    slow.write_text("{rules: [{reply: ok}]}")
    resumed = await runs.resume("far", runs.engine())

    assert resumed["end"].status == "completed"
    assert {item["status"] for item in resumed["items"]} == {"success"}


async def test_an_interrupted_dialogue_resumes_after_its_last_turn_in_another_worker(runs):
    runs.job = DIALOGUE
    talking = runs.folder / "talking.yaml"
    talking.write_text(TALKING)
    whole = await runs.run(DIALOGUES, LocalEngine(), "whole")
    talking.write_text(f"latency_seconds: 0.05\n{TALKING}")
    stopping = StoppingAfterTurns(runs.store, "cut")
    cut = await runs.run(DIALOGUES, LocalEngine(), "cut", observer=stopping)
    talking.write_text(TALKING)

    resumed = await runs.resume("cut", runs.far)

    assert (cut["end"].status, resumed["end"].status) == ("interrupted", "completed")
    assert resumed["texts"] == whole["texts"]
    assert any("resumed after turn" in note for note in runs.notes_of("cut"))
    assert not (runs.folder / "cut" / ".unfinished").exists()


async def test_an_interrupted_scenario_resumes_after_its_last_turn_in_another_worker(runs):
    runs.job = SCENARIO
    add_scenario(runs.folder)
    await runs.run(EXPERIMENT, LocalEngine(), "whole")
    (runs.folder / "scenario" / "world.yaml").write_text(f"latency_seconds: 0.5\n{WORLD}")
    stopping = StoppingAfterTurns(runs.store, "cut")
    cut = await runs.run(EXPERIMENT, runs.far, "cut", observer=stopping)
    turns = [len(states(runs.folder / "cut", run)) for run in (1, 2)]
    (runs.folder / "cut" / "base-scenario" / "world.yaml").write_text(WORLD)

    resumed = await runs.resume("cut", runs.engine())

    assert cut["end"].status == "interrupted" and 3 <= sum(turns) < 8
    assert resumed["end"].status == "completed"
    for run in (1, 2):
        assert states(runs.folder / "cut", run) == states(runs.folder / "whole", run)
    assert any("resumed after turn" in note for note in runs.notes_of("cut"))


def states(folder: Path, run: int) -> list[str]:
    """The states of the world after each turn of a run."""
    state = json.loads((folder / "runs" / f"var-001-run-00{run}" / "scenario-state.json").read_text())
    return [state["world_state"]["states"][str(turn)] for turn in state["completed_turns"]]


class Person:
    """Answers for an actor, but once in the second turn."""

    def __init__(self) -> None:
        self.turns: list[str] = []
        self.threads = set[int]()

    async def ask(self, item_id: str, actor: str, prompt: str) -> str:
        assert actor == "ferry"
        self.threads.add(threading.get_ident())
        self.turns += re.findall(r"in turn (\d)", prompt)[-1:]
        return "" if len(self.turns) == 2 else f"ACTION: sails {len(self.turns)} times"


async def test_a_person_at_the_driver_is_asked_and_a_failed_run_continues_after_its_last_turn(runs):
    runs.job = SCENARIO
    add_scenario(runs.folder)
    runs.people = person = Person()
    ferry = runs.folder / "scenario" / "actors" / "ferry.yaml"
    ferry.write_text("name: The ferry\nshort_name: ferry\ncontrol: human\n")

    text = EXPERIMENT.replace("runs_per_variation: 2", "runs_per_variation: 1").replace(": 2\n", ": 1\n")
    far = await runs.run(text, runs.far, "far")

    assert [item["status"] for item in far["items"]] == ["success"]
    assert person.turns == ["1", "2", "2", "3", "4"]
    assert person.threads == {threading.get_ident()}
    assert [attempt for _, attempt, *_ in far["sessions"]] == [1, 2]
    run = runs.folder / "far" / "runs" / "var-001-run-001"
    costs = json.loads((run / "costs.json").read_text())
    assert {turn["turn"]: turn["calls"] for turn in costs["costs_by_actor"]["The ferry"]["turns"]} == {
        1: 1, 2: 2, 3: 1, 4: 1,
    }  # fmt: skip
    assert costs["unfinished_turns"]["calls"] == 2, "one of the person, and one of the other actor"
    unfinished = "ferry, decision: human/ferry 0+0 tokens unknown (of a turn that"
    assert unfinished in (run / "scenario.log").read_text()


async def test_programs_of_a_worker_do_not_see_the_store(runs):
    repository = make_git_repository(runs.folder / "shop", {"shop.py": "total = 1\n"})
    files = [f"{runs.store}{end}" for end in ("", "-wal", "-shm")]
    look = f"cat shop.py {' '.join(files)} > seen.txt; true"

    await runs.run(
        f"matrix: [{{repo: ./shop, prompt: look, agent: command, command: '{look}'}}]", runs.far, "far"
    )

    with Store(runs.store) as store:
        (row,) = store.read.sessions(Scope(run_id="far"), limit=10)
    assert git(repository, "show", f"{row['branch']}:seen.txt") == "total = 1\n"


class KillingWorker(Observer):
    """Kills a worker process after the tenth item, when each has been given more."""

    def __init__(self) -> None:
        self.killed = 0
        self._finished = 0
        self._others = {*children_of(os.getpid())}

    def item_finished(self, item: Any) -> None:
        self._finished += 1
        if self._finished == 10:
            asyncio.get_running_loop().call_later(LATENCY / 2, self._kill)

    def _kill(self) -> None:
        own = {*children_of(os.getpid())} - self._others
        (launcher,) = (pid for pid in own if children_of(pid))
        self.killed = children_of(launcher)[0]
        os.kill(self.killed, signal.SIGKILL)


async def test_the_items_of_a_killed_worker_run_again_in_a_new_one(runs):
    (runs.folder / "dear.yaml").write_text(DEAR)
    killing = KillingWorker()

    far = await runs.run(dear_calls(30, concurrency=8), runs.far, "far", observer=killing)

    assert killing.killed and far["end"].status == "completed"
    (note,) = runs.notes
    assert note.startswith("a worker process died; ")
    lost = check_lost_attempts(far, items=30, most=4)
    assert far["money"][1] == pytest.approx(0.3 + 0.01 * lost), "calls that were cut off count"


def workers_of(pid: int) -> list[int]:
    """The worker processes of a run: what its launcher has forked."""
    return [worker for launcher in children_of(pid) for worker in children_of(launcher)]


def start_stuck(proctor, repository) -> tuple[Any, Path]:
    """A run with two workers whose agents have started more processes, and do not end by themselves."""
    go, agent = proctor.folder / "go", proctor.folder / "agent.sh"
    usage = {"type": "usage", "model": "m", "input_tokens": 5, "output_tokens": 5, "cost_usd": 0.01}
    tool = {"type": "tool", "name": "sleep", "success": True}
    wait = f"until test -e {go}; do sleep 0.05; done"
    agent.write_text(
        f"echo '{json.dumps(tool)}'\necho '{json.dumps(usage)}'\nsetsid sleep 301 & sleep 302 &\n"
        f"echo started > started.txt; {wait}; echo fixed > shop.py\n"
    )
    (proctor.folder / "plan.yaml").write_text(
        "{runId: killed, concurrency: 2, workers: 2, "
        f"defaults: {{sandbox: none, agent: command, command: 'sh {agent}', model: m}}, "
        f"matrix: [{{repo: {repository}, prompt: work, runs: 3}}]}}"
    )
    process = proctor.start("batch", "plan.yaml")
    home = proctor.folder / "proctor-home"
    eventually(while_running(process, lambda: len(list(home.rglob("started.txt"))) == 2))
    return process, go


def test_nothing_outlives_a_killed_driver_and_the_run_resumes(proctor, repository):
    process, go = start_stuck(proctor, repository)
    started = descendants_of(process.pid)
    assert len(workers_of(process.pid)) == 2 and len(started) >= 3 + 2 * 4
    process.kill()
    process.wait()
    process.stdout.close()

    eventually(lambda: not [pid for pid in started if is_alive(pid)])
    go.touch()
    resumed = proctor("batch", "plan.yaml", "--resume", "--workers", "2", "--json")

    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["successCount"] == 3


def test_what_agents_of_a_killed_worker_had_started_ends_and_its_item_runs_again(proctor, repository):
    process, go = start_stuck(proctor, repository)
    worker = workers_of(process.pid)[0]
    started = descendants_of(worker)
    assert len(started) >= 4
    with proctor.open_store() as store:
        eventually(lambda: len(query(store, 'SELECT 1 FROM "model_calls"')) == 2)
    os.kill(worker, signal.SIGKILL)

    eventually(while_running(process, lambda: not [pid for pid in started if is_alive(pid)]))
    go.touch()
    process.communicate(timeout=TIME_LIMIT_SECONDS)

    assert process.returncode == 0
    with proctor.open_store() as store:
        sessions = query(store, 'SELECT * FROM "sessions" ORDER BY "startedAt"')
        items = query(store, 'SELECT * FROM "batch_items" ORDER BY "tokensTotal"')
    reasons = Counter((row["status"], row["endReason"]) for row in sessions)
    assert reasons == {("error", "interrupted"): 1, ("success", "unchecked"): 3}
    # What the attempt that was cut off used is used.
    assert [(row["tokensTotal"], row["toolCalls"]) for row in items] == [(10, 1), (10, 1), (20, 2)]
    assert [row["costUsd"] for row in items] == pytest.approx([0.01, 0.01, 0.02])
    first = next(row for row in sessions if row["itemId"] == items[-1]["id"])
    assert items[-1]["startedAt"] == first["startedAt"]


def test_a_driver_killed_while_it_clears_up_after_a_killed_worker_leaves_no_worktree(
    proctor, repository, tmp_path
):
    programs, hold, held = tmp_path / "programs", tmp_path / "hold", tmp_path / "held"
    programs.mkdir()
    (programs / "git").write_text(
        f"#!/bin/sh\ntest -e {hold} && touch {held} && while test -e {hold}; do sleep 0.1; done && exit 1\n"
        f'exec {shutil.which("git")} "$@"\n'
    )
    (programs / "git").chmod(0o755)
    proctor.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    process, go = start_stuck(proctor, repository)
    hold.touch()
    os.kill(workers_of(process.pid)[0], signal.SIGKILL)
    eventually(while_running(process, held.exists))
    process.kill()
    process.communicate()
    hold.unlink()
    go.touch()

    assert proctor("resume", "killed").returncode == 0

    assert list((proctor.folder / "proctor-home/worktrees").iterdir()) == []


def test_ctrl_c_and_abort_reach_the_workers(proctor):
    (proctor.folder / "slow.yaml").write_text("{latency_seconds: 300, rules: [{reply: late}]}")
    plan = "{runId: RUN, concurrency: 4, matrix: [{prompt: hello, model: scripted/slow, runs: 9}]}"
    with proctor.open_store() as store:
        for run_id, status, code in (("stopped", "queued", 130), ("aborted", "error", 3)):
            (proctor.folder / "plan.yaml").write_text(plan.replace("RUN", run_id))
            process = proctor.start("batch", "plan.yaml", "--workers", "2")
            sql = f'SELECT 1 FROM "sessions" WHERE "runId" = \'{run_id}\''
            eventually(while_running(process, lambda sql=sql: len(query(store, sql)) == 4))
            started = descendants_of(process.pid)
            if run_id == "stopped":
                # As a terminal does: to every process. The last ones may have ended with the first.
                for pid in [process.pid, *started]:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGINT)
            else:
                assert proctor("abort-run", run_id).returncode == 0
            process.communicate(timeout=TIME_LIMIT_SECONDS)

            assert process.returncode == code
            assert {row["status"] for row in store.read.items(run_id)} == {status}
            eventually(lambda started=started: not [pid for pid in started if is_alive(pid)])


def test_a_function_that_can_be_imported_answers_in_the_workers(tmp_path, monkeypatch):
    (tmp_path / "own_model.py").write_text("import os\ndef answer(request):\n    return os.getpid()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    answer = import_module("own_model").answer
    items = [Item(prompt=f"say {number}") for number in range(40)]
    run = library.run(items=items, model=answer, workers=2, concurrency=8, home=tmp_path, progress=False)

    pids = {item.session.transcript[-1].content for item in run.items()}
    assert str(os.getpid()) not in pids and 1 <= len(pids) <= 2
    assert not run.notices


@pytest.mark.parametrize(
    ("items", "concurrency", "model", "workers"),
    [
        (10_000, 400, "scripted/echo", 4),
        (9_999, 400, "scripted/echo", 1),
        (10_000, 400, "openai/gpt-5", 1),
        (10_000, 2 * ATTEMPTS_EACH, "scripted/echo", 2),
        (10_000, 1, "scripted/echo", 1),
    ],
)
def test_without_a_number_many_items_of_models_on_this_machine_have_several_workers(
    items, concurrency, model, workers
):
    models = ModelRouter({"OPENAI_API_KEY": "key"})
    models.route(model)
    assert automatic_workers(items=items, concurrency=concurrency, models=models, cores=4) == workers


@pytest.mark.parametrize(
    ("why", "options"),
    [
        ("worker processes cannot import its Python functions", {"model": lambda _: "ok"}),
        ("its concurrency is 1", {"model": "scripted/echo", "concurrency": 1}),
    ],
)
def test_a_run_that_only_this_process_can_make_has_one_worker_and_says_why(tmp_path, why, options):
    run = library.run(
        items=[Item(prompt="hello")],
        workers=3,
        home=tmp_path,
        progress=False,
        **{"concurrency": 2, **options},
    )

    assert run.summary()["successCount"] == 1
    assert [notice.text for notice in run.notices] == [f"the run has one worker process: {why}"]


async def test_a_recording_is_made_by_one_process(runs):
    notices = list[Notice]()
    text = "{record: calls.jsonl, concurrency: 2, matrix: [{prompt: hello, model: scripted/echo, runs: 3}]}"
    with open_context([runs.folder], home=str(runs.folder), notice=notices.append) as ctx:
        plan = runs.job.read(PlanText(text=text, folder=runs.folder), make_overrides(runs.job, {}), ctx)
        await lifecycle.start(runs.job, plan, ctx, workers=2)

    assert [each.text for each in notices] == [
        "the run has one worker process: recordings number the calls of one process"
    ]


async def test_workers_that_die_again_and_again_end_the_run(runs, monkeypatch):
    # White-box: each further restart of a worker takes a second.
    monkeypatch.setattr(processes, "RESTARTS", 1)
    (runs.folder / "deadly.py").write_text(
        "import os, signal\ndef answer(request):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.syspath_prepend(str(runs.folder))

    with pytest.raises(library.ProctorError, match="died 3 times"):
        await asyncio.wait_for(
            runs.run(
                "{concurrency: 2, matrix: [{prompt: hello, model: 'python/deadly:answer', runs: 8}]}",
                runs.engine(),
                "far",
            ),
            TIME_LIMIT_SECONDS,
        )


class _InstantWorker:
    """Ends every attempt at once."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def run(self, work: str) -> "_InstantWorker":
        self.ran.append(work)
        return self

    def pack(self) -> str:
        return self.ran[-1]


async def test_items_that_arrive_as_the_last_attempt_ends_are_started():
    """Its task has ended, and has not been taken off the list: no run can be made to hit this moment."""
    process = worker_process._ProcessWorker(None, SimpleNamespace(concurrency=1))
    process._worker = worker = _InstantWorker()
    process._waiting.append("first")
    process._start_waiting()
    # The attempt ends, and what follows its end is due after this.
    await asyncio.sleep(0)
    assert [task.done() for task in process._attempts] == [True]

    process._waiting.append("second")
    process._start_waiting()
    for _ in range(5):
        await asyncio.sleep(0)

    assert worker.ran == ["first", "second"]
