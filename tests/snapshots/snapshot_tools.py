"""Run `proctor` on the examples, and compare ids, digests and requests with recorded files.

Nothing here depends on how the package is laid out: commands go through the entry point, the store is
read with `sqlite3`. Only `run_command` imports `proctor`.
"""

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from recorded_files import check

ROOT = Path(__file__).parents[2]
EXAMPLES = Path(__file__).parents[2] / "examples"
RECORDED = Path(__file__).parent / "recorded"

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T _]\d\d[:-]\d\d(?:[:-]\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")
_PACKED_MOMENT = re.compile(r"(?<![0-9a-zA-Z])20\d{6}[_T-]?\d{6}(?![0-9a-zA-Z])(-[0-9a-f]{4}\b)?")
_COMMIT = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
# A file of one session: its id is masked by then, what follows is derived from the id.
_SESSION_FILE = re.compile(r"(?<=>)-[0-9a-f]{8}(?=\.json\b)")
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost):\d+")
_VOLATILE = (
    (_MOMENT, "<moment>"),
    (_PACKED_MOMENT, "<moment>"),
    (_COMMIT, "<commit>"),
    (_UUID, "<uuid>"),
    (_LOOPBACK, "<loopback>"),
    (_SESSION_FILE, "-<hex>"),
)


class Desk:
    """A folder with a copy of the examples, a home of its own, and the `proctor` command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PROCTOR_HOME": str(self.folder / "home"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "TZ": "UTC",
        }

    def copy(self, *names: str, to: str = "") -> None:
        """Copy folders of `examples/` (with `/*`: the files in them) to the folder `to`."""
        for name in names:
            if name.endswith("/*"):
                for file in sorted((EXAMPLES / name[:-2]).glob("*.yaml")):
                    (self.folder / to).mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, self.folder / to / file.name)
            else:
                ignored = shutil.ignore_patterns("__pycache__", "results")
                shutil.copytree(EXAMPLES / name, self.folder / to / name, ignore=ignored)

    def make_repositories(self) -> None:
        """Commit the demo's repositories to `repos/`."""
        identity = {
            f"GIT_{who}_{what}": "test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        for files in sorted((EXAMPLES / "demo" / "repos").iterdir()):
            folder = self.folder / "repos" / files.name
            shutil.copytree(files, folder, ignore=shutil.ignore_patterns("__pycache__"))
            (folder / ".gitignore").write_text("__pycache__/\n")
            for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "initial")):
                subprocess.run(("git", *words), cwd=folder, check=True, env=self.environment | identity)

    def run(self, *words: str) -> tuple[int, str]:
        """Run a command in this process; its exit code and standard output."""
        return run_command(words, folder=self.folder, environment=self.environment)

    def document(self, *words: str) -> Any:
        """The JSON document that a command prints with `--json`."""
        code, output = self.run(*words, "--json")
        assert output, f"`proctor {' '.join(words)}` exited with {code} and printed no document"
        return json.loads(output)

    def query(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of the store."""
        with contextlib.closing(sqlite3.connect(self.folder / "home" / "proctor.db")) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(statement, values)]

    def items(self) -> dict[str, list[dict[str, Any]]]:
        """Id, digest, runner, repeat, agent and model of every item, by run, in the order of the plan."""
        members = ("id", "digest", "runner", "repeat", "agent", "model")
        masked = self._masking()
        items: dict[str, list[dict[str, Any]]] = {}
        for row in self.query('SELECT * FROM "batch_items" ORDER BY "runId", "position"'):
            identity = {member: row[member] for member in members} | {"digest": row["digest"][:16]}
            items.setdefault(masked.text(row["runId"]), []).append(identity)
        return items

    def request_digests(self) -> dict[str, str]:
        """Of each item and model: how many requests the store has, and a digest of all of them."""
        rows = self.query(
            'SELECT s."itemId", c."provider", c."model", c."request", b."data" FROM "model_calls" c '
            'JOIN "sessions" s ON s."id" = c."sessionId" '
            'LEFT JOIN "blobs" b ON b."digest" = c."requestBlob"'
        )
        masked = self._masking()
        requests: dict[str, list[str]] = {}
        for row in rows:
            text = row["request"] if row["data"] is None else row["data"].decode()
            if text:
                asked = f"{masked.text(row['itemId'])} {row['provider']}/{row['model']}"
                requests.setdefault(asked, []).append(masked.text(text))
        return {asked: _digest_of_all(texts) for asked, texts in sorted(requests.items())}

    @contextlib.contextmanager
    def model_server(self) -> Iterator["ModelServer"]:
        """A server of models on loopback, which the command finds as `openai/NAME`."""
        server = ModelServer(("127.0.0.1", 0), _ModelHandler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}/v1"
        self.environment |= {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "sk-loopback-0123456789"}
        try:
            yield server
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def sent_requests(self, server: "ModelServer") -> dict[str, str]:
        """Of each path, model and set of keys that a server got: how many requests, and a digest of all."""
        masked = self._masking()
        requests: dict[str, list[str]] = {}
        for path, body in server.requests:
            text = masked.text(json.dumps(body, sort_keys=True))
            requests.setdefault(f"{path} {body['model']} {','.join(sorted(body))}", []).append(text)
        return {asked: _digest_of_all(texts) for asked, texts in sorted(requests.items())}

    def recorded_requests(self, file: str) -> dict[str, str]:
        """Of each item, wire and model in a recording: how many requests, and a digest of their digests."""
        masked = self._masking()
        requests: dict[str, list[str]] = {}
        for line in map(json.loads, (self.folder / file).read_text().splitlines()):
            asked = " ".join(line[member] for member in ("item", "wire", "operation", "model"))
            requests.setdefault(masked.text(asked), []).append(line["digest"])
        return {asked: _digest_of_all(digests) for asked, digests in sorted(requests.items())}

    def score_digests(self) -> dict[str, str]:
        """Of each evaluator that scored, with its dimension: its digest and its level."""
        members = '"evaluator", "evaluatorDigest", "level", "dimension"'
        rows = self.query(f'SELECT DISTINCT {members} FROM "scores" ORDER BY 1, 4, 3')
        names = (f"{row['evaluator']} {row['dimension'] or ''}".rstrip() for row in rows)
        return {
            name: f"{row['evaluatorDigest']} {row['level']}" for name, row in zip(names, rows, strict=True)
        }

    def _masking(self) -> "Masking":
        texts = {str(self.folder): "<folder>", str(ROOT): "<repository>", sys.executable: "<python>"}
        if (self.folder / "home" / "proctor.db").exists():
            for row in self.query('SELECT "id", "name" FROM "evaluations"'):
                texts[row["id"]] = f"<evaluation {row['name']}>"
            for row in self.query('SELECT "id", "itemId", "attempt", "externalId" FROM "sessions"'):
                name = row["externalId"] or f"of {row['itemId']}, attempt {row['attempt']}"
                texts[row["id"]] = f"<session {name}>"
        return Masking(texts)


class Masking:
    """Replaces what differs between two runs of one command."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        """`texts` are replaced wherever they occur, longest first."""
        self._texts = texts
        self._known = re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))

    def text(self, text: str) -> str:
        """A text without folders, ids, moments, commits and ports."""
        text = self._known.sub(lambda match: self._texts[match[0]], text)
        for pattern, mask in _VOLATILE:
            text = pattern.sub(mask, text)
        return text


def _digest_of_all(texts: Sequence[str]) -> str:
    whole = hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()
    return f"{len(texts)} {whole[:32]}"


class ModelServer(ThreadingHTTPServer):
    """Speaks OpenAI's chat completions, answers every request alike, and keeps what it was sent."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.requests: list[tuple[str, dict[str, Any]]] = []


class _ModelHandler(BaseHTTPRequestHandler):
    server: ModelServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        return None

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, body))
        form = body.get("response_format", {}).get("json_schema", {}).get("schema")
        content = (
            json.dumps(_example_of(form)) if form else "ACTION: wait\nUPDATED STATE: cooperation level: 5"
        )
        choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        answer = {"id": "1", "object": "chat.completion", "choices": [choice], "usage": usage}
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _example_of(schema: Mapping[str, Any]) -> Any:
    """A value that a JSON schema accepts."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: _example_of(part) for name, part in schema.get("properties", {}).items()}
    return {"boolean": True, "integer": 3, "number": 3.0, "array": []}.get(str(kind), "because")


def run_command(words: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run `proctor WORDS` in this process with this environment and working folder."""
    from proctor.cli.main import main

    output, errors = io.StringIO(), io.StringIO()
    with _replaced_environment(environment), contextlib.chdir(folder):
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            code = main(list(words))
    print(errors.getvalue(), file=sys.stderr)
    return code, output.getvalue()


@contextlib.contextmanager
def _replaced_environment(environment: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def check_snapshot(name: str, document: Any) -> None:
    """Compare a masked document with the one recorded as `name`, or record it."""
    check(RECORDED / f"{name}.txt", document)
