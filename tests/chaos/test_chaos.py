"""A share of the chaos harness: every job is killed and disturbed, and nothing is lost, doubled or overspent.

`make chaos MINUTES=5` does more of it.
"""

from pathlib import Path

import pytest

from chaos.trials import JOBS, Job, Trial
from command_server import CommandServer
from databases import new_database

KINDS = ["file", "postgresql"]
"""Of a store. Jobs take turns: their own part of the store is small."""


@pytest.mark.parametrize(
    ("job", "kind"), [pytest.param(job, KINDS[place % 2], id=job.name) for place, job in enumerate(JOBS)]
)
def test_a_job_that_is_killed_and_disturbed_loses_and_doubles_nothing(
    job: Job, kind: str, tmp_path: Path, command_server: CommandServer, request: pytest.FixtureRequest
) -> None:
    store = new_database(request.getfixturevalue("server")) if kind == "postgresql" else ""

    trial = Trial(job, tmp_path, seed=len(job.name) + len(kind), store=store, server=command_server)
    tally = trial.run(kills=2)

    assert tally.problems == 0, tally.notes
    assert tally.items == job.items
