"""Untrusted text as formatted nodes: Markdown, JSON, and code, for browsers that build elements from them.

A node is a text or `[tag, attributes, *children]`. HTML in Markdown stays text, images become links, and
links lead to web pages or mail only. Size and depth of what is made are bounded, and so is the time it takes.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Token as Kinds

Node = Any
"""A text, or a list of a tag, its attributes and its children."""
Nodes = list[Any]

LONGEST_TEXT = 20_000
"""Characters that are formatted at once: the worst known text of this length takes a third of a second."""
LONGEST_LINE = 200
"""Longer lines of code are not highlighted: some lexers take the cube of a line's length."""
MOST_SECONDS = 0.3
"""Processor time of highlighting one text; the rest of it stays plain."""
MOST_TOKENS = 15_000
"""Of Markdown; a text with more, such as a table of empty cells, is shown as it is."""
DEEPEST = 20
"""Levels of elements; what is below stays text."""
TAGS = {
    "strong": "strong",
    "em": "em",
    "s": "s",
    "bullet_list": "ul",
    "ordered_list": "ol",
    "list_item": "li",
    "blockquote": "blockquote",
    "table": "table",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "th": "th",
    "td": "td",
}
"""Elements of tokens that open and close."""
LEXERS = {
    "bash": "sh bash zsh shell console docker dockerfile makefile mk make",
    "c": "c h",
    "cpp": "cc cpp hpp c++",
    "csharp": "cs csharp c#",
    "css": "css scss",
    "diff": "diff patch",
    "go": "go golang",
    "html": "html htm xml svg vue",
    "ini": "ini cfg",
    "java": "java scala",
    "javascript": "js mjs cjs jsx javascript",
    "json": "json jsonc json5",
    "kotlin": "kt kotlin",
    "php": "php",
    "python": "py pyi python python3",
    "ruby": "rb ruby",
    "rust": "rs rust",
    "sql": "sql",
    "swift": "swift",
    "toml": "toml",
    "typescript": "ts tsx typescript",
    "yaml": "yaml yml",
}
"""The lexers of pygments that are used, each with the names of languages and ends of file names it is for."""
_LEXER_OF = {name: lexer for lexer, names in LEXERS.items() for name in names.split()}
_CLASSES = {
    Kinds.Comment: "k-comment",
    Kinds.Literal.String: "k-string",
    Kinds.Name.Tag: "k-word",
    Kinds.Literal.Number: "k-number",
    Kinds.Keyword: "k-word",
    Kinds.Operator.Word: "k-word",
    Kinds.Generic.Inserted: "plus",
    Kinds.Generic.Deleted: "minus",
    Kinds.Generic.Subheading: "k-comment",
}
_ADDRESS = re.compile(r"https?://[^\s<>\"'`]{1,1000}[^\s<>\"'`.,;:!?)\]}]")
_TASK = re.compile(r"\[([ xX])\]\s+")


def rich_nodes(text: str, *, markdown: bool = True) -> Nodes | None:
    """A text as nodes: JSON indented, Markdown formatted; None if it is best shown as it is."""
    if len(text) > LONGEST_TEXT or "\x1b[" in text:
        return None
    stripped = text.strip()
    if stripped[:1] in ("[", "{") and stripped[-1:] in ("]", "}"):
        try:
            indented = json.dumps(json.loads(stripped), indent=2, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
        else:
            # Indenting deeply nested documents takes the square of their size.
            return [_code(indented if len(indented) <= 10 * len(text) + 1000 else text, "json")]
    if not markdown:
        return None
    tokens = _parser().parse(text)
    count = sum(1 + len(token.children or ()) for token in tokens)
    return _nodes(tokens) if count <= MOST_TOKENS else None


def highlighted(files: Iterable[tuple[str, Sequence[str]]]) -> list[list[Nodes]]:
    """Lines of code as nodes. A file's name is a language or a path; lines of an unknown one stay texts."""
    end = time.thread_time() + MOST_SECONDS
    # Line by line: no expression sees more, and a patch may begin inside of a comment.
    return [[_highlighted(line, lexer, end) for line in lines] for lexer, lines in _with_lexers(files)]


def _with_lexers(
    files: Iterable[tuple[str, Sequence[str]]],
) -> Iterator[tuple[Lexer | None, Sequence[str]]]:
    for name, lines in files:
        alias = _LEXER_OF.get(name.rsplit("/", 1)[-1].rsplit(".", 1)[-1].lower())
        yield _lexer(alias) if alias else None, lines


def _highlighted(line: str, lexer: Lexer | None, end: float) -> Nodes:
    if lexer is None or len(line) > LONGEST_LINE or time.thread_time() > end:
        return [line]
    nodes: Nodes = []
    # Not `get_tokens`, which normalizes the text.
    for _, kind, value in lexer.get_tokens_unprocessed(line):
        while kind is not None and kind not in _CLASSES:
            kind = kind.parent
        nodes.append(["span", {"class": _CLASSES[kind]}, value] if kind and value.strip() else value)
    return _joined(nodes)


@cache
def _lexer(alias: str) -> Lexer:
    return get_lexer_by_name(alias)


@cache
def _parser() -> MarkdownIt:
    # HTML and entities stay as they were written.
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST})
    return parser.enable(["table", "strikethrough"]).disable(["html_block", "html_inline", "entity"])


def _code(text: str, name: str) -> Node:
    lines = text.removesuffix("\n").split("\n")
    children: Nodes = []
    for line in highlighted([(name, lines)])[0]:
        children += ["\n", *line] if children else line
    label = f"Code, {name[:20]}" if name else "Code"
    return ["pre", {"class": "rich-code", "dir": "ltr", "aria-label": label}, *_joined(children)]


def _joined(nodes: Nodes) -> Nodes:
    """Neighboring texts as one, so that a text without highlighting is one node."""
    joined: Nodes = []
    for node in nodes:
        if isinstance(node, str) and joined and isinstance(joined[-1], str):
            joined[-1] += node
        elif node != "":
            joined.append(node)
    return joined


def _nodes(tokens: Sequence[Token]) -> Nodes:
    """The nodes of the tokens of a document, or of one line."""
    root: Nodes = []
    stack = [root]
    for token in tokens:
        if token.nesting > 0:
            element = _opened(token) if len(stack) <= DEEPEST else None
            stack.append(element or ["", {}])
        elif token.nesting == 0:
            is_linked = any(element[0] == "a" for element in stack[1:])
            stack[-1] += [token.content] if is_linked and token.type == "text" else _leaf(token)
        else:
            shown = _closed(stack.pop())
            stack[-1] += shown
    return root


def _closed(element: Nodes) -> Nodes:
    """A finished element, as it is shown."""
    match element[0]:
        case "":
            return element[2:]
        case "table":
            return [["div", {"class": "rich-table", "aria-label": "Table"}, element]]
        case "a":
            return [element, *_host(element)]
        case _:
            return [element]


def _opened(token: Token) -> Nodes | None:
    """The element that a token opens; None if its content is shown without one."""
    match token.type.removesuffix("_open"):
        case "paragraph":
            return None if token.hidden else ["p", {"dir": "auto"}]
        case "heading":
            # No heading elements: the outline of the page is ours, not the text's.
            return ["p", {"class": f"rich-heading rich-{token.tag}", "dir": "auto"}]
        case "link":
            return _link(str(token.attrGet("href") or ""))
        case "ordered_list":
            return ["ol", {"start": start} if (start := token.attrGet("start")) else {}]
        case kind:
            return [kind_tag, {}] if (kind_tag := TAGS.get(kind)) else None


def _leaf(token: Token) -> Nodes:
    match token.type:
        case "inline":
            return _with_task(_joined(_nodes(token.children or ())))
        case "text":
            return _with_addresses(token.content)
        case "code_inline":
            return [["code", {}, token.content]]
        case "fence" | "code_block":
            return [_code(token.content, (token.info.split() or [""])[0])]
        case "softbreak" | "hardbreak":
            return ["\n"]
        case "hr":
            return [["hr", {}]]
        case "image":
            label = f"image: {token.content}" if token.content else "image"
            link = _link(str(token.attrGet("src") or ""))
            return [[*link, label], *_host(link)] if link else [label]
        case _:
            return [token.content]


def _with_task(nodes: Nodes) -> Nodes:
    """A line with its box, if it is a task of a list."""
    if nodes and isinstance(nodes[0], str) and (task := _TASK.match(nodes[0])):
        return [("☐ " if task[1] == " " else "☑ ") + nodes[0][task.end() :], *nodes[1:]]
    return nodes


def _with_addresses(text: str) -> Nodes:
    """A text with its addresses of web pages as links."""
    nodes: Nodes = []
    end = 0
    for match in _ADDRESS.finditer(text):
        if link := _link(match[0]):
            nodes += [text[end : match.start()], [*link, match[0]]]
            end = match.end()
    return [*nodes, text[end:]]


def _link(address: str) -> Nodes | None:
    """A link to a web page or for mail; None for every other address."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    is_safe = (parts.scheme in ("http", "https") and parts.hostname) or parts.scheme == "mailto"
    return ["a", {"href": address}] if is_safe else None


def _host(element: Nodes) -> Nodes:
    """Where a link leads: its words may name another place."""
    if element[2:] == [element[1]["href"]]:
        return []
    return [["span", {"class": "soft small"}, f" ({urlsplit(element[1]['href']).hostname or 'mail'})"]]
