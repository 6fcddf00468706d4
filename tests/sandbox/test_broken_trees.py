"""What an agent does to its own worktree is its own failure, or none: never an error that does not count."""

import json
import os
from pathlib import Path

import pytest

from commands import Command
from proctor.errors import AgentError, AttemptError, WorkspaceError, blame_agent, is_of_the_machine
from proctor.git import GitError
from proctor.sandbox import problem_of
from proctor.testing import make_git_repository

# 9,000 characters: longer than a path may be.
DEEP = "python3 -c \"import os; [(os.mkdir('x' * 200), os.chdir('x' * 200)) for _ in range(45)]\""
BROKEN = ("fail", "workspace_broken")
DONE = ("success", "completed")
TREES = {
    "a folder with a path of 9,000 characters": (DEEP, DONE),
    "a deep folder in HOME": (f"cd ~; {DEEP}", DONE),
    "a file of 1 TB": ("mkdir -p a/b; truncate -s 1T a/b/sparse", BROKEN),
    "an ignored file of 1 TB": ("echo sparse > .gitignore; truncate -s 1T sparse", DONE),
    "unreadable files and folders": ("mkdir a; echo 1 > a/b; chmod 0 a/b a; echo 1 > c; chmod 0 c", DONE),
    "pipes and sockets": (
        "mkfifo pipe; touch f; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('socket')\"",
        DONE,
    ),
    "names that are not text": (r"touch $'\xff\xfe' $'new\nline' $'tab\t\"' -- -rf", DONE),
    "links in circles": ("ln -s . here; ln -s loop loop; ln -s / root", DONE),
    "folders without permissions": ("chmod 0 ~/tmp ~ ../git .", DONE),
    "its tree removed": ("rm -rf .git * ../git/*", DONE),
}


def run_items(
    proctor: Command, items: list[dict[str, object]], **variables: str
) -> dict[str, tuple[str, str]]:
    """Run a batch of items in one repository; how each ended, by its prompt."""
    repository = make_git_repository(proctor.folder / "shop", {"shop.py": "total = 1\n"})
    usual = {"repo": str(repository), "sandbox": "bubblewrap"}
    plan = {"runId": "trees", "concurrency": 2, "matrix": [usual | item for item in items]}
    (proctor.folder / "plan.yaml").write_text(json.dumps(plan))

    proctor("batch", "plan.yaml", environment=variables)

    with proctor.open_store() as store:
        rows = store.read.items("trees", limit=100)
    return {row["prompt"]: (row["status"], row["reason"]) for row in rows}


def test_an_item_counts_whatever_the_agent_made_of_its_tree(proctor: Command, tmp_path: Path) -> None:
    if problem := problem_of("bubblewrap"):
        pytest.skip(problem)

    ends = run_items(
        proctor,
        [
            {"prompt": name, "command": ["bash", "-c", script], "scriptCommand": "true"}
            for name, (script, _) in TREES.items()
        ],
    )

    assert ends == {name: end for name, (_, end) in TREES.items()}
    deleted = proctor("delete", "trees", "--yes")
    assert deleted.returncode == 0, deleted.stderr
    assert list((tmp_path / "proctor-home" / "worktrees").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "is_agents"),
    [
        (OSError(36, "File name too long"), True),
        (OSError(13, "Permission denied"), True),
        (OSError(28, "No space left on device"), False),
        (OSError(5, "Input/output error"), False),
        (RecursionError("too deep"), True),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"), True),
        (GitError(("add",), 128, "fatal: cannot add"), True),
        (GitError(("add",), 128, "fatal: write error: No space left on device"), False),
        (GitError(("add",), 124, "still running after 300 s"), True),
        (GitError(("add",), -9, ""), False),
        (WorkspaceError("committing", reason="workspace_broken"), True),
    ],
)
def test_a_failure_in_the_agents_tree_is_the_agents_unless_the_machine_failed(error, is_agents):
    with pytest.raises(AttemptError) as raised, blame_agent("committing"):
        raise error
    assert type(raised.value) is (AgentError if is_agents else WorkspaceError)
    assert raised.value.reason == "workspace_broken" and is_of_the_machine(error) is not is_agents
    assert raised.value.status == ("fail" if is_agents else "error")


DEEPER = "python3 -c \"import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(1200)]\""
ADAPTERS = {
    # What Proctor's own process does in the tree and HOME for an agent, and what is in its way there.
    "builtin": (
        {"model": "scripted/lists"},
        "",
        [
            {"after": 2, "reply": "Done."},
            {"after": 1, "tool": {"name": "list_files", "arguments": {}}},
            {"tool": {"name": "run", "arguments": {"command": f"echo 1 > new; {DEEPER}"}}},
        ],
    ),
    "aider": (
        {"model": "scripted/ok"},
        f"echo 1 > new; mkdir .aider.tags.cache.v9; cd .aider.tags.cache.v9; {DEEPER}",
        [],
    ),
    "opencode": (
        {"model": "scripted/ok", "setup": "rm -rf ~/.config; ln -s {user} ~/.config"},
        "echo 1 > new",
        [],
    ),
    "amp": (
        {"login": "mine", "setup": "rm -rf ~/.local; ln -s {user} ~/.local"},
        "echo 1 > new; rm -rf ~/.local/share/amp/*; mkdir ~/.local/share/amp/secrets.json",
        [],
    ),
}


def test_an_item_counts_whatever_is_in_the_way_of_its_adapter(proctor: Command, tmp_path: Path) -> None:
    if problem := problem_of("bubblewrap"):
        pytest.skip(problem)
    user = tmp_path / "user"
    (user / ".local/share/amp").mkdir(parents=True)
    (user / ".local/share/amp/secrets.json").write_text("{}")
    (tmp_path / "bin").mkdir()
    items = []
    for agent, (settings, program, rules) in ADAPTERS.items():
        if rules:
            (tmp_path / "lists.yaml").write_text(json.dumps(rules))
        (tmp_path / "bin" / agent).write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit\n{program}\n')
        (tmp_path / "bin" / agent).chmod(0o755)
        setup = str(settings.get("setup", "true")).format(user=user)
        items.append(
            {"prompt": agent, "agent": agent, "scriptCommand": "test -e new", **settings, "setup": setup}
        )

    ends = run_items(proctor, items, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}", HOME=str(user))

    assert ends == dict.fromkeys(ADAPTERS, DONE)
    assert [path.relative_to(user) for path in user.rglob("*") if path.is_file()] == [
        Path(".local/share/amp/secrets.json")
    ]
    assert sorted(path.name for path in user.iterdir()) == [".local"]
