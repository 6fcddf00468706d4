"""What a session changed, and what becomes of its branch.

The branch is looked at here; merging and discarding are done by the command that also does it by hand, in
a process that a closed page or server does not tear apart.

Knows nothing of pages.
"""

import asyncio
import secrets
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from proctor.errors import NotFound, ProctorError, UsageError
from proctor.web.answers import ERRORS
from proctor.web.launching import launch
from proctor.web.session_document import find_session
from proctor.web.session_shapes import BranchAnswer, DiffAnswer
from proctor.web.shapes import SessionId
from proctor.web.site import Site
from proctor.web.steering import POLL_SECONDS, problem_in
from proctor.workspace import merging
from proctor.workspace.source import Source, open_source

SHOWN_CHARACTERS = 1_000_000
"""Of a patch; more is nothing to read in a page, and can be had as a file."""


def router(site: Site) -> APIRouter:
    """The routes about the branch of a session."""
    made = APIRouter(prefix="/api/sessions", tags=["sessions"], responses=ERRORS)

    @made.get(
        "/{session_id}/diff",
        summary="What a session changed",
        response_model=DiffAnswer,
        responses={200: {"content": {"text/x-patch": {}}}},
    )
    def diff(
        session_id: SessionId,
        format_: Annotated[
            Literal["json", "patch"], Query(alias="format", description="`patch` is the patch itself, whole.")
        ] = "json",
    ) -> Any:
        """As a patch against what it began from; also after it was merged, as long as git knows it."""
        row = find_session(site, session_id)
        if format_ == "patch":
            headers = {"content-disposition": f'attachment; filename="{row["id"]}.patch"'}
            text = _patch_or_refusal(site, row)
            return Response(text.encode("utf-8", "replace"), media_type="text/x-patch", headers=headers)
        return _diff(site, row)

    @made.post("/{session_id}/merge", summary="Bring a session's work onto its base branch")
    async def merge(session_id: SessionId) -> BranchAnswer:
        """Squashed, checked again if the base branch has moved, fast-forwarded. Never pushes."""
        id_ = await asyncio.to_thread(_with_branch, site, session_id)
        done = await _commanded(site, ["sessions", "merge", id_, "--json"], f"merge-{id_}")
        return BranchAnswer(session_id=id_, result=done.get("result", "error"), message=done.get("error", ""))

    @made.post("/{session_id}/discard", summary="Remove a session's branch and work tree")
    async def discard(session_id: SessionId) -> BranchAnswer:
        """The record of the session stays."""
        id_ = await asyncio.to_thread(_with_branch, site, session_id)
        words = ["sessions", "cleanup", id_, "--branches", "--yes", "--json"]
        done = await _commanded(site, words, f"discard-{id_}")
        return BranchAnswer(session_id=id_, result="discarded", message="; ".join(done.get("kept", [])))

    return made


def _with_branch(site: Site, session_id: str) -> str:
    row = find_session(site, session_id)
    if not row["branch"]:
        raise UsageError(f"session {row['id']} has no branch\nOnly sessions of a repository have one.")
    return str(row["id"])


async def _commanded(site: Site, words: list[str], name: str) -> dict[str, Any]:
    """Have a command do it, whoever goes away meanwhile; its document."""
    launched = await asyncio.to_thread(launch, site, words, f"{name}-{secrets.token_hex(3)}")
    while launched.process.poll() is None:
        await asyncio.sleep(POLL_SECONDS)
    document = launched.document
    if set(document) <= {"error", "problems"}:
        raise UsageError(str(document.get("error") or problem_in(launched.said)))
    return document


def _patch_or_refusal(site: Site, row: dict[str, Any]) -> str:
    _with_branch(site, row["id"])
    try:
        return _patch(site, row)[0]
    except (ProctorError, OSError) as error:
        raise NotFound(f"the changes of {row['id']} cannot be read: {error}") from error


def _diff(site: Site, row: dict[str, Any]) -> DiffAnswer:
    about = {"branch": row["branch"], "base_branch": row["baseBranch"]}
    if not row["branch"]:
        return DiffAnswer(**about, state="none", diff="", is_cut=False, files=0)
    try:
        text, is_there = _patch(site, row)
    except (ProctorError, OSError) as error:
        problem = str(error).partition("\n")[0]
        return DiffAnswer(**about, state="unavailable", diff="", is_cut=False, files=0, problem=problem)
    merges = site.store.read.of_session("merge_history", row["id"])
    is_merged = any(merge["result"] == "success" for merge in merges)
    return DiffAnswer(
        **about,
        state="merged" if is_merged else "published" if is_there else "gone",
        diff=text[:SHOWN_CHARACTERS],
        is_cut=len(text) > SHOWN_CHARACTERS,
        files=text.count("\ndiff --git ") + text.startswith("diff --git "),
    )


def _patch(site: Site, row: dict[str, Any]) -> tuple[str, bool]:
    """The patch, and whether the branch is still there."""
    source = open_source(Path(row["repo"]), site.environment)
    if source.git.commit_of(f"refs/heads/{row['branch']}"):
        return merging.diff(source, row["branch"], row["baseBranch"]), True
    return _from_commits(site, source, row), False


def _from_commits(site: Site, source: Source, row: dict[str, Any]) -> str:
    """What the branch held, from its last commit: git keeps that for some weeks."""
    steps = site.store.read.query(
        'SELECT "commitSha" FROM "iterations" WHERE "sessionId" = ? AND "commitSha" <> \'\' '
        'ORDER BY "step" DESC LIMIT 1',
        (row["id"],),
    )
    tip = source.git.commit_of(steps[0]["commitSha"]) if steps else ""
    base = source.git.commit_of(row["baseSha"]) if row["baseSha"] else ""
    if not tip or not base:
        return ""
    return source.git("diff", "--no-ext-diff", "--no-textconv", "--no-color", base, tip, "--")
