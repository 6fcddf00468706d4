"""Which models are meant by the words on a command line.

A word is a model's name, `provider/name`, a part of a name that only one model has, a category, or
`all`. A word that fits nothing, or several things, is an error that lists what is near it.

Knows nothing of providers or of how models are found.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from proctor.errors import NotFound, UsageError

EVERYTHING = "all"
LISTED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model that could be chosen."""

    name: str
    """What it is called in files and reports. Ollama's tags are kept."""
    model: str
    """`provider/model`, as it is asked."""
    display_name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of its calls."""
    is_usual: bool = True
    """Whether `all` means it too. Those of a hosted provider, which cost money, are named one by one."""
    is_enabled: bool = True
    """Whether a category means it too. What is not enabled is still asked when it is named itself."""
    missing: str = ""
    """Why it cannot be chosen; empty: it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What the words came to."""

    models: tuple[Candidate, ...]
    remarks: tuple[str, ...] = ()
    """Members of categories that are not there."""


def choose(
    words: str,
    candidates: Sequence[Candidate],
    categories: Mapping[str, Sequence[str]],
    other: Callable[[str], Candidate | None],
) -> Chosen:
    """The models that `words`, separated by commas, mean; each once, in the order they were named.

    `other` answers for names nobody listed that can be asked all the same.
    """
    chosen, remarks = dict[str, Candidate](), list[str]()
    for word in filter(None, (word.strip() for word in words.split(","))):
        for found in _meant(word, candidates, categories, other, remarks):
            chosen.setdefault(found.name, found)
    if not chosen:
        raise UsageError(
            "no models were found\nStart Ollama (`ollama list` shows its models), enable a model in "
            "models_config.yaml, or name one: --models provider/model. `proctor models` lists what is there."
        )
    return Chosen(models=tuple(chosen.values()), remarks=tuple(remarks))


def _meant(
    word: str,
    candidates: Sequence[Candidate],
    categories: Mapping[str, Sequence[str]],
    other: Callable[[str], Candidate | None],
    remarks: list[str],
) -> list[Candidate]:
    if word.lower() == EVERYTHING:
        return [each for each in candidates if each.is_usual and each.is_enabled and not each.missing]
    if word in categories and not _exact(word, candidates):
        return _members(word, candidates, categories[word], other, remarks)
    found = _one(word, candidates, other)
    if found is None:
        raise _unknown(word, candidates, categories)
    if found.missing:
        raise UsageError(f"the model {found.name} {found.missing}")
    return [found]


def _members(
    category: str,
    candidates: Sequence[Candidate],
    members: Sequence[str],
    other: Callable[[str], Candidate | None],
    remarks: list[str],
) -> list[Candidate]:
    found = list[Candidate]()
    for member in members:
        one, why = None, "was not found"
        try:
            one = _one(member, candidates, other)
        except UsageError as error:
            why = f"is left out: {error}"
        if one is None or one.missing or not one.is_enabled:
            why = (one.missing or "is not enabled") if one else why
            remarks.append(f"of the category {category}, {member} {why}".partition("\n")[0])
        else:
            found.append(one)
    if not found:
        raise NotFound(
            f"none of the models in the category {category} is here: {', '.join(members) or 'it is empty'}\n"
            "`proctor models` lists the models that are."
        )
    return found


def _one(
    word: str, candidates: Sequence[Candidate], other: Callable[[str], Candidate | None]
) -> Candidate | None:
    """The one model a word means: the closest kind of likeness that any model has decides."""
    if exact := _exact(word, candidates):
        return exact
    likenesses: tuple[Callable[[Candidate], bool], ...] = (
        lambda each: _same_but_tag(word, each, latest=True),
        lambda each: _same_but_tag(word, each, latest=False),
    )
    for likeness in likenesses:
        if found := _only(word, filter(likeness, candidates)):
            return found
    # A bare word is rather part of a name that is here than the whole name of one that is not.
    if "/" in word and (found := other(word)):
        return found
    part = word.lower()
    near = (each for each in candidates if part in each.name.lower() or part in each.model.lower())
    return _only(word, near) or (None if "/" in word else other(word))


def _exact(word: str, candidates: Sequence[Candidate]) -> Candidate | None:
    for kind in ("name", "model", "display_name"):
        for each in candidates:
            if getattr(each, kind).lower() == word.lower():
                return each
    return None


def _same_but_tag(word: str, candidate: Candidate, *, latest: bool) -> bool:
    """`llama3` is `ollama/llama3:latest`, or failing that the one model with another tag."""
    whole, _, tag = candidate.model.rpartition(":") if ":" in candidate.model else (candidate.model, "", "")
    bare = whole.partition("/")[2] or whole
    return word.lower() in (whole.lower(), bare.lower()) and (not latest or tag in ("", "latest"))


def _only(word: str, found: Iterable[Candidate]) -> Candidate | None:
    several = list(found)
    # Something that cannot be chosen is no reason to doubt what is meant.
    usable = [each for each in several if not each.missing]
    several = usable or several
    if len(several) > 1:
        names = ", ".join(each.name for each in several[:LISTED])
        more = f" and {len(several) - LISTED} more" if len(several) > LISTED else ""
        raise UsageError(f"`{word}` may be several models: {names}{more}\nGive more of the name.")
    return several[0] if several else None


def _unknown(word: str, candidates: Sequence[Candidate], categories: Mapping[str, Sequence[str]]) -> NotFound:
    names = {each.name: each.name for each in candidates} | {name: name for name in categories}
    # Someone who mistypes `mistrl` has not typed `ollama/` and the tag.
    names |= {
        each.name.partition("/")[2].partition(":")[0]: each.name for each in candidates if "/" in each.name
    }
    near = dict.fromkeys(names[each] for each in get_close_matches(word, names, n=3, cutoff=0.5))
    hint = f"Did you mean {' or '.join(f'`{each}`' for each in near)}? " if near else ""
    there = ", ".join([*(each.name for each in candidates if each.is_usual)][:LISTED])
    groups = f" Categories: {', '.join(categories)}." if categories else ""
    found = f"Found here: {there}." if there else "No model was found here."
    return NotFound(f"there is no model `{word}`\n{hint}{found}{groups} `proctor models` lists them all.")
