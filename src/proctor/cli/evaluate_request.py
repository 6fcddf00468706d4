"""What `proctor evaluate start` asks for: a plan, or flags, or both; flags win."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.plan.evaluation_schema import is_name, read_evaluation
from proctor.plan.files import bytes_of
from proctor.plan.ground_truth import Dataset, read_dataset


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
class Asked:
    """A request before its files are imported."""

    document: dict[str, Any]
    folder: Path
    """Where relative paths begin: the plan's folder, or the working folder."""
    plan_path: str = ""
    plan_text: str = ""


def asked_by(plan: Path | None, flags: Flags) -> Asked:
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
    return Asked(
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
