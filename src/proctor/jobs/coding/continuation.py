"""A run of one item that continues an earlier coding session, with the comments of its reviewer.

The item has the agent, model and settings of the earlier one, starts from the last commit of its branch, and
is merged to the same base branch. It is an item of its own in a run of its own: the results of the earlier
run stay as they are.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proctor.batch.preflight import PreflightContext
from proctor.context import ModelOptions, RunContext
from proctor.errors import UsageError
from proctor.item import Item
from proctor.job import JobPlan
from proctor.jobs.coding.job import ItemCheck
from proctor.json_values import JsonObject
from proctor.models import ModelRouter
from proctor.store.tables import BatchRow, ItemRow, SessionRow

_NOT_CONTINUED = ("mergeOnPass",)
"""Settings of the earlier item that do not apply: whoever reviews it decides."""


@dataclass(frozen=True)
class ContinuationPlan(JobPlan):
    """The plan of a continuation."""

    item: Item
    options: JsonObject
    """Those of the earlier run."""
    folders: tuple[Path, ...]
    budget_usd: float | None = None

    @property
    def item_count(self) -> int:
        """Number of items."""
        return 1

    def model_options(self) -> ModelOptions:
        """How its models are reached: as in the earlier run, but nothing is replayed or recorded."""
        return replace(ModelOptions.restored(self.options, self.folders), record=None, replay=None)

    def columns(self) -> Mapping[str, object]:
        """The columns of the batch row."""
        options = {**self.options, "record": None, "replay": None}
        return {
            "planPath": "",
            "planText": "",
            "planDigest": self.item.digest,
            "defaultsJson": "{}",
            "optionsJson": json.dumps(options, ensure_ascii=False),
            "concurrency": 1,
            "seed": None,
            "budgetUsd": self.budget_usd,
        }

    def check(self, models: ModelRouter, ctx: RunContext) -> Sequence[str]:
        """The agent, its program, model and key must still be there."""
        context = PreflightContext(
            environment=ctx.settings.user_environment,
            find_agent=ctx.find_agent,
            models=models,
            sandbox=ctx.settings.confinement,
        )
        check = ItemCheck(context, self.budget_usd is not None, self.model_options().agent_models)
        if problems := [f"{problem}\n{remedy}".rstrip() for _, problem, remedy in check.at(self.item)]:
            raise UsageError("\n\n".join(problems))
        return sorted(check.remarks)

    def items(self) -> Iterator[Item]:
        """The item."""
        yield self.item


def continuation(
    session: SessionRow, item: ItemRow, batch: BatchRow, *, prompt: str, tip: str, budget_usd: float | None
) -> ContinuationPlan:
    """The plan that continues a session from `tip`, the last commit of its branch, with a new prompt."""
    settings = {
        name: value for name, value in json.loads(item["settings"]).items() if name not in _NOT_CONTINUED
    }
    options: JsonObject = json.loads(batch["optionsJson"] or "{}")
    folder = Path(str(options.get("folder") or Path(batch["planPath"]).parent))
    return ContinuationPlan(
        item=Item(
            runner=item["runner"],
            agent=item["agent"],
            model=item["model"],
            prompt=prompt,
            details={**json.loads(item["details"]), "continues": session["id"], "startCommit": tip},
            settings=settings,
            factors=json.loads(item["factors"]),
        ),
        options={**options, "folder": str(folder)},
        folders=(folder, Path.cwd()),
        budget_usd=budget_usd,
    )
