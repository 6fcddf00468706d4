"""Members of sessions in the records of Inspect, ATIF, tau-bench and SWE-agent: where each comes from."""

import json
from datetime import UTC, datetime

import pytest

from proctor.records import (
    _reading,
    atif,
    claude_code,
    codex,
    inspect,
    mini_swe_agent,
    patienthub,
    swe_agent,
    tau_bench,
)
from proctor.records._reading import TranscriptBuilder
from proctor.session import Message, ModelCall, ToolCall, Usage


def moment(second):
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)


def told(session):
    """The events of a session: texts, models, tools with their results."""
    events = []
    for step in session.steps:
        for each in step.events:
            event = each.event
            if isinstance(event, Message):
                events.append((event.role, event.content))
            elif isinstance(event, ModelCall):
                events.append(("model", event.model))
            elif isinstance(event, ToolCall):
                events.append(("call", event.name, event.result, event.success))
    return events


# --- Inspect ---


def sample(**more):
    return {"id": 7, "epoch": 2, "messages": [], **more}


def of_inspect(header=None, **more):
    return inspect.session_of(sample(**more), {"eval": {}} if header is None else header, "inspect")


@pytest.mark.parametrize(
    ("spec", "more", "identity"),
    [
        ({"eval_id": "e", "run_id": "r", "created": "c"}, {}, "e/7/2"),
        ({"run_id": "r", "created": "c"}, {}, "r/7/2"),
        ({"created": "c"}, {}, "c/7/2"),
        ({}, {}, "/7/2"),
        ({"eval_id": "e"}, {"uuid": "u"}, "u"),
    ],
)
def test_the_id_of_a_sample(spec, more, identity):
    assert of_inspect({"eval": spec}, **more).external_id == identity


def test_what_a_log_says_of_a_sample():
    header = {
        "eval": {
            "task": "t",
            "model": "m",
            "eval_id": "e",
            "dataset": {"name": "d"},
            "packages": {"inspect_ai": "1.0"},
        },
        "plan": {"steps": [{"solver": "one"}, {}, {"solver": "two"}]},
    }
    session = of_inspect(header)
    assert (session.name, session.agent, session.model) == ("t 7", "one, two", "m")
    assert (session.task, session.repeat, session.is_stand_in) == ("t/7", 2, False)
    assert session.attributes == {
        "task": "t",
        "sample_id": "7",
        "epoch": "2",
        "eval_id": "e",
        "dataset": "d",
        "inspect_version": "1.0",
    }
    header["eval"]["solver"] = "own"
    assert of_inspect(header).agent == "own"
    assert of_inspect({}, epoch=0, id=None).repeat is None


def model_event(at=3, **more):
    return {"event": "model", "model": "m", "timestamp": moment(at).isoformat(), **more}


def test_the_times_of_a_sample():
    events = [model_event(3), model_event(5)]
    times = {"started_at": moment(1).isoformat(), "completed_at": moment(9).isoformat()}
    without, known = of_inspect(events=events), of_inspect(events=events, **times)
    assert (without.started_at, without.finished_at) == (moment(3), moment(5))
    assert (known.started_at, known.finished_at) == (moment(1), moment(9))


def test_model_calls_stand_before_the_messages_that_came_of_them():
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "id": "m1", "content": "a"},
        {"role": "assistant", "content": "attachment://x"},
        {"role": "tool", "content": "alone"},
    ]
    events = [
        model_event(model="one", output={"choices": [{"message": {"id": "m1"}}]}, tools=[{"name": "t"}]),
        model_event(model="two", output={"choices": [{"message": {"content": "long"}}]}),
        model_event(model="judge", output={"choices": [{"message": {"content": "other"}}]}),
        model_event(model="pending", pending=True),
    ]
    session = of_inspect(messages=messages, events=events, attachments={"x": "long"})
    assert told(session) == [
        ("user", "q"),
        ("model", "one"),
        ("assistant", "a"),
        ("model", "two"),
        ("assistant", "long"),
        ("tool", "alone"),
        ("model", "judge"),
    ]
    assert [tool["name"] for tool in session.tools] == ["t"]


def test_usage_without_events_comes_first():
    session = of_inspect(
        messages=[{"role": "user", "content": "q"}],
        model_usage={"m": {"input_tokens": 3, "output_tokens": 4, "total_cost": 0.5}, "n": {}},
    )
    calls = [each.event for step in session.steps for each in step.events][:2]
    assert {call.model: (call.cost_usd, call.price_source) for call in calls} == {
        "m": (0.5, "agent"),
        "n": (None, ""),
    }
    with_events = of_inspect(events=[{"event": "tool"}], model_usage={"m": {"input_tokens": 3}})
    assert told(with_events) == [("model", "m")]
    assert told(of_inspect(events=[model_event()], model_usage={"other": {}})) == [("model", "m")]


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ({"input_tokens": 10, "output_tokens": 5}, 10),
        ({"input_tokens": 10, "input_tokens_cache_read": 3, "output_tokens": 5, "total_tokens": 15}, 10),
        (
            {
                "input_tokens": 10,
                "input_tokens_cache_read": 3,
                "input_tokens_cache_write": 2,
                "output_tokens": 5,
                "total_tokens": 20,
            },
            15,
        ),
        ({"input_tokens": 10, "input_tokens_cache_read": 3, "output_tokens": 5, "total_tokens": 17}, 10),
    ],
)
def test_the_tokens_of_a_prompt_with_what_came_from_the_cache(used, expected):
    usage = inspect._usage({**used, "reasoning_tokens": 1})
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens) == (expected, 5, 1)
    assert usage.cached_tokens == used.get("input_tokens_cache_read", 0)
    assert usage.cache_write_tokens == used.get("input_tokens_cache_write", 0)


def test_a_model_call_of_an_event():
    plain = inspect._model_call({"model": "m", "uuid": "u", "output": {"time": 1.5, "error": "no"}})
    assert (plain.latency_ms, plain.status, plain.error, plain.call_id) == (1500.0, "error", "no", "u")
    assert (plain.cost_usd, plain.price_source, plain.waiting_ms) == (None, "", 0.0)
    ours = {"latency_ms": 0, "waiting_ms": 4, "provider": "p", "call_id": "c", "price_source": "list"}
    own = inspect._model_call(
        {
            "model": "m",
            "uuid": "u",
            "metadata": {"proctor": ours},
            "output": {"time": 2, "usage": {"total_cost": 0.25}},
        }
    )
    assert (own.latency_ms, own.waiting_ms, own.provider, own.call_id) == (0, 4.0, "p", "c")
    assert (own.status, own.error, own.cost_usd, own.price_source) == ("ok", "", 0.25, "list")
    assert inspect._model_call({"error": "first", "output": {"error": "second"}}).error == "first"
    assert inspect._model_call({"output": {"usage": {"total_cost": 1}}}).price_source == "agent"


def test_calls_of_tools_and_their_results():
    messages = [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "1", "function": "f", "arguments": {"x": 1}}, {"id": "2", "function": "g"}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "fine"},
        {"role": "tool", "tool_call_id": "2", "content": "", "error": {"message": "broken"}},
    ]
    events = [{"event": "tool", "id": "1", "timestamp": moment(4).isoformat(), "working_time": 0.25}]
    session = of_inspect(messages=messages, events=events)
    assert told(session) == [("call", "f", "fine", True), ("call", "g", "broken", False)]
    first = session.steps[0].events[0]
    assert (first.at, first.event.duration_ms, first.event.args) == (moment(4), 250.0, {"x": 1})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("C", [("", 1.0, "C")]),
        ("P", [("", 0.5, "P")]),
        ("I", [("", 0.0, "I")]),
        ("other", [("", None, "other")]),
        (True, [("", 1.0, "")]),
        (0.25, [("", 0.25, "")]),
        ([1, "C"], [("1", 1.0, ""), ("2", 1.0, "C")]),
        ({"a": 0, "b": None}, [("a", 0.0, "")]),
        (None, []),
        ("", []),
    ],
)
def test_the_scores_of_a_sample(value, expected):
    found = of_inspect(scores={"n": {"value": value, "explanation": "why"}}).scores
    assert [(score.dimension, score.value, score.label) for score in found] == expected
    assert all((score.evaluator, score.explanation) == ("n", "why") for score in found)
    old = of_inspect(score={"value": value}).scores
    assert [(score.evaluator, score.value) for score in old] == [("score", each[1]) for each in expected]


@pytest.mark.parametrize(
    ("more", "ending"),
    [
        ({}, ("success", "completed", "")),
        ({"error": "no"}, ("error", "internal_error", "no")),
        ({"error": {"message": "no"}, "limit": {"type": "time"}}, ("error", "internal_error", "no")),
        ({"limit": {"type": "time"}}, ("timeout", "timeout", "it reached its time limit")),
        ({"limit": {"type": "token"}}, ("fail", "cost_limit", "it reached its token limit")),
        ({"limit": {"type": "operator"}}, ("error", "aborted", "it reached its operator limit")),
        ({"limit": {"type": "message"}}, ("fail", "agent_failed", "it reached its message limit")),
        ({"scores": {"a": {"value": "C"}, "b": {"value": "I"}}}, ("fail", "checks_failed", "")),
        ({"scores": {"a": {"value": "C"}, "b": {"value": "P"}}}, ("success", "completed", "")),
        ({"scores": {"a": {"value": 0}}}, ("success", "completed", "")),
        ({"metadata": {"proctor": {"x": 1}}, "error": "no"}, ("success", "completed", "no")),
        (
            {"metadata": {"proctor": {"status": "fail", "end_reason": "timeout"}}, "limit": {"type": "time"}},
            ("fail", "timeout", ""),
        ),
    ],
)
def test_how_a_sample_ended(more, ending):
    session = of_inspect(**more)
    assert (session.status, session.end_reason, session.error) == ending


# --- ATIF ---


def trajectory(*steps, **more):
    return {"schema_version": "ATIF-v1", "session_id": "s", "steps": list(steps), **more}


def of_atif(tmp_path, document, result=None):
    folder = tmp_path / "trial" / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "trajectory.json"
    file.write_text(json.dumps(document))
    if result is not None:
        (folder.parent / "result.json").write_text(json.dumps(result))
    return list(atif.read(file))


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


def test_what_harbor_says_of_a_trial(tmp_path):
    result = {
        "trial_name": "x",
        "task_name": "task",
        "source": "set",
        "started_at": moment(1).isoformat(),
        "finished_at": moment(9).isoformat(),
        "verifier_result": {"rewards": {"reward": 0.5, "other": None}},
    }
    inner = {**trajectory({"source": "user", "message": "q"}), "trajectory_id": "t", "session_id": ""}
    outer, within = of_atif(tmp_path, trajectory(subagent_trajectories=[inner]), result)
    assert (outer.name, outer.task, outer.factors) == ("task", "task", {"dataset": "set"})
    assert (outer.started_at, outer.finished_at) == (moment(1), moment(9))
    assert [(score.evaluator, score.value) for score in outer.scores] == [("reward", 0.5)]
    assert (outer.status, outer.end_reason) == ("fail", "checks_failed")
    assert outer.attributes == {
        "schema_version": "ATIF-v1",
        "task": "task",
        "trial": "x",
        "dataset": "set",
    }
    assert (within.external_id, within.name, within.status) == ("s/t", "", "success")
    assert within.attributes == {"schema_version": "ATIF-v1", "parent": "s"}


@pytest.mark.parametrize(
    ("trial", "ending"),
    [
        (
            {"exception_info": {"exception_type": "AgentTimeoutError", "exception_message": "m"}},
            ("timeout", "m"),
        ),
        ({"exception_info": {"exception_type": "Broken", "exception_message": "m"}}, ("error", "Broken: m")),
        ({"verifier_result": {"rewards": {"a": 0, "b": 1}}}, ("success", "")),
        ({"verifier_result": {"rewards": {"a": 0, "b": 0.99}}}, ("fail", "")),
        ({"verifier_result": {"rewards": {}}}, ("success", "")),
    ],
)
def test_how_a_trial_ended(trial, ending):
    status, _, error = atif._ending(trial, {})
    assert (status, error) == ending
    assert atif._ending(trial, {"end_reason": "x"}) == ("success", "x", "")


def test_model_calls_and_tools_of_a_step(tmp_path):
    step = {
        "source": "agent",
        "message": "a",
        "timestamp": moment(2).isoformat(),
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
    (other,) = atif._model_calls({"metrics": {"prompt_tokens": 1}, "model_name": "own"}, {}, "m")
    assert (other.model, other.cost_usd, other.price_source) == ("own", None, "")
    (ours,) = atif._model_calls({}, {"model_calls": [{"model": "o", "waiting_ms": 3}]}, "m")
    assert (ours.model, ours.waiting_ms, ours.status) == ("o", 3.0, "ok")


# --- tau-bench and SWE-agent ---


@pytest.mark.parametrize(
    ("trial", "repeat"),
    [("0", 1), ("4", 5), ("", None), ("x", None), ("999999999", 10**9), ("1" * 10, None), ("-1", None)],
)
def test_trials_are_counted_from_0(trial, repeat):
    assert tau_bench._repeat(trial) == repeat


@pytest.mark.parametrize(
    ("reward", "status"),
    [(None, "success"), (1, "success"), (1 - 1e-7, "success"), (0.999, "fail"), (0, "fail")],
)
def test_a_reward_of_1_is_a_pass(reward, status):
    assert tau_bench._passed(reward)[0] == status


def test_a_simulation_is_a_session():
    simulation = {
        "id": "s",
        "task_id": 3,
        "trial": 1,
        "start_time": moment(1).isoformat(),
        "termination_reason": "user_error",
        "reward_info": {"reward": 0.0},
        "messages": [
            {"role": "assistant", "content": "hi", "timestamp": moment(5).isoformat(), "cost": 0.5},
            {
                "role": "user",
                "content": "q",
                "cost": 0.0,
                "tool_calls": [{"id": "u", "name": "look", "arguments": {"a": 1}}],
            },
            {"role": "tool", "id": "u", "content": "seen", "requestor": "user"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "name": "f", "arguments": {}}]},
            {"role": "tool", "id": "1", "content": "r", "error": True},
        ],
    }
    info = {
        "agent_info": {"llm": "m", "implementation": "i"},
        "user_info": {"llm": "u"},
        "environment_info": {"domain_name": "d", "policy": "rules"},
    }
    session = tau_bench._simulation(simulation, info)
    assert told(session) == [
        ("system", "rules"),
        ("model", "m"),
        ("assistant", "hi"),
        ("user", "q"),
        ("user", '[uses look {"a": 1}]'),
        ("user", "[result: seen]"),
        ("call", "f", "r", False),
    ]
    assert (session.name, session.task, session.repeat) == ("task 3, trial 1", "3", 2)
    assert (session.status, session.end_reason, session.error) == ("error", "model_failed", "user_error")
    assert (session.started_at, session.finished_at) == (moment(1), moment(5))
    assert session.attributes["user_model"] == "u" and session.factors == {"domain": "d"}
    assert session.notes == []
    simulation |= {"messages": [], "policy": "own", "termination_reason": "max_steps"}
    empty = tau_bench._simulation(simulation, info)
    assert told(empty) == [("system", "own")]
    assert (empty.status, empty.error) == ("fail", "")
    assert empty.notes == ["it has no messages: what was spoken is not read"]


@pytest.mark.parametrize(
    ("stats", "cost", "notes"),
    [
        ({"tokens_sent": 5, "tokens_received": 6, "instance_cost": 0.5, "api_calls": 1}, 0.5, 0),
        ({"tokens_sent": 5, "instance_cost": 0, "api_calls": 2}, None, 1),
        ({"instance_cost": 0.5}, 0.5, 0),
    ],
)
def test_the_sums_of_a_run_come_first(stats, cost, notes):
    transcript = TranscriptBuilder()
    transcript.add_message("user", "q")
    transcript.add_message("assistant", "a")
    assert len(swe_agent._add_usage(transcript, {"model_stats": stats}, "m")) == notes
    call, *_ = (each.event for each in transcript.steps[0].events)
    assert isinstance(call, ModelCall)
    assert (call.cost_usd, call.price_source) == (cost, "" if cost is None else "agent")
    assert call.usage.input_tokens == stats.get("tokens_sent", 0)


def test_a_run_without_sums_has_no_model_call():
    transcript = TranscriptBuilder()
    transcript.add_message("user", "q")
    assert swe_agent._add_usage(transcript, {"model_stats": {"api_calls": 5}}, "m") == []
    assert len(transcript.steps[0].events) == 1


# --- What all share ---


def test_a_result_belongs_to_its_call_or_to_the_oldest_or_is_a_message():
    transcript = TranscriptBuilder()
    transcript.add_tool_call("a", {}, "1")
    transcript.add_tool_call("b", {}, "2", result_id="two")
    transcript.add_tool_call("", {}, success=True)
    transcript.add_tool_result("two", "of b", True, duration_ms=5.0)
    transcript.add_tool_result("", "of a")
    transcript.add_tool_result("", "of none")
    transcript.add_tool_result("9", "of nobody")
    events = [each.event for step in transcript.steps for each in step.events]
    assert [(event.name, event.result, event.success) for event in events[:3]] == [
        ("a", "of a", None),
        ("b", "of b", True),
        ("unnamed", "", True),
    ]
    assert [(event.role, event.content) for event in events[3:]] == [
        ("tool", "of none"),
        ("tool", "of nobody"),
    ]


def test_the_earliest_and_the_latest_moment_are_those_of_the_session():
    transcript = TranscriptBuilder()
    assert (transcript.began_at, transcript.ended_at) == (None, None)
    for second in (5, 3, 7, 4):
        transcript.add_message("user", "x", moment(second))
    assert (transcript.began_at, transcript.ended_at) == (moment(3), moment(7))


def test_a_turn_begins_with_the_user_after_an_answer():
    transcript = TranscriptBuilder()
    for role in ("system", "user", "user", "assistant", "user", "tool"):
        transcript.add_message(role, role)
    assert [len(step.events) for step in transcript.steps] == [4, 2]
    own = TranscriptBuilder(turns_by_user=False)
    own.add_message("system", "s")
    own.begin_turn("t1")
    own.add_message("user", "u")
    own.begin_turn("t2")
    own.add_message("user", "v")
    assert [(step.trace_id, len(step.events)) for step in own.steps] == [("t1", 2), ("t2", 1)]


def test_an_archive_may_have_a_million_members():
    assert _reading.MOST_MEMBERS == 1_000_000


# --- Which files are records ---

RECOGNIZED = {
    (inspect, "a.json"): ['"eval"', '"task_id"', '"dataset"', '"status"'],
    (atif, "a.json"): ['"ATIF-v1"'],
    (claude_code, "a.jsonl"): ['"sessionId"', '"parentUuid"'],
    (claude_code, "b.jsonl"): ['"sessionId"', '"leafUuid"'],
    (codex, "a.jsonl"): ['"payload"', '"session_meta"'],
    (codex, "rollout-1.jsonl"): ['"instructions"'],
    (mini_swe_agent, "a.json"): ["{", '"mini_version"'],
    (patienthub, "a.json"): ['"profile"', '"messages"', '"role"', '"therapist"'],
    (patienthub, "b.json"): ['"profile"', '"messages"', '"role"', '"client"'],
    (tau_bench, "a.json"): ["[", '"task_id"', '"reward"'],
    (tau_bench, "b.json"): ['"num_trials"', '"agent_info"', '"user_info"'],
}


@pytest.mark.parametrize(("reader", "name"), list(RECOGNIZED))
def test_a_record_is_known_by_all_words_of_its_beginning(tmp_path, reader, name):
    words = RECOGNIZED[reader, name]
    file = tmp_path / name
    file.write_text(" ".join(words))
    assert reader.recognises(file) is True
    other = tmp_path / "other.txt"
    other.write_text(" ".join(words))
    assert not reader.recognises(other)
    for missing in words:
        file.write_text(" ".join(word for word in words if word != missing))
        assert not reader.recognises(file)
    assert not reader.recognises(tmp_path / f"absent-{name}")


def test_records_known_by_their_names(tmp_path):
    for reader, name, good, bad in (
        (inspect, "a.eval", "PK", "eval"),
        (swe_agent, "a.traj", " {", "["),
        (mini_swe_agent, f"a{mini_swe_agent.SUFFIXES[0]}", "[", "x"),
    ):
        file = tmp_path / name
        file.write_text(good)
        assert reader.recognises(file)
        file.write_text(bad)
        assert not reader.recognises(file)
    summary = tmp_path / patienthub.SUMMARY
    summary.write_text(" ".join(RECOGNIZED[patienthub, "a.json"]))
    assert not patienthub.recognises(summary)


def test_a_folder_of_results_has_simulations_and_results(tmp_path):
    assert not tau_bench.recognises(tmp_path)
    (tmp_path / "simulations").mkdir()
    assert not tau_bench.recognises(tmp_path)
    (tmp_path / "results.json").write_text(" ".join(RECOGNIZED[tau_bench, "b.json"]))
    assert tau_bench.recognises(tmp_path)
    (tmp_path / "simulations").rmdir()
    assert not tau_bench.recognises(tmp_path)


# --- Claude Code, mini-swe-agent ---


def entry(kind, content, **more):
    message = {"role": kind, "content": content, **more.pop("message", {})}
    return {"type": kind, "sessionId": "s", "parentUuid": None, "message": message, **more}


def of_claude_code(tmp_path, *entries):
    file = tmp_path / "s.jsonl"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in entries))
    (session,) = claude_code.read(file)
    return session


def test_an_interruption_is_noted_and_ends_the_session(tmp_path):
    begin = [entry("user", "q"), entry("assistant", [{"type": "text", "text": "a"}])]
    stop = entry("user", [{"type": "text", "text": "[Request interrupted by user]"}])
    stopped = of_claude_code(tmp_path, *begin, stop)
    assert (stopped.status, stopped.end_reason) == ("error", "aborted")
    assert "the user interrupted it" in stopped.notes
    again = of_claude_code(tmp_path, *begin, stop, *begin)
    assert (again.status, again.end_reason) == ("success", "completed")


def test_another_agent_is_named_in_the_middle_of_a_session(tmp_path):
    session = of_claude_code(
        tmp_path,
        entry("user", "q", isSidechain=False),
        entry("assistant", [{"type": "text", "text": "own"}], isSidechain=False),
        entry("assistant", [{"type": "text", "text": "other"}], isSidechain=True),
    )
    names = {
        each.event.content: each.event.name
        for step in session.steps
        for each in step.events
        if isinstance(each.event, Message)
    }
    assert names == {"q": "", "own": "", "other": "subagent"}


def test_model_calls_stand_where_their_messages_begin(tmp_path):
    def answered(text, number, model):
        return entry("assistant", [{"type": "text", "text": text}], message={"id": number, "model": model})

    session = of_claude_code(
        tmp_path,
        entry("user", "q"),
        answered("a", "z", "first"),
        answered("b", "z", "first"),
        answered("c", "y", "second"),
        answered("d", "x", "third"),
    )
    assert told(session) == [
        ("user", "q"),
        ("model", "first"),
        ("assistant", "a"),
        ("assistant", "b"),
        ("model", "second"),
        ("assistant", "c"),
        ("model", "third"),
        ("assistant", "d"),
    ]


def test_whether_a_transcript_waits_for_a_tool_or_for_the_agent():
    transcript = TranscriptBuilder()
    assert not transcript.is_waiting_for_a_tool and not transcript.is_waiting_for_the_agent
    transcript.add_message("user", "q")
    assert transcript.is_waiting_for_the_agent
    transcript.add_tool_call("f", {}, "1")
    transcript.add_tool_call("g", {}, "2", success=True)
    assert not transcript.is_waiting_for_a_tool and not transcript.is_waiting_for_the_agent
    transcript.add_tool_call("h", {}, "3")
    assert transcript.is_waiting_for_a_tool
    transcript.add_tool_result("3", "", None)
    transcript.add_tool_result("1", "x", None)
    assert not transcript.is_waiting_for_a_tool
    transcript.add_tool_call("i", {}, "4")
    transcript.add_message("assistant", "a")
    assert not transcript.is_waiting_for_a_tool


def test_commands_of_an_action_only_count_where_no_tools_were_called():
    transcript = TranscriptBuilder()
    for message in (
        {"role": "assistant", "content": "a", "action": "ls"},
        {
            "role": "assistant",
            "content": "b",
            "action": "ls",
            "tool_calls": [{"id": "1", "function": {"name": "f"}}],
        },
        {"role": "user", "content": "c", "action": "ls"},
        {"role": "assistant", "content": "d", "action": " "},
    ):
        swe_agent._add_message(transcript, message)
    names = [
        each.event.name
        for step in transcript.steps
        for each in step.events
        if isinstance(each.event, ToolCall)
    ]
    assert names == [swe_agent.SHELL, "f"]


def test_samples_without_messages_are_not_read():
    for value in ([], "x", {}, {"messages": "x"}):
        with pytest.raises(ValueError, match="it is not a sample: it has no messages"):
            inspect._session(value, {})
    assert inspect._session({"messages": []}, {}).source == "inspect"


# --- Codex ---


def of_codex(tmp_path, *lines, name="rollout-x.jsonl"):
    file = tmp_path / name
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (session,) = codex.read(file)
    return session


def item(kind, **more):
    return {"type": "response_item", "payload": {"type": kind, **more}}


def happened(kind, **more):
    return {"type": "event_msg", "payload": {"type": kind, **more}}


ASKED = item("message", role="user", content="q")
ANSWERED = item("message", role="assistant", content="a")
CALLED = item("function_call", name="f", arguments="{}", call_id="1")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([ASKED, ANSWERED], "completed"),
        ([ASKED], "interrupted"),
        ([ASKED, CALLED], "interrupted"),
        ([ASKED, CALLED, item("function_call_output", call_id="1", output="r")], "completed"),
        ([happened("task_started"), ASKED, ANSWERED], "interrupted"),
        ([happened("task_started"), ASKED, ANSWERED, happened("task_complete")], "completed"),
        ([ASKED, ANSWERED, happened("turn_aborted")], "aborted"),
        ([ASKED, ANSWERED, happened("error", message="no")], "model_failed"),
        ([ASKED, happened("error", message="no"), happened("task_started"), ANSWERED], "interrupted"),
    ],
)
def test_how_a_session_of_codex_ended(tmp_path, lines, reason):
    session = of_codex(tmp_path, *lines)
    assert (session.end_reason, session.status) == (reason, "success" if reason == "completed" else "error")


def counted(total):
    info = {"total_token_usage": {"input_tokens": total}, "last_token_usage": {"input_tokens": total}}
    return happened("token_count", info=info)


def test_running_counts_and_those_of_responses_tell_of_the_same_calls(tmp_path):
    recorded = {"type": "token_usage_record", "payload": {"usage": {"input_tokens": 9}}}
    running = of_codex(tmp_path, ASKED, ANSWERED, counted(3), counted(3), counted(5))
    both = of_codex(tmp_path, ASKED, ANSWERED, counted(3), recorded, recorded)

    def tokens(session):
        events = (each.event for step in session.steps for each in step.events)
        return [event.usage.input_tokens for event in events if isinstance(event, ModelCall)]

    assert sorted(tokens(running)) == [3, 5]
    assert tokens(both) == [9, 9]
    assert [kind for kind, *_ in told(running)][:2] == ["user", "model"]


def test_the_id_of_a_session_of_codex(tmp_path):
    identity = "01234567-89ab-cdef-0123-456789abcdef"
    named = of_codex(tmp_path, ASKED, ANSWERED, name=f"rollout-2026-{identity}.jsonl")
    assert named.external_id == identity
    assert of_codex(tmp_path, ASKED, ANSWERED, name="rollout-y.jsonl").external_id == "rollout-y"
    meta = {"type": "session_meta", "payload": {"id": "own"}}
    assert of_codex(tmp_path, meta, ASKED, ANSWERED).external_id == "own"


@pytest.mark.parametrize(
    ("before", "success"),
    [(0, True), (2000 - len("\nExit code: 0"), True), (2001 - len("\nExit code: 0"), None)],
)
def test_the_exit_code_stands_in_the_first_characters_of_an_output(before, success):
    text = "x" * before + "\nExit code: 0"
    assert codex._output(text) == (text, success)
    assert codex._output("Process exited with code 1")[1] is False
    assert codex._output('{"output": "o", "metadata": {"exit_code": 0}}') == ("o", True)
    assert codex._output({"content": "c", "success": False}) == ("c", False)


def test_results_of_commands_follow_the_message_with_the_commands():
    acted = {"role": "assistant", "content": "", "extra": {"actions": [{"command": "a"}, {"command": "b"}]}}
    result = {"role": "user", "content": "<returncode>1</returncode>"}
    plain = {"role": "user", "content": "go on"}
    transcript = TranscriptBuilder()
    mini_swe_agent._add_messages(transcript, [result, acted, plain, result, result, result, plain], "m")
    events = [each.event for step in transcript.steps for each in step.events]
    calls = [(event.args["command"], event.success) for event in events if isinstance(event, ToolCall)]
    said = [event.content for event in events if isinstance(event, Message)]
    assert calls == [("a", False), ("b", False)]
    assert said == [result["content"], "go on", result["content"], "go on"]
