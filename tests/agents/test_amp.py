"""Amp, played by a program that prints streams of the recorded shapes."""

import asyncio
import json
import time

import pytest

from proctor.agent import Access
from proctor.agents import find_agent, with_keys
from proctor.agents.amp import Amp
from proctor.errors import AgentNotStarted, WorkspaceError
from proctor.session import Intervention, Message, ModelCall, ToolCall, Workspace
from waiting import TIME_LIMIT_SECONDS

KEY = "amp-secret-0123456789"
HELP = """Options:
  -m, --mode <value>
      Set the agent mode (low, medium, high, ultra, or a plugin mode by key or label, case-insensitive)
      — controls the model, system prompt, and tool selection
  --features <value>
      Enable a thread feature (known: fast)
"""
OLD_HELP = "Options:\n  --try-gpt5\n      Use GPT-5 (experimental)\n"
INIT = {"type": "system", "subtype": "init", "session_id": "T-1", "tools": ["Read", "edit_file"]}


def assistant(*content, identity="", **usage):
    return {
        "type": "assistant",
        "message": {"id": identity, "model": "m", "content": content, "usage": usage},
    }


def use(identity, name="Read", **given):
    return {"type": "tool_use", "id": identity, "name": name, "input": given}


def returned(identity, content="ok", is_error=False):
    block = {"type": "tool_result", "tool_use_id": identity, "content": content, "is_error": is_error}
    return {"type": "user", "message": {"content": [block]}}


def text(said):
    return {"type": "text", "text": said}


def result(said="Done.", is_error=False, **more):
    return {"type": "result", "subtype": "success", "is_error": is_error, "result": said, **more}


@pytest.fixture
def amp(stage):
    """Install an `amp` that prints these lines."""

    def install(*lines, offered=HELP, **played):
        printed = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        stage.play("amp", printed="".join(f"{line}\n" for line in printed), offered=offered, **played)

    return install


async def test_a_good_run_is_recorded_with_its_tools_tokens_and_thread(place, stage, amp):
    amp(
        INIT,
        assistant(text("Looking."), use("u1", path="a.py"), input_tokens=900, output_tokens=40),
        returned("u1", [text("x = 1")]),
        assistant(text("Done."), input_tokens=1000, output_tokens=60, cache_read_input_tokens=500),
        result(),
    )

    started = time.monotonic()
    done = await place.work(Amp(), "Fix it.")
    elapsed_ms = (time.monotonic() - started) * 1000

    assert (done.exit_code, done.failure) == (0, "")
    assert place.recorded(Workspace) == [Workspace(thread="T-1")]
    assert [message.content for message in place.recorded(Message)] == ["Looking.", "Done."]
    (tool,) = place.recorded(ToolCall)
    assert (tool.name, tool.args, tool.success, tool.result) == ("Read", {"path": "a.py"}, True, "x = 1")
    assert 0 < tool.duration_ms < elapsed_ms
    calls = place.recorded(ModelCall)
    assert [(call.model, call.usage.input_tokens, call.usage.output_tokens) for call in calls] == [
        ("m", 900, 40),
        ("m", 1500, 60),
    ]
    assert calls[1].usage.cached_tokens == 500
    called = stage.called()
    assert (called.args, called.typed) == (["-x", "--stream-json"], "Fix it.")
    assert called.folder == str(place.folder)


async def test_a_message_printed_in_several_lines_is_counted_once(place, amp):
    amp(
        assistant(text("a"), identity="m1", input_tokens=10, output_tokens=1),
        assistant(use("u1"), identity="m1", input_tokens=10, output_tokens=5),
        result("a"),
    )
    await place.work(Amp())
    assert [call.usage.total_tokens for call in place.recorded(ModelCall)] == [15]


@pytest.mark.parametrize(
    "question",
    [
        "Waiting for user input…",
        "Allow this command? [y/N]",
        "Do you want to proceed? (yes/no)",
        "waiting for your approval",
        "Press enter [Y/N]\n\n",
        {"type": "system", "subtype": "permission_request", "message": "May I run make?"},
        {"type": "awaiting_input", "message": "Which file?"},
    ],
)
async def test_an_amp_that_asks_is_an_intervention_and_is_ended_rather_than_waited_for(place, amp, question):
    amp(INIT, question, then="time.sleep(60)")

    done = await asyncio.wait_for(place.work(Amp(unanswered_seconds=0.2)), TIME_LIMIT_SECONDS)

    assert len(place.recorded(Intervention)) == 1
    assert "from a human, and none is available" in done.failure
    assert place.left_running() == []


async def test_a_question_that_leaves_its_line_open_is_an_intervention_as_well(place, amp):
    amp(INIT, then="print('Run make? (y/n) ', end='', flush=True); time.sleep(60)")

    done = await asyncio.wait_for(place.work(Amp(unanswered_seconds=0.2)), TIME_LIMIT_SECONDS)

    assert [asked.text for asked in place.recorded(Intervention)] == ["Run make? (y/n)"]
    assert "from a human, and none is available" in done.failure


async def test_an_amp_that_asks_and_goes_on_by_itself_is_let_go_on(place, amp):
    amp("Waiting for user input…", assistant(text("Never mind.")), then="time.sleep(0.4)")
    done = await place.work(Amp(unanswered_seconds=0.2))
    assert (done.exit_code, done.failure) == (0, "")


async def test_a_refused_tool_is_an_intervention_once(place, amp):
    amp(
        assistant(use("u1", "Bash", command="rm -rf /")),
        returned("u1", "The tool was rejected by the user", True),
        result(permission_denials=[{"tool_use_id": "u1"}, {"tool_use_id": "u7", "tool_name": "Web"}]),
    )
    await place.work(Amp())
    refused, denied = (each.text for each in place.recorded(Intervention))
    assert refused == "Bash: The tool was rejected by the user"
    assert "u7" in denied and "Web" in denied


@pytest.mark.parametrize(
    ("settings", "model", "offered", "switches"),
    [
        ({}, "", HELP, []),
        ({}, "default", OLD_HELP, []),
        ({}, "ultra", HELP, ["--mode", "ultra"]),
        ({}, "High", HELP, ["--mode", "high"]),
        ({}, "gpt-5", OLD_HELP, ["--try-gpt5"]),
        # A mode of a plugin.
        ({"mode": "reviewer"}, "anything", HELP, ["--mode", "reviewer"]),
    ],
)
async def test_a_mode_of_the_installed_version_is_asked_for(
    place, stage, amp, settings, model, offered, switches
):
    amp(result(), offered=offered)
    assert Amp(**settings).refusal(model, place.environment) == ""
    await place.work(Amp(**settings), model=model)
    assert stage.called().args == ["-x", *switches, "--stream-json"]


@pytest.mark.parametrize(("model", "offered"), [("gpt-5", HELP), ("gpt-4o", HELP), ("ultra", OLD_HELP)])
async def test_what_the_installed_version_cannot_be_asked_for_is_refused_and_not_started(
    place, stage, amp, model, offered
):
    amp(result(), offered=offered)
    problem, _, remedy = Amp().refusal(model, place.environment).partition("\n")
    assert f"cannot be asked for `{model}`" in problem
    assert ("low, medium, high, ultra" in remedy) is (offered == HELP)
    with pytest.raises(WorkspaceError, match="cannot be asked for"):
        await place.work(Amp(), model=model)
    assert not stage.note.exists()


def test_a_mode_of_a_plugin_needs_a_version_with_modes(place, amp):
    amp(offered=OLD_HELP)
    assert "no modes" in Amp(mode="reviewer").refusal("", place.environment)


async def test_a_program_that_rejects_its_options_is_an_error_and_not_the_models_failure(place, amp):
    amp(exit_code=1, stderr="Error: error: unknown option '--stream-json'\n")
    with pytest.raises(AgentNotStarted, match=r"rejects how it is called.*--stream-json"):
        await place.work(Amp())


async def test_a_rejected_option_of_a_tool_is_no_bad_call(place, amp):
    amp(INIT, exit_code=1, stderr="error: unknown option '--frobnicate'\n")
    done = await place.work(Amp())
    assert done.failure.startswith("it exited with 1")


async def test_its_key_reaches_it_and_nothing_else(place, stage, amp):
    amp(INIT, f"using {KEY}", assistant(text(f"my key is {KEY}")), stderr=f"oops {KEY}", exit_code=1)
    agent = find_agent("amp", {})
    assert agent.keys == ("AMP_API_KEY",)

    done = await place.work(with_keys(agent, {"AMP_API_KEY": KEY, "OTHER_KEY": "x"}))

    assert stage.called().environment["AMP_API_KEY"] == KEY
    assert KEY not in repr(done) and KEY not in repr(place.events)
    assert "AMP_API_KEY" not in place.environment


async def test_without_a_key_to_hand_over_the_agent_stays_as_it_is(place, amp):
    agent = find_agent("amp", {})
    assert with_keys(agent, {}) is agent
    assert find_agent("builtin", {}).keys == ()
    wrapped = with_keys(agent, {"AMP_API_KEY": KEY})
    assert wrapped.is_mock is False and KEY not in repr(wrapped)


async def test_what_is_missing_is_said_with_its_remedy(place, amp):
    bare = {"PATH": str(place.home / "bin")}
    missing = Amp().availability(bare)
    assert Amp().refusal("ultra", bare) == ""
    assert not missing.ready and "npm install" in missing.remedy
    with pytest.raises(AgentNotStarted, match="npm install"):
        await place.work(Amp(), environment=bare)
    amp(result())
    keyless = Amp().availability(place.environment)
    assert (keyless.ready, keyless.version) == (False, "1.2.3")
    assert "AMP_API_KEY" in keyless.problem
    assert Amp().availability({**place.environment, "AMP_API_KEY": KEY}).ready


async def test_with_the_users_login_it_needs_no_key_and_with_a_key_it_still_has_its_network(place, amp):
    amp(result())
    assert Amp(login="mine").availability(place.environment).ready
    assert Amp(login="mine").copied_logins() and not Amp().copied_logins()
    keyed = with_keys(find_agent("amp", {}), {"AMP_API_KEY": KEY})
    assert keyed.needs_network and "cannot be asked for" in keyed.refusal("gpt-5", place.environment)


GATEWAY = {
    "claude": {"ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"},
    "codex": {"PROCTOR_GATEWAY_TOKEN"},
    "copilot": {"COPILOT_OFFLINE", "COPILOT_PROVIDER_BASE_URL", "COPILOT_MODEL"},
    "gemini": {"GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"},
}


@pytest.mark.parametrize("name", GATEWAY)
async def test_with_the_users_login_an_agent_is_not_pointed_at_the_gateway(place, stage, name):
    agent = find_agent(name, {"login": "mine"})
    stage.play(name, "")
    await place.work(agent, access=None, model="")
    called = stage.called()
    assert (agent.reach, agent.needs_network, agent.needs_model) == ("own", True, False)
    assert agent.copied_logins()
    assert not {"--model", "-m"} & set(called.args)
    assert not GATEWAY[name] & called.environment.keys()
    assert find_agent(name, {}).reach == "gateway"


@pytest.mark.parametrize(("name", "tokens"), [("codex", 2580), ("gemini", 2594)])
async def test_with_the_users_login_the_tokens_are_those_that_the_agent_reports(place, stage, name, tokens):
    stage.play(name, f"{name}.jsonl")
    await place.work(find_agent(name, {"login": "mine"}), access=None, model="")
    assert [call.usage.total_tokens for call in place.recorded(ModelCall)] == [tokens]
    place.events.clear()
    await place.work(find_agent(name, {}), access=Access(url="http://localhost", token="t"), model="m")
    assert place.recorded(ModelCall) == []
