"""Which tool calls of a session loaded a skill, and what each skill says.

Agents load skills in two ways: by a tool made for it, whose argument names the skill, or by reading the
file the skill is kept in, `…/NAME/SKILL.md`.

Knows nothing of who judges.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proctor.evaluator import Evidence, Trace
from proctor.session import ToolCall

LOADERS = frozenset({"skill", "skills", "loadskill", "useskill", "invokeskill", "activateskill", "readskill"})
"""Names of tools that load a skill, as they are without case, `_` and `-`."""
NAMED_BY = ("skill", "skill_name", "skillName", "name", "command")
_FILE = re.compile(r"([^/\\\s\"']+)[/\\]SKILL\.md\b")


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill that was loaded."""

    name: str
    content: str
    """What it told the agent to do: the result of loading it."""
    offered: str = ""
    """What is known of the skills there were; empty when nothing is."""


def skill_of(evidence: Evidence, trace: Trace, place: int) -> Skill | None:
    """The skill that a call loaded; None for any other call."""
    call = trace.tool_calls[place]
    name = _loaded(call)
    return Skill(name, call.result, _offered(evidence)) if name else None


def _loaded(call: ToolCall) -> str:
    if _bare(call.name) in LOADERS:
        named = [call.args[key] for key in NAMED_BY if isinstance(call.args.get(key), str)]
        return named[0] if named else call.name
    for value in call.args.values():
        found = _FILE.search(value) if isinstance(value, str) else None
        if found:
            return found[1]
    return ""


def _offered(evidence: Evidence) -> str:
    """Skills are listed in the description of the tool that loads them, or in the system prompt."""
    described = [_text(tool) for tool in evidence.tools if _bare(str(tool.get("name", ""))) in LOADERS]
    if described:
        return "\n".join(described)
    return evidence.system_prompt if "skill" in evidence.system_prompt.casefold() else ""


def _text(tool: Mapping[str, Any]) -> str:
    return str(tool.get("description") or "")


def _bare(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).casefold()
