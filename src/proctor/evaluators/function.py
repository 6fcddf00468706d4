"""Judge a session by a Python function of the user's own, in a process apart.

The function gets an event (see `event.py`) and returns a score in any of the shapes `outcome.py` reads.
What it raises, or does for too long, is an error of that target alone.

Knows nothing of how the process is kept.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from proctor.evaluator import Evidence
from proctor.evaluators.event import base_event, event_target
from proctor.evaluators.outcome import failed, scored
from proctor.evaluators.targets import Target, targets_of
from proctor.evaluators.workers import Died, Job, Worker, pool_of
from proctor.item import digest_of
from proctor.score import Level, Score

TIMEOUT_SECONDS = 60.0
MEGABYTES = 4096
"""Of address space, which libraries reserve far more of than they use."""


@dataclass(frozen=True, kw_only=True)
class FunctionEvaluator:
    """A function that is called once for each target of its level."""

    name: str
    level: Level
    function: str
    """`module:function`."""
    source: Path
    """The module's file."""
    folder: Path
    environment: Mapping[str, str]
    attempt: str
    identity: str = ""
    """What the event calls it; empty: its name."""
    timeout_seconds: float = TIMEOUT_SECONDS
    megabytes: int = MEGABYTES

    @property
    def digest(self) -> str:
        """Changes with the module's file. What that imports is not followed."""
        return digest_of([self.level, self.function, self._version])[:16]

    async def judge(self, evidence: Evidence) -> Sequence[Score]:
        """A score for each target, one after the other."""
        base = base_event(
            evidence,
            name=self.name,
            identity=self.identity or self.name,
            level=self.level,
        )
        digest, scores, left = self.digest, list[Score](), targets_of(evidence, self.level)
        while left:
            # A process that failed is not used again; the rest goes on in another.
            done = await self._some(evidence, base, left)
            scores += [replace(score, evaluator_digest=digest) for score in done]
            left = left[len(done) :]
        return scores

    async def _some(self, evidence: Evidence, base: Any, targets: Sequence[Target]) -> list[Score]:
        """The scores of targets up to the first that ends the process, or all."""
        scores: list[Score] = []
        try:
            async with pool_of(self._job).worker() as worker:
                await worker.send({"base": base})
                for target in targets:
                    scores.append(await self._called(worker, evidence, target))
        except TimeoutError:
            said = f"the function took longer than {self.timeout_seconds:g} s and was ended"
            scores.append(failed(self._about(targets[len(scores)]), said, "Timeout"))
        except Died as error:
            scores.append(failed(self._about(targets[len(scores)]), str(error), "ProcessEnded"))
        return scores

    async def _called(self, worker: Worker, evidence: Evidence, target: Target) -> Score:
        about = self._about(target)
        async with asyncio.timeout(self.timeout_seconds):
            await worker.send({"target": event_target(evidence, target)})
            answer = await worker.answer()
        if not isinstance(answer, Mapping) or "outcome" not in answer:
            raised = answer if isinstance(answer, Mapping) else {}
            kind = str(raised.get("raised") or "Died")
            return failed(about, f"{kind}: {raised.get('said', '')}", kind)
        return scored(about, answer["outcome"])

    @property
    def _version(self) -> str:
        return sha256(self.source.read_bytes()).hexdigest()

    @property
    def _job(self) -> Job:
        return Job(
            function=self.function,
            folder=self.folder,
            environment=tuple(sorted(self.environment.items())),
            attempt=self.attempt,
            megabytes=self.megabytes,
            version=self._version,
        )

    def _about(self, target: Target) -> Score:
        return Score(evaluator=self.name, level=target.level, target=target.id)


def source_of(function: str, folder: Path) -> Path | None:
    """The file a function's module is in, without importing it; None when there is none."""
    places: Sequence[str] | None = [str(folder), *sys.path]
    spec: ModuleSpec | None = None
    module = function.partition(":")[0]
    for depth in range(1, module.count(".") + 2):
        name = ".".join(module.split(".")[:depth])
        spec = PathFinder.find_spec(name, places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    return Path(spec.origin) if spec and spec.origin and Path(spec.origin).is_file() else None
