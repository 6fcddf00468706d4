import unittest

from pages import page, page_count


class Counting(unittest.TestCase):
    def test_pages_are_counted(self):
        for entries, size, wanted in (
            (0, 10, 0),
            (1, 10, 1),
            (10, 10, 1),
            (20, 10, 2),
            (25, 10, 3),
            (3, 1, 3),
        ):
            with self.subTest(entries=entries, size=size):
                self.assertEqual(wanted, page_count(list(range(entries)), size))

    def test_a_page_holds_at_least_one(self):
        for size in (0, -1):
            with self.assertRaises(ValueError):
                page_count([1], size)


class Cutting(unittest.TestCase):
    def test_all_pages_together_are_the_list(self):
        for count in range(0, 31):
            entries = list(range(count))
            for size in (1, 3, 10):
                shown = [
                    entry for n in range(1, page_count(entries, size) + 1) for entry in page(entries, size, n)
                ]
                self.assertEqual(entries, shown)

    def test_beyond_the_last_page_there_is_nothing(self):
        self.assertEqual([], page([1, 2, 3], 2, 3))


if __name__ == "__main__":
    unittest.main()
