"""Simulations through the library: their page and analysis, the folder of their files, what they refuse."""

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from proctor.batch import lifecycle
from proctor.bootstrap import open_context
from proctor.errors import PlanError, UsageError
from proctor.job import PlanText
from proctor.jobs.dialogue.job import JOB, DialogueOverrides, default_output
from proctor.jobs.dialogue.roles import new_role

CONFIG = """\
clients: [scripted]
therapists: [eliza, scripted]
num_runs: 3
max_turns: 3
seed: 1
"""


@pytest.fixture
def ctx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    with open_context((tmp_path,), home=str(tmp_path / "home")) as context:
        yield context


def read(ctx: Any, folder: Path, text: str = CONFIG, **overrides: Any) -> Any:
    return JOB.read(PlanText(text=text, folder=folder), DialogueOverrides(**overrides), ctx)


def run(ctx: Any, folder: Path, text: str = CONFIG) -> Any:
    return asyncio.run(lifecycle.start(JOB, read(ctx, folder, text), ctx))


def test_the_page_of_a_simulation_has_a_map_for_each_score_and_its_distribution(ctx, tmp_path):
    words = "evaluators: [{name: asks, expect: {contains: most useful}}]\n"
    done = run(ctx, tmp_path, CONFIG + words)

    chart, *rest = JOB.documents(done.run_id, ctx).results().sections

    assert chart.title == "Asks score by client and therapist"
    assert chart.caption.startswith("Mean of the finished dialogues of a combination; 95% CI: ")
    first, second = chart.marks
    assert (first.label, first.n, first.unit) == ("scripted × eliza", 3, "dialogue")
    assert first.items == {"factor": ["client=scripted", "therapist=eliza"]}
    assert (second.label, first.value, second.value) == ("scripted × scripted", 0.0, 1.0)
    assert [section.title for section in rest] == ["Distribution of Asks score"]
    assert "Asks score by client and therapist" in JOB.documents(done.run_id, ctx).analysis()


def test_ratings_at_the_end_of_their_scale_have_an_interval_on_it(ctx, tmp_path):
    (tmp_path / "judge.yaml").write_text('rules: [{reply: \'{"reasoning": "cold", "score": 1}\'}]\n')
    criterion = "{name: warmth, instructions: How warm?, scale: scalar, range: [1, 5], model: scripted/judge}"
    done = run(ctx, tmp_path, f"{CONFIG}evaluators: [{criterion}]\n")

    # Taken for a share, three of three had 0.44 to 1.
    for mark in JOB.documents(done.run_id, ctx).results().sections[0].marks:
        assert (mark.value, mark.low, mark.high) == (1.0, 1.0, 5.0)


def test_without_scores_the_page_shows_the_turns_and_without_dialogues_nothing(ctx, tmp_path):
    done = run(ctx, tmp_path)
    view = JOB.documents(done.run_id, ctx).results()
    assert [section.title for section in view.sections] == ["Number of turns by client and therapist"]
    assert [mark.value for mark in view.sections[0].marks] == [3.0, 3.0]
    ctx.store.create_batch({"runId": "new", "createdAt": "2026", "job": "dialogue", "status": "running"}, [])

    assert not JOB.documents("new", ctx).results().sections
    with pytest.raises(UsageError, match="there is no finished dialogue yet\nThe analysis begins"):
        JOB.documents("new", ctx).analysis()


def test_a_folder_of_results_is_named_for_the_time_and_never_written_over(ctx: Any, tmp_path: Path) -> None:
    done = run(ctx, tmp_path)
    output = Path(done.summary["outputDir"])
    assert output.parent == tmp_path / "outputs" / "batch"
    assert default_output(datetime(2026, 3, 1, 12, 5, 9).astimezone()) == "outputs/batch/2026-03-01_12-05-09"
    again = CONFIG + f"output_dir: {output}\n"
    with pytest.raises(UsageError, match="already contains a simulation"):
        run(ctx, tmp_path, again)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot create the folder"):
        run(ctx, tmp_path, CONFIG + "output_dir: file\n")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("profiles", "the role guest has no profile\n"),
        ("task", "the task `refund` does not fit the role guest: "),
    ],
)
def test_a_role_has_a_person_to_be_and_fits_the_tasks(ctx, tmp_path, change, problem):
    role = tmp_path / "roles" / "guest"
    new_role("guest", role, plays="client")
    text = "clients: [guest]\ntherapists: [eliza]\n"
    if change == "profiles":
        for file in (role / "profiles").iterdir():
            file.unlink()
    else:
        text += "tasks: [{name: refund, goal: Get money., profile: {name: 5}}]\n"

    with pytest.raises(PlanError, match=problem):
        read(ctx, tmp_path, text)
