"""Play a scenario with an answering machine, to count what a real run would ask.

Everyone gives an answer of ordinary length; nobody opens a talk unless told to, so that the smallest and
the largest number of calls can both be had. Nothing is asked of any model.

Knows nothing of prices.
"""

from dataclasses import dataclass

from proctor.model import Answer, Request
from proctor.scenario.definition import Scenario
from proctor.scenario.remembering import CHARACTERS_PER_TOKEN
from proctor.scenario.simulation import Simulation
from proctor.scenario.state import Call, Turn
from proctor.scenario.voices import Voices
from proctor.session import ModelCall, Usage

# What models were seen to write under these headings: some 150 words a decision, 250 a state of the world.
DECISION_WORDS, WORLD_WORDS = 150, 250


async def rehearse(scenario: Scenario, *, talkative: bool) -> list[Call]:
    """The calls of one run in which everyone talks whenever they may, or nobody does."""
    machine = _Machine(scenario, talkative)
    voices = Voices(machine, lambda _: None, seed=0, at_once=1)
    simulation = Simulation(scenario, voices, seed=0, now=lambda: "")
    turns: list[Turn] = []
    for _ in range(scenario.turns):
        turns.append(await simulation.turn(turns))
    return [call for turn in turns for call in turn.calls]


@dataclass(frozen=True, slots=True)
class _Machine:
    """Answers anything at ordinary length."""

    scenario: Scenario
    talkative: bool

    async def answer(self, request: Request) -> Answer:
        text = self._text(str(request.messages[-1]["content"]))
        asked = sum(len(str(message["content"])) for message in request.messages)
        usage = Usage(
            input_tokens=asked // CHARACTERS_PER_TOKEN + 1,
            output_tokens=len(text) // CHARACTERS_PER_TOKEN + 1,
        )
        return Answer(text=text, call=ModelCall(model=request.model, usage=usage))

    def _text(self, prompt: str) -> str:
        yes = "yes" if self.talkative else "no"
        if "INITIATE_BILATERAL:" in prompt:
            target = prompt.rpartition("Whom you can reach: ")[2].split(".")[0].split(",")[0]
            return f"INITIATE_BILATERAL: {yes}\nTARGET_ACTOR: {target}\nPROPOSED_MESSAGE: {_words(40)}"
        if "PROPOSE_COALITION:" in prompt:
            members = prompt.rpartition("Whom you can ask: ")[2].split(".")[0]
            return f"PROPOSE_COALITION: {yes}\nCOALITION_MEMBERS: {members}\nCOALITION_PURPOSE: {_words(20)}"
        if "UPDATED STATE:" in prompt:
            return (
                f"UPDATED STATE: {_words(WORLD_WORDS)}\nKEY CHANGES: {_words(30)}\nCONSEQUENCES: {_words(30)}"
            )
        if "VERDICT:" in prompt:
            return "VERDICT: pass\nISSUES:"
        if "DECISION: accept" in prompt:
            return f"DECISION: accept\nREASONING: {_words(30)}"
        if "Answer with the value alone" in prompt:
            return "5"
        return f"REASONING: {_words(60)}\nACTION: {_words(DECISION_WORDS - 60)}"


def _words(number: int) -> str:
    return " ".join(["ordinary"] * number)
