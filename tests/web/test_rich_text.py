"""Formatted texts: what Markdown, JSON and code become, and that no text makes more or takes long."""

import random
import time

import pytest
from hostile_texts import ATTACKS, SLOW

from proctor.web.rich_text import LEXERS, LONGEST_LINE, LONGEST_TEXT, highlighted, rich_nodes

TAGS = {"a", "blockquote", "code", "div", "em", "hr", "li", "ol", "p", "pre", "s", "span", "strong"}
TAGS |= {"table", "tbody", "td", "th", "thead", "tr", "ul"}
ATTRIBUTES = {"href", "start", "class", "dir", "aria-label"}
PIECES = [
    "a",
    "`",
    "*",
    "**",
    "_",
    "~~",
    "[",
    "](",
    ")",
    "!",
    "<",
    "<b/onclick=x>",
    "javascript:x",
    "data:x",
    "https://a.example/",
    "&lt;",
    "&#106;",
    "\\",
]
PIECES += ["{", "}", '"', "'", "//", "/*", "(", "${", "=", "0", "|", "|-|", "#", "\x00", "\u202e"]
PIECES += ["\n", " ", "    ", "> ", "- ", "1. ", "# ", "```js\n", "[a]: /x\n"]


def link(address, *words):
    return ["a", {"href": address}, *words]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("*a* **b** `c`", [["em", {}, "a"], " ", ["strong", {}, "b"], " ", ["code", {}, "c"]]),
        ("<b>&lt;</b> ~~d~~", ["<b>&lt;</b> ", ["s", {}, "d"]]),
        ("see https://a.example/x.", ["see ", link("https://a.example/x", "https://a.example/x"), "."]),
        ("[y](vbscript:x)", ["[y](vbscript:x)"]),
        ("[y](/settings)", ["y"]),
        (
            "![p](https://t.example/p)",
            [link("https://t.example/p", "image: p"), ["span", {"class": "soft small"}, " (t.example)"]],
        ),
        ("a\nb", ["a\nb"]),
    ],
)
def test_a_line_of_markdown_becomes_elements(text, nodes):
    assert rich_nodes(text) == [["p", {"dir": "auto"}, *nodes]]


def test_json_is_indented_and_code_has_kinds_of_words():
    (block,) = rich_nodes('{"a": 1}', markdown=False)
    assert block[2:] == [
        "{\n  ",
        ["span", {"class": "k-word"}, '"a"'],
        ": ",
        ["span", {"class": "k-number"}, "1"],
        "\n}",
    ]
    assert rich_nodes("plain", markdown=False) is None
    assert highlighted([("src/a.py", ["def f(): # x"]), ("a.unknown", ["def"])]) == [
        [[["span", {"class": "k-word"}, "def"], " f(): ", ["span", {"class": "k-comment"}, "# x"]]],
        [["def"]],
    ]


def test_no_text_makes_other_elements_or_takes_long():
    chance = random.Random(33)
    made = ["".join(chance.choices(PIECES, k=300)) for _ in range(30)]
    made += ["".join(chance.choices(PIECES, k=3)) * 7000 for _ in range(8)]
    for text in [*ATTACKS, *SLOW, *made]:
        start = time.thread_time()
        nodes = rich_nodes(text[:LONGEST_TEXT])
        assert time.thread_time() - start < 3, text[:80]
        check(nodes or [], 0)


def check(nodes, depth):
    assert depth < 60
    for node in nodes:
        if not isinstance(node, str):
            tag, attributes, *children = node
            assert tag in TAGS
            assert attributes.keys() <= ATTRIBUTES
            assert attributes.get("href", "https://").split(":")[0] in {"http", "https", "mailto"}
            check(children, depth + 1)


@pytest.mark.parametrize("names", LEXERS.values())
def test_no_line_of_code_takes_long(names):
    chance = random.Random(1)
    for _ in range(6):
        line = ("".join(chance.choices(PIECES, k=chance.randint(1, 3))) * LONGEST_LINE)[:LONGEST_LINE]
        start = time.thread_time()
        ((nodes,),) = highlighted([(names.split()[0], [line])])
        assert time.thread_time() - start < 3, line
        assert "".join(node if isinstance(node, str) else node[2] for node in nodes) == line
