"""Findings of insights in sessions, and groups of those that are alike."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.evaluators.model_judge import FAILURES, INTENT, NO_FAILURE, SUMMARY, family_of, kind_of
from proctor.json_values import CamelJson
from proctor.store.scores import InsightRow

_WORD = re.compile(r"\w+")
_REASONS = {FAILURES: "root_cause", INTENT: "description", SUMMARY: "final_outcome"}
"""The detail shown as an example, by insight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightFinding:
    """A finding of an insight in one session."""

    session: str
    """Its external id."""
    label: str
    details: dict[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str:
        """A detail as text; empty where it is missing."""
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
        return len({finding.session for finding in self.findings})

    @property
    def first(self) -> InsightFinding:
        """The representative finding."""
        return self.findings[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight(CamelJson):
    """A finding in one or several sessions."""

    insight: str
    found: str
    """A failure's kind, an intent, an approach."""
    example: str
    """The judge's explanation for one of the sessions; may be empty."""
    sessions: Sequence[str]
    """Their external ids."""


def insights_of(findings: Mapping[str, Sequence[InsightFinding]]) -> list[Insight]:
    """The findings of each insight, clustered, the most frequent first."""
    return [
        Insight(
            insight=name,
            found=_title(name, cluster),
            example=cluster.first.text(_REASONS[name]),
            sessions=list(dict.fromkeys(finding.session for finding in cluster.findings)),
        )
        for name, own in findings.items()
        for cluster in clusters(own, lambda finding: bare(finding.label))
    ]


def _title(insight: str, cluster: Cluster) -> str:
    label = cluster.first.label
    return f"{family_of(label)}: {kind_of(label)}" if insight == FAILURES else label


def findings_of(rows: Iterable[InsightRow]) -> list[InsightFinding]:
    """The findings of an insight; sessions in which nothing went wrong are excluded."""
    return [
        InsightFinding(
            session=json.loads(row["details"]).get("session") or row["scoredSessionId"],
            label=row["label"],
            details=json.loads(row["explanation"]),
        )
        for row in rows
        if row["label"] != NO_FAILURE
    ]


def clusters(findings: Iterable[InsightFinding], alike: Callable[[InsightFinding], str]) -> list[Cluster]:
    """Group findings by the key that `alike` gives them; the largest group first."""
    groups: dict[str, list[InsightFinding]] = {}
    for finding in findings:
        groups.setdefault(alike(finding), []).append(finding)
    ordered = sorted(groups.items(), key=lambda each: (-len(each[1]), each[0]))
    return [Cluster(id=number, key=key, findings=own) for number, (key, own) in enumerate(ordered, 1)]


def bare(name: str) -> str:
    """A name without case and punctuation, so that spellings of it are equal."""
    return " ".join(_WORD.findall(name.casefold()))
