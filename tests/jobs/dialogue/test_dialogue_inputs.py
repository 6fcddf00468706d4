"""Inputs of a dialogue: profiles, earlier sessions, options, tools in files; and what is wrong with them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import PlanError, UsageError
from proctor.jobs.dialogue import plan
from proctor.jobs.dialogue.plan import RoleChoice, previous_sessions, role_choice
from proctor.jobs.dialogue.roles import BUILT_IN, Roles, read_role
from proctor.jobs.dialogue.world import DialogueTask, read_tasks, read_tools
from recorded_files import check

EEYORE = Roles().find("eeyore")


def refused(call: Any) -> str:
    with pytest.raises(UsageError) as error:
        call()
    return str(error.value)


# --- Profiles ---


def test_a_side_has_a_profile_and_a_session_for_each_number() -> None:
    choice = RoleChoice(
        label="l",
        role=EEYORE.role("en"),
        digest="d",
        profiles=[("a", {"x": 1}), ("b", {"x": 2})],
        is_crossed=True,
        options={"o": 1},
        model="m/n",
        parameters={"temperature": 0.5},
        previous=[{"profile": "a", "n": 1}, {"profile": "a", "n": 2}, {"profile": "c", "n": 3}],
    )
    first, second = choice.details(0), choice.details(1)
    assert (first["profileName"], first["profile"]) == ("a", {"x": 1})
    assert (first["options"], first["previous"]) == ({"o": 1}, {"profile": "a", "n": 1})
    assert (second["profileName"], second["previous"]) == ("b", {"profile": "a", "n": 2})
    assert choice.details(2)["profileName"] == "a"
    assert "previous" not in replace(choice, previous=()).details(0)
    assert (choice.crossed_profiles, replace(choice, is_crossed=False).crossed_profiles) == (2, 1)
    task = DialogueTask(name="refund", goal="Get money.", profile={"y": 3})
    assert choice.details(0, task)["profileName"] == "a/refund"
    assert choice.details(0, task)["profile"] == {"x": 1, "y": 3, "goal": "Get money."}
    single = replace(choice, profiles=[("a", {})])
    assert single.details(0, task)["profileName"] == "refund"
    assert replace(choice, is_crossed=False).details(0, task)["profileName"] == "refund"


def test_models_and_parameters_of_a_side_come_before_those_of_its_role_and_the_plan() -> None:
    speaker = replace(EEYORE.role("en"), model="role/m", parameters={"a": 1, "b": 1, "c": 1})
    choice = RoleChoice(
        label="l", role=speaker, digest="d", profiles=[("a", {})], is_crossed=False, parameters={"c": 3}
    )
    done = choice.settled("plan/m", {"b": 2, "c": 2, "d": None})
    assert (done.model, done.parameters) == ("role/m", {"a": 1, "b": 2, "c": 3})
    assert replace(choice, model="own/m").settled("plan/m", {}).model == "own/m"
    bare = replace(choice, role=replace(speaker, model=""))
    assert bare.settled("plan/m", {}).model == "plan/m"


# --- Earlier sessions ---


def test_earlier_sessions_are_files_or_a_folder_of_them(tmp_path: Path) -> None:
    def write(name: str, **more: Any) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps({"messages": [{"role": "client", "content": name}], **more}))
        return path

    states = [{"turn": 0, "client.mood": 1, "therapist.mood": 5}, {"client.mood": 2, "client.x": 3}]
    one = write("a_run1.json", states=states, roles={"client": {"profile": "zoe"}})
    write("b_run2.json")
    write("other.json")
    (tmp_path / "c_run3.json").write_text(json.dumps({"messages": []}))
    (tmp_path / "d_run4.json").mkdir()
    first = {
        "profile": "zoe",
        "messages": [{"role": "client", "content": "a_run1.json"}],
        "states": {"mood": 2, "x": 3},
    }
    assert previous_sessions(one, "client") == [first]
    second = {"profile": None, "messages": [{"role": "client", "content": "b_run2.json"}], "states": {}}
    assert previous_sessions(tmp_path, "client") == [first, second]
    assert previous_sessions(one, "therapist")[0]["states"] == {"mood": 5}
    for path in (tmp_path / "lost.json", tmp_path / "c_run3.json"):
        assert refused(lambda path=path: previous_sessions(path, "client")) == (
            f"there is no session in {path} to continue\nGive a session file, or an output folder."
        )


# --- Tools and tasks in files ---


def test_tools_in_another_folder_name_their_files_from_the_config(tmp_path: Path) -> None:
    inner = tmp_path / "tools"
    inner.mkdir()
    (inner / "shop.py").write_text("def price(name: str) -> int:\n    '''The price.'''\n    return 1\n")
    (inner / "look.sh").write_text("")
    text = """\
tools:
- {name: price, description: d, python: "shop.py:price"}
- {name: look, description: d, parameters: {}, command: [sh, look.sh, other]}
"""
    (inner / "tools.yaml").write_text(text)
    price, look = read_tools("tools/tools.yaml", tmp_path)
    assert (price["python"], look["command"]) == ("tools/shop.py:price", ["sh", "tools/look.sh", "other"])
    same = read_tools("tools.yaml", inner)
    assert (same[0]["python"], same[1]["command"]) == ("shop.py:price", ["sh", "look.sh", "other"])
    assert refused(lambda: read_tools("lost.yaml", tmp_path)) == (
        f"there is no file {tmp_path}/lost.yaml with tools"
    )


def test_files_of_tools_and_tasks_are_checked(tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").write_text("tools: [{name: a, color: red}]\n")
    with pytest.raises(PlanError) as error:
        read_tools("tools.yaml", tmp_path)
    assert [each.problem for each in error.value.problems][-1] == "tool 1 has no setting `color`"
    (tmp_path / "tasks.yaml").write_text("tasks: [{name: a, gaol: red}]\n")
    with pytest.raises(PlanError) as error:
        read_tasks("tasks.yaml", tmp_path)
    assert "task 1 has no setting `gaol`" in [each.problem for each in error.value.problems]


# --- Analysis ---


def test_roles_may_have_tools_and_a_policy(tmp_path: Path) -> None:
    made = Path(shutil.copytree(BUILT_IN / "support", tmp_path / "support"))
    text = (made / "role.yaml").read_text()
    assert "policy:" not in text and "tools:" not in text
    (made / "role.yaml").write_text(
        f"{text}\npolicy: rules.md\n"
        "tools: [{name: look, description: d, parameters: {}, command: [ls]}]\n"
    )
    (made / "rules.md").write_text("Be kind.")
    found = read_role(made).role("en")
    assert (found.policy, [tool["name"] for tool in found.tools]) == ("Be kind.", ["look"])


# --- Combinations ---


def choice(label: str, profiles: int, *, is_crossed: bool) -> RoleChoice:
    people = [(f"{label}{number}", {}) for number in range(profiles)]
    return RoleChoice(
        label=label, role=EEYORE.role("en"), digest=label, profiles=people, is_crossed=is_crossed
    )


def runs_of(client: RoleChoice, therapist: RoleChoice, tasks: int, runs: int) -> list[tuple[Any, ...]]:
    named = [DialogueTask(name=f"task{number}", goal="g") for number in range(tasks)]
    pair = plan.Combination(name="pair", client=client, therapist=therapist, tasks=named)
    return [(*pair.profiles(run), task.name if (task := pair.task(run)) else None) for run in range(runs)]


def test_each_task_has_every_pair_of_profiles() -> None:
    client, therapist = choice("c", 2, is_crossed=True), choice("t", 1, is_crossed=False)
    assert runs_of(client, therapist, tasks=2, runs=6) == [
        (0, 0, "task0"),
        (1, 0, "task0"),
        (0, 0, "task1"),
        (1, 0, "task1"),
        (0, 1, "task0"),
        (1, 1, "task0"),
    ]
    pair = plan.Combination(name="p", client=client, therapist=therapist)
    assert pair.runs_per_repeat == 2
    assert replace(pair, tasks=[DialogueTask(name="a", goal="g")] * 3).runs_per_repeat == 6


# --- Dialogues of a simulation ---


def simulation(text: str, folder: Path) -> plan.DialoguePlan:
    return plan.read_simulation(text, {}, file="sim.yaml", folder=folder, roles=Roles())


CONFIG = """\
clients: [{role: eeyore, label: donkey, profile: 0, model: openai/own}]
therapists: [eliza]
num_runs: 2
max_turns: 7
seed: 3
model_type: OPENAI
model_name: m
max_tokens: 50
temperature: 0.25
"""


def test_a_dialogue_has_its_sides_settings_and_factors(tmp_path: Path) -> None:
    made = simulation(CONFIG, tmp_path)
    first, second = made.items("out")
    assert [item.repeat for item in (first, second)] == [1, 2]
    sides = {side: {**first.details[side], "profile": "…", "digest": "…"} for side in ("client", "therapist")}
    parts = {"details": {**first.details, **sides}, "settings": first.settings, "factors": first.factors}
    top = {"runner": first.runner, "prompt": first.prompt, "model": first.model}
    check(Path(__file__).parent / "recorded" / "dialogue-item.txt", {**top, **parts})
    name, profile = next(iter(EEYORE.profiles_in("en").items()))
    assert (first.details["client"]["profileName"], first.details["client"]["profile"]) == (name, profile)
    assert (second.settings["file"], second.settings["run"]) == ("donkey_eliza_run1.json", 1)
    assert second.settings["repeat"] == 1
    assert (made.item_count, made.models, made.has_person) == (2, ["openai/own"], False)


def test_the_digest_of_a_simulation_leaves_out_how_it_runs(tmp_path: Path) -> None:
    digest = simulation(CONFIG, tmp_path).digest
    for more in ("output_dir: x\n", "max_workers: 9\n", "notify: mine\n", "sandbox: none\n"):
        assert simulation(CONFIG + more, tmp_path).digest == digest, more
    assert simulation(CONFIG.replace("num_runs: 2", "num_runs: 9"), tmp_path).digest == digest
    for more in ("retries: 3\n", "reminder_turns: 5\n", "under_test: client\n"):
        assert simulation(CONFIG + more, tmp_path).digest != digest, more


def test_evaluators_of_a_simulation_are_checks_rubrics_or_named(tmp_path: Path) -> None:
    text = CONFIG + (
        "judge_model: openai/judge\n"
        "evaluators:\n"
        "- {name: greets, expect: {contains: hello}}\n"
        "- {name: asks, expect: {contains: why}, target: client, level: turn}\n"
        "- {name: warm, instructions: Is it warm?, model: openai/own}\n"
        "- {name: kind, instructions: Is it kind?}\n"
    )
    made = simulation(text, tmp_path)
    first, second, warm, kind = made.evaluators
    sides = [(each["expectation"]["target"], each["expectation"]["level"]) for each in (first, second)]
    assert sides == [("therapist", "session"), ("client", "turn")]
    assert (warm["model"], kind["model"]) == ("openai/own", "openai/judge")
    assert made.models == ["openai/own", "openai/judge"]
    with pytest.raises(PlanError) as error:
        simulation(CONFIG + "evaluators: [nobody-at-all]\n", tmp_path)
    assert error.value.problems[0].at.line == 10


def test_what_a_role_needs_of_the_other_may_be_an_option(tmp_path: Path) -> None:
    def uses(**options: str) -> list[str]:
        entry = {"role": "MI", "options": options} if options else {"role": "MI"}
        return list(role_choice(entry, "therapist", "en", tmp_path, Roles()).uses)

    assert uses() == ["goal", "behavior"]
    known = Roles().find("MI").options
    name = next(each for each in ("goal", "behavior") if each in known)
    assert uses(**{name: "sleep"}) == [each for each in ("goal", "behavior") if each != name]
