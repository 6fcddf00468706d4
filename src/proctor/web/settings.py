"""Settings: what this server stands on, and which providers it could ask. Never a key.

Knows nothing of what the browser keeps for itself: theme, notifications.
"""

import platform
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit, urlunsplit

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from proctor import __version__
from proctor.errors import NotFound
from proctor.models.providers import PROVIDERS, Endpoint, find_endpoint, is_loopback
from proctor.web.answers import page
from proctor.web.site import Site

SUFFIX = "_BASE_URL"


class ProviderSetting(BaseModel):
    """A provider, and whether it could be asked."""

    name: str
    address: str
    """Empty: it has none yet."""
    keyVariable: str  # noqa: N815  names as in the API
    """The variable its key is looked for in. Empty: it wants none."""
    key: str
    """`present`, `missing`, or `not needed`. The key itself is never told."""


class Settings(BaseModel):
    """What the server stands on."""

    version: str
    python: str
    store: str
    home: str
    folder: str
    """Where relative paths of plans that are typed in begin."""
    token: bool
    """Whether callers must show one."""
    accessKeys: list[str]  # noqa: N815
    """Ids of the access keys that requests can be signed with."""
    providers: list[ProviderSetting]


def router(site: Site) -> APIRouter:
    """The page, and what it shows."""
    made = APIRouter(tags=["settings"])

    @made.get("/settings", include_in_schema=False)
    def shown(request: Request) -> Response:
        return page(request, "settings.html", title="Settings")

    @made.get("/api/settings", summary="What this server stands on")
    def settings() -> Settings:
        return Settings(
            version=__version__,
            python=platform.python_version(),
            store=site.store.url,
            home=str(site.home),
            folder=str(site.folder),
            token=bool(site.token),
            accessKeys=sorted(site.access_keys),
            providers=list(_providers(site.environment)),
        )

    return made


def _providers(environment: Mapping[str, str]) -> Iterator[ProviderSetting]:
    """Those we know, then those the user has an address of."""
    usual = {variable for known in PROVIDERS.values() for variable in known.base_variables}
    own = sorted(
        name.removesuffix(SUFFIX).lower()
        for name, value in environment.items()
        if name.endswith(SUFFIX) and name not in usual and value
    )
    for name in (*PROVIDERS, *own):
        try:
            yield _told(name, find_endpoint(f"{name}/any", environment))
        except NotFound:
            known = PROVIDERS.get(name)
            yield ProviderSetting(
                name=name, address="", keyVariable=known.key_variables[0] if known else "", key="missing"
            )


def _told(name: str, endpoint: Endpoint) -> ProviderSetting:
    key = "present" if endpoint.key else "missing" if endpoint.missing_key else "not needed"
    variable = "" if key == "not needed" and is_loopback(endpoint.base_url) else endpoint.key_variable
    return ProviderSetting(name=name, address=_harmless(endpoint.base_url), keyVariable=variable, key=key)


def _harmless(address: str) -> str:
    """An address without what might be a secret: a user and password, a query."""
    try:
        parts = urlsplit(address)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    except ValueError:
        return ""
