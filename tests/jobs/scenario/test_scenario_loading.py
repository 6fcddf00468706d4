# ruff: noqa: E501
"""A scenario folder is read in either dialect, and everything wrong in it is shown at its line."""

import pytest
from scenario_folders import EVENTS, FILES, METRICS, PORT, SCENARIO, WORLD, write_scenario

from proctor.errors import PlanError, UsageError
from proctor.jobs.scenario.reader import read_scenario


def load(tmp_path, **changed):
    names = {name.replace("/", "_").replace("-", "_").replace(".yaml", ""): name for name in FILES}
    names |= {"validation_rules": "validation-rules.yaml", "prompts_decision": "prompts/decision.j2"}
    return read_scenario(write_scenario(tmp_path, {names[key]: text for key, text in changed.items()}))


def problems(tmp_path, **changed):
    with pytest.raises(PlanError) as refused:
        load(tmp_path, **changed)
    root = str(tmp_path) + "/"
    return [str(problem).replace(root, "").splitlines()[0] for problem in refused.value.problems]


def test_the_files_may_stand_below_definition(tmp_path):
    with pytest.raises(UsageError, match="no scenario"):
        read_scenario(tmp_path)
    write_scenario(tmp_path / "definition")

    assert read_scenario(tmp_path).scenario.name == "Harbour Fee Talks"


def test_an_actor_that_is_not_listed_takes_no_part_and_any_prompt_may_be_replaced(tmp_path):
    own = "What does {{ actor.name }} do?"
    read = load(tmp_path, scenario=SCENARIO.replace("[port, ferry]", "[port]"), prompts_decision=own)

    assert list(read.scenario.actors) == ["port"]
    assert read.remarks == ("actors/ferry.yaml is not in the list of actors; it does not take part",)
    assert read.scenario.prompts == {"decision": own}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"scenario": SCENARIO.replace("turns: 3", "turns: many")}, "scenario.yaml:8:8: `turns` should be a whole number, not the text 'many'"),
        ({"scenario": SCENARIO.replace("turns: 3\n", "")}, "scenario.yaml:1:1: the scenario has no `turns`"),
        ({"scenario": SCENARIO.replace("2 weeks", "soon")}, 'scenario.yaml:9:16: `turn_duration` should be a number and a unit, such as "2 weeks"'),
        ({"scenario": SCENARIO + "num_turns: 4\n"}, "scenario.yaml:15:1: `num_turns` says again what `turns` says"),
        ({"scenario": SCENARIO + "rules: many\n"}, "scenario.yaml:15:8: `rules` should be a list, not the text 'many'"),
        ({"scenario": SCENARIO + "rooms: [hall]\n"}, "scenario.yaml:15:8: `rooms` should be a mapping of names to values, not a list"),
        ({"actors_port": PORT.replace('"port"', '"The Port"')}, "actors/port.yaml:2:13: `The Port` is no short name"),
        ({"actors_port": PORT + "control: robot\n"}, "actors/port.yaml:10:10: `actors.port.control` should be one of `ai`, `human`, not the text 'robot'"),
        ({"metrics": METRICS.replace("type: int", "type: whole")}, "metrics.yaml:5:11: `type` of the metric `cooperation_level` cannot be `whole`"),
        ({"metrics": METRICS.replace(r"(\d+)", "(")}, "metrics.yaml:7:14: `metrics.cooperation_level.pattern` is not a valid regular expression: missing ), unterminated subpattern at position 21"),
        ({"metrics": METRICS.replace("pattern:", "patern:")}, "metrics.yaml:4:5: the metric `cooperation_level` has no `pattern`"),
        ({"exogenous_events": EVENTS.replace("probability: 0.1", "probability: 2")}, "exogenous-events.yaml:3:33: `events.Fuel jump.probability` should be at most 1, not the number 2"),
        ({"exogenous_events": EVENTS.replace("type: trend", "type: trnd")}, "exogenous-events.yaml:5:12: the event `Inflation` has no type `trnd`"),
        ({"prompts_decision": "line\n{{ actor.name"}, "prompts/decision.j2:2:1: no template: unexpected end of template, expected 'end of print statement'."),
        ({"metrics": "metrics: [1"}, "metrics.yaml:2:1: this is not YAML: did not find expected ',' or ']'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_shown_at_its_place(tmp_path, changed, expected):
    assert expected in problems(tmp_path, **changed)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "at_war: false",
            "cooperation_level: 4",
            "scenario.yaml:17:22: `cooperation_level` is also a metric",
        ),
        ("at_war: false", "max: 4", "scenario.yaml:17:8: `max` cannot be the name of a variable"),
        ("set_by: port", "set_by: prot", "scenario.yaml:19:57: there is no actor `prot`"),
        ("initial: 10", "initial: 30", "`tax` cannot be 30 at the beginning"),
        ("initial: 10", "initial: ten", "`tax` cannot be ten at the beginning"),
        (", per_actor: true", "", "several actors cannot set one value of `tax_vote`"),
        ('"no") > 1', '"noo") > 1', "scenario.yaml:21:5: rule 1: `tax_vote` is never `noo`, at character 34"),
        ("when: at_war", "when: at_sea", "rule 2: there is no variable or metric `at_sea`, at character 19"),
        ("[port, ferry], rounds", "[port, frey], rounds", "there is no actor `frey`"),
        ("hall:", "Great Hall:", "`Great Hall` is no name of a room"),
        ("rounds: 2", "rounds: 0", "`rooms.hall.rounds`"),
        ("treasury < 50", "tresury < 50", "there is no metric `tresury`"),
    ],
)
def test_what_is_wrong_with_the_world_is_shown_at_its_place(tmp_path, old, new, expected):
    assert old in WORLD
    found = problems(tmp_path, scenario=SCENARIO.replace("turns: 3\n", "") + WORLD.replace(old, new))

    assert any(expected in problem for problem in found), found
