"""Which format a path is in, and its tasks: the one entry point of all readers. Writes tasks as Markdown."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import yaml

from proctor.errors import PlanError, UsageError
from proctor.json_values import JsonObject
from proctor.plan.source import open_regular
from proctor.tasks.markdown import SUFFIXES as TEXT_SUFFIXES
from proctor.tasks.markdown import read_tasks
from proctor.tasks.rows import is_row_file, read_row_tasks
from proctor.tasks.task import NotRead, ReadOptions, Task, TaskFolder, TaskSet, texts_of
from proctor.workspace.starting_files import copy_over, write_texts

MOST_TASKS = 10_000
HEAD_BYTES = 64 * 1024
_YAML = (".yaml", ".yml")

Reader = Callable[[Path, ReadOptions], TaskSet]


def read_task_set(path: Path, options: ReadOptions | None = None) -> TaskSet:
    """All tasks at a path: a file or a folder in any of the formats. Nothing of them is run.

    Raises `UsageError` when there is no task or a folder is unreadable, `PlanError` when a task of our own
    format is wrong.
    """
    options = options or ReadOptions()
    try:
        task_set = read_folder(path, options) if path.is_dir() else reader_of(path)(path, options)
    except OSError as error:
        raise UsageError(
            f"{error.filename or path} cannot be read: {error.strerror or error}\n"
            "Make it readable, or give a path without it."
        ) from error
    if not task_set.tasks:
        reasons = "\n".join(str(each) for each in task_set.not_read[:10])
        raise UsageError(f"there is no task in {path}\n{reasons or HINT}")
    if len(task_set.tasks) > MOST_TASKS:
        raise UsageError(
            f"{path} holds {len(task_set.tasks):,} tasks\nAt most {MOST_TASKS:,} are run at once."
        )
    return replace(task_set, tasks=tuple(_with_distinct_names(task_set.tasks)))


HINT = (
    "A task is a .md file that begins with `# Task: …`, a folder with task.toml or task.yaml, a file of rows "
    "(.jsonl, .csv, .parquet), an exercise with .meta/config.json, or a promptfoo configuration."
)


def reader_of(file: Path) -> Reader:
    """The reader of a file, by its name and its first keys."""
    if file.suffix in TEXT_SUFFIXES or not file.is_file():
        return _read_markdown
    if file.name in ("task.toml", "task.yaml"):
        return _read_parent
    if file.suffix in (*_YAML, ".json") and (reader := _configuration_reader(file)):
        return reader
    if is_row_file(file):
        return read_row_tasks
    # Its error names the file.
    return _read_markdown


def _configuration_reader(file: Path) -> Reader | None:
    # Loaded for these formats alone.
    from proctor.tasks import amp, promptfoo

    keys = _top_level_keys(file)
    if file.name.startswith("promptfooconfig") or promptfoo.is_configuration(keys):
        return promptfoo.read_promptfoo
    return amp.read_amp if amp.is_amp(keys) else None


def _top_level_keys(file: Path) -> set[str]:
    """Keys at the start of lines of YAML, or the members of a JSON file's first object."""
    with open_regular(file) as opened:
        text = opened.read(HEAD_BYTES).decode("utf-8-sig", "replace")
    if file.suffix == ".json":
        return set(re.findall(r'"(\w+)"\s*:', text))
    return set(re.findall(r"^([A-Za-z_]\w*)\s*:", text, re.MULTILINE))


def _read_markdown(path: Path, options: ReadOptions) -> TaskSet:  # noqa: ARG001
    return TaskSet(tasks=tuple(read_tasks(path)))


def _read_parent(path: Path, options: ReadOptions) -> TaskSet:
    return read_folder(path.parent, options)


def read_folder(folder: Path, options: ReadOptions) -> TaskSet:
    """The tasks of a folder: one task, or all tasks below it."""
    tasks, not_read, models = list[Task](), list[NotRead](), list[str]()
    for reader, path in _sources(folder):
        try:
            task_set = reader(path, options)
        except PlanError as error:
            if reader is _read_markdown:
                raise
            not_read += [
                NotRead(file=path, line=problem.at.line, reason=problem.problem) for problem in error.problems
            ]
            continue
        except UsageError as error:
            not_read.append(NotRead(file=path, reason=error.problem))
            continue
        tasks += task_set.tasks
        not_read += task_set.not_read
        models += task_set.models
    return TaskSet(tasks=tuple(tasks), not_read=tuple(not_read), models=tuple(dict.fromkeys(models)))


def folder_reader(folder: Path) -> Reader | None:
    """The reader of a folder that is one task; None: it is none."""
    from proctor.tasks import exercism, harbor

    if (folder / "task.toml").is_file():
        return harbor.read_harbor
    if (folder / "task.yaml").is_file() and harbor.is_terminal_bench(folder):
        return harbor.read_terminal_bench
    if (folder / ".meta" / "config.json").is_file() and (folder / ".docs").is_dir():
        return exercism.read_exercise
    return None


def _sources(folder: Path) -> Iterator[tuple[Reader, Path]]:
    """Readers and what they read: nested task folders, Markdown tasks, and files of the folder itself."""
    if reader := folder_reader(folder):
        yield reader, folder
        return
    nested = list(_task_folders(folder, depth=6))
    yield from nested
    if nested:
        return
    if _has_markdown_task(folder):
        yield _read_markdown, folder
        return
    for file in sorted(folder.iterdir()):
        if file.is_file() and (is_row_file(file) or file.suffix in _YAML):
            reader = reader_of(file)
            if reader is not _read_markdown and not (reader is read_row_tasks and _is_settings(file)):
                yield reader, file


_SETTINGS = re.compile(
    r"(package|package-lock|npm-shrinkwrap|tsconfig|jsconfig|composer|deno|bower|lerna|nx|turbo|biome|renovate|vercel"
    r"|manifest|angular|components|launch|settings|tasks|extensions)(\..+)?\.json|\..*|.*\.(config|schema|lock)\.json"
)


def _is_settings(file: Path) -> bool:
    """Whether a JSON file in a folder holds settings of a tool by its name; passed as a path, it is read."""
    return _SETTINGS.fullmatch(file.name) is not None and file.suffix == ".json"


def _task_folders(folder: Path, depth: int) -> Iterator[tuple[Reader, Path]]:
    for below in sorted(folder.iterdir()):
        if not below.is_dir() or below.is_symlink() or below.name.startswith(".") or not depth:
            continue
        if reader := folder_reader(below):
            yield reader, below
        else:
            yield from _task_folders(below, depth - 1)


def _has_markdown_task(folder: Path) -> bool:
    from proctor.tasks.markdown import is_task

    return any(
        file.suffix in TEXT_SUFFIXES and file.is_file() and is_task(file) for file in folder.rglob("*")
    )


def _with_distinct_names(tasks: tuple[Task, ...]) -> Iterator[Task]:
    """The tasks, numbered where two have the same name."""
    used: dict[str, int] = {}
    for task in tasks:
        used[task.name] = number = used.get(task.name, 0) + 1
        yield task if number == 1 else replace(task, name=f"{task.name}#{number}")


PATCH_FILE = ".proctor-test.patch"


def write_task_set(task_set: TaskSet, folder: Path) -> tuple[list[Path], list[NotRead]]:
    """Write a Markdown file, and folders for its files, for each task. Returns the files, and what has no
    equivalent in our format."""
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty\nGive a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    written, left_out = list[Path](), list[NotRead]()
    for task in task_set.tasks:
        if reason := _obstacle(task):
            left_out.append(NotRead(file=task.file, line=task.line, task=task.name, reason=reason))
        else:
            written.append(_write_task(task, folder))
    return written, left_out


def _obstacle(task: Task) -> str:
    if task.steps:
        return "a task with several steps has no equivalent"
    if task.hidden:
        return "its hidden tests are in an archive; copy its folder"
    if task.places:
        return "a task that uses absolute paths has no equivalent"
    if "assert" in task.expect:
        return "weighted assertions have no equivalent"
    return ""


def _write_task(task: Task, folder: Path) -> Path:
    name = re.sub(r"[^\w.-]+", "_", task.name).strip("._") or "task"
    file = folder / f"{name}.md"
    header: JsonObject = {}
    check_files = texts_of({PATCH_FILE: task.test_patch}) if task.test_patch else task.check_files
    for setting, files in (
        ("start", task.start),
        ("check_files", check_files),
        ("solution", task.solution),
    ):
        if files and not (setting == "solution" and task.solution_script):
            header[setting] = f"{name}/{setting}"
            _write_files(files, folder / name / setting)
    if task.repo:
        header |= {"repo": str(task.repo), "ref": task.ref, **({"sealed": True} if task.sealed else {})}
    if not (task.start or task.repo or task.is_question):
        header["empty"] = True
    if task.setup:
        header["setup"] = task.setup
    if task.setup_once:
        header["setup_once"] = task.setup_once
        if task.setup_once_files:
            header["setup_once_files"] = list(task.setup_once_files)
    if task.commands:
        apply = f"git apply --whitespace=nowarn {PATCH_FILE} && " if task.test_patch else ""
        header["check"] = [apply + _command(check.command, check.verdict) for check in task.commands]
    if task.expect:
        header["expect"] = dict(task.expect)
    if task.answer:
        header["answer"] = task.answer
    if task.timeout_seconds:
        header["timeout"] = task.timeout_seconds
    title = task.title.replace("\n", " ")
    front = yaml.safe_dump(json.loads(json.dumps(header)), sort_keys=False, allow_unicode=True)
    heading = "" if task.prompt.lstrip().startswith("# Task:") else f"# Task: {title}\n\n"
    file.write_text(f"---\n{front}---\n{heading}{task.prompt}\n", encoding="utf-8")
    return file


def _command(command: str, verdict: str) -> str:
    # Our own checks are judged by exit code; where a report was expected, it goes nowhere.
    return f"PROCTOR_TEST_REPORT=/dev/null; {command}" if verdict == "tests" else command


def _write_files(files: TaskFolder, target: Path) -> None:
    target.mkdir(parents=True)
    if files.path:
        copy_over(files.path, target)
    else:
        write_texts(files.texts, target)
    if not any(target.iterdir()):
        shutil.rmtree(target)
