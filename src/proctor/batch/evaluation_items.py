"""The items of an evaluation job: every session with every evaluator.

An item is known by what is judged (what was said and done in the session), by whom (the evaluator's
digest) and against what (the ground truth). So a job that is extended judges only what is new, and a
session that was imported again with more in it is judged again.

Knows nothing of how a session is judged or of where results go.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from proctor.batch.arrivals import tell_arrivals
from proctor.batch.discovery import Discovery, FoundSession, discover, found_sessions
from proctor.batch.ground import Ground
from proctor.batch.launch import Extension, bring_up
from proctor.evaluator import Evaluator
from proctor.item import Item, digest_of
from proctor.plan.evaluation import EvaluationRequest, LogGroups
from proctor.store import Reader, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Jury:
    """Who judges in a job: each evaluator, by the name it was asked for under."""

    members: Mapping[str, Evaluator]

    def model_of(self, name: str) -> str:
        """The model an evaluator asks; empty for one that asks none."""
        judge = getattr(self.members[name], "judge_model", None)
        return str(getattr(judge, "model", "") or "")


def find_sessions(store: Store, request: EvaluationRequest, now: datetime) -> Discovery:
    """Find the sessions a request is about; what has arrived by telemetry is told first."""
    if isinstance(request.sessions, LogGroups):
        tell_arrivals(store, now)
    return discover(store.read, request.sessions, most=request.max_sessions)


def evaluation_items(
    read: Reader, request: EvaluationRequest, sessions: Sequence[str], jury: Jury, ground: Ground
) -> Iterator[Item]:
    """Each session with each evaluator; the evaluators of one session stand together."""
    # Asked once: a function's digest is read from its file each time.
    digests = {name: evaluator.digest for name, evaluator in jury.members.items()}
    for session in found_sessions(read, sessions):
        said = ground.of(session.external_id, session.scenario)
        for name, digest in digests.items():
            yield _item(request, session, name, digest, jury, said)


def fill(
    store: Store, run_id: str, request: EvaluationRequest, sessions: Sequence[str], jury: Jury, ground: Ground
) -> Extension:
    """Give a job its items, or bring it up to those it should have now. The batch must be ours."""
    items = evaluation_items(store.read, request, sessions, jury, ground)
    if store.read.totals(run_id)["items"]:
        return bring_up(store, run_id, {}, items, follows="prompt")
    store.extend_batch(run_id, {}, add=items, settle=(), drop=())
    return Extension(added=store.read.totals(run_id)["items"])


def _item(
    request: EvaluationRequest,
    session: FoundSession,
    name: str,
    digest: str,
    jury: Jury,
    said: Mapping[str, Any],
) -> Item:
    evaluator = jury.members[name]
    truth = said.get("groundTruth")
    traces = _traces(request, session)
    scenario = str(said.get("testScenarioId") or session.scenario)
    factors = {**session.factors, "evaluator": evaluator.name, "service": session.service}
    factors |= {"model": session.factors.get("model") or session.model, "scenario": scenario}
    details: dict[str, Any] = {
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
    settings: dict[str, Any] = {
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
    return Item(
        runner="evaluation",
        prompt=session.words,
        model=jury.model_of(name),
        details=details,
        settings=settings,
        factors={key: value for key, value in factors.items() if value},
    )


def _traces(request: EvaluationRequest, session: FoundSession) -> tuple[str, ...]:
    if isinstance(request.sessions, LogGroups):
        return request.sessions.traces.get(session.external_id, ())
    return ()
