"""The report of an evaluation job: what its evaluators found, and where to look."""

from proctor.analyse.evaluation import results_of
from proctor.analyse.evaluation_targets import failed_targets, worst_targets
from proctor.batch.evaluation import evaluation_of
from proctor.cli.house import now
from proctor.report.evaluation import EvaluationPage, evaluation_html, evaluation_markdown
from proctor.store import Store


def evaluation_report(store: Store, run_id: str, format_: str) -> str:
    """The report of a job, as Markdown or HTML."""
    results = results_of(store, run_id)
    page = EvaluationPage(
        evaluation=evaluation_of(store, run_id, now(), with_deleted=True),
        results=results,
        worst=[worst_targets(store.read, run_id, each) for each in results.summaries],
        failed=[failed_targets(store.read, run_id, each) for each in results.summaries],
    )
    return evaluation_html(page) if format_ == "html" else evaluation_markdown(page)
