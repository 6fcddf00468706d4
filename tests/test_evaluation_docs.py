"""The manual of evaluations and comparisons says what the product does."""

import re
from pathlib import Path

import pytest

from proctor.jobs.evaluation import state as evaluation
from proctor.jobs.evaluation.ground_truth import read_dataset
from proctor.jobs.evaluation.request import EvaluationPlan, EvaluationRequest, read_evaluation
from proctor.plan.validate import names_of
from proctor.stats.results import FIGURES, PAIRINGS

DOCS = Path(__file__).parents[1] / "docs"


def blocks(page):
    return re.findall(r"^```yaml\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_plan_and_the_dataset_in_the_manual_can_be_read():
    plan, dataset = blocks("evaluation.md")

    request = EvaluationRequest.from_document(read_evaluation(plan, file="manual"))

    assert (request.name, request.votes, request.retries) == ("nightly", 3, 1)
    assert read_dataset(dataset, file="manual").name == "travel@3"


def test_each_key_of_a_plan_is_in_the_manual():
    manual, keys = (DOCS / "evaluation.md").read_text(), names_of(EvaluationPlan)

    assert keys
    assert [key for key in keys if f"`{key}`" not in manual] == []


@pytest.mark.parametrize("state", [*evaluation.TERMINAL, evaluation.PENDING, evaluation.IN_PROGRESS])
def test_each_state_is_in_the_manual(state):
    assert f"| `{state}` |" in (DOCS / "evaluation.md").read_text()


@pytest.mark.parametrize("name", [*FIGURES, *PAIRINGS])
def test_each_metric_and_pairing_is_in_the_manual(name):
    assert f"`{name}`" in (DOCS / "comparing.md").read_text()
