"""A simulation is every client × every therapist, each so often; what is wrong is said before it starts."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.bootstrap import open_context
from proctor.errors import PlanError
from proctor.job import PlanText
from proctor.jobs.dialogue.job import JOB, DialogueOverrides
from proctor.jobs.dialogue.plan import DialoguePlan, read_simulation
from proctor.jobs.dialogue.roles import Roles
from proctor.results.loading import InputReader
from proctor.stats.results import Labels

DOCUMENTED = """
clients:
  - patientPsi
  - consistentMI
  - eeyore
therapists:
  - CBT
  - MI
num_runs: 10
max_turns: 25
max_workers: 8
seed: 42
model_type: OPENAI
model_name: gpt-4o
temperature: 0.7
"""


def read(text: str | None = None, folder: Path = Path(), **flags: Any) -> DialoguePlan:
    return read_simulation(text, flags, file="config.yaml", folder=folder, roles=Roles([folder / "roles"]))


def refused(text: str | None = None, **flags: Any) -> str:
    with pytest.raises(PlanError) as caught:
        read(text, **flags)
    return str(caught.value)


def test_nothing_said_means_the_documented_defaults() -> None:
    config = read().config

    names = ("num_runs", "max_turns", "max_workers", "seed")
    assert [config[name] for name in names] == [5, 20, 4, None]
    assert [each.name for each in read().combinations] == ["patientPsi_CBT"]


def test_flags_win_over_the_file() -> None:
    simulation = read(DOCUMENTED, clients="eeyore", num_runs=1)

    files = [item.settings["file"] for item in simulation.items("")]
    assert files == ["eeyore_CBT_run0.json", "eeyore_MI_run0.json"]


@pytest.mark.parametrize("text", [None, DOCUMENTED])
def test_a_flag_that_is_wrong_is_named_and_not_looked_for_in_the_file(text: str | None) -> None:
    said = refused(text, num_runs=0, clients="nobody")

    assert "the command line:1:1: `num_runs` of the command line should be at least 1" in said
    assert "config.yaml" not in said
    assert "the command line:1:1: there is no role called `nobody`" in refused(text, clients="nobody")


def test_the_same_dialogue_has_the_same_id_whatever_else_is_asked() -> None:
    few = {item.id for item in read(clients="patientPsi", num_runs=2, seed=1).items("here")}
    more = {
        item.id
        for item in read(clients="eeyore,patientPsi", num_runs=3, seed=1, max_workers=9).items("there")
    }
    other = {item.id for item in read(clients="patientPsi", num_runs=2, seed=2).items("here")}

    assert few < more
    assert not few & other


def test_clients_take_their_profiles_in_turn_and_therapists_keep_theirs() -> None:
    items = list(read(num_runs=4).items(""))

    assert [item.factors["profile"] for item in items] == ["jonah", "marta", "wei", "jonah"]
    assert {item.details["therapist"]["profileName"] for item in items} == {"osei"}


@pytest.mark.parametrize(
    ("entry", "names"),
    [
        ("profile: wei", ["wei", "wei"]),
        ("profile: 1", ["marta", "marta"]),
        ("profile: [wei, jonah]", ["wei", "jonah"] * 2),
        ("profile: all", ["jonah", "marta", "wei"] * 2),
    ],
)
def test_profiles_can_be_chosen(entry: str, names: list[str]) -> None:
    simulation = read(f"clients: [{{role: patientPsi, {entry}}}]\nnum_runs: 2\n")

    assert [item.factors["profile"] for item in simulation.items("")] == names


def test_each_side_may_have_a_model_of_its_own_and_several_are_crossed() -> None:
    simulation = read(
        "client_model: [openai/a, openai/b]\ntherapist_model: anthropic/c\n"
        "temperature: [0.0, 1.0]\nnum_runs: 1\n"
    )

    names = [f"patientPsi_CBT_{model}_{temperature}" for model in "ab" for temperature in "01"]
    assert [each.name for each in simulation.combinations] == names
    item = next(simulation.items(""))
    assert item.factors["client_model"] == "openai/a"
    assert item.model == "anthropic/c + openai/a"
    assert simulation.models == ["openai/a", "anthropic/c", "openai/b"]
    two = read("therapist_model: [a/x, b/y]\nmodel_name: [c, d]\nnum_runs: 1\n")
    assert [each.name for each in two.combinations] == [
        f"patientPsi_CBT_{model}_{therapist}" for model in "cd" for therapist in "xy"
    ]


@pytest.mark.parametrize(
    ("config", "model"),
    [
        ({}, "openai/gpt-4o"),
        ({"model_type": "OPENAI", "model_name": "gpt-4o"}, "openai/gpt-4o"),
        ({"model_type": "ACME", "model_name": "large"}, "acme/large"),
        ({"model_name": "ollama/phi"}, "ollama/phi"),
        ({"model_type": "OPENAI", "model_name": "scripted/x"}, "scripted/x"),
    ],
)
def test_the_type_and_name_of_a_model_say_who_is_asked(config: dict[str, str], model: str) -> None:
    assert read(**config).models == [model]


def test_roles_without_a_model_need_none_and_a_reciter_is_named_as_a_stand_in() -> None:
    simulation = read(clients="scripted", therapists="eliza,scripted", num_runs=1)

    assert simulation.models == []
    assert {item.model for item in simulation.items("")} == {"scripted/lines"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("clients: [patientPsy]", "config.yaml:1:11: there is no role called `patientPsy`"),
        ("clients: [CBT]", "the role CBT does not play a client"),
        ("num_run: 3", "Did you mean `num_runs`?"),
        ("num_runs: 0", "should be at least 1"),
        ("seed: 99999999999999999999", "`seed` of the config"),
        ("clients: []", "should not be empty"),
        ("clients: [{role: eeyore, profile: nobody}]", "has no profile `nobody`"),
        ("clients: [{role: eeyore, profiles_file: gone.json}]", "there is no file"),
        ("clients: [{role: patientPsi, options: {patient_type: odd}}]", "cannot be `odd`"),
        ("clients: [{role: patientPsi, options: {mood: odd}}]", "has no option `mood`"),
        ("clients: [patientPsi, {role: patientPsi}]", "two combinations are both called patientPsi_CBT"),
        ("clients: [{role: patientPsi, label: ../../x}]", "is not a valid label"),
        ("lang: German", "`lang` of the config is not right"),
        ("evaluators: [kindness]", "there is no rubric called `kindness`"),
        ("evaluators: [{name: x, instructions: y, scale: categorical}]", "has no `labels`"),
        ("evaluators: [{name: x, instructions: y, range: [5, 1]}]", "is empty: 5 to 1"),
        ("evaluators: [{name: x, expect: {looks: nice}}]", "`looks` is not a valid expectation"),
        ("- a list", "the config is not a mapping"),
        ("num_runs: 900000\nclients: [patientPsi, eeyore]", "asks for 1,800,000 dialogues"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(text: str, said: str) -> None:
    assert said in refused(text)


def test_a_profile_of_the_users_own_is_checked_before_it_is_played(tmp_path: Path) -> None:
    (tmp_path / "people.json").write_text('[{"description": "A"}, {"name": "no description"}]')

    with pytest.raises(PlanError, match="the profile people:1 is not valid for roleplayDoh"):
        read("clients: [{role: roleplayDoh, profiles_file: people.json}]", tmp_path)


def test_a_language_that_a_role_does_not_speak_is_said_before_anything_starts() -> None:
    made = read("language: ja")

    assert made.remarks == [
        "patientPsi has no templates in `ja`: it is played in `en`",
        "these profiles of patientPsi are not in `ja`, but in `en`: jonah, marta, wei",
        "CBT has no templates in `ja`: it is played in `en`",
        "these profiles of CBT are not in `ja`, but in `en`: osei",
        "the moderator does not speak `ja`: its messages are in `en`",
    ]
    assert [remark for remark in read("lang: de").remarks if "profiles of" not in remark] == []


def test_another_language_makes_another_dialogue_and_english_is_as_ever() -> None:
    ids = {
        text: next(read(text).items("")).id for text in ("seed: 1", "seed: 1\nlang: en", "seed: 1\nlang: de")
    }

    assert ids["seed: 1"] == ids["seed: 1\nlang: en"] != ids["seed: 1\nlang: de"]


def test_rubrics_come_to_one_criterion_for_each_aspect() -> None:
    simulation = read("evaluators: [CBT_adherence, {name: safety, passes_at: 1}]\njudge_model: openai/j\n")

    names = [each["criterion"]["name"] for each in simulation.evaluators]
    assert names == [
        "CBT_adherence.cognitive_restructuring",
        "CBT_adherence.behavioral_activation",
        "CBT_adherence.Socratic_questioning",
        "CBT_adherence.homework_assignment",
        "safety",
    ]
    assert simulation.evaluators[-1]["criterion"]["passes_at"] == 1
    assert simulation.models == ["openai/gpt-4o", "openai/j"]


@pytest.mark.parametrize("name", ["budget_limit", "cost_per_run_limit"])
def test_a_limit_that_cannot_be_enforced_is_refused(name: str) -> None:
    assert f"`{name}` of the command line should be a finite number" in refused(**{name: float("inf")})


def test_both_sides_profiles_are_crossed_with_each_other() -> None:
    simulation = read(
        "clients: [{role: patientPsi, profile: [jonah, wei]}]\n"
        "therapists: [{role: scripted, profile: all}]\nnum_runs: 2\n"
    )

    items = list(simulation.items(""))
    cells = [
        (item.factors["profile"], item.details["therapist"]["profileName"], item.settings["repeat"])
        for item in items
    ]

    assert len(cells) == len(set(cells)) == simulation.item_count
    assert {item.factors.get("therapist_profile") for item in items} == {each[1] for each in cells}


def test_dialogues_of_earlier_runs_keep_their_ids_when_profiles_are_crossed() -> None:
    """Runs that were made when the repeats used the profiles in turn: run n had profile n modulo 3."""
    turns = {item.id: item.settings["file"] for item in read(num_runs=4, seed=1).items("")}
    crossed = {
        item.id: item.settings["file"]
        for item in read("clients: [{role: patientPsi, profile: all}]\nseed: 1\nnum_runs: 4\n").items("")
    }

    assert turns.items() <= crossed.items()


def pairs_by(simulation: DialoguePlan, factor: str) -> dict[str, set[int]]:
    """The tasks of each level of a factor, as a comparison finds them."""
    reader, items = InputReader(), list(simulation.items(""))
    for item in items:
        top = {"runner": item.runner, "agent": item.agent, "model": item.model, "prompt": item.prompt}
        row = {**top, "digest": item.digest, "details": json.dumps(dict(item.details))}
        reader.add({name: [value] for name, value in row.items()})
    inputs, levels = reader.inputs(), Labels.of(item.factors.get(factor) for item in items)
    varied = inputs.varied(levels.codes)
    tasks = inputs.coded(*(path for path in inputs.paths if path not in varied))
    return {level: set(tasks[levels.mask(level)].tolist()) for level in levels.labels}


@pytest.mark.parametrize("factor", ["therapist", "client"])
def test_a_role_without_a_model_is_compared_on_the_same_tasks(factor: str) -> None:
    """Two therapists share a model and the scripted one has none: that is no other task."""
    simulation = read(
        "clients: [patientPsi, {role: patientPsi, label: upset, options: {patient_type: upset}}, scripted]\n"
        "therapists: [CBT, MI, scripted, eliza]\nnum_runs: 2\n"
    )

    tasks = pairs_by(simulation, factor)

    assert len(tasks) == (4 if factor == "therapist" else 3)
    first, *others = tasks.values()
    assert first and all(first == other for other in others)


def test_profiles_and_settings_are_compared_with_all_else_equal() -> None:
    simulation = read(
        "clients: [{role: patientPsi, profile: all}]\ntherapists: [CBT, scripted]\n"
        "temperature: [0.0, 1.0]\nnum_runs: 2\n"
    )

    by_profile, by_temperature = pairs_by(simulation, "profile"), pairs_by(simulation, "temperature")

    assert {name: len(tasks) for name, tasks in by_profile.items()} == {"jonah": 4, "marta": 4, "wei": 4}
    assert set.intersection(*by_profile.values()) == by_profile["wei"]
    assert by_temperature["0"] == by_temperature["1"] and len(by_temperature["0"]) == 6
    # A setting that is not compared makes other tasks: it is not pooled as a repeat.
    assert len(pairs_by(simulation, "therapist")["CBT"]) == 6


def test_pairs_restrict_who_meets_whom(tmp_path: Path) -> None:
    text = "clients: [patientPsi, eeyore]\ntherapists: [CBT, eliza]\nnum_runs: 2\n"

    made = read(f"{text}pairs: [[patientPsi, CBT], [eeyore, eliza]]", tmp_path)

    assert [each.name for each in made.combinations] == ["patientPsi_CBT", "eeyore_eliza"]
    assert made.item_count == 4
    with pytest.raises(PlanError, match="there is no therapist `CTB`"):
        read(f"{text}pairs: [[patientPsi, CTB]]", tmp_path)


def test_without_new_keys_the_digest_of_a_simulation_is_as_ever() -> None:
    plain = read("num_runs: 3")

    assert read("num_runs: 3\npairs: [[patientPsi, CBT]]").digest != plain.digest
    assert plain.digest == "4fa37fb36f9da79846811a1bd19c36f03d1c5d87a83e15614ecf1e440a4909be"


def test_all_faults_of_a_profile_and_of_an_entry_are_reported_together(tmp_path: Path) -> None:
    (tmp_path / "people.yaml").write_text("name: A\nhistory: 3\n")
    entry = "{role: patientPsi, label: a/b, profiles_file: people.yaml, options: {patient_type: odd, x: 1}}"

    with pytest.raises(PlanError) as refused:
        read(f"clients: [{entry}, nobody]\ntemperature: 5\nevaluators: [nothing]", tmp_path)
    assert "temperature" in str(refused.value), "a wrong shape is reported first"
    with pytest.raises(PlanError) as refused:
        read(f"clients: [{entry}, nobody]\nevaluators: [nothing]", tmp_path)

    text = str(refused.value)
    for part in (
        "`a/b` is not a valid label",
        "no option `x`",
        "`patient_type` of patientPsi cannot be `odd`",
        "history: 3 is not of type 'string'",
        "'situation' is a required property",
        "no role called `nobody`",
        "no rubric called `nothing`",
    ):
        assert part in text


def guest(folder: Path, role: str, template: str = "{{ profile.nmae }} {{ profile.get('x') }}") -> None:
    made = folder / "roles" / "guest"
    (made / "templates" / "en").mkdir(parents=True)
    (made / "profiles").mkdir()
    (made / "role.yaml").write_text(f"description: d\nplays: [client]\n{role}\n")
    (made / "templates" / "en" / "t.j2").write_text(template)
    (made / "profiles" / "a.yaml").write_text("name: A\n")


@pytest.mark.parametrize(
    ("role", "message"),
    [
        ("steps: [{ask: t, into: thoughts}]", "the role never replies"),
        ("steps: [{say: t}]\nparameters: {temperature: 5}", "`temperature: 5` is not accepted"),
        ("steps: [{ask: t, parameters: {temperature: -1}}]", "`temperature: -1` is not accepted"),
        ("steps: [{say: t}]", "the profile a of guest has no `nmae`, which its templates use"),
        (
            "steps: [{say: t, when: false}, {end: left}]\nstate: {mood: profile.mood + 1}",
            "no attribute 'mood'",
        ),
    ],
)
def test_what_would_fail_in_every_dialogue_is_said_before_the_first(tmp_path, role, message):
    guest(tmp_path, role)

    with pytest.raises(PlanError) as refused:
        read("clients: [guest]", tmp_path)

    assert message in str(refused.value)


def test_members_in_branches_and_with_defaults_are_not_needed(tmp_path: Path) -> None:
    template = (
        "{% if options %}{{ profile.maybe }}{% endif %}{{ profile.other | default('') }}"
        "{{ profile.given if profile.given is defined }}{% for n, v in profile.items() %}{{ v }}{% endfor %}"
    )
    guest(tmp_path, "steps: [{say: t}]", template)

    assert read("clients: [guest]", tmp_path).item_count == 5


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (None, {}),
        ("openai/gpt", {"model_name": "openai/gpt", "model_type": ""}),
        ("gpt", {"model_name": "gpt"}),
        ("/gpt", {"model_name": "/gpt"}),
    ],
)
def test_a_model_with_its_provider_replaces_the_type(model: str | None, settings: dict[str, Any]) -> None:
    assert DialogueOverrides(model=model).settings() == settings


@pytest.mark.parametrize(
    ("text", "concurrency"),
    [
        ("therapists: [eliza]\nmax_workers: 3\n", 3),
        ("therapists: [human]\nmax_workers: 3\n", 1),
        ("therapists: [human]\nmax_workers: 3\nhuman: terminal\n", 1),
        ("therapists: [human]\nmax_workers: 3\nhuman: web\n", 3),
    ],
)
def test_a_person_at_the_terminal_has_one_dialogue_at_a_time(text, concurrency, tmp_path):
    with open_context((tmp_path,), home=str(tmp_path / "home")) as ctx:
        plan = JOB.read(PlanText(text=text, folder=tmp_path), DialogueOverrides(), ctx)

    assert plan.concurrency == concurrency
