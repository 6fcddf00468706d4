"""What callers send to read and write log streams.

Patterns and bounds are this interface's own; nothing here is our choice.
"""

from proctor.web.agentcore.shapes import Flag, Many, Number, Shape, Structure, Text

GROUP = Text(least=1, most=512, pattern=r"[\.\-_/#A-Za-z0-9]+")
IDENTIFIER = Text(least=1, most=2048, pattern=r"[\w#+=/:,.@-]*")
STREAM = Text(least=1, most=512, pattern=r"[^:*]*")
TIME = Number(least=0, whole=True)
TOKEN = Text(least=1)
EVENTS_LIMIT = Number(least=1, most=10_000, whole=True)
DESCRIBE_LIMIT = Number(least=1, most=50, whole=True)

_GROUP: dict[str, Shape] = {"logGroupName": GROUP, "logGroupIdentifier": IDENTIFIER}
_SPAN: dict[str, Shape] = {"startTime": TIME, "endTime": TIME, "nextToken": TOKEN, "limit": EVENTS_LIMIT}

GET_LOG_EVENTS = Structure(
    {**_GROUP, "logStreamName": STREAM, **_SPAN, "startFromHead": Flag(), "unmask": Flag()},
    required=["logStreamName"],
)
FILTER_LOG_EVENTS = Structure(
    {
        **_GROUP,
        "logStreamNames": Many(of=STREAM, least=1, most=100),
        "logStreamNamePrefix": STREAM,
        **_SPAN,
        "filterPattern": Text(most=1024),
        "startFromHead": Flag(),
    }
)
DESCRIBE_LOG_GROUPS = Structure(
    {
        "logGroupNamePrefix": GROUP,
        "logGroupNamePattern": Text(most=512, pattern=r"[\.\-_/#A-Za-z0-9]*"),
        "nextToken": TOKEN,
        "limit": DESCRIBE_LIMIT,
    }
)
DESCRIBE_LOG_STREAMS = Structure(
    {
        **_GROUP,
        "logStreamNamePrefix": STREAM,
        "orderBy": Text(words=("LogStreamName", "LastEventTime")),
        "descending": Flag(),
        "nextToken": TOKEN,
        "limit": DESCRIBE_LIMIT,
    }
)
PUT_LOG_EVENTS = Structure(
    {
        "logGroupName": GROUP,
        "logStreamName": STREAM,
        "logEvents": Many(
            of=Structure({"timestamp": TIME, "message": Text(least=1)}, required=["timestamp", "message"]),
            least=1,
            most=10_000,
        ),
    },
    required=["logGroupName", "logStreamName", "logEvents"],
)
CREATE_LOG_GROUP = Structure({"logGroupName": GROUP}, required=["logGroupName"])
CREATE_LOG_STREAM = Structure(
    {"logGroupName": GROUP, "logStreamName": STREAM}, required=["logGroupName", "logStreamName"]
)
