import unittest

from shares import split


class Shares(unittest.TestCase):
    def test_a_bill_that_divides_is_split_evenly(self):
        assert split(900, 3) == [300, 300, 300]

    def test_the_shares_add_up_to_the_bill(self):
        assert sum(split(1000, 3)) == 1000

    def test_nobody_pays_more_than_a_cent_above_another(self):
        shares = split(1005, 10)
        assert max(shares) - min(shares) <= 1
