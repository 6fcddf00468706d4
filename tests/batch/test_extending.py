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


def found(workshop):
    return [(item["prompt"], item["model"], item["repeat"], item["status"]) for item in workshop.items()]


async def test_the_same_plan_has_nothing_to_add_and_repeats_nothing(workshop):
    await workshop.run(BEFORE)

    told = await extend(workshop, BEFORE)

    assert (told.added, told.dropped, told.retained, dict(told.reasons)) == (0, 0, 0, {})
    assert len(workshop.rows("sessions")) == 2


async def test_another_model_adds_items_that_are_new_because_of_the_model(workshop):
    await workshop.run(BEFORE)
    before = {row["id"] for row in workshop.rows("sessions")}

    told = await extend(workshop, BEFORE.replace("scripted/echo", "[scripted/echo, scripted/ok]"))

    assert (told.added, dict(told.reasons)) == (2, {"model": 2})
    assert found(workshop) == [
        ("hello", "scripted/echo", 1, "success"),
        ("goodbye", "scripted/echo", 1, "success"),
        ("hello", "scripted/ok", 1, "success"),
        ("goodbye", "scripted/ok", 1, "success"),
    ]
    assert before < {row["id"] for row in workshop.rows("sessions")}
    assert len(workshop.rows("sessions")) == 4


async def test_more_runs_add_repeats(workshop):
    await workshop.run(BEFORE)

    told = await extend(workshop, BEFORE.replace("retries: 1", "retries: 1, runs: 3"))

    assert (told.added, dict(told.reasons)) == (4, {"runs": 4})
    assert sorted(item["repeat"] for item in workshop.items()) == [1, 1, 2, 2, 3, 3]
    assert len(workshop.rows("sessions")) == 6


async def test_the_order_and_the_comments_of_a_plan_change_no_item(workshop):
    await workshop.run(BEFORE)

    told = await extend(workshop, BEFORE.replace("[hello, goodbye]", "[goodbye, hello]") + "# later\n")

    assert told.added == told.dropped == told.retained == 0


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


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (("hello", "hullo"), "prompt"),
        (("retries: 1", "retries: 1, system: Be brief."), "system"),
        (("retries: 1", "retries: 1, expect: {contains: l}"), "expect"),
        (("retries: 1", "retries: 1, seed: 4"), "seed"),
    ],
)
async def test_the_field_that_made_an_item_new_is_named(workshop, change, field):
    await workshop.run(BEFORE)

    told = await extend(workshop, BEFORE.replace(*change))

    assert set(told.reasons) == {field}
