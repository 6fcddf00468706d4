"""What is to be judged, read from the store for those who judge it.

The evaluators of one session are usually at it at the same time, so what was read last is kept for a
moment. Ground truth is read once for the whole job.

Knows nothing of who judges.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

from proctor.batch.ground import Ground, reference_of
from proctor.evaluator import Evidence
from proctor.store import Store

MOST_KEPT = 8
"""Sessions that are kept: those under way at the usual concurrency. A long one may take many megabytes."""


class EvidenceRoom:
    """Hands out the sessions that the items of one batch are about."""

    def __init__(self, store: Store, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._kept: OrderedDict[str, Evidence] = OrderedDict()
        self._ground: Ground | None = None
        self._lock = Lock()

    async def show(self, session_id: str, traces: Sequence[str] = (), scenario: str = "") -> Evidence:
        """A session with its ground truth; of some `traces` alone, if any are named."""
        found = self._kept.get(session_id)
        if found is None:
            found = await asyncio.to_thread(self._store.read.evidence, session_id)
            self._kept[session_id] = found
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        ground = await asyncio.to_thread(self._ground_truth) if self._ground is None else self._ground
        shown = replace(found, reference=reference_of(ground.of(found.session_id, scenario)))
        return narrowed(shown, traces) if traces else shown

    def _ground_truth(self) -> Ground:
        with self._lock:
            if self._ground is None:
                self._ground = Ground(self._store.evaluations.metadata(self._run_id))
            return self._ground


def narrowed(evidence: Evidence, traces: Sequence[str]) -> Evidence:
    """The same session, of which only these traces, and the tool calls in them, are judged."""
    wanted = set(traces)
    calls = {
        call.call_id
        for trace in evidence.traces
        if trace.id in wanted
        for call in trace.tool_calls
        if call.call_id
    }
    return replace(evidence, targets=frozenset(wanted | calls))
