"""A PostgreSQL server of the tests' own, for those that want one."""

import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

MISSING = "no PostgreSQL here; on Debian `apt-get install postgresql` brings it"


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A PostgreSQL server that nobody else uses: the address of its first database."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not programs:
        pytest.skip(MISSING)
    # Not in pytest's folder: as root we have to be someone else, who may not look in there.
    folder = Path(tempfile.mkdtemp(prefix="proctor-postgres-"))
    become = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
    if become:
        shutil.chown(folder, "nobody", "nogroup")
    made = [*become, str(programs[-1]), "-D", str(folder / "data"), "-U", "proctor", "-A", "trust", "-N"]
    subprocess.run(made, check=True, capture_output=True)
    # It dies with us, however we end.
    parent = ["setpriv", "--pdeathsig=KILL", *become[1:]]
    options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB"]
    process = subprocess.Popen(
        [
            *parent,
            str(programs[-1].parent / "postgres"),
            "-D",
            str(folder / "data"),
            "-k",
            str(folder),
            *options,
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(folder / ".s.PGSQL.5432", process)
        yield f"postgresql:///postgres?host={folder}&user=proctor"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(socket: Path, process: "subprocess.Popen[bytes]") -> None:
    import psycopg

    until = time.monotonic() + 30
    while True:
        assert process.poll() is None, "the server did not start"
        try:
            psycopg.connect(f"postgresql:///postgres?host={socket.parent}&user=proctor").close()
        except psycopg.OperationalError:
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.02)
        else:
            return


def new_database(server: str) -> str:
    """The address of an empty database on a server."""
    import psycopg

    name = f"t{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.replace("/postgres?", f"/{name}?")
