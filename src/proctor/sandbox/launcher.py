"""Program that prepares its own process and becomes a confined program.

`python -I -S launcher.py CHANNEL PORTS POLICY COMMAND…`. PORTS (joined by commas) are opened on loopback; the
listening sockets are sent over the descriptor CHANNEL (-1: none). POLICY is `-`, or the rules of landlock.

Imports only the standard library, and little of it: one is started for many programs.
"""

import _signal
import _socket
import os
import sys


def main(channel: int, ports: list[int], policy: str, command: list[str]) -> None:
    """Prepare this process, then execute the command."""
    # As it was given: Python may have added a variable for the locale.
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        pairs = (pair.partition(b"=") for pair in file.read().split(b"\0") if pair)
        environment = {name: value for name, _, value in pairs}
    if channel >= 0:
        send_listeners(channel, ports)
    if policy != "-":
        # Costs more to load than all the rest.
        import landlock_calls  # type: ignore[import-not-found]

        landlock_calls.restrict(policy)
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        # Python ignores these two; the program must not inherit that.
        _signal.signal(number, _signal.SIG_DFL)
    path = os.fsdecode(environment.get(b"PATH", b""))
    for program in candidates(command[0], path):
        try:
            os.execve(program, command, environment)
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            problem: OSError = error
    os.write(2, f"{command[0]}: {problem.strerror}\n".encode())
    os._exit(127)


def send_listeners(channel: int, ports: list[int]) -> None:
    """Open the ports and send their sockets to the other end of the channel."""
    listeners = []
    for port in ports:
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(4096)
        listeners.append(listener)
    numbers = b"".join(listener.fileno().to_bytes(4, sys.byteorder) for listener in listeners)
    link = _socket.socket(fileno=channel)
    link.sendmsg([b"l"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    link.close()


def candidates(program: str, path: str) -> list[str]:
    """Where a program may be."""
    if "/" in program:
        return [program]
    return [f"{folder or '.'}/{program}" for folder in (path or os.defpath).split(":")]


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(port) for port in sys.argv[2].split(",") if port], sys.argv[3], sys.argv[4:])
