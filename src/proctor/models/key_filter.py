"""Removes provider keys from what a provider sends, before a client or a record gets it.

Some servers and proxies repeat the headers of a request in their errors, headers or answers. A key is found
as it is, in JSON, percent-encoded, in hex and in base64 at any offset, also split over two chunks.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

from proctor.secrets import SHORTEST_SECRET

REPLACEMENT = b"[key]"
KEY_NAMES = re.compile(r"(?:API_KEY|ACCESS_KEY(?:_ID)?|SESSION_TOKEN|AUTH_TOKEN|BEARER_TOKEN\w*)$")
"""Variables with keys of providers that a client library reads itself."""


def library_keys(environment: Mapping[str, str]) -> list[str]:
    """The keys that a client library may use."""
    return [value for name, value in environment.items() if KEY_NAMES.search(name)]


class KeyFilter:
    """Removes these keys; shorter ones are placeholders of local servers, and ordinary words."""

    def __init__(self, keys: Iterable[str]) -> None:
        needles = {needle for key in keys if len(key) >= SHORTEST_SECRET for needle in _forms(key)}
        self._needles = sorted(needles, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._needles)))
        self._bytes = frozenset(b"".join(self._needles))

    def clean(self, raw: bytes) -> bytes:
        """The same without the keys."""
        # Looking for each is faster than looking for all at once; few texts have any.
        if any(needle in raw for needle in self._needles):
            return self._pattern.sub(REPLACEMENT, raw)
        return raw

    def clean_text(self, text: str) -> str:
        """The same without the keys."""
        raw = text.encode("utf-8", "surrogatepass")
        cleaned = self.clean(raw)
        return text if cleaned == raw else cleaned.decode("utf-8", "replace")

    def clean_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers whose values have no key."""
        return {
            name: value
            for name, value in headers.items()
            if (raw := value.encode("utf-8", "replace")) == self.clean(raw)
        }

    def split(self, raw: bytes) -> tuple[bytes, bytes]:
        """What is certainly no part of a key, and the end that may be the start of one."""
        if not raw or raw[-1] not in self._bytes:
            return raw, b""
        for size in range(min(len(raw), max(map(len, self._needles)) - 1), 0, -1):
            if any(needle.startswith(raw[-size:]) for needle in self._needles):
                return raw[:-size], raw[-size:]
        return raw, b""


NO_KEYS = KeyFilter(())


class FilteredStream:
    """Removes keys from chunks; holds back the end of a chunk that may be the start of a key."""

    def __init__(self, keys: KeyFilter) -> None:
        self._keys = keys
        self._held = b""

    def add(self, chunk: bytes) -> bytes:
        """What can be passed on now."""
        passed, self._held = self._keys.split(self._keys.clean(self._held + chunk))
        return passed

    def end(self) -> bytes:
        """What was held back."""
        held, self._held = self._held, b""
        return held


def _forms(key: str) -> Iterator[bytes]:
    raw = key.encode("utf-8", "replace")
    yield raw
    yield json.dumps(key)[1:-1].encode()
    yield json.dumps(key)[1:-1].replace("/", "\\/").encode()
    yield quote(key, safe="").encode()
    yield "".join(f"%{byte:02X}" for byte in raw).encode()
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    for offset in range(3):
        # Without the characters that also depend on what is before and after the key.
        encoded = base64.b64encode(bytes(offset) + raw)
        start, end = -(-offset * 8 // 6), (offset + len(raw)) * 8 // 6
        yield encoded[start:end]
        yield encoded[start:end].translate(bytes.maketrans(b"+/", b"-_"))
