"""Sealed values: what they look like, and the key that makes them.

A sealed value says which data key it is under and which column it was written to; both are part of what is
authenticated, so that a value moved elsewhere does not open. The digest that a long text is kept under
becomes a keyed one, so that nobody can tell by it whether a known text is there.

Knows nothing of where keys come from.
"""

import base64
import binascii
import hmac
import os
from typing import Any

from proctor.keys import NONCE_BYTES, sealing_with
from proctor.store.statements import MARK

MARK_BYTES = MARK.encode()
KEYED = "keyed:"
"""How the digest of a long text begins that is sealed."""


class DataKey:
    """One key of a store, in the clear."""

    __slots__ = ("_alike", "_cipher", "_digests", "id", "until")

    def __init__(self, key_id: str, secret: bytes, until: float) -> None:
        self.id, self.until = key_id, until
        # Three uses, three keys: what one gives away says nothing about the others.
        self._cipher = sealing_with(_derived(secret, "texts"))
        self._alike, self._digests = _derived(secret, "alike"), _derived(secret, "digests")

    def sealed(self, place: str, value: bytes, *, is_alike: bool) -> tuple[bytes, bytes]:
        """What stands in front of a sealed value, and the value."""
        head = f"{MARK}{self.id}:{place}:".encode()
        # The nonce of what has to look alike is made from the text itself, and so never used for another.
        nonce = (
            hmac.digest(self._alike, head + value, "sha256")[:NONCE_BYTES]
            if is_alike
            else os.urandom(NONCE_BYTES)
        )
        return head, nonce + self._cipher.encrypt(nonce, value, head)

    def opened(self, place: str, sealed: bytes) -> bytes:
        """The value again. Raises whatever the cipher does when it was changed."""
        head = f"{MARK}{self.id}:{place}:".encode()
        return bytes(self._cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], head))

    def digest(self, plain: str) -> str:
        """The keyed digest of a text, from its digest."""
        return f"{KEYED}{self.id}:{hmac.digest(self._digests, plain.encode(), 'sha256').hex()}"


def is_sealed(value: Any) -> bool:
    """Whether a value of a row looks like a sealed one."""
    kind = value.__class__
    return (kind is str and value.startswith(MARK)) or (kind is bytes and value.startswith(MARK_BYTES))


def holds_sealed(value: Any) -> bool:
    """Whether a value is sealed, or an object that a sealed text stands in."""
    return is_sealed(value) or (value.__class__ is str and value[:1] == "{" and f'"{MARK}' in value)


def parts_of(value: str | bytes) -> tuple[str, str, bytes] | None:
    """The data key, the column and the sealed text of a value; None when it is no such thing."""
    try:
        if isinstance(value, str):
            _, _, key_id, place, text = value.split(":", 4)
            return key_id, place, base64.b64decode(text, validate=True)
        _, _, head, where, data = value.split(b":", 4)
        return head.decode(), where.decode(), data
    except (ValueError, binascii.Error, UnicodeError):
        return None


def first_sealed(text: str) -> str:
    """The first sealed text in an object."""
    return text[text.find(MARK) :].partition('"')[0]


def _derived(secret: bytes, use: str) -> bytes:
    return hmac.digest(secret, f"proctor {use}".encode(), "sha256")
