"""What a check of tasks says about them, and which results of other benchmarks can be read."""

import pytest

from proctor.jobs.benchmark.checking import CheckedTask, TaskChecks


@pytest.mark.parametrize(
    ("members", "is_ok", "note"),
    [
        ({"oracle": "pass", "noop": "fail"}, True, ""),
        ({"oracle": "none", "noop": "fail"}, True, "no reference solution"),
        ({"oracle": "fail", "noop": "fail"}, False, "the reference solution does not pass"),
        (
            {"oracle": "fail", "noop": "fail", "error": "exit 1"},
            False,
            "the reference solution does not pass: exit 1",
        ),
        ({"oracle": "flaky", "noop": "fail"}, False, "the check is flaky"),
        ({"oracle": "pass", "noop": "flaky"}, False, "the check is flaky"),
        ({"oracle": "pass", "noop": "pass"}, False, "passes without any work"),
        ({"oracle": "pass", "noop": "fail", "duplicate_of": "b"}, False, "the same as b"),
        (
            {"oracle": "none", "noop": "pass", "duplicate_of": "b"},
            False,
            "passes without any work; the same as b; no reference solution",
        ),
    ],
)
def test_a_task_is_well_if_its_check_tells_work_from_none(members, is_ok, note):
    task = CheckedTask(task="a", **members)
    assert (task.is_ok, task.note) == (is_ok, note)
    good = CheckedTask(task="b", oracle="pass", noop="fail")
    checks = TaskChecks(tasks=(good, task), not_read=(), run_id="r")
    assert checks.is_ok == is_ok
    first, second = checks.document()["tasks"]
    assert first["duplicateOf"] is None and first["id"] == "b"
    assert (second["id"], second["oracle"], second["noop"]) == ("a", task.oracle, task.noop)
    assert second["duplicateOf"] == (task.duplicate_of or None)
