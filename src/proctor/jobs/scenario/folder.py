"""The output folder of an experiment: written from the store, and imported into it.

    batch-config.yaml  batch-state.json  batch-summary.json  batch-costs.json  base-scenario/  runs/var-…/

The files can be rewritten at any time and then show what the store holds. Each is complete or absent.
"""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from proctor.context import RunContext
from proctor.errors import UsageError
from proctor.evaluators.registry import declared_scale
from proctor.formatting import plural
from proctor.item import ERROR, FAIL, FINISHED, QUEUED, RUNNING, SUCCESS, Item, digest_of
from proctor.job import BatchEnd, ItemFinished, RunHooks, StepFinished
from proctor.jobs.scenario.analysis import BatchAnalyzer
from proctor.jobs.scenario.experiment import CONFIG, KEPT_SCENARIO, STAND_INS, STATE, CurrentNames
from proctor.json_values import as_text, changed, maps_in
from proctor.scenario import state
from proctor.scenario.definition import Scenario, run_inputs, scenario_of
from proctor.scenario.metrics import read_again
from proctor.scenario.prompts import run_seed
from proctor.scenario.run_files import as_json, is_intact, read_run, write_run, write_whole
from proctor.scenario.state import (
    EVALUATORS,
    CheckCounts,
    ScenarioCall,
    ScenarioRun,
    ScenarioTurn,
    Value,
    turn_as_plain,
    turn_of,
    verdicts_of,
)
from proctor.score import Score
from proctor.session import Iteration, Metric, ModelCall, Usage, Workspace
from proctor.stop_rule import STOP_RULE
from proctor.store import Recorder, Store, StoreReader, Writer, item_of, timestamp
from proctor.store.database import Row, extended
from proctor.store.items import ItemState, item_settings, item_states
from proctor.store.runs import active_seconds
from proctor.store.sessions import score_of
from proctor.store.tables import BatchRow, ItemRow, ScoreRow
from proctor.store.transcripts import calls_after_step, step_text
from proctor.validity import InvalidCount, sum_counts, sum_served

JOB_NAME = "scenario"
RESUMABLE_REASONS = ("interrupted", "aborted", "timeout", "rate_limit", "halted", "cost_limit", "")
"""Reasons after which a run is halted and not failed: it can be resumed."""
WRITE_INTERVAL_SECONDS = 2.0
"""Minimum time between two writes of the experiment's own files while runs finish one after the other."""
SUMMARY, COSTS = "batch-summary.json", "batch-costs.json"
MAX_COPIED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRuns:
    """Runs from elsewhere that a new run of an experiment begins with."""

    items: Sequence[Item]
    runs: Mapping[str, ScenarioRun]
    """By item id."""
    source: str
    """Column `source` of their sessions: `import`, or `branch`."""
    folder: Path
    """Where they come from."""


def variation_numbers(read: StoreReader, run_id: str) -> dict[str, int]:
    """The numbers of a batch's variations, by the digest of their items."""
    rows = item_settings(read, run_id)
    return {row["digest"]: int(json.loads(row["settings"])["variationId"]) for row in rows}


def run_from_store(read: StoreReader, row: Mapping[str, Any]) -> ScenarioRun:
    """A run from the store: its finished turns, and the calls of unfinished ones."""
    item, turns, lost, judged = item_of(row), list[ScenarioTurn](), list[ScenarioCall](), list[ScenarioCall]()
    scores: dict[str, Value] = {}
    ended_at = ""
    attempts = read.attempts(row["runId"], row["id"])
    for attempt in attempts:
        steps = [_turn(step["output"]) for step in read.of_session("iterations", attempt["id"])]
        finished = [turn for turn in steps if turn is not None]
        if finished:
            # An attempt that started at an earlier turn than the last one ended repeats those turns.
            lost += [call for turn in turns if turn.number >= finished[0].number for call in turn.calls]
            turns = [turn for turn in turns if turn.number < finished[0].number] + finished
        ended_at = attempt["finishedAt"] or ""
        if attempt["status"] == RUNNING:
            # Its turn may still be finished.
            continue
        rest = _calls_after(read, attempt["id"], len(steps), turns[-1].number + 1 if turns else 1)
        is_judged = attempt["status"] == SUCCESS or attempt["endReason"] == "checks_failed"
        if is_judged:
            rows = read.of_session("scores", attempt["id"])
            scores = verdicts_of(map(score_of, rows))
            judged += _judge_calls(rows, item) or [
                replace(call, who=EVALUATORS, purpose="judging", turn=0) for call in rest if not call.who
            ]
        judged += [replace(call, turn=0) for call in rest if call.who == EVALUATORS]
        lost += [call for call in rest if call.who != EVALUATORS and (call.who or not is_judged)]
    status, reason = _status(row)
    return ScenarioRun(
        item_id=row["id"],
        label=item.settings["label"],
        seed=run_seed(item.details, item.repeat),
        total_turns=int(item.details.get("turns", len(turns))),
        turns=tuple(turns),
        lost_calls=tuple(lost),
        judge_calls=tuple(judged),
        scores=scores,
        served=sum_served(json.loads(attempt["servedModels"]) for attempt in attempts),
        status=status,
        reason=reason,
        error=row["error"],
        variation_id=item.settings.get("variationId", 0),
        variation=item.settings.get("variation", ""),
        started_at=row["startedAt"] or "",
        ended_at=row["finishedAt"] or ended_at,
    )


def import_runs(store: Store, run_id: str, imported: ImportedRuns, now: datetime) -> None:
    """Give items of a run the turns that were finished elsewhere."""
    writer = store.writer()
    try:
        for item in imported.items:
            _import(writer, run_id, item, imported.runs[item.id], imported.source, now)
    finally:
        writer.close()


def _import(writer: Writer, run_id: str, item: Item, run: ScenarioRun, source: str, now: datetime) -> None:
    session_id = f"{item.id}{int(now.timestamp()):010x}"[:26]
    began = run.started_at or timestamp(now)
    row = {
        "runId": run_id,
        "itemId": item.id,
        "attempt": 1,
        "job": JOB_NAME,
        "agent": "",
        "model": item.model,
        "isMock": int(item.model.startswith("scripted/")),
        "status": RUNNING,
        "source": source,
        "startedAt": began,
    }
    recorder = Recorder(writer, session_id, row, lambda: now)
    recorder.record(Workspace(name=run.label))
    served = {
        model: chain.from_iterable(repeat(name, calls) for name, calls in counts.items())
        for model, counts in run.served.items()
    }
    for turn in run.turns:
        for call in turn.calls:
            recorder.record(_model_call(call, served))
        for name, value in turn.metrics.items():
            number = float(value) if isinstance(value, bool) else value
            recorder.record(Metric(name=name, value=number, step=turn.number))
        recorder.record(Iteration(output=json.dumps(turn_as_plain(turn), ensure_ascii=False)))
    for call in (*run.lost_calls, *run.judge_calls):
        recorder.record(_model_call(call, served))
    for name, value in run.scores.items():
        is_word = isinstance(value, str)
        recorder.score(
            Score(
                evaluator=name,
                value=None if is_word or value is None else float(value),
                label=str(value) if is_word else "",
            )
        )
    is_done = run.status == state.COMPLETED
    ended = (SUCCESS, "completed") if is_done else (ERROR, "interrupted")
    recorder.end(*ended, "", work_seconds=0.0, waiting_seconds=0.0)
    totals = recorder.totals
    # An unfinished run is resumed; the reason why it stopped is in its files.
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


def _model_call(call: ScenarioCall, served: Mapping[str, Iterator[str]]) -> ModelCall:
    """A call from a file. Files count who answered as each model: `served` has a name for each call."""
    return ModelCall(
        model=call.model,
        usage=Usage(input_tokens=call.input_tokens, output_tokens=call.output_tokens),
        cost_usd=call.cost_usd,
        speaker=call.who,
        purpose=call.purpose,
        served_model=next(served.get(call.model, iter(())), ""),
    )


def _turn(output: str) -> ScenarioTurn | None:
    try:
        return turn_of(json.loads(output))
    except (ValueError, KeyError, TypeError):
        return None


def _calls_after(read: StoreReader, session_id: str, steps: int, turn: int) -> list[ScenarioCall]:
    """The calls of a session after its last finished turn: of `turn`, or of evaluators."""
    return [
        ScenarioCall(
            who=row["speaker"],
            purpose=row["purpose"] or "a turn that was not finished",
            model=row["model"],
            turn=turn,
            input_tokens=row["promptTokens"],
            output_tokens=row["completionTokens"],
            cost_usd=row["costUsd"],
        )
        for row in calls_after_step(read, session_id, steps)
    ]


def _judge_calls(scores: Sequence[ScoreRow], item: Item) -> list[ScenarioCall]:
    """The calls that the scores of a run took."""
    judges = {each["name"]: each["judging"]["judge"] for each in item.settings.get("evaluators") or ()}
    default = next(iter(judges.values()), "")
    return [
        ScenarioCall(
            who=EVALUATORS,
            purpose=score["evaluator"],
            model=judges.get(score["evaluator"], default),
            turn=0,
            input_tokens=score["inputTokens"],
            output_tokens=score["outputTokens"],
            cost_usd=score["costUsd"],
        )
        for score in scores
        if score["inputTokens"]
    ]


def _status(row: Mapping[str, Any]) -> tuple[str, str]:
    if row["status"] == SUCCESS:
        return state.COMPLETED, ""
    if row["status"] == RUNNING:
        return state.RUNNING, ""
    halted = row["reason"] in RESUMABLE_REASONS or (
        row["status"] == FAIL and row["reason"] == "validation_failed"
    )
    # An attempt that a budget has stopped is halted.
    reason = "budget" if row["reason"] == "halted" else row["reason"]
    return (state.HALTED if halted else state.FAILED), reason


@dataclass(frozen=True, slots=True, kw_only=True)
class _RunFolder:
    """The folder of one run, as it was last written."""

    path: Path
    scenario: Scenario
    run: ScenarioRun
    whole: bool
    """Whether the texts of its turns are saved."""
    session_id: str = ""
    """The attempt whose steps it has, up to `step`."""
    step: int = 0

    def write(self, *, since: int = 0) -> None:
        """Write the files; of the turns only those from `since` on."""
        write_run(self.path, self.scenario, self.run, since=since, whole=self.whole)

    @property
    def last_turn(self) -> int:
        """The number of its last turn; 0: it has none."""
        return self.run.turns[-1].number if self.run.turns else 0


def read_checkpoint(read: StoreReader, run_id: str, item_id: str) -> ScenarioRun:
    """The run of an item with its finished turns, up to the first that cannot be read."""
    (row,) = read.exact_item(run_id, item_id)
    run = run_from_store(read, row)
    return run.until(sum(turn.number == number for number, turn in enumerate(run.turns, start=1)))


class ExperimentFolder(RunHooks):
    """The folder of one experiment, kept in sync with the store."""

    def __init__(
        self,
        ctx: RunContext,
        run_id: str,
        *,
        scenario_folder: Path,
        earlier_config: str = "",
        imported: ImportedRuns | None = None,
    ) -> None:
        """`scenario_folder` is copied into the folder; `earlier_config` is kept if the config has changed."""
        self._ctx, self.store, self.run_id = ctx, ctx.store, run_id
        self._scenario_folder, self._earlier_config, self._imported = (
            scenario_folder,
            earlier_config,
            imported,
        )
        self._options: Mapping[str, Any] = json.loads(self._batch()["optionsJson"])
        self.path = Path(self._options["output"])
        self._written_at = ctx.monotonic()
        self._running: dict[str, _RunFolder] = {}
        """Folders of running items, by item id."""
        self._current = set[str]()
        """Items that are finished and whose folders are complete."""
        self._checks: dict[str, CheckCounts] = {}
        """Checks of the runs whose folders were read or written, by item id."""

    def begin(self, *, resumed: bool) -> BatchEnd | None:  # noqa: ARG002
        """Write what the runs need, import runs from elsewhere, and bring all files in sync."""
        self._prepare()
        if self._imported and self._imported.items:
            import_runs(self.store, self.run_id, self._imported, self._ctx.now())
            if self._imported.source == "import":
                self._report_import(self._imported)
        self._sync()
        return None

    def step_finished(self, step: StepFinished) -> None:
        """Write the turns that a run has finished, or the files of a run that begins or continues."""
        folder = self._running.get(step.item_id)
        if folder is None or folder.session_id != step.session_id:
            folder = self._folder_of(self._item(step.item_id))
            folder = replace(folder, session_id=step.session_id, step=step.number)
            self._running[step.item_id] = folder
            folder.write()
            return
        outputs = [
            step_text(self.store.read, step.session_id, number, "output")
            for number in range(folder.step + 1, step.number + 1)
        ]
        added = [turn for turn in map(_turn, outputs) if turn and turn not in folder.run.turns]
        if not added:
            return
        turns = (*(each for each in folder.run.turns if each.number < added[0].number), *added)
        folder = replace(folder, run=replace(folder.run, turns=turns), step=step.number)
        self._running[step.item_id] = folder
        folder.write(since=added[0].number)

    def checkpoint(self, item_id: str) -> ScenarioRun:
        """The run with its finished turns, up to the first that cannot be read."""
        return read_checkpoint(self.store.read, self.run_id, item_id)

    def item_finished(self, item: ItemFinished) -> None:
        """Write how a run has ended, and the experiment's own files unless that was done just now."""
        written = self._running.pop(item.id, None)
        self._folder_of(self._item(item.id)).write(since=written.last_turn + 1 if written else 0)
        self._current.add(item.id)
        if self._ctx.monotonic() - self._written_at >= WRITE_INTERVAL_SECONDS:
            self.write()

    def finish(self, end: BatchEnd) -> Mapping[str, object]:
        """Bring all files in sync, and analyze a completed experiment if its config says so."""
        self._sync()
        if self._options.get("aggregateMetrics") and end.status == "completed":
            BatchAnalyzer(self.path).save()
        documents = self._documents()
        return {
            "experiment": self._options["experiment"],
            "output": str(self.path),
            "durationSec": documents.seconds,
            **documents.checks(),
            **({"runsOverLimit": over} if (over := documents.over_limit()) else {}),
        }

    def _documents(self) -> "_ExperimentDocuments":
        return _ExperimentDocuments(
            self._batch(),
            self._options,
            self._items(),
            seconds=round(active_seconds(self.store.read, self.run_id, self._ctx.now()), 3),
            checks=sum(self._checks.values(), CheckCounts()),
            validity=sum_counts(self.store.read.last_sessions(self.run_id, "validity")),
            served=sum_served(self.store.read.last_sessions(self.run_id, "servedModels")),
            score_scales=self._score_scales,
            versions=self._versions,
        )

    @cached_property
    def _versions(self) -> dict[str, str]:
        """By digest of a stored scenario, the digest of what its runs depend on."""
        read = self.store.read
        digests = read.resource_digests(self.run_id) - {STOP_RULE}
        stored = {digest: read.resource(self.run_id, digest) for digest in digests}
        return {digest: digest_of(run_inputs(json.loads(text))) for digest, text in stored.items() if text}

    @cached_property
    def _score_scales(self) -> dict[str, tuple[float, float]]:
        """The scales that definitions of evaluators declare, by the name of the evaluator."""
        names = self._options.get("evaluators") or ()
        folder = Path(self._batch()["planPath"]).parent
        try:
            definitions = self._ctx.evaluators(folder).copies(names) if names else {}
        except UsageError:
            # A definition that is no longer valid: its scores have no scale.
            return {}
        scales = {
            as_text(definition, "evaluatorName"): declared_scale("", "", definition)
            for definition in maps_in([*definitions.values()])
        }
        return {name: scale for name, scale in scales.items() if scale is not None}

    def _report_import(self, imported: ImportedRuns) -> None:
        finished = sum(imported.runs[item.id].status == state.COMPLETED for item in imported.items)
        number = plural(len(imported.items), "run")
        self._ctx.info(f"{number} imported from {imported.folder}, {finished} finished")

    def _sync(self) -> None:
        self.write_runs()
        self.write()

    def _prepare(self) -> None:
        """Write what the runs need: the config, the scenario's files, and the scenario as one document."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._write_config(self._batch()["planText"], self._earlier_config)
            self._copy_scenario(self._scenario_folder)
            write_whole(self.path / f"{KEPT_SCENARIO}.json", as_json(self._options["scenario"]))
        except OSError as error:
            raise UsageError(
                f"cannot write to {self.path}: {error.strerror}\nName another output_dir."
            ) from error

    def write_runs(self) -> None:
        """Rewrite the folders of runs that differ from the store. No run may be in progress."""
        for row in self._items():
            if not row["sessionId"] or row["id"] in self._current:
                continue
            if not self._is_current(row):
                self._folder_of(self._item(row["id"])).write()
            if row["status"] == SUCCESS:
                self._current.add(row["id"])

    def write(self) -> None:
        """Write state, summary and costs from the store."""
        files = self._documents()
        write_whole(self.path / STATE, as_json(files.state()))
        write_whole(self.path / COSTS, as_json(files.costs()))
        write_whole(self.path / SUMMARY, as_json(files.summary()))
        self._written_at = self._ctx.monotonic()

    def _is_current(self, row: ItemState) -> bool:
        """Whether the folder of a run holds what the store does. Its state is written last."""
        settings = json.loads(row["settings"])
        path = self._run_path(settings)
        written = read_run(path)
        if written is None or written.item_id != row["id"]:
            return False
        plain = changed(self._options["scenario"], settings.get("changes") or {})
        is_whole = bool(settings.get("saveIndividualRuns", True))
        if not is_intact(path, written, whole=is_whole, measures=plain.get("metrics") or {}):
            return False
        self._checks[row["id"]] = written.checks
        if row["status"] == SUCCESS:
            return written.status == state.COMPLETED
        stored = run_from_store(self.store.read, self._item(row["id"]))
        same_turns = [turn.number for turn in written.turns] == [turn.number for turn in stored.turns]
        return same_turns and (written.status, written.reason) == (stored.status, stored.reason)

    def _run_path(self, settings: Mapping[str, Any]) -> Path:
        return self.path / "runs" / str(settings["label"])

    def _folder_of(self, row: ItemRow) -> _RunFolder:
        """The folder of a run with what the store has of it."""
        settings = item_of(row).settings
        scenario = scenario_of(changed(self._options["scenario"], settings.get("changes") or {}))
        run = run_from_store(self.store.read, row)
        # The config may have other patterns now than when it ran.
        run = replace(run, turns=tuple(read_again(scenario, turn) for turn in run.turns))
        self._checks[row["id"]] = run.checks
        return _RunFolder(
            path=self._run_path(settings),
            scenario=scenario,
            run=run,
            whole=bool(settings.get("saveIndividualRuns", True)),
        )

    def _write_config(self, text: str, earlier: str) -> None:
        config = self.path / CONFIG
        before = earlier or (config.read_text(encoding="utf-8") if config.is_file() else "")
        if before and before != text:
            number = 1
            while (self.path / f"batch-config.{number}.yaml").exists():
                number += 1
            write_whole(self.path / f"batch-config.{number}.yaml", before)
        if not config.is_file() or config.read_text(encoding="utf-8") != text:
            write_whole(config, text)

    def _copy_scenario(self, folder: Path) -> None:
        copy = self.path / KEPT_SCENARIO
        if folder.resolve() == copy.resolve():
            return
        fresh = self.path / f".{KEPT_SCENARIO}"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(folder, fresh, ignore=_left_out(self.path))
        shutil.rmtree(copy, ignore_errors=True)
        fresh.rename(copy)

    def _batch(self) -> BatchRow:
        (row,) = self.store.read.exact_batch(self.run_id)
        return row

    def _items(self) -> list[ItemState]:
        return item_states(self.store.read, self.run_id)

    def _item(self, item_id: str) -> ItemRow:
        (row,) = self.store.read.exact_item(self.run_id, item_id)
        return row


class _ExperimentDocuments:
    """Contents of the experiment's own files, computed from rows of the store."""

    def __init__(
        self,
        batch: Mapping[str, Any],
        options: Mapping[str, Any],
        rows: Sequence[ItemState],
        *,
        seconds: float,
        checks: CheckCounts,
        validity: Mapping[str, InvalidCount],
        served: Mapping[str, Mapping[str, int]],
        score_scales: Mapping[str, tuple[float, float]],
        versions: Mapping[str, str],
    ) -> None:
        self._batch, self._options, self._checks = batch, options, checks
        self._score_scales, self._versions = score_scales, versions
        self._validity, self._served = validity, served
        self.seconds = seconds
        """In which runs were executed, without the pauses between executions of the experiment."""
        self._rows = [
            extended(Row, row, values=json.loads(row["settings"]))
            for row in rows
            if row["reason"] != "removed"
        ]

    def over_limit(self) -> list[str]:
        """Labels of the runs that have reached their cost limit."""
        return [row["values"]["label"] for row in self._rows if _is_over_limit(row)]

    def checks(self) -> dict[str, Any]:
        """The number of checks, where the scenario has any."""
        return {"checks": asdict(self._checks)} if self._options["scenario"].get("validation") else {}

    def state(self) -> dict[str, Any]:
        """`batch-state.json`: what has been run, and what is left."""
        batch = self._batch
        return {
            "experiment_name": self._options["experiment"],
            "run_id": batch["runId"],
            "status": batch["status"],
            "reason": batch["reason"],
            "config_path": batch["planPath"],
            "runs_per_variation": self._options["runsPerVariation"],
            "seed": batch["seed"],
            "completed_runs": [row["values"]["label"] for row in self._rows if row["status"] == SUCCESS],
            "failed_runs": self._failed(),
            "pending_runs": [
                row["values"]["label"] for row in self._rows if row["status"] in (QUEUED, RUNNING)
            ],
            "variations": self._variations(),
            **({"score_scales": self._score_scales} if self._score_scales else {}),
            "start_time": batch["createdAt"],
            "end_time": batch["finishedAt"],
        }

    def summary(self) -> dict[str, Any]:
        """The summary of the experiment: how far it is, what failed, and what it cost."""
        completed = sum(row["status"] == SUCCESS for row in self._rows)
        return {
            "experiment_name": self._options["experiment"],
            "description": self._options.get("description", ""),
            "run_id": self._batch["runId"],
            "status": self._batch["status"],
            "reason": self._batch["reason"],
            "base_scenario": self._options["baseScenario"],
            "total_variations": len(self._variations()),
            "runs_per_variation": self._options["runsPerVariation"],
            "total_runs_planned": len(self._rows),
            "runs_completed": completed,
            "runs_failed": len(self._failed()),
            "runs_pending": sum(
                row["status"] in (QUEUED, RUNNING) and not _is_over_limit(row) for row in self._rows
            ),
            "duration_seconds": self.seconds,
            "cost_summary": self._cost_summary(),
            "failed_runs": self._failed(),
            "stand_ins": self._stand_ins(),
            "served_models": self._served,
            "validity": self._validity,
            "exclude_when": self._options.get("excludeWhen") or {},
            **self.checks(),
        }

    def costs(self) -> dict[str, Any]:
        """The cost of each run that has started, and of each variation."""
        by_variation: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in self._rows:
            if row["startedAt"]:
                by_variation[row["values"]["variationId"]].append(row)
        return {
            "summary": self._cost_summary(),
            "run_costs": [
                {
                    "run_id": row["values"]["label"],
                    "variation_id": row["values"]["variationId"],
                    "cost": row["costUsd"],
                    "success": row["status"] == SUCCESS,
                    "timestamp": row["finishedAt"],
                }
                for row in self._rows
                if row["startedAt"]
            ],
            "variation_statistics": {
                str(number): {
                    "total_cost": _total(rows),
                    "num_runs": len(rows),
                    "successful_runs": sum(row["status"] == SUCCESS for row in rows),
                    "avg_cost_per_run": _mean(rows),
                }
                for number, rows in sorted(by_variation.items())
            },
        }

    def _cost_summary(self) -> dict[str, Any]:
        batch, spent = self._batch, _total(self._rows)
        limit = batch["budgetUsd"]
        done = [row for row in self._rows if row["status"] in FINISHED]
        return {
            "total_spent": spent,
            "budget_limit": limit,
            "cost_per_run_limit": self._options.get("costPerRunUsd"),
            "remaining_budget": None if limit is None else max(0.0, limit - (spent or 0.0)),
            "runs_completed": sum(row["status"] == SUCCESS for row in self._rows),
            "runs_failed": len(self._failed()),
            "runs_budget_exceeded": sum(row["reason"] in ("cost_limit", "halted") for row in self._rows),
            "avg_cost_per_run": _mean(done),
            "duration_seconds": self.seconds,
            "start_time": batch["createdAt"],
            "end_time": batch["finishedAt"],
        }

    def _stand_ins(self) -> list[str]:
        models = {model for row in self._rows for model in row["model"].split(", ")}
        return sorted(model for model in models if model.startswith(STAND_INS))

    def _failed(self) -> list[dict[str, Any]]:
        return [
            {
                "run_id": row["values"]["label"],
                "error": row["error"] or ("its cost limit was reached" if _is_over_limit(row) else ""),
                "status": "cost_limit_exceeded" if row["reason"] == "cost_limit" else _word(row["status"]),
                "reason": row["reason"],
            }
            for row in self._rows
            if (row["status"] in FINISHED and row["status"] != SUCCESS) or _is_over_limit(row)
        ]

    def _variations(self) -> list[dict[str, Any]]:
        variations: dict[int, dict[str, Any]] = {}
        names = CurrentNames(self._options.get("factors") or ())
        for row in self._rows:
            values = row["values"]
            if values["variationId"] in variations:
                continue
            changes = values.get("changes") or {}
            stored = {k: v for k, v in json.loads(row["factors"]).items() if k != "variation"}
            description, factors = names.of(changes) or (values["variation"], stored)
            variations[values["variationId"]] = {
                "variation_id": values["variationId"],
                "description": description,
                "scenario_digest": self._versions.get(digest := values.get("scenarioDigest", ""), digest),
                "modifications": {
                    "actor_models": {
                        path.split(".")[1]: value
                        for path, value in changes.items()
                        if path.startswith("actors.") and path.endswith(".llm_model")
                    },
                    "scenario_overrides": {
                        path: value for path, value in changes.items() if not path.endswith(".llm_model")
                    },
                },
                "factors": factors,
            }
        return [variations[number] for number in sorted(variations)]


def _is_over_limit(row: Mapping[str, Any]) -> bool:
    """Whether a run has reached its cost limit; it may be queued until the limit is raised."""
    return bool(row["reason"] == "cost_limit" and row["status"] != SUCCESS)


def _word(status: str) -> str:
    return "failed" if status == FAIL else status


def _total(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """None: something was spent, and the amount is unknown."""
    costs = [row["costUsd"] for row in rows if row["costUsd"] is not None]
    return sum(costs) if costs or not any(row["startedAt"] for row in rows) else None


def _mean(rows: Sequence[Mapping[str, Any]]) -> float | None:
    costs = [row["costUsd"] for row in rows if row["costUsd"] is not None]
    return sum(costs) / len(costs) if costs else None


def _left_out(output: Path) -> Any:
    """For `copytree`: leave out the experiment itself, links, hidden and huge files."""

    def ignored(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if _is_left_out(Path(folder) / name, output)]

    return ignored


def _is_left_out(path: Path, output: Path) -> bool:
    if path.name.startswith((".", "__pycache__")) or path.is_symlink():
        return True
    if path.is_dir():
        return path.resolve() == output.resolve() or output.resolve().is_relative_to(path.resolve())
    return path.stat().st_size > MAX_COPIED_BYTES
