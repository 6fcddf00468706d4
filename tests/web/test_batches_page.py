"""The list of batches, seen and used in a real browser."""

import pytest
from looks import PHONE, before_it_ended, pixel, sideways
from stocked_runs import add_run, stock
from typed import PROMPTS, SLOW

from proctor.store import batches
from proctor.store.writer import this_process
from proctor.testing import eventually
from waiting import TIME_LIMIT_SECONDS

pytestmark = pytest.mark.browser

LONG_NAME = "a-run-whose-name-is-longer-than-most-20260301-120000-0123"


def row_of(page, run_id):
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=run_id, exact=True))


@pytest.fixture(scope="module")
def listed(shared):
    """A server with sixty runs, of which three have items, for tests that change nothing."""
    for number in range(57):
        created = f"2026-01-01T00:00:{number:02d}.000000+00:00"
        add_run(shared.site.context.store, f"run-{number:02d}", createdAt=created)
    for name in ("apples", "pears", LONG_NAME):
        stock(shared.site.context.store, name)
    return shared


def test_a_run_in_the_list_is_exported_and_reported(listed, open_page):
    page = open_page(listed.url)
    row = row_of(page, "apples")

    # Its status says that it failed in part.
    assert "completed, 22 failed, 10 errors" in row.inner_text()
    row.get_by_role("button", name="Actions of apples").press("Enter")
    assert page.evaluate("document.activeElement.textContent") == "View"
    assert page.get_by_role("link", name="Report apples").get_attribute("href") == (
        "/api/runs/apples/report?format=html"
    )
    with page.expect_download() as download:
        page.get_by_role("link", name="Export CSV apples").click()
    assert download.value.suggested_filename.endswith("apples-csv.zip")
    assert page.get_by_role("link", name="Export CSV apples").is_hidden()


def test_several_runs_are_selected_compared_and_deleted(served, site, open_page):
    for name in ("one", "two", "three"):
        stock(site.context.store, name, 10)
    page = open_page(served.url)
    for name in ("one", "two"):
        page.get_by_role("checkbox", name=f"Select {name}").check()
    bar = page.get_by_role("toolbar", name="Selected runs")
    assert "2 runs selected" in bar.inner_text()
    assert bar.get_by_role("link", name="Compare").get_attribute("href") == "/compare?run=one&run=two"
    bar.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    assert "Delete 2 runs?" in dialog.inner_text() and "20 items" in dialog.inner_text()
    dialog.get_by_role("button", name="Delete").click()
    row_of(page, "one").wait_for(state="detached")
    bar.wait_for(state="hidden")
    assert [run["runId"] for run in served.get("/api/runs").json["runs"]] == ["three"]


def test_an_empty_list_tells_how_to_begin(served, open_page):
    page = open_page(served.url)

    page.get_by_role("heading", name="No batches yet").wait_for()
    assert "proctor batch plan.yaml" in page.locator("#list").inner_text()
    assert page.get_by_role("searchbox").is_hidden()
    page.get_by_role("link", name="Open example").click()
    page.wait_for_url("**/new")


def test_a_run_of_the_command_line_shows_live_and_is_stopped_and_deleted_after_asking(
    served, open_page, proctor, slow_model
):
    page = open_page(served.url)
    page.get_by_role("heading", name="No batches yet").wait_for()
    (proctor.folder / "plan.yaml").write_text(f"runId: from-a-shell\n{SLOW}")
    shell = proctor.start("batch", "plan.yaml")

    row = row_of(page, "from-a-shell")
    row.get_by_text("running", exact=True).first.wait_for()
    assert row.get_by_role("progressbar").get_attribute("aria-valuenow") == "0"

    def act(name):
        row.get_by_role("button", name="Actions of").click()
        page.get_by_role("button", name=name).click()

    act("Abort from-a-shell")
    dialog = page.get_by_role("dialog")
    assert "Abort from-a-shell?" in dialog.inner_text()
    dialog.get_by_role("button", name="Cancel").click()
    assert served.get("/api/runs").json["runs"][0]["status"] == "running"
    act("Abort from-a-shell")
    dialog.get_by_role("button", name="Abort").click()
    row.get_by_text("aborted", exact=True).wait_for()
    # None has finished: the abort ended all of them.
    assert "0 of 4, 4 aborted" in row.inner_text()
    assert shell.wait(timeout=TIME_LIMIT_SECONDS) == 3
    shell.stdout.close()

    act("Delete from-a-shell")
    assert "4 items" in dialog.inner_text()
    dialog.get_by_role("button", name="Delete").click()
    page.get_by_role("heading", name="No batches yet").wait_for()
    assert served.get("/api/runs").json["all"] == 0


def test_runs_are_looked_for_by_name_and_status_and_the_address_keeps_it(listed, open_page):
    page = open_page(listed.url)
    row_of(page, "pears").wait_for()

    page.keyboard.press("/")
    page.keyboard.type("appl")
    row_of(page, "pears").wait_for(state="detached")
    assert row_of(page, "apples").is_visible()
    page.reload()
    row_of(page, "apples").wait_for()
    assert page.get_by_role("searchbox").input_value() == "appl"
    assert not row_of(page, "pears").is_visible()

    page.get_by_label("Status").select_option("aborted")
    page.get_by_role("heading", name="No matching runs").wait_for()
    page.get_by_role("button", name="Clear filters").click()
    row_of(page, "pears").wait_for()
    assert row_of(page, "apples").is_visible()


def test_many_runs_are_turned_over_page_by_page(listed, open_page):
    page = open_page(listed.url)

    row_of(page, "pears").wait_for()
    assert page.locator("#range").inner_text() == "1 – 50 of 60"
    page.get_by_role("button", name="Older").click()
    row_of(page, "run-00").wait_for()
    assert page.locator("#range").inner_text() == "51 – 60 of 60"
    page.get_by_role("button", name="Newer").click()
    row_of(page, "pears").wait_for()


def test_pages_are_as_dark_as_the_machine_and_fit_a_phone(listed, open_page):
    page = open_page(listed.url, viewport=PHONE)
    row_of(page, LONG_NAME).wait_for()

    # Each is loaded in one of the schemes and changes to the other.
    schemes = ["light", "dark"]
    for path in ("/", "/new", "/settings", "/api/docs", "/models"):
        schemes.reverse()
        page.emulate_media(color_scheme=schemes[0])
        page.goto(listed.url + path)
        page.get_by_role("heading", level=1).wait_for()
        for scheme in schemes:
            page.emulate_media(color_scheme=scheme)
            assert (sum(pixel(page)) < 150) is (scheme == "dark"), (path, scheme)
            assert sideways(page) <= 0, (path, scheme)
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Settings").click()
    page.wait_for_url("**/settings")


def test_the_theme_that_is_chosen_stays(shared, open_page):
    page = open_page(shared.url, color_scheme="light")
    page.get_by_role("button", name="Theme").click()

    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.goto(f"{shared.url}/settings")
    assert page.get_by_label("Dark").is_checked()
    page.get_by_label("System").check()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme ?? ''") == ""


def test_a_run_that_ends_before_the_page_watches_it_is_shown_at_its_end(listed, open_page):
    page = open_page("about:blank")
    (run,) = listed.get("/api/runs?search=apples").json["runs"]
    before_it_ended(page, r"/api/runs\?", lambda found: {**found, "runs": [{**run, "status": "running"}]})
    page.goto(listed.url)

    row_of(page, "apples").get_by_text("completed", exact=True).wait_for()


def test_a_page_whose_server_went_away_says_so_and_catches_up(serve, open_page):
    first = serve()
    page = open_page(first.url)
    # What appears by itself shows that the connection stands.
    first.start(PROMPTS, overrides={"runId": "before"})
    row_of(page, "before").wait_for()
    serve.running[0].stop()

    page.get_by_text("Reconnecting…").wait_for()
    again = serve(port=first.port)
    page.get_by_text("Reconnecting…").wait_for(state="hidden")
    again.start(PROMPTS, overrides={"runId": "after-all"})
    row_of(page, "after-all").wait_for()


def test_a_lost_connection_is_told_after_two_seconds_however_often_it_is_tried_again(shared, open_page):
    page = open_page("about:blank", apart=True)
    tries = []

    def refuse(socket):
        tries.append(socket)
        socket.close()

    page.route_web_socket("**/api/live", refuse)
    page.clock.install(time=0)
    page.goto(shared.url)
    # From here on, time passes only where it is made to.
    page.clock.pause_at(3_600_000)
    said = page.get_by_text("Reconnecting…")
    for _ in range(100):
        page.clock.run_for(100)
        if said.is_visible():
            break

    assert said.is_visible()
    # After half a second, one second more and two more: the fourth would be too late.
    assert len(tries) <= 3


def test_who_asked_for_it_is_told_by_the_browser_when_a_run_ends(served, slow_model, open_page):
    settings = open_page(f"{served.url}/settings", permissions=["notifications"])
    settings.context.add_init_script(
        "window.told = []; window.Notification = class { constructor(title) { window.told.push(title); } "
        "static permission = 'granted'; static async requestPermission() { return 'granted'; } };"
    )
    settings.reload()
    settings.get_by_label("Notify me when a run ends").check()
    served.start(SLOW, overrides={"runId": "told"})
    session = eventually(lambda: served.get("/api/runs/told/items").json["items"][0]["sessionId"])
    pages = {where: settings.context.new_page() for where in ("/", "/runs/told", f"/sessions/{session}")}
    for where, page in pages.items():
        page.goto(served.url + where)
        page.locator(".s-running").first.wait_for()

    served.post("/api/runs/told/abort")

    for page in pages.values():
        assert eventually(lambda page=page: page.evaluate("window.told")) == ["told: aborted"]


def test_models_agents_and_providers_are_shown_and_tried(shared, open_page):
    page = open_page(f"{shared.url}/models")

    echo = page.get_by_role("row").filter(has_text="scripted/echo")
    echo.get_by_role("button", name="Check").click()
    echo.get_by_text("answered in").wait_for()
    page.get_by_role("row").filter(has_text="builtin").get_by_text("ready").wait_for()
    page.get_by_role("searchbox").fill("nobody has this")
    page.get_by_text("No matching models.").wait_for()
    page.get_by_role("heading", name="Providers").wait_for()
    page.get_by_text("ollama", exact=True).wait_for()
    page.get_by_text("Providers that are not configured").click()
    page.get_by_text("OPENAI_API_KEY", exact=True).wait_for()


def test_a_browser_signs_in_once(serve, open_page):
    locked = serve(token="open sesame")
    page = open_page(f"{locked.url}/settings")

    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("Invalid token.").wait_for()
    page.get_by_label("Token").fill("open sesame")
    page.get_by_role("button", name="Sign in").click()

    page.wait_for_url("**/settings")
    page.get_by_role("cell", name="anthropic", exact=True).wait_for()
    page.goto(f"{locked.url}/?token=whatever")
    page.get_by_role("heading", name="No batches yet").wait_for()


def test_a_person_who_plays_an_actor_answers_on_the_runs_page(served, site, open_page):
    add_run(site.context.store, "play", job="scenario", status="running", owner=this_process())
    page = open_page(f"{served.url}/runs/play")
    page.get_by_role("heading", name="play").wait_for()
    asked = site.context.store.change(
        batches.ask, "play", "item", "port", "<b>What</b> do you charge?", site.now()
    )

    question = page.get_by_label("Question to port")
    question.get_by_text("<b>What</b> do you charge?").wait_for()
    question.get_by_label("Answer as port").fill("Nine hundred.")
    question.get_by_role("button", name="Answer").click()

    question.wait_for(state="detached")
    assert site.context.store.answer_of("play", asked) == "Nine hundred."


def test_no_window_is_so_narrow_that_the_list_is_scrolled_sideways(listed, open_page):
    page = open_page(listed.url)
    row_of(page, LONG_NAME).wait_for()

    for width in (1201, 1101, 961, 761, 390):
        page.set_viewport_size({"width": width, "height": 800})
        for place in ("html", ".table-frame"):
            assert sideways(page, place) <= 0, (width, place)
