"""A step of a session that holds no turn of ours is passed over, whatever is wrong with it."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from proctor.dialogue.conversation import ConversationCheckpoint, Side
from proctor.item import Item
from proctor.jobs.dialogue.files import count_interrupted, read_checkpoint
from proctor.jobs.scenario.estimate import earlier_runs
from proctor.jobs.scenario.folder import read_checkpoint as scenario_checkpoint
from proctor.jobs.scenario.folder import run_from_store
from proctor.scenario.state import ScenarioCall, ScenarioTurn, turn_as_plain
from proctor.session import Iteration
from proctor.store import Recorder, Store, timestamp

NOON = datetime(2026, 1, 10, 12, 0, tzinfo=UTC)
CALL = ScenarioCall(who="port", purpose="decision", model="a", turn=1, input_tokens=100, output_tokens=20)

DAMAGED = ["{broken", "{}", "[1]", "null"]


def write_session(store: Store, item: Item, outputs: Sequence[str], *, status: str) -> dict[str, object]:
    """A batch of one item with one session, whose steps hold these outputs; the row of the item."""
    batch = {"runId": "run", "job": item.runner, "status": "running", "createdAt": timestamp(NOON)}
    store.create_batch(batch, [item])
    writer = store.writer()
    head = {"runId": "run", "itemId": item.id, "attempt": 1, "job": item.runner, "agent": "", "model": ""}
    row = {**head, "isMock": 0, "status": "running", "source": "batch", "startedAt": timestamp(NOON)}
    recorder = Recorder(writer, "session", row, lambda: NOON)
    for output in outputs:
        recorder.record(Iteration(output=output))
    ended = ("success", "completed") if status == "success" else ("error", "interrupted")
    recorder.end(*ended, "", work_seconds=0.0, waiting_seconds=0.0)
    change = {"status": status, "sessionId": "session", "finishedAt": timestamp(NOON)}
    writer.change("batch_items", ("run", item.id), change)
    writer.close()
    (written,) = store.read.items("run", limit=10)
    return written


def turn(number: int) -> str:
    """A turn of a scenario as it is written behind a step."""
    played = ScenarioTurn(number=number, decisions={}, world_state="calm", calls=(CALL,))
    return json.dumps(turn_as_plain(played))


def scenario_item() -> Item:
    details, settings = {"turns": 2, "seed": 7}, {"label": "var-001-run-001"}
    return Item(runner="scenario", prompt="harbor", details=details, settings=settings)


def test_a_run_has_the_turns_that_can_be_read(store: Store) -> None:
    row = write_session(store, scenario_item(), [*DAMAGED, turn(1), *DAMAGED, turn(2)], status="queued")

    assert [played.number for played in run_from_store(store.read, row).turns] == [1, 2]


def test_a_prediction_rests_on_the_turns_that_can_be_read(store: Store) -> None:
    write_session(store, scenario_item(), [*DAMAGED, turn(1), turn(2), *DAMAGED], status="success")

    ((part,),) = earlier_runs(store.read, "harbor")

    assert (part.who, part.calls, part.input_tokens) == ("port", 1.0, 100)


def test_a_dialogue_goes_on_behind_the_last_turn_that_can_be_read(store: Store) -> None:
    standing = ConversationCheckpoint(
        turns=1, seed=7, sides={"client": Side(state={}, usage={})}, end_reason="", ended_by=""
    )
    item = Item(runner="dialogue", prompt="visit", settings={"file": "visit.json"})
    write_session(store, item, [standing.to_json(), *DAMAGED], status="queued")

    assert count_interrupted(store.read, "run") == 1
    checkpoint = read_checkpoint(store.read, "run", item.id)
    assert checkpoint and checkpoint.conversation.turns == 1


def test_a_scenario_continues_before_the_first_turn_that_cannot_be_read(store: Store) -> None:
    item = scenario_item()
    write_session(store, item, [turn(1), "{broken", turn(3)], status="queued")

    checkpoint = scenario_checkpoint(store.read, "run", item.id)

    assert [one.number for one in checkpoint.turns] == [1]
