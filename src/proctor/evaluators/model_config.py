"""Who judges, as a definition says it, in our own words.

A model id with a slash in it is ours already: `openai/gpt-4.1`, `scripted/judge`. Any other in a
`bedrockEvaluatorModelConfig` is one of Bedrock's, which is reached through litellm; in a
`responsesEvaluatorModelConfig` it is one of OpenAI's.

Knows nothing of providers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

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
    yield from _unknown(where, said, _MEMBERS[kind])
    if not isinstance(said.get("modelId"), str) or not said["modelId"].strip():
        yield f"{where}.modelId", "should be the name of a model"
    settings = said.get("inferenceConfig") or {} if kind == BEDROCK else said
    inside = f"{where}.inferenceConfig" if kind == BEDROCK else where
    if not isinstance(settings, Mapping):
        yield inside, "should be a map"
        return
    if kind == BEDROCK:
        yield from _unknown(inside, settings, _INFERENCE)
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


def _unknown(where: str, value: Mapping[str, Any], known: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    for name in value:
        if name not in known:
            yield f"{where}.{name}", f"is not known; there are: {', '.join(known)}"


def _ours(kind: str, model: str) -> str:
    if "/" in model and not model.startswith("arn:"):
        return model
    return f"litellm/bedrock/{model}" if kind == BEDROCK else f"openai/{model}"
