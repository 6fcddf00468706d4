"""What must be there before a run starts: the programs of commands; mock agents are remarked on."""

import pytest

from proctor.agents import find_agent
from proctor.batch.preflight import PreflightContext, missing_program, program_of
from proctor.models import ModelRouter


def test_a_mock_agent_is_remarked_on(proctor, repository):
    (proctor.folder / "plan.yaml").write_text(
        f"matrix: [{{repo: {repository}, prompt: fix, agent: scripted, script: [{{say: done}}]}}]"
    )

    done = proctor("batch", "plan.yaml", "--dry-run")

    assert "`scripted` is a mock agent; its results say nothing about real agents" in done.stderr


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
    context = PreflightContext(environment={"PATH": "/bin"}, find_agent=find_agent, models=ModelRouter({}))
    assert program_of(command) == program
    assert missing_program(command, context) == missing
