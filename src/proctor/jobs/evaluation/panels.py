"""Several judges of one evaluator: what each cost, how far they agree, and where the first may decide alone.

A panel is a jury, or a first judge and a second one who decides where the first is unsure. What another
threshold would have come to is computed from the sample that both have judged, which was chosen by content
and not by what the first judge said; results that were escalated alone say nothing about the others.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from proctor.json_values import CamelJson, JsonMap, as_map, as_number, texts_in
from proctor.score import SAMPLE, UNSURE
from proctor.stats.calibration import mean_of_targets
from proctor.stats.intervals import Estimate
from proctor.store.scores import ScoreBallots

Key = tuple[str, str, str]
PeopleLabels = Mapping[tuple[str, str], str]
"""What people say of a session and target."""
AGREEMENT = 0.9
"""Agreement with the second judge that a suggested threshold keeps, unless the definition sets it."""
FEWEST_SAMPLED = 30
"""Targets judged by both that a suggestion needs."""
MOST_THRESHOLDS = 8
JUROR, FIRST, SECOND = "juror", "first", "second"


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelJudge(CamelJson):
    """One judge of a panel."""

    model: str
    role: str
    """`juror`, `first`, or `second`."""
    results: int
    """Targets that it judged."""
    share: float
    """Of all results."""
    cost_usd: float | None
    """None: unknown."""
    agreement: Estimate
    """Share of the same labels as the jury's; for a first judge, as the second one's, on the sample."""
    people: Estimate
    """Share of the same labels as people's, of the targets that people labeled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold(CamelJson):
    """What another threshold would have come to, on the sample that both judged."""

    below: float
    escalated: float
    """Share of the results that the second judge decides."""
    agreement: Estimate
    """Share of the results with the second judge's label."""
    people: Estimate
    """Share of the results with people's label."""
    cost_usd: float | None
    """Of one result. None: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel(CamelJson):
    """The judges of one version of an evaluator, on one dimension."""

    kind: str
    """`jury` or `escalation`."""
    judges: Sequence[PanelJudge]
    people: Estimate
    """Share of the results with people's label."""
    escalated: Estimate | None = None
    """Share of the results that the second judge decided. None for a jury."""
    below: float | None = None
    """Confidence below which it decided."""
    sampled: int = 0
    """Targets of the sample that both judged."""
    thresholds: Sequence[Threshold] = field(default=())
    suggested: float | None = None
    """The lowest threshold that keeps the agreement wanted. None: none does, or too few were sampled."""
    note: str = ""
    """How the threshold was found, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """One result with the ballots behind it."""

    session: str
    word: str
    ballots: Sequence[JsonMap]
    person: str | None

    @property
    def because(self) -> Sequence[str]:
        """Why the second judge was asked; empty: it was not."""
        return texts_in(self.ballots[1], "because") if len(self.ballots) > 1 else ()

    @property
    def confidence(self) -> float:
        """Of the first judge; below every threshold where it gave no verdict."""
        first = self.ballots[0]
        return as_number(first["confidence"]) or 0.0 if _word(first) else -1.0

    def decisive(self, below: float) -> JsonMap:
        """The ballot that would have decided at another threshold."""
        return self.ballots[1] if self.confidence < below else self.ballots[0]


def panels_of(
    rows: Iterable[ScoreBallots],
    people: Mapping[Key, PeopleLabels],
    definitions: Mapping[str, JsonMap],
) -> dict[Key, Panel]:
    """The panel of each version and dimension of the evaluators that have several judges."""
    judged: dict[Key, list[_Judged]] = defaultdict(list)
    for row in rows:
        key = row["evaluator"], row["evaluatorDigest"], row["dimension"]
        own = people.get(key, {})
        judged[key].append(
            _Judged(
                session=row["scoredSessionId"],
                word=row["label"],
                ballots=json.loads(row["ballots"]),
                person=own.get((row["scoredSessionId"], row["target"])),
            )
        )
    return {
        key: _escalation(results, _settings(definitions.get(key[0], {})))
        if any(each.ballots[0]["confidence"] is not None for each in results)
        else _jury(results)
        for key, results in judged.items()
    }


def _settings(definition: JsonMap) -> JsonMap:
    config = as_map(definition, "evaluatorConfig")
    return as_map(config, "llmAsAJudge", "escalation") or as_map(config, "derived", "escalation")


def _word(ballot: JsonMap) -> str:
    return str(ballot["label"] or "")


def _share(pairs: Iterable[tuple[bool, str]]) -> Estimate:
    """A share of targets, with the interval of sessions like these."""
    known = list(pairs)
    return mean_of_targets([float(hit) for hit, _ in known], [session for _, session in known], lo=0, hi=1)


def _with_people(pairs: Iterable[tuple[str, _Judged]]) -> Estimate:
    return _share((word == each.person, each.session) for word, each in pairs if each.person is not None)


def _cost(ballots: Iterable[JsonMap]) -> float | None:
    known = [cost for each in ballots if (cost := as_number(each["costUsd"])) is not None]
    return sum(known) if known else None


def _jury(results: Sequence[_Judged]) -> Panel:
    places = range(max(len(each.ballots) for each in results))
    judges = []
    for place in places:
        pairs = [(each.ballots[place], each) for each in results]
        judges.append(
            PanelJudge(
                model=str(pairs[0][0]["model"]),
                role=JUROR,
                results=len(pairs),
                share=1.0,
                cost_usd=_cost(ballot for ballot, _ in pairs),
                agreement=_share((_word(ballot) == each.word, each.session) for ballot, each in pairs),
                people=_with_people((_word(ballot), each) for ballot, each in pairs),
            )
        )
    return Panel(kind="jury", judges=judges, people=_with_people((each.word, each) for each in results))


def _escalation(results: Sequence[_Judged], settings: JsonMap) -> Panel:
    both = [each for each in results if len(each.ballots) > 1]
    sample = [each for each in both if SAMPLE in each.because]
    first = PanelJudge(
        model=str(results[0].ballots[0]["model"]),
        role=FIRST,
        results=len(results),
        share=1.0,
        cost_usd=_cost(each.ballots[0] for each in results),
        agreement=_share((_word(each.ballots[0]) == _word(each.ballots[1]), each.session) for each in sample),
        people=_with_people((_word(each.ballots[0]), each) for each in results),
    )
    second = PanelJudge(
        model=str(both[0].ballots[1]["model"]) if both else "",
        role=SECOND,
        results=len(both),
        share=len(both) / len(results),
        cost_usd=_cost(each.ballots[1] for each in both),
        agreement=Estimate(value=None),
        people=_with_people((_word(each.ballots[1]), each) for each in both),
    )
    below = as_number(settings.get("below"))
    wanted = as_number(settings.get("agreement"))
    thresholds = _thresholds(sample, below)
    suggested, note = _suggested(sample, thresholds, AGREEMENT if wanted is None else wanted)
    return Panel(
        kind="escalation",
        judges=[first, *([second] if both else [])],
        people=_with_people((each.word, each) for each in results),
        escalated=_share((UNSURE in each.because, each.session) for each in results),
        below=below,
        sampled=len(sample),
        thresholds=thresholds,
        suggested=suggested,
        note=note,
    )


def _thresholds(sample: Sequence[_Judged], below: float | None) -> list[Threshold]:
    """The distinct confidences, of many some at equal distances in the sample, and the threshold in use."""
    if not sample:
        return []
    confidences = sorted(each.confidence for each in sample if each.confidence >= 0)
    distinct = sorted(set(confidences))
    if len(distinct) > MOST_THRESHOLDS:
        steps = [len(confidences) * step // MOST_THRESHOLDS for step in range(MOST_THRESHOLDS)]
        distinct = [*(confidences[step] for step in steps), distinct[-1]]
    costs = [_cost(each.ballots[place] for each in sample) for place in (0, 1)]
    return [
        _threshold(sample, at, costs) for at in sorted({*distinct, *([below] if below is not None else [])})
    ]


def _threshold(sample: Sequence[_Judged], below: float, costs: Sequence[float | None]) -> Threshold:
    first, second = costs
    escalated = sum(each.confidence < below for each in sample) / len(sample)
    known = first is not None and second is not None
    return Threshold(
        below=below,
        escalated=escalated,
        agreement=_share(
            (_word(result.decisive(below)) == _word(result.ballots[1]), result.session) for result in sample
        ),
        people=_with_people((_word(result.decisive(below)), result) for result in sample),
        cost_usd=((first or 0.0) + escalated * (second or 0.0)) / len(sample) if known else None,
    )


def _suggested(
    sample: Sequence[_Judged], thresholds: Sequence[Threshold], wanted: float
) -> tuple[float | None, str]:
    """The lowest threshold whose agreement is surely as wanted.

    Tested from the highest threshold down to the first that fails (a fixed sequence), so that the choice
    among several does not raise the error above that of one interval.
    """
    if len(sample) < FEWEST_SAMPLED:
        return None, (
            f"{len(sample)} targets were judged by both; a threshold needs at least {FEWEST_SAMPLED}: "
            "raise `audit`."
        )
    suggested = None
    for threshold in reversed(thresholds):
        if threshold.agreement.low is None or threshold.agreement.low < wanted:
            break
        suggested = threshold
    if suggested is None:
        return None, f"No threshold surely keeps {wanted:.0%} agreement with the second judge."
    return suggested.below, (
        f"Lowest threshold that surely keeps {wanted:.0%} agreement with the second judge: "
        f"{suggested.below:g}, which escalates {suggested.escalated:.0%} "
        f"({len(sample)} targets judged by both)."
    )
