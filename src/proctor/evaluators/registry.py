"""Who judges in a job: evaluators found by name, and kept as they were when the job began.

A definition from a file or from the store is copied into the job, so that changing it later changes
nothing about a job that is under way. A function cannot be copied: if its source has changed since, its
digest tells, and the items that are left say so.

Knows nothing of sessions or of how results are kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.evaluator import Evaluator, FindEvaluator
from proctor.evaluators import (
    EvaluationSettings,
    definition_files,
    evaluator_of,
    find_evaluator,
    read_definition,
)
from proctor.evaluators.find import SUFFIXES
from proctor.model import Model

Definitions = Callable[[str], Mapping[str, Any] | None]
"""A kept definition by its id or name; None when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorRegistry:
    """Where evaluators are looked for, and what those of the user's own may see."""

    folder: Path
    """Where relative paths begin, and functions and programs are found and run."""
    environment: Mapping[str, str]
    """Of the user's own functions and programs: no keys, no tokens."""
    definitions: Definitions = lambda _: None
    """What is kept in the store."""
    folders: Sequence[Path] = ()
    lambdas: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    mark: str = "evaluation"
    """What processes are marked with, so that all of them can be found and ended."""

    objects: Mapping[str, Evaluator] = field(default_factory=dict)
    """Evaluators that are objects of this process, by name."""

    def copies(self, names: Sequence[str]) -> dict[str, Any]:
        """The definitions that names stand for now, with those they are derived from."""
        copied: dict[str, Any] = {}
        wanted = list(names)
        while wanted:
            name = wanted.pop()
            document = None if name in copied else self._document(name)
            if document is not None:
                copied[name] = dict(document)
                derived = (document.get("evaluatorConfig") or {}).get("derived") or {}
                wanted += [derived["baseEvaluatorId"]] if derived.get("baseEvaluatorId") else []
        return copied

    def finder(self, copies: Mapping[str, Any]) -> FindEvaluator:
        """Finds evaluators for attempts: as they were copied, else by name."""

        def definitions(name: str) -> Mapping[str, Any] | None:
            return copies.get(name) or self.definitions(name)

        def find(name: str, settings: Mapping[str, Any], models: Model) -> Evaluator:
            if name in self.objects:
                return self.objects[name]
            asked = self._settings(settings)
            if name in copies:
                return evaluator_of(copies[name], models=models, settings=asked, definitions=definitions)
            return find_evaluator(name, models=models, settings=asked, definitions=definitions)

        return find

    def _document(self, name: str) -> Mapping[str, Any] | None:
        if name.endswith(SUFFIXES) and (path := self.folder / name).is_file():
            return read_definition(path)
        kept = self.definitions(name)
        if kept is not None:
            return kept
        files = definition_files(self.folders)
        return next((read_definition(path) for path in files if path.stem == name), None)

    def _settings(self, asked: Mapping[str, Any]) -> EvaluationSettings:
        return EvaluationSettings(
            judge_model=asked.get("judge", ""),
            votes=asked.get("votes", 1),
            parameters=asked.get("parameters", {}),
            harmful_value=asked.get("harmfulValue", 1.0),
            lambdas=self.lambdas,
            folder=self.folder,
            folders=self.folders,
            environment=self.environment,
            attempt=self.mark,
        )
