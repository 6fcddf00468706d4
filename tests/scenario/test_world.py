"""Variables and rules: a world that is computed, and rooms in which several actors talk."""

import pytest
from stage import PLAIN, Stage, prompt_of

from proctor.scenario.definition import scenario_of
from proctor.scenario.state import turn_as_plain, turn_of
from proctor.scenario.world import ScenarioWorld

VARIABLES = {
    "treasury": {"type": "number", "initial": 100, "range": [0, 1000], "unit": "gold"},
    "ships": {"type": "integer", "initial": 3},
    "at_war": {"type": "boolean", "initial": False},
    "season": {"type": "choice", "values": ["spring", "winter"], "initial": "spring"},
    "vote": {
        "type": "choice",
        "values": ["yes", "no"],
        "initial": "yes",
        "per_actor": True,
        "set_by": ["all"],
        "visible_to": ["own"],
    },
    "tax": {"type": "number", "initial": 10, "set_by": ["port"], "range": [0, 20], "description": "per ship"},
}
METRICS = {"mood": {"type": "float", "method": "regex", "pattern": r"mood: (\d+)"}}
EVENTS = {"storm": {"type": "scheduled", "turn": 1, "description": "A storm."}}


def computed(*rules, turn=1, metrics=None, events=(), settings=None, seed=1, **changed):
    """The variables after one turn with these rules, and its notes."""
    plain = {**PLAIN, "variables": VARIABLES, "metrics": METRICS, "events": EVENTS}
    world = ScenarioWorld(scenario_of({**plain, "rules": [{"do": rule} for rule in rules]}))
    return world.update(
        {**world.initial(), **changed},
        settings=settings or {},
        metrics=metrics or {},
        events=events,
        turn=turn,
        seed=seed,
    )


@pytest.mark.parametrize(
    ("rule", "name", "value"),
    [
        ('treasury -= 5 if vote.port == "yes"', "treasury", 95),
        ("treasury = 5000", "treasury", 1000),
        ("treasury -= 101", "treasury", 0),
        ("ships += 0.6", "ships", 4),
        ("at_war = treasury > 99 or event('storm')", "at_war", True),
        ('season = "winter" if season in ["spring"]', "season", "winter"),
        ('vote.ferry = "no"', "vote.ferry", "no"),
        ("treasury += mood", "treasury", 104),
    ],
)
def test_rules_compute_the_variables_within_their_ranges(rule, name, value):
    update = computed(rule, metrics={"mood": 4})

    assert update.values[name] == value
    assert update.notes == ()


def test_events_of_the_turn_and_a_seeded_chance_are_part_of_the_rules():
    assert computed("ships -= 1 if event('storm')", events=["storm"]).values["ships"] == 2
    assert computed("ships -= 1 if event('storm')").values["ships"] == 3
    assert computed("ships += 1", "ships *= 10").values["ships"] == 40, "rules are computed in their order"
    drawn = {computed("treasury = 1000 * random()", seed=seed).values["treasury"] for seed in range(20)}
    assert len(drawn) == 20
    assert computed("treasury = random()", seed=3) == computed("treasury = random()", seed=3)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("treasury = 1 / (ships - 3)", "division by zero"),
        ("treasury += mood", "`mood` has no value"),
        ("treasury = 10 ** 300 * 10 ** 300", "too large"),
        ("treasury = 9 ** 999999999", ""),
        ("treasury = sqrt(-1)", ""),
        ('season = season if at_war else "spring" if false else "spring"', None),
    ],
)
def test_a_rule_without_a_value_changes_nothing_and_is_noted(rule, why):
    update = computed(rule)

    assert (update.values["treasury"], update.values["season"]) == (100, "spring")
    if why is None:
        assert update.notes == ()
    else:
        (note,) = update.notes
        assert f"rule `{rule}` was not applied" in note and why in note


async def test_actors_set_variables_and_the_narrator_reads_what_the_rules_made_of_them():
    def answer(request):
        if request.model == "model-port":
            return "ACTION: lowers the tax\nSET:\n- vote = **no**\n- tax = 25\n- ships = 99"
        return "ACTION: waits\nSET: vote: perhaps" if request.model == "model-ferry" else None

    rules = [{"do": 'treasury -= 5 if count(vote, "no") > 0'}, {"do": "ships += 1", "when": "tax == 20"}]
    stage = Stage(answer, variables=VARIABLES, rules=rules, events=EVENTS)

    turn = await stage.play()
    await stage.play()

    assert turn.variables == {
        "treasury": 95, "ships": 4, "at_war": False, "season": "spring",
        "vote.port": "no", "vote.ferry": "yes", "tax": 20,
    }  # fmt: skip
    assert turn.notes == (
        "port sets vote.port = no",
        "port sets tax = 20",
        "ferry gives vote.ferry a value that it cannot have; it stays as it is",
    )
    assert turn.decisions["port"].action == "lowers the tax"
    narrated, _ = stage.asked("narrator")
    assert "- treasury: 95 gold" in narrated and "- vote.port: no" in narrated
    first, second = stage.asked("model-port")
    assert "- tax: a number from 0 to 20 (per ship); now 10" in first
    assert "- treasury: 95 gold" in second and "vote.ferry" not in second
    assert "- tax:" not in stage.asked("model-ferry")[0].partition("You also decide")[2]
    assert turn.metrics["treasury"] == 95
    assert turn_of(turn_as_plain(turn)) == turn
    assert "- treasury: 95" in stage.files["world-state-001.md"]
    assert "port sets vote.port = no" in stage.files["scenario.log"]


async def test_several_actors_talk_in_a_room_and_hear_each_other_and_nobody_else_does():
    def answer(request):
        prompt = prompt_of(request)
        if "in one room" not in prompt:
            return None
        if request.model == "model-council":
            return "PASS"
        return (
            f"SAY: WORDS-OF-{request.model}\nINTERNAL_NOTES: SLY"
            if "Said so far" not in prompt
            else "SAY: Pass."
        )

    others = ("council", "guild")
    actors = {
        **PLAIN["actors"],
        **{name: {"name": name.title(), "short_name": name, "llm_model": f"model-{name}"} for name in others},
    }
    room = {"members": ["port", "ferry", "council"], "rounds": 3, "turn_range": [1, 1]}
    stage = Stage(answer, actors=actors, rooms={"hall": room})

    turn = await stage.play()
    await stage.play()

    (talk,) = turn.talks
    assert (talk.kind, talk.participants) == ("room", ("port", "ferry", "council"))
    assert talk.messages == (("port", "WORDS-OF-model-port"),)
    assert dict(talk.notes) == {"port": "SLY"}
    assert len([r for r in stage.requests if "in one room" in prompt_of(r)]) == 6, "the second round passed"
    assert all("WORDS-OF-model-port" in text for text in stage.asked("model-ferry")[1:])
    assert not any("WORDS-OF" in text for text in stage.asked("model-guild") + stage.asked("narrator"))
    assert not any("SLY" in text for text in stage.asked("model-council"))
    assert stage.turns[1].talks == ()
    assert "WORDS-OF-model-port" in stage.files["room-hall-001.md"]


def test_a_rule_is_applied_to_each_actor_of_a_group_in_its_order():
    of_each = {"type": "number", "initial": 0, "per_actor": True}
    plain = {**PLAIN, "variables": {**VARIABLES, "score": of_each}, "groups": {"players": ["ferry"]}}
    rules = [
        'for each actor in all: score += count(vote, "no") if vote == "yes"',
        "for each actor in players: score = score * 10 + of(score, 'port')",
        "for each actor in all: treasury -= score",
    ]
    world = ScenarioWorld(scenario_of({**plain, "rules": [{"do": rule} for rule in rules]}))

    values = world.update(
        {**world.initial(), "vote.port": "no"}, settings={}, metrics={}, events=(), turn=1, seed=1
    ).values

    assert (values["score.port"], values["score.ferry"], values["treasury"]) == (0, 10, 90)


def test_a_variable_without_a_value_stays_without_one():
    update = computed("treasury = 5", "ships = 7", treasury=None)
    assert (update.values["treasury"], update.values["ships"]) == (None, 7)
    assert update.notes == ("rule `treasury = 5` was not applied: `treasury` has no value",)


def test_a_rule_cannot_give_a_variable_a_value_that_it_does_not_have():
    variables = {**VARIABLES, "word": {"type": "text", "initial": "autumn"}}
    made = scenario_of(
        {**PLAIN, "variables": variables, "rules": [{"do": "season = word", "name": "turn of the year"}]}
    )
    world = ScenarioWorld(made)
    for word, season in (("autumn", "spring"), ("winter", "winter")):
        values = {**world.initial(), "word": word}
        update = world.update(values, settings={}, metrics={}, events=(), turn=1, seed=1)
        assert update.values["season"] == season
        note = "rule `turn of the year` was not applied: autumn is no value of `season`"
        assert update.notes == ((note,) if season == "spring" else ())


def test_what_an_actor_sees_and_sets():
    made = scenario_of({**PLAIN, "variables": VARIABLES})
    world, values = ScenarioWorld(made), ScenarioWorld(made).initial()
    port, ferry = made.actors["port"], made.actors["ferry"]
    assert [setting.name for setting in world.settable(port, values)] == ["vote", "tax"]
    assert [(each.name, each.now) for each in world.settable(ferry, values)] == [("vote", "yes")]
    assert ("treasury", "100 gold") in world.visible(values, ferry)
    assert [key for key, _ in world.visible(values, ferry) if key.startswith("vote")] == ["vote.ferry"]
    assert [key for key, _ in world.visible(values) if key.startswith("vote")] == ["vote.port", "vote.ferry"]
    answer = "ACTION: x\nSET:\n- vote = no\n- tax: 50\n- treasury = 9"
    assert world.read_settings(port, answer) == {"vote.port": "no", "tax": 20.0}
    assert world.read_settings(ferry, answer) == {"vote.ferry": "no"}
    assert world.read_settings(port, "SET:\nvote = maybe") == {"vote.port": None}


def test_an_initial_value_may_differ_by_actor():
    vote = {**VARIABLES["vote"], "initial": {"port": "no"}}
    values = ScenarioWorld(scenario_of({**PLAIN, "variables": {"vote": vote}})).initial()
    assert values == {"vote.port": "no", "vote.ferry": None}
