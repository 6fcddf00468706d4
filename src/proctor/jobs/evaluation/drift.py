"""Drift of the scores of online configurations, and alerts about it.

One line per configuration, evaluator and dimension. An observation is a session: the mean of its scores, in
the order in which they were evaluated. A crossing is recorded once, together with the scores that caused it;
its alert is sent until it is accepted, or has failed for hours.
"""

import asyncio
import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from proctor import processes, secrets
from proctor.config import WatchSection
from proctor.errors import NotFound, UsageError
from proctor.evaluators.registry import declared_scale
from proctor.formatting import figure, moment, one_line, plural
from proctor.item import digest_of
from proctor.jobs.evaluation.online import watching_process
from proctor.json_values import JsonObject, as_text, maps_in
from proctor.report import charts
from proctor.stats.drift import BLOCK, Crossing, DriftMonitor, DriftPoint, DriftSettings
from proctor.store import Store, timestamp
from proctor.store.definitions import OnlineConfig
from proctor.store.drift import FAILED, MOST_NEW, NONE, PENDING, SENT, LineKey, NewScore
from proctor.store.tables import DriftCrossingRow, DriftPointRow

ALERT_SECONDS = 20.0
"""For a webhook to answer, or a command to end."""
FIRST_RETRY, LONGEST_RETRY, MOST_ATTEMPTS = timedelta(seconds=10), timedelta(hours=1), 12
"""Twice as long after each attempt: the last one is about four hours after the first."""


class DriftWatch:
    """Extends the lines by the sessions that were evaluated since the last call of `look`."""

    def __init__(self, store: Store, watches: Sequence[WatchSection], owner: str = "") -> None:
        """`watches` are the settings of configurations, which have their names; others have the defaults."""
        self._store = store
        self._watches = {watch.name: watch for watch in watches}
        self._owner = owner or watching_process()
        self._monitors: dict[LineKey, DriftMonitor] = {}
        self._finished: dict[str, int] = {}
        """By evaluation: the position up to which all items were finished. Only an optimization."""
        for watch in watches:
            # Raises for settings that contradict each other.
            try:
                drift_settings(watch, watch.scale)
            except UsageError as error:
                raise UsageError(f"[[watch]] {watch.name}: {error}") from error

    def look(self, now: datetime) -> None:
        """Extend the lines of all configurations that this process watches."""
        after = ""
        while page := self._store.definitions.configs(after=after):
            for config in page:
                if config["runId"] and self._store.definitions.watch_config(config["id"], self._owner, now):
                    self._follow(config, now)
            after = page[-1]["id"]

    def _follow(self, config: OnlineConfig, now: datetime) -> None:
        drift, run_id = self._store.drift, config["runId"]
        while True:
            finished = drift.finished_up_to(run_id)
            scores = drift.new_scores(config["id"], run_id, after=self._finished.get(run_id, 0))
            lines: dict[LineKey, list[NewScore]] = defaultdict(list)
            for score in scores:
                lines[LineKey(config["id"], score["evaluator"], score["dimension"])].append(score)
            for key, added in lines.items():
                self._extend(config, key, added, now)
            if len(scores) < MOST_NEW:
                self._finished[run_id] = finished
                return

    def _extend(self, config: OnlineConfig, key: LineKey, scores: Sequence[NewScore], now: datetime) -> None:
        monitor = self._monitors.get(key) or self._load(config, key, now)
        # Forgotten until everything is stored: after an error it is loaded again.
        self._monitors.pop(key, None)
        for start in range(0, len(scores), BLOCK):
            part = scores[start : start + BLOCK]
            first = monitor.position
            crossing = monitor.add([score["value"] for score in part])
            points = [
                _point_row(key, point, part[point.position - first - 1]["at"]) for point in monitor.points
            ]
            monitor.points.clear()
            row = self._crossing_row(config, key, crossing, now) if crossing else None
            self._store.drift.add(key, first, part, points, row)
        self._monitors[key] = monitor

    def _load(self, config: OnlineConfig, key: LineKey, now: datetime) -> DriftMonitor:
        """The state of a line after its stored scores, from its last crossing on."""
        crossings = self._store.drift.crossings(key)
        start = crossings[-1]["position"] if crossings else 0
        latest = (crossings[-1]["afterLow"], crossings[-1]["afterHigh"]) if crossings else None
        watch = self._watches.get(config["name"])
        monitor = DriftMonitor(
            drift_settings(watch, scale_of(self._store, config, key, watch)), position=start, latest=latest
        )
        crossing = monitor.add(self._store.drift.values(key, after=start))
        monitor.points.clear()
        if crossing:
            # With other settings than before, the stored scores are a crossing.
            self._store.drift.add(
                key, monitor.position, (), (), self._crossing_row(config, key, crossing, now)
            )
        return monitor

    def _crossing_row(
        self, config: OnlineConfig, key: LineKey, crossing: Crossing, now: datetime
    ) -> DriftCrossingRow:
        watch = self._watches.get(config["name"])
        is_alerted = (
            watch is not None
            and bool(watch.webhook or watch.command)
            and watch.direction in ("both", crossing.direction)
        )
        before, after = crossing.before, crossing.after
        return {
            "configId": key.config_id,
            "evaluator": key.evaluator,
            "dimension": key.dimension,
            "position": crossing.position,
            "at": timestamp(now),
            "direction": crossing.direction,
            "beforeMean": before.mean if before else None,
            "beforeLow": before.low if before else None,
            "beforeHigh": before.high if before else None,
            "afterMean": after.mean,
            "afterLow": after.low,
            "afterHigh": after.high,
            "afterSessions": after.n,
            "alert": PENDING if is_alerted else NONE,
            "attempts": 0,
            "nextAt": timestamp(now) if is_alerted else None,
            "problem": "",
        }


def drift_settings(watch: WatchSection | None, scale: tuple[float, float] | None) -> DriftSettings:
    """What counts as a change, on a scale; None: from 0 to 1."""
    lo, hi = scale or (0.0, 1.0)
    if watch is None:
        return DriftSettings(lo=lo, hi=hi)
    return DriftSettings(
        lo=lo,
        hi=hi,
        alpha=watch.alpha,
        margin=watch.margin,
        reference=None if watch.reference is None else float(watch.reference),
    )


def scale_of(
    store: Store, config: OnlineConfig, key: LineKey, watch: WatchSection | None
) -> tuple[float, float] | None:
    """The lowest and the highest score of an evaluator; None: unknown."""
    if watch and watch.scale:
        return watch.scale
    ids = [as_text(entry, "evaluatorId") for entry in maps_in(config["document"], "evaluators")]
    documents = [document for each in ids if (document := store.definitions.document(each))]
    own = [document for document in documents if as_text(document, "evaluatorName") == key.evaluator]
    return declared_scale(key.evaluator, key.dimension, own[-1] if own else None)


def _point_row(key: LineKey, point: DriftPoint, at: str) -> DriftPointRow:
    return {
        "configId": key.config_id,
        "evaluator": key.evaluator,
        "dimension": key.dimension,
        "position": point.position,
        "at": at,
        "mean": point.mean,
        "low": point.low,
        "high": point.high,
    }


# Views.

MOST_DRAWN = 200
"""Points of a plot; of more, each is the mean of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftLine:
    """One line with its crossings."""

    config_id: str
    name: str
    """Of the configuration."""
    evaluator: str
    dimension: str
    sessions: int
    updated_at: str
    points: Sequence[DriftPointRow]
    """The most recent ones."""
    crossings: Sequence[DriftCrossingRow]

    @property
    def title(self) -> str:
        """Evaluator and dimension."""
        return f"{self.evaluator} · {self.dimension}" if self.dimension else self.evaluator

    @property
    def state(self) -> str:
        """One sentence about its latest crossing, or that there is none."""
        if not self.crossings:
            return f"No change in {plural(self.sessions, 'session')}."
        last = self.crossings[-1]
        before = f" from {figure(last['beforeMean'])}" if last["beforeMean"] is not None else ""
        return (
            f"Went {last['direction']}{before} to {figure(last['afterMean'])} "
            f"(detected at session {last['position']:,})."
        )


def drift_lines(store: Store, name: str = "") -> list[DriftLine]:
    """The lines of all configurations, or of the one with this name or id."""
    lines, names = list[DriftLine](), dict[str, str]()
    for row in store.drift.lines():
        config_id = row["configId"]
        if config_id not in names:
            names[config_id] = store.definitions.config(config_id)["name"]
        if name and name not in (config_id, names[config_id]):
            continue
        key = LineKey(config_id, row["evaluator"], row["dimension"])
        lines.append(
            DriftLine(
                config_id=config_id,
                name=names[config_id],
                evaluator=row["evaluator"],
                dimension=row["dimension"],
                sessions=row["sessions"],
                updated_at=row["updatedAt"],
                points=store.drift.points(key),
                crossings=store.drift.crossings(key),
            )
        )
    return lines


def drift_chart(line: DriftLine) -> str:
    """The line as a plot: means with their bounds, and its crossings; empty: there are no points yet."""
    if not line.points:
        return ""
    every = math.ceil(len(line.points) / MOST_DRAWN)
    points = [
        charts.Point(
            label=f"{moment(part[-1]['at'])}, session {part[-1]['position']:,}",
            x=part[-1]["position"],
            y=math.fsum(point["mean"] for point in part) / len(part),
            # At a crossing, no mean is within the bounds.
            low=part[-1]["low"] if part[-1]["low"] <= part[-1]["high"] else None,
            high=part[-1]["high"] if part[-1]["low"] <= part[-1]["high"] else None,
        )
        for part in (line.points[start : start + every] for start in range(0, len(line.points), every))
    ]
    first = points[0].x
    events = {
        float(crossing["position"]): f"{crossing['direction']}, {moment(crossing['at'])}"
        for crossing in line.crossings
        if crossing["position"] >= first
    }
    title = f"{line.title}: mean score by session, with anytime-valid bounds"
    return charts.line(title, points, x_axis="sessions", say_y=figure, events=events)


# Alerts.


class AlertFailed(Exception):
    """An alert was not accepted. The message is written here and does not contain the address."""


class Alerts:
    """Sends alerts that are due."""

    def __init__(
        self, store: Store, watches: Sequence[WatchSection], environment: Mapping[str, str], folder: Path
    ) -> None:
        """Commands run in `folder`; `environment` resolves `${NAME}` of an address."""
        self._store = store
        self._watches = {watch.name: watch for watch in watches}
        self._environment = environment
        self._folder = folder

    async def send(self, now: datetime) -> int:
        """Send what is due; the number of accepted alerts."""
        accepted, drift = 0, self._store.drift
        until = timedelta(seconds=3 * ALERT_SECONDS)
        while crossing := await asyncio.to_thread(drift.take_alert, now, until=until):
            try:
                await self._deliver(crossing)
            except AlertFailed as problem:
                await asyncio.to_thread(self._retry, crossing, str(problem), now)
            else:
                await asyncio.to_thread(drift.settle_alert, crossing, SENT)
                accepted += 1
        return accepted

    def _retry(self, crossing: DriftCrossingRow, problem: str, now: datetime) -> None:
        attempts = crossing["attempts"]
        if attempts >= MOST_ATTEMPTS:
            self._store.drift.settle_alert(crossing, FAILED, problem=problem)
            return
        wait = min(FIRST_RETRY * 2 ** (attempts - 1), LONGEST_RETRY)
        self._store.drift.settle_alert(crossing, PENDING, next_at=now + wait, problem=problem)

    async def _deliver(self, crossing: DriftCrossingRow) -> None:
        try:
            config = await asyncio.to_thread(self._store.definitions.config, crossing["configId"])
        except NotFound:
            raise AlertFailed("the configuration was deleted") from None
        watch = self._watches.get(config["name"])
        if watch is None or not (watch.webhook or watch.command):
            raise AlertFailed("no webhook or command is configured")
        document = alert_document(config["name"], crossing)
        if watch.webhook:
            await _post(self._address(watch.webhook), document)
        else:
            await self._run(watch.command, document)

    def _address(self, webhook: str) -> str:
        def value(match: re.Match[str]) -> str:
            text = self._environment.get(match[1])
            if not text:
                raise AlertFailed(f"{match[1]} is not set")
            return text

        return re.sub(r"\$\{(\w+)\}", value, webhook)

    async def _run(self, command: Sequence[str], document: JsonObject) -> None:
        """Start the command with the alert on standard input and in variables, never in its arguments."""
        environment = secrets.visible(self._environment, named={"HOME"})
        variables = {f"PROCTOR_{name}": _plain(document[member]) for name, member in VARIABLES.items()}
        try:
            result = await processes.run(
                list(command),
                folder=self._folder,
                environment={**environment, **variables},
                attempt="alert",
                typed=json.dumps(document),
                time_limit=ALERT_SECONDS,
                grace_seconds=0.5,
            )
        except processes.CouldNotStart:
            raise AlertFailed("the command could not be started") from None
        if result.timed_out:
            raise AlertFailed(f"the command did not end within {ALERT_SECONDS:g} s")
        if result.exit_code:
            raise AlertFailed(f"the command ended with exit code {result.exit_code}")


VARIABLES = {
    "WATCH": "watch",
    "EVALUATOR": "evaluator",
    "DIMENSION": "dimension",
    "DIRECTION": "direction",
    "SESSIONS": "sessions",
    "MEAN_BEFORE": "meanBefore",
    "MEAN_AFTER": "meanAfter",
    "TEXT": "text",
}
"""Variables of the command, and the members of the document that they have."""


def alert_document(name: str, crossing: DriftCrossingRow) -> JsonObject:
    """The body of an alert: names, numbers and one sentence. No text of a session."""
    evaluator, dimension = one_line(crossing["evaluator"]), one_line(crossing["dimension"])
    before, after = crossing["beforeMean"], crossing["afterMean"]
    of = f" ({dimension})" if dimension else ""
    sentence = (
        f"{name}: {evaluator}{of} went {crossing['direction']} to {figure(after)} "
        f"({_range(crossing['afterLow'], crossing['afterHigh'])}, {crossing['afterSessions']} sessions)"
    )
    if before is not None:
        sentence += f", before {figure(before)} ({_range(crossing['beforeLow'], crossing['beforeHigh'])})"
    return {
        "id": digest_of([crossing["configId"], evaluator, dimension, crossing["position"]])[:32],
        "kind": "drift",
        "watch": name,
        "onlineEvaluationConfigId": crossing["configId"],
        "evaluator": evaluator,
        "dimension": dimension,
        "direction": crossing["direction"],
        "at": crossing["at"],
        "sessions": crossing["position"],
        "meanBefore": before,
        "lowBefore": crossing["beforeLow"],
        "highBefore": crossing["beforeHigh"],
        "meanAfter": after,
        "lowAfter": crossing["afterLow"],
        "highAfter": crossing["afterHigh"],
        "sessionsAfter": crossing["afterSessions"],
        # Chat services read this member, and marks in it: evaluators have names that others chose.
        "text": sentence.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
    }


def _range(low: float | None, high: float | None) -> str:
    return f"{figure(low)} to {figure(high)}"


def _plain(value: object) -> str:
    return "" if value is None else str(value)


async def _post(address: str, document: JsonObject) -> None:
    # Loaded with the first alert.
    import aiohttp

    headers = {"Content-Type": "application/json", "Idempotency-Key": str(document["id"])}
    timeout = aiohttp.ClientTimeout(total=ALERT_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(
                address, data=json.dumps(document), headers=headers, allow_redirects=False
            ) as response,
        ):
            status = response.status
    except TimeoutError:
        raise AlertFailed(f"the webhook did not answer within {ALERT_SECONDS:g} s") from None
    except (aiohttp.ClientError, ValueError, OSError):
        # Their messages contain the address.
        raise AlertFailed("the webhook could not be reached") from None
    if not 200 <= status < 300:
        raise AlertFailed(f"the webhook answered with status {status}")
