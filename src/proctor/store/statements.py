"""What a statement does to sealed columns, read from its text.

Statements are written as if nothing were sealed. Of one that writes, this tells which of its parameters go
into sealed columns; one that could put a text there in a way that cannot be told is refused. Of one that
reads, it makes another that gives the same on sealed texts: nothing is cut before it is opened, a search
passes over what cannot be searched, and a comparison knows every form in which a text may stand.

Knows nothing of keys.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from proctor.errors import StoreError
from proctor.store.sealed_columns import ALIKE, EMPTY, SEALED, is_digest

MARK = "sealed:1:"
"""How a sealed value begins."""

_INSERT = re.compile(r'\s*INSERT INTO "(\w+)" \(([^)]*)\) VALUES \(([^)]*)\)')
_UPDATE = re.compile(r'\s*UPDATE "(\w+)" SET ')
_WRITES = re.compile(r"\s*(INSERT|UPDATE|REPLACE|MERGE|COPY)\b", re.IGNORECASE)
_ASSIGNMENT = re.compile(r'\s*"(\w+)" = (.*)', re.DOTALL)
_NAME = re.compile(r'"(\w+)"')
_CUT = re.compile(r'SUBSTR\(((?:\w+\.)?"(\w+)"), 1, (\d+)\) AS "(\w+)"')
_SEARCH = re.compile(r'LOWER\(((?:\w+\.)?"(\w+)")\) LIKE')
_EQUAL = re.compile(r'"(\w+)" = \?')
_HARMLESS = {"NULL", *(f"'{text}'" for text in EMPTY)}


@dataclass(frozen=True, slots=True)
class Written:
    """A parameter that goes into a sealed column, or into one that holds a digest."""

    index: int
    place: str
    """`table.column`."""
    is_digest: bool
    is_alike: bool


@dataclass(frozen=True, slots=True)
class Compared:
    """A parameter that a sealed column is compared with."""

    index: int
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A statement that reads, as it is put to a sealed store."""

    parts: tuple[str, ...]
    """Between each two of them stands a comparison."""
    compared: tuple[Compared, ...]
    cuts: dict[str, int]
    """How many characters of a column of the answer were asked for."""

    def text(self, counts: list[int]) -> str:
        """The statement, with so many forms at each comparison."""
        made = [self.parts[0]]
        for count, part in zip(counts, self.parts[1:], strict=True):
            made += [f" IN ({', '.join('?' * count)})", part]
        return "".join(made)


@lru_cache(maxsize=2048)
def written_by(sql: str) -> tuple[Written, ...]:
    """The parameters of a statement that must be sealed. Raises when one cannot be told."""
    if insert := _INSERT.match(sql):
        table, columns = insert[1], _NAME.findall(insert[2])
        values = [value.strip() for value in insert[3].split(",")]
        return tuple(_written(sql, table, list(zip(columns, values, strict=True))))
    if update := _UPDATE.match(sql):
        assignments = [_ASSIGNMENT.fullmatch(part) for part in _assignments(sql[update.end() :])]
        pairs = [(found[1], found[2].strip()) for found in assignments if found]
        return tuple(_written(sql, update[1], pairs))
    if _WRITES.match(sql) and any(name in SEALED for name in _NAME.findall(sql)):
        raise StoreError(f"what this writes could not be sealed: {sql}")
    return ()


@lru_cache(maxsize=2048)
def question_of(sql: str) -> Question | None:
    """The statement that gives the same where texts are sealed; None: the statement itself does."""
    tables = [name for name in dict.fromkeys(_NAME.findall(sql)) if name in SEALED]
    if not tables or not sql.lstrip().upper().startswith(("SELECT", "WITH")):
        return None
    sealed = {column for table in tables for column in SEALED[table]}
    cuts: dict[str, int] = {}

    def uncut(found: "re.Match[str]") -> str:
        if found[2] not in sealed:
            return found[0]
        cuts[found[4]] = int(found[3])
        return f'{found[1]} AS "{found[4]}"'

    def passed_over(found: "re.Match[str]") -> str:
        if found[2] not in sealed:
            return found[0]
        return f"LOWER(CASE WHEN {found[1]} LIKE '{MARK}%' THEN '' ELSE {found[1]} END) LIKE"

    changed = _SEARCH.sub(passed_over, _CUT.sub(uncut, sql))
    parts, compared, at = list[str](), list[Compared](), 0
    for found in _EQUAL.finditer(changed):
        places = tuple(f"{table}.{found[1]}" for table in tables if f"{table}.{found[1]}" in ALIKE)
        if places:
            parts.append(changed[at : found.end() - len(" = ?")])
            compared.append(Compared(changed.count("?", 0, found.end()) - 1, places))
            at = found.end()
    if changed == sql and not compared:
        return None
    return Question((*parts, changed[at:]), tuple(compared), cuts)


def _written(sql: str, table: str, pairs: list[tuple[str, str]]) -> Iterator[Written]:
    index = 0
    for column, value in pairs:
        place = f"{table}.{column}"
        is_sealed, is_a_digest = column in SEALED.get(table, ()), is_digest(table, column)
        if (is_sealed or is_a_digest) and value == "?":
            yield Written(index, place, is_a_digest, place in ALIKE)
        elif is_sealed and value not in _HARMLESS:
            raise StoreError(f"a text for {place} could not be sealed: {sql}")
        index += value.count("?")


def _assignments(text: str) -> Iterator[str]:
    """The assignments of an UPDATE: what stands between commas, up to its WHERE."""
    depth, begun = 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter == ",":
            yield text[begun:place]
            begun = place + 1
        elif depth == 0 and text.startswith(" WHERE ", place):
            yield text[begun:place]
            return
    yield text[begun:]
