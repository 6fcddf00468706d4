"""A report as one HTML file that keeps the items with their answers, and filters them.

The static report, with a compact table of all items as data and one script whose digest the content security
policy names. The file asks nothing of anybody: it opens by a double click, also from a mail.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from importlib.resources import files

from proctor.formatting import printable
from proctor.json_values import JsonObject
from proctor.store import StoreReader
from proctor.store.item_lists import ItemOutcome, outcomes
from proctor.store.reader import ItemFilter
from proctor.store.tables import ItemRow

TEXT_CHARACTERS = 2000
"""Kept of each prompt, answer, error and check output."""
PAGE = 500
COLUMNS = ("id", "status", "reason", "prompt", "agent", "model", "repeat", "answer", "check", "error")
NUMBERS = ("seconds", "tokens", "cost")
_POLICY = re.compile(r'(http-equiv="Content-Security-Policy" content="[^"]*style-src \'sha256-[^\']+\')')


def portable(report: str, read: StoreReader, run_id: str) -> str:
    """A static HTML report of a run, with its items."""
    script = _file("portable.js")
    data = json.dumps(items_table(read, run_id), ensure_ascii=False, separators=(",", ":"))
    # Nothing in the data can end the element that holds it.
    island = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    style = _file("portable.css")
    allowed = f" 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'"
    head, count = _POLICY.subn(rf"\1{allowed}", report, count=1)
    assert count == 1, "a report has a content security policy"
    section = (
        f'<section id="items-section"><h2 id="items">Items</h2><div id="item-explorer"></div></section>\n'
        f'<script type="application/json" id="item-data">{island}</script>\n<script>{script}</script>\n'
    )
    before, main, after = head.rpartition("</main>")
    styled = before.replace("</head>", f"<style>{style}</style>\n</head>", 1)
    return f"{styled}{section}{main}{after}"


def items_table(read: StoreReader, run_id: str) -> JsonObject:
    """All items of a run by column. Texts are numbers of a list: most occur many times."""
    texts: dict[str, int] = {"": 0}
    columns: dict[str, list[object]] = {name: [] for name in (*COLUMNS, *NUMBERS)}
    factors: dict[str, list[object]] = {}
    scores: dict[str, list[object]] = {}

    def number(text: str) -> int:
        return texts.setdefault(printable(text[:TEXT_CHARACTERS], lines=True), len(texts))

    count = 0
    for row, outcome in _items(read, run_id):
        values = {
            **{name: row[name] for name in ("id", "status", "reason", "prompt", "agent", "model", "error")},
            "answer": outcome.answer,
            "check": outcome.check_output,
            "repeat": str(row["repeat"]),
        }
        for name in COLUMNS:
            columns[name].append(number(str(values[name])))
        columns["seconds"].append(_seconds(row))
        columns["tokens"].append(row["tokensTotal"])
        columns["cost"].append(row["costUsd"])
        for name, level in json.loads(row["factors"]).items():
            if name not in COLUMNS:
                _padded(factors.setdefault(name, []), count).append(number(str(level)))
        for name, score in outcome.scores.items():
            value = score["value"] if score["value"] is not None else printable(score["label"], lines=True)
            _padded(scores.setdefault(name, []), count).append(value)
        count += 1
    for column in (*factors.values(), *scores.values()):
        _padded(column, count)
    return {
        "run": run_id,
        "count": count,
        "texts": list(texts),
        "columns": columns,
        "factors": factors,
        "scores": scores,
    }


def _padded(column: list[object], length: int) -> list[object]:
    column.extend([None] * (length - len(column)))
    return column


def _items(read: StoreReader, run_id: str) -> Iterator[tuple[ItemRow, ItemOutcome]]:
    offset = 0
    while page := read.items(run_id, ItemFilter(), limit=PAGE, offset=offset):
        sessions = [row["sessionId"] for row in page if row["sessionId"]]
        known = outcomes(read, sessions, characters=TEXT_CHARACTERS)
        for row in page:
            yield row, known.get(row["sessionId"] or "", ItemOutcome())
        offset += len(page)


def _seconds(row: ItemRow) -> float | None:
    if not row["startedAt"] or not row["finishedAt"]:
        return None
    span = datetime.fromisoformat(row["finishedAt"]) - datetime.fromisoformat(row["startedAt"])
    return round(span.total_seconds(), 3)


@cache
def _file(name: str) -> str:
    return files("proctor.report").joinpath("templates", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
