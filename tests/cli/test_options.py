"""Options of commands reach the run: what is stored, selected and done because of them."""

import json
import signal
import sqlite3
import subprocess
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from commands import Command
from databases import query
from waiting import TIME_LIMIT_SECONDS

REPLIES = {"judge": '\'{"reasoning": "it says no", "score": "Yes"}\'', "two": "'2'"}
QUESTIONS = "id,question,answer\none,What is 1+1?,2\ntwo,What is 2+2?,4\n"


@pytest.fixture
def desk(proctor: Command, repository: Path) -> Command:
    """A folder with plans, scripted models, a table of questions, and a scenario."""
    folder = proctor.folder
    for name, reply in REPLIES.items():
        (folder / f"{name}.yaml").write_text(f"rules: [{{reply: {reply}}}]\n")
    (folder / "plans").mkdir()
    entry = {"repo": repository.name, "prompt": "Fix it", "scriptCommand": "test -f a.txt"}
    entry["script"] = [{"write": {"path": "a.txt", "content": "two"}}]
    (folder / "plans" / "plan.yaml").write_text(json.dumps({"matrix": [entry]}))
    (folder / "talk.yaml").write_text("matrix: [{prompt: Please., model: scripted/two, runs: 2}]\n")
    (folder / "questions.csv").write_text(QUESTIONS)
    (folder / "tasks.yaml").write_text(
        "{tasks: questions.csv, template: '{answer}', expectColumn: answer, model: scripted/echo}\n"
    )
    (folder / "models.yaml").write_text("models: [{name: echo, provider: scripted}]\n")
    actors = folder / "port" / "actors"
    actors.mkdir(parents=True)
    (actors.parent / "scenario.yaml").write_text(
        "name: Harbor\ninitial_world_state: Spring\nturns: 2\nworld_state_model: scripted/two\n"
    )
    (actors / "port.yaml").write_text("name: Port\nllm_model: scripted/two\n")
    return proctor


def stored(proctor: Command) -> tuple[dict[str, Any], dict[str, Any]]:
    """The row of the latest run, with its defaults, and that of its first item, with its settings."""
    with proctor.open_store() as store:
        batch = query(store, 'SELECT * FROM "batches" ORDER BY "createdAt" DESC')[0]
        sql = 'SELECT * FROM "batch_items" WHERE "runId" = ? ORDER BY "position"'
        item = query(store, sql, (batch["runId"],))[0]
    batch |= json.loads(batch["defaultsJson"]) | {"plan": batch["planText"]}
    return batch, item | json.loads(item["settings"]) | json.loads(item["details"])


def chosen(row: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    return {name: row.get(name) for name in expected}


BATCH = ("batch", "plans/plan.yaml", "--folder", ".", "--agent", "scripted")
SIMULATE = ("simulate", "--clients", "scripted", "--therapists", "eliza", "--num-runs", "1", "--seed", "3")
SCENARIO = ("scenario", "run", "port", "--output", "out")
EVALUATE = ("evaluate", "start", "--name", "e", "--evaluator", "Builtin.Refusal", "--judge", "scripted/judge")
BENCH = ("bench", "--task", "questions.csv", "--output", "out", "--expect-column", "answer")


@pytest.mark.parametrize(
    ("words", "batch", "item"),
    [
        (
            (*BATCH, "--timeout-sec", "70", "--retries", "2", "--merge-on-pass", "--json-logs"),
            {"job": "coding", "concurrency": 4, "budgetUsd": None},
            {"agent": "scripted", "timeoutSec": 70.0, "retries": 2, "mergeOnPass": True, "jsonLogs": True},
        ),
        (
            (*BATCH, "--no-merge-on-pass", "--no-json-logs", "--budget", "3", "--concurrency", "2"),
            {"concurrency": 2, "budgetUsd": 3.0},
            {"timeoutSec": 900, "retries": 0, "mergeOnPass": False, "jsonLogs": False},
        ),
        (
            (*BATCH, "--model", "scripted/two", "--run-id", "mine"),
            {"runId": "mine"},
            {"model": "scripted/two", "repository": "shop", "status": "success"},
        ),
        (
            (*SIMULATE, "--client-model", "scripted/two", "--temperature", "0.3", "--max-workers", "3"),
            {"seed": 3, "concurrency": 3, "temperature": 0.3, "client_model": "scripted/two"},
            {"maxTurns": 20, "repeat": 0},
        ),
        (
            (*SIMULATE, "--therapist-model", "scripted/two", "--language", "de", "--max_turns", "2"),
            {"therapist_model": "scripted/two", "lang": "de", "budgetUsd": None},
            {"maxTurns": 2, "lang": "de"},
        ),
        (
            (*SIMULATE, "--model", "scripted/two", "--budget", "2", "--output-dir", "talks"),
            {"budgetUsd": 2.0, "model_name": "scripted/two", "output_dir": "talks"},
            {"underTest": "therapist"},
        ),
        (
            (*SCENARIO, "--credit-limit", "4", "--timeout", "50", "--seed", "5", "--runs", "2"),
            {"budgetUsd": 4.0, "seed": 5, "concurrency": 1, "runsPerVariation": 2},
            {"timeoutSec": 50.0, "turns": 2},
        ),
        (
            (*SCENARIO, "--budget", "5", "--max-turns", "1", "--max-parallel", "2"),
            {"budgetUsd": 5.0, "seed": 0, "concurrency": 2, "runsPerVariation": 1},
            {"turns": 1},
        ),
        (
            (*BENCH, "--prompt-column", "question", "--models", "scripted/two", "--parallel", "2"),
            {"job": "benchmark", "concurrency": 2, "runs": 1},
            {"prompt": "What is 1+1?", "expect": {"equals": "2"}, "timeoutSec": 1800.0},
        ),
        (
            (*BENCH, "--template", "Q: {question}", "--models", "scripted/two", "--timeout", "90"),
            {"concurrency": 1, "budgetUsd": None},
            {"prompt": "Q: What is 1+1?", "timeoutSec": 90.0},
        ),
        (
            (*BENCH, "--prompt-column", "question", "--models-config", "models.yaml", "--budget", "3"),
            {"budgetUsd": 3.0},
            {"model": "scripted/echo", "displayName": "echo"},
        ),
        (
            (*EVALUATE, "--model", "scripted/two", "--timeout", "9", "--retries", "1", "--votes", "3")
            + ("--budget", "6", "--concurrency", "2"),
            {"job": "evaluation", "budgetUsd": 6.0, "concurrency": 2, "crashes": 0},
            {"timeoutSec": 9.0, "retries": 1, "model": "scripted/judge"},
        ),
    ],
)
def test_options_reach_the_run(
    desk: Command, words: tuple[str, ...], batch: dict[str, Any], item: dict[str, Any]
) -> None:
    if words[0] == "evaluate":
        desk("batch", "talk.yaml")
    done = desk(*words)

    row, first = stored(desk)
    assert (chosen(row, batch), chosen(first, item)) == (batch, item), done.stderr


SELECTED = [
    (("--job", "coding"), 2),
    (("--job", "dialogue"), 1),
    (("--role", "eliza"), 1),
    (("--role", "CBT"), 0),
    (("--model", "scripted/two"), 2),
    (("--job", "coding", "--start", "2020-01-01", "--end", "2020-02-01"), 0),
    (("--job", "coding", "--end", "2120-02-01"), 2),
]


def test_sessions_to_evaluate_are_selected_by_job_role_model_and_time(desk: Command) -> None:
    desk("batch", "talk.yaml")
    desk(*SIMULATE, "--max-turns", "1")
    start = ("evaluate", "start", "--name", "e", "--evaluator", "Builtin.TrajectoryExactOrderMatch")

    for words, sessions in SELECTED:
        done = desk(*start, *words, "--dry-run")
        assert f"{sessions} session{'s'[: sessions != 1]}, " in done.stderr, words


RUNS = {
    "batch": ("batch", "talk.yaml"),
    "simulate": (*SIMULATE, "--max-turns", "1"),
    "tasks": ("batch", "tasks.yaml"),
    "evaluate": (*EVALUATE, "--run", "first"),
}


@pytest.mark.parametrize("name", RUNS)
def test_jsonl_prints_a_record_for_the_launch_each_item_and_the_end(desk: Command, name: str) -> None:
    if name == "evaluate":
        desk("batch", "talk.yaml", "--run-id", "first")
    done = desk(*RUNS[name], "--jsonl")

    launch, *items, end = map(json.loads, done.stdout.splitlines())
    assert (launch["type"], end["type"], {each["type"] for each in items}) == ("launch", "done", {"item"})
    assert len(items) == launch["itemCount"]
    assert {(each["runId"], each["status"]) for each in items} == {(launch["runId"], "success")}


def test_a_run_that_reached_its_budget_says_how_to_resume_and_resumes(desk: Command) -> None:
    (desk.folder / "dear.yaml").write_text(
        "runId: dear\nconcurrency: 1\nprices: {scripted/two: {input: 0, output: 10000}}\n"
        "matrix: [{prompt: hello, model: scripted/two, runs: 2, settings: {max_tokens: 1}}]\n"
    )

    halted = desk("batch", "dear.yaml", "--budget", "0.01")

    assert halted.returncode == 3
    assert halted.stderr.splitlines()[-2:] == [
        "The budget is reached: $0.010 spent.",
        "Resume with:  proctor resume dear --budget USD",
    ]
    resumed = desk("resume", "dear", "--budget", "1", "--concurrency", "3", "--jsonl")
    assert resumed.returncode == 0, resumed.stderr
    launch, item, end = map(json.loads, resumed.stdout.splitlines())
    assert (launch["itemCount"], item["status"], end["successCount"]) == (2, "success", 2)
    row, _ = stored(desk)
    assert row["budgetUsd"] == 1.0


@pytest.fixture
def worked(desk: Command) -> tuple[Command, dict[str, str]]:
    """Two sessions of a repository that were kept; their IDs by prompt."""
    script = [
        {"write": {"path": "b.txt", "content": "b\n"}},
        {"run": "git add . && git commit -qm own"},
        {"write": {"path": "c.txt", "content": "c\n"}},
    ]
    hostile = {"write": {"path": "d.txt", "content": "d\x1b[31m\n"}}
    other = {"repo": "shop", "prompt": "Other", "script": [hostile]}
    plan = {"runId": "two", "defaults": {"agent": "scripted", "keep": "always"}}
    plan["matrix"] = [{"repo": "shop", "prompt": "Fix it", "script": script}, other]
    (desk.folder / "two.yaml").write_text(json.dumps(plan))
    assert desk("batch", "two.yaml").returncode == 0
    return desk, {item["prompt"]: item["sessionId"] for item in desk.json("show", "two")["items"]}


def git(desk: Command, *words: str) -> str:
    who = ("-c", "user.name=U", "-c", "user.email=u@x")
    command = ["git", "-C", str(desk.folder / "shop"), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_sessions_are_shown_squashed_rebased_and_merged(worked: tuple[Command, dict[str, str]]) -> None:
    desk, sessions = worked
    fix = sessions["Fix it"]
    assert desk.json("show", fix) == desk.json("sessions", "show", fix)
    assert desk("show", fix, "--full").stdout == desk("sessions", "show", fix, "--full").stdout
    assert desk("sessions", "diff", fix, "--name-only").stdout == "b.txt\nc.txt\n"
    assert "2 files changed, 2 insertions(+)" in desk("sessions", "diff", fix, "--stat").stdout
    patch = desk("sessions", "diff", fix).stdout
    assert "\n+++ b/b.txt\n@@ -0,0 +1 @@\n+b\n" in patch
    assert patch in desk.json("sessions", "diff", fix).values()
    assert "Fix it" in desk("sessions", "log", fix).stdout
    # A patch is written unchanged, but on a terminal no text of an agent may control it.
    assert "\n+d\x1b[31m\n" in desk("sessions", "diff", sessions["Other"]).stdout
    shown = desk.on_terminal("sessions", "diff", sessions["Other"]).stdout
    assert "\n+d" in shown and "\x1b" not in shown

    squashed = desk("sessions", "squash", fix, "--message", "All of it", "--json")
    document = json.loads(squashed.stdout)
    branch = document["branch"]
    assert (document["sessionId"], document["commitSha"]) == (fix, git(desk, "rev-parse", branch).strip())
    assert squashed.stderr == f"{branch} is now one commit, {document['commitSha'][:12]}\n"
    git(desk, "branch", "release")
    git(desk, "commit", "--quiet", "--allow-empty", "-m", "moved")

    rebased = desk("sessions", "rebase", fix, "--onto", "main")
    assert rebased.stderr == f"{branch} is rebased onto main, at {git(desk, 'rev-parse', branch)[:12]}\n"
    assert git(desk, "log", "--format=%s", branch).splitlines()[:2] == ["All of it", "moved"]

    merged = desk("sessions", "merge", fix, "--onto", "release", "--message", "Release it", "--json")
    assert merged.returncode == 0, merged.stderr
    document = json.loads(merged.stdout)
    assert (document["result"], document["conflictFiles"]) == ("success", [])
    assert git(desk, "log", "-1", "--format=%s %H", "release") == f"Release it {document['commitSha']}\n"
    assert desk.json("show", fix)["merge_history"][0]["result"] == "success"
    assert desk("sessions", "cleanup", fix).returncode == 0
    assert desk("sessions", "merge", sessions["Other"], "--no-check").returncode == 0
    assert git(desk, "log", "--format=%s", "main").splitlines()[:2] == ["Other", "moved"]


def test_a_session_that_conflicts_is_not_merged_and_its_files_are_named(
    worked: tuple[Command, dict[str, str]],
) -> None:
    desk, sessions = worked
    (desk.folder / "shop" / "d.txt").write_text("other\n")
    git(desk, "add", "d.txt")
    git(desk, "commit", "--quiet", "-m", "moved")

    merged = desk("sessions", "merge", sessions["Other"], "--json")
    rebased = desk("sessions", "rebase", sessions["Other"], "--json")

    assert (merged.returncode, json.loads(merged.stdout)["conflictFiles"]) == (1, ["d.txt"])
    assert rebased.returncode == 1 and "d.txt" in rebased.stderr
    assert git(desk, "log", "-1", "--format=%s", "main") == "moved\n"


def test_branches_stay_or_go_with_what_is_cleaned_up(worked: tuple[Command, dict[str, str]]) -> None:
    desk, sessions = worked
    trees = desk.folder / "proctor-home" / "worktrees"
    assert len(list(trees.iterdir())) == 2

    cleaned = desk("sessions", "cleanup", sessions["Other"], "--branches", "--yes", "--json")
    assert json.loads(cleaned.stdout) == {"sessions": [sessions["Other"]], "kept": []}
    assert [path.name for path in trees.iterdir()] == [sessions["Fix it"]]
    assert len(git(desk, "branch", "--list", "batch/*").splitlines()) == 1
    assert desk("delete", "two", "--yes", "--keep-branches").stderr.startswith("two deleted; 0 session")
    assert len(git(desk, "branch", "--list", "batch/*").splitlines()) == 1
    assert list(trees.iterdir()) == []


def test_a_quick_check_of_the_store_reads_no_texts(desk: Command) -> None:
    prompt = "Please. " * 10_000
    (desk.folder / "long.yaml").write_text(f"matrix: [{{prompt: {prompt}, model: scripted/echo}}]\n")
    assert desk("batch", "long.yaml").returncode == 0
    with closing(sqlite3.connect(desk.folder / "proctor-home" / "proctor.db")) as database:
        assert database.execute("UPDATE blobs SET data = x'00'").rowcount == 1
        database.commit()

    checked = desk("store", "check")
    assert (checked.returncode, "long texts that are damaged" in checked.stdout) == (1, True)
    (example,) = desk.json("store", "check")["problems"][0]["examples"]
    assert f"\n         {example}\n" in checked.stdout
    assert desk("store", "check", "--quick").returncode == 0


def access_of(started: Any, *, as_json: bool) -> dict[str, str]:
    """The variables that a gateway prints when it can be called."""
    if as_json:
        document = json.loads("".join(iter(started.stdout.readline, "}\n")) + "}")
        assert document["url"] in document["variables"]["OPENAI_BASE_URL"] and document["token"]
        return dict(document["variables"])
    variables = dict[str, str]()
    while not {"OPENAI_BASE_URL", "OPENAI_API_KEY"} <= variables.keys():
        name, value = started.stdout.readline().removeprefix("export ").strip().split("=", 1)
        variables[name] = value
    return variables


@pytest.mark.parametrize(
    ("number", "as_json"), [(signal.SIGINT, False), (signal.SIGTERM, False), (signal.SIGHUP, True)]
)
def test_a_gateway_answers_with_its_model_until_it_is_told_to_stop(
    desk: Command, number: int, as_json: bool
) -> None:
    words = ("gateway", "--model", "scripted/two", "--record", "calls.jsonl", *["--json"][:as_json])
    started = desk.start(*words, separate_errors=True)
    variables = access_of(started, as_json=as_json)
    request = urllib.request.Request(
        f"{variables['OPENAI_BASE_URL']}/chat/completions",
        data=json.dumps({"model": "any", "messages": [{"role": "user", "content": "1+1?"}]}).encode(),
        headers={
            "Authorization": f"Bearer {variables['OPENAI_API_KEY']}",
            "Content-Type": "application/json",
        },
    )
    with urllib.request.urlopen(request, timeout=TIME_LIMIT_SECONDS) as response:
        assert json.load(response)["choices"][0]["message"]["content"] == "2"

    started.send_signal(number)
    _, notes = started.communicate(timeout=TIME_LIMIT_SECONDS)

    assert started.returncode == 0
    assert (desk.folder / "calls.jsonl").stat().st_size > 0
    (session,) = desk.json("sessions", "list")["sessions"]
    assert (session["status"], session["totalTokens"]) == ("success", 3)
    listening, other, call, total, following = notes.splitlines()[-5:]
    assert listening.startswith("Listening. Set these variables for an agent.")
    assert other == "note: asked for the model `any`, was given `scripted/two`"
    assert call.startswith("scripted/two  2 in (0 cached), 1 out  $0.00  ")
    assert total == "1 call, 2 tokens in (0 cached), 1 out, $0.00"
    assert following == f"Next:  proctor show {session['id']}"
