"""Results in the store as statistics read them: columns, summaries, and rules to stop early."""
