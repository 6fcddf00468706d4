"""Which store and home a call of the library uses, and the names of functions in place of names."""

from pathlib import Path
from typing import Any

import pytest

import proctor
from proctor.api import callables, launch
from proctor.api.deprecated import with_old_names
from proctor.errors import UsageError


def table(path: Path, solved: int) -> Path:
    rows = [f"t{number},m,{int(number < solved)}" for number in range(10)]
    path.write_text("task,model,success\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, while the home of the environment is another one that must stay empty."""
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "unused"))
    monkeypatch.delenv("PROCTOR_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_results_are_compared_in_the_store_and_the_home_of_the_call(elsewhere: Path) -> None:
    store = str(elsewhere / "mine.db")
    proctor.import_table(table(elsewhere / "a.csv", 3), run="a", store=store)
    proctor.import_table(table(elsewhere / "b.csv", 8), run="b", store=store)
    named = proctor.compare("a", "b", store=store)
    assert next(row for row in named.table() if row["metric"] == "success")["pairs"] == 10
    assert proctor.rank("a", "b", by="run", store=store)[0].name == "b"
    assert proctor.power("a", "b", detect=0.2, store=store).tasks == 10

    home = elsewhere / "home"
    proctor.import_table(elsewhere / "a.csv", run="c", home=home)
    proctor.import_table(elsewhere / "b.csv", run="d", home=home)
    assert proctor.compare("c", "d", home=home).table()[0]["candidate"] == "d"
    with pytest.raises(UsageError, match="c"):
        proctor.compare("c", "d", store=store)
    made = proctor.run(items=[proctor.Item(prompt="x", model="scripted/ok")], store=store, home=home)
    with proctor.open_store(store) as opened:
        assert {each.id for each in opened.runs()} == {"a", "b", made.id}
    assert not (elsewhere / "unused" / "proctor.db").exists()


@pytest.mark.parametrize(
    ("text", "document"), [('{"a": 1}', {"a": 1}), (b'{"a": 1}', {"a": 1}), ("[1]", {}), ("no", {}), ("", {})]
)
def test_the_document_of_a_command(text: str | bytes, document: dict[str, int]) -> None:
    assert launch.parse_document(text) == document


def function() -> None:
    """Do nothing."""


def test_evaluators_are_names_or_functions_of_their_own() -> None:
    objects: dict[str, Any] = {}
    names = callables.evaluator_names(["a", function], objects, str.upper)
    assert names == ["A", f"{__name__}:function"] and list(objects) == names[1:]
    evaluator = objects[names[1]]
    assert (evaluator.name, evaluator.function, evaluator.level) == (names[1], function, "session")
    assert len(evaluator.digest) == 16 and evaluator.digest != callables.digest_of_source(len)


def test_renamed_members_also_have_their_deprecated_names() -> None:
    document = {
        "notes": ["n"],
        "mocks": [],
        "gates": [{"text": "a", "notes": []}],
        "difference": {"text": "b"},
        "text": "c",
    }
    old = {".notes": "remarks", "mocks": "standIns", "gates.text": "words", "difference.text": "said"}

    assert with_old_names(document, old) == {
        **document,
        "remarks": ["n"],
        "standIns": [],
        "gates": [{"text": "a", "notes": [], "words": "a"}],
        "difference": {"text": "b", "said": "b"},
    }
