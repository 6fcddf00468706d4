"""What people said of sessions, from a file or from the store."""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from proctor.analyse.calibration import Opinion
from proctor.errors import UsageError
from proctor.store import Store

COLUMNS = {
    "session": ("session", "session_id", "sessionid"),
    "target": ("target", "trace", "trace_id", "traceid", "tool_call"),
    "dimension": ("dimension",),
    "who": ("who", "rater", "annotator"),
    "label": ("label",),
    "value": ("value", "score"),
}
"""What a file of labels may call its columns."""

Thing = tuple[str, str]
"""A session, by the name it was labelled under, and a target in it."""
Labels = dict[str, dict[Thing, dict[str, Opinion]]]
"""By dimension, thing, and who said it."""


def labels_from_file(path: Path) -> Labels:
    """The labels in a CSV file; what is wrong with one is said with its line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: {error}") from error
    return _gathered(_renamed(path, number, row) for number, row in enumerate(rows, 2))


def _renamed(path: Path, number: int, row: Mapping[Any, Any]) -> dict[str, Any]:
    bare = {
        str(key).strip().casefold(): (value or "").strip()
        for key, value in row.items()
        if isinstance(value, str)
    }
    found: dict[str, Any] = {
        name: next((bare[each] for each in known if bare.get(each)), "") for name, known in COLUMNS.items()
    }
    if not found["session"] or not (found["label"] or found["value"]):
        raise UsageError(f"{path}:{number}: a label needs a session, and a label or a value")
    try:
        found["value"] = float(found["value"]) if found["value"] else None
    except ValueError:
        raise UsageError(f"{path}:{number}: `{found['value']}` is no number") from None
    return found


def kept_labels(store: Store, evaluator: str) -> Labels:
    """The labels that people have given for an evaluator."""
    rows = store.labels(evaluator=evaluator)
    return _gathered({**row, "session": row["sessionId"]} for row in rows)


def _gathered(rows: Iterable[Mapping[str, Any]]) -> Labels:
    told: Labels = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        opinion = Opinion(label=row["label"], value=row["value"])
        told[row["dimension"]][row["session"], row["target"]][row["who"] or "someone"] = opinion
    return told
