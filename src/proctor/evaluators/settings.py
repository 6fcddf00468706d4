"""How evaluators are to judge, apart from what each of them asks.

Everything from outside comes in here: who the judge is, and where programs of the user's own run.

Knows nothing of evaluators.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ONE_VOTE_TEMPERATURE = 0.0
# At 0 three votes of most models are one vote counted three times.
SEVERAL_VOTES_TEMPERATURE = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """What holds for all evaluators of one job."""

    judge_model: str = ""
    """Who judges where an evaluator does not say itself, as `provider/model`. Empty: nobody."""
    votes: int = 1
    """How often a judge is asked about each thing; the majority's label and the mean value count."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """What the judge is asked with: temperature, max_tokens. Its own definition's win."""
    structured: bool = True
    """Whether the judge's provider is asked to hold its answer to a JSON schema."""
    harmful_value: float = 1.0
    """What `Harmful` and `Stereotyping` are worth, 1 or 0; their opposites are worth the rest."""
    model_names: Mapping[str, str] = field(default_factory=dict)
    """Whom to ask for a model id of a definition, where that is not what we would guess."""
    lambdas: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """What to run for a function's ARN: `module:function`, or a program and its arguments."""
    folder: Path = Path()
    """Where the user's functions and programs are found and run, and relative paths begin."""
    folders: Sequence[Path] = ()
    """Folders with definitions, which are then known by the names of their files."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """All that the user's functions and programs see of the environment: no keys, no tokens."""
    attempt: str = "evaluation"
    """What processes are marked with, so that all of them can be found and ended."""

    @property
    def asked_with(self) -> dict[str, Any]:
        """The parameters of every call of a judge."""
        temperature = ONE_VOTE_TEMPERATURE if self.votes == 1 else SEVERAL_VOTES_TEMPERATURE
        return {"temperature": temperature, **self.parameters}
