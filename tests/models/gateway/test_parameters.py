"""What of an agent's request reaches a provider or a client library, and what does not."""

import json
from pathlib import Path

import pytest
from aiohttp import web
from gateway_requests import CHAT, COMPLETIONS, PATHS
from hypothesis import given
from hypothesis import strategies as st
from openai_calls import KEY, completion

from proctor.models.gateway.access import MOST_NOTES
from proctor.models.gateway.parameters import ParameterRefused, allowed, passed_up

PROMPTS = {
    "chat": CHAT,
    "responses": {"model": "tiny", "input": "Capital?"},
    "messages": CHAT | {"max_tokens": 9},
    "gemini": {"contents": [{"parts": [{"text": "Capital?"}]}]},
}
MODELS = {"messages": "anthropic/tiny", "gemini": "gemini/tiny"}
REAL_REQUESTS = json.loads((Path(__file__).parent / "recorded" / "requests.json").read_text())
"""What each agent sends with its second call, shortened: one element of each shape."""

CLIENT_SETTINGS = {
    "base_url": "http://127.0.0.1:9",
    "api_key": "other",
    "custom_llm_provider": "openai",
    "extra_headers": {"a": "b"},
    "headers": {"a": "b"},
    "default_headers": {"a": "b"},
    "organization": "other",
    "aws_role_name": "other",
    "aws_sts_endpoint": "http://127.0.0.1:9",
    "vertex_credentials": "/etc/passwd",
    "azure_ad_token": "other",
    "mock_response": "hello",
    "fallbacks": [{"model": "dear", "api_base": "http://127.0.0.1:9"}],
    "context_window_fallback_dict": {},
    "callbacks": ["other"],
    "success_callback": ["other"],
    "num_retries": 50,
    "timeout": 9,
    "proxy": "p",
    "metadata": {"a": "b"},
    "extra_body": {"api_base": "http://127.0.0.1:9"},
    "caching": True,
    "model_list": [],
    "input_cost_per_token": 0,
    "ssl_verify": False,
    "client": "x",
    "api_version": "1",
}


async def test_no_address_or_setting_of_an_agent_reaches_a_client_library(provider, begin, litellm):
    attempt = begin(model="litellm/any/tiny")
    harmless = {"temperature": 0, "top_p": 1, "max_tokens": 9}

    answer = await attempt.asked(
        COMPLETIONS, CHAT | harmless | CLIENT_SETTINGS | {"api_base": f"{provider.url}/stolen"}
    )

    sent = ["max_retries", "max_tokens", "messages", "model", "num_retries", "temperature", "top_p"]
    assert answer["choices"][0]["message"]["content"] == f"{sent}any/tiny"
    assert provider.headers == []
    dropped = {note.split("`")[1].partition(".")[0] for note in attempt.notes}
    assert dropped == {*CLIENT_SETTINGS, "api_base"}


@pytest.mark.parametrize("wire", PATHS)
async def test_members_that_no_format_has_do_not_reach_a_provider(provider, begin, wire):
    provider.answers = [completion()]
    attempt = begin(model=MODELS.get(wire, "openai/tiny"))
    for _ in range(2):
        await attempt.post(PATHS[wire], PROMPTS[wire] | CLIENT_SETTINGS | {"api_base": provider.url})
    may_stay = {"metadata", "extra_body"}
    for sent in provider.bodies:
        assert set(sent) - may_stay <= set(PROMPTS[wire]) | {"max_tokens"}
        assert sent.get("extra_body", {}) == {}
    assert len([note for note in attempt.notes if "`api_base`" in note]) == 1


@pytest.mark.parametrize("agent", REAL_REQUESTS)
def test_what_real_agents_send_passes_as_it_is(agent):
    request = REAL_REQUESTS[agent]
    assert allowed(request["wire"], request["body"]) == (request["body"], ())
    assert passed_up(request["headers"])[1] == []


def user(*parts):
    return [{"role": "user", "content": list(parts)}]


@pytest.mark.parametrize(
    ("wire", "more"),
    [
        ("responses", {"previous_response_id": "resp_of_somebody_else"}),
        ("responses", {"conversation": {"id": "conv_1"}}),
        ("responses", {"prompt": {"id": "pmpt_1"}}),
        ("responses", {"input": [{"type": "item_reference", "id": "msg_1"}]}),
        ("responses", {"input": [{"id": "msg_1"}]}),
        ("responses", {"input": [{"type": None, "id": "msg_1"}]}),
        ("responses", {"input": user({"type": "input_file", "file_id": "f"})}),
        ("responses", {"input": user({"type": "input_file", "file_url": "https://x"})}),
        ("responses", {"input": user({"type": "input_image", "image_url": "https://x"})}),
        ("chat", {"messages": user({"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}})}),
        ("chat", {"messages": user({"type": "image_url", "image_url": "file:///etc/x"})}),
        ("chat", {"messages": user({"type": "file", "file": {"file_id": "file-1"}})}),
        ("messages", {"messages": user({"type": "image", "source": {"type": "url", "url": "https://x"}})}),
        ("messages", {"messages": user({"type": "document", "source": {"type": "file", "file_id": "f"}})}),
        ("gemini", {"cachedContent": "cachedContents/1"}),
        ("gemini", {"cached_content": "cachedContents/1"}),
        ("gemini", {"contents": [{"parts": [{"file_data": {"file_uri": "gs://other/file"}}]}]}),
    ],
)
async def test_what_is_stored_or_would_be_fetched_elsewhere_is_refused_in_the_client_s_format(
    provider, begin, wire, more
):
    attempt = begin(model=MODELS.get(wire, "openai/tiny"))
    status, raw = await attempt.post(PATHS[wire], PROMPTS[wire] | more)
    assert status == 400 and "is not accepted here" in json.loads(raw)["error"]["message"]
    assert provider.bodies == []
    assert [call.status for call in attempt.calls] == ["400"]


@pytest.mark.parametrize(
    ("wire", "tool", "sent"),
    [
        ("responses", {"type": "mcp", "server_url": "https://x", "authorization": "t"}, None),
        ("responses", {"type": "file_search", "vector_store_ids": ["vs_1"]}, None),
        ("responses", {"type": "code_interpreter", "container": "cntr_1"}, None),
        ("responses", {"type": "image_generation"}, None),
        (
            "responses",
            {"type": "shell", "environment": {"type": "container_reference", "container_id": "c"}},
            {"type": "shell"},
        ),
        ("responses", {"type": "web_search", "connector": "x"}, {"type": "web_search"}),
        (
            "responses",
            {"type": "namespace", "name": "n", "tools": [{"type": "mcp", "server_url": "https://x"}]},
            {"type": "namespace", "name": "n", "tools": []},
        ),
        ("messages", {"type": "web_fetch_20250910", "name": "web_fetch"}, None),
        ("messages", {"type": "mcp_toolset", "mcp_server_name": "x"}, None),
        ("messages", {"type": "code_execution_20250825", "name": "code_execution"}, None),
        ("gemini", {"urlContext": {}}, {}),
        ("gemini", {"url_context": {}}, {}),
        ("gemini", {"fileSearch": {"fileSearchStoreNames": ["x"]}}, {}),
        ("gemini", {"google_search": {}}, {"googleSearch": {}}),
    ],
)
async def test_tools_that_reach_out_or_use_the_account_are_not_offered_to_the_model(
    provider, begin, wire, tool, sent
):
    provider.answers = [completion()]
    attempt = begin(model=MODELS.get(wire, "openai/tiny"))
    await attempt.post(PATHS[wire], PROMPTS[wire] | {"tools": [tool]})
    assert provider.bodies[0]["tools"] == ([] if sent is None else [sent])
    is_unchanged = sent is not None and len(str(sent)) >= len(str(tool)) - 1
    assert len(attempt.notes) == (0 if is_unchanged else 1)


def test_input_of_unknown_kinds_is_dropped():
    message = {"role": "user", "content": "Hi"}
    body = {"input": [message, {"type": "mcp_call", "id": "mcp_1"}]}
    assert allowed("responses", body) == ({"input": [message]}, ("input[]<mcp_call>",))


def test_tools_that_a_search_found_are_restricted_as_well():
    found = {
        "type": "tool_search_output",
        "call_id": "c",
        "tools": [{"type": "mcp", "server_url": "https://x"}],
    }
    body = {"input": [found]}
    assert allowed("responses", body).body == {"input": [found | {"tools": []}]}


def test_what_other_data_looks_like_is_no_address():
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    body = {"messages": [{"role": "user", "content": [picture, {"type": "text", "text": "http://x"}]}]}
    assert allowed("chat", body) == (body, ())
    source = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"}
    body = {"messages": [{"role": "user", "content": [{"type": "document", "source": source}]}]}
    assert allowed("messages", body) == (body, ())
    source["data"] = "http://127.0.0.1/"
    with pytest.raises(ParameterRefused, match=r"source<base64>\.data"):
        allowed("messages", body)


def test_a_header_that_is_not_plain_is_not_passed_on():
    assert passed_up({"OpenAI-Beta": "responses=v1"})[0] == {"openai-beta": "responses=v1"}
    assert passed_up({"OpenAI-Beta": "a\r\nAuthorization: x"})[0] == {}


async def test_an_agent_cannot_flood_the_record_with_notes(provider, begin):
    provider.answers = [completion()]
    attempt = begin()
    await attempt.asked(COMPLETIONS, CHAT | {f"odd{number}": 1 for number in range(1000)})
    await attempt.asked(COMPLETIONS, CHAT | {"x" * 10_000: 1})
    assert len(attempt.notes) == MOST_NOTES + 1
    assert attempt.notes[-1] == "further notes on this agent's calls are not recorded"


async def test_an_agent_cannot_write_to_the_terminal_by_a_name(provider, begin):
    provider.answers = [completion()]
    attempt = begin()
    await attempt.asked(COMPLETIONS, CHAT | {"model": "\x1b]0;x\x07\u202e", "\x1b[2J": 1})
    assert attempt.notes == [
        "asked for the model `?]0;x??`, was given `openai/tiny`",
        "openai/tiny was not sent `?[2J`: the gateway does not pass it on",
    ]


async def test_a_key_is_sent_to_nobody_that_a_provider_points_at(provider, begin):
    seen = []

    async def elsewhere(request):
        seen.append(request.path)
        if request.path == "/stolen":
            return completion()
        return web.Response(status=307, headers={"Location": f"{provider.url}/stolen?key={KEY}"})

    provider.answers = [elsewhere]
    attempt = begin()
    for body in (CHAT, CHAT | {"stream": True}):
        async with attempt.open(COMPLETIONS, body) as response:
            assert response.status == 502 and "Location" not in response.headers
            assert KEY not in await response.text()
    assert seen == [COMPLETIONS] * 2


NAMES = st.sampled_from(
    [
        "type",
        "model",
        "messages",
        "input",
        "contents",
        "parts",
        "content",
        "role",
        "tools",
        "function",
        "source",
        "url",
        "image_url",
        "file_id",
        "data",
        "text",
        "generation_config",
        "generationConfig",
        "api_base",
        "server_url",
        "extra_body",
        "google",
        "system",
        "output",
        "container",
        "cached_content",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["", "url", "mcp", "image", "http://x/"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(NAMES, below, max_size=4),
    max_leaves=20,
)


@given(wire=st.sampled_from(sorted(PATHS)), body=st.dictionaries(NAMES, VALUES, max_size=6))
def test_whatever_is_sent_is_restricted_or_refused_and_nothing_else(wire, body):
    try:
        once = allowed(wire, body)
    except ParameterRefused:
        return
    assert "api_base" not in once.body and "container" not in once.body
    # What passed passes again: nothing depends on what was dropped.
    assert allowed(wire, once.body) == (once.body, ())
