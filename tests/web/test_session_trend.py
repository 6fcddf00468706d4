"""Sessions of a service over time: the same figures on the page, over HTTP and at the terminal."""

import json
import re

import numpy as np
import pytest
from looks import PHONE, sideways
from playwright.sync_api import expect
from stocked_runs import NOW, add_score, add_session

from proctor.session import Message
from proctor.store import timestamp


def stock_days(site):
    """Three days of the shop, two versions; scores 0.2 and 0.8 in turn on the first day; another service."""
    store, hello = site.context.store, [Message(role="user", content="hi")]
    for day in (1, 2, 3):
        for number in range(8):
            at = timestamp(NOW.replace(day=day, hour=number))
            known = {"service": "shop", "agentVersion": "2" if day == 3 else "1", "startedAt": at}
            add_session(store, f"d{day}-{number}", hello, job="imported", **known)
    add_session(store, "other", hello, job="imported", service="bank")
    writer = store.writer()
    for number in range(8):
        writer.change("sessions", (f"d2-{number}",), {"status": "fail" if number < 2 else "success"})
        value = 0.2 + 0.6 * (number % 2)
        add_score(writer, f"v{number}", evaluator="Tone", value=value, judged_session=f"d1-{number}")
    writer.close()


def test_errors_and_scores_have_bands_that_hold_for_the_whole_line(served, site, proctor):
    # Loaded late: half a second, which every process that collects tests would spend.
    from scipy import stats

    stock_days(site)
    month = f"{NOW:%Y-%m}"

    answer = served.get(f"/api/session-trend?service=shop&since={month}-01&until={month}-20").json
    words = ("--service", "shop", "--since", f"{month}-01", "--by", "version", "--json")
    divided = json.loads(proctor("sessions", "trend", *words).stdout)

    (group,) = answer["groups"]
    lines = {line["metric"]: line["points"] for line in group["lines"]}
    assert (answer["period"], group["sessions"], group["failed"]) == ("day", 24, 2)
    assert [point["value"] for point in lines["sessions"]] == [8, 8, 8]
    assert [point["start"][:10] for point in lines["sessions"]] == [f"{month}-0{day}" for day in (1, 2, 3)]
    errors = lines["errors"]
    assert [point["value"] for point in errors] == [0, 0.25, 0]
    # Three points: each at 1 - 0.05 / 3.
    expected = stats.binomtest(2, 8).proportion_ci(1 - 0.05 / 3, method="wilson")
    assert (errors[1]["low"], errors[1]["high"]) == pytest.approx((expected.low, expected.high), abs=1e-6)
    (tone,) = lines["score:Tone"]
    values = np.array([0.2, 0.8] * 4 + [0.0, 1.0])
    reach = stats.t.ppf(0.975, 7) * values.std(ddof=1) / np.sqrt(10)
    assert (tone["value"], tone["sessions"]) == (pytest.approx(0.5), 8)
    assert (tone["low"], tone["high"]) == pytest.approx((0.5 - reach, 0.5 + reach))
    assert {each["name"]: each["sessions"] for each in divided["groups"]} == {"1": 16, "2": 8}


def test_scores_of_two_versions_of_an_evaluator_are_lines_of_their_own(served, site):
    stock_days(site)
    writer = site.context.store.writer()
    new = {"evaluator": "Tone", "evaluator_digest": "abcdef0123", "value": 1.0}
    add_score(writer, "n1", **new, judged_session="d2-0")
    writer.close()

    month = f"{NOW:%Y-%m}"
    trend = served.get(f"/api/session-trend?service=shop&since={month}-01&until={month}-20").json
    (group,) = trend["groups"]

    lines = {line["metric"]: [each["value"] for each in line["points"]] for line in group["lines"]}
    assert lines["score:Tone (abcdef)"] == [1.0]
    assert lines["score:Tone ()"] == [pytest.approx(0.5)]


def test_two_saved_filters_are_compared_with_intervals_of_the_differences(served, site, proctor):
    from scipy import stats

    stock_days(site)
    month = f"{NOW:%Y-%m}"
    first = ("--since", f"{month}-01", "--until", f"{month}-02", "--service", "shop", "--save", "before")
    proctor("sessions", "list", *first)
    proctor("sessions", "list", "--since", f"{month}-02", "--until", f"{month}-03", "--save", "after")

    found = json.loads(proctor("sessions", "compare", "after", "before", "--json").stdout)
    over_http = served.get(f"/api/session-compare?since={month}-02&until={month}-03&with=before").json

    assert over_http == found
    rows = {row["metric"]: row for row in found["metrics"]}
    assert (found["firstSessions"], found["secondSessions"]) == (8, 8)
    # Two metrics that both have and that vary, or not: errors, seconds. Newcombe's method 10 at 1 - 0.05 / 2.
    errors = rows["errors"]
    one, other = (stats.binomtest(k, 8).proportion_ci(0.975, method="wilson") for k in (2, 0))
    assert errors["difference"] == 0.25
    assert errors["low"] == pytest.approx(0.25 - np.hypot(0.25 - one.low, other.high), abs=1e-6)
    assert errors["high"] == pytest.approx(0.25 + np.hypot(one.high - 0.25, 0.0), abs=1e-6)
    assert not errors["isSignificant"]
    assert "no saved filter `none`" in proctor("sessions", "compare", "after", "none").stderr


@pytest.mark.browser
def test_a_point_opens_its_sessions(served, site, open_page):
    stock_days(site)
    month = f"{NOW:%Y-%m}"
    page = open_page(f"{served.url}/dashboard?service=shop&since={month}-01&until={month}-20", viewport=PHONE)
    expect(page.get_by_text("24 sessions · 8% failed")).to_be_visible()
    assert sideways(page) == 0

    page.locator("figure", has_text="Failed").locator("[data-mark='1']").click()

    expect(page.locator("#total")).to_have_text("8 sessions")
    assert re.search(rf"service=shop&since={month}-02T", page.url)
