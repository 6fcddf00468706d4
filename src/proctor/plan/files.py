"""Files that users name, as bytes to be read as YAML.

Knows nothing of what stands in them.
"""

from pathlib import Path

from proctor.errors import UsageError
from proctor.plan.reading import MOST_BYTES


def bytes_of(path: Path, what: str = "", *, remedy: str = "") -> bytes:
    """What a file holds; raises `UsageError` where it cannot be had.

    `what` is what the file should be: `the plan`. A byte more than may be read is enough to know that it
    is too large, which whoever reads it says.
    """
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        named = f"{what} {path}" if what else f"{path}"
        raise UsageError(f"cannot read {named}: {error.strerror}\n{remedy}".rstrip()) from error
