"""Figures about events, in three shapes."""


def daily_report(events):
    days = {}
    for event in events:
        days.setdefault(event["day"], []).append(event)
    report = {}
    for day in sorted(days):
        mine = days[day]
        errors = 0
        for event in mine:
            if not event["ok"]:
                errors += 1
        total = 0
        slowest = 0
        for event in mine:
            total += event["ms"]
            if event["ms"] > slowest:
                slowest = event["ms"]
        report[day] = {
            "count": len(mine),
            "errors": errors,
            "error_rate": round(errors / len(mine), 3),
            "mean_ms": round(total / len(mine), 1),
            "slowest_ms": slowest,
        }
    return report


def user_report(events):
    users = {}
    for event in events:
        users.setdefault(event["user"], []).append(event)
    report = {}
    for user in sorted(users):
        mine = users[user]
        errors = len([event for event in mine if not event["ok"]])
        total = sum(event["ms"] for event in mine)
        report[user] = {
            "count": len(mine),
            "errors": errors,
            "error_rate": round(errors / len(mine), 3),
            "mean_ms": round(total / len(mine), 1),
            "slowest_ms": max(event["ms"] for event in mine),
        }
    return report


def export_rows(events):
    rows = [["day", "user", "count", "errors", "error_rate", "mean_ms", "slowest_ms"]]
    groups = {}
    for event in events:
        groups.setdefault((event["day"], event["user"]), []).append(event)
    for day, user in sorted(groups):
        mine = groups[day, user]
        errors = sum(1 for event in mine if not event["ok"])
        mean = sum(event["ms"] for event in mine) / len(mine)
        slowest = sorted(event["ms"] for event in mine)[-1]
        rows.append([day, user, len(mine), errors, round(errors / len(mine), 3), round(mean, 1), slowest])
    return rows
