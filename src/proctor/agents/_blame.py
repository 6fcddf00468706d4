"""Say what kind of failure an agent means when it reports that its model failed.

Agents pass a provider's refusal on in words of their own: a status, the name of an exception, a
sentence. A refused key, a rate limit, a conversation beyond the model's window and everything else
are different to whoever decides about another attempt.

Only for what an agent itself calls a failure of its model: a model's text is never searched here.
"""

import re

from proctor.agents._json import SHORT
from proctor.errors import ModelError, RateLimited

_OVERFLOW = re.compile(
    r"context.{0,2}(length|window|overflow|limit)|prompt.{0,4}too.{0,2}long|maximum context|too many tokens",
    re.IGNORECASE,
)
_RATE_LIMIT = re.compile(r"rate.{0,2}limit|too.many.requests|resource.exhausted", re.IGNORECASE)
_REFUSED = re.compile(
    r"authenticat|unauthori[sz]ed|forbidden|permission.?denied|(invalid|incorrect).{0,10}api.?key",
    re.IGNORECASE,
)
_STATUS = re.compile(r"\b([45]\d\d)\b")


def model_failure(said: str, status: int | None = None) -> ModelError:
    """The error for a failure the agent ascribes to its model; `status` when it gave one."""
    said = said.strip()[:SHORT] or "the model failed, and the agent does not say how"
    message = f"the agent's model call failed: {said}"
    if status is None and (found := _STATUS.search(said)):
        status = int(found[1])
    if _OVERFLOW.search(said) and status in (None, 400, 413, 422):
        return ModelError(message, reason="context_overflow")
    if status == 429 or (status is None and _RATE_LIMIT.search(said)):
        return RateLimited(message)
    if status in (401, 403) or (status is None and _REFUSED.search(said)):
        return ModelError(message, reason="auth")
    return ModelError(message)
