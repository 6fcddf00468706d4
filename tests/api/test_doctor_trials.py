"""Trials of a model and of an agent by `doctor`, and which agents and models are listed."""

from types import SimpleNamespace
from typing import Any

import pytest

from proctor.api import doctor
from proctor.api.doctor import CheckResult, Diagnosis, TrialResult

SETTINGS: Any = SimpleNamespace(environment={}, folders=(), prices=None, user_environment={"HOME": "/h"})
OBSERVER: Any = object()
GOOD, BAD = (CheckResult(name="c", well=well, said="") for well in (True, False))


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Trials of an agent and a model; what was tried."""
    tried: list[Any] = []

    def make(agent: str = "a", model: str = "m", access: str = "gateway", well: bool = True) -> Any:
        async def try_model(model: str, settings: Any) -> TrialResult:
            tried.append(("model", model, settings is SETTINGS))
            return TrialResult(CheckResult(name="model", well=well, said=""), {})

        def check(self: Any, model: str) -> None:
            tried.append(("checked", model))

        monkeypatch.setattr(doctor, "find_agent", lambda name, settings: SimpleNamespace(name=name))
        monkeypatch.setattr(doctor, "model_access_of", lambda agent: access)
        monkeypatch.setattr(doctor.ModelRouter, "check", check)
        monkeypatch.setattr(doctor, "try_model", try_model)

        async def try_agent(self: Any, agent: Any, make_observer: Any) -> str:
            tried.append(("agent", agent.name))
            assert make_observer is OBSERVER
            return "tried"

        monkeypatch.setattr(doctor._Trials, "_try_agent", try_agent)
        return doctor._Trials(SETTINGS, agent, model)

    make.tried = tried  # type: ignore[attr-defined]
    return make


def test_a_diagnosis_is_well_if_no_check_failed() -> None:
    remark = CheckResult(name="r", well=None, said="")
    trial = TrialResult(GOOD, {"name": "m"})
    diagnosis = Diagnosis(checks=[remark, GOOD], trials={"model": trial})
    assert diagnosis.is_well and diagnosis.main_check is GOOD
    document = diagnosis.document()
    assert document["well"] is True and document["model"] == {"name": "m"}
    assert [each["name"] for each in document["findings"]] == ["r", "c"]
    failed = Diagnosis(checks=[GOOD, BAD, remark], trials={})
    assert not failed.is_well and failed.main_check is BAD and failed.document()["well"] is False
