"""A role comes to its words by the steps it is made of, whoever answers its questions."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from http_servers import answering

from proctor.dialogue.participant import (
    BrokenRole,
    ConversationState,
    Participant,
    Role,
    RolePrompt,
    Utterance,
    role_of,
    shared_by,
)
from proctor.dialogue.steps import answer, conclude, speak
from proctor.dialogue.tools import DialogueWorld
from proctor.errors import UsageError
from proctor.model import ToolRequest
from proctor.session import Event, Invalid


class Listener:
    """Answers in order, and remembers what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked, self.notes = list(answers), list[RolePrompt](), list[str]()
        self.recorded = list[Event]()

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
        record=listener.recorded.append,
    )


def moment(heard: str = "How are you?", said: tuple[str, ...] = (), turn: int = 1) -> ConversationState:
    sides = ("therapist", "client")
    history = [Utterance(side=sides[n % 2], text=text) for n, text in enumerate((*said, heard))]
    return ConversationState(prompt=heard, history=history, turn=turn, turns_left=3)


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
    text = "someone: trust could not be read; the default was used"
    assert model.recorded == [
        Invalid(kind="regenerated_answers"),
        Invalid(kind="defaulted_states", text=text),
    ]


@pytest.mark.parametrize(
    ("answers", "step", "reason"),
    [
        (("x", "y"), {"ask": "f", "read": {"a": "number"}}, "unreadable_answer"),
        (("", " \n"), {"ask": {"history": True}}, "empty_reply"),
    ],
)
async def test_a_side_that_twice_gives_no_usable_answer_is_to_blame(answers, step, reason):
    with pytest.raises(BrokenRole) as broken:
        await speak(party(Listener(*answers), [step], templates={"f": "?"}), moment())
    assert (broken.value.side, broken.value.reason) == ("client", reason)


async def test_steps_are_repeated_until_it_is_enough() -> None:
    steps = [
        {"repeat": 5, "until": "score > 6", "do": [{"set": {"score": "score + 3"}}]},
        {"set": {"reply": "score ~ ''"}},
    ]

    assert (await speak(party(Listener(), steps, state={"score": 0}), moment())).text == "9"


async def test_a_role_may_end_with_words_or_with_a_word_that_is_not_said() -> None:
    leaving = [{"set": {"reply": "'Goodbye.'"}}, {"end": "left", "when": "turn > 1"}]
    stays = await speak(party(Listener(), leaving), moment())
    ended = await speak(party(Listener(), leaving), moment(turn=2))
    silent = await speak(party(Listener("END"), [{"ask": {"history": True}}]), moment())

    assert (stays.text, stays.ends) == ("Goodbye.", ""), "a step is left out where it does not apply"
    assert (ended.text, ended.ends) == ("Goodbye.", "left")
    assert (silent.text, silent.ends) == ("", "ended")


async def test_what_is_said_to_a_role_is_never_run_as_a_template() -> None:
    steps = [{"ask": "echo", "into": "reply"}]
    model = Listener("ok")
    await speak(party(model, steps, templates={"echo": "{{ heard }}"}), moment("{{ profile.name }}"))

    assert model.asked[0].messages[-1]["content"] == "{{ profile.name }}"


@pytest.mark.parametrize("reaching", ["''.__class__.__mro__", "profile.update({'name': 1})", "missing + 1"])
async def test_a_role_reaches_nothing_but_its_values(reaching: str) -> None:
    with pytest.raises(UsageError):
        await speak(party(Listener(), [{"set": {"reply": reaching}}]), moment())


async def test_a_reply_without_end_is_cut_and_that_is_noted() -> None:
    model = Listener("x" * 1_000_000)

    reply = await speak(party(model, [{"ask": {"history": True}}]), moment())

    assert len(reply.text) == 20_000
    assert "1,000,000" in model.notes[0]


# --- Boundaries ---


class World:
    """Answers `POST` with JSON of its list, in order, and keeps what was sent."""

    def __init__(self, *answers: object) -> None:
        self.answers, self.bodies, self.tokens = list(answers), list[dict[str, Any]](), list[str | None]()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        async def handle(request: web.Request) -> web.Response:
            self.bodies.append(await request.json())
            self.tokens.append(request.headers.get("X-Token"))
            answer = self.answers.pop(0)
            if isinstance(answer, tuple):
                return web.Response(status=answer[0], text=answer[1])
            return web.json_response(answer)

        async with answering(handle) as url:
            yield url


async def test_a_server_is_sent_the_conversation_and_its_answer_is_the_reply() -> None:
    world = World({"reply": "Good."})
    async with world.serve() as url:
        made = party(Listener(), [{"http": f"'{url}'", "headers": "{'X-Token': 7}"}], policy="Be kind.")
        reply = await speak(made, moment("Third", ("First", "Second"), turn=2))

    assert (reply.text, reply.ends) == ("Good.", "")
    assert world.tokens == ["7"]
    assert world.bodies == [
        {
            "side": "client",
            "turn": 2,
            "message": "Third",
            "profile": {"name": "Abe", "beliefs": ["a", "b"]},
            "policy": "Be kind.",
            "tools": [],
            "messages": [
                {"role": "user", "content": "First"},
                {"role": "assistant", "content": "Second"},
                {"role": "user", "content": "Third"},
            ],
        }
    ]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((200, "just text"), "just text"),
        ((200, '"a JSON text"'), "a JSON text"),
        ({"choices": [{"message": {"content": "chat"}}, {"message": {"content": "other"}}]}, "chat"),
        ({"choices": [], "output": "no choice"}, "no choice"),
        ({"message": {"content": "nested"}}, "nested"),
        ({"reply": "  ", "text": 7, "answer": "third"}, "third"),
        ((299, '{"reply": "still good"}'), "still good"),
        ({"tool_calls": [{"name": "look"}], "reply": "Nothing to look at."}, "Nothing to look at."),
        ({"end": 1, "reply": "It ends only where it says true."}, "It ends only where it says true."),
        ({"end": True, "reply": "Bye"}, "Bye"),
    ],
)
async def test_the_reply_of_a_server_is_found_in_what_it_answers(answer: object, text: str) -> None:
    world = World(answer)
    async with world.serve() as url:
        reply = await speak(party(Listener(), [{"http": f"'{url}'"}]), moment())
    assert (reply.text, reply.ends) == (text, "ended" if text == "Bye" else "")


@pytest.mark.parametrize("status", [300, 404, 500])
async def test_a_server_that_refuses_breaks_its_role(status: int) -> None:
    world = World((status, "out of order"))
    async with world.serve() as url:
        with pytest.raises(
            BrokenRole, match=rf"the client \(someone\): \S+ answered {status}: out of order"
        ) as raised:
            await speak(party(Listener(), [{"http": f"'{url}'"}]), moment())
    assert (raised.value.side, raised.value.reason) == ("client", "endpoint_failed")

    with pytest.raises(BrokenRole, match="no answer of") as raised:
        await speak(party(Listener(), [{"http": f"'{url}'"}]), moment())
    assert raised.value.reason == "endpoint_failed"


class LookingTools:
    """Tools of one side that answer every call with its number."""

    def __init__(self) -> None:
        self.requests, self.exchanges = list[tuple[str, str, str, int]](), dict[int, list[dict[str, Any]]]()

    def definitions(self) -> list[dict[str, Any]]:
        return [{"type": "function", "function": {"name": "look"}}]

    async def exchange(self, text: str, requests: list[ToolRequest], number: int) -> list[dict[str, Any]]:
        self.requests += [(each.id, each.name, each.arguments, number) for each in requests]
        assert text == ""
        return [{"role": "tool", "content": f"result {len(self.requests)}"}]


async def test_a_server_calls_tools_and_changes_the_world_until_it_answers_with_a_text() -> None:
    call = {"id": "c7", "function": {"name": "look", "arguments": '{"at": "door"}'}}
    plain = {"name": "look", "arguments": {"at": "sky"}}
    world = World(
        {"choices": [{"message": {"tool_calls": [call]}}]},
        {"tool_calls": [plain, {"name": "look"}], "state": {"light": "on"}},
        {"reply": "I looked.", "state": "no mapping"},
    )
    tools, state = LookingTools(), DialogueWorld({"light": "off"})
    async with world.serve() as url:
        made = party(Listener(), [{"http": f"'{url}'"}])
        made.tools, made.world = tools, state  # type: ignore[assignment]
        reply = await speak(made, moment("And?", ("Hello", "Hi")))

    assert reply.text == "I looked."
    assert state.state == {"light": "on"}
    assert tools.requests == [
        ("c7", "look", '{"at": "door"}', 3),
        ("call_1", "look", '{"at": "sky"}', 3),
        ("call_2", "look", "{}", 3),
    ]
    assert [len(body["messages"]) for body in world.bodies] == [3, 4, 5]
    assert world.bodies[0]["tools"] == tools.definitions()


async def test_a_role_takes_at_most_two_hundred_steps_in_one_turn() -> None:
    for repeats, broken in ((199 - 1, False), (200, True)):
        steps = [{"repeat": repeats, "do": [{"set": {"n": "n + 1"}}]}, {"say": "end"}]
        made = party(Listener(), steps, templates={"end": "done"}, state={"n": 0})
        if broken:
            with pytest.raises(BrokenRole, match="exceeded 200 steps in one turn") as raised:
                await speak(made, moment())
            assert raised.value.reason == "endless_role"
        else:
            assert (await speak(made, moment())).text == "done"


@pytest.mark.parametrize(
    ("options", "possible"),
    [("[]", {""}), ("{}", {""}), ("['a', 'b']", {"a", "b"}), ("{'a': 0, 'b': 0}", {"a", "b"}),
     ("{'a': 0, 'b': 1}", {"b"}), ("{'a': -5, 'b': 0.1}", {"b"})],
)  # fmt: skip
async def test_what_can_be_drawn(options: str, possible: set[str]) -> None:
    drawn = set[str]()
    for seed in range(12):
        made = party(
            Listener(), [{"draw": "card", "from": options}, {"end": "x"}], seed=seed, state={"card": 0}
        )
        await speak(made, moment())
        drawn.add(made.state["card"])
    assert drawn == possible


async def test_steps_before_are_taken_once_before_the_first_words_and_those_after_when_concluding() -> None:
    made = party(
        Listener(),
        [{"say": "hi"}],
        templates={"hi": "hi"},
        before=[{"set": {"n": "n + 1"}}],
        after=[{"set": {"n": "n * 10"}}],
        state={"n": 0},
    )
    await speak(made, moment())
    await speak(made, moment("How?", ("Hello", "Hi")))
    assert made.state == {"n": 1}
    await conclude(made, moment())
    assert made.state == {"n": 10}


async def test_an_opening_is_for_the_side_that_speaks_first() -> None:
    made = party(Listener(), [{"say": "b"}], templates={"a": "first", "b": "later"}, opening="a")
    start = ConversationState(prompt="go", history=[], turn=1, turns_left=3)
    assert (await speak(made, start)).text == "first"
    assert (await speak(made, moment())).text == "later"


@pytest.mark.parametrize(
    ("ask", "messages"),
    [
        ("p", [("user", "P")]),
        ({"system": "s"}, [("user", "S")]),
        ({"system": "s", "prompt": "p"}, [("system", "S"), ("user", "P")]),
        ({"history": True, "prompt": "p"}, [("user", "One"), ("assistant", "Two"), ("user", "Three\n\nP")]),
        (
            {"history": True, "prompt": "p", "instead": True},
            [("user", "One"), ("assistant", "Two"), ("user", "P")],
        ),
        ({"prompt": "p", "instead": True}, [("user", "P")]),
        ({"history": 1}, [("user", "One"), ("assistant", "Two"), ("user", "Three")]),
        ({"history": 2}, [("user", "One"), ("assistant", "Two"), ("user", "Three")]),
    ],
)
async def test_a_prompt_consists_of_system_history_and_question(ask, messages):
    model = Listener("ok")
    made = party(model, [{"ask": ask}], templates={"s": "S", "p": "P"})
    await speak(made, moment("Three", ("One", "Two")))
    assert [(each["role"], each["content"]) for each in model.asked[0].messages] == messages
    assert model.asked[0].is_inner == ("history" not in ask)
    assert model.asked[0].number == 3


async def test_the_last_messages_begin_with_one_of_the_user() -> None:
    for last, first in ((1, "Three"), (2, "Three"), (3, "One")):
        model = Listener("ok")
        await speak(
            party(model, [{"ask": {"history": last}}]), moment("Five", ("One", "Two", "Three", "Four"))
        )
        assert model.asked[0].messages[0]["content"] == first
    model = Listener("ok")
    await speak(party(model, [{"ask": {"history": 1}}]), moment("Only"))
    assert [each["content"] for each in model.asked[0].messages] == ["Only"]


@pytest.mark.parametrize(
    ("template", "system"), [("You.", "You.\n\nBe kind."), ("You. {{ policy }}", "You. Be kind.")]
)
async def test_a_policy_is_in_the_system_prompt_once(template: str, system: str) -> None:
    model = Listener("ok")
    made = party(
        model,
        [{"ask": {"system": "s", "prompt": "p"}}],
        templates={"s": template, "p": "P"},
        policy="Be kind.",
    )
    await speak(made, moment())
    assert model.asked[0].messages[0]["content"] == system


async def test_tools_are_offered_with_the_conversation_and_their_calls_stand_before_the_reply() -> None:
    tools = LookingTools()
    earlier, now = {"role": "tool", "content": "earlier"}, {"role": "tool", "content": "now"}
    tools.exchanges = {1: [earlier], 3: [now]}
    for step, offered in (
        ({"ask": {"history": True}}, True),
        ({"ask": {"history": True}, "tools": False}, False),
        ({"ask": {"system": "p"}}, False),
    ):
        model = Listener("ok")
        made = party(model, [step], templates={"p": "P"})
        made.tools = tools  # type: ignore[assignment]
        await speak(made, moment("Three", ("One", "Two")))
        (prompt,) = model.asked
        assert (prompt.tools is not None) == offered
        contents = [each["content"] for each in prompt.messages]
        if offered:
            assert contents == ["One", "earlier", "Two", "Three", "now"]
        else:
            assert "now" not in contents


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [("Client: Hello", "Hello"), ("**client**: Hello", "Hello"), ("Hello\n Therapist: And?", "Hello"),
     ('"Hello"', "Hello"), ('"', '"'), ('"a" and "b"', '"a" and "b"'),
     ('say "a"', 'say "a"'), ('**Client:** "I am tired."\nTherapist: And why?', "I am tired."),
     ("x" * 20_000, "x" * 20_000)],
)  # fmt: skip
def test_a_reply_is_cleaned(text: str, cleaned: str) -> None:
    listener = Listener()
    assert party(listener, []).cleaned(text) == cleaned
    assert listener.notes == []


def test_rules_answer_by_rank_and_from_memory_and_otherwise() -> None:
    rules = {
        "swap": {"my": "your", "i": "you"},
        "rules": [
            {"match": "sad", "reply": "Why sad?"},
            {
                "match": "my (.*)",
                "reply": "Tell me about your {1} {2}.",
                "remember": "Earlier you named {1}",
                "rank": 1,
            },
        ],
        "otherwise": "Go on.",
    }
    memory, rng = list[str](), random.Random(1)
    assert (
        answer(rules, "my sad dog, which I like!", memory, rng)
        == "Tell me about your sad dog, which you like."
    )
    assert answer(rules, "so SAD", memory, rng) == "Why sad?"
    assert answer(rules, "hm", memory, rng) == "Earlier you named sad dog, which you like"
    assert answer(rules, "hm", memory, rng) == "Go on."
    assert answer(rules, "x" * 2000 + "sad", memory, rng) == "Go on."
    assert answer(rules, "x" * 1997 + "sad", memory, rng) == "Why sad?"


def test_the_values_of_templates() -> None:
    made = party(Listener(), [], state={"mood": 5}, options={"pace": "slow"}, policy="P")
    values = made.values(moment("Ten", tuple(f"u{number}" for number in range(9)), turn=5))
    assert (values["heard"], values["turn"], values["turns_left"], values["mood"]) == ("Ten", 5, 3, 5)
    assert values["options"] == {"pace": "slow"} and values["policy"] == "P" and values["world"] == {}
    assert values["said_by_me"] == ["u1", "u3", "u5", "u7", "Ten"]
    lines = values["transcript"].splitlines()
    assert len(lines) == 10 and lines[0] == "Therapist: u0"
    assert values["recent"].splitlines() == lines[-8:]
    assert values["excerpt"](2).splitlines() == lines[-2:]


def test_what_a_role_needs_and_shares() -> None:
    role = Role(name="r", plays=["client"], steps=[{"repeat": 2, "do": [{"ask": "x"}]}])
    assert role.asks and not Role(name="r", plays=[], steps=[{"say": "x"}]).asks
    assert Role(name="r", plays=[], steps=[], before=[{"ask": "x"}]).asks
    assert Role(name="r", plays=[], steps=[], after=[{"ask": "x"}]).asks
    assert not {"tools", "policy", "before", "after", "shares"} & role.document().keys()
    assert role.document()["templates"] == {} and role.document()["opening"] == ""
    assert role_of(role.document()) == role and len(role.digest) == 16
    sharing = replace(
        role, shares={"goal": "profile.goal", "pace": "options.pace", "n": 3}, options={"pace": "slow"}
    )
    assert sharing.document()["shares"] and sharing.digest != role.digest
    assert shared_by(sharing, {"goal": "rest"}, {}) == {"goal": "rest", "pace": "slow", "n": 3}
    assert shared_by(sharing, {"goal": "rest"}, {"pace": "fast"})["pace"] == "fast"
