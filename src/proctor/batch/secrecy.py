"""Keep keys out of agents' environments and out of the record.

An agent sees only variables that are known to be harmless, those the plan names in `env`, and the
keys of its own service where it has one. Whatever it prints, the values of the user's keys are
blotted out before anything is written.

Knows nothing of agents or stores.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping

from proctor.models.providers import KEY_VARIABLE

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


def blotter(environment: Mapping[str, str]) -> Callable[[str], str]:
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
