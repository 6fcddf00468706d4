"""Resolves evaluators by name, and lists those that can be named.

A definition from a file or from the store is copied into the evaluation, so that changing it later changes
nothing about an evaluation that has begun. A function cannot be copied: if its source has changed since, its
digest differs, and the items that are left fail.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from proctor.errors import UsageError
from proctor.evaluator import Evaluator, FindEvaluator
from proctor.evaluators import (
    EvaluationSettings,
    definition_files,
    evaluator_of,
    find_evaluator,
    read_definition,
)
from proctor.evaluators.builtins import JUDGED, PREFIX
from proctor.evaluators.find import SUFFIXES
from proctor.evaluators.matchers import MATCHINGS
from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_map,
    as_number,
    as_text,
    maps_in,
    require_map,
    require_number,
    require_text,
)
from proctor.model import Model

Definitions = Callable[[str], JsonMap | None]
"""A stored definition by its id or name; None when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorRegistry:
    """Looks up evaluators in a folder, in folders of definitions, and in the store."""

    folder: Path
    """Where relative paths begin, and functions and programs are run."""
    environment: Mapping[str, str]
    """Of user-defined functions and programs: no keys, no tokens."""
    definitions: Definitions = lambda _: None
    """Definitions of the store."""
    folders: Sequence[Path] = ()
    lambdas: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    mark: str = "evaluation"
    """Label of the processes they start, by which all of them can be found and ended."""

    objects: Mapping[str, Evaluator] = field(default_factory=dict)
    """Evaluators that are objects of this process, by name."""

    def copies(self, names: Sequence[str]) -> JsonObject:
        """The current definitions of these names, with those they are derived from."""
        copied: JsonObject = {}
        pending = list(names)
        while pending:
            name = pending.pop()
            document = None if name in copied else self._document(name)
            if document is not None:
                copied[name] = dict(document)
                derived = as_map(document, "evaluatorConfig", "derived")
                pending += filter(None, [as_text(derived, "baseEvaluatorId")])
        return copied

    def finder(self, copies: JsonMap) -> FindEvaluator:
        """Finds evaluators for attempts: the copied definition, else by name."""

        def definitions(name: str) -> JsonMap | None:
            return as_map(copies, name) or self.definitions(name)

        def find(name: str, settings: JsonMap, models: Model) -> Evaluator:
            if name in self.objects:
                return self.objects[name]
            options = self._settings(settings)
            if copy := as_map(copies, name):
                return evaluator_of(copy, models=models, settings=options, definitions=definitions)
            return find_evaluator(name, models=models, settings=options, definitions=definitions)

        return find

    def _document(self, name: str) -> JsonMap | None:
        if name.endswith(SUFFIXES) and (path := self.folder / name).is_file():
            return read_definition(path)
        document = self.definitions(name)
        if document is not None:
            return document
        files = definition_files(self.folders)
        return next((read_definition(path) for path in files if path.stem == name), None)

    def _settings(self, options: JsonMap) -> EvaluationSettings:
        return EvaluationSettings(
            judge_model=as_text(options, "judge"),
            votes=int(require_number(options.get("votes", 1))),
            parameters=as_map(options, "parameters"),
            harmful_value=require_number(options.get("harmfulValue", 1.0)),
            lambdas=self.lambdas,
            folder=self.folder,
            folders=self.folders,
            environment=self.environment,
            attempt=self.mark,
        )


KINDS = {"llmAsAJudge": "judge", "codeBased": "code", "derived": "derived"}
"""Kinds of definitions, as people read them."""
YES_NO = {"Yes": 1.0, "No": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorListing:
    """An evaluator that can be named."""

    name: str
    """As scores have it."""
    id: str
    """As requests name it."""
    level: str = ""
    """`session`, `trace` or `tool_call`; empty when the definition is invalid."""
    kind: str = ""
    """`judge`, `program`, `code` or `derived`; empty when the definition is invalid."""
    judges: str = ""
    """What it evaluates."""
    path: Path | None = None
    """The file of its definition; None: built in, or in the store."""
    is_stored: bool = False
    asks_model: bool = False
    reference: str = ""
    """The member of the ground truth that it uses; empty: none."""
    ratings: Mapping[str, float | None] = field(default_factory=dict)
    """Its labels and their values; empty: unknown, or any."""
    problem: str = ""
    """Why it cannot be used; empty when it can."""

    @property
    def is_builtin(self) -> bool:
        """Whether it comes with Proctor."""
        return self.path is None and not self.is_stored

    def source(self, file: str) -> str:
        """Where it comes from; `file` is the name of its file."""
        return file if self.path else "the store" if self.is_stored else "Proctor"


class StoredEvaluator(TypedDict):
    """The columns of a stored definition that a listing shows."""

    id: str
    name: str
    level: str
    kind: str
    description: str


def list_evaluators(folders: Sequence[Path], stored: Iterable[StoredEvaluator]) -> Iterator[EvaluatorListing]:
    """Every evaluator that can be named: built-in ones, those in folders of definitions, stored ones."""
    yield from map(builtin_listing, [*(PREFIX + name for name in JUDGED), *MATCHINGS])
    for path in definition_files(folders):
        try:
            yield definition_listing(read_definition(path), id_=path.stem, path=path)
        except UsageError as error:
            problem = str(error).partition("\n")[0]
            yield EvaluatorListing(name=path.stem, id=path.stem, path=path, problem=problem)
    for row in stored:
        yield EvaluatorListing(
            name=row["name"],
            id=row["id"],
            level=row["level"].lower(),
            kind=KINDS[row["kind"]],
            asks_model=row["kind"] != "codeBased",
            is_stored=True,
            judges=row["description"],
        )


def builtin_listing(name: str) -> EvaluatorListing:
    """A built-in evaluator, by its whole name."""
    if name in MATCHINGS:
        return EvaluatorListing(
            name=name,
            id=name,
            level="session",
            kind="program",
            judges=f"{MATCHINGS[name].description} of tool names",
            reference="expectedTrajectory",
            ratings=YES_NO,
        )
    one = JUDGED[name.removeprefix(PREFIX)]
    return EvaluatorListing(
        name=name,
        id=name,
        level=one.level,
        kind="judge",
        judges=one.judges,
        asks_model=True,
        reference=one.reference,
        ratings=one.ratings,
    )


def definition_listing(document: JsonMap, *, id_: str, path: Path | None = None) -> EvaluatorListing:
    """The evaluator of a checked definition."""
    config = require_map(document["evaluatorConfig"])
    kind = next(each for each in KINDS if config.get(each) is not None)
    return EvaluatorListing(
        name=require_text(document["evaluatorName"]),
        id=id_,
        level=require_text(document["level"]).lower(),
        kind=KINDS[kind],
        judges=as_text(document, "description"),
        path=path,
        asks_model=kind != "codeBased",
        ratings=ratings_of(document),
    )


def ratings_of(document: JsonMap, dimension: str = "") -> dict[str, float | None]:
    """The labels of a definition, or of one of its dimensions, with their values."""
    scale = as_map(document, "evaluatorConfig", "llmAsAJudge", "ratingScale")
    for each in maps_in(scale, "multiDimensional"):
        if each.get("dimensionName") == dimension:
            scale = as_map(each, "dimensionRatingScale")
    entries = maps_in(scale.get("numerical") or scale.get("categorical"))
    return {require_text(entry["label"]): as_number(entry, "value") for entry in entries}
