"""A program that cannot start in its sandbox is refused before the first item, with a line that fixes it."""

import json
import os
from pathlib import Path

import pytest

from commands import Command
from proctor.sandbox import problem_of

# Enough of Claude Code to be started: it reads its version from a file that no known layout has.
AGENT = "#!/bin/sh\nread version <{data} || exit 3\necho $version\n"


@pytest.fixture(params=("bubblewrap", "landlock"))
def kind(request: pytest.FixtureRequest) -> str:
    if problem := problem_of(request.param):
        pytest.skip(problem)
    return str(request.param)


def made(file: Path, text: str, mode: int = 0o755) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def write_plan(proctor: Command, repository: Path, **settings: object) -> None:
    entry = {"repo": str(repository), "prompt": "Go.", "scriptCommand": "true", **settings}
    (proctor.folder / "plan.yaml").write_text(json.dumps({"matrix": [entry]}))


def test_an_agent_that_needs_a_hidden_file_is_refused_with_the_line_that_opens_it(proctor, repository, kind):
    data = made(proctor.folder / "tools/data/version", "9.9.9\n", 0o644)
    agent = made(proctor.folder / "tools/claude", AGENT.format(data=data))
    variables = {"CLAUDE_BIN": str(agent), "ANTHROPIC_API_KEY": "sk-ant-0123456789"}
    settings = {"agent": "claude", "model": "anthropic/claude-sonnet-4-5"}
    write_plan(proctor, repository, **settings, sandbox={"kind": kind})

    for dry in (["--dry-run"], []):
        refused = proctor("batch", "plan.yaml", *dry, environment=variables)
        assert refused.returncode == 2, refused.stderr
        assert f"the agent claude cannot start in the sandbox `{kind}`" in refused.stderr
        assert "Open what it needs:  sandbox: {read: [~/tools/data/version]}" in refused.stderr
    assert json.loads(proctor("runs", "--json").stdout)["runs"] == []

    write_plan(proctor, repository, **settings, sandbox={"kind": kind, "read": [str(data)]})
    # Relative to where the command is given, as a shell takes it.
    for name in (str(agent), "tools/claude"):
        passed = proctor("batch", "plan.yaml", "--dry-run", environment={**variables, "CLAUDE_BIN": name})
        assert passed.returncode == 0, passed.stderr


def test_an_agent_that_starts_nowhere_is_refused(proctor: Command, repository: Path, kind: str) -> None:
    agent = made(proctor.folder / "tools/claude", "#!/no/such/node\n")
    variables = {"ANTHROPIC_API_KEY": "sk-ant-0123456789"}
    write_plan(
        proctor, repository, agent="claude", model="anthropic/claude-sonnet-4-5", sandbox={"kind": kind}
    )

    for name, problem in (
        (str(agent), "cannot start, also outside of the sandbox"),
        ("no/file", "`no/file`"),
    ):
        refused = proctor("batch", "plan.yaml", environment={**variables, "CLAUDE_BIN": name})
        assert (refused.returncode, problem in refused.stderr) == (2, True), refused.stderr


@pytest.mark.parametrize(
    ("script", "problem", "remedy"),
    [
        (
            '#!/bin/sh\nexec "$HOME/tools/agent" "$@"\n',
            "it starts $HOME/tools/agent",
            "A session has its own HOME. Write {home}/tools/agent in {program}.",
        ),
        (
            '#!/bin/sh\nDIR="$HOME/tools"\nexec "${DIR}/agent" "$@"\n',
            "it starts $HOME/tools/agent",
            "A session has its own HOME. Write {home}/tools/agent in {program}.",
        ),
        ("#!/no/such/interpreter\n", "/no/such/interpreter: not found", ""),
    ],
)
def test_a_program_of_the_user_is_looked_for_and_not_run(proctor, repository, kind, script, problem, remedy):
    made(proctor.folder / "tools/agent", f"#!/bin/sh\ntouch {proctor.folder}/was-run\n")
    program = made(proctor.folder / "bin/mine", script)
    write_plan(proctor, repository, command=f"{program} --fast", sandbox={"kind": kind})

    refused = proctor("batch", "plan.yaml")

    assert refused.returncode == 2, refused.stderr
    assert (
        f"the agent's program `{program}` cannot start in the sandbox `{kind}`: {problem}" in refused.stderr
    )
    home = proctor.environment["HOME"]
    assert remedy.format(home=home, program=program) in refused.stderr
    assert not (proctor.folder / "was-run").exists()


@pytest.mark.parametrize("command", ["no-such-agent --fast", ["no-such-agent", "--fast"]])
def test_an_agent_that_is_not_installed_is_refused(proctor, repository, command):
    write_plan(proctor, repository, command=command)
    refused = proctor("batch", "plan.yaml")
    assert (refused.returncode, "no-such-agent" in refused.stderr) == (2, True), refused.stderr


def test_a_check_whose_program_finds_its_parts_in_home_is_refused(proctor, repository, kind):
    cargo = "#!/bin/sh\necho '# asdf exec cargo'\ntest -e $HOME/.tool-versions || exit 126\n"
    made(proctor.folder / "shims/cargo", cargo)
    made(Path(proctor.environment["HOME"]) / ".tool-versions", "rust 1.80\n")
    variables = {"PATH": f"{proctor.folder}/shims:{os.environ['PATH']}"}
    write_plan(proctor, repository, command="true", scriptCommand="cargo test", sandbox={"kind": kind})

    refused = proctor("batch", "plan.yaml", environment=variables)

    assert refused.returncode == 2, refused.stderr
    assert "`cargo`, with which `cargo test` begins, cannot start" in refused.stderr
    assert 'export PATH="$(dirname "$(asdf which cargo)"):$PATH"' in refused.stderr


def test_programs_that_no_worktree_has_are_refused(proctor: Command, repository: Path) -> None:
    made(proctor.folder / "agent.sh", "#!/bin/sh\n")
    made(repository / ".gitignore", ".venv\n", 0o644)
    (repository / ".venv/bin").mkdir(parents=True)
    (repository / ".venv/bin/python").symlink_to("/gone/python3")
    made(repository / "left.sh", "#!/bin/sh\n")
    write_plan(proctor, repository, command="./agent.sh", scriptCommand=".venv/bin/python -m pytest")

    refused = proctor("batch", "plan.yaml", "--dry-run")
    assert refused.returncode == 2
    assert f"`./agent.sh` is not a file of {repository} at main" in refused.stderr
    assert f"Write its whole path: {proctor.folder}/agent.sh" in refused.stderr
    assert "`.venv/bin/python` is in your checkout, and git ignores it" in refused.stderr

    # An agent may make `left.sh`, and `setup` the rest.
    for changes in ({"scriptCommand": "./left.sh"}, {"scriptCommand": ".venv/bin/python", "setup": "true"}):
        write_plan(proctor, repository, command="true", **changes)
        assert proctor("batch", "plan.yaml", "--dry-run").returncode == 0


def test_a_program_of_a_benchmark_is_found_where_the_command_is_given(proctor: Command, kind: str) -> None:
    """The example of the manual."""
    made(proctor.folder / "lib.sh", "echo $1 > a.txt\n", 0o644)
    made(proctor.folder / "agent.sh", '#!/bin/sh\n. "$(dirname "$0")/lib.sh"\n')
    made(
        proctor.folder / "task.md",
        f"---\ncheck: grep -e --fast a.txt\nempty: true\nsandbox: {kind}\n---\n# Task: One\n\nDo it.\n",
    )

    ended = proctor("bench", "--task", "task.md", "--agent", "fast=./agent.sh --fast", "--json")

    assert ended.returncode == 0, ended.stderr


def test_an_agent_that_needs_a_terminal_is_refused_where_none_can_be_made(proctor, repository, kind):
    """OpenHands runs its commands in tmux."""
    agent = made(proctor.folder / "tools/openhands", "#!/bin/sh\necho 1.16.0\n")
    variables = {"OPENHANDS_BIN": str(agent), "ANTHROPIC_API_KEY": "sk-ant-0123456789"}
    settings = {"agent": "openhands", "model": "anthropic/claude-sonnet-4-5"}
    write_plan(proctor, repository, **settings, sandbox={"kind": kind})

    ended = proctor("batch", "plan.yaml", "--dry-run", environment=variables)

    problem = "openhands runs its commands in a terminal, and the sandbox `landlock` has none"
    assert (ended.returncode, problem in ended.stderr) == ((2, True) if kind == "landlock" else (0, False))


def test_the_doctor_says_the_same(proctor: Command) -> None:
    if problem := problem_of("bubblewrap"):
        pytest.skip(problem)
    data = made(proctor.folder / "tools/data/version", "9.9.9\n", 0o644)
    agent = made(proctor.folder / "tools/claude", AGENT.format(data=data))

    told = json.loads(proctor("doctor", "--json", environment={"CLAUDE_BIN": str(agent)}).stdout)

    [row] = [row for row in told["checks"] if row["name"] == "agent claude"]
    assert row["message"].startswith("cannot start in the sandbox `bubblewrap`")
    assert row["remedy"] == "Open what it needs:  sandbox: {read: [~/tools/data/version]}"
