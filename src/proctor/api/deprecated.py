"""Deprecated names in JSON documents: each stands beside the new name for one minor version."""

from collections.abc import Mapping

from proctor.json_values import JsonMap, JsonObject


def with_old_names(document: JsonMap, old: Mapping[str, str]) -> JsonObject:
    """A document whose renamed members also have their deprecated names, at any depth. `old`: by new name."""

    def both(value: object) -> object:
        if isinstance(value, list):
            return [both(each) for each in value]
        return with_old_names(value, old) if isinstance(value, dict) else value

    members = {name: both(value) for name, value in document.items()}
    return members | {old[name]: value for name, value in members.items() if name in old}
