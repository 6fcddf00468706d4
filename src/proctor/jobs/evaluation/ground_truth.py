"""Ground truth of sessions, in requests and in files.

    dataset_id: travel-regressions
    version: 3
    sessionMetadata:
      - sessionId: bd8734a9           # or testScenarioId alone: every session of that scenario
        testScenarioId: book-a-flight
        groundTruth:
          inline:
            assertions: [The agent names a price]
            expectedTrajectory:
              - search_flights
              - {name: book, arguments: {day: Monday}, match: subset}
            turns:
              - prompt: To Oslo, please.
                expectedResponse: Which day?

Texts that the AWS interface wraps (`{text: …}`, `{toolNames: […]}`) may be written without the wrapper. A
file is one version of a dataset, called `travel-regressions@3`; its digest is stored with every evaluation
that used it, so that later changes of the file are detected.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from proctor.errors import UsageError
from proctor.evaluator import Reference
from proctor.item import digest_of
from proctor.json_values import JsonMap, JsonObject, as_map, as_sequence, as_text, parse_json
from proctor.plan.source import KeyPath, refuse
from proctor.plan.validate import Anything, SectionLabel, Text, check_shape, names_of
from proctor.plan.yaml_loader import read_source


class GroundTruthIndex:
    """Metadata of sessions: scenario and ground truth."""

    def __init__(self, metadata: Sequence[JsonMap]) -> None:
        """The last of two entries about the same session or scenario takes precedence."""
        self._by_session = {str(entry["sessionId"]): entry for entry in metadata if entry.get("sessionId")}
        self._by_scenario = {
            str(entry["testScenarioId"]): entry for entry in metadata if not entry.get("sessionId")
        }
        self.unused = set(self._by_session)
        """IDs of sessions with an entry that was not used."""

    def of(self, external_id: str, scenario: str = "") -> JsonMap:
        """The entry of a session; an empty mapping: none."""
        self.unused.discard(external_id)
        return self._by_session.get(external_id) or self._by_scenario.get(scenario) or {}


def reference_of(entry: JsonMap) -> Reference | None:
    """The ground truth of an entry; None: none."""
    inline = as_map(entry, "groundTruth", "inline")
    if not inline:
        return None
    trajectory = _bare(inline.get("expectedTrajectory"), "toolNames")
    turns = [as_map(turn).get("expectedResponse") for turn in as_sequence(inline.get("turns"))]
    responses = {
        number: str(_bare(response, "text")) for number, response in enumerate(turns) if response is not None
    }
    calls = [each if isinstance(each, Mapping) else {"name": each} for each in as_sequence(trajectory)]
    return Reference(
        assertions=tuple(str(_bare(each, "text")) for each in as_sequence(inline.get("assertions"))),
        trajectory=None if trajectory is None else tuple(str(call.get("name")) for call in calls),
        responses=responses,
        arguments={
            position: (as_text(call, "match") or "exact", as_map(call, "arguments"))
            for position, call in enumerate(calls)
            if call.get("arguments") is not None
        },
    )


def _bare(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else value


def unwrapped(name: str) -> BeforeValidator:
    """Unwrap a value that the AWS interface wraps in a mapping."""
    return BeforeValidator(
        lambda value: value[name] if isinstance(value, Mapping) and set(value) == {name} else value
    )


class _GroundTruthModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class ExpectedTurn(_GroundTruthModel):
    """Expected result of one turn."""

    input: Annotated[Text, unwrapped("prompt")] | None = None
    prompt: Text | None = None
    expected_response: Annotated[Text, unwrapped("text")] | None = None


class ExpectedCall(_GroundTruthModel):
    """An expected tool call with its arguments."""

    name: Text
    arguments: dict[str, Anything] | None = None
    match: Literal["exact", "subset", "superset", "ignore"] | None = None
    """How arguments are compared; `subset`: the call may have more than these. None: exact."""


class InlineGroundTruth(_GroundTruthModel):
    """Expected result of a session."""

    assertions: Annotated[list[Annotated[Text, unwrapped("text")]], Field(min_length=1)] | None = None
    expected_trajectory: Annotated[list[Text | ExpectedCall], unwrapped("toolNames")] | None = None
    turns: Annotated[list[ExpectedTurn], Field(min_length=1)] | None = None


class GroundTruth(_GroundTruthModel):
    """Ground truth, always inline."""

    inline: InlineGroundTruth


class SessionMetadata(_GroundTruthModel):
    """Metadata of one session, or of all sessions of one scenario."""

    session_id: Text | None = None
    test_scenario_id: Text | None = None
    ground_truth: GroundTruth | None = None
    metadata: JsonObject | None = None


class DatasetFile(_GroundTruthModel):
    """One version of a dataset of ground truth."""

    dataset_id: Text | None = None
    version: int | Text | None = None
    description: str | None = None
    session_metadata: Annotated[list[SessionMetadata], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Ground truth as a file holds it."""

    name: str
    """`travel-regressions@3`; the file's name where it does not say."""
    digest: str
    metadata: Sequence[JsonMap] = field(repr=False)

    @property
    def mention(self) -> dict[str, str]:
        """What a job keeps of where its ground truth came from."""
        return {"dataset": self.name, "digest": self.digest}


def vocabulary(path: KeyPath, *, root: tuple[str | int, ...] = ()) -> SectionLabel | None:
    """The part of a file of ground truth at `path`; None where no mapping with settings of its own is."""
    if path[: len(root)] != root:
        return None
    match path[len(root) :]:
        case ():
            return SectionLabel("the dataset", "A dataset", names_of(DatasetFile))
        case ("sessionMetadata", int(index)):
            return SectionLabel(f"session {index + 1}", "A session", names_of(SessionMetadata))
        case ("sessionMetadata", int(index), "groundTruth"):
            return SectionLabel(
                f"the ground truth of session {index + 1}", "Ground truth", names_of(GroundTruth)
            )
        case ("sessionMetadata", int(index), "groundTruth", "inline"):
            return SectionLabel(
                f"the ground truth of session {index + 1}", "Ground truth", names_of(InlineGroundTruth)
            )
        case ("sessionMetadata", int(index), "groundTruth", "inline", "expectedTrajectory", *_):
            return SectionLabel(
                f"an expected call of session {index + 1}", "An expected call", names_of(ExpectedCall)
            )
        case ("sessionMetadata", int(index), "groundTruth", "inline", "turns", int(turn)):
            return SectionLabel(f"turn {turn + 1} of session {index + 1}", "A turn", names_of(ExpectedTurn))
    return None


def dataset_of_examples(name: str, examples: Sequence[JsonMap]) -> Dataset:
    """Ground truth of the scenarios of AWS's datasets, for sessions that name their scenario."""
    metadata = [
        {"testScenarioId": scenario, "groundTruth": {"inline": inline}}
        for example in examples
        if (scenario := as_text(example, "scenario_id")) and (inline := _inline(example))
    ]
    if not metadata:
        raise UsageError(
            f"the dataset {name} has no ground truth\n"
            "Its examples need a `scenario_id`, and `assertions`, `expected_trajectory` or "
            "`expected_response` of their turns."
        )
    return Dataset(name=name, digest=digest_of(metadata)[:16], metadata=metadata)


def _inline(example: JsonMap) -> JsonObject:
    turns = [
        {
            "input": prompt if isinstance(prompt, str) else json.dumps(prompt, ensure_ascii=False),
            **({"expectedResponse": turn["expected_response"]} if turn.get("expected_response") else {}),
        }
        for turn in map(as_map, as_sequence(example.get("turns")))
        for prompt in [turn.get("input", "")]
    ]
    members = {
        "assertions": list(as_sequence(example.get("assertions"))),
        "expectedTrajectory": example.get("expected_trajectory"),
        "turns": turns if any("expectedResponse" in turn for turn in turns) else [],
    }
    # An empty trajectory is ground truth: the agent should call no tool.
    return {
        name: value
        for name, value in members.items()
        if value or (name == "expectedTrajectory" and value is not None)
    }


def _scenarios(text: str | bytes, file: str) -> list[JsonMap] | None:
    """The scenarios of a file of AWS's runners; None: another file."""
    try:
        if file.endswith(".jsonl"):
            entries = [parse_json(line) for line in text.splitlines() if line.strip()]
        else:
            entries = list(as_sequence(as_map(parse_json(text)).get("scenarios")))
    except ValueError:
        return None
    scenarios = [entry for entry in entries if isinstance(entry, Mapping) and entry.get("scenario_id")]
    return scenarios if scenarios and len(scenarios) == len(entries) else None


def read_dataset(text: str | bytes, *, file: str) -> Dataset:
    """Read a file of ground truth, YAML or JSON; raises with everything that is wrong with it.

    Files of AWS's runners are read too: `{"scenarios": […]}`, or a scenario in each line of a `.jsonl`.
    """
    if (scenarios := _scenarios(text, file)) is not None:
        return dataset_of_examples(file.rpartition("/")[2], scenarios)
    source = read_source(text, file=file)
    findings = check_shape(source, DatasetFile, vocabulary)
    problems = list(findings.problems)
    if not problems:
        problems += [
            source.problem(
                ("sessionMetadata", index),
                f"session {index + 1} names neither a session nor a scenario",
                "Add `sessionId` or `testScenarioId`.",
            )
            for index, entry in enumerate(source.data["sessionMetadata"])
            if not (entry.get("sessionId") or entry.get("testScenarioId"))
        ]
    if problems:
        refuse(problems)
    data = source.data
    name = str(data.get("datasetId") or file.rpartition("/")[2])
    version = data.get("version")
    return Dataset(
        name=name if version is None else f"{name}@{version}",
        digest=digest_of(data)[:16],
        metadata=data["sessionMetadata"],
    )
