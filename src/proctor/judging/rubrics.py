"""Rubrics: the shipped ones, and how criteria are made of them."""

from collections.abc import Iterator
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path

from proctor.errors import UsageError
from proctor.json_values import (
    JsonMap,
    as_integer,
    as_list,
    as_number,
    as_text,
    require_maps,
    texts_in,
)
from proctor.judging.engine import Criterion

SCALES = ("binary", "scalar", "categorical", "extraction")
RUBRICS = Path(str(files("proctor").joinpath("rubrics")))


def rubric_names() -> list[str]:
    """The built-in rubrics."""
    return sorted(path.stem for path in RUBRICS.glob("*.yaml"))


def criteria_from(written: JsonMap) -> Iterator[Criterion]:
    """The criteria of a rubric: itself, or one for each of its aspects. Raises `UsageError`."""
    aspects = written.get("aspects")
    if not aspects:
        yield _criterion(written, str(written["name"]), "")
        return
    for aspect in require_maps(aspects):
        # Aspects inherit the settings of the entry.
        joined = {**written, **{name: value for name, value in aspect.items() if value is not None}}
        above = as_text(written, "instructions") or as_text(written, "description")
        yield _criterion(joined, f"{written['name']}.{aspect['name']}", above)


def _criterion(written: JsonMap, name: str, above: str) -> Criterion:
    description = as_text(written, "description")
    own = description if above else as_text(written, "instructions") or description
    scale = as_text(written, "scale") or as_text(written, "paradigm") or "scalar"
    low, high = (as_integer(limit) or 0 for limit in as_list(written, "range") or (1, 5))
    labels = tuple(texts_in(written, "labels"))
    passes_at = as_number(written, "passes_at")
    if scale not in SCALES:
        near = get_close_matches(scale, SCALES, n=1)
        remedy = f"Did you mean `{near[0]}`?" if near else f"There are: {', '.join(SCALES)}."
        raise UsageError(f"the evaluator `{name}` has no scale `{scale}`\n{remedy}")
    if scale == "categorical" and len(labels) < 2:
        raise UsageError(f"the evaluator `{name}` is categorical and has no `labels`\nList two or more.")
    if low >= high:
        raise UsageError(f"the range of the evaluator `{name}` is empty: {low} to {high}")
    _check_mark(name, scale, high, passes_at)
    return Criterion(
        name=name,
        instructions="\n".join(part.strip() for part in (above, own) if part.strip()),
        scale=scale,
        level=as_text(written, "level") or "session",
        target=as_text(written, "target"),
        low=low,
        high=high,
        labels=labels,
        sees_profile=bool(written.get("sees_profile")),
        passes_at=passes_at,
    )


def _check_mark(name: str, scale: str, high: float, passes_at: float | None) -> None:
    """Raise when no session could pass, or none could fail."""
    if passes_at is None:
        return
    if scale == "categorical":
        raise UsageError(
            f"the evaluator `{name}` is categorical and has no number to compare with `passes_at`\n"
            "Remove it, or choose another scale."
        )
    most = {"scalar": high, "binary": 1}.get(scale)
    if most is not None and passes_at > most:
        raise UsageError(
            f"no session can pass the evaluator `{name}`: `passes_at` is {passes_at:g}, and it gives at most "
            f"{most:g}\nChoose a lower one."
        )
