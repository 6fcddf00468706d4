"""Read a scenario folder, in either dialect, into one plain form.

    scenario.yaml  actors/*.yaml  metrics.yaml  validation-rules.yaml  exogenous-events.yaml  prompts/*.j2

The folder may have all this below `definition/`. All problems of all files are reported together, each with
its line; what is only unusual becomes a remark.
"""

import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from proctor.errors import Problem, UsageError
from proctor.jobs.scenario.reader_rules import (
    FolderReader,
    Metrics,
    Steps,
    as_text,
    as_texts,
    black_swans,
    conditions_of,
    find_file,
    read_events,
    read_file,
    read_metrics,
    read_validation,
    refuse,
)
from proctor.plan.source import PlanSource, ValuePlace, open_regular
from proctor.plan.validate import did_you_mean, expected_value, value_text
from proctor.scenario.definition import SHORT_NAME, Actor, Plain, Scenario, names_of, scenario_of
from proctor.scenario.prompts import SUFFIX, built_in, fault_of
from proctor.scenario.world import ALL, FUNCTIONS, OWN, has_value, rule_problems, value_label

VARIABLE_TYPES = {"int": "integer", "float": "number", "bool": "boolean", "str": "text", "string": "text"}
RESERVED = ("true", "false", "turn", *keyword.kwlist, *FUNCTIONS)
DEFAULT_MODEL = "openai/gpt-4o-mini"
ACTOR_ALIASES = {
    "model": "llm_model",
    "long_term_goals": "goals",
    "decision_making_style": "decision_style",
    "private_info": "private_information",
}
_LISTS = ("goals", "constraints", "expertise", "personality_traits", "preferred_coalitions")
_TEXTS = (
    "system_prompt",
    "description",
    "role",
    "decision_style",
    "private_information",
    "communication_style",
)


def read_actors(folders: list[Path], main: PlanSource, findings: FolderReader) -> dict[str, Plain]:
    """The actors by short name, in the order in which the scenario lists them."""
    paths = [path for folder in folders for path in sorted((folder / "actors").glob("*.y*ml"))]
    actors: dict[str, Plain] = {}
    stems: dict[str, str] = {}
    for path in paths:
        source = read_file(path, findings)
        if source is None:
            continue
        actor = _actor(source, path.stem, findings)
        short = str(actor["short_name"])
        if short in actors:
            problem = f"there is already an actor `{short}`, in {stems[short]}.yaml"
            findings.problems.append(source.problem(("short_name",), problem))
            continue
        actors[short], stems[short] = actor, path.stem
        findings.came_from(("actors", short), source, ())
        for key in source.data:
            findings.came_from(("actors", short, ACTOR_ALIASES.get(key, key)), source, (key,))
    if not paths:
        problem = "the scenario has no actors"
        findings.problems.append(main.problem((), problem, "Add actors/NAME.yaml beside it."))
    _one_name_each(actors, findings)
    return _listed(main, actors, stems, findings)


def _actor(source: PlanSource, stem: str, findings: FolderReader) -> Plain:
    actor: Plain = {}
    notes: list[str] = []
    for key, value in source.data.items():
        name = ACTOR_ALIASES.get(key, key)
        if value is None:
            continue
        if name in _LISTS:
            actor[name] = as_texts(value)
        elif name in _TEXTS:
            actor[name] = as_text(value)
        elif name in names_of(Actor) and name != "notes":
            actor[name] = value
        else:
            notes += _note(key, value)
            near = did_you_mean(key, [*names_of(Actor), *ACTOR_ALIASES])
            if near:
                place = source.place((key,), of_key=True)
                findings.remarks.append(f"{place}: `{key}` is told to the actor as a note. {near}")
    if notes:
        actor["notes"] = notes
    actor.setdefault("short_name", stem.lower())
    actor.setdefault("name", str(actor["short_name"]))
    if actor.get("control") != "human" and not actor.get("llm_model"):
        findings.remarks.append(f"{source.file}: no model is named; it is {DEFAULT_MODEL}")
        actor["llm_model"] = DEFAULT_MODEL
    short = actor["short_name"]
    if not isinstance(short, str) or not SHORT_NAME.fullmatch(short):
        remedy = "Use small letters, digits and dashes: it becomes part of file names."
        findings.problems.append(source.problem(("short_name",), f"`{short}` is no short name", remedy))
    return actor


def _note(key: str, value: Any) -> list[str]:
    texts = as_texts(value)
    if isinstance(texts, list):
        return [f"{key.replace('_', ' ')}: {text}" for text in texts]
    return [f"{key.replace('_', ' ')}: {value}"]


def _one_name_each(actors: dict[str, Plain], findings: FolderReader) -> None:
    names: dict[str, str] = {}
    for short, actor in actors.items():
        name = str(actor["name"])
        if name in names:
            problem = f"`{name}` is also the name of {names[name]}"
            findings.problem(("actors", short, "name"), problem, "Files and costs tell actors apart by name.")
        names[name] = short


def _listed(
    main: PlanSource, actors: dict[str, Plain], stems: dict[str, str], findings: FolderReader
) -> dict[str, Plain]:
    """The actors that scenario.yaml lists, by short name or by file; all of them when it lists none."""
    actor_names = main.data.get("actors")
    if actor_names is None:
        return actors
    if not isinstance(actor_names, list):
        findings.problems.append(main.problem(("actors",), "`actors` should be a list of short names"))
        return actors
    by_stem = {stem: short for short, stem in stems.items()}
    listed: dict[str, Plain] = {}
    for index, name in enumerate(actor_names):
        short = name if name in actors else by_stem.get(str(name))
        if short is None:
            remedy = did_you_mean(str(name), actors) or f"There are: {', '.join(actors) or 'none'}."
            findings.problems.append(main.problem(("actors", index), f"there is no actor `{name}`", remedy))
        elif short in listed:
            findings.problems.append(main.problem(("actors", index), f"`{name}` is listed twice"))
        else:
            listed[short] = actors[short]
    for short in sorted(actors.keys() - listed.keys()):
        findings.remarks.append(
            f"actors/{stems[short]}.yaml is not in the list of actors; it does not take part"
        )
    return listed


ALIASES = {
    "num_turns": "turns",
    "context_window": "context_window_size",
    "summarisation_model": "summarization_model",
}
_OF_OTHER_FILES = (
    "actors",
    "metrics",
    "metrics_csv",
    "events",
    "validation",
    "prompts",
    "about",
    "stop_when",
)
_OWN = [name for name in names_of(Scenario) if name not in _OF_OTHER_FILES]
_ABOUT = (
    "background_information",
    "success_criteria",
    "schema_version",
    "created_date",
    "author",
    "tags",
    "enable_black_swans",
    "black_swans",
    "features",
    "scenario_length",
    "actors",
    "version",
    "notes",
)
FEATURES: Mapping[str, tuple[str, ...]] = {
    "communications": ("enabled", "max_per_turn"),
    "exogenous_events": ("enabled",),
    "metrics_extraction": ("enabled",),
    "quality_assurance": ("enabled",),
    "context_management": ("enabled", "max_context_tokens", "summarization_model"),
}
_AT_START = ValuePlace(1, 1)
LONGEST_BY_CONDITION = 50
"""Maximum turns of a scenario whose end is a condition, when it names no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedScenario:
    """A scenario from a valid folder."""

    folder: Path
    plain: Plain
    scenario: Scenario
    remarks: tuple[str, ...] = ()
    findings: FolderReader = field(repr=False)

    def problem(self, path: str, problem: str, remedy: str = "") -> Problem:
        """A problem with the value at a path, at its place in the files."""
        return self.findings.at(tuple(path.split(".")), problem, remedy)


def read_scenario(folder: Path) -> LoadedScenario:
    """Read and check a scenario folder. Raises `PlanError` with everything that is wrong."""
    folders = scenario_folders(folder)
    main = find_file(folders, "scenario.yaml", "scenario.yml")
    if main is None:
        raise UsageError(f"{folder} is no scenario: it has no scenario.yaml\nGive the path of its folder.")
    if main.parent != folder:
        folders.reverse()
    findings = FolderReader()
    source = read_file(main, findings)
    if source is None:
        refuse(findings)
        raise UsageError(f"{main} cannot be read")
    plain = _of_main(source, findings)
    plain["actors"] = read_actors(folders, source, findings)
    features = source.data.get("features") or {}
    metrics = read_metrics(folders, findings) if _is_on(features, "metrics_extraction") else Metrics()
    plain["metrics"] = metrics.by_name
    if metrics.as_csv:
        plain["metrics_csv"] = True
    events = read_events(folders, findings) if _is_on(features, "exogenous_events") else {}
    plain["events"] = {**events, **black_swans(source, findings, known=events)}
    if _is_on(features, "quality_assurance"):
        plain["validation"] = read_validation(folders, findings)
    plain["prompts"] = _prompts(folders, findings)
    _check_names(plain, findings)
    definition = checked(plain, findings)
    if definition is not None:
        check_world(definition, findings)
    refuse(findings)
    assert definition is not None
    return LoadedScenario(
        folder=folder, plain=plain, scenario=definition, remarks=tuple(findings.remarks), findings=findings
    )


def scenario_folders(folder: Path) -> list[Path]:
    """The folders that may hold the files of a scenario."""
    return [folder, folder / "definition"]


def checked(plain: Plain, findings: FolderReader) -> Scenario | None:
    """The scenario; None when its values have problems, which are added to the findings."""
    try:
        return scenario_of(plain)
    except ValidationError as error:
        for path, problem, remedy in faults_of(error):
            findings.problem(path, problem, remedy)
        return None


def faults_of(error: ValidationError) -> list[tuple[Steps, str, str]]:
    """The problems of a plain scenario: path, message and remedy."""
    faults: list[tuple[Steps, str, str]] = []
    for detail in error.errors(include_url=False):
        path = tuple(step for step in detail["loc"] if not str(step).startswith("function-"))
        name = ".".join(map(str, path)) or "the scenario"
        if detail["type"] == "missing":
            around = ".".join(map(str, path[:-1])) or "the scenario"
            faults.append((path[:-1], f"{around} has no `{path[-1]}`", f"Add `{path[-1]}`."))
        elif detail["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            faults.append((path, f"there is no `{name}`", ""))
        else:
            expected, remedy = expected_value(detail)
            actual = "" if detail["type"] == "value_error" else f", not {value_text(detail['input'])}"
            faults.append((path, f"`{name}` {expected}{actual}", remedy))
    return faults


def _of_main(source: PlanSource, findings: FolderReader) -> Plain:
    """The plain form of scenario.yaml itself."""
    findings.came_from((), source, ())
    plain: Plain = {}
    about: dict[str, Any] = {}
    for key, value in source.data.items():
        name = ALIASES.get(key, key)
        if name in _OWN and value is not None:
            if name in plain:
                findings.problems.append(
                    source.problem((key,), f"`{key}` says again what `{name}` says", of_key=True)
                )
            plain[name] = as_text(value) if name in ("system_prompt", "description") else value
            findings.came_from((name,), source, (key,))
            if name == "variables":
                plain[name] = _variables(source, value, findings)
            elif name == "rules" and isinstance(value, list):
                plain[name] = list(map(_rule, value))
        elif name not in _OWN:
            about[key] = value
            if key not in _ABOUT:
                findings.unknown(source, (key,), [*_OWN, *_ABOUT, *ALIASES], "a scenario")
    _length(source, plain, findings)
    _features(source, plain, findings)
    left = ("features", "scenario_length", "actors", "black_swans", "enable_black_swans")
    plain["about"] = {name: value for name, value in about.items() if name not in left}
    return plain


def _rule(written: object) -> object:
    """A rule; YAML reads `for each actor in players: score += 1` as a mapping."""
    if isinstance(written, dict) and len(written) == 1:
        ((name, rule),) = written.items()
        if isinstance(rule, str) and str(name).startswith("for each "):
            return {"do": f"{name}: {rule}"}
    return {"do": written} if isinstance(written, str) else written


def _variables(source: PlanSource, written: object, findings: FolderReader) -> object:
    """Variables by name; a value alone is the initial one and gives the type."""
    if not isinstance(written, dict):
        return written
    variables: dict[str, Plain] = {}
    for name, entry in written.items():
        values = dict(entry) if isinstance(entry, dict) else {"initial": entry}
        if "type" not in values:
            initial = values.get("initial")
            is_choice = "values" in values
            kinds = {bool: "boolean", int: "number", float: "number", str: "text"}
            values["type"] = "choice" if is_choice else kinds.get(type(initial), "number")
        values["type"] = VARIABLE_TYPES.get(values["type"], values["type"])
        for key in ("set_by", "visible_to", "values"):
            if isinstance(values.get(key), str):
                values[key] = [values[key]]
        if isinstance(values.get("values"), list):
            # YAML reads `yes` and `no` as truth values.
            values["values"] = [_choice(value) for value in values["values"]]
            if values["type"] == "choice":
                values["initial"] = _choice(
                    values.get("initial", values["values"][0] if values["values"] else "")
                )
        variables[str(name)] = values
        findings.came_from(("variables", str(name)), source, ("variables", name))
    return variables


def _choice(value: object) -> object:
    return {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value


def check_world(scenario: Scenario, findings: FolderReader) -> None:
    """Check variables, rules and rooms against each other and the actors."""
    for name, variable in scenario.variables.items():
        at = ("variables", name)
        if not name.isidentifier() or name in RESERVED:
            findings.problem(at, f"`{name}` cannot be the name of a variable", "Use letters, digits and `_`.")
        if name in scenario.metrics:
            findings.problem(at, f"`{name}` is also a metric", "A variable is measured as it is: rename one.")
        _check_actors((*at, "set_by"), [one for one in variable.set_by if one != ALL], scenario, findings)
        known_to = variable.visible_to or ()
        _check_actors(
            (*at, "visible_to"), [one for one in known_to if one not in (OWN, ALL)], scenario, findings
        )
        if (len(variable.set_by) > 1 or ALL in variable.set_by) and not variable.per_actor:
            remedy = "Add `per_actor: true`: then each has a value of its own."
            findings.problem((*at, "set_by"), f"several actors cannot set one value of `{name}`", remedy)
        initials = variable.initial if isinstance(variable.initial, dict) else {"": variable.initial}
        if variable.per_actor and isinstance(variable.initial, dict):
            missing = [short for short in scenario.actors if short not in initials]
            if missing:
                findings.problem((*at, "initial"), f"`initial` has no value of {', '.join(missing)}")
        for value in initials.values():
            if not has_value(variable, value):
                findings.problem(
                    (*at, "initial"), f"`{name}` cannot be {value_label(value)} at the beginning"
                )
    for index, error in rule_problems(scenario):
        text = scenario.rules[index].text
        problem = f"rule {index + 1}: {error.problem}, at character {error.column} of `{text}`"
        findings.problem(("rules", index), problem, error.remedy)
    for name, members in scenario.groups.items():
        if name == ALL or not SHORT_NAME.fullmatch(name):
            remedy = "Use small letters, digits and dashes."
            findings.problem(("groups", name), f"`{name}` cannot be the name of a group", remedy)
        _check_actors(("groups", name), members, scenario, findings)
    for name, room in scenario.rooms.items():
        if not SHORT_NAME.fullmatch(name):
            remedy = "Use small letters, digits and dashes: it becomes part of file names."
            findings.problem(("rooms", name), f"`{name}` is no name of a room", remedy)
        _check_actors(("rooms", name, "members"), room.members, scenario, findings)


def _check_actors(at: Steps, names: Sequence[str], scenario: Scenario, findings: FolderReader) -> None:
    for name in names:
        if name not in scenario.actors:
            remedy = did_you_mean(name, scenario.actors) or f"There are: {', '.join(scenario.actors)}."
            findings.problem(at, f"there is no actor `{name}`", remedy)


def _length(source: PlanSource, plain: Plain, findings: FolderReader) -> None:
    """`scenario_length`: a number of turns, or a condition and the maximum number."""
    length = source.data.get("scenario_length")
    if isinstance(length, int) and not isinstance(length, bool):
        length = {"type": "fixed", "turns": length}
    if not isinstance(length, dict):
        if length is not None:
            findings.problems.append(source.problem(("scenario_length",), "`scenario_length` is a mapping"))
        return
    turns = length.get("turns", length.get("max_turns"))
    if turns is not None and "turns" not in plain:
        plain["turns"] = turns
        findings.came_from(("turns",), source, ("scenario_length", "turns"))
    if length.get("type") == "condition" or "condition" in length:
        plain.setdefault("turns", LONGEST_BY_CONDITION)
        plain["stop_when"] = conditions_of(length.get("condition"))
        findings.came_from(("stop_when",), source, ("scenario_length", "condition"))


def _features(source: PlanSource, plain: Plain, findings: FolderReader) -> None:
    features = source.data.get("features")
    if not isinstance(features, dict):
        return
    talks, window = features.get("communications"), features.get("context_management")
    if isinstance(talks, bool):
        plain.setdefault("enable_bilateral_communication", talks)
    if isinstance(talks, dict):
        plain.setdefault("enable_bilateral_communication", bool(talks.get("enabled", True)))
        if "max_per_turn" in talks:
            plain.setdefault("max_communications_per_turn", talks["max_per_turn"])
            findings.came_from(
                ("max_communications_per_turn",), source, ("features", "communications", "max_per_turn")
            )
    if isinstance(window, dict):
        for name in ("summarization_model", "max_context_tokens"):
            if window.get(name) is not None:
                plain.setdefault(name, window[name])
                findings.came_from((name,), source, ("features", "context_management", name))
        if window.get("enabled") is False:
            # Every turn stays in the context.
            plain["context_window_size"] = plain.get("turns", LONGEST_BY_CONDITION)
            plain.pop("max_context_tokens", None)
    _check_features(source, features, findings)


def _check_features(source: PlanSource, features: Mapping[str, Any], findings: FolderReader) -> None:
    for name, feature in features.items():
        if name not in FEATURES:
            findings.unknown(source, ("features", name), FEATURES, "`features`")
        elif isinstance(feature, dict):
            for key in feature:
                if key not in FEATURES[name]:
                    findings.unknown(source, ("features", name, key), FEATURES[name], f"the feature `{name}`")
        elif not isinstance(feature, bool):
            problem = f"`{name}` is a mapping, or true or false"
            findings.problems.append(source.problem(("features", name), problem))


def _is_on(features: Any, name: str) -> bool:
    feature = features.get(name) if isinstance(features, dict) else None
    return feature is not False and not (isinstance(feature, dict) and feature.get("enabled") is False)


def _prompts(folders: list[Path], findings: FolderReader) -> dict[str, str]:
    texts: dict[str, str] = {}
    for folder in folders:
        for path in sorted((folder / "prompts").glob(f"*{SUFFIX}")):
            name = path.name.removesuffix(SUFFIX)
            with TextIOWrapper(open_regular(path), encoding="utf-8", errors="replace") as file:
                text = file.read()
            source = PlanSource(str(path), text, None, _AT_START)
            if name not in built_in():
                findings.remarks.append(f"{path}: there is no prompt `{name}`; it is not used")
                continue
            fault = fault_of(text)
            if fault:
                findings.problems.append(source.problem_at(fault[0], 1, f"no template: {fault[1]}"))
            texts.setdefault(name, text)
    return texts


def _check_names(plain: Plain, findings: FolderReader) -> None:
    """Check that conditions name existing metrics."""
    variables = plain.get("variables")
    known: Mapping[str, Any] = {**plain["metrics"], **(variables if isinstance(variables, dict) else {})}
    if not known and findings.problems:
        # The metrics could not be read, which is already reported.
        return
    named: list[tuple[Steps, Any]] = [(("stop_when",), plain.get("stop_when") or {})]
    named += [
        (("events", name, "conditions"), event.get("conditions") or {})
        for name, event in plain["events"].items()
    ]
    for steps, conditions in named:
        if not isinstance(conditions, Mapping):
            continue
        for metric in conditions:
            if metric.partition(".")[0] not in known:
                remedy = f"There are: {', '.join(known)}." if known else "metrics.yaml defines metrics."
                findings.problem((*steps, metric), f"there is no metric `{metric}`", remedy)
