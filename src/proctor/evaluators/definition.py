"""An evaluator as a document: everything that is wrong with one, found together.

The document has the shape of the wire: `evaluatorName`, `level`, `description`, and an `evaluatorConfig`
that is one of `llmAsAJudge`, `codeBased` and `derived`. Beside the wire's `lambdaConfig`, `codeBased` may
be a `function` (`module:function`) or a `command` (a program and its arguments) of the user's own.

Knows nothing of files, stores or how evaluators are made of it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from proctor.evaluators.builtins import JUDGED, PREFIX
from proctor.evaluators.model_config import problems_of_model
from proctor.evaluators.question import PLACEHOLDERS, places_in
from proctor.evaluators.trajectory import MATCHINGS
from proctor.score import Level

LEVELS: Mapping[str, Level] = {"SESSION": "session", "TRACE": "trace", "TOOL_CALL": "tool_call"}
"""The levels as the wire has them, and as scores do."""
NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,47}")
FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
LAMBDA_ARN = re.compile(
    r"arn:(aws[a-zA-Z-]*)?:lambda:([a-z]{2}(-gov)?-[a-z]+-\d):(\d{12}):function:([a-zA-Z0-9-_.]+)"
    r"(:(\$LATEST|[a-zA-Z0-9-_]+))?"
)
BASE = re.compile(
    r"Builtin\.[a-zA-Z0-9._-]+|ThirdParty\.[a-zA-Z0-9_-]+\.[a-zA-Z0-9_-]+|[a-zA-Z][a-zA-Z0-9-_]{0,99}-[a-zA-Z0-9]{10}"
)
MEMBERS = ("evaluatorName", "level", "description", "evaluatorConfig")
ALSO_ON_THE_WIRE = ("clientToken", "kmsKeyArn", "tags", "evaluatorId")
LONGEST_INSTRUCTIONS = 100_000
MOST_DIMENSIONS = 50


@dataclass(frozen=True, slots=True)
class Flaw:
    """One thing wrong with a definition: which member, and what."""

    name: str
    """Its path, with dots: `evaluatorConfig.llmAsAJudge.ratingScale`. Empty: the whole."""
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.name else self.message


def problems_of(document: Any, *, wire: bool = False) -> list[Flaw]:
    """Everything wrong with a definition; empty when it can be used.

    On the `wire` a judge has to name its model, and code has to be a function of the cloud's.
    """
    if not isinstance(document, Mapping):
        return [Flaw("", "an evaluator's definition is a map")]
    flaws = [*_unknown("", document, (*MEMBERS, *ALSO_ON_THE_WIRE)), *_head(document, wire)]
    level = LEVELS.get(str(document.get("level")))
    config: Any = document.get("evaluatorConfig")
    kinds: dict[str, Callable[[str, Any, Level | None, bool], Iterable[Flaw]]] = {
        "llmAsAJudge": _judge,
        "codeBased": _code,
        "derived": _derived,
    }
    chosen, found = _one_of("evaluatorConfig", config, tuple(kinds))
    flaws += found
    if chosen:
        flaws += kinds[chosen](f"evaluatorConfig.{chosen}", config[chosen], level, wire)
    return flaws


def _head(document: Mapping[str, Any], wire: bool) -> Iterable[Flaw]:
    name, described = document.get("evaluatorName"), document.get("description")
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        yield Flaw("evaluatorName", "should be a letter, then up to 47 letters, digits or underscores")
    if str(document.get("level")) not in LEVELS:
        yield Flaw("level", f"should be one of {', '.join(LEVELS)}")
    # An evaluator without a description is kept with an empty one.
    if described is not None and not (isinstance(described, str) and wire <= len(described) <= 200):
        yield Flaw("description", "should be 1 to 200 characters of text")


def _judge(where: str, config: Any, level: Level | None, wire: bool) -> Iterable[Flaw]:
    if not isinstance(config, Mapping):
        return [Flaw(where, "should be a map")]
    flaws = [*_unknown(where, config, ("instructions", "ratingScale", "modelConfig"))]
    flaws += _instructions(f"{where}.instructions", config.get("instructions"), level)
    flaws += _scale(f"{where}.ratingScale", config.get("ratingScale"))
    return flaws + _model(where, config, wire)


def _model(where: str, config: Mapping[str, Any], wire: bool) -> list[Flaw]:
    """What is wrong with the judge's model; only the wire insists on one."""
    if "modelConfig" not in config:
        return [Flaw(f"{where}.modelConfig", "is missing")] if wire else []
    return [Flaw(*found) for found in problems_of_model(f"{where}.modelConfig", config["modelConfig"])]


def _instructions(where: str, instructions: Any, level: Level | None) -> Iterable[Flaw]:
    if not isinstance(instructions, str) or not instructions.strip():
        yield Flaw(where, "should be text")
        return
    if len(instructions) > LONGEST_INSTRUCTIONS:
        yield Flaw(where, f"should have at most {LONGEST_INSTRUCTIONS:,} characters")
    if level is None:
        return
    known, used = PLACEHOLDERS[level], places_in(instructions)
    there_are = ", ".join(f"{{{name}}}" for name in known)
    for name in dict.fromkeys(used):
        if name not in known:
            yield Flaw(
                where,
                f"has no placeholder {{{name}}} at this level{_near(name, known)}; it may use {there_are}",
            )
    if not used:
        yield Flaw(where, f"should use at least one placeholder: {there_are}")


def _scale(where: str, scale: Any) -> Iterable[Flaw]:
    chosen, flaws = _one_of(where, scale, ("numerical", "categorical", "multiDimensional"))
    yield from flaws
    if chosen == "multiDimensional":
        yield from _dimensions(f"{where}.{chosen}", scale[chosen])
    elif chosen:
        yield from _ratings(f"{where}.{chosen}", scale[chosen], numerical=chosen == "numerical")


def _ratings(where: str, entries: Any, *, numerical: bool) -> Iterable[Flaw]:
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        yield Flaw(where, "should be a list of ratings")
        return
    members = ("definition", "label", "value") if numerical else ("definition", "label")
    labels: list[str] = []
    for number, entry in enumerate(entries):
        here = f"{where}.{number}"
        if not isinstance(entry, Mapping):
            yield Flaw(here, "should be a map")
            continue
        yield from _unknown(here, entry, members)
        label, value = entry.get("label"), entry.get("value", -1)
        if not (isinstance(label, str) and 1 <= len(label.strip()) <= 100):
            yield Flaw(f"{here}.label", "should be 1 to 100 characters of text")
        else:
            labels.append(label.strip().casefold())
        if not isinstance(entry.get("definition"), str):
            yield Flaw(f"{here}.definition", "should be text")
        if numerical and not (type(value) in (int, float) and 0 <= value < float("inf")):
            yield Flaw(f"{here}.value", "should be a number that is not negative")
    if len(set(labels)) < len(labels):
        yield Flaw(where, "has a label twice")


def _dimensions(where: str, dimensions: Any) -> Iterable[Flaw]:
    if not isinstance(dimensions, Sequence) or not 1 <= len(dimensions) <= MOST_DIMENSIONS:
        yield Flaw(where, f"should be a list of 1 to {MOST_DIMENSIONS} dimensions")
        return
    names: list[str] = []
    for number, dimension in enumerate(dimensions):
        here = f"{where}.{number}"
        if not isinstance(dimension, Mapping):
            yield Flaw(here, "should be a map")
            continue
        yield from _unknown(
            here, dimension, ("dimensionName", "dimensionInstruction", "dimensionRatingScale")
        )
        name, said = dimension.get("dimensionName"), dimension.get("dimensionInstruction")
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            yield Flaw(
                f"{here}.dimensionName", "should be a letter, then up to 47 letters, digits or underscores"
            )
        else:
            names.append(name.replace("_", "").casefold())
        if not (isinstance(said, str) and 1 <= len(said) <= 4000):
            yield Flaw(f"{here}.dimensionInstruction", "should be 1 to 4000 characters of text")
        scale: Any = dimension.get("dimensionRatingScale")
        chosen, flaws = _one_of(f"{here}.dimensionRatingScale", scale, ("numerical", "categorical"))
        yield from flaws
        if chosen:
            inside = f"{here}.dimensionRatingScale.{chosen}"
            yield from _ratings(inside, scale[chosen], numerical=chosen == "numerical")
    if len(set(names)) < len(names):
        yield Flaw(where, "has two dimensions whose names differ in case or underscores alone")


def _code(where: str, config: Any, level: Level | None, wire: bool) -> Iterable[Flaw]:  # noqa: ARG001
    if not isinstance(config, Mapping):
        return [Flaw(where, "should be a map")]
    kinds = ("lambdaConfig",) if wire else ("lambdaConfig", "function", "command")
    limits = () if wire else ("timeoutSeconds", "memoryMegabytes")
    flaws = [*_unknown(where, config, (*kinds, *limits))]
    chosen = [kind for kind in kinds if kind in config]
    if len(chosen) != 1:
        return [*flaws, Flaw(where, f"should have exactly one of {', '.join(kinds)}")]
    checks = {"lambdaConfig": _lambda, "function": _function, "command": _command}
    flaws += checks[chosen[0]](f"{where}.{chosen[0]}", config[chosen[0]])
    for name, most in (("timeoutSeconds", 3600), ("memoryMegabytes", 1_000_000)):
        if name in config and not (type(config[name]) in (int, float) and 0 < config[name] <= most):
            flaws.append(Flaw(f"{where}.{name}", f"should be a number above 0 and up to {most:,}"))
    return flaws


def _lambda(where: str, config: Any) -> Iterable[Flaw]:
    if not isinstance(config, Mapping):
        yield Flaw(where, "should be a map")
        return
    yield from _unknown(where, config, ("lambdaArn", "lambdaTimeoutInSeconds"))
    arn, limit = config.get("lambdaArn"), config.get("lambdaTimeoutInSeconds", 60)
    if not (isinstance(arn, str) and LAMBDA_ARN.fullmatch(arn)):
        yield Flaw(f"{where}.lambdaArn", "should be the ARN of a Lambda function")
    if not (type(limit) is int and 1 <= limit <= 300):
        yield Flaw(f"{where}.lambdaTimeoutInSeconds", "should be a whole number from 1 to 300")


def _function(where: str, function: Any) -> Iterable[Flaw]:
    if not (isinstance(function, str) and FUNCTION.fullmatch(function)):
        yield Flaw(where, "should be `module:function`")


def _command(where: str, command: Any) -> Iterable[Flaw]:
    if (
        not isinstance(command, list)
        or not command
        or not all(isinstance(word, str) and word for word in command)
    ):
        yield Flaw(where, "should be a list: a program and its arguments")


def _derived(where: str, config: Any, level: Level | None, wire: bool) -> Iterable[Flaw]:
    if not isinstance(config, Mapping):
        return [Flaw(where, "should be a map")]
    flaws = [*_unknown(where, config, ("baseEvaluatorId", "modelConfig"))]
    base = config.get("baseEvaluatorId")
    here = f"{where}.baseEvaluatorId"
    if not (isinstance(base, str) and BASE.fullmatch(base)):
        flaws.append(Flaw(here, "should be an evaluator's id"))
    elif base in MATCHINGS:
        flaws.append(Flaw(here, "asks no model, so there is none to put in its place"))
    elif base.startswith(PREFIX) and (built_in := JUDGED.get(base.removeprefix(PREFIX))) is None:
        flaws.append(Flaw(here, f"is no built-in evaluator{_near(base, [PREFIX + name for name in JUDGED])}"))
    elif base.startswith(PREFIX) and level and built_in and built_in.level != level:
        flaws.append(Flaw("level", f"is not that of {base}"))
    return flaws + _model(where, config, wire)


def _one_of(where: str, value: Any, kinds: Sequence[str]) -> tuple[str, list[Flaw]]:
    """The one member of a union that is given; empty when it is not one."""
    if not isinstance(value, Mapping):
        return "", [Flaw(where, f"should be a map with exactly one of {', '.join(kinds)}")]
    given = [kind for kind in kinds if value.get(kind) is not None]
    flaws = list(_unknown(where, value, kinds))
    if len(given) != 1:
        return "", [*flaws, Flaw(where, f"should have exactly one of {', '.join(kinds)}")]
    return given[0], flaws


def _unknown(where: str, value: Mapping[str, Any], known: Sequence[str]) -> Iterable[Flaw]:
    for name in value:
        if name not in known:
            path = f"{where}.{name}" if where else str(name)
            yield Flaw(path, f"is not known{_near(str(name), known)}; there are: {', '.join(known)}")


def _near(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f" (did you mean `{near[0]}`?)" if near else ""
