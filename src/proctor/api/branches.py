"""The branch of a recorded session: compare it, merge it to its base branch, remove it.

Merging goes through the merge queue of the repository, and each try is recorded with the session.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from proctor import secrets
from proctor.context import RunContext, Settings
from proctor.errors import UsageError
from proctor.item import RUNNING
from proctor.json_values import CamelJson
from proctor.runner import MergeRequest, MergeResult
from proctor.store import Scope, batches
from proctor.store.tables import ItemRow, SessionRow
from proctor.workspace import merge_queue
from proctor.workspace.source_repository import SourceRepository, open_source


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchChange(CamelJson):
    """What came of merging or removing the branch of a session."""

    session_id: str
    result: str
    """`success`, `conflict` or `error`; or `discarded`."""
    message: str = ""
    """Why it was not merged, or what could not be removed; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBranch:
    """A session that worked in a repository, with its item."""

    ctx: RunContext
    settings: Settings
    row: SessionRow
    item: ItemRow | None
    source: SourceRepository

    @property
    def session_id(self) -> str:
        """The whole ID of its session."""
        return self.row["id"]

    @property
    def branch(self) -> str:
        """Its branch in the repository."""
        return self.row["branch"]

    @property
    def base_branch(self) -> str:
        """The branch it began from."""
        return self.row["baseBranch"]

    @property
    def title(self) -> str:
        """Default commit message of a squash."""
        first = (self.item["prompt"] if self.item else "").strip().splitlines()[:1]
        return f"{(first or ['A session'])[0][:72]}\n\n{self.row['name']}"

    def diff(self, *flags: str) -> str:
        """The changes as a patch; `flags` of git, such as `--stat`."""
        return merge_queue.diff(self.source, self.branch, self.base_branch, *flags)

    def log(self) -> str:
        """The commits, newest first."""
        return merge_queue.log(self.source, self.branch, self.base_branch)

    def squash(self, message: str = "") -> str:
        """Make one commit of all; return its SHA."""
        return merge_queue.squash(self.source, self.branch, self.base_branch, message or self.title)

    async def rebase(self, onto: str = "") -> tuple[str, tuple[str, ...]]:
        """Rebase onto a branch (empty: the base branch); return the new tip, and the files with conflicts."""
        return await merge_queue.rebase(
            self.source, self.branch, onto or self.base_branch, self.settings.home
        )

    async def merge(self, *, message: str = "", onto: str = "", check: bool = True) -> MergeResult:
        """Squash onto the base branch, or `onto`, and fast-forward; never pushes.

        With `check`, the check of its item runs again if the base branch has moved. A cancelled merge leaves
        the base branch as it was, or merged.
        """
        request = MergeRequest(
            repo=self.source.root,
            branch=self.branch,
            base_branch=onto or self.base_branch,
            message=message or self.title,
        )
        merged = await merge_queue.merge(
            self._with_check(request) if check else request,
            home=self.settings.home,
            environment=self.settings.user_environment,
            sandbox=self.settings.confinement,
        )
        for tried in merged.merges:
            await asyncio.to_thread(
                self.ctx.store.change, batches.save_merge, self.session_id, tried, self.ctx.now()
            )
        return merged

    def _with_check(self, request: MergeRequest) -> MergeRequest:
        details = json.loads(self.item["details"]) if self.item else {}
        command = details.get("scriptCommand")
        if not self.item or not command:
            return request
        visible = secrets.visible(
            self.settings.user_environment,
            named=secrets.referenced(map(str, details.get("env", {}).values())),
        )
        item_settings = json.loads(self.item["settings"])
        return replace(
            request,
            check=command,
            environment=visible,
            attempt=f"merge-{self.session_id}",
            time_limit=item_settings.get("timeoutSec"),
            sandbox=item_settings.get("sandbox"),
        )


def find_branch(ctx: RunContext, session: str, settings: Settings | None = None) -> SessionBranch:
    """The branch of a session by ID, prefix, name or branch. Raises for one without a repository. Blocks.

    `settings`: those of the programs that it starts, if not the context's.
    """
    settings, read = settings or ctx.settings, ctx.store.read
    row = read.session(session)
    if not row["branch"]:
        raise UsageError(f"session {row['id']} has no branch\nOnly sessions of a repository have one.")
    items = read.item(row["itemId"] or "", row["runId"] or "") if row["itemId"] else []
    source = open_source(Path(row["repo"]), settings.user_environment)
    return SessionBranch(ctx=ctx, settings=settings, row=row, item=items[0] if items else None, source=source)


def merge_problem(merged: MergeResult) -> str:
    """Why a session was not merged; empty: it was."""
    end = merged.result
    if end.result == "success":
        return ""
    return f"conflicts in {', '.join(end.conflict_files)}" if end.conflict_files else end.error


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUp:
    """Sessions that were cleaned up."""

    session_ids: Sequence[str]
    problems: Sequence[str]
    """What could not be removed."""


def clean_up(
    ctx: RunContext,
    *,
    session: str = "",
    run: str = "",
    branches: bool = False,
    is_sure: Callable[[int], bool] = lambda _: True,
    settings: Settings | None = None,
) -> CleanUp | None:
    """Remove the kept worktrees of a session, or of those of a run, and with `branches` their branches.

    Their records stay. Raises while the run is running. Blocks. `is_sure` is asked with the number of
    sessions before branches are removed; None: it was not.
    """
    rows = _sessions_to_clean(ctx, session=session, run=run)
    if branches and not is_sure(len(rows)):
        return None
    problems = [_clean_up_session(settings or ctx.settings, row, branch=branches) for row in rows]
    return CleanUp(session_ids=[row["id"] for row in rows], problems=list(filter(None, problems)))


def _sessions_to_clean(ctx: RunContext, *, session: str, run: str) -> list[SessionRow]:
    """A session, or those of a run, oldest first."""
    read = ctx.store.read
    if session:
        rows = [read.session(session)]
    else:
        scope = Scope(run_id=read.batch(run, ctx.now())["runId"])
        rows = read.sessions(scope, limit=1_000_000)
        rows.sort(key=lambda row: (row["startedAt"] or "", row["id"]))
    run_id = rows[0]["runId"] if any(row["status"] == RUNNING for row in rows) else ""
    if run_id and read.batch(run_id, ctx.now())["status"] == RUNNING:
        raise UsageError("the run is still running\nWait for it, or stop it:  proctor abort-run RUN")
    return rows


def _clean_up_session(settings: Settings, row: SessionRow, *, branch: bool) -> str:
    """Remove the kept worktree of a session, and with `branch` its branch; what could not be removed."""
    if branch and row["branch"] and Path(row["repo"]).is_dir():
        source = open_source(Path(row["repo"]), settings.user_environment)
        if source.git.commit_of(f"refs/heads/{row['branch']}"):
            return merge_queue.clean_up(settings.home, row["id"], source, row["branch"])
    return merge_queue.clean_up(settings.home, row["id"])
