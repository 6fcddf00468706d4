"""Modules are loaded without looking for garbage meanwhile, and all is as before afterward."""

import gc
import sys

import pytest

from proctor.lazy_import import load


def test_nothing_is_collected_while_a_module_loads_and_all_is_as_before_afterward(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    looks = "import gc\nwas_looking = gc.isenabled()\n"
    for name, text in (("quickly", looks), ("without", ""), ("badly", "raise ValueError('no')")):
        (tmp_path / f"loaded_{name}.py").write_text(text)

    assert load("loaded_quickly").was_looking is False
    assert gc.isenabled()
    with pytest.raises(ValueError, match="no"):
        load("loaded_badly")
    assert gc.isenabled()
    gc.disable()
    try:
        load("loaded_without")
        assert not gc.isenabled(), "whoever does without a collector goes on without"
    finally:
        gc.enable()
        for name in ("quickly", "without"):
            sys.modules.pop(f"loaded_{name}", None)
