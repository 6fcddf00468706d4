"""Amp: headless, via its stream JSON.

Amp only talks to its own service, so that its calls cannot be intercepted: messages, tools and tokens are
read from its output, and it needs its key.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from proctor.agent import Assignment, Availability, WorkDone
from proctor.agents._gateway_program import Installable
from proctor.agents._program import UNANSWERED_SECONDS, watch
from proctor.agents._stream_json import StreamJson
from proctor.session import Note, Record

PROGRAM = Installable("amp", "amp", "npm install -g @sourcegraph/amp", also_named_by=("AMP_CLI_PATH",))
MODEL_SWITCHES: Mapping[str, tuple[str, ...]] = {"": (), "default": (), "gpt-5": ("--try-gpt5",)}
"""Modes of Amp, which decide the model. By default Amp chooses."""


@dataclass(frozen=True, kw_only=True)
class Amp:
    """Sourcegraph's Amp, one prompt per run."""

    arguments: list[str] = field(default_factory=list)
    """Additional arguments, placed before those of the adapter."""
    unanswered_seconds: float = UNANSWERED_SECONDS
    """How long it may wait for an answer to a question before it is ended."""

    stand_in: ClassVar[bool] = False
    keys: ClassVar[tuple[str, ...]] = ("AMP_API_KEY",)
    needs_network: ClassVar[bool] = True

    def availability(self, environment: Mapping[str, str]) -> Availability:
        """Whether the program and its key are available; runs `--version`."""
        availability = PROGRAM.availability(environment)
        if not availability.ready or environment.get("AMP_API_KEY"):
            return availability
        return replace(
            availability,
            ready=False,
            problem="AMP_API_KEY is not set",
            remedy="Set AMP_API_KEY to an access token from Amp's settings page.",
        )

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Run Amp with the prompt and record its events."""
        environment = assignment.environment
        program = PROGRAM.require(environment)
        if assignment.model not in MODEL_SWITCHES:
            record(Note(text=f"amp cannot be told to use `{assignment.model}`; it chose a model itself"))
        switches = MODEL_SWITCHES.get(assignment.model, ())
        return await watch(
            [program, *self.arguments, "-x", *switches, "--stream-json"],
            assignment,
            StreamJson(record=record, model=assignment.model),
            record,
            typed=assignment.prompt,
            secrets=[secret for name in self.keys if (secret := environment.get(name))],
            unanswered_seconds=self.unanswered_seconds,
        )
