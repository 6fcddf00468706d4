"""Pages about evaluations and comparisons: hostile text stays text, and everything is said in words."""

import re
from dataclasses import replace
from datetime import UTC, datetime

from proctor.jobs.evaluation.evaluator_results import EvaluationResults, EvaluatorResult, JudgedTarget
from proctor.jobs.evaluation.insights import Insight
from proctor.jobs.evaluation.results import EvaluationReport, report_document
from proctor.jobs.evaluation.state import EvaluationState
from proctor.report import as_markdown, as_text
from proctor.report.comparison import comparison_document
from proctor.report.render import document_html
from proctor.stats.comparison import Comparison, Contrast, Disagreement, GateResult, Mean
from proctor.stats.differences import difference
from proctor.stats.intervals import Estimate

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script> | `rm` \u202eevil [x](javascript:alert(1))"


def page(**more):
    tone = EvaluatorResult(
        evaluator="tone",
        requested_as="tone",
        digest="v1",
        level="trace",
        evaluated=9,
        failed=1,
        average=Estimate(value=0.6, low=0.4, high=0.8, n=9),
        if_failures_were_zero=0.54,
        labels={HOSTILE: 5, "No": 4},
    )
    bare = EvaluatorResult(evaluator="kind", requested_as="kind.yaml", digest="v2", level="session")
    job = EvaluationState(
        id="night-0123456789",
        arn="arn",
        name="night",
        state="COMPLETED_WITH_ERRORS",
        created_at=NOW,
        updated_at=NOW,
        document={"description": HOSTILE},
        output_group="g",
        output_stream="s",
        error_details=("1 of 3 sessions failed during batch evaluation.",),
    )
    results = EvaluationResults(
        run_id=job.id,
        completed=2,
        in_progress=0,
        failed=1,
        ignored=4,
        summaries=(tone, bare),
        tokens=1234,
        cost_usd=None,
        remarks=("scripted/judge only rehearses",),
    )
    worst = JudgedTarget(
        session="s1", session_id="1", target="t1", value=0.1, label="No", explanation=HOSTILE
    )
    failed = JudgedTarget(
        session="s2", session_id="2", target="", value=None, label="", explanation="", error=HOSTILE
    )
    return EvaluationReport(evaluation=job, results=results, worst=[[worst], []], failed=[[failed], []])


def test_a_page_about_a_job_says_what_was_left_out_and_obeys_no_text():
    html = document_html(report_document(page()))

    assert "<script>" not in html and "\u202e" not in html
    assert "&lt;script&gt;" in html
    assert "4 older sessions skipped" in html
    assert "0.400 to 0.800" in html and "0.540" in html
    assert "1 of 3 sessions failed" in html
    assert "scripted/judge only rehearses" in html
    assert "default-src 'none'" in html


def test_counts_are_not_drawn_on_the_scale_of_shares():
    shown = page()
    words = replace(shown.results.summaries[0], evaluator="words", average=Estimate(value=52.0, n=9))
    both = replace(shown.results, summaries=(shown.results.summaries[0], words))

    html = document_html(report_document(replace(shown, results=both)))

    assert html.count("Average of each evaluator") == 2 * document_html(report_document(shown)).count(
        "Average of each evaluator"
    )
    outside = "evaluators whose values fall outside 0 to 1"
    assert outside in html and outside not in document_html(report_document(shown))


def test_a_job_that_ended_early_is_not_in_progress():
    shown = page()
    stopped = replace(
        shown,
        evaluation=replace(shown.evaluation, state="STOPPED"),
        results=replace(shown.results, in_progress=5),
    )

    assert "5 sessions not evaluated" in document_html(report_document(stopped))
    assert "5 sessions not evaluated" in as_markdown.render(report_document(stopped))


def test_the_same_in_markdown_is_one_table_row_for_each_thing():
    text = as_markdown.render(report_document(page()))

    assert "| tone | trace | 0.600 | 0.400 to 0.800 | 9 | 1 | 0.540 | " in text
    assert "| kind | session | – | – | 0 | 0 | – | – | 0 | – |" in text
    assert "<script>" not in text
    (row,) = [line for line in text.splitlines() if line.startswith("| s1 ")]
    assert len(re.findall(r"(?<!\\)\|", row)) == 6


def test_a_terminal_shows_the_averages_and_insights_of_the_report_and_not_its_details():
    found = Insight(
        insight="Builtin.Insight.UserIntent", found="refund", example="paid twice", sessions=("s1",)
    )
    document = report_document(replace(page(), insights=[found]))

    lines = as_text.body(document)

    assert lines[0] == "3 sessions; 4 older sessions skipped, 2 fully evaluated, " + (
        "1 partially evaluated (averages exclude failed results), – evaluation cost, 1.23 k tokens"
    )
    assert [line.split()[:3] for line in lines if line.startswith("tone ")] == [["tone", "trace", "0.600"]]
    assert lines[-1].split() == ["Builtin.Insight.UserIntent", "refund", "1", "s1", "paid", "twice"]
    row = "| Builtin.Insight.UserIntent | refund | 1 | s1 | paid twice |"
    assert row in as_markdown.render(document)


def comparison():
    before, after = [1, 1, 1, 0, 1, 1, 1, 0], [0, 1, 1, 0, 0, 1, 1, 0]
    sides = {"baseline": "before", "candidate": "after"}
    items = {"baseline_items": (("run", "a"),), "candidate_items": (("run", "b"),)}
    success = Contrast(
        metric="success",
        **sides,
        baseline_mean=Mean(value=0.75, low=0.4, high=0.9, items=8, tasks=8, sem=0.164),
        candidate_mean=Mean(value=0.5, low=0.2, high=0.8, items=8, tasks=8),
        difference=replace(difference(before, after, lo=0, hi=1), needs=40),
        is_member=True,
        pairs=8,
        unpaired=2,
        errors=(1, 0),
        with_errors=difference([*before, 0, 0], [*after, 0, 0], lo=0, hi=1),
        disagreements=(Disagreement(words=HOSTILE, baseline=1.0, candidate=0.0, **items),),
    )
    nothing = Contrast(
        metric="score:tone",
        **sides,
        baseline_mean=Mean(value=None),
        candidate_mean=Mean(value=None),
        difference=None,
        remarks=("one of them has no value",),
    )
    words = {"verdict": "inconclusive", "text": "too few (12 more tasks)", "more_pairs": 12}
    return Comparison(
        groups=("before", "after"),
        pair="item",
        varied=("model",),
        contrasts=(success, nothing),
        verdicts=(GateResult(gate="success>=0", candidate="after", **words),),
    )


def test_a_page_about_a_comparison_says_what_a_difference_is_worth():
    html = document_html(comparison_document(comparison()))

    assert "<script>" not in html
    assert "Gates: inconclusive" in html and "too few (12 more tasks)" in html
    assert "−25.0 pp" in html and "−67.3 pp to +27.3 pp" in html
    assert "A verdict needs about 40 tasks if the true difference is about as observed." in html
    assert "counted as failures, the difference would be −20.0 pp" in html
    assert "one of them has no value" in html


def test_a_comparison_in_markdown():
    text = as_markdown.render(comparison_document(comparison()))

    row = "| after | 75% ± 16% | 50% | −25.0 pp | −20.0 pp | −67.3 pp to +27.3 pp | 0.351 | 8 |"
    assert f"| success | not significant {row}" in text
    assert "| score:tone | not enough data | after | – | – | – | – | not enough data | – | – |" in text
    assert "<script>" not in text
