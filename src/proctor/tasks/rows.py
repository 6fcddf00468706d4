"""Tasks in rows of JSONL, JSON, CSV and Parquet files: HumanEval, MBPP, SWE-bench, and plain datasets.

A row is recognized by its columns. Generated files (tests, stubs) stay texts in memory: a thousand rows load
in a second.
"""

import csv
import io
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter

from proctor.errors import UsageError
from proctor.export.tables import parquet_rows
from proctor.json_values import JsonMap, JsonObject, as_text, parse_json, texts_in
from proctor.plan.source import table_text, text_of
from proctor.tasks.task import NotRead, ReadOptions, Task, TaskCheck, TaskSet, texts_of

SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".json", ".json.gz", ".csv", ".tsv", ".parquet")
HUMANEVAL, MBPP, SWEBENCH, DATASET = "humaneval", "mbpp", "swe-bench", "dataset"
PROMPT_COLUMNS = ("prompt", "question", "input", "instruction", "query", "problem", "text")
EXPECT_COLUMNS = ("expect", "expected", "expected_output", "answer", "target", "output", "label", "ideal")
NAME_COLUMNS = ("id", "task_id", "name", "key")
SOLUTION_FILE, TEST_FILE = "solution.py", "proctor_check.py"
FUNCTION_TIMEOUT_SECONDS = 60.0
"""Of a check of one function. The original harness allows 3 s of a warm process; ours is started anew."""
SWEBENCH_TIMEOUT_SECONDS = 1800.0
_KINDS: Sequence[tuple[str, frozenset[str]]] = (
    (SWEBENCH, frozenset({"instance_id", "base_commit", "FAIL_TO_PASS"})),
    (HUMANEVAL, frozenset({"task_id", "prompt", "entry_point", "test"})),
    (MBPP, frozenset({"task_id", "test_list", "code"})),
)
_NAMED_COLUMN = re.compile(r"\{\{\s*(\w+)\s*\}\}")


MOST_BYTES = 256 * 1024 * 1024
"""Ten thousand rows of SWE-bench."""

RowReader = Callable[[JsonMap, int, Path, ReadOptions], Task]


def is_row_file(path: Path) -> bool:
    """Whether a file has rows, by its name."""
    return path.name.endswith(SUFFIXES)


def read_rows(file: Path, problems: list[NotRead]) -> Iterator[tuple[int, JsonMap]]:
    """The rows of a file, each with its line or number; rows that cannot be read go to `problems`."""
    name = file.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        yield from enumerate(parquet_rows(file), 1)
        return
    if name.endswith((".csv", ".tsv")):
        text, note = table_text(file, remedy="Give a file of tasks.", most_bytes=MOST_BYTES)
        if note:
            problems.append(NotRead(file=file, reason=note))
        reader = csv.DictReader(io.StringIO(text), delimiter="\t" if name.endswith(".tsv") else ",")
        for row in reader:
            yield reader.line_num, {key: value for key, value in row.items() if key is not None}
        return
    text = text_of(file, remedy="Give a file of tasks.", most_bytes=MOST_BYTES)
    if name.endswith(".json"):
        yield from _json_rows(file, text)
    else:
        yield from _json_lines(file, text, problems)


def _json_lines(file: Path, text: str, problems: list[NotRead]) -> Iterator[tuple[int, JsonMap]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            problems.append(NotRead(file=file, line=number, reason=f"this is not JSON: {error}"))
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            problems.append(NotRead(file=file, line=number, reason="this is not a JSON object"))


def _json_rows(file: Path, text: str) -> Iterator[tuple[int, JsonMap]]:
    try:
        document = parse_json(text)
    except ValueError as error:
        raise UsageError(f"{file} is not JSON: {error}\nGive a list of rows, or one row per line.") from error
    rows = document if isinstance(document, list) else [document]
    for number, row in enumerate(rows, 1):
        if isinstance(row, dict):
            yield number, row


def read_row_tasks(file: Path, options: ReadOptions) -> TaskSet:
    """The tasks of a file of rows."""
    problems = list[NotRead]()
    tasks = list[Task]()
    kind = ""
    reader: RowReader = _dataset_task
    for number, row in read_rows(file, problems):
        if not kind:
            kind = kind_of(row)
            reader = _READERS[kind]
        try:
            tasks.append(reader(row, number, file, options))
        except ValueError as error:
            name = as_text(row, "instance_id") or str(row.get("task_id") or "")
            problems.append(NotRead(file=file, line=number, task=name, reason=str(error)))
    return TaskSet(tasks=tuple(tasks), not_read=tuple(problems))


def kind_of(row: JsonMap) -> str:
    """The format of a row, by its columns."""
    if {"instance_id", "model_patch"} <= row.keys():
        raise UsageError(
            "these rows are predictions of SWE-bench, which are results and not tasks\n"
            "Give the dataset: rows with base_commit and FAIL_TO_PASS."
        )
    return next((kind for kind, columns in _KINDS if columns <= row.keys()), DATASET)


def _humaneval_task(row: JsonMap, number: int, file: Path, options: ReadOptions) -> Task:
    prompt, entry = _required(row, "prompt"), _required(row, "entry_point")
    test = f"{_required(row, 'test')}\n\ncheck({entry})\n"
    solution = as_text(row, "canonical_solution")
    text = (
        "Complete this Python function. Answer with the whole function in a code fence.\n\n"
        f"```python\n{prompt.rstrip()}\n```\n"
    )
    return _function_task(
        row,
        number,
        file,
        kind=HUMANEVAL,
        prompt=(options.template and _filled(options.template, row)) or text,
        test=f"from solution import *\nfrom solution import {entry}\n{test}",
        stub=prompt if prompt.endswith("\n") else f"{prompt}\n",
        solution=f"{prompt}{solution}" if solution else "",
        entry=entry,
        prefix=prompt,
    )


def _mbpp_task(row: JsonMap, number: int, file: Path, options: ReadOptions) -> Task:
    text = as_text(row, "text") or _required(row, "prompt")
    tests = texts_in(row, "test_list")
    if not tests:
        raise ValueError("the row has no tests in `test_list`")
    imports = "\n".join([*texts_in(row, "test_imports"), as_text(row, "test_setup_code")])
    prompt = f"{text}\n\nYour code should pass these tests:\n\n" + "\n".join(tests)
    return _function_task(
        row,
        number,
        file,
        kind=MBPP,
        prompt=(options.template and _filled(options.template, row))
        or f"{prompt}\n\nAnswer with Python code in a code fence.",
        test="\n".join(
            ["from solution import *", imports, *tests, *texts_in(row, "challenge_test_list"), ""]
        ),
        stub="",
        solution=as_text(row, "code").replace("\r\n", "\n"),
        entry="",
        prefix="",
    )


def _function_task(
    row: JsonMap,
    number: int,
    file: Path,
    *,
    kind: str,
    prompt: str,
    test: str,
    stub: str,
    solution: str,
    entry: str,
    prefix: str,
) -> Task:
    name = str(row["task_id"])
    settings: JsonObject = {"file": SOLUTION_FILE}
    if entry:
        settings |= {"entry_point": entry, "prefix": prefix}
    return Task(
        name=name if kind == HUMANEVAL else f"MBPP/{name}",
        title=entry or f"MBPP {name}",
        file=file,
        line=number,
        format=kind,
        prompt=prompt,
        start=texts_of({SOLUTION_FILE: stub}) if stub else None,
        check_files=texts_of({TEST_FILE: test}),
        checks=(
            TaskCheck(
                criterion="", command=f"python3 -B {TEST_FILE}", timeout_seconds=FUNCTION_TIMEOUT_SECONDS
            ),
        ),
        solution=texts_of({SOLUTION_FILE: solution}) if solution else None,
        agent="answer",
        settings=settings,
    )


def test_ids(value: object) -> tuple[str, ...]:
    """Ids of tests: a list, or a list that is encoded as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return ()
    return (
        tuple(str(name) for name in value)
        if isinstance(value, Sequence) and not isinstance(value, str)
        else ()
    )


def _swebench_task(row: JsonMap, number: int, file: Path, options: ReadOptions) -> Task:
    name, repo = _required(row, "instance_id"), _required(row, "repo")
    path = options.repository(repo, file.parent)
    if path is None:
        raise ValueError(f"there is no local clone of {repo}; give one with --repos {repo}=PATH")
    test_patch = as_text(row, "test_patch")
    command = options.check or _swebench_command(row, test_patch)
    if not command:
        raise ValueError("the row does not say how its tests are run; give --check COMMAND")
    patch = as_text(row, "patch")
    return Task(
        name=name,
        title=_first_line(_required(row, "problem_statement")),
        file=file,
        line=number,
        format=SWEBENCH,
        prompt=_required(row, "problem_statement"),
        repo=path,
        ref=_required(row, "base_commit"),
        setup=options.setup,
        difficulty=as_text(row, "difficulty"),
        facts={key: as_text(row, key) for key in ("created_at", "version", "repo") if as_text(row, key)},
        date=as_text(row, "created_at")[:10],
        sealed=True,
        test_patch=test_patch,
        solution_paths=tuple(_changed(patch)),
        checks=(
            TaskCheck(
                criterion="",
                command=command,
                verdict="tests",
                fail_to_pass=test_ids(row.get("FAIL_TO_PASS")),
                pass_to_pass=test_ids(row.get("PASS_TO_PASS")),
                timeout_seconds=SWEBENCH_TIMEOUT_SECONDS,
            ),
        ),
        solution=texts_of({SOLUTION_PATCH: patch}) if patch else None,
        solution_script=_apply_script(patch) if patch else "",
    )


SOLUTION_PATCH = ".proctor-solution.patch"


def _apply_script(patch: str) -> str:
    end = "PROCTOR_END_OF_PATCH"
    return f"git apply --whitespace=nowarn - <<'{end}'\n{patch.rstrip(chr(10))}\n{end}\n"


def _changed(patch: str) -> list[str]:
    """Files that a patch changes, adds or removes."""
    return sorted(set(re.findall(r"^(?:--- a|\+\+\+ b)/(.+?)\s*$", patch, re.MULTILINE)))


def _swebench_command(row: JsonMap, test_patch: str) -> str:
    """The runner of the repository on the test files of the patch, where these are Python files."""
    files = sorted(set(re.findall(r"^\+\+\+ b/(.+?)\s*$", test_patch, re.MULTILINE)))
    files = files or sorted(
        {name.partition("::")[0] for name in test_ids(row.get("FAIL_TO_PASS")) if "::" in name}
    )
    tests = [name for name in files if name.endswith(".py")]
    if not tests:
        modules = {match[1] for name in test_ids(row.get("FAIL_TO_PASS")) if (match := _OWNER.search(name))}
        tests = sorted(f"tests/{module.replace('.', '/')}.py" for module in modules)
    if not tests:
        return ""
    if as_text(row, "repo") == "django/django":
        # Its models and URLs have no tests of their own.
        named = [name for name in tests if "test" in name.rpartition("/")[2]] or tests
        labels = [name.removeprefix("tests/").removesuffix(".py").replace("/", ".") for name in named]
        settings = "--verbosity 2 --settings=test_sqlite --parallel 1"
        return _logged(f"env PYTHONPATH=. python3 tests/runtests.py {settings} {_quoted(labels)}")
    if as_text(row, "repo") == "sympy/sympy":
        return _logged(f"python3 bin/test -C --verbose --no-colors {_quoted(tests)}")
    return f'python3 -m pytest -p no:cacheprovider -q --junitxml="$PROCTOR_TEST_REPORT" {_quoted(tests)}'


_OWNER = re.compile(r"\(([\w.]+?)\.[A-Z]\w*(?:\.\w+)?\)")
"""The module in an ID such as `test_a (queries.tests.Case)`."""


def _logged(command: str) -> str:
    """The command with its output as the report, of which the end is shown."""
    report = '"$PROCTOR_TEST_REPORT"'
    return f"{command} > {report} 2>&1; code=$?; tail -n 100 {report}; exit $code"


def _quoted(names: Sequence[str]) -> str:
    return " ".join(map(shlex.quote, names))


def _dataset_task(row: JsonMap, number: int, file: Path, options: ReadOptions) -> Task:
    if options.template:
        prompt = _filled(options.template, row)
    else:
        column = options.prompt_column or next((name for name in PROMPT_COLUMNS if name in row), "")
        if not column or column not in row:
            names = ", ".join(map(str, row))
            raise ValueError(f"there is no column {column or 'of prompts'}; the columns are: {names}")
        prompt = _text(row[column])
    if not prompt.strip():
        raise ValueError("the prompt is empty")
    expected = options.expect_column or next((name for name in EXPECT_COLUMNS if name in row), "")
    if options.expect_column and options.expect_column not in row:
        raise ValueError(
            f"there is no column {options.expect_column}; the columns are: {', '.join(map(str, row))}"
        )
    value = row.get(expected) if expected else None
    expect = _expectation(value)
    name = next((_text(row[key]) for key in NAME_COLUMNS if row.get(key) not in (None, "")), "")
    answer = str(value) if value is not None and not isinstance(value, Mapping) else ""
    return Task(
        name=name or f"{file.name.partition('.')[0]}-{number}",
        title=_first_line(prompt),
        file=file,
        line=number,
        format=DATASET,
        prompt=prompt,
        system=as_text(row, "system"),
        expect=expect,
        answer=answer,
    )


def _expectation(value: object) -> JsonMap:
    """A mapping is an `expect` section; anything else is the expected answer."""
    if isinstance(value, Mapping):
        return dict(value)
    if value is None or value == "":
        return {}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {"contains": [str(part) for part in value]}
    return {"equals": value if isinstance(value, str | int | float) else str(value)}


def _filled(template: str, row: JsonMap) -> str:
    """A template with `{column}` or `{{ column }}` replaced by the values of a row."""

    def value_of(name: str) -> str:
        if name not in row:
            raise ValueError(f"the template names `{name}`; the columns are: {', '.join(map(str, row))}")
        return _text(row[name])

    if _NAMED_COLUMN.search(template):
        return _NAMED_COLUMN.sub(lambda match: value_of(match[1]), template)
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"the template cannot be read: {error}") from error
    return "".join(text + (value_of(name) if name is not None else "") for text, name, _, _ in parts)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _required(row: JsonMap, name: str) -> str:
    text = as_text(row, name)
    if not text:
        raise ValueError(f"the row has no `{name}`")
    return text


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= 80 else f"{line[:79]}…"


_READERS: Mapping[str, RowReader] = {
    HUMANEVAL: _humaneval_task,
    MBPP: _mbpp_task,
    SWEBENCH: _swebench_task,
    DATASET: _dataset_task,
}
