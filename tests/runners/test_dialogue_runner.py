"""A dialogue as its runner executes it: two roles without models, a world, checks, and what is recorded."""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plain_services import GivenScores, plain_services

from proctor.dialogue.conversation import Checkpoint, ConversationCheckpoint, Side, parse_conversation
from proctor.dialogue.participant import Role
from proctor.errors import CostLimit, ModelError, NotFound, WorkspaceError
from proctor.evaluators.criteria import criterion_of
from proctor.item import Item
from proctor.model import Answer, Request
from proctor.model_client import ModelClient
from proctor.runner import Outcome
from proctor.runners import _judging
from proctor.runners import dialogue as runner
from proctor.runners._judging import below, dialogue_evidence_of
from proctor.score import Score
from proctor.session import Iteration, Message, Metric, ModelCall, Note, Usage

CLIENT = Role(
    name="visitor",
    plays=["client"],
    steps=[{"set": {"mood": "mood + 1", "calm": "mood > 1"}}, {"say": "a"}],
    templates={"a": "I feel {{ mood }}."},
    state={"mood": 0, "calm": False, "loose": 1},
    metrics=("mood", "calm"),
)
THERAPIST = Role(
    name="listener", plays=["therapist"], steps=[{"say": "q"}], templates={"q": "Tell me more, {{ turn }}."}
)


class Played:
    """Runs one dialogue and keeps what it recorded."""

    def __init__(
        self,
        folder: Path,
        client: Role = CLIENT,
        therapist: Role = THERAPIST,
        *,
        settings: Mapping[str, Any] | None = None,
        checkpoint: object = None,
        model: object = None,
        models: Mapping[str, str] | None = None,
        **details: Any,
    ) -> None:
        self.events, self.scores = list[Any](), list[Score]()
        self.resources = {role.name: json.dumps(role.document()) for role in (client, therapist)}
        self.resources["world"] = json.dumps({"lamp": "off", "door": {"open": False}})
        self.settings = settings or {}
        sides = {
            side: {"profile": {"name": side}, "options": {}, "model": (models or {}).get(side, ""),
                   "parameters": {}, "digest": role.name, "role": role.name}
            for side, role in (("client", client), ("therapist", therapist))
        }  # fmt: skip
        limits = {"maxTurns": 2, "reminderTurns": 0, "loopTurns": 0, "opens": "therapist"}
        self.item = Item(
            runner="dialogue",
            prompt="",
            model="m",
            details={**limits, "seed": 4, "combination": ["x"], **sides, **details},
            settings=self.settings,
        )
        self.services = plain_services(
            record=self.events.append,
            score=self.scores.append,
            models=model,
            home=folder,
            time_limit=self._limit,
            resource=self._resource,
            checkpoint=checkpoint,
            redact=lambda text: text.replace("secret", "***"),
            ask_person=self._person,
        )
        self.limits = list[tuple[object, str]]()

    def _limit(self, seconds: object, what: str) -> Any:
        self.limits.append((seconds, what))
        return nullcontext()

    async def _resource(self, digest: str) -> str:
        if digest not in self.resources:
            raise NotFound(digest)
        return self.resources[digest]

    async def _person(self, side: str, text: str) -> str:
        return f"{side} heard {text}, secret"

    async def run(self) -> Outcome:
        return await runner.DialogueRunner().run(self.item, self.services)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def metrics(self) -> list[tuple[str, object, object]]:
        return [(each.name, each.value, each.step) for each in self.of(Metric)]

    def metric(self, name: str) -> object:
        return next((each.value for each in self.of(Metric) if each.name == name), None)

    def notes(self) -> list[str]:
        return [each.text for each in self.of(Note)]


async def test_messages_state_and_the_end_of_a_dialogue_are_recorded(tmp_path: Path) -> None:
    played = Played(tmp_path, settings={"timeoutSec": 77})
    outcome = await played.run()

    assert outcome.status == "success" and played.limits == [(77, "the dialogue")]
    spoken = [(each.role, each.name, each.content) for each in played.of(Message) if each.name != "moderator"]
    assert spoken == [
        ("assistant", "therapist", "Tell me more, 1."),
        ("user", "client", "I feel 1."),
        ("assistant", "therapist", "Tell me more, 2."),
        ("user", "client", "I feel 2."),
    ]
    assert [each for each in played.metrics() if each[2]] == [
        ("client.mood", 1, 1),
        ("client.calm", 0.0, 1),
        ("client.mood", 2, 2),
        ("client.calm", 1.0, 2),
    ]
    assert played.metric("num_turns") == 2.0 and played.metric("end_reason") == "max_turns"
    assert played.metric("caused_by") is None
    assert played.metric("seed") == float(runner.seed_of(played.item, "s1"))
    stored = [parse_conversation(each.output) for each in played.of(Iteration)]
    assert [(each.turns, each.end_reason, each.world) for each in stored] == [(1, "", None), (2, "", None)]
    assert stored[1].sides["client"].state == {"mood": 2, "calm": True, "loose": 1}
    assert {each.model for each in played.of(Iteration)} == {"m"}


async def test_the_side_under_test_is_the_assistant(tmp_path: Path) -> None:
    played = Played(tmp_path, settings={"underTest": "client"})
    await played.run()
    roles = {each.name: each.role for each in played.of(Message)}
    assert roles["client"] == "assistant" and roles["therapist"] == "user" and roles["moderator"] == "system"


@pytest.mark.parametrize(
    ("own", "model", "weights"),
    [("Trained", "openai/my-TRAINED-7b", "own"), ("trained", "other", "other"), ("", "other", None)],
)
async def test_whether_a_role_used_its_own_weights_is_recorded(tmp_path, own, model, weights):
    played = Played(tmp_path, replace(CLIENT, own_models=own), models={"client": model})
    await played.run()
    assert played.metric("client.weights") == weights and played.metric("therapist.weights") is None
    kind = {"own": "its own weights", "other": "weights it was not trained on"}.get(weights or "")
    expected = [f"visitor was played by {model}: {kind}"] if weights else []
    assert [note for note in played.notes() if "played by" in note] == expected


async def test_a_fault_of_a_template_and_a_role_that_is_not_stored_are_faults_of_the_plan(tmp_path):
    with pytest.raises(WorkspaceError, match="lost"):
        await Played(tmp_path, replace(CLIENT, templates={"a": "{{ lost }}"})).run()
    played = Played(tmp_path)
    del played.resources["visitor"]
    with pytest.raises(WorkspaceError, match=r"the role visitor \(visitor\) is not stored with the run"):
        await played.run()


async def test_a_persons_answer_is_redacted(tmp_path: Path) -> None:
    person = Role(name="visitor", plays=["client"], steps=[{"person": "a"}], templates={"a": "Speak"})
    played = Played(tmp_path, person, maxTurns=1)
    await played.run()
    assert "client heard Speak, ***" in [each.content for each in played.of(Message)]


async def test_roles_know_their_own_profile_and_what_the_other_shares(tmp_path: Path) -> None:
    client = replace(CLIENT, shares={"goal": "profile.name"}, title="Guest")
    therapist = replace(
        THERAPIST,
        templates={"q": "{{ other.goal }} {{ profile.name }} {{ titles.client }} {{ titles.therapist }}"},
    )
    played = Played(tmp_path, client, therapist, maxTurns=1)
    await played.run()
    texts = [each.content for each in played.of(Message) if each.name == "therapist"]
    assert texts == ["client therapist Guest Therapist"]


async def test_a_state_that_cannot_be_stored_is_noted_once(tmp_path: Path) -> None:
    played = Played(tmp_path, replace(CLIENT, state={"mood": 0, "calm": False, "odd": "(1, 2)"}))
    await played.run()
    note = "the state of visitor cannot be stored: if interrupted, the dialogue starts over"
    assert [each for each in played.notes() if "stored" in each] == [note]
    assert [each.output for each in played.of(Iteration)] == ["turn 1", "turn 2"]


# --- Worlds and checks ---

SWITCH = {"name": "switch", "set": {"lamp": "'on'"}}
ACTING = replace(THERAPIST, tools=(SWITCH,), policy="Save light.")


class Judging:
    """A model that gives the same answer to every request."""

    def __init__(self, text: str, *calls: Any) -> None:
        self.text, self.requests = text, list[Request]()

    async def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        if self.text == "raise":
            raise ModelError("no judge")
        usage = Usage(input_tokens=10, output_tokens=2)
        return Answer(text=self.text, call=ModelCall(model="j", usage=usage, cost_usd=0.5))


async def test_the_checks_of_a_task_are_scores_and_their_failures_the_outcome(tmp_path: Path) -> None:
    checks = {"state": ["lamp == 'on'"], "says": ["tell me"]}
    played = Played(
        tmp_path, therapist=ACTING, settings={"checks": checks}, world="world", task={"goal": "light"}
    )
    outcome = await played.run()
    assert (outcome.status, outcome.reason) == ("fail", "checks_failed")
    assert outcome.error == "state: lamp == 'on' does not hold"
    assert [(each.evaluator, each.value, each.label, each.explanation) for each in played.scores] == [
        ("task.state", 0.0, "fail", "lamp == 'on' does not hold"),
        ("task.says", 1.0, "pass", ""),
        ("task", 0.0, "fail", "state: lamp == 'on' does not hold"),
    ]
    assert {len(each.evaluator_digest) for each in played.scores} == {16}
    assert played.metric("caused_by") == "role_under_test"
    (world,) = [each for each in played.of(Message) if each.name == "world"]
    assert (world.role, world.content) == ("system", "unchanged")
    stored = parse_conversation(played.of(Iteration)[-1].output)
    assert stored.world == {"state": {"lamp": "off", "door": {"open": False}}, "actions": []}


async def test_a_task_changes_the_initial_state_of_its_world(tmp_path: Path) -> None:
    task = {"state": {"door": {"open": True}, "lamp": "on"}}
    checks = {"state": ["door.open and lamp == 'on' and initial.door.open"]}
    played = Played(tmp_path, therapist=ACTING, settings={"checks": checks}, world="world", task=task)
    assert (await played.run()).status == "success"
    assert [each.label for each in played.scores] == ["pass", "pass"]


@pytest.mark.parametrize(
    ("answer", "cause", "note"),
    [
        ('{"reason": "left", "cause": "user"}', "simulated_other", "attributed to the user: left"),
        ('{"reason": "rude", "cause": "agent"}', "role_under_test", "attributed to the agent: rude"),
        ('{"reason": "stuck", "cause": "world"}', "world", "attributed to the world: stuck"),
        ("no idea", "role_under_test", "the judge named no cause"),
        ("raise", "role_under_test", "the judge named no cause"),
    ],
)
async def test_a_judge_names_the_cause_of_a_failed_task(tmp_path, answer, cause, note):
    model = Judging(answer)
    settings = {"checks": {"state": ["lamp == 'on'"]}, "attributionModel": "judge/x"}
    played = Played(
        tmp_path, therapist=ACTING, settings=settings, model=model, world="world", task={"goal": "LIGHT"}
    )
    await played.run()
    assert played.metric("caused_by") == cause
    assert any(note in each for each in played.notes())
    request, *again = model.requests
    assert len(again) == (answer == "no idea")
    text = str(request.messages[0]["content"])
    assert request.model == "judge/x" and request.parameters == {"temperature": 0.0}
    spoken = "Agent: Tell me more, 1.\nUser: I feel 1."
    for part in ("LIGHT", "Save light.", spoken, "(none)", "lamp == 'on'"):
        assert part in text
    if answer != "raise":
        calls = len(model.requests)
        usage = {"prompt_tokens": 10.0, "completion_tokens": 2.0, "total_tokens": 12.0, "total_cost": 0.5}
        usage = {name: figure * calls for name, figure in usage.items()}
        assert {name: played.metric(f"usage.evaluators.{name}") for name in usage} == usage


# --- Evaluators ---


def expectation(
    level: str = "session", target: str = "client", mark: float | None = 1.0, **expect: object
) -> Any:
    return {
        "expectation": {
            "name": "polite",
            "target": target,
            "level": level,
            "passes_at": mark,
            "expect": expect,
        }
    }


async def test_the_texts_of_one_side_are_checked_as_a_whole_and_turn_by_turn(tmp_path: Path) -> None:
    whole, turns = expectation(contains="I feel 2"), expectation("turn", contains="I feel 2")
    played = Played(tmp_path, settings={"evaluators": [whole, turns]})
    outcome = await played.run()
    assert outcome.error == "polite of client.turn_0 is 0, below its pass mark 1"
    assert [(each.level, each.target, each.value, each.label) for each in played.scores] == [
        ("session", "", 1.0, "pass"),
        ("trace", "client.turn_0", 0.0, "fail"),
        ("trace", "client.turn_1", 1.0, "pass"),
    ]
    assert len({each.evaluator_digest for each in played.scores}) == 2
    assert played.metric("caused_by") == "role_under_test"


@pytest.mark.parametrize(
    ("mark", "value", "target", "messages"),
    [
        (None, 0.0, "", []),
        (0.5, 0.5, "", []),
        (0.5, None, "", []),
        (0.5, 0.25, "", ["e is 0.25, below its pass mark 0.5"]),
        (1, 0, "t1", ["e of t1 is 0, below its pass mark 1"]),
    ],
)
def test_a_score_fails_below_its_mark(mark, value, target, messages):
    assert below(mark, [Score(evaluator="e", value=value, target=target)]) == messages


def test_a_dialogue_as_evidence_has_a_trace_for_each_reply_of_the_side_under_test(tmp_path: Path) -> None:
    from proctor.dialogue.participant import Utterance
    from proctor.dialogue.tools import Action, DialogueWorld

    world = DialogueWorld({})
    for side in ("client", "therapist"):
        world.actions.append(
            Action(side=side, tool=f"of {side}", arguments={"a": 1}, success=True, result="r")
        )
    said = [("therapist", "Hello"), ("client", "Hi"), ("client", "There"), ("therapist", "Bye")]
    history = [Utterance(side=side, text=text) for side, text in [*said, ("client", "So")]]
    services = Played(tmp_path).services
    evidence = dialogue_evidence_of(history, "therapist", {"client": {"n": 1}}, services, world)
    assert [(each.id, each.prompt, each.answer, len(each.messages)) for each in evidence.traces] == [
        ("therapist.turn_0", "", "Hello", 1),
        ("therapist.turn_1", "There", "Bye", 3),
    ]
    assert [each.name for each in evidence.tool_calls] == ["of therapist"]
    assert [each.role for each in evidence.messages] == ["assistant", "user", "user", "assistant", "user"]
    assert evidence.attributes == {"profiles": {"client": {"n": 1}}} and evidence.session_id == "s1"
    assert not dialogue_evidence_of(history, "therapist", {}, services).tool_calls


async def test_a_failed_evaluator_is_a_score_and_a_cost_limit_is_not(tmp_path: Path) -> None:
    played = Played(tmp_path)
    settings = {"name": "Builtin.Help", "judging": {}, "passes_at": 0.5}
    for error in (ModelError("no judge"), ValueError("broken")):
        services = replace(played.services, evaluator=lambda name, judging, e=error: GivenScores(e))  # type: ignore[arg-type,return-value,misc]
        (score,) = await _judging.evaluate(settings, None, services)  # type: ignore[arg-type]
        assert score.evaluator == "Builtin.Help" and str(error) in score.error and score in played.scores
    limited = replace(played.services, evaluator=lambda name, judging: GivenScores(CostLimit("spent")))  # type: ignore[arg-type,return-value]
    with pytest.raises(CostLimit):
        await _judging.evaluate(settings, None, limited)  # type: ignore[arg-type]
    assert len(played.scores) == 2


# --- Checkpoints ---


def resumed(**changes: Any) -> Checkpoint:
    usage = ModelClient(None, lambda event: None).totals()  # type: ignore[arg-type]
    standing = ConversationCheckpoint(
        turns=1,
        seed=99,
        sides={"client": Side(state={"mood": 5}, usage=usage), "therapist": Side(state={}, usage=usage)},
        **changes.pop("standing", {}),
    )
    messages = [
        {"role": "system", "name": "moderator", "content": "begin"},
        {"role": "assistant", "name": "therapist", "content": "Earlier question"},
        {"role": "user", "name": "client", "content": "Earlier answer"},
    ]
    metrics = [{"name": "client.mood", "value": 5, "step": 1}]
    return Checkpoint(conversation=standing, messages=messages, metrics=metrics, **changes)


async def test_a_finished_dialogue_is_only_judged_again(tmp_path: Path) -> None:
    criterion = {"name": "warm", "instructions": "?", "passes_at": 3}
    digest = criterion_of(criterion).digest
    valid = Score(evaluator="warm", evaluator_digest=digest, value=2.0)
    task = Score(evaluator="task", value=0.0, label="fail", explanation="lamp is off")
    part = Score(evaluator="task.state", value=0.0, label="fail", explanation="of the part")
    broken = Score(evaluator="Builtin.Help", error="no judge")
    kept = Score(evaluator="Builtin.Kind", evaluator_digest="d", value=0.9)
    finished = resumed(
        standing={"end_reason": "max_turns", "ended_by": "moderator"},
        is_finished=True,
        scores=[valid, task, part, broken, kept],
    )
    after = replace(CLIENT, after=[{"set": {"mood": "100"}}])
    kind = {"name": "Builtin.Kind", "judging": {}, "passes_at": 0.5}
    settings = {"evaluators": [{"criterion": criterion, "model": "j"}, {"evaluator": kind}]}
    played = Played(tmp_path, after, checkpoint=finished, settings=settings)
    outcome = await played.run()
    assert played.notes() == ["judged again"]
    assert outcome.error == "lamp is off; warm is 2, below its pass mark 3"
    assert played.scores == [task, part, valid, kept]
    assert ("client.mood", 100, 2) not in played.metrics()
    assert played.metric("end_reason") == "max_turns"


def test_a_seed_is_of_the_combination_and_the_repeat_or_of_the_attempt() -> None:
    item = Item(prompt="", details={"seed": 1, "combination": ["a"]})
    seeds = [
        runner.seed_of(item, "s1"),
        runner.seed_of(replace(item, repeat=2), "s1"),
        runner.seed_of(replace(item, details={"seed": 2, "combination": ["a"]}), "s1"),
        runner.seed_of(replace(item, details={"seed": 1, "combination": ["b"]}), "s1"),
        runner.seed_of(Item(prompt=""), "s1"),
        runner.seed_of(Item(prompt=""), "s2"),
    ]
    assert len(set(seeds)) == 6 and all(0 <= seed < 2**31 for seed in seeds)
    assert runner.seed_of(item, "s9") == seeds[0] == 1839781324


async def test_both_sides_know_the_turn_and_how_many_are_left(tmp_path: Path) -> None:
    counting = {"q": "{{ turn }} of {{ turns_left }}"}
    client = replace(CLIENT, steps=[{"say": "q"}], templates=counting)
    played = Played(tmp_path, client, replace(THERAPIST, templates=counting), maxTurns=3)
    await played.run()
    texts = [each.content for each in played.of(Message) if each.name in ("client", "therapist")]
    assert texts == ["1 of 3", "1 of 3", "2 of 2", "2 of 2", "3 of 1", "3 of 1"]
