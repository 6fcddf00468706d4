"""Records of other tools in their true shape, small enough to read."""

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.records import find_kind
from proctor.session import Message, ModelCall, Session, ToolCall, Unreadable

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


def claude_lines() -> list[dict[str, Any]]:
    """A prompt, one answer of the model in two lines, a tool's result, and the end."""
    asks = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "make test"}}
    gave = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "2 passed", "is_error": False}
    return [
        {"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION},
        claude_entry("user", "Run the tests", "01.000"),
        claude_answer("msg_1", {"type": "text", "text": "I will."}, "02.000", 1),
        claude_answer("msg_1", asks, "02.500", 40),
        claude_entry("user", [gave], "04.000"),
        claude_answer("msg_2", {"type": "thinking", "thinking": "hm"}, "05.000", 3),
        claude_answer("msg_2", {"type": "text", "text": "They pass."}, "05.500", 7),
        {"type": "last-prompt", "lastPrompt": "Run the tests", "leafUuid": "x", "sessionId": SESSION},
    ]


def function_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """A call of a tool in a chat completion of OpenAI."""
    return {"function": {"name": name, "arguments": arguments}, "id": call_id, "type": "function"}


def codex_line(kind: str, payload: Mapping[str, Any], at: str) -> dict[str, Any]:
    return {"timestamp": f"2026-03-01T10:00:{at}Z", "type": kind, "payload": payload}


def codex_said(role: str, text: str, at: str) -> dict[str, Any]:
    part = "output_text" if role == "assistant" else "input_text"
    said = {"type": "message", "role": role, "content": [{"type": part, "text": text}]}
    return codex_line("response_item", said, at)


def codex_counted(total: int, at: str) -> dict[str, Any]:
    last = {"input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 9, "reasoning_output_tokens": 4}
    info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": last}
    return codex_line("event_msg", {"type": "token_count", "info": info}, at)


def codex_lines() -> list[dict[str, Any]]:
    """One turn with a shell command, as `codex exec` writes it."""
    about = {"id": THREAD, "cwd": "/code/shop", "cli_version": "0.166.0", "model_provider": "openai"}
    about |= {"base_instructions": {"text": "You are Codex."}, "git": {"branch": "main"}}
    taken = {"secs": 1, "nanos": 500_000_000}
    ran = {"type": "CommandExecution", "id": "call_1", "exit_code": 0, "duration": taken}
    called = {"type": "function_call", "name": "exec_command", "arguments": '{"cmd": "ls"}'}
    gave = {"type": "function_call_output", "output": "a.py"}
    return [
        codex_line("session_meta", about, "00.000"),
        codex_line("event_msg", {"type": "task_started", "turn_id": "turn-a"}, "00.100"),
        codex_said(
            "user", "<environment_context>\n  <cwd>/code/shop</cwd>\n</environment_context>", "00.200"
        ),
        codex_line("turn_context", {"model": "gpt-5-codex", "cwd": "/code/shop"}, "00.300"),
        codex_said("user", "What is here?", "00.400"),
        codex_line("response_item", {"type": "reasoning", "summary": [], "content": None}, "01.000"),
        codex_line("response_item", called | {"call_id": "call_1"}, "01.100"),
        codex_counted(109, "01.200"),
        codex_line("event_msg", {"type": "item_completed", "item": ran}, "02.000"),
        codex_line("response_item", gave | {"call_id": "call_1"}, "02.100"),
        codex_said("assistant", "One file, a.py.", "03.000"),
        codex_counted(218, "03.100"),
        codex_counted(218, "03.200"),
        codex_line("event_msg", {"type": "task_complete", "turn_id": "turn-a"}, "03.300"),
    ]


def swe_agent() -> dict[str, Any]:
    """Two steps of function calling."""

    def acted(thought: str, call_id: str, name: str, arguments: str) -> dict[str, Any]:
        said = {"role": "assistant", "content": thought, "thought": thought, "action": f"{name} …"}
        return said | {"message_type": "action", "tool_calls": [function_call(call_id, name, arguments)]}

    history = [
        {"role": "system", "content": "You are an engineer.", "message_type": "system_prompt"},
        {"role": "user", "content": "An example", "is_demo": True, "message_type": "demonstration"},
        {"role": "user", "content": "Fix the bug.", "message_type": "observation"},
        acted("Look first.", "call_1", "find_file", '{"file_name": "a.py"}'),
        {"role": "tool", "content": "a.py", "tool_call_ids": ["call_1"], "message_type": "observation"},
        acted("Done.", "call_2", "submit", "{}"),
    ]
    trajectory = [
        {"action": action, "observation": gave, "response": said, "thought": said, "execution_time": time}
        for action, gave, said, time in (
            ("find_file a.py", "a.py", "Look first.", 0.25),
            ("submit", "", "Done.", 0.5),
        )
    ]
    stats = {"instance_cost": 0.02, "tokens_sent": 900, "tokens_received": 60, "api_calls": 2}
    return {
        "environment": "main",
        "trajectory": trajectory,
        "history": history,
        "info": {"exit_status": "submitted", "submission": "diff", "model_stats": stats},
        "replay_config": json.dumps({"agent": {"model": {"name": "gpt-4o"}}}),
    }


def mini_swe_agent() -> dict[str, Any]:
    """One command with tool calls, and the submission."""
    used = {"prompt_tokens": 50, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 20}}
    answer = {
        "role": "assistant",
        "content": None,
        "tool_calls": [function_call("call_1", "bash", '{"command": "ls"}')],
        "extra": {
            "actions": [{"command": "ls", "tool_call_id": "call_1"}],
            "cost": 0.003,
            "timestamp": 1_772_000_001.0,
            "response": {"id": "chatcmpl-1", "model": "gpt-4o", "usage": used},
        },
    }
    result = {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": '{"returncode": 1, "output": "no"}',
        "extra": {"raw_output": "no", "returncode": 1, "timestamp": 1_772_000_002.0},
    }
    return {
        "info": {
            "model_stats": {"instance_cost": 0.003, "api_calls": 1},
            "config": {"model": {"model_name": "openai/gpt-4o"}},
            "mini_version": "2.4.6",
            "exit_status": "Submitted",
            "submission": "diff",
        },
        "messages": [
            {"role": "system", "content": "You can use a computer."},
            {"role": "user", "content": "Please solve this."},
            answer,
            result,
            {"role": "exit", "content": "", "extra": {"exit_status": "Submitted", "submission": "diff"}},
        ],
        "trajectory_format": "mini-swe-agent-1.1",
    }


def atif() -> dict[str, Any]:
    """Two steps of an agent, one with a tool."""
    metrics = {"prompt_tokens": 80, "completion_tokens": 8, "cached_tokens": 40, "cost_usd": 0.001}
    return {
        "schema_version": "ATIF-v1.6",
        "session_id": "trial-7",
        "agent": {"name": "terminus-2", "version": "2.0.0", "model_name": "openai/gpt-5"},
        "steps": [
            {
                "step_id": 1,
                "source": "user",
                "message": "Make hello.txt",
                "timestamp": "2026-03-01T10:00:00Z",
            },
            {
                "step_id": 2,
                "timestamp": "2026-03-01T10:00:02Z",
                "source": "agent",
                "message": [{"type": "text", "text": "Writing."}],
                "tool_calls": [
                    {"tool_call_id": "c1", "function_name": "bash", "arguments": {"cmd": "echo > hello.txt"}}
                ],
                "observation": {"results": [{"source_call_id": "c1", "content": "ok"}]},
                "metrics": metrics,
            },
            {"step_id": 3, "source": "agent", "message": "Done.", "metrics": metrics},
        ],
    }


def tau_run(task: int = 3, reward: float = 1.0) -> dict[str, Any]:
    call = function_call("call_1", "get_order", '{"id": "W1"}')
    return {
        "task_id": task,
        "reward": reward,
        "info": {"task": {"user_id": "u", "instruction": "…", "actions": []}, "source": "user"},
        "traj": [
            {"role": "system", "content": "The policy."},
            {"role": "user", "content": "Where is my order?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "name": "get_order", "content": "shipped"},
            {"role": "assistant", "content": "It is on its way."},
            {"role": "user", "content": "###STOP###"},
        ],
        "trial": 0,
    }


def tau2() -> dict[str, Any]:
    def used(prompt: int, completion: int) -> dict[str, int]:
        return {"prompt_tokens": prompt, "completion_tokens": completion}

    simulation = {
        "id": "sim-1",
        "task_id": "roaming",
        "trial": 0,
        "start_time": "2026-03-01T10:00:00",
        "end_time": "2026-03-01T10:01:00",
        "termination_reason": "user_stop",
        "reward_info": {"reward": 0.0, "reward_breakdown": {"DB": 1.0, "COMMUNICATE": 0.0}},
        "messages": [
            {"role": "assistant", "content": "Hello, how can I help?"},
            {"role": "user", "content": "No data.", "cost": 0.001, "usage": used(9, 2)},
            {"role": "assistant", "content": "Let me see.", "cost": 0.004, "usage": used(70, 7)}
            | {"tool_calls": [{"id": "c1", "name": "get_line", "arguments": {"n": 1}}]},
            {"role": "tool", "id": "c1", "content": "off", "requestor": "assistant", "error": False},
            {"role": "assistant", "content": "Please switch roaming on."},
            {"role": "user", "tool_calls": [{"id": "c2", "name": "toggle", "arguments": {}}]},
            {"role": "tool", "id": "c2", "content": "on", "requestor": "user", "error": False},
            {"role": "user", "content": "Thanks."},
        ],
    }
    return {
        "timestamp": "2026-03-01T10:01:00",
        "info": {
            "git_commit": "abc",
            "num_trials": 1,
            "user_info": {"implementation": "user_simulator", "llm": "gpt-4.1-mini"},
            "agent_info": {"implementation": "llm_agent", "llm": "gpt-4.1"},
            "environment_info": {"domain_name": "telecom", "policy": "Be kind."},
        },
        "tasks": [],
        "simulations": [simulation],
    }


def patienthub() -> dict[str, Any]:
    return {
        "profile": {"name": "Abe"},
        "messages": [
            {"role": "therapist", "content": "What brings you here?"},
            {"role": "client", "content": "I cannot sleep."},
            {"role": "therapist", "content": "Since when?"},
            {"role": "client", "content": "May."},
        ],
        "num_turns": 2,
        "usage": {
            "client": {"prompt_tokens": 100, "completion_tokens": 20, "total_cost": 0.01},
            "therapist": {},
            "total_cost": 0.01,
        },
    }


def inspect_header() -> dict[str, Any]:
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": "eval-1",
            "run_id": "run-1",
            "created": "2026-03-01T10:00:00+00:00",
            "task": "sums",
            "task_id": "task-1",
            "dataset": {"name": "sums", "samples": 1},
            "model": "openai/gpt-4o",
            "packages": {"inspect_ai": "0.3.285"},
        },
        "plan": {"steps": [{"solver": "use_tools"}, {"solver": "generate"}]},
    }


def inspect_sample(**more: Any) -> dict[str, Any]:
    def model_event(message: str, text: str, at: str) -> dict[str, Any]:
        used = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 55, "input_tokens_cache_read": 30}
        return {
            "event": "model",
            "uuid": f"e-{message}",
            "timestamp": f"2026-03-01T10:00:{at}+00:00",
            "model": "openai/gpt-4o",
            "tools": [{"name": "add", "description": "Adds.", "parameters": {"type": "object"}}],
            "output": {
                "choices": [{"message": {"id": message, "role": "assistant", "content": text}}],
                "usage": {**used, "total_cost": 0.0005},
                "time": 1.5,
            },
        }

    return {
        "id": 1,
        "epoch": 1,
        "uuid": "sample-1",
        "input": "2 + 2?",
        "target": "4",
        "messages": [
            {"id": "m1", "role": "user", "content": "2 + 2?", "source": "input"},
            {
                "id": "m2",
                "role": "assistant",
                "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "I add."}],
                "tool_calls": [{"id": "t1", "function": "add", "arguments": {"x": 2, "y": 2}}],
            },
            {"id": "m3", "role": "tool", "content": "4", "tool_call_id": "t1", "function": "add"},
            {"id": "m4", "role": "assistant", "content": "attachment://abc"},
        ],
        "attachments": {"abc": "It is 4."},
        "scores": {"match": {"value": "C", "answer": "4", "explanation": "as the target"}},
        "events": [
            model_event("m2", "I add.", "01"),
            {"event": "tool", "id": "t1", "timestamp": "2026-03-01T10:00:02+00:00", "working_time": 0.2},
            model_event("m4", "It is 4.", "03"),
            model_event("judge", "C", "04"),
        ],
        "started_at": "2026-03-01T10:00:00+00:00",
        "completed_at": "2026-03-01T10:00:05+00:00",
        **more,
    }


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
        "inspect": lambda: write_eval(folder / "sums.eval", inspect_sample()),
        "mini-swe-agent": lambda: write_json(folder / "mini" / "task-1.traj.json", mini_swe_agent()),
        "patienthub": lambda: write_json(folder / "patientPsi_CBT_run0.json", patienthub()),
        "swe-agent": lambda: write_json(folder / "exp" / "task-2" / "task-2.traj", swe_agent()),
        "tau-bench": lambda: write_json(folder / "gpt-4o-retail.json", [tau_run()]),
    }
    folder.mkdir(parents=True, exist_ok=True)
    return {kind: writers[kind]() for kind in kinds or writers}
