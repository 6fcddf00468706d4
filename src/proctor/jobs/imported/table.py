"""Read tables of results (CSV, TSV, JSON lines, JSON, Parquet) into a run, or for one analysis.

Files are read twice: the first pass finds every problem and the columns that are factors, the second streams
the rows to the store. Cells are text from elsewhere: they are stored as they are and never executed.
"""

import codecs
import csv
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from re import sub
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, SupportsFloat

from proctor import __version__
from proctor.errors import UsageError
from proctor.export.tables import parquet_rows
from proctor.formatting import plural
from proctor.item import ERROR, FAIL, SUCCESS, TIMEOUT, digest_of
from proctor.job import check_run_id
from proctor.json_values import MOST
from proctor.records._reading import JsonLine, json_lines, load_json
from proctor.store import Store, StoreReader
from proctor.store.imported_runs import ImportedFile, TableImport, TableOutcome

if TYPE_CHECKING:
    from _csv import Reader

    from proctor.stats.results import Results

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
"""Files that are read in a folder."""
FILE = "@file"
"""In place of a column: the name of the file without its suffix."""
COLUMNS = (
    "task",
    "model",
    "agent",
    "repeat",
    "success",
    "score",
    "status",
    "cost",
    "seconds",
    "tokens",
    "error",
)
"""Columns with a meaning; all others are factors. `score:NAME` is a further score."""
RESULTS = {"success", "score", "status"}
"""Columns with the outcome of a row; a table has at least one of them."""
SCORE = "score:"
MOST_LEVELS = 50
"""A column with more values than this is not a factor."""
LONGEST_LEVEL = 200
"""In characters; a column with longer values is not a factor."""
MOST_REPORTED = 20
"""Problems that are listed; all are counted."""
LARGEST_CELL = 16 * 1024 * 1024
DIGEST_CHUNK = 1024 * 1024
MISSING = frozenset({"", "nan", "na", "n/a", "null", "none"})
"""Texts of an empty cell, in lower case."""
_TRUE = "true t yes y 1 1.0 pass passed resolved solved success successful succeeded correct ok"
_FALSE = "false f no n 0 0.0 fail failed unresolved unsolved failure unsuccessful incorrect wrong"
SUCCESSES = {**dict.fromkeys(_TRUE.split(), True), **dict.fromkeys(_FALSE.split(), False)}
STATUSES = {
    **dict.fromkeys(("success", "pass", "passed", "resolved", "succeeded"), SUCCESS),
    **dict.fromkeys(("fail", "failed", "unresolved", "failure"), FAIL),
    **dict.fromkeys(("error", "errored", "crash", "crashed"), ERROR),
    **dict.fromkeys(("timeout", "timed_out", "timed out", "timedout"), TIMEOUT),
}
REASONS = {SUCCESS: "completed", FAIL: "checks_failed", ERROR: "internal_error", TIMEOUT: "timeout"}
Cells = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProblem:
    """A problem of a table: where, what, and how to fix it."""

    place: str
    """File and line."""
    problem: str
    fix: str = ""
    column: str = ""

    def __str__(self) -> str:
        column = f"column `{self.column}`: " if self.column else ""
        return f"{self.place}: {column}{self.problem}" + (f"\n{self.fix}" if self.fix else "")


class TableError(UsageError):
    """A table cannot be imported. Nothing has been stored."""

    def __init__(self, problems: Sequence[TableProblem], count: int) -> None:
        more = f"\n\n… and {plural(count - len(problems), 'more problem')}" if count > len(problems) else ""
        super().__init__("\n\n".join(map(str, problems)) + more)
        self.problems, self.count = list(problems), count


def columns_of(options: Sequence[str] | None) -> dict[str, str]:
    """The mapping of `NAME=COLUMN` texts, as `--column` takes them."""
    columns = {}
    for option in options or ():
        name, equals, column = option.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} does not map a column\nWrite NAME=COLUMN, e.g. task=instance_id.")
        columns[name.strip()] = column.strip()
    return columns


def import_table(
    store: Store,
    paths: Sequence[Path],
    run_id: str,
    now: datetime,
    *,
    columns: Mapping[str, str] | None = None,
    pass_score: float | None = None,
) -> TableImport:
    """Make the rows of tables items of a run; raise `TableError` with every problem before storing anything.

    `columns` names the column of the file for `task`, `model`, …, or for a factor; `@file` is the name of the
    file, and "" ignores the column. `pass_score` is the lowest score that counts as success where a table has
    no column `success` or `status`.
    """
    check_run_id(run_id)
    tables = [_TableFile(path) for path in _files(paths)]
    survey = _Survey(dict(columns or {}), pass_score)
    for table in tables:
        survey.read(table)
    layout = survey.layout()

    def rows(known: Sequence[ImportedFile]) -> tuple[Sequence[ImportedFile], Iterable[TableOutcome]]:
        files = _identified(tables, known, by_name=FILE in survey.mapping.values())
        return files, (
            outcome
            for table, file in zip(tables, files, strict=True)
            for outcome in layout.outcomes(table, file.key)
        )

    counts = store.imported_runs.save_table(run_id, rows, now, __version__)
    return TableImport(
        run_id=run_id, files=len(tables), rows=survey.rows, notes=survey.notes(), **asdict(counts)
    )


def _identified(
    tables: "Sequence[_TableFile]", known: Sequence[ImportedFile], *, by_name: bool
) -> list[ImportedFile]:
    """The files with their keys in the run: that of the same path, else of the same content, else a new one.

    `by_name`: the name of a file is part of its content.
    """
    by_path = {each.path: each.key for each in known}
    by_digest = {each.digest: each.key for each in known}
    files, keys = list[ImportedFile](), {each.key for each in known}
    used = {by_path.get(str(table.path.absolute()), "") for table in tables}
    for table in tables:
        path = str(table.path.absolute())
        digest = table.digest(table.path.stem if by_name else "")
        key = by_path.get(path) or by_digest.get(digest, "")
        if not key or (key in used and path not in by_path):
            key = digest_of([digest, path])[:32] if digest in keys | used else digest
        used.add(key)
        files.append(ImportedFile(key=key, path=path, digest=digest))
    return files


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [each for each in sorted(path.rglob("*")) if each.suffix.lower() in SUFFIXES]
            files += [each for each in inside if each.is_file()]
            if not inside:
                raise UsageError(f"the folder {path} has no tables\nTables end in {', '.join(SUFFIXES)}.")
        elif not path.is_file():
            raise UsageError(f"there is no file or folder {path}")
        elif path.suffix.lower() not in SUFFIXES:
            raise UsageError(f"{path} is not a table\nTables end in {', '.join(SUFFIXES)}.")
        else:
            files.append(path)
    if not files:
        raise UsageError("there are no tables to import\nGive a file or a folder.")
    return list(dict.fromkeys(files))


# Reading files.


@dataclass(frozen=True, slots=True)
class _RowProblem:
    """A row that cannot be read."""

    line: int
    problem: str
    fix: str = ""


class _TableFile:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def digest(self, more: str) -> str:
        """Of its content, and of `more`."""
        digest = hashlib.sha256(more.encode("utf-8", "replace"))
        with self.path.open("rb") as file:
            while chunk := file.read(DIGEST_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()[:32]

    def place(self, line: int) -> str:
        """File and line, for messages."""
        return f"{self.path}:{line}" if line else str(self.path)

    def rows(self) -> Iterator[tuple[int, Cells] | _RowProblem]:
        """Its rows with their lines; in a file without lines, their numbers."""
        suffix = self.path.suffix.lower()
        try:
            if suffix == ".parquet":
                yield from enumerate(parquet_rows(self.path), start=1)
            elif suffix in (".csv", ".tsv"):
                yield from _csv_rows(self.path)
            elif suffix == ".json":
                yield from _json_rows(self.path)
            else:
                yield from map(_object_of, json_lines(self.path))
        except (OSError, ValueError, RecursionError) as error:
            message = getattr(error, "strerror", None) or str(error) or type(error).__name__
            yield _RowProblem(0, message)


def _object_of(line: JsonLine) -> tuple[int, Cells] | _RowProblem:
    if line.problem:
        return _RowProblem(line.number, line.problem, "Write one JSON object per line.")
    if not isinstance(line.value, dict):
        return _RowProblem(line.number, "it is not a JSON object", "Write one JSON object per line.")
    return line.number, line.value


def _json_rows(path: Path) -> Iterator[tuple[int, Cells] | _RowProblem]:
    document = load_json(path)
    if not isinstance(document, list):
        yield _RowProblem(0, "it is not a list of rows", "Write a JSON list of objects, or JSON lines.")
        return
    for number, row in enumerate(document, start=1):
        yield (number, row) if isinstance(row, dict) else _RowProblem(number, "it is not a JSON object")


def _csv_rows(path: Path) -> Iterator[tuple[int, Cells] | _RowProblem]:
    with path.open("rb") as file:
        is_wide = file.read(2) in (b"\xff\xfe", b"\xfe\xff")
    encoding = "utf-16" if is_wide else "utf-8-sig"
    line = 0
    with path.open(encoding=encoding, newline="") as text, _large_cells():
        try:
            delimiter = _delimiter(path, text.readline())
            text.seek(0)
            reader = csv.reader(text, delimiter=delimiter)
            for row in _cells(reader):
                line = reader.line_num
                yield row
        except UnicodeDecodeError:
            name = encoding.removesuffix("-sig").upper()
            # The reader decodes ahead: the row it was at says nothing.
            line = _undecodable_line(path, encoding)
            yield _RowProblem(line, f"it is not {name}, from this line on", _AS_UTF8)
        except csv.Error as error:
            yield _RowProblem(line + 1, f"it is not valid CSV: {error}")


_AS_UTF8 = "Save the file as CSV in UTF-8."
_DECODED_BYTES = 1 << 20


def _undecodable_line(path: Path, encoding: str) -> int:
    """The number of the first line that is not text in an encoding."""
    decoder, line, before = codecs.getincrementaldecoder(encoding)(), 1, ""
    with path.open("rb") as file:
        while True:
            data = file.read(_DECODED_BYTES)
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                text = error.object[: error.start].decode(error.encoding, "replace")
                return line + _line_ends(before + text) - _line_ends(before)
            if not data:
                return line
            line += _line_ends(before + text) - _line_ends(before)
            before = text[-1:]


def _line_ends(text: str) -> int:
    return text.count("\n") + text.count("\r") - text.count("\r\n")


def _cells(reader: "Reader") -> Iterator[tuple[int, Cells] | _RowProblem]:
    header = [name.strip() for name in next(reader, [])]
    twice = [name for name, n in Counter(filter(None, header)).items() if n > 1]
    if twice:
        yield _RowProblem(1, f"the header names a column twice: {', '.join(twice)}", "Rename one of them.")
        return
    # The index that pandas writes has no name.
    named = [(at, name) for at, name in enumerate(header) if name]
    line = reader.line_num
    for row in reader:
        # A quoted cell may span lines: a row is named by its first.
        first, line = line + 1, reader.line_num
        if not any(row):
            continue
        if len(row) != len(header):
            problem = f"the row has {plural(len(row), 'cell')}, the header {len(header)}"
            yield _RowProblem(first, problem, "Quote cells that contain the separator.")
            continue
        yield first, {name: row[at] for at, name in named}


def _delimiter(path: Path, header: str) -> str:
    if path.suffix.lower() == ".tsv":
        return "\t"
    return max((",", ";", "\t"), key=lambda each: len(next(csv.reader([header], delimiter=each), [])))


@contextmanager
def _large_cells() -> Iterator[None]:
    before = csv.field_size_limit(LARGEST_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(before)


# What the columns mean.


@dataclass(slots=True)
class _Column:
    """Values of a column that may be a factor."""

    levels: set[str] = field(default_factory=set)
    is_plain: bool = True
    """Whether its values are short texts or numbers."""

    def add(self, value: object) -> None:
        """Count a value as a level, unless there are too many or it is not a short text or number."""
        if not self.is_plain or len(self.levels) > MOST_LEVELS:
            return
        level = _level(value)
        self.is_plain = level is not None and len(level) <= LONGEST_LEVEL
        if level and self.is_plain:
            self.levels.add(level)

    def is_factor(self, rows: int) -> bool:
        """Whether the values of the column group the rows of a table."""
        # A column with a value of its own in most rows identifies rows; it does not group them.
        is_many = len(self.levels) > MOST_LEVELS or (rows >= 4 and len(self.levels) > rows / 2)
        return self.is_plain and not is_many


class _Survey:
    """The first pass: problems, and the columns of all files."""

    def __init__(self, mapping: Mapping[str, str], pass_score: float | None) -> None:
        self.mapping, self._pass_score = mapping, pass_score
        self._problems: list[TableProblem] = []
        self._problem_count = 0
        self._columns: dict[str, _Column] = {}
        self._sources: dict[Path, Mapping[str, str]] = {}
        self._zero_based: set[Path] = set()
        self._off_scale: tuple[float, str] | None = None
        self._counts_by_score = False
        self.rows = 0

    def read(self, table: _TableFile) -> None:
        """Check every row of a file."""
        sources: dict[str, str] = {}
        names: dict[str, None] = {}
        # Rows of JSON lines before the first that has the column.
        early: dict[str, int] = {}
        rows_before, problems_before = self.rows, self._problem_count
        for row in table.rows():
            if isinstance(row, _RowProblem):
                self._add(TableProblem(place=table.place(row.line), problem=row.problem, fix=row.fix))
                continue
            line, cells = row
            self.rows += 1
            if new := [name for name in cells if name not in names]:
                names |= dict.fromkeys(new)
                sources = resolve(self.mapping, names)
            values = self._check(table, line, cells, sources)
            if not values.task and "task" not in sources:
                early.setdefault("task", line)
            if not values.status and not RESULTS & sources.keys():
                early.setdefault("result", line)
        self._sources[table.path] = sources
        if self.rows > rows_before:
            self._check_columns(table, list(names), sources, early)
        elif self._problem_count == problems_before:
            self._add(TableProblem(place=table.place(0), problem="it has no rows"))

    def _add(self, problem: TableProblem) -> None:
        self._problem_count += 1
        if len(self._problems) < MOST_REPORTED:
            self._problems.append(problem)

    def _check_columns(
        self, table: _TableFile, names: Sequence[str], sources: Mapping[str, str], early: Mapping[str, int]
    ) -> None:
        listed = f"There are: {', '.join(names)}."

        def missing(problem: str, fix: str) -> None:
            self._add(TableProblem(place=table.place(0), problem=problem, fix=f"{fix}{listed}"))

        for target, source in self.mapping.items():
            name = source or target
            if source != FILE and name not in names:
                near = get_close_matches(name, names, n=1, cutoff=0.5)
                missing(f"there is no column `{name}`", f"Did you mean `{near[0]}`? " if near else "")
        if "task" not in sources:
            missing("there is no column `task`", f"Name it: --column task={_nearest('task', names)}. ")
        elif "task" in early:
            self._add(TableProblem(place=table.place(early["task"]), problem="the row has no task"))
        if not RESULTS & sources.keys():
            column = _nearest("success", names)
            missing(
                "there is no column `success`, `score` or `status`", f"Name one: --column success={column}. "
            )
        elif "result" in early:
            self._add(TableProblem(place=table.place(early["result"]), problem="the row has no result"))

    def _check(self, table: _TableFile, line: int, cells: Cells, sources: Mapping[str, str]) -> "_Values":
        values = _RowReader(table, line, cells, sources, self._pass_score, self._add).read()
        if values.repeat == 0:
            self._zero_based.add(table.path)
        if values.is_by_score and values.score is not None:
            self._counts_by_score = True
            if self._pass_score is None and not 0 <= values.score <= 1:
                self._off_scale = self._off_scale or (values.score, table.place(line))
        used = set(sources.values())
        for name, value in cells.items():
            if name not in used and self.mapping.get(name) != "":
                column = self._columns.get(name) or self._columns.setdefault(name, _Column())
                column.add(value)
        return values

    def layout(self) -> "_ColumnMapping":
        """What the columns mean. Raises `TableError` if there are problems."""
        if self._off_scale is not None:
            score, place = self._off_scale
            self._add(
                TableProblem(
                    place=place,
                    problem=f"the score {score:g} is not between 0 and 1: which scores count as success?",
                    fix="Give the lowest score that counts as success: --pass-score SCORE.",
                )
            )
        if self._problem_count:
            raise TableError(self._problems, self._problem_count)
        factors = [name for name, column in self._columns.items() if column.is_factor(self.rows)]
        return _ColumnMapping(self._sources, factors, self._pass_score, frozenset(self._zero_based))

    def notes(self) -> list[str]:
        """What a user should know of the import."""
        notes = []
        if self._counts_by_score:
            lowest = 1.0 if self._pass_score is None else self._pass_score
            notes.append(f"a score of {lowest:g} or more counts as success (change it: --pass-score)")
        unused = [name for name, column in self._columns.items() if not column.is_factor(self.rows)]
        if unused:
            notes.append(
                f"not used as factors, since their values are long or mostly distinct: {', '.join(unused)}; "
                f"to use one: --column {unused[0]}={unused[0]}"
            )
        return notes


def resolve(mapping: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """The column of each target: as mapped, or by its name in any case."""
    sources = {target: source for target, source in mapping.items() if source}
    used = {*sources.values(), *(target for target, source in mapping.items() if not source)}
    free = {name.strip().casefold(): name for name in reversed(list(names)) if name not in used}
    for target in COLUMNS:
        if target not in mapping and target in free:
            sources[target] = free[target]
    for name in free.values():
        if name.startswith(SCORE):
            sources.setdefault(name, name)
    return sources


def _nearest(target: str, names: Sequence[str]) -> str:
    """The column that a target is most likely called."""
    usual = {
        "task": (
            "task_id",
            "instance_id",
            "task_name",
            "instance",
            "problem",
            "question_id",
            "sample_id",
            "id",
        ),
        "success": ("resolved", "passed", "correct", "solved", "pass", "reward", "accuracy", "result"),
    }[target]
    by_case = {name.casefold(): name for name in names}
    near = [by_case[each] for each in usual if each in by_case]
    return next(iter(near or get_close_matches(target, names, n=1, cutoff=0.5)), "COLUMN")


# What a row says.


@dataclass(slots=True)
class _Values:
    """What a row says."""

    task: str = ""
    model: str = ""
    agent: str = ""
    repeat: int | None = None
    status: str = ""
    score: float | None = None
    is_by_score: bool = False
    """Whether the score decides the status."""
    cost: float | None = None
    seconds: float | None = None
    tokens: int = 0
    error: str = ""
    scores: list[tuple[str, float]] = field(default_factory=list)
    factors: dict[str, str] = field(default_factory=dict)


class _RowReader:
    """Reads one row; problems go to `report`."""

    def __init__(
        self,
        table: _TableFile,
        line: int,
        cells: Cells,
        sources: Mapping[str, str],
        pass_score: float | None,
        report: Callable[[TableProblem], None],
    ) -> None:
        self._table, self._line, self._cells, self._sources = table, line, cells, sources
        self._pass_score, self._report = pass_score, report

    def read(self) -> _Values:
        """The values of the row."""
        known = self._sources
        values = _Values(task=self._text("task"), model=self._text("model"), agent=self._text("agent"))
        if not values.task and "task" in known:
            self._problem("task", "it is empty", "Every row needs a task.")
        values.repeat = self._repeat() if "repeat" in known else None
        values.cost = self._amount("cost") if "cost" in known else None
        values.seconds = self._amount("seconds") if "seconds" in known else None
        values.tokens = int(self._amount("tokens") or 0) if "tokens" in known else 0
        values.error = self._text("error") if "error" in known else ""
        values.score = self._number("score") if "score" in known else None
        if values.score is not None:
            values.scores.append(("score", values.score))
        for target in known:
            if target in COLUMNS:
                continue
            if target.startswith(SCORE):
                if (score := self._number(target)) is not None:
                    values.scores.append((target.removeprefix(SCORE), score))
            elif level := _level(self._cell(target)):
                values.factors[target] = level
        self._judge(values)
        return values

    def _judge(self, values: _Values) -> None:
        status, success = self._status(), self._success()
        if status and success is not None and (status == SUCCESS) != success:
            self._problem(
                "status", f"it is {status}, but success is {str(success).lower()}", "Correct one of them."
            )
        if status:
            values.status = status
        elif success is not None:
            values.status = SUCCESS if success else FAIL
        elif values.score is not None:
            values.is_by_score = True
            lowest = 1.0 if self._pass_score is None else self._pass_score
            values.status = SUCCESS if values.score >= lowest - 1e-9 else FAIL
        elif (known := RESULTS & self._sources.keys()) and all(self._cell(each) is None for each in known):
            column = next(name for name in COLUMNS if name in known)
            fix = "Fill it in; an attempt without a result has the status error or timeout."
            self._problem(column, "the row has no result", fix)

    def _problem(self, target: str, problem: str, fix: str) -> None:
        column = self._sources.get(target, target)
        self._report(
            TableProblem(place=self._table.place(self._line), column=column, problem=problem, fix=fix)
        )

    def _cell(self, target: str) -> object:
        """The value of a cell; None: it is missing."""
        source = self._sources.get(target)
        if source is None:
            return None
        if source == FILE:
            return self._table.path.stem
        value = self._cells.get(source)
        if isinstance(value, str):
            value = value.strip()
            return None if value.casefold() in MISSING else value
        return None if isinstance(value, float) and math.isnan(value) else value

    def _text(self, target: str) -> str:
        value = self._cell(target)
        return "" if value is None else value if isinstance(value, str) else _as_text(value)

    def _number(self, target: str) -> float | None:
        value = self._cell(target)
        if value is None:
            return None
        number = as_figure(value)
        if number is not None and MOST < abs(number) < math.inf:
            self._problem(target, f"{_quoted(value)} is too large", f"Write a number up to {MOST:g}.")
            return None
        if number is None or not math.isfinite(number):
            self._problem(
                target, f"{_quoted(value)} is not a finite number", "Write a number, or leave it empty."
            )
            return None
        return number

    def _amount(self, target: str) -> float | None:
        number = self._number(target)
        if number is not None and number < 0:
            self._problem(
                target, f"{number:g} is negative", "Write a number of 0 or more, or leave it empty."
            )
            return None
        return number

    def _repeat(self) -> int | None:
        value = self._cell("repeat")
        if value is None:
            return None
        number = as_figure(value)
        if number is None or not number.is_integer() or not 0 <= number < 1_000_000_000:
            self._problem(
                "repeat",
                f"{_quoted(value)} is not a whole number",
                "Number the repeats, leave them out to have them counted, or use the column as a factor: "
                f"--column repeat= --column FACTOR={self._sources['repeat']}.",
            )
            return None
        return int(number)

    def _success(self) -> bool | None:
        value = self._cell("success")
        if value is None or isinstance(value, bool):
            return value
        word = value.casefold() if isinstance(value, str) else _as_text(value)
        if word not in SUCCESSES:
            self._problem(
                "success",
                f"{_quoted(value)} is neither success nor failure",
                "Write true or false, 1 or 0, yes or no, pass or fail, resolved or unresolved; "
                f"for numbers between, use --column score={self._sources['success']}.",
            )
            return None
        return SUCCESSES[word]

    def _status(self) -> str:
        value = self._cell("status")
        if value is None:
            return ""
        status = STATUSES.get(_as_text(value).casefold(), "")
        if not status:
            self._problem(
                "status",
                f"{_quoted(value)} is not a status",
                "Write success, fail, error or timeout; to ignore the column: "
                f"--column {self._sources['status']}=",
            )
        return status


def as_figure(value: object) -> float | None:
    """A number, also from text such as `$0.42`; None when it is not one."""
    if isinstance(value, str):
        value = value.removeprefix("$").strip()
        # Python also reads `1_000` and digits of other scripts.
        if not value.isascii() or "_" in value:
            return None
    try:
        return float(value) if isinstance(value, str | SupportsFloat) else None
    except (ValueError, OverflowError):
        return None


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else str(value)


def _level(value: object) -> str | None:
    """A value as the level of a factor; "": it is missing; None: it cannot be one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        value = value.strip()
        return "" if value.casefold() in MISSING else value
    return None if isinstance(value, dict | list | bytes) else _as_text(value)


def _quoted(value: object) -> str:
    text = _as_text(value)
    return json.dumps(text if len(text) <= 60 else f"{text[:60]}…", ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class _ColumnMapping:
    """What the columns of all files mean."""

    sources: Mapping[Path, Mapping[str, str]]
    """The column of each target, by file."""
    factors: Sequence[str]
    """Columns that are factors by their own name."""
    pass_score: float | None
    zero_based: frozenset[Path]
    """Files that count repeats from 0."""

    def outcomes(self, table: _TableFile, file: str) -> Iterator[TableOutcome]:
        """The rows of a file."""
        sources, first = self.sources[table.path], int(table.path in self.zero_based)
        for row in table.rows():
            if isinstance(row, _RowProblem):
                raise UsageError(
                    f"{table.place(row.line)}: the file changed during the import\nImport it again."
                )
            line, cells = row
            values = _RowReader(table, line, cells, sources, self.pass_score, _changed).read()
            for name in self.factors:
                if name in cells and (level := _level(cells[name])):
                    values.factors.setdefault(name, level)
            yield TableOutcome(
                task=values.task,
                agent=values.agent,
                model=values.model,
                factors=values.factors,
                repeat=None if values.repeat is None else values.repeat + first,
                status=values.status,
                reason=REASONS[values.status],
                error=values.error,
                cost_usd=values.cost,
                seconds=values.seconds,
                tokens=values.tokens,
                scores=values.scores,
                file=file,
                place=table.place(line),
            )


def _changed(problem: TableProblem) -> None:
    raise UsageError(f"{problem}\nThe file changed during the import; import it again.")


def load_sources(
    store: Store, names: Sequence[str], now: datetime, *, columns: Mapping[str, str] | None = None
) -> "Results":
    """The finished items of runs, and the rows of result files (`results.csv`), as one table."""
    # Loads numpy, which importing a table does not need.
    from proctor.results.loading import load_from

    with _opened(store, names, now, columns or {}) as sources:
        return load_from(sources, now)


@contextmanager
def _opened(
    store: Store, names: Sequence[str], now: datetime, columns: Mapping[str, str]
) -> Iterator[list[tuple[StoreReader, str]]]:
    """Each name as a reader and a run in it; files are read into a store of their own that is removed."""
    with ExitStack() as stack:
        sources: list[tuple[StoreReader, str]] = []
        used: set[str] = set()
        for name in names:
            path = Path(name)
            if not path.exists() or store.read.exact_batch(name):
                # A run wins over a file of the same name.
                sources.append((store.read, name))
                continue
            folder = stack.enter_context(TemporaryDirectory(prefix="proctor-table-"))
            copy = stack.enter_context(Store(str(Path(folder) / "table.db")))
            stem = sub(r"[^A-Za-z0-9._-]", "-", path.stem).lstrip(".-")[:100] or "table"
            run_id = next(
                name for name in (stem, *(f"{stem}-{n}" for n in range(2, 100))) if name not in used
            )
            used.add(run_id)
            import_table(copy, [path], run_id, now, columns=columns)
            sources.append((copy.read, run_id))
        yield sources
