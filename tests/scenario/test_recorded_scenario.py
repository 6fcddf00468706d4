"""A scenario with everything in it is played as recorded: each question, each answer read, each value."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from stage import PLAIN, Stage, prompt_of

from proctor.model import Request
from proctor.scenario import metrics
from proctor.scenario.definition import scenario_of
from proctor.scenario.simulation import _find
from recorded_files import check

RECORDED = Path(__file__).parent / "recorded" / "scenario.txt"
ACTORS = {
    **PLAIN["actors"],
    "mill": {"name": "Old Mill", "short_name": "mill", "llm_model": "model-mill", "role": "neighbor"},
}
EVERYTHING: dict[str, Any] = {
    "actors": ACTORS,
    "description": "Three neighbors and a fee.",
    "system_prompt": "SHARED-PROMPT",
    "turn_duration": "1 month",
    "context_window_size": 1,
    "summarization_model": "summary",
    "enable_bilateral_communication": True,
    "enable_coalition_formation": True,
    "enable_public_statements": True,
    "max_communications_per_turn": 1,
    "temperature": 0.5,
    "max_tokens": 500,
    "metrics": {
        "cooperation": {
            "description": "how well they work together",
            "type": "integer",
            "pattern": r"cooperation level: (\d+)",
            "range": [0, 10],
        },
        "trust": {"method": "model", "type": "float", "prompt": "How much trust?", "range": [0, 1]},
        "talk": {"method": "keyword", "type": "integer", "keywords": ["fee", "ferry"]},
        "calm": {"type": "boolean", "pattern": r"calm: (yes|no)"},
        "share": {"type": "float", "pattern": r"share (\d+)%", "actor_specific": True},
        "lead": {"type": "string", "pattern": r"mood: (\w+)", "actor": "port", "categories": ["good", "bad"]},
    },
    "events": {
        "fog": {"type": "scheduled", "description": "Fog.", "turn": 2, "effects": [{"text": "All is slow."}]},
        "slump": {"type": "conditional", "description": "Slump.", "conditions": {"cooperation": "<= 5"}},
        "trend": {"type": "trend", "description": "It gets warmer.", "frequency": 2, "once": False},
        "storm": {"type": "random", "description": "Storm.", "probability": 0.5, "once": False},
    },
    "variables": {
        "treasury": {"type": "number", "initial": 20, "range": [0, 100], "unit": "gold"},
        "vote": {
            "type": "choice",
            "values": ["yes", "no"],
            "initial": "no",
            "per_actor": True,
            "set_by": ["port", "ferry"],
        },
        "secret": {"type": "number", "initial": 1, "visible_to": ["mill"]},
    },
    "rules": [
        {"do": "treasury -= 5", "when": "turn >= 2", "name": "upkeep"},
        {"do": 'treasury += 3 if vote.port == "yes"'},
        {"do": 'secret += 1 if event("fog")'},
    ],
    "rooms": {
        "council": {"members": ["port", "ferry", "mill"], "description": "The council.", "rounds": 2},
        "late": {"members": ["port", "mill"], "turn_range": [2, 3]},
    },
    "validation": {
        "validation_model": "checker",
        "scenario_specific_rules": "SPECIAL-RULE",
        "checks": {
            "character": {"severity": "high", "description": "In character?"},
            "facts": {"prompt_template": "Check {turn}. VERDICT: pass or fail"},
            "off": {"enabled": False},
        },
    },
}
ANSWERS = {
    "model-port": (
        "INITIATE_BILATERAL: yes\nTARGET_ACTOR: **Ferry Line**\nPROPOSED_MESSAGE: Lower the fee?\n"
        "PROPOSE_COALITION: yes\nCOALITION_MEMBERS: ferry, Old Mill, nobody\nCOALITION_PURPOSE: a bridge\n"
        "SAY: I open.\nINTERNAL_NOTES: port note\nRESPONSE: port response\nDECISION: yes\n"
        "LONG-TERM GOALS: rich\nSHORT-TERM PRIORITIES: fee\nREASONING: port reasons\n"
        "STATEMENT: We talk.\nACTION: raises the fee, share 40%, mood: good\nSET: vote = yes"
    ),
    "model-ferry": (
        "INITIATE_BILATERAL: no\nSAY: PASS\nINTERNAL_NOTES: ferry note\nRESPONSE: ferry response\n"
        "DECISION: yes, gladly\nREASONING: ferry reasons\nPROPOSE_COALITION: no\n"
        "ACTION: sails, share 30%\nSET: vote = maybe"
    ),
    "model-mill": (
        "INITIATE_BILATERAL: yes\nTARGET_ACTOR: nobody\nSAY: Mill speaks.\nRESPONSE: mill response\n"
        "DECISION: yes\nPROPOSE_COALITION: yes\nCOALITION_MEMBERS: none of them\nACTION: grinds"
    ),
    "narrator": (
        "UPDATED STATE: The fee rises. cooperation level: 6. calm: yes. A ferry sails.\n"
        "KEY CHANGES: fee\nCONSEQUENCES: none yet"
    ),
    "checker": "VERDICT: fail\nISSUES:\n- odd word\n- second\nSEVERITY: high\nEXPLANATION: why",
    "summary": "In short.",
}


def answer(request: Request) -> str:
    if request.model == "narrator" and "How much trust?" in prompt_of(request):
        return "Well.\nTrust: 0.75\n"
    return ANSWERS[request.model]


def _news(request: Request, earlier: Sequence[Request]) -> list[list[str]]:
    """The lines of a request that its model has not read before."""
    known = {
        line
        for other in earlier
        if other.model == request.model
        for message in other.messages
        for line in message["content"].splitlines()
    }
    lines = [[message["role"], *message["content"].splitlines()] for message in request.messages]
    return [[line for line in message if line not in known] for message in lines]


async def test_a_scenario_with_everything_is_played_as_recorded() -> None:
    stage = Stage(answer, **EVERYTHING)
    await stage.play(2)
    document = {
        "requests": [
            [request.model, request.seed, dict(request.parameters), *_news(request, stage.requests[:number])]
            for number, request in enumerate(stage.requests)
        ],
        "turns": [asdict(turn) for turn in stage.turns],
    }
    check(RECORDED, json.loads(json.dumps(document, default=str)))


@pytest.mark.parametrize(
    ("written", "short"),
    [
        ("port", "port"),
        ("Port Authority", "port"),
        ("**ferry**.", "ferry"),
        ("the Ferry Line of old", "ferry"),
        ("ferry, of course: ferry", "ferry"),
        ("talk with mill now", "mill"),
        ("port and ferry", None),
        ("someone", None),
        ("", None),
        ("export", None),
    ],
)
def test_which_actor_a_model_means(written: str, short: str | None) -> None:
    actors = list(scenario_of({**PLAIN, "actors": ACTORS}).actors.values())
    found = _find(actors, written)
    assert (found.short_name if found else None) == short


def test_metrics_of_the_beginning_are_those_of_the_world_that_need_no_model() -> None:
    scenario = scenario_of({**PLAIN, **EVERYTHING, "initial_world_state": "cooperation level: 4. fee fee"})

    assert metrics.at_start(scenario) == {"cooperation": 4, "talk": 2, "calm": None}
