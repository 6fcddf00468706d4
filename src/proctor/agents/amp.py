"""Amp: headless, via its stream JSON.

Amp only talks to its own service, so that its calls cannot be intercepted: messages, tools and tokens are
read from its output, and it needs its key. It chooses the model: a plan can select one of its modes, which
the help of the installed version lists.
"""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar

from proctor.agent import Agent, Assignment, Availability, WorkDone
from proctor.agents._program import UNANSWERED_SECONDS, Installable, run_with_option, watch
from proctor.agents._stream_json import StreamJson
from proctor.errors import WorkspaceError
from proctor.session import Record

PROGRAM = Installable("amp", "amp", "npm install -g @sourcegraph/amp", also_named_by=("AMP_CLI_PATH",))
_MODE_SWITCH = re.compile(r"^\s+(?:-m, )?--mode\b[^\n]*\n?[^(]*\(([^)]*)\)", re.MULTILINE)
_MODE = re.compile(r"[a-z][a-z0-9_-]*")
_GPT5_SWITCH = "--try-gpt5"
"""Option of versions without modes."""


@dataclass(frozen=True, slots=True)
class Switches:
    """Options of the installed version that select a model."""

    modes: tuple[str, ...] = ()
    has_modes: bool = False
    has_gpt5: bool = False

    def for_model(self, model: str) -> list[str] | None:
        """The arguments that select a model or mode; None: it cannot be selected."""
        name = model.rpartition("/")[2].lower()
        if name in ("", "default"):
            return []
        if name in self.modes:
            return ["--mode", name]
        return [_GPT5_SWITCH] if name == "gpt-5" and self.has_gpt5 else None


def switches_in(help_text: str) -> Switches:
    """The options of a version, read from its help."""
    match = _MODE_SWITCH.search(help_text)
    words = [word.strip().lower() for word in match[1].split(",")] if match else []
    modes = tuple(word for word in words if _MODE.fullmatch(word))
    return Switches(modes, has_modes=match is not None, has_gpt5=_GPT5_SWITCH in help_text)


@lru_cache(maxsize=8)
def _switches(program: str, path: str, home: str) -> Switches:
    try:
        process = run_with_option([program, "--help"], {"PATH": path, "HOME": home})
    except (OSError, subprocess.TimeoutExpired):
        return Switches()
    return switches_in(process.stdout or process.stderr)


@dataclass(frozen=True, kw_only=True)
class Amp(Agent):
    """Sourcegraph's Amp, one prompt per run."""

    mode: str = ""
    """One of Amp's modes, or of a plugin's; it decides the model. Empty: what `model` says, else Amp's
    default."""
    login: str = ""
    """`mine`: it uses your login, from a copy of its files, in place of AMP_API_KEY."""
    arguments: list[str] = field(default_factory=list)
    """Additional arguments, placed before those of the adapter."""
    unanswered_seconds: float = UNANSWERED_SECONDS
    """How long it may wait for an answer to a question before it is ended."""

    keys: ClassVar[tuple[str, ...]] = ("AMP_API_KEY",)
    needs_network: ClassVar[bool] = True
    login_files: ClassVar[tuple[str, ...]] = (".local/share/amp/secrets.json", ".config/amp/settings.json")

    def availability(self, environment: Mapping[str, str]) -> Availability:
        """Whether the program and its key are available; runs `--version`."""
        availability = PROGRAM.availability(environment)
        if not availability.ready or environment.get("AMP_API_KEY") or self.login:
            return availability
        return replace(
            availability,
            ready=False,
            problem="AMP_API_KEY is not set",
            remedy="Set AMP_API_KEY to an access token from Amp's settings page.",
        )

    def program(self, environment: Mapping[str, str]) -> tuple[str, str] | None:
        """The installed program, if it has a key or a login."""
        return PROGRAM.start(environment) if environment.get("AMP_API_KEY") or self.login else None

    def refusal(self, model: str, environment: Mapping[str, str]) -> str:
        """Why the installed version cannot use a model; runs `--help`."""
        program = PROGRAM.find(environment)
        if program is None or (not self.mode and model in ("", "default")):
            return ""
        switches = _switches(program, environment.get("PATH", ""), environment.get("HOME", "/"))
        if self.mode:
            return (
                "" if switches.has_modes else f"the installed amp has no modes, so none can be `{self.mode}`"
            )
        if switches.for_model(model) is not None:
            return ""
        modes = ", ".join(switches.modes) or "none"
        return (
            f"the installed amp cannot be asked for `{model}`: it chooses models by its mode\n"
            f"Remove `model`, or set it to a mode of this version: {modes}."
        )

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Run Amp with the prompt and record its events."""
        environment = assignment.environment
        program = PROGRAM.require(environment)
        if refusal := self.refusal(assignment.model, environment):
            raise WorkspaceError(refusal)
        arguments: list[str] | None = ["--mode", self.mode]
        if not self.mode:
            switches = Switches()
            if assignment.model not in ("", "default"):
                switches = _switches(program, environment.get("PATH", ""), environment.get("HOME", "/"))
            arguments = switches.for_model(assignment.model)
        return await watch(
            [program, *self.arguments, "-x", *(arguments or ()), "--stream-json"],
            assignment,
            StreamJson(record=record, model=assignment.model),
            record,
            typed=assignment.prompt,
            secrets=[secret for name in self.keys if (secret := environment.get(name))],
            unanswered_seconds=self.unanswered_seconds,
        )
