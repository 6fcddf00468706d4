"""Codex: OpenAI's agent, headless, via its event stream.

Uses the responses API of a configured provider, with the model's short name. Its `error` events are notices
(a retry, missing model metadata); only a failed turn is a failure, and it is the model's. Its own sandbox is
off: the attempt has a tree of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from proctor.agents._program import EventReader, GatewayProgram, Installable, ProgramCall, ProgramRun
from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_integer,
    as_list,
    as_map,
    as_text,
    as_whole_number,
    content_text,
    short_text,
)
from proctor.session import ModelCall, Usage
from proctor.workspace.beneath import write_private

_CONFIGURATION = """check_for_update_on_startup = false
cli_auth_credentials_store = "file"
{provider}
[analytics]
enabled = false
"""
_GATEWAY = """model_provider = "proctor"

[model_providers.proctor]
name = "proctor"
base_url = "{url}"
env_key = "PROCTOR_GATEWAY_TOKEN"
wire_api = "responses"
request_max_retries = 1
stream_max_retries = 1
"""


@dataclass(frozen=True, kw_only=True)
class Codex(GatewayProgram):
    """OpenAI's Codex, one prompt per run."""

    login: str = ""
    """`mine`: it uses your login with ChatGPT, from a copy of its file, in place of the gateway."""

    login_files: ClassVar[tuple[str, ...]] = (".codex/auth.json",)
    installable: ClassVar[Installable] = Installable("codex", "codex", "npm install -g @openai/codex@0.166.0")

    def call(self, run: ProgramRun) -> ProgramCall:
        provider = "" if self.login else _GATEWAY.format(url=run.openai_url)
        file = write_private(run.home, ".codex/config.toml", _CONFIGURATION.format(provider=provider))
        variables = {"CODEX_HOME": str(file.parent)}
        return ProgramCall(
            arguments=[
                # Plugins cost five seconds of failing downloads when there is no network.
                "exec",
                "--json",
                "--disable",
                "plugins",
                "--dangerously-bypass-approvals-and-sandbox",
                "--skip-git-repo-check",
                *(["-m", run.model] if run.assignment.model or not self.login else []),
                *self.arguments,
                "-",
            ],
            variables=variables if self.login else {**variables, "PROCTOR_GATEWAY_TOKEN": run.token},
            typed=run.prompt,
        )

    def reader(self, run: ProgramRun) -> EventReader:
        return _CodexReader(record=run.record, own_model=run.model if self.login else "")


@dataclass(kw_only=True)
class _CodexReader(EventReader):
    """`thread.started`, `turn.*`, `item.started` and `item.completed`, one object per line."""

    own_model: str = ""
    """The model whose tokens it reports; empty: the gateway counts them."""

    def read_event(self, event: JsonMap) -> bool:
        kind = event.get("type")
        item = as_map(event, "item")
        if kind == "thread.started":
            self.record_thread(as_text(event, "thread_id"))
        elif kind == "turn.failed":
            self.report_model_failure(as_text(event, "error", "message"))
        elif kind == "turn.completed":
            self.recover()
            if self.own_model:
                self.record(ModelCall(model=self.own_model, usage=_usage(as_map(event, "usage"))))
        elif kind == "item.started" and (tool := as_text(item, "type")) in _TOOLS:
            name, args = _TOOLS[tool](item)
            self.begin_tool(as_text(item, "id"), name, args)
        elif kind == "item.completed":
            self._completed(item)
        else:
            return kind in ("turn.started", "item.started", "item.updated", "error")
        return True

    def _completed(self, item: JsonMap) -> None:
        kind = as_text(item, "type")
        if kind == "agent_message":
            self.record_message(as_text(item, "text"))
        elif kind in _TOOLS:
            name, args = _TOOLS[kind](item)
            code = as_integer(item, "exit_code")
            success = code == 0 if code is not None else item.get("status") != "failed"
            identity = as_text(item, "id")
            self.end_tool(identity, success=success, result=_result(item), name=name, args=args)


def _usage(counts: JsonMap) -> Usage:
    return Usage(
        input_tokens=as_whole_number(counts, "input_tokens"),
        cached_tokens=as_whole_number(counts, "cached_input_tokens"),
        output_tokens=as_whole_number(counts, "output_tokens"),
        reasoning_tokens=as_whole_number(counts, "reasoning_output_tokens"),
    )


def _result(item: JsonMap) -> str:
    if output := as_text(item, "aggregated_output"):
        return output
    problem = as_map(item, "error").get("message")
    return as_text(problem) or content_text(item, "result", "content")


def _command(item: JsonMap) -> tuple[str, JsonObject]:
    return "shell", {"command": as_text(item, "command")}


def _file_change(item: JsonMap) -> tuple[str, JsonObject]:
    return "apply_patch", {"changes": as_list(item, "changes")}


def _mcp(item: JsonMap) -> tuple[str, JsonObject]:
    return f"{short_text(item.get('server'))}.{short_text(item.get('tool'))}", dict(as_map(item, "arguments"))


def _web_search(item: JsonMap) -> tuple[str, JsonObject]:
    return "web_search", {"query": as_text(item, "query")}


_TOOLS: Mapping[str, Callable[[JsonMap], tuple[str, JsonObject]]] = {
    "command_execution": _command,
    "file_change": _file_change,
    "mcp_tool_call": _mcp,
    "web_search": _web_search,
}
"""Item types that are tool calls, each with the function that reads its name and arguments."""
