"""Texts of models that attack a page or the time of who formats them."""

ATTACKS = [
    "<script>window.pwned = 1</script> <img src=x onerror=window.pwned=1>",
    "[click](javascript:window.pwned=1) [data](data:text/html,<script>window.pwned=1</script>)",
    "![x](javascript:window.pwned=1) ![pic](https://tracker.example/p.png) <https://a.example/>",
    "[https://bank.example](https://evil.example/login) [x](//evil.example)",
    "[y](vbscript:x) [z](JaVaScRiPt:1)",
    '[a](https://x.example/"onmouseover="window.pwned=1) [b](https://x.example/ "t" onclick=1)',
    "```python\n</code></pre><script>window.pwned = 1</script>\n",
    "| <b>x</b> | y |\n|---|---|\n| <img src=x onerror=window.pwned=1> | z |",
    "\u202e[exe](https://x.example)\u202c \u200bzero\x00 \x1b[31mred\x1b[0m \x1b]8;;https://x.example\x07link\x1b]8;;\x07",
    ">" * 3000 + " deep",
    "\n".join("  " * n + "- level" for n in range(400)),
    "*" * 20_000,
    "[" * 20_000 + "](",
    "`" * 20_000,
    "_a_ " * 5000 + "~~" * 5000,
    "|" * 4000 + "\n" + "|-" * 2000,
    "[" * 1900 + "]" * 1900,
    '{"a":' * 600 + "1" + "}" * 600,
    "1. " * 5000,
    "# " * 5000,
    "a\n" * 30_000,
]
SLOW = [
    "|\n" + " " * 1300 + "-" + " " * 2600 + "x",
    ("# a" + " " * 4900 + "b\n") * 80,
    ("```" + " " * 4900 + "`\n") * 80,
    "a\n\n" * 133_000,
    "- a\n" + " b\n" * 130_000,
    "- \n" * 133_000,
    ("|" * 50 + "\n|-\n" + "|\n" * 500) * 350,
    "```py\n" + ("1 " * 100 + "\n") * 1950,
]
"""Up to the longest piece of a text: for expressions that backtrack, calls with too many arguments."""
