"""Validate turns with a model: actors out of character, contradictions in the world state.

Findings become issues with the severity of their check; the scenario decides whether an issue is logged,
reported as a warning, or ends the run.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proctor.scenario.definition import Actor, Scenario, Validation, ValidationCheck
from proctor.scenario.prompts import Prompts, ScenarioModels, listed, sections
from proctor.scenario.state import Issue, ScenarioTurn

DESCRIPTIONS = {
    "actor_decision_consistency": "an actor that acts against its own character, goals or constraints",
    "world_state_coherence": "a new state of the world that does not follow from the old one and the actions",
    "information_access_consistency": "an actor that acts on something it cannot know",
}
OF_THE_WORLD = ("world_state_coherence",)
"""Checks of a whole turn; the others examine one actor at a time."""
_PASSED = ("pass", "ok", "yes", "consistent", "coherent", "no issue", "none", "not fail")
_FAILED = ("fail", "no", "inconsistent", "incoherent")
"""Beginnings of verdicts; `_PASSED` is tried first, because `no issues` passes."""
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
    return ValidationResult(issues=tuple(issues), run=run, unread=unread)


def halting(rules: Validation | None, issues: Sequence[Issue]) -> str:
    """Why these issues end the run; empty when they do not."""
    if rules is None:
        return ""
    for issue in issues:
        ends = rules.severity_thresholds.get(issue.severity) == "halt"
        if ends or (rules.halt_on_critical and issue.severity in GRAVE):
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
        question = _filled(check.prompt_template, material)
    else:
        excerpt = "\n\n".join(
            f"# {title.replace('_', ' ')}\n{text}" for title, text in material.items() if text
        )
        description = check.description or DESCRIPTIONS.get(name, name.replace("_", " "))
        question = prompts.render("check", description=description, material=excerpt)
    rules = scenario.validation
    answer = await models.ask(
        "validation",
        name,
        model=(rules.validation_model if rules else "") or scenario.world_state_model,
        prompt=f"{question}\n\n{prompts.render('check_format')}",
        turn=turn,
        about=who,
    )
    fields = sections(answer, ("VERDICT", "ISSUES"))
    verdict = re.sub(r"^\W+", "", fields.get("VERDICT", "")).lower()
    if verdict.startswith(_PASSED):
        return []
    if not verdict.startswith(_FAILED):
        return None
    issues = listed(fields.get("ISSUES", "")) or ["the check did not pass"]
    return [Issue(check=name, severity=check.severity, actor=who, text=text) for text in issues]


def _material(scenario: Scenario, turn: ScenarioTurn, before: str, actor: Actor | None) -> dict[str, str]:
    names = {short: each.name for short, each in scenario.actors.items()}
    actions = "\n".join(f"- {names[short]}: {decision.action}" for short, decision in turn.decisions.items())
    if actor is None:
        return {"previous_world_state": before, "actor_actions": actions, "new_world_state": turn.world_state}
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
