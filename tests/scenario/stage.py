"""A stage for simulations: a model that answers by function and remembers what it was asked."""

from collections.abc import Callable
from typing import Any

from proctor.model import Answer, Request
from proctor.scenario.definition import Scenario, scenario_of
from proctor.scenario.prompts import ScenarioModels
from proctor.scenario.run_files import documents
from proctor.scenario.simulation import ScenarioSimulation
from proctor.scenario.state import ScenarioRun, ScenarioTurn
from proctor.session import ModelCall, Usage

PLAIN: dict[str, Any] = {
    "name": "Harbour Fee Talks",
    "initial_world_state": "Spring. cooperation level: 4",
    "turns": 3,
    "world_state_model": "narrator",
    "actors": {
        "port": {
            "name": "Port Authority",
            "short_name": "port",
            "llm_model": "model-port",
            "system_prompt": "PORT-PROMPT",
            "goals": ["PORT-GOAL"],
            "constraints": ["PORT-CONSTRAINT"],
            "expertise": ["PORT-EXPERTISE: expert"],
            "decision_style": "PORT-STYLE",
            "private_information": "PORT-SECRET",
        },
        "ferry": {
            "name": "Ferry Line",
            "short_name": "ferry",
            "llm_model": "model-ferry",
            "private_information": "FERRY-SECRET",
        },
    },
}


class Stage:
    """Plays turns of a scenario; whatever nobody answers otherwise is answered plainly."""

    def __init__(self, answer: Callable[[Request], str | None] = lambda _: None, **changes: Any) -> None:
        self.scenario: Scenario = scenario_of({**PLAIN, **changes})
        self.requests: list[Request] = []
        self.events: list[Any] = []
        self._answer = answer
        self.models = ScenarioModels(self, self.events.append, seed=1)
        self.simulation = ScenarioSimulation(self.scenario, self.models, seed=1, now=lambda: "now")
        self.turns: list[ScenarioTurn] = []

    async def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        said = self._answer(request)
        if said is None:
            said = "UPDATED STATE: as before" if request.model == "narrator" else "ACTION: waits"
        usage = Usage(input_tokens=10, output_tokens=2)
        return Answer(text=said, call=ModelCall(model=request.model, usage=usage, cost_usd=0.01))

    async def play(self, turns: int = 1) -> ScenarioTurn:
        for _ in range(turns):
            self.turns.append(await self.simulation.turn(self.turns))
        return self.turns[-1]

    @property
    def run(self) -> ScenarioRun:
        """The run of the turns that were played."""
        turns = tuple(self.turns)
        return ScenarioRun(item_id="1", label="var-001-run-001", seed=1, total_turns=3, turns=turns)

    @property
    def files(self) -> dict[str, str]:
        """The files of that run."""
        return documents(self.scenario, self.run)

    def asked(self, model: str) -> list[str]:
        """Everything one model was sent, a text a request."""
        return ["\n".join(m["content"] for m in r.messages) for r in self.requests if r.model == model]


def prompt_of(request: Request) -> str:
    return str(request.messages[-1]["content"])
