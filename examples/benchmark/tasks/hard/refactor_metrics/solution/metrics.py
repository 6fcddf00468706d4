"""Figures about events, in three shapes."""


class Metric:
    """One figure about some events."""

    def __init__(self, name, compute):
        self.name = name
        self._compute = compute

    def compute(self, events):
        return self._compute(events)


def _errors(events):
    return sum(not event["ok"] for event in events)


METRICS = [
    Metric("count", len),
    Metric("errors", _errors),
    Metric("error_rate", lambda events: round(_errors(events) / len(events), 3)),
    Metric("mean_ms", lambda events: round(sum(event["ms"] for event in events) / len(events), 1)),
    Metric("slowest_ms", lambda events: max(event["ms"] for event in events)),
]


def daily_report(events):
    return _report(events, "day")


def user_report(events):
    return _report(events, "user")


def export_rows(events):
    rows = [["day", "user", *(metric.name for metric in METRICS)]]
    for group, mine in _grouped(events, lambda event: (event["day"], event["user"])):
        rows.append([*group, *_figures(mine).values()])
    return rows


def _report(events, field):
    return {group: _figures(mine) for group, mine in _grouped(events, lambda event: event[field])}


def _grouped(events, key):
    groups = {}
    for event in events:
        groups.setdefault(key(event), []).append(event)
    return sorted(groups.items())


def _figures(events):
    return {metric.name: metric.compute(events) for metric in METRICS}
