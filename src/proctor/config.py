"""`proctor.toml`: providers, prices, limits and a budget that hold for every plan.

Read beside the plan, in the working folder, in Proctor's home and in the user's configuration folder; the
nearest file that sets a value takes precedence. Provider keys are never written in it: `key` names an
environment variable. `[encryption]` names the key of the store: `key_file`, `key_env` or `kms_key`; its
`keys` replace keys of AWS KMS. `[serve]` configures `proctor serve`, and `[serve.access_keys]` the callers
that may sign requests: `AKID = "secret"`, or `"${VARIABLE}"`. `[serve.tokens.NAME]` is a token with a role:
`token_env`, `token_file` or `sha256`, and `role`. `[[watch]]` is a service whose sessions `proctor serve`
evaluates as they arrive, with an alert when a score drifts.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypedDict

from proctor.errors import UsageError
from proctor.json_values import JsonMap, as_text
from proctor.sandbox import read_settings
from proctor.secrets import KEY_VARIABLE, is_loopback
from proctor.store.keys import SOURCES, EncryptionSection

FILE = "proctor.toml"
ROLES_IN_ORDER = ("view", "label", "run", "admin")
"""Roles of callers of `proctor serve`; each includes the ones before it."""
SHORTEST_TOKEN = 16
"""Minimum length of a token, in characters."""


class EvaluationSection(TypedDict, total=False):
    """Settings of `[evaluation]`."""

    judge: str
    harmful_value: float
    limits: JsonMap
    """Limits of the server."""
    lambdas: Mapping[str, str | Sequence[str]]
    """By ARN: `module:function`, or a program and its arguments."""
    buckets: Mapping[str, str]
    """Folders on this machine that stand for S3 buckets, by the name of the bucket."""
    models: Mapping[str, str]
    """Judges by the model id of a definition, as provider/model; `default` is for ids without an entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSection:
    """One `[[watch]]`: the settings of the online configuration of this name.

    With `evaluators`, the server creates it; without them, a client does.
    """

    name: str
    service: str = ""
    log_groups: tuple[str, ...] = ()
    evaluators: tuple[str, ...] = ()
    sample_percent: float = 100.0
    """Share of the sessions that are evaluated."""
    session_timeout_minutes: int = 15
    """Time without spans after which a session has ended."""
    alpha: float = 0.01
    """Probability of an alert although nothing has changed, for each line."""
    margin: float = 0.0
    """Smallest change that counts, in units of the score."""
    reference: float | None = None
    """The expected mean; None: that of the earlier sessions."""
    direction: str = "both"
    """Changes that raise an alert: `up`, `down` or `both`."""
    scale: tuple[float, float] | None = None
    """Lowest and highest score; None: that of the evaluator, else 0 to 1."""
    webhook: str = field(default="", repr=False)
    """Address that gets alerts; may hold a token. `${NAME}` refers to the environment."""
    command: tuple[str, ...] = ()
    """Program that gets alerts, and its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeToken:
    """A named token of `proctor serve`."""

    name: str
    role: str
    token: str = field(default="", repr=False)
    """Empty: only its hash is known."""
    sha256: str = field(default="", repr=False)
    """Hash of the token in hexadecimal; empty: the token itself is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The merged contents of the files."""

    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """USD per million tokens, by model."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Maximum concurrent calls, by `provider/model` or provider."""
    outage_patience_seconds: float | None = None
    """How long calls wait for a provider that cannot be reached; None: the default."""
    providers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Providers by name, as they are written."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Providers as environment variables: `ACME_BASE_URL`, `ACME_KEY_VARIABLE`."""
    serve: Mapping[str, str] = field(default_factory=dict)
    """Settings of `proctor serve`: `log_group`, `region`, `account`."""
    access_keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Access key ids and their secrets, for callers of `proctor serve` that sign their requests."""
    tokens: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Named tokens of `proctor serve`: where each is found, and its role."""
    budget_usd: float | None = None
    """Budget of all runs on one store together; None: no limit."""
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    """Settings of evaluations: `judge`, `harmful_value`, `limits` of the server, and `lambdas`."""
    encryption: EncryptionSection = field(default_factory=EncryptionSection)
    """The key of the store: `key_file`, `key_env` or `kms_key`; and `keys`."""
    sandbox: JsonMap = field(default_factory=dict)
    """How agents are confined, as `sandbox:` of a plan."""
    watches: tuple[WatchSection, ...] = ()
    """Services that `proctor serve` watches."""
    files: tuple[str, ...] = ()


def read_config(folders: Iterable[Path], environment: Mapping[str, str]) -> Config:
    """Read the `proctor.toml` of each folder; earlier folders take precedence."""
    files = [folder / FILE for folder in dict.fromkeys(folders) if (folder / FILE).is_file()]
    # The checks vouch for the types.
    merged: dict[str, Any] = {name.partition(".")[0]: {} for name in (*SETTINGS, "sandbox")}
    keys: dict[str, str] = {}
    tokens: dict[str, Mapping[str, str]] = {}
    budgets: list[float] = []
    watches: dict[str, WatchSection] = {}
    for path in reversed(files):
        data = _read(path)
        watches |= {entry["name"]: _watch(entry) for entry in data.pop("watch", [])}
        for section, entries in data.items():
            if section == "serve":
                secrets = entries.pop("access_keys", {}).items()
                keys |= {name: _access_key(path, name, secret, environment) for name, secret in secrets}
                named = entries.pop("tokens", {}).items()
                tokens |= {name: _beside(path, entry, "token_file") for name, entry in named}
            if section == "budget":
                # It belongs to the store: a file beside a plan must not raise it.
                budgets.append(entries["usd"])
            if section == "encryption":
                # One place names the key; a nearer file that does replaces it whole.
                keys_of_kms = {arn: _beside(path, source) for arn, source in entries.pop("keys", {}).items()}
                entries = {**_beside(path, entries), **({"keys": keys_of_kms} if keys_of_kms else {})}
                merged[section] = {name: each for name, each in merged[section].items() if name == "keys"}
            merged[section].update(entries)
    patience = merged["limits"].pop("outage_patience", None)
    return Config(
        prices=merged["prices"],
        outage_patience_seconds=patience,
        limits={name: entry["concurrency"] for name, entry in merged["limits"].items()},
        providers=merged["providers"],
        variables=_variables(merged["providers"], environment),
        serve=merged["serve"],
        access_keys=keys,
        tokens=tokens,
        budget_usd=min(budgets, default=None),
        evaluation=merged["evaluation"],
        encryption=merged["encryption"],
        sandbox=merged["sandbox"],
        watches=tuple(watches.values()),
        files=tuple(map(str, files)),
    )


def _read(path: Path) -> dict[str, Any]:
    # Most commands read no file and need no parser.
    import tomllib

    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}\nFix the file, or remove it.") from error
    try:
        _check_file(data)
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
    return data


# What a file may contain. Not pydantic: loading it takes longer than all else that short commands do.


@dataclass(frozen=True, slots=True)
class Check:
    """What a value should be, for messages, and whether one is."""

    expected: str
    holds: Callable[[Any], bool]

    def require(self, place: str, name: str, value: object) -> None:
        """Raise where a value is wrong, without the value: it may be a secret."""
        if not self.holds(value):
            raise ValueError(f"{place}: {name} should be {self.expected}")


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and value not in (math.inf, -math.inf)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) and each for each in value)


def _names_a_variable(text: str) -> bool:
    """Whether this is `NAME`, `${NAME}` or empty, and does not look random like a key."""
    name = text.removeprefix("${").removesuffix("}")
    is_random = len(name) >= 16 and bool(re.search(r"[a-z]", name) and re.search(r"\d", name))
    return not name or bool(re.fullmatch(r"[A-Za-z_]\w*", name) and not is_random)


def _one_of(*names: str) -> Check:
    return Check(f"one of: {', '.join(names)}", lambda value: value in names)


def _like(pattern: str, expected: str) -> Check:
    return Check(expected, lambda value: isinstance(value, str) and bool(re.fullmatch(pattern, value)))


_STRING = Check("text", lambda value: isinstance(value, str))
_TEXT = Check("text", lambda value: isinstance(value, str) and bool(value))
_TEXTS = Check("a list of texts", _is_texts)
_NUMBER = Check("a number", _is_number)
_USD = Check("a number that is not negative", lambda value: _is_number(value) and value >= 0)
_SECTION = Check("a section", lambda value: isinstance(value, dict))
SETTINGS: Mapping[str, Mapping[str, Check]] = {
    "providers.*": dict.fromkeys(("base_url", "key"), _STRING),
    "prices.*": dict.fromkeys(("input", "cached", "cache_write", "output"), _USD),
    "limits": {"outage_patience": Check("a number of seconds: 0 or more", _USD.holds)},
    "limits.*": {
        "concurrency": Check("a number of calls: 1 or more", lambda value: type(value) is int and value >= 1)
    },
    "serve": {
        **dict.fromkeys(("log_group", "region", "account"), _STRING),
        **dict.fromkeys(("access_keys", "tokens"), _SECTION),
    },
    "serve.tokens.*": {
        "token_env": _STRING,
        "token_file": _STRING,
        "sha256": _like("[0-9a-fA-F]{64}", "64 hexadecimal digits"),
        "role": _one_of(*ROLES_IN_ORDER),
    },
    "budget": {"usd": _USD},
    "evaluation": {
        "judge": Check("`provider/model`", _STRING.holds),
        "harmful_value": Check("0 or 1", lambda value: value in (0, 1)),
        **dict.fromkeys(("limits", "lambdas", "buckets", "models"), _SECTION),
    },
    "encryption": {**dict.fromkeys(SOURCES, _TEXT), "keys": _SECTION},
    "encryption.keys.*": dict.fromkeys(("key_file", "key_env"), _TEXT),
    "watch": {
        "name": _like("[A-Za-z][A-Za-z0-9_]{0,47}", "a letter, followed by letters, digits and `_`"),
        "service": _TEXT,
        "log_groups": _TEXTS,
        "evaluators": _TEXTS,
        "command": _TEXTS,
        "margin": _NUMBER,
        "reference": _NUMBER,
        "alpha": Check("a number between 0 and 1", lambda value: _is_number(value) and 0 < value < 1),
        "sample_percent": Check(
            "a number above 0, at most 100", lambda value: _is_number(value) and 0 < value <= 100
        ),
        "session_timeout_minutes": Check(
            "a whole number from 1 to 1440", lambda value: type(value) is int and 1 <= value <= 1440
        ),
        "direction": _one_of("both", "up", "down"),
        "scale": Check(
            "two numbers, the lower one first",
            lambda value: (
                isinstance(value, list)
                and len(value) == 2
                and all(map(_is_number, value))
                and value[0] < value[1]
            ),
        ),
        "webhook": _like(r"(https?://|\$\{).*", "an address that starts with https://, http:// or ${"),
    },
}
"""By section, the settings that it may have; `*` is any name."""
VALUES = {
    "serve.access_keys": Check('text, as in:  AKID = "secret"', _STRING.holds),
    "evaluation.models": _like(".*[^/]/+[^/].*", '"provider/model"'),
    "evaluation.buckets": Check("a folder", _TEXT.holds),
    "evaluation.lambdas": Check(
        '"module:function", or a list: a program and its arguments',
        lambda value: isinstance(value, str) or _is_texts(value),
    ),
}
"""Sections with any names, and what their values should be."""
NEEDED = {
    "prices.*": ("input", "output"),
    "limits.*": ("concurrency",),
    "serve.tokens.*": ("role",),
    "watch": ("name",),
}


def _check_file(data: dict[str, Any]) -> None:
    for section, entries in data.items():
        if section == "watch":
            _check_watches(entries)
        elif section == "sandbox":
            try:
                read_settings(entries)
            except ValueError as error:
                raise ValueError(f"[sandbox]: {error}") from None
        elif section == "budget" and not (
            isinstance(entries, dict) and set(entries) == {"usd"} and _USD.holds(entries["usd"])
        ):
            raise ValueError("[budget] limits the spending of all runs on a store together\nWrite:  usd = 50")
        elif section in SETTINGS or f"{section}.*" in SETTINGS:
            _check_section(section, entries)
        else:
            known = dict.fromkeys(name.partition(".")[0] for name in (*SETTINGS, "sandbox"))
            raise ValueError(f"there is not a section [{section}]\n{_near(section, known)}")


def _check_section(name: str, entries: object) -> None:
    """Check a section with its entries and further sections."""
    if not isinstance(entries, dict):
        entry = ".NAME" if f"{name}.*" in SETTINGS else ""
        raise ValueError(f"`{name}` is not a section\nWrite [{name}{entry}].")
    own = SETTINGS.get(name, {})
    for key, value in entries.items():
        if f"{name}.{key}" in VALUES or f"{name}.{key}.*" in SETTINGS:
            _check_section(f"{name}.{key}", value)
        elif name in VALUES:
            VALUES[name].require(f"[{name}]", f'"{key}"', value)
        elif f"{name}.*" in SETTINGS and key not in own:
            _check_entry(f"[{name}.{key}]", f"{name}.*", value)
            _check_more(f"[{name}.{key}]", name, key, value)
    if own:
        settings = {key: value for key, value in entries.items() if key in own or f"{name}.*" not in SETTINGS}
        _check_entry(f"[{name}]", name, settings)
    if name == "encryption":
        _check_one_key(f"[{name}]", entries)


def _check_entry(place: str, section: str, entry: object) -> None:
    """Check the settings of one section or entry."""
    checks = SETTINGS[section]
    if not isinstance(entry, dict):
        raise ValueError(f"{place} is not a section of settings\nIt may have: {', '.join(checks)}.")
    for setting, value in entry.items():
        if setting not in checks:
            raise ValueError(f"{place} has no setting `{setting}`\n{_near(setting, checks)}")
        if checks[setting] is _SECTION and not isinstance(value, dict):
            dotted = f"{section}.{setting}"
            raise ValueError(f"`{dotted}` is not a section\nWrite [{dotted}].")
        checks[setting].require(place, f"`{setting}`", value)
    for setting in NEEDED.get(section, ()):
        if setting not in entry:
            raise ValueError(f"{place} lacks `{setting}`")


def _check_more(place: str, section: str, name: str, entry: Mapping[str, str]) -> None:
    """What the settings of an entry have to do with each other, and with its name."""
    if section == "providers":
        # Loaded only where there is such a section.
        from proctor.models.providers import PROVIDERS, variable_prefix

        if not _names_a_variable(entry.get("key", "")):
            raise ValueError(
                f"{place}: `key` should name the variable that holds the key, and not be the key itself"
                f'\nWrite:  key = "{variable_prefix(name)}_API_KEY"'
            )
        # Built-in providers have an address.
        if "base_url" not in entry and name not in PROVIDERS:
            raise ValueError(f"{place} lacks `base_url`")
    if section == "serve.tokens":
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) or name in ("proctor", "local"):
            raise ValueError(f"{place}: choose another name, of letters, digits, `.`, `_` and `-`")
        sources = ("token_env", "token_file", "sha256")
        if sum(bool(entry.get(source)) for source in sources) != 1:
            raise ValueError(f"{place} needs one of: {', '.join(sources)}")
    if section == "encryption.keys":
        _check_one_key(place, entry)


def _check_one_key(place: str, entry: JsonMap) -> None:
    if len(named := [source for source in SOURCES if source in entry]) > 1:
        raise ValueError(f"{place} names several keys: {', '.join(named)}\nKeep one.")


def _check_watches(entries: object) -> None:
    if not isinstance(entries, list):
        raise ValueError("`watch` is not a list of sections\nWrite [[watch]].")
    names = set[str]()
    for number, entry in enumerate(entries, start=1):
        place = f"[[watch]] {number}"
        _check_entry(place, "watch", entry)
        if entry["name"] in names:
            raise ValueError(f"{place}: `{entry['name']}` is the name of another one")
        names.add(entry["name"])
        if entry.get("evaluators") and not (entry.get("service") and entry.get("log_groups")):
            raise ValueError(f"{place} needs `service` and `log_groups`, the source of its sessions")
        if entry.get("webhook") and entry.get("command"):
            raise ValueError(f"{place} has both `webhook` and `command`\nKeep one: each alert is sent once.")


def _near(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return (f"Did you mean `{near[0]}`? " if near else "") + f"There are: {', '.join(names)}."


def _beside(path: Path, entry: JsonMap, name: str = "key_file") -> dict[str, Any]:
    """The same settings, with the path of a file relative to the file that names it."""
    file = as_text(entry.get(name))
    return {**entry, name: str(path.parent / Path(file).expanduser())} if file else dict(entry)


def _watch(entry: JsonMap) -> WatchSection:
    lists = {name: tuple(value) for name, value in entry.items() if isinstance(value, list)}
    return WatchSection(**{**entry, **lists})  # type: ignore[arg-type]


def _access_key(path: Path, name: str, secret: str, environment: Mapping[str, str]) -> str:
    """The secret of an access key; `${VARIABLE}` refers to the environment."""
    if secret.startswith("${") and secret.endswith("}"):
        variable = secret[2:-1]
        if not (secret := environment.get(variable, "")):
            raise UsageError(
                f"{path}: [serve.access_keys]: {variable} is not set\nSet it: export {variable}=…"
            )
    if not secret:
        raise UsageError(f"{path}: [serve.access_keys]: `{name}` has no secret")
    return secret


def serve_tokens(
    entries: Mapping[str, Mapping[str, str]], environment: Mapping[str, str]
) -> list[ServeToken]:
    """The named tokens, read from the environment and files."""
    return [_serve_token(name, entry, environment) for name, entry in entries.items()]


def _serve_token(name: str, entry: Mapping[str, str], environment: Mapping[str, str]) -> ServeToken:
    where, role = f"[serve.tokens.{name}]", entry["role"]
    if digest := entry.get("sha256"):
        return ServeToken(name=name, role=role, sha256=digest.lower())
    if variable := entry.get("token_env"):
        token = environment.get(variable, "")
        if not token:
            raise UsageError(f"{where}: {variable} is not set\nSet it: export {variable}=…")
        return ServeToken(name=name, role=role, token=checked_token(token, f"{where}: {variable}"))
    return ServeToken(name=name, role=role, token=read_token_file(Path(entry["token_file"]), where))


def read_token_file(path: Path, where: str) -> str:
    """The token in a file."""
    try:
        if not path.is_file():
            raise UsageError(f"{where}: {path} is not a file")
        with path.open(encoding="utf-8") as file:
            return checked_token(file.read(10_000).strip(), f"{where}: {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{where}: cannot read {path}: {error}") from None


def checked_token(token: str, where: str) -> str:
    """The token; raises for one that could be guessed, or cannot be sent in a header."""
    if len(token) < SHORTEST_TOKEN:
        raise UsageError(
            f"{where}: the token has fewer than {SHORTEST_TOKEN} characters\n"
            "Make one:  python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"{where}: a token has only ASCII characters, and no spaces")
    return token


def _variables(providers: Mapping[str, Mapping[str, str]], environment: Mapping[str, str]) -> dict[str, str]:
    variables: dict[str, str] = {}
    if not providers:
        return variables
    from proctor.models.providers import PROVIDERS, base_variable, variable_prefix

    for name, settings in providers.items():
        usual = PROVIDERS[name].base_variables if name in PROVIDERS else ()
        if "base_url" in settings and not any(environment.get(each) for each in usual):
            variables[base_variable(name)] = settings["base_url"]
        if variable := settings.get("key", "").removeprefix("${").removesuffix("}"):
            variables[f"{variable_prefix(name)}{KEY_VARIABLE}"] = variable
    return variables


def redirected_keys(config: Config, trusted: Config) -> Iterator[str]:
    """Remarks on usual keys of providers that go to an address which only a working folder names."""
    if not config.providers:
        return
    from proctor.models.providers import PROVIDERS, base_variable

    usual = {key for provider in PROVIDERS.values() for key in provider.key_variables}
    for name, settings in config.providers.items():
        # Absent if the environment says otherwise.
        address = config.variables.get(base_variable(name), "")
        if not address or is_loopback(address) or address == trusted.variables.get(base_variable(name)):
            continue
        own = PROVIDERS[name].key_variables if name in PROVIDERS else ()
        key = settings.get("key", "").removeprefix("${").removesuffix("}") or next(iter(own), "")
        if key in usual:
            yield f"the key {key} goes to {address}, as a {FILE} in a working folder says"
