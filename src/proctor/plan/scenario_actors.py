"""Read the actors of a scenario folder.

Everything an author writes about an actor is kept, also under names nobody else has thought of: it is
told to that actor's model, and to no other.

Knows nothing of turns or models.
"""

from pathlib import Path
from typing import Any

from proctor.plan.scenario_sources import Findings, as_text, as_texts, read_file
from proctor.plan.source import Source
from proctor.plan.suggest import did_you_mean
from proctor.scenario.definition import SHORT_NAME, Actor, Plain, names_of

DEFAULT_MODEL = "openai/gpt-4o-mini"
ALIASES = {
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


def read_actors(folders: list[Path], main: Source, findings: Findings) -> dict[str, Plain]:
    """The actors by short name, in the order in which the scenario lists them."""
    paths = [path for folder in folders for path in sorted((folder / "actors").glob("*.y*ml"))]
    found: dict[str, Plain] = {}
    stems: dict[str, str] = {}
    for path in paths:
        source = read_file(path, findings)
        if source is None:
            continue
        actor = _actor(source, path.stem, findings)
        short = str(actor["short_name"])
        if short in found:
            problem = f"there is already an actor `{short}`, in {stems[short]}.yaml"
            findings.problems.append(source.problem(("short_name",), problem))
            continue
        found[short], stems[short] = actor, path.stem
        findings.came_from(("actors", short), source, ())
        for key in source.data:
            findings.came_from(("actors", short, ALIASES.get(key, key)), source, (key,))
    if not paths:
        problem = "the scenario has no actors"
        findings.problems.append(main.problem((), problem, "Add actors/NAME.yaml beside it."))
    _one_name_each(found, findings)
    return _listed(main, found, stems, findings)


def _actor(source: Source, stem: str, findings: Findings) -> Plain:
    actor: Plain = {}
    notes: list[str] = []
    for key, value in source.data.items():
        name = ALIASES.get(key, key)
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
            near = did_you_mean(key, [*names_of(Actor), *ALIASES])
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


def _one_name_each(actors: dict[str, Plain], findings: Findings) -> None:
    seen: dict[str, str] = {}
    for short, actor in actors.items():
        name = str(actor["name"])
        if name in seen:
            problem = f"`{name}` is also the name of {seen[name]}"
            findings.problem(("actors", short, "name"), problem, "Files and costs tell actors apart by name.")
        seen[name] = short


def _listed(
    main: Source, actors: dict[str, Plain], stems: dict[str, str], findings: Findings
) -> dict[str, Plain]:
    """The actors that scenario.yaml lists, by short name or by file; all of them when it lists none."""
    wanted = main.data.get("actors")
    if wanted is None:
        return actors
    if not isinstance(wanted, list):
        findings.problems.append(main.problem(("actors",), "`actors` should be a list of short names"))
        return actors
    by_stem = {stem: short for short, stem in stems.items()}
    listed: dict[str, Plain] = {}
    for index, name in enumerate(wanted):
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
