"""Which provider a model's name means, and how that provider is reached.

A name is `provider/model`. A bare name that only one provider has (`gpt-4o`, `claude-sonnet-4-5`)
finds its provider; a provider nobody has heard of works when the environment says where it is
(`ACME_BASE_URL`); what is left goes to `PROCTOR_DEFAULT_PROVIDER`, whole. A key may be in a variable of
another name than usual, when `ACME_KEY_VARIABLE` says in which.

Opens no connection, and reads no environment but the mapping it is handed.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping

KEY_VARIABLE = "_KEY_VARIABLE"
"""How a variable ends that names the variable which holds a provider's key."""


# Keep keys out of agents' environments and out of the record.


HARMLESS = frozenset(
    {
        *("PATH", "LANG", "LANGUAGE", "TERM", "TZ", "USER", "LOGNAME", "SHELL", "COLUMNS", "LINES", "CI"),
        *("NO_COLOR", "FORCE_COLOR", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONUTF8"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *("GIT_SSL_CAINFO", "NO_PROXY", "no_proxy", "JAVA_HOME", "GOROOT", "GOPATH", "NVM_DIR", "PYENV_ROOT"),
        *("RUSTUP_HOME", "CARGO_HOME", "ANDROID_HOME", "DOTNET_ROOT"),
    }
)
"""Variables an agent gets without being asked for: how to find programs, speak and trust."""


_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)


_REFERENCE = re.compile(r"\$\{(\w+)\}")


# Shorter values are words like `true`; blotting them out would ruin every transcript.
SHORTEST_SECRET = 8


def is_secret(name: str) -> bool:
    """Whether a variable of this name usually holds a secret."""
    return bool(_SECRET_NAME.search(name))


def visible(environment: Mapping[str, str], *, named: Iterable[str] = ()) -> dict[str, str]:
    """The part of the user's environment that an agent may see, with the variables named besides."""
    wanted = set(named)
    return {
        name: value
        for name, value in environment.items()
        if name in HARMLESS or name in wanted or name.startswith("LC_") or name.endswith("_BIN")
    }


def referenced(values: Iterable[str]) -> set[str]:
    """The names of the variables that occur in texts as `${NAME}`."""
    return {name for value in values for name in _REFERENCE.findall(value)}


def redactor(environment: Mapping[str, str]) -> Callable[[str], str]:
    """A function that blots the user's secrets out of a text."""
    named = {value for name, value in environment.items() if name.endswith(KEY_VARIABLE)}
    secrets = {
        value
        for name, value in environment.items()
        if (name in named or (is_secret(name) and not name.endswith(KEY_VARIABLE)))
        and len(value) >= SHORTEST_SECRET
        and not value.startswith("/")
    }
    if not secrets:
        return str
    # In JSON, a quote or a backslash in a secret is written in its own way.
    secrets |= {json.dumps(value)[1:-1] for value in secrets}
    pattern = re.compile("|".join(map(re.escape, sorted(secrets, key=len, reverse=True))))
    return lambda text: pattern.sub("[secret]", text)
