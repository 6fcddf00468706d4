"""How each agent's program is found and called: non-interactive, at the gateway, in a home of its own."""

import json
import os
from pathlib import Path

import pytest
from recordings import ACCESS, PROGRAMS

from proctor.agents import find_agent
from proctor.agents._program import model_failure, read_text
from proctor.errors import AgentNotStarted, RateLimited, WorkspaceError
from proctor.session import Message
from proctor.workspace.beneath import write_private

TYPED = ("claude", "codex", "gemini", "opencode", "qwen")
"""Those that are given the prompt on standard input."""
NAMES = (*TYPED, "pi", "copilot", "cline", "aider", "openhands", "continue", "mini-swe-agent")
OPENAI = f"{ACCESS.url}/v1"


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


async def call(place, stage, name, prompt="Add a line.", **more):
    stage.play(name)
    await place.work(find_agent(name, {}), prompt, **{"access": ACCESS, **more})
    return stage.called()


def configuration(place):
    """The files that were written into the home."""
    files = [file for file in place.home.rglob("*") if file.is_file() and file.name != "called.json"]
    return [file for file in files if "bin" not in file.parts]


def test_each_works_over_the_gateway_and_is_no_mock(name):
    agent = find_agent(name, {})
    assert agent.reach == "gateway" and not agent.is_mock
    assert agent.records_transcript is (name not in ("aider", "continue", "mini-swe-agent"))


async def test_it_is_pointed_at_the_gateway_with_the_attempts_token_which_nothing_tells(place, stage, name):
    printed = f"my key is {ACCESS.token}\n"
    stage.play(name, printed=printed, stderr=printed)
    done = await place.work(find_agent(name, {}), model="openrouter/some/gpt-x", access=ACCESS)
    called = stage.called()

    assert "[key]" in done.output
    assert ACCESS.token not in repr(done) and ACCESS.token not in repr(place.events)
    files = configuration(place)
    given = "\n".join([*(file.read_text() for file in files), *called.environment.values()])
    url = ACCESS.url if name in ("claude", "gemini") else OPENAI
    assert url in given and ACCESS.token in given
    # Anyone on the machine can read arguments.
    assert ACCESS.token not in " ".join(called.args)
    assert called.environment["HOME"] == str(place.home)
    assert "127.0.0.1" in called.environment["NO_PROXY"]
    assert called.folder == str(place.folder)
    assert list(place.folder.iterdir()) == []
    # A file with the token is for nobody else to read.
    rights = {file.stat().st_mode & 0o077 for file in files if ACCESS.token in file.read_text()}
    is_in_environment = ACCESS.token in " ".join(called.environment.values())
    assert rights == (set() if is_in_environment else {0})


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        *((name, "- one\n- é") for name in NAMES),
        *((name, "@notes") for name in NAMES if name not in TYPED),
        ("aider", "/src is wrong"),
        ("aider", "!ls"),
    ],
)
async def test_the_prompt_reaches_it_whatever_it_begins_with(place, stage, name, prompt):
    called = await call(place, stage, name, prompt)
    if name in TYPED:
        assert called.typed == prompt
        return
    assert called.typed == ""
    if name == "aider":
        read = Path(called.after("--message-file")).read_text()
        assert read.strip() == prompt and not read.startswith(("/", "!"))
        return
    (given,) = [word for word in called.args if word.strip() == prompt]
    assert not given.startswith(("-", "@"))


async def test_a_prompt_too_long_for_an_argument_is_typed_or_refused(place, stage, name):
    prompt = "x" * 200_000
    if name in TYPED:
        assert (await call(place, stage, name, prompt)).typed == prompt
    elif name == "aider":
        called = await call(place, stage, name, prompt)
        assert called.typed == ""
        assert Path(called.after("--message-file")).read_text().strip() == prompt
    else:
        with pytest.raises(WorkspaceError, match="120000 bytes"):
            await call(place, stage, name, prompt)


async def test_without_the_gateway_it_does_not_start(place, stage, name):
    with pytest.raises(WorkspaceError, match="needs the gateway"):
        await call(place, stage, name, access=None)
    assert not stage.note.exists()


async def test_one_that_is_not_installed_says_how_to_get_a_version_that_works(place, stage, name):
    agent = find_agent(name, {})
    bare = {"PATH": str(place.home / "bin")}
    missing = agent.availability(bare)
    assert not missing.ready and f"`{PROGRAMS.get(name, name)}`" in missing.problem
    assert missing.remedy.startswith(("npm install -g ", "uv tool install "))
    assert missing.remedy.rpartition("@" if "npm" in missing.remedy else "==")[2][0].isdigit()
    with pytest.raises(AgentNotStarted, match="install it with"):
        await place.work(agent, environment=bare, access=ACCESS)


async def test_another_program_can_be_chosen(place, stage, name):
    stage.play(name)
    agent = find_agent(name, {})
    found = agent.availability(place.environment)
    assert (found.ready, found.version) == (True, "1.2.3")
    elsewhere = (place.home / "bin" / PROGRAMS.get(name, name)).rename(place.home / "another")
    variable = f"{name.upper().replace('-', '_')}_BIN"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(place.home), variable: str(elsewhere)}
    await place.work(agent, environment=environment, access=ACCESS)
    assert stage.called().folder == str(place.folder)


async def test_what_aider_leaves_in_the_tree_is_swept_up_unless_it_was_there(place, stage):
    (place.folder / ".aider.conf.yml").write_text("mine: true\n")
    litter = "import os; os.mkdir('.aider.tags.cache.v4'); open('.aider.x', 'w').close(); open('a.py', 'w')"
    stage.play("aider", then=litter)
    await place.work(find_agent("aider", {}), access=ACCESS)
    assert sorted(file.name for file in place.folder.iterdir()) == [".aider.conf.yml", "a.py"]


KINDS = (
    "item.completed tool_use tool.execution_complete message_end result agent_event run_result error "
    "assistant user session"
)


async def test_lines_that_are_no_events_do_no_harm(place, stage, name):
    strange = ["{half", "[1]", "{}", '{"type": 3, "kind": null}', '{"type": "news"}', "null", "\x1b[1m"]
    strange += [
        json.dumps({"type": kind, "item": 1, "part": [], "data": "x", "message": 2, "event": []})
        for kind in KINDS.split()
    ]
    stage.play(name, printed="\n".join(strange) + "\n")
    try:
        await place.work(find_agent(name, {}), access=ACCESS)
    finally:
        assert place.recorded(Message) == []


@pytest.mark.parametrize(
    ("said", "status", "reason"),
    [
        ("401 no such key", None, "auth"),
        ("refused", 403, "auth"),
        ("AuthenticationError: wrong key", None, "auth"),
        ("exceeded retry limit, last status: 429 Too Many Requests", None, "rate_limit"),
        ("RateLimitError: slow down", None, "rate_limit"),
        ("slow down", 429, "rate_limit"),
        ("prompt is too long: 250000 tokens > 200000 maximum", 400, "context_overflow"),
        ("ContextWindowExceededError: too long", None, "context_overflow"),
        ("the context window service is down", 503, "model_failed"),
        ("500 boom", None, "model_failed"),
        ("Connection error.", None, "model_failed"),
        ("", None, "model_failed"),
        ("context window", 422, "context_overflow"),
        ("prompt is too long (429)", None, "rate_limit"),
        ("rate limit", 500, "model_failed"),
        ("x", 402, "model_failed"),
        ("invalid api key", None, "auth"),
        ("invalid api key", 500, "model_failed"),
        ("error 4290", None, "model_failed"),
    ],
)
def test_what_an_agent_says_of_its_model_has_a_reason(said, status, reason):
    error = model_failure(said, status)
    assert error.reason == reason
    assert isinstance(error, RateLimited) is (reason == "rate_limit")
    details = said or "the model failed, without details"
    assert str(error) == f"the agent's model call failed: {details}"


def test_files_in_the_home_are_neither_written_nor_read_through_links(tmp_path):
    """Setup and agent are confined, and we are not."""
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "config.toml").write_text("mine")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".codex").symlink_to(tmp_path / "user")
    assert read_text(home / ".codex" / "config.toml", "token") == ""
    assert write_private(home, ".codex/config.toml", "ours").read_text() == "ours"
    assert (tmp_path / "user" / "config.toml").read_text() == "mine"
    os.mkfifo(home / "log")
    assert read_text(home / "log", "token") == ""
    assert write_private(home, "log", "ours").read_text() == "ours"
