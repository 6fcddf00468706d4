"""Statement of a task made of a commit: its message, or the issue it names, without the answer."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from proctor.errors import UsageError
from proctor.json_values import JsonMap, as_map, as_number, as_text, parse_json
from proctor.plan.source import text_of

LONGEST = 4000
FEWEST_WORDS = 4
_TRAILER = re.compile(
    r"^(signed-off-by|co-authored-by|reviewed-by|acked-by|tested-by|reported-by|change-id|cc|pr-url|refs?"
    r"|fixes|closes|resolves|see|bug|backport-of|cherry[- ]picked from|\(cherry picked from).*$",
    re.IGNORECASE,
)
_END = re.compile(
    r"^(#+\s*)?(checklist|change ?log|test plan|tests added|testing|how to test)\b", re.IGNORECASE
)
_DIFF_LINE = re.compile(r"^(diff --git |index [0-9a-f]{7}|--- |\+\+\+ |@@ )")
_TYPE = re.compile(r"^((fix|feat|perf|refactor|test)(\([^)]*\))?!?:\s+|\[[\w ]+\]\s+)", re.IGNORECASE)
_SOLUTION = re.compile(
    r"^(the (fix|solution)|this (commit|patch|change|fix|pr)\b|fix(ed)? (this |it )?by|to fix|solution:)",
    re.IGNORECASE,
)
_LINE_NUMBER = re.compile(r":\d+\b(?=[\s),.;]|$)|\b(?:on|at|in) lines? \d+(?:-\d+)?")
_REMOVED = (
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"https?://\S+/(pull|pulls|issues|commit|commits|compare|merge_requests)/\S+"),
    re.compile(r"\(?\b[\w.-]+/[\w.-]+#\d+\)?"),
    re.compile(r"\(?(?:\b(?:fixes|closes|resolves|fix|close|refs?|see|gh)[ :-]*)?#\d+\)?", re.IGNORECASE),
    re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b"),
)
_ISSUE = re.compile(
    r"(?<![\w&/])(?:[\w.-]+/[\w.-]+)?(?:#|\bgh-)(\d+)\b|/(?:issues|pull)/(\d+)\b", re.IGNORECASE
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_DEFINED = re.compile(
    r"^\+\s*(?:export\s+|pub(?:\([^)]*\))?\s+|public\s+|async\s+|static\s+|default\s+)*"
    r"(?:def|class|function|func(?:\s*\([^)]*\))?|fn|struct|enum|trait|type|const|let|var|interface)\s+(\w{3,})"
    r"|^\+\s*(?:module\.)?exports\.(\w{3,})|^\+\s*(\w{3,})\s*[:=]\s*(?:function|\(|async)",
    re.MULTILINE,
)


def title_and_body(message: str, paths: Collection[str], *, hints: bool) -> tuple[str, str]:
    """The title and text of a statement; `paths` are removed unless hints are wanted."""
    lines, fenced_diff = list[str](), False
    for line in message.replace("\r\n", "\n").split("\n"):
        if _END.match(line):
            break
        if line.startswith("```"):
            was_diff = fenced_diff
            fenced_diff = not fenced_diff and line[3:].strip() in ("diff", "patch")
            if fenced_diff or was_diff:
                continue
        if not fenced_diff and not _DIFF_LINE.match(line) and not _TRAILER.match(line.strip()):
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
    title = re.sub(r"\s+", " ", _TYPE.sub("", title)).strip(" .:-")
    body = re.sub(r"[ \t]+\n", "\n", body)
    body = re.sub(r"\n{3,}", "\n\n", body).strip()
    # A name of the code keeps its case.
    is_word = re.match(r"[a-z]+(?!\w|[.(])", title)
    return title[:1].upper() + title[1:] if is_word else title, body[:LONGEST]


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


def linked_issue(message: str, issues: Mapping[int, str]) -> str:
    """The text of the first known issue that a message names; empty: it names none."""
    numbers = (int(first or second) for first, second in _ISSUE.findall(message))
    return next((issues[number] for number in numbers if number in issues), "")


def without_paths(text: str, paths: Collection[str]) -> str:
    """The text without the names of these files."""
    names = {name for path in paths for name in (path, PurePosixPath(path).name)}
    for name in sorted(names, key=len, reverse=True):
        mark = re.escape(name)
        text = re.sub(rf"^`?{mark}`?:\s*", "", text, flags=re.MULTILINE)
        text = re.sub(rf"(?<![\w/.-])`?{mark}`?(?![\w/-])", "the code", text)
    return text


def is_too_short(title: str, body: str) -> bool:
    """Whether a statement says too little to work from."""
    return len(re.findall(r"\w+", f"{title} {body}")) < FEWEST_WORDS


def new_names(source_patch: str, test_patch: str) -> list[str]:
    """Names that the source part of a commit defines and its tests use: an agent cannot guess them."""
    defined = {name for match in _DEFINED.findall(source_patch) for name in match if name}
    removed = "\n".join(line for line in source_patch.splitlines() if not line.startswith("+"))
    known = set(_NAME.findall(removed))
    used = {
        name
        for line in test_patch.splitlines()
        if line.startswith("+") and not line.startswith("+++")
        for name in _NAME.findall(line)
    }
    return sorted((defined - known) & used)


def task_text(title: str, body: str, names: Sequence[str]) -> str:
    """The Markdown of a task, without its front matter."""
    parts = [f"# Task: {title}"]
    if body:
        parts.append(body)
    if names:
        listed = ", ".join(f"`{name}`" for name in names[:20])
        parts.append(f"## Interface\n\nTests use these new names: {listed}.")
    return "\n\n".join(parts) + "\n"


REWRITE = """\
Rewrite this commit message as a bug report or feature request for the state before the commit. Describe the
symptom, the expected and the actual behavior. Do not describe how it was solved, and name no file, test or
internal function. Answer with a title in the first line, an empty line, and at most two paragraphs.

{statement}
"""
"""Prompt for the model of `--statement-model`."""
