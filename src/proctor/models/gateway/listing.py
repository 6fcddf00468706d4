"""Which models a caller has, as each wire format lists them.

Knows nothing of HTTP or of providers.
"""

from typing import Any

LONGEST_INPUT = 1_000_000


def listed(model: str, one: str, wire: str) -> dict[str, Any]:
    """The caller's model under its full and its short name, or the `one` that was asked about."""
    if one:
        return _entry(one, wire)
    names = list(dict.fromkeys([model, model.partition("/")[2] or model])) if model else []
    entries = [_entry(name, wire) for name in names]
    if wire == "gemini":
        return {"models": entries}
    if wire == "messages":
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return {"data": entries, "has_more": False, **ends}
    return {"object": "list", "data": entries}


def _entry(name: str, wire: str) -> dict[str, Any]:
    if wire == "gemini":
        return {
            "name": f"models/{name}",
            "displayName": name,
            "inputTokenLimit": LONGEST_INPUT,
            "outputTokenLimit": 65_536,
            "supportedGenerationMethods": ["generateContent", "streamGenerateContent", "countTokens"],
        }
    if wire == "messages":
        return {"type": "model", "id": name, "display_name": name, "created_at": "2025-01-01T00:00:00Z"}
    return {"id": name, "object": "model", "created": 1_735_689_600, "owned_by": "proctor"}
