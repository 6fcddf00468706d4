"""Failures of a run, grouped by reason and message."""

from dataclasses import dataclass

from proctor.runner import Outcome
from proctor.stats.outcomes import MESSAGE_CHARACTERS, FailureGroups, group_failures, message_pattern
from proctor.store import StoreReader
from proctor.store.item_lists import failure_texts


def failures_of(read: StoreReader, run_id: str) -> FailureGroups:
    """All failures of a run by reason and message, apart from what differs between the items."""
    rows = failure_texts(read, run_id, characters=MESSAGE_CHARACTERS)
    return group_failures((row["position"], row["reason"], row["error"]) for row in rows)


@dataclass(slots=True)
class CountedFailure:
    """Failures with one status whose messages differ only in values."""

    status: str
    example: str
    """The message of the first of them."""
    count: int = 0


class FailureCounts:
    """Failures of a run that is executed, counted as they happen."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], CountedFailure] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, outcome: Outcome) -> CountedFailure:
        """Count a failure; its group."""
        message = outcome.error or outcome.reason
        key = (outcome.status, message_pattern(message))
        group = self._groups.setdefault(key, CountedFailure(outcome.status, message))
        group.count += 1
        return group

    def repeated(self, limit: int) -> list[CountedFailure]:
        """The groups with several failures, the largest first."""
        groups = [group for group in self._groups.values() if group.count > 1]
        return sorted(groups, key=lambda group: -group.count)[:limit]
