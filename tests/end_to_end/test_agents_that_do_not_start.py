"""An agent whose program does not start is no failure of its work."""

import json
from pathlib import Path

import pytest

from commands import Command

NODE = """\
node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module '@openai/codex-linux-x64'
Require stack:
- /usr/lib/node_modules/@openai/codex/bin/codex.js
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15) {
  code: 'MODULE_NOT_FOUND'
}

Node.js v20.20.2
"""
BROKEN = "settings: {gateway: true}, command: [sh, crash.sh]"


class Plans:
    """Runs plans on a repository with a program that crashes as Node.js does."""

    def __init__(self, proctor: Command, repository: Path) -> None:
        self.proctor = proctor

    def run(self, *entries: str, head: str = "", flags: tuple[str, ...] = ()) -> dict[str, object]:
        """The summary and exit code of a run, with its items."""
        defaults = "repo: shop" if "agent:" in entries[0] else "repo: shop, agent: command"
        entries = tuple(each if "prompt:" in each else f"{each}, prompt: go" for each in entries)
        lines = "".join(f"  - {{{defaults}, {each}}}\n" for each in entries)
        plan = self.proctor.folder / "plan.yaml"
        plan.write_text(f"runId: mine\nconcurrency: 1\n{head}matrix:\n{lines}")
        done = self.proctor("batch", "plan.yaml", "--json", *flags)
        shown = json.loads(self.proctor("show", "mine", "--json").stdout)
        return json.loads(done.stdout) | {
            "exitCode": done.returncode,
            "stderr": done.stderr,
            "items": [(item["status"], item["reason"], item["error"]) for item in shown["items"]],
        }


@pytest.fixture
def plans(proctor: Command, repository: Path) -> Plans:
    script = "".join(f"echo '{line}' >&2\n" for line in NODE.replace("'", "'\\''").splitlines())
    (repository / "crash.sh").write_text(f"{script}exit 1\n")
    commit(repository)
    return Plans(proctor, repository)


def made(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(0o755)


def commit(repository: Path) -> None:
    from proctor.git import Git

    git = Git(repository, {"PATH": "/usr/bin:/bin", "HOME": str(repository)})
    git("add", "--all")
    git("-c", "user.name=U", "-c", "user.email=u@example.org", "commit", "--quiet", "-m", "more")


def test_a_program_that_fails_before_its_first_call_is_an_error_with_the_telling_line(plans):
    ran = plans.run(f"{BROKEN}, model: scripted/ok")

    why = "it exited with 1: Error: Cannot find module '@openai/codex-linux-x64'"
    assert ran["items"] == [("error", "agent_start", why)]
    assert (ran["failCount"], ran["errorCount"]) == (0, 1)


def test_a_program_that_cannot_be_executed_is_an_error(plans):
    ran = plans.run("command: true; no-such-agent", "command: ./shop.py", "command: [./shop.py]")

    assert [item[:2] for item in ran["items"]] == [("error", "agent_start")] * 3


def test_a_program_that_never_reaches_the_gateway_is_an_error(plans):
    work = ("echo Please run /login, scriptCommand: 'true'", "sleep 60, timeoutSec: 1")
    ran = plans.run(*(f"settings: {{gateway: true}}, model: scripted/ok, command: {each}" for each in work))

    why = "it ended without a model call: Please run /login"
    too_long = "the agent did not finish within 1 s, and had called no model"
    assert ran["items"] == [("error", "agent_start", why), ("error", "agent_start", too_long)]


def test_an_agent_with_its_own_service_that_fails_before_its_first_call_is_an_error(plans, tmp_path):
    amp = tmp_path / "amp"
    amp.write_text("#!/bin/sh\necho Error: Invalid API key >&2\n[ $1 = --version ]\n")
    amp.chmod(0o755)
    plans.proctor.environment |= {"AMP_BIN": str(amp), "AMP_API_KEY": "sgamp-0123456789"}

    ran = plans.run("agent: amp")

    assert ran["items"] == [("error", "agent_start", "it exited with 1: Error: Invalid API key")]


def test_a_program_that_has_worked_or_calls_models_by_itself_has_failed(plans):
    calls = 'echo \'{"type": "usage", "input_tokens": 1}\'; no-such'
    commands = ("echo x > new.txt; no-such-agent", "exit 3", calls)
    ran = plans.run(*(f"command: {json.dumps(command)}" for command in commands))

    assert [item[:2] for item in ran["items"]] == [("fail", "agent_failed")] * 3


def test_a_check_that_cannot_run_without_the_agents_work_either_is_an_error(plans):
    ends = [
        ("true", ".venv/bin/python -m unittest", ("error", "setup_failed")),
        ("echo x > new.txt", ".venv/bin/python -m unittest", ("error", "setup_failed")),
        ("rm crash.sh; ln -s /nowhere crash.sh", "chmod +x crash.sh; ./crash.sh", ("fail", "checks_failed")),
        ("echo exit 127 > crash.sh", "sh crash.sh", ("fail", "checks_failed")),
        ("echo x > new.txt", "exit 3", ("fail", "checks_failed")),
    ]
    plan = [f"command: {json.dumps(work)}, scriptCommand: {json.dumps(check)}" for work, check, _ in ends]
    ran = plans.run(*plan)

    assert [item[:2] for item in ran["items"]] == [end for *_, end in ends]


def test_a_check_of_a_task_that_cannot_run_without_the_agents_work_either_is_an_error(proctor):
    for name, check in {"missing": ".venv/bin/python -m unittest", "removed": "./run.sh"}.items():
        made(
            proctor.folder / f"tasks/{name}.md",
            f"---\ncheck: {check}\nstart: files\n---\n# Task: {name}\n\nGo.\n",
        )
    made(proctor.folder / "tasks/files/run.sh", "#!/bin/sh\n")

    ended = proctor("bench", "--task", "tasks", "--agent", "a=mv run.sh new.sh", "--json")

    assert ended.returncode == 1, ended.stderr
    items = json.loads(proctor("show", json.loads(ended.stdout)["runId"], "--json").stdout)["items"]
    ends = {item["prompt"].split()[2]: (item["status"], item["reason"]) for item in items}
    assert ends == {"missing": ("error", "setup_failed"), "removed": ("fail", "checks_failed")}


def test_a_setup_that_fails_says_why_in_its_first_line(plans):
    ran = plans.run("command: 'true', setup: sh crash.sh")

    ((status, reason, error),) = ran["items"]
    assert (status, reason) == ("error", "setup_failed")
    assert error.startswith("`sh crash.sh` exited with 1: Error: Cannot find module")


def test_a_run_whose_agent_never_starts_stops_after_three_items_and_can_be_resumed(plans, repository):
    ran = plans.run(f"{BROKEN}, model: scripted/ok, runs: 8")

    assert (ran["status"], ran["reason"], ran["exitCode"]) == ("halted", "agent_start", 3)
    assert (ran["errorCount"], ran["unfinishedCount"]) == (3, 5)
    note = next(line for line in ran["stderr"].splitlines() if line.startswith("note: the agent"))
    assert "`sh crash.sh` did not start in any of 3 items" in note
    assert "Cannot find module '@openai/codex-linux-x64'" in note
    assert "--keep-going" in note
    session = note.split("proctor show ")[1].split()[0]
    assert "Node.js v20" in plans.proctor("show", session, "--output").stdout

    (repository / "crash.sh").write_text("echo x > new.txt\n")
    commit(repository)
    resumed = json.loads(plans.proctor("resume", "mine", "--retry-errors", "--json").stdout)
    assert (resumed["status"], resumed["uncheckedCount"]) == ("completed", 8)


def test_keep_going_runs_all_items(plans):
    ran = plans.run(f"{BROKEN}, model: scripted/ok, runs: 5", flags=("--keep-going",))
    assert (ran["status"], ran["errorCount"], ran["exitCode"]) == ("completed", 5, 1)


def test_an_agent_that_does_not_start_stops_the_run_beside_one_that_does(plans):
    ran = plans.run(
        "command: touch x, runs: 2", "command: true; no-such, runs: 3", "command: touch y, runs: 2"
    )

    assert (ran["status"], ran["reason"]) == ("halted", "agent_start")
    assert (ran["uncheckedCount"], ran["errorCount"], ran["unfinishedCount"]) == (2, 3, 2)


def test_an_agent_that_has_started_once_does_not_stop_the_run(plans):
    command = json.dumps("[ $PROCTOR_PROMPT = well ] && touch x || no-such")
    ran = plans.run(f"command: {command}, prompt: well", f"command: {command}, runs: 5")

    assert (ran["status"], ran["uncheckedCount"], ran["errorCount"]) == ("completed", 1, 5)


def test_a_run_without_further_items_is_completed(plans):
    ran = plans.run("command: true; no-such, runs: 3")

    assert (ran["status"], ran["errorCount"]) == ("completed", 3)


def test_show_prints_the_end_of_the_output_and_all_of_it_on_request(plans):
    says = json.dumps("seq 100; echo worse >&2; exit 3")
    plans.run(f"command: {says}")
    item = json.loads(plans.proctor("show", "mine", "--json").stdout)["items"][0]

    shown = plans.proctor("show", item["sessionId"]).stdout
    assert "── output of the agent (exit code 3)\n… 89 more lines (--output)\n90\n91\n" in shown
    assert "\n100\nworse\n" in shown
    assert "\n".join(map(str, range(1, 101))) in plans.proctor("show", item["sessionId"], "--output").stdout
    # An item: its attempts, and the transcript of the last.
    assert (
        "ATTEMPT  SESSION               STATUS  REASON        WORK"
        in plans.proctor("show", item["id"]).stdout
    )
    assert "── user\ngo\n" in plans.proctor("show", item["id"]).stdout
    assert "\n17\n" in plans.proctor("show", item["id"], "--output").stdout
    refused = plans.proctor("show", "mine", "--output")
    assert (refused.returncode, refused.stdout) == (2, "")


def test_the_output_of_a_setup_and_a_check_is_shown(plans):
    heads = {
        "setup: 'seq 3000; no-such'": "── output of the setup\n$ seq 3000; no-such\n1\n2\n",
        "setup: seq 3000": "── output of the setup\n$ seq 3000\n1\n2\n",
        "scriptCommand: 'seq 3000; exit 2'": "── output of the check (exit code 2)\n1\n2\n",
    }
    plans.run(*(f"command: touch x, {setting}" for setting in heads))
    items = json.loads(plans.proctor("show", "mine", "--json").stdout)["items"]

    for item, head in zip(items, heads.values(), strict=True):
        shown = plans.proctor("show", item["sessionId"], "--output").stdout
        assert head in shown and "\n3000\n" in shown


def test_a_model_failure_that_never_reached_the_gateway_is_an_agent_that_does_not_start(plans, tmp_path):
    """So Codex reports a provider that it cannot reach: it looks like a failure of the model."""
    failed = {"type": "turn.failed", "error": {"message": "stream disconnected before completion"}}
    codex = tmp_path / "codex"
    version = '[ "$1" = --version ] && exec echo codex-cli 0.46.0'
    codex.write_text(f"#!/bin/sh\n{version}\necho '{json.dumps(failed)}'\nexit 1\n")
    codex.chmod(0o755)
    plans.proctor.environment["CODEX_BIN"] = str(codex)

    ran = plans.run("agent: codex, model: scripted/ok")

    assert [item[:2] for item in ran["items"]] == [("error", "agent_start")]
    assert "stream disconnected before completion" in ran["items"][0][2]
