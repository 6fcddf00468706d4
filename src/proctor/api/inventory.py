"""Which agents, models and providers can be used from here.

Looking starts programs (`agent --version`) and asks servers for their models: it blocks for seconds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from urllib.parse import urlsplit, urlunsplit

from proctor import secrets
from proctor.agents import agent_names, find_agent
from proctor.context import Settings
from proctor.errors import NotFound, UsageError
from proctor.formatting import printable
from proctor.jobs.benchmark.models import ModelSupply, read_supply, with_discovered
from proctor.json_values import CamelJson, JsonObject
from proctor.models import local
from proctor.models.prices import Price, price_of
from proctor.models.providers import PROVIDERS, find_endpoint
from proctor.models.router import is_mock
from proctor.secrets import is_loopback

SMALL_MODEL = local.MODEL
"""A model that runs on this machine and needs no key."""
# Required settings, which a plan would have.
NEEDED: dict[str, JsonObject] = {"command": {"command": "true"}, "scripted": {"script": []}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAgent(CamelJson):
    """An agent, and whether it can be used."""

    name: str
    ready: bool
    version: str = ""
    mock: bool = False
    problem: str = ""
    """What is missing when it is not ready; otherwise a warning."""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentList(CamelJson):
    """Every agent by name, whether it is installed or not."""

    agents: Sequence[ListedAgent]


def list_agents(environment: Mapping[str, str]) -> AgentList:
    """The agents of Proctor and of installed packages."""
    return AgentList(agents=[check_agent(name, environment) for name in agent_names()])


def check_agent(name: str, environment: Mapping[str, str]) -> ListedAgent:
    """One agent; its program gets the variables of `environment` that it would get in a run."""
    try:
        agent = find_agent(name, NEEDED.get(name, {}))
    except UsageError as error:
        return ListedAgent(name=name, ready=False, problem=str(error))
    variables = secrets.visible(environment, named={"HOME", *agent.keys})
    return ListedAgent(name=name, mock=agent.is_mock, **asdict(agent.availability(variables)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrices(CamelJson):
    """US dollars per million tokens."""

    input: float
    output: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel(CamelJson):
    """A model that a server lists, or that is configured."""

    name: str
    source: str
    """Its provider, or the file that configures it."""
    available: bool
    """Whether its server lists it."""
    note: str = ""
    """Why it may not answer."""
    mock: bool
    price: TokenPrices | None
    """Null: unknown."""
    price_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelList(CamelJson):
    """The models, and the providers that did not list theirs."""

    models: Sequence[ListedModel]
    unavailable_providers: Mapping[str, str]
    """Why, by provider."""


def list_models(settings: Settings, moment: datetime, *, search: str = "") -> ModelList:
    """Models of `models_config.yaml` in the folders of the settings that no provider lists, then those that
    providers list; with their price at a moment. Only those whose name contains `search`."""
    supply = with_discovered(read_supply(settings, settings.folders, None))
    prices = {**settings.prices, **supply.prices}
    discovered = supply.discovered.models if supply.discovered else ()
    entries = [*_configured(supply), *((model.name, model.source, True, "") for model in discovered)]
    models = [
        _listed(name, source, available, note, price_of(name, prices, at=moment))
        for name, source, available, note in entries
        if search.lower() in name.lower()
    ]
    unavailable = supply.discovered.silent if supply.discovered else {}
    return ModelList(models=models, unavailable_providers=unavailable)


def _listed(name: str, source: str, available: bool, note: str, price: Price | None) -> ListedModel:
    return ListedModel(
        name=name,
        source=source,
        available=available,
        note=note,
        mock=is_mock(name),
        price=TokenPrices(input=price.rates.input, output=price.rates.output) if price else None,
        price_source=price.source if price else "",
    )


def _configured(supply: ModelSupply) -> Iterator[tuple[str, str, bool, str]]:
    """Configured models that no provider lists: name, source, False, and why they may not answer."""
    listed = {model.name for model in (supply.discovered.models if supply.discovered else ())}
    for model in supply.config.models:
        if not {model.model, f"{model.model}:latest"} & listed:
            note = "" if model.is_enabled else "not enabled"
            if model.key_variable and not supply.environment.get(model.key_variable):
                note = ", ".join(filter(None, (note, f"{model.key_variable} is not set")))
            yield model.model, str(supply.config_path), False, note or "its provider does not list it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSetting(CamelJson):
    """A provider and whether its key is present."""

    name: str
    address: str = ""
    """Empty: not configured."""
    key_variable: str
    """Environment variable of its key. Empty: needs none."""
    key: str
    """`present`, `missing`, or `not needed`. Never the key itself."""


def list_providers(environment: Mapping[str, str]) -> list[ProviderSetting]:
    """Known providers, then those the environment defines."""
    suffix = "_BASE_URL"
    usual = {variable for known in PROVIDERS.values() for variable in known.base_variables}
    own = sorted(
        name.removesuffix(suffix).lower()
        for name, value in environment.items()
        if name.endswith(suffix) and name not in usual and value
    )
    return [_provider(name, environment) for name in (*PROVIDERS, *own)]


def _provider(name: str, environment: Mapping[str, str]) -> ProviderSetting:
    try:
        endpoint = find_endpoint(f"{name}/any", environment)
    except NotFound:
        known = PROVIDERS.get(name)
        return ProviderSetting(name=name, key_variable=known.key_variables[0] if known else "", key="missing")
    key = "present" if endpoint.key else "missing" if endpoint.missing_key else "not needed"
    variable = "" if key == "not needed" and is_loopback(endpoint.base_url) else endpoint.key_variable
    address = _without_secrets(endpoint.base_url)
    return ProviderSetting(name=name, address=address, key_variable=variable, key=key)


def _without_secrets(address: str) -> str:
    """An address without user, password and query."""
    try:
        parts = urlsplit(address)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledModel:
    """A small model that needs no key."""

    model: str
    weights: str
    """The file. Empty: a server has them."""
    server: str
    """Address of a server of the user; empty: Proctor starts one."""


def install_model(
    model: str, environment: Mapping[str, str], notify: Callable[[str], None]
) -> InstalledModel:
    """Download the weights of a small model, unless they are there or a server has them."""
    if model != SMALL_MODEL:
        raise UsageError(
            f"`{printable(model)}` has no weights that Proctor installs\nOnly `{SMALL_MODEL}` has some."
        )
    server = environment.get(local.ADDRESS_VARIABLE, "")
    if not server:
        local.require(environment, notify)
    return InstalledModel(
        model=model, weights="" if server else str(local.weights_file(environment)), server=server
    )
