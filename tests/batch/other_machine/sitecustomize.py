"""Loaded by every Python process of a test cluster's nodes: hides the folders of the tests.

A real node does not share the driver's disk; here an attempt to use it raises an error.
"""

import os
import sys

HIDDEN = os.environ.get("HIDDEN_FROM_NODES", "")
FILE_EVENTS = ("open", "os.mkdir", "os.rename", "os.listdir", "os.scandir", "os.remove", "shutil.copyfile")


def _refuse(event, arguments):
    if event in FILE_EVENTS:
        texts = arguments[:2]
    elif event == "subprocess.Popen":
        _, command, folder, _ = arguments
        texts = [folder, *(command if isinstance(command, (list, tuple)) else [command])]
    else:
        return
    for text in texts:
        if isinstance(text, (str, os.PathLike)) and str(text).startswith(HIDDEN):
            raise PermissionError(13, f"{event} on a node uses a folder of the driver", str(text))


if HIDDEN:
    sys.addaudithook(_refuse)
