"""The end of an attempt: its outcome, cost and model, and the row of its item."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from work_items import NOW, item, work

from proctor.batch import attempt as attempts
from proctor.batch.attempt import Attempt
from proctor.errors import CostLimit, Interrupted, StoreError, WorkspaceError
from proctor.item import UNCHECKED
from proctor.runner import Outcome
from proctor.session import Message, ModelCall, Note, ToolCall, Usage
from proctor.store import timestamp


def bare(**members):
    """An attempt without what its constructor needs."""
    instance = Attempt.__new__(Attempt)
    for name, value in members.items():
        setattr(instance, name, value)
    return instance


def limit(reason):
    return CostLimit("too much", reason=reason)


FINISHED = [Outcome(), Outcome(status="fail", reason="checks_failed"), Outcome(reason=UNCHECKED)]


@pytest.mark.parametrize("outcome", FINISHED)
def test_an_attempt_that_finished_before_the_batch_halted_counts(outcome):
    assert bare(_limit_reached=None)._within_limits(outcome) is outcome
    assert bare(_limit_reached=limit("halted"))._within_limits(outcome) is outcome
    reached = bare(_limit_reached=limit("cost_limit"))._within_limits(outcome)
    assert (reached.reason, reached.error) == ("cost_limit", "too much")


def test_an_attempt_that_the_limit_cut_off_has_its_reason():
    reached = limit("halted")
    for outcome in (None, Outcome(status="error", reason="agent_failed")):
        ended = bare(_limit_reached=reached)._within_limits(outcome)
        assert (ended.status, ended.reason, ended.error) == (reached.status, "halted", "too much")


@pytest.mark.parametrize(
    ("agent", "details", "outcome", "answer", "status", "reason"),
    [
        ("a", {"expect": {"equals": "Paris"}}, Outcome(), "Paris", "success", "completed"),
        ("a", {"expect": {"equals": "Paris"}}, Outcome(reason=UNCHECKED), "Paris", "success", "completed"),
        ("a", {"expect": {"equals": "Paris"}}, Outcome(), "Rome", "fail", "checks_failed"),
        ("a", {"expect": {"equals": "Paris"}}, Outcome(status="error", reason="x"), "Rome", "error", "x"),
        ("", {"expect": {"equals": "Paris"}}, Outcome(reason=UNCHECKED), "Rome", "success", UNCHECKED),
        ("a", {}, Outcome(reason=UNCHECKED), "Rome", "success", UNCHECKED),
    ],
)
def test_the_last_message_of_an_agent_is_checked_when_all_else_passed(
    agent, details, outcome, answer, status, reason
):
    made = bare(_answer=answer, _recorder=SimpleNamespace(score=lambda score: None))
    checked = made._check_answer(item(agent=agent, details=details), outcome)
    assert (checked.status, checked.reason) == (status, reason)
    assert bool(checked.error) is (status == "fail")


async def run_of(error):
    shut = []

    class Runner:
        async def run(self, item, services):
            if error:
                raise error
            return Outcome(reason="done")

    made = bare(
        _work=work(),
        _support=SimpleNamespace(find_runner=lambda name: Runner()),
        _services=lambda: None,
        _token="token",
        _context=SimpleNamespace(gateway=SimpleNamespace(shut=shut.append)),
    )
    try:
        return await made._run_item()
    finally:
        assert shut == ["token"]
        made._token = ""
        try:
            await made._run_item()
        except StoreError:
            pass
        assert shut == ["token"], "without access there is nothing to shut"


async def test_errors_of_an_attempt_are_its_outcome_except_those_of_the_store():
    assert await run_of(None) == Outcome(reason="done")
    failed = await run_of(WorkspaceError("no tree", reason="workspace_broken"))
    assert (failed.status, failed.reason, failed.error) == ("error", "workspace_broken", "no tree")
    fault = await run_of(KeyError("x"))
    assert (fault.status, fault.reason, fault.error) == ("error", "internal_error", "KeyError: 'x'")
    with pytest.raises(StoreError):
        await run_of(StoreError("full"))


@pytest.mark.parametrize(
    ("cost", "calls", "unpriced", "lost", "called", "stand_in", "spent"),
    [
        (0.5, 1, 0, 0, True, False, 0.5),
        (None, 1, 0, 0, True, False, 0.0),
        (None, 0, 0, 0, True, False, None),
        (None, 0, 0, 0, False, False, 0.0),
        (None, 1, 1, 0, True, False, None),
        (None, 1, 1, 1, True, False, 0.0),
        (None, 1, 2, 1, False, False, None),
        (None, 0, 1, 0, True, True, 0.0),
        (0.0, 0, 1, 0, True, False, 0.0),
    ],
)
def test_what_an_attempt_has_spent_may_be_unknown(cost, calls, unpriced, lost, called, stand_in, spent):
    totals = SimpleNamespace(cost_usd=cost, model_calls=calls, unpriced_calls=unpriced)
    made = bare(_agent_was_called=called, _stand_in=stand_in, _reservation=SimpleNamespace(calls_lost=lost))
    assert made._spent(totals) == spent


@pytest.mark.parametrize(
    ("called", "blind", "stand_in", "used", "answered"),
    [
        (True, True, False, "other", "other"),
        (True, True, False, "m", ""),
        (True, True, False, "", ""),
        (False, True, False, "other", ""),
        (True, False, False, "other", ""),
        (True, True, True, "other", ""),
    ],
)
def test_the_model_that_an_agent_chose_itself(called, blind, stand_in, used, answered):
    made = bare(
        _agent_was_called=called,
        _reservation=SimpleNamespace(is_blind=blind),
        _stand_in=stand_in,
        _recorder=SimpleNamespace(main_model=used),
        _work=work(),
    )
    assert made._answered_model() == answered


def test_the_sums_of_an_item_grow_with_each_attempt():
    ended, closed = [], []
    totals = SimpleNamespace(
        usage=Usage(input_tokens=3, output_tokens=4),
        tool_calls=2,
        cost_usd=0.25,
        model_calls=1,
        unpriced_calls=0,
    )
    clock = SimpleNamespace(work_seconds=5.0, waiting_seconds=1.0, phase_seconds={"agent": 4.0})
    made = bare(
        _recorder=SimpleNamespace(
            end=lambda *end, **more: ended.append((end, more)), totals=totals, main_model=""
        ),
        _clock=clock,
        _reservation=SimpleNamespace(
            close=lambda spent: closed.append(spent) or 0.5, is_blind=False, calls_lost=0
        ),
        _work=work(tokens=10, tool_calls=1, cost_usd=None),
        _agent_was_called=True,
        _stand_in=False,
        _session_id="s",
    )
    made._write_end(Outcome(status="fail", reason="why", error="text"))
    assert (made._work.tokens, made._work.tool_calls, made._work.cost_usd) == (17, 3, 0.25)
    made._write_end(Outcome())
    totals.cost_usd = None
    made._write_end(Outcome())
    assert (made._work.tokens, made._work.cost_usd) == (31, 0.5)
    assert closed == [0.25, 0.25, 0.0]
    assert made._work.spent_usd == 1.5
    assert ended[0] == (
        ("fail", "why", "text"),
        {
            "work_seconds": 5.0,
            "waiting_seconds": 1.0,
            "phase_seconds": {"agent": 4.0},
            "answered_model": "",
        },
    )
    end = made.finished(Outcome())
    assert (end.id, end.session_id, end.tokens, end.cost_usd, end.work_seconds) == ("a", "s", 31, 0.5, 4.0)
    clock.phase_seconds.clear()
    assert made.finished(Outcome()).work_seconds == 5.0


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("status", ["success", "fail"])
def test_the_row_of_an_item_is_final_or_queued_again(waits, status):
    changes = []
    made = bare(
        _work=work(tokens=5, tool_calls=2, cost_usd=0.5, started_at="2026"),
        _support=SimpleNamespace(
            run_id="run", rows=SimpleNamespace(change=lambda *change: changes.append(change))
        ),
        _context=SimpleNamespace(now=lambda: NOW),
        _recorder=SimpleNamespace(line=lambda text: f"line of {text}"),
    )
    made.write_item(
        Outcome(status=status, reason="why", error="text", result={"iterSha": "sha"}), waits=waits
    )
    ((table, key, values),) = changes
    assert (table, key) == ("batch_items", ("run", "a"))
    assert values == {
        "status": "queued" if waits else status,
        "reason": "why",
        "error": "" if status == "success" else "line of text",
        "finishedAt": None if waits else timestamp(NOW),
        "tokensTotal": 5,
        "toolCalls": 2,
        "costUsd": 0.5,
        "merge": "",
        "iterSha": "sha",
    }
    later = timestamp(NOW + timedelta(days=1))
    made._work.started_at = later
    made.write_item(Outcome(), waits=False)
    assert changes[1][2]["finishedAt"] == later, "not before its start"


def test_costs_are_charged_as_they_are_recorded_and_the_last_message_is_kept():
    charged, cut = [], []
    reached = [None, None, limit("cost_limit")]

    def charge(usd):
        charged.append(usd)
        return reached.pop(0)

    recorder = SimpleNamespace(record=lambda event: None, cost_usd=None)
    made = bare(
        _recorder=recorder, _limit_reached=None, _reservation=SimpleNamespace(charge=charge), _answer=""
    )
    made._cut_off = cut.append
    call = ModelCall(model="m", usage=Usage())
    for cost in (None, 0.5, 0.75):
        recorder.cost_usd = cost
        made._record(call)
    assert charged == [0.0, 0.5, 0.75] and [each.reason for each in cut] == ["cost_limit"]
    made._limit_reached = cut[0]
    made._record(call)
    assert len(charged) == 3, "the limit is reached once"
    for event in (
        Message(role="assistant", content="first"),
        Message(role="assistant", content="last"),
        Message(role="user", content="thanks"),
        ToolCall(name="t", args={}, success=True),
        Note(text="n"),
    ):
        made._record(event)
    assert made._answer == "last"
    notes = []
    made._record = notes.append
    made._note("text")
    assert notes == [Note(text="text")]


def test_an_attempt_sees_the_variables_that_its_item_names():
    environment = {"HOME": "/h", "PATH": "/bin", "OPENAI_API_KEY": "k", "MY_SECRET_TOKEN": "t"}
    made = bare(
        _context=SimpleNamespace(environment=environment, home="/store"),
        _work=work(variables={"A": "1", "PATH": "/own"}),
        _session_id="s",
    )
    assert made._environment(item()) == {"HOME": "/h", "PATH": "/own", "A": "1"}
    named = made._environment(item(details={"env": {"X": "${MY_SECRET_TOKEN}"}}))
    assert named["MY_SECRET_TOKEN"] == "t" and "OPENAI_API_KEY" not in named
    assert made._volatile_texts() == ("/store", "s")


@pytest.mark.parametrize(
    ("model", "is_stand_in", "stand_in"), [("m", True, 1), ("m", False, 0), ("", True, 0)]
)
def test_an_attempt_begins_with_a_session_and_a_running_item(model, is_stand_in, stand_in, monkeypatch):
    changes, begun = [], []
    monkeypatch.setattr(attempts, "Recorder", lambda *given: begun.append(given) or "recorder")
    rows = SimpleNamespace(change=lambda *change: changes.append(change))
    made = bare(
        _work=work(item=item(model=model, agent="g"), attempts=2, started_at=None),
        _context=SimpleNamespace(now=lambda: NOW, is_stand_in=lambda name: is_stand_in),
        _support=SimpleNamespace(run_id="run", job="coding", rows=rows, redact=str),
        _session_id="s",
    )
    assert made._begin() == "recorder"
    now = timestamp(NOW)
    row = {
        "runId": "run",
        "itemId": "a",
        "attempt": 2,
        "job": "coding",
        "agent": "g",
        "model": model,
        "standIn": stand_in,
        "status": "running",
        "source": "batch",
        "startedAt": now,
    }
    assert begun[0][:3] == (rows, "s", row) and begun[0][4] is str
    change = {"status": "running", "startedAt": now, "sessionId": "s"}
    assert changes == [("batch_items", ("run", "a"), change)]
    made._work.started_at = "earlier"
    made._begin()
    assert changes[1][2]["startedAt"] == "earlier"


@pytest.mark.parametrize(("reach", "records", "is_opened"), [("gateway", False, True), ("own", True, False)])
async def test_an_agent_gets_access_to_the_gateway_if_it_needs_it(reach, records, is_opened):
    callers = []

    async def open_(caller):
        callers.append(caller)
        return SimpleNamespace(token="token")

    made = bare(
        _record=None,
        _work=work(),
        _clock=SimpleNamespace(waited=None),
        _reservation=SimpleNamespace(),
        _context=SimpleNamespace(home="/store", gateway=SimpleNamespace(open=open_)),
        _session_id="s",
        _token="",
    )
    agent = SimpleNamespace(reach=reach, records_transcript=records)
    access = await made._access(agent)
    assert (access is not None, made._token) == (is_opened, "token" if is_opened else "")
    for caller in callers:
        assert (caller.model, caller.item_id, caller.volatile) == ("m", "a", ("/store", "s"))
        assert caller.reads_traffic is not records


def test_an_error_as_an_outcome():
    assert attempts._as_outcome(Interrupted("stopped")) == Outcome(
        status=Interrupted("x").status, reason="interrupted", error="stopped"
    )
