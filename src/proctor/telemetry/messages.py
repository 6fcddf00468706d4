"""Parses messages in any framework's format.

Messages come as plain text, JSON strings, lists of blocks or parts, or serialized graph states, and
frameworks share these shapes: a value is parsed by its shape, not by its origin. Nothing here fails: what
cannot be parsed is kept as text.
"""

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from proctor.json_values import JsonMap, JsonObject, as_list, as_map, parse_json
from proctor.session import Role

LONGEST_LITERAL = 200_000
"""Maximum characters of a Python literal; parsing one takes much longer than JSON."""


@dataclass(frozen=True, slots=True)
class ParsedToolCall:
    """A tool call requested by the assistant."""

    id: str
    name: str
    args: JsonMap


@dataclass(frozen=True, slots=True)
class ParsedToolResult:
    """The result of a tool call."""

    id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """One message."""

    role: Role
    text: str = ""
    calls: tuple[ParsedToolCall, ...] = ()
    results: tuple[ParsedToolResult, ...] = ()
    name: str = ""


def parse_nested(value: object) -> object:
    """The parsed value of a string with a JSON object or list; else the value itself."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text[:1] not in ("{", "[") or text[-1:] not in ("}", "]"):
        return value
    try:
        return parse_json(text)
    except ValueError:
        return value


def unquoted(result: object) -> object:
    """A tool's result that is written as JSON: of a text, without the quotation marks."""
    if isinstance(result, str) and result.startswith('"'):
        with suppress(ValueError):
            return parse_json(result)
    return result


def args_of(value: object) -> JsonObject:
    """Arguments of a tool call as an object, from JSON, a Python literal, or plain text."""
    parsed = parse_nested(value)
    if isinstance(parsed, str):
        parsed = literal_of(parsed)
    if isinstance(parsed, Mapping):
        return {str(key): each for key, each in parsed.items()}
    return {} if parsed in (None, "", []) else {"input": parsed}


def as_text(value: object) -> str:
    """Any value as text: unchanged, or as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__


def is_requested(value: JsonMap) -> bool:
    """Whether this is a tool call in OpenAI's notation; the definition of a tool has no arguments."""
    return value.get("type") in (None, "function") and "arguments" in as_map(value, "function")


def is_block(value: object) -> bool:
    """Whether this is a part of a message: it has a part type and no role."""
    if not isinstance(value, Mapping) or value.get("role"):
        return False
    if is_requested(value):
        return True
    kind = value.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        return True
    return kind is None and (any(key in value for key in _KEYS) or set(value) == {"text"})


def message_of_blocks(blocks: Iterable[object], role: Role) -> ParsedMessage:
    """The message made of these parts."""
    texts, calls, results = list[str](), list[ParsedToolCall](), list[ParsedToolResult]()
    for block in map(parse_nested, blocks):
        if not isinstance(block, Mapping):
            texts.append("" if block is None else as_text(block))
        elif (call := _call(block)) is not None:
            calls.append(call)
        elif (result := _result(block)) is not None:
            results.append(result)
        else:
            texts.append(_block_text(block))
    message = ParsedMessage(role, "\n".join(filter(None, texts)), tuple(calls), tuple(results))
    return replace(message, role="tool") if results and not message.text and not calls else message


def calls_of(values: object) -> tuple[ParsedToolCall, ...]:
    """Tool calls next to the content, as OpenAI and LangChain write them."""
    calls = list[ParsedToolCall]()
    for written in map(parse_nested, values if isinstance(values, list) else ()):
        if isinstance(written, Mapping):
            inner = first(written, "function", "tool_call", "functionCall")
            inner = inner if isinstance(inner, Mapping) else written
            name = first(inner, "name", "toolName")
            named = first(written, "id", "toolCallId") or inner.get("id")
            if name:
                arguments = args_of(first(inner, "arguments", "args", "input"))
                calls.append(ParsedToolCall(str(named or ""), str(name), arguments))
    return tuple(calls)


def _call(block: JsonMap) -> ParsedToolCall | None:
    use = block.get("toolUse") or block.get("functionCall")
    kind = block.get("type")
    if use is None and str(kind) in _CALL_TYPES:
        use = block
    if use is None and kind is None:
        use = block.get("function_call")
    if use is None and is_requested(block):
        use = {"id": block.get("id"), **as_map(block, "function")}
    if not isinstance(use, Mapping):
        return None
    named = first(use, "toolUseId", "call_id", "toolCallId", "id")
    name = first(use, "name", "toolName")
    return ParsedToolCall(
        str(named or ""), str(name or ""), args_of(first(use, "input", "arguments", "args"))
    )


def _result(block: JsonMap) -> ParsedToolResult | None:
    result = first(block, "toolResult", "functionResponse", "function_response")
    if result is None and str(block.get("type")) in _RESULT_TYPES:
        result = block
    if not isinstance(result, Mapping):
        return None
    named = first(result, "toolUseId", "tool_use_id", "toolCallId", "call_id", "id")
    failed = result.get("is_error") is True or str(result.get("status") or "").lower() == "error"
    return ParsedToolResult(
        str(named or ""), _result_text(first(result, "content", "response", "result", "output")), failed
    )


def _result_text(value: object) -> str:
    parsed = parse_nested(value)
    if isinstance(parsed, Mapping) and set(parsed) == {"result"}:
        parsed = parse_nested(parsed["result"])
    if parsed is None or isinstance(parsed, str):
        return parsed or ""
    blocks = parsed if isinstance(parsed, list) else [parsed]
    return (
        message_of_blocks(blocks, "tool").text if blocks and all(map(is_block, blocks)) else as_text(parsed)
    )


def _block_text(block: JsonMap) -> str:
    kind = str(block.get("type") or "")
    # Names of .NET's classes, too: Microsoft.Extensions.AI.TextReasoningContent.
    if (
        kind in _REASONING_TYPES
        or kind.endswith("ReasoningContent")
        or "reasoningContent" in block
        or "cachePoint" in block
    ):
        return ""
    what = str(block.get("modality") or kind)
    if kind in _MEDIA_TYPES:
        # Media is encoded as text, but has none.
        return f"[{what}]"
    for key in ("text", "content", "refusal"):
        if isinstance(block.get(key), str):
            return str(block[key])
    return "" if what == "text" else f"[{what}]" if what else as_text(block)


def first(mapping: JsonMap, *names: str) -> object:
    """The first nonempty member of these; None: none."""
    return next((mapping[name] for name in names if mapping.get(name) not in (None, "")), None)


def literal_of(text: str) -> object:
    """A Python literal: some frameworks write `{'city': 'Bonn'}`."""
    stripped = text.strip()
    if stripped[:1] not in ("{", "[") or len(stripped) > LONGEST_LITERAL:
        return text
    try:
        literal = ast.literal_eval(stripped)
        json.dumps(literal)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return literal


_REASONING_TYPES = frozenset(("reasoning", "thinking", "redacted_thinking"))
_MEDIA_TYPES = frozenset(
    (
        "image",
        "image_url",
        "input_image",
        "input_file",
        "file",
        "blob",
        "uri",
        "audio",
        "input_audio",
        "document",
        "video",
    )
)
_CALL_TYPES = frozenset(("tool_use", "tool_call", "tool-call", "function_call", "server_tool_call"))
_RESULT_TYPES = frozenset(
    ("tool_result", "tool_call_response", "tool-result", "function_call_output", "server_tool_call_response")
)
_TEXT_TYPES = frozenset(("text", "input_text", "output_text", "refusal"))
_TYPES = _REASONING_TYPES | _MEDIA_TYPES | _CALL_TYPES | _RESULT_TYPES | _TEXT_TYPES
_KEYS = (
    "toolUse",
    "toolResult",
    "reasoningContent",
    "functionCall",
    "function_call",
    "functionResponse",
    "function_response",
    "inlineData",
    "cachePoint",
    "guardContent",
)
ROLES: Mapping[str, Role] = {
    **dict.fromkeys(("user", "human", "humanmessage", "humanmessagechunk"), "user"),
    **dict.fromkeys(("assistant", "ai", "model", "agent", "aimessage", "aimessagechunk"), "assistant"),
    **dict.fromkeys(("tool", "function", "toolmessage", "tool_message", "ipython"), "tool"),
    **dict.fromkeys(("system", "developer", "systemmessage"), "system"),
}
_STEPS = frozenset(("tool-call", "tool-response"))
"""Roles in which smolagents repeats its own steps, which have their own spans."""
DEEPEST = 24
"""Maximum nesting of shapes. The deepest observed is seven."""
WRAPPERS = (
    "messages",
    "message",
    "new_message",
    "inputs",
    "outputs",
    "input",
    "output",
    "generations",
    "choices",
    "candidates",
    "replies",
    "kwargs",
    "user_msg",
    "query_str",
    "question",
    "task",
    "prompt",
    "query",
    "response",
    "text",
    "result",
    "value",
)
"""Members in which frameworks wrap messages, the outermost first."""


def parse_messages(value: object, role: Role, depth: int = 0) -> list[ParsedMessage]:
    """The messages in a value; `role` where they have none."""
    value = parse_nested(value)
    if isinstance(value, str) and (printed := parse_printed(value, role)) is not None:
        return printed
    if value is None or depth > DEEPEST:
        return []
    if isinstance(value, list):
        return _of_list(value, role, depth)
    if isinstance(value, Mapping):
        return _of_mapping(value, role, depth)
    return [ParsedMessage(role, as_text(value))]


def parse_printed(text: str, role: Role) -> list[ParsedMessage] | None:
    """The messages in objects as Python prints them; None: the text is no such object.

    They are never text of a message: parts that cannot be parsed are omitted.
    """
    start = _PRINTED.match(text.lstrip())
    if start is None:
        return None
    try:
        source = _ENUM.sub(r"\1", text.strip())
        tree = ast.parse(source, mode="eval").body if len(text) <= LONGEST_LITERAL else None
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        tree = None
    elements = tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree]
    return [message for each in elements for message in _printed_messages(each, role)]


def _printed_messages(node: ast.expr | None, role: Role) -> list[ParsedMessage]:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return []
    fields = {each.arg: _printed_value(each.value) for each in node.keywords if each.arg}
    name = node.func.id
    if name == "ResponseFunctionToolCall":
        call = ParsedToolCall(
            str(fields.get("call_id") or fields.get("id") or ""),
            str(fields.get("name") or ""),
            args_of(fields.get("arguments")),
        )
        return [ParsedMessage("assistant", "", (call,))]
    if name == "ResponseOutputMessage":
        return [message_of_blocks(as_list(fields, "content"), "assistant")]
    if "_role" in fields:
        # Haystack's ChatMessage.
        blocks = [_haystack_block(part) for part in as_list(fields, "_content")]
        return [message_of_blocks(filter(None, blocks), role_of(fields["_role"], role))]
    if name.lower() in ROLES:
        content = {"role": role_of(name, role), "content": "", **fields}
        return parse_messages({key: each for key, each in content.items() if each is not None}, role, DEEPEST)
    return []


def _haystack_block(part: object) -> JsonMap:
    fields = as_map(part)
    if "tool_name" in fields:
        return {**fields, "type": "tool_call", "name": fields["tool_name"]}
    if "origin" in fields:
        call_id, result = as_map(fields, "origin").get("id"), fields.get("result")
        return {"type": "tool_result", "id": call_id, "content": result, "is_error": fields.get("error")}
    return fields if "text" in fields else {}


def _printed_value(node: ast.expr) -> object:
    """A value as Python prints it; objects in it as their fields, None where it cannot be read."""
    if isinstance(node, ast.Call):
        return {each.arg: _printed_value(each.value) for each in node.keywords if each.arg}
    if isinstance(node, ast.List | ast.Tuple):
        return [_printed_value(each) for each in node.elts]
    try:
        value: object = ast.literal_eval(node)
        json.dumps(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value


# A member of an enumeration: <ChatRole.USER: 'user'>
_ENUM = re.compile(r"<[\w.]+: ('[^']*'|\d+)>")
# Classes that frameworks print where a message should be. One by one: a person may write `Name(x=1)` as well.
_PRINTED = re.compile(
    r"\[?\s*(ResponseFunctionToolCall|ResponseReasoningItem|ResponseOutputMessage|ResponseUsage|Response"
    r"|ChatMessage|ChatCompletion|ChatCompletionMessage|ModelResponse|AIMessage|AIMessageChunk|HumanMessage"
    r"|SystemMessage|ToolMessage|ActionStep|TaskStep|PlanningStep|FinalAnswerStep|ToolOutput|CrewOutput"
    r"|TaskOutput|AgentFinish|AgentAction|AgentChatResponse)\("
)


def role_of(value: object, otherwise: Role) -> Role:
    """A framework's name of a role."""
    return ROLES.get(str(value or "").lower(), otherwise)


def text_of(value: object) -> str:
    """A value as text: the result of a tool, a response."""
    parsed = parse_nested(value)
    if parsed is None or isinstance(parsed, str):
        return parsed or ""
    messages = parse_messages(parsed, "tool") if _is_message_like(parsed) else []
    texts = (message.text or "\n".join(result.text for result in message.results) for message in messages)
    return "\n".join(filter(None, texts)) or as_text(parsed)


def payload_of(value: object, depth: int = 0) -> object:
    """The core of a message about a tool: its arguments or result."""
    parsed = parse_nested(value)
    if depth > DEEPEST:
        return parsed
    if isinstance(parsed, list):
        is_talk = parsed and all(isinstance(each, Mapping) and "role" in each for each in parsed)
        return payload_of(parsed[-1], depth + 1) if is_talk else _payload_of_blocks(parsed)
    if not isinstance(parsed, Mapping):
        return parsed
    if "parts" in parsed:
        return _payload_of_blocks(parse_nested(parsed["parts"]))
    for key, besides in (("messages", ()), ("content", ("role", "id")), ("message", ("id", "finish_reason"))):
        if key in parsed and (not besides or len(parsed) == 1 or any(each in parsed for each in besides)):
            return payload_of(parsed[key], depth + 1)
    return _payload_of_blocks([parsed])


def tools_of(value: object) -> list[JsonObject]:
    """Tool definitions in a value: names, or with description and parameters."""
    parsed = parse_nested(value)
    if isinstance(parsed, Mapping):
        parsed = [parsed]
    if isinstance(parsed, str):
        parsed = parsed.split(",")
    return (
        [tool for each in parsed if (tool := _tool(parse_nested(each)))] if isinstance(parsed, list) else []
    )


def _of_list(values: Sequence[object], role: Role, depth: int) -> list[ParsedMessage]:
    if values and all(map(is_block, values)):
        return [message_of_blocks(values, role)]
    if len(values) == 2 and isinstance(values[1], str) and str(values[0]).lower() in ROLES:
        # LangGraph takes a message as a pair: ("user", "hello").
        return [ParsedMessage(role_of(values[0], role), values[1])]
    return [message for each in values for message in parse_messages(each, role, depth + 1)]


def _of_mapping(value: JsonMap, role: Role, depth: int) -> list[ParsedMessage]:
    if "lc" in value and isinstance(value.get("kwargs"), Mapping):
        # LangChain's own serialization: the class is the role.
        kind = next(reversed(as_list(value, "id")), "")
        return parse_messages({**as_map(value, "kwargs"), "role": role_of(kind, role)}, role, depth + 1)
    if "type" in value and isinstance(value.get("data"), Mapping):
        return parse_messages(
            {**as_map(value, "data"), "role": role_of(value["type"], role)}, role, depth + 1
        )
    if is_block(value):
        return [message_of_blocks([value], role)]
    if any(key in value for key in ("parts", "content", "contents", "tool_calls", "toolCalls")):
        return _messages(value, role, depth)
    for key in WRAPPERS:
        if value.get(key) is not None:
            return parse_messages(value[key], role_of(value.get("role"), role), depth + 1)
    return [ParsedMessage(role, as_text(value))]


def _messages(value: JsonMap, role: Role, depth: int) -> list[ParsedMessage]:
    # `type` is the role in LangChain's messages, and `message` in OpenAI's items, which is none.
    if str(value.get("role")).lower() in _STEPS:
        return []
    who = role_of(value.get("role"), role_of(value.get("type"), role))
    written = next((value[key] for key in ("parts", "content", "contents") if value.get(key)), "")
    content = parse_nested(written)
    if (who == "tool" or isinstance(written, str)) and _is_data(content):
        return [_message(value, ParsedMessage(who, as_text(content)), who)]
    for inner in ("content", "parts"):
        if isinstance(content, Mapping) and inner in content and not is_block(content):
            # In Strands' event records and Gemini's candidates, the content is another object with one.
            who, content = role_of(content.get("role"), who), parse_nested(content[inner])
    if isinstance(content, Mapping) and not is_block(content) and any(key in content for key in WRAPPERS):
        return parse_messages(content, who, depth + 1)
    return [_message(value, _content(content, who), who)]


def _is_data(content: object) -> bool:
    """Whether a list is a tool's result or an answer in JSON, not the parts of a message."""
    return (
        isinstance(content, list)
        and bool(content)
        and all(isinstance(each, Mapping) and not is_block(each) and not each.get("role") for each in content)
    )


def _message(value: JsonMap, message: ParsedMessage, who: Role) -> ParsedMessage:
    message = replace(message, role=who, name=str(value.get("name") or "") if who != "tool" else "")
    for key in ("tool_calls", "toolCalls"):
        message = replace(message, calls=_merged(message.calls, calls_of(parse_nested(value.get(key)))))
    if who == "tool" and not message.results and not message.calls:
        answered = value.get("tool_call_id") or value.get("toolCallId") or value.get("id") or ""
        is_error = value.get("is_error") is True or str(value.get("status") or "").lower() == "error"
        return replace(message, text="", results=(ParsedToolResult(str(answered), message.text, is_error),))
    # Results of tools that stand in a message of the user, as some providers have it, are the tool's.
    return (
        replace(message, role="tool")
        if message.results and not message.text and not message.calls
        else message
    )


def _content(content: object, who: Role) -> ParsedMessage:
    if isinstance(content, Mapping):
        content = [content]
    return (
        message_of_blocks(content, who) if isinstance(content, list) else ParsedMessage(who, as_text(content))
    )


def _merged(
    calls: tuple[ParsedToolCall, ...], more: tuple[ParsedToolCall, ...]
) -> tuple[ParsedToolCall, ...]:
    """Calls without duplicates: a call is often both in the blocks and next to them."""
    known = {call.id or call.name for call in calls}
    return (*calls, *(call for call in more if (call.id or call.name) not in known))


def _payload_of_blocks(blocks: object) -> object:
    if not isinstance(blocks, list) or not blocks or not all(map(is_block, blocks)):
        return blocks[0] if isinstance(blocks, list) and len(blocks) == 1 else blocks
    message = message_of_blocks(blocks, "tool")
    if message.calls:
        return message.calls[0].args
    return message.results[0].text if message.results else message.text


def _is_message_like(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(each, Mapping) and _is_message_like(each) for each in value)
    return is_block(value) or (isinstance(value, Mapping) and any(key in value for key in _OF_MESSAGES))


_OF_MESSAGES = ("messages", "parts", "lc", "tool_call_id", "role")


def _tool(value: object) -> JsonObject | None:
    if isinstance(value, str) and value.strip():
        return {"name": value.strip()}
    if not isinstance(value, Mapping):
        return None
    wrapped = (value[key] for key in ("function", "toolSpec") if isinstance(value.get(key), Mapping))
    inner = next(wrapped, value)
    keys = ("parameters", "inputSchema", "input_schema", "schema")
    schema = parse_nested(next((inner[key] for key in keys if inner.get(key)), None))
    if isinstance(schema, Mapping) and set(schema) == {"json"}:
        schema = parse_nested(schema["json"])
    name = str(inner.get("name") or "")
    described = {"name": name, "description": inner.get("description"), "parameters": schema}
    return {key: each for key, each in described.items() if each} if name else None
