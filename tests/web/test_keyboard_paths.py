"""What people do on the pages, from the first page to the last, with the keyboard alone."""

import re

import pytest
from playwright.sync_api import expect
from stocked_runs import NOW, add_run, add_session

from proctor.item import Item
from proctor.session import Message
from proctor.store import timestamp

pytestmark = pytest.mark.browser

MODELS = ("openai/gpt-5", "anthropic/claude-opus")
TASKS = [f"Question {number}" for number in range(6)]


@pytest.fixture(scope="module")
def answered(serve_shared):
    """A server over a run of two models, each of whose items has a session."""
    served = serve_shared()
    store = served.site.context.store
    items = [
        Item(runner="prompt", prompt=task, model=model, factors={"task": task, "model": model})
        for task in TASKS
        for model in MODELS
    ]
    add_run(store, "answers", items, finishedAt=timestamp(NOW), job="benchmark")
    writer = store.writer()
    for number, item in enumerate(items):
        said = [
            Message(role="user", content=item.prompt),
            Message(role="assistant", content=f"Said {number}"),
        ]
        add_session(store, f"s{number}", said, "answers", itemId=item.id, model=item.model)
        status = "fail" if number % 2 else "success"
        changes = {"status": status, "reason": "checks_failed" if number % 2 else "completed"}
        times = {"startedAt": timestamp(NOW), "finishedAt": timestamp(NOW), "costUsd": 0.01 + number / 1000}
        writer.change("batch_items", ("answers", item.id), {"sessionId": f"s{number}", **changes, **times})
    writer.close()
    return served


def tab_to(page, selector, *, back=False):
    """Press Tab until what a selector means has the focus."""
    for _ in range(80):
        page.keyboard.press("Shift+Tab" if back else "Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{selector} is not reached")


def open_tab(page, name, steps):
    tab_to(page, "[role=tab][aria-selected=true]")
    for _ in range(steps):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")


def test_failures_are_filtered_read_one_after_the_other_annotated_and_left_with_the_filter(
    answered, open_page
):
    page = open_page(answered.url)
    page.get_by_role("row", name=re.compile("answers")).wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    tab_to(page, "tr")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/answers")
    expect(page.get_by_role("tab", name="Results")).to_have_attribute("aria-selected", "true")
    open_tab(page, "Items", 1)
    grid = page.get_by_role("grid", name="Items")
    expect(grid).to_have_attribute("aria-rowcount", "13")
    tab_to(page, ".chip[data-status=fail]")
    page.keyboard.press("Enter")
    expect(grid).to_have_attribute("aria-rowcount", "7")
    # Search leads to what it has found.
    page.keyboard.press("/")
    page.keyboard.type("question")
    page.keyboard.press("Enter")
    expect(grid).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/sessions/s3?*")
    expect(page.get_by_text("2 of 6")).to_be_visible()

    page.keyboard.press("j")
    page.wait_for_url("**/sessions/s5?*")
    expect(page.get_by_text("3 of 6")).to_be_visible()
    page.keyboard.press("k")
    page.wait_for_url("**/sessions/s3?*")
    expect(page.get_by_text("2 of 6")).to_be_visible()
    tab_to(page, ".star")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Remove star")).to_be_visible()
    tab_to(page, "[aria-label='Rate 2 of 5']")
    page.keyboard.press("Space")
    tab_to(page, "[aria-label='Add a tag']")
    page.keyboard.type("odd one")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Remove tag odd one")).to_be_visible()
    tab_to(page, "details.notes summary")
    page.keyboard.press("Enter")
    tab_to(page, "[aria-label='New note']")
    page.keyboard.type("jjj, not a key here")
    tab_to(page, ".note-actions button")
    page.keyboard.press("Enter")
    expect(page.locator(".note-text")).to_have_text("jjj, not a key here")

    tab_to(page, "#crumb-list", back=True)
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/answers?*status=fail*")
    expect(page.get_by_role("tab", name="Items")).to_have_attribute("aria-selected", "true")
    expect(grid).to_have_attribute("aria-rowcount", "7")
    notes = answered.get("/api/runs/answers/items?noted=true&starred=true&tag=odd+one").json
    assert [item["sessionId"] for item in notes["items"]] == ["s3"]


def test_a_cell_of_the_matrix_a_mark_of_a_chart_and_two_items_lead_to_sessions(answered, open_page):
    page = open_page(f"{answered.url}/runs/answers")
    # A mark of a chart lists its items.
    page.locator("[data-mark]").first.wait_for()
    tab_to(page, "[data-mark]")
    expect(page.get_by_role("tooltip")).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/answers?factor=*#items")
    expect(page.get_by_role("grid", name="Items")).to_have_attribute("aria-rowcount", "7")
    # Two items are compared.
    tab_to(page, "[role=grid]")
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowDown")
    expect(page.get_by_text("2 selected")).to_be_visible()
    tab_to(page, "#selection [data-action=compare]")
    page.keyboard.press("Enter")
    page.wait_for_url("**/compare/sessions?left=*&right=*")
    expect(page.get_by_role("heading", name="Answers")).to_be_visible()
    # The palette leads back to the run.
    page.keyboard.press("Control+k")
    page.keyboard.type("answers")
    expect(page.get_by_role("option", selected=True)).to_contain_text("answers")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/answers")
    open_tab(page, "Matrix", 2)
    matrix = page.get_by_role("grid", name="Matrix")
    expect(matrix).to_have_attribute("aria-rowcount", str(len(TASKS) + 1))
    tab_to(page, "[role=grid]")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    drawer = page.get_by_role("dialog", name="Question 1")
    expect(drawer).to_contain_text("Said 3")
    page.keyboard.press("Escape")
    expect(matrix).to_be_focused()
    page.keyboard.press("Enter")
    expect(drawer).to_contain_text("Said 3")
    tab_to(page, ".drawer a[href='/sessions/s3']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/sessions/s3")
    expect(page.get_by_role("log")).to_contain_text("Said 3")


def test_a_wide_grid_is_scrolled_sideways_with_the_arrow_keys(answered, open_page):
    columns = "status id prompt model answer checkOutput error notes repeat costUsd"
    query = "&".join(f"column={name}" for name in columns.split())
    page = open_page(f"{answered.url}/runs/answers?{query}#items", viewport={"width": 800, "height": 600})
    expect(page.get_by_role("grid", name="Items")).to_have_attribute("aria-rowcount", "13")
    # It is wide when its rows are there.
    page.wait_for_function(
        "() => ((grid) => grid.scrollWidth > grid.clientWidth + 200)(document.querySelector('.grid-scroll'))"
    )
    tab_to(page, "[role=grid]")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.grid-scroll').scrollLeft >= 100")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("() => document.querySelector('.grid-scroll').scrollLeft === 0")


def test_single_keys_switch_tabs_annotate_a_session_and_lead_back_to_the_list(answered, open_page):
    page = open_page(f"{answered.url}/runs/answers?status=fail#items")
    expect(page.get_by_role("grid", name="Items")).to_have_attribute("aria-rowcount", "7")
    page.keyboard.press("3")
    expect(page.get_by_role("tab", name="Matrix")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("2")
    expect(page.get_by_role("tab", name="Items")).to_be_focused()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_contain_text("Results, Items, Matrix, Charts, Plan")
    expect(keys).to_contain_text("Select all items")
    page.keyboard.press("Escape")
    tab_to(page, "[role=grid]")
    page.keyboard.press("Enter")
    page.wait_for_url("**/sessions/s1?*")
    expect(page.get_by_text("1 of 6")).to_be_visible()

    page.keyboard.press("4")
    expect(page.get_by_role("button", name="Rate 4 of 5")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("t")
    page.keyboard.type("4 u n")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Remove tag 4 u n")).to_be_visible()
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("n")
    expect(page.get_by_label("New note")).to_be_focused()
    page.get_by_role("heading", level=1).click()
    page.keyboard.press("u")
    page.wait_for_url("**/runs/answers?*status=fail*#items")
