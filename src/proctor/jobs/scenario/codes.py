"""Codes by people: values of an experiment's `manual` metrics, kept in a CSV file of its folder.

A line has `run_id`, `metric`, `value`, and `who`. A run has the mean of its coders' numbers; of words and of
yes and no what most of them gave, and no value at a tie.
"""

import csv
import io
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from proctor.errors import UsageError
from proctor.formatting import figure, limits_text, plural
from proctor.json_values import JsonMap, as_list, as_map, as_number, as_text
from proctor.scenario.run_files import write_whole
from proctor.stats.agreement import Metric, alpha
from proctor.stats.intervals import Estimate

CODES = "human-codes.csv"
COLUMNS = ("run_id", "metric", "value", "who")
TRUTHS = {"1": 1.0, "yes": 1.0, "true": 1.0, "0": 0.0, "no": 0.0, "false": 0.0}
MOST_PROBLEMS = 20
"""Problems of a file that are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """What one person says of one run."""

    run_id: str
    metric: str
    value: str
    who: str
    kind: str = ""
    """The type that the run's scenario declares for the metric."""


def read_codes(folder: Path, path: Path) -> list[Code]:
    """The codes in a CSV file. Raises `UsageError` with every problem by line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: {error}") from error
    definitions, problems, codes = dict[str, Mapping[str, JsonMap]](), list[str](), list[Code]()
    for number, row in enumerate(rows, 2):
        code = Code(**{name: (row.get(name) or "").strip() for name in COLUMNS})
        if code.run_id not in definitions:
            definitions[code.run_id] = _definitions(folder, code.run_id)
        if problem := _problem(code, definitions[code.run_id]):
            problems.append(f"{path}:{number}: {problem}")
        kind = as_text(_definition(definitions[code.run_id], code.metric), "type")
        codes.append(replace(code, kind=kind))
    if problems:
        raise UsageError("\n".join(problems[:MOST_PROBLEMS]))
    return codes


def add_codes(folder: Path, path: Path) -> int:
    """Keep the codes of a file with the experiment; a coder's later code of a run replaces it."""
    added = read_codes(folder, path)
    kept = read_codes(folder, folder / CODES) if (folder / CODES).exists() else []
    latest = {(code.run_id, code.metric, code.who): code for code in (*kept, *added)}
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(asdict(code) for code in latest.values())
    write_whole(folder / CODES, text.getvalue())
    return len(added)


def coded_values(folder: Path) -> dict[str, dict[str, float | str]]:
    """The value of each coded run and metric, of the codes that are kept with an experiment."""
    if not (folder / CODES).exists():
        return {}
    given: dict[tuple[str, str], list[Code]] = defaultdict(list)
    for code in read_codes(folder, folder / CODES):
        given[code.run_id, code.metric].append(code)
    values: dict[str, dict[str, float | str]] = defaultdict(dict)
    for (run_id, metric), codes in given.items():
        value = _one_value(codes)
        if value is not None:
            values[run_id][metric] = value
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class CoderAgreement:
    """How far the coders of one metric agree."""

    coders: Sequence[str]
    alpha: Estimate
    """Krippendorff's, of the runs that several have coded: ordinal for whole numbers, of intervals for other
    numbers, nominal for the rest."""

    def __str__(self) -> str:
        coded = f"coded by {', '.join(self.coders)}"
        if not self.alpha.runs:
            return f"{coded}; no run by several"
        low, high = self.alpha.low, self.alpha.high
        limits = "" if low is None else f", 95% CI {limits_text(low, high)}"
        value = figure(self.alpha.value)
        runs = plural(self.alpha.runs, "run")
        note = f" {self.alpha.note}" if self.alpha.note else ""
        return f"{coded}; alpha {value}{limits} ({runs} coded by several).{note}"


def coder_agreement(folder: Path) -> dict[str, CoderAgreement]:
    """The agreement of the coders of each metric, of the codes that are kept with an experiment."""
    if not (folder / CODES).exists():
        return {}
    coders: dict[str, set[str]] = defaultdict(set)
    units: dict[str, dict[str, list[float | str]]] = defaultdict(lambda: defaultdict(list))
    for code in read_codes(folder, folder / CODES):
        coders[code.metric].add(code.who or "someone")
        units[code.metric][code.run_id].append(_typed(code))
    return {
        metric: CoderAgreement(
            coders=sorted(coders[metric]), alpha=alpha(list(by_run.values()), _metric_of(by_run.values()))
        )
        for metric, by_run in units.items()
    }


def _metric_of(units: Iterable[Sequence[float | str]]) -> Metric:
    values = {value for unit in units for value in unit}
    if any(isinstance(value, str) for value in values) or values <= {0.0, 1.0}:
        return "nominal"
    return "ordinal" if all(float(value).is_integer() for value in values) else "interval"


def _typed(code: Code) -> float | str:
    """The value of a code as its metric's type has it."""
    if code.kind == "boolean":
        return TRUTHS[code.value.casefold()]
    return code.value if code.kind == "string" else float(code.value)


def _one_value(codes: Sequence[Code]) -> float | str | None:
    """What several coders say together; None: a tie."""
    given = [_typed(code) for code in codes]
    if codes[0].kind not in ("boolean", "string"):
        return fmean(map(float, given))
    counts = Counter(given).most_common(2)
    return None if len(counts) > 1 and counts[0][1] == counts[1][1] else counts[0][0]


def _definitions(folder: Path, run_id: str) -> Mapping[str, JsonMap]:
    """The metrics that a run's scenario declares; empty: there is no such run."""
    if not run_id or Path(run_id).name != run_id:
        return {}
    try:
        document = json.loads((folder / "runs" / run_id / "metrics.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: as_map(rule) for name, rule in as_map(as_map(document), "metrics_definitions").items()}


def _definition(definitions: Mapping[str, JsonMap], metric: str) -> JsonMap:
    """The definition of a metric, which may have its actor behind a dot."""
    return definitions.get(metric) or definitions.get(metric.rpartition(".")[0]) or {}


def _problem(code: Code, definitions: Mapping[str, JsonMap]) -> str:
    """Why a code cannot be used; empty: it can."""
    if not definitions:
        return f"there is no run `{code.run_id}` with metrics"
    rule = _definition(definitions, code.metric)
    if rule.get("method") != "manual":
        manual = [name for name, each in definitions.items() if each.get("method") == "manual"]
        return f"`{code.metric}` is no manual metric; there are: {', '.join(manual) or 'none'}"
    match as_text(rule, "type"):
        case "string":
            return "" if code.value else "the value is empty"
        case "boolean":
            return "" if code.value.casefold() in TRUTHS else f"`{code.value}` is neither yes nor no"
    try:
        value = float(code.value)
    except ValueError:
        return f"`{code.value}` is no number"
    limits = [limit for each in as_list(rule, "range") if (limit := as_number(each)) is not None]
    if not math.isfinite(value) or (len(limits) == 2 and not limits[0] <= value <= limits[1]):
        return f"{code.value} is out of the range of `{code.metric}`"
    return ""
