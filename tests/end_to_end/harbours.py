"""The harbour scenario on a model server on loopback, and the experiments that are made of it."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proctor.testing.model_server import ModelServer, ServerReply, reply

SCENARIO = """\
name: Harbour Fee Talks
initial_world_state: "Spring. cooperation level: 4"
turns: 3
turn_duration: 2 weeks
world_state_model: openai/narrator
actors: [port, ferry]
"""
ACTOR = (
    "name: {name}\nshort_name: {short}\nllm_model: openai/{model}\nprivate_information: secret of {short}\n"
)
METRICS = r"""
metrics:
  cooperation_level:
    description: "Level of cooperation between actors"
    extraction_method: "regex"
    pattern: "cooperation.*?(\\d+)"
    type: "int"
"""
CONFIG = """\
experiment_name: "Fee study"
base_scenario: scenarios/harbour
runs_per_variation: {runs}
max_parallel: {parallel}
retries: {retries}
{more}
prices: {{openai/calm: {price}, openai/rash: {price}, openai/ferry: {price}, openai/narrator: {price}}}
output_dir: experiments/fees
"""
PRICE = "{input: 10, output: 10}"
VARIED = "variations: [{type: actor_model, actor: port, values: [openai/calm, openai/rash]}]"


def write_harbour(folder: Path, **changed: str) -> Path:
    """The scenario's folder, below `scenarios/`."""
    root = folder / "scenarios" / "harbour"
    (root / "actors").mkdir(parents=True, exist_ok=True)
    (root / "scenario.yaml").write_text(changed.get("scenario", SCENARIO))
    (root / "metrics.yaml").write_text(METRICS)
    for short, name, model in (("port", "Port Authority", "calm"), ("ferry", "Ferry Line", "ferry")):
        (root / "actors" / f"{short}.yaml").write_text(ACTOR.format(name=name, short=short, model=model))
    return root


def write_config(
    folder: Path, *, runs: int = 1, parallel: int = 1, retries: int = 0, more: str = VARIED
) -> str:
    """The config, at the path that is returned."""
    path = folder / "experiments" / "fees" / "batch-config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(CONFIG.format(runs=runs, parallel=parallel, retries=retries, more=more, price=PRICE))
    return str(path)


def in_the_harbour(request: Mapping[str, Any]) -> ServerReply:
    """How the models answer: warmer or colder by who plays the port, one call costs a cent."""
    model, prompt = request["model"], request["messages"][-1]["content"]
    if model == "narrator":
        level = 8 if "CALM" in prompt else 2
        return reply(f"UPDATED STATE: cooperation level: {level}", input_tokens=900, output_tokens=100)
    return reply(f"ACTION: {model.upper()} acts", input_tokens=900, output_tokens=100)


class Harbour:
    """A folder with the scenario, and `proctor` in it against a server."""

    def __init__(self, proctor: Any, server: ModelServer) -> None:
        self.proctor, self.server, self.folder = proctor, server, proctor.folder
        self.output = self.folder / "experiments" / "fees"
        self.answers: dict[str, Answering] = {}
        proctor.environment |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "sk-loopback-0123456789"}

    async def run(self, *words: str, code: int | None = 0) -> Any:
        """Run a command, check its exit code, and read the JSON that it prints."""
        done = await asyncio.to_thread(self.proctor, *words, "--json")
        if code is not None:
            assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if done.stdout else {}

    def file(self, name: str) -> Any:
        """One of the experiment's JSON files."""
        return json.loads((self.output / name).read_text())

    def states(self) -> dict[str, list[str]]:
        """The texts of all states of the world, by run."""
        return {
            folder.name: [path.read_text() for path in sorted(folder.glob("world-state-*.md"))]
            for folder in sorted((self.output / "runs").iterdir())
        }


Answering = Callable[[Mapping[str, Any]], ServerReply]
