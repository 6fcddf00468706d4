"""Spans as frameworks write them: each message and tool call is told once, and only speech as speech."""

from spans_by_hand import agent, as_json, chat, evidence, record, said, session, span, text, tool

from proctor.session import Message, ModelCall, ToolCall

AGENTS_TRACELOOP = "opentelemetry.instrumentation.openai_agents"
AGENTS_OPENINFERENCE = "openinference.instrumentation.openai_agents"
ADK = "gcp.vertex.agent"
LANGCHAIN = "opentelemetry.instrumentation.langchain"


def events_of(*documents, kind):
    told = session(*documents)
    return [timed.event for step in told.steps for timed in step.events if isinstance(timed.event, kind)]


def calls_of(*documents):
    return [(call.name, dict(call.args), call.result) for call in events_of(*documents, kind=ToolCall)]


def calling(*calls):
    """A message with calls of tools: name, arguments and ID of each."""
    named = [{"type": "tool_call", "name": name, "arguments": given, "id": at} for name, given, at in calls]
    return {"role": "assistant", "parts": named}


def returning(result, call_id):
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": result}]}


def traceloop(kind, name, **more):
    return span(name, scope=AGENTS_TRACELOOP, traceloop__span__kind=kind, **more)


def response(number, parent, at, asked, answered):
    of = {"parent": parent, "at": at, "seconds": 0.5, "scope": AGENTS_TRACELOOP}
    return chat(f"openai.response {number}", asked, [answered], **of)


def traced_tool(name, parent, at, arguments, result, *, seconds=0.4):
    asked = {"traceloop__entity__input": as_json(arguments), "traceloop__entity__output": result}
    named = {"traceloop__entity__name": name.removesuffix(".tool").split("#")[0]}
    return traceloop("tool", name, parent=parent, at=at, seconds=seconds, **named, **asked)


def agent_as_tool():
    """A planner asks an expert, who adds three times in parallel; nested agents stand below the workflow."""
    inner = "Add 1 and 2, 3 and 4, 5 and 6."
    first, asks = text("user", "What are the sums?"), text("user", inner)
    given = as_json({"input": inner})
    sums = [({"a": 1, "b": 2}, "3"), ({"a": 3, "b": 4}, "7"), ({"a": 5, "b": 6}, "11")]
    calls = [("add", as_json(numbers), f"call_{at}") for at, (numbers, _) in enumerate(sums)]
    history = [calling(("add", as_json(numbers), f"fc_{at}")) for at, (numbers, _) in enumerate(sums)]
    results = [returning(total, f"call_{at}") for at, (_, total) in enumerate(sums)]
    asked_before = [first, calling(("ask_expert", given, "fc_ask")), returning("3, 7, 11", "call_ask")]
    below = {"parent": "Agent Workflow"}
    return [
        traceloop("workflow", "Agent Workflow", seconds=20),
        traceloop("agent", "Planner.agent", seconds=19, gen_ai__agent__name="Planner", **below),
        response(1, "Planner.agent", 1, [first], calling(("ask_expert", given, "call_ask"))),
        traced_tool("ask_expert.tool", "Planner.agent", 2, {"input": inner}, "3, 7, 11", seconds=10),
        traceloop("agent", "Expert.agent", at=3, seconds=8, gen_ai__agent__name="Expert", **below),
        response(2, "Expert.agent", 3.5, [asks], calling(*calls)),
        *(
            traced_tool(f"add#{at}.tool", "Expert.agent", 5, numbers, total)
            for at, (numbers, total) in enumerate(sums)
        ),
        response(3, "Expert.agent", 7, [asks, *history, *results], text("assistant", "3, 7, 11")),
        response(4, "Planner.agent", 14, asked_before, text("assistant", "3, 7 and 11.")),
    ]


def test_an_agent_run_by_a_tool_is_told_once_and_its_question_is_no_turn_of_the_user():
    calls = calls_of(*agent_as_tool())
    assert sorted(name for name, _, _ in calls) == ["add", "add", "add", "ask_expert"]
    assert {result for name, _, result in calls if name == "add"} == {"3", "7", "11"}

    told = evidence(*agent_as_tool())
    assert [(message.role, message.name, message.content) for message in told.messages] == [
        ("user", "", "What are the sums?"),
        ("assistant", "Expert", "3, 7, 11"),
        ("assistant", "", "3, 7 and 11."),
    ]


def test_calls_without_ids_are_paired_by_their_arguments():
    two = [{"city": "Bonn"}, {"city": "Kiel"}]
    calls = [
        {"id": f"call_{at}", "function": {"name": "weather", "arguments": as_json(given)}}
        for at, given in enumerate(two)
    ]
    message = {"role": "assistant", "content": "", "tool_calls": calls}

    def written(name, kind, **more):
        return span(name, scope=AGENTS_OPENINFERENCE, openinference__span__kind=kind, **more)

    def weather(at, given):
        told = {"input__value": as_json(given), "output__value": f"fine in {given['city']}"}
        return written(f"weather {at}", "TOOL", parent="run", at=3 - at, tool__name="weather", **told)

    spans = [
        written("run", "AGENT", seconds=9),
        written("response", "LLM", parent="run", at=1, output__value=as_json([message])),
        # They end in the other order.
        *(weather(at, given) for at, given in enumerate(two)),
    ]

    assert calls_of(*spans) == [
        ("weather", {"city": "Kiel"}, "fine in Kiel"),
        ("weather", {"city": "Bonn"}, "fine in Bonn"),
    ]


def test_what_an_earlier_turn_said_is_not_told_again_from_history():
    greeting, first, second = "Hello! How can I help?", "It is 3.", "It is 4."

    def turn(trace, at, inputs, output):
        asked = [text(role, words) for role, words in inputs]
        return chat(f"chat {trace}", asked, [text("assistant", output)], trace=trace, at=at)

    one = [("assistant", greeting), ("user", "1 + 2?")]
    # The framework writes the earlier answer in another way: with its reasoning before it.
    two = [*one, ("assistant", f"(thinking) {first}"), ("user", "2 + 2?")]
    told = evidence(turn("a", 0, one, first), turn("b", 10, two, second))

    assert [words for _, words in said(told)] == [greeting, "1 + 2?", first, "2 + 2?", second]


def test_langgraph_payloads_are_unwrapped_to_arguments_and_result():
    wrapped = {"input_str": "{'q': 'a'}", "tags": ["x"], "metadata": {"y": 1}, "inputs": {"q": "a"}}
    message = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "ToolMessage"],
        "kwargs": {"content": "1", "tool_call_id": "call_7", "name": "search", "status": "success"},
    }
    spans = [
        span("graph.workflow", scope=LANGCHAIN, seconds=9, traceloop__span__kind="workflow"),
        tool(
            "search",
            parent="graph.workflow",
            at=1,
            scope=LANGCHAIN,
            gen_ai__tool__call__arguments=as_json(wrapped),
            gen_ai__tool__call__result=as_json({"output": message, "kwargs": {"color": "red"}}),
        ),
    ]

    assert calls_of(*spans) == [("search", {"q": "a"}, "1")]


def test_a_failed_tool_message_is_a_failed_call():
    message = {"content": "no such page", "tool_call_id": "c", "status": "error", "type": "tool"}
    spans = [
        span("agent", seconds=9, scope=LANGCHAIN, openinference__span__kind="CHAIN"),
        span(
            "search",
            parent="agent",
            at=1,
            scope="openinference.instrumentation.langchain",
            openinference__span__kind="TOOL",
            input__value="{'q': 'a'}",
            output__value=as_json(message),
        ),
    ]

    (call,) = events_of(*spans, kind=ToolCall)
    assert (call.success, call.result, dict(call.args)) == (False, "no such page", {"q": "a"})


def adk_run():
    """As it wrote its spans at first: requests and answers of models as JSON in attributes of its own."""
    function = {"name": "weather", "description": "Looks out."}
    config = {"system_instruction": "Be brief.", "tools": [{"function_declarations": [function]}]}
    asked = {"role": "user", "parts": [{"text": "How is Bonn?"}]}
    call = {"role": "model", "parts": [{"function_call": {"name": "weather", "args": {"city": "Bonn"}}}]}
    response = {"name": "weather", "response": {"result": "sunny"}}
    result = {"role": "user", "parts": [{"function_response": response}]}
    answer = {"role": "model", "parts": [{"text": "hmm", "thought": True}, {"text": "Sunny."}]}
    tokens = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2}
    of_tool = {"tool_call_args": as_json({"city": "Bonn"}), "tool_response": as_json({"result": "sunny"})}

    def own(**values):
        return {"scope": ADK, **{f"gcp.vertex.agent.{name}": value for name, value in values.items()}}

    def call_llm(name, at, contents, content):
        request = as_json({"config": config, "contents": contents})
        sent = own(llm_request=request, llm_response=as_json({"content": content}))
        model = {"gen_ai.request.model": "gemini-2.0-flash"}
        return span(name, parent="invoke_agent guide", at=at, **tokens, **model, **sent)

    below = {"parent": "call_llm", "scope": ADK}
    return [
        span("invocation", seconds=20, scope=ADK),
        agent("guide", parent="invocation", seconds=19, scope=ADK, gen_ai__agent__name="guide"),
        call_llm("call_llm", 1, [asked], call),
        span("generate", at=1.2, seconds=0.5, gen_ai__operation__name="generate_content", **tokens, **below),
        tool("weather", parent="call_llm", at=3, **own(llm_request="{}", **of_tool)),
        span("(merged tools)", at=4, gen_ai__operation__name="execute_tool", **below),
        call_llm("call_llm 2", 6, [asked, call, result], answer),
    ]


def test_the_own_spans_of_google_adk_are_read_with_their_content():
    told = evidence(*adk_run())

    assert said(told) == [("system", "Be brief."), ("user", "How is Bonn?"), ("assistant", "Sunny.")]
    assert calls_of(*adk_run()) == [("weather", {"city": "Bonn"}, "sunny")]
    models = events_of(*adk_run(), kind=ModelCall)
    assert [(call.model, call.usage.input_tokens) for call in models] == [("gemini-2.0-flash", 10)] * 2
    assert [offered["name"] for offered in session(*adk_run()).tools] == ["weather"]
    alone = next(document for document in adk_run() if document["name"] == "execute_tool weather")
    assert calls_of(alone) == [("weather", {"city": "Bonn"}, "sunny")], "without the model's call"


def test_objects_in_the_notation_of_python_are_calls_or_nothing_but_never_speech():
    call = (
        "[ResponseFunctionToolCall(arguments='{\"a\":1}', call_id='call_9', name='add', "
        "type='function_call', id='fc_9', status='completed')]"
    )
    message = (
        "[ResponseOutputMessage(id='msg_1', content=[ResponseOutputText(annotations=[], text='It is 2.', "
        "type='output_text')], role='assistant', status='completed', type='message')]"
    )
    broken = "[ChatMessage(role=<MessageRole.USER: 'user'>, blocks=[])]"
    spans = [
        chat(f"chat {position}", at=position, gen_ai__output__messages=written)
        for position, written in enumerate((call, message, broken))
    ]

    assert said(evidence(*spans)) == [("assistant", "It is 2.")]
    assert [(name, args) for name, args, _ in calls_of(*spans)] == [("add", {"a": 1})]
    person = chat("chat", [{"role": "user", "content": "Point(x=1) fails, why?"}])
    assert said(evidence(person)) == [("user", "Point(x=1) fails, why?")], "what a person writes is speech"


def test_retrieved_documents_are_kept_as_steps_and_are_no_tool_calls():
    spans = [
        span("chain", seconds=9, openinference__span__kind="CHAIN", input__value="What is Proctor?"),
        span(
            "VectorIndex",
            parent="chain",
            at=1,
            openinference__span__kind="RETRIEVER",
            **{
                "retrieval.documents.0.document.content": "It runs agents.",
                "retrieval.documents.1.document.content": "It scores them.",
            },
        ),
    ]

    kept = [message for message in events_of(*spans, kind=Message) if message.role == "tool"]
    assert [(message.name, message.content) for message in kept] == [
        ("retriever VectorIndex", "It runs agents.\n\nIt scores them.")
    ]
    assert calls_of(*spans) == []
    wrapped = as_json({"documents": [{"page_content": "It runs agents."}]})
    found = span("Index", openinference__span__kind="RETRIEVER", output__value=wrapped)
    (kept,) = [each for each in events_of(spans[0], found, kind=Message) if each.role == "tool"]
    assert kept.content == "It runs agents."


def test_a_cost_that_a_span_states_is_its_cost():
    made = chat("chat", gen_ai__output__messages="hi", **{"operation.cost": 0.25})

    (call,) = events_of(made, kind=ModelCall)
    assert (call.cost_usd, call.price_source) == (0.25, "agent")


def test_records_without_spans_make_a_session():
    told = evidence(
        record("x", event="gen_ai.user.message", body={"content": "hi"}),
        record("x", event="gen_ai.choice", body={"message": {"role": "assistant", "content": "hello"}}),
    )

    assert said(told) == [("user", "hi"), ("assistant", "hello")]
