"""Figures of an experiment: what is drawn, what is left out, and the paragraph about its methods."""

from types import SimpleNamespace
from typing import Any

import pytest

from proctor import __version__
from proctor.jobs.scenario import figures
from proctor.results_view import FigureList


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was given to the functions that draw."""
    calls: list[Any] = []

    def keep(name: str) -> Any:
        def draw(*given: Any, **named: Any) -> str:
            calls.append((name, given, named))
            return f"<{name}>"

        return draw

    for name in ("dots", "dot_table", "scatter", "interaction", "small_multiples"):
        monkeypatch.setattr(figures, name, keep(name))
    return calls


def variation(number: int, **changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "variation_id": number,
        "description": f"fee={number}",
        "factors": {"fee": number},
        "total_runs": 4,
        "judged_runs": 4,
        "successful_runs": 3,
        "success_rate": 0.75,
        "success_rate_interval": (0.25, 0.9),
        "cost": {"mean": 0.5 * number},
        "metrics": {"trust": {"mean": 1.0 * number, "low": 0.5, "high": 2.5, "n": 3, "method": "t"}},
    }
    return {**usual, **changes}


def test_success_is_drawn_for_variations_with_runs(drawn: list[Any]) -> None:
    marks = FigureList()
    rows = [variation(1), variation(2, total_runs=0), variation(3)]
    ((caption, plot),) = figures._success(rows, marks)
    assert caption == (
        "Completed runs by variation. Share of the runs that completed, without infrastructure errors; "
        "95% CI: Wilson; n = 4 runs per variation, 8 in all."
    )
    assert plot == "<dot_table>"
    ((_, (title, heads, table), named),) = drawn
    assert (title, heads) == ("Completed runs by variation", ["fee", "no."])
    assert [row.cells for row in table] == [["1", "1"], ["3", "3"]]
    entry = table[0].entry
    assert (entry.label, entry.value, entry.low, entry.high, entry.note, entry.mark) == (
        "1: fee=1",
        0.75,
        0.25,
        0.9,
        "3/4",
        0,
    )
    assert (named["axis"], named["limits"]) == ("completed", (0.0, 1.0))
    one = marks.figures[1]
    assert (one.label, one.text, one.value, one.low, one.high, one.n, one.unit) == (
        "3: fee=3",
        "75%",
        0.75,
        0.25,
        0.9,
        4,
        "run",
    )
    assert one.items == {"factor": ["variation=var-003"]}
    assert figures._success([variation(1, total_runs=0)]) == []


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([variation(1), variation(2)], "dot_table"),
        ([variation(1, factors={}), variation(2, factors={})], "dots"),
        ([variation(1), variation(2, factors={"other": 1})], "dots"),
        ([variation(1), variation(2, factors={})], "dots"),
        ([variation(1, factors={}), variation(2)], "dots"),
    ],
)
def test_factors_are_columns_where_all_variations_have_the_same(
    rows: list[Any], name: str, drawn: list[Any]
) -> None:
    assert figures._success(rows)[0][1] == f"<{name}>"
    assert drawn[0][0] == name


@pytest.mark.parametrize(("number", "note"), [(60, ""), (61, " The first 60 of 61 variations.")])
def test_sixty_variations_are_drawn(number: int, note: str, drawn: list[Any]) -> None:
    rows = [variation(each, factors={}) for each in range(1, number + 1)]
    for caption, _ in (*figures._success(rows), *figures._by_variation("trust", rows)):
        assert caption.endswith(f".{note}") and ("The first" in caption) is bool(note)
    for _, (_, groups), _ in drawn:
        assert len(groups[""]) == 60


def test_a_metric_by_variation(drawn: list[Any]) -> None:
    marks = FigureList()
    rows = [variation(1), variation(2), variation(3, metrics={})]
    ((caption, _),) = figures._by_variation("trust", rows, marks)
    assert caption.startswith("trust by variation. Mean of the last value of each completed run; ")
    ((_, (_, _, table), named),) = drawn
    entry = table[1].entry
    assert (entry.label, entry.value, entry.low, entry.high, entry.note, entry.mark) == (
        "2: fee=2",
        2.0,
        0.5,
        2.5,
        "2 (n = 3)",
        1,
    )
    assert named["axis"] == "trust" and len(table) == 2
    one = marks.figures[1]
    assert (one.label, one.text, one.value, one.low, one.high, one.n) == ("2: fee=2", "2", 2.0, 0.5, 2.5, 3)
    assert figures._by_variation("lost", rows) == []


def test_cost_against_a_metric_needs_two_variations(drawn: list[Any]) -> None:
    rows = [variation(1), variation(2), variation(3, cost={"mean": None}), variation(4, metrics={})]
    ((caption, plot),) = figures._against_cost("trust", rows)
    assert plot == "<scatter>" and caption.startswith(
        "What a run costs against trust. Mean of the last value"
    )
    ((_, (_, points), named),) = drawn
    assert [(each.label, each.x, each.y, each.low, each.high) for each in points] == [
        ("1: fee=1", 0.5, 1.0, 0.5, 2.5),
        ("2: fee=2", 1.0, 2.0, 0.5, 2.5),
    ]
    assert (named["x_axis"], named["y_axis"]) == ("mean cost of a run", "trust")
    assert figures._against_cost("trust", rows[:1]) == []


def turn(number: int, mean: float) -> dict[str, Any]:
    return {"turn": number, "mean": mean, "low": mean - 1, "high": mean + 1, "n": 3}


def study(**changes: Any) -> Any:
    usual: dict[str, Any] = {
        "descriptions": {1: "a", 2: "b"},
        "factors": {1: {"fee": "1"}, 2: {"fee": "2"}},
        "runs": [],
        "stand_ins": (),
        "scales": {},
        "variables": (),
    }
    return SimpleNamespace(**usual | changes)


def test_turns_are_panels_of_variations_with_more_than_one(
    drawn: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        figures, "_places", lambda analyzer, numbers: dict.fromkeys(numbers, ("row", "column"))
    )
    turns = {1: [turn(1, 2.0), turn(2, 3.0)], 2: [turn(1, 5.0)]}
    analyzer: Any = SimpleNamespace(study=study(), turns_of=lambda metric, number: turns[number])
    marks = FigureList()
    ((caption, _),) = figures._over_turns("trust", analyzer, marks)
    assert caption.startswith(
        "trust over the turns. Mean over the completed runs of a variation after each turn"
    )
    assert caption.endswith("All panels have the same axes.")
    ((_, (_, panels), named),) = drawn
    (panel,) = panels
    assert (panel.row, panel.column, panel.label) == ("row", "column", "1: a")
    assert [(each.x, each.y, each.low, each.high, each.mark) for each in panel.points] == [
        (1, 2.0, 1.0, 3.0, 0),
        (2, 3.0, 2.0, 4.0, 1),
    ]
    assert (named["x_axis"], named["y_axis"]) == ("turn", "trust")
    assert (marks.figures[1].label, marks.figures[1].n) == ("1: a, turn 2", 3)
    turns[1].pop()
    assert figures._over_turns("trust", analyzer) == []
    alone: Any = SimpleNamespace(
        study=study(descriptions={1: "a"}), turns_of=lambda metric, number: [turn(1, 2.0), turn(2, 3.0)]
    )
    figures._over_turns("trust", alone)
    assert drawn[-1][1][1][0].label == "all runs"


def places(factors: dict[int, dict[str, str]], levels: dict[str, list[str]]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures.experiment, "levels_of", lambda _: levels)
        analyzer: Any = SimpleNamespace(study=study(factors=factors))
        return figures._places(analyzer, list(factors))


def test_panels_make_a_grid_where_factors_identify_the_variations() -> None:
    levels = {"fee": ["1", "2", "3"], "model": ["x", "y"]}
    both = {
        number: {"fee": fee, "model": model}
        for number, (fee, model) in enumerate([("1", "x"), ("2", "x"), ("1", "y")], 1)
    }
    assert places(both, levels) == {
        1: ("model = x", "fee = 1"),
        2: ("model = x", "fee = 2"),
        3: ("model = y", "fee = 1"),
    }
    # The factor with long texts is not above the panels.
    long = {"fee": ["1" * 31, "2", "3"], "model": ["x", "y"]}
    assert places(both, long)[1] == ("fee = 1", "model = x")
    assert places(both, {"fee": ["1" * 30, "2", "3"], "model": ["x", "y"]})[1] == ("model = x", "fee = 1")
    five = {"fee": list("12345"), "model": ["x", "y"]}
    assert places(both, five)[1] == ("fee = 1", "model = x")
    nothing = dict.fromkeys(both, ("", ""))
    assert places(both, {"fee": list("12345")}) == nothing
    assert places(both, {"fee": ["1", "2"]}) == nothing
    assert places({1: {"fee": "1"}, 2: {}}, {"fee": ["1", "2"]}) == {1: ("", ""), 2: ("", "")}


def run(**changes: Any) -> Any:
    usual: dict[str, Any] = {"is_success": True, "is_judged": True, "is_error": False, "seed": None}
    return SimpleNamespace(**usual | {"variation_id": 1, "metrics": {"trust": 1.0}} | changes)


def methods(levels: dict[str, list[str]], runs: list[Any], **changes: Any) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures.experiment, "levels_of", lambda _: levels)
        patch.setattr(figures, "_comparison_sentence", lambda analyzer: "COMPARED.")
        patch.setattr(figures, "_interval_sentence", lambda analyzer: "INTERVALS.")
        analyzer: Any = SimpleNamespace(study=study(runs=runs, **changes))
        return figures.methods_paragraph(analyzer)


def test_the_methods_of_an_experiment() -> None:
    end = f"Runs and analysis: Proctor {__version__}."
    seeds = (
        "Runs of equal number have the same random seed in every variation, and comparisons are paired by "
        "seed where both runs completed."
    )
    bare = methods({}, [run(seed=1), run(seed=2)], descriptions={1: "a"})
    assert bare == (
        "The scenario was run without variations (n = 2 runs per variation). 2 runs completed; "
        f"metrics are the last values of completed runs. INTERVALS. {end}"
    )
    assert "COMPARED." not in bare and "failed" not in bare
    levels = {"fee": ["1", "2"], "model": ["x"]}
    failed, error = (
        run(is_success=False, variation_id=2),
        run(is_success=False, is_judged=False, is_error=True),
    )
    whole = methods(levels, [run(seed=1), failed, error], stand_ins=("scripted/x",))
    assert whole.startswith(
        "We varied 2 factors of a multi-actor scenario: fee (1, 2); model (x), which makes 2 variations ("
    )
    assert "1 runs completed, 1 failed, and 1 ended in infrastructure errors; metrics are" in whole
    assert f" {seeds} INTERVALS. COMPARED. Interactions of two factors were tested with F tests" in whole
    assert whole.endswith(f"The runs used mock models (scripted/x): they say nothing about real ones. {end}")
    one = methods({"fee": ["1", "2"]}, [run(), run(variation_id=2)])
    assert seeds not in one and "Interactions" not in one and "COMPARED." in one and "mock" not in one
    assert "failed" in methods({}, [run(), failed]) and "failed" in methods({}, [run(), error])


def view(drawn: list[Any], metrics: list[str], judged: int, effects: int, **changes: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "_success", lambda statistics, marks: [("Success. c", "svg")])
        patch.setattr(
            figures,
            "_main_effects",
            lambda name, analyzer, marks: [(f"Main {name}. c", "svg")] if name != "m1" else [],
        )
        patch.setattr(figures, "_by_variation", lambda name, statistics, marks: [(f"By {name}. c", "svg")])
        patch.setattr(figures, "_over_turns", lambda name, analyzer, marks: [(f"Turns {name}. c. d", "svg")])
        patterns = {
            "success_factors": [{"statement": f"s{number}"} for number in range(effects)],
            "metric_effects": [{"statement": "m"}],
            "successful_runs": 3,
            "judged_runs": judged,
            "notes": ["note"],
        }
        analyzer: Any = SimpleNamespace(
            identify_patterns=lambda: patterns,
            calculate_variation_statistics=dict,
            metrics=metrics,
            study=study(**changes),
        )
        return figures.results_view(analyzer)


def titles(found: Any) -> list[str]:
    return [getattr(each, "title", None) or each.text for each in found.sections]


def test_the_page_of_a_run_has_effects_success_and_six_metrics(drawn: list[Any]) -> None:
    few = view(drawn, ["m0", "m1"], 3, 2)
    assert titles(few) == ["s0", "s1", "m", "Main m0", "Turns m0", "By m1", "Turns m1"]
    assert few.remarks == ["note"] and few.sections[-1].caption == "c. d"
    many = view(drawn, [f"m{number}" for number in range(8)], 4, 9, variables=("m7",))
    assert titles(many)[:5] == ["s0", "s1", "s2", "s3", "Success"]
    assert titles(many)[-2:] == ["Turns m5", "Turns m7"]
    assert many.remarks == ["note", "The analysis has 2 more metrics."]


def crossed(monkeypatch: pytest.MonkeyPatch, levels: dict[str, list[str]]) -> Any:
    """An analyzer with a run of each combination of fee and model; trust is the fee, plus 10 with y."""
    runs = [
        run(
            metrics={"trust": float(fee) + 10 * (model == "y")},
            levels={"fee": fee, "model": model, "size": "s"},
        )
        for fee in ("1", "2", "3")
        for model in ("x", "y")
    ]
    runs += [run(is_success=False), run(metrics={})]
    monkeypatch.setattr(figures.experiment, "levels_of", lambda _: levels)
    monkeypatch.setattr(figures.experiment, "level_of", lambda _, each, factor: each.levels[factor])
    effects = [{"factor": "fee × model", "p_corrected": 0.0123}]
    return SimpleNamespace(study=study(runs=runs), factor_effects=lambda metric: effects)


def test_two_factors_have_a_mean_in_each_combination(
    drawn: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    analyzer = crossed(monkeypatch, {"model": ["x", "y"], "fee": ["1", "2", "3"]})
    ((caption, plot),) = figures._interactions("trust", analyzer)
    ((name, (title, rows, cells), named),) = drawn
    assert (plot, name, title, rows) == ("<interaction>", "interaction", "trust: fee by model", "fee")
    assert {level: {other: cell.value for other, cell in row.items()} for level, row in cells.items()} == {
        "1": {"x": 1.0, "y": 11.0},
        "2": {"x": 2.0, "y": 12.0},
        "3": {"x": 3.0, "y": 13.0},
    }
    assert all(cell.n == 1 for row in cells.values() for cell in row.values())
    assert named == {"by": "model", "axis": "trust"}
    assert caption.endswith("Lines that are not parallel show an interaction.")
    swapped = crossed(monkeypatch, {"fee": ["1", "2", "3"], "model": ["x", "y"]})
    ((caption, _),) = figures._interactions("trust", swapped)
    assert caption.endswith(" Interaction: F test, p = 0.012 (Bonferroni).")


@pytest.mark.parametrize(("number", "is_drawn"), [(6, True), (7, False)])
def test_six_levels_have_a_line_of_their_own(
    number: int, is_drawn: bool, drawn: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [str(level) for level in range(1, number + 1)]
    analyzer = crossed(monkeypatch, {"fee": many, "size": ["s", *"abcdefgh"]})
    assert bool(figures._interactions("trust", analyzer)) is is_drawn


def test_each_level_has_its_mean_over_the_others(drawn: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    analyzer = crossed(monkeypatch, {"fee": ["1", "2", "3", "4"], "model": ["x", "y"]})
    marks = FigureList()
    ((caption, _),) = figures._main_effects("trust", analyzer, marks)
    ((_, (title, groups), named),) = drawn
    assert title == "trust: main effects" and named["reference"] == pytest.approx(7.0)
    assert {factor: [(bar.label, bar.value) for bar in bars] for factor, bars in groups.items()} == {
        "fee": [("1", 6.0), ("2", 7.0), ("3", 8.0)],
        "model": [("x", 2.0), ("y", 12.0)],
    }
    assert groups["fee"][0].note == "6 (n = 2)" and groups["model"][1].mark == 4
    assert (marks.figures[0].label, marks.figures[0].items) == ("fee = 1", {"factor": ["fee=1"]})
    assert "Dashed line: mean of all 6 runs." in caption
    assert figures._main_effects("trust", crossed(monkeypatch, {})) == []
