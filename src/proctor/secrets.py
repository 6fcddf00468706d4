"""Keep secrets out of agents' environments and out of records, and files out of reach of other users."""

import ipaddress
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

KEY_VARIABLE = "_KEY_VARIABLE"
"""Suffix of a variable that names the variable with a provider's key."""
TOOLCHAINS = {
    "RUSTUP_HOME": ".rustup",
    "VOLTA_HOME": ".volta",
    "PYENV_ROOT": ".pyenv",
    "RBENV_ROOT": ".rbenv",
    "NODENV_ROOT": ".nodenv",
    "GOENV_ROOT": ".goenv",
    "JENV_ROOT": ".jenv",
    "ASDF_DATA_DIR": ".asdf",
    "MISE_DATA_DIR": ".local/share/mise",
    "PROTO_HOME": ".proto",
    "ELAN_HOME": ".elan",
}
"""Variables that name the folder of a version manager, and that folder in HOME if they are unset. Its
programs (`cargo` of rustup) look there for what they start, and the HOME of an agent is another."""
HARMLESS = TOOLCHAINS.keys() | frozenset(
    {
        "PATH",
        "LANG",
        "LANGUAGE",
        "TERM",
        "TZ",
        "USER",
        "LOGNAME",
        "SHELL",
        "COLUMNS",
        "LINES",
        "CI",
        "NO_COLOR",
        "FORCE_COLOR",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "GIT_SSL_CAINFO",
        "NO_PROXY",
        "no_proxy",
        "JAVA_HOME",
        "GOROOT",
        "GOPATH",
        "NVM_DIR",
        "CARGO_HOME",
        "ANDROID_HOME",
        "DOTNET_ROOT",
    }
)
"""Variables that every agent gets: program paths, locale, certificates."""
MACHINE_VARIABLES = HARMLESS - {
    "LANG",
    "LANGUAGE",
    "TERM",
    "TZ",
    "COLUMNS",
    "LINES",
    "CI",
    "NO_COLOR",
    "FORCE_COLOR",
} | {
    "HOME",
    "TMPDIR",
    "HOSTNAME",
    "PWD",
    "VIRTUAL_ENV",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
}
"""Variables that depend on the machine: paths, the user, certificates, proxies."""
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{(\w+)\}")

# Shorter values are words like `true`, whose removal would ruin every transcript.
SHORTEST_SECRET = 8


def is_secret(name: str) -> bool:
    """Whether a variable of this name usually contains a secret."""
    return bool(_SECRET_NAME.search(name))


def visible(environment: Mapping[str, str], *, named: Iterable[str] = ()) -> dict[str, str]:
    """The part of the user's environment that an agent may see, with the variables `named`."""
    names = set(named)
    shown = {
        name: value
        for name, value in environment.items()
        if name in HARMLESS or name in names or name.startswith("LC_") or name.endswith("_BIN")
    }
    return {**_toolchains(environment), **{name: _without_run(name, value) for name, value in shown.items()}}


_RUN = ("/run/", "/var/run/")


def _without_run(name: str, value: str) -> str:
    """A variable that names programs, without links below `/run`, which no sandbox has: shells of fnm have
    their version of Node there, and NixOS has its system there."""
    if name == "PATH" and any(folder in value for folder in _RUN):
        parts = value.split(os.pathsep)
        return os.pathsep.join(os.path.realpath(part) if part.startswith(_RUN) else part for part in parts)
    if name.endswith("_BIN") and value.startswith(_RUN):
        # The folder alone: some programs are told by their names what to do.
        folder, _, program = value.rpartition("/")
        return f"{os.path.realpath(folder)}/{program}"
    return value


def _toolchains(environment: Mapping[str, str]) -> dict[str, str]:
    """The folders of version managers in the user's HOME, as if their variables were set."""
    home = environment.get("HOME", "")
    places = {name: f"{home}/{folder}" for name, folder in TOOLCHAINS.items()} if home else {}
    # `os.path`: no error without permission to look.
    return {name: place for name, place in places.items() if os.path.isdir(place)}  # noqa: PTH112


def installed_by(command: str, environment: Mapping[str, str]) -> list[str]:
    """The variables of version managers that a command calls: `rustup toolchain install` installs into the
    agent's HOME, not into the user's, which no program of a session may change."""
    words, own = set(re.findall(r"\w+", command)), _toolchains(environment)
    return [
        name
        for name, value in own.items()
        if name.partition("_")[0].lower() in words and environment.get(name) == value
    ]


def machine_part(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of an environment that depend on the machine."""
    return {
        name: value
        for name, value in environment.items()
        if name in MACHINE_VARIABLES or name.endswith("_BIN")
    }


def on_machine(environment: Mapping[str, str], machine: Mapping[str, str]) -> dict[str, str]:
    """An environment on another machine: with the variables of that machine in place of its own."""
    own = machine_part(environment)
    return {name: value for name, value in environment.items() if name not in own} | dict(machine)


def referenced(values: Iterable[str]) -> set[str]:
    """Names of variables that occur in texts as `${NAME}`."""
    return {name for value in values for name in _REFERENCE.findall(value)}


def redactor(environment: Mapping[str, str]) -> Callable[[str], str]:
    """A function that removes the user's secrets from a text."""
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
    # As JSON escapes them.
    secrets |= {json.dumps(value)[1:-1] for value in secrets}
    ordered = sorted(secrets, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, ordered)))

    def redact(text: str) -> str:
        # Looking for each takes a sixth of the time of looking for all at once; few texts have any.
        for secret in ordered:
            if secret in text:
                return pattern.sub("[secret]", text)
        return text

    return redact


# Files that only this user can read, whatever the umask.


def private_folder(folder: Path) -> Path:
    """Create a folder that only this user can enter; one that exists keeps its mode."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def open_private(path: str | Path, flags: int) -> int:
    """Open a file; one that this creates can be read by this user only. For `open(…, opener=…)` too."""
    return os.open(path, flags, 0o600)


def is_loopback(url: str) -> bool:
    """Whether `url` is on this machine, so that no key is needed and none leaves it."""
    try:
        host = urlsplit(url).hostname or ""
        if host == "localhost" or host.endswith(".localhost"):
            return True
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # Not an IP address, or not an address at all, which the call will report.
        return False
