"""Ask a judge one question, as often as there are votes, and make one verdict of the answers.

An answer that cannot be read is asked for once more. The tokens and the money of every call count,
whatever came of it.

Knows nothing of sessions or evaluators.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proctor.answers import Field, read_answer
from proctor.errors import ModelError
from proctor.evaluators.question import Question, fields_of, schema_of
from proctor.evaluators.scale import Rating, Scale
from proctor.model import Model, Request
from proctor.session import ModelCall

TRIES = 2
# Providers take seeds within 31 bits; these only have to differ.
FIRST_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A model, and how it is asked."""

    models: Model
    model: str
    parameters: Mapping[str, Any]
    votes: int = 1
    structured: bool = True

    @property
    def plain(self) -> list[Any]:
        """What a digest is made from."""
        return [self.model, dict(self.parameters), self.votes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the votes on one dimension came to."""

    label: str = ""
    value: float | None = None
    explanation: str = ""
    error: str = ""
    votes: tuple[float | str, ...] = ()
    """Each vote's value, or its label where labels are worth nothing. Empty for a single vote."""


@dataclass(slots=True)
class Bill:
    """What asking took."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None

    def add(self, call: ModelCall) -> None:
        self.input_tokens += call.usage.input_tokens
        self.output_tokens += call.usage.output_tokens
        if call.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + call.cost_usd


@dataclass(frozen=True, slots=True)
class Opinion:
    """One vote: a rating of each dimension, with its reasons; None where none could be read."""

    ratings: Mapping[str, Rating | None] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


async def verdicts(
    judge: Judge, question: Question, messages: Sequence[Mapping[str, str]], bill: Bill
) -> dict[str, Verdict]:
    """The verdict on each dimension of a question, by its name."""
    seeds = [None] if judge.votes == 1 else list(range(FIRST_SEED, FIRST_SEED + judge.votes))
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_vote(judge, question, messages, seed, bill)) for seed in seeds]
    except BaseExceptionGroup as failures:
        # The first says why; the others were stopped because of it.
        raise failures.exceptions[0] from failures
    opinions = [task.result() for task in tasks]
    return {each.name: _together(each.name, each.scale, opinions) for each in question.dimensions}


async def _vote(
    judge: Judge, question: Question, messages: Sequence[Mapping[str, str]], seed: int | None, bill: Bill
) -> Opinion:
    opinion = Opinion()
    for _ in range(TRIES):
        opinion = _read(question, await answered(judge, messages, schema_of(question), seed, bill))
        if None not in opinion.ratings.values():
            break
    return opinion


async def answered(
    judge: Judge,
    messages: Sequence[Mapping[str, str]],
    schema: Mapping[str, Any],
    seed: int | None,
    bill: Bill,
) -> str:
    """What a judge says, held to a schema where its provider can do that."""
    plain = Request(model=judge.model, messages=messages, parameters=judge.parameters, seed=seed)
    if not judge.structured:
        return await _asked(judge, plain, bill)
    form = {"name": "verdict", "strict": True, "schema": schema}
    shape = {"response_format": {"type": "json_schema", "json_schema": form}}
    held = Request(model=judge.model, messages=messages, parameters={**judge.parameters, **shape}, seed=seed)
    try:
        return await _asked(judge, held, bill)
    except ModelError as error:
        # Some servers refuse what they do not know; the form is in the words of the question too.
        if error.reason != "bad_request":
            raise
        return await _asked(judge, plain, bill)


async def _asked(judge: Judge, request: Request, bill: Bill) -> str:
    answer = await judge.models.answer(request)
    bill.add(answer.call)
    return answer.text


def _read(question: Question, text: str) -> Opinion:
    named = {each.name: fields_of(each) for each in question.dimensions}
    wanted = {field_name: Field(kind="text") for pair in named.values() for field_name in pair}
    said = read_answer(text, wanted).values
    return Opinion(
        {each.name: each.scale.read(said.get(named[each.name][1], "")) for each in question.dimensions},
        {name: said.get(reasoning, "") for name, (reasoning, _) in named.items()},
    )


def _together(name: str, scale: Scale, opinions: Sequence[Opinion]) -> Verdict:
    cast = [(rating, one.reasons[name]) for one in opinions if (rating := one.ratings.get(name))]
    # With fewer than half of the votes nobody knows what the others would have been.
    if len(cast) * 2 <= len(opinions):
        return Verdict(error="the judge gave no verdict that could be read")
    if len(opinions) == 1:
        ((rating, reasons),) = cast
        return Verdict(label=rating.label, value=rating.value, explanation=reasons)
    ratings = [rating for rating, _ in cast]
    values = [rating.value for rating in ratings if rating.value is not None]
    value = sum(values) / len(values) if scale.is_numerical else None
    label = _majority(scale, ratings, value)
    agreeing = sum(rating.label == label for rating in ratings)
    counted = f"{agreeing} of {len(opinions)} votes for {label} ({', '.join(each.label for each in ratings)})"
    reasons = next((said for rating, said in cast if rating.label == label), "")
    return Verdict(
        label=label,
        value=value,
        explanation=f"{counted}. {reasons}".strip(),
        votes=tuple(values) if scale.is_numerical else tuple(rating.label for rating in ratings),
    )


def _majority(scale: Scale, ratings: Sequence[Rating], mean: float | None) -> str:
    """The label most votes are for; of equals, the one nearest to the mean, or the first of the scale."""
    counts = Counter(rating.label for rating in ratings)
    most = max(counts.values())
    tied = [rating for rating in scale.ratings if counts[rating.label] == most]
    if mean is None:
        return tied[0].label
    return min(tied, key=lambda rating: abs((rating.value or 0.0) - mean)).label
