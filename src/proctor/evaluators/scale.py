"""What a judge may answer: labels, what each means, and what it is worth.

A numerical scale gives each label a value; a categorical one has labels alone.

Knows nothing of questions or models.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Rating:
    """One possible answer."""

    label: str
    value: float | None = None
    """None: a label and no more."""
    definition: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """All possible answers to one question."""

    ratings: tuple[Rating, ...]

    @property
    def labels(self) -> list[str]:
        return [rating.label for rating in self.ratings]

    @property
    def is_numerical(self) -> bool:
        return all(rating.value is not None for rating in self.ratings)

    @property
    def plain(self) -> list[list[Any]]:
        """What a digest is made from."""
        return [[rating.label, rating.value, rating.definition] for rating in self.ratings]

    @property
    def words(self) -> str:
        """The scale as a judge reads it."""
        return "\n".join(
            f"- {rating.label}" + (f": {rating.definition}" if rating.definition else "")
            for rating in self.ratings
        )

    def read(self, said: str) -> Rating | None:
        """The rating a judge means; None when it names none, or several."""
        said = said.strip().strip("\"'`.").casefold()
        exact = [rating for rating in self.ratings if rating.label.casefold() == said]
        if exact:
            return exact[0]
        if (worth := _number(said)) is not None:
            same = [rating for rating in self.ratings if rating.value == worth]
            return same[0] if len(same) == 1 else None
        named = [rating for rating in self.ratings if _stands_in(rating.label, said)]
        # `not harmful` also names `harmful`; the longer label is the one that was meant.
        longest = [
            rating
            for rating in named
            if not any(rating is not other and _stands_in(rating.label, other.label) for other in named)
        ]
        return longest[0] if len(longest) == 1 else None


def numerical(ratings: Mapping[str, float], definitions: Mapping[str, str] | None = None) -> Scale:
    """A scale whose labels are worth something."""
    told = definitions or {}
    return Scale(tuple(Rating(label, value, told.get(label, "")) for label, value in ratings.items()))


def scale_of(document: Mapping[str, Sequence[Mapping[str, Any]]]) -> Scale:
    """The scale of a (checked) rating scale in a definition: `numerical` or `categorical`."""
    entries = document.get("numerical") or document.get("categorical") or ()
    return Scale(
        tuple(
            Rating(
                entry["label"],
                float(entry["value"]) if "numerical" in document else None,
                entry["definition"],
            )
            for entry in entries
        )
    )


def _number(said: str) -> float | None:
    return float(said) if re.fullmatch(r"-?\d+(\.\d+)?", said) else None


def _stands_in(label: str, text: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(label.casefold())}(?!\w)", text.casefold()))
