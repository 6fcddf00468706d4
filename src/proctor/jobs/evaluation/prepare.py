"""Prepare an evaluation: complete its request, import its files, find its evaluators, estimate its cost, and
discover its sessions, the most recent first, to make its items: session × evaluator.

A session is in a period if something happened in it then, not only if it began then.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from proctor import __version__
from proctor.batch.extend import Extension, extend
from proctor.batch.ingest import ImportResult, build_sessions, import_log_groups, import_paths
from proctor.batch.preflight import check_evaluators
from proctor.context import ModelOptions, RunContext
from proctor.errors import Contradiction, ModelError, UsageError
from proctor.evaluator import Evaluator, FindEvaluator, asks_second_judge, judge_of, judges_of
from proctor.evaluators.pairwise import PAIRWISE
from proctor.evaluators.registry import EvaluatorRegistry
from proctor.formatting import plural
from proctor.item import Item, digest_of
from proctor.job import Work
from proctor.jobs.evaluation.pairs import (
    COMPARED,
    TASK,
    WITH,
    SessionPair,
    find_pairs,
    scenario_of,
)
from proctor.jobs.evaluation.request import (
    Dataset,
    EvaluationRequest,
    GroundTruthIndex,
    complete_pairs,
    dataset_of_examples,
    is_name,
    read_dataset,
)
from proctor.jobs.evaluation.state import ACCOUNT, REGION, EvaluationState, evaluation_of, open_evaluation
from proctor.json_values import (
    CamelJson,
    JsonMap,
    JsonObject,
    as_map,
    as_sequence,
    as_text,
    camel_document,
    without_none,
)
from proctor.models import ModelRouter
from proctor.plan.source import bytes_of
from proctor.session import CHARACTERS_PER_TOKEN, Usage
from proctor.store import Store, StoreReader, batches
from proctor.store.datasets import DRAFT
from proctor.store.evaluations import EvaluationRecord
from proctor.store.session_selection import (
    LogGroupSessions,
    SessionContent,
    SessionHead,
    Sessions,
    session_contents,
    session_heads,
    session_ids,
)
from proctor.telemetry import sources

PAGE = 200
"""Sessions that are read together: enough to be quick, few enough to take little memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredSession:
    """A session to evaluate."""

    id: str
    """In the store."""
    external_id: str
    """Its id in its source; the id in the store for sessions executed here."""
    source: str
    service: str
    log_group: str
    model: str
    content: str
    """Digest of its messages and tool calls."""
    characters: int
    """Length of its texts."""
    traces: int
    tool_calls: int
    scenario: str = ""
    factors: Mapping[str, str] = field(default_factory=dict)
    """Of its item, for sessions executed here."""

    @property
    def label(self) -> str:
        """Its name in items and lists; the same on every machine."""
        where = f" of {self.service}" if self.service else ""
        return f"{self.external_id}{where}" + (f" in {self.log_group}" if self.log_group else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDiscovery:
    """The sessions of a source."""

    ids: Sequence[str]
    """In the store; the most recent first."""
    ignored: int = 0
    """Sessions beyond the maximum."""


def discover(read: StoreReader, sessions: Sessions, *, most: int | None = None) -> SessionDiscovery:
    """Find the sessions; of more than `most`, the most recent ones."""
    ids = session_ids(read, sessions)
    return SessionDiscovery(ids=ids[:most], ignored=len(ids) - len(ids[:most]))


def select_sessions(read: StoreReader, ids: Sequence[str]) -> Iterator[DiscoveredSession]:
    """The properties of sessions that their items need, read a page at a time."""
    for start in range(0, len(ids), PAGE):
        yield from _page(read, ids[start : start + PAGE])


def _page(read: StoreReader, ids: Sequence[str]) -> Iterator[DiscoveredSession]:
    heads, contents = session_heads(read, ids), session_contents(read, ids)
    for session_id in ids:
        if session_id in heads:
            yield _discovered(heads[session_id], contents[session_id])


def _discovered(row: SessionHead, content: SessionContent) -> DiscoveredSession:
    factors: dict[str, str] = json.loads(row["factors"] or "{}")
    return DiscoveredSession(
        id=row["id"],
        external_id=row["externalId"] or row["id"],
        source=row["source"],
        service=row["service"],
        log_group=row["logGroup"],
        model=row["model"],
        content=content.digest,
        characters=content.characters,
        traces=max(content.traces, 1),
        tool_calls=content.tool_calls,
        scenario=scenario_of(row) or str(factors.get("task", "")),
        factors=factors,
    )


Evaluators = Mapping[str, Evaluator]
"""The evaluators of a request, by their names in it."""


def find_sessions(store: Store, request: EvaluationRequest, now: datetime) -> SessionDiscovery:
    """Find the sessions of a request; sessions are first built from received spans."""
    if isinstance(request.sessions, LogGroupSessions):
        build_sessions(store, now)
    return discover(store.read, request.sessions, most=request.max_sessions)


def evaluation_items(
    read: StoreReader,
    request: EvaluationRequest,
    sessions: Sequence[str],
    evaluators: Evaluators,
    ground: GroundTruthIndex,
) -> Iterator[Item]:
    """Each session with each evaluator, session by session."""
    if request.pairing:
        (evaluator,) = evaluators.values()
        yield from _pair_items(read, request, sessions, evaluator)
        return
    # Once, not per session: a function's digest is read from its file each time.
    digests = {name: evaluator.digest for name, evaluator in evaluators.items()}
    for session in select_sessions(read, sessions):
        expected = ground.of(session.external_id, session.scenario)
        for name, evaluator in evaluators.items():
            yield _item(request, session, name, evaluator, digests[name], expected)


def _pair_items(
    read: StoreReader, request: EvaluationRequest, sessions: Sequence[str], evaluator: Evaluator
) -> Iterator[Item]:
    """Each pair of sessions of one task, task by task."""
    assert request.pairing
    pairs, digest = find_pairs(read, sessions, request.pairing), evaluator.digest
    compared = {side.session: side for pair in pairs for side in (pair.first, pair.second)}
    found = {each.id: replace(each, factors={}) for each in select_sessions(read, list(compared))}
    for pair in pairs:
        first, second = found.get(pair.first.session), found.get(pair.second.session)
        # Either may have been deleted meanwhile.
        if first and second:
            yield _pair_item(request, pair, first, second, evaluator, digest)


def _pair_item(
    request: EvaluationRequest,
    pair: SessionPair,
    first: DiscoveredSession,
    second: DiscoveredSession,
    evaluator: Evaluator,
    digest: str,
) -> Item:
    item = _item(request, first, PAIRWISE, evaluator, digest, {})
    factors = {COMPARED: pair.first.name, WITH: pair.second.name, TASK: pair.first.task}
    return replace(
        item,
        prompt=f"{pair.first.name} {first.label} with {pair.second.name} {second.label}",
        details={**item.details, "comparedWith": second.external_id, "otherContent": second.content},
        settings={**item.settings, "comparedWith": second.id},
        factors={"evaluator": evaluator.name, **factors},
    )


def fill(
    store: Store,
    run_id: str,
    request: EvaluationRequest,
    sessions: Sequence[str],
    evaluators: Evaluators,
    ground: GroundTruthIndex,
) -> Extension:
    """Add the items of an evaluation, or extend them. This process must own the batch."""
    items = evaluation_items(store.read, request, sessions, evaluators, ground)
    if store.read.totals(run_id)["items"]:
        return extend(store, run_id, {}, items, derived_fields=frozenset({"prompt"}))
    store.extend_batch(run_id, {}, add=items, settle=(), drop=())
    return Extension(added=store.read.totals(run_id)["items"])


def _item(
    request: EvaluationRequest,
    session: DiscoveredSession,
    name: str,
    evaluator: Evaluator,
    digest: str,
    expected: JsonMap,
) -> Item:
    truth = expected.get("groundTruth")
    traces = _traces(request, session)
    scenario = str(expected.get("testScenarioId") or session.scenario)
    factors = {**session.factors, "evaluator": evaluator.name, "service": session.service}
    factors |= {"model": session.factors.get("model") or session.model, "scenario": scenario}
    details: JsonObject = {
        "evaluator": evaluator.name,
        "evaluatorDigest": digest,
        "level": evaluator.level,
        "session": session.external_id,
        "source": session.source,
        "content": session.content,
    }
    if truth:
        details["reference"] = digest_of(truth)[:16]
    if traces:
        details["traces"] = list(traces)
    settings: JsonObject = {
        "label": evaluator.name,
        "session": session.id,
        "evaluator": name,
        "judging": request.judge_settings,
        "retries": request.retries,
    }
    if scenario:
        settings["scenario"] = scenario
    if request.timeout_seconds is not None:
        settings["timeoutSec"] = request.timeout_seconds
    if request.resources:
        settings["resources"] = dict(request.resources)
    return Item(
        runner="evaluation",
        prompt=session.label,
        model=judge_of(evaluator),
        details=details,
        settings=settings,
        factors={key: value for key, value in factors.items() if value},
    )


def _traces(request: EvaluationRequest, session: DiscoveredSession) -> tuple[str, ...]:
    if isinstance(request.sessions, LogGroupSessions):
        return request.sessions.traces.get(session.external_id, ())
    return ()


def find_evaluators(request: EvaluationRequest, find: FindEvaluator, models: ModelRouter) -> Evaluators:
    """Find every evaluator of a request; raises with every problem. Calls no model."""
    evaluators, problems = dict[str, Evaluator](), list[str]()
    for name in request.evaluators:
        try:
            evaluators[name] = find(name, request.judge_settings, models)
        except UsageError as error:
            problems.append(str(error))
    for model in dict.fromkeys(chain.from_iterable(map(judges_of, evaluators.values()))):
        problems += _missing(model, models, has_budget=request.budget_usd is not None)
    names = [evaluator.name for evaluator in evaluators.values()]
    for name in {name for name in names if names.count(name) > 1}:
        problems.append(f"two evaluators are named {name}\nRename one: results are identified by name.")
    if problems:
        raise UsageError("\n\n".join(problems))
    return evaluators


def _missing(model: str, models: ModelRouter, *, has_budget: bool) -> list[str]:
    try:
        models.check(model)
    except UsageError as error:
        return [str(error)]
    problems = []
    if missing := models.missing_key(model):
        problems.append(f"{model} needs a key, and {missing} is not set\nSet it: export {missing}=…")
    if has_budget and not models.has_price(model):
        problems.append(
            f"no price is known for {model}, so the budget cannot be enforced\n"
            "Add it under `prices:` in the plan."
        )
    return problems


STORED = "dataset:"
"""Begins the name of ground truth that is a dataset of the store."""
MOST_UNREADABLE = 5
"""Files that could not be read which a notice names."""
PROMPT_TOKENS, ANSWER_TOKENS = 600, 200
"""Approximate size of the built-in judges' instructions, and of their answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingEvaluationRequest:
    """A request before its files are imported."""

    document: Mapping[str, Any]
    folder: Path
    """Where relative paths begin: the plan's folder, or the working folder."""
    plan_path: str = ""
    plan_text: str = ""

    def model_options(self) -> ModelOptions:
        """How its judges are reached."""
        return judge_options(self.folder, self.document)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedEvaluation:
    """A request that can be opened."""

    request: EvaluationRequest
    definitions: JsonMap
    """Copies of the evaluators' definitions as they are now."""
    pending: PendingEvaluationRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorEstimate(CamelJson):
    """Approximate effort of one evaluator."""

    evaluator: str
    level: str
    model: str | None
    """The first of several judges. None: calls no model."""
    results: int
    calls: int
    tokens: int
    cost_usd: float | None
    """None: the price of a model is unknown."""
    further_judges: Sequence[str] = ()
    is_upper_bound: bool = False
    """Whether calls, tokens and cost are of the case that the second judge decides every result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationEstimate:
    """What an evaluation would do, without starting it."""

    name: str
    sessions: int
    ignored: int
    """Sessions beyond `maxSessions`."""
    evaluators: Sequence[EvaluatorEstimate] = field(default=())
    remarks: Sequence[str] = ()
    pairs: int | None = None
    """Of sessions, which are compared. None: sessions are scored one by one."""

    @property
    def item_count(self) -> int:
        """Pairs of session and evaluator, or of sessions."""
        return self.sessions * len(self.evaluators) if self.pairs is None else self.pairs

    @property
    def workload(self) -> dict[Work, int]:
        """Items by judge and evaluator."""
        items = self.item_count // max(len(self.evaluators), 1)
        return {Work("", each.model or "", each.evaluator): items for each in self.evaluators}

    @property
    def cost_usd(self) -> float | None:
        """Approximate cost; None: the price of a model is unknown."""
        costs = [each.cost_usd for each in self.evaluators]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    @property
    def document(self) -> JsonObject:
        """As `--json` prints it."""
        return {
            "dryRun": True,
            "batchEvaluationName": self.name,
            "sessions": self.sessions,
            "ignored": self.ignored,
            "itemCount": self.item_count,
            "evaluators": camel_document(self.evaluators),
            "costUsd": self.cost_usd,
        }


def judge_options(folder: Path, document: JsonMap) -> ModelOptions:
    """How the judges of a request whose code is in `folder` are reached."""
    return ModelOptions.of_plan(document, (folder, Path.cwd()))


def pending_request(
    document: JsonMap,
    *,
    folder: Path,
    plan_path: str = "",
    plan_text: str = "",
    ground_truth: Sequence[Path] = (),
    files_folder: Path | None = None,
    store: Store | None = None,
) -> PendingEvaluationRequest:
    """Complete a request: read its ground truth, resolve its paths; raises if something is missing.

    `ground_truth` are further files; `dataset:NAME` is a dataset of the `store`. `files_folder` is where the
    paths of `files` begin, if not in `folder`.
    """
    complete = complete_pairs(document)
    entries = complete.pop("groundTruth", None)
    named = [entries] if isinstance(entries, str) else as_sequence(entries)
    # An evaluation that is extended has its datasets already, and keeps where they came from.
    datasets = [entry for entry in named if isinstance(entry, dict)]
    texts = [entry for entry in named if isinstance(entry, str)]
    files = [*(Path(each) if each.startswith(STORED) else folder / each for each in texts), *ground_truth]
    if files or datasets:
        read = [
            stored_dataset(store, str(path)) if str(path).startswith(STORED) else dataset_of(path)
            for path in files
        ]
        inline = as_sequence(as_map(complete, "evaluationMetadata").get("sessionMetadata"))
        metadata = [*(entry for dataset in read for entry in dataset.metadata), *inline]
        complete["evaluationMetadata"] = {"sessionMetadata": metadata}
        complete["groundTruth"] = [*datasets, *(dataset.mention for dataset in read)]
    _check_complete(complete)
    if source := as_map(complete, "dataSourceConfig", "files"):
        paths = [str((files_folder or folder) / str(path)) for path in as_sequence(source["paths"])]
        complete["dataSourceConfig"] = {"files": {**source, "paths": paths}}
    return PendingEvaluationRequest(
        document=complete, folder=folder, plan_path=plan_path, plan_text=plan_text
    )


def stored_dataset(store: Store | None, name: str) -> Dataset:
    """The ground truth in a dataset of the store: `dataset:NAME`, its draft, or `dataset:NAME@VERSION`."""
    if store is None:
        raise UsageError(f"{name} needs a store, and there is none here\nGive a file.")
    dataset, _, version = name.removeprefix(STORED).partition("@")
    if not (version or "0").isdecimal():
        raise UsageError(f"{name}: `{version}` is no version\nWrite {STORED}{dataset}@1, or no version.")
    row = store.datasets.dataset(dataset)
    number = int(version) if version else DRAFT
    if version:
        store.datasets.version(row["id"], number)
    return dataset_of_examples(
        f"{row['name']}@{version}" if version else row["name"],
        [each["content"] for each in store.datasets.all_examples(row["id"], number)],
    )


def dataset_of(path: Path) -> Dataset:
    """The ground truth in a file."""
    content = bytes_of(path, "the ground truth", remedy="Give a YAML or JSON file.")
    return read_dataset(content, file=str(path))


def _check_complete(document: JsonMap) -> None:
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
        raise UsageError(
            "no source of sessions was named\nGive --run, --files, --log-group or another source."
        )


@contextmanager
def models_to_check(options: ModelOptions, ctx: RunContext) -> Iterator[ModelRouter]:
    """Models that are looked up, to check them or to read their prices, and not called."""
    models = ctx.models(options, records=False)
    try:
        yield models
    finally:
        models.close_files()


def check(pending: PendingEvaluationRequest, models: ModelRouter, ctx: RunContext) -> tuple[str, ...]:
    """Raise with every evaluator, model or key of a request that is missing; the remarks otherwise.

    Calls no model.
    """
    request = EvaluationRequest.from_document(_with_settings(pending, ctx))
    find, _ = _evaluators(request, pending, ctx)
    return sandbox_remarks(find_evaluators(request, find, models))


def sandbox_remarks(evaluators: Evaluators) -> tuple[str, ...]:
    """How the code of evaluators is confined. Raises `UsageError` if their sandbox does not work here."""
    remarks = set[str]()
    for problem, remedy in check_evaluators(evaluators.values(), remarks):
        raise UsageError(f"`sandbox`: {problem}\n{remedy}")
    return tuple(remarks)


def prepare(pending: PendingEvaluationRequest, ctx: RunContext) -> PreparedEvaluation:
    """Import the files of a request and copy its evaluators; raises if one of those cannot be used."""
    document = _with_settings(pending, ctx)
    request = EvaluationRequest.from_document(document)
    find, copies = _evaluators(request, pending, ctx)
    with models_to_check(pending.model_options(), ctx) as models:
        sandbox_remarks(find_evaluators(request, find, models))
    return PreparedEvaluation(
        request=_with_files(ctx.store, request, document, ctx), definitions=copies, pending=pending
    )


def open_prepared(
    prepared: PreparedEvaluation, ctx: RunContext, *, is_detached: bool = False
) -> EvaluationState:
    """Write a prepared evaluation to the store, to be executed by `lifecycle.resume`."""
    pending, names = prepared.pending, ctx.settings_for([prepared.pending.folder]).serve
    evaluation = open_evaluation(
        ctx.store,
        prepared.request,
        now=ctx.now(),
        version=__version__,
        region=names.get("region") or REGION,
        account=names.get("account") or ACCOUNT,
        definitions=prepared.definitions,
        folder=str(pending.folder),
        plan_path=pending.plan_path,
        plan_text=pending.plan_text,
        is_detached=is_detached,
    )
    if evaluation.is_new and (tags := as_map(prepared.request.document, "tags")):
        ctx.store.definitions.tag(evaluation.arn, {name: str(value) for name, value in tags.items()})
    return evaluation


def extend_evaluation(
    evaluation: EvaluationState, pending: PendingEvaluationRequest, ctx: RunContext
) -> EvaluationState:
    """Change the request of a finished evaluation; what it has evaluated is kept when it is resumed."""
    if not evaluation.is_finished:
        raise Contradiction(f"{evaluation.id} is {evaluation.state}\nWait for its end, or stop it first.")
    document = {"batchEvaluationName": evaluation.name, **pending.document}
    prepared = prepare(replace(pending, document=document), ctx)
    request = prepared.request
    ctx.store.evaluations.change_request(
        EvaluationRecord(
            id=evaluation.id,
            arn=evaluation.arn,
            name=evaluation.name,
            request=request.document,
            request_digest=request.digest,
            metadata=request.metadata,
            definitions=prepared.definitions,
        )
    )
    columns = {"concurrency": request.concurrency, "budgetUsd": request.budget_usd}
    ctx.store.change(batches.change, evaluation.id, columns)
    return evaluation_of(ctx.store, evaluation.id, ctx.now())


def estimate(pending: PendingEvaluationRequest, ctx: RunContext) -> EvaluationEstimate:
    """Count the sessions, calls and approximate cost of a request; writes nothing to the store."""
    document = _with_settings(pending, ctx)
    request = EvaluationRequest.from_document(document)
    find, _ = _evaluators(request, pending, ctx)
    with (
        models_to_check(pending.model_options(), ctx) as models,
        _store_of_sessions(document, ctx) as store,
    ):
        evaluators = find_evaluators(request, find, models)
        request = _with_files(store, request, document, ctx)
        discovery = find_sessions(store, request, ctx.now())
        if request.pairing:
            pairs = find_pairs(store.read, discovery.ids, request.pairing)
            estimates = [_estimate_pairs(store.read, request, evaluators[PAIRWISE], pairs, models)]
        else:
            sessions, pairs = select_sessions(store.read, discovery.ids), None
            estimates = _estimate_evaluators(request, evaluators, sessions, models)
    return EvaluationEstimate(
        name=request.name,
        sessions=len(discovery.ids),
        ignored=discovery.ignored,
        evaluators=estimates,
        remarks=sandbox_remarks(evaluators),
        pairs=None if pairs is None else len(pairs),
    )


@contextmanager
def _store_of_sessions(document: JsonMap, ctx: RunContext) -> Iterator[Store]:
    """The store to discover sessions in: files are imported into a temporary one."""
    if not as_map(document, "dataSourceConfig", "files"):
        yield ctx.store
        return
    with (
        TemporaryDirectory(dir=ctx.home, prefix="look-") as folder,
        ctx.scratch_store(Path(folder)) as scratch,
    ):
        yield scratch


def _estimate_evaluators(
    request: EvaluationRequest,
    evaluators: Evaluators,
    sessions: Iterable[DiscoveredSession],
    models: ModelRouter,
) -> list[EvaluatorEstimate]:
    targets, tokens = dict.fromkeys(evaluators, 0), dict.fromkeys(evaluators, 0)
    for session in sessions:
        session_tokens = session.characters // CHARACTERS_PER_TOKEN
        for name, evaluator in evaluators.items():
            number = {"session": 1, "trace": session.traces, "tool_call": session.tool_calls}[evaluator.level]
            targets[name] += number
            # A turn is shown with those before it: on average half of the session.
            visible_tokens = (
                session_tokens if evaluator.level == "session" else session_tokens * (number + 1) // 2
            )
            tokens[name] += visible_tokens + PROMPT_TOKENS * number
    return [
        _estimate_evaluator(request, evaluator, targets[name], tokens[name], models)
        for name, evaluator in evaluators.items()
    ]


def _estimate_pairs(
    read: StoreReader,
    request: EvaluationRequest,
    evaluator: Evaluator,
    pairs: Sequence[SessionPair],
    models: ModelRouter,
) -> EvaluatorEstimate:
    """The effort of a pairwise evaluation: each pair is judged in both orders."""
    shown = Counter(side.session for pair in pairs for side in (pair.first, pair.second))
    characters = sum(each.characters * shown[each.id] for each in select_sessions(read, list(shown)))
    calls = 2 * len(pairs)
    tokens = 2 * characters // CHARACTERS_PER_TOKEN + PROMPT_TOKENS * calls
    return replace(_estimate_evaluator(request, evaluator, calls, tokens, models), results=len(pairs))


def _estimate_evaluator(
    request: EvaluationRequest, evaluator: Evaluator, targets: int, tokens: int, models: ModelRouter
) -> EvaluatorEstimate:
    called = judges_of(evaluator)
    calls = targets * request.votes
    usage = Usage(input_tokens=tokens * request.votes, output_tokens=ANSWER_TOKENS * calls)
    costs = [_cost(model, calls, usage, models) for model in called]
    return EvaluatorEstimate(
        evaluator=evaluator.name,
        level=evaluator.level,
        model=judge_of(evaluator) or None,
        results=targets,
        calls=calls * len(called),
        tokens=usage.total_tokens * len(called),
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        further_judges=list(dict.fromkeys(called))[1:],
        is_upper_bound=asks_second_judge(evaluator),
    )


def _cost(model: str, calls: int, usage: Usage, models: ModelRouter) -> float | None:
    try:
        price = models.expected_price(model)
    except ModelError:
        return None
    return None if price is None else price.for_calls(calls, usage)


def _evaluators(
    request: EvaluationRequest, pending: PendingEvaluationRequest, ctx: RunContext
) -> tuple[FindEvaluator, JsonObject]:
    sandbox = pending.model_options().sandbox
    registry: EvaluatorRegistry = ctx.evaluators(pending.folder, sandbox=sandbox)
    copies = registry.copies(request.evaluators)
    return registry.finder(copies), copies


def _with_settings(pending: PendingEvaluationRequest, ctx: RunContext) -> JsonObject:
    """The request, completed by the section `evaluation` of `proctor.toml`."""
    section = ctx.settings_for([pending.folder]).evaluation
    defaults = {"judge": section.get("judge"), "harmfulValue": section.get("harmful_value")}
    return {**without_none(defaults), **pending.document}


def _with_files(
    store: Store, request: EvaluationRequest, document: JsonMap, ctx: RunContext
) -> EvaluationRequest:
    files = as_map(document, "dataSourceConfig", "files")
    if not files:
        return request
    paths = [Path(str(path)) for path in as_sequence(files["paths"])]
    imported = import_paths(store, paths, as_text(files.get("kind")) or "auto", ctx.now())
    _report_import(imported, ctx)
    source = {"files": {**files, "sessionIds": list(imported.session_ids)}}
    return EvaluationRequest.from_document({**document, "dataSourceConfig": source})


def import_cloudwatch(request: EvaluationRequest, ctx: RunContext) -> None:
    """Import what CloudWatch Logs holds of the log groups of a request."""
    sessions = request.sessions
    if not isinstance(sessions, LogGroupSessions):
        raise UsageError("--cloudwatch fetches log groups\nName them: --log-group or --log-group-prefix.")
    query = sources.LogGroupQuery(
        names=sessions.names,
        prefixes=sessions.prefixes,
        service=next(iter(sessions.services), ""),
        session_ids=(*sessions.session_ids, *sessions.traces),
        start=sessions.period.start,
        end=sessions.period.end,
    )
    _report_import(import_log_groups(ctx.store, sources.logs_client(), query, ctx.now()), ctx)


def _report_import(imported: ImportResult, ctx: RunContext) -> None:
    for problem in imported.unreadable[:MOST_UNREADABLE]:
        ctx.info(f"skipped {problem}")
    if imported.unreadable_count > MOST_UNREADABLE:
        ctx.info(f"… and {imported.unreadable_count - MOST_UNREADABLE:,} more that could not be read")
    ctx.info(f"{plural(len(imported.session_ids), 'session')} imported")
