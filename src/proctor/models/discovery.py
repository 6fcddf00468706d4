"""Lists the available models of running Ollama servers and of providers.

Only providers with a key are queried; those that do not answer within seconds are reported and do not delay
the others.
"""

import asyncio
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from proctor.errors import NotFound
from proctor.json_values import JsonMap, parse_json
from proctor.models import anthropic, local, openai
from proctor.models.providers import PROVIDERS, Endpoint, base_variable, find_endpoint
from proctor.models.scripted import BUILT_IN
from proctor.secrets import is_loopback

if TYPE_CHECKING:
    import aiohttp

PATIENCE_SECONDS = 5.0
LARGEST_LIST_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredModel:
    """An available model."""

    name: str
    """`provider/model`, as in a plan, with Ollama's tags."""
    source: str
    """Its source: an address, or `built in`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDiscovery:
    """The models found, and the providers that did not answer."""

    models: Sequence[DiscoveredModel]
    silent: Mapping[str, str]
    """Provider → why its list is not available."""


async def discover(environment: Mapping[str, str], *, extra: Sequence[str] = ()) -> ModelDiscovery:
    """Query all providers. `extra` names providers of the user."""
    # Imported here: most commands call no provider.
    import aiohttp

    endpoints = {
        name: endpoint for name in (*PROVIDERS, *extra) if (endpoint := _worth_asking(name, environment))
    }
    models = [DiscoveredModel(name=f"scripted/{name}", source="built in") for name in BUILT_IN]
    if local.is_ours(local.MODEL, environment) and local.is_installed():
        models.append(DiscoveredModel(name=local.MODEL, source="installed here"))
    silent: dict[str, str] = {}
    timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as session:
        answers = await asyncio.gather(
            *(_list(session, endpoint, environment) for endpoint in endpoints.values())
        )
    for (name, endpoint), answer in zip(endpoints.items(), answers, strict=True):
        if isinstance(answer, str):
            # That no local server runs is the usual case, and no news.
            if not is_loopback(endpoint.base_url) or _is_set(name, environment):
                silent[name] = answer
        else:
            models += [DiscoveredModel(name=f"{name}/{each}", source=endpoint.base_url) for each in answer]
    return ModelDiscovery(models=models, silent=silent)


def _worth_asking(name: str, environment: Mapping[str, str]) -> Endpoint | None:
    try:
        endpoint = find_endpoint(f"{name}/any", environment)
    except NotFound:
        # A provider without a URL, such as Azure before its endpoint is configured.
        return None
    return None if endpoint.missing_key else endpoint


def _is_set(name: str, environment: Mapping[str, str]) -> bool:
    variables = PROVIDERS[name].base_variables if name in PROVIDERS else (base_variable(name),)
    return any(environment.get(variable) for variable in variables)


async def _list(
    session: "aiohttp.ClientSession", endpoint: Endpoint, environment: Mapping[str, str]
) -> list[str] | str:
    """Names of the models of an endpoint, or why there are none."""
    try:
        if endpoint.provider == "ollama":
            return await _ollama(session, endpoint, environment)
        wire = anthropic if endpoint.wire == "anthropic" else openai
        listed = await _get(session, wire.models_url(endpoint), wire.headers(endpoint))
        # Together returns a bare list.
        names = _names(listed if isinstance(listed, list) else listed.get("data"), "id")
        # Google puts a word before each that is in no plan and no price list.
        return [name.removeprefix("models/") for name in names]
    except TimeoutError:
        return f"no answer within {PATIENCE_SECONDS:g} s"
    except (OSError, ValueError, LookupError, TypeError) as error:
        return (str(error) or type(error).__name__).replace(endpoint.key or "\0", "[key]")
    except Exception as error:
        # An error of aiohttp: its message may contain headers, so only its name is shown.
        return type(error).__name__


async def _ollama(
    session: "aiohttp.ClientSession", endpoint: Endpoint, environment: Mapping[str, str]
) -> list[str]:
    """Models of a running Ollama; from its program where the server does not list them."""
    base_url = endpoint.base_url.removesuffix("/v1")
    try:
        tags = await _get(session, f"{base_url}/api/tags", openai.headers(endpoint))
        return _names(tags if isinstance(tags, list) else tags.get("models"), "name")
    except Exception:
        listed = await asyncio.to_thread(_ollama_program, base_url, environment)
        if not listed:
            raise
        return listed


def _ollama_program(base_url: str, environment: Mapping[str, str]) -> list[str]:
    program = shutil.which("ollama", path=environment.get("PATH", ""))
    if program is None:
        return []
    visible = {name: environment[name] for name in ("PATH", "HOME") if name in environment}
    try:
        done = subprocess.run(
            [program, "list"],
            env={**visible, "OLLAMA_HOST": base_url},
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    # A heading, then a line for each model that begins with its name.
    return sorted({line.split()[0] for line in done.stdout.splitlines()[1:] if line.split()})


async def _get(
    session: "aiohttp.ClientSession", url: str, headers: Mapping[str, str]
) -> JsonMap | list[object]:
    body = bytearray()
    async with session.get(url, headers=headers, allow_redirects=False) as response:
        if response.status != 200:
            raise ValueError(f"it answered {response.status}")
        # Long lists are paged.
        while chunk := await response.content.readany():
            body += chunk
            if len(body) > LARGEST_LIST_BYTES:
                raise ValueError(f"its list has more than {LARGEST_LIST_BYTES >> 20} MiB")
    listed = parse_json(bytes(body))
    if not isinstance(listed, dict | list):
        raise ValueError("it did not answer with a list of models")
    return listed


def _names(entries: object, field: str) -> list[str]:
    if not isinstance(entries, list):
        raise ValueError("it did not answer with a list of models")
    names = (entry.get(field) for entry in entries if isinstance(entry, dict))
    return sorted({name for name in names if isinstance(name, str) and name})
