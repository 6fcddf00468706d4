"""Has its command line run by a `CommandServer`, with its own files, folder and environment; ends as it ends.

    python -I -S forwarded_command.py SOCKET WORDS…

For code under test that starts `proctor` as a program. Whoever kills this kills the command.
"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
    connection.connect(sys.argv[1])
    request = {
        "words": sys.argv[2:],
        "folder": os.getcwd(),  # noqa: PTH109  loading pathlib takes as long as all else
        "environment": dict(os.environ),
        "session": os.getsid(0) == os.getpid(),
    }
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    # The id of the process, then its exit code.
    connection.recv(100)
    reply = connection.recv(100)
code = int(reply or 1)
if code < 0:
    os.kill(os.getpid(), -code)
os._exit(code)
