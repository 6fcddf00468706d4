"""The report of a run, of sessions or of days as a document."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from proctor.document import Cell, Chart, Details, Document, Fact, Section, Sentence, table, table_of
from proctor.formatting import (
    TOO_FEW,
    UNKNOWN,
    figure,
    milliseconds,
    moment,
    one_line,
    percent,
    plural,
    seconds,
    short,
    usd,
    whole,
)
from proctor.item import ERROR, FINISHED, QUEUED, RUNNING, SUCCESS
from proctor.report import run_charts
from proctor.report.answer import answer, stop_verdict
from proctor.report.result_sections import success_against_cost
from proctor.report.run_charts import limits, places
from proctor.results.summary import BatchFacts, Cost, Summary
from proctor.stats.figures import FactorFigures, Figures, RunFigures
from proctor.stats.intervals import Estimate
from proctor.stats.outcomes import first_line
from proctor.stats.results import ServedModel
from proctor.validity import validity_text

NAMED = 12
"""Mock models, or models that answered in place of others, that are named."""
LISTED_FLAKY, LISTED_TOOLS = 20, 50
METHOD = (
    "Rates, means, and ratios are over tasks: repeats are averaged within their task first, and each task "
    "counts once. 95% confidence intervals are for tasks like these, or, where there is a single task, for "
    "this task alone: plus intervals for rates, pass@k, and pass^k (Wilson for a single task), and for "
    "scores on a known scale (over the runs of a single task); Student's t for other scores; Student's t of "
    "logs for typical values; the wider of Cox and bootstrap-t for mean cost and time; Fieller for cost per "
    "success."
)
SCORES = (
    "Means over tasks, of runs that have a value. SEM: standard error of the mean over tasks. With a single "
    "task, SEM and interval are over its runs and say nothing about other tasks. Missing: other runs, "
    "infrastructure errors aside. score: is given by an evaluator, metric: is measured in the session. Each "
    "interval is 95% for itself; levels are told apart by proctor compare --by and proctor rank, not by "
    "overlap."
)
PARETO = (
    "Pareto front, by observed means: no other level is at least as good in success, mean cost, and mean "
    "time and better in one of them."
)


def run_report(summary: Summary) -> Document:
    """Everything there is to say about some sessions."""
    figures = summary.figures
    return Document(
        title=title(summary),
        subtitle=_state(summary.batches[0]) if len(summary.batches) == 1 else "",
        warnings=list(_warnings(summary)),
        verdict=_verdict(summary),
        facts=_facts(summary),
        sections=[
            Chart(title="Items by status", svg=run_charts.outcome_bar(summary.counts)),
            *(success_against_cost(figures.main) if figures.main else []),
            Details(title="Summary", sections=_totals(summary)),
            Details(title="Batch Results", sections=_outcomes(summary)),
            *([Details(title="Scores", sections=_scores(figures))] if figures.overall.means else []),
            *(
                [Details(title="Repeats", is_folded=True, sections=_repeats(figures))]
                if figures.overall.pass_at
                else []
            ),
            Details(title="Model Usage", is_folded=True, sections=_models(summary)),
            Details(title="Token Analysis", is_folded=True, sections=_tokens(summary)),
            Details(title="Cost", sections=_cost(summary)),
            Details(title="Tool Usage", is_folded=True, sections=_tools(summary)),
            Details(title="Performance", is_folded=True, sections=_performance(summary)),
            Details(title="Checks, Changes, and Merges", is_folded=True, sections=_checks(summary)),
            Details(title="Failures", is_folded=True, sections=_failures(summary)),
            *([_batches(summary.batches)] if summary.batches else []),
        ],
        remarks=[_origin(summary)],
        method=METHOD,
    )


def _verdict(summary: Summary) -> Sentence | None:
    """What to use, or what the race or the check of the run has decided; None: it compares nothing."""
    if summary.choice:
        return answer(summary.choice)
    batch = summary.batches[0] if len(summary.batches) == 1 else None
    if batch is None or batch.row["status"] == RUNNING or not batch.stop_when or not batch.stop_when["race"]:
        return None
    return stop_verdict(batch.stop_when)


def title(summary: Summary) -> str:
    """Title of the report."""
    scope = summary.scope
    if scope.run_id:
        return f"Run {scope.run_id}"
    if scope.session_ids:
        return plural(len(scope.session_ids), "session")
    start = f"from {scope.start:%Y-%m-%d} " if scope.start else ""
    # The end is exclusive; people expect the last day included.
    end = f"until {scope.end - timedelta(microseconds=1):%Y-%m-%d}" if scope.end else ""
    return f"Sessions {start}{end}".strip() if start or end else "All sessions"


def _state(batch: BatchFacts) -> str:
    row = batch.row
    finished = f"finished {moment(row['finishedAt'])}" if row["finishedAt"] else ""
    parts = (row["status"], row["reason"], f"started {moment(row['createdAt'])}", finished)
    return " · ".join(part for part in parts if part)


def _origin(summary: Summary) -> str:
    version = f" {summary.batches[0].row['proctorVersion']}" if summary.batches else ""
    return f"Generated by Proctor{version} on {summary.made_at:%Y-%m-%d %H:%M %Z}."


def _warnings(summary: Summary) -> Iterator[str]:
    stop = summary.batches[0].stop_lines if len(summary.batches) == 1 else []
    if stop:
        head, *lines = map(str.strip, stop)
        yield (
            "This run stops early by its results (stop_when). Ordinary intervals of this report take no "
            f"account of it and are too narrow. {head} {'; '.join(lines)}"
        )
    if mocks := summary.stand_ins:
        names = [
            f"{' with '.join(filter(None, (mock.agent, mock.model)))} ({mock.sessions:,})"
            for mock in mocks[:NAMED]
        ]
        more = f" and {len(mocks) - NAMED} more" if len(mocks) > NAMED else ""
        sessions = f"{plural(summary.attempts['mocks'], 'session')} of {summary.attempts['n']:,}"
        yield (
            f"Mock data: {sessions} used scripted or replayed models: {', '.join(names)}{more}. Draw no "
            "conclusions about real models."
        )
    if answered := summary.figures.answered:
        listed = "; ".join(map(str, answered[:NAMED]))
        yield f"Other models answered than requested; items count for the model that answered: {listed}."
    if summary.validity:
        yield f"Less valid as data: {validity_text(summary.validity)}."
    if mixed := [str(each) for each in summary.figures.served if each.is_mixed]:
        listed = "; ".join(mixed[:NAMED])
        yield f"Several models answered under one name; compare them with --by servedModel: {listed}."


def _facts(summary: Summary) -> list[Fact]:
    attempts, cost = summary.attempts, summary.cost
    sessions = f"{plural(attempts['n'], 'session')}, {attempts['retried']:,} retried"
    return [
        Fact(percent(summary.figures.overall.success.value), _rate_text(summary.figures)),
        Fact(whole(summary.item_count), f"{'item' if summary.item_count == 1 else 'items'} ({sessions})"),
        Fact(seconds(summary.durations.median), f"median duration (p90 {seconds(summary.durations.p90)})"),
        Fact(short(summary.tokens["total"]), f"tokens ({plural(summary.tokens['calls'], 'model call')})"),
        Fact(_at_least(cost.known_usd, is_complete=cost.is_complete), _cost_text(summary)),
    ]


def _rate_text(figures: RunFigures) -> str:
    overall = figures.overall
    if overall.success.runs:
        unchecked = f", {overall.unchecked:,} unchecked" if overall.unchecked else ""
        evaluated = f"{overall.passed:,} of {overall.success.runs:,} evaluated items{unchecked}"
        return f"success rate ({evaluated}; 95% CI {limits(overall.success)})"
    if figures.evaluations:
        return "success rate (evaluation items have no success of their own)"
    if overall.unchecked:
        return f"success rate ({plural(overall.unchecked, 'item')} unchecked)"
    return "success rate (no items evaluated yet)"


def _cost_text(summary: Summary) -> str:
    cost = summary.cost
    if cost.known_usd is None:
        return "cost: prices unknown" if summary.tokens["calls"] else "cost: nothing spent"
    if cost.is_complete:
        return f"cost ({usd(summary.cost_per_success.value)} per success)"
    unpriced = f" ({plural(cost.unpriced_calls, 'call')} unpriced)" if cost.unpriced_calls else ""
    return f"known cost{unpriced}"


def _at_least(known_usd: float | None, *, is_complete: bool) -> str:
    """Money of which some may be missing."""
    return usd(known_usd) if is_complete or known_usd is None else f"≥ {usd(known_usd)}"


def _with_limits(estimate: Estimate, say: Callable[[float | None], str]) -> str:
    """A value with its interval in a sentence."""
    ci = f" (95% CI {limits(estimate, say)})" if estimate.low is not None else ""
    return f"{say(estimate.value)}{ci}"


def _cell(estimate: Estimate, say: Callable[[float | None], str]) -> Cell:
    note = f"({limits(estimate, say)})" if estimate.low is not None else ""
    return Cell(text=say(estimate.value), note=note)


def _totals(summary: Summary) -> list[Section]:
    rate, cost = summary.figures.overall.success, summary.cost
    totals = {
        "Batches": whole(summary.batch_count),
        "Items": whole(summary.item_count),
        "Sessions": whole(summary.attempts["n"]),
        "Iterations": whole(summary.steps["n"]),
        "Model calls": whole(summary.tokens["calls"]),
        "Tokens": whole(summary.tokens["total"]),
        "Cost": _at_least(cost.known_usd, is_complete=cost.is_complete),
    }
    sentences = [Sentence(text=text) for text in _exclusions(summary)]
    if rate.runs:
        sem = f"; SEM {percent(rate.sem)}" if rate.sem is not None else ""
        over = f"{percent(rate.value)} over {plural(rate.n, 'task')}"
        of = "" if limits(rate) == TOO_FEW else f" for {rate.scope}"
        text = f"Success rate {over} (95% CI {limits(rate)}{of}{sem})."
        sentences.insert(0, Sentence(text=text, note=rate.note))
    if versions := summary.figures.agent_versions:
        sentences.append(Sentence(text=f"Agents: {', '.join(versions)}."))
    return [table_of([totals]), *sentences]


def _exclusions(summary: Summary) -> Iterator[str]:
    counts, overall = summary.counts, summary.figures.overall
    if errors := counts[ERROR]:
        failed = f"{percent(overall.with_errors.value)} ({limits(overall.with_errors)})"
        yield (
            f"{plural(errors, 'item')} ended in an infrastructure error and {'is' if errors == 1 else 'are'} "
            f"excluded from the success rate. Counted as failures, the rate would be {failed} instead of "
            f"{percent(overall.success.value)}."
        )
    else:
        yield "No item ended in an infrastructure error, so none is excluded from the success rate."
    if unfinished := counts[QUEUED] + counts[RUNNING]:
        yield f"{plural(unfinished, 'item')} had not finished when this report was generated."
    if overall.unchecked:
        them = "it" if overall.unchecked == 1 else "them"
        yield (
            f"{plural(overall.unchecked, 'item')} changed files, and nothing checked {them}: not part of "
            "success rates and ranks. Add a check command."
        )
    if unchecked := summary.unchecked_successes:
        are = "is an imported session" if unchecked == 1 else "are imported sessions"
        yield (
            f"{plural(unchecked, 'success', 'successes')} of {counts[SUCCESS]:,} {are} without a recorded "
            "score; the source reports only that the session ended without an error."
        )
    yield (
        "Status counts use each item's last attempt. Tokens, tool calls, time, and cost include all attempts "
        f"({plural(summary.attempts['n'], 'session')})."
    )


def _outcomes(summary: Summary) -> list[Section]:
    if not summary.item_count:
        return [Sentence(text="No items.")]
    groups = [(row["status"], row["reason"], row["items"]) for row in summary.outcomes]
    groups += [(status, "", summary.counts[status]) for status in (RUNNING, QUEUED) if summary.counts[status]]
    rows = [
        {
            "Status": Cell.of_status(status),
            "Reason": reason,
            "Items": whole(items),
            "Share": percent(items / summary.item_count),
        }
        for status, reason, items in groups
    ]
    factors = summary.figures.factors
    return [
        table_of(rows, texts=("Status", "Reason")),
        *(_factor(factor, summary.cost) for factor in factors if factor.levels),
        *(
            Sentence(text=f"{factor.name} has too many levels to show here; the export contains all of them.")
            for factor in factors
            if factor.is_too_many
        ),
    ]


def _factor(factor: FactorFigures, cost: Cost) -> Details:
    has_means = any(
        estimate.value is not None for level in factor.levels for estimate in (level.cost_usd, level.seconds)
    )
    return Details(
        title=f"By {factor.name}",
        sections=[
            Chart(title=f"Success rate by {factor.name}", svg=run_charts.rates(factor)),
            table_of([_success_row(factor, level) for level in factor.levels], texts=(factor.name,)),
            *([_means(factor)] if has_means else []),
            *([Sentence(text=_ranks_text(factor, cost))] if factor.ranks else []),
            *([Sentence(text=_reliability(factor))] if factor.reliability else []),
        ],
    )


def _success_row(factor: FactorFigures, level: Figures) -> dict[str, object]:
    rate, failed = level.success, level.with_errors
    return {
        factor.name: level.name or "(none)",
        **({"Rank": places(factor.rank_of(level.name))} if factor.ranks else {}),
        "Success rate": percent(rate.value),
        "95% CI": limits(rate),
        "SEM": percent(rate.sem),
        "Errors as failures": _cell(failed, percent) if level.counts[ERROR] else percent(failed.value),
        **{status.capitalize(): whole(level.counts[status]) for status in FINISHED},
        "Items": whole(sum(level.counts.values())),
        "Tasks": whole(rate.n),
    }


def _means(factor: FactorFigures) -> Section:
    rows = [
        {
            factor.name: level.name or "(none)",
            "Mean cost": _cell(level.cost_usd, usd),
            "Typical cost": _cell(level.typical_cost_usd, usd),
            "Cost per success": _cell(level.cost_per_success_usd, usd),
            "Mean time": _cell(level.seconds, seconds),
            "Typical time": _cell(level.typical_seconds, seconds),
            **({"Pareto front": "yes" if level.name in factor.front else ""} if factor.ranks else {}),
        }
        for level in factor.levels
    ]
    return table_of(rows, texts=(factor.name, "Pareto front"))


def _ranks_text(factor: FactorFigures, cost: Cost) -> str:
    parts = [
        "Ranks by success; their intervals hold for all levels together at 95%, for tasks like these. Levels "
        "whose intervals overlap are not told apart."
    ]
    parts += [] if cost.is_complete else ["Costs are of the items whose cost is known."]
    if factor.errors_decide:
        parts.append("Errors decide the order: it differs when they count as failures.")
    return " ".join([*parts, PARETO])


def _reliability(factor: FactorFigures) -> str:
    ranked = "; ".join(
        f"{rank.name} {percent(rank.value)}, rank {places(rank)}" for rank in factor.reliability
    )
    return f"Ranks by reliability (pass^{factor.k}): {ranked}."


def _scores(figures: RunFigures) -> list[Section]:
    names = list(figures.overall.means)

    def means(levels: Sequence[Figures], factor: str = "") -> Section:
        rows = [
            {
                "Score": name,
                **({factor: level.name or "(none)"} if factor else {}),
                "Mean": figure(mean.value),
                "95% CI": limits(mean, figure),
                "SEM": figure(mean.sem),
                "Tasks": whole(mean.n),
                "Runs": whole(mean.runs),
                "Missing": whole(mean.left_out),
                "Note": mean.note,
            }
            for name in names
            for level in levels
            if (mean := level.means.get(name))
        ]
        return table_of(rows, texts=("Score", factor, "Note"), title=f"Scores by {factor}" if factor else "")

    by_factor = [means(factor.levels, factor.name) for factor in figures.factors if factor.levels]
    return [means([figures.overall]), *by_factor, Sentence(text=SCORES)]


def _repeats(figures: RunFigures) -> list[Section]:
    overall = figures.overall
    plot = run_charts.pass_curves(overall)
    rows = [
        {
            "k": some.k,
            "pass@k": percent(some.estimate.value),
            "95% CI": limits(some.estimate),
            "SEM": percent(some.estimate.sem),
            "pass^k": percent(every.estimate.value),
            "95% CI of pass^k": limits(every.estimate),
            "SEM of pass^k": percent(every.estimate.sem),
            "Tasks": whole(some.estimate.n),
            "Left out": whole(some.estimate.left_out),
        }
        for some, every in zip(overall.pass_at, overall.pass_hat, strict=True)
    ]
    caption = (
        "pass@k: at least one of k runs of a task succeeds; pass^k: all k do. Runs are of the same agent and "
        "model. Tasks with fewer than k runs are left out."
    )
    sections: list[Section] = [
        *([Chart(title="pass@k and pass^k", svg=plot)] if plot else []),
        table_of(rows, caption=caption),
    ]
    if not figures.flaky:
        steady = "No task is flaky: all runs with the same agent and model ended alike."
        return [*sections, Sentence(text=steady)]
    flaky = [
        {
            "Task": one_line(task.words, 110),
            "By": task.group,
            "Succeeded": f"{task.successes:,} of {task.runs:,}",
        }
        for task in figures.flaky[:LISTED_FLAKY]
    ]
    most_even = f"; the {LISTED_FLAKY} most even ones" if figures.flaky_count > LISTED_FLAKY else ""
    combinations = plural(figures.flaky_count, "combination")
    listed = table_of(
        flaky,
        texts=("By",),
        prose=("Task",),
        title="Flaky tasks",
        caption=f"{combinations} of task, agent, and model whose runs ended differently{most_even}.",
    )
    return [*sections, listed]


def _models(summary: Summary) -> list[Section]:
    if not summary.models:
        return [Sentence(text="No model calls recorded.")]
    rows = [
        {
            "Model": usage["model"],
            "Calls": whole(usage["calls"]),
            "Failed": whole(usage["failed"]),
            "Prompt": whole(usage["prompt"]),
            "Cached": whole(usage["cached"]),
            "Completion": whole(usage["completion"]),
            "Reasoning": whole(usage["reasoning"]),
            "Total": whole(usage["total"]),
            "Average": whole(usage["total"] / usage["calls"]),
            "Cost": "no price"
            if usage["cost"] is None
            else _at_least(usage["cost"], is_complete=not usage["unpriced"]),
        }
        for usage in summary.models
    ]
    chart = Chart(title="Tokens by model", svg=run_charts.tokens_by_model(summary.models))
    return [chart, table_of(rows, texts=("Model",))]


def _tokens(summary: Summary) -> list[Section]:
    tokens = summary.tokens
    counts = {
        "Total": whole(tokens["total"]),
        "Average per session": whole(summary.average_tokens),
        "Prompt": whole(tokens["prompt"]),
        "of which cached": whole(tokens["cached"]),
        "Completion": whole(tokens["completion"]),
        "of which reasoning": whole(tokens["reasoning"]),
    }
    return [table_of([counts])]


def _cost(summary: Summary) -> list[Section]:
    cost, per_success, overall = summary.cost, summary.cost_per_success, summary.figures.overall
    if cost.known_usd is None:
        calls = plural(summary.tokens["calls"], "model call")
        unknown = f"No price is known for any of the {calls}, so the cost is unknown."
        return [Sentence(text=unknown if summary.tokens["calls"] else "No model calls recorded.")]
    if per_success.value is not None:
        success = f"{_with_limits(per_success, usd)}, including unsuccessful items"
    else:
        success = "unknown (some prices are missing)" if cost.unpriced_calls else "no item succeeded"
    rows = {
        "Total" if cost.is_complete else "Known cost": usd(cost.known_usd),
        "Per success": success,
        "Mean of an item": _with_limits(overall.cost_usd, usd),
        "Typical item": _with_limits(overall.typical_cost_usd, usd),
    }
    if cost.crashes and not cost.is_complete:
        rows["Crashes"] = f"{cost.crashes:,}; calls that were in flight may have cost more"
    if cost.unpriced_calls:
        calls = f"{plural(cost.unpriced_calls, 'call')} of {summary.tokens['calls']:,}"
        rows["Unpriced"] = f"{calls}; excluded from all totals"
    if cost.judging_usd is not None:
        rows["Evaluation"] = f"{usd(cost.judging_usd)}, as reported by the evaluators"
    return [table(["Cost", "Amount"], rows.items())]


def _tools(summary: Summary) -> list[Section]:
    if not summary.tools:
        return [Sentence(text="No tool calls recorded.")]
    rows = [
        {
            "Tool": tool["tool"],
            "Calls": whole(tool["calls"]),
            "Succeeded": percent((tool["succeeded"] or 0) / tool["judged"] if tool["judged"] else None),
            "Average time": milliseconds(None if tool["ms"] is None else tool["ms"] / tool["measured"]),
        }
        for tool in summary.tools[:LISTED_TOOLS]
    ]
    return [table_of(rows, texts=("Tool",), omitted=len(summary.tools) - len(rows))]


def _performance(summary: Summary) -> list[Section]:
    took, overall, attempts = summary.durations, summary.figures.overall, summary.attempts
    sections: list[Section] = [Sentence(text="No item has finished yet.")]
    if took.items:
        durations = {
            "Median": took.median,
            "Mean": took.mean,
            "Standard deviation": took.std,
            "p90": took.p90,
            "Max": took.longest,
        }
        typical = _with_limits(overall.typical_seconds, seconds)
        sections = [
            Chart(title="Duration of items", svg=run_charts.duration_histogram(took)),
            table_of([{name: seconds(value) for name, value in durations.items()}]),
            Sentence(
                text=f"Work time of an item, waiting excluded: typical {typical}, mean "
                f"{_with_limits(overall.seconds, seconds)}."
            ),
            Sentence(
                text=f"All sessions: {seconds(attempts['work'])} of work and "
                f"{seconds(attempts['waiting'])} of waiting in queues and for rate limits."
            ),
        ]
    rows = [
        {
            "Tool": call.tool,
            "Time": milliseconds(call.duration_ms),
            "Succeeded": UNKNOWN if call.success is None else "yes" if call.success else "no",
            "Arguments": one_line(call.arguments, 90),
            "Session": call.session_id,
        }
        for call in summary.slowest
    ]
    slowest = table_of(
        rows, title="Slowest tool calls", texts=("Tool", "Succeeded", "Session"), prose=("Arguments",)
    )
    return [*sections, slowest]


def _checks(summary: Summary) -> list[Section]:
    steps, attempts = summary.steps, summary.attempts
    passed = "no checks ran"
    if steps["checks"]:
        share = percent(steps["passed"] / steps["checks"])
        passed = f"{steps['passed']:,} of {steps['checks']:,} passed ({share})"
    lines = f"{steps['added']:,} lines added, {steps['removed']:,} removed"
    merged = [f"{count:,} {result}" for result, count in summary.merges.items()]
    rows = {
        "Checks": passed,
        "Changes": f"{plural(steps['files'], 'file')} changed, {lines}",
        "Merges": ", ".join(merged) or "none attempted",
        "Interventions": f"{attempts['interventions']:,} (questions from agents, messages to agents)",
        "Notes": f"{plural(attempts['noted'], 'session')} with notes",
        **{f"Calls to {each.requested}": _answered_by(each) for each in summary.figures.served[:NAMED]},
    }
    return [table(["What", "Count"], rows.items())]


def _answered_by(model: ServedModel) -> str:
    names = ", ".join(f"{name} ({plural(calls, 'call')})" for name, calls in model.answered[:NAMED])
    return f"answered by {names}"


def _failures(summary: Summary) -> list[Section]:
    if not summary.failures:
        return [Sentence(text="None.")]
    rows = [
        {
            "Item": failure["id"][:8],
            "Status": Cell.of_status(failure["status"]),
            "Reason": failure["reason"],
            "Agent": failure["agent"],
            "Model": failure["model"],
            "Repository": failure["repo"],
            "Prompt": one_line(failure["prompt"], 110),
            "Error": one_line(first_line(failure["error"]), 160),
            "Session": failure["sessionId"] or "",
        }
        for failure in summary.failures
    ]
    listed = table_of(
        rows,
        texts=("Item", "Status", "Reason", "Agent", "Model", "Session"),
        prose=("Repository", "Prompt", "Error"),
        omitted=summary.failure_count - len(rows),
    )
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in summary.figures.reasons.items())
    return [*([Sentence(text=f"Reasons: {reasons}.")] if reasons else []), listed]


def _batches(batches: Sequence[BatchFacts]) -> Section:
    rows = [
        {
            "Run": batch.row["runId"],
            "Status": Cell.of_status(batch.row["status"]),
            "Created": moment(batch.row["createdAt"]),
            "Finished": moment(batch.row["finishedAt"] or ""),
            "Concurrency": whole(batch.row["concurrency"]),
            "Budget": usd(batch.row["budgetUsd"]),
            "Charged": usd(batch.spent_usd),
            "Plan": batch.row["planPath"],
        }
        for batch in batches
    ]
    return table_of(
        rows,
        title="Batch" if len(batches) == 1 else "Batches",
        texts=("Run", "Status", "Created", "Finished"),
        prose=("Plan",),
    )
