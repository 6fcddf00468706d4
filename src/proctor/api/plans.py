"""Plans as texts: the jobs that they are of, their schemas, and examples."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from proctor.job import Job, plan_schema
from proctor.jobs import FIRST, find_job, job_names, jobs, recognize
from proctor.json_values import JsonObject

__all__ = ["FIRST", "Example", "find_job", "job_names", "recognize"]


def jobs_with_plans() -> Iterator[Job]:
    """The jobs whose plans can be written."""
    return (job for job in jobs() if job.plan_model)


def schema_text(job: str) -> str:
    """The JSON Schema of a job's plans, as the package has it; of a job of another package, made now."""
    file = resources.files("proctor") / "schemas" / f"{job}.schema.json"
    return file.read_text(encoding="utf-8") if file.is_file() else generated_schema(job)


def generated_schema(job: str) -> str:
    """The schema of a job's plans, from its models."""
    implementation = find_job(job)
    document = {**plan_schema(implementation), "title": f"Proctor: {implementation.title}"}
    return json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An example plan."""

    name: str
    job: str
    text: str
    overrides: JsonObject
    """Overrides it needs."""


def examples() -> Iterator[Example]:
    """The example plans of every job. They run with no key and no network."""
    for job in jobs():
        for starter in job.starters:
            text, overrides = _text(job, starter.file), dict(starter.overrides)
            yield Example(name=starter.title, job=job.name, text=text, overrides=overrides)


def _text(job: Job, file: str) -> str:
    package = type(job).__module__.rpartition(".")[0]
    text = resources.files(package).joinpath("starters", file).read_text(encoding="utf-8")
    # Two runs of one example must not write to the same folder.
    return text.replace("{examples}", str(_examples())).replace("{unique}", f"harbour-{secrets.token_hex(2)}")


def _examples() -> Path:
    """The folder of examples: inside the installed package, or at the top of the source tree."""
    installed = Path(str(resources.files("proctor").joinpath("examples")))
    return installed if installed.is_dir() else Path(__file__).parents[3] / "examples"
