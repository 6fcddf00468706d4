"""The Sessions page in a real browser, and the same filters at the terminal and over HTTP."""

import json

import pytest
from looks import PHONE, sideways
from playwright.sync_api import expect
from stocked_runs import HOSTILE, add_session, stock

from proctor.session import Message, ToolCall

pytestmark = pytest.mark.browser


def stock_services(site):
    """Sessions of two services, of a run, and of a judge."""
    store = site.context.store
    stock(store, "nightly", 2)
    for number in range(4):
        events = [
            Message(role="user", content=f"Where is order {number}? {HOSTILE if number == 3 else ''}"),
            ToolCall(name="lookup", result="sent"),
        ]
        add_session(store, f"shop-{number}", events, job="imported", service="shop", agent="guide")
    add_session(store, "bank-0", [Message(role="user", content="My balance")], job="imported", service="bank")
    add_session(store, "own-0", [Message(role="user", content="Fix it")], run_id="nightly")
    add_session(store, "verdict", [Message(role="user", content="Judge this")], job="evaluation")


def test_sessions_are_filtered_by_what_they_have_and_a_selection_becomes_test_cases(served, site, open_page):
    stock_services(site)
    page = open_page(f"{served.url}/sessions")
    expect(page.locator("#total")).to_have_text("6 sessions")

    page.get_by_role("checkbox", name="shop 4").check()
    expect(page.locator("#total")).to_have_text("4 sessions")
    expect(page.get_by_role("link", name="Where is order 3? <script>")).to_be_visible()
    page.get_by_placeholder("Search transcripts").fill('"order 1"')
    expect(page.locator("#total")).to_have_text("1 session")
    page.get_by_placeholder("Search transcripts").fill("")
    expect(page.locator("#total")).to_have_text("4 sessions")
    assert page.url.endswith("/sessions?service=shop")

    page.get_by_role("button", name="Save filter").click()
    page.get_by_role("dialog").get_by_label("Name").fill("orders")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_label("Saved filters")).to_have_value("orders")
    page.goto(f"{served.url}/sessions")
    page.get_by_label("Saved filters").select_option("orders")
    expect(page.locator("#total")).to_have_text("4 sessions")

    page.get_by_role("button", name="Select all").click()
    expect(page.locator("#selection-count")).to_have_text("4 selected")
    page.get_by_role("button", name="Make test cases").click()
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("test_cases has 4")).to_be_visible()
    page.get_by_role("button", name="Evaluate").click()
    expect(page.locator("#preview")).to_contain_text("4 sessions")

    cases = served.get("/api/datasets/test_cases/examples").json["examples"]
    assert {case["prompt"][:16] for case in cases} == {f"Where is order {n}" for n in range(4)}
    exported = served.get("/api/session-export?service=shop&format=json").json
    assert {row["id"] for row in exported["sessions"]} == {f"shop-{n}" for n in range(4)}


def test_the_page_of_sessions_fits_a_phone(served, site, open_page):
    stock_services(site)

    page = open_page(f"{served.url}/sessions", viewport=PHONE)

    expect(page.get_by_text("My balance")).to_be_visible()
    assert sideways(page) == 0


def test_the_terminal_and_http_take_the_same_filters(served, site, proctor):
    stock_services(site)

    listed = json.loads(proctor("sessions", "list", "--tool", "lookup", "--save", "tools", "--json").stdout)
    again = json.loads(proctor("sessions", "list", "--saved", "tools", "--agent", "guide", "--json").stdout)
    answer = served.get("/api/sessions?tool=lookup&limit=3").json
    more = served.get(f"/api/sessions?tool=lookup&limit=3&after={answer['next']}").json

    assert [row["id"] for row in listed["sessions"]] == [f"shop-{n}" for n in (3, 2, 1, 0)]
    assert again["sessions"] == listed["sessions"]
    found = [row["session"]["id"] for page in (answer, more) for row in page["sessions"]]
    assert found == [row["id"] for row in listed["sessions"]]
    assert (answer["total"], more["next"]) == (4, "")
    assert answer["facets"]["service"] == [{"value": "shop", "sessions": 4}]
    judged = served.get("/api/sessions?judges=true").json["sessions"]
    assert [row["session"]["id"] for row in judged] == ["verdict"]
    assert served.get("/api/sessions?cost=cheap").json["error"]["problem"] == "cheap is no range of USD"
    assert served.get("/api/sessions?status=nope").json["error"]["problem"] == "unknown status `nope`"
    assert "no saved filter `x`" in proctor("sessions", "list", "--saved", "x").stderr
    facets = proctor("sessions", "list", "--facets", "--limit", "2")
    assert "service" in facets.stdout
    assert "2 of 6 sessions" in facets.stderr
