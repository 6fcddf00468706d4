"""What the plan of an evaluation may say, and how its parts are spoken of.

The members are those of the service's Start operation, and our own beside them.

Knows nothing of stores or evaluators.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from proctor.errors import Problem
from proctor.plan import ground_truth
from proctor.plan.ground_truth import SessionMetadata, unwrapped
from proctor.plan.reading import read_source
from proctor.plan.schema import Anything, ModelPrice, Seconds, Text, Usd, names_of
from proctor.plan.source import Path, Source, refuse
from proctor.plan.validate import Part, check_shape

NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,47}")


def is_name(name: str) -> str:
    """A job's name, or a `ValueError` that says what one looks like."""
    if not NAME.fullmatch(name):
        raise ValueError("should be a letter, then up to 47 letters, digits or underscores")
    return name


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class TimeRange(_Part):
    """From a moment up to another, which no longer counts."""

    start_time: Text | float | None = None
    end_time: Text | float | None = None


class SessionTraces(_Part):
    """Some traces of one session."""

    session_id: Text
    trace_ids: Annotated[list[Text], Field(min_length=1)]


class FilterConfig(_Part):
    """Which sessions of a log group."""

    session_ids: list[Text] | None = None
    time_range: TimeRange | None = None
    session_trace_ids: list[SessionTraces] | None = None


class LogGroupSource(_Part):
    """Sessions that arrived by telemetry."""

    service_names: list[Text] | None = None
    log_group_names: list[Text] | None = None
    log_group_name_prefixes: list[Text] | None = None
    filter_config: FilterConfig | None = None


class StoreSource(_Part):
    """Sessions of this store."""

    run_ids: list[Text] | None = None
    jobs: list[Text] | None = None
    roles: list[Text] | None = None
    models: list[Text] | None = None
    statuses: list[Text] | None = None
    session_ids: list[Text] | None = None
    time_range: TimeRange | None = None


class FileSource(_Part):
    """Records to be imported first."""

    paths: Annotated[list[Text], Field(min_length=1)]
    kind: Text | None = None


class DataSource(_Part):
    """Where the sessions are: one of these."""

    cloud_watch_logs: LogGroupSource | None = None
    store: StoreSource | None = None
    files: FileSource | None = None


class Metadata(_Part):
    """What is said about single sessions."""

    session_metadata: list[SessionMetadata]


class EvaluationPlan(_Part):
    """A whole plan."""

    batch_evaluation_name: Annotated[str, AfterValidator(is_name)] | None = None
    description: Annotated[str, Field(max_length=200)] | None = None
    evaluators: Annotated[list[Annotated[Text, unwrapped("evaluatorId")]], Field(min_length=1)] | None = None
    data_source_config: DataSource | None = None
    evaluation_metadata: Metadata | None = None
    ground_truth: list[Text] | Text | None = None
    output_config: dict[str, Anything] | None = None
    tags: dict[str, str] | None = None
    judge: Text | None = None
    votes: Annotated[int, Field(ge=1, le=99)] | None = None
    judge_parameters: dict[str, Anything] | None = None
    harmful_value: Annotated[float, Field(ge=0, le=1)] | None = None
    budget: Usd | None = None
    concurrency: Annotated[int, Field(ge=1, le=10_000)] | None = None
    timeout_sec: Seconds | None = None
    retries: Annotated[int, Field(ge=0, le=1000)] | None = None
    max_sessions: Annotated[int, Field(ge=1)] | None = None
    prices: dict[str, ModelPrice] | None = None


def read_evaluation(text: str | bytes, *, file: str) -> dict[str, Any]:
    """Read a plan, YAML or JSON, as the document of a request; raises with everything wrong with it."""
    source = read_source(text, file=file)
    problems = [*check_shape(source, EvaluationPlan, _vocabulary).problems]
    problems = problems or list(_further(source))
    if problems:
        refuse(problems)
    return dict(source.data)


def _further(source: Source) -> list[Problem]:
    where = source.data.get("dataSourceConfig")
    if not isinstance(where, Mapping):
        return []
    given = [name for name, value in where.items() if value is not None]
    if len(given) == 1:
        return []
    said = "names no source of sessions" if not given else f"names {len(given)} sources of sessions"
    remedy = f"Give one of {', '.join(names_of(DataSource))}."
    return [source.problem(("dataSourceConfig",), f"`dataSourceConfig` {said}", remedy)]


def _vocabulary(path: Path) -> Part | None:
    match path:
        case ():
            return Part("the plan", "A plan", names_of(EvaluationPlan))
        case ("dataSourceConfig",):
            return Part("`dataSourceConfig`", "`dataSourceConfig`", names_of(DataSource))
        case ("dataSourceConfig", "cloudWatchLogs"):
            return Part("`cloudWatchLogs`", "`cloudWatchLogs`", names_of(LogGroupSource))
        case ("dataSourceConfig", "cloudWatchLogs", "filterConfig"):
            return Part("`filterConfig`", "`filterConfig`", names_of(FilterConfig))
        case ("dataSourceConfig", "store"):
            return Part("`store`", "`store`", names_of(StoreSource))
        case ("dataSourceConfig", "files"):
            return Part("`files`", "`files`", names_of(FileSource))
        case ("dataSourceConfig", *_, "timeRange"):
            return Part("`timeRange`", "`timeRange`", names_of(TimeRange))
        case ("evaluationMetadata",):
            return Part("`evaluationMetadata`", "`evaluationMetadata`", names_of(Metadata))
        case ("prices", str(model)):
            return Part(f"the price of `{model}`", "A price", names_of(ModelPrice))
    return ground_truth.vocabulary(path, root=("evaluationMetadata",)) if len(path) > 1 else None
