"""Members that messages of both planes share.

Patterns and bounds are this interface's own; nothing here is our choice.
"""

from proctor.web.agentcore.names import EVALUATOR_ID, RESOURCE_ID
from proctor.web.agentcore.shapes import Many, Moment, Number, Structure, Table, Text

NAME = Text(pattern=r"[a-zA-Z][a-zA-Z0-9_]{0,47}")
ID = Text(pattern=RESOURCE_ID)
EVALUATOR = Text(least=1, most=111, pattern=EVALUATOR_ID)
CLIENT_TOKEN = Text(least=33, most=256, pattern=r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,256}")
KMS_KEY_ARN = Text(
    least=1,
    most=2048,
    pattern=r"arn:aws(|-cn|-us-gov):kms:[a-zA-Z0-9-]*:[0-9]{12}:key/[a-zA-Z0-9-]{36}",
)
TAG_KEY = Text(least=1, most=128, pattern=r"[a-zA-Z0-9\s._:/=+@-]*")
TAG_VALUE = Text(most=256, pattern=r"[a-zA-Z0-9\s._:/=+@-]*")
TAGS = Table(key=TAG_KEY, value=TAG_VALUE, most=50)
LEVEL = Text(words=("TOOL_CALL", "TRACE", "SESSION"))

INSIGHTS = Many(
    of=Structure(
        {"insightId": Text(pattern=rf"(Builtin\.[a-zA-Z0-9._-]+|{RESOURCE_ID})")}, required=["insightId"]
    ),
    most=10,
)
LOG_GROUP = Text(pattern=r"[.\-_/#A-Za-z0-9]+")
LOG_GROUP_PREFIX = Text(least=1, most=512, pattern=r"[.\-_/#A-Za-z0-9]+")
LOG_GROUPS = {
    "logGroupNames": Many(of=LOG_GROUP, most=10),
    "logGroupNamePrefixes": Many(of=LOG_GROUP_PREFIX, least=1, most=5),
}
OUTPUT_GROUP = {
    "logGroupName": Text(pattern=r"([.\-_/#A-Za-z0-9]+)?"),
    "metricsNamespace": Text(least=1, most=255, pattern=r"[a-zA-Z0-9._#/:-]+"),
    "resultDestination": Text(words=("DEDICATED_LOG_GROUP", "SOURCE_LOG_GROUP")),
}
TIME_RANGE = Structure({"startTime": Moment(), "endTime": Moment()})

PAGING = Structure({"maxResults": Number(least=1, most=100, whole=True), "nextToken": Text()})
