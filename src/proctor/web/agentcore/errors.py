"""How this interface says that something cannot be had.

Each error has the name, the HTTP status and the members its model gives it; the client finds the name in a
header and raises its own exception of that name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from proctor.web.agentcore.shapes import ShapeProblem

MOST_MESSAGE_CHARACTERS = 10_000


MOST_FIELDS = 200
"""A list of 20,000 wrong members needs no answer of 20,000 lines."""


class WireError(Exception):
    """Anything a caller is told instead of an answer."""

    status: ClassVar[int]
    name: str = ""

    def __init__(self, message: str) -> None:
        super().__init__(message[:MOST_MESSAGE_CHARACTERS] or type(self).__name__)

    @property
    def kind(self) -> str:
        """What the client calls it."""
        return self.name or type(self).__name__

    @property
    def body(self) -> Mapping[str, Any]:
        return {"message": str(self)}


class ValidationException(WireError):
    """The request itself is wrong."""

    status = 400

    def __init__(
        self, message: str, *, reason: str = "FieldValidationFailed", flaws: Sequence[ShapeProblem] = ()
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.flaws = flaws[:MOST_FIELDS]

    @property
    def body(self) -> Mapping[str, Any]:
        told: dict[str, Any] = {"message": str(self), "reason": self.reason}
        if self.flaws:
            told["fieldList"] = [{"name": flaw.name, "message": flaw.constraint} for flaw in self.flaws]
        return told


class UnauthorizedException(WireError):
    """The caller showed no token, or a wrong one."""

    status = 401


class ServiceQuotaExceededException(WireError):
    """There is as much of this already as there may be."""

    status = 402


class AccessDeniedException(WireError):
    """The caller may not."""

    status = 403


class SignatureRefused(WireError):
    """The signature is missing, wrong or too old; the name says which, in the words of signed services."""

    status = 403

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class ResourceNotFoundException(WireError):
    """There is nothing by this id."""

    status = 404


class UnknownOperationException(WireError):
    """No operation has this method and path."""

    status = 404


class ConflictException(WireError):
    """It is in a state in which this cannot be done."""

    status = 409


class RequestEntityTooLargeException(WireError):
    """The body is longer than this operation reads."""

    status = 413


class ThrottlingException(WireError):
    """Too many calls a second; the client tries again by itself."""

    status = 429


class InternalServerException(WireError):
    """We failed. The client tries again by itself."""

    status = 500


class LogsError(WireError):
    """How log operations refuse: always 400, and the name says why."""

    status = 400

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def told(flaws: Sequence[ShapeProblem]) -> ValidationException:
    """One error for everything that is wrong with a request."""
    messages = [flaw.message for flaw in flaws[:MOST_FIELDS]]
    if len(flaws) == 1:
        return ValidationException(messages[0], flaws=flaws)
    return ValidationException(f"{len(flaws)} validation errors detected: {'; '.join(messages)}", flaws=flaws)
