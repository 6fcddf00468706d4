"""Functions behind commands: sessions in files, folders to analyze, lines about commits, tools."""

import json
from pathlib import Path

import pytest

from proctor.cli.calibrate import _length, _place, session_from
from proctor.cli.report import _find_analysis, _format_of
from proctor.cli.tasks import _line
from proctor.errors import UsageError
from proctor.tasks.history import CommitCandidate, CommitValidation

SESSION = {
    "turns": [
        {"prompt": "one?", "answer": "one word here"},
        {"prompt": "two?", "answer": "five words in this answer"},
    ]
}
SPAN = {
    "traceId": "0" * 31 + "1",
    "spanId": "0" * 15 + "1",
    "name": "chat",
    "startTimeUnixNano": 1,
    "endTimeUnixNano": 2,
    "scope": {"name": "made by hand"},
    "attributes": {"gen_ai.operation.name": "chat", "session.id": "first"},
}


def test_a_session_is_read_from_a_file_of_its_own_or_of_telemetry(tmp_path: Path) -> None:
    file = tmp_path / "session.json"
    for document in (SESSION, {"session": SESSION}):
        file.write_text(json.dumps(document))
        evidence = session_from(None, str(file), None)  # type: ignore[arg-type]
        assert [trace.answer for trace in evidence.traces] == [turn["answer"] for turn in SESSION["turns"]]
    first, second = (trace.id for trace in evidence.traces)
    assert (_place(evidence, first), _place(evidence, second), _place(evidence, "another")) == (0, 1, 0)
    assert (_length(evidence, first), _length(evidence, second), _length(evidence, "all")) == (3, 5, 8)

    lines = [
        SPAN,
        SPAN | {"traceId": "0" * 31 + "2", "attributes": SPAN["attributes"] | {"session.id": "second"}},
    ]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    with pytest.raises(UsageError, match=r"session\.json holds 2 sessions: .*second"):
        session_from(None, str(file), None)  # type: ignore[arg-type]
    file.write_text(json.dumps(SPAN) + "\n")
    assert session_from(None, str(file), None) is not None  # type: ignore[arg-type]
    file.write_text("not json\n")
    with pytest.raises(UsageError, match=r"session\.json: not a valid session"):
        session_from(None, str(file), None)  # type: ignore[arg-type]


def test_a_folder_without_results_cannot_be_analyzed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds nothing to analyze\nIt must be the folder of: "):
        _find_analysis(tmp_path)


def test_a_commit_is_described_by_its_tests_or_by_the_reason_why_it_is_no_task() -> None:
    candidate = CommitCandidate(
        commit="0123456789abcdef",
        parent="",
        title="",
        message="",
        date="",
        tests=(),
        source=(),
        lines=1,
        language="",
    )
    task = CommitValidation(commit="c", state="task", fail_to_pass=("a",), pass_to_pass=("b", "c"))
    assert _line(candidate, task) == "0123456789 task: 1 to fix, 2 to keep"
    flaky = CommitValidation(commit="c", state="flaky", reason="two results\nand more")
    assert _line(candidate, flaky) == "0123456789 flaky: two results"


def test_power_names_the_difference_that_the_results_could_have_shown(proctor) -> None:
    rows = [
        f"t{number},{model},{(number * 7 + len(model)) % 3 // 2}"
        for number in range(30)
        for model in ("a", "bb")
    ]
    (proctor.folder / "results.csv").write_text("task,model,success\n" + "\n".join(rows) + "\n")

    done = proctor("power", "--baseline", "results.csv", "--detect", "0.1")

    assert done.returncode == 0, done.stderr
    assert "results.csv: 30 tasks; it could have shown a difference of " in done.stdout


@pytest.mark.parametrize(
    ("file", "format_"),
    [(None, "md"), ("r.html", "html"), ("r.HTM", "html"), ("r.json", "json"), ("r.md", "md"), ("html", "md")],
)
def test_the_name_of_a_file_decides_the_format_of_a_report(file, format_):
    assert _format_of(file and Path(file)) == format_
