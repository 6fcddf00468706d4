"""The Session page in a real browser: a session of every job, and one that means harm."""

import json
import re
import shutil
from pathlib import Path

import pytest
from looks import PHONE, sideways
from playwright.sync_api import expect
from stocked_runs import HOSTILE, add_session, stock

from proctor.session import Iteration, Message, ModelCall, Note, ToolCall, Usage, Workspace
from proctor.store import Recorder, timestamp
from proctor.testing import eventually, make_git_repository
from waiting import TIME_LIMIT_SECONDS

pytestmark = pytest.mark.browser

EXAMPLES = Path(__file__).parents[2] / "examples"


def session_of(served, run_id):
    return served.get(f"/api/runs/{run_id}/items").json["items"][0]["sessionId"]


def carried_out(proctor, *words):
    done = proctor(*words)
    assert done.returncode == 0, done.stderr


def test_a_coding_session_shows_what_was_said_done_changed_and_checked(shared, mended, open_page):
    page = open_page(f"{shared.url}/sessions/{mended['merged']}")
    expect(page.get_by_role("heading", level=1)).to_have_text("Mend merged")
    expect(page.get_by_role("log")).to_contain_text("It should add.")
    expect(page.get_by_text("$0.0020").first).to_be_visible()
    call = page.locator(".tool-call", has_text="cat merged.py")
    expect(call.get_by_text("total = 1 - 1")).to_have_count(0)
    call.locator("summary").click()
    expect(call.get_by_text("total = 1 - 1")).to_be_visible()

    page.get_by_role("tab", name="Changes").click()
    expect(page.locator("#panel-changes .dl.added", has_text="total = 1 + 1")).to_be_visible()
    expect(page.locator("#panel-changes .dl.removed", has_text="total = 1 - 1")).to_be_visible()
    expect(page.locator("#panel-changes .dl.added .k-comment")).to_have_text("# Adds.")

    page.get_by_role("tab", name="Check").click()
    expect(page.locator("#panel-check .terminal .ansi-c1")).to_have_text("red")
    expect(page.locator("#panel-check .terminal")).to_contain_text("and <b>bold</b>")

    page.get_by_role("tab", name="Calls").click()
    page.locator(".wf-row", has_text="900").click()
    expect(page.locator(".model-call.pointed")).to_contain_text("900 in")

    page.get_by_role("tab", name="Changes").click()
    page.get_by_role("button", name="Merge").click()
    page.get_by_role("dialog").get_by_role("button", name="Merge").click()
    expect(page.get_by_text("onto main as")).to_be_visible()
    expect(page.get_by_role("button", name="Discard")).to_have_count(0)
    merged = shared.site.folder / "shop" / "merged.py"
    assert merged.read_text() == "# Adds.\ntotal = 1 + 1\n"

    # Of another session, the work is discarded.
    page.goto(f"{shared.url}/sessions/{mended['discarded']}#changes")
    page.get_by_role("button", name="Discard").click()
    page.get_by_role("dialog").get_by_role("button", name="Discard").click()

    expect(page.locator(".branch-head")).to_contain_text("discarded")
    expect(page.locator("#panel-changes .dl.added", has_text="total = 1 + 1")).to_be_visible()


def test_comments_on_lines_are_sent_back_and_the_queue_shows_the_next_iteration(served, proctor, open_page):
    make_git_repository(proctor.folder / "shop", {"shop.py": "total = 1 - 1\n"})
    again = {"match": "Use a sum", "steps": [{"write": {"path": "shop.py", "content": "total = 1 + 1\n"}}]}
    first = [{"write": {"path": "shop.py", "content": "total = 3\n"}}]
    entry = {"repo": "shop", "prompt": "Mend it", "scriptCommand": "grep + shop.py"}
    plan = {"runId": "mend", "matrix": [{**entry, "script": {"rules": [again], "steps": first}}]}
    (proctor.folder / "plan.yaml").write_text(json.dumps(plan))
    proctor("batch", "plan.yaml")

    page = open_page(f"{served.url}/review")
    page.get_by_role("link", name="Mend it").click()
    page.locator(".dl.added").get_by_role("button", name="Comment on line 1").click()
    page.get_by_label("Comment on line 1 of shop.py").fill("Use a sum")
    page.get_by_role("button", name="Add comment").click()
    # Drafts outlive the page.
    page.reload()
    expect(page.locator(".line-comment")).to_contain_text("Use a sum")
    page.get_by_role("button", name="Send back (1 comment)").click()
    page.get_by_role("dialog").get_by_role("button", name="Send back").click()

    expect(page).to_have_url(f"{served.url}/runs/mend-review-1")
    eventually(lambda: served.get("/api/runs/mend-review-1").json["status"] == "completed")
    page.goto(f"{served.url}/review")
    row = page.get_by_role("row", name="Mend it")
    expect(row).to_have_count(1)
    expect(row.get_by_role("cell")).to_contain_text(["Mend it", "success", "passed", "1", "+1 −1", "2"])
    row.get_by_role("link", name="Mend it").click()
    page.get_by_role("link", name="earlier iteration").click()
    expect(page.get_by_role("link", name="next iteration")).to_be_visible()
    expect(page.get_by_role("button", name="Send back")).to_have_count(0)


def test_a_prompt_shows_question_answer_and_score(served, proctor, open_page):
    shutil.copy(EXAMPLES / "plans" / "geography.yaml", proctor.folder)
    shutil.copy(EXAMPLES / "plans" / "prompts.yaml", proctor.folder)
    proctor("batch", "prompts.yaml")

    page = open_page(f"{served.url}/sessions/{session_of(served, 'prompts')}")
    expect(page.locator(".role-user")).to_contain_text("What is the capital of France?")
    expect(page.locator(".role-assistant")).to_contain_text("Paris")
    system = page.locator(".role-system details")
    assert system.get_attribute("open") is None
    page.get_by_role("tab", name="Scores").click()
    expect(page.get_by_role("row", name=re.compile("contains"))).to_contain_text("pass")


def test_a_transcript_is_searched_by_keyboard_and_hits_come_into_sight(shared, open_page):
    said = [
        Message(role="user", content=f"number {n}, {'a lighthouse' if n in (3, 700) else 'the sea'}")
        for n in range(800)
    ]
    said.append(
        ToolCall(name="look", args={"path": "coast.txt"}, success=True, result=f"a Lighthouse {HOSTILE}")
    )
    add_session(shared.site.context.store, "coast", said)
    page = open_page(f"{shared.url}/sessions/coast#details")
    page.get_by_role("tab", name="Details").focus()
    # Within the search: among hundreds of messages, finding something by its role takes the browser long.
    search = page.locator("transcript-search")
    search.locator("input").wait_for(state="attached")

    page.keyboard.press("/")
    page.keyboard.type("lighthouse")
    hits = search.get_by_role("list", name="Hits").get_by_role("button")
    expect(hits).to_have_count(3)
    expect(search.get_by_text("3 hits")).to_be_visible()
    for place, words in (("1 of 3", "number 3,"), ("2 of 3", "number 700,"), ("3 of 3", "coast.txt")):
        page.keyboard.press("Enter")
        expect(search.get_by_text(place)).to_be_visible()
        expect(page.locator(".event.pointed")).to_contain_text(words)
        expect(page.locator(".event.pointed")).to_be_in_viewport()
    expect(page.locator(".event.pointed .fold-body")).to_contain_text("a Lighthouse <script>")
    assert page.evaluate("window.pwned") is None
    assert page.locator(".event").count() < 500

    hits.first.click()
    expect(page.locator(".event.pointed")).to_contain_text("number 3,")
    search.get_by_role("searchbox").fill("kraken")
    expect(search.get_by_text("No hits.")).to_be_visible()


def test_a_scenario_shows_the_world_turn_by_turn_and_its_metrics(served, proctor, open_page):
    shutil.copytree(EXAMPLES, proctor.folder / "examples")
    config = proctor.folder / "examples" / "experiments" / "harbour-fee.yaml"
    config.write_text(config.read_text().replace("runs_per_variation: 10", "runs_per_variation: 1"))
    carried_out(proctor, "experiment", str(config))
    (run,) = served.get("/api/runs").json["runs"]

    page = open_page(f"{served.url}/runs/{run['runId']}#items")
    page.get_by_role("button", name="Report").click()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="Open variation analysis").click()
    expect(opened.value.get_by_role("heading", level=1)).to_be_visible()
    page.locator(".grid-tall [role=row]").first.click()

    page.wait_for_url("**/sessions/*")
    expect(page.get_by_role("img", name="berth_fee over turns")).to_be_visible()
    first = page.get_by_role("article", name="Turn 1")
    expect(first.get_by_role("heading", name="World state")).to_be_visible()
    expect(first.locator(".decision")).to_have_count(2)
    expect(page.get_by_role("article", name="Turn 3")).to_be_visible()
    page.set_viewport_size(PHONE)
    expect(page.get_by_role("img", name="berth_fee over turns")).to_be_visible()
    assert sideways(page) <= 0


def test_a_dialogue_shows_both_sides_their_profiles_and_what_each_turn_was_worth(served, proctor, open_page):
    shutil.copytree(EXAMPLES / "dialogues", proctor.folder / "dialogues")
    carried_out(
        proctor, "simulate", "--config", "dialogues/judged.yaml", "--output-dir", "out", "--num-runs", "1"
    )
    (run,) = served.get("/api/runs").json["runs"]

    page = open_page(f"{served.url}/sessions/{session_of(served, run['runId'])}")
    therapist, client = page.locator(".side-1").first, page.locator(".side-0").first
    expect(therapist.locator(".who")).to_have_text("therapist")
    expect(client.locator(".who")).to_have_text("client")
    assert client.bounding_box()["x"] < therapist.bounding_box()["x"]
    expect(therapist.locator(".under")).to_contain_text("empathy")
    page.get_by_role("tab", name="Details").click()
    expect(page.get_by_role("heading", name=re.compile("^client:"))).to_be_visible()


def test_a_transcript_that_means_harm_does_nothing(shared, open_page):
    made = stock(shared.site.context.store, "harmed", 1)
    add_session(
        shared.site.context.store,
        "harm",
        [
            Note(text=HOSTILE),
            Message(role="system", content=HOSTILE, name=HOSTILE),
            Message(role="user", content=HOSTILE),
            Message(role="assistant", content=f"{HOSTILE}{'🙂' * 5000}{'5 MB of it. ' * 440_000}the end"),
            ToolCall(name=HOSTILE, args={"command": HOSTILE, "<b>": 1}, success=False, result=HOSTILE),
            ModelCall(model=HOSTILE, usage=Usage(input_tokens=1), status=HOSTILE[:60], request=HOSTILE),
            Iteration(test_result="fail", test_exit_code=1, test_output=HOSTILE, output=HOSTILE),
        ],
        "harmed",
        itemId=made[0].id,
        error=HOSTILE,
    )
    dialogs = []
    page = open_page(f"{shared.url}/sessions/harm")
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))

    said = page.locator(".role-user .said")
    expect(said).to_contain_text("<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>")
    expect(said.locator(".ansi-c1")).to_have_text("red")
    # What cannot be seen is shown as a sign of its own, and turns nothing round.
    expect(said).to_contain_text("␈ ⟨U+202E⟩gnp.exe⟨U+202C⟩")
    page.get_by_label("Plain text").check()
    expect(said).to_contain_text("␛[31mred␛[0m")
    page.get_by_label("Plain text").uncheck()
    expect(said.locator(".ansi-c1")).to_have_text("red")
    for fold in page.locator(".event summary").all():
        fold.click()
    long = page.locator(".role-assistant")
    assert len(long.inner_text()) < 10_000
    long.get_by_role("button", name=re.compile("Show all")).click()
    expect(long.get_by_role("button", name=re.compile("Show"))).to_have_count(0)
    whole = long.locator(".said").evaluate("(box) => box.textContent")
    assert whole.endswith("the end")
    # Nothing is lost between the pieces.
    assert (whole.count("🙂"), whole.count("5 MB of it. ")) == (5000, 440_000)
    for tab in ("Check", "Calls", "Details"):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel")).to_be_visible()
    expect(page.locator("#panel-check .terminal .ansi-c1")).to_have_text("red")

    assert page.evaluate("window.pwned") is None
    assert page.locator("#session script, #session img, #session b b").count() == 0
    assert page.title().endswith("Proctor")
    assert dialogs == []


def test_a_link_to_any_message_of_a_long_transcript_leads_there(shared, open_page):
    said = [Message(role="assistant", content=f"step number {n}") for n in range(1, 601)]
    add_session(shared.site.context.store, "long", said)

    page = open_page(f"{shared.url}/sessions/long#m450")
    pointed = page.locator("#m450")
    expect(pointed).to_be_in_viewport()
    expect(pointed).to_have_class(re.compile("pointed"))
    expect(page.locator("#m100")).to_have_count(0)
    page.get_by_role("button", name="Show earlier").click()
    expect(page.locator("#m340")).to_have_count(1)
    page.locator("#m450 .anchor").click()
    assert page.url.endswith("#m450")

    page.goto(f"{shared.url}/sessions/long")
    page.reload()
    expect(page.locator("#m1")).to_be_visible()
    page.mouse.wheel(0, 1_000_000)
    expect(page.locator("#m200")).to_have_count(1)


def test_a_session_under_way_grows_on_the_page(shared, open_page):
    site = shared.site
    writer = site.context.store.writer()
    row = {"job": "coding", "status": "running", "startedAt": timestamp(site.now()), "attempt": 1}
    recorder = Recorder(writer, "live", row, site.now)
    recorder.record(Workspace(branch="batch/begin/1"))
    log = site.context.home / "worktrees/live/output.log"
    log.parent.mkdir(parents=True)
    log.write_text('compiling\n{"type": "event"}\nlin')
    asked = log.with_name("requests.jsonl")
    writer.flush().result(TIME_LIMIT_SECONDS)
    page = open_page(f"{shared.url}/sessions/live", viewport=PHONE)
    expect(page.get_by_text("No messages yet.")).to_be_visible()

    recorder.record(Message(role="user", content="Begin."))
    expect(page.get_by_role("log")).to_contain_text("Begin.")
    printed = page.locator(".live-output pre")
    expect(printed).to_have_text("compiling")
    with log.open("a") as more:
        more.write("king\n")
    expect(printed).to_have_text("compiling linking")
    recorder.record(ModelCall(model="gpt-5", usage=Usage(input_tokens=70), cost_usd=0.5))
    expect(page.locator("#tiles")).to_contain_text("$0.5000")

    # On a phone, with an outline: its lines are long.
    for text in ("A question? " * 20, "An answer. " * 20, "Another. " * 20):
        recorder.record(Message(role="assistant", content=text))
    asked.write_text('{"takesMessages": true}\n')
    page.get_by_label("Message to the agent").fill("Use a decimal")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("Sent.")).to_be_visible()
    page.locator(".outline > summary").click()
    expect(page.locator(".outline-line").nth(3)).to_be_visible()
    assert sideways(page) == 0
    page.get_by_role("button", name="Stop agent").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop agent").click()
    lines = [{"takesMessages": True}, {"message": "Use a decimal"}, {"stop": True}]
    eventually(lambda: [json.loads(line) for line in asked.read_text().splitlines()] == lines)
    recorder.end("fail", "checks_failed", "exited with 1", work_seconds=3, waiting_seconds=0)
    expect(page.locator("#status")).to_contain_text("fail")
    expect(page.locator("#notices")).to_contain_text("exited with 1")
    expect(printed).to_have_count(0)
    writer.close()


def test_an_answer_that_comes_late_does_not_take_back_what_was_added_meanwhile(shared, open_page):
    add_session(shared.site.context.store, "late", [Message(role="user", content="hello")])
    page = open_page(f"{shared.url}/sessions/late")
    tag = page.get_by_role("combobox", name="Add a tag")
    tag.wait_for()
    page.wait_for_load_state("networkidle")
    late = []

    def hold(route):
        if route.request.method == "GET" and not late:
            late.append((route, route.fetch()))
        else:
            route.continue_()

    page.route("**/annotations", hold)
    page.get_by_role("button", name="Rate 2 of 5").click()
    while not late:
        page.wait_for_timeout(20)
    tag.fill("odd one")
    tag.press("Enter")
    added = page.get_by_role("button", name="Remove tag odd one")
    expect(added).to_be_visible()
    route, response = late[0]
    with page.expect_response("**/annotations"):
        route.fulfill(response=response)
    page.wait_for_load_state("networkidle")

    expect(page.get_by_role("button", name="Rate 2 of 5")).to_have_attribute("aria-pressed", "true")
    expect(added).to_be_visible()


def test_attempts_are_one_click_apart_and_a_phone_shows_them(shared, open_page):
    made = stock(shared.site.context.store, "tried", 1)
    for attempt in (1, 2):
        said = [
            Message(role="user", content=f"attempt {attempt}"),
            ToolCall(name="run", args={"command": "x" * 300}, success=True, result="y"),
            Iteration(test_result="fail", test_exit_code=1, test_output="z" * 500),
        ]
        add_session(
            shared.site.context.store, f"try-{attempt}", said, "tried", itemId=made[0].id, attempt=attempt
        )

    page = open_page(f"{shared.url}/sessions/try-2", viewport=PHONE)
    expect(page.get_by_role("log")).to_contain_text("attempt 2")
    for tab in ("Transcript", "Check", "Calls", "Details"):
        page.get_by_role("tab", name=tab).click()
        assert sideways(page) <= 0, tab
    page.get_by_role("link", name="Attempt 1").click()
    page.wait_for_url("**/sessions/try-1")
    expect(page.get_by_role("link", name="Attempt 1")).to_have_attribute("aria-current", "page")
