"""An agent that tries to escape. `escape_agent.py TARGETS_JSON REPORT` writes which tries succeeded.

Each try is a function whose name says what it would achieve; it raises when it fails. Uses only the standard
library: it runs confined, where the tests' own code is not visible.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
NUMBERS = {"unshare": (272, 97), "bpf": (321, 280), "keyctl": (250, 219)}
CLONE_NEWUSER = 0x10000000
PTRACE_ATTACH, PTRACE_DETACH, MS_REMOUNT, MS_BIND = 16, 17, 32, 4096


def read_keys_in_the_environment(targets):
    """Of Proctor, or of any other process that has them."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and folder.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                if targets["secret"].encode() in (folder / "environ").read_bytes():
                    targets["read"] = (folder / "cmdline").read_text()[:300]
                    return
    raise PermissionError("no readable process has the secret")


def read_memory_of_proctor(targets):
    folder = Path(f"/proc/{targets['proctor']}")
    with (folder / "mem").open("rb"):
        if not (folder / "maps").read_text():
            raise PermissionError("its maps are empty")


def trace_proctor(targets):
    if LIBC.ptrace(PTRACE_ATTACH, targets["proctor"], 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(targets["proctor"], 0x40000000)
    LIBC.ptrace(PTRACE_DETACH, targets["proctor"], 0, 0)


def read_the_store(targets):
    Path(targets["store"]).read_bytes()


def alter_its_result(targets):
    connection = sqlite3.connect(f"file:{targets['store']}?mode=rw", uri=True)
    connection.execute("UPDATE batch_items SET status = 'success'")
    connection.commit()


def read_ssh_keys(targets):
    (Path(targets["home"]) / ".ssh" / "id_ed25519").read_text()


def list_the_home_of_the_user(targets):
    if not {".ssh", "notes.txt"} & {path.name for path in Path(targets["home"]).iterdir()}:
        raise FileNotFoundError("nothing of the user's is there")


def read_passwords(targets):
    if not Path("/etc/shadow").read_text():
        raise PermissionError("it is empty")


def read_another_tree(targets):
    Path(targets["other_tree"]).read_text()


def read_the_checkout_of_the_user(targets):
    (Path(targets["repository"]) / "uncommitted.txt").read_text()


def write_a_hook_of_the_user(targets):
    (Path(targets["repository"]) / ".git" / "hooks" / "post-commit").write_text("#!/bin/sh\n")


def write_objects_of_the_user(targets):
    (Path(targets["repository"]) / ".git" / "objects" / "escaped").write_text("x")


def write_to_the_home_of_the_user(targets):
    with (Path(targets["home"]) / "notes.txt").open("r+") as file:
        file.write("escaped")


def write_to_the_system(targets):
    file = Path("/usr/local/escaped")
    file.write_text("x")
    # The control without a sandbox succeeds, and must leave nothing on the machine.
    file.unlink()


def write_another_tree(targets):
    Path(targets["other_tree"]).write_text("escaped")


def remount_the_system_writable(targets):
    if LIBC.mount(b"none", b"/usr", None, MS_REMOUNT | MS_BIND, None):
        raise OSError(ctypes.get_errno(), "mount")


def name_a_program_for_the_kernel_to_run(targets):
    """It runs this program outside of every sandbox when a process crashes."""
    file = Path("/proc/sys/kernel/core_pattern")
    # Unchanged: the control without a sandbox succeeds, and must leave nothing on the machine.
    file.write_text(file.read_text())


def system_call(name, *arguments):
    """Make a system call by its number here; raises when it fails."""
    number = NUMBERS[name][os.uname().machine == "aarch64"]
    if LIBC.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def become_root_in_a_namespace(targets):
    """In a child: whoever is there stays there."""
    child = os.fork()
    if child == 0:
        try:
            system_call("unshare", CLONE_NEWUSER)
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    if failure := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise OSError(failure, "unshare")


def load_data_into_the_kernel(targets):
    """A map of `bpf`: type, size of keys, size of values, number."""
    system_call("bpf", 0, (ctypes.c_uint32 * 32)(1, 4, 4, 1), 128)


def use_keys_in_the_kernel(targets):
    system_call("keyctl", 0, -4, 1)


def reach_another_port_on_loopback(targets):
    socket.create_connection(("127.0.0.1", targets["port"]), timeout=3).close()


def reach_another_address(targets):
    socket.create_connection((targets["address"], targets["port"]), timeout=3).close()


def send_datagrams(targets):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"escaped", ("127.0.0.1", targets["datagram_port"]))
        udp.connect(("192.0.2.1", 53))


def reach_an_abstract_socket(targets):
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(targets["abstract_socket"])


def reach_a_socket_in_a_folder(targets):
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(targets["socket"])


def signal_proctor(targets):
    os.kill(targets["proctor"], signal.SIGWINCH)
    if f"{targets['marker']}" not in Path(f"/proc/{targets['proctor']}/cmdline").read_text():
        raise ProcessLookupError("another process has this id here")


def signal_a_sibling(targets):
    os.kill(targets["sibling"], signal.SIGKILL)


def see_other_processes(targets):
    if not Path(f"/proc/{targets['sibling']}/cmdline").read_bytes():
        raise FileNotFoundError("it is not visible")


def survive(targets):
    """A daemon in a session of its own; the test looks for it afterwards."""
    subprocess.run(
        [sys.executable, "-c", DAEMON, targets["daemon"]], start_new_session=True, check=True, close_fds=True
    )


DAEMON = """
import os, sys, time, signal
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        for number in range(3):
            os.close(number)
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]], {})
    os._exit(0)
"""

TRIES = [
    *(read_keys_in_the_environment, read_memory_of_proctor, trace_proctor, read_the_store, alter_its_result),
    *(read_ssh_keys, list_the_home_of_the_user, read_passwords, read_another_tree),
    *(read_the_checkout_of_the_user, write_a_hook_of_the_user, write_objects_of_the_user),
    *(write_to_the_home_of_the_user, write_to_the_system, write_another_tree, remount_the_system_writable),
    name_a_program_for_the_kernel_to_run,
    *(become_root_in_a_namespace, load_data_into_the_kernel, use_keys_in_the_kernel),
    *(reach_another_port_on_loopback, reach_another_address, send_datagrams, reach_an_abstract_socket),
    *(reach_a_socket_in_a_folder, see_other_processes, signal_proctor, signal_a_sibling, survive),
]


def main():
    targets = json.loads(sys.argv[1])
    report = {}
    for attempt in TRIES:
        try:
            attempt(targets)
            report[attempt.__name__] = "succeeded"
        except Exception as error:
            report[attempt.__name__] = f"{type(error).__name__}: {error}"
    Path(sys.argv[2]).write_text(json.dumps([report, targets.get("read", "")]))
    print(json.dumps({"type": "message", "role": "assistant", "text": "I tried."}))


if __name__ == "__main__":
    main()
