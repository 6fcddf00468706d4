"""Tasks: one model, and readers of the formats in which tasks are written."""
