"""A session that another tool recorded, as it comes in.

Whoever reads a foreign format makes one of these; the store keeps it as a session like any other, its
traces as iterations.

Knows nothing of formats, files or databases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from proctor.score import Score
from proctor.session import Event

DEFAULT_LOG_GROUP = "/proctor/sessions"
"""Where sessions belong that come in without saying so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """One event, and when it was."""

    event: Event
    at: datetime | None = None
    """None: its source did not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedStep:
    """One trace or turn, oldest event first."""

    trace_id: str = ""
    happenings: Sequence[Happening] = ()
    started_at: datetime | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSession:
    """One session of another tool. Importing it again replaces what was imported before."""

    external_id: str
    """What its source calls it; unique together with source, service and log group."""
    source: str
    """The kind of record it came from: `otlp`, `inspect`, `swe-agent`, …"""
    service: str = ""
    log_group: str = ""
    name: str = ""
    """For people: a title, a task's name."""
    agent: str = ""
    agent_version: str = ""
    model: str = ""
    is_stand_in: bool = False
    """A rehearsal: its agent or model only pretended to be one."""
    status: str = "success"
    """`success`, `fail`, `timeout` or `error`, as far as its source says."""
    end_reason: str = "completed"
    error: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    steps: Sequence[ImportedStep] = ()
    tools: Sequence[Mapping[str, Any]] = ()
    """What the agent could have used: `name`, `description`, `parameters`."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """What else its source said that a filter may ask for."""
    scores: Sequence[Score] = ()
    """Judgements that came with it."""
    notes: Sequence[str] = ()
    """What a reader should know: what was left out, what could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A record, or a part of one, that could not be read. It is named and skipped; the rest is kept."""

    path: str
    problem: str
    line: int = 0
    """Counted from 1; 0: all of it."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}" if self.line else f"{self.path}: {self.problem}"
