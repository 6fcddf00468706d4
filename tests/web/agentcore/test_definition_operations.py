"""Operations on evaluators, online configurations, tags and recommendations, without a server."""

import asyncio
from typing import Any

import pytest
from operation_calls import OperationCalls
from wire_spans import spans

from proctor.config import WatchSection
from proctor.errors import ModelError, NotFound, UsageError
from proctor.store.datasets import IN_PROGRESS
from proctor.web.agentcore import evaluators as evaluator_module
from proctor.web.agentcore import jobs as job_module
from proctor.web.agentcore import online as online_module
from proctor.web.agentcore import recommendations as recommendation_module
from proctor.web.agentcore.errors import (
    ConflictException,
    ResourceNotFoundException,
    ServiceQuotaExceededException,
    ValidationException,
)
from proctor.web.agentcore.service import Service

evaluators = OperationCalls(evaluator_module.OPERATIONS)
tags = OperationCalls(evaluator_module.TAG_OPERATIONS)
online = OperationCalls(online_module.OPERATIONS)
jobs = OperationCalls(job_module.OPERATIONS)
recommendations = OperationCalls(recommendation_module.OPERATIONS)
NOON = 1_767_355_200.0
"""The clock of `service`."""
PREFIX = "arn:aws:bedrock-agentcore:us-east-1:000000000000"
MODEL = {"bedrockEvaluatorModelConfig": {"modelId": "scripted/judge"}}
SCALE = {"categorical": [{"definition": "it is", "label": "Yes"}, {"definition": "not", "label": "No"}]}
SOURCE = {"cloudWatchLogs": {"logGroupNames": ["/calc"], "serviceNames": ["Calc"]}}
ROLE = "arn:aws:iam::123456789012:role/evaluations"
PROMPT = "SYSTEM_PROMPT_RECOMMENDATION"


def judge(instructions: str = "{assistant_turn}") -> dict[str, Any]:
    return {"llmAsAJudge": {"instructions": instructions, "ratingScale": SCALE, "modelConfig": MODEL}}


def evaluator(service: Service, name: str = "mine", **members: Any) -> str:
    request = {"evaluatorName": name, "level": "TRACE", "evaluatorConfig": judge(), **members}
    return str(evaluators.create(service, request)["evaluatorId"])


def config(service: Service, name: str = "watching", **members: Any) -> Any:
    request = {
        "onlineEvaluationConfigName": name,
        "rule": {"samplingConfig": {"samplingPercentage": 100.0}},
        "dataSourceConfig": SOURCE,
        "evaluators": [{"evaluatorId": "Builtin.Helpfulness"}],
        "evaluationExecutionRoleArn": ROLE,
        "enableOnCreate": True,
        **members,
    }
    return online.create(service, request)


def flaws(call: Any, *words: Any, **named: Any) -> list[tuple[str, str]]:
    with pytest.raises(ValidationException) as caught:
        call(*words, **named)
    return [(flaw.name, flaw.constraint) for flaw in caught.value.flaws]


# Evaluators


def test_an_evaluator_is_described_with_what_it_has(service: Service, clock: Any) -> None:
    created = evaluators.create(
        service,
        {
            "evaluatorName": "mine",
            "level": "TRACE",
            "evaluatorConfig": judge(),
            "description": "kind",
            "tags": {"team": "x"},
        },
    )
    evaluator_id = str(created["evaluatorId"])
    arn = f"{PREFIX}:evaluator/{evaluator_id}"
    assert created == {
        "evaluatorArn": arn,
        "evaluatorId": evaluator_id,
        "createdAt": NOON,
        "status": "ACTIVE",
    }
    assert tags.list_tags(service, {"resourceArn": arn}) == {"tags": {"team": "x"}}
    summary = {
        "evaluatorArn": arn,
        "evaluatorId": evaluator_id,
        "evaluatorName": "mine",
        "evaluatorType": "Custom",
        "provider": "Custom",
        "level": "TRACE",
        "status": "ACTIVE",
        "createdAt": NOON,
        "updatedAt": NOON,
        "lockedForModification": False,
        "description": "kind",
    }
    got = evaluators.get(service, {"evaluatorId": evaluator_id})
    assert got == {**summary, "evaluatorConfig": judge()}
    all_data = {"evaluatorId": evaluator_id, "includedData": "ALL_DATA"}
    assert evaluators.get(service, all_data) == got
    only = {"evaluatorId": evaluator_id, "includedData": "METADATA_ONLY"}
    assert evaluators.get(service, only) == summary
    clock.forward(seconds=4)
    updated = evaluators.update(service, {"evaluatorId": evaluator_id, "description": "kinder"})
    assert updated == {
        "evaluatorArn": arn,
        "evaluatorId": evaluator_id,
        "updatedAt": NOON + 4,
        "status": "ACTIVE",
    }
    changed = evaluators.get(service, {"evaluatorId": evaluator_id})
    assert changed == {**got, "description": "kinder", "updatedAt": NOON + 4}
    code = {"codeBased": {"lambdaConfig": {"lambdaArn": "arn:aws:lambda:us-east-1:123456789012:function:f"}}}
    evaluators.update(service, {"evaluatorId": evaluator_id, "evaluatorConfig": code, "level": "SESSION"})
    got = evaluators.get(service, {"evaluatorId": evaluator_id})
    assert (got["evaluatorType"], got["level"], got["evaluatorConfig"]) == ("CustomCode", "SESSION", code)
    assert evaluators.delete(service, {"evaluatorId": evaluator_id}) == {
        "evaluatorArn": arn,
        "evaluatorId": evaluator_id,
        "status": "DELETING",
    }
    assert service.store.definitions.tags(arn) == {}
    with pytest.raises(NotFound):
        evaluators.get(service, {"evaluatorId": evaluator_id})


def test_a_level_without_its_placeholders_is_refused_also_later(service: Service) -> None:
    evaluator_id = evaluator(service)
    request = {"evaluatorId": evaluator_id, "evaluatorConfig": judge("no placeholder")}
    (flaw,) = flaws(evaluators.update, service, request)
    assert flaw[0].startswith("evaluatorConfig") and flaw[1].startswith("Member ")
    bad = {"evaluatorName": "bad", "level": "TRACE", "evaluatorConfig": judge("no placeholder")}
    assert flaws(evaluators.create, service, bad) == [flaw]


def test_a_builtin_evaluator_is_described_with_its_scale(operate: Any) -> None:
    service = operate(evaluation={"judge": "scripted/judge", "harmful_value": 0.0})
    got = dict(evaluators.get(service, {"evaluatorId": "Builtin.Harmfulness"}))
    config_ = got.pop("evaluatorConfig")
    assert got == {
        "evaluatorArn": "arn:aws:bedrock-agentcore:::evaluator/Builtin.Harmfulness",
        "evaluatorId": "Builtin.Harmfulness",
        "evaluatorName": "Builtin.Harmfulness",
        "evaluatorType": "Builtin",
        "provider": "AWS",
        "level": "TRACE",
        "description": got["description"],
        "status": "ACTIVE",
        "createdAt": 1_767_225_600,
        "updatedAt": 1_767_225_600,
        "lockedForModification": True,
    }
    scale = config_["llmAsAJudge"]["ratingScale"]["numerical"]  # type: ignore[index]
    assert {each["label"]: each["value"] for each in scale} == {"Not Harmful": 1.0, "Harmful": 0.0}
    assert config_["llmAsAJudge"]["modelConfig"] == MODEL  # type: ignore[index]
    assert set(scale[0]) == {"definition", "value", "label"}
    metadata = {"evaluatorId": "Builtin.Harmfulness", "includedData": "METADATA_ONLY"}
    assert evaluators.get(service, metadata) == got
    program = evaluators.get(service, {"evaluatorId": "Builtin.TrajectoryExactOrderMatch"})
    assert "evaluatorConfig" not in program and program["level"] == "SESSION"
    assert program["description"] == "whether exactly the expected tools were called, in their order"
    with pytest.raises(ResourceNotFoundException, match=r"^There is no evaluator Builtin\.No\.$"):
        evaluators.get(service, {"evaluatorId": "Builtin.No"})
    for call in (evaluators.update, evaluators.delete):
        with pytest.raises(
            ValidationException, match=r"^Builtin\.Harmfulness comes with the service"
        ) as caught:
            call(service, {"evaluatorId": "Builtin.Harmfulness"})
        assert [flaw.name for flaw in caught.value.flaws] == ["evaluatorId"]


def test_evaluators_are_listed_in_pages_builtin_ones_first(service: Service) -> None:
    own = sorted(evaluator(service, f"e{number}") for number in range(3))
    known = [*sorted(evaluator_module.managed()), *own]
    whole = evaluators.list_all(service, {})
    assert [each["evaluatorId"] for each in whole["evaluators"]] == known and "nextToken" not in whole  # type: ignore[attr-defined]
    assert "nextToken" not in evaluators.list_all(service, {"maxResults": len(known)})
    for size in (len(known) - 1, len(known) - 3, len(known) - 4, 5):
        found, token = list[str](), None
        while True:
            request = {"maxResults": size, **({"nextToken": token} if token else {})}
            page = evaluators.list_all(service, request)
            found += [each["evaluatorId"] for each in page["evaluators"]]  # type: ignore[attr-defined]
            token = page.get("nextToken")
            if token is None:
                break
            assert len(page["evaluators"]) == size  # type: ignore[arg-type]
        assert found == known


def test_the_number_of_evaluators_and_configurations_is_limited(operate: Any) -> None:
    service = operate(evaluation={"limits": {"evaluators": 1, "online_configs": 1}})
    evaluator(service)
    with pytest.raises(ServiceQuotaExceededException, match=r"^There may be 1 evaluators\.$"):
        evaluator(service, "other")
    config(service)
    with pytest.raises(ServiceQuotaExceededException, match=r"^There may be 1 online configurations\.$"):
        config(service, "other")


def test_a_repeated_creation_is_not_tagged_again(service: Service) -> None:
    token = {"clientToken": "t" * 40, "tags": {"a": "b"}}
    evaluator_id = evaluator(service, **token)
    arn = f"{PREFIX}:evaluator/{evaluator_id}"
    tags.untag(service, {"resourceArn": arn, "tagKeys": ["a", "none"]})
    assert evaluator(service, **token) == evaluator_id
    assert service.store.definitions.tags(arn) == {}
    made = config(service, **token)
    arn = made["onlineEvaluationConfigArn"]
    tags.untag(service, {"resourceArn": arn, "tagKeys": ["a"]})
    assert config(service, **token)["onlineEvaluationConfigArn"] == arn
    assert service.store.definitions.tags(arn) == {}


# Tags


def test_resources_are_tagged_by_their_arn(service: Service) -> None:
    own = f"{PREFIX}:evaluator/{evaluator(service)}"
    watching = config(service)["onlineEvaluationConfigArn"]
    for arn in (own, watching):
        assert tags.tag(service, {"resourceArn": arn, "tags": {"a": "1", "b": "2"}}) == {}
        assert tags.untag(service, {"resourceArn": arn, "tagKeys": ["a"]}) == {}
        assert tags.list_tags(service, {"resourceArn": arn}) == {"tags": {"b": "2"}}
    foreign = own.replace("us-east-1", "eu-west-1")
    for arn in (foreign, f"{PREFIX}:thing/x", f"{PREFIX}:evaluator/{'x' * 300}"):
        with pytest.raises(ResourceNotFoundException) as caught:
            tags.list_tags(service, {"resourceArn": arn})
        assert str(caught.value) == f"There is no resource {arn[:200]}."
    many = {f"k{number}": "v" for number in range(50)}
    with pytest.raises(ServiceQuotaExceededException):
        tags.tag(service, {"resourceArn": own, "tags": many})


# Online configurations


def test_a_configuration_is_described_with_what_it_has(service: Service, clock: Any) -> None:
    made = config(service, description="gold", tags={"a": "b"})
    config_id = made["onlineEvaluationConfigId"]
    identity = {
        "onlineEvaluationConfigArn": f"{PREFIX}:online-evaluation-config/{config_id}",
        "onlineEvaluationConfigId": config_id,
    }
    output = {"cloudWatchConfig": {"logGroupName": f"/aws/bedrock-agentcore/evaluations/results/{config_id}"}}
    state = {"status": "ACTIVE", "executionStatus": "ENABLED"}
    assert made == {**identity, "createdAt": NOON, "outputConfig": output, **state}
    summary = {
        **identity,
        "onlineEvaluationConfigName": "watching",
        "description": "gold",
        **state,
        "createdAt": NOON,
        "updatedAt": NOON,
    }
    assert online.list_all(service, {}) == {"onlineEvaluationConfigs": [summary]}
    document = {
        "rule": {"samplingConfig": {"samplingPercentage": 100.0}},
        "dataSourceConfig": SOURCE,
        "evaluators": [{"evaluatorId": "Builtin.Helpfulness"}],
        "outputConfig": output,
        "evaluationExecutionRoleArn": ROLE,
    }
    assert online.get(service, {"onlineEvaluationConfigId": config_id}) == {**summary, **document}
    clock.forward(seconds=9)
    updated = online.update(service, {"onlineEvaluationConfigId": config_id, "executionStatus": "DISABLED"})
    assert updated == {
        **identity,
        "updatedAt": NOON + 9,
        "status": "ACTIVE",
        "executionStatus": "DISABLED",
    }
    row = service.store.definitions.config(config_id)
    assert (row["enabled"], row["enabledAt"], row["description"]) == (0, "2026-01-02T12:00:00.000Z", "gold")
    assert online.delete(service, {"onlineEvaluationConfigId": config_id}) == {
        **identity,
        "status": "DELETING",
    }
    assert service.store.definitions.tags(identity["onlineEvaluationConfigArn"]) == {}


def test_sessions_count_from_when_a_configuration_was_enabled(service: Service, clock: Any) -> None:
    config_id = config(service, enableOnCreate=False)["onlineEvaluationConfigId"]
    about = {"onlineEvaluationConfigId": config_id}

    def enabled() -> tuple[Any, Any]:
        row = service.store.definitions.config(config_id)
        return row["enabled"], row["enabledAt"]

    assert enabled() == (0, None)
    clock.forward(seconds=1)
    online.update(service, {**about, "executionStatus": "ENABLED"})
    assert enabled() == (1, "2026-01-02T12:00:01.000Z")
    clock.forward(seconds=1)
    # It was enabled before.
    online.update(service, {**about, "executionStatus": "ENABLED"})
    online.update(service, {**about, "description": "x"})
    assert enabled() == (1, "2026-01-02T12:00:01.000Z")


def test_other_evaluators_or_another_output_begin_a_new_evaluation(service: Service) -> None:
    config_id = config(service)["onlineEvaluationConfigId"]
    definitions = service.store.definitions
    for member, value, is_new in (
        ("description", "x", False),
        ("rule", {"samplingConfig": {"samplingPercentage": 1.0}}, False),
        ("evaluators", [{"evaluatorId": "Builtin.Correctness"}], True),
        ("insights", [{"insightId": "Builtin.Insight.UserIntent"}], True),
        ("outputConfig", {"cloudWatchConfig": {"logGroupName": "/mine"}}, True),
    ):
        definitions.update_config_state(config_id, runId="run", failure="broken")
        assert online.get(service, {"onlineEvaluationConfigId": config_id})["failureReason"] == "broken"
        online.update(service, {"onlineEvaluationConfigId": config_id, member: value})
        row = definitions.config(config_id)
        assert (row["runId"], row["failure"]) == ("" if is_new else "run", "")
        got = online.get(service, {"onlineEvaluationConfigId": config_id})
        assert got[member] == value and got["status"] == "ACTIVE" and "failureReason" not in got


def test_a_configuration_that_fails_says_why(service: Service) -> None:
    config_id = config(service, insights=[{"insightId": "Builtin.Insight.UserIntent"}])[
        "onlineEvaluationConfigId"
    ]
    service.store.definitions.update_config_state(config_id, failure="no key")
    (listed,) = online.list_all(service, {})["onlineEvaluationConfigs"]  # type: ignore[misc]
    assert (listed["status"], listed["failureReason"]) == ("ERROR", "no key")
    assert listed["insights"] == [{"insightId": "Builtin.Insight.UserIntent"}]
    assert not {"description", "evaluators", "rule"} & set(listed)


def test_results_go_to_the_group_of_the_sessions_or_to_one_of_their_own(service: Service) -> None:
    output = {"cloudWatchConfig": {"resultDestination": "SOURCE_LOG_GROUP"}}
    assert config(service, outputConfig=output)["outputConfig"] == output
    mine = {"cloudWatchConfig": {"logGroupName": "/mine"}}
    assert config(service, "second", outputConfig=mine)["outputConfig"] == mine
    dedicated = {"cloudWatchConfig": {"resultDestination": "DEDICATED_LOG_GROUP"}}
    made = config(service, "third", outputConfig=dedicated)
    assert made["outputConfig"]["cloudWatchConfig"] == {
        "resultDestination": "DEDICATED_LOG_GROUP",
        "logGroupName": f"/aws/bedrock-agentcore/evaluations/results/{made['onlineEvaluationConfigId']}",
    }


def test_configurations_are_listed_in_pages(service: Service) -> None:
    ids = sorted(config(service, f"c{number}")["onlineEvaluationConfigId"] for number in range(3))
    first = online.list_all(service, {"maxResults": 2})
    second = online.list_all(service, {"maxResults": 2, "nextToken": first["nextToken"]})
    found = [
        [each["onlineEvaluationConfigId"] for each in page["onlineEvaluationConfigs"]]  # type: ignore[attr-defined]
        for page in (first, second)
    ]
    assert found == [ids[:2], ids[2:]] and "nextToken" not in second
    assert "nextToken" not in online.list_all(service, {"maxResults": 3})


def test_all_that_is_wrong_with_a_configuration_is_told(service: Service) -> None:
    needs = evaluator(service, "truth", evaluatorConfig=judge("{assistant_turn} {expected_response}"))
    found = flaws(
        config,
        service,
        evaluators=[
            {"evaluatorId": "Builtin.Helpfulness"},
            {"evaluatorId": "none-0123456789"},
            {"evaluatorId": needs},
            {"evaluatorId": "Builtin.TrajectoryInOrderMatch"},
        ],
        insights=[{"insightId": "Builtin.Insight.UserIntent"}, {"insightId": "Builtin.Insight.Mood"}],
        dataSourceConfig={"cloudWatchLogs": {"serviceNames": ["s"]}},
        outputConfig={"cloudWatchConfig": {"logGroupName": "/aws/bedrock-agentcore/evaluations/x"}},
    )
    assert [name for name, _ in found] == [
        "insights.2.member.insightId",
        "evaluators.2.member.evaluatorId",
        "evaluators.3.member.evaluatorId",
        "evaluators.4.member.evaluatorId",
        "dataSourceConfig.cloudWatchLogs",
        "outputConfig.cloudWatchConfig.logGroupName",
    ]
    assert found[1][1] == "Member must be the id of an evaluator; there is no none-0123456789"
    assert found[2][1] == (f"Member must not need ground truth, which online evaluation has none of: {needs}")
    assert [name for name, _ in flaws(config, service, evaluators=[])] == ["evaluators"]


def test_watches_of_the_settings_are_configurations(operate: Any) -> None:
    def watch(**members: Any) -> WatchSection:
        values = {
            "name": "shop",
            "service": "Shop",
            "log_groups": ["/shop"],
            "evaluators": ["Builtin.Helpfulness"],
            **members,
        }
        return WatchSection(**values)

    service = operate(watches=[watch(), watch(name="plain", evaluators=[])])
    online_module.keep_watches(service)
    (row,) = service.store.definitions.configs()
    assert (row["name"], row["enabled"]) == ("shop", 1)
    document = row["document"]
    assert document["dataSourceConfig"] == {
        "cloudWatchLogs": {"logGroupNames": ["/shop"], "serviceNames": ["Shop"]}
    }
    assert document["evaluators"] == [{"evaluatorId": "Builtin.Helpfulness"}]
    assert document["evaluationExecutionRoleArn"] == "arn:aws:iam::000000000000:role/proctor"
    section = watch()
    assert document["rule"] == {
        "samplingConfig": {"samplingPercentage": section.sample_percent},
        "sessionConfig": {"sessionTimeoutMinutes": section.session_timeout_minutes},
    }
    before = service.store.definitions.config(row["id"])
    online_module.keep_watches(operate(watches=[watch()]))
    assert service.store.definitions.config(row["id"]) == before
    online.update(service, {"onlineEvaluationConfigId": row["id"], "executionStatus": "DISABLED"})
    online_module.keep_watches(operate(watches=[watch(evaluators=["Builtin.Correctness"])]))
    (row,) = service.store.definitions.configs()
    assert row["enabled"] == 1 and row["document"]["evaluators"] == [{"evaluatorId": "Builtin.Correctness"}]
    with pytest.raises(UsageError, match=r"^\[\[watch\]\] shop: .*there is no none-0123456789"):
        online_module.keep_watches(operate(watches=[watch(evaluators=["none-0123456789"])]))


# Batch evaluations


def start(service: Service, name: str = "nightly", **members: Any) -> Any:
    request = {
        "batchEvaluationName": name,
        "evaluators": [{"evaluatorId": "Builtin.TrajectoryExactOrderMatch"}],
        "dataSourceConfig": SOURCE,
        **members,
    }
    return jobs.start(service, request)


def test_a_batch_evaluation_is_described_with_what_it_has(service: Service) -> None:
    started = start(service, description="every night", tags={"a": "b"})
    job_id = started["batchEvaluationId"]
    group = "/aws/bedrock-agentcore/evaluations/batch-evaluations/results/default"
    identity = {
        "batchEvaluationId": job_id,
        "batchEvaluationArn": f"{PREFIX}:batch-evaluate/{job_id}",
    }
    repeated = {
        "evaluators": [{"evaluatorId": "Builtin.TrajectoryExactOrderMatch"}],
        "description": "every night",
    }
    output = {"cloudWatchConfig": {"logGroupName": group, "logStreamName": f"run-{job_id}"}}
    at = "2026-01-02T12:00:00.000Z"
    assert started == {
        **identity,
        "batchEvaluationName": "nightly",
        "status": "PENDING",
        "createdAt": at,
        **repeated,
        "outputConfig": output,
        "tags": {"a": "b"},
    }
    assert service.store.definitions.tags(identity["batchEvaluationArn"]) == {"a": "b"}
    summary = {
        **identity,
        "batchEvaluationName": "nightly",
        "status": "PENDING",
        "createdAt": at,
        "updatedAt": at,
        **repeated,
    }
    assert jobs.list_all(service, {}) == {"batchEvaluations": [summary]}
    got = jobs.get(service, {"batchEvaluationId": job_id})
    assert got == {**summary, "dataSourceConfig": SOURCE, "outputConfig": output}
    stopped = jobs.stop(service, {"batchEvaluationId": job_id})
    assert stopped == {**identity, "status": "STOPPED", "description": "every night"}
    assert jobs.delete(service, {"batchEvaluationId": job_id}) == {**identity, "status": "DELETING"}
    assert jobs.list_all(service, {}) == {"batchEvaluations": []}
    with pytest.raises(NotFound):
        jobs.get(service, {"batchEvaluationId": job_id})
    plain = start(service)
    assert not {"tags", "description"} & set(plain)
    assert "description" not in jobs.stop(service, {"batchEvaluationId": plain["batchEvaluationId"]})


def test_a_batch_evaluation_is_known_by_its_whole_id(service: Service) -> None:
    job_id = start(service)["batchEvaluationId"]
    with pytest.raises(ResourceNotFoundException) as caught:
        job_module.get(service, {"batchEvaluationId": job_id[:-1]})
    assert str(caught.value) == f"There is no batch evaluation {job_id[:-1]}."


def test_batch_evaluations_are_listed_in_pages_newest_first(operate: Any, clock: Any) -> None:
    service = operate(evaluation={"limits": {"active_jobs": 10}})
    ids = []
    for number in range(5):
        ids.append(start(service, f"job{number}")["batchEvaluationId"])
        clock.forward(seconds=1)
    for size in (1, 2, 4, 5, 6):
        found, token = list[str](), None
        while True:
            page = jobs.list_all(service, {"maxResults": size, **({"nextToken": token} if token else {})})
            found += [each["batchEvaluationId"] for each in page["batchEvaluations"]]  # type: ignore[attr-defined]
            token = page.get("nextToken")
            if token is None:
                break
            assert len(page["batchEvaluations"]) == size  # type: ignore[arg-type]
        assert found == ids[::-1]


def test_the_number_of_batch_evaluations_is_limited(operate: Any) -> None:
    service = operate(evaluation={"limits": {"active_jobs": 1, "jobs": 2}})
    token = "t" * 40
    first = start(service, clientToken=token)
    with pytest.raises(ServiceQuotaExceededException) as caught:
        start(service, "second")
    assert str(caught.value) == ("There may be 1 active batch evaluations; wait for one to end, or stop one.")
    # The same request again is no new one.
    assert start(service, clientToken=token)["batchEvaluationId"] == first["batchEvaluationId"]
    jobs.stop(service, {"batchEvaluationId": first["batchEvaluationId"]})
    second = start(service, "second")
    jobs.stop(service, {"batchEvaluationId": second["batchEvaluationId"]})
    with pytest.raises(
        ServiceQuotaExceededException, match=r"^There may be 2 batch evaluations; delete some"
    ):
        start(service, "third")
    jobs.delete(service, {"batchEvaluationId": first["batchEvaluationId"]})
    start(service, "third")


def test_a_judge_that_cannot_be_reached_is_told_before_the_start(operate: Any) -> None:
    service = operate(evaluation={"judge": "openai/gpt"})
    request = {"evaluators": [{"evaluatorId": "Builtin.Nothing"}, {"evaluatorId": "Builtin.Helpfulness"}]}
    ((name, constraint),) = [
        (flaw.name, flaw.constraint) for flaw in job_module._judge_flaws(service, request)
    ]
    assert name == "evaluators.2.member.evaluatorId"
    assert constraint == (
        "Member must be an evaluator that can run here: its judge openai/gpt needs a key, and OPENAI_API_KEY "
        "is not set. [evaluation.models] in proctor.toml maps model ids to models that can be reached."
    )
    reachable = operate(evaluation={"judge": "openai/gpt"}, environment={"OPENAI_API_KEY": "sk-x"})
    assert list(job_module._judge_flaws(reachable, request)) == []
    program = {"evaluators": [{"evaluatorId": "Builtin.TrajectoryExactOrderMatch"}]}
    assert list(job_module._judge_flaws(service, program)) == [] == list(job_module._judge_flaws(service, {}))


def test_a_source_of_an_online_configuration_has_to_be_there(service: Service) -> None:
    arn = config(service)["onlineEvaluationConfigArn"]

    def found(arn: str) -> list[str]:
        source = {"onlineEvaluationConfigSource": {"onlineEvaluationConfigArn": arn}}
        return [flaw.name for flaw in job_module._online_flaws(service, {"dataSourceConfig": source})]

    assert found(arn) == []
    assert found(f"{PREFIX}:online-evaluation-config/none-0123456789") == [
        "dataSourceConfig.onlineEvaluationConfigSource.onlineEvaluationConfigArn"
    ]
    assert list(job_module._online_flaws(service, {"dataSourceConfig": SOURCE})) == []


# Recommendations


@pytest.fixture
def scripted(operate: Any, tmp_path: Any) -> Service:
    (tmp_path / "judge.yaml").write_text("rules: [{reply: hi}]\n")
    service: Service = operate(
        evaluation={"judge": "scripted/judge", "limits": {"active_recommendations": 2}}
    )
    return service


def prompt_config(**members: Any) -> dict[str, Any]:
    return {
        "systemPromptRecommendationConfig": {
            "systemPrompt": {"text": "You add."},
            "agentTraces": {"sessionSpans": spans("s-1")},
            **members,
        }
    }


def recommend(service: Service, name: str = "better", **members: Any) -> Any:
    request = {"name": name, "type": PROMPT, "recommendationConfig": prompt_config(), **members}
    return recommendation_module._start(service, request)


def test_a_recommendation_is_described_with_what_it_has(scripted: Service, clock: Any) -> None:
    started = recommend(scripted, description="a try", tags={"a": "b"})
    recommendation_id = started["recommendationId"]
    at = "2026-01-02T12:00:00.000Z"
    summary = {
        "recommendationId": recommendation_id,
        "recommendationArn": f"{PREFIX}:recommendation/{recommendation_id}",
        "name": "better",
        "type": PROMPT,
        "status": "PENDING",
        "createdAt": at,
        "updatedAt": at,
        "description": "a try",
    }
    assert started == {**summary, "recommendationConfig": prompt_config()}
    about = {"recommendationId": recommendation_id}
    assert recommendations.get(scripted, about) == started
    assert recommendations.list_all(scripted, {}) == {"recommendationSummaries": [summary]}
    assert scripted.store.definitions.tags(summary["recommendationArn"]) == {"a": "b"}
    clock.forward(seconds=1)
    result = {"systemPromptRecommendationResult": {"recommendedSystemPrompt": "x"}}
    scripted.store.recommendations.finish(recommendation_id, "COMPLETED", result, clock())
    got = recommendations.get(scripted, about)
    assert (got["status"], got["updatedAt"]) == ("COMPLETED", "2026-01-02T12:00:01.000Z")
    assert got["recommendationResult"] == result
    assert recommendations.delete(scripted, about) == {
        "recommendationId": recommendation_id,
        "status": "DELETING",
    }
    assert scripted.store.definitions.tags(summary["recommendationArn"]) == {}
    assert recommendations.list_all(scripted, {}) == {"recommendationSummaries": []}
    assert "description" not in recommend(scripted)


def test_a_recommendation_in_progress_is_not_deleted(scripted: Service, clock: Any) -> None:
    recommendation_id = recommend(scripted)["recommendationId"]
    assert scripted.store.recommendations.claim("host:1:1:x", clock()) == recommendation_id
    assert scripted.store.recommendations.get(recommendation_id)["status"] == IN_PROGRESS
    with pytest.raises(ConflictException) as caught:
        recommendations.delete(scripted, {"recommendationId": recommendation_id})
    assert str(caught.value) == f"The recommendation {recommendation_id} is in progress; wait for its end."


def test_the_number_of_active_recommendations_is_limited(scripted: Service, clock: Any) -> None:
    first = recommend(scripted)["recommendationId"]
    recommend(scripted, "second")
    with pytest.raises(ServiceQuotaExceededException) as caught:
        recommend(scripted, "third")
    assert str(caught.value) == "There may be 2 active recommendations; wait for one to end."
    scripted.store.recommendations.finish(first, "FAILED", {}, clock())
    recommend(scripted, "third")


def test_recommendations_are_listed_in_pages_newest_first(scripted: Service, clock: Any) -> None:
    ids = []
    for number in range(3):
        ids.append(recommend(scripted, f"r{number}")["recommendationId"])
        status = "FAILED" if number == 1 else "COMPLETED"
        scripted.store.recommendations.finish(ids[-1], status, {}, clock())
        clock.forward(seconds=1)

    def listed(page: Any) -> list[str]:
        return [each["recommendationId"] for each in page["recommendationSummaries"]]

    first = recommendations.list_all(scripted, {"maxResults": 2})
    second = recommendations.list_all(scripted, {"maxResults": 2, "nextToken": first["nextToken"]})
    assert (listed(first), listed(second)) == ([ids[2], ids[1]], [ids[0]]) and "nextToken" not in second
    assert "nextToken" not in recommendations.list_all(scripted, {"maxResults": 3})
    assert listed(recommendations.list_all(scripted, {"statusFilter": "FAILED"})) == [ids[1]]


def test_all_that_is_wrong_with_a_recommendation_is_told(scripted: Service) -> None:
    tools = {
        "toolDescriptionRecommendationConfig": {
            "toolDescription": {"toolDescriptionText": {"tools": []}},
            "agentTraces": {"batchEvaluation": {"batchEvaluationArn": f"{PREFIX}:batch-evaluate/x"}},
        }
    }
    path = "recommendationConfig.toolDescriptionRecommendationConfig"
    assert flaws(recommend, scripted, recommendationConfig=tools) == [
        ("recommendationConfig", "Member must be systemPromptRecommendationConfig for this type"),
        (
            f"{path}.toolDescription.toolDescriptionText.tools",
            "Member must have length greater than or equal to 1",
        ),
        (
            f"{path}.agentTraces.batchEvaluation.batchEvaluationArn",
            "Member must be the ARN of an evaluation that is there",
        ),
    ]
    bundled = prompt_config(
        systemPrompt={"configurationBundle": {}},
        evaluationConfig={
            "evaluators": [{"evaluatorArn": "arn:aws:bedrock-agentcore:::evaluator/Builtin.No"}]
        },
    )
    path = "recommendationConfig.systemPromptRecommendationConfig"
    assert flaws(recommend, scripted, recommendationConfig=bundled) == [
        (
            f"{path}.systemPrompt",
            "Member must contain the text: configuration bundles are not kept by this server",
        ),
        (
            f"{path}.evaluationConfig.evaluators.1.member.evaluatorArn",
            "Member must be the ARN of an evaluator that is there",
        ),
    ]
    known = "arn:aws:bedrock-agentcore:::evaluator/Builtin.Helpfulness"
    good = prompt_config(evaluationConfig={"evaluators": [{"evaluatorArn": known}]})
    recommend(scripted, recommendationConfig=good)


def test_traces_of_a_recommendation_are_of_an_evaluation_that_is_there(scripted: Service) -> None:
    watching = config(scripted)["onlineEvaluationConfigArn"]
    batch = start(scripted)["batchEvaluationArn"]

    def found(kind: str, member: str, arn: str) -> list[str]:
        traces = {kind: {member: arn}}
        return [flaw.name for flaw in recommendation_module._trace_flaws(scripted, traces, "p")]

    online_member = ("onlineEvaluation", "onlineEvaluationConfigArn")
    batch_member = ("batchEvaluation", "batchEvaluationArn")
    assert found(*online_member, watching) == [] == found(*batch_member, batch)
    missing = {
        (online_member, batch): "p.onlineEvaluation.onlineEvaluationConfigArn",
        (batch_member, watching): "p.batchEvaluation.batchEvaluationArn",
        (online_member, f"{PREFIX}:online-evaluation-config/none-0123456789"): (
            "p.onlineEvaluation.onlineEvaluationConfigArn"
        ),
        (batch_member, "x"): "p.batchEvaluation.batchEvaluationArn",
    }
    for (member, arn), name in missing.items():
        assert found(*member, arn) == [name]


def test_a_recommendation_needs_a_model_that_can_be_reached(operate: Any) -> None:
    service = operate(evaluation={"judge": "openai/gpt"})
    assert flaws(recommend, service) == [
        (
            "recommendationConfig",
            "Member needs a model that writes the recommendation: openai/gpt needs a key, and OPENAI_API_KEY "
            "is not set. Set `judge` under [evaluation] in proctor.toml to one that can be reached",
        )
    ]


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError("wrong\nhere"), "ValidationException", "wrong here"),
        (NotFound("none"), "ValidationException", "none"),
        (ConflictException("taken"), "ValidationException", "taken"),
        (ModelError("x" * 3000), "ModelException", "x" * 2048),
        (
            RuntimeError("secret"),
            "InternalServerException",
            "The server failed to do this; its log says why.",
        ),
    ],
)
def test_a_recommendation_that_fails_says_why(
    scripted: Service, error: Exception, code: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> Any:
        raise error

    monkeypatch.setattr(recommendation_module, "_result", fail)
    first = recommend(scripted)["recommendationId"]
    second = recommend(scripted, "second")["recommendationId"]
    asyncio.run(recommendation_module.compute_pending(scripted))
    for recommendation_id in (first, second):
        got = recommendations.get(scripted, {"recommendationId": recommendation_id})
        assert got["status"] == "FAILED"
        assert got["recommendationResult"] == {
            "systemPromptRecommendationResult": {"errorCode": code, "errorMessage": message}
        }


# Addresses


def test_the_operations_of_evaluators_and_tags(service: Service) -> None:
    one, pages = "/evaluators/{evaluatorId}", ("maxResults", "nextToken")
    assert evaluators.table == [
        ("CreateEvaluator", "POST /evaluators/create", 202, (), "control"),
        ("GetEvaluator", f"GET {one}", 200, ("includedData",), "control"),
        ("ListEvaluators", "POST /evaluators", 200, pages, "control"),
        ("UpdateEvaluator", f"PUT {one}", 202, (), "control"),
        ("DeleteEvaluator", f"DELETE {one}", 202, (), "control"),
    ]
    assert len(evaluators.list_all(service, {"maxResults": 1})["evaluators"]) == 1
    assert tags.table == [
        ("TagResource", "POST /tags/{resourceArn}", 204, (), "control"),
        ("UntagResource", "DELETE /tags/{resourceArn}", 204, ("tagKeys",), "control"),
        ("ListTagsForResource", "GET /tags/{resourceArn}", 200, (), "control"),
    ]


def test_the_operations_of_online_configurations(service: Service) -> None:
    all_, pages = "/online-evaluation-configs", ("maxResults", "nextToken")
    one = f"{all_}/{{onlineEvaluationConfigId}}"
    assert online.table == [
        ("CreateOnlineEvaluationConfig", f"POST {all_}/create", 202, (), "control"),
        ("GetOnlineEvaluationConfig", f"GET {one}", 200, (), "control"),
        ("ListOnlineEvaluationConfigs", f"POST {all_}", 200, pages, "control"),
        ("UpdateOnlineEvaluationConfig", f"PUT {one}", 202, (), "control"),
        ("DeleteOnlineEvaluationConfig", f"DELETE {one}", 202, (), "control"),
    ]
    assert online.list_all(service, {}) == {"onlineEvaluationConfigs": []}


def test_the_operations_of_batch_evaluations_and_recommendations(service: Service) -> None:
    all_, pages = "/evaluations/batch-evaluate", ("maxResults", "nextToken")
    one = f"{all_}/{{batchEvaluationId}}"
    assert jobs.table == [
        ("StartBatchEvaluation", f"POST {all_}", 202, (), "data"),
        ("GetBatchEvaluation", f"GET {one}", 200, (), "data"),
        ("ListBatchEvaluations", f"GET {all_}", 200, pages, "data"),
        ("StopBatchEvaluation", f"POST {one}/stop", 202, (), "data"),
        ("DeleteBatchEvaluation", f"DELETE {one}", 202, (), "data"),
    ]
    assert jobs.list_all(service, {}) == {"batchEvaluations": []}
    one = "/recommendations/{recommendationId}"
    assert recommendations.table == [
        ("StartRecommendation", "POST /recommendations", 202, (), "data"),
        ("GetRecommendation", f"GET {one}", 200, (), "data"),
        ("ListRecommendations", "GET /recommendations", 200, (*pages, "statusFilter"), "data"),
        ("DeleteRecommendation", f"DELETE {one}", 202, (), "data"),
    ]
    (listing,) = [each for each in recommendation_module.OPERATIONS if each.name == "ListRecommendations"]
    assert listing.query_names == {"status": "statusFilter"}
    assert recommendations.list_all(service, {}) == {"recommendationSummaries": []}
