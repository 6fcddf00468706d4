"""Evaluators by name: resolve, copy for a run, and list them.

A name is `Builtin.Helpfulness`; `module:function`, followed by `@trace` or `@tool_call` if it scores those;
the path of a definition in YAML or JSON, or its name in a folder of definitions; or the id or name of one in
the store. A definition is copied into the evaluation when it begins, so that later changes have no effect.
A function cannot be copied: if its source has changed since, its digest differs, and the items left fail.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TypedDict

from proctor import score
from proctor.errors import NotFound, UsageError
from proctor.evaluator import Evaluator, FindEvaluator
from proctor.evaluators.builtins import JUDGED, PREFIX, YES_NO, question_of
from proctor.evaluators.code import MEGABYTES, TIMEOUT_SECONDS, CommandEvaluator, FunctionEvaluator, source_of
from proctor.evaluators.criteria import RUBRICS, Criterion, RubricEvaluator, criteria_from, rubric_names
from proctor.evaluators.definition import FUNCTION, LEVELS, PANELS, judge_of, problems_of
from proctor.evaluators.judging import (
    DEFAULT_AUDIT,
    Escalation,
    Judge,
    Jury,
    Question,
    ScoreDimension,
    plain_question,
    scale_of,
)
from proctor.evaluators.matchers import MATCHINGS, TrajectoryMatcher
from proctor.evaluators.model_judge import FIELDS, InsightJudge, ModelJudge
from proctor.evaluators.pairwise import PAIRWISE, PairwiseJudge
from proctor.json_values import (
    JsonMap,
    JsonObject,
    as_map,
    as_number,
    as_text,
    maps_in,
    require_map,
    require_maps,
    require_number,
    require_text,
    texts_in,
)
from proctor.model import Model
from proctor.sandbox import NOT_CONFINED, Sandbox
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
    parameters: JsonMap = field(default_factory=dict)
    """Parameters of judge calls: temperature, max_tokens. A definition takes precedence."""
    structured: bool = True
    """Whether structured output (a JSON schema) is requested from the judge's provider."""
    question: str = ""
    """What a pairwise evaluation asks. Empty: sessions are scored one by one."""
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
    """The whole environment of functions and programs: no keys, no tokens."""
    attempt: str = "evaluation"
    """Label of the processes they start, by which all of them can be found and ended."""
    sandbox: Sandbox = NOT_CONFINED
    """Of functions and programs."""

    @property
    def call_parameters(self) -> JsonObject:
        """Parameters of every judge call."""
        temperature = ONE_VOTE_TEMPERATURE if self.votes == 1 else SEVERAL_VOTES_TEMPERATURE
        return {"temperature": temperature, **self.parameters}


SUFFIXES = (".yaml", ".yml", ".json")
LARGEST_DEFINITION_BYTES = 4 * 1024 * 1024
Definitions = Callable[[str], JsonMap | None]
"""A stored definition by id or name; None when there is none."""


class EvaluatorNotFound(NotFound):
    """There is no such evaluator."""


def builtin_names() -> list[str]:
    """The built-in evaluators, those without a model last."""
    return [*(PREFIX + name for name in JUDGED), *MATCHINGS]


def find_evaluator(
    name: str, *, models: Model, settings: EvaluationSettings, definitions: Definitions = lambda _: None
) -> Evaluator:
    """The evaluator of a name; `EvaluatorNotFound`, or `UsageError` when it cannot be used."""
    return _EvaluatorFactory(models, settings, definitions).named(name)


def evaluator_of(
    document: JsonMap,
    *,
    models: Model,
    settings: EvaluationSettings,
    definitions: Definitions = lambda _: None,
) -> Evaluator:
    """The evaluator of a definition; all its problems are one `UsageError`."""
    return _EvaluatorFactory(models, settings, definitions).defined(document)


def read_definition(path: Path) -> JsonMap:
    """The definition in a file; all its problems are one `UsageError`."""
    document = read_document(path)
    if problems := problems_of(document):
        raise UsageError("\n".join(f"{path}: {problem}" for problem in problems))
    return require_map(document)


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
        """The evaluator of a name: built-in, a file, a function, in the store, in a folder; in this order."""
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
        if name in rubric_names():
            judge = self._judge(name, {})
            return RubricEvaluator(name=name, criteria=rubric_criteria(name), judge_model=judge)
        raise self._unknown(name)

    def defined(self, document: JsonMap) -> Evaluator:
        """The evaluator of a definition. Raises with everything that is wrong in it."""
        if problems := problems_of(document):
            raise UsageError("\n".join(map(str, problems)))
        name, level = require_text(document["evaluatorName"]), LEVELS[require_text(document["level"])]
        config = require_map(document["evaluatorConfig"])
        if config.get("llmAsAJudge") is not None:
            return self._own_judge(name, level, require_map(config["llmAsAJudge"]))
        if config.get("derived") is not None:
            return self._derived(name, require_map(config["derived"]))
        identity = as_text(document, "evaluatorId") or name
        return self._code(name, level, require_map(config["codeBased"]), identity)

    def _built_in(self, name: str, judge: Judge | None = None, called: str = "") -> Evaluator:
        if name in MATCHINGS:
            return TrajectoryMatcher(name)
        if name == PAIRWISE:
            if not self._settings.question:
                raise UsageError(
                    f"`{name}` compares sessions in pairs\nWrite `pairwise:` in the plan instead."
                )
            return PairwiseJudge(judge_model=self._judge(name, {}), asks=self._settings.question)
        if name in FIELDS:
            return InsightJudge(name=name, judge_model=judge or self._judge(name, {}))
        short = name.removeprefix(PREFIX)
        if short not in JUDGED:
            raise self._unknown(name)
        built_in = JUDGED[short]
        question, other = question_of(short, self._settings.harmful_value)
        return ModelJudge(
            name=called or name,
            level=built_in.level,
            judge_model=judge or self._judge(name, {}),
            question=question,
            with_reference=other,
            only_skills=built_in.only_skills,
            sees_all=built_in.sees_all,
        )

    def _own_judge(self, name: str, level: Level, config: JsonMap) -> Evaluator:
        scale, instructions = require_map(config["ratingScale"]), require_text(config["instructions"])
        if scale.get("multiDimensional") is None:
            question = plain_question(instructions, scale_of(scale))
        else:
            dimensions = tuple(
                ScoreDimension(
                    require_text(entry["dimensionName"]),
                    require_text(entry["dimensionInstruction"]),
                    scale_of(require_map(entry["dimensionRatingScale"])),
                )
                for entry in require_maps(scale["multiDimensional"])
            )
            question = Question(instructions, dimensions)
        return ModelJudge(name=name, level=level, judge_model=self._judges(name, config), question=question)

    def _derived(self, name: str, config: JsonMap) -> Evaluator:
        base = require_text(config["baseEvaluatorId"])
        judge = self._judges(name, config)
        if base.startswith(PREFIX):
            return self._built_in(base, judge, name)
        stored = self._definitions(base)
        own = as_map(stored, "evaluatorConfig", "llmAsAJudge")
        if stored is None or not own:
            raise EvaluatorNotFound(
                f"`{name}` is derived from `{base}`, and there is no model judge of that id"
            )
        judging = {name: config[name] for name in ("modelConfig", *PANELS) if name in config}
        replaced = {**{name: own[name] for name in own if name not in ("modelConfig", *PANELS)}, **judging}
        return self._own_judge(name, LEVELS[require_text(stored["level"])], replaced)

    def _judges(self, name: str, config: JsonMap) -> Judge:
        """The judge of a definition, with its panel."""
        if jury := as_map(config, "jury"):
            # The API requires a model config: with a jury, it is one more judge.
            configs = [*maps_in([config.get("modelConfig")]), *require_maps(jury["judges"])]
            judges = tuple(self._judge(name, judge) for judge in configs)
            return replace(judges[0], panel=Jury(judges=judges, rule=as_text(jury, "rule") or "majority"))
        judge = self._judge(name, as_map(config, "modelConfig"))
        if not (escalation := as_map(config, "escalation")):
            return judge
        panel = Escalation(
            judge=self._judge(name, require_map(escalation["modelConfig"])),
            below=require_number(escalation["below"]),
            audit=require_number(escalation.get("audit", DEFAULT_AUDIT)),
        )
        return replace(judge, panel=panel)

    def _judge(self, name: str, config: JsonMap) -> Judge:
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

    def _code(self, name: str, level: Level, config: JsonMap, identity: str) -> Evaluator:
        limit = require_number(config.get("timeoutSeconds", TIMEOUT_SECONDS))
        run: str | Sequence[str] | None = as_text(config, "function") or texts_in(config, "command")
        if not run:
            function = require_map(config["lambdaConfig"])
            arn = require_text(function["lambdaArn"])
            limit = require_number(function.get("lambdaTimeoutInSeconds", TIMEOUT_SECONDS))
            run = self._settings.lambdas.get(arn)
            if run is None:
                raise UsageError(
                    f"`{name}` calls {arn}, which is not mapped to local code\n"
                    'Add to proctor.toml: [evaluation.lambdas] "ARN" = "module:function", or a list: a '
                    "program and its arguments."
                )
        if isinstance(run, str):
            megabytes = int(require_number(config.get("memoryMegabytes", MEGABYTES)))
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
            sandbox=self._settings.sandbox,
        )

    def _bare_function(self, name: str, function: str, level: str) -> Evaluator:
        if level not in score.LEVELS:
            raise UsageError(f"`{name}`: there is no level `{level}`\nThere are: {', '.join(score.LEVELS)}.")
        return self._function(name, score.LEVELS[level], function, "", TIMEOUT_SECONDS, MEGABYTES)

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
            sandbox=self._settings.sandbox,
        )

    def _unknown(self, name: str) -> EvaluatorNotFound:
        if name.startswith("ThirdParty."):
            return EvaluatorNotFound(
                f"`{name}` is not included with Proctor\nDefine your own: proctor evaluators new NAME"
            )
        known = [
            *builtin_names(),
            *rubric_names(),
            *(path.stem for path in definition_files(self._settings.folders)),
        ]
        bare = {each.removeprefix(PREFIX).casefold(): each for each in known}
        near = get_close_matches(name.removeprefix(PREFIX).casefold()[:60], bare, n=1, cutoff=0.6)
        remedy = f"Did you mean `{bare[near[0]]}`?" if near else "`proctor evaluators list` lists them."
        return EvaluatorNotFound(f"there is no evaluator `{name}`\n{remedy}")


def read_document(path: Path) -> object:
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


def _yaml(text: str) -> object:
    # Imported here: evaluations with built-in evaluators do not need it.
    import yaml

    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as cause:
        raise ValueError(str(cause)) from cause


@dataclass(frozen=True, slots=True)
class EvaluatorRegistry:
    """Looks up evaluators in a folder, in folders of definitions, and in the store."""

    settings: EvaluationSettings
    """Of all of them; an evaluation has its own judge, votes and parameters."""
    definitions: Definitions = lambda _: None
    """Definitions of the store."""
    objects: Mapping[str, Evaluator] = field(default_factory=dict)
    """Evaluators that are objects of this process, by name."""

    def copies(self, names: Sequence[str]) -> JsonObject:
        """The current definitions of these names, with those they are derived from."""
        copied: JsonObject = {}
        pending = list(names)
        while pending:
            name = pending.pop()
            document = None if name in copied else self._document(name)
            if document is not None:
                copied[name] = dict(document)
                derived = as_map(document, "evaluatorConfig", "derived")
                pending += filter(None, [as_text(derived, "baseEvaluatorId")])
        return copied

    def full_name(self, name: str) -> str:
        """The name of an evaluator; that of a built-in one may omit `Builtin.` where nothing else has it."""
        is_short = PREFIX + name in builtin_names() and self._document(name) is None
        return PREFIX + name if is_short else name

    def finder(self, copies: JsonMap) -> FindEvaluator:
        """Finds evaluators for attempts: the copied definition, else by name."""

        without_model: dict[tuple[str, str], Evaluator] = {}
        """Evaluators that call no model are the same in every attempt."""

        def definitions(name: str) -> JsonMap | None:
            return as_map(copies, name) or self.definitions(name)

        def find(name: str, settings: JsonMap, models: Model) -> Evaluator:
            if name in self.objects:
                return self.objects[name]
            key = (name, json.dumps(settings, default=str))
            if key in without_model:
                return without_model[key]
            factory = _EvaluatorFactory(models, self._settings(settings), definitions)
            copy = as_map(copies, name)
            evaluator = factory.defined(copy) if copy else factory.named(name)
            if isinstance(evaluator, TrajectoryMatcher | FunctionEvaluator):
                without_model[key] = evaluator
            return evaluator

        return find

    def _document(self, name: str) -> JsonMap | None:
        if name.endswith(SUFFIXES) and (path := self.settings.folder / name).is_file():
            return read_definition(path)
        document = self.definitions(name)
        if document is not None:
            return document
        files = definition_files(self.settings.folders)
        return next((read_definition(path) for path in files if path.stem == name), None)

    def _settings(self, options: JsonMap) -> EvaluationSettings:
        return replace(
            self.settings,
            judge_model=as_text(options, "judge"),
            votes=int(require_number(options.get("votes", 1))),
            parameters=as_map(options, "parameters"),
            question=as_text(options, "question"),
            harmful_value=require_number(options.get("harmfulValue", 1.0)),
        )


KINDS = {"llmAsAJudge": "judge", "codeBased": "code", "derived": "derived"}
"""Kinds of definitions, as people read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorListing:
    """An evaluator that can be named."""

    name: str
    """As scores have it."""
    id: str
    """As requests name it."""
    level: str = ""
    """`session`, `trace` or `tool_call`; empty when the definition is invalid."""
    kind: str = ""
    """`judge`, `program`, `code` or `derived`; empty when the definition is invalid."""
    judges: str = ""
    """What it evaluates."""
    path: Path | None = None
    """The file of its definition; None: built in, or in the store."""
    is_stored: bool = False
    asks_model: bool = False
    reference: str = ""
    """The member of the ground truth that it uses; empty: none."""
    ratings: Mapping[str, float | None] = field(default_factory=dict)
    """Its labels and their values; empty: unknown, or any."""
    problem: str = ""
    """Why it cannot be used; empty when it can."""

    @property
    def is_builtin(self) -> bool:
        """Whether it comes with Proctor."""
        return self.path is None and not self.is_stored

    def source(self, file: str) -> str:
        """Where it comes from; `file` is the name of its file."""
        return file if self.path else "the store" if self.is_stored else "Proctor"


class StoredEvaluator(TypedDict):
    """The columns of a stored definition that a listing shows."""

    id: str
    name: str
    level: str
    kind: str
    description: str


def rubric_criteria(name: str) -> list[Criterion]:
    """The criteria of a shipped rubric."""
    return list(criteria_from(require_map(read_document(RUBRICS / f"{name}.yaml"))))


def rubric_listing(name: str) -> EvaluatorListing:
    """A shipped rubric in the list of evaluators."""
    rubric = as_map(read_document(RUBRICS / f"{name}.yaml"))
    judges = as_text(rubric, "description") or as_text(rubric, "instructions")
    return EvaluatorListing(name=name, id=name, level="session", kind="judge", judges=judges, asks_model=True)


def list_evaluators(folders: Sequence[Path], stored: Iterable[StoredEvaluator]) -> Iterator[EvaluatorListing]:
    """Every evaluator that can be named: built-in ones, those in folders of definitions, stored ones."""
    yield from map(builtin_listing, builtin_names())
    yield from map(rubric_listing, rubric_names())
    for path in definition_files(folders):
        try:
            yield definition_listing(read_definition(path), id_=path.stem, path=path)
        except UsageError as error:
            problem = str(error).partition("\n")[0]
            yield EvaluatorListing(name=path.stem, id=path.stem, path=path, problem=problem)
    for row in stored:
        yield EvaluatorListing(
            name=row["name"],
            id=row["id"],
            level=row["level"].lower(),
            kind=KINDS[row["kind"]],
            asks_model=row["kind"] != "codeBased",
            is_stored=True,
            judges=row["description"],
        )


def builtin_listing(name: str) -> EvaluatorListing:
    """A built-in evaluator, by its whole name."""
    if name in MATCHINGS:
        return EvaluatorListing(
            name=name,
            id=name,
            level="session",
            kind="program",
            judges=f"{MATCHINGS[name].description} of tool names",
            reference="expectedTrajectory",
            ratings=YES_NO,
        )
    builtin = JUDGED[name.removeprefix(PREFIX)]
    return EvaluatorListing(
        name=name,
        id=name,
        level=builtin.level,
        kind="judge",
        judges=builtin.judges,
        asks_model=True,
        reference=builtin.reference,
        ratings=builtin.ratings,
    )


def definition_listing(document: JsonMap, *, id_: str, path: Path | None = None) -> EvaluatorListing:
    """The evaluator of a checked definition."""
    config = require_map(document["evaluatorConfig"])
    kind = next(each for each in KINDS if config.get(each) is not None)
    return EvaluatorListing(
        name=require_text(document["evaluatorName"]),
        id=id_,
        level=require_text(document["level"]).lower(),
        kind=KINDS[kind],
        judges=as_text(document, "description"),
        path=path,
        asks_model=kind != "codeBased",
        ratings=ratings_of(document),
    )


def ratings_of(document: JsonMap, dimension: str = "") -> dict[str, float | None]:
    """The labels of a definition, or of one of its dimensions, with their values."""
    scale = as_map(document, "evaluatorConfig", "llmAsAJudge", "ratingScale")
    for part in maps_in(scale, "multiDimensional"):
        if part.get("dimensionName") == dimension:
            scale = as_map(part, "dimensionRatingScale")
    entries = maps_in(scale.get("numerical") or scale.get("categorical"))
    return {require_text(entry["label"]): as_number(entry, "value") for entry in entries}


def declared_scale(
    name: str, dimension: str, definition: JsonMap | None = None
) -> tuple[float, float] | None:
    """The lowest and the highest value of an evaluator; None: it declares no scale."""
    if name in MATCHINGS or name.removeprefix(PREFIX) in JUDGED:
        ratings = builtin_listing(name).ratings
    else:
        ratings = ratings_of(definition, dimension) if definition else {}
    values = [value for value in ratings.values() if value is not None]
    return (min(values), max(values)) if len(set(values)) > 1 else None


def criterion_scale(criterion: JsonMap) -> tuple[float, float] | None:
    """The lowest and the highest value of a criterion of a dialogue or scenario; None: it has labels."""
    kind = as_text(criterion, "scale")
    if kind == "binary":
        return 0.0, 1.0
    low, high = as_number(criterion, "low"), as_number(criterion, "high")
    return (low, high) if kind == "scalar" and low is not None and high is not None else None
