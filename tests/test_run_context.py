"""What a run gets from its context: models, evaluators, a store, people, and pauses between attempts."""

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proctor import context
from proctor.context import (
    EngineOptions,
    Functions,
    ItemRetryPolicy,
    ModelOptions,
    Notice,
    RunContext,
    Settings,
    make_models,
    no_evaluators,
)
from proctor.errors import NotFound, UsageError
from proctor.job import Job, JobPlan, read_stop_rule
from proctor.models.recording import Recording, Replay
from proctor.store import Store
from proctor.store.keys import Keys

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def settings(folder: Path, **changes: Any) -> Settings:
    usual: dict[str, Any] = {"home": folder / "home", "store_url": str(folder / "home" / "proctor.db")}
    return Settings(**usual | changes)


def run_context(folder: Path, **changes: Any) -> tuple[RunContext, list[Notice]]:
    notices: list[Notice] = []
    usual: dict[str, Any] = {"owner": "me", "now": lambda: NOW, "monotonic": lambda: 0.0, "keys": Keys}
    usual |= {
        "settings_for": lambda folders: settings(folder, folders=tuple(folders)),
        "notice": notices.append,
    }
    return RunContext(changes.pop("settings", settings(folder)), **usual | changes), notices


# --- Pauses ---


@pytest.mark.parametrize(
    ("tries", "longest"), [(1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (20, 60.0)]
)
def test_the_pause_before_another_attempt_doubles_up_to_a_minute(tries: int, longest: float) -> None:
    policy = ItemRetryPolicy()
    delays = [
        policy.delay(
            status="error", reason="x", tries=tries, retries=20, retry_on=("error",), rng=random.Random(seed)
        )
        for seed in range(200)
    ]
    assert all(delay is not None and longest / 2 <= delay <= longest for delay in delays)
    spread = [delay for delay in delays if delay is not None]
    assert min(spread) < 0.55 * longest and max(spread) > 0.95 * longest


@pytest.mark.parametrize(
    ("changes", "is_retried"),
    [
        ({}, True),
        ({"tries": 2}, True),
        ({"tries": 3}, False),
        ({"retries": 0}, False),
        ({"status": "fail"}, False),
        ({"status": "fail", "retry_on": ("fail", "error")}, True),
        *(({"reason": reason}, False) for reason in sorted(context.NOT_RETRIED)),
    ],
)
def test_which_attempts_are_repeated(changes: dict[str, Any], is_retried: bool) -> None:
    usual: dict[str, Any] = {
        "status": "error",
        "reason": "x",
        "tries": 1,
        "retries": 2,
        "retry_on": ("error",),
    }
    delay = ItemRetryPolicy().delay(**usual | changes, rng=random.Random(1))
    assert (delay is not None) is is_retried


# --- Models ---


def test_options_of_models_are_read_from_a_plan_and_from_a_run() -> None:
    plan = {
        "prices": {"m": {"input": 1.0}},
        "record": "r",
        "replay": "",
        "outage_patience": 5,
        "sandbox": "x",
    }
    folders = [Path("f")]
    options = ModelOptions.of_plan(plan, folders)
    assert (options.record, options.replay, options.outage_patience_seconds) == ("r", None, 5)
    assert (options.prices, options.sandbox, options.folders) == ({"m": {"input": 1.0}}, "x", folders)
    stored = options.stored()
    assert stored == {
        "prices": {"m": {"input": 1.0}},
        "record": "r",
        "replay": None,
        "outagePatience": 5,
        "sandbox": "x",
    }
    assert ModelOptions.restored(stored, folders) == options
    assert ModelOptions().stored() == {"prices": None, "record": None, "replay": None}
    assert ModelOptions.of_plan({"outage_patience": 0}, ()).stored()["outagePatience"] == 0
    assert ModelOptions.of_plan({"outagePatience": 3}, ()).outage_patience_seconds is None
    assert ModelOptions.restored({"outage_patience": 3}, ()).outage_patience_seconds is None


def test_traffic_is_recorded_or_replayed_and_not_both(tmp_path: Path) -> None:
    file = tmp_path / "traffic.ndjson"
    here = settings(tmp_path)
    with pytest.raises(UsageError, match="record and replay exclude each other"):
        make_models(here, ModelOptions(record="a", replay="b"))
    assert make_models(here, ModelOptions()).recording is None
    unrecorded = make_models(here, ModelOptions(record=str(file)), records=False)
    assert unrecorded.recording is None and not file.exists()
    recorded = make_models(here, ModelOptions(record=str(file)))
    assert isinstance(recorded.recording, Recording)
    recorded.recording.close()
    # A replay writes nothing: a check may read it, too.
    for records in (True, False):
        replayed = make_models(here, ModelOptions(replay=str(file)), records=records)
        assert isinstance(replayed.recording, Replay) and replayed.is_replayed
        replayed.recording.close()


def test_functions_answer_for_the_models_of_their_names(tmp_path: Path) -> None:
    assert not Functions()
    for name in ("agents", "models", "evaluators"):
        assert Functions(**{name: {"a": lambda *_: "x"}})
    router = make_models(
        settings(tmp_path), ModelOptions(), functions=Functions(models={"mine": lambda _: "x"})
    )
    router.check("mine")
    with pytest.raises(UsageError):
        make_models(settings(tmp_path), ModelOptions()).check("mine")


# --- Jobs and rules ---


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("model", "`model` is not NAME=VALUE"),
        ("width=0.1,by", "`by` is not NAME=VALUE"),
        ("widht=0.1", r"`stop_when\.widht`: .*\nIt may have: .*width"),
        ({"width": "wide"}, r"`stop_when\.width`: "),
    ],
)
def test_a_rule_that_is_none_is_refused(given: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        read_stop_rule(given)


def test_a_rule_is_read_from_text() -> None:
    assert read_stop_rule("") is None and read_stop_rule(None) is None
    rule = read_stop_rule("by=model, width=0.1,scale=0:5")
    assert rule is not None and (rule.by, rule.width, tuple(rule.scale or ())) == ("model", 0.1, (0, 5))
    assert read_stop_rule({"by": "model", "width": 0.1, "scale": (0, 5)}) == rule


@pytest.mark.parametrize(
    ("factors", "by"),
    [(["agent", "model"], "model"), (["task", "agent"], "agent"), (["task"], None), ([], None)],
)
def test_a_run_without_a_rule_can_decide_which_model_or_agent_is_best(
    factors: list[str], by: str | None
) -> None:
    class Bare(Job):
        name = "bare"

    rule = Bare().decision_rule(factors)
    assert (rule and (rule.by, rule.ranks)) == (by and (by, 1))
    assert not Bare().has_turns and JobPlan().concurrency == 1 and JobPlan().item_count is None
    bare: Any = Bare()
    for name, arguments in (
        ("recognizes", [""]),
        ("schema", []),
        ("read", [None] * 3),
        ("restore", [None] * 2),
    ):
        with pytest.raises(Exception, match=name):
            getattr(bare, name)(*arguments)


# --- The context ---


def test_a_store_is_opened_once_and_closed_by_the_context_that_opened_it(tmp_path: Path) -> None:
    ctx, _ = run_context(tmp_path)
    ctx.close()
    assert not ctx.has_store and not (tmp_path / "home").exists()
    store = ctx.store
    assert ctx.store is store and ctx.has_store and ctx.home == tmp_path / "home"
    assert (tmp_path / "home").stat().st_mode & 0o077 == 0
    closed: list[int] = []
    store.close, close = lambda: closed.append(1), store.close  # type: ignore[method-assign]
    ctx.close()
    assert closed == [1]
    close()
    again, _ = run_context(tmp_path)
    assert again.has_store
    with Store(str(tmp_path / "other.db")) as given:
        given_to, _ = run_context(tmp_path / "elsewhere", store=given)
        assert given_to.store is given and given_to.has_store
        given.close, close = lambda: closed.append(2), given.close  # type: ignore[method-assign]
        given_to.close()
        assert closed == [1]
        given.close = close  # type: ignore[method-assign]
    with ctx.scratch_store(tmp_path) as scratch:
        assert scratch.url.endswith("scratch.db")


def test_messages_are_notes_or_information(tmp_path: Path) -> None:
    ctx, notices = run_context(tmp_path)
    ctx.note("a")
    ctx.info("b")
    assert notices == [Notice("a", "note"), Notice("b", "info")]
    assert ctx.engine == EngineOptions("local", "auto")


def test_settings_of_other_folders_are_read_anew(tmp_path: Path) -> None:
    here = settings(tmp_path, folders=(Path("a"),))
    ctx, notices = run_context(tmp_path, settings=here)
    assert ctx.settings_for([Path("a")]) is here
    assert ctx.settings_for([Path("b")]).folders == (Path("b"),)
    router = ctx.models(ModelOptions(folders=[Path("a")]))
    assert router.pools.notify is not None
    router.pools.notify("waiting")
    assert notices == [Notice("waiting", "info")]


def test_attempts_wait_for_providers_and_hold_money_for_each_try(tmp_path: Path) -> None:
    here = settings(
        tmp_path, store_budget_usd=3.0, environment={"KEY": "1"}, user_environment={"HOME": str(tmp_path)}
    )
    ctx, _ = run_context(tmp_path, settings=here, settings_for=lambda folders: here)
    models = ctx.models(ModelOptions())
    assert not models.pools.waits_for_outages
    attempts = ctx.attempts(models)
    assert models.pools.waits_for_outages and not models.pools.repeats_billed
    assert (attempts.home, attempts.environment) == (tmp_path / "home", {"KEY": "1"})
    assert attempts.store_budget_usd == 3.0 and attempts.pools is models.pools
    assert attempts.is_stand_in("scripted/ok") and not attempts.is_stand_in("openai/gpt-4o")
    assert ctx.with_evaluators(attempts, [], folder=tmp_path) is attempts
    with pytest.raises(NotFound, match="there is no evaluator polite here"):
        no_evaluators("polite", {}, models)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "hidden", "files"),
    [
        ("", (Path("/hidden"),), [Path("/hidden")]),
        ("postgresql://host/db", (Path("/hidden"),), [Path("/hidden")]),
        ("/s/proctor.db", (), [Path(f"/s/proctor.db{end}") for end in ("", "-wal", "-shm")]),
    ],
)
def test_programs_do_not_see_the_files_of_the_store(url: str, hidden: Any, files: list[Path]) -> None:
    here = Settings(
        home=Path("/home-of-it"), store_url=url, hidden_files=hidden, user_environment={"HOME": "/u"}
    )
    assert list(here.store_files) == files
    sandbox = here.confinement
    assert list(sandbox.hidden) == [Path("/home-of-it"), Path("/u"), *files]
    assert sandbox.user_home == Path("/u")
    assert Settings(home=Path("/h"), store_url="").confinement.user_home == Path("/")


# --- Questions to people ---


class Questions:
    """A store that answers after so many questions for the answer."""

    def __init__(self, after: int) -> None:
        self.after, self.polls, self.calls = after, 0, list[Any]()

    def ask_question(self, *arguments: Any) -> str:
        self.calls.append(arguments)
        return "q1"

    def answer_of(self, run_id: str, question: str) -> str | None:
        assert (run_id, question) == ("r", "q1")
        self.polls += 1
        return "yes" if self.polls > self.after else None

    def withdraw_question(self, run_id: str, question: str) -> None:
        self.calls.append(("withdrawn", run_id, question))
