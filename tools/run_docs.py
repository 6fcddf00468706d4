"""Run the commands in the manual's console blocks, and write what they print into the pages.

    python tools/run_docs.py [PAGE…]

A page runs from top to bottom in a folder of its own, with a copy of `examples/`. In a page:

- A block ```` ```yaml title="plan.yaml" ```` is written to that file.
- In a block ```` ```console ````, lines after `$ ` are run by Bash (`> ` continues one); the rest is output.
- A comment `<!-- setup: COMMAND -->` on a line of its own is run and not shown.
- A comment `<!-- first 5, last 2 -->` before a console block cuts its output; `…` stands for the rest.
- A comment `<!-- exit 4 -->` names the exit code of a block whose last command ends with another code than 0
  or 1 (which means that some items did not succeed).

The tests run every page too and compare the shape of the output: words and columns, not times and IDs.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "```console" in page.read_text(encoding="utf-8")
]
BLOCK = re.compile(
    r"^<!-- setup: (?P<setup>[^\n]*?) -->$"
    r"|(?P<head>(?:^<!-- (?P<notes>[^\n]*?) -->\n)?^```(?P<info>[^\n]*)\n)(?P<body>.*?)(?P<tail>^```$)",
    re.MULTILINE | re.DOTALL,
)
TITLE = re.compile(r'title="([^"]+)"')
COLUMNS = 120


class DocsFailed(Exception):
    """A command in the manual ended with a code that it should not have."""


@dataclass(frozen=True)
class PageRunner:
    """Runs pages in a folder, with a program `proctor` in the first folder of the search path."""

    folder: Path
    programs: Path

    def prepare(self) -> None:
        """Give the page its examples."""
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "examples", self.folder / "examples", ignore=ignored)

    def run(self, text: str) -> str:
        """The page with the output of its commands as it is now."""
        self.prepare()
        return BLOCK.sub(self._renewed, text)

    def _renewed(self, block: re.Match[str]) -> str:
        if block["setup"] is not None:
            self._output(block["setup"], 0)
            return block[0]
        title = TITLE.search(block["info"])
        if title is not None:
            file = self.folder / title[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block["body"], encoding="utf-8")
        if block["info"].split(" ")[0] != "console":
            return block[0]
        first, last, code = _limits(block["notes"] or "")
        parts = []
        for source in _commands(block["body"]):
            parts.append("".join(f"{'> ' if n else '$ '}{line}\n" for n, line in enumerate(source)))
            parts.append(_cut(self._output("\n".join(source), code), first, last))
        return f"{block['head']}{''.join(parts)}{block['tail']}"

    def _output(self, command: str, code: int | None) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=300,
        )
        if done.returncode not in ((0, 1) if code is None else (0, code)):
            raise DocsFailed(f"exit code {done.returncode} of: {command}\n{done.stdout}")
        return _readable(done.stdout, self.folder)

    def _environment(self) -> Mapping[str, str]:
        """As on a machine where nobody has configured anything."""
        home = str(self.folder)
        return {
            "PATH": os.pathsep.join([str(self.programs), os.environ["PATH"]]),
            "HOME": home,
            "PROCTOR_HOME": f"{home}/.local/share/proctor",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "COLUMNS": str(COLUMNS),
            "PYTHONUNBUFFERED": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            **{f"GIT_{who}_NAME": "You" for who in ("AUTHOR", "COMMITTER")},
            **{f"GIT_{who}_EMAIL": "you@localhost" for who in ("AUTHOR", "COMMITTER")},
        }


def _limits(notes: str) -> tuple[int | None, int, int | None]:
    """How many lines to show at the start and at the end, and the exit code."""
    numbers = {word: int(number) for word, number in re.findall(r"(first|last|exit) (\d+)", notes)}
    return numbers.get("first"), numbers.get("last", 0), numbers.get("exit")


def _commands(body: str) -> Iterator[list[str]]:
    """The lines of each command of a console block."""
    command: list[str] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            if command:
                yield command
            command = [line[2:]]
        elif line.startswith("> ") and command:
            command.append(line[2:])
    if command:
        yield command


def _cut(output: str, first: int | None, last: int) -> str:
    lines = output.splitlines(keepends=True)
    if first is None or len(lines) <= first + last:
        return output
    return "".join([*lines[:first], "…\n", *lines[len(lines) - last :]])


def _readable(output: str, folder: Path) -> str:
    """Output without escape sequences and trailing spaces; the page's folder is the reader's."""
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", output).replace(str(folder), "~")
    return "".join(f"{line.rstrip()}\n" for line in plain.splitlines())


def shape(text: str) -> str:
    """A page without what differs from run to run: numbers, units of time, IDs, widths of columns."""
    text = re.sub(r"\d{8}[-_]\d{6}(-[0-9a-f]{4})?\b", "TIME", text)
    text = re.sub(r"\b(?=[0-9a-f]*\d)(?:(?=[0-9a-f]*[a-f])[0-9a-f]{6,}|[0-9a-f]{8,})\b", "ID", text)
    # How agents are confined is a matter of the machine.
    text = re.sub(r"confined by \w+;.*", "confined", text)
    # The end of an evaluation's ID: ten letters and digits.
    text = re.sub(r"(?<=\w-)(?=\w*[A-Z0-9])[A-Za-z0-9]{10}\b", "ID", text)
    text = re.sub(r"[−-]?\d[\d,.:]*", "#", text)
    text = re.sub(r"# (min|h) # (s|min)\b|# (ms|s|min|h)\b", "# TIME", text)
    return re.sub(r"[ \t─━-]+", " ", text)


def write_program(folder: Path, words: list[str]) -> Path:
    """A program `proctor` in a folder for the search path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "proctor"
    program.write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in words) + ' "$@"\n')
    program.chmod(0o755)
    return folder


def main() -> int:
    """Renew the given pages, or all."""
    pages = [Path(page).resolve() for page in sys.argv[1:]] or PAGES
    for page in pages:
        with tempfile.TemporaryDirectory(prefix="proctor-docs-") as place:
            programs = write_program(Path(place) / "bin", [sys.executable, "-m", "proctor"])
            folder = Path(place) / "you"
            folder.mkdir()
            page.write_text(PageRunner(folder, programs).run(page.read_text("utf-8")), encoding="utf-8")
        print(f"renewed {page.relative_to(ROOT)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
