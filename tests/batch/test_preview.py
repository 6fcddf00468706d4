"""A preview of a plan writes nothing and keeps no file open."""

from pathlib import Path

import pytest

from proctor.batch import lifecycle
from proctor.bootstrap import open_context
from proctor.errors import UsageError
from proctor.job import PlanText, make_overrides
from proctor.jobs import find_job


def preview(folder: Path, text: str) -> lifecycle.Preview:
    job = find_job("coding")
    with open_context([folder], home=str(folder / "home")) as ctx:
        plan = job.read(PlanText(text=text, folder=folder), make_overrides(job, {}), ctx)
        return lifecycle.preview(plan, ctx)


def test_a_plan_that_records_is_previewed_without_its_recording(tmp_path):
    recording = tmp_path / "calls.jsonl"

    preview(tmp_path, f"record: {recording}\nmatrix: [{{prompt: hello, model: scripted/echo}}]")

    assert not recording.exists()


def test_a_recording_that_is_replayed_is_closed_again(tmp_path):
    recording = tmp_path / "calls.jsonl"
    recording.touch()

    preview(tmp_path, f"replay: {recording}\nmatrix: [{{prompt: hello, model: scripted/echo}}]")

    open_files = {link.resolve() for link in Path("/proc/self/fd").iterdir()}
    assert recording not in open_files


def test_a_plan_cannot_record_and_replay(tmp_path):
    text = (
        f"record: {tmp_path / 'a'}\nreplay: {tmp_path / 'b'}\nmatrix: [{{prompt: x, model: scripted/echo}}]"
    )

    with pytest.raises(UsageError):
        preview(tmp_path, text)
