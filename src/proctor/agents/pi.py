"""pi: headless, via its event stream.

Uses chat completions of a configured provider, with the model's short name. When its model fails it exits
with 0; a message that ends with an error shows it, unless a later retry succeeds. Exit code and cost are not
trusted.
"""

from dataclasses import dataclass
from typing import ClassVar

from proctor.agents._program import (
    LONGEST_ARGUMENT_BYTES,
    EventReader,
    GatewayProgram,
    Installable,
    ProgramCall,
    ProgramRun,
    as_argument,
    write_json,
)
from proctor.json_values import JsonMap, JsonObject, as_map, as_text, content_text

_KNOWN = ("agent_start", "agent_end", "turn_start", "turn_end", "message_start", "message_update")
_PIECE = '{"type":"message_update"'
_KNOWN_STARTS = ("tool_execution_", "auto_retry_", "compaction_")


@dataclass(frozen=True, kw_only=True)
class Pi(GatewayProgram):
    """Mario Zechner's pi, one prompt per run."""

    context_tokens: int = 128_000
    """Context window of the model in tokens; the agent shortens the conversation before it is full."""
    output_tokens: int = 16_000
    """Maximum output tokens of one answer."""

    longest_prompt: ClassVar[int | None] = LONGEST_ARGUMENT_BYTES
    installable: ClassVar[Installable] = Installable(
        "pi", "pi", "npm install -g @mariozechner/pi-coding-agent@0.73.1"
    )

    def call(self, run: ProgramRun) -> ProgramCall:
        folder = run.home / ".pi" / "agent"
        write_json(run.home, ".pi/agent/models.json", {"providers": {"proctor": self._provider(run)}})
        # Its three retries of three requests take 21 seconds; the gateway has retried already.
        settings = {"retry": {"maxRetries": 1}, "enableInstallTelemetry": False}
        write_json(run.home, ".pi/agent/settings.json", settings)
        return ProgramCall(
            arguments=[
                "--provider",
                "proctor",
                "--model",
                run.model,
                "--mode",
                "json",
                *self.arguments,
                "-p",
                as_argument(run.prompt),
            ],
            variables={"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_CODING_AGENT_DIR": str(folder)},
        )

    def _provider(self, run: ProgramRun) -> JsonObject:
        limits = {"contextWindow": self.context_tokens, "maxTokens": self.output_tokens}
        return {
            "baseUrl": run.openai_url,
            "api": "openai-completions",
            "apiKey": run.token,
            "models": [{"id": run.model, **limits}],
        }

    def reader(self, run: ProgramRun) -> EventReader:
        return _PiReader(record=run.record)


@dataclass(kw_only=True)
class _PiReader(EventReader):
    """`session`, `message_end`, `tool_execution_start` and `_end`, one object per line."""

    def feed(self, line: str) -> bool:
        # Each delta repeats the whole answer so far, twice: too much to parse.
        return line.startswith(_PIECE) or super().feed(line)

    def read_event(self, event: JsonMap) -> bool:
        kind = as_text(event, "type")
        identity = as_text(event, "toolCallId")
        if kind == "session":
            self.record_thread(as_text(event, "id"))
        elif kind == "message_end":
            self._message(as_map(event, "message"))
        elif kind == "tool_execution_start":
            self.begin_tool(identity, as_text(event, "toolName"), as_map(event, "args"))
        elif kind == "tool_execution_end":
            result = content_text(event, "result", "content")
            name = as_text(event, "toolName")
            self.end_tool(identity, success=event.get("isError") is not True, result=result, name=name)
        else:
            return kind in _KNOWN or kind.startswith(_KNOWN_STARTS)
        return True

    def _message(self, message: JsonMap) -> None:
        if message.get("role") != "assistant":
            return
        self.recover()
        self.record_message(content_text(message, "content"))
        if message.get("stopReason") == "error":
            self.report_model_failure(as_text(message, "errorMessage"))
        elif message.get("stopReason") == "aborted":
            self.failure = as_text(message, "errorMessage") or "it was interrupted"
