"""What a function or program of the user's own came to, as a score.

`{"label", "value", "explanation"}` or `{"errorCode", "errorMessage"}`; plain values are understood too: a
truth value is a check, a number a value, a text a label.

Knows nothing of processes.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from proctor.score import Score

LONGEST_LABEL, LONGEST_EXPLANATION = 1000, 20_000
INVALID = "InvalidResult"


def scored(about: Score, outcome: Any) -> Score:
    """The score `about` a target with what its function said of it."""
    if isinstance(outcome, bool):
        return replace(about, value=float(outcome), label="pass" if outcome else "fail")
    if isinstance(outcome, int | float):
        return _measured(about, outcome, "", "")
    if isinstance(outcome, str):
        return (
            replace(about, label=outcome[:LONGEST_LABEL]) if outcome.strip() else _invalid(about, "no label")
        )
    if isinstance(outcome, Mapping):
        return _told(about, outcome)
    return _invalid(about, f"it is {'nothing' if outcome is None else type(outcome).__name__}")


def failed(about: Score, message: str, code: str) -> Score:
    """The score of a target that could not be judged."""
    return replace(about, error=message[:LONGEST_EXPLANATION], error_code=code[:LONGEST_LABEL])


def _told(about: Score, outcome: Mapping[str, Any]) -> Score:
    code, message = outcome.get("errorCode"), outcome.get("errorMessage")
    if code or message:
        return failed(about, str(message or code), str(code or "EvaluatorError"))
    label, value = outcome.get("label"), outcome.get("value")
    if label is None and value is None:
        return _invalid(about, "it has neither label nor value")
    if label is not None and not isinstance(label, str | bool | int | float):
        return _invalid(about, "its label is no text")
    explanation = str(outcome.get("explanation") or "")
    words = "" if label is None else str(label)
    if value is None:
        return replace(about, label=words[:LONGEST_LABEL], explanation=explanation[:LONGEST_EXPLANATION])
    return _measured(about, value, words, explanation)


def _measured(about: Score, value: Any, label: str, explanation: str) -> Score:
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        return _invalid(about, f"its value is no number: {str(value)[:80]}")
    return replace(
        about,
        value=number,
        label=label[:LONGEST_LABEL],
        explanation=explanation[:LONGEST_EXPLANATION],
    )


def _invalid(about: Score, why: str) -> Score:
    return failed(about, f"what it returned is no score: {why}", INVALID)
