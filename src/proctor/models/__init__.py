"""Models: providers, wire formats, prices, recordings and scripted models."""

from proctor.models.router import ModelRouter, is_mock

__all__ = ["ModelRouter", "is_mock"]
