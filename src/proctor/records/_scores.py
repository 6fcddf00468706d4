"""Scores as our own exports keep them in other tools' files, taken back as they were.

Knows nothing of those files.
"""

from typing import Any, get_args

from proctor.records._values import a_cost, a_number, a_text, maps_in
from proctor.score import Level, Score
from proctor.untrusted import whole_number


def scores_of_ours(value: Any) -> list[Score]:
    """The scores of a list, each a mapping of what is known of it."""
    return [score_of_ours(each) for each in maps_in(value) if a_text(each.get("evaluator"))]


def score_of_ours(said: Any) -> Score:
    """One of them."""
    level = said.get("level")
    return Score(
        evaluator=a_text(said.get("evaluator")),
        value=a_number(said.get("value")),
        label=a_text(said.get("label")),
        explanation=a_text(said.get("explanation")),
        level=level if level in get_args(Level) else "session",
        target=a_text(said.get("target")),
        evaluator_digest=a_text(said.get("evaluator_digest")) or a_text(said.get("digest")),
        error=a_text(said.get("error")),
        cost_usd=a_cost(said.get("cost_usd")),
        dimension=a_text(said.get("dimension")),
        error_code=a_text(said.get("error_code")),
        input_tokens=whole_number(said.get("input_tokens")),
        output_tokens=whole_number(said.get("output_tokens")),
    )
