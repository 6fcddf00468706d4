"""Prompts of a scenario: templates, and the client that asks models.

A scenario's own `prompts/decision.j2` replaces the built-in template. Templates run in a sandbox, because a
scenario may come from an untrusted source.
"""

import hashlib
from collections.abc import Coroutine, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from proctor.errors import ModelError, WorkspaceError
from proctor.model import Answer, Model, Request, strip_reasoning
from proctor.model_client import ModelClient, ask_for_answer
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
        self.record = record
        self._seed = seed
        self._parameters = parameters or {}
        self.calls: list[ScenarioCall] = []
        """Calls of the current turn; cleared at its end."""

    async def ask(
        self,
        who: str,
        purpose: str,
        *,
        model: str,
        prompt: str,
        turn: int,
        system: str = "",
        about: str = "",
        whole: bool = False,
    ) -> str:
        """The answer to one prompt; one that has to be `whole` must not be cut off.

        `about` distinguishes prompts with the same purpose in one turn.
        """
        messages = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": prompt})
        request = Request(
            model=model,
            messages=messages,
            parameters=self._parameters,
            seed=seed_of(self._seed, turn, who, purpose, about),
        )

        def ask(request: Request) -> Coroutine[Any, Any, Answer]:
            return self._client.ask(
                request, speaker=who, purpose=purpose, on_call=lambda call: self._add_call(turn, call)
            )

        answer = await ask_for_answer(ask, request, self.record, whole=whole)
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


def seed_of(*parts: object) -> int:
    """A seed from these parts, the same on every machine and within the range of all providers."""
    return int.from_bytes(hashlib.sha256("|".join(map(str, parts)).encode()).digest()[:4]) >> 1


def run_seed(details: Mapping[str, Any], repeat: int) -> int:
    """The seed of one run, from the experiment's seed and the run's number: the same in every variation.

    A branch has the seed of its original run, unless it was given another.
    """
    branch = details.get("branch") or {}
    return int(branch["seed"]) if "seed" in branch else seed_of(details["seed"], repeat)
