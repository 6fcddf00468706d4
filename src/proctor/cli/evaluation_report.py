"""The report of an evaluation job: what its evaluators found, and where to look."""

from proctor.bootstrap import now
from proctor.jobs.evaluation.results import EvaluationReport, evaluation_html, evaluation_markdown
from proctor.jobs.evaluation.state import evaluation_of
from proctor.stats.evaluation import failed_targets, results_of, worst_targets
from proctor.store import Store


def evaluation_report(store: Store, run_id: str, format_: str) -> str:
    """The report of a job, as Markdown or HTML."""
    results = results_of(store, run_id)
    page = EvaluationReport(
        evaluation=evaluation_of(store, run_id, now(), with_deleted=True),
        results=results,
        worst=[worst_targets(store.read, run_id, each) for each in results.summaries],
        failed=[failed_targets(store.read, run_id, each) for each in results.summaries],
    )
    return evaluation_html(page) if format_ == "html" else evaluation_markdown(page)
