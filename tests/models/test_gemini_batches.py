"""Requests and answers in Gemini's own format."""

import pytest

from proctor.models import openai
from proctor.models.gemini import completion, generate_content

ASKED = {"role": "user", "content": "Name a river."}


def test_a_conversation_with_its_settings():
    said = [{"role": "system", "content": "Be brief."}, ASKED, {"role": "assistant", "content": "Elbe."}]
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    body = {
        "model": "gemini-2.5-pro",
        "messages": said,
        "max_tokens": 9,
        "stop": ".",
        "response_format": schema,
    }

    assert generate_content(body) == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Name a river."}]},
            {"role": "model", "parts": [{"text": "Elbe."}]},
        ],
        "generationConfig": {
            "maxOutputTokens": 9,
            "stopSequences": ["."],
            "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object"},
        },
    }


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "function"}]},
        {"reasoning_effort": "low"},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"messages": [ASKED, {"role": "tool", "content": "4"}]},
        {"response_format": {"type": "grammar"}},
    ],
)
def test_what_cannot_be_said_is_refused(more):
    assert generate_content({"messages": [ASKED], **more}) is None


def test_an_answer_without_its_thoughts_and_with_their_tokens():
    parts = [{"text": "Hm.", "thought": True}, {"text": "Elbe."}]
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 2, "thoughtsTokenCount": 5, "totalTokenCount": 14}
    answer = {
        "candidates": [{"content": {"parts": parts}, "finishReason": "MAX_TOKENS"}],
        "usageMetadata": usage,
    }

    read = openai.read(completion(answer, "gemini-2.5-pro"))

    assert (read.text, read.finish_reason) == ("Elbe.", "length")
    assert (read.usage.input_tokens, read.usage.output_tokens, read.usage.reasoning_tokens) == (7, 7, 5)


def test_a_blocked_prompt_is_a_filtered_answer():
    read = openai.read(completion({"promptFeedback": {"blockReason": "SAFETY"}}, "gemini-2.5-pro"))

    assert (read.text, read.finish_reason) == ("", "content_filter")
