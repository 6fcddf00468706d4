"""Which store and home a call of the library uses, bars of progress, and detached processes."""

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import proctor
from proctor import api
from proctor.api import analysis, callables, dialogues, doctor, launch
from proctor.api.dialogues import BatchConfig, aggregate_results
from proctor.errors import UsageError
from proctor.store import Store
from proctor.store.keys import Keys


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
    assert not (elsewhere / "unused" / "proctor.db").exists()


def test_a_store_that_is_open_is_used() -> None:
    opened = api.ProctorStore.__new__(api.ProctorStore)
    assert api.opened_store(opened, "/nowhere") is opened


@pytest.mark.parametrize(
    ("detect", "power", "problem"),
    [
        (0.0, 0.8, "the difference to detect must be other than 0\nExample: --detect 0.05."),
        (float("inf"), 0.8, "the difference to detect must be other than 0\nExample: --detect 0.05."),
        (0.1, 0.0, "the power must lie between 0 and 1\nExample: --power 0.8, power=0.8."),
        (0.1, 1.0, "the power must lie between 0 and 1\nExample: --power 0.8, power=0.8."),
    ],
)
def test_a_power_analysis_needs_a_difference_and_a_power(detect: float, power: float, problem: str) -> None:
    results: Any = None
    with pytest.raises(UsageError) as error:
        analysis.power_of(results, metric="success", detect=detect, power=power)
    assert str(error.value) == problem


# --- Bars ---


class Cell:
    """The output of a notebook's cell."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def HTML(self, text: str) -> str:  # noqa: N802
        return text

    def display(self, text: str, *, display_id: bool) -> "Cell":
        assert display_id
        self.shown.append(text)
        return self

    def update(self, text: str) -> None:
        self.shown.append(text)


def test_the_bar_of_a_notebook_is_drawn_at_most_so_often_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell, moments = Cell(), iter([0.0, 0.1, 5.0, 5.0, 5.1])
    monkeypatch.setattr(api, "load", lambda name: cell)
    monkeypatch.setattr(api, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    monkeypatch.setattr(api, "NOTEBOOK_SECONDS", 5.0)
    with api._notebook_bar("run <1>", 4, 1) as draw:
        draw(2, "early")
        draw(3, "later")
        draw(4, "last")
        assert len(cell.shown) == 2

    def bar(done: int, label: str) -> str:
        return f'<progress max="4" value="{done}"></progress> {done}/4 {label}'

    assert cell.shown == [bar(1, "run &lt;1&gt;"), bar(3, "later"), bar(4, "last")]


# --- The doctor ---


def test_the_store_is_opened_with_its_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "a.db")
    Store(url).close()
    asked: list[Any] = []
    monkeypatch.setattr(doctor, "read_keys", lambda *given: asked.append(given) or Keys())
    settings: Any = SimpleNamespace(store_url=url, encryption="encryption", user_environment={"A": "1"})
    result = doctor._store(settings)
    assert (result.name, result.well, result.said) == (
        "store",
        True,
        f"sqlite:///{url} can be read and written",
    )
    assert asked == [("encryption", {"A": "1"})]


# --- Detached processes ---


@pytest.mark.parametrize(
    ("status", "reason", "aborted", "has_ended"),
    [
        ("completed", "", None, True),
        ("aborted", "", None, True),
        ("halted", "budget", None, True),
        ("running", "", None, False),
        ("running", "interrupted", "2026", False),
        ("interrupted", "", None, False),
        ("interrupted", "interrupted", None, True),
        ("interrupted", "died", "2026", True),
    ],
)
def test_which_runs_have_ended(status: str, reason: str, aborted: str | None, has_ended: bool) -> None:
    batch: Any = {"status": status, "reason": reason, "abortRequestedAt": aborted}
    assert launch._has_ended(batch) is has_ended


def test_the_end_of_a_log_is_read_where_the_process_goes_on_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MOST_LOG_BYTES", 4)
    with tempfile.TemporaryFile() as file:
        file.write(b"abcdef")
        file.flush()
        assert launch._tail(file) == "cdef" and file.tell() == 6
        file.seek(0)
        file.truncate(2)
        assert launch._tail(file) == "ab"


@pytest.mark.parametrize(
    ("text", "document"), [('{"a": 1}', {"a": 1}), (b'{"a": 1}', {"a": 1}), ("[1]", {}), ("no", {}), ("", {})]
)
def test_the_document_of_a_command(text: str | bytes, document: dict[str, int]) -> None:
    assert launch.parse_document(text) == document


# --- Functions in place of names ---


class Callable:
    """An object that can be called."""

    def __call__(self) -> None:
        """Do nothing."""


def function() -> None:
    """Do nothing."""


def test_functions_have_names() -> None:
    module = __name__
    assert callables.name_of(function) == f"{module}:function"
    assert callables.name_of(Callable()) == f"{module}:Callable"
    agents: dict[str, Any] = {}
    models: dict[str, Any] = {}
    assert [callables.agent_name(each, agents) for each in (None, "", "a")] == ["", "", "a"] and agents == {}
    assert [callables.model_name(each, models) for each in (None, "", "a")] == ["", "", "a"] and models == {}
    assert callables.agent_name(function, agents) == f"{module}:function" and list(agents.values()) == [
        function
    ]
    model: Any = function
    assert callables.model_name(model, models) == f"python/{module}:function"
    assert models == {f"python/{module}:function": function}


def test_evaluators_are_names_or_functions_of_their_own() -> None:
    objects: dict[str, Any] = {}
    names = callables.evaluator_names(["a", function], objects, str.upper)
    assert names == ["A", f"{__name__}:function"] and list(objects) == names[1:]
    evaluator = objects[names[1]]
    assert (evaluator.name, evaluator.function, evaluator.level) == (names[1], function, "session")
    assert len(evaluator.digest) == 16 and evaluator.digest != callables.digest_of_source(len)
    with pytest.raises(UsageError) as error:
        callables.evaluator_names([function, function], {}, str)
    assert str(error.value) == (
        f"two evaluators are called {__name__}:function\nGive each function its own name."
    )
    wrong: Any = 3
    with pytest.raises(UsageError, match=r"^3 is not a valid evaluator\nGive a name or a function\.$"):
        callables.evaluator_names([wrong], {}, str)


# --- Simulations ---


def test_a_simulation_in_python_has_the_defaults_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialogues, "default_output", lambda moment: "out")
    config = BatchConfig()
    assert (config.num_runs, config.max_turns, config.max_workers, config.output_dir) == (5, 20, 4, "out")
    assert (config.lang, config.under_test, config.reminder_turns, config.loop_turns) == (
        "en",
        "therapist",
        2,
        3,
    )
    assert (config.retries, config.resume, config.clients, config.therapists) == (
        0,
        False,
        ("patientPsi",),
        ("CBT",),
    )
    overrides = BatchConfig(num_runs=2, seed=7, home="/h", resume=True, output_dir="o").overrides()
    assert (overrides.num_runs, overrides.seed, overrides.output_dir) == (2, 7, "o")


def test_a_summary_keeps_what_was_written_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialogues, "summary_of", lambda runs: {"runs": len(list(runs))})
    monkeypatch.setattr(dialogues, "run_of_result", lambda result: result)
    folder = tmp_path / "new"
    assert aggregate_results([{}, {}], folder) == {"runs": 2}
    path = folder / dialogues.SUMMARY
    path.write_text(json.dumps({"runs": 9, "notes": ["a"]}))
    assert aggregate_results([{}], folder) == {"runs": 1, "notes": ["a"]}
    assert json.loads(path.read_text()) == {"runs": 1, "notes": ["a"]}
    path.write_text("{")
    assert aggregate_results([{}], folder) == {"runs": 1}
