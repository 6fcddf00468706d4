"""Results of an evaluation: figures and remarks, records, JSON documents, and the report.

A record is one `gen_ai.evaluation.result` event per evaluated target, in the shape that readers of the
service's log streams know; members that have no key there are under `proctor.…`. Nothing here is stored:
everything is computed from the rows of the evaluation. The functions that draw or render load what does.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from itertools import count

from proctor.document import (
    Cell,
    Chart,
    Column,
    Details,
    Document,
    Fact,
    Figure,
    Section,
    Sentence,
    Table,
    numeric,
    prose,
    table,
)
from proctor.evaluators.model_judge import FIELDS
from proctor.evaluators.pairwise import PAIRWISE
from proctor.formatting import UNKNOWN, one_line, plural, short, usd, whole
from proctor.jobs.evaluation.evaluator_results import (
    EvaluationResults,
    EvaluatorResult,
    JudgedTarget,
    Key,
    StoredCalibration,
    evaluator_results,
    high_is_bad,
)
from proctor.jobs.evaluation.insights import Insight, InsightFinding, findings_of, insights_of
from proctor.jobs.evaluation.labeled_scores import label_pairs, people_labels
from proctor.jobs.evaluation.pairs import PairwiseResult, pairwise_result, pairwise_sections
from proctor.jobs.evaluation.panels import Panel, panels_of
from proctor.jobs.evaluation.state import EvaluationState
from proctor.json_values import JsonMap, JsonObject, as_number, camel_document, without_empty
from proctor.stats.calibration import CalibrationPair
from proctor.stats.intervals import Estimate
from proctor.store import Store, StoreReader
from proctor.store.annotations import newest_calibration
from proctor.store.evaluations import ListedEvaluation
from proctor.store.items import mock_models
from proctor.store.scores import (
    EvaluatedCall,
    EvaluatedSession,
    EvaluationItem,
    evaluated_calls,
    evaluated_sessions,
    first_items,
    ignored_references,
    insight_rows,
    items_page,
    judged_sessions,
    label_counts,
    result_header,
    result_targets,
    score_ballots,
    score_sums,
    score_votes,
    scores_of_attempts,
    session_counts,
    session_totals,
)
from proctor.store.tables import ScoreRow

PAGE = 200
MOST_NAMED = 4
"""Evaluators that a remark names."""
SHOWN_TARGETS, SHOWN_EQUAL = 10, 3
"""Results listed per evaluator: the worst, and those of an evaluator whose results are all equal."""
SHOWN_EVALUATORS, LONGEST_EXPLANATION = 8, 300
"""On the page of a run: evaluators with a list of their worst results, and letters of an explanation."""
LEVELS = {"session": "Session", "trace": "Trace", "tool_call": "Span"}
BUILT_IN = "arn:aws:bedrock-agentcore:::evaluator/"
SHOWN = (
    *("description", "dataSourceConfig", "pairwise", "kmsKeyArn", "insights"),
    *("judge", "votes", "groundTruth", "tags"),
)
"""Members of a request that are part of the document."""


def results_of(store: Store, run_id: str, *, has_key: bool = True) -> EvaluationResults:
    """The results of an evaluation so far; without the key of its texts, only counts and cost."""
    read = store.read
    sessions, totals = session_counts(read, run_id), read.totals(run_id)
    counts = EvaluationResults(
        run_id=run_id,
        completed=sessions["completed"],
        in_progress=sessions["in_progress"],
        failed=sessions["failed"],
        ignored=0,
        summaries=(),
        tokens=totals["tokens"],
        cost_usd=totals["costUsd"],
    )
    if not has_key:
        return counts
    header = result_header(read, run_id)
    summaries = evaluator_results(
        score_sums(read, run_id),
        first_items(read, run_id),
        label_counts(read, run_id),
        score_votes(read, run_id),
        session_totals(read, run_id),
        inverted=high_is_bad(json.loads(header["requestJson"])),
        definitions=json.loads(header["definitionsJson"]),
        calibrations=lambda key: _calibration(read, run_id, key),
    )
    summaries = _with_panels(read, run_id, summaries, json.loads(header["definitionsJson"]))
    remarks = tuple(_remarks(read, run_id, summaries))
    return replace(counts, ignored=header["sessionsIgnored"], summaries=summaries, remarks=remarks)


def _with_panels(
    read: StoreReader,
    run_id: str,
    summaries: tuple[EvaluatorResult, ...],
    definitions: Mapping[str, JsonMap],
) -> tuple[EvaluatorResult, ...]:
    """The results with what each of several judges said and cost."""
    rows = score_ballots(read, run_id)
    if not rows:
        return summaries
    keys = {(row["evaluator"], row["evaluatorDigest"], row["dimension"]) for row in rows}
    named = {
        summary.evaluator: definitions.get(summary.requested_as) or definitions.get(summary.evaluator) or {}
        for summary in summaries
    }
    panels = panels_of(rows, {key: people_labels(read, *key) for key in keys}, named)
    return tuple(
        replace(summary, panel=panels.get((summary.evaluator, summary.digest, summary.dimension)))
        for summary in summaries
    )


def _calibration(read: StoreReader, run_id: str, key: Key) -> StoredCalibration | None:
    """The newest calibration of a version of an evaluator, or its labels if there are more; None: neither."""
    row = newest_calibration(read, *key)
    document = json.loads(row["documentJson"]) if row else {"pairs": [], "scale": None}
    pairs = [
        CalibrationPair(session=name, human=human, judge=judge) for name, human, judge in document["pairs"]
    ]
    # Labels count at once, without judging again.
    if len(labeled := label_pairs(read, *key)) > len(pairs):
        pairs = labeled
    if row is None and not pairs:
        return None
    return StoredCalibration(
        pairs=pairs,
        scale=tuple(document["scale"]) if document["scale"] else None,
        evaluated=judged_sessions(read, run_id, [pair.session for pair in pairs]) if pairs else (),
        noise_variance=as_number(document, "results", "noiseVariance"),
    )


def _remarks(read: StoreReader, run_id: str, summaries: Sequence[EvaluatorResult]) -> Iterator[str]:
    """Remarks on the results: errors, missing sessions, unused ground truth."""
    digests: dict[str, set[str]] = defaultdict(set)
    for result in summaries:
        digests[result.evaluator].add(result.digest)
    for name, versions in digests.items():
        if len(versions) > 1:
            yield f"{name}: results of {len(versions)} versions, which are not comparable; listed separately"
    if mocks := mock_models(read, run_id):
        are = "is a mock model" if len(mocks) == 1 else "are mock models"
        yield f"{', '.join(mocks)} {are}; these scores say nothing about real judges"
    for result in summaries:
        if result.is_noise:
            yield (
                f"{result.title}: judge noise exceeds the variation between sessions; "
                "the CI reflects judge noise"
            )
    yield from _unused_ground_truth(ignored_references(read, run_id))


def _unused_ground_truth(ignored: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    by_member: dict[str, list[str]] = defaultdict(list)
    for evaluator, members in ignored:
        for member in members:
            if evaluator not in by_member[member]:
                by_member[member].append(evaluator)
    if by_member:
        evaluators = {evaluator for evaluator, _ in ignored}
        parts = [
            f"{member} by {'any evaluator' if len(names) == len(evaluators) else _shortened(names)}"
            for member, names in sorted(by_member.items())
        ]
        yield f"Unused ground truth: {'; '.join(parts)}"


def _shortened(names: list[str]) -> str:
    further = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {further} more" if further > 0 else "")


def worst_targets(read: StoreReader, run_id: str, result: EvaluatorResult) -> list[JudgedTarget]:
    """The worst results of an evaluator, with their explanations.

    The best value is not among them, unless all results are equal: then a few stand for all.
    """
    worst, best = ("highest", "lowest") if result.high_is_bad else ("lowest", "highest")
    targets = _targets(read, run_id, result, worst, SHOWN_TARGETS)
    best_value = [each.value for each in _targets(read, run_id, result, best, 1)]
    return [each for each in targets if each.value not in best_value] or targets[:SHOWN_EQUAL]


def failed_targets(read: StoreReader, run_id: str, result: EvaluatorResult) -> list[JudgedTarget]:
    """Failed results of an evaluator, with their errors."""
    return _targets(read, run_id, result, "failed", SHOWN_TARGETS)


def _targets(
    read: StoreReader, run_id: str, result: EvaluatorResult, which: str, limit: int
) -> list[JudgedTarget]:
    key = (result.evaluator, result.digest, result.dimension)
    return [
        JudgedTarget(
            # A session that was deleted since is still known by its external id.
            session=row["externalId"] or json.loads(row["details"]).get("session") or row["scoredSessionId"],
            session_id=row["scoredSessionId"],
            target=row["target"],
            value=row["value"],
            label=row["label"],
            explanation=row["explanation"],
            error=row["error"],
        )
        for row in result_targets(read, run_id, which, key, limit=limit)
    ]


def results_view(store: Store, run_id: str) -> Document:
    """The averages of the evaluators, the worst first, and the worst results of each."""
    # Late: it loads numpy.
    from proctor.report.result_sections import mean_chart

    results = results_of(store, run_id)
    summaries = sorted(results.summaries, key=_worst_first)
    sections: list[Section]
    if not summaries:
        return Document(remarks=results.remarks)
    if pairwise := pairwise_of(store.read, results):
        return Document(sections=list(pairwise_sections(pairwise)), remarks=results.remarks)
    sections = [_averages_table(summaries)]
    known = [_average_figure(one) for one in summaries if one.average.value is not None]
    if len(known) > 1:
        sections.append(mean_chart("Averages with 95% CIs", "score", known))
    sections += _panel_sections(summaries)
    for summary in summaries[:SHOWN_EVALUATORS]:
        if targets := worst_targets(store.read, run_id, summary):
            sections.append(_worst_table(summary, targets))
    return Document(sections=sections, remarks=results.remarks)


def _worst_first(result: EvaluatorResult) -> tuple[bool, float]:
    value = result.average.value
    return value is None, (0.0 if value is None else -value if result.high_is_bad else value)


def _average_figure(result: EvaluatorResult) -> Figure:
    from proctor.report.run_charts import estimate_figure

    return estimate_figure(
        result.title,
        result.average,
        figure,
        items={"factor": [f"evaluator={result.requested_as}"]},
        unit="session",
    )


def _averages_table(summaries: Sequence[EvaluatorResult]) -> Table:
    ends = [end for one in summaries for end in (one.average.low, one.average.high) if end is not None]
    limits = (0.0, 1.0) if all(0 <= end <= 1 for end in ends) else None
    rows = [
        (
            Cell(
                text=summary.title, figure=replace(_average_figure(summary), value=None, low=None, high=None)
            ),
            Cell(
                text=_average_text(summary.average),
                figure=_average_figure(summary) if summary.average.value is not None else None,
            ),
            "lower" if summary.high_is_bad else "higher",
            whole(summary.evaluated),
            whole(summary.failed) if summary.failed else UNKNOWN,
        )
        for summary in summaries
    ]
    average = Column(title="Average", is_numeric=True, limits=limits)
    return table(
        ["Evaluator", average, "Better is", *numeric("Results", "Failed")],
        rows,
        "Scores by evaluator, lowest first",
        "Averages with 95% CIs, clustered by session.",
    )


def _average_text(estimate: Estimate) -> str:
    if estimate.value is None:
        return "labels only" if estimate.n else UNKNOWN
    limits = f" ({figure(estimate.low)} to {figure(estimate.high)})" if estimate.low is not None else ""
    return f"{figure(estimate.value)}{limits}"


def _worst_table(
    result: EvaluatorResult, targets: Sequence[JudgedTarget], title: str = "", unit: str = ""
) -> Table:
    """`unit`: the title of the column with the evaluated turns or calls; empty: no such column."""
    rows = [
        (
            Cell(text=str(target.session), session=target.session_id or ""),
            *([one_line(target.target, 20)] if unit else []),
            figure(target.value),
            target.label or UNKNOWN,
            one_line(target.explanation or target.error, LONGEST_EXPLANATION),
        )
        for target in targets
    ]
    columns: list[Column | str] = [
        "Session",
        *([unit] if unit else []),
        *numeric("Score"),
        "Label",
        prose("Explanation"),
    ]
    return table(columns, rows, title or f"{'Highest' if result.high_is_bad else 'Lowest'} {result.title}")


def insight_findings(read: StoreReader, run_id: str, insight: str) -> list[InsightFinding]:
    """The findings of an insight in the sessions of an evaluation."""
    return findings_of(insight_rows(read, run_id, insight))


def all_insights(store: Store, results: EvaluationResults) -> list[Insight]:
    """The findings of all insights of an evaluation, clustered, in the order of the request."""
    names = dict.fromkeys(each.requested_as for each in results.summaries if each.requested_as in FIELDS)
    return insights_of({name: insight_findings(store.read, results.run_id, name) for name in names})


def records_of(store: Store, run_id: str) -> Iterator[JsonObject]:
    """The records of an evaluation, in the order of its items, loaded page by page."""
    job = store.evaluations.row(run_id, with_deleted=True)
    for position in count(0, PAGE):
        page = _page(store, job, position)
        if page is None:
            return
        yield from page


def evaluator_arn(job_arn: str, requested_as: str) -> str:
    """The ARN of an evaluator as results name it: a built-in one's has neither region nor account."""
    if requested_as.startswith(("Builtin.", "ThirdParty.")):
        return BUILT_IN + requested_as
    return f"{job_arn.partition(':batch-evaluate/')[0]}:evaluator/{requested_as}"


def summary_document(results: EvaluationResults) -> JsonObject:
    """The results of an evaluation as JSON: members of the AWS interface, and our own."""
    return {
        "numberOfSessionsCompleted": results.completed,
        "numberOfSessionsInProgress": results.in_progress,
        "numberOfSessionsFailed": results.failed,
        "totalNumberOfSessions": results.total,
        "numberOfSessionsIgnored": results.ignored,
        "evaluatorSummaries": [evaluator_summary(result) for result in results.summaries],
        "tokensTotal": results.tokens,
        "costUsd": results.cost_usd,
        "notes": list(results.remarks),
        # Deprecated, like all names in `proctor.api.deprecated`.
        "remarks": list(results.remarks),
    }


def pairwise_of(read: StoreReader, results: EvaluationResults) -> PairwiseResult | None:
    """The ranking of a pairwise evaluation so far; None: another evaluation, or no results yet."""
    is_pairwise = any(each.evaluator == PAIRWISE for each in results.summaries)
    return pairwise_result(read, results.run_id) if is_pairwise else None


def pairwise_members(result: PairwiseResult | None) -> JsonObject:
    """The result of a pairwise evaluation as a member of JSON documents; empty for others."""
    return {"pairwiseResults": camel_document(result)} if result else {}


def evaluation_document(
    evaluation: EvaluationState,
    results: EvaluationResults | None,
    insights: Sequence[Insight] = (),
    pairwise: PairwiseResult | None = None,
) -> JsonObject:
    """An evaluation as JSON: members of the AWS Get operation, and our own."""
    document = dict(evaluation.document)
    location = {"logGroupName": evaluation.output_group, "logStreamName": evaluation.output_stream}
    return {
        "batchEvaluationId": evaluation.id,
        "batchEvaluationArn": evaluation.arn,
        "batchEvaluationName": evaluation.name,
        "status": evaluation.state,
        "createdAt": evaluation.created_at.isoformat(),
        "updatedAt": evaluation.updated_at.isoformat(),
        "evaluators": [{"evaluatorId": name} for name in evaluation.evaluators],
        "outputConfig": {"cloudWatchConfig": location},
        "errorDetails": list(evaluation.error_details),
        **({} if results is None else {"evaluationResults": summary_document(results)}),
        **{name: value for name, value in document.items() if name in SHOWN},
        **pairwise_members(pairwise),
        **({"insightsFound": [asdict(each) for each in insights]} if insights else {}),
    }


def evaluator_summary(result: EvaluatorResult) -> JsonObject:
    """One evaluator's part of a summary."""
    named = {"evaluationDimensionName": result.dimension} if result.dimension else {}
    has_value = result.average.value is not None
    return {
        "evaluatorId": result.requested_as,
        **named,
        "statistics": {"averageScore": result.average.value} if has_value else {},
        "totalEvaluated": result.evaluated,
        "totalFailed": result.failed,
        "evaluatorName": result.evaluator,
        "digest": result.digest,
        "level": result.level,
        "interval": asdict(result.average),
        "corrected": asdict(result.corrected) if result.corrected else None,
        "averageIfFailuresWereZero": result.if_failures_were_zero,
        "sessions": result.sessions,
        "labels": dict(result.labels),
        "judgeStandardDeviation": result.judge_standard_deviation,
        "judgeStandardDeviationFrom": result.noise_from,
        "tokenUsage": {
            "inputTokens": result.input_tokens,
            "outputTokens": result.output_tokens,
            "totalTokens": result.input_tokens + result.output_tokens,
        },
        "costUsd": result.cost_usd,
        **({"panel": camel_document(result.panel)} if result.panel else {}),
    }


def _page(store: Store, job: ListedEvaluation, position: int) -> list[JsonObject] | None:
    """The records of a page of items; None: no more items."""
    read = store.read
    items = items_page(read, job["id"], position, PAGE)
    if not items:
        return None if items is None else []
    started = {item["sessionId"]: item for item in items if item["sessionId"]}
    scores = scores_of_attempts(read, list(started))
    by_attempt: dict[str, list[ScoreRow]] = {}
    for score in scores:
        by_attempt.setdefault(score["sessionId"], []).append(score)
    sessions = evaluated_sessions(read, sorted({score["scoredSessionId"] for score in scores}))
    on_calls = {score["scoredSessionId"] for score in scores if score["level"] == "tool_call"}
    calls = evaluated_calls(read, sorted(on_calls))
    return [
        _record(job, item, score, sessions.get(score["scoredSessionId"]), calls)
        for attempt, item in started.items()
        for score in by_attempt.get(attempt, ())
    ]


def _record(
    job: ListedEvaluation,
    item: EvaluationItem,
    score: ScoreRow,
    session: EvaluatedSession | None,
    calls: Mapping[tuple[str, str], EvaluatedCall],
) -> JsonObject:
    settings, factors = json.loads(item["settings"]), json.loads(item["factors"])
    details = json.loads(item["details"])
    call = calls.get((score["scoredSessionId"], score["target"]))
    trace = call["traceId"] if call else score["target"]
    external_id = session["externalId"] if session else ""
    service = (session["service"] if session else "") or factors.get("service", "")
    attributes = {
        "gen_ai.evaluation.name": score["evaluator"],
        # A session that was deleted since is still known by its name.
        "session.id": external_id or details.get("session") or score["scoredSessionId"],
        "gen_ai.response.id": trace,
        **_verdict(score),
        "gen_ai.tool.name": call["toolName"] if call else None,
        "aws.bedrock_agentcore.evaluation_level": LEVELS[score["level"]],
        "aws.bedrock_agentcore.evaluator.arn": evaluator_arn(job["arn"], settings["evaluator"]),
        "aws.bedrock_agentcore.evaluator.rating_scale": _scale(score),
        "aws.bedrock_agentcore.evaluation_job.arn": job["arn"],
        "aws.bedrock_agentcore.evaluation_dimension.name": score["dimension"],
        "gen_ai.usage.input_tokens": score["inputTokens"] or None,
        "gen_ai.usage.output_tokens": score["outputTokens"] or None,
        "proctor.cost_usd": score["costUsd"],
        "proctor.evaluator.digest": score["evaluatorDigest"],
        "proctor.session.id": score["scoredSessionId"],
        "proctor.item.id": item["id"],
        "proctor.test_scenario.id": factors.get("scenario"),
        "proctor.ignored_reference_inputs": json.loads(score["ignored"] or "[]") or None,
    }
    nanoseconds = _nanoseconds(score["timestamp"] or "")
    record = {
        "name": "gen_ai.evaluation.result",
        "traceId": trace,
        "spanId": score["target"] if score["level"] == "tool_call" else None,
        "timeUnixNano": nanoseconds,
        "observedTimeUnixNano": nanoseconds,
        "severityNumber": 17 if score["error"] else 9,
        "service.name": service,
        "resource": {"attributes": {"service.name": service, "aws.service.type": "gen_ai_agent"}},
        "attributes": without_empty(attributes),
    }
    return without_empty(record)


def _verdict(score: ScoreRow) -> JsonObject:
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


def _scale(score: ScoreRow) -> str | None:
    if score["error"]:
        return None
    return "Categorical" if score["value"] is None else "Numerical"


def _nanoseconds(stamp: str | None) -> int | None:
    if stamp is None:
        return None
    moment = datetime.fromisoformat(stamp)
    # Through microseconds: a float of seconds would lose the last digits.
    return (int(moment.timestamp()) * 1_000_000 + moment.microsecond) * 1000


DRAWN_LABELS = 8
KINDS = ("main", "timeout", "error", "running", "queued")
"""Neutral colors for labels, most frequent first: green and red would suggest good and bad."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationReport:
    """Contents of the report of an evaluation."""

    evaluation: EvaluationState
    results: EvaluationResults
    insights: Sequence[Insight] = ()
    worst: Sequence[Sequence[JudgedTarget]] = field(default=())
    """The worst results of each evaluator, in the order of the results."""
    failed: Sequence[Sequence[JudgedTarget]] = field(default=())
    """Failed results of each evaluator."""
    pairwise: PairwiseResult | None = None
    """Who won, of an evaluation that compares pairs."""


def load_report(
    store: Store, evaluation: EvaluationState, known: EvaluationResults | None = None, *, with_targets: bool
) -> EvaluationReport:
    """The report of an evaluation; `known` are its results, if they were loaded before. Not `with_targets`:
    without the worst and the failed results."""
    results = known or results_of(store, evaluation.id)
    targets = [
        (
            worst_targets(store.read, evaluation.id, summary),
            failed_targets(store.read, evaluation.id, summary),
        )
        if with_targets
        else ([], [])
        for summary in results.summaries
    ]
    return EvaluationReport(
        evaluation=evaluation,
        results=results,
        insights=all_insights(store, results),
        worst=[worst for worst, _ in targets],
        failed=[failed for _, failed in targets],
        pairwise=pairwise_of(store.read, results),
    )


def report_document(report: EvaluationReport) -> Document:
    """The report as a document: averages and insights, then each evaluator with its worst and failed results.

    The terminal shows the same without charts and without the part of each evaluator.
    """
    job, results = report.evaluation, report.results
    # Counts and shares need separate plots: their scales differ.
    shares = [result for result in results.summaries if is_share(result)]
    others = [result for result in results.summaries if not is_share(result)]
    unfinished = plural(results.in_progress, "session")
    left = f"{unfinished} {'not evaluated' if job.is_finished else 'still in progress'}: not final"
    titled = [
        ("Average over results, with 95% CI clustered by session", averages_chart(shares)),
        ("Averages of evaluators whose values fall outside 0 to 1", averages_chart(others)),
    ]
    scope, description = scopes(results), str(job.document.get("description") or "")
    corrected = [f"{each.title}: {each.correction}" for each in results.summaries if each.correction]
    parts = zip(results.summaries, report.worst, report.failed, strict=True)
    return Document(
        title=f"Evaluation: {job.name}",
        subtitle=f"{job.id} · {job.state} · {job.created_at:%Y-%m-%d %H:%M} UTC",
        warnings=[*results.remarks, *job.error_details, *([left] if results.in_progress else [])],
        facts=_facts(results, "pairs of sessions" if report.pairwise else "sessions"),
        sections=[
            *([Sentence(text=description)] if description else []),
            *pairwise_sections(report.pairwise),
            *(Chart(title=title, svg=svg) for title, svg in titled if svg),
            _evaluators_table(results.summaries),
            *_panel_sections(results.summaries),
            *(Sentence(text=text) for text in (*corrected, scope) if text),
            _insights_table(report.insights),
            *(_details(*part) for part in parts),
        ],
        method="Averages are over results. CIs are clustered by session: Student's t, or Wilson for one "
        "yes/no result per session. They include judge noise. With more than one vote, no CI is narrower "
        "than the measured judge noise.",
    )


def _facts(results: EvaluationResults, targets: str) -> list[Fact]:
    older = f"; {results.ignored:,} older sessions skipped" if results.ignored else ""
    partially = Fact(whole(results.failed), "partially evaluated (averages exclude failed results)")
    cost = Fact(usd(results.cost_usd), f"evaluation cost, {short(results.tokens)} tokens")
    return [
        Fact(whole(results.total), f"{targets}{older}"),
        Fact(whole(results.completed), "fully evaluated"),
        *([partially] if results.failed else []),
        *([cost] if results.cost_usd is not None or results.tokens else []),
    ]


def _evaluators_table(summaries: Sequence[EvaluatorResult]) -> Table:
    columns: list[Column | str] = [
        "Evaluator",
        "Level",
        *numeric("Average", "95% CI", "Results", "Failed"),
        Column(title="If failures score 0", is_numeric=True, is_optional=True),
        "Labels",
        Column(title="Tokens", is_numeric=True, is_optional=True),
        *numeric("Cost"),
    ]
    rows = [
        (
            summary.title,
            summary.level.replace("_", " "),
            figure(summary.average.value),
            around(summary),
            whole(summary.evaluated),
            whole(summary.failed),
            figure(summary.if_failures_were_zero if summary.failed else None),
            _labels(summary, LISTED_LABELS) or UNKNOWN,
            short(summary.input_tokens + summary.output_tokens),
            usd(summary.cost_usd),
        )
        for summary in summaries
    ]
    return table(columns, rows, "Evaluators")


def _panel_sections(summaries: Sequence[EvaluatorResult]) -> list[Section]:
    """What each of several judges cost, how far it agrees, and what other thresholds would come to."""
    with_panels = [(each, each.panel) for each in summaries if each.panel]
    if not with_panels:
        return []
    rows = [
        (
            result.title,
            judge.model,
            judge.role,
            whole(judge.results),
            share(judge.share),
            usd(judge.cost_usd),
            _agreement(judge.agreement),
            _agreement(judge.people),
        )
        for result, panel in with_panels
        for judge in panel.judges
    ]
    own = Column(title="With people", is_numeric=True, is_optional=True)
    columns: list[Column | str] = [
        "Evaluator",
        "Judge",
        "Role",
        *numeric("Results", "Share", "Cost", "Agreement"),
        own,
    ]
    words = "Agreement of a juror with the jury, of a first judge with the second on the sample of both."
    sections: list[Section] = [table(columns, rows, "Judges", words)]
    for result, panel in with_panels:
        if panel.escalated is not None:
            in_use = f" (confidence below {panel.below:g})" if panel.below is not None else ""
            decided = f"{result.title}: the second judge decided {_agreement(panel.escalated)}{in_use}."
            sections.append(Sentence(text=f"{decided} {panel.note}"))
        if panel.thresholds:
            sections.append(_thresholds_table(result.title, panel))
    return sections


def _thresholds_table(title: str, panel: Panel) -> Table:
    rows = [
        (
            f"{threshold.below:g}" + (" (in use)" if threshold.below == panel.below else ""),
            share(threshold.escalated),
            _agreement(threshold.agreement),
            _agreement(threshold.people),
            usd(threshold.cost_usd),
        )
        for threshold in panel.thresholds
    ]
    columns: list[Column | str] = [
        "Confidence below",
        *numeric("Escalated", "Agreement"),
        Column(title="With people", is_numeric=True, is_optional=True),
        *numeric("Cost per result"),
    ]
    words = f"On the {plural(panel.sampled, 'target')} of the sample that both judged."
    return table(columns, rows, f"Thresholds of {title}", words)


def _agreement(estimate: Estimate) -> str:
    """A share with its interval, as percentages."""
    if estimate.value is None:
        return UNKNOWN
    if estimate.low is None or estimate.high is None:
        return f"{share(estimate.value)} of {estimate.runs:,}"
    return f"{share(estimate.value)} ({estimate.low:.0%} to {estimate.high:.0%})"


def share(value: float) -> str:
    """A share as a percentage."""
    return f"{value:.0%}"


def _labels(result: EvaluatorResult, most: int | None = None) -> str:
    return ", ".join(f"{label} {number:,}" for label, number in list(result.labels.items())[:most])


def _insights_table(insights: Sequence[Insight]) -> Table:
    rows = [
        (
            insight.insight,
            insight.found,
            len(insight.sessions),
            ", ".join(insight.sessions),
            one_line(insight.example, LONGEST_EXPLANATION),
        )
        for insight in insights
    ]
    return table(["Insight", "Finding", "Count", "Sessions", prose("Example")], rows, "Insights")


def _details(
    result: EvaluatorResult, worst: Sequence[JudgedTarget], failed: Sequence[JudgedTarget]
) -> Details:
    parts = [f"Version {result.digest}"]
    parts += [f"requested as {result.requested_as}"] if result.requested_as != result.evaluator else []
    if result.judge_standard_deviation is not None:
        calibrated = result.noise_from == "calibration"
        source = "repeated results in the calibration" if calibrated else "votes on the same target"
        parts.append(f"judge noise (SD of {source}): {figure(result.judge_standard_deviation)}")
    labels = _labels(result)
    title = "Highest first" if result.high_is_bad else "Lowest first"
    texts = [" · ".join(parts), f"Labels: {labels}" if labels else ""]
    return Details(
        title=result.title,
        sections=[
            *(Sentence(text=text) for text in texts if text),
            *([Chart(title="Label counts", svg=labels_chart(result))] if labels else []),
            *([_worst_table(result, worst, title, UNITS.get(result.level, ""))] if worst else []),
            *([_failed_table(failed)] if failed else []),
        ],
    )


UNITS = {"trace": "Turn", "tool_call": "Call"}
"""What is evaluated, by level."""


def _failed_table(failed: Sequence[JudgedTarget]) -> Table:
    rows = [(target.session, one_line(target.error, LONGEST_ERROR)) for target in failed]
    return table(["Session", prose("Error")], rows, "Failed evaluations")


LONGEST_ERROR = 400
LISTED_LABELS = 3
"""The most frequent labels of an evaluator, in the table of all."""


def is_share(result: EvaluatorResult) -> bool:
    """Whether an average lies between 0 and 1, as those of labels do."""
    return result.average.value is None or 0.0 <= result.average.value <= 1.0


def figure(value: float | None) -> str:
    """A score, rounded."""
    return "–" if value is None else f"{value:.3f}"


def around(result: EvaluatorResult) -> str:
    """A confidence interval as text."""
    average = result.average
    if average.low is None or average.high is None:
        return "too few to say" if average.value is not None else "–"
    return f"{average.low:.3f} to {average.high:.3f}"


def scopes(results: EvaluationResults) -> str:
    """What the intervals are about."""
    names = dict.fromkeys(each.average.scope for each in results.summaries if each.average.low is not None)
    return f"Intervals are about {' or '.join(names)}." if names else ""


def averages_chart(results: Sequence[EvaluatorResult]) -> str:
    """Plot of the average of each evaluator with its CI; empty: no results."""
    from proctor.report.charts import Bar, bars

    entries = [
        Bar(
            label=result.title.removeprefix("Builtin.").rpartition(":")[2],
            value=result.average.value,
            low=result.average.low,
            high=result.average.high,
            note=f"{figure(result.average.value)} · n {result.average.runs}",
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
    """Plot of the label counts of an evaluator."""
    from proctor.report.charts import Bar, stacked

    counted = list(result.labels.items())
    drawn, rest = counted[:DRAWN_LABELS], sum(number for _, number in counted[DRAWN_LABELS:])
    parts = [*drawn, *([("other", rest)] if rest else [])]
    entries = [
        Bar(label=label, value=number, kind=KINDS[place % len(KINDS)])
        for place, (label, number) in enumerate(parts)
    ]
    return stacked(f"Labels of {result.title}", entries)
