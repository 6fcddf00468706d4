"""State of one server: context, access rules, and how detached processes are started."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import TYPE_CHECKING

from proctor.api.launch import Launcher, without_server_secrets
from proctor.api.loaded_results import ItemCounts, LoadedResults
from proctor.config import ServeToken
from proctor.context import RunContext, Settings
from proctor.session import DEFAULT_LOG_GROUP
from proctor.web.access import AccessControl, AuditLog

if TYPE_CHECKING:
    from proctor.config import EvaluationSection


@dataclass(frozen=True, kw_only=True)
class AppState:
    """One server over one store."""

    context: RunContext
    """Settings, store and clock; its first folder is the base of relative paths in typed plans."""
    command: Sequence[str]
    """Program and global options of a `proctor` on this store and home."""
    token: str = ""
    """The server's own token, with the role admin. Empty: every caller on this machine is accepted."""
    tokens: Sequence[ServeToken] = ()
    """Named tokens of a team."""
    root_path: str = ""
    """Path below which a proxy serves this server: `/proctor`."""
    proxies: Sequence[IPv4Network | IPv6Network] = ()
    """Addresses of proxies whose `X-Forwarded-` headers are believed."""
    hosts: frozenset[str] = frozenset({"localhost", "127.0.0.1", "::1"})
    """Host names accepted without a token, so that a page of another site whose name resolves to this
    address is rejected."""
    access_keys: Mapping[str, str] = field(default_factory=dict)
    """Secrets of callers that sign their requests, by access key ID."""
    log_group: str = DEFAULT_LOG_GROUP
    """Log group of sessions that arrive without one."""
    grpc_address: str = ""
    """Host and port of the OTLP receiver over gRPC. Empty: none."""
    grpc_tls: tuple[Path, Path] | None = None
    """Certificate and key of that receiver. None: not encrypted."""
    region: str = "us-east-1"
    account: str = "000000000000"
    """Region and account in resource names."""

    @cached_property
    def item_counts(self) -> ItemCounts:
        """Items of runs by status."""
        return ItemCounts(self.context)

    @cached_property
    def results(self) -> LoadedResults:
        """Results of runs."""
        return LoadedResults(self.context, self.item_counts)

    @cached_property
    def access(self) -> AccessControl:
        """Tokens, roles and the audit log."""
        return AccessControl(
            token=self.token,
            tokens=self.tokens,
            access_keys=self.access_keys,
            audit=AuditLog(self.data_folder / "audit.jsonl", lambda: self.now()),
            monotonic=self.context.monotonic,
        )

    @property
    def now(self) -> Callable[[], datetime]:
        """The clock."""
        return self.context.now

    @property
    def home(self) -> Path:
        """Folder of the store and the worktrees."""
        return self.context.home

    @property
    def folder(self) -> Path:
        """Base of relative paths in typed plans."""
        return self.context.settings.folders[0]

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment with the providers of `proctor.toml`. Holds keys: never shown."""
        return self.context.settings.environment

    @property
    def evaluation(self) -> "EvaluationSection":
        """The section `[evaluation]` of the configuration."""
        return self.context.settings.evaluation

    @property
    def data_folder(self) -> Path:
        """The server's own folder: typed plans, logs of detached processes."""
        return self.home / "serve"

    @property
    def launcher(self) -> Launcher:
        """Starts processes that outlive the server."""
        return Launcher(
            command=self.command,
            environment={**self.environment, "PROCTOR_STORE": self.context.settings.store_url},
            folder=self.folder,
            logs=self.data_folder / "logs",
            is_encrypted=self.context.store.data_keys.is_encrypted,
        )

    def current_settings(self) -> Settings:
        """The settings as they are now, for programs that a request starts: `proctor.toml` is read again, and
        the secrets of the server are left out."""
        settings = self.context.settings_for(self.context.settings.folders)
        return replace(
            settings,
            user_environment=without_server_secrets(settings.user_environment),
            environment=without_server_secrets(settings.environment),
        )
