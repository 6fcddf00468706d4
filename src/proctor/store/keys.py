"""Master keys, which wrap the data keys of a store.

A master key is 256 bits in a file or an environment variable, or a key in AWS KMS. Its id does not reveal it.
"""

import base64
import binascii
import hashlib
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict

from proctor.errors import KeyMissing, KeyUnusable
from proctor.secrets import open_private, private_folder
from proctor.store.signatures import SigningKey

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE = "PROCTOR_ENCRYPTION_KEY"
"""Default environment variable of the key."""
KEY_BYTES = 32
NONCE_BYTES = 12
SOURCES = ("key_file", "key_env", "kms_key")


class KeySource(TypedDict, total=False):
    """Where a master key is."""

    key_file: str
    key_env: str


class EncryptionSection(KeySource, total=False):
    """Settings of `[encryption]`."""

    kms_key: str
    keys: Mapping[str, KeySource]
    """Local replacements of AWS KMS keys, by ARN."""


class MasterKey(Protocol):
    """Wraps and unwraps data keys."""

    @property
    def id(self) -> str:
        """Stored with everything it has wrapped."""

    def wrap(self, secret: bytes, context: Mapping[str, str]) -> bytes:
        """The encrypted secret. Unwrapping needs the same `context`."""

    def unwrap(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        """The secret. Raises `KeyMissing` for another key or context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalKey:
    """256 bits in memory."""

    secret: bytes = field(repr=False)
    name: str = ""
    """ARN of the AWS KMS key that it replaces; empty: the id is its fingerprint."""

    @property
    def id(self) -> str:
        return self.name or "local:" + hashlib.sha256(b"proctor key id" + self.secret).hexdigest()[:16]

    def wrap(self, secret: bytes, context: Mapping[str, str]) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + aes_gcm(self.secret).encrypt(nonce, secret, _bytes_of(context))

    def unwrap(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        from cryptography.exceptions import InvalidTag

        nonce, encrypted = wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:]
        try:
            return aes_gcm(self.secret).decrypt(nonce, encrypted, _bytes_of(context))
        except InvalidTag:
            raise KeyMissing(f"the key {self.id} cannot decrypt what was encrypted with it") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class KmsKey:
    """A key that stays in AWS KMS."""

    arn: str

    @property
    def id(self) -> str:
        return self.arn

    def wrap(self, secret: bytes, context: Mapping[str, str]) -> bytes:
        return self._call(
            "encrypt", "CiphertextBlob", KeyUnusable, Plaintext=secret, EncryptionContext=dict(context)
        )

    def unwrap(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        return self._call(
            "decrypt", "Plaintext", KeyMissing, CiphertextBlob=wrapped, EncryptionContext=dict(context)
        )

    def _call(
        self,
        operation: str,
        result: str,
        problem: type[KeyMissing] | type[KeyUnusable],
        **request: bytes | dict[str, str],
    ) -> bytes:
        client = _kms(self.arn)
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return bytes(getattr(client, operation)(KeyId=self.arn, **request)[result])
        except (BotoCoreError, ClientError) as error:
            raise problem(
                f"the key {self.arn} cannot be used: {error}\n"
                "It must exist, be enabled and symmetric, and your credentials must allow its use."
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The available master keys."""

    own: MasterKey | None = None
    """Wraps new data keys; None: the store is not encrypted."""
    named: Mapping[str, MasterKey] = field(default_factory=dict)
    """Local replacements of AWS KMS keys, by ARN."""
    signing: "SigningKeyFile | None" = None
    """Signs results in a store that is not encrypted; None: they are not signed."""

    def find(self, key_id: str) -> MasterKey:
        """The master key with this id. Raises `KeyMissing` if it is not available."""
        if self.own is not None and self.own.id == key_id:
            return self.own
        if key_id in self.named:
            return self.named[key_id]
        if key_id.startswith("arn:"):
            return KmsKey(arn=key_id)
        available = f"; the configured key is {self.own.id}" if self.own else ", and no key is configured"
        raise KeyMissing(
            f"this is encrypted with the key {key_id}{available}\n"
            f"Set the right key in proctor.toml, [encryption] key_file, or in {VARIABLE}."
        )


SIGNED_RUNS = "signed-runs"
"""File next to the signing key that lists the signed runs."""


class SigningKeyFile:
    """The file with the key that results are signed with, in a folder that agents cannot read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: SigningKey | None = None

    def key(self, *, create: bool = False) -> SigningKey | None:
        """The key; None: there is none, or it cannot be read. `create`: make one if there is none."""
        if self._key is None:
            try:
                if create and not self._path.exists():
                    self._create()
                secret = key_in(self._path).secret
            except (OSError, KeyUnusable):
                # Results are written all the same: without a signature, which is noticed.
                return None
            self._key = SigningKey(LocalKey(secret=secret).id, secret)
        return self._key

    def register(self, entry: str) -> None:
        """Note that results with this entry are signed, beside the key: out of reach of agents."""
        with suppress(OSError):
            private_folder(self._path.parent)
            with open(self._register, "a", opener=open_private) as file:
                file.write(f"{entry}\n")

    def is_registered(self, entry: str) -> bool:
        """Whether results with this entry were signed here."""
        try:
            return entry in self._register.read_text(encoding="ascii").splitlines()
        except OSError:
            return False

    @property
    def _register(self) -> Path:
        return self._path.with_name(SIGNED_RUNS)

    def _create(self) -> None:
        private_folder(self._path.parent)
        new = self._path.with_name(f".{self._path.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            with open(new, "w", opener=open_private) as file:
                file.write(new_key_text(os.urandom(KEY_BYTES)))
            # Another process may have been faster: its key is used.
            with suppress(FileExistsError):
                os.link(new, self._path)
        finally:
            new.unlink(missing_ok=True)


def read_keys(section: EncryptionSection, environment: Mapping[str, str]) -> Keys:
    """The keys of `[encryption]` and the environment. Raises `KeyUnusable` for an invalid one."""
    named = {
        arn: LocalKey(secret=_secret(source, environment), name=arn)
        for arn, source in section.get("keys", {}).items()
    }
    if section.get("kms_key"):
        arn = section["kms_key"]
        return Keys(own=named.get(arn) or KmsKey(arn=arn), named=named)
    if section.get("key_file") or section.get("key_env") or environment.get(VARIABLE):
        return Keys(own=LocalKey(secret=_secret(section, environment)), named=named)
    return Keys(named=named)


def key_in(file: Path) -> LocalKey:
    """The key in a file: 32 bytes, or their base64 or hexadecimal digits."""
    try:
        data = file.expanduser().read_bytes()
    except OSError as error:
        raise KeyUnusable(
            f"the key file cannot be read: {error}\n"
            "Restore the key that the store is encrypted with: no other key can decrypt it. "
            f"If nothing is encrypted yet, create one:  proctor encryption new-key {file}"
        ) from error
    return LocalKey(secret=data if len(data) == KEY_BYTES else _decoded(data, str(file)))


def new_key_text(secret: bytes) -> str:
    """A key in the format of a key file."""
    return base64.b64encode(secret).decode() + "\n"


@lru_cache(maxsize=64)
def aes_gcm(secret: bytes) -> "AESGCM":
    """AES-256-GCM under a key."""
    # A large optional dependency: imported only when something is encrypted.
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise KeyUnusable(
            "encryption needs the package cryptography\nInstall it: pip install 'proctor[crypto]'"
        ) from error
    return AESGCM(secret)


def _secret(source: KeySource, environment: Mapping[str, str]) -> bytes:
    if source.get("key_file"):
        return key_in(Path(source["key_file"])).secret
    variable = source.get("key_env") or VARIABLE
    text = environment.get(variable, "")
    if not text:
        raise KeyUnusable(f"{variable} is not set\nSet it to a key: base64 of 32 bytes.")
    return _decoded(text.encode(), variable)


def _decoded(data: bytes, where: str) -> bytes:
    """Decode a key. The error message must not contain it."""
    text = data.strip()
    for decode in (_hexadecimal, _base64):
        secret = decode(text)
        if len(secret) == KEY_BYTES:
            return secret
    raise KeyUnusable(
        f"{where} does not contain a key: 32 bytes as base64 or hexadecimal digits\n"
        "Create one:  proctor encryption new-key FILE"
    )


def _hexadecimal(text: bytes) -> bytes:
    try:
        return binascii.unhexlify(text)
    except binascii.Error:
        return b""


def _base64(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, altchars=b"-_" if b"-" in text or b"_" in text else None, validate=True)
    except binascii.Error:
        return b""


@lru_cache(maxsize=8)
def _kms(arn: str) -> object:
    # An optional dependency.
    try:
        import boto3
    except ImportError as error:
        raise KeyUnusable("a key of AWS KMS needs boto3\nInstall it: pip install 'proctor[aws]'") from error
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    try:
        config = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 3})
        return boto3.client("kms", region_name=arn.split(":")[3], config=config)
    except (BotoCoreError, ValueError, IndexError) as error:
        raise KeyUnusable(f"the key {arn} cannot be used: {error}") from error


def _bytes_of(context: Mapping[str, str]) -> bytes:
    return "\n".join(f"{name}={value}" for name, value in sorted(context.items())).encode()
