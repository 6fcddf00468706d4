"""What can go wrong, drawn as a family.

    ProctorError
    ├── UsageError            the command asks for what it cannot have; nothing was started
    │   ├── PlanError         the plan does; carries every problem found, each with its place
    │   ├── NotFound          no such run, item, session, agent or model
    │   ├── Contradiction     it contradicts what is there already
    │   └── KeyUnusable       what was named as a key cannot seal anything
    ├── StoreError            the record cannot be read or written
    │   ├── StoreUnavailable  it cannot even be opened; nothing was started
    │   │   └── KeyMissing    it is sealed, and the key is not here
    │   └── OwnershipLost     another process has taken this batch over
    └── AttemptError          one attempt ended early; carries the status and reason it gets
        ├── AgentError        fail    agent_failed   the agent says it could not do it
        ├── WorkspaceError    error   setup_failed   we could not give it a place to work
        ├── ModelError        error   model_failed   the provider did not answer as agreed
        │   └── RateLimited   error   rate_limit
        ├── EvaluatorError    error   evaluator_failed
        ├── TimeLimit         timeout timeout
        ├── CostLimit         fail    cost_limit     it used up the money it was given
        ├── Aborted           error   aborted
        └── Interrupted       error   interrupted

The library raises; only `cli/` and `web/` turn an error into words and an exit code. Once a batch
runs, an `AttemptError` is a result like any other: `batch/` records it and the rest goes on.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar


class ProctorError(Exception):
    """Anything Proctor itself has to say went wrong."""


class UsageError(ProctorError):
    """The command asks for something it cannot have. Nothing has been started."""


class NotFound(UsageError):
    """There is no run, item, session, agent or model by this name."""


class Contradiction(UsageError):
    """What is asked contradicts what is there: a token used for something else, a job not at its end."""


class KeyUnusable(UsageError):
    """What was named as a key is none, or cannot be used."""


@dataclass(frozen=True, slots=True)
class Place:
    """A spot in a text the user wrote."""

    file: str
    line: int
    """Counted from 1."""
    column: int
    """Counted from 1."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a plan: where, what, and what to do about it."""

    at: Place
    problem: str
    remedy: str = ""
    excerpt: str = ""
    """The line of the file itself; empty when there is none to show."""

    def __str__(self) -> str:
        shown = [f"{self.at}: {self.problem}"]
        if self.excerpt:
            shown.append(f"{self.at.line:>4} | {self.excerpt}")
        if self.remedy:
            shown.append(self.remedy)
        return "\n".join(shown)


class PlanError(UsageError):
    """The plan asks for something it cannot have. Nothing has been started."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n\n".join(map(str, problems)))
        self.problems = list(problems)


class StoreError(ProctorError):
    """The record cannot be read or written."""


class StoreUnavailable(StoreError):
    """The record cannot be opened here. Nothing has been started."""


class KeyMissing(StoreUnavailable):
    """What is asked for is sealed, and the key it is sealed under is not here."""


class OwnershipLost(StoreError):
    """Another process has taken this batch over; this one must stop without writing."""


class AttemptError(ProctorError):
    """One attempt ended early. The class says who is to blame and what the attempt becomes."""

    status: ClassVar[str] = "error"
    reason: str = "internal_error"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class AgentError(AttemptError):
    """The agent says it could not do the work, or stopped as no working agent does."""

    status = "fail"
    reason = "agent_failed"


class WorkspaceError(AttemptError):
    """We could not prepare, keep or clean up the place the agent works in."""

    reason = "setup_failed"


class ModelError(AttemptError):
    """The provider did not answer as agreed: refused, broke off, or made no sense."""

    reason = "model_failed"


class RateLimited(ModelError):
    """The provider wants us to wait; `retry_after_seconds` when it said how long."""

    reason = "rate_limit"

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class EvaluatorError(AttemptError):
    """The judging failed, not the work that was judged."""

    reason = "evaluator_failed"


class TimeLimit(AttemptError):
    """The time it was given is over."""

    status = "timeout"
    reason = "timeout"


class CostLimit(AttemptError):
    """The money it was given is spent."""

    status = "fail"
    reason = "cost_limit"


class Aborted(AttemptError):
    """Someone asked for the batch to stop."""

    reason = "aborted"


class Interrupted(AttemptError):
    """The process that carried this out went away or was asked to."""

    reason = "interrupted"


@contextmanager
def blame(error: type[AttemptError], doing: str) -> Iterator[None]:
    """Attribute whatever goes wrong inside to `error`, saying what was being done.

    An `AttemptError` already knows its cause and passes unchanged.
    """
    try:
        yield
    except AttemptError:
        raise
    except Exception as cause:
        said = str(cause) or type(cause).__name__
        raise error(f"{doing}: {said}") from cause
