"""`stop_when`: a run stops once what its plan wants to know is decided, and only then."""

import json
import random

import pytest

from commands import Command
from databases import query
from proctor.errors import UsageError
from proctor.jobs.benchmark.plan import BenchmarkOverrides
from proctor.results.stopping import StopMonitor, stored_rule
from proctor.stats.sequential import DifferenceGoal, Monitor, RankGoal
from proctor.stop_rule import StopRule, read_stop_rule
from proctor.testing import eventually
from waiting import while_running

TASKS = 40
ANSWERS = {
    "good": "{latency_seconds: 0.01, rules: [{reply: right}]}",
    "bad": "{latency_seconds: 0.01, rules: [{reply: wrong}]}",
    "other": "{latency_seconds: 0.01, rules: [{reply: 'right, too'}]}",
    # Right in seven of ten tasks.
    "fair": "latency_seconds: 0.01\nrules: [{match: 'number \\d*[147]$', reply: wrong}, {reply: right}]",
    "fair-too": "rules: [{match: 'number \\d*[258]$', reply: wrong}, {reply: right}]",
    "slow-good": "{latency_seconds: 0.1, rules: [{reply: right}]}",
    "slow-bad": "{latency_seconds: 0.1, rules: [{reply: wrong}]}",
    "broken": "{failures: {every: 1, status: 400}, rules: [{reply: right}]}",
    "flaky": "{latency_seconds: 0.01, failures: {every: 3, status: 400}, rules: [{reply: right}]}",
}


def write_plan(folder, rule, models=("bad", "good"), *, tasks=TASKS, runs=1, more=""):
    for name, answer in ANSWERS.items():
        (folder / f"{name}.yaml").write_text(answer)
    prompts = [f"Question number {number}" for number in range(tasks)]
    matrix = {
        "prompt": prompts,
        "model": [f"scripted/{model}" for model in models],
        "runs": runs,
        "expect": {"contains": "right"},
    }
    text = (
        f"runId: early\nconcurrency: 4\nstop_when: {json.dumps(rule)}\n{more}matrix: [{json.dumps(matrix)}]\n"
    )
    (folder / "plan.yaml").write_text(text)


def run(proctor, rule, models=("bad", "good"), **options):
    write_plan(proctor.folder, rule, models, **options)
    return proctor("batch", "plan.yaml", "--json")


def state_of(done):
    document = json.loads(done.stdout)
    return document, document["stopWhen"]


@pytest.fixture(scope="module")
def decided(tmp_path_factory, command_server):
    """The command after a run that was decided, with what it printed, for tests that add nothing to it."""
    proctor = Command(tmp_path_factory.mktemp("decided"), command_server)
    return proctor, run(proctor, {"decided": True})


def test_a_decided_comparison_stops_the_run_and_leaves_the_rest_queued(decided):
    _, done = decided

    document, state = state_of(done)
    assert (document["status"], document["reason"]) == ("completed", "decided")
    # Items go on while the figures are computed, on a busy machine a dozen.
    assert 8 <= state["intervals"][0]["tasks"] <= 30
    assert document["unfinishedCount"] > TASKS
    assert state["isDecided"] and [each["outcome"] for each in state["decisions"]] == ["better"]
    assert "decided: scripted/good is better than scripted/bad" in done.stderr
    assert "Run the rest:  proctor resume early --no-stop" in done.stderr
    # Failures among the executed items: exit code 1, as of every run.
    assert done.returncode == 1


def test_items_that_were_not_needed_are_no_failures(proctor):
    done = run(proctor, {"width": 0.4}, ["good"])

    document, state = state_of(done)
    assert document["unfinishedCount"] > 0 and document["failCount"] == 0
    assert done.returncode == 0
    (one,) = state["intervals"]
    assert one["high"] - one["low"] <= 0.4 and not one["isUndecided"]


def test_identical_models_are_never_decided_and_every_item_runs(proctor):
    document, state = state_of(run(proctor, {"decided": True}, ["good", "other"], tasks=30))

    assert (document["reason"], document["unfinishedCount"]) == ("", 0)
    assert not state["isDecided"]
    assert state["decisions"][0]["outcome"] == "open"


def test_ranks_settle_and_a_settled_level_gets_no_further_tasks(proctor):
    document, state = state_of(run(proctor, {"ranks": "settled"}, ["bad", "good", "fair"]))

    tasks = {each["name"].removeprefix("scripted/"): each["tasks"] for each in state["intervals"]}
    assert tasks["bad"] < tasks["fair"] and tasks["bad"] < tasks["good"]
    # Whether seven of ten and all are told apart in sixty tasks or not, the reason says it.
    assert document["reason"] == ("decided" if state["isDecided"] else "undecided")


def test_a_decided_run_resumes_to_its_end_at_once_and_goes_on_only_when_told(proctor):
    first, _ = state_of(run(proctor, {"decided": True}))

    again = proctor("resume", "early")
    assert "nothing to resume, `stop_when` is decided" in again.stderr
    assert "proctor resume early --no-stop" in again.stderr
    assert finished_items(proctor) == 2 * TASKS - first["unfinishedCount"]

    document = json.loads(proctor("resume", "early", "--no-stop", "--json").stdout)
    assert (document["unfinishedCount"], document["reason"]) == (0, "")
    assert document["stopWhen"]["intervals"][0]["tasks"] == TASKS


def test_a_killed_run_decides_as_one_that_was_not(proctor):
    write_plan(proctor.folder, {"decided": True}, ["slow-bad", "slow-good"])
    process = proctor.start("batch", "plan.yaml")
    eventually(while_running(process, lambda: finished_items(proctor) >= 6))
    process.kill()
    process.wait()
    process.stdout.close()
    assert finished_items(proctor) < 18

    document, state = state_of(proctor("resume", "early", "--json"))

    with proctor.open_store() as opened:
        rebuilt = StopMonitor(stored_rule(opened.read, "early"), opened.read, "early").document()
    assert document["reason"] == "decided"
    assert rebuilt == state
    assert [each["outcome"] for each in state["decisions"]] == ["better"]


def finished_items(proctor):
    if not (proctor.folder / "proctor-home" / "proctor.db").exists():
        return 0
    with proctor.open_store() as store:
        rows = query(store, """SELECT "id" FROM "batch_items" WHERE "status" IN ('success', 'fail')""")
    return len(rows)


def test_items_that_are_retried_count_once(proctor):
    document, state = state_of(
        run(proctor, {"decided": True}, ["bad", "flaky"], more="defaults: {retries: 9}\n")
    )

    assert document["errorCount"] == 0 and state["isDecided"]
    finished = 2 * TASKS - document["unfinishedCount"]
    assert finished == document["successCount"] + document["failCount"]


def test_errors_decide_nothing_by_themselves(proctor):
    """With every item of a model in error there is no result without them: undecided, however many."""
    document, state = state_of(run(proctor, {"decided": True}, ["good", "broken"], tasks=30))

    assert document["errorCount"] == 30
    assert state["decisions"][0]["outcome"] == "open"


@pytest.mark.parametrize(
    ("rule", "models", "problem", "remedy"),
    [
        (
            {"decided": True, "by": "color"},
            ["bad", "good"],
            "no item has a factor color",
            "There are: model, task",
        ),
        (
            {"decided": True, "baseline": "gpt"},
            ["bad", "good"],
            "no item has gpt as its model",
            "scripted/bad",
        ),
        ({"decided": True}, ["good"], "nothing to compare", "Use `width` alone"),
        ({"ranks": 1}, ["good"], "nothing to compare", "Use `width` alone"),
        ({"width": 0}, ["good"], "width", "more than 0"),
        ({"by": "model"}, ["good"], "names no goal", "`pick`, `check`, `decided: true`"),
        ({"widht": 0.1}, ["good"], "widht", "width"),
        ({"width": 0.1, "metric": "sucess"}, ["good"], "metric `sucess`", "score:EVALUATOR"),
        ({"pick": 0.1, "metric": "cost"}, ["bad", "good"], "no scale", "use `decided: true`"),
        ({"pick": 0.1, "width": 0.1}, ["bad", "good"], "several kinds of goals", "`pick`, `check`"),
        ({"pick": 0.1}, ["good"], "nothing to compare", "add a level"),
        ({"check": 0.05}, ["bad", "good"], "needs at least 77 tasks", "a margin of at least 0.1."),
        (
            {"check": 0.1, "baseline": "gpt"},
            ["good"],
            "neither a model of the plan nor a run",
            "proctor runs",
        ),
    ],
)
def test_a_rule_that_cannot_work_is_refused_before_anything_starts(proctor, rule, models, problem, remedy):
    write_plan(proctor.folder, rule, models)

    for more in ((), ("--dry-run",)):
        done = proctor("batch", "plan.yaml", *more)
        assert done.returncode == 2
        assert "plan.yaml:3:" in done.stderr
        assert problem in done.stderr and remedy in done.stderr
    assert "early" not in proctor("runs").stdout


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"runs": 1', '"runs": 2'),
        lambda text: text.replace('"Question number 0"', '"Question number 0", "One more"'),
        lambda text: text.replace('"scripted/good"', '"scripted/good", "scripted/fair"'),
        lambda text: text.replace('"Question number 0", ', ""),
        lambda text: text.replace('stop_when: {"decided": true}', "stop_when: {width: 0.1}"),
        lambda text: text.replace('stop_when: {"decided": true}\n', ""),
    ],
    ids=["repeats", "tasks", "levels", "fewer", "another rule", "no rule"],
)
def test_what_is_fixed_before_the_first_result_stays_fixed(decided, change):
    proctor, _ = decided
    plan = (proctor.folder / "plan.yaml").read_text()
    changed = proctor.folder / "changed.yaml"
    changed.write_text(change(plan))
    assert changed.read_text() != plan

    done = proctor("batch", "changed.yaml", "--resume", "early")

    assert done.returncode == 2
    assert "`stop_when`" in done.stderr and "Start a new run" in done.stderr


def test_a_rule_cannot_be_added_to_a_run(proctor):
    write_plan(proctor.folder, {"decided": True}, tasks=3)
    plan = proctor.folder / "plan.yaml"
    with_rule = plan.read_text()
    plan.write_text(with_rule.replace('stop_when: {"decided": true}\n', ""))
    proctor("batch", "plan.yaml")
    plan.write_text(with_rule)

    done = proctor("batch", "plan.yaml", "--resume", "early")

    assert done.returncode == 2 and "started with no rule" in done.stderr


def test_failed_items_of_such_a_run_are_not_repeated(decided):
    proctor, _ = decided

    done = proctor("resume", "early", "--retry-failed")

    assert done.returncode == 2 and "--retry-errors" in done.stderr


def test_compare_and_report_use_the_valid_interval(decided):
    proctor, stopped = decided
    _, state = state_of(stopped)

    done = proctor("compare", "early", "--by", "model", "--gate", "success>=-0.02", "--json")

    document = json.loads(done.stdout)
    (contrast,) = document["contrasts"]
    assert contrast["difference"]["test"] == "betting confidence sequence"
    assert contrast["difference"]["p"] is None and contrast["isSignificant"]
    assert 0 < contrast["difference"]["low"] < contrast["difference"]["value"] == 1
    assert contrast["baselineMean"]["high"] == state["intervals"][0]["high"]
    assert (document["gates"][0]["verdict"], done.returncode) == ("pass", 0)
    ranked = proctor("rank", "early").stderr
    assert "note: a run that stops early by its results: ordinary intervals are too narrow" in ranked
    assert "decided: scripted/good is better" in ranked
    report = proctor("report", "--run", "early").stdout
    assert "stops early by its results" in report and "decided: scripted/good is better" in report
    # By another factor than that of the rule, the interval is too narrow.
    by_task = proctor("compare", "early", "--by", "task", "--metric", "success")
    assert "could stop early by its results" in by_task.stderr


def test_a_race_names_a_model_and_a_killed_one_names_the_same_after_the_same_tasks(proctor):
    rule, models = {"pick": 0.1}, ["slow-good", "slow-bad", "fair"]
    write_plan(proctor.folder, rule, models, runs=2)
    process = proctor.start("batch", "plan.yaml")
    eventually(while_running(process, lambda: finished_items(proctor) >= 12))
    process.kill()
    process.wait()
    process.stdout.close()

    done = proctor("resume", "early", "--json")
    _, state = state_of(done)
    uninterrupted, other = state_of(proctor("batch", "plan.yaml", "--run-id", "other", "--json"))

    assert state["race"] == other["race"] and state["decisions"] == other["decisions"]
    assert [level["state"] for level in state["race"]] == ["picked", "out", "out"]
    assert state["race"][1]["tasks"] < state["race"][2]["tasks"] <= TASKS
    assert "decided: use scripted/slow-good: it is at most 0.1 worse than the best" in done.stderr
    assert (state["plannedRuns"], uninterrupted["reason"]) == (6 * TASKS, "decided")
    assert other["finishedRuns"] == 6 * TASKS - uninterrupted["unfinishedCount"]
    report = proctor("report", "--run", "early").stdout
    assert "\n**Use scripted/slow-good: it is at most 0.1 worse than the best" in report
    assert "slow-bad 0 out" in report and "█" not in report


def test_a_tie_ends_a_race_that_has_tasks_enough_and_stays_open_otherwise(proctor):
    _, state = state_of(run(proctor, {"pick": 0.3}, ["fair", "fair-too"]))
    assert state["decisions"][0]["outcome"] == "picked"
    write_plan(proctor.folder, {"pick": 0.1}, ["fair", "fair-too"], tasks=12)
    document, state = state_of(proctor("batch", "plan.yaml", "--run-id", "open", "--json"))
    assert (document["unfinishedCount"], state["decisions"][0]["outcome"], state["isDecided"]) == (
        0,
        "open",
        False,
    )
    assert "are left after all tasks" in state["decisions"][0]["reason"]


@pytest.mark.parametrize(
    ("model", "outcome", "code"),
    [("fair", "pass", 0), ("good", "pass", 0), ("bad", "fail", 1), ("flaky", "open", 4)],
)
def test_a_check_against_a_stored_run_has_the_exit_code_of_a_gate(proctor, model, outcome, code):
    write_plan(proctor.folder, {"width": 0.001}, ["fair"])
    assert proctor("batch", "plan.yaml", "--run-id", "base").returncode == 1
    done = run(proctor, {"check": 0.1, "baseline": "base"}, [model])

    document, state = state_of(done)
    assert (state["decisions"][0]["outcome"], done.returncode) == (outcome, code)
    (standing,) = state["race"]
    assert (standing["state"], standing["against"]) == (outcome, "base")
    assert document["successCount"] + document["failCount"] + document["errorCount"] <= TASKS
    assert "the baseline is what run base has stored" in proctor("batch", "plan.yaml", "--dry-run").stderr
    assert proctor("watch", "early").returncode == proctor("resume", "early").returncode == code


def test_a_check_outlives_its_baseline_run_and_none_begins_while_that_is_running(proctor):
    write_plan(proctor.folder, {"width": 0.001}, ["slow-good"])
    process = proctor.start("batch", "plan.yaml", "--run-id", "base")
    eventually(while_running(process, lambda: finished_items(proctor) >= 1))
    refused = run(proctor, {"check": 0.1, "baseline": "base"}, ["good"])
    process.communicate()
    assert (refused.returncode, "run base is still running" in refused.stderr) == (2, True)

    assert run(proctor, {"check": 0.1, "baseline": "base"}, ["good"]).returncode == 0
    assert proctor("delete", "base", "--yes").returncode == 0

    for options in ((), ("--dry-run",)):
        again = proctor("batch", "plan.yaml", "--resume", "early", *options)
        assert again.returncode == 0, again.stderr
    assert "\nscripted/good is not worse than base by 0.1.\n" in proctor("show", "early").stdout


def test_a_check_compares_with_a_level_and_the_intervals_beside_it_are_of_first_runs(proctor):
    done = run(proctor, {"check": 0.2}, ["fair", "good"], runs=3)

    _, state = state_of(done)
    assert (done.returncode, state["decisions"][0]["outcome"]) == (0, "pass")
    assert state["decisions"][0]["reason"] == "scripted/good is not worse than scripted/fair by 0.2"
    (contrast,) = json.loads(
        proctor("compare", "early", "--by", "model", "--metric", "success", "--json").stdout
    )["contrasts"]
    assert contrast["difference"]["test"] == "betting confidence sequence" and contrast["difference"]["low"]


def test_a_benchmark_has_options_for_a_race_and_a_check():
    assert BenchmarkOverrides(pick=0.1).stop_text == "pick=0.1"
    assert BenchmarkOverrides(pick=0.1, agent="claude,codex").stop_text == "pick=0.1,by=agent"
    assert BenchmarkOverrides(check_against="main").stop_text == "check=0.1,baseline=main"
    against = BenchmarkOverrides(check_against="main", stop_when="check=0.05")
    assert against.stop_text == "check=0.05,baseline=main"
    assert read_stop_rule(against.stop_text) == StopRule(check=0.05, baseline="main")
    # The beginning of a run's id may look like a number.
    assert read_stop_rule(BenchmarkOverrides(check_against="20").stop_text) == StopRule(
        check=0.1, baseline="20"
    )


# Error rates, in this process.


def test_rules_of_the_library_and_of_an_option_are_checked():
    assert read_stop_rule("by=agent,width=0.1,scale=0:10") == StopRule(
        by="agent", width=0.1, scale=(0.0, 10.0)
    )
    assert read_stop_rule({"ranks": "settled"}) == StopRule(ranks=0)
    for wrong in ("width", "width=-1", "by=model", "wide=2", {"width": 0}, {"decided": "yes"}):
        with pytest.raises(UsageError):
            read_stop_rule(wrong)


def simulated(seed, goal, levels, tasks, success, repeats=1):
    """A run of tasks of random difficulty, up to the one after which its goal is decided."""
    chance, monitor = random.Random(seed), Monitor([goal])
    for task in range(tasks):
        difficulty = chance.betavariate(1, 1)
        for level in levels:
            likely = success(level, difficulty)
            monitor.add(level, task, [float(chance.random() < likely) for _ in range(repeats)])
        if task % 5 == 4 and monitor.decisions()[0].is_decided:
            break
    return monitor


def test_six_identical_models_are_told_apart_in_at_most_five_percent_of_runs():
    names = tuple(f"model-{number}" for number in range(6))
    wrong = 0
    for seed in range(25):
        monitor = simulated(seed, RankGoal(cells=names), names, 30, lambda _, difficulty: difficulty)
        wrong += any(low > 1 for low, _ in monitor.ranks().values())

    # The bound is 5 %; measured: none in a thousand. Ordinary tests after each task give most of them.
    assert wrong <= 1


def test_a_true_difference_of_a_fifth_takes_some_forty_tasks():
    """Facts: median 44 tasks with three repeats, decided by 100 tasks in 98 %."""

    def success(level, difficulty):
        return 0.8 * difficulty + (0.2 if level == "b" else 0.0)

    goal = DifferenceGoal(baseline="a", candidate="b")
    monitors = [simulated(seed, goal, "ab", 150, success, repeats=3) for seed in range(60)]

    decisions = [monitor.decisions()[0] for monitor in monitors]
    assert sum(decision.is_decided for decision in decisions) >= 57
    assert {decision.outcome for decision in decisions if decision.is_decided} == {"better"}
    assert 30 <= sorted(monitor.estimate("a", "b").n for monitor in monitors)[30] <= 60
