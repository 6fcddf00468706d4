"""The answer that a finished run opens with: what to use, why, and what is undecided."""

import re
from collections.abc import Iterator
from dataclasses import replace

from proctor.choice import FAIL, PASS, Choice, Option
from proctor.document import Sentence, Tone
from proctor.formatting import percent, plural, usd
from proctor.metric import find_metric
from proctor.stop_rule import StopState

LISTED = 3
"""Undecided levels that are named."""


def answer(choice: Choice) -> Sentence:
    """What to use, in one sentence; what is undecided in the note."""
    chosen, baseline = choice.option(choice.chosen), choice.option(choice.baseline)
    note = " ".join([*_against(choice), *_undecided(choice)])
    if choice.is_open:
        text = f"Undecided: no {choice.factor} is shown to be better or worse than {baseline.name}"
        return Sentence(text=f"{text} ({_rate(choice, baseline)}).", note=note, tone="open")
    if chosen is baseline:
        reason = _highest(choice) if choice.is_best else "no cheaper one is shown to be within the margin"
        text = f"Use {chosen.name}: {reason} ({_rate(choice, chosen)})."
        return Sentence(text=text, note=note, tone="good")
    best = ", the highest" if choice.is_best else ""
    cheaper = _cheaper(chosen, baseline)
    text = (
        f"Use {chosen.name}: its success rate ({percent(chosen.success)}) is within {_points(choice)} of "
        f"{baseline.name}{best} ({_rate(choice, baseline)}){cheaper}."
    )
    return Sentence(text=text, note=note, tone="good")


def stop_verdicts(state: StopState) -> list[Sentence]:
    """What a race or a check has decided: of a check, about each level."""
    tones: dict[str, Tone] = {"open": "open", "fail": "bad"}
    return [
        Sentence(
            # Other reasons begin with the name of a level.
            text=f"{re.sub('^use ', 'Use ', decision['reason'])}.",
            tone=tones.get(decision["outcome"], "good"),
        )
        for decision in state["decisions"]
    ]


def stop_verdict(state: StopState) -> Sentence:
    """All of them as one, with the worst tone."""
    verdicts = stop_verdicts(state)
    worst = min(verdicts, key=lambda verdict: ("bad", "open", "good").index(verdict.tone))
    return replace(worst, text=" ".join(verdict.text for verdict in verdicts))


def _highest(choice: Choice) -> str:
    equal = [option for option in choice.options if option.success == choice.option(choice.baseline).success]
    if len(equal) == 1:
        return "it has the highest success rate"
    return f"the cheapest of {len(equal)} with the highest success rate"


def _rate(choice: Choice, option: Option) -> str:
    return f"{percent(option.success)} of {plural(choice.tasks, choice.unit)}"


def _points(choice: Choice) -> str:
    return f"{choice.margin * 100:g} pp"


def _cheaper(option: Option, baseline: Option) -> str:
    if option.cost_usd is None or not baseline.cost_usd or option.cost_usd >= baseline.cost_usd:
        return ""
    return f", and an item costs {percent(1 - option.cost_usd / baseline.cost_usd)} less"


def _against(choice: Choice) -> Iterator[str]:
    """The differences that decided it."""
    worse = [option for option in choice.options if option.verdict == FAIL]
    within = [option for option in choice.options if option.verdict == PASS]
    if within:
        yield f"Within {_points(choice)} of {choice.baseline}: {_listed(within)}."
    if worse:
        yield f"Worse than {choice.baseline}: {_listed(worse)}."


def _undecided(choice: Choice) -> Iterator[str]:
    """What is undecided, and what deciding it would cost."""
    if not choice.undecided:
        return
    if choice.unfinished:
        yield f"{plural(choice.unfinished, 'item')} of the run have no result: nothing is decided."
        return
    yield f"Undecided whether within {_points(choice)}: {_listed(choice.undecided)}."
    if unsure := [option.name for option in choice.undecided if option.depends_on_errors]:
        yield f"Infrastructure errors decide it for {', '.join(unsure[:LISTED])}: retry those items."
    known = [option for option in choice.undecided if option.more_tasks is not None]
    if known:
        most = max(option.more_tasks or 0 for option in known)
        costs = [option.more_usd for option in known]
        cost = f", about {usd(sum(filter(None, costs)))}" if None not in costs and any(costs) else ""
        them = "that" if len(known) == 1 else "these"
        yield f"About {plural(most, f'more {choice.unit}')} would decide {them}{cost}, if rates are equal."
    elif choice.undecided[0].difference is None:
        yield f"{choice.undecided[0].reason[:1].upper()}{choice.undecided[0].reason[1:]}."


def _listed(options: list[Option]) -> str:
    say = find_metric("success").say_change
    words = [
        f"{option.name} ({say(option.difference)}"
        + (f", 95% CI {say(option.low)} to {say(option.high)})" if option.low is not None else ")")
        for option in options[:LISTED]
    ]
    rest = len(options) - LISTED
    return "; ".join(words) + (f"; {rest} more" if rest > 0 else "")
