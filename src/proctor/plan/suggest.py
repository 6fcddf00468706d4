"""Guess which known name was meant by an unknown one.

Knows nothing of what the names stand for.
"""

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` is most likely a slip of; None when none is near."""
    names = {_bare(each): each for each in known}
    # Long names cost time and are nobody's slip of the finger.
    near = difflib.get_close_matches(_bare(name[:60]), names, n=1, cutoff=0.7)
    return names[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence proposing the name that was meant; empty when none is near."""
    meant = suggestion(name, known)
    return f"Did you mean `{meant}`?" if meant else ""


def _bare(name: str) -> str:
    """`timeout_secs` and `timeoutSecs` differ only in taste."""
    return name.lower().replace("_", "").replace("-", "")
