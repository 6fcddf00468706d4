"""A session is followed from another process while its agent works."""

import json
import sys

from proctor.testing import eventually

COMMAND = "echo starting; until test -e {go}; do sleep 0.05; done; echo 'done' > a.txt; echo finished"


def start(proctor, tmp_path):
    """A run whose agent waits for a file; its session."""
    (tmp_path / "plan.yaml").write_text(
        "runId: long\ndefaults: {baseBranch: main, sandbox: none, scriptCommand: cat a.txt}\n"
        f'matrix: [{{repo: shop, prompt: Wait, command: "{COMMAND.format(go=tmp_path / "go")}"}}]\n'
    )
    running = proctor.start("batch", "plan.yaml")
    folders = tmp_path / "proctor-home/worktrees"
    log = eventually(lambda: next(iter(folders.glob("*/output.log")), None))
    return running, log


def test_output_is_shown_as_it_is_printed_and_then_how_the_session_ended(proctor, tmp_path, repository):
    running, log = start(proctor, tmp_path)
    session = log.parent.name

    following, head = proctor.start("attach", session), ""
    while "starting" not in (line := following.stdout.readline()):
        assert line, "it ended before the agent did"
        head += line
    assert "finished" not in head
    (tmp_path / "go").touch()

    shown = head + following.stdout.read()
    assert following.wait(60) == 0
    assert "worktree" in shown and str(log.parent / "work" / "shop") in shown
    assert "finished" in shown and "check: pass" in shown and f"session {session} success" in shown
    running.wait(60)
    assert not log.exists()
    lines = proctor("attach", session, "--jsonl").stdout.splitlines()
    assert json.loads(lines[0])["content"]["text"] == "Wait"


LISTENER = """
import json, sys
print("reading")
for line in sys.stdin:
    text = json.loads(line)["message"]["content"][0]["text"]
    open("heard.txt", "a").write(f"{text}\\n")
    if text != "Wait":
        print(json.dumps({"type": "result", "result": "Done"}), flush=True)
"""


def listen(proctor, tmp_path, *, messages):
    """A run whose agent reads messages until one was answered, if the plan says so; its session."""
    (tmp_path / "listener.py").write_text(LISTENER)
    reads = [sys.executable, "-u", str(tmp_path / "listener.py")]
    command = reads if messages else COMMAND.format(go=tmp_path / "never")
    item = {"repo": "shop", "prompt": "Wait", "command": command, "settings": {"messages": messages}}
    defaults = {"baseBranch": "main", "sandbox": "none"}
    # JSON is YAML.
    plan = {"runId": "long", "defaults": defaults, "matrix": [item]}
    (tmp_path / "plan.yaml").write_text(json.dumps(plan))
    running = proctor.start("batch", "plan.yaml")
    folders = tmp_path / "proctor-home/worktrees"
    log = eventually(lambda: next(iter(folders.glob("*/output.log")), None))
    return running, log.parent.name


def test_a_message_reaches_an_agent_that_reads_them_and_is_recorded(proctor, tmp_path, repository):
    running, session = listen(proctor, tmp_path, messages=True)

    attached = proctor("attach", session, "--message", "Use a decimal")

    assert attached.returncode == 0, attached.stderr
    assert running.wait(60) == 0
    record = json.loads(proctor("show", session, "--json").stdout)
    assert [each["content"] for each in record["messages"]] == ["Wait", "Use a decimal", "Done"]
    assert record["interventions"] == 1 and record["notes"] == ["message: Use a decimal"]
    assert "+Use a decimal" in proctor("sessions", "diff", session).stdout
    late = proctor("attach", session, "--message", "One more")
    assert late.returncode == 2 and "does not work on this machine" in late.stderr


def test_one_session_is_stopped_and_its_work_can_be_taken_over(proctor, tmp_path, repository):
    running, session = listen(proctor, tmp_path, messages=False)
    refused = proctor("attach", session, "--message", "Hurry")
    assert refused.returncode == 2 and "--stop" in refused.stderr

    stopped = proctor("attach", session, "--stop")

    assert stopped.returncode == 1 and "worktree add FOLDER batch/wait/" in stopped.stderr
    running.wait(60)
    (item,) = json.loads(proctor("show", "long", "--json").stdout)["items"]
    assert (item["status"], item["reason"]) == ("error", "aborted")
