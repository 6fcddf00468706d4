"""A small repository whose history holds one of each kind of commit."""

import os
import subprocess
from pathlib import Path

TOKEN = "quokka_total"
"""A name that only the fix and its test contain."""
TEST_FILE = "test_wombat.py"
"""A test that only the fix adds."""

TEST = "import unittest\nfrom shop import total\n\n\nclass Totals(unittest.TestCase):\n"
OLD = TEST + "    def test_empty(self):\n        self.assertEqual(total([]), 0)\n"
NEW = (
    "import unittest\nfrom shop import quokka_total\n\n\nclass Wombat(unittest.TestCase):\n"
    "    def test_two(self):\n        self.assertEqual(quokka_total([1, 2]), 3)\n"
)
FIX_TEST = (
    "import unittest\nfrom shop import total\n\n\nclass Two(unittest.TestCase):\n"
    "    def test_two(self):\n        self.assertEqual(total([1, 2]), 3)\n"
)
FLAKY = (
    "import os, pathlib, unittest\nfrom shop import total\n\n\nclass Flaky(unittest.TestCase):\n"
    "    def test_luck(self):\n        from shop import tax\n"
    "        file = pathlib.Path(os.environ['TMPDIR'], 'runs')\n"
    "        file.write_text((file.read_text() if file.exists() else '') + 'x')\n"
    "        self.assertTrue(len(file.read_text()) % 2)\n"
)


class History:
    """A repository that grows by commits."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._day = folder, 0
        folder.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> str:
        day = f"2026-01-{self._day + 1:02}T12:00:00+00:00"
        who = {"NAME": "Ada", "EMAIL": "ada@example.com", "DATE": day}
        names = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}
        done = subprocess.run(
            ["git", *words],
            cwd=self.folder,
            env={**os.environ, **names, "GIT_CONFIG_GLOBAL": "/dev/null"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def commit(self, message: str, **files: str) -> str:
        """Write files (`a__b_py` is `a/b.py`) and commit them; the commit."""
        self._day += 1
        for name, text in files.items():
            path = self.folder / name.replace("__", "/").replace("_DOT_", ".").replace("INIT", "__init__.py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")


FIX_MESSAGE = """fix: totals of more than one item are wrong in shop.py (#12)

Adding two items gives the first one only. See https://example.com/o/r/pull/12 and 1a2b3c4d5e.

Signed-off-by: Ada <ada@example.com>
"""
FIXED = "def total(items):\n    return sum(items)\n\n\ndef quokka_total(items):\n    return total(items)\n"


def make_history(folder: Path, *, later: str = "") -> tuple[History, dict[str, str]]:
    """The repository, and its commits by what they are; `later`: what titles after the fix begin with."""
    history = History(folder)
    shop = "def total(items):\n    return items[0] if items else 0\n"
    commits = {"first": history.commit("Begin", shop_DOT_py=shop, tests__test_shop_DOT_py=OLD)}
    history.commit("Make the tests a package", tests__INIT="")
    commits["docs"] = history.commit("Explain the shop to readers", README_DOT_md="A shop.\n")
    fixed = {"shop_DOT_py": FIXED, "tests__test_wombat_DOT_py": NEW, "README_DOT_md": "A good shop.\n"}
    commits["fix"] = history.commit(FIX_MESSAGE, **fixed)
    commits["same"] = history.commit(
        f"{later}Say the same thing differently\n\nReaders have asked for words that are easier to follow.",
        shop_DOT_py=FIXED + "# Done.\n",
        tests__test_shop_DOT_py=OLD + "# Done.\n",
    )
    commits["flaky"] = history.commit(
        f"{later}Add a tax that is sometimes right\n\nIt depends on the day and on the weather in the town.",
        shop_DOT_py=FIXED + "\n\ntax = 1\n",
        tests__test_tax_DOT_py=FLAKY,
    )
    commits["release"] = history.commit("Release 1.0", shop_DOT_py=FIXED + "\n\ntax = 2\n")
    history.git("tag", "v1.0")
    return history, commits
