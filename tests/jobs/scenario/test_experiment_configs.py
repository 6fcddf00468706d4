# ruff: noqa: E501
"""A config comes to its variations and runs, in a fixed order, with ids that survive a changed config."""

import pytest
from scenario_folders import SCENARIO, write_scenario

from proctor.errors import PlanError
from proctor.jobs.scenario.experiment import read_experiment, real_path

HEAD = """\
experiment_name: Fee study
base_scenario: scenarios/harbour
output_dir: experiments/fees
"""
TWO_BY_TWO = (
    HEAD
    + """\
runs_per_variation: 2
variations:
  - {type: actor_model, actor: port, values: [scripted/echo, scripted/ok]}
  - {type: scenario_parameter, parameter: turns, values: [3, 6]}
"""
)


def read(tmp_path, text):
    write_scenario(tmp_path / "scenarios" / "harbour")
    return read_experiment(text, path=tmp_path / "experiments" / "config.yaml", working_folder=tmp_path)


def refused(tmp_path, text):
    with pytest.raises(PlanError) as error:
        read(tmp_path, text)
    return [problem.problem for problem in error.value.problems], error.value.problems[0]


def labels(items):
    return [item.settings["label"] for item in items]


def test_every_combination_runs_as_often_as_it_says_the_last_dimension_fastest(tmp_path):
    experiment = read(tmp_path, TWO_BY_TWO)

    items = list(experiment.items())

    assert [v.description for v in experiment.variations] == [
        "port=echo, turns=3",
        "port=echo, turns=6",
        "port=ok, turns=3",
        "port=ok, turns=6",
    ]
    assert labels(items)[:3] == ["var-001-run-001", "var-001-run-002", "var-002-run-001"]
    assert len({item.id for item in items}) == 8
    assert items[-1].factors == {"port": "scripted/ok", "turns": "6", "variation": "var-004"}


@pytest.mark.parametrize(
    ("text", "descriptions"),
    [
        (
            HEAD + "variations: {actor_models: {port: [scripted/echo, scripted/ok]}}\n",
            ["port=echo", "port=ok"],
        ),
        (TWO_BY_TWO + "combine: zip\n", ["port=echo, turns=3", "port=ok, turns=6"]),
        (
            TWO_BY_TWO + "exclude: [{port: scripted/ok, turns: 6}]\n",
            ["port=echo, turns=3", "port=echo, turns=6", "port=ok, turns=3"],
        ),
    ],
)
def test_models_have_a_shorthand_and_values_are_zipped_or_left_out(tmp_path, text, descriptions):
    assert [v.description for v in read(tmp_path, text).variations] == descriptions


def test_ids_do_not_depend_on_the_machine_or_on_the_order_of_values(tmp_path):
    one = read(tmp_path / "here", TWO_BY_TWO)
    other = read(
        tmp_path / "there", TWO_BY_TWO.replace("[scripted/echo, scripted/ok]", "[scripted/ok, scripted/echo]")
    )

    assert {item.id for item in one.items()} == {item.id for item in other.items()}


NAMED = (
    HEAD
    + """\
variations:
  - type: actor_parameter
    name: tone
    actor: port
    parameter: system_prompt
    values:
      - {label: soft, value: Give way where you can.}
      - {label: hard, value: Stand firm whatever they offer.}
  - name: regime
    conditions:
      - {label: calm, set: {num_turns: 2}}
      - {label: storm, set: {turns: 3, actors.port.role: pilot}}
"""
)


def test_factors_and_levels_have_names_and_a_condition_sets_several_values(tmp_path):
    experiment = read(tmp_path, NAMED)
    assert [(each.description, dict(each.factors)) for each in experiment.variations] == [
        ("tone=soft, regime=calm", {"tone": "soft", "regime": "calm"}),
        ("tone=soft, regime=storm", {"tone": "soft", "regime": "storm"}),
        ("tone=hard, regime=calm", {"tone": "hard", "regime": "calm"}),
        ("tone=hard, regime=storm", {"tone": "hard", "regime": "storm"}),
    ]
    assert dict(experiment.variations[3].changes) == {
        "actors.port.system_prompt": "Stand firm whatever they offer.",
        "turns": 3,
        "actors.port.role": "pilot",
    }
    # Names are for people: they make no run new.
    unnamed = read(tmp_path, NAMED.replace("    name: tone\n", "").replace("label: hard", "label: firm"))
    assert {item.id for item in unnamed.items()} == {item.id for item in experiment.items()}
    assert {item.factors["actors.port.system_prompt"] for item in unnamed.items()} == {"soft", "firm"}
    excluded = read(tmp_path, NAMED + "exclude: [{tone: soft, regime: storm}]\n").variations
    assert [each.description for each in excluded] == [
        "tone=soft, regime=calm", "tone=hard, regime=calm", "tone=hard, regime=storm"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("name: tone", "name: regime"), "the name `regime` is taken"),
        (("name: tone", "name: variation"), "the name `variation` is taken"),
        (("label: hard", "label: soft"), "the label `soft` stands in this list twice"),
        (("label: storm", "label: calm"), "the label `calm` stands in this list twice"),
        (("- name: regime\n    conditions", "- conditions"), "`conditions` need a `name`"),
        (("{turns: 3,", "{trun: 3,"), "a scenario has no `trun`"),
        (("{turns: 3,", "{turns: many,"), "`turns` should be a whole number, not the text 'many'"),
        (("{turns: 3,", "{actors.port.system_prompt: x,"), "`actors.port.system_prompt` is varied twice"),
        (
            ("name: regime", "name: regime\n    values: [1]"),
            "a variation has either a `type` with `values`, or `conditions`",
        ),
    ],
)
def test_names_and_conditions_that_cannot_be_are_refused(tmp_path, change, problem):
    found, first = refused(tmp_path, NAMED.replace(*change))

    assert problem in found
    assert first.at.line > 1


TURNS = "{type: scenario_parameter, parameter: turns, values: [1]}"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("actor: port", "actor: prot"), "the scenario has no actor `prot`"),
        (
            ("actor_model", "actor_modle"),
            "`type` of variation 1 should be one of `actor_model`, `scenario_parameter`, `actor_parameter`, not the text 'actor_modle'",
        ),
        (("parameter: turns", "parameter: truns"), "a scenario has no `truns`"),
        (("parameter: turns", "parameter: actors.port.mood"), "`actors.port` has no `mood`"),
        (("parameter: turns", "parameter: actors.mayor.role"), "`actors` has no `mayor`"),
        (("[3, 6]", "[3, many]"), "`turns` should be a whole number, not the text 'many'"),
        (("scripted/ok]", '""]'), "a model has a name"),
        (
            ("runs_per_variation: 2", "runs_per_variation: 2000000"),
            "`runs_per_variation` of the config should be at most 1,000,000, not the number 2000000",
        ),
        (("[3, 6]", "[3, 3]"), "`3` stands in this list twice"),
        (
            ("runs_per_variation: 2", "runs_per_variation: 0"),
            "`runs_per_variation` of the config should be at least 1, not the number 0",
        ),
        (("runs_per_variation", "runs_per_varation"), "the config has no setting `runs_per_varation`"),
        (("scenarios/harbour", "scenarios/harbor"), "there is no folder scenarios/harbor"),
        (("variations:", "exclude: [{mayor: x}]\nvariations:"), "nothing called `mayor` is varied"),
        (("variations:", "exclude: [{turns: [3, 6]}]\nvariations:"), "everything is excluded"),
        (("variations:", f"variations:\n  - {TURNS}"), "`turns` is varied twice"),
        (
            ("variations:", f"variations:\n  - {TURNS.replace('turns', 'num_turns')}"),
            "`turns` is varied twice",
        ),
        (("parameter: turns, ", ""), "a variation of type `scenario_parameter` needs a `parameter`"),
        (("actor_model", "actor_parameter"), "a variation of type `actor_parameter` needs a `parameter`"),
        (("actor: port, ", ""), "which `actor`?"),
        (("[3, 6]}", "[3, 6, 9]}\ncombine: zip"), "to be zipped, all need as many values: port 2, turns 3"),
    ],
)
def test_a_config_that_names_what_is_not_there_is_refused(tmp_path, change, problem):
    found, first = refused(tmp_path, TWO_BY_TWO.replace(*change))

    assert problem in found
    assert first.at.line > 1


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("num_turns", "turns"),
        ("actors.port.model", "actors.port.llm_model"),
        ("actors.port", "actors.port"),
        ("other.port.model", "other.port.model"),
    ],
)
def test_paths_have_the_names_of_the_plain_form(written, path):
    assert real_path(written) == path


def test_a_hundred_thousand_variations_are_the_most_unless_some_are_drawn(tmp_path):
    values = list(range(1, 401))
    text = HEAD + (
        f"variations:\n  - {{type: scenario_parameter, parameter: turns, values: {values[:300]}}}\n"
        f"  - {{type: scenario_parameter, parameter: context_window_size, values: {values}}}\n"
    )
    found, _ = refused(tmp_path, text)
    assert found == ["these come to 120,000 variations"]

    drawn = [(each.number, dict(each.changes)) for each in read(tmp_path, f"{text}sample: 3\n").variations]
    again = [(each.number, dict(each.changes)) for each in read(tmp_path, f"{text}sample: 3\n").variations]
    other = [dict(each.changes) for each in read(tmp_path, f"{text}sample: 3\nseed: 5\n").variations]
    assert [number for number, _ in drawn] == [1, 2, 3] and drawn == again
    assert [changes for _, changes in drawn] != other
    assert [changes["turns"] for _, changes in drawn] == sorted(changes["turns"] for _, changes in drawn)


def test_a_changed_scenario_makes_its_runs_new_and_its_comments_do_not(tmp_path):
    before = {item.id for item in read(tmp_path, TWO_BY_TWO).items()}
    path = tmp_path / "scenarios" / "harbour" / "actors" / "port.yaml"

    path.write_text("# a comment\n" + path.read_text())
    same = read_experiment(TWO_BY_TWO, path=tmp_path / "c.yaml", working_folder=tmp_path)
    path.write_text(path.read_text().replace("2 %", "3 %"))
    other = read_experiment(TWO_BY_TWO, path=tmp_path / "c.yaml", working_folder=tmp_path)

    assert {item.id for item in same.items()} == before
    assert not {item.id for item in other.items()} & before


def test_values_of_the_world_can_be_varied_and_are_checked(tmp_path):
    scenario = SCENARIO + "variables: {treasury: {initial: 100, range: [0, 200]}}\nrules: [treasury -= 5]\n"
    write_scenario(tmp_path / "scenario", {"scenario.yaml": scenario})

    def experiment(parameter, values):
        text = (
            "experiment_name: Fees\nbase_scenario: scenario\n"
            f"variations: [{{type: scenario_parameter, parameter: {parameter}, values: {values}}}]\n"
        )
        return read_experiment(text, path=tmp_path / "config.yaml", working_folder=tmp_path)

    assert len(list(experiment("variables.treasury.initial", "[50, 150]").items())) == 2
    assert len(list(experiment("rules", "[[{do: treasury -= 1}], [{do: treasury -= 2}]]").items())) == 2
    with pytest.raises(PlanError, match="`treasury` cannot be 500 at the beginning"):
        experiment("variables.treasury.initial", "[50, 500]")
    with pytest.raises(PlanError, match="there is no variable or metric `tresury`"):
        experiment("rules", "[[{do: tresury -= 1}]]")
