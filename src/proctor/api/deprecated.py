"""Deprecated names in JSON documents: each stands beside the new name for one minor version."""

from collections.abc import Mapping

from proctor.json_values import JsonMap, JsonObject

OLD_NAMES_OF_CHECKS = {"ok": "well", "message": "said", "checks": "findings", "mock": "standIn"}
OLD_NAMES_OF_STORE_CHECKS = {"ok": "well", "notes": "remarks"}
OLD_NAMES_OF_AGENTS = {"mock": "standIn"}
OLD_NAMES_OF_MODELS = {
    "available": "answers",
    "note": "remark",
    "mock": "standIn",
    "unavailableProviders": "silent",
}
OLD_NAMES_OF_AUDIT_ENTRIES = {"action": "act"}
OLD_NAMES_OF_EVALUATIONS = {"requestedAs": "askedAs", "judgeStandardDeviation": "wavering"}
OLD_NAMES_OF_CALIBRATIONS = {"targets": "things"}
OLD_NAMES_OF_LABELS = {"author": "who"}
OLD_NAMES_OF_SIGNATURES = {"changedItems": "foreign"}
OLD_NAMES_OF_TASKS = {"skipped": "notRead"}
OLD_NAMES_OF_LISTED_TASKS = {"skipped": "notRead", "reason": "problem"}
OLD_NAMES_OF_PLANNED_ITEMS = {"requestedModel": "asked", "repeat": "run"}


def with_old_names(document: JsonMap, old: Mapping[str, str]) -> JsonObject:
    """A document whose renamed members also have their deprecated names, at any depth. `old`: by new name."""

    def both(value: object) -> object:
        if isinstance(value, list):
            return [both(each) for each in value]
        return with_old_names(value, old) if isinstance(value, dict) else value

    members = {name: both(value) for name, value in document.items()}
    return members | {old[name]: value for name, value in members.items() if name in old}
