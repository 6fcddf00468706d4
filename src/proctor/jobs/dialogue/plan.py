"""A simulation: every client × every therapist, repeated, from overrides and a config file.

Profiles that the config names (a list, `all`) are crossed with the repeats: each profile has `num_runs` runs.
A client without `profile:` has `num_runs` runs in all and uses its profiles in turn. Either way, more repeats
keep the results of the earlier ones.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from proctor.dialogue.conversation import has_moderator
from proctor.dialogue.participant import CLIENT, SIDES, THERAPIST, Participant, Role, every_step
from proctor.errors import Problem, UsageError
from proctor.evaluators.criteria import rubric_names
from proctor.item import Item, digest_of
from proctor.jobs.dialogue.roles import FALLBACK, RoleFolder, Roles, read_profiles
from proctor.jobs.dialogue.schema import DEFAULTS, DialogueSettings, as_list, read_settings
from proctor.jobs.dialogue.world import (
    DialogueTask,
    read_policy,
    read_tasks,
    read_tools,
    read_world,
    world_digest,
    world_problems,
)
from proctor.json_values import JsonMap, JsonObject, as_map, maps_in, texts_in, without_none
from proctor.plan.criteria import (
    criteria_of,
    documents,
    evaluator_of,
    expectation_of,
    is_evaluator,
    read_data,
)
from proctor.plan.source import KeyPath, refuse
from proctor.plan.validate import did_you_mean

TEMPERATURE = "temperature"
STAND_IN_MODEL = "scripted/lines"
"""The model name of a scripted role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChoice:
    """One role on one side, with its profiles, options and model."""

    label: str
    """Its name in files and tables; by default the role's name."""
    role: Role
    digest: str
    """Digest of the role, stored because it is slow to compute."""
    profiles: Sequence[tuple[str, JsonMap]]
    """In the order of the runs."""
    is_crossed: bool = False
    """Whether each profile has all repeats; else the repeats use the profiles in turn."""
    options: JsonMap = field(default_factory=dict)
    model: str = ""
    parameters: JsonMap = field(default_factory=dict)
    remarks: Sequence[str] = ()
    """Remarks for the user."""
    uses: Sequence[str] = ()
    """What it needs to know of the other side and its options do not set."""
    previous: Sequence[JsonMap] = ()
    """Earlier sessions that dialogues continue, as `previous_sessions` returns them."""

    @property
    def crossed_profiles(self) -> int:
        """By how much its profiles multiply the runs."""
        return len(self.profiles) if self.is_crossed else 1

    def details(self, number: int, task: DialogueTask | None = None) -> JsonObject:
        """This side in the details of an item, with its profile of a number; after the last, the first.

        A `task` that this side is given changes its profile.
        """
        name, profile = self.profiles[number % len(self.profiles)]
        if task is not None:
            name = task.name if len(self.profiles) == 1 or not self.is_crossed else f"{name}/{task.name}"
            profile = task.profile_of(profile)
        earlier = [each for each in self.previous if each["profile"] == name] or self.previous
        previous = {"previous": earlier[number % len(earlier)]} if earlier else {}
        return {
            "role": self.role.name,
            "label": self.label,
            "digest": self.digest,
            "profileName": name,
            "profile": profile,
            "options": dict(self.options),
            "model": self.model,
            "parameters": dict(self.parameters),
            **previous,
        }

    def settled(self, model: str, parameters: JsonMap) -> "RoleChoice":
        """The same with a default model and default parameters."""
        if not self.role.asks:
            return replace(self, model=STAND_IN_MODEL if self.role.stand_in else "", parameters={})
        values = without_none(parameters)
        merged = {**self.role.parameters, **values, **self.parameters}
        return replace(self, model=self.model or self.role.model or model, parameters=merged)


def role_choice(
    entry: Mapping[str, Any],
    side: str,
    language: str,
    folder: Path,
    roles: Roles,
    tasks: Sequence[DialogueTask] = (),
) -> RoleChoice:
    """Resolve one entry of a config; raises `UsageError` for what is wrong with it.

    `tasks` are those that this side is given.
    """
    folder_of_role = roles.find(entry["role"], side)
    if side not in folder_of_role.plays:
        sides = ", ".join(folder_of_role.plays)
        raise UsageError(f"the role {folder_of_role.name} does not play a {side}\nIt plays: {sides}.")
    faults = Faults()
    options = dict(entry.get("options") or {})
    role, profiles = folder_of_role.role(language), list[tuple[str, JsonMap]]()
    previous = list[JsonObject]()
    with faults:
        _label(entry)
    _check_options(folder_of_role, options, faults)
    with faults:
        if entry.get("tools"):
            role = replace(role, tools=read_tools(entry["tools"], folder))
    with faults:
        if entry.get("policy"):
            role = replace(role, policy=read_policy(entry["policy"], folder))
    with faults:
        if entry.get("previous"):
            previous = previous_sessions(folder / Path(entry["previous"]).expanduser(), side)
    with faults:
        profiles = _profiles(folder_of_role, entry, side, folder, language)
    for name, profile in profiles:
        for task in tasks or (None,):
            _check_profile(folder_of_role, role, side, name, profile, task, options, faults)
    faults.raise_all()
    return RoleChoice(
        label=_label(entry),
        role=role,
        digest=role.digest,
        profiles=profiles,
        is_crossed=entry.get("profile") is not None,
        options=options,
        model=entry.get("model") or "",
        parameters={} if entry.get(TEMPERATURE) is None else {TEMPERATURE: entry[TEMPERATURE]},
        uses=[name for name in texts_in(folder_of_role.source.data, "uses") if not options.get(name)],
        previous=previous,
        remarks=list(
            _language_remarks(folder_of_role, role, [name for name, _ in profiles], entry, language)
        ),
    )


def _language_remarks(
    folder: RoleFolder, role: Role, profiles: Sequence[str], entry: JsonMap, language: str
) -> Iterator[str]:
    if language.partition("-")[0] != role.language.partition("-")[0]:
        yield f"{folder.name} has no templates in `{language}`: it is played in `{role.language}`"
    has_own_words = (role.asks or role.stand_in) and not entry.get("profiles_file")
    if missing := folder.untranslated(profiles, language) if has_own_words else []:
        listed = ", ".join(missing)
        yield f"these profiles of {folder.name} are not in `{language}`, but in `{FALLBACK}`: {listed}"


class Faults:
    """Collects the errors of several checks, so that all are reported together."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.messages: list[str] = []

    def __enter__(self) -> None:
        """Begin a check."""

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        """Keep the error of a check."""
        if isinstance(error, RoleFaults):
            self.problems += error.faults.problems
            self.messages += error.faults.messages
            return True
        if not isinstance(error, UsageError):
            return False
        self.problems += getattr(error, "problems", [])
        self.messages += [] if hasattr(error, "problems") else [str(error)]
        return True

    def add(self, message: str) -> None:
        if message not in self.messages:
            self.messages.append(message)

    def raise_all(self) -> None:
        if self.problems or self.messages:
            raise RoleFaults(self)


class RoleFaults(UsageError):
    """All errors of one role of a config."""

    def __init__(self, faults: Faults) -> None:
        super().__init__("\n\n".join([*map(str, faults.problems), *faults.messages]))
        self.faults = faults


def _check_profile(
    folder: RoleFolder,
    role: Role,
    side: str,
    name: str,
    profile: JsonMap,
    task: DialogueTask | None,
    options: JsonMap,
    faults: Faults,
) -> None:
    """Report every fault of a profile: what its schema says, and members that its role needs."""
    where = f"the profile {name}"
    if task is not None:
        profile, where = task.profile_of(profile), f"the task `{task.name}`"
        for wrong in folder.check_profile(profile):
            faults.add(f"{where} does not fit the role {folder.name}: {wrong}")
    for missing in sorted(set(folder.required_members) - set(profile)):
        faults.add(f"{where} of {folder.name} has no `{missing}`, which its templates use")
    if not faults.messages:
        try:
            titles = dict.fromkeys(SIDES, "")
            Participant(role, side, profile, options, ask=_no_model, note=_ignore, rng=Random, titles=titles)
        except UsageError as error:
            faults.add(f"{where} of {folder.name}: {error}")


def _ignore(text: str) -> None:
    """Nothing is noted before the start."""


async def _no_model(prompt: object) -> str:
    raise AssertionError(f"no model is called before the start: {prompt}")


def _label(entry: JsonMap) -> str:
    label = str(entry.get("label") or entry["role"])
    # It becomes part of a file's name.
    if not all(letter.isalnum() or letter in "._-" for letter in label) or label.startswith("."):
        raise UsageError(f"`{label}` is not a valid label\nUse letters, digits and . _ -")
    return label


def previous_sessions(path: Path, side: str) -> list[JsonObject]:
    """Earlier sessions that a role continues: `profile`, `messages`, and the last `states` of its side.

    `path` is a session file, or the output folder of a simulation.
    """
    files = sorted(path.glob("*_run*.json")) if path.is_dir() else [path]
    sessions = list[JsonObject]()
    for file in files:
        if not file.is_file():
            continue
        document = read_data(file)
        messages = maps_in(as_map(document).get("messages"))
        states = JsonObject()
        for turn in maps_in(as_map(document).get("states")):
            prefix = f"{side}."
            states |= {k.removeprefix(prefix): v for k, v in turn.items() if k.startswith(prefix)}
        profile = as_map(document, "roles", side).get("profile")
        if messages:
            sessions.append({"profile": profile, "messages": list(messages), "states": states})
    if not sessions:
        raise UsageError(
            f"there is no session in {path} to continue\nGive a session file, or an output folder."
        )
    return sessions


def _check_options(role: RoleFolder, options: JsonMap, faults: Faults) -> None:
    choices = role.source.data.get("choices") or {}
    for name, value in options.items():
        if name not in role.options:
            known = ", ".join(role.options) or "none"
            remedy = f"{did_you_mean(name, role.options)} It has: {known}.".strip()
            faults.add(f"the role {role.name} has no option `{name}`\n{remedy}")
        if name in choices and value not in choices[name]:
            allowed = ", ".join(map(str, choices[name]))
            faults.add(f"`{name}` of {role.name} cannot be `{value}`\nIt can be: {allowed}.")


def _profiles(
    role: RoleFolder, entry: Mapping[str, Any], side: str, folder: Path, language: str
) -> list[tuple[str, JsonMap]]:
    profiles = dict(role.profiles_in(language))
    if file := entry.get("profiles_file"):
        profiles = _from_file(role, folder / Path(file).expanduser())
    if not profiles:
        raise UsageError(f"the role {role.name} has no profile\nAdd one to {role.folder / 'profiles'}.")
    profile = entry.get("profile")
    if profile is None:
        default = role.source.data.get("default_profile")
        names = list(profiles)
        if default in profiles and not entry.get("profiles_file"):
            names = [str(default), *(name for name in names if name != default)]
        return [(name, profiles[name]) for name in (names if side == CLIENT else names[:1])]
    if profile == "all":
        return list(profiles.items())
    listed = profile if isinstance(profile, list) else [profile]
    return [_named_profile(role, profiles, each) for each in listed]


def _named_profile(
    role: RoleFolder, profiles: Mapping[str, JsonMap], profile: str | int
) -> tuple[str, JsonMap]:
    """A profile by its name or its number."""
    names = list(profiles)
    if isinstance(profile, int) and 0 <= profile < len(names):
        return names[profile], profiles[names[profile]]
    if isinstance(profile, str) and profile in profiles:
        return profile, profiles[profile]
    remedy = did_you_mean(str(profile), names) or f"There are: {', '.join(names)}."
    raise UsageError(f"the role {role.name} has no profile `{profile}`\n{remedy}")


def _from_file(role: RoleFolder, path: Path) -> dict[str, JsonMap]:
    if not path.is_file():
        raise UsageError(f"there is no file {path} with profiles for {role.name}")
    profiles = read_profiles(path)
    faults = Faults()
    for name, profile in profiles.items():
        for wrong in role.check_profile(profile):
            faults.add(f"{path}: the profile {name} is not valid for {role.name}: {wrong}")
    faults.raise_all()
    return profiles


LATER_KEYS = ("world", "tasks", "attribution_model", "human", "pairs", "resources")
"""Keys of later versions: without a value, they do not change the digest of a simulation."""
DEFAULT_MODEL = ("OPENAI", "gpt-4o")
MOST_ITEMS = 1_000_000
COMPLETE_NAMES = ("scripted/", "replay/", "litellm/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One client with one therapist, and one value of each varied setting."""

    name: str
    """Prefix of its files: `patientPsi_CBT`."""
    client: RoleChoice
    therapist: RoleChoice
    varied: Mapping[str, str] = field(default_factory=dict)
    tasks: Sequence[DialogueTask] = ()

    @property
    def runs_per_repeat(self) -> int:
        """Runs of one repeat: one for each pair of profiles that the config names, and for each task."""
        return self._profile_pairs * max(1, len(self.tasks))

    @property
    def has_tools(self) -> bool:
        return bool(self.client.role.tools or self.therapist.role.tools)

    @property
    def _profile_pairs(self) -> int:
        return self.client.crossed_profiles * self.therapist.crossed_profiles

    def task(self, run: int) -> DialogueTask | None:
        """The task of a run; None: there are no tasks."""
        return self.tasks[run // self._profile_pairs % len(self.tasks)] if self.tasks else None

    def profiles(self, run: int) -> tuple[int, int]:
        """The numbers of the client's and the therapist's profile in a run."""
        repeat, clients = run // self.runs_per_repeat, self.client.crossed_profiles
        return (
            run % clients if self.client.is_crossed else repeat,
            run // clients % self.therapist.crossed_profiles if self.therapist.is_crossed else repeat,
        )


@dataclass(frozen=True, kw_only=True)
class DialoguePlan:
    """A checked simulation."""

    config: Mapping[str, Any]
    """All settings, with defaults."""
    combinations: Sequence[Combination]
    evaluators: Sequence[Mapping[str, Any]]
    text: str
    world: JsonMap | None = None
    """Initial state; None: there is no world."""
    folder: Path = Path()
    """Where files of tools are."""

    @property
    def digest(self) -> str:
        """Digest of the settings, without output folder, concurrency and how programs are confined."""
        aside = {
            "output_dir",
            "max_workers",
            "notify",
            "record",
            "replay",
            "num_runs",
            "sandbox",
            "outage_patience",
            "service",
            "exclude_when",
            *(name for name in LATER_KEYS if self.config[name] is None),
        }
        return digest_of({name: value for name, value in self.config.items() if name not in aside})

    @property
    def item_count(self) -> int:
        """Number of dialogues."""
        return _count_items(self.combinations, self.config["num_runs"])

    @property
    def roles(self) -> Mapping[str, Role]:
        """Every role, by digest."""
        return {choice.digest: choice.role for choice in self._choices}

    @property
    def _choices(self) -> Iterator[RoleChoice]:
        return (choice for each in self.combinations for choice in (each.client, each.therapist))

    @property
    def has_person(self) -> bool:
        """Whether a person plays a role."""
        return any("person" in step for role in self.roles.values() for step in every_step(role.steps))

    @property
    def evaluators_by_name(self) -> Sequence[Mapping[str, Any]]:
        """Evaluators that are looked up: built-ins, functions, definitions."""
        return [each["evaluator"] for each in self.evaluators if "evaluator" in each]

    @property
    def remarks(self) -> Sequence[str]:
        remarks = [remark for choice in self._choices for remark in choice.remarks]
        remarks += _other_language_remarks(self.config)
        remarks += [remark for each in self.combinations for remark in _unshared(each)]
        return list(dict.fromkeys(remarks))

    @property
    def models(self) -> Sequence[str]:
        """Every model that is called, judges included."""
        models = [choice.model for choice in self._choices if choice.role.asks]
        judges = [each["model"] for each in self.evaluators if "model" in each]
        judges += [model] if (model := self.config["attribution_model"]) else []
        # A function calls no model.
        judges += [each["judging"]["judge"] for each in self.evaluators_by_name if ":" not in each["name"]]
        return list(dict.fromkeys([*models, *judges]))

    def items(self, output_dir: str) -> Iterator[Item]:
        """The dialogues, repeat by repeat: an interrupted batch has results of every combination."""
        world = {} if self.world is None else {"world": world_digest(self.world)}
        shared = [(each, {**_fixed(each, self.config), **world}) for each in self.combinations]
        for repeat in range(self.config["num_runs"]):
            for combination, details in shared:
                for number in range(combination.runs_per_repeat):
                    run = repeat * combination.runs_per_repeat + number
                    yield self._item(combination, details, run, output_dir)

    def _item(self, combination: Combination, details: JsonMap, run: int, output_dir: str) -> Item:
        client, therapist = combination.client, combination.therapist
        of_client, of_therapist = combination.profiles(run)
        task = combination.task(run)
        simulated = _other(self.config["under_test"])
        sides = {
            CLIENT: client.details(of_client, task if simulated == CLIENT else None),
            THERAPIST: therapist.details(of_therapist, task if simulated == THERAPIST else None),
        }
        has_profiles = len(therapist.profiles) > 1
        factors = {
            "client": client.label,
            "therapist": therapist.label,
            "profile": str(sides[CLIENT]["profileName"]),
            "therapist_profile": str(sides[THERAPIST]["profileName"]) if has_profiles else "",
            "client_model": client.model,
            "therapist_model": therapist.model,
            "task": task.name if task else "",
            **combination.varied,
        }
        if task:
            details = {**details, "task": task.details}
        return Item(
            runner="dialogue",
            prompt=f"{client.label} × {therapist.label}",
            model=_model_label(client, therapist),
            details={**details, **sides},
            settings=self._settings(combination, run, output_dir, task),
            factors={name: value for name, value in factors.items() if value},
            repeat=run + 1,
        )

    def _settings(
        self, combination: Combination, run: int, output_dir: str, task: DialogueTask | None
    ) -> JsonObject:
        config = self.config
        settings = {
            "outputDir": output_dir,
            "file": f"{combination.name}_run{run}.json",
            "combination": combination.name,
            "run": run,
            "repeat": run // combination.runs_per_repeat,
            "underTest": config["under_test"],
            "timeoutSec": config["timeout_sec"],
            "retries": config["retries"],
            "budget": config["cost_per_run_limit"],
            "tags": config["tags"],
            "evaluators": list(self.evaluators) or None,
            "checks": task.checks if task else None,
            "attributionModel": config["attribution_model"] if task else None,
            "toolFolder": str(self.folder) if combination.has_tools else None,
            "toolSandbox": config["sandbox"] if combination.has_tools else None,
            "resources": config["resources"],
        }
        return without_none(settings)


def read_simulation(
    text: str | bytes | None, overrides: JsonMap, *, file: str, folder: Path, roles: Roles, caller: str = ""
) -> DialoguePlan:
    """Read and check a config and its overrides; `caller` as in `read_settings`.

    `text` is None when there is no config. Raises `PlanError` with every problem.
    """
    settings = read_settings(text, overrides, file=file, caller=caller)
    problems = settings.shape_problems()
    if problems:
        refuse(problems)
    config = {**DEFAULTS, **without_none(settings.data)}
    # Two names of one setting; the longer takes precedence.
    config["lang"] = config.pop("language") or config["lang"]
    evaluators = _evaluators(settings, config, problems)
    world, tasks = _world(settings, config, folder, problems)
    combinations = _combinations(settings, config, folder, roles, tasks, problems)
    problems += _world_problems(settings, config, world, combinations)
    total = _count_items(combinations, config["num_runs"])
    if total > MOST_ITEMS:
        remedy = f"At most {MOST_ITEMS:,} are run in one batch."
        problems.append(settings.problem(("num_runs",), f"the config asks for {total:,} dialogues", remedy))
    if problems:
        refuse(problems)
    has_world = world is not None or any(each.has_tools or each.tasks for each in combinations)
    return DialoguePlan(
        config=config,
        combinations=combinations,
        evaluators=evaluators,
        text=_as_text(text, config),
        world=(world or {}) if has_world else None,
        folder=folder,
    )


def _count_items(combinations: Sequence[Combination], num_runs: int) -> int:
    return num_runs * sum(each.runs_per_repeat for each in combinations)


def _as_text(text: str | bytes | None, config: JsonMap) -> str:
    if text is None:
        return json.dumps(dict(config), ensure_ascii=False)
    return text if isinstance(text, str) else text.decode("utf-8", "replace")


def _evaluators(
    settings: DialogueSettings, config: Mapping[str, Any], problems: list[Problem]
) -> list[JsonObject]:
    judge = config["judge_model"] or _default_models(config)[0]
    evaluators: list[JsonObject] = []
    for number, entry in enumerate(config["evaluators"] or ()):
        written = {"name": entry} if isinstance(entry, str) else entry
        try:
            if is_evaluator(written):
                evaluators.append({"evaluator": evaluator_of(written, judge)})
                continue
            if written.get("expect"):
                evaluators.append({"expectation": expectation_of(written, config["under_test"])})
                continue
            criteria = criteria_of(written, config["under_test"])
        except UsageError as error:
            problems.append(settings.problem(("evaluators", number), error.problem, error.remedy))
            continue
        model = written.get("model") or judge
        evaluators += [{"criterion": document, "model": model} for document in documents(criteria)]
    return evaluators


def _world(
    settings: DialogueSettings, config: JsonMap, folder: Path, problems: list[Problem]
) -> tuple[JsonMap | None, list[DialogueTask]]:
    """The initial state and the tasks."""
    world, tasks = None, list[DialogueTask]()
    try:
        world = read_world(config["world"], folder) if config["world"] is not None else None
    except UsageError as error:
        problems += _problems_at(settings, ("world",), error)
    try:
        tasks = read_tasks(config["tasks"], folder) if config["tasks"] else []
    except UsageError as error:
        problems += _problems_at(settings, ("tasks",), error)
    return world, tasks


def _world_problems(
    settings: DialogueSettings, config: JsonMap, world: JsonMap | None, combinations: Sequence[Combination]
) -> list[Problem]:
    messages = dict[str, None]()
    for pair in combinations:
        sides = {CLIENT: pair.client.role.tools, THERAPIST: pair.therapist.role.tools}
        under_test = str(config["under_test"])
        problems = world_problems(world or {}, pair.tasks, sides[under_test], sides[_other(under_test)])
        messages.update(dict.fromkeys(problems))
    return [settings.problem((), message) for message in messages]


def _other_language_remarks(config: JsonMap) -> Iterator[str]:
    """What else is in English and not in the language of the dialogues."""
    language = str(config["lang"])
    if language.partition("-")[0] == FALLBACK:
        return
    if not has_moderator(language):
        yield f"the moderator does not speak `{language}`: its messages are in `{FALLBACK}`"
    names = [each if isinstance(each, str) else str(as_map(each).get("name")) for each in _entries(config)]
    if rubrics := [name for name in names if name in rubric_names()]:
        yield f"these rubrics are not in `{language}`, but in `{FALLBACK}`: {', '.join(rubrics)}"


def _entries(config: JsonMap) -> Sequence[object]:
    evaluators = config["evaluators"]
    return evaluators if isinstance(evaluators, list) else []


def _unshared(combination: Combination) -> Iterator[str]:
    """Remarks about what one role needs of the other and does not get."""
    for user, partner in (
        (combination.client, combination.therapist),
        (combination.therapist, combination.client),
    ):
        if missing := [name for name in user.uses if name not in partner.role.shares]:
            listed = " and ".join(f"`{name}`" for name in missing)
            own = ", ".join(str(user.profiles[0][1].get(name)) for name in missing)
            yield f"{user.label} takes {listed} from its own profile ({own}): {partner.label} shares none"


def _other(side: str) -> str:
    return CLIENT if side == THERAPIST else THERAPIST


def _combinations(
    settings: DialogueSettings,
    config: Mapping[str, Any],
    folder: Path,
    roles: Roles,
    tasks: Sequence[DialogueTask],
    problems: list[Problem],
) -> list[Combination]:
    choices: dict[str, list[RoleChoice]] = {}
    for side, key in ((CLIENT, "clients"), (THERAPIST, "therapists")):
        choices[side] = []
        for number, entry in enumerate(as_list(config[key])):
            written = {"role": entry} if isinstance(entry, str) else entry
            try:
                of_side = tasks if side != config["under_test"] else ()
                choices[side].append(role_choice(written, side, config["lang"], folder, roles, of_side))
            except UsageError as error:
                problems += _problems_at(settings, (key, number), error)
    if problems:
        return []
    crossed = [replace(each, tasks=tasks) for each in _crossed(choices, config)]
    return _unique(settings, _paired(settings, config, crossed, problems), problems)


def _paired(
    settings: DialogueSettings, config: JsonMap, combinations: list[Combination], problems: list[Problem]
) -> list[Combination]:
    """The combinations that `pairs` lists; without it, all."""
    pairs = config["pairs"]
    if not isinstance(pairs, list):
        return combinations
    labels = (
        list(dict.fromkeys(each.client.label for each in combinations)),
        list(dict.fromkeys(each.therapist.label for each in combinations)),
    )
    for number, pair in enumerate(pairs):
        for side, label, known in zip((CLIENT, THERAPIST), pair, labels, strict=True):
            if label not in known:
                remedy = did_you_mean(label, known) or f"There are: {', '.join(known)}."
                problems.append(settings.problem(("pairs", number), f"there is no {side} `{label}`", remedy))
    allowed = {tuple(pair) for pair in pairs}
    return [each for each in combinations if (each.client.label, each.therapist.label) in allowed]


def _problems_at(settings: DialogueSettings, path: KeyPath, error: UsageError) -> list[Problem]:
    """The problems of an error, at their own place if they have one, or at a path of the config."""
    if isinstance(error, RoleFaults):
        parts = [message.partition("\n") for message in error.faults.messages]
        at_path = [settings.problem(path, problem, remedy) for problem, _, remedy in parts]
        return [*error.faults.problems, *at_path]
    if inner := getattr(error, "problems", None):
        return list(inner)
    return [settings.problem(path, error.problem, error.remedy)]


def _crossed(choices: Mapping[str, list[RoleChoice]], config: Mapping[str, Any]) -> Iterator[Combination]:
    defaults = _default_models(config)
    client_models = as_list(config["client_model"]) if config["client_model"] else [None]
    therapist_models = as_list(config["therapist_model"]) if config["therapist_model"] else [None]
    temperatures = (
        config["temperature"] if isinstance(config["temperature"], list) else [config["temperature"]]
    )
    for default, of_client, of_therapist, temperature in product(
        defaults, client_models, therapist_models, temperatures
    ):
        settings = {
            "model": default if len(defaults) > 1 else "",
            "client_model": of_client if len(client_models) > 1 else "",
            "therapist_model": of_therapist if len(therapist_models) > 1 else "",
            "temperature": f"{temperature:g}" if len(temperatures) > 1 else "",
        }
        varied = {name: str(value) for name, value in settings.items() if value}
        parameters = {"temperature": temperature, "max_tokens": config["max_tokens"]}
        for client, therapist in product(choices[CLIENT], choices[THERAPIST]):
            yield Combination(
                name="_".join([client.label, therapist.label, *map(_slug, varied.values())]),
                client=client.settled(of_client or default, parameters),
                therapist=therapist.settled(of_therapist or default, parameters),
                varied=varied,
            )


def _unique(
    settings: DialogueSettings, combinations: list[Combination], problems: list[Problem]
) -> list[Combination]:
    names: set[str] = set()
    for combination in combinations:
        # Some file systems ignore case.
        if combination.name.casefold() in names:
            problem = f"two combinations are both called {combination.name}"
            problems.append(settings.problem((), problem, "Give one of their roles a `label` of its own."))
        names.add(combination.name.casefold())
    return combinations


def _default_models(config: Mapping[str, Any]) -> list[str]:
    names = as_list(config["model_name"]) if config["model_name"] else [DEFAULT_MODEL[1]]
    provider = config["model_type"] or ("" if config["model_name"] else DEFAULT_MODEL[0])
    return [
        f"{provider.lower()}/{name}" if provider and not name.startswith(COMPLETE_NAMES) else name
        for name in names
    ]


def _fixed(combination: Combination, config: Mapping[str, Any]) -> JsonObject:
    opens = config["opens"] or (CLIENT if combination.client.role.opens else THERAPIST)
    return {
        "combination": combination.name,
        "maxTurns": config["max_turns"],
        "reminderTurns": config["reminder_turns"],
        "loopTurns": config["loop_turns"],
        "opens": opens,
        "seed": config["seed"],
        **({} if config["lang"] == "en" else {"lang": config["lang"]}),
    }


def _model_label(client: RoleChoice, therapist: RoleChoice) -> str:
    """The models of both sides, mocks first."""
    models = dict.fromkeys(model for model in (therapist.model, client.model) if model)
    return " + ".join(sorted(models, key=lambda model: not model.startswith(COMPLETE_NAMES)))


def _slug(value: str) -> str:
    last = value.rpartition("/")[2]
    safe = "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in last)
    return safe.strip("-.") or digest_of(value)[:8]
