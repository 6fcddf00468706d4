"""Sessions that another tool recorded, small enough to be counted by hand."""

from datetime import UTC, datetime, timedelta

from proctor.session import Message, Session, Step, TimedEvent, ToolCall
from proctor.store import Store

NOON = datetime(2026, 1, 10, 12, 0, tzinfo=UTC)


def recorded(
    external_id: str,
    *turns: tuple[str, tuple[str, ...], str],
    minutes: tuple[int, ...] = (),
    service: str = "travel",
    log_group: str = "/agents/travel",
    scenario: str = "",
    model: str = "large",
) -> Session:
    """A session of turns: what was asked, the tools that were called, what was answered.

    `minutes` say when each turn began, after noon.
    """
    turns = turns or (("Where to?", ("search",), "To Oslo."),)
    starts = [NOON + timedelta(minutes=minute) for minute in minutes or range(len(turns))]
    steps = [
        _step(f"{external_id}-{number}", started, *turn)
        for number, (started, turn) in enumerate(zip(starts, turns, strict=True))
    ]
    return Session(
        external_id=external_id,
        source="otlp",
        service=service,
        log_group=log_group,
        model=model,
        started_at=starts[0],
        finished_at=starts[-1] + timedelta(seconds=30),
        steps=steps,
        attributes={"testScenarioId": scenario} if scenario else {},
    )


def _step(trace: str, started: datetime, asked: str, tools: tuple[str, ...], answer: str) -> Step:
    events = [
        Message(role="user", content=asked),
        *(
            ToolCall(name=name, args={"n": place}, result="done", call_id=f"{trace}-{place}")
            for place, name in enumerate(tools)
        ),
        Message(role="assistant", content=answer),
    ]
    return Step(
        trace_id=trace.rjust(32, "0"),
        events=[TimedEvent(event=event, at=started) for event in events],
        started_at=started,
        finished_at=started + timedelta(seconds=20),
    )


def keep(store: Store, *sessions: Session) -> list[str]:
    """Put sessions into a store; their ids there."""
    return [store.save_imported(session, NOON + timedelta(days=1)) for session in sessions]
