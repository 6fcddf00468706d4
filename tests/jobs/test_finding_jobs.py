"""Jobs are found by name, and a run whose job is gone can still be shown."""

import pytest

from proctor.errors import NotFound, UsageError
from proctor.job import make_overrides
from proctor.jobs import find_job, job_of_run, jobs


def test_each_job_says_itself_whether_it_has_an_analysis_and_a_page_of_results():
    assert {job.name for job in jobs() if job.has_analysis} == {"benchmark", "dialogue", "scenario"}
    assert {job.name: job.results_page("run-1") for job in jobs() if job.results_page("run-1")} == {
        "evaluation": "/evaluations/run-1"
    }


def test_a_run_whose_job_is_not_installed_has_the_report_and_the_page_that_every_run_has(proctor_store):
    job = job_of_run("translation")

    assert not job.has_analysis
    assert job.results_page("run-1") == ""
    assert job.report("run-1", "md", None) is None
    assert job.turns({}, proctor_store) is None
    with pytest.raises(NotFound, match="this job has no analysis"):
        job.analysis("run-1", None)
    with pytest.raises(NotFound, match="there is no job translation"):
        find_job("translation")


@pytest.mark.parametrize("amount", [-1, float("nan"), float("inf"), "much"])
@pytest.mark.parametrize("job", ["coding", "benchmark", "scenario"])
def test_a_budget_that_cannot_be_enforced_is_refused_for_every_job(job, amount):
    with pytest.raises(UsageError, match="the budget should be a number of dollars"):
        make_overrides(find_job(job), {"budget": amount})
