"""What is read from what models write: sections, numbers, words, and what is missing."""

import time

import pytest

from proctor.scenario.definition import Measure, ScenarioEvent, TextCondition
from proctor.scenario.metrics import read_text, typed
from proctor.scenario.prompts import is_yes, listed, sections, unlabelled
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
    found = sections("ACTION: The action: none of it. We take action", LABELS)

    assert found == {"ACTION": "The action: none of it. We take action"}


def test_text_without_sections_has_none():
    assert sections("I would rather wait.", LABELS) == {}


@pytest.mark.parametrize(
    ("said", "yes"), [("yes", True), ("**Yes**, gladly", True), ("no", False), ("", False)]
)
def test_yes_is_yes(said, yes):
    assert is_yes(said) is yes


def test_lists_come_in_several_shapes():
    assert listed("- port\n- ferry") == ["port", "ferry"]
    assert listed("port, ferry") == ["port", "ferry"]


def regex(kind, pattern, **more):
    return Measure(type=kind, method="regex", pattern=pattern, **more)


@pytest.mark.parametrize(
    ("rule", "text", "value"),
    [
        (regex("integer", r"level:\s*(\S+)"), "level: 3, later Level: 7", 7),
        (regex("integer", r"level:\s*(\S+)"), "level: high", None),
        (regex("integer", r"level:\s*([\d.]+)"), "level: 7.5", None),
        (regex("integer", r"level"), "nothing", None),
        (regex("float", r"limit (\S+)"), "limit 10^25", 1e25),
        (regex("float", r"cost ([\d,.]+)"), "cost 1,250.5", 1250.5),
        (regex("float", r"(-?\d+) degrees"), "-4 degrees", -4.0),
        (regex("float", r"level: (\d+)", range=(0, 10)), "level: 11", None),
        (regex("float", r"level: (\d+)", aggregation="max"), "level: 8 level: 3", 8.0),
        (regex("float", r"level: (\d+)", aggregation="sum"), "level: 8 level: 3", 11.0),
        (regex("boolean", r"signed: (\w+)"), "signed: no", False),
        (regex("boolean", r"signed: (\w+)"), "signed: perhaps", None),
        (regex("boolean", r"war"), "peace", False),
        (regex("boolean", r"war"), "there is war", True),
        (regex("string", r"mood: (\w+)", categories=("calm", "tense")), "mood: TENSE", "tense"),
        (regex("string", r"mood: (\w+)", categories=("calm", "tense")), "mood: odd", None),
        (Measure(method="keyword", keywords=("talk",), type="integer"), "talk, Talk and talking", 2),
        (Measure(method="keyword", keywords=("talk",), type="integer"), "silence", 0),
        (Measure(method="keyword", keywords=("talk",), scoring="density"), "we talk now today", 25.0),
        (Measure(method="manual"), "whatever", None),
    ],
)
def test_a_value_has_its_type_or_is_missing(rule, text, value):
    found = read_text(rule, text)

    assert found == value and type(found) is type(value)


def test_an_answer_that_is_no_number_is_missing_and_not_zero():
    assert typed(Measure(type="float", method="model"), "unknown") is None


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
    unlabelled(text, ["Decision"])
    # Quadratic time would be a minute.
    assert time.process_time() - began < 5
