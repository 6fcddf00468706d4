"""The imported job: runs of outcomes that other tools recorded. They have no plan and execute nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from proctor.context import RunContext
from proctor.errors import UsageError
from proctor.job import Job, JobPlan, PlanText
from proctor.store import RetrySelection
from proctor.store.tables import IMPORTED

CANNOT_RESUME = "an imported run cannot be resumed; import again"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOverrides:
    """Imported runs have no settings."""


class ImportedJob(Job):
    """Runs made by `proctor import … --run NAME`."""

    name: ClassVar[str] = IMPORTED
    title: ClassVar[str] = "Imported results"
    overrides: ClassVar[type] = NoOverrides

    def read(self, source: PlanText, overrides: Any, ctx: RunContext) -> JobPlan:  # noqa: ARG002
        """Raise: there are no plans."""
        raise UsageError("an imported run has no plan\nImport results: proctor import --help")

    def restore(self, batch: Mapping[str, Any], ctx: RunContext) -> JobPlan:  # noqa: ARG002
        """Raise: there is nothing to execute."""
        raise UsageError(CANNOT_RESUME)

    def retried(self, run_id: str, retry: RetrySelection, ctx: RunContext) -> RetrySelection:  # noqa: ARG002
        """Raise: there is nothing to execute."""
        raise UsageError(CANNOT_RESUME)


JOB = ImportedJob()
