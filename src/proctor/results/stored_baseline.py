"""The stored results of a finished run as the baseline of a check, task by task."""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime

from proctor.errors import NotFound, UsageError
from proctor.item import RUNNING, Item
from proctor.json_values import as_map
from proctor.results.observations import Scale, inputs_of, item_values, level_of, tasks_of
from proctor.stats.adaptive import Pair, stored_pairs
from proctor.stats.results import OF_SIDES, TREATMENT, Inputs, Labels
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
    if row["status"] == RUNNING:
        raise UsageError(
            f"`stop_when`: run {row['runId']} is still running, and so far has what was finished first\n"
            "Wait until it has ended."
        )
    return replace(rule, against=row["runId"])


def with_stored_results(rule: StopRule, items: Sequence[Item], read: StoreReader) -> StopRule:
    """The rule with the baseline run's results by task, in the order of the items. Raises `UsageError`."""
    levels = [level_of(item.factors, rule.by) for item in items]
    reader, ids, stored_levels = inputs_of(items), list[str](), list[str]()
    repeats = [item.repeat for item in items]
    tasks = tasks_of(reader, Labels.of(levels), repeats, rule.unit)
    for page in planned_columns(read, rule.against):
        reader.add(page)
        ids += page["id"]
        repeats += page["repeat"]
        stored_levels += [level_of(as_map(json.loads(text)), rule.by) for text in page["factors"]]
    codes = _codes(reader.inputs(), [f"plan {level}" for level in levels], stored_levels, rule.unit)
    keys = list(zip(codes, repeats if rule.unit == "repeat" else [0] * len(codes), strict=True))
    places: dict[tuple[int, int], dict[int, None]] = {}
    for key, task in zip(keys, tasks, strict=False):
        places.setdefault(key, {})[task] = None
    of_item = {
        item_id: (level, places[key])
        for item_id, level, key in zip(ids, stored_levels, keys[len(items) :], strict=True)
        if key in places
    }
    values: dict[str, dict[int, list[float | None]]] = {}
    for rows in finished_columns(read, rule.against):
        for item_id, value in zip(rows["id"], item_values(rule, read, rows), strict=True):
            if item_id in of_item:
                level, own = of_item[item_id]
                for place in own:
                    values.setdefault(level, {}).setdefault(place, []).append(value)
    scale = Scale.of(rule)
    stored: dict[str, Sequence[Pair]] = {
        level: [scale.pair(pair) for pair in stored_pairs(of_level, max(tasks) + 1, scale.worst)]
        for level, of_level in values.items()
    }
    names = [level for level in dict.fromkeys(levels) if level]
    return replace(rule, stored={level: stored[_stored_level(rule, level, stored)] for level in names})


def _codes(inputs: Inputs, planned: Sequence[str], stored: Sequence[str], unit: str) -> list[int]:
    """The task of each item: what differs between the plan and the run, and makes no tasks, is left out."""
    groups = Labels.of([*planned, *(f"stored {level}" for level in stored)]).codes

    def coded(left_out: Set[str]) -> list[int]:
        codes: list[int] = inputs.coded(*(path for path in inputs.paths if path not in left_out)).tolist()
        return codes

    def size(left_out: Set[str]) -> int:
        return len(set(zip(groups.tolist(), coded(left_out), strict=True)))

    left_out = inputs.treatment(groups)
    for path in TREATMENT:
        # Two agents of one level are two tasks.
        if size(left_out - {path}) > size(left_out):
            left_out = left_out - {path}
    if unit == "repeat" and not set(OF_SIDES) <= {*inputs.paths}:
        # Another text is another task, even where there is only one.
        left_out = left_out - {"prompt"}
    return coded(left_out)


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
