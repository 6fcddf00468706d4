"""Any program as an agent."""

import asyncio
import json
import sys

import pytest

from proctor.agent import Access
from proctor.agents.command import Command
from proctor.errors import AgentNotStarted, WorkspaceError
from proctor.session import Message, ModelCall, Note, ToolCall
from proctor.testing import eventually_async


def printing(*lines):
    """A program that prints these lines; what is no text is printed as JSON."""
    said = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    return [sys.executable, "-c", f"print({said!r})"]


async def test_a_program_is_told_its_task_three_ways_and_works_in_the_tree(place):
    script = 'read typed; echo "$typed|$PROCTOR_PROMPT|$PROCTOR_MODEL|$HOME" > told.txt'

    done = await place.work(Command(command=script), "Fix it.", model="gpt-4o")

    assert (done.exit_code, done.failure) == (0, "")
    told = (place.folder / "told.txt").read_text().strip()
    assert told == f"Fix it.|Fix it.|gpt-4o|{place.home}"


async def test_it_sees_no_environment_but_its_own(place, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    done = await place.work(Command(command=["env"]))
    assert "sk-secret" not in done.output
    assert "PROCTOR_PROMPT" in done.output


async def test_events_in_our_own_shape_are_recorded(place):
    usage = {"type": "usage", "input_tokens": 900, "cached_tokens": 100, "output_tokens": 40, "cost_usd": 0.5}
    await place.work(
        Command(
            command=printing(
                {"type": "message", "role": "assistant", "text": "Done."},
                {"type": "tool", "name": "edit", "args": {"a": 1}, "success": False, "duration_ms": 12},
                usage,
                "other output",
            )
        ),
        model="tiny",
    )
    assert place.recorded(Message) == [Message(role="assistant", content="Done.")]
    assert place.recorded(ToolCall) == [ToolCall(name="edit", args={"a": 1}, success=False, duration_ms=12.0)]
    (call,) = place.recorded(ModelCall)
    assert (call.model, call.usage.input_tokens, call.usage.cached_tokens) == ("tiny", 900, 100)
    assert (call.cost_usd, call.price_source) == (0.5, "agent")


async def test_events_with_nonsense_in_them_do_no_harm(place):
    await place.work(
        Command(
            command=printing(
                {"type": "tool", "name": 7, "args": "x", "success": "yes", "duration_ms": -1},
                {"type": "usage", "input_tokens": "1", "output_tokens": -3, "cost_usd": "free"},
                {"type": "message", "role": "king", "text": ["a"]},
                {"type": ["list"]},
                {"type": "assistant", "message": "no map"},
                {"type": "assistant", "message": {"content": [None, 3, {"type": "tool_use"}]}},
                "{broken",
            )
        )
    )
    assert place.recorded(ToolCall)[0] == ToolCall(name="7", args={}, success=None)
    (call,) = place.recorded(ModelCall)
    assert (call.usage.total_tokens, call.cost_usd) == (0, None)
    assert place.recorded(Message)[0].role == "assistant"


@pytest.mark.parametrize(
    ("lines", "answers"),
    [
        (["Compiling…", "", "All done.", "2 files changed.", ""], ["All done.\n2 files changed."]),
        (["a", " ", "b", "c"], ["b\nc"]),
        (["a", "", ""], ["a"]),
        ([""], []),
        (['{"other": 1}'], ['{"other": 1}']),
        (["{broken"], ["{broken"]),
        ([{"type": "tool", "name": "f"}, "first", "", "last"], ["last"]),
        (["first", "", {"type": "tool", "name": "f"}, "last"], ["last"]),
        (["first", {"type": "tool", "name": "f"}, "last"], ["first\nlast"]),
        ([{"type": "message", "role": "user", "content": "q"}, "first", "", "last"], ["q", "last"]),
        ([{"type": "message", "role": "assistant", "content": "a"}, "first", "", "last"], ["a"]),
        ([{"type": "message", "role": "nobody", "text": "a", "content": "b"}], ["a"]),
    ],
)
async def test_the_last_paragraph_of_plain_output_is_the_answer_unless_an_event_was(place, lines, answers):
    await place.work(Command(command=printing(*lines)))
    assert [message.content for message in place.recorded(Message)] == answers


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo out; echo last", ": last"),
        ("echo out; printf 'err\\nworst\\n\\n' >&2", ": worst"),
        ("true", ""),
        ("printf 'x%.0s' $(seq 400) >&2", ": " + "x" * 299 + "…"),
        ("echo \"error: unknown option '--x'\" >&2", ": error: unknown option '--x'"),
    ],
)
async def test_a_program_that_exits_with_an_error_has_failed_and_says_why(place, script, why):
    done = await place.work(Command(command=f"{script}; exit 3"))
    assert (done.exit_code, done.failure) == (3, f"it exited with 3{why}")


async def test_a_program_that_is_not_there_is_said_so(place):
    with pytest.raises(AgentNotStarted, match="no-such-program"):
        await place.work(Command(command=["no-such-program"]))
    missing = Command(command=["no-such-program"]).availability(place.environment)
    assert not missing.ready and "no-such-program" in missing.problem
    assert Command(command=["sh"]).availability(place.environment).ready


async def test_events_are_left_out_of_the_output_when_nobody_wants_them(place):
    command = Command(command=printing({"type": "message", "text": "hi"}, "plain"))
    assert "message" in (await place.work(command)).output
    done = await place.work(command, keep_events=False)
    assert "message" not in done.output and "plain" in done.output


async def test_endless_output_is_kept_in_bounded_memory(place):
    loud = [sys.executable, "-c", "print('x' * 80 + '\\n') or [print('y' * 1000) for _ in range(20000)]"]
    done = await place.work(Command(command=loud))
    assert done.exit_code == 0
    assert len(done.output) < 300_000
    assert len(place.recorded(Message)[0].content) < 300_000


@pytest.mark.parametrize(("size", "variables"), [(119_999, "1"), (120_000, "0")])
async def test_a_prompt_too_large_for_a_variable_is_still_typed(place, size, variables):
    done = await place.work(Command(command="wc -c; env | grep -c PROCTOR_PROMPT || true"), "x" * size)
    assert done.failure == ""
    assert done.output.split() == [str(size), variables]


async def test_a_prompt_cannot_smuggle_in_a_variable(place):
    done = await place.work(Command(command=["env"]), "hello\0SMUGGLED=1")
    assert "\nSMUGGLED=1" not in done.output


async def test_a_daemon_left_behind_is_ended_and_said(place):
    await place.work(Command(command="setsid sleep 61 & echo started"))
    assert any("sleep" in note.text for note in place.recorded(Note))
    assert place.left_running() == []


async def test_a_cancelled_program_leaves_no_process_and_its_words_are_kept(place):
    program = """echo thinking; setsid sleep 62 & echo '{"type": "tool", "name": "run"}'; sleep 62"""
    working = asyncio.create_task(place.work(Command(command=program)))
    # What it printed before the call has been read by then.
    await eventually_async(lambda: place.recorded(ToolCall))
    assert place.left_running()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert place.left_running() == []
    assert place.recorded(Message) == [Message(role="assistant", content="thinking")]


async def test_a_program_on_the_gateway_finds_it_where_it_looks_for_a_provider(place):
    access = Access(url="http://127.0.0.1:9", token="token-of-this-attempt")
    program = Command(command="env; cat .token", gateway=True)
    (place.folder / ".token").write_text(access.token)

    done = await place.work(program, access=access)

    assert (program.reach, program.records_transcript) == ("gateway", False)
    for variable in ("OPENAI_BASE_URL", "OPENAI_API_BASE"):
        assert f"{variable}=http://127.0.0.1:9/v1\n" in done.output
    for variable in ("ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"):
        assert f"{variable}=http://127.0.0.1:9\n" in done.output
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        assert f"{variable}=[key]\n" in done.output
    assert access.token not in done.output
    assert "127.0.0.1" in done.output.partition("NO_PROXY=")[2].splitlines()[0]


async def test_what_a_program_on_the_gateway_prints_is_not_counted_a_second_time(place):
    said = printing(
        {"type": "message", "text": "Done."}, {"type": "usage", "input_tokens": 900, "cost_usd": 0.5}
    )
    access = Access(url="http://127.0.0.1:9", token="token-of-this-attempt")

    done = await place.work(Command(command=said, gateway=True), access=access)

    assert place.events == []
    assert "Done." in done.output


async def test_a_program_that_has_its_own_way_is_not_told_of_the_gateway(place):
    done = await place.work(Command(command=["env"]), access=Access(url="http://127.0.0.1:9", token="t" * 9))
    assert "BASE_URL" not in done.output
    assert Command(command=["env"]).reach == "own"


async def test_a_program_that_is_to_use_the_gateway_needs_access_to_it(place):
    with pytest.raises(WorkspaceError, match="no access"):
        await place.work(Command(command=["env"], gateway=True))
