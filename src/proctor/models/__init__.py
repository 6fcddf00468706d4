"""Models: providers, their wire formats, their prices, and the scripted stand-ins."""

from proctor.models.prices import price_call
from proctor.models.providers import find_endpoint
from proctor.models.router import ModelRouter, is_stand_in

__all__ = ["ModelRouter", "find_endpoint", "is_stand_in", "price_call"]
