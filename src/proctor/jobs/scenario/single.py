"""One scenario by itself: as an experiment with one variation, as a branch of an earlier run, or estimated.

An estimate counts the calls of a run with a mock model, and uses earlier runs where there are any.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from proctor.errors import ModelError, UsageError
from proctor.formatting import plural
from proctor.item import SCENARIO
from proctor.jobs.scenario.experiment import (
    CONFIG,
    KEPT_SCENARIO,
    STATE,
    Experiment,
    read_config,
    read_experiment,
)
from proctor.jobs.scenario.folder import ImportedRuns, run_from_store
from proctor.jobs.scenario.job import ScenarioPlan
from proctor.json_values import without_none
from proctor.model import Answer, Request
from proctor.models import ModelRouter
from proctor.plan.yaml_loader import read_source
from proctor.report.estimate import assumption_note
from proctor.scenario.definition import Scenario, changed, scenario_of
from proctor.scenario.prompts import HUMAN, ScenarioModels
from proctor.scenario.run_files import read_run
from proctor.scenario.simulation import ScenarioSimulation
from proctor.scenario.state import HALTED, ScenarioCall, ScenarioRun, ScenarioTurn
from proctor.session import CHARACTERS_PER_TOKEN, ModelCall, Usage
from proctor.stats.estimate import Predicted, Prediction, PromptShare, parts_of, predict
from proctor.store import Store

DECISION_WORDS, WORLD_WORDS = 150, 250
"""Typical length of a model's decision and of its world state, in words."""


def config_of(
    folder: Path,
    output: Path,
    changes: dict[str, Any],
    *,
    runs: int = 1,
    seed: int = 0,
    timeout: float | None = None,
    branch: dict[str, Any] | None = None,
) -> str:
    """The config of an experiment that is one variation of a scenario."""
    config = {
        "experiment_name": folder.name if folder.name != KEPT_SCENARIO else output.name,
        "base_scenario": str(folder),
        "output_dir": str(output),
        "runs_per_variation": runs,
        "seed": seed,
        "timeout_per_run": timeout,
        "branch": branch,
        "variations": [
            {"type": "scenario_parameter", "parameter": path, "values": [value]}
            for path, value in changes.items()
        ],
    }
    settings = without_none(config)
    return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)


def parse_changes(arguments: Sequence[str]) -> dict[str, Any]:
    """The changes of `PATH=VALUE` arguments, by path; values are read as YAML."""
    changes: dict[str, Any] = {}
    for argument in arguments:
        path, equals, value = argument.partition("=")
        if not equals or not path.strip():
            raise UsageError(f"`{argument}` is not a change\nWrite PATH=VALUE, such as turns=5.")
        changes[path.strip()] = read_source(value, file="--set").data if value else ""
    return changes


def as_experiment(target: Path) -> Experiment:
    """A scenario's folder, an experiment's folder or a config, as an experiment."""
    path = target.absolute()
    if not path.exists():
        raise UsageError(
            f"there is no {target}\nGive the folder of a scenario or of an experiment, or a config."
        )
    if path.is_dir() and not (path / CONFIG).is_file():
        text: str | bytes = config_of(path, path / "runs", {})
        return read_experiment(text, path=path / CONFIG, working_folder=Path.cwd())
    config = path / CONFIG if path.is_dir() else path
    return read_experiment(read_config(config), path=config, working_folder=Path.cwd())


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPoint:
    """A run to branch from."""

    run: ScenarioRun
    changes: dict[str, Any]
    """What its variation changes in the scenario, by path."""
    scenario_folder: Path


def find_branch_point(store: Store, source: str) -> BranchPoint:
    """The run in a folder, or of an item id."""
    folder = Path(source).absolute()
    if folder.is_dir():
        run = read_run(folder)
        if run is None:
            raise UsageError(f"{source} holds no run\nGive a folder such as …/runs/var-001-run-001.")
        root = folder.parent.parent
        changes = _changes_of(root, run.variation_id)
        return BranchPoint(run=run, changes=changes, scenario_folder=root / KEPT_SCENARIO)
    rows = [row for row in store.read.item(source) if row["runner"] == SCENARIO]
    if not rows:
        raise UsageError(f"there is no run {source}\nGive its folder, or the id that `proctor show` prints.")
    settings = json.loads(rows[0]["settings"])
    return BranchPoint(
        run=run_from_store(store.read, rows[0]),
        changes=settings.get("changes") or {},
        scenario_folder=Path(settings["scenario"]).parent / KEPT_SCENARIO,
    )


def branch_plan(
    point: BranchPoint, output: Path, *, turn: int, changes: dict[str, Any], seed: int | None = None
) -> ScenarioPlan:
    """The plan of one run that continues an earlier one after `turn`, with changes from then on."""
    if turn > len(point.run.turns):
        finished = plural(len(point.run.turns), "turn")
        raise UsageError(f"that run has finished {finished}, so it cannot branch at turn {turn}")
    run = point.run.until(turn)
    branch = {
        "turn": turn,
        "seed": run.seed if seed is None else seed,
        "of": f"{run.item_id}:{run.label}",
    }
    text = config_of(point.scenario_folder, output, point.changes | changes, branch=branch)
    experiment = read_experiment(text, path=output / CONFIG, working_folder=Path.cwd())
    items = list(experiment.items())
    # The original run has paid for these turns.
    turns = tuple(replace(turn, calls=()) for turn in run.turns)
    start = replace(run, item_id=items[0].id, label="var-001-run-001", turns=turns, status=HALTED)
    imported = ImportedRuns(items=items, runs={start.item_id: start}, source="branch", folder=output)
    return ScenarioPlan(experiment=experiment, imported=imported)


def _changes_of(root: Path, variation: int) -> dict[str, Any]:
    try:
        state = json.loads((root / STATE).read_text(encoding="utf-8"))
        (entry,) = [each for each in state["variations"] if each["variation_id"] == variation]
        changes = entry["modifications"]
        models = {f"actors.{short}.llm_model": model for short, model in changes["actor_models"].items()}
        return {**models, **changes["scenario_overrides"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{root} is not the folder of an experiment: {error}") from error


async def count_calls(scenario: Scenario, *, talkative: bool) -> list[ScenarioCall]:
    """The calls of one run with a mock model, in which actors talk whenever they may, or never."""
    models = ScenarioModels(_MockModel(talkative), lambda _: None, seed=0, at_once=1)
    simulation = ScenarioSimulation(scenario, models, seed=0, now=lambda: "")
    turns: list[ScenarioTurn] = []
    for _ in range(scenario.turns):
        turns.append(await simulation.turn(turns))
    return [call for turn in turns for call in turn.calls]


@dataclass(frozen=True, slots=True)
class _MockModel:
    """Answers every prompt with a text of typical length."""

    talkative: bool

    async def answer(self, request: Request) -> Answer:
        """An answer of the form that the prompt describes."""
        text = self._text(str(request.messages[-1]["content"]))
        characters = sum(len(str(message["content"])) for message in request.messages)
        usage = Usage(
            input_tokens=characters // CHARACTERS_PER_TOKEN + 1,
            output_tokens=len(text) // CHARACTERS_PER_TOKEN + 1,
        )
        return Answer(text=text, call=ModelCall(model=request.model, usage=usage))

    def _text(self, prompt: str) -> str:
        yes = "yes" if self.talkative else "no"
        if "INITIATE_BILATERAL:" in prompt:
            target = prompt.rpartition("Whom you can reach: ")[2].split(".")[0].split(",")[0]
            return f"INITIATE_BILATERAL: {yes}\nTARGET_ACTOR: {target}\nPROPOSED_MESSAGE: {_lorem(40)}"
        if "PROPOSE_COALITION:" in prompt:
            members = prompt.rpartition("Whom you can ask: ")[2].split(".")[0]
            return f"PROPOSE_COALITION: {yes}\nCOALITION_MEMBERS: {members}\nCOALITION_PURPOSE: {_lorem(20)}"
        if "UPDATED STATE:" in prompt:
            return (
                f"UPDATED STATE: {_lorem(WORLD_WORDS)}\nKEY CHANGES: {_lorem(30)}\nCONSEQUENCES: {_lorem(30)}"
            )
        if "VERDICT:" in prompt:
            return "VERDICT: pass\nISSUES:"
        if "DECISION: accept" in prompt:
            return f"DECISION: accept\nREASONING: {_lorem(30)}"
        if "Answer with the value alone" in prompt:
            return "5"
        return f"REASONING: {_lorem(60)}\nACTION: {_lorem(DECISION_WORDS - 60)}"


def _lorem(number: int) -> str:
    return " ".join(["ordinary"] * number)


async def estimates(
    experiment: Experiment, models: ModelRouter, earlier: list[list[PromptShare]]
) -> list[dict[str, Any]]:
    """For each variation: the fewest and most calls of one run, and the expectation from earlier runs."""
    rows = []
    for variation in experiment.variations:
        scenario = scenario_of(changed(experiment.loaded.plain, variation.changes))
        least, most = (
            await count_calls(scenario, talkative=False),
            await count_calls(scenario, talkative=True),
        )
        expected = _expected(scenario, most, earlier, models, experiment.runs_per_variation)
        rows.append(
            {
                "description": variation.description,
                **_counted(least, most, models),
                "from_earlier_runs": _document(expected) if expected else None,
            }
        )
    return rows


def summed_costs(rows: list[dict[str, Any]], runs: int) -> list[float] | None:
    """The cost of all runs, at least and at most; None when a price is unknown."""
    if any(row["cost_usd"] is None for row in rows):
        return None
    return [sum(row["cost_usd"][side] for row in rows) * runs for side in (0, 1)]


def summed_expectations(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The expectation for all runs of all variations; None when there are no earlier runs.

    Variations are estimated from the same earlier runs, so their errors are correlated: interval ends are
    added.
    """
    known = [row["from_earlier_runs"] for row in rows if row["from_earlier_runs"]]
    if len(known) < len(rows):
        return None
    total: dict[str, Any] = {"runs": max(one["runs"] for one in known)}
    for figure in ("calls", "tokens", "cost_usd"):
        parts = [one["all_runs"][figure] for one in known]
        total[figure] = {side: _added([part[side] for part in parts]) for side in ("mean", "low", "high")}
    return total | {"notes": list(dict.fromkeys(note for one in known for note in one["notes"]))}


def _expected(
    scenario: Scenario,
    calls: list[ScenarioCall],
    earlier: list[list[PromptShare]],
    models: ModelRouter,
    runs: int,
) -> Prediction | None:
    by_turn = [[call for call in calls if call.turn == turn + 1] for turn in range(scenario.turns)]

    def price(model: str, tokens_in: float, tokens_out: float) -> float | None:
        return _price_of(model, round(tokens_in), round(tokens_out), models)

    return predict(earlier, parts_of(by_turn), turns=scenario.turns, runs=runs, price=price)


def _document(prediction: Prediction) -> dict[str, Any]:
    def figures(values: Mapping[str, Predicted]) -> dict[str, Any]:
        return {
            name: {"mean": one.value, "low": one.low, "high": one.high, "n": one.sessions}
            for name, one in values.items()
        }

    return {
        "runs": prediction.runs,
        "a_run": figures(prediction.one),
        "all_runs": figures(prediction.everything),
        "notes": [assumption_note(role) for role in prediction.assumptions],
    }


def _counted(least: list[ScenarioCall], most: list[ScenarioCall], models: ModelRouter) -> dict[str, Any]:
    costs = [_priced(calls, models) for calls in (least, most)]
    return {
        "calls": [len(least), len(most)],
        "tokens": [sum(call.input_tokens + call.output_tokens for call in calls) for calls in (least, most)],
        "cost_usd": None if None in costs else costs,
    }


def _priced(calls: list[ScenarioCall], models: ModelRouter) -> float | None:
    total = 0.0
    for call in calls:
        cost = _price_of(call.model, call.input_tokens, call.output_tokens, models)
        if cost is None:
            return None
        total += cost
    return total


def _price_of(model: str, tokens_in: int, tokens_out: int, models: ModelRouter) -> float | None:
    if model.startswith(HUMAN):
        return 0.0
    try:
        price = models.route(model).price
    except ModelError as error:
        raise UsageError(str(error)) from error
    usage = Usage(input_tokens=tokens_in, output_tokens=tokens_out)
    return None if price is None else price.for_call(usage)[0]


def _added(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
