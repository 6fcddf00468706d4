"""Coding batches on repositories as users have them: submodules, partial clones, uncommitted changes."""

import subprocess
from pathlib import Path

import pytest

from proctor.testing import make_git_repository


def git(repository: Path, *words: str) -> str:
    identity = ("-c", "user.name=User", "-c", "user.email=user@example.org")
    command = ["git", *identity, "-c", "protocol.file.allow=always", "-C", str(repository), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def write_plan(folder: Path, entry: str, defaults: str = "") -> None:
    (folder / "plan.yaml").write_text(
        f"runId: odd\ndefaults: {{baseBranch: main{defaults}}}\n"
        f"matrix: [{{repo: shop, prompt: Mend the total, {entry}}}]\n"
    )


@pytest.fixture
def with_submodule(tmp_path: Path, repository: Path) -> Path:
    """A shop with a library in a submodule."""
    library = make_git_repository(tmp_path / "library", {"lib.py": "rate = 1\n", "old.py": "\n"})
    git(repository, "submodule", "--quiet", "add", str(library), "vendor/lib")
    git(repository, "commit", "-qm", "library")
    return repository


IN_SUBMODULE = (
    "script: [{edit: {path: vendor/lib/lib.py, find: '1', replace: '2'}}, {delete: vendor/lib/old.py}, "
    "{write: {path: vendor/lib/new.py, content: 'new = 1'}}%s]"
)
IN_BOTH = IN_SUBMODULE % ", {write: {path: shop.py, content: 'total = 2'}}"


@pytest.mark.parametrize(
    ("check", "status"),
    [("grep 2 vendor/lib/lib.py", "fail"), ("grep 2 shop.py", "success"), ("", "unchecked")],
)
def test_the_check_sees_what_the_branch_has_and_work_in_submodules_is_kept_as_a_patch(
    proctor, tmp_path, with_submodule, check, status
):
    write_plan(tmp_path, IN_BOTH, f", scriptCommand: {check}" if check else "")

    proctor("batch", "plan.yaml")

    (item,) = proctor.json("show", "odd")["items"]
    session = proctor.json("show", item["sessionId"])
    (note,) = (each for each in session["notes"] if "vendor/lib" in each)
    assert (item["status"] if item["reason"] != "unchecked" else "unchecked") == status
    assert git(with_submodule, "diff", "--name-only", f"main...{session['branch']}") == "shop.py"
    assert (with_submodule / "vendor/lib/lib.py").read_text() == "rate = 1\n"
    # The note ends with a command that brings the changes to the user's checkout.
    command = note.rpartition(":  ")[2]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert (with_submodule / "vendor/lib/lib.py").read_text() == "rate = 2\n"
    assert (with_submodule / "vendor/lib/new.py").read_text() == "new = 1"
    assert not (with_submodule / "vendor/lib/old.py").exists()


def test_work_in_submodules_alone_is_told_from_no_work(proctor, tmp_path, with_submodule):
    write_plan(tmp_path, IN_SUBMODULE % "")

    proctor("batch", "plan.yaml")

    (item,) = proctor.json("show", "odd")["items"]
    assert (item["status"], item["reason"]) == ("fail", "no_changes")
    assert "vendor/lib" in item["error"]


FIXES = "script: [{write: {path: shop.py, content: 'total = 2'}}]"


def test_a_pass_whose_merge_meets_a_changed_checkout_stays_a_pass_and_is_merged_later(
    proctor, tmp_path, repository
):
    (repository / "shop.py").write_text("total = 'by hand'\n")
    write_plan(tmp_path, FIXES, ", mergeOnPass: true, scriptCommand: grep 2 shop.py")

    ran = proctor("batch", "plan.yaml")

    (item,) = proctor.json("show", "odd")["items"]
    assert (ran.returncode, item["status"], item["merge"]) == (0, "success", "error")
    assert "1 session passed but not merged:  proctor review odd" in ran.stderr
    assert [each["sessionId"] for each in proctor.json("review", "odd")["sessions"]] == [item["sessionId"]]
    session = proctor.json("show", item["sessionId"])
    assert f"proctor sessions merge {item['sessionId']}" in " ".join(session["notes"])
    assert proctor("batch", "plan.yaml", "--resume", "--retry-errors").returncode == 0
    assert len(proctor.json("sessions", "list")["sessions"]) == 1
    git(repository, "checkout", "-q", "shop.py")
    assert proctor("sessions", "merge", item["sessionId"]).returncode == 0
    assert (repository / "shop.py").read_text() == "total = 2"


def test_work_that_changes_nothing_is_not_merged_as_an_empty_commit(proctor, tmp_path, repository):
    before = git(repository, "rev-parse", "main")
    entry = "script: [{write: {path: a, content: a}}, {commit: more}, {delete: a}, {commit: less}]"
    write_plan(tmp_path, entry, ", mergeOnPass: true, scriptCommand: 'true'")

    proctor("batch", "plan.yaml")

    (item,) = proctor.json("show", "odd")["items"]
    assert git(repository, "rev-parse", "main") == before
    assert (item["status"], item["merge"]) == ("success", "success")
    merged = proctor("sessions", "merge", item["sessionId"])
    assert "no commit was made: main has all of these changes" in merged.stderr
    assert git(repository, "rev-parse", "main") == before


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    """A clone without the files of its commits, whose origin has them."""
    origin = make_git_repository(tmp_path / "origin", {"shop.py": "total = 1 - 1\n", "b.txt": "b\n"})
    git(origin, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "--quiet", "--filter=blob:none", "--no-checkout", f"file://{origin}", "shop")
    return tmp_path / "shop"


def test_files_that_a_partial_clone_lacks_are_fetched_from_its_remote(proctor, tmp_path, partial):
    write_plan(tmp_path, FIXES)

    assert proctor("batch", "plan.yaml", "--dry-run").returncode == 0
    proctor("batch", "plan.yaml")

    (item,) = proctor.json("show", "odd")["items"]
    assert item["status"] == "success", item["error"]
    assert "total = 2" in proctor("sessions", "diff", item["sessionId"]).stdout


def test_a_partial_clone_whose_remote_is_gone_is_refused_before_the_first_item(proctor, tmp_path, partial):
    (tmp_path / "origin").rename(tmp_path / "moved")
    write_plan(tmp_path, FIXES)

    for words in (("batch", "plan.yaml", "--dry-run"), ("batch", "plan.yaml")):
        ran = proctor(*words)
        assert ran.returncode == 2
        assert "partial clone that lacks 2 files of `main`" in ran.stderr
    assert proctor.json("runs") == {"runs": []}


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        (["checkout", "-qb", "mine"], "mine is checked out"),
        (["checkout", "-q", "--detach"], "HEAD is detached at SHA"),
        (["rm", "-q", "--cached", "shop.py"], "uncommitted changes are not included"),
    ],
)
def test_what_the_checkout_shows_and_sessions_do_not_start_from_is_named(
    proctor, tmp_path, repository, change, remark
):
    write_plan(tmp_path, FIXES)
    assert "sessions start from" not in proctor("batch", "plan.yaml", "--dry-run").stderr
    git(repository, *change)

    sha = git(repository, "rev-parse", "--short=12", "main")
    for words in (("batch", "plan.yaml", "--dry-run"), ("batch", "plan.yaml")):
        named = f"{repository}: sessions start from main ({sha}); {remark.replace('SHA', sha)}"
        assert named in proctor(*words).stderr
