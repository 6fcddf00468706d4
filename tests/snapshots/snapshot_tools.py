"""Run `proctor` on the examples, and compare ids, digests and requests with recorded files.

Nothing here depends on how the package is laid out: commands go through the entry point, the store is
read with `sqlite3`.
"""

import contextlib
import hashlib
import json
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from commands import Command
from proctor.testing import make_git_repository
from proctor.testing.model_server import ModelServer, ServerReply, reply
from recorded_files import check

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
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

    def __init__(self, proctor: Command) -> None:
        self.folder = proctor.folder
        proctor.environment |= {"TZ": "UTC"}
        self._proctor = proctor

    def copy(self, *names: str, to: str = "") -> None:
        """Copy folders of `examples/` (with `/*`: what is in them) to the folder `to`."""
        ignored = shutil.ignore_patterns("__pycache__", "results")
        for name in names:
            source, is_content = name.removesuffix("/*"), name.endswith("/*")
            target = self.folder / to / ("" if is_content else source)
            shutil.copytree(EXAMPLES / source, target, ignore=ignored, dirs_exist_ok=True)

    def copy_demo(self) -> None:
        """Copy the plans, and commit the demo's repositories to `repos/`."""
        self.copy("plans/*", "demo/*")
        for folder in sorted((self.folder / "repos").iterdir()):
            make_git_repository(folder, {".gitignore": "__pycache__/\n"})

    def run(self, *words: str) -> int:
        """Run a command; its exit code."""
        done = self._proctor(*words)
        print(done.stderr, file=sys.stderr)
        return done.returncode

    def document(self, *words: str) -> Any:
        """The JSON document that a command prints with `--json`."""
        return self._proctor.json(*words)

    def query(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of the store."""
        with contextlib.closing(sqlite3.connect(self.folder / "proctor-home" / "proctor.db")) as connection:
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
        texts = [row["request"] if row["data"] is None else row["data"].decode() for row in rows]
        return _digests(
            (f"{masked.text(row['itemId'])} {row['provider']}/{row['model']}", masked.text(text))
            for row, text in zip(rows, texts, strict=True)
            if text
        )

    def ask(self, server: ModelServer) -> None:
        """The server answers for `openai/NAME`, every request alike."""
        server.answers = _answer
        self._proctor.environment |= {
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "sk-loopback-0123456789",
        }

    def sent_requests(self, server: ModelServer) -> dict[str, str]:
        """Of each model and set of keys that a server got: how many requests, and a digest of all."""
        masked = self._masking()
        return _digests(
            (f"{body['model']} {','.join(sorted(body))}", masked.text(json.dumps(body, sort_keys=True)))
            for body in server.requests
        )

    def recorded_requests(self, file: str) -> dict[str, str]:
        """Of each item, wire and model in a recording: how many requests, and a digest of their digests."""
        masked, members = self._masking(), ("item", "wire", "operation", "model")
        lines = map(json.loads, (self.folder / file).read_text().splitlines())
        return _digests((masked.text(" ".join(map(line.get, members))), line["digest"]) for line in lines)

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
        if (self.folder / "proctor-home" / "proctor.db").exists():
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


def _digests(texts: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Under each name: how many texts it has, and a digest of all of them."""
    named: dict[str, list[str]] = {}
    for name, text in texts:
        named.setdefault(name, []).append(text)
    wholes = {name: hashlib.sha256("\n".join(sorted(named[name])).encode()) for name in sorted(named)}
    return {name: f"{len(named[name])} {whole.hexdigest()[:32]}" for name, whole in wholes.items()}


def _answer(body: Mapping[str, Any]) -> ServerReply:
    form = body.get("response_format", {}).get("json_schema", {}).get("schema")
    text = json.dumps(_example_of(form)) if form else "ACTION: wait\nUPDATED STATE: cooperation level: 5"
    return reply(text, input_tokens=100, output_tokens=20)


def _example_of(schema: Mapping[str, Any]) -> Any:
    """A value that a JSON schema accepts."""
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: _example_of(part) for name, part in schema.get("properties", {}).items()}
    return {"boolean": True, "integer": 3, "number": 3.0, "array": []}.get(str(kind), "because")


def check_snapshot(name: str, document: Any) -> None:
    """Compare a masked document with the one recorded as `name`, or record it."""
    check(RECORDED / f"{name}.txt", document)
