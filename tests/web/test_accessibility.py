"""Everybody can use the pages: what can be reached has a name, what is written can be read."""

import re
import shutil
from importlib.resources import files
from itertools import pairwise, product
from pathlib import Path

import pytest
from playwright.sync_api import expect
from stocked_judgements import bring_sessions, ended, wanted
from stocked_runs import add_session, stock

from proctor.session import Iteration, Message, ToolCall

EXAMPLES = Path(__file__).parents[2] / "examples" / "plans"

ENOUGH = 4.5
"""The contrast that small text needs, says WCAG 2."""
SURFACES = ("paper", "panel", "raised", "hover", "main-paper", "bad-paper", "good-paper", "warn-paper")
TEXTS = ("ink", "soft", "faint", "main", "main-strong", "success", "fail", "timeout", "error", "running")
PAIRS = [(text, surface) for text in TEXTS for surface in SURFACES]
PAIRS += [("warn-ink", "warn-paper"), ("on", "main"), ("on", "main-strong"), ("white", "danger")]

NAMELESS = """() => {
  const words = (id) => document.getElementById(id)?.textContent || "";
  const label = (id) => (id && document.querySelector(`label[for="${id}"]`)?.textContent) || "";
  const names = (one) => [
    one.getAttribute("aria-label"), ...(one.getAttribute("aria-labelledby") || "").split(" ").map(words),
    one.closest("label")?.textContent, label(one.id), one.innerText, one.title, one.alt,
  ];
  const reached = "a[href], button, input, select, textarea, summary, [role=tab], [role=grid], [role=log]";
  const seen = [...document.querySelectorAll(reached)].filter((one) => one.checkVisibility());
  const isNameless = (one) => !names(one).some((given) => given && given.trim());
  return seen.filter(isNameless).map((one) => one.outerHTML.slice(0, 160));
}"""
EMPTY_HEADERS = """() => {
  const isSeen = (node) => node.textContent.trim() && !node.parentElement.closest(".unseen");
  const texts = (one) => [...one.querySelectorAll("*"), one].flatMap((each) => [...each.childNodes]);
  const isEmpty = (one) => !texts(one).some((node) => node.nodeType === Node.TEXT_NODE && isSeen(node));
  const heads = [...document.querySelectorAll("th, [role=columnheader], [role=rowheader]")];
  const empty = heads.filter((one) => one.checkVisibility() && isEmpty(one));
  return empty.map((one) => one.outerHTML.slice(0, 160));
}"""
REPEATED = """() => {
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  return ids.filter((id, place) => ids.indexOf(id) !== place);
}"""


def tokens():
    """The colours of the stylesheet by name: in the light, in the dark."""
    css = files("proctor.web").joinpath("static/proctor.css").read_text()
    found = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", css)
    return {name: (light, dark) for name, light, dark in found} | {"white": ("#ffffff", "#ffffff")}


def brightness(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    darker, lighter = sorted((brightness(one), brightness(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_text_can_be_told_from_what_it_stands_on(theme):
    colours = tokens()

    poor = {pair: contrast(colours[pair[0]][theme], colours[pair[1]][theme]) for pair in PAIRS}

    assert {pair: ratio for pair, ratio in poor.items() if ratio < ENOUGH} == {}


def test_no_table_of_a_report_has_an_empty_header_cell():
    templates = list(files("proctor.report").joinpath("templates").iterdir())

    empty = [one.name for one in templates if re.search(r"<th\b[^>]*>\s*</th>", one.read_text())]

    assert empty == []
    assert len(templates) > 5


@pytest.mark.browser
def test_whatever_can_be_reached_on_a_page_has_a_name(served, site, open_page):
    items = stock(site.store)
    said = [Message(role="user", content="hello"), ToolCall(name="run", args={}, success=True, result="")]
    add_session(site.store, "talk", said, "stocked", itemId=items[0].id)
    page = open_page(served.url)
    for where in (
        *("/", "/new", "/compare", "/trends", "/evaluations", "/evaluations/new"),
        *("/models", "/settings", "/api/docs", "/playground", "/tasks"),
        *("/runs/stocked", "/runs/stocked#items", "/runs/stocked#matrix", "/runs/stocked#charts"),
        *("/sessions/talk", "/sessions/talk#details"),
    ):
        page.goto(served.url + where)
        # What models there are takes processes to find out.
        page.wait_for_load_state("load" if where == "/models" else "networkidle")
        assert page.locator("main h1").count() == 1, where
        assert page.evaluate(NAMELESS) == [], where
        assert page.evaluate(REPEATED) == [], where
        assert page.evaluate(EMPTY_HEADERS) == [], where


@pytest.mark.browser
def test_a_run_is_read_without_a_mouse(served, site, open_page):
    items = stock(site.store)
    add_session(site.store, "talk", [Message(role="user", content="hello")], "stocked", itemId=items[1].id)
    writer = site.store.writer()
    writer.change("batch_items", ("stocked", items[1].id), {"sessionId": "talk"})
    writer.close()
    page = open_page(served.url)
    page.get_by_role("row", name=re.compile("stocked")).wait_for()

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    tab_to(page, "tr")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/stocked")
    # Results come first; the items are the next tab.
    expect(page.get_by_role("tab", name="Results")).to_have_attribute("aria-selected", "true")
    tab_to(page, "[role=tab]")
    page.keyboard.press("ArrowRight")
    page.get_by_role("gridcell", name="Mend test 1 of blog").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("of blog")
    expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "31")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "grid"
    page.keyboard.press("Enter")
    page.wait_for_url("**/sessions/talk?*")
    expect(page.get_by_role("log")).to_contain_text("hello")
    tab_to(page, "[role=tab]")
    page.keyboard.press("End")
    expect(page.get_by_role("tabpanel", name="Details")).to_be_visible()


def tab_to(page, selector):
    """Press Tab until something of that kind has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"no {selector} is reached")


UNREACHABLE = """() => [...document.querySelectorAll("main *")].filter((one) => {
  const style = getComputedStyle(one);
  const scrolls = (way, size) =>
    /auto|scroll/.test(style[`overflow${way}`]) && one[`scroll${size}`] > one[`client${size}`] + 1;
  if (!one.checkVisibility() || !(scrolls("Y", "Height") || scrolls("X", "Width"))) return false;
  const reached = "a[href], button:not([disabled]), input, select, textarea, summary, [tabindex='0']";
  return one.tabIndex < 0 && !one.querySelector(reached);
}).map((one) => one.outerHTML.slice(0, 160))"""
HEADINGS = """() => [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")]
  .filter((one) => one.checkVisibility()).map((one) => Number(one.tagName[1]))"""
SHIFTS = """window.shifted = 0;
window.shifting = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (entry.hadRecentInput) continue;
    window.shifted += entry.value;
    const nodes = entry.sources.map((source) => source.node?.outerHTML?.slice(0, 80));
    if (entry.value > 0.01) window.shifting.push([entry.value, ...nodes]);
  }
}).observe({ type: "layout-shift", buffered: true });"""
MOST_SHIFTED = 0.1
"""Of the window, while a page loads: what web vitals call good."""


@pytest.mark.browser
def test_pages_do_not_move_while_they_load_and_what_scrolls_is_reached_by_keyboard(
    served, site, proctor, open_page
):
    long = (
        "\x1b[31m"
        + "a line of output that is longer than a phone is wide, and wider than most tables\n" * 200
    )
    said = [
        Message(role="user", content="hello"),
        *(ToolCall(name="run", args={"command": "ls"}, success=True, result=long[:3000]) for _ in range(5)),
        Message(role="assistant", content="```\n" + "wide " * 200 + "\n```\n| a | b |\n|---|---|\n| 1 | 2 |"),
        Iteration(test_result="fail", test_exit_code=1, test_output=long),
    ]
    add_session(site.store, "talk", said)
    bring_sessions(proctor)
    job = served.post("/api/evaluations", wanted()).json["id"]
    ended(served, job)
    shutil.copy(EXAMPLES / "geography.yaml", proctor.folder)
    shutil.copy(EXAMPLES / "prompts.yaml", proctor.folder)
    proctor("batch", "prompts.yaml")
    session = served.get("/api/runs/prompts/items").json["items"][0]["sessionId"]
    page = open_page(f"{served.url}/settings")
    page.add_init_script(SHIFTS)
    pages = (
        *("/", "/new", "/compare", "/compare?run=prompts", "/models", "/evaluations", "/evaluations/new"),
        *(f"/evaluations/{job}", "/runs/prompts", "/runs/prompts#items", f"/runs/{job}"),
        *("/sessions/talk", "/sessions/talk#check", "/sessions/talk#details", "/settings"),
        *(f"/sessions/{session}?from=order%3Dposition", f"/sessions/{session}#details"),
        "/compare/sessions?left=talk&right=talk",
    )
    for where, width in product(pages, (1280, 390)):
        page.goto("about:blank")
        page.set_viewport_size({"width": width, "height": 844})
        page.goto(served.url + where)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("window.shifted") < MOST_SHIFTED, (
            where,
            width,
            page.evaluate("window.shifting"),
        )
        for fold in page.locator(".event summary").all():
            fold.evaluate("(one) => (one.parentElement.open = true)")
        # Content of folds is made after they open.
        page.wait_for_timeout(50)
        assert page.evaluate(UNREACHABLE) == [], (where, width)
        levels = page.evaluate(HEADINGS)
        assert levels[:1] == [1], (where, width)
        assert all(later <= earlier + 1 for earlier, later in pairwise(levels)), (where, width, levels)
