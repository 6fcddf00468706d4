"""Judge a session by a program of the user's own: the event as JSON on standard input, a score on output.

One process for each target. An exit code other than 0 is an error of that target alone, and so is output
that is no score; the last line of JSON counts, so a program may talk before it.

Knows nothing of what the program does.
"""

import asyncio
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from proctor.evaluator import Evidence
from proctor.evaluators.event import base_event, event_target
from proctor.evaluators.outcome import INVALID, failed, scored
from proctor.evaluators.targets import Target, targets_of
from proctor.item import digest_of
from proctor.processes import CouldNotStart, Program, started
from proctor.score import Level, Score
from proctor.untrusted import parse_json

TIMEOUT_SECONDS = 60.0
MOST_OUTPUT = 4 * 1024 * 1024
MOST_SAID = 500
"""Characters of its complaints in an error."""


@dataclass(frozen=True, kw_only=True)
class CommandEvaluator:
    """A program that is started once for each target of its level."""

    name: str
    level: Level
    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    attempt: str
    identity: str = ""
    """What the event calls it; empty: its name."""
    timeout_seconds: float = TIMEOUT_SECONDS

    @property
    def digest(self) -> str:
        """Changes with the command, and with each file of the working folder that it names."""
        files = [self.folder / word for word in self.command if (self.folder / word).is_file()]
        texts = [sha256(file.read_bytes()).hexdigest() for file in files if not _is_installed(file)]
        return digest_of([self.level, list(self.command), texts])[:16]

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """A score for each target, one after the other."""
        base = base_event(
            evidence,
            name=self.name,
            identity=self.identity or self.name,
            level=self.level,
        )
        digest = self.digest
        return [
            replace(await self._judged(evidence, base, target), evaluator_digest=digest)
            for target in targets_of(evidence, self.level)
        ]

    async def _judged(self, evidence: Evidence, base: Any, target: Target) -> Score:
        about = Score(evaluator=self.name, level=target.level, target=target.id)
        typed = json.dumps({**base, **event_target(evidence, target)}, default=str)
        try:
            async with asyncio.timeout(self.timeout_seconds):
                async with started(
                    list(self.command),
                    folder=self.folder,
                    environment=self.environment,
                    attempt=self.attempt,
                    typed=typed,
                    grace_seconds=0.5,
                ) as program:
                    output = await _output(program)
                    code, complaints = await program.ended(), program.stderr
        except TimeoutError:
            return failed(about, f"it took longer than {self.timeout_seconds:g} s and was ended", "Timeout")
        except CouldNotStart as problem:
            return failed(about, f"starting {self.command[0]}: {problem}", "CouldNotStart")
        if code:
            said = complaints.strip()[-MOST_SAID:]
            return failed(about, f"exit code {code}" + (f": {said}" if said else ""), "ExitCode")
        return _read(about, output)


async def _output(program: Program) -> str:
    lines, size = list[str](), 0
    async for line in program.lines():
        size += len(line)
        if size <= MOST_OUTPUT:
            lines.append(line)
    return "\n".join(lines)


def _read(about: Score, output: str) -> Score:
    """All of the output as JSON, or its last line that is."""
    for text in (output, *reversed(output.splitlines()[-20:])):
        if text.strip():
            try:
                return scored(about, parse_json(text))
            except ValueError:
                continue
    shown = output.strip()[:200]
    return failed(about, f"it printed no JSON: {shown}" if shown else "it printed nothing", INVALID)


def _is_installed(file: Path) -> bool:
    """Whether a word of a command is a program of the system's, whose version is not ours to follow."""
    return shutil.which(str(file)) == str(file) and str(file).startswith(("/usr/", "/bin/"))
