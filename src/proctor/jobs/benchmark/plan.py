"""Tasks × models × runs as items, and the settings of a benchmark.

An item's id is made of its inputs: the task's text, the digest of its files, its checks, the model with its
settings, the agent. Paths on this machine, timeouts and retries are not part of it.

A plan of `proctor batch` with `tasks: PATH` is read here as well.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, create_model
from pydantic.alias_generators import to_camel

from proctor.errors import UsageError
from proctor.item import Item, digest_of
from proctor.job import PlanText, check_limits
from proctor.jobs.benchmark.models import Candidate
from proctor.json_values import JsonObject
from proctor.plan.source import refuse, resolved
from proctor.plan.validate import PlanModel, Seconds, Text, Texts, Usd, check_shape, sections_of
from proctor.plan.yaml_loader import read_source
from proctor.runner import PROGRAM_FOLDER
from proctor.sandbox import merge_settings
from proctor.tasks.task import (
    MARKDOWN,
    ReadOptions,
    ReadOverrides,
    Task,
    TaskCheck,
    TaskFolder,
    TaskStep,
    flag,
    folder_of,
)
from proctor.workspace.hidden_tests import read_archive, solution_files
from proctor.workspace.starting_files import text_files

DEFAULT_AGENT = "builtin"
DEFAULT_TIMEOUT_SECONDS = 1800
ORACLE, NOOP = "oracle", "noop"
"""Mocks in place of a model: one applies the reference solution, one does nothing."""
STAND_IN_AGENT = "scripted"
COMMAND_AGENT = "command"
OWN_MODEL = Candidate(name="default", model="", display_name="default", is_usual=False)
"""The model that an agent chooses by itself."""
_HOLES = ("{prompt}", "{model}", "{seed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentChoice:
    """An agent that a benchmark runs: a known one, or a program of the user under a name."""

    name: str
    """Its name in files and reports."""
    agent: str
    command: str = ""
    """Program of the agent `command`."""

    @property
    def settings(self) -> JsonObject:
        """As the adapter takes them."""
        return {"command": self.command} if self.command else {}


def agent_choices(agent: str | Sequence[str]) -> tuple[AgentChoice, ...]:
    """The agents in `a,b`, or in a list whose entries may also be `NAME=COMMAND`. Raises `UsageError`."""
    entries = [agent] if isinstance(agent, str) else list(agent)
    choices: dict[str, AgentChoice] = {}
    for entry in entries:
        name, equals, command = (part.strip() for part in entry.partition("="))
        if not equals:
            names = filter(None, (part.strip() for part in entry.split(",")))
            choices |= {each: AgentChoice(name=each, agent=each) for each in names}
        elif not name or not command or "," in name:
            raise UsageError(f"`{entry}` is not a valid agent\nGive names, or one program as NAME=COMMAND.")
        elif other := next((each for each in choices.values() if each.name == name), None):
            raise UsageError(f"two agents have the name `{other.name}`\nName each differently.")
        elif other := next((each for each in choices.values() if each.command == command), None):
            # Their items would be the same.
            raise UsageError(
                f"the agents {other.name} and {name} run the same command\nUse --runs for repeats of one."
            )
        else:
            choices[name] = AgentChoice(name=name, agent=COMMAND_AGENT, command=command)
    return tuple(choices.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkOverrides(ReadOverrides):
    """Settings of a benchmark besides its tasks; empty or None: not set."""

    models: str = flag(
        "",
        "Names, parts of names, provider/name, categories, separated by commas; or all: those of servers on "
        "this machine and the enabled ones of models_config.yaml.",
    )
    output: Path | None = flag(
        None, "Folder for the results; created if missing.", "--output", "--output-dir"
    )
    parallel: int | str | None = flag(
        None,
        "Maximum runs in parallel (default: 1); without N: max_parallel, or 3.",
        metavar="[N]",
        type=str,
    )
    """`auto`: `max_parallel` of models_config.yaml."""
    timeout: float | None = flag(None, "Agent timeout in seconds (1800).", min=0.001)
    runs: int | None = flag(None, "Repeats per task and model (1).", "--runs", "--repeats", min=1)
    budget: float | None = flag(None, "Budget of the whole benchmark in USD.", min=0)
    record: Path | None = flag(None, "Record the traffic with models in this file.")
    replay: Path | None = flag(None, "Replay a recording instead of calling models.")
    agent: str | Sequence[str] = flag(
        "",
        "Agents, separated by commas, or a program of yours as NAME=COMMAND; may be repeated; overrides the "
        "task's (builtin).",
        "--agents",
        "--agent",
        metavar="NAME,…",
        type=list[str],
    )
    models_config: Path | None = flag(None, "Models, settings and categories (default: models_config.yaml).")
    oracle: bool = flag(False, "Mock: apply the reference solution.", "--oracle")
    noop: bool = flag(False, "Mock: do nothing.", "--noop")
    task_network: bool = flag(False, "Grant the network access that tasks ask for.", "--task-network")
    stop_when: str = flag(
        "", "Stop early: pick=0.1, check=0.1, decided=true, width=0.1 or ranks=1.", metavar="NAME=VALUE,…"
    )
    pick: float | None = flag(
        None,
        "Stop once one model is named that is at most this much worse than the best, such as 0.1.",
        min=0,
    )
    check_against: str = flag(
        "", "Pass or fail against the stored results of a finished run; margin 0.1.", metavar="RUN"
    )
    repo: str = flag("", "Repository of tasks that name neither files nor one.", metavar="PATH")
    start: str = flag("", "Folder with the files of tasks that name none.", metavar="PATH")

    def __post_init__(self) -> None:
        check_limits(budget_usd=self.budget)

    @property
    def stop_text(self) -> str:
        """All options that stop early as one; empty: none."""
        is_of_agents = len(agent_choices(self.agent)) > 1 and "," not in self.models and self.models != "all"
        adaptive = [f"pick={self.pick:g}"] if self.pick is not None else []
        if self.check_against:
            adaptive += ["check=0.1"] if "check=" not in self.stop_when else []
            adaptive.append(f"baseline={self.check_against}")
        if adaptive and is_of_agents and "by=" not in self.stop_when:
            adaptive.append("by=agent")
        return ",".join(filter(None, [self.stop_when, *adaptive]))

    def with_defaults(self, options: Mapping[str, Any]) -> "BenchmarkOverrides":
        """The same, with the stored options of an earlier run for what is not set."""
        earlier = options.get("asked") or {}
        agent = self.agent or earlier.get("agent") or ""
        only_mocks = (self.oracle or self.noop) and not agent
        return replace(
            self,
            models=self.models or ("" if only_mocks else earlier.get("models") or ""),
            timeout=self.timeout or earlier.get("timeout"),
            runs=self.runs or earlier.get("runs"),
            budget=earlier.get("budget") if self.budget is None else self.budget,
            record=None if self.replay else self.record or _path(earlier.get("record")),
            replay=None if self.record else self.replay or _path(earlier.get("replay")),
            agent=agent,
            models_config=self.models_config or _existing(options.get("modelsConfig")),
            oracle=self.oracle or (not self.models and bool(earlier.get("oracle"))),
            task_network=self.task_network or bool(earlier.get("taskNetwork")),
            stop_when=self.stop_text or earlier.get("stopWhen") or "",
            pick=None,
            check_against="",
            noop=self.noop or (not self.models and bool(earlier.get("noop"))),
        ).with_reading(earlier)

    def with_reading(self, options: Mapping[str, Any]) -> "BenchmarkOverrides":
        """The same, with these options of reading tasks for what is not set."""
        own = {**self.texts(), "repo": self.repo, "start": self.start}
        texts: dict[str, Any] = {name: text or options.get(name) or "" for name, text in own.items()}
        return replace(self, **texts)

    def options(self) -> JsonObject:
        """What a later resume needs."""
        return {
            "agent": self.agent if isinstance(self.agent, str) else list(self.agent),
            "timeout": self.timeout,
            "budget": self.budget,
            "record": str(Path(self.record).absolute()) if self.record else None,
            "replay": str(Path(self.replay).absolute()) if self.replay else None,
            "oracle": self.oracle,
            "noop": self.noop,
            **({"taskNetwork": True} if self.task_network else {}),
            **({"stopWhen": self.stop_text} if self.stop_text else {}),
            **{name: text for name, text in self.texts().items() if text},
            **({"repo": self.repo} if self.repo else {}),
            **({"start": self.start} if self.start else {}),
        }


def complete_tasks(tasks: Sequence[Task], overrides: BenchmarkOverrides) -> tuple[Task, ...]:
    """Tasks with the repository, files and check that they do not name themselves.

    Raises `UsageError` for a task file that would begin with an empty folder and does not say so.
    """
    if overrides.repo and overrides.start:
        raise UsageError(
            "--repo and --start exclude each other\nA task begins with a repository, or with files."
        )
    options = overrides.reading()
    start = folder_of(_folder("--start", overrides.start)) if overrides.start else None
    repo = _folder("--repo", overrides.repo) if overrides.repo else None
    return tuple(_complete(task, options, start, repo) for task in tasks)


def _complete(task: Task, options: ReadOptions, start: TaskFolder | None, repo: Path | None) -> Task:
    if task.format != MARKDOWN:
        return task
    if options.check and not task.all_commands and not task.expect:
        check = TaskCheck(criterion="", command=options.check)
        task = replace(task, checks=(*task.checks, check))
    if task.start is None and task.repo is None and not task.starts_empty:
        named = task.facts.get("repo", "").strip("` ")
        repo = repo or (options.repository(named, task.file.parent) if named and not start else None)
        if named and not repo and not start:
            raise UsageError(
                f"{task.file}: there is no repository `{named}`, which the task names\n"
                "Give its path with --repo, or a folder of clones with --repos."
            )
        task = replace(task, start=start, repo=repo)
    if task.repo is None and not task.starts_empty and not task.is_question and _is_empty(task.start):
        raise UsageError(
            f"{task.file}: the agent would begin with an empty folder\n"
            "Add one of these to the front matter of the task:\n"
            "  expect: {contains: TEXT}   a question: the answer is checked, no files are needed\n"
            "  start: FOLDER              work on files (for all tasks: --start FOLDER)\n"
            "  repo: PATH                 work on a git repository (for all tasks: --repo PATH)\n"
            "  empty: true                make new files in an empty folder"
        )
    return task


def _is_empty(files: TaskFolder | None) -> bool:
    return files is None or (files.path is not None and not any(files.path.iterdir()))


def _folder(option: str, text: str) -> Path:
    path = Path(text).expanduser().absolute()
    if not path.is_dir():
        raise UsageError(f"there is no folder {path}\nCheck {option}.")
    return path


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None


def _existing(path: str | None) -> Path | None:
    return Path(path) if path and Path(path).is_file() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkDefinition:
    """Tasks and models of a benchmark, and how each item runs."""

    tasks: tuple[Task, ...]
    models: tuple[Candidate, ...]
    runs: int = 1
    agents: tuple[AgentChoice, ...] = ()
    """Agents of every task; empty: the task's own."""
    timeout_seconds: float | None = None
    """For every task; None: the task's own."""
    default_timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    retries: int = 0
    sandbox: object = None
    """`sandbox` of `batch_settings`; settings of a task take precedence."""
    resources: object = None
    """`resources` of `batch_settings`, for tasks without their own."""
    task_network: bool = False
    """Whether tasks get the network access that they ask for."""
    path: Path | None = None
    """Where the tasks are."""
    commits: Mapping[str, str] = field(default_factory=dict)
    """The commit each task with a repository starts from, by the task's name."""

    def items(self) -> Iterator[Item]:
        """The items, repeat by repeat: an interrupted benchmark has compared every model equally often."""
        for repeat, task, model in product(range(1, self.runs + 1), self.tasks, self.models):
            if is_for(task, model):
                for agent in self.agents_for(task, model):
                    yield self._item(task, model, agent, repeat)

    @property
    def label(self) -> str:
        """The task, or the folder of the tasks."""
        if len(self.tasks) == 1:
            return self.tasks[0].name
        parents = {task.file.parent for task in self.tasks}
        return parents.pop().name if len(parents) == 1 else f"{len(self.tasks)} tasks"

    def agents_for(self, task: Task, model: Candidate) -> tuple[AgentChoice, ...]:
        """The agents of a task with a model; one with an empty name: the model is called without an agent."""
        if is_mock(model):
            return (AgentChoice(name=STAND_IN_AGENT, agent=STAND_IN_AGENT),)
        if self.agents:
            return self.agents
        name = "" if task.is_prompt else task.agent or DEFAULT_AGENT
        return (AgentChoice(name=name, agent=name),)

    def _item(self, task: Task, model: Candidate, choice: AgentChoice, repeat: int) -> Item:
        agent = choice.agent
        factors = {"model": model.name, "agent": choice.name, "task": task.name}
        if task.difficulty:
            factors["difficulty"] = task.difficulty
        if task.date and model.cutoff:
            factors["after_cutoff"] = "yes" if task.date > model.cutoff else "no"
        if not agent:
            factors["agent"] = "prompt"
        return Item(
            runner="benchmark" if agent else "prompt",
            agent=agent,
            model=model.model,
            prompt=task.prompt,
            details=self._details(task, model, choice),
            settings=self._settings(task, model, choice),
            factors=factors,
            repeat=repeat,
        )

    def _details(self, task: Task, model: Candidate, choice: AgentChoice) -> JsonObject:
        agent = choice.agent
        if not agent:
            return _prompt_details(task, model)
        commit = self.commits.get(task.name, "")
        details: JsonObject = {
            "task": task.name,
            "start": commit or task.start_digest,
            "baseBranch": commit or "main",
            "checks": [each.document() for each in task.commands],
            **_step_details(task),
        }
        if task.check_files:
            details["checkFiles"] = task.check_files.digest
        if task.hidden:
            details["hidden"] = task.hidden.digest
        if task.test_patch is not None:
            details["testPatch"] = digest_of(task.test_patch)
            details["solutionPaths"] = list(task.solution_paths)
        if task.sealed:
            details["sealed"] = True
        if task.setup:
            details["setup"] = task.setup
        if task.setup_once:
            details["setupOnce"] = task.setup_once
            details["setupOnceFiles"] = list(task.setup_once_files)
        if task.expect:
            details["expect"] = dict(task.expect)
        if is_mock(model):
            details["script"] = script_of(model, task)
        elif choice.command:
            details["command"] = choice.command
        elif model.settings and agent == DEFAULT_AGENT:
            details["settings"] = {"parameters": dict(model.settings)}
        elif task.settings and agent == task.agent:
            details["settings"] = dict(task.settings)
        return details

    def _settings(self, task: Task, model: Candidate, choice: AgentChoice) -> JsonObject:
        timeout = self.timeout_seconds or task.timeout_seconds or self.default_timeout_seconds
        settings: JsonObject = {
            "timeoutSec": timeout,
            "retries": self.retries,
            "title": task.title,
            "criteria": [check.criterion for check in task.checks if check.criterion],
            "displayName": model.display_name or model.name,
        }
        if choice.command:
            # As the user's shell would find it. Not part of an item's identity.
            settings[PROGRAM_FOLDER] = str(Path.cwd())
        if self.path:
            settings["taskPath"] = str(self.path.absolute())
        if task.repo:
            settings["repo"] = str(task.repo)
        granted = {"network": task.network} if task.network and self.task_network else None
        image = {"container": task.image.name} if task.image else None
        if task.image:
            settings["image"] = task.image.setting
        if sandbox := merge_settings(self.sandbox, task.sandbox, granted, image):
            settings["sandbox"] = sandbox
        if task.test_patch is not None:
            settings["testPatch"] = task.test_patch
        if resources := task.resources or self.resources:
            settings["resources"] = resources
        folders = {"start": task.start, "checkFiles": task.check_files, "hidden": task.hidden}
        for number, step in enumerate(task.steps):
            folders |= {f"files{number}": step.files, f"checkFiles{number}": step.check_files}
        if model.model == ORACLE and "solution" in task.places.values():
            folders["solution"] = task.solution
        settings |= {name: folder.setting for name, folder in folders.items() if folder}
        return settings


def is_for(task: Task, model: Candidate) -> bool:
    """Whether a task is for this model: some are for a few only."""
    named = set(task.models)
    if not named or (is_mock(model) and not named & {ORACLE, NOOP}):
        return True
    return bool({model.name, model.model} & named)


def _prompt_details(task: Task, model: Candidate) -> JsonObject:
    """Inputs of a task that is one call of a model."""
    details: JsonObject = {"task": task.name}
    if task.expect:
        details["expect"] = dict(task.expect)
    if task.system:
        details["system"] = task.system
    if model.settings:
        details["settings"] = dict(model.settings)
    return details


def _step_details(task: Task) -> JsonObject:
    """Inputs of a task that other formats have: steps, a second try, absolute paths. Only what is set."""
    details: JsonObject = {}
    if task.environment:
        details["env"] = dict(task.environment)
    if task.places:
        details["places"] = dict(task.places)
    if task.retry_with_output:
        details["secondTry"] = True
    if task.min_reward is not None:
        details["minReward"] = task.min_reward
    if task.steps:
        details["reward"] = task.reward
        details["steps"] = [_step_document(step) for step in task.steps]
    return details


def _step_document(step: TaskStep) -> JsonObject:
    document: JsonObject = {"prompt": step.prompt, "checks": [each.document() for each in step.checks]}
    document |= {
        name: folder.digest
        for name, folder in (("files", step.files), ("checkFiles", step.check_files))
        if folder
    }
    if step.continues:
        document["continues"] = True
    if step.min_reward is not None:
        document["minReward"] = step.min_reward
    return document


def is_mock(model: Candidate) -> bool:
    """Whether this is a mock in place of a model."""
    return model.model in (ORACLE, NOOP)


def mock_candidate(name: str) -> Candidate:
    """A mock in place of a model: `oracle` or `noop`."""
    return Candidate(name=name, model=name, display_name=name, is_usual=False)


def script_of(model: Candidate, task: Task) -> list[JsonObject]:
    """What a mock does in a task, as steps of the scripted agent."""
    if model.model == NOOP:
        return []
    if task.hidden and task.hidden.path:
        return _hidden_solution(task.hidden.path)
    if task.solution_script:
        return [{"run": task.solution_script}]
    if task.solution is None and not task.answer:
        raise UsageError(
            f"{task.file}: the task has no reference solution to apply\n"
            + (
                "Add `solution: FOLDER` to its front matter, or `answer: TEXT` where the answer counts."
                if task.format == MARKDOWN
                else f"The task is `{task.name}`; leave it out, or run without --oracle."
            )
        )
    steps = list(_written(_texts(task.solution))) if task.solution else []
    return [*steps, {"say": task.answer}] if task.answer else steps


def _hidden_solution(archive: Path) -> list[JsonObject]:
    removed: list[JsonObject] = [{"delete": path} for path in read_archive(archive).removed_files]
    return [*removed, *_written(solution_files(archive))]


def _texts(solution: TaskFolder) -> Iterable[tuple[str, str]]:
    return text_files(solution.path) if solution.path else solution.texts.items()


def _written(files: Iterable[tuple[str, str]]) -> Iterator[JsonObject]:
    for path, content in files:
        first, *more = _in_parts(content)
        yield {"write": {"path": path, "content": first}}
        for part in more:
            yield {"append": {"path": path, "content": part}}


def _in_parts(content: str) -> Sequence[str]:
    """The text, split inside whatever the scripted agent would take for a placeholder."""
    parts = [content]
    for hole in _HOLES:
        parts = [piece for part in parts for piece in _cut(part, hole)]
    return parts


def _cut(text: str, hole: str) -> list[str]:
    pieces = text.split(hole)
    first = [pieces[0] + hole[:2]] if len(pieces) > 1 else pieces
    middle = [hole[2:] + piece + hole[:2] for piece in pieces[1:-1]]
    last = [hole[2:] + pieces[-1]] if len(pieces) > 1 else []
    return [*first, *middle, *last]


class TaskPlanFile(PlanModel):
    """A plan with `tasks`, besides the options of reading them."""

    tasks: Text = Field(description="A task file, or a folder or dataset of tasks.")
    run_id: Text | None = Field(None, description="Name of the batch.")
    model: Texts | None = Field(None, description="Models, as `proctor bench --models` takes them.")
    agent: Texts | None = Field(None, description="Agents, or NAME=COMMAND; overrides the tasks'.")
    runs: Annotated[int, Field(ge=1)] | None = Field(None, description="Repeats per task and model.")
    concurrency: Annotated[int, Field(ge=1)] | None = Field(None, description="Runs in parallel.")
    timeout_sec: Seconds | None = Field(None, description="Seconds the agent may take.")
    task_network: bool | None = Field(None, description="Grant the network access that tasks ask for.")
    budget: Usd | None = Field(None, description="US dollars that the whole batch may cost.")


_TASK_PLAN: type[PlanModel] = create_model(
    "TaskPlan",
    __base__=TaskPlanFile,
    **dict.fromkeys(ReadOverrides().texts(), (Text | None, None)),  # type: ignore[call-overload]
)


def read_task_plan(plan: PlanText, options: Mapping[str, object]) -> tuple[Path, JsonObject, str]:
    """The path of the tasks, the overrides of their benchmark, and the name of the run. Raises `PlanError`.

    `options` are those of `proctor batch`, which take precedence.
    """
    source = read_source(plan.text, file=plan.file)
    if problems := list(check_shape(source, _TASK_PLAN, sections_of(_TASK_PLAN, "plan")).problems):
        refuse(problems)
    data = source.data
    models = data.get("model") or []
    names = ",".join([models] if isinstance(models, str) else models)
    repos = ",".join(
        _resolved_repo(part, plan.folder) for part in str(data.get("repos") or "").split(",") if part
    )
    reading = {name: str(data.get(to_camel(name)) or "") for name in ReadOverrides().texts()}
    reading["repos"] = repos
    path = Path(resolved(data["tasks"], folder=plan.folder, home=Path.home()))
    benchmark = {
        **reading,
        "models": options.get("model") or names,
        "agent": options.get("agent") or data.get("agent") or "",
        "runs": data.get("runs"),
        "task_network": bool(data.get("taskNetwork")),
        "parallel": options.get("concurrency") or data.get("concurrency"),
        "timeout": options.get("timeout_sec") or data.get("timeoutSec"),
        "budget": options.get("budget_usd") or data.get("budget"),
    }
    return path, benchmark, str(data.get("runId") or "")


def _resolved_repo(part: str, folder: Path) -> str:
    name, equals, path = part.strip().rpartition("=")
    return f"{name}{equals}{resolved(path, folder=folder, home=Path.home())}"
