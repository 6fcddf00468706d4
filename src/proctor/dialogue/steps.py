"""Take a role's steps: ask, read, draw, choose, remember, until there is something to say.

    ask:    put templates to the model; its words go `into` a variable, or fields are `read` from them
    set:    give variables new values
    draw:   let chance choose from a list, or from a table of weights
    rules:  answer by patterns, without a model
    say:    use a template as the reply
    for:    take steps once for each of several values
    repeat: take steps again `until` something holds
    end:    end the session, for a reason

Any step may have `when`. What is in the role's state lasts; other variables last for one turn. The
variable `reply` is what is said in the end.

Knows nothing of models, of the other side, or of how conversations go.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from proctor.answer_parser import field_of, instructions_for, read_answer
from proctor.dialogue.participant import MARK, ConversationState, Participant, RolePrompt
from proctor.dialogue.templating import evaluate, value_of
from proctor.errors import AgentError

# Answer by rules: keywords with a rank, patterns, replies with the speaker's words turned round.


_HOLE = re.compile(r"\{(\d+)\}")


LONGEST_HEARD = 2_000


def answer(rules: Mapping[str, Any], heard: str, memory: list[str], chance: random.Random) -> str:
    """The reply to what was heard; `memory` is added to and taken from."""
    heard = heard[:LONGEST_HEARD]
    swaps = rules.get("swap") or {}
    for rule in sorted(rules["rules"], key=lambda rule: -rule.get("rank", 0)):
        found = pattern(rule["match"]).search(heard)
        if found is None:
            continue
        parts = [turned_round(part or "", swaps) for part in found.groups()]
        if rule.get("remember"):
            memory.append(_filled(_drawn(rule["remember"], chance), parts))
        return _filled(_drawn(rule["reply"], chance), parts)
    if memory:
        return memory.pop(0)
    return _drawn(rules["otherwise"], chance)


@lru_cache(maxsize=1024)
def pattern(text: str) -> re.Pattern[str]:
    """A rule's pattern, case ignored."""
    return re.compile(text, re.IGNORECASE)


def turned_round(text: str, swaps: Mapping[str, str]) -> str:
    """The words of one person as another would say them."""
    words = re.findall(r"[\w'’]+|[^\w'’]+", text.strip().rstrip(".!?,;:"))
    return "".join(swaps.get(word.casefold().replace("’", "'"), word) for word in words)


def _filled(reply: str, parts: Sequence[str]) -> str:
    def part(hole: re.Match[str]) -> str:
        number = int(hole[1]) - 1
        return parts[number] if number < len(parts) else ""

    return re.sub(r"\s+([?.!])", r"\1", _HOLE.sub(part, reply)).strip()


def _drawn(replies: str | Sequence[str], chance: random.Random) -> str:
    return replies if isinstance(replies, str) else chance.choice(list(replies))


KINDS = ("ask", "set", "draw", "rules", "say", "for", "repeat", "end")


MOST_STEPS = 200
"""Steps of one turn: a role that takes more goes round in circles."""


TRIES = 2
"""How often a model is asked for the same fields."""


class BrokenRole(AgentError):
    """A role did not come up with anything that could be said."""

    def __init__(self, side: str, message: str, reason: str) -> None:
        super().__init__(message, reason=reason)
        self.side = side


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleReply:
    """What a role says."""

    text: str
    ends: str = ""
    """Why it ends the session with this; empty: it does not."""


async def speak(party: Participant, moment: ConversationState) -> RoleReply:
    """Take all the steps of one turn; what comes out is said."""
    if party.role.opening and not moment.history:
        return RoleReply(text=party.text(party.role.opening, party.values(moment)))
    chance = party.chance(moment.turn)
    for _ in range(TRIES):
        turn = _Turn(party, moment, chance)
        await turn.take(party.role.steps)
        reply = party.cleaned(str(turn.values.get("reply") or ""))
        if reply or turn.ends:
            if reply in party.role.end_words:
                return RoleReply(text="", ends="ended")
            return RoleReply(text=reply, ends=turn.ends)
    raise BrokenRole(party.side, f"the {party.side} ({party.role.name}) said nothing", "empty_reply")


class _Turn:
    """One role on its way to its next words."""

    def __init__(self, party: Participant, moment: ConversationState, chance: random.Random) -> None:
        self.party, self.moment, self.chance = party, moment, chance
        self.values = party.values(moment)
        self.ends = ""
        self._taken = 0

    async def take(self, steps: Sequence[Mapping[str, Any]]) -> None:
        for step in steps:
            if self.ends:
                return
            self._taken += 1
            if self._taken > MOST_STEPS:
                raise BrokenRole(
                    self.party.side,
                    f"the role {self.party.role.name} takes steps without end",
                    "endless_role",
                )
            if "when" in step and not self._worth(step["when"], "when"):
                continue
            await self._take(step)

    async def _take(self, step: Mapping[str, Any]) -> None:
        kind = next(kind for kind in KINDS if kind in step)
        match kind:
            case "ask":
                await self._ask(step)
            case "set":
                for name, written in step["set"].items():
                    self._put(name, self._worth(written, f"set {name}"))
            case "draw":
                self._put(step["draw"], self._drawn(step))
            case "rules":
                rules, memory = self.party.role.data[step["rules"]], self.party.state.get("memory", [])
                heard = self.moment.heard.partition(f"\n{MARK}")[0]
                self._put(step.get("into", "reply"), answer(rules, heard, memory, self.chance))
            case "say":
                self._put("reply", self.party.text(step["say"], self.values))
            case "for":
                for value in list(self._worth(step["in"], "in")):
                    self._put(step["for"], value)
                    await self.take(step["do"])
            case "repeat":
                for _ in range(step["repeat"]):
                    await self.take(step["do"])
                    if "until" in step and self._worth(step["until"], "until"):
                        break
            case _:
                self.ends = step["end"]

    async def _ask(self, step: Mapping[str, Any]) -> None:
        if "read" in step:
            await self._ask_for_fields(step)
        else:
            self._put(step.get("into", "reply"), await self.party.ask(self._question(step)))

    async def _ask_for_fields(self, step: Mapping[str, Any]) -> None:
        fields = {name: field_of(kind) for name, kind in step["read"].items()}
        question = self._question(step, instructions_for(fields))
        for _ in range(TRIES):
            reading = read_answer(await self.party.ask(question), fields)
            if not reading.missing:
                break
        left = {name: value for name, value in step.get("otherwise", {}).items() if name in reading.missing}
        lost = [name for name in reading.missing if name not in left]
        if lost:
            raise BrokenRole(
                self.party.side,
                f"the {self.party.side} ({self.party.role.name}) was asked for {', '.join(lost)} "
                "and its model gave no answer that could be read",
                "unreadable_answer",
            )
        if left:
            self.party.tell(f"{self.party.role.name}: {', '.join(left)} could not be read; went on without")
        for name, value in reading.values.items():
            self._put(name, value)
        for name, written in left.items():
            self._put(name, self._worth(written, f"otherwise {name}"))

    def _question(self, step: Mapping[str, Any], asked_for: str = "") -> RolePrompt:
        asked = step["ask"] if isinstance(step["ask"], Mapping) else {"prompt": step["ask"]}
        messages: list[Mapping[str, str]] = []
        if "system" in asked:
            messages.append({"role": "system", "content": self.party.text(asked["system"], self.values)})
        if history := asked.get("history"):
            messages += self.party.as_messages(self.moment, None if history is True else history)
        prompt = self.party.text(asked["prompt"], self.values) if "prompt" in asked else ""
        last = "\n\n".join(part for part in (prompt, asked_for) if part)
        if last:
            messages.append({"role": "user", "content": last})
        return RolePrompt(
            messages=messages,
            parameters=step.get("parameters", {}),
            is_inner=not history,
        )

    def _drawn(self, step: Mapping[str, Any]) -> Any:
        options = self._worth(step["from"], "from")
        chance = self.chance
        if not options:
            return ""
        if not isinstance(options, Mapping):
            return chance.choice(list(options))
        weights = [max(0.0, float(weight)) for weight in options.values()]
        if not sum(weights):
            return chance.choice(list(options))
        return chance.choices(list(options), weights)[0]

    def _put(self, name: str, value: Any) -> None:
        self.values[name] = value
        if name in self.party.state:
            self.party.state[name] = value

    def _worth(self, written: Any, where: str) -> Any:
        what = f"`{where}` of role {self.party.role.name}"
        if where in ("when", "until", "in", "from"):
            return evaluate(str(written), self.values, what) if isinstance(written, str) else written
        return value_of(written, self.values, what)
