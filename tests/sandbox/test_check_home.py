"""A check runs with the HOME that setup left, whatever the agent has put into its own."""

import json
import subprocess
from pathlib import Path

import pytest

from commands import Command
from proctor.sandbox import problem_of
from proctor.store import Scope
from proctor.testing import make_git_repository

SETUP = """
mkdir -p ~/.local/bin ~/.cache/pip
printf '#!/bin/sh\\nexit 3\\n' > ~/.local/bin/tool
chmod +x ~/.local/bin/tool
echo wheel > ~/.cache/pip/wheel
find ~ | sort > listing
"""
FORGE = "import os; os._exit(0)"
AGENT = f"""
echo change >> shop.py
site=$(python3 -m site --user-site); mkdir -p "$site"
echo '{FORGE}' > "$site/usercustomize.py"
echo '{FORGE}' > "$site/forge.pth"
printf '#!/bin/sh\\nexit 0\\n' > ~/.local/bin/tool
printf '#!/bin/sh\\nexit 0\\n' > ~/.local/bin/pytest; chmod +x ~/.local/bin/pytest
echo poisoned > ~/.cache/pip/wheel
for file in .bashrc .profile .npmrc .pythonrc .config/pip/pip.conf .cargo/config.toml .gitconfig tmp/left; do
  mkdir -p "$(dirname ~/$file)"; echo 'exit 0' > ~/$file
done
cp -r ~ ../setup-home; cp -r ~/. ../setup-home; rm -rf ../setup-home ../agent-home
mv ~ ../home-of-mine; ln -s "$PWD" ~
true
"""
CHECK = """
test "$(find ~ | sort)" = "$(cat listing)" || { find ~ | sort | diff listing -; exit 9; }
test "$(cat ~/.cache/pip/wheel)" = wheel || exit 8
git config --global user.name || exit 7
PATH=~/.local/bin:$PATH tool
"""
PLAIN_CHECK = "test -z \"$(find ~ -type f ! -name .gitconfig)\" && python3 -c 'raise SystemExit(3)'"


SETUPS = {"installs": {"setup": SETUP}, "nothing": {"setup": "true"}, "none": {}}


def run_items(proctor: Command, kind: str, *items: dict[str, object]) -> subprocess.CompletedProcess[str]:
    """Run a batch of items in one repository."""
    if problem := problem_of(kind):
        pytest.skip(problem)
    repository = make_git_repository(proctor.folder / "shop", {"shop.py": "total = 1\n"})
    usual = {"repo": str(repository), "prompt": "Make the check pass.", "sandbox": kind}
    plan = {"runId": "home", "concurrency": 2, "matrix": [usual | item for item in items]}
    (proctor.folder / "plan.yaml").write_text(json.dumps(plan))
    return proctor("batch", "plan.yaml")


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_a_check_has_the_home_that_setup_left(proctor: Command, kind: str) -> None:
    attack = {"command": ["bash", "-c", AGENT], "baseline": True, "keep": "always"}
    items = [
        {"prompt": name, "scriptCommand": CHECK if name == "installs" else PLAIN_CHECK, **attack, **setup}
        for name, setup in SETUPS.items()
    ]

    ended = run_items(proctor, kind, *items)

    assert ended.returncode == 1, ended.stderr
    with proctor.open_store() as store:
        rows = list(store.read.table("sessions", Scope(run_id="home")))
    assert len(rows) == len(SETUPS)
    for row in rows:
        assert (row["status"], row["endReason"]) == ("fail", "checks_failed")
        assert "exited with 3" in row["error"], row["error"]
        kept = {path.name for path in Path(row["worktree"]).parent.iterdir()}
        assert not kept & {"setup-home", "agent-home", "check-home"}


def test_setup_may_remove_or_replace_what_is_in_home(proctor: Command) -> None:
    items = [
        {"setup": setup, "command": ["sh", "-c", "echo change >> shop.py"], "scriptCommand": check}
        for setup, check in (
            ("rm ~/.gitconfig; mkfifo ~/.gitconfig", "test -p ~/.gitconfig"),
            ("rm -r ~/.local", "test ! -e ~/.local"),
            ("git config --global user.name Setup", 'test "$(git config user.name)" = Setup'),
        )
    ]

    ended = run_items(proctor, "bubblewrap", *items)

    assert ended.returncode == 0, ended.stderr
