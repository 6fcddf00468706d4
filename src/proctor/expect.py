r"""Check whether an answer is as expected.

expect:
  contains: [Paris, France]     # all of them, case-sensitive
  equals: "42"                  # ignoring surrounding whitespace
  regex: '^\d+ apples'
  json_schema: {type: object, required: [name]}   # also inside a ```json fence
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from proctor.formatting import clipped
from proctor.item import digest_of
from proctor.json_values import JsonMap, as_map
from proctor.score import Score

if TYPE_CHECKING:
    from proctor.assertions import AnswerFacts

ASSERT = "assert"
"""Weighted assertions, which tasks of other formats have; see `proctor.assertions`."""

# Bounds the cost of a slow expression.
SEARCHED_CHARACTERS = 200_000
SHOWN_CHARACTERS = 60
FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)


class ExpectationResult(NamedTuple):
    """The result of one expectation."""

    name: str
    """`contains`, `equals`, `regex` or `json_schema`."""
    holds: bool
    explanation: str
    """Why it does not hold, or what matched."""


def check_answer(expect: JsonMap, answer: str) -> list[ExpectationResult]:
    """Check an answer against each expectation, in their order."""
    return [KINDS[name].check(expected, answer) for name, expected in expect.items()]


def scores_of(expect: JsonMap, answer: str, facts: "AnswerFacts | None" = None) -> list[Score]:
    """The same as scores, one per expectation: 1 when it holds, else 0.

    `assert` has a score for each assertion, and the weighted mean, which decides.
    """
    if ASSERT in expect:
        others = {name: value for name, value in expect.items() if name != ASSERT}
        return [*scores_of(others, answer), *_assertion_scores(as_map(expect, ASSERT), answer, facts)]
    return [_score(check, repr(expect[check.name])) for check in check_answer(expect, answer)]


@lru_cache(maxsize=1024)
def _score(check: ExpectationResult, expected: str) -> Score:
    """The score of a check. Most of a run are the same: one object for all of them."""
    return Score(
        evaluator=f"expect.{check.name}",
        value=1.0 if check.holds else 0.0,
        label="pass" if check.holds else "fail",
        explanation=check.explanation,
        evaluator_digest=_digest(check.name, expected),
    )


def unmet_expectations(
    expect: JsonMap, answer: str, record: Callable[[Score], None], facts: "AnswerFacts | None" = None
) -> list[str]:
    """Check an answer, record a score per expectation, and return why those that do not hold do not.

    `facts` are for assertions about time, cost and judged rubrics.
    """
    unmet = list[str]()
    for score in scores_of(expect, answer, facts):
        record(score)
        # Of assertions, only their weighted mean decides.
        if score.label == "fail" and not score.evaluator.startswith(f"{ASSERT}: "):
            unmet.append(score.explanation)
    return unmet


def _assertion_scores(group: JsonMap, answer: str, facts: "AnswerFacts | None") -> list[Score]:
    # Loaded here: only tasks of other formats have assertions.
    from proctor.assertions import AnswerFacts, check_group

    whole, results = check_group(group, answer, facts or AnswerFacts())
    named = [(f"{ASSERT}: {one.reason}", one) for one in results]
    return [
        Score(
            evaluator=clipped(name, 200),
            value=one.score,
            label="pass" if one.passed else "fail",
            explanation=one.reason,
            evaluator_digest=_digest(name, ""),
        )
        for name, one in [*named, (f"expect.{ASSERT}", whole)]
    ]


@lru_cache(maxsize=1024)
def _digest(name: str, expected: str) -> str:
    return digest_of([name, expected])[:16]


def problems_of(expect: object) -> list[str]:
    """Problems of an `expect` map, for the author of a plan; empty when it is valid."""
    if not isinstance(expect, Mapping) or not expect:
        return [f"`expect` is a map with any of: {', '.join(KINDS)}"]
    problems = []
    for name, expected in expect.items():
        kind = KINDS.get(name)
        problem = (
            kind.problem(expected) if kind else f"is not a valid expectation. Use one of: {', '.join(KINDS)}"
        )
        if problem:
            problems.append(f"`{name}` {problem}")
    return problems


_CONTAINED = ExpectationResult("contains", True, "found")


def _contains(expected: str | Sequence[str], answer: str) -> ExpectationResult:
    if isinstance(expected, str):
        missing = [] if expected in answer else [expected]
    else:
        missing = [text for text in expected if text not in answer]
    if not missing:
        return _CONTAINED
    return ExpectationResult(
        "contains",
        False,
        f"answer does not contain {' or '.join(map(_quoted, missing))}; {_beginning(answer)}",
    )


def _equals(expected: object, answer: str) -> ExpectationResult:
    if answer.strip() == str(expected).strip():
        return ExpectationResult("equals", True, "equal")
    return ExpectationResult("equals", False, f"answer is not {_quoted(str(expected))}; {_beginning(answer)}")


def _regex(expression: str, answer: str) -> ExpectationResult:
    match = _compiled(expression).search(answer[:SEARCHED_CHARACTERS])
    if match:
        return ExpectationResult("regex", True, f"found {_quoted(match[0])}")
    return ExpectationResult(
        "regex", False, f"answer does not match {_quoted(expression)}; {_beginning(answer)}"
    )


def _json_schema(expected: JsonMap, answer: str) -> ExpectationResult:
    fenced = FENCED.search(answer[:SEARCHED_CHARACTERS])
    try:
        value = json.loads(fenced[1] if fenced else answer)
    except (ValueError, RecursionError):
        return ExpectationResult("json_schema", False, f"answer is not JSON; {_beginning(answer)}")
    error = _validator(json.dumps(expected, sort_keys=True))(value)
    return ExpectationResult(
        "json_schema", not error, f"answer does not fit its schema: {error}" if error else "fits"
    )


@lru_cache(maxsize=512)
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


@lru_cache(maxsize=128)
def _validator(schema: str) -> Callable[[Any], str]:
    """A function that returns the problem of a value; empty when it is valid."""
    # Imported here: only plans with a schema need it, and it is slow to load.
    import jsonschema
    import referencing

    kind = jsonschema.validators.validator_for(json.loads(schema), default=jsonschema.Draft202012Validator)
    kind.check_schema(json.loads(schema))
    # An own registry: with the default one, a schema could make us fetch a URL.
    registry: Any = referencing.Registry()
    validator = kind(json.loads(schema), registry=registry)

    def complaint(value: Any) -> str:
        try:
            error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        except referencing.exceptions.Unresolvable as problem:
            return f"the schema refers to what is not in it: {problem}"
        except RecursionError:
            return "it is nested too deeply"
        return "" if error is None else f"{error.json_path}: {error.message[:300]}"

    return complaint


def _contains_problem(expected: object) -> str:
    texts = expected if isinstance(expected, list) else [expected]
    fits = texts and all(isinstance(text, str) and text for text in texts)
    return "" if fits else "takes a text or a list of texts"


def _equals_problem(expected: object) -> str:
    return "" if isinstance(expected, str | int | float) else "takes a text"


def _regex_problem(expected: object) -> str:
    if not isinstance(expected, str):
        return "takes a regular expression"
    try:
        _compiled(expected)
    except re.error as problem:
        return f"is not a valid regular expression: {problem}"
    return ""


def _json_schema_problem(expected: object) -> str:
    if not isinstance(expected, Mapping):
        return "takes a JSON schema, which is a map"
    # Imported here for the same reason as above.
    import jsonschema

    try:
        _validator(json.dumps(expected, sort_keys=True))
    except jsonschema.exceptions.SchemaError as problem:
        return f"is not a valid JSON schema: {problem.json_path}: {problem.message[:300]}"
    except (ValueError, TypeError, RecursionError) as problem:
        return f"is not a valid JSON schema: {problem}"
    return ""


def _quoted(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…")


def _beginning(answer: str) -> str:
    return f"it began {_quoted(answer.strip())}" if answer.strip() else "it was empty"


class _ExpectationKind(NamedTuple):
    check: Callable[[Any, str], ExpectationResult]
    problem: Callable[[object], str]
    """Problem of the expected value; empty when it is valid."""


KINDS: Mapping[str, _ExpectationKind] = {
    "contains": _ExpectationKind(_contains, _contains_problem),
    "equals": _ExpectationKind(_equals, _equals_problem),
    "regex": _ExpectationKind(_regex, _regex_problem),
    "json_schema": _ExpectationKind(_json_schema, _json_schema_problem),
}
