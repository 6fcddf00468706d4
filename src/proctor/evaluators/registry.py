"""Evaluators of an evaluation, found by name and frozen at its start.

Definitions from files or the store are copied, so that later changes do not affect a running evaluation. A
function cannot be copied: if its source changes, so does its digest, and the remaining items report it.
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
"""A stored definition by id or name; None when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorRegistry:
    """Where evaluators are searched, and the environment of user code."""

    folder: Path
    """Base of relative paths, and working folder of functions and programs."""
    environment: Mapping[str, str]
    """Of functions and programs: no keys."""
    definitions: Definitions = lambda _: None
    """Definitions in the store."""
    folders: Sequence[Path] = ()
    lambdas: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    mark: str = "evaluation"
    """Marks processes, so that all can be found and ended."""

    def copies(self, names: Sequence[str]) -> dict[str, Any]:
        """The current definitions of these names, with those they are derived from."""
        copied: dict[str, Any] = {}
        pending = list(names)
        while pending:
            name = pending.pop()
            document = None if name in copied else self._document(name)
            if document is not None:
                copied[name] = dict(document)
                derived = (document.get("evaluatorConfig") or {}).get("derived") or {}
                pending += [derived["baseEvaluatorId"]] if derived.get("baseEvaluatorId") else []
        return copied

    def finder(self, copies: Mapping[str, Any]) -> FindEvaluator:
        """Finds evaluators for attempts: the copied definition, else by name."""

        def definitions(name: str) -> Mapping[str, Any] | None:
            return copies.get(name) or self.definitions(name)

        def find(name: str, settings: Mapping[str, Any], models: Model) -> Evaluator:
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

    def _settings(self, options: Mapping[str, Any]) -> EvaluationSettings:
        return EvaluationSettings(
            judge_model=options.get("judge", ""),
            votes=options.get("votes", 1),
            parameters=options.get("parameters", {}),
            harmful_value=options.get("harmfulValue", 1.0),
            lambdas=self.lambdas,
            folder=self.folder,
            folders=self.folders,
            environment=self.environment,
            attempt=self.mark,
        )
