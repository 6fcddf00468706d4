"""Pairwise evaluations: which sessions are compared, and the ranking by who won."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from proctor.document import Column, Section, Sentence, numeric, table
from proctor.errors import UsageError
from proctor.evaluators.pairwise import FIRST, FIRST_PLACE, PAIRWISE, SECOND, SECOND_PLACE
from proctor.formatting import UNKNOWN, plural
from proctor.item import digest_of
from proctor.jobs.evaluation.request import Pairing
from proctor.json_values import CamelJson
from proctor.stats.intervals import Strength
from proctor.store import StoreReader
from proctor.store.scores import compared_pairs
from proctor.store.session_search import first_prompts
from proctor.store.session_selection import SessionHead, session_heads

COMPARED, WITH, TASK = "first", "second", "task"
"""Factors of the item of a pair: the names that are compared, and the task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A session that can be compared."""

    session: str
    """Its id in the store."""
    name: str
    """What is compared: a run, a model, …."""
    task: str
    conditions: str = ""
    """What else was varied, and the repeat. Empty: unknown, as for received sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPair:
    """Two sessions of one task."""

    first: Side
    second: Side


PAGE = 500
SCENARIO_NAMES = ("testScenarioId", "test_scenario_id", "test.scenario.id", "scenario.id")
"""Attributes in which an imported session may name its scenario."""
LONGEST_PROMPT, LONGEST_TASK = 20_000, 200
"""Characters of a prompt that tell tasks apart, and of the name of a task."""


def scenario_of(head: SessionHead) -> str:
    """The scenario that an imported session names; empty: none."""
    attributes = json.loads(head["attributesJson"] or "{}")
    return next((str(attributes[name]) for name in SCENARIO_NAMES if attributes.get(name)), "")


def find_pairs(read: StoreReader, sessions: Sequence[str], pairing: Pairing) -> list[SessionPair]:
    """The pairs of sessions of one task with different names that differ in nothing else.

    Where nothing else is known, the newest session of a name is compared with the newest of the other, and so
    on. The only sessions of both names are compared whatever else differs. Raises `UsageError` without pairs.
    """
    by = pairing.by
    tasks: dict[str, dict[str, dict[str, Side]]] = defaultdict(lambda: defaultdict(dict))
    for side in _sides(read, sessions, pairing):
        own = tasks[side.task][side.name]
        own[side.conditions or f"#{len(own)}"] = side
    pairs = [
        SessionPair(first=first, second=second)
        for names in tasks.values()
        for one, other in combinations(sorted(names), 2)
        for first, second in _alike(names[one], names[other])
    ]
    if not pairs:
        what = "runs" if by == "run" else f"levels of `{by}`"
        raise UsageError(
            f"no task has sessions of two {what}\nChoose sessions of the same tasks, or set `by` or `task`."
        )
    return pairs


def _sides(read: StoreReader, sessions: Sequence[str], pairing: Pairing) -> Iterator[Side]:
    """The sessions that have a name and a task."""
    for start in range(0, len(sessions), PAGE):
        ids = sessions[start : start + PAGE]
        heads = session_heads(read, ids)
        received = [session for session, head in heads.items() if head["runId"] is None]
        prompts = first_prompts(read, received, characters=LONGEST_PROMPT)
        for session in filter(heads.__contains__, ids):
            side = _side(heads[session], pairing, prompts.get(session, ""))
            if side.name and side.task:
                yield side


def _side(head: SessionHead, pairing: Pairing, first_prompt: str) -> Side:
    factors: dict[str, str] = json.loads(head["factors"] or "{}")
    attributes = json.loads(head["attributesJson"] or "{}")
    known = {name: str(value) for name, value in attributes.items() if isinstance(value, str | int | float)}
    known |= {
        "run": head["runId"] or "",
        "model": head["answeredModel"] or head["model"],
        "agent": head["agent"],
        "service": head["service"],
        "version": head["agentVersion"],
        "prompt": head["promptName"],
    }
    known |= factors
    task = known.get(pairing.task, "")
    if not pairing.task:
        task = factors.get("scenario") or scenario_of(head) or factors.get("task") or ""
        task = task or head["prompt"] or first_prompt
    varied = {"run": known["run"], "model": known["model"], "agent": known["agent"], **factors}
    conditions = json.dumps([{**varied, pairing.by: ""}, head["repeat"]], sort_keys=True)
    return Side(
        session=head["id"],
        name=known.get(pairing.by, ""),
        # Long texts that begin alike are different tasks.
        task=task if len(task) <= LONGEST_TASK else f"{task[:LONGEST_TASK]}… {digest_of(task)[:8]}",
        conditions=conditions if head["runId"] else "",
    )


def _alike(first: Mapping[str, Side], second: Mapping[str, Side]) -> list[tuple[Side, Side]]:
    if len(first) == len(second) == 1:
        return list(zip(first.values(), second.values(), strict=True))
    return [(first[rest], second[rest]) for rest in first if rest in second]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseResult(CamelJson):
    """Who won against whom, and how often the place decided."""

    names: Sequence[str]
    tasks: int
    pairs: int
    """Pairs of sessions that were judged."""
    decided: int
    """Pairs with the same winner in both orders."""
    first_place: int
    """Pairs in which the session shown first was preferred in both orders."""
    second_place: int
    failed: int
    """Pairs that could not be judged."""
    ranking: Sequence[Strength]
    """Empty: not every name was compared with the others."""


def pairwise_result(read: StoreReader, run_id: str) -> PairwiseResult | None:
    """The ranking of a pairwise evaluation so far; None: no pair was judged."""
    rows = compared_pairs(read, run_id, PAIRWISE)
    if not rows:
        return None
    # Late: it loads numpy.
    from proctor.stats.ranking import bradley_terry

    labels = Counter(row["label"] for row in rows if not row["error"])
    names, games = set[str](), []
    for row in rows:
        factors = json.loads(row["factors"])
        names |= {factors[COMPARED], factors[WITH]}
        if not row["error"]:
            score = {FIRST: 1.0, SECOND: 0.0}.get(row["label"], 0.5)
            games.append((factors[TASK], factors[COMPARED], factors[WITH], score))
    try:
        ranking = bradley_terry(games)
    except ValueError:
        ranking = []
    return PairwiseResult(
        names=sorted(names),
        tasks=len({task for task, *_ in games}),
        pairs=len(games),
        decided=labels[FIRST] + labels[SECOND],
        first_place=labels[FIRST_PLACE],
        second_place=labels[SECOND_PLACE],
        failed=len(rows) - len(games),
        ranking=ranking,
    )


def pairwise_sections(result: PairwiseResult | None) -> Iterator[Section]:
    """The ranking, and how often the place decided."""
    if result is None:
        return
    rows = [
        (
            each.name,
            _ranks(each),
            _signed(each.strength),
            UNKNOWN if each.low is None else f"{_signed(each.low)} to {_signed(each.high)}",
            each.wins,
            each.ties,
            each.losses,
        )
        for each in result.ranking
    ]
    yield Sentence(
        text=f"{plural(result.pairs, 'pair')} on {plural(result.tasks, 'task')}, each judged in both orders: "
        f"{result.decided:,} with the same winner in both; the others are ties. "
        f"The place decided {result.first_place + result.second_place:,} "
        f"(first {result.first_place:,}, second {result.second_place:,})."
    )
    columns: list[Column | str] = ["Name", *numeric("Rank", "Strength", "95% CI", "Wins", "Ties", "Losses")]
    if rows:
        yield table(
            columns,
            rows,
            "Ranking",
            "Strength: log-odds of winning against an average one (Bradley-Terry; a tie is half a win). "
            "CIs are clustered by task; ranks hold together at 95%.",
        )
    elif result.pairs:
        yield Sentence(text="No ranking: not every name was compared with the others.")


def _signed(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:+.2f}".replace("-", "−")


def _ranks(each: Strength) -> str:
    if each.rank_low == each.rank_high:
        return str(each.rank)
    return f"{each.rank} ({each.rank_low} to {each.rank_high})"
