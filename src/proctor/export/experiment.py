"""The files of an experiment's folder, written from the store: state, summary, costs, runs.

    batch-config.yaml  batch-state.json  batch-summary.json  batch-costs.json  base-scenario/  runs/var-…/

They can be written again at any time and then say what the store says. Each is whole or not there.

Knows nothing of how runs are played or analysed.
"""

import json
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from proctor.batch.experiment import run_from_store
from proctor.errors import UsageError
from proctor.item import FAIL, FINISHED, QUEUED, RUNNING, SUCCESS
from proctor.plan.experiment import KEPT_SCENARIO, STAND_INS, STATE
from proctor.scenario.changes import changed
from proctor.scenario.definition import scenario_of
from proctor.scenario.documents import as_json
from proctor.scenario.folder import STATE as RUN_STATE
from proctor.scenario.folder import read_run, write_run, write_whole
from proctor.store import Store, item_of
from proctor.store.batches import moment

CONFIG, SUMMARY, COSTS = "batch-config.yaml", "batch-summary.json", "batch-costs.json"
_COLUMNS = (
    *("id", "status", "reason", "error", "settings", "factors", "model", "costUsd", "sessionId"),
    *("startedAt", "finishedAt"),
)
MOST_COPIED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ExperimentFolder:
    """The folder of one experiment."""

    store: Store
    run_id: str
    path: Path

    def prepare(self, scenario_folder: Path, earlier_config: str = "") -> None:
        """Put in place what the runs need: the config, the scenario as written, and as it is played."""
        batch = self._batch()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._keep_config(batch["planText"], earlier_config)
            self._keep_scenario(scenario_folder)
            plain = json.loads(batch["optionsJson"])["scenario"]
            write_whole(self.path / f"{KEPT_SCENARIO}.json", as_json(plain))
        except OSError as error:
            raise UsageError(
                f"cannot write to {self.path}: {error.strerror}\nName another output_dir."
            ) from error

    def bring_up_to_date(self) -> int:
        """Bring the runs' folders to what the store knows of them; how many had to be written."""
        options = json.loads(self._batch()["optionsJson"])
        wrong = [row["id"] for row in self._items() if row["sessionId"] and not self._agrees(row)]
        for item_id in wrong:
            row = self._item(item_id)
            item = item_of(row)
            scenario = scenario_of(changed(options["scenario"], item.settings.get("changes") or {}))
            whole = bool(item.settings.get("saveIndividualRuns", True))
            write_run(
                self._folder_of(item.settings), scenario, run_from_store(self.store.read, row), whole=whole
            )
        return len(wrong)

    def write(self, now: datetime) -> None:
        """Write state, summary and costs as the store has them now."""
        batch, rows = self._batch(), self._items()
        options = json.loads(batch["optionsJson"])
        facts = _Facts(batch, options, rows, now)
        write_whole(self.path / STATE, as_json(facts.state()))
        write_whole(self.path / COSTS, as_json(facts.costs()))
        write_whole(self.path / SUMMARY, as_json(facts.summary()))

    def _agrees(self, row: Mapping[str, Any]) -> bool:
        folder = self._folder_of(json.loads(row["settings"]))
        if row["status"] == SUCCESS:
            # It was written before the store was told; that it is there is enough.
            return (folder / RUN_STATE).is_file()
        found = read_run(folder)
        if found is None or found.item_id != row["id"]:
            return False
        known = run_from_store(self.store.read, self._item(row["id"]))
        same_turns = [t.number for t in found.turns] == [t.number for t in known.turns]
        return same_turns and (found.status, found.reason) == (known.status, known.reason)

    def _folder_of(self, settings: Mapping[str, Any]) -> Path:
        # By its label, not by the path it was once written to: the experiment may have been moved.
        return self.path / "runs" / str(settings["label"])

    def _keep_config(self, text: str, earlier: str) -> None:
        kept = self.path / CONFIG
        before = earlier or (kept.read_text(encoding="utf-8") if kept.is_file() else "")
        if before and before != text:
            number = 1
            while (self.path / f"batch-config.{number}.yaml").exists():
                number += 1
            write_whole(self.path / f"batch-config.{number}.yaml", before)
        if not kept.is_file() or kept.read_text(encoding="utf-8") != text:
            write_whole(kept, text)

    def _keep_scenario(self, folder: Path) -> None:
        kept = self.path / KEPT_SCENARIO
        if folder.resolve() == kept.resolve():
            return
        fresh = self.path / f".{KEPT_SCENARIO}"
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(folder, fresh, ignore=_left_out(self.path))
        shutil.rmtree(kept, ignore_errors=True)
        fresh.rename(kept)

    def _batch(self) -> dict[str, Any]:
        (row,) = self.store.read.query('SELECT * FROM "batches" WHERE "runId" = ?', (self.run_id,))
        return row

    def _items(self) -> list[dict[str, Any]]:
        # Without what they ask for, which is most of a row: there may be many.
        columns = ", ".join(f'"{name}"' for name in _COLUMNS)
        return self.store.read.query(
            f'SELECT {columns} FROM "batch_items" WHERE "runId" = ? ORDER BY "position"', (self.run_id,)
        )

    def _item(self, item_id: str) -> dict[str, Any]:
        (row,) = self.store.read.query(
            'SELECT * FROM "batch_items" WHERE "runId" = ? AND "id" = ?', (self.run_id, item_id)
        )
        return row


class _Facts:
    """What the files say, computed once from the rows."""

    def __init__(
        self,
        batch: Mapping[str, Any],
        options: Mapping[str, Any],
        rows: Sequence[dict[str, Any]],
        now: datetime,
    ) -> None:
        self._batch, self._options = batch, options
        self._rows = [
            row | {"opened": json.loads(row["settings"])} for row in rows if row["reason"] != "removed"
        ]
        began = moment(batch["createdAt"])
        ended = moment(batch["finishedAt"]) or now
        self._seconds = round((ended - began).total_seconds(), 3) if began else None

    def state(self) -> dict[str, Any]:
        batch = self._batch
        return {
            "experiment_name": self._options["experiment"],
            "run_id": batch["runId"],
            "status": batch["status"],
            "reason": batch["reason"],
            "config_path": batch["planPath"],
            "runs_per_variation": self._options["runsPerVariation"],
            "seed": batch["seed"],
            "completed_runs": [row["opened"]["label"] for row in self._rows if row["status"] == SUCCESS],
            "failed_runs": self._failed(),
            "pending_runs": [
                row["opened"]["label"] for row in self._rows if row["status"] in (QUEUED, RUNNING)
            ],
            "variations": self._variations(),
            "start_time": batch["createdAt"],
            "end_time": batch["finishedAt"],
        }

    def summary(self) -> dict[str, Any]:
        completed = sum(row["status"] == SUCCESS for row in self._rows)
        return {
            "experiment_name": self._options["experiment"],
            "description": self._options.get("description", ""),
            "run_id": self._batch["runId"],
            "status": self._batch["status"],
            "reason": self._batch["reason"],
            "base_scenario": self._options["baseScenario"],
            "total_variations": len(self._variations()),
            "runs_per_variation": self._options["runsPerVariation"],
            "total_runs_planned": len(self._rows),
            "runs_completed": completed,
            "runs_failed": len(self._failed()),
            "runs_pending": sum(row["status"] in (QUEUED, RUNNING) for row in self._rows),
            "duration_seconds": self._seconds,
            "cost_summary": self._cost_summary(),
            "failed_runs": self._failed(),
            "stand_ins": self._stand_ins(),
        }

    def costs(self) -> dict[str, Any]:
        by_variation: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in self._rows:
            if row["startedAt"]:
                by_variation[row["opened"]["variationId"]].append(row)
        return {
            "summary": self._cost_summary(),
            "run_costs": [
                {
                    "run_id": row["opened"]["label"],
                    "variation_id": row["opened"]["variationId"],
                    "cost": row["costUsd"],
                    "success": row["status"] == SUCCESS,
                    "timestamp": row["finishedAt"],
                }
                for row in self._rows
                if row["startedAt"]
            ],
            "variation_statistics": {
                str(number): {
                    "total_cost": _total(rows),
                    "num_runs": len(rows),
                    "successful_runs": sum(row["status"] == SUCCESS for row in rows),
                    "avg_cost_per_run": _mean(rows),
                }
                for number, rows in sorted(by_variation.items())
            },
        }

    def _cost_summary(self) -> dict[str, Any]:
        batch, spent = self._batch, _total(self._rows)
        limit = batch["budgetUsd"]
        done = [row for row in self._rows if row["status"] in FINISHED]
        return {
            "total_spent": spent,
            "budget_limit": limit,
            "cost_per_run_limit": self._options.get("costPerRunUsd"),
            "remaining_budget": None if limit is None else max(0.0, limit - (spent or 0.0)),
            "runs_completed": sum(row["status"] == SUCCESS for row in self._rows),
            "runs_failed": len(self._failed()),
            "runs_budget_exceeded": sum(row["reason"] in ("cost_limit", "halted") for row in self._rows),
            "avg_cost_per_run": _mean(done),
            "duration_seconds": self._seconds,
            "start_time": batch["createdAt"],
            "end_time": batch["finishedAt"],
        }

    def _stand_ins(self) -> list[str]:
        models = {model for row in self._rows for model in row["model"].split(", ")}
        return sorted(model for model in models if model.startswith(STAND_INS))

    def _failed(self) -> list[dict[str, Any]]:
        return [
            {
                "run_id": row["opened"]["label"],
                "error": row["error"],
                "status": "cost_limit_exceeded" if row["reason"] == "cost_limit" else _word(row["status"]),
                "reason": row["reason"],
            }
            for row in self._rows
            if row["status"] in FINISHED and row["status"] != SUCCESS
        ]

    def _variations(self) -> list[dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        for row in self._rows:
            opened = row["opened"]
            changes = opened.get("changes") or {}
            found.setdefault(
                opened["variationId"],
                {
                    "variation_id": opened["variationId"],
                    "description": opened["variation"],
                    "modifications": {
                        "actor_models": {
                            path.split(".")[1]: value
                            for path, value in changes.items()
                            if path.startswith("actors.") and path.endswith(".llm_model")
                        },
                        "scenario_overrides": {
                            path: value for path, value in changes.items() if not path.endswith(".llm_model")
                        },
                    },
                    "factors": {k: v for k, v in json.loads(row["factors"]).items() if k != "variation"},
                },
            )
        return [found[number] for number in sorted(found)]


def _word(status: str) -> str:
    return "failed" if status == FAIL else status


def _total(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """None: something was spent, and nobody knows how much."""
    costs = [row["costUsd"] for row in rows if row["costUsd"] is not None]
    return sum(costs) if costs or not any(row["startedAt"] for row in rows) else None


def _mean(rows: Sequence[Mapping[str, Any]]) -> float | None:
    costs = [row["costUsd"] for row in rows if row["costUsd"] is not None]
    return sum(costs) / len(costs) if costs else None


def _left_out(output: Path) -> Any:
    """What is not copied with a scenario: the experiment itself, links, hidden and huge files."""

    def ignored(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if _is_left_out(Path(folder) / name, output)]

    return ignored


def _is_left_out(path: Path, output: Path) -> bool:
    if path.name.startswith((".", "__pycache__")) or path.is_symlink():
        return True
    if path.is_dir():
        return path.resolve() == output.resolve() or output.resolve().is_relative_to(path.resolve())
    return path.stat().st_size > MOST_COPIED_BYTES
