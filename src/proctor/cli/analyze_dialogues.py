"""What `proctor analyze` says of a simulation."""

from pathlib import Path
from typing import Any

from proctor.cli.report import AnalysisOutput, AnalyzeRequest
from proctor.cli.simulate import tell_skipped
from proctor.errors import UsageError
from proctor.jobs.dialogue.files import dialogue_html, dialogue_markdown, dialogue_words, write_json
from proctor.jobs.dialogue.tables import Skipped, each_session, session_row
from proctor.jobs.scenario.analysis import analysis_folder, write_pages
from proctor.stats.dialogue import analysis, told_apart


def analyse(folder: Path, asked: AnalyzeRequest) -> AnalysisOutput:
    """Analyse a simulation, write its files, and say the whole of it."""
    skipped = Skipped()
    document = analyze_folder(folder, asked.metric, skipped)
    tell_skipped(skipped)
    target = analysis_folder(folder, asked.metric)
    files = [target / "variance.json"]
    write_json(files[0], document)
    if asked.report:
        markdown, plots = dialogue_markdown(document)
        pages = {"analysis-report.md": markdown, "analysis-report.html": dialogue_html(document)}
        files += write_pages(target, pages | plots)
    return AnalysisOutput(document=document, words=dialogue_words(document), files=files)


def analyze_folder(folder: Path, measure: str = "", skipped: Skipped | None = None) -> dict[str, Any]:
    """The analysis of a simulation's files as one document; of one measure, or of all there are."""
    rows, lost, stand_ins = list[dict[str, Any]](), 0, set[str]()
    for session in each_session(folder, failed=True, skipped=skipped):
        if session.get("status", "success") not in ("success", "fail"):
            lost += 1
            continue
        rows.append(session_row(session))
        if session.get("stand_in"):
            stand_ins |= {role["model"] for role in session["roles"].values() if role["model"]}
    if not rows:
        raise UsageError(f"there is no finished session in {folder}\nFinish the simulation first: --resume.")
    return {
        "name": folder.resolve().name,
        "sessions": len(rows),
        "left_out": lost,
        "unreadable": sorted(skipped.files) if skipped is not None else [],
        "stand_ins": sorted(stand_ins),
        "measures": analysis(told_apart(rows), measure),
    }
