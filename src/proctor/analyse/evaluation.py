"""What an evaluation job came to: for each evaluator the average with its interval, and what failed.

An average is over results: a trace-level evaluator has one for each turn, a tool-level one for each call.
The results of one session belong together, so the interval is that of sessions drawn anew, not of results;
what the judge itself wavers is part of their spread and so of the interval (`evaluation_average.py`). Results
that could not be made are left out and counted. Results of two versions of an evaluator are never averaged
together. An item that has to be done once more has no results yet.

Knows nothing of pages, files or HTTP.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proctor.analyse.evaluation_average import Wavering, average_of, wavering_of
from proctor.analyse.evaluation_remarks import (
    noise_remarks,
    rehearsal_remarks,
    unused_truth_remarks,
    versions_remarks,
)
from proctor.analyse.intervals import Estimate
from proctor.item import FINISHED, SUCCESS
from proctor.store import Reader, Store

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


def _sessions(read: Reader, run_id: str) -> dict[str, int]:
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


def _summaries(read: Reader, run_id: str, reversed_: Sequence[str]) -> tuple[EvaluatorResult, ...]:
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


def _sums(read: Reader, run_id: str) -> list[Row]:
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


def _asked(read: Reader, run_id: str) -> dict[str, dict[str, str]]:
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


def _labels(read: Reader, run_id: str) -> dict[Key, dict[str, int]]:
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


def _wavering(read: Reader, run_id: str) -> dict[Key, Wavering]:
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
    wavering: Wavering | None,
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


def _remarks(read: Reader, run_id: str, summaries: Sequence[EvaluatorResult]) -> Iterator[str]:
    versions: dict[str, set[str]] = defaultdict(set)
    for result in summaries:
        versions[result.evaluator].add(result.digest)
    yield from versions_remarks(versions)
    yield from rehearsal_remarks(read, run_id)
    yield from noise_remarks(result.title for result in summaries if result.is_noise)
    yield from unused_truth_remarks(read, run_id)
