"""Sessions in the formats of other tools, compared with recorded files: no member changes unnoticed.

That the other tools read them is tested with `proctor import` and with the tools' own readers.
"""

import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import UsageError
from proctor.export import atif, harbor, inspect, sessions
from proctor.export.harbor import reward_of
from proctor.score import Score
from proctor.session import Event, Message, ModelCall, Session, Step, TimedEvent, ToolCall, Usage
from recorded_files import check
from whole_events import START, whole_session

RECORDED = Path(__file__).parent / "recorded"


def step(trace_id: str, minute: int, *events: Event, is_timed: bool = True) -> Step:
    at = START + timedelta(minutes=minute)
    timed = [
        TimedEvent(event=event, at=at + timedelta(seconds=number) if is_timed else None)
        for number, event in enumerate(events)
    ]
    return Step(trace_id=trace_id, events=timed)


USAGE = Usage(input_tokens=100, cached_tokens=40, output_tokens=20, reasoning_tokens=5)
FULL = ModelCall(
    model="openai/x",
    usage=USAGE,
    provider="openai",
    cost_usd=0.25,
    price_source="plan",
    latency_ms=1500.0,
    waiting_ms=250.0,
    call_id="m1",
)
BARE = ModelCall(model="openai/x", usage=Usage(input_tokens=10, output_tokens=2))
FAILED = ModelCall(
    model="openai/mini", cost_usd=0.125, status="429", error="too many requests", latency_ms=0.0
)
EDIT = ToolCall(
    name="edit", args={"path": "a.py"}, success=True, result="done", duration_ms=12.5, call_id="t1"
)
AGAIN = ToolCall(name="edit", args={"path": "b.py"}, success=False, result="no" * 600, call_id="t1")
SILENT = ToolCall(name="wait")
TIMED = ToolCall(name="look", duration_ms=0.0)
BROKEN = ToolCall(name="run", success=False, call_id="t9")


def said(text: str, role: str = "assistant", name: str = "") -> Message:
    return Message(role=role, content=text, name=name)  # type: ignore[arg-type]


WHOLE = whole_session(
    external_id="s/1",
    source="proctor",
    task="task/1",
    repeat=2,
    factors={"model": "x"},
    finished_at=START + timedelta(seconds=90.5),
    steps=[
        step(
            "a",
            0,
            said("Be good.", "system"),
            said("Fix it.", "user", "ada"),
            FULL,
            BARE,
            said("I will."),
            EDIT,
        ),
        step(
            "b", 1, AGAIN, SILENT, FAILED, said("tool says", "tool"), TIMED, said("meanwhile", "user"), BROKEN
        ),
        step("c", 2, said("one"), said("two"), BARE, EDIT, FULL, said("Done.", "user"), is_timed=False),
        step("", 3, said(""), FULL),
    ],
    tools=[{"name": "edit", "description": "Edits.", "parameters": {"type": "object"}}, {}],
    scores=[
        Score(evaluator="reward", value=0.5, explanation="half", evaluator_digest="d", cost_usd=0.01),
        Score(evaluator="reward", value=0.0, input_tokens=3, output_tokens=4),
        Score(evaluator="tone", label="good", dimension="warmth", target="a", level="trace"),
        Score(evaluator="tone", value=1.0, dimension="warmth", target="a", level="trace"),
        Score(evaluator="lost", error="no answer", error_code="NO_SPANS"),
        Score(evaluator="empty"),
    ],
)
BRIEF = Session(external_id="s 2", source="otlp", steps=[step("a", 9, said("Hi.", "user"), said("Hello."))])
OTHERS = [
    replace(BRIEF, external_id="3", agent="codex", model="openai/x", finished_at=START),
    replace(
        WHOLE,
        service="other",
        error="",
        status="success",
        started_at=START - timedelta(hours=1),
        steps=WHOLE.steps[:1],
    ),
    replace(BRIEF, external_id="4", status="timeout", error="slow", steps=[]),
    replace(BRIEF, external_id="5", status="error", error="lost", model="local", name="n", started_at=START),
    replace(BRIEF, external_id="x" * 90, agent="a:b", model="m", steps=[step("", 0, SILENT)]),
]
ALL = [WHOLE, BRIEF, *OTHERS]


def content_of(path: Path) -> object:
    """A file, a folder or an archive as one document."""
    if path.is_dir():
        return {file.name: content_of(file) for file in sorted(path.iterdir())}
    if path.suffix == ".eval":
        with zipfile.ZipFile(path) as archive:
            return {name: json.loads(archive.read(name)) for name in archive.namelist()}
    return json.loads(path.read_text("utf-8"))


def exported(module: sessions.Format, folder: Path) -> dict[str, Any]:
    """All that a format writes, by the names of files."""
    out = folder / "out"
    out.mkdir()
    paths = module.write(ALL, out, "run")
    assert sorted(paths) == sorted(out.iterdir())
    return {path.name: content_of(path) for path in paths}


@pytest.mark.parametrize("module", [atif, inspect])
def test_sessions_are_written_as_recorded(module: sessions.Format, tmp_path: Path) -> None:
    document = exported(module, tmp_path)
    check(RECORDED / f"{next(iter(document)).partition('-')[0]}.txt", document)


def test_a_job_of_harbor_has_the_trajectories_of_atif_and_results_as_recorded(tmp_path: Path) -> None:
    (job,) = exported(harbor, tmp_path).values()

    trials = [trial for trial in job.values() if "result.json" in trial]
    trajectories = [trial.pop("agent")["trajectory.json"] for trial in trials]
    (tmp_path / "atif").mkdir()
    whole = exported(atif, tmp_path / "atif").values()
    assert sorted(map(str, whole)) == sorted(str(each) for each in trajectories if each["steps"])
    check(RECORDED / "harbor.txt", job)


def test_spans_are_one_line_for_each_session_in_which_something_happened(tmp_path: Path) -> None:
    (path,) = sessions.write(ALL, tmp_path, "run")
    assert path.name == "otlp-run.jsonl"
    lines = path.read_text("utf-8").splitlines()
    assert len(lines) == len([session for session in ALL if session.steps]) == 6
    assert all(json.loads(line)["resourceSpans"] for line in lines)


def test_sessions_of_two_services_with_one_id_are_two_trials(tmp_path: Path) -> None:
    (job,) = harbor.write(
        [BRIEF, replace(BRIEF, service="b"), replace(BRIEF, log_group="/b")], tmp_path, "run"
    )
    assert len(list(job.glob("*/result.json"))) == 3


def test_summaries_of_many_samples_are_written_in_parts_and_agents_beyond_a_hundred_together(
    tmp_path: Path,
) -> None:
    many = [replace(BRIEF, external_id=f"s{number % 2}") for number in range(201)]
    (path,) = inspect.write(many, tmp_path, "run")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        parts = [json.loads(archive.read(f"_journal/summaries/{number}.json")) for number in (1, 2, 3)]
        header = json.loads(archive.read("header.json"))
    assert [len(part) for part in parts] == [100, 100, 1]
    assert "samples/s0_epoch_101.json" in names and "samples/s1_epoch_100.json" in names
    assert header["results"]["total_samples"] == 201

    agents = [replace(BRIEF, external_id=str(number), agent=f"a{number}") for number in range(102)]
    paths = inspect.write(agents, tmp_path, "agents")
    assert len(paths) == 101
    assert content_of(paths[-1])["header.json"]["results"]["total_samples"] == 2  # type: ignore[index]


def test_a_job_that_exists_already_is_refused(tmp_path: Path) -> None:
    (tmp_path / "harbor-run").mkdir()
    (tmp_path / "work").mkdir()
    with pytest.raises(UsageError, match=r"harbor-run exists already\nRemove it, or give another folder"):
        harbor.write([BRIEF], tmp_path / "work", "run")


@pytest.mark.parametrize(
    ("scores", "status", "reward"),
    [
        ([], "success", 1.0),
        ([], "fail", 0.0),
        ([Score(evaluator="check: a", value=1.0), Score(evaluator="check: b", value=0.0)], "fail", 0.5),
        ([Score(evaluator="check: a", value=1.0), Score(evaluator="hidden tests", value=0.25)], "fail", 0.25),
        ([Score(evaluator="hidden tests", value=0.25), Score(evaluator="reward", value=0.75)], "fail", 0.75),
        ([Score(evaluator="reward", label="good"), Score(evaluator="check: a", value=1.0)], "fail", 1.0),
        ([Score(evaluator="tone", value=0.5)], "success", 1.0),
    ],
)
def test_the_reward_of_a_trial_is_the_first_kind_of_score_that_has_a_value(
    scores: Sequence[Score], status: str, reward: float
) -> None:
    assert reward_of(replace(BRIEF, scores=scores, status=status)) == reward
