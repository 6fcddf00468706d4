"""mini-swe-agent: headless, via its trajectory file.

Uses chat completions through litellm, which strips `openai/` from the model's short name. Messages and tool
calls come from gateway traffic; the outcome from the trajectory, which is missing when it was stopped.
Reaching a limit is exit code 0.
"""

from dataclasses import dataclass
from pathlib import Path
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
    read_json,
)
from proctor.json_values import JsonMap, as_list, as_text

_DONE = "Submitted"


@dataclass(frozen=True, kw_only=True)
class MiniSweAgent(GatewayProgram):
    """mini-swe-agent, one prompt per run."""

    max_turns: int | None = None
    """Maximum number of steps; None: no limit."""

    records_transcript: ClassVar[bool] = False
    longest_prompt: ClassVar[int | None] = LONGEST_ARGUMENT_BYTES
    installable: ClassVar[Installable] = Installable(
        # Without mcp its litellm fails at every call and retries for minutes.
        "mini-swe-agent",
        "mini",
        "uv tool install --with mcp mini-swe-agent==2.4.6",
        # It has no `--version`; each start prints it.
        version_option="--help",
    )

    def call(self, run: ProgramRun) -> ProgramCall:
        limit = ["-c", "mini.yaml", "-c", f"agent.step_limit={self.max_turns}"] if self.max_turns else []
        return ProgramCall(
            arguments=[
                "-m",
                f"openai/{run.model}",
                "-t",
                as_argument(run.prompt),
                # Its own cost limit is off: it does not know the price, and the batch enforces the limit.
                "-y",
                "--exit-immediately",
                "-l",
                "0",
                "-o",
                str(_trajectory(run)),
                *limit,
                *self.arguments,
            ],
            variables={
                **LITELLM_VARIABLES,
                "MSWEA_CONFIGURED": "true",
                "MSWEA_COST_TRACKING": "ignore_errors",
                "MSWEA_SILENT_STARTUP": "1",
                "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "2",
                "MSWEA_GLOBAL_CONFIG_DIR": str(run.home / ".mini-swe-agent"),
                "OPENAI_API_KEY": run.token,
                "OPENAI_API_BASE": run.openai_url,
            },
        )

    def reader(self, run: ProgramRun) -> EventReader:
        return _MiniSweAgentReader(record=run.record, trajectory=_trajectory(run), token=run.token)


def _trajectory(run: ProgramRun) -> Path:
    return run.home / "trajectory.json"


@dataclass(kw_only=True)
class _MiniSweAgentReader(EventReader):
    """Reads its trajectory file at the end; its output contains no events."""

    trajectory: Path
    token: str

    def feed(self, line: str) -> bool:  # noqa: ARG002 (all of it is text for people)
        return False

    def feed_text(self, block: str) -> None:
        pass

    def read_event(self, event: JsonMap) -> bool:
        status = as_text(event, "info", "exit_status")
        last = next(iter(as_list(event, "messages")[-1:]), None)
        message = as_text(last, "content") or status
        if is_model_error(status):
            self.report_model_failure(f"{status}: {message}")
        elif status not in ("", _DONE):
            self.failure = f"{status}: {message}" if message != status else status
        return True

    def finish(self) -> None:
        if (trajectory := read_json(self.trajectory, self.token)) is not None:
            self.read_event(trajectory)
