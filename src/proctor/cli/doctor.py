"""`proctor doctor`: is all well here, does this model answer, does this agent work?"""

import asyncio
import difflib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor import __version__
from proctor.agent import Agent, Availability, Reach, reach_of
from proctor.agents import agent_names, find_agent
from proctor.bootstrap import Configuration, StorePlaces, configuration, make_house, make_models, now, places
from proctor.cli import output
from proctor.cli.inventory import look
from proctor.cli.output import Json, count, money, print_json, printable, seconds
from proctor.cli.run import LineView, execute
from proctor.errors import ModelError, ProctorError, RateLimited, UsageError
from proctor.git import Git
from proctor.item import SUCCESS
from proctor.jobs.coding.job import create_batch
from proctor.jobs.coding.plan import NO_OVERRIDES, read_plan
from proctor.model import Answer, Request
from proctor.models import ModelRouter, is_stand_in, local
from proctor.models.client import CallRetryPolicy, Client
from proctor.models.discovery import discover
from proctor.models.providers import PROVIDERS, Endpoint, base_variable
from proctor.processes import run
from proctor.store import Scope, Store
from proctor.store.ledger import withdraw
from proctor.store.writer import this_process

# What `proctor doctor` finds out about this machine: programs, folders, processes, keys, agents.


OLDEST_PYTHON = (3, 11)


# Older ones do not know all of what work trees are made with.
OLDEST_GIT = (2, 31)


LEAST_FREE_BYTES = 2 * 1024**3
"""A batch of agents fills a work tree and a home each; below this the first may already fail."""


_SEVERAL = 4
"""Agents whose version is asked for at once; each starts a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One thing that was looked at."""

    name: str
    well: bool | None
    """None: neither well nor wrong, worth knowing."""
    said: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What trying something came to, for people and for programs."""

    finding: CheckResult
    document: Mapping[str, Any]


def look_at_machine(where: StorePlaces, environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """What every batch needs."""
    yield _python()
    yield _git(environment)
    yield _store(where)
    yield _disk(where.home)
    yield asyncio.run(_processes(environment))


def look_around(environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Who could be asked and who could work. Nobody has to be there: stand-ins need neither."""
    yield _keys(environment)
    names = [name for name in agent_names() if name not in ("command", "scripted")]
    with ThreadPoolExecutor(_SEVERAL) as several:
        for name, (found, _) in zip(names, several.map(look, names), strict=True):
            known = found.version or found.problem
            said = f"ready, {known}".removesuffix(", ") if found.ready else found.problem
            yield CheckResult(
                name=f"agent {name}", well=True if found.ready else None, said=said, remedy=found.remedy
            )


def _python() -> CheckResult:
    well = sys.version_info[:2] >= OLDEST_PYTHON
    oldest = ".".join(map(str, OLDEST_PYTHON))
    remedy = "" if well else f"Install Python {oldest} or newer."
    return CheckResult(name="python", well=well, said=platform.python_version(), remedy=remedy)


def _git(environment: Mapping[str, str]) -> CheckResult:
    wanted = ".".join(map(str, OLDEST_GIT))
    try:
        said = Git(Path("/"), environment)("version").strip()
    except (ProctorError, OSError) as error:
        return CheckResult(
            name="git",
            well=False,
            said=f"cannot be started: {error}",
            remedy=f"Install git {wanted} or newer.",
        )
    number = re.search(r"(\d+)\.(\d+)", said)
    well = number is not None and (int(number[1]), int(number[2])) >= OLDEST_GIT
    return CheckResult(
        name="git", well=well, said=said, remedy="" if well else f"Install git {wanted} or newer."
    )


def _store(where: StorePlaces) -> CheckResult:
    if "://" not in where.store and not Path(where.store).exists():
        folder = _existing(Path(where.store).parent)
        well = os.access(folder, os.W_OK)
        said = "will be made by the first batch" if well else f"cannot be made: {folder} is not writable"
        remedy = "" if well else "Give another place with --home or PROCTOR_HOME."
        return CheckResult(name="store", well=well, said=f"{where.store} {said}", remedy=remedy)
    try:
        with where.open_store() as store:
            writer = store.writer()
            try:
                # Changes nothing, but is refused where nothing can be changed.
                writer.ask(lambda connection: withdraw(connection, "doctor")).result(timeout=30)
            finally:
                writer.close()
            shown = store.url
    except (ProctorError, OSError, TimeoutError) as error:
        remedy = "Give another place with --store or PROCTOR_STORE, or mend this one."
        return CheckResult(name="store", well=False, said=str(error), remedy=remedy)
    return CheckResult(name="store", well=True, said=f"{shown} can be read and written")


def _disk(home: Path) -> CheckResult:
    free = shutil.disk_usage(_existing(home)).free
    well = free >= LEAST_FREE_BYTES
    remedy = "" if well else "Make room, or give another place with --home or PROCTOR_HOME."
    return CheckResult(name="disk", well=well, said=f"{free / 1024**3:.1f} GiB free at {home}", remedy=remedy)


async def _processes(environment: Mapping[str, str]) -> CheckResult:
    """Leave a process behind, as agents do, and see whether it is found and ended."""
    given = {"PATH": environment.get("PATH", os.defpath)}
    try:
        ran = await run(
            "sleep 60 & exit 0", folder=Path("/"), environment=given, attempt="doctor", time_limit=20
        )
    except ProctorError as error:
        return CheckResult(name="processes", well=False, said=f"no program can be started: {error}")
    if ran.leftovers:
        return CheckResult(
            name="processes", well=True, said="what a program leaves running is found and ended"
        )
    said = "what a program leaves running is not found, so it cannot be ended"
    return CheckResult(
        name="processes", well=False, said=said, remedy="Proctor needs Linux, with /proc mounted."
    )


def _keys(environment: Mapping[str, str]) -> CheckResult:
    found = [
        f"{name} ({variable})"
        for name, provider in PROVIDERS.items()
        for variable in provider.key_variables
        if environment.get(variable)
    ]
    if local.is_ours(local.MODEL, environment) and local.is_installed():
        found.append(f"{local.MODEL} (needs none)")
    if found:
        return CheckResult(name="keys", well=True, said=f"set for {', '.join(found)}")
    said = "no provider's key is set; scripted models and servers on this machine need none"
    return CheckResult(name="keys", well=None, said=said, remedy="`docs/models.md` lists the variables.")


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def is_well(findings: Sequence[CheckResult]) -> bool:
    """Whether nothing was found to be wrong."""
    return not any(finding.well is False for finding in findings)


# What `proctor doctor` finds out about an agent: one small task, done for real.


TASK = "Create a file named hello.txt in the current folder that holds the word hello. Do nothing else."


CHECK = "test -f hello.txt"


MOST_SECONDS = 120


MOST_SHOWN = 300
"""Characters of what it said."""


def try_agent(name: str, agent: Agent, found: Availability, models: ModelRouter, model: str) -> TrialResult:
    """Give the agent a task that takes one file, and tell what became of it. It is there to be used."""
    with tempfile.TemporaryDirectory(prefix="proctor-doctor-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        with Store(str(folder / "proctor.db")) as store:
            asyncio.run(_work(store, folder, models, name, model))
            seen = _seen(store)
    document = {"name": name, "model": model, "version": found.version} | seen
    said = [f"{found.version or 'found'}; {_outcome(seen)}", _calls(seen, reach_of(agent))]
    said += [f"it said: {printable(seen['said'], width=MOST_SHOWN)}"] if seen["said"] else []
    # An agent that asked no model of ours has asked someone else's, on an account we know nothing of.
    well = seen["status"] == SUCCESS and (reach_of(agent) != "gateway" or seen["calls"] > 0)
    remedy = "" if well else _advice(seen, reach_of(agent))
    finding = CheckResult(name=f"agent {name}", well=well, said="; ".join(filter(None, said)), remedy=remedy)
    return TrialResult(finding, document)


async def _work(store: Store, folder: Path, models: ModelRouter, name: str, model: str) -> None:
    house = make_house(folder / "home", models)
    repository = folder / "repository"
    repository.mkdir()
    (repository / "README.md").write_text("A repository to try an agent on.\n")
    git = Git(repository, house.environment)
    for words in (("init", "--quiet", "-b", "main"), ("add", "."), ("commit", "--quiet", "-m", "a start")):
        git(*words)
    entry: dict[str, Any] = {"repo": str(repository), "prompt": TASK, "agent": name, "scriptCommand": CHECK}
    entry |= {"timeoutSec": MOST_SECONDS} | ({"model": model} if model else {})
    plan = read_plan(f"matrix: [{json.dumps(entry)}]", file="doctor", folder=folder)
    owner = this_process()
    create_batch(
        store,
        plan,
        NO_OVERRIDES,
        run_id="doctor",
        plan_path="",
        owner=owner,
        version=__version__,
        now=now(),
    )
    await execute(store, "doctor", owner, house, models, LineView("doctor", 1, 0, quiet=True))


def _seen(store: Store) -> dict[str, Any]:
    """What the record says of the one attempt there was."""
    (session,) = store.read.sessions(Scope())
    calls = store.read.call_figures(session["id"])
    messages = store.read.of_session("messages", session["id"])
    said = [message for message in messages if message["role"] == "assistant"]
    printed = store.read.of_session("iterations", session["id"])
    last = said[-1]["content"] if said else printed[-1]["output"].strip()[-MOST_SHOWN:] if printed else ""
    return {
        "status": session["status"],
        "standIn": bool(session["standIn"]),
        "reason": session["endReason"],
        "error": session["error"],
        "seconds": session["workSeconds"],
        "calls": len(calls),
        "failedCalls": [f"{call['status']}: {call['error']}" for call in calls if call["status"] != "ok"],
        "tokens": session["totalTokens"],
        "costUsd": session["costUsd"],
        "toolCalls": session["toolCalls"],
        "said": last[:MOST_SHOWN],
    }


def _outcome(seen: Mapping[str, Any]) -> str:
    took = seconds(seen["seconds"])
    if seen["status"] == SUCCESS:
        return f"did its task in {took}{', with a stand-in' if seen['standIn'] else ''}"
    return f"{seen['status']} ({seen['reason']}) after {took}: {printable(seen['error'], width=MOST_SHOWN)}"


def _calls(seen: Mapping[str, Any], reach: Reach) -> str:
    if reach == "own":
        return ""
    if not seen["calls"]:
        return "no call of a model was made"
    cost = "" if seen["costUsd"] is None else f", {money(seen['costUsd'])}"
    told = f"{count(seen['calls'], 'call')}, {seen['tokens']:,} tokens{cost}"
    failed = seen["failedCalls"]
    return f"{told}, {len(failed)} failed ({printable(failed[-1], width=MOST_SHOWN)})" if failed else told


def _advice(seen: Mapping[str, Any], reach: Reach) -> str:
    """What to do about an agent that did not do its task."""
    if reach == "gateway" and not seen["calls"]:
        return (
            "It never came to the gateway. Start it by hand to see whether it wants to be set up first, or"
            " overlooks the base URL it is given."
        )
    if seen["failedCalls"]:
        return "Its model failed, not the agent: try `proctor doctor --model` with that model."
    if seen["reason"] == "timeout":
        return f"{MOST_SECONDS} s were not enough. It may be waiting for an answer, or the model may be slow."
    if seen["reason"] in ("checks_failed", "no_changes"):
        return "It ran and made no hello.txt. A small model may not manage; try another with --model."
    return "What it printed says more: run a plan of one item with it, and `proctor show` its session."


# What `proctor doctor` finds out about a model: one small call, or why it failed and what to do.


GREETING = "Reply with the single word OK."


MOST_TOKENS = 16


MOST_MODELS_SHOWN = 300
"""Characters of its answer."""


# A person waits for this; what a provider does not answer by then is what there is to tell.
PATIENCE = CallRetryPolicy(total_seconds=60, connect_seconds=10, silence_seconds=60, tries=1)


async def try_model(name: str, config: Configuration) -> TrialResult:
    """Make one small call; what it came to, or why it failed. The name is known to mean a model."""
    client = Client(PATIENCE)
    models = ModelRouter(config.environment, folders=[Path.cwd()], prices=config.prices, client=client)
    try:
        answer = await models.answer(_greeting(name))
    except ModelError as error:
        said, remedy = _why(error, models.route(name).endpoint)
        if error.reason == "bad_request":
            remedy = await _near_misses(name, config.environment) or remedy
        document = {"name": name, "answered": False, "reason": error.reason, "error": str(error)}
        finding = CheckResult(name=f"model {name}", well=False, said=said, remedy=remedy)
        return TrialResult(finding, document | {"remedy": remedy})
    finally:
        await models.close()
    return _answered(name, answer)


def _greeting(name: str) -> Request:
    asked = [{"role": "user", "content": GREETING}]
    return Request(model=name, messages=asked, parameters={"max_tokens": MOST_TOKENS})


def _answered(name: str, answer: Answer) -> TrialResult:
    call, usage = answer.call, answer.call.usage
    took = seconds((call.latency_ms or 0.0) / 1000)
    tokens = f"{count(usage.input_tokens, 'token')} in, {usage.output_tokens:,} out"
    price = "price unknown" if call.cost_usd is None else money(call.cost_usd)
    who = "a stand-in, " if is_stand_in(name) else ""
    said = f"{who}answered in {took}, {tokens}, {price}: {printable(answer.text.strip(), width=60)}"
    document = {
        "name": name,
        "answered": True,
        "standIn": is_stand_in(name),
        "text": answer.text[:MOST_MODELS_SHOWN],
        "latencyMs": call.latency_ms,
        "promptTokens": usage.input_tokens,
        "completionTokens": usage.output_tokens,
        "costUsd": call.cost_usd,
        "priceSource": call.price_source,
    }
    return TrialResult(CheckResult(name=f"model {name}", well=True, said=said), document)


def _why(error: ModelError, endpoint: Endpoint | None) -> tuple[str, str]:
    """A failure in words, and what to do about it."""
    variable = endpoint.key_variable if endpoint else ""
    if error.reason == "auth" and endpoint and endpoint.missing_key:
        return f"needs a key, and {variable} is not set", f"Set it: export {variable}=…"
    if error.reason == "auth" and variable:
        return f"the key in {variable} is refused: {error}", f"Set {variable} to a key that is good here."
    if isinstance(error, RateLimited):
        wait = error.retry_after_seconds
        until = "" if wait is None else f" It wants {seconds(wait)} of rest."
        return f"is limited just now: {error}", f"Nothing is broken: a batch would wait.{until}"
    if error.reason == "quota":
        return f"the account has nothing left: {error}", "Add credit with the provider, or use another key."
    # A timeout is an `OSError` too.
    if isinstance(error.__cause__, TimeoutError):
        return f"gave no answer in time: {error}", _address(endpoint)
    if isinstance(error.__cause__, OSError) and endpoint:
        return f"nobody listens at {endpoint.base_url}: {error}", _address(endpoint)
    return str(error), _address(endpoint)


def _address(endpoint: Endpoint | None) -> str:
    if endpoint is None:
        return ""
    known = PROVIDERS.get(endpoint.provider)
    variables = known.base_variables if known else (base_variable(endpoint.provider),)
    return f"It was asked at {endpoint.base_url}; {' or '.join(variables)} names another address."


async def _near_misses(name: str, environment: Mapping[str, str]) -> str:
    """The nearest names that someone here really has; empty when there are none, or the name is right."""
    known = [model.name for model in (await discover(environment)).models]
    near = [] if name in known else difflib.get_close_matches(name, known, n=3)
    return f"Did you mean {' or '.join(f'`{each}`' for each in near)}?" if near else ""


doctor_app = typer.Typer(add_completion=False)


apps = {"doctor": doctor_app}


MARKS = {True: "well ", False: "WRONG", None: "     "}


@doctor_app.command()
def doctor(
    context: typer.Context,
    agent: Annotated[
        str, typer.Option(help="Try this agent for real, on a small task in a repository made for it.")
    ] = "",
    model: Annotated[
        str, typer.Option(help="Make one small call of this model; with --agent, it works on this one.")
    ] = "",
    as_json: Json = False,
) -> int:
    """Look at this machine, and try a model or an agent; what is wrong is said with what to do about it.

    Example:  proctor doctor --agent claude --model anthropic/claude-sonnet-4-5
    """
    where = places(context.obj)
    config = configuration(where)
    tried = _Trials(where, config, agent, model)
    findings = list(look_at_machine(where, config.environment))
    if not (agent or model):
        findings += look_around(config.environment)
    trials = tried.run(findings)
    findings += [trial.finding for trial in trials.values()]
    if as_json:
        print_json(_document(findings, {name: trial.document for name, trial in trials.items()}))
    else:
        _tell(findings)
    return output.SUCCEEDED if is_well(findings) else output.SOME_DID_NOT


class _Trials:
    """What is to be tried. Names that nobody knows are found before anything starts."""

    def __init__(self, where: StorePlaces, config: Configuration, agent: str, model: str) -> None:
        self._config = config
        self._model, self._name = model, agent
        self._agent = find_agent(agent, {}) if agent else None
        self._own_way = self._agent is not None and reach_of(self._agent) == "own"
        self._models = make_models(where, [Path.cwd()])
        if model and not self._own_way:
            self._models.check(model)
        if self._agent and not model and not self._own_way:
            raise UsageError(f"the agent {agent} needs a model\nName one:  --model provider/model")

    def run(self, before: Sequence[CheckResult]) -> dict[str, TrialResult]:
        """Try the model, then the agent on it; what cannot go well is not tried."""
        trials = dict[str, TrialResult]()
        if self._model and not self._own_way:
            trials["model"] = asyncio.run(try_model(self._model, self._config))
        found = [*before, *(trial.finding for trial in trials.values())]
        if self._agent:
            trials["agent"] = self._try_agent(self._models) if is_well(found) else _not_tried(self._name)
        return trials

    def _try_agent(self, models: ModelRouter) -> TrialResult:
        assert self._agent is not None
        found, _ = look(self._name)
        if found.ready:
            return try_agent(self._name, self._agent, found, models, self._model)
        finding = CheckResult(name=f"agent {self._name}", well=False, said=found.problem, remedy=found.remedy)
        return TrialResult(finding, {"name": self._name, "status": "missing", "error": found.problem})


def _not_tried(name: str) -> TrialResult:
    said = "was not tried, since something else is wrong"
    return TrialResult(
        CheckResult(name=f"agent {name}", well=None, said=said), {"name": name, "status": "not tried"}
    )


def _document(findings: Sequence[CheckResult], trials: dict[str, Any]) -> dict[str, Any]:
    rows = [{"name": f.name, "well": f.well, "said": f.said, "remedy": f.remedy} for f in findings]
    return {"well": is_well(findings), "findings": rows, **trials}


def _tell(findings: Sequence[CheckResult]) -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{MARKS[finding.well]}  {finding.name:<{width}}  {printable(finding.said)}")
        if finding.remedy:
            print(f"{'':7}{'':<{width}}  → {printable(finding.remedy)}")
