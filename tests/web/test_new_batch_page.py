"""New Batch: writing a plan, mending it, validating it and starting it, in a real browser."""

import pytest
from playwright.sync_api import expect
from typed import GATED, PROMPTS

pytestmark = pytest.mark.browser

WRONG = "concurrency: 2\nmatrix:\n  - prompt: x\n    modle: scripted/ok\n"


@pytest.fixture
def new_batch(shared, open_page):
    page = open_page(f"{shared.url}/new")
    page.get_by_text("6 items").wait_for()
    return page


def write(page, text):
    page.get_by_label("Plan", exact=True).last.fill(text)


def test_the_whole_way_from_an_example_to_a_finished_run(shared, new_batch):
    new_batch.get_by_label("Example").select_option("Model comparison")
    new_batch.get_by_text("30 items").wait_for()
    new_batch.get_by_label("Run name").fill("first-try")
    new_batch.get_by_label("Concurrency").fill("3")
    new_batch.get_by_role("button", name="Validate Plan").click()
    good = new_batch.locator(".good-plan")
    good.wait_for()
    expect(good).to_be_in_viewport(ratio=0.5)
    assert "30\nitems" in good.inner_text()
    assert "3\nconcurrency" in good.inner_text()

    new_batch.get_by_role("button", name="Start Batch").click()
    new_batch.wait_for_url("**/runs/first-try")

    assert shared.wait_for("first-try", "completed")["counts"]["success"] == 25
    new_batch.get_by_text("completed", exact=True).first.wait_for()


def test_the_editor_marks_mistakes_offers_names_and_is_left_by_keyboard(new_batch):
    new_batch.locator("plan-editor textarea").focus()
    new_batch.keyboard.press("Tab")
    assert new_batch.evaluate("document.activeElement.tagName") == "TEXTAREA"

    new_batch.keyboard.press("Escape")
    new_batch.keyboard.press("Tab")

    assert new_batch.evaluate("document.activeElement.tagName") != "TEXTAREA"

    write(new_batch, WRONG)
    problem = new_batch.get_by_role("list", name="Problems").get_by_role("button")
    problem.wait_for()
    assert "Line 4" in problem.inner_text()
    assert new_batch.locator(".numbers .wrong").inner_text() == "4"
    wave, line = new_batch.locator(".wave").bounding_box(), new_batch.locator(".line").nth(3).bounding_box()
    assert wave["width"] > 100
    assert line["y"] < wave["y"] < line["y"] + line["height"]

    new_batch.get_by_role("button", name="Validate Plan").focus()
    problem.click()
    assert new_batch.evaluate("document.activeElement.selectionStart") == WRONG.index("modle")
    new_batch.keyboard.type("model: scripted/ok #")
    new_batch.get_by_text("1 item", exact=True).wait_for()
    assert new_batch.locator(".numbers .wrong").count() == 0

    # The colored text stands behind a field whose own text cannot be seen.
    field = new_batch.locator("plan-editor textarea")
    # At once, as when it is pasted: `fill` is as if each line were typed.
    field.evaluate(
        """(field, text) => {
            field.value = text;
            field.dispatchEvent(new InputEvent("input", { bubbles: true }));
        }""",
        "\n".join(f"# line {number}" for number in range(1, 400)),
    )
    field.evaluate("field => { field.scrollTop = 200 * 20; }")

    new_batch.locator(".line", has_text="# line 205").first.wait_for()
    # Measured at one moment: the check of the plan draws the lines anew and may move the field.
    below, *fonts = field.evaluate(
        """field => {
            const lines = [...document.querySelectorAll(".line")];
            const line = lines.find((one) => one.textContent === "# line 205");
            const below = line.getBoundingClientRect().top - field.getBoundingClientRect().top;
            return [below, getComputedStyle(field).fontFamily, getComputedStyle(line).fontFamily];
        }"""
    )
    assert abs(below - (10 + 204 * 20 - 200 * 20)) <= 1
    assert fonts[0] == fonts[1] != ""
    # Of four hundred lines, those in view.
    assert new_batch.locator(".line").count() < 120

    write(new_batch, "")
    field.focus()
    new_batch.keyboard.type("conc")
    names = new_batch.locator("#completions b")
    assert names.all_inner_texts() == ["concurrency"]
    new_batch.keyboard.press("Tab")
    new_batch.keyboard.type("2")
    new_batch.keyboard.press("Enter")
    new_batch.keyboard.type("matr")
    new_batch.keyboard.press("Enter")
    new_batch.keyboard.press("Enter")
    new_batch.keyboard.type("- pro")
    new_batch.keyboard.press("Enter")
    new_batch.keyboard.type("hello")
    new_batch.keyboard.press("Enter")
    new_batch.keyboard.press("Control+Space")
    offered = names.all_inner_texts()

    assert "expect" in offered
    assert "prompt" not in offered, "it stands there already"
    new_batch.keyboard.press("Escape")
    assert field.input_value() == "concurrency: 2\nmatrix: \n  - prompt: hello\n    "


def test_a_plan_of_a_file_of_another_job_or_with_markup_is_shown_as_it_is(new_batch, tmp_path):
    assert new_batch.get_by_label("Merge on pass").is_visible()

    write(new_batch, "clients: [scripted]\ntherapists: [eliza]\n")
    new_batch.get_by_text("Detected: dialogues.").wait_for()
    assert not new_batch.get_by_label("Merge on pass").is_visible()
    assert new_batch.get_by_label("Seed").is_visible()

    write(new_batch, "# Task: mend it\n\n## Success Criteria\n- [ ] it works\n")
    new_batch.get_by_text("Detected: benchmark task.").wait_for()
    assert new_batch.get_by_label("Models").is_visible()

    (tmp_path / "mine.yaml").write_text(PROMPTS)
    new_batch.locator("#file").set_input_files(tmp_path / "mine.yaml")

    new_batch.get_by_text("4 items").wait_for()
    assert new_batch.locator("plan-editor textarea").input_value() == PROMPTS

    nasty = 'matrix:\n  - prompt: "<img src=x onerror=alert(1)><script>alert(2)</script>"\n    <b>: 1\n'
    new_batch.on("dialog", lambda dialog: pytest.fail(f"a dialog opened: {dialog.message}"))

    write(new_batch, nasty)
    new_batch.get_by_role("list", name="Problems").wait_for()

    assert "<script>alert(2)</script>" in new_batch.locator(".lines").inner_text()
    assert new_batch.locator(".lines img, .lines script, .problems b").count() == 0


def test_a_draft_survives_a_reload(new_batch):
    write(new_batch, WRONG)
    new_batch.get_by_role("list", name="Problems").wait_for()

    new_batch.reload()

    new_batch.get_by_role("list", name="Problems").wait_for()
    assert new_batch.locator("plan-editor textarea").input_value() == WRONG


def test_who_goes_back_from_a_run_finds_the_plan_as_it_was_started(shared, new_batch):
    write(new_batch, "matrix:\n  - prompt: back again\n    model: scripted/ok\n")
    new_batch.get_by_text("1 item", exact=True).wait_for()
    new_batch.get_by_label("Retries").fill("2")
    new_batch.get_by_role("button", name="Start Batch").click()
    new_batch.wait_for_url("**/runs/*")

    new_batch.go_back()
    new_batch.get_by_text("1 item", exact=True).wait_for()

    assert "back again" in new_batch.locator("plan-editor textarea").input_value()
    assert new_batch.get_by_label("Retries").input_value() == "2"


def test_what_cannot_be_started_says_why(shared, new_batch):
    before = shared.get("/api/runs").json["all"]
    write(new_batch, "matrix:\n  - {repo: /nowhere/at/all, prompt: x, agent: builtin}\n")

    new_batch.get_by_role("button", name="Start Batch").click()

    new_batch.get_by_role("alert").get_by_text("/nowhere/at/all").wait_for()
    problems = new_batch.get_by_role("list", name="Problems").get_by_role("button")
    problems.first.wait_for()
    texts = problems.all_inner_texts()
    assert all("Line 2" in text for text in texts)
    assert any("there is no folder" in text for text in texts)
    assert any("the agent builtin" in text for text in texts)
    assert new_batch.url.endswith("/new")
    assert shared.get("/api/runs").json["all"] == before


def test_closing_the_browser_stops_no_batch(shared, new_batch, gate_model):
    write(new_batch, f"runId: left-alone\n{GATED}")
    new_batch.get_by_role("button", name="Start Batch").click()
    new_batch.wait_for_url("**/runs/left-alone")

    new_batch.close()
    gate_model.touch()

    assert shared.wait_for("left-alone", "completed")["counts"]["success"] == 4
