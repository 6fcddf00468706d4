"""Limits, rates, errors and restarts of the AWS-compatible interface, without a server."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.errors import UsageError
from proctor.web.agentcore import errors
from proctor.web.agentcore import service as services
from proctor.web.agentcore.errors import ThrottlingException, ValidationException, WireError, validation_error
from proctor.web.agentcore.service import RateBuckets, Service, ServiceLimits, Watch, limits_of
from proctor.web.agentcore.shapes import ShapeProblem

# Limits and rates


def test_the_limits_of_a_server_are_those_of_the_service() -> None:
    limits = ServiceLimits()
    assert (limits.active_jobs, limits.jobs, limits.evaluators, limits.online_configs) == (
        5,
        2000,
        1000,
        1000,
    )
    assert (limits.datasets, limits.dataset_examples, limits.active_recommendations) == (1000, 10_000, 5)
    assert limits.session_timeout_seconds is None
    assert limits.rates == {
        "StartBatchEvaluation": 3,
        "StopBatchEvaluation": 3,
        "DeleteBatchEvaluation": 3,
        "GetBatchEvaluation": 60,
        "ListBatchEvaluations": 60,
    }
    changed = limits_of(
        {
            "start_per_second": 1,
            "stop_per_second": 2,
            "delete_per_second": 4,
            "get_per_second": 5,
            "list_per_second": 6.5,
        }
    )
    assert list(changed.rates.values()) == [1, 2, 4, 5, 6.5]
    assert limits_of({}) == limits and limits_of({"jobs": 0}).jobs == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"active_job": 1},
            r"has no `active_job`\nDid you mean `active_jobs`\? There are: active_jobs, jobs,",
        ),
        ({"zzz": 1}, r"has no `zzz`\nThere are: active_jobs,"),
        ({"jobs": -1}, "^.evaluation.limits.: `jobs` should be a number that is not negative$"),
        ({"jobs": True}, "`jobs` should be a number"),
        ({"jobs": "3"}, "`jobs` should be a number"),
    ],
)
def test_a_limit_that_is_unknown_or_no_number_is_refused(settings: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        limits_of(settings)


def takes(buckets: RateBuckets, operation: str) -> int:
    """How many calls go through until one is refused, or a hundred."""
    for number in range(100):
        try:
            buckets.take(operation)
        except ThrottlingException:
            return number
    return 100


def test_a_rate_is_the_calls_of_one_second_and_fills_again_with_time(clock: Any) -> None:
    buckets = RateBuckets({"Get": 4, "Start": 0.5, "Free": 0}, clock)
    assert [takes(buckets, each) for each in ("Get", "Start", "Free", "Unknown")] == [4, 1, 100, 100]
    clock.forward(seconds=0.5)
    assert (takes(buckets, "Get"), takes(buckets, "Start")) == (2, 0)
    clock.forward(seconds=1.5)
    assert takes(buckets, "Start") == 1
    clock.forward(hours=1)
    assert (takes(buckets, "Get"), takes(buckets, "Start")) == (4, 1)
    clock.forward(hours=-1)
    assert takes(buckets, "Get") == 0
    with pytest.raises(ThrottlingException, match=r"^Rate exceeded: Start takes 0\.5 calls a second\.$"):
        buckets.take("Start")


def test_what_is_left_of_a_rate_is_kept_between_calls(clock: Any) -> None:
    buckets = RateBuckets({"Get": 2}, clock)
    buckets.take("Get")
    clock.forward(seconds=0.25)
    # One and a half are left, and the half is not lost.
    buckets.take("Get")
    assert takes(buckets, "Get") == 0
    clock.forward(seconds=0.25)
    assert takes(buckets, "Get") == 1


# Errors


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("ValidationException", 400),
        ("UnauthorizedException", 401),
        ("ServiceQuotaExceededException", 402),
        ("AccessDeniedException", 403),
        ("ResourceNotFoundException", 404),
        ("UnknownOperationException", 404),
        ("ConflictException", 409),
        ("RequestEntityTooLargeException", 413),
        ("ThrottlingException", 429),
        ("InternalServerException", 500),
    ],
)
def test_the_status_and_name_of_each_error(name: str, status: int) -> None:
    error: WireError = getattr(errors, name)("why")
    assert (error.status, error.kind, str(error), error.body["message"]) == (status, name, "why", "why")
    assert str(getattr(errors, name)("")) == name
    assert len(str(getattr(errors, name)("x" * 10_001))) == 10_000


def test_errors_that_go_by_another_name() -> None:
    assert errors.RoleMissing("x").kind == "AccessDeniedException"
    for kind, status in ((errors.SignatureRefused, 403), (errors.LogsError, 400)):
        error = kind("SomeException", "why")
        assert (error.kind, error.status, error.body) == ("SomeException", status, {"message": "why"})


def test_one_problem_is_its_own_message_and_several_are_counted() -> None:
    problems = [ShapeProblem("a", "Member must be b"), ShapeProblem("c", "Member must be d")]
    text = "Value at '{}' failed to satisfy constraint: Member must be {}"
    one, two = validation_error(problems[:1]), validation_error(problems)
    assert one.body == {
        "message": text.format("a", "b"),
        "reason": "FieldValidationFailed",
        "fieldList": [{"name": "a", "message": "Member must be b"}],
    }
    assert str(two) == (f"2 validation errors detected: {text.format('a', 'b')}; {text.format('c', 'd')}")
    assert len(two.body["fieldList"]) == 2  # type: ignore[arg-type]
    assert ValidationException("x", reason="CannotParse").body == {"message": "x", "reason": "CannotParse"}


def test_two_hundred_problems_are_listed() -> None:
    error = validation_error([ShapeProblem("a", "b")] * 201)
    assert len(error.flaws) == 200 and str(error).startswith("201 validation errors detected: ")
    assert str(error).count("; ") == 199


# Restarts of evaluations


class Process:
    """A process of an evaluation, as `Watch` sees it."""

    def __init__(self) -> None:
        self.exit_code: int | None = None

    def poll(self) -> int | None:
        return self.exit_code


class Started(Service):
    """A service that starts nothing, and remembers what it should have started."""

    def start(self, evaluation_id: str) -> Any:
        process = Process()
        self.__dict__.setdefault("started", []).append((evaluation_id, process))
        return SimpleNamespace(process=process)


@pytest.fixture
def started(operate: Callable[..., Service]) -> Any:
    return Started(operate().site)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """IDs of evaluations without a live owner."""
    ids: list[str] = []

    def found(store: object, now: object, *, only_detached: bool = False) -> list[str]:
        return [each for each in ids if not only_detached or not each.startswith("attached")]

    monkeypatch.setattr(services, "interrupted_evaluations", found)
    return ids


def test_a_server_that_starts_resumes_what_was_interrupted(started: Any, interrupted: list[str]) -> None:
    interrupted += ["attached-1", "b"]
    Watch(started).resume()
    assert [name for name, _ in started.started] == ["attached-1", "b"]


def test_an_evaluation_is_restarted_when_it_is_found_dead_twice(started: Any, interrupted: list[str]) -> None:
    watch = Watch(started)
    interrupted += ["b", "a", "attached-1"]
    watch.restart_dead()
    assert "started" not in vars(started)
    watch.restart_dead()
    assert [name for name, _ in started.started] == ["a", "b"]
    # Their processes are running.
    watch.restart_dead()
    assert len(started.started) == 2
    interrupted.remove("a")
    watch.restart_dead()
    interrupted.append("a")
    for _, process in started.started:
        process.exit_code = 0
    watch.restart_dead()
    assert [name for name, _ in started.started[2:]] == ["b"]
    watch.restart_dead()
    assert [name for name, _ in started.started[3:]] == ["a"]


@pytest.mark.parametrize(("exit_code", "waits"), [(0, False), (1, False), (2, True), (-9, True)])
def test_a_process_that_failed_is_started_again_after_half_a_minute(
    exit_code: int, waits: bool, started: Any, interrupted: list[str], clock: Any
) -> None:
    watch = Watch(started)
    interrupted.append("a")
    watch.resume()
    started.started[0][1].exit_code = exit_code
    clock.forward(seconds=29.9)
    watch.resume()
    assert len(started.started) == (1 if waits else 2)
    clock.forward(seconds=0.1)
    watch.resume()
    assert len(started.started) == 2


def test_an_evaluation_that_keeps_dying_is_restarted_five_times(
    started: Any, interrupted: list[str], clock: Any
) -> None:
    watch = Watch(started)
    interrupted.append("a")
    for _ in range(20):
        watch.restart_dead()
        for _, process in vars(started).get("started", []):
            process.exit_code = 2
        clock.forward(minutes=1)
    assert len(started.started) == 5


def test_a_start_that_was_put_off_is_no_restart(started: Any, interrupted: list[str], clock: Any) -> None:
    watch = Watch(started)
    interrupted.append("a")
    watch.restart_dead()
    watch.restart_dead()
    for _ in range(10):
        watch.restart_dead()
    started.started[0][1].exit_code = 0
    watch.restart_dead()
    assert len(started.started) == 2


def test_arrivals_are_evaluated_and_drift_is_followed(
    started: Any, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    looked: list[Any] = []
    watch = Watch(started)
    monkeypatch.setattr(type(watch._online), "look", lambda _, now: looked.append(("online", now)) or ["a"])
    monkeypatch.setattr(type(watch._drift), "look", lambda _, now: looked.append(("drift", now)))
    watch.evaluate_arrivals()
    watch.follow_drift()
    assert [name for name, _ in started.started] == ["a"]
    assert looked == [("online", clock()), ("drift", clock())]


# Background tasks


class Pauses:
    """Stands for `asyncio.sleep`: remembers the pauses, and ends the third one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds: list[float] = []
        monkeypatch.setattr(services.asyncio, "sleep", self)

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) == 3:
            raise asyncio.CancelledError


async def test_work_is_repeated_after_a_pause_also_when_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses, calls = Pauses(monkeypatch), list[str]()

    def work() -> None:
        calls.append("work")
        # Without pauses it would not end.
        raise ValueError("broken") if len(calls) < 9 else asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await services._repeat(work, 7.0)
    assert pauses.seconds == [7.0] * 3 and len(calls) == 3


async def test_alerts_are_sent_after_a_pause_also_when_that_fails(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses, moments = Pauses(monkeypatch), list[Any]()

    class Alerts:
        async def send(self, now: Any) -> None:
            moments.append(now)
            raise ValueError("broken") if len(moments) < 9 else asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await services._send_alerts(Alerts(), service, 8.0)  # type: ignore[arg-type]
    assert pauses.seconds == [8.0] * 3 and moments == [service.now] * 3


async def test_recommendations_are_computed_when_one_is_started_or_after_a_while(
    operate: Callable[..., Service],
) -> None:
    service = operate(evaluation={"limits": {"take_up_seconds": 0.01}})
    calls: list[bool] = []

    async def compute(_: Service) -> None:
        calls.append(service.recommendation_started.is_set())
        if len(calls) == 1:
            service.recommendation_started.set()
        if len(calls) == 4:
            raise asyncio.CancelledError
        raise ValueError("broken")

    with pytest.raises(asyncio.CancelledError):
        await services._recommend(service, compute)
    # It is taken note of once.
    assert calls == [False] * 4


async def test_background_tasks_end_with_the_server(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    repeated: dict[str, float] = {}
    ended: list[str] = []

    async def repeat(work: Any, seconds: float) -> None:
        repeated[work.__name__] = seconds
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(work.__name__)

    async def recommend(_: Service) -> None:
        repeated["recommend"] = 0

    monkeypatch.setattr(services, "_repeat", repeat)
    async with services.watched(service, recommend):
        while len(repeated) < 4:
            await asyncio.sleep(0)
    assert repeated == {"evaluate_arrivals": 5, "follow_drift": 5, "restart_dead": 15, "recommend": 0}
    assert ended == ["evaluate_arrivals", "follow_drift", "restart_dead"]


# Settings


def test_the_models_of_a_service_are_closed_if_they_were_opened(operate: Callable[..., Service]) -> None:
    closed: list[str] = []

    class Models:
        async def close(self) -> None:
            closed.append("closed")

    service = operate()
    asyncio.run(service.close())
    service.__dict__["models"] = Models()
    asyncio.run(service.close())
    assert closed == ["closed"]


def test_secrets_of_links_differ_between_servers(operate: Callable[..., Service]) -> None:
    one, two = operate(), operate()
    assert len(one.link_secret) == 32 and one.link_secret == one.link_secret != two.link_secret
    assert one.redact("no secret") == "no secret"
    assert (one.names.region, one.names.account) == ("us-east-1", "000000000000")
