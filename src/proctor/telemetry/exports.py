"""Exports of other tools as span documents.

Flat spans in snake_case, the output of Python's console exporters, and the exports of Phoenix, Langfuse and
LangSmith. The last two do not follow OpenTelemetry's conventions; their observations and runs become spans
of the GenAI conventions, so that one dialect reads them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_cost,
    as_datetime,
    as_list,
    as_map,
    as_text,
    maps_in,
    parse_json,
    parsed_integer,
)
from proctor.telemetry.messages import ROLES

NESTED_DEEPEST = 20
"""How deep attributes may nest before the rest is kept as one value."""
_LANGFUSE_TYPES = frozenset(
    (
        "GENERATION",
        "TOOL",
        "AGENT",
        "CHAIN",
        "RETRIEVER",
        "EMBEDDING",
        "EVALUATOR",
        "GUARDRAIL",
        "SPAN",
        "EVENT",
    )
)
_LANGFUSE_OPERATIONS = {
    "GENERATION": "chat",
    "TOOL": "execute_tool",
    "AGENT": "invoke_agent",
    "RETRIEVER": "retrieval",
    "EMBEDDING": "embeddings",
}
_LANGSMITH_OPERATIONS = {"llm": "chat", "tool": "execute_tool", "retriever": "retrieval"}
_SPOKEN = re.compile(r"^(system|developer|user|assistant|tool): ", re.MULTILINE)
_NO_PAYLOAD = {"content": "role"}
"""What LangSmith's exporter writes of messages of which it has none."""
_LANGFUSE_TYPE, _LANGSMITH_KIND = "langfuse.observation.type", "langsmith.span.kind"
_LANGSMITH_SESSIONS = ("session_id", "thread_id", "conversation_id")
# One part of LangSmith's dotted order: the time of a run and its id.
_ORDERED_RUN = re.compile(r"\d{8}T\d+Z([0-9a-f-]{36})$")


def exported(value: JsonMap) -> list[JsonMap] | None:
    """The flat documents of one object of an export; None: it is of no known tool."""
    for recognizes, documents in _EXPORTS:
        if recognizes(value):
            return list(documents(value))
    return None


def conventional(attributes: JsonMap, name: str, parent_id: str) -> JsonMap:
    """Attributes of a span of the SDKs of Langfuse or LangSmith, with those of the GenAI conventions.

    Other attributes are returned as they are: such an SDK may mark spans that another instrumentation wrote.
    """
    if any(name in attributes for name in ("gen_ai.input.messages", "openinference.span.kind")):
        return attributes
    if _LANGFUSE_TYPE in attributes and "gen_ai.operation.name" not in attributes:
        documents = _from_langfuse(_langfuse_observation(attributes, name, parent_id))
    elif _LANGSMITH_KIND in attributes:
        documents = _from_langsmith(_langsmith_run(attributes, name, parent_id))
    else:
        return attributes
    return {**attributes, **as_map(next(documents), "attributes")}


def _langfuse_observation(attributes: JsonMap, name: str, parent_id: str) -> JsonMap:
    """An observation from the attributes of its span."""
    prefix = "langfuse.observation."
    metadata = f"{prefix}metadata."
    return {
        "type": attributes[_LANGFUSE_TYPE],
        "name": name,
        "traceId": "",
        "parentObservationId": parent_id,
        "input": _json(attributes.get(f"{prefix}input")),
        "output": _json(attributes.get(f"{prefix}output")),
        "model": attributes.get(f"{prefix}model.name"),
        "usageDetails": _json(attributes.get(f"{prefix}usage_details")),
        "costDetails": _json(attributes.get(f"{prefix}cost_details")),
        "agent": _json(attributes.get(f"{metadata}lc_agent_name")),
        "toolCallId": _json(attributes.get(f"{metadata}tool_call_id")),
    }


def _is_definition(message: object) -> bool:
    return as_text(message, "role") == "tool" and as_text(message, "content", "type") == "function"


def _langsmith_run(attributes: JsonMap, name: str, parent_id: str) -> JsonMap:
    """A run from the attributes of its span."""
    prefix = "langsmith.metadata."
    metadata = {
        key.removeprefix(prefix): _json(value) for key, value in attributes.items() if key.startswith(prefix)
    }
    return {
        "id": "",
        "run_type": attributes[_LANGSMITH_KIND],
        "name": name,
        "parent_run_id": parent_id,
        "inputs": _json(attributes.get("gen_ai.prompt")),
        "outputs": _json(attributes.get("gen_ai.completion")),
        "extra": {"metadata": metadata},
    }


def _json(value: object) -> object:
    if isinstance(value, str) and value[:1] in ("{", "[", '"'):
        with suppress(ValueError):
            return parse_json(value)
    return value


def _is_context(value: JsonMap) -> bool:
    return isinstance(value.get("context"), Mapping) and bool(as_map(value, "context").get("trace_id"))


def _is_columns(value: JsonMap) -> bool:
    return "context.trace_id" in value and "context.span_id" in value


def _is_snake(value: JsonMap) -> bool:
    return "trace_id" in value and "span_id" in value


def _is_langfuse_observation(value: JsonMap) -> bool:
    return str(value.get("type")).upper() in _LANGFUSE_TYPES and "traceId" in value and "startTime" in value


def _is_langfuse_download(value: JsonMap) -> bool:
    return isinstance(value.get("trace"), Mapping) and isinstance(value.get("observations"), list)


def _is_langfuse_trace(value: JsonMap) -> bool:
    return isinstance(value.get("observations"), list) and "id" in value


def _is_langsmith(value: JsonMap) -> bool:
    return isinstance(value.get("run_type"), str) and "id" in value


def _from_context(value: JsonMap) -> Iterator[JsonMap]:
    """A span of Python's console exporter or of Phoenix: its ids are in a context."""
    context = as_map(value, "context")
    flat = {**value, "trace_id": context.get("trace_id"), "span_id": context.get("span_id")}
    attributes = dict(flatten(as_map(value, "attributes")))
    if value.get("span_kind"):
        attributes.setdefault("openinference.span.kind", value["span_kind"])
    yield from _from_snake({**flat, "attributes": attributes})


def _from_columns(value: JsonMap) -> Iterator[JsonMap]:
    """A row of Phoenix's data frame, whose columns are dotted names."""
    prefix = "attributes."
    attributes = {
        key.removeprefix(prefix): member
        for key, member in value.items()
        if key.startswith(prefix) and member is not None
    }
    context = {name: value.get(f"context.{name}") for name in ("trace_id", "span_id")}
    yield from _from_context({**value, "context": context, "attributes": attributes})


def _from_snake(value: JsonMap) -> Iterator[JsonMap]:
    """A flat span or event record whose members are written in snake_case."""
    scope = value.get("scope") or value.get("instrumentation_scope")
    place: JsonObject = {
        "traceId": value.get("trace_id"),
        "spanId": value.get("span_id"),
        "resource": value.get("resource"),
        "scope": {"name": scope} if isinstance(scope, str) else scope,
    }
    if value.get("start_time") is None and value.get("end_time") is None and "start_time" not in value:
        yield _record(value, place)
        return
    events = [*maps_in(value, "span_events"), *maps_in(value, "events")]
    yield place | {
        "parentSpanId": value.get("parent_span_id") or value.get("parent_id"),
        "name": value.get("name"),
        "kind": value.get("kind"),
        "startTimeUnixNano": time_of(value.get("start_time")),
        "endTimeUnixNano": time_of(value.get("end_time")),
        "status": value.get("status")
        or {"code": value.get("status_code"), "message": value.get("status_message")},
        "attributes": value.get("attributes"),
        "events": [_event(event) for event in events if event.get("body") is None],
    }
    for event in events:
        # An event with a body is the log record of its span.
        if event.get("body") is not None:
            yield _record(event, {**place, "spanId": event.get("span_id") or place["spanId"]})


def _record(value: JsonMap, place: JsonMap) -> JsonMap:
    attributes = as_map(value, "attributes")
    name = value.get("event_name") or value.get("name") or attributes.get("event.name")
    times = (value.get(key) for key in ("time_unix_nano", "timestamp", "observed_timestamp"))
    return {
        **place,
        "timeUnixNano": next((time for each in times if (time := time_of(each))), 0),
        "attributes": {**attributes, **({"event.name": name} if name else {})},
        "body": value.get("body"),
    }


def _event(event: JsonMap) -> JsonObject:
    return {
        "name": event.get("event_name") or event.get("name"),
        "timeUnixNano": time_of(event.get("timestamp") or event.get("time_unix_nano")),
        "attributes": event.get("attributes"),
    }


def _from_langfuse_download(value: JsonMap) -> Iterator[JsonMap]:
    """What the page of a trace downloads: the trace beside its observations."""
    return _from_langfuse_trace({**as_map(value, "trace"), "observations": value["observations"]})


def _from_langfuse_trace(value: JsonMap) -> Iterator[JsonMap]:
    """A trace with its observations; the trace itself is their root."""
    trace_id, session = as_text(value["id"]), value.get("sessionId")
    observations = [each for each in maps_in(value, "observations") if each.get("startTime")]
    times = [time_of(each.get(key)) for each in observations for key in ("startTime", "endTime")]
    started = time_of(value.get("timestamp")) or min(filter(None, times), default=0)
    # A trace repeats what its outermost observation says, and is needed only where none says it.
    own = {
        each: None if any(other.get(each) for other in observations) else _json(value.get(each))
        for each in ("input", "output")
    }
    is_needed = any(own.values()) or not observations
    if is_needed:
        yield {
            "traceId": trace_id,
            "spanId": trace_id,
            "name": value.get("name"),
            "startTimeUnixNano": min(started, *filter(None, times)) if any(times) else started,
            "endTimeUnixNano": max((started, *times)),
            "attributes": _present(
                {
                    "gen_ai.operation.name": "invoke_workflow",
                    "session.id": session,
                    "gen_ai.input.messages": own["input"],
                    "gen_ai.output.messages": own["output"],
                }
            ),
        }
    for observation in observations:
        parent = observation.get("parentObservationId") or (trace_id if is_needed else None)
        yield from _from_langfuse(
            {"sessionId": session, **observation, "traceId": trace_id, "parentObservationId": parent}
        )


def _from_langfuse(value: JsonMap) -> Iterator[JsonMap]:
    """One observation."""
    kind, name = str(value["type"]).upper(), str(value.get("name") or "")
    (payload, tools), returned = _langfuse_input(value.get("input")), value.get("output")
    metadata = as_map(_json(value.get("metadata")))
    attributes = {
        key: each for key, each in as_map(metadata, "attributes").items() if not key.startswith("langfuse.")
    }
    operation = _LANGFUSE_OPERATIONS.get(kind, "")
    if kind == "CHAIN" and not value.get("parentObservationId"):
        operation = "invoke_workflow"
    if kind == "SPAN":
        operation = next(
            (each for each in ("invoke_agent", "execute_tool") if name.startswith(each)), operation
        )
        if "gen_ai.tool.name" in attributes or _is_tool_message(returned):
            operation = "execute_tool"
        elif "agent_name" in attributes:
            operation = "invoke_agent"
    content = _recorded(attributes, payload, returned) or _content(operation, name, payload, returned)
    usage = as_map(value, "usageDetails") or as_map(value, "usage")
    costs = (value.get(key) for key in ("totalCost", "calculatedTotalCost"))
    cost = next((each for each in costs if each is not None), as_map(value, "costDetails").get("total"))
    is_error = str(value.get("level") or "").upper() == "ERROR"
    yield {
        "traceId": value["traceId"],
        "spanId": value.get("id"),
        "parentSpanId": value.get("parentObservationId"),
        "name": name,
        "startTimeUnixNano": time_of(value.get("startTime")),
        "endTimeUnixNano": time_of(value.get("endTime")),
        "status": {"code": "ERROR", "message": value.get("statusMessage")} if is_error else {"code": "OK"},
        "resource": {"attributes": as_map(metadata, "resourceAttributes")},
        "scope": metadata.get("scope"),
        "attributes": _present(
            {
                **content,
                "session.id": value.get("sessionId"),
                "gen_ai.request.model": value.get("model") or value.get("providedModelName"),
                "gen_ai.usage.input_tokens": usage.get("input") or value.get("promptTokens"),
                "gen_ai.usage.output_tokens": usage.get("output") or value.get("completionTokens"),
                "gen_ai.usage.cache_read.input_tokens": usage.get("input_cached_tokens")
                or usage.get("cache_read_input_tokens"),
                "gen_ai.tool.definitions": tools or value.get("tools") or None,
                "gen_ai.tool.call.id": value.get("toolCallId"),
                # The outermost chain of LangGraph is its agent.
                **({"gen_ai.agent.name": value.get("agent")} if operation == "invoke_workflow" else {}),
                **({"gen_ai.agent.name": attributes["agent_name"]} if "agent_name" in attributes else {}),
                **attributes,
                # Totals of a parent repeat its children.
                "operation.cost": as_cost(cost) if operation == "chat" else None,
            }
        ),
    }


def _langfuse_input(value: object) -> tuple[object, list[JsonMap]]:
    """The input of an observation and the tools that a model was offered, which stand among its messages."""
    payload = _json(value)
    if isinstance(payload, str) and payload.startswith(("system: ", "developer: ")):
        # "system: Be brief.\nuser: Hello"
        _, *parts = _SPOKEN.split(payload)
        payload = [
            {"role": role, "content": text.strip()}
            for role, text in zip(parts[::2], parts[1::2], strict=True)
        ]
    messages = payload if isinstance(payload, list) else []
    tools = [as_map(each, "content") for each in messages if _is_definition(each)]
    if not messages:
        return (None if payload == _NO_PAYLOAD else payload), tools
    return [_langfuse_message(each) for each in messages if not _is_definition(each)], tools


def _langfuse_message(message: object) -> object:
    """A message; Langfuse writes the name of a tool in place of its role."""
    role = as_text(message, "role")
    is_tool = role and "additional_kwargs" in as_map(message) and role.lower() not in ROLES
    return {**as_map(message), "role": "tool", "name": role} if is_tool else message


def _recorded(attributes: JsonMap, payload: object, returned: object) -> JsonObject | None:
    """The content of an observation under the names of the instrumentation that recorded it.

    Langfuse moves content out of the attributes of a span. None: it is not of a known instrumentation.
    """
    if "openinference.span.kind" in attributes:
        return {"input.value": payload, "output.value": returned}
    if _LANGSMITH_KIND in attributes:
        return {"gen_ai.prompt": payload, "gen_ai.completion": returned}
    operation = str(attributes.get("ai.operationId") or "")
    if operation == "ai.toolCall":
        return {"ai.toolCall.args": payload, "ai.toolCall.result": returned}
    if operation:
        answer = _json(returned)
        part = "toolCalls" if isinstance(answer, list) else "text" if isinstance(answer, str) else "object"
        return {"ai.prompt": payload, f"ai.response.{part}": answer}
    return None


def _is_tool_message(returned: object) -> bool:
    """Whether this is the message of a tool, as LangChain serializes it."""
    message = as_map(_json(returned))
    message = as_map(message, "kwargs") or message
    return "content" in message and bool(message.get("tool_call_id"))


def _from_langsmith(value: JsonMap) -> Iterator[JsonMap]:
    """A run with the runs below it."""
    kind, name = as_text(value, "run_type"), str(value.get("name") or "")
    parent = value.get("parent_run_id") or _parent_in_order(as_text(value, "dotted_order"))
    operation = _LANGSMITH_OPERATIONS.get(kind, "")
    if kind == "chain" and not parent:
        operation = "invoke_workflow"
    metadata, trace_id = as_map(value, "extra", "metadata"), value.get("trace_id") or value["id"]
    error, inputs = value.get("error"), as_map(value, "inputs")
    # Exports of the server have counts of their own; the client knows those of the message.
    usage, is_workflow = as_map(metadata, "usage_metadata"), operation == "invoke_workflow"
    tools = as_map(value, "extra", "invocation_params").get("tools")
    payload = inputs["input"] if operation == "execute_tool" and set(inputs) == {"input"} else inputs or None
    yield {
        "traceId": trace_id,
        "spanId": value["id"],
        "parentSpanId": parent,
        "name": name,
        "startTimeUnixNano": time_of(value.get("start_time")),
        "endTimeUnixNano": time_of(value.get("end_time")),
        "status": {"code": "ERROR", "message": error} if error else {"code": "OK"},
        "attributes": _present(
            {
                **_content(operation, name, payload, _langsmith_answer(as_map(value, "outputs"))),
                # The `session_id` of a run is its project.
                "session.id": next((metadata[key] for key in _LANGSMITH_SESSIONS if metadata.get(key)), None),
                "gen_ai.request.model": metadata.get("ls_model_name")
                or as_map(value, "extra", "invocation_params").get("model"),
                "gen_ai.provider.name": metadata.get("ls_provider"),
                "gen_ai.usage.input_tokens": value.get("prompt_tokens") or usage.get("input_tokens"),
                "gen_ai.usage.output_tokens": value.get("completion_tokens") or usage.get("output_tokens"),
                "gen_ai.tool.definitions": tools if operation == "chat" else None,
                **({"gen_ai.agent.name": metadata.get("lc_agent_name")} if is_workflow else {}),
                "operation.cost": as_cost(value, "total_cost") if operation == "chat" else None,
            }
        ),
    }
    for child in maps_in(value, "child_runs"):
        if _is_langsmith(child):
            own: JsonMap = {"parent_run_id": value["id"], **child, "trace_id": trace_id}
            yield from _from_langsmith(own)


def _langsmith_answer(outputs: JsonMap) -> object:
    """What a run returned: the message of the first choice where there are several."""
    first_choice = next(iter(maps_in(outputs, "choices")), None)
    if first_choice is not None:
        return first_choice.get("message") or first_choice
    generations = as_list(outputs, "generations")
    first = next(iter(generations), None)
    first = next(iter(first), None) if isinstance(first, list) else first
    if isinstance(first, Mapping):
        return first.get("message") or first.get("text")
    return outputs.get("output", outputs or None)


def _parent_in_order(dotted_order: str) -> str:
    parts = dotted_order.split(".")
    match = _ORDERED_RUN.match(parts[-2]) if len(parts) > 1 else None
    return match[1] if match else ""


def _content(operation: str, name: str, payload: object, returned: object) -> JsonObject:
    """The attributes of an operation's content by the GenAI conventions."""
    if not operation:
        return {}
    kind: JsonObject = {"gen_ai.operation.name": operation}
    if operation == "execute_tool":
        return kind | {
            "gen_ai.tool.name": name.removeprefix("execute_tool").strip(),
            "gen_ai.tool.call.arguments": payload,
            "gen_ai.tool.call.result": returned,
        }
    if operation in ("retrieval", "embeddings"):
        return kind | {"input.value": payload, "output.value": returned}
    if operation == "invoke_agent":
        kind["gen_ai.agent.name"] = name.removeprefix("invoke_agent").strip() or name
    return kind | {"gen_ai.input.messages": payload, "gen_ai.output.messages": returned}


def time_of(value: object) -> int:
    """A time in nanoseconds, from ISO text or a number in seconds to nanoseconds; 0: none.

    Text without a zone is UTC.
    """
    if isinstance(value, str) and not value.isdigit():
        moment = as_datetime(value.replace(" UTC", ""))
        if moment is None:
            return 0
        since = moment - _EPOCH
        return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000
    if isinstance(value, float):
        value = int(value * 1e9) if value < 1e11 else int(value)
    number = parsed_integer(value) or 0
    for limit, factor in ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3)):
        if 0 < number < limit:
            return number * factor
    return max(0, number)


def flatten(value: JsonMap, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, object]]:
    """Nested attributes under dotted names, as OpenInference numbers them."""
    for key, member in value.items():
        name = f"{prefix}{key}"
        inner: JsonMap | None = None
        if isinstance(member, Mapping) and member:
            inner = member
        elif isinstance(member, list) and member and all(isinstance(entry, Mapping) for entry in member):
            inner = {str(position): entry for position, entry in enumerate(member)}
        if inner is None or depth >= NESTED_DEEPEST:
            yield name, member
        else:
            yield from flatten(inner, f"{name}.", depth + 1)


def _present(attributes: JsonMap) -> JsonObject:
    return {key: value for key, value in attributes.items() if value not in (None, "")}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXPORTS: tuple[tuple[Callable[[JsonMap], bool], Callable[[JsonMap], Iterator[JsonMap]]], ...] = (
    (_is_langfuse_download, _from_langfuse_download),
    (_is_langfuse_trace, _from_langfuse_trace),
    (_is_langfuse_observation, _from_langfuse),
    (_is_langsmith, _from_langsmith),
    (_is_context, _from_context),
    (_is_columns, _from_columns),
    (_is_snake, _from_snake),
)
