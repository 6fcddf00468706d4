"""Everybody can use every page: axe-core, names, headings, what moves, and what the keyboard reaches."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from stocked_judgements import bring_sessions, compared_run, ended, wanted
from stocked_runs import add_session, stock

from proctor.session import Iteration, Message, ToolCall

pytestmark = pytest.mark.browser

PLANS = Path(__file__).parents[2] / "examples" / "plans"
FRAMES = """async () => {
  // What follows from another size is drawn in the next frame.
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  for (let count = 0; count < 3; count++) await frame();
}"""
FINDINGS = """async (only) => {
  const isSerious = ({ impact }) => ["serious", "critical"].includes(impact);
  // Rules for less are not executed: they take a seventh of the time.
  const others = axe._audit.rules.filter((rule) => !isSerious(rule));
  const lesser = others.map(({ id }) => [id, { enabled: false }]);
  const options = only ? { runOnly: { type: "rule", values: only } } : { rules: Object.fromEntries(lesser) };
  const { violations } = await axe.run(document, { resultTypes: ["violations"], ...options });
  const words = ({ target, html, failureSummary }) => [target.join(" "), html.slice(0, 160), failureSummary];
  return violations.filter(isSerious).map(({ id, nodes }) => [id, ...nodes.slice(0, 3).map(words)]);
}"""
MARK_EQUAL_TEXTS = Path(__file__).with_name("equal_texts.js").read_text("utf-8")
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
LOADED = "() => ![...document.querySelectorAll('.loading')].some((one) => one.checkVisibility())"
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
OPEN_FOLDS = """() => {
  for (const fold of document.querySelectorAll(".event summary")) fold.parentElement.open = true;
}"""


@pytest.fixture
def job(served, site, proctor):
    """Runs and sessions for every page to show something; the id of an evaluation."""
    items = stock(site.store)
    said = [
        Message(role="user", content="Mend the **tests**: `make test`"),
        ToolCall(name="run", args={"command": "ls"}, success=False, result="\x1b[31mred\x1b[32mok\n" * 40),
        ToolCall(name="edit", args={"path": "a.py", "old_string": "a", "new_string": "b"}, success=True),
        Message(role="assistant", content="# Done\n```python\nprint(1)\n```\n| a | b |\n|---|---|\n| 1 | 2|"),
        Iteration(changed_files=1, test_result="fail", test_exit_code=1, test_output="1 failed"),
    ]  # fmt: skip
    add_session(site.store, "talk", said, "stocked", itemId=items[2].id)
    output = (
        "\x1b[31m"
        + "a line of output that is longer than a phone is wide, and wider than most tables\n" * 200
    )
    long = [
        Message(role="user", content="hello"),
        *(ToolCall(name="run", args={"command": "ls"}, success=True, result=output[:3000]) for _ in range(5)),
        Message(role="assistant", content="```\n" + "wide " * 200 + "\n```\n| a | b |\n|---|---|\n| 1 | 2 |"),
        Iteration(test_result="fail", test_exit_code=1, test_output=output),
    ]
    add_session(site.store, "long", long)
    compared_run(site.store, "before", {f"task {n}": "success" if n % 3 else "fail" for n in range(12)})
    compared_run(site.store, "after", {f"task {n}": "success" for n in range(12)}, score="tone")
    bring_sessions(proctor)
    evaluation = served.post("/api/evaluations", wanted()).json["id"]
    ended(served, evaluation)
    for name in ("stop-early", "always-even", "parity", "geography", "prompts"):
        shutil.copy(PLANS / f"{name}.yaml", proctor.folder)
    proctor("batch", "stop-early.yaml")
    proctor("batch", "prompts.yaml")
    return evaluation


def first_session(served, run_id):
    return served.get(f"/api/runs/{run_id}/items").json["items"][0]["sessionId"]


def test_every_page_has_no_serious_finding_names_headings_and_stays_where_it_is(served, job, open_page):
    """For axe in both themes and on a phone. What scrolls is reached by keyboard. One visit, many checks."""
    left, answer = first_session(served, "before"), first_session(served, "prompts")
    examined = [
        *("/", "/?status=halted", "/new", "/evaluations", "/evaluations#judges", "/evaluations/new"),
        *(f"/evaluations/{job}", f"/runs/{job}", f"/runs/{job}#items"),
        *("/runs/stocked", "/runs/stocked?status=fail#items", "/runs/stocked#matrix", "/runs/stocked#charts"),
        *("/runs/stocked#plan", "/runs/stop-early", "/runs/before#matrix"),
        *("/sessions/talk", "/sessions/talk#check", "/sessions/talk#calls", "/sessions/talk#details"),
        *("/compare", "/compare?run=before&run=after", f"/compare/sessions?left=talk&right={left}"),
        *("/trends", "/playground", "/tasks", "/models", "/settings", "/api/docs", "/nowhere", "/runs/none"),
        *("/api/runs/stocked/report?format=html", "/api/runs/stocked/report?format=portable"),
    ]
    named = [
        *("/", "/new", "/compare", "/trends", "/evaluations", "/evaluations/new"),
        *("/models", "/settings", "/api/docs", "/playground", "/tasks"),
        *("/runs/stocked", "/runs/stocked#items", "/runs/stocked#matrix", "/runs/stocked#charts"),
        *("/sessions/talk", "/sessions/talk#details"),
    ]
    steady = [
        *("/", "/new", "/compare", "/compare?run=prompts", "/models", "/evaluations", "/evaluations/new"),
        *(f"/evaluations/{job}", "/runs/prompts", "/runs/prompts#items", f"/runs/{job}"),
        *("/sessions/long", "/sessions/long#check", "/sessions/long#details", "/settings"),
        *(f"/sessions/{answer}?from=order%3Dposition", f"/sessions/{answer}#details"),
        "/compare/sessions?left=long&right=long",
    ]
    page = open_page("about:blank")
    page.add_init_script(SHIFTS)
    page.emulate_media(reduced_motion="no-preference")
    found = {}

    def load(where, size):
        if "/report" in where or page.url.partition("#")[0] == served.url + where.partition("#")[0]:
            # Another fragment of the same address would load nothing.
            page.goto("about:blank")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(size)
        if "/report" in where:
            # The server has browsers run no script of a report, which includes axe.
            page.set_content(served.get(where).text)
        else:
            page.goto(served.url + where)
        page.wait_for_load_state("networkidle")
        page.wait_for_function(LOADED)

    def note(findings, *key):
        if findings:
            found[key] = findings

    def examine(where, *kinds):
        """What axe finds. Reading colors takes most of its time; those of a phone are the same."""
        rules = {
            "light": None,
            "dark": ["color-contrast"],
            "phone": ["scrollable-region-focusable", "aria-hidden-focus", "label", "button-name"],
        }
        page.evaluate(AXE_SCRIPT)
        for kind in kinds:
            page.emulate_media(color_scheme="dark" if kind == "dark" else "light")
            page.set_viewport_size(PHONE if kind == "phone" else WIDE)
            page.evaluate(FRAMES)
            if kind != "phone":
                page.evaluate(MARK_EQUAL_TEXTS)
            note(page.evaluate(FINDINGS, rules[kind]), where, kind)

    def check_names(where):
        note(page.locator("main h1").count() != 1, where, "headings of level 1")
        for check in (NAMELESS, REPEATED, EMPTY_HEADERS):
            note(page.evaluate(check), where, check)

    def check_steadiness(where, size):
        if page.evaluate("window.shifted") >= MOST_SHIFTED:
            note(page.evaluate("[window.shifted, ...window.shifting]"), where, size["width"], "moves")
        page.evaluate(OPEN_FOLDS)
        # Content of folds is made after they open.
        page.wait_for_timeout(50)
        note(page.evaluate(UNREACHABLE), where, size["width"], "not reached by keyboard")
        levels = page.evaluate(HEADINGS)
        is_ordered = levels[:1] == [1] and all(later <= earlier + 1 for earlier, later in pairwise(levels))
        note([] if is_ordered else levels, where, size["width"], "order of headings")

    for where in dict.fromkeys([*examined, *named, *steady]):
        load(where, WIDE)
        if where in named:
            check_names(where)
        if where in steady:
            check_steadiness(where, WIDE)
        if where in examined:
            examine(where, "light", "dark", "phone")
    for where in steady:
        load(where, PHONE)
        check_steadiness(where, PHONE)

    load("/", WIDE)
    page.keyboard.press("Control+k")
    page.get_by_role("dialog").get_by_role("option").first.wait_for()
    examine("palette", "light", "dark")
    # Not after Escape: the key may come before the closed dialog has given up the focus.
    load("/", WIDE)
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    examine("keys", "light", "dark")

    assert not found, json.dumps([[*key, findings] for key, findings in found.items()], indent=1)
