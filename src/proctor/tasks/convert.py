"""Write tasks of any format as task files of our own."""

import json
import re
import shutil
from pathlib import Path

import yaml

from proctor.errors import UsageError
from proctor.json_values import JsonObject
from proctor.tasks.task import NotRead, Task, TaskFolder, TaskSet, texts_of
from proctor.workspace.starting_files import copy_over, write_texts

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
    if task.setup:
        header["setup"] = task.setup
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
