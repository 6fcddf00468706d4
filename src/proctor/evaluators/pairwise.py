"""Which of two sessions of one task is better: a judge is asked in both orders.

A judge tends to prefer the place, not the session. A session wins only if it does in both orders; everything
else is a tie, and what was decided by the place is counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proctor.errors import ModelError
from proctor.evaluator import Evidence
from proctor.evaluators.judging import (
    Judge,
    Question,
    Rating,
    Scale,
    messages_of,
    places_in,
    plain_question,
    verdicts,
)
from proctor.evaluators.model_judge import MOST_INPUT_TOKENS, estimated_tokens
from proctor.evaluators.rendering import pieces_of, targets_of
from proctor.model_client import together
from proctor.score import Score

QUESTION = "Which one did the task better?"
FIRST, SECOND, TIE = "First", "Second", "Tie"
_SCALE = Scale((Rating(FIRST), Rating(SECOND), Rating(TIE)))
_FORM = """Two AI agents were given the same task.

The first:
{first_session}

The second:
{second_session}

%s
Judge what they did, not their order, length or style. Answer Tie if neither is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """The judgment of two sessions, in both orders."""

    straight: str = ""
    """`First`, `Second` or `Tie`, with the first session first."""
    swapped: str = ""
    """The same with the second session first."""
    cost_usd: float | None = None
    error: str = ""
    """Why it could not be judged."""

    @property
    def score(self) -> float:
        """Of the first session: 1 if it won in both orders, 0 if it lost in both, else 0.5."""
        return {(FIRST, SECOND): 1.0, (SECOND, FIRST): 0.0}.get((self.straight, self.swapped), 0.5)

    @property
    def by_place(self) -> str:
        """The place that was preferred in both orders; empty: it did not decide."""
        return self.straight if self.straight == self.swapped and self.straight != TIE else ""


def pairwise_question(text: str) -> Question | None:
    """The question to the judge; None: the text has placeholders, which it may not have."""
    return None if places_in(text) else plain_question(_FORM.replace("%s", text), _SCALE)


async def prefer(judge: Judge, question: Question, first: Evidence, second: Evidence) -> Preference:
    """Judge two sessions in both orders. What fails is an `error`."""
    one, other = _text(first), _text(second)
    try:
        straight, swapped = await together(
            [_ask(judge, question, one, other), _ask(judge, question, other, one)]
        )
    except ModelError as error:
        return Preference(error=str(error))
    costs = [each.cost_usd for each in (straight, swapped) if each.cost_usd is not None]
    return Preference(
        straight=straight.label,
        swapped=swapped.label,
        cost_usd=sum(costs) if costs else None,
        error=straight.error or swapped.error,
    )


async def _ask(judge: Judge, question: Question, first: str, second: str) -> Score:
    pieces = {"first_session": first, "second_session": second}
    messages: Sequence[Mapping[str, str]] = messages_of(question, pieces)
    about = Score(evaluator="pairwise")
    size = sum(estimated_tokens(each["content"]) for each in messages)
    if size > MOST_INPUT_TOKENS:
        return Score(evaluator="pairwise", error=f"about {size:,} tokens, more than {MOST_INPUT_TOKENS:,}")
    (score,) = await verdicts(judge, question, messages, about)
    return score


def _text(evidence: Evidence) -> str:
    (target,) = targets_of(evidence, "session")
    return pieces_of(evidence, target, None)["context"]
