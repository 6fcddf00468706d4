"""The model gateway by itself: calls of programs that Proctor does not start, recorded as one session."""

import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.agent import Access
from proctor.context import ModelOptions, RunContext, make_models
from proctor.errors import UsageError
from proctor.item import RUNNING, SUCCESS
from proctor.models import is_mock
from proctor.models.gateway.access import Caller
from proctor.models.gateway.server import Gateway
from proctor.secrets import redactor
from proctor.session import Event
from proctor.store import Recorder, timestamp
from proctor.store.recorder import Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenGateway:
    """A gateway that listens."""

    access: Access
    recorder: Recorder

    @property
    def session_id(self) -> str:
        """The session that all calls are recorded in."""
        return self.recorder.session_id

    @property
    def totals(self) -> Totals:
        """Calls, tokens and cost so far."""
        return self.recorder.totals


@asynccontextmanager
async def open_gateway(
    ctx: RunContext,
    *,
    port: int = 0,
    model: str = "",
    models: Sequence[str] = (),
    record: Path | None = None,
    replay: Path | None = None,
    observe: Callable[[Event], None] = lambda event: None,  # noqa: ARG005
) -> AsyncIterator[OpenGateway]:
    """Listen, record and price calls, and stop at the end.

    `model` answers every call; without it, one of `models`, or any of a known provider, as requested. The
    traffic is recorded to the file `record`, or answered from the recording `replay`. `observe` is called
    with each event of the session.
    """
    if model and models:
        raise UsageError("--model and --models exclude each other: --model answers every call")
    # Without the budget of the store: the gateway reserves nothing, so that prices are optional.
    settings = replace(ctx.settings, store_budget_usd=None)
    options = ModelOptions(
        folders=settings.folders,
        record=str(record) if record else None,
        replay=str(replay) if replay else None,
    )
    router = make_models(settings, options)
    router.agent_models = models or None
    writer = ctx.store.writer()
    gateway = Gateway(router, now=ctx.now)
    try:
        for name in models:
            router.check_request(name)
        if model:
            router.check(model)
        await gateway.start(port=port)
        began, started = time.monotonic(), ctx.now()
        row = {
            "attempt": 1,
            "job": "gateway",
            "name": "gateway",
            "model": model,
            "isMock": int(is_mock(model) or replay is not None),
            "status": RUNNING,
            "source": "gateway",
            "startedAt": timestamp(started),
        }
        session_id = f"{int(started.timestamp() * 1000):012x}{secrets.token_hex(4)}"
        recorder = Recorder(writer, session_id, row, ctx.now, redactor(ctx.settings.environment))

        def recorded(event: Event) -> None:
            recorder.record(event)
            observe(event)

        access = gateway.open(Caller(record=recorded, model=model, item_id="gateway"))
        yield OpenGateway(access=access, recorder=recorder)
        gateway.shut(access.token)
        seconds = time.monotonic() - began
        recorder.end(SUCCESS, "completed", "", work_seconds=seconds, waiting_seconds=0.0)
    finally:
        await gateway.close()
        await router.close()
        writer.close()
        if router.recording:
            router.recording.close()
