"""The result folder of a benchmark: one file per model, the comparison, facts about the machine.

Documented fields and columns come first, in their order. Files are renamed into place, so that a reader never
sees half of one. A result file has the item and the outcome of each run: a benchmark can be resumed on
another machine from the folder alone. A file that cannot be read is renamed, and its runs are repeated.
"""

import difflib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from proctor.context import RunContext
from proctor.errors import NotFound, UsageError
from proctor.export.tables import write_csv
from proctor.formatting import plural
from proctor.item import ERROR, FAIL, FINISHED, QUEUED, SUCCESS, TIMEOUT, UNCHECKED, shown_status
from proctor.job import BatchEnd, ItemFinished, RunHooks
from proctor.jobs.benchmark.leaderboard import BenchmarkRun, Leaderboard, ModelFigures, Ranking, compare
from proctor.jobs.benchmark.report import benchmark_html, machine_info
from proctor.json_values import JsonMap, JsonObject, as_datetime, maps_in, parse_json
from proctor.report.render import estimate_document
from proctor.score import CHECK, EXPECT
from proctor.stats.intervals import Estimate
from proctor.store import Store, Writer, batches, timestamp
from proctor.store.batches import moment
from proctor.store.runs import run_ids_of_job
from proctor.store.tables import ItemRow
from proctor.tasks.task import models_with_agents, ranked_name

RESULTS = Path("benchmark/results")
ABOUT, MACHINE = "batch.json", "machine_info.json"
LARGEST_BYTES = 4 * 1024 * 1024
FORMAT = 1
BEST = ("fastest", "most_efficient", "least_intervention", "best_value")
"""The documented members of `rankings`; `ranks` has more."""
DOCUMENTED_MEANS = ("prompts_sent", "human_interventions", "files_modified", "lines_added", "lines_removed")
COLUMNS = (
    "model",
    "task",
    "success",
    "completion_time",
    *DOCUMENTED_MEANS,
    "timestamp",
    "run",
    "status",
    "reason",
    "error",
    "display_name",
    "asked",
    "agent",
    "wall_time",
    "tool_calls",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cost_usd",
    "checks_passed",
    "checks",
    "unchecked",
    "stand_in",
    "attempts",
    "item_id",
    "session_id",
)
HEADLESS = (
    "Runs are headless: human_interventions counts the times an agent stopped to ask a permission or a "
    "question, which nobody answered, and the messages that people sent it."
)


class ResultFolder(RunHooks):
    """The results of one benchmark as files."""

    def __init__(
        self,
        path: Path,
        run_id: str,
        ctx: RunContext,
        *,
        ollama_models: Sequence[str] | None = None,
        saves_intermediate: bool = True,
        imports_results: bool = False,
    ) -> None:
        """With `imports_results`, a new run takes over the results in the folder, as a resumed one does."""
        self.path, self._run_id, self._ctx = path, run_id, ctx
        self._ollama_models = ollama_models
        self._saves_intermediate = saves_intermediate
        self._imports_results = imports_results

    def begin(self, *, resumed: bool) -> BatchEnd | None:
        """Describe the benchmark and the machine; on resume, import results and repeat damaged ones."""
        batch = self._ctx.store.read.batch(self._run_id, self._ctx.now())
        write_about(self.path, self._run_id, json.loads(batch["optionsJson"]))
        machine = machine_info(self._ctx.now(), Path.cwd(), self._ollama_models)
        write_file(self.path / MACHINE, as_json(machine))
        if resumed or self._imports_results:
            self._reconcile()
        return None

    def item_finished(self, item: ItemFinished) -> None:
        """Write the result file of the item's model."""
        if not self._saves_intermediate:
            return
        comparison, names = self._compare(), self._file_names()
        for figures in comparison.models:
            if any(run.item_id == item.item.id for run in figures.runs):
                try:
                    write_result(self.path, names[figures.name], comparison, figures)
                except UsageError as error:
                    # The results are in the store; `finish` writes all files again.
                    self._ctx.note(error.problem)

    def finish(self, end: BatchEnd) -> Mapping[str, object]:  # noqa: ARG002
        """Write every result file and the comparison."""
        comparison, names, now = self._compare(), self._file_names(), self._ctx.now()
        for figures in comparison.models:
            if any(run.is_finished for run in figures.runs):
                write_result(self.path, names[figures.name], comparison, figures)
        machine = read_object(self.path / MACHINE)
        write_file(self.path / "comparison_report.html", benchmark_html(comparison, machine, now))
        document = write_comparison(self.path, comparison, machine, now)
        return {"output": str(self.path), "comparison": document}

    def _reconcile(self) -> None:
        """Import finished runs that the store does not have; queue the runs of damaged files again."""
        store, imported = self._ctx.store, read_results(self.path)
        for file in imported.damaged:
            self._ctx.info(
                f"{self.path / file.name} is damaged ({file.why[:100]}); "
                f"renamed to {file.aside}, its runs are repeated"
            )
        damaged = {file.name for file in imported.damaged}
        models = [model for model, name in self._file_names().items() if name in damaged]
        if count := import_runs(store, self._run_id, imported.runs, self.path.name):
            self._ctx.info(f"{plural(count, 'finished run')} imported from {self.path}")
        requeue(store, self._run_id, models)

    def _compare(self) -> Leaderboard:
        return compare(self._ctx.store.read, self._run_id, self._ctx.now())

    def _file_names(self) -> dict[str, str]:
        # In the order of the items, which extending does not change: names never change.
        return result_files([name for name, _ in _ranked(self._ctx.store, self._run_id)])


def _ranked(store: Store, run_id: str) -> list[tuple[str, ItemRow]]:
    """The items of a run, each with the name under which it is ranked."""
    rows = [(json.loads(row["factors"]), row) for row in store.read.items(run_id, limit=1_000_000)]
    split = models_with_agents(factors for factors, _ in rows)
    return [(ranked_name(factors, split), row) for factors, row in rows]


def write_about(folder: Path, run_id: str, options: JsonMap) -> None:
    """Write the options of a run into its folder, enough to resume it on another machine."""
    write_file(folder / ABOUT, as_json({"batch_id": run_id, "format": FORMAT, **options}))


def result_files(models: Sequence[str]) -> dict[str, str]:
    """The name of each model's file; those that would be the same are numbered, the first is not."""
    names: dict[str, str] = {}
    used_names = set[str]()
    for model in dict.fromkeys(models):
        stem = re.sub(r"[^A-Za-z0-9._@+-]", "_", model).lstrip(".")[:150] or "model"
        name, number = stem, 1
        # Some file systems take capital and small letters for the same.
        while name.lower() in used_names:
            number += 1
            name = f"{stem}-{number}"
        used_names.add(name.lower())
        names[model] = name + RESULT
    return names


def write_result(folder: Path, name: str, comparison: Leaderboard, figures: ModelFigures) -> Path:
    """Write what is known of one model, as soon as any of its runs has ended."""
    return write_file(folder / name, as_json(result_of(comparison, figures)))


def write_comparison(folder: Path, comparison: Leaderboard, machine: JsonMap, now: datetime) -> JsonObject:
    """Write comparison_report.json and .csv; the document they hold."""
    document = document_of(comparison, machine, now)
    write_file(folder / "comparison_report.json", as_json(document))
    making = folder / ".comparison_report.csv.making"
    try:
        write_csv(
            making,
            COLUMNS,
            ({name: _cell(row, name) for name in COLUMNS} for row in maps_in(document["results"])),
        )
        making.replace(folder / "comparison_report.csv")
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return document


def write_file(path: Path, text: str) -> Path:
    """Write a text atomically; the folder is created if missing."""
    making = path.with_name(f".{path.name}.making")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with making.open("w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        return making.replace(path)
    except OSError as error:
        raise _cannot_write(path.parent, error) from error


def _cannot_write(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"cannot write to {folder}: {error.strerror or error}\nGive another folder with --output."
    )


def as_json(document: object) -> str:
    """A document as the text of a file."""
    return json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def document_of(comparison: Leaderboard, machine: JsonMap, now: datetime) -> JsonObject:
    """The whole comparison, for programs."""
    statuses = [shown_status(run.status, run.reason) for run in comparison.runs]
    ended = [run for run in comparison.runs if run.is_finished]
    firsts = {ranking.key: ranking.first for ranking in comparison.rankings}
    return {
        "batch_id": comparison.batch_id,
        "task": comparison.task,
        "timestamp": now.isoformat(),
        "total_time": round(comparison.total_seconds(now), 3),
        "models_tested": len({run.model for run in ended}),
        "successful": statuses.count(SUCCESS),
        "failed": statuses.count(FAIL) + statuses.count(TIMEOUT),
        "machine_info": dict(machine),
        "results": [run_of(run) for run in ended],
        "rankings": {key: firsts[key] for key in BEST},
        "summary_stats": comparison.summary_stats(),
        "format": FORMAT,
        "status": comparison.status,
        "tasks": list(comparison.tasks),
        "errors": statuses.count(ERROR),
        "unchecked": statuses.count(UNCHECKED),
        "unfinished": len(comparison.runs) - len(ended),
        "ranks": {ranking.key: _ranks(ranking) for ranking in comparison.rankings},
        "models": [_model(figures) for figures in comparison.models],
        "notes": [HEADLESS, *_stand_ins(comparison), *_errors(comparison)],
        "interval_scope": comparison.scope,
    }


def result_of(comparison: Leaderboard, figures: ModelFigures) -> JsonObject:
    """One model's results: the documented fields are of its run, or of its runs together."""
    ended = [run for run in figures.runs if run.is_finished]
    documented = run_of(ended[0]) if len(ended) == 1 else _together(comparison, figures, ended)
    return {
        **documented,
        "format": FORMAT,
        "batch_id": comparison.batch_id,
        "success_rate": _estimate(figures.rate),
        "runs_planned": len(figures.runs),
        "notes": [HEADLESS],
        "runs": [run_of(run) for run in ended],
    }


def _together(comparison: Leaderboard, figures: ModelFigures, ended: Sequence[BenchmarkRun]) -> JsonObject:
    """Several runs as one: it succeeded when all did, and its figures are means over those that did."""
    broken = [run for run in ended if run.status != SUCCESS]
    return {
        "model": figures.name,
        "task": comparison.task,
        "success": bool(ended) and not broken,
        "error": broken[0].error if broken else None,
        "completion_time": figures.work.value,
        **{name: figures.means[name].value for name in DOCUMENTED_MEANS},
        "timestamp": max((run.timestamp for run in ended), default=""),
        "display_name": figures.display_name,
        "total_tokens": figures.tokens,
        "cost_usd": figures.cost_usd,
    }


def run_of(run: BenchmarkRun) -> JsonObject:
    """One run with the documented fields first."""
    fields = asdict(run)
    del fields["is_after_cutoff"]
    return {
        "model": run.model,
        "task": run.task,
        "success": run.status == SUCCESS,
        **fields,
        "error": run.error or None,
        "completion_time": _rounded(run.completion_time),
        "wall_time": _rounded(run.wall_time),
        "criteria": list(fields["criteria"]),
    }


def _model(figures: ModelFigures) -> JsonObject:
    return {
        "model": figures.name,
        "display_name": figures.display_name,
        "counts": dict(figures.counts),
        "unchecked": sum(run.unchecked and run.status == SUCCESS for run in figures.runs),
        "success_rate": _estimate(figures.rate),
        "success_rate_with_errors": _estimate(figures.rate_with_errors),
        **{
            name: _estimate(rate)
            for name, rate in (
                ("success_rate_before_cutoff", figures.rate_before_cutoff),
                ("success_rate_after_cutoff", figures.rate_after_cutoff),
            )
            if rate
        },
        "completion_time": _estimate(figures.work),
        **{name: _estimate(estimate) for name, estimate in figures.means.items()},
        "total_tokens": figures.tokens,
        "cost_usd": figures.cost_usd,
        "cost_per_success": _estimate(figures.cost_per_success),
        "estimates": {
            name: estimate_document(estimate)
            for name, estimate in (
                ("success_rate", figures.rate),
                ("success_rate_with_errors", figures.rate_with_errors),
                ("completion_time", figures.work),
                ("typical_time", figures.typical_work),
                ("cost_per_success", figures.cost_per_success),
            )
        },
    }


def _ranks(ranking: Ranking) -> list[JsonObject]:
    return [
        {
            "model": rank.name,
            "rank": rank.rank_low,
            "worst_rank": rank.rank_high,
            "value": rank.value,
            "low": rank.low,
            "high": rank.high,
            "n": rank.runs,
            "order": rank.rank,
            "sem": rank.sem,
            "tasks": rank.tasks,
            "note": rank.note,
        }
        for rank in ranking.places
    ]


def _estimate(estimate: Estimate) -> JsonObject:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.runs}


def _errors(comparison: Leaderboard) -> list[str]:
    if not comparison.errors_decide:
        return []
    return ["Errors decide the order by success: it differs when they count as failures."]


def _stand_ins(comparison: Leaderboard) -> list[str]:
    names = dict.fromkeys(run.model for run in comparison.runs if run.stand_in)
    return [f"{name} is a mock model: its results say nothing about real models." for name in names]


def _cell(row: JsonMap, name: str) -> object:
    checked = [each["passed"] for each in maps_in(row["criteria"]) if each["passed"] is not None]
    if name == "checks":
        return len(checked)
    if name == "checks_passed":
        return checked.count(True)
    return row[name]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierResults:
    """An earlier benchmark."""

    run_id: str
    path: Path | None
    """Its folder; None: unknown."""
    options: Mapping[str, Any]
    """Its stored options, as far as they are known."""
    is_known: bool
    """Whether it is in the store; if not, its folder came from another machine."""


def find_earlier(store: Store, run_or_file: str, output: Path | None) -> EarlierResults:
    """The benchmark with this run id, or whose results are in this folder."""
    places = [Path(run_or_file), RESULTS / run_or_file, *([output] if output else [])]
    folder = next((place for place in places if run_or_file and place.is_dir()), None)
    about = read_object(folder / ABOUT) if folder else {}
    names = [name for name in (about.get("batch_id"), folder.name if folder else None, run_or_file) if name]
    for name in names:
        rows = store.read.exact_batch(str(name))
        if rows and rows[0]["job"] != "benchmark":
            raise UsageError(f"{name} is not a benchmark\nResume it with:  proctor resume {name}")
        if rows:
            options = json.loads(rows[0]["optionsJson"])
            # `proctor resume --budget` changes the row only.
            options["asked"] = {**(options.get("asked") or {}), "budget": rows[0]["budgetUsd"]}
            # The folder that was named takes precedence: it may have been moved.
            path = (folder or Path(options["output"])) if options.get("output") or folder else None
            return EarlierResults(run_id=str(name), path=path, options=options, is_known=True)
    if folder is None:
        raise _not_found(store, run_or_file)
    return EarlierResults(run_id=_plain(str(names[0])), path=folder, options=about, is_known=False)


def new_run_id(store: Store, moment: datetime) -> str:
    """`batch_<yyyymmdd_HHMMSS>`, numbered when it is taken."""
    stem = f"batch_{moment:%Y%m%d_%H%M%S}"
    for number in range(1, 1000):
        name = stem if number == 1 else f"{stem}_{number}"
        existing = store.read.exact_batch(name)
        if not existing and not (RESULTS / name).exists():
            return name
    raise UsageError(f"there are too many runs called {stem}")


def read_object(path: Path) -> JsonObject:
    """The JSON object in a file; empty: none can be read."""
    try:
        with path.open("rb") as file:
            document = parse_json(file.read(LARGEST_BYTES))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _not_found(store: Store, name: str) -> NotFound:
    known = run_ids_of_job(store.read, "benchmark")[:200]
    known += [path.name for path in RESULTS.iterdir() if path.is_dir()] if RESULTS.is_dir() else []
    near = difflib.get_close_matches(name, dict.fromkeys(known), n=2)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    return NotFound(
        f"there is no benchmark {name}, in the store or in {RESULTS}/\n"
        f"{hint}Give a run id, or the path of a folder with results."
    )


def _plain(name: str) -> str:
    safe = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)[:128]
    return safe.lstrip(".-") or "batch"


RESULT = "_result.json"
"""Suffix of result files."""
DAMAGED = ".damaged"
LARGEST_RESULT_BYTES = 64 * 1024 * 1024
SESSION_ID = re.compile(r"[0-9a-f]{8,40}")
TEXTS = ("item_id", "model", "task", "status", "reason", "timestamp", "session_id", "agent")
COUNTS = (
    *DOCUMENTED_MEANS,
    "run",
    "tool_calls",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "unpriced_calls",
    "attempts",
)
NUMBERS = ("completion_time", "wall_time", "cost_usd")


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedResult:
    """A damaged result file, renamed."""

    name: str
    why: str
    aside: str
    """Its new name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedResults:
    """The result files of a folder."""

    runs: tuple[JsonMap, ...]
    damaged: tuple[DamagedResult, ...]


def read_results(folder: Path) -> ImportedResults:
    """Read every result file of a folder; damaged files are renamed, so that none is lost."""
    runs, damaged = list[JsonMap](), list[DamagedResult]()
    for file in sorted(folder.glob(f"*{RESULT}")):
        try:
            runs += _runs_in(file)
        except (OSError, ValueError) as error:
            damaged.append(DamagedResult(name=file.name, why=str(error), aside=_set_aside(file)))
    return ImportedResults(runs=tuple(runs), damaged=tuple(damaged))


def import_runs(store: Store, run_id: str, runs: Iterable[Mapping[str, Any]], source: str) -> int:
    """Import the finished runs of items that were never started here; their number."""
    waiting = {
        row["id"]: row
        for row in store.read.items(run_id, limit=1_000_000)
        if row["status"] == QUEUED and row["sessionId"] is None
    }
    finished = [run for run in runs if run["item_id"] in waiting and run["status"] != ERROR]
    if not finished:
        return 0
    writer = store.writer()
    try:
        for run in finished:
            _ImportedRun(store, run_id, waiting[run["item_id"]], run, source).write(writer)
    finally:
        writer.close()
    return len(finished)


def requeue(store: Store, run_id: str, models: Iterable[str]) -> int:
    """Queue every finished item of these models again; their number."""
    names = set(models)
    rows = [row for name, row in _ranked(store, run_id) if row["status"] in FINISHED and name in names]
    store.change(batches.requeue, run_id, [row["id"] for row in rows])
    return len(rows)


def _runs_in(file: Path) -> Sequence[JsonMap]:
    if file.stat().st_size > LARGEST_RESULT_BYTES:
        raise ValueError(f"it is larger than {LARGEST_RESULT_BYTES >> 20} MiB")
    document = parse_json(file.read_bytes())
    runs = document.get("runs") if isinstance(document, dict) else None
    if not isinstance(runs, list):
        raise ValueError("it lacks the list `runs`")
    for run in runs:
        _check(run)
    return runs


def _check(run: object) -> None:
    if not isinstance(run, dict):
        raise ValueError("one of its runs is no object")
    for name in TEXTS:
        if not isinstance(run.get(name), str):
            raise ValueError(f"`{name}` of a run is no text")
    for name in COUNTS:
        if type(run.get(name)) is not int or run[name] < 0:
            raise ValueError(f"`{name}` of a run is no count")
    for name in NUMBERS:
        value = run.get(name)
        if value is not None and type(value) not in (int, float):
            raise ValueError(f"`{name}` of a run is no number")
    if run["timestamp"] and as_datetime(run["timestamp"]) is None:
        raise ValueError("`timestamp` of a run is no moment")
    if run["status"] not in FINISHED:
        raise ValueError(f"a run has the status {run['status'][:20]!r}, which is none")
    if not isinstance(run.get("criteria"), list):
        raise ValueError("`criteria` of a run is no list")


def _set_aside(file: Path) -> str:
    """Rename a damaged file, without replacing another."""
    names = (file.with_name(f"{file.name}{DAMAGED}{number}") for number in ("", *map(str, range(2, 1000))))
    target = next(name for name in names if not name.exists())
    file.rename(target)
    return target.name


@dataclass(frozen=True, slots=True)
class _ImportedRun:
    """One run to import."""

    store: Store
    run_id: str
    item: ItemRow
    run: Mapping[str, Any]
    source: str

    def write(self, writer: Writer) -> None:
        """Write the session of the run, its scores, and the end of its item."""
        run, session_id = self.run, self._session_id()
        writer.add("sessions", (session_id,), self._session(session_id))
        # By the names of columns: what a file from elsewhere does not tell has the usual value of its column.
        writer.add("iterations", (session_id,), self._iteration(session_id))
        for position, score in enumerate(self._scores(), 1):
            row = {"sessionId": session_id, "position": position, "timestamp": run["timestamp"], **score}
            writer.add("scores", (session_id, str(position)), row)
        finished = {
            "status": run["status"],
            "reason": run["reason"],
            "error": str(run.get("error") or ""),
            "startedAt": self._began(),
            "finishedAt": run["timestamp"] or None,
            "sessionId": session_id,
            "tokensTotal": run["total_tokens"],
            "toolCalls": run["tool_calls"],
            "costUsd": run["cost_usd"],
        }
        writer.change("batch_items", (self.run_id, self.item["id"]), finished)

    def _session_id(self) -> str:
        """Its own ID, unless that is not valid or in use."""
        session_id = self.run["session_id"]
        existing = self.store.read.exact_session(session_id)
        return (
            session_id
            if SESSION_ID.fullmatch(session_id) and not existing
            else f"{self.item['id']}{len(existing):04x}"
        )

    def _began(self) -> str | None:
        ended = moment(self.run["timestamp"] or None)
        return timestamp(ended - timedelta(seconds=self.run["wall_time"] or 0)) if ended else None

    def _session(self, session_id: str) -> JsonObject:
        run = self.run
        return {
            "id": session_id,
            "runId": self.run_id,
            "itemId": self.item["id"],
            "attempt": max(1, run["attempts"]),
            "job": "benchmark",
            "agent": self.item["agent"],
            "model": self.item["model"],
            "isMock": int(bool(run.get("stand_in"))),
            "status": run["status"],
            "endReason": run["reason"],
            "error": str(run.get("error") or ""),
            "source": self.source,
            "startedAt": self._began(),
            "finishedAt": run["timestamp"] or None,
            "workSeconds": run["completion_time"],
            "promptTokens": run["prompt_tokens"],
            "completionTokens": run["completion_tokens"],
            "totalTokens": run["total_tokens"],
            "costUsd": run["cost_usd"],
            "unpricedCalls": run["unpriced_calls"],
            "modelCalls": run["prompts_sent"],
            "toolCalls": run["tool_calls"],
            "interventions": run["human_interventions"],
            "notes": json.dumps([f"imported from {self.source}, without its transcript"]),
        }

    def _iteration(self, session_id: str) -> JsonObject:
        run = self.run
        when = run["timestamp"] or None
        return {
            "sessionId": session_id,
            "step": 1,
            "startTime": when,
            "endTime": when,
            "changedFiles": run["files_modified"],
            "linesAdded": run["lines_added"],
            "linesRemoved": run["lines_removed"],
            "model": self.item["model"],
            "promptTokens": run["prompt_tokens"],
            "completionTokens": run["completion_tokens"],
            "totalTokens": run["total_tokens"],
            "costUsd": run["cost_usd"],
        }

    def _scores(self) -> Iterable[JsonObject]:
        for criterion in self.run["criteria"]:
            passed = criterion.get("passed") if isinstance(criterion, dict) else None
            if isinstance(passed, bool) and isinstance(name := criterion.get("criterion"), str):
                evaluator = name if name.startswith(EXPECT) else CHECK + name
                yield {
                    "evaluator": evaluator,
                    "level": "session",
                    "value": float(passed),
                    "label": "pass" if passed else "fail",
                    "explanation": str(criterion.get("explanation") or ""),
                }
        if self.run.get("unchecked") is True:
            yield {"evaluator": "unchecked", "level": "session"}
