"""GitHub Copilot CLI: with a custom model, offline, via its event stream.

Uses chat completions, with the model's short name. It masks its key wherever it occurs in its output; the
gateway's tokens are long enough not to spoil it. An exit code takes precedence over the reported success of a
tool.
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
)
from proctor.json_values import JsonMap, as_integer, as_map, as_text, short_text
from proctor.session import Intervention

_OWN_ERRORS = ("tool", "hook", "permission", "internal")
"""Error types that are not failures of the model."""


@dataclass(frozen=True, kw_only=True)
class Copilot(GatewayProgram):
    """GitHub's Copilot CLI, one prompt per run."""

    login: str = ""
    """`mine`: it uses your login with GitHub, from a copy of its file, in place of the gateway."""

    login_files: ClassVar[tuple[str, ...]] = (".copilot/config.json",)
    longest_prompt: ClassVar[int | None] = LONGEST_ARGUMENT_BYTES
    installable: ClassVar[Installable] = Installable(
        "copilot", "copilot", "npm install -g @github/copilot@1.0.102"
    )

    def call(self, run: ProgramRun) -> ProgramCall:
        named = ["--model", run.model] if self.login and run.assignment.model else []
        gateway = {
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": run.openai_url,
            "COPILOT_PROVIDER_API_KEY": run.token,
            "COPILOT_MODEL": run.model,
        }
        return ProgramCall(
            arguments=[
                "-p",
                as_argument(run.prompt),
                "--allow-all-tools",
                "--output-format",
                "json",
                "--no-ask-user",
                "--no-auto-update",
                *named,
                *self.arguments,
            ],
            variables={"COPILOT_AUTO_UPDATE": "false", **({} if self.login else gateway)},
        )

    def reader(self, run: ProgramRun) -> EventReader:
        return _CopilotReader(record=run.record)


@dataclass(kw_only=True)
class _CopilotReader(EventReader):
    """`assistant.message`, `tool.execution_*`, `session.error` and `result`, one object per line."""

    def read_event(self, event: JsonMap) -> bool:
        kind, data = as_text(event, "type"), as_map(event, "data")
        if kind == "assistant.message":
            self.recover()
            self.record_message(as_text(data, "content"))
        elif kind == "tool.execution_start":
            name = as_text(data, "toolName")
            self.begin_tool(as_text(data, "toolCallId"), name, as_map(data, "arguments"))
        elif kind == "tool.execution_complete":
            self._tool(data)
        elif kind == "session.error":
            self._error(data)
        elif kind == "result":
            self.record_thread(as_text(event, "sessionId"))
        else:
            return "." in kind
        return True

    def _tool(self, data: JsonMap) -> None:
        code = as_integer(data, "shellExecution", "exitCode")
        success = data.get("success") is True and code in (None, 0)
        error = as_map(data, "error")
        result = as_text(data, "result", "content") or as_text(error, "message")
        name = self.end_tool(as_text(data, "toolCallId"), success=success, result=result)
        if as_text(error, "code") in ("denied", "rejected"):
            self.record(Intervention(kind="permission", text=f"{name}: {short_text(result)}"))

    def _error(self, data: JsonMap) -> None:
        message = as_text(data, "message") or short_text(data)
        status = as_integer(data, "statusCode")
        if status is None and data.get("errorType") in _OWN_ERRORS:
            self.failure = message
        else:
            self.report_model_failure(message, status)
