"""The process of a function that scores: what is said when it cannot start."""

import os
from pathlib import Path

import pytest

from proctor.errors import EvaluatorError
from proctor.evaluators.code import FunctionJob, FunctionProcess, ProcessDied


async def test_a_process_that_cannot_start_says_why(tmp_path: Path) -> None:
    job = FunctionJob(
        function="marks:score",
        folder=tmp_path / "missing",
        environment=(("PATH", os.environ["PATH"]),),
        attempt="a",
        megabytes=100,
    )
    process = FunctionProcess(job)
    with pytest.raises(EvaluatorError, match=r"starting marks:score: .*No such file") as refused:
        await process.connect()
    assert not isinstance(refused.value, ProcessDied)
    assert not process.is_alive
    await process.end()
