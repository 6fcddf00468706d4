"""Regular expressions and schemas of others mean what they mean to `re`, and are given up in time."""

import json
import os
import re
import time

import pytest

from proctor import patterns
from proctor.agents.answer import completed
from proctor.evaluators.expect import AnswerFacts, check_answer, check_group, problems_of
from proctor.formatting import count_words
from proctor.models.gateway.call import redacted_error
from proctor.models.recording import canonical_request
from proctor.patterns import (
    MOST_STEPS,
    TIME_LIMIT_SECONDS,
    PatternTimeout,
    bounded_call,
    compile_pattern,
    find,
    steps,
)
from proctor.telemetry.log_query import MalformedQuery, safe_regex, search_in

EXPLODING = r"(a+)+$"
DOUBLING: dict[str, object] = {
    str(level): {"allOf": [{"$ref": f"#/$defs/{level + 1}"}] * 2} for level in range(40)
}
DOUBLING["40"] = {}
"""A schema whose references double at each level."""
UNEVALUATED: dict[str, object] = {"type": "object"}
for _ in range(40):
    UNEVALUATED = {"anyOf": [UNEVALUATED], "unevaluatedProperties": False}
HOSTILE = "a" * 40 + "!"


@pytest.fixture
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of the time, set inside: no option sets it, and each case would take a second."""
    monkeypatch.setattr(patterns, "TIME_LIMIT_SECONDS", 0.1)
    monkeypatch.setattr(patterns, "_process", patterns._BoundedProcess())


TEXTS = ["12 apples", "", "héllo wörld", 'say "hi"', "aaa", "x\ny", "foo{e} [:alpha:]", "नमस्ते \x1c", "\udc80"]
PATTERNS = [
    r"\d+ apples",
    r"(\w+)\s(\w+)?",
    r'(["\'])(.*?)\1',
    r"(?P<first>a)(?P<second>b)?",
    r"^x$",
    r"(a+)+",
    r"o{e}",
    r"[[:alpha:]]+",
    r"\b\w+\b",
    r"(?=.)(?!z).",
    r"(?:a|aa)+b?",
    r"\s",
    "\udc80",
]


@pytest.mark.filterwarnings("ignore:Possible nested set")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_an_expression_means_the_same_here_and_in_the_other_process(pattern: str) -> None:
    for text in TEXTS:
        expected = [[match[0], *match.groups()] for match in re.finditer(pattern, text, re.MULTILINE)]
        compiled = compile_pattern(pattern, re.MULTILINE)
        assert [list(match.texts) for match in compiled.findall(text)] == expected
        elsewhere = bounded_call("proctor.patterns:find", pattern, re.MULTILINE, text, False, about=pattern)
        assert elsewhere == expected == find(pattern, re.MULTILINE, text, False)
        first = compiled.search(text)
        assert (first and list(first.texts)) == (expected[0] if expected else None)


@pytest.mark.parametrize(
    ("pattern", "length", "bound"),
    [
        ("abc", 100, 300),
        ("ab|bc|cd", 100, 600),
        (r"\d+", 100, 100 * 100),
        (r"\d+x.*", 100, 100 * 100 * 101),
        (r"(ab){2,4}", 100, 100 * 4 * 2),
        (r"(ab|bc){2}", 10, 10 * 2 * 4 * 4),
        (r"(a+)+", 100, float("inf")),
        (r"(a|aa)*", 100, float("inf")),
        (r"(a)\1", 100, 100 * 100),
        (r"(?=a*)b", 10, 10 * 11),
        (r"(a)?(?(1)b|c)", 10, 10 * (1 + 2 * 2)),
        (r"(?:(?:\b){30}){30}", 1, 30 * 30),
        (r"(?:(?!b{5}c)b)*", 10, 10 * 10 * 7),
        (r"(", 10, float("inf")),
    ],
)
def test_the_steps_of_an_expression_have_a_bound(pattern: str, length: int, bound: float) -> None:
    assert steps(pattern, 0, length) == pytest.approx(bound, rel=0.02)


def test_an_expression_that_takes_too_long_is_given_up_and_the_next_one_is_matched() -> None:
    started = time.monotonic()
    with pytest.raises(
        PatternTimeout, match=re.escape("the pattern '(a+)+$' takes longer than 1 s")
    ) as raised:
        compile_pattern(EXPLODING).search(HOSTILE)
    assert time.monotonic() - started < TIME_LIMIT_SECONDS + 5
    assert (raised.value.status, raised.value.reason) == ("error", "pattern_timeout")
    assert "Do not repeat a repetition" in raised.value.remedy
    found = compile_pattern(EXPLODING).search("b" + "a" * 40)
    assert found is not None and found[0] == "a" * 40 and steps(EXPLODING, 0, 41) > MOST_STEPS


def test_a_fork_has_a_process_of_its_own_and_a_killed_one_is_replaced() -> None:
    def found() -> object:
        return bounded_call("proctor.patterns:find", "a+", 0, "baa", True, about="a+")

    assert found() == [["aa"]]
    child = os.fork()
    if child == 0:
        os._exit(0 if found() == [["aa"]] else 1)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(RuntimeError, match="TypeError"):
        bounded_call("os:kill", about="wrong arguments")
    with pytest.raises(PatternTimeout):
        bounded_call("os:abort", about="ends the process twice")
    assert found() == [["aa"]]


@pytest.mark.usefixtures("short_limit")
@pytest.mark.parametrize(
    ("expect", "answer"),
    [
        ({"regex": EXPLODING}, HOSTILE),
        ({"json_schema": {"properties": {"a": {"pattern": EXPLODING}}}}, f'{{"a": "{HOSTILE}"}}'),
        ({"json_schema": {"patternProperties": {EXPLODING: {"type": "string"}}}}, f'{{"{HOSTILE}": 1}}'),
        ({"json_schema": {"$ref": "#/$defs/0", "$defs": DOUBLING}}, "1"),
        ({"regex": r"(?:(?:(?:\b){999}){999}){999}"}, "a"),
        ({"regex": "(?:(?!(?:(?!b{300}c)b){300}c)b){300}d"}, "b" * 1023),
        ({"json_schema": UNEVALUATED}, '{"a": 1}'),
        ({"json_schema": {"uniqueItems": True}}, json.dumps([{"a": number} for number in range(20_000)])),
    ],
)
def test_an_answer_that_takes_too_long_to_check_does_not_pass(expect: dict[str, object], answer: str) -> None:
    [result] = check_answer(expect, answer)
    assert not result.passed and "takes longer than 1 s on this text" in result.explanation


@pytest.mark.usefixtures("short_limit")
@pytest.mark.parametrize(
    ("schema", "answer"),
    [
        ({"properties": {"a": {"pattern": EXPLODING}}, "required": ["b"]}, f'{{"a": "{HOSTILE}"}} ' * 40),
        (None, "[" * 200_000),
        ({"type": "object"}, "[1," * 60_000),
    ],
    ids=["pattern", "brackets", "lists"],
)
def test_the_search_for_json_in_an_answer_is_given_up(schema: object, answer: str) -> None:
    started = time.monotonic()
    group = {"assertions": [{"type": "contains-json", "value": schema}]}
    whole, _ = check_group(group, answer, AnswerFacts())
    assert not whole.passed and time.monotonic() - started < TIME_LIMIT_SECONDS + 5


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(" * 5000 + ")" * 5000, "nested too deeply"),
        ("(?i)" + r"[\x00-\uffff]" * 1000, "takes longer than 1 s to compile"),
        ("a{99999999999999999999}", "repetition number is too large"),
    ],
    ids=["nested", "large", "repeated"],
)
def test_an_expression_that_cannot_be_compiled_is_a_problem_of_the_plan(pattern: str, problem: str) -> None:
    started = time.monotonic()
    assert problem in problems_of({"regex": pattern})[0]
    assert time.monotonic() - started < TIME_LIMIT_SECONDS + 5


@pytest.mark.parametrize(
    ("value", "holds"), [('{"name": "ab"}', True), ('{"name": "ab1"}', False), ('{"other": 1}', True)]
)
def test_a_schema_with_an_expression_is_checked(value: str, holds: bool) -> None:
    schema = {"properties": {"name": {"pattern": "^[a-z]+$"}}}
    assert check_answer({"json_schema": schema}, value)[0].passed is holds


def test_the_expression_of_a_query_is_given_up() -> None:
    with pytest.raises(MalformedQuery, match="takes longer than 1 s"):
        search_in(safe_regex(r"(a|a)*(a|a)*$"), HOSTILE)


@pytest.mark.parametrize(
    ("read", "text", "result"),
    [
        (count_words, '("' * 100_000, 0),
        (lambda text: len(redacted_error(text.encode())), "a" * 200_000, 200_000),
        (lambda text: completed(text, "", ""), "`" * 200_000, "`" * 200_000),
        (lambda text: canonical_request({"a": text}), "1" * 200_000, {"a": "1" * 200_000}),
    ],
    ids=["words", "keys", "fences", "requests"],
)
def test_texts_of_models_take_time_in_proportion_to_their_length(read, text, result):
    started = time.monotonic()
    assert read(text) == result
    assert time.monotonic() - started < 5
