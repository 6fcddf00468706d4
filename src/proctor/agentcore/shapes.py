"""Shapes of request members, and validation against them.

Types, lengths, patterns, enums and unions. Validation reports every problem, with the path of the member and
the wording of the service. Unknown members are ignored.
"""

import math
import re
import secrets
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ShapeProblem:
    """An invalid member."""

    name: str
    """The path of the member: `evaluators.1.member.evaluatorId`."""
    constraint: str

    @property
    def message(self) -> str:
        return f"Value at '{self.name}' failed to satisfy constraint: {self.constraint}"


class Shape(Protocol):
    """The shape of a value."""

    def violations(self, value: object, name: str) -> Iterator[ShapeProblem]:
        """The problems of a value that is not null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A string."""

    least: int = 0
    most: int | None = None
    pattern: str = ""
    """The whole text must match. Empty: anything."""
    allowed: Sequence[str] = ()
    """Allowed values. Empty: any."""

    def violations(self, value: object, name: str) -> Iterator[ShapeProblem]:
        if not isinstance(value, str):
            yield ShapeProblem(name, "Member must be a string")
            return
        yield from _length_violations(len(value), self.least, self.most, name)
        too_long = self.most is not None and len(value) > self.most
        if self.pattern and not too_long and not re.fullmatch(self.pattern, value):
            yield ShapeProblem(name, f"Member must satisfy regular expression pattern: {self.pattern}")
        if self.allowed and value not in self.allowed:
            yield ShapeProblem(name, f"Member must satisfy enum value set: [{', '.join(self.allowed)}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number; a whole one on request. In a query it is written as text."""

    least: float | None = None
    most: float | None = None
    whole: bool = False

    def violations(self, value: object, name: str) -> Iterator[ShapeProblem]:
        kind = int if self.whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind) or value in (math.inf, -math.inf):
            yield ShapeProblem(name, f"Member must be {'an integer' if self.whole else 'a number'}")
            return
        if self.least is not None and value < self.least:
            yield ShapeProblem(name, f"Member must have value greater than or equal to {self.least:g}")
        if self.most is not None and value > self.most:
            yield ShapeProblem(name, f"Member must have value less than or equal to {self.most:g}")


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def violations(self, value: object, name: str) -> Iterator[ShapeProblem]:
        if not isinstance(value, bool):
            yield ShapeProblem(name, "Member must be a boolean")


@dataclass(frozen=True, slots=True)
class TimestampShape:
    """A point in time: ISO 8601, or seconds since 1970."""

    def violations(self, value: object, name: str) -> Iterator[ShapeProblem]:
        if moment_of(value) is None:
            yield ShapeProblem(name, "Member must be a timestamp")


@dataclass(frozen=True, slots=True)
class Anything:
    """Any JSON."""

    def violations(self, value: object, name: str) -> Iterator[ShapeProblem]:  # noqa: ARG002  nothing can be wrong
        return iter(())


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """An object with any members, or also a text."""

    or_text: bool = False

    def violations(self, value: object, name: str) -> Iterator[ShapeProblem]:
        if self.or_text and isinstance(value, str) and value:
            return
        if not isinstance(value, dict):
            kinds = "a string that is not empty or an object" if self.or_text else "an object"
            yield ShapeProblem(name, f"Member must be {kinds}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """A list."""

    of: Shape
    least: int = 0
    most: int | None = None

    def violations(self, value: object, name: str) -> Iterator[ShapeProblem]:
        if not isinstance(value, list):
            yield ShapeProblem(name, "Member must be a list")
            return
        yield from _length_violations(len(value), self.least, self.most, name)
        # Of a list that is too long, only the first members are checked.
        for number, member in enumerate(value[: self.most], start=1):
            yield from _member_violations(self.of, member, f"{name}.{number}.member", required=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapShape:
    """A map with texts as keys."""

    key: Text = field(default_factory=Text)
    value: Shape = field(default_factory=Text)
    most: int | None = None

    def violations(self, value: object, name: str) -> Iterator[ShapeProblem]:
        if not isinstance(value, dict):
            yield ShapeProblem(name, "Member must be a map")
            return
        yield from _length_violations(len(value), 0, self.most, name)
        for key, entry in list(value.items())[: self.most]:
            yield from self.key.violations(key, f"{name}.key")
            yield from _member_violations(self.value, entry, f"{name}.{key[:128]}.member", required=True)


@dataclass(frozen=True, slots=True)
class Structure:
    """An object with named members. Null is the same as absent."""

    members: Mapping[str, Shape]
    required: Sequence[str] = ()

    def violations(self, value: object, name: str) -> Iterator[ShapeProblem]:
        if not isinstance(value, dict):
            yield ShapeProblem(name, "Member must be an object")
            return
        for member, shape in self.members.items():
            path = f"{name}.{member}" if name else member
            yield from _member_violations(shape, value.get(member), path, required=member in self.required)


@dataclass(frozen=True, slots=True)
class Union:
    """An object with exactly one of its members."""

    members: Mapping[str, Shape]

    def violations(self, value: object, name: str) -> Iterator[ShapeProblem]:
        if not isinstance(value, dict):
            yield ShapeProblem(name, "Member must be an object")
            return
        present = [member for member, entry in value.items() if entry is not None]
        if len(present) != 1 or present[0] not in self.members:
            yield ShapeProblem(name, f"Member must have exactly one of: {', '.join(self.members)}")
            return
        yield from self.members[present[0]].violations(value[present[0]], f"{name}.{present[0]}")


def moment_of(value: object) -> datetime | None:
    """The point in time of a member, in UTC; None: it is not a timestamp."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            # Without a time zone it is ambiguous; the client always sends one.
            return None if moment.tzinfo is None else moment.astimezone(UTC)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _member_violations(shape: Shape, value: object, name: str, *, required: bool) -> Iterator[ShapeProblem]:
    # Only documents may be null; otherwise null means absent.
    if value is not None or isinstance(shape, Anything):
        yield from shape.violations(value, name)
    elif required:
        yield ShapeProblem(name, "Member must not be null")


def _length_violations(length: int, least: int, most: int | None, name: str) -> Iterator[ShapeProblem]:
    if length < least:
        yield ShapeProblem(name, f"Member must have length greater than or equal to {least}")
    if most is not None and length > most:
        yield ShapeProblem(name, f"Member must have length less than or equal to {most}")


_ARN = re.compile(
    r"arn:aws[a-zA-Z-]*:bedrock-agentcore:(?P<region>[a-z0-9-]*):(?P<account>[0-9]{12}|):"
    r"(?P<kind>batch-evaluate|evaluator|online-evaluation-config|dataset|recommendation|ab-test|"
    r"configuration-bundle)/"
    r"(?P<id>[a-zA-Z0-9._-]{1,111})"
)
ALPHABET = string.ascii_letters + string.digits
BATCH, EVALUATOR_NAMES, ONLINE = "batch-evaluate", "evaluator", "online-evaluation-config"
DATASET, RECOMMENDATION = "dataset", "recommendation"
AB_TEST, BUNDLE = "ab-test", "configuration-bundle"


def new_id(name: str, alphabet: str = ALPHABET) -> str:
    """`name` with a random suffix."""
    return f"{name}-{''.join(secrets.choice(alphabet) for _ in range(10))}"


def is_managed(evaluator_id: str) -> bool:
    """Whether an evaluator is built in: it can be neither changed nor deleted."""
    return evaluator_id.startswith(("Builtin.", "ThirdParty."))


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Makes the ARNs of this server's resources."""

    region: str
    account: str

    def arn(self, kind: str, resource_id: str) -> str:
        """The ARN of a resource."""
        if kind == EVALUATOR_NAMES and is_managed(resource_id):
            return f"arn:aws:bedrock-agentcore:::evaluator/{resource_id}"
        return f"arn:aws:bedrock-agentcore:{self.region}:{self.account}:{kind}/{resource_id}"


def read_arn(arn: str) -> tuple[str, str] | None:
    """Kind and ID of a resource; None: not an ARN of this service."""
    match = _ARN.fullmatch(arn)
    return (match["kind"], match["id"]) if match else None


Members = Mapping[str, Any]
"""Members of a request."""
