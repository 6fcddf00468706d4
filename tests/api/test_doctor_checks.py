"""Sentences about a tried agent or model, and checks of the machine."""

from pathlib import Path

import pytest

from proctor.api import doctor
from proctor.context import Settings


def test_a_check_fails_only_if_it_is_neither_well_nor_a_remark() -> None:
    well, remark, bad = (doctor.CheckResult(name="n", well=each, said="") for each in (True, None, False))
    assert doctor.all_passed([well, remark]) and not doctor.all_passed([well, bad]) and doctor.all_passed([])


@pytest.mark.parametrize(("mode", "noted"), [(0o700, False), (0o710, True), (0o701, True)])
def test_a_home_that_others_may_enter_is_noted(mode: int, noted: bool, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    home.chmod(mode)
    results = list(doctor.check_store(Settings(home=home, store_url=str(home / "no.db"))))
    assert [(each.name, each.well) for each in results] == ([("home", None)] if noted else [])
    if noted:
        assert results[0].said == f"other users may enter {home} (mode {mode:o})"
