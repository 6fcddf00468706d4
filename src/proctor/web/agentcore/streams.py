"""Every log group and stream there is: results of evaluations, and what callers wrote themselves.

The results of a job are its records, made from rows whenever someone reads them; nothing is written twice.
They stay when the job is deleted. Groups that sessions arrived under are groups too, without streams.

Knows nothing of HTTP.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.batch.online import MARK
from proctor.export.evaluation import records_of
from proctor.store.batches import moment
from proctor.web.agentcore.names import ONLINE
from proctor.web.agentcore.service import Service

METRICS = "Bedrock-AgentCore/Evaluations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a stream, with its times in milliseconds since 1970."""

    stream: str
    timestamp: int
    message: str
    ingested: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One stream. A group that has none has one without a name."""

    group: str
    name: str
    created: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """When the events of a stream were, in milliseconds since 1970."""

    first: int
    last: int
    ingested: int

    def joined(self, other: "Times | None") -> "Times":
        """Of both together."""
        if other is None:
            return self
        return Times(
            first=min(self.first, other.first),
            last=max(self.last, other.last),
            ingested=max(self.ingested, other.ingested),
        )


def all_streams(service: Service) -> list[Stream]:
    """Every stream by group and name, each once; groups stand first among their streams."""
    found: dict[tuple[str, str], int] = {}

    def add(group: str, name: str, created: str | None) -> None:
        at = _milliseconds(created)
        for key in ((group, ""), (group, name)):
            found[key] = min(at, found.get(key, at))

    for row in service.store.read.query(
        'SELECT "outputGroup", "outputStream", MIN("createdAt") AS "at" FROM "evaluations" '
        'GROUP BY "outputGroup", "outputStream"'
    ):
        add(row["outputGroup"], row["outputStream"], row["at"])
    for row in service.store.logs.streams():
        add(row["logGroup"], row["logStream"], row["createdAt"])
    for row in service.store.read.query(
        'SELECT "logGroup", MIN("startedAt") AS "at" FROM "sessions" WHERE "logGroup" <> ? '
        'GROUP BY "logGroup"',
        ("",),
    ):
        add(row["logGroup"], "", row["at"])
    return [Stream(group=group, name=name, created=at) for (group, name), at in sorted(found.items())]


def event_times(service: Service, group: str, names: Sequence[str] | None = None) -> dict[str, Times]:
    """When the events of streams were, by stream; of some streams, or of all that a group has."""
    found: dict[str, Times] = {}
    marks = "" if names is None else f'AND e."outputStream" IN ({", ".join("?" * len(names))})'
    for row in service.store.read.query(
        'SELECT e."outputStream" AS "stream", MIN(sc."timestamp") AS "first", MAX(sc."timestamp") AS "last" '
        'FROM "evaluations" e JOIN "batch_items" i ON i."runId" = e."id" '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        f'WHERE e."outputGroup" = ? {marks} GROUP BY e."outputStream"',
        (group, *(names or ())),
    ):
        last = _milliseconds(row["last"])
        found[row["stream"]] = Times(first=_milliseconds(row["first"]), last=last, ingested=last)
    for row in service.store.logs.streams():
        if row["logGroup"] == group and row["last"] is not None:
            own = Times(first=row["first"], last=row["last"], ingested=row["ingested"])
            found[row["logStream"]] = own.joined(found.get(row["logStream"]))
    return found


def events_of(service: Service, group: str, stream: str) -> list[Event]:
    """The events of one stream, oldest first."""
    events = [*_results(service, group, stream), *_written(service, group, stream)]
    return sorted(events, key=lambda event: event.timestamp)


def _written(service: Service, group: str, stream: str) -> Iterator[Event]:
    for row in service.store.logs.events(group, stream):
        yield Event(
            stream=stream, timestamp=row["timestamp"], message=row["message"], ingested=row["ingestedAt"]
        )


def _results(service: Service, group: str, stream: str) -> Iterator[Event]:
    for job in service.store.evaluations.writing_to(group, stream):
        config_id = json.loads(job["requestJson"]).get(MARK, "")
        for record in records_of(service.store, job["id"]):
            yield _result(_with_origin(service, config_id, job, record) if config_id else record, stream)


def _with_origin(
    service: Service, config_id: str, job: Mapping[str, Any], record: Mapping[str, Any]
) -> Mapping[str, Any]:
    """A record of an online configuration: it says which one, and carries its value as an embedded metric."""
    attributes = {
        **record["attributes"],
        "aws.bedrock_agentcore.online_evaluation_config.arn": service.names.arn(ONLINE, config_id),
        "aws.bedrock_agentcore.online_evaluation_config.name": job["name"],
    }
    told = {**record, "attributes": attributes, "onlineEvaluationConfigId": config_id}
    metric, value = (attributes.get(f"gen_ai.evaluation.{part}") for part in ("name", "score.value"))
    if value is None:
        return told
    dimensions = {"service.name": record.get("service.name", ""), "onlineEvaluationConfigId": config_id}
    described = {
        "Namespace": METRICS,
        "Dimensions": [list(dimensions)],
        "Metrics": [{"Name": metric, "Unit": "None"}],
    }
    embedded = {"Timestamp": _seen(record), "CloudWatchMetrics": [described]}
    return {**told, **dimensions, str(metric): value, "_aws": embedded}


def _result(record: Mapping[str, Any], stream: str) -> Event:
    seen = _seen(record)
    return Event(stream=stream, timestamp=seen, message=json.dumps(record), ingested=seen)


def _seen(record: Mapping[str, Any]) -> int:
    return int(record.get("observedTimeUnixNano") or record["timeUnixNano"]) // 1_000_000


def _milliseconds(stamp: str | None) -> int:
    at = moment(stamp)
    return int(at.timestamp() * 1000) if at else 0
