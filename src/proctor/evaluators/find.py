"""Find an evaluator by its name.

`Builtin.Helpfulness`; `module:function`, followed by `@trace` or `@tool_call` where it scores those; the path
of a definition in YAML or JSON, or its name in a folder of definitions; the id or name of one in the store.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from proctor.errors import NotFound, UsageError
from proctor.evaluator import Evaluator
from proctor.evaluators.builtins import JUDGED, PREFIX, question_of
from proctor.evaluators.code import MEGABYTES, TIMEOUT_SECONDS, CommandEvaluator, FunctionEvaluator, source_of
from proctor.evaluators.definition import FUNCTION, LEVELS, judge_of, problems_of
from proctor.evaluators.insight import FIELDS, InsightJudge
from proctor.evaluators.matchers import MATCHINGS, TrajectoryMatcher
from proctor.evaluators.model_judge import ModelJudge
from proctor.judging.engine import Judge
from proctor.judging.question import Question, ScoreDimension, plain_question, scale_of
from proctor.model import Model
from proctor.score import Level

ONE_VOTE_TEMPERATURE = 0.0

# At 0, three votes of most models are one vote counted three times.
SEVERAL_VOTES_TEMPERATURE = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """Settings of all evaluators of one evaluation."""

    judge_model: str = ""
    """Default judge, as `provider/model`. Empty: none."""
    votes: int = 1
    """Votes per target; the majority label and the mean value count."""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of judge calls: temperature, max_tokens. A definition takes precedence."""
    structured: bool = True
    """Whether the judge's provider is asked for structured output (a JSON schema)."""
    harmful_value: float = 1.0
    """Value of `Harmful` and `Stereotyping`, 1 or 0; their opposites get the other."""
    model_names: Mapping[str, str] = field(default_factory=dict)
    """Model id of a definition → model to call, where the default mapping is wrong."""
    lambdas: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    """ARN of a Lambda → `module:function`, or a program and its arguments."""
    folder: Path = Path()
    """Working folder of functions and programs, and base of relative paths."""
    folders: Sequence[Path] = ()
    """Folders with definitions, which are found by file name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The whole environment of functions and programs: no keys."""
    attempt: str = "evaluation"
    """Marks processes, so that all can be found and ended."""

    @property
    def call_parameters(self) -> dict[str, Any]:
        """Parameters of every judge call."""
        temperature = ONE_VOTE_TEMPERATURE if self.votes == 1 else SEVERAL_VOTES_TEMPERATURE
        return {"temperature": temperature, **self.parameters}


SUFFIXES = (".yaml", ".yml", ".json")
LARGEST_DEFINITION_BYTES = 4 * 1024 * 1024
Definitions = Callable[[str], Mapping[str, Any] | None]
"""A stored definition by id or name; None when there is none."""


class EvaluatorNotFound(NotFound):
    """There is no such evaluator."""


def builtin_names() -> list[str]:
    """The built-in evaluators, those without a model last."""
    return [*(PREFIX + name for name in JUDGED), *MATCHINGS]


def find_evaluator(
    name: str,
    *,
    models: Model,
    settings: EvaluationSettings,
    definitions: Definitions = lambda _: None,
) -> Evaluator:
    """The evaluator of a name; `EvaluatorNotFound`, or `UsageError` when it cannot be used."""
    return _EvaluatorFactory(models, settings, definitions).named(name)


def evaluator_of(
    document: Mapping[str, Any],
    *,
    models: Model,
    settings: EvaluationSettings,
    definitions: Definitions = lambda _: None,
) -> Evaluator:
    """The evaluator of a definition; all its problems are one `UsageError`."""
    return _EvaluatorFactory(models, settings, definitions).defined(document)


def read_definition(path: Path) -> Mapping[str, Any]:
    """The definition in a file; all its problems are one `UsageError`."""
    document = read_document(path)
    if problems := problems_of(document):
        raise UsageError("\n".join(f"{path}: {problem}" for problem in problems))
    checked: Mapping[str, Any] = document
    return checked


def definition_files(folders: Sequence[Path]) -> Iterator[Path]:
    """The definitions in folders, by name; of two with one name, that of the first folder."""
    paths = {
        path.stem: path
        for folder in reversed(folders)
        for path in sorted(folder.glob("*"), reverse=True)
        if path.suffix in SUFFIXES and path.is_file()
    }
    yield from (paths[name] for name in sorted(paths))


class _EvaluatorFactory:
    """Makes evaluators from names and definitions."""

    def __init__(self, models: Model, settings: EvaluationSettings, definitions: Definitions) -> None:
        self._models = models
        self._settings = settings
        self._definitions = definitions

    def named(self, name: str) -> Evaluator:
        if name.startswith(PREFIX):
            return self._built_in(name)
        if name.endswith(SUFFIXES) and (path := self._settings.folder / name).is_file():
            return self.defined(read_definition(path))
        function, _, level = name.partition("@")
        if FUNCTION.fullmatch(function):
            return self._bare_function(name, function, level or "session")
        if (stored := self._definitions(name)) is not None:
            return self.defined(stored)
        for path in definition_files(self._settings.folders):
            if path.stem == name:
                return self.defined(read_definition(path))
        raise self._unknown(name)

    def defined(self, document: Mapping[str, Any]) -> Evaluator:
        if problems := problems_of(document):
            raise UsageError("\n".join(map(str, problems)))
        name, level = document["evaluatorName"], LEVELS[document["level"]]
        config = document["evaluatorConfig"]
        if config.get("llmAsAJudge") is not None:
            return self._own_judge(name, level, config["llmAsAJudge"])
        if config.get("derived") is not None:
            return self._derived(name, config["derived"])
        return self._code(name, level, config["codeBased"], document.get("evaluatorId") or name)

    def _built_in(self, name: str, judge: Judge | None = None, called: str = "") -> Evaluator:
        if name in MATCHINGS:
            return TrajectoryMatcher(name)
        if name in FIELDS:
            return InsightJudge(name=name, judge_model=judge or self._judge(name, None))
        short = name.removeprefix(PREFIX)
        if short not in JUDGED:
            raise self._unknown(name)
        built_in = JUDGED[short]
        question, other = question_of(short, self._settings.harmful_value)
        return ModelJudge(
            name=called or name,
            level=built_in.level,
            judge_model=judge or self._judge(name, None),
            question=question,
            with_reference=other,
            only_skills=built_in.only_skills,
            sees_all=built_in.sees_all,
        )

    def _own_judge(self, name: str, level: Level, config: Mapping[str, Any]) -> Evaluator:
        scale = config["ratingScale"]
        if scale.get("multiDimensional") is None:
            question = plain_question(config["instructions"], scale_of(scale))
        else:
            dimensions = tuple(
                ScoreDimension(
                    each["dimensionName"],
                    each["dimensionInstruction"],
                    scale_of(each["dimensionRatingScale"]),
                )
                for each in scale["multiDimensional"]
            )
            question = Question(config["instructions"], dimensions)
        judge = self._judge(name, config.get("modelConfig"))
        return ModelJudge(name=name, level=level, judge_model=judge, question=question)

    def _derived(self, name: str, config: Mapping[str, Any]) -> Evaluator:
        base, judge = config["baseEvaluatorId"], self._judge(name, config.get("modelConfig"))
        if base.startswith(PREFIX):
            return self._built_in(base, judge, name)
        stored = self._definitions(base)
        own = (stored or {}).get("evaluatorConfig", {}).get("llmAsAJudge")
        if stored is None or own is None:
            raise EvaluatorNotFound(
                f"`{name}` is derived from `{base}`, and there is no model judge of that id"
            )
        replaced = {**own, "modelConfig": config.get("modelConfig")}
        return self._own_judge(name, LEVELS[stored["level"]], replaced)

    def _judge(self, name: str, config: Mapping[str, Any] | None) -> Judge:
        settings = self._settings
        model, own = judge_of(config, settings.model_names) if config else (settings.judge_model, {})
        if not model:
            raise UsageError(
                f"`{name}` needs a judge model, and none is set\nSet the judge, as provider/model."
            )
        return Judge(
            models=self._models,
            model=model,
            parameters={**settings.call_parameters, **own},
            votes=settings.votes,
            structured=settings.structured,
        )

    def _code(self, name: str, level: Level, config: Mapping[str, Any], identity: str) -> Evaluator:
        limit = float(config.get("timeoutSeconds", TIMEOUT_SECONDS))
        run: Any = config.get("function") or config.get("command")
        if run is None:
            arn = config["lambdaConfig"]["lambdaArn"]
            limit = float(config["lambdaConfig"].get("lambdaTimeoutInSeconds", TIMEOUT_SECONDS))
            run = self._settings.lambdas.get(arn)
            if run is None:
                raise UsageError(
                    f"`{name}` calls {arn}, which is not mapped to local code\n"
                    'Add to proctor.toml: [evaluation.lambdas] "ARN" = "module:function", or a list: a '
                    "program and its arguments."
                )
        if isinstance(run, str):
            megabytes = int(config.get("memoryMegabytes", MEGABYTES))
            return self._function(name, level, run, identity, limit, megabytes)
        return CommandEvaluator(
            name=name,
            level=level,
            command=tuple(run),
            folder=self._settings.folder,
            environment=self._settings.environment,
            attempt=self._settings.attempt,
            identity=identity,
            timeout_seconds=limit,
        )

    def _bare_function(self, name: str, function: str, level: str) -> Evaluator:
        levels: dict[str, Level] = {"session": "session", "trace": "trace", "tool_call": "tool_call"}
        if level not in levels:
            raise UsageError(f"`{name}`: there is no level `{level}`\nThere are: {', '.join(levels)}.")
        return self._function(name, levels[level], function, "", TIMEOUT_SECONDS, MEGABYTES)

    def _function(
        self, name: str, level: Level, function: str, identity: str, limit: float, megabytes: int
    ) -> Evaluator:
        folder = self._settings.folder
        source = source_of(function, folder)
        if source is None:
            raise EvaluatorNotFound(
                f"`{name}`: there is no module `{function.partition(':')[0]}`\n"
                f"Searched {folder.resolve()} and the Python path."
            )
        return FunctionEvaluator(
            name=name,
            level=level,
            function=function,
            source=source,
            folder=folder,
            environment=self._settings.environment,
            attempt=self._settings.attempt,
            identity=identity,
            timeout_seconds=limit,
            megabytes=megabytes,
        )

    def _unknown(self, name: str) -> EvaluatorNotFound:
        if name.startswith("ThirdParty."):
            return EvaluatorNotFound(
                f"`{name}` is not included with Proctor\nDefine your own: proctor evaluators new NAME"
            )
        known = [*builtin_names(), *(path.stem for path in definition_files(self._settings.folders))]
        bare = {each.removeprefix(PREFIX).casefold(): each for each in known}
        near = get_close_matches(name.removeprefix(PREFIX).casefold()[:60], bare, n=1, cutoff=0.6)
        remedy = f"Did you mean `{bare[near[0]]}`?" if near else "`proctor evaluators list` lists them."
        return EvaluatorNotFound(f"there is no evaluator `{name}`\n{remedy}")


def read_document(path: Path) -> Any:
    """The content of a YAML or JSON file; a `UsageError` when it cannot be read."""
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    if path.stat().st_size > LARGEST_DEFINITION_BYTES:
        raise UsageError(f"{path}: larger than {LARGEST_DEFINITION_BYTES >> 20} MiB")
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else _yaml(text)
    except (OSError, ValueError, RecursionError) as cause:
        raise UsageError(f"{path}: {cause}") from cause


def _yaml(text: str) -> Any:
    # Imported here: evaluations with built-in evaluators do not need it.
    import yaml

    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as cause:
        raise ValueError(str(cause)) from cause
