"""Which agents and models can be used from here: for `proctor agents`, `models`, and the Models page.

Looking starts programs (`agent --version`) and asks servers for their models: it blocks for seconds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from proctor import secrets
from proctor.agent import Availability
from proctor.agents import agent_names, find_agent
from proctor.context import Settings
from proctor.errors import UsageError
from proctor.jobs.benchmark.models import ModelSupply, read_supply, with_discovered
from proctor.json_values import JsonObject
from proctor.models.prices import Price, price_of
from proctor.models.router import is_stand_in

# Required settings, which a plan would have.
NEEDED: dict[str, JsonObject] = {"command": {"command": "true"}, "scripted": {"script": []}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAgent:
    """An agent, and whether it can be used."""

    name: str
    availability: Availability
    stand_in: bool = False
    """Whether it is a mock."""

    def document(self) -> JsonObject:
        """As JSON."""
        return {
            "name": self.name,
            "ready": self.availability.ready,
            "version": self.availability.version,
            "standIn": self.stand_in,
            "problem": self.availability.problem,
            "remedy": self.availability.remedy,
        }


def list_agents(environment: Mapping[str, str]) -> list[ListedAgent]:
    """Every agent by name, whether it is installed or not."""
    return [check_agent(name, environment) for name in agent_names()]


def check_agent(name: str, environment: Mapping[str, str]) -> ListedAgent:
    """One agent; its program gets the variables of `environment` that it would get in a run."""
    try:
        agent = find_agent(name, NEEDED.get(name, {}))
    except UsageError as error:
        return ListedAgent(name=name, availability=Availability(ready=False, problem=str(error)))
    variables = secrets.visible(environment, named={"HOME", *getattr(agent, "keys", ())})
    return ListedAgent(name=name, availability=agent.availability(variables), stand_in=agent.stand_in)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """A model that a server lists, or that is configured."""

    name: str
    source: str
    """Its provider, or the file that configures it."""
    answers: bool
    """Whether its server lists it."""
    remark: str = ""
    price: Price | None
    """None: unknown."""

    @property
    def stand_in(self) -> bool:
        """Whether it is a mock."""
        return is_stand_in(self.name)

    def document(self) -> JsonObject:
        """As JSON."""
        rates = None if self.price is None else self.price.rates
        return {
            "name": self.name,
            "source": self.source,
            "answers": self.answers,
            "remark": self.remark,
            "standIn": self.stand_in,
            "price": None if rates is None else {"input": rates.input, "output": rates.output},
            "priceSource": "" if self.price is None else self.price.source,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelList:
    """The models, and the providers that did not list theirs."""

    models: Sequence[ListedModel]
    silent: Mapping[str, str] = field(default_factory=dict)
    """Why, by provider."""

    def document(self) -> JsonObject:
        """As JSON."""
        return {"models": [each.document() for each in self.models], "silent": dict(self.silent)}


def list_models(
    settings: Settings, folders: Sequence[Path], moment: datetime, *, search: str = ""
) -> ModelList:
    """Models of `models_config.yaml` in the folders that no provider lists, then those that providers list;
    with their price at a moment. Only those whose name contains `search`."""
    supply = with_discovered(read_supply(settings, folders, None))
    prices = {**settings.prices, **supply.prices}
    discovered = supply.discovered.models if supply.discovered else ()
    entries = [*_configured(supply), *((each.name, each.source, True, "") for each in discovered)]
    models = [
        ListedModel(
            name=name,
            source=source,
            answers=answers,
            remark=remark,
            price=price_of(name, prices, at=moment),
        )
        for name, source, answers, remark in entries
        if search.lower() in name.lower()
    ]
    return ModelList(models=models, silent=supply.discovered.silent if supply.discovered else {})


def _configured(supply: ModelSupply) -> Iterator[tuple[str, str, bool, str]]:
    """Name, source, and remark of configured models that no provider lists, and why they may not answer."""
    known = {each.name for each in (supply.discovered.models if supply.discovered else ())}
    for one in supply.config.models:
        if not {one.model, f"{one.model}:latest"} & known:
            remark = "" if one.enabled else "not enabled"
            if one.key_variable and not supply.environment.get(one.key_variable):
                remark = ", ".join(filter(None, (remark, f"{one.key_variable} is not set")))
            yield one.model, str(supply.config_path), False, remark or "its provider does not list it"
