"""The manual of benchmarks names everything a task file and models_config.yaml may say."""

from pathlib import Path

import pytest

from proctor.jobs.benchmark.models import BatchSettings, ModelEntry
from proctor.plan.validate import names_of
from proctor.tasks.markdown import Header

MANUAL = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*names_of(Header), *names_of(ModelEntry), *names_of(BatchSettings)])
def test_each_setting_is_in_the_manual(name: str) -> None:
    assert f"`{name}`" in MANUAL
