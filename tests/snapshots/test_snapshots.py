"""Today's behavior, recorded: item ids, documents, output files, digests, columns and HTTP shapes.

`PROCTOR_RECORD_SNAPSHOTS=1 pytest tests/snapshots` rewrites `recorded/`. Look through the difference
before committing it: ids, digests and columns that change make stored runs and scores incomparable.
Sentences for people are masked and may change freely.
"""

from pathlib import Path

import pytest
from snapshot_tools import EXAMPLES, Desk, check_snapshot

CODING_PLANS = sorted(
    path.stem for path in (EXAMPLES / "plans").glob("*.yaml") if "matrix:" in path.read_text()
)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize("plan", CODING_PLANS)
def test_batch_keeps_its_ids_documents_and_requests(desk: Desk, plan: str) -> None:
    desk.copy("plans/*", "demo/*")
    desk.make_repositories()

    snapshot = {
        "dryRun": desk.snapshot("batch", f"{plan}.yaml", "--dry-run"),
        "batch": desk.snapshot("batch", f"{plan}.yaml"),
        "items": desk.items(),
        "requests": desk.request_digests(),
    }
    check_snapshot(f"batch-{plan}", snapshot)
