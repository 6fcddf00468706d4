"""An agent that tries to escape. `escape_agent.py TARGETS_JSON REPORT` writes which probes succeeded.

Each probe is a function whose name says what it would achieve; it raises when it fails. Uses only the
standard library: it runs confined, where the tests' own code is not visible.
"""

# ruff: noqa: PTH102, PTH106, PTH109, PTH123, PTH208
# Many probes are about one system call, which `os` makes and nothing else.

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
NUMBERS = {
    "unshare": (272, 97),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "clone": (56, 220),
    "clone3": (435, 435),
    "process_vm_readv": (310, 270),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "setns": (308, 268),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "syslog": (103, 116),
    "init_module": (175, 105),
    "reboot": (169, 142),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    "fsopen": (430, 430),
    "mq_open": (240, 180),
    "name_to_handle_at": (303, 264),
    "openat2": (437, 437),
    "renameat2": (316, 276),
    "rt_sigqueueinfo": (129, 138),
}
"""Numbers of system calls on x86_64 and aarch64."""
CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x20000
REFUSED = (errno.EPERM, errno.ENOSYS, errno.EACCES)
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


def alter_its_result(targets):
    connection = sqlite3.connect(f"file:{targets['store']}?mode=rw", uri=True)
    connection.execute("UPDATE batch_items SET status = 'success'")
    connection.commit()


def list_the_home_of_the_user(targets):
    if not {".ssh", "notes.txt"} & {path.name for path in Path(targets["home"]).iterdir()}:
        raise FileNotFoundError("nothing of the user's is there")


def write_to_the_system(targets):
    file = Path("/usr/local/escaped")
    file.write_text("x")
    # The control without a sandbox succeeds, and must leave nothing on the machine.
    file.unlink()


def remount_the_system_writable(targets):
    """`/usr` where it is mounted, else the root. Other flags stay: the control must change nothing."""
    for place in ("/usr", "/"):
        flags = os.statvfs(place).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
        if not LIBC.mount(b"none", os.fsencode(place), None, MS_REMOUNT | MS_BIND | flags, None):
            return
    raise OSError(ctypes.get_errno(), "mount")


def system_call(name, *arguments):
    """Make a system call by its number here; raises when it fails."""
    number = NUMBERS[name][os.uname().machine == "aarch64"]
    if LIBC.syscall(number, *arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def reach(name, *arguments):
    """Make a system call; raises when it is refused. Other errors, about its arguments, are a success."""
    try:
        system_call(name, *arguments)
    except OSError as error:
        if error.errno in REFUSED:
            raise


def in_a_child(work):
    """Do what cannot be undone in a child; raises when it fails there."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except OSError as error:
            os._exit(error.errno or 255)
        except BaseException:
            os._exit(255)
        os._exit(0)
    if failure := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise OSError(abs(failure), "in a child")


def mount_a_file_system(targets):
    def mount():
        if LIBC.mount(b"none", os.fsencode(os.getcwd()), b"tmpfs", 0, None):
            raise OSError(ctypes.get_errno(), "mount")
        LIBC.umount2(os.fsencode(os.getcwd()), 2)

    in_a_child(mount)


def send_datagrams(targets):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"escaped", ("127.0.0.1", targets["datagram_port"]))
        udp.connect(("192.0.2.1", 53))


def signal_proctor(targets):
    os.kill(targets["proctor"], signal.SIGWINCH)
    if f"{targets['marker']}" not in Path(f"/proc/{targets['proctor']}/cmdline").read_text():
        raise ProcessLookupError("another process has this id here")


def see_other_processes(targets):
    if not Path(f"/proc/{targets['sibling']}/cmdline").read_bytes():
        raise FileNotFoundError("it is not visible")


def survive(targets):
    """A daemon in a session of its own; the test looks for it afterward."""
    subprocess.run(
        [sys.executable, "-c", DAEMON, targets["daemon"], str(targets["ignores"])],
        start_new_session=True,
        check=True,
        close_fds=True,
    )


def read_memory_of_another_process(targets):
    buffer = ctypes.create_string_buffer(8)
    here = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
    # An address that nobody has: the permission is checked first.
    try:
        system_call("process_vm_readv", targets["sibling"], here, 1, (ctypes.c_size_t * 2)(16, 8), 1, 0)
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise


def trace_another_process(targets):
    if LIBC.ptrace(PTRACE_ATTACH, targets["sibling"], 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(targets["sibling"], 0x40000000)
    LIBC.ptrace(PTRACE_DETACH, targets["sibling"], 0, 0)


def take_a_descriptor_of_another_process(targets):
    process = os.pidfd_open(targets["sibling"])
    system_call("pidfd_getfd", process, 0, 0)


def signal_its_supervisor(targets):
    """The process that reports how this program ended."""
    process = os.getpid()
    while process > 1:
        if b"warden" in Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[3]:
            os.kill(process, signal.SIGWINCH)
            return
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    raise ProcessLookupError("it is not visible")


def inherit_descriptors(targets):
    own = os.open(".", os.O_RDONLY)
    if not {*os.listdir("/proc/self/fd")} - {"0", "1", "2", str(own), str(own + 1)}:
        raise FileNotFoundError("none but the usual")


def connect_over_ipv6(targets):
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as link:
        link.settimeout(3)
        link.connect((f"::ffff:{targets['address']}", targets["port"]))


def make_calls_of_32_bits(targets):
    """`getpid`, by an interrupt."""
    if os.uname().machine != "x86_64":
        raise OSError("not on this machine")
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))

    def enter():
        if call() <= 0:
            raise OSError(errno.ENOSYS, "getpid")

    in_a_child(enter)


def read_what_the_user_types(targets):
    """From the other side: the program that shows the terminal."""
    os.close(os.open(f"/proc/{targets['proctor_parent']}/fd/{targets['terminal_side']}", os.O_RDWR))


def type_for_the_user(targets):
    near, far = os.openpty()
    fcntl.ioctl(far, termios.TIOCSTI, b"x")
    os.close(near)


def make_a_device(targets):
    os.mknod("device", 0o20600, os.makedev(1, 5))
    Path("device").unlink()


def read_memory_of_the_machine(targets):
    for name in ("/dev/mem", "/proc/kcore"):
        with contextlib.suppress(OSError), open(name, "rb") as file:
            if file.read(4):
                return
    raise PermissionError("neither can be read")


def read_messages_of_the_kernel(targets):
    with contextlib.suppress(OSError):
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
        return
    reach("syslog", 3, None, 0)


def make_a_control_group(targets):
    for folder in ("/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"):
        with contextlib.suppress(OSError):
            os.mkdir(f"{folder}/proctor-test")
            os.rmdir(f"{folder}/proctor-test")
            return
    raise PermissionError("none can be made")


def gain_privileges_by_a_program(targets):
    """A program with the set-user-ID bit, or capabilities."""
    if LIBC.prctl(39, 0, 0, 0, 0):
        raise PermissionError("no program gives privileges")


def keep_capabilities(targets):
    status = Path("/proc/self/status").read_text()
    if not int(status.partition("CapEff:")[2].split()[0], 16):
        raise PermissionError("it has none")


def reach_shared_memory(targets):
    """System V."""
    if (number := LIBC.shmget(targets["ipc_key"], 0, 0)) < 0:
        raise OSError(ctypes.get_errno(), "shmget")
    LIBC.shmat.restype = ctypes.c_void_p
    if LIBC.shmat(number, None, 0) == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "shmat")


def reach_a_message_queue(targets):
    if (number := LIBC.msgget(targets["ipc_key"], 0)) < 0:
        raise OSError(ctypes.get_errno(), "msgget")
    if LIBC.msgsnd(number, struct.pack("l8s", 1, b"escaped"), 8, 0):
        raise OSError(ctypes.get_errno(), "msgsnd")


def reach_a_named_queue(targets):
    """POSIX."""
    system_call("mq_open", targets["queue"].encode(), os.O_RDWR, 0, None)


def write_a_file_in_shared_memory(targets):
    with open(targets["memory_file"], "r+") as file:
        file.write("escaped")


def watch_the_home_of_the_user(targets):
    (Path(targets["home"]) / "notes.txt").stat()
    descriptor = LIBC.inotify_init1(os.O_CLOEXEC)
    if LIBC.inotify_add_watch(descriptor, targets["home"].encode(), 0x100) < 0:
        raise OSError(ctypes.get_errno(), "inotify_add_watch")


def link_a_file_of_the_user(targets):
    os.link(Path(targets["home"]) / "notes.txt", "linked")
    Path("linked").unlink()


def follow_a_link_to_the_home(targets):
    Path("way").symlink_to(Path(targets["home"]) / ".ssh" / "id_ed25519")
    try:
        Path("way").read_text()
    finally:
        Path("way").unlink()


def rename_its_session(targets):
    session = Path.cwd().parent
    if session.stat().st_dev != Path.cwd().stat().st_dev:
        raise PermissionError("what is around its tree is a folder of the sandbox alone")
    session.rename(session.with_name("renamed"))
    session.with_name("renamed").rename(session)


def write_beside_its_session(targets):
    # A sandbox may have an empty folder of its own at this place.
    Path(targets["other_tree"]).stat()
    file = Path.cwd().parent.parent / "escaped"
    file.write_text("x")
    file.unlink()


def plant_a_job_for_later(targets):
    places = (
        "/var/spool/cron/crontabs",
        "/var/spool/cron",
        "/etc/cron.d",
        f"{targets['home']}/.config/systemd/user",
    )
    plant(f"{place}/proctor-test" for place in places)


def plant_settings_of_git(targets):
    (Path(targets["home"]) / "notes.txt").stat()
    plant([f"{targets['home']}/.gitconfig"])


def read_the_home_by_a_program_in_memory(targets):
    program = os.memfd_create("program", 0)
    os.write(program, Path("/bin/cat").resolve().read_bytes())
    file = Path(targets["home"]) / "notes.txt"
    subprocess.run([f"/proc/self/fd/{program}", file], pass_fds=[program], capture_output=True, check=True)


def read_the_home_from_the_root_of_its_parents(targets):
    for process in parents():
        with contextlib.suppress(OSError):
            Path(f"/proc/{process}/root{targets['home']}/notes.txt").read_text()
            return
    raise PermissionError("it is in none")


def read_the_home_by_a_handle(targets):
    handle, mount = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 136), ctypes.c_int()
    file = os.fsencode(f"{targets['home']}/notes.txt")
    system_call("name_to_handle_at", -100, file, handle, ctypes.byref(mount), 0)
    folder = os.open(targets["home"], os.O_RDONLY)
    system_call("open_by_handle_at", folder, handle, os.O_RDONLY)


def exchange_a_file_of_the_user(targets):
    """With one of its own; and back."""
    own, file = os.fsencode(Path("own").absolute()), os.fsencode(f"{targets['home']}/notes.txt")
    Path("own").write_text("escaped")
    for _ in range(2):
        system_call("renameat2", -100, own, -100, file, 2)


def make_a_socket_in_the_home_of_the_user(targets):
    (Path(targets["home"]) / "notes.txt").stat()
    with socket.socket(socket.AF_UNIX) as link:
        link.bind(f"{targets['home']}/escaped-socket")


def read_the_screen_of_the_user(targets):
    """`TIOCLINUX`; what is no console says so to whoever may ask."""
    try:
        fcntl.ioctl(os.open("/dev/null", os.O_RDWR), 0x541C, b"\x06")
    except OSError as error:
        if error.errno != errno.ENOTTY:
            raise


def queue_a_signal_for_another_process(targets):
    information = ctypes.create_string_buffer(struct.pack("3i", signal.SIGWINCH, 0, -1), 128)
    system_call("rt_sigqueueinfo", targets["sibling"], int(signal.SIGWINCH), information)


def signal_another_process_by_input(targets):
    """The kernel sends the signal when a socket can be read."""
    near, far = socket.socketpair()
    fcntl.fcntl(near, fcntl.F_SETOWN, targets["sibling"])
    fcntl.fcntl(near, 10, signal.SIGUSR1)
    fcntl.fcntl(near, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    far.send(b"x")
    for _ in range(100):
        if Path(f"/proc/{targets['sibling']}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.01)
    raise PermissionError("it has not ended")


def connect(address, family=socket.AF_INET, protocol=0):
    with socket.socket(family, socket.SOCK_STREAM, protocol) as link:
        link.connect(address)


def send(message, *address):
    """Send with flags to an address of TCP, which connects to it."""
    with socket.socket() as link:
        getattr(link, message)(*address)


def open_one(names, flags):
    """Open the first of some files that is there."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.close(os.open(name, flags | os.O_NOCTTY | os.O_NONBLOCK))
            return
    raise FileNotFoundError("there is none")


def disks():
    return [f"/dev/{line.split()[3]}" for line in Path("/proc/partitions").read_text().splitlines()[2:]]


def read_something(file):
    if not Path(file).read_text():
        raise PermissionError("it is empty")


def write_unchanged(file):
    """The control without a sandbox succeeds, and must leave nothing on the machine."""
    Path(file).write_text(Path(file).read_text())


def with_notes(targets, work):
    """Do something in the user's HOME, if that is the user's: a sandbox may have an empty folder there."""
    (Path(targets["home"]) / "notes.txt").stat()
    work()


def enter_mounts_of(process):
    with open(f"/proc/{process}/ns/mnt") as file:
        in_a_child(lambda: system_call("setns", file.fileno(), 0))


def has_the_secret(targets):
    if not any(targets["secret"] in value for value in os.environ.values()):
        raise KeyError("none has the secret")


def parents():
    """Ids of this process's parents that are visible, the nearest first."""
    processes = [os.getppid()]
    while processes[-1] > 1:
        status = Path(f"/proc/{processes[-1]}/stat").read_text()
        processes.append(int(status.rpartition(")")[2].split()[1]))
    return processes


def plant(files):
    for name in files:
        with contextlib.suppress(OSError):
            Path(name).write_text("")
            Path(name).unlink()
            return
    raise PermissionError("none can be written")


DAEMON = """
import os, sys, time, signal
if os.fork() == 0:
    os.setsid()
    if sys.argv[2] == "True":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        for number in range(3):
            os.close(number)
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]], {})
    os._exit(0)
"""

FAST_OPEN = 0x20000000
SHORT = {
    "reach_an_abstract_socket": lambda t: connect(t["abstract_socket"], socket.AF_UNIX),
    "reach_a_socket_in_a_folder": lambda t: connect(t["socket"], socket.AF_UNIX),
    "reach_a_socket_of_another_attempt": lambda t: connect(t["other_socket"], socket.AF_UNIX),
    "connect_by_multipath_tcp": lambda t: connect(("127.0.0.1", t["port"]), protocol=262),
    "connect_by_sctp": lambda t: connect(("127.0.0.1", t["port"]), protocol=132),
    "connect_by_fast_open": lambda t: send("sendto", b"escaped", FAST_OPEN, ("127.0.0.1", t["port"])),
    "connect_by_fast_open_with_a_message": lambda t: send(
        "sendmsg", [b"escaped"], [], FAST_OPEN, ("127.0.0.1", t["port"])
    ),
    "send_to_an_abstract_socket": lambda t: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(
        b"escaped", t["abstract_datagrams"]
    ),
    "read_the_console": lambda t: open_one(
        [f"/dev/{name}" for name in ("console", "tty1", "vcs1", "vcsa1", "fb0", "input/event0")], os.O_RDONLY
    ),
    "read_the_disk": lambda t: open_one(disks(), os.O_RDONLY),
    "change_settings_of_a_device": lambda t: open_one(
        [
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "/sys/power/state",
            "/sys/module/printk/parameters/time",
        ],
        os.O_WRONLY,
    ),
    "open_a_device_of_the_machine": lambda t: open_one(
        [
            f"/dev/{name}"
            for name in ("net/tun", "kvm", "fuse", "loop-control", "uinput", "vhost-vsock", "hwrng")
        ],
        os.O_RDWR,
    ),
    "read_passwords": lambda t: read_something("/etc/shadow"),
    "read_private_files_of_installed_programs": lambda t: read_something(t["system_secret"]),
    "find_keys_in_its_own_environment": has_the_secret,
    "make_a_folder_in_the_home_of_the_user": lambda t: with_notes(
        t, lambda: os.mkdir(f"{t['home']}/escaped-folder")
    ),
    "make_a_pipe_in_the_home_of_the_user": lambda t: with_notes(
        t, lambda: os.mkfifo(f"{t['home']}/escaped-pipe")
    ),
    "write_to_the_home_of_the_user": lambda t: os.write(
        os.open(f"{t['home']}/notes.txt", os.O_RDWR), b"escaped"
    ),
    "change_settings_of_the_kernel": lambda t: write_unchanged("/proc/sys/vm/swappiness"),
    # The kernel runs it outside of every sandbox when a process crashes.
    "name_a_program_for_the_kernel_to_run": lambda t: write_unchanged("/proc/sys/kernel/core_pattern"),
    # A map of `bpf`: type, size of keys, size of values, number.
    "load_data_into_the_kernel": lambda t: system_call("bpf", 0, (ctypes.c_uint32 * 32)(1, 4, 4, 1), 128),
    # With a wrong number: whoever may do it is told so.
    "restart_the_machine": lambda t: reach("reboot", 0, 0, 0, None),
    "enter_a_namespace_of_another_process": lambda t: enter_mounts_of(t["sibling"]),
    "make_a_namespace_by_clone": lambda t: in_a_child(
        lambda: system_call("clone", CLONE_NEWUSER, 0, 0, 0, 0)
    ),
    "make_a_namespace_by_clone3": lambda t: in_a_child(
        lambda: system_call("clone3", struct.pack("11Q", CLONE_NEWUSER, *[0] * 10), 88)
    ),
    "read_the_home_by_openat2": lambda t: system_call(
        "openat2", -100, os.fsencode(f"{t['home']}/notes.txt"), struct.pack("3Q", os.O_RDONLY, 0, 0), 24
    ),
    # Or of the first process of its sandbox: the parent of the program that started this one.
    "write_memory_of_its_supervisor": lambda t: open(f"/proc/{parents()[1]}/mem", "r+b").close(),
    "read_the_store": lambda t: Path(t["store"]).read_bytes(),
    "read_ssh_keys": lambda t: Path(t["home"], ".ssh/id_ed25519").read_text(),
    "read_another_tree": lambda t: Path(t["other_tree"]).read_text(),
    "read_the_checkout_of_the_user": lambda t: Path(t["repository"], "uncommitted.txt").read_text(),
    "write_a_hook_of_the_user": lambda t: Path(t["repository"], ".git/hooks/post-commit").write_text(
        "#!/bin/sh\n"
    ),
    "write_objects_of_the_user": lambda t: Path(t["repository"], ".git/objects/escaped").write_text("x"),
    "write_another_tree": lambda t: Path(t["other_tree"]).write_text("escaped"),
    "become_root_in_a_namespace": lambda t: in_a_child(lambda: system_call("unshare", CLONE_NEWUSER)),
    "make_a_namespace_of_mounts": lambda t: in_a_child(lambda: system_call("unshare", CLONE_NEWNS)),
    "change_the_root": lambda t: in_a_child(lambda: os.chroot(".")),
    "open_a_file_system": lambda t: system_call("fsopen", b"tmpfs", 0),
    "open_a_file_by_its_handle": lambda t: reach("open_by_handle_at", -1, None, 0),
    "use_keys_in_the_kernel": lambda t: system_call("keyctl", 0, -4, 1),
    "reach_another_port_on_loopback": lambda t: socket.create_connection(
        ("127.0.0.1", t["port"]), timeout=3
    ).close(),
    "reach_another_address": lambda t: socket.create_connection((t["address"], t["port"]), timeout=3).close(),
    "signal_a_sibling": lambda t: os.kill(t["sibling"], signal.SIGKILL),
    "read_the_home_through_another_process": lambda t: Path(
        f"/proc/{t['sibling']}/root{t['home']}/notes.txt"
    ).read_text(),
    "read_a_descriptor_of_another_process": lambda t: Path(f"/proc/{t['sibling']}/fd/0").read_text(),
    "list_the_folder_of_another_process": lambda t: os.listdir(f"/proc/{t['sibling']}/cwd"),
    "change_the_limits_of_another_process": lambda t: resource.prlimit(
        t["sibling"], resource.RLIMIT_CORE, (0, 0)
    ),
    "change_the_priority_of_another_process": lambda t: os.setpriority(os.PRIO_PROCESS, t["sibling"], 19),
    "bind_another_process_to_a_core": lambda t: os.sched_setaffinity(
        t["sibling"], os.sched_getaffinity(t["sibling"])
    ),
    "offer_another_process_to_the_memory_killer": lambda t: Path(
        f"/proc/{t['sibling']}/oom_score_adj"
    ).write_text("1000"),
    "open_a_raw_socket": lambda t: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close(),
    "open_a_packet_socket": lambda t: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close(),
    "open_a_socket_to_the_host": lambda t: socket.socket(40, socket.SOCK_STREAM).close(),
    "open_a_socket_of_the_kernels_crypto": lambda t: socket.socket(
        socket.AF_ALG, socket.SOCK_SEQPACKET
    ).close(),
    "open_a_bluetooth_socket": lambda t: socket.socket(31, socket.SOCK_RAW, 1).close(),
    "list_sockets_of_the_machine": lambda t: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4).close(),
    "read_the_audit_log": lambda t: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9).close(),
    "open_an_io_ring": lambda t: reach("io_uring_setup", 1, None),
    "handle_page_faults": lambda t: system_call("userfaultfd", 1),
    "open_performance_counters": lambda t: reach("perf_event_open", None, 0, -1, -1, 0),
    "load_a_module_into_the_kernel": lambda t: reach("init_module", None, 0, None),
    "watch_all_files": lambda t: system_call("fanotify_init", 0, 0),
    "read_the_terminal_of_the_user": lambda t: os.close(
        os.open(t["terminal"], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    ),
    "write_to_the_terminal_of_the_user": lambda t: os.close(
        os.open(t["terminal"], os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    ),
    "press_keys_of_the_kernel": lambda t: os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY)),
    "set_the_clock": lambda t: time.clock_settime(time.CLOCK_REALTIME, time.time()),
    "set_the_name_of_the_machine": lambda t: socket.sethostname(socket.gethostname()),
    "raise_its_limits": lambda t: resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)),
    "read_a_file_in_shared_memory": lambda t: Path(t["memory_file"]).read_text(),
    "read_temporary_files_of_others": lambda t: Path(t["temporary_file"]).read_text(),
    "see_that_a_file_of_the_user_exists": lambda t: Path(t["home"], ".ssh/id_ed25519").stat(),
    "change_permissions_of_a_file_of_the_user": lambda t: Path(t["home"], "notes.txt").chmod(0o600),
    "change_times_of_a_file_of_the_user": lambda t: os.utime(Path(t["home"]) / "notes.txt", (1, 1)),
    "shorten_a_file_of_the_user": lambda t: os.truncate(Path(t["home"]) / "notes.txt", 0),
    "read_the_plan": lambda t: Path(t["plan"]).read_text(),
    "read_the_project_behind_a_link_on_the_path": lambda t: Path(t["linked_secret"]).read_text(),
    "read_files_beside_its_program": lambda t: Path(__file__).with_name(".env").read_text(),
    "plant_a_program_on_the_path": lambda t: plant(
        f"{place}/proctor-test" for place in os.environ["PATH"].split(":") if place
    ),
    "plant_a_library": lambda t: plant(["/etc/ld.so.conf.d/proctor-test.conf"]),
    "plant_start_up_code_of_python": lambda t: plant(
        f"{place}/proctor_test.pth"
        for place in sys.path
        if "site-packages" in place or "dist-packages" in place
    ),
    "read_the_home_by_a_relative_path": lambda t: Path(
        f"/proc/self/cwd/{'../' * 40}{t['home']}/notes.txt"
    ).read_text(),
    "remove_a_file_of_the_user": lambda t: Path(t["home"], "agent/.removable").unlink(),
    "change_attributes_of_a_file_of_the_user": lambda t: os.setxattr(
        f"{t['home']}/notes.txt", "user.escaped", b"x"
    ),
    "change_the_group_of_a_file_of_the_user": lambda t: os.chown(f"{t['home']}/notes.txt", -1, os.getgid()),
    "make_a_user_of_the_machine": lambda t: os.close(os.open("/etc/passwd", os.O_WRONLY | os.O_APPEND)),
    "signal_another_process_by_a_descriptor": lambda t: signal.pidfd_send_signal(
        os.pidfd_open(t["sibling"]), signal.SIGWINCH
    ),
}
"""Probes of one call each."""

HELPERS = """
main parents plant reach system_call in_a_child connect send open_one disks read_something write_unchanged
with_notes enter_mounts_of has_the_secret
"""


def main():
    targets = json.loads(sys.argv[1])
    report = {}
    functions = {name: value for name, value in globals().items() if hasattr(value, "__code__")}
    helpers = set(HELPERS.split())
    probes = SHORT | {name: probe for name, probe in functions.items() if name not in helpers}
    # Others leave descriptors open, and need the process that one of them kills.
    order = {
        "inherit_descriptors": 0,
        "signal_another_process_by_input": 2,
        "signal_a_sibling": 3,
        "survive": 3,
    }
    for name, probe in sorted(probes.items(), key=lambda probe: order.get(probe[0], 1)):
        try:
            probe(targets)
            report[name] = "succeeded"
        except Exception as error:
            report[name] = f"{type(error).__name__}: {error}"
    Path(sys.argv[2]).write_text(json.dumps([report, targets.get("read", "")]))
    print(json.dumps({"type": "message", "role": "assistant", "text": "I tried."}))


if __name__ == "__main__":
    main()
