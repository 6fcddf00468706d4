"""An agent that tries to escape fails at each probe, in each kind of sandbox, as root and as a user."""

import ctypes
import json
import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from commands import Command
from proctor.sandbox import problem_of
from proctor.store import Scope
from proctor.testing import make_git_repository
from waiting import TIME_LIMIT_SECONDS

AGENT = Path(__file__).with_name("escape_agent.py")
MANUAL = Path(__file__).parents[2] / "docs" / "isolation.md"
SECRET = "sk-canary-5f2c9d1e7a"
DAEMON = "proctor-test-daemon"
NOBODY = 65534
NOT_STOPPED = {
    # It has ended all the same: the test looks for it.
    "bubblewrap": {"survive"},
    "landlock": {
        "survive",
        "see_other_processes",
        "reach_a_socket_in_a_folder",
        "reach_a_socket_of_another_attempt",
        "read_a_file_in_shared_memory",
        "write_a_file_in_shared_memory",
        "watch_the_home_of_the_user",
        "see_that_a_file_of_the_user_exists",
        "change_permissions_of_a_file_of_the_user",
        "change_times_of_a_file_of_the_user",
        "change_attributes_of_a_file_of_the_user",
        "change_the_group_of_a_file_of_the_user",
    },
}
"""Probes that a kind of sandbox does not stop, as docs/isolation.md says."""
CERTAIN = """
alter_its_result bind_another_process_to_a_core change_the_limits_of_another_process
change_the_priority_of_another_process connect_by_fast_open exchange_a_file_of_the_user
follow_a_link_to_the_home link_a_file_of_the_user make_a_folder_in_the_home_of_the_user
make_a_pipe_in_the_home_of_the_user make_a_socket_in_the_home_of_the_user
queue_a_signal_for_another_process reach_a_message_queue reach_an_abstract_socket
reach_another_port_on_loopback reach_shared_memory read_another_tree read_files_beside_its_program
read_ssh_keys read_the_home_by_a_program_in_memory read_the_home_by_a_relative_path
read_the_home_by_openat2 read_the_home_from_the_root_of_its_parents read_the_plan
read_the_project_behind_a_link_on_the_path read_the_screen_of_the_user read_the_store
read_the_terminal_of_the_user remove_a_file_of_the_user rename_its_session send_to_an_abstract_socket
shorten_a_file_of_the_user signal_a_sibling signal_another_process_by_a_descriptor
signal_another_process_by_input signal_its_supervisor write_a_hook_of_the_user write_beside_its_session
write_to_the_terminal_of_the_user
"""
"""Further probes that succeed without a sandbox on every machine."""
LIBC = ctypes.CDLL(None, use_errno=True)
IPC_CREAT, IPC_RMID = 0o1000, 0


@dataclass(frozen=True)
class User:
    """Who runs Proctor."""

    name: str
    python: str
    popen: dict[str, Any] = field(default_factory=dict)
    """Arguments of `subprocess` that make it so."""

    def give(self, *paths: Path | str) -> None:
        """Make files and folders those of the user."""
        for path in paths if self.popen else ():
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def python_of_nobody() -> str:
    """An interpreter that an ordinary user can run with Proctor; empty: there is none."""
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            ended = subprocess.run(
                [
                    python,
                    "-c",
                    "import subprocess, sys, proctor; subprocess.run([sys.executable, '-V'], check=True)",
                ],
                env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                capture_output=True,
                check=False,
            )
        except OSError:
            continue
        if ended.returncode == 0:
            return python
    return ""


@pytest.fixture(params=["root", "user"])
def user(request: pytest.FixtureRequest) -> User:
    is_root = os.geteuid() == 0
    if request.param == ("root" if is_root else "user"):
        return User(request.param, sys.executable)
    if not is_root:
        pytest.skip("the tests do not run as root")
    if not (python := python_of_nobody()):
        pytest.skip("an ordinary user cannot run this Python")
    return User("user", python, {"user": NOBODY, "group": NOBODY, "extra_groups": []})


@pytest.fixture
def targets(tmp_path: Path, user: User, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """What an agent must not reach: the user's files, terminals, other processes, sockets, shared memory."""
    home, unique = tmp_path / "user", f"proctor-test-{os.getpid()}-{random.SystemRandom().randrange(10**9)}"
    for name, text in {
        ".ssh/id_ed25519": SECRET,
        "notes.txt": "mine",
        "secret-project/.env": SECRET,
        "secret-project/run.sh": "#!/bin/sh\n",
        "agent/.env": SECRET,
        "agent/.removable": "mine",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / "secret-project/run.sh").chmod(0o755)
    (home / "bin").mkdir()
    (home / "bin/tool").symlink_to(home / "secret-project/run.sh")
    shutil.copy(AGENT, home / "agent")
    other = tmp_path / "proctor-home" / "worktrees" / "other" / "shop"
    other.mkdir(parents=True)
    (other / "solution.py").write_text("secret")
    repository = make_git_repository(home / "shop", {"shop.py": "total = 1\n"})
    (repository / "uncommitted.txt").write_text("mine")
    memory, temporary = Path("/dev/shm", unique), Path("/var/tmp", unique)
    key = random.SystemRandom().randrange(1, 2**31)
    with ExitStack() as stack:
        for file in (memory, temporary):
            file.write_text("mine")
            stack.callback(file.unlink)
        listener = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        datagrams = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", 0))
        names = [f"\0{unique}", str(home / "link"), str(other / "link")]
        for name in names:
            link = stack.enter_context(socket.socket(socket.AF_UNIX))
            link.bind(name)
            link.listen(5)
        messages = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        messages.bind(f"\0{unique}-datagrams")
        segment, queue = LIBC.shmget(key, 4096, IPC_CREAT | 0o666), LIBC.msgget(key, IPC_CREAT | 0o666)
        stack.callback(LIBC.shmctl, segment, IPC_RMID, None)
        stack.callback(LIBC.msgctl, queue, IPC_RMID, None)
        posix = ctypes.CDLL("librt.so.1")
        posix.mq_open(f"/{unique}".encode(), os.O_RDWR | os.O_CREAT, 0o666, None)
        stack.callback(posix.mq_unlink, f"/{unique}".encode())
        near, far = os.openpty()
        stack.callback(os.close, near)
        stack.callback(os.close, far)
        secret = Path("/etc/shadow")
        if os.geteuid() == 0:
            secret = Path(request.getfixturevalue("system_folder"), "secret")
            secret.write_text(SECRET)
            secret.chmod(0o600)
        user.give(tmp_path, *tmp_path.rglob("*"), memory, temporary, os.ttyname(far))
        sibling = subprocess.Popen(
            ["sleep", "600"],
            stdin=(home / "notes.txt").open("rb"),
            cwd=home,
            env={"KEY": SECRET},
            **user.popen,
        )
        stack.callback(sibling.wait)
        stack.callback(sibling.kill)
        yield {
            "secret": SECRET,
            "store": str(tmp_path / "proctor-home" / "proctor.db"),
            "home": str(home),
            "other_tree": str(other / "solution.py"),
            "repository": str(repository),
            "plan": str(tmp_path / "plan.yaml"),
            "port": listener.getsockname()[1],
            "address": own_address(),
            "datagram_port": datagrams.getsockname()[1],
            "abstract_socket": names[0],
            "abstract_datagrams": f"\0{unique}-datagrams",
            "socket": names[1],
            "other_socket": names[2],
            "sibling": sibling.pid,
            "proctor_parent": os.getpid(),
            "terminal": os.ttyname(far),
            "terminal_side": near,
            "ipc_key": key,
            "queue": unique,
            "memory_file": str(memory),
            "temporary_file": str(temporary),
            "linked_secret": str(home / "secret-project/.env"),
            "system_secret": str(secret),
            "marker": "batch",
            "daemon": f"{DAEMON}-{os.getpid()}",
        }


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


def run_escape(proctor: Command, user: User, targets: dict[str, Any], *kinds: str) -> list[dict[str, str]]:
    """Run the agent in each kind of sandbox, in one batch; how each probe ended."""
    starter = (
        "import json, os, subprocess, sys; t = json.loads(sys.argv[1]); t['proctor'] = int(sys.argv[2]);"
        " subprocess.run([sys.executable, sys.argv[3], json.dumps(t), 'report.json'], check=True)"
    )
    agent = str(Path(targets["home"]) / "agent" / AGENT.name)

    def item(kind: str) -> dict[str, Any]:
        # Ignoring the request to end costs the grace period.
        own = {**targets, "ignores": kind == "landlock" and not user.popen}
        return {
            "repo": targets["repository"],
            "prompt": f"Escape from {kind}.",
            # Proctor's own id is known only when it runs: its command line is found by this process.
            "command": [user.python, "-c", starter, json.dumps(own), "PID", agent],
            "sandbox": {"kind": kind, "network": "gateway"},
            "keep": "always",
        }

    plan = {"runId": "escape", "concurrency": len(kinds), "matrix": [item(kind) for kind in kinds]}
    environment = {
        **proctor.environment,
        "HOME": targets["home"],
        "PATH": f"{targets['home']}/bin:{proctor.environment['PATH']}",
        "MY_API_KEY": SECRET,
        **({"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} if user.popen else {}),
    }
    script = (
        "import os, pathlib, sys; p = pathlib.Path(sys.argv[1]);"
        " p.write_text(p.read_text().replace('\"PID\"', '\"%d\"' % os.getpid()));"
        " os.execv(sys.executable, [sys.executable, '-m', 'proctor', 'batch', sys.argv[1]])"
    )
    file = Path(targets["plan"])
    file.write_text(json.dumps(plan))
    user.give(file)
    ended = subprocess.run(
        [user.python, "-c", script, str(file)],
        cwd=proctor.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
        check=False,
        **user.popen,
    )
    assert ended.returncode == 0, ended.stderr
    with proctor.open_store() as store:
        rows = {row["sandbox"]: row for row in store.read.table("sessions", Scope(run_id="escape"))}
    reports = list[dict[str, str]]()
    for kind in kinds:
        tries, process = json.loads(Path(rows[kind]["worktree"], "report.json").read_text())
        assert not process or kind == "none", f"it read the environment of: {process}"
        reports.append(tries)
    return reports


def test_an_agent_cannot_escape(proctor: Command, user: User, targets: dict[str, Any]) -> None:
    problems = {kind: problem_of(kind) for kind in NOT_STOPPED}
    kinds = [kind for kind, problem in problems.items() if not problem]

    reports = run_escape(proctor, user, targets, *kinds)

    for kind, report in zip(kinds, reports, strict=True):
        assert len(report) == 132
        succeeded = {name for name, end in report.items() if end == "succeeded"}
        assert succeeded == NOT_STOPPED[kind], json.dumps(report, indent=1)
    assert not processes_with(targets["daemon"])
    home = Path(targets["home"])
    assert (home / "notes.txt").read_text() == "mine"
    assert not (home / "shop" / ".git" / "hooks" / "post-commit").exists()
    if missing := "; ".join(filter(None, problems.values())):
        pytest.skip(missing)


def test_the_manual_lists_what_is_not_stopped() -> None:
    manual = MANUAL.read_text()
    assert "makes 132 probes" in manual
    assert {name for name in NOT_STOPPED["landlock"] if f"`{name}`" not in manual} == set()


@pytest.mark.parametrize("user", ["user" if os.geteuid() else "root"], indirect=True)
def test_without_a_sandbox_the_same_probes_succeed(proctor, targets, user):
    """So the probes above prove something."""
    [report] = run_escape(proctor, user, targets, "none")

    succeeded = {name for name, end in report.items() if end == "succeeded"}
    certain = {*CERTAIN.split(), *NOT_STOPPED["landlock"]}
    assert certain - succeeded == set(), json.dumps(report, indent=1)
    assert not processes_with(targets["daemon"])
