"""Measure how many small changes to the code the tests detect: a seeded mutation sample.

    make mutants MUTANTS="--package store --count 20 --minutes 30"
    .venv/bin/python tools/mutants.py --list --seed 7

Each mutant is one change to one expression or statement below src/proctor (`mutation_sites.py`). Mutants are
tested one after the other in a temporary copy of the working tree, which has a virtual environment of its
own, so that processes started by tests import the mutated code too (`mutation_tests.py`). Only tests that
cover the mutated module run: files that import it (first those that name the mutated function), then those of
its package, then those of the packages that import it, then those of the whole program. In each of these
groups tests that use the function come first and slow ones last. `--all-tests` adds the rest of the suite.

    .venv/bin/python tools/mutants.py --map tests/jobs tests/web

records which tests execute which line, in `build/mutants/map` (`mutation_map.py`). A mutant of a recorded
module is tested with the tests that execute its line, quickest first. A line that no test executes is a
survivor at once; `--never-executed` lists such lines. Record again after tests have changed: only changed
files are repeated. Recorded mutants in functions are tested in forks of one process that has collected the
tests (`mutation_forks.py`): some seconds each.

A mutant is killed when a test fails with it, fails again when repeated alone, and passes without it. A test
that runs longer than `--test-seconds` kills a mutant only if it does so again alone, and needs less than a
quarter of that time without the mutant: a busy machine kills nothing. These are counted as hangs. A mutant
that no test has killed after `--mutant-minutes` counts as survived and is marked, because some tests were not
run. Survivors may be equivalent to the original: read them before writing tests.

The sample depends on the seed and the source only. It is ordered by a hash of each mutant, so that edits
elsewhere leave it unchanged and `--minutes` cuts it at a random place.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutation_forks import is_in_function, run_in_forks
from mutation_map import LineMap, record
from mutation_sites import Mutant, draw_sample, read_text
from mutation_tests import TestFiles, TestRun, WorkCopy

ROOT = Path(__file__).resolve().parents[1]
QUICK_TESTS = 40


@dataclass(frozen=True, slots=True)
class Result:
    """Whether the tests detected a mutant."""

    mutant: Mutant
    killed: bool
    killer: str = ""
    """The test that failed or hung; empty where pytest could not start."""
    is_hang: bool = False
    """The test ran longer than its time limit."""
    complete: bool = True
    """False for a survivor whose time limit ended before all tests had run."""
    executed: bool = True
    """False for a survivor that no test executes."""

    def __str__(self) -> str:
        if not self.killed:
            return "SURVIVED" if self.executed else "NEVER EXECUTED"
        return (
            f"{'killed by a hang of' if self.is_hang else 'killed by'} {self.killer or 'pytest, which ended'}"
        )


@dataclass
class Sampler:
    """Tests mutants in a work copy."""

    copy: WorkCopy
    tests: TestFiles
    mutant_seconds: float
    until: float
    """When to stop altogether, on the monotonic clock."""
    unchanged: dict[str, TestRun] = field(default_factory=dict)
    """How single tests end without any mutant."""
    line_map: LineMap | None = None

    @property
    def broken(self) -> set[str]:
        """Tests that fail without any mutant: they are not run again."""
        return {test for test, run in self.unchanged.items() if not run.passed}

    def test(self, mutant: Mutant) -> Result | None:
        """Run the tests on a mutant; None when the time for the whole sample ended before they did."""
        until = min(time.monotonic() + self.mutant_seconds, self.until)
        stages = self._stages(mutant)
        # Tests of the map are in order already.
        names = () if self._is_mapped(mutant) else self.tests.names(mutant)
        flaky = set[str]()
        for stage in stages:
            while files := [file for file in stage if file not in self.broken | flaky]:
                excluded = [f"--deselect={test}" for test in sorted(self.broken | flaky)]
                with self.copy.mutated(mutant):
                    run = self.copy.run(files, "-x", *excluded, until=until, names=names)
                    repeated = {test: self._run_alone(test) for test in run.failures}
                if run.passed:
                    break
                if run.is_stopped:
                    return None if until == self.until else Result(mutant, killed=False, complete=False)
                if not run.failures:
                    self._check_collection(files)
                    return Result(mutant, killed=True)
                for test, again in repeated.items():
                    if self._is_kill(test, again):
                        return Result(mutant, killed=True, killer=test, is_hang=_is_hang(again))
                flaky |= set(run.failures)
        return Result(mutant, killed=False, executed=bool(stages))

    def test_in_forks(self, sample: Sequence[Mutant]) -> Iterator[Result]:
        """Run the recorded tests on those mutants of a sample that forks can test."""
        chosen: list[tuple[Mutant, list[str], bool]] = []
        for mutant in sample:
            text = read_text(self.copy.tree / mutant.path)
            if self._is_mapped(mutant) and is_in_function(mutant, text):
                assert self.line_map is not None
                tests = self.line_map.tests(mutant, self.tests)
                within = self.line_map.within(tests, self.mutant_seconds)
                chosen.append((mutant, within, len(within) == len(tests)))
        for mutant, within, _ in chosen:
            if not within:
                yield Result(mutant, killed=False, executed=False)
        executed = [each for each in chosen if each[1]]
        if not executed:
            return
        files = sorted({test.partition("::")[0] for _, within, _ in executed for test in within})
        options = ("-q", "-p", "mutation_forks", "-p", "no:cacheprovider")
        results = run_in_forks(
            [str(self.copy.python), "-m", "pytest", *options, *files],
            self.copy.tree,
            [(mutant, within) for mutant, within, _ in executed],
            test_seconds=self.copy.test_seconds,
            mutant_seconds=self.mutant_seconds,
            until=self.until,
        )
        for result in results:
            mutant, _, has_all = executed[result["mutant"]]
            yield Result(
                mutant,
                killed=result["killer"] is not None,
                killer=result["killer"] or "",
                is_hang=result["hang"],
                complete=has_all and result["complete"],
            )

    def _is_mapped(self, mutant: Mutant) -> bool:
        return self.line_map is not None and self.line_map.covers(mutant)

    def _stages(self, mutant: Mutant) -> list[list[str]]:
        """The files or tests to run, one list after the other."""
        if self.line_map is None or not self._is_mapped(mutant):
            return self.tests.stages(mutant)
        tests = self.line_map.tests(mutant, self.tests)
        # Most mutants are killed by one of the quickest; the others need not be collected for them.
        return [stage for stage in (tests[:QUICK_TESTS], tests[QUICK_TESTS:]) if stage]

    def _run_alone(self, test: str) -> TestRun:
        """Run one test. It has its own time limit, since a kill must not depend on when it happens."""
        return self.copy.run([test], until=time.monotonic() + 60 + 2 * self.copy.test_seconds)

    def _is_kill(self, test: str, again: TestRun) -> bool:
        """Whether a test that failed, and ended like `again` when repeated, passes without the mutant."""
        if again.passed:
            return False
        if test not in self.unchanged:
            self.unchanged[test] = self._run_alone(test)
        unchanged = self.unchanged[test]
        return unchanged.passed and not (_is_hang(again) and unchanged.seconds > self.copy.test_seconds / 4)

    def _check_collection(self, files: Sequence[str]) -> None:
        """Stop where pytest cannot load the unchanged code either: every mutant would seem to be killed."""
        collected = self.copy.run(files, "--collect-only", until=time.monotonic() + 600)
        if not collected.passed and not collected.failures:
            raise SystemExit(
                "mutants: pytest cannot collect the tests of the unchanged code:\n" + self.copy.output
            )


def _is_hang(run: TestRun) -> bool:
    return run.is_hang or run.is_stopped


# --- Report ---


def report(results: Sequence[Result], *, seed: int, sampled: int, broken: Iterable[str]) -> dict[str, Any]:
    """Shares per package and overall, and all results, ready for JSON."""
    packages = sorted({result.mutant.package for result in results})
    by_package = {
        package: _share([result for result in results if result.mutant.package == package])
        for package in packages
    }
    return {
        "seed": seed,
        "sampled": sampled,
        **_share(results),
        "packages": by_package,
        "survivors": [
            _row(result.mutant) | {"allTestsRan": result.complete}
            for result in results
            if not result.killed and result.executed
        ],
        "neverExecuted": [_row(result.mutant) for result in results if not result.executed],
        "kills": [
            _row(result.mutant) | {"test": result.killer or None, "hang": result.is_hang}
            for result in results
            if result.killed
        ],
        "broken": sorted(broken),
    }


def _share(results: Sequence[Result]) -> dict[str, Any]:
    killed = sum(result.killed for result in results)
    return {
        "tested": len(results),
        "killed": killed,
        "hangs": sum(result.is_hang for result in results),
        "share": killed / len(results) if results else None,
    }


def _row(mutant: Mutant) -> dict[str, Any]:
    return {
        "file": mutant.path,
        "line": mutant.line,
        "package": mutant.package,
        "kind": mutant.kind,
        "before": mutant.before,
        "after": mutant.after,
    }


def as_text(figures: dict[str, Any]) -> str:
    """The report for a terminal."""
    rows = [*figures["packages"].items(), ("overall", figures)]
    width = max(len(name) for name, _ in rows)
    lines = [f"{'package':{width}}  killed  hangs  tested  share"]
    for name, row in rows:
        share = "-" if row["share"] is None else f"{row['share']:.0%}"
        lines.append(f"{name:{width}}  {row['killed']:6}  {row['hangs']:5}  {row['tested']:6}  {share:>5}")
    if untested := figures["sampled"] - figures["tested"]:
        lines.append(f"\n{untested} of {figures['sampled']} sampled mutants were not tested: the time ended.")
    if figures["broken"]:
        lines += ["\nTests that fail on the unchanged code and were ignored:", *figures["broken"]]
    if figures["survivors"]:
        lines.append("\nSurvivors:")
    for row in figures["survivors"]:
        note = "" if row["allTestsRan"] else " (time limit reached: not all tests ran)"
        lines.append(_described(row, note))
    if figures["neverExecuted"]:
        lines += ["\nSurvivors that no test executes:", *map(_described, figures["neverExecuted"])]
    return "\n".join(lines)


def _described(row: dict[str, Any], note: str = "") -> str:
    return f"{row['file']}:{row['line']}: {row['kind']}{note}\n  - {row['before']}\n  + {row['after']}"


# --- Command ---


def main(arguments: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Draw a sample, test it, print the report. Surviving mutants are not an error."""
    options = _parser().parse_args(arguments)
    started = time.monotonic()
    sample = draw_sample(root, seed=options.seed, count=options.count, packages=options.package)
    if options.list:
        rows = [_row(mutant) for mutant in sample]
        print(json.dumps(rows, indent=2) if options.json else "\n".join(map(_described, rows)))
        return 0
    line_map = LineMap(root)
    if options.never_executed:
        for mutant in line_map.never_executed(options.package):
            print(f"{mutant.path}:{mutant.line}: {mutant.before}")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        copy = WorkCopy(
            root, Path(folder).resolve(), workers=options.workers, test_seconds=options.test_seconds
        )
        if options.map is not None:
            arguments = ["-m", options.marked] if options.marked else []
            record(root, copy, options.map, options=arguments, until=started + options.minutes * 60)
            return 0
        # Of the copy: the original may be edited meanwhile.
        tests = TestFiles(copy.tree, all_tests=options.all_tests)
        sampler = Sampler(
            copy,
            tests,
            options.mutant_minutes * 60,
            started + options.minutes * 60,
            unchanged=line_map.unchanged(),
            line_map=line_map,
        )
        results = _test_all(sampler, sample)
    figures = report(results, seed=options.seed, sampled=len(sample), broken=sampler.broken)
    print(json.dumps(figures, indent=2) if options.json else as_text(figures))
    return 0


def _test_all(sampler: Sampler, sample: Sequence[Mutant]) -> list[Result]:
    """Results of a sample, until its time ends or the user interrupts; the quick ones first."""
    results: dict[Mutant, Result] = {}
    started = time.monotonic()

    def add(result: Result) -> None:
        nonlocal started
        results[result.mutant] = result
        now = time.monotonic()
        place = f"{result.mutant.path}:{result.mutant.line}: {result.mutant.kind}"
        position = f"[{len(results)}/{len(sample)}]"
        print(f"{position} {place}: {result} ({now - started:.0f} s)", file=sys.stderr, flush=True)
        started = now

    try:
        for result in sampler.test_in_forks(sample):
            add(result)
        for mutant in sample:
            if mutant in results:
                continue
            tested = sampler.test(mutant) if time.monotonic() < sampler.until else None
            if tested is None:
                break
            add(tested)
    except KeyboardInterrupt:
        print("mutants: interrupted", file=sys.stderr)
    return list(results.values())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mutants", description="Measure how many small changes to the code the tests detect."
    )
    add = parser.add_argument
    add("--seed", type=int, default=1, help="which sample to draw (default: 1)")
    add("--count", type=int, default=50, help="number of mutants (default: 50)")
    add("--package", action="append", default=[], metavar="NAME", help="only this package; may be repeated")
    add("--minutes", type=float, default=30, help="time limit for the whole sample (default: 30)")
    add("--mutant-minutes", type=float, default=3, help="time limit for one mutant (default: 3)")
    add("--all-tests", action="store_true", help="also run tests that do not seem to cover the module")
    add("--test-seconds", type=int, default=60, help="a test that runs longer hangs (default: 60)")
    add(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        help="parallel test processes (default: one per core)",
    )
    add("--map", nargs="*", metavar="TESTS", help="record which tests execute which line, and test nothing")
    add("--marked", default="", metavar="EXPRESSION", help="with --map: only tests with these markers")
    add("--never-executed", action="store_true", help="list the lines that no recorded test executes")
    add("--list", action="store_true", help="print the sample and test nothing")
    add("--json", action="store_true", help="print JSON")
    return parser


if __name__ == "__main__":
    # Terminated is as interrupted: no test process and no temporary folder remain.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
