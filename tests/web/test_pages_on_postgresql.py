"""The pages over a store in PostgreSQL: what they ask is put in words that both databases take."""

import re

import pytest
from playwright.sync_api import expect
from typed import PROMPTS

from databases import new_database

pytestmark = pytest.mark.browser


@pytest.fixture
def proctor(proctor, server):
    """The command, with its store in a database of its own."""
    proctor.environment["PROCTOR_STORE"] = new_database(server)
    return proctor


def test_a_run_and_its_sessions_are_shown_from_postgresql(served, proctor, open_page):
    (proctor.folder / "plan.yaml").write_text(f"runId: tides\n{PROMPTS}")
    assert proctor("batch", "plan.yaml").returncode == 1

    page = open_page(served.url)
    page.get_by_role("link", name="tides", exact=True).click()
    expect(page.get_by_text("4 of 4 items")).to_be_visible()
    page.get_by_role("tab", name="Items").click()
    by_score = page.get_by_role("columnheader", name="expect.contains")
    by_score.get_by_role("button").click()
    expect(by_score).to_have_attribute("aria-sort", "ascending")
    expect(page.locator("#failures summary")).to_contain_text("checks failed: answer does not contain")
    page.get_by_role("button", name="Time").click()
    expect(page.get_by_role("columnheader", name="Time")).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("tab", name="Matrix").click()
    expect(page.get_by_role("grid", name="Matrix").get_by_role("rowheader").first).to_be_visible()
    page.get_by_role("tab", name="Charts").click()
    expect(page.locator("#charts svg")).to_have_count(5)
    page.get_by_role("tab", name="Items").click()
    page.get_by_role("searchbox").fill("something")
    page.get_by_role("link", name="something else").click()

    expect(page.get_by_role("log")).to_contain_text("something else")
    page.get_by_role("searchbox").fill("SOMETHING")
    expect(page.get_by_role("list", name="Hits").get_by_role("button").first).to_be_visible()
    page.get_by_role("tab", name=re.compile("Scores")).click()
    expect(page.get_by_role("row", name=re.compile("contains"))).to_contain_text("fail")
    page.get_by_role("tab", name="Details").click()
    expect(page.get_by_role("tabpanel", name="Details")).to_contain_text("scripted/echo")
