"""The evaluation job: recorded sessions × evaluators.

An evaluation is opened without items. Executing it discovers its sessions first, so that starting one takes
no longer than writing a row.
"""

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from proctor.context import ModelOptions, RunContext, WorkerContext
from proctor.document import Document
from proctor.errors import ProctorError, UsageError
from proctor.evaluator import FindEvaluator, FindReference
from proctor.evaluators.registry import EvaluatorRegistry
from proctor.formatting import plural
from proctor.job import (
    BatchEnd,
    Job,
    JobPlan,
    NewRun,
    PlanEstimate,
    PlanText,
    RunDocuments,
    RunHooks,
    RunView,
    Starter,
)
from proctor.jobs.evaluation import prepare
from proctor.jobs.evaluation.online import online_source
from proctor.jobs.evaluation.prepare import PendingEvaluationRequest, fill, find_evaluators, find_sessions
from proctor.jobs.evaluation.request import (
    JOB_NAME,
    EvaluationPlan,
    EvaluationRequest,
    GroundTruthIndex,
    concurrency_of,
    read_evaluation,
    reference_of,
)
from proctor.jobs.evaluation.results import load_report, report_document, results_view
from proctor.jobs.evaluation.state import (
    COMPLETED,
    NO_SESSIONS,
    SOURCE_FAILED,
    evaluation_of,
    fail_evaluation,
)
from proctor.json_values import JsonMap, JsonObject, as_map, as_sequence, without_none
from proctor.models import ModelRouter
from proctor.plan.validate import overrides_of
from proctor.store import RetrySelection, Store
from proctor.store.tables import BatchRow

NAMED_SESSIONS = 5
"""Sessions that a notice names."""


@dataclass(frozen=True, kw_only=True)
class EvaluationOverrides(overrides_of(EvaluationPlan)):  # type: ignore[misc]  # made from it
    """Members of a request that take precedence over the plan; None: as the plan says."""

    evaluators: list[str] | None = None
    client_token: str | None = None

    def members(self) -> JsonObject:
        """As members of a request."""
        own = {"evaluators": self.evaluators, "clientToken": self.client_token}
        return {**self.settings(), **without_none(own)}


@dataclass(frozen=True)
class EvaluationJobPlan(JobPlan):
    """The request of a new evaluation."""

    pending: PendingEvaluationRequest

    def columns(self) -> JsonMap:
        """What is known of its batch before it is opened."""
        return {"concurrency": concurrency_of(self.pending.document)}

    def begin_run(self, run_id: str, ctx: RunContext) -> NewRun:  # noqa: ARG002
        """Import the files of the plan and write the evaluation."""
        return NewRun(run_id=prepare.open_prepared(prepare.prepare(self.pending, ctx), ctx).id, plan=None)

    def model_options(self) -> ModelOptions:
        """How its judges are reached."""
        return self.pending.model_options()

    def check(self, models: ModelRouter, ctx: RunContext) -> tuple[str, ...]:
        """Check that evaluators, models, keys and prices exist."""
        return prepare.check(self.pending, models, ctx)

    def estimate(self, ctx: RunContext) -> PlanEstimate:
        """Items and cost, from the sessions there are now."""
        estimate = prepare.estimate(self.pending, ctx)
        return PlanEstimate(
            item_count=estimate.item_count,
            cost_usd=estimate.cost_usd,
            basis="Based on the length of the sessions.",
            workload=estimate.workload,
        )


@dataclass(frozen=True)
class OpenedEvaluationPlan(JobPlan):
    """An evaluation that was opened, from the store alone."""

    evaluation_id: str
    folder: Path
    """Where functions, programs and scripted models are found."""
    definitions: JsonMap
    """The evaluators as they were when it was opened."""
    document: JsonMap
    """The request."""

    def model_options(self) -> ModelOptions:
        """How its judges are reached."""
        return prepare.judge_options(self.folder, self.document)

    def check(self, models: ModelRouter, ctx: RunContext) -> tuple[str, ...]:
        """Look up its judges, whose limits decide how it is executed. What is wrong was found when it was
        opened, or costs only the items that need it."""
        with suppress(UsageError):
            request = request_of(ctx.store, self.evaluation_id, ctx)
            find_evaluators(request, self.find_evaluator(ctx), models)
        return ()

    def find_evaluator(self, ctx: RunContext) -> FindEvaluator:
        registry: EvaluatorRegistry = ctx.evaluators(
            self.folder, mark=self.evaluation_id, sandbox=self.model_options().sandbox
        )
        return registry.finder(self.definitions)


@dataclass(frozen=True, slots=True)
class EvaluationStart(RunHooks):
    """Discovers the sessions of an evaluation before its first item starts; keeps no files."""

    plan: OpenedEvaluationPlan
    ctx: RunContext

    def begin(self, *, resumed: bool) -> BatchEnd | None:  # noqa: ARG002
        """Add the items, once; an evaluation that found no sessions before looks for them again."""
        store, evaluation_id = self.ctx.store, self.plan.evaluation_id
        store.evaluations.record_failure(evaluation_id, "")
        try:
            has_sessions = self._discover()
        except ProctorError as error:
            fail_evaluation(store, evaluation_id, SOURCE_FAILED, str(error), self.ctx.now())
            raise
        if has_sessions:
            return None
        message = "No sessions were found for the given source."
        fail_evaluation(store, evaluation_id, NO_SESSIONS, message, self.ctx.now())
        return BatchEnd(status="aborted", reason=NO_SESSIONS)

    def ground_truth(self) -> FindReference:
        """What was expected of each session."""
        index = GroundTruthIndex(self.ctx.store.evaluations.metadata(self.plan.evaluation_id))
        return lambda session_id, scenario: reference_of(index.of(session_id, scenario))

    def _discover(self) -> bool:
        """Whether there are sessions; discovers them and adds the items if that was not done yet."""
        ctx, store, evaluation_id = self.ctx, self.ctx.store, self.plan.evaluation_id
        row = store.evaluations.row(evaluation_id, with_deleted=True)
        if row["discoveredAt"] is not None and row["sessionsFound"]:
            return True
        request = request_of(store, evaluation_id, ctx)
        with prepare.models_to_check(self.plan.model_options(), ctx) as models:
            evaluators = find_evaluators(request, self.plan.find_evaluator(ctx), models)
        for remark in prepare.sandbox_remarks(evaluators):
            ctx.note(remark)
        ground_truth = GroundTruthIndex(request.metadata)
        sessions = find_sessions(store, request, ctx.now())
        extension = fill(store, evaluation_id, request, sessions.ids, evaluators, ground_truth)
        number = len(sessions.ids)
        store.evaluations.record_discovery(
            evaluation_id, matched=number, ignored=sessions.ignored, now=ctx.now()
        )
        older = f", {sessions.ignored:,} older ones ignored" if sessions.ignored else ""
        ctx.info(f"{plural(number, 'session')} to evaluate{older}")
        if ground_truth.unused:
            named = ", ".join(sorted(ground_truth.unused)[:NAMED_SESSIONS])
            unused = plural(len(ground_truth.unused), "session")
            ctx.note(f"{unused} with ground truth not among them: {named}")
        if extension.reasons:
            ctx.info(f"{plural(extension.added, 'new item')} ({extension.reasons_text('item')})")
        return bool(sessions.ids)


def request_of(store: Store, evaluation_id: str, ctx: RunContext) -> EvaluationRequest:
    """The request of an evaluation, with its ground truth."""
    evaluation = evaluation_of(store, evaluation_id, ctx.now(), with_deleted=True)
    metadata = store.evaluations.metadata(evaluation.id)
    document = {**evaluation.document, "evaluationMetadata": {"sessionMetadata": metadata}}
    return EvaluationRequest.from_document(document, online_source=online_source(store))


def _refuse_relative_paths(document: JsonMap) -> None:
    paths = as_sequence(as_map(document, "dataSourceConfig", "files").get("paths"))
    truth = document.get("groundTruth")
    for path in map(str, (*paths, *([truth] if isinstance(truth, str) else as_sequence(truth)))):
        if not path.startswith(prepare.STORED) and not Path(path).expanduser().is_absolute():
            raise UsageError(
                f"{path} is a relative path, and a typed plan has no folder\n"
                "Write the absolute path, or start the file with `proctor evaluate start`."
            )


class EvaluationJob(Job):
    """`proctor evaluate`."""

    name = JOB_NAME
    title = "Evaluation of sessions"
    evaluates_sessions = True
    view = RunView(
        is_comparison=False,
        column_titles={"prompt": "Session", "model": "Judge", "factor:model": "evaluated model"},
        item_columns=(
            "status",
            "factor:evaluator",
            "prompt",
            "factor:scenario",
            "score:*",
            "model",
            "seconds",
            "costUsd",
        ),
        narrow_item_columns=("status", "factor:evaluator", "prompt"),
    )
    plan_model = EvaluationPlan
    overrides = EvaluationOverrides
    starters = (Starter(file="evaluation.yaml", title="Evaluation"),)

    def read(self, source: PlanText, overrides: EvaluationOverrides, ctx: RunContext) -> EvaluationJobPlan:
        document = read_evaluation(source.text, file=source.file) | overrides.members()
        if source.path is None:
            _refuse_relative_paths(document)
        text = source.text if isinstance(source.text, str) else source.text.decode(errors="replace")
        return EvaluationJobPlan(
            prepare.pending_request(
                document,
                folder=source.folder.resolve(),
                plan_path=source.stored_path,
                plan_text=text,
                store=ctx.store,
            )
        )

    def retried(self, run_id: str, retry: RetrySelection, ctx: RunContext) -> RetrySelection:
        """What was asked for. Refuses an evaluation that is complete and was not extended."""
        evaluation = evaluation_of(ctx.store, run_id, ctx.now(), with_deleted=True)
        row = ctx.store.evaluations.row(evaluation.id, with_deleted=True)
        if evaluation.state == COMPLETED and row["discoveredAt"] is not None and not retry.errors:
            raise UsageError(f"{evaluation.id} is {evaluation.state}\nThere is nothing left to do.")
        return retry

    def restore(self, batch: BatchRow, ctx: RunContext) -> OpenedEvaluationPlan:
        """An evaluation from the store alone."""
        row = ctx.store.evaluations.row(batch["runId"], with_deleted=True)
        folder = json.loads(batch["optionsJson"]).get("folder")
        return OpenedEvaluationPlan(
            row["id"],
            Path(folder or Path.cwd()),
            json.loads(row["definitionsJson"]),
            json.loads(row["requestJson"]),
        )

    def attempts(self, plan: JobPlan, run_id: str, ctx: RunContext, models: ModelRouter) -> WorkerContext:
        """Attempts find the evaluators as they were when the evaluation was opened."""
        assert isinstance(plan, OpenedEvaluationPlan)
        attempts = super().attempts(plan, run_id, ctx, models)
        return ctx.with_definitions(
            attempts,
            plan.definitions,
            folder=plan.folder,
            mark=plan.evaluation_id,
            sandbox=plan.model_options().sandbox,
        )

    def hooks(self, plan: JobPlan, run_id: str, ctx: RunContext) -> EvaluationStart:  # noqa: ARG002
        """Discovers the sessions before the first item starts."""
        assert isinstance(plan, OpenedEvaluationPlan)
        return EvaluationStart(plan, ctx)

    def documents(self, run_id: str, ctx: RunContext) -> RunDocuments:
        """A report with the results by evaluator; its page shows the lowest scores first."""

        def report() -> Document:
            evaluation = evaluation_of(ctx.store, run_id, ctx.now(), with_deleted=True)
            return report_document(load_report(ctx.store, evaluation, with_targets=True))

        return RunDocuments(report=report, results=partial(results_view, ctx.store, run_id))


JOB = EvaluationJob()
