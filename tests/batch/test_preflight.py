"""What must be there before a run starts: models, agents, sandboxes, programs."""

from types import SimpleNamespace

import pytest

from proctor.batch.preflight import (
    PreflightContext,
    check_agent,
    check_agents_model,
    check_model,
    has_own_models,
    missing_program,
    program_of,
)
from proctor.errors import UsageError


def find_agent(**agents):
    def find(name, settings):
        if name not in agents:
            raise UsageError(f"there is no agent {name}\nInstall it.")
        return agents[name]

    return find


# Stand-ins: no agent that is installed and no model can be made to lack each thing in turn.
def context(**more):
    models = SimpleNamespace(
        check=lambda model: None, missing_key=lambda model: "", has_price=lambda model: False
    )
    given = {"environment": {"PATH": "/bin"}, "find_agent": find_agent(), "models": models}
    return PreflightContext(**given | more)


def an_agent(*, ready=True, stand_in=False, **more):
    found = SimpleNamespace(ready=ready, problem="broken", remedy="repair it")
    return SimpleNamespace(availability=lambda environment: found, stand_in=stand_in, **more)


def test_a_model_must_be_reachable_and_have_its_key_and_a_price_where_needed():
    models = context().models
    assert list(check_model("m", models)) == []
    ((problem, remedy),) = check_model("m", models, needs_price=True, limit="the limit")
    assert problem == "no price is known for m, so the limit cannot be enforced"
    assert "prices: {m: {input: 1.0, output: 2.0}}" in remedy
    models.missing_key = lambda model: "KEY"
    assert list(check_model("m", models)) == [("m needs a key, and KEY is not set", "Set it: export KEY=…")]

    def refuse(model):
        raise UsageError("unknown model\nName another.")

    models.check = refuse
    assert list(check_model("m", models, needs_price=True)) == [("unknown model", "Name another.")]


def test_an_agent_must_exist_and_be_installed_and_mocks_are_remarked_on():
    remarks = set()
    agents = find_agent(good=an_agent(), broken=an_agent(ready=False), mock=an_agent(stand_in=True))
    found = {
        name: list(check_agent(name, {}, context(find_agent=agents), remarks))
        for name in ("good", "none", "broken", "mock")
    }
    assert found == {
        "good": [],
        "none": [("there is no agent none", "Install it.")],
        "broken": [("the agent broken cannot be used here: broken", "repair it")],
        "mock": [],
    }
    assert remarks == {"`mock` is a mock agent; its results say nothing about real agents"}
    assert list(check_agents_model("none", "m", {}, context())) == []
    assert has_own_models("none", {}, context())


@pytest.mark.parametrize(
    ("command", "program", "missing"),
    [
        ("none-such --flag", "none-such", "none-such"),
        ("A=1 B=2 none-such", "none-such", "none-such"),
        ("sh -c x", "sh", ""),
        ("./none-such", "./none-such", ""),
        ("cd x && y", "cd", ""),
        ("$TOOL x", "", ""),
        ("(none) x", "", ""),
        ("'unclosed", "", ""),
        ("# comment", "", ""),
        ("A=1", "", ""),
        ("", "", ""),
    ],
)
def test_the_program_of_a_command_must_be_on_the_path(command, program, missing):
    assert program_of(command) == program
    assert missing_program(command, context()) == missing
