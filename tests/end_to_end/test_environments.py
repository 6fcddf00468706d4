"""What `setupOnce` installs, through the command line: once, for all sessions that need the same."""

import json
import subprocess
from pathlib import Path

MADE = '"$PROCTOR_ENVIRONMENT/made"'
MAKES = f"test ! -e shop.py && cp needs.txt {MADE} && cat /proc/sys/kernel/random/uuid >> {MADE}"
# Under `landlock` and `bubblewrap`, the second command fails.
WORKS = f'cp {MADE} made; echo x > "$PROCTOR_ENVIRONMENT/changed"; true'
CHECK = f'cmp made {MADE} && test ! -e "$PROCTOR_ENVIRONMENT/changed"'


def batch(proctor, name: str, once: str = MAKES) -> list[dict]:
    entry = {"repo": "shop", "command": WORKS, "scriptCommand": CHECK, "prompt": ["one", "two", "three"]}
    entry |= {"setupOnce": once, "setupOnceFiles": ["needs*.txt"]}
    (proctor.folder / "plan.yaml").write_text(
        json.dumps({"runId": name, "concurrency": 3, "matrix": [entry]})
    )
    proctor("batch", "plan.yaml")
    return proctor.json("show", name)["items"]


def committed(repository: Path, **files: str) -> None:
    for name, text in files.items():
        (repository / name).with_suffix(".txt").write_text(text)
    for words in (["add", "--all"], ["commit", "--quiet", "--message", "more"]):
        subprocess.run(["git", "-C", str(repository), *words], check=True)


def test_sessions_share_one_environment_until_what_it_depends_on_changes(proctor, repository):
    committed(repository, needs="six\n")
    environments = proctor.folder / "proctor-home/environments"

    first = batch(proctor, "first")
    assert [(item["status"], item["error"]) for item in first] == [("success", "")] * 3
    committed(repository, readme="nothing that it depends on")
    assert {item["status"] for item in batch(proctor, "second")} == {"success"}
    assert len([path for path in environments.iterdir() if path.is_dir()]) == 1

    committed(repository, needs="seven\n")
    assert {item["status"] for item in batch(proctor, "third")} == {"success"}
    texts = [path.read_text() for path in environments.glob("*/made")]
    assert sorted(text.split()[0] for text in texts) == ["seven", "six"]


def test_an_environment_that_cannot_be_made_is_no_fault_of_the_agent(proctor, repository):
    committed(repository, needs="six\n")
    fails = "echo no such package; exit 3"
    items = batch(proctor, "broken", fails)
    assert {item["status"] for item in items} == {"error"}
    assert {item["error"].split("\n")[0] for item in items} == {
        f"`setupOnce`: `{fails}` exited with 3: no such package"
    }
    assert all("no such package" in item["error"] for item in items)
    # Once it can be made, the same items are.
    assert {item["status"] for item in batch(proctor, "repaired")} == {"success"}
