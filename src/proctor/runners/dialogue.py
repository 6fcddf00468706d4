"""One dialogue: a client and a therapist, any two roles, talk until one of them or the moderator ends it.

The item names its roles by their digests; the roles themselves are kept below Proctor's home, so that a
dialogue is carried out as it was planned whatever has become of the folders since. Each message, each
turn, each call and what a role remembers is recorded as it happens; one that was cut off goes on behind its
last finished turn, from the checkpoint that whoever resumes it puts beside its file.

Knows nothing of plans, files of results, or the store.
"""

import json
import random
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from proctor.dialogue.conversation import (
    LOOP,
    Checkpoint,
    Conversation,
    ConversationCheckpoint,
    ConversationSettings,
    Side,
    Watcher,
    can_be_kept,
    checkpoint_of,
    converse,
)
from proctor.dialogue.participant import (
    SIDES,
    THERAPIST,
    Participant,
    SideClient,
    Utterance,
    role_of,
    usage_metrics,
)
from proctor.dialogue.participant import Role as DialogueRole
from proctor.dialogue.steps import BrokenRole
from proctor.errors import AttemptError, CostLimit, TimeLimit, UsageError, WorkspaceError
from proctor.item import FAIL, Item, digest_of
from proctor.judging.engine import criterion_of
from proctor.runner import Outcome, Services
from proctor.runners.judging import Judges, dialogue_evidence_of
from proctor.session import Iteration, Message, Metric, Note, Role

UNFINISHED = ".unfinished"
"""The folder beside the sessions' files with the checkpoints of those that were cut off."""


ROLES = "dialogue-roles"
"""The folder below Proctor's home in which roles are kept under their digests."""


class DialogueRunner:
    """Carries out items that are conversations of two roles."""

    async def run(self, item: Item, services: Services) -> Outcome:
        """Let them talk, judge what was said, and say who is to blame when it came to nothing."""
        dialogue = _Dialogue(item, services)
        try:
            async with services.time_limit(item.settings.get("timeoutSec"), "the dialogue"):
                await dialogue.talk()
                broken = await dialogue.judge()
        except AttemptError as error:
            dialogue.tell_end(_blamed(error, item), error.reason)
            raise
        talk = dialogue.course_of_talk
        if talk.end_reason == LOOP:
            dialogue.tell_end("both")
            return Outcome(status=FAIL, reason=LOOP, error="both sides kept repeating themselves")
        dialogue.tell_end("role_under_test" if broken else "")
        if broken:
            return Outcome(status=FAIL, reason="checks_failed", error="; ".join(broken))
        return Outcome()


class _Dialogue:
    def __init__(self, item: Item, services: Services) -> None:
        self.item, self.services = item, services
        self.checkpoint = _checkpoint(item)
        self.seed = seed_of(item, services.attempt)
        if self.checkpoint:
            self.seed = self.checkpoint.standing.seed
        self.course_of_talk = Conversation()
        self.seats = {side: self._seat(side) for side in SIDES}
        self.judges: Judges | None = None
        self._under_test = item.settings.get("underTest", THERAPIST)

    async def talk(self) -> None:
        details = self.item.details
        parties = {side: self._party(side) for side in SIDES}
        course = ConversationSettings(
            max_turns=details["maxTurns"],
            reminder_turns=details["reminderTurns"],
            loop_turns=details["loopTurns"],
            opens=details["opens"],
            language=details.get("lang", "en"),
        )
        watcher = Watcher(
            said=lambda said: self._said(said, parties),
            moderated=self._moderated,
            turned=lambda turn: self._turned(turn, parties),
        )
        for side in SIDES:
            self._tell_weights(side, parties[side].role)
            self._tell_language(parties[side].role)
        if self.checkpoint:
            self._take_up(self.checkpoint, parties)
        try:
            await converse(parties, course, watcher, self.course_of_talk)
        except UsageError as error:
            raise WorkspaceError(str(error)) from error

    async def judge(self) -> list[str]:
        """Which criteria with a pass mark were not met."""
        wanted = self.item.settings.get("evaluators") or []
        if not wanted or not self.course_of_talk.history:
            return []
        self.judges = Judges(self.services, self.seed)
        profile = {side: self.item.details[side]["profile"] for side in SIDES}
        lines = [(said.side, said.text) for said in self.course_of_talk.history]
        broken = list[str]()
        for each in wanted:
            if "evaluator" in each:
                evidence = dialogue_evidence_of(
                    self.course_of_talk.history, self._under_test, profile, self.services
                )
                broken += await self.judges.ask(each["evaluator"], evidence)
                continue
            if "expectation" in each:
                broken += self.judges.check(each["expectation"], lines)
                continue
            criterion = criterion_of(each["criterion"])
            broken += await self.judges.judge(criterion, each["model"], lines, profile)
        return broken

    def tell_end(self, blamed: str, reason: str = "") -> None:
        """Record how it ended, who is to blame if it failed, and what each side has used."""
        talk, record = self.course_of_talk, self.services.record
        record(Metric(name="seed", value=float(self.seed)))
        record(Metric(name="num_turns", value=float(talk.turns)))
        record(Metric(name="end_reason", value=talk.end_reason or reason))
        if blamed:
            record(Metric(name="caused_by", value=blamed))
        clients = {side: seat.client for side, seat in self.seats.items()}
        if self.judges:
            clients["evaluators"] = self.judges.client
        for name, client in clients.items():
            if client.calls:
                for metric, number in usage_metrics(client).items():
                    record(Metric(name=f"usage.{name}.{metric}", value=number))

    def _seat(self, side: str) -> SideClient:
        asked = self.item.details[side]
        return SideClient(side, asked["model"], asked["parameters"], self.services, self.seed)

    def _party(self, side: str) -> Participant:
        asked = self.item.details[side]
        roles = {each: self._role(each) for each in SIDES}
        return Participant(
            roles[side],
            side,
            asked["profile"],
            asked["options"],
            ask=self.seats[side].ask,
            tell=lambda words: self.services.record(Note(text=words)),
            chance=self._luck(side),
            titles={each: role.title or each.capitalize() for each, role in roles.items()},
        )

    def _role(self, side: str) -> DialogueRole:
        asked = self.item.details[side]
        path = self.services.home / ROLES / f"{asked['digest']}.json"
        try:
            return kept_role(path)
        except OSError as error:
            raise WorkspaceError(
                f"the role {asked['role']} ({asked['digest']}) is not in {path.parent}: "
                "start the same command with --resume, which puts it there"
            ) from error

    def _tell_weights(self, side: str, role: DialogueRole) -> None:
        """A role that has weights of its own says whether these, or others, spoke."""
        if role.own_models:
            model = self.item.details[side]["model"]
            own = role.own_models.casefold() in model.casefold()
            weights = "its own weights" if own else "weights it was not trained on"
            self.services.record(Metric(name=f"{side}.weights", value="own" if own else "other"))
            self.services.record(Note(text=f"{role.name} was played by {model}: {weights}"))

    def _tell_language(self, role: DialogueRole) -> None:
        wanted = self.item.details.get("lang", "en")
        if role.templates and role.language.partition("-")[0] != wanted.partition("-")[0]:
            words = f"{role.name} has no templates in {wanted} and was played in {role.language}"
            self.services.record(Note(text=words))

    def _said(self, said: Utterance, parties: Mapping[str, Participant]) -> None:
        role: Role = "assistant" if said.side == self._under_test else "user"
        self.services.record(Message(role=role, content=said.text, name=said.side))
        party = parties[said.side]
        for name in party.role.metrics:
            self._metric(f"{said.side}.{name}", party.state.get(name))

    def _metric(self, name: str, value: Any) -> None:
        if isinstance(value, bool):
            value = float(value)
        if isinstance(value, int | float | str):
            self.services.record(Metric(name=name, value=value, step=self.course_of_talk.turns + 1))

    def _moderated(self, words: str) -> None:
        self.services.record(Message(role="system", content=words, name="moderator"))

    def _turned(self, turn: int, parties: Mapping[str, Participant]) -> None:
        talk = self.course_of_talk
        lost = [party.role.name for party in parties.values() if not can_be_kept(party.state)]
        written = f"turn {turn}"
        if lost:
            if turn == 1:
                words = f"what {lost[0]} remembers cannot be written down: cut off, this would begin anew"
                self.services.record(Note(text=words))
        else:
            sides = {
                side: Side(state=party.state, usage=self.seats[side].client.totals())
                for side, party in parties.items()
            }
            standing = ConversationCheckpoint(
                turns=turn,
                seed=self.seed,
                sides=sides,
                end_reason=talk.end_reason,
                ended_by=talk.ended_by,
            )
            written = standing.written()
        self.services.record(Iteration(model=self.item.model, output=written))

    def _take_up(self, checkpoint: Checkpoint, parties: Mapping[str, Participant]) -> None:
        """Stand where the talk was left, with everything said until then in this session's record too."""
        record, standing = self.services.record, checkpoint.standing
        record(Note(text=f"went on behind turn {standing.turns}"))
        for message in checkpoint.messages:
            record(Message(role=message["role"], content=message["content"], name=message["name"]))  # type: ignore[arg-type]
            if message["name"] in SIDES:
                said = Utterance(side=message["name"], text=message["content"])
                self.course_of_talk.history.append(said)
            for seat in self.seats.values():
                if message["name"] == seat.label:
                    seat.restore_instructions(message["content"])
        for metric in checkpoint.metrics:
            record(Metric(name=metric["name"], value=metric["value"], step=metric["step"]))
        for side, kept in standing.sides.items():
            parties[side].state.update(kept.state)
            self.seats[side].client.restore(kept.usage)
        talk = self.course_of_talk
        talk.turns, talk.end_reason, talk.ended_by = standing.turns, standing.end_reason, standing.ended_by
        for turn in range(1, standing.turns):
            record(Iteration(model=self.item.model, output=f"turn {turn}"))
        record(Iteration(model=self.item.model, output=standing.written()))

    def _luck(self, side: str) -> Callable[[int], random.Random]:
        # Each side has luck of its own: what one draws does not depend on how often the other does.
        return lambda turn: random.Random(f"{self.seed}:{side}:{turn}")


def seed_of(item: Item, attempt: str) -> int:
    """What a dialogue's luck is drawn from: the plan's seed, or, without one, the attempt's own name."""
    seed = item.details.get("seed")
    where = attempt if seed is None else [seed, item.details["combination"], item.repeat]
    # Within 31 bits, which is what providers take.
    return int(digest_of(where)[:8], 16) & 0x7FFFFFFF


def _checkpoint(item: Item) -> Checkpoint | None:
    path = Path(item.settings["outputDir"]) / UNFINISHED / item.settings["file"]
    try:
        found = checkpoint_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        # None, or one that cannot be read: it begins anew.
        return None
    return found if found.item_id == item.id else None


@lru_cache(maxsize=64)
def kept_role(path: Path) -> DialogueRole:
    """A role by the file it is kept in. It is named for what is in it, so it never changes."""
    return role_of(json.loads(path.read_text(encoding="utf-8")))


def _blamed(error: AttemptError, item: Item) -> str:
    if isinstance(error, BrokenRole):
        under_test = item.settings.get("underTest", THERAPIST)
        return "role_under_test" if error.side == under_test else "simulated_other"
    return "limits" if isinstance(error, TimeLimit | CostLimit) else "infrastructure"
