"""Make a batch of items, or bring an earlier one up to the items that are asked for now.

Items are known by what they ask for, so a changed plan extends its batch: what is the same keeps
its results, what is new is added and told with the field that made it new, what is gone and has
no result is dropped. The same for every job.

Knows nothing of plans, or of how items are carried out.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from proctor.item import QUEUED, RUNNING, Item
from proctor.store import Store, StoreReader, timestamp

# Say why an item is new: which of its fields differ from the nearest one that was there before.


_ABSENT = object()


def what_changed(new: Item, old: Iterable[Mapping[str, Any]]) -> list[str]:
    """The fields in which `new` differs from the nearest of the earlier `inputs`.

    `["runs"]` when it is one more repeat of an earlier item; empty when there was none before.
    """
    inputs = new.inputs
    nearest: list[str] | None = None
    for earlier in old:
        differing = _differing(inputs, earlier)
        if not differing:
            return ["runs"]
        if nearest is None or len(differing) < len(nearest):
            nearest = differing
    return nearest or []


def _differing(inputs: Mapping[str, Any], earlier: Mapping[str, Any]) -> list[str]:
    names = dict.fromkeys((*inputs, *earlier))
    return [name for name in names if inputs.get(name, _ABSENT) != earlier.get(name, _ABSENT)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """What a changed plan changed in its batch."""

    added: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    """How many items are new because of each field, or combination of fields."""
    dropped: int = 0
    """Items that were queued and that the plan no longer has."""
    kept: int = 0
    """Items with results that the plan no longer has."""
    new: Sequence[Item] = field(default=(), repr=False)
    """The items that were added, in the plan's order."""


def create(
    store: Store,
    job: str,
    asked: Mapping[str, Any],
    items: Iterable[Item],
    *,
    run_id: str,
    owner: str,
    version: str,
    now: datetime,
) -> int:
    """Write a new batch with all its items; how many those are.

    `asked` are the columns that tell what was asked for: the plan's text and path, the options.
    """
    row = {
        "runId": run_id,
        "createdAt": timestamp(now),
        "job": job,
        "status": RUNNING,
        "owner": owner,
        "heartbeatAt": timestamp(now),
        "proctorVersion": version,
        **asked,
    }
    return store.create_batch(row, items)


def extend(
    store: Store, run_id: str, asked: Mapping[str, Any], items: Iterable[Item], *, follows: str = ""
) -> Extension:
    """Bring a batch up to what is asked for now. The batch must be ours.

    `follows` is a field of this job's items that only repeats what others say: it is no reason.
    """
    compared = _compare(store.read, run_id, items)
    store.extend_batch(run_id, asked, add=compared.new, settle=compared.known.values(), drop=compared.dropped)
    return compared.extension(follows)


def diff(read: StoreReader, run_id: str, items: Iterable[Item], *, follows: str = "") -> Extension:
    """What `bring_up` would change in a batch. It changes nothing."""
    return _compare(read, run_id, items).extension(follows)


@dataclass(frozen=True, slots=True)
class _BatchDiff:
    """A batch's items beside those that are asked for now."""

    earlier: Mapping[str, Mapping[str, Any]]
    new: list[Item]
    known: Mapping[str, Item]

    @property
    def gone(self) -> list[Mapping[str, Any]]:
        return [row for item_id, row in self.earlier.items() if item_id not in self.known]

    @property
    def dropped(self) -> list[str]:
        return [row["id"] for row in self.gone if row["status"] == QUEUED]

    def extension(self, follows: str) -> Extension:
        return Extension(
            added=len(self.new),
            reasons=Counter(_reasons(self.new, self.earlier.values(), follows)),
            dropped=len(self.dropped),
            kept=len(self.gone) - len(self.dropped),
            new=self.new,
        )


def _compare(read: StoreReader, run_id: str, items: Iterable[Item]) -> _BatchDiff:
    earlier = {row["id"]: row for row in read.item_inputs(run_id)}
    new, known = list[Item](), dict[str, Item]()
    for item in items:
        if item.id in earlier:
            known[item.id] = item
        else:
            new.append(item)
    return _BatchDiff(earlier, new, known)


def _reasons(new: list[Item], earlier: Iterable[Mapping[str, Any]], follows: str) -> Iterator[str]:
    # Comparing each with each would take minutes for large plans; the first ones tell the story.
    sample = [
        {"runner": row["runner"], "agent": row["agent"], "model": row["model"], "prompt": row["prompt"]}
        | json.loads(row["details"])
        for row, _ in zip(earlier, range(2000), strict=False)
    ]
    for item in new[:500]:
        yield ", ".join(name for name in what_changed(item, sample) if name != follows) or "repeat"
