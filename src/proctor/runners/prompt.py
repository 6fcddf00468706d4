"""Runner of plain prompts: one model call, recorded and, with `expect`, checked.

This is the measured hot path: thousands of these items run per second.
"""

from functools import lru_cache

from proctor.errors import ModelError, of_worker
from proctor.item import FAIL, UNCHECKED, Item
from proctor.json_values import as_map
from proctor.model import Request
from proctor.model_client import ModelClient
from proctor.runner import Outcome, Services, seed_of
from proctor.session import Iteration, Note

DONE = Outcome()


class PromptRunner:
    """Runs items that are one prompt to one model."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """Call the model, record, check. A model that does not answer raises its `ModelError`."""
        record = services.record
        request = _request(item)
        limit = services.time_limit(item.settings.get("timeoutSec"), "the model")
        try:
            answer = await ModelClient(services.models, record).ask(request, time_limit=limit)
        except ModelError as error:
            raise of_worker(error) from error
        if answer.finish_reason == "length":
            record(Note(text="the answer was cut off at its length limit"))
        record(_step(item.model))
        expect = item.details.get("expect")
        if not expect:
            return DONE
        # Loaded here: many prompts expect nothing in particular.
        from proctor.evaluators.expect import ASSERT, check_expectations, unchecked_score

        facts = None
        if ASSERT in expect:
            from proctor.runners._judging import facts_of

            sandbox = item.settings.get("sandbox")
            group = as_map(expect, ASSERT)
            facts = await facts_of(group, answer, services, sandbox)
        checked = check_expectations(expect, answer.text, services.score, facts)
        if checked.unmet:
            return Outcome(status=FAIL, reason="checks_failed", error="; ".join(checked.unmet))
        if checked.unchecked:
            services.score(unchecked_score(checked))
            return Outcome(reason=UNCHECKED)
        return DONE


@lru_cache(maxsize=64)
def _step(model: str) -> Iteration:
    """The only step of a prompt: one object for all items of a model."""
    return Iteration(model=model)


def _request(item: Item) -> Request:
    details = item.details
    messages = [{"role": "user", "content": item.prompt}]
    if system := details.get("system"):
        messages.insert(0, {"role": "system", "content": system})
    return Request(
        model=item.model,
        messages=messages,
        parameters=details.get("settings", {}),
        seed=seed_of(item),
    )
