"""Continue: its command line `cn`, headless, via one JSON object at the end.

Uses chat completions of the configured model, by its short name. It reports no tool calls; they come from
gateway traffic. A failure is a JSON object on standard error. Its exit code is not trusted: it is 0 when it
was stopped.
"""

# ruff: noqa: N999
# A keyword cannot be imported by a statement, but the loader imports modules by name.

import json
import re
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
from proctor.json_values import JsonMap, as_text, json_object, short_text
from proctor.workspace.beneath import write_private

_FROM_MODEL = re.compile(r"^[45]\d\d\b|connection error|fetch failed|timed out|terminated", re.IGNORECASE)
"""Errors of failed model calls; others concern its configuration or the program itself."""


@dataclass(frozen=True, kw_only=True)
class Continue(GatewayProgram):
    """Continue's command line, one prompt per run."""

    context_tokens: int = 128_000
    """Context window of the model in tokens; the agent shortens the conversation before it is full."""

    records_transcript: ClassVar[bool] = False
    longest_prompt: ClassVar[int | None] = LONGEST_ARGUMENT_BYTES
    installable: ClassVar[Installable] = Installable(
        "continue", "cn", "npm install -g @continuedev/cli@1.5.47"
    )

    def call(self, run: ProgramRun) -> ProgramCall:
        name = run.model
        model = {
            "name": name,
            "provider": "openai",
            "model": name,
            "apiBase": run.openai_url,
            "apiKey": run.token,
            "roles": ["chat"],
            "capabilities": ["tool_use"],
            "defaultCompletionOptions": {"contextLength": self.context_tokens},
        }
        # JSON is YAML.
        document = json.dumps({"name": "proctor", "version": "1.0.0", "schema": "v1", "models": [model]})
        file = write_private(run.home, ".continue/config.yaml", document)
        return ProgramCall(
            arguments=[
                "-p",
                "--config",
                str(file),
                "--auto",
                "--format",
                "json",
                *self.arguments,
                as_argument(run.prompt),
            ],
            variables={"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_GLOBAL_DIR": str(file.parent)},
        )

    def reader(self, run: ProgramRun) -> EventReader:
        return _ContinueReader(record=run.record)


@dataclass(kw_only=True)
class _ContinueReader(EventReader):
    """`response` and `status` on standard output, or `status` and `message` on standard error."""

    def read_event(self, event: JsonMap) -> bool:
        if event.get("status") == "error":
            message = as_text(event, "message") or short_text(event)
            if _FROM_MODEL.search(message):
                self.report_model_failure(message)
            else:
                self.failure = message
        return "status" in event

    def read_stderr(self, stderr: str) -> None:
        for line in stderr.splitlines():
            if (event := json_object(line)) is not None:
                self.read_event(event)
