"""Runs one dialogue: a client and a therapist, any two roles, and the evaluators of the session.

The item names its roles by digest; the roles are resources of the run, so that later changes of their folders
have no effect. Messages, turns, model calls and state are recorded as they happen. An interrupted dialogue
resumes after its last completed turn.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from proctor.dialogue.conversation import (
    LOOP,
    Checkpoint,
    Conversation,
    ConversationCheckpoint,
    ConversationObserver,
    ConversationSettings,
    Side,
    survives_json,
)
from proctor.dialogue.conversation import converse as run_conversation
from proctor.dialogue.participant import (
    SIDES,
    THERAPIST,
    BrokenRole,
    ConversationState,
    Participant,
    SideClient,
    Utterance,
    role_of,
    shared_by,
    usage_metrics,
)
from proctor.dialogue.participant import Role as DialogueRole
from proctor.dialogue.steps import conclude
from proctor.dialogue.task import check_task, execute_solution
from proctor.dialogue.tools import DialogueWorld, SideTools, WorldError, changes, merged
from proctor.errors import AttemptError, CostLimit, NotFound, TimeLimit, UsageError, WorkspaceError
from proctor.evaluators.criteria import criterion_of
from proctor.item import FAIL, Item, digest_of
from proctor.json_values import JsonMap, as_map, as_number, require_map
from proctor.runner import Outcome, Services
from proctor.runners._judging import Judges, attribute_failure, below, dialogue_evidence_of
from proctor.score import Score
from proctor.session import Iteration, Message, Metric, Note, Role
from proctor.validity import InvalidCounter, record_again


class DialogueRunner:
    """Runs dialogue items."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """Run the conversation, then its evaluators; record what caused a failure."""
        dialogue = _Dialogue(item, services)
        try:
            async with services.time_limit(item.settings.get("timeoutSec"), "the dialogue"):
                await dialogue.converse()
                failures = await dialogue.evaluate()
        except AttemptError as error:
            dialogue.record_end(_cause(error, item), error.reason)
            raise
        if dialogue.conversation.end_reason == LOOP:
            dialogue.record_end("both")
            return Outcome(status=FAIL, reason=LOOP, error="both sides kept repeating themselves")
        dialogue.record_end(dialogue.cause_of_failures if failures else "")
        if failures:
            return Outcome(status=FAIL, reason="checks_failed", error="; ".join(failures))
        return Outcome()


class _Dialogue:
    def __init__(self, item: Item, services: Services) -> None:
        self.invalid = InvalidCounter(services.record)
        self.item, self.services = item, replace(services, record=self.invalid.record)
        checkpoint = services.checkpoint
        self.checkpoint = checkpoint if isinstance(checkpoint, Checkpoint) else None
        self.seed = seed_of(item, services.session_id)
        if self.checkpoint:
            self.seed = self.checkpoint.conversation.seed
        self.conversation = Conversation()
        self.clients = {side: self._client(side) for side in SIDES}
        self.judges: Judges | None = None
        self.world: DialogueWorld | None = None
        self.tools: dict[str, SideTools] = {}
        self.policy = ""
        self.cause_of_failures = ROLE_UNDER_TEST
        self._under_test = item.settings.get("underTest", THERAPIST)

    async def converse(self) -> None:
        """Hold the conversation to its end, from the checkpoint if there is one."""
        details = self.item.details
        roles = {side: await self._role(side) for side in SIDES}
        await self._open_world(roles)
        participants = {side: self._participant(side, roles) for side in SIDES}
        settings = ConversationSettings(
            max_turns=details["maxTurns"],
            reminder_turns=details["reminderTurns"],
            loop_turns=details["loopTurns"],
            opens=details["opens"],
            language=details.get("lang", "en"),
        )
        observer = ConversationObserver(
            utterance=lambda utterance: self._record_utterance(utterance, participants),
            moderator_message=self._record_moderator,
            turn_finished=lambda turn: self._record_turn(turn, participants),
        )
        for side in SIDES:
            self._record_weights(side, participants[side].role)
            self._record_language(participants[side].role)
        if self.checkpoint:
            self._resume(self.checkpoint, participants)
        try:
            await run_conversation(participants, settings, observer, self.conversation)
            await self._conclude(participants)
        except UsageError as error:
            raise WorkspaceError(str(error)) from error

    async def _conclude(self, participants: Mapping[str, Participant]) -> None:
        """Execute the steps of roles that follow the conversation, and record what they changed."""
        conversation = self.conversation
        for side, participant in participants.items():
            is_done = self.checkpoint is not None and self.checkpoint.is_finished
            if is_done or not participant.role.after or not conversation.history:
                continue
            message = next((each.text for each in reversed(conversation.history) if each.side != side), "")
            moment = ConversationState(
                prompt=message, history=conversation.history, turn=conversation.turns, turns_left=0
            )
            before = dict(participant.state)
            await conclude(participant, moment)
            for name in participant.role.metrics:
                if participant.state.get(name) != before.get(name):
                    self._metric(f"{side}.{name}", participant.state[name])

    async def evaluate(self) -> list[str]:
        """Apply the evaluators; the checks and pass marks that were not met."""
        evaluators = self.item.settings.get("evaluators") or []
        lines = [(each.side, each.text) for each in self.conversation.history]
        earlier = self._earlier_scores()
        failures = self._earlier_task_failures() if earlier else await self._check_task(lines)
        if not evaluators or not self.conversation.history:
            return failures
        self.judges = self.judges or Judges(self.services, self.seed)
        profile = {side: self.item.details[side]["profile"] for side in SIDES}
        evidence = dialogue_evidence_of(
            self.conversation.history, self._under_test, profile, self.services, self.world
        )
        for entry in evaluators:
            if scores := earlier.get(_evaluator_key(entry)):
                # It has judged this conversation already.
                for score in scores:
                    self.services.score(score)
                failures += below(_pass_mark(entry), scores)
                continue
            failures += await self.judges.score(entry, evidence)
        return failures

    def _earlier_scores(self) -> Mapping[str, Sequence[Score]]:
        """The valid scores of a finished conversation, by evaluator."""
        grouped: dict[str, list[Score]] = {}
        if self.checkpoint is not None and self.checkpoint.is_finished:
            grouped[""] = []
            for score in self.checkpoint.scores:
                if not score.error:
                    grouped.setdefault(_score_key(score), []).append(score)
        return grouped

    def _earlier_task_failures(self) -> list[str]:
        """Record the scores of the task's checks again; the checks that failed."""
        assert self.checkpoint is not None
        scores = [each for each in self.checkpoint.scores if each.evaluator.split(".")[0] == "task"]
        for score in scores:
            self.services.score(score)
        return [each.explanation for each in scores if each.evaluator == "task" and each.label == "fail"]

    async def _open_world(self, roles: Mapping[str, DialogueRole]) -> None:
        """Create the world in its initial state, and the tools of both sides."""
        details, services = self.item.details, self.services
        if "world" not in details:
            return
        state = merged(json.loads(await services.resource(details["world"])), self._task.get("state", {}))
        self.world = DialogueWorld(require_map(state))
        self.policy = roles[self._under_test].policy
        folder = Path(self.item.settings.get("toolFolder") or services.home)
        self.tools = {
            side: SideTools(
                role.tools,
                side,
                self.world,
                services,
                folder=folder,
                is_under_test=side == self._under_test,
                sandbox=self.item.settings.get("toolSandbox"),
            )
            for side, role in roles.items()
            if role.tools
        }

    @property
    def _task(self) -> JsonMap:
        return as_map(self.item.details, "task")

    async def _check_task(self, lines: Sequence[tuple[str, str]]) -> list[str]:
        """Record the scores of the task's checks; the checks that failed."""
        if self.world is None:
            return []
        self._record_world(self.world)
        checks = as_map(self.item.settings, "checks")
        if not checks:
            return []
        tools = self.tools.get(self._under_test)
        specs, folder = (tools.specs.values(), tools.folder) if tools else ((), self.services.home)
        solved = await execute_solution(checks, self.world.initial, list(specs), self.services, folder)
        results = check_task(checks, self.world, lines, self._under_test, solved)
        for result in results:
            self._record_check(f"task.{result.kind}", result.failures)
        failures = [f"{result.kind}: {failure}" for result in results for failure in result.failures]
        self._record_check("task", failures)
        if any(result.is_of_user and result.failures for result in results):
            self.cause_of_failures = SIMULATED_OTHER
        elif failures and (model := self.item.settings.get("attributionModel")):
            await self._attribute(model, self.world, lines, failures)
        return failures

    async def _attribute(
        self, model: str, world: DialogueWorld, lines: Sequence[tuple[str, str]], failures: Sequence[str]
    ) -> None:
        """Let a judge decide who caused the failure of the task."""
        self.judges = self.judges or Judges(self.services, self.seed)
        cause, reason = await attribute_failure(
            self.judges,
            model,
            goal=str(self._task.get("goal", "")),
            policy=self.policy,
            lines=lines,
            world=world,
            under_test=self._under_test,
            failures=failures,
        )
        causes = {"agent": ROLE_UNDER_TEST, "user": SIMULATED_OTHER, "world": WORLD}
        self.cause_of_failures = causes.get(cause, ROLE_UNDER_TEST)
        text = f"the failure is attributed to the {cause}: {reason}" if cause else "the judge named no cause"
        self.services.record(Note(text=text))

    def _record_check(self, name: str, failures: Sequence[str]) -> None:
        self.services.score(
            Score(
                evaluator=name,
                value=0.0 if failures else 1.0,
                label="fail" if failures else "pass",
                explanation="; ".join(failures),
                evaluator_digest=digest_of(self.item.settings["checks"])[:16],
            )
        )

    def _record_world(self, world: DialogueWorld) -> None:
        changed = dict(changes(world.initial, world.state))
        content = json.dumps(changed, ensure_ascii=False, indent=1) if changed else "unchanged"
        self.services.record(Message(role="system", content=content, name="world"))

    def record_end(self, cause: str, reason: str = "") -> None:
        """Record how it ended, what caused a failure, and the usage of each side."""
        conversation, record = self.conversation, self.services.record
        record(Metric(name="seed", value=float(self.seed)))
        record(Metric(name="num_turns", value=float(conversation.turns)))
        record(Metric(name="end_reason", value=conversation.end_reason or reason))
        if cause:
            record(Metric(name="caused_by", value=cause))
        clients = {side: client.client for side, client in self.clients.items()}
        if self.judges:
            clients["evaluators"] = self.judges.client
        for name, client in clients.items():
            if client.calls:
                for metric, number in usage_metrics(client).items():
                    record(Metric(name=f"usage.{name}.{metric}", value=number))

    def _client(self, side: str) -> SideClient:
        side_details = self.item.details[side]
        return SideClient(side, side_details["model"], side_details["parameters"], self.services, self.seed)

    def _participant(self, side: str, roles: Mapping[str, DialogueRole]) -> Participant:
        side_details = self.item.details[side]
        return Participant(
            roles[side],
            side,
            side_details["profile"],
            side_details["options"],
            ask=self.clients[side].ask,
            note=lambda text: self.services.record(Note(text=text)),
            rng=self._rng(side),
            titles={each: role.title or each.capitalize() for each, role in roles.items()},
            tools=self.tools.get(side),
            world=self.world,
            person=lambda text: self._ask_person(side, text),
            previous=side_details.get("previous"),
            other=self._shared(_other_side(side), roles),
            own_weights=self._has_own_weights(side, roles[side]),
            record=self.services.record,
        )

    def _shared(self, side: str, roles: Mapping[str, DialogueRole]) -> JsonMap:
        details = self.item.details[side]
        return shared_by(roles[side], details["profile"], details["options"])

    def _has_own_weights(self, side: str, role: DialogueRole) -> bool:
        model = str(self.item.details[side]["model"])
        return bool(role.own_models) and role.own_models.casefold() in model.casefold()

    async def _ask_person(self, side: str, text: str) -> str:
        return self.services.redact(await self.services.ask_person(side, text))

    async def _role(self, side: str) -> DialogueRole:
        side_details = self.item.details[side]
        try:
            return _parse_role(await self.services.resource(side_details["digest"]))
        except NotFound as error:
            raise WorkspaceError(
                f"the role {side_details['role']} ({side_details['digest']}) is not stored with the run: "
                "run the same command with --resume, which stores it again"
            ) from error

    def _record_weights(self, side: str, role: DialogueRole) -> None:
        """Record whether a role with trained weights used them."""
        if role.own_models:
            model, own = self.item.details[side]["model"], self._has_own_weights(side, role)
            weights = "its own weights" if own else "weights it was not trained on"
            self.services.record(Metric(name=f"{side}.weights", value="own" if own else "other"))
            self.services.record(Note(text=f"{role.name} was played by {model}: {weights}"))

    def _record_language(self, role: DialogueRole) -> None:
        language = self.item.details.get("lang", "en")
        if role.templates and role.language.partition("-")[0] != language.partition("-")[0]:
            text = f"{role.name} has no templates in {language} and was played in {role.language}"
            self.services.record(Note(text=text))

    def _record_utterance(self, utterance: Utterance, participants: Mapping[str, Participant]) -> None:
        role: Role = "assistant" if utterance.side == self._under_test else "user"
        self.services.record(Message(role=role, content=utterance.text, name=utterance.side))
        participant = participants[utterance.side]
        for name in participant.role.metrics:
            self._metric(f"{utterance.side}.{name}", participant.state.get(name))

    def _metric(self, name: str, value: object) -> None:
        if isinstance(value, bool):
            value = float(value)
        if isinstance(value, int | float | str):
            self.services.record(Metric(name=name, value=value, step=self.conversation.turns + 1))

    def _record_moderator(self, text: str) -> None:
        self.services.record(Message(role="system", content=text, name="moderator"))

    def _record_turn(self, turn: int, participants: Mapping[str, Participant]) -> None:
        conversation = self.conversation
        transient = [
            participant.role.name
            for participant in participants.values()
            if not survives_json(participant.state)
        ]
        output = f"turn {turn}"
        if transient:
            if turn == 1:
                text = (
                    f"the state of {transient[0]} cannot be stored: if interrupted, the dialogue starts over"
                )
                self.services.record(Note(text=text))
        else:
            sides = {
                side: Side(
                    state=participant.state,
                    usage=self.clients[side].client.totals(),
                    exchanges=participant.tools.exchanges if participant.tools else {},
                )
                for side, participant in participants.items()
            }
            standing = ConversationCheckpoint(
                turns=turn,
                seed=self.seed,
                sides=sides,
                end_reason=conversation.end_reason,
                ended_by=conversation.ended_by,
                world=self.world.to_json() if self.world else None,
                invalid=dict(self.invalid.counts),
            )
            output = standing.to_json()
        self.services.record(Iteration(model=self.item.model, output=output))

    def _resume(self, checkpoint: Checkpoint, participants: Mapping[str, Participant]) -> None:
        """Restore the conversation, and record everything until then in this session too."""
        record, standing = self.services.record, checkpoint.conversation
        text = "judged again" if checkpoint.is_finished else f"resumed after turn {standing.turns}"
        record(Note(text=text))
        record_again(standing.invalid, record)
        for message in checkpoint.messages:
            record(Message(role=message["role"], content=message["content"], name=message["name"]))  # type: ignore[arg-type]
            if message["name"] in SIDES:
                utterance = Utterance(side=message["name"], text=message["content"])
                self.conversation.history.append(utterance)
            elif message["name"] == "moderator":
                self.conversation.notes[len(self.conversation.history)] = message["content"]
            for client in self.clients.values():
                if message["name"] == client.label:
                    client.restore_instructions(message["content"])
        for metric in checkpoint.metrics:
            record(Metric(name=metric["name"], value=metric["value"], step=metric["step"]))
        for side, saved in standing.sides.items():
            participants[side].state.update(saved.state)
            self.clients[side].client.restore(saved.usage)
            if side in self.tools:
                self.tools[side].exchanges.update({n: list(map(dict, m)) for n, m in saved.exchanges.items()})
        if self.world and standing.world:
            self.world.restore(standing.world)
            for tools in self.tools.values():
                tools.record_again()
        conversation = self.conversation
        conversation.turns, conversation.end_reason, conversation.ended_by = (
            standing.turns,
            standing.end_reason,
            standing.ended_by,
        )
        for turn in range(1, standing.turns):
            record(Iteration(model=self.item.model, output=f"turn {turn}"))
        if standing.turns:
            record(Iteration(model=self.item.model, output=standing.to_json()))

    def _rng(self, side: str) -> Callable[[int], random.Random]:
        # One generator per side: its draws do not depend on those of the other side.
        return lambda turn: random.Random(f"{self.seed}:{side}:{turn}")


def _evaluator_key(entry: JsonMap) -> str:
    """Identifies an evaluator of the settings; those without a model are always applied again."""
    if "criterion" in entry:
        criterion = criterion_of(as_map(entry, "criterion"))
        return f"{criterion.name}:{criterion.digest}"
    return str(as_map(entry, "evaluator").get("name", "-"))


def _score_key(score: Score) -> str:
    is_named = ":" in score.evaluator or score.evaluator.startswith("Builtin.") or not score.evaluator_digest
    return score.evaluator if is_named else f"{score.evaluator}:{score.evaluator_digest}"


def _pass_mark(entry: JsonMap) -> float | None:
    return as_number(as_map(entry, "criterion").get("passes_at", as_map(entry, "evaluator").get("passes_at")))


def _other_side(side: str) -> str:
    return next(each for each in SIDES if each != side)


def seed_of(item: Item, attempt: str) -> int:
    """The seed of a dialogue: from the plan's seed, or without one from the attempt's ID."""
    seed = item.details.get("seed")
    where = attempt if seed is None else [seed, item.details["combination"], item.repeat]
    # 31 bits, which providers accept.
    return int(digest_of(where)[:8], 16) & 0x7FFFFFFF


@lru_cache(maxsize=64)
def _parse_role(text: str) -> DialogueRole:
    return role_of(json.loads(text))


ROLE_UNDER_TEST, SIMULATED_OTHER, WORLD = "role_under_test", "simulated_other", "world"


def _cause(error: AttemptError, item: Item) -> str:
    if isinstance(error, BrokenRole):
        under_test = item.settings.get("underTest", THERAPIST)
        return ROLE_UNDER_TEST if error.side == under_test else SIMULATED_OTHER
    if isinstance(error, WorldError):
        return WORLD
    return "limits" if isinstance(error, TimeLimit | CostLimit) else "infrastructure"
