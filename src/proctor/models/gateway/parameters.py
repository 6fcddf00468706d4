"""What a request of a client may contain, by API format: what passes, what is dropped, what is refused.

A member that the table does not list is dropped. So a request can name no other address, key, organization
or object of the account, at a provider or in a client library, and every parameter that may cost money is
in the table. `REQUESTS` is data: each rule says what happens to a value, and why.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from proctor.json_values import JsonMap, JsonObject

LONGEST_NAME = 80
"""Characters of a member's name in a note: the client chose it."""


class ParameterRefused(ValueError):
    """The request contains something that may not be sent and cannot be left out."""


class _Missing:
    """The value of a dropped member."""


MISSING: Final = _Missing()


class MemberRule(Protocol):
    """What happens to the value of a member."""

    def apply(self, value: object, path: str, dropped: list[str]) -> object:
        """The value to send, or `MISSING`; adds what was dropped below `path`. Raises `ParameterRefused`."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Passes with everything below it."""

    def apply(self, value: object, path: str, dropped: list[str]) -> object:  # noqa: ARG002
        return value


@dataclass(frozen=True, slots=True)
class Drop:
    """Is not sent; a note says so, unless `quiet`."""

    why: str
    quiet: bool = False

    def apply(self, value: object, path: str, dropped: list[str]) -> object:
        if not self.quiet and value is not None:
            dropped.append(path)
        return MISSING


@dataclass(frozen=True, slots=True)
class Refuse:
    """The whole request is refused: without the member it would mean something else."""

    why: str

    def apply(self, value: object, path: str, dropped: list[str]) -> object:  # noqa: ARG002
        """Nothing, when it is empty."""
        if value in (None, "", False, [], {}):
            return MISSING
        raise ParameterRefused(f"`{path}` is not accepted here: {self.why}")


@dataclass(frozen=True, slots=True)
class Inline:
    """Data that the request itself contains, never an address to fetch it from."""

    is_address: bool = False
    """Whether it has to be a `data:` address; otherwise base64 will do."""

    def apply(self, value: object, path: str, dropped: list[str]) -> object:  # noqa: ARG002
        """The value, unless somebody would have to fetch it."""
        is_data = isinstance(value, str) and value.startswith("data:")
        if is_data or value is None or (not self.is_address and BASE64.fullmatch(str(value))):
            return value
        raise ParameterRefused(f"`{path}` is not accepted here: {ADDRESS}")


BASE64 = re.compile(r"[A-Za-z0-9+/=_\s-]*")
ADDRESS = "it is an address to fetch from; send the data itself"


@dataclass(frozen=True, slots=True)
class Members:
    """An object with these members; others are dropped. Anything else than an object passes by `other`."""

    rules: Mapping[str, MemberRule]
    other: MemberRule = field(default_factory=Pass)
    is_camel: bool = False
    """Whether names are in camel case; `snake_case`, which Google accepts as well, is converted."""

    def apply(self, value: object, path: str, dropped: list[str]) -> object:
        if not isinstance(value, Mapping):
            return _not_a_list(self.other.apply(value, path, dropped), path)
        sent: JsonObject = {}
        for name, below in value.items():
            known = _camel(name) if self.is_camel else name
            rule = self.rules.get(known, UNKNOWN)
            shown = name if rule is UNKNOWN else known
            member = f"{path}.{shown[:LONGEST_NAME]}" if path else shown[:LONGEST_NAME]
            passed = rule.apply(below, member, dropped)
            if passed is not MISSING:
                sent[known] = passed
        return sent


@dataclass(frozen=True, slots=True)
class Each:
    """A list whose elements follow a rule. Text and other plain values pass."""

    rule: MemberRule

    def apply(self, value: object, path: str, dropped: list[str]) -> object:
        if isinstance(value, Mapping):
            raise ParameterRefused(f"`{path}` should be a list")
        if not isinstance(value, list):
            return value
        sent = (self.rule.apply(each, f"{path}[]", dropped) for each in value)
        return [each for each in sent if each is not MISSING]


@dataclass(frozen=True, slots=True)
class ByKind:
    """An object whose rule depends on its `type`; a kind that ends with `*` stands for all that begin so."""

    kinds: Mapping[str, MemberRule]
    usual: str = ""
    """The kind of objects that have no `type`."""
    sign: str = ""
    """The member by which an object without a `type` is of that kind, and not of the kind `""`."""

    def apply(self, value: object, path: str, dropped: list[str]) -> object:
        if not isinstance(value, Mapping):
            return _not_a_list(value, path)
        kind = str(value.get("type") or (self.usual if not self.sign or self.sign in value else ""))
        member = f"{path}<{kind[:LONGEST_NAME]}>" if kind else path
        return self.rule_of(kind).apply(value, member, dropped)

    def rule_of(self, kind: str) -> MemberRule:
        if rule := self.kinds.get(kind):
            return rule
        begun = (name for name in self.kinds if name.endswith("*") and kind.startswith(name[:-1]))
        return next((self.kinds[name] for name in begun), UNKNOWN)


def _not_a_list(value: object, path: str) -> object:
    if isinstance(value, list):
        raise ParameterRefused(f"`{path}` should not be a list")
    return value


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in rest) if head else name


class Allowed(NamedTuple):
    """A request with what passes."""

    body: JsonObject
    dropped: tuple[str, ...]
    """Members that were dropped, each once."""


def allowed(wire: str, body: JsonMap) -> Allowed:
    """The part of a request in the format `wire` that may be sent; `ParameterRefused`: it may not at all."""
    dropped = list[str]()
    sent = REQUESTS[wire].apply(body, "", dropped)
    assert isinstance(sent, dict)
    return Allowed(sent, tuple(dict.fromkeys(dropped)))


def library_parameters(parameters: JsonMap) -> Allowed:
    """Parameters of a request that is answered in this process: the names have to be known to all models."""
    sent = {name: value for name, value in parameters.items() if name in LIBRARY}
    return Allowed(sent, tuple(name for name in parameters if name not in LIBRARY))


PASS = Pass()
UNKNOWN = Drop("not in the table")
INLINE, DATA_URL = Inline(), Inline(is_address=True)
ACCOUNT = Refuse("it refers to something that is stored in the provider's account; send the whole input")
STORED = Drop("it refers to something that is stored in the provider's account")
REACHES_OUT = Drop("the provider would connect to an address that the client chooses")
OTHER_MODEL = Drop("it selects another model or provider")
UNPRICED = Drop("its price is not known before the call")
LATER = Drop("its answer would bypass the gateway, and be billed nevertheless")


def members(*passing: str, **rules: MemberRule) -> Members:
    """An object with members that pass as they are, and others by rules of their own."""
    return Members(dict.fromkeys(passing, PASS) | rules)


CACHE = members("type", "ttl")

# OpenAI's chat completions, and what compatible servers add.

_CHAT_PART = ByKind(
    {
        "text": members("type", "text", cache_control=CACHE),
        "image_url": members(
            "type", image_url=Members({"url": DATA_URL, "detail": PASS}, DATA_URL), cache_control=CACHE
        ),
        "video_url": members("type", video_url=Members({"url": DATA_URL}, DATA_URL)),
        "input_audio": members("type", input_audio=members("format", data=INLINE)),
        "file": members(
            "type", file=members("filename", file_data=INLINE, file_id=ACCOUNT), cache_control=CACHE
        ),
        "refusal": PASS,
        "thinking": PASS,
        "redacted_thinking": PASS,
    },
    usual="text",
)
_CHAT_CALL = members("id", "type", "index", "function", "custom", "extra_content", "provider_specific_fields")
_CHAT_MESSAGE = members(
    "role",
    "name",
    "tool_call_id",
    "function_call",
    "refusal",
    "annotations",
    "prefix",
    "partial",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "reasoning_text",
    "reasoning_opaque",
    "thinking_blocks",
    "provider_specific_fields",
    content=Each(_CHAT_PART),
    tool_calls=Each(_CHAT_CALL),
    cache_control=CACHE,
    audio=STORED,
)
_CHAT_TOOL = ByKind(
    {
        "function": members(
            "type",
            function=members("name", "description", "parameters", "strict"),
            cache_control=CACHE,
        ),
        "custom": members("type", custom=members("name", "description", "format")),
    },
    usual="function",
)
_THINKING = members("type", "budget_tokens", "display")
_TEMPLATE = members("enable_thinking", "thinking", "preserve_thinking", "reasoning_effort")
CHAT = members(
    "model",
    "stream",
    "tool_choice",
    "parallel_tool_calls",
    "functions",
    "function_call",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "top_a",
    "stop",
    "n",
    "best_of",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "response_format",
    "reasoning_effort",
    "verbosity",
    "user",
    "metadata",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "store",
    "include_reasoning",
    "enable_thinking",
    "thinking_budget",
    "reasoning_split",
    messages=Each(_CHAT_MESSAGE),
    tools=Each(_CHAT_TOOL),
    stream_options=members("include_usage", "include_obfuscation"),
    reasoning=members("effort", "max_tokens", "exclude", "enabled", "summary"),
    thinking=_THINKING,
    chat_template_kwargs=_TEMPLATE,
    usage=members("include"),
    extra_body=members(
        "enable_thinking",
        "thinking_budget",
        "top_k",
        "min_p",
        "repetition_penalty",
        chat_template_kwargs=_TEMPLATE,
        google=members(
            thinking_config=members("thinking_budget", "thinking_level", "include_thoughts"),
        ),
    ),
    models=OTHER_MODEL,
    route=OTHER_MODEL,
    provider=OTHER_MODEL,
    plugins=UNPRICED,
    web_search_options=UNPRICED,
    enable_search=UNPRICED,
    modalities=UNPRICED,
    audio=UNPRICED,
    prediction=UNPRICED,
)

# OpenAI's responses.

_RESPONSES_PART = ByKind(
    {
        "input_text": PASS,
        "output_text": PASS,
        "text": PASS,
        "summary_text": PASS,
        "reasoning_text": PASS,
        "refusal": PASS,
        "encrypted_content": PASS,
        "input_image": members("type", "detail", image_url=DATA_URL, file_id=ACCOUNT),
        "input_audio": members("type", input_audio=members("format", data=INLINE)),
        "input_file": members(
            "type",
            "filename",
            file_data=INLINE,
            file_id=ACCOUNT,
            file_url=Refuse(ADDRESS),
        ),
    },
    usual="input_text",
)
_FUNCTION = members("type", "name", "description", "parameters", "strict", "defer_loading")
_FREEFORM = members("type", "name", "description", "format", "defer_loading")
_FOUND_TOOL = ByKind(
    {
        "function": _FUNCTION,
        "custom": _FREEFORM,
        "namespace": members(
            "type", "name", "description", tools=Each(ByKind({"function": _FUNCTION, "custom": _FREEFORM}))
        ),
    }
)
_ITEM_HEAD = ("type", "id", "status", "call_id", "name", "namespace")
_RESPONSES_ITEM = ByKind(
    {
        "message": members("type", "id", "status", "role", "phase", content=Each(_RESPONSES_PART)),
        "function_call": members(*_ITEM_HEAD, "arguments", "caller"),
        "custom_tool_call": members(*_ITEM_HEAD, "input", "caller"),
        "function_call_output": members(*_ITEM_HEAD, output=Each(_RESPONSES_PART)),
        "custom_tool_call_output": members(*_ITEM_HEAD, output=Each(_RESPONSES_PART)),
        "local_shell_call": PASS,
        "local_shell_call_output": PASS,
        "shell_call": PASS,
        "shell_call_output": PASS,
        "apply_patch_call": PASS,
        "apply_patch_call_output": PASS,
        "tool_search_call": PASS,
        "tool_search_output": members(
            "type", "id", "status", "call_id", "execution", tools=Each(_FOUND_TOOL)
        ),
        "web_search_call": PASS,
        "reasoning": PASS,
        "compaction": PASS,
        "compaction_summary": PASS,
        "item_reference": ACCOUNT,
        # OpenAI takes an ID alone for a reference as well.
        "": ACCOUNT,
    },
    usual="message",
    sign="role",
)
_WEB_SEARCH = members(
    "type",
    "search_context_size",
    "user_location",
    "filters",
    "external_web_access",
    "search_content_types",
    "indexed_web_access",
)
_RESPONSES_TOOLS: dict[str, MemberRule] = {
    **_FOUND_TOOL.kinds,
    "tool_search": members("type", "execution", "description", "parameters"),
    "local_shell": members("type"),
    "shell": members("type"),
    "apply_patch": members("type"),
    "web_search*": _WEB_SEARCH,
    "code_interpreter": UNPRICED,
    "image_generation": UNPRICED,
    "computer*": STORED,
    "file_search": STORED,
    "mcp": REACHES_OUT,
}
RESPONSES = members(
    "model",
    "instructions",
    "tool_choice",
    "parallel_tool_calls",
    "stream",
    "max_output_tokens",
    "max_tool_calls",
    "temperature",
    "top_p",
    "top_logprobs",
    "store",
    "include",
    "metadata",
    "client_metadata",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "truncation",
    input=Each(_RESPONSES_ITEM),
    tools=Each(ByKind(_RESPONSES_TOOLS)),
    text=members("format", "verbosity"),
    reasoning=members("effort", "summary", "generate_summary", "context"),
    stream_options=members("include_obfuscation", "include_usage", "reasoning_summary_delivery"),
    background=LATER,
    previous_response_id=ACCOUNT,
    conversation=ACCOUNT,
    prompt=ACCOUNT,
    context_management=UNPRICED,
)

# Anthropic's messages.

_SOURCE = ByKind(
    {
        "base64": members("type", "media_type", data=INLINE),
        "text": members("type", "media_type", "data"),
        "content": members(
            "type",
            content=Each(
                ByKind(
                    {
                        "text": members("type", "text", cache_control=CACHE),
                        "image": members(
                            "type",
                            source=ByKind(
                                {
                                    "base64": members("type", "media_type", data=INLINE),
                                    "url": Refuse(ADDRESS),
                                    "file": ACCOUNT,
                                }
                            ),
                            cache_control=CACHE,
                        ),
                    }
                )
            ),
        ),
        "url": Refuse(ADDRESS),
        "file": ACCOUNT,
    }
)
_BLOCKS: dict[str, MemberRule] = {
    "text": members("type", "text", "citations", cache_control=CACHE),
    "image": members("type", source=_SOURCE, cache_control=CACHE),
    "document": members("type", "title", "context", "citations", source=_SOURCE, cache_control=CACHE),
    "search_result": members("type", "source", "title", "content", "citations", cache_control=CACHE),
    "tool_reference": PASS,
}
_BLOCK = ByKind(
    {
        **_BLOCKS,
        "tool_use": members("type", "id", "name", "input", "caller", cache_control=CACHE),
        "tool_result": members(
            "type", "tool_use_id", "is_error", content=Each(ByKind(_BLOCKS)), cache_control=CACHE
        ),
        "thinking": PASS,
        "redacted_thinking": PASS,
        "server_tool_use": PASS,
        "web_search_tool_result": PASS,
        "tool_search_tool_result": PASS,
        "compaction": PASS,
        "container_upload": ACCOUNT,
    }
)
_CLIENT_TOOL = members(
    "type",
    "name",
    "description",
    "input_schema",
    "strict",
    "defer_loading",
    "input_examples",
    "eager_input_streaming",
    "max_characters",
    "display_width_px",
    "display_height_px",
    "display_number",
    "enable_zoom",
    cache_control=CACHE,
)
_MESSAGES_TOOLS: dict[str, MemberRule] = {
    "custom": _CLIENT_TOOL,
    "bash_*": _CLIENT_TOOL,
    "text_editor_*": _CLIENT_TOOL,
    "computer_*": _CLIENT_TOOL,
    "memory_*": _CLIENT_TOOL,
    "tool_search_tool_*": members("type", "name", cache_control=CACHE),
    "web_search_*": members(
        "type", "name", "max_uses", "allowed_domains", "blocked_domains", "user_location", cache_control=CACHE
    ),
    "web_fetch_*": REACHES_OUT,
    "mcp_toolset": REACHES_OUT,
    "code_execution_*": UNPRICED,
    "advisor_*": UNPRICED,
}
MESSAGES = members(
    "model",
    "tool_choice",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "stream",
    "service_tier",
    "speed",
    "output_format",
    messages=Each(members("role", content=Each(_BLOCK))),
    system=Each(ByKind({"text": members("type", "text", "citations", cache_control=CACHE)})),
    tools=Each(ByKind(_MESSAGES_TOOLS, usual="custom")),
    thinking=_THINKING,
    metadata=members("user_id"),
    cache_control=CACHE,
    output_config=members("effort", "format"),
    context_management=members(
        edits=Each(
            ByKind(
                {
                    "clear_thinking_*": PASS,
                    "clear_tool_uses_*": PASS,
                    "compact_*": UNPRICED,
                }
            )
        )
    ),
    container=STORED,
    mcp_servers=REACHES_OUT,
    inference_geo=UNPRICED,
    fallbacks=OTHER_MODEL,
)

# Google's generateContent. Its servers accept every name in snake case as well.


def camel(*passing: str, **rules: MemberRule) -> Members:
    """As `members`, for Google's names."""
    return Members(dict.fromkeys(passing, PASS) | rules, is_camel=True)


_INLINE_DATA = camel("mimeType", "displayName", data=INLINE)
_GEMINI_PART = camel(
    "text",
    "thought",
    "thoughtSignature",
    "executableCode",
    "codeExecutionResult",
    functionCall=camel("id", "name", "args"),
    functionResponse=camel(
        "id",
        "name",
        "response",
        "willContinue",
        "scheduling",
        parts=Each(camel(inlineData=_INLINE_DATA, fileData=Refuse(ADDRESS))),
    ),
    inlineData=_INLINE_DATA,
    fileData=Refuse(ADDRESS),
)
_CONTENT = camel("role", parts=Each(_GEMINI_PART))
_DECLARATION = camel(
    "name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema", "behavior"
)
_GEMINI_TOOL = camel(
    functionDeclarations=Each(_DECLARATION),
    googleSearch=camel("timeRangeFilter", "excludeDomains"),
    googleSearchRetrieval=camel("dynamicRetrievalConfig"),
    urlContext=REACHES_OUT,
    mcpServers=REACHES_OUT,
    codeExecution=UNPRICED,
    googleMaps=UNPRICED,
    enterpriseWebSearch=UNPRICED,
    fileSearch=STORED,
    retrieval=STORED,
)
_GENERATION = camel(
    "temperature",
    "topP",
    "topK",
    "candidateCount",
    "maxOutputTokens",
    "stopSequences",
    "seed",
    "responseMimeType",
    "responseSchema",
    "responseJsonSchema",
    "presencePenalty",
    "frequencyPenalty",
    "responseLogprobs",
    "logprobs",
    thinkingConfig=camel("includeThoughts", "thinkingBudget", "thinkingLevel"),
    responseModalities=UNPRICED,
    speechConfig=UNPRICED,
    imageConfig=UNPRICED,
    mediaResolution=UNPRICED,
    routingConfig=OTHER_MODEL,
    modelSelectionConfig=OTHER_MODEL,
)
_GENERATE: dict[str, MemberRule] = {
    # The path has it.
    "model": Drop("the path selects the model", quiet=True),
    "contents": Each(_CONTENT),
    "systemInstruction": _CONTENT,
    "tools": Each(_GEMINI_TOOL),
    "toolConfig": camel(
        functionCallingConfig=camel("mode", "allowedFunctionNames", "streamFunctionCallArguments")
    ),
    "generationConfig": _GENERATION,
    "safetySettings": PASS,
    "serviceTier": PASS,
    "cachedContent": ACCOUNT,
    "labels": UNKNOWN,
}
GEMINI = Members(_GENERATE | {"generateContentRequest": Members(_GENERATE, is_camel=True)}, is_camel=True)

REQUESTS: Mapping[str, Members] = {
    "chat": CHAT,
    "responses": RESPONSES,
    "messages": MESSAGES,
    "gemini": GEMINI,
}
"""The rules of each format."""
LIBRARY = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "n",
        "stop",
        "max_tokens",
        "max_completion_tokens",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "user",
        "response_format",
        "tool_choice",
        "parallel_tool_calls",
        "functions",
        "function_call",
        "reasoning_effort",
        "verbosity",
        "thinking",
        "service_tier",
    }
)
"""Parameters of models in this process. A client library takes its own settings, such as the address, in the
same place: names that only some servers know do not pass."""
PASSED_UP = ("anthropic-version", "openai-beta")
"""Headers of clients that are passed to the provider, besides `anthropic-beta`."""
PLAIN_HEADER = re.compile(r"[\w=.,;: -]{1,200}")
"""What their values may contain."""
DATE = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")
BETA_FEATURES = frozenset(
    {
        "claude-code",
        "interleaved-thinking",
        "thinking-token-count",
        "context-management",
        "effort",
        "prompt-caching-scope",
        "prompt-caching",
        "extended-cache-ttl",
        "mid-conversation-system",
        "fine-grained-tool-streaming",
        "token-efficient-tools",
        "output-128k",
        "context-1m",
        "structured-outputs",
        "tool-examples",
        "advanced-tool-use",
        "tool-search-tool",
        "adaptive-thinking",
        "redact-thinking",
        "token-counting",
        "dev-full-thinking",
        "fast-mode",
        "computer-use",
        "web-search",
        "pdfs",
        "max-tokens-3-5-sonnet",
        "summarize-connector-text",
    }
)
"""Features in `anthropic-beta` that pass, without their dates. Left out are those for stored files, code in
containers, other servers and skills."""


def passed_up(headers: Mapping[str, str]) -> tuple[dict[str, str], Sequence[str]]:
    """The headers of a client that are passed to the provider, and the beta features that are not."""
    given = {name.lower(): value for name, value in headers.items()}
    sent = {
        name: value for name in PASSED_UP if (value := given.get(name, "")) and PLAIN_HEADER.fullmatch(value)
    }
    named = [name.strip() for name in given.get("anthropic-beta", "").split(",") if name.strip()]
    features = [name for name in named if DATE.sub("", name) in BETA_FEATURES]
    if features:
        sent["anthropic-beta"] = ",".join(dict.fromkeys(features))
    return sent, [name[:LONGEST_NAME] for name in named if name not in features]
