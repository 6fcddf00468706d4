"""Chat completions in the own format of Gemini, which its batches take, and back."""

from proctor.json_values import JsonMap, JsonObject, as_list, as_map, as_text, as_whole_number

_SETTINGS = {
    "temperature": "temperature",
    "top_p": "topP",
    "max_tokens": "maxOutputTokens",
    "max_completion_tokens": "maxOutputTokens",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
_KNOWN = {*_SETTINGS, "model", "messages", "stop", "response_format"}
_ENDS = {"STOP": "stop", "MAX_TOKENS": "length"}
"""All others are reasons for which the answer was withheld."""


def generate_content(body: JsonMap) -> JsonObject | None:
    """A chat completion as a request to generate content; None: it is not of text and known settings."""
    settings: JsonObject = {_SETTINGS[name]: body[name] for name in body.keys() & _SETTINGS.keys()}
    if stop := body.get("stop"):
        settings["stopSequences"] = [stop] if isinstance(stop, str) else stop
    wanted = as_map(body, "response_format")
    if wanted:
        settings["responseMimeType"] = "application/json"
    if schema := as_map(wanted, "json_schema", "schema"):
        settings["responseJsonSchema"] = schema
    by_role: dict[str, list[JsonObject]] = {"system": [], "contents": []}
    for message in map(as_map, as_list(body, "messages")):
        role, content = message.get("role"), message.get("content")
        if (
            role not in ("system", "user", "assistant")
            or not isinstance(content, str)
            or "tool_calls" in message
        ):
            return None
        if role == "system":
            by_role["system"].append({"text": content})
        else:
            said: JsonObject = {
                "role": "model" if role == "assistant" else "user",
                "parts": [{"text": content}],
            }
            by_role["contents"].append(said)
    if body.keys() - _KNOWN or wanted.get("type", "json_object") not in ("json_object", "json_schema"):
        return None
    request: JsonObject = {"contents": by_role["contents"], "generationConfig": settings}
    return {**request, "systemInstruction": {"parts": by_role["system"]}} if by_role["system"] else request


def completion(answer: JsonMap, model: str) -> JsonObject:
    """Generated content as a chat completion."""
    candidate = next(map(as_map, as_list(answer, "candidates")), {})
    parts = map(as_map, as_list(candidate, "content", "parts"))
    text = "".join(as_text(each, "text") for each in parts if not each.get("thought"))
    end = _ENDS.get(as_text(candidate, "finishReason"), "content_filter")
    usage = as_map(answer, "usageMetadata")
    thought = as_whole_number(usage, "thoughtsTokenCount")
    return {
        "id": as_text(answer, "responseId"),
        "model": as_text(answer, "modelVersion") or model,
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": end}],
        "usage": {
            "prompt_tokens": as_whole_number(usage, "promptTokenCount"),
            "completion_tokens": as_whole_number(usage, "candidatesTokenCount") + thought,
            "total_tokens": as_whole_number(usage, "totalTokenCount"),
            "prompt_tokens_details": {"cached_tokens": as_whole_number(usage, "cachedContentTokenCount")},
            "completion_tokens_details": {"reasoning_tokens": thought},
        },
    }
