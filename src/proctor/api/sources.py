"""Where results come from: runs of the store, or files with a table of results."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from re import sub
from tempfile import TemporaryDirectory

from proctor.jobs.imported.table import import_table
from proctor.stats.results import Results, load_from
from proctor.store import Store, StoreReader


def load_sources(
    store: Store, names: Sequence[str], now: datetime, *, columns: Mapping[str, str] | None = None
) -> Results:
    """The finished items of runs, and the rows of result files (`results.csv`), as one table."""
    with _opened(store, names, now, columns or {}) as sources:
        return load_from(sources, now)


@contextmanager
def _opened(
    store: Store, names: Sequence[str], now: datetime, columns: Mapping[str, str]
) -> Iterator[list[tuple[StoreReader, str]]]:
    """Each name as a reader and a run in it; files are read into a store of their own that is removed."""
    with ExitStack() as stack:
        sources: list[tuple[StoreReader, str]] = []
        used: set[str] = set()
        for name in names:
            path = Path(name)
            if not path.exists() or _is_run(store, name, now):
                sources.append((store.read, name))
                continue
            folder = stack.enter_context(TemporaryDirectory(prefix="proctor-table-"))
            copy = stack.enter_context(Store(str(Path(folder) / "table.db")))
            stem = sub(r"[^A-Za-z0-9._-]", "-", path.stem).lstrip(".-")[:100] or "table"
            run_id = next(
                each for each in (stem, *(f"{stem}-{n}" for n in range(2, 100))) if each not in used
            )
            used.add(run_id)
            import_table(copy, [path], run_id, now, columns=columns)
            sources.append((copy.read, run_id))
        yield sources


def _is_run(store: Store, name: str, now: datetime) -> bool:  # noqa: ARG001
    """Whether a run has exactly this name: a run wins over a file."""
    return bool(store.read.exact_batch(name))
