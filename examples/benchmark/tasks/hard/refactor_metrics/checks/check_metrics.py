import ast
import unittest
from pathlib import Path

import metrics

EVENTS = [
    {"day": "2026-03-02", "user": "bo", "ms": 120, "ok": True},
    {"day": "2026-03-01", "user": "al", "ms": 80, "ok": False},
    {"day": "2026-03-01", "user": "bo", "ms": 45.5, "ok": True},
    {"day": "2026-03-01", "user": "al", "ms": 81, "ok": True},
    {"day": "2026-03-02", "user": "cy", "ms": 300, "ok": False},
    {"day": "2026-03-02", "user": "bo", "ms": 7, "ok": False},
]
NAMES = ["count", "errors", "error_rate", "mean_ms", "slowest_ms"]


class Behaviour(unittest.TestCase):
    def test_days(self):
        first = {"count": 3, "errors": 1, "error_rate": 0.333, "mean_ms": 68.8, "slowest_ms": 81}
        second = {"count": 3, "errors": 2, "error_rate": 0.667, "mean_ms": 142.3, "slowest_ms": 300}
        report = metrics.daily_report(EVENTS)
        self.assertEqual({"2026-03-01": first, "2026-03-02": second}, report)
        self.assertEqual(["2026-03-01", "2026-03-02"], list(report))
        self.assertEqual(NAMES, list(report["2026-03-01"]))

    def test_users(self):
        report = metrics.user_report(EVENTS)
        self.assertEqual(["al", "bo", "cy"], list(report))
        self.assertEqual(
            {"count": 3, "errors": 1, "error_rate": 0.333, "mean_ms": 57.5, "slowest_ms": 120}, report["bo"]
        )

    def test_rows(self):
        rows = metrics.export_rows(EVENTS)
        self.assertEqual(["day", "user", *NAMES], rows[0])
        self.assertEqual(["2026-03-02", "bo", 2, 1, 0.5, 63.5, 120], rows[3])
        self.assertEqual(5, len(rows))

    def test_nothing(self):
        self.assertEqual({}, metrics.daily_report([]))
        self.assertEqual(1, len(metrics.export_rows([])))


class Structure(unittest.TestCase):
    def test_the_metrics_are_listed(self):
        self.assertEqual(NAMES, [metric.name for metric in metrics.METRICS])
        self.assertTrue(all(isinstance(metric, metrics.Metric) for metric in metrics.METRICS))
        self.assertEqual([6, 3], [metric.compute(EVENTS) for metric in metrics.METRICS[:2]])

    def test_no_figure_is_named_twice(self):
        texts = [
            node.value
            for node in ast.walk(ast.parse(Path("metrics.py").read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        self.assertEqual([1] * len(NAMES), [texts.count(name) for name in NAMES])


class Extending(unittest.TestCase):
    def test_a_new_metric_appears_everywhere(self):
        class Users(metrics.Metric):
            def __init__(self):
                self.name = "users"

            def compute(self, events):
                return len({event["user"] for event in events})

        metrics.METRICS.append(Users())
        try:
            self.assertEqual(2, metrics.daily_report(EVENTS)["2026-03-01"]["users"])
            self.assertEqual([*NAMES, "users"], list(metrics.user_report(EVENTS)["al"]))
            self.assertEqual("users", metrics.export_rows(EVENTS)[0][-1])
            self.assertEqual(1, metrics.export_rows(EVENTS)[1][-1])
        finally:
            metrics.METRICS.pop()


if __name__ == "__main__":
    unittest.main()
