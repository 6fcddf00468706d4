"""One trial: a job on a store of its own is killed and disturbed until it is done; then it is checked.

A trial is deterministic in what it does, given its seed, but not in when the machine does it.
"""

import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

from chaos.provider import Provider, clock_variables, running_provider
from command_server import CommandServer, StartedCommand
from databases import query
from proctor.processes.warden import children_of
from proctor.store import Store
from proctor.testing import make_git_repository

EXAMPLES = Path(__file__).parents[2] / "examples"
MOST_WAITING_SECONDS = 3.0
"""For the calls before a kill."""
DEADLINE_SECONDS = 120.0
"""For one process of a trial that nobody kills."""

CONFIG = """
[budget]
usd = {usd}

[limits."openai/chaos"]
concurrency = 8

[prices."openai/chaos"]
input = 10
output = 40

[prices."openai/narrator"]
input = 10
output = 40
"""
AMPLE_USD = 1000.0
KILLED = ("its process died", "its worker process died")
OUT_OF_MONEY = ("cost_limit", "halted")
UNKNOWN_URL = "http://provider.invalid/v1"


@dataclass(slots=True)
class Tally:
    """What a number of trials did and found. Everything from `lost` on should be 0."""

    trials: int = 0
    kills: int = 0
    drivers: int = 0
    """Kills of the process that the user started, and so on; together these are all kills."""
    workers: int = 0
    """Worker processes, and the process that starts them."""
    wardens: int = 0
    sandboxes: int = 0
    git_commands: int = 0
    disturbances: int = 0
    """Full disks, locks, jumps of the clock and outages."""
    items: int = 0
    calls: int = 0
    faults: int = 0
    """Calls that the provider answered badly."""
    repeated: int = 0
    """Attempts that were cut off and made again. Allowed: at most what was running at a kill."""
    lost: int = 0
    """Items that have no result at the end."""
    doubled: int = 0
    """Items that were completed twice."""
    too_often: int = 0
    """Attempts made again beyond what was running at the kills."""
    orphans: int = 0
    """Processes that outlived their batch."""
    overspent: int = 0
    """Moments at which the provider had billed more than the budget."""
    leaks: int = 0
    """Files that contain the key."""
    blamed: int = 0
    """Attempts of the agent that count as failed because one of our processes was killed."""
    left: int = 0
    """Folders, locks, branches and temporary files that stay when the run is done, or deleted."""
    crashes: int = 0
    """Tracebacks, and exit codes that are not documented."""
    notes: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add the figures of another tally."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @property
    def problems(self) -> int:
        """The sum of what must not happen."""
        return sum(getattr(self, name) for name in FINDINGS)


_NAMES = [each.name for each in fields(Tally)]
FINDINGS = _NAMES[_NAMES.index("lost") : _NAMES.index("notes")]


@dataclass(frozen=True, slots=True)
class Job:
    """A job to try: files to write, the command that starts it, the number of its items."""

    name: str
    write: Callable[[Path], None]
    start: Sequence[str]
    items: int
    concurrency: int
    has_programs: bool = False
    """Whether its items start programs, in sandboxes."""


def _write_prompts(folder: Path) -> None:
    (folder / "plan.yaml").write_text(
        "{runId: chaos, concurrency: 8, defaults: {settings: {max_tokens: 30}, retries: 2},"
        " matrix: [{prompt: Say something., model: openai/chaos, runs: 24}]}"
    )


AGENT = """
import json, os, random, subprocess, sys, time, urllib.request

chance = random.Random(os.urandom(8))
if chance.random() < 0.3:
    subprocess.Popen(["setsid", "sleep", "300"])
if chance.random() < 0.2:
    sys.stdout.buffer.write(bytes(range(256)) * 200)
if chance.random() < 0.1:
    print("x" * 2_000_000)
asked = {"model": "any", "max_tokens": 20, "stream": chance.random() < 0.5,
         "messages": [{"role": "user", "content": "Say something."}]}
headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
for _ in range(4):
    try:
        request = urllib.request.Request(url, json.dumps(asked).encode(), headers)
        urllib.request.urlopen(request, timeout=20).read()
        break
    except Exception as error:
        print(error)
open("done.txt", "w").write("done")
open(sys.argv[1] + ".txt", "w").write("done")
"""


def _write_coding(folder: Path) -> None:
    _write_agent(folder)
    (folder / "plan.yaml").write_text(
        "{runId: chaos, concurrency: 3,"
        " defaults: {settings: {gateway: true}, retries: 2, timeoutSec: 60},"
        f" matrix: [{{repo: {folder / 'repository'}, prompt: Work., agent: command, model: openai/chaos,"
        " command: 'python3 agent.py work', scriptCommand: 'test -f done.txt', runs: 6}]}"
    )


def _write_merging(folder: Path) -> None:
    _write_agent(folder)
    (folder / "plan.yaml").write_text(
        "{runId: chaos, concurrency: 3,"
        " defaults: {settings: {gateway: true}, retries: 2, timeoutSec: 60, mergeOnPass: true},"
        " matrix: ["
        + "".join(
            f"{{repo: {folder / 'repository'}, prompt: Work., agent: command, model: openai/chaos,"
            f" command: python3 agent.py item-{number}, scriptCommand: test -f done.txt}},"
            for number in range(4)
        )
        + "]}"
    )


def _write_agent(folder: Path) -> None:
    make_git_repository(folder / "repository", {"agent.py": AGENT})


def _write_benchmark(folder: Path) -> None:
    shutil.copytree(EXAMPLES / "benchmark", folder / "benchmark")


HARBOUR = """
name: Harbour Fee Talks
initial_world_state: "Spring. cooperation level: 4"
turns: 2
world_state_model: openai/narrator
actors: [port, ferry]
"""
EXPERIMENT = """
experiment_name: Fee study
base_scenario: scenarios/harbour
runs_per_variation: 4
max_parallel: 3
retries: 2
variations: []
output_dir: experiments/fees
"""


def _write_scenario(folder: Path) -> None:
    root = folder / "scenarios" / "harbour"
    (root / "actors").mkdir(parents=True)
    (root / "scenario.yaml").write_text(HARBOUR)
    for short, name in (("port", "Port Authority"), ("ferry", "Ferry Line")):
        (root / "actors" / f"{short}.yaml").write_text(
            f"name: {name}\nshort_name: {short}\nllm_model: openai/chaos\n"
        )
    (folder / "experiment.yaml").write_text(EXPERIMENT)


def _write_dialogue(folder: Path) -> None:
    """A simulation needs no file."""


def _write_evaluation(folder: Path) -> None:
    shutil.copytree(
        EXAMPLES / "evaluation", folder / "evaluation", ignore=shutil.ignore_patterns("__pycache__")
    )
    plan = folder / "evaluation" / "evaluation.yaml"
    plan.write_text(plan.read_text().replace("scripted/judge", "openai/chaos"))


BENCH = "bench --task benchmark/tasks/smoke/add_comment.md --models openai/chaos --runs 3 --parallel 3"
SIMULATE = (
    "simulate --num-runs 6 --max-turns 2 --max-workers 4 --seed 1 --model openai/chaos --output-dir out"
)
JOBS = (
    Job("prompts", _write_prompts, ("batch", "plan.yaml"), 24, 8),
    Job("coding", _write_coding, ("batch", "plan.yaml"), 6, 3, True),
    Job("merging", _write_merging, ("batch", "plan.yaml"), 4, 3, True),
    Job("benchmark", _write_benchmark, BENCH.split(), 3, 3, True),
    Job("scenario", _write_scenario, ("experiment", "experiment.yaml"), 4, 3),
    Job("dialogue", _write_dialogue, SIMULATE.split(), 6, 4),
    Job("evaluation", _write_evaluation, ("evaluate", "start", "evaluation/evaluation.yaml"), 18, 4, True),
)


class Trial:
    """A job in a folder, with a provider and a store."""

    def __init__(
        self,
        job: Job,
        folder: Path,
        seed: int,
        store: str = "",
        server: CommandServer | None = None,
        victims: Sequence[str] = (),
    ) -> None:
        """With a server of commands, processes are forks of it where that makes no difference. Processes of
        the kinds `victims` are killed as well, before the driver or instead of it."""
        self.job, self.folder, self.chance = job, folder, random.Random(seed)
        self._server = server
        self.tally = Tally(trials=1)
        self._victims = victims
        self._key = f"sk-chaos-{self.chance.getrandbits(64):016x}"
        self._budget_usd = AMPLE_USD
        self._home = folder / "home"
        self._store = store or str(self._home / "proctor.db")
        self._is_file = not store
        self._clock_file = folder / "clock"
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PROCTOR_HOME": str(self._home),
            "PROCTOR_STORE": self._store,
            "GIT_CONFIG_NOSYSTEM": "1",
            "OPENAI_API_KEY": self._key,
        }

    def run(self, *, kills: int) -> Tally:
        """Start the job, kill it so often, disturb it, let it finish, and check everything."""
        self.job.write(self.folder)
        # A short path, because sockets are in it.
        with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
            self._environment["TMPDIR"] = temporary
            return self._run(kills)

    def _run(self, kills: int) -> Tally:
        # Some trials run out of money on their way.
        self._set_budget(self.chance.choice([AMPLE_USD, AMPLE_USD, 0.1, 0.3]))
        with running_provider(self.chance) as provider:
            for _ in range(kills):
                self._run_and_kill(provider, self._words())
            self._environment["OPENAI_BASE_URL"] = provider.url
            self._finish(provider)
            self.tally.calls += sum(provider.faults.values())
            self.tally.faults += sum(provider.faults.values()) - provider.faults["none"]
            self._check()
        return self.tally

    # Running

    def _set_budget(self, usd: float) -> None:
        self._budget_usd = usd
        (self.folder / "proctor.toml").write_text(CONFIG.format(usd=usd))

    def _start(
        self, words: Sequence[str], *, file_bytes: int = 0, clock: bool = False
    ) -> "subprocess.Popen[str] | StartedCommand":
        if self._server and not file_bytes and not clock:
            return self._server.start(words, folder=self.folder, environment=self._environment)

        def limit_files() -> None:
            if file_bytes:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

        return subprocess.Popen(
            [sys.executable, "-m", "proctor", *words],
            cwd=self.folder,
            env=self._environment | (clock_variables(self._clock_file) if clock else {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=limit_files,
        )

    def _run_and_kill(self, provider: Provider, words: Sequence[str]) -> None:
        kinds = [kind for kind in self._victims if kind == "workers" or self.job.has_programs]
        kind = self.chance.choice(kinds) if kinds else ""
        if kind == "workers":
            words = [*words, "--workers", "2"]
        disturbance = self.chance.choice(["", "", "outage", "lock", "disk full", "clock", "no name"])
        full = disturbance == "disk full" and self._is_file and Path(self._store).exists()
        limit = Path(self._store).stat().st_size + 65536 if full else 0
        # A host name that does not resolve.
        self._environment["OPENAI_BASE_URL"] = UNKNOWN_URL if disturbance == "no name" else provider.url
        process = self._start(words, file_bytes=limit, clock=disturbance == "clock")
        self.tally.disturbances += bool(disturbance)
        more_calls = self.chance.randint(1, 2 * self.job.items)
        if disturbance == "lock" and self._is_file and Path(self._store).exists():
            self._lock(0.3 + self.chance.random())
        self._wait_for_calls(process, provider, more_calls)
        if disturbance == "clock":
            self._clock_file.write_text(self.chance.choice(["-3600s", "+7200s", "-86400s"]))
        if disturbance == "outage":
            provider.is_down = True
        for _ in range(self.chance.randint(1, 3) if kind else 0):
            if not self._kill_one(process.pid, kind):
                break
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.3 * self.chance.random() + (0.5 if disturbance else 0.0))
        provider.is_down = False
        # What the end of another process does is seen only if the driver lives on.
        spared = bool(kind) and disturbance in ("", "lock") and self.chance.random() < 0.5
        if process.poll() is None and not spared:
            process.send_signal(signal.SIGKILL)
            self._count("drivers")
        self._end(process, killed=not spared)
        self._check_money(provider)

    def _wait_for_calls(
        self, process: "subprocess.Popen[str] | StartedCommand", provider: Provider, number: int
    ) -> None:
        """Wait until the provider was called so often, the process has ended, or it takes too long."""
        until = time.monotonic() + MOST_WAITING_SECONDS
        calls = sum(provider.faults.values()) + number
        while sum(provider.faults.values()) < calls and process.poll() is None and time.monotonic() < until:
            time.sleep(0.005)

    def _kill_one(self, driver: int, kind: str) -> bool:
        """Kill a process of this kind below the driver, as soon as there is one; False: there is none."""
        until = time.monotonic() + MOST_WAITING_SECONDS
        while time.monotonic() < until and _words_of(driver):
            if found := sorted(_victims_of(driver, kind)):
                with suppress(OSError):
                    os.kill(self.chance.choice(found), signal.SIGKILL)
                    self._count(kind)
                return True
            time.sleep(0.002)
        return False

    def _count(self, kind: str) -> None:
        self.tally.kills += 1
        setattr(self.tally, kind, getattr(self.tally, kind) + 1)

    def _lock(self, seconds: float) -> None:
        """Hold the database's lock for a while, as a careless backup does."""

        def hold() -> None:
            with suppress(sqlite3.Error), closing(sqlite3.connect(self._store, timeout=0.1)) as connection:
                connection.execute("BEGIN EXCLUSIVE")
                time.sleep(seconds)
                connection.rollback()

        threading.Thread(target=hold, daemon=True).start()

    def _finish(self, provider: Provider) -> None:
        """Run it until all is done: errors are tried again, an exhausted budget is raised."""
        for attempt in range(8):
            if attempt == 2:
                provider.calm = True
                self._set_budget(AMPLE_USD)
            exit_code = self._end(self._start(self._words()), killed=False)
            self._check_money(provider)
            if exit_code == 0 and self._unfinished() == 0:
                return

    def _end(self, process: "subprocess.Popen[str] | StartedCommand", *, killed: bool) -> int:
        try:
            output, _ = process.communicate(timeout=DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            self._find("crashes", f"did not end within {DEADLINE_SECONDS:.0f} s")
        code = process.returncode
        if "Traceback (most recent call last)" in output:
            self._find("crashes", output[output.index("Traceback") :][-2000:])
        elif not (killed and code == -signal.SIGKILL) and code not in (0, 1, 2, 3, 4):
            self._find("crashes", f"exit code {code}: {output[-1000:]}")
        if self._key in output:
            self._find("leaks", "the key was printed")
        return code

    def _words(self) -> list[str]:
        """The command that starts the run, or resumes it."""
        rows = self._rows('SELECT "runId" FROM "batches"')
        resume = ["resume", rows[0]["runId"], "--retry-errors", "--retry-failed"] if rows else []
        return resume or list(self.job.start)

    # Checking

    def _rows(self, sql: str) -> list[dict[str, str]]:
        if self._is_file and not Path(self._store).exists():
            return []
        with Store(self._store) as store:
            return query(store, sql)

    def _unfinished(self) -> int:
        rows = self._rows('SELECT "status" FROM "batch_items"')
        return self.job.items - sum(row["status"] in ("success",) for row in rows)

    def _check_money(self, provider: Provider) -> None:
        if provider.billed_usd > self._budget_usd + 1e-9:
            self._find("overspent", f"${provider.billed_usd:.4f} billed of ${self._budget_usd}")

    def _check(self) -> None:
        rows = self._rows('SELECT "status", "reason", "error" FROM "batch_items"')
        self.tally.items += len(rows)
        if missing := self.job.items - sum(row["status"] == "success" for row in rows):
            others = Counter((row["status"], row["reason"], row["error"]) for row in rows)
            self._find("lost", f"{missing} of {self.job.items} items: {others}", missing)
        sessions = self._rows(
            'SELECT "id", "itemId", "status", "endReason", "error" FROM "sessions" WHERE "itemId" IS NOT NULL'
        )
        completed = Counter(row["itemId"] for row in sessions if row["status"] == "success")
        if doubled := sum(count - 1 for count in completed.values()):
            self._find("doubled", f"{doubled} items have several successful attempts", doubled)
        # The agent and the check of this job always succeed; money may run out.
        failed = [row for row in sessions if row["status"] == "fail" and row["endReason"] not in OUT_OF_MONEY]
        # libfaketime lets `time.sleep` fail with EINVAL once in a while.
        failed = [row for row in failed if "[Errno 22]" not in row["error"]]
        if self.job.name in ("coding", "merging") and failed:
            self._find("blamed", f"attempts failed: {failed}", len(failed))
        if self.job.name == "merging":
            self._check_merges()
        interrupted = sum(row["endReason"] == "interrupted" for row in sessions)
        self.tally.repeated += interrupted
        # A full disk ends a run as well.
        allowed = (self.tally.kills + self.tally.disturbances) * self.job.concurrency
        if interrupted > allowed:
            self._find("too_often", f"{interrupted} attempts interrupted by {self.tally.kills} kills")
        if self._rows('SELECT 1 AS "n" FROM "sessions" WHERE "workSeconds" < 0 OR "waitingSeconds" < 0'):
            self._find("crashes", "a session has a negative duration")
        self._check_orphans()
        self._check_leaks()
        # By default, the worktree of an attempt that failed or was stopped is kept, but not of a killed one.
        is_kept = {row["id"] for row in sessions if row["status"] not in ("success", "running")}
        self._check_left(is_kept - {row["id"] for row in sessions if row["error"] in KILLED})

    def _check_merges(self) -> None:
        """The work of every item is on the base branch, once, and the user's checkout is at its tip."""
        git = ["git", "-C", str(self.folder / "repository")]

        def lines(*words: str) -> list[str]:
            ended = subprocess.run([*git, *words], check=True, capture_output=True, text=True)
            return ended.stdout.splitlines()

        merged = lines("ls-tree", "--name-only", "main")
        wanted = {f"item-{number}.txt" for number in range(self.job.items)}
        if missing := wanted.difference(merged):
            self._find("lost", f"not merged: {missing}", len(missing))
        more = int(lines("rev-list", "--count", "main")[0]) - 1 - self.job.items
        if more > 0:
            self._find("doubled", f"{more} merges too many: {lines('log', '--stat', 'main')}", more)
        if changed := lines("status", "--porcelain"):
            self._find("left", f"changes in the user's checkout: {changed}", len(changed))

    def _check_orphans(self) -> None:
        marks = [
            f"PROCTOR_HOME={self._home}".encode(),
            f"HOME={self._home}".encode(),
            str(self.folder).encode(),
        ]
        deadline = time.monotonic() + 15
        while (alive := _processes_with(marks)) and time.monotonic() < deadline:
            time.sleep(0.1)
        if alive:
            self._find("orphans", f"still running: {alive}", len(alive))
            for pid in alive:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _check_leaks(self) -> None:
        key = self._key.encode()
        for path in self.folder.rglob("*"):
            if path.is_file() and not path.is_symlink() and key in path.read_bytes():
                self._find("leaks", f"the key is in {path.relative_to(self.folder)}")
        if not self._is_file:
            with Store(self._store) as store:
                calls = json.dumps(query(store, 'SELECT * FROM "model_calls"'), default=str)
            if self._key in calls:
                self._find("leaks", "the key is in the database")

    def _check_left(self, kept: Collection[str]) -> None:
        """Nothing of the run stays, except these worktrees; when it is deleted, these and its branches go."""
        worktrees = self._home / "worktrees"
        left = [path.name for path in worktrees.glob("*") if path.name not in kept]
        if left:
            rows = self._rows('SELECT "id", "status", "endReason", "error" FROM "sessions"')
            about = [row for row in rows if row["id"] in left]
            self._find("left", f"worktrees after the end: {left}, {about}", len(left))
        for row in self._rows('SELECT "runId" FROM "batches"'):
            self._end(self._start(["delete", row["runId"], "--yes"]), killed=False)
        left = [path.name for path in worktrees.glob("*")]
        for top in (self._home, self.folder / "repository" / ".git"):
            left += [str(path) for path in top.rglob("making-*")]
            left += [str(path) for path in top.rglob("*.lock") if not _is_permanent(path, self._home)]
        left += [str(path) for path in (self.folder / "repository/.git/refs/heads/batch").rglob("*")]
        left += [str(path) for path in Path(self._environment["TMPDIR"]).iterdir()]
        if left:
            self._find("left", f"after the deletion: {left}", len(left))

    def _find(self, name: str, note: str, count: int = 1) -> None:
        setattr(self.tally, name, getattr(self.tally, name) + count)
        self.tally.notes.append(
            f"{self.job.name} ({'file' if self._is_file else 'PostgreSQL'}): {name}: {note}"
        )
        print(self.tally.notes[-1], file=sys.stderr, flush=True)


def _is_permanent(lock: Path, home: Path) -> bool:
    """Whether this is a file that Proctor keeps to lock it again and again."""
    is_own = lock.parent in (home / "benchmarks", home / "repos", home / "mirrors")
    return is_own or (lock.name == "making.lock" and lock.parent.parent == home / "bases")


VICTIMS = {
    "workers": (),
    "wardens": ("warden.",),
    "sandboxes": ("bwrap ", "/sandbox/launcher."),
    "git_commands": ("git ",),
}
"""Kinds of processes, and how the programs or scripts are called that they run."""


def _victims_of(driver: int, kind: str) -> list[int]:
    """The running processes of a kind below a driver."""
    if kind == "workers":
        # A driver with two workers first forks the process that forks them.
        launchers = sorted(children_of(driver))[:1]
        launchers = [pid for pid in launchers if _words_of(pid) == _words_of(driver)]
        return [*launchers, *(pid for launcher in launchers for pid in children_of(launcher))]
    found, parents = list[int](), [driver]
    while parents:
        for child in children_of(parents.pop()):
            parents.append(child)
            # Not all: a sandbox has the command of the agent among its own arguments.
            start = " ".join([*_words_of(child)[:4], ""])
            if any(mark in start for mark in VICTIMS[kind]):
                found.append(child)
    return found


def _words_of(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    return []


def _processes_with(marks: Sequence[bytes]) -> dict[int, str]:
    """Running processes, except this one and its parent, whose environment contains one of these marks."""
    own = {os.getpid(), os.getppid()}
    alive = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in own:
            continue
        with suppress(OSError):
            environment = (entry / "environ").read_bytes()
            if any(mark in environment for mark in marks):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if command:
                    alive[int(entry.name)] = command[:100]
    return alive
