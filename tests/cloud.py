"""A stand-in for AWS on this machine, for tests of what talks to it."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def aws() -> Iterator[str]:
    """The address of a stand-in that nobody has used yet."""
    # Here, not above: every test loads this file, and few need what takes a second to load.
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()
