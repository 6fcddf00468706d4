"""One call of the model, whose answer becomes a file: for tasks that ask for a function."""

import re
from dataclasses import dataclass
from typing import ClassVar

from proctor.agent import Agent, Assignment, Reach, WorkDone
from proctor.errors import AgentError, UsageError
from proctor.model import Request
from proctor.model_client import ModelClient
from proctor.session import Message, Record

_FENCED = re.compile(r"(?<!`)```[ \t]*(\w*)[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class AnswerAgent(Agent):
    """Calls the model once and writes the code of its answer to a file."""

    file: str = "solution.py"
    """The file, in the folder of the task."""
    entry_point: str = ""
    """The function that is asked for; with it, `prefix` completes an answer that is only its body."""
    prefix: str = ""
    """The start of the file that the prompt shows: imports, helpers and the signature."""

    reach: ClassVar[Reach] = "in_process"
    needs_model: ClassVar[bool] = True

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Call the model, and write the file."""
        if assignment.models is None or not assignment.model:
            raise AgentError("the agent `answer` has no model to call")
        target = (assignment.folder / self.file).resolve()
        if not target.is_relative_to(assignment.folder.resolve()):
            raise UsageError(f"`file` of the agent `answer` leads out of the task's folder: {self.file}")
        request = Request(
            model=assignment.model,
            messages=[{"role": "user", "content": assignment.prompt}],
            parameters={},
            seed=assignment.seed,
        )
        # The prompt is recorded by the runner.
        answer = await ModelClient(assignment.models, record, keep="call").ask(request)
        record(Message(role="assistant", content=answer.text))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(completed(answer.text, self.entry_point, self.prefix), encoding="utf-8")
        return WorkDone(output=answer.text)


def completed(answer: str, entry_point: str, prefix: str) -> str:
    """The program in an answer: the fenced code, or all of it, completed by the code of the prompt."""
    fences = [match[2] for match in _FENCED.finditer(answer)]
    defines = (
        re.compile(rf"^(?:async\s+)?def\s+{re.escape(entry_point)}\b", re.MULTILINE) if entry_point else None
    )
    if defines is None:
        return "\n".join(fences) if fences else answer
    code = next((fence for fence in fences if defines.search(fence)), fences[0] if fences else answer)
    if defines.search(code):
        # Imports and helpers of the prompt, without the function itself.
        definition = defines.search(prefix)
        return f"{prefix[: definition.start()] if definition else ''}{code}"
    body = code if not code.strip() or code.startswith((" ", "\t")) else _indented(code)
    return f"{prefix}{body}"


def _indented(code: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in code.splitlines(keepends=True))
