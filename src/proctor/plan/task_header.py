"""What may stand in the front matter of a task file, as a pydantic model.

    ---
    start: fix_typo/start          # a folder beside the task; or `repo:` and `ref:`
    check:                         # success criterion → command; a list or a single command will do
      The word is spelled right: grep -q receive README.md
    timeout: 600
    ---

Knows nothing of files, Markdown or items.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from proctor.plan.schema import Expectation, Seconds, Text, names_of
from proctor.plan.source import Path
from proctor.plan.validate import Part


def _is_check(value: Any) -> Any:
    commands = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
    if not commands or not all(isinstance(command, str) and command.strip() for command in commands):
        raise ValueError("should be a command, a list of commands, or commands under their success criteria")
    return value


class Header(BaseModel):
    """The front matter of a task."""

    model_config = ConfigDict(extra="forbid", strict=True)

    start: Text | None = Field(None, description="Folder with the files the task begins with.")
    repo: Text | None = Field(None, description="Git repository to begin from, instead of `start`.")
    ref: Text | None = Field(None, description="Branch, tag or commit of `repo`. Default: HEAD.")
    setup: Text | None = Field(None, description="Command run in the copy before the agent.")
    check: Annotated[Any, AfterValidator(_is_check)] = Field(
        None, description="Commands that decide, each by its exit code."
    )
    check_files: Text | None = Field(None, description="Folder put over the work before it is checked.")
    expect: Expectation | None = Field(None, description="What the agent's last words are checked for.")
    timeout: Seconds | None = Field(None, description="Seconds the agent may take.")
    agent: Text | None = Field(None, description="Who does the work. Default: builtin.")
    solution: Text | None = Field(None, description="Folder with the reference solution's files.")
    answer: Text | None = Field(None, description="What the reference solution says.")


FOLDERS = ("start", "check_files", "solution")
"""The settings that name a folder beside the task."""


def vocabulary(path: Path) -> Part | None:
    """How the parts of a front matter are spoken of."""
    match path:
        case ():
            return Part("the task", "A task", names_of(Header))
        case ("expect",):
            return Part("`expect`", "`expect`", names_of(Expectation))
    return None
