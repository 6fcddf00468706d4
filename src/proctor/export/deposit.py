"""The archive of a run that a journal or repository takes, and its way back.

A zip file with tidy tables, a codebook of their columns, the config, the prompts and roles, the output folder
of the run, its recording, the versions of everything, and checksums. Unpacked elsewhere, `proctor analyze`
prints the figures of the original.
"""

import ast
import csv
import hashlib
import io
import json
import platform
import re
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from inspect import getsource
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import cast

from proctor.errors import UsageError
from proctor.export.tables import columns, export_tables
from proctor.formatting import plural
from proctor.json_values import JsonMap, as_map, as_text, parse_json
from proctor.store import Scope, StoreReader
from proctor.store import tables as store_tables
from proctor.store.tables import ROWS, BatchRow, ItemRow

TABLES = (
    "batch_items",
    "sessions",
    "iterations",
    "messages",
    "tool_calls",
    "model_calls",
    "metrics",
    "scores",
    "labels",
)
CHECKSUMS, ENVIRONMENT, OUTPUT = "checksums.sha256", "environment.json", "output"
MOST_LEVELS = 12
"""Distinct texts of a column that the codebook lists."""
LARGEST_BYTES = 16 << 30
LARGEST_TEXT = 64 << 20
"""Of the files that are read as a whole: checksums and environment."""
_UNITS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"tokens?$|Tokens"), "tokens"),
    (re.compile(r"Usd$|^price"), "US dollars"),
    (re.compile(r"Seconds$"), "s"),
    (re.compile(r"Ms$"), "ms"),
    (re.compile(r"(At|Time|^timestamp|^at)$"), "UTC, ISO 8601"),
    (re.compile(r"Json$|^(factors|details|settings|notes|validity|servedModels)$"), "JSON"),
)
"""Units of columns, by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposit:
    """An archive that was written or unpacked."""

    path: Path
    files: int
    run_id: str


def write_deposit(read: StoreReader, batch: BatchRow, file: Path, *, version: str) -> Deposit:
    """Write the archive of a run; the file must not exist. `version` is Proctor's."""
    if file.exists():
        raise UsageError(f"{file} already exists\nChoose another file: deposits are never overwritten.")
    run_id, options = batch["runId"], as_map(parse_json(batch["optionsJson"]))
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".deposit-") as place:
        partial = Path(place) / "deposit.zip"
        with zipfile.ZipFile(partial, "x", zipfile.ZIP_DEFLATED) as archive:
            sums = dict[str, str]()
            for name, content in _contents(read, batch, options, Path(place), version):
                data = (
                    content.read_bytes() if isinstance(content, Path) else content.encode("utf-8", "replace")
                )
                archive.writestr(name, data)
                sums[name] = hashlib.sha256(data).hexdigest()
            archive.writestr(CHECKSUMS, "".join(f"{digest}  {name}\n" for name, digest in sums.items()))
        partial.replace(file)
    return Deposit(path=file, files=len(sums) + 1, run_id=run_id)


def unpack_deposit(file: Path, folder: Path) -> Deposit:
    """Unpack an archive to a new folder, once its checksums are right; `UsageError` if they are not."""
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty\nPass --out with a new folder.")
    try:
        with zipfile.ZipFile(file) as archive:
            names = [each.filename for each in archive.infolist() if not each.is_dir()]
            if sum(each.file_size for each in archive.infolist()) > LARGEST_BYTES:
                raise UsageError(f"{file} is larger than {LARGEST_BYTES >> 30} GiB when unpacked")
            known = {*names}
            is_plain = len(known) == len(names) and all(map(_is_plain, archive.infolist()))
            # A folder is no file as well.
            is_plain = is_plain and known.isdisjoint(_folders(archive.namelist()))
            if not is_plain or not known >= {CHECKSUMS, ENVIRONMENT}:
                raise UsageError(f"{file} is not a deposit of Proctor")
            sums = _sums(_text(archive, CHECKSUMS))
            wrong = sorted(known - {CHECKSUMS} ^ {*sums})
            wrong += [name for name in names if name in sums and _digest(archive, name) != sums[name]]
            if wrong:
                raise UsageError(f"{file} is damaged or was changed: {', '.join(wrong[:5])}")
            run_id = as_text(as_map(parse_json(_text(archive, ENVIRONMENT))), "runId")
            archive.extractall(folder)
    # Encrypted files are `RuntimeError`.
    except (OSError, EOFError, RuntimeError, ValueError, zlib.error, zipfile.BadZipFile) as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    return Deposit(path=folder, files=len(names), run_id=run_id)


def _is_plain(entry: zipfile.ZipInfo) -> bool:
    """Whether an entry is written as `write_deposit` does: its name says one place in the folder."""
    name, path = entry.filename, PurePosixPath(entry.filename)
    is_inside = not path.is_absolute() and ".." not in path.parts and "\\" not in name
    is_known = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    return is_inside and is_known and path.as_posix() == name.removesuffix("/")


def _folders(names: Iterable[str]) -> set[str]:
    """The folders of the entries of an archive, some of which are entries themselves."""
    own = {name.removesuffix("/") for name in names if name.endswith("/")}
    return own.union(*({parent.as_posix() for parent in PurePosixPath(name).parents} for name in names))


def _text(archive: zipfile.ZipFile, name: str) -> str:
    """A file that is read as a whole."""
    with archive.open(name) as content:
        data = content.read(LARGEST_TEXT + 1)
    if len(data) > LARGEST_TEXT:
        raise UsageError(f"{name} is larger than {LARGEST_TEXT >> 20} MiB")
    return data.decode("utf-8", "replace")


def _digest(archive: zipfile.ZipFile, name: str) -> str:
    # Piece by piece: a small archive may hold a large file.
    with archive.open(name) as content:
        return hashlib.file_digest(cast("io.BufferedReader", content), "sha256").hexdigest()


def _sums(text: str) -> dict[str, str]:
    pairs = (line.partition("  ") for line in text.splitlines())
    return {name: digest for digest, _, name in pairs}


def _contents(
    read: StoreReader, batch: BatchRow, options: JsonMap, place: Path, version: str
) -> Iterator[tuple[str, Path | str]]:
    """The files of an archive, by their names in it."""
    scope, run_id = Scope(run_id=batch["runId"]), batch["runId"]
    files = export_tables(read, scope, out=place / "data", format="csv", tables=TABLES, label="run")
    named = {file.name.removesuffix("-run.csv"): file for file in files}
    turns = _csv(_turns(read, run_id))
    codes = [row for table, file in named.items() for row in _codes(table, file)]
    yield "README.md", _readme(batch, version)
    yield "data/turns.csv", turns
    yield "data/codebook.csv", _csv([*codes, *_codes_of_turns(turns)])
    for table, file in named.items():
        yield f"data/{table}.csv", file
    yield "config/plan.yaml", batch["planText"]
    yield "config/options.json", json.dumps(options, ensure_ascii=False, indent=2)
    for digest in sorted(read.resource_digests(run_id)):
        yield f"config/resources/{digest}.json", read.resource(run_id, digest) or ""
    yield ENVIRONMENT, json.dumps(_environment(batch, version), indent=2)
    output = Path(as_text(options, "outputDir") or as_text(options, "output"))
    if output.name and output.is_dir():
        for path in sorted(output.rglob("*")):
            if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
                yield f"{OUTPUT}/{path.relative_to(output).as_posix()}", path
    recording = as_text(options, "record") or as_text(options, "replay")
    if recording and Path(recording).is_file():
        yield f"recording/{Path(recording).name}", Path(recording)


def _items(read: StoreReader, run_id: str) -> Iterator[ItemRow]:
    offset = 0
    while page := read.items(run_id, limit=500, offset=offset):
        yield from page
        offset += len(page)


def _turns(read: StoreReader, run_id: str) -> list[dict[str, object]]:
    """One row a turn of each item's last session, with the factors of the item and what was measured."""
    rows = list[dict[str, object]]()
    for item in _items(read, run_id):
        if not item["sessionId"]:
            continue
        about = {
            "runId": run_id,
            "itemId": item["id"],
            "sessionId": item["sessionId"],
            "status": item["status"],
            "repeat": item["repeat"],
            "model": item["model"],
        }
        factors = {f"factor.{name}": level for name, level in as_map(parse_json(item["factors"])).items()}
        measured: dict[int, dict[str, object]] = {}
        for metric in read.of_session("metrics", item["sessionId"]):
            value = metric["label"] if metric["value"] is None else metric["value"]
            measured.setdefault(metric["step"], {})[f"metric.{metric['name']}"] = value
        for step in read.of_session("iterations", item["sessionId"]):
            own = {"turn": step["step"], "totalTokens": step["totalTokens"], "costUsd": step["costUsd"]}
            rows.append({**about, **factors, **own, **measured.get(step["step"], {})})
    return rows


def _csv(rows: Iterable[Mapping[str, object]]) -> str:
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\r\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _codes(table: str, file: Path) -> Iterator[dict[str, object]]:
    """The columns of a table: meaning, unit, and levels or range."""
    meanings = _meanings(ROWS[table])
    with file.open(encoding="utf-8", newline="") as lines:
        values: dict[str, set[str]] = {name: set() for name in columns(table)}
        for row in csv.DictReader(lines):
            for name, known in values.items():
                if len(known) <= MOST_LEVELS and row.get(name):
                    known.add(str(row[name])[:80])
    for name, known in values.items():
        yield _code(table, name, meanings.get(name, ""), known)


def _codes_of_turns(text: str) -> Iterator[dict[str, object]]:
    rows = list(csv.DictReader(io.StringIO(text)))
    for name in rows[0] if rows else ():
        kind, dot, rest = name.partition(".")
        meaning = {
            "factor": f"Level of the factor {rest}.",
            "metric": f"Value of the metric {rest} after the turn.",
        }
        known = {row[name] for row in rows if row[name]}
        yield _code("turns", name, meaning.get(kind, "") if dot else "", known)


def _code(table: str, column: str, meaning: str, values: set[str]) -> dict[str, object]:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", column).capitalize()
    unit = next((unit for pattern, unit in _UNITS if pattern.search(column)), "")
    is_listed = 0 < len(values) <= MOST_LEVELS and unit != "JSON"
    levels = "; ".join(sorted(values)) if is_listed else ""
    return {
        "table": table,
        "column": column,
        "meaning": meaning or f"{words}.",
        "unit": unit,
        "levels": levels,
    }


def _meanings(row: type) -> dict[str, str]:
    """What the schema says of the columns of a table: the text below each."""
    module = ast.parse(getsource(store_tables))
    body = next(
        each.body for each in module.body if isinstance(each, ast.ClassDef) and each.name == row.__name__
    )
    found = dict[str, str]()
    for column, text in pairwise(body):
        if not isinstance(column, ast.AnnAssign) or not isinstance(text, ast.Expr):
            continue
        if isinstance(text.value, ast.Constant):
            found[ast.unparse(column.target)] = " ".join(str(text.value.value).split())
    return found


def _environment(batch: BatchRow, version: str) -> dict[str, object]:
    packages = {
        each.metadata["Name"]: each.version for each in metadata.distributions() if each.metadata["Name"]
    }
    return {
        "runId": batch["runId"],
        "job": batch["job"],
        "createdAt": batch["createdAt"],
        "finishedAt": batch["finishedAt"],
        "status": batch["status"],
        "seed": batch["seed"],
        "ranWithProctor": batch["proctorVersion"],
        "depositedWithProctor": version,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": dict(sorted(packages.items())),
    }


def _readme(batch: BatchRow, version: str) -> str:
    return f"""# Run {batch["runId"]}

A run of Proctor ({batch["job"]}), made on {batch["createdAt"]}, status {batch["status"]}.
Deposited with Proctor {version}.

| path | content |
|---|---|
| `data/turns.csv` | one row a turn, with the factors of its item and its metrics |
| `data/*.csv` | the tables of the run; `model_calls.csv` says which model answered each call |
| `data/codebook.csv` | each column: meaning, unit, levels |
| `config/` | the plan as it was run, its options, and the prompts, roles and scenarios it used |
| `{OUTPUT}/` | the output folder of the run, with its transcripts |
| `recording/` | the recorded traffic with models, if there is one |
| `environment.json` | versions of Proctor, Python and all packages |
| `{CHECKSUMS}` | SHA-256 of each file (`sha256sum -c {CHECKSUMS}`) |

Check and unpack it:  `proctor import deposit FILE.zip --out FOLDER`
Analyze it again:     `proctor analyze FOLDER/{OUTPUT}`
"""


def deposit_text(deposit: Deposit) -> str:
    """What was written or unpacked, in words."""
    return f"{plural(deposit.files, 'file')} of run {deposit.run_id}"
