"""A place for an agent to work in: trees of the user's repositories, what becomes of them, merging."""
