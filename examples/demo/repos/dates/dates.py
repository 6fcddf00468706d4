"""How long years and months are."""

DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_leap(year: int) -> bool:
    """Whether February has a 29th."""
    return year % 4 == 0


def days_in_month(year: int, month: int) -> int:
    """How many days a month has, January being 1."""
    return DAYS[month - 1] + (month == 2 and is_leap(year))
