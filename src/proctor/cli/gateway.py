"""`proctor gateway`: the gateway alone, for use by hand."""

import asyncio
import secrets
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from proctor.agent import Access
from proctor.batch import secrecy
from proctor.cli import ending as codes
from proctor.cli.house import configuration, now, places
from proctor.cli.words import count, money, print_json, printable, say
from proctor.errors import UsageError
from proctor.item import RUNNING, SUCCESS
from proctor.models import Models, is_stand_in
from proctor.models.gateway.access import Caller
from proctor.models.gateway.server import Gateway
from proctor.models.limits import Pools
from proctor.models.recording import Recording
from proctor.models.replay import Replay
from proctor.models.router import Tape
from proctor.session import Event, ModelCall, Note
from proctor.store import Recorder, Store, timestamp

gateway_app = typer.Typer(add_completion=False)
apps = {"gateway": gateway_app}


@gateway_app.command()
def gateway(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0: any free port.")] = 0,
    model: Annotated[
        str, typer.Option(help="Who answers, whatever is asked for; by default the model asked for.")
    ] = "",
    record: Annotated[Path | None, typer.Option(help="Keep the traffic in this file.")] = None,
    replay: Annotated[Path | None, typer.Option(help="Answer from this file and ask nobody.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document at the start.")] = False,
) -> int:
    """Let agents reach models through Proctor: recorded, priced, with keys kept back. Ctrl-C ends it.

    Example:  proctor gateway --model anthropic/claude-sonnet-4-5 --record traffic.ndjson
    """
    if record and replay:
        raise UsageError("--record and --replay exclude each other: what is replayed is recorded already")
    where = places(context.obj)
    config = configuration(where)
    blot = secrecy.blotter(config.environment)
    with where.open_store() as store, _tape(record, replay, blot) as tape:
        pools = Pools(most=config.limits)
        models = Models(
            config.environment, folders=[Path.cwd()], prices=config.prices, tape=tape, pools=pools
        )
        if model:
            models.check(model)
        desk = _Desk(store, model, tape, blot)
        return asyncio.run(_serve(models, desk, port, as_json=as_json))


@contextmanager
def _tape(record: Path | None, replay: Path | None, blot: Callable[[str], str]) -> Iterator[Tape | None]:
    tape: Tape | None = None
    if record:
        tape = Recording(record, blot)
    elif replay:
        tape = Replay(replay)
    try:
        yield tape
    finally:
        if tape:
            tape.close()


async def _serve(models: Models, desk: "_Desk", port: int, *, as_json: bool) -> int:
    served = Gateway(models, now=now)
    try:
        await served.start(port=port)
        desk.begin()
        access = served.open(Caller(record=desk.record, model=desk.model, item_id="gateway"))
        _tell(access, desk.session_id, as_json=as_json)
        await _until_stopped()
        served.shut(access.token)
        desk.end()
    finally:
        await served.close()
        await models.close()
        desk.close()
    return codes.SUCCEEDED


class _Desk:
    """The session of everything that is asked: kept in the store, and told line by line."""

    def __init__(self, store: Store, model: str, tape: Tape | None, blot: Callable[[str], str]) -> None:
        self.session_id = f"{int(now().timestamp() * 1000):012x}{secrets.token_hex(4)}"
        self.model = model
        self._stand_in = is_stand_in(model) or isinstance(tape, Replay)
        self._blot = blot
        self._writer = store.writer()
        self._started = now()
        self._calls = 0

    def begin(self) -> None:
        row = {
            "attempt": 1,
            "job": "gateway",
            "name": "gateway",
            "model": self.model,
            "standIn": int(self._stand_in),
            "status": RUNNING,
            "source": "gateway",
            "startedAt": timestamp(self._started),
        }
        self._recorder = Recorder(self._writer, self.session_id, row, now, self._blot)

    def record(self, event: Event) -> None:
        self._recorder.record(event)
        if isinstance(event, Note):
            say(f"note: {printable(event.text)}")
        elif isinstance(event, ModelCall):
            self._calls += 1
            say(_line(event))

    def end(self) -> None:
        seconds = (now() - self._started).total_seconds()
        self._recorder.end(SUCCESS, "completed", "", work_seconds=seconds, waiting_seconds=0.0)
        totals = self._recorder.totals
        usage = totals.usage
        tokens = (
            f"{usage.input_tokens:,} tokens in ({usage.cached_tokens:,} cached), {usage.output_tokens:,} out"
        )
        say(f"{count(self._calls, 'call')}, {tokens}, {money(totals.cost_usd)}")
        say(f"Look further:  proctor show {self.session_id}")

    def close(self) -> None:
        self._writer.close()


def _line(call: ModelCall) -> str:
    usage = call.usage
    took = f"{(call.latency_ms or 0.0) / 1000:.2f} s"
    waited = f" after waiting {call.waiting_ms / 1000:.1f} s" if call.waiting_ms else ""
    failed = "" if call.status == "ok" else f"  {call.status}: {printable(call.error, width=80)}"
    tokens = f"{usage.input_tokens:,} in ({usage.cached_tokens:,} cached), {usage.output_tokens:,} out"
    return f"{printable(call.model)}  {tokens}  {money(call.cost_usd)}  {took}{waited}{failed}"


def _tell(access: Access, session_id: str, *, as_json: bool) -> None:
    variables = access.variables
    if as_json:
        print_json(
            {"url": access.url, "token": access.token, "sessionId": session_id, "variables": variables}
        )
    else:
        for name, value in variables.items():
            print(f"export {name}={value}")
    # Whoever reads this through a pipe waits for it; nothing more will come to push it out.
    sys.stdout.flush()
    say("Listening. Set these variables for an agent; Ctrl-C ends this and the token with it.")


async def _until_stopped() -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
