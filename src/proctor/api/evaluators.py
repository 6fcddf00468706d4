"""Evaluators: list and describe them, and try one on a session without storing anything."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from proctor.context import RunContext
from proctor.errors import AttemptError, UsageError
from proctor.evaluator import Evaluator, Evidence, Reference, judges_of
from proctor.evaluators import registry
from proctor.evaluators.builtins import JUDGED, PREFIX, question_of
from proctor.evaluators.code import evidence_of_document, reference_of
from proctor.evaluators.criteria import RubricEvaluator, rubric_names
from proctor.evaluators.definition import FUNCTION
from proctor.evaluators.matchers import MATCHINGS
from proctor.evaluators.registry import (
    SUFFIXES,
    EvaluatorListing,
    EvaluatorNotFound,
    EvaluatorRegistry,
    builtin_listing,
    definition_files,
    definition_listing,
    read_definition,
    read_document,
    rubric_criteria,
    rubric_listing,
)
from proctor.jobs.evaluation.prepare import judge_options
from proctor.json_values import JsonMap, as_map, as_text, parse_json
from proctor.models import is_mock
from proctor.score import Score
from proctor.store import Store
from proctor.store.sessions import evidence_of_session
from proctor.telemetry import normalized, sessions_of
from proctor.telemetry.otlp import decode_json

CONCURRENT_SESSIONS = 8


def definition_folders(ctx: RunContext) -> list[Path]:
    """The folders with definitions of evaluators."""
    folder = ctx.settings.folders[0] if ctx.settings.folders else Path.cwd()
    return [folder / "evaluators", ctx.home / "evaluators"]


def list_evaluators(ctx: RunContext) -> list[EvaluatorListing]:
    """Every evaluator that can be named: built in, in a folder `evaluators`, or in the store."""
    stored = ctx.store.definitions.all_evaluators()
    return list(registry.list_evaluators(definition_folders(ctx), stored))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorDescription:
    """Everything known about an evaluator without calling a model."""

    listing: EvaluatorListing
    source: str = "Proctor"
    """Where it comes from: a file, the store, Python, or Proctor."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Instructions of its judge, by title."""
    definition: JsonMap | None = None
    """None: it is built in."""


def describe_evaluator(ctx: RunContext, name: str) -> EvaluatorDescription:
    """An evaluator by its name or file. Raises `EvaluatorNotFound` with the names that are similar."""
    if name in MATCHINGS:
        return EvaluatorDescription(listing=builtin_listing(name))
    if name.startswith(PREFIX) and name.removeprefix(PREFIX) in JUDGED:
        listing = builtin_listing(name)
        question, with_reference = question_of(name.removeprefix(PREFIX), 1.0)
        texts = {"Instructions": question.instructions}
        if with_reference:
            texts[f"Instructions where {listing.reference} is given"] = with_reference.instructions
        return EvaluatorDescription(listing=listing, texts=texts)
    if name in rubric_names():
        texts = {criterion.name: criterion.instructions for criterion in rubric_criteria(name)}
        return EvaluatorDescription(listing=rubric_listing(name), texts=texts)
    source, definition = _definition(ctx, name)
    judge = as_map(definition, "evaluatorConfig", "llmAsAJudge")
    id_ = as_text(definition, "evaluatorId") or as_text(definition, "evaluatorName")
    return EvaluatorDescription(
        listing=definition_listing(definition, id_=id_),
        source=source,
        texts={"Instructions": as_text(judge, "instructions")} if judge else {},
        definition=definition,
    )


def _definition(ctx: RunContext, name: str) -> tuple[str, JsonMap]:
    """Where a definition comes from, and the definition."""
    if name.endswith(SUFFIXES) and Path(name).is_file():
        return name, read_definition(Path(name))
    if (stored := ctx.store.definitions.document(name)) is not None:
        return "the store", stored
    for path in definition_files(definition_folders(ctx)):
        if path.stem == name:
            return str(path), read_definition(path)
    function, _, level = name.partition("@")
    if FUNCTION.fullmatch(function):
        config = {"codeBased": {"function": function}}
        level = (level or "session").upper()
        return "Python", {"evaluatorName": name, "level": level, "evaluatorConfig": config}
    # Raises with the names that are similar.
    with EvaluatorWorkbench(ctx, judge="scripted/ok") as workbench:
        workbench.evaluator(name)
    raise EvaluatorNotFound(f"there is no evaluator `{name}`")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorTrial:
    """An evaluator, and what it has said about one session."""

    evaluator: Evaluator
    scores: Sequence[Score]


def try_evaluator(
    ctx: RunContext,
    name: str,
    session: str,
    *,
    reference: Path | None = None,
    judge: str = "",
    votes: int = 1,
) -> EvaluatorTrial:
    """Evaluate one session, of the store or in a file, against the ground truth in a file; stores nothing."""
    truth = reference_of(read_document(reference)) if reference else None
    evidence = session_from(ctx.store, session, truth)
    with EvaluatorWorkbench(ctx, judge=judge, votes=votes) as workbench:
        evaluator = workbench.evaluator(name)
        scores = asyncio.run(workbench.judged(evaluator, [evidence]))[0]
    if isinstance(scores, AttemptError):
        raise scores
    return EvaluatorTrial(evaluator=evaluator, scores=scores)


class EvaluatorWorkbench:
    """Applies one evaluator to sessions from a terminal, outside of a run."""

    def __init__(self, ctx: RunContext, *, judge: str = "", votes: int = 1) -> None:
        folder, section = Path.cwd(), ctx.settings.evaluation
        registry: EvaluatorRegistry = ctx.evaluators(folder)
        self._find = registry.finder({})
        self._models = ctx.models(judge_options(folder, {}))
        self._settings = {
            "judge": judge or str(section.get("judge", "")),
            "votes": votes,
            "harmfulValue": section.get("harmful_value", 1.0),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._models.recording:
            self._models.recording.close()

    def evaluator(self, name: str) -> Evaluator:
        """The evaluator of this name; its judge exists."""
        evaluator = self._find(name, self._settings, self._models)
        for judge in judges_of(evaluator):
            self._models.check(judge)
        return evaluator

    async def judged(
        self, evaluator: Evaluator, sessions: Sequence[Evidence]
    ) -> list[list[Score] | AttemptError]:
        """The scores of each session, or the error that kept it from being evaluated.

        Aspects of a rubric are its dimensions here, as in labels by people.
        """
        slots = asyncio.Semaphore(CONCURRENT_SESSIONS)
        aspects = (
            {criterion.name: aspect for aspect, criterion in evaluator.aspects.items()}
            if isinstance(evaluator, RubricEvaluator)
            else {}
        )

        async def scores_of(evidence: Evidence) -> list[Score] | AttemptError:
            async with slots:
                try:
                    scores = await evaluator.judge(evidence)
                    return [
                        replace(score, dimension=aspects.get(score.evaluator, score.dimension))
                        for score in scores
                    ]
                except AttemptError as error:
                    return error

        try:
            return await asyncio.gather(*map(scores_of, sessions))
        finally:
            await self._models.close()


def mock_judge_of(evaluator: Evaluator) -> str:
    """The judge of an evaluator if it is a mock, whose scores say nothing about real judges; else empty."""
    return next(filter(is_mock, judges_of(evaluator)), "")


def session_from(store: Store, session: str, reference: Reference | None) -> Evidence:
    """A session by its id, or the one in a file."""
    path = Path(session)
    if not path.is_file():
        return store.read.evidence(session, reference)
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        document = parse_json(text)
    except ValueError:
        document = None
    if isinstance(document, dict) and ("turns" in document or "session" in document):
        return evidence_of_document(document.get("session", document), reference)
    return _from_telemetry(path, text, reference)


def _from_telemetry(path: Path, text: str, reference: Reference | None) -> Evidence:
    documents = []
    for line in [text] if text.lstrip().startswith("[") else text.splitlines():
        if line.strip():
            try:
                value = parse_json(line)
                if isinstance(value, dict) and "traceId" in value:
                    documents.append(normalized(value))
                else:
                    documents += decode_json(line).documents
            except ValueError as problem:
                raise UsageError(f"{path}: not a valid session: {problem}") from problem
    sessions = sessions_of(documents)
    if len(sessions) != 1:
        names = ", ".join(session.external_id for session in sessions[:5])
        raise UsageError(
            f"{path} holds {len(sessions)} sessions: {names}\n"
            f"Import them, then name one: proctor import otlp {path}"
        )
    return evidence_of_session(sessions[0], reference)
