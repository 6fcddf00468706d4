"""opencode: headless, via its event stream.

Uses chat completions of a configured provider, with the model's short name, also for session titles. Tools
are reported once they have run, as completed whatever their exit code, which is reported beside it. Its
computed prices are ignored.
"""

from dataclasses import dataclass
from typing import ClassVar

from proctor.agents._program import (
    EventReader,
    GatewayProgram,
    Installable,
    ProgramCall,
    ProgramRun,
    write_json,
)
from proctor.json_values import JsonMap, JsonObject, as_amount, as_integer, as_map, as_text, short_text
from proctor.session import Intervention

_MODEL_ERRORS = ("APIError", "ContextOverflowError", "ProviderAuthError")
"""Error names that are failures of the model; others are its own, such as an aborted message."""


@dataclass(frozen=True, kw_only=True)
class Opencode(GatewayProgram):
    """opencode, one prompt per run."""

    context_tokens: int = 128_000
    """Context window of the model in tokens; the agent shortens the conversation before it is full."""
    output_tokens: int = 16_000
    """Maximum output tokens of one answer."""
    max_turns: int | None = None
    """Steps after which it is told to finish; None: no limit."""

    installable: ClassVar[Installable] = Installable(
        "opencode", "opencode", "npm install -g opencode-ai@1.18.33"
    )

    def call(self, run: ProgramRun) -> ProgramCall:
        file = write_json(run.home, ".config/opencode/opencode.json", self._configuration(run))
        return ProgramCall(
            arguments=["run", "--format", "json", "-m", f"proctor/{run.model}", *self.arguments],
            variables={
                "OPENCODE_CONFIG": str(file),
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            },
            # As an argument, the model would get it in quotation marks.
            typed=run.prompt,
        )

    def _configuration(self, run: ProgramRun) -> JsonObject:
        limit = {"context": self.context_tokens, "output": self.output_tokens}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": run.openai_url, "apiKey": run.token},
            "models": {run.model: {"limit": limit}},
        }
        steps = {} if self.max_turns is None else {"agent": {"build": {"steps": self.max_turns}}}
        return {
            "provider": {"proctor": provider},
            "small_model": f"proctor/{run.model}",
            "autoupdate": False,
            "share": "disabled",
            # Nobody can answer questions, and it may not leave the tree.
            "permission": {"edit": "allow", "bash": "allow", "external_directory": "deny"},
            **steps,
        }

    def reader(self, run: ProgramRun) -> EventReader:
        return _OpencodeReader(record=run.record)


@dataclass(kw_only=True)
class _OpencodeReader(EventReader):
    """`step_start`, `tool_use`, `text`, `step_finish` and `error`, one object per line."""

    def read_event(self, event: JsonMap) -> bool:
        self.record_thread(as_text(event, "sessionID"))
        kind, part = event.get("type"), as_map(event, "part")
        if kind == "text":
            self.record_message(as_text(part, "text"))
        elif kind == "tool_use":
            self._tool(part)
        elif kind == "error":
            self._error(as_map(event, "error"))
        elif kind == "step_finish":
            self.recover()
        else:
            return kind in ("step_start", "reasoning")
        return True

    def _tool(self, part: JsonMap) -> None:
        state = as_map(part, "state")
        code = as_integer(state, "metadata", "exit")
        failed = state.get("status") == "error" or code not in (None, 0)
        result = as_text(state, "output") or as_text(state, "error")
        self.end_tool(
            as_text(part, "callID"),
            success=not failed,
            result=result,
            duration_ms=_duration(as_map(state, "time")),
            name=as_text(part, "tool"),
            args=as_map(state, "input"),
        )
        if failed and "rejected permission" in result[:200]:
            # It continues by itself: permission was denied.
            self.record(
                Intervention(kind="permission", text=f"{as_text(part.get('tool'))}: {short_text(result)}")
            )

    def _error(self, error: JsonMap) -> None:
        data = as_map(error, "data")
        message = as_text(data, "message") or short_text(error)
        if error.get("name") in _MODEL_ERRORS:
            overflow = "context overflow: " if error.get("name") == "ContextOverflowError" else ""
            self.report_model_failure(overflow + message, as_integer(data, "statusCode"))
        else:
            self.failure = message


def _duration(time: JsonMap) -> float | None:
    start, end = as_amount(time, "start"), as_amount(time, "end")
    return max(0.0, end - start) if start is not None and end is not None else None
