"""Ways of judging a session, one a file. See `find`."""

from proctor.evaluators.definition import Flaw, problems_of
from proctor.evaluators.find import (
    NoSuchEvaluator,
    builtin_names,
    definition_files,
    evaluator_of,
    find_evaluator,
    read_definition,
)
from proctor.evaluators.settings import EvaluationSettings

__all__ = [
    "EvaluationSettings",
    "Flaw",
    "NoSuchEvaluator",
    "builtin_names",
    "definition_files",
    "evaluator_of",
    "find_evaluator",
    "problems_of",
    "read_definition",
]
