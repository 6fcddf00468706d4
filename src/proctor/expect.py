r"""Whether an answer is what was expected of it.

    expect:
      contains: [Paris, France]     # all of them, letter for letter
      equals: "42"                  # surrounding blanks aside
      regex: '^\d+ apples'
      json_schema: {type: object, required: [name]}   # also inside a ```json fence

Knows nothing of sessions or plans.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from proctor.item import digest_of
from proctor.score import Score

# An expression that is slow on long texts stays bearable; answers beyond this are no answers.
SEARCHED_CHARACTERS = 200_000


SHOWN_CHARACTERS = 60


FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)


class ExpectationResult(NamedTuple):
    """One expectation, looked at."""

    name: str
    """`contains`, `equals`, `regex` or `json_schema`."""
    holds: bool
    explanation: str
    """Why not, when it does not hold; what was found, when it does."""


def check_answer(expect: Mapping[str, Any], answer: str) -> list[ExpectationResult]:
    """Look at an answer in the light of each expectation, in the order they are written."""
    return [KINDS[name].check(wanted, answer) for name, wanted in expect.items()]


def scores_of(expect: Mapping[str, Any], answer: str) -> list[Score]:
    """The same as judgements to be kept, one for each expectation: 1 when it holds, else 0."""
    return [
        Score(
            evaluator=f"expect.{check.name}",
            value=1.0 if check.holds else 0.0,
            label="pass" if check.holds else "fail",
            explanation=check.explanation,
            evaluator_digest=_digest(check.name, repr(expect[check.name])),
        )
        for check in check_answer(expect, answer)
    ]


@lru_cache(maxsize=1024)
def _digest(name: str, wanted: str) -> str:
    return digest_of([name, wanted])[:16]


def problems_of(expect: Any) -> list[str]:
    """What is wrong with an `expect` map, in words for a plan's author; empty when nothing is."""
    if not isinstance(expect, Mapping) or not expect:
        return [f"`expect` is a map with any of: {', '.join(KINDS)}"]
    problems = []
    for name, wanted in expect.items():
        kind = KINDS.get(name)
        problem = kind.problem(wanted) if kind else f"is no expectation; there is: {', '.join(KINDS)}"
        if problem:
            problems.append(f"`{name}` {problem}")
    return problems


def _contains(wanted: Any, answer: str) -> ExpectationResult:
    texts = [wanted] if isinstance(wanted, str) else wanted
    missing = [text for text in texts if text not in answer]
    if not missing:
        return ExpectationResult("contains", True, "found")
    return ExpectationResult(
        "contains", False, f"answer does not contain {' or '.join(map(_shown, missing))}; {_began(answer)}"
    )


def _equals(wanted: Any, answer: str) -> ExpectationResult:
    if answer.strip() == str(wanted).strip():
        return ExpectationResult("equals", True, "equal")
    return ExpectationResult("equals", False, f"answer is not {_shown(str(wanted))}; {_began(answer)}")


def _regex(wanted: str, answer: str) -> ExpectationResult:
    found = _compiled(wanted).search(answer[:SEARCHED_CHARACTERS])
    if found:
        return ExpectationResult("regex", True, f"found {_shown(found[0])}")
    return ExpectationResult("regex", False, f"answer does not match {_shown(wanted)}; {_began(answer)}")


def _json_schema(wanted: Mapping[str, Any], answer: str) -> ExpectationResult:
    fenced = FENCED.search(answer[:SEARCHED_CHARACTERS])
    try:
        value = json.loads(fenced[1] if fenced else answer)
    except (ValueError, RecursionError):
        return ExpectationResult("json_schema", False, f"answer is no JSON; {_began(answer)}")
    error = _validator(json.dumps(wanted, sort_keys=True))(value)
    return ExpectationResult(
        "json_schema", not error, f"answer does not fit its schema: {error}" if error else "fits"
    )


@lru_cache(maxsize=512)
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


@lru_cache(maxsize=128)
def _validator(schema: str) -> Callable[[Any], str]:
    """A function that says what is wrong with a value; empty when it fits."""
    # Imported here because only plans with a schema need it, and it is slow to load.
    import jsonschema
    import referencing

    kind = jsonschema.validators.validator_for(json.loads(schema), default=jsonschema.Draft202012Validator)
    kind.check_schema(json.loads(schema))
    # A registry of its own: without one, a schema could make us fetch an address.
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


def _contains_problem(wanted: Any) -> str:
    texts = wanted if isinstance(wanted, list) else [wanted]
    fits = texts and all(isinstance(text, str) and text for text in texts)
    return "" if fits else "takes a text or a list of texts"


def _equals_problem(wanted: Any) -> str:
    return "" if isinstance(wanted, str | int | float) else "takes a text"


def _regex_problem(wanted: Any) -> str:
    if not isinstance(wanted, str):
        return "takes a regular expression"
    try:
        _compiled(wanted)
    except re.error as problem:
        return f"is not a valid regular expression: {problem}"
    return ""


def _json_schema_problem(wanted: Any) -> str:
    if not isinstance(wanted, Mapping):
        return "takes a JSON schema, which is a map"
    # Imported here for the same reason as above.
    import jsonschema

    try:
        _validator(json.dumps(wanted, sort_keys=True))
    except jsonschema.exceptions.SchemaError as problem:
        return f"is no JSON schema: {problem.json_path}: {problem.message[:300]}"
    except (ValueError, TypeError, RecursionError) as problem:
        return f"is no JSON schema: {problem}"
    return ""


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…")


def _began(answer: str) -> str:
    return f"it began {_shown(answer.strip())}" if answer.strip() else "it was empty"


class _ExpectationKind(NamedTuple):
    check: Callable[[Any, str], ExpectationResult]
    problem: Callable[[Any], str]
    """What is wrong with what is expected; empty when nothing is."""


KINDS: Mapping[str, _ExpectationKind] = {
    "contains": _ExpectationKind(_contains, _contains_problem),
    "equals": _ExpectationKind(_equals, _equals_problem),
    "regex": _ExpectationKind(_regex, _regex_problem),
    "json_schema": _ExpectationKind(_json_schema, _json_schema_problem),
}
