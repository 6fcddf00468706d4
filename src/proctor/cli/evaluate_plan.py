"""Make a job ready: import its files, find its evaluators, and say what it would take."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from proctor.batch.discovery import FoundSession, found_sessions
from proctor.batch.evaluation import Evaluation, evaluation_of
from proctor.batch.evaluation_items import Jury, find_sessions
from proctor.batch.jury import make_jury
from proctor.cli.evaluate_files import import_files
from proctor.cli.evaluate_request import Asked, Flags, asked_by
from proctor.cli.evaluating import bench_for, models_for
from proctor.cli.house import Places, configuration, keys_of, now
from proctor.cli.words import count, money, print_json, printable, say
from proctor.errors import Contradiction, ModelError
from proctor.models import Models
from proctor.plan.evaluation import EvaluationRequest
from proctor.session import Usage
from proctor.store import Store
from proctor.store.evaluations import NewEvaluation

CHARACTERS_A_TOKEN = 4
ASKING_TOKENS, ANSWER_TOKENS = 600, 200
"""What a judge is asked besides the session, and what it answers: about so much for the built-in ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
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


def prepared(store: Store, where: Places, asked: Asked) -> tuple[EvaluationRequest, dict[str, Any]]:
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
    store: Store, where: Places, evaluation: Evaluation, plan: Path | None, flags: Flags
) -> tuple[Evaluation, Path]:
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
        NewEvaluation(
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


def dry_run(store: Store, where: Places, asked: Asked, *, as_json: bool) -> int:
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
    say(f"{count(len(found.ids), 'session')}{left}, {count(items, 'item')}. Nothing was started.")
    return 0


@contextmanager
def _for_a_look(store: Store, where: Places, document: Mapping[str, Any]) -> Iterator[Store]:
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
    request: EvaluationRequest, jury: Jury, sessions: Iterable[FoundSession], models: Models
) -> list[Forecast]:
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
    request: EvaluationRequest, jury: Jury, name: str, targets: int, tokens: int, models: Models
) -> Forecast:
    model = jury.model_of(name)
    calls = targets * request.votes if model else 0
    usage = Usage(input_tokens=tokens * request.votes, output_tokens=ANSWER_TOKENS * calls)
    return Forecast(
        evaluator=jury.members[name].name,
        level=jury.members[name].level,
        model=model,
        targets=targets,
        calls=calls,
        tokens=usage.total_tokens if model else 0,
        cost_usd=_cost(model, usage, models) if model else 0.0,
    )


def _cost(model: str, usage: Usage, models: Models) -> float | None:
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


def _with_settings(where: Places, asked: Asked) -> dict[str, Any]:
    """What is asked, and where that says nothing, what `proctor.toml` says of evaluations."""
    told = configuration(where, [asked.folder]).evaluation
    settings = {"judge": told.get("judge"), "harmfulValue": told.get("harmful_value")}
    return {**{name: value for name, value in settings.items() if value is not None}, **asked.document}


def _forecast_document(each: Forecast) -> dict[str, Any]:
    return {
        "evaluator": each.evaluator,
        "level": each.level,
        "model": each.model or None,
        "results": each.targets,
        "calls": each.calls,
        "tokens": each.tokens,
        "costUsd": each.cost_usd,
    }
