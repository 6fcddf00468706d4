import random
import signal
import unittest

import order
from order import build_order


class Ordering(unittest.TestCase):
    def test_examples(self):
        for needs, wanted in (
            ({}, []),
            ({"app": ["lib"], "lib": []}, ["lib", "app"]),
            ({"app": ["lib"]}, ["lib", "app"]),
            ({"c": [], "a": ["c"], "b": []}, ["b", "c", "a"]),
            ({"b": ["a"], "c": ["a"], "d": ["b", "c"], "e": []}, ["a", "b", "c", "d", "e"]),
            ({"x": ["y", "y"], "y": []}, ["y", "x"]),
        ):
            with self.subTest(needs=needs):
                self.assertEqual(wanted, build_order(needs))

    def test_the_order_of_the_input_does_not_matter(self):
        needs = {"d": ["b", "c"], "b": ["a"], "c": ["a"], "f": ["e", "d"], "e": []}
        wanted = build_order(needs)
        for seed in range(20):
            parts = list(needs)
            random.Random(seed).shuffle(parts)
            self.assertEqual(wanted, build_order({part: list(reversed(needs[part])) for part in parts}))

    def test_the_input_is_left_alone(self):
        needs = {"app": ["lib"]}
        build_order(needs)
        self.assertEqual({"app": ["lib"]}, needs)


class Circles(unittest.TestCase):
    def test_a_circle_is_named(self):
        for needs in (
            {"a": ["a"]},
            {"b": ["a"], "a": ["b"]},
            {"z": ["m"], "m": ["k"], "k": ["z"], "x": ["z"], "y": []},
            {"top": ["c"], "c": ["d"], "d": ["e"], "e": ["c"], "free": []},
        ):
            with self.subTest(needs=needs), self.assertRaises(ValueError) as caught:
                build_order(needs)
            self.assertIsInstance(caught.exception, order.Circle)
            parts = list(caught.exception.parts)
            self.assertEqual(min(parts), parts[0])
            self.assertEqual(len(set(parts)), len(parts))
            for part, following in zip(parts, [*parts[1:], parts[0]]):
                self.assertIn(following, needs[part])


class Size(unittest.TestCase):
    def setUp(self):
        # Ends a test that takes longer, whatever it is doing.
        signal.alarm(20)
        self.addCleanup(signal.alarm, 0)

    def test_a_long_chain(self):
        size = 100_000
        found = build_order({f"{n:06}": [f"{n + 1:06}"] for n in range(size)})
        self.assertEqual([f"{n:06}" for n in range(size, -1, -1)], found)

    def test_a_wide_project(self):
        parts = {f"part{n:06}": [f"part{n // 2:06}"] if n else [] for n in range(100_000)}
        parts["part000000"] = []
        self.assertEqual(100_000, len(build_order(parts)))


if __name__ == "__main__":
    unittest.main()
