"""A conversation between two roles: what a role is, how it answers, how the talk goes and ends."""
