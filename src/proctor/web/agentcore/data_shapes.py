"""What callers send to judge sessions: batch evaluations, and one session at once.

Patterns and bounds are this interface's own; nothing here is our choice.
"""

from proctor.web.agentcore.common_shapes import (
    CLIENT_TOKEN,
    EVALUATOR,
    ID,
    INSIGHTS,
    KMS_KEY_ARN,
    LOG_GROUPS,
    NAME,
    OUTPUT_GROUP,
    TAGS,
    TIME_RANGE,
)
from proctor.web.agentcore.names import RESOURCE_ID
from proctor.web.agentcore.shapes import Anything, Many, Structure, Table, Text, Union

TRACE_ID = Text(least=32, most=32)
CONTENT = Union({"text": Text(least=1, most=100_000)})
ASSERTIONS = Many(of=CONTENT, least=1, most=100)
TRAJECTORY = Structure({"toolNames": Many(of=Text(least=1, most=500), most=1000)})

SESSION_TRACES = Structure(
    {"sessionId": Text(), "traceIds": Many(of=TRACE_ID, least=1, most=100)},
    required=["sessionId", "traceIds"],
)
SESSIONS_FILTER = Structure(
    {
        "sessionIds": Many(of=Text(), most=500),
        "timeRange": TIME_RANGE,
        "sessionTraceIds": Many(of=SESSION_TRACES, least=1, most=500),
    }
)
SOURCE = Union(
    {
        "cloudWatchLogs": Structure(
            {"serviceNames": Many(of=Text(), least=1, most=1), **LOG_GROUPS, "filterConfig": SESSIONS_FILTER},
            required=["serviceNames"],
        ),
        "onlineEvaluationConfigSource": Structure(
            {
                "onlineEvaluationConfigArn": Text(
                    pattern=r"arn:aws[a-zA-Z-]*:bedrock-agentcore:[a-z0-9-]+:[0-9]{12}:"
                    rf"online-evaluation-config\/{RESOURCE_ID}"
                ),
                "timeRange": TIME_RANGE,
            },
            required=["onlineEvaluationConfigArn"],
        ),
    }
)

TURN = Structure({"input": Union({"prompt": Text(most=4000)}), "expectedResponse": CONTENT})
GROUND_TRUTH = Union(
    {
        "inline": Structure(
            {
                "assertions": ASSERTIONS,
                "expectedTrajectory": TRAJECTORY,
                "turns": Many(of=TURN, least=1),
            }
        )
    }
)
SESSION_METADATA = Structure(
    {
        "sessionId": Text(),
        "testScenarioId": Text(),
        "groundTruth": GROUND_TRUTH,
        "metadata": Table(),
    },
    required=["sessionId"],
)

START = Structure(
    {
        "batchEvaluationName": NAME,
        "evaluators": Many(of=Structure({"evaluatorId": EVALUATOR}, required=["evaluatorId"]), most=10),
        "insights": INSIGHTS,
        "dataSourceConfig": SOURCE,
        "clientToken": CLIENT_TOKEN,
        "evaluationMetadata": Union({"sessionMetadata": Many(of=SESSION_METADATA, most=500)}),
        "tags": TAGS,
        "kmsKeyArn": KMS_KEY_ARN,
        "description": Text(most=200),
        "outputConfig": Union(
            {"cloudWatchConfig": Structure({**OUTPUT_GROUP, "logStreamName": Text(pattern=r"[^:*]*")})}
        ),
    },
    required=["batchEvaluationName", "dataSourceConfig"],
)
ONE_JOB = Structure({"batchEvaluationId": ID}, required=["batchEvaluationId"])

CONTEXT = Union(
    {
        "spanContext": Structure(
            {"sessionId": Text(), "traceId": Text(), "spanId": Text()}, required=["sessionId"]
        )
    }
)
REFERENCE = Structure(
    {
        "context": CONTEXT,
        "expectedResponse": CONTENT,
        "assertions": ASSERTIONS,
        "expectedTrajectory": TRAJECTORY,
    },
    required=["context"],
)
EVALUATE = Structure(
    {
        "evaluatorId": EVALUATOR,
        "evaluationInput": Union({"sessionSpans": Many(of=Anything(), least=1, most=20_000)}),
        "evaluationTarget": Union(
            {
                "spanIds": Many(of=Text(least=16, most=16), least=1, most=10),
                "traceIds": Many(of=TRACE_ID, least=1, most=10),
            }
        ),
        "evaluationReferenceInputs": Many(of=REFERENCE, least=1, most=1000),
    },
    required=["evaluatorId", "evaluationInput"],
)
