"""Results of dialogues: which of them are data, the summary by combination, and the analysis of measures.

One rule says which dialogues are data, in the summary, in tables and in the analysis: those that came to
their end (`is_data`). The number of others is given beside them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import Any

from proctor.dialogue.participant import CLIENT, SIDES, THERAPIST
from proctor.errors import NotFound
from proctor.evaluators.registry import criterion_scale
from proctor.item import FAIL, FINISHED, SUCCESS
from proctor.json_values import JsonMap, JsonObject, as_list, as_map, as_number, as_text, maps_in
from proctor.stats.crossing import Crossing, Design, Rows, crossings, measures_of
from proctor.stats.experiment import Scale
from proctor.store import StoreReader
from proctor.store.items import dialogue_items
from proctor.store.scores import item_scores
from proctor.validity import INVALID_KINDS

Result = Mapping[str, Any]
"""What a session file and the Python interface have of one dialogue."""
ENDED_AS_FAILED = ("checks_failed", "loop")
"""Reasons of failed dialogues that are complete: judged too low, or both sides repeating themselves."""
DATA_RULE = (
    "Dialogues that came to their end are counted, also those that failed their evaluators or ended in a "
    "loop. Dialogues broken off (errors, timeouts, limits, a side without a usable message) are excluded."
)
DESIGN = Design(
    sides=(CLIENT, THERAPIST),
    random=(CLIENT, THERAPIST, "profile"),
    # Models are part of the sides.
    settings=("therapist_profile", "temperature", "version"),
    others=("client_model", "therapist_model"),
    unit="dialogue",
)
NOT_MEASURES = frozenset({"run_id", "seed", "repeat", "temperature", *INVALID_KINDS})


def is_data(status: str, reason: str = "") -> bool:
    """Whether a dialogue is complete, and so counts in every figure."""
    return status == SUCCESS or (status == FAIL and (reason or "checks_failed") in ENDED_AS_FAILED)


def counts(result: Result) -> bool:
    """Whether a result is data; one without a status is of another tool, and complete."""
    return is_data(str(result.get("status", SUCCESS)), str(result.get("reason") or ""))


# The summary.


def results_of(reader: StoreReader, run_id: str) -> Iterator[JsonObject]:
    """The dialogues of a run in its order, as far as summaries and means are concerned."""
    scores: dict[str, list[JsonObject]] = {}
    for score in item_scores(reader, run_id):
        scores.setdefault(score["id"], []).append({"evaluator": score["evaluator"], "value": score["value"]})
    for row in dialogue_items(reader, run_id):
        factors, settings = json.loads(row["factors"]), json.loads(row["settings"])
        scales = criteria_scales(settings)
        yield {
            "status": row["status"],
            "client": factors[CLIENT],
            "therapist": factors[THERAPIST],
            "run_id": settings["run"],
            "error": row["error"],
            "reason": row["reason"],
            "caused_by": row["caused"],
            "combination": settings["combination"],
            "end_reason": row["ended"],
            "num_turns": None if row["turns"] is None else int(row["turns"]),
            "scores": [
                score | ({"scale": list(scale)} if (scale := scales.get(as_text(score, "evaluator"))) else {})
                for score in scores.get(row["id"], [])
            ],
        }


def mean_scores(result: Result) -> dict[str, float]:
    """The score of each evaluator; of messages judged one by one, the mean."""
    by_evaluator: dict[str, list[float]] = {}
    for score in result.get("scores") or ():
        if score.get("value") is not None:
            by_evaluator.setdefault(score["evaluator"], []).append(score["value"])
    return {name: fmean(values) for name, values in by_evaluator.items()}


def summary_of(results: Iterable[Result]) -> dict[str, Any]:
    """The documented summary, followed by further members."""
    by_combination: dict[str, list[Result]] = {}
    statuses = Counter[str]()
    errors = list[JsonObject]()
    for result in results:
        status = str(result.get("status", SUCCESS))
        statuses[status] += 1
        by_combination.setdefault(_combination(result), []).append(result)
        if status in FINISHED and status != SUCCESS:
            errors.append(_error_record(result))
    return {
        "total_runs": statuses.total(),
        "successful": statuses[SUCCESS],
        "failed": len(errors),
        "by_combination": {name: _combination_summary(group) for name, group in by_combination.items()},
        "unfinished": statuses.total() - statuses[SUCCESS] - len(errors),
        "errors": errors,
    }


def _combination(result: Result) -> str:
    return str(result.get("combination") or f"{result.get(CLIENT, '')}_{result.get(THERAPIST, '')}")


def _error_record(result: Result) -> JsonObject:
    """The documented record of a run that failed, followed by the reason and the side that caused it."""
    reason = str(result.get("reason") or "")
    return {
        "status": result["status"],
        **{side: str(result.get(side, "")) for side in SIDES},
        "run_id": int(result.get("run_id") or 0),
        "error": str(result.get("error") or reason),
        "reason": reason,
        "caused_by": str(result.get("caused_by") or "infrastructure"),
        "combination": _combination(result),
    }


def _combination_summary(results: Sequence[Result]) -> JsonObject:
    statuses = Counter(str(result.get("status", SUCCESS)) for result in results)
    ends = Counter(end for result in results if (end := result.get("end_reason")))
    # Turns and scores are only of dialogues that are data.
    complete = [result for result in results if counts(result) and result.get("num_turns") is not None]
    turns = [result["num_turns"] for result in complete]
    scores: dict[str, list[float]] = {}
    for result in complete:
        for name, value in mean_scores(result).items():
            scores.setdefault(name, []).append(value)
    summary: JsonObject = {
        "num_runs": len(results),
        "avg_turns": round(fmean(turns), 6) if turns else None,
        "std_turns": _deviation(turns),
        "successful": statuses[SUCCESS],
        "failed": sum(statuses[status] for status in FINISHED) - statuses[SUCCESS],
        "end_reasons": dict(ends),
        "counted": len(turns),
    }
    if scores:
        summary["scores"] = {
            name: {"mean": round(fmean(values), 6), "std": _deviation(values), "n": len(values)}
            for name, values in scores.items()
        }
    return summary


def _deviation(values: Sequence[float]) -> float | None:
    return round(stdev(values), 6) if len(values) > 1 else None


# Measures of dialogues that are data, as rows.


def measure_rows(results: Iterable[Result]) -> list[dict[str, object]]:
    """The dialogues that are data, one row each: client, therapist, turns and scores."""
    return [
        {
            **{name: result[name] for name in (*SIDES, "num_turns")},
            **{f"score.{name}": value for name, value in mean_scores(result).items()},
        }
        for result in results
        if counts(result)
    ]


def criteria_scales(settings: JsonMap) -> dict[str, Scale]:
    """The scales that the criteria of a dialogue declare, by evaluator, from its item's settings."""
    criteria = [as_map(entry, "criterion") for entry in maps_in(settings.get("evaluators"))]
    known = {as_text(each, "name"): criterion_scale(each) for each in criteria}
    return {name: scale for name, scale in known.items() if scale is not None}


def score_scales(results: Iterable[Result]) -> dict[str, Scale]:
    """The scales that all scores of an evaluator declare alike, by measure."""
    found: dict[str, set[Scale | None]] = {}
    for result in results:
        for score in maps_in(result.get("scores")):
            ends = [end for each in as_list(score, "scale") if (end := as_number(each)) is not None]
            scale = (ends[0], ends[1]) if len(ends) == 2 else None
            found.setdefault(f"score.{score['evaluator']}", set()).add(scale)
    return {name: scale for name, (scale, *others) in found.items() if scale is not None and not others}


def measures(rows: Rows) -> list[str]:
    """The numeric columns of rows that are measures."""
    return measures_of(rows, ignored=NOT_MEASURES)


def analysis(
    rows: Rows,
    measure: str = "",
    *,
    by: str = "",
    against: str = "",
    scales: Mapping[str, Scale] | None = None,
) -> list[JsonObject]:
    """Every measure there is, or the one that is named, as plain data.

    `by` is the factor whose effect is estimated; without one, the therapist. All effects are one family.
    `scales` are those that evaluators declare, by measure.
    """
    known = measures(rows)
    if measure and measure not in known:
        raise NotFound(f"the sessions have no numeric column `{measure}`\nThere are: {', '.join(known)}.")
    if by and not any(row.get(by) is not None for row in rows):
        raise NotFound(f"the sessions have no factor `{by}`\nThere are: {', '.join(DESIGN.factors)}.")
    chosen = [measure] if measure else known
    figures = crossings(DESIGN, rows, chosen, by=by or THERAPIST, against=against, scales=scales)
    return [_plain(each) for each in figures]


def _plain(crossing: Crossing) -> JsonObject:
    plain = asdict(crossing)
    return {**plain, "cells": [plain_cell(cell) for cell in plain["cells"]]}


def plain_cell(cell: Mapping[str, Any]) -> JsonObject:
    """A cell with its client and its therapist."""
    return {**cell["levels"], **{name: value for name, value in cell.items() if name != "levels"}}


def with_distinct_names(rows: Rows) -> list[dict[str, Any]]:
    """The rows, with names that tell levels apart: a side that several models played is several sides, and
    profiles of one name and different people are several profiles.
    """
    models: dict[tuple[str, object], set[object]] = {}
    people: dict[object, set[object]] = {}
    for row in rows:
        people.setdefault(row.get("profile"), set()).add(row.get("patient_name"))
        for side in SIDES:
            models.setdefault((side, row.get(side)), set()).add(row.get(f"{side}_model"))
    return [
        {
            **row,
            **{
                side: f"{row[side]} ({row[f'{side}_model']})"
                for side in SIDES
                if len(models[side, row.get(side)]) > 1
            },
            **(
                {"profile": f"{row['profile']} ({row.get('patient_name')})"}
                if row.get("profile") is not None and len(people[row["profile"]]) > 1
                else {}
            ),
        }
        for row in rows
    ]
