"""Tasks of a repository's own history: commits that changed source and tests, validated by running the tests.

    git log → candidates → tests over the parent fail → whole commit passes, three times → task folder

A commit becomes a task if at least one test fails on the parent with the commit's tests and passes with the
whole commit every time. Each validated commit is written to `history.jsonl` in the output folder at once, so
that an interrupted run continues where it was.
"""

import asyncio
import json
import os
import re
import shutil
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Literal

from proctor.errors import ProctorError, UsageError, WorkspaceError
from proctor.formatting import clipped
from proctor.git import Git, GitError
from proctor.item import Item, digest_of
from proctor.json_values import JsonObject, as_number, as_text, as_whole_number, json_object
from proctor.processes import ProgramResult, run
from proctor.processes.error_lines import error_line
from proctor.sandbox import Phase, Sandbox
from proctor.tasks.commit_context import Changelogs
from proctor.tasks.interface import interface_of
from proctor.tasks.mining_failures import (
    EnvironmentFailure,
    FailureCount,
    NotRun,
    StoppedMining,
    tail_of,
)
from proctor.tasks.related_tests import related_tests
from proctor.tasks.review import read_decisions
from proctor.tasks.statement import REWRITE, Statement, make_statement, read_issues, without_paths
from proctor.tasks.test_command import TestCommands, guess_commands
from proctor.workspace import beneath
from proctor.workspace.folders import remove_abandoned, temporary_folder
from proctor.workspace.hidden_tests import HiddenTests, is_ci, is_test, write_archive
from proctor.workspace.setup import in_thread, session_environment, slug_of
from proctor.workspace.source_repository import SourceRepository, open_source
from proctor.workspace.test_reports import Results, read_results, restricted, with_report
from proctor.workspace.worktree import (
    WORK,
    Worktree,
    bring_commit,
    fill,
    make_home,
    make_tree,
    settle,
)

REPEATS = 3
"""Runs of the tests with the whole commit; a test with different results is flaky."""
MOST_SOURCE_FILES = 10
MOST_SOURCE_LINES = 500
MOST_TEST_FILES = 30
TRIAL = "history-"
"""Start of the names of the trees in which commits are validated."""
STATE_FILE, ARCHIVE = "history.jsonl", "hidden.tar.xz"
_BOT = re.compile(r"\[bot\]|dependabot|renovate|github-actions|pre-commit-ci", re.IGNORECASE)
_OTHER_WORK = re.compile(
    r"^(chore|docs?|style|ci|build|revert|release)(\([^)]*\))?!?:|^(revert|bump|release|merge|backport)\b"
    r"|\b(cherry[- ]pick|changelog|bump version|update dependencies)\b"
    r"|\b(clippy|golangci-lint|gocritic|eslint|flake8|ruff) (warnings?|findings?|errors?|autofix(es)?)\b"
    r"|^more linting\b|^javadocs?\b",
    re.IGNORECASE,
)
_PROSE = (".md", ".rst", ".txt", ".adoc", ".lock", ".svg", ".png")
LANGUAGES = {
    **dict.fromkeys((".py", ".pyi", ".pyx"), "Python"),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), "JavaScript"),
    **dict.fromkeys((".ts", ".tsx", ".mts"), "TypeScript"),
    ".go": "Go",
    ".rs": "Rust",
    ".java": "Java",
    ".kt": "Kotlin",
    ".rb": "Ruby",
    ".php": "PHP",
    **dict.fromkeys((".c", ".h"), "C"),
    **dict.fromkeys((".cc", ".cpp", ".hpp"), "C++"),
    ".cs": "C#",
    ".ex": "Elixir",
    ".exs": "Elixir",
    ".sh": "Shell",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCandidate:
    """A commit that changed source and tests."""

    commit: str
    parent: str
    title: str
    message: str = field(repr=False)
    date: str
    """ISO date and time of the author."""
    tests: tuple[str, ...]
    source: tuple[str, ...]
    """All other files of the commit."""
    lines: int
    """Changed lines of source code."""
    language: str

    @property
    def name(self) -> str:
        """Folder and file name of its task."""
        return f"{self.commit[:10]}-{slug_of(self.title)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """A commit that does not become a task, and why."""

    commit: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MiningOptions:
    """What to look for, and where to write it."""

    repo: Path
    out: Path
    check: str = ""
    """Command of the tests; empty: guessed. `{tests}` stands for the test files of a commit."""
    setup: str = ""
    """Command before the tests; empty: guessed where `check` is, else none."""
    since: str = "365d"
    """`90d`, `8w`, `6m`, `2y`, or a date."""
    max_tasks: int = 30
    issues: Path | None = None
    """JSON file of issues; the one that a commit names is its statement."""
    hints: bool = False
    """Leave file names of the solution in statements."""
    timeout: float = 600
    """Seconds for one run of the tests, and for setup."""
    agent_timeout: float = 1800
    parallel: int = 0
    """Commits validated at the same time; 0: one per core."""
    sandbox: object = None
    """As in a plan; None: as `proctor.toml` says."""
    include_underspecified: bool = False
    """Whether commits of which little more than a title is known become tasks."""
    keep_going: bool = False
    """Whether to continue where set-up or tests fail for every commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitValidation:
    """What running the tests of one commit showed."""

    commit: str
    state: Literal["task", "flaky", "rejected"]
    reason: str = ""
    """Why it is flaky or rejected."""
    fail_to_pass: tuple[str, ...] = ()
    pass_to_pass: tuple[str, ...] = ()
    wavering: tuple[str, ...] = ()
    """Tests with different results in equal runs."""
    seconds: float = 0.0
    folder: str = ""
    """Name of the task's folder."""
    underspecification: float | None = None
    """What the statement leaves open, from 0 to 1; None: not known."""
    sources: tuple[str, ...] = ()
    """Where the statement is from."""
    other_test_files: int = 0
    """Test files that are not run: nothing connects them with what the commit changed."""
    ran: bool = True
    """Whether its tests ran; if not, the next run validates the commit again."""


@dataclass(slots=True, kw_only=True)
class MiningResult:
    """Everything that was found in a history."""

    repo: str
    check: str
    check_source: str
    candidates: list[CommitCandidate]
    tasks: list[CommitValidation]
    flaky: list[CommitValidation]
    rejected: list[Rejection]
    setup: str = ""
    setup_source: str = ""
    stopped: StoppedMining | None = None
    """Why there are no more tasks; None: all candidates were validated, or enough."""

    @property
    def validated(self) -> int:
        """The number of candidates that were validated."""
        known = {each.commit for each in self.candidates}
        return len(self.tasks) + len(self.flaky) + sum(each.commit in known for each in self.rejected)

    def document(self) -> JsonObject:
        """As `--json` prints it."""
        by_commit = {each.commit: each for each in self.candidates}
        return {
            "repo": self.repo,
            "check": self.check,
            "checkSource": self.check_source,
            **({"setup": self.setup, "setupSource": self.setup_source} if self.setup else {}),
            **({"stopped": self.stopped.document()} if self.stopped else {}),
            "candidates": [
                {
                    "commit": candidate.commit,
                    "title": candidate.title,
                    "date": candidate.date,
                    "language": candidate.language,
                    "sourceFiles": len(candidate.source),
                    "testFiles": len(candidate.tests),
                    "lines": candidate.lines,
                }
                for candidate in self.candidates
            ],
            "tasks": [
                {
                    "commit": task.commit,
                    "title": by_commit[task.commit].title,
                    "folder": task.folder,
                    "date": by_commit[task.commit].date,
                    "failToPass": len(task.fail_to_pass),
                    "passToPass": len(task.pass_to_pass),
                    "otherTestFiles": task.other_test_files,
                    "underspecification": task.underspecification,
                    "sources": list(task.sources),
                    "seconds": round(task.seconds, 1),
                }
                for task in self.tasks
            ],
            "flaky": [{"commit": each.commit, "tests": list(each.wavering[:20])} for each in self.flaky],
            "rejected": [asdict(each) for each in self.rejected],
        }


def find_candidates(git: Git, since: str, now: datetime) -> tuple[list[CommitCandidate], list[Rejection]]:
    """Commits since then that changed source and tests, newest first, and why the others were not taken."""
    form = "%x01%H%x02%P%x02%aI%x02%an%x02%B%x03"
    start = since_date(since, now).isoformat()
    listed = git("log", f"--since={start}", "--no-renames", "--numstat", f"--format={form}", "HEAD")
    candidates, rejected = list[CommitCandidate](), list[Rejection]()
    known = set[tuple[str, str]]()
    for entry in listed.split("\x01")[1:]:
        head, _, figures = entry.partition("\x03")
        commit, parents, date, author, message = head.split("\x02", 4)
        result = _candidate(commit, parents.split(), date, author, message.strip(), figures)
        # The same change on another branch, which was merged too.
        change = (message.partition("\n")[0], figures.strip())
        if not isinstance(result, str) and change in known:
            result = "the same change as a newer commit"
        known.add(change)
        if isinstance(result, str):
            rejected.append(Rejection(commit=commit, reason=result))
        else:
            candidates.append(result)
    return candidates, rejected


def since_date(since: str, now: datetime) -> datetime:
    """The start of a period such as `365d`, or a date. Raises `UsageError`."""
    if match := re.fullmatch(r"(\d{1,5})\s*([dwmy])", since.strip()):
        days = int(match[1]) * {"d": 1, "w": 7, "m": 30, "y": 365}[match[2]]
        return now - timedelta(days=min(days, 36_500))
    try:
        moment = datetime.fromisoformat(since.strip())
    except ValueError:
        remedy = "Write it like 365d, 12w, 6m, 2y, or 2024-01-31."
        raise UsageError(f"`{since}` is no period\n{remedy}") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _candidate(
    commit: str, parents: Sequence[str], date: str, author: str, message: str, figures: str
) -> CommitCandidate | str:
    """The candidate, or why the commit is none."""
    title = message.partition("\n")[0].strip()
    if len(parents) != 1:
        return "merge commit" if parents else "first commit"
    if _BOT.search(author):
        return "written by a bot"
    if _OTHER_WORK.search(title):
        return "release, revert, documentation or maintenance"
    changed = dict(_numstat(figures))
    tests = tuple(path for path in changed if is_test(path))
    source = tuple(path for path in changed if not is_test(path))
    code = [path for path in source if _is_code(path)]
    if not tests:
        return "no tests changed"
    if not code:
        return "no source changed"
    lines = sum(changed[path] for path in code)
    if len(code) > MOST_SOURCE_FILES or lines > MOST_SOURCE_LINES or len(tests) > MOST_TEST_FILES:
        return f"too large: {len(code)} source files, {lines} lines, {len(tests)} test files"
    return CommitCandidate(
        commit=commit,
        parent=parents[0],
        title=title,
        message=message,
        date=date,
        tests=tests,
        source=source,
        lines=lines,
        language=_language(code, changed),
    )


def _numstat(figures: str) -> Iterator[tuple[str, int]]:
    for line in figures.splitlines():
        if line.count("\t") >= 2:
            added, removed, path = line.split("\t", 2)
            yield path, (int(added) + int(removed)) if added != "-" else 0


def _is_code(path: str) -> bool:
    parts = PurePosixPath(path).parts
    is_prose = path.endswith(_PROSE) or parts[0] in ("docs", "doc", "examples", "changelog.d", "news")
    return not is_prose and not is_ci(path) and "lock" not in parts[-1]


def _language(code: Iterable[str], lines: Mapping[str, int]) -> str:
    totals: dict[str, int] = {}
    for path in code:
        language = LANGUAGES.get(PurePosixPath(path).suffix, "other")
        totals[language] = totals.get(language, 0) + lines[path] + 1
    return max(totals, key=lambda name: totals[name])


Progress = Callable[[CommitCandidate, CommitValidation], None]
"""Called when a commit has been validated."""
Rewrite = Callable[[str], Awaitable[str]]
"""A model that rewrites a statement."""


class HistoryMiner:
    """Finds and validates the tasks of one repository."""

    def __init__(
        self,
        options: MiningOptions,
        *,
        home: Path,
        environment: Mapping[str, str],
        sandbox: Sandbox,
        now: datetime,
        rewrite: Rewrite | None = None,
    ) -> None:
        """`environment` is what tests may see; `home` is Proctor's folder, for the trees."""
        self.options = replace(options, out=options.out.absolute())
        self._home, self._environment = home, environment
        self._sandbox, self._rewrite = sandbox, rewrite
        try:
            self.source: SourceRepository = open_source(options.repo, environment)
        except WorkspaceError as error:
            raise UsageError(f"{error}\nGive the path of a git repository.") from error
        self.commands = TestCommands(
            check=options.check, check_source="--check", setup=options.setup, setup_source="--setup"
        )
        try:
            if not options.check:
                guessed = guess_commands(self.source.git)
                self.commands = (
                    replace(guessed, setup=options.setup, setup_source="--setup")
                    if options.setup
                    else guessed
                )
            self.candidates, self._rejected = find_candidates(self.source.git, options.since, now)
        except GitError as error:
            raise UsageError(f"reading the history of {options.repo}: {error}") from error
        self._issues = read_issues(options.issues) if options.issues else {}
        # Earlier versions kept the first 200 tests only: their tasks are validated again.
        parts = [
            self.commands.check,
            self.commands.setup,
            REPEATS,
            options.hints,
            "all tests, context, related",
        ]
        self._key = digest_of([*parts, self._issues] if self._issues else parts)[:16]
        self._results: dict[str, CommitValidation] = {}
        self._claimed: set[str] = set()
        """Commits of tasks that are written, or about to be."""
        self._stopped: StoppedMining | None = None
        self._changelogs = Changelogs(self.source.git)
        self._failures = FailureCount(self.source.git, self.commands)

    async def mine(self, progress: Progress | None = None) -> MiningResult:
        """Validate candidates, newest first, until there are enough tasks; write their folders."""
        self.options.out.mkdir(parents=True, exist_ok=True)
        await in_thread(remove_abandoned, self._home)
        earlier, waiting = self._earlier(), list(reversed(self.candidates))
        decisions = read_decisions(self.options.out)
        for candidate in self.candidates:
            if decisions.get(candidate.name) == "rejected":
                earlier[candidate.commit] = CommitValidation(
                    commit=candidate.commit, state="rejected", reason="rejected in review"
                )
        if any(each.state != "rejected" for each in earlier.values()):
            self._failures.clear()
        workers = min(self.options.parallel or os.cpu_count() or 1, max(1, len(waiting)))

        async def work() -> None:
            while waiting and not self._is_done:
                candidate = waiting.pop()
                validation = earlier.get(candidate.commit) or await self._validated(candidate)
                if validation.state == "task" and not self._claim(candidate):
                    break
                self._results[candidate.commit] = validation
                if progress:
                    progress(candidate, validation)
            for task in running:
                # The others' commits are not needed any more.
                if self._is_done and task is not asyncio.current_task():
                    task.cancel()

        running = [asyncio.ensure_future(work()) for _ in range(workers)]
        try:
            done = await asyncio.gather(*running, return_exceptions=True)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        for outcome in done:
            if isinstance(outcome, Exception):
                raise outcome
        if self._stopped is None or not waiting:
            self._stopped = self._failures.at_end()
        return self.result()

    def _claim(self, candidate: CommitCandidate) -> bool:
        """Whether a commit is among the tasks that are wanted."""
        if len(self._claimed) < self.options.max_tasks:
            self._claimed.add(candidate.commit)
        return candidate.commit in self._claimed

    @property
    def _is_done(self) -> bool:
        tasks = sum(each.state == "task" for each in self._results.values())
        return tasks >= self.options.max_tasks or self._stopped is not None

    def result(self) -> MiningResult:
        """What was found until now; before `mine`, what would be validated."""
        results = self._results
        ordered = [results[each.commit] for each in self.candidates if each.commit in results]
        failed = [
            Rejection(commit=each.commit, reason=each.reason) for each in ordered if each.state == "rejected"
        ]
        return MiningResult(
            repo=str(self.source.root),
            check=self.commands.check,
            check_source=self.commands.check_source,
            setup=self.commands.setup,
            setup_source=self.commands.setup_source,
            stopped=self._stopped,
            candidates=self.candidates,
            tasks=[each for each in ordered if each.state == "task"],
            flaky=[each for each in ordered if each.state == "flaky"],
            rejected=[*failed, *self._rejected],
        )

    def _earlier(self) -> dict[str, CommitValidation]:
        """Results of an earlier run with the same commands whose folders still exist."""
        file = self.options.out / STATE_FILE
        earlier: dict[str, CommitValidation] = {}
        for line in file.read_text().splitlines() if file.is_file() else ():
            row = json_object(line) or {}
            if as_text(row, "key") != self._key:
                continue
            validation = _validation_of(row)
            if not validation.ran:
                continue
            if validation.state == "task" and not (self.options.out / validation.folder).is_dir():
                continue
            earlier[validation.commit] = validation
        return earlier

    async def _validated(self, candidate: CommitCandidate) -> CommitValidation:
        started = datetime.now(UTC)
        try:
            validation = await self._validate(candidate)
        except NotRun as error:
            stopped = self._failures.add(error.failure)
            self._stopped = self._stopped or (None if self.options.keep_going else stopped)
            validation = CommitValidation(
                commit=candidate.commit, state="rejected", reason=clipped(str(error), 600), ran=False
            )
        except (WorkspaceError, GitError, OSError) as error:
            validation = CommitValidation(
                commit=candidate.commit, state="rejected", reason=clipped(str(error), 600)
            )
        if validation.underspecification is not None and validation.state == "rejected":
            # Found again without running anything.
            return validation
        row = {
            **asdict(validation),
            "seconds": round((datetime.now(UTC) - started).total_seconds(), 2),
            "key": self._key,
        }
        with (self.options.out / STATE_FILE).open("a") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        return _validation_of(row)

    async def _validate(self, candidate: CommitCandidate) -> CommitValidation:
        statement = await in_thread(self.statement, candidate)
        if not statement.title or (statement.is_underspecified and not self.options.include_underspecified):
            what = "only a title" if statement.is_title_only else f"score {statement.underspecification:.2f}"
            return CommitValidation(
                commit=candidate.commit,
                state="rejected",
                reason=f"underspecified: {what}",
                underspecification=statement.underspecification,
                sources=statement.sources,
            )
        own, related, other = await in_thread(self._test_files, candidate)
        try:
            command, before, after, output = await self._run_tests(candidate, own, related)
            have_run = any(map(_passed, after))
        except NotRun as error:
            if not related or error.failure.kind != "time":
                raise
            have_run = False
        if related and not have_run:
            # One that cannot be loaded here, or never ends, stops all.
            other += len(related)
            command, before, after, output = await self._run_tests(candidate, own, [])
        validation = judge_runs(candidate.commit, before, after)
        if validation.state == "rejected" and not any(_passed(each) for each in after):
            failure = EnvironmentFailure(kind="tests", command=command, output=output)
            raise NotRun(f"{validation.reason}: {error_line(output)}", failure)
        self._failures.clear()
        if validation.state != "task":
            return validation
        if not self._claim(candidate):
            # Other workers were faster: this folder would be one too many.
            raise asyncio.CancelledError
        validation = replace(
            validation,
            folder=candidate.name,
            underspecification=statement.underspecification,
            sources=statement.sources,
            other_test_files=other,
        )
        await self._write_task(candidate, validation, command, statement)
        return validation

    def statement(self, candidate: CommitCandidate) -> Statement:
        """What an agent is told of a commit."""
        git, commit, parent = self.source.git, candidate.commit, candidate.parent
        code = [path for path in candidate.source if _is_code(path)]
        files = {path: text for path in code if (text := git.run("show", f"{commit}:{path}")[1])}
        test_patch = _patch(git, parent, commit, candidate.tests)
        return make_statement(
            candidate.message,
            self._changelogs.context(commit, candidate.message),
            self._issues,
            interface_of(
                _patch(git, parent, commit, code),
                test_patch,
                files,
                lambda text: _is_known(git, parent, text),
            ),
            paths=(*candidate.source, *candidate.tests),
            test_patch=test_patch,
            lines=candidate.lines,
            hints=self.options.hints,
        )

    async def _run_tests(
        self, candidate: CommitCandidate, own: Sequence[str], related: Sequence[str]
    ) -> tuple[str, Results, list[Results], str]:
        """The command of the tests, its results over the parent and of the whole commit, and its output."""
        command = restricted(self.commands.check, [*own, *related])
        async with self._trial(candidate) as trial:
            await in_thread(trial.lay, candidate.tests)
            before = await trial.run_tests(restricted(self.commands.check, own))
            if related:
                # On their own: where the new tests cannot be loaded yet, some runners run none.
                before = {**await trial.run_tests(restricted(self.commands.check, related)), **before}
            await in_thread(trial.lay, candidate.source)
            after = []
            for _ in range(REPEATS):
                after.append(await trial.run_tests(command))
                # Repeats of a commit that fails anyway only take time.
                if not _passed(after[0]) - _passed(before):
                    break
            return command, before, after, trial.output

    def _test_files(self, candidate: CommitCandidate) -> tuple[list[str], list[str], int]:
        """The test files of a commit, others that use what it changed, and how many more are not run."""
        listed = self.source.git("ls-tree", "-r", "--name-only", "-z", candidate.commit).split("\0")
        present = set(listed)
        own = [path for path in candidate.tests if path in present]
        rest = [path for path in listed if path and is_test(path) and path not in own]
        # Where all tests are run anyway, a file more does not change the command.
        check, command = self.commands.check, restricted(self.commands.check, own)
        others = [path for path in rest if restricted(check, [*own, path]) != command]
        code = [path for path in candidate.source if _is_code(path)]
        related = related_tests(self.source.git, candidate.commit, code, others)
        return own, related, len(others) - len(related)

    @asynccontextmanager
    async def _trial(self, candidate: CommitCandidate) -> "AsyncIterator[_Trial]":
        """A fresh tree of the parent, set up."""
        name = f"{TRIAL}{candidate.commit[:12]}-{uuid.uuid4().hex[:8]}"
        async with temporary_folder(self._home, name) as path:
            tree = await in_thread(self._make_tree, path / WORK, candidate.parent)
            trial = _Trial(
                replace(self.options, setup=self.commands.setup),
                tree,
                candidate.commit,
                name,
                self._environment,
                self._sandbox,
            )
            await trial.set_up()
            yield trial

    def _make_tree(self, path: Path, parent: str) -> Worktree:
        tree = make_tree(path, self.source, "batch/history/trial", parent, {})
        make_home(tree.place / "home")
        fill(tree)
        return tree

    async def _write_task(
        self, candidate: CommitCandidate, validation: CommitValidation, command: str, statement: Statement
    ) -> None:
        rewritten = ""
        if self._rewrite:
            original = f"{statement.title}\n\n{statement.body}"
            rewritten = await self._rewrite(REWRITE.format(statement=original))
        await in_thread(self._write_folder, candidate, validation, command, statement, rewritten)

    def _write_folder(
        self,
        candidate: CommitCandidate,
        validation: CommitValidation,
        command: str,
        statement: Statement,
        rewritten: str,
    ) -> None:
        git, commit, parent = self.source.git, candidate.commit, candidate.parent
        folder = self.options.out / candidate.name
        making = self.options.out / f".making-{uuid.uuid4().hex[:12]}"
        source_patch = _patch(git, parent, commit, candidate.source)
        try:
            (making / "task").mkdir(parents=True)
            removed = {
                part: write_version(self.source, commit, paths, making / part)
                for part, paths in (("tests", candidate.tests), ("solution", candidate.source))
            }
            hidden = HiddenTests(
                command=command,
                fail_to_pass=validation.fail_to_pass,
                pass_to_pass=validation.pass_to_pass,
                removed_tests=tuple(removed["tests"]),
                removed_files=tuple(removed["solution"]),
                solution_paths=candidate.source,
                commit=commit,
                facts={
                    "message": candidate.message,
                    "date": candidate.date,
                    "repeats": REPEATS,
                    "sources": list(statement.sources),
                    "otherTestFiles": validation.other_test_files,
                },
            )
            write_archive(
                making / "task" / ARCHIVE,
                hidden,
                tests=making / "tests",
                solution=making / "solution",
                patch=source_patch,
            )
            text = statement.text
            if rewritten:
                # No heading of a task, so that it is not read as one.
                (making / "task" / "original.txt").write_text(text.removeprefix("# Task: "))
                title, _, body = rewritten.strip().partition("\n")
                paths = (*candidate.source, *candidate.tests)
                body = without_paths(body.strip(), paths)
                text = replace(statement, title=title.strip("# *"), body=body).text
            (making / "task" / f"{candidate.name}.md").write_text(
                self._front_matter(candidate, command, statement.underspecification) + text
            )
            shutil.rmtree(folder, ignore_errors=True)
            (making / "task").rename(folder)
        finally:
            shutil.rmtree(making, ignore_errors=True)

    def _front_matter(self, candidate: CommitCandidate, command: str, underspecification: float) -> str:
        settings = {
            "repo": str(self.source.root.absolute()),
            "ref": candidate.parent,
            "sealed": True,
            "hidden": ARCHIVE,
            **({"setup": self.commands.setup} if self.commands.setup else {}),
            "check": command,
            "timeout": self.options.agent_timeout,
            "date": candidate.date[:10],
            "underspecification": underspecification,
        }
        # JSON is YAML.
        lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items()]
        return f"---\n{''.join(lines)}---\n"


def _passed(results: Results) -> set[str]:
    return {name for name, status in results.items() if status == "passed"}


def judge_runs(commit: str, before: Results, after: Sequence[Results]) -> CommitValidation:
    """Decide on a commit: results of its tests over the parent, and repeated results of the whole commit."""
    if not any(after):
        return CommitValidation(commit=commit, state="rejected", reason="the tests report no result")
    names = {name for results in after for name in results}
    wavering = {name for name in names if len({results.get(name) for results in after}) > 1}
    stable = set.intersection(*map(_passed, after))
    fail_to_pass = stable - _passed(before)
    if not fail_to_pass and not wavering - _passed(before):
        broken = _passed(before) or any(_passed(results) for results in after)
        reason = "no test fails before and passes after it" if broken else "no test passes after it"
        return CommitValidation(commit=commit, state="rejected", reason=reason)
    if wavering - _passed(before):
        return CommitValidation(
            commit=commit,
            state="flaky",
            reason="tests of the commit have different results in equal runs",
            wavering=tuple(sorted(wavering)),
        )
    return CommitValidation(
        commit=commit,
        state="task",
        fail_to_pass=tuple(sorted(fail_to_pass)),
        pass_to_pass=tuple(sorted(stable & _passed(before))),
        wavering=tuple(sorted(wavering)),
    )


def _validation_of(row: Mapping[str, object]) -> CommitValidation:
    state = as_text(row, "state")
    seconds = row.get("seconds")
    return CommitValidation(
        commit=as_text(row, "commit"),
        state="task" if state == "task" else "flaky" if state == "flaky" else "rejected",
        reason=as_text(row, "reason"),
        fail_to_pass=tuple(_texts(row.get("fail_to_pass"))),
        pass_to_pass=tuple(_texts(row.get("pass_to_pass"))),
        wavering=tuple(_texts(row.get("wavering"))),
        seconds=float(seconds) if isinstance(seconds, int | float) else 0.0,
        folder=as_text(row, "folder"),
        underspecification=as_number(row, "underspecification"),
        sources=tuple(_texts(row.get("sources"))),
        other_test_files=as_whole_number(row, "other_test_files"),
        ran=row.get("ran") is not False and not as_text(row, "reason").startswith(_NOT_RUN_REASONS),
    )


_NOT_RUN_REASONS = (
    "setup failed", "the tests report no result", "no test passes after it", "the tests were still running"
)  # fmt: skip
"""Reasons of earlier versions, which did not store whether tests ran."""


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else []


def _patch(git: Git, parent: str, commit: str, paths: Sequence[str]) -> str:
    return git("diff", "--binary", "--no-renames", "--no-ext-diff", parent, commit, "--", *paths)


def _is_known(git: Git, commit: str, name: str) -> bool:
    """Whether a word occurs in the files of a commit."""
    return git.run("grep", "-q", "-w", "-F", "-e", name, commit)[0] == 0


def write_version(source: SourceRepository, commit: str, paths: Sequence[str], folder: Path) -> list[str]:
    """Write files as they are in a commit into a folder; returns the paths that the commit does not have."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = source.git("ls-tree", "-r", "--name-only", "-z", commit, "--", *paths).split("\0")
    present = [path for path in paths if path in set(listed)]
    if present:
        index = folder.parent / f".index-{uuid.uuid4().hex[:12]}"
        git = source.git.at(
            folder, GIT_DIR=str(source.common), GIT_WORK_TREE=str(folder), GIT_INDEX_FILE=str(index)
        )
        try:
            git("checkout", "--quiet", commit, "--", *present)
        finally:
            index.unlink(missing_ok=True)
    return [path for path in paths if path not in present]


class _Trial:
    """A tree in which the tests of one commit run."""

    def __init__(
        self,
        options: MiningOptions,
        tree: Worktree,
        commit: str,
        attempt: str,
        environment: Mapping[str, str],
        sandbox: Sandbox,
    ) -> None:
        self._options, self._tree, self._commit, self._sandbox = options, tree, commit, sandbox
        self._home = tree.place / "home"
        item = Item(runner="benchmark", prompt="")
        self._environment = session_environment(item, environment, self._home, tree.folder, 0)
        # Two versions of a file in the same second must not share compiled code.
        self._environment["PYTHONDONTWRITEBYTECODE"] = "1"
        self._attempt = attempt
        self.output = ""
        """The end of the output of the last run of the tests."""

    async def set_up(self) -> None:
        """Run the setup command. Raises `WorkspaceError` if it fails."""
        command = self._options.setup
        if not command:
            return
        finished = await self._run(command, "setup")
        if finished.timed_out or finished.exit_code != 0:
            tail = finished.output.strip()[-300:]
            how = "took too long" if finished.timed_out else f"exited with {finished.exit_code}"
            raise NotRun(
                f"setup failed: `{command}` {how}: {tail}",
                EnvironmentFailure(kind="setup", command=command, output=tail_of(finished.output)),
            )

    def lay(self, paths: Sequence[str]) -> None:
        """Put the commit's version of these files into the tree."""
        tree = self._tree
        settle(tree)
        bring_commit(tree, self._commit)
        listed = set(tree.git("ls-tree", "-r", "--name-only", "-z", self._commit).split("\0"))
        for path in paths:
            beneath.remove(tree.place, f"{tree.folder.name}/{path}")
        if present := [path for path in paths if path in listed]:
            tree.git("checkout", "--quiet", self._commit, "--", *present, GIT_LITERAL_PATHSPECS="1")

    async def run_tests(self, command: str) -> Results:
        """Results of the tests; none if they took too long."""
        report = self._home / "tmp" / f"{uuid.uuid4().hex[:12]}.report"
        finished = await self._run(with_report(command, report), "check")
        if finished.timed_out:
            raise NotRun(
                f"the tests were still running after {self._options.timeout:g} s",
                EnvironmentFailure(kind="time", command=command, output=tail_of(finished.output)),
            )
        # The output of some runners is their report.
        output = finished.output.strip() or beneath.read_text(
            self._tree.place, self._tree.inside(report), 1 << 20
        )
        self.output = tail_of(output) or f"no output, exit code {finished.exit_code}"
        results = await in_thread(read_results, command, report, finished.exit_code)
        beneath.remove(self._tree.place, self._tree.inside(report))
        return results

    async def _run(self, command: str, phase: Phase) -> ProgramResult:
        # Without the network, npx would wait minutes for a package that is not installed.
        offline = {"npm_config_fetch_retries": "0"} if phase == "check" else {}
        try:
            return await run(
                command,
                folder=self._tree.folder,
                environment={**self._environment, **offline},
                attempt=self._attempt,
                time_limit=self._options.timeout,
                confinement=self._sandbox.confine(
                    phase,
                    self._options.sandbox,
                    folders=[self._tree.place],
                    home=self._home,
                    read=self._tree.base.folders,
                    named=[command],
                ),
            )
        except UsageError:
            raise
        except ProctorError as error:
            raise WorkspaceError(f"running `{command}`: {error}") from error
