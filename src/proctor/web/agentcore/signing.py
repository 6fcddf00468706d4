"""AWS Signature Version 4, as it arrives in an `Authorization` header, checked against a known secret.

The signature covers the method, path, query, chosen headers and the body, so none of them can be altered on
the way; the date in it makes an overheard request worthless a quarter of an hour later.

Knows nothing of who may do what.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote

from proctor.web.agentcore.errors import SignatureRefused

ALGORITHM = "AWS4-HMAC-SHA256"
CLOCKS_DIFFER_AT_MOST = timedelta(minutes=15)
UNRESERVED = "-_.~"
_FIELDS = re.compile(
    rf"{ALGORITHM} +Credential=(?P<key>[^/,\s]+)/(?P<day>\d{{8}})/(?P<region>[^/,\s]+)/(?P<service>[^/,\s]+)"
    r"/aws4_request, *SignedHeaders=(?P<headers>[^,\s]+), *Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """What of a request is covered by its signature, as it came over the wire."""

    method: str
    path: str
    """As it was sent, still percent-encoded."""
    query: str
    headers: Mapping[str, str]
    """By name in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A signature that is well-formed, recent, and by a key we know."""

    request: SignedRequest
    secret: str
    day: str
    region: str
    service: str
    signed_headers: str
    stamp: str
    signature: str

    def check(self, body: bytes) -> None:
        """Raise unless this is what the holder of the secret signed."""
        expected = hmac.new(self._signing_key(), self._string_to_sign(body).encode(), hashlib.sha256)
        if not hmac.compare_digest(expected.hexdigest(), self.signature):
            raise SignatureRefused(
                "InvalidSignatureException",
                "The request signature we calculated does not match the signature you provided. "
                "Check the secret access key, and that nothing altered the request on its way.",
            )

    def _signing_key(self) -> bytes:
        key = f"AWS4{self.secret}".encode()
        for part in (self.day, self.region, self.service, "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        return key

    def _string_to_sign(self, body: bytes) -> str:
        scope = f"{self.day}/{self.region}/{self.service}/aws4_request"
        canonical = hashlib.sha256(self._canonical_request(body).encode()).hexdigest()
        return "\n".join((ALGORITHM, self.stamp, scope, canonical))

    def _canonical_request(self, body: bytes) -> str:
        request = self.request
        headers = [
            f"{name}:{' '.join(request.headers.get(name, '').split())}"
            for name in self.signed_headers.split(";")
        ]
        # The hash is always of what really arrived: an unsigned payload is no signature of a request.
        payload = hashlib.sha256(body).hexdigest()
        lines = (request.method, _canonical_path(request.path), _canonical_query(request.query))
        return "\n".join((*lines, *headers, "", self.signed_headers, payload))


def signature_of(
    request: SignedRequest, secrets: Mapping[str, str], *, service: str, now: datetime
) -> Signature:
    """Read a request's signature; refuse one that no body could make right."""
    found = _FIELDS.fullmatch(request.headers.get("authorization", "").strip())
    if found is None:
        raise SignatureRefused(
            "IncompleteSignatureException", f"The Authorization header is no {ALGORITHM} signature."
        )
    secret = _secret_of(found["key"], secrets)
    stamp = request.headers.get("x-amz-date", "")
    _check_time(stamp, found["day"], now)
    if found["service"] != service:
        raise SignatureRefused(
            "InvalidSignatureException",
            f"Credential should be scoped to correct service: '{service}'.",
        )
    signed = found["headers"].lower().split(";")
    if not {"host", "x-amz-date"} <= set(signed):
        raise SignatureRefused(
            "InvalidSignatureException", "The headers 'host' and 'x-amz-date' must be signed."
        )
    return Signature(
        request=request,
        secret=secret,
        day=found["day"],
        region=found["region"],
        service=found["service"],
        signed_headers=found["headers"].lower(),
        stamp=stamp,
        signature=found["signature"],
    )


def _secret_of(key_id: str, secrets: Mapping[str, str]) -> str:
    # Key ids are no secret, yet how long a wrong one takes should not tell which ones there are.
    secret = ""
    for known, value in secrets.items():
        if hmac.compare_digest(known.encode(), key_id.encode()):
            secret = value
    if not secret:
        raise SignatureRefused(
            "UnrecognizedClientException", "The security token included in the request is invalid."
        )
    return secret


def _check_time(stamp: str, day: str, now: datetime) -> None:
    try:
        signed_at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise SignatureRefused(
            "IncompleteSignatureException", "The X-Amz-Date header must be written as 20261115T055720Z."
        ) from None
    if not stamp.startswith(day):
        raise SignatureRefused(
            "InvalidSignatureException", "Date in Credential scope does not match X-Amz-Date."
        )
    if now - signed_at > CLOCKS_DIFFER_AT_MOST:
        raise SignatureRefused(
            "InvalidSignatureException",
            f"Signature expired: {stamp} is more than 15 minutes before {now:%Y%m%dT%H%M%SZ}.",
        )
    if signed_at - now > CLOCKS_DIFFER_AT_MOST:
        raise SignatureRefused(
            "InvalidSignatureException",
            f"Signature not yet current: {stamp} is more than 15 minutes after {now:%Y%m%dT%H%M%SZ}.",
        )


def _canonical_path(path: str) -> str:
    # Each segment is encoded once more, so that what was encoded already (%3A) becomes %253A.
    return quote(path or "/", safe=f"/{UNRESERVED}")


def _canonical_query(query: str) -> str:
    pairs = [part.partition("=") for part in query.split("&") if part]
    encoded = [(_again(name), _again(value)) for name, _, value in pairs]
    return "&".join(f"{name}={value}" for name, value in sorted(encoded))


def _again(text: str) -> str:
    return quote(unquote(text), safe=UNRESERVED)
