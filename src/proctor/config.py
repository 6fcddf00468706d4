"""`proctor.toml`: providers, prices, limits and a budget that hold for every plan.

Read beside the plan, in the working folder, in Proctor's home and in the user's configuration folder; the
nearest file that sets a value takes precedence. Provider keys are never written in it: `key` names an
environment variable. `[encryption]` names the key of the store: `key_file`, `key_env` or `kms_key`; its
`keys` replace keys of AWS KMS. `[serve]` configures `proctor serve`, and `[serve.access_keys]` the callers
that may sign requests: `AKID = "secret"`, or `"${VARIABLE}"`. `[serve.tokens.NAME]` is a token with a role:
`token_env`, `token_file` or `sha256`, and `role`. `[[watch]]` is a service whose sessions `proctor serve`
evaluates as they arrive, with an alert when a score drifts.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypedDict

from proctor.errors import UsageError
from proctor.json_values import JsonMap, JsonObject, as_cost, as_map, as_text
from proctor.sandbox import read_settings
from proctor.secrets import KEY_VARIABLE, is_loopback
from proctor.store.keys import SOURCES, EncryptionSection

FILE = "proctor.toml"
SECTIONS = {
    "providers": ("base_url", "key"),
    "prices": ("input", "cached", "cache_write", "output"),
    "limits": ("concurrency",),
}
"""Sections with named entries, and the settings of an entry."""
OUTAGE_PATIENCE = "outage_patience"
"""Setting of `[limits]`, beside its entries."""
SERVE = ("log_group", "region", "account")
"""Settings of `[serve]`, besides `access_keys` and `tokens`."""
ROLES_IN_ORDER = ("view", "label", "run", "admin")
"""Roles of callers of `proctor serve`; each includes the ones before it."""
TOKEN_SOURCES = ("token_env", "token_file", "sha256")
TOKEN = (*TOKEN_SOURCES, "role")
"""Settings of `[serve.tokens.NAME]`."""
SHORTEST_TOKEN = 16
"""Minimum length of a token, in characters."""
ENCRYPTION = (*SOURCES, "keys")
"""Settings of `[encryption]`."""
SINGLE = ("serve", "budget", "evaluation", "encryption", "sandbox")
"""Sections with settings but no entries."""


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


EVALUATION = tuple(EvaluationSection.__annotations__)


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


WATCH = tuple(WatchSection.__dataclass_fields__)


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
    # The checks of `_read` vouch for the types.
    merged: dict[str, Any] = {section: {} for section in (*SECTIONS, *SINGLE)}
    keys: dict[str, str] = {}
    tokens: dict[str, Mapping[str, str]] = {}
    budgets: list[float] = []
    watches: dict[str, WatchSection] = {}
    for path in reversed(files):
        data = _read(path)
        watches |= _watches(path, data.pop("watch", []))
        for section, entries in data.items():
            if section == "serve":
                keys |= _access_keys(path, entries.pop("access_keys", {}), environment)
                tokens |= _token_entries(path, entries.pop("tokens", {}))
            if section == "budget":
                # It belongs to the store: a file beside a plan must not raise it.
                budgets.append(entries["usd"])
            if section == "encryption":
                # One place names the key; a nearer file that does replaces it whole.
                entries = _beside(path, entries)
                merged[section] = {name: each for name, each in merged[section].items() if name == "keys"}
            merged[section].update(entries)
    patience = merged["limits"].pop(OUTAGE_PATIENCE, None)
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


def _read(path: Path) -> dict[str, dict[str, Any]]:
    # Most commands read no file and need no parser.
    import tomllib

    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}\nFix the file, or remove it.") from error
    for section, entries in data.items():
        if section == "watch":
            continue
        if section in SINGLE:
            _CHECKS[section](path, entries)
            continue
        if section not in SECTIONS:
            raise UsageError(
                f"{path}: there is not a section [{section}]\n{_near(section, [*SECTIONS, *SINGLE, 'watch'])}"
            )
        if not isinstance(entries, dict):
            raise UsageError(f"{path}: `{section}` is not a section\nWrite [{section}.NAME].")
        for name, entry in entries.items():
            if (section, name) == ("limits", OUTAGE_PATIENCE):
                if as_cost(entry) is None:
                    raise UsageError(f"{path}: [limits] `{name}` should be a number of seconds: 0 or more")
            else:
                _check(path, section, name, entry)
    return data


def _check(path: Path, section: str, name: str, entry: object) -> None:
    where = f"{path}: [{section}.{name}]"
    if not isinstance(entry, dict):
        raise UsageError(
            f"{where} is not a section of settings\nIt may have: {', '.join(SECTIONS[section])}."
        )
    # Loaded only where there is a proctor.toml with such a section.
    from proctor.models.providers import PROVIDERS, variable_prefix

    for setting, value in entry.items():
        if setting not in SECTIONS[section]:
            raise UsageError(f"{where} has no setting `{setting}`\n{_near(setting, SECTIONS[section])}")
        if section == "providers" and not isinstance(value, str):
            raise UsageError(f"{where}: `{setting}` should be text")
        if section == "providers" and setting == "key" and not _names_a_variable(value):
            # The value may be the key, so the message does not contain it.
            raise UsageError(
                f"{where}: `key` should name the variable that holds the key, and not be the key itself"
                f'\nWrite:  key = "{variable_prefix(name)}_API_KEY"'
            )
        if section == "prices" and not (type(value) in (int, float) and 0 <= value < float("inf")):
            raise UsageError(f"{where}: `{setting}` should be a number that is not negative")
        if section == "limits" and not (type(value) is int and value >= 1):
            raise UsageError(f"{where}: `{setting}` should be a number of calls: 1 or more")
    # Built-in providers have an address.
    address = () if name in PROVIDERS else ("base_url",)
    needed = {"providers": address, "prices": ("input", "output"), "limits": ("concurrency",)}[section]
    for setting in needed:
        if setting not in entry:
            raise UsageError(f"{where} lacks `{setting}`")


def _names_a_variable(text: str) -> bool:
    """Whether this is `NAME`, `${NAME}` or empty, and does not look random like a key."""
    name = text.removeprefix("${").removesuffix("}")
    is_random = len(name) >= 16 and bool(re.search(r"[a-z]", name) and re.search(r"\d", name))
    return not name or bool(re.fullmatch(r"[A-Za-z_]\w*", name) and not is_random)


def _check_budget(path: Path, entries: object) -> None:
    usd = as_cost(entries.get("usd")) if isinstance(entries, dict) and len(entries) == 1 else None
    if usd is None:
        raise UsageError(
            f"{path}: [budget] limits the spending of all runs on a store together\nWrite:  usd = 50"
        )


def _check_evaluation(path: Path, entries: object) -> None:
    if not isinstance(entries, dict):
        raise UsageError(f"{path}: `evaluation` is not a section\nWrite [evaluation].")
    for setting, value in entries.items():
        if setting not in EVALUATION:
            raise UsageError(f"{path}: [evaluation] has no setting `{setting}`\n{_near(setting, EVALUATION)}")
        if setting == "judge" and not isinstance(value, str):
            raise UsageError(f"{path}: [evaluation]: `judge` should be `provider/model`")
        if setting == "harmful_value" and value not in (0, 1):
            raise UsageError(f"{path}: [evaluation]: `harmful_value` should be 0 or 1")
        if setting in ("limits", "lambdas", "models", "buckets") and not isinstance(value, dict):
            raise UsageError(
                f"{path}: `evaluation.{setting}` is not a section\nWrite [evaluation.{setting}]."
            )
    for id_, model in entries.get("models", {}).items():
        if not isinstance(model, str) or "/" not in model.strip("/"):
            raise UsageError(f'{path}: [evaluation.models]: "{id_}" should be "provider/model"')
    for bucket, folder in entries.get("buckets", {}).items():
        if not isinstance(folder, str) or not folder:
            raise UsageError(f'{path}: [evaluation.buckets]: "{bucket}" should be a folder')
    for arn, run in entries.get("lambdas", {}).items():
        is_words = isinstance(run, list) and run and all(isinstance(word, str) for word in run)
        if not isinstance(run, str) and not is_words:
            raise UsageError(
                f'{path}: [evaluation.lambdas]: "{arn}" should be "module:function", '
                "or a list: a program and its arguments"
            )


def _check_encryption(path: Path, entries: object) -> None:
    if not isinstance(entries, dict):
        raise UsageError(f"{path}: `encryption` is not a section\nWrite [encryption].")
    for setting in entries:
        if setting not in ENCRYPTION:
            raise UsageError(f"{path}: [encryption] has no setting `{setting}`\n{_near(setting, ENCRYPTION)}")
    _check_key(f"{path}: [encryption]", {name: entries[name] for name in SOURCES if name in entries})
    keys = entries.get("keys", {})
    if not isinstance(keys, dict):
        raise UsageError(f"{path}: `encryption.keys` is not a section\nWrite [encryption.keys].")
    for arn, source in keys.items():
        where = f'{path}: [encryption.keys] "{arn}"'
        if not isinstance(source, dict) or len(source) != 1 or not {*source} <= {"key_file", "key_env"}:
            raise UsageError(f'{where} should be {{key_file = "…"}} or {{key_env = "…"}}')
        _check_key(where, source)


def _check_key(where: str, source: JsonMap) -> None:
    if len(source) > 1:
        raise UsageError(f"{where} names several keys: {', '.join(source)}\nKeep one.")
    for setting, value in source.items():
        if not isinstance(value, str) or not value:
            raise UsageError(f"{where}: `{setting}` should be text")


def _beside(path: Path, entries: JsonMap) -> JsonObject:
    """The same settings, with paths of key files relative to the file that names them."""

    def located(source: JsonMap) -> JsonObject:
        file = as_text(source.get("key_file"))
        return {**source, "key_file": str(path.parent / Path(file).expanduser())} if file else {**source}

    keys = {arn: located(as_map(source)) for arn, source in as_map(entries, "keys").items()}
    return {**located(entries), **({"keys": keys} if keys else {})}


def _check_sandbox(path: Path, entries: object) -> None:
    try:
        read_settings(entries)
    except ValueError as error:
        raise UsageError(f"{path}: [sandbox]: {error}") from error


def _watches(path: Path, entries: object) -> dict[str, WatchSection]:
    """The services to watch, by name."""
    if not isinstance(entries, list):
        raise UsageError(f"{path}: `watch` is not a list of sections\nWrite [[watch]].")
    watches: dict[str, WatchSection] = {}
    for number, entry in enumerate(entries, start=1):
        where = f"{path}: [[watch]] {number}"
        watch = _watch(where, entry)
        if watch.name in watches:
            raise UsageError(f"{where}: `{watch.name}` is the name of another one")
        watches[watch.name] = watch
    return watches


def _watch(where: str, entry: object) -> WatchSection:
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is not a section of settings\nIt may have: {', '.join(WATCH)}.")
    for setting, value in entry.items():
        if setting not in WATCH:
            raise UsageError(f"{where} has no setting `{setting}`\n{_near(setting, WATCH)}")
        expected, is_valid = _WATCH_CHECKS[setting]
        if not is_valid(value):
            # The value may hold a token, so the message does not contain it.
            raise UsageError(f"{where}: `{setting}` should be {expected}")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,47}", entry.get("name", "")):
        raise UsageError(f"{where}: `name` should be a letter, followed by letters, digits and `_`")
    if entry.get("evaluators") and not (entry.get("service") and entry.get("log_groups")):
        raise UsageError(f"{where} needs `service` and `log_groups`, the source of its sessions")
    if entry.get("webhook") and entry.get("command"):
        raise UsageError(f"{where} has both `webhook` and `command`\nKeep one: each alert is sent once.")
    lists = {name: tuple(value) for name, value in entry.items() if isinstance(value, list)}
    return WatchSection(**{**entry, **lists})


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


_Check = tuple[str, Callable[[Any], bool]]
"""What a value should be, for messages, and whether one is."""
_TEXT: _Check = ("text", _is_text)
_TEXTS: _Check = (
    "a list of texts",
    lambda value: isinstance(value, list) and bool(value) and all(map(_is_text, value)),
)
_NUMBER: _Check = ("a number", _is_number)
_WATCH_CHECKS: Mapping[str, _Check] = {
    "name": _TEXT,
    "service": _TEXT,
    "log_groups": _TEXTS,
    "evaluators": _TEXTS,
    "command": _TEXTS,
    "margin": _NUMBER,
    "reference": _NUMBER,
    "alpha": ("a number between 0 and 1", lambda value: _is_number(value) and 0 < value < 1),
    "sample_percent": ("a number above 0, at most 100", lambda value: _is_number(value) and 0 < value <= 100),
    "session_timeout_minutes": (
        "a whole number from 1 to 1440",
        lambda value: type(value) is int and 1 <= value <= 1440,
    ),
    "direction": ("one of: both, up, down", lambda value: value in ("both", "up", "down")),
    "scale": (
        "two numbers, the lower one first",
        lambda value: (
            isinstance(value, list)
            and len(value) == 2
            and all(map(_is_number, value))
            and value[0] < value[1]
        ),
    ),
    "webhook": (
        "an address that starts with https://, http:// or ${",
        lambda value: _is_text(value) and value.startswith(("https://", "http://", "${")),
    ),
}


def _check_serve(path: Path, entries: object) -> None:
    if not isinstance(entries, dict):
        raise UsageError(f"{path}: `serve` is not a section\nWrite [serve].")
    for setting, value in entries.items():
        if setting in ("access_keys", "tokens"):
            continue
        if setting not in SERVE:
            known = [*SERVE, "access_keys", "tokens"]
            raise UsageError(f"{path}: [serve] has no setting `{setting}`\n{_near(setting, known)}")
        if not isinstance(value, str):
            raise UsageError(f"{path}: [serve]: `{setting}` should be text")


def _access_keys(path: Path, entries: object, environment: Mapping[str, str]) -> dict[str, str]:
    """Access key IDs and secrets; `${VARIABLE}` refers to the environment."""
    if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
        raise UsageError(f'{path}: [serve.access_keys] must contain lines like  AKID = "secret"')
    keys: dict[str, str] = {}
    for name, secret in entries.items():
        if secret.startswith("${") and secret.endswith("}"):
            variable = secret[2:-1]
            if not (secret := environment.get(variable, "")):
                raise UsageError(
                    f"{path}: [serve.access_keys]: {variable} is not set\nSet it: export {variable}=…"
                )
        if not secret:
            raise UsageError(f"{path}: [serve.access_keys]: `{name}` has no secret")
        keys[name] = secret
    return keys


def _token_entries(path: Path, entries: object) -> dict[str, Mapping[str, str]]:
    """Check the named tokens; files are relative to the file that names them."""
    if not isinstance(entries, dict):
        raise UsageError(f"{path}: `serve.tokens` is not a section\nWrite [serve.tokens.NAME].")
    tokens: dict[str, Mapping[str, str]] = {}
    for name, entry in entries.items():
        where = f"{path}: [serve.tokens.{name}]"
        if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
            raise UsageError(f"{where} is not a section of settings\nIt may have: {', '.join(TOKEN)}.")
        for setting in entry:
            if setting not in TOKEN:
                raise UsageError(f"{where} has no setting `{setting}`\n{_near(setting, TOKEN)}")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name) or name in ("proctor", "local"):
            raise UsageError(f"{where}: choose another name, of letters, digits, `.`, `_` and `-`")
        if len([setting for setting in TOKEN_SOURCES if entry.get(setting)]) != 1:
            raise UsageError(f"{where} needs one of: {', '.join(TOKEN_SOURCES)}")
        if entry.get("role") not in ROLES_IN_ORDER:
            raise UsageError(f"{where}: `role` should be one of: {', '.join(ROLES_IN_ORDER)}")
        if "sha256" in entry and not re.fullmatch(r"[0-9a-fA-F]{64}", entry["sha256"]):
            raise UsageError(f"{where}: `sha256` should be 64 hexadecimal digits")
        file = entry.get("token_file")
        located = {"token_file": str(path.parent / Path(file).expanduser())} if file else {}
        tokens[name] = {**entry, **located}
    return tokens


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


_CHECKS: Mapping[str, Callable[[Path, object], None]] = {
    "serve": _check_serve,
    "budget": _check_budget,
    "evaluation": _check_evaluation,
    "encryption": _check_encryption,
    "sandbox": _check_sandbox,
}


def _near(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return (f"Did you mean `{near[0]}`? " if near else "") + f"There are: {', '.join(names)}."
