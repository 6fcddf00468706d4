"""A stand-in that does what a script says, to rehearse a batch without a model.

    script:
      rules:
        - {match: "fix .*", steps: [{edit: {path: a.py, find: "- 1", replace: "+ 1"}}, {say: Done.}]}
      steps:
        - say: I do not understand {prompt}.

The first rule whose `match` is found in the prompt decides, else `steps`; a bare list is `steps`.
What the steps are is in `_steps.py`. The same assignment always gives the same events.

Knows nothing of models: the usage it reports is what the script says.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from proctor.agent import Assignment, Availability, WorkDone
from proctor.agents._steps import Ended, Stage, Step, parsed_steps, perform
from proctor.errors import UsageError
from proctor.session import Record


@dataclass(frozen=True, slots=True)
class _Rule:
    match: re.Pattern[str]
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True)
class Scripted:
    """Does what its script says. Every report names it as a stand-in."""

    script: list[Any] | dict[str, Any]
    """A list of steps, or a map with `steps` and `rules`."""

    stand_in: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # A mistake in the script is found here, before anything starts.
        _ = self._rules, self._steps

    def availability(self, environment: Mapping[str, str]) -> Availability:  # noqa: ARG002 (needs nothing)
        """It is always there."""
        return Availability(ready=True)

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        """Perform the steps that the prompt calls for."""
        stage = Stage(assignment, record)
        try:
            await perform(self._chosen(assignment.prompt), stage)
        except Ended as ended:
            return ended.how
        return WorkDone(exit_code=0, output=stage.said)

    def _chosen(self, prompt: str) -> tuple[Step, ...]:
        found = (rule.steps for rule in self._rules if rule.match.search(prompt))
        return next(found, self._steps)

    @cached_property
    def _steps(self) -> tuple[Step, ...]:
        steps = self.script if isinstance(self.script, list) else self.script.get("steps", [])
        return parsed_steps(steps, "script")

    @cached_property
    def _rules(self) -> tuple[_Rule, ...]:
        if isinstance(self.script, list):
            return ()
        for key in self.script:
            if key not in ("steps", "rules"):
                raise UsageError(f"script: there is no `{key}`; a script has `steps` and `rules`")
        if not self.script:
            raise UsageError("script: it is empty; a script has `steps` or `rules`")
        rules = self.script.get("rules", [])
        if not isinstance(rules, list):
            raise UsageError("script: `rules` is a list")
        return tuple(_rule(rule, f"script: rule {number}") for number, rule in enumerate(rules, 1))


def _rule(rule: Any, where: str) -> _Rule:
    if not isinstance(rule, Mapping) or set(rule) != {"match", "steps"}:
        raise UsageError(f"{where}: a rule has `match` and `steps`")
    try:
        match = re.compile(rule["match"])
    except (re.error, TypeError) as cause:
        raise UsageError(f"{where}: `match` is no regular expression: {cause}") from cause
    return _Rule(match, parsed_steps(rule["steps"], where))
