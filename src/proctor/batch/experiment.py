"""Make a batch of an experiment, extend it, and keep its folder and the store of one mind.

The store is the truth: when a run is taken up again, its folder is first brought to what the store
knows. A folder that comes from another machine is the other way round: its runs are taken into the
store, with what they cost, and go on from where they were.

Knows nothing of how a run is played or shown.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from proctor.batch.launch import Extension, bring_up, foresee, open_batch
from proctor.item import ERROR, FAIL, QUEUED, RUNNING, SUCCESS, Item
from proctor.plan.experiment import Experiment
from proctor.scenario import state as states
from proctor.scenario.state import Call, Run, Turn, Value, turn_as_plain, turn_of
from proctor.scenario.verdicts import verdicts_of
from proctor.scenario.voices import run_seed
from proctor.score import Score
from proctor.session import Iteration, Metric, ModelCall, Usage, Workspace
from proctor.store import Reader, Recorder, Store, Writer, item_of, timestamp

JOB = "scenario"
CAN_GO_ON = ("interrupted", "aborted", "timeout", "rate_limit", "halted", "cost_limit", "")


def create_experiment(
    store: Store,
    experiment: Experiment,
    items: Iterable[Item],
    *,
    run_id: str,
    owner: str,
    version: str,
    now: datetime,
) -> int:
    """Write a new batch with all its runs; how many those are."""
    asked = _from_config(experiment)
    return open_batch(store, JOB, asked, items, run_id=run_id, owner=owner, version=version, now=now)


def extend_experiment(store: Store, run_id: str, experiment: Experiment) -> Extension:
    """Bring a batch up to its config and scenario as they stand now. The batch must be ours."""
    items = experiment.items(variation_numbers(store.read, run_id))
    # Which models take part follows from what names them.
    return bring_up(store, run_id, _from_config(experiment), items, follows="model")


def foresee_experiment(read: Reader, run_id: str, experiment: Experiment) -> Extension:
    """What `extend_experiment` would change; nothing is changed."""
    return foresee(read, run_id, experiment.items(variation_numbers(read, run_id)), follows="model")


def variation_numbers(read: Reader, run_id: str) -> dict[str, int]:
    """The number that each variation of a batch was given, by the digest of its items."""
    rows = read.query('SELECT DISTINCT "digest", "settings" FROM "batch_items" WHERE "runId" = ?', (run_id,))
    return {row["digest"]: int(json.loads(row["settings"])["variationId"]) for row in rows}


def run_from_store(read: Reader, row: Mapping[str, Any]) -> Run:
    """A run as the store knows it: the turns that were finished, and what the others have cost."""
    item, turns, lost, judged = item_of(row), list[Turn](), list[Call](), list[Call]()
    scores: dict[str, Value] = {}
    attempts = read.attempts(row["runId"], row["id"])
    for attempt in attempts:
        made = [_turn(step["output"]) for step in read.of_session("iterations", attempt["id"])]
        played = [turn for turn in made if turn is not None]
        if played:
            # An attempt that began further back than the last one ended has played those turns anew.
            lost += [call for turn in turns if turn.number >= played[0].number for call in turn.calls]
            turns = [turn for turn in turns if turn.number < played[0].number] + played
        behind = _behind(read, attempt["id"], len(made), played)
        if attempt["status"] == SUCCESS or attempt["endReason"] == "checks_failed":
            # Its last turn was over, and whoever was asked then judged it.
            judged += [replace(call, who="evaluators", purpose="judging", turn=0) for call in behind]
            scores = _scores(read, attempt["id"])
        else:
            lost += behind
    status, reason = _status(row)
    return Run(
        item_id=row["id"],
        label=item.settings["label"],
        seed=run_seed(item.details, item.repeat),
        total_turns=int(item.details.get("turns", len(turns))),
        turns=tuple(turns),
        lost_calls=tuple(lost),
        judge_calls=tuple(judged),
        scores=scores,
        status=status,
        reason=reason,
        error=row["error"],
        variation_id=item.settings.get("variationId", 0),
        variation=item.settings.get("variation", ""),
        started_at=row["startedAt"] or "",
        ended_at=row["finishedAt"] or "",
    )


def take_in(
    store: Store, run_id: str, items: Sequence[Item], runs: Mapping[str, Run], *, source: str, now: datetime
) -> int:
    """Give items the runs that were played elsewhere, by item id; how many of them were given one."""
    writer = store.writer()
    try:
        for item in items:
            if item.id in runs:
                _take_in(writer, run_id, item, runs[item.id], source, now)
    finally:
        writer.close()
    return len(runs)


def _take_in(writer: Writer, run_id: str, item: Item, run: Run, source: str, now: datetime) -> None:
    session_id = f"{item.id}{int(now.timestamp()):010x}"[:26]
    began = run.started_at or timestamp(now)
    row = {
        "runId": run_id,
        "itemId": item.id,
        "attempt": 1,
        "job": JOB,
        "agent": "",
        "model": item.model,
        "standIn": int(item.model.startswith("scripted/")),
        "status": RUNNING,
        "source": source,
        "startedAt": began,
    }
    recorder = Recorder(writer, session_id, row, lambda: now)
    recorder.record(Workspace(name=run.label))
    for turn in run.turns:
        for call in turn.calls:
            recorder.record(_model_call(call))
        for name, value in turn.metrics.items():
            number = float(value) if isinstance(value, bool) else value
            recorder.record(Metric(name=name, value=number, step=turn.number))
        recorder.record(Iteration(output=json.dumps(turn_as_plain(turn), ensure_ascii=False)))
    for call in (*run.lost_calls, *run.judge_calls):
        recorder.record(_model_call(call))
    for name, value in run.scores.items():
        is_word = isinstance(value, str)
        recorder.score(
            Score(
                evaluator=name,
                value=None if is_word or value is None else float(value),
                label=str(value) if is_word else "",
            )
        )
    is_done = run.status == states.COMPLETED
    ended = (SUCCESS, "completed") if is_done else (ERROR, "interrupted")
    recorder.end(*ended, "", work_seconds=0.0, waiting_seconds=0.0)
    totals = recorder.totals
    # A run that was not finished goes on; why it had stopped is in its own files.
    values = {
        "status": SUCCESS if is_done else QUEUED,
        "reason": "completed" if is_done else "",
        "startedAt": began,
        "finishedAt": (run.ended_at or began) if is_done else None,
        "sessionId": session_id,
        "tokensTotal": totals.usage.total_tokens,
        "costUsd": totals.cost_usd,
    }
    writer.change("batch_items", (run_id, item.id), values)
    if totals.cost_usd:
        spent = (session_id, 1, run_id, item.id, timestamp(now), "settle", 0.0, totals.cost_usd, "")
        writer.append("ledger", spent)


def _model_call(call: Call) -> ModelCall:
    usage = Usage(input_tokens=call.input_tokens, output_tokens=call.output_tokens)
    return ModelCall(model=call.model, usage=usage, cost_usd=call.cost_usd)


def _from_config(experiment: Experiment) -> dict[str, Any]:
    defaults = {
        "runsPerVariation": experiment.runs_per_variation,
        "concurrency": experiment.max_parallel,
        "variations": len(experiment.variations),
    }
    return {
        "planPath": str(experiment.path),
        "planText": experiment.text,
        "planDigest": experiment.digest,
        "defaultsJson": json.dumps(defaults),
        "optionsJson": json.dumps(experiment.options, ensure_ascii=False),
        "concurrency": experiment.max_parallel,
        "seed": experiment.seed,
        "budgetUsd": experiment.budget_usd,
    }


def _turn(written: str) -> Turn | None:
    try:
        return turn_of(json.loads(written))
    except (ValueError, KeyError, TypeError):
        return None


def _behind(read: Reader, session_id: str, steps: int, played: Sequence[Turn]) -> list[Call]:
    rows = read.query(
        'SELECT "model", "promptTokens", "completionTokens", "costUsd" FROM "model_calls" '
        'WHERE "sessionId" = ? AND "step" > ? ORDER BY "position"',
        (session_id, steps),
    )
    number = played[-1].number + 1 if played else 0
    return [
        Call(
            who="",
            purpose="a turn that was not finished",
            model=row["model"],
            turn=number,
            input_tokens=row["promptTokens"],
            output_tokens=row["completionTokens"],
            cost_usd=row["costUsd"],
        )
        for row in rows
    ]


def _scores(read: Reader, session_id: str) -> dict[str, Value]:
    """What each evaluator said of a run, in one value."""
    return verdicts_of(
        Score(evaluator=row["evaluator"], value=row["value"], label=row["label"])
        for row in read.of_session("scores", session_id)
    )


def _status(row: Mapping[str, Any]) -> tuple[str, str]:
    if row["status"] == SUCCESS:
        return states.COMPLETED, ""
    if row["status"] == RUNNING:
        return states.RUNNING, ""
    halted = row["reason"] in CAN_GO_ON or (row["status"] == FAIL and row["reason"] == "validation_failed")
    return (states.HALTED if halted else states.FAILED), row["reason"]
