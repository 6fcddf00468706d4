"""The language of rules on its own: what is refused and where, and what an expression is worth."""

import pytest

from proctor.scenario.world import (
    LARGEST,
    LONGEST_TEXT,
    MOST_NODES,
    ExpressionError,
    NameType,
    NoValue,
    RuleNames,
    RuleScope,
    parse_rule,
)

ACTORS = ("port", "mill")
NAMES = RuleNames(
    types={
        "n": NameType(kind="number"),
        "m": NameType(kind="number"),
        "b": NameType(kind="boolean"),
        "t": NameType(kind="text"),
        "c": NameType(kind="text", choices=("yes", "no")),
        "wealth": NameType(kind="number", actors=ACTORS),
        "vote": NameType(kind="text", choices=("yes", "no"), actors=ACTORS),
        "missing": NameType(kind="number"),
    },
    events=("storm", "calm"),
)
SCOPE = RuleScope(
    values={
        "n": 7,
        "m": 2.5,
        "b": True,
        "t": "word",
        "c": "no",
        "turn": 4,
        "wealth": {"port": 3, "mill": 9},
        "vote": {"port": "yes", "mill": "no"},
    },
    events=("storm",),
    random=lambda: 0.25,
)


def value(text: str, name: str = "n", current: object = 10) -> object:
    return parse_rule(f"{name} = {text}", NAMES).result(current, SCOPE)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("n + m", 9.5),
        ("n - m", 4.5),
        ("n * m", 17.5),
        ("n / m", 2.8),
        ("n // 2", 3),
        ("n % 4", 3),
        ("n ** 2", 49),
        ("-n", -7),
        ("+n", 7),
        ("turn", 4),
        ("min(n, m)", 2.5),
        ("max(n, m)", 7),
        ("min(9, 8, 7, 6, 5, 4, 3, 2, 1)", 1),
        ("max(9, 8, 7, 6, 5, 4, 3, 2, 1)", 9),
        ("abs(-n)", 7),
        ("round(m)", 2),
        ("round(2.345, 1)", 2.3),
        ("floor(m)", 2),
        ("ceil(m)", 3),
        ("sqrt(9)", 3),
        ("exp(0)", 1),
        ("log(1)", 0),
        ("clamp(n, 1, 5)", 5),
        ("clamp(-n, 1, 5)", 1),
        ("clamp(3, 1, 5)", 3),
        ("sum(wealth)", 12),
        ("mean(wealth)", 6),
        ('count(vote, "yes")', 1),
        ("count(wealth, 4)", 0),
        ('of(wealth, "mill")', 9),
        ("wealth.port", 3),
        ("random()", 0.25),
        ("1 if b else 2", 1),
        ("1 if not b else 2", 2),
        ("1e15", LARGEST),
        ("1e15 + 0", LARGEST),
    ],
)
def test_what_an_expression_of_numbers_is_worth(text, result):
    assert value(text) == pytest.approx(result)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("true", True),
        ("false", False),
        ("True", True),
        ("not b", False),
        ("b and false", False),
        ("b and true", True),
        ("b or false", True),
        ("false or false", False),
        ("n < 7", False),
        ("n <= 7", True),
        ("n > 7", False),
        ("n >= 7", True),
        ("n == 7", True),
        ("n != 7", False),
        ("1 < n < 5", False),
        ("1 < n < 8", True),
        ('c in ["yes", "no"]', True),
        ('c in ("yes",)', False),
        ('c not in ["yes"]', True),
        ('vote.port == "yes"', True),
        ('"yes" != vote.mill', True),
        ('event("storm")', True),
        ('event("calm")', False),
        ('t == "word"', True),
    ],
)
def test_what_a_condition_is_worth(text, result):
    assert value(text, "b") is result


@pytest.mark.parametrize(
    ("rule", "result"),
    [
        ("n += 2", 12),
        ("n -= 2", 8),
        ("n *= 2", 20),
        ("n /= 4", 2.5),
        ("n = 2", 2),
        ("n += 2 if n > 6", 12),
        ("n += 2 if n > 7", None),
        ("n = (1 if b else 2) if not b", None),
        ("n = 1 if b else 2 if b", 1),
        ("n = max(1, 2) if b", 2),
        ("wealth.mill += 1", 11),
    ],
)
def test_what_a_rule_sets(rule, result):
    assert parse_rule(rule, NAMES).result(10, SCOPE) == result


@pytest.mark.parametrize(
    "text",
    [
        "1 / 0",
        "log(0)",
        "sqrt(-1)",
        "(-1) ** 0.5",
        "1e15 * 1.1",
        "-1e15 * 1.1",
        "1e15 + 1",
        "missing",
        "exp(10000)",
        "0 * 1e999",
    ],
)
def test_an_expression_without_a_value(text):
    with pytest.raises(NoValue):
        value(text)


def test_the_value_of_an_actor_that_has_none_is_missing():
    rule = parse_rule("n = wealth.port", NAMES)
    for values in ({"wealth": {"mill": 1}}, {"wealth": 3}, {}):
        with pytest.raises(NoValue, match="`wealth` of port has no value"):
            rule.result(0, RuleScope(values=values))


@pytest.mark.parametrize(
    ("rule", "problem", "column", "remedy"),
    [
        ("n", "a rule assigns a value", 1, "Write `treasury"),
        ("= 3", "begins with the name of a variable", 1, ""),
        ("3 = 3", "begins with the name of a variable", 1, ""),
        ("x = 3", "there is no variable or metric `x`", 1, "There are: n, m, b"),
        ("  x = 3", "there is no variable or metric `x`", 3, ""),
        ("n m = 3", "the left side is the name of a variable", 3, ""),
        ("n. = 3", "the left side is the name of a variable", 2, ""),
        ("n.port = 3", "`n` has one value", 1, "Write `n`."),
        ("wealth = 3", "`wealth` has a value for each actor", 1, "Write `wealth.ACTOR`."),
        ("wealth.farm = 3", "there is no actor `farm`", 8, "There are: port, mill."),
        ("n =", "something is missing here", 4, ""),
        ("n = ", "something is missing here", 5, ""),
        ("n = 3 if", "something is missing here", 9, ""),
        ("n =  3 +* 4", "cannot be read", 9, ""),
        ("b += 1", "`b` is a boolean; only `=` sets it", 3, ""),
        ("n = true", "`n` is a number, and this is a boolean", 5, ""),
        ("t = 1", "`t` is a text, and this is a number", 5, ""),
        ('c = "maybe"', "`c` is never `maybe`", 5, "There are: yes, no."),
        ("n = 3 if n", "a condition is true or false", 10, ""),
        ("n = wealth", "`wealth` has a value for each actor", 5, "Write `wealth.ACTOR`, or"),
        ("n = wealth.farm", "`wealth` has no value of `farm`", 5, "There are: port, mill."),
        ("n = m.farm", "`m` has no value of `farm`", 5, ""),
        ("n = y.farm", "there is no variable or metric `y`", 5, "There are"),
        ("n = not b", "is a number, and this is a boolean", 5, ""),
        ("n = -b", "a number is needed here, and this is a boolean", 6, ""),
        ("b = n and b", "a boolean is needed here, and this is a number", 5, ""),
        ("n = 1 + b", "a number is needed here, and this is a boolean", 9, ""),
        ("n = 1 if n else 2", "a boolean is needed here, and this is a number", 10, ""),
        ("n = 1 if b else b", "a number is needed here, and this is a boolean", 17, ""),
        ("n = 1 @ 2", "this is not part of the language of rules", 5, ""),
        ("n = ~1", "this is not part of the language of rules", 5, ""),
        ("n = n.a.b", "this is not part of the language of rules", 5, ""),
        ("n = max(1, key=2)", "this is not part of the language of rules", 5, ""),
        ("b = n in n", "`in` needs a list", 10, "Write `x in"),
        ('b = n in ["a"]', "a number is needed here, and this is a text", 11, ""),
        ('b = c in ["yes", "maybe"]', "`c` is never `maybe`", 18, "There are: yes, no."),
        ('b = c == "maybe"', "`c` is never `maybe`", 10, ""),
        ('b = "maybe" == c', "`c` is never `maybe`", 5, ""),
        ('b = vote.port != "maybe"', "`vote` is never `maybe`", 18, ""),
        ("b = n == b", "a number is needed here, and this is a boolean", 10, ""),
        ("b = t < t", "a number is needed here, and this is a text", 5, ""),
        ("b = n is n", "this comparison is not part of the language", 5, ""),
        ('b = event("war")', "`event` needs the name of an event", 11, "There are: storm, calm."),
        ("b = event(n)", "`event` needs the name of an event", 11, ""),
        ('b = event("storm", "calm")', "`event` has other arguments", 5, ""),
        ("n = random(1)", "`random` has other arguments", 5, ""),
        ("n = sum(n)", "this needs a variable with a value for each actor", 9, ""),
        ("n = sum(3)", "this needs a variable with a value for each actor", 9, ""),
        ("n = sum(y)", "this needs a variable with a value for each actor", 9, ""),
        ("n = sum(vote)", "`sum` needs numbers", 9, ""),
        ("n = mean(vote)", "`mean` needs numbers", 10, ""),
        ("n = sum(wealth, wealth)", "`sum` has other arguments", 5, ""),
        ("n = count(wealth)", "`count` has other arguments", 5, ""),
        ('n = count(wealth, "a")', "a number is needed here, and this is a text", 19, ""),
        ('n = count(vote, "maybe")', "`vote` is never `maybe`", 17, ""),
        ('n = of(wealth, "farm")', "`wealth` has no value of `farm`", 16, "There are: port, mill."),
        ("n = of(wealth, 3)", "`wealth` has no value of `3`", 16, ""),
        ("n = min(1)", "`min` has other arguments", 5, ""),
        ("n = max(1)", "`max` has other arguments", 5, ""),
        ("n = min(9, 8, 7, 6, 5, 4, 3, 2, 1, 0)", "`min` has other arguments", 5, ""),
        ("n = max(9, 8, 7, 6, 5, 4, 3, 2, 1, 0)", "`max` has other arguments", 5, ""),
        ("n = round(1, 2, 3)", "`round` has other arguments", 5, ""),
        ("n = round()", "`round` has other arguments", 5, ""),
        ("n = clamp(1, 2)", "`clamp` has other arguments", 5, ""),
        ("n = clamp(1, 2, 3, 4)", "`clamp` has other arguments", 5, ""),
        ("n = abs(b)", "a number is needed here, and this is a boolean", 9, ""),
        ("n = open(1)", "there is no function `open`", 5, "There are: min, max"),
        ("n = (1", "cannot be read", 6, ""),
        ("n = 1\nm = 2", "a rule is one line", 1, "Make a list entry of each line."),
        ("n = (lambda: 1)()", "not part of the language", 5, ""),
        ("n = [1 for x in (1, 2)]", "not part of the language", 5, ""),
        ("n = n.__class__", "`n` has no value of `__class__`", 5, ""),
        ("n = ().__class__", "not part of the language", 5, ""),
        ("n = __import__('os')", "there is no function `__import__`", 5, ""),
        ("n = f'{m}'", "not part of the language", 5, ""),
        ("n = 1; m = 2", "cannot be read", 6, ""),
        ("n = " + "-" * 400 + "1", "too long", 5, ""),
        *(
            (f"n = {name}({arguments})", f"`{name}` has other arguments", 5, "")
            for name in ("abs", "floor", "ceil", "sqrt", "exp", "log")
            for arguments in ("", "1, 2")
        ),
    ],
)
def test_a_rule_that_is_not_valid_is_refused_with_its_place(rule, problem, column, remedy):
    with pytest.raises(ExpressionError) as raised:
        parse_rule(rule, NAMES)

    assert problem in raised.value.problem
    assert raised.value.column == column
    assert raised.value.remedy.startswith(remedy) if remedy else True


def test_where_there_are_no_names_and_no_events_the_remedy_says_so():
    names = RuleNames(types={"b": NameType(kind="boolean")})
    for rule, there in (("x = 1", "There are: b."), ('b = event("a")', "There are: none.")):
        with pytest.raises(ExpressionError) as raised:
            parse_rule(rule, names)
        assert raised.value.remedy == there
    with pytest.raises(ExpressionError) as raised:
        parse_rule("x = 1", RuleNames())
    assert raised.value.remedy == "There are: none."


def test_a_rule_has_a_limit_in_characters_and_in_parts():
    assert parse_rule("n = 1".ljust(LONGEST_TEXT), NAMES).target == "n"
    with pytest.raises(ExpressionError, match="at most 1000 characters"):
        parse_rule("n = 1".ljust(LONGEST_TEXT + 1), NAMES)
    # Each `+1` is an operation, its operator and a number.
    parts = (MOST_NODES - 2) // 3
    assert parse_rule("n = 1" + "+1" * parts, NAMES).target == "n"
    with pytest.raises(ExpressionError, match="too long") as raised:
        parse_rule("n = 1" + "+1" * (parts + 1), NAMES)
    assert raised.value.column == 5
