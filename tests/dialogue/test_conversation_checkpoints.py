"""A conversation is stored after each turn and read back as it was."""

import pytest

from proctor.dialogue.conversation import (
    ConversationCheckpoint,
    Side,
    has_moderator,
    opening,
    parse_conversation,
    reminder,
    survives_json,
)
from proctor.dialogue.participant import MARK
from proctor.model_client import ClientTotals

USAGE = ClientTotals(calls=2, input_tokens=30, output_tokens=4)  # type: ignore[typeddict-unknown-key,typeddict-item]


def test_a_checkpoint_is_one_line_and_comes_back_as_it_was() -> None:
    sides = {
        "client": Side(state={"mood": 3, "name": "Zoë"}, usage=USAGE),
        "therapist": Side(state={}, usage=USAGE, exchanges={4: [{"role": "tool", "content": "x"}]}),
    }
    whole = ConversationCheckpoint(
        turns=3, seed=9, sides=sides, end_reason="max_turns", ended_by="moderator", world={"state": {"a": 1}}
    )
    text = whole.to_json()
    assert "\n" not in text and ", " not in text and "Zoë" in text
    assert parse_conversation(text) == whole

    plain = ConversationCheckpoint(turns=0, seed=0, sides={"client": sides["client"]})
    assert "world" not in plain.to_json() and "exchanges" not in plain.to_json()
    assert parse_conversation(plain.to_json()) == plain


@pytest.mark.parametrize("text", ["turn 1", "{}", '{"turn": 1, "seed": 1}', "[]"])
def test_other_texts_are_no_checkpoint(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        parse_conversation(text)


@pytest.mark.parametrize(
    ("state", "survives"),
    [({}, True), ({"a": [1, "b", None]}, True), ({"a": (1,)}, False), ({"a": {1}}, False), ({1: "a"}, False)],
)
def test_only_states_that_json_can_hold_survive(state: dict[str, object], survives: bool) -> None:
    assert survives_json(state) is survives


@pytest.mark.parametrize(
    ("language", "speaks"), [("en", True), ("de-CH", True), ("zh", True), ("fr", False), ("deutsch", False)]
)
def test_the_moderator_speaks_three_languages(language: str, speaks: bool) -> None:
    assert has_moderator(language) is speaks


@pytest.mark.parametrize(
    ("language", "one", "two", "start"),
    [("en", "1 turn is left", "2 turns are left", "You may start"),
     ("de-AT", "bleibt noch 1 Runde", "bleiben noch 2 Runden", "Sie können"),
     ("fr", "1 turn is left", "2 turns are left", "You may start")],
)  # fmt: skip
def test_the_moderator_counts_the_turns_that_are_left(language: str, one: str, two: str, start: str) -> None:
    assert one in reminder(language, 1) and two in reminder(language, 2) and start in opening(language)
    assert reminder(language, 2).startswith(f"{MARK} ") and opening(language).startswith(f"{MARK} ")
