"""Let a browser in that shows the token.

Knows nothing of what lies behind the door.
"""

from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from proctor.web.answers import page
from proctor.web.security import is_token, set_cookie
from proctor.web.site import Site

MOST_BYTES = 10_000


def router(site: Site) -> APIRouter:
    """The page that asks for the token, and takes it."""
    made = APIRouter(include_in_schema=False)

    @made.get("/login")
    def ask(request: Request, next: str = "/") -> Response:  # noqa: A002  the word in the address
        if not site.token:
            return RedirectResponse("/", status_code=303)
        return page(request, "login.html", title="Sign in", next=_inside(next), refused=False)

    @made.post("/login")
    async def enter(request: Request) -> Response:
        body = await request.body()
        form = parse_qs(body[:MOST_BYTES].decode("utf-8", "replace"))
        wanted = _inside(form.get("next", ["/"])[0])
        if not site.token or not is_token(form.get("token", [""])[0].strip(), site.token):
            return page(request, "login.html", title="Sign in", status=401, next=wanted, refused=True)
        response = RedirectResponse(wanted, status_code=303)
        set_cookie(response, site.token)
        return response

    return made


def _inside(path: str) -> str:
    """A path on this server; anything else becomes the first page."""
    good = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if good else "/"
