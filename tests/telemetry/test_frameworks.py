"""Spans as frameworks write them: each message and tool call is told once, and only speech as speech."""

from spans_by_hand import as_json, evidence, record, said, session, span

from proctor.session import Message, ModelCall, ToolCall

AGENTS_TRACELOOP = "opentelemetry.instrumentation.openai_agents"
AGENTS_OPENINFERENCE = "openinference.instrumentation.openai_agents"
LANGCHAIN = "opentelemetry.instrumentation.langchain"
ADK = "gcp.vertex.agent"


def events_of(*documents, kind):
    told = session(*documents)
    return [timed.event for step in told.steps for timed in step.events if isinstance(timed.event, kind)]


def calls_of(*documents):
    return [(call.name, dict(call.args), call.result) for call in events_of(*documents, kind=ToolCall)]


def call_part(name, arguments, call_id):
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def result_part(text, call_id):
    return {"type": "tool_call_response", "id": call_id, "response": text}


def response(name, *, parent, at, inputs, outputs, scope=AGENTS_TRACELOOP):
    return span(
        name,
        parent=parent,
        at=at,
        seconds=0.5,
        scope=scope,
        gen_ai__operation__name="chat",
        gen_ai__input__messages=as_json(inputs),
        gen_ai__output__messages=as_json(outputs),
    )


def tool(name, *, parent, at, seconds=0.4, arguments, result, scope=AGENTS_TRACELOOP):
    return span(
        name,
        parent=parent,
        at=at,
        seconds=seconds,
        scope=scope,
        traceloop__span__kind="tool",
        traceloop__entity__name=name.removesuffix(".tool").split("#")[0],
        traceloop__entity__input=as_json(arguments),
        traceloop__entity__output=result,
    )


def agent_as_tool():
    """A planner asks an expert, who adds three times in parallel; nested agents stand below the workflow."""
    question, inner = "What are the sums?", "Add 1 and 2, 3 and 4, 5 and 6."
    sums = [({"a": 1, "b": 2}, "3"), ({"a": 3, "b": 4}, "7"), ({"a": 5, "b": 6}, "11")]
    asks = [{"role": "user", "parts": [{"type": "text", "content": inner}]}]
    calls = [call_part("add", as_json(given), f"call_{at}") for at, (given, _) in enumerate(sums)]
    history = [
        {"role": "assistant", "parts": [call_part("add", as_json(given), f"fc_{at}")]}
        for at, (given, _) in enumerate(sums)
    ]
    results = [
        {"role": "tool", "parts": [result_part(total, f"call_{at}")]} for at, (_, total) in enumerate(sums)
    ]
    first = [{"role": "user", "parts": [{"type": "text", "content": question}]}]
    ask = call_part("ask_expert", as_json({"input": inner}), "call_ask")
    answer = {"role": "assistant", "parts": [{"type": "text", "content": "3, 7 and 11."}]}
    return [
        span("Agent Workflow", seconds=20, scope=AGENTS_TRACELOOP, traceloop__span__kind="workflow"),
        span(
            "Planner.agent",
            parent="Agent Workflow",
            seconds=19,
            scope=AGENTS_TRACELOOP,
            traceloop__span__kind="agent",
            gen_ai__agent__name="Planner",
        ),
        response(
            "openai.response",
            parent="Planner.agent",
            at=1,
            inputs=first,
            outputs=[{"role": "assistant", "parts": [ask]}],
        ),
        tool(
            "ask_expert.tool",
            parent="Planner.agent",
            at=2,
            seconds=10,
            arguments={"input": inner},
            result="3, 7, 11",
        ),
        span(
            "Expert.agent",
            parent="Agent Workflow",
            at=3,
            seconds=8,
            scope=AGENTS_TRACELOOP,
            traceloop__span__kind="agent",
            gen_ai__agent__name="Expert",
        ),
        response(
            "openai.response 2",
            parent="Expert.agent",
            at=3.5,
            inputs=asks,
            outputs=[{"role": "assistant", "parts": calls}],
        ),
        *(
            tool(f"add#{at}.tool", parent="Expert.agent", at=5, arguments=given, result=total)
            for at, (given, total) in enumerate(sums)
        ),
        response(
            "openai.response 3",
            parent="Expert.agent",
            at=7,
            inputs=[*asks, *history, *results],
            outputs=[{"role": "assistant", "parts": [{"type": "text", "content": "3, 7, 11"}]}],
        ),
        response(
            "openai.response 4",
            parent="Planner.agent",
            at=14,
            inputs=[
                *first,
                {"role": "assistant", "parts": [{**ask, "id": "fc_ask"}]},
                {"role": "tool", "parts": [result_part("3, 7, 11", "call_ask")]},
            ],
            outputs=[answer],
        ),
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
    messages = [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": f"call_{at}", "function": {"name": "weather", "arguments": as_json(given)}}
                for at, given in enumerate(two)
            ],
        }
    ]
    spans = [
        span("run", seconds=9, scope=AGENTS_OPENINFERENCE, openinference__span__kind="AGENT"),
        span(
            "response",
            parent="run",
            at=1,
            scope=AGENTS_OPENINFERENCE,
            openinference__span__kind="LLM",
            output__value=as_json(messages),
        ),
        # They end in the other order.
        *(
            span(
                f"weather {given['city']}",
                parent="run",
                at=3 - at,
                scope=AGENTS_OPENINFERENCE,
                openinference__span__kind="TOOL",
                tool__name="weather",
                input__value=as_json(given),
                output__value=f"fine in {given['city']}",
            )
            for at, given in enumerate(two)
        ),
    ]

    assert calls_of(*spans) == [
        ("weather", {"city": "Kiel"}, "fine in Kiel"),
        ("weather", {"city": "Bonn"}, "fine in Bonn"),
    ]


def test_what_an_earlier_turn_said_is_not_told_again_from_history():
    greeting, first, second = "Hello! How can I help?", "It is 3.", "It is 4."

    def turn(trace, at, inputs, output):
        return span(
            f"chat {trace}",
            trace=trace,
            at=at,
            gen_ai__operation__name="chat",
            gen_ai__input__messages=as_json(
                [{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in inputs]
            ),
            gen_ai__output__messages=as_json(
                [{"role": "assistant", "parts": [{"type": "text", "content": output}]}]
            ),
        )

    one = [("assistant", greeting), ("user", "1 + 2?")]
    # The framework writes the earlier answer in another way: with its reasoning before it.
    two = [*one, ("assistant", f"(thinking) {first}"), ("user", "2 + 2?")]
    told = evidence(turn("a", 0, one, first), turn("b", 10, two, second))

    assert [text for _, text in said(told)] == [greeting, "1 + 2?", first, "2 + 2?", second]


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
        span(
            "execute_tool search",
            parent="graph.workflow",
            at=1,
            scope=LANGCHAIN,
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name="search",
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
    request = {
        "model": "gemini-2.0-flash",
        "config": {
            "system_instruction": "Be brief.",
            "tools": [{"function_declarations": [{"name": "weather", "description": "Looks out."}]}],
        },
        "contents": [{"role": "user", "parts": [{"text": "How is Bonn?"}]}],
    }
    call = {"role": "model", "parts": [{"function_call": {"name": "weather", "args": {"city": "Bonn"}}}]}
    result = {
        "role": "user",
        "parts": [{"function_response": {"name": "weather", "response": {"result": "sunny"}}}],
    }
    answer = {"role": "model", "parts": [{"text": "hmm", "thought": True}, {"text": "Sunny."}]}
    usage = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2}

    def call_llm(name, at, contents, content):
        return span(
            name,
            parent="invoke_agent guide",
            at=at,
            scope=ADK,
            **usage,
            **{
                "gen_ai.request.model": "gemini-2.0-flash",
                "gcp.vertex.agent.llm_request": as_json({**request, "contents": contents}),
                "gcp.vertex.agent.llm_response": as_json({"content": content}),
            },
        )

    return [
        span("invocation", seconds=20, scope=ADK),
        span(
            "invoke_agent guide",
            parent="invocation",
            seconds=19,
            scope=ADK,
            gen_ai__operation__name="invoke_agent",
            gen_ai__agent__name="guide",
        ),
        call_llm("call_llm", 1, request["contents"], call),
        span(
            "generate_content gemini",
            parent="call_llm",
            at=1.2,
            seconds=0.5,
            scope=ADK,
            gen_ai__operation__name="generate_content",
            **usage,
        ),
        span(
            "execute_tool weather",
            parent="call_llm",
            at=3,
            scope=ADK,
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name="weather",
            **{
                "gcp.vertex.agent.tool_call_args": as_json({"city": "Bonn"}),
                "gcp.vertex.agent.tool_response": as_json({"result": "sunny"}),
                "gcp.vertex.agent.llm_request": "{}",
            },
        ),
        span("(merged tools)", parent="call_llm", at=4, scope=ADK, gen_ai__operation__name="execute_tool"),
        call_llm("call_llm 2", 6, [*request["contents"], call, result], answer),
    ]


def test_the_own_spans_of_google_adk_are_read_with_their_content():
    told = evidence(*adk_run())

    assert said(told) == [("system", "Be brief."), ("user", "How is Bonn?"), ("assistant", "Sunny.")]
    assert calls_of(*adk_run()) == [("weather", {"city": "Bonn"}, "sunny")]
    models = events_of(*adk_run(), kind=ModelCall)
    assert [(call.model, call.usage.input_tokens) for call in models] == [("gemini-2.0-flash", 10)] * 2
    assert [tool["name"] for tool in session(*adk_run()).tools] == ["weather"]


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
        span(
            f"chat {position}",
            at=position,
            gen_ai__operation__name="chat",
            gen_ai__output__messages=text,
        )
        for position, text in enumerate((call, message, broken))
    ]

    assert [(role, text) for role, text in said(evidence(*spans))] == [("assistant", "It is 2.")]
    assert [(name, args) for name, args, _ in calls_of(*spans)] == [("add", {"a": 1})]
    asked = as_json([{"role": "user", "content": "Point(x=1) fails, why?"}])
    person = span("chat", gen_ai__operation__name="chat", gen_ai__input__messages=asked)
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
    made = span(
        "chat", gen_ai__operation__name="chat", gen_ai__output__messages="hi", **{"operation.cost": 0.25}
    )

    (call,) = events_of(made, kind=ModelCall)
    assert (call.cost_usd, call.price_source) == (0.25, "agent")


def test_records_without_spans_make_a_session():
    told = evidence(
        record("x", event="gen_ai.user.message", body={"content": "hi"}),
        record("x", event="gen_ai.choice", body={"message": {"role": "assistant", "content": "hello"}}),
    )

    assert said(told) == [("user", "hi"), ("assistant", "hello")]
