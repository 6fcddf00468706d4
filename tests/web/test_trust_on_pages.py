"""Pages offer what the caller's role may do, and say when somebody else has written results."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from proctor.config import ServeToken

TOKEN = "the-token-of-the-server"
PLAN = "runId: talk\nmatrix: [{prompt: [one, two], model: scripted/echo, expect: {contains: one}}]\n"


def run_talk(proctor):
    (proctor.folder / "plan.yaml").write_text(PLAN)
    # One of the two fails: there is something to retry.
    assert proctor("batch", "plan.yaml").returncode == 1


def forge(proctor):
    """Turn the failure into a success, as somebody who has no key."""
    with closing(sqlite3.connect(proctor.folder / "proctor-home" / "proctor.db")) as store:
        [(item, session)] = store.execute("SELECT id, sessionId FROM batch_items WHERE status = 'fail'")
        store.execute("UPDATE batch_items SET status = 'success' WHERE id = ?", (item,))
        store.commit()
    return item, session


@pytest.mark.browser
def test_results_of_somebody_else_are_named_within_thirty_seconds_also_on_pages(proctor, serve, open_page):
    run_talk(proctor)
    clock = [datetime(2026, 1, 1, tzinfo=UTC)]
    served = serve(now=lambda: clock[0])
    right = {"isForged": False, "notes": [], "changedItems": [], "foreign": []}
    assert served.get("/api/runs/talk/signatures").json == right

    item, session = forge(proctor)
    clock[0] += timedelta(seconds=29)
    assert served.get("/api/runs/talk/signatures").json == right
    clock[0] += timedelta(seconds=1)
    answer = served.get("/api/runs/talk/signatures").json

    assert (answer["isForged"], answer["changedItems"]) == (True, [item])
    expected = [f"1 result of run talk was written or changed by someone else than Proctor: {item}"]
    assert answer["notes"] == expected

    page = open_page(f"{served.url}/runs/talk")
    expect(page.get_by_role("alert")).to_contain_text(f"changed by someone else than Proctor: {item}")
    page.goto(f"{served.url}/sessions/{session}")
    expect(page.get_by_role("alert")).to_have_text(
        "This result was written or changed by someone else than Proctor."
    )


@pytest.mark.browser
def test_pages_offer_what_the_role_may_do(proctor, serve, open_page):
    run_talk(proctor)
    roles = ("view", "label", "run", "admin")
    tokens = [ServeToken(name=role, role=role, token=f"the-token-of-role-{role}") for role in roles]
    served = serve(token=TOKEN, tokens=tokens)

    offered = {}
    page = open_page("about:blank")
    for role in roles:
        # A page that is open without its cookies goes to the sign-in page by itself.
        page.goto("about:blank")
        page.context.clear_cookies()
        page.goto(f"{served.url}/?token=the-token-of-role-{role}")
        page.get_by_role("button", name="Actions of talk").click()
        expect(page.get_by_role("link", name="View talk")).to_be_visible()
        on_list = {
            name
            for name in ("New Batch", "Delete talk")
            if page.get_by_role("link" if name == "New Batch" else "button", name=name).first.is_visible()
        }
        page.goto(f"{served.url}/runs/talk")
        expect(page.get_by_role("button", name="Report")).to_be_enabled()
        offered[role] = on_list | {
            name
            for name in ("Retry failed", "Evaluate")
            if page.get_by_text(name, exact=True).first.is_visible()
        }
    assert offered["view"] == offered["label"] == set()
    assert offered["run"] == {"New Batch", "Retry failed", "Evaluate"}
    assert offered["admin"] == {*offered["run"], "Delete talk"}
