"""Weighted assertions on an answer: each type at its boundaries, groups, thresholds and weights."""

from typing import Any

import pytest

from proctor.evaluators.expect import (
    SEARCHED_CHARACTERS,
    AnswerFacts,
    CheckResult,
    check_assertion,
    check_expectations,
    check_group,
    edit_distance,
    graded_in,
    is_supported,
    key_of,
    scores_of,
    split_list,
)
from proctor.score import Score

FACTS = AnswerFacts(latency_ms=100.0, cost_usd=0.5, finish_reason="Stop")


@pytest.mark.parametrize(
    ("name", "value", "answer", "passes"),
    [
        ("equals", "a", "a", True),
        ("equals", 3, "3", True),
        ("equals", True, "true", True),
        ("equals", [1, 2], "[1, 2]", True),
        ("equals", [1, 2], "[2, 1]", False),
        ("equals", {"a": 1}, "no json", False),
        ("contains", "b", "abc", True),
        ("contains", "B", "abc", False),
        ("icontains", "B", "abc", True),
        ("icontains", "x", "abc", False),
        ("contains-any", ["x", "b"], "abc", True),
        ("contains-any", ["x", "y"], "abc", False),
        ("contains-all", ["a", "b"], "abc", True),
        ("contains-all", ["a", "x"], "abc", False),
        ("icontains-any", ["X", "B"], "abc", True),
        ("icontains-any", ["X", "Y"], "abc", False),
        ("icontains-all", ["A", "B"], "abc", True),
        ("icontains-all", ["A", "X"], "abc", False),
        ("starts-with", "ab", "abc", True),
        ("starts-with", "b", "abc", False),
        ("regex", "^a.c$", "abc", True),
        ("regex", "x", "a" * SEARCHED_CHARACTERS + "x", False),
        ("regex", "x", "a" * (SEARCHED_CHARACTERS - 1) + "x", True),
        ("regex", "(?<=a)b", "ab", True),
        ("regex", r"\$", "a$", True),
        ("is-json", None, "[1]", True),
        ("is-json", None, "x [1]", False),
        ("is-json", '{"required": ["a"]}', '{"a": 1}', True),
        ("contains-json", None, "x [1] y", True),
        ("contains-json", None, "x [1 y", False),
        ("contains-json", {"required": ["a"]}, '{[ {"b": 1} {"a": 1}', True),
        ("contains-json", {"required": ["a"]}, '{"b": {"a": 1}}', False),
        ("is-xml", None, " <a/> ", True),
        ("is-xml", None, "<a>", False),
        ("is-xml", None, "<!DOCTYPE a><a/>", False),
        ("is-xml", None, "<a><!ENTITY></a>", False),
        ("is-xml", "a", "<a/>", True),
        ("is-xml", "b", "<a/>", False),
        ("is-xml", "a.b.c, a.d", "<a><b><c/></b><d/></a>", True),
        ("is-xml", ["a.b", "a.x"], "<a><b/></a>", False),
        ("is-xml", {"requiredElements": ["a.b"]}, "<a><b/></a>", True),
        ("word-count", 2, "one two", True),
        ("word-count", 2, "one", False),
        ("word-count", {"min": 2}, "one two", True),
        ("word-count", {"min": 2}, "one", False),
        ("word-count", {"max": 1}, "one", True),
        ("word-count", {"max": 1}, "one two", False),
        ("word-count", {"min": 1, "max": 2}, "one two three", False),
        ("levenshtein", "aaaaa", "bbbbb", True),
        ("levenshtein", "aaaaaa", "bbbbbb", False),
        ("finish-reason", "STOP", "", True),
        ("finish-reason", "length", "", False),
        ("is-refusal", None, " ", True),
        ("is-refusal", None, "I can’t do that", True),
        ("is-refusal", None, "Certainly", False),
    ],
)
def test_what_holds_and_what_does_not(name: str, value: Any, answer: str, passes: bool) -> None:
    assertion = {"type": name} | ({} if value is None else {"value": value})
    result = check_assertion(assertion, answer, FACTS)
    assert (result.passed, result.score) == (passes, float(passes))
    negated = check_assertion({**assertion, "type": f"not-{name}"}, answer, FACTS)
    assert (negated.passed, negated.score) == (not passes, float(not passes))
    assert is_supported(name) and is_supported(f"not-{name}")


@pytest.mark.parametrize(
    ("name", "figure", "limit", "passes"),
    [
        ("latency", 100.0, 100, True),
        ("latency", 100.0, 99.9, False),
        ("cost", 0.5, 0.5, True),
        ("cost", 0.5, 0.4, False),
    ],
)
def test_figures_have_a_limit(name: str, figure: float, limit: float, passes: bool) -> None:
    assertion = {"type": name, "threshold": limit}
    assert check_assertion(assertion, "", FACTS).passed is passes
    unknown = check_assertion(assertion, "", AnswerFacts())
    assert (unknown.passed, unknown.explanation) == (False, f"{name}: the figure is not known")
    without = check_assertion({"type": name}, "", FACTS)
    assert without.explanation == f"{name}: it needs a threshold" and not without.passed


@pytest.mark.parametrize(
    ("answer", "threshold", "score", "passes"),
    [
        ("a b c d", None, 1.0, True),
        ("a b c x", None, 0.75, True),
        ("a b x y", None, 0.5, False),
        ("a b x y", 0.5, 0.5, True),
        ("a b x y", 0.51, 0.5, False),
        ("x", None, 0.0, False),
        ("A a", None, 1 / 3, False),
    ],
)
def test_common_words_are_graded(answer: str, threshold: float | None, score: float, passes: bool) -> None:
    assertion = {"type": "rouge-n", "value": "a b c d"} | (
        {} if threshold is None else {"threshold": threshold}
    )
    result = check_assertion(assertion, answer, FACTS)
    assert (result.passed, result.score) == (passes, pytest.approx(score))


@pytest.mark.parametrize(
    ("first", "second", "limit", "distance"),
    [
        ("kitten", "sitting", 9, 3),
        ("kitten", "sitting", 3, 3),
        ("kitten", "sitting", 2, 3),
        ("", "abc", 3, 3),
        ("", "abc", 2, 3),
        ("abc", "", 9, 3),
        ("abc", "abc", 0, 0),
        ("abcd", "wxyz", 1, 2),
        ("ab", "ba", 9, 2),
    ],
)
def test_the_number_of_edits_between_two_texts(first: str, second: str, limit: int, distance: int) -> None:
    assert edit_distance(first, second, limit) == distance


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a, b ,c", ["a", "b", "c"]),
        ('"a, b", c', ["a, b", "c"]),
        ('"a ""b""", "c \\"d\\""', ['a "b"', 'c "d"']),
        (" ,, a", ["a"]),
        ("", []),
    ],
)
def test_a_list_is_split_at_commas(text: str, parts: list[str]) -> None:
    assert split_list(text) == parts


def test_a_group_has_the_weighted_mean_of_its_members() -> None:
    members = [
        {"type": "contains", "value": "a", "weight": 3},
        {"type": "contains", "value": "x"},
        {"type": "contains", "value": "y", "weight": 0},
    ]
    whole, each = check_group({"assertions": members}, "a", FACTS)
    assert (whole.passed, whole.score, whole.explanation) == (False, 0.75, "contains x")
    assert [one.passed for one in each] == [True, False, False]
    for threshold, passed in ((0.75, True), (0.76, False)):
        assert check_group({"assertions": members, "threshold": threshold}, "a", FACTS)[0].passed is passed
    nothing = check_group({"assertions": [members[2]]}, "a", FACTS)[0]
    assert (nothing.passed, nothing.score, nothing.explanation) == (True, 1.0, "all hold")
    inner = {"type": "assert-set", "assertions": members, "threshold": 0.7}
    assert check_assertion(inner, "a", FACTS).passed
    assert is_supported("assert-set") and not is_supported("not-assert-set")


def test_rubrics_are_found_in_sets_and_have_the_result_of_their_judge() -> None:
    rubric, negated = {"type": "llm-rubric", "value": "kind"}, {"type": "not-llm-rubric", "value": "rude"}
    group = {"assertions": [rubric, {"type": "contains"}, {"type": "assert-set", "assertions": [negated]}]}
    assert graded_in(group) == [rubric, negated]

    judged = CheckResult("llm-rubric", True, 0.75, "why")
    facts = AnswerFacts(graded={key_of(each): judged for each in (rubric, negated)})
    kind, rude = "llm-rubric kind", "not-llm-rubric rude"
    assert check_assertion(rubric, "", facts) == (kind, True, 0.75, "why")
    assert check_assertion(negated, "", facts) == (rude, False, 0.25, "why")
    assert check_assertion(rubric, "", FACTS) == (kind, None, 0.0, "llm-rubric: not checked")
    assert check_assertion(negated, "", FACTS)[:3] == (rude, None, 0.0)


@pytest.mark.parametrize(
    ("value", "weight", "threshold", "passed", "explanation"),
    [
        ("a", 1, None, None, "`x` has no equivalent"),
        ("z", 1, None, False, "contains z"),
        ("a", 0, None, True, "all hold"),
        ("a", 1, 0.5, True, "all hold"),
        ("a", 1, 0.6, None, "`x` has no equivalent"),
        ("z", 1, 0.5, None, "`x` has no equivalent"),
        ("z", 1, 0.6, False, "contains z"),
    ],
)
def test_what_cannot_be_checked_leaves_open_what_it_could_decide(
    value: str, weight: float, threshold: float | None, passed: bool | None, explanation: str
) -> None:
    foreign = {"type": "not-supported", "value": "`x` has no equivalent", "weight": weight}
    group = {"assertions": [{"type": "contains", "value": value}, foreign]}
    whole, _ = check_group({**group, **({"threshold": threshold} if threshold else {})}, "a", FACTS)
    assert (whole.passed, whole.explanation) == (passed, explanation)


def test_an_assertion_has_one_name_whatever_its_result() -> None:
    rubric = {"type": "llm-rubric", "value": "is polite", "judge": "a/b"}
    members = [{"type": "contains", "value": "b"}, {"type": "word-count", "value": "x"}]
    group = {"assertions": [rubric, {"type": "assert-set", "assertions": members}]}
    names = ["assert: llm-rubric is polite", "assert: assert-set contains b; word-count x", "expect.assert"]
    digests = set()
    for reason in ("very", "not at all"):
        facts = AnswerFacts(graded={key_of(rubric): CheckResult("llm-rubric", True, 1.0, reason)})
        for answer in ("b", "c"):
            scores = scores_of({"assert": group}, answer, facts)
            assert [score.evaluator for score in scores] == names
            digests.add(tuple(score.evaluator_digest for score in scores))
    assert len(digests) == 1
    other = scores_of({"assert": {"assertions": [{**rubric, "judge": "c/d"}]}}, "b")
    assert other[0].evaluator_digest != next(iter(digests))[0], "another judge is another evaluator"


def test_what_is_wrong_in_an_assertion_fails_it() -> None:
    for assertion, why in (
        ({"type": "odd"}, "there is no assertion `odd`"),
        ({"type": "contains"}, "contains: it needs a value"),
        ({"type": "not-contains", "value": ""}, "not-contains: it needs a value"),
        ({"type": "contains-any", "value": '"a'}, "contains-any: a quote has no end"),
    ):
        result = check_assertion(assertion, "a", FACTS)
        assert (result.passed, result.score, result.explanation) == (False, 0.0, why)


def test_a_reason_is_clipped() -> None:
    for length, end in ((79, "x"), (80, "…")):
        reason = check_assertion({"type": "contains", "value": "x" * length}, "", FACTS).explanation
        assert reason.endswith(end) and len(reason) == len("contains") + 80
    assert check_assertion({"type": "equals", "value": {"a": 1}}, "", FACTS).explanation == 'equals {"a": 1}'
    assert check_assertion({"type": "is-json"}, "", FACTS).explanation == "is-json"


def test_assertions_are_scores_beside_the_other_expectations() -> None:
    members = [{"type": "contains", "value": "b"}, {"type": "latency", "threshold": 99}]
    wanted = {"assert": {"assertions": members}, "contains": "a"}
    scores = scores_of(wanted, "ab", FACTS)
    assert [(score.evaluator, score.value, score.label) for score in scores] == [
        ("expect.contains", 1.0, "pass"),
        ("assert: contains b", 1.0, "pass"),
        ("assert: latency", 0.0, "fail"),
        ("expect.assert", 0.5, "fail"),
    ]
    recorded = list[Score]()
    assert check_expectations(wanted, "ab", recorded.append, FACTS).unmet == ["latency"]
    assert recorded == scores
    assert check_expectations({"contains": "z"}, "ab", recorded.append).unmet != []
