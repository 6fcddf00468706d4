"""Trials of a model and of an agent by `doctor`, and which agents and models are listed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.api import doctor, inventory
from proctor.api.doctor import CheckResult, Diagnosis, TrialResult
from proctor.errors import ModelError, UsageError

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


@pytest.mark.parametrize(
    ("options", "before", "names", "tried"),
    [
        ({}, [GOOD], {"model", "agent"}, [("checked", "m"), ("model", "m", True), ("agent", "a")]),
        ({"agent": ""}, [BAD], {"model"}, [("checked", "m"), ("model", "m", True)]),
        ({"access": "own", "model": ""}, [GOOD], {"agent"}, [("agent", "a")]),
        ({"access": "own"}, [GOOD], {"agent"}, [("agent", "a")]),
        ({}, [GOOD, BAD], {"model", "agent"}, [("checked", "m"), ("model", "m", True)]),
        ({"well": False}, [GOOD], {"model", "agent"}, [("checked", "m"), ("model", "m", True)]),
        ({"agent": "", "model": ""}, [], set(), []),
    ],
)
async def test_a_model_is_tried_then_the_agent_unless_a_check_failed(
    options: dict[str, Any], before: Any, names: set[str], tried: Any, trials: Any
) -> None:
    results = await trials(**options).run(before, OBSERVER)
    assert set(results) == names and trials.tried == tried
    if "agent" in names and ("agent", "a") not in tried:
        assert results["agent"].document == {"name": "a", "status": "not tried"}
        assert results["agent"].check.said == "not tested: an earlier check failed"
        assert results["agent"].check.well is None


def test_an_agent_without_a_model_of_its_own_needs_one(trials: Any) -> None:
    with pytest.raises(UsageError, match="the agent a needs a model"):
        trials(model="")


@pytest.mark.parametrize("ready", [True, False])
async def test_an_agent_that_is_not_installed_is_not_tried(
    ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    availability = SimpleNamespace(ready=ready, problem="not installed", remedy="install it")
    tried: list[Any] = []

    def check(name: str, environment: Any) -> Any:
        assert (name, environment) == ("a", {"HOME": "/h"})
        return SimpleNamespace(availability=availability)

    async def try_agent(*arguments: Any) -> str:
        tried.append(arguments)
        return "tried"

    monkeypatch.setattr(doctor, "check_agent", check)
    monkeypatch.setattr(doctor, "try_agent", try_agent)
    each = doctor._Trials.__new__(doctor._Trials)
    each._settings, each._model, each._name = SETTINGS, "m", "a"
    agent: Any = object()
    result: Any = await each._try_agent(agent, OBSERVER)
    if ready:
        assert result == "tried" and tried == [("a", agent, availability, SETTINGS, "m", OBSERVER)]
    else:
        assert tried == [] and result.document == {"name": "a", "status": "missing", "error": "not installed"}
        assert result.check == CheckResult(
            name="agent a", well=False, said="not installed", remedy="install it"
        )


def outcome(**changes: Any) -> Any:
    usual = {"status": "success", "standIn": False, "reason": "completed", "error": "", "seconds": 2.0}
    usual |= {"calls": 1, "failedCalls": [], "tokens": 15, "costUsd": None, "toolCalls": 1, "said": ""}
    return usual | changes


@pytest.mark.parametrize(
    ("changes", "access", "well", "said"),
    [
        ({}, "gateway", True, "1.0; completed the task in 2 s; 1 model call, 15 tokens"),
        ({"calls": 0}, "gateway", False, "1.0; completed the task in 2 s; no model calls"),
        ({"calls": 0}, "own", True, "1.0; completed the task in 2 s"),
        (
            {"status": "fail", "reason": "checks_failed", "said": "done\nnow"},
            "own",
            False,
            "1.0; fail (checks_failed) after 2 s: ; last message: done now",
        ),
    ],
)
async def test_an_agent_that_is_tried_is_well_if_it_used_the_gateway(
    changes: dict[str, Any], access: str, well: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[Any] = []

    async def work(folder: Path, store: Any, *arguments: Any) -> None:
        worked.append(arguments)

    monkeypatch.setattr(doctor, "_work", work)
    monkeypatch.setattr(doctor, "_outcome_of", lambda store: outcome(**changes))
    monkeypatch.setattr(doctor, "model_access_of", lambda agent: access)
    availability: Any = SimpleNamespace(version="1.0")
    settings: Any = "settings"
    agent: Any = None
    result = await doctor.try_agent("a", agent, availability, settings, "m", OBSERVER)
    assert worked == [("settings", "a", "m", OBSERVER)]
    assert (result.check.name, result.check.well, result.check.said) == ("agent a", well, said)
    assert bool(result.check.remedy) is not well
    assert (result.document["name"], result.document["model"], result.document["version"]) == (
        "a",
        "m",
        "1.0",
    )
    availability.version = ""
    assert (await doctor.try_agent("a", agent, availability, settings, "m", OBSERVER)).check.said.startswith(
        "installed; "
    )


def test_the_outcome_of_the_only_attempt() -> None:
    session = {"id": "s", "status": "fail", "standIn": 1, "endReason": "x", "error": "e", "workSeconds": 2.0}
    session |= {"totalTokens": 5, "costUsd": 0.5, "toolCalls": 3}
    parts: dict[str, Any] = {"messages": [], "iterations": []}
    calls = [{"status": "ok", "error": ""}, {"status": "error", "error": "500"}]
    read = SimpleNamespace(
        sessions=lambda scope: [session],
        call_figures=lambda session_id: calls,
        of_session=lambda table, session_id: parts[table],
    )
    store: Any = SimpleNamespace(read=read)
    found = doctor._outcome_of(store)
    assert (found["calls"], found["failedCalls"], found["said"]) == (2, ["error: 500"], "")
    assert (found["standIn"], found["seconds"], found["toolCalls"]) == (True, 2.0, 3)
    parts["iterations"] = [{"output": "first"}, {"output": "a" + "x" * 300 + "\n"}]
    assert doctor._outcome_of(store)["said"] == "x" * 300
    parts["messages"] = [
        {"role": "assistant", "content": "one"},
        {"role": "assistant", "content": "y" * 400},
        {"role": "user", "content": "no"},
    ]
    assert doctor._outcome_of(store)["said"] == "y" * 300


@pytest.mark.parametrize(
    ("reason", "near", "remedy"),
    [
        ("bad_request", "Did you mean `b`?", "Did you mean `b`?"),
        ("bad_request", "", "usual"),
        ("auth", "x", "usual"),
    ],
)
async def test_a_model_with_a_wrong_name_has_neighbors(
    reason: str, near: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []

    class Router:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        async def answer(self, request: Any) -> Any:
            assert request.parameters == {"max_tokens": 16}
            raise ModelError("no", reason=reason)  # type: ignore[arg-type]

        def route(self, name: str) -> Any:
            return SimpleNamespace(endpoint="endpoint")

        async def close(self) -> None:
            closed.append(1)

    async def misses(name: str, environment: Any) -> str:
        return near

    monkeypatch.setattr(doctor, "ModelRouter", Router)
    monkeypatch.setattr(doctor, "_explain", lambda error, endpoint: ("the problem", "usual"))
    monkeypatch.setattr(doctor, "_near_misses", misses)
    settings: Any = SimpleNamespace(environment={}, folders=(), prices=None)
    result = await doctor.try_model("a", settings)
    assert (result.check.well, result.check.said, result.check.remedy) == (False, "the problem", remedy)
    assert result.document == {
        "name": "a",
        "answered": False,
        "reason": reason,
        "error": "no",
        "remedy": remedy,
    }
    assert closed == [1]


async def test_similar_names_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["openai/gpt-4o", "openai/gpt-4.1", "mine/other"]

    async def discover(environment: Any) -> Any:
        return SimpleNamespace(models=[SimpleNamespace(name=name) for name in names])

    monkeypatch.setattr(doctor, "discover", discover)
    assert await doctor._near_misses("openai/gpt-4o", {}) == ""
    assert await doctor._near_misses("nothing", {}) == ""
    found = await doctor._near_misses("openai/gpt-4", {})
    assert found == "Did you mean `openai/gpt-4o` or `openai/gpt-4.1`?"


def test_a_damaged_store_is_a_failed_check_with_its_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from proctor.store import maintenance

    problem = SimpleNamespace(what="damaged", count=1200, examples=["a", "b"], remedy="restore it")
    single = SimpleNamespace(what="one", count=1, examples=[], remedy="delete it")
    result = SimpleNamespace(
        is_well=False, rows={"a": 2, "b": 3}, problems=[problem, single], remarks=["a remark"]
    )
    monkeypatch.setattr(maintenance, "check_store", lambda url, keys, now: result)
    monkeypatch.setattr(doctor, "store_exists", lambda url: True)
    monkeypatch.setattr(doctor, "store_keys", lambda settings: None)
    settings: Any = SimpleNamespace(store_url="u", home=tmp_path / "none")
    found = [(each.well, each.said, each.remedy) for each in doctor.check_store(settings)]
    assert found == [
        (False, "damaged (1,200): a, b", "restore it"),
        (False, "one", "delete it"),
        (None, "a remark", ""),
    ]
    result.is_well, result.problems, result.remarks = True, [], []
    assert [(each.well, each.said) for each in doctor.check_store(settings)] == [
        (True, "5 rows, nothing is damaged")
    ]


@pytest.mark.parametrize(
    ("environment", "ours", "installed", "said"),
    [
        ({}, False, True, None),
        ({}, True, False, None),
        ({}, True, True, "set for {local} (needs none)"),
        ({"OPENAI_API_KEY": "x"}, False, False, "set for openai (OPENAI_API_KEY)"),
    ],
)
def test_which_keys_are_set(
    environment: dict[str, str],
    ours: bool,
    installed: bool,
    said: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor.local, "is_ours", lambda model, environment: ours)
    monkeypatch.setattr(doctor.local, "is_installed", lambda: installed)
    check = doctor._keys(environment)
    if said is None:
        assert check.well is None and check.said.startswith("no API key is set")
    else:
        assert (check.well, check.said) == (True, said.format(local=doctor.local.MODEL))


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


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, ["keys"]),
        ({"store": True}, ["store"]),
        ({"agent": "builtin", "model": "scripted/ok"}, []),
        ({"model": "scripted/ok"}, []),
        ({"model": "scripted/ok", "store": True}, ["store"]),
    ],
)
async def test_keys_are_checked_unless_something_else_is_asked(
    options: dict[str, Any], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    async def check_machine(settings: Any) -> list[CheckResult]:
        return [GOOD]

    async def run(self: Any, checks: Any, make_observer: Any) -> Any:
        assert list(checks) == [GOOD]
        return {"model": TrialResult(BAD, {"name": "m"})}

    monkeypatch.setattr(doctor, "check_machine", check_machine)
    monkeypatch.setattr(doctor, "check_store", lambda settings: called.append("store") or [])
    monkeypatch.setattr(doctor, "check_keys_and_agents", lambda settings: called.append("keys") or [])
    monkeypatch.setattr(doctor._Trials, "run", run)
    diagnosis = await doctor.diagnose(SETTINGS, **options)
    assert called == asked and list(diagnosis.checks) == [GOOD, BAD] and not diagnosis.is_well


def test_models_of_the_config_say_why_they_may_not_answer() -> None:
    def model(name: str, enabled: bool = True, key: str = "") -> Any:
        return SimpleNamespace(model=name, enabled=enabled, key_variable=key)

    models = [
        model("listed"),
        model("llama"),
        model("a"),
        model("b", enabled=False),
        model("c", key="SET"),
        model("d", key="MISSING"),
        model("e", enabled=False, key="MISSING"),
    ]
    discovered = SimpleNamespace(
        models=[SimpleNamespace(name="listed"), SimpleNamespace(name="llama:latest")], silent={"x": "down"}
    )
    supply: Any = SimpleNamespace(
        config=SimpleNamespace(models=models),
        discovered=discovered,
        environment={"SET": "1"},
        config_path="models_config.yaml",
    )
    assert [(name, remark) for name, _, _, remark in inventory._configured(supply)] == [
        ("a", "its provider does not list it"),
        ("b", "not enabled"),
        ("c", "its provider does not list it"),
        ("d", "MISSING is not set"),
        ("e", "not enabled, MISSING is not set"),
    ]
    assert {(source, answers) for _, source, answers, _ in inventory._configured(supply)} == {
        ("models_config.yaml", False)
    }
    supply.discovered = None
    assert len(list(inventory._configured(supply))) == 7
