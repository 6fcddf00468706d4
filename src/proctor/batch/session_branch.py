"""The branch of a recorded session: find it, merge it to its base branch, remove it.

Merging goes through the merge queue of the repository, and each try is recorded with the session.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from proctor import secrets
from proctor.context import Settings
from proctor.errors import UsageError
from proctor.item import RUNNING
from proctor.runner import MergeRequest, MergeResult
from proctor.store import Scope, Store
from proctor.store.tables import ItemRow, SessionRow
from proctor.workspace import merge_queue
from proctor.workspace.source_repository import SourceRepository, open_source


@dataclass(frozen=True, slots=True)
class SessionBranch:
    """A session that worked in a repository, with its item."""

    row: SessionRow
    item: ItemRow | None
    source: SourceRepository

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


def find_branch(store: Store, settings: Settings, session: str) -> SessionBranch:
    """The branch of a session by ID, prefix, name or branch. Raises for one without a repository. Blocks."""
    row = store.read.session(session)
    if not row["branch"]:
        raise UsageError(f"session {row['id']} has no branch\nOnly sessions of a repository have one.")
    items = store.read.item(row["itemId"] or "", row["runId"] or "") if row["itemId"] else []
    return SessionBranch(
        row, items[0] if items else None, open_source(Path(row["repo"]), settings.user_environment)
    )


async def merge_branch(
    store: Store,
    settings: Settings,
    branch: SessionBranch,
    now: Callable[[], datetime],
    *,
    message: str = "",
    onto: str = "",
    check: bool = True,
) -> MergeResult:
    """Squash a session onto its base branch, or `onto`, and fast-forward; never pushes.

    With `check`, the check of its item runs again if the base branch has moved. A cancelled merge leaves the
    base branch as it was, or merged.
    """
    request = MergeRequest(
        repo=branch.source.root,
        branch=branch.branch,
        base_branch=onto or branch.base_branch,
        message=message or branch.title,
    )
    merged = await merge_queue.merge(
        _with_check(request, settings, branch) if check else request,
        home=settings.home,
        environment=settings.user_environment,
        sandbox=settings.confinement,
    )
    for tried in merged.merges:
        await asyncio.to_thread(store.save_merge, branch.row["id"], tried, now())
    return merged


def merge_problem(merged: MergeResult) -> str:
    """Why a session was not merged; empty: it was."""
    end = merged.result
    if end.result == "success":
        return ""
    return f"conflicts in {', '.join(end.conflict_files)}" if end.conflict_files else end.error


def _with_check(request: MergeRequest, settings: Settings, branch: SessionBranch) -> MergeRequest:
    details = json.loads(branch.item["details"]) if branch.item else {}
    command = details.get("scriptCommand")
    if not branch.item or not command:
        return request
    visible = secrets.visible(
        settings.user_environment, named=secrets.referenced(map(str, details.get("env", {}).values()))
    )
    item_settings = json.loads(branch.item["settings"])
    return replace(
        request,
        check=command,
        environment=visible,
        attempt=f"merge-{branch.row['id']}",
        time_limit=item_settings.get("timeoutSec"),
        sandbox=item_settings.get("sandbox"),
    )


def sessions_to_clean(
    store: Store, moment: datetime, *, session: str = "", run: str = ""
) -> list[SessionRow]:
    """A session, or those of a run, oldest first. Raises while the run is running."""
    if session:
        rows = [store.read.session(session)]
    else:
        scope = Scope(run_id=store.read.batch(run, moment)["runId"])
        rows = store.read.sessions(scope, limit=1_000_000)
        rows.sort(key=lambda row: (row["startedAt"] or "", row["id"]))
    if any(row["status"] == RUNNING for row in rows) and _is_running(store, rows, moment):
        raise UsageError("the run is still running\nWait for it, or stop it:  proctor abort-run RUN")
    return rows


def _is_running(store: Store, rows: Sequence[SessionRow], moment: datetime) -> bool:
    return any(
        row["runId"] and store.read.batch(row["runId"], moment)["status"] == RUNNING for row in rows[:1]
    )


def clean_up_session(settings: Settings, row: SessionRow, *, branch: bool) -> str:
    """Remove the kept worktree of a session, and with `branch` its branch; what could not be removed. The
    record stays. Blocks."""
    if branch and row["branch"] and Path(row["repo"]).is_dir():
        source = open_source(Path(row["repo"]), settings.user_environment)
        if source.git.commit_of(f"refs/heads/{row['branch']}"):
            return merge_queue.clean_up(settings.home, row["id"], source, row["branch"])
    return merge_queue.clean_up(settings.home, row["id"])
