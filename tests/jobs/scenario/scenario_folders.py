"""Scenario folders for tests: written out from texts, in either dialect."""

from pathlib import Path

SCENARIO = """\
name: "Harbour Fee Talks"
description: "Port authority and a ferry line settle next year's berth fee."
system_prompt: |
  Stay in role. State one concrete step per turn.
initial_world_state: |
  # Spring
  Berth fee is 40 per call; cooperation level: 4
turns: 3
turn_duration: "2 weeks"
world_state_model: "scripted/ok"
context_window_size: 3
enable_bilateral_communication: true
enable_coalition_formation: false
actors: [port, ferry]
"""
PORT = """\
name: "Port Authority"
short_name: "port"
llm_model: "scripted/echo"
system_prompt: "You run the port; you need 2 % more income."
goals: ["Raise income by 2 %", "Keep the ferry line"]
constraints: ["Council must approve fees above 45"]
expertise: {finance: expert, shipping: intermediate}
decision_style: "Careful, step by step"
private_information: "A second ferry line has asked about berths."
"""
FERRY = """\
name: "Ferry Line"
short_name: "ferry"
llm_model: "scripted/ok"
"""
METRICS = r"""
metrics:
  cooperation_level:
    description: "0-10"
    type: int
    extraction_method: regex
    pattern: 'cooperation level:\s*(\d+)'
    actor_specific: false
"""
EVENTS = """\
exogenous_events:
  - {type: scheduled, turn: 2, name: "Storm", description: "Two sailings are lost."}
  - {type: random, probability: 0.1, turn_range: [1, 3], name: "Fuel jump", description: "Fuel +5 %."}
  - {type: conditional, conditions: {cooperation_level: ">= 8"}, name: "Praise", description: "Good press."}
  - {type: trend, frequency: 1, turn_range: [1, 3], once: false, name: "Inflation", description: "Up."}
"""
WORLD = """
variables:
  treasury: 100
  at_war: false
  tax_vote: {values: [yes, no], per_actor: true, set_by: all, visible_to: own}
  tax: {type: int, initial: 10, range: [0, 20], set_by: port}
rules:
  - treasury -= 5 if count(tax_vote, "no") > 1
  - {name: war chest, do: treasury -= 20, when: at_war}
rooms:
  hall: {members: [port, ferry], rounds: 2}
scenario_length: {type: condition, condition: treasury < 50, turns: 9}
"""
FILES = {
    "scenario.yaml": SCENARIO,
    "actors/port.yaml": PORT,
    "actors/ferry.yaml": FERRY,
    "metrics.yaml": METRICS,
    "exogenous-events.yaml": EVENTS,
}


def write_scenario(folder: Path, changed: dict[str, str | None] | None = None) -> Path:
    """Write the harbour, with some files changed; None leaves a file out."""
    for name, text in {**FILES, **(changed or {})}.items():
        if text is not None:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder
