"""Each wire format by itself: requests and answers are translated part by part."""

from typing import Any

import pytest

from proctor.models.gateway import chat, gemini, messages, responses
from proctor.models.gateway.dialect import limit_in, read_events

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def sent(dialect: Any, body: dict[str, Any]) -> tuple[list[Any], dict[str, Any], list[Any], list[str]]:
    parsed = dialect.parse_request(body, "m")
    request, left_out = parsed.request, parsed.left_out
    return list(request.messages), dict(request.parameters), list(request.tools), list(left_out)


def choice(name: str) -> dict[str, Any]:
    """The choice of one function, in the format that all others are translated to."""
    return {"tool_choice": {"type": "function", "function": {"name": name}}}


def shaped(**schema: Any) -> dict[str, Any]:
    """An answer of a shape, in that format."""
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def message(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"model": "m", "max_tokens": 5, "messages": [{"role": role, "content": list(blocks)}]}


def test_what_other_formats_do_not_have_is_reported_and_reasoning_is_not() -> None:
    image = {"type": "image", "source": {}}
    body = message(
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a"}, image]},
        {"type": "document", "source": {}},
        {"type": "thinking", "thinking": "hm"},
        {"type": "redacted_thinking", "data": "x"},
    )
    turns, _, tools, left_out = sent(messages, {**body, "tools": [{"type": "web_search_1"}, {"name": "odd"}]})
    assert turns == [{"role": "tool", "tool_call_id": "c1", "content": "a"}] and tools == []
    assert left_out == [
        "content of type document",
        "content of type image in the result of a tool",
        "tool odd",
        "tool web_search_1",
    ]


@pytest.mark.parametrize(
    ("given", "parameters"),
    [
        ({"stop_sequences": ["a"]}, {"stop": ["a"]}),
        ({"stop_sequences": []}, {}),
        ({"tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
        ({"tool_choice": {"type": "auto"}}, {"tool_choice": "auto"}),
        ({"tool_choice": {"type": "tool", "name": "f"}}, choice("f")),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, {"tool_choice": "auto"}),
        (
            {
                "tools": [{"name": "f", "input_schema": {}}],
                "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
            },
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"a": 1}}}},
            shaped(name="answer", schema={"a": 1}),
        ),
        ({"top_p": 0.5, "top_k": 3}, {"top_p": 0.5}),
    ],
)
def test_the_settings_of_a_message(given: dict[str, Any], parameters: dict[str, Any]) -> None:
    assert sent(messages, {**message({"type": "text", "text": "x"}), **given})[1] == {
        "max_tokens": 5,
        **parameters,
    }


@pytest.mark.parametrize("dialect", [chat, messages, responses, gemini])
@pytest.mark.parametrize("raw", [b"no json", b"[]", b"{}", b'{"content": 3}'])
def test_an_answer_that_cannot_be_read_is_nothing(dialect: Any, raw: bytes) -> None:
    read = dialect.read(raw, streamed=False)
    assert read.text == "" and not read.tool_requests and read.usage.total_tokens == 0


# --- Responses ---

CUSTOM = [{"type": "custom", "name": "f"}]


def test_the_input_items_of_responses() -> None:
    items = [
        {"role": "developer", "content": "rules"},
        {"type": "custom_tool_call", "name": "shell", "call_id": "c0", "input": "ls"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": "no"}, {"type": "output_text", "text": "so"}],
        },
        {"type": "function_call", "name": "f", "call_id": "c1", "arguments": "{}"},
        {"type": "function_call", "name": "g", "call_id": "c2", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": {"a": 1}},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "text", "text": "done"}]},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "http://x"},
                {"type": "input_file"},
            ],
        },
        {"type": "reasoning", "summary": []},
        {"type": "item_reference", "id": "x"},
    ]
    turns, _, _, left_out = sent(responses, {"model": "m", "input": items})
    assert [(each["role"], each["content"]) for each in turns] == [
        ("system", "rules"),
        ("assistant", ""),
        ("assistant", "noso"),
        ("tool", '{"a": 1}'),
        ("tool", "done"),
        ("user", [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "http://x"}}]),
    ]
    assert [call["function"] for call in turns[1]["tool_calls"]] == [
        {"name": "shell", "arguments": '{"input": "ls"}'}
    ]
    assert [call["id"] for call in turns[2]["tool_calls"]] == ["c1", "c2"]
    assert left_out == ["content of type input_file", "input of type item_reference"]


@pytest.mark.parametrize(
    ("given", "parameters"),
    [
        ({"max_output_tokens": 9}, {"max_tokens": 9}),
        ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
        ({"tool_choice": "required"}, {}),
        (
            {"tools": CUSTOM, "tool_choice": "required", "parallel_tool_calls": False},
            {"tool_choice": "required", "parallel_tool_calls": False},
        ),
        ({"tools": CUSTOM, "tool_choice": {"type": "function", "name": "f"}}, choice("f")),
        ({"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
        (
            {
                "text": {
                    "format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True, "type2": 1}
                }
            },
            shaped(name="n", schema={}, strict=True),
        ),
        ({"text": {"format": {"type": "text"}}, "temperature": None, "top_p": 0}, {"top_p": 0}),
    ],
)
def test_the_settings_of_responses(given: dict[str, Any], parameters: dict[str, Any]) -> None:
    assert sent(responses, {"model": "m", "input": "x", **given})[1] == parameters


def test_the_tools_of_responses() -> None:
    tools = [
        {"type": "function", "name": "f", "parameters": {}, "odd": 1},
        {"type": "custom", "name": "c"},
        {"type": "web_search"},
    ]
    _, _, made, left_out = sent(
        responses, {"model": "m", "input": "x", "tools": tools, "top_logprobs": 1, "max_tool_calls": None}
    )
    assert made[0] == {"type": "function", "function": {"name": "f", "parameters": {}}}
    assert made[1]["function"] == {"name": "c", "description": "", "parameters": responses.FREEFORM}
    assert len(made) == 2 and left_out == ["tool web_search", "top_logprobs"]
    with pytest.raises(ValueError, match="previous_response_id"):
        responses.parse_request({"input": "x", "previous_response_id": "r"}, "m")


@pytest.mark.parametrize(("limit", "sent_limit"), [(15, 16), (16, 16), (17, 17)])
def test_responses_have_no_limit_below_sixteen(limit: int, sent_limit: int) -> None:
    assert responses.with_output_limit({"a": 1}, limit) == {"a": 1, "max_output_tokens": sent_limit}


# --- Gemini ---


def contents(*parts: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"contents": [{"role": role, "parts": list(parts)}], **more}


def generation(**settings: Any) -> dict[str, Any]:
    return {"generationConfig": settings}


def calling(**settings: Any) -> dict[str, Any]:
    return {"toolConfig": {"functionCallingConfig": settings}}


def test_the_parts_of_gemini() -> None:
    turns, _, _, left_out = sent(
        gemini,
        contents(
            {"text": "hidden", "thought": True},
            {"text": "see"},
            {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
            {"fileData": {}, "thoughtSignature": "x"},
            **generation(topK=4, temperature=0, responseMimeType="text/plain"),
        ),
    )
    assert turns == [{"role": "user", "content": [{"type": "text", "text": "see"}, IMAGE]}]
    assert left_out == ["part fileData", "topK"]


def test_results_of_gemini_find_their_calls_by_id_or_by_name_in_order() -> None:
    calls = [
        {"functionCall": {"name": "f", "args": {"a": 1}}},
        {"functionCall": {"name": "g"}},
        {"functionCall": {"name": "f", "id": "own"}},
        {"functionCall": {"name": "f"}},
    ]
    results = [
        {"functionResponse": {"name": "f", "id": "own", "response": {"output": "by id"}}},
        {"functionResponse": {"name": "g", "response": {"error": "bad"}}},
        {"functionResponse": {"name": "f", "response": {"a": "ü", "b": 1}}},
        {"functionResponse": {"name": "f", "response": {"output": 1, "error": 2}}},
        {"functionResponse": {"name": "h", "id": "lost", "response": None}},
        {"functionResponse": {"name": "h", "response": {"odd": 1}}},
    ]
    body = {"contents": [{"role": "model", "parts": calls}, {"role": "user", "parts": results}]}
    turns = sent(gemini, body)[0]
    assert [(call["id"], call["function"]["arguments"]) for call in turns[0]["tool_calls"]] == [
        ("call_1", '{"a": 1}'),
        ("call_2", "{}"),
        ("own", "{}"),
        ("call_4", "{}"),
    ]
    assert [(each["tool_call_id"], each["content"]) for each in turns[1:]] == [
        ("own", "by id"),
        ("call_2", "bad"),
        ("call_1", '{"a": "ü", "b": 1}'),
        ("call_4", '{"output": 1, "error": 2}'),
        ("lost", "null"),
        ("", '{"odd": 1}'),
    ]


@pytest.mark.parametrize(
    ("given", "parameters"),
    [
        (
            generation(temperature=0, topP=None, maxOutputTokens=7, stopSequences=["x"]),
            {"temperature": 0, "max_tokens": 7, "stop": ["x"]},
        ),
        (generation(responseMimeType="application/json"), {"response_format": {"type": "json_object"}}),
        (generation(responseMimeType="text/plain"), {}),
        (
            generation(responseSchema={"type": "OBJECT", "items": [{"type": "STRING"}], "enum": ["A"]}),
            shaped(name="answer", schema={"type": "object", "items": [{"type": "string"}], "enum": ["A"]}),
        ),
        (calling(mode="ANY"), {"tool_choice": "required"}),
        (calling(mode="ANY", allowedFunctionNames=["f"]), choice("f")),
        (calling(mode="ANY", allowedFunctionNames=["f", "g"]), {"tool_choice": "required"}),
        (calling(mode="AUTO", allowedFunctionNames=["f"]), {"tool_choice": "auto"}),
        (calling(mode="ODD"), {}),
    ],
)
def test_the_settings_of_gemini(given: dict[str, Any], parameters: dict[str, Any]) -> None:
    assert sent(gemini, contents({"text": "x"}, **given))[1] == parameters


def test_the_tools_of_gemini() -> None:
    tools = [
        {
            "functionDeclarations": [
                {"name": "f", "parameters": {"type": "OBJECT"}},
                {"name": "g", "description": "d", "parametersJsonSchema": {"type": "Kept"}},
                {"name": "h"},
            ],
            "googleSearch": {},
        }
    ]
    _, _, made, left_out = sent(gemini, contents({"text": "x"}, tools=tools))
    assert [each["function"]["parameters"] for each in made] == [
        {"type": "object"},
        {"type": "Kept"},
        {"type": "object", "properties": {}},
    ]
    assert [each["function"]["description"] for each in made] == ["", "d", ""]
    assert left_out == ["tool googleSearch"]


@pytest.mark.parametrize(
    ("body", "limit"), [({}, None), ({"a": 3}, 3), ({"b": 5}, 5), ({"a": None}, None), ({"a": 0}, None)]
)
def test_a_limit_of_tokens_is_a_positive_number(body: dict[str, Any], limit: int | None) -> None:
    assert limit_in(body, "a", "b") == limit


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b'data: {"a": 1}\n\ndata:{"b": 2}\n\n', [{"a": 1}, {"b": 2}]),
        (b'event: x\r\ndata:   {"a":\r\ndata: 1}\r\n\r\ndata: [DONE]\r\n\r\n', [{"a": 1}]),
        (b'data: {"a": 1}\r\rdata: [1]\r\rdata: {"cut', [{"a": 1}]),
        (b'id: {"a": 1}\n\n', []),
    ],
)
def test_the_events_of_a_stream(stream: bytes, events: list[Any]) -> None:
    assert list(read_events(stream)) == events
