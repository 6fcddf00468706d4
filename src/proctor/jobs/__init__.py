"""Finds jobs: each package here is one, and other packages can add theirs by entry point `proctor.jobs`."""

import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

from proctor.errors import NotFound
from proctor.job import Job
from proctor.lazy_import import plugins

GROUP = "proctor.jobs"
FIRST = "coding"
"""What a text is taken for that could be a plan of any job."""


@cache
def job_names() -> tuple[str, ...]:
    """The names of all jobs."""
    own = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]) if module.ispkg]
    others = [point.name for point in plugins(GROUP)]
    return tuple(dict.fromkeys((*sorted(own, key=lambda name: (name != FIRST, name)), *others)))


def find_job(name: str) -> Job:
    """The job of this name. Loads only that job."""
    for point in plugins(GROUP):
        if point.name == name:
            job: Job = point.load()
            return job
    if name not in job_names():
        raise NotFound(f"there is no job {name}\nThere are: {', '.join(job_names())}.")
    module = import_module(f"{__name__}.{name}.job")
    implementation: Job = module.JOB
    return implementation


def job_of_run(name: str) -> Job:
    """The job of a stored run. One that is no longer installed has the defaults of `Job`, so that its runs
    can still be shown."""
    try:
        return find_job(name)
    except NotFound:
        return Job()


def jobs() -> Iterator[Job]:
    """Every job."""
    return (find_job(name) for name in job_names())


def job_of_items() -> Job:
    """The job of runs whose items are made in Python."""
    return find_job(FIRST)


def job_of_evaluations() -> Job:
    """The job that evaluates recorded sessions."""
    return next(job for job in jobs() if job.evaluates_sessions)


def recognize(text: str) -> Job:
    """The job whose plan a text seems to be, however unfinished it is; coding when nothing tells."""
    return max(jobs(), key=lambda job: job.recognizes(text))
