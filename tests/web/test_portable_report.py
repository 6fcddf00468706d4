"""The report that keeps its items: one file, opened in a real browser, that asks nothing of anybody."""

import json
import re

import pytest
from stocked_runs import add_session, change_items

from filled import NOW, new_store
from proctor.item import Item
from proctor.report.render import document_html, items_table, portable
from proctor.report.run_report import run_report
from proctor.results.summary import summarize
from proctor.session import Message
from proctor.store import Scope, timestamp

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"

HIDDEN = "wrong: \u202egpj.exe \x1b[8m \U000e0041"


@pytest.fixture
def filled(tmp_path):
    with new_store(tmp_path) as store:
        items = [
            Item(
                runner="prompt",
                prompt=f"{HOSTILE} {number}",
                model=model,
                factors={"model": model, "size": size},
            )
            for number in range(30)
            for model, size in (("openai/small", "1"), ("openai/large", "2"))
        ]
        row = {"runId": "nightly", "createdAt": timestamp(NOW), "finishedAt": timestamp(NOW), "job": "coding"}
        store.create_batch({**row, "status": "completed"}, items)
        for number, item in enumerate(items):
            status, session = "success" if number % 3 else "fail", f"s{number:03}"
            said = [Message(role="assistant", content=f"answer {number} {HOSTILE}")]
            add_session(store, session, said, "nightly", itemId=item.id)
            values = {"status": status, "sessionId": session, "error": HIDDEN if status == "fail" else ""}
            times = {"startedAt": timestamp(NOW), "finishedAt": timestamp(NOW), "costUsd": 0.01 * number}
            change_items(store, "nightly", {item.id: {**values, **times}})
        yield store


@pytest.fixture
def report(filled, tmp_path):
    """The file of the report."""
    path = tmp_path / "report.html"
    page = document_html(run_report(summarize(filled.read, Scope(run_id="nightly"), NOW)))
    path.write_text(portable(page, filled.read, "nightly"), encoding="utf-8")
    return path


def test_every_item_is_in_the_data_with_its_answer_and_each_text_once(filled):
    table = items_table(filled.read, "nightly")

    assert table["count"] == 60
    assert len(table["columns"]["answer"]) == 60
    assert table["texts"].count("openai/small") == 1
    # Nothing in it is reversed or hidden.
    assert "wrong: \ufffdgpj.exe \ufffd[8m \ufffd" in table["texts"]
    answers = {table["texts"][number] for number in table["columns"]["answer"]}
    assert f"answer 59 {HOSTILE}" in answers
    assert {table["texts"][number] for number in table["factors"]["size"]} == {"1", "2"}


def test_the_file_names_its_only_script_and_nothing_outside(report):
    file = report.read_text("utf-8")

    island = re.search(r'id="item-data">(.*?)</script>', file, re.DOTALL)[1]
    assert json.loads(island)["run"] == "nightly"
    assert file.count("<script") == 2
    assert re.search(r"default-src 'none'; style-src '[^']+' '[^']+'; script-src 'sha256-", file)
    assert "http://" not in file.replace("http://www.w3.org", "")


@pytest.mark.browser
def test_items_are_filtered_sorted_and_opened_without_a_request(report, open_page):
    page = open_page(report.as_uri())
    requests = []
    page.on("request", lambda request: requests.append(request.url))

    count = page.locator("#item-explorer [role=status]")
    assert count.inner_text() == "60 of 60 items"
    page.get_by_label("status", exact=True).select_option("fail")
    page.get_by_label("model", exact=True).select_option("openai/small")
    assert count.inner_text() == "10 of 60 items"
    page.get_by_label("Search items").fill("answer 6 ")
    assert count.inner_text() == "1 of 60 items"
    page.reload()
    assert count.inner_text() == "1 of 60 items", "the address keeps the filters"
    page.get_by_label("Search items").fill("")
    page.get_by_role("button", name="Cost").press("Enter")
    page.get_by_role("button", name="Cost").press("Enter")
    assert page.locator("#item-explorer tbody tr").first.locator("td").last.inner_text() == "$0.540"
    page.locator("#item-explorer tbody tr").first.press("Enter")
    assert HOSTILE in page.locator("#item-explorer tr.open").inner_text()
    assert page.title() != "owned"
    assert [url for url in requests if not url.startswith("file:")] == []


def test_on_paper_it_is_white_and_no_column_is_cut(report, open_page):
    # A4 between its margins, printed by somebody who reads in the dark.
    page = open_page(report.as_uri(), viewport={"width": 703, "height": 1017}, color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"

    page.emulate_media(media="print", color_scheme="dark")

    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    wide = "[...document.querySelectorAll('table, svg')].map((one) => one.getBoundingClientRect().right)"
    assert max(page.evaluate(wide)) <= 703
    assert page.evaluate("document.documentElement.scrollWidth") == 703
    heads = "[...document.querySelectorAll('thead')].map((one) => getComputedStyle(one).display)"
    assert set(page.evaluate(heads)) == {"table-header-group"}, "repeated on each page"
