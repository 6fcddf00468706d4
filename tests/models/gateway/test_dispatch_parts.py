"""How one call of the gateway is answered, with the provider and the client replaced."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from proctor.errors import ModelError, UsageError
from proctor.models.client import CLIPPED_ERROR_CHARACTERS, CallRetryPolicy, Client, _provider_message, clean
from proctor.models.gateway import server
from proctor.models.gateway.server import Dispatcher
from proctor.models.recording import VERSION, Exchange, Recording, lines_of


class Delivery:
    """Keeps what a client gets."""

    def __init__(self):
        self.prepared, self.begun, self.written, self.hidden, self.has_begun = None, None, [], [], False

    def prepare(self, *answer):
        self.prepared = answer

    async def begin(self, *head):
        self.begun, self.has_begun = head, True

    async def write(self, chunk):
        self.written.append(chunk)


def call(wire="chat", kind="answer", **more):
    usual = {
        "delivery": Delivery(),
        "gateway_route": SimpleNamespace(wire=wire, kind=kind, operation="op"),
        "access": SimpleNamespace(caller=SimpleNamespace(spend=None), notes=[]),
        "dialect": SimpleNamespace(wants_stream=lambda body, operation: False),
        "body": {"model": "x"},
        "original": {"model": "x"},
        "model": "m",
        "status": "",
        "error": "",
        "sent": "before",
        "latency_ms": None,
        "grant": SimpleNamespace(lose=None),
        "is_sent": True,
        "route": None,
        "waited": None,
        "mark_sent": lambda is_sent: None,
    }
    made = SimpleNamespace(**usual | more)
    made.access.note_once = made.access.notes.append
    return made


@dataclass(frozen=True)
class Endpoint:
    provider: str = "some"
    key: str = "secret"
    key_variable: str = "KEY"
    missing_key: str = ""
    speaks: tuple[str, ...] = ("chat", "responses")
    model: str = "their-name"


ENDPOINT = Endpoint()


async def test_a_missing_key_is_said_before_anything_is_sent():
    endpoint = Endpoint(missing_key="KEY")
    with pytest.raises(ModelError, match=r"^m needs a key: set KEY$") as raised:
        await Dispatcher(None, None)._relay(call(), SimpleNamespace(endpoint=endpoint), {})
    assert raised.value.reason == "auth"


@pytest.mark.parametrize(
    ("wire", "body", "renames", "asks_usage", "sent"),
    [
        (
            "chat",
            {"model": "x", "max_tokens": 5},
            True,
            False,
            {"model": "their-name", "max_completion_tokens": 5},
        ),
        ("chat", {"max_tokens": 5}, False, False, {"model": "their-name", "max_tokens": 5}),
        (
            "chat",
            {"max_tokens": 5, "max_completion_tokens": 6},
            True,
            True,
            {"model": "their-name", "max_completion_tokens": 6, "stream_options": {"include_usage": True}},
        ),
        ("responses", {"max_tokens": 5}, True, False, {"model": "their-name", "max_tokens": 5}),
        ("gemini", {"model": "x"}, True, False, {"model": "x"}),
    ],
)
async def test_what_a_provider_is_sent(wire, body, renames, asks_usage, sent, monkeypatch):
    async def open_(target, raw, waited, mark_sent):
        return SimpleNamespace(error=None, raw=raw)

    monkeypatch.setattr(server.openai, "wants_renamed_limit", lambda endpoint: renames)
    made = call(wire, body=body)
    dispatcher = Dispatcher(SimpleNamespace(client=SimpleNamespace(open=open_)), None)
    raw = (await dispatcher._open(made, ENDPOINT, "target", asks_usage=asks_usage)).raw
    assert server.json.loads(raw) == sent and made.sent == raw.decode()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b'{"error": {"message": "no  secret\\nhere"}}', "no [key] here"),
        (b'{"error": "plain"}', "plain"),
        (b'{"error": {}}', '{"error": {}}'),
        (b'{"other": 1}', '{"other": 1}'),
        (b"", "no details"),
        (b"\xff", "\ufffd"),
    ],
)
def test_the_message_of_a_provider(raw, message):
    assert _provider_message(raw, ENDPOINT) == message


def test_a_long_message_is_clipped():
    most = CLIPPED_ERROR_CHARACTERS
    assert clean("x" * most, ENDPOINT) == "x" * most
    assert clean("x" * (most + 1), ENDPOINT) == "x" * most + "…"
    assert clean(" " * 4 * most + "x", ENDPOINT) == ""
    assert clean(" " * (4 * most - 1) + "x", ENDPOINT) == "x"


async def test_quotas_are_read_from_every_answer_refused_or_not():
    seen = []
    client = Client(CallRetryPolicy())
    target = SimpleNamespace(url="u", headers={}, endpoint=ENDPOINT)
    client._prepared = {"u": SimpleNamespace(headers=target.headers)}
    answers = [(200, {"h": "1"}, b'{"a": 1}'), (400, {"h": "2"}, b"no")]

    async def post(prepared, body):
        return answers.pop(0)

    client._http = SimpleNamespace(post=post)
    client._malformed, client._failures = (), ()
    client._apply_quota_headers = lambda *given: seen.append(given)
    assert await client._post_once(target, b"{}") == ({"a": 1}, b'{"a": 1}')
    with pytest.raises(ModelError, match="no"):
        await client._post_once(target, b"{}")
    assert seen == [(target, {"h": "1"}), (target, {"h": "2"})]


def test_exchanges_and_takes_of_a_recording_are_numbered_from_one(tmp_path):
    file = tmp_path / "below/recording.jsonl"
    exchange = Exchange(wire="chat", operation="op", model="m", request={"x": 1}, chunks=[b"a"])
    for number in (1, 2):
        recording = Recording(file)
        recording.take("i", "model")
        take = recording.take("i", "model")
        assert [take.begin(), take.begin()] == [1, 2]
        take.write(2, exchange)
        assert take.begin() == 3
        take.write(1, exchange)
        take.write(3, exchange)
        recording.close()
        lines = [line for line, _, _ in lines_of(file)][-3:]
        assert {(line["status"], line["whole"], line["v"]) for line in lines} == {(200, True, VERSION)}
        assert [(line["take"], line["n"], line["beside"]) for line in lines] == [
            *((number, 2, [1]), (number, 1, []), (number, 3, [1])),
        ]
    with pytest.raises(UsageError, match=r"cannot record to .*: "):
        Recording(tmp_path / "below/recording.jsonl/inside")
