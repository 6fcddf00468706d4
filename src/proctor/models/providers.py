"""Resolve a model's name to a provider and its endpoint.

A name is `provider/model`. A bare name that only one provider has (`gpt-4o`, `claude-sonnet-4-5`) resolves to
it; an unknown provider works when `ACME_BASE_URL` is set; everything else goes to `PROCTOR_DEFAULT_PROVIDER`.
Where the key of OpenRouter is the only one, models of other vendors are called over it.
`ACME_KEY_VARIABLE` names the variable that holds a key.

Opens no connection, and reads no environment but the mapping it is given.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from proctor.errors import NotFound
from proctor.json_values import JsonMap, JsonObject
from proctor.model import Request, WireAnswer
from proctor.secrets import KEY_VARIABLE, is_loopback


class WireFormat(Protocol):
    """One HTTP format of models."""

    def url(self, endpoint: "Endpoint") -> str:
        """URL of requests."""

    def models_url(self, endpoint: "Endpoint") -> str:
        """URL of the list of models."""

    def headers(self, endpoint: "Endpoint") -> dict[str, str]:
        """Headers of each request; the only place that contains a key."""

    def body(self, request: Request, endpoint: "Endpoint") -> JsonObject:
        """The request in this format."""

    def not_sent(self, request: Request) -> tuple[str, ...]:
        """Parameters that this format does not support."""

    def read(self, answer: JsonMap) -> WireAnswer:
        """Parse an answer. Missing or wrong values raise the natural error."""


Wire = Literal["openai", "anthropic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A service that serves many models."""

    base_url: str
    wire: Wire = "openai"
    """Its wire format."""
    base_variables: tuple[str, ...] = ()
    """Variables that override the address; the first that is set counts."""
    key_variables: tuple[str, ...] = ()
    """Variables that hold the key; the first that is set counts."""
    needs_key: bool = True
    """Whether a key is required, except on this machine."""
    also_speaks: tuple[str, ...] = ()
    """Further formats it accepts, in which requests can be passed through unchanged."""


def _usual(name: str, base_url: str, *, needs_key: bool = True) -> Provider:
    """A provider whose variables are `NAME_BASE_URL` and `NAME_API_KEY`."""
    prefix = variable_prefix(name)
    return Provider(
        base_url=base_url,
        base_variables=(f"{prefix}_BASE_URL",),
        key_variables=(f"{prefix}_API_KEY",),
        needs_key=needs_key,
    )


def variable_prefix(name: str) -> str:
    """Prefix of a provider's environment variables: `ACME_AI` for `acme-ai`."""
    return re.sub(r"\W", "_", name).upper()


PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider(
        base_url="https://api.anthropic.com",
        wire="anthropic",
        base_variables=("ANTHROPIC_BASE_URL",),
        key_variables=("ANTHROPIC_API_KEY",),
    ),
    "azure": Provider(
        # Each customer has an own address.
        base_url="",
        base_variables=("AZURE_OPENAI_ENDPOINT",),
        key_variables=("AZURE_OPENAI_API_KEY",),
    ),
    "deepseek": _usual("deepseek", "https://api.deepseek.com/v1"),
    "gemini": Provider(
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        base_variables=("GEMINI_BASE_URL",),
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        also_speaks=("gemini",),
    ),
    "groq": _usual("groq", "https://api.groq.com/openai/v1"),
    "lmstudio": _usual("lmstudio", "http://127.0.0.1:1234/v1", needs_key=False),
    "local": _usual("local", "http://127.0.0.1:8080/v1", needs_key=False),
    "mistral": _usual("mistral", "https://api.mistral.ai/v1"),
    "ollama": Provider(
        base_url="http://127.0.0.1:11434/v1",
        base_variables=("OLLAMA_BASE_URL", "OLLAMA_HOST"),
        key_variables=("OLLAMA_API_KEY",),
        needs_key=False,
    ),
    "openai": Provider(
        base_url="https://api.openai.com/v1",
        base_variables=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
        key_variables=("OPENAI_API_KEY",),
        also_speaks=("responses",),
    ),
    "openrouter": _usual("openrouter", "https://openrouter.ai/api/v1"),
    "together": _usual("together", "https://api.together.xyz/v1"),
    "vllm": _usual("vllm", "http://127.0.0.1:8000/v1", needs_key=False),
    "xai": _usual("xai", "https://api.x.ai/v1"),
}
BESIDES = ("scripted", "replay", "litellm")
"""Prefixes of names that are not providers."""
BARE_NAMES = (
    (r"(gpt-(?!oss)|chatgpt-|o[1-9](-|$))", "openai"),
    (r"claude-", "anthropic"),
    (r"gemini-", "gemini"),
    (r"grok-", "xai"),
)
"""Families of model names that only one provider uses."""
ANYONE = ("groq", "lmstudio", "ollama", "openrouter", "together", "vllm")
"""Providers of open-weight models."""
SHARED_NAMES = (
    (r"deepseek", ("deepseek", *ANYONE)),
    (r"mistral|ministral|mixtral|codestral|devstral|magistral", ("mistral", *ANYONE)),
    (r"gpt-oss|llama|code-?llama|qwen|qwq|gemma|phi|smollm|kimi|glm|olmo|granite|nemotron", ANYONE),
)
"""Families of model names that several providers use, so that a bare one is ambiguous."""
OPENROUTER_VENDORS = {
    "alibaba": "qwen",
    "anthropic": "anthropic",
    "deepseek": "deepseek",
    "gemini": "google",
    "meta": "meta-llama",
    "mistral": "mistralai",
    "openai": "openai",
    "xai": "x-ai",
}
"""What OpenRouter calls vendors that have another name here, or are providers themselves."""
THROUGH_LITELLM = ("bedrock", "sagemaker", "vertex_ai", "watsonx")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Address and key of one model."""

    provider: str
    model: str
    """The provider's own name of it."""
    base_url: str
    wire: Wire
    key: str = field(default="", repr=False)
    key_variable: str = ""
    """The variable that holds the key."""
    needs_key: bool = True
    """Whether a key is required, except on this machine."""
    also_speaks: tuple[str, ...] = ()
    api_version: str = ""
    """Azure's; empty: its newer interface, which has none."""

    @property
    def speaks(self) -> tuple[str, ...]:
        """The formats it accepts, its usual one first."""
        return ("messages" if self.wire == "anthropic" else "chat", *self.also_speaks)

    @property
    def missing_key(self) -> str | None:
        """The variable to set before it can be called; None: nothing is missing, or it is on this machine."""
        if self.key or not self.needs_key or is_loopback(self.base_url):
            return None
        return self.key_variable


def find_endpoint(name: str, environment: Mapping[str, str]) -> Endpoint:
    """The endpoint of a model; a `NotFound` lists the providers."""
    prefix, slash, rest = name.partition("/")
    provider = _provider(prefix, environment) if slash and rest else None
    if slash and rest and _goes_over_openrouter(prefix, provider, environment):
        vendor = OPENROUTER_VENDORS.get(prefix, prefix)
        return _endpoint("openrouter", PROVIDERS["openrouter"], f"{vendor}/{rest}", environment)
    if provider:
        return _endpoint(prefix, provider, rest, environment)
    if not slash:
        for family, owner in BARE_NAMES:
            if re.match(family, name):
                return find_endpoint(f"{owner}/{name}", environment)
    if (fallback := environment.get("PROCTOR_DEFAULT_PROVIDER")) and name:
        provider = _provider(fallback, environment)
        if provider is None:
            raise NotFound(f"PROCTOR_DEFAULT_PROVIDER: {_unknown_provider(fallback)}")
        return _endpoint(fallback, provider, name, environment)
    raise NotFound(_unknown_model(name))


PLAIN_NAME = re.compile(r"(?!.*\.\.)[\w.:@+-]+(?:/[\w.:@+-]+)*", re.ASCII)
"""A model's name that means nothing else in an address."""


def is_of_known_provider(name: str) -> bool:
    """Whether a model is called over HTTP at a provider that Proctor knows, also without its prefix.

    Not those of litellm, in this process or on this machine (`local/…`), nor at an address that some variable
    of the environment happens to hold.
    """
    prefix, slash, _ = name.partition("/")
    is_known = not slash or prefix in PROVIDERS or prefix in OPENROUTER_VENDORS
    return is_known and prefix not in (*BESIDES, "local") and bool(PLAIN_NAME.fullmatch(name))


def _goes_over_openrouter(name: str, provider: Provider | None, environment: Mapping[str, str]) -> bool:
    """Whether a vendor's model is called over OpenRouter: its key is the only one that is set."""
    router = PROVIDERS["openrouter"]
    if not any(environment.get(variable) for variable in router.key_variables):
        return False
    addresses = provider.base_variables if provider else (base_variable(name),)
    if name in (*BESIDES, *THROUGH_LITELLM) or any(map(environment.get, addresses)):
        return False
    if environment.get(f"{variable_prefix(name)}{KEY_VARIABLE}"):
        return False
    if provider and (provider is router or name not in OPENROUTER_VENDORS):
        return False
    # A misspelled name is refused here rather than there.
    is_misspelled = bool(difflib.get_close_matches(name, PROVIDERS, cutoff=0.75))
    has_default = bool(environment.get("PROCTOR_DEFAULT_PROVIDER"))
    if provider is None and name not in OPENROUTER_VENDORS and (is_misspelled or has_default):
        return False
    others = (each for each in PROVIDERS.values() if each is not router and each.needs_key)
    return not any(environment.get(variable) for each in others for variable in each.key_variables)


def base_variable(name: str) -> str:
    """The variable with a provider's address."""
    known = PROVIDERS.get(name)
    return known.base_variables[0] if known else f"{variable_prefix(name)}_BASE_URL"


def _provider(name: str, environment: Mapping[str, str]) -> Provider | None:
    if known := PROVIDERS.get(name):
        return known
    elsewhere = environment.get(base_variable(name))
    return _usual(name, elsewhere, needs_key=False) if elsewhere else None


def _endpoint(name: str, provider: Provider, model: str, environment: Mapping[str, str]) -> Endpoint:
    base = next((url for each in provider.base_variables if (url := environment.get(each))), "")
    named = environment.get(f"{variable_prefix(name)}{KEY_VARIABLE}", "")
    variables = (named,) if named else provider.key_variables
    key_variable = next((each for each in variables if environment.get(each)), variables[0])
    if not (base or provider.base_url):
        raise NotFound(f"`{name}/…` models need an address: set {provider.base_variables[0]}")
    return Endpoint(
        provider=name,
        model=model,
        base_url=_normalized(name, base) if base else provider.base_url,
        wire=provider.wire,
        key=environment.get(key_variable, "").strip(),
        key_variable=key_variable,
        needs_key=provider.needs_key or bool(named),
        also_speaks=provider.also_speaks,
        api_version=environment.get("AZURE_OPENAI_API_VERSION", "") if name == "azure" else "",
    )


def _normalized(provider: str, url: str) -> str:
    """Normalize an address: add a scheme, drop a trailing slash, and `/v1` where it is not expected."""
    url = url.strip().rstrip("/")
    if provider == "ollama":
        return _ollama_url(url)
    if "://" not in url:
        url = f"http://{url}"
    if provider == "anthropic":
        return url.removesuffix("/v1")
    if provider == "azure":
        return url.removesuffix("/v1").removesuffix("/openai") + "/openai"
    return url


def _ollama_url(written: str) -> str:
    """OLLAMA_HOST by Ollama's own rules: any part may be missing; a scheme implies its own port."""
    scheme, has_scheme, rest = written.rpartition("://")
    address, _, path = rest.partition("/")
    host, port = _host_and_port(address)
    # OLLAMA_HOST is also the address the server listens on; "any" is not one to connect to.
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    port = port or ("" if has_scheme else "11434")
    below = f"/{path}".removesuffix("/v1").rstrip("/")
    return f"{scheme or 'http'}://{host}{f':{port}' if port else ''}{below}/v1"


def _host_and_port(address: str) -> tuple[str, str]:
    if address.count(":") > 1 and not address.startswith("["):
        # A bare IPv6 address.
        return f"[{address}]", ""
    host, colon, port = address.rpartition(":")
    return (host, port) if colon and not port.endswith("]") else (address, "")


def _unknown_model(name: str) -> str:
    prefix, slash, rest = name.partition("/")
    if slash and not rest and prefix in PROVIDERS:
        return f"`{name}` does not name a model\nWrite `provider/model`."
    if prefix in THROUGH_LITELLM:
        return f"`{prefix}` is reached through the library litellm: write `litellm/{name}`"
    problem = _unknown_provider(prefix) if slash else f"no provider has a model `{name}`"
    for family, owners in SHARED_NAMES:
        if not slash and re.match(family, name):
            choices = ", ".join(f"`{owner}/{name}`" for owner in owners)
            several = f"`{name}` is ambiguous: {choices}"
            return f"{several}\nWrite one of these, as its provider spells it."
    providers = ", ".join([*sorted(PROVIDERS), *BESIDES])
    return (
        f"{problem}\nWrite `provider/model`; providers: {providers}. "
        "Another one works with NAME_BASE_URL set, or set PROCTOR_DEFAULT_PROVIDER."
    )


def _unknown_provider(name: str) -> str:
    near = difflib.get_close_matches(name, [*PROVIDERS, *BESIDES], n=2)
    hint = f" (did you mean {' or '.join(f'`{each}`' for each in near)}?)" if near else ""
    return f"there is no provider `{name}`{hint}"
