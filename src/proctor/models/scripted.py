r"""A model that answers from rules in a file: the same request always gets the same answer.

    latency_seconds: 0.2            # optional, before every answer
    failures: {every: 10, status: 429}
    rules:
      - match: capital of (\w+)     # searched in the last user message, case ignored
        reply: I think it is {1}ville.
      - after: 1                    # only once the model has answered that often in this conversation
        reply: [Done., "{seed}"]    # of several replies the seed chooses one
      - tool: {name: run, arguments: {command: make}}
        usage: {input_tokens: 900, output_tokens: 12}

The first matching rule answers. A reply may contain {prompt}, {model}, {seed} and the groups of its
`match`: {0}, {1}, … or {name}. Tokens are counted as a quarter of the characters unless given.

A mock: every report marks its results as such.
"""

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.errors import ModelError, NotFound, RateLimited, UsageError
from proctor.item import digest_of
from proctor.json_values import JsonMap, JsonObject, as_whole_number
from proctor.model import Request, ToolRequest, WireAnswer
from proctor.session import Usage

if TYPE_CHECKING:
    from proctor.patterns import Pattern, PatternMatch

PREFIX = "scripted/"
BUILT_IN: Mapping[str, JsonMap] = {
    "echo": {"rules": [{"reply": "{prompt}"}]},
    "ok": {"rules": [{"reply": "OK"}]},
}
SCRIPT_KEYS = ("rules", "latency_seconds", "failures")
RULE_KEYS = ("match", "after", "reply", "tool", "tools", "usage")
LARGEST_SCRIPT_BYTES = 4 * 1024 * 1024
PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedRule:
    """When to answer, and with what."""

    match: "Pattern | None" = None
    """None: matches every message."""
    after: int = 0
    replies: tuple[str, ...] = ()
    tools: tuple[JsonMap, ...] = ()
    usage: Usage | None = None


@dataclass(slots=True, kw_only=True)
class ScriptedModel:
    """The rules of one script."""

    name: str
    rules: tuple[ScriptedRule, ...]
    latency_seconds: float = 0.0
    fail_every: int = 0
    """0: never."""
    fail_status: int = 500
    calls: int = field(default=0, init=False)

    async def read(self, request: Request) -> WireAnswer:
        """Answer from the first matching rule; a `ModelError` when none matches."""
        self.calls += 1
        if self.latency_seconds:
            await asyncio.sleep(self.latency_seconds)
        if self.fail_every and self.calls % self.fail_every == 0:
            message = f"{self.name} answered {self.fail_status}, as its script specifies"
            raise RateLimited(message) if self.fail_status == 429 else ModelError(message)
        prompt = _last_user_message(request.messages)
        answered = sum(message["role"] == "assistant" for message in request.messages)
        for rule in self.rules:
            match = rule.match.search(prompt) if rule.match else None
            if answered >= rule.after and (match or rule.match is None):
                return _answer_of(rule, request, prompt, match)
        raise ModelError(f"no rule of {self.name} matches {prompt[:80]!r}", reason="bad_request")


def find_script(model: str, folders: Iterable[Path]) -> ScriptedModel:
    """The script of `scripted/NAME`: a built-in one, or NAME(.yaml) in one of the folders."""
    name = model.removeprefix(PREFIX)
    if name in BUILT_IN:
        return parse_script(model, BUILT_IN[name])
    searched = list(folders)
    for folder in searched:
        for candidate in (folder / name, folder / f"{name}.yaml", folder / f"{name}.yml"):
            # Plans may be untrusted: scripts must be in the folder of the plan.
            if candidate.is_file() and candidate.resolve().is_relative_to(folder.resolve()):
                return parse_script(model, _load(candidate))
    places = ", ".join(map(str, searched)) or "no folder"
    raise NotFound(f"there is no script `{name}` in {places}\nBuilt in: {', '.join(sorted(BUILT_IN))}.")


def parse_script(model: str, script: object) -> ScriptedModel:
    """A model from parsed rules; a mistake in them is a `UsageError`."""
    if isinstance(script, list):
        script = {"rules": script}
    if not isinstance(script, Mapping) or not isinstance(script.get("rules"), list) or not script["rules"]:
        raise UsageError(f"{model}: a script is a list of rules, or a map with `rules:`")
    _check_keys(model, script, SCRIPT_KEYS)
    failures = script.get("failures") or {}
    try:
        return ScriptedModel(
            name=model,
            rules=tuple(
                _rule(f"{model}: rule {number}", rule) for number, rule in enumerate(script["rules"], 1)
            ),
            latency_seconds=float(script.get("latency_seconds", 0)),
            fail_every=int(failures.get("every", 0)),
            fail_status=int(failures.get("status", 500)),
        )
    except (ValueError, TypeError, AttributeError) as cause:
        raise UsageError(f"{model}: {cause}") from cause


def _rule(where: str, rule: object) -> ScriptedRule:
    if not isinstance(rule, Mapping):
        raise UsageError(f"{where} is not a map")
    _check_keys(where, rule, RULE_KEYS)
    replies = rule.get("reply", [])
    tools = [*([rule["tool"]] if "tool" in rule else []), *rule.get("tools", [])]
    if any(isinstance(reply, bool) for reply in (replies if isinstance(replies, list) else [replies])):
        raise UsageError(f"{where}: `reply` is a truth value in YAML\nPut the text in quotes: reply: 'no'")
    if not replies and not tools:
        raise UsageError(f"{where} has neither `reply` nor `tool`")
    if not all(isinstance(tool, Mapping) and isinstance(tool.get("name"), str) for tool in tools):
        raise UsageError(f"{where}: a tool is a map with `name` and `arguments`")
    match = None
    try:
        if "match" in rule:
            # Loaded here: the built-in scripts have no expressions.
            from proctor.patterns import compile_pattern

            match = compile_pattern(rule["match"], re.IGNORECASE)
    except (re.error, TypeError) as cause:
        raise UsageError(f"{where}: `match` is not a valid regular expression: {cause}") from cause
    return ScriptedRule(
        match=match,
        after=int(rule.get("after", 0)),
        replies=tuple(map(str, replies)) if isinstance(replies, list) else (str(replies),),
        tools=tuple(tools),
        usage=_usage(rule["usage"]) if "usage" in rule else None,
    )


def _check_keys(where: str, settings: JsonMap, keys: Sequence[str]) -> None:
    for key in settings:
        if key not in keys:
            raise UsageError(f"{where} has no setting `{key}`; it may have: {', '.join(keys)}")


def _load(file: Path) -> object:
    # Imported here so that a batch on real models does not pay for it.
    import yaml

    if file.stat().st_size > LARGEST_SCRIPT_BYTES:
        raise UsageError(f"{file}: larger than {LARGEST_SCRIPT_BYTES >> 20} MiB")
    try:
        return yaml.load(file.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError) as cause:
        raise UsageError(f"{file}: {cause}") from cause


def _last_user_message(messages: Sequence[JsonMap]) -> str:
    for message in reversed(messages):
        if message["role"] == "user":
            content = message.get("content")
            return content if isinstance(content, str) else json.dumps(content)
    return ""


def _answer_of(rule: ScriptedRule, request: Request, prompt: str, match: "PatternMatch | None") -> WireAnswer:
    text = _fill(_choose(rule.replies, request, prompt), request, prompt, match) if rule.replies else ""
    tools = tuple(
        ToolRequest(
            id=f"call_{number}",
            name=str(tool["name"]),
            arguments=_fill(_arguments_text(tool.get("arguments", {})), request, prompt, match),
        )
        for number, tool in enumerate(rule.tools, 1)
    )
    usage = rule.usage or Usage(
        input_tokens=sum(len(str(each.get("content") or "")) for each in request.messages) // 4 + 1,
        output_tokens=(len(text) + sum(len(tool.arguments) for tool in tools)) // 4 + 1,
    )
    return WireAnswer(text, usage, tools, "tool_calls" if tools else "stop")


def _arguments_text(arguments: object) -> str:
    """Arguments given as text are sent as they are, so that a script can send broken JSON."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _choose(replies: tuple[str, ...], request: Request, prompt: str) -> str:
    if len(replies) == 1:
        return replies[0]
    return replies[int(digest_of([request.seed, prompt]), 16) % len(replies)]


def _fill(template: str, request: Request, prompt: str, match: "PatternMatch | None") -> str:
    """Replace the placeholders; other braces stay, since replies may contain code."""
    if "{" not in template:
        return template
    values: JsonObject = {"prompt": prompt, "model": request.model, "seed": request.seed or 0}
    if match:
        values |= {"0": match[0]} | {str(n): group for n, group in enumerate(match.groups(), 1)}
        values |= match.groupdict()
    return PLACEHOLDER.sub(lambda hole: str(values.get(hole[1], hole[0])), template)


def _usage(usage: JsonMap) -> Usage:
    _check_keys("usage", usage, ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens"))
    return Usage(**{name: as_whole_number(value) for name, value in usage.items()})
