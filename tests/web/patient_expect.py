"""`expect` of Playwright waits for an element before it compares it.

While an element is missing or hidden, each comparison describes the whole page for a message that only the
last one needs: with hundreds of elements on it, most of the processor time of a test. Waiting for an element
describes nothing.
"""

from typing import Any

from playwright._impl.assertions import LocatorAssertions
from playwright._impl.errors import Error
from playwright._impl.errors import TimeoutError as TimeLimitReached

_compare = LocatorAssertions._call_expect
_ABSENT = ("to.be.hidden", "to.be.detached", "to.have.count")


async def _wait_and_compare(
    assertions: LocatorAssertions, expression: str, options: Any, title: str | None
) -> Any:
    if not options["isNot"] and expression not in _ABSENT and not expression.endswith(".array"):
        state = "visible" if expression == "to.be.visible" else "attached"
        try:
            await assertions._actual_locator.wait_for(state=state, timeout=options["timeout"])
        except TimeLimitReached:
            # All the time has passed: compare once, for the message.
            options["timeout"] = 1
        except Error:
            pass
    return await _compare(assertions, expression, options, title)


def install() -> None:
    """Wait in every assertion about a locator that is made from now on."""
    LocatorAssertions._call_expect = _wait_and_compare  # type: ignore[method-assign]
