"""The installed genai-prices table, of which only the provider that is asked for is loaded.

The table is one Python module of 1.5 MB. Where Python may not write compiled files, importing it takes 0.4 s
and 58 MB; one provider takes some milliseconds.
"""

import datetime
from decimal import Decimal
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PROVIDER_START = "\n    Provider(\n        id='"
"""How the source of a provider begins in the module of the table."""


def find_model(provider: str, model: str) -> Any:
    """The entry of a model, as the library finds it; None: there is none. Without a provider, of any."""
    # Imported here: it takes a tenth of a second, and most commands price nothing.
    from genai_prices import data_snapshot

    snapshot = None
    if data_snapshot._custom_snapshot is None and provider in _sources():
        snapshot = _snapshot(provider)
    try:
        return (snapshot or data_snapshot.get_snapshot()).find_provider_model(
            model, None, provider or None, None
        )[1]
    except LookupError:
        return None


@cache
def _snapshot(provider: str) -> Any:
    """A table with one provider, and those whose models it offers as well."""
    from genai_prices.data_snapshot import DataSnapshot

    first = _provider(provider)
    others = [_provider(name) for name in first.fallback_model_providers or () if name in _sources()]
    return DataSnapshot(providers=[first, *others], from_auto_update=False)


@cache
def _provider(name: str) -> Any:
    from genai_prices import types

    # The library's own source, which importing the table would execute as a whole.
    names = {**vars(types), "datetime": datetime, "Decimal": Decimal}
    return eval(compile(_sources()[name], "genai_prices/data.py", "eval"), names)


@lru_cache(maxsize=1)
def _sources() -> dict[str, str]:
    """The source of each provider by its name; empty when the module looks different from what is known."""
    spec = find_spec("genai_prices")
    if spec is None or not spec.submodule_search_locations:
        return {}
    try:
        text = (Path(spec.submodule_search_locations[0]) / "data.py").read_text(encoding="utf-8")
    except OSError:
        return {}
    _, *parts = text.split(PROVIDER_START)
    sources = dict[str, str]()
    for part in parts:
        name, _, _ = part.partition("'")
        body = part.rstrip().removesuffix("]").rstrip().removesuffix(",")
        sources[name] = f"{PROVIDER_START.strip()}{body}"
    return sources
