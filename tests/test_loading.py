"""Modules are loaded without looking for garbage meanwhile, and all is as before afterwards."""

import gc
import sys

import pytest

from proctor.lazy_import import load

LOOKED = "import gc\nwas_looking = gc.isenabled()\n"


@pytest.fixture
def modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


def test_nothing_is_collected_while_a_module_loads(modules):
    (modules / "loaded_quickly.py").write_text(LOOKED)

    assert load("loaded_quickly").was_looking is False
    assert gc.isenabled()


def test_whoever_does_without_a_collector_goes_on_without(modules):
    (modules / "loaded_without.py").write_text("")
    gc.disable()
    try:
        load("loaded_without")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_module_that_fails_leaves_the_collector_on(modules):
    (modules / "loaded_badly.py").write_text("raise ValueError('no')")
    with pytest.raises(ValueError, match="no"):
        load("loaded_badly")
    assert gc.isenabled()
