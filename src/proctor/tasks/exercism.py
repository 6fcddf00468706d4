"""Exercism exercises, as in Aider's polyglot benchmark: stub files, hidden tests, and a second try.

The second try sees the output of the failed tests. `.meta` holds the answer and is not in the agent's folder.
"""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from proctor.errors import WorkspaceError
from proctor.json_values import JsonMap, as_map, as_text, parse_json, texts_in
from proctor.plan.source import bytes_of
from proctor.tasks.task import NotRead, ReadOptions, Task, TaskCheck, TaskSet, texts_of

EXERCISM = "exercism"
TEST_TIMEOUT_SECONDS = 180.0
_HIDDEN = (".meta", ".docs", ".git", "node_modules", "target", "build", ".gradle")
_COMMANDS: Mapping[str, str] = {
    ".go": "go test ./...",
    ".rs": "cargo test -- --include-ignored",
    ".js": "npm test",
    ".java": "sh gradlew test --no-daemon",
    ".cpp": "cmake -S . -B build -DEXERCISM_RUN_ALL_TESTS=1 && cmake --build build",
}
NOTE = (
    "\n\nUse the above instructions to modify the supplied files: {files}\n"
    "Do not change the names of existing functions or classes, as they may be used by other code such as "
    "unit tests. Only use the standard library."
)


def read_exercise(folder: Path, options: ReadOptions) -> TaskSet:  # noqa: ARG001
    """The exercise in a folder."""
    file = folder / ".meta" / "config.json"
    try:
        return TaskSet(tasks=(_task(folder.absolute(), as_map(parse_json(bytes_of(file)))),))
    except (ValueError, WorkspaceError, OSError) as error:
        return TaskSet(tasks=(), not_read=(NotRead(file=file, task=folder.name, reason=str(error)),))


def _task(folder: Path, config: JsonMap) -> Task:
    stubs, tests, examples = (texts_in(config, "files", name) for name in ("solution", "test", "example"))
    if not stubs or not tests:
        raise ValueError("`files` names no solution, or no test")
    texts = _texts(folder)
    hidden = {*tests, *examples}
    checks = {name: _unskipped(name, text) for name, text in texts.items() if name in tests}
    if missing := [name for name in tests if name not in checks]:
        raise ValueError(f"there is no {missing[0]}")
    suffix = next(
        (PurePosixPath(name).suffix for name in stubs if PurePosixPath(name).suffix in (*_COMMANDS, ".py")),
        "",
    )
    if not suffix:
        raise ValueError(f"how the tests of {stubs[0]} are run is not known")
    names = [name for name in stubs if name not in ("Cargo.toml", "CMakeLists.txt")]
    solution = dict(_reference(folder, names, examples))
    return Task(
        name=_name(folder),
        title=as_text(config, "blurb") or folder.name,
        file=folder / ".meta" / "config.json",
        format=EXERCISM,
        prompt=_instructions(folder) + NOTE.format(files=" ".join(names)),
        start=texts_of({name: text for name, text in texts.items() if name not in hidden}),
        check_files=texts_of(checks),
        checks=(_check(suffix, tests),),
        solution=texts_of(solution) if solution else None,
        retry_with_output=True,
    )


def _name(folder: Path) -> str:
    """`python/two-fer` in a collection of languages, else the name of the folder."""
    parts = folder.parts
    if len(parts) >= 4 and parts[-3:-1] == ("exercises", "practice"):
        return f"{parts[-4]}/{folder.name}"
    return folder.name


def _check(suffix: str, tests: list[str]) -> TaskCheck:
    if suffix == ".py":
        names = " ".join(shlex.quote(name) for name in tests if name.endswith("_test.py") or "test" in name)
        command = f'python3 -m pytest -p no:cacheprovider -q --junitxml="$PROCTOR_TEST_REPORT" {names}'
        return TaskCheck(criterion="", command=command, verdict="tests", timeout_seconds=TEST_TIMEOUT_SECONDS)
    return TaskCheck(criterion="", command=_COMMANDS[suffix], timeout_seconds=TEST_TIMEOUT_SECONDS)


def _unskipped(name: str, text: str) -> str:
    """A test file with all its tests switched on: only the first one is, as published."""
    if name.endswith((".js", ".ts")):
        return re.sub(r"\bx(test|it|describe)\(", r"\1(", text)
    if name.endswith(".java"):
        return re.sub(r"^\s*@Disabled\([^)]*\)\s*\n", "", text, flags=re.MULTILINE)
    return text


def _instructions(folder: Path) -> str:
    names = ("introduction.md", "instructions.md", "instructions.append.md")
    parts = [(folder / ".docs" / name) for name in names]
    text = "\n\n".join(part.read_text(encoding="utf-8").strip() for part in parts if part.is_file())
    if not text:
        raise ValueError("it has no .docs/instructions.md")
    return text


def _texts(folder: Path) -> dict[str, str]:
    """The text files of an exercise, without its reference solution; other files are build tools."""
    texts: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if name.parts[0] in _HIDDEN or not path.is_file() or path.is_symlink():
            continue
        try:
            texts[name.as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return texts


def _reference(folder: Path, stubs: list[str], examples: list[str]) -> "list[tuple[str, str]]":
    """The reference solution under the names of the stubs: by position, by name, or by suffix."""
    files = [
        name for name in examples if (folder / name).is_file() and not name.endswith("Cargo-example.toml")
    ]
    if len(files) == len(stubs):
        pairs = list(zip(stubs, files, strict=True))
    else:
        pairs = [(_matching(name, stubs), name) for name in files]
    return [(stub, (folder / name).read_text(encoding="utf-8")) for stub, name in pairs]


def _matching(example: str, stubs: list[str]) -> str:
    path = PurePosixPath(example)
    for stub in stubs:
        if PurePosixPath(stub).name == path.name:
            return stub
    alike = [stub for stub in stubs if PurePosixPath(stub).suffix == path.suffix]
    if len(alike) == 1:
        return alike[0]
    folder = PurePosixPath(stubs[0]).parent
    return (folder / path.name).as_posix()
