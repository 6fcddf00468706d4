"""Discover the sessions of an evaluation, the most recent first, and make its items: session × evaluator.

A session is in a period if something happened in it then, not only if it began then.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from proctor.batch.create import Extension, extend
from proctor.batch.ingest import build_sessions
from proctor.errors import UsageError
from proctor.evaluator import Evaluator, FindEvaluator
from proctor.item import Item, digest_of
from proctor.jobs.evaluation.ground_truth import GroundTruthIndex
from proctor.jobs.evaluation.request import EvaluationRequest
from proctor.json_values import JsonMap, JsonObject
from proctor.model import Model, ModelDirectory
from proctor.store import Store, StoreReader
from proctor.store.session_selection import (
    LogGroupSessions,
    SessionContent,
    SessionHead,
    Sessions,
    session_contents,
    session_heads,
    session_ids,
)

PAGE = 200
"""Sessions that are looked at together: many enough to be quick, few enough to stay small."""
SCENARIO_NAMES = ("testScenarioId", "test_scenario_id", "test.scenario.id", "scenario.id")
"""Attributes in which an imported session may name its scenario."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredSession:
    """A session to evaluate."""

    id: str
    """In the store."""
    external_id: str
    """Its id in its source; the id in the store for sessions executed here."""
    source: str
    service: str
    log_group: str
    model: str
    content: str
    """Digest of its messages and tool calls."""
    characters: int
    """Length of its texts."""
    traces: int
    tool_calls: int
    scenario: str = ""
    factors: Mapping[str, str] = field(default_factory=dict)
    """Of its item, for sessions executed here."""

    @property
    def label(self) -> str:
        """Its name in items and lists; the same on every machine."""
        where = f" of {self.service}" if self.service else ""
        return f"{self.external_id}{where}" + (f" in {self.log_group}" if self.log_group else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDiscovery:
    """The sessions of a source."""

    ids: Sequence[str]
    """In the store; the most recent first."""
    ignored: int = 0
    """Sessions beyond the maximum."""


def discover(read: StoreReader, sessions: Sessions, *, most: int | None = None) -> SessionDiscovery:
    """Find the sessions; of more than `most`, the most recent ones."""
    ids = session_ids(read, sessions)
    return SessionDiscovery(ids=ids[:most], ignored=len(ids) - len(ids[:most]))


def select_sessions(read: StoreReader, ids: Sequence[str]) -> Iterator[DiscoveredSession]:
    """What is to be known of each session before it is judged, a page at a time."""
    for start in range(0, len(ids), PAGE):
        yield from _page(read, ids[start : start + PAGE])


def _page(read: StoreReader, ids: Sequence[str]) -> Iterator[DiscoveredSession]:
    heads, contents = (
        session_heads(read, ids),
        session_contents(read, ids),
    )
    for session_id in ids:
        if session_id in heads:
            yield _discovered(heads[session_id], contents[session_id])


def _discovered(row: SessionHead, content: SessionContent) -> DiscoveredSession:
    factors: dict[str, str] = json.loads(row["factors"] or "{}")
    attributes = json.loads(row["attributesJson"] or "{}")
    named = (attributes.get(name) for name in SCENARIO_NAMES)
    scenario = next((str(name) for name in named if name), "") or str(factors.get("task", ""))
    return DiscoveredSession(
        id=row["id"],
        external_id=row["externalId"] or row["id"],
        source=row["source"],
        service=row["service"],
        log_group=row["logGroup"],
        model=row["model"],
        content=content.digest,
        characters=content.characters,
        traces=max(content.traces, 1),
        tool_calls=content.tool_calls,
        scenario=scenario,
        factors=factors,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorSet:
    """The evaluators of a request, by their names in it."""

    members: Mapping[str, Evaluator]

    def model_of(self, name: str) -> str:
        """The judge of an evaluator; empty: it calls no model."""
        judge = getattr(self.members[name], "judge_model", None)
        return str(getattr(judge, "model", "") or "")


def find_sessions(store: Store, request: EvaluationRequest, now: datetime) -> SessionDiscovery:
    """Find the sessions of a request; sessions are first built from received spans."""
    if isinstance(request.sessions, LogGroupSessions):
        build_sessions(store, now)
    return discover(store.read, request.sessions, most=request.max_sessions)


def evaluation_items(
    read: StoreReader,
    request: EvaluationRequest,
    sessions: Sequence[str],
    jury: EvaluatorSet,
    ground: GroundTruthIndex,
) -> Iterator[Item]:
    """Each session with each evaluator; the evaluators of one session stand together."""
    # Asked once: a function's digest is read from its file each time.
    digests = {name: evaluator.digest for name, evaluator in jury.members.items()}
    for session in select_sessions(read, sessions):
        expected = ground.of(session.external_id, session.scenario)
        for name, digest in digests.items():
            yield _item(request, session, name, digest, jury, expected)


def fill(
    store: Store,
    run_id: str,
    request: EvaluationRequest,
    sessions: Sequence[str],
    jury: EvaluatorSet,
    ground: GroundTruthIndex,
) -> Extension:
    """Add the items of an evaluation, or extend them. This process must own the batch."""
    items = evaluation_items(store.read, request, sessions, jury, ground)
    if store.read.totals(run_id)["items"]:
        return extend(store, run_id, {}, items, derived_fields=frozenset({"prompt"}))
    store.extend_batch(run_id, {}, add=items, settle=(), drop=())
    return Extension(added=store.read.totals(run_id)["items"])


def _item(
    request: EvaluationRequest,
    session: DiscoveredSession,
    name: str,
    digest: str,
    jury: EvaluatorSet,
    expected: JsonMap,
) -> Item:
    evaluator = jury.members[name]
    truth = expected.get("groundTruth")
    traces = _traces(request, session)
    scenario = str(expected.get("testScenarioId") or session.scenario)
    factors = {**session.factors, "evaluator": evaluator.name, "service": session.service}
    factors |= {"model": session.factors.get("model") or session.model, "scenario": scenario}
    details: JsonObject = {
        "evaluator": evaluator.name,
        "evaluatorDigest": digest,
        "level": evaluator.level,
        "session": session.external_id,
        "source": session.source,
        "content": session.content,
    }
    if truth:
        details["reference"] = digest_of(truth)[:16]
    if traces:
        details["traces"] = list(traces)
    settings: JsonObject = {
        "label": evaluator.name,
        "session": session.id,
        "evaluator": name,
        "judging": request.judge_settings,
        "retries": request.retries,
    }
    if scenario:
        settings["scenario"] = scenario
    if request.timeout_seconds is not None:
        settings["timeoutSec"] = request.timeout_seconds
    if request.resources:
        settings["resources"] = dict(request.resources)
    return Item(
        runner="evaluation",
        prompt=session.label,
        model=jury.model_of(name),
        details=details,
        settings=settings,
        factors={key: value for key, value in factors.items() if value},
    )


def _traces(request: EvaluationRequest, session: DiscoveredSession) -> tuple[str, ...]:
    if isinstance(request.sessions, LogGroupSessions):
        return request.sessions.traces.get(session.external_id, ())
    return ()


def make_jury(
    request: EvaluationRequest,
    find: FindEvaluator,
    models: Model,
    directory: ModelDirectory,
) -> EvaluatorSet:
    """Find every evaluator of a request; raises with every problem. Calls no model."""
    members, problems = dict[str, Evaluator](), list[str]()
    for name in request.evaluators:
        try:
            members[name] = find(name, request.judge_settings, models)
        except UsageError as error:
            problems.append(str(error))
    jury = EvaluatorSet(members=members)
    for model in dict.fromkeys(filter(None, map(jury.model_of, members))):
        problems += _missing(model, directory, has_budget=request.budget_usd is not None)
    names = [evaluator.name for evaluator in members.values()]
    for name in {name for name in names if names.count(name) > 1}:
        problems.append(f"two evaluators are named {name}\nRename one: results are identified by name.")
    if problems:
        raise UsageError("\n\n".join(problems))
    return jury


def _missing(model: str, directory: ModelDirectory, *, has_budget: bool) -> list[str]:
    try:
        directory.check(model)
    except UsageError as error:
        return [str(error)]
    problems = []
    if missing := directory.missing_key(model):
        problems.append(f"{model} needs a key, and {missing} is not set\nSet it: export {missing}=…")
    if has_budget and not directory.has_price(model):
        problems.append(
            f"no price is known for {model}, so the budget cannot be enforced\n"
            "Add it under `prices:` in the plan."
        )
    return problems
