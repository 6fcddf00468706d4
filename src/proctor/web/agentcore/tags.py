"""Tags of resources: words of the caller's own, by ARN.

Knows nothing of what is tagged but whether it is there.
"""

from collections.abc import Mapping
from typing import Any

from proctor.errors import Contradiction
from proctor.web.agentcore.control_shapes import LIST_TAGS, TAG_RESOURCE, UNTAG_RESOURCE
from proctor.web.agentcore.errors import ResourceNotFoundException, ServiceQuotaExceededException
from proctor.web.agentcore.names import BATCH, EVALUATOR, ONLINE, read_arn
from proctor.web.agentcore.operation import Members, Operation
from proctor.web.agentcore.service import Service


def tag(service: Service, asked: Members) -> Mapping[str, Any]:
    """Give a resource tags."""
    arn = _known(service, asked["resourceArn"])
    try:
        service.store.definitions.tag(arn, asked["tags"])
    except Contradiction as error:
        raise ServiceQuotaExceededException(str(error)) from error
    return {}


def untag(service: Service, asked: Members) -> Mapping[str, Any]:
    """Take tags from a resource; ones it does not have are no error."""
    service.store.definitions.untag(_known(service, asked["resourceArn"]), asked["tagKeys"])
    return {}


def list_tags(service: Service, asked: Members) -> Mapping[str, Any]:
    """The tags of a resource."""
    return {"tags": service.store.definitions.tags(_known(service, asked["resourceArn"]))}


OPERATIONS = (
    Operation(
        name="TagResource",
        method="POST",
        path="/tags/{resourceArn}",
        status=204,
        shape=TAG_RESOURCE,
        answer=tag,
        plane="control",
    ),
    Operation(
        name="UntagResource",
        method="DELETE",
        path="/tags/{resourceArn}",
        status=204,
        shape=UNTAG_RESOURCE,
        query=("tagKeys",),
        answer=untag,
        plane="control",
    ),
    Operation(
        name="ListTagsForResource",
        method="GET",
        path="/tags/{resourceArn}",
        shape=LIST_TAGS,
        answer=list_tags,
        plane="control",
    ),
)


def _known(service: Service, arn: str) -> str:
    """The ARN of something that is there. Raises where there is no such thing."""
    kind, resource_id = read_arn(arn) or ("", "")
    if kind == BATCH:
        # Jobs that were started from a command line name a region of their own.
        known = service.store.evaluations.row(resource_id)["arn"]
    elif kind == EVALUATOR:
        known = service.names.arn(
            kind, service.store.definitions.evaluator(resource_id, with_config=False)["id"]
        )
    elif kind == ONLINE:
        known = service.names.arn(kind, service.store.definitions.config(resource_id)["id"])
    else:
        known = ""
    if known != arn:
        raise ResourceNotFoundException(f"There is no resource {arn[:200]}.")
    return arn
