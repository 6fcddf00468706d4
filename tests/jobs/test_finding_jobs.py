"""Jobs are found by name, and a run whose job is gone can still be shown."""

import json

import pytest

from proctor.api.reports import make_analysis
from proctor.bootstrap import open_context
from proctor.errors import NotFound, UsageError
from proctor.job import PlanText, RunDocuments, make_overrides
from proctor.jobs import find_job, job_of_run, jobs
from proctor.jobs.coding.plan import Overrides


@pytest.fixture
def ctx(tmp_path):
    with open_context(home=str(tmp_path)) as context:
        yield context


def test_jobs_with_an_analysis_of_their_own(ctx):
    ctx.store.create_batch({"runId": "run", "createdAt": "2026", "job": "x", "status": "running"}, [])
    jobs_with_title = {job.name for job in jobs() if job.view.analysis_title}
    assert jobs_with_title == {job.name for job in jobs() if job.documents("run", ctx).analysis}
    assert jobs_with_title == {"benchmark", "dialogue", "scenario"}


@pytest.mark.parametrize("job", ["coding", "benchmark", "scenario", "dialogue", "evaluation"])
@pytest.mark.parametrize("name", ["budget", "budget_usd", "budgetUsd"])
def test_the_names_of_a_setting_that_jobs_call_differently_are_one(job, name):
    assert make_overrides(find_job(job), {name: 2.5}) == make_overrides(find_job(job), {"budget_limit": 2.5})


def test_a_run_whose_job_is_not_installed_has_the_report_and_the_page_that_every_run_has(ctx):
    ctx.store.create_batch(
        {"runId": "run", "createdAt": "2026", "job": "translation", "status": "running"}, []
    )

    assert job_of_run("translation").documents("run", ctx) == RunDocuments()
    with pytest.raises(NotFound, match="this job has no analysis"):
        make_analysis(ctx, "run")
    with pytest.raises(NotFound, match="there is no job translation"):
        find_job("translation")


@pytest.mark.parametrize("amount", [-1, float("nan"), float("inf"), "much"])
@pytest.mark.parametrize("job", ["coding", "benchmark", "scenario"])
def test_a_budget_that_cannot_be_enforced_is_refused_for_every_job(job, amount):
    with pytest.raises(UsageError, match=r"budget(_limit`|`)? should be "):
        make_overrides(find_job(job), {"budget": amount})


def test_a_plan_without_a_file_resumes_the_run_of_the_same_text_only(ctx, tmp_path):
    other = {"runId": "other", "createdAt": "2026", "job": "coding", "status": "completed", "planPath": ""}
    ctx.store.create_batch(other, [])
    source = PlanText(text="matrix: [{prompt: hello, model: scripted/ok}]", folder=tmp_path)

    with pytest.raises(UsageError, match="there is no earlier run of this plan to resume"):
        find_job("coding").read_to_resume(source, Overrides(), ctx, "")
    plan = find_job("coding").read(source, Overrides(), ctx)
    ctx.store.create_batch({**other, "runId": "same", **plan.columns()}, [])
    assert find_job("coding").read_to_resume(source, Overrides(), ctx, "").earlier == "same"


CAPITALS = """
import json
from dataclasses import dataclass
from typing import Annotated, Any

from proctor.context import ModelOptions
from proctor.item import Item
from proctor.job import Job, JobPlan, StoredPlan
from proctor.plan.source import refuse
from proctor.plan.validate import Flag, PlanModel, sections_of, Text, Texts, check_shape
from proctor.plan.yaml_loader import read_source


class CapitalsFile(PlanModel):
    countries: Texts
    model: Annotated[Text | None, Flag(str)] = None


@dataclass(frozen=True, kw_only=True)
class CapitalsPlan(JobPlan):
    text: str
    settings: dict[str, Any]

    def columns(self):
        return {"planText": self.text, "optionsJson": "{}"}

    def items(self):
        for country in self.settings["countries"]:
            yield Item(
                runner="prompt",
                prompt=f"What is the capital of {country}?",
                model=self.settings["model"],
                factors={"country": country},
            )


class Capitals(Job):
    name = "capitals"
    title = "Capitals"
    plan_model = CapitalsFile

    def read(self, source, overrides, ctx):
        read = read_source(source.text, file=source.file)
        if problems := check_shape(read, CapitalsFile, sections_of(CapitalsFile, "plan")).problems:
            refuse(problems)
        return CapitalsPlan(text=source.decoded, settings={**read.data, **overrides.settings()})

    def restore(self, batch, ctx):
        return StoredPlan(options=ModelOptions.restored(json.loads(batch["optionsJson"]), ()))


JOB = Capitals()
"""


def test_a_job_of_another_package_runs_as_the_guide_says(proctor, tmp_path):
    (tmp_path / "capitals.py").write_text(CAPITALS)
    info = tmp_path / "capitals-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: capitals\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[proctor.jobs]\ncapitals = capitals:JOB\n")
    (tmp_path / "plan.yaml").write_text("countries: [France, Peru]\nmodel: scripted/ok\n")
    (tmp_path / "wrong.yaml").write_text("countries: []\nmodel: scripted/ok\n")
    installed = {"PYTHONPATH": str(tmp_path)}

    done = proctor.process("batch", "plan.yaml", "--model", "scripted/echo", "--json", environment=installed)
    run_id = json.loads(done.stdout)["runId"]
    listed = proctor.process("runs", "--json", environment=installed)
    again = proctor.process("resume", run_id, environment=installed)
    wrong = proctor.process("batch", "wrong.yaml", "--dry-run", environment=installed)

    assert done.returncode == again.returncode == 0, done.stderr + again.stderr
    assert "2 of 2 items succeeded" in again.stderr
    assert "capitals" in listed.stdout
    assert "wrong.yaml:1:12: `countries` of the plan should not be empty" in wrong.stderr
