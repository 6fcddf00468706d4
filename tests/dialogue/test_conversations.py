"""A conversation is opened, reminded and ended by a moderator, and stored after each turn."""

import random

import pytest

from proctor.dialogue.conversation import (
    Conversation,
    ConversationCheckpoint,
    ConversationObserver,
    ConversationSettings,
    Side,
    converse,
    has_moderator,
    opening,
    parse_conversation,
    reminder,
    survives_json,
)
from proctor.dialogue.participant import MARK, Participant, Role
from proctor.model_client import ClientTotals

TITLES = {"client": "Client", "therapist": "Therapist"}


class Stage:
    """Two roles that say their lines, and everything that happens between them."""

    def __init__(self, *, client: list[str], therapist: list[str]) -> None:
        self.heard: dict[str, list[str]] = {"client": [], "therapist": []}
        self.moderated: list[str] = []
        self.parties = {
            side: self._party(side, lines) for side, lines in (("client", client), ("therapist", therapist))
        }

    def _party(self, side: str, lines: list[str]) -> Participant:
        left = list(lines)

        async def say(question) -> str:
            self.heard[side].append(question.messages[-1]["content"])
            return left.pop(0) if left else lines[-1]

        role = Role(name=side, plays=[side], steps=[{"ask": {"history": True}}])
        return Participant(role, side, {}, {}, ask=say, note=print, rng=random.Random, titles=TITLES)

    async def play(self, **course) -> Conversation:
        talk = Conversation()
        watcher = ConversationObserver(
            utterance=lambda _: None, moderator_message=self.moderated.append, turn_finished=lambda _: None
        )
        await converse(self.parties, ConversationSettings(**course), watcher, talk)
        return talk


def numbered(word: str) -> list[str]:
    return [f"{word} {number}" for number in range(50)]


async def test_the_side_that_opens_is_reminded_when_few_turns_are_left() -> None:
    stage = Stage(client=numbered("answer"), therapist=numbered("question"))

    talk = await stage.play(max_turns=4, reminder_turns=2)

    assert (talk.turns, talk.end_reason, len(talk.history)) == (4, "max_turns", 8)
    assert stage.heard["therapist"][0] == "[Moderator] You may start the session now."
    assert list(talk.notes) == [0, 4, 6], "each by the number of utterances before it"
    assert [talk.notes[number] for number in talk.notes] == stage.moderated
    beginnings = [words.partition(" left")[0] for words in stage.moderated[1:]]
    assert beginnings == ["[Moderator] 2 turns are", "[Moderator] 1 turn is"]
    assert "2 turns are left" in stage.heard["therapist"][2]
    assert not any("Moderator" in heard for heard in stage.heard["client"])


@pytest.mark.parametrize(
    ("client", "therapist", "course", "ended"),
    [
        (["yes"], ["How are you?", "END"], {}, (1, "therapist_ended", "therapist")),
        (["exit"], ["why", "how"], {}, (0, "client_ended", "client")),
        (["I see!"], ["i see", "I see."], {}, (3, "loop", "moderator")),
        (["I see!"], ["I see."], {"loop_turns": 0}, (9, "max_turns", "moderator")),
        (["yes", "no"] * 9, ["why", "how"] * 9, {}, (6, "loop", "moderator")),
        (["a", "b", "c"] * 9, ["x", "y", "z"] * 9, {"max_turns": 12}, (12, "max_turns", "moderator")),
        (numbered("answer"), ["Go on."], {}, (9, "max_turns", "moderator")),
        (numbered("answer"), numbered("question"), {"opens": "client"}, (9, "max_turns", "moderator")),
    ],
)
async def test_a_conversation_ends_by_a_word_in_a_loop_or_after_its_turns(client, therapist, course, ended):
    talk = await Stage(client=client, therapist=therapist).play(**{"max_turns": 9, **course})

    assert (talk.turns, talk.end_reason, talk.ended_by) == ended
    assert not {"END", "exit"} & {said.text for said in talk.history}
    assert talk.history[0].side == course.get("opens", "therapist")


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
    ("language", "one", "two", "start"),
    [("en", "1 turn is left", "2 turns are left", "You may start"),
     ("de-AT", "bleibt noch 1 Runde", "bleiben noch 2 Runden", "Sie können"),
     ("fr", "1 turn is left", "2 turns are left", "You may start")],
)  # fmt: skip
def test_the_moderator_counts_the_turns_that_are_left(language: str, one: str, two: str, start: str) -> None:
    assert one in reminder(language, 1) and two in reminder(language, 2) and start in opening(language)
    assert has_moderator(language) is (language != "fr")
    assert reminder(language, 2).startswith(f"{MARK} ") and opening(language).startswith(f"{MARK} ")
