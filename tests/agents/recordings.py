"""Programs that print what a real agent once printed, and note how they were called.

The recordings beside this file were made from the real programs, at work on a scripted model; they are
shortened to what is needed.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.agent import Access

RECORDED = Path(__file__).parent / "recorded"
ACCESS = Access(url="http://127.0.0.1:8099", token="token-of-this-attempt-0123456789abcdef")

PROGRAMS = {"continue": "cn", "mini-swe-agent": "mini"}
"""Where the program of an agent has another name than the agent."""

PROGRAM = """#!{python} -IS
import json, os, sys, time
if sys.argv[1:] in (['--version'], ['--help']):
    print({offered!r} if sys.argv[1] == '--help' else '1.2.3')
    sys.exit()
called = {{'args': sys.argv[1:], 'environment': dict(os.environ), 'folder': os.getcwd()}}
if '--input-format' in sys.argv:
    (block,) = json.loads(sys.stdin.readline())['message']['content']
    called['typed'] = block['text']
else:
    called['typed'] = sys.stdin.read()
json.dump(called, open({note!r}, 'w'))
for flag, text in {files!r}.items():
    open(sys.argv[sys.argv.index(flag) + 1], 'w').write(text)
sys.stdout.write({stdout!r})
sys.stdout.flush()
sys.stderr.write({stderr!r})
sys.stderr.flush()
{then}
sys.exit({exit_code})
"""


@dataclass(frozen=True)
class Called:
    """How a program was called."""

    args: list[str]
    environment: dict[str, str]
    folder: str
    typed: str

    def after(self, flag: str) -> str:
        return self.args[self.args.index(flag) + 1]


@dataclass
class Stage:
    """Where recordings are played."""

    place: Any

    @property
    def note(self) -> Path:
        return self.place.home / "called.json"

    def play(
        self,
        agent: str,
        recording: str = "",
        *,
        printed: str = "",
        stderr: str = "",
        exit_code: int = 0,
        files: dict[str, str] | None = None,
        then: str = "",
        offered: str = "1.2.3",
    ) -> None:
        """Put an agent's program on the PATH that prints a recording. `files`: what it writes, by the flag
        that names the file; a text, or a recording's name. `offered`: its help."""
        stdout = read(recording) if recording else printed
        self.place.program(
            PROGRAMS.get(agent, agent),
            PROGRAM.format(
                python=f"{sys.base_prefix}/bin/python3",
                note=str(self.note),
                stdout=stdout,
                stderr=read(stderr) if stderr in names() else stderr,
                files={flag: read(text) if text in names() else text for flag, text in (files or {}).items()},
                then=then,
                offered=offered,
                exit_code=exit_code,
            ),
        )

    def called(self) -> Called:
        return Called(**json.loads(self.note.read_text()))


def read(name: str) -> str:
    return (RECORDED / name).read_text()


def names() -> set[str]:
    return {file.name for file in RECORDED.iterdir()}
