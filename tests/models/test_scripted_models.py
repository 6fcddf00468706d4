"""The stand-in models."""

import time

import pytest

from proctor.errors import ModelError, NotFound, RateLimited, UsageError
from proctor.model import Request
from proctor.models import ModelRouter, is_mock


def ask(model, *said, seed=None):
    roles = ("user", "assistant")
    messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(said)]
    return Request(model=model, messages=messages, seed=seed)


@pytest.fixture
def written(tmp_path):
    def write(text, name="mine.yaml"):
        (tmp_path / name).write_text(text)
        return ModelRouter({}, folders=[tmp_path])

    return write


async def test_echo_and_ok_are_always_there():
    models = ModelRouter({})
    assert (await models.answer(ask("scripted/echo", "Hello {model}"))).text == "Hello {model}"
    answer = await models.answer(ask("scripted/ok", "Hello"))
    assert (answer.text, answer.call.cost_usd, answer.call.price_source) == ("OK", 0, "free")
    assert (answer.call.usage.input_tokens, answer.call.usage.output_tokens) == (2, 1)
    assert is_mock("scripted/ok") and not is_mock("gpt-4o")
    assert models.missing_key("scripted/ok") is None and models.has_price("scripted/ok")


async def test_the_first_rule_that_fits_answers(written):
    models = written(
        """
        - match: capital of (?P<country>\\w+)
          reply: "{country}ville, {1}, seed {seed}, {nothing}"
        - match: capital
          reply: later
        - reply: "I do not know: {prompt}"
          usage: {input_tokens: 900, output_tokens: 12}
        """
    )
    assert (await models.answer(ask("scripted/mine", "Capital of France?", seed=3))).text == (
        "Franceville, France, seed 3, {nothing}"
    )
    other = await models.answer(ask("scripted/mine", "What?"))
    assert other.text == "I do not know: What?"
    assert (other.call.usage.input_tokens, other.call.usage.output_tokens) == (900, 12)


async def test_a_rule_may_wait_for_its_turn_in_the_conversation(written):
    models = written("[{after: 2, reply: third}, {after: 1, reply: second}, {reply: first}]")
    said = ["a"]
    for expected in ("first", "second", "third", "third"):
        text = (await models.answer(ask("scripted/mine", *said))).text
        assert text == expected
        said += [text, "go on"]


async def test_the_seed_chooses_among_replies_and_always_the_same(written):
    models = written("- reply: [a, b, c, d]")
    first = [(await models.answer(ask("scripted/mine", "x", seed=seed))).text for seed in range(40)]
    second = [(await models.answer(ask("scripted/mine", "x", seed=seed))).text for seed in range(40)]
    assert first == second
    assert set(first) == {"a", "b", "c", "d"}


async def test_a_rule_may_want_tools_called_with_any_arguments(written):
    models = written(
        """
        - match: broken
          tool: {name: run, arguments: "{oops"}
        - tool: {name: run, arguments: {command: "echo {prompt}"}}
        """
    )
    answer = await models.answer(ask("scripted/mine", "hi"))
    assert answer.finish_reason == "tool_calls"
    assert [(each.name, each.arguments) for each in answer.tool_requests] == [
        ("run", '{"command": "echo hi"}')
    ]
    broken = await models.answer(ask("scripted/mine", "broken"))
    assert broken.tool_requests[0].arguments == "{oops"


async def test_failures_and_latency_can_be_rehearsed(written):
    models = written(
        "{latency_seconds: 0.05, failures: {every: 2, status: 429}, rules: [{reply: fine}]}", "flaky.yml"
    )
    began = time.perf_counter()
    assert (await models.answer(ask("scripted/flaky", "x"))).call.latency_ms >= 49
    assert time.perf_counter() - began >= 0.049
    with pytest.raises(RateLimited):
        await models.answer(ask("scripted/flaky", "x"))
    assert (await models.answer(ask("scripted/flaky", "x"))).text == "fine"
    other = written("{failures: {every: 1, status: 500}, rules: [{reply: fine}]}", "down.yaml")
    with pytest.raises(ModelError, match="500"):
        await other.answer(ask("scripted/down", "x"))


async def test_a_message_no_rule_fits_is_an_error_that_says_so(written):
    with pytest.raises(ModelError, match="no rule of scripted/mine matches 'What\\?'"):
        await written("[{match: zebra, reply: b}]").answer(ask("scripted/mine", "What?"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "list of rules"),
        ("hello", "list of rules"),
        ("[{reply: a, repyl: b}]", "no setting `repyl`"),
        ("[{match: a}]", "rule 1 has neither"),
        ("[{reply: no}]", "`reply` is a truth value in YAML\nPut the text in quotes"),
        ("[{reply: [a, yes]}]", "`reply` is a truth value"),
        ("[{match: '(', reply: b}]", "not a valid regular expression"),
        ("[{tool: run}]", "a tool is a map"),
        ("{rules: [{reply: a}], latency: 3}", "no setting `latency`"),
        ("{rules: [{reply: a}], latency_seconds: soon}", "soon"),
        ("[{reply: a", "mine.yaml"),
        ("[{reply: a, usage: {tokens: 3}}]", "no setting `tokens`"),
    ],
)
def test_a_mistake_in_a_script_is_found_before_anything_is_asked(written, text, words):
    with pytest.raises(UsageError, match=words):
        written(text).check("scripted/mine")


def test_a_script_that_is_not_there_or_not_beside_the_plan_is_not_found(tmp_path):
    (tmp_path / "plans").mkdir()
    (tmp_path / "secret.yaml").write_text("[{reply: a}]")
    models = ModelRouter({}, folders=[tmp_path / "plans"])
    for name in ("scripted/nope", "scripted/../secret", f"scripted/{tmp_path}/secret.yaml"):
        with pytest.raises(NotFound, match="Built in: echo, ok"):
            models.check(name)
