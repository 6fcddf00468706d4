"""What a repository says about a commit elsewhere: the merge that brought it, and entries of changelogs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from proctor.git import Git

_CHANGELOG = re.compile(
    r"(?:.*/)?(?:changes|changelog|history|news|release[-_]?notes|releases|whatsnew)(?:\.(?:md|rst|txt|adoc))?"
    r"|(?:.*/)?(?:changelog(?:\.d|s)?|newsfragments|news|changes|\.changeset|releases|release_notes|upcoming_changes)"
    r"/.*\.(?:md|rst|txt|yaml|bugfix|feature|fix|change|misc|removal|deprecation)",
    re.IGNORECASE,
)
_MERGE = re.compile(r"(?:auto )?merge\b|merged\b|rollup merge\b", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?<![\w&/])(?:[\w.-]+/[\w.-]+)?(?:#|\bgh-|!)(\d+)\b|/(?:issues|pull|merge_requests)/(\d+)\b"
    r"|\{?:?(?:issue|pr|pull|gh)[:}]+`#?(\d+)`|\b(?:issue|ticket|bug|pull request|bpo)[ -]?#?(\d+)\b",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^(\s*)(?:[-*+]|\d+[.)])\s+(\S.*)$")
NEAREST_MERGES = 8
MOST_COMMITS_OF_A_MERGE = 60
MOST_ENTRIES = 6
"""A change with more entries is a release, or the changelog was moved."""


def numbers_in(text: str) -> list[int]:
    """The issues and pull requests that a text names, in its order."""
    numbers = (int(next(filter(None, groups))) for groups in _NUMBER.findall(text))
    return list(dict.fromkeys(numbers))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitContext:
    """Texts about one commit besides its message; empty: there are none."""

    pull_request: str = ""
    """Title and text of the merge."""
    is_shared: bool = False
    """Whether the merge brought other commits as well."""
    changelog: str = ""
    """Entries, as a list."""
    numbers: tuple[int, ...] = ()
    """Issues and pull requests of all these texts and of the message."""


class Changelogs:
    """The changelogs of a repository, and the merges of its history."""

    def __init__(self, git: Git) -> None:
        self._git = git

    def context(self, commit: str, message: str) -> CommitContext:
        """What is said about a commit."""
        first, merge_text, count = self._merge(commit)
        numbers = numbers_in(message)
        numbers += [each for each in numbers_in(merge_text) if each not in numbers]
        title, _, body = merge_text.partition("\n")
        request = body.strip() if _MERGE.match(title) else merge_text.strip()
        entries = self._added(f"{commit}^", commit) or (self._added(first, commit) if first else [])
        entries = entries or self._later(numbers)
        numbers += [each for each in numbers_in("\n".join(entries)) if each not in numbers]
        return CommitContext(
            pull_request=request,
            is_shared=count > 1,
            changelog="\n".join(f"- {entry}" for entry in entries),
            numbers=tuple(numbers),
        )

    def _merge(self, commit: str) -> tuple[str, str, int]:
        """The commit that a pull request began from, the message of its merge, and the number of its commits;
        empty: there was none."""
        words = ("--merges", "--ancestry-path", "--topo-order", "--reverse", f"{commit}..HEAD")
        code, listed, _ = self._git.run("rev-list", *words)
        for merge in listed.split()[:NEAREST_MERGES] if code == 0 else ():
            if self._git.run("merge-base", "--is-ancestor", commit, f"{merge}^1")[0] == 0:
                continue
            count = self._git.run("rev-list", "--count", f"{merge}^1..{merge}^2")[1].strip()
            # A merge of branches, with the work of weeks, says nothing about one commit.
            if count.isdigit() and int(count) <= MOST_COMMITS_OF_A_MERGE:
                return f"{merge}^1", self._git("show", "-s", "--format=%B", merge).strip(), int(count)
        return "", "", 0

    @cached_property
    def _paths(self) -> Sequence[str]:
        listed = self._git("ls-tree", "-r", "--name-only", "-z", "HEAD").split("\0")
        return [path for path in listed if _CHANGELOG.fullmatch(path)]

    @cached_property
    def _entries(self) -> Sequence[tuple[str, frozenset[int]]]:
        """Every entry of today's changelogs, with the numbers it names."""
        texts = (self._git.run("show", f"HEAD:{path}")[1] for path in self._paths)
        return [(entry, frozenset(numbers_in(entry))) for text in texts for entry in entries_of(text)]

    def _later(self, numbers: Iterable[int]) -> list[str]:
        """The entries that name one of these numbers, wherever they were written."""
        named = set(numbers)
        found = [entry for entry, own in self._entries if own & named]
        return found if len(found) <= MOST_ENTRIES else []

    def _added(self, old: str, new: str) -> list[str]:
        """The entries that a change adds to changelogs."""
        code, diff, _ = self._git.run("diff", "--unified=0", "--no-renames", "--no-ext-diff", old, new)
        if code != 0:
            return []
        parts = re.split(r"^diff --git .*$", diff, flags=re.MULTILINE)
        entries = list[str]()
        for part in parts:
            path = re.search(r"^\+\+\+ b/(.+?)\s*$", part, re.MULTILINE)
            if path and _CHANGELOG.fullmatch(path[1]):
                removed = {" ".join(line[1:].split()) for line in part.splitlines() if line.startswith("-")}
                lines = [line[1:] for line in part.splitlines() if re.match(r"\+(?!\+\+ )", line)]
                # A reflowed line is not new.
                entries += entries_of(
                    "\n".join(line for line in lines if " ".join(line.split()) not in removed)
                )
        return entries if len(entries) <= MOST_ENTRIES else []


def entries_of(text: str) -> Iterator[str]:
    """The entries of a changelog: its list items with what continues them, or its paragraphs."""
    entry, indent = list[str](), -1
    has_bullets = any(_BULLET.match(line) for line in text.splitlines())
    for line in [*text.splitlines(), ""]:
        bullet = _BULLET.match(line)
        is_heading = re.match(r"#+ |[=~^*-]{3,}\s*$|\.\. ", line) is not None
        continues = bool(line.strip()) and not bullet and not is_heading
        if continues and (entry or not has_bullets) and (indent < 0 or line[:1].isspace() or not has_bullets):
            entry.append(line.strip())
            continue
        if entry and (words := " ".join(entry)) and len(words.split()) > 1:
            yield words
        entry, indent = ([bullet[2].strip()], len(bullet[1])) if bullet else ([], -1)
