"""Everybody can use every page: axe-core, names, headings, what moves, and what the keyboard reaches."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from looks import PHONE, WINDOW
from stocked_judgments import bring_sessions, compared_run, ended, wanted
from stocked_runs import add_session, stock

from proctor.session import Iteration, Message, ToolCall

pytestmark = pytest.mark.browser

PLANS = Path(__file__).parents[2] / "examples" / "plans"
IS_LOADED = """async () => {
  // What follows from an answer or another size is drawn in the next frame.
  for (let count = 0; count < 3; count++) await new Promise(requestAnimationFrame);
  return ![...document.querySelectorAll(".loading")].some((one) => one.checkVisibility());
}"""
FINDINGS = """async ([only, part]) => {
  const isSerious = ({ impact }) => ["serious", "critical"].includes(impact);
  // Rules for less are not executed: they take a seventh of the time.
  const others = axe._audit.rules.filter((rule) => !isSerious(rule));
  const lesser = others.map(({ id }) => [id, { enabled: false }]);
  const options = only ? { runOnly: { type: "rule", values: only } } : { rules: Object.fromEntries(lesser) };
  const shown = document.querySelector(part);
  const { violations } = await axe.run(shown, { resultTypes: ["violations"], ...options });
  const words = ({ target, html, failureSummary }) => [target.join(" "), html.slice(0, 160), failureSummary];
  return violations.filter(isSerious).map(({ id, nodes }) => [id, ...nodes.slice(0, 3).map(words)]);
}"""
MARK_EQUAL_TEXTS = Path(__file__).with_name("equal_texts.js").read_text("utf-8")
RULES_OF_A_PHONE = ["scrollable-region-focusable", "aria-hidden-focus", "label", "button-name"]
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
  // A scroll bar for the mouse alone.
  if (one.closest("[aria-hidden=true]")) return false;
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
MOVING = ("/runs/stocked", "/runs/before", "/sessions/talk")
"""Pages that move by a little more, because of a budget, a prompt or attempts above the tabs."""
OPEN_FOLDS = """() => {
  for (const fold of document.querySelectorAll(".event summary")) fold.parentElement.open = true;
}"""
KEEP_ONE_OF_EACH_KIND = """() => {
  // Of the hundreds of operations and schemas in the manual, which all have the same form.
  const kinds = new Set();
  for (const one of document.querySelectorAll(".operation")) {
    const kind = one.querySelector("summary").firstElementChild.className;
    if (kinds.has(kind)) one.remove();
    kinds.add(kind);
  }
}"""


@pytest.fixture(scope="module")
def names(shared, shared_proctor):
    """Runs and sessions for every page to show something; what addresses of them name."""
    store, folder = shared.site.context.store, shared_proctor.folder
    items = stock(store)
    line = "a line of output that is longer than a phone is wide, and wider than most tables\n"
    output = "\x1b[31mred\x1b[32m" + line * 60
    answer = f"# Done\n```python\n{'wide ' * 200}\n```\n| a | b |\n|---|---|\n| 1 | 2|"
    calls = [ToolCall(name="run", args={"command": "ls"}, success=False, result=output[:3000])] * 2
    said = [
        Message(role="user", content="Mend the **tests**: `make test`"),
        *calls,
        ToolCall(name="edit", args={"path": "a.py", "old_string": "a", "new_string": "b"}, success=True),
        Message(role="assistant", content=answer),
        Iteration(changed_files=1, test_result="fail", test_exit_code=1, test_output=output),
    ]
    add_session(store, "talk", said[:1] + said[-3:], "stocked", itemId=items[2].id)
    add_session(store, "long", said)
    compared_run(store, "before", {f"task {n}": "success" if n % 3 else "fail" for n in range(12)})
    compared_run(store, "after", {f"task {n}": "success" for n in range(12)}, score="tone")
    bring_sessions(shared_proctor)
    job = shared.post("/api/evaluations", wanted()).json["id"]
    ended(shared, job)
    for name in ("stop-early", "always-even", "parity", "geography", "prompts"):
        shutil.copy(PLANS / f"{name}.yaml", folder)
    for run in ("stop-early", "prompts"):
        shared_proctor("batch", f"{run}.yaml")

    def first_session(run_id):
        return shared.get(f"/api/runs/{run_id}/items").json["items"][0]["sessionId"]

    return {"job": job, "left": first_session("before"), "answer": first_session("prompts")}


@pytest.fixture(scope="module")
def seen():
    """Kinds of texts whose colors axe has read, on whichever page."""
    return set()


class Visitor:
    """Somebody who goes from page to page and notes what is wrong with them."""

    def __init__(self, page, served, seen):
        self.page, self.served, self.seen = page, served, seen
        self.found, self.part = [], "html"
        self._requests = set()
        page.on("request", lambda request: self._requests.add(request))
        for end in ("requestfinished", "requestfailed"):
            page.on(end, lambda request: self._requests.discard(request))
        page.add_init_script(SHIFTS)
        page.emulate_media(reduced_motion="no-preference")

    def load(self, where):
        """Open an address; of a page that is open already, with another fragment, it shows another tab."""
        is_tab = (
            "#" in where and self.page.url.partition("#")[0] == f"{self.served.url}{where}".partition("#")[0]
        )
        self.part = "[role=tabpanel]:not([hidden])" if is_tab else "html"
        if "/report" in where:
            # The server has browsers run no script of a report, which includes axe.
            self.page.goto("about:blank")
            self.page.set_content(self.served.get(where).text)
        else:
            self.page.goto(self.served.url + where)
        quiet = 0
        while quiet < 2:
            quiet = quiet + 1 if self.page.evaluate(IS_LOADED) and not self._requests else 0

    def note(self, findings, *key):
        if findings:
            self.found.append([*key, findings])

    def examine(self, where, rules=None):
        """What axe finds in what is new on the page: all that is serious, or what breaks these rules."""
        self.note(self.page.evaluate(FINDINGS, [rules, self.part]), where, rules)

    def has_new_colors(self):
        kinds = self.page.evaluate(MARK_EQUAL_TEXTS, list(self.seen))
        self.seen.update(kinds)
        return bool(kinds)

    def examine_both_themes(self, where):
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE_SCRIPT)
        self.has_new_colors()
        self.examine(where)
        self.page.emulate_media(color_scheme="dark")
        if self.has_new_colors():
            self.examine(where, ["color-contrast"])
        self.page.emulate_media(color_scheme="light")

    def check_names(self, where):
        self.note(self.page.locator("main h1").count() != 1, where, "headings of level 1")
        for check in (NAMELESS, REPEATED):
            self.note(self.page.evaluate(check), where, check)

    def check_shifts(self, where):
        if not where.startswith(MOVING) and self.page.evaluate("window.shifted") >= MOST_SHIFTED:
            self.note(self.page.evaluate("[window.shifted, ...window.shifting]"), where, "moves")

    def check_folds(self, where):
        """What the keyboard reaches, and headings, also of what is folded."""
        self.page.evaluate(OPEN_FOLDS)
        # Content of folds is made after they open, which is no shift that nobody asked for.
        self.page.evaluate(IS_LOADED)
        self.page.evaluate("window.shifted = 0")
        self.note(self.page.evaluate(UNREACHABLE), where, "not reached by keyboard")
        levels = self.page.evaluate(HEADINGS)
        is_ordered = levels[:1] == [1] and all(later <= earlier + 1 for earlier, later in pairwise(levels))
        self.note([] if is_ordered else levels, where, "order of headings")


@pytest.fixture
def visitor(shared, names, seen, open_page):
    visitor = Visitor(open_page("about:blank"), shared, seen)
    yield visitor
    assert not visitor.found, json.dumps(visitor.found, indent=1)


PAGES = {
    "batches": [
        "/",
        "/?status=halted",
        "/new",
        "/models",
        "/settings",
        "/playground",
        "/tasks",
        "/api/docs",
        "/sessions/long",
        "/sessions/long#check",
        "/sessions/long#calls",
        "/sessions/long#details",
        "/compare/sessions?left=talk&right={left}",
        "/sessions/{answer}?from=order%3Dposition",
        "/sessions/talk",
    ],
    "runs": [
        "/runs/stocked?status=fail",
        "/runs/stocked?status=fail#items",
        "/runs/stocked?status=fail#matrix",
        "/runs/stocked?status=fail#charts",
        "/runs/stocked?status=fail#plan",
        "/runs/stop-early",
        "/runs/before#matrix",
        "/compare?run=prompts",
        "/runs/prompts",
        "/runs/prompts#items",
        "/runs/none",
        "/nowhere",
        "/api/runs/stocked/report?format=html",
        "/api/runs/stocked/report?format=portable",
    ],
    "judgments": [
        "/evaluations",
        "/evaluations#judges",
        "/evaluations/new",
        "/evaluations/{job}",
        "/runs/{job}",
        "/runs/{job}#items",
        "/compare",
        "/compare?run=before&run=after",
        "/trends",
        "/review",
        "/sessions",
        "/dashboard?since=2000d",
        "/labeling",
    ],
}


@pytest.mark.parametrize("part", PAGES)
def test_pages_stay_in_place_have_names_and_headings_and_no_serious_finding(visitor, names, part):
    """For axe in both themes and on a phone, where colors are the same. One visit, many checks."""
    for template in PAGES[part]:
        where = template.format(**names)
        visitor.load(where)
        visitor.note(visitor.page.evaluate(EMPTY_HEADERS), where, "empty headers")
        if "/report" not in where:
            visitor.check_shifts(where)
            visitor.check_names(where)
        visitor.page.evaluate(KEEP_ONE_OF_EACH_KIND)
        visitor.examine_both_themes(where)
        if "/report" not in where:
            visitor.check_folds(where)
        visitor.page.set_viewport_size(PHONE)
        visitor.page.evaluate(IS_LOADED)
        visitor.note(visitor.page.evaluate(UNREACHABLE), where, "not reached by keyboard on a phone")
        visitor.examine(where, RULES_OF_A_PHONE)
        visitor.page.set_viewport_size(WINDOW)


def test_pages_stay_in_place_on_a_phone(visitor, names):
    visitor.page.set_viewport_size(PHONE)
    lists = ("/", "/new", "/models", "/evaluations", "/settings")
    compared = ("/compare?run=prompts", "/compare/sessions?left=long&right=long")
    for template in (*lists, *compared, "/evaluations/{job}", "/runs/prompts", "/sessions/long#check"):
        visitor.load(template.format(**names))
        visitor.check_shifts(template)


@pytest.mark.parametrize("key", ["Control+k", "?"], ids=["palette", "keys"])
def test_a_dialog_has_no_serious_finding(visitor, key):
    visitor.load("/")
    visitor.page.keyboard.press(key)
    visitor.page.get_by_role("dialog").wait_for()
    if key == "Control+k":
        visitor.page.get_by_role("dialog").get_by_role("option").first.wait_for()
    visitor.examine_both_themes(key)
