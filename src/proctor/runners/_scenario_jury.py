"""Judge a run of a scenario as soon as its last turn is over, in the same attempt.

To evaluators a turn is an exchange: the state of the world is what was asked, and what the actors did and
what came of it is the answer.

Knows nothing of how the run came about.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proctor.evaluator import Evidence, Trace
from proctor.runner import Services
from proctor.runners._jury import below, judged_by
from proctor.scenario.definition import Scenario
from proctor.scenario.state import Call, Run, Turn, Value
from proctor.scenario.verdicts import verdicts_of
from proctor.score import Score
from proctor.session import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What those who were asked said of a run."""

    scores: Mapping[str, Value]
    calls: tuple[Call, ...]
    broken: Sequence[str]
    """Of scores below their pass mark, what to say of them."""


async def judge(
    wanted: Sequence[Mapping[str, Any]], scenario: Scenario, run: Run, services: Services
) -> Judged:
    """Ask each evaluator about a finished run; its scores are kept."""
    evidence = evidence_of(scenario, run, services.attempt)
    scores, calls, broken = dict[str, Value](), list[Call](), list[str]()
    for each in wanted:
        said = await judged_by(each, evidence, services)
        scores |= verdicts_of(said)
        calls += [_call(score, each["judging"]["judge"]) for score in said if score.input_tokens]
        broken += below(each["passes_at"], said)
    return Judged(scores=scores, calls=tuple(calls), broken=broken)


def evidence_of(scenario: Scenario, run: Run, session_id: str) -> Evidence:
    """A run as evaluators look at sessions."""
    world, traces = scenario.initial_world_state, list[Trace]()
    for turn in run.turns:
        asked = Message(role="user", content=world, name="the world")
        done = [
            *_decisions(scenario, turn),
            Message(role="assistant", content=turn.world_state, name="narrator"),
        ]
        answer = "\n\n".join(f"{message.name}: {message.content}" for message in done)
        traces.append(Trace(id=f"turn-{turn.number}", prompt=world, answer=answer, messages=(asked, *done)))
        world = turn.world_state
    return Evidence(
        session_id=session_id,
        messages=[message for trace in traces for message in trace.messages],
        traces=traces,
        attributes={"scenario": scenario.name, "variation": run.variation, "metrics": run.final_metrics},
    )


def _decisions(scenario: Scenario, turn: Turn) -> list[Message]:
    return [
        Message(role="assistant", content=decision.action, name=scenario.actors[short].name)
        for short, decision in turn.decisions.items()
    ]


def _call(score: Score, model: str) -> Call:
    return Call(
        who="evaluators",
        purpose=score.evaluator,
        model=model,
        turn=0,
        input_tokens=score.input_tokens,
        output_tokens=score.output_tokens,
        cost_usd=score.cost_usd,
    )
