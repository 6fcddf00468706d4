"""Online evaluation: evaluate sessions as they arrive.

A session has ended when no span of it has arrived for a while. A configuration selects a deterministic
sample of the ended sessions, then applies its filters. Selected sessions are added to one evaluation per
configuration, which is executed like any other and grows with new sessions.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from proctor.errors import NotFound
from proctor.evaluators.registry import EvaluationSettings, EvaluatorRegistry
from proctor.item import RUNNING, digest_of
from proctor.jobs.evaluation.request import EvaluationRequest
from proctor.jobs.evaluation.state import FAILED, EvaluationState, evaluation_of, open_evaluation
from proctor.json_values import JsonMap, JsonObject, as_map
from proctor.store import Store, batches, timestamp
from proctor.store.definitions import OnlineConfig
from proctor.store.evaluations import EvaluationRecord
from proctor.store.session_selection import QuietSession, quiet_sessions
from proctor.store.writer import is_alive, this_process

MARK = "onlineEvaluationConfigId"
"""Member of an evaluation's document that names its online configuration."""
TIMEOUT_MINUTES = 15
"""Default time without spans after which a session has ended."""
JUDGE, NOT_SAMPLED, FILTERED = "judge", "not_sampled", "filtered"


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineEvaluationState:
    """Settings of online evaluation on this server."""

    judging: JsonMap
    """Further members of the requests: the judge."""
    version: str
    region: str
    account: str
    quiet_seconds: float | None = None
    """Time without spans after which a session has ended, for all configurations. None: their own."""


def is_online(document: JsonMap) -> bool:
    """Whether an evaluation belongs to an online configuration."""
    return MARK in document


def online_source(store: Store) -> Callable[[str], JsonMap]:
    """A function that returns the log groups of a configuration by its ARN; raises `NotFound`."""

    def source(arn: str) -> JsonMap:
        config = store.definitions.config(arn.rpartition("/")[2])
        return as_map(config["document"], "dataSourceConfig", "cloudWatchLogs")

    return source


def copies_of(store: Store, names: Sequence[str]) -> JsonObject:
    """Copies of the stored evaluators' current definitions, for an evaluation."""
    return EvaluatorRegistry(EvaluationSettings(), store.definitions.document).copies(names)


class OnlineWatch:
    """Finds ended sessions on each call of `look`."""

    def __init__(self, store: Store, watching: OnlineEvaluationState, owner: str = "") -> None:
        self._store = store
        self._owner = owner or watching_process()
        self._watching = watching
        self._seen_up_to: dict[str, str] = {}
        """By configuration: the time up to which sessions were examined. Only an optimization."""

    def look(self, now: datetime) -> Iterator[str]:
        """Add ended sessions to their evaluations; returns IDs of evaluations with work and no live owner."""
        after = ""
        while page := self._store.definitions.configs(after=after, enabled_only=True):
            for config in page:
                yield from self._look_for(config, now)
            after = page[-1]["id"]

    def _look_for(self, config: OnlineConfig, now: datetime) -> Iterator[str]:
        if not self._store.definitions.watch_config(config["id"], self._owner, now):
            return
        self._store.definitions.record_decisions(config["id"], self._decide(config, now), now)
        if config["failure"]:
            # It would fail again until the configuration changes.
            return
        job = self._job_of(config, now)
        if job is not None and job.state == FAILED:
            self._record_failure(config, job)
        elif job is not None and not job.is_finished:
            # New sessions wait until the evaluation has finished its current ones.
            if self._has_no_owner(job, now):
                yield job.id
        elif job is not None and is_alive(self._store.read.batch(job.id, now)["owner"], None, now):
            # Its process is still ending; its last writes must not conflict with ours.
            return
        elif due := self._store.definitions.sessions_of(config["id"], JUDGE):
            run_id = self._grow(config, due) if job is not None else self._begin(config, due, now)
            self._store.definitions.assign_sessions(config["id"], due, run_id)
            yield run_id

    def _job_of(self, config: OnlineConfig, now: datetime) -> EvaluationState | None:
        try:
            return evaluation_of(self._store, config["runId"], now) if config["runId"] else None
        except NotFound:
            return None

    def _has_no_owner(self, job: EvaluationState, now: datetime) -> bool:
        batch = self._store.read.batch(job.id, now)
        return not batch["owner"] or batch["status"] != RUNNING

    def _record_failure(self, config: OnlineConfig, job: EvaluationState) -> None:
        """Record why evaluation failed; the sessions are evaluated once that is fixed."""
        message = " ".join(job.error_details) or "the job failed"
        self._store.definitions.unassign_sessions(config["id"], job.id)
        self._store.definitions.update_config_state(config["id"], failure=message, runId="")

    def _decide(self, config: OnlineConfig, now: datetime) -> dict[str, str]:
        """The decision about each ended session that was not examined before."""
        quiet_since = timestamp(now - timedelta(seconds=self._quiet_seconds(config)))
        since = max(config["enabledAt"] or "", self._seen_up_to.get(config["id"], ""))
        decisions = {
            row["id"]: _decision(config, row)
            for row in _ended_sessions(self._store, config, since=since, until=quiet_since)
        }
        self._seen_up_to[config["id"]] = min(quiet_since, self._store.arrivals.oldest_new() or quiet_since)
        return decisions

    def _quiet_seconds(self, config: OnlineConfig) -> float:
        if self._watching.quiet_seconds is not None:
            return self._watching.quiet_seconds
        session = config["document"]["rule"].get("sessionConfig") or {}
        return 60.0 * float(session.get("sessionTimeoutMinutes", TIMEOUT_MINUTES))

    def _begin(self, config: OnlineConfig, sessions: Sequence[str], now: datetime) -> str:
        watching, document = self._watching, config["document"]
        names = [entry["evaluatorId"] for entry in document.get("evaluators", [])]
        job = open_evaluation(
            self._store,
            EvaluationRequest.from_document(
                # If this process dies before it has stored the ID, the token finds the evaluation again.
                {**self._request(config, sessions), "clientToken": _token(config["id"], sessions)}
            ),
            now=now,
            version=watching.version,
            region=watching.region,
            account=watching.account,
            definitions=copies_of(self._store, names),
            is_detached=True,
        )
        self._store.definitions.update_config_state(config["id"], runId=job.id)
        return job.id

    def _grow(self, config: OnlineConfig, sessions: Sequence[str]) -> str:
        """Add sessions to the evaluation. Existing results stay."""
        row = self._store.evaluations.row(config["runId"])
        request = EvaluationRequest.from_document(self._request(config, sessions))
        changed = EvaluationRecord(
            id=row["id"],
            arn=row["arn"],
            name=row["name"],
            request=request.document,
            request_digest=request.digest,
            definitions=json.loads(row["definitionsJson"]),
        )
        self._store.evaluations.change_request(changed)
        # Unfinished and without an owner: the next process resumes it, also after a restart.
        fresh = dict.fromkeys(("heartbeatAt", "finishedAt", "abortRequestedAt"))
        self._store.change(batches.change, row["id"], {"status": RUNNING, "reason": "", "owner": "", **fresh})
        return str(row["id"])

    def _request(self, config: OnlineConfig, sessions: Sequence[str]) -> JsonObject:
        document = config["document"]
        output = dict(document["outputConfig"]["cloudWatchConfig"])
        if output.get("resultDestination") == "SOURCE_LOG_GROUP":
            output["logGroupName"] = _first_group(config)
        return {
            "batchEvaluationName": config["name"],
            "evaluators": document.get("evaluators", []),
            "insights": document.get("insights", []),
            "dataSourceConfig": {"store": {"sessionIds": list(sessions)}},
            "outputConfig": {"cloudWatchConfig": output},
            **self._watching.judging,
            MARK: config["id"],
        }


def _ended_sessions(store: Store, config: OnlineConfig, *, since: str, until: str) -> list[QuietSession]:
    """Undecided sessions of the watched log groups whose last span arrived in this period."""
    source = config["document"]["dataSourceConfig"]["cloudWatchLogs"]
    return quiet_sessions(
        store.read,
        config["id"],
        service=source["serviceNames"][0],
        log_groups=source.get("logGroupNames") or (),
        prefixes=source.get("logGroupNamePrefixes") or (),
        since=since,
        until=until,
    )


def _decision(config: OnlineConfig, row: QuietSession) -> str:
    rule = config["document"]["rule"]
    if not is_sampled(config["id"], row["externalId"], rule["samplingConfig"]["samplingPercentage"]):
        return NOT_SAMPLED
    return JUDGE if passes(row, rule.get("filters") or ()) else FILTERED


def is_sampled(config_id: str, session: str, percentage: float) -> bool:
    """Whether a session is in the sample; deterministic."""
    drawn = int.from_bytes(hashlib.sha256(f"{config_id}\n{session}".encode()).digest()[:8], "big")
    return drawn / 2**64 * 100 < percentage


def passes(row: Mapping[str, Any], filters: Sequence[JsonMap]) -> bool:
    """Whether a session passes all filters, by its columns and its attributes."""
    columns = {name: value for name, value in row.items() if name not in ("id", "attributesJson")}
    attributes = {**columns, "service.name": row["service"], **json.loads(row["attributesJson"] or "{}")}
    return all(does_match(attributes, condition) for condition in filters)


def does_match(attributes: JsonMap, condition: JsonMap) -> bool:
    """Whether the attributes of a session pass one filter. A missing attribute equals nothing."""
    (expected,) = as_map(condition, "value").values()
    value = attributes.get(str(condition["key"]))
    operator = str(condition["operator"])
    if operator in ("NotEquals", "NotContains"):
        positive = {"NotEquals": "Equals", "NotContains": "Contains"}[operator]
        return not does_match(attributes, {**condition, "operator": positive})
    if value is None:
        return False
    if operator == "Contains":
        return str(expected) in (map(str, value) if isinstance(value, list) else str(value))
    if operator == "Equals":
        return _equals(value, expected)
    return _compares(value, expected, operator)


def _equals(value: object, expected: object) -> bool:
    if isinstance(expected, bool) or isinstance(value, bool):
        return str(value).lower() == str(expected).lower()
    if isinstance(expected, int | float):
        number = _number(value)
        return number is not None and number == expected
    return str(value) == str(expected)


def _compares(value: object, expected: object, operator: str) -> bool:
    left, right = _number(value), _number(expected)
    if left is None or right is None:
        return False
    return {
        "GreaterThan": left > right,
        "LessThan": left < right,
        "GreaterThanOrEqual": left >= right,
        "LessThanOrEqual": left <= right,
    }[operator]


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _first_group(config: OnlineConfig) -> str:
    source = config["document"]["dataSourceConfig"]["cloudWatchLogs"]
    return str([*(source.get("logGroupNames") or ()), *(source.get("logGroupNamePrefixes") or ())][0])


@cache
def watching_process() -> str:
    """The name of this process as the one that watches configurations."""
    return this_process()


def _token(config_id: str, sessions: Sequence[str]) -> str:
    return f"online-{digest_of([config_id, list(sessions)])[:40]}"
