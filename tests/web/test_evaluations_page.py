"""The Evaluations pages in a real browser: from recorded sessions to what people think of the verdicts."""

import json
import re

import pytest
from looks import PHONE, before_it_ended, sideways
from playwright.sync_api import expect
from stocked_judgments import CHECK, MATCH, bring_sessions, ended, wanted
from stocked_runs import HOSTILE

from filled import NOW
from online_scores import add_online_config, judged
from proctor.jobs.evaluation.drift import DriftWatch

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def traveled(shared, shared_proctor):
    """A server with recorded sessions, and the code that judges them beside."""
    bring_sessions(shared_proctor)
    return shared


def judged_job(served, *evaluators, **changes):
    """The id of a job that judges all sessions by these."""
    job = wanted(evaluators=list(evaluators), groundTruth="", **changes)
    return served.post("/api/evaluations", job).json["id"]


def test_recorded_sessions_are_judged_read_and_labeled_from_first_to_last(served, proctor, open_page):
    bring_sessions(proctor)
    page = open_page(f"{served.url}/evaluations")
    expect(page.get_by_text("No evaluations yet")).to_be_visible()
    page.get_by_role("link", name="New Evaluation").click()

    page.get_by_role("checkbox", name=re.compile("agents.travel")).check()
    expect(page.locator("#preview")).to_contain_text("6 sessions")
    page.get_by_role("button", name="Start Evaluation").click()
    expect(page.get_by_role("alert")).to_contain_text("Choose at least one evaluator.")
    matcher = page.get_by_role("group", name="Whole sessions").get_by_role(
        "checkbox", name=re.compile("TrajectoryInOrderMatch")
    )
    matcher.check()
    page.get_by_role("textbox", name=re.compile("Other evaluators")).fill(CHECK)
    expect(page.locator("#chosen-count")).to_have_text("2 selected")
    truth = page.get_by_role("textbox", name="Ground truth")
    truth.fill("sessionMetadata:\n  - groundTruth: {}\n")
    expect(page.locator("#truth-verdict")).to_contain_text("problem")
    truth.fill(wanted()["groundTruth"])
    expect(page.locator("#truth-verdict")).to_have_text("travel@1: 3 entries")
    page.get_by_role("textbox", name="Name", exact=True).fill("nightly")
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.locator("#outcome")).to_contain_text("6 sessions, 12 items")
    page.get_by_role("button", name="Start Evaluation").click()

    page.wait_for_url(re.compile(r"/evaluations/nightly-\w{10}$"))
    expect(page.locator("#status")).to_contain_text("completed")
    expect(page.locator("#done")).to_have_text("12 of 12 items")
    summary = page.get_by_role("article", name=MATCH)
    expect(summary).to_contain_text("0.500")
    expect(summary).to_contain_text("6 results in 6 sessions")
    table = page.get_by_role("table", name="Sessions")
    expect(table.locator("tbody tr")).to_have_count(6)

    page.get_by_role("combobox", name="Evaluator").select_option("TrajectoryInOrderMatch")
    page.get_by_role("searchbox", name="Search sessions").fill("oslo-2")
    expect(table.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name=re.compile("Details of oslo-2")).click()
    labels = page.locator("proctor-labels")
    labels.get_by_role("textbox", name="Your name").fill("Ada")
    thing = labels.get_by_role("region", name=MATCH)
    expect(thing).to_contain_text("Expected")
    thing.get_by_role("combobox").select_option("Yes")
    thing.get_by_role("textbox", name=re.compile("Note")).fill("it got there in the end")
    thing.get_by_role("button", name="Save").click()
    expect(thing).to_contain_text("Ada: Yes")
    expect(thing).to_contain_text("it got there in the end")
    expect(page.locator("#judges")).to_contain_text("The same as people in 0 of 1")

    page.get_by_role("link", name=re.compile("oslo-2")).click()
    expect(page.get_by_role("tab", name="Scores")).to_have_attribute("aria-selected", "true")
    expect(page.locator("proctor-labels")).to_contain_text("Ada: Yes")
    page.goto(f"{served.url}/evaluations#judges")
    expect(page.get_by_role("article", name=MATCH)).to_contain_text("1 labeler")


def test_a_job_that_ends_before_the_page_watches_it_is_shown_at_its_end(traveled, open_page):
    job = judged_job(traveled, CHECK, name="quick")
    ended(traveled, job)
    page = open_page("about:blank")
    before_it_ended(page, f"/api/evaluations/{job}$", lambda one: {**one, "state": "IN_PROGRESS"})
    before_it_ended(
        page,
        r"/api/evaluations\?",
        lambda found: {**found, "evaluations": [{**found["evaluations"][0], "state": "IN_PROGRESS"}]},
    )

    page.goto(f"{traveled.url}/evaluations/{job}")
    expect(page.locator("#status")).to_contain_text("completed")
    page.goto(f"{traveled.url}/evaluations")
    row = page.get_by_role("table", name="Evaluations").get_by_role("row", name=re.compile("quick"))
    expect(row).to_contain_text("completed")


def test_a_job_started_elsewhere_appears_and_is_deleted_after_asking(served, proctor, open_page):
    bring_sessions(proctor)
    page = open_page(f"{served.url}/evaluations")
    expect(page.get_by_text("No evaluations yet")).to_be_visible()
    done = proctor(
        "evaluate", "start", "--name", "elsewhere", "--log-group", "/agents/travel", "--evaluator", CHECK
    )
    assert done.returncode == 0, done.stderr

    row = page.get_by_role("table", name="Evaluations").get_by_role("row", name=re.compile("elsewhere"))
    expect(row).to_contain_text("completed")
    expect(row).to_contain_text("names_a_price@trace0.50")
    row.get_by_role("button", name=re.compile("Delete")).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(row).to_be_visible()
    row.get_by_role("button", name=re.compile("Delete")).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No evaluations yet")).to_be_visible()


def test_a_job_under_way_shows_its_progress_and_is_stopped_after_asking(traveled, open_page):
    (traveled.site.folder / "slow.py").write_text(
        "import time\ndef judge(event):\n    time.sleep(60)\n    return 1.0\n"
    )
    job = judged_job(traveled, "slow:judge")

    page = open_page(f"{traveled.url}/evaluations/{job}")
    expect(page.locator("#status")).to_contain_text("in progress")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.locator("#status")).to_contain_text("stopped")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert ended(traveled, job)["state"] == "STOPPED"


def test_what_insights_found_is_listed_with_its_sessions(traveled, open_page):
    found = json.dumps({"description": "Away.", "intent": "Travel <b>far</b>"})
    (traveled.site.folder / "wishes.yaml").write_text(json.dumps({"rules": [{"reply": found}]}))
    job = judged_job(traveled, "Builtin.Insight.UserIntent", judge="scripted/wishes")
    assert ended(traveled, job)["insights"][0]["found"] == "Travel <b>far</b>"

    page = open_page(f"{traveled.url}/evaluations/{job}", viewport=PHONE)

    insights = page.get_by_role("table", name="Insights")
    expect(insights).to_contain_text("Travel <b>far</b>")
    expect(insights).to_contain_text("refund-2, refund-1")
    assert sideways(page) <= 0


def test_verdicts_that_mean_harm_do_nothing_and_a_phone_shows_them(traveled, open_page):
    hostile = HOSTILE.replace("\0", "")
    verdict = {"value": 0.25, "label": hostile[:60], "explanation": hostile}
    (traveled.site.folder / "harm.py").write_text(f"def judge(event):\n    return {verdict!r}\n")
    job = judged_job(traveled, "harm:judge")
    ended(traveled, job)

    page = open_page(f"{traveled.url}/evaluations/{job}", viewport=PHONE)
    page.get_by_role("button", name=re.compile("Details of")).first.click()
    labels = page.locator("proctor-labels").get_by_role("region", name="harm:judge")
    expect(labels).to_contain_text("<script>window.pwned = 1</script>")
    labels.get_by_role("textbox", name=re.compile("Your label")).fill(hostile[:200])
    labels.get_by_role("button", name="Save").click()
    expect(labels).to_contain_text("unsigned: <script>")
    expect(page.locator("#judges")).to_contain_text("<script>")
    assert sideways(page) <= 0
    for address in ("/evaluations", "/evaluations/new"):
        page.goto(traveled.url + address)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert sideways(page) <= 0
    assert page.evaluate("window.pwned") is None
    assert page.locator("#evaluation script, #evaluation img").count() == 0


def test_drift_is_a_plot_with_its_crossings_and_names_are_only_text(shared, open_page):
    store = shared.site.context.store
    add_online_config(store)
    for evaluator, values in (
        ("Builtin.Helpfulness", [1.0, 0.5, 1.0, 1.0] * 60 + [0.0, 0.5] * 60),
        (HOSTILE.replace("\0", ""), [1.0, 0.0] * 30),
        ("checks:few", [1.0] * 5),
    ):
        judged(store, values, evaluator=evaluator)
    DriftWatch(store, []).look(NOW)

    page = open_page(f"{shared.url}/evaluations", viewport=PHONE)
    page.get_by_role("tab", name="Drift").click()

    first = page.get_by_role("article", name="support Builtin.Helpfulness")
    expect(first).to_contain_text("Went down from 0.85")
    expect(first.get_by_role("img")).to_have_attribute("aria-label", re.compile("anytime-valid bounds"))
    expect(first.get_by_role("table", name="Crossings").locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("article", name="support checks:few")).to_contain_text("starts after 25 sessions")
    expect(page.locator("#drift")).to_contain_text("<script>")
    assert page.locator("#drift script, #drift img").count() == 0 and page.evaluate("window.pwned") is None
    assert sideways(page) <= 0


def test_selected_sessions_are_judged_in_pairs_and_ranked(served, proctor, open_page):
    for name, text in (("good", "GOLD"), ("bad", "lead")):
        (proctor.folder / f"{name}.yaml").write_text(f"rules: [{{reply: {text}}}]\n")
    (proctor.folder / "judge.yaml").write_text(
        "rules:\n"
        """- {match: "(?s)GOLD.*lead", reply: '{"reasoning": "-", "score": "First"}'}\n"""
        """- {match: "(?s)lead.*GOLD", reply: '{"reasoning": "-", "score": "Second"}'}\n"""
    )
    prompts = [f"task {number}" for number in range(6)]
    plan = {"runId": "metals", "matrix": [{"prompt": prompts, "model": ["scripted/good", "scripted/bad"]}]}
    (proctor.folder / "plan.yaml").write_text(json.dumps(plan))
    assert proctor("batch", "plan.yaml").returncode == 0
    page = open_page(f"{served.url}/sessions")

    page.get_by_role("button", name=re.compile("Select all")).click()
    page.get_by_role("button", name="Judge pairs").click()
    page.get_by_role("textbox", name="Compare").or_(page.get_by_role("combobox", name="Compare")).fill(
        "model"
    )
    page.get_by_role("combobox", name="Judge model").fill("scripted/judge")
    page.get_by_role("textbox", name="Name", exact=True).fill("metals")
    page.get_by_role("button", name="Check", exact=True).click()
    expect(page.locator("#outcome")).to_contain_text("12 sessions, 6 items")
    page.get_by_role("button", name="Start Evaluation").click()

    page.wait_for_url(re.compile(r"/evaluations/metals-\w{10}$"))
    expect(page.locator("#status")).to_contain_text("completed")
    ranking = page.get_by_role("table", name="Ranking").locator("tbody tr")
    expect(ranking.first).to_contain_text("scripted/good")
    expect(ranking.first.locator("td").nth(4)).to_have_text("6")
    expect(page.locator("#summaries")).to_contain_text("6 pairs on 6 tasks")
