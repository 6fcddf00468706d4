"""The errors of Proctor.

    ProctorError
    ├── UsageError            the request cannot be fulfilled; nothing was started
    │   ├── PlanError         the plan is not valid; carries every problem with its place
    │   ├── NotFound          no such run, item, session, agent or model
    │   ├── Contradiction     it conflicts with the current state
    │   ├── QuotaReached      this server has as many of these as it may
    │   └── KeyUnusable       the named key is not a valid encryption key
    ├── StoreError            the store cannot be read or written
    │   ├── StoreUnavailable  it cannot be opened; nothing was started
    │   │   └── KeyMissing    it is encrypted, and the key is not available
    │   ├── StoreDisconnected a transaction was rolled back because the database went away
    │   └── OwnershipLost     another process has taken over this batch
    ├── WorkerError           the worker processes of a batch die, or cannot be started
    └── AttemptError          one attempt ended early; carries the status and reason it gets
        ├── AgentError        fail    agent_failed   the agent reported failure, or broke its own worktree
        ├── AgentNotStarted   error   agent_start    the agent's program failed before its first model call
        ├── WorkspaceError    error   setup_failed   the workspace or its check could not be prepared
        ├── SandboxFailed     error   sandbox_failed a program's sandbox or supervisor was killed, or failed
        ├── ModelError        error   model_failed   the provider did not answer
        │   └── RateLimited   error   rate_limit
        ├── EvaluatorError    error   evaluator_failed
        ├── TimeLimit         timeout timeout
        ├── CostLimit         fail    cost_limit     its cost limit was reached
        ├── ContextOverflow   fail    context_overflow  the work did not fit the model's context window
        ├── Aborted           error   aborted
        └── Interrupted       error   interrupted

The library raises; only `cli/` and `web/` turn an error into a message and an exit code. Once a
batch runs, an `AttemptError` is a result like any other: `batch/` records it and continues.
"""

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar


class ProctorError(Exception):
    """Base of all errors that Proctor raises on purpose.

    The first line of a message says what is wrong, the others how to fix it.
    """

    @property
    def problem(self) -> str:
        """What is wrong."""
        return str(self).partition("\n")[0]

    @property
    def remedy(self) -> str:
        """How to fix it; may be empty."""
        return str(self).partition("\n")[2]


class UsageError(ProctorError):
    """The request cannot be fulfilled. Nothing has been started."""


class NotFound(UsageError):
    """There is no run, item, session, agent or model by this name."""


class Contradiction(UsageError):
    """The request conflicts with the current state: a reused token, an evaluation that has not finished."""


class QuotaReached(UsageError):
    """A quota of this server is exhausted."""


class KeyUnusable(UsageError):
    """The named key is not a valid encryption key."""


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a file of the user."""

    file: str
    line: int
    """Counted from 1; 0: `file` names the place itself, such as an argument in Python."""
    column: int
    """Counted from 1."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem of a plan: where, what, and how to fix it."""

    at: Place
    problem: str
    remedy: str = ""
    excerpt: str = ""
    """The line of the file; empty when there is none to show."""

    def __str__(self) -> str:
        lines = [f"{self.at}: {self.problem}"]
        if self.excerpt:
            lines.append(f"{self.at.line:>4} | {self.excerpt}")
        if self.remedy:
            lines.append(self.remedy)
        return "\n".join(lines)


class PlanError(UsageError):
    """The plan is not valid. Nothing has been started."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n\n".join(map(str, problems)))
        self.problems = list(problems)


class StoreError(ProctorError):
    """The store cannot be read or written."""


class StoreUnavailable(StoreError):
    """The store cannot be opened. Nothing has been started."""


class KeyMissing(StoreUnavailable):
    """The store is encrypted, and its key is not available."""


class StoreDisconnected(StoreError):
    """The connection to the database was lost in a transaction, which was rolled back: it can be repeated."""


class OwnershipLost(StoreError):
    """Another process has taken over this batch; this one must stop without writing."""


class WorkerError(ProctorError):
    """The worker processes of a batch die, or cannot be started."""


class AttemptError(ProctorError):
    """One attempt ended early. The class determines its status and reason."""

    status: ClassVar[str] = "error"
    reason: str = "internal_error"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason


class AgentError(AttemptError):
    """The agent reported failure, or exited abnormally."""

    status = "fail"
    reason = "agent_failed"


class AgentNotStarted(AttemptError):
    """The agent's program could not be started, or ended or was stopped before its first model call."""

    reason = "agent_start"


class WorkspaceError(AttemptError):
    """The workspace of the agent could not be prepared, committed or cleaned up."""

    reason = "setup_failed"


class SandboxFailed(AttemptError):
    """The sandbox or the supervisor of a program was killed or failed, so that its own end is not known."""

    reason = "sandbox_failed"


class ModelError(AttemptError):
    """The provider did not answer: rejected the call, broke off, or sent something unreadable."""

    reason = "model_failed"
    may_be_billed = False
    """Whether the provider may have processed the call, and bill it."""
    is_outage = False
    """Whether the provider is in an outage, so that another try waits for its end."""
    is_repeatable = True
    """Whether another try may succeed, where this one may be billed."""
    pause_seconds = 0.0
    """How long to wait before another try, of a call that may be billed."""
    is_to_be_sent_alone = False
    """Whether a provider's batch has not answered the call, which then goes alone, at another price."""


CONTEXT_OVERFLOW = "context_overflow"
"""Reason of a call whose prompt is too long for the model."""
NOT_SENT = "the call was not sent"
"""Argument of a `CancelledError` that ended a model call before it was sent: it cannot be billed."""


class RateLimited(ModelError):
    """The provider rate limited the call; `retry_after_seconds` when it sent one."""

    reason = "rate_limit"

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class EvaluatorError(AttemptError):
    """The evaluation failed, not the work it was to score."""

    reason = "evaluator_failed"


class TimeLimit(AttemptError):
    """The time limit was reached."""

    status = "timeout"
    reason = "timeout"


class CostLimit(AttemptError):
    """The cost limit was reached."""

    status = "fail"
    reason = "cost_limit"


class ContextOverflow(AttemptError):
    """The agent or the prompt did not fit the context window of the model that was to do the work."""

    status = "fail"
    reason = CONTEXT_OVERFLOW


class Aborted(AttemptError):
    """The batch was stopped by a user."""

    reason = "aborted"


class Interrupted(AttemptError):
    """The process of the batch died or was asked to exit."""

    reason = "interrupted"


def of_worker(error: ModelError) -> AttemptError:
    """The error of an attempt whose own model failed: a prompt that is too long is a failure of the work."""
    return ContextOverflow(str(error)) if error.reason == CONTEXT_OVERFLOW else error


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group: the cause, because of which the others were cancelled."""
    error = group.exceptions[0]
    return first_error(error) if isinstance(error, BaseExceptionGroup) else error


_OF_THE_MACHINE = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.EROFS,
        errno.ESTALE,
    }
)
_SAID_BY_GIT = ("No space left", "Disk quota", "Input/output error", "Cannot allocate", "Too many open files")


def is_of_the_machine(error: BaseException) -> bool:
    """Whether the machine failed: a full disk, a program that was killed. An agent does not cause that."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _OF_THE_MACHINE:
            return True
        # Of a program that a signal ended.
        if getattr(cause, "exit_code", 0) < 0 or any(text in str(cause) for text in _SAID_BY_GIT):
            return True
        cause = cause.__cause__
    return False


@contextmanager
def blame_agent(doing: str) -> Iterator[None]:
    """Attribute any exception inside to the agent, whose tree it is, unless the machine failed.

    An item that ends with an error does not count: an agent could hide its failures in a broken tree.
    """
    try:
        yield
    except AttemptError as cause:
        if not isinstance(cause, WorkspaceError) or is_of_the_machine(cause):
            raise
        raise AgentError(str(cause), reason="workspace_broken") from cause
    except Exception as cause:
        message = str(cause) or type(cause).__name__
        if is_of_the_machine(cause):
            raise WorkspaceError(f"{doing}: {message}", reason="workspace_broken") from cause
        raise AgentError(f"{doing}: {message}", reason="workspace_broken") from cause


@contextmanager
def blame(error: type[AttemptError], doing: str) -> Iterator[None]:
    """Attribute any exception inside to `error`, with what was being done.

    An `AttemptError` already has its cause and passes unchanged.
    """
    try:
        yield
    except AttemptError:
        raise
    except Exception as cause:
        message = str(cause) or type(cause).__name__
        raise error(f"{doing}: {message}") from cause
