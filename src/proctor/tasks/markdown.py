"""Markdown task files, our own format: the prompt, starting files and checks of a benchmark task.

The Markdown is the prompt, unchanged; the front matter configures the task. All folders that a task names
must be beside it, so that a task from elsewhere cannot make Proctor copy other folders.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from proctor.errors import Place, PlanError, Problem, UsageError, WorkspaceError
from proctor.evaluators.expect import problems_of
from proctor.plan.source import PlanSource, ValuePlace, open_regular, refuse, resolved
from proctor.plan.validate import (
    Expectation,
    PlanResources,
    PlanSandbox,
    Seconds,
    Text,
    check_shape,
    sections_of,
    suggestion,
)
from proctor.plan.yaml_loader import read_source
from proctor.tasks.task import Task, TaskCheck, TaskFolder, folder_of
from proctor.workspace.hidden_tests import digest_of_archive, read_archive

_FENCE = re.compile(r"^\s*(```|~~~)")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
_FACT = re.compile(r"^\s*(?:[-*]\s+)?\*\*([^*:]+?):?\*\*\s*:?\s*(.*?)\s*$")
_BULLET = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s*)?(.+?)\s*$")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_BOX = re.compile(r"^\s*[-*+]\s+\[[ xX]\]\s*(.+?)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLine:
    """A line of text and its number."""

    number: int
    """Counted from 1, in the whole file."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Markdown:
    """A text and its parts."""

    title: str
    """Of the first heading, without the word `Task:`; empty when there is none."""
    is_task: bool
    """Whether the first heading marks it as a task."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Text after words in bold, by the word in lower case."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """The text below each heading, by the heading in lower case."""
    boxes: tuple[TextLine, ...] = ()
    """The entries of the section `Success Criteria`."""


def read_markdown(text: str, *, first_line: int = 1) -> Markdown:
    """Parse a text whose first line has this number in its file."""
    title, is_task, fenced, section = "", False, False, ""
    facts, sections, boxes = dict[str, str](), dict[str, list[str]](), list[TextLine]()
    for number, line in enumerate(text.split("\n"), first_line):
        if _FENCE.match(line):
            fenced = not fenced
        heading = None if fenced else _HEADING.match(line)
        if heading and len(heading[1]) == 1 and not title:
            word, colon, rest = heading[2].partition(":")
            is_task = bool(colon) and word.strip().lower() == "task"
            title = rest.strip() if is_task else heading[2]
        elif heading:
            section = heading[2].strip(": ").lower()
            sections.setdefault(section, [])
        elif section:
            sections[section].append(line)
        if not fenced and not heading:
            if section == "success criteria" and (entry := _BOX.match(line) or _BULLET.match(line)):
                boxes.append(TextLine(number=number, text=entry[1]))
            elif (fact := _FACT.match(line)) and not section:
                facts.setdefault(fact[1].strip().lower(), fact[2])
    return Markdown(
        title=title,
        is_task=is_task,
        facts=facts,
        sections={name: "\n".join(lines).strip() for name, lines in sections.items()},
        boxes=tuple(boxes),
    )


def bullets(section: str) -> tuple[str, ...]:
    """The entries of a list, each on one line."""
    lines, fenced = list[str](), False
    for line in section.split("\n"):
        fenced ^= bool(_FENCE.match(line))
        if not fenced and (entry := _BULLET.match(line)):
            lines.append(entry[1])
    return tuple(lines)


def _is_check(value: object) -> object:
    commands = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    if not commands or not all(isinstance(command, str) and command.strip() for command in commands):
        raise ValueError("should be a command, a list of commands, or commands under their success criteria")
    return value


class Header(BaseModel):
    """The front matter of a task."""

    model_config = ConfigDict(extra="forbid", strict=True)

    start: Text | None = Field(None, description="Folder with the files the task begins with.")
    empty: bool | None = Field(None, description="Whether the task begins with an empty folder.")
    repo: Text | None = Field(None, description="Git repository to begin from, instead of `start`.")
    ref: Text | None = Field(None, description="Branch, tag or commit of `repo`. Default: HEAD.")
    setup: Text | None = Field(None, description="Command run in the copy before the agent.")
    setup_once: Text | None = Field(
        None, description="Command that installs in `$PROCTOR_ENVIRONMENT`, once for all attempts."
    )
    setup_once_files: list[Text] | None = Field(
        None, description="Files that `setup_once` depends on, as patterns. Default: all."
    )
    check: Annotated[Any, AfterValidator(_is_check)] = Field(
        None, description="Commands that decide, each by its exit code."
    )
    check_files: Text | None = Field(None, description="Folder put over the work before it is checked.")
    hidden: Text | None = Field(
        None, description="Archive of hidden tests, as `tasks from-history` writes it."
    )
    sealed: bool | None = Field(None, description="Whether the agent's repository ends at `ref`.")
    date: Text | None = Field(None, description="When the work was really done, as 2024-01-31.")
    underspecification: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="What the text leaves open, from 0 to 1, as `tasks from-history` estimates it."
    )
    expect: Expectation | None = Field(None, description="What the agent's last words are checked for.")
    timeout: Seconds | None = Field(None, description="Seconds the agent may take.")
    check_timeout: Seconds | None = Field(None, description="Seconds each check may take.")
    agent: Text | None = Field(None, description="Who does the work. Default: builtin.")
    solution: Text | None = Field(None, description="Folder with the reference solution's files.")
    answer: Text | None = Field(None, description="What the reference solution says.")
    sandbox: PlanSandbox = None
    resources: PlanResources = None


FOLDERS = ("start", "check_files", "solution")
"""The settings that name a folder beside the task."""


SUFFIXES = (".md", ".markdown", ".txt")
MOST_BYTES = 10 * 1024 * 1024
DIFFICULTIES = {"smoke": "Smoke Test", "easy": "Easy", "medium": "Medium", "hard": "Hard"}


def read_task(file: Path) -> Task:
    """Read one task and check its folders. Raises `PlanError` or `UsageError`."""
    text = _text_of(file)
    header, body, first_line = _split(text, str(file))
    markdown = read_markdown(body, first_line=first_line)
    problems = list(check_shape(header, Header, sections_of(Header, "task")).problems)
    if not problems:
        problems += _contradictions(header, markdown)
    if not body.strip():
        problems.append(
            header.problem_at(first_line, 1, "the task asks for nothing", "Write what is to be done.")
        )
    folders = {} if problems else dict(_folders(header, file.absolute(), problems))
    if not problems and (hidden := _hidden(header, file.absolute(), problems)):
        folders["hidden"] = hidden
    if problems:
        refuse(problems)
    return _task(header.data or {}, markdown, body.strip(), file.absolute(), folders)


def _task(
    header: Mapping[str, Any], markdown: Markdown, body: str, file: Path, folders: Mapping[str, TaskFolder]
) -> Task:
    repo = header.get("repo")
    return Task(
        name=file.stem,
        title=markdown.title or file.stem.replace("_", " "),
        file=file,
        prompt=body,
        difficulty=_difficulty(markdown.facts.get("difficulty", ""), file),
        facts={name: value for name, value in markdown.facts.items() if name != "difficulty"},
        requirements=bullets(markdown.sections.get("requirements", "")),
        checks=_checks(header.get("check"), markdown.boxes, header.get("check_timeout")),
        start=folders.get("start"),
        repo=Path(resolved(repo, folder=file.parent, home=Path.home())) if repo else None,
        starts_empty=bool(header.get("empty")),
        ref=header.get("ref") or "HEAD",
        setup=header.get("setup") or "",
        setup_once=header.get("setup_once") or "",
        setup_once_files=tuple(header.get("setup_once_files") or ()),
        check_files=folders.get("check_files"),
        hidden=folders.get("hidden"),
        sealed=bool(header.get("sealed")),
        date=header.get("date") or "",
        underspecification=header.get("underspecification"),
        expect={
            name: expectation
            for name, expectation in (header.get("expect") or {}).items()
            if expectation is not None
        },
        timeout_seconds=header.get("timeout"),
        agent=header.get("agent") or "",
        solution=folders.get("solution"),
        answer=header.get("answer") or "",
        sandbox=header.get("sandbox"),
        resources=header.get("resources"),
    )


def _text_of(file: Path) -> str:
    if file.suffix not in SUFFIXES:
        raise UsageError(f"{file} is no task\nA task is a file whose name ends in {', '.join(SUFFIXES)}.")
    try:
        root, real = _root(file.absolute()).resolve(), file.resolve(strict=True)
        if not real.is_relative_to(root):
            raise UsageError(
                f"{file} leads out of its folder, to {real}\nCopy the task there, or name the file itself."
            )
        with open_regular(file) as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read the task {file}: {error.strerror}\nGive the path of a task."
        ) from error
    if len(data) > MOST_BYTES:
        raise UsageError(f"{file} is larger than {MOST_BYTES >> 20} MiB\nA task is a page or two of text.")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        problem = Problem(
            at=Place(str(file), line, 1), problem="this is no UTF-8", remedy="Save the file as UTF-8 text."
        )
        raise PlanError([problem]) from error


def _root(file: Path) -> Path:
    """The folder a task may read: the enclosing folder `tasks`, else its own."""
    return next((folder for folder in file.parents if folder.name == "tasks"), file.parent)


def _split(text: str, file: str) -> tuple[PlanSource, str, int]:
    """The front matter, the text after it, and the number of that text's first line."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return PlanSource(file, text, {}, ValuePlace(1, 1)), text, 1
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        nowhere = PlanSource(file, text, {}, ValuePlace(1, 1))
        problem = "the front matter has no end"
        refuse([nowhere.problem_at(1, 1, problem, "Write a line with nothing but `---` behind it.")])
    # A comment in place of the first line, so that every other line keeps its number.
    header = read_source("\n".join(["#", *lines[1:end], ""]), file=file)
    if header.data is None:
        header = PlanSource(file, text, {}, ValuePlace(1, 1))
    return header, "\n".join(lines[end + 1 :]), end + 2


def _contradictions(header: PlanSource, markdown: Markdown) -> Iterator[Problem]:
    fields = header.data
    if fields.get("start") and fields.get("repo"):
        yield header.problem(
            ("repo",),
            "the task has `start` and `repo`",
            "Keep one: it begins with files, or with a repository.",
        )
    if fields.get("ref") and not fields.get("repo"):
        yield header.problem(("ref",), "the task has `ref`, but no `repo`", "Add `repo`, or remove `ref`.")
    for name in ("sealed", "hidden"):
        if fields.get(name) and not fields.get("repo"):
            yield header.problem((name,), f"the task has `{name}`, but no `repo`", "Add `repo`.")
    if fields.get("hidden") and not isinstance(fields.get("check"), str):
        yield header.problem(("hidden",), "the hidden tests have no command", "Write `check: COMMAND`.")
    if fields.get("date") and not _DATE.fullmatch(fields["date"]):
        yield header.problem(("date",), "this is no date", "Write it like '2024-01-31', in quotes.")
    if "://" in (fields.get("repo") or ""):
        yield header.problem(("repo",), "`repo` is an address", "Clone it, and give the path of the clone.")
    if fields.get("check_files") and not fields.get("check"):
        yield header.problem(("check_files",), "the task has `check_files`, but no `check`", "Add `check`.")
    expect = {name: value for name, value in (fields.get("expect") or {}).items() if value is not None}
    if fields.get("expect") is not None:
        yield from (header.problem(("expect",), problem) for problem in problems_of(expect))
    if isinstance(fields.get("check"), dict):
        yield from _unknown_criteria(header, fields["check"], markdown.boxes)


def _unknown_criteria(
    header: PlanSource, checks: Mapping[str, str], boxes: Sequence[TextLine]
) -> Iterator[Problem]:
    known = {_bare(box.text): box.text for box in boxes}
    for criterion in checks:
        if known and _bare(criterion) not in known:
            meant = suggestion(criterion, known.values())
            remedy = f"Did you mean `{meant}`? " if meant else ""
            remedy += "Write it as it stands under `Success Criteria`."
            problem = f"there is no success criterion `{criterion}`"
            yield header.problem(("check", criterion), problem, remedy, of_key=True)


def _checks(checks: object, boxes: Sequence[TextLine], seconds: float | None = None) -> tuple[TaskCheck, ...]:
    commands = checks if isinstance(checks, dict) else {}
    by_name = {_bare(criterion): command for criterion, command in commands.items()}
    listed = [TaskCheck(criterion=box.text, command=by_name.pop(_bare(box.text), "")) for box in boxes]
    # Without boxes in the text, the front matter is where the criteria are written.
    listed += [
        TaskCheck(criterion=criterion, command=command)
        for criterion, command in commands.items()
        if _bare(criterion) in by_name
    ]
    loose = checks if isinstance(checks, list) else [checks] if isinstance(checks, str) else []
    listed += [TaskCheck(criterion="", command=command) for command in loose]
    return tuple(replace(check, timeout_seconds=seconds) for check in listed)


def _bare(criterion: str) -> str:
    return " ".join(criterion.lower().split()).rstrip(".")


def _folders(header: PlanSource, file: Path, problems: list[Problem]) -> Iterator[tuple[str, TaskFolder]]:
    """The folders of a task, with the digests of their contents."""
    root = _root(file).resolve()
    for name in FOLDERS:
        written = header.data.get(name)
        if not written:
            continue
        folder = (file.parent / written).resolve()
        if not folder.is_relative_to(root):
            remedy = f"Put the folder below {root}."
            problems.append(header.problem((name,), f"`{name}` leads out of the task's folder", remedy))
        elif not folder.is_dir():
            problems.append(
                header.problem(
                    (name,), f"there is no folder {folder}", f"`{name}` is a folder beside the task."
                )
            )
        elif file.resolve().is_relative_to(folder):
            problems.append(
                header.problem(
                    (name,), f"`{name}` holds the task itself", "Put the files in a folder of their own."
                )
            )
        else:
            try:
                yield name, folder_of(folder)
            except (WorkspaceError, OSError) as error:
                problems.append(header.problem((name,), str(error)))


def _hidden(header: PlanSource, file: Path, problems: list[Problem]) -> TaskFolder | None:
    """The archive of hidden tests, with the digest of its contents."""
    written = header.data.get("hidden")
    if not written:
        return None
    archive = (file.parent / written).resolve()
    if not archive.is_relative_to(_root(file).resolve()):
        remedy = f"Put it below {_root(file)}."
        problems.append(header.problem(("hidden",), "`hidden` leads out of the task's folder", remedy))
        return None
    try:
        read_archive(archive)
        return TaskFolder(path=archive, digest=digest_of_archive(archive))
    except WorkspaceError as error:
        problems.append(header.problem(("hidden",), str(error)))
        return None


def _difficulty(difficulty: str, file: Path) -> str:
    """The difficulty of the task, else the name of its folder."""
    word = difficulty or next((part for part in reversed(file.parent.parts) if part in DIFFICULTIES), "")
    return DIFFICULTIES.get(word.lower(), word)


MOST_TASKS = 1000


def read_tasks(path: Path) -> list[Task]:
    """The task in a file, or all tasks in a folder and the folders below it.

    Raises `PlanError` with everything that is wrong, or `UsageError` when there is no task at all.
    """
    problems, tasks = list[Problem](), list[Task]()
    if path.is_dir():
        if not list(_in_folder(path.absolute(), tasks, problems)):
            raise UsageError(
                f"there is no task in {path}\nA task is a .md file that begins with `# Task: …`."
            )
    else:
        _read_into(path, tasks, problems)
    if problems:
        refuse(problems)
    if len(tasks) > MOST_TASKS:
        raise UsageError(f"{path} holds {len(tasks):,} tasks\nAt most {MOST_TASKS} are run at once.")
    return _with_distinct_names(tasks, path)


def _in_folder(
    folder: Path, tasks: list[Task], problems: list[Problem], claimed: frozenset[Path] = frozenset()
) -> Iterator[Path]:
    """Read every task below a folder, except in the folders of tasks' files."""
    names = sorted(folder.iterdir(), key=_easiest_first)
    mine = [name for name in names if name.suffix in SUFFIXES and name.is_file() and is_task(name)]
    already = len(tasks)
    for file in mine:
        _read_into(file, tasks, problems)
        yield file
    claimed |= {
        files.path.resolve()
        for task in tasks[already:]
        for files in (task.start, task.check_files, task.solution)
        if files and files.path
    }
    for below in names:
        is_plain = below.is_dir() and not below.is_symlink() and not below.name.startswith(".")
        if is_plain and below.resolve() not in claimed:
            yield from _in_folder(below, tasks, problems, claimed)


def _easiest_first(path: Path) -> tuple[int, str]:
    levels = list(DIFFICULTIES)
    return (levels.index(path.name) if path.name in levels else len(levels)), path.name


def is_task(file: Path) -> bool:
    """Whether a file is a task: its first heading says so."""
    try:
        with open_regular(file) as opened:
            head = opened.read(64 * 1024).decode("utf-8", "replace")
    except OSError:
        return True
    return any(line.lower().startswith("# task:") for line in head.splitlines())


def _read_into(file: Path, tasks: list[Task], problems: list[Problem]) -> None:
    try:
        tasks.append(read_task(file))
    except PlanError as error:
        problems += error.problems


def _with_distinct_names(tasks: list[Task], path: Path) -> list[Task]:
    """The tasks, named by path where two have the same name."""
    names = [task.name for task in tasks]
    if len(set(names)) == len(names):
        return tasks
    root = path.absolute()
    longer = [task.file.relative_to(root).with_suffix("").as_posix() for task in tasks]
    return [replace(task, name=name) for task, name in zip(tasks, longer, strict=True)]
