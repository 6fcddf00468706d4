"""Judge a dialogue as soon as it has ended, in the same attempt, so that the verdicts' cost is its own.

Knows nothing of how the dialogue came about.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from proctor.dialogue.party import Utterance
from proctor.dialogue.seats import Asking
from proctor.errors import EvaluatorError, ModelError
from proctor.evaluator import Evidence, Trace
from proctor.expect import check_answer
from proctor.item import digest_of
from proctor.judging import Criterion, Line, Verdict, judge
from proctor.runner import Services
from proctor.runners._jury import below, judged_by
from proctor.score import Score
from proctor.session import Message, ModelCall, Usage

PARAMETERS = {"temperature": 0.0}


class Judges(Asking):
    """Those who judge one dialogue."""

    def __init__(self, services: Services, seed: int) -> None:
        super().__init__(services, seed)
        self._keep_score = services.score

    async def judge(
        self,
        criterion: Criterion,
        model: str,
        lines: Sequence[tuple[str, str]],
        profile: Mapping[str, Any],
    ) -> list[str]:
        """Keep the verdicts; what to say of those below the pass mark."""

        async def ask(messages: Sequence[Mapping[str, str]]) -> Verdict:
            answer = await self.put(model, messages, PARAMETERS, keep=True)
            return Verdict(text=answer.text, cost_usd=answer.call.cost_usd)

        shown = json.dumps(dict(profile), ensure_ascii=False, indent=1)
        spoken = [Line(speaker=speaker, text=text) for speaker, text in lines]
        try:
            scores = await judge(criterion, spoken, ask, profile=shown)
        except (EvaluatorError, ModelError) as error:
            # The dialogue is what it is, whether or not it could be judged.
            scores = [Score(evaluator=criterion.name, evaluator_digest=criterion.digest, error=str(error))]
        for score in scores:
            self._keep_score(score)
        return below(criterion.passes_at, scores)

    async def ask(self, wanted: Mapping[str, Any], evidence: Evidence) -> list[str]:
        """Keep what an evaluator of the product says; what to say of scores below the pass mark."""
        scores = await judged_by(wanted, evidence, self._services)
        for score in scores:
            self._count_score(score)
        return below(wanted["passes_at"], scores)

    def _count_score(self, score: Score) -> None:
        if score.input_tokens or score.output_tokens:
            usage = Usage(input_tokens=score.input_tokens, output_tokens=score.output_tokens)
            self._count(ModelCall(model="", usage=usage, cost_usd=score.cost_usd))

    def check(self, expectation: Mapping[str, Any], lines: Sequence[tuple[str, str]]) -> list[str]:
        """Keep whether what one side said holds what was expected; no model is asked."""
        target = expectation["target"]
        said = [text for speaker, text in lines if speaker == target]
        parts = {"": "\n".join(said)}
        if expectation["level"] == "turn":
            parts = {f"{target}.turn_{number}": text for number, text in enumerate(said)}
        scores = [_checked(expectation, text, where) for where, text in parts.items()]
        for score in scores:
            self._keep_score(score)
        return below(expectation["passes_at"], scores)


def evidence_of(
    history: Sequence[Utterance], under_test: str, profiles: Mapping[str, Any], services: Services
) -> Evidence:
    """A dialogue as evaluators look at sessions: whoever is under test is the assistant."""
    said = [
        Message(role="assistant" if one.side == under_test else "user", content=one.text, name=one.side)
        for one in history
    ]
    traces, before = list[Trace](), list[Message]()
    for message in said:
        before.append(message)
        if message.role == "assistant":
            asked = [each.content for each in before if each.role == "user"]
            traces.append(
                Trace(
                    id=f"{under_test}.turn_{len(traces)}",
                    prompt=asked[-1] if asked else "",
                    answer=message.content,
                    messages=tuple(before),
                )
            )
            before = []
    return Evidence(
        session_id=services.attempt, messages=said, traces=traces, attributes={"profiles": dict(profiles)}
    )


def _checked(expectation: Mapping[str, Any], text: str, target: str) -> Score:
    checks = check_answer(expectation["expect"], text)
    broken = [check.explanation for check in checks if not check.holds]
    return Score(
        evaluator=expectation["name"],
        evaluator_digest=digest_of([expectation["expect"], expectation["level"], expectation["target"]])[:16],
        value=0.0 if broken else 1.0,
        label="fail" if broken else "pass",
        explanation="; ".join(broken or [check.explanation for check in checks]),
        level="trace" if target else "session",
        target=target,
    )
