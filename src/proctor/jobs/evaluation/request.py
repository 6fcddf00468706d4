"""The request of an evaluation: sessions, evaluators, ground truth.

A request is a document of the AWS Start operation with further members: sessions of this store or of files,
the judge, and the limits of every batch. Metadata of sessions (scenario, ground truth) is stored
separately, because it may be long.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from proctor.errors import Problem, UsageError
from proctor.evaluator import Reference
from proctor.evaluators import code
from proctor.evaluators.pairwise import PAIRWISE, QUESTION, check_question
from proctor.formatting import snake_case
from proctor.item import digest_of
from proctor.job import BATCHED_AT_ONCE
from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_map,
    as_sequence,
    as_text,
    as_whole_number,
    parse_json,
    without_none,
)
from proctor.plan.source import PlanSource, refuse
from proctor.plan.validate import (
    Anything,
    Flag,
    ModelPrice,
    OutagePatience,
    PlanResources,
    PlanSandbox,
    ProviderService,
    Seconds,
    Text,
    Usd,
    check_shape,
    names_of,
    sections_of,
)
from proctor.plan.yaml_loader import read_source
from proctor.store.session_selection import FileSessions, LogGroupSessions, OwnSessions, Period, Sessions

JOB_NAME = "evaluation"
JUDGE = "openai/gpt-4o-mini"
"""Default judge."""
CONCURRENCY = 8


def concurrency_of(document: JsonMap) -> int:
    """Items at once of a request."""
    if concurrency := as_whole_number(document.get("concurrency")):
        return concurrency
    names = (*named(document, "evaluators"), *named(document, "insights"))
    is_batched = document.get("service") and all(name.startswith("Builtin.") for name in names)
    return BATCHED_AT_ONCE if is_batched else CONCURRENCY


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """Which sessions of a pairwise evaluation are compared, and how."""

    by: str = "run"
    """What is compared: `run`, `model`, `agent`, `service`, `version`, `prompt`, or a factor or attribute."""
    task: str = ""
    """The factor or attribute that names the task. Empty: the scenario or task, or else the question."""
    question: str = QUESTION


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRequest:
    """The request of one evaluation."""

    name: str
    evaluators: tuple[str, ...]
    """Names as `proctor evaluators` takes them: `Builtin.X`, an id, a file, `module:function`."""
    sessions: Sessions
    document: JsonMap
    """The whole request, without the client token and the metadata of sessions."""
    metadata: Sequence[JsonMap] = ()
    """Metadata of sessions: `sessionId`, `testScenarioId`, `groundTruth`, `metadata`."""
    client_token: str = ""
    pairing: Pairing | None = None
    """None: sessions are scored one by one."""
    judge: str = JUDGE
    votes: int = 1
    judge_parameters: JsonMap = field(default_factory=dict)
    harmful_value: float | None = None
    """Value of the label `Harmful`. None: the evaluators' default."""
    budget_usd: float | None = None
    concurrency: int = CONCURRENCY
    timeout_seconds: float | None = None
    retries: int = 0
    max_sessions: int | None = None
    """Maximum number of sessions, most recent first. None: all."""
    resources: JsonMap | None = None
    """What an item needs of a node of a cluster. None: nothing in particular."""

    @classmethod
    def from_document(
        cls,
        document: JsonMap,
        *,
        online_source: Callable[[str], JsonMap] | None = None,
    ) -> "EvaluationRequest":
        """Read a checked document. `online_source` gives the `cloudWatchLogs` source that an online
        configuration, by its ARN, watches."""
        values: dict[str, Any] = without_none(document)
        token = values.pop("clientToken", "")
        metadata = (values.pop("evaluationMetadata", None) or {}).get("sessionMetadata") or []
        return cls(
            name=values["batchEvaluationName"],
            evaluators=tuple(dict.fromkeys((*named(values, "evaluators"), *named(values, "insights")))),
            sessions=_sessions(values["dataSourceConfig"], online_source),
            document=_plain(values),
            metadata=tuple(map(_plain, metadata)),
            client_token=token,
            pairing=None if "pairwise" not in values else Pairing(**without_none(values["pairwise"])),
            judge=values.get("judge") or JUDGE,
            votes=values.get("votes") or 1,
            judge_parameters=values.get("judgeParameters") or {},
            harmful_value=values.get("harmfulValue"),
            budget_usd=values.get("budget"),
            concurrency=concurrency_of(values),
            timeout_seconds=values.get("timeoutSec"),
            retries=values.get("retries") or 0,
            max_sessions=values.get("maxSessions"),
            resources=values.get("resources"),
        )

    @property
    def digest(self) -> str:
        """Digest of the request: two starts with one client token must have the same one."""
        return digest_of([_plain(self.document), _plain(list(self.metadata))])

    @property
    def judge_settings(self) -> JsonObject:
        """Settings of the evaluators: judge, votes and parameters."""
        values = {"judge": self.judge, "votes": self.votes, "parameters": dict(self.judge_parameters)}
        if self.pairing:
            values["question"] = self.pairing.question
        return values if self.harmful_value is None else values | {"harmfulValue": self.harmful_value}


def complete_pairs(document: JsonMap) -> JsonObject:
    """The request with the evaluator of a pairwise evaluation; raises if it has another one."""
    if document.get("pairwise") is None:
        return dict(document)
    if named(document, "evaluators") not in ([], [PAIRWISE]):
        raise UsageError("a pairwise evaluation has no other evaluators\nRemove `pairwise` or `evaluators`.")
    check_question(as_text(document, "pairwise", "question"))
    return {**document, "evaluators": [PAIRWISE]}


def named(document: JsonMap, member: str) -> list[str]:
    """Names of the evaluators or insights of a request; insights are evaluators too."""
    id_ = {"evaluators": "evaluatorId", "insights": "insightId"}[member]
    entries = as_sequence(document.get(member))
    return [entry if isinstance(entry, str) else str(as_map(entry)[id_]) for entry in entries]


def _sessions(config: Mapping[str, Any], online_source: Callable[[str], JsonMap] | None) -> Sessions:
    present = [name for name, value in config.items() if value is not None]
    if len(present) != 1:
        raise UsageError(
            "the source of sessions should be one of cloudWatchLogs, onlineEvaluationConfigSource, store, "
            f"files; there are {len(present)}"
        )
    source = config[present[0]]
    match present[0]:
        case "cloudWatchLogs":
            return _log_groups(source)
        case "onlineEvaluationConfigSource":
            if online_source is None:
                raise UsageError("online configurations are known to `proctor serve` only")
            watched = dict(online_source(source["onlineEvaluationConfigArn"]))
            return _log_groups(watched | {"filterConfig": {"timeRange": source.get("timeRange")}})
        case "store":
            names = ("runIds", "jobs", "roles", "models", "statuses", "sessionIds")
            filters = {snake_case(name): _texts(source.get(name)) for name in names}
            # Evaluations are not evaluated themselves unless they are named.
            excluded = () if JOB_NAME in filters["jobs"] else (JOB_NAME,)
            return OwnSessions(
                **filters, excluded_jobs=excluded, period=period_of(as_map(source, "timeRange"))
            )
        case "files":
            imported = _texts(source.get("sessionIds"))
            return FileSessions(
                paths=_texts(source["paths"]), kind=source.get("kind") or "auto", session_ids=imported
            )
        case other:
            raise UsageError(f"there is no source of sessions called {other}")


def _log_groups(source: JsonMap) -> LogGroupSessions:
    filters = as_map(source, "filterConfig")
    traces = {
        str(as_map(entry)["sessionId"]): _texts(as_map(entry)["traceIds"])
        for entry in as_sequence(filters.get("sessionTraceIds"))
    }
    return LogGroupSessions(
        names=_texts(source.get("logGroupNames")),
        prefixes=_texts(source.get("logGroupNamePrefixes")),
        services=_texts(source.get("serviceNames")),
        session_ids=_texts(filters.get("sessionIds")),
        traces=traces,
        period=period_of(as_map(filters, "timeRange")),
    )


def _texts(values: object) -> tuple[str, ...]:
    if isinstance(values, str):
        return (values,)
    return tuple(map(str, as_sequence(values)))


def period_of(document: JsonMap) -> Period:
    """The period from `startTime` to `endTime`."""
    return Period(start=moment_of(document.get("startTime")), end=moment_of(document.get("endTime")))


def moment_of(value: object) -> datetime | None:
    """Parse a time: ISO 8601 (default UTC), or seconds since 1970."""
    if value is None or value == "":
        return None
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC)
        read = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"`{value}` is no moment\nWrite it like 2026-01-31 or 2026-01-31T14:00Z.") from None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _plain(value: object) -> Any:
    """The same with times as text, so that it can be hashed."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.isoformat() if isinstance(value, datetime) else value


NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,47}")


def is_name(name: str) -> str:
    """Validate the name of an evaluation; raises `ValueError`."""
    if not NAME.fullmatch(name):
        raise ValueError("should be a letter, then up to 47 letters, digits or underscores")
    return name


# Ground truth of sessions, in requests and in files.
#
#     dataset_id: travel-regressions
#     version: 3
#     sessionMetadata:
#       - sessionId: bd8734a9           # or testScenarioId alone: every session of that scenario
#         testScenarioId: book-a-flight
#         groundTruth:
#           inline:
#             assertions: [The agent names a price]
#             expectedTrajectory:
#               - search_flights
#               - {name: book, arguments: {day: Monday}, match: subset}
#             turns:
#               - prompt: To Oslo, please.
#                 expectedResponse: Which day?
#
# Texts that the AWS interface wraps (`{text: …}`, `{toolNames: […]}`) may be written without the wrapper. A
# file is one version of a dataset, called `travel-regressions@3`; its digest is stored with every evaluation
# that used it, so that later changes of the file are detected.


class GroundTruthIndex:
    """Metadata of sessions: scenario and ground truth."""

    def __init__(self, metadata: Sequence[JsonMap]) -> None:
        """The last of two entries about the same session or scenario takes precedence."""
        self._by_session = {str(entry["sessionId"]): entry for entry in metadata if entry.get("sessionId")}
        self._by_scenario = {
            str(entry["testScenarioId"]): entry for entry in metadata if not entry.get("sessionId")
        }
        self.unused = set(self._by_session)
        """IDs of sessions with an entry that was not used."""

    def of(self, external_id: str, scenario: str = "") -> JsonMap:
        """The entry of a session; an empty mapping: none."""
        self.unused.discard(external_id)
        return self._by_session.get(external_id) or self._by_scenario.get(scenario) or {}


def reference_of(entry: JsonMap) -> Reference | None:
    """The ground truth of an entry; None: none."""
    inline = as_map(entry, "groundTruth", "inline")
    return code.reference_of(inline) if inline else None


def unwrapped(name: str) -> BeforeValidator:
    """Unwrap a value that the AWS interface wraps in a mapping."""
    return BeforeValidator(
        lambda value: value[name] if isinstance(value, Mapping) and set(value) == {name} else value
    )


class _EvaluationModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class ExpectedTurn(_EvaluationModel):
    """Expected result of one turn."""

    input: Annotated[Text, unwrapped("prompt")] | None = None
    prompt: Text | None = None
    expected_response: Annotated[Text, unwrapped("text")] | None = None


class ExpectedCall(_EvaluationModel):
    """An expected tool call with its arguments."""

    noun: ClassVar = "expected call"
    name: Text
    arguments: dict[str, Anything] | None = None
    match: Literal["exact", "subset", "superset", "ignore"] | None = None
    """How arguments are compared; `subset`: the call may have more than these. None: exact."""


class InlineGroundTruth(_EvaluationModel):
    """Expected result of a session."""

    assertions: Annotated[list[Annotated[Text, unwrapped("text")]], Field(min_length=1)] | None = None
    expected_trajectory: Annotated[list[Text | ExpectedCall], unwrapped("toolNames")] | None = None
    turns: Annotated[list[ExpectedTurn], Field(min_length=1)] | None = None


class GroundTruth(_EvaluationModel):
    """Ground truth, always inline."""

    inline: InlineGroundTruth


class SessionMetadata(_EvaluationModel):
    """Metadata of one session, or of all sessions of one scenario."""

    noun: ClassVar = "session"
    session_id: Text | None = None
    test_scenario_id: Text | None = None
    ground_truth: GroundTruth | None = None
    metadata: JsonObject | None = None


class DatasetFile(_EvaluationModel):
    """One version of a dataset of ground truth."""

    dataset_id: Text | None = None
    version: int | Text | None = None
    description: str | None = None
    session_metadata: Annotated[list[SessionMetadata], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Ground truth as a file holds it."""

    name: str
    """`travel-regressions@3`; the file's name where it does not say."""
    digest: str
    metadata: Sequence[JsonMap] = field(repr=False)

    @property
    def mention(self) -> dict[str, str]:
        """What a job keeps of where its ground truth came from."""
        return {"dataset": self.name, "digest": self.digest}


def dataset_of_examples(name: str, examples: Sequence[JsonMap]) -> Dataset:
    """Ground truth of the scenarios of AWS's datasets, for sessions that name their scenario."""
    metadata = [
        {"testScenarioId": scenario, "groundTruth": {"inline": inline}}
        for example in examples
        if (scenario := as_text(example, "scenario_id")) and (inline := _inline(example))
    ]
    if not metadata:
        raise UsageError(
            f"the dataset {name} has no ground truth\n"
            "Its examples need a `scenario_id`, and `assertions`, `expected_trajectory` or "
            "`expected_response` of their turns."
        )
    return Dataset(name=name, digest=digest_of(metadata)[:16], metadata=metadata)


def _inline(example: JsonMap) -> JsonObject:
    turns = [
        {
            "input": prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False),
            **({"expectedResponse": turn["expected_response"]} if turn.get("expected_response") else {}),
        }
        for turn in map(as_map, as_sequence(example.get("turns")))
        for prompt in [turn.get("input", "")]
    ]
    members = {
        "assertions": list(as_sequence(example.get("assertions"))),
        "expectedTrajectory": example.get("expected_trajectory"),
        "turns": turns if any("expectedResponse" in turn for turn in turns) else [],
    }
    # An empty trajectory is ground truth: the agent should call no tool.
    return {
        name: value
        for name, value in members.items()
        if value or (name == "expectedTrajectory" and value is not None)
    }


def _scenarios(text: str | bytes, file: str) -> list[JsonMap] | None:
    """The scenarios of a file of AWS's runners; None: another file."""
    try:
        if file.endswith(".jsonl"):
            entries = [parse_json(line) for line in text.splitlines() if line.strip()]
        else:
            entries = list(as_sequence(as_map(parse_json(text)).get("scenarios")))
    except ValueError:
        return None
    scenarios = [entry for entry in entries if isinstance(entry, Mapping) and entry.get("scenario_id")]
    return scenarios if scenarios and len(scenarios) == len(entries) else None


def read_dataset(text: str | bytes, *, file: str) -> Dataset:
    """Read a file of ground truth, YAML or JSON; raises with everything that is wrong with it.

    Files of AWS's runners are read too: `{"scenarios": […]}`, or a scenario in each line of a `.jsonl`.
    """
    if (scenarios := _scenarios(text, file)) is not None:
        return dataset_of_examples(file.rpartition("/")[2], scenarios)
    source = read_source(text, file=file)
    findings = check_shape(source, DatasetFile, sections_of(DatasetFile, "dataset"))
    problems = list(findings.problems)
    if not problems:
        problems += [
            source.problem(
                ("sessionMetadata", index),
                f"session {index + 1} names neither a session nor a scenario",
                "Add `sessionId` or `testScenarioId`.",
            )
            for index, entry in enumerate(source.data["sessionMetadata"])
            if not (entry.get("sessionId") or entry.get("testScenarioId"))
        ]
    if problems:
        refuse(problems)
    data = source.data
    name = str(data.get("datasetId") or file.rpartition("/")[2])
    version = data.get("version")
    return Dataset(
        name=name if version is None else f"{name}@{version}",
        digest=digest_of(data)[:16],
        metadata=data["sessionMetadata"],
    )


# The document of a request.


class TimeRange(_EvaluationModel):
    """From a moment up to another, which no longer counts."""

    start_time: Text | float | None = None
    end_time: Text | float | None = None


class SessionTraces(_EvaluationModel):
    """Some traces of one session."""

    session_id: Text
    trace_ids: Annotated[list[Text], Field(min_length=1)]


class FilterConfig(_EvaluationModel):
    """Which sessions of a log group."""

    session_ids: list[Text] | None = None
    time_range: TimeRange | None = None
    session_trace_ids: list[SessionTraces] | None = None


class LogGroupSource(_EvaluationModel):
    """Sessions that arrived by telemetry."""

    service_names: list[Text] | None = None
    log_group_names: list[Text] | None = None
    log_group_name_prefixes: list[Text] | None = None
    filter_config: FilterConfig | None = None


class StoreSource(_EvaluationModel):
    """Sessions of this store."""

    run_ids: list[Text] | None = None
    jobs: list[Text] | None = None
    roles: list[Text] | None = None
    models: list[Text] | None = None
    statuses: list[Text] | None = None
    session_ids: list[Text] | None = None
    time_range: TimeRange | None = None


class FileSource(_EvaluationModel):
    """Records to be imported first."""

    paths: Annotated[list[Text], Field(min_length=1)]
    kind: Text | None = None


class DataSource(_EvaluationModel):
    """Where the sessions are: one of these."""

    cloud_watch_logs: LogGroupSource | None = None
    store: StoreSource | None = None
    files: FileSource | None = None


class PairwisePlan(_EvaluationModel):
    """Compare sessions of the same task in pairs, in both orders, instead of scoring them one by one."""

    by: Text | None = None
    """What is compared: `run`, `model`, `agent`, `service`, `version`, `prompt`, a factor or attribute."""
    task: Text | None = None
    """The factor or attribute that names the task."""
    question: Text | None = None
    """What the judge is asked."""


class Metadata(_EvaluationModel):
    """What is said about single sessions."""

    session_metadata: list[SessionMetadata]


class EvaluationPlan(_EvaluationModel):
    """A whole plan."""

    batch_evaluation_name: Annotated[
        Annotated[str, AfterValidator(is_name)] | None,
        Flag(str, ("--name",), help="Name of the evaluation: letters, digits, underscores."),
    ] = None
    description: Annotated[
        Annotated[str, Field(max_length=200)] | None,
        Flag(str, help="Description of the evaluation."),
    ] = None
    evaluators: Annotated[list[Annotated[Text, unwrapped("evaluatorId")]], Field(min_length=1)] | None = None
    data_source_config: DataSource | None = None
    pairwise: PairwisePlan | None = None
    evaluation_metadata: Metadata | None = None
    ground_truth: list[Text] | Text | None = None
    output_config: dict[str, Anything] | None = None
    tags: dict[str, str] | None = None
    judge: Annotated[
        Text | None,
        Flag(str, help="Judge model, as provider/model."),
    ] = None
    votes: Annotated[
        Annotated[int, Field(ge=1, le=99)] | None,
        Flag(int, minimum=1, help="Judge calls per target; the majority label wins."),
    ] = None
    judge_parameters: dict[str, Anything] | None = None
    harmful_value: Annotated[float, Field(ge=0, le=1)] | None = None
    budget: Annotated[
        Usd | None,
        Flag(float, minimum=0, help="Budget of the evaluation in USD."),
    ] = None
    concurrency: Annotated[
        Annotated[int, Field(ge=1, le=10_000)] | None,
        Flag(int, minimum=1, help="Items in parallel (default: 8)."),
    ] = None
    timeout_sec: Annotated[
        Seconds | None,
        Flag(float, ("--timeout",), 0.001, "Time limit of one evaluator on one session, in seconds."),
    ] = None
    retries: Annotated[
        Annotated[int, Field(ge=0, le=1000)] | None,
        Flag(int, minimum=0, help="Retries of an item that fails."),
    ] = None
    max_sessions: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Flag(int, minimum=1, help="Maximum number of sessions, most recent first (default: all)."),
    ] = None
    prices: dict[str, ModelPrice] | None = None
    sandbox: PlanSandbox = None
    outage_patience: OutagePatience = None
    service: ProviderService = None
    resources: PlanResources = None


def read_evaluation(text: str | bytes, *, file: str) -> JsonObject:
    """Read a plan, YAML or JSON, as the document of a request; raises with everything wrong with it."""
    source = read_source(text, file=file)
    problems = list(check_shape(source, EvaluationPlan, sections_of(EvaluationPlan, "plan")).problems)
    problems = problems or list(_further(source))
    if problems:
        refuse(problems)
    return dict(source.data)


def _further(source: PlanSource) -> list[Problem]:
    where = source.data.get("dataSourceConfig")
    if not isinstance(where, Mapping):
        return []
    sources = [name for name, value in where.items() if value is not None]
    if len(sources) == 1:
        return []
    problem = "names no source of sessions" if not sources else f"names {len(sources)} sources of sessions"
    remedy = f"Give one of {', '.join(names_of(DataSource))}."
    return [source.problem(("dataSourceConfig",), f"`dataSourceConfig` {problem}", remedy)]
