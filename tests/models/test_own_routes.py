"""Models that are functions or recordings, and how recordings differ from what is asked."""

import asyncio
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.errors import ModelError, NotFound, UsageError
from proctor.model import Answer, Request, WireAnswer
from proctor.models import anthropic, prices, routes
from proctor.models.client import RetryableError, parse_answer
from proctor.models.prices import listed_price, with_output_limit
from proctor.models.recording import (
    _decode_chunk,
    _encode_chunk,
    canonical_request,
    find_recording,
    first_difference,
    request_digest,
)
from proctor.session import ModelCall, Usage

REQUEST = Request(model="python/x:y", messages=[{"role": "user", "content": "hi"}])


def asked(function: Any) -> Answer:
    return asyncio.run(routes.CallableRoute(function).answer(REQUEST, None))


async def later(request: Request) -> str:
    return f"later {request.messages[0]['content']}"


def test_a_function_answers_whether_it_waits_or_not() -> None:
    assert asked(later).text == "later hi" and asked(lambda request: later(request)).text == "later hi"
    answer = asked(lambda request: 7)
    assert answer.text == "7" and (answer.call.model, answer.call.provider) == ("python/x:y", "python")
    assert (answer.call.cost_usd, answer.call.waiting_ms) == (0.0, 0.0)
    assert 0 <= answer.call.latency_ms < 60_000  # type: ignore[operator]
    whole = Answer(text="own", call=ModelCall(model="z"))
    assert asked(lambda request: whole) is whole


def test_a_function_that_fails_is_a_failure_of_the_model() -> None:
    def breaks(request: Request) -> str:
        raise KeyError("lost")

    def refuses(request: Request) -> str:
        raise ModelError("as it is", reason="refused")

    def exits(request: Request) -> str:
        sys.exit(0)

    with pytest.raises(ModelError, match="python/x:y: KeyError: 'lost'"):
        asked(breaks)
    with pytest.raises(ModelError, match="python/x:y: SystemExit: 0"):
        asked(exits)
    with pytest.raises(ModelError, match=r"^as it is$") as raised:
        asked(refuses)
    assert raised.value.reason == "refused"
    with pytest.raises(ModelError, match="the function returned None"):
        asked(lambda request: None)


@pytest.mark.parametrize("name", ["json:dumps", "os:path.join"])
def test_a_function_is_found_by_module_and_path(name: str) -> None:
    assert callable(routes.imported_function(f"python/{name}"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such:f", "there is no model"),
        ("json:absent", "there is no model"),
        ("json", "there is no model"),
        ("os:sep", "is not a function"),
    ],
)
def test_a_function_that_does_not_exist_is_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        routes.imported_function(f"python/{name}")


class Library:
    """Answers as litellm does."""

    def __init__(self, answer: object) -> None:
        self.given, self.result = dict[str, Any](), answer

    async def acompletion(self, **arguments: Any) -> Any:
        self.given = arguments
        if isinstance(self.result, BaseException):
            raise self.result
        return SimpleNamespace(model_dump=lambda: self.result)


COMPLETION = {
    "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}


def test_litellm_gets_what_the_request_has_and_nothing_else() -> None:
    library = Library(COMPLETION)
    request = Request(model="litellm/a/b", messages=REQUEST.messages, parameters={"stream": True, "top_p": 1})
    answer = asyncio.run(routes.LitellmRoute(library, None).answer(request, None))  # type: ignore[arg-type]
    assert (
        answer.text == "hello" and answer.call.provider == "litellm" and answer.call.usage.input_tokens == 3
    )
    own = {"max_retries": 0, "num_retries": 0}
    assert library.given == {"model": "a/b", "messages": list(REQUEST.messages), "top_p": 1, **own}
    more = Request(model="litellm/a", messages=[], tools=({"type": "function"},), seed=0)
    asyncio.run(routes.LitellmRoute(library, None).answer(more, None))  # type: ignore[arg-type]
    assert library.given["tools"] == [{"type": "function"}] and library.given["seed"] == 0
    for result in ({"choices": 3}, RuntimeError("sk-secret")):
        with pytest.raises(ModelError) as raised:
            asyncio.run(routes.LitellmRoute(Library(result), None).answer(more, None))  # type: ignore[arg-type]
        assert "sk-secret" not in str(raised.value)


# --- Recordings ---


@pytest.mark.parametrize(
    ("recorded", "now", "difference"),
    [
        ({"a": 1}, {"a": 1}, ""),
        ({"a": 1}, {"a": 1, "b": 2}, "b is new: 2"),
        ({"a": {"b": 2}}, {"a": {}}, "a.b is gone: it was 2"),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, "a[1].b: recorded 2, now 3"),
        ({"a": [1, 2]}, {"a": [1]}, "a has 1 entries where 2 were recorded"),
        ({"a": [1]}, {"a": [1]}, ""),
        ({"a": 1}, {"a": [1]}, "a: recorded 1, now [1]"),
        ([1], {"a": 1}, ": recorded [1], now {'a': 1}"),
    ],
)
def test_the_first_difference_of_two_requests(recorded: object, now: object, difference: str) -> None:
    assert first_difference(recorded, now) == difference


def test_texts_that_differ_are_shown_around_the_place() -> None:
    difference = first_difference({"a": "x" * 500 + "one" + "y" * 500}, {"a": "x" * 500 + "two" + "y" * 500})
    assert (
        difference.startswith("a: ") and "one" in difference and "two" in difference and len(difference) < 400
    )


def test_a_request_is_recognized_without_what_belongs_to_its_session() -> None:
    one = canonical_request({"a": ["in /tmp/s1/tree", {"b": "/tmp/s1"}]}, ["/tmp/s1", "/tmp/s1/tree", ""])
    assert one == {"a": ["in <own>", {"b": "<own>"}]}
    assert canonical_request({"a": "same"}, []) == {"a": "same"}
    assert request_digest("chat", "x", one) == request_digest("chat", "x", dict(one))  # type: ignore[call-overload]
    assert (
        len({request_digest(*parts, one) for parts in (("chat", "x"), ("chat", "y"), ("messages", "x"))}) == 3
    )


def test_chunks_are_text_where_they_can_be() -> None:
    for chunk in (b"text \xc3\xbc", b"\xff\x00"):
        assert _decode_chunk(_encode_chunk(chunk)) == chunk
    assert _encode_chunk(b"text") == "text" and isinstance(_encode_chunk(b"\xff"), dict)
    for broken in ({}, {"base64": "a"}):
        with pytest.raises(UsageError, match="neither text nor base64"):
            _decode_chunk(broken)  # type: ignore[arg-type]


def test_a_recording_is_found_beside_the_plan_only(tmp_path: Path) -> None:
    inside, outside = tmp_path / "plan", tmp_path / "elsewhere"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "r.ndjson").write_text("")
    (inside / "link.ndjson").symlink_to(outside / "r.ndjson")
    assert find_recording("replay/r", [outside / "none", inside]) is not None
    assert find_recording("replay/r.ndjson", [inside]) is not None
    for name in ("../elsewhere/r", "link", "absent"):
        with pytest.raises(NotFound, match=f"there is no recording `{name}` in {inside}"):
            find_recording(f"replay/{name}", [inside])
    with pytest.raises(NotFound, match="in no folder"):
        find_recording("replay/x", [])


# --- Lists of models, prices, wire formats ---


AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_list_price_is_found_with_and_without_its_provider() -> None:
    known = listed_price("openai", "gpt-4o", at=AT)
    assert known is not None
    assert (
        listed_price("", "openai/gpt-4o", at=AT) == known == listed_price("litellm", "openai/gpt-4o", at=AT)
        or "litellm" not in prices.FRAMEWORKS
    )
    assert listed_price("openai", "no-such-model", at=AT) is None
    bedrock = listed_price("", "anthropic.claude-3-5-sonnet-20240620-v1:0", at=AT)
    assert (
        bedrock == listed_price("aws", "anthropic.claude-3-5-sonnet-20240620-v1:0", at=AT)
        and bedrock is not None
    )


@pytest.mark.parametrize(
    ("parameters", "limit", "lowered"),
    [
        (
            {"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 5000}},
            4000,
            {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 3999}},
        ),
        (
            {"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 5000}},
            1024,
            {"max_tokens": 1024, "thinking": {"type": "disabled"}},
        ),
        (
            {"max_tokens": 9000, "thinking": {"type": "enabled", "budget_tokens": 3999}},
            4000,
            {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 3999}},
        ),
        (
            {"max_tokens": 9000, "reasoning": {"max_tokens": 5000}},
            100,
            {"max_tokens": 100, "reasoning": {"enabled": False}},
        ),
        (
            {"max_tokens": 9000, "reasoning": {"max_tokens": 4000}},
            4000,
            {"max_tokens": 4000, "reasoning": {"max_tokens": 3999}},
        ),
    ],
)
def test_a_lower_limit_lowers_the_budget_of_reasoning(parameters: Any, limit: int, lowered: Any) -> None:
    assert with_output_limit(parameters, limit) == lowered


@pytest.mark.parametrize(
    ("choice", "theirs"),
    [
        ("required", {"type": "any"}),
        ("auto", {"type": "auto"}),
        ({"function": {"name": "f"}}, {"type": "tool", "name": "f"}),
        ({"type": "x"}, {"type": "x"}),
    ],
)
def test_a_choice_of_tools_for_anthropic(choice: object, theirs: object) -> None:
    assert anthropic._tool_choice(choice) == theirs


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("data:image/png;base64,AA", {"type": "base64", "media_type": "image/png", "data": "AA"}),
        ("http://x/a", {"type": "url", "url": "http://x/a"}),
        ("http://x/a;base64,b", {"type": "url", "url": "http://x/a;base64,b"}),
    ],
)
def test_an_image_for_anthropic(address: str, source: dict[str, str]) -> None:
    assert anthropic._image_source(address) == source


def test_an_error_in_an_answer_counts_only_without_an_answer_beside_it() -> None:
    endpoint: Any = SimpleNamespace(provider="p", key="", model="m")
    for answer in ({"error": "x", "choices": [1]}, {"error": "x", "content": [1]}, {"choices": []}):
        assert parse_answer(json.dumps(answer).encode(), endpoint) == answer
    with pytest.raises(ModelError, match='p answered with an error: "x"'):
        parse_answer(b'{"error": "x", "choices": []}', endpoint)
    with pytest.raises(ModelError, match="not an object"):
        parse_answer(b"[1]", endpoint)
    with pytest.raises(RetryableError):
        parse_answer(b"<html>", endpoint)


def test_an_answer_in_this_process_waits_for_no_slot() -> None:
    async def reading() -> WireAnswer:
        return WireAnswer("hi", Usage(input_tokens=1, output_tokens=1), (), "stop")

    answer = asyncio.run(routes.CallableRoute(later)._timed(REQUEST, reading()))
    assert (answer.text, answer.call.waiting_ms) == ("hi", 0.0)
