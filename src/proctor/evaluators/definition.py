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
from pathlib import Path
from typing import Any

from proctor.errors import UsageError
from proctor.evaluators.builtins import JUDGED, PREFIX
from proctor.evaluators.matchers import MATCHINGS
from proctor.judging.question import PLACEHOLDERS, places_in
from proctor.score import Level

# Who judges, as a definition says it, in our own words.


BEDROCK, RESPONSES = "bedrockEvaluatorModelConfig", "responsesEvaluatorModelConfig"


_MEMBERS = {
    BEDROCK: ("modelId", "inferenceConfig", "additionalModelRequestFields"),
    RESPONSES: ("modelId", "maxOutputTokens", "temperature", "topP", "reasoning"),
}


_INFERENCE = ("maxTokens", "temperature", "topP", "stopSequences")


_NAMES = {
    "maxTokens": "max_tokens",
    "maxOutputTokens": "max_tokens",
    "temperature": "temperature",
    "topP": "top_p",
    "stopSequences": "stop",
}


def judge_of(config: Mapping[str, Any], names: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The model a (checked) model config means, and the parameters it is to be asked with."""
    ((kind, said),) = config.items()
    model = said["modelId"]
    if kind == BEDROCK:
        given = {**(said.get("inferenceConfig") or {})}
        more = dict(said.get("additionalModelRequestFields") or {})
    else:
        given = {name: said[name] for name in ("maxOutputTokens", "temperature", "topP") if name in said}
        effort = (said.get("reasoning") or {}).get("effort")
        more = {"reasoning_effort": effort} if effort else {}
    return names.get(model) or _ours(kind, model), {
        _NAMES[name]: value for name, value in given.items()
    } | more


def problems_of_model(where: str, config: Any) -> Iterable[tuple[str, str]]:
    """What is wrong with a model config: the path of the member, and what."""
    kinds = tuple(_MEMBERS)
    if not isinstance(config, Mapping) or len(config) != 1 or not set(config) <= set(kinds):
        yield where, f"should be a map with exactly one of {', '.join(kinds)}"
        return
    ((kind, said),) = config.items()
    where = f"{where}.{kind}"
    if not isinstance(said, Mapping):
        yield where, "should be a map"
        return
    yield from _unknown_setting(where, said, _MEMBERS[kind])
    if not isinstance(said.get("modelId"), str) or not said["modelId"].strip():
        yield f"{where}.modelId", "should be the name of a model"
    settings = said.get("inferenceConfig") or {} if kind == BEDROCK else said
    inside = f"{where}.inferenceConfig" if kind == BEDROCK else where
    if not isinstance(settings, Mapping):
        yield inside, "should be a map"
        return
    if kind == BEDROCK:
        yield from _unknown_setting(inside, settings, _INFERENCE)
    yield from _numbers(inside, settings, hottest=1 if kind == BEDROCK else 2)
    for name in ("additionalModelRequestFields", "reasoning"):
        if name in said and not isinstance(said[name], Mapping):
            yield f"{where}.{name}", "should be a map"


def _numbers(where: str, settings: Mapping[str, Any], *, hottest: int) -> Iterable[tuple[str, str]]:
    for name in ("maxTokens", "maxOutputTokens"):
        if name in settings and not (type(settings[name]) is int and settings[name] >= 1):
            yield f"{where}.{name}", "should be a whole number of at least 1"
    for name, most in (("temperature", hottest), ("topP", 1)):
        value = settings.get(name, 0)
        if not (type(value) in (int, float) and 0 <= value <= most):
            yield f"{where}.{name}", f"should be a number from 0 to {most}"
    stops = settings.get("stopSequences", [])
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        yield f"{where}.stopSequences", "should be a list of texts"


def _unknown_setting(
    where: str, value: Mapping[str, Any], known: tuple[str, ...]
) -> Iterable[tuple[str, str]]:
    for name in value:
        if name not in known:
            yield f"{where}.{name}", f"is not known; there are: {', '.join(known)}"


def _ours(kind: str, model: str) -> str:
    if "/" in model and not model.startswith("arn:"):
        return model
    return f"litellm/bedrock/{model}" if kind == BEDROCK else f"openai/{model}"


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
class DefinitionProblem:
    """One thing wrong with a definition: which member, and what."""

    name: str
    """Its path, with dots: `evaluatorConfig.llmAsAJudge.ratingScale`. Empty: the whole."""
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.name else self.message


def problems_of(document: Any, *, wire: bool = False) -> list[DefinitionProblem]:
    """Everything wrong with a definition; empty when it can be used.

    On the `wire` a judge has to name its model, and code has to be a function of the cloud's.
    """
    if not isinstance(document, Mapping):
        return [DefinitionProblem("", "an evaluator's definition is a map")]
    flaws = [*_unknown("", document, (*MEMBERS, *ALSO_ON_THE_WIRE)), *_head(document, wire)]
    level = LEVELS.get(str(document.get("level")))
    config: Any = document.get("evaluatorConfig")
    kinds: dict[str, Callable[[str, Any, Level | None, bool], Iterable[DefinitionProblem]]] = {
        "llmAsAJudge": _judge,
        "codeBased": _code,
        "derived": _derived,
    }
    chosen, found = _one_of("evaluatorConfig", config, tuple(kinds))
    flaws += found
    if chosen:
        flaws += kinds[chosen](f"evaluatorConfig.{chosen}", config[chosen], level, wire)
    return flaws


def _head(document: Mapping[str, Any], wire: bool) -> Iterable[DefinitionProblem]:
    name, described = document.get("evaluatorName"), document.get("description")
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        yield DefinitionProblem(
            "evaluatorName", "should be a letter, then up to 47 letters, digits or underscores"
        )
    if str(document.get("level")) not in LEVELS:
        yield DefinitionProblem("level", f"should be one of {', '.join(LEVELS)}")
    # An evaluator without a description is kept with an empty one.
    if described is not None and not (isinstance(described, str) and wire <= len(described) <= 200):
        yield DefinitionProblem("description", "should be 1 to 200 characters of text")


def _judge(where: str, config: Any, level: Level | None, wire: bool) -> Iterable[DefinitionProblem]:
    if not isinstance(config, Mapping):
        return [DefinitionProblem(where, "should be a map")]
    flaws = [*_unknown(where, config, ("instructions", "ratingScale", "modelConfig"))]
    flaws += _instructions(f"{where}.instructions", config.get("instructions"), level)
    flaws += _scale(f"{where}.ratingScale", config.get("ratingScale"))
    return flaws + _model(where, config, wire)


def _model(where: str, config: Mapping[str, Any], wire: bool) -> list[DefinitionProblem]:
    """What is wrong with the judge's model; only the wire insists on one."""
    if "modelConfig" not in config:
        return [DefinitionProblem(f"{where}.modelConfig", "is missing")] if wire else []
    return [
        DefinitionProblem(*found)
        for found in problems_of_model(f"{where}.modelConfig", config["modelConfig"])
    ]


def _instructions(where: str, instructions: Any, level: Level | None) -> Iterable[DefinitionProblem]:
    if not isinstance(instructions, str) or not instructions.strip():
        yield DefinitionProblem(where, "should be text")
        return
    if len(instructions) > LONGEST_INSTRUCTIONS:
        yield DefinitionProblem(where, f"should have at most {LONGEST_INSTRUCTIONS:,} characters")
    if level is None:
        return
    known, used = PLACEHOLDERS[level], places_in(instructions)
    there_are = ", ".join(f"{{{name}}}" for name in known)
    for name in dict.fromkeys(used):
        if name not in known:
            yield DefinitionProblem(
                where,
                f"has no placeholder {{{name}}} at this level{_near(name, known)}; it may use {there_are}",
            )
    if not used:
        yield DefinitionProblem(where, f"should use at least one placeholder: {there_are}")


def _scale(where: str, scale: Any) -> Iterable[DefinitionProblem]:
    chosen, flaws = _one_of(where, scale, ("numerical", "categorical", "multiDimensional"))
    yield from flaws
    if chosen == "multiDimensional":
        yield from _dimensions(f"{where}.{chosen}", scale[chosen])
    elif chosen:
        yield from _ratings(f"{where}.{chosen}", scale[chosen], numerical=chosen == "numerical")


def _ratings(where: str, entries: Any, *, numerical: bool) -> Iterable[DefinitionProblem]:
    if not isinstance(entries, Sequence) or isinstance(entries, str) or not entries:
        yield DefinitionProblem(where, "should be a list of ratings")
        return
    members = ("definition", "label", "value") if numerical else ("definition", "label")
    labels: list[str] = []
    for number, entry in enumerate(entries):
        here = f"{where}.{number}"
        if not isinstance(entry, Mapping):
            yield DefinitionProblem(here, "should be a map")
            continue
        yield from _unknown(here, entry, members)
        label, value = entry.get("label"), entry.get("value", -1)
        if not (isinstance(label, str) and 1 <= len(label.strip()) <= 100):
            yield DefinitionProblem(f"{here}.label", "should be 1 to 100 characters of text")
        else:
            labels.append(label.strip().casefold())
        if not isinstance(entry.get("definition"), str):
            yield DefinitionProblem(f"{here}.definition", "should be text")
        if numerical and not (type(value) in (int, float) and 0 <= value < float("inf")):
            yield DefinitionProblem(f"{here}.value", "should be a number that is not negative")
    if len(set(labels)) < len(labels):
        yield DefinitionProblem(where, "has a label twice")


def _dimensions(where: str, dimensions: Any) -> Iterable[DefinitionProblem]:
    if not isinstance(dimensions, Sequence) or not 1 <= len(dimensions) <= MOST_DIMENSIONS:
        yield DefinitionProblem(where, f"should be a list of 1 to {MOST_DIMENSIONS} dimensions")
        return
    names: list[str] = []
    for number, dimension in enumerate(dimensions):
        here = f"{where}.{number}"
        if not isinstance(dimension, Mapping):
            yield DefinitionProblem(here, "should be a map")
            continue
        yield from _unknown(
            here, dimension, ("dimensionName", "dimensionInstruction", "dimensionRatingScale")
        )
        name, said = dimension.get("dimensionName"), dimension.get("dimensionInstruction")
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            yield DefinitionProblem(
                f"{here}.dimensionName", "should be a letter, then up to 47 letters, digits or underscores"
            )
        else:
            names.append(name.replace("_", "").casefold())
        if not (isinstance(said, str) and 1 <= len(said) <= 4000):
            yield DefinitionProblem(f"{here}.dimensionInstruction", "should be 1 to 4000 characters of text")
        scale: Any = dimension.get("dimensionRatingScale")
        chosen, flaws = _one_of(f"{here}.dimensionRatingScale", scale, ("numerical", "categorical"))
        yield from flaws
        if chosen:
            inside = f"{here}.dimensionRatingScale.{chosen}"
            yield from _ratings(inside, scale[chosen], numerical=chosen == "numerical")
    if len(set(names)) < len(names):
        yield DefinitionProblem(where, "has two dimensions whose names differ in case or underscores alone")


def _code(where: str, config: Any, level: Level | None, wire: bool) -> Iterable[DefinitionProblem]:  # noqa: ARG001
    if not isinstance(config, Mapping):
        return [DefinitionProblem(where, "should be a map")]
    kinds = ("lambdaConfig",) if wire else ("lambdaConfig", "function", "command")
    limits = () if wire else ("timeoutSeconds", "memoryMegabytes")
    flaws = [*_unknown(where, config, (*kinds, *limits))]
    chosen = [kind for kind in kinds if kind in config]
    if len(chosen) != 1:
        return [*flaws, DefinitionProblem(where, f"should have exactly one of {', '.join(kinds)}")]
    checks = {"lambdaConfig": _lambda, "function": _function, "command": _command}
    flaws += checks[chosen[0]](f"{where}.{chosen[0]}", config[chosen[0]])
    for name, most in (("timeoutSeconds", 3600), ("memoryMegabytes", 1_000_000)):
        if name in config and not (type(config[name]) in (int, float) and 0 < config[name] <= most):
            flaws.append(
                DefinitionProblem(f"{where}.{name}", f"should be a number above 0 and up to {most:,}")
            )
    return flaws


def _lambda(where: str, config: Any) -> Iterable[DefinitionProblem]:
    if not isinstance(config, Mapping):
        yield DefinitionProblem(where, "should be a map")
        return
    yield from _unknown(where, config, ("lambdaArn", "lambdaTimeoutInSeconds"))
    arn, limit = config.get("lambdaArn"), config.get("lambdaTimeoutInSeconds", 60)
    if not (isinstance(arn, str) and LAMBDA_ARN.fullmatch(arn)):
        yield DefinitionProblem(f"{where}.lambdaArn", "should be the ARN of a Lambda function")
    if not (type(limit) is int and 1 <= limit <= 300):
        yield DefinitionProblem(f"{where}.lambdaTimeoutInSeconds", "should be a whole number from 1 to 300")


def _function(where: str, function: Any) -> Iterable[DefinitionProblem]:
    if not (isinstance(function, str) and FUNCTION.fullmatch(function)):
        yield DefinitionProblem(where, "should be `module:function`")


def _command(where: str, command: Any) -> Iterable[DefinitionProblem]:
    if (
        not isinstance(command, list)
        or not command
        or not all(isinstance(word, str) and word for word in command)
    ):
        yield DefinitionProblem(where, "should be a list: a program and its arguments")


def _derived(where: str, config: Any, level: Level | None, wire: bool) -> Iterable[DefinitionProblem]:
    if not isinstance(config, Mapping):
        return [DefinitionProblem(where, "should be a map")]
    flaws = [*_unknown(where, config, ("baseEvaluatorId", "modelConfig"))]
    base = config.get("baseEvaluatorId")
    here = f"{where}.baseEvaluatorId"
    if not (isinstance(base, str) and BASE.fullmatch(base)):
        flaws.append(DefinitionProblem(here, "should be an evaluator's id"))
    elif base in MATCHINGS:
        flaws.append(DefinitionProblem(here, "asks no model, so there is none to put in its place"))
    elif base.startswith(PREFIX) and (built_in := JUDGED.get(base.removeprefix(PREFIX))) is None:
        flaws.append(
            DefinitionProblem(
                here, f"is no built-in evaluator{_near(base, [PREFIX + name for name in JUDGED])}"
            )
        )
    elif base.startswith(PREFIX) and level and built_in and built_in.level != level:
        flaws.append(DefinitionProblem("level", f"is not that of {base}"))
    return flaws + _model(where, config, wire)


def _one_of(where: str, value: Any, kinds: Sequence[str]) -> tuple[str, list[DefinitionProblem]]:
    """The one member of a union that is given; empty when it is not one."""
    if not isinstance(value, Mapping):
        return "", [DefinitionProblem(where, f"should be a map with exactly one of {', '.join(kinds)}")]
    given = [kind for kind in kinds if value.get(kind) is not None]
    flaws = list(_unknown(where, value, kinds))
    if len(given) != 1:
        return "", [*flaws, DefinitionProblem(where, f"should have exactly one of {', '.join(kinds)}")]
    return given[0], flaws


def _unknown(where: str, value: Mapping[str, Any], known: Sequence[str]) -> Iterable[DefinitionProblem]:
    for name in value:
        if name not in known:
            path = f"{where}.{name}" if where else str(name)
            yield DefinitionProblem(
                path, f"is not known{_near(str(name), known)}; there are: {', '.join(known)}"
            )


def _near(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f" (did you mean `{near[0]}`?)" if near else ""


# The files of a new evaluator: one of everything, ready to be tried and changed.


KINDS = ("judge", "function", "command")


_JUDGE = """# Try it:  proctor evaluators test {name} --session SESSION --judge provider/model
evaluatorName: {name}
level: {level}
description: Whether the agent was polite.
evaluatorConfig:
  llmAsAJudge:
    # There are, at this level: {places}
    instructions: |
      Was the agent polite here?

      What happened:
      {{context}}
{more}
      Judge the tone alone, not whether the agent was right.
    ratingScale:
      numerical:
        - {{label: Polite, value: 1, definition: friendly and respectful throughout}}
        - {{label: Neutral, value: 0.5, definition: neither friendly nor rude}}
        - {{label: Rude, value: 0, definition: dismissive or disrespectful somewhere}}
    # Who judges, instead of --judge:
    # modelConfig:
    #   bedrockEvaluatorModelConfig: {{modelId: anthropic/claude-sonnet-4-5}}
"""


_SHOWN = {
    "SESSION": "",
    "TRACE": "\n      The answer to judge:\n      {assistant_turn}\n",
    "TOOL_CALL": "\n      The tool call to judge:\n      {tool_turn}\n",
}


_CODE = """# Try it:  proctor evaluators test {name} --session SESSION
evaluatorName: {name}
level: {level}
description: How many words the agent's answers have.
evaluatorConfig:
  codeBased:
    {run}
    timeoutSeconds: 60
"""


_FUNCTION = '''"""Counts the words of the agent's answers."""


def judge(event):
    """Return {{label, value, explanation}}, or a number, a truth value or a text.

    event["session"] holds the turns; event["evaluationTarget"] says which trace or tool call is meant.
    To say that something cannot be judged, return {{errorCode, errorMessage}}, or raise.
    """
    turns = event["session"]["turns"]
    wanted = (event["evaluationTarget"] or {{}}).get("traceIds")
    answers = [turn["answer"] for turn in turns if wanted is None or turn["traceId"] in wanted]
    words = sum(len(answer.split()) for answer in answers)
    return {{"label": "short" if words < 100 else "long", "value": words, "explanation": f"{{words}} words"}}
'''


_COMMAND = '''"""Counts the words of the agent's answers: an event on standard input, a score on output."""

import json
import sys

event = json.load(sys.stdin)
wanted = (event["evaluationTarget"] or {{}}).get("traceIds")
turns = [turn for turn in event["session"]["turns"] if wanted is None or turn["traceId"] in wanted]
words = sum(len(turn["answer"].split()) for turn in turns)
print(json.dumps({{"label": "short" if words < 100 else "long", "value": words}}))
'''


def new_evaluator(name: str, folder: Path, *, level: str, kind: str) -> list[Path]:
    """Write the files of a new evaluator into a folder of them; the paths. Replaces nothing."""
    if not NAME.fullmatch(name):
        raise UsageError(f"`{name}` is no name for an evaluator\nUse letters, digits and underscores.")
    if level not in LEVELS:
        raise UsageError(f"there is no level `{level}`\nThere are: {', '.join(LEVELS)}.")
    if kind not in KINDS:
        raise UsageError(f"there is no kind `{kind}`\nThere are: {', '.join(KINDS)}.")
    files = {folder / f"{name}.yaml": _definition(name, folder, level, kind)}
    if kind != "judge":
        files[folder / f"{name}.py"] = (_FUNCTION if kind == "function" else _COMMAND).format()
    for path in files:
        if path.exists():
            raise UsageError(f"{path} is there already\nChoose another name, or move it away.")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)


def _definition(name: str, folder: Path, level: str, kind: str) -> str:
    if kind == "judge":
        places = ", ".join(f"{{{place}}}" for place in PLACEHOLDERS[LEVELS[level]])
        return _JUDGE.format(name=name, level=level, places=places, more=_SHOWN[level])
    if kind == "command":
        return _CODE.format(name=name, level=level, run=f'command: [python3, "{folder / name}.py"]')
    module = ".".join(part for part in (*folder.parts, name) if re.fullmatch(r"\w+", part))
    return _CODE.format(name=name, level=level, run=f'function: "{module}:judge"')
