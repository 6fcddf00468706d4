"""A received session as it was: its spans as a tree beside the transcript."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

CASES = Path(__file__).parents[1] / "telemetry" / "recorded_cases"


def received(proctor, served, name):
    """The session of a recorded file."""
    done = proctor("import", "otlp", str(CASES / name))
    assert done.returncode == 0, done.stderr
    (row,) = served.get("/api/sessions").json["sessions"]
    return row["session"]


def test_tokens_cost_and_errors_of_the_tree_are_those_of_the_session(served, proctor):
    session = received(proctor, served, "pydantic-ai.own-delegation.json")

    answer = served.get(f"/api/sessions/{session['id']}/spans").json

    root, *rest = answer["spans"]
    assert [(span["kind"], span["label"], span["depth"]) for span in answer["spans"]] == [
        ("agent", "Guide", 0),
        ("inference", "gpt-4o-mini", 1),
        ("tool", "ask_expert", 1),
        ("agent", "Expert", 2),
        ("inference", "gpt-4o-mini", 3),
        ("inference", "gpt-4o-mini", 1),
    ]
    assert (root["totalTokens"], root["totalCostUsd"]) == (
        session["tokens"],
        pytest.approx(session["costUsd"]),
    )
    assert (root["descendants"], answer["total"]) == (5, 6)
    assert sum(span["inputTokens"] + span["outputTokens"] for span in rest) == session["tokens"]
    raw = served.get(f"/api/sessions/{session['id']}/spans/{root['traceId']}/{root['spanId']}").json
    assert raw["attributes"]["gen_ai.agent.name"] == "Guide"
    assert served.get(f"/api/sessions/{session['id']}/spans/{root['traceId']}/nothing").status == 404


def test_a_failed_span_has_its_error(served, proctor):
    session = received(proctor, served, "pydantic-ai.own-failed.json")

    spans = served.get(f"/api/sessions/{session['id']}/spans").json["spans"]

    assert session["status"] == "fail"
    assert next(span["error"] for span in spans if span["hasFailed"])


@pytest.mark.browser
def test_nested_agents_are_folded_and_attributes_come_on_demand(served, proctor, open_page):
    session = received(proctor, served, "pydantic-ai.own-delegation.json")
    page = open_page(f"{served.url}/sessions/{session['id']}")
    page.get_by_role("tab", name="Spans").click()
    tree = page.locator("#panel-spans")
    expect(tree.locator(".span-name")).to_have_text(
        ["Guide", "gpt-4o-mini", "ask_expert", "Expert", "gpt-4o-mini"]
    )
    expect(tree.get_by_role("log")).to_contain_text("What is the weather in Oslo")

    tree.get_by_role("button", name="Unfold Expert").click()
    expect(tree.locator(".span-name")).to_have_count(6)
    expect(tree.get_by_text("gen_ai.agent.name")).to_have_count(0)
    tree.get_by_title("invoke_agent Expert").click()
    expect(tree.get_by_text("gen_ai.agent.name", exact=True)).to_be_visible()
