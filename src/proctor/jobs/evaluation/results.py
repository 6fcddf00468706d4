"""Results of an evaluation as records: one `gen_ai.evaluation.result` event for each judged target.

The shape that readers of the service's log streams know, so that they read ours unchanged; what it has no
key for stands under `proctor.…`. Records are made from the rows of the job each time they are asked for.

Knows nothing of HTTP or of how sessions are judged.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from markupsafe import Markup

from proctor.jobs.evaluation.state import EvaluationState, evaluation_of
from proctor.report.charts import Bar, bars, stacked
from proctor.report.render import page, text
from proctor.stats.evaluation import (
    EvaluationResults,
    EvaluatorResult,
    JudgedTarget,
    failed_targets,
    results_of,
    worst_targets,
)
from proctor.store import Store
from proctor.store.database import places

PAGE = 200


RECORDS, SUMMARY = "records.jsonl", "summary.json"


LEVELS = {"session": "Session", "trace": "Trace", "tool_call": "Span"}


BUILT_IN = "arn:aws:bedrock-agentcore:::evaluator/"


SHOWN = ("description", "dataSourceConfig", "kmsKeyArn", "insights", "judge", "votes", "groundTruth", "tags")
"""What of a request is shown with the job."""


Row = dict[str, Any]


def records_of(store: Store, run_id: str, *, first: int = 0, limit: int | None = None) -> Iterator[Row]:
    """The records of a job, in the order of its items, in little memory.

    `first` and `limit` count items, each of which has the records of one session and one evaluator.
    """
    job = store.evaluations.row(run_id, with_deleted=True)
    position = first
    while limit is None or position < first + limit:
        size = PAGE if limit is None else min(PAGE, first + limit - position)
        page = _page(store, job, position, size)
        if page is None:
            return
        yield from page
        position += size


def evaluator_arn(job_arn: str, asked_as: str) -> str:
    """The ARN of an evaluator as results name it: a built-in one's has neither region nor account."""
    if asked_as.startswith(("Builtin.", "ThirdParty.")):
        return BUILT_IN + asked_as
    return f"{job_arn.partition(':batch-evaluate/')[0]}:evaluator/{asked_as}"


def summary_document(results: EvaluationResults) -> Row:
    """What a job came to, as JSON: the members of the interface, and what else we know beside them."""
    return {
        "numberOfSessionsCompleted": results.completed,
        "numberOfSessionsInProgress": results.in_progress,
        "numberOfSessionsFailed": results.failed,
        "totalNumberOfSessions": results.total,
        "numberOfSessionsIgnored": results.ignored,
        "evaluatorSummaries": [evaluator_summary(result) for result in results.summaries],
        "tokensTotal": results.tokens,
        "costUsd": results.cost_usd,
        "remarks": list(results.remarks),
    }


def evaluation_document(evaluation: EvaluationState, results: EvaluationResults | None) -> Row:
    """A job as JSON: the members of the interface's Get operation, and our own beside them."""
    asked = dict(evaluation.document)
    place = {"logGroupName": evaluation.output_group, "logStreamName": evaluation.output_stream}
    return {
        "batchEvaluationId": evaluation.id,
        "batchEvaluationArn": evaluation.arn,
        "batchEvaluationName": evaluation.name,
        "status": evaluation.state,
        "createdAt": evaluation.created_at.isoformat(),
        "updatedAt": evaluation.updated_at.isoformat(),
        "evaluators": [{"evaluatorId": name} for name in evaluation.evaluators],
        "outputConfig": {"cloudWatchConfig": place},
        "errorDetails": list(evaluation.error_details),
        **({} if results is None else {"evaluationResults": summary_document(results)}),
        **{name: value for name, value in asked.items() if name in SHOWN},
    }


def evaluator_summary(result: EvaluatorResult) -> Row:
    """One evaluator's part of a summary."""
    named = {"evaluationDimensionName": result.dimension} if result.dimension else {}
    has_value = result.average.value is not None
    return {
        "evaluatorId": result.asked_as,
        **named,
        "statistics": {"averageScore": result.average.value} if has_value else {},
        "totalEvaluated": result.evaluated,
        "totalFailed": result.failed,
        "evaluatorName": result.evaluator,
        "digest": result.digest,
        "level": result.level,
        "interval": asdict(result.average),
        "averageIfFailuresWereZero": result.if_failures_were_zero,
        "sessions": result.sessions,
        "labels": dict(result.labels),
        "judgeStandardDeviation": result.wavering,
        "tokenUsage": {
            "inputTokens": result.input_tokens,
            "outputTokens": result.output_tokens,
            "totalTokens": result.input_tokens + result.output_tokens,
        },
        "costUsd": result.cost_usd,
    }


def write_results(store: Store, run_id: str, results: EvaluationResults, folder: Path) -> list[Path]:
    """Write the records and the summary of a job below `folder`; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    records, summary = folder / RECORDS, folder / SUMMARY
    with records.open("w", encoding="utf-8") as file:
        for record in records_of(store, run_id):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    document = {"batchEvaluationId": run_id, **summary_document(results)}
    summary.write_text(json.dumps(document, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return [records, summary]


def _page(store: Store, job: Mapping[str, Any], position: int, size: int) -> list[Row] | None:
    """The records of some items; None: there are no items so far on."""
    read = store.read
    items = read.query(
        'SELECT "id", "sessionId", "details", "settings", "factors" FROM "batch_items" '
        'WHERE "runId" = ? AND "position" >= ? AND "position" < ? ORDER BY "position"',
        (job["id"], position, position + size),
    )
    if not items:
        (further,) = read.query(
            'SELECT COUNT(*) AS "n" FROM "batch_items" WHERE "runId" = ? AND "position" >= ?',
            (job["id"], position),
        )
        return [] if further["n"] else None
    begun = {item["sessionId"]: item for item in items if item["sessionId"]}
    marks = places(begun)
    scores = read.query(
        f'SELECT * FROM "scores" WHERE "sessionId" IN ({marks}) ORDER BY "sessionId", "position"',
        tuple(begun),
    )
    by_attempt: dict[str, list[Row]] = {}
    for score in read.whole(scores):
        by_attempt.setdefault(score["sessionId"], []).append(score)
    judged = _judged(store, sorted({score["judgedSessionId"] for score in scores}))
    calls = _calls(store, [score for score in scores if score["level"] == "tool_call"])
    return [
        _record(job, item, score, judged.get(score["judgedSessionId"], {}), calls)
        for attempt, item in begun.items()
        for score in by_attempt.get(attempt, ())
    ]


def _judged(store: Store, ids: Sequence[str]) -> dict[str, Row]:
    marks = places(ids)
    rows = store.read.query(
        f'SELECT "id", "externalId", "service" FROM "sessions" WHERE "id" IN ({marks})', tuple(ids)
    )
    return {row["id"]: row for row in rows}


def _calls(store: Store, scores: Sequence[Row]) -> dict[tuple[str, str], Row]:
    """The name and the trace of each tool call that was judged, by its session and id."""
    ids = sorted({score["judgedSessionId"] for score in scores})
    marks = places(ids)
    rows = store.read.query(
        'SELECT c."sessionId", c."callId", c."position", c."toolName", t."traceId" FROM "tool_calls" c '
        'LEFT JOIN "iterations" t ON t."sessionId" = c."sessionId" AND t."step" = c."step" '
        f'WHERE c."sessionId" IN ({marks})',
        tuple(ids),
    )
    return {(row["sessionId"], row["callId"] or f"call-{row['position']}"): row for row in rows}


def _record(
    job: Mapping[str, Any],
    item: Mapping[str, Any],
    score: Mapping[str, Any],
    judged: Mapping[str, Any],
    calls: Mapping[tuple[str, str], Row],
) -> Row:
    settings, factors = json.loads(item["settings"]), json.loads(item["factors"])
    details = json.loads(item["details"])
    call = calls.get((score["judgedSessionId"], score["target"]), {})
    trace = call.get("traceId") if call else score["target"]
    service = judged.get("service") or factors.get("service", "")
    attributes = {
        "gen_ai.evaluation.name": score["evaluator"],
        # A session that was deleted since is still known by its name.
        "session.id": judged.get("externalId") or details.get("session") or score["judgedSessionId"],
        "gen_ai.response.id": trace,
        **_verdict(score),
        "gen_ai.tool.name": call.get("toolName"),
        "aws.bedrock_agentcore.evaluation_level": LEVELS[score["level"]],
        "aws.bedrock_agentcore.evaluator.arn": evaluator_arn(job["arn"], settings["evaluator"]),
        "aws.bedrock_agentcore.evaluator.rating_scale": _scale(score),
        "aws.bedrock_agentcore.evaluation_job.arn": job["arn"],
        "aws.bedrock_agentcore.evaluation_dimension.name": score["dimension"],
        "gen_ai.usage.input_tokens": score["inputTokens"] or None,
        "gen_ai.usage.output_tokens": score["outputTokens"] or None,
        "proctor.cost_usd": score["costUsd"],
        "proctor.evaluator.digest": score["evaluatorDigest"],
        "proctor.session.id": score["judgedSessionId"],
        "proctor.item.id": item["id"],
        "proctor.test_scenario.id": factors.get("scenario"),
        "proctor.ignored_reference_inputs": json.loads(score["ignored"] or "[]") or None,
    }
    nanoseconds = _nanoseconds(score["timestamp"])
    record = {
        "name": "gen_ai.evaluation.result",
        "traceId": trace,
        "spanId": score["target"] if score["level"] == "tool_call" else None,
        "timeUnixNano": nanoseconds,
        "observedTimeUnixNano": nanoseconds,
        "severityNumber": 17 if score["error"] else 9,
        "service.name": service,
        "resource": {"attributes": {"service.name": service, "aws.service.type": "gen_ai_agent"}},
        "attributes": _without_nothing(attributes),
    }
    return _without_nothing(record)


def _verdict(score: Mapping[str, Any]) -> Row:
    if score["error"]:
        code = score["errorCode"] or "InternalServerException"
        throttled = code == "ThrottlingException"
        return {
            "error.type": code,
            "error.message": score["error"],
            "error": int(not throttled),
            "throttle": int(throttled),
        }
    return {
        "gen_ai.evaluation.score.value": score["value"],
        "gen_ai.evaluation.score.label": score["label"],
        "gen_ai.evaluation.explanation": score["explanation"],
    }


def _scale(score: Mapping[str, Any]) -> str | None:
    if score["error"]:
        return None
    return "Categorical" if score["value"] is None else "Numerical"


def _without_nothing(values: Mapping[str, Any]) -> Row:
    return {name: value for name, value in values.items() if value is not None and value != ""}


def _nanoseconds(stamp: str) -> int:
    moment = datetime.fromisoformat(stamp)
    # Through microseconds: a float of seconds would lose the last digits.
    return (int(moment.timestamp()) * 1_000_000 + moment.microsecond) * 1000


# What an evaluation job came to, as a page: averages, labels, and what gives most reason to look.


DRAWN_LABELS = 8


KINDS = ("main", "timeout", "error", "running", "queued")
"""Colours for labels, the commonest first. None of them means good or bad, as green and red would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """All that a page about a job tells."""

    evaluation: EvaluationState
    results: EvaluationResults
    worst: Sequence[Sequence[JudgedTarget]] = field(default=())
    """Of each evaluator, in the order of the results, what gives most reason to look."""
    failed: Sequence[Sequence[JudgedTarget]] = field(default=())
    """Of each evaluator, what could not be judged."""

    @property
    def parts(self) -> list[tuple[EvaluatorResult, Sequence[JudgedTarget], Sequence[JudgedTarget]]]:
        """Each evaluator with its worst and its failed results."""
        return list(zip(self.results.summaries, self.worst, self.failed, strict=True))


def evaluation_report(store: Store, run_id: str, format_: str, now: datetime) -> str:
    """The report of an evaluation, as `md` or `html`."""
    results = results_of(store, run_id)
    report = EvaluationReport(
        evaluation=evaluation_of(store, run_id, now, with_deleted=True),
        results=results,
        worst=[worst_targets(store.read, run_id, each) for each in results.summaries],
        failed=[failed_targets(store.read, run_id, each) for each in results.summaries],
    )
    return evaluation_html(report) if format_ == "html" else evaluation_markdown(report)


def evaluation_html(found: EvaluationReport) -> str:
    """The page as one HTML file that needs nothing else."""
    # A count of words beside shares would leave nothing to be seen of the shares.
    shares = [result for result in found.results.summaries if is_share(result)]
    others = [result for result in found.results.summaries if not is_share(result)]
    plots = {"averages": Markup(averages_chart(shares)), "others": Markup(averages_chart(others))}
    labelled = [result for result in found.results.summaries if result.labels]
    labels = {name_of(result): Markup(labels_chart(result)) for result in labelled}
    return page("evaluation.html.j2", page=found, plots=plots, labels=labels, **_WORDS)


def evaluation_markdown(found: EvaluationReport) -> str:
    """The page as Markdown."""
    return text("evaluation.md.j2", page=found, **_WORDS)


def name_of(result: EvaluatorResult) -> str:
    """What a result is called: its evaluator, the dimension, and of several versions which."""
    return result.title


def is_share(result: EvaluatorResult) -> bool:
    """Whether an average lies between 0 and 1, as those of labels do."""
    return result.average.value is None or 0.0 <= result.average.value <= 1.0


def figure(value: float | None) -> str:
    """A score with the digits that matter."""
    return "–" if value is None else f"{value:.3f}"


def around(result: EvaluatorResult) -> str:
    """An interval in words."""
    average = result.average
    if average.low is None or average.high is None:
        return "too few to say" if average.value is not None else "–"
    return f"{average.low:.3f} to {average.high:.3f}"


_WORDS: Mapping[str, object] = {"name_of": name_of, "figure": figure, "around": around}


def averages_chart(results: Sequence[EvaluatorResult]) -> str:
    """The average of each evaluator with its interval, as a plot; nothing where there is none."""
    entries = [
        Bar(
            label=name_of(result).removeprefix("Builtin.").rpartition(":")[2],
            value=result.average.value,
            low=result.average.low,
            high=result.average.high,
            note=f"{figure(result.average.value)} · n {result.average.n}",
        )
        for result in results
        if result.average.value is not None
    ]
    if not entries:
        return ""
    tops = [end for entry in entries for end in (entry.value, entry.high) if end is not None]
    top = 1.0 if tops and max(tops) <= 1.0 else None
    return bars("Average of each evaluator, with 95 % intervals", entries, top=top, say=figure)


def labels_chart(result: EvaluatorResult) -> str:
    """How often an evaluator gave each label, as a plot."""
    counted = list(result.labels.items())
    shown, rest = counted[:DRAWN_LABELS], sum(number for _, number in counted[DRAWN_LABELS:])
    parts = [*shown, *([("other", rest)] if rest else [])]
    entries = [
        Bar(label=label, value=number, kind=KINDS[place % len(KINDS)])
        for place, (label, number) in enumerate(parts)
    ]
    return stacked(f"Labels of {name_of(result)}", entries)
