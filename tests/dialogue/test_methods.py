"""Each built-in role does what the published method it names does."""

import json
import random
from collections import Counter
from typing import Any

import pytest

from proctor.dialogue.participant import ConversationState, Participant, RolePrompt, Utterance
from proctor.dialogue.steps import RoleReply, speak
from proctor.jobs.dialogue.roles import Roles
from proctor.testing.model_server import ModelServer, ServerReply

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
        profile_data: dict[str, Any] | None = None,
        previous: dict[str, Any] | None = None,
        other: dict[str, Any] | None = None,
        own_weights: bool = False,
        **fields: Any,
    ) -> None:
        folder = ROLES.find(name)
        self.notes: list[str] = []
        self.fields, self.asked = fields, list[RolePrompt]()
        self.side = folder.plays[0]
        self.history: list[Utterance] = []
        self.words = (f"Words {number}." for number in range(1000))
        self.party = Participant(
            folder.role("en"),
            self.side,
            profile_data or folder.profiles[profile or next(iter(folder.profiles))],
            options or {},
            ask=self._answer,
            note=self.notes.append,
            previous=previous,
            other=other,
            own_weights=own_weights,
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


DISTRIBUTION = {"Deny": 20, "Downplay": 20, "Blame": 20, "Inform": 20, "Engage": 20}


async def test_a_client_before_contemplation_draws_its_actions_by_context_and_receptivity() -> None:
    drawn: Counter[str] = Counter()
    for seed in range(150):
        played = Played("consistentMI", "pavel", seed=seed, **DISTRIBUTION)
        await played.hear("Hm.")
        drawn[played.state["action"]] += 1

    assert set(drawn) == {"Deny", "Downplay", "Blame", "Inform", "Engage"}
    # The model's flat 20 each, and the table of low receptivity: Downplay 25, Inform 30, Blame 10.
    assert drawn["Inform"] > drawn["Blame"]
    assert drawn["Downplay"] > drawn["Blame"]


async def test_it_is_the_more_engaged_the_nearer_the_counselor_comes_to_what_moves_it() -> None:
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

    states = {name: played.state[name] for name in ("control", "efficacy", "awareness", "reward")}
    assert states == {"control": 6, "efficacy": 6, "awareness": 4, "reward": 10}
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


MARKED = {"analysis": "", "stage": "Contemplation", "strategies": ["Affirm", "Juggle", "Reframe", "Advise"],
          "move": "Switch", "topic": "Economy", "best": 3, "topic_score": 4, "strategy_score": 4,
          "advice": "shorter", "interests": "money", "economy": 80, "relationships": 10, "health": 10,
          "law": 0, "education": 0}  # fmt: skip


@pytest.mark.parametrize(
    ("marks", "words", "score"),
    [
        ({}, "Words 2.", 8),
        # What is not good enough is rewritten up to three times; what cannot be read is no mark.
        ({"strategy_score": 1}, "Words 5.", 5),
        ({"topic_score": "very good"}, "Words 2.", None),
    ],
)
async def test_a_counselor_writes_a_candidate_for_each_strategy_and_one_for_both_and_picks_one(
    marks: dict[str, Any], words: str, score: int | None
) -> None:
    played = Played("MI", **(MARKED | marks))
    played.history.append(Utterance(side="therapist", text="Hello."))

    reply = await played.hear("I drink.")

    assert played.state["strategies"] == ["Affirm", "Reframe"]
    assert (played.state["stage"], played.state["topic"]) == ("Contemplation", "Economy")
    assert played.state["path"] == ["Economy"]
    assert (reply.text, played.state["score"]) == (words, score)


async def test_a_counselor_steps_into_a_topic_and_out_of_it_again() -> None:
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


ANSWERS: dict[str, dict[str, Any]] = {
    "annaAgent": {"felt": "sadness", "advanced": True, "refers": True},
    "adaptiveVP": {"calm": True, "clear": True, "empathy": 4, "autonomy": True, "limit_setting": False,
                   "reframing": True, "premature_empathy": False, "invalidating": False, "dismissive": False,
                   "inner_monologue": "Hm.", "content": "All right.", "non_verbal": "nods"},
    "mindVoyager": {"rapport": 5, "questioning": 5},
    "patientAct": {"topics": ["Friends"], "reaction": "understood", "intensity": "low",
                   "behavior": "recounting", "change": "+0.5"},
}  # fmt: skip
SIMPLE = ("psyche_patient", "clientCast", "talkDep", "patientZero", "deprofile")


@pytest.mark.parametrize("name", [*SIMPLE, *ANSWERS])
async def test_a_client_speaks_from_each_of_its_profiles(name: str) -> None:
    profiles = ROLES.find(name).profiles
    assert profiles
    for profile in profiles:
        played = Played(name, profile, **ANSWERS.get(name, {}))

        reply = await played.hear("How have you been, and how are your friends?")

        assert reply.text, profile
        prompts = "\n".join(str(m["content"]) for question in played.asked for m in question.messages)
        assert "{{" not in prompts and "Undefined" not in prompts, profile
        assert "\n\n\n\n" not in prompts, profile


async def test_a_psychiatric_patient_speaks_as_much_as_its_verbal_productivity() -> None:
    lengths = {}
    for profile in ("yun", "brandao", "hollis"):
        played = Played("psyche_patient", profile)
        await played.hear("What brings you here?")
        lengths[profile] = played.told()

    assert "at most one sentence" in lengths["yun"]
    assert "four to six sentences" in lengths["brandao"]
    assert "One to three sentences" in lengths["hollis"]
    assert "wakes at four" in lengths["yun"]
    assert "Triggering factor: saw a crash" in lengths["hollis"]


async def test_an_emotion_strays_now_and_then_and_never_to_itself() -> None:
    felt: Counter[str] = Counter()
    for seed in range(400):
        played = Played("annaAgent", "milan", seed=seed, felt="sadness", advanced=False, refers=False)
        await played.hear("How was school?")
        felt[played.state["emotion"]] += 1

    strayed = 400 - felt["sadness"]
    # 10 of 101.
    assert 20 <= strayed <= 62
    negative = sum(felt[each] for each in ("anger", "annoyance", "fear", "grief", "remorse", "disgust"))
    assert negative > felt["joy"] + felt["love"]


async def test_a_complaint_chain_moves_on_once_it_is_recognized_and_stays_at_its_end() -> None:
    played = Played("annaAgent", "hedda", felt="fear", advanced=True, refers=True)
    chain = []
    for _ in range(4):
        await played.hear("You fear for your place.")
        chain.append(played.state["chain"])

    assert chain == [2, 3, 3, 3]
    assert "she is nobody" in played.told()
    assert played.state["recalled"] is True
    assert "You remember from before: Words" in played.told()


@pytest.mark.parametrize(
    ("fields", "score"),
    [
        ({"calm": False, "empathy": 0}, 0),
        ({"calm": True, "clear": True, "empathy": 3, "autonomy": True, "limit_setting": True,
          "reframing": True}, 5),
        ({"calm": True, "clear": True, "empathy": 3, "dismissive": True}, 1),
    ],
)  # fmt: skip
async def test_a_patient_is_as_hostile_as_the_nurse_was_clumsy(fields: dict[str, Any], score: int) -> None:
    spoken = {"inner_monologue": "", "content": "Well.", "non_verbal": ""}
    no = dict.fromkeys(
        ("calm", "clear", "autonomy", "limit_setting", "reframing", "premature_empathy", "invalidating",
         "dismissive"), False,
    )  # fmt: skip
    played = Played("adaptiveVP", **{**no, "empathy": 0, **spoken, **fields})

    reply = await played.hear("Calm down.")

    assert played.state["score"] == score
    assert reply.text == "Well."
    assert ("You are hostile" in played.told()) == (score == 0)


async def test_masks_fall_with_rapport_and_with_good_questions() -> None:
    played = Played("mindVoyager", "bastian", options={"preset_level": "hard"}, rapport=5, questioning=4)
    seen = []
    for turn in range(1, 5):
        await played.hear("Tell me more.", turn=turn)
        seen.append((played.state["visible"], played.state["knows_self"]))
    await played.hear("And why?", turn=5)

    # Low metacognition is asked about every second turn, rapport every fourth.
    assert seen == [(1, False), (1, True), (1, True), (2, True)]
    told = played.asked[-1].messages[0]["content"]
    assert "only worth what I achieve" in told
    assert "felt cornered" in told
    assert "called himself useless" not in told


async def test_memories_open_with_trust_and_closed_ones_are_felt() -> None:
    played = Played("patientAct", "rhea", **(ANSWERS["patientAct"] | {"change": "-0.25"}))
    await played.hear("What about your friends?")

    assert (played.state["disclosed"], played.state["blocked_count"], played.state["trust"]) == (2, 1, 2.25)
    spoken = next(each for each in reversed(played.asked) if not each.is_inner)
    told = "\n".join(str(message["content"]) for message in spoken.messages)
    assert "only ask me out of pity" in told
    assert "nobody came to her birthday" not in told
    assert "keep it closed" in told


async def test_states_start_at_random_without_a_model_and_where_the_previous_session_ended() -> None:
    persona = {"age": 40, "gender": "f", "ethnicity": "e", "occupation": "o", "mbti": "INTJ"}
    drawn = set()
    for seed in range(20):
        played = Played("simPatient", seed=seed, profile_data={"persona": persona})
        await played.hear("Hello.", turn=1)
        drawn.add(played.state["control"])
    assert len(drawn) > 4
    assert min(drawn) >= 1

    previous = {"messages": [{"role": "client", "content": "I cut down."}], "states": {"control": 9}}
    played = Played("simPatient", profile_data={"persona": persona}, previous=previous)
    await played.hear("How was your week?", turn=1)
    assert played.state["control"] == 9
    assert played.state["event"] == "Words 0."
    told = str(next(each for each in played.asked if not each.is_inner).messages[0]["content"])
    assert "I cut down." in told
    assert "since the last session: Words 0." in told


async def test_own_weights_get_the_plain_list_of_all_pairs() -> None:
    own, other = Played("eeyore", "ines", own_weights=True), Played("eeyore", "ines")
    for played in (own, other):
        await played.hear("How are you?")

    assert "recurrent thoughts of death: Not exhibited" in own.told()
    assert "Not exhibited" not in other.told()


async def test_a_counselor_takes_its_goal_from_the_client_it_meets() -> None:
    shared = {"goal": "reducing alcohol", "behavior": "drinking"}
    assert Played("MI", other=shared).state["goal"] == "reducing alcohol"
    assert Played("MI", other=shared, options={"goal": "sleep"}).state["goal"] == "sleep"
    assert Played("MI").state["goal"] == Played("MI").party.profile["goal"]


async def test_a_topic_is_found_by_embeddings_where_a_server_has_them() -> None:
    def embed(request: dict[str, Any]) -> ServerReply:
        vectors = [
            [1.0, 0.0] if "Dentistry" in text or "zzz" in text else [0.0, 1.0] for text in request["input"]
        ]
        return ServerReply(body={"data": [{"embedding": vector} for vector in vectors]})

    async with ModelServer(embed) as server:
        options = {"ranker_url": f"{server.url}/chat/completions", "ranker_model": "e"}
        played = Played("consistentMI", "pavel", options=options, **DISTRIBUTION)
        await played.hear("zzz")
        assert played.state["perceived"] == "Dentistry"

    await played.hear("Did you sleep badly?")
    assert played.state["perceived"] == "Chronodisruption"
    assert any("compared by their words" in note for note in played.notes)
