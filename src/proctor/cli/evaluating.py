"""Carry out an evaluation job from here: find its sessions, judge them, say what came of it."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from proctor import secrets
from proctor.batch.ingest import ImportResult, import_log_groups, import_paths
from proctor.batch.lifecycle import clear_leftovers
from proctor.bootstrap import StorePlaces, configuration, environment, keys_of, make_house, make_models, now
from proctor.cli import output
from proctor.cli.output import count, money, print_json, print_note, print_table, printable
from proctor.cli.run import OutputOptions, execute, exit_code, print_summary, summary, view_for
from proctor.errors import Contradiction, ModelError, ProctorError, UsageError
from proctor.evaluator import FindEvaluator
from proctor.evaluators.registry import EvaluatorRegistry
from proctor.job import BatchEnd
from proctor.jobs.evaluation.ground_truth import Dataset, GroundTruthIndex, read_dataset
from proctor.jobs.evaluation.items import (
    DiscoveredSession,
    EvaluatorSet,
    fill,
    find_sessions,
    found_sessions,
    make_jury,
)
from proctor.jobs.evaluation.online import online_source
from proctor.jobs.evaluation.request import EvaluationRequest, LogGroupSessions, is_name, read_evaluation
from proctor.jobs.evaluation.results import evaluation_document
from proctor.jobs.evaluation.state import (
    NO_SESSIONS,
    SOURCE_FAILED,
    EvaluationState,
    evaluation_of,
    fail_evaluation,
)
from proctor.models import ModelRouter
from proctor.plan.source import bytes_of
from proctor.session import Usage
from proctor.stats.evaluation import EvaluationResults, EvaluatorResult, Insight, insights_of, results_of
from proctor.store import RetrySelection, Store
from proctor.store.evaluations import EvaluationRecord
from proctor.store.writer import this_process
from proctor.telemetry import sources


def bench_for(store: Store, where: StorePlaces, folder: Path, mark: str = "evaluation") -> EvaluatorRegistry:
    """Where evaluators are looked for: beside the plan, in Proctor's home, and in the store."""
    return EvaluatorRegistry(
        folder=folder,
        environment=secrets.visible(environment(), named={"HOME"}),
        definitions=store.definitions.document,
        folders=[folder / "evaluators", where.home / "evaluators"],
        lambdas=configuration(where, [folder]).evaluation.get("lambdas", {}),
        mark=mark,
    )


def models_for(where: StorePlaces, folder: Path, prices: Mapping[str, Any] | None) -> ModelRouter:
    """The models that judges may be."""
    return make_models(where, [folder, Path.cwd()], prices=prices)


def carry_out_evaluation(
    store: Store,
    where: StorePlaces,
    evaluation: EvaluationState,
    shown: OutputOptions,
    *,
    again: RetrySelection = RetrySelection(),  # noqa: B008  it is frozen
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
        return tell_evaluation(store, run_id, BatchEnd(status="aborted"), shown)
    house = replace(make_house(where.home, models), find_evaluator=find)
    view = view_for(store, run_id, as_json=shown.as_json, as_jsonl=shown.as_jsonl)
    ending = asyncio.run(execute(store, run_id, owner, house, models, view))
    return tell_evaluation(store, run_id, ending, shown)


def _made_ready(
    store: Store, where: StorePlaces, evaluation: EvaluationState
) -> tuple[ModelRouter, FindEvaluator, bool]:
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
    jury, ground = make_jury(request, find, models, models), GroundTruthIndex(request.metadata)
    sessions = find_sessions(store, request, now())
    told = fill(store, evaluation.id, request, sessions.ids, jury, ground)
    store.evaluations.tell_discovery(
        evaluation.id, found=len(sessions.ids), ignored=sessions.ignored, now=now()
    )
    _tell_discovery(len(sessions.ids), sessions.ignored, ground)
    if told.reasons:
        why = "; ".join(f"{count(number, 'item')}: {name}" for name, number in told.reasons.items())
        print_note(f"{count(told.added, 'new item')} (new because of {printable(why)})")
    return models, find, bool(sessions.ids)


def request_of(store: Store, evaluation: EvaluationState) -> EvaluationRequest:
    """What a job was asked to do, with all that was said about single sessions."""
    metadata = store.evaluations.metadata(evaluation.id)
    document = {**evaluation.document, "evaluationMetadata": {"sessionMetadata": metadata}}
    return EvaluationRequest.from_document(document, online_source=online_source(store))


def tell_evaluation(store: Store, run_id: str, ending: BatchEnd, shown: OutputOptions) -> int:
    """Say what a job came to; the exit code."""
    run = summary(store, store.read.batch(run_id, now()))
    evaluation = evaluation_of(store, run_id, now(), with_deleted=True)
    results = results_of(store, run_id)
    document = evaluation_document(evaluation, results) | {"run": run}
    if shown.as_json:
        print_json(document)
    elif shown.as_jsonl:
        print(json.dumps({"type": "done", **document}, ensure_ascii=False, default=str), flush=True)
    print_summary(run)
    if not (shown.as_json or shown.as_jsonl) and results.summaries:
        print_results(results)
        print_insights(insights_of(store.read, run_id, (each.asked_as for each in results.summaries)))
    for words in (*evaluation.error_details, *results.remarks):
        print_note(f"note: {printable(words)}")
    return exit_code(ending, run) if run["itemCount"] else output.CUT_SHORT


def print_results(results: EvaluationResults) -> None:
    """The evaluators of a job, each with its average and interval."""
    heads = ("EVALUATOR", "LEVEL", "AVERAGE", "95% CI", "RESULTS", "FAILED", "LABELS", "COST")
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


def _tell_discovery(found: int, ignored: int, ground: GroundTruthIndex) -> None:
    left = f", {ignored:,} older ones ignored" if ignored else ""
    print_note(f"{count(found, 'session')} to judge{left}")
    if ground.unused:
        named = ", ".join(sorted(ground.unused)[:5])
        lost = count(len(ground.unused), "session")
        print_note(f"note: {lost} with ground truth not among them: {printable(named)}")


def resume_evaluation(
    store: Store,
    where: StorePlaces,
    run_id: str,
    changes: Mapping[str, Any],
    again: RetrySelection,
    shown: OutputOptions,
) -> int:
    """Go on with a job that was stopped, halted or killed."""
    evaluation = evaluation_of(store, run_id, now(), with_deleted=True)
    if evaluation.state == "COMPLETED" and not again.errors:
        raise UsageError(f"{run_id} is {evaluation.state}\nThere is nothing left to do.")
    return carry_out_evaluation(store, where, evaluation, shown, again=again, changes=changes)


# Sessions that are to be judged and are not here yet: imported first, then judged like any other.


MOST_SAID = 5


def import_files(store: Store, paths: Sequence[Path], kind: str) -> list[str]:
    """Import every session in files and folders; their ids in the store."""
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no file or folder {path}")
    return _told(import_paths(store, paths, kind, now()))


def import_cloudwatch(store: Store, wanted: object) -> None:
    """Import what CloudWatch Logs holds of the log groups that are to be judged."""
    if not isinstance(wanted, LogGroupSessions):
        raise UsageError("--cloudwatch fetches log groups\nName them: --log-group or --log-group-prefix.")
    groups = sources.LogGroupQuery(
        names=wanted.names,
        prefixes=wanted.prefixes,
        service=next(iter(wanted.services), ""),
        session_ids=(*wanted.session_ids, *wanted.traces),
        start=wanted.period.start,
        end=wanted.period.end,
    )
    _told(import_log_groups(store, sources.logs_client(), groups, now()))


def _told(done: ImportResult) -> list[str]:
    for each in done.unreadable[:MOST_SAID]:
        print_note(f"left out {printable(each, width=300)}")
    if done.unreadable_count > MOST_SAID:
        print_note(f"… and {done.unreadable_count - MOST_SAID:,} more that could not be read")
    print_note(f"{count(len(done.session_ids), 'session')} imported")
    return list(done.session_ids)


# What `proctor evaluate start` asks for: a plan, or flags, or both; flags win.


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What was given on the command line. None or nothing: not given."""

    top: Mapping[str, Any] = field(default_factory=dict)
    """Members of the request itself."""
    evaluators: Sequence[str] = ()
    log_groups: Sequence[str] = ()
    log_group_prefixes: Sequence[str] = ()
    services: Sequence[str] = ()
    session_ids: Sequence[str] = ()
    runs: Sequence[str] = ()
    jobs: Sequence[str] = ()
    roles: Sequence[str] = ()
    models: Sequence[str] = ()
    files: Sequence[str] = ()
    kind: str = ""
    start: str = ""
    end: str = ""
    ground_truth: Sequence[Path] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEvaluationRequest:
    """A request before its files are imported."""

    document: dict[str, Any]
    folder: Path
    """Where relative paths begin: the plan's folder, or the working folder."""
    plan_path: str = ""
    plan_text: str = ""


def asked_by(plan: Path | None, flags: Flags) -> PendingEvaluationRequest:
    """The document of a request; raises with everything that is wrong with the plan or the flags."""
    document, text, folder = dict[str, Any](), b"", Path.cwd()
    if plan is not None:
        text, folder = _read(plan, "the plan"), plan.resolve().parent
        document = read_evaluation(text, file=str(plan))
    document |= {name: value for name, value in flags.top.items() if value is not None}
    if flags.evaluators:
        document["evaluators"] = list(flags.evaluators)
    if source := _source(flags, document.get("dataSourceConfig") or {}):
        document["dataSourceConfig"] = source
    given = document.pop("groundTruth", None) or []
    named = [given] if isinstance(given, str) else given
    # A job that is extended has its datasets already, and keeps where they came from.
    kept = [entry for entry in named if isinstance(entry, dict)]
    files = [folder / entry for entry in named if isinstance(entry, str)]
    _add_ground_truth(document, [*files, *flags.ground_truth], kept)
    _require(document)
    if isinstance(files_of := document["dataSourceConfig"].get("files"), dict):
        base = Path.cwd() if flags.files else folder
        paths = [str(base / path) for path in files_of["paths"]]
        document["dataSourceConfig"] = {"files": {**files_of, "paths": paths}}
    return PendingEvaluationRequest(
        document=document,
        folder=folder,
        plan_path=str(plan.resolve()) if plan else "",
        plan_text=text.decode(errors="replace"),
    )


def _source(flags: Flags, planned: Mapping[str, Any]) -> dict[str, Any]:
    """Where sessions come from, as flags say; what only narrows it down narrows the source of the plan."""
    period = {name: value for name, value in (("startTime", flags.start), ("endTime", flags.end)) if value}
    places = {"logGroupNames": list(flags.log_groups), "logGroupNamePrefixes": list(flags.log_group_prefixes)}
    own = {"runIds": flags.runs, "jobs": flags.jobs, "roles": flags.roles, "models": flags.models}
    kinds = [
        name
        for name, given in (
            ("log groups", any(places.values()) or flags.services),
            ("runs of this store", any(own.values())),
            ("files", flags.files),
        )
        if given
    ]
    if len(kinds) > 1:
        raise UsageError(f"sessions come from one source, not from {' and '.join(kinds)}")
    if flags.kind and not flags.files:
        raise UsageError("--kind says what files are\nGive them with --files.")
    if flags.files or (not kinds and "files" in planned):
        if flags.session_ids or period:
            raise UsageError(
                "files are judged whole: --session-id, --start and --end choose among what is in the store\n"
                "Import them first:  proctor import auto PATH"
            )
        return {"files": {"paths": list(flags.files), "kind": flags.kind or "auto"}} if flags.files else {}
    if not kinds and planned:
        return _narrowed(planned, list(flags.session_ids), period)
    if kinds == ["log groups"]:
        filters = {"sessionIds": list(flags.session_ids) or None, "timeRange": period or None}
        named = {**places, "serviceNames": list(flags.services)}
        kept = {name: value for name, value in named.items() if value}
        wanted = {name: value for name, value in filters.items() if value}
        return {"cloudWatchLogs": kept | ({"filterConfig": wanted} if wanted else {})}
    chosen = {name: list(values) for name, values in own.items() if values}
    if flags.session_ids:
        chosen["sessionIds"] = list(flags.session_ids)
    if not chosen and not period:
        return {}
    return {"store": chosen | ({"timeRange": period} if period else {})}


def _narrowed(
    planned: Mapping[str, Any], session_ids: list[str], period: Mapping[str, str]
) -> dict[str, Any]:
    """The source of a plan, narrowed down by flags; empty when they say nothing."""
    ((kind, source),) = planned.items()
    if not session_ids and not period:
        return {}
    if session_ids and kind == "onlineEvaluationConfigSource":
        raise UsageError("--session-id does not choose among the sessions of an online configuration")
    inside = dict(source.get("filterConfig") or {}) if kind == "cloudWatchLogs" else dict(source)
    if session_ids:
        inside["sessionIds"] = session_ids
        # Either list would do; the flag means these alone.
        inside.pop("sessionTraceIds", None)
    if period:
        inside["timeRange"] = {**(inside.get("timeRange") or {}), **period}
    return {kind: {**source, "filterConfig": inside} if kind == "cloudWatchLogs" else inside}


def _add_ground_truth(
    document: dict[str, Any], files: Sequence[Path], kept: Sequence[Mapping[str, Any]]
) -> None:
    if not files and not kept:
        return
    datasets = [dataset_of(path) for path in files]
    inline = (document.get("evaluationMetadata") or {}).get("sessionMetadata") or []
    entries = [*(entry for dataset in datasets for entry in dataset.metadata), *inline]
    document["evaluationMetadata"] = {"sessionMetadata": entries}
    document["groundTruth"] = [*kept, *(dataset.mention for dataset in datasets)]


def dataset_of(path: Path) -> Dataset:
    """The ground truth in a file."""
    return read_dataset(_read(path, "the ground truth"), file=str(path))


def _require(document: Mapping[str, Any]) -> None:
    if not document.get("batchEvaluationName"):
        raise UsageError("the evaluation has no name\nGive --name NAME, or batchEvaluationName in the plan.")
    try:
        is_name(str(document["batchEvaluationName"]))
    except ValueError as error:
        raise UsageError(f"the name {document['batchEvaluationName']} {error}") from None
    if not document.get("evaluators"):
        raise UsageError(
            "no evaluator was named\nGive --evaluator NAME; `proctor evaluators list` lists them."
        )
    if not document.get("dataSourceConfig"):
        raise UsageError("say which sessions\nGive --run, --files, --log-group or another source.")


def _read(path: Path, what: str) -> bytes:
    return bytes_of(path, what, remedy="Give a YAML or JSON file.")


# Make a job ready: import its files, find its evaluators, and say what it would take.


CHARACTERS_A_TOKEN = 4


ASKING_TOKENS, ANSWER_TOKENS = 600, 200
"""What a judge is asked besides the session, and what it answers: about so much for the built-in ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorEstimate:
    """What judging with one evaluator would take, at most roughly right."""

    evaluator: str
    level: str
    model: str
    """Empty: no model is asked."""
    targets: int
    calls: int
    tokens: int
    cost_usd: float | None
    """None: a model of which nobody knows the price."""


def prepared(
    store: Store, where: StorePlaces, asked: PendingEvaluationRequest
) -> tuple[EvaluationRequest, dict[str, Any]]:
    """A request that can be opened, and copies of its evaluators' definitions.

    Its files are imported; its evaluators, their models and keys are there, or this raises.
    """
    bench = bench_for(store, where, asked.folder)
    document = _with_settings(where, asked)
    request = EvaluationRequest.from_document(document)
    copies = bench.copies(request.evaluators)
    models = models_for(where, asked.folder, document.get("prices"))
    make_jury(request, bench.finder(copies), models, models)
    return _with_files(store, request, document), copies


def extended(
    store: Store, where: StorePlaces, evaluation: EvaluationState, plan: Path | None, flags: Flags
) -> tuple[EvaluationState, Path]:
    """Ask a job that there is for more: what the plan and the flags say, beside what it had."""
    if not evaluation.is_finished:
        raise Contradiction(f"{evaluation.id} is {evaluation.state}\nWait for its end, or stop it first.")
    before = dict(evaluation.document)
    batch = store.read.batch(evaluation.id, now())
    folder = Path(json.loads(batch["optionsJson"]).get("folder") or Path.cwd())
    named = list(dict.fromkeys([*evaluation.evaluators, *flags.evaluators]))
    metadata = store.evaluations.metadata(evaluation.id)
    if plan is None:
        before["evaluationMetadata"] = {"sessionMetadata": metadata}
        given = {name: value for name, value in flags.top.items() if value is not None}
        fresh = asked_by(None, replace(flags, top={**before, **given}, evaluators=named))
    else:
        fresh = asked_by(plan, flags)
    document = {"batchEvaluationName": evaluation.name, **fresh.document}
    request, copies = prepared(store, where, replace(fresh, document=document, folder=folder))
    store.evaluations.change_request(
        EvaluationRecord(
            id=evaluation.id,
            arn=evaluation.arn,
            name=evaluation.name,
            request=request.document,
            request_digest=request.digest,
            metadata=request.metadata,
            definitions=copies,
        )
    )
    store.change_batch(evaluation.id, {"concurrency": request.concurrency, "budgetUsd": request.budget_usd})
    return evaluation_of(store, evaluation.id, now()), folder


def dry_run(store: Store, where: StorePlaces, asked: PendingEvaluationRequest, *, as_json: bool) -> int:
    """Say what would be judged, how often models would be asked, and what that may cost."""
    document = _with_settings(where, asked)
    request = EvaluationRequest.from_document(document)
    bench = bench_for(store, where, asked.folder)
    models = models_for(where, asked.folder, document.get("prices"))
    jury = make_jury(request, bench.finder(bench.copies(request.evaluators)), models, models)
    with _for_a_look(store, where, document) as seen:
        request = _with_files(seen, request, document)
        found = find_sessions(seen, request, now())
        forecasts = forecast(request, jury, found_sessions(seen.read, found.ids), models)
    if as_json:
        document = {
            "dryRun": True,
            "batchEvaluationName": request.name,
            "sessions": len(found.ids),
            "ignored": found.ignored,
            "itemCount": len(found.ids) * len(jury.members),
            "evaluators": [_forecast_document(each) for each in forecasts],
            "costUsd": _sum(each.cost_usd for each in forecasts),
        }
        print_json(document)
        return 0
    for each in forecasts:
        asked_of = f"{count(each.calls, 'call')} of {each.model}" if each.model else "no model is asked"
        cost = "" if not each.model else f", about {each.tokens:,} tokens, {money(each.cost_usd)}"
        words = f"{each.evaluator}: {count(each.targets, 'result')}, {asked_of}{cost}"
        print(printable(words))
    items = len(found.ids) * len(jury.members)
    left = f" ({found.ignored:,} older ones ignored)" if found.ignored else ""
    print_note(f"{count(len(found.ids), 'session')}{left}, {count(items, 'item')}. Nothing was started.")
    return 0


@contextmanager
def _for_a_look(store: Store, where: StorePlaces, document: Mapping[str, Any]) -> Iterator[Store]:
    """The store to look for sessions in: files are imported into one that is gone after the look."""
    if not document["dataSourceConfig"].get("files"):
        yield store
        return
    with (
        TemporaryDirectory(dir=where.home, prefix="look-") as folder,
        Store(str(Path(folder) / "look.db"), keys_of(where)) as scratch,
    ):
        yield scratch


def forecast(
    request: EvaluationRequest, jury: EvaluatorSet, sessions: Iterable[DiscoveredSession], models: ModelRouter
) -> list[EvaluatorEstimate]:
    """What each evaluator would take, from how long the sessions are."""
    targets = dict.fromkeys(jury.members, 0)
    tokens = dict.fromkeys(jury.members, 0)
    for session in sessions:
        whole = session.characters // CHARACTERS_A_TOKEN
        for name, evaluator in jury.members.items():
            number = {"session": 1, "trace": session.traces, "tool_call": session.tool_calls}[evaluator.level]
            targets[name] += number
            # A turn is shown with those before it: on average half of the session.
            shown = whole if evaluator.level == "session" else whole * (number + 1) // 2
            tokens[name] += shown + ASKING_TOKENS * number
    return [_forecast(request, jury, name, targets[name], tokens[name], models) for name in jury.members]


def _forecast(
    request: EvaluationRequest, jury: EvaluatorSet, name: str, targets: int, tokens: int, models: ModelRouter
) -> EvaluatorEstimate:
    model = jury.model_of(name)
    calls = targets * request.votes if model else 0
    usage = Usage(input_tokens=tokens * request.votes, output_tokens=ANSWER_TOKENS * calls)
    return EvaluatorEstimate(
        evaluator=jury.members[name].name,
        level=jury.members[name].level,
        model=model,
        targets=targets,
        calls=calls,
        tokens=usage.total_tokens if model else 0,
        cost_usd=_cost(model, usage, models) if model else 0.0,
    )


def _cost(model: str, usage: Usage, models: ModelRouter) -> float | None:
    try:
        price = models.route(model).price
    except ModelError:
        return None
    return None if price is None else price.for_call(usage)[0]


def _sum(costs: Iterable[float | None]) -> float | None:
    known = list(costs)
    return None if None in known else sum(cost for cost in known if cost is not None)


def _with_files(store: Store, request: EvaluationRequest, document: Mapping[str, Any]) -> EvaluationRequest:
    files = document["dataSourceConfig"].get("files")
    if not files:
        return request
    imported = import_files(store, [Path(path) for path in files["paths"]], files.get("kind") or "auto")
    source = {"files": {**files, "sessionIds": imported}}
    return EvaluationRequest.from_document({**document, "dataSourceConfig": source})


def _with_settings(where: StorePlaces, asked: PendingEvaluationRequest) -> dict[str, Any]:
    """What is asked, and where that says nothing, what `proctor.toml` says of evaluations."""
    told = configuration(where, [asked.folder]).evaluation
    settings = {"judge": told.get("judge"), "harmfulValue": told.get("harmful_value")}
    return {**{name: value for name, value in settings.items() if value is not None}, **asked.document}


def _forecast_document(each: EvaluatorEstimate) -> dict[str, Any]:
    return {
        "evaluator": each.evaluator,
        "level": each.level,
        "model": each.model or None,
        "results": each.targets,
        "calls": each.calls,
        "tokens": each.tokens,
        "costUsd": each.cost_usd,
    }
