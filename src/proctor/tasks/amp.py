"""Benchmarks, plans, suites and SWE-bench cases of amp-session-manager, the original of the coding job.

Cases name a repository as a path or `owner/name`; one that is not on this machine is not read.
"""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from proctor.json_values import JsonMap, as_map, as_number, as_text, maps_in, texts_in
from proctor.plan.source import KeyPath, PlanSource, bytes_of
from proctor.plan.yaml_loader import read_source
from proctor.tasks.task import NotRead, ReadOptions, Task, TaskCheck, TaskSet, TaskStep

AMP = "amp"
CASE_TIMEOUT_SECONDS = 300.0


def is_amp(keys: set[str]) -> bool:
    """Whether top-level keys are those of one of its files."""
    is_suite = "cases" in keys and "name" in keys
    return "suites" in keys or "matrix" in keys or is_suite or {"bugCommit", "fixCommit", "testPath"} <= keys


def read_amp(file: Path, options: ReadOptions) -> TaskSet:
    """The cases of a file."""
    source = read_source(bytes_of(file), file=str(file))
    reader = _AmpReader(source, file.absolute(), options)
    tasks = tuple(reader.tasks())
    return TaskSet(tasks=tasks, not_read=tuple(reader.not_read))


class _AmpReader:
    def __init__(self, source: PlanSource, file: Path, options: ReadOptions) -> None:
        self._source, self._file, self._options = source, file, options
        self._defaults = as_map(source.data, "defaults")
        self.not_read: list[NotRead] = []

    def tasks(self) -> Iterator[Task]:
        """Every case that can run here."""
        data = self._source.data
        for number, case in enumerate(data if isinstance(data, list) else [data]):
            if isinstance(case, dict) and "bugCommit" in case:
                yield from self._read((number,) if isinstance(data, list) else (), case, self._swebench_case)
        for number, suite in enumerate(maps_in(data, "suites")):
            path: KeyPath = ("suites", number)
            if suite.get("swebench_cases_dir"):
                yield from self._case_folder(path, as_text(suite, "swebench_cases_dir"))
            for index, case in enumerate(maps_in(suite, "cases")):
                yield from self._read((*path, "cases", index), {**suite, **case}, self._case)
        for index, case in enumerate(maps_in(data, "cases")):
            yield from self._read(("cases", index), case, self._case)
        for index, entry in enumerate(maps_in(data, "matrix")):
            yield from self._read(("matrix", index), entry, self._case)
        if as_map(data, "models"):
            line = self._source.place(("models",)).line
            self._note("`models` are chosen with --models, and their agent with --agent amp", line)

    def _read(
        self, path: KeyPath, case: JsonMap, reader: Callable[[str, JsonMap, int], Task]
    ) -> Iterator[Task]:
        line = self._source.place(path).line
        number = path[-1] if path and isinstance(path[-1], int) else 0
        name = as_text(case, "id") or f"{self._file.stem}-{number + 1}"
        try:
            yield reader(name, case, line)
        except ValueError as error:
            self._note(str(error), line, name)

    def _note(self, reason: str, line: int, task: str = "") -> None:
        self.not_read.append(NotRead(file=self._file, line=line, task=task, reason=reason))

    def _case_folder(self, path: KeyPath, written: str) -> Iterator[Task]:
        folder = self._file.parent / Path(written).expanduser()
        if not folder.is_dir():
            self._note(f"there is no folder {folder}", self._source.place(path).line)
            return
        for file in sorted(folder.glob("*.json")):
            task_set = read_amp(file, self._options)
            self.not_read += task_set.not_read
            yield from task_set.tasks

    def _setting(self, case: JsonMap, *names: str) -> str:
        return next(
            (text for level in (case, self._defaults) for name in names if (text := as_text(level, name))), ""
        )

    def _repository(self, case: JsonMap) -> Path:
        name = as_text(case, "repo")
        if not name:
            raise ValueError("the case has no `repo`")
        path = self._options.repository(name, self._file.parent)
        if path is None:
            raise ValueError(f"there is no repository {name} here; give a clone with --repos {name}=PATH")
        return path

    def _case(self, name: str, case: JsonMap, line: int) -> Task:
        prompt = as_text(case, "prompt")
        if not prompt.strip():
            raise ValueError("the case has no `prompt`")
        command = self._setting(case, "script_command", "scriptCommand", "successCommand")
        expected = [f"test -e {shlex.quote(file)}" for file in texts_in(case, "expectedFiles")]
        checks = tuple(TaskCheck(criterion="", command=each) for each in (command, *expected) if each)
        later = texts_in(case, "follow_up_prompts")
        steps = tuple(
            TaskStep(prompt=text, continues=True, checks=checks if number == len(later) else ())
            for number, text in enumerate(later, 1)
        )
        timeout = as_number(case, "timeout_sec") or as_number(case, "timeoutSec")
        return Task(
            name=name,
            title=as_text(case, "description") or prompt.strip().splitlines()[0][:80],
            file=self._file,
            line=line,
            format=AMP,
            prompt=prompt,
            repo=self._repository(case),
            ref=self._setting(case, "base_branch", "baseBranch", "commit") or "HEAD",
            setup=as_text(case, "setup_script"),
            checks=() if steps else checks,
            steps=steps,
            timeout_seconds=timeout
            or as_number(self._defaults, "timeout_sec")
            or as_number(self._defaults, "timeoutSec"),
        )

    def _swebench_case(self, name: str, case: JsonMap, line: int) -> Task:
        test, fix = as_text(case, "testPath"), as_text(case, "fixCommit")
        report = (
            f'python3 -m pytest -p no:cacheprovider -q --junitxml="$PROCTOR_TEST_REPORT" {shlex.quote(test)}'
        )
        command = as_text(case, "testCommand")
        check = (
            TaskCheck(criterion="", command=command)
            if command
            else TaskCheck(criterion="", command=report, verdict="tests")
        )
        return Task(
            name=name,
            title=name,
            file=self._file,
            line=line,
            format=AMP,
            prompt=as_text(case, "prompt") or f"Fix the code so that the tests in {test} pass.",
            repo=self._repository(case),
            ref=as_text(case, "bugCommit"),
            checks=(check,),
            timeout_seconds=CASE_TIMEOUT_SECONDS,
            facts={"fixCommit": fix} if fix else {},
        )
