"""Parts of SQL conditions that stand for values of a caller: one of several, a text that holds another.

Values are never written into a statement, only places for them.

Knows nothing of tables.
"""

from collections.abc import Collection


def places(values: Collection[object]) -> str:
    """What stands between the brackets of `IN (…)` for so many values.

    None is no value, since not every database takes an empty list.
    """
    return ", ".join("?" * len(values)) or "NULL"


def containing(text: str) -> str:
    """The pattern for `LOWER(column) LIKE ? ESCAPE '!'`: a text occurs, in whatever case."""
    return f"%{literally(text.lower())}%"


def beginning(text: str) -> str:
    """The pattern for `column LIKE ? ESCAPE '!'`: it begins so."""
    return f"{literally(text)}%"


def literally(text: str) -> str:
    """A text inside a pattern of `LIKE … ESCAPE '!'`, where it means itself."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")
