"""Master keys: what the keys of a store are wrapped with, and where they come from.

A master key never touches the record itself; it wraps small keys that do. One is 256 bits in a file or in
the environment, or a key of AWS KMS, which never leaves there. It is known by an id that says nothing
about it.

Knows nothing of stores, or of what is sealed.
"""

import base64
import binascii
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from proctor.errors import KeyMissing, KeyUnusable

VARIABLE = "PROCTOR_ENCRYPTION_KEY"
"""Holds a key when nothing else is said."""


KEY_BYTES = 32


NONCE_BYTES = 12


SOURCES = ("key_file", "key_env", "kms_key")


class MasterKey(Protocol):
    """Something that can wrap a small key and give it back."""

    @property
    def id(self) -> str:
        """What stands beside everything it has wrapped."""

    def wrap(self, secret: bytes, context: Mapping[str, str]) -> bytes:
        """The secret as it may lie on a disk. `context` must be the same to get it back."""

    def unwrap(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        """The secret. Raises `KeyMissing` when this is not the key, or the context another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalKey:
    """256 bits that we hold ourselves."""

    secret: bytes = field(repr=False)
    name: str = ""
    """Under which it stands in for a key of AWS KMS; empty: known by its own fingerprint."""

    @property
    def id(self) -> str:
        return self.name or "local:" + hashlib.sha256(b"proctor key id" + self.secret).hexdigest()[:16]

    def wrap(self, secret: bytes, context: Mapping[str, str]) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + bytes(sealing_with(self.secret).encrypt(nonce, secret, _bytes_of(context)))

    def unwrap(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        from cryptography.exceptions import InvalidTag

        nonce, sealed = wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:]
        try:
            return bytes(sealing_with(self.secret).decrypt(nonce, sealed, _bytes_of(context)))
        except InvalidTag:
            raise KeyMissing(f"the key {self.id} does not open what was sealed under it") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class KmsKey:
    """A key that stays in AWS KMS."""

    arn: str

    @property
    def id(self) -> str:
        return self.arn

    def wrap(self, secret: bytes, context: Mapping[str, str]) -> bytes:
        def work(client: Any) -> bytes:
            found = client.encrypt(KeyId=self.arn, Plaintext=secret, EncryptionContext=dict(context))
            return bytes(found["CiphertextBlob"])

        return self._asked(work, KeyUnusable)

    def unwrap(self, wrapped: bytes, context: Mapping[str, str]) -> bytes:
        def work(client: Any) -> bytes:
            found = client.decrypt(KeyId=self.arn, CiphertextBlob=wrapped, EncryptionContext=dict(context))
            return bytes(found["Plaintext"])

        return self._asked(work, KeyMissing)

    def _asked(self, work: Any, problem: type[KeyMissing] | type[KeyUnusable]) -> bytes:
        client = _kms(self.arn)
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return bytes(work(client))
        except (BotoCoreError, ClientError) as error:
            raise problem(
                f"the key {self.arn} cannot be used: {error}\n"
                "It must be there, enabled, symmetric, and your credentials must allow its use."
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The master keys at hand."""

    own: MasterKey | None = None
    """What new data keys are wrapped with; None: the store is not sealed."""
    named: Mapping[str, MasterKey] = field(default_factory=dict)
    """Keys that stand in for others, by ARN."""

    def find(self, key_id: str) -> MasterKey:
        """The master key of this id. Raises `KeyMissing` when it is not at hand."""
        if self.own is not None and self.own.id == key_id:
            return self.own
        if key_id in self.named:
            return self.named[key_id]
        if key_id.startswith("arn:"):
            return KmsKey(arn=key_id)
        given = f"; the key given is {self.own.id}" if self.own else ", and no key is given"
        raise KeyMissing(
            f"this is sealed under the key {key_id}{given}\n"
            f"Name the right one in proctor.toml, [encryption] key_file, or in {VARIABLE}."
        )


def read_keys(section: Mapping[str, Any], environment: Mapping[str, str]) -> Keys:
    """The keys that `[encryption]` and the environment name. Raises `KeyUnusable` when one is none."""
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
            "Bring back the key that the store is sealed under: no other one opens it. "
            f"Only if nothing is sealed yet, make one:  proctor encryption new-key {file}"
        ) from error
    return LocalKey(secret=data if len(data) == KEY_BYTES else _decoded(data, str(file)))


def new_key_text(secret: bytes) -> str:
    """A key as it stands in a file."""
    return base64.b64encode(secret).decode() + "\n"


@lru_cache(maxsize=64)
def sealing_with(secret: bytes) -> Any:
    """AES-256-GCM under a key."""
    # An extra, and not a small one: imported only where something is sealed.
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise KeyUnusable(
            "sealing needs the package cryptography\nInstall it: pip install 'proctor[crypto]'"
        ) from error
    return AESGCM(secret)


def _secret(source: Mapping[str, Any], environment: Mapping[str, str]) -> bytes:
    if source.get("key_file"):
        return key_in(Path(source["key_file"])).secret
    variable = source.get("key_env") or VARIABLE
    text = environment.get(variable, "")
    if not text:
        raise KeyUnusable(f"{variable} is not set\nSet it to a key: base64 of 32 bytes.")
    return _decoded(text.encode(), variable)


def _decoded(data: bytes, where: str) -> bytes:
    """A key from its digits; what it says is told to nobody."""
    text = data.strip()
    for decode in (_hexadecimal, _base64):
        secret = decode(text)
        if len(secret) == KEY_BYTES:
            return secret
    raise KeyUnusable(
        f"{where} holds no key: 32 bytes as base64 or hexadecimal digits\n"
        "Make one:  proctor encryption new-key FILE"
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
def _kms(arn: str) -> Any:
    # An extra: imported only by those who use it.
    try:
        import boto3
    except ImportError as error:
        raise KeyUnusable("a key of AWS KMS needs boto3\nInstall it: pip install 'proctor[aws]'") from error
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    try:
        patience = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 3})
        return boto3.client("kms", region_name=arn.split(":")[3], config=patience)
    except (BotoCoreError, ValueError, IndexError) as error:
        raise KeyUnusable(f"the key {arn} cannot be used: {error}") from error


def _bytes_of(context: Mapping[str, str]) -> bytes:
    return "\n".join(f"{name}={value}" for name, value in sorted(context.items())).encode()
