"""Sessions as a Harbor job."""

import json
from pathlib import Path

from proctor.export.harbor import reward_of, write
from proctor.score import Score
from proctor.session import Session


def test_a_job_has_a_result_for_each_trial_with_its_reward(tmp_path: Path) -> None:
    half = Score(evaluator="check: bash /tests/test.sh", value=0.5)
    sessions = [
        Session(
            external_id="1",
            source="proctor",
            task="a",
            agent="codex",
            model="openai/x",
            scores=[half],
            status="fail",
        ),
        Session(
            external_id="2",
            source="proctor",
            task="b",
            agent="codex",
            model="openai/x",
            status="error",
            error="lost",
        ),
    ]

    (job,) = write(sessions, tmp_path, "run")

    result = json.loads((job / "result.json").read_text())
    trials = {
        trial["task_name"]: trial
        for trial in (json.loads(file.read_text()) for file in job.glob("*/result.json"))
    }
    assert result["stats"]["evals"] == {
        "codex__x__proctor": {"n_trials": 2, "n_errors": 1, "metrics": [{"mean": 0.25}]}
    }
    assert trials["a"]["verifier_result"] == {"rewards": {"reward": 0.5}}
    assert trials["b"]["verifier_result"] is None
    assert trials["b"]["exception_info"]["exception_type"] == "RuntimeError"


def test_the_reward_of_a_mined_task_is_the_share_of_its_hidden_tests() -> None:
    scores = [
        Score(evaluator="hidden tests", value=0.25),
        Score(evaluator="changed tests", label="unchanged"),
    ]
    assert reward_of(Session(external_id="1", source="proctor", scores=scores, status="fail")) == 0.25
