"""Carry out an evaluation job from here: find its sessions, judge them, say what came of it."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from proctor.analyse.evaluation import EvaluationResults, EvaluatorResult, results_of
from proctor.analyse.insights import Insight, insights_of
from proctor.batch import secrecy
from proctor.batch.conductor import Ending
from proctor.batch.evaluation import (
    NO_SESSIONS,
    SOURCE_FAILED,
    Evaluation,
    evaluation_of,
    fail_evaluation,
)
from proctor.batch.evaluation_items import fill, find_sessions
from proctor.batch.ground import Ground
from proctor.batch.house import FindEvaluator
from proctor.batch.jury import Bench, make_jury
from proctor.batch.leftovers import clear_leftovers
from proctor.batch.online import online_source
from proctor.cli import ending as codes
from proctor.cli.carry_out import Shown, conduct, exit_code, summary, tell_end
from proctor.cli.house import Places, configuration, environment, make_house, make_models, now
from proctor.cli.tables import print_table
from proctor.cli.views import view_for
from proctor.cli.words import count, money, print_json, printable, say
from proctor.errors import ProctorError, UsageError
from proctor.export.evaluation import evaluation_document
from proctor.models import Models
from proctor.plan.evaluation import EvaluationRequest
from proctor.store import Again, Store
from proctor.store.owner import this_process


def bench_for(store: Store, where: Places, folder: Path, mark: str = "evaluation") -> Bench:
    """Where evaluators are looked for: beside the plan, in Proctor's home, and in the store."""
    return Bench(
        folder=folder,
        environment=secrecy.visible(environment(), named={"HOME"}),
        definitions=store.definitions.document,
        folders=[folder / "evaluators", where.home / "evaluators"],
        lambdas=configuration(where, [folder]).evaluation.get("lambdas", {}),
        mark=mark,
    )


def models_for(where: Places, folder: Path, prices: Mapping[str, Any] | None) -> Models:
    """The models that judges may be."""
    return make_models(where, [folder, Path.cwd()], prices=prices)


def carry_out_evaluation(
    store: Store,
    where: Places,
    evaluation: Evaluation,
    shown: Shown,
    *,
    again: Again = Again(),  # noqa: B008  it is frozen
    changes: Mapping[str, Any] | None = None,
) -> int:
    """Take a job over and carry it out to its end; the exit code."""
    owner, run_id = this_process(), evaluation.id
    clear_leftovers(store.resume_batch(run_id, owner, again, now()), where.home)
    store.change_batch(run_id, changes or {})
    store.evaluations.tell_failure(run_id, "")
    try:
        models, find, has_sessions = _made_ready(store, where, evaluation)
    except ProctorError as error:
        fail_evaluation(store, run_id, SOURCE_FAILED, str(error), now())
        raise
    if not has_sessions:
        words = "No sessions were found for the given source."
        fail_evaluation(store, run_id, NO_SESSIONS, words, now())
        return tell_evaluation(store, run_id, Ending(status="aborted"), shown)
    house = replace(make_house(where.home, models), find_evaluator=find)
    view = view_for(store, run_id, as_json=shown.as_json, as_jsonl=shown.as_jsonl)
    ending = asyncio.run(conduct(store, run_id, owner, house, models, view))
    return tell_evaluation(store, run_id, ending, shown)


def _made_ready(store: Store, where: Places, evaluation: Evaluation) -> tuple[Models, FindEvaluator, bool]:
    """A job's models, the way to its evaluators, and whether it has sessions, which are found if need be."""
    row = store.evaluations.row(evaluation.id, with_deleted=True)
    options = json.loads(store.read.batch(evaluation.id, now())["optionsJson"])
    folder = Path(options.get("folder") or Path.cwd())
    request = request_of(store, evaluation)
    models = models_for(where, folder, request.document.get("prices"))
    find = bench_for(store, where, folder, mark=evaluation.id).finder(json.loads(row["definitionsJson"]))
    # A job that found nothing before may find something now.
    if row["discoveredAt"] is not None and row["sessionsFound"]:
        return models, find, True
    jury, ground = make_jury(request, find, models, models), Ground(request.metadata)
    sessions = find_sessions(store, request, now())
    told = fill(store, evaluation.id, request, sessions.ids, jury, ground)
    store.evaluations.tell_discovery(
        evaluation.id, found=len(sessions.ids), ignored=sessions.ignored, now=now()
    )
    _tell_discovery(len(sessions.ids), sessions.ignored, ground)
    if told.reasons:
        why = "; ".join(f"{count(number, 'item')}: {name}" for name, number in told.reasons.items())
        say(f"{count(told.added, 'new item')} (new because of {printable(why)})")
    return models, find, bool(sessions.ids)


def request_of(store: Store, evaluation: Evaluation) -> EvaluationRequest:
    """What a job was asked to do, with all that was said about single sessions."""
    metadata = store.evaluations.metadata(evaluation.id)
    document = {**evaluation.document, "evaluationMetadata": {"sessionMetadata": metadata}}
    return EvaluationRequest.from_document(document, online_source=online_source(store))


def tell_evaluation(store: Store, run_id: str, ending: Ending, shown: Shown) -> int:
    """Say what a job came to; the exit code."""
    run = summary(store, store.read.batch(run_id, now()))
    evaluation = evaluation_of(store, run_id, now(), with_deleted=True)
    results = results_of(store, run_id)
    document = evaluation_document(evaluation, results) | {"run": run}
    if shown.as_json:
        print_json(document)
    elif shown.as_jsonl:
        print(json.dumps({"type": "done", **document}, ensure_ascii=False, default=str), flush=True)
    tell_end(run)
    if not (shown.as_json or shown.as_jsonl) and results.summaries:
        print_results(results)
        print_insights(insights_of(store.read, run_id, (each.asked_as for each in results.summaries)))
    for words in (*evaluation.error_details, *results.remarks):
        say(f"note: {printable(words)}")
    return exit_code(ending, run) if run["itemCount"] else codes.CUT_SHORT


def print_results(results: EvaluationResults) -> None:
    """The evaluators of a job, each with its average and interval."""
    heads = ("EVALUATOR", "LEVEL", "AVERAGE", "95 % INTERVAL", "RESULTS", "FAILED", "LABELS", "COST")
    print_table(heads, [_cells(result) for result in results.summaries])


def print_insights(insights: Sequence[Insight]) -> None:
    """What was found in the sessions besides scores: failures, intents, approaches."""
    rows = [
        (each.insight, each.found, len(each.sessions), ", ".join(each.sessions), each.example)
        for each in insights
    ]
    if rows:
        print()
        print_table(("INSIGHT", "FOUND", "SESSIONS", "WHICH", "FOR EXAMPLE"), rows)


def _cells(result: EvaluatorResult) -> tuple[str, ...]:
    average = result.average
    around = "" if average.low is None else f"{average.low:.3f} to {average.high:.3f}"
    labels = ", ".join(f"{label} {number}" for label, number in list(result.labels.items())[:3])
    return (
        result.title,
        result.level,
        "–" if average.value is None else f"{average.value:.3f}",
        around,
        f"{result.evaluated:,}",
        f"{result.failed:,}" if result.failed else "",
        labels,
        "" if result.cost_usd is None else money(result.cost_usd),
    )


def _tell_discovery(found: int, ignored: int, ground: Ground) -> None:
    left = f", {ignored:,} older ones ignored" if ignored else ""
    say(f"{count(found, 'session')} to judge{left}")
    if ground.unused:
        named = ", ".join(sorted(ground.unused)[:5])
        lost = count(len(ground.unused), "session")
        say(f"note: {lost} with ground truth not among them: {printable(named)}")


def resume_evaluation(
    store: Store, where: Places, run_id: str, changes: Mapping[str, Any], again: Again, shown: Shown
) -> int:
    """Go on with a job that was stopped, halted or killed."""
    evaluation = evaluation_of(store, run_id, now(), with_deleted=True)
    if evaluation.state == "COMPLETED" and not again.errors:
        raise UsageError(f"{run_id} is {evaluation.state}\nThere is nothing left to do.")
    return carry_out_evaluation(store, where, evaluation, shown, again=again, changes=changes)
