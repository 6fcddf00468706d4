"""Gemini CLI: Google's agent, headless, via its event stream.

Uses Gemini's API, with the model's short name in the path. Messages arrive in pieces and are joined. A failed
command is reported as a success, so the success of commands is unknown. Its exit code (a status modulo 256)
is not trusted.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from proctor.agents._program import (
    EventReader,
    GatewayProgram,
    Installable,
    ProgramCall,
    ProgramRun,
    write_json,
)
from proctor.json_values import JsonMap, as_map, as_text, as_whole_number, short_text
from proctor.session import ModelCall, Usage

_SHELL = "run_shell_command"


@dataclass(frozen=True, kw_only=True)
class Gemini(GatewayProgram):
    """Google's Gemini CLI, one prompt per run."""

    max_turns: int | None = None
    """Maximum number of turns; None: no limit."""
    login: str = ""
    """`mine`: it uses your login with Google, from a copy of its files, in place of the gateway."""

    login_files: ClassVar[tuple[str, ...]] = (".gemini/oauth_creds.json", ".gemini/google_accounts.json")
    installable: ClassVar[Installable] = Installable(
        "gemini", "gemini", "npm install -g @google/gemini-cli@0.61.0"
    )

    def call(self, run: ProgramRun) -> ProgramCall:
        turns = {} if self.max_turns is None else {"model": {"maxSessionTurns": self.max_turns}}
        settings = {
            "security": {"auth": {"selectedType": "oauth-personal" if self.login else "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            # Ten attempts would be more than a minute of silence; the gateway has waited already.
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False, "maxAttempts": 2},
            **turns,
        }
        write_json(run.home, ".gemini/settings.json", settings)
        named = ["-m", run.model] if run.assignment.model or not self.login else []
        gateway = {"GEMINI_API_KEY": run.token, "GOOGLE_GEMINI_BASE_URL": run.url}
        return ProgramCall(
            arguments=["--yolo", "--skip-trust", *named, "-o", "stream-json", *self.arguments],
            variables={
                **({} if self.login else gateway),
                # Its launcher ignores signals; this starts the program itself.
                "GEMINI_CLI_NO_RELAUNCH": "true",
                "GEMINI_TELEMETRY_ENABLED": "false",
            },
            typed=run.prompt,
        )

    def reader(self, run: ProgramRun) -> EventReader:
        return _GeminiReader(record=run.record, counts_tokens=bool(self.login))


@dataclass(kw_only=True)
class _GeminiReader(EventReader):
    """`init`, `message`, `tool_use`, `tool_result`, `error` and `result`, one object per line."""

    counts_tokens: bool = False
    """False when the gateway counts all calls."""
    _pieces: list[str] = field(default_factory=list, init=False)

    def read_event(self, event: JsonMap) -> bool:
        kind = event.get("type")
        if kind == "message":
            self._message(event)
            return True
        self._put_together()
        if kind == "result" and self.counts_tokens:
            for model, counts in as_map(event, "stats", "models").items():
                self.record(ModelCall(model=model, usage=_usage(as_map(counts))))
        if kind == "init":
            self.record_thread(as_text(event, "session_id"))
        elif kind == "tool_use":
            name = as_text(event, "tool_name")
            self.begin_tool(as_text(event, "tool_id"), name, as_map(event, "parameters"))
        elif kind == "tool_result":
            self._tool_result(event)
        elif kind == "result" and event.get("status") == "error":
            self._error(as_map(event, "error"))
        else:
            return kind in ("result", "error")
        return True

    def finish(self) -> None:
        self._put_together()
        super().finish()

    def _message(self, event: JsonMap) -> None:
        if event.get("role") != "assistant":
            return
        self._pieces.append(as_text(event, "content"))
        if event.get("delta") is not True:
            self._put_together()

    def _put_together(self) -> None:
        self.record_message("".join(self._pieces))
        self._pieces.clear()

    def _tool_result(self, event: JsonMap) -> None:
        result = as_text(event, "output") or short_text(event.get("error") or "")
        self.end_tool(as_text(event, "tool_id"), success=event.get("status") == "success", result=result)

    def has_succeeded(self, tool: str, result: str) -> bool | None:  # noqa: ARG002
        """Success is reported for every command that could be started, whatever its exit code."""
        return None if tool == _SHELL else True

    def _error(self, error: JsonMap) -> None:
        message = as_text(error, "message")
        if "[API Error" in message:
            self.report_model_failure(message)
        else:
            self.failure = message or "it reported an error"


def _usage(counts: JsonMap) -> Usage:
    prompt, total = as_whole_number(counts, "input_tokens"), as_whole_number(counts, "total_tokens")
    visible = as_whole_number(counts, "output_tokens")
    # Its thoughts are in the total alone.
    generated = max(visible, total - prompt)
    return Usage(
        input_tokens=prompt,
        cached_tokens=as_whole_number(counts, "cached"),
        output_tokens=generated,
        reasoning_tokens=generated - visible,
    )
