"""Reports of a run, of sessions or of days: Markdown, HTML, HTML with all items, or JSON.

Analyses of a run, as its job makes them.
"""

import json

from proctor.api.deprecated import OLD_NAMES_OF_REPORTS, with_old_names
from proctor.context import RunContext
from proctor.errors import NotFound, UsageError
from proctor.jobs import job_of_run
from proctor.report import as_markdown
from proctor.report.render import document_html
from proctor.stats.summary import summarize
from proctor.store import Scope

FORMATS = ("md", "html", "portable", "json")
"""`portable` is one HTML file with all items; it and `json` are about one run."""


def make_report(ctx: RunContext, scope: Scope, format_: str) -> str:
    """A report in one of `FORMATS`: that of the run's job, or the one that every run has."""
    run_id = scope.run_id
    if format_ in ("portable", "json") and not run_id:
        kind = "a JSON" if format_ == "json" else "a portable"
        raise UsageError(f"{kind} report is about one run\nPass --run RUN.")
    if format_ == "json":
        # Loads numpy, which other reports of jobs may not need.
        from proctor.report.render import figures_document

        document = figures_document(summarize(ctx.store.read, scope, ctx.now()))
        document = with_old_names(document, OLD_NAMES_OF_REPORTS)
        return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    text = _page(ctx, scope, "md" if format_ == "md" else "html")
    if format_ == "portable":
        # Loaded here: few reports need it.
        from proctor.report.render import portable

        return portable(text, ctx.store.read, run_id)
    return text


def make_analysis(ctx: RunContext, run_id: str) -> str:
    """The analysis of a run in HTML. Raises `NotFound` if its job has none."""
    batch = ctx.store.read.batch(run_id, ctx.now())
    analysis = job_of_run(batch["job"]).documents(batch["runId"], ctx).analysis
    if analysis is None:
        raise NotFound("this job has no analysis\nSee the report of the run.")
    return analysis()


def _page(ctx: RunContext, scope: Scope, format_: str) -> str:
    render = as_markdown.render if format_ == "md" else document_html
    if scope.run_id:
        job = job_of_run(ctx.store.read.batch(scope.run_id, ctx.now())["job"])
        if (report := job.documents(scope.run_id, ctx).report) is not None:
            return render(report())
    # Loads numpy, which reports of jobs may not need.
    from proctor.report.run_report import run_report

    return render(run_report(summarize(ctx.store.read, scope, ctx.now())))
