"""What is wrong inside a role: templates that do not parse or are not there, expressions, data.

Knows nothing of how roles are found, or of who is played.
"""

import re
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from proctor.answers import field_of
from proctor.dialogue.language import check_expression, check_template, names_in
from proctor.dialogue.party import SPOKEN_OF
from proctor.dialogue.role import every_step
from proctor.dialogue.rules import pattern
from proctor.errors import Place, Problem, UsageError
from proctor.plan.source import Source
from proctor.plan.suggest import did_you_mean

Templates = Mapping[str, Mapping[str, str]]
"""By language, then by name."""


def problems_of(source: Source, folder: Path, templates: Templates, data: Mapping[str, Any]) -> list[Problem]:
    """Everything wrong with the parts of one role, which fit the schema each for itself."""
    known = names_known(source.data)
    return [*_template_problems(folder, templates, known), *_step_problems(source, templates, data, known)]


def names_known(role: Mapping[str, Any]) -> set[str]:
    """Everything that a role's templates and expressions can speak of at some time."""
    names = {*SPOKEN_OF, *(role.get("state") or {})}
    for step in every_step(role["steps"]):
        names |= {*(step.get("set") or {}), *(step.get("read") or {})}
        names |= {step[key] for key in ("into", "draw", "for") if isinstance(step.get(key), str)}
        names |= {"reply"} if {"ask", "rules", "say"} & step.keys() else set()
    return names


def _template_problems(folder: Path, templates: Templates, known: Set[str]) -> Iterator[Problem]:
    for language, texts in templates.items():
        for name, text in texts.items():
            file = folder / "templates" / language / f"{name}.j2"
            line, wrong = check_template(text)
            if wrong:
                yield Problem(at=Place(str(file), line, 1), problem=f"the template cannot be read: {wrong}")
                continue
            for unknown in sorted(names_in(text) - known):
                at = Place(str(file), _line_of(unknown, text), 1)
                yield Problem(
                    at=at,
                    problem=f"the template speaks of `{unknown}`, which nothing gives a value",
                    remedy=did_you_mean(unknown, sorted(known)) or f"There are: {', '.join(sorted(known))}.",
                )


def _line_of(name: str, text: str) -> int:
    found = re.search(rf"\b{re.escape(name)}\b", text)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def _step_problems(
    source: Source, templates: Templates, data: Mapping[str, Any], known: Set[str]
) -> Iterator[Problem]:
    for template in _templates_used(source.data):
        for language in templates or ("en",):
            if template not in templates.get(language, {}):
                file = f"templates/{language}/{template}.j2"
                yield source.problem(
                    ("steps",), f"the role uses a template `{template}` it does not have", f"Add {file}."
                )
    for step in every_step(source.data["steps"]):
        yield from _wrong_expressions(source, step, known)
        yield from _wrong_parts(source, data, step)
    for name in source.data.get("metrics") or ():
        if name not in (source.data.get("state") or {}):
            yield source.problem(("metrics",), f"`{name}` is not in the role's state", "Add it to `state`.")


def _wrong_expressions(source: Source, step: Mapping[str, Any], known: Set[str]) -> Iterator[Problem]:
    written = {name: step.get(name) for name in ("when", "until", "in", "from")}
    for key in ("set", "otherwise"):
        written |= {f"{key}: {name}": text for name, text in (step.get(key) or {}).items()}
    for name, text in written.items():
        if not isinstance(text, str):
            continue
        if wrong := check_expression(text):
            yield source.problem(("steps",), f"`{name}: {text}` is no expression: {wrong}")
            continue
        for unknown in sorted(names_in(text, is_expression=True) - known):
            problem = f"`{name}: {text}` speaks of `{unknown}`, which nothing gives a value"
            remedy = did_you_mean(unknown, sorted(known)) or f"There are: {', '.join(sorted(known))}."
            yield source.problem(("steps",), problem, remedy)


def _wrong_parts(source: Source, data: Mapping[str, Any], step: Mapping[str, Any]) -> Iterator[Problem]:
    for name, kind in (step.get("read") or {}).items():
        try:
            field_of(kind)
        except UsageError as error:
            yield source.problem(("steps",), f"`read: {name}`: {error}")
    if rules := step.get("rules"):
        if rules not in data:
            yield source.problem(("steps",), f"there is no data/{rules}.yaml", "Add it beside role.yaml.")
        elif wrong := _wrong_rules(data[rules]):
            yield source.problem(("steps",), f"data/{rules}.yaml: {wrong}")


def _wrong_rules(rules: Any) -> str:
    """What is wrong with rules that answer without a model; empty when nothing is."""
    if (
        not isinstance(rules, Mapping)
        or not isinstance(rules.get("rules"), list)
        or not rules.get("otherwise")
    ):
        return "it needs a list `rules`, and `otherwise` for when none fits"
    for number, rule in enumerate(rules["rules"], 1):
        if not isinstance(rule, Mapping) or not rule.get("match") or not rule.get("reply"):
            return f"rule {number} needs `match` and `reply`"
        try:
            pattern(str(rule["match"]))
        except re.error as error:
            return f"`match` of rule {number} is no regular expression: {error}"
    return ""


def _templates_used(data: Mapping[str, Any]) -> list[str]:
    used = [data["opening"]] if data.get("opening") else []
    for step in every_step(data["steps"]):
        asked = step.get("ask")
        if isinstance(asked, Mapping):
            used += [asked[name] for name in ("system", "prompt") if asked.get(name)]
        elif asked:
            used.append(asked)
        if step.get("say"):
            used.append(step["say"])
    return list(dict.fromkeys(used))
