"""Error responses of the interface, by the names that clients know them by."""

from collections.abc import Sequence
from typing import ClassVar

from proctor.agentcore.shapes import ShapeProblem
from proctor.json_values import JsonMap, JsonObject

MOST_MESSAGE_CHARACTERS = 10_000
MOST_FIELDS = 200
"""Problems listed in one response."""


class WireError(Exception):
    """An error response."""

    status: ClassVar[int]
    name: str = ""

    def __init__(self, message: str) -> None:
        super().__init__(message[:MOST_MESSAGE_CHARACTERS] or type(self).__name__)

    @property
    def kind(self) -> str:
        """Name of the exception on the client."""
        return self.name or type(self).__name__

    @property
    def body(self) -> JsonMap:
        return {"message": str(self)}


class ValidationException(WireError):
    """The request itself is wrong."""

    status = 400

    def __init__(
        self, message: str, *, reason: str = "FieldValidationFailed", violations: Sequence[ShapeProblem] = ()
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.violations = violations[:MOST_FIELDS]

    @property
    def body(self) -> JsonMap:
        body: JsonObject = {"message": str(self), "reason": self.reason}
        if self.violations:
            body["fieldList"] = [
                {"name": violation.name, "message": violation.constraint} for violation in self.violations
            ]
        return body


class UnauthorizedException(WireError):
    """The token is missing or wrong."""

    status = 401


class ServiceQuotaExceededException(WireError):
    """A quota is exhausted."""

    status = 402


class AccessDeniedException(WireError):
    """Access denied."""

    status = 403


class RoleMissing(AccessDeniedException):
    """The caller is known, and its role does not include the operation."""

    name = "AccessDeniedException"


class SignatureRefused(WireError):
    """The signature is missing, wrong or expired; `name` says which, as AWS services do."""

    status = 403

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class ResourceNotFoundException(WireError):
    """No resource has this ID."""

    status = 404


class UnknownOperationException(WireError):
    """No operation has this method and path."""

    status = 404


class ConflictException(WireError):
    """The state of the resource does not allow the operation."""

    status = 409


class RequestEntityTooLargeException(WireError):
    """The body exceeds the limit of the operation."""

    status = 413


class ThrottlingException(WireError):
    """Too many calls per second; the client retries."""

    status = 429


class InternalServerException(WireError):
    """Internal error; the client retries."""

    status = 500


class LogsError(WireError):
    """Error of a log operation: always 400; `name` says why."""

    status = 400

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def validation_error(violations: Sequence[ShapeProblem]) -> ValidationException:
    """One error with every problem of a request."""
    messages = [violation.message for violation in violations[:MOST_FIELDS]]
    if len(violations) == 1:
        return ValidationException(messages[0], violations=violations)
    return ValidationException(
        f"{len(violations)} validation errors detected: {'; '.join(messages)}", violations=violations
    )
