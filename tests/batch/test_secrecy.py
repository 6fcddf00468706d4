"""Keys reach neither an agent's environment nor the record."""

from dataclasses import replace

import pytest

from proctor.secrets import redactor, visible

KEY = "sk-proj-0123456789abcdef"


def everything_written(workshop) -> bytes:
    return b"".join(file.read_bytes() for file in workshop.folder.glob("proctor.db*"))


async def test_an_agent_sees_no_key_of_ours(workshop, repository):
    keys = {
        "OPENAI_API_KEY": KEY,
        "GITHUB_TOKEN": "ghp_0123456789",
        "AWS_SECRET_ACCESS_KEY": "aws/0123456789",
    }
    workshop.context = replace(
        workshop.context, environment={**workshop.context.environment, **keys, "LANG": "C"}
    )

    await workshop.run(f"matrix: [{{repo: {repository}, prompt: look around, agent: command, command: env}}]")

    (session,) = workshop.rows("sessions")
    seen = "\n".join(row["content"] for row in workshop.store.read.of_session("messages", session["id"]))
    (step,) = workshop.store.read.of_session("iterations", session["id"])
    printed = seen + step["output"]
    assert "LANG=C" in printed, "the agent's output must be where we look"
    for name, value in keys.items():
        assert name not in printed
        assert value not in printed
        assert value.encode() not in everything_written(workshop)


async def test_a_variable_the_plan_names_is_seen_and_its_secret_is_blotted_out_of_the_record(
    workshop, repository
):
    environment = {**workshop.context.environment, "SHOP_TOKEN": KEY}
    workshop.context = replace(workshop.context, environment=environment)
    command = 'echo "my token is $TOKEN" && echo "$TOKEN" > used.txt && test "$TOKEN" = "$(cat used.txt)"'
    plan = f"""
        matrix:
          - repo: {repository}
            prompt: use it
            agent: command
            command: '{command}'
            env: {{TOKEN: "${{SHOP_TOKEN}}"}}
            scriptCommand: grep -q sk-proj used.txt
    """

    await workshop.run(plan)

    assert workshop.outcomes() == [("success", "completed")]
    said = [row["content"] for row in workshop.rows("messages") if row["role"] == "assistant"]
    assert said == ["my token is [secret]"]
    assert KEY.encode() not in everything_written(workshop)


def test_short_values_and_paths_are_not_blotted_out():
    blot = redactor(
        {"A_TOKEN": "true", "SSH_AUTH_SOCK": "/run/user/1000/agent", "EDITOR": "a-long-editor-name"}
    )

    text = "true /run/user/1000/agent a-long-editor-name"
    assert blot(text) == text


def test_the_longest_secret_wins_where_one_holds_another():
    blot = redactor({"KEY": "abcdefgh", "LONG_KEY": "abcdefghijkl"})

    assert blot("abcdefghijkl abcdefgh") == "[secret] [secret]"


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "HTTP_PROXY", "LD_PRELOAD", "GIT_DIR", "PYTHONPATH"])
def test_only_what_is_known_to_be_harmless_is_seen(name):
    assert visible({name: "x", "PATH": "/bin", "LC_ALL": "C"}) == {"PATH": "/bin", "LC_ALL": "C"}


def test_a_key_is_blotted_out_whatever_the_variable_is_called_that_holds_it():
    blot = redactor({"AZURE_KEY_VARIABLE": "TEAM_FOUR", "TEAM_FOUR": "four-and-twenty"})
    assert blot("TEAM_FOUR is four-and-twenty") == "TEAM_FOUR is [secret]"
