"""The Run page in a real browser: live, searched, sorted, by keyboard, on a phone, in the dark."""

import re

import pytest
from looks import PHONE, pixel, sideways
from playwright.sync_api import expect
from stocked_runs import HOSTILE, add_run, change_items, stock

from proctor.item import Item
from waiting import TIME_LIMIT_SECONDS

pytestmark = pytest.mark.browser

TALK = """
runId: talk
concurrency: 2
defaults: {model: scripted/talker}
matrix:
  - {prompt: [one, two, three, four, five, six], expect: {contains: right}}
"""


GATED = """
runId: talk
concurrency: 2
matrix:
  - {prompt: one, model: scripted/talker, expect: {contains: right}}
  - {prompt: [two, three, four, five, six], model: "python/gate:answer", expect: {contains: right}}
"""
EARLY = f"""
runId: early
concurrency: 4
stop_when: {{by: model, decided: true}}
matrix:
  - prompt: [{", ".join(f"number {n}" for n in range(40))}]
    model: [scripted/bad, scripted/good]
    expect: {{contains: right}}
"""


@pytest.fixture(scope="module")
def stocked(shared):
    """A server with a run of sixty items, for tests that change nothing."""
    stock(shared.site.context.store)
    return shared


def talker(proctor, reply, seconds):
    (proctor.folder / "talker.yaml").write_text(f"rules: [{{reply: {reply}}}]\nlatency_seconds: {seconds}\n")


def rows(page):
    return page.get_by_role("grid", name="Items").locator(".grid-tall [role=row]")


def cells(page, column):
    """What the rows in sight show in one column, from top to bottom."""
    heads = page.locator(".grid-heading > *").all_inner_texts()
    place = heads.index(column)
    looked = "(rows, place) => rows.map((row) => [Number(row.ariaRowIndex), row.children[place].innerText])"
    found = rows(page).evaluate_all(looked, place)
    return [text for _, text in sorted(found)]


def chip(page, status):
    return page.get_by_role("group", name="Status").get_by_role("button", name=re.compile(f"^{status}"))


def test_a_run_of_the_command_line_is_live_from_its_first_item_to_its_last(
    served, proctor, gate_model, open_page
):
    talker(proctor, "right", 0)
    (proctor.folder / "plan.yaml").write_text(GATED)
    running = proctor.start("batch", "plan.yaml")
    served.wait_for("talk", "running")

    page = open_page(f"{served.url}/runs/talk#items")
    page.evaluate("window.same = true")
    expect(page.locator("#status")).to_contain_text("running")
    expect(rows(page).filter(has_text="running").first).to_be_visible()
    expect(page.get_by_role("button", name="Abort")).to_be_visible()
    expect(page.locator("#done")).to_have_text("1 of 6 items")

    # The results follow as well.
    results = open_page(f"{served.url}/runs/talk")
    expect(results.locator("#results")).to_contain_text("100% of 1 task succeeded")

    gate_model.touch()
    expect(page.locator("#done")).to_have_text("6 of 6 items")
    expect(results.locator("#results")).to_contain_text("scripted/talker")
    expect(results.get_by_role("region", name="Tasks by model")).to_be_visible()
    expect(page.locator("#status")).to_contain_text("completed")
    expect(rows(page).filter(has_text="success")).to_have_count(6)
    expect(chip(page, "success")).to_contain_text("6")
    expect(page.get_by_role("button", name="Abort")).to_be_hidden()
    expect(page.get_by_text("Mock run.")).to_be_visible()
    # In place: the page was never loaded anew.
    assert page.evaluate("window.same") is True
    assert running.wait(timeout=TIME_LIMIT_SECONDS) == 0


def test_a_run_that_stopped_early_shows_valid_intervals_and_runs_the_rest(served, proctor, open_page):
    for name, reply in (("good", "right"), ("bad", "wrong")):
        (proctor.folder / f"{name}.yaml").write_text(f"rules: [{{reply: {reply}}}]\nlatency_seconds: 0.03\n")
    (proctor.folder / "plan.yaml").write_text(EARLY)
    assert proctor("batch", "plan.yaml").returncode == 1
    run = served.get("/api/runs/early").json
    assert (run["status"], run["reason"], run["stopWhen"]["isDecided"]) == ("completed", "decided", True)
    bad, good = run["stopWhen"]["intervals"]
    assert bad["high"] < good["low"] and not bad["isUndecided"]
    # It is decided: nothing runs, and its end stays where it was.
    assert served.post("/api/runs/early/resume").status == 200
    again = served.wait_for("early", "completed")
    assert (again["counts"], again["finishedAt"]) == (run["counts"], run["finishedAt"])
    page = open_page(f"{served.url}/runs/early#items")

    table = page.get_by_role("table", name="Decisions")
    expect(table.get_by_role("row")).to_have_count(3)
    expect(table).to_contain_text("95% interval")
    expect(table.get_by_role("row").nth(2)).to_contain_text("decided")
    # What it left is not waiting for anything.
    expect(page.locator("#tally")).to_contain_text("not needed")
    expect(page.locator("#items").get_by_text("not needed").first).to_be_visible()
    expect(page.locator("#stop-when")).to_contain_text("These intervals are valid at any time")
    expect(
        page.get_by_text(re.compile("^Decided: scripted/good is better than scripted/bad"))
    ).to_be_visible()

    page.get_by_role("button", name="Run the rest").click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile(r"^Run \d+ items$")).click()
    expect(page.locator("#done")).to_have_text("80 of 80 items")
    expect(page.get_by_role("button", name="Run the rest")).to_be_hidden()
    rest = served.wait_for("early", "completed")["counts"]
    assert (rest["success"], rest["fail"]) == (40, 40)


def test_thousands_of_items_are_searched_filtered_and_sorted(stocked, open_page):
    stock(stocked.site.context.store, "thousands", count=2000)
    page = open_page(f"{stocked.url}/runs/thousands#items")
    grid = page.get_by_role("grid", name="Items")
    expect(grid).to_have_attribute("aria-rowcount", "2001")
    # Only what is in sight exists.
    assert rows(page).count() < 60

    page.get_by_label("Search items").fill("test 199")
    expect(grid).to_have_attribute("aria-rowcount", "12")
    page.get_by_label("Search items").fill("no such thing")
    expect(page.get_by_text("No matching items.")).to_be_visible()
    page.get_by_label("Search items").fill("")
    expect(grid).to_have_attribute("aria-rowcount", "2001")

    chip(page, "fail").click()
    expect(grid).to_have_attribute("aria-rowcount", "361")
    assert set(cells(page, "Status")) == {"fail"}
    chip(page, "timeout").click()
    expect(grid).to_have_attribute("aria-rowcount", "721")
    chip(page, "all").click()
    expect(grid).to_have_attribute("aria-rowcount", "2001")

    page.get_by_role("columnheader", name="Cost").get_by_role("button").click()
    expect(page.get_by_role("columnheader", name="Cost")).to_have_attribute("aria-sort", "ascending")
    expect(rows(page).first).to_contain_text("$0.00")
    page.get_by_role("columnheader", name="Cost").get_by_role("button").click()
    expect(page.get_by_role("columnheader", name="Cost")).to_have_attribute("aria-sort", "descending")
    expect(rows(page).filter(has_text="$0.9990").first).to_be_visible()

    grid.focus()
    page.keyboard.press("End")
    # What has no price comes last, whichever way.
    expect(page.locator(".grid-row.active:not(.pending)")).to_contain_text("–")
    expect(page.locator(".grid-row.active")).to_have_attribute("aria-rowindex", "2001")


def test_files_and_reports_are_downloaded_and_opened(stocked, open_page):
    page = open_page(f"{stocked.url}/runs/stocked#items")

    page.get_by_role("button", name="Export").click()
    page.get_by_label("Table to export").select_option("batch_items")
    with page.expect_download() as download:
        page.get_by_role("link", name="NDJSON").click()
    assert download.value.suggested_filename == "batch_items-stocked.ndjson"
    assert len(download.value.path().read_text().splitlines()) == 60

    page.get_by_role("button", name="Report").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download as Markdown").click()
    assert download.value.path().read_text().startswith("# Run stocked")

    page.get_by_role("button", name="Report").click()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open report").click()
    expect(opened.value.get_by_role("heading", name="Run stocked")).to_be_visible()
    # Its own style holds: a report that lost it would be plain black on white.
    heading = opened.value.locator("svg.chart .c-success").first
    assert heading.evaluate("(bar) => getComputedStyle(bar).fill") not in ("rgb(0, 0, 0)", "none")


def test_an_abort_asks_first_then_the_run_goes_on_and_what_failed_is_tried_again(served, proctor, open_page):
    talker(proctor, "wrong", 60)
    (proctor.folder / "plan.yaml").write_text(TALK)
    running = proctor.start("batch", "plan.yaml")
    served.wait_for("talk", "running")
    page = open_page(f"{served.url}/runs/talk#items")

    page.get_by_role("button", name="Abort").click()
    dialog = page.get_by_role("dialog", name="Abort talk?")
    expect(dialog).to_contain_text("6 items will not be finished")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator("#status")).to_contain_text("running")

    page.get_by_role("button", name="Abort").click()
    page.get_by_role("dialog").get_by_role("button", name="Abort run").click()
    expect(page.locator("#status")).to_contain_text("aborted")
    expect(chip(page, "error")).to_contain_text("6")
    assert running.wait(timeout=TIME_LIMIT_SECONDS) == 3

    talker(proctor, "wrong", 0)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#status")).to_contain_text("completed")
    expect(chip(page, "fail")).to_contain_text("6")

    talker(proctor, "right", 0)
    page.get_by_role("button", name="Retry failed").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry failed").click()
    expect(chip(page, "success")).to_contain_text("6")
    expect(page.locator("#status")).to_contain_text("completed")
    expect(page.get_by_role("button", name="Retry failed")).to_be_hidden()


COSTLY = """
runId: costly
budget: 0.001
defaults: {model: scripted/echo}
matrix: [{prompt: [one, two]}]
prices: {scripted/echo: {input: 100, output: 100}}
"""


def test_a_run_without_money_says_so_and_is_resumed_with_a_larger_budget(served, proctor, open_page):
    (proctor.folder / "plan.yaml").write_text(COSTLY)
    assert proctor("batch", "plan.yaml").returncode == 3
    page = open_page(f"{served.url}/runs/costly")

    expect(page.get_by_text("The budget is reached: the next call could exceed it.")).to_be_visible()
    expect(page.locator("#tiles")).not_to_contain_text("prices unknown")
    page.get_by_role("button", name="Resume").click()
    dialog = page.get_by_role("dialog", name="Resume with a larger budget?")
    budget = dialog.get_by_role("spinbutton", name="Budget of the run (USD)")
    expect(budget).to_have_value("0.002")
    budget.fill("")
    dialog.get_by_role("button", name="Resume").click()
    expect(dialog).to_be_visible()
    budget.fill("20")
    dialog.get_by_role("button", name="Resume").click()
    expect(page.locator("#status")).to_contain_text("completed")
    assert served.get("/api/runs/costly").json["budgetUsd"] == 20


def test_an_answer_that_was_long_on_its_way_does_not_replace_what_is_newer(served, proctor, open_page):
    talker(proctor, "wrong", 60)
    (proctor.folder / "plan.yaml").write_text(TALK)
    running = proctor.start("batch", "plan.yaml")
    served.wait_for("talk", "running")
    page = open_page(f"{served.url}/runs/talk#items")
    expect(page.locator("#status")).to_contain_text("running")
    old, held = served.get("/api/runs/talk").text, []
    page.route("**/api/runs/talk", lambda route: held.append(route))
    page.route("**/api/runs/talk/abort", lambda route: route.fulfill(json={"status": "running"}))

    # The page asks how the run is, and is told that it has ended before the answer comes.
    page.get_by_role("button", name="Abort").click()
    with page.expect_request("**/api/runs/talk"):
        page.get_by_role("dialog").get_by_role("button", name="Abort run").click()
    served.post("/api/runs/talk/abort")
    expect(page.locator("#status")).to_contain_text("aborted")
    with page.expect_response("**/api/runs/talk"):
        held[0].fulfill(body=old, content_type="application/json")

    # Of something that must not happen there is nothing to wait for but the next thing that does.
    page.evaluate("new Promise(requestAnimationFrame)")
    expect(page.locator("#status")).to_contain_text("aborted")
    assert running.wait(timeout=TIME_LIMIT_SECONDS) == 3


def test_a_run_without_items_and_one_that_is_not_there_say_so(shared, open_page):
    add_run(shared.site.context.store, "bare")

    page = open_page(f"{shared.url}/runs/bare#items")
    expect(page.get_by_text("No items.")).to_be_visible()
    page.get_by_role("tab", name="Plan").click()
    expect(page.get_by_text("This run has no plan file.")).to_be_visible()

    page.goto(f"{shared.url}/runs/none")
    expect(page.get_by_text("there is no run none")).to_be_visible()


def test_hostile_items_are_shown_as_text(shared, open_page):
    hostile = Item(runner="prompt", prompt=HOSTILE, model=HOSTILE, factors={HOSTILE: HOSTILE, "model": "<b>"})
    store = shared.site.context.store
    add_run(store, "hostile", [hostile], planText=HOSTILE, planPath=HOSTILE, reason=HOSTILE)
    change_items(store, "hostile", {hostile.id: {"status": "success"}})

    page = open_page(f"{shared.url}/runs/hostile#items")
    expect(rows(page).first).to_contain_text("<script>window.pwned = 1</script>")
    expect(rows(page).first).to_contain_text("⟨U+202E⟩gnp.exe")
    page.get_by_role("tab", name="Plan").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("<script>")
    page.get_by_role("tab", name="Charts").click()
    page.get_by_label("Group by").select_option(label=HOSTILE)
    expect(page.get_by_role("group", name=re.compile("Success rate by <script>"))).to_be_visible()

    assert page.evaluate("window.pwned") is None
    assert page.locator("#run script, #run img").count() == 0


def test_a_run_is_shown_in_the_dark_in_the_light_on_paper_in_plots_and_on_a_phone(stocked, open_page):
    page = open_page("about:blank")

    def load(scheme):
        page.goto("about:blank")
        page.emulate_media(color_scheme=scheme)
        page.goto(f"{stocked.url}/runs/stocked#items")
        expect(rows(page).first).to_be_visible()

    def is_dark():
        return max(pixel(page)) < 40

    # Pages are as dark as the reader wants them.
    load("dark")
    assert is_dark()
    # What is printed is dark on white, and has nothing to press.
    page.emulate_media(media="print")
    assert min(pixel(page, 1275, 5)) > 240
    assert page.get_by_role("button", name="Export").count() == 0
    assert page.get_by_role("tab").count() == 0
    expect(page.get_by_role("heading", name="stocked")).to_be_visible()
    expect(rows(page).first).to_be_visible()
    page.emulate_media(media="screen")
    page.get_by_role("button", name="Theme").click()
    assert not is_dark()
    page.evaluate("localStorage.clear()")
    load("light")
    assert not is_dark()
    page.get_by_role("button", name="Theme").click()
    assert is_dark()

    page.get_by_role("tab", name="Charts").click()
    expect(page.get_by_role("group", name="Success rate by model")).to_be_visible()
    page.get_by_label("Group by").select_option("repository")
    expect(page.get_by_role("group", name="Mean cost of an item by repository")).to_be_visible()
    expect(page.get_by_role("group", name=re.compile("Items by status: success 22"))).to_be_visible()
    bar = page.locator("svg.chart .c-success").first.bounding_box()
    assert bar["width"] > 50
    assert page.url.endswith("#charts")

    # A phone shows a run without scrolling sideways.
    page.evaluate("localStorage.clear()")
    page.set_viewport_size(PHONE)
    load("light")
    assert sideways(page) <= 0
    page.get_by_role("tab", name="Charts").click()
    expect(page.get_by_role("group", name="Success rate by model")).to_be_visible()
    assert sideways(page) <= 0
    expect(page.get_by_role("button", name="Export")).to_be_in_viewport()


def test_a_run_that_cannot_be_read_says_why_and_leaves_no_empty_frames(stocked, open_page):
    page = open_page("about:blank")
    sealed = {"error": {"problem": "this is sealed", "remedy": "Name the key."}}
    page.route("**/api/runs/stocked", lambda route: route.fulfill(status=503, json=sealed))

    page.goto(f"{stocked.url}/runs/stocked")

    expect(page.get_by_role("alert")).to_contain_text("this is sealed")
    expect(page.get_by_role("region", name="Progress")).to_be_hidden()
    expect(page.get_by_role("tablist")).to_be_hidden()
    expect(page.get_by_role("button", name="Export")).to_be_hidden()


def test_columns_have_the_titles_of_the_job(shared, open_page):
    """In an evaluation, the model column is the judge; the evaluated model is a factor of its own."""
    stock(shared.site.context.store, "judging", job="evaluation", count=10)

    page = open_page(f"{shared.url}/runs/judging#items")

    for title in ("Session", "Judge"):
        expect(page.get_by_role("columnheader", name=title)).to_be_visible()
    # Among the columns to choose from.
    expect(page.locator("label", has_text="evaluated model")).to_have_count(1)
    expect(page.get_by_role("columnheader", name="Prompt")).to_have_count(0)
