"""Authentication of a request by AWS Signature Version 4, or by bearer token."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote

from proctor.agentcore.errors import AccessDeniedException, SignatureRefused, UnauthorizedException, WireError
from proctor.web.access import ADMIN, LOCAL, AccessControl, Principal

ALGORITHM = "AWS4-HMAC-SHA256"
CLOCKS_DIFFER_AT_MOST = timedelta(minutes=15)
UNRESERVED = "-_.~"
_FIELDS = re.compile(
    rf"{ALGORITHM} +Credential=(?P<key>[^/,\s]+)/(?P<day>\d{{8}})/(?P<region>[^/,\s]+)/(?P<service>[^/,\s]+)"
    r"/aws4_request, *SignedHeaders=(?P<headers>[^,\s]+), *Signature=(?P<signature>[0-9a-f]{64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """The parts of a raw request that a signature covers."""

    method: str
    path: str
    """Percent-encoded, as sent."""
    query: str
    headers: Mapping[str, str]
    """By lower-case name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """An AWS Signature Version 4: well-formed, recent, with a known access key."""

    request: SignedRequest
    key_id: str
    secret: str
    day: str
    region: str
    service: str
    signed_headers: str
    stamp: str
    signature: str

    def check(self, body: bytes) -> None:
        """Raise unless the signature matches the request and this body."""
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
        # Always the hash of the received body: unsigned payloads are not accepted.
        payload = hashlib.sha256(body).hexdigest()
        lines = (request.method, _canonical_path(request.path), _canonical_query(request.query))
        return "\n".join((*lines, *headers, "", self.signed_headers, payload))


def signature_of(
    request: SignedRequest, secrets: Mapping[str, str], *, service: str, now: datetime
) -> Signature:
    """Read the signature of a request; raises if it is invalid whatever the body is."""
    fields = _FIELDS.fullmatch(request.headers.get("authorization", "").strip())
    if fields is None:
        raise SignatureRefused(
            "IncompleteSignatureException", f"The Authorization header is no {ALGORITHM} signature."
        )
    secret = _secret_of(fields["key"], secrets)
    stamp = request.headers.get("x-amz-date", "")
    _check_time(stamp, fields["day"], now)
    if fields["service"] != service:
        raise SignatureRefused(
            "InvalidSignatureException",
            f"Credential should be scoped to correct service: '{service}'.",
        )
    signed = fields["headers"].lower().split(";")
    if not {"host", "x-amz-date"} <= set(signed):
        raise SignatureRefused(
            "InvalidSignatureException", "The headers 'host' and 'x-amz-date' must be signed."
        )
    return Signature(
        request=request,
        key_id=fields["key"],
        secret=secret,
        day=fields["day"],
        region=fields["region"],
        service=fields["service"],
        signed_headers=fields["headers"].lower(),
        stamp=stamp,
        signature=fields["signature"],
    )


def _secret_of(key_id: str, secrets: Mapping[str, str]) -> str:
    # In constant time, so that the duration does not reveal key IDs.
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
    # Encoded twice, as the algorithm requires: %3A becomes %253A.
    return quote(path or "/", safe=f"/{UNRESERVED}")


def _canonical_query(query: str) -> str:
    pairs = [part.partition("=") for part in query.split("&") if part]
    encoded = [(_normalized(name), _normalized(value)) for name, _, value in pairs]
    return "&".join(f"{name}={value}" for name, value in sorted(encoded))


def _normalized(text: str) -> str:
    return quote(unquote(text), safe=UNRESERVED)


def admit(
    access: AccessControl, request: SignedRequest, *, service: str, bearer_status: int, now: datetime
) -> tuple[Principal, Signature | None]:
    """Authenticate by bearer token or signature; the caller, and the signature to check with the body.

    Everybody is accepted if neither tokens nor access keys are configured.
    """
    if not access.signs:
        return Principal(LOCAL, ADMIN), None
    authorization = request.headers.get("authorization", "")
    if authorization.startswith("Bearer "):
        if principal := access.find_token(authorization.removeprefix("Bearer ").strip()):
            return principal, None
        refusal: type[WireError] = UnauthorizedException if bearer_status == 401 else AccessDeniedException
        raise refusal("The bearer token is not the one this server knows.")
    if not authorization:
        raise SignatureRefused(
            "MissingAuthenticationTokenException", "The request has no Authorization header."
        )
    known = access.signing_secrets
    secrets = {key_id: secret for key_id, (secret, _) in known.items()}
    signature = signature_of(request, secrets, service=service, now=now)
    return known[signature.key_id][1], signature
