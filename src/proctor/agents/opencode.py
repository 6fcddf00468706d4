"""opencode: headless, its events read.

It speaks OpenAI's chat wire to a provider that its configuration names, and sends the model's short
name, also for the title it gives the session. A tool is told once it has run, as completed whatever
its exit code; that is beside it.

Knows nothing of the prices it computes from its configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from proctor.agents._events import EventReader
from proctor.agents._installed import Installable
from proctor.agents._json import a_map, a_number, a_text, an_integer, shown
from proctor.agents._over_gateway import Call, OverGateway, Run, write_json
from proctor.session import Intervention

_MODEL_ERRORS = ("APIError", "ContextOverflowError", "ProviderAuthError")
"""What it calls a failure of its model. Others are its own: an aborted message, a limit."""


@dataclass(frozen=True, kw_only=True)
class Opencode(OverGateway):
    """opencode, one prompt a run."""

    context_tokens: int = 128_000
    """How much the model can read; it shortens the conversation before that."""
    output_tokens: int = 16_000
    """How much the model may write in one answer."""
    max_turns: int | None = None
    """After how many steps it is told to come to an end; None: it is not."""

    installable: ClassVar[Installable] = Installable(
        "opencode", "opencode", "npm install -g opencode-ai@1.18.33"
    )

    def call(self, run: Run) -> Call:
        file = run.home / ".config" / "opencode" / "opencode.json"
        write_json(file, self._configuration(run))
        return Call(
            arguments=[
                *("run", "--format", "json", "-m", f"proctor/{run.model}", *self.arguments),
            ],
            variables={
                "OPENCODE_CONFIG": str(file),
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
            },
            # As an argument it would come to the model in quotation marks.
            typed=run.prompt,
        )

    def _configuration(self, run: Run) -> dict[str, Any]:
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
            # Nobody is there to be asked, and nothing outside the tree is its business.
            "permission": {"edit": "allow", "bash": "allow", "external_directory": "deny"},
            **steps,
        }

    def reader(self, run: Run) -> EventReader:
        return _Reader(record=run.record)


@dataclass(kw_only=True)
class _Reader(EventReader):
    """`step_start`, `tool_use`, `text`, `step_finish` and `error`, one object a line."""

    def take(self, event: Mapping[str, Any]) -> bool:
        self.name_thread(a_text(event.get("sessionID")))
        kind, part = event.get("type"), a_map(event, "part")
        if kind == "text":
            self.say(a_text(part.get("text")))
        elif kind == "tool_use":
            self._tool(part)
        elif kind == "error":
            self._error(a_map(event, "error"))
        elif kind == "step_finish":
            self.recover()
        else:
            return kind in ("step_start", "reasoning")
        return True

    def _tool(self, part: Mapping[str, Any]) -> None:
        state = a_map(part, "state")
        code = an_integer(a_map(state, "metadata").get("exit"))
        failed = state.get("status") == "error" or code not in (None, 0)
        result = a_text(state.get("output")) or a_text(state.get("error"))
        self.end_tool(
            a_text(part.get("callID")),
            success=not failed,
            result=result,
            duration_ms=_duration(a_map(state, "time")),
            name=a_text(part.get("tool")),
            args=a_map(state, "input"),
        )
        if failed and "rejected permission" in result[:200]:
            # It goes on by itself: the answer was no.
            self.record(Intervention(kind="permission", text=f"{a_text(part.get('tool'))}: {shown(result)}"))

    def _error(self, error: Mapping[str, Any]) -> None:
        data = a_map(error, "data")
        said = a_text(data.get("message")) or shown(error)
        if error.get("name") in _MODEL_ERRORS:
            overflow = "context overflow: " if error.get("name") == "ContextOverflowError" else ""
            self.blame_model(overflow + said, an_integer(data.get("statusCode")))
        else:
            self.failure = said


def _duration(time: Mapping[str, Any]) -> float | None:
    start, end = a_number(time.get("start")), a_number(time.get("end"))
    return max(0.0, end - start) if start is not None and end is not None else None
