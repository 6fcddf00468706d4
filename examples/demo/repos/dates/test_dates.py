import unittest

from dates import days_in_month, is_leap


class Dates(unittest.TestCase):
    def test_every_fourth_year_is_a_leap_year(self):
        assert is_leap(2024)
        assert not is_leap(2023)

    def test_full_centuries_are_not(self):
        assert days_in_month(1900, 2) == 28

    def test_every_fourth_century_is(self):
        assert days_in_month(2000, 2) == 29
