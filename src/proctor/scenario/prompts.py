"""The words that models are asked with: templates in files, each of which a scenario may replace.

A scenario's own `prompts/decision.j2` takes the place of ours. Templates are run in a sandbox: a
scenario may come from someone else.

Knows nothing of models or turns.
"""

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, TypeVar

from jinja2 import DictLoader, StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from proctor.answer_parser import strip_reasoning
from proctor.errors import ModelError, WorkspaceError
from proctor.json_values import parse_json
from proctor.model import Model, Request
from proctor.model_client import ModelClient
from proctor.scenario.state import ScenarioCall
from proctor.session import ModelCall, Record

SUFFIX = ".j2"


@cache
def built_in() -> Mapping[str, str]:
    """Our own templates, by name."""
    folder = files("proctor.scenario").joinpath("prompts")
    return {
        file.name.removesuffix(SUFFIX): file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(SUFFIX)
    }


class Prompts:
    """The templates of one scenario."""

    def __init__(self, own: Mapping[str, str]) -> None:
        self._environment = _environment(tuple(sorted(own.items())))

    def render(self, template: str, **values: Any) -> str:
        """A template filled in."""
        try:
            return self._environment.get_template(template).render(values).strip()
        except TemplateError as error:
            raise WorkspaceError(f"the prompt template `{template}` cannot be filled in: {error}") from error


def fault_of(text: str) -> tuple[int, str] | None:
    """What is wrong with a template, and in which line; None when it can be read."""
    try:
        SandboxedEnvironment().parse(text)
    except TemplateError as error:
        return getattr(error, "lineno", None) or 1, str(error)
    return None


# A batch has a handful of scenarios and thousands of runs.
@lru_cache(maxsize=64)
def _environment(own: tuple[tuple[str, str], ...]) -> SandboxedEnvironment:
    return SandboxedEnvironment(
        loader=DictLoader({**built_in(), **dict(own)}),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )


# Read the sections of an answer, however a model has marked them.


LONGEST_ANSWER = 200_000
"""Characters of an answer that are read; a model that writes more is stuck in a loop."""


def sections(text: str, labels: Sequence[str]) -> dict[str, str]:
    """What stands under each of these labels; a label that is not there is not in the result."""
    text = text[:LONGEST_ANSWER]
    as_json = _from_json(text, labels)
    if as_json:
        return as_json
    marks = _all_marks(text, labels)
    found: dict[str, str] = {}
    for index, (_, end, label) in enumerate(marks):
        until = marks[index + 1][0] if index + 1 < len(marks) else len(text)
        said = text[end:until].strip().strip("*").strip()
        # A model that repeats a label has usually thought again; an empty one says nothing.
        if said or label not in found:
            found[label] = said
    return found


def unlabelled(text: str, labels: Sequence[str]) -> str:
    """What stands under no label: all of an answer without any, else what comes before the first.

    What has a label of its own may be meant for nobody else, and never stands in for what is missing.
    """
    text = text[:LONGEST_ANSWER]
    if _from_json(text, labels):
        return ""
    marks = _all_marks(text, labels)
    return (text[: marks[0][0]] if marks else text).strip()


def _all_marks(text: str, labels: Sequence[str]) -> list[tuple[int, int, str]]:
    return sorted((found.start(), found.end(), label) for label in labels for found in _marks(label, text))


def _marks(label: str, text: str) -> list[re.Match[str]]:
    words = r"[\s_-]+".join(map(re.escape, re.split(r"[\s_-]+", label)))
    # At the start of a line, in any of the ways people mark a heading; a colon, or nothing else on the line.
    before = r"^[ \t]*(?:[#>*\-\d.)]*[ \t]*)(?:\*\*|__)?"
    behind = r"(?:\*\*|__)?[ \t]*(?:[:：](?:\*\*|__)?|[ \t]*$|[ \t]+[-–—][ \t])"
    pattern = before + words + behind
    return list(re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE))


def _from_json(text: str, labels: Sequence[str]) -> dict[str, str]:
    found = read_object(text)
    if not isinstance(found, dict):
        return {}
    flat: dict[str, str] = {}
    _flatten(found, flat)
    return {label: flat[_bare(label)] for label in labels if _bare(label) in flat}


def read_object(text: str) -> Any:
    """The JSON value an answer holds, also inside a code fence; None when it holds none."""
    fenced = re.search(r"```(?:json)?\s*(\{.*?\})\s*```", text, re.DOTALL)
    candidate = fenced[1] if fenced else text.strip()
    if not candidate.startswith("{"):
        return None
    try:
        return parse_json(candidate)
    except ValueError:
        return None


def _flatten(part: dict[str, Any], flat: dict[str, str]) -> None:
    for name, value in part.items():
        if isinstance(value, dict):
            _flatten(value, flat)
        elif isinstance(value, list):
            flat[_bare(name)] = "\n".join(f"- {entry}" for entry in value)
        elif value is not None:
            flat[_bare(name)] = str(value)


def _bare(label: str) -> str:
    bare = re.sub(r"[\s_-]+", "", label).lower()
    return {"longterm": "longtermgoals", "shortterm": "shorttermpriorities"}.get(bare, bare)


def listed(text: str) -> list[str]:
    """The entries of a list as models write them: bullets, numbers, or commas on one line."""
    lines = [re.sub(r"^[\s*\-•\d.)]+", "", line).strip() for line in text.splitlines()]
    entries = [line for line in lines if line]
    if len(entries) == 1 and "," in entries[0]:
        entries = [part.strip() for part in entries[0].split(",") if part.strip()]
    return entries


def is_yes(text: str) -> bool:
    """Whether someone said yes."""
    word = re.match(r"\W*(\w+)", text)
    return bool(word) and word[1].lower() in ("yes", "true", "accept", "accepted", "accepts", "y", "1")  # type: ignore[index]


# Ask models on behalf of actors, narrator and judges, and record every word of it.


T = TypeVar("T")


HUMAN = "human/"
"""`human/SHORT_NAME` is a person, asked by whoever sits at the terminal's or the page's other side."""


class ScenarioModels:
    """Everyone who is asked in one run."""

    def __init__(
        self,
        models: Model,
        record: Record,
        *,
        seed: int,
        parameters: dict[str, Any] | None = None,
        at_once: int = 16,
        log: Callable[[str], None] | None = None,
    ) -> None:
        """`at_once` is 1 where money is limited: calls side by side could pass a limit together."""
        self._client = ModelClient(models, record, at_once=at_once)
        self._seed = seed
        self._parameters = parameters or {}
        self._log = log or _nobody
        self.calls: list[ScenarioCall] = []
        """Of the turn under way; whoever ends the turn takes them away."""

    async def ask(
        self, who: str, purpose: str, *, model: str, prompt: str, turn: int, system: str = "", about: str = ""
    ) -> str:
        """The answer to one prompt. `about` distinguishes prompts with the same purpose in one turn."""
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt})
        request = Request(
            model=model,
            messages=messages,
            parameters=self._parameters,
            seed=seed_of(self._seed, turn, who, purpose, about),
        )
        answer = await self._client.ask(
            request,
            speaker=who,
            purpose=purpose,
            on_call=lambda call: self._add_call(who, purpose, turn, call),
        )
        text = strip_reasoning(answer.text)
        if not text.strip():
            raise ModelError(f"{model} said nothing when asked for the {purpose} of {who}")
        return text

    def _add_call(self, who: str, purpose: str, turn: int, call: ModelCall) -> None:
        usage = call.usage
        self.calls.append(
            ScenarioCall(
                who=who,
                purpose=purpose,
                model=call.model,
                turn=turn,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cost_usd=call.cost_usd,
            )
        )
        result = call.status if call.status != "ok" else f"{usage.total_tokens} tokens"
        self._log(f"turn {turn}: {who}, {purpose}: {call.model}: {result}")


async def together(work: Sequence[Awaitable[T]]) -> list[T]:
    """The results of all, in their order; when one fails, the others are stopped and its error raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_run(one)) for one in work]
    except BaseExceptionGroup as group_error:
        raise _first(group_error) from group_error
    return [task.result() for task in tasks]


def seed_of(*parts: object) -> int:
    """A number drawn from these words, the same on every machine; one that any provider takes."""
    return int.from_bytes(hashlib.sha256("|".join(map(str, parts)).encode()).digest()[:4]) >> 1


def run_seed(details: Mapping[str, Any], repeat: int) -> int:
    """The seed of one run: that of the experiment and the run's number, the same in every variation.

    A branch has the seed of the run it goes on from, unless it was given another.
    """
    branch = details.get("branch") or {}
    return int(branch["seed"]) if "seed" in branch else seed_of(details["seed"], repeat)


async def _run(work: Awaitable[T]) -> T:
    return await work


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def _nobody(_: str) -> None:
    return None
