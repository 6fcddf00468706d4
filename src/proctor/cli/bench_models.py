"""Which models a benchmark can choose from: configured ones, and those that answer from here."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from proctor.bootstrap import StorePlaces, configuration, make_models
from proctor.errors import NotFound, UsageError
from proctor.jobs.benchmark.models import Candidate, ConfiguredModel, ModelsConfig, read_models_config
from proctor.models import ModelRouter
from proctor.models.discovery import ModelDiscovery, discover
from proctor.models.providers import PROVIDERS, find_endpoint, is_loopback
from proctor.plan.source import bytes_of

NAME = "models_config.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSupply:
    """Everything there is to choose from."""

    config: ModelsConfig
    config_path: Path | None
    environment: Mapping[str, str]
    variables: Mapping[str, str]
    """What the configured keys and addresses come to; secret."""
    prices: Mapping[str, Mapping[str, float]]
    found: ModelDiscovery | None = None
    own: frozenset[str] = field(default_factory=frozenset)
    """Providers the user has an address of."""

    @property
    def key_variables(self) -> dict[str, str]:
        """Where the user keeps the keys of models, when that is not the usual place."""
        return {one.model: one.key_variable for one in self.config.models if one.key_variable}

    @property
    def ollama(self) -> list[str] | None:
        """The names a running Ollama has; None when none runs."""
        names = [each.name for each in self.found.models] if self.found else []
        return [name for name in names if name.startswith("ollama/")] or None

    def candidates(self) -> list[Candidate]:
        """Configured models, then what was found besides."""
        made = [self._configured(one) for one in self.config.models]
        known = {name for one in made for name in (one.model, f"{one.model}:latest")}
        for each in self.found.models if self.found else ():
            if each.name not in known:
                made.append(
                    Candidate(
                        name=each.name, model=each.name, is_usual=self._is_usual(each.name, each.source)
                    )
                )
        return made

    def _is_usual(self, name: str, source: str) -> bool:
        provider = name.partition("/")[0]
        return provider != "scripted" and (is_loopback(source) or provider in self.own)

    def _configured(self, one: ConfiguredModel) -> Candidate:
        why, here = "", self.ollama if one.provider == "ollama" else None
        if here is not None and not {one.model, f"{one.model}:latest"} & set(here):
            why = f"is not in the running Ollama\nGet it: ollama pull {one.model.partition('/')[2]}"
        return Candidate(
            name=one.name,
            model=one.model,
            display_name=one.display_name,
            settings=one.settings,
            is_enabled=one.enabled,
            missing=why,
        )

    def other(self, models: ModelRouter, word: str) -> Candidate | None:
        """A model that nobody has listed but that can be asked; None when it cannot."""
        try:
            models.check(word)
        except NotFound:
            return None
        if word.startswith(("scripted/", "replay/", "litellm/")):
            return Candidate(name=word, model=word, is_usual=False)
        endpoint = find_endpoint(word, {**self.environment, **self.variables})
        if is_loopback(endpoint.base_url):
            # A server on this machine says what it has: what it does not list is not there.
            if self.found and any(
                each.name.startswith(f"{endpoint.provider}/") for each in self.found.models
            ):
                return None
            if endpoint.provider in ("ollama", "lmstudio"):
                raise UsageError(
                    f"{word}: nothing answers at {endpoint.base_url}\nStart {endpoint.provider} first."
                )
        return Candidate(name=word, model=f"{endpoint.provider}/{endpoint.model}", is_usual=False)


def read_supply(where: StorePlaces, folders: Sequence[Path], config_path: Path | None) -> ModelSupply:
    """Read what is configured; asks nobody."""
    path = config_path or _usual_place(folders)
    config = _read(path) if path else ModelsConfig()
    settings = configuration(where, folders)
    own = {
        name.removesuffix("_BASE_URL").lower() for name in settings.variables if name.endswith("_BASE_URL")
    }
    return ModelSupply(
        config=config,
        config_path=path,
        environment=settings.environment,
        variables=_variables(config.models, settings.environment),
        prices={one.model: one.price for one in config.models if one.price},
        own=frozenset(own | {one.provider for one in config.models if one.base_url and one.provider}),
    )


def with_found(supply: ModelSupply) -> ModelSupply:
    """The same, after everyone who might have models was asked."""
    environment = {**supply.environment, **supply.variables}
    found = asyncio.run(discover(environment, extra=sorted(supply.own - PROVIDERS.keys())))
    return replace(supply, found=found)


def models_of(
    supply: ModelSupply,
    where: StorePlaces,
    folders: Sequence[Path],
    *,
    record: Path | None = None,
    replay: Path | None = None,
) -> ModelRouter:
    """The models as the benchmark asks them; `record` keeps their traffic, `replay` answers for them."""
    return make_models(
        where,
        folders,
        prices=supply.prices,
        variables=supply.variables,
        record=str(record) if record else None,
        replay=str(replay) if replay else None,
    )


def _usual_place(folders: Sequence[Path]) -> Path | None:
    places = [folder / name for folder in folders for name in (NAME, f"benchmark/{NAME}")]
    return next((path for path in places if path.is_file()), None)


def _read(path: Path) -> ModelsConfig:
    text = bytes_of(path, remedy="Give --models-config a YAML file.")
    return read_models_config(text, file=str(path))


def _variables(models: Sequence[ConfiguredModel], environment: Mapping[str, str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for one in models:
        provider = PROVIDERS.get(one.provider)
        prefix = re.sub(r"\W", "_", one.provider).upper()
        if one.base_url:
            made[provider.base_variables[0] if provider else f"{prefix}_BASE_URL"] = one.base_url
        if one.key_variable and (key := environment.get(one.key_variable)):
            usual = provider.key_variables if provider else (f"{prefix}_API_KEY",)
            made |= {usual[0]: key} if usual else {}
    return made
