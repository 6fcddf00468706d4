"""A person can be the client or the therapist, at the terminal or elsewhere."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from conversations import config, read

from proctor import run_batch
from proctor.store import batches
from proctor.testing import eventually_async


@pytest.mark.parametrize("side", ["client", "therapist"])
def test_a_person_at_the_terminal_plays_a_side(proctor, talking_desk: Path, side: str) -> None:
    sides = {"client": ("human", "CBT"), "therapist": ("patientPsi", "user")}[side]
    words = f"simulate --clients {sides[0]} --therapists {sides[1]} --num-runs 1 --max-turns 5"
    typed = "Good day.\n.\nWhat brings you here?\n.\nEND\n.\n"

    done = proctor(*words.split(), "--model", "scripted/talking", "--output-dir", "out", stdin=typed)

    assert done.returncode == 0, done.stderr
    session = read(next((talking_desk / "out").glob("*_run0.json")))
    mine = [message["content"] for message in session["messages"] if message["role"] == side]
    assert mine == ["Good day.", "What brings you here?"]
    assert session["end_reason"] == f"{side}_ended"
    assert session["stand_in"] is True
    assert f"you are {side}" in done.stderr
    assert "(1 of 5)" in done.stderr
    assert done.stderr.count("waiting for the next question") == 3
    others = [message["content"] for message in session["messages"] if message["role"] != side]
    assert others and all(text in done.stderr for text in others[:2])


def test_nobody_at_the_terminal_is_a_failure_of_that_side(proctor, talking_desk: Path) -> None:
    words = "simulate --clients human --therapists eliza --num-runs 1 --max-turns 5 --output-dir out"

    done = proctor(*words.split(), stdin="")

    session = read(next((talking_desk / "out").glob("*_run0.json")))
    assert done.returncode == 1
    assert (session["reason"], session["caused_by"]) == ("nobody_answered", "simulated_other")


async def test_a_person_elsewhere_answers_through_the_store_and_repeated_words_are_new_questions(
    proctor, talking_desk: Path
) -> None:
    (talking_desk / "same.yaml").write_text("rules: [{reply: I see.}]\n")
    (talking_desk / "brief.yaml").write_text("name: you\nsituation: You lost your keys.\n")
    entry = {"role": "human", "profiles_file": "brief.yaml"}
    running = asyncio.create_task(
        asyncio.to_thread(
            run_batch,
            config(clients=[entry], therapists=["CBT"], num_runs=1, max_turns=3, model_name="scripted/same",
                   output_dir="out", human="web", loop_turns=0),
        )
    )  # fmt: skip
    prompts = []
    with proctor.open_store() as store:
        for number in range(3):
            rows = await eventually_async(lambda: store.open_questions(""))
            prompts.append(rows[0]["prompt"])
            assert rows[0]["actor"] == "client"
            store.change(
                batches.answer, rows[0]["runId"], rows[0]["id"], f"Answer {number}.", datetime.now(UTC)
            )
            await eventually_async(lambda: running.done() or not store.open_questions(""))
    (session,) = await running

    said = [message["content"] for message in session["messages"] if message["role"] == "client"]
    assert said == ["Answer 0.", "Answer 1.", "Answer 2."]
    assert "You lost your keys." in prompts[0]
    assert "You lost your keys." not in prompts[1]
