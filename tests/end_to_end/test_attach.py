"""A session is followed from another process while its agent works."""

import json

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
