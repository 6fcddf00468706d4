"""Criteria and evaluators in the `evaluators:` section of plans, and the built-in rubrics."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from pydantic import BeforeValidator, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from proctor.errors import Problem, UsageError
from proctor.evaluators.criteria import RUBRICS, Criterion, criteria_from, rubric_names
from proctor.evaluators.expect import problems_of
from proctor.json_values import (
    JsonMap,
    JsonObject,
    require_map,
)
from proctor.plan.source import PlanSource, bytes_of, open_regular, refuse
from proctor.plan.validate import did_you_mean
from proctor.plan.yaml_loader import read_source


class _NameOrEntry(BeforeValidator):
    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(schema)]}


def as_entry(name: str) -> BeforeValidator:
    """A plain name as a mapping."""
    return _NameOrEntry(lambda value: {name: value} if isinstance(value, str) else value)


def read_data(path: Path) -> Any:
    """A YAML or JSON file as plain data."""
    if path.suffix == ".json":
        try:
            return json.loads(read_text_file(path))
        except ValueError as error:
            raise UsageError(f"{path}: this is not JSON: {error}") from error
    source = read_yaml_source(path)
    if source.problems:
        refuse(list(source.problems))
    return source.data


def read_yaml_source(path: Path) -> PlanSource:
    """A YAML file with positions; its problems are in the source."""
    return read_source(bytes_of(path), file=str(path))


def read_text_file(path: Path) -> str:
    """A UTF-8 file; raises `UsageError` when it cannot be read."""
    try:
        with TextIOWrapper(open_regular(path), encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*(@(session|trace|tool_call))?")
_DEFINITIONS = (".yaml", ".yml", ".json")


def criteria_of(entry: JsonMap, under_test: str) -> list[Criterion]:
    """The criteria of one `evaluators:` entry."""
    written = dict(entry)
    name = str(written["name"])
    if not written.get("instructions") and not written.get("description") and not written.get("aspects"):
        written = {**_shipped(name), **written}
    criteria = criteria_from(written)
    return [
        replace(
            each,
            target=each.target or under_test,
            names_target=bool(entry.get("target")) and each.level == "session",
        )
        for each in criteria
    ]


def is_evaluator(entry: JsonMap) -> bool:
    """Whether an entry names an evaluator: a built-in, a function, or a definition file."""
    name = str(entry["name"])
    if any(entry.get(key) for key in ("instructions", "description", "aspects", "expect")):
        return False
    return name.startswith("Builtin.") or bool(_FUNCTION.fullmatch(name)) or name.endswith(_DEFINITIONS)


def evaluator_of(entry: JsonMap, judge: str) -> JsonObject:
    """An evaluator as runners need it."""
    values = {key: value for key, value in entry.items() if value is not None}
    if odd := set(values) - {"name", "model", "passes_at"}:
        problem = f"the evaluator `{entry['name']}` has its own instructions, and no setting `{min(odd)}`"
        raise UsageError(f"{problem}\nIt may have: name, model, passes_at.")
    return {
        "name": entry["name"],
        "judging": {"judge": entry.get("model") or judge},
        "passes_at": entry.get("passes_at"),
    }


def expectation_of(entry: JsonMap, under_test: str) -> JsonObject:
    """A check of one side that needs no judge: `contains`, `regex` and the like."""
    expect = require_map(entry["expect"])
    if problems := problems_of(expect):
        raise UsageError(f"the evaluator `{entry['name']}`: {'; '.join(problems)}")
    return {
        "name": entry["name"],
        "expect": dict(expect),
        "level": entry.get("level") or "session",
        "target": entry.get("target") or under_test,
        "passes_at": entry.get("passes_at"),
    }


def documents(criteria: list[Criterion]) -> list[JsonObject]:
    """Criteria as plain data."""
    plain = [{**asdict(criterion), "labels": list(criterion.labels)} for criterion in criteria]
    # As earlier versions stored them, so that what they have judged is not judged again.
    return [
        {name: value for name, value in each.items() if name != "names_target" or value} for each in plain
    ]


def _shipped(name: str) -> JsonObject:
    path = RUBRICS / f"{name}.yaml"
    if Path(name).name != name or not path.is_file():
        known = rubric_names()
        remedy = did_you_mean(name, known) or f"There are: {', '.join(known)}."
        raise UsageError(f"there is no rubric called `{name}`\n{remedy} Or write your own `instructions`.")
    data: JsonObject = read_data(path)
    return data


def judges_of(source: PlanSource, narrator: str) -> tuple[list[JsonObject], list[Problem]]:
    """Evaluators as runners need them, and problems. The default judge is the narrator."""
    criteria, problems = list[JsonObject](), list[Problem]()
    for number, written in enumerate(source.data.get("evaluators") or ()):
        entry = {"name": written} if isinstance(written, str) else written
        try:
            criteria.append(_judge(entry, source.data.get("judge_model") or narrator))
        except UsageError as error:
            problems.append(source.problem(("evaluators", number), error.problem, error.remedy))
    return criteria, problems


def judge_models(judges: Sequence[JsonMap]) -> list[str]:
    """The models of the judges. A function has none."""
    called = [each for each in judges if ":" not in str(each["name"])]
    return list(dict.fromkeys(str(require_map(each["judging"])["judge"]) for each in called))


def _judge(entry: JsonMap, judge: str) -> JsonObject:
    if not is_evaluator(entry):
        raise UsageError(
            f"there is no evaluator `{entry['name']}`\n"
            "Name a built-in (Builtin.Helpfulness), a function (module:function) or the file of a definition."
        )
    return evaluator_of(entry, judge)
