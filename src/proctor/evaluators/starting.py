"""The files of a new evaluator: one of everything, ready to be tried and changed.

Knows nothing of what it is to judge.
"""

import re
from pathlib import Path

from proctor.errors import UsageError
from proctor.evaluators.definition import LEVELS, NAME
from proctor.evaluators.question import PLACEHOLDERS

KINDS = ("judge", "function", "command")

_JUDGE = """# Try it:  proctor evaluators test {name} --session SESSION --judge provider/model
evaluatorName: {name}
level: {level}
description: Whether the agent was polite.
evaluatorConfig:
  llmAsAJudge:
    # There are, at this level: {places}
    instructions: |
      Was the agent polite here?

      What happened:
      {{context}}
{more}
      Judge the tone alone, not whether the agent was right.
    ratingScale:
      numerical:
        - {{label: Polite, value: 1, definition: friendly and respectful throughout}}
        - {{label: Neutral, value: 0.5, definition: neither friendly nor rude}}
        - {{label: Rude, value: 0, definition: dismissive or disrespectful somewhere}}
    # Who judges, instead of --judge:
    # modelConfig:
    #   bedrockEvaluatorModelConfig: {{modelId: anthropic/claude-sonnet-4-5}}
"""
_SHOWN = {
    "SESSION": "",
    "TRACE": "\n      The answer to judge:\n      {assistant_turn}\n",
    "TOOL_CALL": "\n      The tool call to judge:\n      {tool_turn}\n",
}
_CODE = """# Try it:  proctor evaluators test {name} --session SESSION
evaluatorName: {name}
level: {level}
description: How many words the agent's answers have.
evaluatorConfig:
  codeBased:
    {run}
    timeoutSeconds: 60
"""
_FUNCTION = '''"""Counts the words of the agent's answers."""


def judge(event):
    """Return {{label, value, explanation}}, or a number, a truth value or a text.

    event["session"] holds the turns; event["evaluationTarget"] says which trace or tool call is meant.
    To say that something cannot be judged, return {{errorCode, errorMessage}}, or raise.
    """
    turns = event["session"]["turns"]
    wanted = (event["evaluationTarget"] or {{}}).get("traceIds")
    answers = [turn["answer"] for turn in turns if wanted is None or turn["traceId"] in wanted]
    words = sum(len(answer.split()) for answer in answers)
    return {{"label": "short" if words < 100 else "long", "value": words, "explanation": f"{{words}} words"}}
'''
_COMMAND = '''"""Counts the words of the agent's answers: an event on standard input, a score on output."""

import json
import sys

event = json.load(sys.stdin)
wanted = (event["evaluationTarget"] or {{}}).get("traceIds")
turns = [turn for turn in event["session"]["turns"] if wanted is None or turn["traceId"] in wanted]
words = sum(len(turn["answer"].split()) for turn in turns)
print(json.dumps({{"label": "short" if words < 100 else "long", "value": words}}))
'''


def new_evaluator(name: str, folder: Path, *, level: str, kind: str) -> list[Path]:
    """Write the files of a new evaluator into a folder of them; the paths. Replaces nothing."""
    if not NAME.fullmatch(name):
        raise UsageError(f"`{name}` is no name for an evaluator\nUse letters, digits and underscores.")
    if level not in LEVELS:
        raise UsageError(f"there is no level `{level}`\nThere are: {', '.join(LEVELS)}.")
    if kind not in KINDS:
        raise UsageError(f"there is no kind `{kind}`\nThere are: {', '.join(KINDS)}.")
    files = {folder / f"{name}.yaml": _definition(name, folder, level, kind)}
    if kind != "judge":
        files[folder / f"{name}.py"] = (_FUNCTION if kind == "function" else _COMMAND).format()
    for path in files:
        if path.exists():
            raise UsageError(f"{path} is there already\nChoose another name, or move it away.")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)


def _definition(name: str, folder: Path, level: str, kind: str) -> str:
    if kind == "judge":
        places = ", ".join(f"{{{place}}}" for place in PLACEHOLDERS[LEVELS[level]])
        return _JUDGE.format(name=name, level=level, places=places, more=_SHOWN[level])
    if kind == "command":
        return _CODE.format(name=name, level=level, run=f'command: [python3, "{folder / name}.py"]')
    module = ".".join(part for part in (*folder.parts, name) if re.fullmatch(r"\w+", part))
    return _CODE.format(name=name, level=level, run=f'function: "{module}:judge"')
