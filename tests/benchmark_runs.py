"""Runs of a benchmark, for tests of its figures."""

from dataclasses import replace

from proctor.jobs.benchmark.leaderboard import BenchmarkRun

RUN = BenchmarkRun(
    item_id="i",
    model="m",
    asked="m",
    display_name="m",
    task="t",
    agent="amp",
    run=1,
    status="success",
    reason="",
    error="",
    completion_time=10.0,
    wall_time=12.0,
    prompts_sent=2,
    tool_calls=3,
    human_interventions=1,
    files_modified=1,
    lines_added=5,
    lines_removed=1,
    prompt_tokens=10,
    completion_tokens=5,
    total_tokens=15,
    cost_usd=0.5,
    unpriced_calls=0,
    attempts=1,
    session_id="s",
    stand_in=False,
    timestamp="",
    criteria=(),
    unchecked=False,
)


def run(model: str, task: str, status: str = "success", **more: object) -> BenchmarkRun:
    names: dict[str, object] = {"asked": model, "display_name": model}
    return replace(RUN, model=model, task=task, status=status, **names | more)  # type: ignore[arg-type]
