"""What an evaluation job is asked to do: which sessions, which evaluators, what was expected.

A request is a document in the shape of the service's Start operation. Beside its members it may have our
own: sessions of this store or of files, who judges, and the limits every batch has. What is said about
single sessions (scenario, ground truth) is kept apart, since it may be long.

Knows nothing of stores, models, or of how the document came in.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from proctor.errors import UsageError
from proctor.item import digest_of

JUDGE = "openai/gpt-4o-mini"
"""Who judges where a request names nobody."""
CONCURRENCY = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """From a moment up to another one, which no longer counts. None: open."""

    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGroups:
    """Sessions that arrived by telemetry, by where they were logged."""

    names: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    """Empty: all."""
    traces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Judge only these traces of a session, by its id."""
    period: Period = Period()


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSessions:
    """Sessions of this store, of any job. Every filter that is empty lets all pass."""

    run_ids: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    """Who took part: a client's, therapist's or actor's role."""
    models: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    session_ids: tuple[str, ...] = ()
    period: Period = Period()


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Records of this or other tools, to be imported before they are judged."""

    paths: tuple[str, ...]
    kind: str = "auto"
    session_ids: tuple[str, ...] = ()
    """What came of importing them, by our ids."""


Sessions = LogGroups | OwnSessions | Files


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """One job as it was asked for."""

    name: str
    evaluators: tuple[str, ...]
    """Names as `proctor evaluators` takes them: `Builtin.X`, an id, a file, `module:function`."""
    sessions: Sessions
    document: Mapping[str, Any]
    """All that was asked, but for the client token and what is said about single sessions."""
    metadata: Sequence[Mapping[str, Any]] = ()
    """What is said about single sessions: `sessionId`, `testScenarioId`, `groundTruth`, `metadata`."""
    client_token: str = ""
    judge: str = JUDGE
    votes: int = 1
    judge_parameters: Mapping[str, Any] = field(default_factory=dict)
    harmful_value: float | None = None
    """What a judgement `Harmful` counts as. None: the evaluators' own default."""
    budget_usd: float | None = None
    concurrency: int = CONCURRENCY
    timeout_seconds: float | None = None
    retries: int = 0
    max_sessions: int | None = None
    """Judge only so many, the most recent ones. None: all."""

    @classmethod
    def from_document(
        cls,
        document: Mapping[str, Any],
        *,
        online_source: Callable[[str], Mapping[str, Any]] | None = None,
    ) -> "EvaluationRequest":
        """Read a checked document. `online_source` gives the `cloudWatchLogs` source that an online
        configuration, by its ARN, watches."""
        asked = {name: value for name, value in document.items() if value is not None}
        token = asked.pop("clientToken", "")
        metadata = (asked.pop("evaluationMetadata", None) or {}).get("sessionMetadata") or []
        return cls(
            name=asked["batchEvaluationName"],
            evaluators=tuple(dict.fromkeys((*named(asked, "evaluators"), *named(asked, "insights")))),
            sessions=_sessions(asked["dataSourceConfig"], online_source),
            document=_plain(asked),
            metadata=tuple(map(_plain, metadata)),
            client_token=token,
            judge=asked.get("judge") or JUDGE,
            votes=asked.get("votes") or 1,
            judge_parameters=asked.get("judgeParameters") or {},
            harmful_value=asked.get("harmfulValue"),
            budget_usd=asked.get("budget"),
            concurrency=asked.get("concurrency") or CONCURRENCY,
            timeout_seconds=asked.get("timeoutSec"),
            retries=asked.get("retries") or 0,
            max_sessions=asked.get("maxSessions"),
        )

    @property
    def digest(self) -> str:
        """Of all that was asked: two starts with one client token are the same if this is."""
        return digest_of([_plain(self.document), _plain(list(self.metadata))])

    @property
    def judge_settings(self) -> dict[str, Any]:
        """What evaluators are given: who judges, and how."""
        given = {"judge": self.judge, "votes": self.votes, "parameters": dict(self.judge_parameters)}
        return given if self.harmful_value is None else given | {"harmfulValue": self.harmful_value}


def named(document: Mapping[str, Any], member: str) -> list[str]:
    """The evaluators or insights that a request names; insights are found by evaluators like any other."""
    id_ = {"evaluators": "evaluatorId", "insights": "insightId"}[member]
    return [entry if isinstance(entry, str) else str(entry[id_]) for entry in document.get(member) or ()]


def _sessions(
    config: Mapping[str, Any], online_source: Callable[[str], Mapping[str, Any]] | None
) -> Sessions:
    given = [name for name, value in config.items() if value is not None]
    if len(given) != 1:
        raise UsageError(
            "the source of sessions should be one of cloudWatchLogs, onlineEvaluationConfigSource, store, "
            f"files; there are {len(given)}"
        )
    source = config[given[0]]
    match given[0]:
        case "cloudWatchLogs":
            return _log_groups(source)
        case "onlineEvaluationConfigSource":
            if online_source is None:
                raise UsageError("online configurations are known to `proctor serve` only")
            watched = dict(online_source(source["onlineEvaluationConfigArn"]))
            return _log_groups(watched | {"filterConfig": {"timeRange": source.get("timeRange")}})
        case "store":
            names = ("runIds", "jobs", "roles", "models", "statuses", "sessionIds")
            filters = {_snake(name): _texts(source.get(name)) for name in names}
            return OwnSessions(**filters, period=_period(source.get("timeRange")))
        case "files":
            imported = _texts(source.get("sessionIds"))
            return Files(
                paths=_texts(source["paths"]), kind=source.get("kind") or "auto", session_ids=imported
            )
        case other:
            raise UsageError(f"there is no source of sessions called {other}")


def _log_groups(source: Mapping[str, Any]) -> LogGroups:
    filters = source.get("filterConfig") or {}
    traces = {entry["sessionId"]: tuple(entry["traceIds"]) for entry in filters.get("sessionTraceIds") or ()}
    return LogGroups(
        names=_texts(source.get("logGroupNames")),
        prefixes=_texts(source.get("logGroupNamePrefixes")),
        services=_texts(source.get("serviceNames")),
        session_ids=_texts(filters.get("sessionIds")),
        traces=traces,
        period=_period(filters.get("timeRange")),
    )


def _texts(values: Any) -> tuple[str, ...]:
    if isinstance(values, str):
        return (values,)
    return tuple(map(str, values or ()))


def _period(given: Mapping[str, Any] | None) -> Period:
    given = given or {}
    return Period(start=moment_of(given.get("startTime")), end=moment_of(given.get("endTime")))


def moment_of(value: Any) -> datetime | None:
    """A moment as it may be written: ISO 8601 (UTC unless it says otherwise), or seconds since 1970."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        read = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"`{value}` is no moment\nWrite it like 2026-01-31 or 2026-01-31T14:00Z.") from None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _plain(value: Any) -> Any:
    """The same, with moments as text: what a digest can be made of."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.isoformat() if isinstance(value, datetime) else value
