"""Claude Code: Anthropic's agent, headless, via its stream JSON.

Uses Anthropic's API. The model's short name is passed as `--model` and for each smaller model it would call.
A rejected call is reported as a success with `is_error` and a status. Exit code and cost are not trusted:
unknown models get an invented price.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from proctor.agents._program import Conversation, GatewayProgram, Installable, ProgramCall, ProgramRun
from proctor.agents._stream_json import StreamJson, user_message

# It prints its first line when it has read the prompt: after 2 to 5 s, after 20 s on a starved machine.
FIRST_LINE_SECONDS = 60.0
_WITHOUT_GATEWAY = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "IS_SANDBOX")


@dataclass(frozen=True, kw_only=True)
class Claude(GatewayProgram):
    """Anthropic's Claude Code, one prompt per run."""

    max_turns: int | None = None
    """Maximum number of turns; None: no limit."""
    login: str = ""
    """`mine`: it uses your login, from a copy of its files, in place of the gateway."""

    login_files: ClassVar[tuple[str, ...]] = (".claude/.credentials.json", ".claude.json")

    installable: ClassVar[Installable] = Installable(
        "claude", "claude", "npm install -g @anthropic-ai/claude-code@2.1.197"
    )

    takes_messages: ClassVar[bool] = True

    def call(self, run: ProgramRun) -> ProgramCall:
        if self.login:
            named = ["--model", run.model] if run.assignment.model else []
            call = self._call(run, named)
            return replace(call, variables={name: call.variables[name] for name in _WITHOUT_GATEWAY})
        return self._call(run, ["--model", run.model])

    def _call(self, run: ProgramRun, named: list[str]) -> ProgramCall:
        model = run.model
        limit = [] if self.max_turns is None else ["--max-turns", str(self.max_turns)]
        return ProgramCall(
            arguments=[
                "-p",
                "--input-format",
                "stream-json",
                "--output-format",
                "stream-json",
                "--verbose",
                "--dangerously-skip-permissions",
                *named,
                *limit,
                *self.arguments,
            ],
            variables={
                "ANTHROPIC_BASE_URL": run.url,
                "ANTHROPIC_API_KEY": run.token,
                "ANTHROPIC_DEFAULT_HAIKU_MODEL": model,
                "ANTHROPIC_DEFAULT_SONNET_MODEL": model,
                "ANTHROPIC_DEFAULT_OPUS_MODEL": model,
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                # Ten by default, for more than two minutes; the gateway has waited already.
                "CLAUDE_CODE_MAX_RETRIES": "2",
                "DISABLE_AUTOUPDATER": "1",
                # As root it skips permission checks only in a declared sandbox.
                "IS_SANDBOX": "1",
            },
            typed=Conversation(
                run.prompt, run.assignment.messages, user_message, patience_seconds=FIRST_LINE_SECONDS
            ),
        )

    def reader(self, run: ProgramRun) -> StreamJson:
        return StreamJson(record=run.record, model=run.assignment.model, counts_tokens=bool(self.login))
