"""Validation of evaluator definitions; all problems are reported together.

A definition has the shape of the API: `evaluatorName`, `level`, `description`, and an `evaluatorConfig` that
is one of `llmAsAJudge`, `codeBased` and `derived`. Besides the API's `lambdaConfig`, `codeBased` may be a
`function` (`module:function`) or a `command` (a program and its arguments) of the user.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from proctor.errors import UsageError
from proctor.evaluators.builtins import JUDGED, PREFIX
from proctor.evaluators.judging import DEFAULT_AUDIT, PLACEHOLDERS, RULES_OF_JURIES, places_in
from proctor.evaluators.matchers import MATCHINGS
from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_integer,
    as_map,
    as_number,
    as_sequence,
    require_map,
    require_text,
)
from proctor.score import Level

BEDROCK, RESPONSES = "bedrockEvaluatorModelConfig", "responsesEvaluatorModelConfig"
_MEMBERS = {
    BEDROCK: ("modelId", "inferenceConfig", "additionalModelRequestFields"),
    RESPONSES: ("modelId", "maxOutputTokens", "temperature", "topP", "reasoning"),
}
REGIONS = ("us", "eu", "apac", "jp", "au", "global", "us-gov")
"""Prefixes of inference profiles of Bedrock."""
_INFERENCE = ("maxTokens", "temperature", "topP", "stopSequences")
_NAMES = {
    "maxTokens": "max_tokens",
    "maxOutputTokens": "max_tokens",
    "temperature": "temperature",
    "topP": "top_p",
    "stopSequences": "stop",
}


def judge_of(config: JsonMap, names: Mapping[str, str]) -> tuple[str, JsonObject]:
    """The model and the call parameters of a (validated) model config."""
    ((kind, value),) = config.items()
    settings = require_map(value)
    model = require_text(settings["modelId"])
    if kind == BEDROCK:
        parameters = as_map(settings, "inferenceConfig")
        extra = dict(as_map(settings, "additionalModelRequestFields"))
    else:
        parameters = {
            name: settings[name] for name in ("maxOutputTokens", "temperature", "topP") if name in settings
        }
        effort = as_map(settings, "reasoning").get("effort")
        extra = {"reasoning_effort": effort} if effort else {}
    return _route(kind, model, names), {_NAMES[name]: value for name, value in parameters.items()} | extra


def problems_of_model(where: str, config: object) -> Iterable[tuple[str, str]]:
    """Problems of a model config: path of the member, and message."""
    kinds = tuple(_MEMBERS)
    if not isinstance(config, Mapping) or len(config) != 1 or not set(config) <= set(kinds):
        yield where, f"should be a map with exactly one of {', '.join(kinds)}"
        return
    ((kind, model),) = config.items()
    where = f"{where}.{kind}"
    if not isinstance(model, Mapping):
        yield where, "should be a map"
        return
    yield from _unknown_setting(where, model, _MEMBERS[kind])
    if not isinstance(model.get("modelId"), str) or not model["modelId"].strip():
        yield f"{where}.modelId", "should be the name of a model"
    settings = model.get("inferenceConfig") or {} if kind == BEDROCK else model
    path = f"{where}.inferenceConfig" if kind == BEDROCK else where
    if not isinstance(settings, Mapping):
        yield path, "should be a map"
        return
    if kind == BEDROCK:
        yield from _unknown_setting(path, settings, _INFERENCE)
    yield from _numbers(path, settings, hottest=1 if kind == BEDROCK else 2)
    for name in ("additionalModelRequestFields", "reasoning"):
        if name in model and not isinstance(model[name], Mapping):
            yield f"{where}.{name}", "should be a map"


def _numbers(where: str, settings: JsonMap, *, hottest: int) -> Iterable[tuple[str, str]]:
    for name in ("maxTokens", "maxOutputTokens"):
        if name in settings and (as_integer(settings[name]) or 0) < 1:
            yield f"{where}.{name}", "should be a whole number of at least 1"
    for name, most in (("temperature", hottest), ("topP", 1)):
        value = as_number(settings.get(name, 0))
        if value is None or not 0 <= value <= most:
            yield f"{where}.{name}", f"should be a number from 0 to {most}"
    stops = settings.get("stopSequences", [])
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        yield f"{where}.stopSequences", "should be a list of texts"


def _unknown_setting(where: str, value: JsonMap, known: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    for name in value:
        if name not in known:
            yield f"{where}.{name}", f"is unknown. Use one of: {', '.join(known)}"


def _route(kind: str, model: str, names: Mapping[str, str]) -> str:
    """The model that judges for a model id: as it is mapped, as it is written, or by its service."""
    # Ids of regions name the same model: us.anthropic.claude-….
    region, _, plain = model.partition(".")
    mapped = names.get(model) or (names.get(plain) if region in REGIONS else None)
    if mapped:
        return mapped
    if "/" in model and not model.startswith("arn:"):
        return model
    if default := names.get("default"):
        return default
    return f"litellm/bedrock/{model}" if kind == BEDROCK else f"openai/{model}"


LEVELS: Mapping[str, Level] = {"SESSION": "session", "TRACE": "trace", "TOOL_CALL": "tool_call"}
"""Levels as the API names them → as scores do."""
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
API_ONLY_MEMBERS = ("clientToken", "kmsKeyArn", "tags", "evaluatorId")
LONGEST_INSTRUCTIONS = 100_000
MOST_DIMENSIONS = 50
MOST_JUDGES = 9
PANELS = ("jury", "escalation")
"""Members that name several judges."""


@dataclass(frozen=True, slots=True)
class DefinitionProblem:
    """One problem of a definition."""

    name: str
    """Path of the member: `evaluatorConfig.llmAsAJudge.ratingScale`. Empty: the whole."""
    message: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.name else self.message


def problems_of(document: object, *, wire: bool = False) -> list[DefinitionProblem]:
    """All problems of a definition; empty when it is valid.

    On the `wire` (through the API) a judge must name its model, and code must be a Lambda function.
    """
    if not isinstance(document, Mapping):
        return [DefinitionProblem("", "an evaluator's definition is a map")]
    problems = [*_unknown("", document, (*MEMBERS, *API_ONLY_MEMBERS)), *_header_problems(document, wire)]
    level = LEVELS.get(str(document.get("level")))
    config = document.get("evaluatorConfig")
    kinds: dict[str, Callable[[str, object, Level | None, bool], Iterable[DefinitionProblem]]] = {
        "llmAsAJudge": _judge,
        "codeBased": _code,
        "derived": _derived,
    }
    chosen, union_problems = _one_of("evaluatorConfig", config, tuple(kinds))
    problems += union_problems
    if chosen:
        problems += kinds[chosen](f"evaluatorConfig.{chosen}", as_map(config)[chosen], level, wire)
    return problems


def _header_problems(document: JsonMap, wire: bool) -> Iterable[DefinitionProblem]:
    name, described = document.get("evaluatorName"), document.get("description")
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        yield DefinitionProblem(
            "evaluatorName", "should be a letter, then up to 47 letters, digits or underscores"
        )
    if str(document.get("level")) not in LEVELS:
        yield DefinitionProblem("level", f"should be one of {', '.join(LEVELS)}")
    # An evaluator without a description is stored with an empty one.
    if described is not None and not (isinstance(described, str) and wire <= len(described) <= 200):
        yield DefinitionProblem("description", "should be 1 to 200 characters of text")


def _judge(where: str, config: object, level: Level | None, wire: bool) -> Iterable[DefinitionProblem]:
    if not isinstance(config, Mapping):
        return [DefinitionProblem(where, "should be a map")]
    problems = list(_unknown(where, config, ("instructions", "ratingScale", "modelConfig", *PANELS)))
    problems += _instructions(f"{where}.instructions", config.get("instructions"), level)
    problems += _scale(f"{where}.ratingScale", config.get("ratingScale"))
    if as_map(config, "jury").get("rule") == "median" and not _is_numerical(config.get("ratingScale")):
        problems.append(DefinitionProblem(f"{where}.jury.rule", "median needs a scale of numbers"))
    return problems + _models(where, config, wire)


def _is_numerical(scale: object) -> bool:
    dimensions = as_sequence(as_map(scale).get("multiDimensional"))
    scales = [as_map(each, "dimensionRatingScale") for each in dimensions] or [as_map(scale)]
    return all("numerical" in each for each in scales)


def _models(where: str, config: JsonMap, wire: bool) -> list[DefinitionProblem]:
    """Problems of the judges: one model, a jury, or two of which the second decides in doubt.

    Only the API requires a model.
    """
    jury, escalation = config.get("jury"), config.get("escalation")
    if jury is not None:
        combined = DefinitionProblem(f"{where}.escalation", "cannot be combined with a jury")
        return [
            *([] if escalation is None else [combined]),
            *_model(where, config, wire),
            *_jury(f"{where}.jury", jury),
        ]
    return [
        *_model(where, config, wire),
        *([] if escalation is None else _escalation(f"{where}.escalation", escalation)),
    ]


def _model(where: str, config: JsonMap, required: bool) -> list[DefinitionProblem]:
    if "modelConfig" not in config:
        return [DefinitionProblem(f"{where}.modelConfig", "is missing")] if required else []
    return [
        DefinitionProblem(*problem)
        for problem in problems_of_model(f"{where}.modelConfig", config["modelConfig"])
    ]


def _jury(where: str, jury: object) -> Iterable[DefinitionProblem]:
    if not isinstance(jury, Mapping):
        yield DefinitionProblem(where, "should be a map")
        return
    yield from _unknown(where, jury, ("judges", "rule"))
    judges = jury.get("judges")
    if not isinstance(judges, list) or not 2 <= len(judges) <= MOST_JUDGES:
        yield DefinitionProblem(f"{where}.judges", f"should be a list of 2 to {MOST_JUDGES} model configs")
        return
    for number, judge in enumerate(judges):
        yield from (DefinitionProblem(*each) for each in problems_of_model(f"{where}.judges.{number}", judge))
    if jury.get("rule", "majority") not in RULES_OF_JURIES:
        yield DefinitionProblem(f"{where}.rule", f"should be one of {', '.join(RULES_OF_JURIES)}")


def _escalation(where: str, escalation: object) -> Iterable[DefinitionProblem]:
    if not isinstance(escalation, Mapping):
        yield DefinitionProblem(where, "should be a map")
        return
    yield from _unknown(where, escalation, ("modelConfig", "below", "audit", "agreement"))
    yield from _model(where, escalation, True)
    for name, default in (("below", None), ("audit", DEFAULT_AUDIT), ("agreement", 1)):
        value = as_number(escalation.get(name, default))
        if value is None or not 0 <= value <= 1:
            yield DefinitionProblem(f"{where}.{name}", "should be a number from 0 to 1")


def _instructions(where: str, instructions: object, level: Level | None) -> Iterable[DefinitionProblem]:
    if not isinstance(instructions, str) or not instructions.strip():
        yield DefinitionProblem(where, "should be text")
        return
    if len(instructions) > LONGEST_INSTRUCTIONS:
        yield DefinitionProblem(where, f"should have at most {LONGEST_INSTRUCTIONS:,} characters")
    if level is None:
        return
    known, used = PLACEHOLDERS[level], places_in(instructions)
    choices = ", ".join(f"{{{name}}}" for name in known)
    for name in dict.fromkeys(used):
        if name not in known:
            yield DefinitionProblem(
                where, f"has no placeholder {{{name}}} at this level{_suggestion(name, known)}; use {choices}"
            )
    if not used:
        yield DefinitionProblem(where, f"should use at least one placeholder: {choices}")


def _scale(where: str, scale: object) -> Iterable[DefinitionProblem]:
    chosen, problems = _one_of(where, scale, ("numerical", "categorical", "multiDimensional"))
    yield from problems
    if chosen == "multiDimensional":
        yield from _dimensions(f"{where}.{chosen}", as_map(scale)[chosen])
    elif chosen:
        yield from _ratings(f"{where}.{chosen}", as_map(scale)[chosen], numerical=chosen == "numerical")


def _ratings(where: str, entries: object, *, numerical: bool) -> Iterable[DefinitionProblem]:
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


def _dimensions(where: str, dimensions: object) -> Iterable[DefinitionProblem]:
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
        name, instruction = dimension.get("dimensionName"), dimension.get("dimensionInstruction")
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            yield DefinitionProblem(
                f"{here}.dimensionName", "should be a letter, then up to 47 letters, digits or underscores"
            )
        else:
            names.append(name.replace("_", "").casefold())
        if not (isinstance(instruction, str) and 1 <= len(instruction) <= 4000):
            yield DefinitionProblem(f"{here}.dimensionInstruction", "should be 1 to 4000 characters of text")
        scale = dimension.get("dimensionRatingScale")
        chosen, problems = _one_of(f"{here}.dimensionRatingScale", scale, ("numerical", "categorical"))
        yield from problems
        if chosen:
            path = f"{here}.dimensionRatingScale.{chosen}"
            yield from _ratings(path, as_map(scale)[chosen], numerical=chosen == "numerical")
    if len(set(names)) < len(names):
        yield DefinitionProblem(where, "has two dimensions whose names differ only in case or underscores")


def _code(where: str, config: object, level: Level | None, wire: bool) -> Iterable[DefinitionProblem]:  # noqa: ARG001
    if not isinstance(config, Mapping):
        return [DefinitionProblem(where, "should be a map")]
    kinds = ("lambdaConfig",) if wire else ("lambdaConfig", "function", "command")
    limits = () if wire else ("timeoutSeconds", "memoryMegabytes")
    problems = list(_unknown(where, config, (*kinds, *limits)))
    chosen = [kind for kind in kinds if kind in config]
    if len(chosen) != 1:
        return [*problems, DefinitionProblem(where, f"should have exactly one of {', '.join(kinds)}")]
    checks = {"lambdaConfig": _lambda, "function": _function, "command": _command}
    problems += checks[chosen[0]](f"{where}.{chosen[0]}", config[chosen[0]])
    for name, most in (("timeoutSeconds", 3600), ("memoryMegabytes", 1_000_000)):
        if name in config and not (type(config[name]) in (int, float) and 0 < config[name] <= most):
            problems.append(
                DefinitionProblem(f"{where}.{name}", f"should be a number above 0 and up to {most:,}")
            )
    return problems


def _lambda(where: str, config: object) -> Iterable[DefinitionProblem]:
    if not isinstance(config, Mapping):
        yield DefinitionProblem(where, "should be a map")
        return
    yield from _unknown(where, config, ("lambdaArn", "lambdaTimeoutInSeconds"))
    arn, limit = config.get("lambdaArn"), config.get("lambdaTimeoutInSeconds", 60)
    if not (isinstance(arn, str) and LAMBDA_ARN.fullmatch(arn)):
        yield DefinitionProblem(f"{where}.lambdaArn", "should be the ARN of a Lambda function")
    if not (type(limit) is int and 1 <= limit <= 300):
        yield DefinitionProblem(f"{where}.lambdaTimeoutInSeconds", "should be a whole number from 1 to 300")


def _function(where: str, function: object) -> Iterable[DefinitionProblem]:
    if not (isinstance(function, str) and FUNCTION.fullmatch(function)):
        yield DefinitionProblem(where, "should be `module:function`")


def _command(where: str, command: object) -> Iterable[DefinitionProblem]:
    if (
        not isinstance(command, list)
        or not command
        or not all(isinstance(word, str) and word for word in command)
    ):
        yield DefinitionProblem(where, "should be a list: a program and its arguments")


def _derived(where: str, config: object, level: Level | None, wire: bool) -> Iterable[DefinitionProblem]:
    if not isinstance(config, Mapping):
        return [DefinitionProblem(where, "should be a map")]
    problems = list(_unknown(where, config, ("baseEvaluatorId", "modelConfig", *PANELS)))
    base = config.get("baseEvaluatorId")
    here = f"{where}.baseEvaluatorId"
    if not (isinstance(base, str) and BASE.fullmatch(base)):
        problems.append(DefinitionProblem(here, "should be an evaluator's id"))
    elif base in MATCHINGS:
        problems.append(DefinitionProblem(here, "does not use a model, so there is none to replace"))
    elif base.startswith(PREFIX) and (built_in := JUDGED.get(base.removeprefix(PREFIX))) is None:
        problems.append(
            DefinitionProblem(
                here, f"is not a built-in evaluator{_suggestion(base, [PREFIX + name for name in JUDGED])}"
            )
        )
    elif base.startswith(PREFIX) and level and built_in and built_in.level != level:
        problems.append(DefinitionProblem("level", f"is not that of {base}"))
    return problems + _models(where, config, wire)


def _one_of(where: str, value: object, kinds: Sequence[str]) -> tuple[str, list[DefinitionProblem]]:
    """The one member of a union that is set; empty unless exactly one is."""
    if not isinstance(value, Mapping):
        return "", [DefinitionProblem(where, f"should be a map with exactly one of {', '.join(kinds)}")]
    members = [kind for kind in kinds if value.get(kind) is not None]
    problems = list(_unknown(where, value, kinds))
    if len(members) != 1:
        return "", [*problems, DefinitionProblem(where, f"should have exactly one of {', '.join(kinds)}")]
    return members[0], problems


def _unknown(where: str, value: JsonMap, known: Sequence[str]) -> Iterable[DefinitionProblem]:
    for name in value:
        if name not in known:
            path = f"{where}.{name}" if where else str(name)
            yield DefinitionProblem(
                path, f"is unknown{_suggestion(str(name), known)}. Use one of: {', '.join(known)}"
            )


def _suggestion(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f" (did you mean `{near[0]}`?)" if near else ""


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
    """Write the files of a new evaluator into a folder, and return their paths. Overwrites nothing."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"`{name}` is not a valid name for an evaluator\nUse letters, digits and underscores."
        )
    if level not in LEVELS:
        raise UsageError(f"there is no level `{level}`\nThere are: {', '.join(LEVELS)}.")
    if kind not in KINDS:
        raise UsageError(f"there is no kind `{kind}`\nThere are: {', '.join(KINDS)}.")
    files = {folder / f"{name}.yaml": _definition(name, folder, level, kind)}
    if kind != "judge":
        files[folder / f"{name}.py"] = (_FUNCTION if kind == "function" else _COMMAND).format()
    for path in files:
        if path.exists():
            raise UsageError(f"{path} already exists\nChoose another name, or move the file.")
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
