"""Settings, store and clock of a run, and the dependencies its attempts share.

`Settings` is plain data, read once for a set of folders by `bootstrap`. `RunContext` belongs to the driver of
a run, `WorkerContext` to each of its workers.
"""

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from proctor.config import EvaluationSection, WatchSection
from proctor.errors import CONTEXT_OVERFLOW, NotFound, UsageError
from proctor.json_values import JsonMap, JsonObject, as_number, as_text, texts_in, without_none
from proctor.model import Model, Request
from proctor.models import ModelRouter
from proctor.models.rate_limits import OUTAGE_PATIENCE_SECONDS, RatePools
from proctor.models.routes import CallableRoute
from proctor.models.scripted import ScriptedModel
from proctor.runner import Runner
from proctor.runners import find_runner
from proctor.sandbox import Sandbox
from proctor.secrets import private_folder, redactor, visible
from proctor.store import Store, batches
from proctor.store.database import store_exists
from proctor.store.keys import EncryptionSection

if TYPE_CHECKING:
    from proctor.agent import Agent
    from proctor.evaluator import Evaluator, FindEvaluator
    from proctor.evaluators.registry import EvaluatorRegistry
    from proctor.models.recording import RecordingOrReplay
    from proctor.store.keys import Keys

NOT_RETRIED = frozenset(
    {"aborted", "interrupted", "halted", "cost_limit", "auth", "bad_request", CONTEXT_OVERFLOW, "agent_start"}
)
"""Reasons after which an item is not retried, because another attempt would end the same way."""
POLL_SECONDS = 0.25
"""A quarter of a second goes unnoticed after the answer of a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Configuration of one run: paths, environment and `proctor.toml`. Plain and picklable."""

    home: Path
    """Folder of the store, worktrees and user-defined roles and evaluators."""
    store_url: str = field(repr=False)
    """Path or URL of the store; may hold a password."""
    folders: tuple[Path, ...] = ()
    """Where names without a path are looked up, most important first."""
    user_environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The environment of the process."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The same, with the providers of `proctor.toml`; holds keys."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Addresses and keys of the providers in `proctor.toml`, as variables."""
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """USD per million tokens, by model."""
    call_limits: Mapping[str, int] = field(default_factory=dict)
    """Maximum concurrent calls, by provider or model."""
    outage_patience_seconds: float = OUTAGE_PATIENCE_SECONDS
    """How long calls of a run wait for a provider that cannot be reached; 0: not at all."""
    store_budget_usd: float | None = None
    """Budget of all runs on the store together; None: no limit."""
    serve: Mapping[str, str] = field(default_factory=dict)
    access_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secret keys of the callers of the AWS-compatible interface."""
    tokens: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Named tokens of `proctor serve`: where each is found, and its role."""
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    watches: tuple[WatchSection, ...] = ()
    """Services that `proctor serve` watches."""
    encryption: EncryptionSection = field(default_factory=EncryptionSection)
    sandbox: object = None
    """`[sandbox]` of `proctor.toml`."""
    remarks: tuple[str, ...] = ()
    """What the user should know about where these settings come from."""

    hidden_files: tuple[Path, ...] = ()
    """Files of the store, for a worker that does not know the store: programs must not see them."""

    @property
    def store_files(self) -> tuple[Path, ...]:
        """The files of the store, if it is one on this machine."""
        if not self.store_url or "://" in self.store_url:
            return self.hidden_files
        # SQLite keeps two more files beside the store.
        return tuple(Path(f"{self.store_url}{end}").resolve() for end in ("", "-wal", "-shm"))

    @property
    def confinement(self) -> Sandbox:
        """The sandbox of this machine under these settings."""
        user_home = Path(self.user_environment.get("HOME") or "/").resolve()
        hidden = tuple(path.resolve() for path in (self.home, user_home, *self.store_files))
        return Sandbox(settings=self.sandbox, hidden=hidden, user_home=user_home)


@dataclass(frozen=True, slots=True)
class Notice:
    """A message for the user that is neither a result nor an error."""

    text: str
    kind: Literal["note", "info"] = "info"
    """`note`: a remark on the plan or the environment; `info`: what is happening."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Settings that any plan may have: how its models are reached and its evaluators are confined."""

    folders: Sequence[Path] = ()
    """Where scripted models are looked up."""
    prices: Mapping[str, Mapping[str, float]] | None = None
    agent_models: Sequence[str] = ()
    """`models` of the plan: what agents without a model may request from the gateway."""
    record: str | None = None
    """File that records the traffic with models."""
    replay: str | None = None
    """Recording that answers in place of the models."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Addresses and keys that take precedence over the environment."""
    outage_patience_seconds: float | None = None
    """How long calls wait for a provider that cannot be reached; None: as the settings say."""
    sandbox: object = None
    """`sandbox` of the plan, for the programs of its evaluators; None: as the settings say."""
    service: str = ""
    """`batch`: calls are sent as batches of the provider. Empty: one by one."""
    scripts: Mapping[str, ScriptedModel] = field(default_factory=dict)
    """Scripted models by name, for a worker that does not see the folders; others are looked up there."""

    @classmethod
    def of_plan(cls, plan: JsonMap, folders: Sequence[Path]) -> "ModelOptions":
        """The options in the checked settings of a plan."""
        return cls._read(plan, folders, plan.get("outage_patience"))

    @classmethod
    def restored(cls, options: JsonMap, folders: Sequence[Path]) -> "ModelOptions":
        """The options of a run, from what `stored` returned for it."""
        return cls._read(options, folders, options.get("outagePatience"))

    @classmethod
    def _read(cls, source: JsonMap, folders: Sequence[Path], patience: object) -> "ModelOptions":
        return cls(
            folders=folders,
            prices=cast("Mapping[str, Mapping[str, float]] | None", source.get("prices")),
            agent_models=tuple(texts_in(source, "agentModels")),
            record=as_text(source, "record") or None,
            replay=as_text(source, "replay") or None,
            outage_patience_seconds=as_number(patience),
            sandbox=source.get("sandbox"),
            service=as_text(source, "service"),
        )

    def stored(self) -> JsonObject:
        """As members of the options that a run keeps."""
        added = {
            "outagePatience": self.outage_patience_seconds,
            "sandbox": self.sandbox,
            "agentModels": list(self.agent_models) or None,
            "service": self.service or None,
        }
        return {
            "prices": self.prices,
            "record": self.record,
            "replay": self.replay,
            **without_none(added),
        }


@dataclass(frozen=True, slots=True)
class Functions:
    """Python functions and objects of this process that stand for names in a run."""

    agents: dict[str, Callable[..., object]] = field(default_factory=dict)
    """`function(prompt)` or `function(prompt, context)`."""
    models: dict[str, Callable[[Request], Any]] = field(default_factory=dict)
    """`function(request)`."""
    evaluators: "dict[str, Evaluator]" = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.agents or self.models or self.evaluators)


class People(Protocol):
    """A way to put questions to people."""

    async def ask(self, item_id: str, actor: str, prompt: str) -> str:
        """The answer of the person who plays an actor; empty: there is none."""


class StoreQuestions:
    """Stores questions of a run and waits for their answers."""

    def __init__(
        self, store: Store, run_id: str, now: Callable[[], datetime], announce: Callable[[str], None]
    ) -> None:
        """`announce` is called with a message when the run begins to wait for a person."""
        self._store, self._run_id, self._now, self._announce = store, run_id, now, announce

    async def ask(self, item_id: str, actor: str, prompt: str) -> str:
        """Store the question and poll for its answer."""
        store, run_id = self._store, self._run_id
        question = await asyncio.to_thread(
            store.change, batches.ask, run_id, item_id, actor, prompt, self._now()
        )
        answer = await asyncio.to_thread(store.answer_of, run_id, question)
        if answer is None:
            self._announce(f"waiting for {actor} to answer {question} (in the page of the run)")
        try:
            while answer is None:
                await asyncio.sleep(POLL_SECONDS)
                answer = await asyncio.to_thread(store.answer_of, run_id, question)
        except BaseException:
            # Cancelled or failed: the attempt no longer waits for an answer.
            store.change(batches.withdraw, run_id, question)
            raise
        return answer


def people_of_run(run_id: str, ctx: "RunContext") -> People:
    """The person at this terminal; without one, or with `human: web`, people asked through the store."""
    options = json.loads(ctx.store.read.batch(run_id, ctx.now())["optionsJson"])
    at_terminal = None if options.get("human") == "web" else ctx.people
    return at_terminal or StoreQuestions(ctx.store, run_id, ctx.now, ctx.info)


def no_evaluators(name: str, settings: JsonMap, models: Model) -> "Evaluator":  # noqa: ARG001
    """Raise: the run has no evaluators."""
    raise NotFound(f"there is no evaluator {name} here")


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRetryPolicy:
    """Whether a failed attempt is retried, and after which delay."""

    first_seconds: float = 1.0
    longest_seconds: float = 60.0

    def delay(
        self,
        *,
        status: str,
        reason: str,
        tries: int,
        retries: int,
        retry_on: Sequence[str],
        rng: random.Random,
    ) -> float | None:
        """Seconds until the next attempt; None: no further attempt.

        The delay doubles with each try, with jitter between half and all of it, so that items that
        failed together do not retry together.
        """
        if tries > retries or status not in retry_on or reason in NOT_RETRIED:
            return None
        longest: float = min(self.longest_seconds, self.first_seconds * 2.0 ** (tries - 1))
        return longest * rng.uniform(0.5, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorSettings:
    """The evaluators of a run as data."""

    folder: Path
    """Where relative paths begin, and functions and programs are run."""
    definitions: Mapping[str, Any]
    """Definitions from files and from the store, copied when the run began, by name."""
    lambdas: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    model_names: Mapping[str, str] = field(default_factory=dict)
    """Judges by the model id of a definition."""
    mark: str = "evaluation"
    """Label of the processes they start."""
    sandbox: object = None
    """`sandbox` of the plan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """Settings, models and clock of one worker, shared by its attempts."""

    settings: Settings
    environment: Mapping[str, str] = field(repr=False)
    """With the keys that settings and plan name, which are redacted; agents see a part of it."""
    models: ModelRouter
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    functions: Functions = field(default_factory=Functions)
    find_runner: Callable[[str], Runner] = find_runner
    find_evaluator: "FindEvaluator" = no_evaluators
    evaluators: "EvaluatorSettings | None" = None
    """What `find_evaluator` is made from, for workers in other processes; None: the run has no evaluators."""

    def __post_init__(self) -> None:
        # Other users of models, such as a check, want to know at once that a provider does not answer.
        self.models.pools.waits_for_outages = True
        # An attempt holds money for each try that may be billed.
        self.models.pools.repeats_billed = False

    @property
    def home(self) -> Path:
        """Folder of worktrees, copies of repositories and agents' homes."""
        return self.settings.home

    @property
    def git_environment(self) -> Mapping[str, str]:
        """The environment of git: no keys."""
        return visible(self.environment, named={"HOME"})

    def find_agent(self, name: str, settings: JsonMap) -> "Agent":
        """An agent by name, with its settings and the keys of its own service."""
        return find_agent_with_keys(name, settings, self.settings.user_environment, self.functions)


def make_models(
    settings: Settings,
    options: ModelOptions,
    *,
    records: bool = True,
    functions: Functions | None = None,
    limit_share: float = 1.0,
) -> ModelRouter:
    """The models a plan with these options can reach. Without `records`, nothing is written: for checks.

    `functions` answer for the models of their names; `limit_share` is this process's share of rate limits.
    """
    if options.record and options.replay:
        raise UsageError("record and replay exclude each other\nWhat is replayed is recorded already.")
    recording: RecordingOrReplay | None = None
    if options.record or options.replay:
        # Loaded only by runs that record or replay.
        from proctor.models.recording import Recording, Replay

        if options.record and records:
            recording = Recording(Path(options.record), redactor(settings.environment))
        if options.replay:
            recording = Replay(Path(options.replay))
    router = ModelRouter(
        {**settings.environment, **options.variables},
        folders=options.folders,
        scripts=options.scripts,
        prices={**settings.prices, **(options.prices or {})},
        agent_models=options.agent_models,
        recording=recording,
        pools=RatePools(
            most=settings.call_limits,
            share=limit_share,
            outage_patience_seconds=(
                settings.outage_patience_seconds
                if options.outage_patience_seconds is None
                else options.outage_patience_seconds
            ),
        ),
        needs_prices=settings.store_budget_usd is not None,
        service=options.service,
    )
    for name, function in functions.models.items() if functions else ():
        router.add_route(name, CallableRoute(function))
    return router


def evaluator_registry(settings: Settings, evaluators: EvaluatorSettings) -> "EvaluatorRegistry":
    """Finds the evaluators of a run: by their definitions, in its folder and in the home folder."""
    # Loads everything that evaluation needs; runs without evaluators do without.
    from proctor.evaluators.registry import EvaluationSettings, EvaluatorRegistry

    return EvaluatorRegistry(
        EvaluationSettings(
            folder=evaluators.folder,
            environment=visible(settings.user_environment, named={"HOME"}),
            folders=[evaluators.folder / "evaluators", settings.home / "evaluators"],
            lambdas=evaluators.lambdas,
            model_names=evaluators.model_names,
            attempt=evaluators.mark,
            sandbox=settings.confinement.for_evaluators(evaluators.sandbox),
        )
    )


def find_agent_with_keys(
    name: str, settings: JsonMap, environment: Mapping[str, str], functions: Functions
) -> "Agent":
    """An agent with its settings and the keys of its own service; `functions` are looked up first."""
    if name in functions.agents:
        from proctor.agents._function import FunctionAgent

        return FunctionAgent(functions.agents[name])
    # Loaded with the first agent; runs of plain prompts have none.
    from proctor.agents import find_agent, with_keys

    return with_keys(find_agent(name, settings), environment)


EngineName = Literal["local", "ray"]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Where and how the items of a run are executed."""

    name: EngineName = "local"
    """`local`: on this machine; `ray`: on the nodes of a Ray cluster."""
    ray_address: str = "auto"
    """Of the cluster; `auto`: the one that this machine is part of; `local`: one on this machine alone."""
    keep_going: bool = False
    """Execute all items, even when an agent did not start in any of the first."""


class RunContext:
    """Settings, store and clock of one run, on its driver. Close it to close the store."""

    def __init__(
        self,
        settings: Settings,
        *,
        owner: str,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        settings_for: Callable[[Sequence[Path]], Settings],
        keys: "Callable[[], Keys]",
        notice: Callable[[Notice], None],
        store: Store | None = None,
        people: People | None = None,
    ) -> None:
        """`settings_for` reads the settings for other folders, `keys` the keys of the store; with `store`, an
        open store is used and stays open. `people` asks the person at this terminal."""
        self.settings = settings
        self.owner = owner
        self.now = now
        self.monotonic = monotonic
        self.notice = notice
        self._settings_for = settings_for
        self._keys = keys
        self._given_store = store
        self.people = people
        """Without it, questions to people go through the store."""
        self.engine = EngineOptions()
        """Where items are executed, unless the caller of a run gives it an engine."""
        self.functions = Functions()
        """Functions of this process that stand as agents, models and evaluators; looked up first."""

    @property
    def home(self) -> Path:
        """Folder of the store and the worktrees."""
        return self.settings.home

    @cached_property
    def store(self) -> Store:
        """The store, opened (and migrated) on first use."""
        if self._given_store is not None:
            return self._given_store
        # A folder that cannot be created is reported by whatever needs it.
        with suppress(OSError):
            private_folder(self.settings.home)
        return Store(self.settings.store_url, self._keys())

    @property
    def has_store(self) -> bool:
        """Whether the store exists; using `store` would create it."""
        return (
            self._given_store is not None or "store" in self.__dict__ or store_exists(self.settings.store_url)
        )

    def scratch_store(self, folder: Path) -> Store:
        """An empty store in `folder`, encrypted under the same keys; the caller closes it."""
        return Store(str(folder / "scratch.db"), self._keys())

    def close(self) -> None:
        """Close the store if this context opened it."""
        if self._given_store is None and "store" in self.__dict__:
            self.store.close()

    def note(self, text: str) -> None:
        """Send the user a remark."""
        self.notice(Notice(text, "note"))

    def info(self, text: str) -> None:
        """Send the user a message about the progress."""
        self.notice(Notice(text))

    def note_foreign_results(self, run_ids: Iterable[str], *, unsigned: bool = False) -> None:
        """Send a remark on runs whose results another user has written; `unsigned`: on unsigned ones too."""
        for run_id in run_ids:
            if self.store.read.exact_batch(run_id):
                check = self.store.check_signatures(run_id, self.now())
                for text in check.notes(unsigned=unsigned):
                    self.note(text)

    def settings_for(self, folders: Sequence[Path]) -> Settings:
        """Settings that also apply the `proctor.toml` of these folders."""
        return self.settings if tuple(folders) == self.settings.folders else self._settings_for(folders)

    def models(self, options: ModelOptions, *, records: bool = True) -> ModelRouter:
        """The models a plan can reach; close them after use. `records`: as in `make_models`."""
        settings = self.settings_for(options.folders)
        router = make_models(settings, options, records=records, functions=self.functions)
        router.pools.notify = self.info
        return router

    def find_agent(self, name: str, settings: JsonMap) -> "Agent":
        """The agent of this name, with its settings and the keys of its own service."""
        return find_agent_with_keys(name, settings, self.settings.user_environment, self.functions)

    def attempts(self, models: ModelRouter) -> WorkerContext:
        """Dependencies of attempts that use these models."""
        settings = self.settings_for(models.folders)
        return WorkerContext(
            settings=settings,
            environment=settings.environment,
            models=models,
            now=self.now,
            monotonic=self.monotonic,
            functions=self.functions,
        )

    def with_evaluators(
        self, attempts: WorkerContext, names: Sequence[str], *, folder: Path, sandbox: object = None
    ) -> WorkerContext:
        """The same dependencies with these evaluators, looked up in plan folder, home and store.

        `sandbox` is the plan's, for their programs.
        """
        if not names:
            return attempts
        definitions = self.evaluators(folder).copies(names)
        return self.with_definitions(attempts, definitions, folder=folder, sandbox=sandbox)

    def with_definitions(
        self,
        attempts: WorkerContext,
        definitions: Mapping[str, Any],
        *,
        folder: Path,
        mark: str = "evaluation",
        sandbox: object = None,
    ) -> WorkerContext:
        """The same dependencies with evaluators whose definitions were copied when the run began."""
        evaluators = self._evaluator_settings(folder, definitions, mark, sandbox)
        find = self.evaluators(folder, mark=mark, sandbox=sandbox).finder(definitions)
        return replace(attempts, find_evaluator=find, evaluators=evaluators)

    def evaluators(
        self, folder: Path, *, mark: str = "evaluation", sandbox: object = None
    ) -> "EvaluatorRegistry":
        """Registry of the evaluators that a plan in `folder` with this `sandbox` can name."""
        registry = evaluator_registry(self.settings, self._evaluator_settings(folder, {}, mark, sandbox))
        return replace(
            registry, definitions=self.store.definitions.document, objects=self.functions.evaluators
        )

    def _evaluator_settings(
        self, folder: Path, definitions: Mapping[str, Any], mark: str, sandbox: object
    ) -> EvaluatorSettings:
        section = self.settings_for([folder]).evaluation
        return EvaluatorSettings(
            folder=folder,
            definitions=definitions,
            lambdas=section.get("lambdas", {}),
            model_names=section.get("models", {}),
            mark=mark,
            sandbox=sandbox,
        )
