"""Random parts of sessions, for tests that write and read them."""

import string

from hypothesis import strategies as st

from proctor.session import Message, ModelCall, ToolCall, Usage

Strategy = st.SearchStrategy

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
names = st.text(string.ascii_letters, min_size=1, max_size=8)
maybe_names = st.just("") | names
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words
messages = st.builds(
    Message, role=st.sampled_from(["system", "user", "assistant", "tool"]), content=words, name=maybe_names
)
usages = st.builds(
    lambda prompt, cached, output, thought: Usage(
        input_tokens=prompt + cached,
        cached_tokens=cached,
        output_tokens=output + thought,
        reasoning_tokens=thought,
    ),
    *[st.integers(0, 10**6)] * 4,
)


def tool_calls(call_ids: Strategy[str], milliseconds: Strategy[float | None]) -> Strategy[ToolCall]:
    return st.builds(
        ToolCall,
        name=names,
        args=st.dictionaries(names, scalars | st.lists(scalars, max_size=3), max_size=3),
        success=st.none() | st.booleans(),
        result=words,
        duration_ms=milliseconds,
        call_id=call_ids,
    )


def model_calls(call_ids: Strategy[str], milliseconds: Strategy[float | None]) -> Strategy[ModelCall]:
    return st.builds(
        ModelCall,
        model=names,
        usage=usages,
        provider=maybe_names,
        cost_usd=st.none() | st.floats(0, 100),
        price_source=maybe_names,
        latency_ms=milliseconds,
        waiting_ms=st.integers(0, 1000).map(float),
        status=st.sampled_from(["ok", "429"]),
        error=words,
        call_id=call_ids,
    )
