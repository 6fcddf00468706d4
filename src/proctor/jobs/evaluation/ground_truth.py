"""What was expected of single sessions: ground truth, in requests and in files.

    dataset_id: travel-regressions
    version: 3
    sessionMetadata:
      - sessionId: bd8734a9           # or testScenarioId alone: every session of that scenario
        testScenarioId: book-a-flight
        groundTruth:
          inline:
            assertions: [The agent names a price]
            expectedTrajectory: [search_flights, book]
            turns:
              - prompt: To Oslo, please.
                expectedResponse: Which day?

Where the service's interface wraps a text (`{text: …}`, `{toolNames: […]}`), the text or list may stand
alone. A file is one version of a dataset, called `travel-regressions@3`; its digest is kept with every
job that used it, so that a file changed in secret is found out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from proctor.evaluator import Reference
from proctor.item import digest_of
from proctor.plan.source import KeyPath, refuse
from proctor.plan.validate import SectionLabel, Text, check_shape, names_of
from proctor.plan.yaml_loader import read_source

# What was said about single sessions with a job, found again when they are judged.


class GroundTruthIndex:
    """What was said about single sessions."""

    def __init__(self, metadata: Sequence[Mapping[str, Any]]) -> None:
        """Of two entries about the same session or scenario the last one counts."""
        self._by_session = {entry["sessionId"]: entry for entry in metadata if entry.get("sessionId")}
        self._by_scenario = {
            entry["testScenarioId"]: entry for entry in metadata if not entry.get("sessionId")
        }
        self.unused = set(self._by_session)
        """Ids of sessions that were spoken of and not asked about."""

    def of(self, external_id: str, scenario: str = "") -> Mapping[str, Any]:
        """What is said about one session; nothing is an empty mapping."""
        self.unused.discard(external_id)
        return self._by_session.get(external_id) or self._by_scenario.get(scenario) or {}


def reference_of(entry: Mapping[str, Any]) -> Reference | None:
    """The ground truth in what is said about a session; None: there is none."""
    inline = (entry.get("groundTruth") or {}).get("inline")
    if not inline:
        return None
    trajectory = _bare(inline.get("expectedTrajectory"), "toolNames")
    responses = {
        number: str(_bare(turn.get("expectedResponse"), "text"))
        for number, turn in enumerate(inline.get("turns") or ())
        if turn.get("expectedResponse") is not None
    }
    return Reference(
        assertions=tuple(str(_bare(each, "text")) for each in inline.get("assertions") or ()),
        trajectory=None if trajectory is None else tuple(map(str, trajectory)),
        responses=responses,
    )


def _bare(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else value


def unwrapped(name: str) -> BeforeValidator:
    """Take a value out of the mapping that the interface wraps it in, if it stands in one."""
    return BeforeValidator(
        lambda value: value[name] if isinstance(value, Mapping) and set(value) == {name} else value
    )


class _GroundTruthModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class ExpectedTurn(_GroundTruthModel):
    """What one turn of a session should come to."""

    input: Annotated[Text, unwrapped("prompt")] | None = None
    prompt: Text | None = None
    expected_response: Annotated[Text, unwrapped("text")] | None = None


class InlineGroundTruth(_GroundTruthModel):
    """What a session should come to."""

    assertions: Annotated[list[Annotated[Text, unwrapped("text")]], Field(min_length=1)] | None = None
    expected_trajectory: Annotated[list[Text], unwrapped("toolNames")] | None = None
    turns: Annotated[list[ExpectedTurn], Field(min_length=1)] | None = None


class GroundTruth(_GroundTruthModel):
    """Ground truth, which is always written in place."""

    inline: InlineGroundTruth


class SessionMetadata(_GroundTruthModel):
    """What is said about one session, or about all sessions of one scenario."""

    session_id: Text | None = None
    test_scenario_id: Text | None = None
    ground_truth: GroundTruth | None = None
    metadata: dict[str, Any] | None = None


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
    metadata: Sequence[Mapping[str, Any]] = field(repr=False)

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
        case ("sessionMetadata", int(index), "groundTruth", "inline", "turns", int(turn)):
            return SectionLabel(f"turn {turn + 1} of session {index + 1}", "A turn", names_of(ExpectedTurn))
    return None


def read_dataset(text: str | bytes, *, file: str) -> Dataset:
    """Read a file of ground truth, YAML or JSON; raises with everything that is wrong with it."""
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
