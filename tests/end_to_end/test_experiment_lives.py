"""Experiments are stopped, killed, aborted from elsewhere, watched and kept in either database."""

import asyncio
import os
import re
import signal
from datetime import UTC, datetime, timedelta

import pytest
from harbours import SCENARIO, in_the_harbour, write_config

from databases import new_database, query
from proctor.testing import eventually_async
from proctor.testing.model_server import reply
from waiting import TIME_LIMIT_SECONDS

ONE = "variations: []"


def slowly(request):
    """As in the harbour, but that a call takes a while."""
    said = in_the_harbour(request).body["choices"][0]["message"]["content"]
    return reply(said, input_tokens=900, output_tokens=100, delay_seconds=0.05)


def until_call(harbour, number):
    """Models that answer all calls before this one, and this one and later ones not at all."""

    def answer(request):
        said = in_the_harbour(request).body["choices"][0]["message"]["content"]
        late = len(harbour.server.requests) >= number
        return reply(said, input_tokens=900, output_tokens=100, delay_seconds=600 if late else 0)

    return answer


async def calls(harbour, number):
    """Wait until the server was asked so often."""
    await eventually_async(lambda: len(harbour.server.requests) >= number)


async def turns(harbour, number):
    """Wait until the store has so many turns: a kill loses what is not committed yet."""
    with harbour.proctor.open_store() as store:
        await eventually_async(
            lambda: query(store, 'SELECT count(*) AS "turns" FROM "iterations"') == [{"turns": number}]
        )


async def test_ctrl_c_stops_and_resume_goes_on_at_the_turn(harbour):
    config = write_config(harbour.folder, runs=3, more=ONE)
    harbour.answers["how"] = in_the_harbour
    await harbour.run("experiment", config)
    whole = harbour.states()
    harbour.output = harbour.folder / "again"
    text = (harbour.folder / "experiments/fees/batch-config.yaml").read_text()
    (harbour.folder / "again.yaml").write_text(text.replace("experiments/fees", "again"))
    harbour.answers["how"] = until_call(harbour, 15)
    harbour.server.requests.clear()

    running = harbour.proctor.start("experiment", "again.yaml")
    await calls(harbour, 15)
    running.send_signal(signal.SIGINT)
    said, _ = await asyncio.to_thread(running.communicate, timeout=TIME_LIMIT_SECONDS)

    assert running.returncode == 130, said
    state = harbour.file("batch-state.json")
    assert (state["status"], state["completed_runs"]) == ("interrupted", ["var-001-run-001"])
    assert re.search(r"^Resume with:  proctor resume \S+$", said, re.MULTILINE), said
    harbour.answers["how"] = in_the_harbour
    asked = len(harbour.server.requests)
    told = await harbour.run("experiment", "again.yaml", "--resume")

    assert told["successCount"] == 3
    assert len(harbour.server.requests) - asked == 27 - 9 - 3, "finished runs and turns are kept"
    assert harbour.states() == whole, "as if nobody had stopped it"


async def test_an_experiment_is_aborted_from_another_shell(harbour):
    # Two runs are played; whoever comes then waits for a very long time.
    harbour.answers["how"] = until_call(harbour, 21)
    config = write_config(harbour.folder, runs=6, parallel=2, more=ONE)
    running = harbour.proctor.start("experiment", config)
    await calls(harbour, 22)
    (batch,) = (await harbour.run("runs"))["runs"]

    told = await asyncio.to_thread(harbour.proctor, "abort-run", batch["runId"])
    said, _ = await asyncio.to_thread(running.communicate, timeout=TIME_LIMIT_SECONDS)

    assert told.returncode == 0, told.stderr
    assert running.returncode == 3, said
    state = harbour.file("batch-state.json")
    assert state["status"] == "aborted" and state["pending_runs"] == []
    assert 1 <= len(state["completed_runs"]) < 6
    assert {run["reason"] for run in state["failed_runs"]} == {"aborted"}

    harbour.answers["how"] = in_the_harbour
    assert (await harbour.run("experiment", config, "--resume"))["successCount"] == 6


async def test_a_killed_experiment_in_postgresql_goes_on_and_doubles_nothing(harbour, server):
    harbour.proctor.environment["PROCTOR_STORE"] = new_database(server)
    harbour.answers["how"] = until_call(harbour, 15)
    config = write_config(harbour.folder, runs=3, more=ONE)
    running = harbour.proctor.start("experiment", config)
    await calls(harbour, 15)
    await turns(harbour, 4)
    os.kill(running.pid, signal.SIGKILL)
    await asyncio.to_thread(running.communicate)
    await eventually_async(lambda: harbour.server.at_once == 0)
    harbour.answers["how"] = in_the_harbour
    harbour.server.requests.clear()

    told = await harbour.run("experiment", config, "--resume")

    assert (told["status"], told["successCount"]) == ("completed", 3)
    assert len(harbour.server.requests) == 27 - 9 - 3
    assert harbour.file("batch-state.json")["completed_runs"] == [f"var-001-run-00{n}" for n in (1, 2, 3)]
    assert {len(texts) for texts in harbour.states().values()} == {4}
    shown = (await harbour.run("runs"))["runs"]
    assert [batch["job"] for batch in shown] == ["scenario"]
    assert (await harbour.run("analyze", "experiments/fees"))["patterns"]["successful_runs"] == 3


async def test_a_terminal_shows_what_is_done_failed_left_and_paid(harbour):
    def now_and_then(request):
        # The last turn of every third run fails, again and again.
        last = "Turn 3 of" in request["messages"][-1]["content"]
        return reply(" ") if last and request["seed"] % 3 == 0 else slowly(request)

    harbour.answers["how"] = now_and_then
    config = write_config(harbour.folder, runs=8, parallel=2, more=f"{ONE}\nbudget_limit: 5")

    done = await asyncio.to_thread(harbour.proctor.on_terminal, "experiment", config)

    seen = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done.stdout)
    assert done.returncode == 1
    assert "8 of 8 items" in seen
    assert re.search(r"[1-7] success  [1-7] error", seen), "done and failed"
    assert re.search(r"[1-7] queued  [1-7] running", seen), "what remains"
    assert re.search(r"about \d+(\.\d+)? s remaining", seen), "when it will be done"
    assert re.search(r"\$0\.\d+ of \$5\.00", seen), "what it has cost"
    assert "said nothing" in seen, "why a run failed"


async def test_a_person_elsewhere_is_asked_through_the_store_and_no_time_limit_runs_meanwhile(harbour):
    folder = harbour.folder / "scenarios" / "harbour"
    (folder / "actors" / "ferry.yaml").write_text("name: Ferry Line\nshort_name: ferry\ncontrol: human\n")
    (folder / "scenario.yaml").write_text(SCENARIO.replace("turns: 3", "turns: 2"))
    words = ("scenario", "run", "scenarios/harbour", "--output", "played", "--human", "web")
    running = harbour.proctor.start(*words, "--timeout", "3", "--runs", "2", "--max-parallel", "2")

    first = await question(harbour, turn=1)
    assert first["actor"] == "ferry" and "secret of port" not in first["prompt"]
    asked_at = datetime.fromisoformat(first["askedAt"])
    # Until the question is older than the time limit.
    await eventually_async(lambda: datetime.now(UTC) - asked_at > timedelta(seconds=3))
    for turn in (1, 2):
        for number in (1, 2):
            asked = await question(harbour, turn=turn)
            words = (asked["runId"], asked["id"], f"ACTION: answer {number} of turn {turn}")
            told = await asyncio.to_thread(harbour.proctor, "scenario", "answer", *words)
            assert told.returncode == 0, told.stderr
    said, _ = await asyncio.to_thread(running.communicate, timeout=TIME_LIMIT_SECONDS)

    assert running.returncode == 0, said
    texts = [path.read_text() for path in sorted((harbour.folder / "played").rglob("actor-ferry-00*.md"))]
    assert sorted(re.findall(r"answer \d of turn \d", "".join(texts))) == [
        "answer 1 of turn 1", "answer 1 of turn 2", "answer 2 of turn 1", "answer 2 of turn 2",
    ]  # fmt: skip
    assert await harbour.run("scenario", "questions") == []
    with harbour.proctor.open_store() as store:
        (session, _) = query(store, 'SELECT * FROM "sessions" ORDER BY "waitingSeconds" DESC')
    assert session["waitingSeconds"] > 3 and session["workSeconds"] < 3
    began, ended = (datetime.fromisoformat(session[name]) for name in ("startedAt", "finishedAt"))
    spent = session["waitingSeconds"] + session["workSeconds"]
    assert spent == pytest.approx((ended - began).total_seconds(), abs=0.5)


async def test_what_a_person_has_answered_is_not_asked_again_after_a_kill(harbour):
    folder = harbour.folder / "scenarios" / "harbour"
    (folder / "actors" / "ferry.yaml").write_text("name: Ferry Line\nshort_name: ferry\ncontrol: human\n")
    words = ["scenario", "run", "scenarios/harbour", "--output", "played", "--human", "web"]
    running = harbour.proctor.start(*words, "--set", "turns=1")
    asked = await question(harbour, turn=1)
    shown = await asyncio.to_thread(harbour.proctor, "scenario", "questions")
    assert shown.stdout.startswith(f"── {asked['runId']} {asked['id']}: you are ferry\n")
    assert "Decide what Ferry Line does" in shown.stdout
    os.kill(running.pid, signal.SIGKILL)
    await asyncio.to_thread(running.communicate)
    answered = ("scenario", "answer", asked["runId"], asked["id"], "ACTION: we sail at dawn")
    assert (await asyncio.to_thread(harbour.proctor, *answered)).returncode == 0

    await harbour.run(*words, "--resume")

    assert (
        "we sail at dawn" in (harbour.folder / "played/runs/var-001-run-001/actor-ferry-001.md").read_text()
    )


async def test_runs_of_another_experiment_are_taken_over_where_they_are_the_same(harbour):
    config = write_config(harbour.folder, runs=2, more=ONE)
    await harbour.run("experiment", config)
    text = (harbour.output / "batch-config.yaml").read_text()
    (harbour.folder / "larger.yaml").write_text(
        text.replace("runs_per_variation: 2", "runs_per_variation: 3")
        .replace("output_dir: experiments/fees", "output_dir: larger\nresume_from: experiments/fees")
        .replace('"Fee study"', '"Larger study"\ndescription: What patience is worth.')
    )
    harbour.server.requests.clear()

    told = await harbour.run("experiment", "larger.yaml")

    assert (told["successCount"], len(harbour.server.requests)) == (3, 9)
    assert sorted(path.name for path in (harbour.folder / "larger" / "runs").iterdir()) == [
        f"var-001-run-00{n}" for n in (1, 2, 3)
    ]
    await harbour.run("analyze", "larger", "--report")
    assert "What patience is worth." in (harbour.folder / "larger/analysis/analysis-report.md").read_text()


async def question(harbour, *, turn):
    """The first question of a turn that waits for an answer."""

    async def look():
        questions = await harbour.run("scenario", "questions")
        return next((one for one in questions if f"in turn {turn}." in one["prompt"]), None)

    return await eventually_async(look)
