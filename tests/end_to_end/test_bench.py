"""`proctor bench` through the command line, against model servers on loopback."""

import csv
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench_servers import Server, serving

from command_server import CommandServer
from commands import Command

EXAMPLES = Path(__file__).parents[2] / "examples" / "benchmark"
SMOKE = "benchmark/tasks/smoke/add_comment.md"
QUICK = "benchmark/tasks/smoke/quick.md"
"""The same task with a check that starts no Python: half the processor time of a run."""
KEY = "sk-do-not-write-me-down-0123456789"

FIELDS = "model task success error completion_time prompts_sent human_interventions "
FIELDS += "files_modified lines_added lines_removed timestamp "
REPORT = "batch_id task timestamp total_time models_tested successful failed "
REPORT += "machine_info results rankings summary_stats "
"""The documented members, in their order; others may follow."""


class Desk:
    """A folder with the shipped tasks, an Ollama on loopback, and the command."""

    def __init__(self, command: Any, ollama: Server) -> None:
        self.command, self.folder, self.ollama = command, command.folder, ollama
        shutil.copytree(EXAMPLES, self.folder / "benchmark")
        front = "start: add_comment/start\ncheck: grep -q '^# Prints' greeting.py\ntimeout: 300"
        (self.folder / QUICK).write_text(f"---\n{front}\n---\n# Task: Say what the file is for\n")
        command.environment |= {"OLLAMA_HOST": ollama.url}

    def bench(self, *words: str, task: str = QUICK, **environment: str) -> "subprocess.CompletedProcess[str]":
        given = ("--task", task) if task else ()
        done: subprocess.CompletedProcess[str] = self.command(
            "bench", *given, *words, environment=environment
        )
        return done

    @property
    def results(self) -> Path:
        (only,) = (self.folder / "benchmark" / "results").iterdir()
        return only

    def read(self, name: str) -> Any:
        return json.loads((self.results / name).read_text())

    def configure(self, text: str) -> None:
        (self.folder / "benchmark" / "models_config.yaml").write_text(text)


@pytest.fixture
def desk(proctor: Any) -> Iterator[Desk]:
    with serving("solver:7b", "solver-mini:latest", "idler:latest") as ollama:
        yield Desk(proctor, ollama)


Compared = tuple[Desk, "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory, command_server: CommandServer) -> Iterator[Compared]:
    """A desk where all models were compared once, for tests that only read the results."""
    with serving("solver:7b", "solver-mini:latest", "idler:latest") as ollama:
        desk = Desk(Command(tmp_path_factory.mktemp("compared"), command_server), ollama)
        yield desk, desk.bench(task=SMOKE)


def test_every_model_of_a_running_ollama_is_compared_and_ranked(compared: Compared) -> None:
    desk, done = compared

    assert done.returncode == 1, done.stderr
    assert re.fullmatch(r"batch_\d{8}_\d{6}", desk.results.name)
    models = ("solver_7b", "solver-mini_latest", "idler_latest")
    assert {path.name for path in desk.results.iterdir()} == {
        *(f"comparison_report.{kind}" for kind in ("json", "html", "csv")),
        *(f"ollama_{model}_result.json" for model in models),
        *("machine_info.json", "batch.json"),
    }
    result = desk.read("ollama_solver_7b_result.json")
    assert " ".join(result).startswith(FIELDS)
    assert result["model"] == "ollama/solver:7b" and result["task"] == "add_comment"
    assert result["success"] is True and result["error"] is None
    assert (result["prompts_sent"], result["human_interventions"]) == (2, 0)
    assert (result["files_modified"], result["lines_added"], result["lines_removed"]) == (1, 1, 0)
    assert result["completion_time"] > 0
    assert all(each["passed"] for each in result["runs"][0]["criteria"])
    lost = desk.read("ollama_idler_latest_result.json")
    assert lost["success"] is False and lost["runs"][0]["status"] == "fail"
    assert [each["passed"] for each in lost["runs"][0]["criteria"]] == [False, True]


def test_the_comparison_has_the_documented_fields_and_covers_all_models(compared: Compared) -> None:
    desk, _ = compared

    report = desk.read("comparison_report.json")
    rows = list(csv.DictReader((desk.results / "comparison_report.csv").open()))
    assert " ".join(report).startswith(REPORT)
    assert report["batch_id"] == desk.results.name
    assert (report["models_tested"], report["successful"], report["failed"]) == (3, 2, 1)
    assert report["rankings"]["fastest"] in ("ollama/solver:7b", "ollama/solver-mini:latest")
    assert set(report["rankings"]) == {"fastest", "most_efficient", "least_intervention", "best_value"}
    # Once each, so nobody can say which of the two is faster.
    assert [place["rank"] for place in report["ranks"]["fastest"]] == [1, 1]
    assert set(report["summary_stats"]) == {"avg_prompts", "avg_interventions"} | {
        f"{each}_completion_time" for each in ("avg", "median", "min", "max")
    }
    assert " ".join(rows[0]).startswith(FIELDS.replace("error ", ""))
    # Each began from the task's own files: both added the same single line.
    assert {row["model"]: (row["success"], row["lines_added"]) for row in rows} == {
        "ollama/solver:7b": ("true", "1"),
        "ollama/solver-mini:latest": ("true", "1"),
        "ollama/idler:latest": ("false", "0"),
    }
    assert not (EXAMPLES / "tasks/smoke/add_comment/start/.git").exists()
    assert set(report["machine_info"]) == {"timestamp", "system", "cpu", "memory", "disk", "gpu", "ollama"}
    assert report["machine_info"]["ollama"]["models_count"] == 3

    page = (desk.results / "comparison_report.html").read_text()
    # It needs nothing from outside.
    assert "<script" not in page and "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "Success rate by model" in page and "Mean completion time" in page
    for title in ("Fastest", "Most Efficient", "Most Autonomous", "Human Interventions", "Files Modified"):
        assert title in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--models", "solvr"), "Did you mean `ollama/solver"),
        (("--models", "gpt-4"), "gpt-4 needs a key, and OPENAI_API_KEY is not set"),
        (("--models", "all", "--agent", "nobody"), "there is no agent `nobody`"),
        (("--resume", "batch_1"), "there is no benchmark batch_1"),
    ],
)
def test_what_cannot_be_had_is_said_before_anything_starts(desk: Desk, words: Any, said: str) -> None:
    done = desk.bench(*words)

    assert done.returncode == 2
    assert said in done.stderr
    assert not (desk.folder / "benchmark" / "results").exists()
    assert desk.ollama.asked == []


def test_parallel_really_runs_models_side_by_side(desk: Desk) -> None:
    desk.ollama.models = ["slow:a", "slow:b", "slow:c"]

    assert desk.bench().returncode == 0
    assert desk.ollama.most_at_once == 1

    desk.ollama.waits_for = 3
    assert desk.bench("--parallel", "--output", "side-by-side").returncode == 0
    assert desk.ollama.most_at_once == 3


def test_runs_are_repeated_and_their_rates_have_intervals(desk: Desk) -> None:
    done = desk.bench("--models", "solver-mini,idler", "--runs", "3", "--json")

    document = json.loads(done.stdout)
    best = document["comparison"]["models"][0]
    assert document["itemCount"] == 6
    assert best["model"] == "ollama/solver-mini:latest"
    assert best["success_rate"] == {"value": 1.0, "low": pytest.approx(0.438, abs=0.01), "high": 1.0, "n": 3}
    assert best["completion_time"]["low"] is not None
    result = desk.read("ollama_solver-mini_latest_result.json")
    assert [run["run"] for run in result["runs"]] == [1, 2, 3]


def test_names_of_models_are_only_names_whatever_a_server_calls_them(desk: Desk) -> None:
    """Nor do two whose names make the same file name overwrite each other."""
    desk.ollama.models = ["solver/x:1", "solver:x/1", "solver_x_1", "solver<script>alert(1)</script>/../../x"]

    assert desk.bench().returncode == 0

    files = sorted(path.name for path in desk.results.glob("*_result.json"))
    assert [name for name in files if "script" not in name] == [
        "ollama_solver_x_1-2_result.json",
        "ollama_solver_x_1-3_result.json",
        "ollama_solver_x_1_result.json",
    ]
    assert {desk.read(name)["model"] for name in files} == {f"ollama/{name}" for name in desk.ollama.models}
    assert "<script" not in (desk.results / "comparison_report.html").read_text()


def test_configured_models_are_asked_with_their_key_and_settings_and_no_file_holds_the_key(desk):
    with serving("solver-large", "broken-large") as hosted:
        desk.configure(
            f"""
models:
  - name: solver-large
    provider: openai
    display_name: Solver Large
    api_key: ${{MY_OWN_WORD}}
    base_url: {hosted.url}/v1
    settings: {{temperature: 0.7, max_tokens: 2048}}
    price: {{input: 10, output: 30}}
  - name: broken-large
    provider: openai
  - {{name: sleeping, provider: openai, enabled: false}}
categories:
  fast: [solver-large, ollama/solver-mini, nowhere]
"""
        )
        done = desk.bench("--models", "fast,broken-large", "--json", MY_OWN_WORD=KEY)

    report = json.loads(done.stdout)["comparison"]
    by_name = {row["model"]: row for row in report["results"]}
    assert set(by_name) == {"solver-large", "ollama/solver-mini:latest", "broken-large"}
    assert by_name["solver-large"]["display_name"] == "Solver Large"
    assert by_name["solver-large"]["cost_usd"] == pytest.approx((200 * 10 + 40 * 30) / 1e6)
    assert by_name["ollama/solver-mini:latest"]["cost_usd"] == 0
    assert hosted.keys[0] == f"Bearer {KEY}"
    assert (hosted.asked[0]["temperature"], hosted.asked[0]["max_tokens"]) == (0.7, 2048)
    assert "of the category fast, nowhere was not found" in done.stderr
    assert (desk.results / "solver-large_result.json").is_file()
    assert _holders_of(KEY, desk.folder) == []
    assert KEY not in done.stdout + done.stderr


def _holders_of(secret: str, folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if secret.encode() in path.read_bytes()]


def test_a_configured_model_that_lacks_its_key_is_refused(desk: Desk) -> None:
    desk.configure("models:\n  - {name: big, provider: openai, api_key: '${BIG_KEY}'}\n")
    assert "big needs a key, and BIG_KEY is not set" in desk.bench("--models", "big").stderr
    desk.configure(f"models:\n  - name: big\n    provider: openai\n    api_key: {KEY}\n")
    done = desk.bench("--models", "big")
    assert done.returncode == 2 and "models_config.yaml:4:14" in done.stderr
    assert KEY not in done.stderr


def test_batch_settings_hold_where_the_command_says_nothing(desk: Desk) -> None:
    settings = "max_parallel: 2, show_progress: false, save_intermediate: false"
    desk.configure(f"batch_settings: {{{settings}}}\n")
    task = desk.folder / QUICK
    task.write_text(task.read_text().replace("timeout: 300\n", ""))
    desk.ollama.models = ["slow:1", "slow:2", "slow:3", "slow:4"]
    desk.ollama.waits_for = 2

    side_by_side = desk.bench("--parallel", "--output", "first")

    assert side_by_side.returncode == 0 and "[1/4]" not in side_by_side.stderr
    assert desk.ollama.most_at_once == 2

    desk.configure(f"batch_settings: {{{settings}, default_timeout: 1}}\n")
    desk.ollama.models = ["hanging:1"]
    started = time.monotonic()
    done = desk.bench("--json")
    elapsed = time.monotonic() - started
    (row,) = json.loads(done.stdout)["comparison"]["results"]
    assert (done.returncode, row["status"], row["reason"]) == (1, "timeout", "timeout")
    assert "within 1 s" in row["error"]
    # Recorded times are cut to milliseconds.
    assert 0.99 <= row["completion_time"] < elapsed


def test_each_shipped_task_is_passed_by_its_solution_and_failed_by_its_untouched_start(desk: Desk) -> None:
    (desk.folder / QUICK).unlink()

    done = desk.bench("--oracle", "--noop", "--parallel", "2", "--json", task="benchmark/tasks/")

    report = json.loads(done.stdout)["comparison"]
    assert len(report["tasks"]) == 8 and report["task"] == "8 tasks"
    ends = {(row["model"], row["task"]): (row["status"], row["reason"]) for row in report["results"]}
    assert {task for _, task in ends} == set(report["tasks"])
    assert {end for (model, _), end in ends.items() if model == "oracle"} == {("success", "completed")}
    assert {end for (model, _), end in ends.items() if model == "noop"} == {("fail", "checks_failed")}


def test_a_failing_model_is_an_error_of_ours_and_resuming_repeats_it_and_keeps_the_others(desk: Desk) -> None:
    desk.ollama.models = ["broken:1", "idler:1", "solver:1"]
    done = desk.bench("--json")
    report = json.loads(done.stdout)["comparison"]
    statuses = {row["model"]: (row["status"], row["reason"]) for row in report["results"]}
    assert done.returncode == 1
    assert statuses["ollama/solver:1"] == ("success", "completed")
    assert statuses["ollama/broken:1"][0] == "error"
    assert (report["successful"], report["failed"], report["errors"]) == (1, 1, 1)
    desk.ollama.models = ["idler:1", "solver:1"]
    calls = {name: desk.ollama.calls_of(name) for name in ("idler:1", "solver:1")}

    done = desk.command("resume", desk.results.name, "--json")
    assert done.returncode == 2 and "broken" in done.stderr

    desk.ollama.models = ["broken:1", "idler:1", "solver:1"]
    done = desk.command("resume", desk.results.name, "--json")

    assert {name: desk.ollama.calls_of(name) for name in calls} == calls
    assert desk.ollama.calls_of("broken:1") == 2
    assert json.loads(done.stdout)["errorCount"] == 1
    assert len(list((desk.folder / "benchmark/results").iterdir())) == 1

    done = desk.command("resume", desk.results.name, "--retry-failed", "--json")

    assert desk.ollama.calls_of("idler:1") > calls["idler:1"]
    assert desk.ollama.calls_of("solver:1") == calls["solver:1"]
    assert json.loads(done.stdout)["failCount"] == 1


def test_a_folder_from_another_machine_is_gone_on_with(desk: Desk) -> None:
    desk.ollama.models = ["solver:1", "idler:1"]
    desk.bench("--runs", "2", "--models", "solver:1,idler:1")
    moved = desk.folder / "brought"
    desk.results.rename(moved)
    asked = len(desk.ollama.asked)
    shutil.rmtree(desk.folder / "proctor-home")
    desk.ollama.models = ["solver:1", "idler:1", "solver:2"]

    done = desk.bench("--models", "solver:1,idler:1,solver:2", "--runs", "2", "--resume", "brought", "--json")

    document = json.loads(done.stdout)
    assert "4 finished runs imported" in done.stderr
    assert len(desk.ollama.asked) == asked + 4
    assert document["comparison"]["models_tested"] == 3
    assert document["runId"].startswith("batch_")
    assert {row["model"]: row["prompts_sent"] for row in document["comparison"]["results"]} == {
        "ollama/solver:1": 2,
        "ollama/idler:1": 1,
        "ollama/solver:2": 2,
    }
    assert (moved / "ollama_solver_2_result.json").is_file()
    assert json.loads(desk.command("runs", "--json").stdout)["runs"][0]["job"] == "benchmark"


def test_a_damaged_result_file_is_named_set_aside_and_run_again(desk: Desk) -> None:
    damages = ["{", '{"runs": [{"item_id": 7}]}']
    desk.ollama.models = [*(f"solver:{number}" for number in range(len(damages))), "idler:latest"]
    desk.bench("--models", ",".join(desk.ollama.models))
    names = [f"ollama_solver_{number}_result.json" for number in range(len(damages))]
    for name, damage in zip(names, damages, strict=True):
        (desk.results / name).write_text(damage)
    asked = desk.ollama.calls_of("idler:latest")

    done = desk.bench("--resume", desk.results.name)

    for number, (name, damage) in enumerate(zip(names, damages, strict=True)):
        assert f"{name} is damaged" in done.stderr
        assert (desk.results / f"{name}.damaged").read_text() == damage
        assert desk.read(name)["success"] is True
        assert desk.ollama.calls_of(f"solver:{number}") == 4
    assert desk.ollama.calls_of("idler:latest") == asked


def test_a_killed_benchmark_goes_on_where_it_was(desk: Desk) -> None:
    desk.ollama.models = ["solver:1", "hanging:1"]
    process = desk.command.start("bench", "--task", QUICK, "--models", "solver:1,hanging:1", "--timeout", "1")
    for line in process.stdout:
        if "[1/2]" in line:
            break
    process.kill()
    process.wait()

    done = desk.bench("--resume", desk.results.name)

    assert done.returncode == 1
    assert desk.ollama.calls_of("solver:1") == 2
    assert desk.read("ollama_solver_1_result.json")["success"] is True
    assert desk.read("ollama_hanging_1_result.json")["runs"][0]["status"] == "timeout"


def test_ollamas_own_program_is_asked_where_the_server_does_not_list(desk: Desk) -> None:
    desk.ollama.lists = False
    program = desk.folder / "bin" / "ollama"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'NAME ID SIZE'\necho 'solver:7b abc 4GB'\n")
    program.chmod(0o755)

    done = desk.bench("--json", PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}")

    assert [row["model"] for row in json.loads(done.stdout)["comparison"]["results"]] == ["ollama/solver:7b"]


def test_a_task_may_begin_from_a_repository_of_the_users(desk: Desk, repository: Path) -> None:
    front = "repo: shop\nref: main\ncheck: grep -q '1 + 1' shop.py\nsolution: solved"
    (desk.folder / "solved").mkdir()
    (desk.folder / "solved/shop.py").write_text("total = 1 + 1\n")
    (desk.folder / "sum.md").write_text(f"---\n{front}\n---\n# Task: Mend the sum\n")

    done = desk.bench("--oracle", "--noop", "--json", task="sum.md")

    statuses = {row["model"]: row["status"] for row in json.loads(done.stdout)["comparison"]["results"]}
    assert statuses == {"oracle": "success", "noop": "fail"}
    assert (repository / "shop.py").read_text() == "total = 1 - 1\n"


def test_agents_run_beside_the_mocks_that_are_named_with_them(desk: Desk) -> None:
    words = ("--agent", "mine=true", "--agent", "idle=echo", "--oracle", "--noop", "--dry-run", "--json")

    listed = json.loads(desk.bench(*words, task=SMOKE).stdout)["items"]

    ran = {(item["model"], item["agent"]) for item in listed}
    assert ran == {
        ("oracle", "scripted"), ("noop", "scripted"), ("default", "mine"), ("default", "idle")
    }  # fmt: skip


def test_a_question_needs_no_files_and_a_task_without_any_is_told_the_ways_to_name_them(desk: Desk) -> None:
    question = "# Task: Capital\n\nWhat is the capital of France?\n"
    expected = "expect: {contains: Paris}\nanswer: It is Paris.\n"
    (desk.folder / "question.md").write_text(f"---\n{expected}---\n{question}")
    (desk.folder / "open.md").write_text(question)

    done = desk.bench("--oracle", "--noop", "--json", task="question.md")
    refused = desk.bench("--oracle", task="open.md")

    statuses = {row["model"]: row["status"] for row in json.loads(done.stdout)["comparison"]["results"]}
    assert statuses == {"oracle": "success", "noop": "fail"}
    assert refused.returncode == 2
    for way in ("expect: {contains: TEXT}", "start: FOLDER", "repo: PATH", "empty: true"):
        assert f"  {way} " in refused.stderr


def test_a_task_that_nothing_checks_says_so_in_its_results(desk: Desk) -> None:
    task = desk.folder / "free.md"
    task.write_text("---\nempty: true\n---\n# Task: Write a poem\n\nPut it into poem.txt.\n")
    desk.ollama.models = ["solver:1", "idler:1"]

    done = desk.bench("--json", task="free.md")
    rows = {row["model"]: row for row in json.loads(done.stdout)["comparison"]["results"]}
    assert rows["ollama/idler:1"]["unchecked"] and rows["ollama/idler:1"]["reason"] == "no_changes"
    assert "Unchecked: free" in (desk.results / "comparison_report.html").read_text()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("# Task: x\n" + "y" * (11 * 1024 * 1024), "larger than 10 MiB"),
        ("---\nstart: ../..\n---\n# Task: x\n\nDo it.\n", "leads out of the task's folder"),
        ("---\nempty: true\ncheck: no-such-program\n---\n# Task: x\n\nDo it.\n", "there is no program"),
    ],
    ids=["large", "outside", "program"],
)
def test_a_hostile_or_broken_task_is_refused_before_anything_starts(desk, content, said):
    (desk.folder / "task.md").write_text(content)

    done = desk.bench(task="task.md")

    assert (done.returncode, desk.ollama.asked) == (2, [])
    assert said in done.stderr


def test_a_task_that_is_a_link_out_of_its_folder_is_refused(desk: Desk) -> None:
    outside = desk.folder.parent / f"{desk.folder.name}-outside.md"
    outside.write_text("# Task: x\n\nDo it.\n")
    (desk.folder / "benchmark/tasks/easy/link.md").symlink_to(outside)

    done = desk.bench(task="benchmark/tasks/easy/link.md")

    assert done.returncode == 2
    assert "leads out of its folder" in done.stderr
