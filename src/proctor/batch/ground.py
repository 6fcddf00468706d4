"""What was said about single sessions with a job, found again when they are judged.

By the session's id, or for every session of a scenario.

Knows nothing of files or of who judges.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.evaluator import Reference


class Ground:
    """What was said about single sessions."""

    def __init__(self, metadata: Sequence[Mapping[str, Any]]) -> None:
        """Of two entries about the same session or scenario the last one counts."""
        self._by_session = {entry["sessionId"]: entry for entry in metadata if entry.get("sessionId")}
        self._by_scenario = {
            entry["testScenarioId"]: entry for entry in metadata if not entry.get("sessionId")
        }
        self.unused = set(self._by_session)
        """Ids of sessions that were spoken of and not asked about."""

    def of(self, external_id: str, scenario: str = "") -> Mapping[str, Any]:
        """What is said about one session; nothing is an empty mapping."""
        self.unused.discard(external_id)
        return self._by_session.get(external_id) or self._by_scenario.get(scenario) or {}


def reference_of(entry: Mapping[str, Any]) -> Reference | None:
    """The ground truth in what is said about a session; None: there is none."""
    inline = (entry.get("groundTruth") or {}).get("inline")
    if not inline:
        return None
    trajectory = _bare(inline.get("expectedTrajectory"), "toolNames")
    responses = {
        number: str(_bare(turn.get("expectedResponse"), "text"))
        for number, turn in enumerate(inline.get("turns") or ())
        if turn.get("expectedResponse") is not None
    }
    return Reference(
        assertions=tuple(str(_bare(each, "text")) for each in inline.get("assertions") or ()),
        trajectory=None if trajectory is None else tuple(map(str, trajectory)),
        responses=responses,
    )


def _bare(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else value
