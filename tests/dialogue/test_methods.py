"""Each built-in role does what the published method it names does."""

import json
import random
from collections import Counter
from typing import Any

import pytest

from proctor.dialogue.participant import ConversationState, Participant, RolePrompt, Utterance
from proctor.dialogue.steps import RoleReply, speak
from proctor.jobs.dialogue.roles import Roles

ROLES = Roles()
TITLES = {"client": "Client", "therapist": "Therapist"}


class Played:
    """One role in a conversation, whose model answers fields and words as it is told."""

    def __init__(
        self,
        name: str,
        profile: str = "",
        *,
        seed: int = 1,
        options: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        folder = ROLES.find(name)
        self.fields, self.asked = fields, list[RolePrompt]()
        self.side = folder.plays[0]
        self.history: list[Utterance] = []
        self.words = (f"Words {number}." for number in range(1000))
        self.party = Participant(
            folder.role("en"),
            self.side,
            folder.profiles[profile or next(iter(folder.profiles))],
            options or {},
            ask=self._answer,
            note=lambda _: None,
            rng=lambda turn: random.Random(f"{seed}:{turn}"),
            titles=TITLES,
        )

    async def _answer(self, question: RolePrompt) -> str:
        self.asked.append(question)
        if "Answer with one JSON object" in question.messages[-1]["content"]:
            return json.dumps(self.fields)
        return next(self.words)

    async def hear(self, words: str, turn: int = 2) -> RoleReply:
        other = "therapist" if self.side == "client" else "client"
        self.history.append(Utterance(side=other, text=words))
        reply = await speak(
            self.party, ConversationState(prompt=words, history=self.history, turn=turn, turns_left=5)
        )
        self.history.append(Utterance(side=self.side, text=reply.text))
        return reply

    @property
    def state(self) -> dict[str, Any]:
        return self.party.state

    def told(self) -> str:
        """All that its model was told in the last turn but one question."""
        return "\n".join(message["content"] for message in self.asked[-1].messages)


@pytest.mark.parametrize("style", ["plain", "upset", "verbose", "reserved", "tangent", "pleasing"])
async def test_patient_psi_talks_from_its_cognitive_model_in_six_ways(style: str) -> None:
    played = Played("patientPsi", "wei", options={"patient_type": style})

    await played.hear("How are you?")

    told = played.told()
    for part in (
        "worked there from the age of nine",
        "I am worthless.",
        "A man is what he earns",
        "hopeless",
    ):
        assert part in told
    manner = told.partition("How you talk: ")[2].partition("\n")[0]
    others = Played("patientPsi", "wei", options={"patient_type": "plain" if style != "plain" else "upset"})
    await others.hear("How are you?")
    assert manner and manner not in others.told()


async def test_eeyore_shows_its_symptoms_with_their_severity_and_none_it_has_not() -> None:
    played = Played("eeyore", "nadia")

    await played.hear("How are you?")

    assert "sleep disturbances: Severe" in played.told()
    assert "recurrent thoughts of death" not in played.told()
    assert "Not exhibited" not in played.told()


DISTRIBUTION = {"Deny": 20, "Downplay": 20, "Blame": 20, "Inform": 20, "Engage": 20}


async def test_a_client_before_contemplation_draws_its_actions_by_context_and_receptivity() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(300):
        played = Played("consistentMI", "pavel", seed=seed, **DISTRIBUTION)
        await played.hear("Hm.")
        drawn[played.state["action"]] += 1

    assert set(drawn) == {"Deny", "Downplay", "Blame", "Inform", "Engage"}
    # The model's flat 20 each, and the table of low receptivity: Downplay 25, Inform 30, Blame 10.
    assert drawn["Inform"] > drawn["Blame"]
    assert drawn["Downplay"] > drawn["Blame"]


async def test_it_is_the_more_engaged_the_nearer_the_counsellor_comes_to_what_moves_it() -> None:
    engagement = {}
    for words in (
        "What about your son, and your time with your child?",
        "How are the kids at home, the raising of children?",
        "Did your dentist look at your teeth and gums?",
    ):
        played = Played("consistentMI", "pavel", addressed=False, rationale="", **DISTRIBUTION)
        await played.hear(words)
        engagement[words] = played.state["engagement"]

    assert list(engagement.values()) == [4, 3, 1]


async def test_it_begins_to_waver_once_its_motivation_has_been_found() -> None:
    played = Played("consistentMI", "pavel", addressed=True, rationale="named", **DISTRIBUTION)

    await played.hear("What about your son, and your time with your child?")

    assert played.state["stage"] == "Contemplation"
    assert played.state["action"] == "Acknowledge"
    assert "no longer asks whether you are coming" in played.told()


async def test_it_prepares_once_its_doubts_are_used_up_and_then_brings_its_own_plans() -> None:
    hesitating = {"Inform": 0, "Engage": 0, "Hesitate": 100, "Doubt": 0, "Acknowledge": 0, "number": 1}
    played = Played("consistentMI", "deniz", **hesitating)
    for _ in range(2):
        await played.hear("What holds you back?")
    assert played.state["beliefs"] == []

    played.fields = {"Inform": 0, "Engage": 0, "Reject": 0, "Accept": 0, "Plan": 100}
    await played.hear("What now?")

    assert played.state["stage"] == "Preparation"
    assert "walk round the station" in played.told()
    assert len(played.state["plans"]) == 1
    assert len(played.party.profile["Acceptable Plans"]) == 2


async def test_it_leaves_when_it_has_been_talked_past_too_often() -> None:
    played = Played("consistentMI", "pavel", **DISTRIBUTION)
    replies = [await played.hear("Did your dentist look at your teeth?", turn=11 + n) for n in range(5)]

    assert [reply.ends for reply in replies] == ["", "", "", "", "left"]
    assert played.state["action"] == "Terminate"


async def test_drafts_that_break_a_principle_are_written_anew() -> None:
    broken = {"questions": ["Short?"], "answers": ["No, it is long."], "rewritten_answer": "Better."}
    kept = broken | {"answers": ["Yes", "Not applicable"]}

    assert (await Played("roleplayDoh", **broken).hear("Hello")).text == "Better."
    assert (await Played("roleplayDoh", **kept).hear("Hello")).text == "Words 0."


async def test_the_principle_is_drawn_by_the_seed() -> None:
    async def drawn(seed: int) -> str:
        played = Played("roleplayDoh", seed=seed, questions=[], answers=[], rewritten_answer="")
        await played.hear("Hello")
        return str(played.state["principle"])

    assert await drawn(1) == await drawn(1)
    assert len({await drawn(seed) for seed in range(20)}) > 5


async def test_four_states_are_judged_anew_after_each_exchange() -> None:
    played = Played("simPatient", "cook", control=6, efficacy=6, awareness=4, reward=99, reasoning="")

    await played.hear("What did you drink?")
    await played.hear("And then?")

    assert {name: played.state[name] for name in ("control", "efficacy", "awareness", "reward")} == {
        "control": 6,
        "efficacy": 6,
        "awareness": 4,
        "reward": 10,
    }
    spoken = [question for question in played.asked if not question.is_inner]
    assert "under control: 7" in spoken[0].messages[0]["content"]
    assert "under control: 6" in spoken[1].messages[0]["content"]


async def test_a_client_whose_mood_falls_to_ten_walks_out() -> None:
    thought = {"thinking": "", "emotion_change": -20, "intention": "out", "nonverbal_behavior": "stands up"}
    played = Played("cars", **thought, content="No.")

    replies = [await played.hear("You should try harder.") for _ in range(2)]

    assert [(reply.text, reply.ends) for reply in replies] == [("No.", ""), ("No.", "walked_out")]
    assert played.state["emotion"] == 10


@pytest.mark.parametrize(
    ("fields", "kind", "policy"),
    [
        ({"question": "inquiry", "specific": "specific", "found": True, "passage": "twice a month"},
         "inquiry-specific-known", "twice a month"),
        ({"question": "inquiry", "specific": "specific", "found": False, "passage": ""},
         "inquiry-specific-unknown", "do not know"),
        ({"question": "inquiry", "specific": "broad"}, "inquiry-broad", "troubles you most"),
        ({"question": "advice", "specific": "broad"}, "advice-broad", "what exactly"),
        ({"question": "demand"}, "demand", "cannot do this here"),
        ({"question": "other"}, "other", "without telling anything"),
    ],
)  # fmt: skip
async def test_a_patient_tells_only_what_is_asked_for(fields: dict[str, Any], kind: str, policy: str) -> None:
    played = Played("saps", "student", **fields)

    await played.hear("How often?")

    assert played.state["kind"] == kind
    assert policy in played.told()
    assert "eye test" not in played.told(), "what was not asked for is not even shown to the model"


async def test_a_patient_who_is_dismissed_says_thanks_and_goes() -> None:
    reply = await Played("saps", question="farewell").hear("Goodbye then.")

    assert (reply.text, reply.ends) == ("Thank you, doctor.", "said_goodbye")


MARKED = {"analysis": "", "stage": "Contemplation", "strategies": ["Affirm", "Juggle", "Reframe", "Advise"],
          "move": "Switch", "topic": "Economy", "best": 3, "topic_score": 4, "strategy_score": 4,
          "advice": "shorter"}  # fmt: skip


async def test_a_counsellor_writes_a_candidate_for_each_strategy_and_one_for_both_and_picks_one() -> None:
    played = Played("MI", **MARKED)
    played.history.append(Utterance(side="therapist", text="Hello."))

    reply = await played.hear("I drink.")

    assert played.state["strategies"] == ["Affirm", "Reframe"]
    assert (played.state["stage"], played.state["topic"], played.state["path"]) == (
        "Contemplation",
        "Economy",
        ["Economy"],
    )
    assert reply.text == "Words 2."
    assert played.state["score"] == 8


async def test_a_counsellor_rewrites_up_to_three_times_what_is_not_good_enough() -> None:
    played = Played("MI", **(MARKED | {"strategy_score": 1}))
    played.history.append(Utterance(side="therapist", text="Hello."))

    reply = await played.hear("I drink.")

    assert reply.text == "Words 5."


async def test_a_mark_that_cannot_be_read_is_none_and_not_full_marks() -> None:
    played = Played("MI", **(MARKED | {"topic_score": "very good"}))
    played.history.append(Utterance(side="therapist", text="Hello."))

    reply = await played.hear("I drink.")

    assert reply.text == "Words 2."
    assert played.state["score"] is None


async def test_a_counsellor_steps_into_a_topic_and_out_of_it_again() -> None:
    played = Played("MI", **MARKED)
    played.history.append(Utterance(side="therapist", text="Hello."))
    await played.hear("I drink.")
    paths = []
    for move, topic in (
        ("Step Into", "Employment"),
        ("Step Into", "Salary"),
        ("Stay", ""),
        ("Step Out", "Nothing"),
    ):
        played.fields = MARKED | {"move": move, "topic": topic}
        await played.hear("Go on.")
        paths.append(played.state["path"])

    assert paths == [
        ["Economy", "Employment"],
        ["Economy", "Employment", "Salary"],
        ["Economy", "Employment", "Salary"],
        ["Economy", "Employment"],
    ]


async def test_eliza_greets_and_then_answers_by_rules() -> None:
    played = Played("eliza")
    greeting = await speak(played.party, ConversationState(prompt="", history=[], turn=1, turns_left=5))
    played.history.append(Utterance(side="therapist", text=greeting.text))

    reply = await played.hear("I need a holiday.")

    assert greeting.text.startswith("How do you do")
    assert "a holiday" in reply.text
    assert played.asked == []


async def test_a_customer_who_has_what_they_wanted_leaves_content_and_another_gives_up() -> None:
    content = await Played("customer", patience=5, solved=True).hear("Done!")
    gone = await Played("customer", patience=0, solved=False).hear("Please hold.")

    assert (content.ends, gone.ends) == ("satisfied", "gave_up")


async def test_a_student_leaves_when_the_mistake_is_understood() -> None:
    assert (await Played("student", understanding=9).hear("And why?")).ends == "understood"
    assert (await Played("student", understanding=8).hear("And why?")).ends == ""
