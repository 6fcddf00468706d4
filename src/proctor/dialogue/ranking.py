"""Choose the passage nearest to a text with a server: one that reranks, or one that returns embeddings.

A URL that ends with `/rerank` is asked as Cohere, Jina and vLLM define it; any other as OpenAI defines
`/embeddings`.
"""

import json
import math
from collections.abc import Mapping, Sequence

from proctor.cache import LruCache
from proctor.dialogue.tools import WorldError, send
from proctor.item import digest_of
from proctor.json_values import JsonMap, as_integer, as_number, as_sequence, json_object, maps_in

CACHED_SETS = 32
_EMBEDDED: LruCache[str, Sequence[Sequence[float]]] = LruCache(CACHED_SETS)
"""Embeddings of sets of passages: they are the same in every turn of every dialogue."""


async def best_passage(url: str, model: str, text: str, passages: Mapping[str, str]) -> str:
    """The name of the passage nearest to a text. Raises `WorldError`."""
    names, texts = list(passages), [f"{name}: {passage}" for name, passage in passages.items()]
    if url.rstrip("/").endswith("/rerank"):
        answer = await _post(url, {"model": model, "query": text, "documents": texts, "top_n": 1})
        best = max(
            maps_in(answer.get("results")),
            key=lambda each: as_number(each, "relevance_score") or 0,
            default={},
        )
        number = as_integer(best, "index")
    else:
        vectors, vector = await _passages(url, model, texts), (await _embeddings(url, model, [text]))[0]
        number = max(range(len(vectors)), key=lambda index: _cosine(vector, vectors[index]))
    if number is None or not 0 <= number < len(names):
        raise WorldError(f"the ranking server {url} returned no result")
    return names[number]


async def _passages(url: str, model: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    key = digest_of([url, model, list(texts)])
    vectors = _EMBEDDED.get(key)
    if vectors is None:
        vectors = await _embeddings(url, model, texts)
        _EMBEDDED.put(key, vectors)
    return vectors


async def _embeddings(url: str, model: str, texts: Sequence[str]) -> list[list[float]]:
    answer = await _post(url, {"model": model, "input": list(texts)})
    vectors = [
        [as_number(number) or 0.0 for number in as_sequence(each.get("embedding"))]
        for each in maps_in(answer.get("data"))
    ]
    if len(vectors) != len(texts) or not all(vectors):
        raise WorldError(
            f"the ranking server {url} returned {len(vectors)} embeddings for {len(texts)} texts"
        )
    return vectors


async def _post(url: str, body: JsonMap) -> JsonMap:
    status, text = await send(url, body, what="ranking passages")
    answer = json_object(text)
    if status != 200 or answer is None:
        raise WorldError(f"the ranking server {url} answered {status}: {json.dumps(text[:200])}")
    return answer


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=False)) / lengths if lengths else 0.0
