"""`proctor analyze` of a simulation."""

from pathlib import Path
from typing import Any

from proctor.cli.report import AnalysisOutput, AnalyzeRequest
from proctor.cli.simulate import print_skipped
from proctor.errors import UsageError
from proctor.jobs.dialogue.files import dialogue_html, dialogue_markdown, dialogue_words, write_json
from proctor.jobs.dialogue.tables import Skipped, each_session, session_row
from proctor.jobs.scenario.analysis import analysis_folder, write_pages
from proctor.stats.dialogue import analysis, told_apart


def analyse(folder: Path, request: AnalyzeRequest) -> AnalysisOutput:
    """Analyze a simulation and write its files."""
    skipped = Skipped()
    document = analyze_folder(folder, request.metric, skipped)
    print_skipped(skipped)
    target = analysis_folder(folder, request.metric)
    files = [target / "variance.json"]
    write_json(files[0], document)
    if request.report:
        markdown, plots = dialogue_markdown(document)
        pages = {"analysis-report.md": markdown, "analysis-report.html": dialogue_html(document)}
        files += write_pages(target, pages | plots)
    return AnalysisOutput(document=document, words=dialogue_words(document), files=files)


def analyze_folder(folder: Path, measure: str = "", skipped: Skipped | None = None) -> dict[str, Any]:
    """The analysis of a simulation's files as one document; of one measure, or of all there are."""
    rows, excluded, mocks = list[dict[str, Any]](), 0, set[str]()
    for session in each_session(folder, failed=True, skipped=skipped):
        if session.get("status", "success") not in ("success", "fail"):
            excluded += 1
            continue
        rows.append(session_row(session))
        if session.get("stand_in"):
            mocks |= {role["model"] for role in session["roles"].values() if role["model"]}
    if not rows:
        raise UsageError(f"there is no finished session in {folder}\nFinish it first, with --resume.")
    return {
        "name": folder.resolve().name,
        "sessions": len(rows),
        "left_out": excluded,
        "unreadable": sorted(skipped.files) if skipped is not None else [],
        "stand_ins": sorted(mocks),
        "measures": analysis(told_apart(rows), measure),
    }
