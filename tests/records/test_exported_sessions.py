"""Sessions written as ATIF trajectories and as Inspect's logs, and read back."""

import json
import subprocess
import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records_by_hand import events, only, sessions, write_every_kind

from proctor.export import atif, inspect
from proctor.export.sessions import exported_messages
from proctor.records import find_kind, kind_names
from proctor.score import Score
from proctor.session import Message, ModelCall, Session, Step, TimedEvent, ToolCall, Usage
from session_strategies import maybe_names, messages, model_calls, names, tool_calls, words

BEGAN = datetime(2026, 3, 1, 10, tzinfo=UTC)
INSPECT = Path(__file__).parents[2] / "build" / "inspect" / "bin" / "python"

milliseconds = st.none() | st.floats(0, 1e6)
tools = tool_calls(st.sampled_from(["a", "b", "c"]), milliseconds)
# A cost that nobody names a source of is that of the agent.
models = model_calls(names, milliseconds).map(
    lambda call: replace(call, price_source=call.price_source or "agent")
)
scores = st.builds(
    Score,
    evaluator=names,
    value=st.none() | st.floats(-5, 5),
    label=words,
    explanation=words,
    level=st.sampled_from(["session", "trace", "tool_call"]),
    target=maybe_names,
    evaluator_digest=maybe_names,
    error=maybe_names,
    dimension=maybe_names,
)


def step(happened, number=1):
    return Step(
        trace_id=f"turn-{number}",
        events=[
            TimedEvent(event=event, at=BEGAN + timedelta(seconds=10 * number + place))
            for place, event in enumerate(happened)
        ],
    )


@st.composite
def recorded(draw):
    turns = draw(
        st.lists(st.lists(messages | tools | models, min_size=1, max_size=8), min_size=1, max_size=3)
    )
    return Session(
        external_id=draw(names),
        source="otlp",
        service=draw(maybe_names),
        name=draw(words),
        agent=draw(maybe_names),
        agent_version=draw(maybe_names),
        model=draw(maybe_names),
        is_mock=draw(st.booleans()),
        status=draw(st.sampled_from(["success", "fail", "timeout", "error"])),
        end_reason=draw(names),
        error=draw(words),
        started_at=BEGAN,
        finished_at=BEGAN + timedelta(minutes=5),
        steps=[step(happened, number) for number, happened in enumerate(turns, start=1)],
        tools=[{"name": "add", "description": draw(words), "parameters": {"type": "object"}}],
        attributes=draw(st.dictionaries(names, words, max_size=2)),
        scores=draw(st.lists(scores, max_size=3)),
        notes=[note for note in draw(st.lists(words, max_size=2)) if note],
    )


def transcript(session):
    return [(each.trace_id, [happening.event for happening in each.events]) for each in session.steps]


def whole(session):
    """All but the moments of single events, and where it came from."""
    scored = sorted(session.scores, key=repr)
    return replace(session, source="", steps=transcript(session), scores=scored, notes=list(session.notes))


def written(format_, some, folder):
    return format_.write(some, Path(folder), "x")


@pytest.mark.parametrize("format_", [atif, inspect])
@settings(max_examples=30)
@given(session=recorded())
def test_what_was_exported_comes_back_as_it_was(format_, session):
    kind = format_.__name__.rpartition(".")[2]
    with tempfile.TemporaryDirectory() as folder:
        (path,) = written(format_, [session], folder)

        assert find_kind(kind).recognizes(path)
        assert whole(only(kind, path)) == whole(session)


TEXT, WHOLE, NUMBER, OBJECT = ({"type": kind} for kind in ("string", "integer", "number", "object"))


def members(*required, **properties):
    """The schema of an object that has no other members."""
    known = {"type": "object", "additionalProperties": False}
    return known | {"required": list(required), "properties": properties}


def array(items, **more):
    return {"type": "array", "items": items, **more}


CALL = members(
    "tool_call_id",
    "function_name",
    "arguments",
    tool_call_id=TEXT,
    function_name=TEXT,
    arguments=OBJECT,
    extra=OBJECT,
)
STEP = members(
    "step_id",
    "source",
    "message",
    step_id={"type": "integer", "minimum": 1},
    timestamp=TEXT,
    source={"enum": ["system", "user", "agent"]},
    model_name=TEXT,
    message=TEXT,
    tool_calls=array(CALL),
    observation=members("results", results=array(members(source_call_id=TEXT, content=TEXT))),
    metrics=members(
        **dict.fromkeys(("prompt_tokens", "completion_tokens", "cached_tokens"), WHOLE),
        cost_usd=NUMBER,
        extra=OBJECT,
    ),
    llm_call_count={"type": "integer", "minimum": 0},
    extra=OBJECT,
)
TOTALS = ("total_prompt_tokens", "total_completion_tokens", "total_cached_tokens", "total_steps")
NOT_EMPTY = {"type": "string", "minLength": 1}
TRAJECTORY = members(
    "schema_version",
    "session_id",
    "agent",
    "steps",
    schema_version={"const": "ATIF-v1.7"},
    session_id=TEXT,
    agent=members(
        "name", "version", name=NOT_EMPTY, version=NOT_EMPTY, model_name=TEXT, tool_definitions=array(OBJECT)
    ),
    steps=array(STEP, minItems=1),
    final_metrics=members(**dict.fromkeys(TOTALS, WHOLE), total_cost_usd=NUMBER),
    extra=OBJECT,
)
"""What ATIF 1.7 allows of what we write: it forbids members it does not know."""
AGENTS_ONLY = {"model_name", "reasoning_content", "tool_calls", "metrics"}


@settings(max_examples=25)
@given(session=recorded())
def test_a_trajectory_keeps_the_rules_of_its_format(session):
    trajectory = json.loads(json.dumps(atif.trajectory_of(session)))

    jsonschema.validate(trajectory, TRAJECTORY)
    steps = trajectory["steps"]
    assert [each["step_id"] for each in steps] == list(range(1, len(steps) + 1))
    for each in steps:
        asked = [call["tool_call_id"] for call in each.get("tool_calls", [])]
        assert len(asked) == len(set(asked))
        results = each.get("observation", {"results": []})["results"]
        assert {result["source_call_id"] for result in results} <= set(asked)
        assert each["source"] == "agent" or not AGENTS_ONLY & each.keys()
        datetime.fromisoformat(each["timestamp"])


READS = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries, write_eval_log

for path, copy in json.loads(sys.argv[1]):
    log = read_eval_log(path)
    print(json.dumps({
        "model": log.eval.model,
        "status": log.status,
        "means": {each.name: each.metrics["mean"].value for each in log.results.scores},
        "tokens": {model: usage.total_tokens for model, usage in log.stats.model_usage.items()},
        "summaries": len(read_eval_log_sample_summaries(path)),
        "samples": [
            {
                "uuid": sample.uuid,
                "messages": [[message.role, message.text] for message in sample.messages],
                "tools": [call.function for each in sample.messages if each.role == "assistant"
                          for call in each.tool_calls or ()],
                "scores": {name: score.value for name, score in (sample.scores or {}).items()},
                "events": [event.event for event in sample.events],
            }
            for sample in log.samples
        ],
    }))
    write_eval_log(log, copy)
"""


SAID = [
    Message(role="system", content="Be brief."),
    Message(role="user", content="2 + 2?"),
    ModelCall(model="gpt-4o", usage=Usage(input_tokens=20, output_tokens=5), cost_usd=0.001),
    Message(role="assistant", content="I add."),
    ToolCall(name="add", args={"x": 2}, success=False, result="no", call_id="c1", duration_ms=5),
    Message(role="assistant", content="4"),
]


def a_session(name, model="gpt-4o", **more):
    return Session(
        external_id=name,
        source="codex",
        agent="codex",
        model=model,
        started_at=BEGAN,
        finished_at=BEGAN + timedelta(seconds=90),
        steps=[step(SAID)],
        **more,
    )


RIGHT = Score(evaluator="right", value=1.0, explanation="so")


@pytest.fixture(scope="module")
def inspect_reads(tmp_path_factory):
    """Two sessions written as a log, one of each kind of record written as logs, what Inspect reads of each
    log, and two copies of the first that Inspect writes. Starting it takes two seconds."""
    if not INSPECT.exists():
        pytest.skip("Inspect is not installed: `make inspect` does that, and needs the network")
    folder = tmp_path_factory.mktemp("inspect")
    judged = [RIGHT, Score(evaluator="tone", label="kind")]
    ours = [a_session("s/1", scores=judged), a_session("s/2", scores=[replace(RIGHT, value=0.0)])]
    kinds = write_every_kind(folder / "in")
    imported = [session for kind in kind_names() for session in sessions(kind, kinds[kind])]
    for name in ("ours", "imported"):
        (folder / name).mkdir()
    (path,) = written(inspect, ours, folder / "ours")
    others = written(inspect, imported, folder / "imported")
    copies = [folder / "copy.eval", folder / "copy.json"]
    pairs = [(path, copies[0]), (path, copies[1]), *((other, folder / "other.eval") for other in others)]
    done = subprocess.run(
        [INSPECT, "-c", READS, json.dumps([(str(log), str(copy)) for log, copy in pairs])],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    log, _, *rest = (json.loads(line) for line in done.stdout.splitlines())
    return log, sum(len(each["samples"]) for each in rest) - len(imported), path, copies


def test_inspects_own_reader_opens_what_we_wrote(inspect_reads):
    log, missing, *_ = inspect_reads

    assert missing == 0, "all that was imported"
    assert (log["model"], log["status"], log["summaries"]) == ("gpt-4o", "success", 2)
    assert log["means"] == {"right": 0.5}
    assert log["tokens"] == {"gpt-4o": 50}
    first, second = log["samples"]
    assert (first["uuid"], second["uuid"]) == ("s/1", "s/2")
    assert first["messages"] == [
        ["system", "Be brief."],
        ["user", "2 + 2?"],
        ["assistant", "I add."],
        ["tool", "no"],
        ["assistant", "4"],
    ]
    assert first["tools"] == ["add"]
    assert first["scores"] == {"right": 1.0, "tone": "kind"}
    assert first["events"] == ["model", "tool"]


def test_what_inspect_itself_writes_we_read_packed_or_not(inspect_reads):
    *_, path, copies = inspect_reads

    for copy in copies:
        for back, original in zip(sessions("inspect", copy), sessions("inspect", path), strict=True):
            assert transcript(back) == transcript(original)
            assert {score.evaluator for score in back.scores} == {each.evaluator for each in original.scores}


def test_sessions_of_several_models_are_a_log_each(tmp_path):
    some = [a_session("s-1", "a/b"), a_session("s-2", "a-b"), a_session("s-3", "a/b")]

    paths = written(inspect, some, tmp_path)

    assert [[back.external_id for back in sessions("inspect", path)] for path in paths] == [
        ["s-1", "s-3"],
        ["s-2"],
    ]


def test_sessions_of_very_many_models_do_not_open_very_many_files(tmp_path):
    some = [a_session(f"s-{number}", f"model-{number}") for number in range(inspect.MOST_LOGS + 50)]

    paths = written(inspect, some, tmp_path)

    *_, last = paths
    assert len(paths) == inspect.MOST_LOGS + 1
    assert [back.model for back in sessions("inspect", last)] == [each.model for each in some[-50:]]


def test_two_sessions_of_one_name_are_two_files_and_two_samples(tmp_path):
    some = [a_session("s", service="one"), a_session("s", service="two")]

    trajectories = written(atif, some, tmp_path)
    (log,) = written(inspect, some, tmp_path)

    assert len(set(trajectories)) == 2
    assert [back.service for back in sessions("inspect", log)] == ["one", "two"]


def test_a_run_is_exported_and_its_sessions_come_back_with_their_scores(proctor, tmp_path):
    kinds = write_every_kind(tmp_path / "in")
    proctor("import", "tau-bench", str(kinds["tau-bench"]))

    for form in ("atif", "inspect"):
        told = proctor.json("export", "--all", "--format", form, "--out", form)
        (path,) = map(Path, told["files"])
        back = only(form, tmp_path / path)
        original = only("tau-bench", kinds["tau-bench"])
        kept = [each for each in events(back) if not isinstance(each, ModelCall)]
        assert [type(each) for each in kept] == [type(each) for each in events(original)]
        assert back.scores == original.scores
        assert (back.external_id, back.status) == (original.external_id, "success")


def test_exporting_a_session_in_which_nothing_happened_makes_no_trajectory(tmp_path):
    empty = replace(a_session("s-1"), steps=[])

    assert written(atif, [empty], tmp_path) == []


def test_tool_calls_go_with_the_message_before_them_and_model_calls_with_what_follows():
    ask, think = Message(role="user", content="2 + 2?"), ModelCall(model="m", call_id="m1")
    add, again = ToolCall(name="add", call_id="t1"), ToolCall(name="add", call_id="t1")
    reply, alone = Message(role="assistant", content="4"), ToolCall(name="save", call_id="t2")
    session = Session(
        external_id="s", source="test", steps=[step([ask, think, add, again, reply]), step([alone], 2)]
    )

    parts = [
        (
            (part.turn, part.role, part.text, part.is_silent),
            [call for call, _ in part.model_calls],
            [call for call, _ in part.tool_calls],
            part.ours,
        )
        for part in exported_messages(session)
    ]

    assert parts == [
        (("turn-1", "user", "2 + 2?", False), [], [], {"turn": "turn-1"}),
        (
            (None, "assistant", "", True),
            [think],
            [add, again],
            {"is_silent": True, "call_ids": {"t1#2": "t1"}},
        ),
        ((None, "assistant", "4", False), [], [], {}),
        (("turn-2", "assistant", "", True), [], [alone], {"turn": "turn-2", "is_silent": True}),
    ]
