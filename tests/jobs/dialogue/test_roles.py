"""A role is a folder: found, read, checked before anyone speaks, and made anew by a command."""

import json
import re
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from proctor.errors import NotFound, PlanError, UsageError
from proctor.jobs.dialogue.roles import BUILT_IN, Roles, new_role, read_profiles, read_role

NAMES = sorted(path.parent.name for path in BUILT_IN.glob("*/role.yaml"))
CLIENTS = {
    "patientPsi",
    "consistentMI",
    "eeyore",
    "roleplayDoh",
    "simPatient",
    "cars",
    "saps",
    "psyche_patient",
    "clientCast",
    "annaAgent",
    "talkDep",
    "adaptiveVP",
    "patientZero",
    "deprofile",
    "mindVoyager",
    "patientAct",
}
THERAPISTS = {"CBT", "MI", "psyche", "eliza", "scripted"}
OTHER_FIELDS = {"customer", "support", "student", "tutor", "interviewer", "candidate"} | {
    "simulated_user",
    "tool_agent",
}
WITHOUT_PERSON = {"endpoint", "human"}
"""Whoever plays it brings the person along."""


def test_every_role_that_is_promised_is_there() -> None:
    assert set(NAMES) == CLIENTS | THERAPISTS | OTHER_FIELDS | WITHOUT_PERSON
    roles = Roles()
    assert roles.names() == sorted(NAMES, key=str.casefold)
    # Those of the original have its names, too.
    for name in CLIENTS | {"psyche", "user"}:
        assert "client" in roles.find(name, "client").plays
    for name in {"basic", "eliza", "user", "psyche", "cami", "CBT", "MI"}:
        assert "therapist" in roles.find(name, "therapist").plays


@pytest.mark.parametrize("name", NAMES)
def test_a_built_in_role_can_be_read_and_has_three_people_to_be(name: str) -> None:
    role = Roles().find(name)

    assert len(role.profiles) >= (1 if name in WITHOUT_PERSON else 3)
    assert role.role("en").steps


@pytest.mark.parametrize(
    ("role", "profile"),
    [
        ("roleplayDoh", "{description: Someone.}"),
        ("saps", "{patient_info: A record.}"),
        (
            "patientPsi",
            """{name: A, id: 1-1, type: [plain], history: h, helpless_belief: [], unlovable_belief: [],
            worthless_belief: [], intermediate_belief: i, coping_strategies: c, situation: s,
            auto_thought: x, emotion: [e], behavior: [y]}""",
        ),
        (
            "consistentMI",
            """{idx: 1, quality: high, topic: t, Behavior: b, suggestibilities: [3], Personas: [],
            Beliefs: [], Motivation: [Health, r], Acceptable Plans: []}""",
        ),
        (
            "simPatient",
            """{persona: {age: 3, gender: g, ethnicity: e, occupation: o, mbti: m}, cognitive_model:
            {patient_control: 1, patient_efficacy: 2, patient_awareness: 3, patient_reward: 4}}""",
        ),
    ],
)
def test_profiles_as_the_original_framework_writes_them_are_taken(role, profile, tmp_path):
    path = tmp_path / "characters.json"
    path.write_text(json.dumps([yaml.safe_load(profile)] * 2))

    read = read_profiles(path)

    assert list(read) == ["characters:0", "characters:1"]
    assert Roles().find(role).check_profile(read["characters:0"]) == []


def test_a_new_role_is_ready_to_be_played(tmp_path: Path) -> None:
    written = new_role("landlord", tmp_path / "roles" / "landlord", plays="client")
    found = Roles([tmp_path / "roles"]).find("landlord")

    assert {path.name for path in written} >= {"role.yaml", "system.j2", "profile.schema.yaml", "robin.yaml"}
    assert found.plays == ("client",)
    assert not found.is_built_in
    with pytest.raises(UsageError, match="there already"):
        new_role("landlord", tmp_path / "roles" / "landlord", plays="client")
    for name in ("a b", "a/b"):
        with pytest.raises(UsageError, match="is no name for a role"):
            new_role(name, tmp_path / "x", plays="client")


def test_a_role_s_schema_makes_nobody_fetch_an_address(tmp_path: Path) -> None:
    new_role("landlord", tmp_path / "landlord", plays="client")
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        reference = f"http://127.0.0.1:{server.server_address[1]}/schema"
        (tmp_path / "landlord" / "profile.schema.yaml").write_text(json.dumps({"$ref": reference}))
        # A fetched page would be a 404, and another problem.
        with pytest.raises(PlanError, match="the schema refers to what is not in it: Unresolvable: http://"):
            Roles([tmp_path]).find("landlord")
        server.shutdown()


def test_a_users_role_comes_before_ours_of_the_same_name(tmp_path: Path) -> None:
    new_role("eliza", tmp_path / "eliza", plays="therapist")

    assert "say here who this is" in Roles([tmp_path]).find("eliza").description


@pytest.mark.parametrize("name", ["patientPsi", "CBT", "customer", "support"])
@pytest.mark.parametrize(("language", "word"), [("de", "Du bist|Sie sind|jemand"), ("zh", "你|您|顾客")])
def test_some_roles_speak_german_and_chinese(name: str, language: str, word: str) -> None:
    found = Roles().find(name)

    role = found.role(language)

    assert role.language == language
    assert set(role.templates) == set(found.role("en").templates)
    for template, text in role.templates.items():
        if template != "first":
            assert re.search(word, text, re.IGNORECASE), template
        assert text != found.role("en").templates[template]


@pytest.mark.parametrize(
    ("wanted", "spoken"), [("de-AT", "de"), ("zh-Hant", "zh"), ("ja", "en"), ("en-GB", "en"), ("de", "de")]
)
def test_a_role_falls_back_to_the_nearest_language_and_then_to_english(wanted: str, spoken: str) -> None:
    assert Roles().find("CBT").role(wanted).language == spoken


def test_a_role_that_has_no_english_speaks_what_it_has(tmp_path: Path) -> None:
    new_role("wirtin", tmp_path / "wirtin", plays="client")
    (tmp_path / "wirtin" / "templates" / "en").rename(tmp_path / "wirtin" / "templates" / "de")

    assert Roles([tmp_path]).find("wirtin").role("ja").language == "de"


@pytest.mark.parametrize("name", ["patientPsy", "../eliza", "roles/eliza", "nobody at all", "patient_psi"])
def test_a_role_there_is_none_of_is_said_to_be_so_with_the_nearest(name: str) -> None:
    with pytest.raises(NotFound, match="there is no role") as refused:
        Roles().find(name)
    assert ("Did you mean `patientPsi`" in str(refused.value)) is name.startswith("patient")


def broken(tmp_path: Path, text: str, **files: str) -> str:
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "role.yaml").write_text(text)
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    with pytest.raises((PlanError, UsageError)) as caught:
        read_role(folder)
    return str(caught.value)


GOOD = "description: x\nplays: [client]\nsteps:\n"
END = GOOD + "  - {end: x}\n"
RULES = GOOD + "  - {rules: doctor}\n"
SCHEMA = "{type: object, required: [name]}"


@pytest.mark.parametrize(
    ("text", "files", "said"),
    [
        (GOOD + "  - aks: hello\n", {}, "role.yaml:4:5: step 1 has no setting `aks`"),
        (GOOD + "  - {ask: a, say: b}\n", {}, "exactly one of"),
        (GOOD + "  - {draw: x}\n", {}, "has `draw` but no `from`"),
        (GOOD + "  - say: hello\n", {}, "template `hello` it does not have"),
        (GOOD + "  - {set: {a: '1 +'}}\n", {}, "is no expression"),
        (GOOD + "  - {end: x, when: 'a b'}\n", {}, "is no expression"),
        (RULES, {}, "there is no data/doctor.yaml"),
        (GOOD + "  - {ask: {tmplate: a}}\n", {}, "`ask` of step 1 has no setting `tmplate`"),
        (END + "metrics: [mood]\n", {}, "`mood` is not in the role's state"),
        ("plays: [client]\nsteps: [{end: x}]\n", {}, "has no `description`"),
        (
            "description: x\nplays: [dog]\nsteps: [{end: x}]\n",
            {},
            "`plays[1]` of the role should be one of `client`",
        ),
        (
            GOOD + "  - say: hello\n",
            {"templates__en__hello_dot_j2": "{% if x %}"},
            "the template cannot be read",
        ),
        (
            END,
            {"profile_dot_schema_dot_yaml": SCHEMA, "profiles__abe_dot_yaml": "{age: 3}"},
            "profiles/abe:1:1: the profile: 'name' is a required property",
        ),
        (END, {"profile_dot_schema_dot_yaml": "{type: thing}"}, "no JSON Schema"),
        (RULES, {"data__doctor_dot_yaml": "[]"}, "needs a list `rules`"),
        (
            RULES,
            {"data__doctor_dot_yaml": "{rules: [{match: a}], otherwise: [b]}"},
            "rule 1 needs `match` and `reply`",
        ),
        (
            RULES,
            {"data__doctor_dot_yaml": "{rules: [{match: '(', reply: a}], otherwise: [b]}"},
            "is not a valid regular expression",
        ),
        (END, {"data__doctor_dot_yaml": "rules: [\n  {match: a"}, "doctor.yaml:3:1: this is not YAML"),
        (END, {"data__doctor_dot_json": "rules: [\n  {match: a"}, "doctor.json: this is not JSON"),
        (END, {"data__doctor_dot_yaml": "rules: []\nrules: []\n"}, "doctor.yaml:2:1"),
    ],
)
def test_what_is_wrong_with_a_role_is_said_before_it_is_played(text, files, said, tmp_path):
    assert said in broken(tmp_path, text, **files)


@pytest.mark.parametrize(
    ("file", "old", "new", "where", "said"),
    [
        ("templates/en/feel.j2", "", "\n{{ trutst }}\n", "feel.j2:", "speaks of `trutst`"),
        ("role.yaml", "when: trust", "when: tust", "role.yaml:", "`when: tust <= 1` speaks of `tust`"),
        ("role.yaml", "{trust: trust}", "{trust: tust}", "role.yaml:", "speaks of `tust`"),
        ("templates/en/feel.j2", "", "\n\n{{ broken", "feel.j2:", "the template cannot be read"),
    ],
)
def test_a_name_that_nothing_gives_a_value_is_found_before_anyone_speaks(
    tmp_path: Path, file: str, old: str, new: str, where: str, said: str
) -> None:
    new_role("guest", tmp_path / "guest", plays="client")
    path = tmp_path / "guest" / file
    text = path.read_text()
    path.write_text(text.replace(old, new) if old else text.rstrip("\n") + new)

    with pytest.raises(PlanError) as refused:
        Roles([tmp_path]).find("guest")

    assert where in str(refused.value) and said in str(refused.value)
    if not old:
        lines = path.read_text().splitlines()
        line = next(number for number, text in enumerate(lines, 1) if "{{ trutst" in text or "{{ br" in text)
        assert f"feel.j2:{line}:1" in str(refused.value)


def test_each_method_is_cited_with_its_authors() -> None:
    for name in sorted((CLIENTS | THERAPISTS) - {"scripted"}):
        sources = Roles().find(name).source.data["sources"]
        assert sources, name
        for source in sources if name in CLIENTS else ():
            assert re.match(r"[A-Z][\w-]+( et al\.| and [A-Z][\w-]+)?, [A-Z]", source), source
