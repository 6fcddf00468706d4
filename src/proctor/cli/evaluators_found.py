"""Evaluators as commands find, show and use them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from proctor.cli.output import print_note, printable
from proctor.context import RunContext
from proctor.errors import AttemptError, UsageError
from proctor.evaluator import Evaluator, Evidence, Reference
from proctor.evaluators import definition_files, read_definition
from proctor.evaluators.builtins import JUDGED, PREFIX, question_of
from proctor.evaluators.definition import FUNCTION
from proctor.evaluators.event import evidence_of_document
from proctor.evaluators.find import SUFFIXES, EvaluatorNotFound
from proctor.evaluators.matchers import MATCHINGS
from proctor.evaluators.model_judge import ModelJudge
from proctor.evaluators.registry import EvaluatorRegistry
from proctor.jobs.evaluation.prepare import judge_options
from proctor.json_values import parse_json
from proctor.models import is_stand_in
from proctor.score import Score
from proctor.store import Store
from proctor.store.sessions import evidence_of_import
from proctor.telemetry import normalised, sessions_of
from proctor.telemetry.otlp import decode_json

AT_ONCE = 8
"""Sessions that are judged at the same time."""


WORDS = {"session": "SESSION", "trace": "TRACE", "tool_call": "TOOL_CALL"}


KINDS = {"llmAsAJudge": "judge", "codeBased": "code", "derived": "derived"}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorListing:
    """An evaluator that can be named."""

    name: str
    level: str
    kind: str
    """`judge`, `program`, `code` or `derived`."""
    source: str
    """`Proctor`, a file, or `the store`."""
    judges: str = ""
    problem: str = ""
    """Why it cannot be used; empty when it can."""
    id: str = ""

    @property
    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "id": self.id or self.name,
            "level": self.level,
            "kind": self.kind,
            "from": self.source,
            "judges": self.judges,
            "problem": self.problem,
        }


class EvaluatorWorkbench:
    """Where an evaluator sits in judgement from a terminal: models, settings, and the user's own code."""

    def __init__(self, ctx: RunContext, *, judge: str = "", votes: int = 1) -> None:
        folder, section = Path.cwd(), ctx.settings.evaluation
        registry: EvaluatorRegistry = ctx.evaluators(folder)
        self._find = registry.finder({})
        self._models = ctx.models(judge_options(folder, None))
        self._settings = {
            "judge": judge or str(section.get("judge", "")),
            "votes": votes,
            "harmfulValue": section.get("harmful_value", 1.0),
        }

    def __enter__(self) -> "EvaluatorWorkbench":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._models.tape:
            self._models.tape.close()

    def evaluator(self, name: str) -> Evaluator:
        """The evaluator a name stands for; its judge is known to exist."""
        found = self._find(name, self._settings, self._models)
        if judge := asked_by(found):
            self._models.check(judge)
        return found

    async def judged(
        self, evaluator: Evaluator, sessions: Sequence[Evidence]
    ) -> list[list[Score] | AttemptError]:
        """The scores of each session, or why it could not be judged at all."""
        places = asyncio.Semaphore(AT_ONCE)

        async def one(evidence: Evidence) -> list[Score] | AttemptError:
            async with places:
                try:
                    return list(await evaluator.judge(evidence))
                except AttemptError as error:
                    return error

        try:
            return await asyncio.gather(*map(one, sessions))
        finally:
            await self._models.close()


def asked_by(evaluator: Evaluator) -> str:
    """The model that an evaluator asks; empty when it asks none."""
    return evaluator.judge_model.model if isinstance(evaluator, ModelJudge) else ""


def tell_stand_in(evaluator: Evaluator) -> None:
    """Say so when the judge only rehearses."""
    judge = asked_by(evaluator)
    if judge and is_stand_in(judge):
        print_note(f"note: {printable(judge)} is a stand-in; its verdicts mean nothing")


def found_evaluators(ctx: RunContext) -> list[EvaluatorListing]:
    """Every evaluator that can be named here: ours, those in files, those in the store."""
    built_in = [
        EvaluatorListing(
            name=PREFIX + name, level=WORDS[one.level], kind="judge", source="Proctor", judges=one.judges
        )
        for name, one in JUDGED.items()
    ]
    matchers = [
        EvaluatorListing(
            name=name, level="SESSION", kind="program", source="Proctor", judges=f"{each.words} of tool names"
        )
        for name, each in MATCHINGS.items()
    ]
    folders = [Path.cwd() / "evaluators", ctx.home / "evaluators"]
    files = [_in_file(path) for path in definition_files(folders)]
    kept = [
        EvaluatorListing(
            name=row["name"],
            id=row["id"],
            level=row["level"],
            kind=row["kind"],
            source="the store",
            judges=row["description"],
        )
        for row in _stored(ctx.store)
    ]
    return [*built_in, *matchers, *files, *kept]


def shown_evaluator(ctx: RunContext, name: str) -> dict[str, Any]:
    """All there is to tell of an evaluator, without asking anybody."""
    if name in MATCHINGS:
        told = EvaluatorListing(
            name=name, level="SESSION", kind="program", source="Proctor", judges=MATCHINGS[name].words
        )
        return told.document | {
            "ratings": {"Yes": 1.0, "No": 0.0},
            "texts": {},
            "uses": ["expectedTrajectory"],
        }
    if name.removeprefix(PREFIX) in JUDGED and name.startswith(PREFIX):
        return _shown_built_in(name.removeprefix(PREFIX))
    source, document = _defined(ctx, name)
    config: Mapping[str, Any] = document["evaluatorConfig"]
    (kind,) = (each for each in KINDS if config.get(each) is not None)
    found = EvaluatorListing(
        name=document["evaluatorName"],
        id=str(document.get("evaluatorId") or ""),
        level=document["level"],
        kind=KINDS[kind],
        source=source,
        judges=document.get("description") or "",
    )
    scale = config[kind].get("ratingScale", {})
    entries = scale.get("numerical") or scale.get("categorical") or ()
    texts = {"Instructions": config[kind]["instructions"]} if kind == "llmAsAJudge" else {}
    return found.document | {
        "ratings": {entry["label"]: entry.get("value") for entry in entries},
        "texts": texts,
        "definition": dict(document),
    }


def session_from(store: Store, session: str, reference: Reference | None) -> Evidence:
    """A session by its id, or the one a file holds."""
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
                found = parse_json(line)
                flat = isinstance(found, dict) and "traceId" in found
                documents += [normalised(found)] if flat else decode_json(line).documents
            except ValueError as problem:
                raise UsageError(f"{path}: this is no session: {problem}") from problem
    sessions = sessions_of(documents)
    if len(sessions) != 1:
        names = ", ".join(each.external_id for each in sessions[:5])
        raise UsageError(
            f"{path} holds {len(sessions)} sessions: {names}\n"
            f"Import them, then name one: proctor import otlp {path}"
        )
    return evidence_of_import(sessions[0], reference)


def _in_file(path: Path) -> EvaluatorListing:
    shown = str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
    try:
        document = read_definition(path)
    except UsageError as error:
        problem = f"cannot be used: {str(error).partition(chr(10))[0]}"
        return EvaluatorListing(name=path.stem, level="–", kind="–", source=shown, problem=problem)
    (kind,) = (each for each in KINDS if document["evaluatorConfig"].get(each) is not None)
    judges = document.get("description") or ""
    return EvaluatorListing(
        name=path.stem, level=document["level"], kind=KINDS[kind], source=shown, judges=judges
    )


def _stored(store: Store) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = []
    while page := store.definitions.evaluators(after=rows[-1]["id"] if rows else "", limit=500):
        rows += page
    return rows


def _shown_built_in(name: str) -> dict[str, Any]:
    one = JUDGED[name]
    found = EvaluatorListing(
        name=PREFIX + name, level=WORDS[one.level], kind="judge", source="Proctor", judges=one.judges
    )
    question, other = question_of(name, 1.0)
    texts = {"Instructions": question.instructions}
    if other:
        texts[f"Instructions where {one.reference} is given"] = other.instructions
    return found.document | {
        "ratings": dict(one.ratings),
        "texts": texts,
        "uses": [one.reference] if one.reference else [],
    }


def _defined(ctx: RunContext, name: str) -> tuple[str, Mapping[str, Any]]:
    if name.endswith(SUFFIXES) and Path(name).is_file():
        return name, read_definition(Path(name))
    if (kept := ctx.store.definitions.document(name)) is not None:
        return "the store", kept
    for path in definition_files([Path.cwd() / "evaluators", ctx.home / "evaluators"]):
        if path.stem == name:
            return str(path), read_definition(path)
    function, _, level = name.partition("@")
    if FUNCTION.fullmatch(function):
        config = {"codeBased": {"function": function}}
        return "Python", {
            "evaluatorName": name,
            "level": (level or "session").upper(),
            "evaluatorConfig": config,
        }
    # Raises with what was perhaps meant.
    with EvaluatorWorkbench(ctx, judge="scripted/ok") as seat:
        seat.evaluator(name)
    raise EvaluatorNotFound(f"there is no evaluator `{name}`")
