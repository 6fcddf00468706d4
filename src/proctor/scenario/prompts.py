"""Prompts of a scenario: templates, the sections of answers, and the client that asks models.

A scenario's own `prompts/decision.j2` replaces the built-in template. Templates run in a sandbox, because a
scenario may come from an untrusted source.
"""

import asyncio
import hashlib
import re
from collections.abc import Coroutine, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, TypeVar

from jinja2 import DictLoader, StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from proctor.errors import ModelError, WorkspaceError, first_error
from proctor.json_values import parse_json
from proctor.model import Model, Request, strip_reasoning
from proctor.model_client import ModelClient
from proctor.scenario.state import ScenarioCall
from proctor.session import ModelCall, Record

SUFFIX = ".j2"


@cache
def built_in() -> Mapping[str, str]:
    """The built-in templates, by name."""
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
        """Render a template."""
        try:
            return self._environment.get_template(template).render(values).strip()
        except TemplateError as error:
            raise WorkspaceError(f"the prompt template `{template}` cannot be rendered: {error}") from error


def fault_of(text: str) -> tuple[int, str] | None:
    """Line and message of a template's syntax error; None: it is valid."""
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


LONGEST_ANSWER = 200_000
"""Characters of an answer that are parsed; a model that writes more is stuck in a loop."""


def sections(text: str, labels: Sequence[str]) -> dict[str, str]:
    """The text under each of these labels; absent labels are not in the result."""
    text = text[:LONGEST_ANSWER]
    as_json = _from_json(text, labels)
    if as_json:
        return as_json
    marks = _all_marks(text, labels)
    texts: dict[str, str] = {}
    for index, (_, end, label) in enumerate(marks):
        until = marks[index + 1][0] if index + 1 < len(marks) else len(text)
        content = text[end:until].strip().strip("*").strip()
        # A repeated label usually corrects the first; an empty one does not.
        if content or label not in texts:
            texts[label] = content
    return texts


def unlabelled(text: str, labels: Sequence[str]) -> str:
    """The text under no label: all of an answer without labels, else the part before the first.

    Labeled text may be private and never replaces what is missing.
    """
    text = text[:LONGEST_ANSWER]
    if _from_json(text, labels):
        return ""
    marks = _all_marks(text, labels)
    return (text[: marks[0][0]] if marks else text).strip()


def _all_marks(text: str, labels: Sequence[str]) -> list[tuple[int, int, str]]:
    return sorted((match.start(), match.end(), label) for label in labels for match in _marks(label, text))


def _marks(label: str, text: str) -> list[re.Match[str]]:
    label_pattern = r"[\s_-]+".join(map(re.escape, re.split(r"[\s_-]+", label)))
    # At the start of a line, with any heading markup; then a colon or the end of the line.
    # Nothing can match blanks in two ways: on a line of a hundred thousand, that would take minutes.
    before = r"^[ \t]*(?:[#>*\-\d.)]+[ \t]*)?(?:\*\*|__)?"
    behind = r"(?:\*\*|__)?(?:[ \t]*(?:[:：](?:\*\*|__)?|$)|[ \t]+[-–—][ \t])"
    pattern = before + label_pattern + behind
    return list(re.finditer(pattern, text, re.IGNORECASE | re.MULTILINE))


def _from_json(text: str, labels: Sequence[str]) -> dict[str, str]:
    document = read_object(text)
    if not isinstance(document, dict):
        return {}
    flat: dict[str, str] = {}
    _flatten(document, flat)
    return {label: flat[_bare(label)] for label in labels if _bare(label) in flat}


def read_object(text: str) -> Any:
    """The JSON object of an answer, also inside a code fence; None when there is none."""
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


def listed(text: str, *, by_commas: bool = True) -> list[str]:
    """The entries of a list: bullets, numbers, or commas on one line unless they are sentences."""
    lines = [re.sub(r"^[\s*\-•\d.)]+", "", line).strip() for line in text.splitlines()]
    entries = [line for line in lines if line]
    if by_commas and len(entries) == 1 and "," in entries[0]:
        entries = [part.strip() for part in entries[0].split(",") if part.strip()]
    return entries


def is_yes(text: str) -> bool:
    """Whether an answer is affirmative."""
    word = re.match(r"\W*(\w+)", text)
    return bool(word) and word[1].lower() in ("yes", "true", "accept", "accepted", "accepts", "y", "1")  # type: ignore[index]


T = TypeVar("T")
HUMAN = "human/"
"""Prefix of a person in place of a model: `human/SHORT_NAME`."""


class ScenarioModels:
    """The models of one run; records every call."""

    def __init__(
        self,
        models: Model,
        record: Record,
        *,
        seed: int,
        parameters: dict[str, Any] | None = None,
        at_once: int = 16,
    ) -> None:
        """`at_once` is 1 where a budget applies: concurrent calls could exceed it together."""
        self._client = ModelClient(models, record, at_once=at_once)
        self._seed = seed
        self._parameters = parameters or {}
        self.calls: list[ScenarioCall] = []
        """Calls of the current turn; cleared at its end."""

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
            request, speaker=who, purpose=purpose, on_call=lambda call: self._add_call(turn, call)
        )
        text = strip_reasoning(answer.text)
        if not text.strip():
            raise ModelError(f"{model} said nothing when asked for the {purpose} of {who}")
        return text

    def _add_call(self, turn: int, call: ModelCall) -> None:
        self.calls.append(
            ScenarioCall(
                who=call.speaker,
                purpose=call.purpose,
                model=call.model,
                turn=turn,
                input_tokens=call.usage.input_tokens,
                output_tokens=call.usage.output_tokens,
                cost_usd=call.cost_usd,
            )
        )


async def together(work: Sequence[Coroutine[object, object, T]]) -> list[T]:
    """The results of all, in their order; on an error, the others are cancelled and it is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as group_error:
        raise first_error(group_error) from group_error
    return [task.result() for task in tasks]


def seed_of(*parts: object) -> int:
    """A seed from these parts, the same on every machine and within the range of all providers."""
    return int.from_bytes(hashlib.sha256("|".join(map(str, parts)).encode()).digest()[:4]) >> 1


def run_seed(details: Mapping[str, Any], repeat: int) -> int:
    """The seed of one run, from the experiment's seed and the run's number: the same in every variation.

    A branch has the seed of its original run, unless it was given another.
    """
    branch = details.get("branch") or {}
    return int(branch["seed"]) if "seed" in branch else seed_of(details["seed"], repeat)
