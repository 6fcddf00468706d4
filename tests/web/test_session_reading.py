"""Reading a session in a real browser: formatted texts, diffs, outline, neighbors, notes, hostile texts."""

import re

import pytest
from hostile_texts import ATTACKS
from playwright.sync_api import expect
from stocked_runs import HOSTILE, add_session, change_items, stock

from proctor.session import Iteration, Message, ModelCall, ToolCall, Usage

pytestmark = pytest.mark.browser

MARKDOWN = """# Plan

I fix the **sum** in `shop.py`, *soon*, see [the docs](https://docs.example/x) and **2**.

1. Read
2. Change
   - keep `total`
   - [x] no imports

> quoted

```python
def total():  # adds
    return 1
```

| file | ok |
|---|---|
| a.py | yes |
"""
EDITS = [
    ("Edit", {"file_path": "a.py", "old_string": "x = 1\ny = 2", "new_string": "x = 1\ny = 3"}),
    ("MultiEdit", {"file_path": "b.py", "edits": [{"old_string": "p", "new_string": "q"}]}),
    ("apply_patch", {"input": "*** Begin Patch\n*** Update File: c.py\n@@\n-old\n+new\n*** End Patch"}),
    ("str_replace_editor", {"command": "create", "path": "d.py", "file_text": "print(1)\n"}),
    ("str_replace_editor", {"command": "str_replace", "path": "e.py", "old_str": "1", "new_str": "2"}),
    ("edit_file", {"path": "f.py", "find": "left", "replace": "right"}),
    ("edit", {"filePath": "g.py", "oldString": "one", "newString": "two"}),
    (
        "shell",
        {
            "command": [
                "bash",
                "-lc",
                "apply_patch <<E\n*** Begin Patch\n*** Add File: h.py\n+hi\n*** End Patch\nE",
            ]
        },
    ),
    ("patch", {"diff": "--- a/i.py\n+++ b/i.py\n@@ -1 +1 @@\n-was\n+is\n"}),
    ("write_file", {"path": "long.py", "content": "line\n" * 2000}),
    ("read_file", {"path": "not-an-edit.py", "text": "nothing"}),
]


@pytest.fixture
def run(site):
    """A run whose first items have sessions."""
    made = stock(site.context.store, "reading", 20)
    for number, item in enumerate(made[:6]):
        usage = Usage(input_tokens=100 * (number + 1), output_tokens=10)
        events = [
            Message(role="user", content="Mend the sum."),
            *(ModelCall(model="m", usage=usage, cost_usd=0.01) for _ in range(3)),
            Message(role="assistant", content=MARKDOWN),
            *(ToolCall(name=name, args=args, success=True, result='{"ok": true}') for name, args in EDITS),
            Message(role="tool", content="# not a heading"),
            Iteration(test_result="fail", test_exit_code=1, test_output="\x1b[31mred\x1b[0m"),
        ]
        status = {"status": "fail"} if number == 1 else {}
        add_session(site.context.store, f"r{number}", events, "reading", itemId=item.id, **status)
        change_items(site.context.store, "reading", {item.id: {"sessionId": f"r{number}", "status": "fail"}})


def test_a_session_is_read_with_diffs_outline_check_neighbors_and_notes(served, run, open_page):
    page = open_page(f"{served.url}/sessions/r1?from=status%3Dfail%26order%3Dposition")
    # An age that stays current.
    expect(page.locator("#facts time[data-since=started]")).to_have_text(re.compile("^started "))
    said = page.locator(".role-assistant .rich")
    expect(said.locator("strong")).to_have_text(["sum", "2"])
    expect(said.locator("ol > li").nth(1).locator("ul > li")).to_have_count(2)
    expect(said.locator("blockquote")).to_have_text("quoted")
    expect(said.locator(".rich-code .k-word").first).to_have_text("def")
    expect(said.locator("td").last).to_have_text("yes")
    expect(said.locator("a")).to_have_attribute("rel", "noopener noreferrer nofollow")
    expect(said).to_contain_text("(docs.example)")
    expect(page.locator(".role-tool .said")).to_have_text("# not a heading")
    # Headings of texts are no headings of the page.
    assert page.locator("#panel-transcript :is(h1, h2, h3, h4, h5, h6)").count() == 0

    names = page.locator(".edits .diff-file > summary code").all_text_contents()
    assert names == [f"{letter}.py" for letter in "abcdefghi"]
    first = page.locator(".edits").first
    expect(first.locator(".dl.removed")).to_have_text("−y = 2")
    expect(first.locator(".dl.added")).to_have_text("+y = 3")
    expect(first.locator(".dl.same")).to_have_text(" x = 1")
    page.get_by_role("button", name="Show diff").click()
    expect(page.locator(".edits summary", has_text="long.py")).to_contain_text("+2,000")
    expect(page.get_by_label("Check after the last step")).to_contain_text("failed")

    outline = page.locator("session-outline")
    expect(outline.get_by_role("img")).to_have_attribute(
        "aria-label", re.compile(r"3 model calls, .*\$0\.03")
    )
    outline.get_by_role("button", name=re.compile("apply_patch")).click()
    expect(page.locator(".tool-call.pointed .tool")).to_have_text("apply_patch")

    expect(page.locator("#place-words")).to_have_text(re.compile(r"2 of \d+"))
    expect(
        page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="reading")
    ).to_have_attribute("href", re.compile(r"/runs/reading\?status=fail&order=position#items$"))
    page.keyboard.press("j")
    expect(page).to_have_url(re.compile(r"/sessions/r2\?from="))
    expect(page.locator("#place-words")).to_have_text(re.compile(r"3 of \d+"))
    page.go_back()

    notes = page.locator("proctor-annotations")
    notes.locator("summary").click()
    notes.get_by_label("Your name").fill("Ada")
    notes.get_by_label("Your name").press("Tab")
    notes.get_by_label("Add a tag").fill("wrong <b>file</b>")
    notes.get_by_label("Add a tag").press("Enter")
    expect(notes.locator(".tag")).to_contain_text("wrong <b>file</b>")
    notes.get_by_label("New note").fill("j and k are letters here\n<script>window.pwned = 1</script>")
    notes.get_by_role("button", name="Add note").click()
    expect(notes.locator(".note-text")).to_contain_text("<script>")
    page.reload()
    expect(notes.locator(".note-head b")).to_have_text("Ada")
    notes.get_by_label(re.compile("Remove tag")).click()
    expect(notes.locator(".tag")).to_have_count(0)
    assert page.evaluate("window.pwned") is None


def thread_seconds(page):
    """Processor time of the page's thread: other work on the machine must not decide."""
    browser = page.context.new_cdp_session(page)
    browser.send("Performance.enable", {"timeDomain": "threadTicks"})
    metrics = browser.send("Performance.getMetrics")["metrics"]
    browser.detach()
    return next(metric["value"] for metric in metrics if metric["name"] == "ThreadTime")


def test_no_text_does_harm_or_takes_long_when_it_is_formatted(served, site, open_page):
    add_session(
        site.context.store,
        "attack",
        [
            *(Message(role="assistant", content=text) for text in [*ATTACKS, HOSTILE]),
            ToolCall(name="Edit", args={"file_path": HOSTILE, "old_string": HOSTILE, "new_string": "x"}),
            ToolCall(name="Write", args={"file_path": ["a"], "content": {"b": 1}, "edits": [None, 3, "x"]}),
            ToolCall(
                name="apply_patch", args={"input": f"*** Begin Patch\n*** Update File: {HOSTILE}\n+{HOSTILE}"}
            ),
        ],
    )
    page = open_page(f"{served.url}/sessions/attack")
    expect(page.locator(".role-assistant")).to_have_count(len(ATTACKS) + 1)
    buttons = page.get_by_role("button", name=re.compile("Show all"))
    for left in range(buttons.count(), 0, -1):
        buttons.first.click()
        expect(buttons).to_have_count(left - 1)

    assert page.evaluate("window.pwned") is None
    assert page.locator("#session script, #session img, #session iframe, #session [onerror]").count() == 0
    links = page.locator("#panel-transcript .rich a").evaluate_all("(all) => all.map((one) => one.href)")
    assert all(re.match(r"https?://", link) for link in links)
    assert any("evil.example" in link for link in links)
    # The words of a link do not hide where it leads.
    expect(page.locator(".role-assistant", has_text="bank.example")).to_contain_text("(evil.example)")
    before = thread_seconds(page)
    page.evaluate(
        """async (texts) => {
          const { editsOf } = await import("/static/edits.js");
          for (const text of texts) editsOf("Edit", { path: "a", old_string: text, new_string: text + "x" });
        }""",
        [text.replace("\x00", "") for text in ATTACKS],
    )
    assert thread_seconds(page) - before < 8
    shown = page.evaluate(
        "async (text) => (await import('/static/texts.js')).visible(text)",
        "a\U000e0041b\u00adc\u3164\U0001f600",
    )
    assert shown == "a⟨U+E0041⟩b⟨U+00AD⟩c⟨U+3164⟩\U0001f600"
    # Whatever a server answers, the page builds only what it knows.
    forged = [["script", {}, "window.pwned=1"], ["a", {"href": "javascript:window.pwned=1"}, "x"]]
    forged += [["p", {"onclick": "window.pwned=1", "style": "x", "class": "dialog"}, ["img", {"src": "x"}]]]
    page.route("**/events?*", lambda route: route.fulfill(json=forged_page(forged)))
    page.reload()
    message = page.locator(".role-assistant .piece-first")
    expect(message).to_have_text("window.pwned=1x")
    html = "<span>window.pwned=1</span><a>x</a><p><span></span></p>"
    assert message.evaluate("(box) => box.innerHTML") == html


def forged_page(nodes):
    content = {"text": "x", "size": 1, "isCut": False}
    event = {"kind": "message", "position": 1, "step": 1, "role": "assistant", "name": "", "content": content}
    return {"events": [event], "lastPosition": 1, "hasMore": False, "nodes": {"1": nodes}}


def test_what_is_typed_while_the_palette_loads_is_in_its_field(served, run, open_page):
    page = open_page(f"{served.url}/")

    held = []
    page.route("**/palette.js", lambda route: held.append(route))
    with page.expect_request("**/palette.js"):
        page.keyboard.press("Control+k")
    page.keyboard.type("reading?")
    held[0].continue_()
    expect(page.get_by_role("dialog", name="Search").get_by_role("combobox")).to_have_value("reading?")


def test_the_palette_finds_actions_runs_and_words_with_the_keyboard_alone(served, run, open_page):
    page = open_page(f"{served.url}/")
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Search")
    expect(palette.get_by_role("option", name=re.compile("reading"))).to_be_visible()
    page.keyboard.type("soon docs")
    expect(palette.locator("mark").first).to_have_text("soon")
    expect(palette.get_by_role("option")).to_have_count(6)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/sessions/r\d#m5"))
    expect(page.locator("#m5")).to_have_class(re.compile("pointed"))

    page.keyboard.press("Control+k")
    page.keyboard.type("Details")
    expect(palette.get_by_role("option", name=re.compile("Details"))).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("#panel-details")).to_be_visible()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_contain_text("Next session of the list")
    page.keyboard.press("Escape")
    expect(keys).to_have_count(0)


ONE = """
runId: RUN
matrix:
  - repo: shop
    prompt: Mend the sum
    scriptCommand: "grep -q + shop.py"
    script:
      - {write: {path: shop.py, content: "CONTENT"}}
      - {write: {path: NOTES, content: "same\\n"}}
      - {say: "The total was SAID."}
"""


def test_two_sessions_differ_in_answers_and_patches_and_a_failed_one_is_not_offered_for_merging(
    served, proctor, repository, open_page
):
    ids = []
    for run_id, content, words in (("left", "total = 1 + 1\\n", "wrong"), ("right", "total = 2\\n", "fine")):
        plan = ONE.replace("RUN", run_id).replace("CONTENT", content).replace("SAID", words)
        (proctor.folder / "plan.yaml").write_text(plan)
        proctor("batch", "plan.yaml")
        ids.append(served.get(f"/api/runs/{run_id}/items").json["items"][0]["sessionId"])

    page = open_page(f"{served.url}/compare/sessions?left={ids[0]}&right={ids[1]}")
    answers = page.get_by_role("region", name="Answers")
    expect(answers.locator("del")).to_have_text("wrong")
    expect(answers.locator("ins")).to_have_text("fine")
    changes = page.get_by_role("region", name="Changes")
    expect(changes.locator("details", has_text="NOTES")).to_contain_text("same change")
    differing = changes.locator("details", has_text="shop.py")
    expect(differing).to_contain_text("changed differently")
    expect(differing.locator(".dl.removed")).to_contain_text("+total = 1 + 1")
    expect(differing.locator(".dl.added")).to_contain_text("+total = 2")

    page.get_by_role("region", name="Right").get_by_role("link").first.click()
    back = page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="Compare")
    expect(back).to_have_attribute("href", re.compile(rf"/compare/sessions\?left={ids[0]}"))
    page.goto(f"{served.url}/sessions/{ids[1]}#changes")
    head = page.locator(".branch-head")
    expect(head).to_contain_text("The check failed")
    merge = head.get_by_role("button", name="Merge")
    expect(merge).not_to_have_class(re.compile("primary"))
    merge.click()
    expect(page.get_by_role("dialog")).to_contain_text("The check failed.")
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.goto(f"{served.url}/sessions/{ids[0]}#changes")
    expect(head.get_by_role("button", name="Merge")).to_have_class(re.compile("primary"))
    expect(head).not_to_contain_text("The check failed")
