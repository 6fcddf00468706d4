"""Imported sessions: prices, unreadable records, spans, parts."""

from work_items import NOW

from proctor.batch import ingest
from proctor.session import Message, ModelCall, Session, Step, TimedEvent, Unreadable, Usage
from proctor.telemetry import normalized


def call(**more):
    return ModelCall(
        **{"model": "gpt-4o", "provider": "openai", "usage": Usage(input_tokens=1_000_000)} | more
    )


def priced(*calls, **more):
    steps = [Step(trace_id="t", events=[TimedEvent(event=each) for each in calls])]
    session = ingest.priced(Session(external_id="x", source="s", steps=steps, **more), NOW)
    return [timed.event for timed in session.steps[0].events]


def test_calls_without_a_cost_get_their_list_price():
    known, free, unknown, empty, message = priced(
        call(),
        call(cost_usd=0.0),
        call(model="nobodys"),
        call(usage=Usage()),
        Message(role="user", content="x"),
    )
    assert known.cost_usd > 0 and known.price_source and known.price
    assert (free.cost_usd, unknown.cost_usd, empty.cost_usd) == (0.0, None, None)
    assert priced(call(price_source="plan"))[0].cost_usd is None
    assert message.content == "x"
    unchanged = Session(external_id="x", source="s", steps=[Step(trace_id="t", events=[])])
    assert ingest.priced(unchanged, NOW) is unchanged


def test_the_first_unreadable_records_and_files_are_named_and_all_are_counted(monkeypatch, tmp_path):
    # White-box: a lower limit shows the same with fewer files.
    monkeypatch.setattr(ingest, "MOST_NAMED", 2)
    result = ingest.ImportResult()
    for number in range(3):
        result.add_unreadable(Unreadable(path=str(number), problem="x"))
        result.pass_over(tmp_path / str(number))
    assert ([each.path for each in result.unreadable], result.unreadable_count) == (["0", "1"], 3)
    assert (len(result.passed_over), result.passed_over_count) == (2, 3)
    session = Session(external_id="x", source="s")
    ids = [result.own_id(session, tmp_path / name) for name in ("a", "b", "a")]
    assert ids == ["x", f"x ({tmp_path.name}/b)", "x"]
    assert result.own_id(Session(external_id="x", source="t"), tmp_path / "b") == "x"


def test_a_file_without_sessions_says_what_it_holds(monkeypatch):
    content = ingest.FileContent()
    assert content.reason() == "no session: it holds no spans and no event records"
    # White-box: a lower limit shows the same with fewer records.
    monkeypatch.setattr(ingest, "MOST_SEEN", 2)
    times = {"startTimeUnixNano": 1, "endTimeUnixNano": 2, "parentSpanId": "", "status": {"code": "OK"}}
    span = {"spanId": "s", "traceId": "t", "scope": {"name": "lib"}, "kind": "INTERNAL", "attributes": {}}
    spans = [normalized(span | times | {"name": name}) for name in "abca"]
    assert list(content.counted(spans)) == spans
    assert (content.spans, content.has_work) == (4, False)
    assert content.reason() == (
        "no session: none of its 4 spans of lib is of an agent, a model or a tool: a, b"
    )
