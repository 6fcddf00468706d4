"""A task of a dialogue: a goal, the initial state of the world, and checks of the result.

    checks:
      state: [orders["W1"].status == "cancelled"]       # of the final state; `initial` is the first one
      solution: [{cancel_order: {order_id: W1}}]        # the final state is the one these calls lead to
      actions: [{cancel_order: {order_id: W1}}]         # calls that were made, with at least these arguments
      no_actions: [refund, {cancel_order: {order_id: W2}}]
      says: [refund, {regex: '5 (working )?days'}]      # in some message of the side under test
      never_says: [password]
      user: {says: [...], …}                            # the same of the simulated side

A task that fails while the checks of `user` fail is attributed to the simulated side.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.dialogue.templating import check_expression, evaluate, names_in
from proctor.dialogue.tools import (
    CODE_KINDS,
    Action,
    DialogueWorld,
    SideTools,
    ToolRefusal,
    ToolSpec,
    apply,
    argument_problem,
    changes,
)
from proctor.errors import UsageError
from proctor.evaluators.expect import check_answer
from proctor.evaluators.expect import problems_of as expectation_problems
from proctor.json_values import JsonMap, as_list, as_map

if TYPE_CHECKING:
    from proctor.runner import Services

SAID_KINDS = ("says", "never_says")
ACTION_KINDS = ("actions", "no_actions")
CHECK_KINDS = ("state", "solution", *ACTION_KINDS, *SAID_KINDS)
USER = "user"
MOST_CHANGES = 5
"""Differences of a state that a message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalCheck:
    """The result of one kind of check."""

    kind: str
    """`state`, `actions`, …; with the prefix `user.` for those of the simulated side."""
    failures: Sequence[str]

    @property
    def is_of_user(self) -> bool:
        return self.kind.startswith(f"{USER}.")


async def execute_solution(
    checks: JsonMap, initial: JsonMap, specs: Sequence[ToolSpec], services: "Services", folder: Path
) -> DialogueWorld | None:
    """The world after the calls of `solution`; None: the task has none."""
    if "solution" not in checks:
        return None
    world = DialogueWorld(initial)
    unrecorded = replace(services, record=lambda _: None)
    tools = SideTools(specs, "solution", world, unrecorded, folder=folder)
    for name, arguments in map(call_of, as_list(checks, "solution")):
        await tools.call(name, arguments)
    return world


def check_task(
    checks: JsonMap,
    world: DialogueWorld,
    lines: Sequence[tuple[str, str]],
    under_test: str,
    solved: DialogueWorld | None,
) -> list[GoalCheck]:
    """Check the end of a dialogue.

    `lines` are side and text of its messages, `solved` is the world that `execute_solution` returns.
    """
    results = []
    for kind in CHECK_KINDS:
        if kind in checks:
            mine = [text for side, text in lines if side == under_test]
            acted = [action for action in world.actions if action.side == under_test]
            failures = list(_failures(kind, as_list(checks, kind), world, acted, mine, solved))
            results.append(GoalCheck(kind=kind, failures=failures))
    for kind, entries in as_map(checks, USER).items():
        theirs = [text for side, text in lines if side != under_test]
        acted = [action for action in world.actions if action.side != under_test]
        failures = list(_failures(kind, as_list(entries), world, acted, theirs, solved))
        results.append(GoalCheck(kind=f"{USER}.{kind}", failures=failures))
    return results


def _failures(
    kind: str,
    entries: Sequence[object],
    world: DialogueWorld,
    actions: Sequence[Action],
    texts: Sequence[str],
    solved: DialogueWorld | None,
) -> Iterator[str]:
    match kind:
        case "state":
            values = {**world.state, "state": world.state, "initial": world.initial}
            for entry in entries:
                try:
                    holds = evaluate(str(entry), values, "the check")
                except UsageError as error:
                    yield str(error)
                else:
                    if not holds:
                        yield f"{entry} does not hold"
        case "solution":
            yield from _solution_failures(world, solved)
        case "actions":
            for name, arguments in map(call_of, entries):
                if not any(_matches(action, name, arguments) for action in actions):
                    yield f"{call_text(name, arguments)} was not called"
        case "no_actions":
            for name, arguments in map(call_of, entries):
                if any(_matches(action, name, arguments) for action in actions):
                    yield f"{call_text(name, arguments)} was called"
        case "says":
            yield from (f"{_quoted(entry)} was not said" for entry in entries if not _occurs(entry, texts))
        case _:
            yield from (f"{_quoted(entry)} was said" for entry in entries if _occurs(entry, texts))


def _solution_failures(world: DialogueWorld, solved: DialogueWorld | None) -> Iterator[str]:
    assert solved is not None
    for action in solved.actions:
        if not action.success:
            call = call_text(action.tool, action.arguments)
            yield f"the solution cannot be executed: {call}: {action.result}"
            return
    differing = [f"{place} is {value!r}" for place, value in changes(solved.state, world.state)]
    if differing:
        more = f" and {len(differing) - MOST_CHANGES} more" if len(differing) > MOST_CHANGES else ""
        yield f"the final state differs: {'; '.join(differing[:MOST_CHANGES])}{more}"


def call_of(entry: object) -> tuple[str, JsonMap]:
    """A call of a check: a name, or a name with arguments."""
    if isinstance(entry, Mapping) and len(entry) == 1:
        name, arguments = next(iter(entry.items()))
        return str(name), arguments if isinstance(arguments, Mapping) else {}
    return str(entry), {}


def _matches(action: Action, name: str, arguments: JsonMap) -> bool:
    actual = {key: action.arguments.get(key) for key in arguments}
    return action.success and action.tool == name and actual == dict(arguments)


def _occurs(entry: object, texts: Sequence[str]) -> bool:
    if isinstance(entry, Mapping):
        return any(all(check.passed for check in check_answer(entry, text)) for text in texts)
    return any(str(entry).casefold() in text.casefold() for text in texts)


def call_text(name: str, arguments: JsonMap) -> str:
    """A call as text."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _quoted(entry: object) -> str:
    if isinstance(entry, Mapping):
        return ", ".join(f"{name}: {value!r}" for name, value in entry.items())
    return repr(entry)


def check_problems(
    checks: JsonMap, initial: JsonMap, tools: Sequence[ToolSpec], their_tools: Sequence[ToolSpec]
) -> Iterator[str]:
    """Problems of the checks of a task: invalid names, expressions and calls."""
    by_name = {spec["name"]: spec for spec in tools}
    yield from _kind_problems(checks, initial, by_name, prefix="")
    of_user = {spec["name"]: spec for spec in their_tools}
    yield from _kind_problems(as_map(checks, USER), initial, of_user, prefix=f"{USER}.")


def _kind_problems(
    checks: JsonMap, initial: JsonMap, tools: Mapping[str, ToolSpec], prefix: str
) -> Iterator[str]:
    for kind, entries in checks.items():
        if kind == USER and not prefix:
            continue
        if kind not in CHECK_KINDS or (prefix and kind == "solution"):
            yield f"there is no check `{prefix}{kind}`. There are: {', '.join((*CHECK_KINDS, USER))}"
            continue
        for entry in as_list(entries):
            if problem := _entry_problem(kind, entry, initial, tools):
                yield f"`{prefix}{kind}`: {problem}"
    if isinstance(checks.get("solution"), list):
        state: JsonMap = initial
        for name, arguments in map(call_of, as_list(checks, "solution")):
            if name not in tools or any(kind in tools[name] for kind in CODE_KINDS):
                # Code is executed at the end of a dialogue, not before the first.
                return
            try:
                _, state = apply(tools[name], state, arguments)
            except ToolRefusal as error:
                yield f"`solution`: {call_text(name, arguments)} is refused: {error}"
                return


def _entry_problem(kind: str, entry: object, initial: JsonMap, tools: Mapping[str, ToolSpec]) -> str:
    if kind == "state":
        if wrong := check_expression(str(entry)):
            return f"`{entry}` is no expression: {wrong}"
        unknown = sorted(names_in(str(entry), is_expression=True) - {*initial, "state", "initial"})
        return f"`{entry}` speaks of `{unknown[0]}`, which is not in the state" if unknown else ""
    if kind in SAID_KINDS:
        return "; ".join(expectation_problems(entry)) if isinstance(entry, Mapping) else ""
    name, arguments = call_of(entry)
    if name not in tools:
        return f"there is no tool `{name}`. There are: {', '.join(tools) or 'none'}"
    return argument_problem(tools[name], arguments) if kind == "solution" else ""
