"""Shapes of the requests, and the rules beyond the shape of single members.

Patterns and bounds are those of the AWS service. Rules yield problems, so that a response lists all of them.

Code evaluators are Lambda functions; `proctor.toml` maps their ARNs to programs, so callers cannot send code.
"""

from collections.abc import Iterable, Iterator

from proctor.agentcore.shapes import (
    CLIENT_TOKEN,
    EVALUATOR,
    ID,
    INSIGHTS,
    KMS_KEY_ARN,
    LEVEL,
    LOG_GROUPS,
    NAME,
    OUTPUT_GROUP,
    PAGING,
    RESOURCE_ID,
    TAG_KEY,
    TAGS,
    TIME_RANGE,
    Anything,
    Flag,
    Many,
    MapShape,
    Members,
    Number,
    ObjectShape,
    Shape,
    ShapeProblem,
    Structure,
    Text,
    TimestampShape,
    Union,
    moment_of,
)

LABEL = Text(least=1, most=100)
NUMERICAL = Many(
    of=Structure(
        {"definition": Text(), "value": Number(least=0), "label": LABEL},
        required=["definition", "value", "label"],
    )
)
CATEGORICAL = Many(of=Structure({"definition": Text(), "label": LABEL}, required=["definition", "label"]))
DIMENSION = Structure(
    {
        "dimensionName": NAME,
        "dimensionInstruction": Text(least=1, most=4000),
        "dimensionRatingScale": Union({"numerical": NUMERICAL, "categorical": CATEGORICAL}),
    },
    required=["dimensionName", "dimensionInstruction", "dimensionRatingScale"],
)

SCALE = Union(
    {
        "numerical": NUMERICAL,
        "categorical": CATEGORICAL,
        "multiDimensional": Many(of=DIMENSION, least=1, most=50),
    }
)

INFERENCE = Structure(
    {
        "maxTokens": Number(least=1, whole=True),
        "temperature": Number(least=0, most=1),
        "topP": Number(least=0, most=1),
        "stopSequences": Many(of=Text(least=1), most=2500),
    }
)

JUDGE = Union(
    {
        "bedrockEvaluatorModelConfig": Structure(
            {
                "modelId": Text(),
                "inferenceConfig": INFERENCE,
                "additionalModelRequestFields": Anything(),
            },
            required=["modelId"],
        ),
        "responsesEvaluatorModelConfig": Structure(
            {
                "modelId": Text(),
                "maxOutputTokens": Number(least=1, whole=True),
                "temperature": Number(least=0, most=2),
                "topP": Number(least=0, most=1),
                "reasoning": Structure({"effort": Text(least=1, most=64)}),
            },
            required=["modelId"],
        ),
    }
)

CODE = Union(
    {
        "lambdaConfig": Structure(
            {
                "lambdaArn": Text(
                    pattern=r"arn:(aws[a-zA-Z-]*)?:lambda:([a-z]{2}(-gov)?-[a-z]+-\d{1}):(\d{12}):function:"
                    r"([a-zA-Z0-9-_.]+)(:(\$LATEST|[a-zA-Z0-9-_]+))?"
                ),
                "lambdaTimeoutInSeconds": Number(least=1, most=300, whole=True),
            },
            required=["lambdaArn"],
        )
    }
)

EVALUATOR_CONFIG = Union(
    {
        "llmAsAJudge": Structure(
            {"instructions": Text(), "ratingScale": SCALE, "modelConfig": JUDGE},
            required=["instructions", "ratingScale", "modelConfig"],
        ),
        "codeBased": CODE,
        "derived": Structure(
            {"baseEvaluatorId": EVALUATOR, "modelConfig": JUDGE}, required=["baseEvaluatorId", "modelConfig"]
        ),
    }
)

_EVALUATOR_MEMBERS: dict[str, Shape] = {
    "clientToken": CLIENT_TOKEN,
    "description": Text(least=1, most=200),
    "evaluatorConfig": EVALUATOR_CONFIG,
    "level": LEVEL,
    "kmsKeyArn": KMS_KEY_ARN,
}
CREATE_EVALUATOR = Structure(
    {"evaluatorName": NAME, **_EVALUATOR_MEMBERS, "tags": TAGS},
    required=["evaluatorName", "evaluatorConfig", "level"],
)
UPDATE_EVALUATOR = Structure({"evaluatorId": EVALUATOR, **_EVALUATOR_MEMBERS}, required=["evaluatorId"])
ONE_EVALUATOR = Structure({"evaluatorId": EVALUATOR}, required=["evaluatorId"])
GET_EVALUATOR = Structure(
    {"evaluatorId": EVALUATOR, "includedData": Text(allowed=("ALL_DATA", "METADATA_ONLY"))},
    required=["evaluatorId"],
)
FILTER = Structure(
    {
        "key": Text(least=1, most=256, pattern=r"[a-zA-Z0-9._-]+"),
        "operator": Text(
            allowed=(
                *("Equals", "NotEquals", "GreaterThan", "LessThan", "GreaterThanOrEqual"),
                *("LessThanOrEqual", "Contains", "NotContains"),
            )
        ),
        "value": Union(
            {
                "stringValue": Text(least=1, most=1024),
                "doubleValue": Number(),
                "booleanValue": Flag(),
            }
        ),
    },
    required=["key", "operator", "value"],
)

RULE = Structure(
    {
        "samplingConfig": Structure(
            {"samplingPercentage": Number(least=0.01, most=100)}, required=["samplingPercentage"]
        ),
        "filters": Many(of=FILTER, most=5),
        "sessionConfig": Structure(
            {"sessionTimeoutMinutes": Number(least=1, most=1440, whole=True)},
            required=["sessionTimeoutMinutes"],
        ),
    },
    required=["samplingConfig"],
)

ONLINE_SOURCE = Union(
    {
        "cloudWatchLogs": Structure(
            {
                **LOG_GROUPS,
                "serviceNames": Many(of=Text(least=1, most=256, pattern=r"[a-zA-Z0-9._-]+"), least=1, most=1),
            },
            required=["serviceNames"],
        )
    }
)

_ONLINE_MEMBERS: dict[str, Shape] = {
    "clientToken": CLIENT_TOKEN,
    "description": Text(least=1, most=200, pattern=".+"),
    "rule": RULE,
    "dataSourceConfig": ONLINE_SOURCE,
    "evaluators": Many(of=Union({"evaluatorId": EVALUATOR}), most=25),
    "insights": INSIGHTS,
    "clusteringConfig": Structure(
        {"frequencies": Many(of=Text(allowed=("DAILY", "WEEKLY", "MONTHLY")), most=3)},
        required=["frequencies"],
    ),
    "outputConfig": Structure({"cloudWatchConfig": Structure(OUTPUT_GROUP)}, required=["cloudWatchConfig"]),
    "evaluationExecutionRoleArn": Text(
        least=1, most=2048, pattern=r"arn:aws(-[^:]+)?:iam::([0-9]{12})?:role/.+"
    ),
}

CREATE_ONLINE = Structure(
    {"onlineEvaluationConfigName": NAME, **_ONLINE_MEMBERS, "enableOnCreate": Flag(), "tags": TAGS},
    required=[
        *("onlineEvaluationConfigName", "rule", "dataSourceConfig"),
        *("evaluationExecutionRoleArn", "enableOnCreate"),
    ],
)

UPDATE_ONLINE = Structure(
    {
        "onlineEvaluationConfigId": ID,
        **_ONLINE_MEMBERS,
        "executionStatus": Text(allowed=("ENABLED", "DISABLED")),
    },
    required=["onlineEvaluationConfigId"],
)
ONE_ONLINE = Structure({"onlineEvaluationConfigId": ID}, required=["onlineEvaluationConfigId"])
RESOURCE_ARN = Text(
    least=20,
    most=1011,
    pattern=r"arn:(?:[^:]+)?:bedrock-agentcore:[a-z0-9-]+:[0-9]{12}:([a-z-]+/[^/]+)(?:/[a-z-]+/[^/]+)*",
)
TAG_RESOURCE = Structure({"resourceArn": RESOURCE_ARN, "tags": TAGS}, required=["resourceArn", "tags"])
UNTAG_RESOURCE = Structure(
    {"resourceArn": RESOURCE_ARN, "tagKeys": Many(of=TAG_KEY, most=200)}, required=["resourceArn", "tagKeys"]
)
LIST_TAGS = Structure({"resourceArn": RESOURCE_ARN}, required=["resourceArn"])

# Requests: batch evaluations, and the evaluation of one session.


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
        "metadata": MapShape(),
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

# Requests: log streams.


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

# A second is at most that of the year 9999: more overflows a time in nanoseconds.
SECOND = Number(least=0, most=9_000_000_000, whole=True)
START_QUERY = Structure(
    {
        "logGroupName": GROUP,
        "logGroupNames": Many(of=GROUP, least=1, most=50),
        "logGroupIdentifiers": Many(of=IDENTIFIER, least=1, most=50),
        "startTime": SECOND,
        "endTime": SECOND,
        "queryString": Text(most=10_000),
        "limit": Number(least=1, most=100_000, whole=True),
        "queryLanguage": Text(allowed=["CWLI", "SQL", "PPL"]),
    },
    required=["startTime", "endTime", "queryString"],
)
QUERY_ID = Text(least=1, most=256)
GET_QUERY_RESULTS = Structure(
    {"queryId": QUERY_ID, "nextToken": TOKEN, "maxItems": EVENTS_LIMIT}, required=["queryId"]
)
STOP_QUERY = Structure({"queryId": QUERY_ID}, required=["queryId"])

# Requests: metrics.

_DIMENSION = Structure(
    {"Name": Text(least=1, most=255), "Value": Text(least=1, most=1024)}, required=["Name"]
)
_METRIC = Structure(
    {
        "Namespace": Text(least=1, most=255),
        "MetricName": Text(least=1, most=255),
        "Dimensions": Many(
            of=Structure(
                {"Name": Text(least=1, most=255), "Value": Text(least=1, most=1024)},
                required=["Name", "Value"],
            ),
            most=30,
        ),
    }
)
LIST_METRICS = Structure(
    {
        "Namespace": Text(least=1, most=255),
        "MetricName": Text(least=1, most=255),
        "Dimensions": Many(of=_DIMENSION, most=10),
        "NextToken": TOKEN,
        "RecentlyActive": Text(allowed=["PT3H"]),
    }
)
GET_METRIC_DATA = Structure(
    {
        "MetricDataQueries": Many(
            of=Structure(
                {
                    "Id": Text(least=1, most=255),
                    "MetricStat": Structure(
                        {
                            "Metric": _METRIC,
                            "Period": Number(least=1, whole=True),
                            "Stat": Text(),
                            "Unit": Text(),
                        },
                        required=["Metric", "Period", "Stat"],
                    ),
                    "Expression": Text(least=1, most=2048),
                    "Label": Text(),
                    "ReturnData": Flag(),
                },
                required=["Id"],
            ),
            most=500,
        ),
        "StartTime": Number(least=0),
        "EndTime": Number(least=0),
        "NextToken": TOKEN,
        "ScanBy": Text(allowed=["TimestampDescending", "TimestampAscending"]),
        "MaxDatapoints": Number(least=1, whole=True),
    },
    required=["MetricDataQueries", "StartTime", "EndTime"],
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
        "orderBy": Text(allowed=("LogStreamName", "LastEventTime")),
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


# Requests: datasets.


DATASET_ID = Text(pattern=r"[a-zA-Z0-9_-]{1,110}")
DATASET_VERSION = Text(pattern="(DRAFT|[0-9]+)")
EXAMPLE_ID = Text(most=256, pattern=r"[a-zA-Z0-9_.:-]+")
EXAMPLE_LIST = Many(of=Anything(), least=1, most=1000)
"""Checked by the schema of the dataset."""
EXAMPLES_SOURCE = Union(
    {
        "inlineExamples": Structure({"examples": EXAMPLE_LIST}, required=["examples"]),
        "s3Source": Structure(
            {"s3Uri": Text(pattern=r"s3://[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]/.{1,1024}")}, required=["s3Uri"]
        ),
    }
)
_SCENARIO: dict[str, Shape] = {
    "scenario_id": Text(least=1),
    "assertions": Many(of=Text(least=1)),
    "metadata": ObjectShape(),
}
EXAMPLES: dict[str, Shape] = {
    "AGENTCORE_EVALUATION_PREDEFINED_V1": Structure(
        {
            **_SCENARIO,
            "turns": Many(
                of=Structure(
                    {"input": ObjectShape(or_text=True), "expected_response": Text()}, required=["input"]
                ),
                least=1,
            ),
            "expected_trajectory": Many(of=Text(least=1)),
        },
        required=["scenario_id", "turns"],
    ),
    "AGENTCORE_EVALUATION_SIMULATED_V1": Structure(
        {
            **_SCENARIO,
            "scenario_description": Text(),
            "actor_profile": Structure(
                {"context": Text(), "goal": Text(), "traits": ObjectShape()}, required=["context", "goal"]
            ),
            "input": ObjectShape(or_text=True),
            "max_turns": Number(least=1, whole=True),
        },
        required=["scenario_id", "actor_profile", "input"],
    ),
    "THIRD_PARTY_EVALUATION_V1": ObjectShape(),
}
"""Examples by the schema type of their dataset, as AWS's clients read them."""
_DATASET: dict[str, Shape] = {"datasetId": DATASET_ID, "clientToken": CLIENT_TOKEN}
CREATE_DATASET = Structure(
    {
        "clientToken": CLIENT_TOKEN,
        "datasetName": NAME,
        "description": Text(most=200),
        "source": EXAMPLES_SOURCE,
        "schemaType": Text(allowed=list(EXAMPLES)),
        "kmsKeyArn": KMS_KEY_ARN,
        "tags": TAGS,
    },
    required=["datasetName", "source", "schemaType"],
)
UPDATE_DATASET = Structure({**_DATASET, "description": Text(most=200)}, required=["datasetId"])
CREATE_DATASET_VERSION = Structure(_DATASET, required=["datasetId"])
ONE_DATASET = Structure({"datasetId": DATASET_ID, "datasetVersion": DATASET_VERSION}, required=["datasetId"])
DATASET_PAGES = Structure({**PAGING.members, "nextToken": Text(most=2048)})
LIST_DATASET_VERSIONS = Structure({"datasetId": DATASET_ID, **PAGING.members}, required=["datasetId"])
LIST_DATASET_EXAMPLES = Structure(
    {
        **ONE_DATASET.members,
        "maxResults": Number(least=1, most=1000, whole=True),
        "nextToken": Text(most=2048),
    },
    required=["datasetId"],
)
ADD_EXAMPLES = Structure({**_DATASET, "source": EXAMPLES_SOURCE}, required=["datasetId", "source"])
UPDATE_EXAMPLES = Structure({**_DATASET, "examples": EXAMPLE_LIST}, required=["datasetId", "examples"])
WITH_EXAMPLE_ID = Structure({"exampleId": EXAMPLE_ID}, required=["exampleId"])
DELETE_EXAMPLES = Structure(
    {**_DATASET, "exampleIds": Many(of=EXAMPLE_ID, least=1, most=1000)}, required=["datasetId", "exampleIds"]
)

# Requests: recommendations.


ANY_SPANS = Many(of=Anything(), least=1, most=20_000)
CONFIG_ARN = Text(
    pattern=r"arn:aws[a-zA-Z-]*:bedrock-agentcore:[a-z0-9-]+:[0-9]{12}:"
    rf"online-evaluation-config\/{RESOURCE_ID}"
)
BUNDLE: dict[str, Shape] = {
    "bundleArn": Text(
        pattern=r"arn:aws[a-zA-Z-]*:bedrock-agentcore:[a-z0-9-]+:[0-9]{12}:"
        rf"configuration-bundle/{RESOURCE_ID}"
    ),
    "versionId": Text(),
}
TOOL_NAME = Text(least=1, most=256, pattern=r"[a-zA-Z0-9_\-\.]+")
PROMPT_TEXT = Text(least=1, most=20_000)
_TIMES: dict[str, Shape] = {"startTime": TimestampShape(), "endTime": TimestampShape()}
TRACE_FILTER = Structure(
    {
        **FILTER.members,
        "value": Union({"stringValue": Text(most=1024), "doubleValue": Number(), "booleanValue": Flag()}),
    },
    required=FILTER.required,
)
EVALUATOR_ARN = Text(
    pattern=r"arn:aws[a-zA-Z-]*:bedrock-agentcore:[a-z0-9-]+:[0-9]{12}:evaluator\/"
    rf"{RESOURCE_ID}|"
    r"arn:aws[a-zA-Z-]*:bedrock-agentcore:::evaluator/(Builtin|ThirdParty)\.[a-zA-Z0-9._-]+"
)
TRACES = Union(
    {
        "sessionSpans": ANY_SPANS,
        "cloudwatchLogs": Structure(
            {
                "logGroupArns": Many(of=Text(), least=1, most=5),
                "serviceNames": Many(of=Text(least=1, most=256, pattern=r"[a-zA-Z0-9._-]+"), least=1, most=1),
                **_TIMES,
                "rule": Structure({"filters": Many(of=TRACE_FILTER)}),
            },
            required=["logGroupArns", "serviceNames", *_TIMES],
        ),
        "batchEvaluation": Structure({"batchEvaluationArn": Text()}, required=["batchEvaluationArn"]),
        "onlineEvaluation": Structure(
            {"onlineEvaluationConfigArn": CONFIG_ARN, **_TIMES},
            required=["onlineEvaluationConfigArn", *_TIMES],
        ),
    }
)
RECOMMENDATION_ID = Text(pattern=r"[0-9a-zA-Z_-]{1,48}-[0-9A-Z]{10}")
RECOMMENDATION_STATUS = Text(allowed=("PENDING", "IN_PROGRESS", "COMPLETED", "FAILED", "DELETING"))
RECOMMENDATION_CONFIG = Union(
    {
        "systemPromptRecommendationConfig": Structure(
            {
                "systemPrompt": Union(
                    {
                        "text": PROMPT_TEXT,
                        "configurationBundle": Structure(
                            {**BUNDLE, "systemPromptJsonPath": Text()},
                            required=[*BUNDLE, "systemPromptJsonPath"],
                        ),
                    }
                ),
                "agentTraces": TRACES,
                "evaluationConfig": Structure(
                    {
                        "evaluators": Many(
                            of=Structure({"evaluatorArn": EVALUATOR_ARN}, required=["evaluatorArn"]),
                            least=1,
                            most=1,
                        )
                    },
                    required=["evaluators"],
                ),
            },
            required=["systemPrompt", "agentTraces"],
        ),
        "toolDescriptionRecommendationConfig": Structure(
            {
                "toolDescription": Union(
                    {
                        "toolDescriptionText": Structure(
                            {
                                "tools": Many(
                                    of=Structure(
                                        {
                                            "toolName": TOOL_NAME,
                                            "toolDescription": Union({"text": PROMPT_TEXT}),
                                        },
                                        required=["toolName", "toolDescription"],
                                    )
                                )
                            },
                            required=["tools"],
                        ),
                        "configurationBundle": Structure(
                            {
                                **BUNDLE,
                                "tools": Many(
                                    of=Structure(
                                        {"toolName": TOOL_NAME, "toolDescriptionJsonPath": Text()},
                                        required=["toolName", "toolDescriptionJsonPath"],
                                    )
                                ),
                            },
                            required=[*BUNDLE, "tools"],
                        ),
                    }
                ),
                "agentTraces": TRACES,
            },
            required=["toolDescription", "agentTraces"],
        ),
    }
)
START_RECOMMENDATION = Structure(
    {
        "name": Text(most=100, pattern=r"[a-zA-Z][a-zA-Z0-9_-]{0,47}"),
        "description": Text(most=4096),
        "type": Text(allowed=("SYSTEM_PROMPT_RECOMMENDATION", "TOOL_DESCRIPTION_RECOMMENDATION")),
        "recommendationConfig": RECOMMENDATION_CONFIG,
        "kmsKeyArn": KMS_KEY_ARN,
        "clientToken": CLIENT_TOKEN,
        "tags": TAGS,
    },
    required=["name", "type", "recommendationConfig"],
)
ONE_RECOMMENDATION = Structure({"recommendationId": RECOMMENDATION_ID}, required=["recommendationId"])
LIST_RECOMMENDATIONS = Structure(
    {
        "maxResults": Number(least=1, most=100, whole=True),
        "nextToken": Text(least=1, most=2048, pattern=r"\S*"),
        "statusFilter": RECOMMENDATION_STATUS,
    }
)


MANAGED_GROUPS = "/aws/bedrock-agentcore/evaluations/"
"""Prefix of the service's own log groups, which a request cannot choose for results."""
DEFAULT_GROUP = "/aws/bedrock-agentcore/evaluations/batch-evaluations/results/default"


def something_to_judge(request: Members) -> Iterator[ShapeProblem]:
    """At least one evaluator or insight."""
    if not (request.get("evaluators") or request.get("insights")):
        yield ShapeProblem("evaluators", "Member must have length greater than or equal to 1")


def source_violations(request: Members) -> Iterator[ShapeProblem]:
    """Log groups are given by name or by prefix, and time ranges are ordered."""
    config = request.get("dataSourceConfig") or {}
    source = config.get("cloudWatchLogs")
    if source is not None:
        name = "dataSourceConfig.cloudWatchLogs"
        named = [part for part in ("logGroupNames", "logGroupNamePrefixes") if source.get(part)]
        if len(named) != 1:
            yield ShapeProblem(name, "Member must have exactly one of: logGroupNames, logGroupNamePrefixes")
        span = (source.get("filterConfig") or {}).get("timeRange")
        yield from _range_violations(span, f"{name}.filterConfig.timeRange")
    online = config.get("onlineEvaluationConfigSource")
    if online is not None:
        yield from _range_violations(
            online.get("timeRange"), "dataSourceConfig.onlineEvaluationConfigSource.timeRange"
        )


def output_violations(request: Members) -> Iterator[ShapeProblem]:
    """Results go to the caller's log group, the group of the sessions, or the default group."""
    output = (request.get("outputConfig") or {}).get("cloudWatchConfig") or {}
    name = "outputConfig.cloudWatchConfig"
    group = output.get("logGroupName") or ""
    if group.startswith(MANAGED_GROUPS) and group != DEFAULT_GROUP:
        yield ShapeProblem(f"{name}.logGroupName", f"Member must not begin with {MANAGED_GROUPS}")
    if group and output.get("resultDestination") == "SOURCE_LOG_GROUP":
        yield ShapeProblem(
            f"{name}.logGroupName", "Member must be absent when resultDestination is SOURCE_LOG_GROUP"
        )
    if (output.get("metricsNamespace") or "").startswith("AWS/"):
        yield ShapeProblem(f"{name}.metricsNamespace", "Member must not begin with AWS/")


def collected(*findings: Iterable[ShapeProblem]) -> list[ShapeProblem]:
    """All problems as one list."""
    return [violation for finding in findings for violation in finding]


def _range_violations(span: Members | None, name: str) -> Iterator[ShapeProblem]:
    start, end = (moment_of((span or {}).get(part)) for part in ("startTime", "endTime"))
    if start and end and start >= end:
        yield ShapeProblem(name, "Member must have a startTime before its endTime")
