"""Validate turns with a model: actors out of character, contradictions in the world state.

Findings become issues with the severity of their check; the scenario decides whether an issue is logged,
reported as a warning, or ends the run.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from proctor.evaluators.answer_parser import listed, sections
from proctor.scenario.definition import Actor, Scenario, Severity, Validation, ValidationCheck
from proctor.scenario.prompts import Prompts, ScenarioModels
from proctor.scenario.state import Issue, ScenarioTurn
from proctor.session import Invalid

DESCRIPTIONS = {
    "actor_decision_consistency": "an actor that acts against its own character, goals or constraints",
    "world_state_coherence": "a new state of the world that does not follow from the old one and the actions",
    "information_access_consistency": "an actor that acts on something it cannot know",
}
OF_THE_WORLD = ("world_state_coherence",)
"""Checks of a whole turn; the others examine one actor at a time."""
_PASSED = ("pass", "ok", "yes", "consistent", "coherent", "valid", "no issue", "none", "not fail")
_FAILED = ("fail", "no", "inconsistent", "incoherent", "invalid")
"""Beginnings of verdicts; `_PASSED` is tried first, because `no issues` passes."""
_VERDICTS = ("VERDICT", "CONSISTENT", "COHERENT", "VALID ACCESS")
"""Headings of verdicts that are read in addition to the one in the prompt."""
_LISTS = ("ISSUES", "ISSUES FOUND", "VIOLATIONS FOUND", "PROBLEMS FOUND")
_REASONS = ("SEVERITY", "EXPLANATION", "SUGGESTIONS")
_ALTERNATIVES = re.compile(
    r"^[ \t*#>-]*([A-Z][A-Za-z _-]{1,40}?)[ \t*]*:[ \t*]*[\[(<]?[ \t]*"
    r"(?:yes|no|pass|fail|true|false)[ \t]*(?:/|\||or)[ \t]*(?:yes|no|pass|fail|true|false)\b",
    re.IGNORECASE | re.MULTILINE,
)
"""The line of a prompt that requests a verdict: `CONSISTENT: [Yes/No]`."""
_FAULT_NAMES = re.compile(
    r"issue|violation|problem|fault|error|contradict|breach|fail|\bin(?:consist|coher)", re.I
)
"""In the heading of a verdict: `yes` then means that the check did not pass."""
_NOTHING = re.compile(
    r"\W*(?:none|nothing|n/a|no (?:issues?|violations?|problems?)(?: found)?)\W*", re.IGNORECASE
)
GRAVE = ("high", "critical")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationResult:
    """Result of the checks of one turn."""

    issues: tuple[Issue, ...] = ()
    run: int = 0
    unread: int = 0
    """Number of checks whose verdict could not be read."""


async def check_turn(
    scenario: Scenario, prompts: Prompts, models: ScenarioModels, turn: ScenarioTurn, before: str
) -> ValidationResult:
    """Run every enabled check. `before` is the previous world state."""
    rules = scenario.validation
    if rules is None:
        return ValidationResult()
    issues: list[Issue] = []
    run, unread = 0, 0
    for name, check in rules.checks.items():
        if not check.enabled:
            continue
        about: Sequence[Actor | None] = (
            [None] if name in OF_THE_WORLD else [scenario.actors[short] for short in turn.decisions]
        )
        for actor in about:
            material = _material(scenario, turn, before, actor)
            check_issues = await _check(scenario, prompts, models, turn.number, name, check, actor, material)
            issues += check_issues or ()
            run, unread = run + 1, unread + (check_issues is None)
            if check_issues is None:
                models.record(Invalid(kind="unreadable_verdicts"))
    return ValidationResult(issues=tuple(issues), run=run, unread=unread)


def halting(rules: Validation | None, issues: Sequence[Issue]) -> str:
    """Why these issues end the run; empty when they do not."""
    if rules is None:
        return ""
    for issue in issues:
        ends = rules.severity_thresholds.get(issue.severity) == "halt"
        halts = rules.halt_on_critical or rules.reporting.halt_on_critical
        if ends or (halts and issue.severity in GRAVE):
            return f"{issue.check} found an issue of severity {issue.severity}: {issue.text}"
    most = rules.max_issues_before_halt
    if most is not None and len(issues) >= most:
        return f"the checks have found {len(issues)} issues, and {most} end the run"
    return ""


async def _check(
    scenario: Scenario,
    prompts: Prompts,
    models: ScenarioModels,
    turn: int,
    name: str,
    check: ValidationCheck,
    actor: Actor | None,
    material: dict[str, str],
) -> list[Issue] | None:
    """The issues of one check; None when its verdict cannot be read."""
    who = actor.short_name if actor else ""
    if check.prompt_template:
        rules_text = scenario.validation.scenario_specific_rules if scenario.validation else ""
        question = _filled(check.prompt_template, {**material, "scenario_specific_rules": rules_text})
    else:
        excerpt = "\n\n".join(
            f"# {title.replace('_', ' ')}\n{text}" for title, text in material.items() if text
        )
        description = check.description or DESCRIPTIONS.get(name, name.replace("_", " "))
        question = prompts.render("check", description=description, material=excerpt)
    rules = scenario.validation or Validation()
    if rules.scenario_specific_rules and "{scenario_specific_rules}" not in check.prompt_template:
        question += f"\n\n# rules of this scenario\n{rules.scenario_specific_rules.strip()}"
    own_format = _ALTERNATIVES.search(check.prompt_template)
    suggestions = rules.reporting.include_suggestions
    if own_format is None:
        question += f"\n\n{prompts.render('check_format', suggestions=suggestions)}"
    elif suggestions:
        question += "\n\nSUGGESTIONS: one line for each issue: how it can be avoided"
    answer = await models.ask(
        "validation",
        name,
        model=rules.validation_model or scenario.world_state_model,
        prompt=question,
        turn=turn,
        about=who,
    )
    return read_issues(answer, name, check, actor=who, heading=own_format[1].strip() if own_format else "")


def read_issues(
    answer: str, name: str, check: ValidationCheck, *, actor: str = "", heading: str = ""
) -> list[Issue] | None:
    """The issues in the answer to a check; None when it has no readable verdict.

    `heading` is the one under which the check's own prompt asks for the verdict.
    """
    verdicts = tuple(dict.fromkeys(filter(None, (heading, *_VERDICTS))))
    fields = sections(answer, (*verdicts, *_LISTS, *_REASONS))
    heading = next((each for each in verdicts if fields.get(each)), "")
    passed = _verdict(fields.get(heading, ""))
    if passed is not None and _FAULT_NAMES.search(heading):
        passed = not passed
    if passed is None:
        return None
    if passed:
        return []
    listing = next((fields[each] for each in _LISTS if fields.get(each)), "")
    texts = [text for text in listed(listing, by_commas=False) if not _NOTHING.fullmatch(text)]
    answered = re.sub(r"^\W+", "", fields.get("SEVERITY", "")).lower()
    severity = next((level for level in get_args(Severity) if answered.startswith(level)), check.severity)
    explanation = fields.get("EXPLANATION", "")
    suggestions = listed(fields.get("SUGGESTIONS", ""), by_commas=False)
    return [
        Issue(
            check=name,
            severity=severity,
            actor=actor,
            text=text,
            explanation=explanation,
            suggestion=suggestions[index] if index < len(suggestions) else "",
        )
        for index, text in enumerate(texts or ["the check did not pass"])
    ]


def _verdict(text: str) -> bool | None:
    """Whether a check passed; None when the text does not say."""
    verdict = re.sub(r"^\W+", "", text).lower()
    if verdict.startswith(_PASSED):
        # `yes/no` and `pass or fail` repeat the question.
        return None if re.match(r"\w+\W*(?:/|\||or\b)\W*(?:no|fail|false)\b", verdict) else True
    return False if verdict.startswith(_FAILED) else None


def _material(scenario: Scenario, turn: ScenarioTurn, before: str, actor: Actor | None) -> dict[str, str]:
    names = {short: each.name for short, each in scenario.actors.items()}
    actions = "\n".join(f"- {names[short]}: {decision.action}" for short, decision in turn.decisions.items())
    if actor is None:
        values = "\n".join(f"- {name}: {value}" for name, value in turn.variables.items())
        return {
            "previous_world_state": before,
            "actor_actions": actions,
            "new_world_state": turn.world_state,
            **({"computed_values": values} if values else {}),
        }
    short, decision = actor.short_name, turn.decisions[actor.short_name]
    mine = [talk for talk in turn.talks if short in talk.participants]
    messages = "\n".join(f"{names[who]}: {text}" for talk in mine for who, text in talk.messages)
    hidden = [other.private_information for other in scenario.actors.values() if other is not actor]
    return {
        "actor_name": actor.name,
        "actor_profile": _profile(actor),
        "world_state": before,
        "public_world_state": before,
        "actor_reasoning": decision.reasoning,
        "actor_action": decision.action,
        "private_communications": messages,
        "restricted_information": "\n".join(filter(None, hidden)),
    }


def _profile(actor: Actor) -> str:
    parts = [actor.system_prompt, *(f"Goal: {goal}" for goal in actor.goals)]
    parts += [f"Constraint: {text}" for text in actor.constraints]
    parts += [f"Knows: {text}" for text in actor.expertise]
    return "\n".join(filter(None, [*parts, actor.decision_style]))


def _filled(template: str, material: dict[str, str]) -> str:
    """Replace only known placeholders: a template may contain other braces."""
    for name, text in material.items():
        template = template.replace(f"{{{name}}}", text)
    return template
