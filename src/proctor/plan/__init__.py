"""Reading plans: text with positions, validation, and shared fields."""
