"""Tasks: check them with their reference solutions, and mine them from the history of a repository."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from proctor.context import ModelOptions, RunContext
from proctor.jobs.benchmark.checking import TaskChecks, check_tasks
from proctor.model import Request
from proctor.models import ModelRouter
from proctor.secrets import visible
from proctor.tasks.history import HistoryMiner, MiningOptions, MiningResult, Progress, Rewrite
from proctor.tasks.review import (
    PAGE,
    ReviewedTask,
    apply_decisions,
    read_review,
    read_saved,
    review_page,
)

__all__ = ["ReviewedTask", "TaskChecks", "check_tasks", "review"]


def review(
    folder: Path,
    *,
    decisions: Path | None = None,
    accept: Sequence[str] = (),
    reject: Sequence[str] = (),
) -> list[ReviewedTask]:
    """The tasks of a mined set with the decisions about them, after those that are given; writes the page.

    `decisions` is a file that the page has saved; `accept` and `reject` are names of tasks.
    """
    named = read_saved(decisions) if decisions else {}
    for names, word in ((accept, "accepted"), (reject, "rejected")):
        named |= {name: {**named.get(name, {}), "decision": word} for name in names}
    tasks = apply_decisions(folder, named) if named else read_review(folder)
    (folder / PAGE).write_text(review_page(folder), encoding="utf-8")
    return tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Mining:
    """The candidates in a repository's history, on their way to tasks."""

    miner: HistoryMiner
    models: ModelRouter | None
    """Those that rewrite task descriptions; None: none do."""
    folder: Path
    """Of the tasks."""

    async def mine(self, report: Progress | None = None) -> MiningResult:
        """Validate the candidates and write the tasks, and the report `report.html`."""
        # Loads templates, which a preview does without.
        from proctor.tasks.history_page import history_page

        try:
            return await self.miner.mine(report)
        finally:
            # Also of what an interrupted run has found.
            result = self.miner.result()
            (self.folder / "report.html").write_text(history_page(result), encoding="utf-8")
            if result.tasks:
                (self.folder / PAGE).write_text(review_page(self.folder), encoding="utf-8")
            if self.models:
                await self.models.close()


def prepare_mining(ctx: RunContext, options: MiningOptions, *, statement_model: str = "") -> Mining:
    """Find the candidates in a repository's history; `statement_model` rewrites task descriptions."""
    settings = ctx.settings
    models = ctx.models(ModelOptions(folders=(Path.cwd(),))) if statement_model else None
    miner = HistoryMiner(
        options,
        home=settings.home,
        environment=visible(settings.user_environment, named={"HOME"}),
        sandbox=settings.confinement,
        now=datetime.now(UTC),
        rewrite=_rewriter(models, statement_model) if models else None,
    )
    return Mining(miner=miner, models=models, folder=options.out)


def _rewriter(models: ModelRouter, model: str) -> Rewrite:
    models.check(model)

    async def rewrite(prompt: str) -> str:
        answer = await models.answer(Request(model=model, messages=[{"role": "user", "content": prompt}]))
        return answer.text

    return rewrite
