"""What a model answered is read as it was meant, and what cannot be read is said."""

import pytest

from proctor.errors import UsageError
from proctor.evaluators.answer_parser import AnswerField, field_of, instructions_for, read_answer

STAGE = {"stage": field_of(["Early", "Late"])}
MARK = {"mark": field_of("integer 1..5"), "why": field_of("text")}


@pytest.mark.parametrize(
    "said",
    [
        '{"mark": 4, "why": "clear"}',
        'Sure! Here it is:\n```json\n{"mark": 4, "why": "clear"}\n```\nAnything else?',
        '{"Mark": "4 out of 5", "WHY": "clear",}',
        'I first thought {"mark": 1} but {"mark": 4, "why": "clear"}',
        '{"note": "{not this}"} {"mark": 4.2, "why": "clear"}',
    ],
)
def test_fields_are_found_in_whatever_surrounds_them(said: str) -> None:
    assert read_answer(said, MARK).values == {"mark": 4, "why": "clear"}


def test_numbers_beyond_their_range_are_brought_to_its_end() -> None:
    assert read_answer('{"mark": 11, "why": ""}', MARK).values["mark"] == 5
    assert read_answer('{"mark": -3, "why": ""}', MARK).values["mark"] == 1


def test_what_is_missing_or_of_another_kind_is_named() -> None:
    reading = read_answer('{"mark": "none", "why": null}', MARK)

    assert reading.values == {}
    assert reading.missing == ("mark", "why")


@pytest.mark.parametrize("said", ["Late", '"Late"', "I would say Late.", '{"stage": "late"}'])
def test_one_choice_may_be_said_without_any_json(said: str) -> None:
    assert read_answer(said, STAGE).values == {"stage": "Late"}


def test_a_choice_that_names_two_is_none() -> None:
    assert read_answer("Early, or rather Late", STAGE).missing == ("stage",)


@pytest.mark.parametrize(
    ("said", "truth"),
    [("Yes.", True), ("No, not yet", False), ('{"ok": true}', True), ('{"ok": "no"}', False)],
)
def test_yes_and_no_are_understood(said: str, truth: bool) -> None:
    assert read_answer(said, {"ok": field_of("truth")}).values == {"ok": truth}


@pytest.mark.parametrize(
    "hostile", ["{" * 100_000, '{"mark":' * 5_000, '{"mark": NaN, "why": "x"}', "\ud800"]
)
def test_hostile_answers_cost_little_and_come_to_nothing(hostile: str) -> None:
    assert "mark" in read_answer(hostile, MARK).missing


def test_a_list_is_cut_to_a_length_someone_can_have_meant() -> None:
    reading = read_answer('{"all": [' + ",".join(['"x"'] * 1000) + "]}", {"all": AnswerField(kind="list")})

    assert len(reading.values["all"]) == 50


def test_the_question_says_what_is_instructions_for() -> None:
    asked = instructions_for({**STAGE, **MARK})

    assert '"stage": one of "Early", "Late"' in asked
    assert '"mark": a whole number from 1 to 5' in asked


@pytest.mark.parametrize("wrong", ["words", "text 1..2", [], [1, 2]])
def test_a_kind_there_is_none_of_is_refused(wrong: object) -> None:
    with pytest.raises(UsageError):
        field_of(wrong)
