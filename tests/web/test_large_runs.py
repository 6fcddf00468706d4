"""Large runs: what is read beside the requests, how often, and that it ends with the server."""

import threading

import pytest
from playwright.sync_api import expect
from stocked_judgments import compared_run
from stocked_runs import add_duel, stock

from proctor.testing import eventually

TASKS = {f"task {n}": "success" if n < 6 else "fail" for n in range(20)}


def test_a_comparison_of_large_runs_tells_how_many_items_are_read_and_comes_later(served, site, gate):
    compared_run(site.context.store, "before", TASKS)
    compared_run(site.context.store, "after", TASKS)
    address = "/api/compare?run=before&run=after&metric=success"

    first = served.get(f"{address}&wait=0").json
    eventually(lambda: served.get(f"{address}&wait=0").json["reading"] == {"read": 20, "total": 40})
    counts = served.get("/api/compare/counts?run=before&run=after").json["groups"]
    gate.set()
    whole = served.get(address).json

    assert (first["isCurrent"], first["contrasts"], first["groups"]) == (False, [], [])
    expected = [("before", 20, 6), ("after", 20, 6)]
    assert [(one["name"], one["finished"], one["succeeded"]) for one in counts] == expected
    assert (whole["isCurrent"], whole["reading"], whole["contrasts"][0]["pairs"]) == (True, None, 20)


def test_a_matrix_and_the_results_tell_how_many_items_are_read(served, site, gate, monkeypatch):
    # White box: a run that is large would take a minute to write.
    monkeypatch.setattr("proctor.api.run_results.LARGE", 0)
    add_duel(site.context.store, "large", 30, lambda n, _: n % 2 == 0)
    done = {"read": 60, "total": 60}

    served.get("/api/runs/large/matrix?wait=0")
    eventually(lambda: served.get("/api/runs/large/matrix?wait=0").json["reading"] == done)
    eventually(lambda: served.get("/api/runs/large/matrix?wait=0&search=x").json["reading"] == done)
    eventually(lambda: served.get("/api/runs/large/results?wait=0").json["reading"] == done)
    gate.set()

    assert served.get("/api/runs/large/matrix").json["reading"] is None
    assert served.get("/api/runs/large/results?wait=30").json["reading"] is None


def test_loading_and_computing_end_with_the_server(serve, site, gate):
    add_duel(site.context.store, "large", 30, lambda n, _: n % 2 == 0)
    # Those of servers that other tests share stay.
    before = set(threading.enumerate())
    served = serve()

    def own_threads():
        return {thread.name for thread in set(threading.enumerate()) - before}

    served.get("/api/runs/large/results?wait=0")
    served.get("/api/runs/large/matrix?wait=0")
    assert {"results", "load results"} <= own_threads()

    gate.set()
    serve.end()

    assert not {"results", "load results"} & own_threads()
    # The web framework tells its own threads to end, and does not wait for them.
    eventually(lambda: not own_threads())


@pytest.mark.browser
def test_the_compare_page_shows_counts_and_progress_before_the_comparison(served, site, gate, open_page):
    compared_run(site.context.store, "before", TASKS)
    compared_run(site.context.store, "after", TASKS)

    page = open_page(f"{served.url}/compare?run=before&run=after")
    expect(page.get_by_role("table", name="Success rates")).to_contain_text("30.0%")
    expect(page.get_by_text("Reading 20 of 40 items…")).to_be_visible()
    gate.set()

    expect(page.get_by_role("table", name="Differences")).to_contain_text("Success")
    expect(page.get_by_text("Reading")).to_have_count(0)


@pytest.mark.browser
def test_a_bar_of_durations_opens_its_items(served, site, open_page):
    stock(site.context.store)
    page = open_page(f"{served.url}/runs/stocked#charts")
    bar = page.locator("figure", has_text="How long items took").locator("[data-mark]").last
    bar.focus()
    expect(page.get_by_role("tooltip")).to_contain_text("items")
    page.keyboard.press("Enter")

    page.wait_for_url("**/runs/stocked?duration=*#items")
    chip = page.get_by_role("button", name="Remove filter: time: at least 7.0 s")
    expect(chip).to_be_visible()
    page.get_by_role("button", name="Filter", exact=True).click()
    page.get_by_role("combobox", name="Filter by").select_option("duration")
    page.get_by_role("spinbutton", name="Highest time in seconds").fill("2")
    page.get_by_role("spinbutton", name="Lowest time in seconds").fill("0.5")
    page.get_by_role("spinbutton", name="Lowest time in seconds").press("Tab")
    expect(page.get_by_role("button", name="Remove filter: time: 500 ms to 2.0 s")).to_be_visible()
    assert "duration=0.5..2" in page.url
