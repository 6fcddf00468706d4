"""A server that is killed goes on with its jobs when it is started again."""

import json
import os
import re
import signal
import sqlite3
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from test_wire_jobs import ended
from wire_server import KEY, SECRET, refused
from wire_spans import spans

from proctor.testing import eventually

GROUP = "/runtimes/calc"


@pytest.fixture
def serving(command_server):
    """Starts `proctor serve`, killed hard at the end; its process and address."""

    @contextmanager
    def started(folder):
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        words = ["--home", str(folder / "home"), "serve", "--no-token", "--port", "0", "--json"]
        process = command_server.start(words, folder=folder, environment=environment, separate_errors=True)
        with process:
            try:
                yield process, json.loads(process.stdout.readline())["url"]
            finally:
                process.kill()

    return started


def client(service, url):
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=Config(retries={"total_max_attempts": 1}),
    )


def arrive(url, *sessions):
    logs = client("logs", url)
    logs.create_log_group(logGroupName=GROUP)
    logs.create_log_stream(logGroupName=GROUP, logStreamName="spans")
    events = [
        {"timestamp": 1, "message": json.dumps(each)} for session in sessions for each in spans(session)
    ]
    logs.put_log_events(logGroupName=GROUP, logStreamName="spans", logEvents=events)


def kill_owner(folder, evaluation_id):
    """Kill the process that executes a job; false: there is none."""
    with closing(sqlite3.connect(folder / "home" / "proctor.db")) as database:
        row = database.execute('SELECT "owner" FROM "batches" WHERE "runId" = ?', [evaluation_id]).fetchone()
    owner = re.search(r":(\d+):", row[0])
    if not owner or b"launched" not in Path(f"/proc/{owner[1]}/cmdline").read_bytes():
        return False
    os.kill(int(owner[1]), signal.SIGKILL)
    return True


def begun(url, sessions):
    """A job in mid-course: its id."""
    arrive(url, *sessions)
    data = client("bedrock-agentcore", url)
    job_id = data.start_batch_evaluation(
        batchEvaluationName="long",
        evaluators=[{"evaluatorId": "Builtin.InstructionFollowing"}],
        dataSourceConfig={"cloudWatchLogs": {"serviceNames": ["Calc.DEFAULT"], "logGroupNames": [GROUP]}},
    )["batchEvaluationId"]

    def some_are_done():
        job = data.get_batch_evaluation(batchEvaluationId=job_id)
        return job.get("evaluationResults", {}).get("numberOfSessionsCompleted", 0) >= 3

    eventually(some_are_done)
    return job_id


def outcome(url, job_id):
    """A job at its end, and the sessions of its results."""
    data = client("bedrock-agentcore", url)
    job = ended(data, job_id)
    place = job["outputConfig"]["cloudWatchConfig"]
    events = client("logs", url).filter_log_events(logGroupName=place["logGroupName"])["events"]
    return job, [json.loads(event["message"])["attributes"]["session.id"] for event in events]


GATE = """
import asyncio, itertools, pathlib
count = itertools.count()

async def answer(prompt):
    while next(count) >= 3 and not pathlib.Path("open").exists():
        await asyncio.sleep(0.02)
    return '{"reason": "so", "score": "Yes"}'
"""


def with_gated_judge(folder):
    """A judge that answers three times, and the others once there is a file, which is returned."""
    (folder / "gate.py").write_text(GATE)
    settings = 'judge = "python/gate:answer"\nlimits = {take_up_seconds = 0.5}\n'
    (folder / "proctor.toml").write_text(f"[evaluation]\n{settings}")
    return folder / "open"


@pytest.mark.slow
@pytest.mark.parametrize("is_server_killed", [True, False], ids=["server and job", "job"])
def test_a_job_whose_process_dies_is_taken_up_by_its_server_or_the_next_one(
    tmp_path, serving, is_server_killed
):
    gate = with_gated_judge(tmp_path)
    sessions = [f"s-{number}" for number in range(6)]
    with ExitStack() as servers:
        server, url = servers.enter_context(serving(tmp_path))
        job_id = begun(url, sessions)
        if is_server_killed:
            server.kill()
        assert kill_owner(tmp_path, job_id), "the job was to be in mid-course"
        gate.touch()
        if is_server_killed:
            servers.close()
            _, url = servers.enter_context(serving(tmp_path))
        job, judged = outcome(url, job_id)

    assert job["status"] == "COMPLETED"
    assert sorted(judged) == sorted(sessions), "none lost, none doubled"


def test_access_keys_and_limits_come_from_the_configuration(tmp_path, serving):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "proctor.toml").write_text(
        f'[serve.access_keys]\n{KEY} = "{SECRET}"\n[serve]\nregion = "eu-central-1"\n'
        "[evaluation.limits]\nevaluators = 0\n"
    )
    arn = "arn:aws:lambda:us-east-1:123456789012:function:f"
    config = {"codeBased": {"lambdaConfig": {"lambdaArn": arn}}}
    with serving(tmp_path) as (_, url):
        control = client("bedrock-agentcore-control", url)
        assert len(control.list_evaluators(maxResults=1)["evaluators"]) == 1
        made = {"evaluatorName": "mine", "level": "SESSION", "evaluatorConfig": config}
        assert refused(control.create_evaluator, **made).code == "ServiceQuotaExceededException"


def test_a_lambda_is_what_the_configuration_says_it_is(tmp_path, serving):
    arn = "arn:aws:lambda:us-east-1:123456789012:function:length"
    (tmp_path / "mine.py").write_text(
        "def judge(event):\n"
        "    return {'label': 'short', 'value': 7.0, 'explanation': event['evaluationLevel']}\n"
    )
    (tmp_path / "proctor.toml").write_text(f'[evaluation.lambdas]\n"{arn}" = "mine:judge"\n')
    with serving(tmp_path) as (_, url):
        made = client("bedrock-agentcore-control", url).create_evaluator(
            evaluatorName="length",
            level="SESSION",
            evaluatorConfig={"codeBased": {"lambdaConfig": {"lambdaArn": arn, "lambdaTimeoutInSeconds": 20}}},
        )
        (result,) = client("bedrock-agentcore", url).evaluate(
            evaluatorId=made["evaluatorId"], evaluationInput={"sessionSpans": spans("s-1")}
        )["evaluationResults"]

        arrive(url, "s-1")
        data = client("bedrock-agentcore", url)
        job_id = data.start_batch_evaluation(
            batchEvaluationName="by_lambda",
            evaluators=[{"evaluatorId": made["evaluatorId"]}],
            dataSourceConfig={"cloudWatchLogs": {"serviceNames": ["Calc.DEFAULT"], "logGroupNames": [GROUP]}},
        )["batchEvaluationId"]
        job = ended(data, job_id)

    assert (result["value"], result["label"], result["explanation"]) == (7.0, "short", "SESSION")
    assert result["evaluatorName"] == "length"
    assert job["evaluationResults"]["evaluatorSummaries"][0]["statistics"] == {"averageScore": 7.0}
