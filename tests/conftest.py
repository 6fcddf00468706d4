"""What tests of the whole engine share: a store, batches run in this process, and the real command."""

import atexit
import gc
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from cloud import aws as aws
from command_server import GC_THRESHOLD, CommandServer
from commands import Command, clean_environment
from databases import either_store as either_store
from databases import query
from databases import server as server
from engines import engine_calls as engine_calls
from proctor.batch.engines import LocalEngine
from proctor.batch.executor import Executor, Observer
from proctor.batch.extend import Extension, extend
from proctor.batch.host import clear_leftovers
from proctor.batch.lifecycle import create
from proctor.context import RunContext, Settings, WorkerContext
from proctor.evaluator import FindReference
from proctor.job import BatchEnd, ItemFinished, Job, StoredPlan
from proctor.jobs.coding.job import CodingPlan, read_plan
from proctor.models import ModelRouter
from proctor.store import RetrySelection, Store
from proctor.store.keys import Keys
from proctor.store.writer import this_process
from proctor.testing import make_git_repository

# Failures in what test files share say what they compared, too.
_FILES = {path.stem for path in Path(__file__).parent.rglob("*.py")}
_SHARED = {name for name in _FILES if not name.startswith("test_")} - sys.modules.keys()
pytest.register_assert_rewrite(*sorted(_SHARED))

pytest_plugins = ["proctor.testing.fixtures", "pytester"]


def _make_interpreter(folder: Path) -> Path:
    """A virtual environment without packages; the folder of its programs.

    Tests start `python3` some thousand times. This one starts in 20 ms of processor time: the scripts of a
    version manager take 170 ms, and the `.pth` files of an installation with packages up to 50 ms.
    """
    programs = folder / "bin"
    programs.mkdir()
    for name in ("python", "python3"):
        (programs / name).symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    settings = f"home = {sys.base_prefix}/bin\ninclude-system-site-packages = false\n"
    (folder / "pyvenv.cfg").write_text(settings)
    return programs


INSTALLED_BY_MAKE = ("bubblewrap", "chromium", "PostgreSQL", "Inspect")
CAN_INSTALL = os.geteuid() == 0 and shutil.which("apt-get") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """A test that is skipped for a program that `make test` could have installed has failed."""
    report = yield
    reason = str(report.longrepr) if report.skipped else ""
    if CAN_INSTALL and "install" in reason and any(name in reason for name in INSTALLED_BY_MAKE):
        report.outcome = "failed"
    return report


@pytest.fixture
def folder_on_disk() -> Iterator[Path]:
    """A folder outside of /dev/shm, which sandboxes treat in their own way."""
    with tempfile.TemporaryDirectory(prefix="proctor-test-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


# What is compiled is kept, whatever the shell says: the asserts of all tests take each process seven seconds.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Collecting makes a million objects that stay: looking for garbage among them is a third of its time.
gc.disable()


LONGEST = ("test_axe.py", "test_package.py", "test_demo.py")
"""Files with the longest tests: started late, they would be all that still runs at the end."""
LATE = ("test_type_checkers_see_the_names_and_refuse_a_misspelled_one",)
"""It uses the cache of the types, which `make test` checks beside the tests: at first there is none."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest tests."""
    items.sort(key=lambda item: (item.path.name not in LONGEST, item.name in LATE))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave modules and tests out of all later searches for garbage, and search seldom.

    With the default of 700 new objects the searches take a sixth of the processor time of the tests.
    """
    gc.freeze()
    # What is frozen at the end of the process counts as leaked for DuckDB, which then prints a page of it.
    atexit.register(gc.unfreeze)
    gc.set_threshold(*GC_THRESHOLD)
    gc.enable()


# Threads of BLAS take turns on matrices of ten rows: several workers with two each need five times the
# processor time. Read when numpy is loaded.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

_interpreter = tempfile.TemporaryDirectory(prefix="proctor-python-")
os.environ["PATH"] = os.pathsep.join([str(_make_interpreter(Path(_interpreter.name))), os.environ["PATH"]])

# The same examples each time, however slow the machine is.
settings.register_profile("proctor", derandomize=True, deadline=None, max_examples=50)
settings.register_profile("long", deadline=None, max_examples=1000)
settings.load_profile("proctor")
# Hypothesis would parse all of our modules in each process, and try the constants that it finds there: four
# seconds, and other examples after each change of the code.
providers._get_local_constants = lambda: providers._local_constants


def _system_folder(controller: int) -> Path:
    return Path(f"/opt/proctor-test-{controller}")


@pytest.fixture
def system_folder() -> Path:
    """A folder of the system, for root. It stays until all tests have ended: bubblewrap covers what is
    unreadable there, and fails when that vanishes in the same moment."""
    folder = _system_folder(os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid())
    folder.mkdir(exist_ok=True)
    return folder


def pytest_sessionfinish() -> None:
    """Remove what only the last process of the tests may remove."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(_system_folder(os.getpid()), ignore_errors=True)


def now() -> datetime:
    return datetime.now(UTC)


class WorkshopJob(Job):
    """A job without plans or files, whose attempts have these dependencies."""

    def __init__(self, context: WorkerContext, find_reference: FindReference | None) -> None:
        self.context, self.find_reference = context, find_reference

    def attempts(self, *_: object) -> WorkerContext:
        return self.context

    def ground_truth(self, *_: object) -> FindReference | None:
        return self.find_reference


class WorkshopObserver(Observer):
    """Passes finished items on."""

    def __init__(self, watch: Callable[[ItemFinished], None]) -> None:
        self.watched = watch

    def item_finished(self, item: ItemFinished) -> None:
        self.watched(item)


class Workshop:
    """One folder with a store in it, and all that is needed to carry out batches there."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder, self.store = folder, store
        self.finished: list[ItemFinished] = []
        self.prices: Mapping[str, Mapping[str, float]] = {}
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        self.models = self._models(environment)
        self.context = WorkerContext(
            settings=Settings(
                home=folder / "home", store_url="", user_environment=environment, sandbox="none"
            ),
            environment=environment,
            models=self.models,
            now=now,
            monotonic=time.monotonic,
        )

    def _models(self, environment: Mapping[str, str]) -> ModelRouter:
        return ModelRouter(environment, folders=[self.folder], prices=self.prices)

    def plan(self, text: str) -> CodingPlan:
        path = str(self.folder / "plan.yaml")
        plan = read_plan(text, file="plan.yaml", folder=self.folder, path=path, folders=(self.folder,))
        self.prices = plan.model_options().prices or {}
        self.models = self._models(self.context.environment)
        return plan

    def extend(self, text: str, run_id: str = "run") -> Extension:
        """Extend a batch to a changed plan."""
        plan = self.plan(text)
        return extend(self.store, run_id, plan.columns(), plan.items())

    def launch(self, text: str, run_id: str = "run") -> str:
        """Make a batch of a plan; who owns it."""
        owner = this_process()
        plan = self.plan(text)
        create(
            self.store,
            "coding",
            plan.columns(),
            plan.items(),
            run_id=run_id,
            owner=owner,
            version="0",
            now=now(),
        )
        return owner

    def executor(
        self,
        owner: str,
        run_id: str = "run",
        *,
        watch: Callable[[ItemFinished], None] | None = None,
        find_reference: FindReference | None = None,
        **changes: Any,
    ) -> Executor:
        # Those of the workshop stay open for further runs.
        models = changes.pop("models", None) or self._models(self.context.environment)
        context = replace(self.context, models=models, **changes)
        ctx = RunContext(
            context.settings,
            owner=owner,
            now=context.now,
            monotonic=context.monotonic,
            settings_for=lambda _: ctx.settings,
            keys=Keys,
            notice=lambda _: None,
            store=self.store,
        )
        observer = WorkshopObserver(watch or self.finished.append)
        job = WorkshopJob(context, find_reference)
        return Executor(job, StoredPlan(), run_id, ctx, models, engine=LocalEngine(), observer=observer)

    async def run(self, text: str, run_id: str = "run", **changes: Any) -> BatchEnd:
        """Carry out a plan from its first item to its end."""
        owner = self.launch(text, run_id)
        return (await self.executor(owner, run_id, **changes).run()).end

    async def resume(self, run_id: str = "run", *, errors: bool = False, **changes: Any) -> BatchEnd:
        """Go on with a batch whose process has stopped."""
        owner = self.take_over(run_id, errors=errors)
        return (await self.executor(owner, run_id, **changes).run()).end

    def take_over(self, run_id: str = "run", *, errors: bool = False) -> str:
        owner = this_process()
        cut_off = self.store.resume_batch(run_id, owner, RetrySelection(errors=errors), now())
        clear_leftovers(cut_off, self.context.home, self.context.environment)
        return owner

    def batch(self, run_id: str = "run") -> dict[str, Any]:
        return self.store.read.batch(run_id, now())

    def items(self, run_id: str = "run") -> list[dict[str, Any]]:
        return self.store.read.items(run_id, limit=1_000_000)

    def rows(self, table: str, order: str = "1") -> list[dict[str, Any]]:
        return query(self.store, f'SELECT * FROM "{table}" ORDER BY {order}')

    def outcomes(self, run_id: str = "run") -> list[tuple[str, str]]:
        """The status and reason of each item, in the order of the plan."""
        return [(item["status"], item["reason"]) for item in self.items(run_id)]


@pytest.fixture
def store(proctor_store: Store) -> Store:
    """An empty store. Folders whose tests need another have a fixture of this name."""
    return proctor_store


@pytest.fixture
async def workshop(tmp_path: Path, store: Store) -> AsyncIterator[Workshop]:
    """Somewhere to carry out batches in this process."""
    made = Workshop(tmp_path, store)
    yield made
    await made.models.close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with one commit on `main`."""
    return make_git_repository(tmp_path / "shop", {"shop.py": "total = 1 - 1\n"})


@pytest.fixture(scope="session")
def command_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandServer]:
    """Runs commands; one for all tests of a worker."""
    server = CommandServer(clean_environment(tmp_path_factory.mktemp("commands")))
    yield server
    server.close()


@pytest.fixture
def proctor(tmp_path: Path, command_server: CommandServer) -> Command:
    """`proctor("runs", "--json")` runs the command."""
    return Command(tmp_path, command_server)
