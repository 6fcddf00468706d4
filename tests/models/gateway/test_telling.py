"""What an agent said and did, told from its traffic when it does not tell it itself."""

from openai_calls import completion

from proctor.session import Message, ToolCall

CALL = {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"command": "make"}'}}


def said(message: Message | ToolCall) -> tuple:
    if isinstance(message, ToolCall):
        return message.name, dict(message.args), message.success, message.result
    return message.role, message.content


async def test_a_conversation_is_told_once_though_every_request_repeats_it(provider, begin):
    provider.answers = [completion("I try.", tool_calls=[CALL]), completion("Done."), completion("Bye.")]
    attempt = begin(reads_traffic=True)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Build it."}]
    await attempt.asked("/v1/chat/completions", {"model": "tiny", "messages": messages})
    messages += [
        {"role": "assistant", "content": "I try.\n", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "built"},
    ]
    await attempt.asked("/v1/chat/completions", {"model": "tiny", "messages": messages})
    messages += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Build it."}]
    await attempt.asked("/v1/chat/completions", {"model": "tiny", "messages": messages})

    assert list(map(said, attempt.told)) == [
        ("system", "Be brief."),
        ("user", "Build it."),
        ("assistant", "I try."),
        ("run", {"command": "make"}, None, "built"),
        ("assistant", "Done."),
        ("user", "Build it."),
        ("assistant", "Bye."),
    ]


async def test_a_second_conversation_beside_the_first_does_not_repeat_it(provider, begin):
    provider.answers = [completion("One."), completion("A title"), completion("Two.")]
    attempt = begin(reads_traffic=True)
    first = [{"role": "user", "content": "Build it."}]
    title = [{"role": "system", "content": "Find a title."}, {"role": "user", "content": "Build it."}]
    second = [*first, {"role": "assistant", "content": "One."}, {"role": "user", "content": "On."}]
    for messages in (first, title, second):
        await attempt.asked("/v1/chat/completions", {"model": "tiny", "messages": messages})
    assert [content for _, content in map(said, attempt.told)] == [
        "Build it.",
        "One.",
        "Find a title.",
        "A title",
        "On.",
        "Two.",
    ]


async def test_anthropic_says_whether_a_tool_succeeded(begin):
    attempt = begin(model="scripted/ok", reads_traffic=True)
    uses = [{"type": "tool_use", "id": f"t{n}", "name": "run", "input": {"n": n}} for n in (1, 2)]
    results = [
        {"type": "tool_result", "tool_use_id": "t1", "content": "fine"},
        {"type": "tool_result", "tool_use_id": "t2", "content": "Exit code 3", "is_error": True},
    ]
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": uses},
        {"role": "user", "content": results},
    ]
    await attempt.asked("/v1/messages", {"model": "x", "max_tokens": 9, "messages": messages})
    calls = [event for event in attempt.told if isinstance(event, ToolCall)]
    assert [(call.args["n"], call.success, call.result) for call in calls] == [
        (1, True, "fine"),
        (2, False, "Exit code 3"),
    ]


async def test_a_tool_call_nobody_answered_is_told_when_the_access_is_shut(provider, begin):
    provider.answers = [completion(None, tool_calls=[CALL])]
    attempt = begin(reads_traffic=True)
    await attempt.asked("/v1/chat/completions", {"messages": [{"role": "user", "content": "Go."}]})
    attempt.gateway.shut(attempt.access.token)
    assert said(attempt.told[-1]) == ("run", {"command": "make"}, None, "")


async def test_nothing_is_told_for_agents_that_tell_it_themselves(provider, begin):
    provider.answers = [completion("I try.")]
    attempt = begin()
    await attempt.asked("/v1/chat/completions", {"messages": [{"role": "user", "content": "Go."}]})
    assert attempt.told == [] and len(attempt.calls) == 1
