"""Program in a container without network: forwards ports on its loopback interface to Unix sockets.

`python3 relay.py PORT=SOCKET[,PORT=SOCKET…] COMMAND…` runs the command and exits as it does. Imports only the
standard library of any Python 3: it runs with the image's own.
"""

import os
import signal
import socket
import sys
import threading

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(pairs: list[str], command: list[str]) -> int:
    """Open the ports, run the command; its exit code."""
    # Until the command can be told of them, they wait. Blocked in all threads, which inherit it: one that did
    # not block a signal would take it, and end the process.
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    for pair in pairs:
        port, _, path = pair.partition("=")
        listener = socket.create_server(("127.0.0.1", int(port)), backlog=1024)
        threading.Thread(target=accept, args=(listener, path), daemon=True).start()
    program = os.posix_spawnp(
        command[0], command, os.environ, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ], setsigmask=[]
    )
    for number in FORWARDED:
        signal.signal(number, lambda received, _: os.kill(program, received))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    return code if code >= 0 else 128 - code


def accept(listener: socket.socket, path: str) -> None:
    """Forward each connection."""
    while True:
        near = listener.accept()[0]
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(path)
        except OSError:
            near.close()
            far.close()
            continue
        for source, other in ((near, far), (far, near)):
            threading.Thread(target=copy, args=(source, other), daemon=True).start()


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until one side closes."""
    try:
        while chunk := source.recv(65536):
            target.sendall(chunk)
    except OSError:
        pass
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1].split(","), sys.argv[2:]))
