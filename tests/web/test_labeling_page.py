"""The labeling queue in a real browser: sessions one by one, labeled with a key, blind and by several."""

import re

import numpy as np
import pytest
from looks import PHONE, sideways
from playwright.sync_api import expect
from stocked_runs import add_score, add_session

from proctor.session import Message
from proctor.stats.calibration import CalibrationPair
from proctor.stats.corrected_means import corrected_mean

pytestmark = pytest.mark.browser

GOAL = "Builtin.GoalSuccessRate"
SESSIONS = 120
SHOWN = re.compile(r"session (\d+) is")


def is_good(number):
    """What a person finds of a session: 70 % are good."""
    return number % 10 < 7


def judged_good(number):
    """What the judge finds: every sixth verdict is wrong."""
    return is_good(number) != (number % 6 == 0)


def stock_verdicts(site):
    """Sessions that a judge has scored with yes or no."""
    store = site.context.store
    for number in range(SESSIONS):
        text = f"session {number} is {'good' if is_good(number) else 'bad'}"
        add_session(store, f"s{number}", [Message(role="user", content=text)], job="imported")
    writer = store.writer()
    for number in range(SESSIONS):
        good = judged_good(number)
        label = "Yes" if good else "No"
        add_score(
            writer, f"verdict{number}", evaluator=GOAL, evaluator_digest="v1", value=float(good), label=label,
            judged_session=f"s{number}",
        )  # fmt: skip
    writer.close()


def label_next(page):
    """Label the session that is shown by its text, with one key; returns its number."""
    log = page.get_by_role("log")
    expect(log).to_contain_text(SHOWN)
    number = int(SHOWN.search(log.text_content())[1])
    choices = page.locator("#choices button").all_inner_texts()
    wanted = next(at for at, text in enumerate(choices, 1) if ("Yes" if is_good(number) else "No") in text)
    place = page.locator("#place").inner_text()
    page.keyboard.press(str(wanted))
    expect(page.locator("#place")).not_to_have_text(place)
    return number


def start(page, url, name):
    page.goto(f"{url}/labeling?evaluator={GOAL}")
    page.get_by_label("Your name").fill(name)
    page.get_by_role("button", name="Start labeling").click()
    expect(page.get_by_role("log")).to_contain_text("session")


def test_forty_labels_by_key_correct_the_mean_of_the_judge(served, site, open_page):
    stock_verdicts(site)
    page = open_page(f"{served.url}/sessions")
    start(page, served.url, "ann")
    expect(page.locator("#rubric")).to_contain_text("goal")
    expect(page.locator("main")).not_to_contain_text("verdict")

    labeled = [label_next(page) for _ in range(40)]

    expect(page.locator("#place")).to_have_text("41 of 100 · 40 of 120 labeled by you")
    pairs = [
        CalibrationPair(session=f"s{n}", human=float(is_good(n)), judge=float(judged_good(n)))
        for n in labeled
    ]
    judged = np.array([float(judged_good(number)) for number in range(SESSIONS)])
    names = {f"s{number}" for number in range(SESSIONS)}
    expected = corrected_mean(judged, pairs, lo=0.0, hi=1.0, evaluated=names)
    progress = served.get(f"/api/labeling/progress?evaluator={GOAL}&width=0.15").json
    assert progress["judgeMean"] == pytest.approx(judged.mean())
    found = [progress[name] for name in ("corrected", "low", "high")]
    assert found == pytest.approx([expected.value, expected.low, expected.high])
    assert progress["low"] < 0.7 < progress["high"]
    assert 0 < progress["moreLabels"] < 80
    expect(page.locator("#progress")).to_contain_text(f"{expected.low:.2f} to {expected.high:.2f}")
    assert len(set(labeled)) == 40

    # Somebody else gets the same sessions, and is told nothing of these labels.
    start(page, served.url, "bob")
    assert [label_next(page) for _ in range(3)] == labeled[:3]
    expect(page.locator("#progress")).to_contain_text("3 of 3")
    page.keyboard.press("b")
    expect(page.locator("#place")).to_contain_text("3 of 100")


def test_unsure_verdicts_come_first_and_the_page_fits_a_phone(served, site, open_page):
    stock_verdicts(site)
    writer = site.context.store.writer()
    for number in (7, 8):
        # Another version of the judge says the opposite of what the first one said.
        add_score(
            writer, f"other{number}", evaluator=GOAL, evaluator_digest="v2", value=1.0, label="Yes",
            minute=5, judged_session=f"s{number}",
        )  # fmt: skip
    writer.close()

    queue = served.post("/api/labeling", {"evaluator": GOAL, "order": "unsure", "limit": 2}).json
    some = served.post("/api/labeling", {"evaluator": GOAL, "sessionIds": ["s3", "s4"]}).json
    page = open_page(f"{served.url}/labeling", viewport=PHONE)
    start(page, served.url, "ann")

    assert {target["sessionId"] for target in queue["targets"]} == {"s7", "s8"}
    assert {target["sessionId"] for target in some["targets"]} == {"s3", "s4"}
    assert (some["total"], some["labeled"]) == (2, 0)
    assert sideways(page) == 0
