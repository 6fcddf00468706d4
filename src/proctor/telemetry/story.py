"""What has been told of a session so far, so that nothing is told twice.

A request to a model repeats the conversation; a tool's use stands in the model's answer, in a span of its
own, and again in the next request. All of that is one thing that happened once.

Knows nothing of spans.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from proctor.session import Event, Message, ToolCall
from proctor.telemetry.blocks import Call, Result, Said


@dataclass(frozen=True, slots=True)
class Asked:
    """A tool that a model asked for; it counts if no span tells of its use."""

    call: Call
    trace_id: str


@dataclass(frozen=True, slots=True)
class Answered:
    """What a tool answered, as a later request says; it counts if nobody knows of the use."""

    result: Result


@dataclass(frozen=True, slots=True)
class Used:
    """A tool's use that a span tells of."""

    call: ToolCall
    model_call_id: str
    """What the model called it; empty when the span does not say."""
    trace_id: str


Told = tuple[int, Event | Asked | Answered | Used]
"""When, and what."""


class Story:
    """All that was said and done in one session, over its traces."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, ...]] = Counter()
        self._asked: dict[str, Call] = {}
        self._results: dict[str, Result] = {}
        self._used_ids: set[str] = set()
        self._used_names: dict[tuple[str, str], int] = defaultdict(int)
        self._used_results: set[str] = set()

    def hear(self, messages: Iterable[Said], at: int, trace_id: str) -> Iterator[Told]:
        """What is new in a conversation that was sent, perhaps again."""
        counted: Counter[tuple[str, ...]] = Counter()
        for said in messages:
            key = _key(said)
            counted[key] += 1
            if counted[key] > self._seen[key]:
                yield from self.say(said, at, trace_id)

    def say(self, said: Said, at: int, trace_id: str) -> Iterator[Told]:
        """Something that was said now, whether or not it was said before."""
        self._seen[_key(said)] += 1
        if said.text.strip():
            yield at, Message(role=said.role, content=said.text, name=said.name)
        for call in said.calls:
            if call.id:
                self._asked[call.id] = call
            yield at, Asked(call, trace_id)
        for result in said.results:
            if result.id:
                self._results.setdefault(result.id, result)
            yield at, Answered(result)

    def use(self, used: Used) -> Used:
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
            if isinstance(what, Used):
                yield at, self._completed(what)
            elif isinstance(what, Asked):
                if (call := self._unseen(what)) is not None:
                    yield at, call
            elif isinstance(what, Answered):
                if not self._is_known(what.result) and what.result.text.strip():
                    yield at, Message(role="tool", content=what.result.text)
            else:
                yield at, what

    def _completed(self, used: Used) -> ToolCall:
        """A use with what its span left out and the conversation says."""
        call, named = used.call, used.model_call_id
        if not call.args and named in self._asked:
            call = replace(call, args=self._asked[named].args)
        if not call.result and named in self._results:
            call = replace(call, result=self._results[named].text)
        return call

    def _unseen(self, asked: Asked) -> ToolCall | None:
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

    def _is_known(self, result: Result) -> bool:
        known: Mapping[str, Call] | set[str]
        for known in (self._asked, self._used_ids):
            if result.id and result.id in known:
                return True
        return result.text.strip() in self._used_results


def _key(said: Said) -> tuple[str, ...]:
    """Equal for one message in two notations: the text counts, and the calls only where there is none."""
    text = " ".join(said.text.split())
    if text:
        return said.role, text
    calls = (call.id or call.name for call in said.calls)
    results = (result.id or " ".join(result.text.split()) for result in said.results)
    return said.role, "", *calls, *results
