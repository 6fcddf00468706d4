"""Builds sessions from documents.

Each trace is a step, with its messages, model calls and tool calls in order. Agents send the whole
conversation with each request, so only new messages are added. The outermost agents of a trace determine its
prompt and answer; model spans fill in what they lack. Nested agents contribute their actions and messages
under their own name; their input is that of a tool.
"""

import json
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from proctor.json_values import JsonMap, JsonObject, as_map, as_text
from proctor.session import Event, Message, ModelCall, Session, Step, TimedEvent, ToolCall, Usage
from proctor.telemetry.dialects import read_span
from proctor.telemetry.documents import Document, is_span, mark_of, nanoseconds, sessions_among
from proctor.telemetry.messages import ParsedMessage, ParsedToolCall, ParsedToolResult, parse_nested
from proctor.telemetry.span import (
    Span,
    SpanReading,
    cost_of,
    model_of,
    provider_of,
    served_in,
    span_of,
    usage_of,
)

SOURCE = "otlp"
MOST_ATTRIBUTES = 100
LONGEST_ATTRIBUTE = 200
_CONTENT = (
    "message",
    "prompt",
    "completion",
    "input",
    "output",
    "content",
    "value",
    "instructions",
    "entity",
    "arguments",
    "args",
    "result",
    "definitions",
    "text",
    "exception",
    "parameters",
    "description",
    "json_schema",
    "query",
    "response",
    "body",
    "tools",
    "metadata",
)
"""Parts of the names of attributes with message content, which belongs in the transcript only."""
_PROMPT_NAME = re.compile(r"(^|\.)prompt\.(name|version)$")
"""Attributes that name a prompt, which have none of its content."""
_FIGURES = ("usage", "token_count", "duration", "time")
"""Parts of the names of figures of one span, which are not attributes of the session."""


@dataclass(frozen=True, slots=True)
class RequestedTool:
    """A tool call requested by a model; counts if no span records it."""

    call: ParsedToolCall
    trace_id: str
    owner: str = ""
    """The agent whose model requested it."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A tool result in a later request; counts if the call is unknown otherwise."""

    result: ParsedToolResult


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call recorded by a span."""

    call: ToolCall
    model_call_id: str
    """The id that the model gave the call; empty: the span has none."""
    trace_id: str
    owner: str = ""


TimedItem = tuple[int, Event | RequestedTool | ModelAnswer | ToolUse]
"""Nanoseconds, and an event or a part of one."""


class SpanTranscript:
    """All events of one session, over its traces.

    Outputs of models are new; inputs are history. Once a model of an agent has answered, messages of the
    assistant are not taken from its inputs: frameworks repeat them under other ids and in other notations.
    """

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, ...]] = Counter()
        self._answered: set[str] = set()
        self._requested: dict[str, ParsedToolCall] = {}
        self._requests = list[RequestedTool]()
        self._uses = list[ToolUse]()
        self._results: dict[str, ParsedToolResult] = {}
        self._pairs: dict[int, RequestedTool] | None = None
        self._paired: set[int] = set()
        self._used_ids: set[str] = set()
        self._used_results: set[str] = set()

    def add_conversation(
        self, messages: Iterable[ParsedMessage], at: int, trace_id: str, owner: str = ""
    ) -> Iterator[TimedItem]:
        """The new messages of a conversation that is sent repeatedly."""
        counted: Counter[tuple[str, ...]] = Counter()
        for message in messages:
            if message.role == "assistant" and owner in self._answered:
                continue
            calls = tuple(call for call in message.calls if self._is_new_call(call, counted))
            keys = [_text_key(message)] if message.text.strip() else []
            results = list[ParsedToolResult]()
            for result in message.results:
                counted[_result_key(result)] += 1
                if counted[_result_key(result)] > self._seen[_result_key(result)]:
                    results.append(result)
            for key in keys:
                counted[key] += 1
            is_new = any(counted[key] > self._seen[key] for key in keys)
            text = message.text if is_new else ""
            if text or calls or results:
                yield from self.add_message(
                    replace(message, text=text, calls=calls, results=tuple(results)), at, trace_id, owner
                )

    def know_calls(self, messages: Iterable[ParsedMessage]) -> None:
        """Tool calls of earlier turns, which a later request repeats, are not of this session."""
        counted: Counter[tuple[str, ...]] = Counter()
        for message in messages:
            for call in message.calls:
                if self._is_new_call(call, counted):
                    self._seen[_call_key(call)] += 1
                    if call.id:
                        self._requested[call.id] = call
            for result in message.results:
                counted[_result_key(result)] += 1
                self._seen[_result_key(result)] = max(
                    self._seen[_result_key(result)], counted[_result_key(result)]
                )

    def add_output(self, message: ParsedMessage, at: int, trace_id: str, owner: str) -> Iterator[TimedItem]:
        """An output of a model of this agent."""
        self._answered.add(owner)
        return self.add_message(message, at, trace_id, owner)

    def add_message(
        self, message: ParsedMessage, at: int, trace_id: str, owner: str = ""
    ) -> Iterator[TimedItem]:
        """A new message, even if an equal one exists."""
        if message.text.strip():
            self._seen[_text_key(message)] += 1
            yield at, Message(role=message.role, content=message.text, name=message.name)
        for call in message.calls:
            if call.id:
                self._requested[call.id] = call
            self._seen[_call_key(call)] += 1
            request = RequestedTool(call, trace_id, owner)
            self._requests.append(request)
            yield at, request
        for result in message.results:
            self._seen[_result_key(result)] += 1
            if result.id:
                self._results.setdefault(result.id, result)
            yield at, ModelAnswer(result)

    def add_tool_use(self, used: ToolUse) -> ToolUse:
        """A tool call recorded by a span."""
        self._uses.append(used)
        self._used_ids.add(used.model_call_id)
        self._used_results.add(used.call.result.strip())
        return used

    def events(self, earlier: Sequence[TimedItem]) -> Iterator[tuple[int, Event]]:
        """The events, with each tool call once and its outcome. Only after all traces were read."""
        pairs = self._pair()
        for at, what in earlier:
            if isinstance(what, ToolUse):
                yield at, self._completed(what, pairs.get(id(what)))
            elif isinstance(what, RequestedTool):
                if id(what) not in self._paired:
                    yield at, self._unrecorded(what.call)
            elif isinstance(what, ModelAnswer):
                if not self._is_known(what.result) and what.result.text.strip():
                    yield at, Message(role="tool", content=what.result.text)
            else:
                yield at, what

    def _is_new_call(self, call: ParsedToolCall, counted: Counter[tuple[str, ...]]) -> bool:
        """Whether a call in a history is not recorded yet: neither its id, nor as many calls with its
        arguments as the history has."""
        key = _call_key(call)
        counted[key] += 1
        return call.id not in self._requested and counted[key] > self._seen[key]

    def _pair(self) -> Mapping[int, RequestedTool]:
        """The request of each recorded call: by id, by name and arguments within its agent, or by name."""
        if self._pairs is not None:
            return self._pairs
        self._pairs = {}
        self._pair_by(
            lambda use: use.model_call_id and (use.model_call_id,),
            lambda request: request.call.id and (request.call.id,),
        )
        self._pair_by(
            lambda use: (use.owner, *_call_key(ParsedToolCall("", use.call.name, use.call.args))),
            lambda request: (request.owner, *_call_key(request.call)),
        )
        self._pair_by(
            lambda use: "" if use.model_call_id else (use.trace_id, use.call.name),
            lambda request: (request.trace_id, request.call.name),
        )
        return self._pairs

    def _pair_by(
        self,
        key_of_use: Callable[[ToolUse], tuple[str, ...] | str],
        key_of_request: Callable[[RequestedTool], tuple[str, ...] | str],
    ) -> None:
        """Pair what is not yet paired and has the same key, the first with the first."""
        pairs = self._pairs if self._pairs is not None else {}
        waiting: dict[tuple[str, ...] | str, deque[RequestedTool]] = defaultdict(deque)
        for request in self._requests:
            if id(request) not in self._paired and (key := key_of_request(request)):
                waiting[key].append(request)
        for use in self._uses:
            key = key_of_use(use)
            if id(use) in pairs or not key or not waiting[key]:
                continue
            pairs[id(use)] = request = waiting[key].popleft()
            self._paired.add(id(request))

    def _completed(self, used: ToolUse, request: RequestedTool | None) -> ToolCall:
        """A tool call, completed from the conversation."""
        call = used.call
        named = used.model_call_id or (request.call.id if request else "")
        if request is not None and (not call.args or _is_same_text(call.args, request.call.args)):
            call = replace(call, args=request.call.args)
        result = self._results.get(named)
        if result is not None:
            # Some frameworks tell only the model that a tool has failed.
            call = replace(
                call, result=call.result or result.text, success=call.success and not result.is_error
            )
        return call

    def _unrecorded(self, call: ParsedToolCall) -> ToolCall:
        result = self._results.get(call.id) if call.id else None
        return ToolCall(
            name=call.name,
            args=call.args,
            success=None if result is None else not result.is_error,
            result=result.text if result else "",
            call_id=call.id,
        )

    def _is_known(self, result: ParsedToolResult) -> bool:
        if result.id and (result.id in self._requested or result.id in self._used_ids):
            return True
        return result.text.strip() in self._used_results


def _text_key(message: ParsedMessage) -> tuple[str, ...]:
    """Equal for one message in two notations."""
    return message.role, " ".join(message.text.split())


def _call_key(call: ParsedToolCall) -> tuple[str, ...]:
    """Equal for one call under two ids: its name and its arguments in one notation."""
    return "call", call.name, canonical(call.args)


def _result_key(result: ParsedToolResult) -> tuple[str, ...]:
    return "result", result.id or " ".join(result.text.split())


def canonical(value: object) -> str:
    """Equal for equal arguments: keys are sorted, empty values omitted, and 240.0 is 240."""
    return json.dumps(_plain(value), sort_keys=True, ensure_ascii=False, default=str)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        members = {str(key): _plain(each) for key, each in value.items()}
        return {key: each for key, each in members.items() if each not in ("", None, {}, [])}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    parsed = parse_nested(value)
    return _plain(parsed) if parsed is not value else value


UNKNOWN_MODEL = "unknown"
NANOSECONDS_PER_MILLISECOND = 1_000_000
DEEPEST = 100
"""Maximum number of ancestors of a span. Agents nest a dozen deep; a chain of thousands is an attack."""

# Order of simultaneous events.
_AGENT_INPUT, _MODEL_INPUT, _MODEL_OUTPUT, _TOOL_USED, _AGENT_OUTPUT = range(5)


class TraceReader:
    """The spans of one trace."""

    def __init__(
        self, spans: Sequence[Span], read: Mapping[str, SpanReading], transcript: SpanTranscript
    ) -> None:
        """`read` has the readings by span id; spans without one count only for start and end of the turn."""
        self.trace_id = spans[0].trace_id
        self.started = min((span.started for span in spans if span.started), default=0)
        self.ended = max(span.ended for span in spans)
        self.read, self._transcript = read, transcript
        self._by_id = {span.span_id: span for span in spans}
        self._tool_of = dict[str, str]()
        self._finished = _finished(spans)
        self._repeated: dict[str, list[SpanReading]] = defaultdict(list)
        self._answered_in = dict[str, str]()
        self._spans = [span for span in spans if span.span_id in read and not self._is_repeated(span)]
        self._tool_of = self._agents_in_tools()
        agents = [span for span in self._spans if read[span.span_id].kind == "agent"]
        self.roots = [span for span in agents if not self._above(span, "agent")]
        """The outermost agents."""
        self.name = next((read[root.span_id].trace_id for root in self.roots), "") or self.trace_id
        """Id of the turn: the one before it was exported, or the trace id."""

    @property
    def keys(self) -> list[tuple[str, str]]:
        """Trace and span ids that were read."""
        return [(self.trace_id, span_id) for span_id in self.read]

    @property
    def has_work(self) -> bool:
        """Whether any span records work of an agent."""
        return bool(self._spans)

    def items(self) -> list[TimedItem]:
        """The events in order."""
        verbatim = [span for span in self.roots if self.read[span.span_id].transcript is not None]
        if verbatim:
            return self._verbatim_items(verbatim)
        moments = sorted(self._moments(), key=lambda each: each[:2])
        earlier = list[TimedItem]()
        for at, rank, span in moments:
            earlier += self._items_at(at, rank, span, earlier)
        return earlier

    def failure(self, items: Sequence[TimedItem]) -> Span | None:
        """The span with which the turn failed; None: it did not.

        An outermost agent that failed; without one, an agent of a workflow, or a model call, that failed and
        after which nothing was answered. What failed within a tool is for its caller to handle.
        """
        failed = next((root for root in self.roots if self.read[root.span_id].has_failed), None)
        answered = max((at for at, what in items if _is_answer(what)), default=0)
        for span in () if failed else reversed(self._spans):
            reading = self.read[span.span_id]
            is_late = reading.has_failed and self._finished[span.span_id] >= answered
            if is_late and reading.kind in ("agent", "inference") and not self._above(span, "tool"):
                failed = span if failed is None or reading.kind == "agent" else failed
        return failed

    def _moments(self) -> Iterator[tuple[int, int, Span]]:
        outermost = {root.span_id for root in self.roots}
        answering = self._answering()
        for span in self._spans:
            kind = self.read[span.span_id].kind
            ended = max(self._finished[span.span_id], answering.get(span.span_id, 0))
            if kind in ("tool", "step"):
                yield ended, _TOOL_USED, span
            elif kind == "inference":
                yield span.started, _MODEL_INPUT, span
                yield ended, _MODEL_OUTPUT, span
            elif span.span_id in outermost:
                yield span.started, _AGENT_INPUT, span
                yield ended, _AGENT_OUTPUT, span

    def _answering(self) -> dict[str, int]:
        """When the model beside a tool had answered, for tools that began before: answers may be streamed."""
        latest, ended = dict[str, Span](), dict[str, int]()
        for span in self._spans:
            kind, model = self.read[span.span_id].kind, latest.get(span.parent_id)
            if kind == "inference" and span.parent_id:
                latest[span.parent_id] = span
            elif kind == "tool" and model is not None and span.started < model.ended:
                ended[span.span_id] = model.ended
        return ended

    def _items_at(self, at: int, rank: int, span: Span, earlier: Sequence[TimedItem]) -> list[TimedItem]:
        reading = self.read[span.span_id]
        if rank == _TOOL_USED:
            return self._tool_items(at, span, reading)
        if rank == _AGENT_INPUT:
            return self._opening(at, span, reading, earlier)
        if rank == _AGENT_OUTPUT:
            return self._closing(at, span, reading, earlier)
        if rank == _MODEL_INPUT:
            return self._input_items(at, span, reading, earlier)
        return self._output_items(at, span, reading)

    def _tool_items(self, at: int, span: Span, reading: SpanReading) -> list[TimedItem]:
        """A tool call, or what another step such as a retrieval returned."""
        if reading.kind == "tool":
            used = replace(_used(span, self._whole(span, reading)), owner=self._owner(span))
            return [(at, self._transcript.add_tool_use(used))]
        text = reading.tool_result or ""
        return [(at, Message(role="tool", content=text, name=reading.tool))] if text.strip() else []

    def _opening(
        self, at: int, span: Span, reading: SpanReading, earlier: Sequence[TimedItem]
    ) -> list[TimedItem]:
        """The prompt of an outermost agent. Its last message is new, even if an equal one exists."""
        fresh = None if _has_user(earlier) else _last(reading.inputs, "user")
        items = list(self._system(at, reading))
        history = self._history(span, reading)
        self._transcript.know_calls(history)
        said = [replace(message, calls=(), results=()) for message in history]
        before = [*said, *(message for message in reading.inputs if message is not fresh)]
        if fresh is not None and reading.inputs[-1] is fresh:
            items += self._transcript.add_conversation(before, at, self.trace_id, reading.agent)
            return items + list(self._transcript.add_message(fresh, at, self.trace_id))
        return items + list(
            self._transcript.add_conversation(reading.inputs, at, self.trace_id, reading.agent)
        )

    def _history(self, agent: Span, reading: SpanReading) -> list[ParsedMessage]:
        """What precedes the question of an agent in the first request to its model: earlier turns."""
        below = (each for each in self._spans if self.read[each.span_id].kind == "inference")
        first = next((each for each in below if agent in self._above(each, "agent")), None)
        if first is None or len(reading.inputs) != 1:
            return []
        talk = [message for message in self.read[first.span_id].inputs if message.role != "system"]
        return talk[:-1] if talk and _text_key(talk[-1]) == _text_key(reading.inputs[0]) else []

    def _closing(
        self, at: int, span: Span, reading: SpanReading, earlier: Sequence[TimedItem]
    ) -> list[TimedItem]:
        """The answer of an outermost agent, unless its model has just given it."""
        items = list[TimedItem]()
        if not any(self.read[each.span_id].kind == "inference" for each in self._spans):
            usage = usage_of(span)
            if usage != Usage():
                items.append((at, _model_call(span, reading, usage)))
        answer = _last(reading.outputs, "assistant")
        if answer is None or any(_repeats(answer, what) for _, what in earlier):
            return items
        return items + list(self._transcript.add_message(replace(answer, calls=()), at, self.trace_id))

    def _input_items(
        self, at: int, span: Span, reading: SpanReading, earlier: Sequence[TimedItem]
    ) -> list[TimedItem]:
        """What is new in a request to a model."""
        items = list(self._system(at, reading))
        inputs = [message for message in reading.inputs if message.role != "system"]
        if self._inner_agent(span) and _has_user(earlier):
            inputs = [message for message in inputs if message.role != "user"]
        last, owner = inputs[-1] if inputs else None, self._owner(span)
        is_first = not _has_user(earlier) and not self.roots
        if last is not None and last.role == "user" and (is_first or self._is_run_again(span, owner)):
            # The only source for the prompt of this turn: the last message of the user.
            items += self._transcript.add_conversation(inputs[:-1], at, self.trace_id, owner)
            return items + list(self._transcript.add_message(last, at, self.trace_id))
        return items + list(self._transcript.add_conversation(inputs, at, self.trace_id, owner))

    def _is_run_again(self, span: Span, owner: str) -> bool:
        """Whether this is the first request of a further run of an agent, in a workflow without messages."""
        before = self._answered_in.get(owner)
        return before not in (None, self._run(span)) and not any(
            message.role == "user" for root in self.roots for message in self.read[root.span_id].inputs
        )

    def _run(self, span: Span) -> str:
        """Span id of the named agent that a model or tool works for; empty: none."""
        named = (each.span_id for each in self._above(span, "agent") if self.read[each.span_id].agent)
        return next(named, "")

    def _output_items(self, at: int, span: Span, reading: SpanReading) -> list[TimedItem]:
        items: list[TimedItem] = [(at, _model_call(span, reading, usage_of(span)))]
        inner, owner = self._inner_agent(span), self._owner(span)
        for message in reading.outputs:
            if message.role == "assistant":
                self._answered_in[owner] = self._run(span)
                items += self._transcript.add_output(
                    replace(message, name=message.name or inner), at, self.trace_id, owner
                )
        return items

    def _system(self, at: int, reading: SpanReading) -> Iterator[TimedItem]:
        written = [ParsedMessage("system", reading.system)] if reading.system else []
        return self._transcript.add_conversation(
            written or [message for message in reading.inputs if message.role == "system"], at, self.trace_id
        )

    def _verbatim_items(self, spans: Sequence[Span]) -> list[TimedItem]:
        """A turn recorded as a whole, with the calls of other spans."""
        earlier = list[tuple[tuple[int, int], TimedItem]]()
        for span in spans:
            for position, (message, at) in enumerate(self.read[span.span_id].transcript or ()):
                event = Message(role=message.role, content=message.text, name=message.name)
                earlier.append(((at, position), (at, event)))
        for number, span in enumerate(self._spans):
            reading = self.read[span.span_id]
            if reading.kind == "tool":
                earlier.append(
                    ((span.ended, number), (span.ended, reading.event or _used(span, reading).call))
                )
            elif reading.kind == "inference":
                call = reading.event or _model_call(span, reading, usage_of(span))
                earlier.append(((span.ended, number), (span.ended, call)))
        return [each for _, each in sorted(earlier, key=lambda each: each[0])]

    def _is_repeated(self, span: Span) -> bool:
        """Whether an enclosing span records the same call: two instrumentations were active."""
        reading = self.read[span.span_id]
        models, tools = self._above(span, "inference"), self._above(span, "tool")
        if reading.kind == "inference":
            # A model that a tool calls is another one.
            return bool(models) and not (tools and models[0] in self._above(tools[0], "inference"))
        same = [each for each in tools if self.read[each.span_id].tool == reading.tool]
        if reading.kind != "tool" or not same:
            return False
        self._repeated[same[-1].span_id].append(reading)
        return True

    def _whole(self, span: Span, reading: SpanReading) -> SpanReading:
        """The reading of a tool, with what only another instrumentation's span below it says."""
        for repeated in self._repeated.get(span.span_id, ()):
            reading = replace(
                reading,
                has_failed=reading.has_failed or repeated.has_failed,
                tool_call_id=reading.tool_call_id or repeated.tool_call_id,
            )
        return reading

    def _inner_agent(self, span: Span) -> str:
        """Name of the nested agent of this span; empty: the outermost one."""
        agents = [each for each in self._above(span, "agent") if self.read[each.span_id].agent]
        if not agents or (len(agents) == 1 and not self._above(agents[0], "tool")):
            return ""
        return self.read[agents[0].span_id].agent

    def _owner(self, span: Span) -> str:
        """Name of the agent that a model or tool works for; empty: none is named."""
        named = (self.read[each.span_id].agent for each in self._above(span, "agent"))
        return next(filter(None, named), "")

    def _agents_in_tools(self) -> dict[str, str]:
        """The tool that runs each agent whose span is not below it, by their span ids.

        Some instrumentations put all agents below the workflow. Such an agent works within the time of the
        tool; where several tools run at once, its question is one of the tool's arguments.
        """
        tools = [span for span in self._spans if self.read[span.span_id].kind == "tool"]
        inside = dict[str, str]()
        for agent in self._spans if tools else ():
            if self.read[agent.span_id].kind != "agent" or self._above(agent, "tool"):
                continue
            around = [
                tool
                for tool in tools
                if tool.started <= agent.started
                and agent.ended <= tool.ended
                and tool.ended > tool.started
                and not any(each is agent for each in self._above(tool, "agent"))
            ]
            if len(around) > 1:
                questions = self._questions(agent)
                asking = [tool for tool in around if questions & _texts(self.read[tool.span_id].tool_args)]
                around = asking or around
            if around:
                inside[agent.span_id] = min(around, key=lambda tool: tool.ended - tool.started).span_id
        return inside

    def _questions(self, agent: Span) -> set[str]:
        """User messages to an agent and its models, with normalized whitespace."""
        below = (span for span in self._spans if agent in self._above(span, "agent")[:1])
        messages = (message for span in (agent, *below) for message in self.read[span.span_id].inputs)
        return {" ".join(message.text.split()) for message in messages if message.role == "user"}

    def _above(self, span: Span, kind: str) -> list[Span]:
        """Enclosing spans of a kind, nearest first."""
        ancestors, visited, above = list[Span](), {span.span_id}, self._parent(span)
        while above is not None and above.span_id not in visited and len(visited) < DEEPEST:
            visited.add(above.span_id)
            reading = self.read.get(above.span_id)
            if reading is not None and reading.kind == kind:
                ancestors.append(above)
            above = self._parent(above)
        return ancestors

    def _parent(self, span: Span) -> Span | None:
        return self._by_id.get(self._tool_of.get(span.span_id, span.parent_id))


def _finished(spans: Sequence[Span]) -> dict[str, int]:
    """When each span ended, by its id: not before the spans below it that began meanwhile.

    Some SDKs end a parent some microseconds before its children.
    """
    by_id = {span.span_id: span for span in spans}
    ended = {span.span_id: span.ended for span in spans}
    for span in sorted(spans, key=lambda each: each.ended, reverse=True):
        child = span
        while (parent := by_id.get(child.parent_id)) is not None:
            # The latest comes first: what was changed once is final.
            if not parent.started <= child.started <= parent.ended or ended[parent.span_id] >= span.ended:
                break
            ended[parent.span_id] = span.ended
            child = parent
    return ended


def _is_answer(what: object) -> bool:
    return isinstance(what, Message) and what.role == "assistant"


def _is_same_text(recorded: JsonMap, requested: JsonMap) -> bool:
    """Whether a span recorded the value of a single argument without its name."""
    return (
        set(recorded) == {"input"}
        and len(requested) == 1
        and list(recorded.values()) == list(requested.values())
    )


def _texts(arguments: JsonMap | None) -> set[str]:
    return {" ".join(str(value).split()) for value in (arguments or {}).values()}


def _used(span: Span, reading: SpanReading) -> ToolUse:
    call = ToolCall(
        name=reading.tool,
        args=reading.tool_args or {},
        success=not reading.has_failed,
        result=reading.tool_result if reading.tool_result is not None else span.error,
        duration_ms=(span.ended - span.started) / NANOSECONDS_PER_MILLISECOND,
        call_id=span.span_id,
    )
    return ToolUse(call, reading.tool_call_id, span.trace_id)


def _model_call(span: Span, reading: SpanReading, usage: Usage) -> ModelCall:
    return ModelCall(
        model=model_of(span) or UNKNOWN_MODEL,
        usage=usage,
        provider=provider_of(span),
        cost_usd=cost_of(span),
        price_source="agent" if cost_of(span) is not None else "",
        latency_ms=(span.ended - span.started) / NANOSECONDS_PER_MILLISECOND,
        status="error" if reading.has_failed else "ok",
        error=span.error if reading.has_failed else "",
        call_id=span.span_id,
        **served_in(span),
    )


def _last(messages: Sequence[ParsedMessage], role: str) -> ParsedMessage | None:
    return next(
        (message for message in reversed(messages) if message.role == role and message.text.strip()), None
    )


def _has_user(earlier: Sequence[TimedItem]) -> bool:
    return any(isinstance(what, Message) and what.role == "user" for _, what in earlier)


def _repeats(answer: ParsedMessage, what: object) -> bool:
    """Whether an agent's answer is a message that its model has written in the same turn, or its end.

    The model of a ReAct agent writes its thought before the answer.
    """
    if not isinstance(what, Message) or what.role != "assistant":
        return False
    written, wanted = what.content.split(), answer.text.split()
    return written[-len(wanted) :] == wanted


def sessions_of(documents: Iterable[Document], *, service: str = "", log_group: str = "") -> list[Session]:
    """The sessions in these documents; `service` and `log_group` are defaults."""
    by_key = {}
    marks = {}
    for document in documents:
        mark = mark_of(document, fallback=log_group, service=service)
        by_key[mark.key], marks[mark.key] = document, mark
    built = (
        session_of(
            [by_key[mark.key] for mark in members],
            external_id=name.external_id,
            service=name.service,
            log_group=name.log_group,
        )
        for name, members in sessions_among(marks.values()).items()
    )
    return [session for session in built if session is not None]


def session_of(
    documents: Sequence[Document],
    *,
    external_id: str,
    service: str = "",
    log_group: str = "",
    left_out: int = 0,
) -> Session | None:
    """One session from its documents; None when none of them records work of an agent.

    `left_out` is the number of further documents, which are not read.
    """
    transcript = SpanTranscript()
    traces: dict[str, list[Span]] = defaultdict(list)
    for span in _spans(documents):
        traces[span.trace_id].append(span)
    turns = [TraceReader(spans, _read(spans), transcript) for spans in traces.values()]
    turns = sorted((turn for turn in turns if turn.has_work), key=lambda turn: turn.started)
    if not turns:
        return None
    turn_items = [turn.items() for turn in turns]
    failures = (turn.failure(items) for turn, items in zip(turns, turn_items, strict=True))
    steps = [
        Step(
            trace_id=turn.name,
            events=[TimedEvent(event=event, at=moment(at)) for at, event in transcript.events(items)],
            started_at=moment(turn.started),
            finished_at=moment(turn.ended),
        )
        for turn, items in zip(turns, turn_items, strict=True)
    ]
    roots = [(root, turn.read[root.span_id]) for turn in turns for root in turn.roots]
    inner = [reading for turn in turns for reading in turn.read.values() if reading.kind == "agent"]
    failed = next((span for span in failures if span is not None), None)
    attributes = _attributes(documents, {key for turn in turns for key in turn.keys})
    session = Session(
        external_id=external_id,
        source=SOURCE,
        service=service,
        log_group=log_group,
        name=external_id,
        agent=_agent([reading for _, reading in roots]) or _agent(inner),
        model=_most_used(steps),
        status="fail" if failed else "success",
        end_reason="agent_failed" if failed else "completed",
        error=failed.error if failed else "",
        started_at=steps[0].started_at,
        finished_at=max((step.finished_at for step in steps if step.finished_at), default=None),
        steps=steps,
        tools=_tools(reading for turn in turns for reading in turn.read.values()),
        agent_version=str(attributes.get("gen_ai.agent.version") or attributes.get("service.version") or ""),
        attributes=attributes,
        notes=[f"{left_out:,} more spans and records were left out"] if left_out else [],
    )
    for _, reading in roots:
        session = replace(session, **reading.session_fields)
    return session


def _agent(readings: Iterable[SpanReading]) -> str:
    return next((reading.agent for reading in readings if reading.agent), "")


def moment(nanoseconds: int) -> datetime | None:
    """A time from nanoseconds; None: unknown."""
    try:
        return datetime.fromtimestamp(nanoseconds / 1e9, UTC) if nanoseconds else None
    except (OverflowError, ValueError, OSError):
        return None


def _read(spans: Sequence[Span]) -> dict[str, SpanReading]:
    """Readings of the spans of one trace, by span id, which is unique only there."""
    return {span.span_id: reading for span in spans if (reading := read_span(span)) is not None}


def _spans(documents: Sequence[Document]) -> list[Span]:
    records: dict[tuple[str, str], list[Document]] = defaultdict(list)
    for document in documents:
        if not is_span(document):
            records[_span_key(document)].append(document)
    spans = [span_of(document, records[_span_key(document)]) for document in documents if is_span(document)]
    if not spans:
        spans = [_span_of_records(of_span) for of_span in records.values()]
    return sorted(spans, key=lambda span: (span.started, -span.ended, span.span_id))


def _span_of_records(records: Sequence[Document]) -> Span:
    """The span of event records whose own document is missing: a model call at their time."""
    first = min(records, key=lambda record: nanoseconds(record["timeUnixNano"]))
    name = str(first.get("eventName") or as_map(first, "attributes").get("event.name") or "")
    scope = as_text(as_map(first, "scope")["name"]) or name
    attributes = {"gen_ai.operation.name": "chat", **as_map(first, "attributes")}
    time = first["timeUnixNano"]
    document = {**first, "name": name, "scope": {"name": scope}, "attributes": attributes, "parentSpanId": ""}
    times = {"startTimeUnixNano": time, "endTimeUnixNano": time, "status": {"code": "UNSET"}, "events": []}
    return span_of(document | times, records)


def _span_key(document: Document) -> tuple[str, str]:
    return as_text(document["traceId"]), as_text(document["spanId"])


def _most_used(steps: Sequence[Step]) -> str:
    events = (timed.event for step in steps for timed in step.events)
    models = Counter(
        event.model for event in events if isinstance(event, ModelCall) and event.model != UNKNOWN_MODEL
    )
    return models.most_common(1)[0][0] if models else ""


def _tools(readings: Iterable[SpanReading]) -> list[JsonMap]:
    """Each tool once, in its most detailed description."""
    tools: dict[str, JsonMap] = {}
    for tool in (tool for reading in readings for tool in reading.tools):
        name = str(tool["name"])
        if name not in tools or len(tool) > len(tools[name]):
            tools[name] = tool
    return list(tools.values())


def _attributes(documents: Sequence[Document], read: Set[tuple[str, str]]) -> JsonObject:
    """Further short attributes for filters, without messages."""
    attributes: JsonObject = {}
    for document in documents:
        if _span_key(document) in read and is_span(document):
            for path in (("attributes",), ("resource", "attributes")):
                for key, value in _short(as_map(document, *path)):
                    attributes.setdefault(key, value)
            if len(attributes) >= MOST_ATTRIBUTES:
                break
    return dict(list(attributes.items())[:MOST_ATTRIBUTES])


def _short(attributes: JsonMap) -> Iterator[tuple[str, object]]:
    for key, value in attributes.items():
        is_content = any(word in key.lower() for word in _CONTENT) and not _PROMPT_NAME.search(key)
        is_short = isinstance(value, str) and len(value) <= LONGEST_ATTRIBUTE and not is_content
        is_figure = isinstance(value, bool | int | float) and not any(word in key for word in _FIGURES)
        if (is_short or is_figure) and not key.startswith("proctor."):
            yield key, value
