"""What the model calls of an imported session cost, where their record does not say.

The list price of the day of the call, from the table that is installed; `priceSource` names it. A call of a
model that the table does not know stays unpriced, and a cost that the record tells is never touched.

Knows nothing of records, spans or stores.
"""

from dataclasses import replace
from datetime import UTC, datetime

from proctor.imported import Happening, ImportedSession, ImportedStep
from proctor.models.prices import listed_price
from proctor.session import ModelCall


def priced(session: ImportedSession, now: datetime) -> ImportedSession:
    """The same session with the list price of every call that has tokens, a known model and no cost yet."""
    if not any(_is_open(told) for step in session.steps for told in step.happenings):
        return session
    at = session.started_at or now
    return replace(session, steps=[_step(step, at) for step in session.steps])


def _step(step: ImportedStep, at: datetime) -> ImportedStep:
    told = [_priced(each, each.at or step.started_at or at) for each in step.happenings]
    return replace(step, happenings=told)


def _is_open(told: Happening) -> bool:
    call = told.event
    if not isinstance(call, ModelCall) or call.cost_usd is not None or call.price_source:
        return False
    return bool(call.model and call.usage.total_tokens)


def _priced(told: Happening, at: datetime) -> Happening:
    call = told.event
    if not isinstance(call, ModelCall) or not _is_open(told):
        return told
    # Lists change by the day; asked by the second, no price would be found in memory twice.
    day = datetime(at.year, at.month, at.day, tzinfo=UTC)
    price = listed_price(call.provider, call.model, at=day)
    if price is None:
        return told
    cost, rates = price.for_call(call.usage)
    return replace(told, event=replace(call, cost_usd=cost, price_source=price.source, price=rates))
