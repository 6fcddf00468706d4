"""Items, rows and pages of a work queue, made by hand."""

from datetime import UTC, datetime

from proctor.batch.queue import WorkItem
from proctor.item import Item
from proctor.models.rate_limits import PoolState

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def item(prompt="p", **more):
    return Item(**{"runner": "prompt", "prompt": prompt, "model": "m"} | more)


def work(name="a", **more):
    return WorkItem(**{"item": item(name), "id": name, "attempts": 0, "tries": 0} | more)


def queued(number, attempts=0):
    row = {"id": f"i{number}", "position": number, "attempts": attempts, "tries": attempts, "repeat": 1}
    row |= {"runner": "prompt", "prompt": "p", "agent": "", "model": "m", "details": "{}", "settings": "{}"}
    row |= {"factors": "{}", "tokensTotal": 5, "toolCalls": 2, "costUsd": 0.5, "startedAt": "t", "repo": ""}
    return row


class Pages:
    """Pages of queued rows, and after which positions they were asked for."""

    def __init__(self, *pages):
        self.pages, self.after = list(pages), []

    async def load(self, after):
        self.after.append(after)
        return self.pages.pop(0) if self.pages else []


def pool(in_use=0, waiting=0, limit=8.0, ago=None, held=0.0, name="p", holder=""):
    return PoolState(
        name=name,
        limit=int(limit),
        limit_of_all=limit,
        in_use=in_use,
        waiting=waiting,
        calls=1,
        limited=2,
        waited_seconds=3.5,
        held_seconds=held,
        cut_seconds_ago=ago,
        holder=holder,
    )
