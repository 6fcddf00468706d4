"""Run the commands in the manual, and write what they print into the pages.

    python tools/run_docs.py [PAGE…]

A page runs from top to bottom in a folder of its own, with a copy of `examples/`. In a page:

- A block ```` ```yaml title="plan.yaml" ```` is written to that file.
- In a block ```` ```console ````, lines after `$ ` are run by Bash (`> ` continues one); the rest is output.
- A block ```` ```sh ```` is run, too, and its output is not shown. It may name models of OpenAI, Anthropic,
  Ollama, and vLLM: a server on loopback answers for them.
- A comment `<!-- setup: COMMAND -->` on a line of its own is run and not shown. It may call the functions of
  docs_setup.sh; `name WORD VALUE` there makes `WORD` in the commands of the page mean the value.
- A comment `<!-- first 5, last 2 -->` before a console block cuts its output; `…` stands for the rest.
- A comment `<!-- exit 4 -->` names the exit code of a block whose last command ends with another code than 0
  or 1 (which means that some items did not succeed).
- A comment `<!-- server -->` before an `sh` block: its commands serve until they are stopped. Each is stopped
  when it has printed its address.
- A comment `<!-- not run: REASON -->` before an `sh` block that cannot run here; `NOT_RUN` lists the reasons.

The tests run every page too and compare the shape of the output: words and columns, not times and IDs.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    page
    for page in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("README.md")),
    )
    if re.search(r"^```(console|sh)$", page.read_text(encoding="utf-8"), re.MULTILINE)
]
NOT_RUN = {
    "agents": "needs agents that are not installed; `make test-agents` runs them",
    "cluster": "needs Ray, Kubernetes or Slurm; `make test-ray` runs batches on a cluster",
    "cloud": "needs an account of AWS; tests run it against a local imitation",
    "container": "needs Podman or Docker, which are not here",
    "install": "installs packages from the network; `make test-package` does",
    "make": "takes minutes; other tests run its parts",
    "person": "needs a person who answers",
    "yours": "needs programs or files of the reader",
}
"""Why commands of the manual are not run by its tests."""
SETUP = ROOT / "tools" / "docs_setup.sh"
PORT = re.compile(r" --port \d+")
SERVER_SECONDS = 120.0
MODELS = "gpt-4o gpt-4o-mini gpt-4.1-mini gpt-5 gpt-5-mini claude-haiku-4-5 claude-sonnet-4-5 llama3 my-model"
BLOCK = re.compile(
    r"^<!-- setup: (?P<setup>[^\n]*?) -->$"
    r"|(?P<head>(?:^<!-- (?P<notes>[^\n]*?) -->\n)?^```(?P<info>[^\n]*)\n)(?P<body>.*?)(?P<tail>^```$)",
    re.MULTILINE | re.DOTALL,
)
TITLE = re.compile(r'title="([^"]+)"')
COLUMNS = 120
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


class DocsFailed(Exception):
    """A command in the manual ended with a code that it should not have."""


@dataclass(frozen=True)
class PageRunner:
    """Runs pages in a folder, with a program `proctor` in the first folder of the search path."""

    folder: Path
    programs: Path
    models: str = ""
    """Address of the server that answers for models in `sh` blocks."""

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
            self._output(f"PYTHON='{sys.executable}'\n. '{SETUP}'\n{block['setup']}", 0)
            return block[0]
        title = TITLE.search(block["info"])
        if title is not None:
            file = self.folder / title[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block["body"], encoding="utf-8")
        if block["info"] == "sh":
            self._run_block(block["body"], block["notes"] or "")
        if block["info"].split(" ")[0] != "console":
            return block[0]
        first, last, code = _limits(block["notes"] or "")
        parts = []
        for source in _commands(block["body"]):
            parts.append("".join(f"{'> ' if n else '$ '}{line}\n" for n, line in enumerate(source)))
            parts.append(_cut(self._output(self._named("\n".join(source)), code), first, last))
        return f"{block['head']}{''.join(parts)}{block['tail']}"

    def _run_block(self, body: str, notes: str) -> None:
        if notes.startswith("not run: "):
            return
        lines = [line for line in body.replace("\\\n", "").splitlines() if line and not line.startswith("#")]
        code = _limits(notes)[2]
        variables = _provider_variables(self.models)
        if notes == "server":
            for line in lines:
                self._serve(line, variables)
            return
        # One shell, so that variables stay set; each command may end with 1: some items did not succeed.
        limit = 1 if code is None else code
        checked = [
            f"{line}\ncode=$?; [ $code -le {limit} ] || {{ echo 'command {n} failed'; exit $code; }}"
            for n, line in enumerate(lines, 1)
        ]
        self._output(self._named("\n".join(checked)), code, variables)

    def _serve(self, command: str, variables: Mapping[str, str]) -> None:
        """Start a server, on a free port, and stop it when it has printed its address."""
        words = PORT.sub("", command.partition("#")[0].rstrip())
        if words.startswith("proctor serve"):
            words += " --port 0"
        process = subprocess.Popen(
            ["bash", "-c", f"exec {self._named(words)}"],
            cwd=self.folder,
            env=self._environment() | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        timer = threading.Timer(SERVER_SECONDS, process.kill)
        timer.start()
        with process:
            assert process.stdout is not None
            printed = []
            for line in process.stdout:
                printed.append(line)
                if re.search(r"https?://[\d.]+:\d+", line):
                    break
            else:
                raise DocsFailed(f"no address printed by: {words}\n{''.join(printed)}")
            process.terminate()
            process.communicate()
        timer.cancel()

    def _named(self, command: str) -> str:
        """A command with the values of the names that the setup of the page has defined."""
        names = self.folder / ".names"
        for line in names.read_text(encoding="utf-8").splitlines() if names.is_file() else ():
            word, value = line.split("\t")
            command = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", lambda _, value=value: value, command)
        return command

    def _output(self, command: str, code: int | None, variables: Mapping[str, str] = NO_VARIABLES) -> str:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment() | variables,
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


def _provider_variables(address: str) -> Mapping[str, str]:
    """Providers at one address, with keys that mean nothing."""
    if not address:
        return NO_VARIABLES
    addresses = {f"{name}_BASE_URL": f"{address}/v1" for name in ("OPENAI", "VLLM", "OLLAMA")}
    keys = {f"{name}_API_KEY": "none" for name in ("OPENAI", "ANTHROPIC")}
    return {**addresses, "ANTHROPIC_BASE_URL": address, **keys, "BROWSER": "true"}


class ModelsOnLoopback(BaseHTTPRequestHandler):
    """Answers as models of OpenAI and Anthropic would, with a word, or with what a schema wants."""

    def do_GET(self) -> None:
        self._send({"data": [{"id": name} for name in MODELS.split()]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        output = request.get("response_format") or request.get("output_config", {}).get("format") or {}
        schema = output.get("json_schema", output).get("schema")
        text = json.dumps(_example(schema)) if schema else "Done."
        if self.path.endswith("/messages"):
            usage = {"input_tokens": 10, "output_tokens": 2}
            block = {"type": "text", "text": text}
            self._send({"content": [block], "stop_reason": "end_turn", "usage": usage, "role": "assistant"})
        else:
            usage = {"prompt_tokens": 10, "completion_tokens": 2}
            message = {"role": "assistant", "content": text}
            self._send({"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})

    def _send(self, document: object) -> None:
        data = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _example(schema: Mapping[str, Any]) -> object:
    """A value that fits a JSON Schema of a judge."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: _example(inner) for name, inner in schema.get("properties", {}).items()}
    if kind == "array":
        return []
    return {"number": 1, "integer": 1, "boolean": True}.get(str(kind), "It does.")


@contextmanager
def models_on_loopback() -> Iterator[str]:
    """The address of a server that answers for models."""
    with ThreadingHTTPServer(("127.0.0.1", 0), ModelsOnLoopback) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


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
    # The commit of a line of `git log` may have digits only.
    text = re.sub(r"^[0-9a-f]{7}(?= [A-Za-z])", "ID", text, flags=re.MULTILINE)
    text = re.sub(r"\b(?:(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,}|[0-9a-f]{8,})\b", "ID", text)
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
        with tempfile.TemporaryDirectory(prefix="proctor-docs-") as place, models_on_loopback() as models:
            programs = write_program(Path(place) / "bin", [sys.executable, "-m", "proctor"])
            folder = Path(place) / "you"
            folder.mkdir()
            page.write_text(
                PageRunner(folder, programs, models).run(page.read_text("utf-8")), encoding="utf-8"
            )
        print(f"renewed {page.relative_to(ROOT)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
