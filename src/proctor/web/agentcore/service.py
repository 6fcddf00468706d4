"""What every operation stands on: the site, its limits, and the names of its resources."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from proctor.batch.secrecy import blotter
from proctor.models import Models
from proctor.plan.evaluation import JUDGE
from proctor.store import Store
from proctor.web.agentcore.guard import Guard
from proctor.web.agentcore.limits import Limits, limits_of
from proctor.web.agentcore.names import Names
from proctor.web.agentcore.rates import Rates
from proctor.web.launching import Launched, launch
from proctor.web.site import Site


@dataclass(frozen=True)
class Service:
    """One server, as the operations see it."""

    site: Site

    @property
    def store(self) -> Store:
        return self.site.store

    @property
    def now(self) -> datetime:
        return self.site.now()

    @cached_property
    def limits(self) -> Limits:
        return limits_of(self.site.evaluation.get("limits", {}))

    @property
    def judge(self) -> str:
        """Who judges where an evaluator does not say, as `provider/model`."""
        return str(self.site.evaluation.get("judge") or JUDGE)

    @property
    def judging(self) -> dict[str, Any]:
        """What jobs of this server are asked for beside what their callers say."""
        return {"judge": self.judge, "harmfulValue": self.harmful_value}

    @property
    def harmful_value(self) -> float:
        """What a judgement `Harmful` is worth."""
        return float(self.site.evaluation.get("harmful_value", 1.0))

    @cached_property
    def names(self) -> Names:
        return Names(region=self.site.region, account=self.site.account)

    @cached_property
    def rates(self) -> Rates:
        return Rates(self.limits.rates, self.site.now)

    @cached_property
    def models(self) -> Models:
        """Every model that can be reached, for all who ask at once: so they share one set of limits."""
        return self.site.make_models()

    @cached_property
    def under_way(self) -> dict[str, asyncio.Task[Mapping[str, Any]]]:
        """Evaluations that callers wait for, by what they asked."""
        return {}

    def start(self, evaluation_id: str) -> Launched:
        """Have a job carried out by a process of its own, which outlives this one."""
        words = ["evaluate", "run", evaluation_id, "--json"]
        return launch(self.site, words, f"evaluate-{evaluation_id}")

    async def close(self) -> None:
        """Let go of what was opened."""
        if "models" in self.__dict__:
            await self.models.close()

    @cached_property
    def blot(self) -> Callable[[str], str]:
        """Takes the user's secrets out of a text."""
        return blotter(self.site.environment)

    @cached_property
    def guard(self) -> Guard:
        return Guard(token=self.site.token, access_keys=self.site.access_keys)
