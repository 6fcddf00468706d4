"""The coding job: repositories × prompts × agents, or plain prompts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from proctor.batch.preflight import PreflightContext
from proctor.context import ModelOptions, RunContext
from proctor.errors import PlanError
from proctor.item import Item
from proctor.job import Job, JobPlan, PlanText, Starter, StoredPlan, top_level_keys
from proctor.jobs.coding.plan import NO_OVERRIDES, CodingPlan, Overrides, read_plan
from proctor.jobs.coding.preflight import inspect
from proctor.models import ModelRouter


@dataclass(frozen=True)
class CodingJobPlan(JobPlan):
    """A coding plan with its overrides."""

    plan: CodingPlan
    overrides: Overrides
    path: str
    """Absolute path of the plan file; empty: there is none."""
    folders: tuple[Path, ...]
    """Where its scripted models are looked up."""

    @property
    def run_id(self) -> str:
        """The run id the plan sets; empty: none."""
        return self.plan.run_id or ""

    @property
    def item_count(self) -> int:
        """Number of items, without making them."""
        return self.plan.item_count(self.overrides)

    @property
    def concurrency(self) -> int:
        """Maximum items in parallel."""
        return self.plan.concurrency(self.overrides)

    def model_options(self) -> ModelOptions:
        """How its models are reached."""
        return ModelOptions(
            folders=self.folders,
            prices=self.plan.prices,
            record=self.plan.record,
            replay=self.plan.replay,
        )

    def columns(self) -> Mapping[str, object]:
        """The columns of the batch row that record the plan."""
        options = {
            "notify": self.plan.notify,
            "prices": self.plan.prices,
            "record": self.plan.record,
            "replay": self.plan.replay,
            "folder": str(self.plan.folder),
        }
        return {
            "planPath": self.path,
            "planText": self.plan.text,
            "planDigest": self.plan.digest,
            "defaultsJson": json.dumps(self.plan.defaults_json(self.overrides), ensure_ascii=False),
            "optionsJson": json.dumps(options, ensure_ascii=False),
            "concurrency": self.concurrency,
            "seed": self.plan.seed,
            "budgetUsd": self.plan.budget(self.overrides),
        }

    def is_unchanged(self, batch: Mapping[str, Any]) -> bool:
        """Whether a run was made from exactly this plan."""
        return batch["planDigest"] == self.plan.digest and self.overrides == NO_OVERRIDES

    def check(self, models: ModelRouter, ctx: RunContext) -> Sequence[str]:
        """Check that repositories, agents, programs, models, keys and prices exist."""
        report = inspect(
            self.plan,
            self.overrides,
            PreflightContext(
                environment=ctx.settings.user_environment, find_agent=ctx.find_agent, models=models
            ),
        )
        if report.problems:
            raise PlanError(report.problems)
        return report.remarks

    def items(self) -> Iterator[Item]:
        """The items in plan order."""
        return self.plan.items(self.overrides)


class CodingJob(Job):
    """`proctor batch`."""

    name = "coding"
    command = "batch"
    title = "Coding sessions or prompts"
    overrides = Overrides
    override_aliases: ClassVar = {"budget": "budget_usd"}
    starters = (
        Starter(file="coding.yaml", title="Coding sessions"),
        Starter(file="prompts.yaml", title="Prompts with checks"),
        Starter(file="models.yaml", title="Model comparison"),
    )

    def recognizes(self, text: str) -> int:
        """How many top-level keys of a coding plan a text has."""
        from proctor.jobs.coding.schema import CodingPlanFile
        from proctor.plan.validate import names_of

        return len(top_level_keys(text) & set(names_of(CodingPlanFile)))

    def schema(self) -> Mapping[str, object]:
        """JSON Schema of a coding plan."""
        from proctor.jobs.coding.schema import json_schema

        return json_schema()

    def read(self, source: PlanText, overrides: Overrides, ctx: RunContext) -> CodingJobPlan:
        """Read and check a coding plan."""
        plan = read_plan(source.text, file=source.file, folder=source.folder, overrides=overrides)
        folders = ctx.settings.folders or (source.folder,)
        return CodingJobPlan(plan, overrides, source.stored_path, folders)

    def restore(self, batch: Mapping[str, Any], ctx: RunContext) -> JobPlan:  # noqa: ARG002
        """The plan of a run, from the store alone."""
        options = json.loads(batch["optionsJson"])
        folder = Path(options.get("folder") or Path(batch["planPath"]).parent)
        return StoredPlan(
            options=ModelOptions(
                folders=(folder, Path.cwd()),
                prices=options.get("prices"),
                record=options.get("record"),
                replay=options.get("replay"),
            )
        )

    def earlier(self, plan: JobPlan, ctx: RunContext) -> str | None:
        """The run the plan names, or the latest run of the same plan."""
        assert isinstance(plan, CodingJobPlan)
        if plan.run_id:
            return str(ctx.store.read.batch(plan.run_id, ctx.now())["runId"])
        return ctx.store.read.batch_of_plan(plan.path, plan.plan.digest)


JOB = CodingJob()
