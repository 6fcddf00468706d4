"""`proctor experiment`, `scenario`, `simulate` and `sessions`: arguments of the library, printed figures."""

from pathlib import Path
from typing import Any

import pytest

from proctor.batch.session_branch import SessionBranch
from proctor.cli import sessions
from proctor.cli.main import main


class Calls(dict[str, Any]):
    """Replaces functions; the arguments of the last call of each, those by name last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._monkeypatch = monkeypatch

    def replace(self, owner: Any, **values: Any) -> None:
        for name, value in values.items():
            self._monkeypatch.setattr(owner, name, self._replacement(name, value))

    def _replacement(self, name: str, value: Any) -> Any:
        def called(*arguments: Any, **named: Any) -> Any:
            self[name] = (*arguments, named)
            return value

        return called


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


# --- Sessions ---


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        (None, "A session\n\nname"),
        ("", "A session\n\nname"),
        ("  Fix it\nplease", "Fix it\n\nname"),
        ("x" * 73, "x" * 72 + "\n\nname"),
    ],
)
def test_the_default_message_of_a_squash(prompt: str | None, title: str) -> None:
    row: Any = {"name": "name", "branch": "b", "baseBranch": "main", "id": "s"}
    item: Any = None if prompt is None else {"prompt": prompt}
    match = SessionBranch(row, item, "source")  # type: ignore[arg-type]
    assert (match.title, match.branch, match.base_branch) == (title, "b", "main")


@pytest.mark.parametrize(
    ("yes", "sure", "number", "code"),
    [(True, False, 2, 0), (False, True, 2, 0), (False, False, 2, 1), (False, False, 0, 0)],
)
def test_imported_sessions_are_deleted_when_somebody_is_sure(
    yes: bool,
    sure: bool,
    number: int,
    code: int,
    folder: Path,
    calls: Calls,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = [f"s{each}" for each in range(number)]
    calls.replace(sessions, imported_sessions=chosen, delete_sessions=None, is_sure=sure)
    words = ["sessions", "delete", "a", "--log-group", "g", "--before", "2026-01-31"]
    assert main([*words, *(["--yes"] if yes else [])]) == code
    named = calls["imported_sessions"][2]
    assert (named["session_ids"], named["log_group"], str(named["before"])[:10]) == (["a"], "g", "2026-01-31")
    assert ("is_sure" in calls) is (not yes and number > 0)
    assert ("delete_sessions" in calls) is (code == 0)
    if code == 0:
        assert calls["delete_sessions"][1] == chosen
        assert capsys.readouterr().err == f"deleted {number} imported sessions\n"
