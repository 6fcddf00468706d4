"""Hand an answer to the client as it comes, and keep what was handed over.

Knows nothing of wire formats or providers.
"""

from collections.abc import Mapping

from aiohttp import web

from proctor.models.gateway.sse import CONTENT_TYPE

NO_BUFFERING = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
HANDED_ON = ("content-type", "retry-after", "retry-after-ms", "request-id", "x-request-id", "x-should-retry")
"""Headers of a provider's answer that its client wants; besides them those that begin as follows."""
HANDED_ON_FAMILIES = ("anthropic-", "openai-", "x-ratelimit-")
KEPT = ("content-type", "retry-after", "retry-after-ms")
"""Those without which a recorded answer could not be read or obeyed."""


class Delivery:
    """The answer to one request of a client."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self._response: web.StreamResponse | None = None
        self.status = 0
        """0: nothing has been handed over."""
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.hidden: list[bytes] = []
        """What the provider said besides, because we asked for it and the client did not."""

    @property
    def has_begun(self) -> bool:
        return self._response is not None

    @property
    def is_stream(self) -> bool:
        return CONTENT_TYPE in self.headers.get("content-type", "")

    def prepare(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Decide on a whole answer; it is sent by `send`, so that it can be recorded before."""
        self.status, self.headers, self.chunks = status, kept(headers), [body]
        self._response = web.Response(status=status, headers=dict(headers), body=body)

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Begin an answer that comes in pieces."""
        self.status, self.headers = status, kept(headers)
        self._response = web.StreamResponse(status=status, headers={**headers, **NO_BUFFERING})
        await self._response.prepare(self._request)

    async def write(self, chunk: bytes) -> None:
        """Hand over the next piece."""
        assert self._response is not None
        self.chunks.append(chunk)
        await self._response.write(chunk)

    async def send(self) -> web.StreamResponse:
        """End the answer; what the server has to return."""
        assert self._response is not None
        if self._response.prepared:
            await self._response.write_eof()
        return self._response

    def break_off(self) -> web.StreamResponse:
        """End an answer that cannot be finished, so that the client does not take it for whole."""
        assert self._response is not None
        if self._request.transport:
            self._request.transport.close()
        self._response.force_close()
        return self._response


def handed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """The part of a provider's headers that is the client's business."""
    return {
        name.lower(): value
        for name, value in headers.items()
        if name.lower() in HANDED_ON or name.lower().startswith(HANDED_ON_FAMILIES)
    }


def kept(headers: Mapping[str, str]) -> dict[str, str]:
    """The part of an answer's headers that a recording keeps."""
    return {name.lower(): value for name, value in headers.items() if name.lower() in KEPT}
