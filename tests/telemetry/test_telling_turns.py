"""A session is told once, in the order in which things happened, however often its parts were sent."""

import pytest
from spans_by_hand import agent, chat, event, evidence, record, said, session, span, text, tool

from proctor.telemetry.span import span_of, usage_of


@pytest.mark.parametrize("words", [("one", "ONE", "two", "TWO"), ("yes", "sure?", "yes", "done")])
def test_a_conversation_that_is_sent_again_with_each_request_is_told_once(words):
    first, second, third, fourth = (
        text(role, content) for role, content in zip(("user", "assistant") * 2, words, strict=True)
    )
    found = evidence(
        chat("a", [first], [second], trace="t1", at=0),
        chat("b", [first, second, third], [fourth], trace="t2", at=5),
    )

    assert said(found) == list(zip(("user", "assistant") * 2, words, strict=True))
    assert [(trace.prompt, trace.answer) for trace in found.traces] == [words[:2], words[2:]]


def test_a_repeated_request_to_an_agent_that_remembers_is_told_in_each_turn():
    def turn(trace, at):
        return agent(trace=trace, at=at, asked="again", answered="as before")

    found = evidence(turn("t1", 0), turn("t2", 5))

    assert [(trace.prompt, trace.answer) for trace in found.traces] == [("again", "as before")] * 2


def looking(arguments=None):
    """A question, the call of a tool that it leads to, and the tool's result."""
    call = {"type": "tool_call", "id": "c1", "name": "look", "arguments": arguments or {}}
    result = {"type": "tool_call_response", "id": "c1", "response": "sunny"}
    return (
        text("user", "weather?"),
        {"role": "assistant", "parts": [call]},
        {"role": "tool", "parts": [result]},
    )


@pytest.mark.parametrize("traces", [("t1", "t1"), ("t1", "t2")])
def test_a_tool_without_a_span_is_told_from_the_conversation_in_one_trace_or_several(traces):
    asked, call, result = looking({"where": "out"})
    found = evidence(
        chat("a", [asked], [call], trace=traces[0], at=0),
        chat("b", [asked, call, result], [text("assistant", "sunny")], trace=traces[1], at=5),
    )

    (used,) = found.tool_calls
    assert (used.name, dict(used.args), used.result, used.success) == (
        "look",
        {"where": "out"},
        "sunny",
        True,
    )
    assert said(found) == [("user", "weather?"), ("assistant", "sunny")]


def test_a_tool_whose_span_has_no_content_gets_it_from_the_conversation():
    asked, call, result = looking({"where": "out"})
    found = evidence(
        chat("a", [asked], [call], at=0),
        tool("look", at=2, gen_ai__tool__call__id="c1"),
        chat("b", [asked, call, result], [text("assistant", "sunny")], at=5),
    )

    (used,) = found.tool_calls
    assert (dict(used.args), used.result) == ({"where": "out"}, "sunny")
    assert used.call_id == span("execute_tool look")["spanId"]


def test_an_agent_within_an_agent_speaks_under_its_own_name_and_asks_nothing_of_the_user():
    wish = "rhyme for me"
    found = evidence(
        agent("Boss", seconds=9, gen_ai__agent__name="Boss", asked="write a poem", answered="here it is"),
        tool("poet", parent="invoke_agent Boss", at=1, seconds=5),
        agent("Poet", gen_ai__agent__name="Poet", asked=wish, parent="execute_tool poet", at=2, seconds=3),
        chat("c", [text("user", wish)], [text("assistant", "roses")], parent="invoke_agent Poet", at=3),
    )

    assert said(found) == [("user", "write a poem"), ("assistant", "roses"), ("assistant", "here it is")]
    assert [message.name for message in found.messages] == ["", "Poet", ""]
    assert [call.name for call in found.tool_calls] == ["poet"]


def test_a_model_that_two_instrumentations_watched_is_counted_once():
    talk = [text("user", "hi")], [text("assistant", "ho")]
    inner = {"parent": "outer", "at": 1, "scope": "opentelemetry.instrumentation.openai"}

    found = evidence(
        chat("outer", *talk, gen_ai__usage__input_tokens=10, seconds=3),
        chat("inner", *talk, gen_ai__usage__input_tokens=10, **inner),
    )

    assert [call.usage.input_tokens for call in found.model_calls] == [10]


def test_tokens_that_only_the_agent_knows_of_are_counted():
    found = evidence(
        agent(
            gen_ai__request__model="large",
            gen_ai__usage__input_tokens=10,
            gen_ai__usage__cache_read_input_tokens=90,
        )
    )

    (call,) = found.model_calls
    assert (call.model, call.usage.input_tokens, call.usage.cached_tokens) == ("large", 100, 90)


def test_thoughts_are_not_said_and_pictures_are_named():
    parts = [
        {"type": "reasoning", "content": "hmm"},
        {"type": "text", "content": "look:"},
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "aGVsbG8="},
    ]
    found = evidence(chat("a", [text("user", "hi")], [{"role": "assistant", "parts": parts}]))

    assert said(found)[-1] == ("assistant", "look:\n[image]")


def test_a_tool_that_failed_does_not_make_the_session_fail():
    found = session(
        agent(seconds=5),
        tool("t", parent="invoke_agent A", at=1, status="ERROR"),
    )

    assert found.status == "success"


def test_traces_are_steps_in_the_order_of_their_beginning():
    found = session(
        chat("late", [text("user", "b")], [], trace="t2", at=60),
        chat("early", [text("user", "a")], [], trace="t1", at=0),
    )

    assert [step.trace_id for step in found.steps] == [
        span("x", trace=name)["traceId"] for name in ("t1", "t2")
    ]
    assert found.started_at == found.steps[0].started_at
    assert found.finished_at == found.steps[1].finished_at


def test_what_was_said_is_in_the_transcript_and_not_among_the_attributes():
    found = session(agent(gen_ai__task__input="a secret plan", user__id="u-7", gen_ai__agent__version="3"))

    assert "secret" not in str(found.attributes)
    assert found.attributes["user.id"] == "u-7"


def test_spans_that_are_each_others_parents_do_not_hang_the_reader():
    found = session(
        agent("a", parent="invoke_agent b", gen_ai__task__input="hi"),
        agent("b", parent="invoke_agent a"),
    )

    assert len(found.steps) == 1


def test_nonsense_in_every_place_is_kept_as_text():
    for nonsense in (
        "{",
        "[[[[",
        '{"role": 3, "parts": 7}',
        '[null, 1, {"content": {"content": null}}]',
        "\ud800",
    ):
        found = evidence(
            agent(
                gen_ai__input__messages=nonsense,
                gen_ai__output__messages=nonsense,
                gen_ai__tool__definitions=nonsense,
                gen_ai__usage__input_tokens=nonsense,
            )
        )
        assert len(found.traces) == 1


def calling(name, call_id="", **arguments):
    return {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}],
    }


def answering(result, call_id=""):
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": result}]}


@pytest.mark.parametrize(
    ("first", "second", "calls"),
    [
        ([calling("look", at=1)], [calling("look", at=1)], 1),
        ([calling("look", at=1)], [calling("look", at=1), calling("look", at=1)], 2),
        ([calling("look", at=1)], [calling("look", at=1), calling("look", at=2)], 2),
        # Under its id a call is known even with other arguments.
        ([calling("find", "c1", x=1)], [calling("find", "c1", x=2)], 1),
        ([calling("find", "c1", x=1)], [calling("find", "c2", x=2)], 2),
    ],
)
def test_calls_in_a_history_are_new_as_often_as_they_stand_there(first, second, calls):
    question = text("user", "weather?")
    found = evidence(chat("a", [question, *first], [], at=0), chat("b", [question, *second], [], at=5))

    assert len(found.tool_calls) == calls


def test_results_in_a_history_belong_to_their_calls_once():
    question, calls = text("user", "weather?"), [calling("look", "c1"), calling("look", "c2")]
    results = [answering("sunny", "c1"), answering("windy", "c2")]
    found = evidence(
        chat("a", [question], calls, at=0),
        chat("b", [question, *calls, *results], [text("assistant", "fine")], at=5),
        chat("c", [question, *calls, *results, text("user", " ")], [text("assistant", "yes")], at=9),
    )

    assert [call.result for call in found.tool_calls] == ["sunny", "windy"]
    assert said(found) == [("user", "weather?"), ("assistant", "fine"), ("assistant", "yes")]


def test_events_on_a_span_count_only_where_no_record_says_anything():
    told = event("gen_ai.user.message", content="from the event")
    choice = record("invoke_agent A", event="gen_ai.choice", body={"message": {"content": "answer"}})
    asked = record("invoke_agent A", event="gen_ai.user.message", body={"content": "recorded"})
    one = agent(events=[told])

    assert said(evidence(one)) == [("user", "from the event")]
    assert said(evidence(one, asked)) == [("user", "recorded")]
    assert said(evidence(one, choice)) == [("assistant", "answer")]


# Agents that tools run


def asking(at, seconds):
    return tool("ask", parent="invoke_agent planner", at=at, seconds=seconds)


def expert(at, seconds):
    return agent("expert", at=at, seconds=seconds, gen_ai__agent__name="expert", asked="how far?")


PLANNER = agent("planner", seconds=100, gen_ai__agent__name="planner", asked="plan it")


@pytest.mark.parametrize(
    ("at", "seconds", "is_inside"),
    [(20, 20, True), (10, 40, True), (9, 31, False), (20, 31, False), (9, 42, False), (50, 10, False)],
)
def test_a_tool_runs_an_agent_that_works_within_its_time(at, seconds, is_inside):
    found = evidence(PLANNER, asking(10, 40), expert(at, seconds))

    questions = [content for role, content in said(found) if role == "user"]
    assert questions == (["plan it"] if is_inside else ["plan it", "how far?"])


def test_a_tool_whose_end_is_not_known_or_that_the_agent_called_itself_runs_no_agent():
    instant = evidence(PLANNER, asking(20, 0), expert(20, 0))
    assert [content for _, content in said(instant)] == ["plan it", "how far?"]
    assert [content for _, content in said(evidence(asking(0, 100), PLANNER))] == ["plan it"]


# Members of sessions


@pytest.mark.parametrize(
    ("key", "value", "is_kept"),
    [
        ("customer", "x" * 200, True),
        ("customer", "x" * 201, False),
        ("customer", ["x"], False),
        ("customer", 3, True),
        ("customer", 2.5, True),
        ("customer", False, True),
        ("Prompt", "x", False),
        ("prompt", 3, True),
        ("gen_ai.usage", 3, False),
        ("token_count", 3, False),
        ("proctor.x", "x", False),
        ("proctor", "x", True),
    ],
)
def test_short_attributes_are_kept_without_messages_and_figures(key, value, is_kept):
    found = session(agent(**{key: value}))

    assert found.attributes.get(key) == (value if is_kept else None)


@pytest.mark.parametrize(("count", "is_later_kept"), [(96, True), (97, False), (200, False)])
def test_a_hundred_attributes_are_kept_of_the_first_span_that_has_each(count, is_later_kept):
    many = {f"a{number}": number for number in range(count)}
    found = session(
        agent("A", a0="first"),
        agent("B", at=1, **many),
        agent("C", at=2, later="x"),
    )

    assert len(found.attributes) == 100 and found.attributes["a0"] == "first"
    assert ("later" in found.attributes) is is_later_kept


@pytest.mark.parametrize(
    ("status", "events", "attributes", "error"),
    [
        ("m", [event("exception", **{"exception.message": "boom"})], {"error__type": "T"}, "m"),
        ("", [event("exception", **{"exception.message": "boom"})], {"error__type": "T"}, "boom"),
        ("", [event("other", **{"exception.message": "boom"})], {"error__type": "T"}, "T"),
        ("", [], {}, "it failed"),
    ],
)
def test_an_agent_that_failed_makes_a_failed_session_with_the_first_error_named(
    status, events, attributes, error
):
    found = session(agent(status="ERROR", message=status, events=events, **attributes))

    assert (found.status, found.end_reason, found.error) == ("fail", "agent_failed", error)


@pytest.mark.parametrize(
    ("input_tokens", "read", "written", "total"),
    [(10, 6, 4, 10), (10, 6, 5, 21), (10, 11, 0, 21), (10, 0, 0, 10), (0, 1, 2, 3)],
)
def test_cached_tokens_are_part_of_the_prompt(input_tokens, read, written, total):
    """Some frameworks leave them out of its count."""
    attributes = {
        "gen_ai.usage.input_tokens": input_tokens,
        "gen_ai.usage.cache_read.input_tokens": read,
        "gen_ai.usage.cache_creation.input_tokens": written,
    }
    usage = usage_of(span_of(span("a", **attributes), []))
    assert (usage.input_tokens, usage.cached_tokens) == (total, read)
