"""Statement of a task made of a commit: its message, the issue, the pull request, and entries of changelogs.

What gives the answer away is removed. What tests use and nobody can guess is listed. How much the statement
leaves open is estimated.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from proctor.errors import UsageError
from proctor.json_values import JsonMap, as_map, as_number, as_text, parse_json
from proctor.plan.source import text_of
from proctor.tasks.commit_context import CommitContext
from proctor.tasks.interface import Interface

LONGEST = 4000
UNDERSPECIFIED = 0.6
"""From this score on, a statement leaves too much open."""
_TRAILER = re.compile(
    r"""^(?:
        (?:[a-z-]+-by|change-id|pr-url|backport-of|cc|refs?|fixes|closes|resolves|see|bug)\s*:
        |\(?cherry[- ]picked\ from\b
        |(?:refs?|fix(?:es|ed)?|close[sd]?|resolve[sd]?|see|bug)
            (?:[\s,;]+(?:and|also|to|issues?|pr|pull\ request|gh|bpo|[\w./-]*[\#!]?\d+|https?://\S+))+[.\s]*$
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""A line about the commit, not about the code: `Reviewed-by: …`, `Closes #12`."""
_LAST_LINES = re.compile(r"\n\s*\n(?:[A-Z]\w*(?:-\w+)+: \S.*\n?)+\s*$")
"""The trailers of git: a last paragraph of nothing but `Some-Name: value`."""
_END = re.compile(
    r"^(#+\s*)?(checklist|change ?log|test plan|tests added|testing|how to test)\b", re.IGNORECASE
)
_DIFF_LINE = re.compile(r"^(diff --git |index [0-9a-f]{7}|--- |\+\+\+ |@@ )")
_TYPE = re.compile(
    r"^(?:fix|feat|feature|perf|refactor|test|bug|bugfix|hotfix)(?:\(([^)]*)\))?!?:\s+", re.IGNORECASE
)
_TAG = re.compile(r"^\[[\w ]+\]\s+")
_REFERENCE = re.compile(
    r"""^(?:
        (?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|refs?|see)?[ :]*
        (?:(?:issue|ticket|bug|pr|pull\ request|bpo|gh)[ \#-]*\d+|\#\d+)(?:[, ]+(?:and\ )?\#\d+)*
        \s*(?::|--|–|—|-(?=\s))+\s*
        |\[(?:\#?\d+|[A-Z][A-Z0-9]+-\d+)\](?:\([^)\s]*\))?\s*:?\s*
        |\(\#\d+\)\s*
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""What titles begin with: `Fixed #12 --`, `Issue 1214:`, `[#12]`, `[CLI-12]`."""
_TEST_WORK = re.compile(
    r"""^\W*(?:also\ |and\ |then\ )?
        (?:add(?:s|ed|ing)?|update[sd]?|extend(?:s|ed)?|include[sd]?|write|wrote|fix(?:e[sd])?)\s+
        (?:(?!(?:with|and|to|in|for|so|that|which)\b)[\w'`-]+,?\s+){0,5}
        (?:tests?|test\ cases?|specs?|coverage)\b(?:\s*\([^)]*\))?.{0,60}$""",
    re.IGNORECASE | re.VERBOSE,
)
"""A sentence about tests."""
_TESTED = re.compile(
    r"^(?:also\ )?(?:(?:is|are|now)\s+)*(?:pinned|covered|verified|checked|tested)\s+(?:by|with|in)\s+"
    r"(?:\w+\s+){0,3}tests?\W*$",
    re.IGNORECASE,
)
_NOISE = re.compile(
    r"""^\s*[*-]\s+
        (?:(?:potential\ fix\ for
            |(?:fix|update|apply|address|minor|more|remove|clean|sort|restore|add|merge)\w*)
            \s+(?:up\s+)?(?:(?:the|a|some|missing)\s+)*)?
        (?:code|reviews?|members|imports|tests?|pull\ request\ findings?
        |javadocs?(?:\s.*)?|review\ comments|suggestions?(?:\ from\ code\ review)?|lint\w*|typos?|format\w*
        |changes|changelog|readme|docs?|wip|nits?|whitespace|merge\ (?:branch|remote)\b.*|feedback)\s*\.?$""",
    re.IGNORECASE | re.VERBOSE,
)
"""Commits of a squashed pull request that say nothing."""
_RULE = re.compile(r"^-{5,}$")
"""What GitHub writes below the commits of a squashed pull request."""
_TEST_NAME = re.compile(
    r"^\+\s*(?:(?:async\s+)?def\s+(test\w+)|class\s+(\w*Tests?\w*)|func\s+(Test\w+)|(?:async\s+)?fn\s+(\w+))",
    re.MULTILINE,
)
_SOLUTION = re.compile(
    r"^(the (fix|solution)|this (commit|patch|change|fix|pr)\b|fix(ed)? (this |it )?by|to fix|solution:"
    r"|(changed|replaced|moved|switched|refactored|extracted|reworked)\b)",
    re.IGNORECASE,
)
_LINE_NUMBER = re.compile(r":\d+\b(?=[\s),.;]|$)|\b(?:on|at|in) lines? \d+(?:-\d+)?")
_REMOVED = (
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"\(?\[[\w.-]*[#!]?\d+\]\([^)\s]*\)\)?"),
    re.compile(r"https?://\S+/(pull|pulls|issues|commit|commits|compare|merge_requests)/\S+"),
    re.compile(r"\(?\b[\w.-]+/[\w.-]+#\d+\)?"),
    re.compile(r"(?:\b(?:by|in|closing|fixing) )?[{:](?:issue|pr|pull|gh)[}:]`#?\d+`,?", re.IGNORECASE),
    re.compile(r"[{:](?:\w+:)?\w+[}:](?=`)"),
    re.compile(
        r"\b(?:thanks to|reported by|patch by|contributed by|by) @[\w-]+|(?<!\w)@[A-Za-z][\w-]+(?=[\s),.;]*$)"
    ),
    re.compile(
        r"\(?(?:\b(?:fixes|closes|resolves|fix|close|refs?|see|gh|issues?|pr|pull request|rebase of"
        r"|follow-up (?:to|of))[ :-]*)?#\d+\)?",
        re.IGNORECASE,
    ),
    re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b"),
)


def title_and_body(message: str, paths: Collection[str], *, hints: bool) -> tuple[str, str]:
    """The title and text of a statement; `paths` are removed unless hints are wanted."""
    lines, fenced_diff = list[str](), False
    first, *rest = _LAST_LINES.sub("", message.replace("\r\n", "\n").strip()).split("\n")
    first = _REFERENCE.sub("", _REFERENCE.sub("", first))
    for number, (line, following) in enumerate(zip((first, *rest), (*rest, ""), strict=True)):
        if _END.match(line):
            break
        if line.startswith("```"):
            was_diff = fenced_diff
            fenced_diff = not fenced_diff and line[3:].strip() in ("diff", "patch")
            if fenced_diff or was_diff:
                continue
        is_trailer = lines and _TRAILER.match(line.strip())
        # The beginning of a longer sentence is left to `_without_tests`.
        is_whole = number and (not following.strip() or re.match(r"\s*[*-]\s", line))
        is_about_tests = is_whole and _TEST_WORK.match(line)
        if not (fenced_diff or is_trailer or _DIFF_LINE.match(line) or is_about_tests):
            lines.append(line)
    text = "\n".join(lines)
    for pattern in _REMOVED:
        text = pattern.sub("", text)
    if not hints:
        text = _LINE_NUMBER.sub("", without_paths(text, paths))
        paragraphs = re.split(r"\n\s*\n", text)
        # The first one is the title, which often says what was done, and is all that many messages have.
        text = "\n\n".join(each for n, each in enumerate(paragraphs) if not n or not _SOLUTION.match(each))
    title, _, body = text.strip().partition("\n")
    title = re.sub(r"\s+", " ", _TYPE.sub(_scope, _TAG.sub("", title))).strip(" .:-")
    title = _REFERENCE.sub("", title)
    title, body = (
        re.sub(r"(?<=\S)[ \t]*\n?[ \t]*(?=[.,;](?:\s|$))|,(?=\s*\.(?:\s|$)|\s*$)", "", text)
        for text in (title, body)
    )

    def is_title(line: str) -> bool:
        return re.sub(r"^\s*[*-]\s+|[\s.]+$", "", line).lower() == title.lower()

    body = re.sub(r"[ \t]+\n", "\n", re.sub(r"(?<=\w) {2,}(?=\w)", " ", body))
    body = re.sub(
        r"(?:^|(?<=[.\n] ))(?:see|refs?|follow-up|commits?)(?:\s+(?:and|also|of|to))*\s*\.",
        "",
        body,
        flags=re.I | re.M,
    )
    body = "\n".join(
        line for line in body.split("\n") if not (_NOISE.match(line) or _RULE.match(line) or is_title(line))
    )
    body = re.sub(r"\n{3,}", "\n\n", body).strip()
    if not re.search(r"\w", body) or ("\n" not in body and _NOISE.match(f"* {body}")):
        body = ""
    # A name of the code keeps its case.
    is_word = re.match(r"[a-z]+(?!\w|[.(])", title)
    return title[:1].upper() + title[1:] if is_word else title, body[:LONGEST]


def _scope(match: re.Match[str]) -> str:
    """The scope of a conventional title, which often names what the commit is about."""
    scope = (match[1] or "").strip()
    return (
        f"{scope}: "
        if scope and scope.lower() not in ("deps", "test", "tests", "core", "index", "main")
        else ""
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What an agent is told of a task."""

    title: str
    body: str
    interface: Interface
    sources: tuple[str, ...]
    """Where the text is from: `message`, `issue`, `pull request`, `changelog`."""
    lines: int
    """Changed lines of the reference solution."""

    @property
    def underspecification(self) -> float:
        """From 0 to 1: how much of what the size of the solution lets expect is not said.

        Expected are 12 words, and one more for five changed lines, up to 52. A name of the interface counts
        as four words, a word of the title as half a one.
        """
        expected = 12 + min(self.lines, 200) / 5
        told = _words(self.body) + 4 * self.interface.size + _words(self.title) / 2
        return round(1 - min(1.0, told / expected), 2)

    @property
    def is_title_only(self) -> bool:
        """Whether it consists of one line."""
        return not self.body and not self.interface.size

    @property
    def is_underspecified(self) -> bool:
        """Whether it leaves too much open."""
        return self.is_title_only or self.underspecification >= UNDERSPECIFIED

    @property
    def text(self) -> str:
        """The Markdown of the task, without its front matter."""
        parts = (f"# Task: {self.title}", self.body, self.interface.markdown())
        return "\n\n".join(filter(None, parts)) + "\n"


def _words(text: str) -> int:
    return len(re.findall(r"\w+", text))


def make_statement(
    message: str,
    context: CommitContext,
    issues: Mapping[int, str],
    interface: Interface,
    *,
    paths: Collection[str],
    test_patch: str,
    lines: int,
    hints: bool,
) -> Statement:
    """The statement of a commit: its issue or message, and what other texts add to it."""
    issue = next((issues[number] for number in context.numbers if number in issues), "")
    tests = {name for groups in _TEST_NAME.findall(test_patch) for name in groups if len(name) > 4}
    title, body = _without_tests(*title_and_body(issue or message, paths, hints=hints), tests)
    sources = ["issue" if issue else "message"] if title or body else []
    parts = [body] if body else []
    further = {"pull request": context.pull_request, "changelog": context.changelog}
    for name, text in further.items():
        # An issue describes the symptom, the others tell what was done about it; a merge of several commits
        # is about the others as well.
        is_about_this = not issue and (name == "changelog" or not context.is_shared)
        if not text or (not is_about_this and _words(body) >= ENOUGH_WORDS):
            continue
        for entry in text.split("\n- ") if name == "changelog" else [text]:
            head, rest = _without_tests(*title_and_body(entry.removeprefix("- "), paths, hints=hints), tests)
            added = "\n\n".join(filter(None, (head, rest)))
            if not title:
                title, added = head, rest
                sources.append(name)
            if added and not _is_said(added, [title, *parts]):
                parts.append(added if added.endswith((".", "`", ":")) else f"{added}.")
                sources.append(name)
    if not title and parts:
        title, _, rest = parts[0].partition("\n")
        parts[0] = rest.strip()
    parts = [part for part in parts if part]
    return Statement(
        title=title,
        body="\n\n".join(parts)[:LONGEST],
        interface=interface,
        sources=tuple(dict.fromkeys(sources)),
        lines=lines,
    )


ENOUGH_WORDS = 25
"""Of an issue, or of the message of one commit among several, so that its text stands alone."""


def _is_said(text: str, parts: Sequence[str]) -> bool:
    """Whether most words of a text are in the others."""
    words = {word.lower() for word in re.findall(r"\w{3,}", text)}
    known = {word.lower() for part in parts for word in re.findall(r"\w{3,}", part)}
    return len(words - known) <= max(1, len(words) / 4)


def _without_tests(title: str, body: str, names: Collection[str]) -> tuple[str, str]:
    """Title and text without sentences about tests, or with names of the hidden ones."""
    kept = _no_test_sentences(title, names).rstrip(".") or title
    paragraphs = (_no_test_sentences(part, names) for part in re.split(r"\n\s*\n", body))
    return kept, "\n\n".join(filter(None, paragraphs))


def _no_test_sentences(paragraph: str, names: Collection[str]) -> str:
    def is_about_tests(text: str) -> bool:
        named = any(re.search(rf"\b{re.escape(name)}\b", text) for name in names)
        line = " ".join(text.split())
        return named or bool(_TEST_WORK.match(line) or _TESTED.match(line))

    lines = paragraph.split("\n")
    if any(re.match(r"\s{2,}|\t|[*+-]\s|\d+[.)]\s|```|>|\|", line) for line in lines):
        return "\n".join(line for line in lines if not is_about_tests(line)).rstrip()
    sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z`])", paragraph)
    kept = [sentence for sentence in sentences if not is_about_tests(sentence)]
    return paragraph if len(kept) == len(sentences) else " ".join(kept)


MOST_BYTES = 256 * 1024 * 1024


def read_issues(file: Path) -> dict[int, str]:
    """Titles and texts of issues by number: a JSON list or lines with `number`, `title` and `body`, or a map
    of numbers to these. Pull requests are left out: they describe the solution. Raises `UsageError`."""
    text = text_of(file, remedy="Give a JSON file of issues.", most_bytes=MOST_BYTES)
    try:
        document = parse_json(text)
    except ValueError:
        try:
            document = [parse_json(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise UsageError(
                f"{file} is not JSON: {error}\nGive a list, a map, or one issue per line."
            ) from error
    issues = {
        number: f"{as_text(issue, 'title')}\n\n{as_text(issue, 'body')}".strip()
        for number, issue in _numbered(document)
        if "pull_request" not in issue and as_text(issue, "title")
    }
    if not issues:
        raise UsageError(f"{file} has no issue with `number` and `title`\nExport them with these members.")
    return issues


def _numbered(document: object) -> Iterator[tuple[int, JsonMap]]:
    if isinstance(document, Mapping) and "number" not in document:
        yield from ((int(name), as_map(issue)) for name, issue in document.items() if str(name).isdigit())
        return
    for issue in document if isinstance(document, list) else [document]:
        number = as_number(issue, "number")
        if number is not None:
            yield int(number), as_map(issue)


def without_paths(text: str, paths: Collection[str]) -> str:
    """The text without the names of these files."""
    names = {name for path in paths for name in (path, PurePosixPath(path).name)}
    for name in sorted(names, key=len, reverse=True):
        mark = re.escape(name)
        text = re.sub(rf"^`?{mark}`?:\s*", "", text, flags=re.MULTILINE)
        text = re.sub(rf"(?<![\w/.-])`?{mark}`?(?![\w/-])", "the code", text)
    return text


REWRITE = """\
Rewrite this commit message as a bug report or feature request for the state before the commit. Describe the
symptom, the expected and the actual behavior. Do not describe how it was solved, and name no file, test or
internal function. Answer with a title in the first line, an empty line, and at most two paragraphs.

{statement}
"""
"""Prompt for the model of `--statement-model`."""
