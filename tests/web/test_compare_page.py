"""The Compare page in a real browser: choosing, reading, and looking at two sessions side by side."""

import re
from urllib.parse import quote

import pytest
from looks import PHONE, sideways
from playwright.sync_api import expect
from stocked_judgments import compared_run
from stocked_runs import HOSTILE, add_duel, add_session

from proctor.session import Message

pytestmark = pytest.mark.browser

BETTER = {f"task {n}": "success" for n in range(30)}
WORSE = {f"task {n}": "success" if n < 10 else "fail" for n in range(30)}


@pytest.fixture(scope="module")
def compared(shared):
    """A server with a run and one that is better, for tests that change nothing."""
    compared_run(shared.site.context.store, "before", WORSE)
    compared_run(shared.site.context.store, "after", BETTER)
    return shared


def test_runs_are_chosen_and_the_address_shows_the_same_again(compared, open_page):
    page = open_page(f"{compared.url}/compare")
    expect(page.get_by_text("Choose two or more runs, or one run and a factor")).to_be_visible()
    search = page.get_by_role("combobox", name="Add a run")
    search.click()
    page.get_by_role("option", name=re.compile("before")).click()
    expect(page.get_by_text("One run selected")).to_be_visible()
    search.fill("aft")
    expect(page.get_by_role("listbox", name="Runs").get_by_role("option")).to_have_count(1)
    search.press("ArrowDown")
    search.press("Enter")
    row = page.get_by_role("table", name="Differences").get_by_role("row", name=re.compile("^Success"))
    expect(row).to_contain_text("+66.7 pp")
    expect(row).to_contain_text("better")
    expect(page.get_by_text(re.compile("^after succeeds more often than before"))).to_be_visible()
    expect(page.locator("svg.chart").first).to_be_visible()

    page.get_by_role("button", name="Use after as the baseline").click()
    expect(row).to_contain_text("worse")
    again = open_page(page.url)
    expect(again.get_by_text(re.compile("^before succeeds less often than after"))).to_be_visible()
    again.get_by_text("Details of each difference").click()
    expect(again.get_by_text(re.compile("^Significant: before succeeds less often"))).to_be_visible()
    expect(again.get_by_role("list", name="Runs").locator("li").first).to_contain_text("after")


def test_what_they_disagree_on_is_filtered_and_looked_at_side_by_side(compared, open_page):
    page = open_page(f"{compared.url}/compare?run=before&run=after&metric=success")
    items = page.get_by_role("table", name="Tasks with different results")
    expect(items.locator("tbody tr")).to_have_count(20)
    page.get_by_role("combobox", name="Direction").select_option("Candidate lower")
    expect(page.get_by_text("No matching tasks")).to_be_visible()
    page.get_by_role("combobox", name="Direction").select_option("Any direction")
    page.get_by_role("searchbox", name="Search tasks").fill("task 17")
    expect(items.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Compare sessions: task 17").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("task 17")
    third = page.get_by_role("group", name="Turn 3")
    expect(third).to_contain_text("I could not.")
    expect(third).to_contain_text("Done.")
    left, right = third.locator(".half").all()
    # The same turn stands at the same height, whatever came before it.
    assert left.bounding_box()["y"] == right.bounding_box()["y"]
    assert left.bounding_box()["x"] < right.bounding_box()["x"]
    page.get_by_role("button", name="Swap").click()
    expect(page.get_by_role("group", name="Turn 3").locator(".half").first).to_contain_text("Done.")
    page.go_back()
    page.get_by_role("link", name="Compare", exact=True).last.click()
    expect(page).to_have_url(re.compile("/compare"))


def test_levels_of_a_run_have_the_baseline_that_is_chosen(served, site, open_page):
    add_duel(site.context.store, "duel", 20, lambda n, item: item.model == "dear/model" or n % 2 == 0)
    page = open_page(f"{served.url}/compare?run=duel&by=model&metric=success")
    differences = page.get_by_role("table", name="Differences")
    baseline = page.get_by_role("combobox", name="Baseline")
    expect(baseline.locator("option")).to_have_count(2)
    first, second = baseline.locator("option").all_inner_texts()
    expect(differences).to_contain_text(second)

    baseline.select_option(second)

    expect(differences).to_contain_text(first)
    assert f"against={quote(second, safe='')}" in page.url
    again = open_page(page.url)
    expect(again.get_by_role("combobox", name="Baseline")).to_have_value(second)
    expect(again.get_by_role("table", name="Differences")).to_contain_text(first)


def test_hostile_names_and_long_sessions_do_nothing_and_a_phone_shows_all(served, site, open_page):
    task = f"{HOSTILE} and {'w' * 400}"
    left = compared_run(site.context.store, "before", {task: "fail", "b": "success"}, model="<img src=x>")
    right = compared_run(site.context.store, "after", {task: "success", "b": "success"}, model="other")
    add_session(
        site.context.store, "long", [Message(role="assistant", content=f"{HOSTILE} {n}") for n in range(250)]
    )

    page = open_page(f"{served.url}/compare?run=before&run=after", viewport=PHONE)
    expect(page.get_by_role("table", name="Tasks with different results")).to_contain_text("<script>window")
    assert sideways(page) <= 0
    page.goto(f"{served.url}/compare/sessions?left={left[0]}&right={right[0]}")
    expect(page.get_by_role("group", name="Turn 1")).to_contain_text("<img src=x onerror")
    assert sideways(page) <= 0
    page.goto(f"{served.url}/compare/sessions?left={left[0]}&right=long")
    expect(page.get_by_role("group", name="Turn 40")).to_have_count(1)
    page.mouse.wheel(0, 1_000_000)
    expect(page.get_by_role("group", name="Turn 80")).to_have_count(1)
    assert page.evaluate("window.pwned") is None
    assert page.locator("#pair script, #pair img").count() == 0


def test_metrics_and_gates_are_chosen_and_stand_in_the_address(compared, open_page):
    page = open_page(f"{compared.url}/compare?run=before&run=after")
    field = page.get_by_role("textbox", name="Gate")
    gates = page.get_by_role("list", name="Gates")

    field.fill("success>=0.1")
    field.press("Enter")
    expect(gates.get_by_role("listitem")).to_contain_text("after: the difference is +66.7 pp")
    field.fill("much better")
    field.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("`much better` is no gate")
    expect(field).to_have_value("much better")
    expect(page.get_by_text("All gates pass.")).to_be_visible()

    again = open_page(page.url)
    expect(again.get_by_text("All gates pass.")).to_be_visible()
    again.get_by_role("button", name="Remove success>=0.1").click()
    expect(again.get_by_role("list", name="Gates")).to_have_count(0)
    assert "gate" not in again.url

    table = again.get_by_role("table", name="Differences")
    expect(table.locator("tbody tr")).to_have_count(4)
    again.get_by_role("button", name="Cost", pressed=True).click()
    expect(table.locator("tbody tr")).to_have_count(3)
    assert "metric=success" in again.url and "metric=cost" not in again.url


def test_no_window_is_so_narrow_that_a_comparison_is_scrolled_sideways(compared, open_page):
    compared_run(compared.site.context.store, "later-and-with-a-longer-name", WORSE)
    for runs in ("run=before&run=after", "run=before&run=after&run=later-and-with-a-longer-name"):
        page = open_page(f"{compared.url}/compare?{runs}")
        words = page.get_by_text(re.compile("^Significant: after succeeds more often"))
        page.get_by_text("Details of each difference").click()
        expect(words).to_be_visible()
        for width in (1201, 1100, 900, 761):
            page.set_viewport_size({"width": width, "height": 800})
            assert sideways(page) <= 0, width
            box = words.bounding_box()
            assert box["x"] + box["width"] <= width, width


def test_a_mean_without_an_upper_limit_is_shown(served, site, open_page):
    tasks = {f"task {n}": "success" if n % 3 else "fail" for n in range(12)}
    compared_run(site.context.store, "before", tasks)
    compared_run(site.context.store, "after", tasks)
    writer = site.context.store.writer()
    for number, item in enumerate(site.context.store.read.items("after", limit=12)):
        writer.change("batch_items", ("after", item["id"]), {"costUsd": 0.01 if number else 0.02})
    writer.close()
    (cost,) = served.get("/api/compare?run=before&run=after&metric=cost").json["contrasts"]
    limits = (cost["candidateMean"]["low"], cost["candidateMean"]["high"])
    assert limits[0] is not None and limits[1] is None

    page = open_page(f"{served.url}/compare?run=before&run=after&metric=cost")
    row = page.get_by_role("table", name="Differences").get_by_role("row", name=re.compile("^Cost"))
    expect(row.get_by_role("link", name="$0.0108")).to_have_attribute(
        "title", re.compile("^95% CI from [0-9.]+; 12 tasks, 12 items$")
    )
