"""Providers that repeat the headers of a request: their key reaches neither the agent nor a record."""

import base64
import json
from urllib.parse import quote

import pytest
from aiohttp import web
from gateway_requests import CHAT, COMPLETIONS, sse, streaming
from openai_calls import KEY, completion

from proctor.models.key_filter import FilteredStream, KeyFilter
from proctor.models.recording import Recording

MESSAGES = CHAT | {"max_tokens": 9}
LONG_KEY = 'sk-ant/api03+é"_0123456789abcdef'
FORMS = {
    "as it is": KEY,
    "with its word": f"Bearer {KEY}",
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64 of a header": base64.b64encode(f"authorization: Bearer {KEY}\r\nhost: x".encode()).decode(),
    "base64 for addresses": base64.urlsafe_b64encode(f"??{KEY}??".encode()).decode(),
    "in an address": "".join(f"%{byte:02X}" for byte in KEY.encode()),
    "hex": KEY.encode().hex(),
}


def hidden(text: str) -> bool:
    """Whether no form of the key is in a text."""
    forms = {form for form in FORMS.values() if "Bearer" not in form}
    return not any(form.strip("=")[2:-2] in text for form in forms)


@pytest.mark.parametrize("form", FORMS)
async def test_a_key_in_headers_of_a_response_does_not_reach_the_agent(provider, begin, form):
    echoed = dict.fromkeys(
        ("x-request-id", "openai-version", "x-ratelimit-limit", "authorization", "x-echo"), FORMS[form]
    )
    told = {"x-ratelimit-remaining": "7", "retry-after": "1", "openai-organization": "org-of-the-user"}
    for status in (200, 400):
        provider.answers = [web.json_response({"choices": []}, status=status, headers=echoed | told)]
        async with begin().open(COMPLETIONS, CHAT) as response:
            assert response.status == status
            assert hidden(repr(response.headers))
            assert {name.lower() for name in response.headers} & {*echoed, *told} == {
                "x-ratelimit-remaining",
                "retry-after",
            }


@pytest.mark.parametrize("status", [200, 400, 401, 500])
@pytest.mark.parametrize("form", FORMS)
async def test_a_key_in_a_body_reaches_neither_the_agent_nor_a_record(
    provider, begin, open_gateway, tmp_path, form, status
):
    said = {
        "choices": [{"message": {"content": f"headers: {FORMS[form]}"}}],
        "error": {"message": FORMS[form]},
    }
    provider.answers = [web.json_response(said, status=status)]
    file = tmp_path / "traffic.ndjson"
    recording = Recording(file, str)
    attempt = begin(await open_gateway(recording=recording), item_id="i", reads_traffic=True)

    got = await attempt.post(COMPLETIONS, CHAT)

    recording.close()
    assert got[0] == status and b"[key]" in got[1]
    assert hidden(got[1].decode()) and hidden(repr(attempt.events)) and hidden(file.read_text())


@pytest.mark.parametrize("form", FORMS)
async def test_a_key_in_a_translated_answer_does_not_reach_the_agent(provider, begin, form):
    provider.answers = [completion(f"The request had {FORMS[form]}.")]
    attempt = begin(model="acme/tiny", reads_traffic=True)
    for streams in (False, True):
        status, raw = await attempt.post("/v1/messages", MESSAGES | {"stream": streams})
        assert status == 200 and b"The request had " in raw and hidden(raw.decode())
    provider.answers = [web.json_response({"error": {"message": FORMS[form]}}, status=400)]
    status, raw = await attempt.post("/v1/messages", MESSAGES)
    assert status == 400 and hidden(raw.decode())
    assert len(attempt.calls) == 3 and hidden(repr(attempt.events))


@pytest.mark.parametrize("at", range(1, len(KEY)))
async def test_a_key_that_is_cut_in_two_by_a_stream_is_found(provider, begin, at):
    chunk = {"choices": [{"index": 0, "delta": {"content": f"key {KEY}"}, "finish_reason": "stop"}]}
    raw = sse(chunk, "[DONE]")
    cut = raw.index(KEY.encode()) + at
    provider.answers = [streaming(raw[:cut], raw[cut:])]
    attempt = begin()
    status, got = await attempt.post(COMPLETIONS, CHAT | {"stream": True})
    assert (status, got) == (200, raw.replace(KEY.encode(), b"[key]"))
    assert KEY not in repr(attempt.events)


@pytest.mark.parametrize("size", [1, 2, 5, 64])
@pytest.mark.parametrize("key", [KEY, LONG_KEY])
def test_every_form_is_found_however_a_stream_is_cut(key, size):
    raw = key.encode()
    forms = [
        raw,
        json.dumps(key).encode(),
        quote(key, safe="").encode(),
        raw.hex().encode(),
        *(base64.b64encode(b"x" * before + raw + b"y") for before in range(4)),
        base64.urlsafe_b64encode(b"Bearer " + raw),
    ]
    text = b"start " + b" ".join(forms) + b" end of it " + raw[:-1]
    stream = FilteredStream(KeyFilter([key]))
    passed = [stream.add(text[at : at + size]) for at in range(0, len(text), size)]
    got = b"".join([*passed, stream.end()])
    assert got.startswith(b"start [key] ") and got.endswith(b" end of it " + raw[:-1])
    assert got.count(b"[key]") == len(forms)


async def test_the_rest_of_a_stream_without_its_last_line_end_is_passed_on(provider, begin):
    raw = sse({"choices": [{"index": 0, "delta": {"content": "Paris"}}]}) + b"data: " + KEY[:9].encode()
    provider.answers = [streaming(raw)]
    assert await begin().post(COMPLETIONS, CHAT | {"stream": True}) == (200, raw)


async def test_a_placeholder_is_not_taken_for_a_key(provider, begin, open_gateway):
    provider.answers = [completion("any answer")]
    environment = {"ACME_BASE_URL": f"{provider.url}/v1", "ACME_API_KEY": "any"}
    attempt = begin(await open_gateway(environment=environment), model="acme/tiny")
    answer = await attempt.asked(COMPLETIONS, CHAT)
    assert answer["choices"][0]["message"]["content"] == "any answer"


async def test_an_agent_s_own_headers_are_not_recorded_or_returned(provider, begin):
    provider.answers = [web.json_response({"error": {"message": "no"}}, status=400)]
    attempt = begin()
    status, raw = await attempt.post(COMPLETIONS, CHAT, x_secret="of-the-agent")
    assert (status, b"of-the-agent" in raw) == (400, False)
    assert attempt.access.token not in repr(attempt.events) + repr(provider.headers)
