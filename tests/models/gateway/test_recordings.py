"""Traffic recorded once and had again offline: the same bytes, in the same order, for each item."""

import asyncio
import json

import pytest
from aiohttp import ClientError, web
from gateway_requests import Attempt, sse, streaming
from openai_calls import KEY, completion

from proctor.errors import ModelError, NotFound, RateLimited, UsageError
from proctor.model import Request
from proctor.models import ModelRouter
from proctor.models.recording import (
    Recording,
    Replay,
    canonical_request,
    find_recording,
    first_difference,
    request_digest,
)

LAST = sse('{"choices":[{"index":0,"delta":{"content":"is ✓"},"finish_reason":"stop"}]}', "[DONE]")
# In the middle of a letter, as networks cut.
CUT = LAST.index("✓".encode()) + 1
CHUNKS = (sse({"choices": [{"index": 0, "delta": {"content": "Par"}}]}), LAST[:CUT], LAST[CUT:])


def chat(*texts: str, **more) -> dict:
    return {"model": "tiny", "messages": [{"role": "user", "content": text} for text in texts], **more}


async def conversation(attempt: Attempt, folder: str = "/tmp/a1b2/tree") -> list[tuple[int, bytes]]:
    """Three calls, the last of which fails, with things of the moment in them."""
    body = chat(f"Work in {folder}/x.py. Today is 2026-11-15.", stream=True, user="session-1")
    return [
        await attempt.post("/v1/chat/completions", body),
        await attempt.post("/v1/messages", {"max_tokens": 9, **chat("Second.")}),
        await attempt.post("/v1/chat/completions", chat("Third.")),
    ]


@pytest.fixture
def tape(tmp_path):
    return tmp_path / "traffic.ndjson"


@pytest.fixture
async def recorded(provider, begin, open_gateway, tape):
    """What the clients of two items were answered while it was being recorded."""
    provider.answers = [
        streaming(*CHUNKS),
        completion("Two."),
        web.json_response({"error": {"message": f"no, {KEY}"}}, status=400),
        streaming(CHUNKS[0]),
        completion("Other."),
        completion("Third, other."),
    ]
    recording = Recording(tape)
    gateway = await open_gateway(recording=recording)
    first = await conversation(begin(gateway, item_id="one"))
    second = await conversation(begin(gateway, item_id="two", model="openai/tiny"))
    await gateway.close()
    recording.close()
    return first, second


async def replaying(open_gateway, tape):
    # No address, no key: whoever asks a provider fails.
    return await open_gateway(environment={}, recording=Replay(tape))


async def test_each_item_gets_the_same_bytes_again_with_nobody_to_ask(recorded, begin, open_gateway, tape):
    gateway = await replaying(open_gateway, tape)
    # In the other order: every item has its own.
    two = begin(gateway, item_id="two")
    assert await conversation(two) == recorded[1]
    one = begin(gateway, item_id="one")
    assert await conversation(one) == recorded[0]
    assert one.notes == two.notes == []
    assert [status for status, _ in recorded[0]] == [200, 200, 400]
    calls = one.calls
    assert [call.status for call in calls] == ["ok", "ok", "400"]
    assert calls[1].usage.input_tokens == 100
    assert all((call.provider, call.cost_usd) == ("replay", 0.0) for call in calls)


async def test_another_date_folder_id_or_session_is_no_departure(recorded, begin, open_gateway, tape):
    attempt = begin(await replaying(open_gateway, tape), item_id="one", volatile=("/home/me/trees/77",))
    body = chat("Work in /tmp/zz99/wood/x.py. Today is 2031-01-02.", stream=True, user="session-2")
    assert await attempt.post("/v1/chat/completions", body) == recorded[0][0]
    assert attempt.notes == []


async def test_a_departure_is_said_with_its_place_and_first_difference(recorded, begin, open_gateway, tape):
    attempt = begin(await replaying(open_gateway, tape), item_id="one")
    # The second call first, and then one that nobody has made.
    assert await attempt.post("/v1/messages", {"max_tokens": 9, **chat("Second.")}) == recorded[0][1]
    status, raw = await attempt.post("/v1/chat/completions", chat("Something new."))

    assert status == 409 and b"not in the recording" in raw
    first, second = attempt.notes
    assert first.startswith("call 1 differs from the recording: max_tokens is new: 9")
    assert "call 2 differs" in second
    assert [call.status for call in attempt.calls] == ["ok", "not_recorded"]


async def test_a_call_more_than_was_recorded_is_said(recorded, begin, open_gateway, tape):
    attempt = begin(await replaying(open_gateway, tape), item_id="one")
    await conversation(attempt)
    assert await attempt.post("/v1/chat/completions", chat("Third.")) == recorded[0][2]
    assert attempt.notes == ["call 4 differs from the recording, which has only 3"]


async def test_calls_made_at_the_same_time_may_come_in_another_order(provider, begin, open_gateway, tape):
    both = asyncio.Barrier(2)

    async def together(request):
        body = await request.json()
        await both.wait()
        return completion(body["messages"][0]["content"])

    provider.answers = [together]
    recording = Recording(tape)
    attempt = begin(await open_gateway(recording=recording), item_id="i")
    a, b = chat("Main."), chat("Title.")
    before = await asyncio.gather(*(attempt.post("/chat/completions", body) for body in (a, b)))
    recording.close()

    for order in ((a, b), (b, a)):
        attempt = begin(await replaying(open_gateway, tape), item_id="i")
        after = {json.dumps(body): await attempt.post("/chat/completions", body) for body in order}
        assert [after[json.dumps(body)] for body in (a, b)] == before
        assert attempt.notes == []


async def test_tokens_that_only_we_were_told_are_counted_again(provider, begin, open_gateway, tape):
    usage = sse({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3}})
    provider.answers = [streaming(*CHUNKS[:1], usage, LAST)]
    recording = Recording(tape)
    attempt = begin(await open_gateway(recording=recording), item_id="i")
    before = await attempt.post("/v1/chat/completions", chat("Go.", stream=True))
    recording.close()

    again = begin(await replaying(open_gateway, tape), item_id="i")
    assert await again.post("/v1/chat/completions", chat("Go.", stream=True)) == before
    assert again.calls[0].usage == attempt.calls[0].usage
    assert (again.calls[0].usage.input_tokens, again.calls[0].usage.output_tokens) == (12, 3)


async def test_a_recording_serves_as_a_model_for_any_item(recorded, begin, open_gateway, tape):
    attempt = begin(await open_gateway(environment={}), model="replay/traffic", item_id="another")
    answers = await conversation(attempt)
    assert answers[0] == recorded[0][0] and answers[1] == recorded[0][1]
    assert attempt.calls[0].provider == "replay"


async def test_a_stream_that_the_client_broke_off_is_broken_off_again(provider, begin, open_gateway, tape):
    provider.answers = [streaming(CHUNKS[0], b"never", pause=asyncio.Event())]
    recording = Recording(tape)
    gateway = await open_gateway(recording=recording)
    attempt = begin(gateway, item_id="i")
    response = await attempt.open("/v1/chat/completions", chat("Go.", stream=True))
    await response.content.readuntil(b"\n\n")
    gateway.shut(attempt.access.token)
    recording.close()

    attempt = begin(await replaying(open_gateway, tape), item_id="i")
    response = await attempt.open("/v1/chat/completions", chat("Go.", stream=True))
    assert await response.content.readuntil(b"\n\n") == CHUNKS[0]
    with pytest.raises(ClientError, match=r"payload|closed"):
        await response.read()


async def test_calls_in_process_are_recorded_and_replayed_as_well(provider, environment, tape):
    calls = [{"id": "c1", "function": {"name": "run", "arguments": "{}"}}]
    limited = web.json_response({"error": {"message": "no"}}, status=429, headers={"Retry-After": "9999"})
    provider.answers = [completion("Paris", tool_calls=calls), limited]
    request = Request(model="openai/tiny", messages=[{"role": "user", "content": "Capital?"}], seed=3)
    other = Request(model="openai/tiny", messages=[{"role": "user", "content": "Other?"}])

    recording = Recording(tape)
    models = ModelRouter(environment, recording=recording)
    live = models.for_attempt(None, item_id="i")
    answer = await live.answer(request)
    with pytest.raises(RateLimited):
        await live.answer(other)
    await models.close()
    recording.close()

    notes = []
    models = ModelRouter({}, recording=Replay(tape))
    models.check("openai/tiny")
    assert models.missing_key("openai/tiny") is None and models.has_price("openai/tiny")
    again = models.for_attempt(None, item_id="i", note=notes.append)
    played = await again.answer(request)
    assert (played.text, played.tool_requests, played.finish_reason) == (
        "Paris",
        answer.tool_requests,
        "tool_calls",
    )
    assert played.call.usage == answer.call.usage and played.call.cost_usd == 0.0
    with pytest.raises(RateLimited):
        await again.answer(other)
    with pytest.raises(ModelError) as raised:
        await again.answer(Request(model="openai/tiny", messages=[{"role": "user", "content": "New?"}]))
    assert raised.value.reason == "not_recorded"
    assert notes == []
    await models.close()


async def test_a_recording_goes_on_after_a_kill_in_the_middle_of_a_line(provider, begin, open_gateway, tape):
    provider.answers = [completion("first"), completion("second")]
    for number in range(2):
        recording = Recording(tape)
        gateway = await open_gateway(recording=recording)
        await begin(gateway, item_id="i").post("/chat/completions", chat("Go."))
        recording.close()
        if number == 0:
            with tape.open("ab") as file:
                file.write(b'{"v":1,"item":"i","ta')
    takes = [json.loads(line)["take"] for line in tape.read_text().splitlines() if line.endswith("}")]
    assert takes == [1, 2]
    gateway = await replaying(open_gateway, tape)
    answers = [await begin(gateway, item_id="i").post("/chat/completions", chat("Go.")) for _ in range(2)]
    assert b"first" in answers[0][1] and b"second" in answers[1][1]


def test_a_file_that_is_no_recording_is_said_to_be_none(tmp_path):
    (tmp_path / "x.ndjson").write_text('{"hello": 1}\n')
    with pytest.raises(UsageError, match="not a recording"):
        Replay(tmp_path / "x.ndjson")
    with pytest.raises(UsageError, match="cannot read"):
        Replay(tmp_path / "none.ndjson")
    with pytest.raises(UsageError, match="cannot record to"):
        Recording(tmp_path / "x.ndjson" / "inside")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("id 123e4567-e89b-12d3-a456-426614174000", "id 00000000-0000-0000-0000-000000000000"),
        ("Today's date: 2026-11-15", "Today's date: 2027-01-02"),
        ("It is Sunday, November 15, 2026.", "It is Monday, January 3, 2028."),
        ("at 2026-11-15T08:19:55.123Z", "at 2020-01-01 00:00:00"),
        ("Wall time: 0.0521 seconds", "Wall time: 1.5 seconds"),
        ("/tmp/pytest-1/x/tree/a.py:3", "/tmp/pytest-22/y/tree/a.py:3"),
        ("http://127.0.0.1:4312/v1", "http://127.0.0.1:9/v1"),
        ("commit 4f2a9c81d2e0", "commit 0a1b2c3d4e5f"),
        ("call_AbCdEfGh12", "call_ZyXwVuTs98"),
    ],
)
def test_what_is_only_of_the_moment_does_not_count(before, after):
    assert canonical_request({"text": before}) == canonical_request({"text": after})


@pytest.mark.parametrize(
    ("before", "after"),
    [("/tmp/x/y/a.py", "/tmp/x/y/b.py"), ("3 files", "4 files"), ("call me", "call us"), ("1.5", "1.6")],
)
def test_what_is_asked_does_count(before, after):
    assert canonical_request({"text": before}) != canonical_request({"text": after})
    assert first_difference(
        canonical_request({"text": before}), canonical_request({"text": after})
    ).startswith("text: ")


@pytest.mark.parametrize(
    ("recorded", "now", "difference"),
    [
        ({"a": 1}, {"a": 1}, ""),
        ({"a": 1}, {"a": 1, "b": 2}, "b is new: 2"),
        ({"a": {"b": 2}}, {"a": {}}, "a.b is gone: it was 2"),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "a[1].b: recorded 2, now 3"),
        ({"a": [1, 2]}, {"a": [1]}, "a has 1 entries where 2 were recorded"),
        ({"a": 1}, {"a": [1]}, "a: recorded 1, now [1]"),
        ([1], {"a": 1}, ": recorded [1], now {'a': 1}"),
        ("abc", "abd", ": recorded 'abc', now 'abd' (from character 3 on)"),
        ("abcd", "abc", ": recorded 'abcd', now 'abc' (from character 4 on)"),
    ],
)
def test_the_first_difference_of_two_requests(recorded, now, difference):
    assert first_difference(recorded, now) == difference


def test_long_texts_that_differ_are_shown_around_the_place():
    difference = first_difference("x" * 500 + "one" + "y" * 500, "x" * 500 + "two" + "y" * 500)
    assert "xone" in difference and "xtwo" in difference and len(difference) < 400


def test_a_request_is_recognized_without_what_belongs_to_its_session():
    one = canonical_request({"a": ["in /tmp/s1/tree", {"b": "/tmp/s1"}]}, ["/tmp/s1", "/tmp/s1/tree", ""])
    assert one == {"a": ["in <own>", {"b": "<own>"}]}
    parts = (("chat", "x"), ("chat", "x"), ("chat", "y"), ("messages", "x"))
    assert len({request_digest(*each, one) for each in parts}) == 3


def test_a_recording_is_found_beside_the_plan_only(tmp_path):
    inside, outside = tmp_path / "plan", tmp_path / "elsewhere"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "r.ndjson").write_text("")
    (inside / "link.ndjson").symlink_to(outside / "r.ndjson")
    for name in ("r", "r.ndjson"):
        find_recording(f"replay/{name}", [outside / "none", inside])
    for name in ("../elsewhere/r", "link", "absent"):
        with pytest.raises(NotFound, match=f"there is no recording `{name}` in {inside}"):
            find_recording(f"replay/{name}", [inside])
    with pytest.raises(NotFound, match="in no folder"):
        find_recording("replay/x", [])
