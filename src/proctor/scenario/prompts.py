"""The words that models are asked with: templates in files, each of which a scenario may replace.

A scenario's own `prompts/decision.j2` takes the place of ours. Templates are run in a sandbox: a
scenario may come from someone else.

Knows nothing of models or turns.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import DictLoader, StrictUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from proctor.errors import WorkspaceError

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
