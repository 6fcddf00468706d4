"""The command `proctor` as tests run it: in a folder, with an environment and a home of its own."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from command_server import CommandServer, StartedCommand
from proctor.bootstrap import SIGNING_KEY
from proctor.store import Store
from proctor.store.keys import Keys, SigningKeyFile
from waiting import TIME_LIMIT_SECONDS


class Command:
    """The command `proctor`, with a home in the test's folder."""

    def __init__(self, folder: Path, server: CommandServer) -> None:
        self.folder = folder
        self.environment = clean_environment(folder)
        self._server = server

    def __call__(
        self, *words: str, environment: Mapping[str, str] = MappingProxyType({}), stdin: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """Run it to its end, in a fork of a process that has loaded it already."""
        return self._server.run(
            words, folder=self.folder, environment=self.environment | environment, stdin=stdin
        )

    def process(
        self, *words: str, environment: Mapping[str, str] = MappingProxyType({})
    ) -> "subprocess.CompletedProcess[str]":
        """Run it to its end as a shell would, for tests of how it starts."""
        return subprocess.run(
            [sys.executable, "-m", "proctor", *words],
            cwd=self.folder,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIME_LIMIT_SECONDS,
        )

    def start(
        self,
        *words: str,
        environment: Mapping[str, str] = MappingProxyType({}),
        separate_errors: bool = False,
    ) -> StartedCommand:
        """Start it and go on, in a fork as well; whoever starts it ends it."""
        return self._server.start(
            words,
            folder=self.folder,
            environment=self.environment | environment,
            separate_errors=separate_errors,
        )

    def on_terminal(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run it to its end on a terminal with 160 columns; `stdout` is all that is shown there."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*self.program, *words],
            cwd=self.folder,
            env=self.environment | {"TERM": "xterm", "COLUMNS": "160", "LINES": "40"},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        shown = bytearray()
        # Reading fails once nobody has the other side.
        with suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:
            while part := terminal.read(65536):
                shown += part
        code = process.wait(TIME_LIMIT_SECONDS)
        return subprocess.CompletedProcess(["proctor", *words], code, shown.decode(errors="replace"), "")

    def json(self, *words: str) -> Any:
        """What it prints with `--json`, read."""
        return json.loads(self(*words, "--json").stdout)

    @property
    def program(self) -> list[str]:
        """What code under test can start in place of `python -m proctor`; it loads nothing again."""
        return self._server.program

    def open_store(self) -> Store:
        """The store, with the key that the command signs results with."""
        home = self.folder / "proctor-home"
        keys = Keys(signing=SigningKeyFile(home / SIGNING_KEY))
        return Store(self.environment.get("PROCTOR_STORE") or str(home / "proctor.db"), keys)


def clean_environment(folder: Path) -> dict[str, str]:
    """As on a machine where nobody has configured anything."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PROCTOR_HOME": str(folder / "proctor-home"),
        "GIT_CONFIG_NOSYSTEM": "1",
        # See conftest.py.
        "OPENBLAS_NUM_THREADS": "1",
    }
