"""Results, charts and trends in a real browser: by mouse, by keyboard, on a phone, in the dark."""

import csv
import io
import re
from itertools import product

import pytest
from looks import PHONE, WINDOW, sideways
from playwright.sync_api import expect
from stocked_judgments import ended
from stocked_runs import add_duel, duel, finish, stock

from proctor.testing import eventually
from waiting import TIME_LIMIT_SECONDS

pytestmark = pytest.mark.browser

CLIPPED = """() => [...document.querySelectorAll("svg.chart")].flatMap((chart) => {
  const [, , width, height] = chart.getAttribute("viewBox").split(" ").map(Number);
  return [...chart.querySelectorAll("text")].filter((text) => {
    const box = text.getBBox();
    return box.x < -1 || box.y < -1 || box.x + box.width > width + 1 || box.y + box.height > height + 1;
  }).map((text) => `${chart.getAttribute("aria-label")}: ${text.textContent}`);
})"""
"""The labels that reach beyond their chart."""


@pytest.fixture(scope="module")
def stocked(shared):
    """Runs of one plan, the last of which is worse; and one that is running."""
    store = shared.site.context.store
    for number in range(3):
        share = 8 if number < 2 else 2
        add_duel(
            store,
            f"nightly-{number}",
            80,
            lambda n, item, share=share: item.model == "dear/model" if n % 10 >= share else n % 16 > 1,
            planPath="/plans/nightly.yaml",
            createdAt=f"2026-03-0{number + 1}T12:00:00+00:00",
        )
    live = {
        "status": "running",
        "finishedAt": None,
        "owner": "me",
        "heartbeatAt": "2099-01-01T00:00:00+00:00",
    }
    add_duel(store, "live", 60, lambda _, item: item.model == "dear/model", finished=30, **live)
    return shared


def test_the_focus_stays_where_it_is_while_results_change(served, site, open_page):
    live = {
        "status": "running",
        "finishedAt": None,
        "owner": "me",
        "heartbeatAt": "2099-01-01T00:00:00+00:00",
    }
    add_duel(site.context.store, "moves", 60, lambda _, item: item.model == "dear/model", finished=20, **live)
    page = open_page(f"{served.url}/runs/moves")
    table = page.get_by_role("region", name="By model", exact=True)
    link = table.get_by_role("link", name="dear/model", exact=True)
    link.focus()
    # The other model is ahead now: the rows change their places.
    finish(site.context.store, "moves", duel(60)[40:], lambda _, item: item.model != "dear/model")
    expect(table.get_by_role("row").nth(1)).to_contain_text("cheap/model")
    expect(link).to_be_focused()


def test_details_of_a_job_show_their_sections(stocked, open_page):
    def with_details(route):
        answer = route.fetch().json()
        inner = {"kind": "sentence", "text": "Eight of ten", "note": "", "tone": "plain", "offersStop": False}
        details = {"kind": "details", "title": "By region", "isFolded": False, "sections": [inner]}
        route.fulfill(json={**answer, "sections": [*answer["sections"], details]})

    page = open_page(f"{stocked.url}/models")
    page.route("**/api/runs/nightly-0/results*", with_details)
    page.goto(f"{stocked.url}/runs/nightly-0")

    expect(page.get_by_role("heading", name="By region")).to_be_visible()
    expect(page.get_by_text("Eight of ten")).to_be_visible()


def test_results_come_first_and_every_figure_opens_its_items(stocked, open_page):
    page = open_page(f"{stocked.url}/runs/nightly-0")
    expect(page.get_by_role("tab", name="Results")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_text(re.compile("^Use dear/model: it has the highest"))).to_be_visible()
    page.get_by_label("May be worse by").fill("90")
    page.get_by_label("May be worse by").press("Enter")
    expect(page.get_by_text(re.compile("^Use cheap/model: its success rate"))).to_be_visible()
    expect(page.get_by_label("May be worse by")).to_be_focused()
    expect(page).to_have_url(re.compile(r"/runs/nightly-0\?margin=90$"))
    page.goto(f"{stocked.url}/runs/nightly-0")
    expect(page.get_by_role("button", name="Stop run")).to_have_count(0)
    rows = page.get_by_role("region", name="By model", exact=True).get_by_role("row")
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("dear/model")
    # Headings do not cover each other.
    head = rows.first.locator("th").nth(2)
    long = "check: The configuration is unchanged, and the program still prints what it printed"
    head.evaluate("(head, words) => { head.textContent = words; }", long)
    assert not head.evaluate("(head) => head.scrollWidth > head.clientWidth")

    # By keyboard: one mark is in the tab order, arrows go to the others, Enter opens the items.
    first, second = (page.locator(f"[data-mark='{number}']") for number in (0, 1))
    first.focus()
    page.keyboard.press("ArrowRight")
    expect(second).to_be_focused()
    tip = page.get_by_role("tooltip")
    expect(tip).to_contain_text("cheap/model")
    expect(tip).to_contain_text("n = 80 tasks")
    expect(tip).to_contain_text("95% CI")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/runs/nightly-0\?factor=model%3Dcheap%2Fmodel#items$"))
    expect(page.get_by_role("grid", name="Items")).to_have_attribute("aria-rowcount", "81")
    # Back, and a change of the fragment, switch tabs.
    page.go_back()
    expect(page.get_by_role("tab", name="Results")).to_have_attribute("aria-selected", "true")
    page.evaluate("location.hash = 'plan'")
    expect(page.get_by_role("tab", name="Plan")).to_have_attribute("aria-selected", "true")


def test_failures_are_grouped_on_results_a_group_opens_its_items_and_the_run_is_deleted_after_asking(
    stocked, open_page
):
    stock(stocked.site.context.store, run_id="failing")
    page = open_page(f"{stocked.url}/runs/failing")
    failures = page.locator(".result-failures")
    expect(failures).to_contain_text("failures, by kind")
    expect(failures.get_by_role("link", name=re.compile("checks failed exited with 1"))).to_be_visible()
    group = failures.get_by_role("link", name=re.compile("no such branch"))
    count = group.inner_text().split()[0]
    group.click()
    page.wait_for_url("**/runs/failing?group=*#items")
    rows = page.get_by_role("grid", name="Items")
    expect(rows).to_have_attribute("aria-rowcount", str(int(count) + 1))

    page.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Delete failing?")
    dialog.get_by_role("button", name="Delete").click()
    expect(page).to_have_url(f"{stocked.url}/")
    assert stocked.get("/api/runs/failing").status == 404


def test_a_run_that_was_stopped_is_not_said_to_have_died(stocked, open_page):
    row = {"status": "interrupted", "reason": "interrupted", "finishedAt": "2026-03-01T12:00:00+00:00"}
    add_duel(stocked.site.context.store, "stopped", 10, lambda n, _: n % 2 == 0, finished=5, **row)
    page = open_page(f"{stocked.url}/runs/stopped")
    expect(page.locator("#notices")).to_contain_text("The run was stopped before its end.")
    expect(page.locator("#notices")).not_to_contain_text("died")
    # Of a stopped run, Resume is the main action, and Abort is not.
    expect(page.get_by_role("button", name="Resume")).to_have_class(re.compile("primary"))
    expect(page.get_by_role("button", name="Abort")).to_have_class(re.compile("quiet"))


def test_a_chart_is_downloaded_as_svg_png_and_csv(stocked, open_page):
    page = open_page(f"{stocked.url}/runs/nightly-0", accept_downloads=True)
    button = page.get_by_role("button", name="Download Success against cost by model")
    files = {}
    for kind in ("SVG", "PNG", "CSV"):
        button.click()
        with page.expect_download() as download:
            page.get_by_role("button", name=kind, exact=True).click()
        assert download.value.suggested_filename == f"success-against-cost-by-model.{kind.lower()}"
        files[kind] = download.value.path().read_bytes()
    assert b"<svg" in files["SVG"] and b"var(--" not in files["SVG"] and b'fill="rgb' in files["SVG"]
    assert files["PNG"].startswith(b"\x89PNG") and len(files["PNG"]) > 2000
    table = list(csv.DictReader(io.StringIO(files["CSV"].decode())))
    assert [row["label"] for row in table] == ["dear/model", "cheap/model"]
    assert all(float(row["low"]) < float(row["value"]) < float(row["high"]) for row in table[1:])


def test_a_running_run_says_who_leads_and_can_be_stopped(stocked, open_page):
    page = open_page("about:blank", apart=True)
    page.clock.install()
    page.goto(f"{stocked.url}/runs/live")
    expect(page.get_by_text(re.compile("^The winner is already clear: dear/model"))).to_be_visible()
    expect(page.get_by_text("this assumes that the next tasks are like those so far")).to_be_visible()
    page.get_by_role("button", name="Stop run").click()
    expect(page.get_by_role("dialog")).to_contain_text("60 items will not be finished")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    # The age of a run goes on while the page is open.
    age = page.locator("#facts time")
    age.evaluate("(time) => { time.dateTime = new Date(Date.now() - 16000).toISOString(); }")
    page.clock.fast_forward(5000)
    expect(age).to_have_text(re.compile(r"^created (2[1-9]|3\d) s ago$"))
    expect(page.get_by_role("button", name="Delete")).to_be_hidden()


def test_no_label_is_clipped_and_no_page_scrolls_sideways(stocked, open_page):
    page = open_page("about:blank")
    paths = ("/runs/nightly-0", "/runs/nightly-0#charts", "/trends", "/compare?run=nightly-1&run=nightly-2")

    def check(*look):
        expect(page.locator("svg.chart").first).to_be_visible()
        assert page.evaluate(CLIPPED) == [], look
        assert sideways(page) <= 0, look

    # Charts are drawn for the width that a page is loaded with; their colors follow the theme at any time.
    for size, path in product((WINDOW, PHONE), paths):
        page.goto("about:blank")
        page.set_viewport_size(size)
        page.goto(f"{stocked.url}{path}")
        check(path, size)
        if size != PHONE:
            page.emulate_media(color_scheme="dark")
            check(path, "dark")
            page.emulate_media(color_scheme="light")


def test_a_trend_on_a_phone_shows_the_latest_runs_first(stocked, open_page):
    page = open_page(f"{stocked.url}/trends", viewport=PHONE)
    frame = page.get_by_role("region", name="nightly.yaml").locator(".chart-frame")
    expect(frame.locator("svg.chart")).to_be_visible()
    page.wait_for_function(
        "(frame) => frame.scrollWidth > frame.clientWidth"
        " && frame.scrollLeft + frame.clientWidth >= frame.scrollWidth - 1",
        arg=frame.element_handle(),
    )


def test_a_trend_marks_the_run_that_got_worse_and_opens_the_tasks_that_changed(stocked, open_page):
    page = open_page(f"{stocked.url}/trends")
    card = page.get_by_role("region", name="nightly.yaml")
    expect(card.get_by_text(re.compile("latest regression: nightly-2"))).to_be_visible()
    card.get_by_label("Model").select_option("dear/model")
    expect(page).to_have_url(re.compile("model=dear%2Fmodel"))
    expect(card.get_by_label("Model")).to_have_value("dear/model")
    card.get_by_label("Model").select_option("All models together")
    expect(card.get_by_role("link", name=re.compile("^nightly-2, "))).to_have_class(re.compile("c-fail"))
    card.get_by_role("link", name="Tasks that changed from nightly-1 to nightly-2").click()
    expect(page).to_have_url(re.compile(r"/compare\?run=nightly-1&run=nightly-2.*direction=lower"))
    tasks = page.get_by_role("table", name="Tasks with different results")
    expect(tasks.locator("tbody tr").first).to_contain_text("−100.0 pp")
    # The sentence and the differences come before the table.
    tops = [
        box["y"]
        for box in (
            page.get_by_text(re.compile("^nightly-2 succeeds less often than nightly-1")).bounding_box(),
            page.get_by_role("group", name=re.compile("^success: difference")).bounding_box(),
            page.get_by_role("table", name="Differences").bounding_box(),
        )
    ]
    assert tops == sorted(tops)
    # A figure lists the tasks that it is computed from.
    page.get_by_role("table", name="Differences").get_by_role("link").first.click()
    expect(page).to_have_url(re.compile("direction=all"))
    expect(page.get_by_text("1 – 25 of 160")).to_be_visible()


CUT_OFF = """
runId: cut
concurrency: 2
budget: 100
prices: {scripted/quick: {input: 1000, output: 1000}, scripted/slow: {input: 1000, output: 1000}}
matrix:
  - {prompt: one, model: scripted/quick}
  - {prompt: [two, three, four], model: scripted/slow}
"""


def test_after_an_abort_the_cost_is_the_money_spent_and_aborted_items_are_not_finished(
    served, proctor, slow_model, open_page
):
    (proctor.folder / "quick.yaml").write_text("rules: [{reply: done}]\n")
    (proctor.folder / "plan.yaml").write_text(CUT_OFF)
    running = proctor.start("batch", "plan.yaml")
    served.wait_for("cut", "running")
    eventually(lambda: served.get("/api/runs/cut").json["counts"]["success"] == 1)
    eventually(lambda: served.get("/api/runs/cut").json["reservedUsd"] > 1)
    assert served.post("/api/runs/cut/abort").status == 200
    running.wait(timeout=TIME_LIMIT_SECONDS)

    page = open_page(f"{served.url}/runs/cut")
    expect(page.locator("#done")).to_have_text("1 of 4 items, 3 aborted")
    run = served.get("/api/runs/cut").json
    assert run["spentUsd"] > 10 * run["costUsd"] > 0
    cost = page.locator("#tiles .tile", has_text="cost").locator("b").inner_text()
    expect(page.locator("#budget")).to_contain_text(f"{cost} of $100.00 spent")
    expect(page.locator("#budget")).to_contain_text(re.compile(r"up to \$[\d.]+ more for interrupted calls"))


def test_a_run_and_its_evaluation_link_to_each_other_and_low_scores_name_their_evaluator(
    served, proctor, open_page
):
    (proctor.folder / "talker.yaml").write_text("rules: [{reply: right}]\n")
    (proctor.folder / "plan.yaml").write_text(
        "runId: judged\nmatrix: [{prompt: one, model: scripted/talker}]\n"
    )
    assert proctor("batch", "plan.yaml").returncode == 0
    (proctor.folder / "checks.py").write_text(
        "def low(session):\n    return 0.0\n\n\ndef high(session):\n    return 1.0\n"
    )
    source = {"kind": "runs", "runIds": ["judged"]}
    body = {"name": "later", "source": source, "evaluators": ["checks:low", "checks:high"]}
    reply = served.post("/api/evaluations", body)
    assert reply.status == 201, reply.text
    done = ended(served, reply.json["id"])
    assert (done["state"], done["failed"], done["details"]) == ("COMPLETED", 0, [])
    evaluation = done["id"]

    page = open_page(f"{served.url}/runs/judged")
    page.get_by_role("link", name=evaluation).click()
    expect(page).to_have_url(f"{served.url}/evaluations/{evaluation}")
    lowest = page.get_by_role("table", name="Sessions").locator("td[data-title=Lowest]")
    expect(lowest).to_have_text(re.compile(r"^0\.00 .*low"))
    page.get_by_role("link", name="judged", exact=True).click()
    expect(page).to_have_url(f"{served.url}/runs/judged")
