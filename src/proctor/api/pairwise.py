"""Compare the sessions of runs pair by pair: the same task, judged in both orders, ranked by who won."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from proctor.context import RunContext
from proctor.document import Column, Document, Fact, numeric, table
from proctor.errors import UsageError
from proctor.evaluators.judging import Judge
from proctor.evaluators.pairwise import FIRST, QUESTION, SECOND, Preference, pairwise_question, prefer
from proctor.formatting import plural, usd
from proctor.jobs.evaluation.prepare import judge_options
from proctor.json_values import CamelJson, JsonObject, camel_document
from proctor.models import is_mock
from proctor.stats.ranking import Strength, bradley_terry
from proctor.store import ItemFilter

PAGE = 500
CONCURRENT_PAIRS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPair:
    """Two sessions of one task."""

    task: str
    first: str
    second: str
    """Names that are compared."""
    first_session: str
    second_session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseResult(CamelJson):
    """Who won against whom, and how often the place decided."""

    judge: str
    question: str
    names: Sequence[str]
    tasks: int
    pairs: int
    """Pairs of sessions that were judged."""
    decided: int
    """Pairs with the same winner in both orders."""
    first_place: int
    """Pairs in which the session shown first was preferred in both orders."""
    second_place: int
    errors: Sequence[str]
    """Of pairs that could not be judged."""
    cost_usd: float | None
    ranking: Sequence[Strength]

    @property
    def document(self) -> JsonObject:
        """As `--json` prints it."""
        members: JsonObject = camel_document(self)
        return members


def find_pairs(ctx: RunContext, runs: Sequence[str], *, by: str = "") -> list[SessionPair]:
    """The pairs of sessions with the same task, repeat and other factors.

    Compared are the runs or, with `by`, the levels of a factor such as `model`. A task is the factor
    `scenario` or `task`, or else the prompt.
    """
    read = ctx.store.read
    # By task and repeat, then by name, then by what else was varied.
    sessions: dict[tuple[str, int], dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        run_id, offset = read.batch(run, ctx.now())["runId"], 0
        while rows := read.items(run_id, ItemFilter(), limit=PAGE, offset=offset):
            offset += len(rows)
            for row in rows:
                factors = json.loads(row["factors"] or "{}")
                known: Mapping[str, str] = {"model": row["model"], "agent": row["agent"], **factors}
                name = str(known.get(by) or "") if by else run_id
                task = str(factors.get("scenario") or factors.get("task") or row["prompt"])
                if name and row["sessionId"] and row["status"] in FINISHED:
                    rest = {**known, "run": "" if not by else run_id, by: ""}
                    sessions[task, row["repeat"]][name][json.dumps(rest, sort_keys=True)] = row["sessionId"]
    pairs = [
        SessionPair(task=task, first=one, second=other, first_session=first, second_session=second)
        for (task, _), own in sessions.items()
        for one, other in combinations(sorted(own), 2)
        for first, second in _alike(own[one], own[other])
    ]
    if not pairs:
        what = f"levels of `{by}`" if by else "runs"
        raise UsageError(f"no task has sessions of two {what}\nName runs of the same tasks, or another --by.")
    return pairs


FINISHED = ("success", "fail")


def _alike(first: Mapping[str, str], second: Mapping[str, str]) -> list[tuple[str, str]]:
    """The sessions of two names that differ in nothing else; the only ones of both, whatever else differs."""
    if len(first) == len(second) == 1:
        return list(zip(first.values(), second.values(), strict=True))
    return [(first[rest], second[rest]) for rest in first if rest in second]


def compare_pairwise(
    ctx: RunContext,
    pairs: Sequence[SessionPair],
    *,
    judge: str = "",
    question: str = QUESTION,
    dry_run: bool = False,
) -> PairwiseResult | None:
    """Judge pairs of sessions in both orders, and rank the names by who won. Stores nothing.

    None after a dry run, which only checks the judge and the question.
    """
    asked = pairwise_question(question)
    if asked is None:
        raise UsageError(
            "the question has a placeholder in braces\nWrite it without: the sessions are shown."
        )
    model = judge or str(ctx.settings.evaluation.get("judge", ""))
    if not model:
        raise UsageError("no judge was named\nGive --judge provider/model.")
    models = ctx.models(judge_options(Path.cwd(), {}))
    try:
        models.check(model)
        if dry_run:
            return None
        of = Judge(models=models, model=model, parameters={"temperature": 0.0})

        async def judged() -> list[Preference]:
            slots = asyncio.Semaphore(CONCURRENT_PAIRS)

            async def one(pair: SessionPair) -> Preference:
                async with slots:
                    first, second = map(ctx.store.read.evidence, (pair.first_session, pair.second_session))
                    return await prefer(of, asked, first, second)

            try:
                return await asyncio.gather(*map(one, pairs))
            finally:
                await models.close()

        preferences = asyncio.run(judged())
    finally:
        if models.recording:
            models.recording.close()
    known = [(pair, each) for pair, each in zip(pairs, preferences, strict=True) if not each.error]
    costs = [each.cost_usd for each in preferences if each.cost_usd is not None]
    try:
        ranking = bradley_terry((pair.task, pair.first, pair.second, each.score) for pair, each in known)
    except ValueError:
        # Some were never compared with the others: there is no common scale.
        ranking = []
    return PairwiseResult(
        judge=model,
        question=question,
        names=sorted({name for pair in pairs for name in (pair.first, pair.second)}),
        tasks=len({pair.task for pair, _ in known}),
        pairs=len(known),
        decided=sum(each.score != 0.5 for _, each in known),
        first_place=sum(each.by_place == FIRST for _, each in known),
        second_place=sum(each.by_place == SECOND for _, each in known),
        errors=[each.error for each in preferences if each.error],
        cost_usd=sum(costs) if costs else None,
        ranking=ranking,
    )


def pairwise_document(result: PairwiseResult) -> Document:
    """The ranking, and how often the place decided, as a document."""
    rows = [
        (
            each.name,
            _ranks(each),
            f"{each.strength:+.2f}",
            f"{each.low:+.2f} to {each.high:+.2f}" if each.low is not None and each.high is not None else "–",
            each.wins,
            each.ties,
            each.losses,
        )
        for each in result.ranking
    ]
    columns: list[Column | str] = ["Name", *numeric("Rank", "Strength", "95% CI", "Wins", "Ties", "Losses")]
    warnings = (
        [f"{plural(len(result.errors), 'pair')} could not be judged: {result.errors[0]}"]
        if result.errors
        else []
    )
    if is_mock(result.judge):
        warnings.append(f"{result.judge} is a mock model; its verdicts say nothing about real judges")
    if not result.ranking:
        warnings.append("No ranking: not every name was compared with the others.")
    return Document(
        title="Pairwise comparison",
        subtitle=f"{result.judge}: {result.question}",
        warnings=warnings,
        facts=[
            Fact(
                str(result.pairs), f"pairs of sessions on {plural(result.tasks, 'task')}, each in both orders"
            ),
            Fact(str(result.decided), "with the same winner in both orders; the others are ties"),
            Fact(str(result.first_place), "where the first place won in both orders (position bias)"),
            Fact(str(result.second_place), "where the second place won in both orders"),
            *([Fact(usd(result.cost_usd), "cost")] if result.cost_usd is not None else []),
        ],
        sections=[table(columns, rows, "Ranking")] if rows else [],
        method="Strength: log-odds of winning against an average one (Bradley-Terry; a tie is half a win). "
        "CIs are clustered by task; ranks hold together at 95%.",
    )


def _ranks(each: Strength) -> str:
    if each.rank_low == each.rank_high:
        return str(each.rank)
    return f"{each.rank} ({each.rank_low} to {each.rank_high})"
