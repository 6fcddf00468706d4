"""Extend a batch to the items that its plan has now, or show the difference.

An item is identified by its inputs, so a changed plan extends its batch: unchanged items keep their
results, new ones are added with the field that made them new, and queued items the plan no longer has are
dropped. The same for every job.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from proctor.formatting import plural
from proctor.item import FINISHED, QUEUED, Item
from proctor.json_values import JsonMap
from proctor.store import Store, StoreReader
from proctor.store.reader import ItemInput

_ABSENT = object()


def what_changed(new: Item, old: Iterable[JsonMap]) -> list[str]:
    """The fields in which an item differs from the most similar of the `old` inputs.

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


def _differing(inputs: JsonMap, earlier: JsonMap) -> list[str]:
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
    retained: int = 0
    """Items with results that the plan no longer has."""
    done: int = 0
    """Items of the plan that have a result."""
    new: Sequence[Item] = field(default=(), repr=False)
    """The items that were added, in the plan's order."""

    def sentences(self, noun: str) -> list[str]:
        """Messages about new items, with the reasons, and removed ones. Empty when nothing changed."""
        lines = []
        if self.added:
            reasons = self.reasons_text(noun)
            lines.append(f"{plural(self.added, f'new {noun}')} since the last run ({reasons})")
        if self.dropped or self.retained:
            lines.append(
                f"no longer in the plan: {self.dropped} dropped from the queue, "
                f"{self.retained} with results kept"
            )
        return lines

    def reasons_text(self, noun: str) -> str:
        """Why items are new: how many because of which field."""
        numbers = (f"{plural(number, noun)}: {name}" for name, number in self.reasons.items())
        return f"new because of {'; '.join(numbers)}"


def extend(
    store: Store,
    run_id: str,
    columns: JsonMap,
    items: Iterable[Item],
    *,
    derived_fields: frozenset[str] = frozenset(),
) -> Extension:
    """Extend a batch to the items a plan has now. This process must own the batch.

    `derived_fields` only repeat other fields of an item: they are never named as a reason.
    """
    difference = _compare(store.read, run_id, items)
    store.extend_batch(
        run_id, columns, add=difference.new, settle=difference.known.values(), drop=difference.dropped
    )
    return difference.extension(derived_fields)


def importing(items: Iterable[Item], imported: Collection[str]) -> Extension:
    """What is left to run of a plan whose new run begins with results from elsewhere."""
    new = [item for item in items if item.id not in imported]
    return Extension(added=len(new), reasons={"not started there": len(new)} if new else {}, new=new)


def diff(
    read: StoreReader, run_id: str, items: Iterable[Item], *, derived_fields: frozenset[str] = frozenset()
) -> Extension:
    """What `extend` would change in a batch; changes nothing."""
    return _compare(read, run_id, items).extension(derived_fields)


@dataclass(frozen=True, slots=True)
class _BatchDiff:
    """The items of a batch, paired with those of a plan."""

    earlier: Mapping[str, ItemInput]
    new: list[Item]
    known: Mapping[str, Item]

    @property
    def gone(self) -> list[ItemInput]:
        return [row for item_id, row in self.earlier.items() if item_id not in self.known]

    @property
    def dropped(self) -> list[str]:
        return [row["id"] for row in self.gone if row["status"] == QUEUED]

    def extension(self, derived_fields: frozenset[str]) -> Extension:
        """What changes when the plan is applied, and why each new item is new."""
        return Extension(
            added=len(self.new),
            reasons=Counter(_reasons(self.new, self.earlier.values(), derived_fields)),
            dropped=len(self.dropped),
            retained=len(self.gone) - len(self.dropped),
            done=sum(self.earlier[item_id]["status"] in FINISHED for item_id in self.known),
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


def _reasons(new: list[Item], earlier: Iterable[ItemInput], derived_fields: frozenset[str]) -> Iterator[str]:
    # Comparing each with each would take minutes for large plans; the first ones suffice.
    sample = [
        {"runner": row["runner"], "agent": row["agent"], "model": row["model"], "prompt": row["prompt"]}
        | json.loads(row["details"])
        for row, _ in zip(earlier, range(2000), strict=False)
    ]
    for item in new[:500]:
        yield ", ".join(name for name in what_changed(item, sample) if name not in derived_fields) or "repeat"
