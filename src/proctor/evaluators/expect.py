"""Judge a session by its last answer: does it hold what was expected?

Knows nothing of how the answer came about.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.errors import UsageError
from proctor.evaluator import Evidence
from proctor.expect import check_answer, problems_of
from proctor.item import digest_of
from proctor.score import Level, Score


@dataclass(frozen=True, kw_only=True)
class Expect:
    """A check of the answer's text; 1 when every expectation holds, else 0."""

    expect: Mapping[str, Any]
    """Any of `contains`, `equals`, `regex`, `json_schema`."""

    def __post_init__(self) -> None:
        if problems := problems_of(self.expect):
            raise UsageError("; ".join(problems))

    @property
    def name(self) -> str:
        return "expect"

    @property
    def level(self) -> Level:
        return "session"

    @property
    def digest(self) -> str:
        """Changes with what is expected."""
        return digest_of(dict(self.expect))[:16]

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """Score the last thing the assistant said."""
        checks = check_answer(self.expect, evidence.answer)
        broken = [check.explanation for check in checks if not check.holds]
        score = Score(
            evaluator=self.name,
            value=0.0 if broken else 1.0,
            label="fail" if broken else "pass",
            explanation="; ".join(broken or [check.explanation for check in checks]),
            evaluator_digest=self.digest,
        )
        return [score]
