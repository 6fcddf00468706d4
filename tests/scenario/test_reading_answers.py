"""What is read from what models write: sections, numbers, words, and what is missing."""

import time

import pytest

from proctor.evaluators.answer_parser import is_yes, sections, unlabeled
from proctor.scenario.definition import Measure, ScenarioEvent, TextCondition
from proctor.scenario.metrics import read_text
from proctor.scenario.simulation import events_of_turn, holds

LABELS = ("LONG-TERM GOALS", "REASONING", "ACTION")


@pytest.mark.parametrize(
    "text",
    [
        "LONG-TERM GOALS: peace\nREASONING: why\nACTION: sign",
        "**Long-term goals:** peace\n\n**Reasoning:** why\n\n**Action:** sign",
        "## Long-Term Goals\npeace\n## Reasoning\nwhy\n## Action\nsign",
        "1. LONG-TERM GOALS: peace\n2. REASONING: why\n3. ACTION: sign",
        "Long_term_goals: peace\nreasoning: why\naction: sign",
        "Here you are:\nLONG-TERM GOALS\npeace\nREASONING\nwhy\nACTION\nsign",
        '{"goals": {"long_term": "peace"}, "reasoning": "why", "action": "sign"}',
        '```json\n{"long_term_goals": "peace", "reasoning": "why", "action": "sign"}\n```',
    ],
)
def test_sections_are_found_however_they_are_marked(text):
    assert sections(text, LABELS) == {"LONG-TERM GOALS": "peace", "REASONING": "why", "ACTION": "sign"}


def test_a_word_in_the_middle_of_a_sentence_is_no_heading():
    assert sections("I would rather wait.", LABELS) == {}
    found = sections("ACTION: The action: none of it. We take action", LABELS)

    assert found == {"ACTION": "The action: none of it. We take action"}


@pytest.mark.parametrize(
    ("said", "yes"), [("yes", True), ("**Yes**, gladly", True), ("no", False), ("", False)]
)
def test_yes_is_yes(said, yes):
    assert is_yes(said) is yes


@pytest.mark.parametrize(
    ("condition", "value", "expected"),
    [
        ("> 3 and < 7", 5, True),
        ("> 3 and < 7", 8, False),
        (">= 7", 7, True),
        ("> 7", 7, False),
        ("!= war", "peace", True),
        ("== true", True, True),
        ("< 3", None, False),
        ("> 3", "many", False),
    ],
)
def test_a_condition_holds_or_not_and_never_for_what_is_missing(condition, value, expected):
    assert holds(condition, value) is expected


def names(events, turn, *, metrics=None, before=(), seed=1):
    return events_of_turn(events, turn=turn, seed=seed, metrics=metrics or {}, before=before)


def test_events_happen_by_date_by_trend_and_by_condition():
    events = {
        "date": ScenarioEvent(type="scheduled", description="d", turn=2),
        "trend": ScenarioEvent(type="trend", description="d", frequency=2, turn_range=(1, 5), once=False),
        "then": ScenarioEvent(type="conditional", description="d", conditions={"trust": ">= 8"}),
    }

    assert names(events, 1) == ["trend"]
    assert names(events, 2, metrics={"trust": 8}) == ["date", "then"]
    assert names(events, 3, metrics={"trust": 8}, before=["then", "trend"]) == ["trend"]
    assert names(events, 7) == []


def test_chance_is_the_same_for_the_same_seed_and_an_added_event_leaves_it_alone():
    rain = {"rain": ScenarioEvent(type="random", description="d", probability=0.5, once=False)}
    more = {"hail": ScenarioEvent(type="random", description="d", probability=0.5, once=False), **rain}

    def fell(events, seed):
        return ["rain" in names(events, turn, seed=seed) for turn in range(1, 41)]

    assert fell(rain, 1) == fell(rain, 1) == fell(more, 1)
    assert fell(rain, 1) != fell(rain, 2)
    assert sum(fell(rain, 1)) == 17


def test_an_event_may_be_scheduled_for_several_turns():
    events = {"review": ScenarioEvent(type="scheduled", description="d", turns=(3, 6), once=False)}

    assert [turn for turn in range(1, 10) if names(events, turn, before=["review"])] == [3, 6]


def test_a_trend_with_a_probability_occurs_in_some_turns_the_same_ones_for_the_same_seed():
    events = {"mood": ScenarioEvent(type="trend", description="d", probability=0.3, once=False)}

    turns = [turn for turn in range(1, 1001) if names(events, turn)]

    assert turns == [turn for turn in range(1, 1001) if names(events, turn)]
    assert 260 < len(turns) < 340


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("The toll was raised.", ["backlash"]),
        ("- The toll is old\n- Trust was raised", []),
        ("The toll is old.\n\nTrust was raised.", []),
        ("", []),
    ],
)
def test_a_condition_on_the_world_state_needs_both_patterns_in_one_paragraph(state, expected):
    condition = TextCondition(pattern="berth fee|toll", sensitivity="approved|raised")
    events = {
        "backlash": ScenarioEvent(type="conditional", description="d", world_state_contains=(condition,))
    }

    assert events_of_turn(events, turn=1, seed=1, metrics={}, before=(), world_state=state) == expected


@pytest.mark.parametrize("text", [" " * 100_000 + "x", "Decision" + " " * 100_000 + "x"])
def test_blanks_do_not_make_reading_slow(text: str) -> None:
    began = time.process_time()
    unlabeled(text, ["Decision"])
    # Quadratic time would be a minute.
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("rule", "text", "value"),
    [
        ({"pattern": r"a (\S+)"}, "a 1,250.5", 1250.5),
        ({"pattern": r"a (.+)"}, "a 10^3", 1000.0),
        ({"pattern": r"a (.+)"}, "a −3 %", -3.0),
        ({"pattern": r"a (.+)"}, "a nothing", None),
        ({"pattern": r"a (.+)"}, "a 10 000 000 people", 10_000_000.0),
        ({"pattern": r"a (.+)"}, "a 7 of 10", 7.0),
        ({"pattern": r"a (.+)"}, "a 5, 6 or 7", 5.0),
        ({"pattern": r"a (.+)"}, "a 12, 15", 12.0),
        # What could be two numbers is none.
        ({"pattern": r"a (.+)"}, "a 3,5", None),
        ({"pattern": r"a (.+)"}, "a 12,15", None),
        ({"pattern": r"a (.+)"}, "a 0,500", None),
        ({"pattern": r"a (.+)"}, "a 1.250,5", None),
        ({"pattern": r"a (\d+)"}, "a 1 a 7 a 3", 3.0),
        ({"pattern": r"a (\d+)", "aggregation": "max"}, "a 1 a 7 a 3", 7.0),
        ({"pattern": r"a (\d+)", "aggregation": "sum"}, "a 1 a 7 a 3", 11.0),
        ({"pattern": r"a (\d+)", "range": (1, 7)}, "a 7", 7.0),
        ({"pattern": r"a (\d+)", "range": (1, 7)}, "a 1", 1.0),
        ({"pattern": r"a (\d+)", "range": (1, 7)}, "a 8", None),
        ({"pattern": r"a (\d+)", "range": (1, 7)}, "a 0", None),
        ({"pattern": r"a (\d+)|b (\d+)"}, "B 4", 4.0),
        ({"pattern": r"\d+"}, "x 12", 12.0),
        ({"pattern": r"a (\S+)", "type": "integer"}, "a 2.0", 2),
        ({"pattern": r"a (\S+)", "type": "integer"}, "a 2.5", None),
        ({"pattern": r"a (\w+)", "type": "boolean"}, "a yes", True),
        ({"pattern": r"a (\w+)", "type": "boolean"}, "a no", False),
        ({"pattern": r"a (\w+)", "type": "boolean"}, "a cat", None),
        ({"pattern": r"cat", "type": "boolean"}, "a cat", True),
        ({"pattern": r"cat", "type": "boolean"}, "a dog", False),
        ({"pattern": r"a (\w+)", "type": "boolean"}, "nothing of the kind", None),
        ({"pattern": r"(deal|treaty) (signed|sealed)", "type": "boolean"}, "The treaty sealed it.", True),
        ({"pattern": r"(deal|treaty) (signed|sealed)", "type": "boolean"}, "They quarrel.", False),
        ({"pattern": r"deal.*?(signed|sealed)", "type": "boolean"}, "a deal was signed", True),
        ({"pattern": r"a (\w+)", "type": "string"}, "a cat", "cat"),
        ({"pattern": r"a (.+)", "type": "string", "categories": ("Cat", "Dog")}, "a `cat`", "Cat"),
        ({"pattern": r"a (.+)", "type": "string", "categories": ("Cat", "Dog")}, "a big dog", "Dog"),
        ({"pattern": r"a (.+)", "type": "string", "categories": ("Cat", "Dog")}, "a cat and dog", None),
        ({"pattern": ""}, "a 1", None),
        ({"method": "manual", "pattern": r"(\d)"}, "1", None),
        ({"method": "keyword", "keywords": ("ab", "c")}, "ab AB abc c", 3),
        ({"method": "keyword", "keywords": ("", "ab")}, "ab x", 1),
        ({"method": "keyword", "keywords": ()}, "ab", 0),
        ({"method": "keyword", "keywords": ("ab",), "scoring": "presence"}, "ab ab", 1),
        ({"method": "keyword", "keywords": ("ab",), "scoring": "presence"}, "x", 0),
        ({"method": "keyword", "keywords": ("ab",), "type": "boolean"}, "ab ab", True),
        ({"method": "keyword", "keywords": ("ab",), "scoring": "density"}, "ab x y z", 25.0),
        ({"method": "keyword", "keywords": ("ab",), "scoring": "density"}, "", None),
        ({"method": "keyword", "keywords": ("ab",), "range": (0, 1)}, "ab ab", None),
        ({"method": "keyword", "keywords": ("費",)}, "渡船費用", 1),
        ({"method": "keyword", "keywords": ("合作",), "scoring": "density"}, "我们合作很好合作好。", 200 / 9),
        # The ends of a word decide whether it may stand inside another.
        ({"method": "keyword", "keywords": ("A合",)}, "BA合", 0),
        ({"method": "keyword", "keywords": ("A合",)}, "A合B", 1),
        ({"method": "keyword", "keywords": ("合A",)}, "B合A", 1),
        ({"method": "keyword", "keywords": ("合A",)}, "合AB", 0),
        ({"method": "keyword", "keywords": ("a.b",)}, "a.b axb a.bc", 1),
    ],
)
def test_the_value_of_a_metric_in_a_text_has_its_type_or_is_missing(rule, text, value):
    read = read_text(Measure(**rule), text)
    assert read == value and type(read) is type(value)
