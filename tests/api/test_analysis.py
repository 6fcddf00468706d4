"""`proctor.compare`, `rank` and `power`: of runs, of handles, of files with a table of results."""

import pytest

from proctor.errors import NotFound, UsageError

TASKS = 40


def _table(path, models, *, task="task", repeats=2):
    """Results of models that succeed on so many of forty tasks."""
    lines = [f"{task},model,repeat,success,cost"]
    for name, solved in models.items():
        for number in range(TASKS):
            for repeat in range(repeats):
                # A tenth of the tasks are flaky.
                flips = number % 10 == 3 and repeat == 1
                success = int((number * 7 % TASKS < solved) != flips)
                cost = 0.01 * (1 + number % 5) * (2 if name == "large" else 1) * (1 + 0.1 * repeat)
                lines.append(f"t{number},{name},{repeat + 1},{success},{cost:.4f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_two_files_of_results_are_compared_by_task(library, tmp_path):
    old = _table(tmp_path / "old.csv", {"small": 8})
    new = _table(tmp_path / "new.csv", {"large": 36})

    result = library.compare(old, str(new), metrics=["success", "cost"], gates=["success>=-0.1"])

    success, cost = result.table()
    assert result.verdict == "pass"
    assert (success["baseline"], success["candidate"], success["pairs"]) == ("old", "new", TASKS)
    assert success["difference"] == pytest.approx(success["candidate_mean"] - success["baseline_mean"])
    assert success["ci_low"] > 0.3 and success["significant"]
    assert cost["is_ratio"]


def test_the_columns_of_a_file_may_have_other_names(library, tmp_path):
    path = _table(tmp_path / "board.csv", {"small": 8, "large": 36}, task="instance_id")

    result = library.compare(path, by="model", against="large", columns={"task": "instance_id"})

    assert {row["baseline"] for row in result.table()} == {"large"}
    assert next(row for row in result.table() if row["metric"] == "success")["pairs"] == TASKS
    run = library.import_table(path, run="board", columns={"task": "instance_id"})
    assert (run.id, run.status, run.summary()["itemCount"]) == ("board", "completed", 4 * TASKS)
    with pytest.raises(library.UsageError, match="cannot be resumed; import again"):
        run.resume()


def test_a_run_and_a_file_are_compared_by_handle_and_by_path(library, tmp_path):
    run = library.import_table(_table(tmp_path / "old.csv", {"small": 8}), run="baseline")
    new = _table(tmp_path / "new.csv", {"large": 36})

    by_handle, by_name = library.compare(run, new).table(), library.compare("baseline", new).table()

    assert list(by_handle) == list(by_name)
    assert {row["baseline"] for row in by_handle} == {"baseline"}


def test_models_of_a_file_are_ranked_best_first_with_rank_intervals(library, tmp_path):
    path = _table(tmp_path / "board.csv", {"small": 8, "large": 36, "twin": 36})

    first, second, last = library.rank(path)

    assert {first.name, second.name} == {"large", "twin"} and last.name == "small"
    assert (first.rank_low, first.rank_high, last.rank_low) == (1, 2, 3)
    assert (last.tasks, last.runs) == (TASKS, 2 * TASKS)
    reliable = library.rank(path, reliability=True)
    assert library.rank(path, metric="tokens", reliability=True) == reliable, "pass^k is of success"
    assert [each.value < 1 for each in reliable] == [True] * 3
    cheapest = library.rank(path, metric="cost")[0]
    assert cheapest.name != "large"
    with pytest.raises(UsageError, match="nothing to rank"):
        library.rank()


def test_the_tasks_that_a_difference_needs_fall_with_repeats(library, tmp_path):
    path = _table(tmp_path / "board.csv", {"small": 20, "large": 24})

    analysis = library.power(path, detect=0.1)

    assert analysis.tasks == TASKS and 0 < analysis.detectable < 1
    needed = [each.tasks for each in analysis.designs]
    assert [each.repeats for each in analysis.designs] == [1, 3, 5, 10]
    assert needed == sorted(needed, reverse=True)
    assert library.power(path, detect=0.2).designs[0].tasks < needed[0]
    once = _table(tmp_path / "once.csv", {"small": 20, "large": 24}, repeats=1)
    assert len(library.power(once, detect=0.1).designs) == 1
    with pytest.raises(UsageError, match="other than 0"):
        library.power(path, detect=0)


def test_two_files_give_the_variance_of_their_differences(library, tmp_path):
    old = _table(tmp_path / "old.csv", {"small": 20})
    equal = _table(tmp_path / "equal.csv", {"twin": 20})
    other = _table(tmp_path / "other.csv", {"large": 36})

    def needed(candidate):
        return library.power(old, candidate, detect=0.1).designs[0].tasks

    assert needed(equal) < needed(other)


def test_compare_takes_files_on_the_command_line(proctor, tmp_path):
    old = _table(tmp_path / "old.csv", {"small": 8}, task="instance_id")
    new = _table(tmp_path / "new.csv", {"large": 36}, task="instance_id")

    done = proctor("compare", str(old), str(new), "--column", "task=instance_id", "--metric", "success")

    assert done.returncode == 0, done.stderr
    assert "Baseline: old" in done.stderr and "higher" in done.stdout


def test_what_cannot_be_compared_or_planned_is_refused(library, tmp_path):
    path = _table(tmp_path / "board.csv", {"small": 8, "large": 36})

    with pytest.raises(UsageError, match="a factor divides one run"):
        library.compare(path, path, by="model")
    with pytest.raises(UsageError, match="nothing to compare with\nPass two runs, or one run and the factor"):
        library.compare(path)
    for power in (0, 1, -0.1, 1.5):
        with pytest.raises(UsageError, match="the power must lie between 0 and 1"):
            library.power(path, detect=0.1, power=power)
    for detect in (0, float("inf")):
        with pytest.raises(UsageError, match="the difference to detect must be other than 0"):
            library.power(path, detect=detect)
    with pytest.raises(NotFound, match="nothing here has a value of helpfulness\nThere are: success, cost"):
        library.power(path, metric="helpfulness", detect=0.1)
    with pytest.raises(UsageError, match="power is computed for success and scores, not for cost"):
        library.power(path, metric="cost", detect=0.1)
