"""Say why an item is new: which of its fields differ from the nearest one that was there before.

Knows nothing of plans or of how earlier items were kept.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from proctor.item import Item

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
