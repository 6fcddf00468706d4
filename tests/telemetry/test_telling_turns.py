"""A session is told once, in the order in which things happened, however often its parts were sent."""

from spans_by_hand import as_json, evidence, record, said, session, span, text

CHAT, AGENT, TOOL = "chat", "invoke_agent", "execute_tool"


def chat(name, asked, answered, **more):
    return span(
        name,
        gen_ai__operation__name=CHAT,
        gen_ai__input__messages=as_json(asked),
        gen_ai__output__messages=as_json(answered),
        **more,
    )


def test_a_conversation_that_is_sent_again_with_each_request_is_told_once():
    first, second = text("user", "one"), text("assistant", "ONE")
    third, fourth = text("user", "two"), text("assistant", "TWO")
    found = evidence(
        chat("a", [first], [second], trace="t1", at=0),
        chat("b", [first, second, third], [fourth], trace="t2", at=5),
    )

    assert said(found) == [("user", "one"), ("assistant", "ONE"), ("user", "two"), ("assistant", "TWO")]
    assert [(trace.prompt, trace.answer) for trace in found.traces] == [("one", "ONE"), ("two", "TWO")]


def test_what_a_user_says_twice_is_told_twice():
    yes = text("user", "yes")
    found = evidence(
        chat("a", [yes], [text("assistant", "sure?")], trace="t1", at=0),
        chat("b", [yes, text("assistant", "sure?"), yes], [text("assistant", "done")], trace="t2", at=5),
    )

    assert [trace.prompt for trace in found.traces] == ["yes", "yes"]


def test_a_repeated_request_to_an_agent_that_remembers_is_told_in_each_turn():
    def turn(trace, at):
        asked, answered = as_json([text("user", "again")]), as_json([text("assistant", "as before")])
        return span(
            "invoke_agent A",
            trace=trace,
            at=at,
            gen_ai__operation__name=AGENT,
            gen_ai__input__messages=asked,
            gen_ai__output__messages=answered,
        )

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


def test_a_loop_of_requests_in_traces_of_their_own_does_not_ask_twice():
    asked, call, result = looking()
    found = evidence(
        chat("a", [asked], [call], trace="t1", at=0),
        chat("b", [asked, call, result], [text("assistant", "sunny")], trace="t2", at=5),
    )

    assert said(found) == [("user", "weather?"), ("assistant", "sunny")]


def test_a_tool_without_a_span_is_told_from_the_conversation():
    asked, call, result = looking({"where": "out"})
    found = evidence(
        chat("a", [asked], [call], at=0),
        chat("b", [asked, call, result], [text("assistant", "sunny")], at=5),
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
        span(
            "execute_tool look",
            at=2,
            gen_ai__operation__name=TOOL,
            gen_ai__tool__name="look",
            gen_ai__tool__call__id="c1",
        ),
        chat("b", [asked, call, result], [text("assistant", "sunny")], at=5),
    )

    (used,) = found.tool_calls
    assert (dict(used.args), used.result) == ({"where": "out"}, "sunny")
    assert used.call_id == span("execute_tool look")["spanId"]


def test_an_agent_within_an_agent_speaks_under_its_own_name_and_asks_nothing_of_the_user():
    found = evidence(
        span(
            "invoke_agent Boss",
            gen_ai__operation__name=AGENT,
            gen_ai__agent__name="Boss",
            gen_ai__input__messages=as_json([text("user", "write a poem")]),
            gen_ai__output__messages=as_json([text("assistant", "here it is")]),
            seconds=9,
        ),
        span("execute_tool poet", parent="invoke_agent Boss", at=1, seconds=5, gen_ai__operation__name=TOOL),
        span(
            "invoke_agent Poet",
            parent="execute_tool poet",
            at=2,
            seconds=3,
            gen_ai__operation__name=AGENT,
            gen_ai__agent__name="Poet",
            gen_ai__input__messages=as_json([text("user", "rhyme for me")]),
        ),
        chat(
            "c",
            [text("user", "rhyme for me")],
            [text("assistant", "roses")],
            parent="invoke_agent Poet",
            at=3,
        ),
    )

    assert said(found) == [("user", "write a poem"), ("assistant", "roses"), ("assistant", "here it is")]
    assert [message.name for message in found.messages] == ["", "Poet", ""]
    assert [call.name for call in found.tool_calls] == ["poet"]


def test_a_model_that_two_instrumentations_watched_is_counted_once():
    spans = [
        chat(
            "outer",
            [text("user", "hi")],
            [text("assistant", "ho")],
            gen_ai__usage__input_tokens=10,
            seconds=3,
        ),
        chat(
            "inner",
            [text("user", "hi")],
            [text("assistant", "ho")],
            parent="outer",
            at=1,
            scope="opentelemetry.instrumentation.openai",
            gen_ai__usage__input_tokens=10,
        ),
    ]

    assert [call.usage.input_tokens for call in evidence(*spans).model_calls] == [10]


def test_tokens_that_only_the_agent_knows_of_are_counted():
    found = evidence(
        span(
            "invoke_agent A",
            gen_ai__operation__name=AGENT,
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


def test_an_agent_that_failed_makes_a_session_that_failed():
    found = session(span("invoke_agent A", gen_ai__operation__name=AGENT, status="ERROR", message="no model"))

    assert (found.status, found.end_reason, found.error) == ("fail", "agent_failed", "no model")


def test_a_tool_that_failed_does_not_make_the_session_fail():
    found = session(
        span("invoke_agent A", gen_ai__operation__name=AGENT, seconds=5),
        span("execute_tool t", parent="invoke_agent A", at=1, gen_ai__operation__name=TOOL, status="ERROR"),
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
    found = session(
        span(
            "invoke_agent A",
            gen_ai__operation__name=AGENT,
            gen_ai__task__input="a secret plan",
            user__id="u-7",
            gen_ai__agent__version="3",
        )
    )

    assert "secret" not in str(found.attributes)
    assert found.attributes["user.id"] == "u-7"


def test_a_record_that_arrives_before_its_span_is_joined_to_it():
    body = {"input": {"messages": [text("user", "hi")]}, "output": {"messages": [text("assistant", "ho")]}}
    found = evidence(record("chat a", body=body), span("chat a", gen_ai__operation__name=CHAT))

    assert said(found) == [("user", "hi"), ("assistant", "ho")]


def test_spans_that_are_each_others_parents_do_not_hang_the_reader():
    found = session(
        span("a", parent="b", gen_ai__operation__name=AGENT, gen_ai__task__input="hi"),
        span("b", parent="a", gen_ai__operation__name=AGENT),
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
            span(
                "invoke_agent A",
                gen_ai__operation__name=AGENT,
                gen_ai__input__messages=nonsense,
                gen_ai__output__messages=nonsense,
                gen_ai__tool__definitions=nonsense,
                gen_ai__usage__input_tokens=nonsense,
            )
        )
        assert len(found.traces) == 1
