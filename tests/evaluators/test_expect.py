"""What may be expected of an answer."""

import socket
import threading

import pytest

from proctor.evaluators.expect import check_answer, problems_of
from waiting import TIME_LIMIT_SECONDS

PERSON = {"type": "object", "required": ["name"], "properties": {"age": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("expect", "answer", "holds"),
    [
        ({"contains": "Paris"}, "It is Paris.", True),
        ({"contains": "paris"}, "It is Paris.", False),
        ({"contains": ["Paris", "France"]}, "Paris, France", True),
        ({"contains": ["Paris", "Texas"]}, "Paris, France", False),
        ({"equals": "42"}, " 42\n", True),
        ({"equals": 42}, "42", True),
        ({"equals": "42"}, "It is 42", False),
        ({"regex": r"^\d+ apples$"}, "12 apples", True),
        ({"regex": r"^\d+ apples$"}, "no apples", False),
        ({"json_schema": PERSON}, '{"name": "A", "age": 3}', True),
        ({"json_schema": PERSON}, 'Here:\n```json\n{"name": "A"}\n```\n', True),
        ({"json_schema": PERSON}, '{"name": "A", "age": "three"}', False),
        ({"json_schema": PERSON}, "not JSON", False),
        ({"json_schema": PERSON}, "[" * 100_000, False),
    ],
)
def test_an_expectation_holds_or_not(expect, answer, holds):
    assert problems_of(expect) == []
    (check,) = check_answer(expect, answer)
    assert check.passed is holds
    assert check.name in expect


def test_what_does_not_hold_says_why_and_how_the_answer_began():
    expect = {"contains": "PARIS", "equals": "42", "regex": "z+", "json_schema": PERSON}
    contains, equals, regex, schema = check_answer(expect, "I think it is " + "x" * 500)
    assert contains.explanation.startswith("answer does not contain 'PARIS'; it began 'I think it is xxx")
    assert len(contains.explanation) < 200
    assert "answer is not '42'" in equals.explanation
    assert "does not match 'z+'" in regex.explanation
    assert "not JSON" in schema.explanation
    assert check_answer({"equals": "x"}, " ")[0].explanation.endswith("it was empty")
    wrong = check_answer({"json_schema": PERSON}, '{"name": "A", "age": "three"}')[0]
    assert "$.age" in wrong.explanation


@pytest.mark.parametrize(
    ("expect", "words"),
    [
        ({}, "any of: contains, equals, regex, json_schema"),
        ("Paris", "any of"),
        ({"contain": "x"}, "`contain` is not a valid expectation"),
        ({"contains": []}, "takes a text"),
        ({"contains": [3]}, "takes a text"),
        ({"regex": "("}, "not a valid regular expression"),
        ({"regex": 3}, "takes a regular expression"),
        ({"json_schema": {"type": "objekt"}}, "not a valid JSON schema"),
        ({"json_schema": []}, "a map"),
        ({"equals": ["x"]}, "takes a text"),
    ],
)
def test_a_mistake_is_found_before_anything_is_asked(expect, words):
    problems = problems_of(expect)
    assert len(problems) == 1 and words in problems[0]
    several = {"contains": [], "regex": "(", "nope": 1}
    assert len(problems_of(several)) == 3, "every mistake is reported"


def test_a_schema_cannot_make_us_fetch_an_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        schema = {"$ref": f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"}
        answered = threading.Thread(target=check_answer, args=({"json_schema": schema}, "{}"), daemon=True)
        answered.start()
        with pytest.raises(TimeoutError):
            server.accept()
        answered.join(TIME_LIMIT_SECONDS)
    (check,) = check_answer({"json_schema": schema}, "{}")
    assert not check.passed and "not in it" in check.explanation
