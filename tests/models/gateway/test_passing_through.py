"""A client whose format the provider speaks: its calls pass through untouched, and are recorded."""

import asyncio
import json

import pytest
from aiohttp import ClientError, web
from gateway_requests import CHAT, COMPLETIONS, anthropic_answer, counts, sse, streaming
from openai_calls import KEY, completion

from proctor.errors import StoreError
from proctor.session import ToolCall
from waiting import TIME_LIMIT_SECONDS

MESSAGES = CHAT | {"max_tokens": 50}

CHAT_CHUNKS = (
    {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Par"}}]},
    {"id": "c", "choices": [{"index": 0, "delta": {"content": "is ✓"}}]},
    {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
)
CHAT_USAGE = {
    "id": "c",
    "choices": [],
    "usage": {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 40}},
}
ANTHROPIC_USAGE = {
    "input_tokens": 50,
    "cache_read_input_tokens": 40,
    "cache_creation_input_tokens": 10,
    "output_tokens": 1,
}
ANTHROPIC_EVENTS = (
    {"type": "message_start", "message": {"id": "m", "content": [], "usage": ANTHROPIC_USAGE}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Paris"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "t1", "name": "run", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 1,
        "delta": {"type": "input_json_delta", "partial_json": '{"a":'},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
    {"type": "content_block_stop", "index": 1},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 20}},
    {"type": "message_stop"},
)
GEMINI_ANSWER = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "Paris"}]}, "finishReason": "STOP"}],
    "usageMetadata": {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 40,
        "candidatesTokenCount": 13,
        "thoughtsTokenCount": 7,
    },
}
RESPONSE = {
    "id": "r",
    "status": "completed",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "Paris"}]}],
    "usage": {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 40},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 7},
    },
}


async def test_a_call_is_recorded_with_tokens_price_time_and_both_bodies(provider, begin):
    provider.answers = [completion()]
    attempt = begin()
    await attempt.asked(COMPLETIONS, CHAT | {"temperature": 0})

    (call,) = attempt.calls
    assert (call.model, call.provider, call.status, call.error) == ("openai/tiny", "openai", "ok", "")
    assert counts(call) == (100, 40, 20, 7)
    assert call.cost_usd == pytest.approx((60 * 1 + 40 * 0.1 + 20 * 10) / 1e6)
    assert call.price_source == "plan"
    assert 0 < call.latency_ms < 5000 and call.waiting_ms == 0
    assert json.loads(call.request) == CHAT | {"temperature": 0}
    assert json.loads(call.response)["choices"][0]["message"]["content"] == "Paris"


async def test_the_provider_gets_its_key_and_its_own_name_for_the_model_and_no_more(provider, begin):
    provider.answers = [completion()]
    attempt = begin()
    headers = {
        "openai_organization": "org",
        "openai_project": "other",
        "openai_beta": "responses=v1",
        "Cookie": "a=b",
        "User_Agent": "agent/1",
    }
    await attempt.asked(COMPLETIONS, CHAT | {"model": "openai/tiny"}, **headers)

    assert provider.bodies[0]["model"] == "tiny"
    sent = provider.headers[0]
    assert sent["Authorization"] == f"Bearer {KEY}"
    assert sent["openai-beta"] == "responses=v1"
    assert not {"openai-organization", "openai-project", "Cookie"} & set(sent)
    assert "agent/1" not in sent["User-Agent"]
    assert attempt.access.token not in str(sent)


async def test_known_anthropic_betas_and_versions_are_kept(provider, begin):
    provider.answers = [anthropic_answer({"type": "text", "text": "hi"})]
    attempt = begin(model="anthropic/tiny")
    token = attempt.access.token
    betas = "effort-2025-11-24, files-api-2025-04-14,claude-code-20250219"
    headers = {"anthropic_beta": betas, "anthropic_version": "2099-01-01", "x_api_key": token}
    await attempt.asked("/v1/messages?beta=true", MESSAGES, **headers)

    sent = provider.headers[0]
    assert sent["anthropic-beta"] == "effort-2025-11-24,claude-code-20250219"
    assert sent["anthropic-version"] == "2099-01-01"
    assert attempt.notes == [
        "anthropic/tiny was not sent `anthropic-beta: files-api-2025-04-14`: the gateway does not pass it on"
    ]
    assert sent["x-api-key"] == KEY and "Authorization" not in sent


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_stream_comes_back_byte_for_byte_however_it_is_cut(provider, begin, size):
    raw = sse(*ANTHROPIC_EVENTS, names=True)
    provider.answers = [streaming(*(raw[at : at + size] for at in range(0, len(raw), size)))]
    attempt = begin(model="anthropic/tiny")

    assert await attempt.post("/v1/messages", MESSAGES | {"stream": True}) == (200, raw)

    (call,) = attempt.calls
    assert call.response.encode() == raw
    assert (call.usage.input_tokens, call.usage.cached_tokens, call.usage.cache_write_tokens) == (100, 40, 10)
    assert (call.usage.output_tokens, call.status) == (20, "ok")


async def test_the_first_chunk_arrives_before_the_provider_has_finished(provider, begin):
    go_on = asyncio.Event()
    first, last = sse(CHAT_CHUNKS[0]), sse(*CHAT_CHUNKS[1:], CHAT_USAGE, "[DONE]")
    provider.answers = [streaming(first, last, pause=go_on)]
    attempt = begin()

    async with attempt.open(COMPLETIONS, CHAT | {"stream": True}) as response:
        assert await asyncio.wait_for(response.content.readuntil(b"\n\n"), TIME_LIMIT_SECONDS) == first
        assert attempt.calls == []
        go_on.set()
        await response.read()


@pytest.mark.parametrize("asks", [False, True])
async def test_tokens_of_a_chat_stream_are_known_and_reach_a_client_that_asked(provider, begin, asks):
    counted = sse(*CHAT_CHUNKS, CHAT_USAGE, "[DONE]")
    provider.answers = [streaming(counted)]
    attempt = begin()
    more = {"stream_options": {"include_usage": True}} if asks else {}

    answer = await attempt.post(COMPLETIONS, CHAT | {"stream": True} | more)

    assert answer == (200, counted if asks else sse(*CHAT_CHUNKS, "[DONE]"))
    assert provider.bodies[0]["stream_options"] == {"include_usage": True}
    assert attempt.calls[0].usage.input_tokens == 100


async def test_responses_pass_through_to_openai(provider, begin):
    raw = sse({"type": "response.created"}, {"type": "response.completed", "response": RESPONSE}, names=True)
    provider.answers = [streaming(raw)]
    attempt = begin()

    asked = {"model": "tiny", "input": "Capital?", "stream": True}
    assert await attempt.post("/v1/responses", asked) == (200, raw)
    assert counts(attempt.calls[0]) == (100, 40, 20, 7)


@pytest.mark.parametrize("operation", ["generateContent", "streamGenerateContent"])
async def test_gemini_passes_through_to_gemini(provider, begin, operation):
    streams = operation.startswith("stream")
    raw = sse(GEMINI_ANSWER) if streams else json.dumps(GEMINI_ANSWER).encode()
    kind = "text/event-stream" if streams else "application/json"
    provider.answers = [web.Response(body=raw, content_type=kind)]
    attempt = begin(model="gemini/gemini-2.5-flash")

    path = f"/v1beta/models/gemini-2.5-flash:{operation}?alt=sse"
    asked = {"contents": [{"role": "user", "parts": [{"text": "Capital?"}]}]}
    assert await attempt.post(path, asked, x_goog_api_key=attempt.access.token) == (200, raw)

    assert provider.headers[0]["x-goog-api-key"] == KEY
    assert counts(attempt.calls[0]) == (100, 40, 20, 7)
    assert attempt.calls[0].cost_usd > 0


async def test_a_provider_that_turns_out_not_to_speak_a_format_is_asked_in_its_usual_one(provider, begin):
    async def only_chat(request):
        if request.path != COMPLETIONS:
            return web.Response(status=404)
        return completion()

    provider.answers = [only_chat]
    attempt = begin()
    for _ in range(2):
        answer = await attempt.asked("/v1/responses", {"model": "tiny", "input": "Capital?"})
        assert answer["output"][0]["content"][0]["text"] == "Paris"
    # It is tried once, not at every call.
    assert len(provider.bodies) == 3
    assert [call.status for call in attempt.calls] == ["ok", "ok"]


async def test_tokens_are_counted_by_a_provider_that_can_and_such_calls_cost_nothing(provider, begin):
    provider.answers = [web.json_response({"input_tokens": 7})]
    attempt = begin(model="anthropic/tiny")
    assert await attempt.asked("/v1/messages/count_tokens", MESSAGES) == {"input_tokens": 7}
    assert attempt.calls == []


async def test_short_limits_are_sat_out_and_the_client_sees_nothing_of_them(provider, begin):
    busy = web.json_response({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "0.1"})
    provider.answers = [busy, web.Response(status=503), completion()]
    told = []
    attempt = begin(waited=told.append)

    await attempt.asked(COMPLETIONS, CHAT)

    assert len(provider.bodies) == 3 and len(told) == 2
    (call,) = attempt.calls
    assert call.waiting_ms == pytest.approx(sum(told) * 1000) and call.waiting_ms >= 100


async def test_a_limit_that_lasts_is_handed_on_with_the_provider_s_own_words(provider, begin):
    said = b'{"error": {"message": "come back tomorrow"}}'
    headers = {"Retry-After": "86400"}
    provider.answers = [web.Response(body=said, status=429, headers=headers, content_type="application/json")]
    attempt = begin()

    async with attempt.open(COMPLETIONS, CHAT) as response:
        assert (response.status, await response.read()) == (429, said)
        assert response.headers["Retry-After"] == "86400"
    assert [call.status for call in attempt.calls] == ["429"]


async def test_a_provider_that_is_not_there_is_an_error_in_the_client_s_format(begin, open_gateway):
    gone = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "ANTHROPIC_API_KEY": KEY}
    attempt = begin(await open_gateway(environment=gone), model="anthropic/tiny")

    status, raw = await attempt.post("/v1/messages", MESSAGES)

    assert status == 502
    assert json.loads(raw)["type"] == "error" and json.loads(raw)["error"]["type"] == "api_error"
    assert [call.status for call in attempt.calls] == ["502"]


async def test_a_stream_that_breaks_off_does_not_look_whole_and_its_tokens_are_estimated(provider, begin):
    async def breaks(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sse(CHAT_CHUNKS[0]))
        request.transport.close()
        return response

    provider.answers = [breaks]
    attempt = begin()
    with pytest.raises(ClientError, match=r"payload|closed|disconnected"):
        await attempt.post(COMPLETIONS, CHAT | {"stream": True})

    (call,) = attempt.calls
    assert call.status == "cut_off" and "Par" in call.response
    assert call.usage.input_tokens > 0 and call.cost_usd > 0
    assert call.error.startswith("the provider cut the stream; its tokens are estimated: openai broke off")
    assert call.price_source == "plan (estimated)"


async def test_a_server_that_knows_no_counting_in_streams_is_asked_without(provider, begin):
    raw = sse(*CHAT_CHUNKS, "[DONE]")
    refusal = web.json_response({"error": {"message": "unknown field stream_options"}}, status=400)
    provider.answers = [refusal, streaming(raw)]
    attempt = begin()
    assert await attempt.post(COMPLETIONS, CHAT | {"stream": True}) == (200, raw)
    assert "stream_options" not in provider.bodies[1]


LONG = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word " * 600}}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error"}}


@pytest.mark.parametrize(
    ("events", "output_tokens"),
    # The provider's own count so far was 1; what it had said is 3,000 bytes long.
    [((*ANTHROPIC_EVENTS[:2], LONG), 1000), ((*ANTHROPIC_EVENTS[:3], OVERLOADED), 2)],
)
async def test_what_was_said_before_a_stream_ended_without_its_last_word_is_counted(
    provider, begin, events, output_tokens
):
    raw = sse(*events, names=True)
    provider.answers = [streaming(raw)]
    attempt = begin(model="anthropic/tiny")
    assert await attempt.post("/v1/messages", MESSAGES | {"stream": True}) == (200, raw)
    (call,) = attempt.calls
    assert (call.status, call.usage.input_tokens) == ("cut_off", 100)
    assert call.usage.output_tokens == output_tokens


async def test_an_answer_whose_tokens_nobody_counts_is_not_free(provider, begin):
    choice = {"index": 0, "message": {"role": "assistant", "content": "word " * 600}, "finish_reason": "stop"}
    provider.answers = [web.json_response({"id": "x", "choices": [choice]})]
    attempt = begin()
    for _ in range(2):
        await attempt.asked(COMPLETIONS, CHAT)
    assert [(call.status, call.usage.output_tokens) for call in attempt.calls] == [("ok", 1000)] * 2
    assert all(call.cost_usd > 0.01 for call in attempt.calls)
    assert attempt.notes == ["openai/tiny does not say how many tokens it used: they are estimated"]


@pytest.mark.parametrize("raw", [b"<html>Sign in</html>", b'{"choices": [', b"{}", b"[]"])
async def test_what_is_no_answer_is_handed_on_and_not_recorded_as_one(provider, begin, raw):
    provider.answers = [web.Response(body=raw, content_type="application/json")]
    attempt = begin()
    assert await attempt.post(COMPLETIONS, CHAT) == (200, raw)
    (call,) = attempt.calls
    assert (call.status, call.error) == ("cut_off", "what came is no answer")


@pytest.mark.parametrize("streams", [False, True])
async def test_a_response_that_failed_is_not_recorded_as_an_answer(provider, begin, streams):
    failed = {"id": "r", "status": "failed", "output": [], "error": {"code": "server_error"}}
    raw = sse({"type": "response.failed", "response": failed})
    provider.answers = [streaming(raw) if streams else web.json_response(failed)]
    attempt = begin()
    status, _ = await attempt.post("/v1/responses", {"input": "?", "stream": streams})
    assert (status, attempt.calls[0].status) == (200, "cut_off")


@pytest.mark.parametrize("streams", [False, True])
async def test_a_tool_call_written_as_an_object_is_recorded_like_any_other(provider, begin, streams):
    call = {"index": 0, "id": "c1", "function": {"name": "run", "arguments": {"command": "ls"}}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    end = {"index": 0, "finish_reason": "tool_calls"}
    raw = sse({"choices": [end | {"delta": said}]}, "[DONE]")
    whole = web.json_response({"choices": [end | {"message": said}]})
    provider.answers = [streaming(raw) if streams else whole]
    attempt = begin(reads_traffic=True)
    await attempt.post(COMPLETIONS, CHAT | {"stream": streams})
    attempt.gateway.shut(attempt.access.token)
    assert [recorded.status for recorded in attempt.calls] == ["ok"]
    assert [(used.name, used.args) for used in attempt.of(ToolCall)] == [("run", {"command": "ls"})]


async def test_an_answer_that_cannot_be_recorded_is_an_error_and_a_stream_is_cut(provider, begin):
    def record(event):
        raise StoreError("the disk is full")

    provider.answers = [completion("Paris")]
    attempt = begin(record=record, reads_traffic=True)
    for model in ("tiny", "other"):
        status, raw = await attempt.post(COMPLETIONS, CHAT | {"model": model})
        assert (status, json.loads(raw)["error"]["message"]) == (500, "the disk is full")
    provider.answers = [streaming(*map(sse, CHAT_CHUNKS))]
    with pytest.raises(ClientError):
        await begin(record=record).post(COMPLETIONS, CHAT | {"stream": True})


async def test_a_fault_of_the_gateway_ends_one_call_and_is_told_by_its_kind_only(provider, begin):
    async def spend(request):
        raise ZeroDivisionError("secret")

    status, raw = await begin(spend=spend).post(COMPLETIONS, CHAT)
    assert (status, json.loads(raw)["error"]["message"]) == (500, "the gateway failed: ZeroDivisionError")
