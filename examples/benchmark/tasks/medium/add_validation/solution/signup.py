"""Members of a club."""

import re


class Invalid(Exception):
    """A sign-up that cannot be taken; `problems` says why, field by field."""

    def __init__(self, problems):
        super().__init__("; ".join(f"{field}: {problem}" for field, problem in problems.items()))
        self.problems = problems


class Registry:
    def __init__(self):
        self.members = []

    def add(self, form):
        """Store a member, or raise `Invalid` with everything that is wrong."""
        member, problems = {}, {}
        for field, tidy in (("name", _name), ("email", self._email), ("age", _age)):
            try:
                member[field] = tidy(form.get(field) or "")
            except ValueError as problem:
                problems[field] = str(problem)
        if problems:
            raise Invalid(problems)
        self.members.append(member)
        return member

    def _email(self, text):
        email = text.lower()
        if not re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", email):
            raise ValueError("This is no email address.")
        if any(member["email"] == email for member in self.members):
            raise ValueError("This address is already registered.")
        return email


def _name(text):
    name = " ".join(text.split())
    if not 1 <= len(name) <= 40:
        raise ValueError("A name has 1 to 40 characters.")
    return name


def _age(text):
    if not re.fullmatch(r"[0-9]{1,3}", text) or not 13 <= int(text) <= 120:
        raise ValueError("An age is a whole number from 13 to 120.")
    return int(text)
