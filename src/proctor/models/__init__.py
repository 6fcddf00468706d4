"""Models: providers, wire formats, prices, recordings and scripted models."""

from proctor.models.prices import price_call
from proctor.models.providers import find_endpoint
from proctor.models.router import ModelRouter, is_stand_in

__all__ = ["ModelRouter", "find_endpoint", "is_stand_in", "price_call"]
