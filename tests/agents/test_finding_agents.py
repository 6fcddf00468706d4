"""Finding an agent by name and giving it its settings."""

import pytest

from proctor.agents import agent_names, find_agent
from proctor.errors import NotFound, UsageError


def test_the_files_of_the_folder_are_the_agents():
    assert {"amp", "builtin", "command", "scripted"} <= set(agent_names())
    assert not [name for name in agent_names() if name.startswith(("_", "-"))]


@pytest.mark.parametrize("name", ["amp", "builtin", "command", "scripted"])
def test_every_agent_says_whether_it_is_a_mock_and_whether_it_is_ready(name):
    settings = {"command": {"command": "true"}, "scripted": {"script": [{"say": "hi"}]}}
    agent = find_agent(name, settings.get(name, {}))
    assert agent.is_mock is (name == "scripted")
    assert agent.availability({"PATH": ""}).ready is (name != "amp")


def test_a_class_anywhere_can_be_named(tmp_path, monkeypatch):
    (tmp_path / "parrots.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\n"
        "class Parrot:\n"
        "    voice: str = 'plain'\n"
        "    words: dict[str, int] | None = None\n"
        "    is_mock = True\n"
        "    def availability(self, environment): ...\n"
        "    async def work(self, assignment, record): ...\n"
        "@dataclass\n"
        "class Idle: ...\n"
        "class Plain:\n"
        "    async def work(self, assignment, record): ...\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    loud = find_agent("parrots:Parrot", {"voice": "loud", "words": {"a": 1}})
    assert (loud.voice, loud.words) == ("loud", {"a": 1})
    for wrong in ({"a": "one"}, ["a"]):
        with pytest.raises(UsageError, match="`words` must be"):
            find_agent("parrots:Parrot", {"words": wrong})
    for wrong in ("Owl", "number", "Idle", "Plain", ""):
        with pytest.raises(NotFound):
            find_agent(f"parrots:{wrong}", {})
    for wrong in ("nowhere:Parrot", ":Parrot"):
        with pytest.raises(NotFound):
            find_agent(wrong, {})


def test_an_adapter_of_before_keeps_its_members_and_gets_defaults_for_the_rest(tmp_path, monkeypatch):
    (tmp_path / "wrens.py").write_text(
        "from dataclasses import dataclass\n"
        "from proctor.agents.codex import Codex\n"
        "@dataclass(frozen=True, slots=True, kw_only=True)\n"
        "class Wren:\n"
        "    login: str = 'mine'\n"
        "    login_files = ('.wren',)\n"
        "    reach = 'gateway'\n"
        "    tells_all = False\n"
        "    def availability(self, environment): ...\n"
        "    async def work(self, assignment, record): ...\n"
        "class Heron(Codex):\n"
        "    tells_all = False\n"
        "    stand_in = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    wren, heron = find_agent("wrens:Wren", {}), find_agent("wrens:Heron", {})

    assert (wren.reach, wren.records_transcript, wren.copied_logins()) == ("gateway", False, (".wren",))
    assert (wren.is_mock, wren.keys, wren.needs_model, wren.needs_network) == (False, (), False, False)
    assert wren.refusal("any", {}) == "" and wren.problem("wren", "x" * 999_999, "") is None
    assert (heron.records_transcript, heron.needs_model, heron.is_mock) == (False, True, True)


def test_an_installed_package_brings_an_agent_through_an_entry_point(tmp_path, monkeypatch):
    (tmp_path / "owls.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Owl:\n    async def work(self, a, r): ...\n"
    )
    info = tmp_path / "owls-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: owls\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[proctor.agents]\nowl = owls:Owl\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert "owl" in agent_names()
    assert type(find_agent("owl", {})).__name__ == "Owl"


def test_an_unknown_agent_is_not_found_and_the_nearest_is_offered():
    with pytest.raises(NotFound, match="Did you mean `scripted`") as raised:
        find_agent("scriptd", {})
    assert "builtin, claude" in str(raised.value)
    for sly in ("_loader", "../amp", "", "__init__"):
        with pytest.raises(NotFound):
            find_agent(sly, {})


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("builtin", {"max_step": 3}, "no setting `max_step`\nDid you mean `max_steps`"),
        ("builtin", {"max_steps": "three"}, "`max_steps` must be a whole number, not str"),
        ("builtin", {"max_steps": True}, "`max_steps` must be a whole number, not bool"),
        ("amp", {"arguments": [1]}, "`arguments` must be a list of text"),
        ("command", {"command": {"a": 1}}, "`command` must be text or a list of text"),
        ("command", {}, "needs a setting `command`"),
        ("command", {"command": []}, "`command` is empty"),
    ],
)
def test_a_wrong_setting_is_named_with_what_there_is(name, settings, words):
    with pytest.raises(UsageError, match=words):
        find_agent(name, settings)


def program(folder, text):
    """A program that stands in for claude's."""
    (folder / "claude").write_text(text)
    (folder / "claude").chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_a_program_that_cannot_be_started_is_not_ready(tmp_path):
    found = find_agent("claude", {}).availability(program(tmp_path, "#!/no/such/interpreter\n"))
    assert not found.ready
    assert "cannot be started" in found.problem and "install" in found.remedy


def test_a_complaint_is_not_taken_for_a_version(tmp_path):
    broken = program(tmp_path, "#!/bin/sh\necho 'Cannot find module x' >&2; exit 3\n")
    found = find_agent("claude", {}).availability(broken)
    assert (found.version, found.problem) == ("", "`--version` failed (3): Cannot find module x")


def test_a_program_without_an_option_for_its_version_is_asked_for_help(tmp_path):
    environment = program(tmp_path, "#!/bin/sh\n[ $1 = --help ] || exit 2\necho 'This is version 2.4.6.'\n")
    environment["MINI_SWE_AGENT_BIN"] = "claude"
    found = find_agent("mini-swe-agent", {}).availability(environment)
    assert (found.version, found.problem) == ("This is version 2.4.6.", "")
