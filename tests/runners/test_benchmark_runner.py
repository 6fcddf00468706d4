"""One task given to one model: a fresh copy, every check by itself, and what they come to."""

import asyncio
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proctor.runners import benchmark
from proctor.tasks.markdown import read_task
from proctor.tasks.task import Task, TaskCheck, TaskStep, texts_of
from proctor.workspace.test_reports import REWARD_VARIABLE
from scripted_benchmarks import run_scripted
from waiting import TIME_LIMIT_SECONDS

HEAD = "# Task: Fix the sum\n\n## Success Criteria\n- [ ] The sum is right\n- [ ] The tests pass\n"
FIX = [{"edit": {"path": "sum.py", "find": "1 - 1", "replace": "1 + 1"}}, {"say": "It is 2 now."}]


class Bench:
    """Carries out a task with scripted agents, in this process."""

    def __init__(self, workshop: Any, folder: Path) -> None:
        self.workshop, self.folder, self.count = workshop, folder, 0
        (folder / "start").mkdir()
        (folder / "start/sum.py").write_text("total = 1 - 1\n")

    def task(self, front: str, body: str = HEAD) -> Task:
        file = self.folder / "sum.md"
        file.write_text(f"---\n{front}\n---\n{body}")
        return read_task(file)

    async def run(self, task: Task, steps: list[dict[str, Any]], *, models: int = 1) -> dict[str, Any]:
        """The one session's rows, whatever it came to; the items' with several models."""
        self.count += 1
        run_id = f"run{self.count}"
        await run_scripted(self.workshop, task, steps, run_id=run_id, models=models)
        items = self.workshop.items(run_id)
        read = self.workshop.store.read
        session = read.session(items[0]["sessionId"])
        return {
            "items": items,
            "outcome": (items[0]["status"], items[0]["reason"]),
            "error": items[0]["error"],
            "session": session,
            "scores": {row["evaluator"]: row for row in read.of_session("scores", session["id"])},
            "steps": read.of_session("iterations", session["id"]),
        }


@pytest.fixture
def bench(workshop: Any, tmp_path: Path) -> Bench:
    return Bench(workshop, tmp_path)


CHECKED = "start: start\ncheck:\n  The sum is right: grep -q '1 + 1' sum.py\n  The tests pass: python3 sum.py"


async def test_one_check_that_does_not_pass_is_told_by_its_criterion_unless_the_agent_gave_up(bench):
    seen = await bench.run(bench.task(CHECKED), [{"say": "Done!"}])
    gave_up = await bench.run(bench.task(CHECKED), [{"fail": "too hard"}])

    assert seen["outcome"] == ("fail", "checks_failed")
    assert "The sum is right: exited with 1" in seen["error"]
    assert {name: (row["label"], row["explanation"]) for name, row in seen["scores"].items()} == {
        "check: The sum is right": ("fail", "The sum is right: exited with 1"),
        "check: The tests pass": ("pass", "exited with 0"),
    }
    assert seen["steps"][0]["testResult"] == "fail"
    assert (gave_up["outcome"], gave_up["scores"]) == (("fail", "agent_failed"), {})


async def test_each_criterion_that_passes_has_its_score_for_every_model_in_a_tree_of_its_own(bench):
    seen = await bench.run(bench.task(CHECKED), FIX, models=3)

    assert seen["outcome"] == ("success", "completed")
    assert {name: row["value"] for name, row in seen["scores"].items()} == {
        "check: The sum is right": 1,
        "check: The tests pass": 1,
    }
    (step,) = seen["steps"]
    assert (step["changedFiles"], step["linesAdded"], step["linesRemoved"]) == (1, 1, 1)
    assert (step["testResult"], step["testExitCode"]) == ("pass", 0)
    assert "$ python3 sum.py" in step["testOutput"]

    sessions = bench.workshop.rows("sessions")
    assert [item["status"] for item in seen["items"]] == ["success"] * 3
    # Author, date and message are fixed as well: it is the same on every machine.
    assert {row["baseSha"] for row in sessions} == {"86d1b872c29c2b180737cdcf7bc1a151aa298ece"}
    assert len({row["worktree"] for row in sessions}) == 3
    assert len({row["repo"] for row in sessions}) == 1
    assert (bench.folder / "start/sum.py").read_text() == "total = 1 - 1\n"
    assert not (bench.folder / "start/.git").exists()


async def test_check_files_lie_over_whatever_the_agent_made_of_them(bench: Bench) -> None:
    (bench.folder / "checks").mkdir()
    (bench.folder / "checks/test.sh").write_text("#!/bin/sh\ngrep -q '1 + 1' sum.py\n")
    (bench.folder / "checks/test.sh").chmod(0o755)
    task = bench.task("start: start\ncheck: ./test.sh\ncheck_files: checks")

    cheating = [{"write": {"path": "test.sh", "content": "#!/bin/sh\nexit 0\n"}}]

    cheated = await bench.run(task, cheating)
    assert cheated["outcome"] == ("fail", "checks_failed")
    through_a_link = [{"run": "ln -s /dev/null test.sh"}]
    assert (await bench.run(task, through_a_link))["outcome"] == ("fail", "checks_failed")
    with (bench.folder / "checks/test.sh").open("a") as check:
        check.write("# changed\n")
    fixed = await bench.run(bench.task("start: start\ncheck: ./test.sh\ncheck_files: checks"), FIX)
    assert fixed["outcome"] == ("success", "completed")
    digests = {run["scores"]["check: ./test.sh"]["evaluatorDigest"] for run in (cheated, fixed)}
    assert len(digests) == 2


async def test_an_answer_is_checked_for_what_is_expected_of_it(bench: Bench) -> None:
    task = bench.task("start: start\nexpect: {contains: '42'}")

    right = await bench.run(task, [{"say": "It is 42."}])
    wrong = await bench.run(task, [{"say": "It is 41."}])

    assert right["outcome"] == ("success", "completed")
    assert wrong["outcome"] == ("fail", "checks_failed")
    assert wrong["scores"]["expect.contains"]["value"] == 0


async def test_a_task_that_nothing_checks_passes_when_anything_changed_and_says_unchecked(bench):
    task = bench.task("start: start", "# Task: Do something\n")

    changed = await bench.run(task, FIX)
    unchanged = await bench.run(task, [])
    failed = await bench.run(task, [*FIX, {"fail": "too hard"}])

    assert changed["outcome"] == ("success", "unchecked")
    assert (*unchanged["outcome"], unchanged["error"]) == (
        "fail",
        "no_changes",
        "the agent changed nothing, and nothing checks this task",
    )
    assert (*failed["outcome"], failed["error"]) == ("fail", "agent_failed", "too hard")
    labels = [{name: row["label"] for name, row in each["scores"].items()} for each in (changed, unchanged)]
    assert labels == [{"unchecked": "changed"}, {"unchecked": "unchanged"}]


async def test_litter_is_not_counted_as_work_and_a_permission_nobody_gave_is_an_intervention(bench):
    littering = [{"ask": "May I?"}, *FIX, {"run": "mkdir -p __pycache__ && touch __pycache__/sum.pyc"}]

    seen = await bench.run(bench.task(CHECKED), littering)

    assert seen["steps"][0]["changedFiles"] == 1
    assert seen["session"]["interventions"] == 1
    assert "May I?" in json.loads(seen["session"]["notes"])[0]


async def test_a_check_that_does_not_end_is_ended_and_is_a_timeout(bench: Bench) -> None:
    checks = "{The sum is right: sleep 60, The tests pass: sleep 61}"
    task = bench.task(f"start: start\ncheck_timeout: 0.5\ncheck: {checks}")

    seen = await asyncio.wait_for(bench.run(task, FIX), TIME_LIMIT_SECONDS)

    assert seen["outcome"] == ("timeout", "timeout")
    late = "still running when its time was over"
    assert seen["error"] == f"The sum is right: {late}; The tests pass: {late}"
    assert seen["steps"][0]["testDurationMs"] >= 1000


async def test_starting_files_that_changed_after_planning_are_an_error_of_ours_unless_they_are_kept(bench):
    task = bench.task(CHECKED)
    (bench.folder / "start/sum.py").write_text("total = 7\n")

    changed = await bench.run(task, FIX)
    (bench.folder / "start/sum.py").write_text("total = 1 - 1\n")
    await bench.run(task, FIX)
    (bench.folder / "start/sum.py").unlink()

    assert changed["outcome"] == ("error", "setup_failed")
    assert "have changed since" in changed["error"]
    assert (await bench.run(task, FIX))["outcome"] == ("success", "completed")


HIDDEN = {"test_sum.sh": "grep -q '1 + 1' sum.py || { echo expected a plus; exit 1; }\n"}


async def test_the_second_try_sees_the_output_of_the_hidden_tests_but_not_the_tests(bench: Bench) -> None:
    task = replace(
        bench.task("start: start"),
        checks=(
            TaskCheck(criterion="", command="echo passed"),
            TaskCheck(criterion="", command="sh test_sum.sh"),
        ),
        check_files=texts_of(HIDDEN),
        retry_with_output=True,
    )
    fix = [{"run": "ls"}, *FIX]
    rules = [{"match": "passed\n", "steps": []}, {"match": "expected a plus", "steps": fix}]
    script: Any = {"rules": rules, "steps": [{"say": "Nothing."}]}

    ran = await bench.run(task, script)

    assert ran["outcome"] == ("success", "completed")
    assert [step["testResult"] for step in ran["steps"]] == ["fail", "pass"]
    listed = bench.workshop.store.read.of_session("tool_calls", ran["session"]["id"])
    assert "sum.py" in str(listed[0]) and "test_sum.sh" not in str(listed[0])


async def test_steps_run_one_after_the_other_in_the_same_folder_and_give_their_mean(bench: Bench) -> None:
    def check(text: str) -> tuple[TaskCheck, ...]:
        reward = f"grep -c '{text}' sum.py > \"$PROCTOR_VERIFIER_LOGS/reward.txt\""
        return (TaskCheck(criterion=text, command=reward, verdict="reward"),)

    task = replace(
        bench.task("start: start"),
        checks=check("1 + 1"),
        steps=(TaskStep(prompt="Now add a comment", checks=check("# comment")),),
    )
    comment = [{"append": {"path": "sum.py", "content": "# comment\n"}}]
    script: Any = {"rules": [{"match": "add a comment", "steps": comment}], "steps": FIX}

    ran = await bench.run(task, script)
    half = await bench.run(task, FIX)

    assert ran["outcome"] == ("success", "completed")
    assert ran["scores"]["reward"]["value"] == 1
    assert half["outcome"] == ("fail", "checks_failed")
    assert half["scores"]["reward"]["value"] == 0.5
    assert half["items"][0]["iterSha"] == half["steps"][0]["commitSha"] != ""


async def test_an_agent_sees_nothing_that_a_check_wrote_and_a_check_nothing_of_another(bench: Bench) -> None:
    """Not in HOME, TMPDIR or the folder of results; what the agent wrote to its own HOME stays."""
    write = "echo hidden > ~/seen; echo hidden > $TMPDIR/seen; echo hidden > $PROCTOR_VERIFIER/seen"
    look = "echo mine > ~/mine; cat ~/seen $TMPDIR/seen $PROCTOR_VERIFIER/seen ../logs/verifier/seen"
    write, look = (text.replace("PROCTOR_VERIFIER", REWARD_VARIABLE) for text in (write, look))
    checks = (
        TaskCheck(
            criterion="writes", command=f"{write}; echo 1 > ${REWARD_VARIABLE}/reward.txt", verdict="reward"
        ),
        TaskCheck(
            criterion="looks", command="test ! -e ~/seen && test ! -e $TMPDIR/seen && test ! -e ~/mine"
        ),
    )
    task = replace(
        bench.task("start: start"), checks=checks, steps=(TaskStep(prompt="Look around", checks=checks),)
    )
    look = f"({look}; cat ~/mine) > seen.txt 2>/dev/null || true"
    script: Any = {
        "rules": [{"match": "Look around", "steps": [{"run": look}]}],
        "steps": [*FIX, {"run": look}],
    }

    ran = await bench.run(task, script)

    assert ran["outcome"] == ("success", "completed"), ran["error"]
    branch = ran["session"]["branch"]
    shown = subprocess.run(
        ["git", "-C", ran["session"]["repo"], "show", f"{branch}:seen.txt"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "mine\n"


async def test_a_step_does_not_run_below_the_least_reward_of_the_one_before(bench: Bench) -> None:
    zero = TaskCheck(criterion="", command='echo 0 > "$PROCTOR_VERIFIER_LOGS/reward.txt"', verdict="reward")
    half = replace(zero, command=zero.command.replace("0", "0.5"))
    task = replace(
        bench.task("start: start"),
        checks=(half,),
        min_reward=0.6,
        steps=(TaskStep(prompt="Never", checks=(zero,)),),
    )

    steps = (TaskStep(prompt="Two", checks=(zero,), min_reward=0.1), TaskStep(prompt="Never", checks=(zero,)))
    ran = await bench.run(task, FIX)
    enough = await bench.run(replace(task, min_reward=0.5, steps=steps, reward="final"), FIX)

    assert len(ran["steps"]) == 1
    assert ran["outcome"] == ("fail", "checks_failed")
    assert ran["scores"]["reward"]["value"] == 0.25
    assert json.loads(ran["session"]["notes"])[-1] == "step 2 was not run: reward 0.5 is below 0.6"
    assert json.loads(enough["session"]["notes"])[-1] == "step 3 was not run: reward 0 is below 0.1"
    assert (len(enough["steps"]), enough["scores"]["reward"]["value"]) == (2, 0)


@pytest.mark.parametrize(
    ("report", "status"),
    [
        ('<testsuite><testcase classname="t" name="a"/></testsuite>', "success"),
        ('<testsuite><testcase classname="t" name="a"><failure/></testcase></testsuite>', "fail"),
        ("", "fail"),
    ],
)
async def test_a_report_must_name_the_test_as_passed_whatever_the_exit_code(bench, report, status):
    write = f"printf '%s' '{report}' > \"$PROCTOR_TEST_REPORT\"" if report else "true"
    named = TaskCheck(criterion="", command=write, verdict="tests", fail_to_pass=("t.py::a",))

    ran = await bench.run(replace(bench.task("start: start"), checks=(named,)), FIX)

    assert ran["outcome"][0] == status


async def test_a_steps_files_are_laid_out_and_the_check_files_before_it_are_gone(bench: Bench) -> None:
    def check(name: str) -> tuple[TaskCheck, ...]:
        return (TaskCheck(criterion=name, command=f"test -f {name}.check && ls *.given"),)

    task = replace(
        bench.task("start: start"),
        checks=(TaskCheck(criterion="first", command="test -f first.check"),),
        check_files=texts_of({"first.check": "x"}),
        steps=(
            TaskStep(
                prompt="second step",
                checks=check("second"),
                files=texts_of({"second.given": "2"}),
                check_files=texts_of({"second.check": "x"}),
            ),
            TaskStep(
                prompt="third step",
                checks=check("third"),
                files=texts_of({"third.given": "3"}),
                check_files=texts_of({"third.check": "x"}),
                continues=True,
            ),
        ),
    )
    script: Any = {
        "rules": [
            {"match": "third step", "steps": [{"run": "ls > third.txt"}]},
            {"match": "second step", "steps": [{"run": "ls > second.txt"}]},
        ],
        "steps": FIX,
    }

    ran = await bench.run(task, script)

    assert ran["outcome"] == ("success", "completed")
    third = ran["steps"][-1]
    assert "second.given" in third["testOutput"] and "third.given" in third["testOutput"]
    session = ran["session"]
    listing = ["git", "-C", session["repo"], "show", f"{ran['items'][0]['iterSha']}:third.txt"]
    listed = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    assert not [name for name in listed.split() if name.endswith(".check")]
    assert {"second.given", "third.given", "sum.py"} <= set(listed.split())


def test_the_second_prompt_has_the_output_without_its_timings() -> None:
    prompt = benchmark.second_prompt("Do it", "1 failed in 0.12s\nslow (15 ms)\nin 3 steps")
    assert prompt.startswith("Do it\n\nYour changes so far") and prompt.endswith("so that they pass.")
    assert "1 failed \nslow \nin 3 steps" in prompt
    assert "#" not in benchmark.second_prompt("", "x" * 20_000 + "#" + "x" * 20_000)
    assert "#" in benchmark.second_prompt("", "x" * 19_000 + "#" + "x" * 19_000)
