"""How the parts of a coding plan are spoken of in a message, and what may stand in each.

Knows nothing of the plan at hand.
"""

from proctor.plan.schema import CodingPlan, Defaults, Entry, Exclusion, Expectation, ModelPrice, names_of
from proctor.plan.source import Path
from proctor.plan.validate import Part

# What an item is about first, then what it shares with the defaults.
_ENTRY = ["repo", "prompt", *(name for name in names_of(Entry) if name not in ("repo", "prompt"))]


def vocabulary(path: Path) -> Part | None:
    """The part of a plan at `path`; None where no mapping with settings of its own is."""
    match path:
        case ():
            return Part("the plan", "A plan", names_of(CodingPlan))
        case ("defaults",):
            return Part("`defaults`", "`defaults`", names_of(Defaults))
        case ("matrix", int(index)):
            return Part(f"item {index + 1}", "An item", _ENTRY)
        case ("prices", str(model)):
            return Part(f"the price of `{model}`", "A price", names_of(ModelPrice))
        case ("exclude", int(index)):
            return Part(f"exclusion {index + 1}", "An exclusion", names_of(Exclusion))
        case ("matrix", int(item), "exclude", int(index)):
            return Part(f"exclusion {index + 1} of item {item + 1}", "An exclusion", names_of(Exclusion))
        case ("matrix", int(item), "expect"):
            return Part(f"`expect` of item {item + 1}", "`expect`", names_of(Expectation))
        case ("defaults", "expect"):
            return Part("`expect` of `defaults`", "`expect`", names_of(Expectation))
    return None
