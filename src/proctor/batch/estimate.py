"""Predictions of cost and time from like sessions in the store.

Like sessions have the same job, agent and model, and the same task where it has any. Their recorded tokens
are priced with the prices of the plan, or else with today's list prices; what another plan declared never
counts.

A prediction interval covers the total of the items to come: their own spread, and the uncertainty of the mean
of the sessions it rests on. It encloses two predictive distributions. One draws means and spreads of
lognormal values (Student's t and chi-squared on the log scale); the other is a bootstrap-t, for values that
are not lognormal. Runs of several roles are predicted from the calls and tokens that each role took per turn
in earlier runs, priced by the model it has now.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from proctor.context import RunContext
from proctor.item import FAIL, SUCCESS, TIMEOUT
from proctor.job import JobPlan, Work, task_name, work_of
from proctor.models.prices import BATCH_FACTOR, Price, price_of
from proctor.session import Usage
from proctor.store import RetrySelection, StoreReader, aggregates
from proctor.store.aggregates import CallSums, PastSession
from proctor.store.results import settled_items

if TYPE_CHECKING:
    import numpy as np

    from proctor.stats.samples import FloatArray, IntArray

ENDED = (SUCCESS, FAIL, TIMEOUT)
"""Statuses of sessions used for predictions; infrastructure errors are excluded."""
FindPrice = Callable[[str], Price | None]
"""The price of `provider/model`; None: unknown."""
FEWEST_FOR_INTERVAL = 2
FEWEST_TASKS = 5
"""Tasks with sessions below which single sessions stand for tasks that have none."""
FEWEST_RESAMPLED = 8
"""Values below which a bootstrap adds nothing to the lognormal interval."""
LEAST_SPREAD = 0.1
"""Standard deviation of logs that one session more would have: equal values do not prove that there is no
spread."""
MOST_DRAWN = 1000
"""Items of a task, or values of a sample, that are simulated: more hardly change the interval."""
MOST_NUMBERS = 8_000_000
"""Random numbers of a prediction: bounds its time to a second."""
LEAST_DRAWS, MOST_DRAWS = 400, 4000
BLOCK = 500_000
"""Numbers drawn at once: bounds memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Planned items of one agent and model, and the values of sessions like them."""

    past: Mapping[str, Sequence[float]]
    """Values of earlier sessions, by task."""
    planned: Mapping[str, int]
    """Number of items, by task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A total of items to come, with its prediction interval."""

    value: float | None = None
    """None: nothing is known."""
    low: float | None = None
    """None, as `high`: too few sessions for an interval."""
    high: float | None = None
    sessions: int = 0
    """Like sessions it rests on."""
    items: int = 0
    """Items that it covers."""
    unknown: tuple[str, ...] = ()
    """Agents and models without like sessions, and models without a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Predicted cost and time of a batch."""

    items: int
    cost_usd: Predicted
    seconds: Predicted


def forecast_plan(
    job: str, plan: JobPlan, ctx: RunContext, *, work: Mapping[Work, int] | None = None
) -> Forecast:
    """Predict the cost and time of a plan of a job from like sessions in the store.

    `work`: its items, where they are known already.
    """
    declared = {**ctx.settings.prices, **(plan.model_options().prices or {})}
    # Prices change by the day at most; a lookup per second would never hit the cache.
    today = ctx.now().replace(hour=0, minute=0, second=0, microsecond=0)

    is_batched = bool(plan.model_options().service)

    def price(model: str) -> Price | None:
        return price_of(model, declared, at=today)

    def batch_price(model: str) -> Price | None:
        known = price(model)
        return known.times(BATCH_FACTOR) if known else None

    if work is None:
        estimate = plan.estimate(ctx)
        work = estimate.workload if estimate else work_of(plan.items())
    # A dry run writes nothing, not even an empty store.
    read = ctx.store.read if ctx.has_store else None
    own = batch_price if is_batched else price
    return forecast(read, job, work, concurrency=plan.concurrency, price=price, own_price=own)


def remaining_work(plan: JobPlan, run_id: str, ctx: RunContext, retry: RetrySelection) -> Mapping[Work, int]:
    """The items of a plan that resuming a run would execute, by agent, model and task."""
    settled = settled_items(ctx.store.read, run_id, retry)
    plan = plan.for_run(ctx.store.read.batch(run_id, ctx.now()), ctx).plan
    return work_of(item for item in plan.items() if item.id not in settled)


def forecast(
    read: StoreReader | None,
    job: str,
    work: Mapping[Work, int],
    *,
    concurrency: int,
    price: FindPrice,
    own_price: FindPrice | None = None,
) -> Forecast:
    """Predict the cost and time of a number of items per agent, model and task.

    `read` None: there is no store, so nothing is known. `own_price` is that of calls that no agent makes;
    None: `price`.
    """
    planned: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for kind, items in work.items():
        planned[kind.agent, kind.model][kind.task] += items
    sessions = _like_sessions(read, job, planned) if read else {}
    calls = _calls(read, [each["id"] for rows in sessions.values() for each in rows]) if read else {}
    costs, times = dict[tuple[str, str], Group](), dict[tuple[str, str], Group]()
    without_price, without_sessions = list[str](), list[str]()
    priced = timed = 0
    for worker, tasks in planned.items():
        rows = sessions.get(worker, [])
        seconds = _by_task((row, row["workSeconds"]) for row in rows)
        if not seconds:
            without_sessions.append(worker_name(*worker))
            continue
        times[worker] = Group(past=seconds, planned=tasks)
        timed += sum(map(len, seconds.values()))
        price_now = price if worker[0] else own_price or price
        money = _by_task((row, _cost(calls.get(row["id"], ()), price_now, without_price)) for row in rows)
        if money:
            costs[worker] = Group(past=money, planned=tasks)
            priced += sum(map(len, money.values()))
    total = sum(work.values())
    return Forecast(
        items=total,
        cost_usd=_predicted(costs, priced, [*without_sessions, *without_price], None),
        seconds=_predicted(times, timed, without_sessions, max(1, min(concurrency, total))),
    )


def worker_name(agent: str, model: str) -> str:
    """How an agent and model are named."""
    return " with ".join(part for part in (agent, model) if part) or "items without a model"


def _predicted(
    groups: Mapping[tuple[str, str], Group], sessions: int, unknown: Iterable[str], concurrency: int | None
) -> Predicted:
    names = tuple(dict.fromkeys(unknown))
    if not groups:
        return Predicted(unknown=names)
    value, low, high = predict_total(list(groups.values()), concurrency=concurrency)
    items = sum(sum(group.planned.values()) for group in groups.values())
    return Predicted(value=value, low=low, high=high, sessions=sessions, items=items, unknown=names)


def _like_sessions(
    read: StoreReader, job: str, workers: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], list[PastSession]]:
    """Earlier sessions by agent and model. Mock sessions count only where there are no others."""
    rows: dict[tuple[str, str], list[PastSession]] = {worker: [] for worker in workers}
    for row in aggregates.past_sessions(read, job, sorted({model for _, model in rows}), ENDED):
        if (row["agent"], row["model"]) in rows:
            rows[row["agent"], row["model"]].append(row)
    for worker, all_rows in rows.items():
        rows[worker] = [row for row in all_rows if not row["isMock"]] or all_rows
    return rows


def _calls(read: StoreReader, session_ids: Sequence[str]) -> dict[str, list[CallSums]]:
    calls: dict[str, list[CallSums]] = defaultdict(list)
    for row in aggregates.call_sums(read, session_ids):
        calls[row["sessionId"]].append(row)
    return calls


def _by_task(values: Iterable[tuple[PastSession, float | None]]) -> dict[str, list[float]]:
    tasks: dict[str, list[float]] = defaultdict(list)
    for row, value in values:
        if value is not None:
            tasks[task_name(json.loads(row["factors"] or "{}"), row["prompt"] or "")].append(value)
    return tasks


def _cost(calls: Sequence[CallSums], price: FindPrice, unknown: list[str]) -> float | None:
    """USD of a session at the prices of now; None, with the model in `unknown`: without a price."""
    total = 0.0
    for row in calls:
        model = row["model"]
        # Most models are called by the name that their calls are recorded with; a gateway splits it.
        name = f"{row['provider']}/{model}" if row["provider"] and "/" not in model else model
        known_price = price(name)
        if known_price is not None and row["promptTokens"] + row["completionTokens"]:
            usage = Usage(
                input_tokens=row["promptTokens"],
                cached_tokens=row["cachedTokens"],
                output_tokens=row["completionTokens"],
            )
            total += known_price.for_calls(row["calls"], usage)
        elif row["priceSource"] == "agent" and row["cost"] is not None:
            # What the agent was charged: not the price of another plan.
            total += row["cost"]
        elif known_price is None:
            unknown.append(name)
            return None
    return total


# Prediction intervals.


def predict_total(
    groups: Sequence[Group],
    *,
    concurrency: int | None = None,
    level: float = 0.95,
    draws: int = MOST_DRAWS,
    seed: int = 0,
) -> tuple[float, float | None, float | None]:
    """Value, lower and upper limit of the total of all planned items.

    With `concurrency`, of the time they take: their sum divided by it, and at least the longest item. Groups
    are independent of each other; every group needs at least one past value. There are no limits when a
    group has fewer than two past values.

    >>> group = Group(past={"a": [1.0, 1.2, 0.9, 1.4, 1.1, 0.8]}, planned={"a": 100})
    >>> value, low, high = predict_total([group])
    >>> print(f"{value:.0f} ({low:.0f} to {high:.0f})")
    107 (87 to 141)
    """
    parallel = concurrency or 1
    value = sum(_mean(group, task) * items for group in groups for task, items in group.planned.items())
    longest = max((_mean(group, task) for group in groups for task in group.planned), default=0.0)
    if concurrency:
        value = max(value / parallel, longest)
    if not any(value > 0 for group in groups for values in group.past.values() for value in values):
        return value, value, value
    if any(sum(map(len, group.past.values())) < FEWEST_FOR_INTERVAL for group in groups):
        return value, None, None
    import numpy as np

    rng = np.random.default_rng(seed)
    units = sum(min(items, MOST_DRAWN) for group in groups for items in group.planned.values())
    draws = max(LEAST_DRAWS, min(draws, MOST_NUMBERS // max(1, units)))
    lognormal, resampled = _Draws(draws), _Draws(draws)
    for group in groups:
        own = _Draws(draws)
        other = _draw(group, own, rng)
        lognormal.add(own.total, own.longest)
        chosen = other or own
        resampled.add(chosen.total, chosen.longest)
    tails = [(1 - level) / 2, (1 + level) / 2]
    limits = [
        np.quantile(
            np.maximum(interval.total / parallel, interval.longest) if concurrency else interval.total, tails
        ).tolist()
        for interval in (lognormal, resampled)
    ]
    low, high = min(each[0] for each in limits), max(each[1] for each in limits)
    return value, min(low, value), max(high, value)


class _Draws:
    """Simulated totals, and the longest item of each."""

    def __init__(self, draws: int) -> None:
        import numpy as np

        self.total: FloatArray = np.zeros(draws)
        self.longest: FloatArray = np.zeros(draws)

    def add(self, total: "FloatArray", longest: "FloatArray") -> None:
        """Add the totals of further items, and keep the longest of all."""
        import numpy as np

        self.total += total
        self.longest = np.maximum(self.longest, longest)


def _mean(group: Group, task: str) -> float:
    """The mean of a task; of all tasks, where it has no sessions."""
    values = group.past.get(task)
    return fmean(values) if values else fmean(fmean(each) for each in group.past.values())


def _draw(group: Group, draws: _Draws, rng: "np.random.Generator") -> "_Draws | None":
    """Add lognormal draws of a group; the bootstrap-t draws of the same, where the values are one sample."""
    import numpy as np

    known = {task: items for task, items in group.planned.items() if task in group.past}
    new = [items for task, items in group.planned.items() if task not in group.past]
    every = np.concatenate([np.asarray(values, dtype=float) for values in group.past.values()])
    if known:
        spread = _pooled(group.past) or _Spread.of(every)
        tasks = [np.asarray(group.past[task], dtype=float) for task in known]
        _draw_lognormal(tasks, np.asarray(list(known.values())), spread, draws, rng)
    if not new:
        only = next(iter(group.past.values()))
        one_sample = len(group.past) == 1 and len(only) >= FEWEST_RESAMPLED
        return _bootstrap(every, [1.0] * sum(known.values()), draws, rng) if one_sample else None
    means = np.asarray([fmean(values) for values in group.past.values()])
    units = means if len(means) >= FEWEST_TASKS else every
    # Items of one task have its mean in common: one value for each new task, times its items.
    spread, weights = _Spread.of(units), np.asarray(new, dtype=float)
    _draw_lognormal([units], np.asarray([len(new)]), spread, draws, rng, weights=weights)
    if known or len(units) < FEWEST_RESAMPLED:
        return None
    return _bootstrap(units, new, draws, rng)


@dataclass(frozen=True, slots=True)
class _Spread:
    """Spread of logs, and the share of zeros, which have none."""

    squares: float
    freedom: int
    zeros: int
    values: int

    @classmethod
    def of(cls, values: "FloatArray") -> "_Spread":
        """The spread of values on the log scale; those that are 0 are counted apart."""
        import numpy as np

        logs = np.log(values[values > 0])
        squares = float(((logs - logs.mean()) ** 2).sum()) if len(logs) else 0.0
        return cls(squares, max(0, len(logs) - 1), len(values) - len(logs), len(values))

    def sigma(self, draws: int, rng: "np.random.Generator") -> "FloatArray":
        """Standard deviations that the values allow."""
        import numpy as np

        squares = self.squares + LEAST_SPREAD**2
        # With fewer than four values, the assumed spread counts as one of them.
        freedom = max(self.freedom, min(self.freedom + 1, 3))
        drawn: FloatArray = np.sqrt(squares / rng.chisquare(freedom, draws))
        return drawn


def _pooled(past: Mapping[str, Sequence[float]]) -> _Spread | None:
    """The spread within tasks; None: too few were repeated to know it."""
    import numpy as np

    parts = [_Spread.of(np.asarray(values, dtype=float)) for values in past.values()]
    freedom = sum(part.freedom for part in parts)
    if len(past) > 1 and freedom < FEWEST_TASKS - 1:
        return None
    return _Spread(
        sum(part.squares for part in parts),
        freedom,
        sum(part.zeros for part in parts),
        sum(part.values for part in parts),
    )


def _draw_lognormal(
    samples: "Sequence[FloatArray]",
    items: "IntArray",
    spread: _Spread,
    draws: _Draws,
    rng: "np.random.Generator",
    weights: "FloatArray | None" = None,
) -> None:
    """Draw `items` values for each sample, of its own mean and the common spread, and add them.

    `weights`: how often each value of the only sample counts.
    """
    import numpy as np

    number = len(draws.total)
    sigma = spread.sigma(number, rng)
    positive = [values[values > 0] for values in samples]
    everything = np.concatenate(positive)
    if not len(everything):
        return
    logs = [np.log(values if len(values) else everything) for values in positive]
    counts = np.asarray([len(each) for each in logs])
    # The flat prior of one mean is harmless; those of many tasks would add up to a bias of their total.
    # There, draws are centered on the arithmetic means.
    is_many = len(samples) >= FEWEST_TASKS
    centers = np.asarray([np.log(np.exp(each).mean()) if is_many else each.mean() for each in logs])
    shifts = sigma**2 / 2 if is_many else np.zeros(number)
    share = (
        rng.beta(spread.zeros + 0.5, spread.values - spread.zeros + 0.5, number)
        if spread.zeros
        else np.zeros(number)
    )
    drawn = items if weights is not None else np.minimum(items, MOST_DRAWN)
    owner = np.repeat(np.arange(len(items)), drawn)
    weight = (items / drawn)[owner] if weights is None else weights
    step = max(1, BLOCK // number)
    previous, last_offsets = -1, np.zeros(number)
    for start in range(0, len(owner), step):
        part = owner[start : start + step]
        first, last = int(part[0]), int(part[-1])
        offsets = rng.standard_normal((number, last - first + 1))
        if first == previous:
            # The items of a sample share its mean, also across blocks.
            offsets[:, 0] = last_offsets
        previous, last_offsets = last, offsets[:, -1].copy()
        means = (offsets / np.sqrt(counts[first : last + 1]))[:, part - first]
        noise = sigma[:, None] * (means + rng.standard_normal((number, len(part))))
        values = np.exp(np.minimum(centers[part] - shifts[:, None] * (1 + 1 / counts[part]) + noise, 300.0))
        if spread.zeros:
            values *= rng.random(values.shape) >= share[:, None]
        draws.add(values @ weight[start : start + step], values.max(axis=1))


def _bootstrap(
    values: "FloatArray", weights: Sequence[float], like: _Draws, rng: "np.random.Generator"
) -> _Draws:
    """Studentized bootstrap of the log of the mean of the items to come."""
    import numpy as np

    number, n = len(like.total), len(values)
    sample = values if n <= MOST_DRAWN else rng.choice(values, MOST_DRAWN, replace=False)
    counts = np.asarray(weights[:MOST_DRAWN], dtype=float)
    whole = float(np.sum(weights))
    effective = whole**2 / float(np.square(weights).sum())
    pilot, future, result = len(sample), len(counts), _Draws(number)
    step = max(1, BLOCK // max(pilot, future))
    spread = float(values.std(ddof=1)) / float(values.mean())
    for start in range(0, number, step):
        size = min(step, number - start)
        again = sample[rng.integers(0, pilot, (size, pilot))]
        coming = sample[rng.integers(0, pilot, (size, future))]
        mean, error = again.mean(axis=1), again.std(axis=1, ddof=1)
        total = coming @ counts / counts.sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            pivot = (np.log(total) - np.log(mean)) / (error / mean * np.sqrt(1 / pilot + 1 / future))
        # A resample without spread or without a positive value says nothing.
        pivot = np.clip(np.nan_to_num(pivot, nan=0.0, posinf=0.0, neginf=0.0), -50.0, 50.0)
        scaled = values.mean() * np.exp(np.minimum(pivot * spread * np.sqrt(1 / n + 1 / effective), 300.0))
        result.total[start : start + size] = scaled * whole
        result.longest[start : start + size] = coming.max(axis=1)
    return result


# Runs of several roles that take turns.


CallPrice = Callable[[str, float, float], float | None]
"""USD of a model call by input and output tokens; None: unknown."""
FIGURES = ("calls", "tokens", "cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptShare:
    """Average usage of one role per turn of a run."""

    who: str
    model: str
    calls: float
    input_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleAssumption:
    """A role that earlier runs do not show with its model."""

    who: str
    model: str
    models: tuple[str, ...] = ()
    """Models whose tokens stand for it; none: the role is new, and its usage a guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted usage of one run and of all runs."""

    runs: int
    """Number of earlier runs used."""
    one: Mapping[str, Predicted]
    """By figure: `calls`, `tokens`, `cost_usd`."""
    everything: Mapping[str, Predicted]
    assumptions: tuple[RoleAssumption, ...] = field(default=())


def predict(
    earlier: Sequence[Sequence[PromptShare]],
    guess: Sequence[PromptShare],
    *,
    turns: int,
    runs: int,
    price: CallPrice,
) -> Prediction | None:
    """Predict the usage of runs with the roles of `guess`; None without earlier runs."""
    if not earlier:
        return None
    samples = [_samples(earlier, expected) for expected in guess]
    used = sorted({run for sample in samples for run in sample})
    totals: dict[str, list[float] | None] = {}
    for name in FIGURES:
        # A run that lacks a role counts with the average of that role.
        columns = [
            {run: _figure(name, part, expected.model, price) for run, part in sample.items()}
            for expected, sample in zip(guess, samples, strict=True)
        ]
        guesses = [_figure(name, expected, expected.model, price) for expected in guess]
        totals[name] = _totals(columns, guesses, used or [0], turns)
    return Prediction(
        runs=len(used),
        one={name: _of_runs(values, 1, len(used)) for name, values in totals.items()},
        everything={name: _of_runs(values, runs, len(used)) for name, values in totals.items()},
        assumptions=tuple(
            RoleAssumption(
                who=expected.who,
                model=expected.model,
                models=tuple(sorted({part.model for part in sample.values()})),
            )
            for expected, sample in zip(guess, samples, strict=True)
            if all(part.model != expected.model for part in sample.values())
        ),
    )


def _samples(earlier: Sequence[Sequence[PromptShare]], expected: PromptShare) -> dict[int, PromptShare]:
    """The usage of a role by run: with the same model where any run has it, else with another."""
    theirs = {run: [part for part in parts if part.who == expected.who] for run, parts in enumerate(earlier)}
    same = {run: part for run, parts in theirs.items() for part in parts if part.model == expected.model}
    return same or {run: parts[0] for run, parts in theirs.items() if parts}


def _totals(
    columns: Sequence[Mapping[int, float | None]],
    guesses: Sequence[float | None],
    runs: Sequence[int],
    turns: int,
) -> list[float] | None:
    """The sum over roles for each run; None: a price is unknown."""
    totals = [0.0] * len(runs)
    for column, guess in zip(columns, guesses, strict=True):
        known = [value for value in column.values() if value is not None]
        default = fmean(known) if known else guess
        if len(known) < len(column) or default is None:
            return None
        for index, run in enumerate(runs):
            value = column.get(run)
            totals[index] += (default if value is None else value) * turns
    return totals


def _of_runs(values: Sequence[float] | None, runs: int, sessions: int) -> Predicted:
    if values is None:
        return Predicted()
    value, low, high = predict_total([Group(past={"": values}, planned={"": runs})])
    return Predicted(value=value, low=low, high=high, sessions=sessions, items=runs)


def _figure(name: str, part: PromptShare, model: str, price: CallPrice) -> float | None:
    if name == "calls":
        return part.calls
    if name == "tokens":
        return part.input_tokens + part.output_tokens
    if not part.calls:
        return 0.0
    per_call = price(model, part.input_tokens / part.calls, part.output_tokens / part.calls)
    return None if per_call is None else per_call * part.calls
