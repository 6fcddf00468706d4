"""One turn: who is told what, who decides when, what becomes of the world."""

import asyncio

import pytest
from stage import PLAIN, Stage, prompt_of

from proctor.errors import ModelError
from proctor.scenario.run_files import turn_report

THIRD = {"name": "Council", "short_name": "council", "llm_model": "model-council"}


async def test_nobody_is_told_what_is_private_to_another():
    stage = Stage(enable_bilateral_communication=True)

    await stage.play(2)

    assert not any("FERRY-SECRET" in text for text in stage.asked("model-port"))
    assert not any("PORT-SECRET" in text for text in stage.asked("model-ferry"))
    assert not any("SECRET" in text or "PORT-GOAL" in text for text in stage.asked("narrator"))


async def test_no_actor_sees_what_another_decides_in_the_same_turn_and_nobody_why():
    stage = Stage(lambda r: "REASONING: SLY\nACTION: DEED-OF-" + r.model if r.model != "narrator" else None)

    await stage.play()
    first = list(stage.requests)
    await stage.play()

    assert not any("DEED-OF" in prompt_of(r) for r in first if r.model != "narrator")
    assert "DEED-OF-model-port" in stage.asked("model-ferry")[1]
    narrated = stage.asked("narrator")[0]
    assert "DEED-OF-model-port" in narrated and "DEED-OF-model-ferry" in narrated
    assert not any("SLY" in text for text in (*stage.asked("model-ferry"), narrated))


async def test_a_talk_of_this_turn_is_known_to_both_when_they_decide_and_to_no_one_else():
    actors = {**PLAIN["actors"], "council": THIRD}
    stage = Stage(_talking, enable_bilateral_communication=True, actors=actors)

    turn = await stage.play()

    decisions = [text for text in stage.asked("model-ferry") if "Decide what Ferry Line does" in text]
    assert "LET-US-SPLIT-IT" in decisions[0]
    assert "THEY-ARE-WEAK" not in decisions[0], "the other's own thoughts stay its own"
    (talk,) = turn.talks
    assert talk.participants == ("port", "ferry")
    assert dict(talk.notes) == {"port": "THEY-ARE-WEAK", "ferry": "HM"}
    heard = stage.asked("model-council") + stage.asked("narrator")
    assert not any("LET-US-SPLIT-IT" in text for text in heard)
    assert (await Stage(_talking).play()).talks == (), "talks are held only where they are enabled"


def proposing(members, refusing=""):
    """The port proposes a coalition; who is asked accepts, but for one model."""

    def answer(request):
        prompt = prompt_of(request)
        if "PROPOSE_COALITION" in prompt:
            proposal = f"PROPOSE_COALITION: yes\nCOALITION_MEMBERS: {members}"
            return proposal if request.model == "model-port" else "PROPOSE_COALITION: no"
        if "DECISION: accept" in prompt:
            return "DECISION: reject" if request.model == refusing else "DECISION: **accept**"
        return f"WORD-OF-{request.model}" if "has come about" in prompt else None

    actors = {**PLAIN["actors"], "council": THIRD}
    return Stage(answer, enable_coalition_formation=True, actors=actors)


async def test_a_coalition_needs_everyone_who_is_asked():
    (talk,) = (await proposing("ferry, council", refusing="model-council").play()).talks

    assert (talk.kind, talk.outcome, talk.messages) == ("coalition", "rejected", ())


async def test_members_of_a_coalition_each_say_one_thing_that_only_they_read():
    stage = proposing("ferry")

    (talk,) = (await stage.play()).talks

    assert talk.messages == (("port", "WORD-OF-model-port"), ("ferry", "WORD-OF-model-ferry"))
    assert not any("WORD-OF" in text for text in stage.asked("model-council"))


async def test_older_turns_are_told_in_short_and_recent_ones_in_full():
    def answer(request):
        if "Summarise what has happened" in prompt_of(request):
            return "IN-SHORT"
        if request.model == "narrator":
            return f"UPDATED STATE: WORLD-{len(stage.turns) + 1}"
        return None

    stage = Stage(answer, turns=5, context_window_size=2)

    await stage.play(4)

    last = stage.asked("model-port")[-1]
    assert "IN-SHORT" in last
    assert "WORLD-3" in last and "WORLD-2" in last
    assert "WORLD-1" not in last


async def test_turns_leave_the_window_sooner_when_a_context_would_pass_its_tokens():
    def answer(request):
        if "Summarise what has happened" in prompt_of(request):
            return "IN-SHORT"
        if request.model == "narrator":
            return f"UPDATED STATE: WORLD-{len(stage.turns) + 1}"
        return f"ACTION: turn {len(stage.turns) + 1} " + "sails " * 300

    stage = Stage(answer, turns=6, context_window_size=10, max_context_tokens=2000)

    await stage.play(6)

    lengths = [len(text) for text in stage.asked("model-port")]
    assert max(lengths) <= 2000 * 4
    assert max(lengths) > 1000 * 4, "what fits is told in full"
    last = stage.asked("model-port")[-1]
    assert "IN-SHORT" in last and "turn 5 sails" in last and "turn 2 sails" not in last
    assert [turn.summarised for turn in stage.turns][-1] >= 3
    assert len(stage.asked("model-port")) == 6


async def test_each_turn_is_put_in_short_once():
    stage = Stage(turns=6, context_window_size=1)

    await stage.play(6)

    summaries = [text for text in stage.asked("narrator") if "Summarise what has happened" in text]
    assert [text.split("# Turn ")[1][0] for text in summaries] == ["1", "2", "3", "4"]


async def test_a_grave_issue_ends_the_run_where_the_scenario_says_so():
    rules = {
        "validation_model": "checker",
        "checks": {"world_state_coherence": {"severity": "high"}},
        "halt_on_critical": True,
    }

    def answer(request):
        return "VERDICT: fail\nISSUES:\n- the fee fell by itself" if request.model == "checker" else None

    calm = Stage(answer, validation={**rules, "halt_on_critical": False})
    strict = Stage(answer, validation=rules)

    await calm.play()
    turn = await strict.play()

    assert not calm.simulation.verdict(calm.run).is_over
    assert [issue.text for issue in turn.issues] == ["the fee fell by itself"]
    assert "the fee fell by itself" in strict.simulation.verdict(strict.run).halted


async def test_a_run_may_end_as_soon_as_a_condition_holds():
    metrics = {"trust": {"type": "integer", "method": "regex", "pattern": r"trust: (\d+)"}}
    stage = Stage(
        lambda r: "UPDATED STATE: trust: 9" if r.model == "narrator" else None,
        metrics=metrics,
        stop_when={"trust": ">= 8"},
    )

    await stage.play()

    assert stage.simulation.verdict(stage.run).is_over


@pytest.mark.parametrize("said", ["  ", "<think>and so on"])
async def test_a_model_that_says_nothing_has_failed(said):
    stage = Stage(lambda r: said if r.model == "model-ferry" else None)

    with pytest.raises(ModelError, match="said nothing"):
        await stage.play()

    assert len(stage.models.calls) == len([e for e in stage.events if type(e).__name__ == "ModelCall"]) > 0


async def test_each_question_has_a_seed_of_its_own_that_another_run_repeats():
    one, other = Stage(), Stage()

    await one.play(2)
    await other.play(2)

    seeds = [(r.model, r.seed) for r in one.requests]
    assert sorted(seeds) == sorted((r.model, r.seed) for r in other.requests)
    assert len(set(seeds)) == len(seeds)


async def test_when_one_decision_fails_the_others_are_stopped():
    ended = asyncio.Event()

    class Slow(Stage):
        async def answer(self, request):
            if request.model == "model-ferry":
                raise ModelError("down")
            try:
                await asyncio.sleep(30)
            finally:
                ended.set()

    with pytest.raises(ModelError, match="down"):
        await Slow().play()

    assert ended.is_set()


def _talking(request):
    prompt = prompt_of(request)
    if "INITIATE_BILATERAL" in prompt:
        if request.model != "model-port" or "LET-US-SPLIT-IT" in prompt:
            return "INITIATE_BILATERAL: no"
        head = "INITIATE_BILATERAL: Yes\nTARGET_ACTOR: Ferry Line\n"
        return head + "PROPOSED_MESSAGE: LET-US-SPLIT-IT\nREASONING: THEY-ARE-WEAK"
    if "RESPONSE:" in prompt:
        return "RESPONSE: Perhaps.\nINTERNAL_NOTES: HM"
    return None


@pytest.mark.parametrize(
    "answer",
    [
        "LONG-TERM GOALS: SLY-GOAL\nREASONING: SLY-PLAN, and then it was cut off",
        '{"reasoning": "SLY-PLAN", "long_term_goals": "SLY-GOAL"}',
        "<think>SLY-PLAN</think>\nACTION: waits",
        "SLY-PLAN, thought without a beginning</think>ACTION: waits",
    ],
)
async def test_reasons_never_stand_in_for_an_action_that_is_missing(answer):
    stage = Stage(lambda r: answer if r.model == "model-port" else None)

    await stage.play(2)

    assert not any("SLY" in text for text in (*stage.asked("model-ferry"), *stage.asked("narrator")))


async def test_what_is_said_before_any_heading_is_an_action():
    stage = Stage(lambda r: "Raises the fee.\nREASONING: SLY" if r.model == "model-port" else None)

    assert (await stage.play()).decisions["port"].action == "Raises the fee."


async def test_notes_never_stand_in_for_an_answer_in_a_private_talk():
    def answer(request):
        if "INITIATE_BILATERAL" in prompt_of(request):
            message = "INITIATE_BILATERAL: yes\nTARGET_ACTOR: ferry\nPROPOSED_MESSAGE: Shall we?"
            return message if request.model == "model-port" else "INITIATE_BILATERAL: no"
        return "INTERNAL_NOTES: SLY-NOTE" if "INTERNAL_NOTES" in prompt_of(request) else None

    stage = Stage(answer, enable_bilateral_communication=True)

    turn = await stage.play()

    assert not any("SLY-NOTE" in text for text in stage.asked("model-port"))
    assert turn.talks[0].notes["ferry"] == "SLY-NOTE"


@pytest.mark.parametrize(
    ("verdict", "issues", "unread"),
    [
        ("VERDICT: pass", 0, 0),
        ("VERDICT: **No issues found**", 0, 0),
        ("VERDICT: fail\nISSUES: - too bold", 1, 0),
        ("VERDICT: not consistent", 1, 0),
        ("I would rather not say.", 0, 1),
    ],
)
async def test_a_check_whose_verdict_cannot_be_read_is_counted_apart(verdict, issues, unread):
    rules = {"validation_model": "checker", "checks": {"world_state_coherence": {"enabled": True}}}
    stage = Stage(lambda r: verdict if r.model == "checker" else None, validation=rules)

    turn = await stage.play()

    assert (turn.checks_run, len(turn.issues), turn.checks_unread) == (1, issues, unread)
    report = turn_report(stage.scenario.validation, turn)["validation-001.md"]
    assert ("could be read" in report) == bool(unread)
    assert ("0 issues" in report) == (not issues and not unread)


async def test_the_narrator_reads_the_effects_of_a_turn_as_prose_and_only_in_their_turn():
    effects = [
        {"text": "EARLY-STORIES spread.", "turn_range": [1, 1]},
        {"text": "LATE-STORIES spread.", "turn_range": [2, 3]},
    ]
    mood = {"type": "trend", "description": "The mood changes.", "once": False, "effects": effects}
    stage = Stage(events={"mood": mood})

    await stage.play(2)

    first, second = stage.asked("narrator")
    assert "- mood: The mood changes. EARLY-STORIES spread.\n" in first and "LATE-STORIES" not in first
    assert "- mood: The mood changes. LATE-STORIES spread.\n" in second and "EARLY-STORIES" not in second


OWN_FORMAT = """\
Is this consistent with {actor_name}?

Provide your assessment in this format:

CONSISTENT: [Yes/No]

ISSUES FOUND:
- [List any inconsistencies, or "None" if consistent]

SEVERITY: [Low/Medium/High - only if issues found]

EXPLANATION:
[Brief explanation of your assessment]
"""


@pytest.mark.parametrize(
    ("template", "answer", "expected"),
    [
        (OWN_FORMAT, "CONSISTENT: Yes\n\nISSUES FOUND:\n- None\n\nEXPLANATION:\nFine.", []),
        (
            OWN_FORMAT,
            "**CONSISTENT:** [No]\n\nISSUES FOUND:\n- too bold, too early\n- too rich\n\nSEVERITY: High",
            [("high", "too bold, too early"), ("high", "too rich")],
        ),
        (OWN_FORMAT, "CONSISTENT: No\nISSUES FOUND: None", [("low", "the check did not pass")]),
        (OWN_FORMAT, "CONSISTENT: [Yes/No]", None),
        (OWN_FORMAT, "It depends.", None),
        ("VALID ACCESS: [Yes/No]", "VALID ACCESS: No\nVIOLATIONS FOUND:\n- it knows", [("low", "it knows")]),
        ("ISSUES PRESENT: yes or no", "ISSUES PRESENT: No", []),
        ("ISSUES PRESENT: yes or no", "ISSUES PRESENT: yes\nISSUES: - odd", [("low", "odd")]),
        ("REALISTIC: <yes|no>", "REALISTIC: no.", [("low", "the check did not pass")]),
    ],
)
async def test_a_check_is_read_in_the_format_that_its_author_asks_for(template, answer, expected):
    check = {"severity": "low", "prompt_template": template}
    rules = {"validation_model": "checker", "checks": {"world_state_coherence": check}}
    stage = Stage(lambda r: answer if r.model == "checker" else None, validation=rules)

    turn = await stage.play()

    (prompt,) = stage.asked("checker")
    assert "VERDICT" not in prompt, "two formats in one prompt confuse a model"
    assert turn.checks_unread == (expected is None)
    assert [(issue.severity, issue.text) for issue in turn.issues] == (expected or [])


async def test_rules_of_the_scenario_reach_every_check_once():
    rules = {
        "validation_model": "checker",
        "scenario_specific_rules": "TIDES-NEVER-TURN-BACK",
        "checks": {
            "world_state_coherence": {},
            "own": {"prompt_template": "Mind {scenario_specific_rules} in {actor_action}."},
            "other": {"prompt_template": "Look at {actor_action}."},
        },
    }
    stage = Stage(validation=rules)

    await stage.play()

    assert [text.count("TIDES-NEVER-TURN-BACK") for text in stage.asked("checker")] == [1] * 5
