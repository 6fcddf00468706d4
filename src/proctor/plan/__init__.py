"""Text → plan → list of items."""

from proctor.plan.changes import what_changed
from proctor.plan.coding import Plan, read_plan
from proctor.plan.overrides import NO_OVERRIDES, Overrides
from proctor.plan.schema import json_schema

__all__ = ["NO_OVERRIDES", "Overrides", "Plan", "json_schema", "read_plan", "what_changed"]
