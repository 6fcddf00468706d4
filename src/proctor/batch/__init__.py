"""Many items: order, limits, budget, retry, resume."""
