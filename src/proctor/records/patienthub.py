"""PatientHub sessions: dialogues of a client and a therapist, including those of Proctor's simulations.

The therapist is under test, unless the file says otherwise. A turn is a message of the therapist and the
client's reply. The original has no ids, models or times; a file that was written twice contains a list of
sessions.
"""

from pathlib import Path

from proctor.json_values import (
    JsonMap,
    as_cost,
    as_datetime,
    as_map,
    as_name,
    as_text,
    as_whole_number,
    maps_in,
    message_text,
    without_empty,
)
from proctor.records._reading import (
    Read,
    TranscriptBuilder,
    exported_scores,
    head_of,
    load_json,
    place_of,
    read_session,
    unreadable,
)
from proctor.session import ModelCall, Role, Session, Usage

kind = "patienthub"
CLIENT, THERAPIST = "client", "therapist"
SUMMARY = "batch_summary.json"

# Only Proctor's files have one.
_STATUSES = ("error", "fail", "timeout", "success")


def recognizes(path: Path) -> bool:
    """Whether a file begins like a session of a client and a therapist."""
    head = head_of(path, (".json",))
    is_dialogue = b'"therapist"' in head or b'"client"' in head
    is_talk = all(word in head for word in (b'"profile"', b'"messages"', b'"role"')) and is_dialogue
    return is_talk and path.name != SUMMARY


def read(path: Path) -> Read:
    """The sessions of a file."""
    try:
        document = load_json(path)
    except (ValueError, OSError) as error:
        yield unreadable(path, error)
        return
    sessions = document if isinstance(document, list) else [document]
    for number, session in enumerate(sessions):
        part = f"session {number + 1}" if len(sessions) > 1 else ""
        if not isinstance(session, dict) or not isinstance(session.get("messages"), list):
            yield unreadable(path, "it has no messages", part)
            continue
        # Appending to a file turns its session into the first of a list: it is still the same one.
        name = path.stem if not number else f"{path.stem}#{number + 1}"
        yield read_session(path, lambda it=session, of=name: _session(path, it, of), part)  # type: ignore[misc]


def _session(path: Path, session: JsonMap, name: str) -> Session:
    under_test = CLIENT if session.get("under_test") == CLIENT else THERAPIST
    transcript = TranscriptBuilder(turns_by_user=False)
    _add_messages(transcript, session, under_test)
    record, roles = as_map(session, "record"), as_map(session, "roles")
    _add_usage(transcript, session, roles)
    status = as_text(session, "status")
    status = status if status in _STATUSES else "success"
    ended = as_text(session, "end_reason")
    return Session(
        external_id=as_text(record, "session_id") or place_of(path, name),
        source=kind,
        name=name,
        agent=as_text(session.get(under_test)),
        model=as_text(as_map(roles, under_test).get("model")),
        status=status,
        end_reason=ended or ("completed" if status == "success" else "internal_error"),
        error=as_text(session, "error"),
        task=as_text(session, THERAPIST if under_test == CLIENT else CLIENT),
        started_at=as_datetime(record, "started_at") or transcript.began_at,
        finished_at=as_datetime(record, "finished_at") or transcript.ended_at,
        steps=transcript.steps,
        attributes=without_empty(
            {
                CLIENT: as_text(session.get(CLIENT)),
                THERAPIST: as_text(session.get(THERAPIST)),
                "combination": as_text(session, "combination"),
                "run_id": as_name(session, "run_id"),
                "seed": as_name(session, "seed"),
            }
        ),
        scores=exported_scores(session.get("scores")),
    )


def _add_messages(transcript: TranscriptBuilder, session: JsonMap, under_test: str) -> None:
    opened_by = ""
    for message in maps_in(session, "messages"):
        side, text = as_text(message, "role"), message_text(message, "content")
        if side not in (CLIENT, THERAPIST):
            transcript.add_message("system", text, name=side)
            continue
        opened_by = opened_by or side
        if side == opened_by:
            transcript.begin_turn()
        role: Role = "assistant" if side == under_test else "user"
        transcript.add_message(role, text, name=side)


def _add_usage(transcript: TranscriptBuilder, session: JsonMap, roles: JsonMap) -> None:
    """Add the usage of each side as one call: only totals are known."""
    used = as_map(session, "usage")
    for side in (CLIENT, THERAPIST):
        own = as_map(used, side)
        usage = Usage(
            input_tokens=as_whole_number(own, "prompt_tokens"),
            output_tokens=as_whole_number(own, "completion_tokens"),
        )
        cost = as_cost(own, "total_cost")
        if usage.total_tokens or cost:
            call = ModelCall(
                model=as_text(as_map(roles, side).get("model")),
                usage=usage,
                # It writes 0 for an unknown price.
                cost_usd=cost or None,
                price_source="agent" if cost else "",
            )
            transcript.add_model_call(call, before=(0, 0))
