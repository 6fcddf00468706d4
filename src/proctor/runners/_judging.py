"""Apply evaluators at the end of an attempt, so that their cost is part of it.

The last part grades the assertions of a prompt: time, cost, and the verdicts of a judge on rubrics.
"""

import json
import re
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from proctor.errors import AttemptError, CostLimit, EvaluatorError, ModelError, UsageError, blame
from proctor.evaluator import Evaluator, Evidence, Trace
from proctor.evaluators.answer_parser import TEXT, AnswerField, field_of, instructions_for
from proctor.evaluators.criteria import CriterionEvaluator, ExpectationEvaluator, criterion_of
from proctor.evaluators.expect import (
    JAVASCRIPT,
    RUBRIC,
    AnswerFacts,
    CheckResult,
    base_type,
    graded_in,
    key_of,
)
from proctor.evaluators.judging import Judge, JudgeUsage, as_one_turn, ask_for_fields, fenced
from proctor.formatting import clipped
from proctor.json_values import JsonMap, as_map, as_number, as_text, parse_json, require_map, require_text
from proctor.model import Answer
from proctor.model_client import JUDGE_SECONDS, ModelClient
from proctor.processes import run
from proctor.runner import Services
from proctor.score import Score
from proctor.session import Message, ModelCall, ToolCall, Usage
from proctor.workspace import beneath
from proctor.workspace.folders import temporary_folder

if TYPE_CHECKING:
    from proctor.dialogue.participant import Utterance
    from proctor.dialogue.tools import DialogueWorld
    from proctor.scenario.definition import Scenario
    from proctor.scenario.state import ScenarioRun, ScenarioTurn


async def evaluate(
    settings: JsonMap, evidence: Evidence, services: Services, evaluator: Evaluator | None = None
) -> Sequence[Score]:
    """Apply one evaluator and record its scores; one that fails is a score with its error.

    `settings` have its `name`, and `judging`, the judge and its parameters, unless the `evaluator` is given.
    """
    name = str(settings["name"])
    about = Score(evaluator=name)
    try:
        with blame(EvaluatorError, name):
            evaluator = evaluator or services.evaluator(name, require_map(settings["judging"]))
            about = replace(about, evaluator_digest=evaluator.digest, level=evaluator.level)
            scores = await evaluator.judge(evidence)
    except CostLimit:
        raise
    except (EvaluatorError, ModelError) as error:
        scores = [replace(about, error=str(error))]
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


class Judges:
    """Scores one dialogue and sums up the usage."""

    def __init__(self, services: Services, seed: int) -> None:
        self.client = ModelClient(
            services.models,
            services.record,
            keep="bodies",
            call_limit=lambda: services.time_limit(JUDGE_SECONDS, "a call of the judge"),
        )
        self._services, self._seed = services, seed

    def judge(self, model: str, *, seed: int | None = None) -> Judge:
        """A judge whose usage is counted."""
        return recorded_judge(self.client, model, seed=seed)

    async def score(self, entry: JsonMap, evidence: Evidence) -> list[str]:
        """Record the scores of an evaluator; returns messages about those below the pass mark.

        `entry` has one of `evaluator`, found by name, `expectation`, a check of texts, and `criterion`, with
        the `model` that judges by it.
        """
        evaluator: Evaluator | None = None
        if "expectation" in entry:
            settings = require_map(entry["expectation"])
            evaluator = ExpectationEvaluator(settings)
        elif "criterion" in entry:
            settings = require_map(entry["criterion"])
            judge = self.judge(require_text(entry["model"]), seed=self._seed)
            evaluator = CriterionEvaluator(criterion=criterion_of(settings), judge_model=judge)
        else:
            settings = require_map(entry["evaluator"])
        scores = await evaluate(settings, evidence, self._services, evaluator)
        for score in () if evaluator else scores:
            self._count(score)
        return below(as_number(settings, "passes_at"), scores)

    def _count(self, score: Score) -> None:
        if score.input_tokens or score.output_tokens:
            usage = Usage(input_tokens=score.input_tokens, output_tokens=score.output_tokens)
            self.client.count(ModelCall(model="", usage=usage, cost_usd=score.cost_usd))


def recorded_judge(client: ModelClient, model: str, *, seed: int | None = None) -> Judge:
    """A judge of an attempt."""
    return Judge(models=client, model=model, parameters={"temperature": 0.0}, structured=False, seed=seed)


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

    names = {under_test: "Agent"}
    pieces = {
        "goal": goal,
        "policy": policy or "(none)",
        "conversation": "\n".join(
            f"{names.get(side, 'User')}: {as_one_turn(text, ('Agent', 'User'))}" for side, text in lines
        ),
        "calls": "\n".join(
            f"{names.get(call.side, 'User')}: {call_text(call.tool, call.arguments)} → {call.result[:500]}"
            for call in world.actions
        )
        or "(none)",
        "failures": "\n".join(failures),
    }
    question = _ATTRIBUTION.format(**{name: fenced(name, text) for name, text in pieces.items()})
    fields = {"reason": field_of("text"), "cause": field_of(list(CAUSES))}
    messages = [{"role": "user", "content": f"{question}\n\n{instructions_for(fields)}"}]
    try:
        values = await ask_for_fields(judges.judge(model), messages, fields, ["cause"], JudgeUsage())
    except ModelError:
        return "", ""
    return as_text(values, "cause"), as_text(values, "reason")


def dialogue_evidence_of(
    history: "Sequence[Utterance]",
    under_test: str,
    profiles: JsonMap,
    services: Services,
    world: "DialogueWorld | None" = None,
) -> Evidence:
    """A dialogue as evidence: the side under test is the assistant."""
    messages = [
        Message(role="assistant" if turn.side == under_test else "user", content=turn.text, name=turn.side)
        for turn in history
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
            ToolCall(name=action.tool, args=action.arguments, success=action.success, result=action.result)
            for action in (world.actions if world else ())
            if action.side == under_test
        ],
        attributes={"profiles": dict(profiles)},
    )


async def judge_scenario(
    evaluators: Sequence[JsonMap], scenario: "Scenario", run: "ScenarioRun", services: Services
) -> list[str]:
    """Record the scores of a finished run; returns messages about those below the pass mark."""
    evidence = scenario_evidence_of(scenario, run, services.session_id)
    failures = list[str]()
    for settings in evaluators:
        failures += below(as_number(settings["passes_at"]), await evaluate(settings, evidence, services))
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


_RUBRIC = """You judge an answer by a rubric.

<answer>
{answer}
</answer>

<rubric>
{rubric}
</rubric>

Answer with JSON only: {{"reason": "why", "score": 0.0 to 1.0, "pass": true or false}}"""
_RUBRIC_FIELDS = {
    "reason": TEXT,
    "score": AnswerField(kind="number", low=0.0, high=1.0),
    "pass": AnswerField(kind="truth"),
}


async def facts_of(
    group: JsonMap, answer: Answer | str, services: Services, sandbox: object = None
) -> AnswerFacts:
    """Facts about an answer of a model, or the text of an agent's, for a group of assertions.

    Calls the judge for each rubric and runs scripts; `sandbox` is the item's setting.
    """
    client, graded = ModelClient(services.models, services.record, keep="bodies"), {}
    text = answer if isinstance(answer, str) else answer.text
    for assertion in graded_in(group):
        if base_type(assertion) != RUBRIC:
            graded[key_of(assertion)] = await check_javascript(assertion, text, services, sandbox)
        elif as_text(assertion, "judge"):
            graded[key_of(assertion)] = await _judge(assertion, text, client)
    if isinstance(answer, str):
        return AnswerFacts(graded=graded)
    return AnswerFacts(
        latency_ms=answer.call.latency_ms,
        cost_usd=answer.call.cost_usd,
        finish_reason=answer.finish_reason,
        graded=graded,
    )


async def _judge(rubric: JsonMap, answer: str, client: ModelClient) -> CheckResult:
    text, threshold = as_text(rubric, "value"), as_number(rubric, "threshold")
    # An answer must not close the marks around it.
    prompt = _RUBRIC.format(answer=_CLOSING.sub("[", answer), rubric=text)
    values = await ask_for_fields(
        recorded_judge(client, as_text(rubric, "judge")),
        [{"role": "user", "content": prompt}],
        _RUBRIC_FIELDS,
        ("score", "pass"),
        JudgeUsage(),
    )
    if not values:
        return CheckResult(RUBRIC, False, 0.0, f"{RUBRIC}: the judge gave no verdict that could be read")
    passed = values.get("pass", True)
    score = values.get("score", float(passed))
    if threshold is not None:
        passed = passed and score >= threshold
    return CheckResult(RUBRIC, passed, score, f"{RUBRIC} {text[:80]}: {values.get('reason', '')[:300]}")


_CLOSING = re.compile(r"[<\uff1c\ufe64\u2039](?=[\s/]*(?:answer|rubric)\b)", re.IGNORECASE)


# Assertions written in JavaScript, run by Node in the sandbox: they are code of others.


TIME_LIMIT_SECONDS = 30.0
_PROGRAM = """\
const fs = require("fs");
const { output, context, code } = JSON.parse(fs.readFileSync("input.json", "utf8"));
const isBody = code.trim().includes("\\n") || /^\\s*(return|const|let|var|if|for|throw)\\b/.test(code);
const AsyncFunction = Object.getPrototypeOf(async function () {}).constructor;
const end = (result) => fs.writeFileSync("result.json", JSON.stringify(result));
(async () => {
  const check = new AsyncFunction("output", "context", "require", isBody ? code : `return (${code});`);
  end({ value: await check(output, context, require) });
})().catch((error) => end({ error: String(error) }));
"""
"""One line is an expression, several lines are the body of a function, as in promptfoo."""


async def check_javascript(
    assertion: JsonMap, output: str, services: Services, sandbox: object = None
) -> CheckResult:
    """The result of one assertion; not checked where Node or a sandbox is missing."""
    if shutil.which("node", path=services.environment.get("PATH")) is None:
        return _result(None, 0.0, "javascript: Node is not installed")
    try:
        if services.sandbox.kind_of(sandbox) == "none":
            return _result(None, 0.0, "javascript: scripts run only in a sandbox")
    except UsageError as error:
        return _result(None, 0.0, f"javascript: {error.problem}")
    code, name = as_text(assertion, "value"), f"script-{uuid.uuid4().hex}"
    async with temporary_folder(services.home, name) as place:
        for folder in ("work", "home"):
            (place / folder).mkdir(parents=True)
        document = {"output": output, "context": as_map(assertion, "context"), "code": code}
        (place / "work" / "input.json").write_text(json.dumps(document), encoding="utf-8")
        (place / "work" / "assert.cjs").write_text(_PROGRAM, encoding="utf-8")
        try:
            finished = await run(
                "node assert.cjs",
                folder=place / "work",
                environment={**services.environment, "HOME": str(place / "home")},
                attempt=name,
                time_limit=TIME_LIMIT_SECONDS,
                confinement=services.sandbox.confine(
                    "check", sandbox, folders=[place], home=place / "home", named=["node"]
                ),
            )
        except AttemptError as error:
            return _result(None, 0.0, f"javascript: {error}")
        result = beneath.read_text(place, "work/result.json", 1 << 20)
    if not result:
        why = "took too long" if finished.timed_out else clipped(finished.output.strip(), 300) or "no result"
        return _result(False, 0.0, f"javascript: {why}")
    return _read(assertion, as_map(parse_json(result)), clipped(code, 80))


def _result(passed: bool | None, score: float, explanation: str) -> CheckResult:
    return CheckResult(JAVASCRIPT, passed, score, explanation)


def _read(assertion: JsonMap, result: JsonMap, about: str) -> CheckResult:
    """The result of a script: true or false, a number, or an object."""
    if error := as_text(result, "error"):
        return _result(False, 0.0, f"javascript {about}: {error}")
    value, threshold = result.get("value"), as_number(assertion, "threshold")
    if isinstance(value, bool):
        return _result(value, float(value), f"javascript {about}")
    if isinstance(value, int | float):
        passed = value > 0 if threshold is None else value >= threshold
        return _result(passed, float(value), f"javascript {about}")
    fields = as_map(value) if isinstance(value, dict) else {}
    if isinstance(fields.get("pass"), bool):
        passed, score = fields["pass"] is True, as_number(fields, "score")
        reason = clipped(as_text(fields, "reason"), 300) or about
        return _result(passed, float(passed) if score is None else score, f"javascript: {reason}")
    return _result(False, 0.0, f"javascript {about}: it returns neither true, false, nor a number")
