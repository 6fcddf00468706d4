"""The stored results of a finished run as the baseline of a check, task by task."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from proctor.errors import NotFound, UsageError
from proctor.item import Item
from proctor.json_values import as_map
from proctor.results.observations import Scale, inputs_of, item_values, level_of
from proctor.stats.adaptive import Pair, stored_pairs
from proctor.stats.results import Labels
from proctor.stop_rule import StopRule
from proctor.store import StoreReader
from proctor.store.results import finished_columns, planned_columns


def with_baseline_run(rule: StopRule, levels: Sequence[str], read: StoreReader) -> StopRule:
    """The rule with the run that its baseline names, if no level has that name. Raises `UsageError`."""
    if rule.check is None or not rule.baseline or rule.baseline in levels:
        return rule
    try:
        row = read.batch(rule.baseline, datetime.now(UTC))
    except NotFound as error:
        raise UsageError(
            f"`stop_when`: {rule.baseline} is neither a {rule.by} of the plan nor a run\n"
            f"Levels: {', '.join(levels)}. `proctor runs` lists the runs."
        ) from error
    return replace(rule, against=row["runId"])


def with_stored_results(rule: StopRule, items: Sequence[Item], read: StoreReader) -> StopRule:
    """The rule with the baseline run's results by task, in the order of the items. Raises `UsageError`."""
    levels = [level_of(item.factors, rule.by) for item in items]
    reader, ids, stored_levels = inputs_of(items), list[str](), list[str]()
    for page in planned_columns(read, rule.against):
        reader.add(page)
        ids += page["id"]
        stored_levels += [level_of(as_map(json.loads(text)), rule.by) for text in page["factors"]]
    inputs = reader.inputs()
    groups = Labels.of([f"plan {level}" for level in levels] + [f"stored {level}" for level in stored_levels])
    treatment = inputs.treatment(groups.codes)
    codes = inputs.coded(*(path for path in inputs.paths if path not in treatment)).tolist()
    places = {code: place for place, code in enumerate(dict.fromkeys(codes[: len(items)]))}
    of_item = {
        item_id: (level, places[code])
        for item_id, level, code in zip(ids, stored_levels, codes[len(items) :], strict=True)
        if code in places
    }
    values: dict[str, dict[int, list[float | None]]] = {}
    for rows in finished_columns(read, rule.against):
        for item_id, value in zip(rows["id"], item_values(rule, read, rows), strict=True):
            if item_id in of_item:
                level, place = of_item[item_id]
                values.setdefault(level, {}).setdefault(place, []).append(value)
    scale = Scale.of(rule)
    stored: dict[str, Sequence[Pair]] = {
        level: [scale.pair(pair) for pair in stored_pairs(of_level, len(places), scale.worst)]
        for level, of_level in values.items()
    }
    names = [level for level in dict.fromkeys(levels) if level]
    return replace(rule, stored={level: stored[_stored_level(rule, level, stored)] for level in names})


def _stored_level(rule: StopRule, level: str, stored: Mapping[str, object]) -> str:
    """The level of the stored run that one of the plan is compared with: the same, or the only one."""
    if level in stored:
        return level
    if len(stored) == 1:
        return next(iter(stored))
    if not stored:
        raise UsageError(
            f"`stop_when`: run {rule.against} has finished none of the tasks of this plan as they are now\n"
            f"Choose a run of the same tasks, or a {rule.by} of the plan as the baseline."
        )
    raise UsageError(
        f"`stop_when`: run {rule.against} has no {rule.by} {level}, and several others: {', '.join(stored)}\n"
        f"Choose a run with one {rule.by}, or with those of the plan."
    )
