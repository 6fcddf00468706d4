"""Tasks, whatever format they were written in, sets of tasks, and the options of reading them."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.json_values import CamelJson, JsonMap, JsonObject
from proctor.workspace.starting_files import NOTHING, digest_of_folder, digest_of_texts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How tasks of other formats are read; empty: as the file suggests."""

    prompt_column: str = ""
    expect_column: str = ""
    template: str = ""
    """Prompt of each row, with `{column}` for its values."""
    check: str = ""
    """Command that writes a JUnit report, for tasks that name tests but not how they are run."""
    setup: str = ""
    """Command run before the agent, for tasks that name none."""
    judge: str = ""
    """Model that judges rubrics, for tasks that name none."""
    repos: Mapping[str, Path] = field(default_factory=dict)
    """Local clones by `owner/name`, or a folder of clones under the key `` (empty)."""

    def repository(self, name: str, folder: Path) -> Path | None:
        """The local repository of `owner/name`, or of a path relative to `folder`; None: there is none."""
        if name in self.repos:
            return self.repos[name]
        path = Path(name).expanduser()
        if (folder / path).is_dir():
            return (folder / path).resolve()
        root = self.repos.get("")
        if root is None:
            return None
        owner, _, short = name.rpartition("/")
        places = (f"{owner}/{short}", f"{owner}/{short}.git", f"{owner}__{short}", short, f"{short}.git")
        return next((root / place for place in places if (root / place).is_dir()), None)


def read_repos(text: str) -> dict[str, Path]:
    """Parse `--repos`: a folder of clones, or `owner/name=PATH`, separated by commas."""
    repos: dict[str, Path] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, path = part.rpartition("=")
        folder = Path(path).expanduser().absolute()
        if not folder.is_dir():
            raise UsageError(
                f"there is no folder {folder}\nGive --repos a folder of clones, or owner/name=PATH."
            )
        repos[name if equals else ""] = folder
    return repos


def flag(default: Any, text: str, *names: str, **settings: Any) -> Any:
    """A field that is a flag of commands as well: its help, its names if not that of the field, and further
    settings of the flag."""
    return field(default=default, metadata={"help": text, "names": names, **settings})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOverrides:
    """The same options as texts, as commands and plans have them; empty: not set."""

    prompt_column: str = flag("", "Column of a dataset with the prompts.", metavar="NAME")
    expect_column: str = flag("", "Column of a dataset with the answers.", metavar="NAME")
    template: str = flag("", "Prompt of each row, with {column} for its values.", metavar="TEXT")
    check: str = flag(
        "",
        "Check of tasks that have none; of SWE-bench rows, one that writes JUnit to $PROCTOR_TEST_REPORT.",
        metavar="COMMAND",
    )
    setup: str = flag("", "Command of SWE-bench rows before the agent.", metavar="COMMAND")
    judge: str = flag("", "Model that judges rubrics of tasks that name none.", metavar="MODEL")
    repos: str = flag(
        "", "Clones of the tasks' repositories: a folder, or owner/name=PATH,….", metavar="PATH"
    )

    def texts(self) -> dict[str, str]:
        """These options alone, by name."""
        return {each.name: getattr(self, each.name) for each in fields(ReadOverrides)}

    def reading(self) -> ReadOptions:
        """The options of the readers. Raises `UsageError`."""
        return ReadOptions(
            prompt_column=self.prompt_column,
            expect_column=self.expect_column,
            template=self.template,
            check=self.check,
            setup=self.setup,
            judge=self.judge,
            repos=read_repos(self.repos),
        )


LISTED_REQUESTS = 3
"""Requests for network access that a remark lists."""
MARKDOWN = "proctor"
"""Format of our own task files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCheck:
    """One check of a task."""

    criterion: str
    """The success criterion it is about; empty: the task as a whole."""
    command: str
    """Empty: nothing checks this criterion."""
    verdict: str = ""
    """What decides: `tests` for a JUnit report at $PROCTOR_TEST_REPORT, `reward` for a file in
    $PROCTOR_VERIFIER_LOGS; empty: the exit code."""
    fail_to_pass: tuple[str, ...] = ()
    """Tests of a report that must pass; with `verdict` `tests` and none named, all of the report."""
    pass_to_pass: tuple[str, ...] = ()
    """Tests of a report that must still pass; one that is skipped does."""
    timeout_seconds: float | None = None
    """None: that of the task."""

    def document(self) -> JsonObject:
        """As a part of an item; without what is not set."""
        document: JsonObject = {"criterion": self.criterion, "command": self.command}
        if self.verdict:
            document["verdict"] = self.verdict
        if self.fail_to_pass or self.pass_to_pass:
            document["failToPass"] = list(self.fail_to_pass)
            document["passToPass"] = list(self.pass_to_pass)
        if self.timeout_seconds:
            document["timeoutSec"] = self.timeout_seconds
        return document


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFolder:
    """Files of a task, and the digest of their contents: a folder, or texts by their relative path."""

    digest: str
    path: Path | None = None
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def setting(self) -> object:
        """Where a runner finds the files: the path of the folder, or the texts themselves."""
        return str(self.path) if self.path else dict(self.texts)


def folder_of(path: Path) -> TaskFolder:
    """The files in a folder. Raises `WorkspaceError` if there are too many."""
    return TaskFolder(path=path, digest=digest_of_folder(path))


def texts_of(texts: Mapping[str, str]) -> TaskFolder:
    """Files that are generated, by their relative path."""
    return TaskFolder(texts=texts, digest=digest_of_texts(texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskImage:
    """A container image that a task needs; its working folder holds the starting files."""

    name: str
    digest: str
    work: str
    """The working folder."""
    context: Path | None = None
    """Folder with the Dockerfile; None: the image is pulled."""

    @property
    def setting(self) -> JsonObject:
        """What a runner needs."""
        context = str(self.context) if self.context else None
        return {"name": self.name, "work": self.work, "context": context}

    @property
    def command(self) -> str:
        """How the image is obtained, for people."""
        return f"build the image of {self.context}" if self.context else f"pull the image {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStep:
    """A later part of a task: another prompt in the same folder, and its checks."""

    prompt: str
    checks: tuple[TaskCheck, ...] = ()
    files: TaskFolder | None = None
    """Files put into the folder before the agent."""
    check_files: TaskFolder | None = None
    min_reward: float | None = None
    """The next step runs only with at least this reward; None: in any case."""
    continues: bool = False
    """Whether the prompt refers to the earlier ones, which are then repeated before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task for every model."""

    name: str
    """The file's, without its suffix; in a file of many tasks, the task's own."""
    title: str
    file: Path
    prompt: str
    """The prompt of the agent."""
    difficulty: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Other facts in bold: issue, time estimate."""
    requirements: tuple[str, ...] = ()
    checks: tuple[TaskCheck, ...] = ()
    """Every success criterion, then the checks of no criterion."""
    start: TaskFolder | None = None
    image: TaskImage | None = None
    """The image in which all its programs run; its working folder is then `start`."""
    starts_empty: bool = False
    """Whether it is meant to begin with an empty folder."""
    repo: Path | None = None
    ref: str = "HEAD"
    setup: str = ""
    setup_once: str = ""
    """Command that installs in `$PROCTOR_ENVIRONMENT`, once for all attempts."""
    setup_once_files: tuple[str, ...] = ()
    """Files that it depends on, as patterns; empty: all."""
    check_files: TaskFolder | None = None
    hidden: TaskFolder | None = None
    """Archive of hidden tests and the reference solution."""
    test_patch: str | None = None
    """Patch that adds hidden tests; the work is then judged in a fresh tree. None: there is none."""
    solution_paths: tuple[str, ...] = ()
    """Files that the reference solution changes, where tests come as a patch."""
    sealed: bool = False
    """Whether the agent's repository has nothing later than its first commit."""
    date: str = ""
    """When the work was really done, as 2024-01-31; empty: not known."""
    underspecification: float | None = None
    """What the text leaves open, from 0 to 1; None: not known."""
    expect: JsonMap = field(default_factory=dict)
    timeout_seconds: float | None = None
    agent: str = ""
    settings: JsonMap = field(default_factory=dict)
    """Settings of `agent`."""
    solution: TaskFolder | None = None
    answer: str = ""
    sandbox: object = None
    """As in a plan; None: as `proctor.toml` says."""
    network: JsonMap = field(default_factory=dict)
    """Network by phase (`agent`, `check`) that a file of another format asks for; the user decides."""
    resources: object = None
    """As in a plan; None: it needs nothing in particular."""
    format: str = MARKDOWN
    line: int = 0
    """Where it is in `file`; 0: the file is one task."""
    min_reward: float | None = None
    """Of the first prompt, as in `TaskStep`."""
    system: str = ""
    """System prompt, for a task that is one call of a model."""
    models: tuple[str, ...] = ()
    """The only models that it is for; empty: all."""
    steps: "tuple[TaskStep, ...]" = ()
    """What follows in the same folder after the first prompt and its checks."""
    reward: str = "mean"
    """Reward of a task with steps: `mean` of them, or the `final` one."""
    solution_script: str = ""
    """Command that applies the reference solution, where that is not `solution`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of its programs; `${NAME}` is filled in."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Absolute paths that programs of the task use, by what is there: `work`, `check_files`, `logs`."""
    retry_with_output: bool = False
    """Whether the agent has a second try that sees the output of the failed checks."""

    @property
    def commands(self) -> tuple[TaskCheck, ...]:
        """The checks of the first prompt that have a command."""
        return tuple(check for check in self.checks if check.command)

    @property
    def all_commands(self) -> tuple[TaskCheck, ...]:
        """The checks that have a command, of all steps."""
        later = [check for step in self.steps for check in step.checks if check.command]
        return (*self.commands, *later)

    @property
    def has_solution(self) -> bool:
        """Whether there is a reference solution, for `--oracle`."""
        return bool(self.solution or self.answer or self.solution_script or self.hidden)

    @property
    def start_digest(self) -> str:
        start = self.image or self.start
        return start.digest if start else NOTHING

    @property
    def is_question(self) -> bool:
        """Whether only its answer counts: it has expectations, and neither files nor commands."""
        return bool(self.expect) and not (self._has_files or self.all_commands)

    @property
    def is_prompt(self) -> bool:
        """Whether it is one call of a model: no files, no commands, only expectations of the answer."""
        return self.format != MARKDOWN and not (self._has_files or self.agent or self.all_commands)

    @property
    def _has_files(self) -> bool:
        return bool(self.start or self.repo or self.setup or self.check_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRead(CamelJson):
    """Something in a task file that could not be read or has no equivalent."""

    file: Path
    reason: str
    line: int = 0
    task: str = ""
    """The task that it belongs to, which is left out; empty: no task in particular."""

    def document(self) -> JsonObject:
        """As JSON."""
        where: JsonObject = {"file": str(self.file)}
        if self.line:
            where["line"] = self.line
        if self.task:
            where["task"] = self.task
        return {**where, "reason": self.reason}

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{place}: {f'{self.task}: ' if self.task else ''}{self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSet:
    """The tasks that were read from a path."""

    tasks: tuple[Task, ...]
    not_read: tuple[NotRead, ...] = ()
    models: tuple[str, ...] = ()
    """Models that the file names, for when the user names none."""

    @property
    def formats(self) -> dict[str, int]:
        """The number of tasks by format."""
        return dict(Counter(task.format for task in self.tasks))

    def summary(self, path: Path) -> str:
        """What was read, as a sentence."""
        parts = [
            f"{number:,} {name} task{'s' if number > 1 else ''}" for name, number in self.formats.items()
        ]
        text = f"{path}: {', '.join(parts) or 'no task'}"
        return f"{text}; {len(self.not_read):,} not read" if self.not_read else text


def task_document(task: Task, *, full: bool = False) -> JsonObject:
    """A task as JSON; `full` includes its prompt and commands."""
    document: JsonObject = {
        "id": task.name,
        "format": task.format,
        "title": task.title,
        "file": str(task.file),
    }
    if task.line:
        document["line"] = task.line
    if task.difficulty:
        document["difficulty"] = task.difficulty
    if task.underspecification is not None:
        document["underspecification"] = task.underspecification
    document |= {
        "checks": len(task.all_commands) + (1 if task.expect else 0),
        "hasSolution": task.has_solution,
        "timeoutSec": task.timeout_seconds,
    }
    if full:
        document |= {
            "prompt": task.prompt,
            "repo": str(task.repo) if task.repo else None,
            "ref": task.ref if task.repo else None,
            "sealed": task.sealed,
            "image": task.image.name if task.image else None,
            "network": dict(task.network) or None,
            "setup": task.setup or None,
            "commands": [check.document() for check in task.all_commands],
            "expect": dict(task.expect) or None,
            "facts": dict(task.facts),
            "startFiles": file_names(task.start),
            "checkFiles": file_names(task.check_files),
        }
    return document


def file_names(folder: TaskFolder | None) -> Sequence[str]:
    """The relative paths of a task's files."""
    if folder is None:
        return []
    if folder.path is None:
        return sorted(folder.texts)
    root = folder.path
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir())


def network_remark(tasks: Sequence[Task], *, allowed: bool) -> str:
    """The remark on the network access that tasks request, and whether it is granted; empty: none."""
    requests = [f"{task.name}: {network_text(task.network)}" for task in tasks if task.network]
    if not requests:
        return ""
    listed = "; ".join(requests[:LISTED_REQUESTS]) + ("; …" if len(requests) > LISTED_REQUESTS else "")
    number = f"{len(requests):,} task{'s ask' if len(requests) > 1 else ' asks'} for network access"
    outcome = "granted by --task-network" if allowed else "not granted; --task-network grants it"
    return f"{number}, {outcome} ({listed})"


def network_text(network: JsonMap) -> str:
    """The network access by phase, as text; empty: none."""
    parts = []
    for phase, access in network.items():
        hosts = ", ".join(map(str, access)) if isinstance(access, list) else str(access)
        parts.append(f"{phase} {hosts}")
    return ", ".join(parts)


def commands_of(tasks: Sequence[Task], *, with_solutions: bool = False) -> list[str]:
    """Every command that tasks would run, without repeats; of reference solutions, only their first line."""
    commands = [
        command
        for task in tasks
        for command in (
            task.image.command if task.image else "",
            task.setup_once,
            task.setup,
            *(check.command for check in task.all_commands),
        )
        if command
    ]
    if with_solutions:
        commands += [task.solution_script.partition("\n")[0] for task in tasks if task.solution_script]
    return list(dict.fromkeys(commands))


# The names under which items of tasks are ranked.


def models_with_agents(items: Iterable[Mapping[str, str]]) -> set[str]:
    """The models that did the same task with several agents; `items` are the factors of items."""
    agents: dict[tuple[str, str], set[str]] = defaultdict(set)
    for factors in items:
        agents[factors["model"], factors["task"]].add(factors.get("agent", ""))
    return {model for (model, _), names in agents.items() if len(names) > 1}


def ranked_name(factors: Mapping[str, str], split: Collection[str]) -> str:
    """The name under which an item is ranked: its model, with the agent if the model is in `split`."""
    model = factors["model"]
    return f"{model} ({factors['agent']})" if model in split else model
