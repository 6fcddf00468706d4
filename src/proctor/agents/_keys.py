"""Hand an agent the keys it cannot do without, and nobody else.

Agents have no keys in their environment: their model calls go through us. One that talks only to
its own service is the exception; it declares the variables it needs as `keys`. They are put into
the environment of that agent's own program, not of the set-up or the check of the same attempt.

Reads no environment but the mapping it is handed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from proctor.agent import Agent, Assignment, Availability, WorkDone
from proctor.session import Record


def keys_of(agent: Agent) -> tuple[str, ...]:
    """The variables this agent must be handed; most need none."""
    return tuple(getattr(agent, "keys", ()))


def with_keys(agent: Agent, environment: Mapping[str, str]) -> Agent:
    """The same agent, handed the keys it declares from the user's whole `environment`."""
    keys = {name: environment[name] for name in keys_of(agent) if environment.get(name)}
    # Its `stand_in` is the wrapped agent's, which a class variable cannot say.
    return cast(Agent, _Keyed(agent, keys)) if keys else agent


@dataclass(frozen=True, slots=True, repr=False)
class _Keyed:
    agent: Agent
    handed: Mapping[str, str]

    @property
    def stand_in(self) -> bool:
        return self.agent.stand_in

    @property
    def keys(self) -> tuple[str, ...]:
        return keys_of(self.agent)

    def availability(self, environment: Mapping[str, str]) -> Availability:
        return self.agent.availability(environment)

    async def work(self, assignment: Assignment, record: Record) -> WorkDone:
        environment = {**assignment.environment, **self.handed}
        return await self.agent.work(replace(assignment, environment=environment), record)
