"""Deprecated names in JSON documents: each stands beside the new name for one minor version.

Old names are listed by new name. `gates.text` is the member `text` of `gates`, or of each of them if they are
a list; `.notes` is a member of the document itself, and `mocks` of any part.
"""

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
OLD_NAMES_OF_EVALUATIONS = {
    "requestedAs": "askedAs",
    "judgeStandardDeviation": "wavering",
    ".notes": "remarks",
}
OLD_NAMES_OF_CALIBRATIONS = {"targets": "things", "notes": "remarks"}
OLD_NAMES_OF_LABELS = {"author": "who"}
OLD_NAMES_OF_JUDGES = {"targets": "things", "judges.text": "words", "judges.notes": "remarks"}
OLD_NAMES_OF_RUNS = {
    "abortedCount": "cutOffCount",
    "agentsAndModels": "makers",
    "mocks": "standIns",
    "rateLimited": "refused",
    "pausedSeconds": "heldSeconds",
}
OLD_NAMES_OF_NOTES = {".note": "remark", ".notes": "remarks"}
"""Of results and charts of a run, and of plans that are checked."""
OLD_NAMES_OF_REPORTS = {".mocks": "standIns"}
OLD_NAMES_OF_COMPARISONS = {
    "differsIn": "varied",
    "mocks": "standIns",
    "isTested": "isMember",
    "valueIfErrorsFail": "ifErrorsFailed",
    "dependsOnErrors": "errorsDecide",
    "contrasts.text": "words",
    "contrasts.notes": "remarks",
    "baselineMean.text": "said",
    "candidateMean.text": "said",
    "difference.text": "said",
    "disagreements.task": "words",
    "gates.text": "words",
}
OLD_NAMES_OF_DISAGREEMENTS = {
    "items.task": "words",
    "baselineText": "baselineSaid",
    "candidateText": "candidateSaid",
    "differenceText": "differenceSaid",
}
OLD_NAMES_OF_TRENDS = {"changes.text": "words"}
OLD_NAMES_OF_JUDGED_SESSIONS = {"sessions.name": "words"}
OLD_NAMES_OF_SIGNATURES = {"changedItems": "foreign"}
OLD_NAMES_OF_TASKS = {"skipped": "notRead"}
OLD_NAMES_OF_LISTED_TASKS = {"skipped": "notRead", "reason": "problem"}
OLD_NAMES_OF_PLANNED_ITEMS = {"items.requestedModel": "asked", "items.repeat": "run"}


def with_old_names(document: JsonMap, old: Mapping[str, str], *, part: str = "") -> JsonObject:
    """A document whose renamed members also have their deprecated names. `part`: the name of its part."""

    def both(name: str, value: object) -> object:
        if isinstance(value, list):
            return [both(name, each) for each in value]
        return with_old_names(value, old, part=name) if isinstance(value, dict) else value

    members = {name: both(name, value) for name, value in document.items()}
    names = ((old.get(f"{part}.{name}") or old.get(name), name) for name in members)
    return members | {deprecated: members[name] for deprecated, name in names if deprecated}
