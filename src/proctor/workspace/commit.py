"""Commit the changes of an agent to the session's branch.

An agent may commit or not, change branches, stop in the middle of a rebase, leave repositories in the
worktree, or remove the worktree's `.git` link. In every case, all files that are not ignored are committed,
the agent's own commits stay, and the session's branch points to the result.

The commit is made in the control repository, from the files and what `agent_repository` takes over.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from proctor.errors import ProctorError, WorkspaceError
from proctor.git import Changes, GitError
from proctor.workspace import beneath
from proctor.workspace.agent_repository import AgentState, renew_repository, take_over
from proctor.workspace.nested_repositories import (
    nested_repositories_hidden,
    patch_of,
    undo_submodule_changes,
)
from proctor.workspace.source_repository import SourceRepository
from proctor.workspace.tree_git import remove_locks
from proctor.workspace.user_filters import clean_staged, restore_filtered
from proctor.workspace.worktree import Worktree, make_control, publish, reopen_tree, settle


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The committed changes of an agent."""

    sha: str
    """Last commit of the session branch; empty when nothing changed."""
    changes: Changes
    notes: tuple[str, ...] = ()
    """Remarks on the state of the worktree, for the session's record."""
    submodules: tuple[str, ...] = ()
    """Submodules with changes of the agent, which are not part of the commit."""


def commit_changes(tree: Worktree, message: str) -> Committed:
    """Commit all changes; the worktree is then clean and on the session's branch."""
    try:
        # Of a git that was killed: nobody else uses the control repository.
        remove_locks(tree.control)
        notes = settle(tree)
        agent = take_over(tree)
        sha, more = _commit(tree, message, agent)
        changes = tree.git.changes(tree.base_sha, sha)
        renew_repository(tree, sha, (agent.head, agent.tip))
        submodules = undo_submodule_changes(tree)
    except (ProctorError, OSError) as error:
        raise WorkspaceError(f"committing the agent's changes: {error}", reason="workspace_broken") from error
    return Committed(
        sha="" if sha == tree.base_sha else sha,
        changes=changes,
        notes=(*notes, *agent.notes, *more, *_other_branches(agent), *_outside(tree, submodules)),
        submodules=submodules,
    )


def rescue(path: Path, source: SourceRepository, branch: str, base_sha: str) -> Worktree:
    """Save the work of an attempt whose process was killed: commit it, and copy its branch.

    `path` is the folder of the session.
    """
    tree = reopen_tree(path, source, branch, base_sha)
    # git writes the index once all files are there: without one, the files are not the agent's work.
    is_filled = (tree.control / "index").is_file()
    if not (tree.control / "HEAD").is_file():
        # Made by an earlier version, or killed in the first moment.
        make_control(tree)
        is_filled = beneath.open_file(tree.place, tree.inside(tree.admin) / "index") is not None
        if is_filled:
            settle(tree)
            tree.git("read-tree", tree.base_sha)
    if is_filled:
        commit_changes(tree, f"Interrupted attempt\n\n{branch}\n")
    publish(tree)
    return tree


def _commit(tree: Worktree, message: str, agent: AgentState) -> tuple[str, list[str]]:
    git = tree.git
    tip, head, interrupted = agent.tip, agent.head, agent.interrupted
    notes = ["the agent stopped in the middle of a merge or rebase"] if interrupted else []
    written = _write_tree(tree, agent)
    clean = written == git.line("rev-parse", f"{head}^{{tree}}")
    behind = head != tip and git.is_ancestor(head, tip)
    if head != tip:
        where = agent.head_name or "no branch"
        notes.append(f"the agent left its tree on {where}, not on the session's branch")
    if behind and clean and not interrupted:
        # It committed to the session's branch and then checked out another commit.
        sha = tip
    else:
        loose = dict.fromkeys((*interrupted, tip))
        others = [other for other in loose if other != head and not git.is_ancestor(other, head)]
        sha = head if clean and not others else git.commit_tree(written, (head, *others), message)
    git("reset", "--hard" if sha == tip and behind else "--mixed", "--quiet", sha)
    if sha == tip and behind:
        restore_filtered(tree)
    return sha, notes


def _write_tree(tree: Worktree, agent: AgentState) -> str:
    """Write all files that are not ignored as a tree object."""
    git = tree.git
    try:
        # Keeps what the index knows about files that are the same in this commit.
        git("read-tree", "-m", agent.head)
        return _stage(tree, agent)
    except GitError:
        # The agent may have made files unreadable: start from the commit.
        remove_locks(tree.control)
        (tree.control / "index").unlink(missing_ok=True)
        for entry in beneath.entries(tree.place, tree.folder.name):
            entry.allow(0o700 if entry.is_folder else 0o600)
        settle(tree)
        git("read-tree", agent.head)
        return _stage(tree, agent, keep_going=True)


def _stage(tree: Worktree, agent: AgentState, *, keep_going: bool = False) -> str:
    git = tree.git
    if agent.unstaged:
        # Those that are not ignored are added again.
        paths = "".join(f"{path}\0" for path in agent.unstaged)
        git("update-index", "--force-remove", "-z", "--stdin", stdin=paths)
    with nested_repositories_hidden(tree, git):
        # What git cannot add, such as a name that no repository may have, is left out.
        flags, allowed = (["--ignore-errors"], (0, 1)) if keep_going else ([], (0,))
        git("add", "--all", *flags, "--", ":/", allowed=allowed)
        if forced := _forced(tree, agent.staged):
            literal = ("--pathspec-from-file=-", "--pathspec-file-nul")
            stdin = "".join(f"{path}\0" for path in forced)
            git("add", "--force", *flags, *literal, stdin=stdin, allowed=allowed, GIT_LITERAL_PATHSPECS="1")
    agent.notes += [note for note in clean_staged(tree, agent.head) if note not in agent.notes]
    return git("write-tree").strip()


def _forced(tree: Worktree, staged: Sequence[str]) -> list[str]:
    """Those of the paths that the agent added to its index that are files, and not in ours: ignored ones."""
    if not staged:
        return []
    known = set(tree.git("ls-files", "-z").split("\0"))
    top = PurePosixPath(tree.folder.name)
    return [path for path in staged if path not in known and beneath.exists(tree.place, top / path)]


def _other_branches(agent: AgentState) -> list[str]:
    """A note on commits that the agent left on other branches."""
    names = agent.other_branches[:10]
    return [f"the agent left commits on other branches: {', '.join(names)}"] if names else []


def _outside(tree: Worktree, submodules: Sequence[str]) -> list[str]:
    """A note on changes in submodules, which no branch of the repository can contain."""
    if not submodules:
        return []
    command = shlex.join(["git", "-C", str(tree.source.root), "apply", str(patch_of(tree))])
    names = ", ".join(submodules[:20])
    return [
        f"changes in submodules ({names}) are not in the session's branch, and were undone before any check; "
        f"apply them to your checkout with:  {command}"
    ]
