"""A provider on loopback: the OpenAI chat completions interface, with configured answers.

    async with ModelServer([reply("Paris."), failure(429, retry_after=1), reply("Rome.")]) as server:
        environment = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "any"}
        ...
        assert server.requests[0]["messages"][0]["content"] == "The capital of France?"

The answers are given in turn; the last one is repeated. A function is called with each request
and may decide for itself. What was asked is kept, so that a test can look at it.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from aiohttp import web


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReply:
    """One answer of the server."""

    status: int = 200
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_seconds: float = 0.0
    hangs_up: bool = False
    """Close the connection half-way instead of answering."""
    billed_tokens: tuple[int, int] | None = None
    """Input and output tokens that it bills. None: those of the usage in `body`, of a 200."""
    raw: bytes = b""
    """The body as it is, instead of `body`: anything but JSON."""


def reply(
    text: str,
    *,
    input_tokens: int = 10,
    output_tokens: int = 5,
    cached_tokens: int = 0,
    finish_reason: str = "stop",
    tool_calls: Sequence[Mapping[str, Any]] = (),
    delay_seconds: float = 0.0,
) -> ServerReply:
    """An answer as OpenAI gives it; a tool call is `{"name": …, "arguments": {…}}`."""
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if tool_calls:
        finish_reason = "tool_calls"
        message["tool_calls"] = [_tool_call(number, call) for number, call in enumerate(tool_calls, 1)]
    usage = {
        "prompt_tokens": input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "choices": [choice], "usage": usage}
    return ServerReply(body=body, delay_seconds=delay_seconds)


def failure(status: int, message: str = "no", *, retry_after: float | None = None) -> ServerReply:
    """An error response, with `retry-after` where the provider would send it."""
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    return ServerReply(
        status=status, body={"error": {"message": message, "type": "server_error"}}, headers=headers
    )


def hang_up() -> ServerReply:
    """A connection that breaks off half-way through the answer."""
    return ServerReply(hangs_up=True)


Answering = Sequence[ServerReply] | Callable[[Mapping[str, Any]], ServerReply]


class ModelServer:
    """A server that runs as long as its block."""

    def __init__(
        self,
        answers: Answering = (),
        *,
        names: Sequence[str] = (),
        port: int = 0,
        prices: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """`answers` are given in turn, "OK." when there are none; `names` are the models it lists. Port 0 is
        any that is free. `prices` are what it bills: USD per million tokens of input and of output."""
        self._port = port
        self.prices = prices
        self.billed_usd: dict[str, float] = {}
        """What it bills, by model: all requests that it processed, whatever its clients got of them."""
        self.answers = answers
        """May be set at any time; a list of answers then starts over."""
        self.requests: list[dict[str, Any]] = []
        """The bodies of all requests, first one first."""
        self.headers: list[dict[str, str]] = []
        self.url = ""
        """The value for OPENAI_BASE_URL."""
        self.at_once = 0
        """Requests that are being answered now; one whose connection was closed no longer is."""
        self.most_at_once = 0
        self.batch_seconds = 0.0
        """Until a batch ends."""
        self.batch_answers: int | None = None
        """Requests of each batch that are answered before it expires. None: all."""
        self.batches: list[dict[str, Any]] = []
        """The batches that were created, as their interface shows them."""
        self._files: dict[str, bytes] = {}
        self._given: Answering = answers
        self._position = 0
        """Answers of `_given` that were given."""
        self._names = names
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> "ModelServer":
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_get("/v1/models", self._list)
        app.router.add_post("/v1/files", self._upload)
        app.router.add_get("/v1/files/{file}/content", self._content)
        app.router.add_post("/v1/batches", self._create_batch)
        app.router.add_get("/v1/batches", self._list_batches)
        app.router.add_get("/v1/batches/{batch}", self._batch)
        app.router.add_post("/v1/batches/{batch}/cancel", self._cancel_batch)
        app.router.add_post("/v1/messages/batches/{batch}/cancel", self._cancel_batch)
        app.router.add_post("/v1/batches/{batch}:cancel", self._cancel_batch)
        app.router.add_post("/v1/models/{model}:batchGenerateContent", self._create_content_batch)
        app.router.add_post("/v1/messages", self._answer)
        app.router.add_post("/v1/messages/batches", self._create_message_batch)
        app.router.add_get("/v1/messages/batches", self._list_batches)
        app.router.add_get("/v1/messages/batches/{batch}", self._batch)
        app.router.add_get("/v1/messages/batches/{batch}/results", self._message_results)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=4096).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        answer = self._next(body)
        self._bill(str(body.get("model", "")), answer)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(answer.delay_seconds)
        finally:
            self.at_once -= 1
        if answer.hangs_up:
            return await _break_off(request)
        if answer.raw:
            return web.Response(body=answer.raw, status=answer.status, headers=answer.headers)
        sent = {"model": body.get("model", ""), **answer.body}
        if request.path == "/v1/messages" and answer.status == 200:
            sent = _message(sent)
        return web.json_response(sent, status=answer.status, headers=answer.headers)

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": name, "object": "model"} for name in self._names]})

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        file = form["file"]
        assert isinstance(file, web.FileField)
        name = f"file-{len(self._files)}"
        self._files[name] = file.file.read()
        return web.json_response({"id": name, "object": "file", "purpose": form["purpose"]})

    async def _content(self, request: web.Request) -> web.Response:
        return web.Response(body=self._files[request.match_info["file"]])

    async def _create_batch(self, request: web.Request) -> web.Response:
        asked = await request.json()
        entries = [json.loads(line) for line in self._files[asked["input_file_id"]].splitlines()]
        answered, failed = list[str](), list[str]()
        for entry in entries[: self.batch_answers]:
            self.requests.append(entry["body"])
            answer = self._next(entry["body"])
            self._bill(str(entry["body"].get("model", "")), answer, 0.5)
            body = {"model": entry["body"].get("model", ""), **answer.body}
            response = {"status_code": answer.status, "request_id": "req", "body": body}
            line = json.dumps({"custom_id": entry["custom_id"], "response": response, "error": None})
            (answered if answer.status == 200 else failed).append(line)
        name = f"batch-{len(self.batches)}"
        files = {"output_file_id": answered, "error_file_id": failed}
        for member, lines in files.items():
            if lines:
                self._files[f"{name}-{member}"] = "\n".join(lines).encode()
        ended = "completed" if len(answered) + len(failed) == len(entries) else "expired"
        self.batches.append(
            {
                "id": name,
                "object": "batch",
                "status": ended,
                "metadata": asked.get("metadata"),
                "ends": asyncio.get_running_loop().time() + self.batch_seconds,
                **{member: f"{name}-{member}" for member, lines in files.items() if lines},
            }
        )
        return web.json_response(self._shown(self.batches[-1]))

    async def _create_message_batch(self, request: web.Request) -> web.Response:
        entries = (await request.json())["requests"]
        lines = list[str]()
        for number, entry in enumerate(entries):
            result: dict[str, Any] = {"type": "expired"}
            if self.batch_answers is None or number < self.batch_answers:
                body = entry["params"]
                self.requests.append(body)
                answer = self._next(body)
                self._bill(str(body.get("model", "")), answer, 0.5)
                kind = "invalid_request_error" if answer.status == 400 else "api_error"
                result = {"type": "errored", "error": {"type": "error", "error": {"type": kind}}}
                if answer.status == 200:
                    message = _message({"model": body.get("model", ""), **answer.body})
                    result = {"type": "succeeded", "message": message}
            lines.append(json.dumps({"custom_id": entry["custom_id"], "result": result}))
        name = f"msgbatch_{len(self.batches)}"
        self._files[name] = "\n".join(lines).encode()
        ends = asyncio.get_running_loop().time() + self.batch_seconds
        counts = {"processing": 0, "succeeded": len(entries)}
        self.batches.append(
            {"id": name, "processing_status": "ended", "request_counts": counts, "ends": ends}
        )
        return web.json_response(self._shown(self.batches[-1]))

    async def _create_content_batch(self, request: web.Request) -> web.Response:
        asked, model = (await request.json())["batch"], request.match_info["model"]
        answers = list[dict[str, Any]]()
        for entry in asked["inputConfig"]["requests"]["requests"][: self.batch_answers]:
            body = {"model": model, **_as_completion(entry["request"])}
            self.requests.append(body)
            answer = self._next(body)
            self._bill(model, answer, 0.5)
            said: dict[str, Any] = {"error": {"code": 3 if answer.status == 400 else 13, "message": "no"}}
            if answer.status == 200:
                said = {"response": _generated(answer.body)}
            answers.append({"metadata": entry["metadata"], **said})
        name = f"batch-{len(self.batches)}"
        self.batches.append(
            {
                "id": name,
                "name": f"batches/{name}",
                "metadata": {"displayName": asked["displayName"], "state": "BATCH_STATE_RUNNING"},
                "done": True,
                "response": {"inlinedResponses": {"inlinedResponses": answers}},
                "ends": asyncio.get_running_loop().time() + self.batch_seconds,
            }
        )
        return web.json_response(self._shown(self.batches[-1]))

    async def _message_results(self, request: web.Request) -> web.Response:
        return web.Response(body=self._files[request.match_info["batch"]])

    async def _batch(self, request: web.Request) -> web.Response:
        found = [each for each in self.batches if each["id"] == request.match_info["batch"]]
        return web.json_response(self._shown(found[0]) if found else {}, status=200 if found else 404)

    async def _cancel_batch(self, request: web.Request) -> web.Response:
        """It may have answered all requests by now: its bill stays."""
        found = [each for each in self.batches if each["id"] == request.match_info["batch"]]
        found[0].update(status="cancelled", ends=0.0)
        return web.json_response(self._shown(found[0]))

    async def _list_batches(self, _: web.Request) -> web.Response:
        shown = [self._shown(each) for each in self.batches]
        return web.json_response({"data": shown, "operations": shown})

    @staticmethod
    def _shown(batch: Mapping[str, Any]) -> dict[str, Any]:
        if asyncio.get_running_loop().time() >= batch["ends"]:
            return dict(batch)
        shown = {name: batch[name] for name in ("id", "name", "metadata", "request_counts") if name in batch}
        return shown | {"status": "in_progress", "processing_status": "in_progress"}

    def _bill(self, model: str, answer: ServerReply, factor: float = 1.0) -> None:
        tokens = answer.billed_tokens
        if tokens is None:
            usage = answer.body.get("usage") if answer.status == 200 else None
            tokens = (usage["prompt_tokens"], usage["completion_tokens"]) if usage else (0, 0)
        usd = factor * (tokens[0] * self.prices[0] + tokens[1] * self.prices[1]) / 1e6
        self.billed_usd[model] = self.billed_usd.get(model, 0.0) + usd

    def _next(self, body: Mapping[str, Any]) -> ServerReply:
        answers = self.answers
        if callable(answers):
            return answers(body)
        if answers is not self._given:
            self._given, self._position = answers, 0
        self._position += 1
        return answers[min(self._position, len(answers)) - 1] if answers else reply("OK.")


async def _break_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"choices": [')
    if request.transport is not None:
        request.transport.close()
    return response


def _message(completion: Mapping[str, Any]) -> dict[str, Any]:
    """A chat completion as Anthropic's interface shows it."""
    choice, usage = completion["choices"][0], completion["usage"]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": completion["model"],
        "content": [{"type": "text", "text": choice["message"]["content"]}],
        "stop_reason": {"length": "max_tokens"}.get(choice["finish_reason"], "end_turn"),
        "usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]},
    }


def _as_completion(request: Mapping[str, Any]) -> dict[str, Any]:
    """What Gemini's interface was asked, as a chat completion."""
    said = [("user", each) for each in request["contents"]]
    if "systemInstruction" in request:
        said.insert(0, ("system", request["systemInstruction"]))
    messages = [{"role": role, "content": each["parts"][0]["text"]} for role, each in said]
    return {"messages": messages, "max_tokens": request["generationConfig"].get("maxOutputTokens")}


def _generated(completion: Mapping[str, Any]) -> dict[str, Any]:
    """A chat completion as Gemini's interface shows it."""
    choice, usage = completion["choices"][0], completion["usage"]
    content = {"role": "model", "parts": [{"text": choice["message"]["content"]}]}
    end = {"length": "MAX_TOKENS"}.get(choice["finish_reason"], "STOP")
    counts = {
        "promptTokenCount": usage["prompt_tokens"],
        "candidatesTokenCount": usage["completion_tokens"],
        "totalTokenCount": usage["total_tokens"],
    }
    return {"candidates": [{"content": content, "finishReason": end}], "usageMetadata": counts}


def _tool_call(number: int, call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments", {})
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {
        "id": f"call_{number}",
        "type": "function",
        "function": {"name": call["name"], "arguments": written},
    }
