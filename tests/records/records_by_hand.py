"""Records of other tools in their true shape, small enough to read."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.records import find_kind
from proctor.session import Message, ModelCall, Session, ToolCall, Unreadable

BY_HAND = Path(__file__).parent / "by_hand"
SESSION = "0f8fad5b-d9cb-469f-a165-70867728950e"
THREAD = "7c9e6679-7425-40de-944b-e07fc1f90ae7"


def sessions(kind: str, path: Path) -> list[Session]:
    """What a file gives; nothing of it may be unreadable."""
    found = list(find_kind(kind).read(path))
    assert [each for each in found if isinstance(each, Unreadable)] == []
    return found


def only(kind: str, path: Path) -> Session:
    (session,) = sessions(kind, path)
    return session


def problems(kind: str, path: Path) -> list[str]:
    return [str(each) for each in find_kind(kind).read(path) if isinstance(each, Unreadable)]


def events(session: Session) -> list[Any]:
    return [each.event for step in session.steps for each in step.events]


def spoken(session: Session) -> list[tuple[str, str]]:
    return [(each.role, each.content) for each in events(session) if isinstance(each, Message)]


def tool_calls(session: Session) -> list[ToolCall]:
    return [each for each in events(session) if isinstance(each, ToolCall)]


def model_calls(session: Session) -> list[ModelCall]:
    return [each for each in events(session) if isinstance(each, ModelCall)]


def told(session: Session) -> list[tuple[Any, ...]]:
    """The events of a session: texts, models, tools with their results."""

    def said(event: Any) -> tuple[Any, ...]:
        if isinstance(event, Message):
            return event.role, event.content
        if isinstance(event, ModelCall):
            return "model", event.model
        return "call", event.name, event.result, event.success

    return [said(event) for event in events(session)]


def order(session: Session) -> list[str]:
    """What kinds of events there are, turn by turn, as in `M a t`."""
    letters = {"user": "u", "assistant": "a", "system": "s", "tool": "t"}
    return [
        "".join(
            letters[event.role] if isinstance(event, Message) else type(event).__name__[0]
            for event in (each.event for each in step.events)
        )
        for step in session.steps
    ]


def write_lines(path: Path, lines: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def write_json(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def document(name: str) -> Any:
    return json.loads((BY_HAND / f"{name}.json").read_text(encoding="utf-8"))


def lines_of(name: str) -> list[dict[str, Any]]:
    lines = (BY_HAND / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def claude_entry(kind: str, content: Any, at: str, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    entry = {"parentUuid": None, "isSidechain": False, "type": kind, "message": message, "uuid": f"u-{at}"}
    entry |= {"timestamp": f"2026-03-01T10:00:{at}Z", "cwd": "/code/shop", "sessionId": SESSION}
    return entry | {"version": "2.1.197", "gitBranch": "main", **more}


def claude_answer(number: str, block: Any, at: str, output: int, **more: Any) -> dict[str, Any]:
    cached = {"cache_read_input_tokens": 200, "cache_creation_input_tokens": 30}
    usage = {"input_tokens": 10, "output_tokens": output, **cached}
    said = {"id": number, "model": "claude-sonnet-4-5", "usage": usage, "type": "message"}
    return claude_entry("assistant", [block], at, message=said, **more)


def codex_line(kind: str, payload: Mapping[str, Any], at: str) -> dict[str, Any]:
    return {"timestamp": f"2026-03-01T10:00:{at}Z", "type": kind, "payload": payload}


def codex_said(role: str, text: str, at: str) -> dict[str, Any]:
    part = "output_text" if role == "assistant" else "input_text"
    said = {"type": "message", "role": role, "content": [{"type": part, "text": text}]}
    return codex_line("response_item", said, at)


def claude_lines() -> list[dict[str, Any]]:
    """A prompt, one answer of the model in two lines, a tool's result, and the end."""
    return lines_of("claude-code")


def codex_lines() -> list[dict[str, Any]]:
    """One turn with a shell command, as `codex exec` writes it."""
    return lines_of("codex")


def swe_agent() -> dict[str, Any]:
    """Two steps of function calling."""
    return document("swe-agent")


def mini_swe_agent() -> dict[str, Any]:
    """One command with tool calls, and the submission."""
    return document("mini-swe-agent")


def atif() -> dict[str, Any]:
    """Two steps of an agent, one with a tool."""
    return document("atif")


def tau_run(task: int = 3, reward: float = 1.0) -> dict[str, Any]:
    return document("tau") | {"task_id": task, "reward": reward}


def tau2() -> dict[str, Any]:
    return document("tau2")


def patienthub() -> dict[str, Any]:
    return document("patienthub")


def inspect_header() -> dict[str, Any]:
    return document("inspect-header")


def inspect_sample(**more: Any) -> dict[str, Any]:
    return document("inspect-sample") | more


def write_eval(path: Path, *samples: Mapping[str, Any], header: Mapping[str, Any] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("_journal/start.json", json.dumps(header or inspect_header()))
        for sample in samples:
            name = f"samples/{sample.get('id')}_epoch_{sample.get('epoch')}.json"
            packed.writestr(name, json.dumps(sample))
        packed.writestr("header.json", json.dumps(header or inspect_header()))
    return path


def write_every_kind(folder: Path, *kinds: str) -> dict[str, Path]:
    """One good record of each kind, or of these, by kind."""
    claude, codex = f"projects/-code/{SESSION}.jsonl", f"rollout-2026-03-01-{THREAD}.jsonl"
    writers = {
        "atif": lambda: write_json(folder / "trial" / "agent" / "trajectory.json", atif()),
        "claude-code": lambda: write_lines(folder / ".claude" / claude, claude_lines()),
        "codex": lambda: write_lines(folder / "sessions" / codex, codex_lines()),
        "copilot": lambda: write_lines(folder / ".copilot" / SESSION / "events.jsonl", lines_of("copilot")),
        "cursor": lambda: write_lines(folder / "agent-transcripts" / f"{SESSION}.jsonl", lines_of("cursor")),
        "inspect": lambda: write_eval(folder / "sums.eval", inspect_sample()),
        "mini-swe-agent": lambda: write_json(folder / "mini" / "task-1.traj.json", mini_swe_agent()),
        "patienthub": lambda: write_json(folder / "patientPsi_CBT_run0.json", patienthub()),
        "swe-agent": lambda: write_json(folder / "exp" / "task-2" / "task-2.traj", swe_agent()),
        "tau-bench": lambda: write_json(folder / "gpt-4o-retail.json", [tau_run()]),
    }
    folder.mkdir(parents=True, exist_ok=True)
    return {kind: writers[kind]() for kind in kinds or writers}
