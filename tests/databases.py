"""Databases of tests: a PostgreSQL server of their own, and statements on any store."""

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor.store import Store
from proctor.testing import eventually

MISSING = "no PostgreSQL here; on Debian `apt-get install postgresql` brings it"


class PostgresServer:
    """A PostgreSQL server that nobody else uses, in a folder of its own."""

    def __init__(self) -> None:
        programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not programs:
            pytest.skip(MISSING)
        # Not in pytest's folder: as root we have to be someone else, who may not look in there. In memory
        # where there is room: a database is three hundred files, 8 MB, and each test makes one.
        has_memory = os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 2 << 30
        parent = "/dev/shm" if has_memory else None
        self._folder = folder = Path(tempfile.mkdtemp(prefix="proctor-postgres-", dir=parent))
        become = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        become = become if os.geteuid() == 0 else []
        if become:
            shutil.chown(folder, "nobody", "nogroup")
        made = [*become, str(programs[-1]), "-D", str(folder / "data"), "-U", "proctor", "-A", "trust", "-N"]
        subprocess.run(made, check=True, capture_output=True)
        # It dies with us, however we end.
        parent = ["setpriv", "--pdeathsig=KILL", *become[1:]]
        settings = ("listen_addresses=", "shared_buffers=16MB", "fsync=off", "full_page_writes=off")
        # Shared memory in its own folder: a killed server leaves none behind.
        settings += ("dynamic_shared_memory_type=mmap",)
        settings += ("wal_level=minimal", "max_wal_senders=0", "autovacuum=off", "max_wal_size=256MB")
        options = [word for setting in settings for word in ("-c", setting)]
        program = str(programs[-1].parent / "postgres")
        self._command = [*parent, program, "-D", str(folder / "data"), "-k", str(folder), *options]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql:///postgres?host={folder}&user=proctor"

    def start(self, *, waits: bool = True) -> None:
        """Start it, and wait until it answers."""
        nowhere = subprocess.DEVNULL
        self._process = subprocess.Popen(self._command, stdout=nowhere, stderr=nowhere)
        if waits:
            _wait_for(self._folder / ".s.PGSQL.5432", self._process)

    def stop(self) -> None:
        """Disconnect everybody and shut it down."""
        assert self._process
        self._process.send_signal(signal.SIGINT)
        self._process.wait()

    def remove(self) -> None:
        """Shut it down at once and delete its folder."""
        if self._process:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A PostgreSQL server that nobody else uses: the address of its first database."""
    with postgresql_server() as address:
        yield address


@contextmanager
def postgresql_server() -> Iterator[str]:
    """The same as long as the block."""
    made = PostgresServer()
    try:
        made.start()
        yield made.url
    finally:
        made.remove()


def _wait_for(socket: Path, process: "subprocess.Popen[bytes]") -> None:
    import psycopg

    def answers() -> bool:
        assert process.poll() is None, "the server did not start"
        try:
            psycopg.connect(f"postgresql:///postgres?host={socket.parent}&user=proctor").close()
        except psycopg.OperationalError:
            return False
        return True

    eventually(answers)


def new_database(server: str) -> str:
    """The address of an empty database on a server."""
    return _create(server, "template1")


def new_store(server: str) -> str:
    """The address of an empty store on a server: a copy of one that was made once for all tests."""
    if server not in _templates:
        made = new_database(server)
        Store(made).close()
        _templates[server] = made.partition("?")[0].rpartition("/")[2]
    return _create(server, _templates[server])


def query(store: Store, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
    """The rows of any statement, on a connection of its own; decrypted if the store has the key."""
    with closing(store._database.connect()) as connection:
        return connection.rows(sql, parameters)


_templates: dict[str, str] = {}
_databases: list[tuple[str, str, str]] = []
"""Server, test and name of the databases that exist."""


def _create(server: str, template: str) -> str:
    import psycopg

    name, test = f"t{uuid.uuid4().hex}", os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    with psycopg.connect(server, autocommit=True) as connection:
        for made in [made for made in _databases if made[0] == server and made[1] != test]:
            _databases.remove(made)
            if made[2] != _templates.get(server):
                connection.execute(f"DROP DATABASE {made[2]} WITH (FORCE)")
        _databases.append((server, test, name))
        # A third of the time of the default, which writes each page to the log.
        strategy = "STRATEGY file_copy" if connection.info.server_version >= 150000 else ""
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} {strategy}")
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture(params=["sqlite", "postgresql"])
def either_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store, in each of the databases."""
    is_file = request.param == "sqlite"
    url = str(tmp_path / "proctor.db") if is_file else new_store(request.getfixturevalue("server"))
    with Store(url) as opened:
        yield opened
