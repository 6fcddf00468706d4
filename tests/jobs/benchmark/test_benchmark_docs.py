"""The manual of benchmarks names everything a task file and models_config.yaml may say."""

from pathlib import Path

from proctor.jobs.benchmark.models import BatchSettings, ModelEntry
from proctor.plan.validate import names_of
from proctor.tasks.markdown import Header

MANUAL = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text(encoding="utf-8")


def test_each_setting_is_in_the_manual() -> None:
    for part in (Header, ModelEntry, BatchSettings):
        names = names_of(part)
        assert names
        assert [name for name in names if f"`{name}`" not in MANUAL] == []
