"""Finished items of the store as columns: the `Results` of runs, of a scope, or of a run's first rows."""

import hashlib
import json
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import cast

import numpy as np

from proctor.errors import UsageError
from proctor.formatting import elapsed
from proctor.item import ERROR, EVALUATION, FINISHED, SCENARIO, SUCCESS, UNCHECKED
from proctor.json_values import (
    as_list,
    as_map,
    as_number,
    as_text,
    as_whole_number,
    changed,
    json_object,
    maps_in,
)
from proctor.metric import MEASURE, METRICS, score_name
from proctor.stats.results import (
    AGENT_VERSION,
    SERVED_MODEL,
    SHOWN_REST,
    Floats,
    Inputs,
    Ints,
    Labels,
    OtherModel,
    Results,
    ServedModel,
    versioned,
)
from proctor.store import Scope, StoreReader
from proctor.store.aggregates import select
from proctor.store.batches import moment
from proctor.store.item_lists import sessions_at
from proctor.store.items import item_settings, time_limit, unfinished_count
from proctor.store.results import (
    InputColumns,
    ResultColumns,
    ScoreColumns,
    ScoredSessions,
    TimedScoreColumns,
    evaluator_source,
    first_columns,
    first_positions,
    has_evaluations,
    has_metrics,
    metric_columns,
    metric_values,
    of_runs,
    of_selection,
    own_score_columns,
    result_columns,
    selected_columns,
    timed_score_columns,
    without_digest,
)
from proctor.store.tables import IMPORTED

LONGEST_LABEL = 400
SHORTEST_CUT, LONGEST_REST = 80, 160
"""Characters from which on a task's name may be the beginning of its prompt, and of the rest that is read."""
INPUT_PATHS = ("runner", "agent", "model", "prompt")
"""Inputs that every item has."""
PROMPT_PATH = INPUT_PATHS.index("prompt")
CACHED_INPUTS = 20_000
FIRST_ROWS, LEAST_FIRST_ROWS = 4_000, 100
"""Rows of a first look at a large run, and of each agent and model in it."""
_STATUS_CODES = {status: code for code, status in enumerate(FINISHED)}

_NOBODY = (None, "", "{}")
"""Texts of `servedModels` when no provider has said who answered."""


class InputReader:
    """Collects the inputs of items as digests; texts are not kept."""

    def __init__(self) -> None:
        self._paths: dict[str, int] = {}
        self._rows = array("q")
        """The line of each item."""
        self._lines: list[array[int]] = []
        """Digests by the number of their path; 0: there is none."""
        self._line_of: dict[str, int] = {}
        self._digests: dict[str, int] = {}
        self._templates: dict[tuple[str, str, str, str], array[int]] = {}
        """Lines without the digest of the prompt, by runner, agent, model and details."""

    def add(self, rows: InputColumns) -> None:
        """The next items: the inputs that every item has, and the others in its details."""
        known = self._line_of
        lines = list(map(known.get, rows["digest"]))
        for at, line in enumerate(lines):
            if line is not None:
                continue
            digest = rows["digest"][at]
            # An earlier row of this page may have been the first with these inputs.
            line = known.get(digest)
            if line is None:
                line = len(self._lines)
                self._lines.append(self._line(rows, at))
                if len(known) >= CACHED_INPUTS:
                    known.clear()
                known[digest] = line
            lines[at] = line
        self._rows.extend(cast("list[int]", lines))

    def _line(self, rows: InputColumns, at: int) -> "array[int]":
        key = rows["runner"][at], rows["agent"][at], rows["model"][at], rows["details"][at]
        template = self._templates.get(key)
        if template is None:
            template = self._template(*key)
            if len(key[3]) <= LONGEST_LABEL and len(self._templates) < CACHED_INPUTS:
                self._templates[key] = template
        line = template[:]
        # Details of the same name win, as they do in the item's digest.
        if not line[PROMPT_PATH]:
            line[PROMPT_PATH] = self._digest(rows["prompt"][at])
        return line

    def _template(self, runner: str, agent: str, model: str, details: str) -> "array[int]":
        # That of the prompt is added to each line.
        values = (self._digest(runner), self._digest(agent), self._digest(model), 0)
        digests = dict(zip(INPUT_PATHS, values, strict=True))
        if details != "{}":
            digests |= {path: self._digest(value) for path, value in _flat("", json.loads(details)) if path}
        numbers = [self._paths.setdefault(path, len(self._paths)) for path in digests]
        template = array("Q", bytes(8 * len(self._paths)))
        for number, digest in zip(numbers, digests.values(), strict=True):
            template[number] = digest
        return template

    def inputs(self) -> Inputs:
        """All of them."""
        # Lines from before a path was known are shorter.
        width = 8 * len(self._paths)
        joined = b"".join(line.tobytes().ljust(width, b"\0") for line in self._lines)
        lines = np.frombuffer(joined, dtype=np.uint64).reshape(len(self._lines), len(self._paths))
        return Inputs(lines[np.asarray(self._rows, dtype=np.int64)], tuple(self._paths))

    def _digest(self, value: object) -> int:
        """A 64-bit digest of an input, never 0."""
        text = "s" + value if isinstance(value, str) else f"j{json.dumps(value, sort_keys=True)}"
        digest = self._digests.get(text)
        if digest is None:
            digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) or 1
            if len(text) <= LONGEST_LABEL and len(self._digests) < CACHED_INPUTS:
                self._digests[text] = digest
        return digest


def load_results(
    read: StoreReader, runs: Sequence[str], now: datetime, progress: Callable[[int], None] | None = None
) -> Results:
    """The finished items of runs of any job, in the order of the runs."""
    return load_from([(read, run) for run in runs], now, progress)


def load_from(
    sources: Sequence[tuple[StoreReader, str]], now: datetime, progress: Callable[[int], None] | None = None
) -> Results:
    """The finished items of runs in several stores, in the order of the runs.

    `progress` is called with the number of each page's items; what it raises ends the loading.
    """
    named = [(read, read.batch(run, now)["runId"]) for read, run in sources]
    ids = [run_id for _, run_id in named]
    if len(set(ids)) < len(ids):
        raise UsageError(
            "a run cannot be compared with itself\nName each run once; --by compares parts of one run."
        )
    reader = _Reader()
    for read, run_id in named:
        reader.unfinished[run_id] = unfinished_count(read, run_id)
        reader.time_limits.append(time_limit(read, run_id))
        for page in result_columns(read, [run_id]):
            reader.add([page])
            if progress:
                progress(len(page["id"]))
    for read in {id(read): read for read, _ in named}.values():
        of_store = [run_id for other, run_id in named if other is read]
        reader.add_scores(read, of_runs(of_store))
        reader.add_metric_scales(read, of_store)
    return reader.results(ids)


def load_first_results(read: StoreReader, run_id: str) -> Results:
    """The first finished items of each agent and model of a run, without scores: for a first look at a large
    run while all of it is loaded. Cells are complete where repeats follow each other in the plan."""
    reader = _Reader()
    reader.time_limits.append(time_limit(read, run_id))
    starts = first_positions(read, run_id)
    limit = max(LEAST_FIRST_ROWS, FIRST_ROWS // max(1, len(starts)))
    for start in starts:
        pages = list(first_columns(read, run_id, start, limit))
        rows = sum(len(page["id"]) for page in pages)
        # The last task may have more repeats than were read.
        last = pages[-1]["digest"][-1] if rows == limit else ""
        reader.add(without_digest(page, last) for page in pages if set(page["digest"]) != {last})
    return reader.results([run_id])


def load_scope(read: StoreReader, scope: Scope, now: datetime) -> Results:
    """The finished items of a scope, and its finished sessions of no run, which have the run `""`."""
    if scope.run_id:
        return load_results(read, [scope.run_id], now)
    reader = _Reader()
    selection = select(read, scope)
    reader.add(selected_columns(selection))
    reader.add_scores(read, of_selection(selection))
    reader.add_metric_scales(read, reader.run_ids())
    return reader.results(reader.run_ids())


class _Codes:
    """A column of texts as codes, in the order of their first appearance."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.codes = array("q")

    def extend(self, texts: Sequence[str]) -> list[str]:
        """Add the texts of the next rows; return those that are new."""
        known = self.known
        new = [text for text in dict.fromkeys(texts) if text not in known]
        for text in new:
            known[text] = len(known)
        self.codes.extend(map(known.__getitem__, texts))
        return new


_Version = tuple[str, str, str]
"""Name of an evaluator, its digest, and the dimension of a score."""


class _Scores:
    """Collects scores of rows, and computes their means."""

    def __init__(self) -> None:
        self._codes: dict[_Version, int] = {}
        self._version = array("q")
        self._at: list[Ints] = []
        self._values: list[Floats] = []
        self._judging: list[str] = []
        self._times: list[str | None] = []

    def add(self, page: ScoreColumns, at: Ints) -> dict[_Version, int]:
        """The next scores and their rows, -1: none; returns new versions with their places in the page."""
        codes, new = self._codes, dict[_Version, int]()
        columns = page["evaluator"], page["evaluatorDigest"], page["dimension"]
        for version in set(zip(*columns, strict=True)) - codes.keys():
            new[version] = list(zip(*columns, strict=True)).index(version)
        for version in sorted(new, key=new.__getitem__):
            codes[version] = len(codes)
        self._version.extend(map(codes.__getitem__, zip(*columns, strict=True)))
        self._at.append(at)
        self._values.append(np.asarray(page["value"], dtype=np.float64))
        return new

    def add_timed(self, page: TimedScoreColumns, at: Ints) -> dict[_Version, int]:
        """The same with times, which decide between several evaluations."""
        self._judging += page["judgingSessionId"]
        self._times += page["timestamp"]
        return self.add(page, at)

    def means(self) -> Iterator[tuple[_Version, Ints, Floats]] | None:
        """The rows that each evaluator scored, with their mean scores; of several for one row and name, the
        one that counts. None: that cannot be decided without times."""
        if not self._values:
            return iter(())
        at, version = np.concatenate(self._at), _integers(self._version)
        by_name: dict[tuple[str, str], list[_Version]] = {}
        for known in self._codes:
            by_name.setdefault((known[0], known[2]), []).append(known)
        chosen = {
            name: np.flatnonzero((at >= 0) & np.isin(version, [self._codes[each] for each in versions]))
            for name, versions in by_name.items()
        }
        several = {name for name, places in chosen.items() if np.bincount(at[places], minlength=1).max() > 1}
        width = len(self._codes)
        if not self._times and any(
            # Some row has scores of several versions.
            len(np.unique(at[chosen[name]]))
            < len(np.unique(at[chosen[name]] * width + version[chosen[name]]))
            for name in several
        ):
            return None
        return self._means(by_name, chosen, several, at, version)

    def _means(
        self,
        by_name: Mapping[tuple[str, str], Sequence[_Version]],
        chosen: Mapping[tuple[str, str], Ints],
        several: Collection[tuple[str, str]],
        at: Ints,
        version: Ints,
    ) -> Iterator[tuple[_Version, Ints, Floats]]:
        values = np.concatenate(self._values)
        for name, versions in by_name.items():
            if name in several and self._times:
                yield from self._means_of_several(chosen[name], at, values)
                continue
            for key in versions:
                own = chosen[name][version[chosen[name]] == self._codes[key]]
                rows, numbers = at[own], values[own]
                if name in several and len(own):
                    counts = np.bincount(rows)
                    sums = np.bincount(rows, weights=numbers)
                    rows = np.flatnonzero(counts)
                    numbers = sums[rows] / counts[rows]
                yield key, rows, numbers

    def _means_of_several(
        self, chosen: Ints, at: Ints, values: Floats
    ) -> Iterator[tuple[_Version, Ints, Floats]]:
        """The same where rows have several scores: each evaluation's are averaged, the last one counts."""
        names = list(self._codes)
        groups: dict[tuple[int, int, str], list[int]] = {}
        for index, row in zip(chosen.tolist(), at[chosen].tolist(), strict=True):
            groups.setdefault((row, self._version[index], self._judging[index]), []).append(index)
        means = [
            (max(self._times[place] or "" for place in places), row, code, values[places].mean())
            for (row, code, _), places in groups.items()
        ]
        last: dict[int, tuple[int, float]] = {}
        for _, row, code, mean in sorted(means, key=lambda mean: mean[0]):
            last[row] = code, mean
        for code in dict.fromkeys(code for code, _ in last.values()):
            own = {row: mean for row, (of, mean) in last.items() if of == code}
            yield names[code], np.asarray(list(own)), np.asarray(list(own.values()))


class _Reader:
    """Collects rows as columns; texts of inputs are kept as digests, so memory grows with numbers only."""

    def __init__(self) -> None:
        self._keys: dict[str, list[Sequence[object]]] = {}
        """What scores name rows by, by run, in pages."""
        self._starts: dict[str, int] = {}
        """The first row of each run."""
        self._metrics: dict[str, Floats] = {}
        self._evaluators: dict[str, tuple[Ints, dict[str, int]]] = {}
        """By metric: the code of the digest of each row's evaluator, and the codes of digests."""
        self._scales: dict[str, set[tuple[float, float] | None]] = {}
        self.unfinished: dict[str, int] = {}
        self.time_limits: list[float | None] = []
        """Of the runs whose limits were read."""
        self._imported: set[str] = set()
        self._simulated: set[str] = set()
        self._runs = _Codes()
        self._ids: list[str] = []
        self._labels: list[str] = []
        self._status = array("b")
        self._reasons = _Codes()
        self._repeat = array("q")
        self._figures: list[Floats] = []
        """One array for each page, with a row for each figure."""
        self._evaluations = array("b")
        self._stand_ins: dict[str, None] = {}
        self._answered: dict[tuple[str, str], int] = {}
        self._served: dict[str, dict[str, int]] = {}
        """By requested model, the calls that each model answered."""
        self._versions: dict[str, set[str]] = {}
        """Versions of each agent."""
        self._levels: dict[str, dict[str, int]] = {}
        self._level_codes: dict[str, array[int]] = {}
        """By factor: the code of its level in each text of `_factors`, -1: none. May end early."""
        self._inputs = InputReader()
        self._factors = _Codes()
        self._task_names: list[str] = []
        """The name of the task in each text of `_factors`; empty: it has none."""
        self._has_cut_names = False
        self._rests: list[str] = []
        """As `Results.rests`; may end early."""
        self._known_rests: dict[str, str] = {}

    def add(self, pages: Iterable[ResultColumns]) -> None:
        """Add rows, a page at a time: a list of one column takes less than a call for each row."""
        for page in pages:
            self._add_page(page)

    def _add_page(self, page: ResultColumns) -> None:
        run_ids, runners = page["runId"], page["runner"]
        has_more = any(page["answeredModel"]) or any(page["agentVersion"])
        has_more = has_more or any(text not in _NOBODY for text in set(page["servedModels"]))
        factors = self._factors_of(page) if has_more else page["factors"]
        self._read_factors(self._factors.extend(factors))
        names = self._task_names
        self._labels += [
            # The same object for all rows of a task with a name.
            names[code] or prompt[:LONGEST_LABEL]
            for code, prompt in zip(self._factors.codes[len(self._ids) :], page["prompt"], strict=True)
        ]
        if self._has_cut_names:
            self._read_rests(page["prompt"])
        for run_id in self._runs.extend(run_ids):
            self._starts[run_id] = len(self._ids)
        # Keys of several runs are sessions, which are looked up in all of them.
        self._keys.setdefault(run_ids[0], []).append(page["key"])
        self._ids += page["id"]
        self._status.extend(map(_STATUS_CODES.__getitem__, page["status"]))
        self._reasons.extend(page["reason"])
        self._repeat.extend(page["repeat"])
        # The items of a run mostly have one runner.
        is_one_run = run_ids[0] == run_ids[-1]
        kinds = (
            {(run_ids[0], each) for each in set(runners)}
            if is_one_run
            else set(zip(run_ids, runners, strict=True))
        )
        self._imported.update(run_id for run_id, runner in kinds if runner == IMPORTED)
        self._simulated.update(run_id for run_id, runner in kinds if runner == SCENARIO)
        is_judging = any(runner == EVALUATION for _, runner in kinds)
        self._evaluations.extend(
            [runner == EVALUATION for runner in runners] if is_judging else bytes(len(runners))
        )
        self._figures.append(_figures(page))
        self._inputs.add(page)
        if any(page["isMock"]):
            stand_ins = zip(page["isMock"], page["model"], page["agent"], strict=True)
            self._stand_ins |= dict.fromkeys(model or agent for is_one, model, agent in stand_ins if is_one)

    def _read_rests(self, prompts: Sequence[str]) -> None:
        """What follows in the prompts of the last rows whose labels are their beginnings."""
        self._rests += [""] * (len(self._labels) - len(prompts) - len(self._rests))
        for label, prompt in zip(self._labels[len(self._rests) :], prompts, strict=True):
            rest = ""
            if len(label) >= SHORTEST_CUT and (text := prompt.lstrip()).startswith(label):
                rest = " ".join(text[len(label) : len(label) + LONGEST_LABEL].split("\n"))
                if len(text) > len(label) + LONGEST_REST:
                    rest = f"{rest[: LONGEST_REST - SHOWN_REST]} … {text[-SHOWN_REST:]}"
            self._rests.append(self._known_rests.setdefault(rest, rest))

    def _factors_of(self, page: ResultColumns) -> list[str]:
        """The factors of rows; the level of the model is the one that answered, not the requested one."""
        factors, more = list[str](), dict[tuple[str, ...], str]()
        for text, served, model, answered, agent, version in zip(
            page["factors"],
            page["servedModels"],
            page["model"],
            page["answeredModel"],
            page["agent"],
            page["agentVersion"],
            strict=True,
        ):
            if answered:
                other = model or "default", answered
                self._answered[other] = self._answered.get(other, 0) + 1
            served_by = "" if served in _NOBODY else self._served_by(served)
            key = text, served_by, answered or "", agent, version or ""
            if key not in more:
                own = {"model": answered} if answered else {}
                if version:
                    self._versions.setdefault(agent, set()).add(version)
                    own[AGENT_VERSION] = versioned(agent, version)
                if served_by:
                    own[SERVED_MODEL] = served_by
                more[key] = json.dumps({**json.loads(text), **own}) if own else text
            factors.append(more[key])
        return factors

    def _served_by(self, text: str | None) -> str:
        """The models that answered the calls of an item, which are counted."""
        names = set[str]()
        for requested, counts in (json_object(text or "") or {}).items():
            known = self._served.setdefault(requested, {})
            for name in as_map(counts):
                known[name] = known.get(name, 0) + as_whole_number(counts, name)
                names.add(name)
        return ", ".join(sorted(names))

    def _read_factors(self, texts: Sequence[str]) -> None:
        """New texts of factors: the codes of their levels, and the name of the task, if there is one."""
        # Many texts at once take a third of the time.
        opened: Sequence[Mapping[str, object]] = json.loads(f"[{','.join(texts)}]")
        for factors in opened:
            number = len(self._task_names)
            for name, value in factors.items():
                level = value if isinstance(value, str) else json.dumps(value)
                if name not in self._levels:
                    self._levels[name], self._level_codes[name] = {}, array("q")
                known, codes = self._levels[name], self._level_codes[name]
                if len(codes) < number:
                    codes.extend([-1] * (number - len(codes)))
                codes.append(known.setdefault(level, len(known)))
            task = factors.get("scenario") or factors.get("task") or ""
            task_name = (task if isinstance(task, str) else json.dumps(task))[:LONGEST_LABEL]
            self._task_names.append(task_name)
            self._has_cut_names = self._has_cut_names or len(task_name) >= SHORTEST_CUT

    def add_scores(self, read: StoreReader, sources: Sequence[ScoredSessions]) -> None:
        """The scores and the last value of each number measured in sessions, and the evaluators' scales.

        Call it when all rows are there. Of several evaluations the last one counts; a session's own scores
        count before them.
        """
        rows_of = {source: self._row_finder(source) for source in sources}
        versions = dict[_Version, str]()
        if has_evaluations(read):
            scores = _Scores()
            versions |= _read_timed(read, scores, rows_of, of_evaluations=True)
            self._put_scores(scores.means())
        scores, own = _Scores(), dict[_Version, str]()
        for source, rows in rows_of.items():
            for page in own_score_columns(read, source):
                for version, index in scores.add(page, rows(page["key"])).items():
                    own[version] = _session_of(read, source, page["key"][index])
        means = scores.means()
        if means is None:
            scores = _Scores()
            _read_timed(read, scores, rows_of, of_evaluations=False)
            means = scores.means()
        self._put_scores(means)
        for (evaluator, _, dimension), judging_session in (own | versions).items():
            scale = _declared_scale(read, evaluator, dimension, judging_session)
            self._scales.setdefault(score_name(evaluator, dimension), set()).add(scale)
        for source, rows in rows_of.items() if has_metrics(read) else ():
            for measured in metric_columns(read, source):
                places = rows(measured["key"])
                names, values = np.asarray(measured["name"]), np.asarray(measured["value"], dtype=np.float64)
                for name in dict.fromkeys(measured["name"]):
                    chosen = (names == name) & (places >= 0)
                    # Of several values in one session the last is assigned last.
                    self._column(MEASURE + name)[places[chosen]] = values[chosen]

    def _put_scores(self, means: "Iterable[tuple[_Version, Ints, Floats]] | None") -> None:
        for version, at, values in means or ():
            name = score_name(version[0], version[2])
            self._column(name)[at] = values
            codes, digests = self._evaluators.setdefault(name, (np.full(len(self._ids), -1), {}))
            codes[at] = digests.setdefault(version[1], len(digests))

    def _row_finder(self, source: ScoredSessions) -> "Callable[[Sequence[object]], Ints]":
        """Finds the rows of the keys of a source; -1: none."""
        if not source.run_id:
            keys = chain.from_iterable(chain.from_iterable(self._keys.values()))
            rows = {key: at for at, key in enumerate(keys) if key}
            return lambda keys: np.asarray([rows.get(key, -1) for key in keys], dtype=np.int64)
        start, pages = self._starts.get(source.run_id, 0), self._keys.get(source.run_id, [])
        # In the order of the plan.
        positions = np.fromiter(chain.from_iterable(pages), dtype=np.int64)

        def find(keys: Sequence[object]) -> Ints:
            sought = np.asarray(keys, dtype=np.int64)
            if not len(positions):
                return np.full(len(sought), -1, dtype=np.int64)
            places = np.minimum(np.searchsorted(positions, sought), len(positions) - 1)
            return np.asarray(np.where(positions[places] == sought, places + start, -1), dtype=np.int64)

        return find

    def _column(self, metric: str) -> Floats:
        """The values of a metric, NaN where nothing is known."""
        if metric not in self._metrics:
            self._metrics[metric] = np.full(len(self._ids), np.nan)
        return self._metrics[metric]

    def add_metric_scales(self, read: StoreReader, run_ids: Sequence[str]) -> None:
        """The ranges that the scenarios of runs declare for their metrics."""
        names = [name.removeprefix(MEASURE) for name in self._metrics if name.startswith(MEASURE)]
        for run_id in run_ids:
            if not names or run_id not in self._simulated:
                continue
            for metrics in _scenario_metrics(read, run_id):
                for name in names:
                    # Metrics of actors have the actor behind a dot.
                    if rule := as_map(metrics, name) or as_map(metrics, name.rpartition(".")[0]):
                        self._scales.setdefault(MEASURE + name, set()).add(_range_of(rule))

    def run_ids(self) -> list[str]:
        """The runs that were added, in order of appearance."""
        return list(self._runs.known)

    def results(self, run_ids: Sequence[str]) -> Results:
        """All that was added."""
        n = len(self._ids)
        figures = np.concatenate(self._figures, axis=1) if n else np.empty((len(METRICS), 0))
        self._figures = [figures]
        status, reasons = np.asarray(self._status, dtype=np.int64), _labels(self._reasons)
        is_evaluation = np.asarray(self._evaluations, dtype=np.bool_)
        without = (status == FINISHED.index(ERROR)) | reasons.mask(UNCHECKED)
        figures[0] = np.where(without, np.nan, status == FINISHED.index(SUCCESS))
        figures[:, is_evaluation] = np.nan
        columns: dict[str, Floats] = dict(zip(METRICS, figures, strict=True))
        columns |= dict(sorted(self._metrics.items()))
        numbers = {run_id: at for at, run_id in enumerate(run_ids)}
        run_numbers = np.asarray([numbers[run] for run in self._runs.known], dtype=np.int64)
        return Results(
            runs=Labels(run_numbers[_integers(self._runs.codes)], tuple(run_ids)),
            factors=self._factor_columns(),
            labels=tuple(self._labels),
            rests=(*self._rests, *[""] * (n - len(self._rests))) if any(self._rests) else (),
            item_ids=tuple(self._ids),
            status=status,
            reasons=reasons,
            repeat=_integers(self._repeat),
            metrics=columns,
            evaluators={
                name: Labels(codes, tuple(digests))
                for name, (codes, digests) in sorted(self._evaluators.items())
            },
            # Versions of an evaluator or a scenario that declare different scales have none in common.
            scales={
                name: scale
                for name, (scale, *others) in self._scales.items()
                if scale is not None and not others
            },
            inputs=self._inputs.inputs(),
            is_evaluation=is_evaluation,
            stand_ins=tuple(sorted(self._stand_ins)),
            answered=tuple(
                OtherModel(requested=requested, answered=answered, items=items)
                for (requested, answered), items in sorted(self._answered.items())
            ),
            served=tuple(
                ServedModel(requested=requested, answered=tuple(sorted(counts.items())))
                for requested, counts in sorted(self._served.items())
            ),
            agent_versions=tuple(
                versioned(agent, version)
                for agent, versions in sorted(self._versions.items())
                for version in sorted(versions)
            ),
            imported=frozenset(self._imported),
            unfinished={run_id: left for run_id, left in self.unfinished.items() if left},
            time_limit=max(filter(None, self.time_limits), default=None) if all(self.time_limits) else None,
        )

    def _factor_columns(self) -> dict[str, Labels]:
        """The levels of each factor: a table of those in each text of factors, looked up by row."""
        rows, columns = _integers(self._factors.codes), dict[str, Labels]()
        for name, levels in self._levels.items():
            if name == AGENT_VERSION and all(len(versions) < 2 for versions in self._versions.values()):
                # It says what the agent says.
                continue
            if name == SERVED_MODEL and all(len(names) < 2 for names in self._served.values()):
                # It says what the model says.
                continue
            table = np.full(len(self._task_names), -1, dtype=np.int64)
            table[: len(self._level_codes[name])] = self._level_codes[name]
            columns[name] = Labels(table[rows], tuple(levels))
        return columns


def _integers(values: "array[int]") -> Ints:
    return np.asarray(values, dtype=np.int64)


def _labels(column: _Codes) -> Labels:
    """A column of codes; the empty text is missing."""
    labels = [text for text in column.known if text]
    places = {text: at for at, text in enumerate(labels)}
    codes = np.asarray([places.get(text, -1) for text in column.known], dtype=np.int64)
    return Labels(codes[_integers(column.codes)], tuple(labels))


def _read_timed(
    read: StoreReader,
    scores: _Scores,
    rows_of: "Mapping[ScoredSessions, Callable[[Sequence[object]], Ints]]",
    *,
    of_evaluations: bool,
) -> dict[_Version, str]:
    """Read scores with their times; a session in which each version of an evaluator was applied."""
    versions = dict[_Version, str]()
    for source, rows in rows_of.items():
        for page in timed_score_columns(read, source, of_evaluations=of_evaluations):
            new = scores.add_timed(page, rows(page["key"]))
            versions |= {version: page["judgingSessionId"][place] for version, place in new.items()}
    return versions


def _session_of(read: StoreReader, source: ScoredSessions, key: object) -> str:
    """The session behind a key of a source."""
    if not source.run_id:
        return str(key)
    (session,) = sessions_at(read, source.run_id, [int(str(key))])
    return session or ""


def _declared_scale(
    read: StoreReader, evaluator: str, dimension: str, judging_session: str
) -> tuple[float, float] | None:
    """The scale that the evaluator of a score declares; None: none."""
    # Loads the evaluators, which results without scores do not need.
    from proctor.evaluators.registry import criterion_scale, declared_scale

    if (scale := declared_scale(evaluator, dimension)) is not None:
        return scale
    source = evaluator_source(read, judging_session)
    if source is None:
        return None
    definitions = maps_in(list(as_map(json.loads(source["definitionsJson"] or "{}")).values()))
    for definition in definitions:
        if as_text(definition, "evaluatorName") == evaluator:
            return declared_scale(evaluator, dimension, definition)
    for entry in maps_in(as_map(json.loads(source["settings"])), "evaluators"):
        criterion = as_map(entry, "criterion")
        if as_text(criterion, "name") == evaluator:
            return criterion_scale(criterion)
    return None


def _scenario_metrics(read: StoreReader, run_id: str) -> Iterator[Mapping[str, object]]:
    """The metrics that the scenario of each variation of a run declares."""
    scenarios = dict[str, dict[str, object]]()
    variations = {row["digest"]: row["settings"] for row in item_settings(read, run_id)}
    for text in variations.values():
        settings = as_map(json.loads(text))
        digest = as_text(settings, "scenarioDigest") or as_text(settings, "scenario")
        if digest not in scenarios:
            scenarios[digest] = dict(as_map(json.loads(read.resource(run_id, digest) or "{}")))
        yield as_map(changed(scenarios[digest], as_map(settings, "changes")), "metrics")


def _range_of(rule: Mapping[str, object]) -> tuple[float, float] | None:
    """The lowest and the highest value that a metric of a scenario may have; None: any."""
    if as_text(rule, "type") == "boolean":
        return 0.0, 1.0
    ends = [end for each in as_list(rule, "range") if (end := as_number(each)) is not None]
    return (ends[0], ends[1]) if len(ends) == 2 and ends[0] < ends[1] else None


def _figures(page: ResultColumns) -> Floats:
    """The figures of rows, one row of the result for each of `METRICS`; success is added later."""
    figures = np.empty((len(METRICS), len(page["id"])))
    values = metric_values(page)
    for row, metric in zip(figures, METRICS.values(), strict=True):
        if metric.name in values:
            # None becomes NaN.
            row[:] = values[metric.name]
            if metric.is_zero_unknown:
                row[row == 0] = np.nan
    if any(page["times"]):
        seconds = figures[list(METRICS).index("time")]
        for at, times in enumerate(page["times"]):
            if times:
                # Nothing recorded its work: the time from its start to its end.
                span = elapsed(*map(moment, times.split(" ")))
                seconds[at] = np.nan if span is None else span
    return figures


def _flat(path: str, value: object) -> Iterator[tuple[str, object]]:
    """Every input with its path; mappings are flattened."""
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _flat(f"{path}.{name}" if path else str(name), part)
    else:
        yield path, value
