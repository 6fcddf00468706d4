"""aider: headless, via its text output and its log.

Uses chat completions through litellm, which strips `openai/` from the model's short name; commit messages use
the same model. It has no tools: an applied edit is recorded as one; messages come from gateway traffic. It
commits by itself. A failed call is only text with exit code 0; the log shows whether the last message was
answered.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from proctor.agent import Assignment, WorkDone
from proctor.agents._program import (
    LITELLM_VARIABLES,
    EventReader,
    GatewayProgram,
    Installable,
    ProgramCall,
    ProgramRun,
    read_text,
    write_json,
)
from proctor.json_values import JsonMap, JsonObject, json_object
from proctor.session import Record
from proctor.workspace import beneath
from proctor.workspace.beneath import write_private

_LITELLM_ERROR = re.compile(r"^litellm\.(\w+): ")
_APPLIED = re.compile(r"^Applied edit to (.+)$")
_REFUSED_EDIT = re.compile(r"^The LLM did not conform to the edit format")
# Each line that one of these matches contains one of these words.
_NOTED_WORDS = ("litellm.", "Applied edit to ", "The LLM did not conform")
_LONGEST_COMPLAINT_LINES = 4
_LITTER = ".aider*"
"""Its cache of the repository map, which it leaves in the tree."""


@dataclass(frozen=True, kw_only=True)
class Aider(GatewayProgram):
    """aider, one prompt per run."""

    files: list[str] = field(default_factory=list)
    """Files in the chat from the start; aider adds others when the model names them."""
    edit_format: str = "diff"
    """Edit format: `diff`, `whole`, `udiff` or another one of aider's."""
    map_tokens: int = 1024
    """Maximum tokens of the repository map; 0: no map."""
    auto_commits: bool = True
    """Whether it commits its edits; the commit message costs another call."""
    context_tokens: int = 128_000
    """Context window of the model in tokens."""
    output_tokens: int = 16_000
    """Maximum output tokens of one answer."""

    records_transcript: ClassVar[bool] = False
    installable: ClassVar[Installable] = Installable(
        "aider", "aider", "uv tool install --python 3.11 aider-chat==0.86.2"
    )

    def call(self, run: ProgramRun) -> ProgramCall:
        model = f"openai/{run.model}"
        home = run.home / ".aider-run"
        metadata = write_json(run.home, ".aider-run/models.json", {model: self._metadata()})
        prompt = write_private(run.home, ".aider-run/prompt.txt", _no_command(run.prompt))
        return ProgramCall(
            arguments=[
                "--model",
                model,
                "--weak-model",
                model,
                "--model-metadata-file",
                str(metadata),
                "--edit-format",
                self.edit_format,
                "--message-file",
                str(prompt),
                "--yes-always",
                "--no-check-update",
                "--no-show-release-notes",
                "--no-show-model-warnings",
                "--no-pretty",
                "--no-stream",
                "--no-gitignore",
                "--map-tokens",
                str(self.map_tokens),
                "--no-detect-urls",
                "--analytics-disable",
                "--analytics-log",
                str(_log(run)),
                "--chat-history-file",
                str(home / "chat.md"),
                "--input-history-file",
                str(home / "input.txt"),
                *([] if self.auto_commits else ["--no-auto-commits"]),
                *self.arguments,
                *self.files,
            ],
            variables={
                **LITELLM_VARIABLES,
                # A `.env` file in the tree overrides the plain names, but not these.
                "OPENAI_API_KEY": run.token,
                "AIDER_OPENAI_API_KEY": run.token,
                "OPENAI_API_BASE": run.openai_url,
                "AIDER_OPENAI_API_BASE": run.openai_url,
            },
        )

    def _metadata(self) -> JsonObject:
        return {
            "max_input_tokens": self.context_tokens,
            "max_output_tokens": self.output_tokens,
            "litellm_provider": "openai",
            "mode": "chat",
        }

    def reader(self, run: ProgramRun) -> EventReader:
        return _AiderReader(record=run.record, log=_log(run), token=run.token)

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Run aider, then remove the cache it left in the tree, unless it was there before."""
        before = set(assignment.folder.glob(_LITTER))
        try:
            return await super().work(assignment, record)
        finally:
            for litter in set(assignment.folder.glob(_LITTER)) - before:
                beneath.remove(assignment.folder, litter.name)


def _log(run: ProgramRun) -> Path:
    return run.home / ".aider-run" / "log.jsonl"


def _no_command(prompt: str) -> str:
    """Escape a prompt that aider would run as one of its commands or in the shell."""
    return f"\n{prompt}" if prompt.startswith(("/", "!")) else prompt


@dataclass(kw_only=True)
class _AiderReader(EventReader):
    """Reads its text output, and the log that shows which messages were answered."""

    log: Path
    token: str
    _complaint: list[str] = field(default_factory=list, init=False)
    _complaining: int = field(default=0, init=False)

    def feed(self, line: str) -> bool:
        if _LITELLM_ERROR.match(line):
            # The message is wrapped over several lines.
            self._complaint, self._complaining = [], _LONGEST_COMPLAINT_LINES
        if self._complaining:
            self._complaining -= 1
            self._complaint.append(line)
        if applied := _APPLIED.match(line):
            self.end_tool("", success=True, result="", name="edit", args={"path": applied[1]})
        elif _REFUSED_EDIT.match(line):
            self.end_tool("", success=False, result=line, name="edit")
        return False

    def feed_text(self, block: str) -> None:
        if self._complaining or any(word in block for word in _NOTED_WORDS):
            for line in block[:-1].split("\n"):
                self.feed(line)

    def read_event(self, event: JsonMap) -> bool:
        """Read an event of the log: a message was sent or answered."""
        if event.get("event") == "message_send_starting":
            complaint = " ".join(self._complaint).strip()
            self.report_model_failure(complaint or "its last message was not answered")
        elif event.get("event") == "message_send":
            self.recover()
        return True

    def finish(self) -> None:
        events = [
            event
            for line in read_text(self.log, self.token).splitlines()
            if (event := json_object(line)) is not None
        ]
        for event in events:
            self.read_event(event)
        if events and not any(event.get("event") == "message_send_starting" for event in events):
            self.failure = "it asked its model nothing"
