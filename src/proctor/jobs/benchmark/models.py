"""`models_config.yaml`: models to compare, their parameters, and categories of models.

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

Also resolves `--models` to configured and discovered models.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from proctor.context import Settings
from proctor.errors import NotFound, Problem, UsageError
from proctor.json_values import JsonMap
from proctor.models import ModelRouter
from proctor.models.discovery import ModelDiscovery, discover
from proctor.models.providers import PROVIDERS, find_endpoint
from proctor.plan.source import PlanSource, bytes_of, refuse
from proctor.plan.validate import (
    Anything,
    ModelPrice,
    OutagePatience,
    PlanResources,
    PlanSandbox,
    Text,
    check_shape,
    sections_of,
)
from proctor.plan.yaml_loader import read_source
from proctor.secrets import is_loopback

CONFIG_FILE = "models_config.yaml"
ALIASES = {"google": "gemini", "azure_openai": "azure"}
"""Other names of providers."""
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


def _is_date(value: str) -> str:
    if not re.fullmatch(r"\d{4}-\d\d(-\d\d)?", value):
        raise ValueError("should be a month or a day, as '2024-06' or '2024-06-30'")
    # The last day of a month, so that days compare with it as text.
    return value if len(value) > len("2024-06") else f"{value}-31"


class _ModelsConfigModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class ModelEntry(_ModelsConfigModel):
    """One model."""

    name: Annotated[str, AfterValidator(_is_name)]
    provider: Annotated[str, AfterValidator(_is_name)] | None = None
    display_name: Text | None = None
    enabled: bool = True
    api_key: Annotated[str, AfterValidator(_is_reference)] | None = None
    base_url: Text | None = None
    settings: dict[str, Anything] | None = None
    price: ModelPrice | None = None
    cutoff: Annotated[str, AfterValidator(_is_date)] | None = None


class BatchSettings(_ModelsConfigModel):
    """Defaults of a benchmark."""

    default_timeout: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1800
    save_intermediate: bool = True
    max_parallel: Annotated[int, Field(ge=1)] = 3
    retry_on_failure: bool = False
    max_retries: Annotated[int, Field(ge=0, le=100)] = 2
    show_progress: bool = True
    verbose: bool = False
    sandbox: PlanSandbox = None
    resources: PlanResources = None
    outage_patience: OutagePatience = None


class _File(_ModelsConfigModel):
    models: list[ModelEntry] | None = None
    batch_settings: BatchSettings | None = None
    categories: dict[str, list[Annotated[str, AfterValidator(_is_name)]]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model that can be selected."""

    name: str
    """Its name in files, in reports and on the command line, with the tags of Ollama."""
    model: str
    """`provider/model`, as it is called."""
    display_name: str = ""
    settings: JsonMap = field(default_factory=dict)
    """Parameters of its calls."""
    is_usual: bool = True
    """Whether `all` includes it. Models of hosted providers cost money and are named one by one."""
    is_enabled: bool = True
    """Whether categories include it. A model that is not enabled can still be named itself."""
    missing: str = ""
    """Why it cannot be selected; empty: it can."""
    cutoff: str = ""
    """Last day of its training data, as 2024-01-31; empty: not known."""
    key_variable: str = ""
    """The variable that holds its key; empty: its provider's usual one."""
    base_url: str = ""
    """Empty: its provider's usual one."""
    price: Mapping[str, float] = field(default_factory=dict)

    @property
    def provider(self) -> str:
        """Empty: the name has none."""
        return self.model.partition("/")[0] if "/" in self.model else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsConfig:
    """Contents of the file; defaults without one."""

    models: tuple[Candidate, ...] = ()
    settings: BatchSettings = field(default_factory=BatchSettings)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_models_config(text: str | bytes, *, file: str) -> ModelsConfig:
    """Read and check the file; raises `PlanError` with every problem."""
    source = read_source(text, file=file)
    if source.data is None:
        return ModelsConfig()
    problems = list(check_shape(source, _File, sections_of(_File, "file")).problems)
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


def _configured(entry: ModelEntry, is_shared: bool) -> Candidate:
    provider = ALIASES.get(entry.provider or "", entry.provider or "")
    model = entry.name
    if provider and not model.startswith(f"{provider}/"):
        model = f"{provider}/{model}"
    # Local models have the names that discovery gives them; duplicates are numbered.
    name = model if provider == "ollama" or is_shared else entry.name
    price = (
        {kind: rate for kind, rate in entry.price.model_dump().items() if rate is not None}
        if entry.price
        else {}
    )
    return Candidate(
        name=name,
        model=model,
        display_name=entry.display_name or entry.name,
        is_enabled=entry.enabled,
        key_variable=_REFERENCE.findall(entry.api_key)[0] if entry.api_key else "",
        base_url=entry.base_url or "",
        settings=entry.settings or {},
        price=price,
        cutoff=entry.cutoff or "",
    )


def _contradictions(source: PlanSource) -> Iterator[Problem]:
    positions: dict[tuple[str, str], int] = {}
    keys: dict[str, str] = {}
    addresses: dict[str, str] = {}
    for index, entry in enumerate(source.data.get("models") or []):
        provider = entry.get("provider") or ""
        path = ("models", index)
        if (entry["name"], provider) in positions:
            remedy = "Give each model once; to compare settings, run twice with another file."
            yield source.problem((*path, "name"), f"the model `{entry['name']}` is given twice", remedy)
        positions[entry["name"], provider] = index
        for field_name, known in (("api_key", keys), ("base_url", addresses)):
            value = entry.get(field_name)
            if value and not provider:
                problem = f"model {index + 1} has `{field_name}`, but no `provider`"
                yield source.problem((*path, field_name), problem, "Add `provider`.")
            elif value and known.setdefault(provider, value) != value:
                problem = f"the provider `{provider}` is given two different values for `{field_name}`"
                remedy = (
                    "In one file a provider has one. Name the second provider differently, with a `base_url`."
                )
                yield source.problem((*path, field_name), problem, remedy)


EVERYTHING = "all"
LISTED = 8


UNREACHABLE = "cannot be called here"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSelection:
    """The selected models."""

    models: tuple[Candidate, ...]
    remarks: tuple[str, ...] = ()
    """Members of categories that are missing."""


def choose(
    selection: str,
    candidates: Sequence[Candidate],
    categories: Mapping[str, Sequence[str]],
    other: Callable[[str], Candidate | None],
) -> ModelSelection:
    """The models of a comma-separated selection; each once, in the order of the selection.

    `other` resolves names that are not listed but can be called.
    """
    chosen, remarks = dict[str, Candidate](), list[str]()
    for word in filter(None, (word.strip() for word in selection.split(","))):
        for candidate in _selected(word, candidates, categories, other, remarks):
            chosen.setdefault(candidate.name, candidate)
    if not chosen:
        raise UsageError(
            "no models were found\nStart Ollama (`ollama list` shows its models), enable a model in "
            "models_config.yaml, or name one: --models provider/model. `proctor models` lists what is there."
        )
    return ModelSelection(models=tuple(chosen.values()), remarks=tuple(remarks))


def _selected(
    word: str,
    candidates: Sequence[Candidate],
    categories: Mapping[str, Sequence[str]],
    other: Callable[[str], Candidate | None],
    remarks: list[str],
) -> list[Candidate]:
    if word.lower() == EVERYTHING:
        usual = [each for each in candidates if each.is_usual and each.is_enabled]
        for model in usual:
            if model.missing.startswith(UNREACHABLE):
                remarks.append(f"{model.name} is left out: it {model.missing}".partition("\n")[0])
        return [each for each in usual if not each.missing]
    if word in categories and not _exact(word, candidates):
        return _members(word, candidates, categories[word], other, remarks)
    candidate = _one(word, candidates, other)
    if candidate is None:
        raise _unknown(word, candidates, categories)
    if candidate.missing:
        raise UsageError(f"the model {candidate.name} {candidate.missing}")
    return [candidate]


def _members(
    category: str,
    candidates: Sequence[Candidate],
    members: Sequence[str],
    other: Callable[[str], Candidate | None],
    remarks: list[str],
) -> list[Candidate]:
    matching = list[Candidate]()
    for member in members:
        candidate, problem = None, "was not found"
        try:
            candidate = _one(member, candidates, other)
        except UsageError as error:
            problem = f"is left out: {error}"
        if candidate and not candidate.missing and candidate.is_enabled:
            matching.append(candidate)
            continue
        problem = (candidate.missing or "is not enabled") if candidate else problem
        remarks.append(f"of the category {category}, {member} {problem}".partition("\n")[0])
    if not matching:
        raise NotFound(
            f"none of the models in the category {category} is here: {', '.join(members) or 'it is empty'}\n"
            "`proctor models` lists the models that are."
        )
    return matching


def _one(
    word: str, candidates: Sequence[Candidate], other: Callable[[str], Candidate | None]
) -> Candidate | None:
    """The one model a word selects: by exact name, then by name without tag, then by part of the name."""
    if exact := _exact(word, candidates):
        return exact
    likenesses: tuple[Callable[[Candidate], bool], ...] = (
        lambda each: _same_but_tag(word, each, latest=True),
        lambda each: _same_but_tag(word, each, latest=False),
    )
    for likeness in likenesses:
        if candidate := _only(word, filter(likeness, candidates)):
            return candidate
    # A word without a provider is looked up as part of a listed name first.
    if "/" in word and (candidate := other(word)):
        return candidate
    part = word.lower()
    near = (each for each in candidates if part in each.name.lower() or part in each.model.lower())
    return _only(word, near) or (None if "/" in word else other(word))


def _exact(word: str, candidates: Sequence[Candidate]) -> Candidate | None:
    for kind in ("name", "model", "display_name"):
        for candidate in candidates:
            if getattr(candidate, kind).lower() == word.lower():
                return candidate
    return None


def _same_but_tag(word: str, candidate: Candidate, *, latest: bool) -> bool:
    """`llama3` is `ollama/llama3:latest`, or the only model with another tag."""
    whole, _, tag = candidate.model.rpartition(":") if ":" in candidate.model else (candidate.model, "", "")
    bare = whole.partition("/")[2] or whole
    return word.lower() in (whole.lower(), bare.lower()) and (not latest or tag in ("", "latest"))


def _only(word: str, matching: Iterable[Candidate]) -> Candidate | None:
    several = list(matching)
    # Models that cannot be selected do not make a name ambiguous.
    several = [each for each in several if not each.missing] or several
    if len(several) > 1:
        names = ", ".join(each.name for each in several[:LISTED])
        more = f" and {len(several) - LISTED} more" if len(several) > LISTED else ""
        raise UsageError(f"`{word}` may be several models: {names}{more}\nGive more of the name.")
    return several[0] if several else None


def _unknown(word: str, candidates: Sequence[Candidate], categories: Mapping[str, Sequence[str]]) -> NotFound:
    names = {name: name for name in (*(each.name for each in candidates), *categories)}
    # Compare without provider and tag, which users leave out.
    names |= {
        candidate.name.partition("/")[2].partition(":")[0]: candidate.name
        for candidate in candidates
        if "/" in candidate.name
    }
    near = dict.fromkeys(names[each] for each in get_close_matches(word, names, n=3, cutoff=0.5))
    hint = f"Did you mean {' or '.join(f'`{each}`' for each in near)}? " if near else ""
    listed = ", ".join([each.name for each in candidates if each.is_usual][:LISTED])
    groups = f" Categories: {', '.join(categories)}." if categories else ""
    available = f"Found here: {listed}." if listed else "No model was found here."
    return NotFound(f"there is no model `{word}`\n{hint}{available}{groups} `proctor models` lists them all.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSupply:
    """Models that a benchmark can choose from: configured ones, and those that servers list."""

    config: ModelsConfig
    config_path: Path | None
    environment: Mapping[str, str]
    variables: Mapping[str, str]
    """Keys and addresses of the configured models, as variables; secret."""
    prices: Mapping[str, Mapping[str, float]]
    discovered: ModelDiscovery | None = None
    own: frozenset[str] = field(default_factory=frozenset)
    """Providers with a configured address."""

    @property
    def key_variables(self) -> dict[str, str]:
        """The variable with the key of a model, where that is not its provider's usual one."""
        return {model.model: model.key_variable for model in self.config.models if model.key_variable}

    @property
    def ollama(self) -> list[str] | None:
        """The models of a running Ollama; None: none runs."""
        names = [each.name for each in self.discovered.models] if self.discovered else []
        return [name for name in names if name.startswith("ollama/")] or None

    def candidates(self) -> list[Candidate]:
        """Configured models, then discovered ones."""
        configured = [self._configured(model) for model in self.config.models]
        known = {name for model in configured for name in (model.model, f"{model.model}:latest")}
        discovered = self.discovered.models if self.discovered else ()
        return configured + [
            Candidate(name=model.name, model=model.name, is_usual=self._is_usual(model.name, model.source))
            for model in discovered
            if model.name not in known
        ]

    def _is_usual(self, name: str, source: str) -> bool:
        provider = name.partition("/")[0]
        return provider != "scripted" and (is_loopback(source) or provider in self.own)

    def _configured(self, model: Candidate) -> Candidate:
        """A configured model, with why it cannot be selected."""
        pulled = self.ollama if model.provider == "ollama" else None
        if pulled is not None and not {model.model, f"{model.model}:latest"} & set(pulled):
            name = model.model.partition("/")[2]
            return replace(model, missing=f"is not in the running Ollama\nGet it: ollama pull {name}")
        return replace(model, missing=self._refusal(model)) if model.is_enabled else model

    def _refusal(self, model: Candidate) -> str:
        """Why a configured model cannot be called: its provider is not known here; empty: it can."""
        if model.model.startswith(("scripted/", "replay/", "litellm/", "python/")):
            return ""
        try:
            find_endpoint(model.model, {**self.environment, **self.variables})
        except NotFound as error:
            return f"{UNREACHABLE}: {error}"
        return ""

    def other(self, models: ModelRouter, word: str) -> Candidate | None:
        """A model that no server lists but that can be called; None: it cannot."""
        try:
            models.check(word)
        except NotFound:
            return None
        if word.startswith(("scripted/", "replay/", "litellm/")):
            return Candidate(name=word, model=word, is_usual=False)
        endpoint = find_endpoint(word, {**self.environment, **self.variables})
        if is_loopback(endpoint.base_url):
            # A server on this machine lists every model it has.
            if self.discovered and any(
                model.name.startswith(f"{endpoint.provider}/") for model in self.discovered.models
            ):
                return None
            if endpoint.provider in ("ollama", "lmstudio"):
                raise UsageError(
                    f"{word}: nothing answers at {endpoint.base_url}\nStart {endpoint.provider} first."
                )
        return Candidate(name=word, model=f"{endpoint.provider}/{endpoint.model}", is_usual=False)


def read_supply(settings: Settings, folders: Sequence[Path], config_path: Path | None) -> ModelSupply:
    """Read what is configured; calls no server. `settings` are those of the folders."""
    path = config_path or _default_path(folders)
    config = _read(path) if path else ModelsConfig()
    providers = {
        name.removesuffix("_BASE_URL").lower() for name in settings.variables if name.endswith("_BASE_URL")
    }
    return ModelSupply(
        config=config,
        config_path=path,
        environment=settings.environment,
        variables=_variables(config.models, settings.environment),
        prices={model.model: model.price for model in config.models if model.price},
        own=frozenset(
            providers | {model.provider for model in config.models if model.base_url and model.provider}
        ),
    )


def with_discovered(supply: ModelSupply) -> ModelSupply:
    """The same with the models that local servers and configured providers list now."""
    environment = {**supply.environment, **supply.variables}
    listing = discover(environment, extra=sorted(supply.own - PROVIDERS.keys()))
    with ThreadPoolExecutor(1) as pool:
        # In a thread, because the caller may run in an event loop.
        return replace(supply, discovered=pool.submit(asyncio.run, listing).result())


def _default_path(folders: Sequence[Path]) -> Path | None:
    places = [folder / name for folder in folders for name in (CONFIG_FILE, f"benchmark/{CONFIG_FILE}")]
    return next((path for path in places if path.is_file()), None)


def _read(path: Path) -> ModelsConfig:
    text = bytes_of(path, remedy="Give --models-config a YAML file.")
    return read_models_config(text, file=str(path))


def _variables(models: Sequence[Candidate], environment: Mapping[str, str]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for model in models:
        provider = PROVIDERS.get(model.provider)
        prefix = re.sub(r"\W", "_", model.provider).upper()
        if model.base_url:
            variables[provider.base_variables[0] if provider else f"{prefix}_BASE_URL"] = model.base_url
        if model.key_variable and (key := environment.get(model.key_variable)):
            usual = provider.key_variables if provider else (f"{prefix}_API_KEY",)
            variables |= {usual[0]: key} if usual else {}
    return variables
