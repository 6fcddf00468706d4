"""Private talks and coalitions, held before a turn is decided.

Each actor in turn may open a talk; whoever has opened one may open another, as often as the scenario
lets it. A coalition comes about when all who are asked accept; then each member says one thing.

Knows nothing of decisions or of the world.
"""

from proctor.scenario.context import TurnState
from proctor.scenario.definition import Actor
from proctor.scenario.prompts import HUMAN, ScenarioModels, is_yes, listed, sections, unlabelled
from proctor.scenario.state import PrivateTalk

_OPENING = ("INITIATE_BILATERAL", "TARGET_ACTOR", "PROPOSED_MESSAGE", "REASONING")


_REPLY = ("RESPONSE", "INTERNAL_NOTES")


NO_ANSWER = "(no answer)"


_PROPOSAL = ("PROPOSE_COALITION", "COALITION_MEMBERS", "COALITION_PURPOSE", "REASONING")


def model_of(actor: Actor) -> str:
    """Who is asked on behalf of an actor."""
    return HUMAN + actor.short_name if actor.control == "human" else actor.llm_model


async def hold_talks(moment: TurnState, voices: ScenarioModels) -> None:
    """Let everyone talk in private; what was said is in `moment.talks`."""
    scenario = moment.scenario
    if scenario.enable_bilateral_communication and len(scenario.actors) > 1:
        for actor in scenario.actors.values():
            for number in range(scenario.max_communications_per_turn):
                if not await _opened(moment, voices, actor, number):
                    break
    # With two actors a coalition would be a talk by another name.
    if scenario.enable_coalition_formation and len(scenario.actors) > 2:
        for actor in scenario.actors.values():
            await _propose(moment, voices, actor)


async def _opened(moment: TurnState, voices: ScenarioModels, actor: Actor, number: int) -> bool:
    others = _others(moment, actor)
    said = await voices.ask(
        actor.short_name,
        "private talk",
        model=model_of(actor),
        system=moment.system(actor),
        prompt=moment.prompt("bilateral", actor, others=others),
        turn=moment.turn,
        about=str(number),
    )
    asked = sections(said, _OPENING)
    target = _find(others, asked.get("TARGET_ACTOR", ""))
    message = asked.get("PROPOSED_MESSAGE", "")
    if not is_yes(asked.get("INITIATE_BILATERAL", "")) or target is None or not message:
        return False
    answer = await voices.ask(
        target.short_name,
        "answer in a private talk",
        model=model_of(target),
        system=moment.system(target),
        prompt=moment.prompt("bilateral_reply", target, sender=actor, message=message),
        turn=moment.turn,
        about=f"{actor.short_name} {number}",
    )
    replied = sections(answer, _REPLY)
    response = replied.get("RESPONSE") or unlabelled(answer, _REPLY) or NO_ANSWER
    notes = {
        actor.short_name: asked.get("REASONING", ""),
        target.short_name: replied.get("INTERNAL_NOTES", ""),
    }
    moment.talks.append(
        PrivateTalk(
            kind="bilateral",
            participants=(actor.short_name, target.short_name),
            messages=((actor.short_name, message), (target.short_name, response)),
            notes={who: note for who, note in notes.items() if note},
        )
    )
    return True


async def _propose(moment: TurnState, voices: ScenarioModels, actor: Actor) -> None:
    taken = {who for talk in moment.talks if talk.outcome == "formed" for who in talk.participants}
    others = [other for other in _others(moment, actor) if other.short_name not in taken]
    if actor.short_name in taken or len(others) < 2:
        return
    said = await voices.ask(
        actor.short_name,
        "coalition",
        model=model_of(actor),
        system=moment.system(actor),
        prompt=moment.prompt("coalition", actor, others=others),
        turn=moment.turn,
    )
    asked = sections(said, _PROPOSAL)
    named = [_find(others, name) for name in listed(asked.get("COALITION_MEMBERS", ""))]
    invited = list({other.short_name: other for other in named if other is not None}.values())
    if not is_yes(asked.get("PROPOSE_COALITION", "")) or not invited:
        return
    await _form(moment, voices, actor, invited, asked.get("COALITION_PURPOSE", ""))


async def _form(
    moment: TurnState, voices: ScenarioModels, actor: Actor, invited: list[Actor], purpose: str
) -> None:
    members = [actor, *invited]
    names = ", ".join(member.name for member in members)
    agreed = True
    for member in invited:
        answer = await voices.ask(
            member.short_name,
            "answer to a coalition",
            model=model_of(member),
            system=moment.system(member),
            prompt=moment.prompt(
                "coalition_answer", member, sender=actor, members=names, purpose=purpose or "not said"
            ),
            turn=moment.turn,
            about=actor.short_name,
        )
        agreed = is_yes(sections(answer, ("DECISION", "REASONING")).get("DECISION", "")) and agreed
    messages: list[tuple[str, str]] = []
    for member in members if agreed else ():
        said = await voices.ask(
            member.short_name,
            "word to a coalition",
            model=model_of(member),
            system=moment.system(member),
            prompt=moment.prompt(
                "coalition_message",
                member,
                members=names,
                purpose=purpose or "not said",
                messages=[(moment.scenario.actors[who].name, text) for who, text in messages],
            ),
            turn=moment.turn,
            about=actor.short_name,
        )
        messages.append((member.short_name, said.strip()))
    moment.talks.append(
        PrivateTalk(
            kind="coalition",
            participants=tuple(member.short_name for member in members),
            messages=tuple(messages),
            purpose=purpose,
            outcome="formed" if agreed else "rejected",
        )
    )


def _others(moment: TurnState, actor: Actor) -> list[Actor]:
    return [other for other in moment.scenario.actors.values() if other is not actor]


def _find(actors: list[Actor], written: str) -> Actor | None:
    """Whom a model means, by short name or name, with whatever marks it put around it."""
    name = written.strip().strip("*_`\"'.[]() ").lower()
    for actor in actors:
        if name in (actor.short_name.lower(), actor.name.lower()):
            return actor
    held = [a for a in actors if a.short_name.lower() in name.split() or a.name.lower() in name]
    return held[0] if len(held) == 1 else None
