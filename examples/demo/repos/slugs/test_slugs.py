import unittest

from slugs import slugify


class Slugs(unittest.TestCase):
    def test_a_title_becomes_lower_case(self):
        assert slugify("Proctor") == "proctor"

    def test_marks_between_words_become_one_dash(self):
        assert slugify("Hello, World") == "hello-world"

    def test_no_dash_stands_at_either_end(self):
        assert slugify("(Really?)") == "really"
