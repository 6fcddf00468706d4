"""What `proctor doctor` finds out about a model: one small call, or why it failed and what to do."""

import difflib
from collections.abc import Mapping
from pathlib import Path

from proctor.cli.doctor_machine import Finding, Trial
from proctor.cli.house import Configuration
from proctor.cli.words import count, money, printable, seconds
from proctor.errors import ModelError, RateLimited
from proctor.model import Answer, Request
from proctor.models import Models, is_stand_in
from proctor.models.client import Client, Patience
from proctor.models.discovery import discover
from proctor.models.providers import PROVIDERS, Endpoint, base_variable

GREETING = "Reply with the single word OK."
MOST_TOKENS = 16
MOST_SHOWN = 300
"""Characters of its answer."""
# A person waits for this; what a provider does not answer by then is what there is to tell.
PATIENCE = Patience(total_seconds=60, connect_seconds=10, silence_seconds=60, tries=1)


async def try_model(name: str, config: Configuration) -> Trial:
    """Make one small call; what it came to, or why it failed. The name is known to mean a model."""
    client = Client(PATIENCE)
    models = Models(config.environment, folders=[Path.cwd()], prices=config.prices, client=client)
    try:
        answer = await models.answer(_greeting(name))
    except ModelError as error:
        said, remedy = _why(error, models.route(name).endpoint)
        if error.reason == "bad_request":
            remedy = await _near_misses(name, config.environment) or remedy
        document = {"name": name, "answered": False, "reason": error.reason, "error": str(error)}
        finding = Finding(name=f"model {name}", well=False, said=said, remedy=remedy)
        return Trial(finding, document | {"remedy": remedy})
    finally:
        await models.close()
    return _answered(name, answer)


def _greeting(name: str) -> Request:
    asked = [{"role": "user", "content": GREETING}]
    return Request(model=name, messages=asked, parameters={"max_tokens": MOST_TOKENS})


def _answered(name: str, answer: Answer) -> Trial:
    call, usage = answer.call, answer.call.usage
    took = seconds((call.latency_ms or 0.0) / 1000)
    tokens = f"{count(usage.input_tokens, 'token')} in, {usage.output_tokens:,} out"
    price = "price unknown" if call.cost_usd is None else money(call.cost_usd)
    who = "a stand-in, " if is_stand_in(name) else ""
    said = f"{who}answered in {took}, {tokens}, {price}: {printable(answer.text.strip(), width=60)}"
    document = {
        "name": name,
        "answered": True,
        "standIn": is_stand_in(name),
        "text": answer.text[:MOST_SHOWN],
        "latencyMs": call.latency_ms,
        "promptTokens": usage.input_tokens,
        "completionTokens": usage.output_tokens,
        "costUsd": call.cost_usd,
        "priceSource": call.price_source,
    }
    return Trial(Finding(name=f"model {name}", well=True, said=said), document)


def _why(error: ModelError, endpoint: Endpoint | None) -> tuple[str, str]:
    """A failure in words, and what to do about it."""
    variable = endpoint.key_variable if endpoint else ""
    if error.reason == "auth" and endpoint and endpoint.missing_key:
        return f"needs a key, and {variable} is not set", f"Set it: export {variable}=…"
    if error.reason == "auth" and variable:
        return f"the key in {variable} is refused: {error}", f"Set {variable} to a key that is good here."
    if isinstance(error, RateLimited):
        wait = error.retry_after_seconds
        until = "" if wait is None else f" It wants {seconds(wait)} of rest."
        return f"is limited just now: {error}", f"Nothing is broken: a batch would wait.{until}"
    if error.reason == "quota":
        return f"the account has nothing left: {error}", "Add credit with the provider, or use another key."
    # A timeout is an `OSError` too.
    if isinstance(error.__cause__, TimeoutError):
        return f"gave no answer in time: {error}", _address(endpoint)
    if isinstance(error.__cause__, OSError) and endpoint:
        return f"nobody listens at {endpoint.base_url}: {error}", _address(endpoint)
    return str(error), _address(endpoint)


def _address(endpoint: Endpoint | None) -> str:
    if endpoint is None:
        return ""
    known = PROVIDERS.get(endpoint.provider)
    variables = known.base_variables if known else (base_variable(endpoint.provider),)
    return f"It was asked at {endpoint.base_url}; {' or '.join(variables)} names another address."


async def _near_misses(name: str, environment: Mapping[str, str]) -> str:
    """The nearest names that someone here really has; empty when there are none, or the name is right."""
    known = [model.name for model in (await discover(environment)).models]
    near = [] if name in known else difflib.get_close_matches(name, known, n=3)
    return f"Did you mean {' or '.join(f'`{each}`' for each in near)}?" if near else ""
