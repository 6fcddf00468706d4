"""Long texts, kept once: under their digest, compressed.

The one place where text becomes bytes in the store and bytes become text again.

Knows nothing of what the texts are.
"""

import hashlib
import zlib

INLINE_CHARACTERS = 4096
"""Longer text goes to `blobs`. Most messages of real agents are shorter, most tool results are not."""

BlobRow = tuple[str, int, bytes]
"""Digest, size and data, in the order of the columns of `blobs`."""


def kept(text: str) -> tuple[str, BlobRow | None]:
    """What stands in the row itself, and the blob that holds the text if it is too long for that."""
    if len(text) <= INLINE_CHARACTERS:
        return text, None
    data = text.encode()
    return "", (hashlib.sha256(data).hexdigest(), len(data), zlib.compress(data, 3))
