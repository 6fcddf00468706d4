"""A client of any format gets answers from a provider of any other: text, tools, tokens, streams."""

import json

import pytest
from aiohttp import web
from gateway_requests import COMPLETIONS, PATHS, anthropic_answer
from openai_calls import completion

from proctor.models.gateway.call import DIALECTS

CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"command": "make"}'}},
]
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
FUNCTION = {"name": "run", "description": "Runs it.", "parameters": SCHEMA}
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]

CHAT = {
    "model": "tiny",
    "max_tokens": 50,
    "temperature": 0.5,
    "tools": CHAT_TOOLS,
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Build it."},
        {"role": "assistant", "content": "I try.", "tool_calls": CALLS},
        {"role": "tool", "tool_call_id": "c1", "content": "failed"},
        {"role": "user", "content": "Again."},
    ],
}
MESSAGES = {
    "model": "tiny",
    "max_tokens": 50,
    "temperature": 0.5,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "tools": [{"name": "run", "description": "Runs it.", "input_schema": SCHEMA}],
    "messages": [
        {"role": "user", "content": "Build it."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "text", "text": "I try."},
                {"type": "tool_use", "id": "c1", "name": "run", "input": {"command": "make"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "failed"}]},
                {"type": "text", "text": "Again."},
            ],
        },
    ],
}
RESPONSES = {
    "model": "tiny",
    "max_output_tokens": 50,
    "temperature": 0.5,
    "instructions": "Be brief.",
    "tools": [{"type": "function", **FUNCTION}],
    "store": False,
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Build it."}]},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I try."}]},
        {"type": "function_call", "call_id": "c1", "name": "run", "arguments": '{"command": "make"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "failed"},
        {"role": "user", "content": "Again."},
    ],
}
GEMINI = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "generationConfig": {"maxOutputTokens": 50, "temperature": 0.5},
    "tools": [
        {
            "functionDeclarations": [
                {
                    "name": "run",
                    "description": "Runs it.",
                    "parameters": {
                        "type": "OBJECT",
                        "properties": {"command": {"type": "STRING"}},
                        "required": ["command"],
                    },
                }
            ]
        }
    ],
    "contents": [
        {"role": "user", "parts": [{"text": "Build it."}]},
        {
            "role": "model",
            "parts": [
                {"text": "I try."},
                {"functionCall": {"id": "c1", "name": "run", "args": {"command": "make"}}},
            ],
        },
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "c1", "name": "run", "response": {"output": "failed"}}}],
        },
        {"role": "user", "parts": [{"text": "Again."}]},
    ],
}
ASKED = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES, "gemini": GEMINI}
EACH_CLIENT = pytest.mark.parametrize("wire", ASKED)


def as_stream(wire):
    """The same request for a stream."""
    if wire == "gemini":
        return PATHS[wire].replace("generate", "streamGenerate") + "?alt=sse", GEMINI
    counting = {"stream_options": {"include_usage": True}} if wire == "chat" else {}
    return PATHS[wire], ASKED[wire] | {"stream": True} | counting


@EACH_CLIENT
async def test_a_conversation_with_tools_reaches_a_chat_provider_whole(provider, begin, wire):
    provider.answers = [completion()]
    attempt = begin(model="acme/tiny")

    await attempt.asked(PATHS[wire], ASKED[wire])

    sent = provider.bodies[0]
    assert (sent["model"], sent["max_tokens"], sent["temperature"]) == ("tiny", 50, 0.5)
    assert sent["tools"] == CHAT_TOOLS
    assert sent["messages"] == CHAT["messages"]
    assert "stream" not in sent


@EACH_CLIENT
async def test_a_conversation_with_tools_reaches_anthropic_whole(provider, begin, wire):
    provider.answers = [anthropic_answer({"type": "text", "text": "Paris"})]
    attempt = begin(model="anthropic/tiny")

    await attempt.asked(PATHS[wire], ASKED[wire])

    sent = provider.bodies[0]
    assert (sent["model"], sent["max_tokens"], sent["temperature"]) == ("tiny", 50, 0.5)
    assert sent["tools"] == MESSAGES["tools"]
    system = sent["system"] if isinstance(sent["system"], str) else sent["system"][0]["text"]
    assert system == "Be brief."
    said = [(turn["role"], json.dumps(turn["content"])) for turn in sent["messages"]]
    assert [role for role, _ in said] == ["user", "assistant", "user"]
    for position, words in ((0, "Build it."), (1, "I try."), (1, '"tool_use"'), (1, "make"), (2, "failed")):
        assert words in said[position][1]
    assert said[2][1].index("failed") < said[2][1].index("Again.")


@EACH_CLIENT
async def test_a_stream_says_the_same_as_a_whole_answer(begin, tmp_path, wire):
    tokens = "{input_tokens: 100, cached_tokens: 40, output_tokens: 20, reasoning_tokens: 7}"
    rule = f"{{reply: I try – ✓, tool: {{name: run, arguments: {{command: make}}}}, usage: {tokens}}}"
    (tmp_path / "both.yaml").write_text(f"[{rule}]")
    attempt = begin(model="scripted/both")

    whole = DIALECTS[wire].read((await attempt.post(PATHS[wire], ASKED[wire]))[1], streamed=False)
    streamed = DIALECTS[wire].read((await attempt.post(*as_stream(wire)))[1], streamed=True)

    assert streamed._replace(served=whole.served) == whole
    assert streamed.served.model == whole.served.model
    assert (whole.text, whole.finish_reason, whole.usage.input_tokens) == ("I try – ✓", "tool_calls", 100)
    assert json.loads(whole.tool_requests[0].arguments) == {"command": "make"}


async def test_a_freeform_tool_of_codex_is_a_function_to_others_and_comes_back_freeform(provider, begin):
    call = {"id": "c9", "function": {"name": "apply_patch", "arguments": '{"input": "*** Begin"}'}}
    provider.answers = [completion(None, tool_calls=[call])]
    attempt = begin(model="acme/tiny")
    tools = [{"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}, {"type": "web_search"}]

    answer = await attempt.asked("/v1/responses", {"model": "tiny", "input": "Fix it.", "tools": tools})

    (item,) = answer["output"]
    assert (item["type"], item["call_id"], item["input"]) == ("custom_tool_call", "c9", "*** Begin")
    assert provider.bodies[0]["tools"][0]["function"]["parameters"]["required"] == ["input"]
    assert attempt.notes == ["acme/tiny was not sent tool web_search: acme does not take it"]


@pytest.mark.parametrize(
    "arguments", ["*** Begin", '{"patch": "*** Begin"}', '["*** Begin"]', "3", '{"input"'], ids=repr
)
async def test_what_is_said_to_a_freeform_tool_in_no_known_form_comes_as_it_is(provider, begin, arguments):
    call = {"id": "c9", "function": {"name": "apply_patch", "arguments": arguments}}
    provider.answers = [completion(None, tool_calls=[call])]
    tools = [{"type": "custom", "name": "apply_patch"}]

    answer = await begin(model="acme/tiny").asked(
        "/v1/responses", {"model": "tiny", "input": "Fix it.", "tools": tools}
    )

    assert [item["input"] for item in answer["output"]] == [arguments]


async def test_what_a_provider_does_not_take_is_said_once(provider, begin):
    provider.answers = [anthropic_answer()]
    attempt = begin(model="anthropic/tiny")
    for _ in range(3):
        await attempt.asked(COMPLETIONS, CHAT | {"seed": 7, "logit_bias": {}})
    assert "seed" not in provider.bodies[0] and "logit_bias" not in provider.bodies[0]
    assert attempt.notes == [
        "anthropic/tiny was not sent `logit_bias`: anthropic does not take it",
        "anthropic/tiny was not sent `seed`: anthropic does not take it",
    ]


async def test_ids_of_answers_and_tool_calls_are_new_to_the_conversation(begin, tmp_path):
    (tmp_path / "tools.yaml").write_text("[{tool: {name: run, arguments: {command: make}}}]")
    attempt = begin(model="scripted/tools")
    body = {"model": "x", "messages": [{"role": "user", "content": "Go."}]}
    ids = []
    for _ in range(3):
        answer = await attempt.asked(COMPLETIONS, body)
        message = answer["choices"][0]["message"]
        ids += [answer["id"], message["tool_calls"][0]["id"]]
        body["messages"] += [message, {"role": "tool", "tool_call_id": ids[-1], "content": "ok"}]
    assert len(set(ids)) == 6


async def test_a_failure_of_the_provider_is_told_in_the_client_s_format(provider, begin):
    provider.answers = [web.json_response({"error": {"message": "context too long"}}, status=400)]
    status, raw = await begin(model="acme/tiny").post("/v1/messages", MESSAGES)
    assert status == 400
    said = json.loads(raw)
    assert said["error"]["type"] == "invalid_request_error" and "context too long" in said["error"]["message"]


async def test_tokens_are_estimated_where_nobody_counts_them(begin):
    attempt = begin(model="scripted/echo")
    counted = await attempt.asked("/v1/messages/count_tokens", MESSAGES)
    assert counted == {"input_tokens": 144}
    counted = await attempt.asked("/v1beta/models/x:countTokens", GEMINI)
    assert counted == {"totalTokens": 132}
    assert attempt.calls == []


async def test_counting_asks_no_model_though_the_provider_cannot_count(provider, begin):
    provider.answers = [web.Response(status=404)]
    attempt = begin(model="gemini/gemini-2.5-flash")
    assert (await attempt.asked("/v1beta/models/x:countTokens", GEMINI))["totalTokens"] > 50
    assert len(provider.bodies) == 1
