"""The library with a home of its own for each test."""

import pytest

import proctor


@pytest.fixture
def library(tmp_path, monkeypatch):
    """`proctor` with its home, store and working folder in `tmp_path`."""
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PROCTOR_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return proctor
