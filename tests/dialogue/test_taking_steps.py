"""A role comes to its words by the steps it is made of, whoever answers its questions."""

import random
from typing import Any

import pytest

from proctor.dialogue.participant import (
    BrokenRole,
    ConversationState,
    Participant,
    Role,
    RolePrompt,
    Utterance,
)
from proctor.dialogue.steps import speak
from proctor.errors import UsageError


class Listener:
    """Answers in order, and remembers what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked, self.notes = list(answers), list[RolePrompt](), list[str]()

    async def __call__(self, question: RolePrompt) -> str:
        self.asked.append(question)
        return self.answers.pop(0)


def party(listener: Listener, steps: list[dict[str, Any]], *, seed: int = 1, **role: Any) -> Participant:
    made = Role(name="someone", plays=["client"], steps=steps, **role)
    return Participant(
        made,
        "client",
        {"name": "Abe", "beliefs": ["a", "b"]},
        {},
        ask=listener,
        note=listener.notes.append,
        rng=lambda turn: random.Random(f"{seed}:{turn}"),
        titles={"client": "Client", "therapist": "Therapist"},
    )


def moment(heard: str = "How are you?", said: tuple[str, ...] = (), turn: int = 1) -> ConversationState:
    sides = ("therapist", "client")
    history = [Utterance(side=sides[n % 2], text=text) for n, text in enumerate((*said, heard))]
    return ConversationState(prompt=heard, history=history, turn=turn, turns_left=3)


async def test_the_other_is_the_models_user_and_the_role_its_assistant() -> None:
    model = Listener("Well enough.")
    templates = {"system": "You are {{ profile.name }}."}
    made = party(model, [{"ask": {"system": "system", "history": True}}], templates=templates)

    reply = await speak(made, moment("And today?", ("Hello", "Hi")))

    assert reply.text == "Well enough."
    assert [(m["role"], m["content"]) for m in model.asked[0].messages] == [
        ("system", "You are Abe."),
        ("user", "Hello"),
        ("assistant", "Hi"),
        ("user", "And today?"),
    ]


async def test_what_is_read_changes_the_state_and_what_is_not_in_the_state_is_forgotten() -> None:
    model = Listener('{"trust": 3, "mood": "low"}', "So so.")
    steps = [
        {"ask": "feel", "read": {"trust": "integer 1..10", "mood": "text"}},
        {"ask": {"prompt": "answer"}},
    ]
    templates = {"feel": "?", "answer": "trust {{ trust }}, mood {{ mood }}"}
    made = party(model, steps, templates=templates, state={"trust": 5})

    await speak(made, moment())

    assert model.asked[1].messages[-1]["content"] == "trust 3, mood low"
    assert made.state == {"trust": 3}


async def test_an_answer_that_cannot_be_read_is_asked_for_again_and_then_done_without() -> None:
    model = Listener("no idea", "still none", "Fine.")
    steps = [
        {"ask": "feel", "read": {"trust": "integer 1..10"}, "otherwise": {"trust": "trust + 1"}},
        {"ask": "feel"},
    ]
    made = party(model, steps, templates={"feel": "?"}, state={"trust": 5})

    await speak(made, moment())

    assert made.state == {"trust": 6}
    assert "could not be read" in model.notes[0]


async def test_without_something_to_go_on_with_the_side_is_to_blame() -> None:
    made = party(Listener("x", "y"), [{"ask": "f", "read": {"a": "number"}}], templates={"f": "?"})

    with pytest.raises(BrokenRole) as broken:
        await speak(made, moment())
    assert (broken.value.side, broken.value.reason) == ("client", "unreadable_answer")


async def test_a_role_that_says_nothing_twice_is_to_blame() -> None:
    with pytest.raises(BrokenRole) as broken:
        await speak(party(Listener("", " \n"), [{"ask": {"history": True}}]), moment())
    assert broken.value.reason == "empty_reply"


async def test_steps_are_left_out_when_they_do_not_apply() -> None:
    steps = [
        {"set": {"reply": "'first'"}},
        {"set": {"reply": "'later'"}, "when": "turn > 1"},
    ]
    made = party(Listener(), steps)

    assert (await speak(made, moment())).text == "first"
    assert (await speak(made, moment(turn=2))).text == "later"


async def test_candidates_are_collected_and_one_is_chosen() -> None:
    model = Listener("one", "two", '{"best": 2}')
    steps = [
        {"set": {"candidates": "[]"}},
        {
            "for": "manner",
            "in": "['warm', 'cool']",
            "do": [
                {"ask": "try", "into": "candidate"},
                {"set": {"candidates": "candidates + [candidate]"}},
            ],
        },
        {"ask": "try", "read": {"best": "integer 1..2"}},
        {"set": {"reply": "candidates[best - 1]"}},
    ]
    made = party(model, steps, templates={"try": "{{ manner }}"})

    assert (await speak(made, moment())).text == "two"
    assert [question.messages[-1]["content"] for question in model.asked[:2]] == ["warm", "cool"]


async def test_steps_are_repeated_until_it_is_enough() -> None:
    steps = [
        {"repeat": 5, "until": "score > 6", "do": [{"set": {"score": "score + 3"}}]},
        {"set": {"reply": "score ~ ''"}},
    ]

    assert (await speak(party(Listener(), steps, state={"score": 0}), moment())).text == "9"


async def test_luck_is_the_seeds() -> None:
    steps = [{"draw": "reply", "from": "['a', 'b', 'c', 'd', 'e', 'f']"}]

    async def drawn(seed: int) -> list[str]:
        made = party(Listener(), steps, seed=seed)
        return [(await speak(made, moment())).text for _ in range(8)]

    assert await drawn(1) == await drawn(1)
    assert await drawn(1) != await drawn(2)


async def test_weights_decide_how_often_something_is_drawn() -> None:
    made = party(Listener(), [{"draw": "reply", "from": '{"often": 99, "never": 0, "seldom": 1}'}])

    drawn = [(await speak(made, moment())).text for _ in range(300)]

    assert "never" not in drawn
    assert drawn.count("often") > 250


async def test_a_role_may_end_with_words_or_with_a_word_that_is_not_said() -> None:
    leaving = [{"set": {"reply": "'Goodbye.'"}}, {"end": "left", "when": "turn > 1"}]
    ended = await speak(party(Listener(), leaving), moment(turn=2))
    silent = await speak(party(Listener("END"), [{"ask": {"history": True}}]), moment())

    assert (ended.text, ended.ends) == ("Goodbye.", "left")
    assert (silent.text, silent.ends) == ("", "ended")


async def test_names_before_and_other_peoples_words_behind_a_reply_are_taken_off() -> None:
    model = Listener('**Client:** "I am tired."\nTherapist: And why?')

    assert (await speak(party(model, [{"ask": {"history": True}}]), moment())).text == "I am tired."


async def test_what_is_said_to_a_role_is_never_run_as_a_template() -> None:
    steps = [{"ask": "echo", "into": "reply"}]
    model = Listener("ok")
    await speak(party(model, steps, templates={"echo": "{{ heard }}"}), moment("{{ profile.name }}"))

    assert model.asked[0].messages[-1]["content"] == "{{ profile.name }}"


@pytest.mark.parametrize("reaching", ["''.__class__.__mro__", "profile.update({'name': 1})", "missing + 1"])
async def test_a_role_reaches_nothing_but_its_values(reaching: str) -> None:
    with pytest.raises(UsageError):
        await speak(party(Listener(), [{"set": {"reply": reaching}}]), moment())


async def test_what_a_role_uses_up_is_still_in_its_profile() -> None:
    steps = [{"set": {"beliefs": "beliefs[1:]", "reply": "beliefs | join"}}]
    made = party(Listener(), steps, state={"beliefs": "profile.beliefs"})

    assert (await speak(made, moment())).text == "b"
    assert made.profile["beliefs"] == ["a", "b"]


async def test_a_reply_without_end_is_cut_and_that_is_noted() -> None:
    model = Listener("x" * 1_000_000)

    reply = await speak(party(model, [{"ask": {"history": True}}]), moment())

    assert len(reply.text) == 20_000
    assert "1,000,000" in model.notes[0]
