"""One trace told in the order in which things happened.

The outermost agents say what was asked and answered; the models' spans say it where they do not. Agents
within agents add what they did and said under their own name; what they were told is a tool's business.

Knows nothing of sessions beyond this turn but what the story remembers.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from proctor.session import Event, Message, ModelCall, ToolCall, Usage
from proctor.telemetry.messages import ParsedMessage, ParsedToolCall, ParsedToolResult
from proctor.telemetry.span import Span, SpanReading, model_of, provider_of, usage_of

# What has been told of a session so far, so that nothing is told twice.


@dataclass(frozen=True, slots=True)
class RequestedTool:
    """A tool that a model asked for; it counts if no span tells of its use."""

    call: ParsedToolCall
    trace_id: str


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a tool answered, as a later request says; it counts if nobody knows of the use."""

    result: ParsedToolResult


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool's use that a span tells of."""

    call: ToolCall
    model_call_id: str
    """What the model called it; empty when the span does not say."""
    trace_id: str


Told = tuple[int, Event | RequestedTool | ModelAnswer | ToolUse]
"""When, and what."""


class SpanTranscript:
    """All that was said and done in one session, over its traces."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, ...]] = Counter()
        self._asked: dict[str, ParsedToolCall] = {}
        self._results: dict[str, ParsedToolResult] = {}
        self._used_ids: set[str] = set()
        self._used_names: dict[tuple[str, str], int] = defaultdict(int)
        self._used_results: set[str] = set()

    def hear(self, messages: Iterable[ParsedMessage], at: int, trace_id: str) -> Iterator[Told]:
        """What is new in a conversation that was sent, perhaps again."""
        counted: Counter[tuple[str, ...]] = Counter()
        for said in messages:
            key = _key(said)
            counted[key] += 1
            if counted[key] > self._seen[key]:
                yield from self.say(said, at, trace_id)

    def say(self, said: ParsedMessage, at: int, trace_id: str) -> Iterator[Told]:
        """Something that was said now, whether or not it was said before."""
        self._seen[_key(said)] += 1
        if said.text.strip():
            yield at, Message(role=said.role, content=said.text, name=said.name)
        for call in said.calls:
            if call.id:
                self._asked[call.id] = call
            yield at, RequestedTool(call, trace_id)
        for result in said.results:
            if result.id:
                self._results.setdefault(result.id, result)
            yield at, ModelAnswer(result)

    def use(self, used: ToolUse) -> ToolUse:
        """A tool's use that a span tells of."""
        if used.model_call_id:
            self._used_ids.add(used.model_call_id)
        else:
            self._used_names[used.trace_id, used.call.name] += 1
        self._used_results.add(used.call.result.strip())
        return used

    def settled(self, told: Sequence[Told]) -> Iterator[tuple[int, Event]]:
        """Events alone, now that everything is known: each use of a tool once, with its outcome."""
        for at, what in told:
            if isinstance(what, ToolUse):
                yield at, self._completed(what)
            elif isinstance(what, RequestedTool):
                if (call := self._unseen(what)) is not None:
                    yield at, call
            elif isinstance(what, ModelAnswer):
                if not self._is_known(what.result) and what.result.text.strip():
                    yield at, Message(role="tool", content=what.result.text)
            else:
                yield at, what

    def _completed(self, used: ToolUse) -> ToolCall:
        """A use with what its span left out and the conversation says."""
        call, named = used.call, used.model_call_id
        if not call.args and named in self._asked:
            call = replace(call, args=self._asked[named].args)
        if not call.result and named in self._results:
            call = replace(call, result=self._results[named].text)
        return call

    def _unseen(self, asked: RequestedTool) -> ToolCall | None:
        call = asked.call
        if call.id and call.id in self._used_ids:
            return None
        nameless = (asked.trace_id, call.name)
        if self._used_names[nameless] > 0:
            self._used_names[nameless] -= 1
            return None
        result = self._results.get(call.id) if call.id else None
        return ToolCall(
            name=call.name,
            args=call.args,
            success=None if result is None else not result.is_error,
            result=result.text if result else "",
            call_id=call.id,
        )

    def _is_known(self, result: ParsedToolResult) -> bool:
        known: Mapping[str, ParsedToolCall] | set[str]
        for known in (self._asked, self._used_ids):
            if result.id and result.id in known:
                return True
        return result.text.strip() in self._used_results


def _key(said: ParsedMessage) -> tuple[str, ...]:
    """Equal for one message in two notations: the text counts, and the calls only where there is none."""
    text = " ".join(said.text.split())
    if text:
        return said.role, text
    calls = (call.id or call.name for call in said.calls)
    results = (result.id or " ".join(result.text.split()) for result in said.results)
    return said.role, "", *calls, *results


UNKNOWN_MODEL = "unknown"


NANOSECONDS_PER_MILLISECOND = 1_000_000


DEEPEST = 100
"""Spans above a span that are looked at. Agents nest a dozen deep; a chain of thousands is an attack."""


# What happens first when two things happen at one moment.
_AGENT_ASKED, _MODEL_ASKED, _MODEL_ANSWERED, _TOOL_USED, _AGENT_ANSWERED = range(5)


class TraceReader:
    """The spans of one trace, and what they come to."""

    def __init__(self, spans: Sequence[Span], read: Mapping[str, SpanReading], story: SpanTranscript) -> None:
        """`read` holds the readings by span id; spans without one only give the turn its length."""
        self.trace_id = spans[0].trace_id
        self.started = min((span.started for span in spans if span.started), default=0)
        self.ended = max(span.ended for span in spans)
        self.read, self._story = read, story
        self._by_id = {span.span_id: span for span in spans}
        self._spans = [span for span in spans if span.span_id in read and not self._is_repeated(span)]
        agents = [span for span in self._spans if read[span.span_id].kind == "agent"]
        self.roots = [span for span in agents if not self._above(span, "agent")]
        """The outermost agents."""
        self.name = next((read[root.span_id].trace_id for root in self.roots), "") or self.trace_id
        """What the turn is called."""

    @property
    def keys(self) -> list[tuple[str, str]]:
        """The trace and span ids of what was read."""
        return [(self.trace_id, span_id) for span_id in self.read]

    @property
    def has_work(self) -> bool:
        """Whether any of its spans tells of an agent's work."""
        return bool(self._spans)

    def tell(self) -> list[Told]:
        """Everything that happened, in order."""
        verbatim = [span for span in self.roots if self.read[span.span_id].transcript is not None]
        if verbatim:
            return self._told_verbatim(verbatim)
        moments = sorted(self._moments(), key=lambda each: each[:2])
        told = list[Told]()
        for at, rank, span in moments:
            told += self._happened(at, rank, span, told)
        return told

    def _moments(self) -> Iterator[tuple[int, int, Span]]:
        outermost = {root.span_id for root in self.roots}
        for span in self._spans:
            kind = self.read[span.span_id].kind
            if kind == "tool":
                yield span.ended, _TOOL_USED, span
            elif kind == "inference":
                yield span.started, _MODEL_ASKED, span
                yield span.ended, _MODEL_ANSWERED, span
            elif span.span_id in outermost:
                yield span.started, _AGENT_ASKED, span
                yield span.ended, _AGENT_ANSWERED, span

    def _happened(self, at: int, rank: int, span: Span, told: Sequence[Told]) -> list[Told]:
        reading = self.read[span.span_id]
        if rank == _TOOL_USED:
            return [(at, self._story.use(_used(span, reading)))]
        if rank == _AGENT_ASKED:
            return self._opening(at, reading, told)
        if rank == _AGENT_ANSWERED:
            return self._closing(at, span, reading, told)
        if rank == _MODEL_ASKED:
            return self._asked(at, span, reading, told)
        return self._answered(at, span, reading)

    def _opening(self, at: int, reading: SpanReading, told: Sequence[Told]) -> list[Told]:
        """What an outermost agent was asked. Its last request is new, even if it was made before."""
        fresh = None if _has_user(told) else _last(reading.inputs, "user")
        found = list(self._system(at, reading))
        before = [said for said in reading.inputs if said is not fresh]
        if fresh is not None and reading.inputs[-1] is fresh:
            found += self._story.hear(before, at, self.trace_id)
            return found + list(self._story.say(fresh, at, self.trace_id))
        return found + list(self._story.hear(reading.inputs, at, self.trace_id))

    def _closing(self, at: int, span: Span, reading: SpanReading, told: Sequence[Told]) -> list[Told]:
        """What an outermost agent answered, unless its model has just said so."""
        found = list[Told]()
        if not any(self.read[each.span_id].kind == "inference" for each in self._spans):
            usage = usage_of(span)
            if usage != Usage():
                found.append((at, _model_call(span, reading, usage)))
        answer = _last(reading.outputs, "assistant")
        last = next((what for _, what in reversed(told) if _is_assistant(what)), None)
        if answer is None or (isinstance(last, Message) and _same(last.content, answer.text)):
            return found
        return found + list(self._story.say(replace(answer, calls=()), at, self.trace_id))

    def _asked(self, at: int, span: Span, reading: SpanReading, told: Sequence[Told]) -> list[Told]:
        """What is new in a request to a model."""
        found = list(self._system(at, reading))
        inputs = [said for said in reading.inputs if said.role != "system"]
        if self._inner_agent(span) and _has_user(told):
            inputs = [said for said in inputs if said.role != "user"]
        last = inputs[-1] if inputs else None
        if last is not None and last.role == "user" and not _has_user(told) and not self.roots:
            # Nothing else says what this turn is about, so it is what the user said last.
            found += self._story.hear(inputs[:-1], at, self.trace_id)
            return found + list(self._story.say(last, at, self.trace_id))
        return found + list(self._story.hear(inputs, at, self.trace_id))

    def _answered(self, at: int, span: Span, reading: SpanReading) -> list[Told]:
        found: list[Told] = [(at, _model_call(span, reading, usage_of(span)))]
        inner = self._inner_agent(span)
        for said in reading.outputs:
            if said.role == "assistant":
                found += self._story.say(replace(said, name=said.name or inner), at, self.trace_id)
        return found

    def _system(self, at: int, reading: SpanReading) -> Iterator[Told]:
        written = [ParsedMessage("system", reading.system)] if reading.system else []
        return self._story.hear(
            written or [said for said in reading.inputs if said.role == "system"], at, self.trace_id
        )

    def _told_verbatim(self, spans: Sequence[Span]) -> list[Told]:
        """The turn as it was written down whole, with the calls that other spans tell of."""
        told = list[tuple[tuple[int, int], Told]]()
        for span in spans:
            for position, (said, at) in enumerate(self.read[span.span_id].transcript or ()):
                event = Message(role=said.role, content=said.text, name=said.name)
                told.append(((at, position), (at, event)))
        for number, span in enumerate(self._spans):
            reading = self.read[span.span_id]
            if reading.kind == "tool":
                told.append(((span.ended, number), (span.ended, reading.event or _used(span, reading).call)))
            elif reading.kind == "inference":
                call = reading.event or _model_call(span, reading, usage_of(span))
                told.append(((span.ended, number), (span.ended, call)))
        return [each for _, each in sorted(told, key=lambda each: each[0])]

    def _is_repeated(self, span: Span) -> bool:
        """Whether a span around this one tells the same: two instrumentations watched one call."""
        reading = self.read[span.span_id]
        around = [self.read[each.span_id] for each in self._above(span, reading.kind)]
        if reading.kind == "inference":
            return bool(around)
        return reading.kind == "tool" and any(each.tool == reading.tool for each in around)

    def _inner_agent(self, span: Span) -> str:
        """The agent within an agent whose span this is; empty when it is the outermost one's."""
        named = [self.read[each.span_id].agent for each in self._above(span, "agent")]
        named = [name for name in named if name]
        return named[0] if len(named) > 1 else ""

    def _above(self, span: Span, kind: str) -> list[Span]:
        """The spans of a kind around this one, the nearest first."""
        found, visited, above = list[Span](), {span.span_id}, self._by_id.get(span.parent_id)
        while above is not None and above.span_id not in visited and len(visited) < DEEPEST:
            visited.add(above.span_id)
            reading = self.read.get(above.span_id)
            if reading is not None and reading.kind == kind:
                found.append(above)
            above = self._by_id.get(above.parent_id)
        return found


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
        latency_ms=(span.ended - span.started) / NANOSECONDS_PER_MILLISECOND,
        status="error" if reading.has_failed else "ok",
        error=span.error if reading.has_failed else "",
        call_id=span.span_id,
    )


def _last(messages: Sequence[ParsedMessage], role: str) -> ParsedMessage | None:
    return next((said for said in reversed(messages) if said.role == role and said.text.strip()), None)


def _has_user(told: Sequence[Told]) -> bool:
    return any(isinstance(what, Message) and what.role == "user" for _, what in told)


def _is_assistant(what: object) -> bool:
    return isinstance(what, RequestedTool) or (isinstance(what, Message) and what.role == "assistant")


def _same(one: str, other: str) -> bool:
    return one.split() == other.split()
