"""Routes of applications after the first are copied instead of analyzed again.

An application has 120 routes. FastAPI reads the signature of each and makes validators for it: a tenth of a
second of processor time for every server of a test. Signatures are the same each time; handlers, and all that
they refer to, stay those of their own application.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastapi.routing import APIRoute, request_response

_analyze = APIRoute.__init__
_analyzed: dict[tuple[Any, ...], tuple[APIRoute, object]] = {}


def _make(route: APIRoute, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
    signature = (endpoint.__annotations__, endpoint.__defaults__, endpoint.__kwdefaults__)
    key = (path, endpoint.__code__, repr(signature), repr(options))
    if key not in _analyzed:
        _analyze(route, path, endpoint, **options)
        # What a key names by its address must not be replaced by something else at that address.
        _analyzed[key] = route, (signature, options)
        return
    route.__dict__.update(_analyzed[key][0].__dict__)
    route.endpoint = endpoint
    route.dependant = replace(route.dependant, call=endpoint)
    route.app = request_response(route.get_route_handler())


def install() -> None:
    """Copy the routes of every application that is made from now on."""
    APIRoute.__init__ = _make  # type: ignore[method-assign,assignment]
