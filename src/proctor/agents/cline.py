"""Cline: headless, via its event stream.

Uses chat completions of a configured provider, with the model's short name. It leaves a daemon behind and
does not exit on request; both are ended with the attempt. Exit code and cost are not trusted.
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
from proctor.json_values import JsonMap, as_amount, as_list, as_map, as_text, short_text

_PROVIDER = "openai-compatible"


@dataclass(frozen=True, kw_only=True)
class Cline(GatewayProgram):
    """Cline's command line, one prompt per run."""

    max_mistakes: int = 6
    """Consecutive failures after which it gives up."""

    longest_prompt: ClassVar[int | None] = LONGEST_ARGUMENT_BYTES
    installable: ClassVar[Installable] = Installable("cline", "cline", "npm install -g cline@3.0.65")

    def call(self, run: ProgramRun) -> ProgramCall:
        settings = {"provider": _PROVIDER, "apiKey": run.token, "model": run.model, "baseUrl": run.openai_url}
        document = {
            "version": 1,
            "lastUsedProvider": _PROVIDER,
            "modes": {},
            # The date is required; its value does not matter.
            "providers": {_PROVIDER: {"settings": settings, "updatedAt": _LONG_AGO, "tokenSource": "manual"}},
        }
        write_json(run.home, ".cline/data/settings/providers.json", document)
        return ProgramCall(
            arguments=[
                "--json",
                "--auto-approve",
                "true",
                "-P",
                _PROVIDER,
                "-m",
                run.model,
                "--retries",
                str(self.max_mistakes),
                *self.arguments,
                as_argument(run.prompt),
            ],
            variables={"CLINE_NO_AUTO_UPDATE": "1", "DO_NOT_TRACK": "1"},
        )

    def reader(self, run: ProgramRun) -> EventReader:
        return _ClineReader(record=run.record)


_LONG_AGO = "2000-01-01T00:00:00.000Z"


@dataclass(kw_only=True)
class _ClineReader(EventReader):
    """`hook_event`, `agent_event` (which holds the event itself) and `run_result`, one object per line."""

    _error: str = ""

    def read_event(self, event: JsonMap) -> bool:
        kind = event.get("type")
        if kind == "hook_event":
            self.record_thread(as_text(event, "taskId"))
        elif kind == "agent_event":
            self._agent(as_map(event, "event"))
        elif kind == "run_result":
            self._result(event)
        else:
            return False
        return True

    def _agent(self, event: JsonMap) -> None:
        kind, content = event.get("type"), event.get("contentType")
        identity, name = as_text(event, "toolCallId"), as_text(event, "toolName")
        if kind == "content_start" and content == "tool":
            self.begin_tool(identity, name, as_map(event, "input"))
        elif kind == "content_end" and content == "tool":
            success, result = _outcome(event)
            duration = as_amount(event, "durationMs")
            self.end_tool(identity, success=success, result=result, duration_ms=duration, name=name)
        elif kind == "content_end" and content == "text":
            self.record_message(as_text(event, "text"))
        elif kind == "error":
            self._error = (
                f"{as_text(event.get('errorClass'))}: {as_text(as_map(event, 'error').get('message'))}"
            )

    def _result(self, event: JsonMap) -> None:
        text, reason = as_text(event, "text"), as_text(event, "finishReason")
        if reason == "completed":
            if text != self.last_text:
                self.record_message(text)
        elif reason == "error" and self._error:
            self.report_model_failure(self._error)
        else:
            self.failure = text or f"it ended with `{reason}`"


def _outcome(event: JsonMap) -> tuple[bool, str]:
    """Whether a tool succeeded: for several commands, whether all did."""
    output = event.get("output")
    parts = [as_map(part) for part in as_list(output)]
    failed = bool(event.get("error")) or any(part.get("success") is False for part in parts)
    texts = [as_text(part, "result") or as_text(part, "error") for part in parts]
    result = "\n".join(filter(None, texts)) or (short_text(output) if output and not parts else "")
    return not failed, result or short_text(event.get("error") or "")
