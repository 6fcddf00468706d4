"""Configuration bundles have versions in branches; A/B tests compare the scores of two variants."""

import json

import pytest
import wire_server
from test_wire_online import GROUP, ROLE, create
from wire_server import ACCOUNT, NOON, pages, refused, told
from wire_spans import spans

from proctor.testing import eventually

GATEWAY = f"{ACCOUNT}:gateway/shop-abcdefghij"
BOTH = [("C", 50), ("T1", 50)]
REPLIES = {"no": "Very Unhelpful", "yes": "Very Helpful"}


def component(text):
    return {"agent": {"configuration": {"prompt": text}}}


def bundle(served, text="Be kind.", name="prompts", **more):
    return served.control.create_configuration_bundle(bundleName=name, components=component(text), **more)


def committed(served, made, text, parent, **more):
    return served.control.update_configuration_bundle(
        bundleId=made["bundleId"],
        components=component(text),
        parentVersionIds=[parent],
        commitMessage="better",
        **more,
    )


def test_a_bundle_keeps_each_version_in_its_branch(at_noon):
    control = at_noon.control
    made = bundle(at_noon, description="Texts", createdBy={"name": "ann"}, tags={"team": "a"})
    about = {"bundleId": made["bundleId"]}
    first = made["versionId"]
    second = committed(at_noon, made, "Be brief.", first)["versionId"]
    side = committed(at_noon, made, "Rhyme.", first, branchName="poems")["versionId"]

    got = told(control.get_configuration_bundle(**about))
    assert got == {
        "bundleArn": f"{ACCOUNT}:configuration-bundle/{made['bundleId']}",
        **about,
        "bundleName": "prompts",
        "description": "Texts",
        "versionId": second,
        "components": component("Be brief."),
        "lineageMetadata": {
            "parentVersionIds": [first],
            "branchName": "mainline",
            "commitMessage": "better",
        },
        "createdAt": NOON,
        "updatedAt": NOON,
    }
    old = control.get_configuration_bundle_version(**about, versionId=first)
    assert (old["components"], old["lineageMetadata"]["createdBy"]) == (
        component("Be kind."),
        {"name": "ann"},
    )
    assert control.get_configuration_bundle(**about, branchName="poems")["versionId"] == side
    listed = pages(control.list_configuration_bundle_versions, "versions", **about, maxResults=2)
    assert [[each["versionId"] for each in page] for page in listed] == [[side, second], [first]]
    newest = control.list_configuration_bundle_versions(**about, filter={"latestPerBranch": True})
    assert [each["versionId"] for each in newest["versions"]] == [side, second]
    assert [each["bundleName"] for each in control.list_configuration_bundles()["bundles"]] == ["prompts"]
    assert control.list_tags_for_resource(resourceArn=made["bundleArn"])["tags"] == {"team": "a"}
    assert control.delete_configuration_bundle(**about)["status"] == "DELETING"
    assert refused(control.get_configuration_bundle, **about).code == "ResourceNotFoundException"


def test_a_commit_that_is_not_on_the_newest_version_of_its_branch_is_refused(at_noon):
    made = bundle(at_noon)
    first = made["versionId"]
    committed(at_noon, made, "Be brief.", first)

    late = refused(committed, at_noon, made, "Be quick.", first)
    wrong = refused(committed, at_noon, made, "Be quick.", "0" * 8 + "-0000-0000-0000-" + "0" * 12)
    twice = refused(bundle, at_noon)
    no_branch = refused(
        at_noon.control.get_configuration_bundle, bundleId=made["bundleId"], branchName="poems"
    )

    assert [late.code, wrong.code, twice.code, no_branch.code] == [
        "ConflictException",
        "ValidationException",
        "ConflictException",
        "ResourceNotFoundException",
    ]


def variants(versions, arn=""):
    return [
        {
            "name": name,
            "weight": weight,
            "variantConfiguration": {"configurationBundle": {"bundleArn": arn, "bundleVersion": version}}
            if arn
            else {"target": {"name": version}},
        }
        for (name, weight), version in zip(BOTH, versions, strict=True)
    ]


def ab_test(served, asked, evaluation, **more):
    return served.data.create_ab_test(
        name=more.pop("name", "kinder"),
        gatewayArn=GATEWAY,
        variants=asked,
        evaluationConfig=evaluation,
        roleArn=ROLE,
        **more,
    )


@pytest.fixture
def judged(serve):
    served = serve(
        evaluation={
            "judge": "scripted/judge",
            "limits": {"watch_seconds": 0.2, "session_timeout_seconds": 1},
        }
    )
    rules = [
        {"match": f"It says {word}", "reply": json.dumps({"reasoning": "so", "score": label})}
        for word, label in REPLIES.items()
    ]
    (served.site.folder / "judge.yaml").write_text(json.dumps({"rules": rules}))
    return served


def arrive(served, variant, answer, *, sessions, version="", service="Calc.DEFAULT"):
    for number in range(sessions):
        documents = spans(f"{variant}-{number}", [("Hello?", f"It says {answer}.", ())], service=service)
        for document in documents:
            document["attributes"] |= {"aws.agentcore.configbundle_version": version} if version else {}
        wire_server.arrive(served.store, documents, GROUP)


def results_of(served, made, sizes):
    def enough():
        got = served.data.get_ab_test(abTestId=made["abTestId"])
        metrics = got["results"]["evaluatorMetrics"]
        sizes_now = [
            (each["controlStats"]["sampleSize"], each["variantResults"][0]["sampleSize"]) for each in metrics
        ]
        return metrics if sizes_now == [sizes] else None

    (metric,) = eventually(enough)
    return metric


def test_a_test_compares_the_sessions_of_two_versions_of_a_bundle(judged):
    made = bundle(judged)
    versions = [made["versionId"], committed(judged, made, "Be kinder.", made["versionId"])["versionId"]]
    config = create(judged.control)["onlineEvaluationConfigArn"]
    shared = {"onlineEvaluationConfigArn": config}
    test = ab_test(judged, variants(versions, made["bundleArn"]), shared, enableOnCreate=True)
    assert (test["status"], test["executionStatus"]) == ("ACTIVE", "RUNNING")

    arrive(judged, "c", "no", sessions=8, version=versions[0])
    arrive(judged, "t", "yes", sessions=8, version=versions[1])
    arrive(judged, "other", "yes", sessions=2)

    metric = results_of(judged, test, (8, 8))
    (treatment,) = metric["variantResults"]
    low, high = (treatment["confidenceInterval"][end] for end in ("lower", "upper"))
    assert metric["evaluatorArn"].endswith("evaluator/Builtin.Helpfulness")
    assert (metric["controlStats"]["mean"], treatment["mean"], treatment["absoluteChange"]) == (
        pytest.approx(0.166, abs=0.01),
        pytest.approx(0.833, abs=0.01),
        pytest.approx(0.667, abs=0.01),
    )
    assert treatment["isSignificant"] and treatment["pValue"] < 0.05 and 0 < low < 0.667 < high


def test_a_test_may_have_a_configuration_for_each_variant_and_is_started_and_stopped(judged):
    sources = {
        name: {"cloudWatchLogs": {"logGroupNames": [GROUP], "serviceNames": [f"{name}.DEFAULT"]}}
        for name in ("C", "T1")
    }
    configs = [
        {
            "name": name,
            "onlineEvaluationConfigArn": create(judged.control, f"of_{name}", dataSourceConfig=source)[
                "onlineEvaluationConfigArn"
            ],
        }
        for name, source in sources.items()
    ]
    separate = {"perVariantOnlineEvaluationConfig": configs}
    test = ab_test(judged, variants(("old", "new")), separate, description="Kinder")
    about = {"abTestId": test["abTestId"]}
    assert (test["executionStatus"], "results" in judged.data.get_ab_test(**about)) == ("NOT_STARTED", False)
    judged.data.update_ab_test(**about, executionStatus="RUNNING")
    running = refused(judged.data.delete_ab_test, **about)
    changed = refused(judged.data.update_ab_test, **about, variants=variants(("old", "newer")))

    arrive(judged, "c", "no", sessions=3, service="C.DEFAULT")
    arrive(judged, "t", "yes", sessions=3, service="T1.DEFAULT")

    metric = results_of(judged, test, (3, 3))
    assert metric["variantResults"][0]["isSignificant"] is False, "three sessions are too few"
    assert [running.code, changed.code] == ["ConflictException"] * 2
    stopped = judged.data.update_ab_test(**about, executionStatus="STOPPED")
    assert stopped["executionStatus"] == "STOPPED"
    (listed,) = judged.data.list_ab_tests()["abTests"]
    assert (listed["name"], listed["description"], listed["gatewayArn"]) == ("kinder", "Kinder", GATEWAY)
    assert judged.data.delete_ab_test(**about)["status"] == "DELETING"
    assert judged.data.list_ab_tests()["abTests"] == []


def test_a_test_that_cannot_be_is_refused_with_what_is_wrong(at_noon):
    config = create(at_noon.control)["onlineEvaluationConfigArn"]
    shared = {"onlineEvaluationConfigArn": config}
    missing = {"onlineEvaluationConfigArn": f"{ACCOUNT}:online-evaluation-config/none-abcdefghij"}
    version, arn = f"{'0' * 8}-0000-0000-0000-{'0' * 12}", f"{ACCOUNT}:configuration-bundle/no-abcdefghij"
    heavy = [{**each, "weight": 60} for each in variants((version, version), arn)]

    refusal = refused(ab_test, at_noon, heavy, missing)
    targets = refused(ab_test, at_noon, variants(("old", "new")), shared)

    assert set(refusal.fields) == {
        "variants",
        "variants.1.member.variantConfiguration.configurationBundle",
        "variants.2.member.variantConfiguration.configurationBundle",
        "evaluationConfig",
    }
    assert set(targets.fields) == {
        f"variants.{number}.member.variantConfiguration.target" for number in (1, 2)
    }
