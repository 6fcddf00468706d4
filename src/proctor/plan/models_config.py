"""`models_config.yaml`: the models to compare, how they are asked, and names for groups of them.

    models:
      - name: gpt-4
        provider: openai
        display_name: GPT-4
        enabled: true
        api_key: ${OPENAI_API_KEY}      # the variable, never the key
        settings: {temperature: 0.7, max_tokens: 2048}
    batch_settings: {default_timeout: 1800, max_parallel: 3}
    categories:
      fast: [gpt-4, ollama/mistral]

Knows nothing of providers' addresses, of who answers, or of the environment.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from proctor.errors import Problem
from proctor.plan.reading import read_source
from proctor.plan.schema import Anything, ModelPrice, Text, names_of
from proctor.plan.source import Path, Source, refuse
from proctor.plan.validate import Part, check_shape

ALIASES = {"google": "gemini", "azure_openai": "azure"}
"""How others call a provider → our name for it."""
NAME = r"[A-Za-z0-9._:/@+-]{1,256}"
_REFERENCE = re.compile(r"\$\{(\w+)\}")


def _is_name(value: str) -> str:
    if not re.fullmatch(NAME, value):
        raise ValueError("should be 1 to 256 letters, digits and . _ : / @ + -")
    return value


def _is_reference(value: str) -> str:
    if not _REFERENCE.fullmatch(value):
        raise ValueError("should name the variable that holds the key, as ${OPENAI_API_KEY}; never the key")
    return value


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ModelEntry(_Part):
    """One model."""

    name: Annotated[str, AfterValidator(_is_name)]
    provider: Annotated[str, AfterValidator(_is_name)] | None = None
    display_name: Text | None = None
    enabled: bool = True
    api_key: Annotated[str, AfterValidator(_is_reference)] | None = None
    base_url: Text | None = None
    settings: dict[str, Anything] | None = None
    price: ModelPrice | None = None


class BatchSettings(_Part):
    """What holds for a benchmark unless its command says otherwise."""

    default_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1800
    save_intermediate: bool = True
    max_parallel: Annotated[int, Field(ge=1)] = 3
    retry_on_failure: bool = False
    max_retries: Annotated[int, Field(ge=0, le=100)] = 2
    show_progress: bool = True
    verbose: bool = False


class _File(_Part):
    models: list[ModelEntry] | None = None
    batch_settings: BatchSettings | None = None
    categories: dict[str, list[Annotated[str, AfterValidator(_is_name)]]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredModel:
    """A model the user has configured."""

    name: str
    """What it is called in files and on the command line."""
    model: str
    """`provider/model`, as it is asked."""
    display_name: str
    enabled: bool = True
    key_variable: str = ""
    """The variable that holds its key; empty: its provider's usual one."""
    base_url: str = ""
    """Empty: its provider's usual one."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    price: Mapping[str, float] = field(default_factory=dict)

    @property
    def provider(self) -> str:
        """Empty when the name alone has to say it."""
        return self.model.partition("/")[0] if "/" in self.model else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsConfig:
    """What the file says; all defaults without one."""

    models: tuple[ConfiguredModel, ...] = ()
    settings: BatchSettings = field(default_factory=BatchSettings)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_models_config(text: str | bytes, *, file: str) -> ModelsConfig:
    """Read and check the file; raises `PlanError` with everything that is wrong."""
    source = read_source(text, file=file)
    if source.data is None:
        return ModelsConfig()
    problems = list(check_shape(source, _File, _vocabulary).problems)
    if not problems:
        problems += _contradictions(source)
    if problems:
        refuse(problems)
    read = _File.model_validate(source.data)
    entries = read.models or []
    names = [entry.name for entry in entries]
    return ModelsConfig(
        models=tuple(_configured(entry, names.count(entry.name) > 1) for entry in entries),
        settings=read.batch_settings or BatchSettings(),
        categories={name: tuple(members) for name, members in (read.categories or {}).items()},
    )


def _configured(entry: ModelEntry, is_shared: bool) -> ConfiguredModel:
    provider = ALIASES.get(entry.provider or "", entry.provider or "")
    model = entry.name
    if provider and not model.startswith(f"{provider}/"):
        model = f"{provider}/{model}"
    # What runs on this machine is called as discovery calls it, and two of one name are told apart.
    name = model if provider == "ollama" or is_shared else entry.name
    price = (
        {kind: rate for kind, rate in entry.price.model_dump().items() if rate is not None}
        if entry.price
        else {}
    )
    return ConfiguredModel(
        name=name,
        model=model,
        display_name=entry.display_name or entry.name,
        enabled=entry.enabled,
        key_variable=_REFERENCE.findall(entry.api_key)[0] if entry.api_key else "",
        base_url=entry.base_url or "",
        settings=entry.settings or {},
        price=price,
    )


def _contradictions(source: Source) -> Iterator[Problem]:
    seen: dict[tuple[str, str], int] = {}
    keys: dict[str, str] = {}
    addresses: dict[str, str] = {}
    for index, entry in enumerate(source.data.get("models") or []):
        provider = entry.get("provider") or ""
        path = ("models", index)
        if (entry["name"], provider) in seen:
            remedy = "Give each model once; to compare settings, run twice with another file."
            yield source.problem((*path, "name"), f"the model `{entry['name']}` is given twice", remedy)
        seen[entry["name"], provider] = index
        for field_name, known in (("api_key", keys), ("base_url", addresses)):
            given = entry.get(field_name)
            if given and not provider:
                problem = f"model {index + 1} has `{field_name}`, but no `provider`"
                yield source.problem((*path, field_name), problem, "Add `provider`.")
            elif given and known.setdefault(provider, given) != given:
                problem = f"the provider `{provider}` is given two different values for `{field_name}`"
                remedy = (
                    "In one file a provider has one. Name the second provider differently, with a `base_url`."
                )
                yield source.problem((*path, field_name), problem, remedy)


def _vocabulary(path: Path) -> Part | None:
    match path:
        case ():
            return Part("the file", "The file", names_of(_File))
        case ("models", int(index)):
            return Part(f"model {index + 1}", "A model", names_of(ModelEntry))
        case ("models", int(index), "price"):
            return Part(f"the price of model {index + 1}", "A price", names_of(ModelPrice))
        case ("batch_settings",):
            return Part("`batch_settings`", "`batch_settings`", names_of(BatchSettings))
    return None
