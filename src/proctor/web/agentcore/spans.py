"""The session that a caller brings along as spans, as an evaluator sees it.

Nothing of it is kept. Where the spans tell of no session, or of several, the caller hears why.

Knows nothing of evaluators.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proctor.evaluator import Evidence, Reference
from proctor.imported import ImportedSession
from proctor.store.evidence import evidence_of_import
from proctor.telemetry import Document, normalised, session_of
from proctor.telemetry.documents import is_span, service_of, session_key_of
from proctor.untrusted import parse_json
from proctor.web.agentcore.errors import ValidationException, told
from proctor.web.agentcore.shapes import Flaw

INPUT = "evaluationInput.sessionSpans"


def evidence_of_spans(spans: Sequence[Any], references: Sequence[Mapping[str, Any]]) -> Evidence:
    """What the spans tell, with what was expected of it."""
    session = _session(_documents(spans))
    evidence = evidence_of_import(session)
    return replace(evidence, reference=_reference(evidence, references)) if references else evidence


def _documents(spans: Sequence[Any]) -> list[Document]:
    documents, problems = list[Document](), list[str]()
    for number, span in enumerate(spans, start=1):
        try:
            documents.append(normalised(_mapping(span)))
        except ValueError as problem:
            problems.append(f"{number}: {problem}")
    if not documents:
        raise ValidationException(f"Provided input has no readable span documents ({problems[0]})")
    if not any(map(is_span, documents)):
        raise ValidationException(
            f"Provided input contains {len(documents)} log event(s) but no span documents. "
            "Log events alone cannot be evaluated"
        )
    return documents


def _mapping(span: Any) -> Mapping[str, Any]:
    # Readers of log streams hand over what they read: a document as text.
    found = parse_json(span) if isinstance(span, str) else span
    if not isinstance(found, Mapping):
        raise ValueError("it is no JSON object")
    return found


def _session(documents: Sequence[Document]) -> ImportedSession:
    named = list(dict.fromkeys(key for document in documents if (key := session_key_of(document))))
    if len(named) > 1:
        raise ValidationException(
            f"Provided input has spans of {len(named)} sessions ({', '.join(named[:3])}); "
            "evaluate one at a time"
        )
    traces = dict.fromkeys(document["traceId"] for document in documents)
    if not named and len(traces) > 1:
        raise ValidationException(
            f"Provided input has {len(traces)} traces and no span says which session they are of: "
            "attribute session.id is missing"
        )
    service = next((name for document in documents if (name := service_of(document))), "")
    session = session_of(documents, external_id=[*named, *traces][0], service=service)
    if session is None:
        raise ValidationException("Provided input has no spans with supported scope")
    return session


def _reference(evidence: Evidence, references: Sequence[Mapping[str, Any]]) -> Reference:
    turns = {trace.id: number for number, trace in enumerate(evidence.traces)}
    if flaws := list(_reference_flaws(evidence, references, turns)):
        raise told(flaws)
    assertions, trajectory, responses = list[str](), None, dict[int, str]()
    for entry in references:
        about = entry["context"]["spanContext"]
        assertions += [each["text"] for each in entry.get("assertions") or ()]
        if entry.get("expectedTrajectory") is not None:
            trajectory = entry["expectedTrajectory"].get("toolNames") or []
        if entry.get("expectedResponse") is not None:
            # Without a trace it can only mean the one there is.
            turn = turns[about["traceId"].lower()] if about.get("traceId") else 0
            responses[turn] = entry["expectedResponse"]["text"]
    return Reference(assertions=assertions, trajectory=trajectory, responses=responses)


def _reference_flaws(
    evidence: Evidence, references: Sequence[Mapping[str, Any]], turns: Mapping[str, int]
) -> Iterator[Flaw]:
    for number, entry in enumerate(references, start=1):
        name = f"evaluationReferenceInputs.{number}.member.context.spanContext"
        about = entry["context"]["spanContext"]
        if about["sessionId"] != evidence.session_id:
            yield Flaw(f"{name}.sessionId", "Member must be the session of the provided spans")
        if about.get("traceId") and about["traceId"].lower() not in turns:
            yield Flaw(f"{name}.traceId", "Member must be a trace of the provided spans")
        if entry.get("expectedResponse") is not None and not about.get("traceId") and len(turns) > 1:
            yield Flaw(f"{name}.traceId", "Member must not be null where there are several traces")
