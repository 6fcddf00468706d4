"""Who may ask, what is answered to those who may not, and how calls end before they are finished."""

import asyncio
import json
import socket
import struct

import pytest
from aiohttp import ClientError, ClientSession, web
from gateway_requests import CHAT, COMPLETIONS, GEMINI, PATHS, Attempt, sse, streaming
from openai_calls import completion

from proctor.model import Request
from proctor.models import ModelRouter
from proctor.models.gateway.server import LARGEST_REQUEST_BYTES, Gateway
from proctor.models.routes import CallableRoute
from proctor.testing import eventually_async
from waiting import TIME_LIMIT_SECONDS

PROMPT = [{"role": "user", "content": "Capital of France?"}]
BODIES = {
    "chat": CHAT,
    "responses": {"model": "tiny", "input": PROMPT},
    "messages": {"model": "tiny", "max_tokens": 9, "messages": PROMPT},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Capital of France?"}]}]},
}


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer {}"},
        {"Authorization": "bearer {}"},
        {"x_api_key": "{}"},
        {"x_goog_api_key": "{}"},
    ],
)
async def test_a_token_counts_wherever_clients_put_their_keys(provider, begin, headers):
    provider.answers = [completion()]
    attempt = begin()
    sent = {name: value.format(attempt.access.token) for name, value in headers.items()}
    assert (await attempt.post(COMPLETIONS, CHAT, **sent))[0] == 200


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        (COMPLETIONS, lambda said: said["error"]["type"] == "authentication_error"),
        ("/v1/responses", lambda said: said["error"]["type"] == "authentication_error"),
        ("/v1/messages", lambda said: said["type"] == "error"),
        (GEMINI, lambda said: said["error"]["status"] == "UNAUTHENTICATED"),
    ],
)
@pytest.mark.parametrize("token", ["", "wrong", "proctor-é"])
async def test_a_wrong_token_is_refused_in_the_client_s_format(provider, begin, path, shape, token):
    attempt = begin()
    status, raw = await attempt.post(path, CHAT, Authorization=f"Bearer {token}")
    assert status == 401 and shape(json.loads(raw))
    assert provider.bodies == [] and attempt.events == []


async def test_an_access_that_was_shut_is_worth_nothing(provider, begin):
    provider.answers = [completion()]
    attempt, other = begin(), begin()
    await attempt.asked(COMPLETIONS, CHAT)
    attempt.gateway.shut(attempt.access.token)
    attempt.gateway.shut(attempt.access.token)
    assert (await attempt.post(COMPLETIONS, CHAT))[0] == 401
    assert (await other.post(COMPLETIONS, CHAT))[0] == 200
    assert len(attempt.calls) == len(other.calls) == 1


async def test_every_call_is_recorded_under_its_own_attempt(provider, begin):
    async def echo(request):
        body = await request.json()
        return completion(body["messages"][0]["content"])

    provider.answers = [echo]
    attempts = [begin() for _ in range(6)]

    async def ask(attempt: Attempt, text: str) -> str:
        body = {"model": "tiny", "messages": [{"role": "user", "content": text}]}
        answer = await attempt.asked(COMPLETIONS, body)
        return answer["choices"][0]["message"]["content"]

    asked = [(attempt, f"{number}-{n}") for number, attempt in enumerate(attempts) for n in range(5)]
    answers = await asyncio.gather(*(ask(attempt, text) for attempt, text in asked))

    assert answers == [text for _, text in asked]
    for number, attempt in enumerate(attempts):
        contents = sorted(json.loads(call.request)["messages"][0]["content"] for call in attempt.calls)
        assert contents == [f"{number}-{n}" for n in range(5)]


async def test_paths_are_understood_with_and_without_their_version(provider, begin):
    provider.answers = [completion()]
    attempt = begin()
    for path in (
        COMPLETIONS,
        "/chat/completions",
        "/v1/v1/chat/completions",
        "/v1/v1/chat/completions/",
        f"/v1/chat/completions?key={attempt.access.token}",
    ):
        assert (await attempt.post(path, CHAT))[0] == 200
    for path in ("/v1/embeddings", "/v1/chat/v1/completions", "/v10/chat/completions"):
        status, raw = await attempt.post(path, CHAT)
        assert status == 404 and path in json.loads(raw)["error"]["message"]


async def test_a_client_can_see_that_it_is_there_and_which_models_it_has(begin):
    attempt = begin(model="openai/org/tiny")
    url, bearer = attempt.access.url, {"Authorization": f"Bearer {attempt.access.token}"}

    async def get(path, **headers):
        async with attempt.session.get(url + path, headers=headers) as response:
            return response.status, await response.json()

    assert (await get("/"))[1]["status"] == "ok"
    async with attempt.session.head(url) as response:
        assert response.status == 200
    assert (await get("/v1/models"))[0] == 401
    listed = (await get("/v1/models", **bearer))[1]
    assert [each["id"] for each in listed["data"]] == ["openai/org/tiny", "org/tiny"]
    assert (await get("/v1/models/any", **bearer))[1]["id"] == "any"
    listed = (await get("/v1/models", **bearer, **{"anthropic-version": "1"}))[1]
    assert listed["data"][0]["type"] == "model" and listed["has_more"] is False
    assert (await get("/v1beta/models", **bearer))[1]["models"][0]["name"] == "models/openai/org/tiny"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"7", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b'{"model": 1e999}']
)
@pytest.mark.parametrize("path", PATHS.values())
async def test_what_makes_no_sense_is_refused_in_the_client_s_format(begin, path, body):
    attempt = begin(model="scripted/echo")
    status, raw = await attempt.post(path, body)
    assert status == 400 and json.loads(raw)["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"content": "no role"}]},
        {"messages": [7]},
        {"messages": {"role": "user"}},
        {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}], "max_tokens": "many"},
        {"input": [{"type": "function_call"}]},
        {"input": [{"role": "user", "content": [{"type": "input_text"}]}], "tools": "none"},
        {"contents": [{"parts": [{"functionCall": {}}]}], "generationConfig": []},
        {"contents": 3, "tools": [3]},
    ],
)
@pytest.mark.parametrize("path", PATHS.values())
async def test_requests_of_no_known_shape_never_break_the_gateway(begin, path, body):
    attempt = begin(model="scripted/echo", reads_traffic=True)
    status, raw = await attempt.post(path, body)
    # An unknown part of a message is passed on to OpenAI-compatible models, which know more parts than we do.
    is_passed_on = path == COMPLETIONS and "max_tokens" in body
    assert status == (200 if is_passed_on else 400)
    assert ("error" in json.loads(raw)) is not is_passed_on


async def test_a_giant_request_is_refused_without_being_read(provider, begin):
    attempt = begin()
    body = b'{"a":"' + b"x" * LARGEST_REQUEST_BYTES + b'"}'
    try:
        status, raw = await attempt.post("/v1/messages", body)
    except ClientError:
        # The answer came and the connection went while the client was still sending.
        pass
    else:
        assert status == 413 and json.loads(raw)["error"]["type"] == "request_too_large"
    assert (provider.bodies, attempt.calls) == ([], []), "nobody was asked"
    provider.answers = [completion()]
    assert (await attempt.post(COMPLETIONS, CHAT))[0] == 200, "the gateway goes on"


async def test_hostile_text_passes_and_is_recorded(provider, begin):
    text = "\x00\x1b[2J\u202e\ud83d</script>{}" + "🦜" * 1000
    provider.answers = [completion(text)]
    attempt = begin(reads_traffic=True)
    raw = b'{"model":"tiny","messages":[{"role":"user","content":"half \\ud83d and \\u0000"}]}'
    status, answer = await attempt.post(COMPLETIONS, raw)
    assert status == 200 and "🦜" in json.loads(answer)["choices"][0]["message"]["content"]
    assert len(attempt.calls) == 1 and len(attempt.told) == 2


@pytest.mark.parametrize("name", ["openai/other", "other"])
async def test_without_a_model_of_its_own_a_caller_gets_one_that_was_allowed(
    provider, begin, open_gateway, name
):
    provider.answers = [completion()]
    attempt = begin(await open_gateway(agent_models=["openai/tiny", "openai/other"]), model="")
    await attempt.asked(COMPLETIONS, CHAT | {"model": name})
    assert provider.bodies[0]["model"] == "other"
    assert attempt.calls[0].model == "openai/other" and attempt.notes == []
    url, bearer = attempt.access.url, {"Authorization": f"Bearer {attempt.access.token}"}
    async with attempt.session.get(f"{url}/v1/models", headers=bearer) as response:
        listed = [each["id"] for each in (await response.json())["data"]]
    assert listed == ["openai/tiny", "tiny", "openai/other", "other"]


NOT_ALLOWED = ["python/sys:exit", "scripted/echo", "replay/x.ndjson", "litellm/openai/tiny", "local/smollm2"]


@pytest.mark.parametrize("allowed", [(), ("openai/tiny",), None])
@pytest.mark.parametrize("name", [*NOT_ALLOWED, "acme/tiny", "openai/../files", "gemini/x?key=1"])
async def test_no_other_model_can_be_requested(provider, begin, open_gateway, allowed, name):
    """`python/sys:exit` would be imported and called, and end the batch as if it had succeeded."""
    attempt = begin(await open_gateway(agent_models=allowed), model="")
    for path in (COMPLETIONS, "/v1/responses", "/v1/messages"):
        status, raw = await attempt.post(path, CHAT | {"model": name, "input": "?"})
        assert (status, json.loads(raw)["error"]["type"]) == (403, "permission_error")
    assert provider.bodies == []
    assert [(call.status, call.model) for call in attempt.calls] == [("403", name)] * 3
    assert attempt.notes == [f"asked for the model `{name}`, which the plan does not allow"]


async def test_a_model_in_a_path_is_refused_as_well(begin, open_gateway):
    attempt = begin(await open_gateway(agent_models=["openai/tiny"]), model="")
    status, raw = await attempt.post("/v1beta/models/python/os:abort:generateContent", {"contents": []})
    assert (status, json.loads(raw)["error"]["status"]) == (403, "PERMISSION_DENIED")


async def test_whatever_is_asked_for_the_item_s_model_answers_and_that_is_said_once(provider, begin):
    provider.answers = [completion()]
    attempt = begin()
    for name in ("openai/tiny", "tiny", "gpt-9-mini", "gpt-9-mini"):
        await attempt.asked(COMPLETIONS, CHAT | {"model": name})
    assert {body["model"] for body in provider.bodies} == {"tiny"}
    assert attempt.notes == ["asked for the model `gpt-9-mini`, was given `openai/tiny`"]


async def never(request):
    await asyncio.Event().wait()
    return web.Response()


async def test_a_client_that_goes_away_ends_the_provider_s_call(provider, begin):
    provider.answers = [never]
    attempt = begin()
    call = asyncio.create_task(attempt.post(COMPLETIONS, CHAT))
    await eventually_async(lambda: provider.bodies)
    call.cancel()

    await asyncio.wait_for(provider.disconnected.wait(), TIME_LIMIT_SECONDS)
    assert [(each.status, each.cost_usd) for each in attempt.calls] == [("cancelled", 0.0)]


async def test_shutting_an_access_records_and_ends_what_is_under_way(provider, begin):
    raw = sse({"choices": [{"index": 0, "delta": {"content": "Par"}}]})
    provider.answers = [streaming(raw, b"never", pause=asyncio.Event())]
    attempt = begin(reads_traffic=True)
    response = await attempt.open(COMPLETIONS, CHAT | {"stream": True})
    await response.content.readuntil(b"\n\n")

    attempt.gateway.shut(attempt.access.token)

    # Recorded when `shut` returns: the session may be closed the moment after.
    (call,) = attempt.calls
    assert call.status == "cancelled" and "Par" in call.response and call.usage.input_tokens > 0
    assert [message.content for message in attempt.told] == ["Capital of France?", "Par"]
    await asyncio.wait_for(provider.disconnected.wait(), TIME_LIMIT_SECONDS)
    with pytest.raises(ClientError):
        await response.read()
    assert len(attempt.calls) == 1


async def test_a_client_that_leaves_after_the_last_word_has_had_a_whole_answer(provider, begin):
    last = {"choices": [{"index": 0, "delta": {"content": "Paris"}, "finish_reason": "stop"}]}
    tokens = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    provider.answers = [streaming(sse(last, tokens), b": bye\n\n", pause=asyncio.Event())]
    attempt = begin()
    response = await attempt.open(COMPLETIONS, CHAT | {"stream": True})
    await response.content.readuntil(b"\n\n")
    attempt.gateway.shut(attempt.access.token)
    response.close()
    assert [(call.status, call.usage.input_tokens) for call in attempt.calls] == [("ok", 9)]


async def test_closing_the_gateway_ends_everything(provider, begin):
    provider.answers = [never]
    attempt = begin()
    calls = [asyncio.create_task(attempt.post(COMPLETIONS, CHAT)) for _ in range(5)]
    await eventually_async(lambda: len(provider.bodies) >= 5)

    await asyncio.wait_for(attempt.gateway.close(), TIME_LIMIT_SECONDS)

    assert [call.status for call in attempt.calls] == ["cancelled"] * 5
    assert all(isinstance(each, ClientError) for each in await asyncio.gather(*calls, return_exceptions=True))
    await asyncio.wait_for(provider.disconnected.wait(), TIME_LIMIT_SECONDS)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Sec_Fetch_Site": "cross-site"},
        # A name that was moved to this address after the page had been loaded from another.
        {"Host": "evil.example"},
        {"Host": "evil.example:8080"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "[::1"},
    ],
)
async def test_a_page_in_a_browser_gets_nothing_even_with_a_token(provider, begin, headers):
    attempt = begin()
    status, raw = await attempt.post(f"/v1/chat/completions?key={attempt.access.token}", CHAT, **headers)
    assert status == 403 and b"proctor" not in raw
    async with attempt.session.get(f"{attempt.access.url}/health", headers=_as_sent(headers)) as response:
        assert response.status == 403
    async with attempt.session.options(
        f"{attempt.access.url}/v1/chat/completions", headers=_as_sent(headers)
    ) as response:
        assert not [name for name in response.headers if name.lower().startswith("access-control-")]
    assert provider.bodies == [] and attempt.events == []


def _as_sent(headers):
    return {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:80", "host.docker.internal"])
async def test_programs_may_call_it_by_every_local_name(provider, begin, host):
    provider.answers = [completion()]
    assert (await begin().post(COMPLETIONS, CHAT, Host=host))[0] == 200


async def test_the_gateway_also_answers_on_a_socket_that_it_is_given(open_gateway):
    gateway = await open_gateway()
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/health"
    async with gateway.serve(listener), ClientSession() as session, session.get(url) as response:
        assert (await response.json())["service"] == "proctor gateway"
    assert listener.fileno() == -1


@pytest.mark.parametrize("wire", PATHS)
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("words", [1, 20_000])
async def test_a_client_that_resets_its_connection_ends_its_call_and_nothing_is_logged(
    begin, caplog, wire, streams, words
):
    """It does so while the answer is made, so that nobody has noticed when the first byte is written."""
    client = socket.socket()

    async def answer(request: Request) -> str:
        # Closing with unread bytes and no lingering sends a reset.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        return "Paris. " * words

    models = ModelRouter({})
    models.add_route("python/slow:answer", CallableRoute(answer))
    gateway = Gateway(models)
    await gateway.start()
    attempt = begin(gateway, model="python/slow:answer")
    path = PATHS[wire].replace("generateContent", "streamGenerateContent") if streams else PATHS[wire]
    body = json.dumps(BODIES[wire] | ({"stream": True} if streams and wire != "gemini" else {}))
    client.connect(("127.0.0.1", int(gateway.url.rpartition(":")[2])))
    head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {attempt.access.token}\r\nContent-Length: {len(body)}"
    client.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n\r\n{body}".encode())
    await eventually_async(lambda: bool(attempt.calls))
    await asyncio.sleep(0.05)

    assert [record.getMessage() for record in caplog.records] == []
    assert [(call.status, call.error) for call in attempt.calls] == [("ok", "")]
    await gateway.close()
