"""A changed plan extends its batch: what is the same keeps its results, what is new is told."""

import pytest
from stand_ins import doing, forever

BEFORE = """
matrix:
  - {prompt: [hello, goodbye], model: scripted/echo, retries: 1}
"""


async def extend(workshop, text):
    """Take the batch over, bring it up to the plan, and carry it out."""
    owner = workshop.take_over()
    told = workshop.extend(text)
    await workshop.executor(owner).run()
    return told


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        (("x", "x"), {}),
        (("[hello, goodbye]", "[goodbye, hello]"), {}),
        (("scripted/echo", "[scripted/echo, scripted/ok]"), {"model": 2}),
        (("retries: 1", "retries: 1, runs: 3"), {"runs": 4}),
        (("hello", "hullo"), {"prompt": 1}),
        (("retries: 1", "retries: 1, system: Be brief."), {"system": 2}),
        (("retries: 1", "retries: 1, expect: {contains: o}"), {"expect": 2}),
        (("retries: 1", "retries: 1, seed: 4"), {"seed": 2}),
    ],
)
async def test_only_what_is_new_runs_and_the_field_that_made_it_new_is_named(workshop, change, reasons):
    await workshop.run(BEFORE)

    told = await extend(workshop, BEFORE.replace(*change) + "# later\n")

    assert (told.added, dict(told.reasons)) == (sum(reasons.values()), reasons)
    assert len(workshop.rows("sessions")) == 2 + told.added
    assert {item["status"] for item in workshop.items()} == {"success"}


async def test_entries_that_are_gone_keep_their_results_or_leave_the_queue(workshop):
    owner = workshop.launch("concurrency: 1\n" + BEFORE.replace("[hello, goodbye]", "[one, two, three]"))

    async def first_only(item, services):
        if item.prompt != "one":
            await forever(item, services)

    executor = workshop.executor(owner, watch=lambda end: executor.interrupt(), find_runner=doing(first_only))
    await executor.run()
    states = {item["prompt"]: item["status"] for item in workshop.items()}
    assert states == {"one": "success", "two": "queued", "three": "queued"}

    told = await extend(workshop, BEFORE.replace("[hello, goodbye]", "four"))

    assert (told.added, told.dropped, told.retained) == (1, 2, 1)
    left = {item["prompt"]: (item["status"], item["reason"]) for item in workshop.items()}
    assert left["one"] == left["four"] == ("success", "completed")
    assert "three" not in left
    assert all(state == ("error", "removed") for prompt, state in left.items() if prompt == "two")
    assert workshop.batch()["status"] == "completed"


async def test_settings_that_changed_hold_for_what_is_not_finished(workshop):
    owner = workshop.launch(BEFORE)
    executor = workshop.executor(owner)
    executor.interrupt()
    await executor.run()

    await extend(workshop, "concurrency: 9\nbudget: 5\n" + BEFORE.replace("retries: 1", "retries: 7"))

    assert all('"retries":7' in item["settings"] for item in workshop.items())
    assert (workshop.batch()["concurrency"], workshop.batch()["budgetUsd"]) == (9, 5.0)


async def test_what_is_finished_keeps_the_settings_it_was_carried_out_with(workshop):
    await workshop.run(BEFORE)

    await extend(workshop, BEFORE.replace("retries: 1", "retries: 7"))

    assert all('"retries":1' in item["settings"] for item in workshop.items())
