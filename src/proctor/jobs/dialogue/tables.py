"""Dialogues as tables, one row per session or message, from files of Proctor or the original framework.

Documented columns come first, in their order; further columns follow.
"""

import json
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mode
from typing import TYPE_CHECKING, Any, TypeGuard

from proctor.dialogue.participant import CLIENT, SIDES, THERAPIST
from proctor.errors import UsageError
from proctor.export.tables import write_csv
from proctor.formatting import count_words
from proctor.item import SUCCESS
from proctor.jobs.dialogue.files import SUMMARY
from proctor.jobs.dialogue.results import (
    DATA_RULE,
    analysis,
    counts,
    mean_scores,
    score_scales,
    with_distinct_names,
)
from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_integer,
    as_map,
    as_number,
    as_text,
    maps_in,
    texts_in,
)
from proctor.validity import INVALID_KINDS, count_columns, exclusion_reason, served_text

if TYPE_CHECKING:
    import pandas


def misshapen(session: JsonMap) -> str:
    """The problem of a session that tables cannot use; empty: none."""
    return next(_problems(session), "")


def _problems(session: JsonMap) -> Iterator[str]:
    for name in ("roles", "record", "usage"):
        if session.get(name) and not isinstance(session[name], Mapping):
            yield f"`{name}` is no mapping"
            return
    for side in SIDES:
        role, used = as_map(session, "roles").get(side), as_map(session, "usage").get(side)
        if role and not isinstance(role, Mapping):
            yield f"`roles.{side}` is no mapping"
        if isinstance(used, Mapping) and not _is_figure(used.get("total_tokens")):
            yield f"`usage.{side}.total_tokens` is no number"
    if not _is_figure(session.get("num_turns")):
        yield "`num_turns` is no number"
    yield from _score_problems(session.get("scores") or [])


def _score_problems(scores: object) -> Iterator[str]:
    if not isinstance(scores, list):
        yield "`scores` is no list"
        return
    for number, score in enumerate(scores):
        if not isinstance(score, Mapping) or not isinstance(score.get("evaluator"), str):
            yield f"`scores[{number}]` names no evaluator"
        elif not _is_figure(score.get("value")):
            yield f"`scores[{number}].value` is no number"


def _is_figure(value: object) -> bool:
    """A finite number, or None."""
    if value is None:
        return True
    return isinstance(value, int | float) and abs(value) < 1e300 and not math.isnan(value)


SESSION_COLUMNS = (
    "source_file",
    "patient_name",
    "num_turns",
    "total_messages",
    "therapist_words",
    "client_words",
    "client",
    "therapist",
    "run_id",
    "combination",
    "status",
    "end_reason",
    "caused_by",
    "client_model",
    "therapist_model",
    "seed",
    "total_tokens",
    "cost_usd",
    "profile",
    "therapist_profile",
    "temperature",
    "repeat",
    "parameters_not_sent",
    "served_models",
    "version",
    *INVALID_KINDS,
)
NUMBERS = ("num_turns", "total_messages", "therapist_words", "client_words", "total_tokens", "cost_usd")
TURN_COLUMNS = ("session_file", "turn_idx", "role", "content", "word_count")
NAMED_IN = (
    ("name",),
    ("persona", "name"),
    ("profile", "name"),
    ("basic_profile", "name"),
    ("patient_profile", "name"),
    ("profile", "demographics", "name"),
    ("clinical_profile", "name"),
)
"""Paths of the name in the profiles of different clients."""
UNKNOWN_NAMES = ("", "cannot be identified", "n/a", "unknown")
LARGEST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Skipped:
    """Unreadable files of a folder."""

    files: dict[str, str] = field(default_factory=dict)
    """Reasons by path."""


def load_sessions(folder: str | Path, *, failed: bool = False) -> list[JsonObject]:
    """The sessions of a folder, as plain data, each with its `source_file`.

    A file contains one session or a list. Dialogues that were broken off are excluded unless `failed` is
    set; those that did not pass their evaluators are included. Unreadable files are skipped with a warning.
    """
    skipped = Skipped()
    sessions = list(each_session(Path(folder), failed=failed, skipped=skipped))
    for path, why in skipped.files.items():
        warnings.warn(f"left out {path}: {why}", stacklevel=2)
    return sessions


def each_session(
    folder: Path, *, failed: bool = False, skipped: Skipped | None = None
) -> Iterator[JsonObject]:
    """Like `load_sessions`, one by one; unreadable files are added to `skipped`."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}\nGive the output folder of a simulation.")
    for path in sorted(folder.glob("*.json"), key=_in_order):
        if path.name == SUMMARY or path.name.startswith("."):
            continue
        try:
            document = _load_document(path)
        except UsageError as error:
            if skipped is not None:
                skipped.files[str(path)] = str(error)
            continue
        for session in document if isinstance(document, list) else [document]:
            if not _is_session(session):
                continue
            if wrong := misshapen(session):
                if skipped is not None:
                    skipped.files[str(path)] = f"it is no session as simulations write them: {wrong}"
            elif failed or counts(session):
                yield {**session, "source_file": str(path)}


def folder_rule(folder: Path) -> JsonMap:
    """The rule `exclude_when` of the simulation in a folder; empty: it has none, or no summary."""
    try:
        return as_map(_load_document(folder / SUMMARY), "exclude_when")
    except UsageError:
        return {}


def session_row(session: JsonMap) -> JsonObject:
    """One session as a row: documented columns, further columns, and one per evaluator."""
    messages = maps_in(session["messages"])
    record, usage = as_map(session, "record"), as_map(session, "usage")
    row: JsonObject = {
        "source_file": session.get("source_file", ""),
        "patient_name": patient_name(session),
        "num_turns": session.get("num_turns", len(messages) // 2),
        "total_messages": len(messages),
        "therapist_words": _word_count(messages, THERAPIST),
        "client_words": _word_count(messages, CLIENT),
        "client": session.get("client"),
        "therapist": session.get("therapist"),
        "run_id": session.get("run_id"),
        "combination": session.get("combination"),
        "status": session.get("status", SUCCESS),
        "end_reason": session.get("end_reason"),
        "caused_by": session.get("caused_by"),
        "client_model": as_map(session, "roles", CLIENT).get("model"),
        "therapist_model": as_map(session, "roles", THERAPIST).get("model"),
        "seed": session.get("seed"),
        "total_tokens": record.get("tokens", _tokens(usage)),
        "cost_usd": record.get("cost_usd", usage.get("total_cost")),
        "profile": as_map(session, "roles", CLIENT).get("profile"),
        "therapist_profile": as_map(session, "roles", THERAPIST).get("profile"),
        "temperature": _temperature(session),
        "repeat": session.get("repeat"),
        "parameters_not_sent": _not_sent(record),
        "served_models": served_text(as_map(record, "served_models")),
        # Of another config than the first; text, since it is no quantity.
        "version": str(session.get("version") or 1),
        **count_columns(session),
    }
    if "task" in session:
        actions = maps_in(session.get("actions"))
        row |= {"task": session["task"], "tool_calls": len(actions)}
    return row | {f"score.{name}": value for name, value in _scored(session).items()}


_NOT_SENT = re.compile(r"(\S+) was not sent `(\w+)`")


def _not_sent(record: JsonMap) -> str | None:
    """The parameters that models do not take: `anthropic/claude: seed`. None: all were sent."""
    by_model: dict[str, dict[str, None]] = {}
    for match in map(_NOT_SENT.match, texts_in(record, "notes")):
        if match:
            by_model.setdefault(match[1], {})[match[2]] = None
    return "; ".join(f"{model}: {', '.join(names)}" for model, names in by_model.items()) or None


def _temperature(session: JsonMap) -> str | None:
    """The temperature of both sides, or that of each: `0.2 / 1` of client and therapist."""
    values = [as_map(session, "roles", side, "parameters").get("temperature") for side in SIDES]
    numbers = ["–" if value is None else f"{as_number(value) or 0:g}" for value in values]
    if numbers == ["–", "–"]:
        return None
    known = {number for number in numbers if number != "–"}
    return known.pop() if len(known) == 1 else " / ".join(numbers)


def turn_rows(session: JsonMap) -> Iterator[JsonObject]:
    """One session as one row per message, with its scores and the state of its role after it."""
    scores, states = _turn_scores(session), _turn_states(session)
    counts = {CLIENT: 0, THERAPIST: 0}
    for position, message in enumerate(maps_in(session["messages"])):
        role, content = str(message.get("role", "")), str(message.get("content", ""))
        row: JsonObject = {
            "session_file": session.get("source_file", ""),
            "turn_idx": position // 2,
            "role": role,
            "content": content,
            "word_count": count_words(content),
        }
        number = counts.get(role, 0)
        counts[role] = number + 1
        row |= {f"state.{name}": value for name, value in states.get((role, number), {}).items()}
        yield row | {f"score.{name}": value for name, value in scores.get((role, number), {}).items()}


def write_session_csv(folder: Path, output: Path, skipped: Skipped | None = None) -> list[JsonObject]:
    """Write one row per session; returns the rows."""
    rows = [session_row(session) for session in each_session(folder, skipped=skipped)]
    _some(rows, folder, skipped)
    _write(output, _columns(SESSION_COLUMNS, rows), rows)
    return rows


def write_turn_csv(folder: Path, output: Path, skipped: Skipped | None = None) -> int:
    """Write one row per message; returns their number."""
    names = dict.fromkeys(
        name
        for session in each_session(folder, skipped=skipped)
        for row in turn_rows(session)
        for name in row
    )
    _some(names, folder, skipped)
    columns = [*TURN_COLUMNS, *(name for name in names if name not in TURN_COLUMNS)]
    written = 0

    def rows() -> Iterator[JsonObject]:
        nonlocal written
        for session in each_session(folder):
            for row in turn_rows(session):
                written += 1
                yield row

    _write(output, columns, rows())
    return written


def sessions_to_dataframe(sessions: Sequence[JsonMap]) -> "pandas.DataFrame":
    """Sessions as a pandas table.

    Columns that are not numeric, except the patient's name, are in the index, so that means work on all
    columns; `df.groupby("therapist")` and `df.reset_index()` still find them.
    """
    pandas = _pandas()
    rows = [session_row(session) for session in sessions]
    frame = pandas.DataFrame(rows, columns=_columns(SESSION_COLUMNS, rows))
    for name in NUMBERS:
        frame[name] = pandas.to_numeric(frame[name])
    numeric = set(frame.select_dtypes("number").columns) - {"run_id", "seed", "repeat"}
    return frame.set_index([name for name in frame.columns if name not in {*numeric, "patient_name"}])


def turns_to_dataframe(sessions: Sequence[JsonMap]) -> "pandas.DataFrame":
    """The messages of sessions as a pandas table, with the states and scores of each.

    Client, therapist, combination, and run of the session are columns too.
    """
    pandas = _pandas()
    rows = [
        {**row, **{name: session.get(name) for name in ("client", "therapist", "combination", "run_id")}}
        for session in sessions
        for row in turn_rows(session)
    ]
    return pandas.DataFrame(rows, columns=_columns(TURN_COLUMNS, rows))


def _pandas() -> Any:
    # pandas is an optional dependency.
    try:
        import pandas
    except ImportError as error:
        raise UsageError(
            "tables for pandas need pandas\nInstall it: pip install 'proctor[pandas]'"
        ) from error
    return pandas


def patient_name(session: JsonMap) -> str:
    """Name of the client: from its profile, else its profile file, else its role."""
    profile = session.get("profile")
    for path in NAMED_IN:
        name = as_text(as_map(profile, *path[:-1]).get(path[-1])).strip()
        if name.casefold() not in UNKNOWN_NAMES:
            return name
    return str(as_map(session, "roles", CLIENT).get("profile") or session.get("client") or "unknown")


def _load_document(path: Path) -> Any:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise UsageError(f"it is larger than {LARGEST_BYTES >> 20} MiB, which no session is")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"it cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"it is not JSON: {error}") from error


def _is_session(document: object) -> TypeGuard[JsonMap]:
    if not isinstance(document, Mapping) or not isinstance(document.get("messages"), list):
        return False
    return all(isinstance(message, Mapping) for message in document["messages"])


def _in_order(path: Path) -> tuple[str, int, str]:
    """`…_run2` before `…_run10`."""
    stem, _, number = re.sub(r"\.v\d+$", "", path.stem).rpartition("_run")
    return (stem, int(number), path.name) if number.isdecimal() else (path.stem, -1, path.name)


def _word_count(messages: Iterable[JsonMap], role: str) -> int:
    return sum(count_words(str(each.get("content", ""))) for each in messages if each.get("role") == role)


def _tokens(usage: JsonMap) -> int | None:
    sides = [as_map(usage, side) for side in SIDES if isinstance(usage.get(side), Mapping)]
    return sum(int(as_number(side.get("total_tokens")) or 0) for side in sides) if sides else None


def _scored(session: JsonMap) -> JsonObject:
    scores = maps_in(session.get("scores"))
    labels: dict[str, list[str]] = {}
    for score in scores:
        if "value" not in score and score.get("label"):
            labels.setdefault(str(score["evaluator"]), []).append(str(score["label"]))
    # Labels of messages are summarized by their mode, as numbers by their mean.
    # An evaluator without a single verdict keeps its column.
    missing = dict.fromkeys(str(score["evaluator"]) for score in scores if score.get("error"))
    return {**missing, **{name: mode(values) for name, values in labels.items()}, **mean_scores(session)}


def _turn_scores(session: JsonMap) -> dict[tuple[str, int], JsonObject]:
    """Scores of each message, by role and its number among the role's messages."""
    rows: dict[tuple[str, int], JsonObject] = {}
    for score in maps_in(session.get("scores")):
        role, _, number = str(score.get("target", "")).rpartition(".turn_")
        if number.isdecimal():
            value = score.get("value", score.get("label"))
            rows.setdefault((role, int(number)), {})[str(score["evaluator"])] = value
    return rows


def _turn_states(session: JsonMap) -> dict[tuple[str, int], JsonObject]:
    """The state of each role after each of its messages, by role and number."""
    rows: dict[tuple[str, int], JsonObject] = {}
    for turn in maps_in(session.get("states")):
        number = as_integer(turn, "turn") or 0
        for name, value in turn.items():
            role, dot, variable = name.partition(".")
            if dot and role in SIDES:
                rows.setdefault((role, number), {})[variable] = value
    return rows


def _columns(first: Sequence[str], rows: Iterable[JsonMap]) -> list[str]:
    named = dict.fromkeys(name for row in rows for name in row)
    return [*first, *(name for name in named if name not in first)]


def _some(rows: Iterable[object], folder: Path, skipped: Skipped | None) -> None:
    if list(rows):
        return
    if skipped is not None and skipped.files:
        path, why = next(iter(skipped.files.items()))
        raise UsageError(f"there is no session in {folder} that can be read\n{path}: {why}")
    raise UsageError(f"there is no session in {folder}\nGive the output folder of a simulation.")


def _write(output: Path, columns: Sequence[str], rows: Iterable[JsonMap]) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    write_csv(output, columns, ({name: row.get(name) for name in columns} for row in rows))


def _name_of(session: JsonMap) -> str:
    """What a dialogue is called where it is listed."""
    return f"{session.get('combination') or 'dialogue'} run {session.get('run_id')}"


def analysis_document(
    sessions: Iterable[Mapping[str, Any]],
    name: str,
    measure: str = "",
    skipped: "Skipped | None" = None,
    *,
    by: str = "",
    against: str = "",
    exclude_when: JsonMap | None = None,
) -> dict[str, Any] | None:
    """The analysis of dialogues as plain data, of one measure or of all; None: none is finished.

    `exclude_when` are the conditions of the config that exclude dialogues, by kind of event.

    `by` is the factor whose effect is estimated (without one, the therapist), `against` its baseline level.

    `skipped` holds the files that could not be read, once all sessions have been.
    """
    rows, excluded, mocks = list[dict[str, Any]](), 0, set[str]()
    by_rule = list[str]()
    scored = list[JsonObject]()
    for session in sessions:
        if not counts(session):
            excluded += 1
            continue
        if reason := exclusion_reason(exclude_when or {}, as_map(session, "validity")):
            by_rule.append(f"{_name_of(session)}: {reason}")
            continue
        rows.append(session_row(session))
        scales = [
            {name: score.get(name) for name in ("evaluator", "scale")}
            for score in maps_in(session.get("scores"))
        ]
        scored.append({"scores": scales})
        if session.get("stand_in"):
            mocks |= {role["model"] for role in session["roles"].values() if role["model"]}
    if not rows:
        return None
    return {
        "name": name,
        "sessions": len(rows),
        "left_out": excluded,
        **({"exclude_when": dict(exclude_when), "excluded": by_rule} if exclude_when else {}),
        "unreadable": sorted(skipped.files) if skipped is not None else [],
        "stand_ins": sorted(mocks),
        "rule": DATA_RULE,
        "measures": analysis(
            with_distinct_names(rows), measure, by=by, against=against, scales=score_scales(scored)
        ),
    }
