"""Jobs and evaluators with keys of their own, in a stand-in for AWS KMS on this machine."""

import sqlite3
import zlib
from pathlib import Path
from urllib.request import Request, urlopen

import boto3
import pytest
from test_wire_evaluators import JUDGE, create
from test_wire_jobs import EXACT, arrive, ended, start, truth
from test_wire_recommendations import finished, prompt_config
from wire_server import refused

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
NOBODYS = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000"


@pytest.fixture
def there(aws, monkeypatch):
    """What whoever uses the keys has in the environment."""
    found = {**CREDENTIALS, "AWS_ENDPOINT_URL_KMS": aws}
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def key(there, aws):
    kms = boto3.client("kms", region_name="us-east-1", endpoint_url=aws)
    return kms.create_key()["KeyMetadata"]["Arn"]


def lose(aws):
    """Take every key away."""
    urlopen(Request(f"{aws}/moto-api/reset", method="POST")).close()


def on_disk(served):
    """All that lies in the store's file, unpacked as far as anybody could."""
    path = str(served.store.url).removeprefix("sqlite:///")
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    blobs = [row[0] for row in connection.execute('SELECT "data" FROM "blobs"')]
    connection.close()
    return Path(path).read_bytes() + b"".join(zlib.decompress(blob) for blob in blobs if blob[:1] == b"x")


def test_the_results_of_a_job_with_a_key_are_sealed_under_it_and_left_out_when_it_is_gone(
    serve, there, aws, key
):
    served = serve(environment=there)
    arrive(served, "s-1", "s-2")

    started = start(
        served.data, kmsKeyArn=key, evaluationMetadata=truth("s-1", "s-2", tools=["a-tool-nobody-has"])
    )
    job = ended(served.data, started["batchEvaluationId"])

    assert (job["status"], job["kmsKeyArn"]) == ("COMPLETED", key)
    assert job["evaluationResults"]["numberOfSessionsCompleted"] == 2
    (row,) = served.store.data_keys.rows
    assert (row["scope"], row["masterKeyId"]) == (job["batchEvaluationId"], key)
    assert job["batchEvaluationArn"] in row["contextJson"]
    assert "aws:bedrock-agentcore:batchEvaluationArn" in row["contextJson"]
    assert b"a-tool-nobody-has" not in on_disk(served)
    events = served.logs.get_log_events(
        logGroupName=job["outputConfig"]["cloudWatchConfig"]["logGroupName"],
        logStreamName=job["outputConfig"]["cloudWatchConfig"]["logStreamName"],
    )["events"]
    assert len(events) == 2

    lose(aws)

    served, job_id = serve(environment=there), job["batchEvaluationId"]
    job = served.data.get_batch_evaluation(batchEvaluationId=job_id)

    assert (job["status"], job["kmsKeyArn"], job["evaluators"]) == ("COMPLETED", key, [EXACT])
    assert "evaluationResults" not in job
    listed = served.data.list_batch_evaluations()["batchEvaluations"]
    assert [each["batchEvaluationId"] for each in listed] == [job_id]
    assert served.data.delete_batch_evaluation(batchEvaluationId=job_id)["status"] == "DELETING"


def test_a_job_that_waits_can_be_stopped_though_its_key_is_gone(serve, there, aws, key):
    held = serve(command=["true"], environment=there)
    job_id = start(held.data, kmsKeyArn=key)["batchEvaluationId"]
    lose(aws)

    held = serve(command=["true"], environment=there)
    assert held.data.stop_batch_evaluation(batchEvaluationId=job_id)["status"] == "STOPPED"


def test_a_key_that_cannot_be_used_is_refused_at_the_start(serve, there):
    held = serve(command=["true"], environment=there)

    refusal = refused(start, held.data, kmsKeyArn=NOBODYS)

    assert refusal.code == "ValidationException" and NOBODYS in refusal.message
    assert held.data.list_batch_evaluations()["batchEvaluations"] == []
    assert held.store.data_keys.rows == []


def test_an_evaluator_with_a_key_of_its_own_lies_open_nowhere(serve, there, aws, key):
    models = {"models": {"scripted/judge": "scripted/ok"}}
    served = serve(command=["true"], environment=there, evaluation=models)
    made = create(served.control, kmsKeyArn=key, description="How polite")
    evaluator_id = made["evaluatorId"]

    found = served.control.get_evaluator(evaluatorId=evaluator_id)

    assert (found["kmsKeyArn"], found["evaluatorConfig"]) == (key, JUDGE)
    assert b"Is this polite?" not in on_disk(served)
    start(served.data, evaluators=[{"evaluatorId": evaluator_id}])
    assert b"Is this polite?" not in on_disk(served)
    lose(aws)
    served = serve(command=["true"], environment=there)
    known = served.control.get_evaluator(evaluatorId=evaluator_id, includedData="METADATA_ONLY")
    assert (known["evaluatorName"], known["description"]) == ("polite", "How polite")
    listed = served.control.list_evaluators(maxResults=100)["evaluators"]
    assert evaluator_id in [each["evaluatorId"] for each in listed]
    refusal = refused(served.control.get_evaluator, evaluatorId=evaluator_id)
    assert (refusal.code, refusal.status) == ("AccessDeniedException", 403)
    served.control.delete_evaluator(evaluatorId=evaluator_id)
    assert [row for row in served.store.data_keys.rows if row["scope"] == evaluator_id] == []


def test_the_examples_of_a_dataset_with_a_key_are_sealed_under_it(serve, there, key):
    served = serve(environment=there)
    long = "a secret of many words " * 400
    examples = [{"text": "a secret of few words"}, {"text": long}]
    made = served.control.create_dataset(
        datasetName="sealed",
        schemaType="THIRD_PARTY_EVALUATION_V1",
        kmsKeyArn=key,
        source={"inlineExamples": {"examples": examples}},
    )
    served.control.create_dataset_version(datasetId=made["datasetId"])

    found = served.control.list_dataset_examples(datasetId=made["datasetId"], datasetVersion="1")["examples"]

    assert [each["text"] for each in found] == ["a secret of few words", long]
    assert served.control.get_dataset(datasetId=made["datasetId"])["kmsKeyArn"] == key
    (row,) = served.store.data_keys.rows
    assert (row["scope"], row["masterKeyId"]) == (made["datasetId"], key)
    assert b"a secret of" not in on_disk(served)
    served.control.delete_dataset(datasetId=made["datasetId"])
    assert served.store.data_keys.rows == []


def test_a_recommendation_with_a_key_is_sealed_under_it(serve, there, key, tmp_path):
    answer = '{"explanation": "It is better.", "recommended_system_prompt": "A secret prompt."}'
    (tmp_path / "judge.yaml").write_text(f"rules: [{{reply: '{answer}'}}]\n")
    served = serve(environment=there, evaluation={"judge": "scripted/judge"})
    config = prompt_config(systemPrompt={"text": "A secret beginning."})

    got = finished(served, config, kmsKeyArn=key)

    assert (got["status"], got["kmsKeyArn"]) == ("COMPLETED", key)
    assert "A secret prompt." in str(got["recommendationResult"])
    assert b"A secret" not in on_disk(served)
