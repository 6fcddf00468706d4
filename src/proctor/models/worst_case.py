"""The most that a request can cost, or why that has no bound; and what its answer has cost.

One place for both kinds of calls, Proctor's own and those of agents on the gateway. Every part of a request
for which providers charge is in the tables below: text by its size, images and documents by the provider's
maximum, tools that the provider runs by uses and fee. A request with anything else is refused where there is
a budget. The figures are those of the providers' price pages in November 2026.
"""

import re
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from proctor.json_values import JsonMap, JsonObject, as_list, as_map, as_text, maps_in, member
from proctor.model import WireAnswer
from proctor.models.prices import (
    LONG_WRITE_FACTOR,
    Price,
    SpendingRequest,
    answer_count,
    positive,
    thinking_budget,
    usual_limit,
)
from proctor.session import Usage

if TYPE_CHECKING:
    from proctor.models.providers import Endpoint

# English has four letters per token, source code three, and Chinese one character of three bytes.
BYTES_PER_TOKEN = 3

DENSE = 0.5
"""Part of its size to which text without words compresses at best."""
ADDED_TOKENS = 32
"""Of the template in which a model reads the messages."""
ADDED_TOOL_TOKENS = 550
"""Of the text with which providers explain tools to the model; the longest is Anthropic's."""

# No model reads or writes as many tokens in one call.
MOST_TOKENS = 4_000_000

IMAGE_TOKENS = (
    # 2833 tokens and 5667 for each of at most 8 tiles.
    (r"gpt-4o-mini", 48_169),
    # 85 (or fewer) and 170 for each of at most 8 tiles.
    (r"gpt-4o|gpt-4\.1$|gpt-4\.1-20|gpt-4-turbo|gpt-5$|gpt-5-20|gpt-5-chat|o1|o3", 1445),
    # At most 1536 patches, times 2.46.
    (r"gpt-4\.1|gpt-5|o4", 3779),
    # Up to 2576 pixels at the long edge.
    (r"claude", 4784),
    # 258 for each of at most 16 tiles.
    (r"gemini", 4128),
    # The highest of all.
    (r"", 48_169),
)
"""The most tokens that one image counts as, by model family; its size in bytes does not matter."""
CONTEXT_TOKENS = (
    (r"gpt-3", 16_385),
    (r"gpt-4o|gpt-4-turbo|gpt-4\.5|chatgpt", 128_000),
    (r"claude-3|claude-(opus|sonnet|haiku)-4(-[015]|-2025|$)|o[1-9]", 200_000),
    (r"gemini-1\.5-pro", 2_097_152),
    (r"", 1_050_000),
)
"""The most tokens that a model reads at once, by family. A PDF of a few bytes can have any number of pages,
each billed as text and image: what bounds its cost is what the model reads at most."""
LONG_CONTEXT_TOKENS = 1_050_000
"""With Anthropic's beta header for longer prompts."""

TEXT_PARTS = frozenset(
    {
        "text",
        "input_text",
        "output_text",
        "summary_text",
        "reasoning_text",
        "refusal",
        "message",
        "encrypted_content",
        "reasoning",
        "thinking",
        "redacted_thinking",
        "compaction",
        "compaction_summary",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "local_shell_call",
        "local_shell_call_output",
        "shell_call",
        "shell_call_output",
        "apply_patch_call",
        "apply_patch_call_output",
        "tool_search_call",
        "tool_search_output",
        "web_search_call",
        "tool_use",
        "tool_result",
        "tool_reference",
        "server_tool_use",
        "web_search_tool_result",
        "tool_search_tool_result",
        "search_result",
        "web_fetch_tool_result",
        "computer_call",
        "computer_call_output",
    }
)
"""Kinds of content whose cost is that of their size."""
COMPACTIONS = ("compaction", "compaction_summary")
IMAGE_PARTS = frozenset({"image_url", "input_image", "image", "computer_screenshot"})
DOCUMENT_PARTS = frozenset({"file", "input_file", "document"})
CALLED_HERE = (
    "function",
    "custom",
    "namespace",
    "local_shell",
    "apply_patch",
    "computer",
    "bash_",
    "text_editor_",
    "memory_",
    "tool_search",
)
"""How the kinds of tools begin that the client itself runs; a `shell` is one unless it has an environment."""
SEARCHES = ("web_search", "google_search")
"""How the kinds of tools begin that search the web for a fee."""
FETCHES = ("web_fetch",)
HOSTED_TOOL_USES = 3
"""Uses of tools that the provider runs itself, for requests that do not limit them; sent with the request."""
SEARCH_RESULT_TOKENS = 8000
"""Size of the results of one search, which the model reads in addition to the prompt."""
FETCHED_TOKENS = 20_000
"""Size of a fetched page, for requests that do not limit it; sent with the request."""
FIX = "remove it, or run without a budget"
UNPRICED: Mapping[str, str] = {
    "previous_response_id": "earlier responses are read and billed again; send the whole input",
    "conversation": "a stored conversation is read and billed; send the whole input",
    "prompt": "a stored prompt is read and billed; send its text",
    "cachedContent": "stored content is read and billed; send the content itself",
    "cached_content": "stored content is read and billed; send the content itself",
    "modalities": f"sound and images have prices of their own; {FIX}",
    "audio": f"sound has a price of its own; {FIX}",
    "web_search_options": f"each search has a fee that depends on the model; {FIX}",
    "search_parameters": f"each source has a fee; {FIX}",
    "enable_search": f"each search has a fee; {FIX}",
    "plugins": f"plugins have fees; {FIX}",
    "container": f"containers have a fee; {FIX}",
    "models": f"another model has another price; {FIX}",
    "fallbacks": f"another model has another price; {FIX}",
    "route": f"another model has another price; {FIX}",
    "provider": f"the price depends on the provider that is selected; {FIX}",
    "connectors": f"searches have fees; {FIX}",
    "num_retries": "the library would repeat calls that may be billed; Proctor repeats them itself",
    "max_retries": "the library would repeat calls that may be billed; Proctor repeats them itself",
    "mcp_servers": f"the results of the provider's own calls have no bound; {FIX}",
}
"""Members of requests whose cost has no bound that is known before the call. Unset ones do not matter."""
MORE_THAN_TOKENS = re.compile(r"-search-|sonar|deep-research|-image|-audio|realtime|-tts|compound")
"""Models that search for a fee with every call, or answer with sound and images."""
UNPRICED_SETTINGS: Mapping[str, str] = {
    "responseModalities": f"sound and images have prices of their own; {FIX}",
    "speechConfig": f"sound has a price of its own; {FIX}",
    "imageConfig": f"images have prices of their own; {FIX}",
}
"""The same in Gemini's `generationConfig`."""
TIERS = frozenset(
    {"", "auto", "default", "flex", "scale", "standard", "standard_only", "on_demand", "priority"}
)
"""Values of `service_tier` whose price is known."""
GEMINI_TOOLS = frozenset({"functionDeclarations", "function_declarations"})
COUNTS_REASONING = frozenset({"openai", "azure", "anthropic", "gemini", "deepseek", "groq", "mistral"})
"""Providers that document that their limits on answers include reasoning. xAI does not count it, and what
stands behind an address of the user's own is unknown."""
IN_PROCESS = ("scripted/", "replay/", "python/")
"""Models that nobody bills."""
NO_REASONING = (
    ("reasoning_effort", "none"),
    ("reasoning", "effort", "none"),
    ("reasoning", "enabled", False),
    ("thinking", "type", "disabled"),
    ("enable_thinking", False),
    ("chat_template_kwargs", "enable_thinking", False),
)
"""How requests turn reasoning off."""


class _NotPriced(Exception):
    """The cost of a request has no bound; the message says of which part."""


class _PartCosts(NamedTuple):
    """What the parts of a request add to its text."""

    tokens: int
    replaced_bytes: int
    """Size of the images and documents that `tokens` stand for."""
    reads_files: bool = False
    """Whether there is a document, so that the whole context may be read."""


def worst_case_of(
    model: str,
    body: JsonMap,
    output_limit: int | None,
    price: Price | None,
    *,
    endpoint: "Endpoint | None" = None,
    has_long_context: bool = False,
) -> SpendingRequest:
    """The worst case of one call; `body` is the request in any format, `output_limit` the one it sets.

    `endpoint` is where it goes; None: unknown. `has_long_context`: a header lets the model read more.
    """
    limit = output_limit or usual_limit(model)
    refusal = ""
    try:
        content = _content(model, body)
        uses, result_tokens = _hosted_uses(body)
        _check_members(body)
        _check_model(model, body, price)
    except _NotPriced as unknown:
        refusal, content, uses, result_tokens = str(unknown), _PartCosts(0, 0), 0, 0
    tokens = _text_tokens(body, _size(body) - content.replaced_bytes) + 1 + content.tokens
    tokens += ADDED_TOKENS + (ADDED_TOOL_TOKENS if body.get("tools") else 0)
    if content.reads_files:
        tokens = max(tokens, LONG_CONTEXT_TOKENS if has_long_context else context_tokens(model))
    if uses:
        # The model reads the prompt again after each use, with what it wrote before.
        tokens = tokens * (1 + uses) + result_tokens * uses * (uses + 1) // 2 + limit * uses
    input_usd = output_usd = None
    margin_usd = 0.0
    answers = answer_count(body)
    if price is not None:
        price = price.for_request(body)
        # Writing to the cache has the highest rate.
        writes = Usage(input_tokens=tokens, cache_write_tokens=tokens, web_searches=uses)
        plain = Usage(input_tokens=tokens, web_searches=uses)
        input_usd = max(price.for_call(writes)[0], price.for_call(plain)[0])
        rates = price.for_call(plain)[1]
        if _writes_for_an_hour(body):
            hourly = Usage(
                input_tokens=tokens,
                cache_write_tokens=tokens,
                long_cache_write_tokens=tokens,
                web_searches=uses,
            )
            least = LONG_WRITE_FACTOR * rates["input"] * tokens / 1e6 + uses * price.search_usd
            input_usd = max(input_usd, price.for_call(hourly)[0], least)
        output_usd = rates["output"] / 1e6
        if prediction := body.get("prediction"):
            # Those of its tokens that the model does not use are billed like an answer.
            input_usd += answers * output_usd * (_size(prediction) // BYTES_PER_TOKEN)
        margin_usd = answers * output_usd * _reasoning_margin(model, body, endpoint)
    return SpendingRequest(
        model=model,
        input_tokens=tokens,
        output_tokens=limit,
        input_usd=input_usd,
        output_usd_per_token=output_usd,
        answers=answers,
        margin_usd=margin_usd,
        sets_limit=output_limit is None,
        refusal=refusal,
    )


def with_tool_limits(body: JsonMap) -> JsonMap:
    """The request with limits for tools that the provider runs, where it sets none: the reserved ones."""
    tools = maps_in(body, "tools")
    if not any(_begins(tool, (*SEARCHES, *FETCHES)) for tool in tools):
        return body
    if "messages" not in body:
        # Responses limit all tools together. A higher limit than the reserved one is lowered to it.
        return {**body, "max_tool_calls": _hosted_uses(body)[0]}
    return {**body, "tools": [_limited(tool) for tool in as_list(body.get("tools"))]}


def _limited(tool: object) -> object:
    if not isinstance(tool, Mapping) or not _begins(tool, (*SEARCHES, *FETCHES)):
        return tool
    limited: JsonObject = {**tool, "max_uses": positive(tool.get("max_uses")) or HOSTED_TOOL_USES}
    if _begins(tool, FETCHES):
        limited["max_content_tokens"] = positive(tool.get("max_content_tokens")) or FETCHED_TOKENS
    return limited


def context_tokens(model: str) -> int:
    """The most tokens that a model reads in one call."""
    return _of_family(CONTEXT_TOKENS, model)


def _of_family(table: tuple[tuple[str, int], ...], model: str) -> int:
    name = model.rpartition("/")[2]
    return next(tokens for family, tokens in table if re.match(family, name))


def _content(model: str, body: JsonMap) -> _PartCosts:
    """What images and documents add; `_NotPriced` for content of unknown cost."""
    tokens = replaced = stored_tokens = 0
    reads_files = False
    for part in _parts(body):
        kind = _kind(part)
        if part.get("id") and not part.get("encrypted_content"):
            stored_tokens += _stored_tokens(model, part)
        if kind == "image":
            tokens += _of_family(IMAGE_TOKENS, model)
            replaced += _inline_bytes(part)
        elif kind == "document":
            reads_files = True
            replaced += _inline_bytes(part)
        elif kind:
            raise _NotPriced(f"the cost of `{kind}` content is not known before the call: {FIX}")
    return _PartCosts(tokens + min(stored_tokens, context_tokens(model)), replaced, reads_files)


def _stored_tokens(model: str, item: JsonMap) -> int:
    """The most tokens that an item stands for which the provider has stored: its ID is enough to read it."""
    if item.get("type") == "web_search_call":
        return SEARCH_RESULT_TOKENS
    return usual_limit(model) if item.get("type") in ("reasoning", *COMPACTIONS) else 0


def _kind(part: JsonMap) -> str:
    """`image`, `document`, empty for text, or the name of something else."""
    kind = part.get("type")
    if not isinstance(kind, str):
        return _kind_of_gemini(part)
    if kind in TEXT_PARTS:
        return ""
    if kind in IMAGE_PARTS:
        return _kind_of_media(_media_type(part) or "image")
    if kind in DOCUMENT_PARTS:
        # Text and lists of parts are counted by themselves.
        if as_map(part, "source").get("type") in ("text", "content"):
            return ""
        media = _kind_of_media(_media_type(part) or "application")
        return "document" if media == "image" else media
    return kind


def _media_type(part: JsonMap) -> str:
    """What the data in a part is by its own account; empty: it is an address, or does not say.

    Some servers read documents, videos and sound wherever an image is expected.
    """
    for value in _inline_texts(part):
        if value[:5].lower() == "data:":
            return value[5:100].partition(",")[0].partition(";")[0] or "unknown"
    return as_text(part, "source", "media_type")


def _kind_of_media(media_type: str) -> str:
    family = media_type.partition("/")[0].strip().lower()
    if family in ("application", "text"):
        return "document"
    return family if family == "image" else f"{family or 'unknown'} data"


def _kind_of_gemini(part: JsonMap) -> str:
    for name in ("inlineData", "inline_data"):
        if data := as_map(part, name):
            return _kind_of_media(as_text(data, "mimeType") or as_text(data, "mime_type"))
    if "fileData" in part or "file_data" in part:
        return "fileData"
    return ""


def _parts(body: JsonMap) -> Iterator[JsonMap]:
    """The parts of all messages of a request, in any format, with those of the results of tools."""
    names = ("messages", "input", "contents", "system", "systemInstruction", "system_instruction")
    waiting = [body[name] for name in names if name in body]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, Mapping):
            yield value
            waiting += [value[name] for name in ("content", "parts", "output") if name in value]
            for name in ("functionResponse", "function_response", "source"):
                below = value.get(name)
                if isinstance(below, Mapping):
                    waiting += [below[inner] for inner in ("parts", "content") if inner in below]


def _inline_bytes(part: JsonMap) -> int:
    """Size of the data in a part; 0 when it refers to something else."""
    return sum(map(len, _inline_texts(part)))


def _inline_texts(part: JsonMap) -> tuple[str, ...]:
    return (
        as_text(part, "image_url"),
        as_text(part, "image_url", "url"),
        as_text(part, "source", "data"),
        as_text(part, "file", "file_data"),
        as_text(part, "file_data"),
        as_text(part, "inlineData", "data"),
        as_text(part, "inline_data", "data"),
    )


def _hosted_uses(body: JsonMap) -> tuple[int, int]:
    """How often tools that the provider runs may be used, and the size of a result; `_NotPriced` for a tool
    of unknown cost."""
    uses = result_tokens = 0
    for tool in maps_in(body, "tools"):
        kind = as_text(tool, "type")
        if _begins(tool, SEARCHES):
            uses += positive(tool.get("max_uses")) or HOSTED_TOOL_USES
            result_tokens = max(result_tokens, SEARCH_RESULT_TOKENS)
        elif _begins(tool, FETCHES):
            uses += positive(tool.get("max_uses")) or HOSTED_TOOL_USES
            result_tokens = max(result_tokens, positive(tool.get("max_content_tokens")) or FETCHED_TOKENS)
        elif not kind:
            _check_untyped(tool)
        elif not _is_called_here(tool, kind):
            raise _NotPriced(f"the cost of the tool `{kind[:80]}` is not known before the call: {FIX}")
    return min(uses, positive(body.get("max_tool_calls")) or uses), result_tokens


def _begins(tool: JsonMap, kinds: tuple[str, ...]) -> bool:
    kind = tool.get("type")
    return isinstance(kind, str) and kind.startswith(kinds)


def _is_called_here(tool: JsonMap, kind: str) -> bool:
    return kind.startswith(CALLED_HERE) or (kind == "shell" and not tool.get("environment"))


def _check_untyped(tool: JsonMap) -> None:
    """Gemini names its own tools by the member that configures them; others omit the type of functions."""
    if "function" in tool or "input_schema" in tool or "name" in tool:
        return
    for name, value in tool.items():
        if name not in GEMINI_TOOLS and value is not None:
            raise _NotPriced(f"the cost of the tool `{name[:80]}` is not known before the call: {FIX}")


def _check_members(body: JsonMap) -> None:
    """Raise `_NotPriced` for a parameter of unknown cost."""
    for name, why in UNPRICED.items():
        value = body.get(name)
        if value in (None, "", False, [], {}) or (name == "modalities" and value == ["text"]):
            continue
        raise _NotPriced(f"`{name}` has no cost that is known before the call: {why}")
    for group in ("generationConfig", "generation_config"):
        settings = as_map(body, group)
        for name, why in UNPRICED_SETTINGS.items():
            value = settings.get(name)
            if value not in (None, [], {}, ["TEXT"]):
                raise _NotPriced(f"`{group}.{name}` has no cost that is known before the call: {why}")
    for name in ("service_tier", "serviceTier"):
        if name in body and as_text(body, name).lower() not in TIERS:
            raise _NotPriced(f"the price of `{name}` {str(body[name])[:40]!r} is not known: {FIX}")
    for edit in maps_in(body, "context_management", "edits"):
        if as_text(edit, "type").startswith("compact"):
            raise _NotPriced(f"`context_management` with {edit['type']} has no known cost: {FIX}")


def _check_model(model: str, body: JsonMap, price: Price | None) -> None:
    """Raise `_NotPriced` for a model whose listed price is not all that is billed, or where its library may
    replace any parameter."""
    if price is not None and price.source != "plan" and MORE_THAN_TOKENS.search(model):
        raise _NotPriced(f"{model} bills more than tokens: declare the most they can cost under `prices`")
    if model.startswith("litellm/") and body.get("extra_body"):
        raise _NotPriced("`extra_body` replaces any parameter: write its members in `settings` themselves")


def _writes_for_an_hour(body: JsonMap) -> bool:
    """Whether a part of the request is to be cached for longer than the usual five minutes."""
    waiting: list[object] = [body]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            control = value.get("cache_control")
            if isinstance(control, Mapping) and control.get("ttl") not in (None, "5m"):
                return True
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
    return False


def _reasoning_margin(model: str, body: JsonMap, endpoint: "Endpoint | None") -> int:
    """Tokens that one answer may reason beyond its limit."""
    if model.startswith(IN_PROCESS):
        return 0
    if endpoint is not None and _counts_reasoning(endpoint):
        return 0
    if any(member(body, *path) == off for *path, off in NO_REASONING):
        return 0
    return thinking_budget(body) or usual_limit(model)


def _counts_reasoning(endpoint: "Endpoint") -> bool:
    """Whether the limit on an answer includes its reasoning, by the provider's documentation."""
    from proctor.models.providers import PROVIDERS

    if endpoint.provider not in COUNTS_REASONING:
        return False
    # Behind another address may be any server.
    return endpoint.provider == "azure" or endpoint.base_url == PROVIDERS[endpoint.provider].base_url


def billed_usage(answer: WireAnswer, body: JsonMap) -> tuple[Usage, bool]:
    """The tokens to charge for an answer of a model that is not free, and whether they are an estimate.

    Counts are taken as reported, also above the limit of the request: that is what is billed. Those that are
    missing or impossible are replaced by an estimate from the texts: no answer is free.
    """
    usage = answer.usage
    answers = answer_count(body)
    input_tokens, output_tokens, reasoning = usage.input_tokens, usage.output_tokens, usage.reasoning_tokens
    if not 0 < input_tokens <= MOST_TOKENS:
        input_tokens = estimated_tokens(body)
    is_wrong = output_tokens < reasoning or output_tokens > MOST_TOKENS * answers
    if is_wrong or not output_tokens:
        written_tokens = answer_tokens(answer, body)
        if is_wrong or written_tokens:
            output_tokens, reasoning = written_tokens, 0
    cached = usage.cached_tokens if usage.cached_tokens <= input_tokens else 0
    written = usage.cache_write_tokens if cached + usage.cache_write_tokens <= input_tokens else 0
    counts = (input_tokens, cached, output_tokens, reasoning, written)
    if counts == (
        usage.input_tokens,
        usage.cached_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        usage.cache_write_tokens,
    ):
        return usage, False
    return (
        Usage(
            input_tokens=input_tokens,
            cached_tokens=cached,
            output_tokens=output_tokens,
            reasoning_tokens=reasoning,
            cache_write_tokens=written,
            long_cache_write_tokens=min(written, usage.long_cache_write_tokens),
            web_searches=usage.web_searches,
        ),
        True,
    )


def answer_tokens(answer: WireAnswer, body: JsonMap) -> int:
    """Estimated tokens of all answers to a request."""
    texts = [answer.text, *(each.arguments for each in answer.tool_requests), answer.other_text]
    tokens = -(-len("".join(texts).encode("utf-8", "replace")) // BYTES_PER_TOKEN)
    # Where only one answer was read, the others are taken to be as long.
    return tokens if answer.other_text else tokens * answer_count(body)


USUAL_IMAGE_TOKENS = 2000


def estimated_tokens(body: JsonMap) -> int:
    """Estimated tokens of a request, rather too many than too few."""
    size, tokens = _size(body), 0
    for part in _parts(body):
        kind = _kind(part)
        if kind == "image":
            size, tokens = size - _inline_bytes(part), tokens + USUAL_IMAGE_TOKENS
        elif kind == "document":
            # Text of a document is usually compressed and encoded to about its own size.
            size -= _inline_bytes(part) // 4
    return size // BYTES_PER_TOKEN + 1 + tokens


def _text_tokens(body: JsonMap, size: int) -> int:
    """The most tokens of the text of a request; `size` is its size in bytes without images and documents.

    Base64, hex and other data without words has up to one token per byte, about as many as it has bytes when
    compressed. Words compress to less than half.
    """
    compressor = zlib.compressobj(level=1)
    packed = sum(len(compressor.compress(text)) for text in _texts(body)) + len(compressor.flush())
    return max(size // BYTES_PER_TOKEN, packed if packed > DENSE * size else 0)


def _texts(body: JsonMap) -> Iterator[bytes]:
    """All text in a request, but for the data of images and documents."""
    files = [part for part in _parts(body) if _kind(part) in ("image", "document")]
    data = {text for part in files for text in _inline_texts(part)}
    waiting: list[object] = [body]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if value not in data:
                yield value.encode("utf-8", "replace")
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value


def _size(value: object) -> int:
    size, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            size += len(each.encode("utf-8", "replace")) if not each.isascii() else len(each)
        elif isinstance(each, Mapping):
            for key, below in each.items():
                size += len(key) + 4
                waiting.append(below)
        elif isinstance(each, list | tuple):
            waiting += each
        else:
            size += 4
    return size
