"""What a running agent prints, in a file that others on this machine can follow.

The file is in the folder of the session, where no confined program sees it, and is removed when the agent has
ended: its output is then in the store.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from proctor.formatting import Clip

LOG = "output.log"
LARGEST_LOG = 20_000_000
"""Characters; what an agent prints beyond is only in the store, clipped."""


class LiveOutput(Clip):
    """Collects what an agent prints, and writes it to the file at once."""

    def __init__(self, folder: Path, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._path = folder / LOG
        self._redact = redact
        self._room = LARGEST_LOG

    def add(self, text: str) -> None:
        """Add the next chunk."""
        super().add(text)
        shown = self._redact(text)[: self._room]
        self._room -= len(shown)
        # Whether others can follow it does not matter to the agent.
        with suppress(OSError):
            if shown:
                with self._path.open("a", encoding="utf-8", errors="replace") as log:
                    log.write(shown)

    def close(self) -> None:
        """Remove the file."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def read_live_output(folder: Path, offset: int = 0) -> tuple[str, int]:
    """What the agent has printed after `offset` bytes, in whole lines, and where they end."""
    try:
        with (folder / LOG).open("rb") as log:
            log.seek(offset)
            data = log.read(1_000_000)
    except OSError:
        return "", offset
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode("utf-8", "replace"), offset + len(whole)
