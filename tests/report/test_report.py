"""Reports: every section, nothing hidden, and hostile text that stays text."""

import re
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest

from filled import NOW, filled_store, new_store
from proctor.formatting import figure, interval, usd
from proctor.jobs.imported.table import import_table
from proctor.report import as_markdown
from proctor.report.render import document_html
from proctor.report.run_charts import limits
from proctor.report.run_report import run_report
from proctor.stats import summarize
from proctor.stats.intervals import Estimate
from proctor.store import Scope, Store

LATER = NOW + timedelta(hours=1)
SECTIONS = (
    "Summary",
    "Model Usage",
    "Token Analysis",
    "Tool Usage",
    "Performance",
    "Batch Results",
    "Cost",
    "Failures",
    "Checks, Changes, and Merges",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A finished batch of thirty-six items."""
    with filled_store(tmp_path_factory.mktemp("report")) as filled:
        yield filled


@pytest.fixture(scope="module")
def summary(store):
    return summarize(store.read, Scope(run_id="compare"), LATER)


def markdown(summary):
    return as_markdown.render(run_report(summary))


def html(summary):
    return document_html(run_report(summary))


def words(page):
    """The text of a page as a reader sees it."""
    inside = re.sub(r"<(style|title)[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", inside))


class Tags(HTMLParser):
    """Collects the elements and attributes of a page."""

    def __init__(self, page):
        super().__init__()
        self.seen = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def test_both_formats_have_every_section(summary):
    text, page = markdown(summary), html(summary)
    for section in SECTIONS:
        assert f"\n## {section}\n" in text
        assert f">{section}</h2>" in page


def test_errors_stand_ins_and_missing_prices_are_told(summary):
    for text in (markdown(summary).replace("\\$", "$"), words(html(summary))):
        assert "60%" in text and "3 tasks" in text
        assert "95% CI needs more tasks" in text
        assert "6 items ended in an infrastructure error and are excluded" in text
        assert "would be 50%" in text
        notice = text.index("Mock data: 21 sessions of 42 used scripted or replayed models")
        assert notice < text.index("60%"), "before any figure"
        assert "scripted with gpt-5 (6)" in text
        assert "no price" in text and "18 calls of 42" in text and "≥ $0.24" in text


def test_a_page_needs_nothing_but_itself(summary):
    tags = Tags(html(summary)).seen

    assert not {"script", "link", "img", "iframe", "object", "form", "base"} & {tag for tag, _ in tags}
    assert not [
        (tag, name)
        for tag, attributes in tags
        for name in attributes
        if name in ("src", "href", "style") or name.startswith("on")
    ]
    (policy,) = [attributes["content"] for _, attributes in tags if "http-equiv" in attributes]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_hostile_text_stays_text(summary):
    page, text = html(summary), markdown(summary)
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", page)
    rows = [line for line in text.splitlines() if line.startswith("|")]

    assert "<script" not in text
    assert r"\`rm -rf\`" in text and r"\*\*bold\*\*" in text and r"\[x\](javascript" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", text)
    assert r"/projects/blog\|wiki" in text
    failures = [line for line in text[text.index("## Failures") :].splitlines() if line.startswith("| ")]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in failures[:20]] == [10] * 20
    assert len(rows) > 40


def test_every_plot_is_there_and_says_what_it_shows(summary):
    plots = re.findall(r"<svg.*?</svg>", html(summary), re.DOTALL)
    labels = [ElementTree.fromstring(plot).attrib["aria-label"] for plot in plots]

    assert labels == [
        "Items by status: success 18, fail 6, timeout 6, error 6",
        "Mean cost of an item against success rate, by model",
        "Success rate by agent, with 95% CI",
        "Success rate by model, with 95% CI",
        "Success rate by repo, with 95% CI",
        "pass@k and pass^k by the number of runs k, with 95% CI",
        "Tokens by model",
        "How many items took how long",
    ]


def test_a_run_that_has_not_begun_can_be_reported(tmp_path):
    with new_store(tmp_path) as store:
        summary = summarize(store.read, Scope(run_id="compare"), LATER)

    for text in (markdown(summary), words(html(summary))):
        assert "no items evaluated yet" in text
        assert "36 items had not finished" in text
        assert "No item has finished yet" in text
    assert "## Scores" not in markdown(summary) and 'id="scores"' not in html(summary)


def test_a_run_under_way_says_what_is_missing(tmp_path):
    with filled_store(tmp_path, finished=6) as store:
        summary = summarize(store.read, Scope(run_id="compare"), LATER)

    for text in (markdown(summary), words(html(summary))):
        assert "30 items had not finished" in text
        assert "queued" in text and "running" in text


def test_a_report_of_dates_or_sessions_says_so(store):
    start, end = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC)
    chosen = [row["id"] for row in store.read.sessions(Scope())][:3]

    by_date = summarize(store.read, Scope(start=start, end=end), LATER)
    by_session = summarize(store.read, Scope(session_ids=chosen), LATER)

    assert markdown(by_date).startswith("# Sessions from 2026-03-01 until 2026-03-01\n")
    assert markdown(by_session).startswith("# 3 sessions\n")
    assert markdown(by_session).count("compare") > 1


def test_scores_have_means_intervals_and_counts_overall_and_by_level(tmp_path):
    table = tmp_path / "scores.csv"
    lines = [
        f"t{n},{model},1,{0.1 * (n % 5) + bonus}" for n in range(8) for model, bonus in (("a", 0), ("b", 0.5))
    ]
    table.write_text("task,model,success,score\n" + "\n".join([*lines, "t9,a,1,"]) + "\n")
    with Store(str(tmp_path / "store.db")) as store:
        import_table(store, [table], "scored", NOW)
        summary = summarize(store.read, Scope(run_id="scored"), LATER)

    # Means by task computed by hand: overall (0.1 * 13/8 + 0.25), and one run without a score.
    level = summary.figures.factors[0].levels[0].scores["score:score"]
    for text in (markdown(summary), words(html(summary))):
        section = text[text.index("Scores") :]
        assert "0.4125" in section and "Scores by model" in section and "0.6625" in section
        assert f"{level.low:.4g} to {level.high:.4g}" in section
        assert "levels are told apart by" in section
    rows = [line for line in markdown(summary).splitlines() if line.startswith("| score:score |")]
    assert rows[0].split(" | ")[-4:] == ["8", "16", "1", " |"]
    assert [row.split(" | ")[1] for row in rows[1:3]] == ["a", "b"]


def test_an_interval_never_looks_as_if_it_had_no_width():
    narrow = Estimate(value=1234.2, low=1234.1, high=1234.3)

    assert limits(narrow, figure) == "1234 ± 0.1" and limits(narrow, usd) == "$1,234.10 to $1,234.30"
    assert interval(0.99997, 1.0) == "99.997% to 100.000%"
    assert interval(0.5, 0.7) == "50% to 70%" and interval(0.736, 0.741) == "73.6% to 74.1%"
