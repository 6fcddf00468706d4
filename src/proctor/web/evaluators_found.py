"""The evaluators that can be named here: ours, those in files, those in the store, with their scales.

Knows nothing of how anything is judged.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.evaluators import definition_files, read_definition
from proctor.evaluators.builtins import JUDGED, PREFIX, Builtin
from proctor.evaluators.trajectory import MATCHINGS
from proctor.web.judging_shapes import EvaluatorShape, RatingShape
from proctor.web.site import Site

KINDS = {"llmAsAJudge": "judge", "codeBased": "code", "derived": "derived"}
YES_NO = {"Yes": 1.0, "No": 0.0}
PAGE = 500


def found_evaluators(site: Site) -> list[EvaluatorShape]:
    """Every evaluator that can be named on the page."""
    return [*_built_in(), *_in_files(site), *_stored(site)]


def ratings_of(site: Site, evaluator: str, dimension: str = "") -> list[RatingShape]:
    """What an evaluator may answer; nothing when that is not known, or anything goes."""
    if evaluator in MATCHINGS:
        return _ratings(YES_NO)
    if evaluator.startswith(PREFIX):
        one = JUDGED.get(evaluator.removeprefix(PREFIX))
        return _ratings(one.ratings) if one else []
    document: Mapping[str, Any] | None = site.store.definitions.document(evaluator)
    if document is None:
        document = next((each for each in map(_read, _files(site)) if each and _is(each, evaluator)), None)
    return scale_of(document, dimension) if document else []


def order_of(site: Site, evaluator: str, dimension: str) -> list[str]:
    """The labels of an evaluator, lowest first; empty when they have no order."""
    found = ratings_of(site, evaluator, dimension)
    if any(rating.value is None for rating in found):
        return []
    return [rating.label for rating in sorted(found, key=lambda rating: rating.value or 0.0)]


def scale_of(document: Mapping[str, Any], dimension: str = "") -> list[RatingShape]:
    """The scale of a definition, or of one of its dimensions."""
    judge = (document.get("evaluatorConfig") or {}).get("llmAsAJudge") or {}
    scale = judge.get("ratingScale") or {}
    for each in scale.get("multiDimensional") or ():
        if each.get("dimensionName") == dimension:
            scale = each.get("dimensionRatingScale") or {}
    entries = scale.get("numerical") or scale.get("categorical") or ()
    return [RatingShape(label=entry["label"], value=entry.get("value")) for entry in entries]


def _built_in() -> Iterator[EvaluatorShape]:
    for name, one in JUDGED.items():
        yield EvaluatorShape(
            name=PREFIX + name,
            id=PREFIX + name,
            level=one.level,
            kind="judge",
            asks_model=True,
            source="Proctor",
            judges=_sentence(one),
            reference=one.reference,
            ratings=_ratings(one.ratings),
        )
    for name, matching in MATCHINGS.items():
        yield EvaluatorShape(
            name=name,
            id=name,
            level="session",
            kind="program",
            asks_model=False,
            source="Proctor",
            judges=f"{matching.words} of the tools that were called with those expected",
            reference="expectedTrajectory",
            needs_reference=True,
            ratings=_ratings(YES_NO),
        )


def _sentence(one: Builtin) -> str:
    return one.judges[:1].upper() + one.judges[1:]


def _files(site: Site) -> list[Path]:
    return list(definition_files([site.folder / "evaluators", site.home / "evaluators"]))


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        return read_definition(path)
    except UsageError:
        return None


def _is(document: Mapping[str, Any], name: str) -> bool:
    return bool(document.get("evaluatorName") == name)


def _in_files(site: Site) -> Iterator[EvaluatorShape]:
    for path in _files(site):
        try:
            document = read_definition(path)
        except UsageError as error:
            yield EvaluatorShape(
                name=path.stem,
                id=path.stem,
                level="",
                kind="",
                asks_model=False,
                source=str(path),
                judges="",
                problem=str(error).partition("\n")[0],
            )
            continue
        config = document["evaluatorConfig"]
        kind = next(each for each in KINDS if config.get(each) is not None)
        yield EvaluatorShape(
            name=document["evaluatorName"],
            id=path.stem,
            level=document["level"].lower(),
            kind=KINDS[kind],
            asks_model=kind != "codeBased",
            source=path.name,
            judges=document.get("description") or "",
            ratings=scale_of(document),
        )


def _stored(site: Site) -> Iterator[EvaluatorShape]:
    last = ""
    while rows := site.store.definitions.evaluators(after=last, limit=PAGE):
        for row in rows:
            yield EvaluatorShape(
                name=row["name"],
                id=row["id"],
                level=row["level"].lower(),
                kind=KINDS[row["kind"]],
                asks_model=row["kind"] != "codeBased",
                source="the store",
                judges=row["description"],
            )
        last = rows[-1]["id"]


def _ratings(given: Mapping[str, float]) -> list[RatingShape]:
    return [RatingShape(label=label, value=value) for label, value in given.items()]
