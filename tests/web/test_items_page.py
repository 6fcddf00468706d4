"""The items and the matrix of a run in a real browser: filters, selected items, words that differ."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from looks import PHONE
from playwright.sync_api import expect
from stocked_runs import HOSTILE, MODELS, NOW, add_run, add_score, add_session, stock

from proctor.item import Item
from proctor.session import Message
from proctor.store import timestamp
from proctor.store.annotations import Annotation

pytestmark = pytest.mark.browser

ANSWERS = {
    "capital": ("The capital is Paris, since 987.", "The capital is Lyon, since 987."),
    "river": ("It is the Seine.", "It is the Seine."),
    "hostile": (HOSTILE, "No."),
}


@pytest.fixture(scope="module")
def listed(shared):
    """A server with a run of sixty items, of which ten have sessions, and a small one of two models."""
    store = shared.site.context.store
    made = stock(store)
    writer = store.writer()
    for number in range(10):
        events = [Message(role="assistant", content=f"Here {number}.")]
        add_session(store, f"s{number}", events, "stocked", itemId=made[number].id)
        add_score(writer, f"s{number}", evaluator="tone", value=number / 10)
        writer.change("batch_items", ("stocked", made[number].id), {"sessionId": f"s{number}"})
    store.annotate(Annotation(session_ids=["s4"], kind="tag", text="odd"), NOW)
    pairs = [(task, model) for task in ANSWERS for model in MODELS[:2]]
    small = [
        Item(runner="prompt", prompt=task, model=model, factors={"task": task, "model": model})
        for task, model in pairs
    ]
    add_run(store, "small", small, finishedAt=timestamp(NOW), job="benchmark")
    for (task, model), item in zip(pairs, small, strict=True):
        answer = ANSWERS[task][MODELS.index(model)]
        session = f"{task}-{MODELS.index(model)}"
        add_session(store, session, [Message(role="assistant", content=answer)], "small", itemId=item.id)
        status = "fail" if session == "capital-1" else "success"
        writer.change("batch_items", ("small", item.id), {"status": status, "sessionId": session})
    writer.close()
    return shared


def rows(page):
    return page.get_by_role("grid", name="Items").locator(".grid-tall [role=row]:not(.pending)")


def chip(page, status):
    return page.get_by_role("group", name="Status").get_by_role("button", name=re.compile(f"^{status}"))


def parameters(page):
    return parse_qs(urlsplit(page.url).query)


def test_filters_order_search_and_columns_are_in_the_address_and_survive_back_and_reload(listed, open_page):
    page = open_page(f"{listed.url}/runs/stocked#items")
    expect(rows(page).first).to_be_visible()

    chip(page, "fail").click()
    expect(chip(page, "all")).to_have_attribute("aria-pressed", "false")
    page.get_by_role("columnheader", name="Prompt").get_by_role("button").click()
    page.get_by_role("searchbox", name="Search items").fill("shop")
    page.get_by_role("button", name="Filter", exact=True).click()
    page.get_by_role("combobox", name="Filter by").select_option("factor:temper")
    page.locator(".filter-values").get_by_role("checkbox", name=re.compile("^c")).check()
    page.get_by_role("button", name="Columns", exact=True).click()
    page.locator("#columns + .menu").get_by_label("Error").check()
    expect(page.get_by_role("button", name="Remove filter: temper: c")).to_be_visible()
    expect(rows(page)).to_have_count(2)
    wanted = {"status": ["fail"], "order": ["prompt"], "search": ["shop"], "factor": ["temper=c"]}
    assert {name: parameters(page)[name] for name in wanted} == wanted
    assert "error" in parameters(page)["column"]
    assert page.url.endswith("#items")

    def is_restored():
        expect(rows(page)).to_have_count(2)
        expect(chip(page, "fail")).to_have_attribute("aria-pressed", "true")
        expect(page.get_by_role("searchbox", name="Search items")).to_have_value("shop")
        expect(page.get_by_role("columnheader", name="Error")).to_be_visible()
        expect(page.get_by_role("columnheader", name="Prompt")).to_have_attribute("aria-sort", "ascending")

    page.reload()
    is_restored()
    rows(page).first.locator(".status").click()
    page.wait_for_url("**/sessions/s2*")
    assert parse_qs(parameters(page)["from"][0])["status"] == ["fail"]
    page.go_back()
    is_restored()
    # Without the fragment: a shared address with filters opens the items.
    page.goto(page.url.partition("#")[0])
    is_restored()
    page.get_by_role("button", name="Remove filter: temper: c").click()
    expect(page.get_by_role("group", name="Filters")).to_be_hidden()
    assert "factor" not in parameters(page)


def test_answers_scores_and_tags_are_columns_and_filters(listed, open_page):
    columns = "column=status&column=answer&column=score:tone&column=notes"
    page = open_page(f"{listed.url}/runs/stocked?{columns}#items")

    expect(rows(page).first).to_contain_text("Here 0.")
    expect(page.get_by_role("columnheader", name="tone")).to_be_visible()
    page.get_by_role("button", name="Filter", exact=True).click()
    page.get_by_role("combobox", name="Filter by").select_option("score")
    page.get_by_role("spinbutton", name="Lowest tone").fill("0.4")
    page.get_by_role("spinbutton", name="Lowest tone").press("Tab")
    expect(rows(page)).to_have_count(6)
    expect(rows(page).first).to_contain_text("odd")
    page.get_by_role("combobox", name="Filter by").select_option("tag")
    page.get_by_role("checkbox", name=re.compile("odd")).check()
    expect(rows(page)).to_have_count(1)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Clear filters").click()
    expect(page.get_by_role("group", name="Filters")).to_be_hidden()
    assert parameters(page) == {"column": ["status", "answer", "score:tone", "notes"]}


def test_a_click_on_a_group_of_failures_shows_its_items(listed, open_page):
    page = open_page(f"{listed.url}/runs/stocked#items")

    failures = page.locator("#failures")
    expect(failures.locator("summary")).to_contain_text("32 failures")
    failures.locator("summary").click()
    group = failures.get_by_role("button", name=re.compile("10 × setup_failed no such branch"))
    group.click()

    expect(group).to_have_attribute("aria-pressed", "true")
    expect(rows(page)).to_have_count(10)
    expect(page.get_by_role("button", name=re.compile("Remove filter"))).to_contain_text("no such branch")
    page.reload()
    expect(rows(page)).to_have_count(10)
    failures.get_by_role("button", name=re.compile("10 × setup_failed no such branch")).click()
    expect(chip(page, "all")).to_contain_text("60")


def test_items_are_selected_by_mouse_and_keyboard_and_tagged_exported_judged_and_compared(listed, open_page):
    page = open_page(f"{listed.url}/runs/stocked#items")
    expect(rows(page).first).to_be_visible()
    bar = page.get_by_role("toolbar", name="Selected items")
    expect(bar).to_be_hidden()

    page.get_by_role("grid", name="Items").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+ArrowDown")
    expect(bar).to_contain_text("3 selected")
    page.keyboard.press("Escape")
    expect(bar).to_be_hidden()
    page.get_by_role("checkbox", name="Select item 2", exact=True).click()
    page.get_by_role("checkbox", name="Select item 5", exact=True).click(modifiers=["Shift"])
    expect(bar).to_contain_text("4 selected")
    expect(bar.get_by_role("button", name="Compare")).to_be_disabled()

    bar.get_by_role("button", name="Tag").click()
    bar.get_by_role("textbox", name="Tag").fill("look again")
    bar.get_by_role("textbox", name="Tag").press("Enter")
    expect(page.get_by_text("4 sessions tagged.")).to_be_visible()
    tagged = listed.get("/api/runs/stocked/items?tag=look+again").json
    assert [item["sessionId"] for item in tagged["items"]] == ["s1", "s2", "s3", "s4"]

    bar.get_by_role("button", name="Export").click()
    link = bar.get_by_role("link", name="JSON", exact=True).get_attribute("href")
    document = listed.get(link).json
    assert {row["id"] for row in document["sessions"]} == {"s1", "s2", "s3", "s4"}
    assert len(document["batch_items"]) == 4

    for number in (3, 4):
        page.get_by_role("checkbox", name=f"Select item {number}", exact=True).click()
    bar.get_by_role("button", name="Compare").click()
    page.wait_for_url("**/compare/sessions?left=s1&right=s4")
    page.go_back()
    expect(rows(page).first).to_be_visible()
    page.get_by_role("checkbox", name="Select item 2", exact=True).click()
    page.get_by_role("toolbar", name="Selected items").get_by_role("button", name="Evaluate").click()
    page.wait_for_url("**/evaluations/new?run=stocked&session=s1")
    expect(page.get_by_text(re.compile("^1 session"))).to_be_visible()


def test_rows_stay_when_the_server_is_down(listed, open_page):
    page = open_page(f"{listed.url}/runs/stocked#items")
    expect(rows(page).first).to_contain_text("Mend test 0")

    page.route("**/api/runs/stocked/items*", lambda route: route.abort())
    chip(page, "fail").click()
    problem = page.locator("item-grid").get_by_role("alert")
    expect(problem).to_contain_text("The items could not be loaded.")
    expect(rows(page).first).to_contain_text("Mend test 0")
    expect(page.locator(".grid-empty")).to_be_hidden()
    expect(chip(page, "all")).to_have_attribute("aria-pressed", "true")
    assert "status" not in parameters(page)

    page.unroute("**/api/runs/stocked/items*")
    problem.get_by_role("button", name="Retry").click()
    expect(rows(page).first).to_contain_text("Mend test 2")
    expect(problem).to_be_hidden()


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE}], ids=["desktop", "phone"])
def test_the_grid_scrolls_with_the_page_and_shows_its_last_row_whole(listed, open_page, options):
    page = open_page(f"{listed.url}/runs/stocked#items", **options)
    expect(rows(page).first).to_be_visible()
    grid = page.get_by_role("grid", name="Items")
    # On a phone, a card has the model, too.
    expect(rows(page).nth(3)).to_contain_text(MODELS[0])

    inner = grid.evaluate("(grid) => [...grid.querySelectorAll('*'), grid].filter((one) => "
                          "['auto', 'scroll'].includes(getComputedStyle(one).overflowY) && "
                          "one.scrollHeight > one.clientHeight + 1).length")  # fmt: skip
    grid.focus()
    page.keyboard.press("End")
    last = page.locator("[aria-rowindex='61']")
    expect(last).to_contain_text("queued")
    box, head = last.bounding_box(), page.locator(".grid-head").bounding_box()

    assert inner == 0
    assert box["y"] + box["height"] <= page.viewport_size["height"]
    # The heading stays in view, and fits the columns.
    assert head["y"] == 52
    edges = "(row) => [...row.children].map((cell) => Math.round(cell.getBoundingClientRect().left))"
    assert page.locator(".grid-heading").evaluate(edges) == last.evaluate(edges)


def test_a_matrix_shows_who_passed_what_where_they_differ_and_the_session_behind(listed, open_page):
    page = open_page(f"{listed.url}/runs/small#matrix")
    matrix = page.get_by_role("grid", name="Matrix")
    tasks = matrix.get_by_role("rowheader")

    expect(tasks).to_have_text(["capital", "river", "hostile"])
    # Each column begins with its success rate, and the mean cost and time of an item.
    _, *heads = (head.split("\n") for head in matrix.get_by_role("columnheader").all_inner_texts())
    assert [name for name, _ in heads] == list(MODELS[:2])
    assert heads[0][1] == "100% · – · 12 s"
    first = matrix.locator(".grid-tall [role=row]").first
    expect(first).to_contain_text("success")
    expect(first).to_contain_text("The capital is Lyon")

    page.get_by_role("checkbox", name="Only where they disagree").check()
    expect(tasks).to_have_text(["capital"])
    page.get_by_role("combobox", name="Compare words of").select_option(MODELS[0])
    page.get_by_role("combobox", name="with", exact=True).select_option(MODELS[1])
    expect(matrix.locator("del")).to_have_text("Paris")
    expect(matrix.locator("ins")).to_have_text("Lyon")
    page.reload()
    expect(matrix.locator("del")).to_have_text("Paris")
    assert parameters(page) == {
        "by": ["model"], "disagree": ["true"], "left": [MODELS[0]], "right": [MODELS[1]],
    }  # fmt: skip

    matrix.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    drawer = page.get_by_role("dialog", name="capital")
    expect(drawer).to_contain_text("The capital is Lyon, since 987.")
    assert drawer.get_by_role("link", name="Open session").get_attribute("href") == "/sessions/capital-1"
    page.keyboard.press("Escape")
    expect(drawer).to_be_hidden()
    expect(matrix).to_be_focused()
    page.get_by_role("checkbox", name="Only where they disagree").uncheck()
    expect(tasks).to_have_text(["capital", "river", "hostile"])
    assert page.evaluate("window.pwned") is None
    page.get_by_role("combobox", name="Compare words of").select_option("")
    expect(matrix.locator("[title*='gnp.exe']")).to_have_count(1)
    expect(matrix.locator("[title*='\u202e']")).to_have_count(0)


def test_the_drawer_of_a_cell_has_all_its_repeats_also_while_a_large_run_is_read(listed, open_page, gate):
    store = listed.site.context.store
    made = [
        Item(runner="prompt", prompt="capital", model=MODELS[0], factors={"model": MODELS[0]}, repeat=repeat)
        for repeat in (1, 2, 3)
    ]
    add_run(store, "repeated", made, finishedAt=timestamp(NOW), job="benchmark")
    writer = store.writer()
    for item, status in zip(made, ("success", "fail", "success"), strict=True):
        session = f"repeat-{item.repeat}"
        events = [Message(role="assistant", content=f"Answer {item.repeat}.")]
        add_session(store, session, events, "repeated", itemId=item.id)
        writer.change("batch_items", ("repeated", item.id), {"status": status, "sessionId": session})
    writer.close()
    page = open_page(f"{listed.url}/runs/repeated#matrix")

    expect(page.locator("#matrix-count")).to_have_text("The first tasks. Reading 3 of 3 items…")
    expect(page.get_by_role("grid", name="Matrix").get_by_role("rowheader")).to_have_text(["capital"])
    gate.set()
    expect(page.locator("#matrix-count")).to_have_text("1 task", timeout=30_000)
    page.get_by_role("grid", name="Matrix").get_by_text("2 of 3 passed").click()
    drawer = page.get_by_role("dialog", name="capital")
    expect(drawer).to_contain_text("Answer 1.")
    repeats = drawer.get_by_role("group", name="Repeats").get_by_role("button")
    expect(repeats).to_have_text(
        [re.compile("Repeat 1"), re.compile("Repeat 2.*fail"), re.compile("Repeat 3")]
    )
    repeats.nth(1).click()
    expect(drawer).to_contain_text("Answer 2.")
    assert drawer.get_by_role("link", name="Open session").get_attribute("href") == "/sessions/repeat-2"
    assert [one.get_attribute("aria-pressed") for one in repeats.all()] == ["false", "true", "false"]


def test_names_of_models_break_between_their_parts(listed, open_page):
    page = open_page(f"{listed.url}/compare?run=stocked&by=model")
    names = page.locator("td.col-candidate")
    expect(names.first).to_be_visible()

    # Each part of a name is on one line.
    lines = """(cells) => cells.flatMap((cell) => [...cell.firstChild.childNodes])
        .filter((node) => node.nodeType === Node.TEXT_NODE)
        .map((node) => {
          const range = new Range();
          range.selectNodeContents(node);
          return range.getClientRects().length;
        })"""
    assert set(names.evaluate_all(lines)) == {1}
    assert "qwen3:8b" in page.locator("td.col-candidate").all_inner_texts()
