import unittest

from durations import seconds, spoken


class Reading(unittest.TestCase):
    def test_durations_are_read(self):
        for text, wanted in {
            "90s": 90,
            "1h30m": 5400,
            "2d 4h": 187200,
            "1.5h": 5400,
            "250ms": 0.25,
            " 1m 30s ": 90,
            "1d1h1m1s1ms": 90061.001,
            "0s": 0,
            "1h 0.5m": 3630,
        }.items():
            with self.subTest(text=text):
                self.assertAlmostEqual(wanted, seconds(text), places=6)


class Refusing(unittest.TestCase):
    def test_nonsense_is_refused(self):
        for text in (
            "",
            "  ",
            "90",
            "s",
            "1s1h",
            "1h1h",
            "-5s",
            "1.5h30m",
            "1x",
            "1h 30",
            "h1",
            "1,5h",
            "1h;",
        ):
            with self.subTest(text=text), self.assertRaises(ValueError):
                seconds(text)

    def test_time_does_not_run_backwards(self):
        with self.assertRaises(ValueError):
            spoken(-1)


class Writing(unittest.TestCase):
    def test_durations_are_written(self):
        for amount, wanted in {5400: "1h30m", 0: "0s", 0.25: "250ms", 86400: "1d", 61.5: "1m1s500ms"}.items():
            self.assertEqual(wanted, spoken(amount))

    def test_what_is_written_can_be_read(self):
        for milliseconds in (0, 1, 999, 1000, 59999, 60000, 3599999, 3600000, 90061001):
            self.assertAlmostEqual(milliseconds / 1000, seconds(spoken(milliseconds / 1000)), places=6)


if __name__ == "__main__":
    unittest.main()
