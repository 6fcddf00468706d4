"""The page for the review of mined tasks: decisions and edits stay in the browser, and are saved."""

import json
from pathlib import Path
from typing import Any

from proctor.tasks.review import apply_decisions, read_saved, review_page
from proctor.workspace.hidden_tests import HiddenTests, write_archive


def test_decisions_and_edits_of_the_review_page_are_saved_and_applied(open_page: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "set" / name).mkdir(parents=True)
        (tmp_path / "tests").mkdir(exist_ok=True)
        (tmp_path / "set" / name / f"{name}.md").write_text(
            f"---\nsealed: true\n---\n# Task: <b>{name}</b>\n"
        )
        hidden = HiddenTests(command="true", fail_to_pass=("test_a",))
        archive = tmp_path / "set" / name / "hidden.tar.xz"
        write_archive(archive, hidden, tests=tmp_path / "tests", solution=tmp_path / "tests", patch="+new\n")
    page_file = tmp_path / "set" / "review.html"
    page_file.write_text(review_page(tmp_path / "set"))

    page = open_page(page_file.as_uri())
    first, second = page.locator("section").all()
    first.get_by_role("button", name="Reject").click()
    second.locator("textarea").fill("# Task: Second\n\nBetter.")
    page.reload()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save review.json").click()
    download.value.save_as(tmp_path / "saved.json")

    decisions = read_saved(tmp_path / "saved.json")
    tasks = {task.name: task for task in apply_decisions(tmp_path / "set", decisions)}
    assert tasks["one"].decision == "rejected" and (tmp_path / "set/.rejected/one").is_dir()
    assert (tasks["two"].decision, tasks["two"].statement) == ("open", "# Task: Second\n\nBetter.\n")
    assert json.loads((tmp_path / "set/review.json").read_text()) == {"one": "rejected"}
