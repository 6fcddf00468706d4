"""HTML page about the tasks of a history: counts, size, age and language of its tasks, and every commit."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from proctor.tasks.history import CommitCandidate, MiningResult

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1c1c1e}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}
td,th{text-align:left;padding:.25rem .6rem;border-bottom:1px solid #ddd}
td.n,th.n{text-align:right}.bar{background:#3b6ea5;height:.8rem;border-radius:2px}
.figures{display:flex;gap:2rem;flex-wrap:wrap}.figures b{display:block;font-size:1.6rem}
code{font-family:ui-monospace,monospace;font-size:.9em}
@media(prefers-color-scheme:dark){body{background:#16181c;color:#e6e6e6}td,th{border-color:#333}}
"""
_SIZES = ((10, "up to 10 lines"), (50, "11–50"), (200, "51–200"), (10**9, "over 200"))


def history_page(result: MiningResult) -> str:
    """The page as a text."""
    by_commit = {each.commit: each for each in result.candidates}
    candidates = [by_commit[each.commit] for each in result.tasks]
    figures = (
        ("commits", len({*by_commit, *(each.commit for each in result.rejected)})),
        ("candidates", len(result.candidates)),
        ("tasks", len(result.tasks)),
        ("flaky", len(result.flaky)),
    )
    tasks = [
        (
            f"<code>{task.commit[:10]}</code>",
            escape(by_commit[task.commit].title),
            by_commit[task.commit].date[:10],
            by_commit[task.commit].lines,
            len(task.fail_to_pass),
            len(task.pass_to_pass),
            f"{task.seconds:.0f} s",
        )
        for task in result.tasks
    ]
    reasons = Counter(each.reason.partition(":")[0] for each in result.rejected)
    rejected = [(f"<code>{each.commit[:10]}</code>", escape(each.reason)) for each in result.rejected]
    flaky = [
        (f"<code>{each.commit[:10]}</code>", escape(", ".join(each.wavering[:10]))) for each in result.flaky
    ]
    heads = ("Commit", "Title", "Date", "Lines", "Fail to pass", "Pass to pass", "Validation")
    parts = [
        f"<h1>Tasks of the history of {escape(result.repo)}</h1>",
        f"<p>Tests: <code>{escape(result.check)}</code> ({escape(result.check_source)})</p>",
        "<div class=figures>" + "".join(f"<div><b>{n:,}</b>{name}</div>" for name, n in figures) + "</div>",
        *_distributions(candidates),
        "<h2>Tasks</h2>",
        _table(heads, tasks),
        "<h2>Flaky</h2>" + _table(("Commit", "Tests with different results in equal runs"), flaky)
        if flaky
        else "",
        "<h2>Why commits were not taken</h2>",
        _bars(reasons),
        "<details><summary>Every commit</summary>" + _table(("Commit", "Reason"), rejected) + "</details>",
    ]
    head = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Tasks of a history</title><style>{_STYLE}"
    )
    return f"{head}</style><body>{''.join(parts)}</body></html>\n"


def _distributions(candidates: Sequence[CommitCandidate]) -> Iterable[str]:
    if not candidates:
        return
    sizes = Counter(next(name for limit, name in _SIZES if each.lines <= limit) for each in candidates)
    ordered = {name: sizes[name] for _, name in _SIZES if sizes[name]}
    months = Counter(each.date[:7] for each in candidates)
    yield "<h2>Size of the reference solution</h2>" + _bars(ordered)
    yield "<h2>Age</h2>" + _bars(dict(sorted(months.items(), reverse=True)))
    yield "<h2>Language</h2>" + _bars(Counter(each.language for each in candidates))


def _bars(counts: Mapping[str, int]) -> str:
    most = max(counts.values(), default=1)
    rows = [
        (escape(name), f"{number:,}", f"<div class=bar style='width:{100 * number / most:.0f}%'></div>")
        for name, number in counts.items()
    ]
    return _table(("", "", ""), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Cells are HTML already."""
    head = "".join(f"<th>{name}</th>" for name in heads) if any(heads) else ""
    body = "".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(cell: object) -> str:
    return f"<td class=n>{cell:,}</td>" if isinstance(cell, int) else f"<td>{cell}</td>"
