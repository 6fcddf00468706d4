"""Evaluators: built-in, defined by users, and functions or programs."""

from proctor.evaluators.definition import DefinitionProblem, problems_of
from proctor.evaluators.registry import (
    EvaluationSettings,
    EvaluatorNotFound,
    builtin_names,
    definition_files,
    evaluator_of,
    find_evaluator,
    read_definition,
)

__all__ = [
    "DefinitionProblem",
    "EvaluationSettings",
    "EvaluatorNotFound",
    "builtin_names",
    "definition_files",
    "evaluator_of",
    "find_evaluator",
    "problems_of",
    "read_definition",
]
