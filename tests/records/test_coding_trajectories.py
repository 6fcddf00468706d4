"""SWE-agent's, mini-swe-agent's and ATIF's trajectories as sessions."""

import pytest
from records_by_hand import (
    atif,
    events,
    mini_swe_agent,
    model_calls,
    only,
    order,
    problems,
    sessions,
    spoken,
    swe_agent,
    told,
    tool_calls,
    write_json,
)

from proctor.score import Score
from proctor.session import ToolCall, Usage


def test_trajectories_of_one_task_in_two_experiments_are_two_sessions(tmp_path):
    paths = (write_json(tmp_path / name / "t-1" / "t-1.traj", swe_agent()) for name in ("gpt", "claude"))

    assert [only("swe-agent", path).external_id for path in paths] == ["gpt/t-1", "claude/t-1"]


def test_actions_of_old_are_its_own_commands_or_the_shells_or_no_commands(tmp_path):
    document = swe_agent()
    document["history"] = document["history"][:3]
    document["trajectory"][1]["action"] = "python a.py\n"
    document["trajectory"].append({"action": " ", "response": "Hm.", "observation": "Use one command."})

    session = only("swe-agent", write_json(tmp_path / "t.traj", document))

    assert [(call.name, call.args) for call in tool_calls(session)] == [
        ("find_file", {"command": "find_file a.py"}),
        ("bash", {"command": "python a.py\n"}),
    ]
    assert spoken(session)[-2:] == [("assistant", "Hm."), ("tool", "Use one command.")]


@pytest.mark.parametrize(
    ("said", "status", "reason"),
    [
        ("submitted", "success", "completed"),
        ("submitted (exit_cost)", "fail", "cost_limit"),
        ("exit_context", "fail", "context_overflow"),
        ("exit_api", "error", "model_failed"),
        ("exit_total_execution_time", "timeout", "timeout"),
        ("odd", "fail", "agent_failed"),
        (None, "error", "interrupted"),
    ],
)
def test_how_swe_agent_ended_is_told_in_our_words(tmp_path, said, status, reason):
    document = swe_agent()
    document["info"]["exit_status"] = said

    session = only("swe-agent", write_json(tmp_path / "t.traj", document))

    assert (session.status, session.end_reason) == (status, reason)


@pytest.mark.parametrize(
    ("report", "document", "resolved"),
    [
        ("exp/t-1/report.json", {"t-1": {"resolved": True}}, True),
        ("exp/results.json", {"resolved_ids": ["t-1"], "submitted_ids": ["t-1"]}, True),
        ("exp/results.json", {"resolved_ids": ["other"]}, False),
        ("exp/t-1/results.json", {"resolved": ["t-1"]}, True),
        ("exp/t-1/report.json", {"t-1": {"resolved": False}}, False),
    ],
)
def test_whether_it_was_resolved_comes_from_the_report_beside_it(tmp_path, report, document, resolved):
    path = write_json(tmp_path / "exp" / "t-1" / "t-1.traj", swe_agent())
    write_json(tmp_path / report, document)

    session = only("swe-agent", path)

    assert session.scores == [Score(evaluator="resolved", value=float(resolved))]
    assert session.status == ("success" if resolved else "fail")


@pytest.mark.parametrize(
    ("stats", "costs", "notes"),
    [
        ({"tokens_sent": 5, "tokens_received": 6, "instance_cost": 0.5, "api_calls": 1}, [0.5], 0),
        ({"tokens_sent": 5, "instance_cost": 0, "api_calls": 2}, [None], 1),
        ({"instance_cost": 0.5}, [0.5], 0),
        ({"api_calls": 5}, [], 0),
    ],
)
def test_the_sums_of_a_run_come_first_if_it_has_any(tmp_path, stats, costs, notes):
    document = swe_agent()
    document["info"]["model_stats"] = stats

    session = only("swe-agent", write_json(tmp_path / "t.traj", document))

    calls = model_calls(session)
    assert events(session)[: len(calls)] == calls
    assert [(call.cost_usd, call.price_source, call.usage.input_tokens) for call in calls] == [
        (cost, "" if cost is None else "agent", stats.get("tokens_sent", 0)) for cost in costs
    ]
    assert len(session.notes) == notes


def test_a_history_without_a_trajectory_is_told_message_by_message(tmp_path):
    called = {"id": "1", "function": {"name": "f", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "demo", "is_demo": True},
        {"role": "user", "content": "fix it", "action": "ls"},
        {"role": "assistant", "content": "look", "action": "ls -l"},
        {"role": "tool", "content": "a.txt", "tool_call_ids": [""]},
        {"role": "assistant", "content": "call", "action": "ls", "tool_calls": [called]},
        {"role": "assistant", "content": "done", "action": " "},
    ]
    document = {"trajectory": [], "history": history, "info": {}}

    session = only("swe-agent", write_json(tmp_path / "t.traj", document))

    assert told(session) == [
        ("user", "fix it"),
        ("assistant", "look"),
        ("call", "bash", "a.txt", None),
        ("assistant", "call"),
        ("call", "f", "", None),
        ("assistant", "done"),
    ]
    assert (session.status, session.end_reason) == ("success", "completed")


def test_of_several_attempts_the_chosen_one_is_told(tmp_path):
    document = {**swe_agent(), "attempts": [swe_agent(), swe_agent()]}
    waiting = {"attempts": [swe_agent()]}

    chosen = only("swe-agent", write_json(tmp_path / "a.traj", document))
    last = only("swe-agent", write_json(tmp_path / "b.traj", waiting))

    assert "the one of 2 attempts that was chosen" in chosen.notes
    assert len(tool_calls(last)) == 2


def test_mini_swe_agents_first_generation_had_its_commands_in_the_text(tmp_path):
    said = "Let me see.\n\n```bash\nls\n```"
    result = "<returncode>0</returncode>\n<output>\na.py\n</output>"
    messages = [
        {"role": "system", "content": "Rules."},
        {"role": "user", "content": "Task."},
        {"role": "assistant", "content": said},
        {"role": "user", "content": result},
        {"role": "assistant", "content": "Done."},
    ]

    session = only("mini-swe-agent", write_json(tmp_path / "old.traj.json", messages))

    assert order(session) == ["suaTa"]
    assert tool_calls(session) == [ToolCall(name="bash", args={"command": "ls"}, success=True, result=result)]


def test_results_of_commands_follow_the_message_with_the_commands(tmp_path):
    acted = {"role": "assistant", "content": "", "extra": {"actions": [{"command": "a"}, {"command": "b"}]}}
    failed = {"role": "user", "content": " <returncode>1</returncode>"}
    noted = {"role": "user", "content": "seen", "extra": {"returncode": 0}}
    plain = {"role": "user", "content": "go on"}
    document = mini_swe_agent() | {"messages": [failed, acted, plain, failed, noted, failed, plain]}
    answer = mini_swe_agent()["messages"][2]
    document["messages"].append({"role": "user", "content": "Use one command.", "extra": answer["extra"]})

    session = only("mini-swe-agent", write_json(tmp_path / "t.traj.json", document))

    assert spoken(session).pop() == ("tool", "Use one command.")
    assert [call.model for call in model_calls(session)] == ["gpt-4o"]

    assert [(call.args["command"], call.success) for call in tool_calls(session)] == [
        ("a", False),
        ("b", True),
    ]
    assert [text for _, text in spoken(session)[:-1]] == [
        failed["content"],
        "go on",
        failed["content"],
        "go on",
    ]


def test_a_file_that_each_run_overwrites_is_another_session_each_time(tmp_path):
    later = mini_swe_agent()
    later["messages"][2]["extra"]["timestamp"] += 60
    path = tmp_path / "last_mini_run.traj.json"

    ids = {only("mini-swe-agent", write_json(path, each)).external_id for each in (mini_swe_agent(), later)}

    assert len(ids) == 2


@pytest.mark.parametrize(
    ("said", "status", "reason"),
    [
        ("LimitsExceeded", "fail", "cost_limit"),
        ("AuthenticationError", "error", "model_failed"),
        ("OSError", "error", "internal_error"),
    ],
)
def test_how_mini_swe_agent_ended_is_told_in_our_words(tmp_path, said, status, reason):
    document = mini_swe_agent()
    document["info"]["exit_status"] = said
    document["messages"][-1] = {"role": "exit", "content": "why", "extra": {"exit_status": said}}

    session = only("mini-swe-agent", write_json(tmp_path / "t.traj.json", document))

    assert (session.status, session.end_reason, session.error) == (status, reason, f"{said}: why")


@pytest.mark.parametrize(
    ("trial", "ending"),
    [
        (
            {"exception_info": {"exception_type": "AgentTimeoutError", "exception_message": "m"}},
            ("timeout", "timeout", "m"),
        ),
        (
            {"exception_info": {"exception_type": "KeyError", "exception_message": "m"}},
            ("error", "internal_error", "KeyError: m"),
        ),
        ({"verifier_result": {"rewards": {"a": 0, "b": 1}}}, ("success", "completed", "")),
        ({"verifier_result": {"rewards": {"a": 0, "b": 0.99}}}, ("fail", "checks_failed", "")),
        ({"verifier_result": {"rewards": {"reward": 0.0}}}, ("fail", "checks_failed", "")),
        ({"verifier_result": {"rewards": {}}}, ("success", "completed", "")),
    ],
)
def test_how_a_trial_of_harbor_ended_and_its_rewards_come_from_the_result_beside_it(tmp_path, trial, ending):
    path = write_json(tmp_path / "trial" / "agent" / "trajectory.json", atif())
    result = {"trial_name": "hello__x", "task_name": "org/hello", "source": "tb", **trial}
    write_json(tmp_path / "trial" / "result.json", result)

    session = only("atif", path)

    assert (session.status, session.end_reason, session.error) == ending
    rewards = trial.get("verifier_result", {}).get("rewards", {})
    assert [(score.evaluator, score.value) for score in session.scores] == list(rewards.items())
    assert (session.name, session.task, session.factors) == ("org/hello", "org/hello", {"dataset": "tb"})
    assert session.attributes["trial"] == "hello__x"


def test_agents_within_an_atif_trajectory_are_sessions_of_their_own(tmp_path):
    inner = {**atif(), "session_id": None, "trajectory_id": "sub-1"}
    outer, within = sessions(
        "atif", write_json(tmp_path / "t.json", {**atif(), "subagent_trajectories": [inner]})
    )

    assert (outer.external_id, within.external_id) == ("trial-7", "trial-7/sub-1")
    assert within.attributes["parent"] == "trial-7"


def trajectory(*steps, **more):
    return {"schema_version": "ATIF-v1", "session_id": "s", "steps": list(steps), **more}


def of_atif(tmp_path, document):
    return sessions("atif", write_json(tmp_path / "trajectory.json", document))


def test_empty_messages_are_kept_only_of_our_own_exports(tmp_path):
    silent = {"source": "agent", "message": "", "extra": {"proctor": {"is_silent": True}}}
    empty = {"source": "agent", "message": ""}
    said = {"source": "user", "message": "q"}
    (theirs,) = of_atif(tmp_path, trajectory(said, empty, silent))
    (ours,) = of_atif(tmp_path, trajectory(said, empty, silent, extra={"proctor": {"name": "n"}}))
    assert told(theirs) == [("user", "q")]
    assert told(ours) == [("user", "q"), ("assistant", "")]


def test_turns_begin_with_the_user_or_where_our_own_exports_say(tmp_path):
    steps = [{"source": source, "message": source} for source in ("user", "agent", "user", "agent")]
    (theirs,) = of_atif(tmp_path, trajectory(*steps))
    assert [len(step.events) for step in theirs.steps] == [2, 2]
    (ours,) = of_atif(tmp_path, trajectory(*steps, extra={"proctor": {"name": "n"}}))
    assert [len(step.events) for step in ours.steps] == [4]
    steps[1]["extra"] = {"proctor": {"turn": "t2"}}
    (ours,) = of_atif(tmp_path, trajectory(*steps, extra={"proctor": {"name": "n"}}))
    assert [len(step.events) for step in ours.steps] == [1, 3]
    assert ours.steps[1].trace_id == "t2"


def test_model_calls_and_tools_of_a_step(tmp_path):
    step = {
        "source": "agent",
        "message": "a",
        "timestamp": "2026-01-01T00:00:02+00:00",
        "metrics": {
            "prompt_tokens": 5,
            "cached_tokens": 2,
            "completion_tokens": 3,
            "cost_usd": 0.5,
            "extra": {"reasoning_tokens": 1},
        },
        "tool_calls": [
            {"tool_call_id": "1", "function_name": "f", "arguments": {}, "extra": {"success": False}},
            {"tool_call_id": "2", "function_name": "g", "arguments": {}},
            {"tool_call_id": "3", "function_name": "h", "arguments": {}},
        ],
        "observation": {
            "results": [
                {"source_call_id": "1", "content": "x", "extra": {"is_error": False}},
                {"source_call_id": "2", "content": "y", "extra": {"is_error": False}},
                {"source_call_id": "3", "content": "z"},
            ]
        },
    }
    copied = {"source": "user", "message": "again", "is_copied_context": True}
    (session,) = of_atif(tmp_path, trajectory(copied, step, agent={"name": "a", "model_name": "m"}))
    assert told(session) == [
        ("model", "m"),
        ("assistant", "a"),
        ("call", "f", "x", False),
        ("call", "g", "y", True),
        ("call", "h", "z", None),
    ]
    call = session.steps[0].events[0].event
    assert call.usage == Usage(input_tokens=5, cached_tokens=2, output_tokens=3, reasoning_tokens=1)
    assert (call.cost_usd, call.price_source) == (0.5, "agent")


@pytest.mark.parametrize(
    ("kind", "name", "document"),
    [
        ("swe-agent", "t.traj", {"info": {}}),
        ("mini-swe-agent", "t.traj.json", {"messages": "none"}),
        ("atif", "t.json", {"steps": []}),
    ],
)
def test_a_file_that_is_no_trajectory_is_named_with_the_reason(tmp_path, kind, name, document):
    (problem,) = problems(kind, write_json(tmp_path / name, document))

    assert name in problem
    assert "trajectory" in problem
