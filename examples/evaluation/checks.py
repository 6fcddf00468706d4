"""A custom evaluator: every answer should name a price."""

import re


def names_a_price(event):
    """Return 1 if the scored turn names an amount, else 0."""
    (trace_id,) = event["evaluationTarget"]["traceIds"]
    turn = next(turn for turn in event["session"]["turns"] if turn["traceId"] == trace_id)
    found = re.search(r"\d+ EUR", turn["answer"])
    return {
        "label": "Yes" if found else "No",
        "value": 1.0 if found else 0.0,
        "explanation": f"it says {found[0]}" if found else "no amount is named",
    }
