"""Run `proctor` on the examples, mask what differs between runs, and compare with recorded files.

Nothing here depends on how the package is laid out: commands go through the entry point, the store is
read with `sqlite3`. Only `run_command` imports `proctor`.
"""

import contextlib
import csv
import difflib
import hashlib
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
RECORDED = Path(__file__).parent / "recorded"
RECORD_VARIABLE = "PROCTOR_RECORD_SNAPSHOTS"
"""Set it to 1 to rewrite the recorded files instead of comparing with them."""

MASKED_KEYS = re.compile(
    r"(?i)(sec|secs|seconds|ms|duration\w*|latency\w*|\w+_time|time|\w+At|timestamp\w*|owner|url|port|pid"
    r"|\w*version|created|started|finished|ended|elapsed\w*|\w+_seconds|\w+(?<!max)Sec|\w+Seconds|\w+Ms)$"
)
"""Members whose values are moments, durations, versions or belong to this process."""
KEPT_KEYS = {"timeoutSec", "timeoutSeconds", "timeout_seconds", "requestTimeoutSec"}
PROSE_KEYS = {
    *("said", "remedy", "remark", "problem", "judges", "error", "explanation", "statement", "statements"),
    *("description", "about", "note", "notes", "remarks", "warnings", "warning", "message", "conclusion"),
    *("verdict_text", "summary_text", "report", "markdown", "html", "caveats", "text", "sentence", "means"),
    *("interpretation", "question", "title", "errorMessage", "caption", "reading", "hint"),
}
"""Members that hold sentences for people: only their type is recorded, since wording may change."""

_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T _]\d\d[:-]\d\d(?:[:-]\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")
_PACKED_MOMENT = re.compile(r"(?<!\d)20\d{6}[_T-]?\d{6}(?!\d)")
_COMMIT = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost):\d+")


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
        self._names: dict[str, str] = {}

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

    def snapshot(self, *words: str) -> dict[str, Any]:
        """The exit code of a command and the masked JSON document that it prints."""
        code, output = self.run(*words, "--json")
        return {"exitCode": code, "document": self.masked(json.loads(output)) if output else None}

    def query(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of the store."""
        with contextlib.closing(sqlite3.connect(self.folder / "home" / "proctor.db")) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(statement, values)]

    def items(self) -> dict[str, list[dict[str, Any]]]:
        """The identity of every item, by run, in the order of the plan."""
        rows = self.query('SELECT * FROM "batch_items" ORDER BY "runId", "position"')
        items: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            identity = {key: row[key] for key in ("id", "digest", "runner", "repeat", "agent", "model")}
            items.setdefault(self.masked(row["runId"]), []).append(identity)
        return items

    def request_digests(self) -> list[list[Any]]:
        """A digest of each recorded request to a model: `[item, model, digest]`, sorted."""
        rows = self.query(
            'SELECT s."itemId" AS "item", c."provider", c."model", c."request", b."data" FROM "model_calls" c '
            'JOIN "sessions" s ON s."id" = c."sessionId" LEFT JOIN "blobs" b ON b."digest" = c."requestBlob"'
        )
        digests = []
        for row in rows:
            assert row["data"] is None or not row["request"]
            text = row["request"] if row["data"] is None else _unpacked(row["data"])
            masked = _mask_text(text, self._texts())
            digest = hashlib.sha256(masked.encode()).hexdigest()
            digests.append([row["item"], f"{row['provider']}/{row['model']}", digest])
        return sorted(digests)

    def masked(self, value: Any) -> Any:
        """`value` without moments, durations, folders, ids of sessions and sentences for people."""
        return _mask(value, self._texts())

    def files(self, folder: str) -> dict[str, Any]:
        """Every file below `folder`: the header of a CSV file, the shape of a JSON file."""
        root = self.folder / folder
        found: dict[str, Any] = {}
        for path in sorted(path for path in root.rglob("*") if path.is_file()):
            name = _mask_text(path.relative_to(root).as_posix(), self._texts())
            found[name] = _contents(path)
        return found

    def _texts(self) -> dict[str, str]:
        """Texts of this run that are replaced wherever they occur, longest first."""
        replaced = {str(self.folder): "<folder>", sys.executable: "<python>"}
        if (self.folder / "home" / "proctor.db").exists():
            for row in self.query('SELECT "id", "itemId", "attempt" FROM "sessions"'):
                replaced[row["id"]] = f"<session of {row['itemId']}, attempt {row['attempt']}>"
        return dict(sorted(replaced.items(), key=lambda pair: -len(pair[0])))


def run_command(words: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Run `proctor WORDS` in this process with this environment and working folder."""
    from proctor.__main__ import main

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
    file = RECORDED / f"{name}.json"
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get(RECORD_VARIABLE) == "1":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return
    recorded = file.read_text()
    if recorded != text:
        lines = difflib.unified_diff(
            recorded.splitlines(), text.splitlines(), f"recorded/{file.name}", "now", lineterm="", n=4
        )
        shown = "\n".join(list(lines)[:200])
        raise AssertionError(
            f"{name} differs from its snapshot ({RECORD_VARIABLE}=1 records it anew)\n{shown}"
        )


def shape(value: Any) -> Any:
    """Keys and types of a JSON value; the elements of a list are merged."""
    if isinstance(value, Mapping):
        return {key: shape(value[key]) for key in value}
    if isinstance(value, list):
        merged: Any = None
        for element in value:
            merged = shape(element) if merged is None else _merge(merged, shape(element))
        return [] if merged is None else [merged]
    return _type_name(value)


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else "string"


def _merge(one: Any, other: Any) -> Any:
    if one == other:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        absent = "absent"
        return {key: _merge(one.get(key, absent), other.get(key, absent)) for key in keys}
    if isinstance(one, list) and isinstance(other, list):
        return [_merge(one[0], other[0])] if one and other else one or other
    names = {
        name for part in (one, other) for name in (part if isinstance(part, str) else _kind(part)).split("|")
    }
    if all(isinstance(part, str) for part in (one, other)):
        return "|".join(sorted(names))
    complex_part = one if not isinstance(one, str) else other
    if isinstance(complex_part, dict) and "either" in complex_part:
        return complex_part
    return {"either": [complex_part, "|".join(sorted(names - {_kind(complex_part)}))]}


def _kind(part: Any) -> str:
    return "object" if isinstance(part, dict) else "array"


def _contents(path: Path) -> Any:
    if path.suffix == ".csv":
        with path.open(newline="") as lines:
            rows = list(csv.reader(lines))
        return {"columns": rows[0] if rows else [], "rows": max(0, len(rows) - 1)}
    if path.suffix == ".json":
        return shape(json.loads(path.read_text()))
    if path.suffix in (".jsonl", ".ndjson"):
        values = [json.loads(line) for line in path.read_text().splitlines()]
        return {"lines": len(values), "each": shape(values)}
    if path.suffix == ".md":
        return markdown_structure(path.read_text())
    if path.suffix == ".html":
        return html_structure(path.read_text())
    return "file"


def markdown_structure(text: str) -> dict[str, Any]:
    """Headings by level and the sizes of tables: what stays when the wording changes."""
    levels = [len(match[1]) for match in re.finditer(r"^(#+) ", text, re.MULTILINE)]
    tables: list[list[int]] = []
    columns = rows = 0
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            columns, rows = max(columns, len(re.split(r"(?<!\\)\|", line)) - 2), rows + 1
        elif rows:
            tables.append([columns, rows])
            columns = rows = 0
    return {"headings": levels, "tables": tables}


def html_structure(text: str) -> dict[str, int]:
    """How many headings, tables, rows, cells and figures a page has."""
    tags = ("h1", "h2", "h3", "table", "tr", "th", "td", "svg", "details", "script", "style")
    return {tag: len(re.findall(rf"<{tag}[\s>]", text)) for tag in tags}


def _mask(value: Any, texts: Mapping[str, str], key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {_mask_text(name, texts): _mask(part, texts, name) for name, part in value.items()}
    if key in PROSE_KEYS and value not in (None, "", [], {}) and not isinstance(value, bool | int | float):
        return f"<{'texts' if isinstance(value, list) else 'text'}>"
    if isinstance(value, list):
        return [_mask(part, texts, key) for part in value]
    if key not in KEPT_KEYS and MASKED_KEYS.match(key) and value not in (None, ""):
        return f"<{_type_name(value)}>"
    if isinstance(value, float):
        return float(f"{value:.9g}")
    return _mask_text(value, texts) if isinstance(value, str) else value


def _mask_text(text: str, texts: Mapping[str, str]) -> str:
    for found, mask in texts.items():
        text = text.replace(found, mask)
    for pattern, mask in (
        (_MOMENT, "<moment>"),
        (_PACKED_MOMENT, "<moment>"),
        (_COMMIT, "<commit>"),
        (_UUID, "<uuid>"),
        (_LOOPBACK, "<loopback>"),
    ):
        text = pattern.sub(mask, text)
    return text


def _unpacked(data: bytes) -> str:
    return data.decode()


Snapshot = Callable[..., dict[str, Any]]
