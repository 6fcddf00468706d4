"""What a model says, without what it thinks aloud before it says it.

Reasoning models behind plain servers put their thoughts into the answer, between `<think>` and
`</think>`; some servers lose the first of the two. Thoughts are for nobody else: not for the other side
of a conversation, not for the other actors of a scenario.

Knows nothing of models or of who listens.
"""

import re

_OPENED = re.compile(r"\A\s*<(think|thinking)>", re.IGNORECASE)
_CLOSED = re.compile(r"</(?:think|thinking)>", re.IGNORECASE)


def spoken(text: str) -> str:
    """What is meant for others; nothing, when the thoughts never came to an end."""
    closed = list(_CLOSED.finditer(text))
    if closed:
        return text[closed[-1].end() :].lstrip()
    return "" if _OPENED.match(text) else text
