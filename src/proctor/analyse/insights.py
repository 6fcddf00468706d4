"""What the insights of a job found, put together: sessions with the same failure, intent or approach.

Plain code does the putting together: failures by family, category and the name of their cause; intents and
approaches by their names, whatever their case and punctuation. Nothing is averaged.

Knows nothing of judges, pages or HTTP.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.analyse.evaluation import DONE
from proctor.evaluators.failure_categories import family_of, kind_of
from proctor.evaluators.insight import FAILURES, FIELDS, INTENT, NO_FAILURE, SUMMARY
from proctor.store import Reader

_WORD = re.compile(r"\w+")
_REASONS = {FAILURES: "root_cause", INTENT: "description", SUMMARY: "final_outcome"}
"""The detail that says most about a finding, by insight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
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
    findings: Sequence[Finding]

    @property
    def sessions(self) -> int:
        """How many sessions it is about."""
        return len({finding.session for finding in self.findings})

    @property
    def first(self) -> Finding:
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


def insights_of(read: Reader, run_id: str, asked: Iterable[str]) -> list[Insight]:
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


def findings_of(read: Reader, run_id: str, insight: str) -> list[Finding]:
    """What an insight found in the sessions of a job; sessions in which nothing went wrong are left out."""
    rows = read.query(
        'SELECT sc."label", sc."explanation", sc."explanationBlob", sc."judgedSessionId", i."details" '
        'FROM "batch_items" i JOIN "scores" sc ON sc."sessionId" = i."sessionId" '
        f'WHERE i."runId" = ? AND i."status" IN ({DONE}) AND sc."evaluator" = ? AND sc."error" = \'\' '
        'ORDER BY i."position", sc."position"',
        (run_id, insight),
    )
    return [
        Finding(
            session=json.loads(row["details"]).get("session") or row["judgedSessionId"],
            label=row["label"],
            details=json.loads(row["explanation"]),
        )
        for row in read.whole(rows)
        if row["label"] != NO_FAILURE
    ]


def clusters(findings: Iterable[Finding], alike: Callable[[Finding], str]) -> list[Cluster]:
    """Put findings together for which `alike` says the same; the largest first."""
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        found.setdefault(alike(finding), []).append(finding)
    ordered = sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))
    return [Cluster(id=number, key=key, findings=own) for number, (key, own) in enumerate(ordered, 1)]


def bare(name: str) -> str:
    """A name without case and punctuation, so that two spellings of it are one."""
    return " ".join(_WORD.findall(name.casefold()))
