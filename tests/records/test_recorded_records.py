"""Sessions as they are read from files of other agents, with one of each thing in them, are as recorded."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from proctor.records import atif, codex, mini_swe_agent, patienthub
from recorded_files import check

RECORDED = Path(__file__).parent / "recorded"


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02d}Z"


def plain(value: object) -> Any:
    """A value as JSON, without the members that have their defaults."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = {"kind": type(value).__name__}
        for field in dataclasses.fields(value):
            member = getattr(value, field.name)
            factory = field.default_factory
            default = factory() if factory is not dataclasses.MISSING else field.default
            if member != default:
                members[field.name] = plain(member)
        return members
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def line(kind: str, second: int, **payload: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": at(second), "payload": payload}


def said(role: str, text: str, second: int = 1) -> dict[str, Any]:
    return line("response_item", second, type="message", role=role, content=[{"type": "text", "text": text}])


META = line(
    "session_meta",
    0,
    id="thread-1",
    cli_version="1.2",
    cwd="/work",
    model_provider="openai",
    base_instructions={"text": "Be good."},
    git={"branch": "main", "commit_hash": "abc"},
)


def event(what: str, second: int, **more: Any) -> dict[str, Any]:
    return line("event_msg", second, type=what, **more)


def item(what: str, second: int, **more: Any) -> dict[str, Any]:
    return line("response_item", second, type=what, **more)


def counted(total: int, last: int, second: int) -> dict[str, Any]:
    used = {"input_tokens": last, "cached_input_tokens": 1, "output_tokens": 2, "reasoning_output_tokens": 1}
    return event("token_count", second, info={"total_token_usage": {"n": total}, "last_token_usage": used})


CODEX: dict[str, list[dict[str, Any]]] = {
    "everything": [
        META,
        line("session_meta", 0, id="thread-0"),
        line("turn_context", 1, model="gpt-x"),
        event("task_started", 1, turn_id="turn-1"),
        said("user", "<environment_context> x"),
        said("user", "Do it"),
        said("developer", "Rules"),
        said("assistant", "I look", 2),
        item("function_call", 3, name="shell", arguments='{"a": 1}', call_id="c1"),
        event("exec_command_end", 4, call_id="c1", exit_code=1, duration={"secs": 2, "nanos": 500_000_000}),
        item("function_call_output", 5, call_id="c1", output="bad"),
        counted(10, 9, 6),
        counted(10, 9, 7),
        item("local_shell_call", 8, id="c2", action={"command": ["ls"]}),
        event(
            "item_completed",
            9,
            item={"type": "CommandExecution", "id": "c2", "exit_code": 0, "duration": {"secs": 1}},
        ),
        item("local_shell_call_output", 10, call_id="c2", output={"content": "fine", "success": False}),
        item("custom_tool_call", 11, name="patch", input="text", call_id="c3"),
        item(
            "custom_tool_call_output",
            12,
            call_id="c3",
            output='{"output": "done", "metadata": {"exit_code": 0}}',
        ),
        item("web_search_call", 13, id="c4", status="completed", action={"query": "q"}),
        item("tool_search_call", 14, arguments={"q": 1}, call_id="c5"),
        item("tool_search_output", 15, call_id="c5", output=[{"type": "text", "text": "found"}]),
        counted(20, 11, 16),
        line("compacted", 17),
        said("assistant", "Done", 18),
        event("task_complete", 19),
    ],
    "own counts": [
        META,
        event("task_started", 1),
        said("user", "Do it"),
        said("assistant", "Done", 2),
        counted(10, 9, 3),
        line("token_usage_record", 4, usage={"input_tokens": 7, "output_tokens": 1}),
        line("token_usage_record", 5, usage={}),
        event("task_complete", 6),
    ],
    "aborted": [META, event("task_started", 1), said("user", "Do it"), event("turn_aborted", 2)],
    "failed": [META, event("task_started", 1), said("user", "a"), event("error", 2, message="no money")],
    "failed at the end": [META, said("user", "a"), event("task_complete", 2, error={"message": "why"})],
    "interrupted": [META, event("task_started", 1), said("user", "Do it"), said("assistant", "Well", 2)],
    "unanswered": [META, said("user", "Do it")],
    "a call without an end": [
        META,
        said("user", "Do it"),
        item("function_call", 3, name="shell", arguments="{}", call_id="c1"),
        event("exec_command_end", 4, call_id="c1", exit_code="1"),
    ],
    "old": [
        {"id": "old-1", "timestamp": at(0), "instructions": "Old rules", "git": None},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
    ],
}


def mini(*messages: dict[str, Any], **info: Any) -> dict[str, Any]:
    return {
        "trajectory_format": "mini-swe-agent-1.1",
        "info": {
            "config": {"model": {"model_name": "m"}},
            "exit_status": "Submitted",
            "mini_version": "1",
            **info,
        },
        "messages": list(messages),
    }


def used(content: str, second: int, **extra: Any) -> dict[str, Any]:
    response = {"usage": {"prompt_tokens": 5, "completion_tokens": 3}, "model": "m-2"}
    return {
        "role": "assistant",
        "content": content,
        "extra": {"timestamp": 1_767_225_600 + second, "response": response, "cost": 0.5, **extra},
    }


MINI: dict[str, Any] = {
    "everything": mini(
        {"role": "system", "content": "Rules"},
        {"role": "user", "content": "Do it"},
        used("I look\n```bash\nls\n```", 1),
        {"role": "user", "content": "<returncode>1</returncode>\n<output>\nno\n</output>", "extra": {}},
        used("Again", 2, actions=[{"command": "pwd"}, {"command": "id"}]),
        {
            "role": "user",
            "content": "<returncode>0</returncode><output>/</output>",
            "extra": {"returncode": 0},
        },
        {
            "role": "user",
            "content": "<returncode>0</returncode>",
            "extra": {"raw_output": "root", "returncode": 0},
        },
        {"role": "user", "content": "A remark"},
        {"role": "user", "content": "Unreadable", "extra": used("", 3)["extra"]},
        {
            **used("With a call", 4),
            "tool_calls": [{"id": "c1", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "out", "extra": {"returncode": 2}},
        {"role": "exit", "content": "bye"},
    ),
    "limits": mini({"role": "user", "content": "Do it"}, exit_status="LimitsExceeded"),
    "empty": mini(),
}

HUB_SESSION = {
    "client": "patientPsi",
    "therapist": "CBT",
    "profile": {"name": "A"},
    "combination": "c-1",
    "run_id": 3,
    "seed": 7,
    "roles": {"client": {"model": "m-c"}, "therapist": {"model": "m-t"}},
    "usage": {
        "client": {"prompt_tokens": 10, "completion_tokens": 4, "total_cost": 0.25},
        "therapist": {"prompt_tokens": 8, "completion_tokens": 2, "total_cost": 0},
    },
    "messages": [
        {"role": "narrator", "content": "A room."},
        {"role": "therapist", "content": "Hello"},
        {"role": "client", "content": "Hi"},
        {"role": "therapist", "content": "Well?"},
    ],
    "status": "error",
    "end_reason": "",
    "error": "broken",
    "record": {"session_id": "s-1", "started_at": at(1), "finished_at": at(9)},
    "scores": [{"evaluator": "warmth", "value": 0.5}],
}
HUB: dict[str, Any] = {
    "one": HUB_SESSION,
    "two": [
        {**HUB_SESSION, "record": {}, "under_test": "client", "status": "success"},
        {**HUB_SESSION, "record": {}, "end_reason": "left", "usage": {"client": {"total_cost": 0.5}}},
        {"messages": 3},
        3,
    ],
    "none": {"profile": {}},
}

ATIF_STEPS = [
    {"source": "system", "message": "Rules", "timestamp": at(0)},
    {"source": "user", "message": "Do it", "timestamp": at(1)},
    {
        "source": "agent",
        "message": "I look",
        "timestamp": at(2),
        "model_name": "m-2",
        "metrics": {
            "prompt_tokens": 9,
            "cached_tokens": 3,
            "completion_tokens": 4,
            "cost_usd": 0.5,
            "extra": {"reasoning_tokens": 2},
        },
        "tool_calls": [
            {"tool_call_id": "c1", "function_name": "ls", "arguments": {"a": 1}},
            {
                "tool_call_id": "c2",
                "function_name": "id",
                "arguments": {},
                "extra": {"success": False, "duration_ms": 5},
            },
        ],
        "observation": {
            "results": [
                {"source_call_id": "c1", "content": "out", "extra": {"is_error": True}},
                {"source_call_id": "c2", "content": "me"},
            ]
        },
    },
    {"source": "agent", "message": "copied", "is_copied_context": True},
    {"source": "nobody", "message": "lost"},
    {"source": "agent", "message": "Done", "timestamp": at(4), "metrics": {"prompt_tokens": 1}},
]
ATIF: dict[str, Any] = {
    "theirs": {
        "schema_version": "ATIF-v1.4",
        "session_id": "run-1",
        "trajectory_id": "t-1",
        "agent": {"name": "a", "version": "2", "model_name": "m"},
        "steps": ATIF_STEPS,
        "notes": "a note",
    },
    "ours": {
        "schema_version": "ATIF-v1.4",
        "session_id": "run-2",
        "agent": {"name": "a", "version": "2", "model_name": "m"},
        "steps": [
            {
                "source": "agent",
                "message": "Hi",
                "timestamp": at(3),
                "extra": {
                    "proctor": {
                        "turn": "t1",
                        "name": "guide",
                        "call_ids": {"c1": "own"},
                        "model_calls": [
                            {
                                "model": "m",
                                "provider": "p",
                                "input_tokens": 4,
                                "cached_tokens": 1,
                                "output_tokens": 2,
                                "reasoning_tokens": 1,
                                "cost_usd": 0.5,
                                "price_source": "list",
                                "latency_ms": 7,
                                "waiting_ms": 3,
                                "status": "error",
                                "error": "late",
                                "call_id": "k",
                            }
                        ],
                    }
                },
                "tool_calls": [{"tool_call_id": "c1", "function_name": "ls", "arguments": "{}"}],
            }
        ],
        "extra": {
            "proctor": {
                "service": "s",
                "log_group": "g",
                "name": "n",
                "agent": "own agent",
                "agent_version": "3",
                "is_stand_in": True,
                "status": "fail",
                "end_reason": "checks_failed",
                "error": "e",
                "task": "t",
                "repeat": 2,
                "started_at": at(1),
                "finished_at": at(8),
                "notes": ["first"],
            }
        },
    },
}


def read_files(reader: ModuleType, files: Mapping[str, str], folder: Path, suffix: str) -> dict[str, Any]:
    read = {}
    folder = folder / "files"
    folder.mkdir()
    for name, text in files.items():
        path = folder / f"{name}{suffix}"
        path.write_text(text, encoding="utf-8")
        sessions = [plain(session) for session in reader.read(path)]
        read[name] = json.loads(json.dumps(sessions).replace(str(folder), "FOLDER"))
    return read


def test_what_is_read_of_codex_is_as_recorded(tmp_path: Path) -> None:
    files = {name: "\n".join(map(json.dumps, lines)) + "\n" for name, lines in CODEX.items()}
    check(RECORDED / "codex.txt", read_files(codex, files, tmp_path, ".jsonl"))


@pytest.mark.parametrize(
    ("name", "reader", "documents", "suffix"),
    [
        ("mini-swe-agent", mini_swe_agent, MINI, ".traj.json"),
        ("patienthub", patienthub, HUB, ".json"),
        ("atif", atif, ATIF, ".json"),
    ],
)
def test_what_is_read_of_documents_is_as_recorded(
    name: str, reader: ModuleType, documents: Mapping[str, Any], suffix: str, tmp_path: Path
) -> None:
    files = {title: json.dumps(document) for title, document in documents.items()}
    check(RECORDED / f"{name}.txt", read_files(reader, files, tmp_path, suffix))


TRIALS: dict[str, dict[str, Any]] = {
    "failed": {
        "started_at": at(20),
        "finished_at": at(30),
        "verifier_result": {"rewards": {"a": 0.5, "b": 0}},
    },
    "passed": {"verifier_result": {"rewards": {"a": 1.0, "b": 0}}, "source": "set"},
    "late": {"exception_info": {"exception_type": "AgentTimeoutError", "exception_message": "late"}},
    "broken": {"exception_info": {"exception_type": "KeyError", "exception_message": "x"}},
}


def test_what_is_read_of_trials_is_as_recorded(tmp_path: Path) -> None:
    read = {}
    for name, trial in TRIALS.items():
        path = tmp_path / name / "agent" / "trajectory.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(ATIF["theirs"]), encoding="utf-8")
        result = {"trial_name": "t-1", "task_name": "task", **trial}
        (tmp_path / name / "result.json").write_text(json.dumps(result), encoding="utf-8")
        read[name] = plain(next(atif.read(path)))
        read[name].pop("steps")
    check(RECORDED / "trials.txt", read)
