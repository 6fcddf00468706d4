r"""Check whether an answer is as expected.

expect:
  contains: [Paris, France]     # all of them, case-sensitive
  equals: "42"                  # ignoring surrounding whitespace
  regex: '^\d+ apples'
  json_schema: {type: object, required: [name]}   # also inside a ```json fence
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from proctor.formatting import clipped
from proctor.item import UNCHECKED, digest_of
from proctor.json_values import JsonMap, as_map, as_number, as_sequence, as_text, maps_in, parse_json
from proctor.patterns import PatternTimeout, bounded_call, compile_pattern, may_take_long
from proctor.score import EXPECT, Score

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

ASSERT = "assert"
"""Weighted assertions, which tasks of other formats have."""

# Bounds the cost of a slow expression.
SEARCHED_CHARACTERS = 200_000
QUICKLY_TRIED_STARTS = 200
"""Brackets where JSON may begin. Each takes up to 0.2 ms: nesting is read until it is too deep."""
SHOWN_CHARACTERS = 60
FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)


class CheckResult(NamedTuple):
    """The result of one expectation or assertion."""

    name: str
    """`contains`, `equals`, `regex` or `json_schema`; or an assertion as it is written."""
    passed: bool | None
    """None: it could not be checked."""
    score: float
    explanation: str
    """Why it does not hold, or what matched."""


def check_answer(expect: JsonMap, answer: str) -> list[CheckResult]:
    """Check an answer against each expectation, in their order."""
    results = ((name, *KINDS[name].check(expected, answer)) for name, expected in expect.items())
    return [CheckResult(name, holds, float(holds), why) for name, holds, why in results]


def scores_of(expect: JsonMap, answer: str, facts: "AnswerFacts | None" = None) -> list[Score]:
    """The same as scores, one per expectation: 1 when it holds, else 0.

    `assert` has a score for each assertion, and the weighted mean, which decides.
    """
    if ASSERT not in expect:
        return [
            _expectation_score(name, repr(expected), *KINDS[name].check(expected, answer))
            for name, expected in expect.items()
        ]
    group = as_map(expect, ASSERT)
    whole, results = check_group(group, answer, facts or AnswerFacts())
    scores = scores_of({name: value for name, value in expect.items() if name != ASSERT}, answer)
    for result, assertion in zip(results, maps_in(group, "assertions"), strict=True):
        name = f"{ASSERT}: {result.name}"
        # A score of a rubric depends on its judge, too.
        rubric = key_of(assertion) if base_type(assertion) == RUBRIC else ""
        scores.append(_score(name, result, name, rubric))
    return [*scores, _score(EXPECT + ASSERT, whole, EXPECT + ASSERT, "")]


@lru_cache(maxsize=1024)
def _expectation_score(name: str, expected: str, holds: bool, why: str) -> Score:
    """The score of an expectation. Most of a run are the same: one object for all of them."""
    return _score(EXPECT + name, CheckResult(name, holds, float(holds), why), name, expected)


def _score(name: str, check: CheckResult, *version: str) -> Score:
    return Score(
        evaluator=clipped(name, 200),
        value=None if check.passed is None else check.score,
        label=UNCHECKED if check.passed is None else "pass" if check.passed else "fail",
        explanation=check.explanation,
        evaluator_digest=_digest(*version),
    )


@lru_cache(maxsize=1024)
def _digest(*version: str) -> str:
    return digest_of(list(version))[:16]


class CheckedAnswer(NamedTuple):
    """An answer compared with what is expected of it."""

    unmet: list[str]
    """Why expectations do not hold."""
    unchecked: list[str]
    """What could not be checked and may decide."""


def check_expectations(
    expect: JsonMap, answer: str, record: Callable[[Score], None], facts: "AnswerFacts | None" = None
) -> CheckedAnswer:
    """Check an answer and record a score per expectation.

    `facts` are for assertions about time, cost, scripts and judged rubrics.
    """
    checked = CheckedAnswer([], [])
    for score in scores_of(expect, answer, facts):
        record(score)
        # Of assertions, only their weighted mean decides.
        if not score.evaluator.startswith(f"{ASSERT}: "):
            if score.label == "fail":
                checked.unmet.append(score.explanation)
            elif score.label == UNCHECKED:
                checked.unchecked.append(score.explanation)
    return checked


def unchecked_score(checked: CheckedAnswer) -> Score:
    """The score that marks an item whose success is not known."""
    return Score(evaluator=UNCHECKED, label=UNCHECKED, explanation="; ".join(checked.unchecked))


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


def _contains(expected: str | Sequence[str], answer: str) -> tuple[bool, str]:
    texts = [expected] if isinstance(expected, str) else expected
    missing = [text for text in texts if text not in answer]
    if not missing:
        return True, "found"
    return False, f"answer does not contain {' or '.join(map(_quoted, missing))}; {_beginning(answer)}"


def _equals(expected: object, answer: str) -> tuple[bool, str]:
    if answer.strip() == str(expected).strip():
        return True, "equal"
    return False, f"answer is not {_quoted(str(expected))}; {_beginning(answer)}"


def _regex(expression: str, answer: str) -> tuple[bool, str]:
    try:
        match = compile_pattern(expression).search(answer[:SEARCHED_CHARACTERS])
    except PatternTimeout as timeout:
        return False, timeout.problem
    if match:
        return True, f"found {_quoted(match[0])}"
    return False, f"answer does not match {_quoted(expression)}; {_beginning(answer)}"


def _json_schema(expected: JsonMap, answer: str) -> tuple[bool, str]:
    fenced = FENCED.search(answer[:SEARCHED_CHARACTERS])
    try:
        value = json.loads(fenced[1] if fenced else answer)
    except (ValueError, RecursionError):
        return False, f"answer is not JSON; {_beginning(answer)}"
    error = _schema_complaint(expected, value)
    return not error, f"answer does not fit its schema: {error}" if error else "fits"


def _schema_complaint(expected: JsonMap, value: Any) -> str:
    """The problem of a value; one that may take long is checked in a process with a limit of time."""
    schema = json.dumps(expected, sort_keys=True)
    if not may_take_long(expected):
        return schema_problem(schema, value)
    try:
        return str(bounded_call(f"{__name__}:schema_problem", schema, value, about="in the JSON schema"))
    except PatternTimeout as timeout:
        return timeout.problem


def schema_problem(schema: str, value: Any) -> str:
    """The problem of a value, without a limit of time; empty when it is valid."""
    return _validator(schema)(value)


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
        compile_pattern(expected)
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
    check: Callable[[Any, str], tuple[bool, str]]
    """Whether an answer is as expected, and why."""
    problem: Callable[[object], str]
    """Problem of the expected value; empty when it is valid."""


KINDS: Mapping[str, _ExpectationKind] = {
    "contains": _ExpectationKind(_contains, _contains_problem),
    "equals": _ExpectationKind(_equals, _equals_problem),
    "regex": _ExpectationKind(_regex, _regex_problem),
    "json_schema": _ExpectationKind(_json_schema, _json_schema_problem),
}


# Weighted assertions, with the meanings that promptfoo gives them:
# `expect: {assert: {assertions: [{type: contains, value: Paris, weight: 2}], threshold: 0.5}}`. The score is
# the weighted mean; without a threshold every assertion must pass, with one the score must reach it.
RUBRIC = "llm-rubric"
JAVASCRIPT = "javascript"
SET = "assert-set"
NOT_SUPPORTED = "not-supported"
"""Type of an assertion that has no equivalent here; its value says why."""
GRADED = (RUBRIC, JAVASCRIPT)
"""Types whose results come from a model or a program."""
_REFUSALS = re.compile(
    r"\b(i (cannot|can't|can not|am unable to|'m unable to|am not able to|won't)|i'm sorry|i am sorry|"
    r"as an ai|i apologi[sz]e)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFacts:
    """What is known of an answer besides its text; None: not known."""

    latency_ms: float | None = None
    cost_usd: float | None = None
    finish_reason: str = ""
    graded: Mapping[str, CheckResult] = field(default_factory=dict)
    """Results of assertions that a model has judged or a script has checked, by `key_of`."""


def key_of(assertion: JsonMap) -> str:
    """Identifies an assertion by its contents."""
    return json.dumps(assertion, sort_keys=True, default=str)


def base_type(assertion: JsonMap) -> str:
    """The type without `not-`."""
    return as_text(assertion, "type").removeprefix("not-")


def is_supported(name: str) -> bool:
    """Whether assertions of a type can be checked here."""
    return name == SET or name.removeprefix("not-") in (*_CHECKS, *_CHECKS_OF_FACTS, *GRADED)


def graded_in(group: JsonMap) -> list[JsonMap]:
    """The assertions of a group, and of its sets, that a model judges or a script checks."""
    graded = list[JsonMap]()
    for assertion in maps_in(group, "assertions"):
        if as_text(assertion, "type") == SET:
            graded += graded_in(assertion)
        elif base_type(assertion) in GRADED:
            graded.append(assertion)
    return graded


def check_group(group: JsonMap, answer: str, facts: AnswerFacts) -> tuple[CheckResult, list[CheckResult]]:
    """The result of a group of assertions, and of each."""
    assertions = maps_in(group, "assertions")
    results = [check_assertion(assertion, answer, facts) for assertion in assertions]
    weights = [_weight(assertion) for assertion in assertions]
    weighted, total = list(zip(results, weights, strict=True)), sum(weights)
    failed = [result.explanation for result, weight in weighted if result.passed is False and weight]
    unchecked = [result.explanation for result, weight in weighted if result.passed is None and weight]
    missing = sum(weight for result, weight in weighted if result.passed is None)
    points = sum(result.score * weight for result, weight in weighted if result.passed is not None)
    score = points / (total - missing) if total > missing else float(not unchecked)
    threshold = as_number(group, "threshold")
    passed = False if failed else None if unchecked else True
    if threshold is not None:
        # Whatever those that could not be checked would give.
        least, most = (points / total, (points + missing) / total) if total else (1.0, 1.0)
        passed = True if least >= threshold else False if most < threshold else None
    explanation = "; ".join(unchecked if passed is None else failed) or "all hold"
    return CheckResult(ASSERT, passed, score, explanation), results


def _weight(assertion: JsonMap) -> float:
    weight = as_number(assertion, "weight")
    return 1.0 if weight is None else weight


def check_assertion(assertion: JsonMap, answer: str, facts: AnswerFacts) -> CheckResult:
    """Check one assertion. An unknown type fails."""
    name, kind = _described(assertion), base_type(assertion)
    if kind == SET:
        return check_group(assertion, answer, facts)[0]._replace(name=name)
    if as_text(assertion, "type") == NOT_SUPPORTED:
        return CheckResult(name, None, 0.0, as_text(assertion, "value"))
    if kind in GRADED:
        result = facts.graded.get(key_of(assertion)) or CheckResult(name, None, 0.0, f"{kind}: not checked")
        result = result._replace(name=name)
    elif kind in _CHECKS or kind in _CHECKS_OF_FACTS:
        try:
            of_facts = _CHECKS_OF_FACTS.get(kind)
            outcome = of_facts(assertion, facts) if of_facts else _CHECKS[kind](assertion, answer)
        except (ValueError, re.error) as error:
            # Wrong in itself: `not-` does not make it hold.
            return CheckResult(name, False, 0.0, f"{as_text(assertion, 'type')}: {error}")
        score = float(outcome)
        passed = outcome if isinstance(outcome, bool) else score >= _threshold(assertion, _GRADED[kind])
        result = CheckResult(name, passed, score, name)
    else:
        return CheckResult(name, False, 0.0, f"there is no assertion `{kind}`")
    if as_text(assertion, "type") == kind or result.passed is None:
        return result
    return result._replace(passed=not result.passed, score=1 - result.score)


def _described(assertion: JsonMap) -> str:
    """An assertion as it is written; a set by its members."""
    value = assertion.get("value")
    if base_type(assertion) == SET:
        value = "; ".join(map(_described, maps_in(assertion, "assertions")))
    text = "" if value is None else f" {value if isinstance(value, str) else json.dumps(value, default=str)}"
    excerpt = text if len(text) <= 80 else f"{text[:79]}…"
    return f"{as_text(assertion, 'type')}{excerpt}"


def _threshold(assertion: JsonMap, default: float | None) -> float:
    threshold = as_number(assertion, "threshold")
    if threshold is None and default is None:
        raise ValueError("it needs a threshold")
    return threshold if threshold is not None else default or 0.0


def _value(assertion: JsonMap) -> str:
    value = assertion.get("value")
    if value is None or value == "":
        raise ValueError("it needs a value")
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, bool) else str(value)


def split_list(text: str) -> list[str]:
    """Split at commas; quoted parts may contain them. Raises `ValueError` for a quote without an end."""
    parts, rest = list[str](), text.strip()
    while rest:
        if rest.startswith('"'):
            match = re.match(r'"((?:[^"\\]|\\.|"")*)"\s*(?:,|$)\s*', rest)
            if match is None:
                raise ValueError("a quote has no end")
            parts.append(match[1].replace('\\"', '"').replace('""', '"'))
            rest = rest[match.end() :]
        else:
            part, _, rest = rest.partition(",")
            parts.append(part.strip())
            rest = rest.strip()
    return [part for part in parts if part]


def _values(assertion: JsonMap) -> list[str]:
    value = assertion.get("value")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [str(part) for part in value]
    return split_list(_value(assertion))


Check = Callable[[JsonMap, str], bool | float]


def _equals_value(assertion: JsonMap, answer: str) -> bool:
    value = assertion.get("value")
    if isinstance(value, Mapping | list):
        try:
            return parse_json(answer) == value
        except ValueError:
            return False
    return answer == _value(assertion)


def _matches_regex(assertion: JsonMap, answer: str) -> bool:
    expression = compile_pattern(_python_regex(_value(assertion)))
    try:
        return expression.search(answer[:SEARCHED_CHARACTERS]) is not None
    except PatternTimeout:
        return False


def _python_regex(expression: str) -> str:
    """A JavaScript expression as Python writes it."""
    named = re.sub(r"\(\?<(?![=!])", "(?P<", expression)
    return re.sub(r"(?<!\\)\$(?=\)|\||$)", r"\\Z", named)


def _is_json(assertion: JsonMap, answer: str) -> bool:
    try:
        value = parse_json(answer)
    except ValueError:
        return False
    return _fits(assertion, value)


def _contains_json(assertion: JsonMap, answer: str) -> bool:
    schema, text = _schema_of(assertion), answer[:SEARCHED_CHARACTERS]
    arguments = json.dumps(schema, sort_keys=True) if schema else "", text
    if text.count("[") + text.count("{") <= QUICKLY_TRIED_STARTS and not may_take_long(schema):
        return contains_json(*arguments)
    try:
        return bool(bounded_call(f"{__name__}:contains_json", *arguments, about="in the JSON schema"))
    except PatternTimeout:
        return False


def contains_json(schema: str, text: str) -> bool:
    """Whether a text contains JSON that fits a schema, or any if it is empty; without a limit of time."""
    decoder, position = json.JSONDecoder(), 0
    while match := re.compile(r"[\[{]").search(text, position):
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            position = match.start() + 1
            continue
        if not schema or not schema_problem(schema, value):
            return True
        position = end
    return False


def _fits(assertion: JsonMap, value: object) -> bool:
    schema = _schema_of(assertion)
    # An own check of the schema: it reports what is wrong, and fetches nothing.
    return not schema or not _schema_complaint(schema, value)


def _schema_of(assertion: JsonMap) -> JsonMap:
    """The schema of an assertion; empty: it has none."""
    schema = assertion.get("value")
    if isinstance(schema, str):
        schema = parse_json(schema)
    return as_map(schema) if schema else {}


def _is_xml(assertion: JsonMap, answer: str) -> bool:
    # Loaded late: every prompt item loads this module.
    from xml.etree import ElementTree

    if "<!DOCTYPE" in answer or "<!ENTITY" in answer:
        return False
    try:
        root = ElementTree.fromstring(answer.strip())
    except ElementTree.ParseError:
        return False
    value = assertion.get("value")
    names = value.get("requiredElements") if isinstance(value, Mapping) else value
    paths = split_list(names) if isinstance(names, str) else [str(name) for name in as_sequence(names)]
    return all(_has_element(root, path.split(".")) for path in paths)


def _has_element(root: "Element", path: Sequence[str]) -> bool:
    return root.tag == path[0] and (len(path) == 1 or root.find("/".join(path[1:])) is not None)


def _word_count(assertion: JsonMap, answer: str) -> bool:
    count, value = len(answer.split()), assertion.get("value")
    if isinstance(value, Mapping):
        low, high = as_number(value, "min"), as_number(value, "max")
        return (low is None or count >= low) and (high is None or count <= high)
    return count == float(_value(assertion))


def _levenshtein(assertion: JsonMap, answer: str) -> bool:
    limit = _threshold(assertion, 5.0)
    return edit_distance(answer, _value(assertion), int(limit)) <= limit


def edit_distance(first: str, second: str, limit: int) -> int:
    """Number of edits between two texts; `limit` + 1 when there are more."""
    if abs(len(first) - len(second)) > limit:
        return limit + 1
    row = list(range(len(second) + 1))
    for number, letter in enumerate(first, 1):
        previous, row[0] = row[0], number
        for column, other in enumerate(second, 1):
            previous, row[column] = (
                row[column],
                min(row[column] + 1, row[column - 1] + 1, previous + (letter != other)),
            )
        if min(row) > limit:
            return limit + 1
    return row[-1]


def _rouge(assertion: JsonMap, answer: str) -> float:
    tokens, reference = (Counter(text.lower().split()) for text in (answer, _value(assertion)))
    common = (tokens & reference).total()
    return 2 * common / (tokens.total() + reference.total()) if common else 0.0


def _at_most(figure: float | None, assertion: JsonMap) -> bool:
    limit = _threshold(assertion, None)
    if figure is None:
        raise ValueError("the figure is not known")
    return figure <= limit


def _is_refusal(answer: str) -> bool:
    return not answer.strip() or _REFUSALS.search(answer[:SEARCHED_CHARACTERS].replace("’", "'")) is not None


_CHECKS: Mapping[str, Check] = {
    "equals": _equals_value,
    "contains": lambda one, answer: _value(one) in answer,
    "icontains": lambda one, answer: _value(one).lower() in answer.lower(),
    "contains-any": lambda one, answer: any(part in answer for part in _values(one)),
    "contains-all": lambda one, answer: all(part in answer for part in _values(one)),
    "icontains-any": lambda one, answer: any(part.lower() in answer.lower() for part in _values(one)),
    "icontains-all": lambda one, answer: all(part.lower() in answer.lower() for part in _values(one)),
    "starts-with": lambda one, answer: answer.startswith(_value(one)),
    "regex": _matches_regex,
    "is-json": _is_json,
    "contains-json": _contains_json,
    "is-xml": _is_xml,
    "word-count": _word_count,
    "levenshtein": _levenshtein,
    "rouge-n": _rouge,
    "is-refusal": lambda _, answer: _is_refusal(answer),
}
_CHECKS_OF_FACTS: Mapping[str, Callable[[JsonMap, AnswerFacts], bool]] = {
    "latency": lambda one, facts: _at_most(facts.latency_ms, one),
    "cost": lambda one, facts: _at_most(facts.cost_usd, one),
    "finish-reason": lambda one, facts: facts.finish_reason.lower() == _value(one).lower(),
}
_GRADED: Mapping[str, float] = {"rouge-n": 0.75}
"""Default thresholds of types that have a score between 0 and 1."""
