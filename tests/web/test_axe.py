"""No page has a serious finding of axe-core, in either theme and on a phone."""

import json
import shutil
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
FINDINGS = """async (rules) => {
  const runOnly = rules ? { type: "rule", values: rules } : undefined;
  const { violations } = await axe.run(document, { resultTypes: ["violations"], runOnly });
  const isSerious = ({ impact }) => ["serious", "critical"].includes(impact);
  const words = ({ target, html, failureSummary }) => [target.join(" "), html.slice(0, 160), failureSummary];
  return violations.filter(isSerious).map(({ id, nodes }) => [id, ...nodes.slice(0, 3).map(words)]);
}"""
MARK_EQUAL_TEXTS = Path(__file__).with_name("equal_texts.js").read_text("utf-8")
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
LOADED = "() => ![...document.querySelectorAll('.loading')].some((one) => one.checkVisibility())"


@pytest.fixture
def addresses(served, site, proctor):
    """Every page, with something on it."""
    items = stock(site.store)
    said = [
        Message(role="user", content="Mend the **tests**: `make test`"),
        ToolCall(name="run", args={"command": "ls"}, success=False, result="\x1b[31mred\x1b[32mok\n" * 40),
        ToolCall(name="edit", args={"path": "a.py", "old_string": "a", "new_string": "b"}, success=True),
        Message(role="assistant", content="# Done\n```python\nprint(1)\n```\n| a | b |\n|---|---|\n| 1 | 2|"),
        Iteration(changed_files=1, test_result="fail", test_exit_code=1, test_output="1 failed"),
    ]  # fmt: skip
    add_session(site.store, "talk", said, "stocked", itemId=items[2].id)
    pair = compared_run(
        site.store, "before", {f"task {n}": "success" if n % 3 else "fail" for n in range(12)}
    )
    compared_run(site.store, "after", {f"task {n}": "success" for n in range(12)}, score="tone")
    bring_sessions(proctor)
    evaluation = served.post("/api/evaluations", wanted()).json["id"]
    ended(served, evaluation)
    for name in ("stop-early", "always-even", "parity"):
        shutil.copy(PLANS / f"{name}.yaml", proctor.folder)
    proctor("batch", "stop-early.yaml")
    return [
        *("/", "/?status=halted", "/new", "/evaluations", "/evaluations#agreement", "/evaluations/new"),
        *(f"/evaluations/{evaluation}", f"/runs/{evaluation}", f"/runs/{evaluation}#items"),
        *("/runs/stocked", "/runs/stocked?status=fail#items", "/runs/stocked#matrix", "/runs/stocked#charts"),
        *("/runs/stocked#plan", "/runs/stop-early", "/runs/before#matrix"),
        *("/sessions/talk", "/sessions/talk#check", "/sessions/talk#calls", "/sessions/talk#details"),
        *("/compare", "/compare?run=before&run=after", f"/compare/sessions?left=talk&right={pair[0]}"),
        *("/trends", "/playground", "/tasks", "/models", "/settings", "/api/docs", "/nowhere", "/runs/none"),
        *("/api/runs/stocked/report?format=html", "/api/runs/stocked/report?format=portable"),
    ]


def test_axe_has_no_serious_finding_on_any_page_in_both_themes_and_on_a_phone(served, addresses, open_page):
    page = open_page(served.url)
    found = {}

    def look(where, **kinds):
        for kind, rules in kinds.items():
            page.emulate_media(color_scheme="dark" if kind == "dark" else "light")
            page.set_viewport_size(PHONE if kind == "phone" else WIDE)
            page.evaluate(FRAMES)
            if kind != "phone":
                page.evaluate(MARK_EQUAL_TEXTS)
            if findings := page.evaluate(FINDINGS, rules):
                found[where, kind] = findings

    # Reading the colors of all texts takes most of the time; those of a phone are the same.
    contrast = ["color-contrast"]
    structure = ["scrollable-region-focusable", "aria-hidden-focus", "label", "button-name"]
    for where in addresses:
        page.goto("about:blank")
        if "/report" in where:
            # The server has browsers run no script of a report, which includes axe.
            page.set_content(served.get(where).text)
        else:
            page.goto(served.url + where)
        page.wait_for_load_state("load" if where == "/models" else "networkidle")
        page.wait_for_function(LOADED)
        page.evaluate(AXE_SCRIPT)
        look(where, light=None, dark=contrast, phone=structure)
    page.goto(served.url)
    page.wait_for_load_state("networkidle")
    page.evaluate(AXE_SCRIPT)
    page.keyboard.press("Control+k")
    page.get_by_role("dialog").get_by_role("option").first.wait_for()
    look("palette", light=None, dark=contrast)
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    look("keys", light=None, dark=contrast)

    assert not found, json.dumps([[*look, findings] for look, findings in found.items()], indent=1)
