"""Private talks and coalitions, before the decisions of a turn.

Each actor may open talks, up to the scenario's limit. A coalition forms when all invited actors accept; then
each member sends one message.
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
    """The model, or person, that plays an actor."""
    return HUMAN + actor.short_name if actor.control == "human" else actor.llm_model


async def hold_talks(state: TurnState, models: ScenarioModels) -> None:
    """Run all private talks and coalitions of a turn; they are added to `state.talks`."""
    scenario = state.scenario
    if scenario.enable_bilateral_communication and len(scenario.actors) > 1:
        for actor in scenario.actors.values():
            for number in range(scenario.max_communications_per_turn):
                if not await _open_talk(state, models, actor, number):
                    break
    # With two actors, a coalition is the same as a private talk.
    if scenario.enable_coalition_formation and len(scenario.actors) > 2:
        for actor in scenario.actors.values():
            await _propose(state, models, actor)


async def _open_talk(state: TurnState, models: ScenarioModels, actor: Actor, number: int) -> bool:
    others = _others(state, actor)
    opening = await models.ask(
        actor.short_name,
        "private talk",
        model=model_of(actor),
        system=state.system(actor),
        prompt=state.prompt("bilateral", actor, others=others),
        turn=state.turn,
        about=str(number),
    )
    fields = sections(opening, _OPENING)
    target = _find(others, fields.get("TARGET_ACTOR", ""))
    message = fields.get("PROPOSED_MESSAGE", "")
    if not is_yes(fields.get("INITIATE_BILATERAL", "")) or target is None or not message:
        return False
    answer = await models.ask(
        target.short_name,
        "answer in a private talk",
        model=model_of(target),
        system=state.system(target),
        prompt=state.prompt("bilateral_reply", target, sender=actor, message=message),
        turn=state.turn,
        about=f"{actor.short_name} {number}",
    )
    reply = sections(answer, _REPLY)
    response = reply.get("RESPONSE") or unlabelled(answer, _REPLY) or NO_ANSWER
    notes = {
        actor.short_name: fields.get("REASONING", ""),
        target.short_name: reply.get("INTERNAL_NOTES", ""),
    }
    state.talks.append(
        PrivateTalk(
            kind="bilateral",
            participants=(actor.short_name, target.short_name),
            messages=((actor.short_name, message), (target.short_name, response)),
            notes={who: note for who, note in notes.items() if note},
        )
    )
    return True


async def _propose(state: TurnState, models: ScenarioModels, actor: Actor) -> None:
    members = {who for talk in state.talks if talk.outcome == "formed" for who in talk.participants}
    others = [other for other in _others(state, actor) if other.short_name not in members]
    if actor.short_name in members or len(others) < 2:
        return
    answer = await models.ask(
        actor.short_name,
        "coalition",
        model=model_of(actor),
        system=state.system(actor),
        prompt=state.prompt("coalition", actor, others=others),
        turn=state.turn,
    )
    proposal = sections(answer, _PROPOSAL)
    named = [_find(others, name) for name in listed(proposal.get("COALITION_MEMBERS", ""))]
    invited = list({other.short_name: other for other in named if other is not None}.values())
    if not is_yes(proposal.get("PROPOSE_COALITION", "")) or not invited:
        return
    await _form(state, models, actor, invited, proposal.get("COALITION_PURPOSE", ""))


async def _form(
    state: TurnState, models: ScenarioModels, actor: Actor, invited: list[Actor], purpose: str
) -> None:
    members = [actor, *invited]
    names = ", ".join(member.name for member in members)
    agreed = True
    for member in invited:
        answer = await models.ask(
            member.short_name,
            "answer to a coalition",
            model=model_of(member),
            system=state.system(member),
            prompt=state.prompt(
                "coalition_answer", member, sender=actor, members=names, purpose=purpose or "not said"
            ),
            turn=state.turn,
            about=actor.short_name,
        )
        agreed = is_yes(sections(answer, ("DECISION", "REASONING")).get("DECISION", "")) and agreed
    messages: list[tuple[str, str]] = []
    for member in members if agreed else ():
        message = await models.ask(
            member.short_name,
            "word to a coalition",
            model=model_of(member),
            system=state.system(member),
            prompt=state.prompt(
                "coalition_message",
                member,
                members=names,
                purpose=purpose or "not said",
                messages=[(state.scenario.actors[who].name, text) for who, text in messages],
            ),
            turn=state.turn,
            about=actor.short_name,
        )
        messages.append((member.short_name, message.strip()))
    state.talks.append(
        PrivateTalk(
            kind="coalition",
            participants=tuple(member.short_name for member in members),
            messages=tuple(messages),
            purpose=purpose,
            outcome="formed" if agreed else "rejected",
        )
    )


def _others(state: TurnState, actor: Actor) -> list[Actor]:
    return [other for other in state.scenario.actors.values() if other is not actor]


def _find(actors: list[Actor], written: str) -> Actor | None:
    """The actor that a model names, by short name or name, with any markup around it."""
    name = written.strip().strip("*_`\"'.[]() ").lower()
    for actor in actors:
        if name in (actor.short_name.lower(), actor.name.lower()):
            return actor
    matches = [a for a in actors if a.short_name.lower() in name.split() or a.name.lower() in name]
    return matches[0] if len(matches) == 1 else None
