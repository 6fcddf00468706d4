"""`proctor doctor`: is all well here, does this model answer, does this agent work?"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.agent import reach_of
from proctor.agents import find_agent
from proctor.cli import ending as codes
from proctor.cli.agents import look
from proctor.cli.doctor_agent import try_agent
from proctor.cli.doctor_machine import Finding, Trial, is_well, look_around, look_at_machine
from proctor.cli.doctor_model import try_model
from proctor.cli.house import Configuration, Places, configuration, make_models, places
from proctor.cli.options import Json
from proctor.cli.words import print_json, printable
from proctor.errors import UsageError
from proctor.models import Models

doctor_app = typer.Typer(add_completion=False)
apps = {"doctor": doctor_app}

MARKS = {True: "well ", False: "WRONG", None: "     "}


@doctor_app.command()
def doctor(
    context: typer.Context,
    agent: Annotated[
        str, typer.Option(help="Try this agent for real, on a small task in a repository made for it.")
    ] = "",
    model: Annotated[
        str, typer.Option(help="Make one small call of this model; with --agent, it works on this one.")
    ] = "",
    as_json: Json = False,
) -> int:
    """Look at this machine, and try a model or an agent; what is wrong is said with what to do about it.

    Example:  proctor doctor --agent claude --model anthropic/claude-sonnet-4-5
    """
    where = places(context.obj)
    config = configuration(where)
    tried = _Trials(where, config, agent, model)
    findings = list(look_at_machine(where, config.environment))
    if not (agent or model):
        findings += look_around(config.environment)
    trials = tried.run(findings)
    findings += [trial.finding for trial in trials.values()]
    if as_json:
        print_json(_document(findings, {name: trial.document for name, trial in trials.items()}))
    else:
        _tell(findings)
    return codes.SUCCEEDED if is_well(findings) else codes.SOME_DID_NOT


class _Trials:
    """What is to be tried. Names that nobody knows are found before anything starts."""

    def __init__(self, where: Places, config: Configuration, agent: str, model: str) -> None:
        self._config = config
        self._model, self._name = model, agent
        self._agent = find_agent(agent, {}) if agent else None
        self._own_way = self._agent is not None and reach_of(self._agent) == "own"
        self._models = make_models(where, [Path.cwd()])
        if model and not self._own_way:
            self._models.check(model)
        if self._agent and not model and not self._own_way:
            raise UsageError(f"the agent {agent} needs a model\nName one:  --model provider/model")

    def run(self, before: Sequence[Finding]) -> dict[str, Trial]:
        """Try the model, then the agent on it; what cannot go well is not tried."""
        trials = dict[str, Trial]()
        if self._model and not self._own_way:
            trials["model"] = asyncio.run(try_model(self._model, self._config))
        found = [*before, *(trial.finding for trial in trials.values())]
        if self._agent:
            trials["agent"] = self._try_agent(self._models) if is_well(found) else _not_tried(self._name)
        return trials

    def _try_agent(self, models: Models) -> Trial:
        assert self._agent is not None
        found, _ = look(self._name)
        if found.ready:
            return try_agent(self._name, self._agent, found, models, self._model)
        finding = Finding(name=f"agent {self._name}", well=False, said=found.problem, remedy=found.remedy)
        return Trial(finding, {"name": self._name, "status": "missing", "error": found.problem})


def _not_tried(name: str) -> Trial:
    said = "was not tried, since something else is wrong"
    return Trial(Finding(name=f"agent {name}", well=None, said=said), {"name": name, "status": "not tried"})


def _document(findings: Sequence[Finding], trials: dict[str, Any]) -> dict[str, Any]:
    rows = [{"name": f.name, "well": f.well, "said": f.said, "remedy": f.remedy} for f in findings]
    return {"well": is_well(findings), "findings": rows, **trials}


def _tell(findings: Sequence[Finding]) -> None:
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        print(f"{MARKS[finding.well]}  {finding.name:<{width}}  {printable(finding.said)}")
        if finding.remedy:
            print(f"{'':7}{'':<{width}}  → {printable(finding.remedy)}")
