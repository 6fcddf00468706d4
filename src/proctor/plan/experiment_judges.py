"""Who judges the runs of an experiment as they end: evaluators of the product, by name.

Knows nothing of evaluators themselves, or of how they judge.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.errors import Problem, UsageError
from proctor.plan.rubrics import evaluator_of, is_evaluator
from proctor.plan.source import Source


def judges_of(source: Source, narrator: str) -> tuple[list[dict[str, Any]], list[Problem]]:
    """What runners need to know to ask them, and what is wrong. Without a model they ask the narrator's."""
    found, problems = list[dict[str, Any]](), list[Problem]()
    for number, written in enumerate(source.data.get("evaluators") or ()):
        entry = {"name": written} if isinstance(written, str) else written
        try:
            found.append(_judge(entry, source.data.get("judge_model") or narrator))
        except UsageError as error:
            problem, _, remedy = str(error).partition("\n")
            problems.append(source.problem(("evaluators", number), problem, remedy))
    return found, problems


def judge_models(judges: Sequence[Mapping[str, Any]]) -> list[str]:
    """The models that may be asked. A function asks none."""
    return list(dict.fromkeys(each["judging"]["judge"] for each in judges if ":" not in each["name"]))


def _judge(entry: Mapping[str, Any], judge: str) -> dict[str, Any]:
    if not is_evaluator(entry):
        raise UsageError(
            f"there is no evaluator `{entry['name']}`\n"
            "Name a built-in (Builtin.Helpfulness), a function (module:function) or the file of a definition."
        )
    return evaluator_of(entry, judge)
