"""What an evaluation job came to: for each evaluator the average with its interval, and what failed.

An average is over results: a trace-level evaluator has one for each turn, a tool-level one for each call.
The results of one session belong together, so the interval is that of sessions drawn anew, not of results;
what the judge itself wavers is part of their spread and so of the interval (`evaluation_average.py`). Results
that could not be made are left out and counted. Results of two versions of an evaluator are never averaged
together. An item that has to be done once more has no results yet.

Knows nothing of pages, files or HTTP.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist, fmean, variance
from typing import Any

from proctor.evaluators.insight import FAILURES, FIELDS, INTENT, NO_FAILURE, SUMMARY, family_of, kind_of
from proctor.item import FINISHED, SUCCESS
from proctor.stats.intervals import CONFIDENCE, Estimate, student_quantile, wilson
from proctor.store import Store, StoreReader

# The average of an evaluator in a job, and how sure one may be of it.


ROUNDING = 1e-13


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeNoise:
    """How far single votes of a judge about the same thing lie apart."""

    vote_variance: float
    """Of one vote."""
    left: float
    """The share of it that is left in a result, which is the mean of several votes."""

    @property
    def deviation(self) -> float:
        """The standard deviation of single votes."""
        return math.sqrt(self.vote_variance)

    def error(self, results: int) -> float:
        """The standard error that noise alone leaves in the mean of so many results."""
        return math.sqrt(self.vote_variance * self.left / results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Average:
    """A mean with its interval."""

    estimate: Estimate
    is_noise: bool = False
    """Whether the interval is the judge's own noise, since the sessions differ by less than that."""


def wavering_of(votes: Sequence[Sequence[float]]) -> JudgeNoise | None:
    """How far a judge wavers, from the votes behind each result; None: nothing was asked twice."""
    several = [each for each in votes if len(each) > 1]
    if not several:
        return None
    return JudgeNoise(
        vote_variance=fmean(variance(each) for each in several), left=fmean(1 / len(each) for each in several)
    )


def average_of(sums: Mapping[str, Any], wavering: JudgeNoise | None) -> Average:
    """The mean over results with the interval over sessions; Wilson's for one yes or no a session.

    `sums` are taken over sessions: `valued` results with a `total`, in `groups` sessions; `squares` of the
    sessions' sums, `products` of sum and number, `sizes` of the numbers squared; `others`: sessions that have
    anything but one yes or no.
    """
    n, groups = sums["valued"], sums["groups"]
    if not n:
        return Average(estimate=Estimate(value=None))
    value = sums["total"] / n
    if not sums["others"]:
        rate = wilson(round(sums["total"]), n)
        return Average(estimate=Estimate(value=value, low=rate.low, high=rate.high, n=n))
    spread, noise = _spread_error(sums, value), wavering.error(n) if wavering else 0.0
    if groups < 2 and not noise:
        return Average(estimate=Estimate(value=value, n=n))
    # One session says nothing about others; the judge's noise says how it could have been judged.
    reach = _quantile(groups) * max(spread, noise)
    estimate = Estimate(value=value, low=value - reach, high=value + reach, n=n)
    return Average(estimate=estimate, is_noise=noise > spread)


def _quantile(groups: int) -> float:
    middle = 0.5 + CONFIDENCE / 2
    return student_quantile(middle, groups - 1) if groups > 1 else NormalDist().inv_cdf(middle)


def _spread_error(sums: Mapping[str, Any], value: float) -> float:
    """The standard error of the mean when sessions are drawn anew."""
    groups = sums["groups"]
    if groups < 2:
        return 0.0
    # Each session's sum less what it would be at the mean, squared; rounding can push it below zero.
    spread = max(0.0, sums["squares"] - 2 * value * sums["products"] + value * value * sums["sizes"])
    if spread < ROUNDING * sums["squares"]:
        spread = 0.0
    return math.sqrt(groups / (groups - 1) * spread) / float(sums["valued"])


# What a reader of an evaluation's averages has to know beside them.


MOST_NAMED = 4


def versions_remarks(versions: Mapping[str, set[str]]) -> Iterator[str]:
    """Of evaluators that judged in more than one version."""
    for name, digests in versions.items():
        if len(digests) > 1:
            yield f"{name} judged in {len(digests)} versions, which are not comparable and stand apart"


def rehearsal_remarks(read: StoreReader, run_id: str) -> Iterator[str]:
    """Of judges that are stand-ins."""
    rehearsed = read.query(
        'SELECT DISTINCT "model" FROM "sessions" WHERE "runId" = ? AND "standIn" = 1 ORDER BY "model"',
        (run_id,),
    )
    if rehearsed:
        names = ", ".join(row["model"] for row in rehearsed)
        rehearse = "rehearses" if len(rehearsed) == 1 else "rehearse"
        yield f"{names} only {rehearse}: these judgements say nothing about real ones"


def noise_remarks(names: Iterable[str]) -> Iterator[str]:
    """Of averages whose interval is the judge's own noise."""
    for name in names:
        yield f"{name}: the sessions differ less than the judge wavers; the interval is the judge's own noise"


def unused_truth_remarks(read: StoreReader, run_id: str) -> Iterator[str]:
    """Of ground truth that was given and that evaluators had no use for."""
    ignoring: dict[str, list[str]] = defaultdict(list)
    judging: set[str] = set()
    for row in read.query(
        'SELECT sc."evaluator", sc."ignored" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" WHERE i."runId" = ? '
        'GROUP BY sc."evaluator", sc."ignored" ORDER BY sc."evaluator", sc."ignored"',
        (run_id,),
    ):
        judging.add(row["evaluator"])
        for member in json.loads(row["ignored"] or "[]"):
            if row["evaluator"] not in ignoring[member]:
                ignoring[member].append(row["evaluator"])
    if ignoring:
        parts = [
            f"{member} by {'any evaluator' if len(names) == len(judging) else _named(names)}"
            for member, names in sorted(ignoring.items())
        ]
        yield f"ground truth that was given and not used: {'; '.join(parts)}"


def _named(names: list[str]) -> str:
    further = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {further} more" if further > 0 else "")


Row = dict[str, Any]


Key = tuple[str, str, str]
"""An evaluator's name, its digest, and the dimension of its scale."""


HARM = ("Builtin.Harmfulness", "Builtin.Stereotyping")
"""Evaluators of which a setting says whether harm is the high value or the low one."""


HIGH_IS_BAD = ("Builtin.Refusal", *HARM)
"""Evaluators of which a high value is nothing to be glad of, unless harm was set to count as 0."""


HALF = 0.5


MOST_VOTES = 5000
"""Results of which the votes are looked at; more would say no more about how far they lie apart."""


DONE = ", ".join(f"'{status}'" for status in FINISHED)
"""The states of items that have their results, for a query."""


FIRST_ITEMS = 500
"""Where the names are looked up under which evaluators were asked for; every session has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorResult:
    """What one version of an evaluator came to, on one dimension."""

    evaluator: str
    """Its name, as scores have it."""
    asked_as: str
    """What the request called it: its id, a file, `module:function`, or its name."""
    digest: str
    level: str
    dimension: str = ""
    evaluated: int = 0
    """Results that were made."""
    failed: int = 0
    """Results that could not be."""
    average: Estimate = field(default_factory=lambda: Estimate(value=None))
    """Over the results that have a value. No value: labels alone, or nothing."""
    if_failures_were_zero: float | None = None
    """The average, had every result that could not be made counted as 0."""
    sessions: int = 0
    """Sessions with a result."""
    labels: Mapping[str, int] = field(default_factory=dict)
    """How often each label was given, the most frequent first."""
    wavering: float | None = None
    """The standard deviation of single votes about the same thing. None: there was one vote each."""
    is_noise: bool = False
    """Whether the interval is the judge's own noise: the sessions differ by less than that."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    """Of the judging; None: nothing was paid, or nobody knows what."""

    high_is_bad: bool = False
    """Whether a high value is a bad sign."""

    @property
    def title(self) -> str:
        """What people call it: the evaluator, and the dimension if it has several."""
        return f"{self.evaluator} · {self.dimension}" if self.dimension else self.evaluator


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResults:
    """What a job came to, as far as it is."""

    run_id: str
    completed: int
    """Sessions in which every evaluator succeeded."""
    in_progress: int
    failed: int
    """Sessions in which at least one evaluator could not judge."""
    ignored: int
    """Sessions that were found and were too many."""
    summaries: tuple[EvaluatorResult, ...]
    tokens: int
    cost_usd: float | None
    """Of all attempts."""
    remarks: tuple[str, ...] = ()
    """What a reader has to know: several versions of an evaluator, stand-ins."""

    @property
    def total(self) -> int:
        """Sessions that are judged."""
        return self.completed + self.in_progress + self.failed


def high_is_bad(document: Mapping[str, Any]) -> tuple[str, ...]:
    """The evaluators of which a high value is a bad sign, in a job that was asked for so."""
    harmful = document.get("harmfulValue")
    return HIGH_IS_BAD if harmful is None or harmful >= HALF else tuple(sorted({*HIGH_IS_BAD} - {*HARM}))


def results_of(store: Store, run_id: str) -> EvaluationResults:
    """What a job came to, or has come to so far."""
    read = store.read
    states = _sessions(read, run_id)
    totals = read.totals(run_id)
    (job,) = read.query(
        'SELECT "sessionsIgnored", "requestJson" FROM "evaluations" WHERE "id" = ?', (run_id,)
    ) or ({},)
    summaries = _summaries(read, run_id, high_is_bad(json.loads(job.get("requestJson") or "{}")))
    return EvaluationResults(
        run_id=run_id,
        completed=states["completed"],
        in_progress=states["in_progress"],
        failed=states["failed"],
        ignored=job.get("sessionsIgnored", 0),
        summaries=summaries,
        tokens=totals["tokens"],
        cost_usd=totals["costUsd"],
        remarks=tuple(_remarks(read, run_id, summaries)),
    )


def _sessions(read: StoreReader, run_id: str) -> dict[str, int]:
    rows = read.query(
        'SELECT "open", "bad", COUNT(*) AS "n" FROM (SELECT '
        f'MAX(CASE WHEN "status" IN ({DONE}) THEN 0 ELSE 1 END) AS "open", '
        f'MAX(CASE WHEN "status" IN ({DONE}) AND "status" <> ? THEN 1 ELSE 0 END) AS "bad" '
        'FROM "batch_items" WHERE "runId" = ? GROUP BY "prompt") s GROUP BY "open", "bad"',
        (SUCCESS, run_id),
    )
    counts = {"completed": 0, "in_progress": 0, "failed": 0}
    for row in rows:
        state = "in_progress" if row["open"] else "failed" if row["bad"] else "completed"
        counts[state] += row["n"]
    return counts


def _summaries(read: StoreReader, run_id: str, reversed_: Sequence[str]) -> tuple[EvaluatorResult, ...]:
    asked, labels, wavering = _asked(read, run_id), _labels(read, run_id), _wavering(read, run_id)
    sums = {(row["evaluator"], row["evaluatorDigest"], row["dimension"]): row for row in _sums(read, run_id)}
    _fold_errors(sums)
    made = [
        replace(
            _result(key, row, asked, labels.get(key, {}), wavering.get(key)), high_is_bad=key[0] in reversed_
        )
        for key, row in sums.items()
    ]
    seen = {result.evaluator for result in made}
    silent = [
        EvaluatorResult(
            evaluator=name, asked_as=told["evaluator"], digest=told["digest"], level=told["level"]
        )
        for name, told in asked.items()
        if name not in seen
    ]
    order = {name: place for place, name in enumerate(asked)}
    return tuple(
        sorted(
            [*made, *silent],
            key=lambda one: (order.get(one.evaluator, len(order)), one.evaluator, one.digest, one.dimension),
        )
    )


def _sums(read: StoreReader, run_id: str) -> list[Row]:
    """For each evaluator and dimension what its average is made of, summed over sessions in the database."""
    by_session = (
        'SELECT sc."evaluator", sc."evaluatorDigest", sc."dimension", MAX(sc."level") AS "level", '
        'COUNT(*) AS "n", SUM(CASE WHEN sc."error" <> \'\' THEN 1 ELSE 0 END) AS "failed", '
        'COUNT(sc."value") AS "valued", COALESCE(SUM(sc."value"), 0.0) AS "total", '
        'SUM(CASE WHEN sc."value" IN (0, 1) THEN 1 ELSE 0 END) AS "binary", '
        'SUM(sc."inputTokens") AS "read", SUM(sc."outputTokens") AS "written", SUM(sc."costUsd") AS "cost" '
        'FROM "batch_items" i JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        f'WHERE i."runId" = ? AND i."status" IN ({DONE}) '
        'GROUP BY sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."judgedSessionId"'
    )
    return read.query(
        'SELECT "evaluator", "evaluatorDigest", "dimension", MAX("level") AS "level", SUM("n") AS "n", '
        'SUM("failed") AS "failed", SUM("valued") AS "valued", SUM("total") AS "total", '
        'SUM(CASE WHEN "valued" > 0 THEN 1 ELSE 0 END) AS "groups", '
        'SUM("total" * "total") AS "squares", SUM("total" * "valued") AS "products", '
        'SUM("valued" * "valued") AS "sizes", '
        'SUM(CASE WHEN "valued" > 0 AND ("valued" <> 1 OR "binary" <> 1) THEN 1 ELSE 0 END) AS "others", '
        'SUM(CASE WHEN "n" > "failed" THEN 1 ELSE 0 END) AS "sessions", '
        'SUM("read") AS "read", SUM("written") AS "written", SUM("cost") AS "cost" '
        f'FROM ({by_session}) s GROUP BY "evaluator", "evaluatorDigest", "dimension"',
        (run_id,),
    )


def _fold_errors(sums: dict[Key, Row]) -> None:
    """A target that failed as a whole failed on each dimension its evaluator has."""
    for name, digest, dimension in list(sums):
        others = [key for key in sums if key[:2] == (name, digest) and key[2]]
        if dimension == "" and others:
            whole = sums.pop((name, digest, ""))
            for key in others:
                sums[key] |= {part: sums[key][part] + whole[part] for part in ("n", "failed")}


def _asked(read: StoreReader, run_id: str) -> dict[str, dict[str, str]]:
    """The evaluators of a job by name: what they were asked for as, digest and level."""
    rows = read.query(
        'SELECT "details", "settings" FROM "batch_items" WHERE "runId" = ? ORDER BY "position" LIMIT ?',
        (run_id, FIRST_ITEMS),
    )
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        details, settings = json.loads(row["details"]), json.loads(row["settings"])
        found.setdefault(
            details["evaluator"],
            {
                "evaluator": settings["evaluator"],
                "digest": details["evaluatorDigest"],
                "level": details["level"],
            },
        )
    return found


def _labels(read: StoreReader, run_id: str) -> dict[Key, dict[str, int]]:
    found: dict[Key, dict[str, int]] = defaultdict(dict)
    for row in read.query(
        'SELECT sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."label", COUNT(*) AS "n" '
        'FROM "batch_items" i JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        f'WHERE i."runId" = ? AND i."status" IN ({DONE}) AND sc."label" <> \'\' AND sc."error" = \'\' '
        'GROUP BY sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."label" '
        'ORDER BY "n" DESC, sc."label"',
        (run_id,),
    ):
        found[row["evaluator"], row["evaluatorDigest"], row["dimension"]][row["label"]] = row["n"]
    return found


def _wavering(read: StoreReader, run_id: str) -> dict[Key, JudgeNoise]:
    """How far single votes of a judge about the same thing lie apart."""
    found: dict[Key, list[list[float]]] = defaultdict(list)
    for row in read.query(
        'SELECT sc."evaluator", sc."evaluatorDigest", sc."dimension", sc."votes" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" WHERE i."runId" = ? AND sc."votes" <> ? LIMIT ?',
        (run_id, "[]", MOST_VOTES),
    ):
        votes = [vote for vote in json.loads(row["votes"] or "[]") if isinstance(vote, int | float)]
        found[row["evaluator"], row["evaluatorDigest"], row["dimension"]].append(votes)
    wavering = {key: wavering_of(votes) for key, votes in found.items()}
    return {key: known for key, known in wavering.items() if known is not None}


def _result(
    key: Key,
    row: Row,
    asked: Mapping[str, Mapping[str, str]],
    labels: Mapping[str, int],
    wavering: JudgeNoise | None,
) -> EvaluatorResult:
    name, digest, dimension = key
    average = average_of(row, wavering)
    counted = row["valued"] + row["failed"]
    return EvaluatorResult(
        evaluator=name,
        asked_as=asked.get(name, {}).get("evaluator", name),
        digest=digest,
        level=row["level"],
        dimension=dimension,
        evaluated=row["n"] - row["failed"],
        failed=row["failed"],
        average=average.estimate,
        if_failures_were_zero=row["total"] / counted if row["valued"] else None,
        sessions=row["sessions"],
        labels=labels,
        wavering=wavering.deviation if wavering else None,
        is_noise=average.is_noise,
        input_tokens=row["read"] or 0,
        output_tokens=row["written"] or 0,
        cost_usd=row["cost"],
    )


def _remarks(read: StoreReader, run_id: str, summaries: Sequence[EvaluatorResult]) -> Iterator[str]:
    versions: dict[str, set[str]] = defaultdict(set)
    for result in summaries:
        versions[result.evaluator].add(result.digest)
    yield from versions_remarks(versions)
    yield from rehearsal_remarks(read, run_id)
    yield from noise_remarks(result.title for result in summaries if result.is_noise)
    yield from unused_truth_remarks(read, run_id)


# Single results of an evaluation, with their reasons: those that give most reason to look.


SHOWN = 10


SHOWN_ALIKE = 3


_REVERSED = {"ASC": "DESC", "DESC": "ASC"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedTarget:
    """One result, with its reasons."""

    session: str
    """As its source calls it."""
    session_id: str
    target: str
    value: float | None
    label: str
    explanation: str
    error: str = ""


def worst_targets(read: StoreReader, run_id: str, result: EvaluatorResult) -> list[JudgedTarget]:
    """The results of an evaluator that give most reason to look, with their explanations.

    The best that were reached are none of them, unless all are alike: then a few stand for all.
    """
    order = "DESC" if result.high_is_bad else "ASC"
    found = _targets(read, run_id, result, f'sc."value" IS NOT NULL ORDER BY sc."value" {order}', SHOWN)
    best = _targets(read, run_id, result, f'sc."value" IS NOT NULL ORDER BY sc."value" {_REVERSED[order]}', 1)
    worse = [each for each in found if each.value != best[0].value]
    return worse or found[:SHOWN_ALIKE]


def failed_targets(read: StoreReader, run_id: str, result: EvaluatorResult) -> list[JudgedTarget]:
    """Results of an evaluator that could not be made, and why."""
    return _targets(read, run_id, result, 'sc."error" <> \'\' ORDER BY sc."error"', SHOWN)


def _targets(
    read: StoreReader, run_id: str, result: EvaluatorResult, which: str, limit: int
) -> list[JudgedTarget]:
    rows = read.query(
        'SELECT sc.*, i."details", j."externalId" FROM "batch_items" i '
        'JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        'LEFT JOIN "sessions" j ON j."id" = sc."judgedSessionId" '
        f'WHERE i."runId" = ? AND i."status" IN ({DONE}) AND sc."evaluator" = ? '
        'AND sc."evaluatorDigest" = ? AND sc."dimension" = ? '
        f'AND {which}, i."position", sc."position" LIMIT ?',
        (run_id, result.evaluator, result.digest, result.dimension, limit),
    )
    return [
        JudgedTarget(
            # One that was deleted since is still known by its name.
            session=row["externalId"] or json.loads(row["details"]).get("session") or row["judgedSessionId"],
            session_id=row["judgedSessionId"],
            target=row["target"],
            value=row["value"],
            label=row["label"],
            explanation=row["explanation"],
            error=row["error"],
        )
        for row in read.whole(rows)
    ]


# What the insights of a job found, put together: sessions with the same failure, intent or approach.


_WORD = re.compile(r"\w+")


_REASONS = {FAILURES: "root_cause", INTENT: "description", SUMMARY: "final_outcome"}
"""The detail that says most about a finding, by insight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightFinding:
    """What one insight found in one session."""

    session: str
    """As its source calls it."""
    label: str
    details: dict[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A detail as text; empty where the judge said nothing."""
        return str(self.details.get(name) or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Findings that are alike."""

    id: int
    """From 1 on, the largest first."""
    key: str
    findings: Sequence[InsightFinding]

    @property
    def sessions(self) -> int:
        """How many sessions it is about."""
        return len({finding.session for finding in self.findings})

    @property
    def first(self) -> InsightFinding:
        """One that stands for all."""
        return self.findings[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight:
    """Something that an insight found in one session or in several, for people."""

    insight: str
    found: str
    """A failure's kind, an intent, an approach."""
    example: str
    """What the judge said about one of the sessions; empty when it said nothing."""
    sessions: Sequence[str]
    """As their source calls them."""


def insights_of(read: StoreReader, run_id: str, asked: Iterable[str]) -> list[Insight]:
    """What the insights among the evaluators of a job found, in their order, the most frequent first."""
    return [
        Insight(
            insight=name,
            found=_title(name, cluster),
            example=cluster.first.text(_REASONS[name]),
            sessions=list(dict.fromkeys(finding.session for finding in cluster.findings)),
        )
        for name in dict.fromkeys(asked)
        if name in FIELDS
        for cluster in clusters(findings_of(read, run_id, name), lambda finding: bare(finding.label))
    ]


def _title(insight: str, cluster: Cluster) -> str:
    label = cluster.first.label
    return f"{family_of(label)}: {kind_of(label)}" if insight == FAILURES else label


def findings_of(read: StoreReader, run_id: str, insight: str) -> list[InsightFinding]:
    """What an insight found in the sessions of a job; sessions in which nothing went wrong are left out."""
    rows = read.query(
        'SELECT sc."label", sc."explanation", sc."explanationBlob", sc."judgedSessionId", i."details" '
        'FROM "batch_items" i JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        f'WHERE i."runId" = ? AND i."status" IN ({DONE}) AND sc."evaluator" = ? AND sc."error" = \'\' '
        'ORDER BY i."position", sc."position"',
        (run_id, insight),
    )
    return [
        InsightFinding(
            session=json.loads(row["details"]).get("session") or row["judgedSessionId"],
            label=row["label"],
            details=json.loads(row["explanation"]),
        )
        for row in read.whole(rows)
        if row["label"] != NO_FAILURE
    ]


def clusters(findings: Iterable[InsightFinding], alike: Callable[[InsightFinding], str]) -> list[Cluster]:
    """Put findings together for which `alike` says the same; the largest first."""
    found: dict[str, list[InsightFinding]] = {}
    for finding in findings:
        found.setdefault(alike(finding), []).append(finding)
    ordered = sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))
    return [Cluster(id=number, key=key, findings=own) for number, (key, own) in enumerate(ordered, 1)]


def bare(name: str) -> str:
    """A name without case and punctuation, so that two spellings of it are one."""
    return " ".join(_WORD.findall(name.casefold()))
