"""Check the installation, and test a model or an agent for real; each problem comes with its remedy.

Nothing here prints: `proctor doctor` and the Models page show the results.
"""

import difflib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypedDict

from proctor.agent import Agent, Reach
from proctor.agents import agent_names, find_agent
from proctor.api.deprecated import OLD_NAMES_OF_CHECKS, with_old_names
from proctor.api.inventory import ListedAgent, check_agent
from proctor.batch import lifecycle
from proctor.batch.executor import SILENT, Observer
from proctor.batch.program_starts import Start, try_starts
from proctor.bootstrap import ignore_notice, now
from proctor.context import RunContext, Settings
from proctor.errors import ModelError, ProctorError, RateLimited, UsageError
from proctor.formatting import plural, printable, seconds, usd
from proctor.git import Git
from proctor.item import SUCCESS, Item
from proctor.job import PlanText, make_overrides
from proctor.jobs import recognize
from proctor.json_values import CamelJson, JsonMap, JsonObject
from proctor.model import Answer, Request
from proctor.models import ModelRouter, is_mock, local
from proctor.models.client import CallRetryPolicy, Client
from proctor.models.discovery import discover
from proctor.models.providers import PROVIDERS, Endpoint, base_variable
from proctor.processes import run
from proctor.secrets import visible
from proctor.store import Scope, Store
from proctor.store.database import store_exists
from proctor.store.keys import Keys, read_keys
from proctor.store.ledger import withdraw
from proctor.store.writer import this_process

MakeObserver = Callable[[RunContext], Observer]

# The machine: programs, folders, processes, keys, agents.

OLDEST_PYTHON = (3, 11)
# Older versions lack options that worktrees need.
OLDEST_GIT = (2, 31)
LEAST_FREE_BYTES = 2 * 1024**3
"""Each agent fills a worktree and a home; with less than this the first may already fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult(CamelJson):
    """Result of one check."""

    name: str
    ok: bool | None
    """None: neither good nor bad, worth knowing."""
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """Result of a test of a model or an agent: for the terminal and for `--json`."""

    check: CheckResult
    document: JsonMap


async def check_machine(settings: Settings) -> list[CheckResult]:
    """What every batch needs."""
    return [
        _python(),
        _git(settings.environment),
        _store(settings),
        _disk(settings.home),
        await _processes(settings.environment),
        _sandbox(settings),
    ]


def check_keys_and_agents(settings: Settings) -> Iterator[CheckResult]:
    """Providers with a key and agents installed. None is required: mocks need neither."""
    yield _keys(settings.environment)
    names = [name for name in agent_names() if name not in ("command", "scripted")]
    starts = {name: start for name in names if (start := _start(name, settings))}
    results = try_starts(list(starts.values()), settings.confinement, settings.user_environment)
    tried = dict(zip(starts, results, strict=True))
    for name in names:
        if (result := tried.get(name)) and result.problem:
            yield CheckResult(
                name=f"agent {name}",
                ok=None,
                message=result.problem.removeprefix(f"the agent {name} "),
                remedy=result.remedy,
            )
        elif result and result.version:
            yield CheckResult(name=f"agent {name}", ok=True, message=f"ready, {result.version}")
        else:
            yield _listed(check_agent(name, settings.user_environment))


def _start(name: str, settings: Settings) -> Start | None:
    """How the program of an agent is tried in the sandbox of this machine."""
    try:
        agent = find_agent(name, {})
        is_here = settings.confinement.kind_of(None) != "container"
    except UsageError:
        return None
    environment = visible(settings.user_environment, named={"HOME", *agent.keys})
    program = agent.program(environment) if is_here else None
    if program is None:
        return None
    item = Item(runner="worktree", agent=name, prompt="")
    return Start(
        what=f"the agent {name}",
        item=item,
        phase="agent",
        program=program[0],
        option=program[1],
        keys=tuple(agent.keys),
    )


def _listed(agent: ListedAgent) -> CheckResult:
    message = f"ready, {agent.version}".removesuffix(", ") if agent.ready else agent.problem
    return CheckResult(
        name=f"agent {agent.name}", ok=agent.ready or None, message=message, remedy=agent.remedy
    )


def _sandbox(settings: Settings) -> CheckResult:
    try:
        kind, summary = settings.confinement.kind_of(None), settings.confinement.summary(None)
    except UsageError as error:
        return CheckResult(name="sandbox", ok=False, message=error.problem, remedy=error.remedy)
    if kind != "none":
        return CheckResult(name="sandbox", ok=True, message=summary)
    remedy = "Install bubblewrap (the package `bubblewrap`)."
    return CheckResult(name="sandbox", ok=None, message=summary, remedy=remedy)


def _python() -> CheckResult:
    is_ok = sys.version_info[:2] >= OLDEST_PYTHON
    oldest = ".".join(map(str, OLDEST_PYTHON))
    remedy = "" if is_ok else f"Install Python {oldest} or newer."
    return CheckResult(name="python", ok=is_ok, message=platform.python_version(), remedy=remedy)


def _git(environment: Mapping[str, str]) -> CheckResult:
    remedy = f"Install git {'.'.join(map(str, OLDEST_GIT))} or newer."
    try:
        version = Git(Path("/"), environment)("version").strip()
    except (ProctorError, OSError) as error:
        return CheckResult(name="git", ok=False, message=f"cannot be started: {error}", remedy=remedy)
    number = re.search(r"(\d+)\.(\d+)", version)
    is_ok = number is not None and (int(number[1]), int(number[2])) >= OLDEST_GIT
    return CheckResult(name="git", ok=is_ok, message=version, remedy="" if is_ok else remedy)


def _store(settings: Settings) -> CheckResult:
    url = settings.store_url
    if "://" not in url and not Path(url).exists():
        folder = _existing(Path(url).parent)
        is_ok = os.access(folder, os.W_OK)
        state = "will be created by the first batch" if is_ok else f"cannot be created: {folder} is read-only"
        remedy = "" if is_ok else "Choose another folder with --home or PROCTOR_HOME."
        return CheckResult(name="store", ok=is_ok, message=f"{url} {state}", remedy=remedy)
    try:
        with Store(url, read_keys(settings.encryption, settings.user_environment)) as store:
            writer = store.writer()
            try:
                # Changes nothing, but fails where nothing can be written.
                writer.submit(lambda connection: withdraw(connection, "doctor")).result(timeout=30)
            finally:
                writer.close()
            location = store.url
    except (ProctorError, OSError, TimeoutError) as error:
        remedy = "Repair it, or choose another with --store or PROCTOR_STORE."
        return CheckResult(name="store", ok=False, message=str(error), remedy=remedy)
    return CheckResult(name="store", ok=True, message=f"{location} can be read and written")


def check_store(settings: Settings) -> Iterator[CheckResult]:
    """Whether the store is damaged, and whether others can read it."""
    # Loaded late: it knows every table.
    from proctor.api import stores

    if store_exists(settings.store_url):
        result = stores.check_store(settings)
        if result.is_ok:
            rows = plural(sum(result.rows.values()), "row")
            yield CheckResult(name="store check", ok=True, message=f"{rows}, nothing is damaged")
        for problem in result.problems:
            examples = f": {', '.join(problem.examples)}" if problem.examples else ""
            number = f" ({problem.count:,})" if problem.count > 1 else ""
            yield CheckResult(
                name="store check",
                ok=False,
                message=f"{problem.what}{number}{examples}",
                remedy=problem.remedy,
            )
        for note in result.notes:
            yield CheckResult(name="store check", ok=None, message=note)
    home = settings.home
    if home.is_dir() and home.stat().st_mode & 0o077:
        mode = f"{home.stat().st_mode & 0o777:o}"
        yield CheckResult(
            name="home",
            ok=None,
            message=f"other users may enter {home} (mode {mode})",
            remedy=f"Unless you share it: chmod 700 {home}",
        )


def _disk(home: Path) -> CheckResult:
    free = shutil.disk_usage(_existing(home)).free
    is_ok = free >= LEAST_FREE_BYTES
    remedy = "" if is_ok else "Free some space, or choose another folder with --home or PROCTOR_HOME."
    return CheckResult(
        name="disk", ok=is_ok, message=f"{free / 1024**3:.1f} GiB free at {home}", remedy=remedy
    )


async def _processes(environment: Mapping[str, str]) -> CheckResult:
    """Leave a child process running, as agents do, and check that it is detected and killed."""
    variables = {"PATH": environment.get("PATH", os.defpath)}
    try:
        result = await run(
            "sleep 60 & exit 0", folder=Path("/"), environment=variables, attempt="doctor", time_limit=20
        )
    except ProctorError as error:
        return CheckResult(name="processes", ok=False, message=f"no program can be started: {error}")
    if result.leftovers:
        return CheckResult(
            name="processes", ok=True, message="leftover child processes can be detected and killed"
        )
    message = "only processes in the program's own process group are killed: /proc is not readable"
    remedy = "On Linux, mount /proc. On other systems, programs that leave their group stay: docs/trust.md."
    return CheckResult(name="processes", ok=False, message=message, remedy=remedy)


def _keys(environment: Mapping[str, str]) -> CheckResult:
    keys = [
        f"{name} ({variable})"
        for name, provider in PROVIDERS.items()
        for variable in provider.key_variables
        if environment.get(variable)
    ]
    if local.is_ours(local.MODEL, environment) and local.is_installed():
        keys.append(f"{local.MODEL} (needs none)")
    if keys:
        return CheckResult(name="keys", ok=True, message=f"set for {', '.join(keys)}")
    message = "no API key is set; scripted models and local servers need none"
    return CheckResult(name="keys", ok=None, message=message, remedy="`docs/models.md` lists the variables.")


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def all_passed(results: Sequence[CheckResult]) -> bool:
    """Whether no check failed."""
    return not any(result.ok is False for result in results)


# An agent: one small task, run for real.

TASK = "Create a file named hello.txt in the current folder that holds the word hello. Do nothing else."
CHECK = "test -f hello.txt"
MOST_SECONDS = 120
MOST_SHOWN = 300
"""Characters of a reply or an error that are shown."""


async def try_agent(
    name: str,
    agent: Agent,
    version: str,
    settings: Settings,
    model: str,
    make_observer: MakeObserver,
) -> TrialResult:
    """Run an installed agent on a task of one file."""
    with tempfile.TemporaryDirectory(prefix="proctor-doctor-", ignore_cleanup_errors=True) as path:
        folder = Path(path)
        with Store(str(folder / "proctor.db")) as store:
            await _work(folder, store, settings, name, model, make_observer)
            outcome = _outcome_of(store)
    document = {"name": name, "model": model, "version": version, **outcome}
    reach = agent.reach
    parts = [f"{version or 'installed'}; {_outcome(outcome)}", _calls(outcome, reach)]
    if outcome["message"]:
        parts.append(f"last message: {printable(outcome['message'], width=MOST_SHOWN)}")
    # An agent that did not call the gateway used another provider, on an unknown account.
    is_ok = outcome["status"] == SUCCESS and (reach != "gateway" or outcome["calls"] > 0)
    remedy = "" if is_ok else _advice(outcome, reach)
    check = CheckResult(name=f"agent {name}", ok=is_ok, message="; ".join(filter(None, parts)), remedy=remedy)
    return TrialResult(check, document)


async def _work(
    folder: Path, store: Store, settings: Settings, name: str, model: str, make_observer: MakeObserver
) -> None:
    """Run a batch of one item in a repository, a store and a home of its own."""
    repository = folder / "repository"
    repository.mkdir()
    (repository / "README.md").write_text("A repository to test an agent on.\n")
    git = Git(repository, settings.environment)
    for arguments in (
        ("init", "--quiet", "-b", "main"),
        ("add", "."),
        ("commit", "--quiet", "-m", "a start"),
    ):
        git(*arguments)
    entry: JsonObject = {"repo": str(repository), "prompt": TASK, "agent": name, "scriptCommand": CHECK}
    entry |= {"timeoutSec": MOST_SECONDS} | ({"model": model} if model else {})
    own = replace(settings, home=folder / "home", store_url=store.url, store_budget_usd=None)
    ctx = RunContext(
        own,
        owner=this_process(),
        now=now,
        monotonic=time.monotonic,
        settings_for=lambda _: own,
        keys=Keys,
        notice=ignore_notice,
        store=store,
    )
    text = f"matrix: [{json.dumps(entry)}]"
    job = recognize(text)
    plan = job.read(PlanText(text=text, folder=folder), make_overrides(job, {}), ctx)
    await lifecycle.start(job, plan, ctx, run_id="doctor", observer=make_observer(ctx))


class TrialOutcome(TypedDict):
    """How the attempt of an agent went."""

    status: str
    mock: bool
    reason: str
    error: str
    seconds: float | None
    calls: int
    failedCalls: list[str]
    tokens: int
    costUsd: float | None
    toolCalls: int
    message: str


def _outcome_of(store: Store) -> TrialOutcome:
    """The only attempt in the store."""
    (session,) = store.read.sessions(Scope())
    calls = store.read.call_figures(session["id"])
    messages = store.read.of_session("messages", session["id"])
    replies = [message for message in messages if message["role"] == "assistant"]
    printed = store.read.of_session("iterations", session["id"])
    last = (
        replies[-1]["content"] if replies else printed[-1]["output"].strip()[-MOST_SHOWN:] if printed else ""
    )
    return {
        "status": session["status"],
        "mock": bool(session["isMock"]),
        "reason": session["endReason"],
        "error": session["error"],
        "seconds": session["workSeconds"],
        "calls": len(calls),
        "failedCalls": [f"{call['status']}: {call['error']}" for call in calls if call["status"] != "ok"],
        "tokens": session["totalTokens"],
        "costUsd": session["costUsd"],
        "toolCalls": session["toolCalls"],
        "message": last[:MOST_SHOWN],
    }


def _outcome(outcome: TrialOutcome) -> str:
    took = seconds(outcome["seconds"])
    if outcome["status"] == SUCCESS:
        return f"completed the task in {took}{' (mock)' if outcome['mock'] else ''}"
    error = printable(outcome["error"], width=MOST_SHOWN)
    return f"{outcome['status']} ({outcome['reason']}) after {took}: {error}"


def _calls(outcome: TrialOutcome, reach: Reach) -> str:
    if reach == "own":
        return ""
    if not outcome["calls"]:
        return "no model calls"
    cost = "" if outcome["costUsd"] is None else f", {usd(outcome['costUsd'])}"
    calls = f"{plural(outcome['calls'], 'model call')}, {outcome['tokens']:,} tokens{cost}"
    failed = outcome["failedCalls"]
    return f"{calls}, {len(failed)} failed ({printable(failed[-1], width=MOST_SHOWN)})" if failed else calls


def _advice(outcome: TrialOutcome, reach: Reach) -> str:
    """What to do about an agent that did not complete its task."""
    if reach == "gateway" and not outcome["calls"]:
        return (
            "It never called the gateway. Start it by hand to see whether it needs to be set up first or"
            " ignores the base URL."
        )
    if outcome["failedCalls"]:
        return "Its model failed, not the agent. Test the model: proctor doctor --model MODEL"
    if outcome["reason"] == "timeout":
        return f"It did not finish in {MOST_SECONDS} s. It may be waiting for input, or the model is slow."
    if outcome["reason"] in ("checks_failed", "no_changes"):
        return "It ran and made no hello.txt. Small models may fail; try another with --model."
    return "For its full output, run a plan of one item, then `proctor show SESSION --output`."


# A model: one small call, or why it failed and what to do.

GREETING = "Reply with the single word OK."
MOST_TOKENS = 16
# One try, since someone is waiting for the answer.
PATIENCE = CallRetryPolicy(total_seconds=60, connect_seconds=10, silence_seconds=60, tries=1)


async def try_model(name: str, settings: Settings) -> TrialResult:
    """Make one small call of a model whose name is valid."""
    client = Client(PATIENCE)
    models = ModelRouter(
        settings.environment, folders=settings.folders, prices=settings.prices, client=client
    )
    try:
        answer = await models.answer(_greeting(name))
    except ModelError as error:
        problem, remedy = _explain(error, models.route(name).endpoint)
        if error.reason == "bad_request":
            remedy = await _near_misses(name, settings.environment) or remedy
        document = {"name": name, "answered": False, "reason": error.reason, "error": str(error)}
        check = CheckResult(name=f"model {name}", ok=False, message=problem, remedy=remedy)
        return TrialResult(check, document | {"remedy": remedy})
    finally:
        await models.close()
    return _answered(name, answer)


def _greeting(name: str) -> Request:
    messages = [{"role": "user", "content": GREETING}]
    return Request(model=name, messages=messages, parameters={"max_tokens": MOST_TOKENS})


def _answered(name: str, answer: Answer) -> TrialResult:
    call, usage = answer.call, answer.call.usage
    took = seconds((call.latency_ms or 0.0) / 1000)
    tokens = f"{plural(usage.input_tokens, 'token')} in, {usage.output_tokens:,} out"
    price = "price unknown" if call.cost_usd is None else usd(call.cost_usd)
    mock = "mock model, " if is_mock(name) else ""
    message = f"{mock}answered in {took}, {tokens}, {price}: {printable(answer.text.strip(), width=60)}"
    document = {
        "name": name,
        "answered": True,
        "mock": is_mock(name),
        "text": answer.text[:MOST_SHOWN],
        "latencyMs": call.latency_ms,
        "promptTokens": usage.input_tokens,
        "completionTokens": usage.output_tokens,
        "costUsd": call.cost_usd,
        "priceSource": call.price_source,
    }
    return TrialResult(CheckResult(name=f"model {name}", ok=True, message=message), document)


def _explain(error: ModelError, endpoint: Endpoint | None) -> tuple[str, str]:
    """The problem and its remedy."""
    variable = endpoint.key_variable if endpoint else ""
    if error.reason == "auth" and endpoint and endpoint.missing_key:
        return f"needs a key, and {variable} is not set", f"Set it: export {variable}=…"
    if error.reason == "auth" and variable:
        return f"the provider rejected the key in {variable}: {error}", f"Set {variable} to a valid key."
    if isinstance(error, RateLimited):
        wait = error.retry_after_seconds
        retry = "Retry later" if wait is None else f"Retry after {seconds(wait)}"
        return f"rate limited: {error}", f"{retry}; batches wait automatically."
    if error.reason == "quota":
        return f"the account has no credit left: {error}", "Add credit with the provider, or use another key."
    # A timeout is an `OSError` too.
    if isinstance(error.__cause__, TimeoutError):
        return f"timed out: {error}", _address(endpoint)
    if isinstance(error.__cause__, OSError) and endpoint:
        return f"cannot connect to {endpoint.base_url}: {error}", _address(endpoint)
    return str(error), _address(endpoint)


def _address(endpoint: Endpoint | None) -> str:
    if endpoint is None:
        return ""
    known = PROVIDERS.get(endpoint.provider)
    variables = known.base_variables if known else (base_variable(endpoint.provider),)
    return f"To use another address than {endpoint.base_url}, set {' or '.join(variables)}."


async def _near_misses(name: str, environment: Mapping[str, str]) -> str:
    """Similar names of models that can be reached; empty when there are none, or the name is right."""
    known = [model.name for model in (await discover(environment)).models]
    near = [] if name in known else difflib.get_close_matches(name, known, n=3)
    return f"Did you mean {' or '.join(f'`{each}`' for each in near)}?" if near else ""


# All of it together.


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """All results of one examination."""

    checks: Sequence[CheckResult]
    """Of the machine, then of the model and the agent that were tested."""
    trials: Mapping[str, TrialResult]
    """Results of the tests: `model`, `agent`."""

    @property
    def is_ok(self) -> bool:
        """Whether no check failed."""
        return all_passed(self.checks)

    @property
    def main_check(self) -> CheckResult:
        """The first check that failed, else the last of all: the result of a test."""
        return next((check for check in self.checks if check.ok is False), self.checks[-1])

    def document(self) -> JsonObject:
        """The JSON document of the command."""
        trials = {name: result.document for name, result in self.trials.items()}
        document = {"ok": self.is_ok, "checks": [asdict(check) for check in self.checks], **trials}
        return with_old_names(document, OLD_NAMES_OF_CHECKS)


async def diagnose(
    settings: Settings,
    *,
    agent: str = "",
    model: str = "",
    store: bool = False,
    make_observer: MakeObserver = lambda _: SILENT,
) -> Diagnosis:
    """Check the machine, then what is named: one call of `model`, a small task for `agent` with that model,
    or the `store`; without a name, the keys and the installed agents.

    Raises `UsageError` for a name that does not exist, before anything is started. The run of the agent gets
    an observer of its own.
    """
    trials = _Trials(settings, agent, model)
    checks = await check_machine(settings)
    if store:
        checks += check_store(settings)
    elif not (agent or model):
        checks += check_keys_and_agents(settings)
    results = await trials.run(checks, make_observer)
    checks += [result.check for result in results.values()]
    return Diagnosis(checks=checks, trials=results)


class _Trials:
    """The tests to run. Unknown names raise before anything starts."""

    def __init__(self, settings: Settings, agent: str, model: str) -> None:
        self._settings, self._model, self._name = settings, model, agent
        self._agent = find_agent(agent, {}) if agent else None
        self._has_own_model = self._agent is not None and self._agent.reach == "own"
        if model and not self._has_own_model:
            ModelRouter(settings.environment, folders=settings.folders, prices=settings.prices).check(model)
        if self._agent and not model and not self._has_own_model:
            raise UsageError(f"the agent {agent} needs a model\nName one:  --model PROVIDER/MODEL")

    async def run(self, before: Sequence[CheckResult], make_observer: MakeObserver) -> dict[str, TrialResult]:
        """Test the model, then the agent with it. The agent is skipped when an earlier check failed."""
        results = dict[str, TrialResult]()
        if self._model and not self._has_own_model:
            results["model"] = await try_model(self._model, self._settings)
        if self._agent:
            checks = [*before, *(result.check for result in results.values())]
            is_tried = all_passed(checks)
            results["agent"] = (
                await self._try_agent(self._agent, make_observer) if is_tried else _skipped(self._name)
            )
        return results

    async def _try_agent(self, agent: Agent, make_observer: MakeObserver) -> TrialResult:
        listed = check_agent(self._name, self._settings.user_environment)
        if listed.ready:
            return await try_agent(
                self._name, agent, listed.version, self._settings, self._model, make_observer
            )
        check = CheckResult(
            name=f"agent {self._name}", ok=False, message=listed.problem, remedy=listed.remedy
        )
        return TrialResult(check, {"name": self._name, "status": "missing", "error": listed.problem})


def _skipped(name: str) -> TrialResult:
    check = CheckResult(name=f"agent {name}", ok=None, message="not tested: an earlier check failed")
    return TrialResult(check, {"name": name, "status": "not tried"})
