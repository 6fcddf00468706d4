"""The page on dialogues names every key, role, step and rubric there is."""

import re
from pathlib import Path

from proctor.dialogue.steps import KINDS
from proctor.jobs.dialogue.plan import read_simulation
from proctor.jobs.dialogue.roles import ROLE_KEYS, Roles
from proctor.jobs.dialogue.schema import CONFIG_KEYS
from proctor.judging import rubric_names

PAGE = (Path(__file__).parents[1] / "docs" / "dialogues.md").read_text(encoding="utf-8")


def test_each_name_is_on_the_page() -> None:
    for names in (CONFIG_KEYS, ROLE_KEYS, KINDS, Roles().names(), rubric_names()):
        assert names
        assert [name for name in names if f"`{name}`" not in PAGE] == []


def test_the_config_on_the_page_can_be_read(tmp_path: Path) -> None:
    config = next(text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "clients:" in text)

    simulation = read_simulation(config, {}, file="page", folder=tmp_path, roles=Roles())

    assert simulation.item_count == 40


def test_the_evaluators_on_the_page_can_be_read(tmp_path: Path) -> None:
    judged = next(text for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "passes_at" in text)

    simulation = read_simulation(judged, {}, file="page", folder=tmp_path, roles=Roles())

    assert len(simulation.evaluators) == 9
    names = [each["name"] for each in simulation.evaluators_by_name]
    assert names == ["Builtin.Helpfulness", "manners:thanks", "evaluators/warmth.yaml"]
