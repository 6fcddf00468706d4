"""Tables of results over HTTP, and every page and answer about the run that they become."""

import pytest

CSV = "instance_id,model,resolved,cost\n" + "".join(
    f"t{task},{model},{int(task < solved)},0.{task + 1:02d}\n"
    for model, solved in (("small", 3), ("large", 8))
    for task in range(10)
)
ADDRESS = "/api/tables?run=board&file=results.csv&column=task%3Dinstance_id&column=success%3Dresolved"


def upload(served, text, address=ADDRESS, **headers):
    return served.ask("POST", address, text.encode(), {"Content-Type": "text/csv", **headers})


@pytest.fixture(scope="module")
def board(shared):
    """A server with an imported run, for tests that change nothing."""
    assert upload(shared, CSV).status == 201
    return shared


def test_a_table_becomes_a_run_and_importing_it_again_replaces(served):
    first = upload(served, CSV)
    again = upload(served, CSV)
    changed = upload(served, CSV.replace("t9,small,0", "t9,small,1"))

    expected = (201, "board", 20, 20)
    assert (first.status, first.json["runId"], first.json["rows"], first.json["added"]) == expected
    assert (again.json["added"], again.json["unchanged"]) == (0, 20)
    assert (changed.json["replaced"], changed.json["unchanged"]) == (1, 19)
    assert served.get("/api/runs/board").json["counts"]["success"] == 12
    # Nothing of the upload is left.
    assert not list((served.site.data_folder / "uploads" / "tables").iterdir())


@pytest.mark.parametrize(
    ("address", "text", "words"),
    [
        (ADDRESS, "a,b\n1,2\n", "results.csv"),
        (ADDRESS.replace("results.csv", "..%2Fa%20b.docx"), CSV, "a-b.docx is not a table"),
        (ADDRESS.replace("run=board", "run=..%2Fx"), CSV, "../x"),
        (ADDRESS.replace("task%3Dinstance_id", "task"), CSV, "task does not map a column"),
    ],
)
def test_a_table_that_cannot_be_imported_is_refused_with_the_reason(shared, address, text, words):
    refused = upload(shared, text, address)

    assert refused.status == 400
    assert words in refused.text and str(shared.site.data_folder) not in refused.text


def test_a_table_is_bounded_in_size(shared):
    assert shared.ask("POST", ADDRESS, b"", {"Content-Length": str(10**9)}).status == 413


@pytest.mark.browser
def test_the_pages_of_an_imported_run_show_its_figures(board, open_page):
    from playwright.sync_api import expect

    page = open_page(f"{board.url}/runs/board#items")
    expect(page.locator("#done")).to_have_text("20 of 20 items")
    expect(page.get_by_role("grid", name="Items")).to_have_attribute("aria-rowcount", "21")
    expect(page.get_by_role("button", name="Resume")).to_be_hidden()
    page = open_page(f"{board.url}/compare?run=board&by=model")
    expect(page.get_by_text("+50.0 pp").first).to_be_visible()
    expect(page.get_by_text("10 paired tasks").first).to_be_visible()
