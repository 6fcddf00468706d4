"""Test cases: prompts with the expected responses, kept as examples of the datasets of the evaluation API."""

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import yaml

from proctor.context import RunContext
from proctor.errors import NotFound, UsageError
from proctor.json_values import CamelJson, JsonMap, JsonObject, as_map, as_text, maps_in
from proctor.store.datasets import StoredDataset, StoredExample
from proctor.store.definitions import Token
from proctor.store.writer import timestamp

MOST_CASES = 10_000
"""Test cases of which a plan is made."""
SCHEMA_TYPE = "AGENTCORE_EVALUATION_PREDEFINED_V1"
"""Type of datasets that hold test cases: the prompts of a session, with the responses that are expected."""
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""Characters that JSON strings may have, and YAML refuses or takes as line ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDataset(CamelJson):
    """A dataset with the size of its draft."""

    id: str
    name: str
    schema_type: str
    description: str
    examples: int
    versions: int
    updated_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetList(CamelJson):
    """Datasets, those changed last first."""

    datasets: Sequence[ListedDataset]
    total: int
    """All datasets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCase(CamelJson):
    """An example of a dataset."""

    __test__ = False

    id: str
    position: int
    prompt: str
    """The first prompt; empty if the example has none."""
    expected: str
    """The expected response; empty if none."""
    content: JsonMap


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTestCase(CamelJson):
    """Where a test case was saved."""

    dataset_id: str
    example_id: str
    examples: int
    """Number of examples of the dataset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPlan(CamelJson):
    """A plan that asks models every test case of a dataset."""

    text: str
    cases: int
    """Test cases in the plan; those without a prompt are omitted."""
    omitted: int
    """Further test cases of the dataset, which are too many for a plan."""


def list_datasets(ctx: RunContext, *, offset: int = 0, limit: int) -> DatasetList:
    """A page of all datasets."""
    rows = sorted(ctx.store.datasets.all_datasets(), key=lambda row: row["updatedAt"], reverse=True)
    return DatasetList(datasets=[_listed(row) for row in rows[offset : offset + limit]], total=len(rows))


def _listed(row: StoredDataset) -> ListedDataset:
    return ListedDataset(
        id=row["id"],
        name=row["name"],
        schema_type=row["schemaType"],
        description=row["description"],
        examples=row["examples"],
        versions=row["lastVersion"],
        updated_at=row["updatedAt"],
    )


def list_test_cases(ctx: RunContext, dataset: str, *, after: int = 0, limit: int) -> list[TestCase]:
    """Examples of the draft of a dataset in order, those after a position."""
    dataset_id = ctx.store.datasets.dataset(dataset)["id"]
    return [_test_case(row) for row in ctx.store.datasets.examples(dataset_id, after=after, limit=limit)]


def _test_case(row: StoredExample) -> TestCase:
    turn: JsonMap = next(iter(maps_in(row["content"].get("turns"))), {})
    text = turn.get("input")
    prompt = text if isinstance(text, str) else as_text(as_map(turn, "input").get("prompt"))
    return TestCase(
        id=row["id"],
        position=row["position"],
        prompt=prompt,
        expected=as_text(turn.get("expected_response")),
        content=row["content"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedTestCases(CamelJson):
    """Test cases that were saved together."""

    __test__ = False

    dataset_id: str
    saved: int
    skipped: int
    """Sessions without a prompt."""
    examples: int
    """Number in the dataset now."""


def save_test_cases(ctx: RunContext, dataset: str, session_ids: Sequence[str]) -> SavedTestCases:
    """Save the first prompts of sessions as test cases; creates the dataset if there is none."""
    prompts = {
        session_id: next(
            (trace.prompt for trace in ctx.store.read.evidence(session_id).traces if trace.prompt), ""
        )
        for session_id in session_ids
    }
    contents = dict(
        _case(ctx, prompt, session_id=session_id) for session_id, prompt in prompts.items() if prompt
    )
    if not contents:
        raise UsageError("none of these sessions has a prompt")
    saved = _save(ctx, dataset, contents)
    return SavedTestCases(
        dataset_id=saved["id"],
        saved=len(contents),
        skipped=len(prompts) - len(contents),
        examples=saved["examples"],
    )


def save_test_case(
    ctx: RunContext, dataset: str, prompt: str, *, expected: str = "", session_id: str = ""
) -> SavedTestCase:
    """Save a prompt as a test case, which may come from a session; creates the dataset if there is none."""
    example_id, content = _case(ctx, prompt, expected=expected, session_id=session_id)
    saved = _save(ctx, dataset, {example_id: content})
    return SavedTestCase(dataset_id=saved["id"], example_id=example_id, examples=saved["examples"])


def _case(
    ctx: RunContext, prompt: str, *, expected: str = "", session_id: str = ""
) -> tuple[str, JsonObject]:
    """The id and the content of a new example."""
    example_id = f"case-{secrets.token_hex(6)}"
    turn = {"input": prompt, **({"expected_response": expected} if expected else {})}
    content: JsonObject = {"scenario_id": example_id, "turns": [turn]}
    if session_id:
        session = ctx.store.read.session(session_id)
        content["metadata"] = {"sessionId": session["id"], "runId": session["runId"]}
    return example_id, content


def _save(ctx: RunContext, dataset: str, contents: Mapping[str, JsonObject]) -> StoredDataset:
    store, now = ctx.store, ctx.now()
    token = Token(operation="AddTestCase", token="", request={})
    try:
        existing = store.datasets.dataset(dataset)
    except NotFound:
        row = {
            "id": f"{dataset}-{secrets.token_hex(5)}",
            "name": dataset,
            "schemaType": SCHEMA_TYPE,
            "description": "",
            "kmsKeyArn": "",
            "createdAt": timestamp(now),
            "updatedAt": timestamp(now),
        }
        return store.datasets.create(row, contents, token)
    if existing["schemaType"] != SCHEMA_TYPE:
        raise UsageError(f"the dataset {dataset} has examples of another kind\nChoose another name.")
    return store.datasets.add(existing["id"], contents, token, now)


def delete_test_case(ctx: RunContext, dataset: str, example_id: str) -> None:
    """Delete a test case. Published versions of its dataset keep it."""
    dataset_id = ctx.store.datasets.dataset(dataset)["id"]
    token = Token(operation="RemoveTestCase", token="", request={})
    ctx.store.datasets.remove(dataset_id, [example_id], token, ctx.now())


def plan_of_dataset(ctx: RunContext, dataset: str, models: Sequence[str]) -> DatasetPlan:
    """A plan that asks models the test cases of a dataset."""
    row = ctx.store.datasets.dataset(dataset)
    examples = islice(ctx.store.datasets.all_examples(row["id"]), MOST_CASES)
    cases = [case for case in map(_test_case, examples) if case.prompt]
    omitted = max(0, row["examples"] - MOST_CASES)
    return DatasetPlan(text=_plan(cases, models), cases=len(cases), omitted=omitted)


def _plan(cases: Iterable[TestCase], models: Sequence[str]) -> str:
    entries = [
        {"prompt": case.prompt, **({"expect": {"contains": case.expected}} if case.expected else {})}
        for case in cases
    ]
    # Written as JSON where YAML would fold long texts: every JSON document is YAML.
    lines = [f"  - {_NOT_IN_YAML.sub(_escaped, json.dumps(entry, ensure_ascii=False))}" for entry in entries]
    defaults = yaml.safe_dump({"defaults": {"model": list(models)}}, allow_unicode=True) if models else ""
    return "concurrency: 4\n" + defaults + "matrix:\n" + "\n".join(lines) + "\n"


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
