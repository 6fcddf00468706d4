"""GetCallerIdentity of the Security Token Service, which AWS's clients call before others.

It is a form in, and XML out, also for errors.
"""

import uuid
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from starlette.requests import Request
from starlette.responses import Response

from proctor.agentcore.errors import LogsError, WireError
from proctor.agentcore.operation import Operation, admitted_body, request_record, respond_safely
from proctor.agentcore.service import Service
from proctor.agentcore.shapes import Structure

FORM = "application/x-www-form-urlencoded"
XMLNS = "https://sts.amazonaws.com/doc/2011-06-15/"
# The answer names the caller, which an operation does not see: `respond` writes it.
OPERATION = Operation(
    name="GetCallerIdentity",
    plane="sts",
    method="POST",
    path="/",
    shape=Structure({}),
    query={},
    status=200,
    answer=lambda *_: {},
)


def is_form(request: Request) -> bool:
    """Whether a request has the form of this service."""
    return request.headers.get("content-type", "").startswith(FORM)


async def respond(service: Service, request: Request) -> Response:
    """Account and name of the caller."""

    async def work() -> Response:
        body = await admitted_body(service, request, OPERATION)
        action = parse_qs(body.decode("utf-8", "replace")).get("Action", [""])[0]
        if action != OPERATION.name:
            raise LogsError("InvalidAction", f"Could not find operation {action[:200]} here.")
        principal, account = request_record(request).principal, service.names.account
        name = principal.name if principal else "anonymous"
        return _xml(
            200,
            f'<GetCallerIdentityResponse xmlns="{XMLNS}"><GetCallerIdentityResult>'
            f"<Arn>arn:aws:iam::{account}:user/{escape(name)}</Arn><UserId>{escape(name)}</UserId>"
            f"<Account>{account}</Account></GetCallerIdentityResult>{_metadata()}"
            "</GetCallerIdentityResponse>",
        )

    return await respond_safely(work, _error)


def _error(error: WireError) -> Response:
    kind = "Sender" if error.status < 500 else "Receiver"
    return _xml(
        error.status,
        f'<ErrorResponse xmlns="{XMLNS}"><Error><Type>{kind}</Type><Code>{escape(error.kind)}</Code>'
        f"<Message>{escape(str(error))}</Message></Error><RequestId>{uuid.uuid4()}</RequestId>"
        "</ErrorResponse>",
    )


def _metadata() -> str:
    return f"<ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId></ResponseMetadata>"


def _xml(status: int, text: str) -> Response:
    return Response(text, status_code=status, media_type="text/xml")
