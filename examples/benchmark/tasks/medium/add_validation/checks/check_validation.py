import unittest

import signup

GOOD = {"name": "Ada Lovelace", "email": "ada@example.org", "age": "36"}


def refused(form, registry=None):
    """The fields that are complained about."""
    try:
        (registry or signup.Registry()).add(form)
    except signup.Invalid as invalid:
        assert all(isinstance(said, str) and said.strip() for said in invalid.problems.values())
        return set(invalid.problems)
    return set()


class Refusing(unittest.TestCase):
    def test_each_field_is_checked(self):
        for field, values in {
            "name": ("", "   ", "x" * 41),
            "email": (
                "",
                "ada",
                "ada@",
                "@example.org",
                "ada@example",
                "a@b@example.org",
                "a da@example.org",
            ),
            "age": ("", "12", "121", "-20", "3.5", "old", "0x20"),
        }.items():
            for value in values:
                with self.subTest(field=field, value=value):
                    self.assertEqual({field}, refused(GOOD | {field: value}))

    def test_all_reasons_are_given_together(self):
        self.assertEqual({"name", "email", "age"}, refused({}))

    def test_an_address_is_registered_once(self):
        registry = signup.Registry()
        registry.add(GOOD)
        self.assertEqual({"email"}, refused(GOOD | {"email": "ADA@Example.org"}, registry))


class Storing(unittest.TestCase):
    def test_a_member_is_tidied(self):
        registry = signup.Registry()
        member = registry.add({"name": "  Ada   Lovelace ", "email": "ADA@Example.org", "age": "13"})
        self.assertEqual({"name": "Ada Lovelace", "email": "ada@example.org", "age": 13}, member)
        self.assertEqual([member], registry.members)

    def test_the_limits_are_allowed(self):
        self.assertEqual(set(), refused(GOOD | {"name": "x" * 40, "age": "120"}))


class LeavingNothing(unittest.TestCase):
    def test_nothing_is_stored_of_a_refused_sign_up(self):
        registry = signup.Registry()
        self.assertEqual({"age"}, refused(GOOD | {"age": "7"}, registry))
        self.assertEqual([], registry.members)
        self.assertEqual(set(), refused(GOOD, registry))


if __name__ == "__main__":
    unittest.main()
