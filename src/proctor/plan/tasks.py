"""A task file: what is asked of every model, what it begins with, and how success is told.

The Markdown is for the agent, word for word; the front matter above it is for us. Everything a task
names lies beside it: a task that came from somewhere else must not make us copy other folders.

Opens the files of the task; knows nothing of models, agents or git.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.errors import Place, PlanError, Problem, UsageError, WorkspaceError
from proctor.expect import problems_of
from proctor.plan.markdown import Line, Markdown, bullets, read_markdown
from proctor.plan.reading import read_source
from proctor.plan.repositories import resolved
from proctor.plan.source import Source, Spot, refuse
from proctor.plan.suggest import suggestion
from proctor.plan.task_header import FOLDERS, Header, vocabulary
from proctor.plan.validate import check_shape
from proctor.workspace.starting import NOTHING, digest_of_folder

SUFFIXES = (".md", ".markdown", ".txt")
MOST_BYTES = 10 * 1024 * 1024
DIFFICULTIES = {"smoke": "Smoke Test", "easy": "Easy", "medium": "Medium", "hard": "Hard"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One way to tell whether the work is good."""

    criterion: str
    """The success criterion it is about; empty: the task as a whole."""
    command: str
    """Empty: nothing checks this criterion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Files beside a task, and the digest of their contents."""

    path: Path
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is asked of every model."""

    name: str
    """The file's, without its suffix."""
    title: str
    file: Path
    prompt: str
    """What the agent is given."""
    difficulty: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What else is said in bold: issue, time estimate."""
    requirements: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    """Every success criterion, then the checks of no criterion."""
    start: Folder | None = None
    repo: Path | None = None
    ref: str = "HEAD"
    setup: str = ""
    check_files: Folder | None = None
    expect: Mapping[str, Any] = field(default_factory=dict)
    timeout_seconds: float | None = None
    agent: str = ""
    solution: Folder | None = None
    answer: str = ""

    @property
    def commands(self) -> tuple[Check, ...]:
        """The checks that can be made."""
        return tuple(check for check in self.checks if check.command)

    @property
    def start_digest(self) -> str:
        return self.start.digest if self.start else NOTHING


def read_task(file: Path) -> Task:
    """Read one task and look at the folders it names. Raises `PlanError` or `UsageError`."""
    text = _text_of(file)
    header, body, first_line = _split(text, str(file))
    markdown = read_markdown(body, first_line=first_line)
    problems = list(check_shape(header, Header, vocabulary).problems)
    if not problems:
        problems += _contradictions(header, markdown)
    if not body.strip():
        problems.append(
            header.problem_at(first_line, 1, "the task asks for nothing", "Write what is to be done.")
        )
    folders = {} if problems else dict(_folders(header, file.absolute(), problems))
    if problems:
        refuse(problems)
    return _task(header.data or {}, markdown, body.strip(), file.absolute(), folders)


def _task(
    given: Mapping[str, Any], markdown: Markdown, body: str, file: Path, folders: Mapping[str, Folder]
) -> Task:
    repo = given.get("repo")
    return Task(
        name=file.stem,
        title=markdown.title or file.stem.replace("_", " "),
        file=file,
        prompt=body,
        difficulty=_difficulty(markdown.facts.get("difficulty", ""), file),
        facts={name: value for name, value in markdown.facts.items() if name != "difficulty"},
        requirements=bullets(markdown.sections.get("requirements", "")),
        checks=_checks(given.get("check"), markdown.boxes),
        start=folders.get("start"),
        repo=Path(resolved(repo, folder=file.parent, home=Path.home())) if repo else None,
        ref=given.get("ref") or "HEAD",
        setup=given.get("setup") or "",
        check_files=folders.get("check_files"),
        expect={name: wanted for name, wanted in (given.get("expect") or {}).items() if wanted is not None},
        timeout_seconds=given.get("timeout"),
        agent=given.get("agent") or "",
        solution=folders.get("solution"),
        answer=given.get("answer") or "",
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
        with file.open("rb") as opened:
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
    """What a task may read: the folder `tasks` it is in, or else its own."""
    return next((folder for folder in file.parents if folder.name == "tasks"), file.parent)


def _split(text: str, file: str) -> tuple[Source, str, int]:
    """The front matter, the text behind it, and the number of that text's first line."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return Source(file, text, {}, Spot(1, 1)), text, 1
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        nowhere = Source(file, text, {}, Spot(1, 1))
        problem = "the front matter has no end"
        refuse([nowhere.problem_at(1, 1, problem, "Write a line with nothing but `---` behind it.")])
    # A comment in place of the first line, so that every other line keeps its number.
    header = read_source("\n".join(["#", *lines[1:end], ""]), file=file)
    if header.data is None:
        header = Source(file, text, {}, Spot(1, 1))
    return header, "\n".join(lines[end + 1 :]), end + 2


def _contradictions(header: Source, markdown: Markdown) -> Iterator[Problem]:
    given = header.data
    if given.get("start") and given.get("repo"):
        yield header.problem(
            ("repo",),
            "the task has `start` and `repo`",
            "Keep one: it begins with files, or with a repository.",
        )
    if given.get("ref") and not given.get("repo"):
        yield header.problem(("ref",), "the task has `ref`, but no `repo`", "Add `repo`, or remove `ref`.")
    if "://" in (given.get("repo") or ""):
        yield header.problem(("repo",), "`repo` is an address", "Clone it, and give the path of the clone.")
    if given.get("check_files") and not given.get("check"):
        yield header.problem(("check_files",), "the task has `check_files`, but no `check`", "Add `check`.")
    expect = {name: wanted for name, wanted in (given.get("expect") or {}).items() if wanted is not None}
    if given.get("expect") is not None:
        yield from (header.problem(("expect",), problem) for problem in problems_of(expect))
    if isinstance(given.get("check"), dict):
        yield from _unknown_criteria(header, given["check"], markdown.boxes)


def _unknown_criteria(header: Source, checks: Mapping[str, str], boxes: Sequence[Line]) -> Iterator[Problem]:
    known = {_bare(box.text): box.text for box in boxes}
    for criterion in checks:
        if known and _bare(criterion) not in known:
            meant = suggestion(criterion, known.values())
            remedy = f"Did you mean `{meant}`? " if meant else ""
            remedy += "Write it as it stands under `Success Criteria`."
            problem = f"there is no success criterion `{criterion}`"
            yield header.problem(("check", criterion), problem, remedy, of_key=True)


def _checks(given: Any, boxes: Sequence[Line]) -> tuple[Check, ...]:
    commands = given if isinstance(given, dict) else {}
    by_name = {_bare(criterion): command for criterion, command in commands.items()}
    listed = [Check(criterion=box.text, command=by_name.pop(_bare(box.text), "")) for box in boxes]
    # Without boxes in the text, the front matter is where the criteria are written.
    listed += [
        Check(criterion=criterion, command=command)
        for criterion, command in commands.items()
        if _bare(criterion) in by_name
    ]
    loose = given if isinstance(given, list) else [given] if isinstance(given, str) else []
    return (*listed, *(Check(criterion="", command=command) for command in loose))


def _bare(criterion: str) -> str:
    return " ".join(criterion.lower().split()).rstrip(".")


def _folders(header: Source, file: Path, problems: list[Problem]) -> Iterator[tuple[str, Folder]]:
    """Each folder the task names, with the digest of what is in it."""
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
                yield name, Folder(path=folder, digest=digest_of_folder(folder))
            except (WorkspaceError, OSError) as error:
                problems.append(header.problem((name,), str(error)))


def _difficulty(said: str, file: Path) -> str:
    """As the task says, else as its folder is called."""
    word = said or next((part for part in reversed(file.parent.parts) if part in DIFFICULTIES), "")
    return DIFFICULTIES.get(word.lower(), word)
