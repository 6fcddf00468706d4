"""A conversation is opened, reminded and ended by a moderator, and either side can end it."""

import random
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from proctor.dialogue.conversation import (
    Conversation,
    ConversationObserver,
    ConversationSettings,
    converse,
    repeating,
)
from proctor.dialogue.participant import (
    MOST_TOOL_ROUNDS,
    BrokenRole,
    Participant,
    Role,
    RolePrompt,
    SideClient,
    Utterance,
)
from proctor.dialogue.steps import answer, swap_person
from proctor.dialogue.templating import distance, nearest
from proctor.model import Answer, Request, ToolRequest
from proctor.session import ModelCall

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


async def test_a_turn_is_a_question_and_its_answer_and_the_last_one_ends_it() -> None:
    stage = Stage(client=numbered("answer"), therapist=numbered("question"))

    talk = await stage.play(max_turns=3)

    assert (talk.turns, talk.end_reason, len(talk.history)) == (3, "max_turns", 6)
    assert [said.side for said in talk.history[:2]] == ["therapist", "client"]
    assert stage.heard["therapist"][0] == "[Moderator] You may start the session now."


async def test_the_side_that_opens_is_reminded_when_few_turns_are_left() -> None:
    stage = Stage(client=numbered("answer"), therapist=numbered("question"))

    talk = await stage.play(max_turns=4, reminder_turns=2)

    assert list(talk.notes) == [0, 4, 6], "each by the number of utterances before it"
    assert [talk.notes[number] for number in talk.notes] == stage.moderated
    assert [words.partition(" left")[0] for words in stage.moderated[1:]] == [
        "[Moderator] 2 turns are",
        "[Moderator] 1 turn is",
    ]
    assert "2 turns are left" in stage.heard["therapist"][2]
    assert not any("Moderator" in heard for heard in stage.heard["client"])


async def test_a_therapist_who_says_end_ends_it_without_that_word_or_that_turn() -> None:
    stage = Stage(client=numbered("answer"), therapist=["How are you?", "END"])

    talk = await stage.play(max_turns=9)

    assert (talk.turns, talk.end_reason, talk.ended_by) == (1, "therapist_ended", "therapist")
    assert [said.text for said in talk.history] == ["How are you?", "answer 0"]


async def test_a_client_who_says_exit_ends_it() -> None:
    talk = await Stage(client=["exit"], therapist=numbered("question")).play(max_turns=9)

    assert (talk.turns, talk.end_reason) == (0, "client_ended")


async def test_the_client_may_open() -> None:
    stage = Stage(client=numbered("answer"), therapist=numbered("question"))

    talk = await stage.play(max_turns=1, opens="client")

    assert [said.side for said in talk.history] == ["client", "therapist"]


async def test_two_who_only_repeat_themselves_are_stopped() -> None:
    talk = await Stage(client=["I see!"], therapist=["i see", "I see."]).play(max_turns=50, loop_turns=3)

    assert (talk.turns, talk.end_reason) == (3, "loop")


async def test_a_circle_of_two_is_a_loop_and_one_who_repeats_alone_is_not() -> None:
    circling = Stage(client=["yes", "no"] * 20, therapist=["why", "how"] * 20)
    alone = Stage(client=numbered("answer"), therapist=["Go on."])

    assert (await circling.play(max_turns=50)).turns == 6
    assert (await alone.play(max_turns=9)).end_reason == "max_turns"


async def test_looking_for_loops_can_be_turned_off() -> None:
    talk = await Stage(client=["yes"], therapist=["no"]).play(max_turns=9, loop_turns=0)

    assert talk.end_reason == "max_turns"


def test_nobody_repeats_himself_who_has_said_little() -> None:
    assert repeating([Utterance(side="client", text="a")], 3) == ()


def test_topics_are_as_far_apart_as_the_shortest_way_in_either_direction() -> None:
    graph = {"Health": {"Fitness": 2, "Law": 3}, "Fitness": {"Sport": 1}}

    assert distance(graph, "Sport", "Law") == 6
    assert distance(graph, "Sport", "Sport") == 0
    assert distance(graph, "Sport", "Moon") == float("inf")


def test_the_topic_of_a_sentence_is_the_one_whose_rare_words_it_has() -> None:
    passages = {"Family": "your wife and your son", "Work": "your job and your boss", "Sport": "your match"}

    assert nearest("What does your boss say?", passages) == "Work"
    assert nearest("Did you play the match?", passages) == "Sport"
    assert nearest("Hm.", passages) == ""


RULES = {
    "swap": {"i": "you", "my": "your", "am": "are", "me": "you"},
    "rules": [
        {
            "match": r"\bmy (.+)",
            "rank": 1,
            "reply": "Your {1}?",
            "remember": "Earlier you spoke of your {1}.",
        },
        {"match": r"\bi feel (.+)", "rank": 5, "reply": ["Why do you feel {1}?"]},
    ],
    "otherwise": ["Go on."],
}


def test_the_highest_keyword_answers_with_the_words_turned_round() -> None:
    memory: list[str] = []
    chance = random.Random(1)

    assert (
        answer(RULES, "I feel that my boss hates me.", memory, chance)
        == "Why do you feel that your boss hates you?"
    )
    assert answer(RULES, "It is my job.", memory, chance) == "Your job?"
    assert answer(RULES, "Hm.", memory, chance) == "Earlier you spoke of your job."
    assert answer(RULES, "Hm.", memory, chance) == "Go on."


def test_words_are_turned_round_whole() -> None:
    assert swap_person("I am in my Miami home.", RULES["swap"]) == "you are in your Miami home"


class CallingModel:
    """Calls a tool so many times before it says something."""

    def __init__(self, calls: int) -> None:
        self.left, self.requests = calls, list[Request]()

    async def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        self.left -= 1
        asked = (ToolRequest(id="c1", name="look", arguments="{}"),) if self.left >= 0 else ()
        return Answer(text="let me see" if asked else "found", call=ModelCall(model="m"), tool_requests=asked)


class Exchanges:
    """Tools of a side that note what they are given."""

    def __init__(self) -> None:
        self.given: list[tuple[object, ...]] = []

    def definitions(self) -> list[dict[str, str]]:
        return [{"type": "function"}]

    async def exchange(self, text: str, requests: Sequence[ToolRequest], number: int) -> list[dict[str, str]]:
        self.given.append((text, [each.name for each in requests], number))
        return [{"role": "tool", "content": "a door"}]


def side_client(models: CallingModel) -> SideClient:
    services = SimpleNamespace(models=models, record=lambda event: None)
    return SideClient("client", "m", {"temperature": 1}, services, 7)  # type: ignore[arg-type]


async def test_a_side_calls_its_tools_until_it_says_something() -> None:
    models, tools = CallingModel(2), Exchanges()
    prompt = RolePrompt(
        messages=[{"role": "user", "content": "go"}],
        parameters={"top_p": 0.5},
        is_inner=True,
        tools=tools,  # type: ignore[arg-type]
        number=3,
    )

    assert await side_client(models).ask(prompt) == "found"

    assert tools.given == [("let me see", ["look"], 3)] * 2
    assert len(models.requests) == 3 and len(models.requests[-1].messages) == 3
    last = models.requests[-1]
    assert (last.model, last.seed, last.parameters) == ("m", 7, {"temperature": 1, "top_p": 0.5})
    assert list(last.tools) == [{"type": "function"}]


async def test_a_side_that_only_calls_tools_is_broken() -> None:
    models, tools = CallingModel(1000), Exchanges()
    prompt = RolePrompt(messages=[], parameters={}, is_inner=True, tools=tools)  # type: ignore[arg-type]
    with pytest.raises(BrokenRole, match=r"the client called tools in \d+ successive answers"):
        await side_client(models).ask(prompt)
    assert len(tools.given) == len(models.requests) == MOST_TOOL_ROUNDS
