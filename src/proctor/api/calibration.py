"""Read human labels, and measure how well an evaluator agrees with them."""

import asyncio
import csv
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from proctor.api.evaluators import EvaluatorWorkbench, session_from
from proctor.context import RunContext
from proctor.errors import AttemptError, UsageError
from proctor.evaluator import Evaluator, Evidence
from proctor.evaluators.criteria import RubricEvaluator
from proctor.evaluators.model_judge import ModelJudge
from proctor.evaluators.rendering import turns_of
from proctor.formatting import count_words, plural
from proctor.json_values import JsonObject
from proctor.score import Level, Score
from proctor.stats.calibration import (
    Calibration,
    JudgedTargetPair,
    LabelValue,
    Ratings,
    Scale,
    calibrate,
    ends_of,
    on_scale,
    order_of,
)
from proctor.stats.intervals import Estimate, Rate
from proctor.store import Store, annotations
from proctor.store.annotations import CalibrationRecord

__all__ = [
    "Calibration",
    "CalibrationResult",
    "Estimate",
    "LabelFields",
    "Rate",
    "calibrate_evaluator",
    "label_rows",
    "level_of",
    "target_in",
]
COLUMNS = {
    "session": ("session", "session_id", "sessionid"),
    "target": ("target", "trace", "trace_id", "traceid", "tool_call", "tool_call_id", "span_id", "spanid"),
    "dimension": ("dimension",),
    "who": ("who", "rater", "annotator"),
    "label": ("label",),
    "value": ("value", "score"),
    "evaluator": ("evaluator",),
    "note": ("note", "reason", "comment"),
}
"""Names of the columns in a file of labels."""
TargetKey = tuple[str, str]
"""A session, by the name in the labels, and a target in it; empty: the session itself."""
Labels = dict[str, dict[TargetKey, dict[str, LabelValue]]]
"""By dimension, target and person."""


class LabelFields(TypedDict):
    """One line of a file of labels."""

    session: str
    target: str
    dimension: str
    who: str
    label: str
    value: float | None
    evaluator: str
    note: str


def label_rows(path: Path) -> list[tuple[int, LabelFields]]:
    """The labels in a CSV file with their lines; problems are reported with their line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: {error}") from error
    return [(number, _fields(path, number, row)) for number, row in enumerate(rows, 2)]


def labels_from_file(path: Path, store: Store) -> Labels:
    """The labels in a CSV file; targets are named as on the command line."""
    sessions: dict[str, Evidence] = {}
    labels: Labels = defaultdict(lambda: defaultdict(dict))
    for _, row in label_rows(path):
        session = row["session"]
        if row["target"] and session not in sessions:
            sessions[session] = session_from(store, session, None)
        target = target_in(sessions[session], row["target"]) if row["target"] else ""
        opinion = LabelValue(label=row["label"], value=row["value"])
        labels[row["dimension"]][session, target][row["who"] or "someone"] = opinion
    return labels


def _fields(path: Path, number: int, row: Mapping[str, object]) -> LabelFields:
    bare = {
        str(key).strip().casefold(): value.strip() for key, value in row.items() if isinstance(value, str)
    }

    def text(name: str) -> str:
        return next((bare[each] for each in COLUMNS[name] if bare.get(each)), "")

    value = text("value")
    if not text("session") or not (text("label") or value):
        raise UsageError(f"{path}:{number}: a label needs a session, and a label or a value")
    try:
        number_value = float(value) if value else None
    except ValueError:
        raise UsageError(f"{path}:{number}: `{value}` is no number") from None
    return LabelFields(
        session=text("session"),
        target=text("target"),
        dimension=text("dimension"),
        who=text("who"),
        label=text("label"),
        value=number_value,
        evaluator=text("evaluator"),
        note=text("note"),
    )


def target_in(evidence: Evidence, target: str) -> str:
    """What a target is called: `turn-2` is the second turn also where turns have ids of their own."""
    turn, _, number = target.partition("-")
    known = {trace.id for trace in evidence.traces}
    if turn == "turn" and number.isdecimal() and target not in known:
        position = int(number)
        return evidence.traces[position - 1].id if 1 <= position <= len(evidence.traces) else target
    return target


def level_of(evidence: Evidence, target: str) -> Level:
    """What a target is: the session, one of its turns, or one of its tool calls."""
    if not target:
        return "session"
    if target in {trace.id for trace in evidence.traces}:
        return "trace"
    if target in {call.call_id for call in evidence.tool_calls}:
        return "tool_call"
    turns = ", ".join(trace.id for trace in evidence.traces[:5])
    raise UsageError(f"the session has no turn and no tool call `{target}`\nIt has: {turns}.")


def stored_labels(store: Store, evaluator: Evaluator) -> Labels:
    """The stored human labels of an evaluator; those of an aspect of a rubric may be under its own name."""
    labels: Labels = defaultdict(lambda: defaultdict(dict))
    names = {evaluator.name: ""}
    if isinstance(evaluator, RubricEvaluator):
        names |= {criterion.name: aspect for aspect, criterion in evaluator.aspects.items()}
    for name, aspect in names.items():
        for row in store.labels(evaluator=name):
            opinion = LabelValue(label=row["label"], value=row["value"])
            targets = labels[row["dimension"] or aspect]
            targets[row["sessionId"], row["target"]][row["who"] or "someone"] = opinion
    return labels


def human_labels(ctx: RunContext, evaluator: Evaluator, path: Path | None) -> Labels:
    """The labels of a file, or those of the store. Raises where there are none, or of no such dimension."""
    labels = labels_from_file(path, ctx.store) if path else stored_labels(ctx.store, evaluator)
    if not labels:
        raise UsageError(f"there are no labels for {evaluator.name}")
    scales = _scales(evaluator)
    if unknown := sorted(labels.keys() - scales.keys()) if scales else []:
        named = f"no dimension `{unknown[0]}`" if unknown[0] else "several dimensions, and labels name none"
        known = ", ".join(scales) or "it has none"
        raise UsageError(f"{evaluator.name} has {named}\nWrite one in the column `dimension`: {known}.")
    return labels


@dataclass(frozen=True, kw_only=True)
class CalibrationResult:
    """How well an evaluator agrees with human labels."""

    evaluator: Evaluator
    dimensions: Mapping[str, Calibration]
    """By dimension; empty: the evaluator has none."""
    errors: Sequence[str]
    """Why judgments failed; they are left out."""
    cost_usd: float | None
    remarks: Sequence[str]
    """Labels that are not used, or not on the scale."""

    def document(self) -> JsonObject:
        """The result as JSON."""
        return {
            "evaluator": self.evaluator.name,
            "digest": self.evaluator.digest,
            "errors": len(self.errors),
            "costUsd": self.cost_usd,
            "notes": list(self.remarks),
            "dimensions": {name: _document(each) for name, each in self.dimensions.items()},
        }


def calibrate_evaluator(
    ctx: RunContext,
    name: str,
    *,
    labels: Path | None = None,
    judge: str = "",
    votes: int = 1,
    repeats: int = 1,
) -> CalibrationResult:
    """Measure the agreement of an evaluator with human labels: those of a CSV file, or of the store.

    The result is stored: later evaluations with the same version show a mean corrected for its errors.
    """
    with EvaluatorWorkbench(ctx, judge=judge, votes=votes) as workbench:
        evaluator = workbench.evaluator(name)
        labeled = human_labels(ctx, evaluator, labels)
        sessions = labeled_sessions(ctx.store, labeled)
        results = asyncio.run(workbench.judged(evaluator, list(sessions.values()) * repeats))
    scores = scores_by_session(list(sessions), results)
    calibrations = {
        dimension: calibrate(
            _judged_targets(targets, sessions, scores, dimension, scale),
            order=order_of(scale),
            scale=ends_of(scale),
        )
        for dimension, targets in labeled.items()
        for scale in [scale_in(evaluator, dimension)]
    }
    for dimension, calibration in calibrations.items():
        if calibration.things:
            ends = ends_of(scale_in(evaluator, dimension))
            ctx.store.change(
                annotations.save_calibration, _record(evaluator, dimension, calibration, ends), ctx.now()
            )
    looked_at = {
        session: {score.target for score in judged}
        for session, judged in zip(sessions, results, strict=False)
        if not isinstance(judged, AttemptError)
    }
    every = [score for scores in results if not isinstance(scores, AttemptError) for score in scores]
    errors = [str(result) for result in results if isinstance(result, AttemptError)]
    errors += [score.error for score in every if score.error]
    costs = [score.cost_usd for score in every if score.cost_usd is not None]
    return CalibrationResult(
        evaluator=evaluator,
        dimensions=calibrations,
        errors=errors,
        cost_usd=sum(costs) if costs else None,
        remarks=list(dict.fromkeys(_unusable_labels(evaluator, labeled, looked_at))),
    )


def _unusable_labels(
    evaluator: Evaluator, labels: Labels, looked_at: Mapping[str, Collection[str]]
) -> Iterator[str]:
    """Notes on labels that are not used or not on the scale: a typo would make the judge look bad."""
    for dimension, targets in labels.items():
        known = {label.casefold() for label in scale_in(evaluator, dimension)}
        used_labels = {opinion.label.strip() for human in targets.values() for opinion in human.values()}
        strange = sorted(label for label in used_labels if known and label and label.casefold() not in known)
        if strange:
            yield f"Not on the judge's scale, so that it can never say the same: {', '.join(strange[:5])}."
        alone = [(name, target) for name, target in targets if target not in looked_at.get(name, {target})]
        if alone:
            session, target = alone[0]
            named = f"{target or 'no target'} of {session}"
            number = plural(len(alone), "labeled target")
            yield f"Left out: {number} that {evaluator.name} does not judge, such as {named}."


def labeled_sessions(store: Store, labels: Labels) -> dict[str, Evidence]:
    """The labeled sessions, each with only its labeled targets."""
    targets: dict[str, set[str]] = defaultdict(set)
    for labeled in labels.values():
        for session, target in labeled:
            targets[session] |= {target} if target else set()
    return {
        session: replace(session_from(store, session, None), targets=frozenset(own))
        for session, own in targets.items()
    }


def scores_by_session(
    names: Sequence[str], results: Sequence[list[Score] | AttemptError]
) -> dict[tuple[str, str, str], list[Score]]:
    """The scores of each session, target and dimension, in order."""
    target_scores: dict[tuple[str, str, str], list[Score]] = defaultdict(list)
    for index, scores in enumerate(results):
        if not isinstance(scores, AttemptError):
            for score in scores:
                if not score.error:
                    target_scores[names[index % len(names)], score.target, score.dimension].append(score)
    return target_scores


def _scales(evaluator: Evaluator) -> dict[str, Mapping[str, float | None]]:
    """The labels and values of each dimension of an evaluator; empty: its dimensions are not known."""
    if isinstance(evaluator, RubricEvaluator):
        return {aspect: criterion.ratings for aspect, criterion in evaluator.aspects.items()}
    if not isinstance(evaluator, ModelJudge):
        return {}
    return {
        each.name: {rating.label: rating.value for rating in each.scale.ratings}
        for each in evaluator.question.dimensions
    }


def scale_in(evaluator: Evaluator, dimension: str) -> Mapping[str, float | None]:
    """The labels of a dimension and their values; empty: it has no scale."""
    return _scales(evaluator).get(dimension, {})


def _record(
    evaluator: Evaluator, dimension: str, calibration: Calibration, scale: Scale | None
) -> CalibrationRecord:
    return CalibrationRecord(
        evaluator=evaluator.name,
        evaluator_digest=evaluator.digest,
        dimension=dimension,
        targets=calibration.things,
        document={
            "results": _document(calibration),
            "scale": scale,
            "pairs": [[pair.session, pair.human, pair.judge] for pair in calibration.pairs],
        },
    )


def _judged_targets(
    targets: Mapping[TargetKey, Mapping[str, LabelValue]],
    sessions: Mapping[str, Evidence],
    scores: Mapping[tuple[str, str, str], Sequence[Score]],
    dimension: str,
    scale: Ratings,
) -> list[JudgedTargetPair]:
    return [
        JudgedTargetPair(
            session=session,
            target=target,
            human={who: on_scale(scale, opinion) for who, opinion in human.items()},
            machine=[
                LabelValue(label=score.label, value=score.value)
                for score in scores[session, target, dimension]
            ],
            position=_place(sessions[session], target),
            length=_length(sessions[session], target),
        )
        for (session, target), human in targets.items()
        if scores.get((session, target, dimension))
    ]


def _place(evidence: Evidence, target: str) -> int:
    for number, trace in enumerate(turns_of(evidence)):
        if target == trace.id or target in {call.call_id for call in trace.tool_calls}:
            return number
    return 0


def _length(evidence: Evidence, target: str) -> int:
    turns = turns_of(evidence)
    chosen = [trace for trace in turns if trace.id == target] or turns
    return sum(count_words(trace.answer) for trace in chosen)


def _document(calibration: Calibration) -> JsonObject:
    def around(estimate: Estimate | Rate) -> JsonObject:
        return {"value": estimate.value, "low": estimate.low, "high": estimate.high}

    return {
        "targets": calibration.things,
        "sessions": calibration.sessions,
        "people": calibration.people,
        "agreement": around(calibration.agreement),
        "kappa": around(calibration.kappa) | {"weighted": calibration.weighted},
        "alpha": around(calibration.alpha),
        "humanAlpha": calibration.human_alpha,
        "bias": around(calibration.bias),
        "leanings": {each.by: around(each.correlation) for each in calibration.leanings},
        "confusion": [
            {"human": human, "judge": machine, "count": number}
            for (human, machine), number in calibration.confusion.items()
        ],
        "repeats": calibration.repeats,
        "retest": around(calibration.retest),
        "mean": around(calibration.mean),
        "noiseVariance": calibration.noise_variance,
        "noiseShare": calibration.noise_share,
        "ties": calibration.ties,
        "notes": list(calibration.remarks),
    }
