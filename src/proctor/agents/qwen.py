"""Qwen Code: headless, via stream JSON as in Claude Code.

Uses chat completions, with the model's short name. When its model fails it reports success and exits with 0;
the only sign is a text `[API Error: …]` instead of an answer. Exit codes of commands are not always reported.
"""

import re
from dataclasses import dataclass
from typing import ClassVar

from proctor.agents._program import GatewayProgram, Installable, ProgramCall, ProgramRun, write_json
from proctor.agents._stream_json import StreamJson
from proctor.json_values import JsonMap, as_map, as_whole_number, content_text

_API_ERROR = "[API Error"
_EXIT_CODE = re.compile(r"^Exit Code: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Qwen(GatewayProgram):
    """Alibaba's Qwen Code, one prompt per run."""

    max_turns: int | None = None
    """Maximum number of turns; None: no limit."""

    installable: ClassVar[Installable] = Installable(
        "qwen", "qwen", "npm install -g @qwen-code/qwen-code@0.15.10"
    )

    def call(self, run: ProgramRun) -> ProgramCall:
        settings = {
            "security": {"auth": {"selectedType": "openai"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"disableAutoUpdate": True},
            # Ten minutes over a rate limit by default, and a minute without; the gateway has waited already.
            "model": {"generationConfig": {"maxRetries": 0}},
            # With a terminal every command fails where the sandbox has none (`landlock`).
            "tools": {"shell": {"enableInteractiveShell": False}},
        }
        write_json(run.home, ".qwen/settings.json", settings)
        limit = [] if self.max_turns is None else ["--max-session-turns", str(self.max_turns)]
        return ProgramCall(
            arguments=["--yolo", "-m", run.model, "--output-format", "stream-json", *limit, *self.arguments],
            variables={"OPENAI_API_KEY": run.token, "OPENAI_BASE_URL": run.openai_url},
            typed=run.prompt,
        )

    def reader(self, run: ProgramRun) -> StreamJson:
        return _QwenReader(record=run.record, model=run.model, counts_tokens=False)


@dataclass(kw_only=True)
class _QwenReader(StreamJson):
    """Stream JSON in which a model failure has the shape of an answer."""

    def read_event(self, event: JsonMap) -> bool:
        if event.get("type") == "assistant" and _is_api_error(as_map(event, "message")):
            self.report_model_failure(content_text(event, "message", "content"))
            return True
        if self.model_error and event.get("type") == "result" and event.get("result") == self.failure:
            return True
        return super().read_event(event)

    def has_succeeded(self, tool: str, result: str) -> bool | None:
        """A shell command succeeded by its exit code; unknown when it reports none."""
        if tool != "run_shell_command":
            return True
        exit_code = _EXIT_CODE.search(result)
        return int(exit_code[1]) == 0 if exit_code else None


def _is_api_error(message: JsonMap) -> bool:
    """Whether a text is an error message. A model could write it too, but then there are output tokens."""
    written = as_whole_number(message, "usage", "output_tokens")
    return not written and content_text(message, "content").startswith(_API_ERROR)
