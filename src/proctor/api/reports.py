"""Reports of a run, of sessions or of days: Markdown, HTML, HTML with all items, or JSON.

Analyses of a run, as its job makes them, and of the folders that experiments and simulations write.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from proctor.api.deprecated import OLD_NAMES_OF_REPORTS, with_old_names
from proctor.context import RunContext
from proctor.errors import NotFound, UsageError
from proctor.jobs import job_of_run
from proctor.report import as_markdown
from proctor.report.render import document_html
from proctor.results.summary import summarize
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderAnalysis:
    """The analysis of a folder."""

    document: object
    """All of it, as JSON."""
    text: str
    """Its summary."""
    files: Sequence[Path]
    """The files that were written."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Why files of the folder could not be read, by path."""


def analyze_folder(
    folder: Path,
    *,
    report: bool = False,
    metric: str = "",
    by: str = "",
    against: str = "",
    codes: Path | None = None,
) -> FolderAnalysis:
    """Analyze the folder of an experiment or a simulation; the files are written to its folder `analysis`.

    `report`: also write a report; `metric`: only this one; `by`, `against`: the factor of dialogues whose
    effect is estimated, and its baseline level; `codes`: a CSV file with people's values of the `manual`
    metrics of an experiment, which are kept in its folder and enter this analysis and all later ones.
    """
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}\nGive the folder of an experiment or a simulation.")
    if codes is not None:
        from proctor.jobs.scenario.codes import add_codes

        add_codes(folder, codes)
    for patterns, analysis in _ANALYSES.values():
        if any(next(folder.glob(pattern), None) for pattern in patterns):
            return analysis(folder, report, metric, by, against)
    raise UsageError(f"{folder} holds nothing to analyze\nIt must be the folder of: {', '.join(_ANALYSES)}.")


# Each kind needs libraries of its own; only the one in use is loaded.


def _experiment(folder: Path, report: bool, metric: str, *_: str) -> FolderAnalysis:
    from proctor.jobs.scenario.analysis import BatchAnalyzer, analysis_folder, experiment_text
    from proctor.jobs.scenario.codes import coder_agreement

    analyzer = BatchAnalyzer(folder, metric=metric)
    target = analysis_folder(folder, metric)
    files = analyzer.save(target)
    if report:
        from proctor.jobs.scenario.report import write_reports

        files += write_reports(analyzer, target)
    document = {
        name.removesuffix(".json").replace("-", "_"): part for name, part in analyzer.documents().items()
    }
    coders = coder_agreement(folder)
    lines = [experiment_text(document), *(f"{name}: {each}" for name, each in coders.items())]
    if coders:
        document["human_codes"] = {
            name: {
                "coders": each.coders,
                "runs": each.alpha.runs,
                "alpha": each.alpha.value,
                "low": each.alpha.low,
                "high": each.alpha.high,
            }
            for name, each in coders.items()
        }
    return FolderAnalysis(document=document, text="\n".join(lines), files=files)


def _simulation(folder: Path, report: bool, metric: str, by: str, against: str) -> FolderAnalysis:
    from proctor.jobs.dialogue.files import write_json
    from proctor.jobs.dialogue.report import dialogue_files, dialogue_text
    from proctor.jobs.dialogue.tables import Skipped, analysis_document, each_session, folder_rule
    from proctor.jobs.scenario.analysis import analysis_folder
    from proctor.report.render import write_pages

    skipped = Skipped()
    sessions = each_session(folder, failed=True, skipped=skipped)
    rule = folder_rule(folder)
    document = analysis_document(
        sessions, folder.resolve().name, metric, skipped, by=by, against=against, exclude_when=rule
    )
    if document is None:
        raise UsageError(f"there is no finished session in {folder}\nFinish it first, with --resume.")
    target = analysis_folder(folder, metric)
    files = [target / "variance.json"]
    write_json(files[0], document)
    if report:
        files += write_pages(target, dialogue_files(document))
    return FolderAnalysis(document=document, text=dialogue_text(document), files=files, skipped=skipped.files)


_ANALYSES: dict[str, tuple[Sequence[str], Callable[[Path, bool, str, str, str], FolderAnalysis]]] = {
    "experiment": (("runs/var-*", "batch-state.json"), _experiment),
    "simulation": (("batch_summary.json", "*_run[0-9]*.json"), _simulation),
}
"""Each kind of folder: files that only such a folder has, and the function that analyzes it."""
