"""A first plan, schemas for editors, completion for shells, and tools for assistants."""

import json
import os
import pty
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from commands import Command
from proctor.api.plans import generated_schema, schema_text
from proctor.jobs import jobs
from proctor.testing import eventually
from waiting import TIME_LIMIT_SECONDS

EXAMPLES = Path(__file__).parents[2] / "examples"
PLANS = [path for path in sorted((EXAMPLES / "plans").glob("*.yaml")) if "\nmatrix:" in path.read_text()]


# `proctor init`


def test_a_first_plan_is_written_for_the_repository_and_can_be_run(
    proctor: Command, repository: Path
) -> None:
    proctor.folder = repository
    (repository / "test_total.py").write_text("def test_total(): assert True\n")
    subprocess.run(["git", "-C", repository, "add", "."], check=True)
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", repository, *author, "commit", "-qm", "tests"], check=True)

    (repository / "good.yaml").write_text("rules: [{reply: done}]")
    done = proctor("init", "--yes", "--models", "scripted/good")

    assert done.returncode == 0, done.stderr
    commands = "Next:  proctor batch proctor-plan.yaml --dry-run\n       proctor batch proctor-plan.yaml\n"
    assert done.stderr.endswith(commands) and "nothing checks the work" not in done.stderr
    text = (repository / "proctor-plan.yaml").read_text()
    assert text.startswith("# yaml-language-server: $schema=.proctor/coding.schema.json\n")
    plan = yaml.safe_load(text)
    assert plan["defaults"]["scriptCommand"].endswith("-m pytest -q"), "guessed from the test files"
    assert (plan["defaults"]["baseBranch"], plan["defaults"]["timeoutSec"]) == ("main", 1800)
    assert plan["matrix"][0]["repo"] == "."
    schema = json.loads((repository / ".proctor" / "coding.schema.json").read_text())
    jsonschema.validate(plan, schema)
    dry = proctor.json("batch", "proctor-plan.yaml", "--dry-run")
    assert len(dry["items"]) == plan["defaults"]["runs"] == 2

    again = proctor("init", "--yes")
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert (repository / "proctor-plan.yaml").read_text() == text


def test_a_repository_whose_tests_are_not_known_gets_a_plan_without_a_check(
    proctor: Command, repository: Path
) -> None:
    proctor.folder = repository
    done = proctor("init", "--yes")

    assert "nothing checks the work" in done.stderr
    assert "scriptCommand" not in (repository / "proctor-plan.yaml").read_text()


def test_outside_a_repository_the_plan_asks_models(proctor: Command, tmp_path: Path) -> None:
    done = proctor.json("init", "--models", "scripted/a, scripted/b", "--prompt", "2+2?", "--check", "4")

    assert done["job"] == "coding"
    plan = yaml.safe_load((tmp_path / "proctor-plan.yaml").read_text())
    assert plan["matrix"] == [
        {"prompt": "2+2?", "model": ["scripted/a", "scripted/b"], "runs": 3, "expect": {"contains": "4"}}
    ]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--agents", "clod"], "there is no agent clod"),
        (["--out", "/proc/missing/plan.yaml"], "cannot write"),
    ],
)
def test_a_wrong_answer_is_an_error_that_names_the_remedy_and_nothing_is_written(
    proctor: Command, repository: Path, words: list[str], problem: str
) -> None:
    proctor.folder = repository
    done = proctor("init", "--yes", *words)

    assert done.returncode == 2
    assert problem in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2
    assert not (repository / "proctor-plan.yaml").exists()


def test_five_questions_are_asked_on_a_terminal(proctor: Command, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*proctor.program, "init"],
        cwd=tmp_path, env=proctor.environment, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
    )  # fmt: skip
    os.close(theirs)
    seen = ""
    for question, answer in (
        ("Which agents or models answer?", "scripted/a"),
        ("What should they be asked?", "2+2?"),
        ("What must a right answer contain?", "4"),
        ("How often should each repeat it?", "2"),
        ("Most US dollars to spend?", "0.5"),
    ):
        while question not in seen:
            seen += os.read(ours, 4096).decode()
        os.write(ours, f"{answer}\n".encode())
    assert process.wait(TIME_LIMIT_SECONDS) == 0
    os.close(ours)
    plan = yaml.safe_load((tmp_path / "proctor-plan.yaml").read_text())
    assert (plan["budget"], plan["matrix"][0]["runs"], plan["matrix"][0]["model"]) == (0.5, 2, ["scripted/a"])


# Schemas


def test_the_schemas_of_the_package_are_those_of_the_code() -> None:
    for job in jobs():
        if job.plan_model:
            assert schema_text(job.name) == generated_schema(job.name), "run `make docs`"


def test_the_schema_accepts_the_examples_and_refuses_a_misspelt_key() -> None:
    schema = json.loads(schema_text("coding"))
    validator = jsonschema.validators.validator_for(schema)(schema)

    for path in PLANS:
        plan = yaml.safe_load(path.read_text())
        validator.validate(plan)
        assert not validator.is_valid({**plan, "concurency": 2}), path


def test_schemas_are_printed_and_written(proctor: Command, tmp_path: Path) -> None:
    assert json.loads(proctor("schema", "scenario").stdout)["title"].startswith("Proctor: ")
    assert proctor("schema", "--out", "plan.schema.json").returncode == 0
    assert (tmp_path / "plan.schema.json").read_text() == schema_text("coding")
    assert "there is no job nothing" in proctor("schema", "nothing").stderr


# Shells and versions


def test_bash_completes_commands_and_options(proctor: Command, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(proctor("completion", "bash").stdout)

    def complete(*words: str) -> list[str]:
        line = f"source ./script; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _proctor; "
        line += 'printf "%s\\n" "${COMPREPLY[@]}"'
        return subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout.split()

    assert set(complete("proctor", "comp")) == {"compare", "completion"}
    assert complete("proctor", "tasks", "from-history", "--max") == ["--max"]


def test_other_shells_have_the_same_words(proctor: Command) -> None:
    fish = proctor("completion", "fish").stdout
    assert "complete -c proctor -n __fish_use_subcommand -a compare -d" in fish
    assert "-n '__fish_seen_subcommand_from compare' -l gate" in fish
    assert "-n '__fish_seen_subcommand_from tasks' -a 'from-history list" in fish
    assert proctor("completion", "zsh").stdout.startswith("#compdef proctor\n")
    assert proctor("completion", "tcsh").returncode == 2


def test_the_version_as_json_says_what_is_installed(proctor: Command) -> None:
    document = proctor.json("--version")

    assert proctor("--version").stdout == f"proctor {document['version']}\n"
    assert document["storeSchema"] >= 17
    assert document["extras"]["pandas"] is True
    project = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text())
    assert document["extras"].keys() == project["project"]["optional-dependencies"].keys() - {"dev"}


# Tools for assistants


ASSISTED = """
from proctor.__main__ import run
from proctor.cli import mcp

first = iter([mcp._program()])
mcp._program = lambda: next(first, {program!r})
run()
"""
"""The server of tools, whose commands from the second on are forks."""


async def test_an_assistant_starts_watches_shows_and_compares(proctor: Command, tmp_path: Path) -> None:
    mcp = pytest.importorskip("mcp")
    (tmp_path / "good.yaml").write_text("rules: [{reply: '4'}]")
    (tmp_path / "bad.yaml").write_text("rules: [{reply: '5'}]")
    (tmp_path / "plan.yaml").write_text(
        "runId: sums\nmatrix:\n"
        "- {prompt: 2+2?, model: [scripted/good, scripted/bad], runs: 3, expect: {contains: '4'}}\n"
    )
    server = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-c", ASSISTED.format(program=tuple(proctor.program)), "mcp"],
        env=dict(proctor.environment),
        cwd=str(tmp_path),
    )
    async with mcp.stdio_client(server) as streams, mcp.ClientSession(*streams) as session:
        await session.initialize()
        tools = {tool.name for tool in (await session.list_tools()).tools}

        async def call(name: str, **arguments: Any) -> Any:
            result = await session.call_tool(name, arguments)
            text = result.content[0].text
            return text if result.is_error else json.loads(text)

        assert tools >= {"start", "watch", "show", "compare", "search"}
        assert (await call("check", plan="plan.yaml"))["itemCount"] == 6
        assert await call("start", plan="plan.yaml") == {"runId": "sums", "status": "running"}
        ended = await call("watch", run="sums", seconds=60)
        assert (ended["status"], ended["successCount"]) == ("completed", 3)
        shown = await call("show", id="sums", status="fail", limit=2)
        assert shown == proctor.json("show", "sums", "--status", "fail", "--limit", "2")
        compared = await call("compare", runs=["sums"], by="model")
        assert compared == proctor.json("compare", "sums", "--by", "model", "--metric", "success")
        assert [run["runId"] for run in (await call("runs"))["runs"]] == ["sums"]

        named = await call("start", plan="plan.yaml", run_id="again", budget_usd=5)
        assert named == {"runId": "again", "status": "running"}
        assert (await call("watch", run="again", seconds=60))["status"] == "completed"

        assert "already a run called sums" in await call("start", plan="plan.yaml")
        assert "cannot read the plan none.yaml" in await call("start", plan="none.yaml")
        assert "no run, item or session nothing" in await call("show", id="nothing")
        assert "NUL character" in await call("show", id="s\0")
        assert "no run, item or session --help" in await call("show", id="--help")
        assert "overrides.runId: String should match" in await call("start", plan="plan.yaml", run_id="../x")
        # What the assistant writes is a name or a word, never an option: `compare --html` writes a file.
        written = f"--html={tmp_path / 'written.html'}"
        assert f"no run {written}" in await call("compare", runs=["sums", written])
        assert not (tmp_path / "written.html").exists()
        elsewhere = f"--store={tmp_path / 'elsewhere.db'}"
        assert f"no run, item or session {elsewhere}" in await call("show", id=elsewhere)
        assert not (tmp_path / "elsewhere.db").exists()
        assert (await call("search", text="--reindex=x"))["text"] == "--reindex=x"
    eventually(lambda: proctor.json("top") == {"runs": []})


class Assistant:
    """A client of `proctor mcp` that writes and reads the messages of the protocol itself."""

    def __init__(self, proctor: Command, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "proctor", *options, "mcp"],
            cwd=proctor.folder,
            env=dict(proctor.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        client = {"name": "test", "version": "1"}
        self.send("initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
        assert self.answer(0)["serverInfo"]["name"] == "proctor"
        self.send("notifications/initialized")

    def __enter__(self) -> "Assistant":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def send(self, method: str, number: int | None = None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def call(self, number: int, tool: str, **arguments: Any) -> None:
        self.send("tools/call", number, name=tool, arguments=arguments)

    def answer(self, number: int) -> Any:
        """The result with a number; answers to earlier requests are not expected any more."""
        message = json.loads(self.process.stdout.readline())
        assert message["id"] == number, message
        return message["result"]

    def commands(self) -> list[str]:
        """The processes that the server has started."""
        return Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()


@pytest.fixture
def silent_database() -> Iterator[str]:
    """The address of a database that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"postgresql://someone@127.0.0.1:{server.getsockname()[1]}/store?connect_timeout=600"


def test_a_call_of_an_assistant_ends_when_its_time_is_over_or_it_is_cancelled(
    proctor: Command, silent_database: str
) -> None:
    pytest.importorskip("mcp")
    with Assistant(proctor, "--store", silent_database) as assistant:
        assistant.call(1, "runs", timeout_seconds=0.5)
        late = assistant.answer(1)
        assert late["isError"]
        assert "`runs` did not end within 0.5 s" in late["content"][0]["text"]
        eventually(lambda: assistant.commands() == [])

        assistant.call(2, "search", text="cat", timeout_seconds=600)
        eventually(lambda: assistant.commands() != [])
        assistant.send("notifications/cancelled", requestId=2, reason="the person pressed Escape")
        eventually(lambda: assistant.commands() == [])

        # The server goes on. A call without an end is ended with it.
        assistant.send("ping", 3)
        assert assistant.answer(3) == {}
        assistant.call(4, "show", id="x", timeout_seconds=600)
        eventually(lambda: assistant.commands() != [])
        (command,) = assistant.commands()
    eventually(lambda: not Path(f"/proc/{command}").exists())


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        (("batch",), "batch [OPTIONS] PLAN"),
        (("show",), "show [OPTIONS] RUN|ITEM|SESSION"),
        (("compare",), "compare [OPTIONS] RUN|FILE…"),
    ],
)
def test_the_usage_of_a_command_names_its_arguments_without_braces(proctor, command, usage):
    shown = proctor(*command, "--help").stdout

    assert f"Usage: proctor {usage}\n" in "\n".join(line.strip() for line in shown.splitlines())
