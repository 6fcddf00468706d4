"""Results of tau-bench, and PatientHub's sessions, as sessions."""

import pytest
from records_by_hand import (
    model_calls,
    only,
    patienthub,
    problems,
    sessions,
    spoken,
    tau2,
    tau_run,
    tool_calls,
    write_json,
)

from proctor.records import find_kind, recognized
from proctor.score import Score
from proctor.session import Session

FILE = "tool-calling-gpt-4o-0.0_range_0--1_user-gpt-4o-llm_0301.json"


def test_each_run_of_tau_bench_is_a_session_with_its_reward(tmp_path):
    old = tau_run(3, 1.0)
    old["traj"][2] |= {"tool_calls": [], "function_call": {"name": "get_order", "arguments": '{"id": "W1"}'}}
    crashed = tau_run(5, 0.0) | {"info": {"error": "rate limited", "traceback": "…"}}
    path = write_json(tmp_path / FILE, [old, tau_run(4, 0.0), crashed, {"task_id": 1, "reward": 0}])

    passed, failed, broken = (each for each in find_kind("tau-bench").read(path) if isinstance(each, Session))

    assert problems("tau-bench", path) == [f"{path}: run 4: it has no `traj`"]
    assert (passed.status, failed.status, failed.end_reason) == ("success", "fail", "checks_failed")
    assert passed.scores == [Score(evaluator="reward", value=1.0)]
    assert failed.scores == [Score(evaluator="reward", value=0.0)]
    assert (broken.status, broken.error) == ("error", "rate limited")
    # Who it was is in the name of the file.
    assert (passed.agent, passed.model) == ("tool-calling", "gpt-4o")
    assert [(call.name, call.args) for call in tool_calls(passed)] == [("get_order", {"id": "W1"})]


@pytest.mark.parametrize(
    ("trial", "repeat"),
    [(0, 1), (4, 5), ("", None), ("x", None), (999_999_999, 10**9), ("1" * 10, None), (-1, None)],
)
def test_trials_are_counted_from_0(tmp_path, trial, repeat):
    session = only("tau-bench", write_json(tmp_path / FILE, [tau_run() | {"trial": trial}]))

    assert session.repeat == repeat


@pytest.mark.parametrize(
    ("reward", "status"),
    [(None, "success"), (1, "success"), (1 - 1e-7, "success"), (0.999, "fail"), (0, "fail")],
)
def test_a_reward_of_1_is_a_pass(tmp_path, reward, status):
    assert only("tau-bench", write_json(tmp_path / FILE, [tau_run(reward=reward)])).status == status


@pytest.mark.parametrize(
    ("more", "calls"),
    [
        ({}, []),
        ({"cost": 0}, []),
        ({"cost": 0.5}, [(0.5, 0)]),
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 2}}, [(None, 5)]),
        ({"usage": {"prompt_tokens": 3, "completion_tokens": 2}, "cost": 0}, [(0, 5)]),
    ],
)
def test_a_call_is_recorded_if_its_cost_or_its_tokens_are_known(tmp_path, more, calls):
    document = tau2()
    document["simulations"][0]["messages"] = [{"role": "assistant", "content": "hi", **more}]

    found = model_calls(only("tau-bench", write_json(tmp_path / "results.json", document)))

    assert [(call.cost_usd, call.usage.total_tokens) for call in found] == calls


def test_a_simulation_without_messages_or_an_end_says_so(tmp_path):
    document = tau2()
    (simulation,) = document["simulations"]
    del simulation["end_time"]
    simulation |= {"trial": 1, "termination_reason": "user_error"}
    simulation["messages"][-1]["timestamp"] = "2026-03-01T10:00:30"
    session = only("tau-bench", write_json(tmp_path / "results.json", document))
    assert (session.name, session.task, session.repeat) == ("task roaming, trial 1", "roaming", 2)
    assert (session.status, session.end_reason, session.error) == ("error", "model_failed", "user_error")
    assert (session.finished_at - session.started_at).total_seconds() == 30
    assert session.attributes["user_model"] == "gpt-4.1-mini" and session.factors == {"domain": "telecom"}

    simulation |= {"messages": [], "policy": "own", "termination_reason": "max_steps"}
    empty = only("tau-bench", write_json(tmp_path / "results.json", document))
    assert spoken(empty) == [("system", "own")] and (empty.status, empty.error) == ("fail", "")
    assert empty.notes == ["it has no messages: what was spoken is not read"]


def test_tau2s_results_in_pieces_are_read_as_one_folder(tmp_path):
    whole = tau2()
    (simulation,) = whole.pop("simulations")
    write_json(tmp_path / "results.json", whole)
    write_json(tmp_path / "simulations" / "sim-1.json", simulation)
    (tmp_path / "simulations" / "sim-2.json").write_text("{")

    assert recognized(tmp_path).kind == "tau-bench"
    assert [
        problem.startswith(str(tmp_path / "simulations" / "sim-2.json"))
        for problem in problems("tau-bench", tmp_path)
    ] == [True]
    (tmp_path / "simulations" / "sim-2.json").unlink()
    assert only("tau-bench", tmp_path).model == "gpt-4.1"


def test_a_file_written_twice_holds_two_sessions_and_the_first_stays_itself(tmp_path):
    path = tmp_path / "out" / "s.json"
    before = only("patienthub", write_json(path, patienthub()))

    first, second = sessions("patienthub", write_json(path, [patienthub(), patienthub()]))

    assert (first.external_id, second.external_id) == (before.external_id, "out/s#2")


def test_a_session_of_a_file_that_cannot_be_read_is_named_by_its_place(tmp_path):
    path = write_json(tmp_path / "s.json", [patienthub(), {"messages": 3}])

    (problem,) = problems("patienthub", path)

    assert "session 2: " in problem


def test_our_own_simulations_files_are_read_with_their_scores_and_roles(tmp_path):
    document = patienthub() | {
        "client": "patientPsi",
        "therapist": "CBT",
        "run_id": 0,
        "status": "success",
        "end_reason": "max_turns",
        "under_test": "client",
        "roles": {"client": {"model": "scripted/a"}, "therapist": {"model": "scripted/b"}},
        "scores": [{"evaluator": "safety", "value": 1.0, "digest": "d1", "level": "session"}],
        "record": {"session_id": "s-9", "started_at": "2026-03-01T10:00:00+00:00"},
    }

    session = only("patienthub", write_json(tmp_path / "p.json", document))

    assert (session.external_id, session.agent, session.model) == ("s-9", "patientPsi", "scripted/a")
    assert spoken(session)[0] == ("user", "What brings you here?")
    assert session.scores == [Score(evaluator="safety", value=1.0, evaluator_digest="d1")]
    assert session.end_reason == "max_turns"
