"""Passages are ranked by a server: by its scores, or by the angle between embeddings."""

from typing import Any

import pytest
from aiohttp import web
from http_servers import answering

from proctor.dialogue.steps import best_passage
from proctor.dialogue.tools import WorldError
from proctor.testing.model_server import ModelServer, ServerReply

PASSAGES = {"sleep": "night", "work": "office", "food": "lunch"}


async def best(reply: Any, path: str = "/chat/completions", **passages: str) -> tuple[str, list[Any]]:
    requests = list[Any]()

    def answer(request: dict[str, Any]) -> ServerReply:
        requests.append(request)
        given = reply(request) if callable(reply) else reply
        return given if isinstance(given, ServerReply) else ServerReply(body=given)

    async with ModelServer(answer) as server:
        return await best_passage(f"{server.url}{path}", "m", "tired", passages or PASSAGES), requests


def embeddings(*vectors: list[float]) -> Any:
    return lambda request: {
        "data": [
            {"embedding": vector} for vector in (vectors[:-1] if len(request["input"]) > 1 else vectors[-1:])
        ]
    }


async def test_the_passage_with_the_smallest_angle_is_the_nearest() -> None:
    name, requests = await best(embeddings([1, 0], [100, 100], [0, 0], [0.1, 0.09]))
    assert name == "work"
    assert requests[0] == {"model": "m", "input": ["sleep: night", "work: office", "food: lunch"]}
    assert requests[1] == {"model": "m", "input": ["tired"]}
    assert (await best(embeddings([-1, 0], [-2, 0.1], [0, 0], [1, 0])))[0] == "food"


async def test_too_few_embeddings_and_empty_ones_are_refused() -> None:
    with pytest.raises(WorldError, match="returned 2 embeddings for 3 texts"):
        await best(embeddings([1, 0], [0, 1], [1, 1]))
    with pytest.raises(WorldError, match="returned 3 embeddings for 3 texts"):
        await best(embeddings([1], [], [1], [1]))


async def test_a_server_that_answers_with_an_error_is_quoted() -> None:
    with pytest.raises(WorldError, match=r"answered 503: "):
        await best(ServerReply(status=503, body={"error": "busy"}))


@pytest.mark.parametrize(
    ("results", "name"),
    [
        ([{"index": 0, "relevance_score": 0.1}, {"index": 2, "relevance_score": 0.9}, {"index": 1}], "food"),
        ([{"index": 3, "relevance_score": 0.9}], None),
        ([{"index": -1, "relevance_score": 0.9}], None),
        ([], None),
    ],
)
async def test_a_server_that_scores_passages_names_the_best(results: list[object], name: str | None) -> None:
    requests = list[Any]()

    async def rank(request: web.Request) -> web.Response:
        requests.append(await request.json())
        return web.json_response({"results": results})

    async with answering(rank) as url:
        if name:
            assert await best_passage(f"{url}/rerank", "m", "tired", PASSAGES) == name
        else:
            with pytest.raises(WorldError, match="returned no result"):
                await best_passage(f"{url}/rerank", "m", "tired", PASSAGES)
    texts = ["sleep: night", "work: office", "food: lunch"]
    assert requests == [{"model": "m", "query": "tired", "documents": texts, "top_n": 1}]
