"""Apply evaluators at the end of an attempt, so that their cost is part of it.

The last part grades the assertions of a prompt: time, cost, and the verdicts of a judge on rubrics.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from proctor.errors import CostLimit, EvaluatorError, ModelError, blame
from proctor.evaluator import Evidence, Trace
from proctor.evaluators.expect import AnswerFacts, AssertionResult, check_answer, key_of, rubrics_in
from proctor.evaluators.judging import Criterion, Judge, TranscriptLine, as_one_turn, fenced, score_criterion
from proctor.item import digest_of
from proctor.json_values import JsonMap, as_map, as_number, as_text, parse_json, require_map, require_text
from proctor.model import Answer, Request
from proctor.model_client import ModelClient
from proctor.runner import Services
from proctor.score import Score
from proctor.session import Message, ModelCall, ToolCall, Usage

if TYPE_CHECKING:
    from proctor.dialogue.participant import Utterance
    from proctor.dialogue.tools import DialogueWorld
    from proctor.scenario.definition import Scenario
    from proctor.scenario.state import ScenarioRun, ScenarioTurn


async def evaluate(settings: JsonMap, evidence: Evidence, services: Services) -> Sequence[Score]:
    """Apply one evaluator (`name`, `judging`: its judge and parameters) and record its scores."""
    name = str(settings["name"])
    try:
        with blame(EvaluatorError, name):
            evaluator = services.evaluator(name, require_map(settings["judging"]))
            scores = await evaluator.judge(evidence)
    except CostLimit:
        raise
    except (EvaluatorError, ModelError) as error:
        scores = [Score(evaluator=name, error=str(error))]
    for score in scores:
        services.score(score)
    return scores


def below(mark: float | None, scores: Sequence[Score]) -> list[str]:
    """A message for each score below the pass mark. None: no mark."""
    if mark is None:
        return []
    return [
        f"{score.evaluator}{f' of {score.target}' if score.target else ''} is {score.value:g}, "
        f"below its pass mark {mark:g}"
        for score in scores
        if score.value is not None and score.value < mark
    ]


PARAMETERS = {"temperature": 0.0}


class Judges:
    """Scores one dialogue and sums up the usage."""

    def __init__(self, services: Services, seed: int) -> None:
        self.client = ModelClient(services.models, services.record, keep="bodies")
        self._services, self._seed = services, seed
        self._record_score = services.score

    async def judge(
        self, criterion: Criterion, model: str, lines: Sequence[tuple[str, str]], profile: JsonMap
    ) -> list[str]:
        """Record the scores of a criterion; returns messages about those below the pass mark."""
        judge = Judge(models=self.client, model=model, parameters=PARAMETERS, structured=False)
        profile_text = json.dumps(dict(profile), ensure_ascii=False, indent=1)
        transcript = [TranscriptLine(speaker=speaker, text=text) for speaker, text in lines]
        try:
            scores = await score_criterion(
                criterion, transcript, judge, seed=self._seed, profile=profile_text
            )
        except (EvaluatorError, ModelError) as error:
            # A failed judge does not fail the dialogue.
            scores = [Score(evaluator=criterion.name, evaluator_digest=criterion.digest, error=str(error))]
        for score in scores:
            self._record_score(score)
        return below(criterion.passes_at, scores)

    async def ask(self, settings: JsonMap, evidence: Evidence) -> list[str]:
        """Record the scores of an evaluator; returns messages about those below the pass mark."""
        scores = await evaluate(settings, evidence, self._services)
        for score in scores:
            self._count_score(score)
        return below(as_number(settings["passes_at"]), scores)

    def _count_score(self, score: Score) -> None:
        if score.input_tokens or score.output_tokens:
            usage = Usage(input_tokens=score.input_tokens, output_tokens=score.output_tokens)
            self.client.count(ModelCall(model="", usage=usage, cost_usd=score.cost_usd))

    def check(self, expectation: JsonMap, lines: Sequence[tuple[str, str]]) -> list[str]:
        """Check the texts of one side without a model; returns messages about scores below the pass mark."""
        target = expectation["target"]
        texts = [text for speaker, text in lines if speaker == target]
        parts = {"": "\n".join(texts)}
        if expectation["level"] == "turn":
            parts = {f"{target}.turn_{number}": text for number, text in enumerate(texts)}
        scores = [_checked(expectation, text, where) for where, text in parts.items()]
        for score in scores:
            self._record_score(score)
        return below(as_number(expectation["passes_at"]), scores)


CAUSES = ("agent", "user", "world")
_ATTRIBUTION = """An agent and a simulated user had a conversation about a task, and the task failed.

The goal of the user:
{goal}

The policy of the agent:
{policy}

The conversation:
{conversation}

Calls of tools, with their results:
{calls}

The checks that failed:
{failures}

Who caused the failure?
- agent: it broke the policy, made a wrong call or gave a wrong answer although the user did as they should.
- user: they left out, invented or changed part of their goal, or gave up too early.
- world: a tool returned something wrong, or the task cannot be done."""


async def attribute_failure(
    judges: Judges,
    model: str,
    *,
    goal: str,
    policy: str,
    lines: Sequence[tuple[str, str]],
    world: "DialogueWorld",
    under_test: str,
    failures: Sequence[str],
) -> tuple[str, str]:
    """A judge's verdict on who caused the failure of a task, one of `CAUSES`, and why; empty: unreadable."""
    from proctor.dialogue.task import call_text
    from proctor.evaluators.answer_parser import field_of, instructions_for, read_verdict

    names = {under_test: "Agent"}
    pieces = {
        "goal": goal,
        "policy": policy or "(none)",
        "conversation": "\n".join(
            f"{names.get(side, 'User')}: {as_one_turn(text, ('Agent', 'User'))}" for side, text in lines
        ),
        "calls": "\n".join(
            f"{names.get(each.side, 'User')}: {call_text(each.tool, each.arguments)} → {each.result[:500]}"
            for each in world.actions
        )
        or "(none)",
        "failures": "\n".join(failures),
    }
    question = _ATTRIBUTION.format(**{name: fenced(name, text) for name, text in pieces.items()})
    fields = {"reason": field_of("text"), "cause": field_of(list(CAUSES))}
    request = Request(
        model=model,
        messages=[{"role": "user", "content": f"{question}\n\n{instructions_for(fields)}"}],
        parameters=PARAMETERS,
    )
    try:
        answer = await judges.client.ask(request)
    except ModelError:
        return "", ""
    values = read_verdict(answer.text, fields, ["cause"], question).values
    return str(values.get("cause", "")), str(values.get("reason", ""))


def dialogue_evidence_of(
    history: "Sequence[Utterance]",
    under_test: str,
    profiles: JsonMap,
    services: Services,
    world: "DialogueWorld | None" = None,
) -> Evidence:
    """A dialogue as evidence: the side under test is the assistant."""
    messages = [
        Message(role="assistant" if one.side == under_test else "user", content=one.text, name=one.side)
        for one in history
    ]
    traces, before = list[Trace](), list[Message]()
    for message in messages:
        before.append(message)
        if message.role == "assistant":
            prompts = [each.content for each in before if each.role == "user"]
            traces.append(
                Trace(
                    id=f"{under_test}.turn_{len(traces)}",
                    prompt=prompts[-1] if prompts else "",
                    answer=message.content,
                    messages=tuple(before),
                )
            )
            before = []
    return Evidence(
        session_id=services.session_id,
        messages=messages,
        traces=traces,
        tool_calls=[
            ToolCall(name=each.tool, args=each.arguments, success=each.success, result=each.result)
            for each in (world.actions if world else ())
            if each.side == under_test
        ],
        attributes={"profiles": dict(profiles)},
    )


def _checked(expectation: JsonMap, text: str, target: str) -> Score:
    checks = check_answer(require_map(expectation["expect"]), text)
    broken = [check.explanation for check in checks if not check.holds]
    return Score(
        evaluator=require_text(expectation["name"]),
        evaluator_digest=digest_of([expectation["expect"], expectation["level"], expectation["target"]])[:16],
        value=0.0 if broken else 1.0,
        label="fail" if broken else "pass",
        explanation="; ".join(broken or [check.explanation for check in checks]),
        level="trace" if target else "session",
        target=target,
    )


async def judge_scenario(
    evaluators: Sequence[JsonMap], scenario: "Scenario", run: "ScenarioRun", services: Services
) -> list[str]:
    """Record the scores of a finished run; returns messages about those below the pass mark."""
    evidence = scenario_evidence_of(scenario, run, services.session_id)
    failures = list[str]()
    for each in evaluators:
        failures += below(as_number(each["passes_at"]), await evaluate(each, evidence, services))
    return failures


def scenario_evidence_of(scenario: "Scenario", run: "ScenarioRun", session_id: str) -> Evidence:
    """A scenario run as evidence."""
    world, traces = scenario.initial_world_state, list[Trace]()
    for turn in run.turns:
        prompt = Message(role="user", content=world, name="the world")
        done = [
            *_decisions(scenario, turn),
            Message(role="assistant", content=turn.world_state, name="narrator"),
        ]
        answer = "\n\n".join(f"{message.name}: {message.content}" for message in done)
        traces.append(Trace(id=f"turn-{turn.number}", prompt=world, answer=answer, messages=(prompt, *done)))
        world = turn.world_state
    return Evidence(
        session_id=session_id,
        messages=[message for trace in traces for message in trace.messages],
        traces=traces,
        attributes={"scenario": scenario.name, "variation": run.variation, "metrics": run.final_metrics},
    )


def _decisions(scenario: "Scenario", turn: "ScenarioTurn") -> list[Message]:
    return [
        Message(role="assistant", content=decision.action, name=scenario.actors[short].name)
        for short, decision in turn.decisions.items()
    ]


PROMPT = """You judge an answer by a rubric.

<answer>
{answer}
</answer>

<rubric>
{rubric}
</rubric>

Answer with JSON only: {{"reason": "why", "score": 0.0 to 1.0, "pass": true or false}}"""


async def facts_of(group: JsonMap, answer: Answer, services: Services) -> AnswerFacts:
    """Facts about an answer for a group of assertions. Calls the judge for each rubric."""
    graded = {}
    for rubric in rubrics_in(group):
        graded[key_of(rubric)] = await _judge(rubric, answer.text, services)
    call = answer.call
    return AnswerFacts(
        latency_ms=call.latency_ms, cost_usd=call.cost_usd, finish_reason=answer.finish_reason, graded=graded
    )


async def _judge(rubric: JsonMap, answer: str, services: Services) -> AssertionResult:
    text = as_text(rubric, "value")
    request = Request(
        model=as_text(rubric, "judge"),
        messages=[{"role": "user", "content": PROMPT.format(answer=answer, rubric=text)}],
        parameters={"temperature": 0.0},
    )
    client = ModelClient(services.models, services.record, keep="bodies")
    reply = await client.ask(request, speaker="judge", purpose="llm-rubric")
    verdict = _object_in(reply.text)
    score, threshold = as_number(verdict, "score"), as_number(rubric, "threshold")
    if "pass" not in verdict and score is None:
        return AssertionResult(False, 0.0, f"llm-rubric: the judge gave no verdict: {reply.text[:100]!r}")
    passed = verdict.get("pass") is not False
    if score is None:
        score = float(passed)
    if threshold is not None:
        passed = passed and score >= threshold
    return AssertionResult(passed, score, f"llm-rubric {text[:80]}: {as_text(verdict, 'reason')[:300]}")


def _object_in(text: str) -> JsonMap:
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        return {}
    try:
        return as_map(parse_json(text[start : end + 1]))
    except ValueError:
        return {}
