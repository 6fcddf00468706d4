"""A coding batch from plan to report, by the command line alone: every documented command."""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

from commands import Command
from proctor.store import RetrySelection
from proctor.testing import eventually, make_git_repository
from waiting import TIME_LIMIT_SECONDS

FIXES = (
    "script: [{say: on it}, {edit: {path: shop.py, find: 1 - 1, replace: 1 + 1}}, "
    "{usage: {input: 90, output: 10}}]"
)
BREAKS = "script: [{write: {path: shop.py, content: 'total = 0'}}]"
CHECK = "scriptCommand: \"python3 -c 'import shop; assert shop.total == 2'\""


PLAN = (
    f"runId: nightly\nconcurrency: 2\ndefaults:\n  baseBranch: main\n  {CHECK}\nmatrix:\n"
    f"  - repo: shop\n    prompt: Mend the total\n    model: gpt-4o\n    {FIXES}\n"
    f"  - repo: shop\n    prompt: Mend the total\n    model: gpt-5\n    {BREAKS}\n"
)


@pytest.fixture
def plan(tmp_path: Path, repository: Path) -> Path:
    """Two items: one agent mends the shop, the other does not."""
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="module")
def done(tmp_path_factory, command_server):
    """The command, after the plan has been run once, for tests that change nothing."""
    folder = tmp_path_factory.mktemp("nightly")
    repository = make_git_repository(folder / "shop", {"shop.py": "total = 1 - 1\n"})
    (repository / "mine.txt").write_text("not committed")
    (folder / "plan.yaml").write_text(PLAN)
    before = state_of(repository)
    proctor = Command(folder, command_server)
    proctor.ran = proctor("batch", "plan.yaml", "--json")
    assert state_of(repository) == before, "the user's checkout is left alone"
    return proctor


def state_of(repository: Path) -> tuple[object, ...]:
    """What a run of an agent must not change."""
    head, status = git(repository, "rev-parse", "HEAD"), git(repository, "status", "--porcelain")
    return head, status, (repository / ".git/config").read_bytes()


def git(repository: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(repository), *words], check=True, capture_output=True, text=True
    ).stdout


# Running


def test_a_dry_run_lists_the_items_and_starts_nothing(proctor, plan, repository):
    before = git(repository, "for-each-ref")
    shown = proctor.json("batch", "plan.yaml", "--dry-run")
    assert (shown["runId"], shown["dryRun"], shown["itemCount"]) == ("nightly", True, 2)
    assert [item["model"] for item in shown["items"]] == ["gpt-4o", "gpt-5"]
    assert len({item["id"] for item in shown["items"]}) == 2
    assert git(repository, "for-each-ref") == before
    assert proctor.json("runs") == {"runs": []}


def test_a_batch_ends_with_what_it_came_to(done):
    told = json.loads(done.ran.stdout)
    assert done.ran.returncode == 1
    counts = ("itemCount", "successCount", "failCount", "timeoutCount", "errorCount")
    assert [told[name] for name in counts] == [2, 1, 1, 0, 0]
    assert (told["runId"], told["status"], told["tokensTotal"]) == ("nightly", "completed", 100)
    assert [failure["reason"] for failure in told["failures"]] == ["checks_failed"]


def test_the_users_repository_gets_branches_and_nothing_else(done):
    listed = git(done.folder / "shop", "for-each-ref", "--format=%(refname:short)", "refs/heads")
    branches = listed.split()
    assert len(branches) == 3
    assert all(name == "main" or name.startswith("batch/mend-the-total/2") for name in branches)


def test_a_run_that_exists_is_not_started_again(done):
    again = done("batch", "plan.yaml")
    assert again.returncode == 2
    assert "already a run called nightly" in again.stderr
    assert "--resume" in again.stderr


def test_a_finished_run_is_extended_by_what_is_new_in_its_plan(proctor, plan):
    proctor("batch", "plan.yaml")
    plan.write_text(f"{PLAN}  - repo: shop\n    prompt: Mend the total\n    model: o3\n    {FIXES}\n")
    ran = proctor("batch", "plan.yaml", "--resume", "--json")
    told = json.loads(ran.stdout)
    assert (told["itemCount"], told["successCount"]) == (3, 2)
    assert "new because of" in ran.stderr
    assert "model" in ran.stderr
    assert len(proctor.json("sessions", "list")["sessions"]) == 3


def test_what_passes_is_merged_when_asked_to_and_never_pushed(proctor, plan, repository):
    assert proctor("batch", "plan.yaml", "--merge-on-pass").returncode == 1
    assert (repository / "shop.py").read_text() == "total = 1 + 1\n"
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "log", "--format=%s", "-1").strip() == "Mend the total"


def test_two_passing_items_whose_changes_conflict_are_merged_once(proctor, tmp_path, repository):
    def entry(name: str, other: str, total: str) -> str:
        # Both agents have started from the same commit before either is merged.
        meet = f"touch {tmp_path}/{name}; until test -e {tmp_path}/{other}; do :; done"
        return f"  - {{repo: shop, prompt: {name}, command: \"{meet}; echo 'total = {total}' > shop.py\"}}\n"

    (tmp_path / "plan.yaml").write_text(
        "runId: both\nconcurrency: 2\ndefaults:\n  baseBranch: main\n  mergeOnPass: true\n  sandbox: none\n"
        f"  {CHECK}\nmatrix:\n{entry('add', 'multiply', '1 + 1')}{entry('multiply', 'add', '2 * 1')}"
    )

    ran = proctor("batch", "plan.yaml")

    items = {item["merge"]: item for item in proctor.json("show", "both")["items"]}
    merged, left = items["success"], items["conflict"]
    # A conflict is no failure of the agent.
    assert (ran.returncode, left["status"]) == (0, "success")
    assert git(repository, "log", "--format=%s").splitlines() == [merged["prompt"], "first"]
    assert git(repository, "status", "--porcelain") == ""
    # The work that could not be merged stays on its branch.
    totals = {"add": "total = 1 + 1\n", "multiply": "total = 2 * 1\n"}
    branch = proctor.json("show", left["sessionId"])["branch"]
    assert (repository / "shop.py").read_text() == totals[merged["prompt"]]
    assert git(repository, "show", f"{branch}:shop.py") == totals[left["prompt"]]


def test_a_base_branch_that_moved_while_the_agent_worked_keeps_its_commit(proctor, tmp_path, repository):
    moves = f"git -C {repository} -c user.name=a -c user.email=a@b commit -q --allow-empty -m meanwhile"
    (tmp_path / "plan.yaml").write_text(
        f"runId: moved\ndefaults:\n  baseBranch: main\n  mergeOnPass: true\n  sandbox: none\n  {CHECK}\n"
        f"matrix:\n  - repo: shop\n    prompt: Mend\n    command: \"{moves} && echo 'total = 2' > shop.py\"\n"
    )

    assert proctor("batch", "plan.yaml").returncode == 0

    assert git(repository, "log", "--format=%s").splitlines() == ["Mend", "meanwhile", "first"]
    assert (repository / "shop.py").read_text() == "total = 2\n"


# Stopping


class Sleepers:
    """A plan of three items that leave a process behind and wait, until a file says otherwise."""

    def __init__(self, folder: Path) -> None:
        # Seconds no other test sleeps, so that our processes can be told from theirs.
        self.seconds = 100_000 + uuid.uuid4().int % 800_000
        self.go = folder / "go"
        command = f"test -e {self.go} && touch done && exit; "
        command += f"echo half > half.txt; setsid sleep {self.seconds} & sleep 60"
        (folder / "long.yaml").write_text(
            "runId: long\nconcurrency: 2\nmatrix:\n"
            f"  - {{repo: shop, prompt: [a, b, c], command: '{command}'}}\n"
        )

    @property
    def alive(self) -> int:
        listed = subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True).stdout
        return listed.splitlines().count(f"sleep {self.seconds}")


@pytest.fixture
def sleepers(tmp_path: Path, repository: Path) -> Sleepers:
    return Sleepers(tmp_path)


def test_a_run_is_aborted_from_another_process_and_nothing_is_left_running(proctor, sleepers):
    running = proctor.start("batch", "long.yaml")
    eventually(lambda: sleepers.alive == 2)
    told = proctor.json("abort-run", "long")
    assert told == {"runId": "long", "status": "aborted"}
    assert running.wait(TIME_LIMIT_SECONDS) == 3
    assert sleepers.alive == 0
    shown = proctor.json("show", "long")
    assert {(item["status"], item["reason"]) for item in shown["items"]} == {("error", "aborted")}


def test_runs_of_one_plan_at_the_same_time_keep_the_branches_of_each_other(proctor, repository):
    writes = "cat /proc/sys/kernel/random/uuid > id.txt"
    entry = {"repo": "shop", "agent": "command", "command": writes}
    matrix = [{**entry, "prompt": f"Write ID {number}"} for number in range(8)]
    plan = {"concurrency": 4, "defaults": {"scriptCommand": "test -s id.txt"}, "matrix": matrix}
    (proctor.folder / "both.yaml").write_text(json.dumps(plan))
    running = [proctor.start("batch", "both.yaml", "--run-id", name) for name in ("first", "second")]

    assert [process.wait(TIME_LIMIT_SECONDS) for process in running] == [0, 0]
    sessions = proctor.json("sessions", "list")["sessions"]
    written = [git(repository, "show", f"{row['branch']}:id.txt") for row in sessions]
    assert len(set(written)) == 16


def test_a_session_branch_that_somebody_else_has_moved_is_not_overwritten(proctor, repository):
    theirs = "git -c user.name=U -c user.email=u@example.org commit-tree -m theirs -p main 'main^{tree}'"
    move = f"git update-ref $(git for-each-ref --format='%(refname)' refs/heads/batch) $({theirs})"
    command = f"echo ours > ours.txt; cd {repository} && {move}"
    entry = {"repo": "shop", "agent": "command", "prompt": "Go", "command": command, "sandbox": "none"}
    (proctor.folder / "moved.yaml").write_text(json.dumps({"runId": "moved", "matrix": [entry]}))

    assert proctor("batch", "moved.yaml").returncode == 1

    [item] = proctor.json("show", "moved")["items"]
    assert (item["status"], item["reason"]) == ("error", "publish_failed")
    [session] = proctor.json("sessions", "list")["sessions"]
    assert git(repository, "log", "-1", "--format=%s", session["branch"]).strip() == "theirs"


def test_ctrl_c_stops_cleanly_and_resume_finishes_the_rest(proctor, sleepers):
    running = proctor.start("batch", "long.yaml")
    eventually(lambda: sleepers.alive == 2)
    running.send_signal(signal.SIGINT)
    assert running.wait(TIME_LIMIT_SECONDS) == 130
    assert sleepers.alive == 0
    assert proctor.json("runs")["runs"][0]["status"] == "interrupted"
    sleepers.go.touch()
    assert proctor("batch", "long.yaml", "--resume").returncode == 0
    attempts = [row["attempt"] for row in proctor.json("sessions", "list")["sessions"]]
    assert sorted(attempts) == [1, 1, 1, 2, 2]


def test_a_second_ctrl_c_ends_the_command_at_once(proctor, sleepers, tmp_path):
    plan = tmp_path / "long.yaml"
    # Whoever does not stop when told to is given some seconds.
    plan.write_text(plan.read_text().replace("echo half", "trap : TERM INT; echo half"))
    running = proctor.start("batch", "long.yaml")
    eventually(lambda: sleepers.alive == 2)
    running.send_signal(signal.SIGINT)
    note = "Stopping running items… Press Ctrl-C again to quit now.\n"
    assert any(line == note for line in running.stdout)
    running.send_signal(signal.SIGINT)

    assert running.wait(TIME_LIMIT_SECONDS) == 130
    items = proctor.json("show", "long")["items"]
    assert [item["status"] for item in items] == ["running", "running", "queued"], "nothing was tidied up"
    eventually(lambda: sleepers.alive == 0)


def test_a_killed_resume_leaves_no_worktree_and_keeps_what_killed_attempts_had_done(
    proctor, sleepers, tmp_path, repository
):
    """Killed three times: in the batch, in a resume before it has cleared up, and in a resume at work."""
    home = Path(proctor.environment["PROCTOR_HOME"])
    gone = f"{socket.gethostname()}:1:1:x"
    for command in (("batch", "long.yaml"), ("resume", "long")):
        running = proctor.start(*command)
        eventually(lambda: sleepers.alive == 2)
        running.kill()
        running.wait()
        eventually(lambda: sleepers.alive == 0)
        assert len(list((home / "worktrees").iterdir())) == 2
        # What a resume does first; killed here, it clears up nothing.
        with proctor.open_store() as store:
            left = store.resume_batch("long", gone, RetrySelection(), datetime.now(UTC))
        assert len(left) >= 2
    sleepers.go.touch()

    assert proctor("resume", "long").returncode == 0

    assert list((home / "worktrees").iterdir()) == []
    sessions = proctor.json("sessions", "list")["sessions"]
    killed = [row for row in sessions if row["status"] == "error"]
    assert (len(sessions), len(killed)) == (7, 4)
    for row in killed:
        assert git(repository, "show", f"{row['branch']}:half.txt") == "half\n"


# Looking


def test_runs_items_and_sessions_can_be_shown(done):
    assert "nightly" in done("runs").stdout
    run = done.json("show", "nightly")
    item = next(item for item in run["items"] if item["status"] == "success")
    assert done.json("show", item["id"])["attempts"][0]["id"] == item["sessionId"]
    session = done.json("show", item["sessionId"])
    assert session["branch"].startswith("batch/mend-the-total/")
    assert [message["role"] for message in session["messages"]] == ["user", "assistant"]
    assert session["iterations"][0]["testResult"] == "pass"
    shown = done("show", item["sessionId"]).stdout
    assert "on it" in shown and "\n  mock session (scripted or replayed)\n" in shown
    assert done("show", "nightly", "--status", "fail").stdout.count("checks_failed") == 1


def test_runs_and_their_items_fit_a_terminal_of_80_columns_and_name_the_next_commands(done):
    narrow = {"COLUMNS": "80"}
    runs, run = done("runs", environment=narrow), done("show", "nightly", environment=narrow)

    lines = (runs.stdout + runs.stderr + run.stdout + run.stderr).splitlines()
    assert max(map(len, lines)) <= 80
    assert "AGE" in runs.stdout.splitlines()[0]
    assert "Next:  proctor show nightly" in runs.stderr
    assert "Next:  proctor show nightly --status fail" in run.stderr
    assert "checks_failed" in done("show", "nightly").stdout, "a pipe gets every column"


def test_all_live_runs_are_shown_with_what_their_items_do(proctor, sleepers):
    assert proctor.json("top") == {"runs": []}
    assert "No live runs" in proctor("top").stderr
    running = proctor.start("batch", "long.yaml")
    eventually(lambda: sleepers.alive == 2)

    (live,) = proctor.json("top")["runs"]
    assert (live["runId"], live["status"], live["counts"]["running"]) == ("long", "running", 2)
    assert len(live["running"]) == 2
    assert proctor.json("watch")["runs"][0]["runId"] == "long"
    assert proctor("top").stdout.splitlines()[1].startswith("long ")
    refused = proctor("sessions", "cleanup", "--run", "long")
    assert refused.returncode == 2 and "the run is still running" in refused.stderr
    assert proctor("abort-run", "long").stderr == "long aborted\n"
    assert running.wait(TIME_LIMIT_SECONDS) == 3


def test_every_documented_export_works(done, tmp_path):
    export = lambda *words: done("export", "--out", str(tmp_path / "out"), *words)  # noqa: E731
    assert export("--run", "nightly", "--format", "json").returncode == 0
    tables = json.loads((tmp_path / "out/batch-nightly.json").read_text())
    assert {"sessions", "iterations", "tool_calls", "batches", "batch_items"} <= tables.keys()
    assert [item["status"] for item in tables["batch_items"]] == ["success", "fail"]
    assert export("--run", "nightly", "--format", "csv").returncode == 0
    with (tmp_path / "out/tool_calls-nightly.csv").open(newline="") as file:
        assert {row["toolName"] for row in csv.DictReader(file)} == {"edit", "write"}
    sessions = [row["id"] for row in tables["sessions"]]
    assert export("--sessions", sessions[0], "--format", "json").returncode == 0
    only = json.loads((tmp_path / "out/export.json").read_text())
    assert [row["id"] for row in only["sessions"]] == [sessions[0]]
    assert len(only["batch_items"]) == 1
    assert export("--start-date", "2024-01-01", "--end-date", "2024-01-31").returncode == 0
    assert json.loads((tmp_path / "out/export.json").read_text())["sessions"] == []
    assert export("--run", "nightly", "--format", "parquet").returncode == 0
    assert (tmp_path / "out/sessions-nightly.parquet").read_bytes()[:4] == b"PAR1"


def test_every_documented_report_works(done, tmp_path):
    text = done("report", "--run", "nightly").stdout
    for title in ("Summary", "Model Usage", "Token Analysis", "Tool Usage", "Performance", "Batch Results"):
        assert title in text
    assert "scripted or replayed models" in text
    page = tmp_path / "report.html"
    assert done("report", "--run", "nightly", "--format", "html", "--out", str(page)).returncode == 0
    assert "<svg" in page.read_text()
    ids = ",".join(row["id"] for row in done.json("sessions", "list")["sessions"])
    assert done("report", "--sessions", ids, "--format", "md").returncode == 0
    assert done("report", "--start-date", "2024-01-01", "--end-date", "2024-01-31").returncode == 0


def test_deleting_a_run_takes_only_what_is_its_own(proctor, plan, repository):
    for run_id in ("nightly", "other"):
        proctor("batch", "plan.yaml", "--run-id", run_id)
    git(repository, "branch", "batch/mine/by-hand")
    assert proctor("delete", "nightly").returncode == 2, "it asks first, and nobody is here to answer"
    assert len(proctor.json("runs")["runs"]) == 2
    assert proctor("delete", "nightly", "--yes").returncode == 0
    assert [run["runId"] for run in proctor.json("runs")["runs"]] == ["other"]
    branches = git(repository, "for-each-ref", "--format=%(refname:short)", "refs/heads/batch").split()
    assert len(branches) == 3
    assert "batch/mine/by-hand" in branches


def test_the_end_is_told_by_a_command_of_the_users(proctor, plan, tmp_path):
    plan.write_text("notify: 'echo \"$PROCTOR_RUN $PROCTOR_STATUS\" > told'\n" + plan.read_text())
    proctor("batch", "plan.yaml")
    assert (tmp_path / "told").read_text() == "nightly completed\n"


# Bad input


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ("timeout_secs: 5", "Mend the total", "timeoutSec"),
        ("baseBranch: mian", "baseBranch: main", "main"),
        ('scriptCommand: "no-such-program x"', CHECK, "no-such-program"),
    ],
)
def test_what_is_wrong_is_said_at_its_place_before_anything_starts(
    proctor, plan, repository, wrong, right, said
):
    if wrong.startswith("timeout"):
        wrong = f"{right}\n    {wrong}"
    plan.write_text(plan.read_text().replace(right, wrong, 1))
    ran = proctor("batch", "plan.yaml")
    assert ran.returncode == 2
    assert "plan.yaml:" in ran.stderr
    assert said in ran.stderr
    assert "batch/" not in git(repository, "for-each-ref")
    assert not (proctor.folder / "proctor-home").exists()


@pytest.mark.parametrize(("words", "unbuffered"), [(["--help"], "1"), (["runs", "--json"], "")])
def test_a_reader_who_has_gone_is_no_problem(proctor, words, unbuffered):
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, "-m", "proctor", *words],
        stdout=writes,
        stderr=subprocess.PIPE,
        env=proctor.environment | {"PYTHONUNBUFFERED": unbuffered},
        timeout=TIME_LIMIT_SECONDS,
    )
    os.close(writes)

    assert (done.returncode, done.stderr) == (0, b"")


def test_times_models_and_unchecked_items_are_told_apart(proctor, repository):
    usage = '{"type": "usage", "model": "other-1", "input_tokens": 5, "output_tokens": 5}'
    agent = f"sh {proctor.folder}/agent.sh"
    (proctor.folder / "agent.sh").write_text(f"echo done > result\necho '{usage}'\n")
    (proctor.folder / "plan.yaml").write_text(
        f"runId: parts\ndefaults: {{setup: sleep 0.5, command: '{agent}', model: asked-1}}\n"
        f"matrix:\n- {{repo: {repository}, prompt: One., scriptCommand: test -f result}}\n"
        f"- {{repo: {repository}, prompt: Two.}}\n"
    )

    done = proctor("batch", "plan.yaml")

    assert done.returncode == 0
    assert "1 of 2 items succeeded, 1 unchecked" in done.stderr
    sessions = proctor.json("sessions", "list", "--run", "parts")["sessions"]
    for session in sessions:
        assert session["setupSeconds"] >= 0.5 and session["agentSeconds"] > 0
        assert session["workSeconds"] > session["setupSeconds"] + session["agentSeconds"]
        assert session["answeredModel"] == "other-1"
    assert sorted(session["checkSeconds"] is None for session in sessions) == [False, True]
    report = json.loads(proctor("report", "--run", "parts", "--format", "json").stdout)
    assert report["otherModels"] == [{"requested": "asked-1", "answered": "other-1", "items": 2}]
    assert (report["success"]["runs"], report["unchecked"], report["counts"]["success"]) == (1, 1, 2)
    assert report["seconds"]["value"] <= max(session["agentSeconds"] for session in sessions)
    page = proctor("report", "--run", "parts", "--format", "html").stdout
    assert "asked-1 was requested, other-1 answered (2 items)" in page and "1 unchecked" in page
    assert "unchecked" in proctor("show", "parts").stdout
