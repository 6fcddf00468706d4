"""Calls that are sent as batches of the provider, at half the price.

Requests are collected for a second, sent together, and answered together, minutes to hours later. What was
sent is kept in a folder of the run: after a kill, its answers are fetched and not paid for twice. What a
batch has not answered before it expired is sent alone.
"""

import asyncio
import hashlib
import json
import os
import secrets
import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from proctor.errors import NOT_SENT, ModelError
from proctor.json_values import JsonMap, JsonObject, as_list, as_map, as_text, as_whole_number, json_object
from proctor.model import Answer, Request
from proctor.models import gemini
from proctor.models.prices import BATCH_FACTOR, OUTPUT_LIMITS, Price
from proctor.models.routes import RemoteRoute, encode, priced, sent_parameters, with_answer_limit

if TYPE_CHECKING:
    import aiohttp

    from proctor.models.client import CallTarget, Client, Waited
    from proctor.models.providers import WireFormat

BATCH = "batch"
COLLECT_SECONDS = 1.0
"""A batch is sent when no request has come for so long."""
MOST_REQUESTS = 50_000
"""The provider's limit."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 30.0
"""Between two looks at a batch."""
TRIES = 5


class NotInBatch(ModelError):
    """The batch has ended without an answer to the request, which costs nothing; it can be sent singly."""

    is_to_be_sent_alone = True


class _Unreachable(ModelError):
    """The provider did not answer, however often it was asked."""


class BatchAnswer(NamedTuple):
    """The answer to one request of a batch."""

    status: int
    body: bytes
    request_id: str
    seconds: float


def digest_of_request(item_id: str, body: JsonMap) -> str:
    """What tells a request of a run from others. Not the limit of its answer, which a budget may change."""
    plain = {name: value for name, value in body.items() if name not in OUTPUT_LIMITS}
    return hashlib.sha256(encode([item_id, plain]).encode("utf-8", "replace")).hexdigest()[:32]


@dataclass(slots=True)
class _Waiting:
    """A request that waits for its answer."""

    digest: str
    body: JsonMap
    answer: "asyncio.Future[BatchAnswer]"


@dataclass(slots=True)
class _Sent:
    """A batch as its file keeps it."""

    token: str
    """Its name, also at the provider: a batch is found by it whose id was not written before a kill."""
    requests: dict[str, str]
    """Digest of each request by its id in the batch."""
    batch: str = ""
    """The provider's id; empty: not known."""
    answers: "dict[str, asyncio.Future[BatchAnswer]]" = field(default_factory=dict)


class BatchState(NamedTuple):
    """How far a batch is."""

    status: str
    is_ended: bool
    results: tuple[str, ...] = ()
    """Addresses of its answers."""
    problem: str = ""
    """Why the provider has rejected all of it; empty: it has not."""


class Result(NamedTuple):
    """The answer to one request, by its id in the batch."""

    name: str
    status: int
    body: object
    request_id: str = ""


class BatchInterface(ABC):
    """The batches of one provider over HTTP."""

    most_bytes = 190_000_000
    """Of the requests of a batch: the provider's limit is 200 MB."""

    def __init__(self, target: "CallTarget", proxy: str | None, session: "aiohttp.ClientSession") -> None:
        self.target = target
        self._proxy = proxy
        self._session = session
        self._address, self._headers = target.endpoint.base_url, dict(target.headers)

    def takes(self, body: JsonMap) -> bool:  # noqa: ARG002 (most take all that can be sent alone)
        """Whether a request can be in a batch."""
        return True

    @abstractmethod
    async def create(self, requests: Mapping[str, JsonMap], token: str, keep: Callable[[], None]) -> str:
        """Send requests, by their ids, as a batch of this name; its id. Calls `keep` before it is billed."""

    @abstractmethod
    async def find(self, token: str, count: int) -> str:
        """The batch of this name and so many requests; empty: it was not created."""

    @abstractmethod
    async def state(self, batch: str) -> BatchState:
        """How far a batch is."""

    @abstractmethod
    async def cancel(self, batch: str) -> None:
        """Stop a batch; what it has answered by then is billed."""

    @abstractmethod
    def results(self, entries: Iterable[JsonMap]) -> Iterator[Result]:
        """The answers in the lines of a file; what was not answered is left out."""

    async def entries(self, state: BatchState) -> list[JsonMap]:
        """The lines of all files of answers."""
        files = [await self.call("GET", path) for path in state.results]
        return [
            json_object(line.decode(errors="replace")) or {} for raw in files for line in raw.splitlines()
        ]

    async def call_json(
        self,
        method: str,
        path: str,
        *,
        body: JsonMap | None = None,
        form: "Callable[[], aiohttp.FormData] | None" = None,
        known_as: str = "",
        count: int = 0,
    ) -> JsonObject:
        raw = await self.call(method, path, body=body, form=form, known_as=known_as, count=count)
        answer = json_object(raw.decode(errors="replace"))
        if answer is None:
            raise ModelError(f"{self.target.endpoint.provider} answered {method} {path} without JSON")
        return dict(answer)

    async def call(
        self,
        method: str,
        path: str,
        *,
        body: JsonMap | None = None,
        form: "Callable[[], aiohttp.FormData] | None" = None,
        known_as: str = "",
        count: int = 0,
    ) -> bytes:
        """The answer to a request, which is tried again where the provider does not answer.

        `known_as` is the name of the batch of `count` requests that it creates: it is not created again if it
        is there.
        """
        import aiohttp

        from proctor.models.client import RetryableError, error_of

        endpoint = self.target.endpoint
        headers = dict(self._headers)
        if body is None:
            headers.pop("Content-Type", None)
        error: ModelError | None = None
        for number in range(TRIES):
            if number:
                await asyncio.sleep(FIRST_PAUSE_SECONDS * 2.0**number)
            if number and known_as and (batch := await self.find(known_as, count)):
                return encode({"id": batch}).encode()
            data = encode(body).encode() if body is not None else form() if form else None
            try:
                async with self._session.request(
                    method,
                    f"{self._address}{path}",
                    data=data,
                    headers=headers,
                    allow_redirects=False,
                    proxy=self._proxy,
                ) as response:
                    raw = await response.read()
                    if response.status == 200:
                        return raw
                    failure = error_of(response.status, response.headers, raw, endpoint)
                    if not isinstance(failure, RetryableError):
                        raise failure
                    error = failure.error
            except (aiohttp.ClientError, OSError) as cause:
                error = ModelError(f"{endpoint.provider} cannot be reached: {type(cause).__name__}")
        unreachable = _Unreachable(str(error))
        # Only a batch is billed.
        unreachable.may_be_billed, unreachable.is_repeatable = bool(known_as), False
        raise unreachable


class OpenAiBatches(BatchInterface):
    """`/batches` of OpenAI, with files of requests and answers."""

    async def create(self, requests: Mapping[str, JsonMap], token: str, keep: Callable[[], None]) -> str:
        import aiohttp

        lines = (
            encode({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})
            for name, body in requests.items()
        )
        data = "\n".join(lines).encode("utf-8", "replace")

        def form() -> aiohttp.FormData:
            fields = aiohttp.FormData()
            fields.add_field("purpose", "batch")
            fields.add_field("file", data, filename="requests.jsonl", content_type="application/jsonl")
            return fields

        file = as_text(await self.call_json("POST", "/files", form=form), "id")
        keep()
        asked = {
            "input_file_id": file,
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": {"proctor": token},
        }
        return as_text(await self.call_json("POST", "/batches", body=asked, known_as=token), "id")

    async def find(self, token: str, count: int) -> str:  # noqa: ARG002 (its name is enough)
        listed = await self.call_json("GET", "/batches?limit=100")
        batches = (as_map(each) for each in as_list(listed, "data"))
        known = (as_text(each, "id") for each in batches if as_text(each, "metadata", "proctor") == token)
        return next(known, "")

    async def state(self, batch: str) -> BatchState:
        shown = await self.call_json("GET", f"/batches/{batch}")
        status = as_text(shown, "status")
        files = (as_text(shown, member) for member in ("output_file_id", "error_file_id"))
        reasons = (as_text(each, "message") for each in as_list(shown, "errors", "data"))
        return BatchState(
            status=status,
            is_ended=status in ("completed", "expired", "cancelled", "failed"),
            results=tuple(f"/files/{file}/content" for file in files if file),
            problem=next(filter(None, reasons), "no reason given") if status == "failed" else "",
        )

    async def cancel(self, batch: str) -> None:
        await self.call("POST", f"/batches/{batch}/cancel")

    def results(self, entries: Iterable[JsonMap]) -> Iterator[Result]:
        for entry in entries:
            response = as_map(entry, "response")
            if isinstance(status := response.get("status_code"), int):
                request_id = as_text(response, "request_id")
                yield Result(as_text(entry, "custom_id"), status, response.get("body"), request_id)


class AnthropicBatches(BatchInterface):
    """`/v1/messages/batches` of Anthropic."""

    async def create(self, requests: Mapping[str, JsonMap], token: str, keep: Callable[[], None]) -> str:
        keep()
        asked = {"requests": [{"custom_id": name, "params": body} for name, body in requests.items()]}
        created = await self.call_json(
            "POST", "/v1/messages/batches", body=asked, known_as=token, count=len(requests)
        )
        return as_text(created, "id")

    async def find(self, token: str, count: int) -> str:
        # A batch has no name: only its answers show whose it is.
        listed = await self.call_json("GET", "/v1/messages/batches?limit=100")
        for shown in map(as_map, as_list(listed, "data")):
            if sum(map(as_whole_number, as_map(shown, "request_counts").values())) != count:
                continue
            batch = as_text(shown, "id")
            while not (state := await self.state(batch)).is_ended:
                await asyncio.sleep(LONGEST_PAUSE_SECONDS)
            names = (as_text(entry, "custom_id") for entry in await self.entries(state))
            if next(names, "").startswith(token):
                return batch
        return ""

    async def state(self, batch: str) -> BatchState:
        status = as_text(await self.call_json("GET", f"/v1/messages/batches/{batch}"), "processing_status")
        return BatchState(status, status == "ended", (f"/v1/messages/batches/{batch}/results",))

    async def cancel(self, batch: str) -> None:
        await self.call("POST", f"/v1/messages/batches/{batch}/cancel")

    def results(self, entries: Iterable[JsonMap]) -> Iterator[Result]:
        for entry in entries:
            name, result = as_text(entry, "custom_id"), as_map(entry, "result")
            if as_text(result, "type") == "succeeded":
                yield Result(name, 200, result.get("message"))
            elif as_text(result, "type") == "errored":
                is_wrong = as_text(result, "error", "error", "type") == "invalid_request_error"
                yield Result(name, 400 if is_wrong else 500, result.get("error"))


class GeminiBatches(BatchInterface):
    """`models/…:batchGenerateContent` of Gemini, with the requests in it."""

    most_bytes = 15_000_000

    def __init__(self, target: "CallTarget", proxy: str | None, session: "aiohttp.ClientSession") -> None:
        super().__init__(target, proxy, session)
        # Single calls use the interface of OpenAI, which has no batches of requests.
        self._address = self._address.removesuffix("/openai")
        self._headers = {"Content-Type": "application/json", "x-goog-api-key": target.endpoint.key}

    def takes(self, body: JsonMap) -> bool:
        return gemini.generate_content(body) is not None

    async def create(self, requests: Mapping[str, JsonMap], token: str, keep: Callable[[], None]) -> str:
        keep()
        entries = [
            {"request": gemini.generate_content(body), "metadata": {"key": name}}
            for name, body in requests.items()
        ]
        asked = {"batch": {"displayName": token, "inputConfig": {"requests": {"requests": entries}}}}
        path = f"/models/{self.target.endpoint.model}:batchGenerateContent"
        created = await self.call_json("POST", path, body=asked, known_as=token)
        return as_text(created, "name") or as_text(created, "id")

    async def find(self, token: str, count: int) -> str:  # noqa: ARG002 (its name is enough)
        listed = await self.call_json("GET", "/batches?pageSize=100")
        batches = map(as_map, as_list(listed, "operations"))
        known = (
            as_text(each, "name") for each in batches if as_text(each, "metadata", "displayName") == token
        )
        return next(known, "")

    async def state(self, batch: str) -> BatchState:
        shown = await self.call_json("GET", f"/{batch}")
        status = as_text(shown, "metadata", "state").rpartition("_")[2].lower()
        reason = as_text(shown, "error", "message") or "no reason given"
        return BatchState(
            status=status,
            is_ended=shown.get("done") is True or status in ("succeeded", "failed", "cancelled", "expired"),
            results=(f"/{batch}",),
            problem=reason if status == "failed" else "",
        )

    async def cancel(self, batch: str) -> None:
        await self.call("POST", f"/{batch}:cancel")

    async def entries(self, state: BatchState) -> list[JsonMap]:
        """The answers, which are a part of the batch."""
        shown = [await self.call_json("GET", path) for path in state.results]
        held = [as_map(each, "response") or as_map(each, "metadata", "output") for each in shown]
        return [as_map(each) for of in held for each in as_list(of, "inlinedResponses", "inlinedResponses")]

    def results(self, entries: Iterable[JsonMap]) -> Iterator[Result]:
        for entry in entries:
            name = as_text(entry, "metadata", "key")
            if error := as_map(entry, "error"):
                is_wrong = error.get("code") in (INVALID_ARGUMENT, 400)
                yield Result(name, 400 if is_wrong else 500, {"error": error})
            else:
                answer = gemini.completion(as_map(entry, "response"), self.target.endpoint.model)
                yield Result(name, 200, answer)


INVALID_ARGUMENT = 3
"""In the status of a request at Google."""
INTERFACES: Mapping[str, type[BatchInterface]] = {
    "anthropic": AnthropicBatches,
    "gemini": GeminiBatches,
    "groq": OpenAiBatches,
    "openai": OpenAiBatches,
}
"""By provider."""


class ProviderBatches:
    """The batches of one model. Use it on one event loop; close it at the end."""

    def __init__(self, interface: BatchInterface, folder: Path) -> None:
        """`folder` keeps what was sent."""
        self.takes = interface.takes
        self._interface = interface
        self._endpoint = interface.target.endpoint
        self._folder = folder
        self._new: list[_Waiting] = []
        self._collecting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sent: list[_Sent] = []
        self._found: dict[str, deque[asyncio.Future[BatchAnswer]]] = defaultdict(deque)
        """Answers to requests of an earlier process, by digest."""
        self._loading: asyncio.Task[None] | None = None
        self._used: set[asyncio.Future[BatchAnswer]] = set()
        """Answers that were handed out."""

    async def answer(self, digest: str, body: JsonMap, waited: "Waited | None") -> BatchAnswer:
        """The answer of a batch. Raises `NotInBatch`, or another `ModelError`."""
        began = time.monotonic()
        if self._loading is None:
            self._loading = self._start(self._load())
        await asyncio.shield(self._loading)
        if earlier := self._found.get(digest):
            answer = earlier.popleft()
        else:
            answer = asyncio.get_running_loop().create_future()
            self._new.append(_Waiting(digest, body, answer))
            if self._collecting is None or self._collecting.done():
                self._collecting = self._start(self._collect())
        try:
            while not answer.done():
                pause = min(10.0, max(COLLECT_SECONDS, (time.monotonic() - began) / 10))
                if waited:
                    waited(pause)
                await asyncio.wait([answer], timeout=pause)
        except asyncio.CancelledError:
            number = len(self._new)
            self._new = [each for each in self._new if each.answer is not answer]
            if len(self._new) < number:
                raise asyncio.CancelledError(NOT_SENT) from None
            raise
        self._used.add(answer)
        return answer.result()

    async def cancel(self) -> list[str]:
        """Cancel what was sent and has not ended; what went wrong."""
        problems = []
        for sent in self._read_folder():
            try:
                if sent.batch and not (await self._interface.state(sent.batch)).is_ended:
                    await self._interface.cancel(sent.batch)
            except ModelError as error:
                problems.append(f"the batch {sent.batch} was not canceled: {error}")
        return problems

    async def close(self) -> None:
        """Stop waiting. Batches whose answers were not all used stay, for a later process."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for sent in self._sent:
            if self._used.issuperset(sent.answers.values()):
                self._path(sent).unlink(missing_ok=True)

    def _start(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _load(self) -> None:
        """Wait for the answers to what an earlier process has sent."""
        for sent in self._read_folder():
            sent.batch = sent.batch or await self._interface.find(sent.token, len(sent.requests))
            if sent.batch:
                self._watch(sent)
            else:
                # It was killed before it created the batch.
                self._path(sent).unlink(missing_ok=True)

    async def _collect(self) -> None:
        while self._new:
            number = -1
            while number < len(self._new) < MOST_REQUESTS:
                number = len(self._new)
                await asyncio.sleep(COLLECT_SECONDS)
            size, count = 0, 0
            while count < min(len(self._new), MOST_REQUESTS) and size < self._interface.most_bytes:
                size += len(encode(self._new[count].body))
                count += 1
            some, self._new = self._new[:count], self._new[count:]
            if some:
                await self._send(some)

    async def _send(self, some: list[_Waiting]) -> None:
        token = secrets.token_hex(8)
        ids = {f"{token}-{number}": each for number, each in enumerate(some)}
        sent = _Sent(token, {name: each.digest for name, each in ids.items()})
        sent.answers = {name: each.answer for name, each in ids.items()}
        requests = {name: each.body for name, each in ids.items()}
        try:
            # Kept before it is created: from then on it is billed.
            sent.batch = await self._interface.create(requests, token, partial(self._write, sent))
            self._write(sent)
        except ModelError as error:
            if not error.may_be_billed:
                self._path(sent).unlink(missing_ok=True)
            _fail(sent.answers.values(), error)
            return
        except OSError as error:
            problem = f"what was sent as a batch cannot be kept: {error}"
            _fail(sent.answers.values(), ModelError(problem))
            return
        self._watch(sent)

    def _watch(self, sent: _Sent) -> None:
        self._sent.append(sent)
        if not sent.answers:
            loop = asyncio.get_running_loop()
            sent.answers = {name: loop.create_future() for name in sent.requests}
            for name, digest in sent.requests.items():
                self._found[digest].append(sent.answers[name])
                # Nobody may ask for it: its item had finished.
                sent.answers[name].add_done_callback(lambda done: done.cancelled() or done.exception())
        self._start(self._follow(sent))

    async def _follow(self, sent: _Sent) -> None:
        """Wait for the end of a batch, and deliver its answers."""
        began, pause = time.monotonic(), FIRST_PAUSE_SECONDS
        problem: ModelError
        try:
            while not (state := await self._state(sent.batch)).is_ended:
                await asyncio.sleep(pause)
                pause = min(1.5 * pause, LONGEST_PAUSE_SECONDS)
            seconds = time.monotonic() - began
            for result in self._interface.results(await self._interface.entries(state)):
                answer = sent.answers.get(result.name)
                if answer is not None and not answer.done():
                    body = encode(result.body).encode("utf-8", "replace")
                    answer.set_result(BatchAnswer(result.status, body, result.request_id, seconds))
            problem = NotInBatch(f"the batch {sent.batch} is {state.status} without an answer")
            if state.problem:
                rejected = f"the provider rejected the batch: {state.problem}"
                problem = ModelError(rejected, reason="bad_request")
        except ModelError as error:
            # What the provider has answered is billed; a later process fetches it.
            problem, problem.may_be_billed, problem.is_repeatable = error, True, False
        _fail(sent.answers.values(), problem)

    async def _state(self, batch: str) -> BatchState:
        """How far a batch is, as far as is known: the provider may be out of reach for a while."""
        try:
            return await self._interface.state(batch)
        except _Unreachable:
            return BatchState("unknown", is_ended=False)

    # Files of the run.

    def _path(self, sent: _Sent) -> Path:
        return self._folder / f"{sent.token}.json"

    def _write(self, sent: _Sent) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        endpoint = self._endpoint
        document = {"provider": endpoint.provider, "address": endpoint.base_url, "model": endpoint.model}
        making = self._path(sent).with_suffix(".making")
        with making.open("w", encoding="utf-8") as file:
            kept = {"token": sent.token, "batch": sent.batch, "requests": sent.requests}
            json.dump({**document, **kept}, file)
            file.flush()
            os.fsync(file.fileno())
        making.replace(self._path(sent))

    def _read_folder(self) -> Iterable[_Sent]:
        endpoint = self._endpoint
        for kept in _kept(self._folder):
            if (kept.get("address"), kept.get("model")) == (endpoint.base_url, endpoint.model):
                requests = {str(name): str(digest) for name, digest in as_map(kept, "requests").items()}
                yield _Sent(as_text(kept, "token"), requests, as_text(kept, "batch"))


def models_in(folder: Path) -> set[str]:
    """The models, as `provider/model`, of the batches that are kept there."""
    return {f"{kept['provider']}/{kept['model']}" for kept in _kept(folder) if "provider" in kept}


def _kept(folder: Path) -> Iterable[JsonObject]:
    return (json_object(path.read_text(encoding="utf-8")) or {} for path in sorted(folder.glob("*.json")))


def _fail(answers: "Iterable[asyncio.Future[BatchAnswer]]", error: ModelError) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)


class BatchRoute(RemoteRoute):
    """Calls a provider in batches; requests that are to be sent alone go over HTTP like all others.

    Its `price` is that of a call on its own, which the gateway sends for agents.
    """

    def __init__(
        self,
        client: "Client",
        wire: "WireFormat",
        target: "CallTarget",
        find_price: Callable[[], Price | None],
        keep_bodies: bool,
        *,
        folder: Callable[[], Path | None],
    ) -> None:
        """`folder` keeps what was sent; it is known when the run has begun."""
        super().__init__(client, wire, target, find_price, keep_bodies)
        self._folder = folder
        self._batches: ProviderBatches | None = None

    def price_of(self, request: Request) -> Price | None:
        """The price of a request, which may be in a batch."""
        return self.price if request.alone else self.expected_price

    @property
    def expected_price(self) -> Price | None:
        """The price of a batch."""
        if self.price is None:
            return None
        return replace(self.price.times(BATCH_FACTOR), source=f"{self.price.source} (batch)")

    async def answer(self, request: Request, waited: "Waited | None") -> Answer:
        return await self.answer_item("", request, waited)

    async def answer_item(self, item_id: str, request: Request, waited: "Waited | None") -> Answer:
        """Answer a request of an item."""
        from proctor.models.client import RetryableError, error_of, parse_answer, unreadable

        if request.alone:
            return await super().answer(request, waited)
        target = self._target
        if missing := target.endpoint.missing_key:
            raise ModelError(f"{request.model} needs a key: set {missing}", reason="auth")
        body = self._wire.body(with_answer_limit(request), target.endpoint)
        batches = self._opened()
        if not batches.takes(body):
            raise NotInBatch(f"{self.provider} takes no such request in a batch")
        found = await batches.answer(digest_of_request(item_id, body), body, waited)
        try:
            if found.status != 200:
                raise error_of(found.status, {}, found.body, target.endpoint)
            reading = self._wire.read(parse_answer(found.body, target.endpoint))
        except RetryableError as failure:
            # Batches bill what they answer alone.
            raise NotInBatch(str(failure.error)) from failure
        except (LookupError, TypeError, AttributeError) as cause:
            raise unreadable(f"{self.provider} answered in an unknown format") from cause
        if found.request_id:
            reading = reading._replace(served=reading.served._replace(request_id=found.request_id))
        bodies = (encode(body), found.body.decode(errors="replace")) if self._keep_bodies else ("", "")
        milliseconds = 1000 * found.seconds
        route = _AtBatchPrice(self, self.price_of(request))
        return priced(request, route, reading, 0.0, milliseconds, *bodies, sent_parameters(body))

    async def cancel(self) -> list[str]:
        """Cancel what was sent and has not ended; what went wrong."""
        return await self._opened().cancel()

    async def close(self) -> None:
        if self._batches is not None:
            await self._batches.close()

    def _opened(self) -> ProviderBatches:
        if self._batches is None:
            session, proxy = self._client.session_for(self._target)
            folder = self._folder()
            if folder is None:
                raise ModelError("batches are sent by runs alone", reason="bad_request")
            interface = INTERFACES[self.provider](self._target, proxy, session)
            self._batches = ProviderBatches(interface, folder)
        return self._batches


class _AtBatchPrice:
    """The route at the price of its batches."""

    def __init__(self, route: BatchRoute, price: Price | None) -> None:
        self.provider, self.endpoint, self.price = route.provider, route.endpoint, price
        self.not_sent, self.answer = route.not_sent, route.answer
