"""An agent that tries to escape fails at each try, in each kind of sandbox."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from commands import Command
from proctor.sandbox import problem_of
from proctor.testing import make_git_repository
from waiting import TIME_LIMIT_SECONDS

AGENT = Path(__file__).with_name("escape_agent.py")
SECRET = "sk-canary-5f2c9d1e7a"
DAEMON = "proctor-test-daemon"
NOT_STOPPED = {
    # It has ended all the same: the test looks for it.
    "bubblewrap": {"survive"},
    "landlock": {"survive", "reach_a_socket_in_a_folder", "see_other_processes"},
}
"""Tries that a kind of sandbox does not stop, as docs/trust.md says."""


@pytest.fixture
def targets(tmp_path: Path) -> Iterator[dict[str, object]]:
    """What an agent must not reach: the user's files, other processes, sockets."""
    user = tmp_path / "user"
    (user / ".ssh").mkdir(parents=True)
    (user / ".ssh" / "id_ed25519").write_text(SECRET)
    (user / "notes.txt").write_text("mine")
    other = tmp_path / "proctor-home" / "worktrees" / "other" / "shop"
    other.mkdir(parents=True)
    (other / "solution.py").write_text("secret")
    repository = make_git_repository(user / "shop", {"shop.py": "total = 1\n"})
    (repository / "uncommitted.txt").write_text("mine")
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", 0))
        abstract, named = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        name = f"\0proctor-test-{os.getpid()}"
        abstract.bind(name)
        named.bind(str(user / "link"))
        for link in (abstract, named):
            link.listen(5)
        sibling = subprocess.Popen(["sleep", "600"])
        try:
            yield {
                "secret": SECRET,
                "store": str(tmp_path / "proctor-home" / "proctor.db"),
                "home": str(user),
                "other_tree": str(other / "solution.py"),
                "repository": str(repository),
                "port": listener.getsockname()[1],
                "address": own_address(),
                "datagram_port": datagrams.getsockname()[1],
                "abstract_socket": name,
                "socket": str(user / "link"),
                "sibling": sibling.pid,
                "marker": "batch",
                "daemon": f"{DAEMON}-{os.getpid()}",
            }
        finally:
            sibling.kill()
            sibling.wait()


def own_address() -> str:
    """An address of this machine that is not on loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        try:
            udp.connect(("192.0.2.1", 53))
        except OSError:
            return "127.0.0.2"
        return str(udp.getsockname()[0])


def processes_with(text: str) -> list[str]:
    """Ids of processes with this text in their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and text.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(folder.name)
        except OSError:
            continue
    return found


def run_escape(proctor: Command, targets: dict[str, object], sandbox: object) -> dict[str, str]:
    """Run the agent in a batch of its own; how each try ended."""
    starter = (
        "import json, os, subprocess, sys; t = json.loads(sys.argv[1]); t['proctor'] = int(sys.argv[2]);"
        " subprocess.run([sys.executable, sys.argv[3], json.dumps(t), 'report.json'], check=True)"
    )
    # Proctor's own id is known only when it runs: its command line is found by this process.
    plan = {
        "runId": "escape",
        "matrix": [
            {
                "repo": targets["repository"],
                "prompt": "Escape.",
                "command": [sys.executable, "-c", starter, json.dumps(targets), "PID", str(AGENT)],
                "sandbox": sandbox,
                "keep": "always",
            }
        ],
    }
    environment = {**proctor.environment, "HOME": str(targets["home"]), "MY_API_KEY": SECRET}
    script = (
        "import os, pathlib, sys; p = pathlib.Path(sys.argv[1]);"
        " p.write_text(p.read_text().replace('\"PID\"', '\"%d\"' % os.getpid()));"
        " os.execv(sys.executable, [sys.executable, '-m', 'proctor', 'batch', sys.argv[1]])"
    )
    file = proctor.folder / "plan.yaml"
    file.write_text(json.dumps(plan))
    ended = subprocess.run(
        [sys.executable, "-c", script, str(file)],
        cwd=proctor.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    report = next((proctor.folder / "proctor-home" / "worktrees").glob("*/shop/report.json"))
    tries, process = json.loads(report.read_text())
    assert not process or sandbox == "none", f"it read the environment of: {process}"
    return dict(tries)


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_an_agent_cannot_escape(proctor: Command, targets: dict[str, object], kind: str) -> None:
    if problem := problem_of(kind):
        pytest.skip(problem)

    report = run_escape(proctor, targets, {"kind": kind, "network": "gateway"})

    assert len(report) == 29
    succeeded = {name for name, end in report.items() if end == "succeeded"}
    assert succeeded == NOT_STOPPED[kind], json.dumps(report, indent=1)
    assert not processes_with(str(targets["daemon"]))
    user = Path(str(targets["home"]))
    assert (user / "notes.txt").read_text() == "mine"
    assert not (user / "shop" / ".git" / "hooks" / "post-commit").exists()


def test_without_a_sandbox_the_same_tries_succeed(proctor: Command, targets: dict[str, object]) -> None:
    """So the tries above prove something."""
    report = run_escape(proctor, targets, "none")

    succeeded = {name for name, end in report.items() if end == "succeeded"}
    assert {"read_the_store", "read_ssh_keys", "reach_another_port_on_loopback"} <= succeeded
    assert {"write_a_hook_of_the_user", "read_another_tree", "alter_its_result"} <= succeeded
    if os.geteuid() == 0:
        # /usr is a mount only in a sandbox. A machine in a container may lack the others.
        kernel = {"become_root_in_a_namespace", "load_data_into_the_kernel", "use_keys_in_the_kernel"}
        assert report.keys() - succeeded - kernel == {"remount_the_system_writable"}
    assert not processes_with(str(targets["daemon"]))


ATTACKS = {
    # git finds its settings, and so the programs it runs, where this file says.
    "commondir": """
        cp -r "$GITDIR" ~/evil; rm -rf ~/evil/worktrees
        git config -f ~/evil/config filter.x.clean "touch $OUTSIDE/escaped; cat"
        echo "$HOME/evil" > "$GITDIR/worktrees/shop/commondir"
        echo '* filter=x' > .gitattributes; echo more >> shop.py
    """,
    # A missing commit is fetched from a promisor, by the program that the settings name.
    "promisor": """
        : > "$GITDIR/objects/info/alternates"
        git config -f "$GITDIR/config" core.repositoryformatversion 1
        git config -f "$GITDIR/config" extensions.partialClone origin
        git config -f "$GITDIR/config" remote.origin.url "$PWD"
        git config -f "$GITDIR/config" remote.origin.promisor true
        git config -f "$GITDIR/config" remote.origin.uploadpack "touch $OUTSIDE/escaped; false"
    """,
    "linked settings": 'rm "$GITDIR/config"; ln -s $OUTSIDE/notes.txt "$GITDIR/config"; echo more >> shop.py',
    "linked index": 'cd "$GITDIR/worktrees/shop"; rm index; ln -s $OUTSIDE/notes.txt index',
    "linked repository": 'mv "$GITDIR" ~/aside; ln -s $OUTSIDE/shop/.git "$GITDIR"; echo more >> shop.py',
    "linked references": 'echo more >> shop.py; cd "$GITDIR/refs"; rm -rf heads; ln -s $OUTSIDE heads',
    "linked tree": "cd ..; mv shop ~/aside; ln -s $OUTSIDE shop",
}
"""What an agent leaves behind for the git that Proctor runs, which is not confined."""


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_agent_cannot_escape_through_proctors_own_git(
    workshop: Any, tmp_path: Path, attack: str
) -> None:
    if problem := problem_of("bubblewrap"):
        pytest.skip(problem)
    outside = tmp_path / "user"
    repository = make_git_repository(outside / "shop", {"shop.py": "total = 1\n"})
    (outside / "notes.txt").write_text("mine")
    settings = (repository / ".git" / "config").read_text()
    script = 'OUTSIDE=%s; GITDIR="$(git rev-parse --path-format=absolute --git-common-dir)"\n%s'
    item = {
        "repo": str(repository),
        "prompt": "Escape.",
        "command": script % (outside, ATTACKS[attack]),
        "sandbox": "bubblewrap",
    }
    await workshop.run(json.dumps({"matrix": [item]}))

    assert not (outside / "escaped").exists()
    assert (outside / "notes.txt").read_text() == "mine"
    assert (repository / ".git" / "config").read_text() == settings
    assert sorted(path.name for path in outside.iterdir()) == ["notes.txt", "shop"]
    assert [path.name for path in repository.iterdir()] in (["shop.py", ".git"], [".git", "shop.py"])
