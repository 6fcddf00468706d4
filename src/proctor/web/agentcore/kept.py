"""What operations on kept things share: their times, and requests that can be sent again."""

from proctor.store.batches import moment
from proctor.store.definitions import Token
from proctor.web.agentcore.operation import Members


def seconds(stamp: str) -> float:
    """A time of the store as the control plane tells it: seconds since 1970."""
    at = moment(stamp)
    return at.timestamp() if at else 0.0


def token_of(operation: str, asked: Members) -> Token:
    """What makes a request one that can be sent again."""
    rest = {name: value for name, value in asked.items() if name != "clientToken"}
    return Token(operation=operation, token=asked.get("clientToken", ""), asked=rest)
