"""Extract metrics from texts: by pattern, by keywords, or with a model.

A value has the type and range of its metric. A value that cannot be read is None: missing, which is not the
same as 0 or false.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from proctor.formatting import count_words, is_unspaced
from proctor.patterns import PatternMatch, compile_pattern
from proctor.scenario.definition import Measure, Scenario
from proctor.scenario.prompts import Prompts, ScenarioModels
from proctor.scenario.state import Decision, ScenarioTurn, Value
from proctor.session import Invalid

# Groups of three digits, or digits alone: `12, 15` are two numbers, and `3,5` is ambiguous.
_NUMBER = re.compile(
    r"[-+−]?(?:[1-9]\d{0,2}(?:[,_ \u00a0\u202f]\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?P<more>,\d)?"
    r"|[-+−]?\.\d+"
)

# The innermost capturing groups, and the parts of one that match an answer: yes or no, a class, anything.
_GROUPS = re.compile(r"\((?!\?)([^()]*)\)|\(\?P<\w+>([^()]*)\)")
_ANY_WORD = re.compile(r"\b(?:true|yes|y|1|on|false|no|n|0|off|not)\b|\\[wWSd]|(?<!\\)[.\[]", re.IGNORECASE)
_POWER = re.compile(r"(?:(?<!\d)|(?=[-+]))([-+]?\d+(?:\.\d+)?)\s*(?:\^|\*\*)\s*([-+]?\d+(?:\.\d+)?)")
_YES = frozenset({"true", "yes", "y", "1", "on"})
_NO = frozenset({"false", "no", "n", "0", "off", "not"})

# A scenario's pattern can take exponential time on long texts.
LONGEST_TEXT = 100_000


async def measure(
    scenario: Scenario,
    prompts: Prompts,
    models: ScenarioModels,
    *,
    turn: int,
    world_state: str,
    decisions: Mapping[str, Decision],
    besides: str = "",
) -> dict[str, Value]:
    """All metrics of a turn. `besides` are the other texts of the narrator."""
    values: dict[str, Value] = {}
    reader = _MetricReader(scenario, prompts, models, turn)
    actions = {short: decision.action for short, decision in decisions.items()}
    for name, rule in scenario.metrics.items():
        for key, texts, about in _readings(name, rule, scenario, [world_state, besides], actions):
            values[key] = await reader.read(name, rule, texts, about=about)
    return values


def read_again(scenario: Scenario, turn: ScenarioTurn) -> ScenarioTurn:
    """A finished turn with its outcomes as the scenario reads them now; one without texts stays as it is."""
    if not turn.world_state:
        return turn
    values = dict(turn.metrics)
    besides = "\n".join(filter(None, (turn.key_changes, turn.consequences)))
    actions = {short: decision.action for short, decision in turn.decisions.items()}
    for name in scenario.outcomes:
        rule = scenario.metrics[name]
        for key, texts, _ in _readings(name, rule, scenario, [turn.world_state, besides], actions):
            if key in values:
                values[key] = _read_texts(rule, texts)
    return replace(turn, metrics=values)


def _readings(
    name: str, rule: Measure, scenario: Scenario, world: Sequence[str], actions: Mapping[str, str]
) -> Iterator[tuple[str, list[str], str]]:
    """The values of a metric in a turn: name, the texts to read it from, and the actor it is about."""
    if rule.actor_specific or rule.actor:
        for short in _actors_of(rule, scenario):
            yield name if rule.actor else f"{name}.{short}", [actions.get(short, "")], short
    else:
        # The world state takes precedence; actions count only where it has no value.
        yield name, [*world, *reversed(list(actions.values()))], ""


def _read_texts(rule: Measure, texts: Sequence[str]) -> Value:
    """The value of a pattern or keyword metric in the first text that has one."""
    if rule.method == "keyword" or (rule.type == "boolean" and rule.pattern):
        return read_text(rule, texts[0])
    values = (read_text(rule, text) for text in texts if text)
    return next((value for value in values if value is not None), None)


def at_start(scenario: Scenario) -> dict[str, Value]:
    """The metrics of the initial world state that need no model."""
    return {
        name: read_text(rule, scenario.initial_world_state)
        for name, rule in scenario.metrics.items()
        if rule.method in ("regex", "keyword") and not rule.actor_specific and not rule.actor
    }


def read_text(rule: Measure, text: str) -> Value:
    """The value of a pattern or keyword metric in a text; None: missing."""
    text = text[:LONGEST_TEXT]
    if rule.method == "keyword":
        return _within(rule, _by_keywords(rule, text))
    if rule.method != "regex" or not rule.pattern:
        return None
    groups = [_group(match) for match in compile_pattern(rule.pattern, re.IGNORECASE).findall(text)]
    if rule.type == "boolean" and not _reads_yes_or_no(rule.pattern):
        # The pattern captures no value; it tests for presence.
        return bool(groups)
    values = [value for value in (typed(rule, group) for group in groups) if value is not None]
    return _within(rule, _one_of(rule, values))


def typed(rule: Measure, text: str) -> Value:
    """A text as a value of the metric's type; None when it is not one."""
    bare = text.strip().strip("*_`\"'").strip()
    if rule.type == "boolean":
        word = re.split(r"\W+", bare.lower(), maxsplit=1)[0]
        return True if word in _YES else False if word in _NO else None
    if rule.type == "string":
        return _category(rule, bare)
    number = _number(bare)
    if number is None or rule.type == "float":
        return number
    return int(number) if number == int(number) else None


class _MetricReader:
    def __init__(self, scenario: Scenario, prompts: Prompts, models: ScenarioModels, turn: int) -> None:
        self.scenario, self.prompts, self.models, self.turn = scenario, prompts, models, turn

    async def read(self, name: str, rule: Measure, texts: Sequence[str], about: str = "") -> Value:
        """The value of a metric in the first text that has one; a model reads the first text only."""
        if rule.method == "model":
            return await self._from_model(name, rule, texts[0], about)
        return _read_texts(rule, texts)

    async def _from_model(self, name: str, rule: Measure, text: str, about: str) -> Value:
        answer = await self.models.ask(
            "metrics",
            name,
            model=rule.model or self.scenario.world_state_model,
            prompt=self.prompts.render("metric", name=name, measure=rule, text=text[:LONGEST_TEXT]),
            turn=self.turn,
            about=about,
            whole=True,
        )
        # The last line that is not empty: some models reason before they answer.
        lines = [line for line in answer.splitlines() if line.strip()]
        last = lines[-1].rpartition(":")[2] if lines else ""
        value = _within(rule, typed(rule, last))
        if value is None:
            self.models.record(Invalid(kind="unreadable_verdicts"))
        return value


def _actors_of(rule: Measure, scenario: Scenario) -> list[str]:
    name = rule.actor.lower()
    return [
        short
        for short, actor in scenario.actors.items()
        if not name or name in (short.lower(), actor.name.lower())
    ]


def _group(match: PatternMatch) -> str:
    return next((group for group in match.groups() if group), match[0])


def _reads_yes_or_no(pattern: str) -> bool:
    """Whether a group of a pattern can capture a yes or a no."""
    return any(_ANY_WORD.search(match[1] or match[2] or "") for match in _GROUPS.finditer(pattern))


def _by_keywords(rule: Measure, text: str) -> Value:
    keywords = [word for word in rule.keywords if word]
    pattern = "|".join(map(_as_word, keywords))
    count = len(re.findall(pattern, text, re.IGNORECASE)) if keywords else 0
    if rule.scoring == "presence" or rule.type == "boolean":
        return bool(count) if rule.type == "boolean" else int(bool(count))
    if rule.scoring == "density":
        total = count_words(text)
        return count * 100 / total if total else None
    return count


def _as_word(word: str) -> str:
    """A pattern that matches a whole word; in scripts without spaces, anywhere."""
    before = "" if is_unspaced(word[:1]) else r"(?<!\w)"
    behind = "" if is_unspaced(word[-1:]) else r"(?!\w)"
    return f"{before}{re.escape(word)}{behind}"


def _one_of(rule: Measure, values: Sequence[Value]) -> Value:
    if not values:
        return None
    numbers = [value for value in values if isinstance(value, int | float)]
    if rule.aggregation == "max" and numbers:
        return max(numbers)
    if rule.aggregation == "sum" and numbers:
        return sum(numbers)
    return values[-1]


def _within(rule: Measure, value: Value) -> Value:
    if rule.range is None or isinstance(value, str | bool) or value is None:
        return value
    return value if rule.range[0] <= value <= rule.range[1] else None


def _category(rule: Measure, text: str) -> str | None:
    if not rule.categories:
        return text or None
    exact = [name for name in rule.categories if name.lower() == text.lower()]
    contained = [name for name in rule.categories if re.search(_as_word(name), text, re.IGNORECASE)]
    return exact[0] if exact else contained[0] if len(contained) == 1 else None


def _number(text: str) -> float | None:
    """A number as people write it: `1,250.5`, `10^25`, `7 %`, `−3`."""
    power = _POWER.search(text)
    try:
        if power:
            value = float(power[1]) ** float(power[2])
        else:
            match = _NUMBER.search(text)
            if match is None or match["more"]:
                return None
            value = float(re.sub(r"[,_\s]", "", match[0]).replace("−", "-"))
    except (ValueError, OverflowError, ZeroDivisionError):
        return None
    return value if isinstance(value, float) and abs(value) < float("inf") else None
