"""GitHub Copilot CLI: with a model of the user's own, offline, its events read.

It speaks OpenAI's chat wire and sends the model's short name. It masks its key wherever it occurs in
what it prints, so a short token would spoil the record; the gateway's are long.

Trusts no success of a tool beside which an exit code stands.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from proctor.agents._events import EventReader
from proctor.agents._installed import Installable
from proctor.agents._json import a_map, a_text, an_integer, shown
from proctor.agents._over_gateway import Call, OverGateway, Run, as_argument
from proctor.session import Intervention

_OWN_ERRORS = ("tool", "hook", "permission", "internal")
"""Kinds of its errors that are not its model's."""


@dataclass(frozen=True, kw_only=True)
class Copilot(OverGateway):
    """GitHub's Copilot CLI, one prompt a run."""

    installable: ClassVar[Installable] = Installable(
        "copilot", "copilot", "npm install -g @github/copilot@1.0.102"
    )

    def call(self, run: Run) -> Call:
        return Call(
            arguments=[
                *("-p", as_argument(run.prompt), "--allow-all-tools", "--output-format", "json"),
                *("--no-ask-user", "--no-auto-update", *self.arguments),
            ],
            variables={
                "COPILOT_OFFLINE": "true",
                "COPILOT_PROVIDER_BASE_URL": run.openai_url,
                "COPILOT_PROVIDER_API_KEY": run.token,
                "COPILOT_MODEL": run.model,
                "COPILOT_AUTO_UPDATE": "false",
            },
        )

    def reader(self, run: Run) -> EventReader:
        return _Reader(record=run.record)


@dataclass(kw_only=True)
class _Reader(EventReader):
    """`assistant.message`, `tool.execution_*`, `session.error` and `result`, one object a line."""

    def take(self, event: Mapping[str, Any]) -> bool:
        kind, data = a_text(event.get("type")), a_map(event, "data")
        if kind == "assistant.message":
            self.recover()
            self.say(a_text(data.get("content")))
        elif kind == "tool.execution_start":
            name = a_text(data.get("toolName"))
            self.begin_tool(a_text(data.get("toolCallId")), name, a_map(data, "arguments"))
        elif kind == "tool.execution_complete":
            self._tool(data)
        elif kind == "session.error":
            self._error(data)
        elif kind == "result":
            self.name_thread(a_text(event.get("sessionId")))
        else:
            return "." in kind
        return True

    def _tool(self, data: Mapping[str, Any]) -> None:
        code = an_integer(a_map(data, "shellExecution").get("exitCode"))
        success = data.get("success") is True and code in (None, 0)
        error = a_map(data, "error")
        result = a_text(a_map(data, "result").get("content")) or a_text(error.get("message"))
        name = self.end_tool(a_text(data.get("toolCallId")), success=success, result=result)
        if a_text(error.get("code")) in ("denied", "rejected"):
            self.record(Intervention(kind="permission", text=f"{name}: {shown(result)}"))

    def _error(self, data: Mapping[str, Any]) -> None:
        said = a_text(data.get("message")) or shown(data)
        status = an_integer(data.get("statusCode"))
        if status is None and data.get("errorType") in _OWN_ERRORS:
            self.failure = said
        else:
            self.blame_model(said, status)
