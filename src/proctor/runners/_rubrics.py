"""What assertions need besides the text of an answer: time, cost, and verdicts of a judge on rubrics."""

from proctor.assertions import AnswerFacts, AssertionResult, key_of, rubrics_in
from proctor.json_values import JsonMap, as_map, as_number, as_text, parse_json
from proctor.model import Answer, Request
from proctor.model_client import ModelClient
from proctor.runner import Services

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
