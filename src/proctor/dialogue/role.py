"""What a role is once it has been read: prompts, steps and data, as one plain document.

The document holds all that a conversation needs, so that it can be kept under its digest and taken up
again on another day or machine, whatever has become of the folder it was read from.

Knows nothing of folders, YAML or models.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from proctor.item import digest_of

CLIENT, THERAPIST = "client", "therapist"
SIDES = (CLIENT, THERAPIST)
"""The two sides of a dialogue, whatever they are called in its field: a customer is a client, the
support agent who answers is on the therapist's side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A part to be played, in one language."""

    name: str
    plays: Sequence[str]
    """The sides it can take: `client`, `therapist`."""
    steps: Sequence[Mapping[str, Any]]
    """What it does each time it has been spoken to."""
    templates: Mapping[str, str] = field(default_factory=dict)
    """Jinja texts by name."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """What it remembers, and from what it starts: a value, or a text that is an expression."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What a user may set, with defaults."""
    data: Mapping[str, Any] = field(default_factory=dict)
    opening: str = ""
    """The template of what it says first, when it opens. Empty: it takes its steps."""
    opens: bool = False
    """Whether it speaks first, where nothing else is said."""
    metrics: Sequence[str] = ()
    """What of its state is recorded after each of its turns."""
    end_words: Sequence[str] = ("END", "end", "exit")
    """It ends the session by saying exactly one of these."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Defaults for its model: temperature and the like."""
    model: str = ""
    """The model it was made for; empty: any."""
    own_models: str = ""
    """A pattern of names: what matches are the weights its authors trained."""
    stand_in: bool = False
    language: str = "en"
    title: str = ""
    """What it is called in transcripts: `Client`, `Tutor`. Empty: as its side."""

    @property
    def asks(self) -> bool:
        """Whether it needs a model at all."""
        return any("ask" in step for step in every_step(self.steps))

    def document(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)

    @property
    def digest(self) -> str:
        """Of everything that bears on what it says."""
        return digest_of(self.document())[:16]


def role_of(document: Mapping[str, Any]) -> Role:
    """The role a document was made from."""
    return Role(**document)


def every_step(steps: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The steps and those inside them."""
    for step in steps:
        yield step
        yield from every_step(step.get("do", ()))
