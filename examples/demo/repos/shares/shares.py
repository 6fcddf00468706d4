"""Split a bill so that the shares add up to it."""


def split(total_cents: int, people: int) -> list[int]:
    """One share a person; the first ones pay the cents that do not divide."""
    return [total_cents // people] * people
