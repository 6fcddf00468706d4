"""What a reader of an evaluation's averages has to know beside them.

Several versions of an evaluator, judges that only rehearse, intervals that are nothing but the judge's noise,
ground truth that nobody had a use for.

Knows nothing of how averages are made.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from proctor.store import Reader

MOST_NAMED = 4


def versions_remarks(versions: Mapping[str, set[str]]) -> Iterator[str]:
    """Of evaluators that judged in more than one version."""
    for name, digests in versions.items():
        if len(digests) > 1:
            yield f"{name} judged in {len(digests)} versions, which are not comparable and stand apart"


def rehearsal_remarks(read: Reader, run_id: str) -> Iterator[str]:
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


def unused_truth_remarks(read: Reader, run_id: str) -> Iterator[str]:
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
        for field in json.loads(row["ignored"] or "[]"):
            if row["evaluator"] not in ignoring[field]:
                ignoring[field].append(row["evaluator"])
    if ignoring:
        parts = [
            f"{field} by {'any evaluator' if len(names) == len(judging) else _named(names)}"
            for field, names in sorted(ignoring.items())
        ]
        yield f"ground truth that was given and not used: {'; '.join(parts)}"


def _named(names: list[str]) -> str:
    further = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {further} more" if further > 0 else "")
