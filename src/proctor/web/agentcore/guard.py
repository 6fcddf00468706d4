"""Who may call: by signature, by bearer token, or everybody where neither is configured.

Whoever has the server's token but no access key signs with the key id `proctor` and the token as its secret,
so that clients which can only sign need no second secret.

Knows nothing of the operations.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from proctor.web.agentcore.errors import (
    AccessDeniedException,
    SignatureRefused,
    UnauthorizedException,
    WireError,
)
from proctor.web.agentcore.signing import Signature, SignedRequest, signature_of

TOKEN_KEY_ID = "proctor"
"""The access key id whose secret is the server's token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What callers have to show."""

    token: str
    access_keys: Mapping[str, str]

    def admit(
        self, request: SignedRequest, *, service: str, bearer_status: int, now: datetime
    ) -> Signature | None:
        """Refuse a caller, or say what is left to check once the body is there."""
        if not self.token and not self.access_keys:
            return None
        shown = request.headers.get("authorization", "")
        if shown.startswith("Bearer "):
            self._check_bearer(shown.removeprefix("Bearer ").strip(), bearer_status)
            return None
        if not shown:
            raise SignatureRefused(
                "MissingAuthenticationTokenException", "The request has no Authorization header."
            )
        secrets = {TOKEN_KEY_ID: self.token} if self.token else {}
        return signature_of(request, {**secrets, **self.access_keys}, service=service, now=now)

    def _check_bearer(self, shown: str, status: int) -> None:
        known = self.token.encode("utf-8", "replace")
        if known and hmac.compare_digest(shown.encode("utf-8", "replace"), known):
            return
        refused: type[WireError] = UnauthorizedException if status == 401 else AccessDeniedException
        raise refused("The bearer token is not the one this server knows.")
