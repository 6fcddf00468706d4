"""The names of resources: ids with a random tail, and the ARNs made of them.

Built-in evaluators belong to nobody, so their ARN has neither region nor account.
"""

import re
import secrets
import string
from dataclasses import dataclass

RESOURCE_ID = r"[a-zA-Z][a-zA-Z0-9-_]{0,99}-[a-zA-Z0-9]{10}"
EVALUATOR_ID = (
    r"(Builtin\.[a-zA-Z0-9._-]+|ThirdParty\.[a-zA-Z0-9_-]+\.[a-zA-Z0-9_-]+|"
    r"[a-zA-Z][a-zA-Z0-9-_]{0,99}-[a-zA-Z0-9]{10})"
)
_ARN = re.compile(
    r"arn:aws[a-zA-Z-]*:bedrock-agentcore:(?P<region>[a-z0-9-]*):(?P<account>[0-9]{12}|):"
    r"(?P<kind>batch-evaluate|evaluator|online-evaluation-config)/(?P<id>[a-zA-Z0-9._-]{1,111})"
)
_ALPHABET = string.ascii_letters + string.digits
BATCH, EVALUATOR, ONLINE = "batch-evaluate", "evaluator", "online-evaluation-config"


def new_id(name: str) -> str:
    """`name` with a tail that makes it the only one."""
    return f"{name}-{''.join(secrets.choice(_ALPHABET) for _ in range(10))}"


def is_managed(evaluator_id: str) -> bool:
    """Whether an evaluator comes with the service, and so can be neither changed nor deleted."""
    return evaluator_id.startswith(("Builtin.", "ThirdParty."))


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What this server's resources are called."""

    region: str
    account: str

    def arn(self, kind: str, resource_id: str) -> str:
        """The ARN of a resource of ours."""
        if kind == EVALUATOR and is_managed(resource_id):
            return f"arn:aws:bedrock-agentcore:::evaluator/{resource_id}"
        return f"arn:aws:bedrock-agentcore:{self.region}:{self.account}:{kind}/{resource_id}"


def read_arn(arn: str) -> tuple[str, str] | None:
    """The kind and id of a resource; None: this is no ARN of one that is kept here."""
    found = _ARN.fullmatch(arn)
    return (found["kind"], found["id"]) if found else None
