"""OpenHands: headless, via events within decorated text.

Uses chat completions through litellm, which strips `openai/` from the model's short name. When its model
fails it exits with 0; an error event of the conversation shows it.
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from proctor.agents._program import (
    LITELLM_VARIABLES,
    LONGEST_ARGUMENT_BYTES,
    EventReader,
    GatewayProgram,
    Installable,
    ProgramCall,
    ProgramRun,
    as_argument,
    is_model_error,
)
from proctor.json_values import JsonMap, as_integer, as_map, as_text, content_text, short_text

_CONVERSATION = re.compile(r"^[^\S\n]*Conversation ID: ([0-9a-f]{32})\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Openhands(GatewayProgram):
    """OpenHands' command line, one prompt per run."""

    longest_prompt: ClassVar[int | None] = LONGEST_ARGUMENT_BYTES
    installable: ClassVar[Installable] = Installable(
        "openhands", "openhands", "uv tool install --python 3.12 openhands==1.16.0"
    )

    @property
    def needs_terminal(self) -> bool:
        return True

    def call(self, run: ProgramRun) -> ProgramCall:
        return ProgramCall(
            arguments=[
                # From a file, the model would get it as the contents of a file.
                "--headless",
                "--json",
                "--override-with-envs",
                *self.arguments,
                "-t",
                as_argument(run.prompt),
            ],
            variables={
                **LITELLM_VARIABLES,
                "LLM_API_KEY": run.token,
                "LLM_BASE_URL": run.openai_url,
                "LLM_MODEL": f"openai/{run.model}",
                "OPENHANDS_SUPPRESS_BANNER": "1",
            },
        )

    def reader(self, run: ProgramRun) -> EventReader:
        return _OpenhandsReader(record=run.record)


@dataclass(kw_only=True)
class _OpenhandsReader(EventReader):
    """Events by their `kind`: messages, actions, observations and errors, one object per line."""

    def feed_text(self, block: str) -> None:
        """Its decorated text repeats messages, so it is not searched for questions."""
        if named := _CONVERSATION.search(block):
            self.record_thread(named[1])

    def read_event(self, event: JsonMap) -> bool:
        kind = as_text(event, "kind")
        identity = as_text(event, "tool_call_id")
        if kind == "MessageEvent" and event.get("source") == "agent":
            self.record_message(content_text(event, "llm_message", "content"))
        elif kind == "ActionEvent":
            self._action(event, identity)
        elif kind == "ObservationEvent":
            self._observation(as_map(event, "observation"), identity)
        elif kind == "AgentErrorEvent":
            self.end_tool(identity, success=False, result=as_text(event, "error"))
        elif kind == "ConversationErrorEvent":
            self._error(event)
        else:
            return kind.endswith("Event")
        return True

    def _action(self, event: JsonMap, identity: str) -> None:
        self.record_message(content_text(event, "thought"))
        action = dict(as_map(event, "action"))
        if action.pop("kind", "") == "FinishAction":
            self.record_message(as_text(action, "message"))
        else:
            self.begin_tool(identity, as_text(event, "tool_name"), action)

    def _observation(self, observation: JsonMap, identity: str) -> None:
        if observation.get("kind") == "FinishObservation":
            return
        code = as_integer(observation, "exit_code")
        success = observation.get("is_error") is not True and code in (None, 0)
        self.end_tool(identity, success=success, result=content_text(observation, "content"))

    def _error(self, event: JsonMap) -> None:
        code, message = as_text(event, "code"), as_text(event, "detail") or short_text(event)
        if is_model_error(code) or "litellm." in message:
            self.report_model_failure(f"{code}: {message}")
        else:
            self.failure = message
