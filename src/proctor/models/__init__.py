"""Models: providers, wire formats, prices, recordings and scripted models."""

from proctor.models.router import ModelRouter, is_stand_in

__all__ = ["ModelRouter", "is_stand_in"]
