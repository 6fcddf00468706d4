"""Which of two sessions of one task is better: a judge is asked in both orders.

A judge tends to prefer the place, not the session. A session wins only if it does in both orders; everything
else is a tie, and what was decided by the place has a label of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from proctor.errors import UsageError
from proctor.evaluator import Evidence, failed_score
from proctor.evaluators.judging import (
    Judge,
    Question,
    Rating,
    Scale,
    messages_of,
    places_in,
    plain_question,
    total_score,
    verdicts,
)
from proctor.evaluators.model_judge import NOT_VALID, NOTHING_THERE, too_long
from proctor.evaluators.rendering import pieces_of, targets_of, turns_of
from proctor.item import digest_of
from proctor.model_client import together
from proctor.score import Level, Score

PAIRWISE = "Builtin.Pairwise"
QUESTION = "Which one did the task better?"
FIRST, SECOND, TIE = "First", "Second", "Tie"
FIRST_PLACE, SECOND_PLACE = "First place", "Second place"
"""Labels of a pair in which the same place was preferred in both orders: a tie that the place decided."""
_SCALE = Scale((Rating(FIRST), Rating(SECOND), Rating(TIE)))
_FORM = """Two AI agents were given the same task.

The first:
{first_session}

The second:
{second_session}

%s
Judge what they did, not their order, length or style. Answer Tie if neither is better."""
_LABELS = {
    (FIRST, SECOND): FIRST,
    (SECOND, FIRST): SECOND,
    (FIRST, FIRST): FIRST_PLACE,
    (SECOND, SECOND): SECOND_PLACE,
}
"""The label of a pair by the verdicts in order and swapped; all others are ties."""


def check_question(text: str) -> None:
    """Raise `UsageError` if a question has placeholders: the sessions are shown without."""
    if places_in(text):
        raise UsageError(
            "the question has a placeholder in braces\nWrite it without: the sessions are shown."
        )


@dataclass(frozen=True, kw_only=True)
class PairwiseJudge:
    """A model that is asked which of two sessions is better, in both orders.

    Its verdict is a label without a value: it says nothing about one session alone.
    """

    judge_model: Judge
    asks: str = QUESTION
    name: str = PAIRWISE
    level: Level = "session"

    @cached_property
    def question(self) -> Question:
        """The question with its form and scale."""
        return plain_question(_FORM.replace("%s", self.asks), _SCALE)

    @property
    def digest(self) -> str:
        """Changes with the question and the judge."""
        return digest_of(["pairwise", self.question.plain, self.judge_model.plain])[:16]

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """One score. Raises `ModelError` when a call fails."""
        other = evidence.compared_with
        if other is None:
            return [failed_score(self, "there is no second session to compare with", NOT_VALID)]
        if not (turns_of(evidence) and turns_of(other)):
            return [failed_score(self, "one of the two sessions is empty", NOTHING_THERE)]
        one, two = _text(evidence), _text(other)
        orders = [self._messages(one, two), self._messages(two, one)]
        if problem := too_long(orders[0], "compare"):
            return [failed_score(self, problem, NOT_VALID)]
        about = Score(evaluator=self.name, evaluator_digest=self.digest)
        (straight,), (swapped,) = await together(
            [verdicts(self.judge_model, self.question, messages, about) for messages in orders]
        )
        reasons = f"Shown first: {straight.explanation}\nShown second: {swapped.explanation}"
        verdict = replace(
            about,
            label=_LABELS.get((straight.label, swapped.label), TIE),
            explanation=f"Compared with {other.session_id}.\n{reasons}",
        )
        if failed := next((each for each in (straight, swapped) if each.error), None):
            verdict = replace(about, error=failed.error, error_code=failed.error_code)
        return [total_score(verdict, [straight, swapped])]

    def _messages(self, first: str, second: str) -> Sequence[Mapping[str, str]]:
        return messages_of(self.question, {"first_session": first, "second_session": second})


def _text(evidence: Evidence) -> str:
    (target,) = targets_of(evidence, "session")
    return pieces_of(evidence, target, None)["context"]
