"""A desk for dialogues, with a model that talks; a harbour for experiments, with a model server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from conversations import TALKING
from harbours import Harbour, in_the_harbour, write_harbour

from proctor.testing.model_server import ModelServer


@pytest.fixture
def talking_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in."""
    (tmp_path / "talking.yaml").write_text(TALKING)
    (tmp_path / "failing.yaml").write_text("failures: {every: 3, status: 500}\n" + TALKING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "proctor-home"))
    return tmp_path


@pytest.fixture
async def harbour(proctor: Any) -> AsyncIterator[Harbour]:
    """The harbour, with a server that answers as `harbour.answers["how"]` says."""
    answers = {"how": in_the_harbour}
    async with ModelServer(lambda request: answers["how"](request)) as server:
        made = Harbour(proctor, server)
        made.answers = answers
        write_harbour(proctor.folder)
        yield made
