"""The dialogue job: every client role × every therapist role, repeated.

Items are identified by their inputs: more clients, therapists or repeats extend a run and keep its results.
Roles are stored with the run under their digests: it finishes with the roles it started with.
"""

import json
import re
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from proctor.batch.preflight import check_evaluators, check_model
from proctor.context import ModelOptions, RunContext, WorkerContext
from proctor.dialogue.participant import SIDES
from proctor.document import Document
from proctor.errors import UsageError
from proctor.formatting import plural
from proctor.item import Item
from proctor.job import (
    BatchEnd,
    ItemFinished,
    Job,
    JobPlan,
    NewRun,
    PlanText,
    ReadPlan,
    ResumedPlan,
    RunDocuments,
    RunHooks,
    RunView,
    Starter,
    StoredPlan,
)
from proctor.jobs.dialogue.files import (
    SUMMARY,
    count_interrupted,
    exclusion_rule,
    finished_items,
    read_checkpoint,
    session_document,
    unjudged_items,
    write_missing,
    write_session,
    write_summary,
)
from proctor.jobs.dialogue.plan import DialoguePlan, read_simulation
from proctor.jobs.dialogue.roles import Roles
from proctor.jobs.dialogue.schema import DialogueOverrides, SimulationFile
from proctor.jobs.dialogue.world import world_digest
from proctor.json_values import JsonObject
from proctor.models import ModelRouter
from proctor.plan.validate import stop_settings
from proctor.stop_rule import StopRule, make_stop_rule
from proctor.store import Resource, batches
from proctor.store.items import item_states
from proctor.store.runs import batches_of_job
from proctor.store.tables import BatchRow


@dataclass(frozen=True, kw_only=True)
class DialogueJobPlan(JobPlan):
    """A simulation with its paths."""

    simulation: DialoguePlan
    path: str
    """Absolute path of the config; empty: there is none."""
    folders: tuple[Path, ...]
    """Where scripted models, roles and evaluators are looked up."""
    output: Path | None = None
    """Folder of the run; None until the run is known."""
    default_output: Path
    files: Mapping[str, str] = field(default_factory=dict)
    """File names of the dialogues that the run has already, by the ID of the item."""

    @property
    def item_count(self) -> int:
        """Number of dialogues."""
        return self.simulation.item_count

    @property
    def concurrency(self) -> int:
        """Maximum dialogues in parallel. A person at the terminal has one at a time."""
        simulation = self.simulation
        if simulation.has_person and simulation.config["human"] != "web":
            return 1
        return int(simulation.config["max_workers"])

    @property
    def stop_rule(self) -> StopRule | None:
        """When the simulation stops early; None: it runs to its end."""
        return make_stop_rule(stop_settings(self.simulation.config["stop_when"]))

    @property
    def requested_output(self) -> Path | None:
        """The folder that config or overrides set; None: none."""
        folder = self.simulation.config["output_dir"]
        return Path(folder).expanduser().resolve() if folder else None

    def begin_run(self, run_id: str, ctx: RunContext) -> NewRun:
        """Create the output folder, which must not have results."""
        folder = self.requested_output or self.default_output
        if (folder / SUMMARY).exists():
            raise UsageError(
                f"{folder} already contains a simulation\nResume it with --resume, or set --output-dir."
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot create the folder {folder}: {error.strerror}") from error
        return replace(super().begin_run(run_id, ctx), plan=replace(self, output=folder))

    def for_run(self, batch: BatchRow, ctx: RunContext) -> ResumedPlan:
        """The plan in the folder of an earlier run."""
        files = {
            row["id"]: str(json.loads(row["settings"])["file"])
            for row in item_states(ctx.store.read, batch["runId"])
            if row["sessionId"]
        }
        plan = replace(self, output=_output_of(batch), files=files)
        # The prompt only names the two roles.
        return ResumedPlan(plan=plan, derived_fields=frozenset({"prompt"}))

    def model_options(self) -> ModelOptions:
        """How its models are reached."""
        return ModelOptions.of_plan(self.simulation.config, self.folders)

    def columns(self) -> Mapping[str, object]:
        """The columns of the batch row that record the simulation."""
        config = self.simulation.config
        options = {"notify": config["notify"], **self.model_options().stored()}
        if config["human"]:
            options["human"] = config["human"]
        return {
            "planPath": self.path,
            "planText": self.simulation.text,
            "planDigest": self.simulation.digest,
            "defaultsJson": json.dumps(dict(config), ensure_ascii=False),
            "optionsJson": json.dumps({**options, "outputDir": self._output}, ensure_ascii=False),
            "concurrency": self.concurrency,
            "seed": config["seed"],
            "budgetUsd": config["budget_limit"],
        }

    def check(self, models: ModelRouter, ctx: RunContext) -> Sequence[str]:
        """Check that models, keys, prices and evaluators exist."""
        config = self.simulation.config
        needs_price = config["budget_limit"] is not None or config["cost_per_run_limit"] is not None
        problems = [
            f"{problem}\n{remedy}" if remedy else problem
            for model in self.simulation.models
            for problem, remedy in check_model(model, models, needs_price=needs_price)
        ]
        if problems:
            raise UsageError("\n\n".join(problems))
        find, remarks = self.attempts(ctx, models).find_evaluator, set[str]()
        evaluators = [
            find(evaluator["name"], evaluator["judging"], models)
            for evaluator in self.simulation.evaluators_by_name
        ]
        for problem, remedy in check_evaluators(evaluators, remarks):
            raise UsageError(f"`sandbox`: {problem}\n{remedy}")
        return [*self.simulation.remarks, *remarks]

    def attempts(self, ctx: RunContext, models: ModelRouter) -> WorkerContext:
        names = [each["name"] for each in self.simulation.evaluators_by_name]
        sandbox = self.model_options().sandbox
        return ctx.with_evaluators(ctx.attempts(models), names, folder=self.folders[0], sandbox=sandbox)

    def resources(self) -> Iterator[Resource]:
        """The roles, and the initial state of the world."""
        for digest, role in self.simulation.roles.items():
            content = json.dumps(role.document(), ensure_ascii=False)
            yield Resource(kind="role", name=role.name, digest=digest, content=content)
        if (world := self.simulation.world) is not None:
            content = json.dumps(world, ensure_ascii=False)
            yield Resource(kind="world", name="world", digest=world_digest(world), content=content)

    def items(self) -> Iterator[Item]:
        """The dialogues, repeat by repeat.

        One that differs from an earlier dialogue of the same place is another version of it, with a file of
        its own: no file of a dialogue that was paid for is overwritten.
        """
        items = self.simulation.items(self._output)
        return (
            map(partial(_in_its_file, self.files, set(self.files.values())), items) if self.files else items
        )

    @property
    def _output(self) -> str:
        return str(self.output) if self.output else ""


@dataclass(frozen=True, kw_only=True)
class StoredDialogues(StoredPlan):
    """A simulation that resumes from the store alone."""

    evaluators: Sequence[str] = ()
    folder: Path
    """Where evaluators are looked up."""
    output: Path
    role_files: Sequence[Path] = ()
    """Roles of a run of an earlier version, which stored them below the home folder and not with the run."""

    def resources(self) -> Iterator[Resource]:
        """The roles that are not stored with the run yet."""
        for path in self.role_files:
            try:
                content = path.read_text(encoding="utf-8")
                name = str(json.loads(content)["name"])
            except (OSError, ValueError):
                # Dialogues that need it fail with a message.
                continue
            yield Resource(kind="role", name=name, digest=path.stem, content=content)


SUMMARY_SECONDS = 1.0
"""Minimum time between two summaries while a simulation runs."""


class DialogueFiles(RunHooks):
    """One JSON file for each finished dialogue, and the summary."""

    def __init__(
        self, folder: Path, run_id: str, ctx: RunContext, plan: "DialogueJobPlan | None" = None
    ) -> None:
        self._folder, self._run_id, self._ctx, self._plan = folder, run_id, ctx, plan
        self._has_stale_files = False
        self._next_summary = 0.0

    def begin(self, *, resumed: bool) -> BatchEnd | None:
        """Write missing files."""
        self._folder.mkdir(parents=True, exist_ok=True)
        read = self._ctx.store.read
        write_missing(self._folder, read, self._run_id, look_inside=True)
        if resumed and self._plan:
            self._queue_unjudged(self._plan)
        self._write_summary()
        if resumed and (count := count_interrupted(read, self._run_id)):
            self._ctx.info(
                f"{plural(count, 'dialogue')} interrupted; will resume after the last completed turn"
            )
        return None

    def _queue_unjudged(self, plan: "DialogueJobPlan") -> None:
        """Queue finished dialogues again for evaluators that the config has got since."""
        store = self._ctx.store
        if items := unjudged_items(store.read, self._run_id, plan.items()):
            store.change(batches.requeue, self._run_id, [item.id for item in items])
            store.extend_batch(self._run_id, {}, add=[], settle=items, drop=[])
            self._ctx.info(f"{plural(len(items), 'finished dialogue')} will be judged by the new evaluators")

    def item_finished(self, item: ItemFinished) -> None:
        """Write the file of a dialogue."""
        read = self._ctx.store.read
        try:
            for row in read.exact_item(self._run_id, item.id):
                write_session(self._folder, row, read)
            if time.monotonic() >= self._next_summary:
                self._write_summary()
        except OSError:
            self._has_stale_files = True
            raise

    def finish(self, end: BatchEnd) -> Mapping[str, object]:  # noqa: ARG002
        """Write what is missing."""
        write_missing(self._folder, self._ctx.store.read, self._run_id, look_inside=self._has_stale_files)
        return {"outputDir": str(self._folder), "summary": self._write_summary()}

    def checkpoint(self, item_id: str) -> object | None:
        """The last completed turn of an interrupted dialogue."""
        return read_checkpoint(self._ctx.store.read, self._run_id, item_id)

    def _write_summary(self) -> JsonObject:
        read, started = self._ctx.store.read, time.monotonic()
        summary = write_summary(self._folder, read, read.batch(self._run_id, self._ctx.now()))
        ended = time.monotonic()
        # It reads all results: at most a twentieth of the time, however many there are.
        self._next_summary = ended + max(SUMMARY_SECONDS, 20 * (ended - started))
        return summary


class DialogueJob(Job):
    """`proctor simulate`."""

    name = "dialogue"
    title = "Dialogues"
    plan_model = SimulationFile
    overrides = DialogueOverrides
    view = RunView(
        noun="dialogue",
        is_comparison=False,
        analysis_title="Open variance analysis",
        speakers=("client", "therapist"),
        steps_are_turns=True,
        column_titles={"prompt": "Dialogue", "model": "Models"},
        item_columns=(
            "status",
            "factor:client",
            "factor:therapist",
            "factor:*",
            "repeat",
            "score:*",
            "seconds",
            "costUsd",
        ),
        narrow_item_columns=("status", "factor:client", "factor:therapist"),
    )
    starters = (Starter(file="dialogues.yaml", title="Dialogues"),)

    def read(self, source: PlanText, overrides: DialogueOverrides, ctx: RunContext) -> DialogueJobPlan:
        """Read and check a config."""
        return self._read(source, source.text, overrides, ctx)

    def read_overrides(
        self, overrides: DialogueOverrides, ctx: RunContext, *, caller: str = ""
    ) -> DialogueJobPlan:
        """Check a simulation that has no config: the overrides are all there is.

        `caller` is the class or function of Python whose arguments they are; empty: flags.
        """
        return self._read(PlanText(text="", folder=Path.cwd(), caller=caller), None, overrides, ctx)

    def _read(
        self, source: PlanText, text: str | bytes | None, overrides: DialogueOverrides, ctx: RunContext
    ) -> DialogueJobPlan:
        folders = ctx.settings.folders or (source.folder,)
        simulation = read_simulation(
            text,
            overrides.settings(),
            file=source.file,
            folder=source.folder,
            roles=Roles([*(folder / "roles" for folder in folders), ctx.home / "roles"]),
            caller=source.caller,
        )
        return DialogueJobPlan(
            simulation=simulation,
            path=source.stored_path,
            folders=folders,
            default_output=Path(default_output(ctx.now())).resolve(),
        )

    def restore(self, batch: BatchRow, ctx: RunContext) -> StoredDialogues:
        """The simulation of a run, from the store alone."""
        options = json.loads(batch["optionsJson"])
        evaluators = json.loads(batch["defaultsJson"]).get("evaluators") or ()
        folder = Path(batch["planPath"]).parent if batch["planPath"] else Path.cwd()
        return StoredDialogues(
            options=ModelOptions.restored(options, (folder, Path.cwd())),
            evaluators=[each if isinstance(each, str) else each["name"] for each in evaluators],
            folder=folder,
            output=_output_of(batch),
            role_files=_role_files(batch["runId"], ctx),
        )

    def read_to_resume(
        self, source: PlanText, overrides: DialogueOverrides, ctx: RunContext, run_id: str
    ) -> ReadPlan:
        """Read a config with the run that it resumes."""
        plan = self.read(source, overrides, ctx)
        earlier = ctx.store.read.batch(run_id, ctx.now())["runId"] if run_id else self.earlier(plan, ctx)
        return ReadPlan(job=self, plan=plan, earlier=earlier)

    def earlier(self, plan: DialogueJobPlan, ctx: RunContext) -> str:
        """The latest run in the folder the plan sets; without one, the latest run of the same simulation."""
        folder = plan.requested_output
        for row in batches_of_job(ctx.store.read, self.name):
            same_folder = json.loads(row["optionsJson"]).get("outputDir") == str(folder)
            if same_folder if folder else row["planDigest"] == plan.simulation.digest:
                return str(row["runId"])
        where = f" in {folder}" if folder else ""
        raise UsageError(f"there is no earlier run of this simulation{where}\nRun it without --resume.")

    def attempts(
        self,
        plan: JobPlan,
        run_id: str,  # noqa: ARG002
        ctx: RunContext,
        models: ModelRouter,
    ) -> WorkerContext:
        """Dependencies of the attempts, with the evaluators the simulation names."""
        if isinstance(plan, DialogueJobPlan):
            return plan.attempts(ctx, models)
        assert isinstance(plan, StoredDialogues)
        sandbox = plan.options.sandbox
        return ctx.with_evaluators(ctx.attempts(models), plan.evaluators, folder=plan.folder, sandbox=sandbox)

    def hooks(self, plan: JobPlan, run_id: str, ctx: RunContext) -> DialogueFiles:
        """The session files and the summary."""
        assert isinstance(plan, DialogueJobPlan | StoredDialogues) and plan.output
        return DialogueFiles(plan.output, run_id, ctx, plan if isinstance(plan, DialogueJobPlan) else None)

    def documents(self, run_id: str, ctx: RunContext) -> RunDocuments:
        """Client × therapist heat maps and distributions of the scores; the variance of each measure between
        clients, therapists and repeats."""
        read = ctx.store.read

        def results() -> Document:
            # Late, here and below: runs draw nothing.
            from proctor.jobs.dialogue.report import results_view

            return results_view(read, run_id)

        def analysis() -> str:
            from proctor.jobs.dialogue.report import dialogue_html
            from proctor.jobs.dialogue.tables import analysis_document

            sessions = (session_document(read, item) for item in finished_items(read, run_id))
            rule = exclusion_rule(read.exact_batch(run_id)[0])
            document = analysis_document(sessions, run_id, exclude_when=rule)
            if document is None:
                raise UsageError("there is no finished dialogue yet\nThe analysis begins with the first.")
            return dialogue_html(document)

        return RunDocuments(results=results, analysis=analysis)


JOB = DialogueJob()


def _in_its_file(files: Mapping[str, str], taken: Container[str], item: Item) -> Item:
    """An item with a file that no other item of the run has."""
    written = str(item.settings["file"])
    stem, version = written.removesuffix(".json"), 1
    file = files.get(item.id, written)
    if item.id in files:
        version = int(match[1]) if (match := _VERSION.search(file)) else 1
    else:
        while file in taken:
            version += 1
            file = f"{stem}.v{version}.json"
    if version == 1:
        return item
    combination = f"{item.settings['combination']} (version {version})"
    settings = {**item.settings, "file": file, "combination": combination, "version": version}
    return replace(item, settings=settings, factors={**item.factors, "version": str(version)})


_VERSION = re.compile(r"\.v(\d+)\.json$")


def default_output(now: datetime) -> str:
    """The output folder of a simulation that sets none: named for the local time."""
    return f"outputs/batch/{now.astimezone():%Y-%m-%d_%H-%M-%S}"


def _role_files(run_id: str, ctx: RunContext) -> list[Path]:
    """Role files below the home folder that items of a run refer to; none if the run stores its roles."""
    folder = ctx.home / "dialogue-roles"
    if not folder.is_dir() or ctx.store.read.resource_digests(run_id):
        return []
    digests = {
        json.loads(row["details"])[side]["digest"]
        for row in ctx.store.read.item_inputs(run_id)
        for side in SIDES
    }
    return [folder / f"{digest}.json" for digest in sorted(digests)]


def _output_of(batch: BatchRow) -> Path:
    return Path(json.loads(batch["optionsJson"])["outputDir"])
